"""Hops of pipelines laid on the fabric: one for each class of hops that have to behave alike, chunk by chunk.

A pipeline sends every chunk along the same hops, which wait for the same others so many chunks earlier. So classes are
looked for among the hops, of which there are hundreds of times fewer than transfers, and only one hop of each class is
written out chunk by chunk: same times. Routes and classes are kept for the other sizes of a run.

Where even these are too many to simulate, hops are only told apart by what is a few waits and shared links away, and
links of a class carry what they carry on average. What that does is measured in tests, and said with the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from collsim.core.arrays import distinct, entries_of, pointers, spread
from collsim.engine.symmetry import Hops, alike_hops
from collsim.fabric.fabric import Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool, Use
from collsim.library.costs.network_costs import Steps, steps_of
from collsim.schedule import Circle, Circles, Pipelines, Schedule, Transfers
from collsim.simulation.lowering import (
    Cut,
    Lowered,
    LoweredRun,
    Taken,
    end_rates_Bps,
    joined,
    lower,
    narrowest_Bps,
    ways_of,
)

__all__ = ["laid"]

LEAST_TRANSFERS = 20_000
"""So many transfers are simulated as fast as classes are found."""
MOST_EXACT = 100_000
"""Of so many transfers of classes the engine takes some seconds."""
MOST_NEAR = 60_000
"""The same of classes that are only nearly alike, of which there are as many as one likes."""
MOST_ROUNDS = 4
MOST_HOPS, MOST_CHUNKS = 160, 48
"""The same of the hops of long chains, and of their chunks."""
MOST_LONG = 600_000
"""Chains of so many transfers are simulated whole; of longer ones the first hops and chunks say how long more take."""
LONGEST = 4096
"""The same of so many hops: tables of hops by steps grow with their square (chosen: one of these is 128 MiB)."""
MOST_STEPS = 256
"""Of so many equal steps of a ring the last half take equally long, so that more need not be simulated."""


def laid(schedule: Schedule, run: LoweredRun, dtype: str = "float", ports: TreePorts | None = None) -> Lowered:
    """Lay *schedule* on the fabric of *run*, large pipelines over nodes by classes of their hops; see `lower`."""
    phase = schedule.phases[0]
    cluster = run.topology.cluster
    if (
        not isinstance(phase, Pipelines | Circles)
        or len(schedule.phases) > 1
        or len(phase) < LEAST_TRANSFERS
        or cluster is None
        or schedule.parameters.get("nodes", 1) == 1
        or run.fabric.memory_Bps is not None
        or (run.routes.number is None and schedule.groups and _over_network(run, schedule))
    ):
        return lower(schedule, run, dtype, ports)
    merged = phase.merged(schedule.chunks)
    programs = _programs(merged, schedule)
    pipes = merged if isinstance(merged, Pipelines) else _as_pipelines(merged, schedule, run)
    more = 0
    if isinstance(merged, Pipelines) and _is_long(merged):
        pipes, more = _shortened(merged, run)
        programs = [_cut(each.size_bytes, None, MOST_CHUNKS) for each in programs]
    ways = _ways(schedule, pipes, run)
    rows = _rows(schedule, pipes, ways, programs)
    classes = _classes(rows, run)
    if classes.near and isinstance(merged, Pipelines) and (most := _exact_chunks(rows, run)) >= MOST_CHUNKS:
        rows = _rows(schedule, pipes, ways, [_cut(each.size_bytes, None, most) for each in programs])
        classes = _classes(rows, run)._replace(near=True)
    return _written_out(rows, classes, dtype, more)


def _exact_chunks(rows: _Rows, run: LoweredRun) -> int:
    """Return how many chunks of every hop can be simulated if no two hops are taken as alike that are not.

    Chunks follow each other at a pace that is theirs after some, while hops that are only nearly alike hide which link
    is busiest.
    """
    _, parted, _ = run.found[_key(rows)]
    return MOST_EXACT // max(len(np.unique(parted[None][0])), 1)


def _is_long(pipes: Pipelines) -> bool:
    """Return True for chains that are too long to be simulated whole."""
    return all(shape.is_path for shape in pipes.shapes) and (
        len(pipes) > MOST_LONG or max(map(len, pipes.shapes), default=0) > LONGEST
    )


def _shortened(pipes: Pipelines, run: LoweredRun) -> tuple[Pipelines, int]:
    """Return chains with their first hops only, found once for all sizes of a run, and how many are missing."""
    key = "begin", *map(id, pipes.shapes)
    if key not in run.found:
        run.found[key] = tuple(shape.begin(MOST_HOPS) for shape in pipes.shapes), pipes.shapes
    return replace(pipes, shapes=run.found[key][0]), max(max(map(len, pipes.shapes)) - MOST_HOPS, 0)


def _as_pipelines(circles: Circles, schedule: Schedule, run: LoweredRun) -> Pipelines:
    """Return circles as pipelines in which a place that waits for nobody's same step passes on one chunk per step."""
    n_orders = len(circles.order)
    key = "circles", circles.order.tobytes()
    if key not in run.found:
        run.found[key] = tuple(Circle.of_order(order) for order in circles.order)
    steps = np.array([len(families) * len(circles.program) for families in circles.families])
    return Pipelines(
        shapes=run.found[key],
        shape=circles.channel % n_orders,
        n_chunks=steps,
        first_chunk=np.array([families[0] for families in circles.families]) * schedule.n_ranks,
        channel=circles.channel,
        lanes=np.ones_like(steps),
        copies=circles.copies,
        slots=1,
    )


