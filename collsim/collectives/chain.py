"""Pipelined broadcast from the root, or reduce to it, along a ring cut open at the root."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from collsim.collectives.pipeline import Hop, pipelined
from collsim.collectives.request import KIB, Algorithm, Request
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule

__all__ = ["ALGORITHM"]

CHUNK_BYTES = 512 * KIB
"""Chunk of a channel under the Simple protocol: one slot (NCCL src/include/collectives.h)."""


def build(request: Request) -> Schedule:
    """Return the chain schedule: a broadcast leaves the root along the ring, a reduce comes home along it."""
    reduces = request.op.name == "reduce"
    shapes = [_hops(_from(order, request.root), reduces=reduces) for order in request.orders]
    shares = request.shares(request.size_bytes)
    hops = [shapes[channel % len(shapes)] for channel in range(len(shares))]
    pieces = [request.pieces(int(share), CHUNK_BYTES) for share in shares]
    chunks = ChunksBuilder()
    source, target = (EVERY, request.root) if reduces else (request.root, EVERY)
    chunks.add(np.concatenate(pieces), source, target)
    transfers = pipelined(hops, [len(sizes) for sizes in pieces], request.slots)
    return request.schedule(
        "ring", chunks.build(), transfers, channels=len(shares), rings=len(shapes), slots=request.slots
    )


def _from(order: Int, root: int) -> list[int]:
    """Return the cyclic *order*, started at *root*."""
    return [int(rank) for rank in np.roll(order, -int(np.flatnonzero(order == root)[0]))]


def _hops(order: list[int], *, reduces: bool) -> tuple[Hop, ...]:
    """Return the n - 1 hops that start at the root (broadcast) or end there (reduce)."""
    path = [*order[1:], order[0]] if reduces else order
    return tuple(Hop(src, dst, src, dst, reduces) for src, dst in pairwise(path))


ALGORITHM = Algorithm(
    name="ring",
    title="pipelined chain along each ring, cut open at the root",
    ops=("broadcast", "reduce"),
    source="NCCL src/device/broadcast.h and src/device/reduce.h",
    build=build,
)
