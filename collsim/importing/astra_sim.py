"""Networks of ASTRA-sim's analytical backend: dimensions, each a ring, a switch or fully connected.

The YAML of today and the JSON of older releases. Their GB/s are 2^30 bytes/s (astra-network-analytical, Type.h and
Helper.cc), and a rate is that of one link in one direction; a switch adds nothing to the latency of the two links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from collsim.core.errors import Fault, Faults, SpecError, nearest
from collsim.importing.machine import Assumption, plural
from collsim.importing.writer import Written
from collsim.topology.files.reader import Document, read_document

__all__ = ["read_astra_sim"]

KINDS = {
    "ring": "Ring", "switch": "Switch", "fullyconnected": "FullyConnected", "alltoall": "FullyConnected",
}  # fmt: skip
KEYS = ("topology", "npus_count", "bandwidth", "latency")
OLD_KEYS = {
    "topology": "topologies-per-dim", "npus_count": "units-count", "bandwidth": "link-bandwidth",
    "latency": "link-latency",
}  # fmt: skip
IGNORED = (
    "topology-name", "dimension-type", "dimensions-count", "links-count", "nic-latency", "router-latency",
    "hbm-latency", "hbm-bandwidth", "hbm-scale",
)  # fmt: skip
GIB = 2**30
MOST_LINKS = 50_000
"""Entries of a list in a topology file."""
UNIT = "ASTRA-sim's GB/s are 2^30 bytes/s: written as GiB/s"
HAND = "write topology, npus_count, bandwidth (GB/s) and latency (ns), each with one entry per dimension"


@dataclass(frozen=True, slots=True)
class _Dimension:
    """A dimension: its kind, size, links between neighbours, GiB/s of each, ns of each."""

    kind: str
    size: int
    count: int
    rate: str
    latency: str

    @property
    def link(self) -> str:
        """What is said of a link of it."""
        count = f", count: {self.count}" if self.count > 1 else ""
        return f"bandwidth: {self.rate} GiB/s, latency: {self.latency} ns{count}"


def read_astra_sim(content: bytes, file: str, name: str, faults: Faults) -> tuple[Written, list[str], list[str]]:
    """Return the topology file of a network, what was read, and notes; what is wrong with it goes to *faults*.

    Raises
    ------
    SpecError
        It is no YAML, or holds no rates.
    """
    _refuse_rateless(content, file)
    document = read_document(content, file, "topology: [ Switch ]")
    dimensions = _dimensions(document, faults)
    n_gpus = math.prod(each.size for each in dimensions)
    n_links = sum(_links_of(each, n_gpus) for each in dimensions)
    if not faults and n_links > MOST_LINKS:
        faults.append(Fault(f"{n_links:,} links are more than {MOST_LINKS:,}", file, "take fewer NPUs per dimension"))
    if faults:
        return Written(""), [], []
    read = [f"{plural(n_gpus, 'NPU')} in {plural(len(dimensions), 'dimension')}"]
    read += [f"{each.kind} of {each.size}: {each.rate} GiB/s and {each.latency} ns per link" for each in dimensions]
    notes = [UNIT]
    assumed = [
        Assumption(
            "gpu.model", "unknown", "assumed", "the network does not say; without one no profile of a library holds"
        ),
        Assumption("link.efficiency", "1", "assumed", "what ASTRA-sim calls a bandwidth is all that a link carries"),
    ]
    if any(each.kind == "Switch" for each in dimensions):
        assumed.append(Assumption("switch.latency", "0 ns", "assumed", "ASTRA-sim counts the two links only"))
    return Written(_yaml(dimensions, n_gpus, name), assumed), read, notes


def _refuse_rateless(content: bytes, file: str) -> None:
    """Raise for forms that name sizes, but no rates."""
    if b"logical-dims" in content:
        what = "it holds logical dimensions of ns-3, without kinds, rates and latencies"
        raise SpecError(Fault(what, file, HAND))
    if b"num-npus:" in content:
        what = "it is of ASTRA-sim's Garnet backend: widths in bits and latencies in cycles, without rates"
        raise SpecError(Fault(what, file, HAND))


def _dimensions(document: Document, faults: Faults) -> list[_Dimension]:
    """Return the dimensions of a document."""
    old = "topologies-per-dim" in document.data
    names = OLD_KEYS if old else {key: key for key in KEYS}
    known = [*names.values(), *IGNORED] if old else [*KEYS]
    for key in document.data:
        if key not in known:
            near = nearest(str(key), known)
            hint = f'did you mean "{near}"?' if near else f"keys: {', '.join(known[:8])}"
            faults.append(Fault(f'unknown key "{str(key)[:40]}"', document.where((key,)), hint))
    columns = {key: _column(document, name, faults) for key, name in names.items()}
    lengths = {len(column) for column in columns.values() if column}
    if len(lengths) > 1:
        sizes = ", ".join(f"{names[key]} {len(column)}" for key, column in columns.items())
        faults.append(Fault(f"lists of different lengths: {sizes}", document.file, "one entry per dimension in each"))
    if faults or len(lengths) != 1:
        return []
    links = _column(document, "links-count", faults) if "links-count" in document.data else []
    found = []
    for index in range(lengths.pop()):
        where = {key: document.where((names[key], index)) for key in KEYS}
        kind = _kind(columns["topology"][index], where["topology"], faults)
        size = _number(columns["npus_count"][index], where["npus_count"], faults, whole=True, least=2)
        rate = _number(columns["bandwidth"][index], where["bandwidth"], faults)
        latency = _number(columns["latency"][index], where["latency"], faults, zero=True)
        count = (
            _count(links[index], kind, int(float(size)), document.where(("links-count", index)), faults) if links else 1
        )
        found.append(_Dimension(kind, int(float(size)), count, rate, latency))
    return found


def _column(document: Document, key: str, faults: Faults) -> list[Any]:
    """Return the entries of a key, one per dimension."""
    if key not in document.data:
        faults.append(Fault(f'key "{key}" is missing', document.file, HAND))
        return []
    value = document.data[key]
    if isinstance(value, dict) or value is None or value == []:
        faults.append(Fault(f'"{key}" is no list', document.where((key,)), f"such as {key}: [ 8 ]"))
        return []
    return value if isinstance(value, list) else [value]


def _kind(value: Any, where: str, faults: Faults) -> str:
    found = KINDS.get(str(value).lower().replace("_", ""))
    if found is None:
        near = nearest(str(value), [*KINDS.values()])
        hint = f'did you mean "{near}"?' if near else "known: Ring, Switch, FullyConnected"
        faults.append(Fault(f'"{str(value)[:30]}" is no kind of dimension that is read', where, hint))
    return found or "Ring"


def _number(
    value: Any, where: str, faults: Faults, *, whole: bool = False, least: float = 0, zero: bool = False
) -> str:
    """Return a number as it is written; anything else is a fault."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    good = math.isfinite(number) and (number > 0 or (zero and number == 0)) and number >= least
    if not good or (whole and number != int(number)):
        kind = (
            f"a whole number of {int(least)} or more"
            if whole
            else "a number of 0 or more"
            if zero
            else "a positive number"
        )
        faults.append(Fault(f'"{str(value)[:30]}" is not {kind}', where, "such as 8" if whole else "such as 50.0"))
        return "2"
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _count(value: Any, kind: str, size: int, where: str, faults: Faults) -> int:
    """Return how many parallel links join neighbours, from the links of an NPU in an old file."""
    basic = {"Ring": 1 if size == 2 else 2, "FullyConnected": size - 1, "Switch": 1}[kind]
    links = int(float(_number(value, where, faults, whole=True, least=1)))
    if links % basic:
        what = f"{links} links of an NPU do not make a {kind} of {size}"
        faults.append(Fault(what, where, f"write a multiple of {basic}"))
        return 1
    return links // basic


