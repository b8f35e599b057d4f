"""Plans: what all groups run at one size, laid on their routes, and the row of each once it is simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.collectives import Algorithm, ScheduleRequest
from collsim.core.errors import Fault, InputError, ModelError, NoRouteError, UnsupportedError
from collsim.fabric.fabric import Fabric, Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.schedule import Schedule
from collsim.simulation.alike_ranks import laid_once
from collsim.simulation.concurrent import (
    GroupTask,
    Party,
    group_times,
    part_of,
    refuse_many,
    slowest_of,
    time_together,
    with_lowered,
)
from collsim.simulation.exchanges import exchanged, has_classes, is_uneven, stands_but_for_damage, stands_for_all
from collsim.simulation.limits import busy, limit_of_hurt
from collsim.simulation.lowering import relaid
from collsim.simulation.method import Method
from collsim.simulation.request.request import Request
from collsim.simulation.result import Limit, LinkLoad, Refusal, Row
from collsim.simulation.runs import LoweredRun
from collsim.simulation.selection import ByPlugin, built, refuse_damaged
from collsim.simulation.tiers import algorithm_bound_s, tiers_of
from collsim.simulation.timing import MOST_LINKS, Timing

if TYPE_CHECKING:
    from collsim.simulation.damage_sample import Sample
    from collsim.simulation.delays import Delay
    from collsim.simulation.link_bytes import LinkBytes

__all__ = [
    "EQUALLY_BUSY",
    "Call",
    "Case",
    "Plan",
    "Task",
    "Told",
    "case_of",
    "empty_row",
    "loads_of",
    "plan_of",
    "row_of",
    "timed_row",
    "whole",
]

MANY_POINTS = 64
"""A call with so many points takes longer in plain Python than it takes to load the compiled engine."""
MANY_SOLVES = 80_000
"""So many transfers, or times that rates are shared, take plain Python as long as it takes to load the compiled engine
(measured: 3 to 11 us each, and 0.4 s)."""
POINTS = {"auto": 2, "best": 16, "all": 24}
"""About how many problems a choice makes at each size."""
MOST_AT_ONCE = 60_000
"""Transfers that begin at once, at most (chosen): they share rates with each other all the time."""
EQUALLY_BUSY = 1e-3
"""Links within this share of the busiest count as equally busy."""


@dataclass(slots=True, eq=False)
class Told:
    """Notes beside the rows: what choices left out, what was asked for and refused, and the errors of that; of each
    operation, the algorithms that the library has where the user looked beyond them; the calls for which a plug-in
    chose. Whether rows keep their loads, and whether these have every transfer of all groups.
    """

    left_out: list[str] = field(default_factory=list)
    of_library: dict[str, set[str]] = field(default_factory=dict)
    by_plugin: ByPlugin = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    errors: list[InputError | ModelError] = field(default_factory=list)
    keeps_loads: bool = False
    traced: bool = False

    def refuse(self, error: InputError | ModelError, empty: Row, asked: str) -> None:
        """Note the *error* of what was *asked* for; the *empty* row says where."""
        self.refuse_at((empty.op, empty.ranks, empty.groups, empty.requested_bytes, asked), error)

    def refuse_at(self, place: tuple[str, int, int, int, str], error: InputError | ModelError) -> None:
        """Note the *error* of a *place*: operation, ranks, groups, requested size, and what was asked."""
        self.refused += [Refusal(*place, fault.what, fault.hint, error.exit_code) for fault in error.faults]
        self.errors.append(error)

    def raise_errors(self) -> None:
        """Raise all errors as one, if there are any."""
        faults = dict.fromkeys(fault for error in self.errors for fault in error.faults)
        if len(self.errors) == 1:
            raise self.errors[0]
        if faults:
            unroutable = all(isinstance(error, ModelError) for error in self.errors)
            raise (NoRouteError if unroutable else UnsupportedError)(*faults) from self.errors[0]


@dataclass(slots=True, eq=False)
class Call:
    """State of one call: groups, question, what to tell beside the rows, how often rates were shared so far, and which
    algorithm was fastest for each operation at the size before.
    """

    party: Party
    question: Request
    told: Told
    solves: int = 0
    led: dict[str, str] = field(default_factory=dict)

    @property
    def pays_to_compile(self) -> bool:
        """True if so much is, or was, to be solved that the compiled engine is worth loading."""
        question = self.question
        many = question.one_of_many or bool(question.hash_seeds) or _points(question) >= MANY_POINTS
        return many or self.solves >= MANY_SOLVES


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """An algorithm with its request, for one group; without a protocol of its own it has the costs of Simple."""

    algorithm: Algorithm
    request: ScheduleRequest
    proto: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Plan of all groups of a party at one size: the task and the lowered schedule of each."""

    requested_bytes: int
    tasks: Sequence[Task]
    parts: Sequence[GroupTask]
    delays: Sequence[Delay | None]
    """How much later each ends because of what has failed, which its part does not show."""

    @property
    def transfers(self) -> int:
        """Number of transfers that the plan keeps in memory."""
        return sum(len(part.lowered.transfers) for part in self.parts)


