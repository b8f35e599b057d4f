"""RCCL over several boards: channels, latencies, protocol by size, hierarchical and direct gathers, PXN.

Read from ROCm/rocm-systems projects/rccl (2.27 to 2.31); no debug line across boards was compared.
"""

from __future__ import annotations

from collsim.library.calls import LL, LL128, SIMPLE, Call, Candidate
from collsim.library.environment import Environment
from collsim.library.library import PROTOCOLS, Library
from collsim.library.nccl.tuner import log2_floor, net_overhead_us
from collsim.library.rccl.tables import TuningModel
from collsim.library.system import Graph, System

__all__ = [
    "ACROSS_MAX_CHANNELS",
    "backend_of",
    "by_size",
    "channels_by_size",
    "channels_of",
    "graph_of",
    "hops_us",
    "p2p_step_bytes",
    "relays",
]

KIB = 1024
MIB = 1024 * KIB
ACROSS_MAX_CHANNELS = 64
"""Over several boards (src/graph/connect.cc)."""
GFX950_CHANNELS, GFX950_FEWER_SINCE = 48, (2, 30)
"""Default most from ROCm 7.12 on; which version of RCCL that carries is inferred from its release."""
GFX90A_CHANNELS = 32
LL128_SINCE = {"gfx942": (2, 23), "gfx950": (2, 18), "gfx90a": (2, 18)}
"""The tables of several MI300X up to 2.22 have zeros for it."""
PER_ADAPTER = 8
"""A template of eight GPUs and eight adapters has 64 rings, eight entering by each adapter (rome_models.cc)."""
ADAPTER_LIMIT_GBPS = 48.0
"""Sixteen lanes of PCIe 5 by the library's reckoning (src/graph/topo.h)."""

Limits = dict[tuple[str, str], tuple[int, int, int]]
PROTOCOL_UP_TO: Limits = {
    ("gfx942", "reduce_scatter"): (655360, 131072, 3211264),
    ("gfx942", "all_gather"): (98304, 98304, 5046272),
    ("gfx942", "all_reduce"): (524288, 524288, 4415057),
    ("gfx942", "reduce"): (4096, 4096, 16 * MIB),
    ("gfx942", "broadcast"): (8192, 8192, 32 * MIB),
    ("gfx950", "reduce_scatter"): (65536, 65536, 8 * MIB),
    ("gfx950", "all_gather"): (65536, 65536, 8 * MIB),
    ("gfx950", "all_reduce"): (262144, 262144, 70640910),
    ("gfx950", "reduce"): (16383, 16383, 16 * MIB),
    ("gfx950", "broadcast"): (2048, 2048, 16 * MIB),
}
"""Most bytes per rank with LL; more than and up to how many with LL128, which wins (src/graph/tuning.cc, newer)."""
PROTOCOL_UP_TO_EARLIER: Limits = {
    ("gfx942", "reduce_scatter"): (655360, 131072, 3211264),
    ("gfx942", "all_gather"): (98304, 98304, 5046272),
    ("gfx942", "all_reduce"): (MIB, MIB, 9437184),
    ("gfx950", "reduce_scatter"): (131071, 131071, 4 * MIB),
    ("gfx950", "all_gather"): (7, 7, 8 * MIB),
    ("gfx950", "all_reduce"): (131071, 131071, 17660227),
    ("gfx950", "reduce"): (16383, 16383, 16 * MIB),
    ("gfx950", "broadcast"): (2048, 2048, 16 * MIB),
}
"""The same before: from 2.23 to 2.26."""
FIRST_LIMITS, PRESENT_LIMITS = (2, 23), (2, 27)
"""Releases from which size decides, as `tables.EARLIER` dates them, and from which the present limits hold."""
ALL_REDUCE_LL128_MANY = 3.8
"""Factor on the upper limit of LL128 for all-reduce on more than two boards."""
CHANNELS_BY_SIZE = {
    "reduce_scatter": (
        (KIB, 2), (2 * KIB, 4), (4 * KIB, 8), (64 * KIB, 16), (256 * KIB, 32), (512 * KIB, 40), (MIB, 56),
    ),
    "all_gather": (
        (4 * KIB, 2), (8 * KIB, 4), (16 * KIB, 8), (256 * KIB, 16), (512 * KIB, 32), (MIB, 40), (4 * MIB, 56),
    ),
}  # fmt: skip
CHANNELS_BEYOND = 64
"""gfx950: bytes per rank up to which a gather or scatter uses so many channels."""
PXN_RANKS = {"gfx942": 64, "gfx950": 32}
P2P_STEPS = {"gfx942": ((64, 512 * KIB),), "gfx950": ((32, 512 * KIB), (16, 256 * KIB))}
P2P_STEP_DEFAULT = 128 * KIB
"""Slot of a connection for messages between boards: from so many ranks on (src/init.cc)."""
DIRECT_SINCE = (2, 28)
DIRECT_GATHER_BYTES, DIRECT_PER_NODE_BYTES, DIRECT_MOST_NODES = 4 * MIB, 2 * MIB, 64
DIRECT_SCATTER_BYTES = 8 * MIB
HIERARCHICAL_SINCE = (2, 28)
HIERARCHICAL = {
    "all_gather": ((32, 128 * MIB), (16, 64 * MIB), (8, 32 * MIB)),
    "reduce_scatter": ((16, 128 * MIB), (8, 64 * MIB)),
}
"""From so many boards on: up to which total size."""


