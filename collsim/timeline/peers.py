"""Traces of several ranks: how long each collective took once the last of them was there; clocks need not agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collsim.timeline.trace import Trace

__all__ = ["with_peers"]

Key = tuple[str, str, int]


def with_peers(trace: Trace, others: Sequence[Trace]) -> Trace:
    """Return a trace whose collectives know how long they took once all ranks with a trace were there.

    A collective ends on all ranks at once, so that the one that took least came last: only lengths count. Collectives
    of a group are matched by their order; where their numbers differ, the other trace says nothing.
    """
    kernels = trace.kernels
    met = {i: kernels[i].end_s - kernels[i].start_s for each in _calls(trace).values() for i in each}
    lost = list(trace.lost)
    for other in others:
        if other.rank == trace.rank >= 0:
            lost.append(
                f"{other.file} is of rank {trace.rank} as well: how long ranks waited for each other it does not tell"
            )
        theirs = _calls(other)
        for key, mine in _calls(trace).items():
            found = theirs.get(key, [])
            if len(found) != len(mine):
                what = f"{key[1]} of {key[2]} B in group {key[0] or 'unnamed'}"
                lost.append(f"{other.file} is left out for {what}: it has {len(found)} of them, not {len(mine)}")
                continue
            for i, j in zip(mine, found, strict=True):
                met[i] = min(met[i], other.kernels[j].end_s - other.kernels[j].start_s)
    told = tuple(replace(k, met_s=met[i]) if i in met else k for i, k in enumerate(kernels))
    return replace(trace, kernels=told, lost=tuple(lost))


def _calls(trace: Trace) -> dict[Key, list[int]]:
    """Return the numbers of collectives whose size is known, by group, operation and size."""
    found: dict[Key, list[int]] = {}
    for i, k in enumerate(trace.kernels):
        if k.call is not None and k.call.size_bytes and k.call.op != "send_recv":
            found.setdefault((k.call.group, k.call.op, k.call.size_bytes), []).append(i)
    return found
