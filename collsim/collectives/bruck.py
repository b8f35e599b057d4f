"""Bruck's algorithms: ceil(lg n) steps for any number of ranks.

All-gather: in the step of distance d a rank passes the first d blocks that it holds back by d places, so that it holds
twice as many consecutive blocks after the step. All-to-all: a block that has to go j places on travels the distances
of the bits of j, the smallest first; in each step a rank passes on about half of its blocks, others' among them.
"""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import EVERY, ChunksBuilder, OrbitsBuilder, Schedule

__all__ = ["ALGORITHM"]


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule; a step of a rank waits for what it sent and received in the step before."""
    n, ranks = request.n_ranks, np.arange(request.n_ranks)
    gathers, lanes = request.op.name == "all_gather", request.n_channels
    chunks, rows = ChunksBuilder(), OrbitsBuilder(ranks)
    if gathers:
        chunks.add(np.full(n, request.block_bytes), ranks, EVERY)
    else:
        for places in range(1, n):  # family places - 1: the blocks that go so far, by sender
            chunks.add(np.full(n, request.block_bytes), ranks, (ranks + places) % n)
    deps: list[tuple[int, int]] = []
    for step in range((n - 1).bit_length()):
        distance = 1 << step
        if gathers:
            shift, carried = -distance, [(0, place) for place in range(min(distance, n - distance))]
        else:
            far = [places for places in range(1, n) if places & distance]
            shift, carried = distance, [(places - 1, -(places % distance)) for places in far]
        row = rows.add(shift, carried, deps, step=step, lanes=lanes)
        deps = [(row, 0), (row, -shift)]
    return request.schedule("bruck", chunks.build(), rows.build(), channels=lanes)


ALGORITHM = Algorithm(
    name="bruck",
    title="ceil(lg n) steps for any number of ranks",
    ops=("all_gather", "all_to_all"),
    source="Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE Trans. Parallel Distrib. Syst. 8 (1997) 1143",
    build=build,
)