def _links_of(dimension: _Dimension, n_gpus: int) -> int:
    """Return the number of entries that a dimension has in the list of links."""
    per_line = {"FullyConnected": dimension.size * (dimension.size - 1) // 2}.get(dimension.kind, dimension.size)
    return n_gpus // dimension.size * per_line


def _yaml(dimensions: list[_Dimension], n_gpus: int, name: str) -> str:
    """Return the topology file."""
    shape = " x ".join(f"{each.kind} of {each.size}" for each in dimensions)
    head = ["schema: collsim.topology/1", f'name: "{name}"', f'title: "{shape}, imported from ASTRA-sim"']
    first = dimensions[0]
    if len(dimensions) == 1 and first.kind == "FullyConnected":
        count = f", per_pair: {first.count}" if first.count > 1 else ""
        link = f"link: {{bandwidth: {first.rate} GiB/s, latency: {first.latency} ns{count}}}"
        return "\n".join([*head, "builder: full_mesh", f"gpu: {{count: {n_gpus}}}", link, ""])
    if len(dimensions) == 1 and first.kind == "Switch":
        link = f"link: {{bandwidth: {first.rate} GiB/s, latency: {first.latency} ns}}"
        switch = f"switch: {{planes: 1, links_per_plane: {first.count}, latency: 0 ns}}"
        return "\n".join([*head, "builder: switched", f"gpu: {{count: {n_gpus}}}", link, switch, ""])
    nodes = [f"  - {{name: gpu{gpu}}}" for gpu in range(n_gpus)]
    links: list[str] = []
    stride = 1
    for place, each in enumerate(dimensions):
        for number, line in enumerate(_lines(n_gpus, stride, each.size)):
            if each.kind == "Switch":
                hub = f"sw{place}_{number}"
                nodes.append(f"  - {{name: {hub}, kind: switch, latency: 0 ns}}")
                links += [f"  - {{a: gpu{gpu}, b: {hub}, {each.link}}}" for gpu in line]
            else:
                links += [f"  - {{a: gpu{a}, b: gpu{b}, {each.link}}}" for a, b in _pairs(each, line)]
        stride *= each.size
    return "\n".join([*head, "builder: explicit", f"gpu: {{count: {n_gpus}}}", "nodes:", *nodes, "links:", *links, ""])


def _lines(n_gpus: int, stride: int, size: int) -> Iterator[list[int]]:
    """Yield the NPUs of each line along a dimension; the first dimension counts fastest."""
    for outer, inner in product(range(n_gpus // (stride * size)), range(stride)):
        yield [outer * stride * size + place * stride + inner for place in range(size)]


def _pairs(dimension: _Dimension, line: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the ends of the links of a ring or of all pairs."""
    if dimension.kind == "FullyConnected":
        yield from ((a, b) for place, a in enumerate(line) for b in line[place + 1 :])
        return
    yield from pairwise(line)
    if len(line) > 2:
        yield line[0], line[-1]
