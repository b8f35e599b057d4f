"""The contest behind ``best`` and ``all``: what could run at one size, and the fastest of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collsim.collectives import Algorithm, ScheduleRequest, algorithms_for
from collsim.core.errors import Fault, InputError, UnsupportedError
from collsim.core.operations import Operation
from collsim.fabric.bounds.lower import lower_bound
from collsim.library import Protocol
from collsim.simulation.alike_ranks import are_alike
from collsim.simulation.concurrent import EQUAL, with_costs
from collsim.simulation.plans import Call, Case, Plan, Task, case_of, plan_of, whole
from collsim.simulation.request.request import PROTOCOLS, Request
from collsim.simulation.result import Row
from collsim.simulation.runs import LoweredRun, layout_of
from collsim.simulation.selection import dimensions_of_run, library_options, no_sharp, turns_sharp_on
from collsim.simulation.timing import kernel_costs, least_call_s

__all__ = ["able", "contest", "fastest", "protocols_for"]

MOST_WAITING = 100_000
"""Of schedules with more transfers a bound by all that waits in them takes as long as the compiled engine."""
OWN_CHOICE = ""
"""Place of what the library itself would take, where that is not one of an algorithm's options."""


def contest(requests: Sequence[ScheduleRequest], requested_bytes: int, call: Call, *, only_fastest: bool) -> list[Case]:
    """Return each algorithm that the fabric can carry out, with the fastest of its options: what the library could run
    of it, and every protocol on the channels that were named, or are the library's by default, or else suit the fabric.

    With *only_fastest*, what cannot be fastest is not simulated. Algorithms too large to simulate are noted.

    Raises
    ------
    UnsupportedError
        None can be simulated.
    """
    question, run, op = call.question, call.party.runs[0], requests[0].op
    entries = _Entries(requests, requested_bytes, call, only_fastest)
    own, others = _library_tasks(requests, call)
    if own:
        entries.try_out(OWN_CHOICE if entries.keeps_own_choice else own[0].algorithm.name, [own])
    run_by_library = [task for each in (own, *others) for task in each]
    has = {task.proto for task in run_by_library if task.proto}
    call.told.of_library.setdefault(op.name, set()).update(task.algorithm.name for task in run_by_library)
    candidates = able(op, run, question)
    # Who led at the size before is likely to lead again, and shows soonest who cannot.
    for candidate in sorted(candidates, key=lambda entry: entry.name != call.led.get(op.name)):
        protocols = protocols_for(candidate, op, run, question, has)
        tasks = [[Task(candidate, request, proto) for request in requests] for proto in protocols]
        entries.try_out(candidate.name, tasks, alike=True)
    for other in others:
        entries.try_out(other[0].algorithm.name, [other])
    entries.simulate()
    lost = {name: fault for name, fault in entries.refused.items() if name not in entries.seen}
    call.told.left_out += [f"{name} is left out at {requested_bytes} bytes: {why.what}" for name, why in lost.items()]
    if not entries.cases:
        raise UnsupportedError(*entries.refused.values())
    call.led[op.name] = min(entries.cases, key=lambda name: entries.cases[name].rows[0].time_s)
    order = [*(entry.name for entry in candidates), *entries.cases]
    return [entries.cases[name] for name in dict.fromkeys(order) if name in entries.cases]


def fastest(rows: Sequence[Row]) -> Row:
    """Return the fastest row; of equally fast ones the first, which is the plainest algorithm."""
    least_s = min(row.time_s for row in rows)
    return next(row for row in rows if row.time_s <= least_s * (1 + EQUAL))


