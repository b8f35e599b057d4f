"""Settings of a topology that change nothing here, with the reason: what is set in vain should not go unnoticed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collsim.simulation.row import Row
from collsim.topology import Topology
from collsim.topology.model import SIZES

__all__ = ["idle_settings"]

NAMES = ("switch.model", "switch.prefix")
HOST = ("cpu.memory_bandwidth", "cpu.read_rate")
OF_DRAGONFLIES = ("group_switches", "switch_endpoints", "global_links")
BETWEEN_SWITCHES = ("oversubscription", "tiers", "routing", "hash_seed", "flows_per_pair", "leaf_cable", "core_cable")
"""Figures of a cluster that only bytes between its switches meet."""
CABLES = {"leaf_cable": ("leaf_spine", "local"), "core_cable": ("spine_core", "global")}
"""The kinds of cables whose length each is."""


def idle_settings(topology: Topology, rows: Sequence[Row], told_before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the settings that change nothing on this topology, or for these rows, in a sentence each.

    Those that the warnings *told_before* name are left out: figures that a profile holds, adapters within one node.
    """
    found = []
    for path, value in topology.settings.items():
        if any(text.startswith(f"{path}=") for text in told_before):
            continue
        why = next(_reasons(topology, path, rows), None)
        if why:
            found.append(f"{path}={value} changes nothing: {why}")
    return tuple(found)


def _reasons(topology: Topology, path: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield why a setting changes nothing; none if it does, or may."""
    has_sockets = "cpu" in topology.wiring.node_kinds
    if path in NAMES:
        yield "it is a name"
    if path in HOST and not has_sockets:
        yield "no GPU copies through the host: all have links of their own"
    if path == "cpu.model" and topology.cluster is None and not has_sockets:
        yield "it counts between nodes, and where GPUs meet in sockets"
    if path == "nic.model" and topology.cluster is None:
        yield "adapters count between nodes"
    if path == "switch.in_network_efficiency" and topology.in_network_reduction is None:
        yield "these switches neither add nor copy"
    if path.startswith("scale_out.") and topology.cluster is None and path not in (*SIZES, "scale_out.fabric"):
        yield "all ranks are on one node"
    if path.startswith("scale_out.") and topology.cluster is not None:
        yield from _reasons_between_nodes(topology, path.removeprefix("scale_out."), rows)


def _reasons_between_nodes(topology: Topology, key: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield why a figure of a cluster changes nothing; none if it does, or may."""
    assert topology.cluster is not None
    spec, plan = topology.cluster.spec, topology.cluster.plan
    if key in OF_DRAGONFLIES and spec.fabric != "dragonfly":
        yield f"only a dragonfly has them, and this is {spec.fabric}"
    if key == "rails" and spec.fabric not in ("rail", "rail_only"):
        yield f"adapters of a {spec.fabric} are on no rails; take --fabric rail"
    if plan.switches == 1 and key in ("rails", *OF_DRAGONFLIES, *BETWEEN_SWITCHES):
        yield "all adapters are on one switch, which has ports for all"
    if key == "global_links" and plan.groups == 1:
        yield "there is one group"
    if key in CABLES and not any(plan.cables.get(kind) for kind in CABLES[key]):
        yield "there are no such cables"
    if key in ("hash_seed", "flows_per_pair") and not spec.hashes:
        yield f"{spec.routing} routing spreads messages without a hash; take --set scale_out.routing=ecmp"
    crossing = any(tier.tier == "fabric" for row in rows for tier in row.tiers)
    if key in BETWEEN_SWITCHES and any(row.tiers for row in rows) and not crossing:
        yield "nothing of these calls passes between two switches"
