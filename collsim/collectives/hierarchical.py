"""Hierarchical all-reduce, all-gather and reduce-scatter: node, rail, and racks of nodes as a third level.

Every level cuts the data by its number of members, so that what leaves a node is S / g per GPU, and what leaves a rack
S / (g M) with M nodes in a rack. A reduce-scatter goes outwards (node, rail, racks), an all-gather inwards, and an
all-reduce is one after the other. Inside a node GPUs exchange slices all at once; at the levels above they form
rings, or swap with partners at doubling distances. Transfers wait for the data that they carry and for what their
sender did with the piece before, so that pieces of the data flow through the levels one behind the other (`levels`).
"""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.folding import fold
from collsim.collectives.levels import Level, Stage, Team, Work, parts_of, ring_inwards, ring_outwards
from collsim.collectives.recursive_halving import distances_below
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule, split_bytes

__all__ = ["DOUBLING", "HIERARCHICAL", "RACKS", "pieces_of"]


def build(request: ScheduleRequest) -> Schedule:
    """Return the schedule with a ring per rail above the node."""
    one_rack = (tuple(range(request.spread.n_nodes)),)
    return _build(request, "hierarchical", _levels(request, "hierarchical", one_rack), ring_outwards, ring_inwards)


def build_racks(request: ScheduleRequest) -> Schedule:
    """Return the schedule with rings within racks, and rings between them."""
    name = "hierarchical_racks"
    levels = _levels(request, name, request.spread.nodes_of_racks(name))
    return _build(request, name, levels, ring_outwards, ring_inwards)


def build_doubling(request: ScheduleRequest) -> Schedule:
    """Return the all-reduce whose rails swap whole slices."""
    name, one_rack = "hierarchical_doubling", (tuple(range(request.spread.n_nodes)),)
    return _build(request, name, _levels(request, name, one_rack), _swaps, None)


def _build(request: ScheduleRequest, algo: str, levels: list[Level], outer: Stage, inner: Stage | None) -> Schedule:
    """Return the schedule: outwards level by level, then inwards; without *inner* the outer level does both."""
    node, *above = levels
    outwards: list[tuple[Level, Stage | None]] = [(node, _scatter), *((level, outer) for level in above)]
    inwards = [*((level, inner) for level in reversed(above)), (node, _gather)]
    stages = {"reduce_scatter": outwards, "all_gather": inwards}.get(request.op.name, outwards + inwards)
    chunks, work, pieces = ChunksBuilder(), Work(request.n_channels), pieces_of(request)
    ranks, name = np.arange(request.n_ranks), request.op.name
    ends = (ranks if name == "all_gather" else EVERY, ranks if name == "reduce_scatter" else EVERY)
    for sizes in pieces:
        first = chunks.add(sizes, *ends)
        for number, (level, stage) in enumerate(stages):
            if stage is not None:
                work.begin(number, first)
                for team in level.teams:
                    stage(work, level, team)
        work.end_piece()
    return request.schedule(
        algo, chunks.build(), work.rows.build(), channels=request.n_channels, levels=len(levels), pieces=len(pieces)
    )


def _levels(request: ScheduleRequest, algo: str, racks: tuple[tuple[int, ...], ...]) -> list[Level]:
    """Return the levels: GPUs of a node, nodes of a rack on one rail, racks (if there are several)."""
    layout = request.spread
    rails = [layout.rail(local) for local in range(layout.per_node(algo))]
    in_rack = [tuple(rail[node] for node in rack) for rail in rails for rack in racks]
    across = [tuple(rail[node] for node in nodes) for rail in rails for nodes in zip(*racks, strict=True)]
    place = {
        rail[node]: (local, shelf, number)
        for local, rail in enumerate(rails)
        for number, rack in enumerate(racks)
        for shelf, node in enumerate(rack)
    }
    teams: list[list[Team]] = [list(layout.nodes), in_rack, *([across] if len(racks) > 1 else [])]
    return [Level(of_level, parts_of(place, number + 1)) for number, of_level in enumerate(teams)]


def pieces_of(request: ScheduleRequest) -> list[Int]:
    """Return the sizes of the n slices of every piece, by rank; one piece unless a chunk is asked for."""
    n, grain = request.n_ranks, request.element_bytes
    if request.op.name == "all_reduce":
        pieces = request.pieces(request.size_bytes, max(request.size_bytes, grain), n)
        return [split_bytes(int(piece), n, grain) for piece in pieces]
    return [np.full(n, piece) for piece in request.pieces(request.block_bytes, max(request.block_bytes, grain))]


def _scatter(work: Work, level: Level, team: Team) -> None:
    """Send every member the slices that it stands for, all at once."""
    for distance in range(1, len(team)):
        for place, rank in enumerate(team):
            peer = team[(place + distance) % len(team)]
            work.send((rank, peer), level.parts[peer], work.waits(rank), reduces=True, reads_input=True)


def _gather(work: Work, level: Level, team: Team) -> None:
    """Send the slices that a member stands for to all others, all at once."""
    for distance in range(1, len(team)):
        for place, rank in enumerate(team):
            work.send((rank, team[(place + distance) % len(team)]), level.parts[rank], work.waits(rank))


def _swaps(work: Work, level: Level, team: Team) -> None:
    """Swap whole slices with partners at doubling distances; who makes no pair gives its own before and gets it after.

    All members hold the same slices, since nothing was cut at this level.
    """
    crew, slices = fold(len(team)), sorted(number for rank in team for number in level.parts[rank])
    last: dict[int, list[int]] = {place: work.waits(rank) for place, rank in enumerate(team)}

    def round_of(pairs: list[tuple[int, int]], step: int, *, reduces: bool) -> None:
        made = {}
        for src, dst in pairs:
            row = work.send((team[src], team[dst]), slices, last[src] + last[dst], step=step, reduces=reduces)
            made[row] = (src, dst)
        for place in {place for pair in made.values() for place in pair}:
            last[place] = [row for row, pair in made.items() if place in pair]

    distances = tuple(reversed(distances_below(len(crew.members))))
    round_of(list(crew.pairs), 0, reduces=True)
    for step, distance in enumerate(distances):
        swaps = [(place, crew.members[member ^ distance]) for member, place in enumerate(crew.members)]
        round_of(swaps, step + 1, reduces=True)
    round_of([(place, leaver) for leaver, place in crew.pairs], len(distances) + 1, reduces=False)
    for place, rank in enumerate(team):
        work.arriving[rank] = last[place]  # both directions of the last swap: until then the sum is not complete


HIERARCHICAL = Algorithm(
    name="hierarchical",
    title="reduce-scatter in the node, rings per rail, all-gather in the node",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="Jia et al., arXiv:1807.11205, section 3.3; RCCL hierarchical all-gather and reduce-scatter",
    build=build,
    where="nodes",
    by_levels=True,
    quotient="levels",
)
RACKS = Algorithm(
    name="hierarchical_racks",
    title="reduce-scatter in the node, rings per rail in the rack, rings of racks, and back",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="Jia et al., arXiv:1807.11205, section 3.3, with nodes that share leaf switches as a level of their own",
    build=build_racks,
    where="racks",
)
DOUBLING = Algorithm(
    name="hierarchical_doubling",
    title="reduce-scatter in the node, swaps at doubling distances per rail, all-gather in the node",
    ops=("all_reduce",),
    source="Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49, section 4.5, per rail",
    build=build_doubling,
    where="nodes",
)
