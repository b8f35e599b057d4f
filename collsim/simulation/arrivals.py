"""Arrivals: messages between nodes that whoever waits for their bytes sees later than their sender is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct, entries_of, pointers

if TYPE_CHECKING:
    from collsim.engine import Problem

__all__ = ["Heralds", "with_arrivals", "with_heralds"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def with_arrivals(problem: Problem, late: Int, late_s: Float, tells: NDArray[np.bool_]) -> Problem:
    """Let the bytes of some transfers arrive after they have left.

    Parameters
    ----------
    problem : Problem
    late : int64[k]
        The transfers.
    late_s : float64[k]
        How long after its end each has arrived.
    tells : bool[n_deps]
        Whether a transfer waits for the bytes of the other, not only for its sender.

    Returns
    -------
    Problem
        With one row more per late transfer, the arrival: without bytes, after a latency.
    """
    n, k = len(problem.route), len(late)
    arrival = np.full(n, -1, dtype=np.int64)
    arrival[late] = n + np.arange(k)
    moved = (arrival[problem.dep] >= 0) & tells
    return problem._replace(
        route_ptr=np.append(problem.route_ptr, problem.route_ptr[-1]),  # an empty route
        route=np.append(problem.route, np.full(k, len(problem.route_ptr) - 1)),
        size_bytes=np.append(problem.size_bytes, np.zeros(k)),
        latency_s=np.append(problem.latency_s, late_s),
        cap_Bps=np.append(problem.cap_Bps, np.full(k, np.inf)),
        dep_ptr=np.append(problem.dep_ptr, problem.dep_ptr[-1] + np.arange(1, k + 1)),
        dep=np.append(np.where(moved, arrival[problem.dep], problem.dep), late),
    )


class Heralds(NamedTuple):
    """Transfers of which others pass on the first bytes as they come.

    Attributes
    ----------
    rows : int64[k]
        The transfers.
    early_s : float64[k]
        How long after it may begin the first bytes of each have arrived.
    first_s : float64[n]
        How long the first bytes take of each transfer, before they leave and until they have.
    waiter, awaited : int64[n_deps]
        Which transfer waits, and for which.
    goes_on, whole : bool[n_deps]
        Whether it goes on with the first bytes of that, and whether it waits for all of them.
    """

    rows: Int
    early_s: Float
    first_s: Float
    waiter: Int
    awaited: Int
    goes_on: NDArray[np.bool_]
    whole: NDArray[np.bool_]

    def led(self) -> tuple[Int, Int]:
        """Return the places of the waits that are for first bytes, and the transfers that have some."""
        known = np.zeros(len(self.first_s), dtype=np.bool_)
        known[self.rows] = True
        moved = np.flatnonzero(self.goes_on & known[self.awaited])
        return moved, distinct(self.waiter[moved])[0]


def with_heralds(problem: Problem, heralds: Heralds) -> Problem:
    """Let whoever passes on the bytes of some transfers go on when the first of these have arrived.

    Two rows more per such transfer, without bytes: its herald, after what the transfer waits for; and if it goes on
    with the first bytes of others, when what it gets last has gone on, for whoever waits for all of it.
    """
    m, k, n = len(problem.route), len(heralds.rows), len(heralds.first_s)
    moved, led = heralds.led()
    awaited, c = heralds.awaited, len(led)
    herald, end = np.full((2, n), -1, dtype=np.int64)
    herald[heralds.rows], end[led] = m + np.arange(k), m + k + np.arange(c)
    dep = problem.dep.copy()
    dep[moved] = herald[awaited[moved]]
    last = np.flatnonzero(heralds.whole & (end[awaited] >= 0))
    counts = np.diff(problem.dep_ptr) + np.bincount(heralds.waiter[last], minlength=m)
    dep, ptr = np.insert(dep, last, end[awaited[last]]), pointers(counts)
    taken, entry = entries_of(ptr, heralds.rows)
    before = end[awaited[moved]]
    owner = np.concatenate([heralds.waiter[moved], heralds.waiter[moved[before >= 0]]])
    ends = np.concatenate([problem.dep[moved], before[before >= 0]])[np.argsort(owner, kind="stable")]
    more = np.concatenate([counts, np.diff(taken), np.bincount(np.searchsorted(led, owner), minlength=c)])
    return problem._replace(
        route_ptr=np.append(problem.route_ptr, problem.route_ptr[-1]),  # an empty route
        route=np.append(problem.route, np.full(k + c, len(problem.route_ptr) - 1)),
        size_bytes=np.append(problem.size_bytes, np.zeros(k + c)),
        latency_s=np.concatenate([problem.latency_s, heralds.early_s, heralds.first_s[led]]),
        cap_Bps=np.append(problem.cap_Bps, np.full(k + c, np.inf)),
        dep_ptr=pointers(more),
        dep=np.concatenate([dep, dep[entry], ends]),
    )
