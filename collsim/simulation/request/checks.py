"""Checks of single fields of a request: a value as a caller gives it to the value of `Request`, or its faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.core.errors import Fault, Faults, InputError, nearest
from collsim.core.kinds import shown
from collsim.core.operations import REDUCTIONS
from collsim.core.units import format_count, parse_size_bytes
from collsim.library.library import PROTOCOLS
from collsim.simulation.request.values import read_choice, read_whole

if TYPE_CHECKING:
    from collsim.library import Library
    from collsim.topology import Topology

__all__ = [
    "MOST_CHANNELS",
    "PROTOCOLS",
    "channels",
    "chunk",
    "environment",
    "gpus_per_thread",
    "host",
    "launch",
    "library",
    "proto",
    "redop",
    "registered",
    "root",
    "threads_on",
    "truth",
]

LAUNCHES = ("stream", "graph")
SYMMETRIC = "symmetric"
"""How the user may register buffers beside plainly."""
MOST_CHANNELS = 128
"""MAXCHANNELS of RCCL; NCCL stops at 64."""
MOST_GPUS_PER_THREAD = 1024
"""Far more than any host has."""


def chunk(value: Any) -> int | None:
    """Return the largest chunk of a channel in bytes; None leaves it to the algorithm."""
    return None if value is None else parse_size_bytes(value, "chunk", allow_zero=False)


def redop(value: Any) -> str:
    """Return a reduction operator."""
    return _one_of(value, "redop", "reduction", REDUCTIONS)


def channels(value: Any) -> int | None:
    """Return a number of channels; None leaves it to the library."""
    return None if value is None else _between(value, "channels", "channels", MOST_CHANNELS)


def proto(value: Any) -> str | None:
    """Return a protocol; None leaves it to the library."""
    return None if value is None else _one_of(value, "proto", "protocol", PROTOCOLS)


def root(value: Any) -> int:
    """Return a rank; how many there are is checked with the topology."""
    faults = Faults()
    rank = read_whole(value, "root", "root", "the rank of the root, such as 0", faults)
    faults.raise_any()
    return rank


def gpus_per_thread(value: Any) -> int:
    """Return a number of GPUs that one thread serves."""
    return _between(value, "gpus_per_thread", "GPUs per thread", MOST_GPUS_PER_THREAD, "a number such as 8")


def threads_on(topology: Topology, gpus_per_thread: int) -> None:
    """Refuse threads that start more GPUs than a node has, whatever fails there: a thread is of one host.

    Raises
    ------
    InputError
    """
    most = int(np.bincount(topology.wiring.coordinates.node).max())
    if gpus_per_thread > most:
        where = "a node of " if most < topology.n_gpus else ""
        what = f"{format_count(gpus_per_thread, 'GPU')} per thread, but {where}{topology.name} has {most}"
        raise InputError(Fault(what, "gpus_per_thread", f"at most {most}"))


def host(value: Any) -> str:
    """Return a kind of host, or the time that it takes to start a call."""
    from collsim.library.costs.hosts import checked_host

    return checked_host(value)


def launch(value: Any) -> str:
    """Return a way to launch calls."""
    return _one_of(value, "launch", "launch", LAUNCHES)


def registered(value: Any) -> bool | str:
    """Return whether the user registered the buffers, and if so whether as symmetric windows."""
    if isinstance(value, str) and value.strip().lower() == SYMMETRIC:
        return SYMMETRIC
    if isinstance(value, bool | np.bool_):
        return bool(value)
    near = nearest(value, [SYMMETRIC]) if isinstance(value, str) else None
    hint = f'did you mean "{near}"?' if near else f'pass True, False or "{SYMMETRIC}"'
    raise InputError(Fault(f"registered {shown(value)} is not true, false or {SYMMETRIC}", "registered", hint))


def library(value: Any) -> Library | None:
    """Return the library whose choice ``auto`` follows; None leaves it to the profile."""
    from collsim.library import Library, load_library

    if value is None:
        return None
    if not isinstance(value, str | Library):
        hint = "write a name and version such as nccl-2.28"
        raise InputError(Fault(f"library {shown(value)} is not a name", "library", hint))
    return load_library(value)


def environment(value: Any) -> dict[str, str]:
    """Return variables of the environment as text; unknown ones are refused."""
    if value is None:
        return {}
    hint = 'write {"NCCL_ALGO": "Ring"}'
    if not isinstance(value, Mapping):
        raise InputError(Fault(f"{shown(value)} is not a mapping of variables", "environment", hint))
    faults = Faults()
    variables = {}
    for name, text in value.items():
        if not isinstance(name, str) or isinstance(text, bool) or not isinstance(text, str | int | np.integer):
            faults.append(Fault(f"{shown(name)} = {shown(text)} is not a variable with a text", "environment", hint))
        else:
            variables[name] = text if isinstance(text, str) else shown(text)
    if variables:
        from collsim.library import read_environment

        faults.attempt(read_environment, variables, where="environment")
    faults.raise_any()
    return variables


def truth(name: str, value: Any) -> bool:
    """Return the value of the flag called *name*."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(Fault(f"{name} {shown(value)} is not true or false", name, "pass True or False"))
    return bool(value)


def _one_of(value: Any, where: str, kind: str, known: Iterable[str]) -> str:
    """Return one of several names."""
    faults = Faults()
    name = read_choice(value, where, kind, tuple(known), faults)
    faults.raise_any()
    return name


def _between(value: Any, where: str, noun: str, most: int, hint: str = "") -> int:
    """Return a whole number from 1 to *most*."""
    faults = Faults()
    allowed = f"between 1 and {most}"
    number = read_whole(value, where, noun, hint or allowed, faults)
    if not faults and not 1 <= number <= most:
        faults.append(Fault(f"{shown(number)} {noun}", where, allowed))
    faults.raise_any()
    return number
