"""Checks that a schema cannot make: a topology has to hang together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from collsim.core.errors import Fault, nearest
from collsim.core.units import format_count
from collsim.topology.files.reader import Document
from collsim.topology.files.schema import ExplicitLink
from collsim.topology.files.sections import Spec

__all__ = ["MAX_LINKS", "check", "planes_of"]

MAX_LINKS = 1_000_000
"""Directed bundles of one topology: about 60 MB of arrays, and a second of work on them (chosen)."""

MOST_COMPARED = 100_000
"""So many names are compared with wrong ones in one file: a second or two."""


def check(spec: Spec, document: Document) -> Iterator[Fault]:
    """Yield every fault between the sections that are valid by themselves."""
    builder = spec.header.builder if spec.header else document.data.get("builder")
    if builder == "explicit":
        yield from _check_explicit(spec, document)
    elif builder in ("full_mesh", "switched"):
        yield from _check_regular(spec, document, str(builder))
    yield from _check_reduction(spec, document, str(builder))
    if spec.nic and spec.nic.per_gpu.si > 1 and spec.nic.shared_by.si > 1:
        what = "an adapter is either one of several of a GPU, or shared by several GPUs"
        path = document.last_given(("nic", "shared_by"), ("nic", "per_gpu"))
        hint = document.beside(path, "shared_by" if path[-1] == "per_gpu" else "per_gpu", 1)
        yield Fault(what, document.where(path), hint)


def _check_reduction(spec: Spec, document: Document, builder: str) -> Iterator[Fault]:
    reduction = spec.in_network_reduction
    if reduction is None or not reduction.si or builder == "switched":
        return
    if builder == "full_mesh":
        what = f"a full mesh has no switch that could reduce with {reduction.value.text}"
    elif builder == "explicit" and all(node is not None and node.kind != "switch" for node in spec.nodes):
        what = f"there is no switch that could reduce with {reduction.value.text}"
    else:
        return
    yield Fault(what, document.where(("in_network_reduction",)), "write none, or remove it")


def planes_of(spec: Spec) -> tuple[int, ...]:
    """Return the links from every GPU to each switch of a switched domain."""
    if spec.switch is None or spec.switch.planes is None:
        return ()
    n_planes, links = int(spec.switch.planes.si), spec.switch.links_per_plane.value.numbers
    return links * n_planes if len(links) == 1 else links


def _check_regular(spec: Spec, document: Document, builder: str) -> Iterator[Fault]:
    data = document.data
    for section in ("nodes", "links"):
        if section in data:
            hint = f'write "builder: explicit", or remove {section}'
            yield Fault(f"{section} belong to the explicit builder, not to {builder}", document.where((section,)), hint)
    if "gpu" not in data:
        yield Fault('section "gpu" is missing', document.file, "write gpu: {count: 8}")
    if spec.gpu and spec.gpu.count is None:
        yield Fault('key "count" is missing', document.where(("gpu",)), "write count: 8")
    if "link" not in data:
        yield Fault('section "link" is missing', document.file, 'write link: {bandwidth: "64 GB/s"}')
    if spec.link and spec.link.bandwidth is None:
        hint = 'write bandwidth: "64 GB/s" (per physical link and direction)'
        yield Fault('key "bandwidth" is missing', document.where(("link",)), hint)
    yield from _check_switch(spec, document) if builder == "switched" else _check_mesh(spec, document)


def _check_mesh(spec: Spec, document: Document) -> Iterator[Fault]:
    if "switch" in document.data:
        hint = 'remove the section, or write "builder: switched"'
        yield Fault("a full mesh has no switch", document.where(("switch",)), hint)
    if spec.gpu and spec.gpu.count:
        n_gpus = int(spec.gpu.count.si)
        yield from _check_links(n_gpus * (n_gpus - 1), math.isqrt(MAX_LINKS), document)


def _check_switch(spec: Spec, document: Document) -> Iterator[Fault]:
    if "switch" not in document.data:
        yield Fault('section "switch" is missing', document.file, "write switch: {planes: 4, links_per_plane: 1}")
    if spec.link and "per_pair" in spec.link.given:
        hint = "write switch.links_per_plane instead"
        yield Fault("per_pair belongs to the full mesh", document.where(("link", "per_pair")), hint)
    switch = spec.switch
    if switch is None:
        return
    if switch.planes is None:
        yield Fault('key "planes" is missing', document.where(("switch",)), "write planes: 4, the number of switches")
        return
    n_planes, links = int(switch.planes.si), switch.links_per_plane.value.numbers
    if len(links) not in (1, n_planes):
        what = f"links_per_plane lists {len(links)} planes, but there {_are(n_planes, 'plane')}"
        path = document.last_given(("switch", "links_per_plane"), ("switch", "planes"))
        hint = f"write one number, or a list of {n_planes}"
        if path[-1] == "planes":
            hint = document.beside(path, "links_per_plane", max(sum(links) // n_planes, 1))
        yield Fault(what, document.where(path), hint)
        return
    if spec.gpu is None or spec.gpu.count is None:
        return
    n_gpus = int(spec.gpu.count.si)
    yield from _check_links(2 * n_gpus * n_planes, MAX_LINKS // (2 * n_planes), document)
    used, ports = n_gpus * max(links), int(switch.ports.si) if switch.ports else None
    if ports is not None and used > ports:
        what = f"{n_gpus} GPUs with {max(links)} links each need {used} ports, but a switch has {ports}"
        hint = f"at most {ports // max(links)} GPUs fit; lower gpu.count or links_per_plane, or raise switch.ports"
        paths = (("switch", "ports"), ("gpu", "count"), ("switch", "links_per_plane"))
        yield Fault(what, document.where(document.last_given(*paths)), hint)


def _check_links(n_links: int, most_gpus: int, document: Document) -> Iterator[Fault]:
    if n_links > MAX_LINKS:
        what = f"{n_links:,} links are more than {MAX_LINKS:,}"
        hint = f"at most {format_count(most_gpus, 'GPU')}, or smaller domains that scale_out joins"
        yield Fault(what, document.where(("gpu", "count")), hint)


class _Ends(NamedTuple):
    a: str
    b: str
    duplex: bool

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the ordered pairs of nodes that the link joins."""
        yield self.a, self.b
        if self.duplex:
            yield self.b, self.a


