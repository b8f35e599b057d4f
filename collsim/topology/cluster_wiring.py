"""A planned cluster as arrays: nodes, adapters, leaves, spines and cores, and every cable between them.

Cables between tiers are dealt out in turn: with w cables from each switch to T above, everyone gets w // T, and the
rest go to the next ones round the circle. So the load of the upper tier differs by one cable at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.topology.builders import Bundles
from collsim.topology.cluster import Cluster, ClusterSpec, Plan
from collsim.topology.model import Coordinates, Topology, Wiring

__all__ = ["wire_cluster"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FIBRE_S_PER_M = 5e-9
"""Propagation in fibre and copper, 5 ns/m (derived: two thirds of the speed of light)."""


class _Inside(NamedTuple):
    """What is inside the nodes: the wiring of each kind, how many there are, and the first switch of each node."""

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


class _Numbers(NamedTuple):
    """Number of the first node of each kind, and of all nodes."""

    inner: int
    nic: int
    leaf: int
    spine: int
    core: int
    end: int


class _Leaves(NamedTuple):
    """Of every adapter that is wired, node by node: its scale-up domain, its rail and its leaf."""

    node: Ints
    rail: Ints
    leaf: Ints


class _Cables(NamedTuple):
    """Duplex bundles of network cables between switches, which are numbered from the first leaf: low to high."""

    low: Ints
    high: Ints
    parallel: Ints
    length_m: Floats


def wire_cluster(kinds: Sequence[Topology], spec: ClusterSpec, plan: Plan) -> tuple[Wiring, Cluster]:
    """Return the wiring of copies of *kinds*, as many as ``spec.kinds`` says, and how a router finds its way in it.

    Each kind has the GPUs that take part only, all equally many.
    """
    inside = _inside([kind.wiring for kind in kinds], [kind.nodes for kind in spec.kinds])
    n_gpus, n_nics = spec.nodes * inside.n_gpus, spec.nodes * spec.used_nics
    leaf = int(inside.first_inner[-1]) + n_nics
    spine = leaf + plan.leaves
    first = _Numbers(n_gpus, leaf - n_nics, leaf, spine, spine + plan.spines, leaf + plan.switches)
    leaves = _leaves_of(spec, plan)
    cables = _switch_cables(spec, plan)
    parts = [*_copies(inside), *_adapters(spec, inside.n_gpus, leaves, first), *_trunks(spec, cables, first)]
    bundles = Bundles(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    bundles = bundles.take(np.lexsort((bundles.dst, bundles.src)))
    if spec.hashes:
        bundles = _single_cables(bundles, first.leaf)
    latency = np.concatenate(
        [
            np.zeros(n_gpus),
            inside.tiled(lambda wiring: wiring.node_latency_s[wiring.n_gpus :]),
            np.full(n_nics, spec.nic_latency_s),
            np.full(plan.switches, spec.switch_latency_s),
        ]
    )
    wiring = Wiring(
        node_names=_names(inside, spec, plan),
        node_kinds=("gpu",) * n_gpus
        + tuple(itertools.chain(*(wiring.node_kinds[wiring.n_gpus :] * len(nodes) for wiring, nodes in inside.nodes())))
        + ("nic",) * n_nics + ("switch",) * plan.switches,
        n_gpus=n_gpus,
        node_latency_s=latency,
        link_src=bundles.src,
        link_dst=bundles.dst,
        link_count=bundles.parallel,
        link_bandwidth_Bps=bundles.bandwidth_Bps,
        link_latency_s=bundles.latency_s,
        link_efficiency=bundles.efficiency,
        coordinates=_coordinates(inside, spec, plan, leaves),
    )  # fmt: skip
    for array in (latency, *bundles):
        array.setflags(write=False)
    return wiring, _cluster(kinds, inside, wiring, leaves, cables, spec=spec, plan=plan, first=first)


def _inside(wirings: Sequence[Wiring], counts: Sequence[int]) -> _Inside:
    others = np.repeat([wiring.n_nodes - wiring.n_gpus for wiring in wirings], counts)
    first = sum(counts) * wirings[0].n_gpus + np.concatenate([[0], np.cumsum(others)]).astype(np.int64)
    return _Inside(wirings, counts, first)


def _single_cables(bundles: Bundles, first_leaf: int) -> Bundles:
    """Return the cables between switches one by one: a hash puts a message on one of them, not on the bundle."""
    between = np.minimum(bundles.src, bundles.dst) >= first_leaf
    cables = bundles.take(np.repeat(np.arange(len(bundles.src)), np.where(between, bundles.parallel, 1)))
    single = np.minimum(cables.src, cables.dst) >= first_leaf
    return cables._replace(
        parallel=np.where(single, 1, cables.parallel),
        bandwidth_Bps=cables.bandwidth_Bps / np.where(single, cables.parallel, 1),
    )


def _copies(inside: _Inside) -> list[Bundles]:
    """Return the bundles inside all nodes, kind by kind."""
    n = inside.n_gpus
    copies = []
    for wiring, nodes in inside.nodes():
        number = np.arange(nodes.start, nodes.stop, dtype=np.int64)[:, None]
        switches = inside.first_inner[number] - n
        ends = [
            np.where(end < n, number * n + end, switches + end).ravel() for end in (wiring.link_src, wiring.link_dst)
        ]
        columns = (wiring.link_count, wiring.link_bandwidth_Bps, wiring.link_latency_s, wiring.link_efficiency)
        copies.append(Bundles(*ends, *(np.tile(column, len(number)) for column in columns)))
    return copies


def _leaves_of(spec: ClusterSpec, plan: Plan) -> _Leaves:
    """Return the leaf of every adapter: by rail, in turn within a block of nodes, or along a dragonfly group."""
    node = np.repeat(np.arange(spec.nodes, dtype=np.int64), spec.used_nics)
    nic = np.tile(np.arange(spec.used_nics, dtype=np.int64), spec.nodes)
    block, place = np.divmod(node, plan.block_nodes)
    each = plan.leaves // plan.blocks
    if _by_rail(spec, plan):
        within = nic % spec.rails
    elif spec.fabric == "dragonfly":
        within = (place * spec.node_nics + nic) * each // (plan.block_nodes * spec.node_nics)
    else:
        within = nic * each // spec.node_nics
    return _Leaves(node, nic % spec.rails, block * each + within)


def _by_rail(spec: ClusterSpec, plan: Plan) -> bool:
    """Return whether every leaf serves one rail only."""
    return spec.fabric in ("rail", "rail_only") and plan.leaves == plan.blocks * spec.rails


def _planes_and_groups(spec: ClusterSpec, plan: Plan) -> tuple[Ints, Ints]:
    """Return int64[leaves]: the plane and the group of each leaf, both counted over the whole cluster."""
    leaf = np.arange(plan.leaves, dtype=np.int64)
    block, line = np.divmod(leaf, plan.leaves // plan.blocks)
    plane = line if plan.planes > 1 else np.zeros_like(leaf)
    if spec.fabric == "dragonfly":
        return plane, block
    if plan.tiers < 3:
        return plane, plane
    if _by_rail(spec, plan):
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


def _switch_cables(spec: ClusterSpec, plan: Plan) -> _Cables:
    """Return every bundle between two switches, the lower tier first."""
    if spec.fabric == "dragonfly":
        return _dragonfly_cables(spec, plan)
    _, group = _planes_and_groups(spec, plan)
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


def _joined(parts: list[tuple[Ints, Ints, Ints, float]]) -> _Cables:
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return _Cables(empty, empty, empty, np.zeros(0))
    low, high, count = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return _Cables(low, high, count, np.concatenate([np.full(len(part[0]), part[3]) for part in parts]))


def _dragonfly_cables(spec: ClusterSpec, plan: Plan) -> _Cables:
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


def _adapters(spec: ClusterSpec, gpus: int, leaves: _Leaves, first: _Numbers) -> list[Bundles]:
    """Return GPU to adapter and adapter to leaf, both directions of each."""
    gpu, nic = _gpu_nic_pairs(spec, gpus)
    counts = [kind.nodes for kind in spec.kinds]
    bus_Bps = np.repeat([kind.bus_rate_Bps for kind in spec.kinds], counts)[gpu // gpus]
    bus = _both(
        gpu, first.nic + nic, np.ones_like(gpu),
        rate_Bps=bus_Bps, latency_s=spec.bus_latency_s, efficiency=spec.bus_efficiency,
    )  # fmt: skip
    numbers = first.nic + np.arange(len(leaves.leaf), dtype=np.int64)
    cable_Bps = np.repeat([min(kind.nic_rate_Bps, spec.port_rate_Bps) for kind in spec.kinds], counts)[leaves.node]
    latency_s = spec.link_latency_s + FIBRE_S_PER_M * spec.nic_cable_m
    cables = _both(
        numbers, first.leaf + leaves.leaf, np.ones_like(numbers),
        rate_Bps=cable_Bps, latency_s=latency_s, efficiency=spec.efficiency,
    )  # fmt: skip
    return [*bus, *cables]


def _gpu_nic_pairs(spec: ClusterSpec, gpus: int) -> tuple[Ints, Ints]:
    """Return every GPU with each of its adapters, both counted over the cluster, in the order of the GPUs."""
    gpu = np.repeat(np.arange(spec.nodes * gpus, dtype=np.int64), spec.nics_per_gpu)
    copy = np.tile(np.arange(spec.nics_per_gpu, dtype=np.int64), spec.nodes * gpus)
    node, local = np.divmod(gpu, gpus)
    return gpu, node * spec.used_nics + local // spec.gpus_per_nic * spec.nics_per_gpu + copy


def _trunks(spec: ClusterSpec, cables: _Cables, first: _Numbers) -> list[Bundles]:
    latency_s = spec.link_latency_s + FIBRE_S_PER_M * cables.length_m
    low, high = first.leaf + cables.low, first.leaf + cables.high
    return _both(
        low, high, cables.parallel, rate_Bps=spec.port_rate_Bps, latency_s=latency_s, efficiency=spec.efficiency
    )


def _both(
    a: Ints, b: Ints, count: Ints, *, rate_Bps: float | Floats, latency_s: float | Floats, efficiency: float
) -> list[Bundles]:
    """Return the bundles of both directions; *rate_Bps* is of one cable."""
    rest = (
        count,
        rate_Bps * count.astype(np.float64),
        np.broadcast_to(np.asarray(latency_s, dtype=np.float64), a.shape),
        np.full(len(a), efficiency),
    )
    return [Bundles(a, b, *rest), Bundles(b, a, *rest)]


def _names(inside: _Inside, spec: ClusterSpec, plan: Plan) -> tuple[str, ...]:
    n, nodes = inside.n_gpus, range(spec.nodes)
    return (
        *(f"n{node}.{name}" for wiring, own in inside.nodes() for node in own for name in wiring.node_names[:n]),
        *(f"n{node}.{name}" for wiring, own in inside.nodes() for node in own for name in wiring.node_names[n:]),
        *(f"n{node}.nic{nic}" for node in nodes for nic in range(spec.used_nics)),
        *(f"leaf{i}" for i in range(plan.leaves)),
        *(f"spine{i}" for i in range(plan.spines)),
        *(f"core{i}" for i in range(plan.cores)),
    )


def _coordinates(inside: _Inside, spec: ClusterSpec, plan: Plan, leaves: _Leaves) -> Coordinates:
    """Return where each GPU stands: its rail and pod are those of its first adapter."""
    n = inside.n_gpus
    node, local = np.divmod(np.arange(spec.nodes * n, dtype=np.int64), n)
    nic = node * spec.used_nics + local // spec.gpus_per_nic * spec.nics_per_gpu
    line = np.arange(plan.leaves, dtype=np.int64) % (plan.leaves // plan.blocks)
    plane = np.concatenate(
        [
            inside.tiled(lambda wiring: wiring.coordinates.plane),
            leaves.rail,
            line if _by_rail(spec, plan) else np.full(plan.leaves, -1, dtype=np.int64),
            np.full(plan.spines + plan.cores, -1, dtype=np.int64),
        ]
    )
    rail, pod = leaves.rail[nic], node // plan.block_nodes
    for array in (node, local, rail, pod, plane):
        array.setflags(write=False)
    return Coordinates("cluster", node=node, local=local, rail=rail, pod=pod, plane=plane)


def _cluster(
    kinds: Sequence[Topology], inside: _Inside, wiring: Wiring, leaves: _Leaves, cables: _Cables,
    *, spec: ClusterSpec, plan: Plan, first: _Numbers,
) -> Cluster:  # fmt: skip
    """Return what a router reads, with the links looked up in the finished wiring."""
    _, nic = _gpu_nic_pairs(spec, inside.n_gpus)
    nics = first.nic + np.arange(len(leaves.leaf), dtype=np.int64)
    leaf_plane, leaf_group = _planes_and_groups(spec, plan)
    low, high = _neighbours(spec, cables, leaf_group)
    planes, groups = (_of_upper(plan, count) for count in (plan.planes, plan.groups))
    cluster = Cluster(
        spec=spec,
        plan=plan,
        node=kinds[0],
        kinds=tuple(kinds),
        kind=inside.kind,
        first_inner=inside.first_inner,
        first_nic=first.nic,
        first_leaf=first.leaf,
        first_spine=first.spine,
        nic_ptr=np.arange(spec.nodes * inside.n_gpus + 1, dtype=np.int64) * spec.nics_per_gpu,
        nic_of=first.nic + nic,
        nic_node=leaves.node,
        nic_rail=leaves.rail,
        nic_leaf=leaves.leaf,
        nic_up=wiring.find_links(nics, first.leaf + leaves.leaf),
        nic_down=wiring.find_links(first.leaf + leaves.leaf, nics),
        switch_plane=np.concatenate([leaf_plane, *planes]),
        switch_group=np.concatenate([leaf_group, groups[0], np.full(plan.cores, -1, dtype=np.int64)]),
        switch_tier=np.repeat(np.arange(3, dtype=np.int64), [plan.leaves, plan.spines, plan.cores]),
        up_ptr=np.concatenate([[0], np.cumsum(np.bincount(low, minlength=plan.switches))]).astype(np.int64),
        up_switch=high,
        up_link=wiring.find_links(first.leaf + low, first.leaf + high),
        down_link=wiring.find_links(first.leaf + high, first.leaf + low),
    )
    for value in (getattr(cluster, name) for name in cluster.__slots__):
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return cluster


def _neighbours(spec: ClusterSpec, cables: _Cables, leaf_group: Ints) -> tuple[Ints, Ints]:
    """Return every switch with those above it, in order; in a dragonfly with its peers, those of its group first."""
    low, high = cables.low, cables.high
    if spec.fabric != "dragonfly":
        order = np.lexsort((high, low))
    else:  # peers, not a tier above: each is listed at both ends
        low, high = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort((high, leaf_group[low] != leaf_group[high], low))
    return low[order], high[order]


def _of_upper(plan: Plan, parts: int) -> tuple[Ints, Ints]:
    """Return to which of *parts* equal parts, planes or groups, each spine and each core belongs."""
    spine, core = np.arange(plan.spines, dtype=np.int64), np.arange(plan.cores, dtype=np.int64)
    return spine * parts // max(plan.spines, 1), core * parts // max(plan.cores, 1)
