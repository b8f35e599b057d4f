"""What the library sees of a scale-up domain: architecture, links by its own constants, switches that reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from collsim.errors import Fault, UnsupportedError

if TYPE_CHECKING:
    from collsim.topology import Topology
    from collsim.topology.cluster import Cluster

__all__ = ["CAPABILITIES", "Graph", "System", "system_of"]

MODELS = (
    ("V100", "volta"),
    ("A100", "ampere"),
    ("A800", "ampere"),
    ("GH200", "hopper"),
    ("H100", "hopper"),
    ("H200", "hopper"),
    ("H800", "hopper"),
    ("H20", "hopper"),
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
"""Part of ``gpu.model`` to architecture; the first match counts (GB200 and GB300 contain B200 and B300)."""

LINK_GBPS = {
    "volta": 20.0,
    "ampere": 20.0,
    "hopper": 20.6,
    "blackwell": 40.1,
    "gfx90a": 36.0,
    "gfx942": 48.0,
    "gfx950": 48.0,
}
"""What one link carries per direction by the library's reckoning (NCCL and RCCL src/graph/topo.h)."""

CAPABILITIES = {"volta": 70, "ampere": 80, "hopper": 90, "blackwell": 100}
"""Compute capability, times ten; where GPUs differ NCCL goes by the least (src/graph/tuning.cc, minCompCap)."""

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
    """

    channels: int
    intra_GBps: float
    inter_GBps: float = 0.0
    same_order: bool = True


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
    cpu_vendor : str
        ``intel``, ``amd``, ``arm`` or ``unknown``; matters between domains only.
    nics_per_gpu : int
    nic_GBps : float
        Network adapters of one GPU together; matters between domains only.
    graphs : tuple
        (algorithm, Graph) pairs that are known, from a log for instance; the search is skipped for these.
    doubts : tuple of str
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
    cpu_vendor: str = "unknown"
    nics_per_gpu: int = 1
    nic_GBps: float = 0.0
    graphs: tuple[tuple[str, Graph], ...] = ()
    doubts: tuple[str, ...] = ()
    others: tuple[System, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether all nodes have GPUs of one architecture."""
        return all(other.architecture == self.architecture for other in self.others)

    @property
    def is_amd(self) -> bool:
        """Whether the library is RCCL."""
        return self.architecture.startswith("gfx")

    @property
    def matches_template(self) -> bool:
        """Whether the wiring is what RCCL's templates of boards have: a switch, or links between any two GPUs alike."""
        counts = {count for a, row in enumerate(self.links) for b, count in enumerate(row) if a != b}
        return len(counts) <= 1

    def total_GBps(self, n_ranks: int) -> float:
        """Return what the busiest of the first *n_ranks* GPUs can send."""
        if self.switched:
            return self.links_per_gpu * self.link_GBps
        return max(sum(row[:n_ranks]) for row in self.links[:n_ranks]) * self.link_GBps

    def pair_GBps(self, n_ranks: int) -> tuple[float, float]:
        """Return the slowest and the fastest direct path between two of the first *n_ranks* GPUs."""
        if self.switched:
            return (self.total_GBps(n_ranks),) * 2
        counts = [self.links[a][b] for a in range(n_ranks) for b in range(n_ranks) if a != b]
        return min(counts) * self.link_GBps, max(counts) * self.link_GBps

    def rings_at(self, channel_GBps: float, n_ranks: int) -> int:
        """Return how many rings of *channel_GBps* the links of every GPU have room for."""
        if self.switched:
            return int(self.total_GBps(n_ranks) / channel_GBps)
        per_link = [[int(count * self.link_GBps / channel_GBps) for count in row[:n_ranks]] for row in self.links]
        return min(sum(row) for row in per_link[:n_ranks])


