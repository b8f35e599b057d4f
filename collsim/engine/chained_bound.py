"""A time that no simulation of a problem can undercut, found without simulating it."""

from __future__ import annotations

import numpy as np

from collsim.engine.problem import Floats, Ints, Problem, least_time_s, link_bytes, top_rates

__all__ = ["chained_time_s", "one_chain_s", "round_trip_s"]


def chained_time_s(p: Problem) -> float:
    """Return a time before which a checked problem cannot have ended, with what its transfers wait for.

    Each transfer takes at least as long as alone, and begins when its predecessors could have ended at the earliest:
    its head. A link begins with the least head of its transfers, carries all its bytes, and then at least the shortest
    chain that waits for one of them follows, their least tail. The same bound serves job shops (Carlier, European J.
    Operational Research 11 (1982) 42). Predecessors that come later in the arrays are not counted.

    >>> import numpy as np
    >>> two = Problem(*map(np.array, ([4.0], [0, 1], [0], [1.0], [0, 0], [8.0, 2.0], [1.0, 0.5], [np.inf, 1.0])),
    ...     dep_ptr=np.array([0, 0, 1]), dep=np.array([0]))
    >>> chained_time_s(two)
    5.5
    """
    owner = np.repeat(np.arange(len(p.route)), np.diff(p.dep_ptr))
    if (p.dep >= owner).any():
        return least_time_s(p)
    flows = p.size_bytes > 0
    alone_s = np.divide(p.size_bytes, top_rates(p), out=np.zeros(len(p.route)), where=flows)
    head_s, tail_s = _heads_and_tails(p, alone_s)
    end_s = float((head_s + alone_s).max(initial=0.0))
    begin_s, rest_s = (_least_on_links(p, times, flows) for times in (head_s, tail_s))
    used = np.isfinite(begin_s)
    links_s = begin_s[used] + link_bytes(p, p.size_bytes)[used] / p.capacity_Bps[used] + rest_s[used]
    return max(end_s, float(links_s.max(initial=0.0)))


def one_chain_s(p: Problem) -> float:
    """Return a time before which a checked problem cannot have ended, by what its last transfer waits for.

    One way back through what comes before it in the arrays, each time to the predecessor that comes last there, and of
    those on the way each at least as long as alone: a weaker bound than `chained_time_s`, for next to nothing.

    >>> import numpy as np
    >>> two = Problem(*map(np.array, ([4.0], [0, 1], [0], [1.0], [0, 0], [8.0, 2.0], [1.0, 0.5], [np.inf, 1.0])),
    ...     dep_ptr=np.array([0, 0, 1]), dep=np.array([0]))
    >>> one_chain_s(two)
    5.5
    """
    at, way = len(p.route) - 1, []
    while at >= 0:
        way.append(at)
        before = p.dep[p.dep_ptr[at] : p.dep_ptr[at + 1]]
        before = before[before < at]
        at = int(before.max()) if len(before) else -1
    rates_Bps, size_bytes = top_rates(p)[way], p.size_bytes[way]
    alone_s = np.divide(size_bytes, rates_Bps, out=np.zeros(len(way)), where=size_bytes > 0)
    return float((p.latency_s[way] + alone_s).sum())


def round_trip_s(p: Problem, label: Ints) -> float:
    """Return a time that cannot have passed less from when the first transfer of a checked problem was ready to the end
    of the last one of the same *label*, by what waits for that first one, one after the other.

    *label* is int64 for the transfers that come first in the arrays; predecessors that come later are not counted.

    >>> import numpy as np
    >>> two = Problem(*map(np.array, ([4.0], [0, 1], [0], [1.0], [0, 0], [8.0, 2.0], [1.0, 0.5], [np.inf, 1.0])),
    ...     dep_ptr=np.array([0, 0, 1]), dep=np.array([0]))
    >>> round_trip_s(two, np.array([3, 3])), round_trip_s(two, np.array([3, 0]))
    (5.5, 3.0)
    """
    alone_s = np.divide(p.size_bytes, top_rates(p), out=np.zeros(len(p.route)), where=p.size_bytes > 0)
    took, dep, ptr = (p.latency_s + alone_s).tolist(), p.dep.tolist(), p.dep_ptr.tolist()
    end = [took[0]] + [-np.inf] * (len(took) - 1)
    for i in range(1, len(took)):
        before = [end[j] for j in dep[ptr[i] : ptr[i + 1]] if j < i]
        if before:
            end[i] = max(before) + took[i]
    return float(np.array(end)[: len(label)][label == label[0]].max())


def _heads_and_tails(p: Problem, alone_s: Floats) -> tuple[Floats, Floats]:
    """Return when each transfer could start to flow at the earliest, and what follows its end at least."""
    dep, ptr, latency_s, alone = p.dep.tolist(), p.dep_ptr.tolist(), p.latency_s.tolist(), alone_s.tolist()
    n = len(alone)
    head, end, tail = [0.0] * n, [0.0] * n, [0.0] * n
    for i in range(n):
        before = dep[ptr[i] : ptr[i + 1]]
        head[i] = latency_s[i] + (max([end[j] for j in before]) if before else 0.0)
        end[i] = head[i] + alone[i]
    for i in range(n - 1, -1, -1):
        own = latency_s[i] + alone[i] + tail[i]
        for j in dep[ptr[i] : ptr[i + 1]]:
            tail[j] = max(tail[j], own)
    return np.array(head), np.array(tail)


def _least_on_links(p: Problem, times_s: Floats, flows: np.ndarray) -> Floats:
    """Return float64[n_links]: the least of *times_s* among the transfers with bytes on each link."""
    on_route, on_link = np.full(len(p.route_ptr) - 1, np.inf), np.full(len(p.capacity_Bps), np.inf)
    np.minimum.at(on_route, p.route[flows], times_s[flows])
    np.minimum.at(on_link, p.route_link, np.repeat(on_route, np.diff(p.route_ptr)))
    return on_link