def able(op: Operation, run: LoweredRun, question: Request) -> tuple[Algorithm, ...]:
    """Return the algorithms for *op* that the switches can carry out, that have the protocol and that anybody may run.

    Switches between the nodes add only if the user has turned that on.
    """
    layout = layout_of(run)
    several, racks = layout.n_nodes > 1, len(layout.racks) > 1
    torus = bool(dimensions_of_run(run))
    entries = algorithms_for(op.name, torus=torus, several_nodes=several, several_racks=racks)
    entries = tuple(entry for entry in entries if (question.proto or "Simple") in entry.protocols)
    entries = tuple(entry for entry in entries if not entry.libraries)
    reach = {
        "all": bool(run.fabric.in_network),
        "node": bool(run.fabric.node_in_network),
        "network": several and turns_sharp_on(question) and not no_sharp(run, question),
    }
    return tuple(entry for entry in entries if all(reach[part] for part in entry.in_network))


def protocols_for(
    candidate: Algorithm, op: Operation, run: LoweredRun, question: Request, has: set[str]
) -> tuple[str | None, ...]:
    """Return the protocols to try with an algorithm: of those that the library *has* here, any if none are known, the
    ones that differ in cost, Simple first; None alone where all cost the same.
    """
    if question.proto is not None:
        return (question.proto,)
    family = candidate.family_for(op.name)
    costs: dict[str, tuple[Protocol, Protocol | None]] = {}
    for proto in reversed(PROTOCOLS):
        if proto in candidate.protocols and (proto == "Simple" or not has or proto in has):
            both = kernel_costs(run, proto, family), run.profile.network.protocol(proto, family)
            if both not in costs.values():
                costs[proto] = both
    return tuple(costs) if len(costs) > 1 else (None,)


def _library_tasks(requests: Sequence[ScheduleRequest], call: Call) -> tuple[list[Task], list[list[Task]]]:
    """Return the library's choice for all groups, then its other options, largest chunks first; nothing if none
    is known.
    """
    question, runs = call.question, call.party.runs
    if question.library is None:
        return [], []
    try:
        options = [library_options(request, run, question) for request, run in zip(requests, runs, strict=True)]
    except InputError:  # no choice of the library is modelled for these ranks, or with this protocol
        return [], []
    found: dict[tuple[object, ...], list[Task]] = {}
    for each in zip(*options, strict=False):
        tasks = [Task(picked, asked, question.proto or proto) for picked, asked, proto in each]
        key = tuple((task.algorithm.name, task.proto, _cut(task.request)) for task in tasks)
        found.setdefault(key, tasks)
    own, *others = found.values()
    return own, sorted(others, key=lambda tasks: -(tasks[0].request.chunk_bytes or 0))


