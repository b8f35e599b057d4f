"""All-pairs: every rank talks to every other at once, in one shot or two.

Two-shot all-reduce scatters (rank r adds up slice r from all) and then gathers; one-shot sends the whole vector to
everybody, which costs more bytes and saves a step. On a full mesh two-shot uses every link evenly in both phases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import EVERY, ChunksBuilder, Orbits, OrbitsBuilder, Schedule, split_bytes


def build(request: ScheduleRequest) -> Schedule:
    """Return the two-shot all-reduce, or the phase of it that is a reduce-scatter or an all-gather."""
    n, name, ranks = request.n_ranks, request.op.name, np.arange(request.n_ranks)
    slices = split_bytes(request.size_bytes, n, request.element_bytes)
    chunks = ChunksBuilder()
    chunks.add(slices, ranks if name == "all_gather" else EVERY, ranks if name == "reduce_scatter" else EVERY)
    phases = {
        "all_reduce": (_scatter(request), _gather(request)),
        "reduce_scatter": (_scatter(request),),
        "all_gather": (_gather(request),),
    }[name]
    return request.schedule("all_pairs", chunks.build(), *phases, channels=request.n_channels)


def build_one_shot(request: ScheduleRequest) -> Schedule:
    """Return the one-shot all-reduce: everybody sends its whole input to everybody."""
    n = request.n_ranks
    chunks, rows = ChunksBuilder(), OrbitsBuilder(np.arange(n))
    chunks.add(split_bytes(request.size_bytes, n, request.element_bytes), EVERY, EVERY)
    for distance in range(1, n):
        rows.add(distance, [], reduces=True, reads_input=True, lanes=request.n_channels)
    carried, every = np.arange(n) * n, np.tile(np.arange(n), n - 1)  # each row carries all n chunks
    phase = replace(rows.build(), chunk_ptr=carried, chunk_family=np.zeros_like(every), chunk_offset=every)
    return request.schedule("one_shot", chunks.build(), phase, channels=request.n_channels)


def _scatter(request: ScheduleRequest) -> Orbits:
    """Every rank sends slice r of its input to rank r, which adds it up."""
    rows = OrbitsBuilder(np.arange(request.n_ranks))
    for distance in range(1, request.n_ranks):
        rows.add(distance, [(0, distance)], reduces=True, reads_input=True, lanes=request.n_channels)
    return rows.build()


def _gather(request: ScheduleRequest) -> Orbits:
    """Every rank sends its own slice to all."""
    rows = OrbitsBuilder(np.arange(request.n_ranks))
    for distance in range(1, request.n_ranks):
        rows.add(distance, [(0, 0)], step=1, lanes=request.n_channels)
    return rows.build()


ALGORITHM = Algorithm(
    name="all_pairs",
    title="two-shot: scatter to all, then gather from all",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="MSCCL++ (microsoft/mscclpp), all-pairs all-reduce; RCCL direct kernels",
    build=build,
    family="all_pairs",
)

ONE_SHOT = Algorithm(
    name="one_shot",
    title="one shot: the whole vector to everybody",
    ops=("all_reduce",),
    source="MSCCL++ (microsoft/mscclpp), one-shot all-reduce",
    build=build_one_shot,
    family="all_pairs",
)
