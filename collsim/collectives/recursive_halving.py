"""Recursive halving: a reduce-scatter in lg n steps, each with half of the data of the step before.

In each step a rank swaps data with a partner: it sends what its partner's half of the ranks is to end with, and adds
what it receives to the rest. The first partner is the farthest.
"""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.folding import fold, halvings
from collsim.collectives.rounds import Rounds
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule

__all__ = ["ALGORITHM", "add_halving", "distances_below"]


def distances_below(n: int) -> tuple[int, ...]:
    """Return the powers of two below *n*, the largest first.

    >>> distances_below(8)
    (4, 2, 1)
    """
    return tuple(1 << bit for bit in reversed(range((n - 1).bit_length())))


def add_halving(rounds: Rounds, members: tuple[int, ...], owner: Int, distances: tuple[int, ...]) -> None:
    """Add the steps after which each member holds the sums of the chunks that it is the *owner* of."""
    for distance, kept in halvings(owner, distances):
        for member, rank in enumerate(members):
            partner = member ^ distance
            rounds.add(rank, members[partner], kept[partner], reduces=True)
        rounds.close()


def build(request: ScheduleRequest) -> Schedule:
    """Return the reduce-scatter; a rank that leaves the work to its neighbour sends all, and receives its block."""
    n = request.n_ranks
    team, rounds, chunks = fold(n), Rounds(request.n_channels), ChunksBuilder()
    chunks.add(np.full(n, request.block_bytes), EVERY, np.arange(n))
    for rank, neighbour in team.pairs:
        rounds.add(rank, neighbour, range(n), reduces=True)
    rounds.close()
    add_halving(rounds, team.members, team.member_of, distances_below(len(team.members)))
    for rank, neighbour in team.pairs:
        rounds.add(neighbour, rank, [rank])
    return request.schedule("recursive_halving", chunks.build(), rounds.build(), channels=request.n_channels)


ALGORITHM = Algorithm(
    name="recursive_halving",
    title="swaps of half, a quarter, ... of the data with nearer and nearer partners",
    ops=("reduce_scatter",),
    source="Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49, section 4.4",
    build=build,
)
