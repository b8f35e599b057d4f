"""Problems in which nobody is in another's way: every transfer goes at the pace that it has alone.

Times then follow from latencies, sizes and dependencies, one transfer after the other. That it is so is checked after:
if at no time the paces on a link add up to more than it carries, they are the max-min fair ones, which are unique.
Chains and rings whose channels have links of their own, or caps that leave room on common ones, are of this kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collsim.engine.problem import Floats, Problem
from collsim.engine.reference import TIE

__all__ = ["Times", "unhindered"]

FIRST = 1 / 16
"""So many of the transfers show as a rule whether some meet; they do not depend on what comes after them."""
ROUNDING = 1e-12
"""By how much more than a link carries paces may add up to: they are sums in another order."""


class Times(NamedTuple):
    """When each transfer of a problem happens, float64[n]."""

    ready_s: Floats
    start_s: Floats
    finish_s: Floats


def unhindered(p: Problem) -> Times | None:
    """Return the times of a checked problem; None if transfers meet on a link, or do not follow their predecessors.

    Takes a microsecond for each transfer, and half of one for each hop.
    """
    some = int(FIRST * len(p.route))
    first = p._replace(
        route=p.route[:some],
        size_bytes=p.size_bytes[:some],
        latency_s=p.latency_s[:some],
        cap_Bps=p.cap_Bps[:some],
        dep_ptr=p.dep_ptr[: some + 1],
        dep=p.dep[: p.dep_ptr[some]],
    )
    return _times(p) if _times(first) else None


def _times(p: Problem) -> Times | None:
    n_hops = np.diff(p.route_ptr)
    needs = p.route_weight / p.capacity_Bps[p.route_link]
    slowest = np.zeros(len(n_hops))
    full = n_hops > 0
    slowest[full] = np.maximum.reduceat(needs, p.route_ptr[:-1][full]) if full.any() else 0.0
    with np.errstate(divide="ignore"):
        pace_Bps = np.minimum(1 / slowest[p.route], p.cap_Bps)  # infinite: a local copy that nothing slows down
    flows_s = p.size_bytes / pace_Bps
    ready_s = _ready(p, flows_s)
    if ready_s is None:
        return None
    start_s = ready_s + p.latency_s
    times = Times(ready_s, start_s, start_s + flows_s)
    return times if _fits(p, pace_Bps, times) else None


def _ready(p: Problem, flows_s: Floats) -> Floats | None:
    """Return when the last predecessor of each transfer is over; None if one comes after what waits for it."""
    waiting = np.repeat(np.arange(len(p.route)), np.diff(p.dep_ptr))
    if (p.dep >= waiting).any():
        return None
    dep, ptr, latency, flows = p.dep.tolist(), p.dep_ptr.tolist(), p.latency_s.tolist(), flows_s.tolist()
    ready, finish = [0.0] * len(flows), [0.0] * len(flows)
    begin = 0
    for i, end in enumerate(ptr[1:]):
        if end > begin:
            ready[i] = max([finish[j] for j in dep[begin:end]])
        finish[i] = ready[i] + latency[i] + flows[i]
        begin = end
    return np.array(ready)


def _fits(p: Problem, pace_Bps: Floats, times: Times) -> bool:
    """Return True if at no time a link carries more than it can; ends that the engine would join are joined."""
    rows = np.flatnonzero(p.size_bytes)
    n_hops = np.diff(p.route_ptr)[p.route[rows]]
    owner = np.repeat(rows, n_hops)
    first = np.repeat(p.route_ptr[p.route[rows]] - np.cumsum(n_hops) + n_hops, n_hops)
    hop = first + np.arange(len(owner))
    link, load = p.route_link[hop], p.route_weight[hop] * pace_Bps[owner] / p.capacity_Bps[p.route_link[hop]]
    over_s = times.finish_s - TIE * (times.finish_s - times.start_s)
    when_s = np.concatenate([over_s[owner], times.start_s[owner]])  # ends first: they make room for what begins then
    change = np.concatenate([-load, load])
    order = np.lexsort((np.arange(len(when_s)), when_s, np.concatenate([link, link])))
    busy = np.cumsum(change[order])
    return bool(busy.max(initial=0.0) <= 1 + ROUNDING)
