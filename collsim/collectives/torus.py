"""Collectives on a torus, dimension by dimension, both ways around and in every order of the dimensions at once.

Data is cut into one part for each link of a GPU. A part starts along a dimension of its own and in a direction of its
own, then goes along the others in turn: at every moment each direction of each dimension carries one part. A
reduce-scatter along one dimension leaves a rank 1/d of the part, so that all of them together send
(N - 1)/N of the data, the least that there can be, over all links of a GPU, in sum(d - 1) steps rather than the
N - 1 of a ring through all ranks. An all-gather goes the other way; an all-reduce is one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.levels import Level, Stage, Team, Work, parts_of, ring_inwards, ring_outwards
from collsim.core.errors import Fault, UnsupportedError
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule, TransfersBuilder, split_bytes
from collsim.schedule.forms import Bool

__all__ = ["TORUS", "dimensions_of"]

Dimensions = tuple[int, ...]


def dimensions_of(link_counts: Int) -> Dimensions:
    """Return the dimensions of the torus that links form between ranks in order, the last running fastest; else ().

    Parameters
    ----------
    link_counts : int64[n, n]
        Direct links from row to column; the diagonal is ignored.

    Examples
    --------
    >>> ring = np.roll(np.eye(4, dtype=int), 1, axis=0)
    >>> ring += ring.T
    >>> dimensions_of(np.kron(ring, np.eye(3, dtype=int)) + np.kron(np.eye(4, dtype=int), 1 - np.eye(3, dtype=int)))
    (4, 3)
    >>> dimensions_of(ring)
    ()
    """
    n = len(link_counts)
    linked = (link_counts > 0) & ~np.eye(n, dtype=np.bool_)
    degrees = linked.sum(axis=1)
    if n < 6 or (degrees != degrees[0]).any() or degrees[0] < 3:  # a ring of four is no torus to anybody
        return ()
    fitting = (dims for dims in _factors(n) if len(dims) > 1 and sum(_ways(d) for d in dims) == degrees[0])
    return next((dims for dims in fitting if _is_torus(linked, dims)), ())


def _ways(length: int) -> int:
    """Return the neighbours of a rank along a dimension."""
    return 2 if length > 2 else 1


def _factors(n: int, least: int = 2) -> Iterator[Dimensions]:
    """Return the ways to write *n* as a product, in every order."""
    for first in range(least, n):
        if n % first == 0:
            yield from ((first, *rest) for rest in _factors(n // first, least))
    yield (n,)


def _is_torus(linked: Bool, dims: Dimensions) -> bool:
    """Say whether every rank has its neighbours of the torus; degrees are known to be right."""
    ranks = np.arange(len(linked)).reshape(dims)
    return all(linked[ranks, np.roll(ranks, way, axis=axis)].all() for axis in range(len(dims)) for way in (1, -1))


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule.

    Raises
    ------
    UnsupportedError
        The ranks form no torus.
    """
    dims, n, op = request.dimensions, request.n_ranks, request.op.name
    if prod(dims) != n or len(dims) < 2:
        hint = "a torus of two dimensions or more, whose ranks count up along one dimension after the other"
        raise UnsupportedError(Fault(f"the links between these {n} ranks form no torus", "algo", f"torus takes {hint}"))
    chunks, rows, ranks = ChunksBuilder(), TransfersBuilder(), np.arange(n)
    ends = (ranks if op == "all_gather" else EVERY, ranks if op == "reduce_scatter" else EVERY)
    total = request.size_bytes if op == "all_reduce" else request.block_bytes
    routes = [(axis, way) for axis, length in enumerate(dims) for way in (1, -1)[: _ways(length)]]
    shares = split_bytes(total, len(routes), request.element_bytes)
    lanes = max(request.n_channels // len(routes), 1)
    for number, ((start, way), share) in enumerate(zip(routes, shares.tolist(), strict=True)):
        work = Work(lanes, rows, channel=number)
        levels = _levels(dims, start, way)
        for piece in request.pieces(share, max(share, request.element_bytes), n if op == "all_reduce" else 1).tolist():
            sizes = split_bytes(piece, n, request.element_bytes) if op == "all_reduce" else np.full(n, piece)
            first = chunks.add(sizes, *ends)
            for stage, (level, step) in enumerate(_stages(op, levels)):
                work.begin(stage, first)
                for team in level.teams:
                    step(work, level, team)
            work.end_piece()
    shape = "x".join(map(str, dims))
    return request.schedule("torus", chunks.build(), rows.build(), channels=len(routes) * lanes, dimensions=shape)


def _levels(dims: Dimensions, start: int, way: int) -> list[Level]:
    """Return a level for each dimension from *start* on, whose teams are its rings in the direction *way*."""
    grid = np.arange(prod(dims)).reshape(dims)
    order = [(start + turn) % len(dims) for turn in range(len(dims))]
    coordinates = np.stack(np.unravel_index(np.arange(grid.size), dims), axis=1)[:, order]
    place = dict(enumerate(map(tuple, coordinates.tolist())))
    return [Level(_rings(grid, axis, way), parts_of(place, number + 1)) for number, axis in enumerate(order)]


def _rings(grid: Int, axis: int, way: int) -> list[Team]:
    """Return the rings along *axis*, in the order in which they pass data on."""
    rows = np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])[:, ::way]
    return [tuple(row) for row in rows.tolist()]


def _stages(op: str, levels: list[Level]) -> list[tuple[Level, Stage]]:
    """Return what is done at each level, in order."""
    outwards: list[tuple[Level, Stage]] = [(level, ring_outwards) for level in levels]
    inwards: list[tuple[Level, Stage]] = [(level, ring_inwards) for level in reversed(levels)]
    return {"reduce_scatter": outwards, "all_gather": inwards}.get(op, outwards + inwards)


TORUS = Algorithm(
    name="torus",
    title="rings along one dimension of a torus after the other, both ways and in every order at once",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="Sack and Gropp, J. Parallel Distrib. Comput. 75 (2015) 140 (multiported ring by dimensions); "
    "Barnett et al., J. Parallel Distrib. Comput. 24 (1995) 202",
    build=build,
    where="torus",
    by_levels=True,
)
