"""Pipelined broadcast from the root, or reduce to it, along a ring cut open at the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

import numpy as np

from collsim.collectives.algorithm import KIB, Algorithm, ScheduleRequest
from collsim.collectives.pipeline import Hop, pipelined
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule

__all__ = ["ALGORITHM"]

CHUNK_BYTES = 512 * KIB
"""Chunk of a channel under the Simple protocol: one slot (NCCL src/include/collectives.h)."""


def build(request: ScheduleRequest) -> Schedule:
    """Return the chain schedule: a broadcast leaves the root along the ring, a reduce comes home along it."""
    reduces = request.op.name == "reduce"
    shapes = [_hops(_from(order, request.root), reduces=reduces) for order in request.orders]
    shares = request.shares(request.size_bytes)
    pieces = [request.pieces(int(share), CHUNK_BYTES) for share in shares]
    lanes = np.ones(len(pieces), dtype=np.int64)
    if request.in_turn:
        lanes = np.array([len(pieces[order :: len(shapes)]) for order in range(min(len(shapes), len(pieces)))])
        pieces = [_one_after_another(pieces[order :: len(shapes)]) for order in range(len(lanes))]
    hops = [shapes[channel % len(shapes)] for channel in range(len(pieces))]
    chunks = ChunksBuilder()
    source, target = (EVERY, request.root) if reduces else (request.root, EVERY)
    chunks.add(np.concatenate(pieces), source, target)
    transfers = pipelined(hops, [len(sizes) for sizes in pieces], request.slots)
    transfers = replace(transfers, lanes=lanes)
    return request.schedule(
        "ring", chunks.build(), transfers, channels=len(shares), rings=len(shapes), slots=request.slots
    )


def _one_after_another(pieces: Sequence[Int]) -> Int:
    """Return the first piece of every channel, then the second of every channel, and so on."""
    rounds = zip_longest(*pieces, fillvalue=0)
    return np.array([size for turn in rounds for size in turn if size > 0] or [0], dtype=np.int64)


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
    growth="ranks",
    family="rooted",
    loop_steps=lambda _, n: n - 1,
    pipelined=True,
)
