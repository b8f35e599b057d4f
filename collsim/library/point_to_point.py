"""Grouped sends and receives: channels, channels per peer, parts of a message (NCCL src/enqueue.cc, addP2pToPlan)."""

from __future__ import annotations

import math
from dataclasses import replace

from collsim.library.calls import LL, SIMPLE, Call, PointToPoint
from collsim.library.environment import Environment
from collsim.library.system import System
from collsim.library.versions import Library

__all__ = ["OPS", "channels_used", "parts_of", "point_to_point", "protocol_of"]

OPS = ("all_to_all", "all_to_all_v", "gather", "scatter", "send_recv")
"""Operations that are made of messages."""

KIB = 1024
MAX_CHANNELS = 64
STEP_BYTES = 512 * KIB
"""NCCL_P2P_NVL_CHUNKSIZE (src/init.cc): all ranks reach each other over NVLink or xGMI."""
NET_STEP_BYTES = 128 * KIB
"""NCCL_P2P_NET_CHUNKSIZE: several domains."""
LEAST_PART, MOST_PART = 1 / 8, 32
NET_LEAST_PART, NET_MOST_PART = 1 / 2, 1
"""Smallest and largest part of a message, in steps."""
LL_PART_BYTES = 16 * KIB
"""NCCL_P2P_LL_THRESHOLD: LL up to this much per part."""
BATCH = 8
"""NCCL_MAX_DEV_WORK_P2P_PER_BATCH: messages that one channel handles at once."""
PER_LINK = {"gfx942": 4, "gfx950": 4}
PER_LINK_DEFAULT = 2
"""Channels per peer and link (src/graph/paths.cc, ncclTopoGetNchannels)."""
DISTANT_PEER_CHANNELS = 2
NET_PEER_CHANNELS, NET_CHANNEL_GBPS, NET_RATE_SINCE = 2, 14, (2, 28)
"""Between domains: fixed, then one channel per so much of the adapters (NCCL_P2P_PER_CHANNEL_NET_BW)."""
SLOTS = 8


def point_to_point(
    call: Call, system: System, library: Library, environment: Environment, communicator_channels: int
) -> PointToPoint:
    """Return how the messages of *call* use the channels."""
    most = environment.number("NCCL_MAX_P2P_NCHANNELS", MAX_CHANNELS)
    least = environment.number("NCCL_MIN_P2P_NCHANNELS", 1)
    raw = max(min(communicator_channels, most), least)
    channels = min(_power_of_two(raw), MAX_CHANNELS)
    per_peer = _per_peer(call, system)
    if call.n_nodes > 1:
        per_peer = min(per_peer, _per_distant_peer(call, system, library, environment, channels))
    if library.version < (2, 29):
        per_peer = min(per_peer, raw)
    per_peer = min(_power_of_two(per_peer), channels)
    step = _step_bytes(call, environment)
    shape = PointToPoint(channels, per_peer, 1, step)
    return replace(shape, parts=parts_of(shape, call.message_bytes, call.n_ranks, call.n_nodes))


def _power_of_two(value: int) -> int:
    return 1 << (max(value, 1) - 1).bit_length()


def _per_peer(call: Call, system: System) -> int:
    """Return the channels that the slowest pair of ranks deserves."""
    slowest = system.pair_GBps(call.ranks_per_node)[0]
    if slowest == 0:
        return DISTANT_PEER_CHANNELS
    links = max(1, int(slowest / system.link_GBps + 1e-9))
    return PER_LINK.get(system.architecture, PER_LINK_DEFAULT) * links


def _per_distant_peer(call: Call, system: System, library: Library, environment: Environment, channels: int) -> int:
    """Return the channels for a rank in another domain: enough for the adapters, fewer for many peers."""
    given = environment.number("NCCL_NCHANNELS_PER_NET_PEER", -1)
    if given > 0:
        return given
    if library.version < NET_RATE_SINCE:
        per_peer = NET_PEER_CHANNELS
        while per_peer > 1 and per_peer * call.n_ranks > 4 * channels:
            per_peer //= 2
        return max(system.nics_per_gpu, per_peer)
    per_peer = _power_of_two(max(system.nics_per_gpu, math.ceil(system.nic_GBps / NET_CHANNEL_GBPS)))
    while per_peer > 1 and per_peer * -(-call.n_ranks // BATCH) > channels:
        per_peer //= 2
    return per_peer


def _step_bytes(call: Call, environment: Environment) -> int:
    name, usual = ("NCCL_P2P_NVL_CHUNKSIZE", STEP_BYTES)
    if call.n_nodes > 1:
        name, usual = ("NCCL_P2P_NET_CHUNKSIZE", NET_STEP_BYTES)
    buffer = environment.number("NCCL_BUFFSIZE", STEP_BYTES * SLOTS)
    return min(environment.number(name, usual), buffer // SLOTS)


def parts_of(shape: PointToPoint, message_bytes: int, n_ranks: int, n_nodes: int = 1) -> int:
    """Return into how many parts a message is cut, each on its own channel.

    Peers share the channels; a message whose parts would be too long gets more of them, up to P.

    >>> shape = PointToPoint(32, 32, 1, 524288)
    >>> [parts_of(shape, mib * 2**20, 4) for mib in (0, 1, 128, 256, 512)]
    [1, 8, 8, 16, 32]
    """
    if message_bytes == 0:
        return 1
    shares = (NET_LEAST_PART, NET_MOST_PART) if n_nodes > 1 else (LEAST_PART, MOST_PART)
    least, most = (int(share * shape.step_bytes) for share in shares)
    parts = shape.channels_per_peer
    while parts > 1 and parts * n_ranks > shape.channels:
        parts //= 2
    parts = min(parts, -(-message_bytes // least))
    part_bytes = max(least, -(-message_bytes // parts))
    while part_bytes > most and parts <= shape.channels_per_peer // 2:
        parts *= 2
        part_bytes = -(-message_bytes // parts)
    return parts


def protocol_of(message_bytes: int, parts: int, environment: Environment) -> int:
    """Return LL for little data per part, else Simple; NCCL_PROTO does not matter here."""
    threshold = environment.number("NCCL_P2P_LL_THRESHOLD", LL_PART_BYTES)
    return LL if message_bytes <= parts * threshold else SIMPLE


def channels_used(call: Call, shape: PointToPoint) -> int:
    """Return how many channels the busiest rank uses: parts are neighbours, rounds start at reversed bits."""
    rounds = (1,) if call.op == "send_recv" else range(call.n_ranks)
    bits = shape.channels.bit_length() - 1
    starts = [sum((number >> bit & 1) << (bits - 1 - bit) for bit in range(bits)) for number in rounds]
    return len({(start + part) % shape.channels for start in starts for part in range(shape.parts)})
