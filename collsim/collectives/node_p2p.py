"""Messages over several nodes in the peer order of NCCL's grouped point-to-point kernel, with and without PXN.

Ranks stand in groups of up to eight within a node. Group distances follow the triangular numbers 0, 1, 3, 6, 10, ...
modulo a power of two; within one, every rank turns to the members of the other group in order. A message is cut into
parts on neighbouring channels, and a channel works on a batch of up to eight messages at once.

Plain, a message leaves through an adapter beside its sender and may cross rails. With PXN it is first written through
NVLink to the local GPU on the rail of its target, whose adapter sends it: the adapter's bytes are the same, all flows
stay on their rails, and the messages of a group for one target travel as one. A scatter leaves the root's node through
all adapters there; a gather enters through the root's own, for a receiver always takes its own (recvSetup).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from typing import NamedTuple

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.node_layout import NodeLayout
from collsim.core.arrays import entries_of, pointers
from collsim.schedule import ChunksBuilder, Int, Schedule, TransfersBuilder
from collsim.schedule.message_parts import BATCH, channel_of_part, n_parts, p2p_channels, part_sizes, slot_bytes

__all__ = [
    "PXN",
    "ROOTED_PXN",
    "build",
    "build_uncut",
    "distances",
    "peer_order",
    "peer_table",
    "pieces_of",
    "root_order",
    "turns_of",
]

PIECE_STEPS = 4
MOST_PIECES = 16
"""A relay passes a part on slot by slot. Here it does so in pieces of several slots, few of them: filling the pipeline
costs a sixteenth of long messages."""


class PeerTurn(NamedTuple):
    """One round in which every rank sends one message and receives one.

    Attributes
    ----------
    block : int
        Number of the group distance among those that occur; decides on the channel.
    partner : list of int
        To whom each rank sends.
    """

    block: int
    partner: list[int]


def peer_order(layout: NodeLayout) -> list[PeerTurn]:
    """Return the rounds of an all-to-all (NCCL src/init.cc, ncclP2pSchedule); the first is everybody's own block.

    >>> [turn.partner for turn in peer_order(NodeLayout.blocks([2, 2]))]
    [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]
    """
    block, partner = peer_table(layout)
    return [PeerTurn(*turn) for turn in zip(block.tolist(), partner.tolist(), strict=True)]


def peer_table(layout: NodeLayout) -> tuple[Int, Int]:
    """Return the same as arrays: int64[n], the block of each round, and int64[n, n], to whom each rank sends in it."""
    size, groups = _groups(layout)
    members, place = np.array(groups), np.arange(size)
    number, shift = np.arange(len(groups)), place[:, None, None]
    partner = np.empty((len(groups), size, members.size), dtype=np.int64)
    for block, delta in enumerate(distances(len(groups))):
        partner[block][:, members] = members[((number + delta) % len(groups))[:, None], (place + shift) % size]
    return np.repeat(number, size), partner.reshape(-1, members.size)


def root_order(layout: NodeLayout, root: int, *, gathers: bool) -> Iterator[tuple[int, Int]]:
    """Yield what concerns a root of those rounds: the number of each group distance, and whom it sends to there.

    A root that gathers has them send to it instead. Its own block comes first, as its own partner.

    >>> [(block, partners.tolist()) for block, partners in root_order(NodeLayout.blocks([2, 2]), 1, gathers=False)]
    [(0, [1, 0]), (1, [3, 2])]
    """
    size, groups = _groups(layout)
    members, sign = np.array(groups), -1 if gathers else 1
    (number,), (place,) = np.nonzero(members == root)
    for block, delta in enumerate(distances(len(groups))):
        yield block, members[(number + sign * delta) % len(groups), (place + sign * np.arange(size)) % size]


def turns_of(layout: NodeLayout, src: Int, dst: Int) -> Int:
    """Return int64[n]: the round of `peer_order` in which each message goes, by group distance and place.

    >>> turns_of(NodeLayout.blocks([2, 2]), np.array([0, 0, 3]), np.array([1, 3, 1])).tolist()
    [1, 3, 2]
    """
    size, groups = _groups(layout)
    group, place = np.zeros((2, size * len(groups)), dtype=np.int64)
    members = np.array(groups)
    group[members], place[members] = np.arange(len(groups))[:, None], np.arange(size)
    return np.asarray((group[dst] - group[src]) % len(groups) * size + (place[dst] - place[src]) % size)


def _groups(layout: NodeLayout) -> tuple[int, list[tuple[int, ...]]]:
    """Return how many ranks a group has, and the groups of all nodes in turn."""
    size = gcd(BATCH, *map(len, layout.nodes))
    return size, [node[first : first + size] for node in layout.nodes for first in range(0, len(node), size)]


def distances(n_groups: int) -> Iterator[int]:
    """Yield every distance between groups once: triangular numbers modulo a power of two, the too large ones left out.

    >>> list(distances(6))
    [0, 1, 3, 2, 5, 4]
    """
    modulus = 1 << (n_groups - 1).bit_length()
    distance = 0
    for step in range(modulus):
        distance = (distance + step) % modulus
        if distance < n_groups:
            yield distance


def build(request: ScheduleRequest) -> Schedule:
    """Return the plain all-to-all: one transfer per part of a message."""
    return _Builder(request).build("nccl_p2p", pxn=False)


def build_pxn(request: ScheduleRequest) -> Schedule:
    """Return the all-to-all, gather or scatter with PXN."""
    request.spread.per_node("nccl_pxn")
    return _Builder(request).build("nccl_pxn", pxn=True)


def build_uncut(request: ScheduleRequest, places: Int | None = None) -> Schedule:
    """Return the same with every part in one piece, however long; only what goes between some *places* in nodes."""
    return _Builder(request, cuts=False, places=places).build("nccl_pxn", pxn=True)


def pieces_of(size: int, step_bytes: int) -> list[int]:
    """Return the bytes of the pieces in which a part passes a relay, which sends one while it gets the next.

    All are as long but for the last, so that a longer part never takes less time than a shorter one.

    >>> pieces_of(7, 1), pieces_of(8, 1), pieces_of(160, 1)[:2]
    ([4, 3], [4, 4], [10, 10])
    """
    piece = max(PIECE_STEPS * step_bytes, -(-size // MOST_PIECES))
    return [min(piece, size - begin) for begin in range(0, size, piece)] or [size]


class _Ends:
    """Which transfers each rank takes part in as first sender or last receiver, of one batch of a channel."""

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self.found: list[tuple[Int, Int]] = []
        self.table: tuple[Int, Int] | None = None

    def add(self, ranks: Int, rows: Int) -> None:
        """Note one transfer for each of some ranks."""
        self.found.append((ranks, rows))

    def of(self, ranks: Int) -> tuple[Int, Int]:
        """Return the transfers of each of *ranks* as two columns: its place among these, and a transfer."""
        if self.table is None:
            rank, row = _together(self.found)
            order = np.argsort(rank, kind="stable")
            self.table = pointers(np.bincount(rank, minlength=self.n_ranks)), row[order]
        ptr, entry = entries_of(self.table[0], ranks)
        return np.repeat(np.arange(len(ranks)), np.diff(ptr)), self.table[1][entry]


def _together(pairs: Sequence[tuple[Int, Int]]) -> tuple[Int, Int]:
    """Return two columns of which *pairs* are pieces."""
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *(left for left, _ in pairs)]), np.concatenate(
        [nothing, *(right for _, right in pairs)]
    )


class _Builder:
    """Lays the rounds on channels."""

    def __init__(self, request: ScheduleRequest, *, cuts: bool = True, places: Int | None = None) -> None:
        self.request, self.cuts, self.places = request, cuts, places
        self.layout = request.spread
        self.channels = p2p_channels(request.n_channels)
        self.step_bytes = request.peer_step_bytes or slot_bytes(self.layout.n_nodes)
        parts = n_parts(
            request.block_bytes, request.n_ranks, self.channels, request.peer_channels,
            step_bytes=self.step_bytes, n_domains=self.layout.n_nodes,
        )  # fmt: skip
        self.sizes = part_sizes(request.block_bytes, parts)
        self.chunks, self.rows = ChunksBuilder(), TransfersBuilder()
        n = request.n_ranks
        self.node, self.rail = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        for number, members in enumerate(self.layout.nodes):
            self.node[list(members)], self.rail[list(members)] = number, np.arange(len(members))
        self.taken: defaultdict[int, int] = defaultdict(int)
        self.batches: defaultdict[tuple[int, int], _Ends] = defaultdict(lambda: _Ends(n))
        self.relays = np.array(self.layout.nodes) if self.layout.is_even else self.node[:0]
        self.rooted = request.op.rooted

    def build(self, algo: str, *, pxn: bool) -> Schedule:
        """Return the schedule."""
        for block, turns, messages in self._rounds():
            for part, size in enumerate(self.sizes.tolist()):
                channel = channel_of_part(block, part, self.channels)
                batch = self.taken[channel] // BATCH
                self.taken[channel] += turns
                if len(messages.rank):
                    self._block(messages, size, (channel, batch), pxn=pxn)
        return self.request.schedule(
            algo, self.chunks.build(), self.rows.build(), channels=self.channels, parts=len(self.sizes),
            step_bytes=self.step_bytes,
        )  # fmt: skip

    def _rounds(self) -> Iterator[tuple[int, int, _Messages]]:
        """Yield each group distance, how many rounds it has, and who sends there; what stays is only copied."""
        if self.rooted:
            root, gathers = self.request.root, self.request.op.name == "gather"
            for block, partners in root_order(self.layout, root, gathers=gathers):
                others, own = partners[partners != root], np.full(np.count_nonzero(partners != root), root)
                yield block, len(partners), _Messages(*((others, own) if gathers else (own, others)))
            return
        blocks: defaultdict[int, list[list[int]]] = defaultdict(list)
        for turn in peer_order(self.layout):
            blocks[turn.block].append(turn.partner)
        ranks = np.arange(self.request.n_ranks)
        for block, partners_of in blocks.items():
            partner = np.array([partner for partner in partners_of if partner[0] != 0], dtype=np.int64)
            messages = _Messages(np.tile(ranks, len(partner)), partner.ravel())
            if self.places is not None:
                some = np.isin(self.rail, self.places)
                both = some[messages.rank] & some[messages.target]
                messages = _Messages(messages.rank[both], messages.target[both])
            yield block, len(partners_of), messages

    def _block(self, messages: _Messages, size: int, label: tuple[int, int], *, pxn: bool) -> None:
        """Add one part of messages between groups at one distance."""
        rank, target = messages
        pieces = np.array(pieces_of(size, self.step_bytes) if pxn and self.cuts else [size])
        first = self.chunks.add(
            np.tile(pieces, len(rank)), np.repeat(rank, len(pieces)), np.repeat(target, len(pieces))
        )
        chunk = first + np.arange(len(rank) * len(pieces)).reshape(len(rank), -1)
        direct = self.node[rank] == self.node[target] if pxn else np.ones(len(rank), dtype=np.bool_)
        if direct.any():
            self._direct(rank[direct], target[direct], chunk[direct], label)
        if not direct.all():
            self._wires(rank[~direct], target[~direct], chunk[~direct], label)

    def _before(self, ends: _Ends, rank: Int, target: Int) -> tuple[Int, Int]:
        """Return the waits of messages, as columns: their place, and a transfer of the batch before.

        In an all-to-all the target is as far as the sender; the root of a gather is not.
        """
        return _together([ends.of(rank), ends.of(target)]) if self.rooted else ends.of(rank)

    def _direct(self, rank: Int, target: Int, chunk: Int, label: tuple[int, int]) -> None:
        """Add the messages that go straight from rank to rank."""
        channel, batch = label
        row = np.arange(len(rank))
        carried = np.repeat(row, chunk.shape[1]), chunk.ravel()
        deps = self._before(self.batches[channel, batch - 1], rank, target)
        first = self.rows.add_many(
            rank, target, carried, deps, channel=channel, step=batch * MOST_PIECES, reads_input=True
        )
        for ends in (rank, target):
            self.batches[channel, batch].add(ends, first + row)

    def _wires(self, rank: Int, target: Int, chunk: Int, label: tuple[int, int]) -> None:
        """Add the ways over relays: through NVLink to the GPU on the target's rail, then together over the network.

        Wires stand in the order of their first messages. Each has, piece by piece, the writes of its messages, but for
        that of the relay itself, and then the transfer over the network.
        """
        relay = self.relays[self.node[rank], self.rail[target]]
        _, met, wire = np.unique(relay * len(self.node) + target, return_index=True, return_inverse=True)
        wire = np.argsort(np.argsort(met))[wire]
        order = np.argsort(wire, kind="stable")
        rank, target, relay, wire = (column[order] for column in (rank, target, relay, wire))
        self._lay(_Wires(wire, rank, target, relay, chunk[order]), label)

    def _lay(self, wires: _Wires, label: tuple[int, int]) -> None:
        """Add the transfers of wires."""
        (channel, batch), n_pieces = label, wires.chunk.shape[1]
        before, now = self.batches[channel, batch - 1], self.batches[channel, batch]
        head = np.flatnonzero(np.diff(wires.wire, prepend=-1))
        writes = wires.rank != wires.relay
        width = np.bincount(wires.wire, weights=writes).astype(np.int64) + 1  # transfers of one piece
        start = pointers(width * n_pieces)
        written = np.cumsum(writes) - writes  # messages written before
        place = written - written[head][wires.wire]
        columns = np.zeros((4, int(start[-1])), dtype=np.int64)  # source, target, step, whether it reads the input
        chunks: list[tuple[Int, Int]] = []
        deps: list[tuple[Int, Int]] = []
        base = self.rows.length
        for piece in range(n_pieces):
            own = start[wires.wire] + piece * width[wires.wire] + place
            sent = start[:-1] + (piece + 1) * width - 1
            step = np.full(len(own), batch * MOST_PIECES + piece)
            columns[:, own[writes]] = np.stack([wires.rank, wires.relay, step, np.ones_like(step)])[:, writes]
            columns[:, sent] = np.stack([wires.relay[head], wires.target[head], step[head], np.zeros_like(sent)])
            chunks += [(own[writes], wires.chunk[writes, piece]), (sent[wires.wire], wires.chunk[:, piece])]
            deps.append((sent[wires.wire][writes], base + own[writes]))
            if piece:
                deps += [(own[writes], base + (own - width[wires.wire])[writes]), (sent, base + sent - width)]
            else:  # the relay's own message is not written anywhere: what it waits for, the transfer waits for
                waiter, dep = self._before(before, wires.rank, wires.target)
                deps.append((np.where(writes, own, sent[wires.wire])[waiter], dep))
        src, dst, step, reads = columns
        self.rows.add_many(
            src, dst, _together(chunks), _together(deps), channel=channel, step=step, reads_input=reads > 0
        )
        now.add(wires.rank, base + np.where(writes, own, sent[wires.wire]))
        now.add(wires.target[head], base + sent)


class _Messages(NamedTuple):
    """Senders and receivers, int64[n] each, round by round."""

    rank: Int
    target: Int


class _Wires(NamedTuple):
    """Messages that pass relays, wire by wire.

    Attributes
    ----------
    wire, rank, target, relay : int64[n]
        Number of the wire of each message, counted from 0 on, its sender and receiver, and who sends it on.
    chunk : int64[n, n_pieces]
    """

    wire: Int
    rank: Int
    target: Int
    relay: Int
    chunk: Int


PXN = Algorithm(
    name="nccl_pxn",
    title="messages over the GPU on the target's rail, those of a group together",
    ops=("all_to_all",),
    source="NCCL src/transport/net.cc and src/graph/paths.cc (PXN); src/init.cc (peer order)",
    build=build_pxn,
    where="nodes",
    growth="pairs",
    protocols=("LL", "Simple"),
    cost_law="bundled",
    relays=True,
)
ROOTED_PXN = replace(PXN, ops=("gather", "scatter"), growth="ranks", relays=None)
