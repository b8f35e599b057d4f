"""Parts of messages: how NCCL's grouped sends and receives use the channels.

The choice of the library and the schedules both follow these rules, so they stand below both.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BATCH",
    "MAX_CHANNELS",
    "STEP_BYTES",
    "channel_of_part",
    "cut",
    "n_parts",
    "net_peer_channels",
    "p2p_channels",
    "part_sizes",
    "parts_of",
    "slot_bytes",
]

KIB = 1024

STEP_BYTES = 512 * KIB
"""Slot of a connection between ranks of one domain (NCCL_P2P_NVL_CHUNKSIZE, NCCL src/init.cc)."""

NET_STEP_BYTES = 128 * KIB
"""The same between domains (NCCL_P2P_NET_CHUNKSIZE)."""

LEAST_PART, MOST_PART = Fraction(1, 8), Fraction(32)
"""Smallest and largest part of a message, in steps, inside one domain (NCCL src/enqueue.cc, addP2pToPlan)."""

NET_LEAST_PART, NET_MOST_PART = Fraction(1, 2), Fraction(1)
"""The same between domains."""

NET_PEER_CHANNELS = 2
"""Most channels for a rank in another domain, until the library counts adapters (NCCL src/graph/paths.cc)."""

PART_GRAIN_BYTES = 4 * KIB
"""Parts are multiples of this (NCCL src/include/device.h, ncclP2pPartBounds)."""

BATCH = 8
"""Messages that one channel handles at once (NCCL_MAX_DEV_WORK_P2P_PER_BATCH)."""

MAX_CHANNELS = 64
"""NCCL src/include/device.h, MAXCHANNELS."""


def p2p_channels(channels: int) -> int:
    """Return the number of channels for point to point where collectives use *channels*: a power of two.

    >>> [p2p_channels(channels) for channels in (1, 24, 100)]
    [1, 32, 64]
    """
    return min(1 << (channels - 1).bit_length(), MAX_CHANNELS)


def slot_bytes(n_domains: int) -> int:
    """Return the slot of a connection, by default, inside one domain or between several."""
    return STEP_BYTES if n_domains == 1 else NET_STEP_BYTES


def net_peer_channels(n_ranks: int, channels: int) -> int:
    """Return the channels for a rank in another domain, fewer for many peers (NCCL 2.18 to 2.27, src/graph/paths.cc).

    >>> [net_peer_channels(n_ranks, 16) for n_ranks in (16, 32, 64)]
    [2, 2, 1]
    """
    per_peer = NET_PEER_CHANNELS
    while per_peer > 1 and per_peer * n_ranks > 4 * channels:
        per_peer //= 2
    return per_peer


def n_parts(
    message_bytes: int,
    n_ranks: int,
    channels: int,
    peer_channels: int | None = None,
    *,
    step_bytes: int | None = None,
    n_domains: int = 1,
) -> int:
    """Return into how many parts a message is cut, each on its own channel (NCCL src/enqueue.cc, addP2pToPlan).

    Few peers share the channels among themselves; a message that is still too long gets more, up to *peer_channels*
    (all of them if None). What is long or short follows from *step_bytes*, the slot of a connection (None: as by
    default inside one domain).

    >>> [n_parts(mib * 2**20, 4, 32) for mib in (0, 1, 128, 256, 512)]
    [1, 8, 8, 16, 32]
    >>> n_parts(2**20, 4, 32, step_bytes=2**21)
    4
    """
    found = parts_of(
        np.array([message_bytes]), n_ranks, channels, peer_channels, step_bytes=step_bytes, n_domains=n_domains
    )
    return int(found[0])


def parts_of(
    message_bytes: NDArray[np.int64],
    n_ranks: int,
    channels: int,
    peer_channels: int | None = None,
    *,
    step_bytes: int | None = None,
    n_domains: int = 1,
) -> NDArray[np.int64]:
    """Return int64[n], the same for many messages."""
    shares = (LEAST_PART, MOST_PART) if n_domains == 1 else (NET_LEAST_PART, NET_MOST_PART)
    least_bytes, most_bytes = (max(int(share * (step_bytes or slot_bytes(n_domains))), 1) for share in shares)
    most = min(peer_channels or channels, channels)
    fair = most
    while fair > 1 and fair * n_ranks > channels:
        fair //= 2
    parts = np.maximum(np.minimum(fair, -(-message_bytes // least_bytes)), 1)
    while True:
        long = (np.maximum(-(-message_bytes // parts), least_bytes) > most_bytes) & (parts <= most // 2)
        if not long.any():
            return parts
        parts = np.where(long, 2 * parts, parts)


def part_sizes(message_bytes: int, parts: int) -> NDArray[np.int64]:
    """Return the bytes of each part; parts that alignment leaves empty are left out.

    >>> part_sizes(10000, 2).tolist()
    [8192, 1808]
    """
    sizes: NDArray[np.int64] = cut(np.array([message_bytes]), np.array([parts]))[1]
    return sizes


def cut(
    message_bytes: NDArray[np.int64], parts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the message, the bytes and the number in its message of each part of many messages."""
    grain = PART_GRAIN_BYTES
    part_bytes = np.maximum(-(-message_bytes // parts // grain) * grain, grain)
    counts = np.maximum(-(-message_bytes // part_bytes), 1)
    message = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(message)) - (np.cumsum(counts) - counts)[message]
    sizes = np.minimum(part_bytes[message], message_bytes[message] - number * part_bytes[message])
    return message, sizes, number


def channel_of_part(distance: int, part: int, channels: int) -> int:
    """Return the channel of a part: parts are neighbours, rounds start at the bit-reversed number of the round.

    >>> [channel_of_part(distance, 0, 8) for distance in range(8)]
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = channels.bit_length() - 1
    reverse = sum((distance >> bit & 1) << (bits - 1 - bit) for bit in range(bits))
    return (reverse + part) % channels
