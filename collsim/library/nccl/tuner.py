"""NCCL's cost model: latency + size / bandwidth for every algorithm and protocol (NCCL src/graph/tuning.cc).

It selects; it does not predict. Microseconds and decimal GB/s inside, as in the source; SI in the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

from collsim.library.calls import LL, LL128, SIMPLE, Call, Candidate
from collsim.library.environment import ALGORITHMS, Environment
from collsim.library.library import PROTOCOLS
from collsim.library.nccl.graphs import MAX_HEADS
from collsim.library.nccl.plugin_tuner import plugin_latency_us
from collsim.library.nccl.versions import ARCHITECTURES, NcclConstants, Row
from collsim.library.system import CAPABILITIES, Graph, System

__all__ = ["TREE_CORRECTION", "Setting", "bandwidth_GBps", "candidates", "latency_us", "log2_floor"]

TREE_CORRECTION = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""Factor on the bandwidth of the tree per protocol and power of two, from 64 B on."""

BY_OP = {
    "all_reduce": ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"),
    "all_gather": ("ring", "collnet_direct", "nvls", "pat"),
    "reduce_scatter": ("ring", "collnet_direct", "nvls", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
}
"""Algorithms that exist for an operation."""

ALGORITHM_SINCE = {"tree": (2, 4), "nvls": (2, 17), "nvls_tree": (2, 18), "pat": (2, 23)}
"""First version with an algorithm; those that are absent are older (NCCL release notes)."""
GATHERED_SINCE = (2, 20)
"""NVLS and CollNet for all-gather and reduce-scatter: 2.18.3 has the ring alone, 2.20.3 both (src/graph/tuning.cc)."""
NVLS_TREE_RATIO_SINCE = (2, 20)
"""Trees of NVLS by the rates inside and outside, with the ratio of NVLS until that went: so in 2.20.3, 2.21.5, 2.22.3
and 2.26; 2.18.3 counts the links inside alone (src/graph/tuning.cc)."""
LL128_SINCE = (2, 5)
"""NCCL release notes."""
LL128_MIXED_SINCE = (2, 28)
"""Until then LL128 wants GPUs of one compute capability, later Hopper or newer will do (src/graph/tuning.cc). The
version is assumed: older sources have only the first rule, newer ones the second, and when it came is not known."""

LL128_NEAR = ("", "PIX", "PXB")
"""Ways to an adapter that keep the lines of LL128 whole without a look at them; one that is not told counts as near."""
LL128_C2C_SINCE = (2, 27)
"""From Hopper on adapters of a processor beside the GPU (P2C) are as good: in the newer sources, not in 2.23
(src/graph/tuning.cc). The version is assumed: that of the paths P2C themselves."""
C2C_VENDOR = "arm"
"""Grace is the one processor with C2C."""

ONLY_SIMPLE = ("collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
LL128_RING, LL128_TREE, LL128_TREE_ONE_NODE = 0.92, 120 / 128, 7 / 9
LL_RING = 0.5
LL_RING_UNTIL, LL_RING_BEFORE, LL_GATHERED_BEFORE, LL128_ALONE_BEFORE = (2, 20), 1 / 4, 1 / 3, 0.7
"""Last version that gives LL on rings a quarter of the bus, inside a domain a third unless it adds, and LL128 on rings
of one GPU a domain less than others (src/graph/tuning.cc of 2.18 and 2.20); later a half, and no less."""
BETWEEN_AND_BACK_UNTIL = (2, 22)
"""Last version in which a ring all-reduce counts twice as many hops between domains as there are domains, two too many,
and in which one GPU a domain does not make the hops of a ring as dear as a tree's (src/graph/tuning.cc)."""
PLUGIN_LATENCY_SINCE, FLUSHED = (2, 18), 2
"""The oldest source that was read, which has it as newer ones do; and how often it counts with Simple."""
ONE_PARENT_SHARE = 0.85
"""Of trees whose way up and way down meet at one GPU (src/graph/tuning.cc)."""
TREE_SHARE, TREE_LL_SHARE = 0.92, 1 / 3.8
RING_PLATEAU = {"volta": 1.9}
RING_PLATEAU_DEFAULT = 1.4
"""Several domains: factor on the latency of a large ring all-reduce."""
NET_OVERHEAD_US = {"amd": 2.0}
NET_OVERHEAD_DEFAULT_US = 1.0
PAT_LINEAR_US, PAT_LOG_SHARE = 2.8, 1 / 3.5
ARITY_US = 0.4
PCIE_US: dict[str, Row] = {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)}
"""Latency of a hop over PCIe (NCCL src/graph/tuning.cc)."""
COLLNET_HOPPER = 0.85
FP8_RING_RANKS, FP8_RING_PENALTY = 8, 1024
"""Above so many ranks a ring that adds fp8 is made unattractive, for the sake of accuracy."""

NVLS_SUM_ONLY = ("float", "double")
NVLS_SUM_MIN_MAX = ("int32", "uint32", "int64", "uint64", "half", "bfloat16")
FP8 = ("f8e4m3", "f8e5m2")
SHARP_TYPES = ("int8", "uint8", *NVLS_SUM_MIN_MAX, *NVLS_SUM_ONLY)
SHARP_REDOPS = ("sum", "avg", "min", "max")
"""NCCL asks for an average as a sum (src/enqueue.cc)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Inputs of the cost model besides the size."""

    call: Call
    system: System
    constants: NcclConstants
    environment: Environment
    graphs: dict[str, Graph]
    version: tuple[int, int]

    @property
    def row(self) -> int:
        """Row of the tables."""
        return ARCHITECTURES.index(self.system.architecture)

    @property
    def column(self) -> int:
        """Column of the tables: one, two or more domains."""
        return min(self.call.n_nodes, 3) - 1

    @property
    def steps(self) -> int:
        """Steps of a ring."""
        n = self.call.n_ranks
        return {"all_reduce": 2 * (n - 1), "all_gather": n - 1, "reduce_scatter": n - 1}.get(self.call.op, n)


def log2_floor(value: float) -> int:
    """Return floor(log2(value)) of a value of at least 1; 0 below, as NCCL's log2i."""
    return max(int(value).bit_length() - 1, 0)


def candidates(setting: Setting, communicator_channels: int) -> tuple[Candidate, ...]:
    """Return the algorithms and protocols for the call, fastest first; of equals the library's order decides."""
    call = setting.call
    found: list[Candidate] = []
    for algo in ALGORITHMS:
        if algo not in BY_OP[call.op] or not _exists(setting, algo):
            continue
        for proto in range(3):
            if not _has_protocol(setting, algo, proto):
                continue
            bandwidth = bandwidth_GBps(setting, algo, proto) * _correction(setting, algo, proto)
            if bandwidth <= 0:
                continue
            latency = latency_us(setting, algo, proto) * _plateau(setting, algo, proto, communicator_channels)
            time_us = (latency + call.size_bytes / (1000 * bandwidth)) * _fp8_penalty(call, algo)
            found.append(Candidate(algo, PROTOCOLS[proto], latency * 1e-6, bandwidth * 1e9, time_us * 1e-6))
    return tuple(sorted(found, key=lambda candidate: candidate.predicted_s))


def _exists(setting: Setting, algo: str) -> bool:
    """Return True if *algo* can run here and the environment lets it."""
    call, environment = setting.call, setting.environment
    permitted = algo in setting.graphs and environment.permits("NCCL_ALGO", call.op, algo)
    if not permitted or setting.version < _since(call, algo):
        return False
    if algo.startswith("nvls") and not (environment.number("NCCL_NVLS_ENABLE", 2) and _nvls_adds(setting)):
        return False
    enabled = environment.number("NCCL_COLLNET_ENABLE", 0) == 1 and setting.system.sharp
    collnet = enabled and call.n_nodes > 1 and _sharp_adds(call)
    if algo == "nvls" and call.n_nodes == 1:
        return call.op == "all_reduce" or call.n_ranks <= MAX_HEADS
    if algo == "pat":
        wanted = environment.number("NCCL_PAT_ENABLE", 2)
        if call.op == "reduce_scatter" and call.redop == "avg":
            return False  # NCCL src/enqueue.cc: PAT cannot scale on the way
        return wanted == 1 or (wanted == 2 and call.n_nodes == call.n_ranks)
    needs = {"collnet_direct": collnet, "collnet_chain": collnet, "nvls": collnet, "nvls_tree": call.n_nodes > 1}
    return needs.get(algo, True)


def _since(call: Call, algo: str) -> tuple[int, int]:
    """Return the first version with *algo* for the call."""
    gathered = GATHERED_SINCE if algo != "ring" and call.operation.blocked else (0, 0)
    return max(ALGORITHM_SINCE.get(algo, (0, 0)), gathered)


def _nvls_adds(setting: Setting) -> bool:
    """Return True if the switches can do the arithmetic (NCCL src/include/transport.h, ncclNvlsSupported)."""
    call = setting.call
    if not call.operation.reduces:
        return True
    if call.dtype in NVLS_SUM_ONLY:
        return call.redop == "sum"
    blackwell_fp8 = call.dtype in FP8 and setting.system.architecture == "blackwell"
    return (call.dtype in NVLS_SUM_MIN_MAX or blackwell_fp8) and call.redop in ("sum", "min", "max")


def _sharp_adds(call: Call) -> bool:
    """Return True if the plug-in can do the arithmetic (nccl-rdma-sharp-plugins, src/sharp_plugin.c)."""
    return not call.operation.reduces or (call.dtype in SHARP_TYPES and call.redop in SHARP_REDOPS)


def _has_protocol(setting: Setting, algo: str, proto: int) -> bool:
    if algo in ONLY_SIMPLE and proto != SIMPLE:
        return False
    hopper = CAPABILITIES.get(setting.system.architecture, 0) >= CAPABILITIES["hopper"]
    if proto == LL128 and not setting.system.alike and not (hopper and setting.version >= LL128_MIXED_SINCE):
        return False
    if proto == LL128 and (setting.version < LL128_SINCE or setting.system.pcie_GBps):
        return False  # its lines of 128 bytes stay whole over NVLink, not over PCIe
    if proto == LL128 and not _keeps_lines(setting):
        return False
    return setting.environment.permits("NCCL_PROTO", setting.call.op, PROTOCOLS[proto])


def _keeps_lines(setting: Setting) -> bool:
    """Return True if LL128 may cross the network: adapters are near GPUs, or the user asks for it (NCCL tuning.cc)."""
    call, system = setting.call, setting.system
    if call.n_nodes == 1 or setting.environment.names("NCCL_PROTO", call.op) is not None:
        return True
    c2c = system.cpu_vendor == C2C_VENDOR and CAPABILITIES.get(system.architecture, 0) >= CAPABILITIES["hopper"]
    return (c2c and setting.version >= LL128_C2C_SINCE) or all(
        each.nic_distance in LL128_NEAR for each in (system, *system.others)
    )


def bandwidth_GBps(setting: Setting, algo: str, proto: int) -> float:
    """Return the algorithm bandwidth: size over time without latency."""
    call, graph = setting.call, setting.graphs[algo]
    if algo in ("nvls", "nvls_tree"):
        return _nvls_GBps(setting, algo)
    rate = graph.intra_GBps if call.n_nodes <= 2 or algo.startswith("collnet") else graph.inter_GBps
    bus = graph.channels * rate
    if algo == "ring":
        bus = _ring_bus(setting, bus, proto)
        return bus * call.n_ranks / setting.steps
    if algo == "tree":
        return _tree_bus(setting, bus, proto) / 2
    if algo == "pat":
        return bus * setting.constants.pat_ratio
    if algo == "collnet_direct":
        return _collnet_direct_GBps(setting, bus)
    return bus / 2


def _ring_bus(setting: Setting, bus: float, proto: int) -> float:
    constants, column = setting.constants, setting.column
    if proto == LL:
        return min(constants.ll_max[_ll_row(setting)][column], _ll_share(setting) * bus)
    if proto == LL128:
        alone = setting.version <= LL_RING_UNTIL and setting.call.ranks_per_node == 1
        share = LL128_ALONE_BEFORE if alone else LL128_RING
        return min(share * bus, setting.graphs["ring"].channels * constants.ring_ll128[setting.row][column])
    return bus


def _ll_share(setting: Setting) -> float:
    """Return what LL on a ring has of the bus."""
    if setting.version > LL_RING_UNTIL:
        return LL_RING
    quarter = setting.call.n_nodes > 1 or setting.call.op in ("all_reduce", "reduce")
    return LL_RING_BEFORE if quarter else LL_GATHERED_BEFORE


def _tree_bus(setting: Setting, bus: float, proto: int) -> float:
    constants, column, row = setting.constants, setting.column, setting.row
    channels = setting.graphs["tree"].channels
    bus = min(TREE_SHARE * bus, channels * constants.tree[row][column])
    if proto == LL:
        bus = min(bus * TREE_LL_SHARE, constants.ll_max[_ll_row(setting)][column])
    if proto == LL128:
        share = LL128_TREE_ONE_NODE if setting.call.n_nodes == 1 else LL128_TREE
        bus = min(bus * share, channels * constants.tree_ll128[row][column])
    return bus * (ONE_PARENT_SHARE if setting.graphs["tree"].one_parent else 1.0)


def _ll_row(setting: Setting) -> int:
    """Return the row for LL: the GPU decides inside a domain, the CPU between domains."""
    if setting.call.n_nodes == 1:
        return setting.row
    return 1 if setting.system.cpu_vendor in ("amd", "mixed") else 0


def _nvls_GBps(setting: Setting, algo: str) -> float:
    """Return the bandwidth of NVLS; the heads split the work."""
    call, graph, constants = setting.call, setting.graphs[algo], setting.constants
    heads = graph.channels
    if heads < 2:
        return 0.0
    per_node = call.ranks_per_node
    if constants.nvls_ratio is not None:
        if algo == "nvls_tree" and setting.version < NVLS_TREE_RATIO_SINCE:
            return heads * graph.intra_GBps * 0.70 * call.n_nodes / (2 * (call.n_nodes - 1))
        if algo == "nvls_tree":
            outside = graph.inter_GBps if call.n_nodes <= 2 else graph.inter_GBps / 2
            return heads * min(graph.intra_GBps, outside) * constants.nvls_ratio
        return heads * graph.intra_GBps * constants.nvls_ratio
    inside = graph.intra_GBps * constants.nvls_efficiency[setting.row] * (heads - 1) / heads
    inside *= 2 if call.op == "all_reduce" else (per_node - 1) / per_node
    outside = graph.inter_GBps * (2 if algo == "nvls_tree" and call.n_nodes <= 2 else 1)
    rate = min(inside, outside)
    if algo == "nvls_tree":
        rate = min(rate, constants.nvls_tree[setting.row][setting.column])
    ratio = call.n_ranks / setting.steps if call.op == "all_reduce" else 1.0
    return heads * rate * ratio


def _collnet_direct_GBps(setting: Setting, bus: float) -> float:
    call, graph = setting.call, setting.graphs["collnet_direct"]
    if call.op != "all_reduce":
        return call.ranks_per_node * min(graph.intra_GBps, 0.9 * graph.inter_GBps)
    factor = call.ranks_per_node / graph.channels
    factor -= (factor - 1) / 2
    return bus / factor / 2 * (COLLNET_HOPPER if setting.row >= 2 else 1.0)


def _correction(setting: Setting, algo: str, proto: int) -> float:
    """Return the factor on the bandwidth for the size of the call."""
    place = log2_floor(setting.call.size_bytes // 64)
    if algo != "tree" or place >= len(TREE_CORRECTION[proto]):
        return 1.0
    return TREE_CORRECTION[proto][place]


def _plateau(setting: Setting, algo: str, proto: int, channels: int) -> float:
    """Return the factor on the latency of a ring over several domains."""
    call = setting.call
    if algo != "ring" or proto != SIMPLE or call.n_nodes == 1 or call.op != "all_reduce":
        return 1.0
    if call.size_bytes // (channels * call.n_ranks) < 64:
        return 1.0
    return RING_PLATEAU.get(setting.system.architecture, RING_PLATEAU_DEFAULT)


def _fp8_penalty(call: Call, algo: str) -> int:
    worse = algo == "ring" and call.dtype in FP8 and call.operation.reduces and call.n_ranks > FP8_RING_RANKS
    return FP8_RING_PENALTY if worse else 1


def latency_us(setting: Setting, algo: str, proto: int) -> float:
    """Return the latency of an algorithm and protocol."""
    call, constants = setting.call, setting.constants
    nodes, per_node = call.n_nodes, call.ranks_per_node
    base = constants.base_us[algo][proto]
    inside = _inside_us(setting, algo, proto)
    as_tree = per_node == 1 and setting.version > BETWEEN_AND_BACK_UNTIL
    outside = constants.net_us["tree" if as_tree else algo][proto] + _told_us(setting, proto)
    if algo == "ring":
        return base + _ring_us(setting, proto, inside, outside)
    doublings, locals_ = log2_floor(nodes), per_node - 1
    hops = {
        "tree": 2 * (locals_ * inside + doublings * outside),
        "collnet_direct": 2 * (min(1, locals_) * inside + locals_ * ARITY_US) + outside,
        "collnet_chain": 2 * locals_ * inside + outside,
        "nvls": inside + (outside if nodes > 1 else 0.0),
        "nvls_tree": inside + 2 * doublings * outside,
        "pat": doublings * outside * PAT_LOG_SHARE + call.n_ranks * PAT_LINEAR_US,
    }
    return base + hops[algo]


def _told_us(setting: Setting, proto: int) -> float:
    """Return what the network's plug-in says of its latency, with Simple also for the flush."""
    told = plugin_latency_us(setting.system.instance) if setting.version >= PLUGIN_LATENCY_SINCE else 0.0
    return told * (FLUSHED if proto == SIMPLE else 1)


def _inside_us(setting: Setting, algo: str, proto: int) -> float:
    """Return the latency of a hop inside a domain."""
    if setting.system.pcie_GBps:
        return PCIE_US["ring" if algo == "ring" else "tree"][proto]
    return setting.constants.nvlink_us[algo][proto]


def net_overhead_us(system: System, environment: Environment, proto: int) -> float:
    """Return what a step of a ring over nodes takes at least by the library's reckoning: posting it by the host."""
    given = environment.number("NCCL_NET_OVERHEAD", -2)
    default = NET_OVERHEAD_US.get(system.cpu_vendor, NET_OVERHEAD_DEFAULT_US)
    return (default if given == -2 else given * 1e-3) * (3 if proto == SIMPLE else 1)


def _ring_us(setting: Setting, proto: int, inside: float, outside: float) -> float:
    call, constants = setting.call, setting.constants
    nodes = call.n_nodes
    hops: dict[str, Row] = constants.nvlink_us if nodes == 1 else constants.net_us
    hops = PCIE_US if nodes == 1 and setting.system.pcie_GBps else hops
    if call.op in ("broadcast", "reduce"):
        if setting.graphs["ring"].same_order:
            return hops["ring"][proto]
        return call.n_ranks * hops["tree" if proto == SIMPLE else "ring"][proto]
    overhead, between = 0.0, 0
    if nodes > 1:
        overhead = net_overhead_us(setting.system, setting.environment, proto)
        more = setting.version <= BETWEEN_AND_BACK_UNTIL
        between = 2 * (nodes if more else nodes - 1) if call.op == "all_reduce" else nodes - 1
    return (setting.steps - between) * max(inside, overhead) + between * outside
