"""Collectives inside the switch (NVLink SHARP): switches add what all ranks hold and copy one rank's data to all.

Every rank is the *head* of one slice. It reads its slice as a sum from all ranks (load-reduce) and writes the result to
all (multicast), chunk by chunk. Per rank and direction an all-reduce of S bytes moves S (1 + 1/n), against 2 S (n-1)/n
of a ring; busbw, whose factor assumes the latter, can therefore exceed the rate of the links.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collsim.collectives.algorithm import KIB, Algorithm, ScheduleRequest
from collsim.collectives.pipeline import Hop, pipelined
from collsim.core.errors import Fault, UnsupportedError
from collsim.schedule import EVERY, Chunks, Schedule, split_bytes

__all__ = ["ALGORITHM"]

CHUNK_BYTES = 128 * KIB
"""Largest chunk of one head on one channel (NCCL src/enqueue.cc, NVLS)."""
SMALLER_CHUNKS = ((64, 64 * KIB), (8, 32 * KIB), (2, 16 * KIB))
"""(rounds, chunk): with fewer rounds than this of the chunk before, NCCL takes this one (src/enqueue.cc): for 16
channels and 8 heads 16 KiB below 8 MiB, 32 KiB below 64 MiB, 64 KiB below 1 GiB."""


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule: one pipeline of chunks per channel and head.

    Raises
    ------
    UnsupportedError
        The ranks are on several nodes: NVLink switches reach one.
    """
    if request.spread.n_nodes > 1:
        hint = "name nvls_tree, or nvls_sharp where the network adds"
        raise UnsupportedError(Fault("nvls runs inside one node", "algo", hint))
    n, name = request.n_ranks, request.op.name
    per_head = name != "all_reduce"
    shares = request.shares(request.block_bytes if per_head else request.size_bytes)
    sizes = [np.full(n, share) if per_head else split_bytes(int(share), n, request.element_bytes) for share in shares]
    size_bytes, chunk_bytes = np.concatenate(sizes), _chunk_bytes(request)
    cuts = {size: request.pieces(size, chunk_bytes) for size in set(size_bytes.tolist())}  # few differ
    pieces = [cuts[size] for size in size_bytes.tolist()]
    n_chunks = [len(each) for each in pieces]
    transfers = pipelined([_hops(name, head) for head in range(n)] * len(shares), n_chunks, request.slots)
    head = np.repeat(np.tile(np.arange(n), len(shares)), n_chunks)
    every = np.full(len(head), EVERY)
    chunks = Chunks(
        np.concatenate(pieces), head if name == "all_gather" else every, head if name == "reduce_scatter" else every
    )
    return request.schedule(
        "nvls",
        chunks,
        replace(transfers, channel=transfers.channel // n),
        channels=len(shares),
        chunk_bytes=chunk_bytes,
        slots=request.slots,
    )


def _hops(name: str, head: int) -> tuple[Hop, ...]:
    """Return the hops of a chunk of *head*: added up into the head, copied from it to all, or both."""
    pulls, writes, everyone = 0, 1, 2
    into = Hop(EVERY, head, pulls, writes, reduces=True)
    out = Hop(head, EVERY, writes, everyone)
    return {"reduce_scatter": (into,), "all_gather": (out,)}.get(name, (into, out))


def _chunk_bytes(request: ScheduleRequest) -> int:
    """Return the chunk of one head: smaller for little data, so that there are chunks to overlap."""
    if request.chunk_bytes is not None:
        return request.chunk_bytes
    chunk_bytes = CHUNK_BYTES
    for rounds, smaller_bytes in SMALLER_CHUNKS:
        if request.size_bytes < rounds * request.n_channels * request.n_ranks * chunk_bytes:
            chunk_bytes = smaller_bytes
    return chunk_bytes


ALGORITHM = Algorithm(
    name="nvls",
    title="load-reduce and multicast in the NVLink switches",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="NCCL src/device/all_reduce.h and src/transport/nvls.cc; NVIDIA NVLink SHARP",
    build=build,
    in_network=("all",),
    family="nvls",
    protocols=("Simple",),
)
