"""The system as the library sees it: architecture, links by its own constants, switches that reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.core.errors import Fault, UnsupportedError
from collsim.topology.peers import sockets

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["CAPABILITIES", "Graph", "System", "instance_of", "ring_closes", "system_of"]

MODELS = (
    ("V100", "volta"),
    ("A100", "ampere"),
    ("A800", "ampere"),
    ("GH200", "hopper"),
    ("H100", "hopper"),
    ("H200", "hopper"),
    ("H800", "hopper"),
    ("H20", "hopper"),
    ("L40", "ampere"),
    ("RTX 40", "ampere"),
    ("RTX PRO", "blackwell"),
    ("RTX 50", "blackwell"),
    ("B100", "blackwell"),
    ("B200", "blackwell"),
    ("B300", "blackwell"),
    ("Rubin", "blackwell"),
    ("MI250", "gfx90a"),
    ("MI210", "gfx90a"),
    ("MI300", "gfx942"),
    ("MI308", "gfx942"),
    ("MI325", "gfx942"),
    ("MI350", "gfx950"),
    ("MI355", "gfx950"),
)
"""Part of ``gpu.model`` to architecture; the first match counts (GB200 and GB300 contain B200 and B300). Cards of Ada,
compute capability 89, have the rates and constants of Ampere (NCCL src/graph/search.cc and tuning.cc)."""

LINK_GBPS = {
    "volta": 20.0,
    "ampere": 20.0,
    "hopper": 20.6,
    "blackwell": 40.1,
    "gfx90a": 36.0,
    "gfx942": 48.0,
    "gfx950": 48.0,
}
"""GB/s of one link per direction by the library's reckoning (NCCL and RCCL src/graph/topo.h)."""

CAPABILITIES = {"volta": 70, "ampere": 80, "hopper": 90, "blackwell": 100}
"""Compute capability, times ten; where GPUs differ NCCL goes by the least (src/graph/tuning.cc, minCompCap)."""

PCIE_GBPS = ((20e9, 12.0), (40e9, 24.0), (80e9, 48.0))
"""GB/s of a PCIe port by the library's reckoning, by what its line rate does not exceed: sixteen lanes of generation 3,
4 and 5 (NCCL src/graph/topo.cc)."""
PCIE6_GBPS = 96.0
PCIE_OF_ADA_GBPS = 24.0
"""Cards that are not named are taken for Ada with ports up to PCIe 4, for Blackwell beyond."""
SOCKET_GBPS = (("EPYC 7", 16.0), ("EPYC 9", 16.0), ("Xeon", 22.0))
"""GB/s between two sockets by part of ``cpu.model`` (AMD and Sapphire Rapids in NCCL src/graph/topo.h until 2.29)."""
SOCKET_DEFAULT_GBPS = 16.0

CPU_VENDORS = (("EPYC", "amd"), ("AMD", "amd"), ("Xeon", "intel"), ("Grace", "arm"))
"""Vendor by part of ``cpu.model``; NCCL reads it from the host (src/graph/topo.cc, ncclTopoCpuType)."""

ONE_ADAPTER = "EFA"
"""Adapters of this model at one GPU are shown to the library as one (aws-ofi-nccl, which groups them)."""

INSTANCES = {
    "efa": (
        ("GB", ""),
        ("GH", ""),
        ("H100", "p5"),
        ("H200", "p5en"),
        ("B200", "p6-b200"),
        ("B300", "p6-b300"),
        ("A100", "p4d"),
    ),
    "tcpx": (("H100", "a3-high"),),
    "tcpxo": (("H100", "a3-mega"),),
}
"""Network of a cloud to parts of ``gpu.model`` and the kind of instance with such GPUs, for which its plug-in or its
documentation sets variables; the first match counts. AWS's plug-in has choices of its own, too, but for p4d
(aws-ofi-nccl src/platform-aws.cpp, src/tuner). H200 are also in p5e, whose choices are those of p5."""

GUESSED_MODELS = ("Rubin",)
"""Models that no released library has constants for."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Channels that the library's search found for an algorithm, as in its debug lines.

    Attributes
    ----------
    channels : int
    intra_GBps, inter_GBps : float
        Reserved per channel inside a domain and through the network.
    same_order : bool
        Whether all channels visit the ranks in one order.
    one_parent : bool
        Of trees over several domains: whether one GPU has both the way up and the way down of a domain.
    """

    channels: int
    intra_GBps: float
    inter_GBps: float = 0.0
    same_order: bool = True
    one_parent: bool = False


