"""What is laid out in arrays, beside the same written down one by one: trees over nodes, batches of messages."""

from itertools import pairwise

import numpy as np
import pytest

from collsim.collectives import NodeLayout, ScheduleRequest, algorithm, matrix_size_bytes
from collsim.collectives.node_rings import local_path
from collsim.collectives.node_tree import chained_parents, node_parents
from collsim.core.operations import operation
from collsim.schedule.message_parts import BATCH

NONE = -1


def parents_one_by_one(layout, chain, tree, pattern):
    """Return the parent of each rank: chains of nodes, whose heads hang below the first or second rank of another."""
    above, second = (column.tolist() for column in node_parents(layout.n_nodes, tree))

    def swaps(node):
        return above[node] != NONE and swaps(above[node]) != (not second[node])

    chains = []
    for number, ranks in enumerate(layout.nodes):
        order = [ranks[place] for place in local_path(len(ranks), chain % len(ranks))]
        if pattern == "rail" and swaps(number):
            order[:2] = order[1::-1] if len(order) > 1 else order
        chains.append(order)
    found = {}
    for number, order in enumerate(chains):
        found |= dict(zip(order[1:], order[:-1], strict=True))
        entry = {"split": 1, "plain": 0}.get(pattern, 0 if second[number] else 1)
        there = chains[above[number]]
        found[order[0]] = NONE if above[number] == NONE else there[min(entry, len(there) - 1)]
    return [found[rank] for rank in sorted(found)]


@pytest.mark.parametrize("pattern", ["balanced", "split", "plain", "rail"])
def test_trees_over_nodes(pattern):
    for sizes in ([4], [1, 1, 1], [2] * 5, [8] * 6, [8, 7, 8, 1, 3, 8, 8]):
        layout = NodeLayout.blocks(sizes)
        for chain, tree in ((0, 0), (1, 1), (5, 0), (6, 1)):
            found = chained_parents(layout, chain, tree, pattern).tolist()
            assert found == parents_one_by_one(layout, chain, tree, pattern), (sizes, chain, tree)


def waits_one_by_one(n_ranks, transfers):
    """Return the transfers that each waits for: at both ends the batch before, of eight rounds of a rank's channel."""
    ends = list(zip(transfers.src.tolist(), transfers.dst.tolist(), transfers.channel.tolist(), strict=True))
    queues = {}
    for number, (src, dst, channel) in enumerate(ends):
        for rank in (src, dst):
            queues.setdefault((rank, channel), {}).setdefault((dst - src) % n_ranks, []).append(number)
    waits = [set() for _ in ends]
    for rounds in queues.values():
        works = [rounds[number] for number in sorted(rounds)]
        for place, work in enumerate(works):
            first = (place // BATCH - 1) * BATCH
            before = {number for each in works[max(first, 0) : max(first + BATCH, 0)] for number in each}
            for number in work:
                waits[number] |= before
    return waits


@pytest.mark.parametrize(("n_ranks", "channels"), [(5, 1), (13, 1), (24, 2), (24, 8)])
def test_batches_of_uneven_messages_on_one_node(n_ranks, channels):
    random = np.random.default_rng(n_ranks + channels)
    matrix = random.integers(1, 600_000, (n_ranks, n_ranks)) * (random.random((n_ranks, n_ranks)) < 0.8)
    np.fill_diagonal(matrix, 0)
    request = ScheduleRequest(
        operation("all_to_all_v"), n_ranks, matrix_size_bytes(matrix), channels, matrix_bytes=matrix
    )
    schedule = algorithm("all_to_all_v", "nccl_p2p").build(request)
    transfers = schedule.phases[0].materialise()
    ptr = transfers.dep_ptr.tolist()
    found = [set(transfers.dep[a:b].tolist()) for a, b in pairwise(ptr)]
    assert found == waits_one_by_one(n_ranks, transfers)
    assert any(found) == (n_ranks > BATCH)
    sent = np.zeros_like(matrix)
    np.add.at(sent, (transfers.src, transfers.dst), transfers.size_bytes(schedule.chunks))
    assert np.array_equal(sent, matrix)
