"""Hops of pipelines laid on the fabric: one for each class of hops that have to behave alike, chunk by chunk.

A pipeline sends every chunk along the same hops, which wait for the same others so many chunks earlier. So classes are
looked for among the hops, of which there are hundreds of times fewer than transfers, and only one hop of each class is
written out chunk by chunk: same times. Routes and classes are kept for the other sizes of a run.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from collsim.core.arrays import entries_of, pointers
from collsim.engine.symmetry import firsts
from collsim.fabric.fabric import Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool
from collsim.schedule import Circle, Circles, Pipelines, Schedule, Transfers
from collsim.simulation.busy import Written
from collsim.simulation.hop_classes import TIMES_WHOLE, Classes, chunks_that_fit, classes_of, coarser, fits_whole
from collsim.simulation.hop_rows import Rows, cut, hops_of, programs_of, rows_of
from collsim.simulation.lowering import Cut, Doubt, Lowered, lower
from collsim.simulation.runs import LoweredRun

__all__ = ["laid"]

LEAST_TRANSFERS = 20_000
"""So many transfers are simulated as fast as classes are found."""
LEAST_UNEVEN = 150_000
"""The same of rings whose chunks differ by an element. Classes take these as equal, which keeps all channels in step;
unequal ones drift apart and share links better, so that up to 150,000 transfers (0.2 s) all are simulated."""
MOST_HOPS, MOST_CHUNKS = 160, 48
"""The same of the hops of long chains, and of their chunks."""
MOST_LONG = 600_000
"""Chains of so many transfers are simulated whole; of longer ones the first hops and chunks say how long more take."""
LONGEST = 4096
"""The same of so many hops: tables of hops by steps grow with their square (chosen: one of these is 128 MiB)."""

UNTOLD, UNTOLD_LOADS, FEW_LINKS = 0.65, 0.45, 0.2
"""How far times are off at most, as parts of them, where no wait tells hops apart; of rings by one, which does not see
yet how many hops are on the links of others; and where links are told apart by what they carry only (0.59, 0.31 and
0.15 in random runs that one wait less hardly moved; docs/scale.md)."""
AND_MORE = 2
"""Times by *r* waits are off by *r* + 1 times what one wait less moves them, and once that again to be safe: of a chain
that waits for something slow every so many hops, whoever is more than *r* of them behind it is taken to be as near."""


def laid(schedule: Schedule, run: LoweredRun, dtype: str = "float", ports: TreePorts | None = None) -> Lowered:
    """Lay *schedule* on the fabric of *run*, large pipelines over nodes by classes of their hops; see `lower`."""
    phase = schedule.phases[0]
    cluster = run.topology.cluster
    if (
        not isinstance(phase, Pipelines | Circles)
        or len(schedule.phases) > 1
        or len(phase) < (LEAST_UNEVEN if _is_uneven(phase, schedule) else LEAST_TRANSFERS)
        or cluster is None
        or schedule.parameters.get("nodes", 1) == 1
        or run.fabric.memory_Bps is not None
        or (run.routes.number is None and schedule.groups and _over_network(run, schedule))
    ):
        return lower(schedule, run, dtype, ports)
    merged = phase.merged(schedule.chunks)
    programs = programs_of(merged, schedule)
    pipes = merged if isinstance(merged, Pipelines) else _as_pipelines(merged, schedule, run)
    more = 0
    if isinstance(merged, Pipelines) and _is_long(merged):
        pipes, more = _shortened(merged, run)
        programs = [cut(each.size_bytes, None, MOST_CHUNKS) for each in programs]
    ways = hops_of(schedule, pipes, run)
    rows = rows_of(schedule, pipes, ways, programs)
    classes = classes_of(rows, run)
    if classes.near and isinstance(merged, Pipelines) and fits_whole(rows, run):
        classes = classes_of(rows, run, TIMES_WHOLE)
    elif classes.near and isinstance(merged, Pipelines):
        for rounds in (None, 1) if classes.rounds == 0 else (None,):
            if most := chunks_that_fit(rows, run, rounds):
                rows = rows_of(schedule, pipes, ways, [cut(each.size_bytes, None, most) for each in programs])
                classes = classes_of(rows, run)
                break
    lowered = _written_out(rows, classes, dtype, more)
    if classes.rounds is None:
        return lowered
    blind = {0: UNTOLD, 1: UNTOLD_LOADS * isinstance(merged, Circles)}
    least = max(blind.get(classes.rounds, 0.0), FEW_LINKS * classes.few_links)
    beside = coarser(rows, run, classes)
    written = None if beside is None else partial(_written_out, rows, beside, dtype, more)
    return replace(lowered, doubt=Doubt(least, classes.rounds + AND_MORE, written))


def _is_uneven(phase: Pipelines | Circles, schedule: Schedule) -> bool:
    """Return True for rings whose chunks of a step are not all as large."""
    if not isinstance(phase, Circles):
        return False
    table = schedule.chunks.size_bytes.reshape(-1, schedule.n_ranks)
    return bool((table != table[:, :1]).any())


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


def _over_network(run: LoweredRun, schedule: Schedule) -> bool:
    """Return True if a group of the schedule spans nodes, so that it takes a tree of the network."""
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    return any(len(np.unique(node[list(members)])) > 1 for members in schedule.groups)


def _written_out(rows: Rows, classes: Classes, dtype: str, more: int) -> Lowered:
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
    first_link = firsts(of_link)
    number = hops.ways.number[hop]
    plain = np.ones(len(stand))
    mean_Bps = np.bincount(of_link, hops.run.trunk_capacity_Bps) / np.bincount(of_link)
    capacity_Bps = mean_Bps if classes.near else hops.run.trunk_capacity_Bps[first_link]
    own = Routes(classes.ptr, classes.link, classes.weight, trunks.latency_s[number], plain)
    at = Written(pipes.n_chunks, of_class, transfers.step)
    use = classes.busy.use(at, pipes.lanes.astype(np.float64)[pipe][of_class], adds)
    across = hops.ways.across[hop][of_class]
    ends = _cuts(rows, classes, start, more)
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
        steps=classes.busy.steps(at, use, across),
        carried=_carried(rows),
        ways=hops.run.routes.take(number, plain),
        tells=tells,
        near=classes.near or ends is not None,
        rounded=any(each.rounded for each in rows.programs),
        cut=ends,
        narrowest_Bps=classes.busy.alone_Bps if classes.near else None,
    )


def _deps(classes: Classes, start: Int, of_class: Int, chunk: Int) -> tuple[Int, Int, Bool]:
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


def _cuts(rows: Rows, classes: Classes, start: Int, more: int) -> Cut | None:
    """Return the runs that were cut: *more* hops of chains, steps of circles, chunks.

    *start* is where the rows of a class begin.
    """
    hops = rows.pipes.n_hops
    depth = rows.hops.depth[rows.hop]
    runs: list[tuple[int, int, int, int, float, float, bool]] = []
    for pipe, program in enumerate(rows.programs):
        first = int(rows.first[pipe])
        # Of a chain the last hop keeps the pace of the slowest; the first runs ahead of it. Of circles all are as good.
        paced = program.adds is None and not more
        last_hop = int(depth[first : first + int(hops[pipe])].argmax()) if program.adds is None else 0
        begin = int(start[classes.of_row[first + last_hop]])
        tail = program.back // 2 if paced else 0  # chains that end leave their links to others
        steps = program.back
        runs += [
            (pipe, begin + end - tail, begin + end - tail - steps, begin + end - tail - steps // 2,
             steps // 2 / steps, count / steps, False)
            for end, count in zip(program.ends, program.more, strict=True)
        ]  # fmt: skip
        if more:
            back = int(hops[pipe]) // 2
            before, middle = (int(start[classes.of_row[first + last_hop - n]]) for n in (back, back // 2))
            end = len(program.size_bytes) - 1
            runs.append((pipe, begin + end, before + end, middle + end, back // 2 / back, more / back, True))
    if not runs:
        return None
    owner, last, before_it, middle_of, later, times, of_hops = (np.array(column) for column in zip(*runs, strict=True))
    return Cut(rows.pipe[classes.first], owner, last, before_it, middle_of, later, times, of_hops)


def _carried(rows: Rows) -> tuple[Float, Float]:
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
