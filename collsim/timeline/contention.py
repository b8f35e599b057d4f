"""Times of a trace alone: kernels and collectives without what they took from each other, and late peers apart."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

from collsim.timeline.gpus import Gpu
from collsim.timeline.graph import Node
from collsim.timeline.replay import LONGEST_WAVE, compute_rate, fair_shares, pace
from collsim.timeline.trace import COLLECTIVE, MATMUL, Kernel

__all__ = ["LEAST_LATE_S", "undo_contention"]

LEAST_LATE_S = 5e-6
"""Less is no peer that is late."""
ALWAYS_LATE = 1.25
"""If all equal collectives took longer than this times what the model says, this rank always waited for a peer: errors
of the model within a node are smaller (docs/accuracy.md)."""
CLASS_QUANTILE = 0.1
"""Of the times of equal collectives, the one with which nobody waited for a peer; the least is prone to chance."""
ROUNDS = 3
"""When collectives moved bytes depends on how they shared links, and the other way round; after so many rounds both are
settled: a further one moves nothing in the tests."""

TOUCH_S = 1e-6
"""Two kernels that overlap by no more only touch: clocks of traces are no finer where they count from 1970."""

Part = tuple[float, float, float]
"""From when to when, and how many times longer work takes there."""


def undo_contention(
    nodes: list[Node], kernels: Sequence[Kernel], gpu: Gpu, model_s: Mapping[int, float]
) -> dict[int, float]:
    """Turn recorded times into those alone, and what is left of collectives into the lateness of peers.

    Return the calls that were always late, as `collsim.timeline.build.Built.late` has them.
    """
    collectives = [i for i, k in enumerate(kernels) if k.kind == COLLECTIVE]
    beside = _beside(kernels, collectives)
    _undo_of_kernels(nodes, kernels, beside, gpu)
    slow = {
        i: _disjoint(
            [(a, b, max(pace(kernels[j].kind, gpu, adds=nodes[i].adds) / nodes[i].spare, 1.0)) for a, b, j in each]
        )
        for i, each in beside.items()
    }
    begin_s = {i: _met_at(kernels[i]) for i in collectives}
    if not _at_once(nodes, kernels, begin_s):
        return _split_lateness(nodes, kernels, collectives, slow, model_s)[0]
    for _ in range(ROUNDS):
        shared = _at_once(nodes, kernels, begin_s)
        both = {i: _disjoint(slow.get(i, []), shared.get(i, [])) for i in collectives}
        late, begin_s = _split_lateness(nodes, kernels, collectives, both, model_s)
    return late


def _beside(kernels: Sequence[Kernel], collectives: Sequence[int]) -> dict[int, list[tuple[float, float, int]]]:
    """Return from when to when each collective ran beside which other kernels."""
    others = sorted((k.start_s, k.end_s, i) for i, k in enumerate(kernels) if k.kind != COLLECTIVE)
    starts = [start for start, _, _ in others]
    widest_s = max((end - start for start, end, _ in others), default=0.0)
    found = {}
    for i in collectives:
        k = kernels[i]
        first, last = bisect_left(starts, k.start_s - widest_s), bisect_left(starts, k.end_s)
        parts = [(max(start, k.start_s), min(end, k.end_s), j) for start, end, j in others[first:last]]
        found[i] = [(a, b, j) for a, b, j in parts if b - a > TOUCH_S]
    return found


def _undo_of_kernels(
    nodes: list[Node],
    kernels: Sequence[Kernel],
    beside: Mapping[int, Sequence[tuple[float, float, int]]],
    gpu: Gpu,
) -> None:
    """Give kernels the time that they would take with all multiprocessors."""
    lost_s: dict[int, float] = {}
    for i, parts in beside.items():
        for a, b, j in parts:
            lost_s[j] = lost_s.get(j, 0.0) + (b - a) * (1 - compute_rate(nodes[i].sms, gpu))
    for j, each_s in lost_s.items():
        work_s = nodes[j].work_s - min(each_s, nodes[j].work_s * 0.9)
        wave = kernels[j].full and kernels[j].kind == MATMUL
        nodes[j].work_s = max(work_s - gpu.wave_s, work_s / (1 + LONGEST_WAVE)) if wave else work_s


def _at_once(nodes: Sequence[Node], kernels: Sequence[Kernel], begin_s: Mapping[int, float]) -> dict[int, list[Part]]:
    """Return from when to when collectives that moved bytes at once took longer for it, as they shared links."""
    known = [i for i in begin_s if nodes[i].call >= 0 and nodes[i].load > 0]
    cuts = sorted([(begin_s[i], 1, i) for i in known] + [(kernels[i].end_s, 0, i) for i in known])
    found: dict[int, list[Part]] = {}
    moving: dict[int, None] = {}
    for (at_s, starts, i), (until_s, _, _) in pairwise([*cuts, (math.inf, 0, -1)]):
        if starts:
            moving[i] = None
        else:
            moving.pop(i, None)
        if len(moving) > 1 and until_s > at_s:
            shares = fair_shares([{nodes[j].link: nodes[j].load} for j in moving])
            for j, share in zip(moving, shares, strict=True):
                if share < 1:
                    found.setdefault(j, []).append((at_s, until_s, 1 / share))
    return found


def _disjoint(slow: Sequence[Part], shared: Sequence[Part] = ()) -> list[Part]:
    """Return parts that do not overlap: the slowest of *slow* counts, and what is shared beside it.

    >>> _disjoint([(0.0, 2.0, 1.5), (1.0, 3.0, 2.0)], [(2.0, 4.0, 2.0)])
    [(0.0, 1.0, 1.5), (1.0, 2.0, 2.0), (2.0, 3.0, 4.0), (3.0, 4.0, 2.0)]
    """
    ordered = sorted(slow)
    if not shared and all(b <= a for (_, b, _), (a, _, _) in pairwise(ordered)):
        return ordered
    events = [(at, n, kind) for n, part in enumerate([*ordered, *shared]) for kind, at in enumerate(part[:2])]
    parts, n_slow, active, found = [*ordered, *shared], len(ordered), set[int](), []
    for (at_s, n, ends), (until_s, _, _) in pairwise([*sorted(events, key=lambda e: (e[0], -e[2])), (math.inf, 0, 0)]):
        active.discard(n) if ends else active.add(n)
        if active and until_s > at_s:
            slowest = max((parts[j][2] for j in active if j < n_slow), default=1.0)
            found.append((at_s, until_s, slowest * math.prod(parts[j][2] for j in active if j >= n_slow)))
    return found


def _split_lateness(
    nodes: list[Node],
    kernels: Sequence[Kernel],
    collectives: Sequence[int],
    slow: Mapping[int, list[Part]],
    model_s: Mapping[int, float],
) -> tuple[dict[int, float], dict[int, float]]:
    """Share the recorded time of collectives out to their work and to waiting for peers.

    Return the calls that were always late, and from when on each collective moved bytes.

    Equal collectives do equal work. A rank that always waited shows no time without it: then the model's own holds, if
    there are no traces of other ranks.
    """
    work_s = {i: _work_until(_met_at(kernels[i]), kernels[i].end_s, slow.get(i, [])) for i in collectives}
    classes: dict[tuple[int, int, str], list[float]] = {}
    for i in collectives:
        classes.setdefault((nodes[i].call, nodes[i].sms, nodes[i].name), []).append(work_s[i])
    least = {key: sorted(each)[int(len(each) * CLASS_QUANTILE)] for key, each in classes.items()}
    late: dict[int, float] = {}
    begins_s = {}
    for i in collectives:
        k, node = kernels[i], nodes[i]
        alone_s, told_s = least[node.call, node.sms, node.name], model_s.get(node.call, math.inf)
        if alone_s > ALWAYS_LATE * told_s and math.isnan(k.met_s):
            late[node.call], alone_s = alone_s / told_s, told_s
        node.work_s = min(alone_s, work_s[i]) if node.call >= 0 else work_s[i]
        begins_s[i] = begin_s = _begin_of(node.work_s, k.start_s, k.end_s, slow.get(i, []))
        ready_s = k.start_s - node.gap_s
        node.late_s = begin_s - ready_s if begin_s > k.start_s + LEAST_LATE_S else 0.0
    return late, begins_s


def _met_at(k: Kernel) -> float:
    """Return from when on all ranks with a trace were there; its start if that is not known."""
    return k.start_s if math.isnan(k.met_s) else max(k.start_s, k.end_s - k.met_s)


def _work_until(start_s: float, end_s: float, slow: Sequence[Part]) -> float:
    """Return the time alone of what a collective does from *start_s* to *end_s*."""
    return end_s - start_s - sum(max(b - max(a, start_s), 0.0) * (1 - 1 / factor) for a, b, factor in slow)


def _begin_of(work_s: float, start_s: float, end_s: float, slow: Sequence[Part]) -> float:
    """Return from when on a collective was busy if it took *work_s* alone and ended at *end_s*."""
    at, left = end_s, work_s
    for a, end, factor in sorted(slow, reverse=True):
        b = min(end, at)
        if b <= a:
            continue
        if at - b >= left:
            return at - left
        left -= at - b
        if (b - a) / factor >= left:
            return b - left * factor
        left -= (b - a) / factor
        at = a
    return max(at - left, start_s)
