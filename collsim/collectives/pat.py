"""PAT: parallel aggregated trees. All-gather and reduce-scatter in few messages, for any number of ranks.

Block s (the block of the rank s places after me) reaches me along a binomial tree, from the rank as far away as the
lowest set bit of s. Far distances come first and carry few blocks. Messages aggregate as many blocks as fit into a
chunk: first the *far part*, one distance after the other, and then the *near part*, a depth-first walk that
keeps the blocks waiting for their turn within what the buffers hold. Reduce-scatter runs the trees backwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from collsim.collectives.algorithm import KIB, Algorithm, ScheduleRequest
from collsim.core.arrays import pointers
from collsim.schedule import EVERY, ChunksBuilder, Int, Orbits, OrbitsBuilder, Schedule, split_bytes

__all__ = ["ALGORITHM", "Message", "gather_messages", "messages_per_rank", "scatter_messages"]

MAX_CHUNK_BYTES, MIN_CHUNK_BYTES = 512 * KIB, 64 * KIB
"""Largest and smallest payload of a step (NCCL src/enqueue.cc)."""

SPREAD = {"all_gather": 32, "reduce_scatter": 16, "all_reduce": 16}
"""The chunk is halved while this many chunks per channel exceed the data (NCCL src/enqueue.cc)."""

BUFFER_DOUBLINGS = 3
"""A connection has 2**3 slots: so many messages can wait for the near part (NCCL_STEPS)."""


class Message(NamedTuple):
    """Blocks that travel together.

    Attributes
    ----------
    distance : int
        How many places they travel: back (gather) or on (scatter).
    blocks : tuple of int
        How many places after the receiver (gather) or the sender (scatter) the owners of the blocks are.
    """

    distance: int
    blocks: tuple[int, ...]


def gather_messages(n: int, block_bytes: int, chunk_bytes: int) -> list[Message]:
    """Return the messages that every rank sends in an all-gather, in program order.

    >>> [(m.distance, m.blocks) for m in gather_messages(4, 1, 4)]
    [(2, (2,)), (1, (1, 3))]
    """
    per_message, near = _aggregation(n, block_bytes, chunk_bytes)
    return [*_far(n, near, per_message), *_near(n, near, per_message, list(_depth_first(0, near)))]


def scatter_messages(n: int, block_bytes: int, chunk_bytes: int) -> list[Message]:
    """Return the messages that every rank sends in a reduce-scatter, in program order."""
    per_message, near = _aggregation(n, block_bytes, chunk_bytes)
    return [*_near(n, near, per_message, list(range(near - 1, 0, -1))), *reversed(list(_far(n, near, per_message)))]


def messages_per_rank(schedule: Schedule) -> Int:
    """Return int64[n_ranks], how many messages each rank sends."""
    counts = np.zeros(schedule.n_ranks, dtype=np.int64)
    for phase in schedule.phases:
        transfers = phase.materialise()
        sent = transfers.src != transfers.dst
        np.add.at(counts, transfers.src[sent], transfers.copies[sent])
    return counts


def build(request: ScheduleRequest) -> Schedule:
    """Return the PAT schedule; an all-reduce is a reduce-scatter followed by an all-gather."""
    n, name, ranks = request.n_ranks, request.op.name, np.arange(request.n_ranks)
    chunk_bytes = request.chunk_bytes or _chunk_bytes(request)
    chunks, passes = ChunksBuilder(), []
    for share in request.shares(request.size_bytes if name == "all_reduce" else request.block_bytes):
        sizes_of_passes = _passes(request, int(share), chunk_bytes)
        source, target = ranks if name == "all_gather" else EVERY, ranks if name == "reduce_scatter" else EVERY
        passes.append([(chunks.add(sizes, source, target) // n, int(sizes.max())) for sizes in sizes_of_passes])
    parts = {"reduce_scatter": (_scatter,), "all_gather": (_gather,)}.get(name, (_scatter, _gather))
    phases = [_of_channels(n, passes, partial(part, n, chunk_bytes)) for part in parts]
    return request.schedule("pat", chunks.build(), *phases, channels=len(passes), chunk_bytes=chunk_bytes)


def _chunk_bytes(request: ScheduleRequest) -> int:
    """Return the payload of a step that suits the size."""
    chunk = MAX_CHUNK_BYTES
    while chunk > MIN_CHUNK_BYTES and chunk * request.n_channels * SPREAD[request.op.name] > request.size_bytes:
        chunk //= 2
    return chunk


def _passes(request: ScheduleRequest, share_bytes: int, chunk_bytes: int) -> list[Int]:
    """Return, per pass of a channel, the sizes of the n blocks that it moves."""
    n, grain = request.n_ranks, request.element_bytes
    if request.op.name == "all_reduce":
        return [split_bytes(int(piece), n, grain) for piece in request.pieces(share_bytes, chunk_bytes, n)]
    return [np.full(n, piece) for piece in request.pieces(share_bytes, chunk_bytes)]


Passes = list[tuple[int, int]]
"""The family of chunks and the bytes of a block of every pass of a channel."""


def _of_channels(n: int, passes: list[Passes], rows_of: Callable[[Passes], Orbits]) -> Orbits:
    """Return the rows of all channels; equal channels differ by their families only and are made once."""
    made: dict[tuple[tuple[int, int], ...], Orbits] = {}
    parts = []
    for own in passes:
        alike = tuple((family - own[0][0], block_bytes) for family, block_bytes in own)
        if alike not in made:
            made[alike] = rows_of(list(alike))
        parts.append(made[alike])
    begin = np.concatenate(([0], np.cumsum([len(part.channel) for part in parts])))
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("step", "shift", "reduces", "reads_input", "lanes", "copies", "chunk_offset", "dep_shift")
    }
    return Orbits(
        order=np.arange(n)[None, :],
        channel=np.repeat(np.arange(len(parts)), np.diff(begin)),
        chunk_ptr=pointers(np.concatenate([np.diff(part.chunk_ptr) for part in parts])),
        chunk_family=np.concatenate([part.chunk_family + own[0][0] for part, own in zip(parts, passes, strict=True)]),
        dep_ptr=pointers(np.concatenate([np.diff(part.dep_ptr) for part in parts])),
        dep_row=np.concatenate([part.dep_row + first for part, first in zip(parts, begin, strict=False)]),
        **columns,
    )


def _gather(n: int, chunk_bytes: int, passes: Passes) -> Orbits:
    """Return the all-gather of every pass of a channel."""
    rows = OrbitsBuilder(np.arange(n))
    before: list[tuple[int, int]] = []
    step = 0
    for family, block_bytes in passes:
        arrived: dict[int, tuple[int, int]] = {}
        for distance, blocks in gather_messages(n, block_bytes, chunk_bytes):
            carried = [block - distance for block in blocks]
            deps = before + [arrived[block] for block in carried if block]
            row = rows.add(-distance, [(family, block) for block in carried], deps, step=step)
            arrived.update(dict.fromkeys(blocks, (row, distance)))
            before, step = [(row, 0)], step + 1
    return rows.build()


def _scatter(n: int, chunk_bytes: int, passes: Passes) -> Orbits:
    """Return the reduce-scatter of every pass of a channel."""
    rows = OrbitsBuilder(np.arange(n))
    before: list[tuple[int, int]] = []
    step = 0
    for family, block_bytes in passes:
        added: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for distance, blocks in scatter_messages(n, block_bytes, chunk_bytes):
            deps = before + [dep for block in blocks for dep in added[block]]
            row = rows.add(distance, [(family, block) for block in blocks], deps, step=step, reduces=True)
            for block in blocks:
                added[block - distance].append((row, -distance))
            before, step = [(row, 0)], step + 1
    return rows.build()


def _aggregation(n: int, block_bytes: int, chunk_bytes: int) -> tuple[int, int]:
    """Return the most blocks that a message carries, and the distance below which the near part begins."""
    per_message, near = 1, 1 << (n - 1).bit_length()
    while chunk_bytes // (max(block_bytes, 1) * per_message) >= 2 and per_message < n // 2:
        per_message, near = 2 * per_message, near // 2
    together = per_message
    for _ in range(BUFFER_DOUBLINGS):
        if together < n // 2:
            together, near = 2 * together, near // 2
    return per_message, near


def _far(n: int, near: int, per_message: int) -> Iterator[Message]:
    """Yield the messages over distances of *near* and more, the farthest first."""
    distance = 1 << (n - 1).bit_length()
    while distance > near:
        distance //= 2
        yield from _cut(distance, range(distance, n, 2 * distance), per_message)


def _near(n: int, near: int, per_message: int, order: list[int]) -> Iterator[Message]:
    """Yield the messages over distances below *near*, for the offsets 1..near-1 in the given order."""
    for offset in order:
        yield from _cut(offset & -offset, range(offset, n, near), per_message)


def _cut(distance: int, blocks: range, per_message: int) -> Iterator[Message]:
    """Yield messages of at most *per_message* blocks."""
    for first in range(0, len(blocks), per_message):
        yield Message(distance, tuple(blocks[first : first + per_message]))


def _depth_first(vertex: int, span: int) -> Iterator[int]:
    """Yield the descendants of *vertex* in the binomial tree below it, whose distances are less than *span*.

    >>> list(_depth_first(0, 8))
    [4, 6, 7, 5, 2, 3, 1]
    """
    while span > 1:
        span //= 2
        yield vertex + span
        yield from _depth_first(vertex + span, span)


ALGORITHM = Algorithm(
    name="pat",
    title="parallel aggregated trees, logarithmic number of messages for small blocks",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="Jeaugey, arXiv:2506.20252; NCCL src/include/collectives.h",
    build=build,
)
