"""Recursive doubling: swaps with partners at distances 1, 2, 4, ...

All-gather: what two partners swap doubles in every step. All-reduce: they swap and add the whole vector in every step,
which is good for short vectors only. Both partners send what they held when the step began, as with a receive buffer.

An all-gather of other than a power of two of ranks is the folded reduce-scatter run backwards. MPICH takes up to
2 lg n steps instead, in which partners fetch what is missing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.folding import fold, halvings
from collsim.collectives.recursive_halving import distances_below
from collsim.collectives.rounds import Rounds
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule, Transfers

__all__ = ["ALGORITHM", "GATHER", "add_doubling"]


def add_doubling(rounds: Rounds, members: tuple[int, ...], owner: Int, distances: tuple[int, ...]) -> None:
    """Add the steps after which all members hold all chunks; *distances* as in the halving that this undoes."""
    for distance, held in reversed(list(halvings(owner, distances))):
        for member, rank in enumerate(members):
            rounds.add(rank, members[member ^ distance], held[member])
        rounds.close()


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule; a rank that leaves the work to its neighbour gives its data first and gets the rest last."""
    return (_all_gather if request.op.name == "all_gather" else _all_reduce)(request)


def _all_gather(request: ScheduleRequest) -> Schedule:
    """Swap all blocks that have come together so far."""
    n = request.n_ranks
    team, rounds, chunks = fold(n), Rounds(request.n_channels), ChunksBuilder()
    chunks.add(np.full(n, request.block_bytes), np.arange(n), EVERY)
    for rank, neighbour in team.pairs:
        rounds.add(rank, neighbour, [rank])
    rounds.close()
    add_doubling(rounds, team.members, team.member_of, distances_below(len(team.members)))
    for rank, neighbour in team.pairs:
        rounds.add(neighbour, rank, [block for block in range(n) if block != rank])
    return request.schedule("recursive_doubling", chunks.build(), rounds.build(), channels=request.n_channels)


def _all_reduce(request: ScheduleRequest) -> Schedule:
    """Swap the whole vector."""
    transfers, chunks = _swaps(request.n_ranks, request.n_channels), ChunksBuilder()
    chunks.add([request.size_bytes], EVERY, EVERY)
    return request.schedule("recursive_doubling", chunks.build(), transfers, channels=request.n_channels)


@lru_cache(maxsize=8)  # all sizes of a run have the same
def _swaps(n_ranks: int, lanes: int) -> Transfers:
    team, rounds = fold(n_ranks), Rounds(lanes)
    for rank, neighbour in team.pairs:
        rounds.add(rank, neighbour, [0], reduces=True)
    rounds.close()
    for distance in reversed(distances_below(len(team.members))):
        for member, rank in enumerate(team.members):
            rounds.add(rank, team.members[member ^ distance], [0], reduces=True)
        rounds.close()
    for rank, neighbour in team.pairs:
        rounds.add(neighbour, rank, [0])
    return rounds.build()


ALGORITHM = Algorithm(
    name="recursive_doubling",
    title="swaps with partners at doubling distances, lg n steps",
    ops=("all_reduce",),
    source="Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49, sections 4.1 and 4.5",
    build=build,
    growth="ranks",
)
GATHER = replace(ALGORITHM, ops=("all_gather",), growth=None)
"""Its messages carry more and more blocks."""
