"""Kinds of points: the function that answers each, the arguments that it has, and what a value may be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, UnknownNameError
from collsim.core.kinds import annotations_of
from collsim.simulation.request.callers import SPELLINGS
from collsim.simulation.request.fields import BY_NAME

__all__ = ["KINDS", "Kind", "check_value", "listed_value", "spelled"]


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of point: *function*, ``module:name`` of the one whose arguments it has; *needs* those that must be given.

    *also* are arguments beside them, and *pairs* those that are mappings, whose entries are set one by one with a dot.
    """

    function: str
    needs: tuple[str, ...]
    pairs: tuple[str, ...]
    also: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of all arguments."""
        return tuple(name for name in (*_names(self.function), *self.also) if name not in self.leaves)


RANGE = ("min_bytes", "max_bytes", "step_bytes", "step_factor")
KINDS: Mapping[str, Kind] = {
    "run": Kind(
        "collsim.simulation.simulate:simulate", ("topo", "op", "size"), ("overrides", "environment", "degrade"),
        leaves=RANGE,
    ),
    "moe": Kind("collsim.moe.simulate:simulate_moe", ("topo",), ("overrides", "degrade")),
    "timeline": Kind(
        "collsim.timeline.simulate:simulate_timeline", ("workload", "topo"),
        ("overrides", "environment", "degrade", "figures"), also=("workload", "figures"),
        leaves=("file", "what_if", "steps", "recorded_on"),
    ),
}  # fmt: skip
"""By their name in a file. ``workload`` is a file of `simulate_timeline`, and ``figures`` replace entries of it."""
LISTS = ("rank_list", "fail", "load", "hash_seeds", "seeds", "groups", "overrides", "environment", "degrade", "matrix")
"""Arguments whose value may be a list."""
ALONE = (
    "op", "size", "channels", "chunk", "dtype", "proto", "library", "environment", "launch", "registered", "tolerance",
    "host", "gpus_per_thread", "split", "redop", "root", "load", "hash_seeds",
)  # fmt: skip
"""Arguments of `simulate` that can be checked without the others."""
COUNTS = ("nodes", "gpus_per_node", "racks", "ranks")
"""Arguments that are whole numbers, whatever the kind; how many the machine has is found at the point."""


@cache
def _names(function: str) -> tuple[str, ...]:
    module, _, name = function.partition(":")
    return tuple(annotations_of(getattr(import_module(module), name)))


def spelled(name: str) -> str:
    """Return the argument that a name of the command line or of Python means.

    >>> spelled("set"), spelled("gpus-per-node"), spelled("env")
    ('overrides', 'gpus_per_node', 'environment')
    """
    name = name.lstrip("-").replace("-", "_")
    return SPELLINGS.get(name, name)


def listed_value(name: str) -> bool:
    """Return True if one value of an argument may be a list."""
    return name in LISTS


def check_value(kind: str, name: str, value: Any, where: str, faults: Faults) -> None:
    """Add to *faults* what is wrong with a value whatever the others are; what depends on them fails at its point."""
    head, _, path = name.partition(".")
    if isinstance(value, float) and not math.isfinite(value):  # JSON has none of these
        faults.append(Fault(f"{value} is no number", where, "give a finite one"))
    elif name == "topo":
        faults.attempt(_check_topology, value, where)
    elif name == "workload":
        faults.attempt(_check_workload, value, where)
    elif head == "overrides":
        _check_path(path, where, faults)
    elif name in COUNTS:
        faults.attempt(_check_count, name, value, where)
    elif name in _known_names():
        faults.attempt(_check_name, name, value, where)
    elif kind == "run" and name == "algo":
        faults.attempt(_check_algorithm, value, where)
    elif kind == "run" and head in ALONE:
        faults.attempt(_alone, head, {path: str(value)} if path else value, where)


@cache
def _known_names() -> dict[str, tuple[str, ...]]:
    """Return what values of arguments that name things are; a file may be named as well."""
    from collsim.library import profile_names
    from collsim.moe.kernel_costs import kernel_names
    from collsim.moe.models import model_names
    from collsim.topology import FABRICS, network_names

    return {
        "fabric": tuple(FABRICS),
        "network": tuple(network_names()),
        "profile": ("auto", *profile_names()),
        "model": tuple(model_names()),
        "kernel": ("auto", *kernel_names()),
    }


def _check_name(name: str, value: Any, where: str) -> None:
    known = _known_names()[name]
    text = str(value)
    if value is not None and text.lower() not in map(str.lower, known) and not ("." in text or "/" in text):
        raise UnknownNameError(name, text, known, where)


def _check_count(name: str, value: Any, where: str) -> None:
    number = int(value) if isinstance(value, str) and value.isdecimal() and name != "ranks" else value
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise InputError(Fault(f"{value!r} is no number of {name}", where, "give a whole number, 1 or more"))


def _alone(name: str, value: Any, where: str) -> None:
    from collsim.simulation.request.request import ask

    asked = {"op": "all_reduce", "size": "1M", name: value}
    try:
        ask(**asked)
    except InputError as error:
        raise InputError(*(replace(fault, where=where) for fault in error.faults)) from None


def _check_topology(value: Any, where: str) -> None:
    from pathlib import Path

    from collsim.topology import cluster_names, zoo_names

    known = (*zoo_names(), *cluster_names())
    if str(value) not in known and not ("." in str(value) and Path(str(value)).exists()):
        raise UnknownNameError("topology", str(value), known, where)


def _check_path(path: str, where: str, faults: Faults) -> None:
    from collsim.topology.files.overrides import normalise_overrides, unknown_path

    inner: list[Fault] = []
    for full, _ in normalise_overrides([(path, "0")], inner):
        fault = unknown_path(full)
        inner += [fault] if fault else []
    faults += [replace(fault, where=where) for fault in inner]


def _check_workload(value: Any, where: str) -> None:
    from collsim.timeline.kineto import is_trace
    from collsim.timeline.reader import read_trace
    from collsim.timeline.workload import read_workload

    try:
        (read_trace if is_trace(str(value)) else read_workload)(str(value))
    except InputError as error:
        raise InputError(
            *(replace(fault, what=f"{value}: {fault.what}", where=where) for fault in error.faults)
        ) from None


def _check_algorithm(value: Any, where: str) -> None:
    from collsim.simulation.request.request import algorithm_names
    from collsim.simulation.request.values import in_known_case

    known = [name for name in algorithm_names() if name != "all"]  # one row to a point
    if in_known_case(str(value), known) not in known:
        raise UnknownNameError("algorithm", str(value), known, where)


def signature_defaults(kind: str) -> dict[str, Any]:
    """Return what each argument of a kind is if it is not given."""
    module, _, name = KINDS[kind].function.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


assert set(ALONE) <= set(BY_NAME)
