"""Gather and scatter with every message under way at once, as grouped sends and receives."""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import Chunks, Schedule, Transfers

__all__ = ["ALGORITHM"]


def build(request: ScheduleRequest) -> Schedule:
    """Return one transfer per rank other than the root, from it or to it; the root leaves its own block in place."""
    n = request.n_ranks
    others = (request.root + np.arange(1, n)) % n
    root = np.full(n - 1, request.root)
    src, dst = (others, root) if request.op.name == "gather" else (root, others)
    transfers = Transfers.side_by_side(src, dst, np.arange(n - 1), reads_input=True, lanes=request.n_channels)
    chunks = Chunks(np.full(n - 1, request.block_bytes), src, dst)
    return request.schedule("direct", chunks, transfers, channels=request.n_channels)


ALGORITHM = Algorithm(
    name="direct",
    title="every message at once",
    ops=("gather", "scatter"),
    source="nccl-tests src/gather.cu and src/scatter.cu",
    build=build,
    growth="ranks",
)
