"""All-to-all with a byte matrix, gather and scatter as NCCL's grouped point-to-point kernel carries them out.

The rounds, parts and channels are those of `nccl_p2p`, but every message has its own size, so that ranks fill their
batches at their own pace. A message waits until both its ranks are done with the batch before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.all_to_all_v import byte_matrix
from collsim.collectives.nccl_p2p import step_of
from collsim.collectives.node_p2p import peer_order, root_order
from collsim.schedule import Chunks, Schedule, TransfersBuilder
from collsim.schedule.message_parts import BATCH, channel_of_part, n_parts, net_peer_channels, p2p_channels, part_sizes

__all__ = ["ALGORITHM", "ROOTED"]


class _Works:
    """Work of one rank on one channel, in order: per round that uses it, the transfers out and in."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.transfers: list[list[int]] = []

    def enter(self, distance: int) -> list[int]:
        """Take a place for the round over *distance*, unless it has one; return what its batch must wait for."""
        if not self.rounds or self.rounds[-1] != distance:
            self.rounds.append(distance)
            self.transfers.append([])
        first = self.batch * BATCH
        return [transfer for work in self.transfers[max(first - BATCH, 0) : first] for transfer in work]

    @property
    def batch(self) -> int:
        """Number of the batch under way."""
        return (len(self.rounds) - 1) // BATCH


def build(request: ScheduleRequest) -> Schedule:
    """Return the rounds; on one node, round d takes every rank's message for the rank d places after it."""
    channels, n_nodes = p2p_channels(request.n_channels), request.spread.n_nodes
    most = request.peer_channels or (channels if n_nodes == 1 else net_peer_channels(request.n_ranks, channels))

    @cache
    def sizes_of(message_bytes: int) -> list[int]:
        parts = n_parts(
            message_bytes, request.n_ranks, channels, most,
            step_bytes=request.peer_step_bytes, n_domains=n_nodes,
        )  # fmt: skip
        sizes: list[int] = part_sizes(message_bytes, parts).tolist()
        return sizes

    rows, sizes = TransfersBuilder(), list[int]()
    works: defaultdict[tuple[int, int], _Works] = defaultdict(_Works)
    for number, (block, messages) in enumerate(_rounds(request)):
        for src, dst, message_bytes in messages:
            for part, size in enumerate(sizes_of(message_bytes)):
                channel = channel_of_part(block, part, channels)
                sender, receiver = works[src, channel], works[dst, channel]
                deps = sender.enter(number) + receiver.enter(number)
                if src != dst:
                    step = max(sender.batch, receiver.batch)
                    row = rows.add(src, dst, [len(sizes)], deps, channel=channel, step=step, reads_input=True)
                    sizes.append(size)
                    sender.transfers[-1].append(row)
                    receiver.transfers[-1].append(row)
    transfers = rows.build()
    chunks = Chunks(np.array(sizes, dtype=np.int64), transfers.src, transfers.dst)
    return request.schedule("nccl_p2p", chunks, transfers, channels=channels, **step_of(request))


def _rounds(request: ScheduleRequest) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Yield, per round, what its channel follows from, and the sender, receiver and bytes of each message."""
    if request.op.rooted:
        root, gathers = request.root, request.op.name == "gather"
        for block, partners in _of_root(request):
            for other in partners:
                yield block, [(other, root, request.block_bytes) if gathers else (root, other, request.block_bytes)]
        return
    matrix, ranks = byte_matrix(request), np.arange(request.n_ranks)
    if request.spread.n_nodes > 1:
        turns = ((turn.block, np.array(turn.partner)) for turn in peer_order(request.spread))
    else:
        turns = ((distance, (ranks + distance) % request.n_ranks) for distance in ranks.tolist())
    for block, partner in turns:
        size_bytes = matrix[ranks, partner]
        src = np.flatnonzero(size_bytes)
        yield block, list(zip(src.tolist(), partner[src].tolist(), size_bytes[src].tolist(), strict=True))


def _of_root(request: ScheduleRequest) -> Iterator[tuple[int, list[int]]]:
    """Yield the numbers that channels follow from, and the partners of the root there; none for no bytes."""
    n, root, gathers = request.n_ranks, request.root, request.op.name == "gather"
    if request.spread.n_nodes > 1:
        for block, partners in root_order(request.spread, root, gathers=gathers):
            yield block, partners.tolist()
    else:
        for distance in range(n):
            yield distance, [(root + (-distance if gathers else distance)) % n]


ALGORITHM = Algorithm(
    name="nccl_p2p",
    title="rounds of messages in parts over channels, as NCCL's grouped send and receive",
    ops=("all_to_all_v",),
    source="NCCL src/enqueue.cc, src/include/channel.h and src/device/sendrecv.h",
    build=build,
    protocols=("LL", "Simple"),
    cost_law="grouped",
)
ROOTED = replace(ALGORITHM, ops=("gather", "scatter"), growth="ranks")
