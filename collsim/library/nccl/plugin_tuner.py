"""What the network of a cloud decides: AWS's plug-in sets variables of NCCL for EFA, and its tuner has choices of its
own, which go before those of NCCL; Google's documentation sets variables for GPUDirect-TCPX and TCPXO.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from collsim.library.calls import Call, Candidate
from collsim.library.environment import Environment, read_environment

__all__ = ["TUNER_SINCE", "documented", "plugin_latency_us", "taken_by_plugin", "with_plugin"]

FILE = Path(__file__).with_name("plugin_tuner.yaml")
TUNER_SINCE = (2, 19)
"""First version of NCCL that asks a tuner (NCCL release notes)."""
MOST_UNTOUCHED_NODES = 2
"""Up to so many nodes the plug-in leaves the choice to NCCL (aws-ofi-nccl src/tuner/nccl_ofi_regions.cpp)."""
GPUS_PER_NODE = 8
CHUNKS_SINCE = (2, 20)
"""First version of NCCL that lets the chunk of NVLS trees be set: to set it is why the plug-in has variables."""


@cache
def _told() -> dict[str, Any]:
    import yaml

    return dict(yaml.load(FILE.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def with_plugin(environment: Environment, instance: str, version: tuple[int, int]) -> Environment:
    """Return the variables with those that are set on an *instance* where nobody else did."""
    if not instance:
        return environment
    before = _set_on(instance, by_plugin=version >= CHUNKS_SINCE)
    numbers, allowed = {**before.numbers, **environment.numbers}, {**before.allowed, **environment.allowed}
    return replace(environment, numbers=numbers, allowed=allowed)


@cache
def _set_on(instance: str, *, by_plugin: bool) -> Environment:
    """Return what documentation sets on an instance, and what a plug-in does that is new enough."""
    return read_environment({**documented(instance), **(_told()["variables"].get(instance, {}) if by_plugin else {})})


def documented(instance: str) -> dict[str, str | int]:
    """Return the variables that the documentation of a cloud sets on an *instance*, by name.

    >>> documented("a3-high")["NCCL_PROTO"], documented("p5")
    ('Simple', {})
    """
    return dict(_told()["documented"].get(instance, {})) if instance else {}


def plugin_latency_us(instance: str) -> float:
    """Return what the plug-in on an *instance* tells NCCL of the latency between nodes; 0: nothing, as InfiniBand."""
    return float(_told()["latency_us"].get(instance, 0.0)) if instance else 0.0


def taken_by_plugin(call: Call, instance: str, rows: Sequence[Candidate]) -> Candidate | None:
    """Return the one of NCCL's candidates that the plug-in takes on an *instance*; None if it leaves the choice.

    Candidates that variables exclude are not among *rows*, and the plug-in then goes on to its next entry.
    """
    if call.n_nodes <= MOST_UNTOUCHED_NODES or call.n_ranks != GPUS_PER_NODE * call.n_nodes:
        return None
    known = {(row.algo, row.proto): row for row in rows}
    for entry in _told()["instances"].get(instance, {}).get(call.op, ()):
        row = known.get((entry["algo"], entry["proto"]))
        if row is not None and _holds(entry, call):
            return row
    return None


def _holds(entry: dict[str, Any], call: Call) -> bool:
    """Return True if the size of a call is between the lines of an entry."""
    ends = bool(entry.get("ends"))
    first, last = (_at(entry.get(name), call.n_ranks, ends=ends) for name in ("from", "until"))
    return (first is None or call.size_bytes >= first) and (last is None or call.size_bytes <= last)


def _at(line: Sequence[Sequence[float]] | None, ranks: int, *, ends: bool) -> float | None:
    """Return the bytes of a line at a number of ranks, straight in the logarithms; None: there is no line.

    Not a number, which no size is above or below, where the line does not reach.

    >>> line = [[16, 2**20], [64, 2**24]]
    >>> _at(line, 32, ends=True) / 2**22, _at(line, 128, ends=False) / 2**26, _at(line, 128, ends=True)
    (1.0, 1.0, nan)
    """
    if line is None:
        return None
    if ranks < line[0][0] or (ends and ranks > line[-1][0]):
        return math.nan
    after = next((place for place, (most, _) in enumerate(line) if ranks <= most), len(line) - 1)
    (low, less), (high, more) = line[max(after, 1) - 1], line[max(after, 1)]
    part = math.log(ranks / low) / math.log(high / low)
    return float(less * (more / less) ** part)
