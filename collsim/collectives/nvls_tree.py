"""All-reduce over nodes whose NVLink switches add: a double binary tree per head, no reduction in the network.

Every GPU is the head of one slice. In each node the head reads its slice as a sum of all local GPUs (load-reduce), adds
what up to two heads of other nodes send, and sends the sum to its parent, which has the same local index. The root's
result comes back the same way, and each head writes it to all local GPUs (multicast). Even channels use one tree, odd
channels the other. Only slices leave a node: every adapter carries S / g up and down, per edge of the tree.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from collsim.collectives.algorithm import KIB, Algorithm, ScheduleRequest
from collsim.collectives.node_layout import NodeLayout
from collsim.collectives.node_tree import NO_PARENT, depths, node_parents
from collsim.collectives.pipeline import pipelined
from collsim.schedule import EVERY, ChunksBuilder, Schedule, Shape, group_label, split_bytes

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
    transfers = replace(transfers, channel=transfers.channel // g)
    schedule = request.schedule(
        "nvls_tree",
        chunks.build(),
        transfers,
        channels=len(shares),
        chunk_bytes=request.chunk_bytes or CHUNK_BYTES,
        heads=g,
        slots=request.slots,
    )
    return replace(schedule, groups=layout.nodes if g > 1 else ())


@lru_cache(maxsize=256)  # all sizes of a run have the same
def _hops(layout: NodeLayout, head: int, tree: int) -> Shape:
    """Return the hops of a chunk of *head*: into the heads and up to the root, down and out to all."""
    above, rail, n = node_parents(layout.n_nodes, tree)[0], np.array(layout.rail(head)), layout.n_nodes
    order = np.argsort(depths(above), kind="stable")
    back, below, last = order[::-1], order[1:], order[:0:-1]
    node = np.arange(n)
    group = group_label(0) - node
    up, down, everyone = node + n, node + np.where(above == NO_PARENT, n, 2 * n), node + 3 * n
    ones, zeros = np.ones(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    hops = [
        np.stack([group[back], rail[back], back, up[back], ones]),
        np.stack([rail[last], rail[above[last]], up[last], up[above[last]], ones[1:]]),
        np.stack([rail[above[below]], rail[below], down[above[below]], down[below], zeros[1:]]),
        np.stack([rail[order], group[order], down[order], everyone[order], zeros]),
    ]
    return Shape.of_table(np.concatenate(hops if len(layout.nodes[0]) > 1 else hops[1:-1], axis=1))


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