@dataclass(frozen=True, slots=True)
class System:
    """A scale-up domain as the library sees it.

    Attributes
    ----------
    architecture : str
        ``volta``, ``ampere``, ``hopper``, ``blackwell``, ``gfx90a``, ``gfx942`` or ``gfx950``.
    switched : bool
        GPUs reach each other through switches, and all links of a GPU count as one.
    link_GBps : float
        One link and direction, by the library's own constant.
    links : tuple of tuple of int
        Links between every two GPUs if there is no switch.
    links_per_gpu : int
        Links of one GPU into the switches; 0 without.
    nvls : bool
        The switches multicast and reduce, and the driver lets NCCL use it.
    sharp : bool
        The switches between domains could add, if the user turns that on; matters between domains only.
    cpu_vendor : str
        ``intel``, ``amd``, ``arm``, ``mixed`` or ``unknown``; matters between domains only.
    nics_per_gpu : float
        Below 1 where GPUs share an adapter.
    nic_GBps : float
        Network adapters of one GPU together; matters between domains only.
    nic_distance : str
        Way over PCIe from a GPU to its adapter, as nvidia-smi names it; empty: not told. Matters between domains only.
    pcie_GBps : float
        The way between two GPUs that have no links but PCIe, by the library's reckoning; 0: they have.
    graphs : tuple
        (algorithm, Graph) pairs that are known, from a log for instance; the search is skipped for these.
    doubts : tuple of str
    instance : str
        Kind of instance of a cloud that has variables, or a tuner, of its own; empty: NCCL is as it comes.
    others : tuple of System
        The systems of other nodes, where nodes differ: every rank takes the fewest channels and the lowest rates that
        any found (NCCL src/init.cc).
    """

    architecture: str
    switched: bool
    link_GBps: float
    links: tuple[tuple[int, ...], ...] = ()
    links_per_gpu: int = 0
    nvls: bool = False
    sharp: bool = True
    cpu_vendor: str = "unknown"
    nics_per_gpu: float = 1
    nic_GBps: float = 0.0
    nic_distance: str = ""
    pcie_GBps: float = 0.0
    graphs: tuple[tuple[str, Graph], ...] = ()
    doubts: tuple[str, ...] = ()
    instance: str = ""
    others: tuple[System, ...] = ()

    @property
    def alike(self) -> bool:
        """True if all nodes have GPUs of one architecture."""
        return all(other.architecture == self.architecture for other in self.others)

    @property
    def is_amd(self) -> bool:
        """True if the library is RCCL."""
        return self.architecture.startswith("gfx")

    @property
    def matches_template(self) -> bool:
        """True if the wiring is as in RCCL's templates of boards: a switch, or links between any two GPUs alike."""
        counts = {count for a, row in enumerate(self.links) for b, count in enumerate(row) if a != b}
        return len(counts) <= 1 and all(other.matches_template for other in self.others)

    def total_GBps(self, n_ranks: int) -> float:
        """Return the GB/s that the busiest of the first *n_ranks* GPUs can send."""
        if self.pcie_GBps:
            return self.pcie_GBps
        if self.switched:
            return self.links_per_gpu * self.link_GBps
        return max(sum(row[:n_ranks]) for row in self.links[:n_ranks]) * self.link_GBps

    def pair_GBps(self, n_ranks: int) -> tuple[float, float]:
        """Return the slowest and the fastest direct path between two of the first *n_ranks* GPUs."""
        if self.switched or self.pcie_GBps:
            return (self.total_GBps(n_ranks),) * 2
        counts = [self.links[a][b] for a in range(n_ranks) for b in range(n_ranks) if a != b]
        return min(counts) * self.link_GBps, max(counts) * self.link_GBps

    def rings_at(self, channel_GBps: float, n_ranks: int) -> int:
        """Return the number of rings of *channel_GBps* that the links of every GPU have room for."""
        if self.switched or self.pcie_GBps:
            return int(self.total_GBps(n_ranks) / channel_GBps)
        per_link = [[int(count * self.link_GBps / channel_GBps) for count in row[:n_ranks]] for row in self.links]
        return min(sum(row) for row in per_link[:n_ranks])


