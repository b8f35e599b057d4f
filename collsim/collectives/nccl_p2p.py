"""All-to-all and send-receive as NCCL's grouped point-to-point kernel carries them out inside one domain.

In round d every rank sends to the rank d places after it and receives from the one d places before. A message is cut
into parts, each on its own channel. A channel works on a batch of up to eight rounds at once, and a rank turns to the
next batch of a channel when everything that it sends and receives in the batch before is done; there is no barrier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from collsim.collectives.request import KIB, Algorithm, Request
from collsim.schedule import ChunksBuilder, Int, OrbitsBuilder, Schedule

__all__ = ["ALGORITHM", "channel_of_part", "n_parts", "p2p_channels", "part_sizes"]

STEP_BYTES = 512 * KIB
"""Slot of a connection between ranks of one domain (NCCL_P2P_NVL_CHUNKSIZE, NCCL src/init.cc)."""

MIN_PART_BYTES = STEP_BYTES // 8
MAX_PART_BYTES = STEP_BYTES * 32
"""A message gets no part below the one and more parts above the other (NCCL src/enqueue.cc, addP2pToPlan)."""

PART_GRAIN_BYTES = 4 * KIB
"""Parts are multiples of this (NCCL src/include/device.h, ncclP2pPartBounds)."""

BATCH = 8
"""Messages that one channel handles at once (NCCL_MAX_DEV_WORK_P2P_PER_BATCH)."""

MAX_CHANNELS = 64
"""NCCL src/include/device.h, MAXCHANNELS."""


def p2p_channels(channels: int) -> int:
    """Return how many channels point to point uses where collectives use *channels*: a power of two.

    >>> [p2p_channels(channels) for channels in (1, 24, 100)]
    [1, 32, 64]
    """
    return min(1 << (channels - 1).bit_length(), MAX_CHANNELS)


def n_parts(message_bytes: int, n_ranks: int, channels: int, peer_channels: int | None = None) -> int:
    """Return into how many parts a message is cut (NCCL src/enqueue.cc, addP2pToPlan).

    Few peers share the channels among themselves; a message that is still too long gets more, up to *peer_channels*
    (all of them if None).

    >>> [n_parts(mib * 2**20, 4, 32) for mib in (0, 1, 128, 256, 512)]
    [1, 8, 8, 16, 32]
    """
    most = min(peer_channels or channels, channels)
    parts = most
    while parts > 1 and parts * n_ranks > channels:
        parts //= 2
    parts = max(min(parts, -(-message_bytes // MIN_PART_BYTES)), 1)
    while -(-message_bytes // parts) > MAX_PART_BYTES and parts <= most // 2:
        parts *= 2
    return parts


def part_sizes(message_bytes: int, parts: int) -> Int:
    """Return the bytes of each part; parts that alignment leaves empty are left out.

    >>> part_sizes(10000, 2).tolist()
    [8192, 1808]
    """
    grain = PART_GRAIN_BYTES
    part_bytes = max(-(-message_bytes // parts // grain) * grain, grain)
    bounds = np.minimum(np.arange(parts + 1) * part_bytes, message_bytes)
    sizes = np.diff(bounds)
    return sizes[sizes > 0] if message_bytes else sizes[:1]


def channel_of_part(distance: int, part: int, channels: int) -> int:
    """Return the channel of a part: parts are neighbours, rounds start at the bit-reversed number of the round.

    >>> [channel_of_part(distance, 0, 8) for distance in range(8)]
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = channels.bit_length() - 1
    reverse = sum((distance >> bit & 1) << (bits - 1 - bit) for bit in range(bits))
    return (reverse + part) % channels


def build(request: Request) -> Schedule:
    """Return the rounds of an all-to-all, or the one round of a send-receive between neighbours."""
    n, ranks = request.n_ranks, np.arange(request.n_ranks)
    everyone = request.op.name == "all_to_all"
    message_bytes = request.block_bytes if everyone else request.size_bytes
    channels = p2p_channels(request.n_channels)
    parts = n_parts(message_bytes, n, channels, request.peer_channels)
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
    return request.schedule("nccl_p2p", chunks.build(), rows.build(), channels=channels, parts=parts)


def _batch_before(started: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Return what the next message of a channel waits for: what this rank sends and receives in the batch before."""
    first = len(started) // BATCH * BATCH
    for row, distance in started[max(first - BATCH, 0) : first]:
        if row >= 0:
            yield (row, 0)
            yield (row, -distance)


ALGORITHM = Algorithm(
    name="nccl_p2p",
    title="rounds of messages in parts over channels, as NCCL's grouped send and receive",
    ops=("all_to_all", "send_recv"),
    source="NCCL src/enqueue.cc, src/include/channel.h and src/device/sendrecv.h",
    build=build,
)