def _check_explicit(spec: Spec, document: Document) -> Iterator[Fault]:
    if not isinstance(document.data.get("nodes"), list) or not document.data["nodes"]:
        yield Fault("an explicit topology needs nodes", document.where(("nodes",)), "write nodes: [{name: gpu0}, ...]")
        return
    if spec.link and "per_pair" in spec.link.given:
        hint = "write count on each link instead"
        yield Fault("per_pair belongs to the full mesh", document.where(("link", "per_pair")), hint)
    if spec.switch and "links_per_plane" in spec.switch.given:
        hint = "write count: 2 at links, or remove it"
        what = "links_per_plane belong to the switched builder"
        yield Fault(what, document.where(("switch", "links_per_plane")), hint)
    if spec.switch and spec.switch.planes is not None:
        hint = "list the switches in nodes, or write builder: switched"
        yield Fault("planes belong to the switched builder", document.where(("switch", "planes")), hint)
    yield from _check_nodes(spec, document)
    yield from _check_link_list(spec, document)
    if None not in spec.nodes and None not in spec.links:
        yield from _check_attached(spec, document)
        yield from _check_ports(spec, document)


def _check_nodes(spec: Spec, document: Document) -> Iterator[Fault]:
    first: dict[str, int] = {}
    rank = 0
    for index, node in enumerate(spec.nodes):
        if node is None:
            rank += 1
            continue
        where = document.where(("nodes", index))
        if node.name in first:
            yield Fault(f'node "{node.name}" appears twice; first as nodes[{first[node.name]}]', where, "rename one")
        first.setdefault(node.name, index)
        if node.kind == "gpu":
            if node.latency is not None:
                hint = "only a switch or a CPU forwards; remove it"
                yield Fault(f'GPU "{node.name}" has a forwarding latency', where, hint)
            if _misnumbered(node.name, rank):
                hint = f"ranks follow the order of the list; list the GPUs in order or call this one gpu{rank}"
                yield Fault(f'GPU "{node.name}" would be rank {rank}', where, hint)
            rank += 1
    if spec.nodes and None not in spec.nodes and rank == 0:
        yield Fault("there is no GPU", document.where(("nodes",)), "give a node kind: gpu")
    if spec.gpu and spec.gpu.count and None not in spec.nodes and int(spec.gpu.count.si) > rank:
        what = f"gpu.count is {spec.gpu.count.value.text}, but nodes list {format_count(rank, 'GPU')}"
        hint = "list more nodes, or lower gpu.count to take the first ones"
        yield Fault(what, document.where(("gpu", "count")), hint)


