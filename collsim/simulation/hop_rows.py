"""Rows of pipelines over nodes: one for each hop of each, with the ways that hops take and the chunks that flow.

All of it but the chunks holds for the other sizes of a run, and is kept with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from collsim.core.arrays import pointers
from collsim.fabric.fabric import Int, Int32
from collsim.fabric.reduction_trees import TreePorts
from collsim.library.costs.channel_costs import Bool
from collsim.schedule import Circles, Pipelines, Schedule, Shape
from collsim.simulation.lowering import Taken, ways_of
from collsim.simulation.runs import LoweredRun

__all__ = ["HopWays", "Program", "Rows", "cut", "hops_of", "programs_of", "rows_of", "runs_of"]

MOST_STEPS = 256
"""Of so many equal steps of a ring the last half take equally long, so that more need not be simulated."""


class Program(NamedTuple):
    """Chunks of a pipeline: those that are simulated, and by how many more each run of equal ones is longer."""

    size_bytes: Int
    adds: Bool | None
    """Whether receivers add; None: as the hop says."""
    total_bytes: float
    ends: tuple[int, ...] = ()
    """The last simulated chunk of each run that was cut."""
    more: tuple[int, ...] = ()
    back: int = 1
    """By the last so many of them it is said how long one takes."""
    rounded: bool = False
    """Whether the chunks of a step differ by an element and are taken as the largest."""


def programs_of(merged: Pipelines | Circles, schedule: Schedule) -> list[Program]:
    """Return what each pipeline passes on."""
    if isinstance(merged, Pipelines):
        return [Program(sizes, None, float(sizes.sum())) for sizes in merged.pieces(schedule.chunks)]
    leg = np.array([adds for _, adds in merged.program], dtype=np.bool_)
    table = schedule.chunks.size_bytes.reshape(-1, schedule.n_ranks)
    rounded = bool((table.min(axis=1) < table.max(axis=1)).any())
    largest = merged.largest(schedule.chunks)
    found = [(sizes, np.tile(leg, len(sizes) // len(leg))) for sizes in largest]
    if len({len(sizes) for sizes, _ in found}) > 1:
        return [Program(sizes, adds, float(sizes.sum()), rounded=rounded) for sizes, adds in found]
    return [cut(sizes, adds, MOST_STEPS)._replace(rounded=rounded) for sizes, adds in found]


def cut(sizes: Int, adds: Bool | None, most: int) -> Program:
    """Return a program with at most so many steps of each run of equal ones."""
    begins, lengths = runs_of(sizes, adds)
    kept = np.minimum(lengths, most)
    run = np.repeat(np.arange(len(begins)), kept)
    taken = begins[run] + np.arange(len(run)) - (np.cumsum(kept) - kept)[run]
    cut = np.flatnonzero(lengths > kept)
    ends, more = (np.cumsum(kept) - 1)[cut], (lengths - kept)[cut]
    total_bytes = float(sizes.sum())
    return Program(
        sizes[taken], adds if adds is None else adds[taken], total_bytes, tuple(ends), tuple(more), most // 2
    )


def runs_of(sizes: Int, adds: Bool | None) -> tuple[Int, Int]:
    """Return int64[runs] twice: where runs of equal steps begin, and how long they are."""
    legs = np.zeros(len(sizes), dtype=np.bool_) if adds is None else adds
    begins = np.flatnonzero(np.append(True, (np.diff(sizes) != 0) | (np.diff(legs) != 0)))
    return begins, np.diff(begins, append=len(sizes))


class HopWays(NamedTuple):
    """The hops of all shapes, one shape after the other, and the ways that they take."""

    run: LoweredRun
    """With the routes of all of them."""
    first: Int
    """int64[shapes + 1]: where the hops of a shape begin."""
    src: Int
    dst: Int
    reduces: Bool
    depth: Int
    between: Int
    """How many of the hops that a chunk has behind it led between nodes."""
    ways: Taken
    wait_ptr: Int
    wait: Int32
    lag: Int32


def hops_of(schedule: Schedule, pipes: Pipelines, run: LoweredRun) -> HopWays:
    """Return the hops of all shapes with their routes, found once for all sizes of a run."""
    key = "ways", pipes.slots, *map(id, pipes.shapes)
    if key in run.found:
        known: HopWays = run.found[key][0]
        return known
    shapes, known_stages = pipes.shapes, dict[object, int]()
    alike = [known_stages.setdefault(shape.stages, number) for number, shape in enumerate(shapes)]
    src, dst, reduces = (
        np.concatenate([getattr(shape, name) for shape in shapes]) for name in ("src", "dst", "reduces")
    )
    first = pointers(np.array([len(shape) for shape in shapes]))
    ways = ways_of(schedule, (src, dst), run, TreePorts.free(run.fabric))
    across = np.split(ways.across.astype(np.int64), first[1:-1])
    between = _behind(shapes, alike, across)
    depth = _behind(shapes, alike, [np.ones_like(part) for part in across])
    del across
    wait_ptr, wait, lag = _waits(shapes, alike, first, pipes.slots)
    found = HopWays(ways.run, first, src, dst, reduces, depth, between, ways, wait_ptr, wait, lag)
    run.found[key] = found, pipes.shapes  # which keeps the ids taken
    return found


def _behind(shapes: tuple[Shape, ...], alike: list[int], weights: list[Int]) -> Int:
    """Return int64[n]: what hops with such weights add up to before each, as of `Shape.behind`.

    *alike* says which shape has the same stages as each: channels differ in ranks only, and their hops are many.
    """
    found: dict[tuple[int, bytes], Int] = {}
    parts = []
    for first, weight in zip(alike, weights, strict=True):
        key = first, weight.tobytes()
        if key not in found:
            found[key] = shapes[first].behind(weight)
        parts.append(found[key])
    return np.concatenate(parts)


def _waits(shapes: tuple[Shape, ...], alike: list[int], first: Int, slots: int) -> tuple[Int, Int32, Int32]:
    """Return what hops wait for, as of `Shape.waits`: pointers, hops, and how many chunks earlier."""
    found = {number: shapes[number].waits(slots) for number in sorted(set(alike))}
    counts = np.concatenate([np.bincount(found[number][0], minlength=len(shapes[number])) for number in alike])
    begin = pointers(np.array([len(found[number][0]) for number in alike])).tolist()
    wait, lag = np.empty(begin[-1], dtype=np.int32), np.empty(begin[-1], dtype=np.int32)
    for number, start, (low, high) in zip(alike, first.tolist(), pairwise(begin), strict=False):
        np.add(found[number][1], start, out=wait[low:high], casting="same_kind")
        lag[low:high] = found[number][2]
    return pointers(counts), wait, lag


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """One row for each hop of each pipeline.

    Attributes
    ----------
    pipe, hop : int64[n]
        The pipeline, and which hop of `HopWays` it is.
    first : int64[pipes + 1]
        Where the rows of a pipeline begin.
    profile : int64[pipes]
        Equal for pipelines with equal chunks.
    """

    schedule: Schedule
    pipes: Pipelines
    hops: HopWays
    programs: list[Program]
    pipe: Int
    hop: Int
    first: Int
    profile: Int

    @property
    def is_plain(self) -> bool:
        """True if there is one pipeline of each shape, so that rows are hops."""
        return np.array_equal(self.pipes.shape, np.arange(len(self.hops.first) - 1))

    @property
    def labels(self) -> tuple[object, ...]:
        """What the rows have in common with those of other sizes of a run that have equal ones."""
        pipes = self.pipes
        columns = (pipes.shape, pipes.lanes, pipes.copies, self.profile)
        return pipes.slots, *map(id, pipes.shapes), *(column.tobytes() for column in columns)


def rows_of(schedule: Schedule, pipes: Pipelines, hops: HopWays, programs: list[Program]) -> Rows:
    """Return one row for each hop of each pipeline, which pass on what *programs* say."""
    pipes = replace(pipes, n_chunks=np.array([len(each.size_bytes) for each in programs]))
    key = "rows", *map(id, pipes.shapes), pipes.shape.tobytes()
    if key not in hops.run.found:
        counts = pipes.n_hops
        first = pointers(counts)
        pipe = np.repeat(np.arange(len(counts)), counts)
        hop = np.repeat(hops.first[pipes.shape] - first[:-1], counts) + np.arange(len(pipe))
        hops.run.found[key] = pipe, hop, first, pipes.shapes
    pipe, hop, first, _ = hops.run.found[key]
    seen: dict[bytes, int] = {}
    keys = [each.size_bytes.tobytes() + (b"" if each.adds is None else each.adds.tobytes()) for each in programs]
    profile = [seen.setdefault(key, len(seen)) for key in keys]
    return Rows(schedule, pipes, hops, programs, pipe, hop, first, np.array(profile, dtype=np.int64))
