"""Calls in a row that overlap, as the loop of nccl-tests lets them: what sets their pace, and when one begins.

A rank turns to its next call when all its channels are done. Along one order of the ranks nobody waits for whoever
comes later, so the rank that is busy longest sets the pace. Several orders, such as a ring and its reversal, let ranks
wait for each other: then it is the mean over the calls of a cycle of such waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collsim.core.arrays import distinct
from collsim.engine import Solution
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import Protocol
from collsim.library.costs.hosts import USUAL_CALLS
from collsim.library.costs.message_costs import cycle_mean
from collsim.schedule import Pipelines

if TYPE_CHECKING:
    from collsim.simulation.lowering import Lowered

__all__ = ["busiest", "channel_of_rank", "overlaps", "shown_of_chain"]


def busiest(lowered: Lowered, solution: Solution, costs: Protocol) -> tuple[int, float]:
    """Return the transfer that ends last, and when the time of the call begins.

    That is 0; if calls overlap the time up to its end is what one call more adds to a long row of them, and over nodes
    the part of the first call that a row of `USUAL_CALLS` shows.
    """
    over_nodes = overlaps(lowered, costs)
    if not costs.back_to_back and not over_nodes:
        return int(np.argmax(solution.finish_s)), 0.0
    last, begin_s = _longest(channel_of_rank(lowered, costs), solution)
    if _orders(lowered, costs) > 1:
        pace_s, end = _pace(lowered, solution)
        if pace_s > solution.finish_s[last] - begin_s:
            last, begin_s = end, float(solution.finish_s[end]) - pace_s
    if not over_nodes:
        return last, begin_s
    pace_s, whole_s = float(solution.finish_s[last]) - begin_s, float(solution.finish_s.max())
    return last, begin_s - (whole_s - pace_s) * shown_of_chain(lowered, costs)


def overlaps(lowered: Lowered, costs: Protocol) -> bool:
    """Return True if calls over nodes overlap: along one order of the ranks.

    Where channels enter nodes at other ranks, these wait for each other, and hardly anything overlaps.
    """
    return costs.overlaps and _orders(lowered, costs) == 1


def shown_of_chain(lowered: Lowered, costs: Protocol) -> float:
    """Return the part of the time along a chain that its calls show: of overlapping ones that of the first.

    Its ranks are done one after another, and the time of a row of calls is the mean of theirs.
    """
    return 1 / (2 * USUAL_CALLS) if overlaps(lowered, costs) else 1.0


def channel_of_rank(lowered: Lowered, costs: Protocol) -> Int:
    """Return int64[n]: a number for the channel of the rank that sends; outside of pipelines, all that take turns are
    one.
    """
    transfers = lowered.transfers
    channels = 0 if costs.in_turn and not _is_pipeline(lowered) else transfers.channel
    return np.asarray(channels * (int(transfers.src.max()) + 1) + transfers.src)


def _is_pipeline(lowered: Lowered) -> bool:
    return isinstance(lowered.schedule.phases[0], Pipelines)


def _orders(lowered: Lowered, costs: Protocol) -> int:
    """Return how many orders of the ranks there are, each a channel of its own where those of one order take turns."""
    apart = (costs.in_turn and _is_pipeline(lowered)) or costs.overlaps
    return len(distinct(lowered.transfers.channel)[0]) if apart else 1


def _longest(label: Int, solution: Solution) -> tuple[int, float]:
    """Return the last transfer of the label that takes longest from its first to its last, and when it begins."""
    _, place = distinct(label)
    begin, end = np.full(int(place.max()) + 1, np.inf), np.zeros(int(place.max()) + 1)
    ready_s, finish_s = solution.ready_s[: len(place)], solution.finish_s[: len(place)]  # without arrivals
    np.minimum.at(begin, place, ready_s)
    np.maximum.at(end, place, finish_s)
    longest = int(np.argmax(end - begin))
    return int(np.argmax(np.where(place == longest, finish_s, -1.0))), float(begin[longest])


def _pace(lowered: Lowered, solution: Solution) -> tuple[float, int]:
    """Return the seconds by which one call follows another where ranks wait for each other over several orders, and
    the transfer that ends the longest wait; -inf where there is none.
    """
    waits_s, ends = _waits(lowered, solution)
    longest = int(np.argmax(np.where(np.isfinite(waits_s), waits_s, -1.0)))
    return cycle_mean(waits_s), int(ends.flat[longest])


def _waits(lowered: Lowered, solution: Solution) -> tuple[Float, Int]:
    """Return float64[n, n]: how long after the start of a call at one rank the call ends at another, by what the one
    passes on to it, -inf if nothing; and the transfer that ends each wait.
    """
    transfers, n = lowered.transfers, lowered.schedule.n_ranks
    orders, order = distinct(transfers.channel)
    waits_s, ends = np.full((n, n), -np.inf), np.zeros((n, n), dtype=np.int64)
    for number in range(len(orders)):
        rows = np.flatnonzero(order == number)
        src, dst = transfers.src[rows], transfers.dst[rows]
        begin_s, end_s, last = np.full(n, np.inf), np.full(n, -np.inf), np.zeros(n, dtype=np.int64)
        np.minimum.at(begin_s, src, solution.ready_s[rows])
        by_end = rows[np.argsort(solution.finish_s[rows], kind="stable")]
        for ranks in (transfers.dst[by_end], transfers.src[by_end]):  # who passes on is done when that has arrived
            end_s[ranks], last[ranks] = solution.finish_s[by_end], by_end
        found_s = np.where(_follows(src, dst, n), end_s - begin_s[:, None], -np.inf)
        longer = found_s > waits_s
        waits_s, ends = np.where(longer, found_s, waits_s), np.where(longer, last, ends)
    return waits_s, ends


def _follows(src: Int, dst: Int, n: int) -> np.ndarray:
    """Return bool[n, n]: whether what a rank sends reaches another in the end; it also reaches itself."""
    reached = np.eye(n, dtype=np.bool_)
    reached[src, dst] = True
    for _ in range(max(n - 1, 1).bit_length()):
        reached = reached @ reached
    return reached
