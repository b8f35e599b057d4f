"""The rows of a table: what runs at one size, and how long it takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from collsim.collectives import Algorithm, ScheduleRequest, algorithm, algorithms_for
from collsim.core.errors import Fault, UnsupportedError
from collsim.core.operations import Operation
from collsim.fabric.fabric import Fabric, Float
from collsim.fabric.reduction_trees import TreePorts
from collsim.simulation.concurrent import (
    EQUAL,
    GroupTask,
    Party,
    group_times,
    part_of,
    redrawn,
    slowest_of,
    time_together,
)
from collsim.simulation.draws import over_draws
from collsim.simulation.lowering import MOST_TRANSFERS, LoweredRun, relaid
from collsim.simulation.request.request import CHOICES, Request
from collsim.simulation.result import LinkLoad, Row
from collsim.simulation.selection import built, layout_of, library_choice, no_sharp, request_of, turns_sharp_on
from collsim.simulation.timing import MOST_LINKS, Timing, least_call_s

__all__ = ["EQUALLY_BUSY", "able", "empty_row", "fastest", "row_of", "tables_of"]

MANY_NODES, CONGESTED = 64, 2.5
"""From so many nodes on, large sizes took up to so many times what laws of their number say: all-reduce on 128 to 512
nodes of Alps from 256 MiB on 1.3 to 2.4 times, most of all on 256. Other jobs or placement; no log tells which."""
MANY_POINTS = 64
"""A call with so many points takes longer in plain Python than it takes to load the compiled engine."""
MOST_WAITING = 100_000
"""Of schedules with more transfers a lower bound takes as long as the compiled engine."""
MANY_SOLVES = 1_000
"""To share rates so often takes plain Python 0.1 s; whoever has done so is likely to again."""
USUALLY_ABLE = 8
"""So many algorithms most operations have on most fabrics."""
EQUALLY_BUSY = 1e-3
"""Links within this share of the busiest count as equally busy."""


def tables_of(party: Party, question: Request, left_out: list[str]) -> list[list[list[Row]]]:
    """Return the rows of every operation and size, for each algorithm or choice that was asked for.

    With several seeds of a hash, *party* has the routes of the first; other draws repeat only routes and flow.
    """
    call = _Call(party, question, left_out)
    tables: list[list[tuple[str, list[_Case]]]] = []
    waiting: list[_Case] = []
    for op in question.ops:
        for size_bytes in question.sizes_of(op):
            tables.append(_candidates(op, size_bytes, call))
            waiting += [case for _, found in tables[-1] for case in found if case.plan]
            if sum(case.transfers for case in waiting) > MOST_TRANSFERS:
                _draw(waiting, call)
                waiting = []
    _draw(waiting, call)
    return [[_shown(name, found, party, question) for name, found in table] for table in tables]


@dataclass(slots=True, eq=False)
class _Call:
    """State of one call: groups, question, notes on algorithms left out, number of times that rates were shared."""

    party: Party
    question: Request
    left_out: list[str]
    solves: int = 0

    @property
    def pays_to_compile(self) -> bool:
        """True if so much is, or was, to be solved that the compiled engine is worth loading."""
        return bool(self.question.hash_seeds) or _points(self.question) >= MANY_POINTS or self.solves >= MANY_SOLVES


def _draw(cases: Sequence[_Case], call: _Call) -> None:
    """Add the row of each seed but the first to *cases*, nothing where no hash sends any message elsewhere."""
    plans = [case.plan for case in cases if case.plan]
    party, seeds = call.party, call.question.hash_seeds

    def drawn(seed: int) -> list[Row]:
        again = redrawn(party, seed)
        return [_timed_row(plan, again, call) for plan in plans]

    if plans and party.meets_hash:
        from concurrent.futures import ThreadPoolExecutor  # the engine does not hold the interpreter

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for rows in pool.map(drawn, seeds[1:]):
                for case, row in zip(cases, rows, strict=True):
                    case.rows.append(row)
    for case in cases:
        case.plan = None  # lets go of memory


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """An algorithm with its request, for one group; without a protocol of its own it has the costs of Simple."""

    algorithm: Algorithm
    request: ScheduleRequest
    proto: str | None


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Plan of all groups of a party at one size: the task and the lowered schedule of each."""

    requested_bytes: int
    tasks: Sequence[_Task]
    parts: Sequence[GroupTask]

    @property
    def transfers(self) -> int:
        """Number of transfers that the plan keeps in memory."""
        return sum(len(part.lowered.transfers) for part in self.parts)


