"""Hierarchical collectives on a machine that a small part stands for: exchanges in units, rings of units per rail.

The levels follow one another, rank by rank, so each is computed by itself from when its ranks are ready: an exchange
once for each kind of unit and pattern of ready times, a ring once for all rails that are alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collsim.collectives import Algorithm, NodeLayout, ScheduleRequest
from collsim.collectives.hierarchical import pieces_of
from collsim.core.errors import Fault, UnsupportedError
from collsim.engine import Problem, solve
from collsim.fabric.fabric import Float, Int
from collsim.schedule import EVERY, Transfers
from collsim.schedule.forms import Chunks
from collsim.simulation.concurrent import GroupTask, part_of
from collsim.simulation.problems import problem_of
from collsim.simulation.quotient.cluster_rings import (
    Critical,
    Leg,
    counts_adding,
    on_wires,
    out_of_step,
    paced,
    stream_of,
    timing_of,
    turns_of,
    walk,
)
from collsim.simulation.quotient.link_loads import UnitBytes, alike, carried
from collsim.simulation.quotient.paces import Paces, Road, places_of
from collsim.simulation.quotient.representatives import Miniature
from collsim.simulation.runs import LoweredRun
from collsim.simulation.timing import Timing

__all__ = ["hierarchical_timing"]

SAME = 1e-12
"""Patterns of ready times that differ by so small a part of the time until then are one."""


class _Task(NamedTuple):
    """A hierarchical collective on the part: algorithm, request, kernel, order of units, and the slices of ranks."""

    algorithm: Algorithm
    mini: Miniature
    run: LoweredRun
    request: ScheduleRequest
    kernel: tuple[str, str]
    road: Road
    sizes: Int
    """int64[units, rails]: of the slice that each rank stands for."""
    last_step: int
    """Of the whole schedule."""


class _State(NamedTuple):
    """Progress of the ranks: the times at which they are ready for the next leg, float64[units, rails]."""

    ready_s: Float
    latency_s: Float
    """Seconds of that in which no bytes flowed."""


def hierarchical_timing(
    algorithm: Algorithm, mini: Miniature, run: LoweredRun, request: ScheduleRequest, kernel: tuple[str, str]
) -> tuple[Timing, int]:
    """Return the timing on all ranks and the channels of a schedule with a ring per rail; *kernel* as of `ring_timing`.

    Raises
    ------
    UnsupportedError
        Units have different numbers of ranks, the data goes in several pieces, or it is not known how fast rails are.
    """
    outwards, inwards = request.op.name != "all_gather", request.op.name != "reduce_scatter"
    road, sizes = _table(algorithm.name, mini, request)
    last_step = (len(sizes) - 1) * (outwards + inwards) + outwards + inwards - 1
    task = _Task(algorithm, mini, run, request, kernel, road, sizes, last_step)
    state, simulated = _State(*np.zeros((2, *sizes.shape))), 0
    loads: list[UnitBytes] = []
    if outwards and sizes.shape[1] > 1:
        state, rows, load = _exchanged(task, state, gathers=False)
        simulated, loads = simulated + rows, [*loads, load]
    scattered = state
    part, paces, state, at_cap = _ringed(task, state, outwards=outwards, inwards=inwards)
    if loads:
        _refuse_overlap(scattered, loads[0], paces.carried)
    if inwards and sizes.shape[1] > 1:
        state, rows, load = _exchanged(task, state, gathers=True)
        simulated, loads = simulated + rows, [*loads, load]
    unit, rail = np.unravel_index(int(state.ready_s.argmax()), state.ready_s.shape)
    critical = Critical(float(state.ready_s[unit, rail]), float(state.latency_s[unit, rail]), at_cap)
    simulated += len(part.lowered.transfers)
    largest = sizes.sum(axis=0) if sizes.shape[1] > 1 else sizes.ravel()
    on_links = carried(mini, part.run.fabric.capacity_Bps, road.units, [paces.carried, *loads], paces.above)
    return timing_of(part, on_links, critical, simulated, largest_bytes=int(largest.max())), request.n_channels


def _refuse_overlap(scattered: _State, exchange: UnitBytes, rings: UnitBytes) -> None:
    """Raise where rings already pass through links of a unit that its ranks still exchange over.

    Messages of a rank without an adapter take a neighbour's, over such links; others may be ready before its unit is.
    """
    begin_s = float(scattered.ready_s.min())
    late = np.flatnonzero(scattered.ready_s.max(axis=1) > begin_s * (1 + SAME))
    if ((exchange.table[exchange.label[late]] > 0) & (rings.table[rings.label[late]] > 0)).any():
        raise out_of_step()


def _table(name: str, mini: Miniature, request: ScheduleRequest) -> tuple[Road, Int]:
    """Return the units with the GPUs of their rails, and int64[units, rails], the slice of each rank."""
    pieces = pieces_of(request)
    if len(pieces) > 1:
        what = "pieces that flow through the levels one behind the other are simulated transfer by transfer"
        raise UnsupportedError(Fault(what, "chunk", "leave out the size of a chunk, or ask for fewer ranks"))
    per, n = mini.frame.per_unit, request.n_ranks
    units, stops = np.unique(mini.gpus // per, return_counts=True)
    if mini.topology.cluster is None:
        NodeLayout.blocks([n]).per_node(name)
    NodeLayout.blocks([*np.unique(stops).tolist(), int(stops[0])]).per_node(name)
    local = (mini.gpus % per).reshape(len(units), -1)
    style, first = alike(*local.T)
    paths = [[[gpu] for gpu in pattern] for pattern in local[first].tolist()]
    return Road(units, style, paths), pieces[0].reshape(local.shape)


def _ringed(task: _Task, before: _State, *, outwards: bool, inwards: bool) -> tuple[GroupTask, Paces, _State, bool]:
    """Return the hops of the rings of all rails, how fast they are, and the state when the rings are through."""
    m, rails = task.sizes.shape
    told = counts_adding(task.run, task.algorithm.family_for(task.request.op.name), task.kernel)
    legs: list[Leg] = [(np.arange(1, m), told)] * outwards + [(np.arange(m - 1), False)] * inwards
    streams = [stream_of(rail, [task.sizes[:, rail]], legs) for rail in range(rails)]
    places = places_of(task.mini, task.road, streams, lanes=task.request.n_channels)
    hops = task.algorithm.name, task.road, streams, places
    part, paces = paced(task.mini, task.run, task.request, hops, task.kernel, last_step=task.last_step)
    turns = [turns_of(task.sizes[:, stream.ring], stream, legs) for stream in streams]
    rounds = walk(paces, turns, before.ready_s.T, everywhere=True)
    came_s = np.roll(rounds.got_s, 1, axis=1).T
    way_s = np.roll(rounds.latency_s + rounds.got_s - rounds.sent_s, 1, axis=1).T
    later = came_s > rounds.sent_s.T
    spent_s = before.latency_s + np.where(later, way_s, rounds.latency_s.T)
    state = _State(np.where(later, came_s, rounds.sent_s.T), spent_s)
    return part, paces, state, all(bool(each.all()) for each in paces.at_cap)


def _exchanged(task: _Task, before: _State, *, gathers: bool) -> tuple[_State, int, UnitBytes]:
    """Return the state after every rank has sent to every other of its unit, transfers simulated, and bytes on links.

    In a scatter it sends what the other stands for, and goes on when all has come that is for it; in a gather it sends
    what it stands for itself.
    """
    rails = task.sizes.shape[1]
    start_s = before.ready_s.min(axis=1)
    since_s = before.ready_s - start_s[:, None]
    rough = np.round(since_s / (SAME * max(float(before.ready_s.max()), 1e-300))).astype(np.int64)
    which, first = alike(task.mini.kinds.kind[task.road.units], task.road.style, *rough.T)
    a, b = (index[~np.eye(rails, dtype=np.bool_)] for index in np.indices((rails, rails)))
    sent = task.sizes.sum(axis=0)[a if gathers else b]
    problem, origin = _exchange_problem(task, first, (a, b), sent, adds=not gathers)
    n = len(first) * len(a)
    waits_s = problem.latency_s[:n].reshape(len(first), -1)
    ready_s = since_s[first][:, a]
    solution = solve(problem._replace(latency_s=(waits_s + ready_s).ravel()))
    done_s = solution.finish_s.reshape(len(first), -1)
    table_s = np.zeros((2, len(first), rails, rails))
    table_s[0][:, a, b], table_s[1][:, a, b] = done_s, waits_s
    if gathers:  # a rank is through when it has sent, too
        table_s = np.maximum(table_s, table_s.swapaxes(2, 3))
    last = table_s[0].argmax(axis=1)
    ends_s, waited_s = (np.take_along_axis(table, last[:, None], axis=1)[:, 0] for table in table_s)
    source_s = np.take_along_axis(before.latency_s, last[which], axis=1)
    state = _State(start_s[:, None] + ends_s[which], source_s + waited_s[which])
    load_bytes = np.repeat(problem.size_bytes, np.diff(problem.route_ptr)) * problem.route_weight
    copy = np.repeat(np.arange(n) // len(a), np.diff(problem.route_ptr))
    spot = task.mini.link_spot[origin[problem.route_link]]
    table = np.zeros((len(first), int(task.mini.link_spot.max()) + 1))
    np.add.at(table, (copy, spot), load_bytes)
    return state, n, UnitBytes(which, table)


def _exchange_problem(task: _Task, first: Int, ends: tuple[Int, Int], sent: Int, *, adds: bool) -> tuple[Problem, Int]:
    """Return the transfers within the units at places *first* of the road, and which link of the part each link is."""
    road, per = task.road, task.mini.frame.per_unit
    gpus = np.array(road.paths)[road.style[first], :, 0] + road.units[first][:, None] * per
    src, dst = task.mini.stand_ins(gpus[:, ends[0]].ravel(), gpus[:, ends[1]].ravel())
    sizes, chunk = np.unique(sent, return_inverse=True)
    copy = np.repeat(np.arange(len(first)), len(sent))
    transfers = Transfers.side_by_side(
        src,
        dst,
        np.tile(chunk, len(first)),
        step=copy,
        reduces=adds,
        reads_input=adds,
        lanes=task.request.n_channels,
    )
    every = np.full(len(sizes), EVERY)
    schedule = task.request.schedule(
        task.algorithm.name, Chunks(sizes, every, every), transfers, last_step=task.last_step
    )
    part = part_of(schedule, on_wires(task.run), *task.kernel)
    problem = problem_of(part.lowered, part.run, part.costs, part.network)
    return _apart(problem, copy)


def _apart(problem: Problem, copy: Int) -> tuple[Problem, Int]:
    """Return the problem with links of its own for each copy of the part, and which of the part each link is."""
    counts = np.diff(problem.route_ptr)[problem.route]
    ptr = np.concatenate([[0], np.cumsum(counts)])
    entry = np.repeat(problem.route_ptr[problem.route] - ptr[:-1], counts) + np.arange(ptr[-1])
    keys, link = np.unique(
        np.repeat(copy, counts) * len(problem.capacity_Bps) + problem.route_link[entry], return_inverse=True
    )
    origin = keys % len(problem.capacity_Bps)
    apart = problem._replace(
        capacity_Bps=problem.capacity_Bps[origin],
        route_ptr=ptr,
        route_link=link.astype(np.int64),
        route_weight=problem.route_weight[entry],
        route=np.arange(len(problem.route)),
    )
    return apart, origin