@dataclass(slots=True, eq=False)
class Case:
    """A plan, kept until the draws of a hash are done, and its rows: one for each draw."""

    plan: Plan | None
    rows: list[Row]

    @property
    def transfers(self) -> int:
        """Number of transfers that are kept in memory."""
        return self.plan.transfers if self.plan else 0


def plan_of(tasks: Sequence[Task], requested_bytes: int, call: Call, *, bounds: bool = False) -> Plan:
    """Lay out what all groups of a party run at one size.

    With *bounds*, transfers may be laid out that are easier and take no longer; see `whole`.

    Raises
    ------
    UnsupportedError
        Draws of a schedule that takes routes of its own, or more transfers of all groups than can be simulated.
    """
    party, question = call.party, call.question
    ports = TreePorts.free(party.runs[0].fabric)
    alone = question.reduce and not party.shares_links and not question.hash_seeds and not question.at_once
    parts: list[GroupTask] = []
    delays: list[Delay | None] = []
    for task, run in zip(tasks, party.runs, strict=True):
        parts.append(_part(task, run, call, ports, alone=alone, bounds=bounds))
        delays.append(_delay(task, run, call, ports) if alone else None)
        refuse_many(parts, party.n_groups)  # as soon as they are too many: groups take long to lay out
    if question.hash_seeds and any(part.run is not run for part, run in zip(parts, party.runs, strict=True)):
        what = "draws of reduction trees, or of so many ranks that not all routes are kept, are not modelled"
        raise UnsupportedError(Fault(what, "hash_seeds", "leave it out, or take fewer ranks"))
    return Plan(requested_bytes, tasks, parts, delays)


def whole(plan: Plan, call: Call) -> Plan:
    """Return a plan with what only `bounds` laid out as it is; raises as of `plan_of`."""
    if not any(part.lowered.bounds for part in plan.parts):
        return plan
    return plan_of(plan.tasks, plan.requested_bytes, call)


def _part(
    task: Task,
    run: LoweredRun,
    call: Call,
    ports: TreePorts,
    *,
    alone: bool,
    bounds: bool,
    build: Callable[[], Schedule] | None = None,
) -> GroupTask:
    """Return what one group runs; one that is *alone* by some of its transfers that stand for the others.

    *build* returns the schedule if it may be there already.
    """
    question, proto = call.question, task.proto or "Simple"
    if alone and (stands_for_all(task.algorithm, task.request, run) or _is_delayed(task, run)):
        run = run if run.topology.damage is None else _sample_of(task, run).whole
        return with_lowered(exchanged(task.algorithm, task.request, run, question.dtype), proto)
    refuse_damaged(task.algorithm, task.request, run.topology)
    few = alone and not call.told.keeps_loads  # else every transfer is to be seen
    if few and has_classes(task.algorithm, task.request, run):
        from collsim.simulation.message_classes import classed  # on large clusters alone

        lowered = classed(task.algorithm, task.request, run, question.dtype)
        if lowered is not None:
            return with_lowered(lowered, proto)
    schedule = build() if build else built(task.algorithm, task.request, question)
    if call.told.traced:
        from collsim.simulation.flows import refuse_long

        refuse_long(schedule.merged().n_transfers)
    once = laid_once(schedule, run, question.dtype) if few else None
    if once is not None and (bounds or not once.bounds):
        return with_lowered(once, proto)
    return part_of(schedule, run, proto, question.dtype, ports, alone=alone)


