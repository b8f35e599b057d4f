"""Every cable of a planned cluster, and its links as bundles: of all of it, or of what is around some nodes.

Cables between tiers are dealt out in turn: with w cables from each switch to T above, everyone gets w // T, and the
rest go to the next ones round the circle. So the load of the upper tier differs by one cable at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.topology.cluster.spec import ClusterSpec, Plan
from collsim.topology.wiring import LinkBundles, Wiring

__all__ = ["Cables", "ClusterNumbers", "Inside", "Leaves", "by_rail", "layout_of", "planes_and_groups"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FIBRE_S_PER_M = 5e-9
"""Propagation in fibre and copper, 5 ns/m (derived: two thirds of the speed of light)."""


class Inside(NamedTuple):
    """Insides of the nodes: the wiring of each kind, the number of its nodes, and the first switch of each node."""

    wirings: Sequence[Wiring]
    counts: Sequence[int]
    first_inner: Ints
    """int64[nodes+1], numbers in the wiring of the cluster."""

    @property
    def n_gpus(self) -> int:
        """GPUs of every node."""
        return self.wirings[0].n_gpus

    @property
    def kind(self) -> Ints:
        """int64[nodes]: the kind of each node."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int64), self.counts)

    def nodes(self) -> Iterator[tuple[Wiring, range]]:
        """Yield the wiring of each kind with the numbers of its nodes."""
        ends = itertools.accumulate(self.counts, initial=0)
        for wiring, (first, end) in zip(self.wirings, itertools.pairwise(ends), strict=True):
            yield wiring, range(first, end)

    def tiled(self, of_node: Callable[[Wiring], NDArray[Any]]) -> NDArray[Any]:
        """Return an array of a node for all nodes, one after the other."""
        return np.concatenate([np.tile(of_node(wiring), len(nodes)) for wiring, nodes in self.nodes()])


class Numbers(NamedTuple):
    """Number of the first node of each kind, and of all nodes."""

    inner: int
    nic: int
    leaf: int
    spine: int
    core: int
    end: int


class Leaves(NamedTuple):
    """Of every adapter that is wired, node by node: its scale-up domain, its rail and its leaf."""

    node: Ints
    rail: Ints
    leaf: Ints


class Cables(NamedTuple):
    """Duplex bundles of network cables between switches, which are numbered from the first leaf: low to high."""

    low: Ints
    high: Ints
    parallel: Ints
    length_m: Floats


