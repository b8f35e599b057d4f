"""Arrivals: messages between nodes that whoever waits for their bytes sees later than their sender is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import entries_of

if TYPE_CHECKING:
    from collsim.engine import Problem

__all__ = ["with_arrivals", "with_heralds"]

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


def with_heralds(problem: Problem, early: Int, early_s: Float, deps: tuple[Int, NDArray[np.bool_]]) -> Problem:
    """Let whoever waits for the bytes of some transfers go on when the first of these have arrived.

    Parameters
    ----------
    problem : Problem
    early : int64[k]
        The transfers.
    early_s : float64[k]
        How long after it may begin the first bytes of each have arrived.
    deps : int64[n_deps], bool[n_deps]
        What each transfer waits for, and whether it goes on with the first bytes of that.

    Returns
    -------
    Problem
        With one row more per such transfer, its herald: without bytes, after what the transfer waits for.
    """
    (awaited, goes_on), m, k = deps, len(problem.route), len(early)
    herald = np.full(m, -1, dtype=np.int64)
    herald[early] = m + np.arange(k)
    dep = problem.dep.copy()
    moved = np.flatnonzero(goes_on & (herald[awaited] >= 0))  # rows of arrivals wait behind those of all transfers
    dep[moved] = herald[awaited[moved]]
    ptr, entry = entries_of(problem.dep_ptr, early)
    return problem._replace(
        route_ptr=np.append(problem.route_ptr, problem.route_ptr[-1]),  # an empty route
        route=np.append(problem.route, np.full(k, len(problem.route_ptr) - 1)),
        size_bytes=np.append(problem.size_bytes, np.zeros(k)),
        latency_s=np.append(problem.latency_s, early_s),
        cap_Bps=np.append(problem.cap_Bps, np.full(k, np.inf)),
        dep_ptr=np.append(problem.dep_ptr, problem.dep_ptr[-1] + ptr[1:]),
        dep=np.append(dep, dep[entry]),
    )