@dataclass(slots=True, eq=False)
class _Case:
    """A plan, kept until the draws of a hash are done, and its rows: one for each draw."""

    plan: _Plan | None
    rows: list[Row]

    @property
    def transfers(self) -> int:
        """Number of transfers that are kept in memory."""
        return self.plan.transfers if self.plan else 0


def _candidates(op: Operation, requested_bytes: int, call: _Call) -> list[tuple[str, list[_Case]]]:
    """Return the cases at one size for each algorithm or choice that was asked for, by its name."""
    party, question = call.party, call.question
    requests = [request_of(op, requested_bytes, run, question) for run in party.runs]
    if requests[0].size_bytes == 0:
        return [("", [_Case(None, [empty_row(requests[0], requested_bytes, question, len(requests))])])]
    found = []
    for name in question.algo:
        if name == "auto" and question.library is not None:
            tasks = _chosen_tasks(requests, party, question)
            cases = [_case(_plan(tasks, requested_bytes, call), call)]
        elif name in CHOICES:
            cases = _all_cases(requests, requested_bytes, _Trial(call, only_fastest=name != "all"))
        else:
            tasks = _tasks(algorithm(op.name, name), requests, question)
            cases = [_case(_plan(tasks, requested_bytes, call), call)]
        found.append((name, cases))
    return found


def _shown(name: str, cases: Sequence[_Case], party: Party, question: Request) -> list[Row]:
    """Return the rows to show of what ran for one name: all, or the fastest."""
    drawn = question.hash_seeds and cases[0].rows[0].size_bytes > 0
    rows = [over_draws(case.rows, question.hash_seeds) if drawn else case.rows[0] for case in cases]
    if name == "auto" and question.library is not None:
        return [_with_interval(row, party, question) for row in rows]
    return [fastest(rows)] if name in ("auto", "best") else rows


def _tasks(candidate: Algorithm, requests: Sequence[ScheduleRequest], question: Request) -> list[_Task]:
    """Return the same algorithm for every group."""
    return [_Task(candidate, request, question.proto) for request in requests]


def fastest(rows: Sequence[Row]) -> Row:
    """Return the fastest row; of equally fast ones the first, which is the plainest algorithm."""
    least_s = min(row.time_s for row in rows)
    return next(row for row in rows if row.time_s <= least_s * (1 + EQUAL))


def _chosen_tasks(requests: Sequence[ScheduleRequest], party: Party, question: Request) -> list[_Task]:
    """Return the tasks that the library would choose, for each group by itself."""
    choices = [library_choice(request, run, question) for request, run in zip(requests, party.runs, strict=True)]
    return [_Task(picked, asked, question.proto or proto) for picked, asked, proto in choices]


def _with_interval(row: Row, party: Party, question: Request) -> Row:
    """Return the row of what the library chose with its interval, where errors that were counted give one."""
    profile, picked = party.runs[0].profile, algorithm(row.op, row.algo)
    family = picked.family_for(row.op)
    if question.channels or question.chunk_bytes or question.proto or profile.lacks(row.proto or "Simple", family):
        return row  # not what the library would do, or not measured: nobody knows how far off that is
    topology = party.runs[0].topology
    if question.load or party.shares_links or topology.damage is not None:
        return row  # nor what traffic does to each other, nor broken machines
    if "network" in picked.in_network:
        return row  # nor steps that switches between the nodes add
    scatter = profile.scatter(family, row.size_bytes)
    if scatter is None or scatter.fitted:
        return row
    nodes = layout_of(party.runs[0]).n_nodes
    scatter = scatter.widened(profile.network.reach(nodes) if nodes > 1 else 1.0)
    low_s, high_s = row.time_s * scatter.low, row.time_s * scatter.high
    if nodes >= MANY_NODES:
        high_s *= CONGESTED
    return replace(row, time_lo_s=max(low_s, row.lower_bound_s), time_hi_s=max(high_s, row.lower_bound_s))


