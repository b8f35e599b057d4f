"""Gather and scatter with every message under way at once, as grouped sends and receives."""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, Request
from collsim.schedule import Chunks, Schedule, Transfers

__all__ = ["ALGORITHM"]


def build(request: Request) -> Schedule:
    """Return one transfer per rank other than the root, from it or to it; the root leaves its own block in place."""
    n = request.n_ranks
    others = (request.root + np.arange(1, n)) % n
    root = np.full(n - 1, request.root)
    src, dst = (others, root) if request.op.name == "gather" else (root, others)
    transfers = Transfers(
        src=src,
        dst=dst,
        channel=np.zeros(n - 1, dtype=np.int64),
        step=np.zeros(n - 1, dtype=np.int64),
        reduces=np.zeros(n - 1, dtype=np.bool_),
        reads_input=np.ones(n - 1, dtype=np.bool_),
        lanes=np.full(n - 1, request.n_channels),
        copies=np.ones(n - 1, dtype=np.int64),
        chunk_ptr=np.arange(n),
        chunk=np.arange(n - 1),
        dep_ptr=np.zeros(n, dtype=np.int64),
        dep=np.zeros(0, dtype=np.int64),
    )
    chunks = Chunks(np.full(n - 1, request.block_bytes), src, dst)
    return request.schedule("direct", chunks, transfers, channels=request.n_channels)


ALGORITHM = Algorithm(
    name="direct",
    title="every message at once",
    ops=("gather", "scatter"),
    source="nccl-tests src/gather.cu and src/scatter.cu",
    build=build,
)