def _misnumbered(name: str, rank: int) -> bool:
    digits = name.removeprefix("gpu")
    return digits != name and digits.isdecimal() and digits != str(rank)


def _check_link_list(spec: Spec, document: Document) -> Iterator[Fault]:
    names = [node.name for node in spec.nodes if node]
    whole = len(names) == len(spec.nodes)  # looked for once: the list may be long
    ends = _Names(names)
    seen = dict[tuple[str, str], int]()
    for index, link in enumerate(spec.links):
        if link is None:
            continue
        where = document.where(("links", index))
        if whole:
            yield from _check_ends(link, ends, document, index)
        if link.a == link.b:
            yield Fault(f'a link from "{link.a}" to itself', where, "name two different nodes")
        if link.bandwidth is None and (spec.link is None or spec.link.bandwidth is None) and "link" in document.data:
            if spec.link is not None:
                yield Fault('key "bandwidth" is missing', where, "write it here or once in link: {bandwidth: ...}")
        elif link.bandwidth is None and "link" not in document.data:
            yield Fault('key "bandwidth" is missing', where, "write it here or once in link: {bandwidth: ...}")
        for pair in _Ends(link.a, link.b, link.duplex).pairs():
            if pair in seen and pair[0] != pair[1]:
                hint = 'write one link with "count: 2" for parallel links'
                yield Fault(f'"{pair[0]}" and "{pair[1]}" are already joined by links[{seen[pair]}]', where, hint)
                break
            seen[pair] = index


class _Names:
    """Names of nodes; the nearest is looked for so often only, since that takes long among many."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.known, self.looked_up = names, set(names), 0

    def hint(self, wrong: str) -> str:
        """Return the hint for a name that is none of these."""
        self.looked_up += len(self.names)
        near = nearest(wrong, self.names) if self.looked_up <= MOST_COMPARED else None
        return f'did you mean "{near}"?' if near else f"nodes: {', '.join(self.names[:12])}"


def _check_ends(link: ExplicitLink, names: _Names, document: Document, index: int) -> Iterator[Fault]:
    for key, end in (("a", link.a), ("b", link.b)):
        if end not in names.known:
            yield Fault(f'there is no node "{end}"', document.where(("links", index, key)), names.hint(end))


def _check_attached(spec: Spec, document: Document) -> Iterator[Fault]:
    """Check that every GPU of several can send and receive."""
    nodes = spec.present()
    there = {node.name for _, node in nodes}
    gpus = [(index, node.name) for index, node in nodes if node.kind == "gpu"]
    links = [link for link in spec.links if link and link.a in there and link.b in there]
    pairs = [pair for link in links for pair in _Ends(link.a, link.b, link.duplex).pairs()]
    senders, receivers = {a for a, _ in pairs}, {b for _, b in pairs}
    for index, name in gpus if len(gpus) > 1 else []:
        if name not in senders or name not in receivers:
            way = "" if name not in senders and name not in receivers else ("out" if name in receivers else "in")
            what = f'GPU "{name}" has no {way}{"going " if way == "out" else "coming " if way else ""}link'
            ends = f"{{a: ..., b: {name}}}" if way == "in" else f"{{a: {name}, b: ...}}"
            yield Fault(what, document.where(("nodes", index)), f"add a link such as {ends}")


def _check_ports(spec: Spec, document: Document) -> Iterator[Fault]:
    if spec.switch is None or spec.switch.ports is None:
        return
    ports, used = int(spec.switch.ports.si), dict[str, int]()
    nodes = spec.present()
    there = {node.name for _, node in nodes}
    for link in spec.links:
        for end in {link.a, link.b} if link and {link.a, link.b} <= there else ():
            used[end] = used.get(end, 0) + int(link.count.si if link else 0)
    for index, node in nodes:
        if node.kind == "switch" and used.get(node.name, 0) > ports:
            what = f'switch "{node.name}" has {used[node.name]} links, but only {ports} ports'
            yield Fault(what, document.where(("nodes", index)), "remove links or raise switch.ports")


def _are(number: int, noun: str) -> str:
    return f"is 1 {noun}" if number == 1 else f"are {number} {noun}s"