def _is_delayed(task: Task, run: LoweredRun) -> bool:
    """Return True if what has failed on a large machine is simulated among some of its nodes."""
    return stands_but_for_damage(task.algorithm, task.request, run)


def _sample_of(task: Task, run: LoweredRun) -> Sample:
    """Return the nodes that are looked at of a damaged machine."""
    from collsim.simulation.damage_sample import sample_of  # on large damaged machines alone

    return sample_of(run, relayed=bool(task.algorithm.relays), uneven=is_uneven(task.request, run))


def _delay(task: Task, run: LoweredRun, call: Call, ports: TreePorts) -> Delay | None:
    """Return what tells how much later a group ends by what has failed, where its own part does not show that."""
    if not _is_delayed(task, run):
        return None
    from collsim.simulation.delays import Delay

    sample = _sample_of(task, run)
    some = replace(task, request=sample.request(task.request))
    build = cache(lambda: built(some.algorithm, some.request, call.question))  # the same for both
    both = sample.damaged, sample.healthy
    return Delay(sample, *(_part(some, run, call, ports, alone=True, bounds=False, build=build) for run in both))


def case_of(plan: Plan, call: Call) -> Case:
    """Simulate a plan; keep it if more draws of a hash follow."""
    return Case(plan if call.question.hash_seeds else None, [timed_row(plan, call.party, call)])


def timed_row(plan: Plan, party: Party, call: Call) -> Row:
    """Simulate a plan on the routes of *party*; the row is that of the slowest group."""
    parts, question, watch = _parts_on(party, plan, call.question), call.question, None
    if call.told.traced:
        from collsim.simulation.flows import FlowsOf

        watch = FlowsOf()
    timings = time_together(
        parts,
        party.neighbours,
        one_of_many=call.pays_to_compile,
        reduce=question.reduce,
        tolerance=question.tolerance,
        bracket=question.bracket,
        spans=call.told.keeps_loads,
        watch=watch,
    )
    timings = [delay.of(each) if delay else each for each, delay in zip(timings, plan.delays, strict=True)]
    call.solves += sum(timing.solves + timing.simulated for timing in timings)
    slowest = slowest_of(timings)
    task, timing, delay = plan.tasks[slowest], timings[slowest], plan.delays[slowest]
    run = party.runs[slowest] if delay is None else delay.sample.whole
    whole = replace(
        timing,
        method=replace(timing.method, groups_alike=bool(party.copies)),
        link_bytes=party.link_bytes(timings),
        tolerance=max(each.tolerance for each in timings),
        perturbed=max(each.perturbed for each in timings),
    )
    schedule = parts[slowest].lowered.schedule
    row = row_of(
        whole,
        empty_row(task.request, plan.requested_bytes, question, party.n_groups),
        run,
        algo=task.algorithm.name,
        proto=task.proto,
        channels=int(schedule.parameters.get("channels", 1)),
        classes=sum(each.simulated for each in timings),
    )
    if call.told.keeps_loads:
        of_all = schedule if parts[slowest].lowered.at_once is None else None  # else it is that of one rank
        loads = loads_of(whole, run, of_all)
        row = replace(row, loads=loads if watch is None else replace(loads, flows=watch.flows()))
    ran = [(each.algorithm.name, each.proto) for each in plan.tasks]
    return row if party.n_groups == 1 else replace(row, group_times=group_times(row, ran, timings, party))


def _parts_on(party: Party, plan: Plan, question: Request) -> list[GroupTask]:
    """Return the parts of a plan as they are simulated: all at once if asked for, and on the routes of a drawn hash."""
    parts = [_unordered(part) for part in plan.parts] if question.at_once else list(plan.parts)
    if not question.hash_seeds:
        return parts
    return [
        replace(part, run=run, lowered=relaid(part.lowered, run)) for part, run in zip(parts, party.runs, strict=True)
    ]


