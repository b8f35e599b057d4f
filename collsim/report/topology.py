"""A topology as text: totals per GPU, switches, and the source of every figure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from collsim.core.units import format_bandwidth, format_time
from collsim.report.cluster import cluster_rows, tier_rows
from collsim.topology import Topology, describe

__all__ = ["format_range", "topology_text"]

WIDTH = 110


def topology_text(topology: Topology, form: str = "table") -> str:
    """Return *topology* as ``table``, ``json`` or ``yaml`` (every node and link written out)."""
    if form == "yaml":
        return topology.to_yaml()
    shown = describe(topology)
    if form == "json":
        return json.dumps(shown, indent=2, allow_nan=False) + "\n"
    lines = [f"# {topology.name}: {topology.title}", f"# from {topology.source}", "#", *_totals(shown)]
    lines += ["#", *_links(shown), "#", "# figures"]
    for fact in shown["facts"]:
        if shown.get("wiring_table") and fact["path"].startswith("links["):
            continue
        lines.append(f"{fact['path']:<28} {fact['text']:<14} {fact['status']}")
        note = "; ".join(part for part in (fact["source"], fact["note"]) if part)
        lines += textwrap.wrap(note, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _totals(shown: dict[str, Any]) -> list[str]:
    """Return one line per total."""
    if "cluster" in shown:
        return [f"{name:<38} {value}" for name, value in cluster_rows(shown)]
    cpus = f" and {shown['cpus']} CPUs" if shown["cpus"] else ""
    rows = [
        ("GPUs", f"{shown['ranks']}{cpus}"),
        ("per GPU, one direction", format_range(shown["per_gpu_uni_Bps"], shown["per_gpu_uni_max_Bps"])),
        ("per GPU, both directions", format_range(shown["per_gpu_bidi_Bps"], shown["per_gpu_bidi_max_Bps"])),
        ("per GPU, achievable, one direction", format_bandwidth(shown["per_gpu_achievable_uni_Bps"])),
        ("all GPUs, one direction", format_bandwidth(shown["total_uni_Bps"])),
        ("all GPUs, both directions", format_bandwidth(shown["total_bidi_Bps"])),
        ("physical links", f"{shown['physical_links']} ({shown['links_per_gpu']} at a GPU, at most)"),
    ]
    if shown["bisection_uni_Bps"] is not None:
        rows.append(("bisection, one direction", format_bandwidth(shown["bisection_uni_Bps"])))
    rows += _switch_rows(shown["switches"])
    if not shown["connected"]:
        rows.append(("connected", "no: some GPUs cannot reach others"))
    return [f"{name:<36} {value}" for name, value in rows]


def format_range(least: float, most: float) -> str:
    """Return one rate, or two where GPUs differ."""
    return format_bandwidth(least) + (f" to {format_bandwidth(most)}" if most > least else "")


def _links(shown: dict[str, Any]) -> list[str]:
    """Return the link table: one row per kind of bundle, and for small irregular systems one per pair of nodes."""
    if "cluster" in shown:
        heads = ("from", "to", "cables", "rate each", "all of them", "length")
        return ["# network", *_columns(heads, tier_rows(shown))]
    head = ("bundles", "from", "to", "links each", "rate each", "latency", "achievable")
    rows = [
        (
            str(kind["bundles"]),
            kind["from"],
            kind["to"],
            str(kind["links"]),
            format_bandwidth(kind["link_bandwidth_Bps"]),
            format_time(kind["latency_s"]),
            f"{kind['efficiency']:.1%}",
        )
        for kind in shown["link_kinds"]
    ]
    lines = ["# links", *_columns(head, rows)]
    if shown["wiring_table"]:
        pairs = [
            (pair["a"], pair["b"], str(pair["links"]), format_bandwidth(pair["bandwidth_Bps"]))
            for pair in shown["wiring_table"]
        ]
        lines += ["#", "# wiring", *_columns(("a", "b", "links", "rate per direction"), pairs)]
    return lines


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows under their heads, in columns."""
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) for cells in (head, *rows)
    ]
    return [f"# {lines[0]}", *(f"  {line}" for line in lines[1:])]


def _switch_rows(switches: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines about switches as pairs of label and text: number, model, links, ports, latency."""
    if not switches:
        return []
    rows = [("switches", f"{switches['count']} {switches.get('model') or ''}")]
    if switches.get("planes"):
        planes = ", ".join(f"{plane['links']} to each of {plane['switches']}" for plane in switches["planes"])
        rows.append(("links from a GPU to the switches", planes))
    ports = f" of {switches['ports']}" if switches.get("ports") else ""
    rows.append(("switch ports used, at most", f"{switches['ports_used']}{ports}"))
    return [*rows, ("switch latency", format_time(switches["latency_s"]))]
