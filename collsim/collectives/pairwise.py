"""Pairwise all-to-all: n - 1 rounds, one message out and one in per rank and round."""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import ChunksBuilder, OrbitsBuilder, Schedule

__all__ = ["ALGORITHM"]


def build(request: ScheduleRequest) -> Schedule:
    """Return the rounds: in round d a rank sends d places on, once it is done with round d - 1.

    Powers of two often swap with rank ``r ^ d`` instead; the shifts serve any number of ranks and cost the same.
    """
    n, ranks = request.n_ranks, np.arange(request.n_ranks)
    chunks, rows = ChunksBuilder(), OrbitsBuilder(ranks)
    deps: list[tuple[int, int]] = []
    for distance in range(1, n):
        family = chunks.add(np.full(n, request.block_bytes), ranks, (ranks + distance) % n) // n
        row = rows.add(distance, [(family, 0)], deps, step=distance - 1, reads_input=True, lanes=request.n_channels)
        deps = [(row, 0), (row, -distance)]
    return request.schedule("pairwise", chunks.build(), rows.build(), channels=request.n_channels)


ALGORITHM = Algorithm(
    name="pairwise",
    title="n - 1 rounds, each with one partner to send to and one to receive from",
    ops=("all_to_all",),
    source="Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49, section 4.3",
    build=build,
    growth="pairs",
)
