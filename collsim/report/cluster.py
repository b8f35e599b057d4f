"""A cluster as text and as a picture: switches by tier, cables, rates and counts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from collsim.core.units import format_bandwidth, format_count, format_time
from collsim.topology import Topology, describe

__all__ = ["cluster_rows", "cluster_svg", "tier_rows"]

MOST_BOXES = 16
"""A row of more boxes shows the first and the last of them."""
WIDTH, MARGIN, STOREY, BOX_HEIGHT = 960, 40, 120.0, 32.0


def cluster_rows(shown: dict[str, Any]) -> list[tuple[str, str]]:
    """Return one line per count and total of what `describe` says of a cluster."""
    spec, plan = shown["cluster"], shown["plan"]
    dragonfly, reduction = spec["fabric"] == "dragonfly", spec["in_network_reduction"]
    rows = [
        ("GPUs", f"{shown['ranks']:,} on {spec['nodes']:,} nodes, {spec['gpus_per_node']} of {spec['node_gpus']} each"),
        *_kind_rows(spec),
        ("fabric, network, routing", f"{spec['fabric']}, {spec['network']}, {spec['routing']}"),
        ("in-network reduction", f"{reduction}, off unless enabled" if reduction else "none"),
        ("per GPU inside its node, one direction", format_bandwidth(shown["per_gpu_uni_Bps"])),
        ("per GPU to other nodes, one direction", format_bandwidth(shown["per_gpu_scale_out_Bps"])),
        ("per node to others, one direction", format_bandwidth(shown["node_scale_out_Bps"])),
        ("bisection, one direction", format_bandwidth(shown["bisection_uni_Bps"])),
        ("adapters", f"{plan['cables']['nic_leaf']:,}, on {spec['rails']} rails"),
        ("switch", f"{spec['radix']} ports of {spec['port_rate_Bps'] * 8 / 1e9:g} Gb/s"),
        ("switches", _switches(plan, dragonfly=dragonfly)),
        ("nodes that share leaves", f"{plan['block_nodes']}, in {plan['blocks']} blocks"),
        ("cables", ", ".join(f"{count:,} {kind.replace('_', '-')}" for kind, count in plan["cables"].items())),
        ("transceivers", f"{plan['transceivers']:,}"),
        ("GPU to GPU over one switch", format_time(shown["same_leaf_latency_s"])),
    ]  # fmt: skip
    if dragonfly:
        rows.append(("groups", f"{plan['groups']}, {plan['global_links']} cables between any two"))
    if not shown["connected"]:
        rows.append(("connected", "no: some GPUs cannot reach others"))
    return rows


def _kind_rows(spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a line for each kind of nodes, if there are several."""
    ends = list(itertools.accumulate((kind["nodes"] for kind in spec["mix"]), initial=0))
    return [
        (
            f"nodes n{first} to n{first + kind['nodes'] - 1}" if kind["nodes"] > 1 else f"node n{first}",
            f"{kind['name']}, {kind['nics']} adapters of {kind['nic_rate_Bps'] * 8 / 1e9:g} Gb/s",
        )
        for kind, first in zip(spec["mix"], ends, strict=False)
    ]


def _switches(plan: dict[str, Any], *, dragonfly: bool) -> str:
    if dragonfly:
        return f"{plan['leaves']:,} in {plan['groups']} groups"
    counts = [f"{plan[kind]:,} {kind}" for kind in ("leaves", "spines", "cores") if plan[kind]]
    return f"{plan['switches']:,}: {', '.join(counts)}"


