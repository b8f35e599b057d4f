"""Send-receive between neighbours: every rank sends to the next and receives from the one before."""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import ChunksBuilder, OrbitsBuilder, Schedule

__all__ = ["ALGORITHM"]


def build(request: ScheduleRequest) -> Schedule:
    """Return one transfer per rank, served by all channels together."""
    n, ranks = request.n_ranks, np.arange(request.n_ranks)
    chunks, rows = ChunksBuilder(), OrbitsBuilder(ranks)
    family = chunks.add(np.full(n, request.size_bytes), ranks, (ranks + 1) % n) // n
    rows.add(1, [(family, 0)], reads_input=True, lanes=request.n_channels)
    return request.schedule("neighbour", chunks.build(), rows.build(), channels=request.n_channels)


ALGORITHM = Algorithm(
    name="neighbour",
    title="one message to the next rank over all channels",
    ops=("send_recv",),
    source="nccl-tests src/sendrecv.cu",
    build=build,
    growth="ranks",
)
