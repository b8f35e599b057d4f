"""Arrivals: messages between nodes that whoever waits for their bytes sees later than their sender is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collsim.engine import Problem

__all__ = ["with_arrivals"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def with_arrivals(
    problem: Problem, late: Int, late_s: Float, tells: Callable[[Int, Int], NDArray[np.bool_]]
) -> Problem:
    """Let the bytes of some transfers arrive after they have left.

    Parameters
    ----------
    problem : Problem
    late : int64[k]
        The transfers.
    late_s : float64[k]
        How long after its end each has arrived.
    tells : callable
        Takes two arrays of transfers and returns bool: whether the second waits for the bytes of the first, not only
        for its sender.

    Returns
    -------
    Problem
        With one row more per late transfer, the arrival: without bytes, after a latency.
    """
    n, k = len(problem.route), len(late)
    arrival = np.full(n, -1, dtype=np.int64)
    arrival[late] = n + np.arange(k)
    waiter = np.repeat(np.arange(n), np.diff(problem.dep_ptr))
    moved = (arrival[problem.dep] >= 0) & tells(problem.dep, waiter)
    return problem._replace(
        route_ptr=np.append(problem.route_ptr, problem.route_ptr[-1]),  # an empty route
        route=np.append(problem.route, np.full(k, len(problem.route_ptr) - 1)),
        size_bytes=np.append(problem.size_bytes, np.zeros(k)),
        latency_s=np.append(problem.latency_s, late_s),
        cap_Bps=np.append(problem.cap_Bps, np.full(k, np.inf)),
        dep_ptr=np.append(problem.dep_ptr, problem.dep_ptr[-1] + np.arange(1, k + 1)),
        dep=np.append(np.where(moved, arrival[problem.dep], problem.dep), late),
    )
