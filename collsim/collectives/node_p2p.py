"""All-to-all over several nodes in the peer order of NCCL's grouped point-to-point kernel, with and without PXN.

Ranks stand in groups of up to eight within a node. Group distances follow the triangular numbers 0, 1, 3, 6, 10, ...
modulo a power of two; within one, every rank turns to the members of the other group in order. A message is cut into
parts on neighbouring channels, and a channel works on a batch of up to eight messages at once.

Plain, a message leaves through an adapter beside its sender and may cross rails. With PXN it is first written through
NVLink to the local GPU on the rail of its target, whose adapter sends it: the adapter's bytes are the same, all flows
stay on their rails, and the messages of a group for one target travel as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import numpy as np

from collsim.collectives.layout import Layout
from collsim.collectives.request import Algorithm, Request
from collsim.message_parts import BATCH, channel_of_part, n_parts, p2p_channels, part_sizes, slot_bytes
from collsim.schedule import ChunksBuilder, Schedule, TransfersBuilder

__all__ = ["PXN", "build", "peer_order"]

PIECE_STEPS = 4
MOST_PIECES = 16
"""A relay passes a part on slot by slot. Here it does so in pieces of several slots, few of them: filling the pipeline
costs a sixteenth of long messages."""


class Turn(NamedTuple):
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


def peer_order(layout: Layout) -> list[Turn]:
    """Return the rounds of an all-to-all (NCCL src/init.cc, ncclP2pSchedule); the first is everybody's own block.

    >>> [turn.partner for turn in peer_order(Layout.blocks([2, 2]))]
    [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]
    """
    size = gcd(BATCH, *map(len, layout.nodes))
    groups = [node[first : first + size] for node in layout.nodes for first in range(0, len(node), size)]
    turns = []
    for block, delta in enumerate(_distances(len(groups))):
        for shift in range(size):
            partner = [0] * (len(groups) * size)
            for number, group in enumerate(groups):
                other = groups[(number + delta) % len(groups)]
                for place, rank in enumerate(group):
                    partner[rank] = other[(place + shift) % size]
            turns.append(Turn(block, partner))
    return turns


def _distances(n_groups: int) -> Iterator[int]:
    """Yield every distance between groups once: triangular numbers modulo a power of two, the too large ones left out.

    >>> list(_distances(6))
    [0, 1, 3, 2, 5, 4]
    """
    modulus = 1 << (n_groups - 1).bit_length()
    distance = 0
    for step in range(modulus):
        distance = (distance + step) % modulus
        if distance < n_groups:
            yield distance


def build(request: Request) -> Schedule:
    """Return the plain all-to-all: one transfer per part of a message."""
    return _Builder(request).build("nccl_p2p", pxn=False)


def build_pxn(request: Request) -> Schedule:
    """Return the all-to-all with PXN."""
    request.spread.per_node("nccl_pxn")
    return _Builder(request).build("nccl_pxn", pxn=True)


class _Message(NamedTuple):
    """A part of a message: who sends it, its chunks, and what its sender has to finish first."""

    rank: int
    chunks: list[int]
    waits: list[int]


class _Builder:
    """Lays the rounds on channels."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.layout = request.spread
        self.channels = p2p_channels(request.n_channels)
        self.step_bytes = request.peer_step_bytes or slot_bytes(self.layout.n_nodes)
        parts = n_parts(
            request.block_bytes, request.n_ranks, self.channels, request.peer_channels,
            step_bytes=self.step_bytes, n_domains=self.layout.n_nodes,
        )  # fmt: skip
        self.sizes = part_sizes(request.block_bytes, parts)
        self.chunks, self.rows = ChunksBuilder(), TransfersBuilder()
        self.place = {rank: (v, i) for v, node in enumerate(self.layout.nodes) for i, rank in enumerate(node)}
        self.taken: defaultdict[int, int] = defaultdict(int)
        self.batches: defaultdict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        """Per channel and batch: the transfers that each rank takes part in as first sender or last receiver."""

    def build(self, algo: str, *, pxn: bool) -> Schedule:
        """Return the schedule."""
        turns = peer_order(self.layout)
        blocks: defaultdict[int, list[Turn]] = defaultdict(list)
        for turn in turns:
            blocks[turn.block].append(turn)
        for block, of_block in blocks.items():
            for part, size in enumerate(self.sizes.tolist()):
                channel = channel_of_part(block, part, self.channels)
                batch = self.taken[channel] // BATCH
                self.taken[channel] += len(of_block)
                self._block(of_block, size, channel, batch, pxn=pxn)
        return self.request.schedule(
            algo, self.chunks.build(), self.rows.build(), channels=self.channels, parts=len(self.sizes),
            step_bytes=self.step_bytes,
        )  # fmt: skip

    def _block(self, turns: list[Turn], size: int, channel: int, batch: int, *, pxn: bool) -> None:
        """Add the messages of one part between groups at one distance."""
        before, now = self.batches[channel, batch - 1], self.batches[channel, batch]
        wires: defaultdict[tuple[int, int], list[_Message]] = defaultdict(list)
        pieces = self._pieces(size) if pxn else [size]
        for turn in turns:
            if turn.partner[0] == 0:
                continue  # everybody's own block: a local copy
            n = len(turn.partner)
            firsts = [self.chunks.add(np.full(n, piece), range(n), turn.partner) for piece in pieces]
            for rank, target in enumerate(turn.partner):
                (node, _), (there, rail) = self.place[rank], self.place[target]
                own = [first + rank for first in firsts]
                if pxn and node != there:
                    wires[self.layout.nodes[node][rail], target].append(_Message(rank, own, before[rank]))
                    continue
                row = self.rows.add(
                    rank, target, own, before[rank], channel=channel, step=batch * MOST_PIECES, reads_input=True
                )
                now[rank].append(row)
                now[target].append(row)
        for (relay, target), messages in wires.items():
            self._wire((relay, target), messages, now, (channel, batch))

    def _wire(
        self, ends: tuple[int, int], messages: list[_Message], now: dict[int, list[int]], label: tuple[int, int]
    ) -> None:
        """Add the way over a relay: through NVLink to the GPU on the target's rail, then together over the network."""
        relay, target = ends
        channel, step = label
        last = {message.rank: message.waits for message in messages}
        wire: list[int] = []
        for piece in range(len(messages[0].chunks)):
            number, deps = step * MOST_PIECES + piece, list(wire)
            for message in messages:
                if message.rank == relay:
                    deps += message.waits if piece == 0 else []
                    continue
                row = self.rows.add(
                    message.rank, relay, [message.chunks[piece]], last[message.rank], channel=channel, step=number,
                    reads_input=True,
                )  # fmt: skip
                last[message.rank] = [row]
                deps.append(row)
            carried = [message.chunks[piece] for message in messages]
            wire = [self.rows.add(relay, target, carried, deps, channel=channel, step=number)]
        for message in messages:
            now[message.rank] += wire if message.rank == relay else last[message.rank]
        now[target] += wire

    def _pieces(self, size: int) -> list[int]:
        """Return the bytes of the pieces in which a part passes a relay, which sends one while it gets the next."""
        count = min(max(size // (PIECE_STEPS * self.step_bytes), 1), MOST_PIECES)
        return part_sizes(size, count).tolist() if size else [size]


PXN = Algorithm(
    name="nccl_pxn",
    title="messages over the GPU on the target's rail, those of a group together",
    ops=("all_to_all",),
    source="NCCL src/transport/net.cc and src/graph/paths.cc (PXN); src/init.cc (peer order)",
    build=build_pxn,
)
