"""The plan of a cluster: leaves, spines, cores and cables; what does not fit is refused with the size that does.

Everything is arithmetic on the specification, in time that does not grow with the cluster.
"""

from __future__ import annotations

import math
from fractions import Fraction

from collsim.core.errors import Fault, SpecError
from collsim.topology.cluster.spec import ClusterSpec, Plan

__all__ = ["COPPER_REACH_M", "capacity", "plan_cluster"]

COPPER_REACH_M = 3.0
"""Longest passive copper cable of a 400G port (estimate: catalogues); longer ones have a transceiver at each end."""
MOST_TIERS = 3


def plan_cluster(spec: ClusterSpec) -> Plan:
    """Return the counts of a cluster.

    Raises
    ------
    SpecError
        The fabric cannot hold so many nodes; the hint names the largest number that it can.

    Examples
    --------
    >>> plan = plan_cluster(
    ...     ClusterSpec(
    ...         64, 8, 8, 1, 1, "rail", "infiniband", "adaptive", rails=8, radix=64, port_rate_Bps=50e9,
    ...         nic_rate_Bps=50e9, bus_rate_Bps=63e9,
    ...     )
    ... )
    >>> plan.leaves, plan.spines, plan.cores
    (16, 8, 0)
    """  # fmt: skip
    most = capacity(spec)
    if spec.nodes > most:
        raise SpecError(_too_large(spec, most))
    if spec.fabric == "dragonfly":
        return _dragonfly(spec)
    tiers = spec.tiers or next(n for n in range(1, MOST_TIERS + 1) if spec.nodes <= _tree_capacity(spec, n))
    return _tree(spec, tiers)


def capacity(spec: ClusterSpec) -> int:
    """Return the number of nodes that the fabric holds at most, with its radix, tiers and oversubscription."""
    if spec.fabric == "dragonfly":
        ports, switches, far = _dragonfly_ports(spec)
        groups = far * switches // (spec.global_links or 1) + 1
        return max(groups * _group_nodes(ports * switches, spec), 0)
    if spec.fabric == "single_switch":
        return spec.radix // spec.node_nics if (spec.tiers or 1) == 1 else 0
    return _tree_capacity(spec, spec.tiers or MOST_TIERS)


def _too_large(spec: ClusterSpec, most: int) -> Fault:
    nics, ports = spec.nodes * spec.node_nics, f"switches of {spec.radix} ports"
    kind = {"single_switch": f"one switch of {spec.radix} ports", "dragonfly": f"a dragonfly of {ports}"}.get(
        spec.fabric, f"{'three' if spec.tiers is None else spec.tiers} tiers of {ports}"
    )
    what = f"{spec.nodes} nodes with {spec.node_nics} adapters each do not fit on {kind}: {nics:,} ports are needed"
    if spec.racks and most < 1:
        down = _down_ports(spec, MOST_TIERS)
        largest = down // _share(spec) if spec.fabric in ("rail", "rail_only") else down
        what = f"racks of {spec.nodes // spec.racks} nodes do not fit under leaves of {spec.radix} ports"
        return Fault(what, "scale_out.racks", f"racks of at most {largest} nodes fit: give more racks, or raise radix")
    if most < 1:
        return Fault(what, "scale_out.nodes", "not even one node fits: raise radix, or take another fabric")
    fits = f"at most {most:,} nodes fit ({most * spec.node_gpus:,} GPUs)"
    other = "take fabric rail or fat_tree" if spec.fabric in ("single_switch", "dragonfly") else "raise radix or tiers"
    return Fault(what, "scale_out.nodes", f"{fits}; lower nodes, or {other}")


def _share(spec: ClusterSpec) -> int:
    """Return the adapters of one node that lie on one leaf or may: those of a rail, or all."""
    return spec.node_nics // spec.rails if spec.fabric in ("rail", "rail_only") else spec.node_nics


def _down_ports(spec: ClusterSpec, tiers: int) -> int:
    """Return the ports of a leaf that adapters may take."""
    if tiers == 1:
        return spec.radix
    ratio = Fraction(spec.oversubscription).limit_denominator(1000)
    down = int(spec.radix * ratio / (1 + ratio))
    return down - (down + math.ceil(down / ratio) > spec.radix)


