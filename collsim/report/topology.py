"""A topology as text: totals per GPU, switches, and the source of every figure."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from collsim.topology import Topology, describe
from collsim.units import format_bandwidth, format_time

__all__ = ["topology_text"]

WIDTH = 110


def topology_text(topology: Topology, form: str = "table") -> str:
    """Return *topology* as ``table``, ``json`` or ``yaml`` (every node and link written out)."""
    if form == "yaml":
        return topology.to_yaml()
    shown = describe(topology)
    if form == "json":
        return json.dumps(shown, indent=2, allow_nan=False) + "\n"
    lines = [f"# {topology.name}: {topology.title}", f"# from {topology.source}", "#", *_totals(shown)]
    lines += ["#", "# figures"]
    for fact in shown["facts"]:
        lines.append(f"{fact['path']:<28} {fact['text']:<14} {fact['status']}")
        note = "; ".join(part for part in (fact["source"], fact["note"]) if part)
        lines += textwrap.wrap(note, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _totals(shown: dict[str, Any]) -> list[str]:
    """Return one line per total."""
    rows = [
        ("GPUs", str(shown["ranks"])),
        ("per GPU, one direction", format_bandwidth(shown["per_gpu_uni_Bps"])),
        ("per GPU, both directions", format_bandwidth(shown["per_gpu_bidi_Bps"])),
        ("per GPU, achievable, one direction", format_bandwidth(shown["per_gpu_achievable_uni_Bps"])),
        ("all GPUs, one direction", format_bandwidth(shown["total_uni_Bps"])),
        ("all GPUs, both directions", format_bandwidth(shown["total_bidi_Bps"])),
        ("physical links", f"{shown['physical_links']} ({shown['links_per_gpu']} at each GPU)"),
        ("directed bundles", f"{shown['bundles']} ({shown['bundles_per_gpu']} out of each GPU)"),
    ]
    if shown["bisection_uni_Bps"] is not None:
        rows.append(("bisection, one direction", format_bandwidth(shown["bisection_uni_Bps"])))
    if shown["link_latency_s"]:
        rows.append(("link latency", " to ".join(sorted({format_time(value) for value in shown["link_latency_s"]}))))
    rows += _switch_rows(shown["switches"])
    if not shown["connected"]:
        rows.append(("connected", "no: some GPUs cannot reach others"))
    return [f"{name:<36} {value}" for name, value in rows]


def _switch_rows(switches: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known of the switches."""
    if not switches:
        return []
    rows = [("switches", f"{switches['count']} {switches.get('model') or ''}")]
    if switches.get("links_per_gpu"):
        rows.append(("links from a GPU to each switch", ", ".join(map(str, switches["links_per_gpu"]))))
    ports = f" of {switches['ports']}" if switches.get("ports") else ""
    rows.append(("switch ports used, at most", f"{switches['ports_used']}{ports}"))
    return [*rows, ("switch latency", format_time(switches["latency_s"]))]