def system_of(
    topology: Topology,
    ranks: Sequence[int] | None = None,
    *,
    nvls: bool | None = None,
    sharp: bool | None = None,
    cpu_vendor: str | None = None,
) -> System:
    """Return the scale-up domains as the library sees them: as one, with those of other kinds if they differ.

    It reads the labels ``gpu.model`` (architecture) and ``cpu.model`` (vendor), ``in_network_reduction`` (NVLS), the
    numbers of links in the wiring, and the facts of ``nic``; rates of links are the library's own constants, not those
    of the topology.

    Parameters
    ----------
    topology : Topology
    ranks : sequence of int, optional
        The GPUs that take part, in rank order; all of them by default.
    nvls : bool, optional
        Overrides whether the switches reduce: virtual machines often hide it.
    sharp : bool, optional
        Overrides whether the network could: nothing is known of it on one domain, and some failures take it away.
    cpu_vendor : str, optional
        Overrides that of ``cpu.model``.

    Raises
    ------
    UnsupportedError
        The label names no GPU whose library is known, or the GPUs differ more than any library allows, or they have
        links other than PCIe, but none between them.
    """
    everyone = range(topology.n_gpus) if ranks is None else ranks
    kinds = topology.by_kind(everyone)
    systems = [_of_kind(topology, kind, gpus) for kind, gpus in kinds]
    has_sharp = topology.cluster is None or bool(topology.cluster.spec.tree_per)
    return replace(
        _together(systems, topology.name),
        nvls=all(system.nvls for system in systems) if nvls is None else nvls,
        sharp=has_sharp if sharp is None else sharp,
        cpu_vendor=_cpu_vendor(topology, everyone) if cpu_vendor is None else cpu_vendor,
        instance=instance_of(topology) if len(kinds) == 1 else "",
    )


def instance_of(topology: Topology) -> str:
    """Return the kind of instance of a cloud that the nodes of a cluster are; empty if they are none."""
    model = topology.labels.get("gpu.model", "")
    kinds = () if topology.cluster is None else INSTANCES.get(topology.cluster.spec.network, ())
    return next((name for part, name in kinds if part in model), "")


def cpu_vendor_of(model: str) -> str:
    """Return the vendor of a processor by its model.

    >>> cpu_vendor_of("AMD EPYC 9654"), cpu_vendor_of("Power10")
    ('amd', 'unknown')
    """
    return next((vendor for part, vendor in CPU_VENDORS if part in model), "unknown")


def _cpu_vendor(topology: Topology, ranks: Sequence[int]) -> str:
    """Return the vendor of the hosts; ``mixed`` if they differ, as NCCL calls it."""
    models = {kind.labels.get("cpu.model", "") for kind, _ in topology.by_kind(ranks)}
    found = set(map(cpu_vendor_of, models))
    return found.pop() if len(found) == 1 else "mixed"


def _of_kind(topology: Topology, kind: Topology, ranks: list[int]) -> System:
    """Return the system of the nodes of a kind: of the first one, or the poorest if some failed."""
    model = kind.labels.get("gpu.model", "")
    architecture = next((name for part, name in MODELS if part in model), None)
    pcie = "PCIe" in kind.labels.get("link.type", "")
    unnamed = architecture is None and pcie and "cpu" in kind.wiring.node_kinds
    if unnamed:
        architecture = "ampere" if _pcie_GBps(topology, ranks[:1]) <= PCIE_OF_ADA_GBPS else "blackwell"
    if architecture is None:
        hint = f"gpu.model must contain one of {', '.join(part for part, _ in MODELS)}"
        raise UnsupportedError(Fault(f'no library is known for "{model}"', f"{kind.name}: gpu.model", hint))
    chosen = _poorest_domain(topology, ranks)
    counts, into_switches = _links(topology, chosen)
    pcie = pcie and not (len(chosen) > 1 and all(any(row) for row in counts) and ring_closes(counts))  # no bridges
    counts, into_switches = ((), 0) if pcie else (counts, into_switches)
    linked = pcie or into_switches or any(map(any, counts)) or len(chosen) == 1  # one GPU uses no link there
    if not linked:
        what = "the choice over PCIe is not modelled for GPUs that have other links"
        raise UnsupportedError(Fault(what, kind.name, "name the algorithm, or take GPUs that are linked"))
    guessed = any(part in model for part in GUESSED_MODELS)
    told = [f"no released library has constants for {model}: Blackwell's are used"] if guessed else []
    told += [f'"{model}" is no GPU that the library knows: {architecture.capitalize()} is assumed'] if unnamed else []
    return System(
        architecture=architecture,
        switched=into_switches > 0,
        link_GBps=LINK_GBPS[architecture],
        links=() if into_switches or pcie else counts,
        links_per_gpu=into_switches,
        pcie_GBps=_pcie_GBps(topology, chosen) if pcie else 0.0,
        nvls=topology.reduction_for(ranks) == "NVLS" and architecture in ("hopper", "blackwell"),
        **_adapters(kind),
        doubts=tuple(told),
    )


