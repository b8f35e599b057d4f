"""The topology: facts with their provenance, and the wiring as frozen arrays.

A `Topology` is immutable. Its `Wiring` is all that the layers below need: nodes (GPUs first, in rank order) and
*bundles*, one per ordered pair of nodes that are wired directly. A bundle stands for *count* parallel physical links.
The arrays are read-only. Nothing here imports more than the standard library until it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collsim.core.errors import InputError, UnknownNameError
from collsim.core.methods import telling_arguments

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from numpy.typing import NDArray

    from collsim.topology.cluster.spec import Cluster
    from collsim.topology.wiring import LinkBundles, Wiring

    Ints = NDArray[np.int64]

__all__ = ["FITTED", "SIZES", "STATUSES", "Consequence", "Damage", "Fact", "Topology"]

FITTED = ("link.latency", "link.efficiency", "switch.latency", "switch.in_network_efficiency")
"""Figures of a node that constants fitted to measurements hold already: only a change of them tells anything."""

SIZES = ("scale_out.nodes", "scale_out.gpus_per_node")
"""Figures that say how large a cluster is: a question, not a change."""
SITES = ("scale_out.network", "scale_out.fabric", "cpu.model")
"""Figures in which sites with the same nodes differ."""

STATUSES: Mapping[str, str] = {
    "datasheet": "vendor specification of a shipping part",
    "announced": "vendor or analyst statement about an unreleased or newly launched part",
    "measured": "a published measurement",
    "constant": "a number hard-coded in public software such as NCCL or RCCL",
    "derived": "arithmetic on other facts, shown in the source",
    "fitted": "fitted to measurements by collsim",
    "estimate": "an educated figure with a stated reason",
    "assumed": "a placeholder: no public figure was found",
    "user": "written in a user's file without a status",
    "set": "given on the command line or by an override",
}
"""The meaning of each status, from the most to the least trustworthy; *user* and *set* are the caller's own."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """A figure that an override of another one changed."""

    path: str
    value: str
    before: str
    """Its value without the override."""
    cause: str
    """Path of the override."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of a topology with its provenance."""

    path: str
    """Where it stands in the file, such as ``link.bandwidth``."""
    text: str
    """The value as written."""
    value: float
    """The value in SI: bytes/s, seconds, a fraction or a count."""
    unit: str
    """``B/s``, ``s``, ``fraction`` or ``count``."""
    status: str
    """One of `STATUSES`."""
    source: str = ""
    """The public document, software constant or reasoning behind it."""
    note: str = ""
    where: str = ""
    """File and line, or ``--set``."""

    @property
    def records_damage(self) -> bool:
        """True if the fact only records what failed."""
        return self.path.startswith(("fail[", "degrade["))

    def to_dict(self) -> dict[str, Any]:
        """Return the fact as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """Failures in a topology; see `collsim.topology.failures.degrade`."""

    fail: tuple[str, ...]
    degrade: Mapping[str, str]
    summary: str
    """Failures, counted: ``1 switch failed: nvsw2``."""
    effects: tuple[str, ...]
    """Consequences of the failures, one sentence each."""
    gpus: tuple[int, ...]
    """The number that each GPU that is left has in the healthy topology."""
    nodes: Ints
    """int64[...]: nodes that are gone, as numbered there."""
    changed: LinkBundles
    """Links that have lost cables or rate, as they are now, with their ends as numbered there."""
    changed_place: Ints
    """int64[n]: the place of each among those with the same ends: 0 unless cables are listed one by one."""
    unserved: frozenset[int]
    """Scale-up domains, some GPU of which has lost links into switches: these add and multicast for nobody there."""
    healthy: Topology

    @property
    def links(self) -> Ints:
        """int64[n_links]: the number that each link that is left has in the healthy topology."""
        import numpy as np

        wiring, changed = self.healthy.wiring, self.changed
        gone = (wiring.find_links(changed.src, changed.dst) + self.changed_place)[changed.parallel == 0]
        left = np.delete(np.arange(wiring.n_links), gone)
        left.setflags(write=False)
        return left


@telling_arguments
@dataclass(frozen=True, eq=False)
class Topology:
    """A cluster or a scale-up domain as the user described it.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> topology = load_topology("mi355x_ubb8")
    >>> topology.n_gpus, topology.wiring.n_links, topology.wiring.link_name(0)
    (8, 56, 'gpu0->gpu1')
    >>> topology.fact("link.bandwidth").text
    '76.8 GB/s'
    """

    name: str
    title: str
    source: str
    """The file it was read from, or ``graph``."""
    facts: tuple[Fact, ...]
    wiring: Wiring
    sha256: str
    """Hash of the content and of the overrides."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names that are not figures: ``gpu.model``, ``link.type``, ``switch.model``, ``nic.model``, ``notes``, ..."""
    in_network_reduction: str | None = None
    """Reduction of the switches, such as ``NVLS``; None if they cannot reduce or it is not known."""
    in_network_efficiency: float = 1.0
    """Share of the achievable link rate that traffic which the switches add or multicast reaches."""
    cluster: Cluster | None = None
    """Network that joins the nodes; None for a single scale-up domain."""
    damage: Damage | None = None
    """Failures; None where everything is in order."""
    before: Mapping[str, float] = field(default_factory=dict)
    """SI values, before they were changed, of figures in `FITTED` that an override, or a file that extends a shipped
    one, changed."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Overrides, by path: of figures, which are facts too, and of words, which are not."""
    as_before: frozenset[str] = frozenset()
    """Paths of `settings` that say what the file says itself: they change nothing."""
    follows: tuple[Consequence, ...] = ()
    """Figures that are others because of an override of another one."""

    @property
    def n_gpus(self) -> int:
        """Number of GPUs, which are the ranks 0 to n - 1."""
        return self.wiring.n_gpus

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The topology as a NetworkX graph, built on first use; see `collsim.topology.graph` for its attributes."""
        from collsim.topology.graph import to_graph

        return to_graph(self)

    def reduction_for(self, gpus: Iterable[int]) -> str | None:
        """Return the reduction of the switches for *gpus*: None if their domains have lost links into them.

        Where nodes differ, the switches of all those must reduce alike.
        """
        chosen = list(gpus)
        if self.damage and self.damage.unserved & set(self.wiring.coordinates.node[chosen].tolist()):
            return None
        reductions = {kind.in_network_reduction for kind, _ in self.by_kind(chosen)}
        return reductions.pop() if len(reductions) == 1 else None

    def by_kind(self, gpus: Iterable[int]) -> list[tuple[Topology, list[int]]]:
        """Return a whole node of each kind that *gpus* are on, with those of them; itself if it is no cluster."""
        chosen = list(gpus)
        if self.cluster is None:
            return [(self, chosen)]
        import numpy as np

        kind = self.cluster.kind[self.wiring.coordinates.node[chosen]]
        if (kind == kind[:1]).all():
            return [(self.cluster.kinds[number], chosen) for number in kind[:1].tolist()]
        gpus = np.array(chosen)
        return [(self.cluster.kinds[number], gpus[kind == number].tolist()) for number in np.unique(kind).tolist()]

    def fact(self, path: str) -> Fact:
        """Return the fact at *path*, such as ``link.bandwidth``."""
        for fact in self.facts:
            if fact.path == path:
                return fact
        raise UnknownNameError("fact", path, [fact.path for fact in self.facts], self.name)

    def excess(self, path: str) -> float:
        """Return the increase of the figure at *path*, one of `FITTED`, by a change; 0 if it did not increase."""
        return max(self.fact(path).value - self.before[path], 0.0) if path in self.before else 0.0

    def remainder(self, path: str) -> float:
        """Return the share of the figure at *path*, one of `FITTED`, that a change has left; 1 at most."""
        return min(self.fact(path).value / self.before[path], 1.0) if path in self.before else 1.0

    def rank(self, name: str) -> int:
        """Return the rank of the GPU called *name*."""
        gpus = self.wiring.node_names[: self.n_gpus]
        if name not in gpus:
            raise UnknownNameError("GPU", name, gpus, self.name)
        return gpus.index(name)

    def to_dict(self) -> dict[str, Any]:
        """Return identity, sizes and facts as plain data; the arrays stay in `wiring`."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "sha256": self.sha256,
            "ranks": self.n_gpus,
            "nodes": self.wiring.n_nodes,
            "links": self.wiring.n_links,
            "kind": self.wiring.coordinates.kind,
            "in_network_reduction": self.in_network_reduction,
            "labels": dict(self.labels),
            "facts": [fact.to_dict() for fact in self.facts],
        }

    def to_yaml(self, name: str | None = None) -> str:
        """Return the topology as an explicit ``collsim.topology/1`` file that loads to the same arrays.

        The copy of a shipped topology is called so, unless *name* says otherwise.
        """
        from collsim.topology.export import to_yaml

        return to_yaml(self, name)

    @staticmethod
    def from_graph(graph: nx.Graph[Any], name: str | None = None, title: str | None = None) -> Topology:
        """Return the topology that a NetworkX graph describes.

        Edges have ``bandwidth_Bps`` (bytes/s, one direction) and ``latency_s``, maybe ``efficiency`` and ``count``;
        nodes may have ``kind`` (``gpu``, ``switch``, ``nic``, ``cpu``), ``rank`` and ``latency_s``. The whole list is
        at `collsim.topology.graph`.

        Raises
        ------
        SpecError
            With everything that is wrong with the graph.
        """
        from collsim.topology.graph import from_graph

        if not hasattr(graph, "nodes"):
            raise InputError(f"expected a NetworkX graph, got {type(graph).__name__}")
        return from_graph(graph, Topology, name=name, title=title)
