"""Arrivals: messages between nodes that whoever waits for their bytes sees later than their sender is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collsim.engine import Problem

__all__ = ["with_arrivals"]

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
