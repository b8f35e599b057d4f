"""All-to-all with a byte matrix, gather and scatter as NCCL's grouped point-to-point kernel carries them out.

The rounds, parts and channels are those of `nccl_p2p`, but every message has its own size, so that ranks fill their
batches at their own pace. A message waits until both its ranks are done with the batch before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.all_to_all_v import byte_matrix
from collsim.collectives.nccl_p2p import step_of
from collsim.collectives.node_p2p import peer_table, root_order
from collsim.core.arrays import distinct, pointers, spread
from collsim.schedule import Chunks, Int, Schedule, Transfers
from collsim.schedule.forms import sealed
from collsim.schedule.message_parts import BATCH, channel_of_part, cut, net_peer_channels, p2p_channels, parts_of

__all__ = ["ALGORITHM", "ROOTED"]

MERGED_AT_ONCE = 1 << 17
"""Entries of the table in which waits are merged: what stays in the cache is sorted fastest."""


class _Messages(NamedTuple):
    """Messages in the order of their rounds, int64[n] each; what their channels follow from is *block*."""

    round: Int
    block: Int
    src: Int
    dst: Int
    size_bytes: Int


def build(request: ScheduleRequest) -> Schedule:
    """Return the rounds; on one node, round d takes every rank's message for the rank d places after it."""
    channels, n_nodes = p2p_channels(request.n_channels), request.spread.n_nodes
    most = request.peer_channels or (channels if n_nodes == 1 else net_peer_channels(request.n_ranks, channels))
    all_of_them = _of_root(request) if request.op.rooted else _of_matrix(request)
    parts = parts_of(
        all_of_them.size_bytes, request.n_ranks, channels, most, step_bytes=request.peer_step_bytes, n_domains=n_nodes
    )
    message, sizes, part = cut(all_of_them.size_bytes, parts)
    number, block, src, dst, _ = (column[message] for column in all_of_them)
    del all_of_them, message, parts  # there may be millions
    blocks, place = distinct(block)
    first_channel = np.array([channel_of_part(each, 0, channels) for each in blocks.tolist()], dtype=np.int64)
    channel = (first_channel[place] + part) % channels
    works = _Works.of(np.concatenate([src, dst]), np.tile(channel, 2), np.tile(number, 2))
    out, into = np.split(works.of_end, 2)
    moves = src != dst
    out, into, src, dst, channel, sizes = (column[moves] for column in (out, into, src, dst, channel, sizes))
    n = len(src)
    dep_ptr, dep = works.batches_before(out, into)
    one, row = np.ones(1, dtype=np.int64), sealed(np.arange(n + 1))
    no, yes = (np.broadcast_to(np.array([each]), n) for each in (False, True))
    src, dst, sizes = (sealed(column) for column in (src, dst, sizes))
    transfers = Transfers(
        src=src, dst=dst, channel=sealed(channel), step=sealed(np.maximum(works.batch[out], works.batch[into])),
        reduces=no, reads_input=yes, lanes=spread(one, n), copies=spread(one, n),
        chunk_ptr=row, chunk=row[:-1], dep_ptr=sealed(dep_ptr), dep=sealed(dep),
    )  # fmt: skip
    return request.schedule("nccl_p2p", Chunks(sizes, src, dst), transfers, channels=channels, **step_of(request))


class _Works(NamedTuple):
    """Work of each rank on each channel, round by round: the transfers out and in that use it.

    Attributes
    ----------
    of_end : int64[n]
        The work that each end of a part belongs to.
    place, batch : int64[works]
        The turn of each among those of its rank and channel, and the batch that it is in.
    """

    of_end: Int
    place: Int
    batch: Int

    @classmethod
    def of(cls, rank: Int, channel: Int, number: Int) -> _Works:
        """Return the works of ends of parts, by their rank, channel and round."""
        n_rounds = int(number.max(initial=0)) + 1
        queue = rank * (int(channel.max(initial=0)) + 1) + channel
        found, of_end = distinct(queue * n_rounds + number)
        queue = found // n_rounds
        place = np.arange(len(found)) - np.searchsorted(queue, queue)
        return cls(of_end, place, place // BATCH)

    def batches_before(self, out: Int, into: Int) -> tuple[Int, Int]:
        """Return what transfers with works at both ends wait for, in CSR: the batches before these."""
        n, ends = len(out), np.stack([out, into], axis=1)
        ptr = pointers(np.bincount(ends.ravel(), minlength=len(self.place)))
        row = np.append(np.argsort(ends.ravel(), kind="stable") // 2, n)  # the last stands for none
        first = np.arange(len(self.place)) - self.place + BATCH * np.maximum(self.batch - 1, 0)
        last = np.where(self.batch > 0, first + BATCH, first)  # works of a full batch lie one after the other
        begin, length = ptr[first], ptr[last] - ptr[first]
        counts, deps = np.zeros(n, dtype=np.int64), np.empty(int(length[ends].sum()), dtype=np.int64)
        filled, n_rows = 0, max(MERGED_AT_ONCE // max(2 * int(length.max(initial=0)), 1), 1)
        for done in range(0, n, n_rows):
            some = slice(done, done + n_rows)
            counts[some], found = _merged(row, begin, length, ends[some])
            deps[filled : filled + len(found)] = found
            filled += len(found)
        return pointers(counts), deps[:filled]


def _merged(row: Int, begin: Int, length: Int, ends: Int) -> tuple[Int, Int]:
    """Return how many different entries the stretches of *row* at both *ends* have, and these in order.

    The last of *row* is larger than all others and stands for none. Between sender and receiver there may be some that
    stand in both.
    """
    lengths, none = length[ends][..., None], len(row) - 1
    place = np.arange(int(lengths.max(initial=0)))
    table = row[np.where(place < lengths, begin[ends][..., None] + place, none)].reshape(len(ends), -1)
    table.sort(axis=1)
    fresh = table < row[none]
    fresh[:, 1:] &= table[:, 1:] != table[:, :-1]
    return np.count_nonzero(fresh, axis=1), table[fresh]


def _of_matrix(request: ScheduleRequest) -> _Messages:
    """Return the messages of a byte matrix that are not empty."""
    matrix, ranks = byte_matrix(request), np.arange(request.n_ranks)
    if request.spread.n_nodes > 1:
        block, partner = peer_table(request.spread)
    else:
        block, partner = ranks, (ranks + ranks[:, None]) % request.n_ranks
    number, src = np.nonzero(matrix[ranks, partner])
    dst = partner[number, src]
    return _Messages(number, block[number], src, dst, matrix[src, dst])


def _of_root(request: ScheduleRequest) -> _Messages:
    """Return the messages from or to the root."""
    n, root, gathers = request.n_ranks, request.root, request.op.name == "gather"
    if request.spread.n_nodes > 1:
        order = list(root_order(request.spread, root, gathers=gathers))
        block = np.concatenate([np.full(len(partners), each) for each, partners in order])
        other = np.concatenate([partners for _, partners in order])
    else:
        block = np.arange(n)
        other = (root + (-block if gathers else block)) % n
    rooted = np.full(len(other), root)
    src, dst = (other, rooted) if gathers else (rooted, other)
    return _Messages(np.arange(len(other)), block, src, dst, np.full(len(other), request.block_bytes))


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