def _block(spec: ClusterSpec, tiers: int) -> tuple[int, int]:
    """Return the number of nodes that share leaves, at most, and the number of leaves that they share.

    On rails that is one leaf for each rail. In a fat tree whole nodes share a leaf, and a node with more adapters than
    a leaf has ports takes several leaves.
    """
    down, share = _down_ports(spec, tiers), _share(spec)
    if spec.racks:
        return _rack(spec, tiers, down)
    if spec.fabric == "rail_only" or (spec.fabric == "rail" and tiers > 1):
        return down // share, spec.rails
    nics = spec.node_nics
    if nics <= down:
        return down // nics, 1
    return (1, -(-nics // down)) if tiers > 1 else (0, 1)


def _rack(spec: ClusterSpec, tiers: int, down: int) -> tuple[int, int]:
    """Return the nodes of a rack and its leaves; no node if the ports of leaves do not reach."""
    nodes = spec.nodes // (spec.racks or 1)
    if spec.fabric in ("rail", "rail_only"):
        leaves, fits = spec.rails, nodes * _share(spec) <= down
    else:
        each = down // nodes  # adapters of one node on a leaf
        leaves, fits = -(-spec.node_nics // max(each, 1)), each > 0
    return (nodes if fits and (tiers > 1 or spec.racks == 1) else 0), leaves


def _tree_capacity(spec: ClusterSpec, tiers: int) -> int:
    """Return the number of nodes that a tree of *tiers* tiers holds."""
    if spec.fabric == "single_switch":
        return spec.radix // spec.node_nics if tiers == 1 else 0
    nodes, leaves = _block(spec, tiers)
    if tiers == 1:
        return nodes
    per_plane = leaves // _planes(spec)
    if tiers == 2:
        return nodes * (spec.radix // per_plane)
    half = spec.radix // 2
    if spec.fabric == "fat_tree":
        return nodes * (spec.radix * half // leaves)
    return nodes * (spec.radix // per_plane) * half  # every group holds leaves of one rail only


def _planes(spec: ClusterSpec) -> int:
    return spec.rails if spec.fabric == "rail_only" else 1


def _tree(spec: ClusterSpec, tiers: int) -> Plan:
    """Return the plan of a tree: blocks of equal size, then spines and cores that carry what comes from below."""
    nodes, leaves_each = _block(spec, tiers)
    blocks = -(-spec.nodes // nodes)
    block_nodes = -(-spec.nodes // blocks)
    leaves, planes = blocks * leaves_each, _planes(spec)
    on_rails = leaves_each == spec.rails and spec.fabric in ("rail", "rail_only") and nodes > 0
    used = block_nodes * (_share(spec) if on_rails else -(-spec.node_nics // leaves_each))
    up = math.ceil(used / Fraction(spec.oversubscription).limit_denominator(1000)) if tiers > 1 else 0
    groups, spines, spine_up, cores = planes, 0, 0, 0
    if tiers == 2:
        spines = planes * -(-(leaves // planes) * up // spec.radix)
    elif tiers == 3:
        groups, spines, spine_up, cores = _upper_tiers(spec, leaves, leaves_each, up, planes)
    cables = {"nic_leaf": spec.adapters, "leaf_spine": leaves * up, "spine_core": spines * spine_up}
    lengths = {"nic_leaf": spec.nic_cable_m, "leaf_spine": spec.leaf_cable_m, "spine_core": spec.core_cable_m}
    return Plan(
        tiers=tiers, planes=planes, groups=groups, blocks=blocks, block_nodes=block_nodes, leaf_ports=used,
        leaves=leaves, leaf_up=up, spines=spines, spine_up=spine_up, cores=cores, cables=_present(cables),
        transceivers=_transceivers(cables, lengths),
    )  # fmt: skip


def _upper_tiers(spec: ClusterSpec, leaves: int, leaves_each: int, up: int, planes: int) -> tuple[int, int, int, int]:
    """Return groups, spines, cables from a spine up, and cores: half of a spine's ports lead down, half up."""
    half = spec.radix // 2
    lines = leaves_each if spec.fabric in ("rail", "rail_only") else 1
    per_line = leaves // lines
    groups = lines * -(-per_line // half)
    group_leaves = -(-leaves // groups)
    group_spines = -(-group_leaves * up // half)
    spines = groups * group_spines
    spine_up = -(-group_leaves * up // group_spines)
    cores = planes * -(-(spines // planes) * spine_up // spec.radix)
    return groups, spines, spine_up, cores


def _dragonfly_ports(spec: ClusterSpec) -> tuple[int, int, int]:
    """Return adapters on a switch, switches of a full group, and ports of a switch that lead to other groups.

    A quarter, a half and the rest of the radix: for 64 ports 16, 32 and 17, as in HPE Slingshot.
    """
    ports = spec.switch_endpoints or max(spec.radix // 4, 1)
    switches = spec.group_switches or max(spec.radix // 2, 1)
    return ports, switches, max(spec.radix - ports - (switches - 1), 0)


def _group_nodes(endpoints: int, spec: ClusterSpec) -> int:
    return endpoints // spec.node_nics


def _dragonfly(spec: ClusterSpec) -> Plan:
    ports, most, far = _dragonfly_ports(spec)
    nodes = _group_nodes(ports * most, spec)
    groups = -(-spec.nodes // nodes)
    block_nodes = -(-spec.nodes // groups)
    switches = most if groups > 1 else -(-block_nodes * spec.node_nics // ports)
    # all groups get the switches of a full one: without them there would be no ports to the other groups
    local = (most - 1) // (switches - 1) if switches > 1 else 0
    between = (spec.global_links or switches * far // (groups - 1)) if groups > 1 else 0
    cables = {
        "nic_leaf": spec.adapters,
        "local": groups * switches * (switches - 1) // 2 * local,
        "global": groups * (groups - 1) // 2 * between,
    }
    lengths = {"nic_leaf": spec.nic_cable_m, "local": spec.leaf_cable_m, "global": spec.core_cable_m}
    return Plan(
        tiers=1, planes=1, groups=groups, blocks=groups, block_nodes=block_nodes, leaf_ports=ports,
        leaves=groups * switches, leaf_up=0, local_links=local, global_links=between, cables=_present(cables),
        transceivers=_transceivers(cables, lengths),
    )  # fmt: skip


def _present(cables: dict[str, int]) -> dict[str, int]:
    return {kind: count for kind, count in cables.items() if count}


def _transceivers(cables: dict[str, int], lengths: dict[str, float]) -> int:
    return sum(2 * count for kind, count in cables.items() if lengths[kind] > COPPER_REACH_M)
