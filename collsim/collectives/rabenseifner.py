"""Rabenseifner's all-reduce: a reduce-scatter by recursive halving, then an all-gather by recursive doubling.

The half of the vector is swapped with the nearest partner and the smallest part with the farthest.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.folding import fold
from collsim.collectives.recursive_doubling import add_doubling
from collsim.collectives.recursive_halving import add_halving, distances_below
from collsim.collectives.rounds import Rounds
from collsim.schedule import EVERY, ChunksBuilder, Schedule, Transfers, split_bytes

__all__ = ["ALGORITHM"]


def build(request: ScheduleRequest) -> Schedule:
    """Return the all-reduce; a rank that leaves the work to its neighbour sends its vector and receives the sum."""
    transfers, chunks = _transfers(request.n_ranks, request.n_channels), ChunksBuilder()
    parts = len(fold(request.n_ranks).members)
    chunks.add(split_bytes(request.size_bytes, parts, request.element_bytes), EVERY, EVERY)
    return request.schedule("rabenseifner", chunks.build(), transfers, channels=request.n_channels)


@lru_cache(maxsize=8)  # all sizes of a run have the same
def _transfers(n_ranks: int, lanes: int) -> Transfers:
    team, rounds = fold(n_ranks), Rounds(lanes)
    parts = len(team.members)
    distances, owner = tuple(reversed(distances_below(parts))), np.arange(parts)
    for rank, neighbour in team.pairs:
        rounds.add(rank, neighbour, range(parts), reduces=True)
    rounds.close()
    add_halving(rounds, team.members, owner, distances)
    add_doubling(rounds, team.members, owner, distances)
    for rank, neighbour in team.pairs:
        rounds.add(neighbour, rank, range(parts))
    return rounds.build()


ALGORITHM = Algorithm(
    name="rabenseifner",
    title="recursive halving, then recursive doubling: 2 lg n steps, bandwidth-optimal for powers of two",
    ops=("all_reduce",),
    source="Rabenseifner, ICCS 2004, LNCS 3036, 1",
    build=build,
)