@dataclass(slots=True, eq=False)
class _Trial:
    """Plans of several algorithms at one size, simulated together; if only the fastest counts, those that can be it."""

    call: _Call
    only_fastest: bool
    cases: dict[str, _Case] = field(default_factory=dict)
    waiting: list[tuple[float, str, _Plan]] = field(default_factory=list)
    least_s: float = np.inf

    def add(self, name: str, plan: _Plan) -> None:
        """Add a plan; simulate what waits if there is much of it."""
        self.waiting.append((self._least_s(plan, chained=False), name, plan))
        if sum(each.transfers for *_, each in self.waiting) > MOST_WAITING:
            self.simulate()

    def simulate(self) -> None:
        """Simulate what waits, first what may be fastest."""
        for least_s, name, plan in sorted(self.waiting, key=lambda each: each[0]):
            limit_s = self.least_s * (1 + EQUAL)
            if least_s <= limit_s and (limit_s == np.inf or self._least_s(plan, chained=True) <= limit_s):
                self.cases[name] = _case(plan, self.call)
                self.least_s = min(self.least_s, self.cases[name].rows[0].time_s)
        self.waiting = []

    def _least_s(self, plan: _Plan, *, chained: bool) -> float:
        """Return a time that the plan cannot undercut; 0 if it is to be simulated anyway, or only that tells."""
        drawn = bool(self.call.question.hash_seeds)
        if not self.only_fastest or len(plan.parts) > 1 or drawn or plan.transfers > MOST_WAITING:
            return 0.0
        part = plan.parts[0]
        return least_call_s(part.lowered, part.run, (part.costs, part.network), chained=chained)


def _all_cases(requests: Sequence[ScheduleRequest], requested_bytes: int, trial: _Trial) -> list[_Case]:
    """Return every algorithm that the fabric can carry out; note those that are too large to simulate."""
    call = trial.call
    refused: list[Fault] = []
    candidates = able(requests[0].op, call.party.runs[0], call.question)
    for candidate in candidates:
        try:
            trial.add(candidate.name, _plan(_tasks(candidate, requests, call.question), requested_bytes, call))
        except UnsupportedError as error:
            refused.extend(error.faults)
            call.left_out.append(f"{candidate.name} is left out at {requested_bytes} bytes: {error.faults[0].what}")
    trial.simulate()
    if not trial.cases:
        raise UnsupportedError(*refused)
    return [trial.cases[each.name] for each in candidates if each.name in trial.cases]


def able(op: Operation, run: LoweredRun, question: Request) -> tuple[Algorithm, ...]:
    """Return the algorithms for *op* that the switches can carry out, and that have the protocol.

    Switches between the nodes add only if the user has turned that on.
    """
    layout = layout_of(run)
    several = layout.n_nodes > 1
    entries = algorithms_for(op.name, several_nodes=several, several_racks=len(layout.racks) > 1)
    entries = tuple(entry for entry in entries if (question.proto or "Simple") in entry.protocols)
    reach = {
        "all": bool(run.fabric.in_network),
        "node": bool(run.fabric.node_in_network),
        "network": several and turns_sharp_on(question) and not no_sharp(run, question),
    }
    return tuple(entry for entry in entries if all(reach[part] for part in entry.in_network))


def _plan(tasks: Sequence[_Task], requested_bytes: int, call: _Call) -> _Plan:
    """Lay out what all groups of a party run at one size.

    Raises
    ------
    UnsupportedError
        Draws of a schedule that takes routes of its own.
    """
    party, question = call.party, call.question
    ports = TreePorts.free(party.runs[0].fabric)
    parts = [
        part_of(built(task.algorithm, task.request, question), run, task.proto or "Simple", question.dtype, ports)
        for task, run in zip(tasks, party.runs, strict=True)
    ]
    if question.hash_seeds and any(part.run is not run for part, run in zip(parts, party.runs, strict=True)):
        what = "draws of reduction trees, or of so many ranks that not all routes are kept, are not modelled"
        raise UnsupportedError(Fault(what, "hash_seeds", "leave it out, or take fewer ranks"))
    return _Plan(requested_bytes, tasks, parts)


def _case(plan: _Plan, call: _Call) -> _Case:
    """Simulate a plan; keep it if more draws of a hash follow."""
    return _Case(plan if call.question.hash_seeds else None, [_timed_row(plan, call.party, call)])