@dataclass(frozen=True, slots=True, eq=False)
class ClusterNumbers:
    """Where everything of a cluster is, from which the bundles of all of it or of a part are made."""

    spec: ClusterSpec
    plan: Plan
    inside: Inside
    first: Numbers
    leaves: Leaves
    cables: Cables

    @property
    def n_links(self) -> int:
        """Directed bundles of the whole."""
        inner = sum(wiring.n_links * len(nodes) for wiring, nodes in self.inside.nodes())
        trunks = int(self.cables.parallel.sum()) if self.spec.hashes else len(self.cables.parallel)
        return inner + 2 * (self._n_buses + len(self.leaves.leaf) + trunks)

    @property
    def n_cables(self) -> int:
        """Duplex cables of the whole, those inside nodes included."""
        inner = sum(wiring.n_physical_links * len(nodes) for wiring, nodes in self.inside.nodes())
        return inner + self._n_buses + len(self.leaves.leaf) + int(self.cables.parallel.sum())

    @property
    def _n_buses(self) -> int:
        return self.first.inner * self.spec.nics_per_gpu

    def gpu_nic_pairs(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return every GPU of some nodes with each of its adapters, both counted over the cluster, by the GPUs."""
        spec, gpus = self.spec, self.inside.n_gpus
        gpu = np.repeat(_each(nodes, gpus), spec.nics_per_gpu)
        copy = np.tile(np.arange(spec.nics_per_gpu, dtype=np.int64), len(nodes) * gpus)
        node, local = np.divmod(gpu, gpus)
        return gpu, node * spec.used_nics + local // spec.gpus_per_nic * spec.nics_per_gpu + copy

    def everything(self) -> LinkBundles:
        """Return all bundles in order."""
        return self._bundles(np.arange(self.spec.nodes, dtype=np.int64), self.cables)

    def around(self, numbers: Ints) -> LinkBundles:
        """Return the bundles that leave or enter some nodes of the wiring, in order."""
        meant = np.zeros(self.first.end, dtype=np.bool_)
        meant[numbers] = True
        inner, nic = (
            numbers[(numbers >= start) & (numbers < end)] for start, end in itertools.pairwise(self.first[:3])
        )
        nodes = [
            numbers[numbers < self.first.inner] // self.inside.n_gpus,
            np.searchsorted(self.inside.first_inner, inner, side="right") - 1,
            self.leaves.node[nic - self.first.nic],
            self.leaves.node[meant[self.first.leaf + self.leaves.leaf]],
        ]
        switch, (low, high, parallel, length_m) = meant[self.first.leaf :], self.cables
        there = np.flatnonzero(switch[low] | switch[high])
        cables = Cables(low[there], high[there], parallel[there], length_m[there])
        bundles = self._bundles(np.unique(np.concatenate(nodes)), cables)
        return bundles.take(np.flatnonzero(meant[bundles.src] | meant[bundles.dst]))

    def _bundles(self, nodes: Ints, cables: Cables) -> LinkBundles:
        """Return the links that are inside or leave some nodes, and some cables between switches, in order."""
        parts = [*_copies(self.inside, nodes), *_adapters(self, nodes), *_trunks(self.spec, cables, self.first)]
        bundles = LinkBundles(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        bundles = bundles.take(np.lexsort((bundles.dst, bundles.src)))
        return _single_cables(bundles, self.first.leaf) if self.spec.hashes else bundles


def layout_of(wirings: Sequence[Wiring], spec: ClusterSpec, plan: Plan) -> ClusterNumbers:
    """Return where everything is in a cluster of nodes, one of each kind with the GPUs that take part."""
    inside = _inside(wirings, [kind.nodes for kind in spec.kinds])
    nic = int(inside.first_inner[-1])
    leaf = nic + spec.nodes * spec.used_nics
    spine = leaf + plan.leaves
    first = Numbers(spec.nodes * inside.n_gpus, nic, leaf, spine, spine + plan.spines, leaf + plan.switches)
    return ClusterNumbers(spec, plan, inside, first, _leaves_of(spec, plan), _switch_cables(spec, plan))


def _inside(wirings: Sequence[Wiring], counts: Sequence[int]) -> Inside:
    others = np.repeat([wiring.n_nodes - wiring.n_gpus for wiring in wirings], counts)
    first = sum(counts) * wirings[0].n_gpus + np.concatenate([[0], np.cumsum(others)]).astype(np.int64)
    return Inside(wirings, counts, first)


def _single_cables(bundles: LinkBundles, first_leaf: int) -> LinkBundles:
    """Return the cables between switches one by one: a hash puts a message on one of them, not on the bundle."""
    between = np.minimum(bundles.src, bundles.dst) >= first_leaf
    cables = bundles.take(np.repeat(np.arange(len(bundles.src)), np.where(between, bundles.parallel, 1)))
    single = np.minimum(cables.src, cables.dst) >= first_leaf
    return cables._replace(
        parallel=np.where(single, 1, cables.parallel),
        bandwidth_Bps=cables.bandwidth_Bps / np.where(single, cables.parallel, 1),
    )


def _copies(inside: Inside, nodes: Ints) -> list[LinkBundles]:
    """Return the bundles inside some nodes, which are given in order, kind by kind."""
    n = inside.n_gpus
    copies = []
    for wiring, alike in inside.nodes():
        number = nodes[np.searchsorted(nodes, alike.start) : np.searchsorted(nodes, alike.stop), None]
        switches = inside.first_inner[number] - n
        ends = [
            np.where(end < n, number * n + end, switches + end).ravel() for end in (wiring.link_src, wiring.link_dst)
        ]
        columns = (wiring.link_count, wiring.link_bandwidth_Bps, wiring.link_latency_s, wiring.link_efficiency)
        copies.append(LinkBundles(*ends, *(np.tile(column, len(number)) for column in columns)))
    return copies


def _leaves_of(spec: ClusterSpec, plan: Plan) -> Leaves:
    """Return the leaf of every adapter: by rail, in turn within a block of nodes, or along a dragonfly group."""
    node = np.repeat(np.arange(spec.nodes, dtype=np.int64), spec.used_nics)
    nic = np.tile(np.arange(spec.used_nics, dtype=np.int64), spec.nodes)
    block, place = np.divmod(node, plan.block_nodes)
    each = plan.leaves // plan.blocks
    if by_rail(spec, plan):
        within = nic % spec.rails
    elif spec.fabric == "dragonfly":
        within = (place * spec.node_nics + nic) * each // (plan.block_nodes * spec.node_nics)
    else:
        within = nic * each // spec.node_nics
    return Leaves(node, nic % spec.rails, block * each + within)


def by_rail(spec: ClusterSpec, plan: Plan) -> bool:
    """Return True if every leaf serves one rail only."""
    return spec.fabric in ("rail", "rail_only") and plan.leaves == plan.blocks * spec.rails


def planes_and_groups(spec: ClusterSpec, plan: Plan) -> tuple[Ints, Ints]:
    """Return int64[leaves]: the plane and the group of each leaf, both counted over the whole cluster."""
    leaf = np.arange(plan.leaves, dtype=np.int64)
    block, line = np.divmod(leaf, plan.leaves // plan.blocks)
    plane = line if plan.planes > 1 else np.zeros_like(leaf)
    if spec.fabric == "dragonfly":
        return plane, block
    if plan.tiers < 3:
        return plane, plane
    if by_rail(spec, plan):
        each = plan.groups // spec.rails
        return plane, line * each + block * each // plan.blocks
    return plane, leaf * plan.groups // plan.leaves


def _dealt(sources: int, cables: int, targets: int) -> tuple[Ints, Ints, Ints]:
    """Return source, target and count of the bundles when every source deals its *cables* out in turn.

    >>> [column.tolist() for column in _dealt(2, 3, 2)]
    [[0, 0, 1, 1], [0, 1, 0, 1], [2, 1, 1, 2]]
    """
    base, rest = divmod(cables, targets)
    count = np.full((sources, targets), base, dtype=np.int64)
    extra = (np.arange(sources)[:, None] * rest + np.arange(rest)[None, :]) % targets
    np.add.at(count, (np.arange(sources)[:, None], extra), 1)
    low, high = np.nonzero(count)
    return low.astype(np.int64), high.astype(np.int64), count[low, high]


def _switch_cables(spec: ClusterSpec, plan: Plan) -> Cables:
    """Return every bundle between two switches, the lower tier first."""
    if spec.fabric == "dragonfly":
        return _dragonfly_cables(spec, plan)
    _, group = planes_and_groups(spec, plan)
    parts = []
    if plan.spines:
        each = plan.spines // plan.groups
        for number in range(plan.groups):
            members = np.flatnonzero(group == number)
            low, high, count = _dealt(len(members), plan.leaf_up, each)
            parts.append((members[low], plan.leaves + number * each + high, count, spec.leaf_cable_m))
    if plan.cores:
        spines, cores = plan.spines // plan.planes, plan.cores // plan.planes
        first = plan.leaves + plan.spines
        for number in range(plan.planes):
            low, high, count = _dealt(spines, plan.spine_up, cores)
            parts.append((plan.leaves + number * spines + low, first + number * cores + high, count, spec.core_cable_m))
    return _joined(parts)


def _joined(parts: list[tuple[Ints, Ints, Ints, float]]) -> Cables:
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Cables(empty, empty, empty, np.zeros(0))
    low, high, count = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return Cables(low, high, count, np.concatenate([np.full(len(part[0]), part[3]) for part in parts]))


def _dragonfly_cables(spec: ClusterSpec, plan: Plan) -> Cables:
    """Return all pairs within each group, and the cables between any two groups on switches in turn."""
    each = plan.leaves // plan.groups
    a, b = np.triu_indices(each, k=1)
    start = np.arange(plan.groups, dtype=np.int64)[:, None] * each
    low, high = (start + a).ravel(), (start + b).ravel()
    parts = [(low, high, np.full(len(low), plan.local_links, dtype=np.int64), spec.leaf_cable_m)]
    if plan.groups > 1:
        one, other = np.triu_indices(plan.groups, k=1)
        cable = np.arange(plan.global_links)[None, :]
        # group g counts its peers without itself; its cables go to its switches in turn
        left = one[:, None] * each + ((other - 1)[:, None] * plan.global_links + cable) % each
        right = other[:, None] * each + (one[:, None] * plan.global_links + cable) % each
        pair, count = np.unique(np.stack([left.ravel(), right.ravel()]), axis=1, return_counts=True)
        parts.append((pair[0], pair[1], count.astype(np.int64), spec.core_cable_m))
    return _joined(parts)


def _adapters(layout: ClusterNumbers, nodes: Ints) -> list[LinkBundles]:
    """Return GPU to adapter and adapter to leaf of some nodes, both directions of each."""
    spec, first, gpus = layout.spec, layout.first, layout.inside.n_gpus
    gpu, nic = layout.gpu_nic_pairs(nodes)
    counts = [kind.nodes for kind in spec.kinds]
    bus_Bps = np.repeat([kind.bus_rate_Bps for kind in spec.kinds], counts)[gpu // gpus]
    bus = _both(
        gpu, first.nic + nic, np.ones_like(gpu),
        rate_Bps=bus_Bps, latency_s=spec.bus_latency_s, efficiency=spec.bus_efficiency,
    )  # fmt: skip
    nics = _each(nodes, spec.used_nics)
    cable_Bps = np.repeat([min(kind.nic_rate_Bps, spec.port_rate_Bps) for kind in spec.kinds], counts)
    latency_s = spec.link_latency_s + FIBRE_S_PER_M * spec.nic_cable_m
    cables = _both(
        first.nic + nics, first.leaf + layout.leaves.leaf[nics], np.ones_like(nics),
        rate_Bps=cable_Bps[layout.leaves.node[nics]], latency_s=latency_s, efficiency=spec.efficiency,
    )  # fmt: skip
    return [*bus, *cables]


def _each(nodes: Ints, count: int) -> Ints:
    """Return the numbers over the cluster of what every node has *count* of, for some nodes."""
    return (nodes[:, None] * count + np.arange(count, dtype=np.int64)).ravel()


def _trunks(spec: ClusterSpec, cables: Cables, first: Numbers) -> list[LinkBundles]:
    """Return cables between switches, both directions of each."""
    latency_s = spec.link_latency_s + FIBRE_S_PER_M * cables.length_m
    low, high = first.leaf + cables.low, first.leaf + cables.high
    return _both(
        low, high, cables.parallel, rate_Bps=spec.port_rate_Bps, latency_s=latency_s, efficiency=spec.efficiency
    )


def _both(
    a: Ints, b: Ints, count: Ints, *, rate_Bps: float | Floats, latency_s: float | Floats, efficiency: float
) -> list[LinkBundles]:
    """Return the bundles of both directions; *rate_Bps* is of one cable."""
    rest = (
        count,
        rate_Bps * count.astype(np.float64),
        np.broadcast_to(np.asarray(latency_s, dtype=np.float64), a.shape),
        np.full(len(a), efficiency),
    )
    return [LinkBundles(a, b, *rest), LinkBundles(b, a, *rest)]
