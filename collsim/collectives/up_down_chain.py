"""Up-down chain: every channel reduces along its ring, cut open at its head, and broadcasts the way back.

This is the tree of NCCL on a single node.
"""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.node_tree import NO_PARENT
from collsim.collectives.pipeline import pipelined
from collsim.collectives.tree import CHUNK_BYTES, tree_hops
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule

__all__ = ["ALGORITHM"]


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule; the head of a channel is the first rank of its ring."""
    shapes = [tree_hops(_below_the_head(order), request.op.name) for order in request.orders]
    shares = request.shares(request.size_bytes)
    hops = [shapes[channel % len(shapes)] for channel in range(len(shares))]
    pieces = [request.pieces(int(share), CHUNK_BYTES) for share in shares]
    chunks = ChunksBuilder()
    chunks.add(np.concatenate(pieces), EVERY, EVERY)
    transfers = pipelined(hops, [len(sizes) for sizes in pieces], request.slots)
    return request.schedule(
        "chain", chunks.build(), transfers, channels=len(shares), rings=len(shapes), slots=request.slots
    )


def _below_the_head(order: Int) -> Int:
    """Return the parent of each rank: the one before it in *order*."""
    parents = np.full(len(order), NO_PARENT, dtype=np.int64)
    parents[order[1:]] = order[:-1]
    return parents


ALGORITHM = Algorithm(
    name="chain",
    title="pipelined up and down a chain of all ranks",
    ops=("all_reduce",),
    source="NCCL src/graph/connect.cc and src/device/all_reduce.h (tree within a node)",
    build=build,
    growth="ranks",
    family="chain",
    pipelined=True,
)
