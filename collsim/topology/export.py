"""A topology as an explicit ``collsim.topology/1`` file, which loads to the same arrays."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np

from collsim.topology.files.schema import SCHEMA
from collsim.topology.labels import KIND_LABELS, MEMORY_FACT, READ_FACT
from collsim.topology.zoo import cluster_names, zoo_names

if TYPE_CHECKING:
    from collsim.topology.model import Fact, Topology
    from collsim.topology.wiring import Wiring

__all__ = ["to_yaml"]


def to_yaml(topology: Topology, name: str | None = None) -> str:
    """Return *topology* with every node and link written out.

    A shipped topology becomes ``..._copy``, unless *name* says otherwise. Opposite bundles that are alike become one
    link. Figures are exact, so that the file loads to equal arrays; only the total of a bundle whose rate is not a
    float times its count may differ in the last bit.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> text = to_yaml(load_topology("mi355x_ubb8", {"gpu.count": "2"}))
    >>> print(text[text.index("nodes:") :])
    nodes:
      - {name: gpu0, kind: gpu}
      - {name: gpu1, kind: gpu}
    links:
      - {a: gpu0, b: gpu1, bandwidth: 76.8 GB/s, latency: 500 ns, efficiency: 0.684}
    <BLANKLINE>
    """
    wiring = topology.wiring.bundled()
    if name is None:
        name = f"{topology.name}_copy" if topology.name in (*zoo_names(), *cluster_names()) else topology.name
    head = [
        f"schema: {SCHEMA}",
        f"name: {_text(name)}",
        f"title: {_text(topology.title)}",
        "builder: explicit",
    ]
    if topology.in_network_reduction:
        head.append(f"in_network_reduction: {_text(topology.in_network_reduction)}")
    head += _sections(topology)
    return "\n".join([*head, "nodes:", *_nodes(wiring), *(["links:", *_links(wiring)] if wiring.n_links else []), ""])


def _sections(topology: Topology) -> list[str]:
    """Return the sections for what nodes and links do not hold: kinds, by which libraries go, memory, adapters."""
    entries: dict[str, dict[str, str]] = {"gpu": {}, "link": {}, "switch": {}, "cpu": {}, "nic": {}}
    for section, key in (label.split(".") for label in (*KIND_LABELS, "nic.model")):
        if text := topology.labels.get(f"{section}.{key}"):
            entries[section][key] = _text(text)
    for fact in topology.facts:
        section, _, key = fact.path.partition(".")
        if fact.path in (MEMORY_FACT, READ_FACT, "gpu.memory_bandwidth") or section == "nic":
            entries[section][key] = _figure(fact)
    if topology.in_network_efficiency != 1.0:
        entries["switch"]["in_network_efficiency"] = repr(topology.in_network_efficiency)
    return [
        f"{section}: {{{', '.join(f'{key}: {value}' for key, value in entry.items())}}}"
        for section, entry in entries.items()
        if entry
    ]


def _figure(fact: Fact) -> str:
    """Return a figure with its provenance; what was set on a command line is the user's own."""
    status = "user" if fact.status == "set" else fact.status
    return f"{{value: {_text(fact.text)}, status: {status}, source: {_text(fact.source)}}}"


def _nodes(wiring: Wiring) -> list[str]:
    lines = []
    for index, name in enumerate(wiring.node_names):
        if index < wiring.n_gpus:
            lines.append(f"  - {{name: {_text(name)}, kind: gpu}}")
        else:
            latency = _time(float(wiring.node_latency_s[index]))
            lines.append(f"  - {{name: {_text(name)}, kind: {wiring.node_kinds[index]}, latency: {latency}}}")
    return lines


def _links(wiring: Wiring) -> list[str]:
    rows = zip(
        wiring.link_src.tolist(),
        wiring.link_dst.tolist(),
        wiring.link_count.tolist(),
        wiring.link_bandwidth_Bps.tolist(),
        wiring.link_latency_s.tolist(),
        wiring.link_efficiency.tolist(),
        strict=True,
    )
    bundles = {(src, dst): tuple(figures) for src, dst, *figures in rows}
    lines = []
    for (src, dst), figures in bundles.items():
        duplex = bundles.get((dst, src)) == figures
        if duplex and dst < src:
            continue
        count, bandwidth_Bps, latency_s, efficiency = figures
        a, b = _text(wiring.node_names[src]), _text(wiring.node_names[dst])
        parts = [f"a: {a}", f"b: {b}", f"bandwidth: {_rate(_single(bandwidth_Bps, count))}"]
        parts += [f"latency: {_time(latency_s)}", f"efficiency: {efficiency!r}"]
        parts += [f"count: {count}"] if count > 1 else []
        parts += [] if duplex else ["duplex: false"]
        lines.append(f"  - {{{', '.join(parts)}}}")
    return lines


def _single(total: float, count: int) -> float:
    """Return the rate of one of *count* links that make *total*, exactly where a float can."""
    rate = total / count
    near = (rate, float(np.nextafter(rate, 0.0)), float(np.nextafter(rate, math.inf)))
    return next((candidate for candidate in near if candidate * count == total), rate)


def _rate(bandwidth_Bps: float) -> str:
    from collsim.core.units import parse_bandwidth_Bps

    text = f"{bandwidth_Bps / 1e9!r} GB/s".replace(".0 ", " ")
    exact = "e" not in text and parse_bandwidth_Bps(text) == bandwidth_Bps
    return text if exact else f"{bandwidth_Bps!r} B/s"


def _time(time_s: float) -> str:
    from collsim.core.units import parse_time_s

    text = f"{round(time_s * 1e9, 6)!r} ns".replace(".0 ", " ")
    exact = "e" not in text and parse_time_s(text) == time_s
    return text if exact else f"{time_s!r} s"


def _text(text: str) -> str:
    """Return *text* bare where YAML reads it as the same text, quoted otherwise."""
    bare = text.replace("_", "").isalnum() and text.isascii() and text[0].isalpha()
    words = ("true", "false", "null", "yes", "no", "on", "off", "none")
    return text if bare and text.lower() not in words else json.dumps(text, ensure_ascii=False)
