"""Clusters: nodes joined by a fabric of switches, as numbers, counts and arrays that a router reads.

Nodes are copies of one topology, or of several kinds with equally many GPUs and adapters that take part.

A cluster has *planes* that no switch joins: one, or one for each rail of a ``rail_only`` fabric. Within a plane,
adapters hang on *leaves*; leaves of one *group* share its *spines*; spines of all groups share the plane's *cores*.
With one tier there are only leaves, with two tiers a plane is one group. In a dragonfly the leaves of a group are wired
to each other, and groups to groups, and there are neither spines nor cores.
Nothing here imports more than the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from collsim.topology.lazy import Later

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from collsim.topology.model import Topology

    Ints = NDArray[np.int64]

__all__ = ["Cluster", "ClusterSpec", "LaterCluster", "NodeKind", "Plan"]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Equal nodes of a cluster, next to each other, as far as the network sees them."""

    name: str
    nodes: int
    gpus: int
    """GPUs of a whole node."""
    nics: int
    """Adapters of a whole node."""
    nic_rate_Bps: float
    bus_rate_Bps: float
    """Of one adapter's bus, one direction."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The figures of a cluster, all resolved, in SI.

    The whole node is planned, with all its adapters; only its first *gpus_per_node* GPUs are wired.
    """

    nodes: int
    node_gpus: int
    """GPUs of a whole node, of the largest kind."""
    gpus_per_node: int
    """GPUs of a node that take part: the first so many."""
    nics_per_gpu: int
    gpus_per_nic: int
    fabric: str
    """One of `FABRICS`."""
    network: str
    routing: str
    """One of `ROUTINGS`."""
    rails: int
    radix: int
    """Ports of a switch, each of *port_rate_Bps*."""
    port_rate_Bps: float
    nic_rate_Bps: float
    """The least of all kinds of nodes."""
    bus_rate_Bps: float
    """Of one adapter's bus, one direction; of the first kind of nodes."""
    tiers: int | None = None
    """None: as few as will do."""
    oversubscription: float = 1.0
    """Rate below a leaf for each unit of rate above it."""
    group_switches: int | None = None
    """Switches of a dragonfly group; None: half of the radix."""
    racks: int | None = None
    """Equal groups of nodes with leaves of their own; None: as many nodes share leaves as fit."""
    switch_endpoints: int | None = None
    """Adapters on a dragonfly switch; None: a quarter of the radix."""
    global_links: int | None = None
    """Cables between two dragonfly groups; None: as many as there are ports for."""
    nic_cable_m: float = 5.0
    leaf_cable_m: float = 30.0
    core_cable_m: float = 50.0
    bus_latency_s: float = 250e-9
    bus_efficiency: float = 0.858
    """These five as in `collsim.topology.files.schema.ScaleOut`, which says where they come from."""
    switch_latency_s: float = 0.0
    nic_latency_s: float = 0.0
    link_latency_s: float = 0.0
    """Of every network link, besides the length of its cable: error correction."""
    hash_seed: int = 1
    """Of ``ecmp``: which cables the hash gives to whom."""
    flows_per_pair: int = 1
    """Of ``ecmp``: a pair's messages are dealt to so many connections with hashes of their own."""
    relays: bool = True
    """Whether messages for another rail go over a GPU beside the sender (PXN); else they cross switches, if any do."""
    efficiency: float = 1.0
    """Share of the line rate of a network link that data reach."""
    in_network_reduction: str | None = None
    """Reduction of the network's switches, such as SHARP; off unless the library turns it on."""
    tree_per: str | None = None
    """One streaming reduction tree at once for each ``port`` or each ``switch``; None: these switches stream none."""
    mix: tuple[NodeKind, ...] = ()
    """The kinds of nodes, if there are several."""

    @property
    def kinds(self) -> tuple[NodeKind, ...]:
        """The kinds of nodes, in order."""
        return self.mix or (
            NodeKind("", self.nodes, self.node_gpus, self.node_nics, self.nic_rate_Bps, self.bus_rate_Bps),
        )

    @property
    def hashes(self) -> bool:
        """True if switches put each flow on one of its equal cables by a hash."""
        return self.routing == "ecmp"

    @property
    def node_nics(self) -> int:
        """Adapters of a whole node, for which the switches have ports."""
        return -(-self.node_gpus // self.gpus_per_nic) * self.nics_per_gpu

    @property
    def used_nics(self) -> int:
        """Adapters of a node whose GPUs take part."""
        return -(-self.gpus_per_node // self.gpus_per_nic) * self.nics_per_gpu

    @property
    def link_rate_Bps(self) -> float:
        """Rate of one cable of an adapter, one direction; the least of all kinds of nodes."""
        return min(self.nic_rate_Bps, self.port_rate_Bps)

    @property
    def adapters(self) -> int:
        """Adapters of all whole nodes."""
        return sum(kind.nodes * kind.nics for kind in self.kinds)

    @property
    def adapters_Bps(self) -> float:
        """Rate of the cables of all adapters together, one direction."""
        return sum(kind.nodes * kind.nics * min(kind.nic_rate_Bps, self.port_rate_Bps) for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts of a cluster, and the regular numbers that its wiring follows."""

    tiers: int
    planes: int
    groups: int
    """Groups of leaves, of all planes: pods of a tree of three tiers, groups of a dragonfly."""
    blocks: int
    """Blocks of nodes that share leaves."""
    block_nodes: int
    """Nodes of a block; the last may have fewer."""
    leaf_ports: int
    """Adapters on a leaf, at most."""
    leaves: int
    leaf_up: int
    """Cables from each leaf to spines."""
    spines: int = 0
    spine_up: int = 0
    """Cables from each spine to cores."""
    cores: int = 0
    local_links: int = 0
    """Parallel cables between two switches of a dragonfly group."""
    global_links: int = 0
    """Cables between two dragonfly groups."""
    cables: Mapping[str, int] = field(default_factory=dict)
    """Cables by kind: ``nic_leaf``, ``leaf_spine``, ``spine_core``, ``local``, ``global``."""
    transceivers: int = 0
    """Two for each cable that is too long for copper."""

    @property
    def switches(self) -> int:
        """All switches outside the nodes."""
        return self.leaves + self.spines + self.cores

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        names = [name for name in self.__slots__ if name != "cables"]
        return {name: getattr(self, name) for name in names} | {"switches": self.switches, "cables": dict(self.cables)}


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Network that joins the nodes of a wiring, for a router: every array is int64 and read-only.

    Numbers of nodes and of links are those of the topology's `Wiring`. Nodes stand in this order: GPUs (node by node),
    switches inside nodes, adapters (node by node), leaves, spines, cores. ``switch`` below numbers leaves, spines and
    cores from 0: switch i is node ``first_leaf + i``.

    To find the way from GPU a to GPU b without a search: pick an adapter of each from ``nic_of``; if ``nic_leaf`` is
    the same, the path is one switch. Else go up: ``up_switch[up_ptr[i]:up_ptr[i + 1]]`` are the switches above switch i
    with the link to each in ``up_link`` and the link back down in ``down_link``. Two leaves of one group have all the
    group's spines in common; leaves of different groups in one plane meet in a core, which has a link to at least one
    spine of every group: go up to any spine and core, and down by the spines that both the core and the target's
    group have (``switch_group``). In a dragonfly the same arrays list the peers of a switch, first those of its own
    group, then those of other groups, each in order. `Wiring.find_links` gives the link between any two nodes.

    Two planes have no switch in common: the way from one rail of a ``rail_only`` fabric to another leads through a GPU
    of the same node. How much of a bundle each flow gets is the router's choice; ``spec.routing`` says what the network
    does, and ``link_count`` of the wiring how many cables a bundle has.

    Attributes
    ----------
    spec : ClusterSpec
    plan : Plan
    node : Topology
        The first node by itself, with plain names: what a run inside it is computed on.
    kinds : tuple of Topology
        A node of each kind by itself.
    kind : int64[nodes]
        Which of *kinds* each node is; equal ones are next to each other.
    first_inner : int64[nodes+1]
        The nodes of the wiring that are switches inside node v: ``first_inner[v]`` up to ``first_inner[v+1]``.
    first_nic, first_leaf, first_spine : int
        Number of the first node of each kind; equal to the next one's if there is none.
    nic_ptr, nic_of : int64[n_gpus+1], int64[...]
        Adapters of GPU g, as nodes: ``nic_of[nic_ptr[g]:nic_ptr[g+1]]``.
    nic_node, nic_rail, nic_leaf, nic_up, nic_down : int64[n_nics]
        Of adapter i, which is node ``first_nic + i``: the scale-up domain, the rail, its leaf (as a switch number), the
        links to it and from it.
    switch_plane, switch_group, switch_tier : int64[n_switches]
        Plane; group, -1 for a core; tier 0 (leaf), 1 (spine) or 2 (core).
    up_ptr, up_switch, up_cables, up_link, down_link : int64
        Switches above each switch, and in a dragonfly beside it, with the cables to each.
    """

    spec: ClusterSpec
    plan: Plan
    node: Topology
    kinds: tuple[Topology, ...]
    kind: Ints
    first_inner: Ints
    first_nic: int
    first_leaf: int
    first_spine: int
    nic_ptr: Ints
    nic_of: Ints
    nic_node: Ints
    nic_rail: Ints
    nic_leaf: Ints
    nic_up: Ints
    nic_down: Ints
    switch_plane: Ints
    switch_group: Ints
    switch_tier: Ints
    up_ptr: Ints
    up_switch: Ints
    up_cables: Ints
    up_link: Ints
    down_link: Ints


class LaterCluster(Later, Cluster):
    """A cluster the links of which are numbered when they are first asked for."""

    __slots__ = ("_make",)
    _make: Callable[[], Mapping[str, Ints]]
