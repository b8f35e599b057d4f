"""Binomial trees: broadcast, reduce, gather and scatter in ceil(lg n) rounds.

Ranks are counted from the root. Going down, the root first sends to the rank a power of two away that covers about
half of the others; in every further round all ranks that have data send half as far. Going up is the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.recursive_halving import distances_below
from collsim.collectives.rounds import Rounds
from collsim.schedule import EVERY, ChunksBuilder, Schedule, Transfers

__all__ = ["ALGORITHM", "Branch", "branches", "scattered"]


class Branch(NamedTuple):
    """An edge of the tree; *subtree* is the child and all below it, as places after the root."""

    parent: int
    child: int
    subtree: range


def branches(n: int) -> Iterator[list[Branch]]:
    """Yield the edges of the tree round by round, away from the root.

    >>> [[(edge.parent, edge.child) for edge in edges] for edges in branches(5)]
    [[(0, 4)], [(0, 2)], [(0, 1), (2, 3)]]
    """
    for distance in distances_below(n):
        children = range(distance, n, 2 * distance)
        yield [Branch(child - distance, child, range(child, min(child + distance, n))) for child in children]


def scattered(request: ScheduleRequest) -> Transfers:
    """Return the transfers that bring chunk i from the root to the rank i places after it."""
    return _tree(request, up=False, whole=False)


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule: the whole vector along every edge, or the blocks of the subtree at its end."""
    n, root, name = request.n_ranks, request.root, request.op.name
    whole, up = name in ("broadcast", "reduce"), name in ("gather", "reduce")
    others = EVERY if whole else (np.arange(n) + root) % n
    chunks = ChunksBuilder()
    sizes = [request.size_bytes] if whole else np.full(n, request.block_bytes)
    chunks.add(sizes, others if up else root, root if up else others)
    transfers = _tree(request, up=up, whole=whole)
    return request.schedule("binomial", chunks.build(), transfers, channels=request.n_channels)


def _tree(request: ScheduleRequest, *, up: bool, whole: bool) -> Transfers:
    """Return the rounds; along an edge goes chunk 0 (*whole*), or the chunks of its subtree."""
    n, rounds = request.n_ranks, Rounds(request.n_channels)
    levels = list(branches(n))
    for level in reversed(levels) if up else levels:
        for parent, child, subtree in level:
            ends = [(parent + request.root) % n, (child + request.root) % n]
            src, dst = reversed(ends) if up else ends
            rounds.add(src, dst, range(1) if whole else subtree, reduces=request.op.name == "reduce")
        rounds.close()
    return rounds.build()


ALGORITHM = Algorithm(
    name="binomial",
    title="binomial tree, ceil(lg n) rounds",
    ops=("broadcast", "reduce", "gather", "scatter"),
    source="Chan, Heimlich, Purkayastha and van de Geijn, Concurrency Comput. Pract. Exper. 19 (2007) 1749",
    build=build,
    growth="ranks",
)
