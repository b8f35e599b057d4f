"""What a topology is: facts with their provenance, and the wiring as frozen arrays.

A `Topology` is immutable. Its `Wiring` is all that the layers below need: nodes (GPUs first, in rank order) and
*bundles*, one per ordered pair of nodes that are wired directly. A bundle stands for *count* parallel physical links.
The arrays are read-only. Nothing here imports more than the standard library until it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collsim.core.errors import InputError, UnknownNameError
from collsim.topology.lazy import Later

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from numpy.typing import NDArray

    from collsim.topology.builders import Bundles
    from collsim.topology.cluster.spec import Cluster

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["KIND_LABELS", "STATUSES", "Coordinates", "Damage", "Fact", "Topology", "Wiring"]

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
COLUMNS = ("link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "link_efficiency")
"""The arrays of a wiring with an entry for every bundle."""
KIND_LABELS = ("gpu.model", "link.type", "switch.model")
"""Labels that the choice of a library and of a profile goes by; copies as a file or a graph keep them."""


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
        """Whether the fact only records what failed."""
        return self.path.startswith(("fail[", "degrade["))

    def to_dict(self) -> dict[str, Any]:
        """Return the fact as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Where each GPU stands in a regular system; the arrays are what symmetry arguments may rely on.

    *kind* is ``mesh`` (one equal bundle for every ordered pair of GPUs), ``switched`` (every GPU wired to every
    switch, each plane the same for all GPUs), ``irregular``, or ``cluster`` (see `Topology.cluster`). *node*, *local*,
    *rail* and *pod* are int64[n_gpus]: the scale-up domain, the index in it, the scale-out rail and the pod, which in a
    cluster is the block of nodes that share leaves, or the dragonfly group. *plane* is int64[n_nodes - n_gpus]: the
    plane of each node after the GPUs, -1 if it belongs to none; in a cluster it is the rail of an adapter and of a leaf
    that serves one rail only.
    """

    kind: str
    node: Ints
    local: Ints
    rail: Ints
    pod: Ints
    plane: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """Nodes and directed bundles as read-only arrays; bundles are sorted by (source, destination) and unique."""

    node_names: Sequence[str]
    """GPUs first, in rank order, then what forwards between them."""
    node_kinds: tuple[str, ...]
    """``gpu``, ``switch``, ``cpu`` or ``nic``, in the same order."""
    n_gpus: int
    node_latency_s: Floats
    """float64[n_nodes]: forwarding latency; 0 for a GPU."""
    link_src: Ints
    """int64[n_links]"""
    link_dst: Ints
    """int64[n_links]"""
    link_count: Ints
    """int64[n_links]: parallel physical links in the bundle."""
    link_bandwidth_Bps: Floats
    """float64[n_links]: raw rate of the whole bundle in its direction."""
    link_latency_s: Floats
    """float64[n_links]: one traversal, port to port."""
    link_efficiency: Floats
    """float64[n_links]: achievable fraction of the raw rate."""
    coordinates: Coordinates
    link_nominal_Bps: Floats | None = None
    """float64[n_links]: the rate that each bundle should have, by which traffic is spread; None: the rate it has."""

    @property
    def n_nodes(self) -> int:
        """Number of GPUs and of all that forwards between them."""
        return len(self.node_names)

    @property
    def n_links(self) -> int:
        """Number of directed bundles."""
        return len(self.link_src)

    @property
    def n_physical_links(self) -> int:
        """Number of cables: a pair of opposite bundles counts once."""
        return cables_of(self.link_src, self.link_dst, self.link_count)

    def bundled(self) -> Wiring:
        """Return the wiring with cables that are listed one by one put together again; itself if there are none."""
        import numpy as np

        first = np.flatnonzero(np.diff(self.link_src * self.n_nodes + self.link_dst, prepend=-1))
        if len(first) == self.n_links:
            return self
        columns = {name: getattr(self, name) for name in (*COLUMNS, "link_nominal_Bps")}
        summed = ("link_count", "link_bandwidth_Bps", "link_nominal_Bps")
        changed: dict[str, Any] = {
            name: np.add.reduceat(column, first) if name in summed else column[first]
            for name, column in columns.items()
            if isinstance(column, np.ndarray)
        }
        return replace(self, **changed)

    def around(self, nodes: Ints) -> Bundles:
        """Return the bundles that leave or enter some nodes, in order."""
        import numpy as np

        from collsim.topology.builders import Bundles

        meant = np.zeros(self.n_nodes, dtype=np.bool_)
        meant[nodes] = True
        links = np.flatnonzero(meant[self.link_src] | meant[self.link_dst])
        return Bundles(*(getattr(self, name)[links] for name in COLUMNS))

    def find_links(self, src: Ints, dst: Ints) -> Ints:
        """Return int64: the bundle from each node of *src* to that of *dst*, -1 where there is none.

        Where cables are listed one by one, the first of them.

        Examples
        --------
        >>> from collsim.topology import load_topology
        >>> load_topology("mi355x_ubb8").wiring.find_links([0, 1, 1], [1, 0, 1]).tolist()
        [0, 7, -1]
        """
        import numpy as np

        keys = self.link_src * self.n_nodes + self.link_dst
        wanted = np.asarray(src, dtype=np.int64) * self.n_nodes + np.asarray(dst, dtype=np.int64)
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        if not len(keys):
            return np.full(wanted.shape, -1, dtype=np.int64)
        return np.where(keys[place] == wanted, place, -1)

    def link_name(self, link: int) -> str:
        """Return the name of a bundle, such as ``gpu3->nvsw1``."""
        return f"{self.node_names[int(self.link_src[link])]}->{self.node_names[int(self.link_dst[link])]}"

    @property
    def link_names(self) -> list[str]:
        """Names of all bundles."""
        return [self.link_name(link) for link in range(self.n_links)]


def cables_of(src: Ints, dst: Ints, count: Ints) -> int:
    """Return how many cables directed links are: of two directions the one with more counts."""
    import numpy as np

    ends = np.stack([np.minimum(src, dst), np.maximum(src, dst)])
    n_nodes = int(ends.max(initial=0)) + 1
    pair = np.unique(ends[0] * n_nodes + ends[1], return_inverse=True)[1]
    ways = [np.bincount(pair[way], count[way], len(pair)) for way in (src < dst, src > dst)]
    return int(np.maximum(*ways).sum())


class LaterWiring(Later, Wiring):
    """A wiring the bundles of which are made when all of them are read; those around some nodes are made alone."""

    __slots__ = ("_around", "_cables", "_make", "_n_links")
    _make: Callable[[], Mapping[str, Any]]
    _n_links: int
    _cables: Callable[[], int]
    _around: Callable[[Ints], Bundles] | None

    @property
    def n_links(self) -> int:
        """Number of directed bundles."""
        return self._n_links

    @property
    def n_physical_links(self) -> int:
        """Number of cables: a pair of opposite bundles counts once."""
        return self._cables()

    def around(self, nodes: Ints) -> Bundles:
        """Return the bundles that leave or enter some nodes, in order."""
        return super().around(nodes) if self._around is None else self._around(nodes)


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """What failed in a topology; see `collsim.topology.failures.degrade`."""

    fail: tuple[str, ...]
    degrade: Mapping[str, str]
    summary: str
    """What failed, counted: ``1 switch failed: nvsw2``."""
    effects: tuple[str, ...]
    """What follows from it, one sentence each."""
    gpus: tuple[int, ...]
    """The number that each GPU that is left has in the healthy topology."""
    nodes: Ints
    """int64[...]: nodes that are gone, as numbered there."""
    changed: Bundles
    """What is left of each link that has lost cables or rate, with its ends as numbered there."""
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
    """What the switches can reduce with, such as ``NVLS``; None if they cannot or it is not known."""
    in_network_efficiency: float = 1.0
    """Share of the achievable link rate that traffic which the switches add or multicast reaches."""
    cluster: Cluster | None = None
    """How nodes are joined; None for a single scale-up domain."""
    damage: Damage | None = None
    """What failed; None where everything is in order."""

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
        """Return what the switches can reduce with for *gpus*: nothing if their domains have lost links into them.

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
        members: dict[int, list[int]] = {}
        for gpu, kind in zip(chosen, self.cluster.kind[self.wiring.coordinates.node[chosen]].tolist(), strict=True):
            members.setdefault(kind, []).append(gpu)
        return [(self.cluster.kinds[kind], members[kind]) for kind in sorted(members)]

    def fact(self, path: str) -> Fact:
        """Return the fact at *path*, such as ``link.bandwidth``."""
        for fact in self.facts:
            if fact.path == path:
                return fact
        raise UnknownNameError("fact", path, [fact.path for fact in self.facts], self.name)

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
        """Return the topology that a NetworkX graph with the documented attributes describes."""
        from collsim.topology.graph import from_graph

        if not hasattr(graph, "nodes"):
            raise InputError(f"expected a NetworkX graph, got {type(graph).__name__}")
        return from_graph(graph, name=name, title=title)
