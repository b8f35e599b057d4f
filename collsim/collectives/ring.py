"""Multi-ring all-reduce, all-gather and reduce-scatter.

Each channel owns a contiguous share of the data and one cyclic order of the ranks. A chunk goes once around to
collect every addend and once more to deliver the sum; all ranks send and receive in every step.
"""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import MIB, Algorithm, ScheduleRequest
from collsim.schedule import EVERY, ChunksBuilder, Circles, Schedule, split_bytes

__all__ = ["ALGORITHM", "loops_of", "program_of"]

CHUNK_BYTES = 2 * MIB
"""Chunk of a ring channel under the Simple protocol: 4 slots of 512 KiB (NCCL src/include/collectives.h)."""


def build(request: ScheduleRequest) -> Schedule:
    """Return the ring schedule; a step of a channel waits for the step before, at the rank and at its predecessor."""
    n, name = request.n_ranks, request.op.name
    ranks = np.arange(n)
    source = ranks if name == "all_gather" else EVERY
    target = ranks if name == "reduce_scatter" else EVERY
    share_of = request.size_bytes if name == "all_reduce" else request.block_bytes
    chunks = ChunksBuilder()
    shares = request.shares(share_of)
    families = [
        np.array([chunks.add(sizes, source, target) // n for sizes in loops_of(request, int(share))], dtype=np.int64)
        for share in shares
    ]
    channel, ones = np.arange(len(shares)), np.ones(len(shares), dtype=np.int64)
    rows = Circles(np.atleast_2d(request.orders), tuple(program_of(name, n)), tuple(families), channel, ones)
    return request.schedule("ring", chunks.build(), rows, channels=len(shares), rings=len(request.orders))


def loops_of(request: ScheduleRequest, share_bytes: int) -> list[np.ndarray]:
    """Return, per outer loop of a channel, the chunk sizes of its family, int64[n] by rank."""
    n, grain = request.n_ranks, request.element_bytes
    if request.op.name == "all_reduce":
        return [split_bytes(int(piece), n, grain) for piece in request.pieces(share_bytes, CHUNK_BYTES, n)]
    return [np.full(n, piece) for piece in request.pieces(share_bytes, CHUNK_BYTES)]


def program_of(name: str, n: int) -> list[tuple[int, bool]]:
    """Return (offset of the chunk sent, whether the receiver adds) per step, as seen from the sender's position."""
    collect = [(-j, True) for j in range(1, n)]
    deliver = [(-j, False) for j in range(n - 1)]
    return {"reduce_scatter": collect, "all_gather": deliver}.get(name, collect + deliver)


def loop_steps(name: str, n: int) -> int:
    """Count the steps of one loop, after which the ring begins anew with the next chunks.

    >>> loop_steps("all_reduce", 4), loop_steps("all_gather", 4)
    (6, 3)
    """
    return (2 if name == "all_reduce" else 1) * (n - 1)


ALGORITHM = Algorithm(
    name="ring",
    title="multi-ring, bandwidth-optimal, 2(n-1) steps",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) 117; NCCL src/device/all_reduce.h",
    build=build,
    growth="ranks",
    loop_steps=loop_steps,
    quotient="circles",
)