def channels_of(call: Call, system: System, library: Library) -> int:
    """Return the channels of a communicator over several boards."""
    if system.architecture == "gfx90a":
        return GFX90A_CHANNELS
    limit = ACROSS_MAX_CHANNELS
    if system.architecture == "gfx950" and library.version >= GFX950_FEWER_SINCE:
        limit = GFX950_CHANNELS
    return min(PER_ADAPTER * call.ranks_per_node, limit)


def graph_of(call: Call, system: System, channels: int) -> Graph:
    """Return the rings: the links of a board and its adapters shared by half of the channels.

    Without known adapters only the links count, which the choice between ring and tree hardly notices.
    """
    inside = system.total_GBps(call.ranks_per_node) if call.ranks_per_node > 1 else ADAPTER_LIMIT_GBPS
    adapter = min(system.nic_GBps / system.nics_per_gpu, ADAPTER_LIMIT_GBPS) * system.nics_per_gpu
    outside = adapter * call.ranks_per_node if adapter else inside
    return Graph(channels, min(inside, outside) / channels, outside / channels, same_order=False)


def hops_us(call: Call, system: System, environment: Environment, model: TuningModel, way: tuple[str, int]) -> float:
    """Return the latency of all hops of *way*, an algorithm and a protocol; some of them are through the network."""
    algo, proto = way
    n, nodes = call.n_ranks, call.n_nodes
    if algo == "tree":
        inside = (call.ranks_per_node - 1) * model.tree_us[proto]
        return 2 * (inside + log2_floor(nodes) * model.net_tree_us[proto])
    if call.op in ("broadcast", "reduce"):
        return n * (model.net_tree_us if proto == SIMPLE else model.net_ring_us)[proto]
    twice = 2 if call.op == "all_reduce" else 1
    steps, between = twice * (n - 1), twice * (nodes - 1)
    inside_us = max(model.ring_us[proto], net_overhead_us(system, environment, proto))
    return (steps - between) * inside_us + between * model.net_ring_us[proto]


def by_size(
    rows: tuple[Candidate, ...], call: Call, system: System, library: Library, environment: Environment
) -> tuple[Candidate, ...]:
    """Return the candidates with the protocol that the size decides first; the algorithm stays as rated.

    A protocol that the user names is left alone.
    """
    table = PROTOCOL_UP_TO if library.version >= PRESENT_LIMITS else PROTOCOL_UP_TO_EARLIER
    limits = table.get((system.architecture, call.op)) if library.version >= FIRST_LIMITS else None
    if limits is None or environment.names("NCCL_PROTO", call.op) is not None:
        return rows
    per_rank = call.buffer_bytes
    low, above, high = limits
    many = ALL_REDUCE_LL128_MANY if call.op == "all_reduce" and call.n_nodes > 2 else 1.0
    proto = LL if per_rank <= low else SIMPLE
    if above < per_rank <= high * many:
        proto = LL128
    word = PROTOCOLS[proto]
    first = [row for row in rows if row.algo == rows[0].algo and row.proto == word]
    return (*first, *(row for row in rows if row not in first))


def channels_by_size(call: Call, system: System, library: Library) -> int | None:
    """Return the channels of a gather or scatter on gfx950; None: as many as the size deserves."""
    known = system.architecture == "gfx950" and library.version >= PRESENT_LIMITS
    table = CHANNELS_BY_SIZE.get(call.op) if known else None
    if table is None:
        return None
    found = next((channels for limit, channels in table if call.buffer_bytes <= limit), CHANNELS_BEYOND)
    return min(found, PER_ADAPTER * call.ranks_per_node)


def relays(call: Call, system: System) -> bool:
    """Return True if messages between boards go over the GPU on the rail of their target (PXN)."""
    return call.n_ranks >= PXN_RANKS.get(system.architecture, call.n_ranks + 1)


def p2p_step_bytes(call: Call, system: System) -> int:
    """Return the slot of a connection for messages between boards."""
    steps = P2P_STEPS.get(system.architecture, ())
    return next((size for ranks, size in steps if call.n_ranks >= ranks), P2P_STEP_DEFAULT)


def backend_of(call: Call, system: System, library: Library) -> tuple[str, str, int, int, str] | None:
    """Return (name, algorithm of collsim, protocol, channels, why) of what runs before ring and tree, if anything."""
    channels, nodes = channels_of(call, system, library), call.n_nodes
    limit = next((size for least, size in HIERARCHICAL.get(call.op, ()) if nodes >= least), 0)
    if library.version >= HIERARCHICAL_SINCE and call.ranks_per_node > 1 and call.size_bytes <= limit:
        why = f"on {nodes} boards RCCL goes along the rails and then inside the boards up to {limit // MIB} MiB"
        return "hierarchical", "hierarchical", SIMPLE, channels, why
    limit = _direct_bytes(call, system)
    if library.version >= DIRECT_SINCE and call.n_ranks % 8 == 0 and call.size_bytes <= limit:
        why = f"RCCL sends to all peers up to {limit // MIB} MiB on {nodes} boards"
        return "direct", "all_pairs", SIMPLE, channels, why
    return None


def _direct_bytes(call: Call, system: System) -> int:
    """Return up to which size a gather or scatter sends to all peers directly."""
    if call.op == "reduce_scatter":
        return DIRECT_SCATTER_BYTES if relays(call, system) else 0
    if call.op != "all_gather":
        return 0
    if system.architecture == "gfx950":
        return DIRECT_PER_NODE_BYTES * call.n_nodes if call.n_nodes < DIRECT_MOST_NODES else 0
    return DIRECT_GATHER_BYTES