def _unordered(part: GroupTask) -> GroupTask:
    """Return the same transfers, none of which waits for another.

    Raises
    ------
    UnsupportedError
        There are so many that to simulate them would take long.
    """
    transfers = part.lowered.transfers
    if len(transfers) > MOST_AT_ONCE:
        what = f"{len(transfers):,} transfers are too many to begin at once"
        raise UnsupportedError(Fault(what, "size", "ask for fewer ranks"))
    free = replace(transfers, dep_ptr=np.zeros_like(transfers.dep_ptr), dep=transfers.dep[:0])
    return replace(part, lowered=replace(part.lowered, transfers=free))


def _points(question: Request) -> int:
    """Return about how many problems a question makes."""
    return len(question.ops) * len(question.sizes) * sum(POINTS.get(name, 1) for name in question.algo)


def row_of(timing: Timing, empty: Row, run: LoweredRun, **labels: Any) -> Row:
    """Return the row of a collective that ran as *timing* says; *empty* has what was asked, *labels* what ran."""
    utilisation = timing.link_bytes / (run.fabric.capacity_Bps * timing.time_s)
    members = _members(timing, run)
    low_s, high_s = timing.bracket_s or (None, None)
    own_bound_s = algorithm_bound_s(run.fabric, timing.link_bytes)
    if timing.method.part_delay:  # loads are those in order
        own_bound_s = max(own_bound_s, timing.bound.time_s, timing.hurt.line_s if timing.hurt else 0.0)
    hurt = None if timing.hurt is None else limit_of_hurt(timing.hurt, 0.0, timing.time_s)
    return replace(
        empty,
        time_s=timing.time_s,
        lower_bound_s=timing.bound.time_s,
        bound=timing.bound.name,
        bottleneck=_busiest(utilisation, run.fabric, hurt),
        critical_s=timing.critical_s,
        limits=busy(timing.limits, utilisation, members),
        tiers=tiers_of(run.fabric, timing.link_bytes, members, run.found),
        algo_bound_s=own_bound_s,
        bottleneck_links=_alike(utilisation, members, hurt),
        method=timing.method,
        tolerance=timing.tolerance,
        perturbed=timing.perturbed,
        raised_s=timing.raised_s,
        bracket_lo_s=low_s,
        bracket_hi_s=high_s,
        **labels,
    )


def loads_of(timing: Timing, run: LoweredRun, schedule: Schedule | None = None) -> LinkBytes:
    """Return what every link carried, for who asked to keep it."""
    from collsim.simulation.link_bytes import LinkBytes

    fabric, members = run.fabric, _members(timing, run)
    capacity_Bps, ranks = fabric.capacity_Bps, fabric.rank_node
    return LinkBytes(
        fabric.wiring, timing.link_bytes, capacity_Bps, members, ranks, schedule, timing.spans, hurt=timing.hurt
    )


def _members(timing: Timing, run: LoweredRun) -> Int:
    """Return int64[n_links]: how many links of the machine each link stands for."""
    members = run.link_members if timing.link_members is None else timing.link_members
    return np.ones(len(timing.link_bytes), dtype=np.int64) if members is None else members


def _busiest(utilisation: Float, fabric: Fabric, hurt: Limit | None) -> tuple[LinkLoad, ...]:
    """Return the busiest links, busiest first; one that is *hurt* as busy as it is."""
    order = np.argsort(-np.round(utilisation, 9), kind="stable")[:MOST_LINKS]
    found = {
        fabric.wiring.link_name(int(i)): min(float(utilisation[i]), 1.0) for i in order.tolist() if utilisation[i] > 0
    }
    if hurt is not None and hurt.utilisation is not None:
        found[hurt.name] = hurt.utilisation
        found = dict(sorted(found.items(), key=lambda entry: -entry[1])[:MOST_LINKS])
    return tuple(LinkLoad(*entry) for entry in found.items())


def _alike(utilisation: Float, members: Int, hurt: Limit | None) -> int:
    """Return how many links are as busy as the busiest, which may be one that is *hurt*."""
    most = float(utilisation.max())
    if hurt is not None and hurt.utilisation is not None and hurt.utilisation > most:
        return hurt.links
    return int(members[utilisation >= most * (1 - EQUALLY_BUSY)].sum())


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
        method=Method(),
        classes=0,
    )
