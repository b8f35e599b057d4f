"""All-to-all with every message under way at once."""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import ChunksBuilder, OrbitsBuilder, Schedule


def build(request: ScheduleRequest) -> Schedule:
    """Return one transfer per ordered pair of ranks; none waits for another."""
    n, ranks = request.n_ranks, np.arange(request.n_ranks)
    chunks, rows = ChunksBuilder(), OrbitsBuilder(ranks)
    lanes = min(request.peer_channels or request.n_channels, request.n_channels)
    for distance in range(1, n):
        family = chunks.add(np.full(n, request.block_bytes), ranks, (ranks + distance) % n) // n
        rows.add(distance, [(family, 0)], reads_input=True, lanes=lanes)
    return request.schedule("direct", chunks.build(), rows.build(), channels=request.n_channels)


ALGORITHM = Algorithm(
    name="direct",
    title="every message at once",
    ops=("all_to_all",),
    source="Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49, section 4.3",
    build=build,
    growth="pairs",
    family="direct",
    quotient="pairs",
)
