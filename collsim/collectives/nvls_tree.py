"""All-reduce over nodes whose NVLink switches add: a double binary tree per head, no reduction in the network.

Every GPU is the head of one slice. In each node the head reads its slice as a sum of all local GPUs (load-reduce), adds
what up to two heads of other nodes send, and sends the sum to its parent, which has the same local index. The root's
result comes back the same way, and each head writes it to all local GPUs (multicast). Even channels use one tree, odd
channels the other. Only slices leave a node: every adapter carries S / g up and down, per edge of the tree.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collsim.collectives.algorithm import KIB, Algorithm, ScheduleRequest
from collsim.collectives.node_layout import NodeLayout
from collsim.collectives.node_tree import NO_PARENT, node_parents
from collsim.collectives.pipeline import Hop, pipelined
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule, group_label, split_bytes

__all__ = ["ALGORITHM"]

CHUNK_BYTES = 64 * KIB
"""Largest chunk of one head on one channel from four nodes on (NCCL src/enqueue.cc, NVLS tree)."""


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule: one pipeline of chunks per channel and head."""
    layout = request.spread
    g = layout.per_node("nvls_tree")
    shares = request.shares(request.size_bytes)
    sizes = [size for share in shares for size in split_bytes(int(share), g, request.element_bytes).tolist()]
    pieces = [request.pieces(size, CHUNK_BYTES) for size in sizes]
    shapes = [[_hops(layout, head, tree) for head in range(g)] for tree in (0, 1)]
    hops = [shapes[channel % 2][head] for channel in range(len(shares)) for head in range(g)]
    transfers = pipelined(hops, [len(piece) for piece in pieces], request.slots)
    chunks = ChunksBuilder()
    chunks.add(np.concatenate(pieces), EVERY, EVERY)
    transfers = replace(transfers, channel=np.asarray(transfers.channel) // g)
    schedule = request.schedule(
        "nvls_tree", chunks.build(), transfers, channels=len(shares), heads=g, slots=request.slots
    )
    return replace(schedule, groups=layout.nodes if g > 1 else ())


def _hops(layout: NodeLayout, head: int, tree: int) -> tuple[Hop, ...]:
    """Return the hops of a chunk of *head*: into the heads and up to the root, down and out to all."""
    above, rail, n = node_parents(layout.n_nodes, tree)[0], layout.rail(head), layout.n_nodes
    order = _from_the_root(above)
    inside = len(layout.nodes[0]) > 1
    pulls, up, everyone = range(n), range(n, 2 * n), range(3 * n, 4 * n)
    down = [up[node] if above[node] == NO_PARENT else 2 * n + node for node in range(n)]
    hops: list[Hop] = []
    if inside:
        hops += [Hop(group_label(node), rail[node], pulls[node], up[node], reduces=True) for node in reversed(order)]
    for node in reversed(order[1:]):
        parent = int(above[node])
        hops.append(Hop(rail[node], rail[parent], up[node], up[parent], reduces=True))
    for node in order[1:]:
        parent = int(above[node])
        hops.append(Hop(rail[parent], rail[node], down[parent], down[node]))
    if inside:
        hops += [Hop(rail[node], group_label(node), down[node], everyone[node]) for node in order]
    return tuple(hops)


def _from_the_root(above: Int) -> list[int]:
    """Return the nodes such that each comes after its parent."""
    order = [int(node) for node in np.flatnonzero(above == NO_PARENT)]
    for node in order:
        order += np.flatnonzero(above == node).tolist()
    return order


ALGORITHM = Algorithm(
    name="nvls_tree",
    title="load-reduce and multicast in each node, two trees over nodes for every head",
    ops=("all_reduce",),
    source="NCCL src/device/all_reduce.h and src/transport/nvls.cc (NVLS tree)",
    build=build,
    where="nodes",
    in_network=("node",),
    growth="ranks",
    family="nvls",
    protocols=("Simple",),
)
