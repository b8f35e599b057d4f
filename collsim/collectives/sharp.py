"""Collectives whose sum is made by the switches of the network (SHARP), as NCCL's CollNet runs them.

The GPUs of one rail share a reduction tree in the network. Each of them sends its partial sum up once and gets the
total back once: per adapter S / heads up and down, whatever the number of nodes. How many levels of switches the tree
has adds latency only, and belongs to the route of such a transfer. Inside a node:

* *direct* sends slice h from every GPU straight to head h, and back;
* *chain* adds along a chain to its first GPU, which talks to the network, and copies back along the chain;
* *nvls* lets the NVLink switches add and multicast.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from collsim.collectives.algorithm import KIB, Algorithm, ScheduleRequest
from collsim.collectives.node_layout import NodeLayout
from collsim.collectives.pipeline import Hop, pipelined
from collsim.core.errors import Fault, UnsupportedError
from collsim.schedule import EVERY, ChunksBuilder, Schedule, group_label, split_bytes

__all__ = ["CHAIN", "DIRECT", "MAX_HEADS", "NVLS"]

DIRECT_CHUNK_BYTES, CHAIN_CHUNK_BYTES, NVLS_CHUNK_BYTES = 512 * KIB, 256 * KIB, 128 * KIB
"""Largest chunk of a channel, for direct and NVLS of one head on it (NCCL src/enqueue.cc)."""
MAX_HEADS = 8
"""GPUs that a GPU can send to directly (NCCL src/include/device.h, NCCL_MAX_DIRECT_ARITY + 1)."""


def build_direct(request: ScheduleRequest) -> Schedule:
    """Return the schedule of CollNet direct.

    Raises
    ------
    UnsupportedError
        A node has more GPUs than one of them can send to directly.
    """
    g = request.spread.per_node("collnet_direct")
    if g > MAX_HEADS:
        what = f"collnet_direct runs on up to {MAX_HEADS} GPUs of a node, not {g}"
        raise UnsupportedError(Fault(what, "algo", "name collnet_chain or nvls_sharp"))
    return _per_head(request, "collnet_direct", DIRECT_CHUNK_BYTES, nvls=False)


def build_nvls(request: ScheduleRequest) -> Schedule:
    """Return the schedule of NVLS inside the nodes and SHARP between them."""
    return _per_head(request, "nvls_sharp", NVLS_CHUNK_BYTES, nvls=True)


def build_chain(request: ScheduleRequest) -> Schedule:
    """Return the schedule of CollNet chain: channel c talks to the network from local index c mod g."""
    layout = request.spread
    g = layout.per_node("collnet_chain")
    shares = request.shares(request.size_bytes)
    hops = [_chain_hops(layout, channel % g) for channel in range(len(shares))]
    pieces = [request.pieces(int(share), CHAIN_CHUNK_BYTES) for share in shares]
    chunks = ChunksBuilder()
    chunks.add(np.concatenate(pieces), EVERY, EVERY)
    transfers = pipelined(hops, [len(piece) for piece in pieces], request.slots)
    schedule = request.schedule(
        "collnet_chain", chunks.build(), transfers, channels=len(shares), heads=g, slots=request.slots
    )
    return replace(schedule, groups=tuple(layout.rail(local) for local in range(g)))


def _per_head(request: ScheduleRequest, algo: str, chunk_bytes: int, *, nvls: bool) -> Schedule:
    """Return one pipeline of chunks per channel and head; of blocks, one per channel and owner of a block."""
    layout, name = request.spread, request.op.name
    g = layout.per_node(algo)
    blocked = name != "all_reduce"
    owners = list(range(request.n_ranks)) if blocked else [EVERY] * g
    shares = request.shares(request.block_bytes if blocked else request.size_bytes)
    slices = [[int(share)] * len(owners) if blocked else split_bytes(int(share), g, request.element_bytes).tolist()
              for share in shares]  # fmt: skip
    pieces = [request.pieces(size, chunk_bytes) for sizes in slices for size in sizes]
    local_of = {rank: local for node in layout.nodes for local, rank in enumerate(node)}
    shapes = [
        _head_hops(layout, name, head if owner == EVERY else local_of[owner], owner, nvls=nvls and g > 1)
        for head, owner in enumerate(owners)
    ]
    transfers = pipelined(shapes * len(shares), [len(piece) for piece in pieces], request.slots)
    chunks = ChunksBuilder()
    for number, sizes in enumerate(pieces):
        owner = owners[number % len(owners)]
        chunks.add(sizes, owner if name == "all_gather" else EVERY, owner if name == "reduce_scatter" else EVERY)
    transfers = replace(transfers, channel=transfers.channel // len(owners))
    rails = tuple(layout.rail(local) for local in range(g))
    schedule = request.schedule(algo, chunks.build(), transfers, channels=len(shares), heads=g, slots=request.slots)
    return replace(schedule, groups=(*rails, *(layout.nodes if nvls and g > 1 else ())))


def _head_hops(layout: NodeLayout, name: str, head: int, owner: int, *, nvls: bool) -> tuple[Hop, ...]:
    """Return the hops of a chunk of *head*: into the head of each node, the network, out to the nodes.

    All heads of the rail share one stage, since the network waits for the last of them.
    """
    rail, posted, total = group_label(head), -1, -2
    hops: list[Hop] = []
    if name != "all_gather":
        hops += _inside(layout, head, nvls=nvls, stages=(posted, total), inwards=True)
    ends = {"all_reduce": (rail, rail), "reduce_scatter": (rail, owner), "all_gather": (owner, rail)}[name]
    hops.append(Hop(*ends, posted, total, reduces=name != "all_gather"))
    if name != "reduce_scatter":
        hops += _inside(layout, head, nvls=nvls, stages=(posted, total), inwards=False)
    return tuple(hops)


def _inside(layout: NodeLayout, head: int, *, nvls: bool, stages: tuple[int, int], inwards: bool) -> list[Hop]:
    """Return the hops into the heads of all nodes, or out of them."""
    posted, total = stages
    hops = []
    for number, node in enumerate(layout.nodes):
        switch = group_label(len(node) + number)  # groups are the rails, then the nodes
        others = [switch] if nvls else [rank for local, rank in enumerate(node) if local != head]
        for other in others:
            # Stages are numbered by rank; what a switch reads or writes has numbers beyond all ranks.
            stage = other if other >= 0 else 10**6 + number
            if inwards:
                hops.append(Hop(other, node[head], 2 * stage, posted, reduces=True))
            else:
                hops.append(Hop(node[head], other, total, 2 * stage + 1))
    return hops


def _chain_hops(layout: NodeLayout, head: int) -> tuple[Hop, ...]:
    """Return the hops of a channel of CollNet chain."""
    posted, total, rail = -1, -2, group_label(head)
    chains = [[*node[head:], *node[:head]] for node in layout.nodes]
    up = [
        Hop(after, before, 2 * after, posted if before == chain[0] else 2 * before, reduces=True)
        for chain in chains
        for before, after in reversed(list(pairwise(chain)))
    ]
    down = [
        Hop(before, after, total if before == chain[0] else 2 * before + 1, 2 * after + 1)
        for chain in chains
        for before, after in pairwise(chain)
    ]
    return (*up, Hop(rail, rail, posted, total, reduces=True), *down)


DIRECT = Algorithm(
    name="collnet_direct",
    title="slices to the heads, the network adds them (SHARP)",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="NCCL src/device/all_reduce.h and src/graph/connect.cc (CollNet direct); NVIDIA SHARP",
    build=build_direct,
    where="nodes",
    in_network=("network",),
    protocols=("Simple",),
)
CHAIN = Algorithm(
    name="collnet_chain",
    title="chains in the nodes, the network adds what their heads hold (SHARP)",
    ops=("all_reduce",),
    source="NCCL src/device/all_reduce.h and src/graph/connect.cc (CollNet chain); NVIDIA SHARP",
    build=build_chain,
    where="nodes",
    in_network=("network",),
    family="chain",
    protocols=("Simple",),
)
NVLS = Algorithm(
    name="nvls_sharp",
    title="NVLink switches add in the nodes, the network between them (SHARP)",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="NCCL src/transport/nvls.cc (NVLS on several nodes); NVIDIA SHARP",
    build=build_nvls,
    where="nodes",
    in_network=("node", "network"),
    family="nvls",
    protocols=("Simple",),
)
