"""Grouped sends and receives: channels, channels per peer, parts of a message (NCCL src/enqueue.cc, addP2pToPlan)."""

from __future__ import annotations

import math

from collsim.library.calls import LL, SIMPLE, Call, PointToPoint
from collsim.library.environment import Environment
from collsim.library.library import Library
from collsim.library.nccl.protocols import SLOTS
from collsim.library.system import System
from collsim.schedule.message_parts import (
    BATCH,
    MAX_CHANNELS,
    STEP_BYTES,
    channel_of_part,
    n_parts,
    net_peer_channels,
    p2p_channels,
    slot_bytes,
)

__all__ = ["channels_used", "point_to_point", "protocol_of"]

KIB = 1024
LL_PART_BYTES = 16 * KIB
"""NCCL_P2P_LL_THRESHOLD: LL up to this much per part."""
PER_LINK = {"gfx942": 4, "gfx950": 4}
PER_LINK_DEFAULT = 2
"""Channels per peer and link (src/graph/paths.cc, ncclTopoGetNchannels)."""
DISTANT_PEER_CHANNELS = 2
PCIE_STEP_BYTES = 128 * KIB
"""Slot of a connection where GPUs have no NVLink ("P2P Chunksize set to 131072" in debug lines)."""
NET_CHANNEL_GBPS, NET_RATE_SINCE = 14, (2, 28)
"""Between domains: one channel per so much of the adapters (NCCL_P2P_PER_CHANNEL_NET_BW); before, a fixed number."""


def point_to_point(
    call: Call,
    system: System,
    library: Library,
    environment: Environment,
    communicator_channels: int,
    *,
    net_step_bytes: int | None = None,
) -> PointToPoint:
    """Return the channels and parts of the messages of *call*; between domains slots have *net_step_bytes* if given."""
    most = environment.number("NCCL_MAX_P2P_NCHANNELS", MAX_CHANNELS)
    least = environment.number("NCCL_MIN_P2P_NCHANNELS", 1)
    channels = p2p_channels(max(min(communicator_channels, most), least, 1))
    every = (system, *system.others)
    per_peer = channels  # of a domain by itself, none is near
    if call.ranks_per_node > 1:
        per_peer = min(_per_peer(call, one) for one in every)
    if call.n_nodes > 1:
        distant = min(_per_distant_peer(call, one, library, environment, channels) for one in every)
        per_peer = min(per_peer, distant)
    per_peer = min(_power_of_two(per_peer), channels)
    step = _step_bytes(call, environment, net_step_bytes, pcie=system.pcie_GBps > 0)
    parts = n_parts(call.message_bytes, call.n_ranks, channels, per_peer, step_bytes=step, n_domains=call.n_nodes)
    return PointToPoint(channels, per_peer, parts, step)


def _power_of_two(value: int) -> int:
    return 1 << (max(value, 1) - 1).bit_length()


def _per_peer(call: Call, system: System) -> int:
    """Return the channels that the slowest pair of ranks deserves."""
    slowest = system.pair_GBps(call.ranks_per_node)[0]
    if slowest == 0 or system.pcie_GBps:
        return DISTANT_PEER_CHANNELS
    links = max(1, int(slowest / system.link_GBps + 1e-9))
    return PER_LINK.get(system.architecture, PER_LINK_DEFAULT) * links


def _per_distant_peer(call: Call, system: System, library: Library, environment: Environment, channels: int) -> int:
    """Return the channels for a rank in another domain: enough for the adapters, fewer for many peers."""
    given = environment.number("NCCL_NCHANNELS_PER_NET_PEER", -1)
    if given > 0:
        return given
    if library.version < NET_RATE_SINCE:
        return max(math.ceil(system.nics_per_gpu), net_peer_channels(call.n_ranks, channels))
    per_peer = _power_of_two(max(math.ceil(system.nics_per_gpu), math.ceil(system.nic_GBps / NET_CHANNEL_GBPS)))
    while per_peer > 1 and per_peer * -(-call.n_ranks // BATCH) > channels:
        per_peer //= 2
    return per_peer


def _step_bytes(call: Call, environment: Environment, net_step_bytes: int | None, *, pcie: bool) -> int:
    """Return the slot of a connection."""
    name, usual = ("NCCL_P2P_PCI_CHUNKSIZE", PCIE_STEP_BYTES) if pcie else ("NCCL_P2P_NVL_CHUNKSIZE", STEP_BYTES)
    if call.n_nodes > 1:
        name, usual = ("NCCL_P2P_NET_CHUNKSIZE", net_step_bytes or slot_bytes(call.n_nodes))
    buffer = environment.number("NCCL_BUFFSIZE", STEP_BYTES * SLOTS)
    return min(environment.number(name, usual), buffer // SLOTS)


def protocol_of(call: Call, parts: int, environment: Environment) -> int:
    """Return LL for little data per part, else Simple; NCCL_PROTO does not matter here.

    Connections through the network have no buffers for LL unless the user asks for them.
    """
    threshold = environment.number("NCCL_P2P_LL_THRESHOLD", LL_PART_BYTES)
    buffers = call.n_nodes == 1 or environment.number("NCCL_ALLOC_P2P_NET_LL_BUFFERS", 0) != 0
    return LL if buffers and call.message_bytes <= parts * threshold else SIMPLE


def channels_used(call: Call, shape: PointToPoint) -> int:
    """Return the number of channels that the busiest rank uses: parts are neighbours, rounds start at reversed bits.

    Over several domains the rounds between two groups of ranks start at the same channel.
    """
    together = math.gcd(BATCH, call.ranks_per_node) if call.n_nodes > 1 else 1
    rounds = (1,) if call.op == "send_recv" else range(call.n_ranks // together)
    return len({channel_of_part(number, part, shape.channels) for number in rounds for part in range(shape.parts)})