def system_of(
    topology: Topology,
    ranks: Sequence[int] | None = None,
    *,
    nvls: bool | None = None,
    cpu_vendor: str = "unknown",
) -> System:
    """Return how the library sees a scale-up domain, of several the one of the first rank, or all if they differ.

    It reads the label ``gpu.model`` (architecture), ``in_network_reduction`` (NVLS), the numbers of links in the
    wiring, and the facts of ``nic``; rates of links are the library's own constants, not those of the topology.

    Parameters
    ----------
    topology : Topology
    ranks : sequence of int, optional
        The GPUs that take part, in rank order; all of them by default.
    nvls : bool, optional
        Overrides whether the switches reduce: virtual machines often hide it.
    cpu_vendor : str

    Raises
    ------
    UnsupportedError
        The label names no GPU whose library is known, or the GPUs have no links but PCIe, or differ more than any
        library allows.
    """
    if topology.cluster is not None and len(topology.cluster.kinds) > 1:
        return _of_kinds(
            topology, topology.cluster, range(topology.n_gpus) if ranks is None else ranks, nvls, cpu_vendor
        )
    model = topology.labels.get("gpu.model", "")
    architecture = next((name for part, name in MODELS if part in model), None)
    if architecture is None:
        hint = f"gpu.model must contain one of {', '.join(part for part, _ in MODELS)}"
        raise UnsupportedError(Fault(f'no library is known for "{model}"', f"{topology.name}: gpu.model", hint))
    chosen = _first_domain(topology, list(range(topology.n_gpus)) if ranks is None else list(ranks))
    counts, into_switches = _links(topology, chosen)
    if "PCIe" in topology.labels.get("link.type", "") or not (into_switches or any(map(any, counts))):
        what = "the choice over PCIe is not modelled"
        raise UnsupportedError(Fault(what, topology.name, "name the algorithm, or take a system with NVLink or xGMI"))
    has_nvls = topology.in_network_reduction == "NVLS" and architecture in ("hopper", "blackwell")
    guessed = any(part in model for part in GUESSED_MODELS)
    return System(
        architecture=architecture,
        switched=into_switches > 0,
        link_GBps=LINK_GBPS[architecture],
        links=() if into_switches else counts,
        links_per_gpu=into_switches,
        nvls=has_nvls if nvls is None else nvls,
        cpu_vendor=cpu_vendor,
        **_adapters(topology),
        doubts=(f"no released library has constants for {model}: Blackwell's are used",) if guessed else (),
    )


def _of_kinds(topology: Topology, cluster: Cluster, ranks: Sequence[int], nvls: bool | None, cpu_vendor: str) -> System:
    """Return the system of the kind of nodes with the least capability, with those of the others that take part."""
    if topology.damage is not None:
        what = "the choice on a damaged cluster of nodes that differ is not modelled"
        raise UnsupportedError(Fault(what, topology.name, "name the algorithm"))
    place = topology.wiring.coordinates
    members: dict[int, list[int]] = {}
    for gpu in ranks:
        members.setdefault(int(place.node[gpu]), []).append(int(place.local[gpu]))
    first = {int(cluster.kind[node]): gpus for node, gpus in reversed(members.items())}
    systems = [system_of(cluster.kinds[kind], first[kind], nvls=nvls, cpu_vendor=cpu_vendor) for kind in sorted(first)]
    if len(systems) == 1:
        return systems[0]
    architectures = list(dict.fromkeys(system.architecture for system in systems))
    if any(system.is_amd for system in systems) and len(architectures) > 1:
        what = f"no choice is known for nodes of {' and '.join(architectures)} together"
        raise UnsupportedError(Fault(what, topology.name, "name the algorithm, or take ranks on nodes of one kind"))
    least = min(systems, key=lambda system: (CAPABILITIES.get(system.architecture, 0), system.links_per_gpu))
    others = tuple(system for system in systems if system is not least)
    doubts = tuple(dict.fromkeys(doubt for system in systems for doubt in system.doubts))
    nic_GBps = min(system.nic_GBps for system in systems) if least.is_amd else least.nic_GBps  # RCCL searches no graph
    nvls = all(system.nvls for system in systems)
    return replace(least, nvls=nvls, nic_GBps=nic_GBps, others=others, doubts=doubts)


def _first_domain(topology: Topology, ranks: list[int]) -> list[int]:
    """Return the ranks in the domain of the first one: all domains count as alike."""
    node = topology.wiring.coordinates.node
    return [gpu for gpu in ranks if node[gpu] == node[ranks[0]]]


def _adapters(topology: Topology) -> dict[str, Any]:
    """Return the number and rate of the network adapters of a GPU, from the facts ``nic.per_gpu`` and the like."""
    facts = {fact.path: fact.value for fact in topology.facts}
    count = facts.get("nic.per_gpu", 1 / facts.get("nic.shared_by", 1))
    return {"nics_per_gpu": max(int(count), 1), "nic_GBps": count * facts.get("nic.bandwidth", 0.0) / 1e9}


def _links(topology: Topology, ranks: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return the numbers of links between every two GPUs, and the fewest links of one GPU into switches."""
    wiring = topology.wiring
    place = {gpu: position for position, gpu in enumerate(ranks)}
    between = [[0] * len(ranks) for _ in ranks]
    upwards = [0] * len(ranks)
    for src, dst, count in zip(wiring.link_src, wiring.link_dst, wiring.link_count, strict=True):
        if int(src) not in place:
            continue
        if int(dst) in place:
            between[place[int(src)]][place[int(dst)]] += int(count)
        elif wiring.node_kinds[int(dst)] == "switch":
            upwards[place[int(src)]] += int(count)
    return tuple(tuple(row) for row in between), min(upwards)
