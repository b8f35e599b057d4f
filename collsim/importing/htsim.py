"""Topologies of htsim: a fat tree by its radices and speeds, tier by tier."""

from __future__ import annotations

import re
from itertools import pairwise

from collsim.core.errors import Fault, Faults, did_you_mean
from collsim.importing.fabric_tree import FabricTree
from collsim.importing.machine import plural

__all__ = ["read_htsim"]

KEYS = (
    "nodes", "tiers", "podsize", "tier", "downlink_speed_gbps", "radix_down", "radix_up", "downlink_latency_ns",
    "switch_latency_ns", "bundle", "oversubscribed", "queue_down", "queue_up",
)  # fmt: skip
MOST_NODES = 2**20


def read_htsim(text: str, file: str, faults: Faults) -> FabricTree:
    """Return the fabric of a topology file of htsim; what is wrong with it goes to *faults*."""
    tiers: list[dict[str, float]] = [{}]
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        key, where = words[0].lower(), f"{file}:{number}"
        if key not in KEYS:
            hint = f"{did_you_mean(key, KEYS)}keys: {', '.join(KEYS[:8])}"
            faults.append(Fault(f'unknown key "{words[0][:30]}"', where, hint))
            continue
        if len(words) != 2 or not re.fullmatch(r"\d+(?:\.\d+)?", words[1]):
            faults.append(Fault(f'"{line.strip()[:40]}" is not a key with a number', where, f"such as {words[0]} 8"))
            continue
        if key == "tier":
            tiers.append({})
        if key in tiers[-1]:
            faults.append(Fault(f"{words[0]} is there twice", where, "give it once in each tier"))
        tiers[-1][key] = float(words[1])
    return _tree(tiers[0], tiers[1:], file, faults)


def _tree(head: dict[str, float], tiers: list[dict[str, float]], file: str, faults: Faults) -> FabricTree:
    """Return the fabric of a head and its tiers."""
    nodes, wanted = int(head.get("nodes", 0)), int(head.get("tiers", 0))
    if not 2 <= nodes <= MOST_NODES:
        faults.append(Fault(f"{plural(nodes, 'node')}", file, f"a fabric joins at least 2, and {MOST_NODES:,} at most"))
    if wanted != len(tiers):
        faults.append(
            Fault(f"Tiers is {wanted}, but {plural(len(tiers), 'tier')} follow", file, f"write Tiers {len(tiers)}")
        )
    for number, tier in enumerate(tiers):
        needed = ("downlink_speed_gbps", "radix_down") + (("radix_up",) if number + 1 < len(tiers) else ())
        for key in needed:
            if not tier.get(key):
                faults.append(Fault(f"tier {number} has no {key}", file, f"write {key.title()} 8 below Tier {number}"))
    if faults or not tiers:
        return FabricTree({})
    per_leaf = int(tiers[0]["radix_down"])
    tree = FabricTree({f"node{i}": [f"leaf{i // per_leaf}"] for i in range(nodes)}, tiers=len(tiers), is_endpoints=True)
    tree.leaves = -(-nodes // per_leaf)
    tree.radix = max(int(tier["radix_down"] + tier.get("radix_up", 0)) for tier in tiers)
    tree.rate_Bps = tiers[0]["downlink_speed_gbps"] * 1e9 / 8
    for below, tier in pairwise(tiers):  # each switch below has as many cables as ports up
        below_count = tree.leaves if below is tiers[0] else tree.upper
        tree.upper += int(below_count * below["radix_up"] // tier["radix_down"])
    if len(tiers) > 1:
        above = tiers[0]["radix_up"] * tiers[1]["downlink_speed_gbps"]
        tree.oversubscription = per_leaf * tiers[0]["downlink_speed_gbps"] / above
    tree.read = [f"{plural(nodes, 'endpoint')} on {plural(tree.leaves, 'leaf switch')}, {plural(len(tiers), 'tier')}"]
    for number, tier in enumerate(tiers):
        up = f", {tier['radix_up']:g} up" if tier.get("radix_up") else ""
        tree.read.append(
            f"tier {number}: {tier['radix_down']:g} ports down at {tier['downlink_speed_gbps']:g} Gb/s{up}"
        )
    return tree
