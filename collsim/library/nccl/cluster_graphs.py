"""Graphs that the search finds over several domains (NCCL src/graph/search.cc), counted from links and adapters.

A ring reserves its rate on the adapter by which it enters a domain and on the one by which it leaves; inside, all GPUs
but one send on. The search keeps the most channels times rate, up to what a GPU can send, then doubles slow channels.
"""

from __future__ import annotations

import math
from dataclasses import replace

from collsim.core.errors import Fault, UnsupportedError
from collsim.library.calls import Call
from collsim.library.system import Graph, System

__all__ = [
    "ACROSS_DOUBT",
    "MAX_COLLNET_HEADS",
    "MAX_HEADS",
    "MAX_RINGS",
    "collnet_graph",
    "doubled",
    "merged",
    "nvls_across",
    "ring_across",
    "tree_across",
]

RATES_GBPS: dict[str, tuple[float, ...]] = {
    "volta": (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    "ampere": (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    "hopper": (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    "blackwell": (
        96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12,
    ),
}  # fmt: skip
"""Rates through the network that the search tries (NCCL src/graph/search.cc)."""

PCIE_GBPS = {"volta": 12.0, "ampere": 24.0, "hopper": 48.0, "blackwell": 48.0}
"""Sixteen lanes of the PCIe generation of the platform by the library's reckoning (NCCL src/graph/topo.cc)."""
PCIE_GEN6_GBPS, PCIE_GEN6_FROM_GBPS = 96.0, 100.0
"""Adapters of 800 Gb/s come with generation 6."""
PORTS = 2
"""NCCL_IB_MAX_DEVS_PER_NIC (NCCL src/transport/net_ib.cc)."""
PORTS_OVER_LANES = 1.05
"""Cards of 200 and 400 Gb/s have sixteen lanes that the library counts as 24 and 48 GB/s."""
MAX_RINGS = 32
"""Half of MAXCHANNELS (NCCL src/init.cc)."""
MAX_HEADS = 32
"""NCCL_MAX_NVLS_ARITY."""
DOUBLED_FROM_GBPS = 25
DOUBLED_UNLESS_GBPS = 50
"""From compute capability 90 on, more than four channels below this rate are not doubled."""
MANY_CHANNELS = 4
MAX_COLLNET_HEADS = 8
ACROSS_DOUBT = "channels over several domains are counted from links and adapters; no debug line was compared"


def merged(system: System) -> System:
    """Return the system with the ports of a card as one adapter, as NCCL takes them (src/transport/net_ib.cc).

    Which adapters of a GPU are ports of one card no file says: those that the lanes of a card carry together.

    >>> a100 = System("ampere", True, 20.0, links_per_gpu=12, nics_per_gpu=2, nic_GBps=25.0)
    >>> merged(a100).nics_per_gpu, merged(replace(a100, nic_GBps=50.0)).nics_per_gpu
    (1.0, 2)
    """
    others = tuple(map(merged, system.others))
    rate = system.nic_GBps / system.nics_per_gpu
    together = system.nics_per_gpu % PORTS == 0 and PORTS * rate <= PORTS_OVER_LANES * _lanes(system, PORTS * rate)
    return replace(system, others=others, nics_per_gpu=system.nics_per_gpu / PORTS if together else system.nics_per_gpu)


def _lanes(system: System, rate_GBps: float) -> float:
    """Return the bandwidth that the lanes of a card with adapters of *rate_GBps* carry."""
    if system.architecture == "blackwell" and rate_GBps >= PCIE_GEN6_FROM_GBPS:
        return PCIE_GEN6_GBPS
    return PCIE_GBPS[system.architecture]


def _adapters(call: Call, system: System) -> tuple[int, float]:
    """Return the adapters of the GPUs of a domain that take part, and what the search may reserve on each."""
    if system.nic_GBps <= 0:
        what = "the network adapters of a GPU are not known"
        raise UnsupportedError(Fault(what, "nodes", "give nic.bandwidth, the channels of a log, or an algorithm"))
    rate = system.nic_GBps / system.nics_per_gpu
    return math.ceil(call.ranks_per_node * system.nics_per_gpu), min(rate, _lanes(system, rate))


def ring_across(call: Call, system: System) -> Graph:
    """Return the rings.

    >>> h100 = System("hopper", True, 20.6, links_per_gpu=18, nic_GBps=50.0)
    >>> ring_across(Call("all_reduce", 80, 2**20, n_nodes=10), h100)
    Graph(channels=8, intra_GBps=48.0, inter_GBps=48.0, same_order=False, one_parent=False)
    >>> ring_across(Call("all_reduce", 20, 2**20, n_nodes=10), h100)
    Graph(channels=4, intra_GBps=24.0, inter_GBps=24.0, same_order=False, one_parent=False)
    """
    adapters, lane = _adapters(call, system)
    total = _total(call, system)
    best, rate = 0, 0.0
    for tried in RATES_GBPS[system.architecture]:
        if best and best * rate >= total:
            break
        channels = min(adapters * int(lane / tried + 1e-9), _inside(call, total, tried), MAX_RINGS)
        if channels * tried > best * rate:
            best, rate = channels, float(tried)
    best, rate = doubled(system, best, rate)
    return Graph(best, rate, rate, same_order=call.ranks_per_node == 1)


def doubled(system: System, channels: int, rate_GBps: float) -> tuple[int, float]:
    """Return twice as many channels at half the rate where the search doubles them."""
    slow = system.architecture in ("hopper", "blackwell") and rate_GBps < DOUBLED_UNLESS_GBPS
    if rate_GBps < DOUBLED_FROM_GBPS or (slow and channels > MANY_CHANNELS):
        return channels, rate_GBps
    more = min(2 * channels, MAX_RINGS)
    return more, rate_GBps * channels / more


def tree_across(call: Call, system: System, ring: Graph) -> Graph:
    """Return the trees: as many as rings, inside a domain up to twice as fast as through the network."""
    total, inside = _total(call, system), ring.intra_GBps
    for tried in RATES_GBPS[system.architecture]:
        if ring.inter_GBps < tried <= 2 * ring.inter_GBps and _inside(call, total, tried) >= ring.channels:
            inside = max(inside, float(tried))
    return Graph(ring.channels, inside, ring.inter_GBps, ring.same_order, one_parent=_one_parent(call, system))


def _one_parent(call: Call, system: System) -> bool:
    """Return True if a GPU has both ways of a tree through the network (NCCL src/graph/search.cc).

    So with one GPU a domain, and from Hopper on where no second GPU is as near to an adapter: the search tries that
    before it takes a longer way to the adapter. Whose adapters are near to several no file says but where they share.
    """
    alone = system.nics_per_gpu >= 1 and system.architecture in ("hopper", "blackwell")
    return call.ranks_per_node == 1 or alone


def nvls_across(call: Call, system: System) -> Graph:
    """Return the heads, one per adapter and GPU; a GPU carries every head once and its own twice.

    >>> h100 = System("hopper", True, 20.6, links_per_gpu=18, nvls=True, nic_GBps=50.0)
    >>> nvls_across(Call("all_reduce", 16, 2**20, n_nodes=2), h100)
    Graph(channels=8, intra_GBps=40.0, inter_GBps=48.0, same_order=True, one_parent=False)
    """
    lane, heads = _adapters(call, system)[1], min(call.ranks_per_node, MAX_HEADS)
    rates = RATES_GBPS[system.architecture]
    inside = next((rate for rate in rates if (heads + 1) * rate <= _total(call, system) and rate <= lane), 0.0)
    outside = next((rate for rate in rates if rate <= min(lane, 2 * inside)), inside)
    return Graph(heads if inside else 0, float(inside), float(outside))


def collnet_graph(call: Call, system: System) -> Graph:
    """Return the heads of CollNet direct: a GPU sends a slice to every head."""
    lane, heads = _adapters(call, system)[1], min(call.ranks_per_node, MAX_COLLNET_HEADS)
    rates, total = RATES_GBPS[system.architecture], _total(call, system)
    rate = next((rate for rate in rates if rate <= lane and max(heads - 1, 1) * rate <= total), 0.0)
    return Graph(heads, float(rate), float(rate))


def _total(call: Call, system: System) -> float:
    """Return the GB/s that a GPU can send inside the domain; with one GPU there only the network counts: inf."""
    return system.total_GBps(call.ranks_per_node) if call.ranks_per_node > 1 else float("inf")


def _inside(call: Call, total_GBps: float, rate_GBps: float) -> int:
    """Return the number of channels that links carry: the last GPU of each sends into the network, not to a GPU."""
    g = call.ranks_per_node
    return MAX_RINGS if g == 1 else int(total_GBps * g / (g - 1) / rate_GBps + 1e-9)
