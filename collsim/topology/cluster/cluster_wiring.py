"""A planned cluster as arrays: nodes, adapters, leaves, spines and cores, and how a router finds its way between them.

Of a large cluster most questions touch a small part. So its bundles and their numbers are made when they are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collsim.topology.cluster.links import Cables, ClusterNumbers, Inside, by_rail, layout_of, planes_and_groups
from collsim.topology.cluster.names import Names, Series
from collsim.topology.cluster.spec import Cluster, ClusterSpec, LaterCluster, Plan
from collsim.topology.model import Topology
from collsim.topology.wiring import COLUMNS, Coordinates, LaterWiring, Wiring

__all__ = ["wire_cluster"]

Ints = NDArray[np.int64]


def wire_cluster(kinds: Sequence[Topology], spec: ClusterSpec, plan: Plan) -> tuple[Wiring, Cluster]:
    """Return the wiring of copies of *kinds*, as many as ``spec.kinds`` says, and how a router finds its way in it.

    Each kind has the GPUs that take part only, all equally many.
    """
    layout = layout_of([kind.wiring for kind in kinds], spec, plan)
    inside, n_nics = layout.inside, len(layout.leaves.leaf)
    forwarders = (wiring.node_kinds[wiring.n_gpus :] * len(nodes) for wiring, nodes in inside.nodes())
    latency_s = np.concatenate(
        [
            np.zeros(layout.first.inner),
            inside.tiled(lambda wiring: wiring.node_latency_s[wiring.n_gpus :]),
            np.full(n_nics, spec.nic_latency_s),
            np.full(plan.switches, spec.switch_latency_s),
        ]
    )
    latency_s.setflags(write=False)
    wiring = LaterWiring.later(
        lambda: _columns(layout),
        _around=layout.around,
        _cables=lambda: layout.n_cables,
        node_names=_names(inside, spec, plan),
        node_kinds=(
            *("gpu",) * layout.first.inner, *itertools.chain(*forwarders), *("nic",) * n_nics,
            *("switch",) * plan.switches,
        ),
        n_gpus=layout.first.inner,
        _n_links=layout.n_links,
        node_latency_s=latency_s,
        coordinates=_coordinates(layout),
        link_nominal_Bps=None,
    )  # fmt: skip
    return wiring, _cluster(kinds, layout, wiring)


def _columns(layout: ClusterNumbers) -> Mapping[str, Any]:
    """Return the arrays of all bundles."""
    bundles = layout.everything()
    for array in bundles:
        array.setflags(write=False)
    return dict(zip(COLUMNS, bundles, strict=True))


def _names(inside: Inside, spec: ClusterSpec, plan: Plan) -> Names:
    n = inside.n_gpus
    endings = [(tuple(f".{name}" for name in wiring.node_names), own) for wiring, own in inside.nodes()]
    return Names(
        [
            *(Series("n", own, names[:n]) for names, own in endings),
            *(Series("n", own, names[n:]) for names, own in endings),
            Series("n", range(spec.nodes), tuple(f".nic{nic}" for nic in range(spec.used_nics))),
            Series("leaf", range(plan.leaves)),
            Series("spine", range(plan.spines)),
            Series("core", range(plan.cores)),
        ]
    )


def _coordinates(layout: ClusterNumbers) -> Coordinates:
    """Return where each GPU stands: its rail and pod are those of its first adapter."""
    inside, spec, plan, leaves, n = layout.inside, layout.spec, layout.plan, layout.leaves, layout.inside.n_gpus
    node, local = np.divmod(np.arange(spec.nodes * n, dtype=np.int64), n)
    nic = node * spec.used_nics + local // spec.gpus_per_nic * spec.nics_per_gpu
    line = np.arange(plan.leaves, dtype=np.int64) % (plan.leaves // plan.blocks)
    plane = np.concatenate(
        [
            inside.tiled(lambda wiring: wiring.coordinates.plane),
            leaves.rail,
            line if by_rail(spec, plan) else np.full(plan.leaves, -1, dtype=np.int64),
            np.full(plan.spines + plan.cores, -1, dtype=np.int64),
        ]
    )
    rail, pod = leaves.rail[nic], node // plan.block_nodes
    for array in (node, local, rail, pod, plane):
        array.setflags(write=False)
    return Coordinates("cluster", node=node, local=local, rail=rail, pod=pod, plane=plane)


def _cluster(kinds: Sequence[Topology], layout: ClusterNumbers, wiring: Wiring) -> Cluster:
    """Return the cluster as a router reads it; its links are looked up in the finished wiring when first read."""
    spec, plan, inside, first, leaves = layout.spec, layout.plan, layout.inside, layout.first, layout.leaves
    _, nic = layout.gpu_nic_pairs(np.arange(spec.nodes, dtype=np.int64))
    leaf_plane, leaf_group = planes_and_groups(spec, plan)
    low, high, cables = _neighbours(spec, layout.cables, leaf_group)
    planes, groups = (_of_upper(plan, count) for count in (plan.planes, plan.groups))
    known: dict[str, Any] = {
        "spec": spec,
        "plan": plan,
        "node": kinds[0],
        "kinds": tuple(kinds),
        "kind": inside.kind,
        "first_inner": inside.first_inner,
        "first_nic": first.nic,
        "first_leaf": first.leaf,
        "first_spine": first.spine,
        "nic_ptr": np.arange(spec.nodes * inside.n_gpus + 1, dtype=np.int64) * spec.nics_per_gpu,
        "nic_of": first.nic + nic,
        "nic_node": leaves.node,
        "nic_rail": leaves.rail,
        "nic_leaf": leaves.leaf,
        "switch_plane": np.concatenate([leaf_plane, *planes]),
        "switch_group": np.concatenate([leaf_group, groups[0], np.full(plan.cores, -1, dtype=np.int64)]),
        "switch_tier": np.repeat(np.arange(3, dtype=np.int64), [plan.leaves, plan.spines, plan.cores]),
        "up_ptr": np.concatenate([[0], np.cumsum(np.bincount(low, minlength=plan.switches))]).astype(np.int64),
        "up_switch": high,
        "up_cables": cables,
    }
    _freeze(known)
    ends = [(first.nic + np.arange(len(leaves.leaf)), first.leaf + leaves.leaf), (first.leaf + low, first.leaf + high)]
    return LaterCluster.later(lambda: _links(wiring, *ends), **known)


def _links(wiring: Wiring, nics: tuple[Ints, Ints], switches: tuple[Ints, Ints]) -> Mapping[str, Ints]:
    """Return the numbers of links between ends, low and high: adapters and leaves, switches and those above."""
    numbers = {
        "nic_up": wiring.find_links(*nics),
        "nic_down": wiring.find_links(*nics[::-1]),
        "up_link": wiring.find_links(*switches),
        "down_link": wiring.find_links(*switches[::-1]),
    }
    _freeze(numbers)
    return numbers


def _freeze(values: Mapping[str, Any]) -> None:
    for value in values.values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


def _neighbours(spec: ClusterSpec, cables: Cables, leaf_group: Ints) -> tuple[Ints, Ints, Ints]:
    """Return every switch with those above it and the cables to each, in order.

    In a dragonfly the others are its peers, those of its group first.
    """
    low, high, count = cables.low, cables.high, cables.parallel
    if spec.fabric != "dragonfly":
        order = np.lexsort((high, low))
    else:  # peers, not a tier above: each is listed at both ends
        low, high, count = np.concatenate([low, high]), np.concatenate([high, low]), np.concatenate([count, count])
        order = np.lexsort((high, leaf_group[low] != leaf_group[high], low))
    return low[order], high[order], count[order]


def _of_upper(plan: Plan, parts: int) -> tuple[Ints, Ints]:
    """Return to which of *parts* equal parts, planes or groups, each spine and each core belongs."""
    spine, core = np.arange(plan.spines, dtype=np.int64), np.arange(plan.cores, dtype=np.int64)
    return spine * parts // max(plan.spines, 1), core * parts // max(plan.cores, 1)