def _cut(request: ScheduleRequest) -> tuple[object, ...]:
    """Return the key that tells requests of the same collective apart."""
    return (
        request.channels, request.chunk_bytes, request.slots, request.share_bytes, request.peer_channels,
        request.peer_step_bytes, request.in_turn, request.tree_pattern,
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class _Entries:
    """Options of several algorithms at one size, simulated together, of each algorithm the fastest kept.

    If only the fastest of all counts, what cannot be it is passed over. Draws of a hash are of the options that are
    fastest with the first, and of the library's own choice.
    """

    requests: Sequence[ScheduleRequest]
    requested_bytes: int
    call: Call
    only_fastest: bool
    cases: dict[str, Case] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    refused: dict[str, Fault] = field(default_factory=dict)
    waiting: list[tuple[float, str, Plan]] = field(default_factory=list)
    least_s: dict[str, float] = field(default_factory=dict)

    @property
    def keeps_own_choice(self) -> bool:
        """True if other draws may make the library's own choice faster than what is fastest with the first."""
        return self.only_fastest and bool(self.call.question.hash_seeds)

    @property
    def _tells_soon(self) -> bool:
        """True if bounds, which tell who comes first, cost so much less than times that all are better looked at."""
        return are_alike(self.call.party.runs[0])

    def try_out(self, name: str, options: Sequence[Sequence[Task]], *, alike: bool = False) -> None:
        """Add options of an algorithm that may be fastest; *alike* ones have one schedule, with different protocols."""
        plan = None
        for tasks in options:
            wire_s = self._wire_s(tasks[0])
            if wire_s > self._limit_s(name):
                self.seen.add(name)
                continue
            try:
                if plan is None or not alike:
                    plan = plan_of(tasks, self.requested_bytes, self.call, bounds=True)
                parts = [with_costs(part, task.proto or "Simple") for part, task in zip(plan.parts, tasks, strict=True)]
            except UnsupportedError as error:
                self.refused[name] = error.faults[0]
                return
            self._add(name, replace(plan, tasks=tasks, parts=parts), wire_s)
        if not self.only_fastest or not (self.cases or self._tells_soon):
            self.simulate()

    def simulate(self) -> None:
        """Simulate what waits, first what may be fastest; where that tells soon, before it who led at the last size."""
        led = self.call.led.get(self.requests[0].op.name) if self._tells_soon else None
        for least_s, name, plan in sorted(self.waiting, key=lambda each: (led is not None and each[1] != led, each[0])):
            limit_s = self._limit_s(name)
            if least_s <= limit_s and (limit_s == np.inf or self._least_s(plan) <= limit_s):
                self._time(name, plan)
        self.waiting = []

    def _time(self, name: str, plan: Plan) -> None:
        """Simulate a plan, whole; note if it is too large for that."""
        try:
            self._keep(name, case_of(whole(plan, self.call), self.call))
        except UnsupportedError as error:
            if not any(part.lowered.bounds for part in plan.parts):
                raise
            self.refused[name] = error.faults[0]
            self.seen.discard(name)

    def _add(self, name: str, plan: Plan, wire_s: float) -> None:
        """Add a plan; simulate what waits if there is much of it."""
        self.seen.add(name)
        part = plan.parts[0]
        chained = part.lowered.bounds  # of one rank that is quick, and to lay out all of them is not
        soonest_s = least_call_s(part.lowered, part.run, (part.costs, part.network), chained=chained)
        self.waiting.append((max(wire_s, soonest_s), name, plan))
        if sum(each.transfers for *_, each in self.waiting) > MOST_WAITING:
            self.simulate()

    def _keep(self, name: str, case: Case) -> None:
        """Keep the case of an option that is clearly faster than the one of the same algorithm so far."""
        time_s, rival = case.rows[0].time_s, self._rival(name)
        self.least_s[rival] = min(self.least_s.get(rival, np.inf), time_s)
        if name not in self.cases or time_s < self.cases[name].rows[0].time_s * (1 - EQUAL):
            self.cases[name] = case

    def _rival(self, name: str) -> str:
        """Return whom the options of *name* have to beat: those of any algorithm, or its own."""
        return "" if self.only_fastest and not self.keeps_own_choice else name

    def _limit_s(self, name: str) -> float:
        return self.least_s.get(self._rival(name), np.inf) * (1 + EQUAL)

    def _least_s(self, plan: Plan) -> float:
        """Return a time that the plan cannot undercut, by all waits in it; 0 where a simulation takes no longer."""
        if plan.transfers > MOST_WAITING:
            return 0.0
        part = plan.parts[0]
        return least_call_s(part.lowered, part.run, (part.costs, part.network), chained=True)

    def _wire_s(self, task: Task) -> float:
        """Return the seconds that the links need for the bytes of any schedule with this protocol, flags included."""
        request, run = self.requests[0], self.call.party.runs[0]
        if request.matrix_bytes is not None:
            return 0.0
        proto, family = task.proto or "Simple", task.algorithm.family_for(request.op.name)
        both = kernel_costs(run, proto, family), run.profile.network.protocol(proto, family)
        efficiency = max(costs.wire_efficiency for costs in both if costs is not None)
        cuts = replace(run.cuts, latency_s=0.0, network_adds="network" in task.algorithm.in_network)
        if not task.algorithm.in_network:
            cuts = replace(cuts, in_network=False)
        return lower_bound(request.op, int(request.size_bytes / efficiency), cuts, request.root).time_s
