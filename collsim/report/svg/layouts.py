"""Where the nodes of a drawing stand: a ring, rows by their distance from the GPUs, planes above GPUs, or a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from collsim.collectives import dimensions_of
from collsim.topology import Wiring

__all__ = ["HEADER", "MARGIN", "WIDTH", "Point", "layout_of"]

WIDTH = 960
MARGIN = 40
HEADER = 84
PER_ROW = 18
STOREY = 150.0

Point = tuple[float, float]
Places = tuple[list[Point], float, float]
"""Centres of the nodes, the width of a GPU, and the lowest y."""


def layout_of(wiring: Wiring) -> Places:
    """Return where the nodes stand, how wide a GPU is, and the lowest y."""
    if wiring.coordinates.kind == "switched":
        return _planes(wiring)
    if wiring.n_nodes > wiring.n_gpus:
        return _levels(wiring)
    counts = np.zeros((wiring.n_gpus, wiring.n_gpus), dtype=np.int64)
    counts[wiring.link_src, wiring.link_dst] = wiring.link_count
    dimensions = dimensions_of(counts)
    return _grid(dimensions) if dimensions else _ring(wiring)


def _grid(dimensions: Sequence[int]) -> Places:
    """Place the GPUs of a torus as a grid of its last two dimensions, and grids for the others beside each other."""
    rows, columns = dimensions[-2:]
    grids = math.prod(dimensions[:-2])
    beside = math.ceil(math.sqrt(grids * rows / columns))
    pitch = (WIDTH - 2 * MARGIN) / (beside * (columns + 1) - 1)
    size, step = min(58.0, 0.7 * pitch), max(min(pitch, 96.0), 44.0)
    places = []
    for gpu in range(math.prod(dimensions)):
        grid, (row, column) = gpu // (rows * columns), divmod(gpu % (rows * columns), columns)
        x = MARGIN + pitch * (grid % beside * (columns + 1) + column + 0.5)
        places.append((x, HEADER + MARGIN + step * (grid // beside * (rows + 1) + row + 0.5)))
    return places, size, places[-1][1] + MARGIN + step / 2


def _ring(wiring: Wiring) -> Places:
    """Place all GPUs on a circle; return places, node size and the lowest y."""
    n, radius = wiring.n_gpus, 300.0
    centre = (WIDTH / 2, HEADER + MARGIN + radius)
    return [_on_circle(centre, radius, i, n) for i in range(n)], 58.0 if n <= 16 else 30.0, centre[1] + radius + MARGIN


def _levels(wiring: Wiring) -> Places:
    """Place the GPUs at the bottom and the other nodes above what they serve, one row per hop from the GPUs."""
    level = [0 if node < wiring.n_gpus else -1 for node in range(wiring.n_nodes)]
    pairs = list(zip(wiring.link_src.tolist(), wiring.link_dst.tolist(), strict=True))
    for height in range(1, wiring.n_nodes):
        for node in {dst for src, dst in pairs if level[src] == height - 1 and level[dst] < 0}:
            level[node] = height
    across = {gpu: gpu + 0.5 for gpu in range(wiring.n_gpus)}
    for node in sorted(range(wiring.n_gpus, wiring.n_nodes), key=lambda node: level[node]):
        below = [across[src] for src, dst in pairs if dst == node and 0 <= level[src] < level[node]]
        across[node] = sum(below) / len(below) if below else 0.5
    pitch, top = (WIDTH - 2 * MARGIN) / wiring.n_gpus, HEADER + 2 * MARGIN + STOREY * max(level)
    for height in range(1, max(level) + 1):
        _spread([node for node in across if level[node] == height], across, wiring.n_gpus)
    places = [(MARGIN + pitch * across[node], top - STOREY * level[node]) for node in range(wiring.n_nodes)]
    return places, min(60.0, pitch - 8), top + MARGIN


def _spread(nodes: list[int], across: dict[int, float], width: float) -> None:
    """Space *nodes* of one row evenly over *width*, in their order, if some would lie on each other."""
    order = sorted(nodes, key=lambda node: (across[node], node))
    if any(across[b] - across[a] < 1.0 for a, b in pairwise(order)):
        across.update({node: width * (i + 0.5) / len(order) for i, node in enumerate(order)})


def _on_circle(centre: Point, radius: float, i: int, n: int) -> Point:
    angle = 2 * math.pi * (i + 0.5) / max(n, 1) - math.pi / 2
    return centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)


def _planes(wiring: Wiring) -> Places:
    """Place the switches in rows on top and the GPUs in rows below; return places, node size and the lowest y."""
    n, switches = wiring.n_gpus, wiring.n_nodes - wiring.n_gpus
    above, _ = _rows(switches, HEADER + MARGIN + 26)
    below, bottom = _rows(n, above[-1][1] + (300.0 if n <= PER_ROW else 200.0))
    return [*below, *above], min(60.0, (WIDTH - 2 * MARGIN) / min(n, PER_ROW) - 8), bottom + MARGIN


def _rows(count: int, top: float) -> tuple[list[Point], float]:
    """Place nodes in rows of at most `PER_ROW`."""
    wide = min(count, PER_ROW)
    pitch = (WIDTH - 2 * MARGIN) / wide
    places = [(MARGIN + pitch * (i % wide + 0.5), top + 52.0 * (i // wide)) for i in range(count)]
    return places, places[-1][1]
