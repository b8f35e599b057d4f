"""The figures of a cluster that a reader asks for first, as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collsim.topology.cluster.spec import ClusterSpec, Plan

if TYPE_CHECKING:
    from collsim.topology.model import Topology

__all__ = ["bisection_Bps", "describe_cluster", "tiers_of"]

KINDS = {
    "nic_leaf": ("adapters", "leaves"),
    "leaf_spine": ("leaves", "spines"),
    "spine_core": ("spines", "cores"),
    "local": ("leaves", "leaves of the group"),
    "global": ("groups", "groups"),
}
"""Ends of the cables of each kind, the lower end first."""


def describe_cluster(topology: Topology, kinds: Sequence[dict[str, Any]], *, connected: bool) -> dict[str, Any]:
    """Return counts, tiers and facts of a cluster, in SI, with units in the keys.

    *per_gpu_uni_Bps* is the scale-up rate inside a node, of the slowest kind, *per_gpu_scale_out_Bps* that of a GPU's
    share of the adapters, both of one direction. *same_leaf_latency_s* is the way from GPU to GPU over one switch.

    Parameters
    ----------
    topology : Topology
        A cluster.
    kinds : sequence of dict
        What `collsim.topology.describe` says of a node of each kind.
    connected : bool
        Whether every GPU reaches every other.

    Examples
    --------
    >>> from collsim.topology import describe, load_topology
    >>> shown = describe(load_topology("hgx_h100", scale_out={"nodes": 64}))
    >>> shown["plan"]["leaves"], shown["plan"]["spines"], shown["bisection_uni_Bps"]
    (16, 8, 12800000000000.0)
    """
    cluster = topology.cluster
    assert cluster is not None
    spec, plan = cluster.spec, cluster.plan
    node = min(kinds, key=lambda kind: kind["per_gpu_uni_Bps"])
    inside = ("per_gpu_uni_Bps", "per_gpu_bidi_Bps", "total_uni_Bps", "bisection_uni_Bps", "switches", "link_kinds")
    identity = {key: value for key, value in topology.to_dict().items() if key != "facts"}
    return {
        **identity,
        "cluster": {name: getattr(spec, name) for name in spec.__slots__}
        | {"mix": [dataclasses.asdict(kind) for kind in spec.mix]},
        "plan": plan.to_dict(),
        "node": {"ranks": node["ranks"], **{key: node[key] for key in inside}},
        "per_gpu_uni_Bps": node["per_gpu_uni_Bps"],
        "per_gpu_scale_out_Bps": spec.link_rate_Bps * spec.nics_per_gpu / spec.gpus_per_nic,
        "node_scale_out_Bps": spec.link_rate_Bps * spec.used_nics,
        "tiers": tiers_of(spec, plan),
        "bisection_uni_Bps": bisection_Bps(spec, plan),
        "same_leaf_latency_s": _same_leaf_latency_s(topology),
        "connected": connected,
        "facts": [fact.to_dict() for fact in topology.facts],
    }


def tiers_of(spec: ClusterSpec, plan: Plan) -> list[dict[str, Any]]:
    """Return one row for each kind of cable: what it joins, how many, the rate of one and of all, its length."""
    lengths = {"nic_leaf": spec.nic_cable_m, "leaf_spine": spec.leaf_cable_m, "local": spec.leaf_cable_m}
    rows = []
    for kind, count in plan.cables.items():
        rate = spec.link_rate_Bps if kind == "nic_leaf" else spec.port_rate_Bps
        total = spec.adapters_Bps if kind == "nic_leaf" else count * rate
        ends = dict(zip(("from", "to"), KINDS[kind], strict=True))
        length_m = lengths.get(kind, spec.core_cable_m)
        rates = {"cable_uni_Bps": rate, "total_uni_Bps": total}
        rows.append({"kind": kind, **ends, "cables": count, **rates, "length_m": length_m})
    return rows


def bisection_Bps(spec: ClusterSpec, plan: Plan) -> float:
    """Return the rate between two halves of the nodes, one direction, by the thinnest tier.

    In a tree that is half of what the thinnest tier carries, as if all traffic climbed to the top. In a dragonfly of
    several groups it is the cables between one half of the groups and the other, if they carry less than the adapters.
    """
    adapters = spec.adapters_Bps / 2
    if spec.fabric != "dragonfly":
        above = (count for kind, count in plan.cables.items() if kind != "nic_leaf")
        return min([adapters, *(count * spec.port_rate_Bps / 2 for count in above)])
    half = plan.groups // 2
    between = half * (plan.groups - half) * plan.global_links * spec.port_rate_Bps
    return min(adapters, between) if plan.groups > 1 else adapters


def _same_leaf_latency_s(topology: Topology) -> float:
    """Return the latency from a GPU to one of another node over one switch: two buses, adapters and cables."""
    import numpy as np

    assert topology.cluster is not None
    whole = topology.damage.healthy if topology.damage else topology  # clusters count nodes as of the one in order
    wiring, cluster = whole.wiring, topology.cluster
    bus = float(wiring.link_latency_s[wiring.find_links(np.zeros(1, dtype=np.int64), cluster.nic_of[:1])[0]])
    nic, leaf = float(wiring.node_latency_s[cluster.first_nic]), float(wiring.node_latency_s[cluster.first_leaf])
    return 2 * (bus + nic + float(wiring.link_latency_s[cluster.nic_up[0]])) + leaf
