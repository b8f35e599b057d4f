"""Transfers that are added many at once are those that are added one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from collsim.collectives import NodeLayout, ScheduleRequest, algorithm
from collsim.collectives.node_p2p import MOST_PIECES, PIECE_STEPS, peer_order
from collsim.core.operations import operation
from collsim.schedule import ChunksBuilder, Transfers, TransfersBuilder
from collsim.schedule.message_parts import BATCH, channel_of_part, n_parts, p2p_channels, part_sizes, slot_bytes

COLUMNS = Transfers.__slots__


def same(one: Transfers, other: Transfers) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


@pytest.mark.parametrize("seed", range(4))
def test_many_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, many = TransfersBuilder(), TransfersBuilder()
    for _ in range(5):
        n, before = int(rng.integers(1, 9)), one.length
        rows = [
            (rng.integers(0, 4, 2).tolist(), rng.integers(0, 50, 3).tolist(), rng.integers(0, before + 1, 4).tolist())
            for _ in range(n)
        ]
        if rng.random() < 0.3:
            for (src, dst), chunks, deps in rows:
                assert one.add(src, dst, chunks, deps) == many.add(src, dst, chunks, deps)
            continue
        lanes = rng.integers(1, 5, n)
        for row, ((src, dst), chunks, deps) in enumerate(rows):
            one.add(src, dst, chunks, deps, channel=2, step=row, reads_input=True, lanes=int(lanes[row]))
        ends = np.array([ends for ends, *_ in rows])
        mixed = rng.permutation(3 * n)
        owner = np.repeat(np.arange(n), 3)[np.sort(mixed)]
        chunks, deps = (np.concatenate([row[i] for row in rows]) for i in (1, 2))
        waiter, order = np.repeat(np.arange(n), 4), rng.permutation(4 * n)
        first = many.add_many(
            ends[:, 0], ends[:, 1], (owner, chunks), (waiter[order], deps[order]), channel=2, step=np.arange(n),
            reads_input=True, lanes=lanes,
        )  # fmt: skip
        assert first == before
    assert same(one.build(), many.build())


def _wire(rows: TransfersBuilder, ends: Any, messages: Any, batches: Any, label: Any) -> None:
    """A wire: writes to the relay and, behind them, the transfer over the network, piece by piece."""
    (relay, target), (before, now), (channel, batch) = ends, batches, label
    last = {rank: before[rank] for rank, _ in messages}
    wire: list[int] = []
    for piece in range(len(messages[0][1])):
        deps, step = list(wire), batch * MOST_PIECES + piece
        for rank, own in messages:
            if rank == relay:
                deps += before[rank] if piece == 0 else []
                continue
            row = rows.add(rank, relay, [own[piece]], last[rank], channel=channel, step=step, reads_input=True)
            last[rank] = [row]
            deps.append(row)
        wire = [rows.add(relay, target, [own[piece] for _, own in messages], deps, channel=channel, step=step)]
    for rank, _ in messages:
        now[rank] += wire if rank == relay else last[rank]
    now[target] += wire


def message_by_message(request: ScheduleRequest, *, pxn: bool) -> Transfers:
    """The rounds of `collsim.collectives.node_p2p`, one message after the other."""
    layout, n = request.spread, request.n_ranks
    channels, step_bytes = p2p_channels(request.n_channels), slot_bytes(layout.n_nodes)
    parts = n_parts(
        request.block_bytes, n, channels, request.peer_channels, step_bytes=step_bytes, n_domains=layout.n_nodes
    )
    chunks, rows = ChunksBuilder(), TransfersBuilder()
    place = {rank: (v, i) for v, node in enumerate(layout.nodes) for i, rank in enumerate(node)}
    taken: defaultdict[int, int] = defaultdict(int)
    batches: Any = defaultdict(lambda: defaultdict(list))
    blocks: Any = defaultdict(list)
    for turn in peer_order(layout):
        blocks[turn.block].append(turn.partner)
    for block, partners in blocks.items():
        for part, size in enumerate(part_sizes(request.block_bytes, parts).tolist()):
            channel = channel_of_part(block, part, channels)
            batch = taken[channel] // BATCH
            taken[channel] += len(partners)
            before, now = batches[channel, batch - 1], batches[channel, batch]
            piece_bytes = max(PIECE_STEPS * step_bytes, math.ceil(size / MOST_PIECES)) if pxn else max(size, 1)
            whole, rest = divmod(size, piece_bytes)
            pieces = [piece_bytes] * whole + [rest] * (rest > 0 or not size)
            wires: Any = defaultdict(list)
            for partner in partners:
                if partner[0] == 0:
                    continue
                each = len(pieces)
                first = chunks.add(np.tile(pieces, n), np.repeat(range(n), each), np.repeat(partner, each))
                for rank, target in enumerate(partner):
                    (node, _), (there, rail) = place[rank], place[target]
                    own = [first + rank * each + piece for piece in range(each)]
                    if pxn and node != there:
                        wires[layout.nodes[node][rail], target].append((rank, own))
                        continue
                    row = rows.add(
                        rank, target, own, before[rank], channel=channel, step=batch * MOST_PIECES, reads_input=True
                    )
                    now[rank].append(row)
                    now[target].append(row)
            for ends, messages in wires.items():
                _wire(rows, ends, messages, (before, now), (channel, batch))
    return rows.build()


@pytest.mark.parametrize(("nodes", "g"), [(2, 8), (5, 8), (3, 4), (2, 16), (4, 6), (3, 1)])
@pytest.mark.parametrize("size", [64, 1 << 20, 1 << 23])
@pytest.mark.parametrize("algo", ["nccl_p2p", "nccl_pxn"])
def test_messages_between_nodes(nodes: int, g: int, size: int, algo: str) -> None:
    n = nodes * g
    mixed = NodeLayout.from_nodes([rank % nodes for rank in range(n)])
    for layout in (None, mixed):
        request = ScheduleRequest(
            operation("all_to_all"), n, size * n, default_channels=16, nodes=nodes, layout=layout, peer_channels=4
        )
        found = algorithm("all_to_all", algo).build(request).materialise()
        assert same(found, message_by_message(request, pxn=algo == "nccl_pxn"))
