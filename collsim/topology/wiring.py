"""The wiring of a topology as frozen arrays: nodes, directed bundles of links, and where GPUs stand.

Nothing here imports more than the standard library until it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from collsim.topology.lazy import Later

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["COLUMNS", "Coordinates", "LaterWiring", "LinkBundles", "Wiring", "cables_of"]

COLUMNS = ("link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "link_efficiency")
"""The arrays of a wiring with an entry for every bundle."""


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


class LinkBundles(NamedTuple):
    """Directed bundles as arrays of one length; see `Wiring` for the meaning of each."""

    src: Ints
    dst: Ints
    parallel: Ints
    bandwidth_Bps: Floats
    latency_s: Floats
    efficiency: Floats

    def take(self, order: Ints) -> LinkBundles:
        """Return the bundles *order* in that order."""
        return LinkBundles(
            self.src[order],
            self.dst[order],
            self.parallel[order],
            self.bandwidth_Bps[order],
            self.latency_s[order],
            self.efficiency[order],
        )

    @classmethod
    def uniform(
        cls, src: Ints, dst: Ints, parallel: Ints, *, bandwidth_Bps: float, latency_s: float, efficiency: float
    ) -> LinkBundles:
        """Return bundles of equal links, *bandwidth_Bps* each."""
        import numpy as np

        n = len(src)
        return cls(
            src,
            dst,
            parallel,
            bandwidth_Bps * parallel.astype(np.float64),
            np.full(n, latency_s),
            np.full(n, efficiency),
        )


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

    def around(self, nodes: Ints) -> LinkBundles:
        """Return the bundles that leave or enter some nodes, in order."""
        import numpy as np

        meant = np.zeros(self.n_nodes, dtype=np.bool_)
        meant[nodes] = True
        links = np.flatnonzero(meant[self.link_src] | meant[self.link_dst])
        return LinkBundles(*(getattr(self, name)[links] for name in COLUMNS))

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

        wanted = np.asarray(src, dtype=np.int64) * self.n_nodes + np.asarray(dst, dtype=np.int64)
        links = self._links_from(np.asarray(src)) if wanted.size < self.n_links // 8 else np.arange(self.n_links)
        if not len(links):
            return np.full(wanted.shape, -1, dtype=np.int64)
        keys = self.link_src[links] * self.n_nodes + self.link_dst[links]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, links[place], -1)

    def _links_from(self, nodes: Ints) -> Ints:
        """Return the bundles that leave some nodes, in order."""
        import numpy as np

        sources = np.unique(nodes)
        begin, end = (np.searchsorted(self.link_src, sources, side) for side in ("left", "right"))
        counts = end - begin
        return np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())

    def link_name(self, link: int) -> str:
        """Return the name of a bundle, such as ``gpu3->nvsw1``."""
        return f"{self.node_names[int(self.link_src[link])]}->{self.node_names[int(self.link_dst[link])]}"

    @property
    def link_names(self) -> list[str]:
        """Names of all bundles."""
        return [self.link_name(link) for link in range(self.n_links)]


def cables_of(src: Ints, dst: Ints, count: Ints) -> int:
    """Return the number of cables of directed links: of two directions the one with more counts."""
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
    _around: Callable[[Ints], LinkBundles] | None

    @property
    def n_links(self) -> int:
        """Number of directed bundles."""
        return self._n_links

    @property
    def n_physical_links(self) -> int:
        """Number of cables: a pair of opposite bundles counts once."""
        return self._cables()

    def around(self, nodes: Ints) -> LinkBundles:
        """Return the bundles that leave or enter some nodes, in order."""
        return super().around(nodes) if self._around is None else self._around(nodes)