def ring_closes(links: Sequence[Sequence[int]]) -> bool:
    """Return True if links lead around all GPUs, whose numbers between every two are given; there are few of them.

    >>> square = ((0, 1, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 1, 0))
    >>> ring_closes(square), ring_closes([row[:3] for row in square[:3]])
    (True, False)
    """
    n_gpus = len(links)

    def extends(path: tuple[int, ...]) -> bool:
        if len(path) == n_gpus:
            return links[path[-1]][0] > 0
        return any(extends((*path, gpu)) for gpu in range(n_gpus) if links[path[-1]][gpu] and gpu not in path)

    return extends((0,))


def _pcie_GBps(topology: Topology, ranks: Sequence[int]) -> float:
    """Return the least rate that the library reckons with on a way between two GPUs: of a port, or between sockets."""
    wiring = topology.wiring
    port_Bps = float(wiring.link_bandwidth_Bps[np.isin(wiring.link_src, ranks)].min())
    port_GBps = next((GBps for most_Bps, GBps in PCIE_GBPS if port_Bps <= most_Bps), PCIE6_GBPS)
    if len(set(sockets(wiring, ranks))) <= 1:
        return port_GBps
    model = topology.labels.get("cpu.model", "")
    between = next((GBps for part, GBps in SOCKET_GBPS if part in model), SOCKET_DEFAULT_GBPS)
    return min(port_GBps, between)


def _together(systems: list[System], name: str) -> System:
    """Return the system with the least capability, with those of other kinds of nodes that take part."""
    if len(systems) == 1:
        return systems[0]
    architectures = list(dict.fromkeys(system.architecture for system in systems))
    if any(system.is_amd for system in systems) and len(architectures) > 1:
        what = f"no choice is known for nodes of {' and '.join(architectures)} together"
        raise UnsupportedError(Fault(what, name, "name the algorithm, or take ranks on nodes of one kind"))
    least = min(systems, key=_capability)
    others = tuple(system for system in systems if system is not least)
    doubts = tuple(dict.fromkeys(doubt for system in systems for doubt in system.doubts))
    nic_GBps = min(system.nic_GBps for system in systems) if least.is_amd else least.nic_GBps  # RCCL searches no graph
    return replace(least, nic_GBps=nic_GBps, others=others, doubts=doubts)


def _capability(system: System) -> tuple[int, int]:
    """Return the key by which the least capable of several systems is found: capability, then links of a GPU."""
    return CAPABILITIES.get(system.architecture, 0), system.links_per_gpu or min(map(sum, system.links))


def _poorest_domain(topology: Topology, ranks: list[int]) -> list[int]:
    """Return the ranks in the domain of the first one; where something failed, of the one with the fewest links.

    All ranks take the fewest channels that any of them found (NCCL src/init.cc).
    """
    wiring, first = topology.wiring, ranks[0]
    if topology.damage is not None:
        inside = np.array([kind != "nic" for kind in wiring.node_kinds])[wiring.link_dst]
        out = np.bincount(wiring.link_src[inside], wiring.link_count[inside], wiring.n_gpus)
        first = min(ranks, key=lambda gpu: out[gpu])
    node = wiring.coordinates.node
    return [gpu for gpu in ranks if node[gpu] == node[first]]


def _adapters(topology: Topology) -> dict[str, Any]:
    """Return the number and rate of the network adapters of a GPU, from the facts ``nic.per_gpu`` and the like."""
    facts = {fact.path: fact.value for fact in topology.facts}
    count = facts.get("nic.per_gpu", 1) / facts.get("nic.shared_by", 1)
    seen = min(count, 1) if ONE_ADAPTER in topology.labels.get("nic.model", "") else count
    distance = next((fact.text for fact in topology.facts if fact.path == "nic.distance"), "")
    rate_GBps = count * facts.get("nic.bandwidth", 0.0) / 1e9
    return {"nics_per_gpu": seen, "nic_GBps": rate_GBps, "nic_distance": distance}


def _links(topology: Topology, ranks: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return the numbers of links between every two GPUs, and the fewest links of one GPU into switches."""
    wiring = topology.wiring
    place = {gpu: position for position, gpu in enumerate(ranks)}
    between = [[0] * len(ranks) for _ in ranks]
    upwards = [0] * len(ranks)
    own = np.isin(wiring.link_src, ranks)
    for src, dst, count in zip(wiring.link_src[own], wiring.link_dst[own], wiring.link_count[own], strict=True):
        if int(dst) in place:
            between[place[int(src)]][place[int(dst)]] += int(count)
        elif wiring.node_kinds[int(dst)] == "switch":
            upwards[place[int(src)]] += int(count)
    return tuple(tuple(row) for row in between), min(upwards)