def _timed_row(plan: _Plan, party: Party, call: _Call) -> Row:
    """Simulate a plan on the routes of *party*; the row is that of the slowest group."""
    parts, question = plan.parts, call.question
    if question.hash_seeds:
        parts = [
            replace(part, run=run, lowered=relaid(part.lowered, run))
            for part, run in zip(parts, party.runs, strict=True)
        ]
    timings = time_together(
        parts,
        party.neighbours,
        one_of_many=call.pays_to_compile,
        reduce=question.reduce,
        tolerance=question.tolerance,
        bracket=question.bracket,
    )
    call.solves += sum(timing.solves for timing in timings)
    tasks = plan.tasks
    slowest = slowest_of(timings)
    task, timing = tasks[slowest], timings[slowest]
    whole = replace(
        timing,
        link_bytes=np.sum([each.link_bytes for each in timings], axis=0),
        tolerance=max(each.tolerance for each in timings),
        perturbed=max(each.perturbed for each in timings),
    )
    row = row_of(
        whole,
        empty_row(task.request, plan.requested_bytes, question, len(tasks)),
        party.runs[slowest],
        algo=task.algorithm.name,
        proto=task.proto,
        channels=int(parts[slowest].lowered.schedule.parameters.get("channels", 1)),
        classes=sum(each.simulated for each in timings),
    )
    ran = [(each.algorithm.name, each.proto) for each in tasks]
    return row if len(tasks) == 1 else replace(row, group_times=group_times(row, ran, timings, party))


def _points(question: Request) -> int:
    """Return about how many problems a question makes: all algorithms, or for each choice one and another."""
    of_each = [USUALLY_ABLE if name == "all" else 2 if name in CHOICES else 1 for name in question.algo]
    return len(question.ops) * len(question.sizes) * sum(of_each)


def row_of(timing: Timing, empty: Row, run: LoweredRun, **labels: Any) -> Row:
    """Return the row of a collective that ran as *timing* says; *empty* has what was asked, *labels* what ran."""
    utilisation = timing.link_bytes / (run.fabric.capacity_Bps * timing.time_s)
    members = run.link_members if timing.link_members is None else timing.link_members
    members = np.ones(len(utilisation), dtype=np.int64) if members is None else members
    low_s, high_s = timing.bracket_s or (None, None)
    return replace(
        empty,
        time_s=timing.time_s,
        lower_bound_s=timing.bound.time_s,
        bound=timing.bound.name,
        bottleneck=_busiest(utilisation, run.fabric),
        critical_s=timing.critical_s,
        bottleneck_links=int(members[utilisation >= utilisation.max() * (1 - EQUALLY_BUSY)].sum()),
        path=timing.path,
        tolerance=timing.tolerance,
        perturbed=timing.perturbed,
        raised_s=timing.raised_s,
        bracket_lo_s=low_s,
        bracket_hi_s=high_s,
        **labels,
    )


def _busiest(utilisation: Float, fabric: Fabric) -> tuple[LinkLoad, ...]:
    """Return the busiest links, busiest first."""
    order = np.argsort(-np.round(utilisation, 9), kind="stable")[:MOST_LINKS]
    return tuple(
        LinkLoad(fabric.wiring.link_name(int(i)), min(float(utilisation[i]), 1.0)) for i in order if utilisation[i] > 0
    )


def empty_row(request: ScheduleRequest, requested_bytes: int, question: Request, groups: int = 1) -> Row:
    """Return the row of a collective that moves nothing and takes no time."""
    op, element_bytes = request.op, question.element_bytes
    return Row(
        op=op.name,
        algo="none",
        proto=question.proto,
        channels=0,
        ranks=request.n_ranks,
        groups=groups,
        dtype=question.dtype,
        redop=question.redop if op.reduces else "none",
        root=request.root if op.rooted else -1,
        count=op.count(request.size_bytes, request.n_ranks, element_bytes),
        requested_bytes=requested_bytes,
        size_bytes=request.size_bytes,
        time_s=0.0,
        lower_bound_s=0.0,
        bound="none",
        bottleneck=(),
        bottleneck_links=0,
        critical_s={},
        path="none",
        classes=0,
    )
