"""Flows: every transfer of a run with the rates of all links over time, exact, for who draws them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collsim.core.arrays import entries_of
from collsim.core.errors import Fault, UnsupportedError
from collsim.engine import Problem
from collsim.engine.rates import Stretches, WorkLimitReached, rates_over_time
from collsim.fabric.fabric import Float, Int
from collsim.fabric.routing import Routes
from collsim.simulation.concurrent import GroupTask
from collsim.simulation.link_bytes import Flows, Sent
from collsim.simulation.problems import wire_copies
from collsim.simulation.timing import spans_of

__all__ = ["MOST_HOPS", "FlowsOf", "refuse_long"]

MOST_SENT = 100_000
"""Transfers of a trace (chosen): slices of 20 MB."""
MOST_HOPS = 3_000_000
"""Links that all of them together cross (chosen): what adds up the rates takes half a gigabyte for them."""
MOST_CHANGES = 600_000
"""Changes of rates of links (chosen): counters of 80 MB. Where many transfers begin and end at once they are fewer than
hops, so that only the rates tell."""
MOST_WORK = 5_000_000
"""Work of the engine for them, a few microseconds each: irregular traffic changes all rates at every end."""
HINT = "ask for fewer ranks, a smaller size, or --algo ring with --channels 1"
NOTHING = 1e-9
"""A rate below this part of what a link reached is what rounding left of rates that have ended."""


def refuse_long(n_transfers: int, n_hops: int = 0) -> None:
    """Refuse to trace so many transfers that cross so many links in all.

    Raises
    ------
    UnsupportedError
        There are more than `MOST_SENT` or `MOST_HOPS`.
    """
    if n_transfers > MOST_SENT:
        raise _too_long(f"{n_transfers:,} transfers", MOST_SENT)
    if n_hops > MOST_HOPS:
        raise _too_long(f"{n_transfers:,} transfers that cross {n_hops:,} links in all", MOST_HOPS)


def _too_long(what: str, most: int) -> UnsupportedError:
    return UnsupportedError(Fault(f"{what} are too many for a trace, which has room for {most:,}", "perfetto", HINT))


class FlowsOf:
    """Collects the flows of neighbours as they are about to be solved; `Watch` of `time_together`."""

    def __init__(self) -> None:
        self.sent: dict[int, Sent] = {}
        self.hops = 0
        self.changes: list[tuple[Int, Float, Float]] = []

    def __call__(
        self, numbers: Sequence[int], members: Sequence[GroupTask], problems: Sequence[Problem], joint: Problem
    ) -> None:
        """Add the flows of *members*; raises UnsupportedError if they become too many."""
        routes = [_routes(part) for part in members]
        hops = sum(int(np.diff(way.ptr)[part.lowered.route].sum()) for way, part in zip(routes, members, strict=True))
        self.hops += hops
        others = sum(len(sent.size_bytes) for sent in self.sent.values())
        refuse_long(others + sum(len(part.lowered.transfers) for part in members), self.hops)
        try:
            *times, stretches = rates_over_time(joint, MOST_WORK)
        except WorkLimitReached:
            what = f"rates of {len(joint.route):,} transfers change too often for a trace"
            raise UnsupportedError(Fault(what, "perfetto", HINT)) from None
        first = 0
        for number, part, problem, way in zip(numbers, members, problems, routes, strict=True):
            rows = slice(first, first + len(part.lowered.transfers))
            self.sent[number] = _sent(part, *(column[rows] for column in times))
            self.changes.append(_changes(stretches, rows, part.lowered.route, way))
            first += len(problem.route)

    def flows(self) -> Flows:
        """Return what was collected; raises UnsupportedError if rates change too often."""
        link, when_s, step_Bps = (np.concatenate(columns) for columns in zip(*self.changes, strict=True))
        found = Flows(tuple(self.sent[number] for number in sorted(self.sent)), *_summed(link, when_s, step_Bps))
        if len(found.link) > MOST_CHANGES:
            raise _too_long(f"{len(found.link):,} changes of the rates of links", MOST_CHANGES)
        return found


def _routes(part: GroupTask) -> Routes:
    """Return by route what a byte of a message puts on the links of the machine."""
    lowered = part.lowered
    return part.run.routes.take(lowered.used, wire_copies(lowered, part.costs, part.network)).expanded()


def _sent(part: GroupTask, ready_s: Float, start_s: Float, finish_s: Float) -> Sent:
    """Return the transfers of one group."""
    lowered = part.lowered
    spans, rows = spans_of(lowered, ready_s, start_s, finish_s)
    gpus = tuple(part.run.fabric.rank_node.tolist())
    return Sent(gpus, spans, lowered.size_bytes[rows], lowered.copies[lowered.route[rows]])


def _changes(stretches: Stretches, rows: slice, route: Int, way: Routes) -> tuple[Int, Float, Float]:
    """Return by how many B/s which links change when, because of the transfers at *rows*, each on its *route*."""
    own = (stretches.transfer >= rows.start) & (stretches.transfer < rows.stop)
    transfer, begin_s, end_s, rate_Bps = (column[own] for column in stretches)
    taken = route[transfer - rows.start]
    ptr, entry = entries_of(way.ptr, taken)
    counts = np.diff(ptr)
    link, step_Bps = way.link[entry], np.repeat(rate_Bps, counts) * way.weight[entry]
    when_s = np.concatenate([np.repeat(begin_s, counts), np.repeat(end_s, counts)])
    return np.concatenate([link, link]), when_s, np.concatenate([step_Bps, -step_Bps])


def _summed(link: Int, when_s: Float, step_Bps: Float) -> tuple[Int, Float, Float]:
    """Return the rate of each link from each time on at which it changes."""
    order = np.lexsort((when_s, link))
    link, when_s, step_Bps = link[order], when_s[order], step_Bps[order]
    if not len(link):
        return link, when_s, step_Bps
    fresh = np.concatenate(([True], (link[1:] != link[:-1]) | (when_s[1:] != when_s[:-1])))
    step_Bps = np.add.reduceat(step_Bps, np.flatnonzero(fresh))
    link, when_s = link[fresh], when_s[fresh]
    first = np.flatnonzero(np.concatenate(([True], link[1:] != link[:-1])))
    rate_Bps = np.concatenate([np.cumsum(each) for each in np.split(step_Bps, first[1:])])
    top_Bps = np.repeat(np.maximum.reduceat(rate_Bps, first), np.diff(np.append(first, len(link))))
    rate_Bps = np.where(rate_Bps > NOTHING * top_Bps, rate_Bps, 0.0)
    kept = np.concatenate(([True], (link[1:] != link[:-1]) | (rate_Bps[1:] != rate_Bps[:-1])))
    return link[kept], when_s[kept], rate_Bps[kept]
