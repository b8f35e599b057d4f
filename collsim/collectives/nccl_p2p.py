"""All-to-all and send-receive as NCCL's grouped point-to-point kernel carries them out; over nodes see node_p2p.

In round d every rank sends to the rank d places after it and receives from the one d places before. A message is cut
into parts, each on its own channel. A channel works on a batch of up to eight rounds at once, and a rank turns to the
next batch of a channel when everything that it sends and receives in the batch before is done; there is no barrier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from collsim.collectives import node_p2p
from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import ChunksBuilder, OrbitsBuilder, Schedule
from collsim.schedule.message_parts import BATCH, channel_of_part, n_parts, p2p_channels, part_sizes, slot_bytes

__all__ = ["ALGORITHM", "SEND_RECV", "step_of"]


def build(request: ScheduleRequest) -> Schedule:
    """Return the rounds of an all-to-all, or the one round of a send-receive between neighbours."""
    n, ranks, n_nodes = request.n_ranks, np.arange(request.n_ranks), request.spread.n_nodes
    everyone = request.op.name == "all_to_all"
    if everyone and n_nodes > 1:
        return node_p2p.build(request)
    message_bytes = request.block_bytes if everyone else request.size_bytes
    channels = p2p_channels(request.n_channels)
    parts = n_parts(
        message_bytes, n, channels, request.peer_channels, step_bytes=request.peer_step_bytes, n_domains=n_nodes
    )
    sizes = part_sizes(message_bytes, parts)
    chunks, rows = ChunksBuilder(), OrbitsBuilder(ranks)
    batches: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for distance in range(n) if everyone else (1,):
        for part, size in enumerate(sizes):
            channel = channel_of_part(distance, part, channels)
            started = batches[channel]
            waits = _batch_before(started)
            if distance == 0:  # a rank's own block: a local copy that has its place in the batch
                started.append((-1, 0))
                continue
            family = chunks.add(np.full(n, size), ranks, (ranks + distance) % n) // n
            row = rows.add(
                distance, [(family, 0)], waits, channel=channel, step=len(started) // BATCH, reads_input=True
            )
            started.append((row, distance))
    return request.schedule(
        "nccl_p2p", chunks.build(), rows.build(), channels=channels, parts=parts, **step_of(request)
    )


def step_of(request: ScheduleRequest) -> dict[str, int]:
    """Return the slot of a connection as a parameter of the schedule, unless it is the usual one of one domain."""
    if request.peer_step_bytes is None and request.spread.n_nodes == 1:
        return {}
    return {"step_bytes": request.peer_step_bytes or slot_bytes(request.spread.n_nodes)}


def _batch_before(started: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Yield the dependencies of a channel's next message: sends and receives of this rank in the batch before."""
    first = len(started) // BATCH * BATCH
    for row, distance in started[max(first - BATCH, 0) : first]:
        if row >= 0:
            yield (row, 0)
            yield (row, -distance)


ALGORITHM = Algorithm(
    name="nccl_p2p",
    title="rounds of messages in parts over channels, as NCCL's grouped send and receive",
    ops=("all_to_all",),
    source="NCCL src/enqueue.cc, src/include/channel.h and src/device/sendrecv.h",
    build=build,
    growth="pairs",
    protocols=("LL", "Simple"),
    cost_law="grouped",
    relays=False,
)
SEND_RECV = replace(ALGORITHM, ops=("send_recv",), growth="ranks", relays=None)
