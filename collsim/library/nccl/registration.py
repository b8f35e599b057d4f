"""Registered buffers: when there are some, and how many channels rings then take (NCCL src/register/coll_reg.cc)."""

from __future__ import annotations

from collsim.library.calls import Call
from collsim.library.costs.direct_pointers import RINGS_SINCE
from collsim.library.environment import Environment
from collsim.library.library import Library
from collsim.library.system import System

__all__ = ["registered_channels", "registers_rings", "zero_copy"]

REGISTERED_OPS = ("all_reduce", "all_gather", "broadcast")
"""Operations whose rings write into registered buffers: debug lines of 2.28.9 on two H200 show these alone."""
MEASURED = "hopper"
"""Of GPUs behind switches, those on which such rings were measured: of others nobody knows what their channels then
reach, and their launches of all kinds have the constants, and so the channels, of streams."""
ENOUGH, TOO_MANY = 16, 24
"""A ring of one node that is registered takes this many channels where it would have taken more, up to so many."""


def zero_copy(call: Call, environment: Environment) -> bool:
    """Return True if buffers are registered: by the user, or by the library when a graph is captured."""
    return call.registered or (call.launch == "graph" and environment.number("NCCL_GRAPH_REGISTER", 1) != 0)


def registers_rings(call: Call, system: System, library: Library, environment: Environment) -> bool:
    """Return True if rings with Simple store right into the buffers of the next rank."""
    measured = system.switched and system.architecture == MEASURED
    able = measured and library.version >= RINGS_SINCE and call.n_nodes == 1
    return able and call.op in REGISTERED_OPS and zero_copy(call, environment)


def registered_channels(channels: int) -> int:
    """Return the channels of a registered ring that would have had so many.

    >>> [registered_channels(n) for n in (12, 22, 24, 32)]
    [12, 16, 16, 32]
    """
    return ENOUGH if ENOUGH < channels <= TOO_MANY else channels