class _Program(NamedTuple):
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


def _programs(merged: Pipelines | Circles, schedule: Schedule) -> list[_Program]:
    """Return what each pipeline passes on."""
    if isinstance(merged, Pipelines):
        return [_Program(sizes, None, float(sizes.sum())) for sizes in merged.pieces(schedule.chunks)]
    leg = np.array([adds for _, adds in merged.program], dtype=np.bool_)
    table = schedule.chunks.size_bytes.reshape(-1, schedule.n_ranks)
    rounded = bool((table.min(axis=1) < table.max(axis=1)).any())
    largest = merged.largest(schedule.chunks)
    found = [(sizes, np.tile(leg, len(sizes) // len(leg))) for sizes in largest]
    if len({len(sizes) for sizes, _ in found}) > 1:
        return [_Program(sizes, adds, float(sizes.sum()), rounded=rounded) for sizes, adds in found]
    return [_cut(sizes, adds, MOST_STEPS)._replace(rounded=rounded) for sizes, adds in found]


def _cut(sizes: Int, adds: Bool | None, most: int) -> _Program:
    """Return a program with at most so many steps of each run of equal ones."""
    legs = np.zeros(len(sizes), dtype=np.bool_) if adds is None else adds
    begins = np.flatnonzero(np.append(True, (np.diff(sizes) != 0) | (np.diff(legs) != 0)))
    lengths = np.diff(begins, append=len(sizes))
    kept = np.minimum(lengths, most)
    run = np.repeat(np.arange(len(begins)), kept)
    taken = begins[run] + np.arange(len(run)) - (np.cumsum(kept) - kept)[run]
    cut = np.flatnonzero(lengths > kept)
    ends, more = (np.cumsum(kept) - 1)[cut], (lengths - kept)[cut]
    total_bytes = float(sizes.sum())
    return _Program(
        sizes[taken], adds if adds is None else adds[taken], total_bytes, tuple(ends), tuple(more), most // 2
    )


def _over_network(run: LoweredRun, schedule: Schedule) -> bool:
    """Return True if a group of the schedule spans nodes, so that it takes a tree of the network."""
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    return any(len(np.unique(node[list(members)])) > 1 for members in schedule.groups)


class _HopWays(NamedTuple):
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
    wait: Int
    lag: Int


def _ways(schedule: Schedule, pipes: Pipelines, run: LoweredRun) -> _HopWays:
    """Return the hops of all shapes with their routes, found once for all sizes of a run."""
    key = "ways", *map(id, pipes.shapes)
    if key in run.found:
        known: _HopWays = run.found[key][0]
        return known
    src, dst, reduces, depth = (
        np.concatenate([getattr(shape, name) for shape in pipes.shapes]) for name in ("src", "dst", "reduces", "depth")
    )
    first = pointers(np.array([len(shape) for shape in pipes.shapes]))
    waits = [shape.waits(pipes.slots) for shape in pipes.shapes]
    waiter = np.concatenate([each[0] + start for each, start in zip(waits, first.tolist(), strict=False)])
    wait = np.concatenate([each[1] + start for each, start in zip(waits, first.tolist(), strict=False)])
    lag = np.concatenate([each[2] for each in waits])
    ways = ways_of(schedule, (src, dst), run, TreePorts.free(run.fabric))
    wait_ptr = pointers(np.bincount(waiter, minlength=len(src)))
    parts = np.split(ways.across.astype(np.int64), first[1:-1])
    between = np.concatenate([shape.behind(part) for shape, part in zip(pipes.shapes, parts, strict=True)])
    found = _HopWays(ways.run, first, src, dst, reduces, depth, between, ways, wait_ptr, wait, lag)
    run.found[key] = found, pipes.shapes  # which keeps the ids taken
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """One row for each hop of each pipeline.

    Attributes
    ----------
    pipe, hop : int64[n]
        The pipeline, and which hop of `_HopWays` it is.
    first : int64[pipes + 1]
        Where the rows of a pipeline begin.
    profile : int64[pipes]
        Equal for pipelines with equal chunks.
    """

    schedule: Schedule
    pipes: Pipelines
    hops: _HopWays
    programs: list[_Program]
    pipe: Int
    hop: Int
    first: Int
    profile: Int


def _rows(schedule: Schedule, pipes: Pipelines, hops: _HopWays, programs: list[_Program]) -> _Rows:
    """Return one row for each hop of each pipeline, which pass on what *programs* say."""
    pipes = replace(pipes, n_chunks=np.array([len(each.size_bytes) for each in programs]))
    counts = pipes.n_hops
    first = pointers(counts)
    pipe = np.repeat(np.arange(len(counts)), counts)
    hop = hops.first[pipes.shape][pipe] + np.arange(len(pipe)) - first[:-1][pipe]
    seen: dict[bytes, int] = {}
    keys = [each.size_bytes.tobytes() + (b"" if each.adds is None else each.adds.tobytes()) for each in programs]
    profile = [seen.setdefault(key, len(seen)) for key in keys]
    return _Rows(schedule, pipes, hops, programs, pipe, hop, first, np.array(profile, dtype=np.int64))


class _Classes(NamedTuple):
    """Classes of rows and links."""

    of_row: Int
    of_link: Int
    first: Int
    """The row that stands for each class."""
    near: bool
    """True if members are only nearly alike."""
    ptr: Int
    link: Int
    weight: Float
    """What one row of each class takes of one link of each class."""
    wait_ptr: Int
    wait: Int
    """The classes that each waits for."""
    lag: Int
    tells: Bool
    """Whether it waits for bytes."""


def _key(rows: _Rows) -> tuple[object, ...]:
    """Return the name under which a run keeps the classes of rows."""
    pipes = rows.pipes
    kinds = (pipes.shape, pipes.lanes, pipes.copies, rows.profile)
    return "classes", *map(id, pipes.shapes), *(column.tobytes() for column in kinds)


def _classes(rows: _Rows, run: LoweredRun) -> _Classes:
    """Return the classes of rows: the finest that are not too many, or that an earlier size has told apart already."""
    pipes, key = rows.pipes, _key(rows)
    parted: dict[int | None, tuple[Int, Int]]
    if key not in run.found:
        run.found[key] = _told(rows), {}, {}
    told, parted, known = run.found[key]
    chunks = pipes.n_chunks[rows.pipe]
    for rounds in (None, *range(MOST_ROUNDS, -1, -1)):
        if rounds not in parted:
            parted[rounds] = alike_hops(told, rounds, MOST_EXACT)
        if _transfers(parted[rounds][0], chunks) <= (MOST_EXACT if rounds is None else MOST_NEAR):
            break
    if rounds not in known:
        known[rounds] = _with_waits(rows, told, *parted[rounds], near=rounds is not None)
    classes: _Classes = known[rounds]
    return classes


def _transfers(of_row: Int, chunks: Int) -> int:
    """Return how many transfers one row of each class has."""
    return int(chunks[np.unique(of_row, return_index=True)[1]].sum())


def _told(rows: _Rows) -> Hops:
    """Return what tells rows apart: the senders and receivers that they have in common are links too."""
    pipes, hops = rows.pipes, rows.hops
    ways, run = hops.ways, hops.run
    trunks, lowest = run.trunks, int(min(hops.src.min(), hops.dst.min()))
    n_ends, n_links = int(max(hops.src.max(), hops.dst.max())) - lowest + 1, len(run.trunk_capacity_Bps)
    used, place = distinct(ways.number)
    first = np.unique(place, return_index=True)[1]
    taken = trunks.take(used, np.ones(len(used)))
    owner = np.repeat(np.arange(len(used)), np.diff(taken.ptr))
    ends = [n_links + hops.src[first] - lowest, n_links + n_ends + hops.dst[first] - lowest]
    codes = [np.full(len(used), 2.0), np.full(len(used), 3.0)]
    extra, sole = 2 * n_ends, _sole_ends(taken, owner, n_links, (hops.src[first], hops.dst[first]))
    if (straight := joined(hops.src[first], hops.dst[first], run)).any():
        both = hops.src[first], hops.dst[first]
        there, back = (a * n_ends + b for a, b in (both, both[::-1]))
        pairs, number = distinct(np.where(np.tile(straight, 2), np.concatenate([there, back]), -1))
        ends += [n_links + extra + part for part in np.split(number, 2)]  # what goes there, and what comes back
        codes += [np.full(len(used), code) for code in (4.0, 5.0)]
        extra += len(pairs)
    owner = np.concatenate([owner, *(np.arange(len(used)) for _ in ends)])
    order = np.argsort(owner, kind="stable")
    rates = end_rates_Bps(hops.src, hops.dst, run, ways.groups)
    columns = [
        hops.depth, hops.between, hops.reduces, trunks.latency_s[ways.number], ways.across, ways.added,
        hops.src < 0, hops.dst < 0, hops.src == hops.dst, *rates,
    ]  # fmt: skip
    counts = np.diff(hops.wait_ptr)[rows.hop]
    begin = hops.first[pipes.shape]
    shift = rows.first[:-1] - begin
    wait_ptr, entry = entries_of(hops.wait_ptr, rows.hop)
    return Hops(
        route_ptr=pointers(np.bincount(owner, minlength=len(used))),
        route_link=np.concatenate([taken.link, *ends])[order],
        route_weight=np.concatenate([taken.weight, *codes])[order],
        route=place[rows.hop],
        own=(
            *(np.asarray(column, dtype=np.float64)[rows.hop] for column in columns),
            *(np.asarray(column, dtype=np.float64)[rows.pipe] for column in (rows.profile, pipes.lanes, pipes.copies)),
        ),
        wait_ptr=wait_ptr,
        wait=hops.wait[entry] + np.repeat(shift[rows.pipe], counts),
        lag=hops.lag[entry],
        link=tuple(
            np.concatenate([column, np.repeat([-1.0, -2.0, -3.0], [n_ends, n_ends, extra - 2 * n_ends])])
            for column in (run.trunk_capacity_Bps, *sole)
        ),
    )


def _sole_ends(taken: Routes, owner: Int, n_links: int, ends: tuple[Int, Int]) -> list[Float]:
    """Return float64[n_links] twice: 1 for links that only ways from one source, or to one target, cross."""
    found = []
    for end in ends:
        low, high = np.full(n_links, np.iinfo(np.int64).max), np.full(n_links, np.iinfo(np.int64).min)
        np.minimum.at(low, taken.link, end[owner])
        np.maximum.at(high, taken.link, end[owner])
        found.append((low >= high).astype(np.float64))
    return found


def _with_waits(rows: _Rows, told: Hops, of_row: Int, of_link: Int, *, near: bool) -> _Classes:
    """Return the classes with what they take of links and wait for."""
    hops = rows.hops
    n_links = len(hops.run.trunk_capacity_Bps)
    of_link = of_link[:n_links]
    first = np.unique(of_row, return_index=True)[1]
    n_classes, n_kinds = len(first), int(of_link.max(initial=0)) + 1
    members = np.bincount(of_link, minlength=n_kinds)
    pair, count = np.unique(of_row * (len(told.route_ptr) - 1) + told.route, return_counts=True)
    owner, route = np.divmod(pair, len(told.route_ptr) - 1)
    ptr, entry = entries_of(told.route_ptr, route)
    link, owner, many = told.route_link[entry], np.repeat(owner, np.diff(ptr)), np.repeat(count, np.diff(ptr))
    real = link < n_links
    weight = (told.route_weight[entry] * many)[real]
    cell, place = np.unique(owner[real] * n_kinds + of_link[link[real]], return_inverse=True)
    weight = np.bincount(place, weight, minlength=len(cell)) / members[cell % n_kinds]
    wait_ptr, entry = entries_of(told.wait_ptr, first)
    waiter = np.repeat(np.arange(n_classes), np.diff(wait_ptr))
    for_whom, by_whom = told.wait[entry], first[waiter]
    src, dst = hops.src[rows.hop], hops.dst[rows.hop]
    tells = (dst[for_whom] == src[by_whom]) | (dst[for_whom] < 0)
    waits = np.unique(np.stack([waiter, of_row[for_whom], told.lag[entry], tells], axis=1), axis=0)
    return _Classes(
        of_row, of_link, first, near, pointers(np.bincount(cell // n_kinds, minlength=n_classes)), cell % n_kinds,
        weight, pointers(np.bincount(waits[:, 0], minlength=n_classes)), waits[:, 1].copy(), waits[:, 2].copy(),
        waits[:, 3] > 0,
    )  # fmt: skip


def _written_out(rows: _Rows, classes: _Classes, dtype: str, more: int) -> Lowered:
    """Return the transfers of one row of each class; chains have so many *more* hops."""
    schedule, pipes, hops = rows.schedule, rows.pipes, rows.hops
    stand = classes.first
    pipe, hop = rows.pipe[stand], rows.hop[stand]
    counts = pipes.n_chunks[pipe]
    start = pointers(counts)
    of_class = np.repeat(np.arange(len(stand)), counts)
    chunk = np.arange(start[-1]) - start[:-1][of_class]
    dep_ptr, dep, tells = _deps(classes, start, of_class, chunk)
    place = pointers(pipes.n_chunks)[:-1][pipe][of_class] + chunk
    size_bytes = np.concatenate([each.size_bytes for each in rows.programs])[place]
    adds = hops.reduces[hop][of_class]
    if rows.programs[0].adds is not None:
        adds = np.concatenate([each.adds for each in rows.programs if each.adds is not None])[place]
    transfers = Transfers(
        src=hops.src[hop][of_class],
        dst=hops.dst[hop][of_class],
        channel=pipes.channel[pipe][of_class],
        step=hops.depth[hop][of_class] + chunk,
        reduces=adds,
        reads_input=np.zeros(len(of_class), dtype=np.bool_),
        lanes=pipes.lanes[pipe][of_class],
        copies=pipes.copies[pipe][of_class],
        chunk_ptr=np.arange(len(of_class) + 1),
        chunk=np.minimum(pipes.first_chunk[pipe][of_class] + chunk, len(schedule.chunks) - 1),
        dep_ptr=dep_ptr,
        dep=dep,
    )
    trunks, of_link = hops.run.trunks, classes.of_link
    first_link = np.unique(of_link, return_index=True)[1]
    number = hops.ways.number[hop]
    plain = np.ones(len(stand))
    mean_Bps = np.bincount(of_link, hops.run.trunk_capacity_Bps) / np.bincount(of_link)
    capacity_Bps = mean_Bps if classes.near else hops.run.trunk_capacity_Bps[first_link]
    own = Routes(classes.ptr, classes.link, classes.weight, trunks.latency_s[number], plain)
    busy = _Busy(rows, stand, of_class, transfers.step)
    use = busy.use(adds)
    across = hops.ways.across[hop][of_class]
    return Lowered(
        schedule=schedule,
        run=replace(hops.run, trunks=own, trunk_capacity_Bps=capacity_Bps),
        transfers=transfers,
        size_bytes=size_bytes.astype(np.float64),
        route=of_class,
        used=np.arange(len(stand)),
        copies=pipes.copies[pipe],
        across=across,
        added=hops.ways.added[hop][of_class],
        use=use,
        dtype=dtype,
        steps=busy.steps(use, across) if across.any() else None,
        carried=_carried(rows),
        ways=hops.run.routes.take(number, plain),
        tells=tells,
        near=classes.near or more > 0,
        rounded=any(each.rounded for each in rows.programs),
        cut=_cuts(rows, classes, start, more),
    )


def _deps(classes: _Classes, start: Int, of_class: Int, chunk: Int) -> tuple[Int, Int, Bool]:
    """Return the waits of all chunks of each class."""
    _, entry = entries_of(classes.wait_ptr, of_class)
    counts = np.diff(classes.wait_ptr)[of_class]
    waiter = np.repeat(np.arange(len(of_class)), counts)
    before = chunk[waiter] - classes.lag[entry]
    there = before >= 0
    return (
        pointers(np.bincount(waiter[there], minlength=len(of_class))),
        (start[:-1][classes.wait[entry]] + before)[there],
        classes.tells[entry][there],
    )


def _cuts(rows: _Rows, classes: _Classes, start: Int, more: int) -> Cut | None:
    """Return the runs that were cut: *more* hops of chains, steps of circles, chunks.

    *start* is where the rows of a class begin.
    """
    hops = rows.pipes.n_hops
    depth = rows.hops.depth[rows.hop]
    runs: list[tuple[int, int, int, float]] = []
    for pipe, program in enumerate(rows.programs):
        first = int(rows.first[pipe])
        # Of a chain the last hop keeps the pace of the slowest; the first runs ahead of it. Of circles all are as good.
        paced = program.adds is None and not more
        last_hop = int(depth[first : first + int(hops[pipe])].argmax()) if program.adds is None else 0
        begin = int(start[classes.of_row[first + last_hop]])
        tail = program.back // 2 if paced else 0  # chains that end leave their links to others
        runs += [
            (pipe, begin + end - tail, begin + end - tail - program.back, count / program.back)
            for end, count in zip(program.ends, program.more, strict=True)
        ]
        if more:
            back = int(hops[pipe]) // 2
            before = int(start[classes.of_row[first + last_hop - back]])
            end = len(program.size_bytes) - 1
            runs.append((pipe, begin + end, before + end, more / back))
    if not runs:
        return None
    owner, last, before_it, times = (np.array(column) for column in zip(*runs, strict=True))
    return Cut(rows.pipe[classes.first], owner, last, before_it, times.astype(np.float64))


def _carried(rows: _Rows) -> tuple[Float, Float]:
    """Return float64[n_links] twice: bytes of all hops within nodes on each link, and of those between nodes."""
    pipes, hops = rows.pipes, rows.hops
    total = np.array([each.total_bytes for each in rows.programs]) * pipes.copies
    each = np.bincount(rows.hop, weights=total[rows.pipe], minlength=len(hops.src))
    routes, number, n_links = hops.run.routes, hops.ways.number, hops.run.fabric.n_links
    across = hops.ways.across
    inside, outside = (
        routes.link_bytes(np.bincount(number[part], each[part], len(routes.latency_s)).astype(np.float64), n_links)
        for part in (~across, across)
    )
    return inside, outside


class _Busy:
    """What is busy beside the rows that stand for classes, step by step, counted among all rows."""

    def __init__(self, rows: _Rows, stand: Int, of_class: Int, step: Int) -> None:
        self.rows, self.stand, self.of_class, self.step = rows, stand, of_class, step
        self.hops, pipes = rows.hops, rows.pipes
        self.begin = self.hops.depth[rows.hop]
        self.end = self.begin + pipes.n_chunks[rows.pipe]
        self.weight = (pipes.lanes * pipes.copies)[rows.pipe].astype(np.float64)
        self.n_steps = int(self.end.max(initial=0)) + 1

    def _by_label(self, label: Int, wanted: Int) -> Float:
        """Return float64[n_transfers]: channels busy under the *wanted* label of each class in the step."""
        values, place = distinct(wanted)
        at = np.minimum(np.searchsorted(values, label), len(values) - 1)
        met = np.flatnonzero(values[at] == label)
        table = self._table(len(values), at[met], met, self.weight[met])
        return np.asarray(table[place[self.of_class], self.step])

    def _table(self, n: int, line: Int, row: Int, weight: Float) -> Float:
        """Return float64[n, n_steps]: the sum of the weights on each line while their rows are busy."""
        size = n * self.n_steps
        table = np.bincount(line * self.n_steps + self.begin[row], weight, size)
        table -= np.bincount(line * self.n_steps + self.end[row], weight, size)
        return np.asarray(np.cumsum(table.reshape(n, self.n_steps), axis=1), dtype=np.float64)

    def use(self, adds: Bool) -> Use:
        """Return the channels and ways out that the transfers share."""
        hops, rows, run = self.hops, self.rows, self.hops.run
        src, dst = hops.src, hops.dst
        out_Bps, in_Bps = end_rates_Bps(src, dst, run, self.rows.schedule.groups)
        lowest = int(min(src.min(), dst.min()))
        pairs = int(max(src.max(), dst.max())) - lowest + 1
        pair = (src - lowest) * pairs + (dst - lowest)
        back = (dst - lowest) * pairs + (src - lowest)
        straight = joined(src, dst, run)
        stand = rows.hop[self.stand]
        by_sender = self._by_label((src - lowest)[rows.hop], (src - lowest)[stand])
        alone_Bps = out_Bps[stand][self.of_class]
        if not (in_Bps >= out_Bps).all():
            by_pair = self._by_label(pair[rows.hop], pair[stand])
            alone_Bps = np.minimum(alone_Bps, in_Bps[stand][self.of_class] * by_sender / by_pair)
        active, duplex = by_sender, np.zeros(len(self.of_class), dtype=np.bool_)
        if straight.any():
            label = np.where(straight, pair + pairs, src - lowest)
            active = self._by_label(label[rows.hop], label[stand])
            opposite = np.where(straight, back + pairs, -1)
            duplex = straight[stand][self.of_class] & (self._by_label(label[rows.hop], opposite[stand]) > 0)
            wire_Bps = narrowest_Bps(run.single or run.trunks, run.trunk_capacity_Bps)[hops.ways.number[stand]]
            alone_Bps = np.where(straight[stand][self.of_class], wire_Bps[self.of_class], alone_Bps)
        pipe = self.rows.pipe[self.stand]
        lanes = self.rows.pipes.lanes[pipe].astype(np.float64)[self.of_class]
        return Use(lanes, spread(active, 1), alone_Bps, duplex, adds)

    def steps(self, use: Use, across: Bool) -> Steps:
        """Return the transfers between nodes."""
        hops, rows, run = self.hops, self.rows, self.hops.run
        number = hops.ways.number[rows.hop]
        out = np.flatnonzero(hops.ways.across[rows.hop])
        classes = np.flatnonzero(hops.ways.across[rows.hop[self.stand]])
        ptr, entry = entries_of(run.trunks.ptr, number[self.stand[classes]])
        links, line = distinct(run.trunks.link[entry])
        line_of = np.full(len(run.trunk_capacity_Bps), -1, dtype=np.int64)
        line_of[links] = np.arange(len(links))
        on_ptr, on_entry = entries_of(run.trunks.ptr, number[out])
        on = line_of[run.trunks.link[on_entry]]
        row = np.repeat(out, np.diff(on_ptr))
        met = np.flatnonzero(on >= 0)
        load = self._table(len(links), on[met], row[met], self.weight[row[met]] * run.trunks.weight[on_entry[met]])
        with np.errstate(divide="ignore", invalid="ignore"):
            share_Bps = run.trunk_capacity_Bps[links][:, None] / load
        share_Bps[~(load > 1e-9)] = np.inf
        least_Bps = np.full((len(self.stand), self.n_steps), np.inf)
        for start in range(0, len(classes), 512):
            part = slice(start, start + 512)
            span = slice(int(ptr[start]), int(ptr[min(start + 512, len(classes))]))
            least_Bps[classes[part]] = np.minimum.reduceat(
                share_Bps[line[span]], ptr[start : start + 512][: len(classes[part])] - ptr[start], axis=0
            )
        moving = np.flatnonzero(across)
        shared_Bps = least_Bps[self.of_class[moving], self.step[moving]]
        alone = narrowest_Bps(run.single or run.trunks, run.trunk_capacity_Bps)[number[self.stand]]
        return steps_of(use, moving, alone[self.of_class[moving]], shared_Bps)
