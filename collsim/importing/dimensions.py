"""Dimensions of a network: whether it is a product of rings, switches and full meshes, as ASTRA-sim has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from collsim.topology import Topology

__all__ = ["Dimension", "dimensions_of", "lines_of"]

Figures = tuple[float, float]
Pair = tuple[int, int]


class Dimension(NamedTuple):
    """A dimension: its kind, how many meet in it, and rate and latency of one of its links."""

    kind: str
    size: int
    rate_Bps: float
    latency_s: float


def dimensions_of(topology: Topology) -> list[Dimension]:
    """Return the dimensions of a network, that of neighbouring ranks first; none if it is no such product.

    >>> from collsim.topology import load_topology
    >>> [(each.kind, each.size) for each in dimensions_of(load_topology("mi300x_ubb8"))]
    [('FullyConnected', 8)]
    """
    wiring, links = topology.wiring, dict[Pair, Figures]()
    columns = (wiring.link_src, wiring.link_dst, wiring.link_bandwidth_Bps, wiring.link_latency_s)
    for src, dst, rate_Bps, latency_s in zip(*(column.tolist() for column in columns), strict=True):
        links[src, dst] = rate_Bps, latency_s
    one_way = any(links.get((dst, src)) != figures for (src, dst), figures in links.items())
    if one_way or not links or wiring.node_latency_s[wiring.n_gpus :].any():
        return []
    hubs: dict[frozenset[int], int] = {}
    for hub in range(wiring.n_gpus, wiring.n_nodes):
        hubs[frozenset(dst for src, dst in links if src == hub)] = hub
    if len(hubs) < wiring.n_nodes - wiring.n_gpus:
        return []  # several planes
    return _search(links, hubs, wiring.n_gpus, 1) or []


def lines_of(n: int, stride: int, size: int) -> list[list[int]]:
    """Return the ranks of each line along a dimension; the first dimension counts fastest."""
    firsts = (outer * stride * size + inner for outer in range(n // (stride * size)) for inner in range(stride))
    return [[first + place * stride for place in range(size)] for first in firsts]


def _search(links: dict[Pair, Figures], hubs: dict[frozenset[int], int], n: int, stride: int) -> list[Dimension] | None:
    """Return the dimensions from *stride* on, which use up all links; None if there are none that do."""
    if stride == n:
        return None if links else []
    for size in (size for size in range(n // stride, 1, -1) if n // stride % size == 0):
        lines = lines_of(n, stride, size)
        for kind, pairs in _candidates(lines, hubs):
            figures = {links.get(pair) for pair in pairs}
            found = next(iter(figures))
            if len(figures) > 1 or found is None:
                continue
            left = {pair: each for pair, each in links.items() if pair not in pairs}
            others = _search(left, hubs, n, stride * size)
            if others is not None:
                return [Dimension(kind, size, *found), *others]
    return None


def _candidates(lines: list[list[int]], hubs: dict[frozenset[int], int]) -> Iterator[tuple[str, set[Pair]]]:
    """Yield each kind of dimension that lines may be, with its links in both directions."""
    yield "FullyConnected", {(a, b) for line in lines for a in line for b in line if a != b}
    around = [(line, line[1:] + line[:1]) for line in lines]
    steps = {(a, b) for line, after in around for a, b in zip(line, after, strict=True)}
    yield "Ring", steps | {(b, a) for a, b in steps}
    if all(frozenset(line) in hubs for line in lines):
        into = {(gpu, hubs[frozenset(line)]) for line in lines for gpu in line}
        yield "Switch", into | {(hub, gpu) for gpu, hub in into}
