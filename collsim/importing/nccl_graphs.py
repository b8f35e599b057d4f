"""Graphs that NCCL searched (``NCCL_GRAPH_DUMP_FILE``): channels of rings and trees, in words; they hold no links."""

from __future__ import annotations

from collections import Counter

from collsim.core.errors import Fault, Faults
from collsim.importing.machine import plural
from collsim.importing.xml_files import Element, read_xml

__all__ = ["read_nccl_graphs"]

PATTERNS = {1: "balanced tree", 2: "split tree", 3: "tree", 4: "ring", 5: "NVLS", 6: "CollNet direct"}
"""NCCL src/include/graph.h, NCCL_TOPO_PATTERN_*."""
WAYS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")


def read_nccl_graphs(content: bytes, file: str, faults: Faults) -> list[str]:
    """Return what the graphs of a file are, one line for each; what is wrong with it goes to *faults*."""
    root = read_xml(content, file, "graphs")
    graphs = [child for child in root.children if child.tag == "graph"]
    if not graphs:
        faults.append(Fault("there is no graph", root.where, "<graphs> holds one <graph> for each kind of algorithm"))
    seen: dict[int, int] = {}
    lines = []
    for graph in graphs:
        number = graph.number("id", faults)
        if number in seen:
            faults.append(
                Fault(f'id="{number}" is there already, on line {seen[number]}', graph.where, "each has its own")
            )
        seen[number] = graph.line
        lines.append(_graph(graph, number, faults))
    return lines


def _graph(graph: Element, number: int, faults: Faults) -> str:
    """Return one graph in words."""
    pattern, channels = graph.number("pattern", faults), [each for each in graph.children if each.tag == "channel"]
    if pattern not in PATTERNS:
        listed = ", ".join(f"{key} {name}" for key, name in PATTERNS.items())
        faults.append(Fault(f'pattern="{pattern}" is none of NCCL', graph.where, f"known: {listed}"))
    wanted = graph.number("nchannels", faults)
    if wanted != len(channels):
        what = f'nchannels="{wanted}", but {plural(len(channels), "channel")} follow'
        faults.append(Fault(what, graph.where, f'write nchannels="{len(channels)}", or copy the whole file'))
    gpus = [_members(channel, "gpu", faults) for channel in channels]
    nets = [_members(channel, "net", faults) for channel in channels]
    for channel, members in zip(channels, gpus, strict=True):
        doubled = [gpu for gpu, count in Counter(members).items() if count > 1]
        if doubled:
            faults.append(
                Fault(f"GPU {doubled[0]} is {members.count(doubled[0])} times in one channel", channel.where, "once")
            )
        if not members:
            faults.append(Fault("a channel without a GPU", channel.where, '<gpu dev="0"/> for each GPU, in order'))
        elif sorted(members) != sorted(gpus[0]):
            what = f"GPUs {_listed(members)}, where the first channel has {_listed(gpus[0])}"
            faults.append(Fault(what, channel.where, "every channel passes all GPUs"))
    way = graph.attributes.get("typeintra", "")
    if way and way not in WAYS:
        faults.append(Fault(f'typeintra="{way[:20]}" is no way of NCCL', graph.where, f"known: {', '.join(WAYS)}"))
    return f"graph {number}: {PATTERNS.get(pattern, '')}, {_words(graph, gpus, nets)}"


def _words(graph: Element, gpus: list[list[int]], nets: list[list[int]]) -> str:
    """Return a graph in words: its channels, and the rates and ways that NCCL reckons with."""
    inside = graph.attributes.get("speedintra", graph.attributes.get("bwintra", ""))
    between = graph.attributes.get("speedinter", graph.attributes.get("bwinter", ""))
    way = graph.attributes.get("typeintra", "")
    ways = {
        " -> ".join([*(f"net{net}" for net in net_of[:1]), *map(str, order), *(f"net{net}" for net in net_of[1:])])
        for order, net_of in zip(gpus, nets, strict=True)
    }
    orders = "; ".join(list(dict.fromkeys(sorted(ways)))[:4])
    rates = f", {inside} GB/s inside and {between} GB/s between nodes by NCCL's reckoning" if inside else ""
    return f"{plural(len(gpus), 'channel')}{f' over {way}' if way else ''}{rates}: {orders}"


def _members(channel: Element, tag: str, faults: Faults) -> list[int]:
    return [child.number("dev", faults) for child in channel.children if child.tag == tag]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
