"""A cluster as text and as a picture: switches by tier, cables, rates and counts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from collsim.topology import Topology, describe
from collsim.units import format_bandwidth, format_time

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
        ("fabric, network, routing", f"{spec['fabric']}, {spec['network']}, {spec['routing']}"),
        ("in-network reduction", f"{reduction}, off unless enabled" if reduction else "none"),
        ("per GPU inside its node, one direction", format_bandwidth(shown["per_gpu_uni_Bps"])),
        ("per GPU to other nodes, one direction", format_bandwidth(shown["per_gpu_scale_out_Bps"])),
        ("per node to others, one direction", format_bandwidth(shown["node_scale_out_Bps"])),
        ("bisection, one direction", format_bandwidth(shown["bisection_uni_Bps"])),
        ("adapters", f"{spec['nodes'] * plan_adapters(spec):,}, on {spec['rails']} rails"),
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


def plan_adapters(spec: dict[str, Any]) -> int:
    """Return the adapters of a whole node."""
    return -(-int(spec["node_gpus"]) // int(spec["gpus_per_nic"])) * int(spec["nics_per_gpu"])


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
    shown = describe(topology)
    rows = _boxes(shown)
    body, height = [], 96 + STOREY * len(rows)
    places: list[list[float]] = []
    for level, (look, names) in enumerate(rows):
        y = 110 + STOREY * level
        pitch = (WIDTH - 2 * MARGIN) / len(names)
        places.append([MARGIN + pitch * (i + 0.5) for i in range(len(names))])
        body += [_box(x, y, min(pitch - 8, 150.0), name, look) for x, name in zip(places[-1], names, strict=True)]
    lines = [line for level in range(len(rows) - 1) for line in _between(places[level], places[level + 1], level)]
    notes = _notes(shown)
    total = height + 22 * len(notes)
    text = [
        f'<text class="soft" x="{MARGIN}" y="{height + 22 * i:.0f}" font-size="14">{escape(note)}</text>'
        for i, note in enumerate(notes)
    ]
    size = min(20.0, 1.75 * (WIDTH - 2 * MARGIN) / max(len(topology.title), 1))
    title = f'<text x="{MARGIN}" y="36" font-size="{size:.1f}" font-weight="600">{escape(topology.title)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total:.0f}" width="{WIDTH}" role="img" '
        f'aria-label="{escape(topology.title, quote=True)}">\n<style>{style}</style>\n'
        + "\n".join([title, *lines, *body, *text])
        + "\n</svg>\n"
    )


def _boxes(shown: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the rows of the picture from top to bottom: how a box looks, and what stands in each."""
    spec, plan = shown["cluster"], shown["plan"]
    if spec["fabric"] == "dragonfly":
        each = plan["leaves"] // plan["groups"]
        upper = [("switch", _some(plan["groups"], f"group {{}}: {each} switches"))]
    else:
        tiers = (("core", "cores"), ("spine", "spines"), ("leaf", "leaves"))
        upper = [("switch", _some(plan[count], name + "{}")) for name, count in tiers if plan[count]]
    return [*upper, ("box", _some(spec["nodes"], f"n{{}}: {spec['gpus_per_node']} GPUs"))]


def _some(count: int, name: str) -> list[str]:
    """Return the names of *count* boxes, numbered in the place of the braces; of many the first ones and the last."""
    if count <= MOST_BOXES:
        return [name.format(i) for i in range(count)]
    first = MOST_BOXES // 2 - 1
    return [*(name.format(i) for i in range(first)), f"{count - first - 1:,} more", name.format(count - 1)]


def _between(above: Sequence[float], below: Sequence[float], level: int) -> list[str]:
    """Return the lines from one row to the next: all pairs, faded where they are many."""
    y1, y2 = 110 + STOREY * level + BOX_HEIGHT / 2, 110 + STOREY * (level + 1) - BOX_HEIGHT / 2
    faded = " faded" if len(above) * len(below) > 4 * MOST_BOXES else ""
    return [
        f'<path class="r{level % 5}{faded}" d="M {a:.1f} {y1:.1f} L {b:.1f} {y2:.1f}" stroke-width="1.4"/>'
        for a in above
        for b in below
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
    spec = shown["cluster"]
    if spec["fabric"] in ("rail", "rail_only") and shown["plan"]["leaves"] > 1:
        notes.append("a leaf serves one rail: adapter i of the nodes of its block; lines show tiers, not single cables")
    else:
        notes.append("lines show which tiers are joined, not single cables")
    return notes