def tier_rows(shown: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per kind of cable."""
    return [
        (
            tier["from"],
            tier["to"],
            f"{tier['cables']:,}",
            format_bandwidth(tier["cable_uni_Bps"]),
            format_bandwidth(tier["total_uni_Bps"]),
            f"{tier['length_m']:g} m",
        )
        for tier in shown["tiers"]
    ]


def cluster_svg(topology: Topology, style: str) -> str:
    """Return a cluster as an SVG document: one row for each tier, nodes at the bottom; *style* is its style sheet."""
    shown, rows = describe(topology), _rows(topology)
    body, height, gone = [], 96 + STOREY * len(rows), _gone(topology)
    places: list[dict[int, float]] = []
    for level, row in enumerate(rows):
        numbers = _some(row.first, row.boxes)
        pitch = (WIDTH - 2 * MARGIN) / len(numbers)
        across = [MARGIN + pitch * (i + 0.5) for i in range(len(numbers))]
        places.append({number: x for number, x in zip(numbers, across, strict=True) if number is not None})
        for number, x in zip(numbers, across, strict=True):
            name = f"{row.boxes - len(numbers) + 1:,} more" if number is None else row.name.format(number - row.first)
            look = "gone" if number in gone else row.look
            body.append(_box(x, 110 + STOREY * level, min(pitch - 8, 150.0), name, look))
    pairs = _joined(topology)
    lines = [line for level in range(len(rows) - 1) for line in _between(places, level, pairs, gone)]
    notes = _notes(shown)
    if topology.damage:
        notes.append(topology.damage.summary + "; switches that have failed are in dashes" * bool(gone))
    text = [
        f'<text class="soft" x="{MARGIN}" y="{height + 22 * i:.0f}" font-size="14">{escape(note)}</text>'
        for i, note in enumerate(notes)
    ]
    size = min(20.0, 1.75 * (WIDTH - 2 * MARGIN) / max(len(topology.title), 1))
    title = f'<text x="{MARGIN}" y="36" font-size="{size:.1f}" font-weight="600">{escape(topology.title)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + 22 * len(notes):.0f}" width="{WIDTH}" '
        f'role="img" aria-label="{escape(topology.title, quote=True)}">\n<style>{style}</style>\n'
        + "\n".join([title, *lines, *body, *text])
        + "\n</svg>\n"
    )


class _Row(NamedTuple):
    """One row of the picture: how its boxes look, how they are called, the number of the first, and how many."""

    look: str
    name: str
    first: int
    boxes: int


NODES = 1_000_000_000
"""Nodes are numbered from here in a picture, after all switches."""


def _rows(topology: Topology) -> list[_Row]:
    """Return the rows from top to bottom; switches have the numbers of `Cluster`, groups those of the dragonfly."""
    assert topology.cluster is not None
    spec, plan = topology.cluster.spec, topology.cluster.plan
    nodes = _Row("box", f"n{{}}: {format_count(spec.gpus_per_node, 'GPU')}", NODES, spec.nodes)
    if spec.fabric == "dragonfly":
        return [_Row("switch", "group {}", 0, plan.groups), nodes]
    tiers = (
        _Row("switch", "core{}", plan.leaves + plan.spines, plan.cores),
        _Row("switch", "spine{}", plan.leaves, plan.spines),
        _Row("switch", "leaf{}", 0, plan.leaves),
    )
    return [*(tier for tier in tiers if tier.boxes), nodes]


def _joined(topology: Topology) -> set[tuple[int, int]]:
    """Return which boxes are joined, the upper one first."""
    import numpy as np

    cluster = topology.cluster
    assert cluster is not None
    if cluster.spec.fabric == "dragonfly":
        group = cluster.switch_group[cluster.nic_leaf]
        return set(zip(group.tolist(), (NODES + cluster.nic_node).tolist(), strict=True))
    low = np.repeat(np.arange(cluster.plan.switches), np.diff(cluster.up_ptr))
    upper = np.concatenate([cluster.up_switch, cluster.nic_leaf])
    lower = np.concatenate([low, NODES + cluster.nic_node])
    return set(zip(upper.tolist(), lower.tolist(), strict=True))


def _gone(topology: Topology) -> set[int]:
    """Return the switches that have failed, by their number in a picture; groups of a dragonfly have none."""
    cluster = topology.cluster
    if topology.damage is None or cluster is None or cluster.spec.fabric == "dragonfly":
        return set()
    return {node - cluster.first_leaf for node in topology.damage.nodes.tolist() if node >= cluster.first_leaf}


def _some(first: int, count: int) -> list[int | None]:
    """Return the numbers of *count* boxes; of many the first ones and the last, with None for those between.

    >>> _some(0, 3), len(_some(5, 100)), _some(5, 100)[-2:]
    ([0, 1, 2], 9, [None, 104])
    """
    if count <= MOST_BOXES:
        return list(range(first, first + count))
    return [*range(first, first + MOST_BOXES // 2 - 1), None, first + count - 1]


def _between(places: Sequence[dict[int, float]], level: int, pairs: set[tuple[int, int]], gone: set[int]) -> list[str]:
    """Return the lines from one row to the next, faded where they are many, in dashes to switches that are gone."""
    y1, y2 = 110 + STOREY * level + BOX_HEIGHT / 2, 110 + STOREY * (level + 1) - BOX_HEIGHT / 2
    ends = [
        (a, b, "lost" if {n, m} & gone else f"r{level % 5}")
        for n, a in places[level].items()
        for m, b in places[level + 1].items()
        if (n, m) in pairs
    ]
    faded = " faded" if len(ends) > 6 * MOST_BOXES else ""
    return [
        f'<path class="{look}{faded}" d="M {a:.1f} {y1:.1f} L {b:.1f} {y2:.1f}" stroke-width="1.4"/>'
        for a, b, look in ends
    ]


def _box(x: float, y: float, width: float, name: str, look: str) -> str:
    font = min(13.0, 1.7 * width / max(len(name), 1))
    return (
        f'<rect class="{look}" x="{x - width / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" width="{width:.1f}" '
        f'height="{BOX_HEIGHT:g}" rx="6" stroke-width="1.4"/>'
        f'<text x="{x:.1f}" y="{y + font / 3:.1f}" text-anchor="middle" font-size="{font:.1f}">{escape(name)}</text>'
    )


def _notes(shown: dict[str, Any]) -> list[str]:
    """Return the lines below the picture: cables of each tier, and the totals."""
    notes = [
        f"{tier['cables']:,} cables of {format_bandwidth(tier['cable_uni_Bps'])} from {tier['from']} to {tier['to']}, "
        f"{format_bandwidth(tier['total_uni_Bps'])} per direction"
        for tier in shown["tiers"]
    ]
    plan = shown["plan"]
    if shown["cluster"]["fabric"] == "dragonfly":
        notes.append(f"each group has {plan['leaves'] // plan['groups']} switches; all groups are joined to each other")
    notes.append("a line stands for all cables between two boxes")
    return notes
