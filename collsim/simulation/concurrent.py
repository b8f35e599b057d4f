"""Groups of ranks that run at once: one schedule and one communicator each, the same links for all.

Groups that no link joins do not see each other, so each is simulated alone; equal ones among them are solved once.
Those that share links become one problem, in which their transfers share every link fairly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from collsim.core.errors import Fault, InternalError, UnsupportedError, defect
from collsim.core.operations import operation
from collsim.engine import (
    REDUCED_TRANSFERS,
    Engine,
    EngineDeadlock,
    Problem,
    Solution,
    check_conservation,
    not_too_soon,
    perturbed_share,
    solve,
)
from collsim.fabric.fabric import Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes, merge_trunks
from collsim.library import Profile
from collsim.library.costs.channel_costs import Bool, Protocol
from collsim.schedule import Schedule
from collsim.simulation.doubts import doubted
from collsim.simulation.hops import laid
from collsim.simulation.lowering import MOST_TRANSFERS, Lowered, lower
from collsim.simulation.problems import problem_of
from collsim.simulation.result import GroupTime, Row
from collsim.simulation.runs import LoweredRun, prepare, run_on
from collsim.simulation.timing import LEAST_COMPILED, Timing, costs_of, time_lowered, timing_of
from collsim.topology import Topology

if TYPE_CHECKING:
    from collsim.simulation.alike_groups import Copies

__all__ = [
    "EQUAL",
    "GroupTask",
    "Party",
    "Watch",
    "group_times",
    "part_of",
    "prepare_groups",
    "redrawn",
    "refuse_many",
    "slowest_of",
    "time_together",
    "with_costs",
    "with_lowered",
]

EQUAL = 1e-9
"""Times within this share of each other are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Party:
    """Groups of ranks that run at once.

    Attributes
    ----------
    runs : tuple of LoweredRun
        One for each group, all on the same wiring.
    neighbours : tuple of tuple of int
        Numbers of the runs, those that can share links together; they have the same trunks.
    copies : tuple of Copies
        Where runs stand for several groups, those of each; empty: each stands for itself.
    """

    runs: tuple[LoweredRun, ...]
    neighbours: tuple[tuple[int, ...], ...]
    copies: tuple[Copies, ...] = ()

    @property
    def groups(self) -> list[tuple[tuple[int, ...], int]]:
        """The GPUs of each group, and the run that stands for it."""
        if not self.copies:
            return [(tuple(run.fabric.rank_node.tolist()), number) for number, run in enumerate(self.runs)]
        found = {
            number: (gpus, run)
            for run, each in enumerate(self.copies)
            for number, gpus in zip(each.numbers, each.gpus, strict=True)
        }
        return [found[number] for number in range(len(found))]

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return sum(len(each.numbers) for each in self.copies) or len(self.runs)

    def link_bytes(self, timings: Sequence[Timing]) -> Float:
        """Return float64[n_links]: what all groups put on every link; *timings* has one for each run."""
        if not self.copies:
            return np.asarray(np.sum([each.link_bytes for each in timings], axis=0))
        return np.asarray(
            sum(each.link_bytes(timing.link_bytes) for each, timing in zip(self.copies, timings, strict=True))
        )

    @property
    def shares_links(self) -> bool:
        """True if any two groups can meet on a link."""
        return len(self.neighbours) < len(self.runs)

    @property
    def meets_hash(self) -> bool:
        """True if any message goes from switch to switch of a network, where a hash could send it elsewhere."""
        wiring = self.runs[0].fabric.wiring
        if "nic" not in wiring.node_kinds:
            return False
        first = wiring.n_nodes - wiring.node_kinds[::-1].index("nic")  # switches between nodes come last
        between = (wiring.link_src >= first) & (wiring.link_dst >= first)
        return any(bool(between[run.routes.link].any()) for run in self.runs)


@dataclass(frozen=True, slots=True, eq=False)
class GroupTask:
    """Task of one group: a lowered schedule with its costs."""

    lowered: Lowered
    run: LoweredRun
    costs: Protocol
    network: Protocol | None
    """Costs of steps between nodes."""


Watch = Callable[[Sequence[int], Sequence[GroupTask], Sequence[Problem], Problem], None]
"""Takes the numbers of neighbours, their tasks, the problem of each and the joint one, before it is solved."""


def part_of(
    schedule: Schedule,
    run: LoweredRun,
    proto: str,
    dtype: str,
    ports: TreePorts | None = None,
    *,
    alone: bool = False,
) -> GroupTask:
    """Return *schedule* as one group runs it, with the costs of protocol *proto* for elements of *dtype*.

    *ports* is what the reduction trees of other groups have taken. Of a group that is *alone* a few transfers may stand
    for the others.
    """
    lowered = laid(schedule, run, dtype, ports) if alone else lower(schedule, run, dtype, ports)
    return with_lowered(lowered, proto)


def with_lowered(lowered: Lowered, proto: str) -> GroupTask:
    """Return a lowered schedule as one group runs it, with the costs of protocol *proto*."""
    return GroupTask(lowered, lowered.run, *costs_of(lowered.schedule, lowered.run, proto))


def with_costs(part: GroupTask, proto: str) -> GroupTask:
    """Return the same with the costs of another protocol."""
    costs, network = costs_of(part.lowered.schedule, part.run, proto)
    return replace(part, costs=costs, network=network)


def prepare_groups(
    topology: Topology,
    profile: Profile,
    groups: Sequence[Sequence[int]],
    *,
    free_share: Float | None = None,
    reduce: bool = False,
) -> Party:
    """Prepare the run of each group of GPUs; *free_share* as of `prepare`.

    With *reduce*, one group may stand for others that are alike on links of their own.
    """
    if reduce and free_share is None and len(groups) > 1 and (found := _of_classes(topology, profile, groups)):
        return found
    alone = len(groups) == 1
    return _party_of([prepare(topology, profile, group, free_share=free_share, alone=alone) for group in groups])


def _of_classes(topology: Topology, profile: Profile, groups: Sequence[Sequence[int]]) -> Party | None:
    """Return one run for each class of groups; None if there are none, or groups share links."""
    from collsim.simulation.alike_groups import classes_of_groups, copies_of, rails_alike, share_links

    classes = classes_of_groups(topology, groups)
    if len(classes) == len(groups):
        alike = rails_alike(topology, groups, lambda group: prepare(topology, profile, group))
        return alike and Party((alike[0],), ((0,),), (alike[1],))
    runs, copies = [], []
    for numbers in classes:
        run = prepare(topology, profile, groups[numbers[0]])
        found = copies_of(topology, run.fabric, run.used, groups, numbers)
        if found is None:
            return None
        runs.append(run)
        copies.append(found)
    if share_links([run.used for run in runs], copies):
        return None
    return Party(tuple(runs), tuple((number,) for number in range(len(runs))), tuple(copies))


def _party_of(runs: list[LoweredRun]) -> Party:
    """Return runs as a party: those that can share links get common trunks."""
    neighbours = _neighbours([run.used for run in runs])
    for numbers in neighbours:
        if len(numbers) > 1:
            for number, run in zip(numbers, _with_common_trunks([runs[i] for i in numbers]), strict=True):
                runs[number] = run
    return Party(tuple(runs), neighbours)


def redrawn(party: Party, hash_seed: int) -> Party:
    """Return *party* with the routes that another seed of the network's hash gives it."""
    runs = []
    for run in party.runs:
        fabric, few = run.fabric.with_hash_seed(hash_seed), run.routes.number is not None
        runs.append(run_on(fabric, run.topology, run.profile, run.routes.ways, alone=few))
    return _party_of(runs)


def _neighbours(used: Sequence[Bool]) -> tuple[tuple[int, ...], ...]:
    """Put groups together that use a common link, directly or through others; *used* is bool[n_links] for each."""
    label = np.arange(len(used))
    user = np.full(len(used[0]), -1, dtype=np.int64)
    for number, links in enumerate(used):
        met = user[links & (user >= 0)]
        label[np.isin(label, label[met])] = number
        user[links] = number
    return tuple(tuple(np.flatnonzero(label == each).tolist()) for each in dict.fromkeys(label.tolist()))


def _with_common_trunks(runs: Sequence[LoweredRun]) -> list[LoweredRun]:
    """Return the runs with trunks that are merged over the routes of all, so that they have the same numbers."""
    each = [run.routes.expanded() for run in runs]
    everyone = Routes(
        _chained([routes.ptr for routes in each]),
        np.concatenate([routes.link for routes in each]),
        np.concatenate([routes.weight for routes in each]),
        np.concatenate([routes.latency_s for routes in each]),
        np.concatenate([routes.slowdown for routes in each]),
    )
    trunks, capacity_Bps = merge_trunks(everyone, runs[0].fabric.capacity_Bps)
    number = np.arange(len(everyone.latency_s))
    own = np.split(number, np.cumsum([len(run.routes.latency_s) for run in runs])[:-1])
    return [
        replace(run, trunks=trunks.take(which, np.ones(len(which))), trunk_capacity_Bps=capacity_Bps)
        for run, which in zip(runs, own, strict=True)
    ]


def time_together(
    parts: Sequence[GroupTask],
    neighbours: Sequence[Sequence[int]],
    *,
    one_of_many: bool = False,
    reduce: bool = True,
    tolerance: float | None = 0.0,
    bracket: bool = False,
    spans: bool = False,
    watch: Watch | None = None,
) -> list[Timing]:
    """Return the timing of each part while all run at once.

    Parameters
    ----------
    parts : sequence of GroupTask
        One for each run of a `Party`, in its order.
    neighbours : sequence of sequence of int
        Of that party.
    one_of_many : bool
        Whether so much is to be solved that it pays to load the compiled engine.
    reduce : bool
        Whether transfers that have to behave alike are simulated as one.
    tolerance : float or None
        As of `collsim.engine.solve`.
    bracket : bool
        Whether a time within a tolerance comes with times on both sides of it.
    spans : bool
        Whether timings say when transfers flowed.
    watch : callable, optional
        Is shown the tasks of neighbours and the one problem that they are.

    Raises
    ------
    DeadlockError, UnsupportedError, InternalError
        As `collsim.simulation.timing.time_schedule`.
    """
    n_transfers = refuse_many(parts, len(parts))
    if len(parts) > 1 and _take_own_routes(parts, neighbours):
        parts, neighbours = _with_own_routes(parts)
    engine: Engine = "auto" if reduce else "plain"
    many = one_of_many and LEAST_COMPILED < n_transfers < (REDUCED_TRANSFERS if reduce else MOST_TRANSFERS)
    if many or all(part.lowered.compiled for part in parts):
        engine = "kernel"
    elif all(part.lowered.carried is not None for part in parts):
        engine = "plain"  # classes of classes there are none
    timings: dict[int, Timing] = {}
    solving = _Solving(engine, tolerance, bracket, again=len(neighbours) > 1)
    for numbers in neighbours:
        members = [parts[i] for i in numbers]
        problems = [problem_of(part.lowered, part.run, part.costs, part.network) for part in members]
        joint = problems[0] if len(problems) == 1 else _joint(problems, members[0].run.trunk_capacity_Bps)
        if watch is not None:
            watch(numbers, members, problems, joint)
        for i, problem, found in zip(numbers, problems, _solved(members, problems, joint, solving), strict=True):
            part, both_costs = parts[i], (parts[i].costs, parts[i].network)
            above = found[1] if bracket else None
            timing = timing_of(part.lowered, part.run, both_costs, problem, found[0], above=above, spans=spans)
            if part.lowered.carried is not None:
                near, rounded = part.lowered.near, part.lowered.rounded
                method = replace(timing.method, simulated="classes", nearly_alike=near, equal_chunks=rounded)
                timing = replace(timing, method=method)
            if part.lowered.doubt is not None:
                timing = doubted(timing, part.lowered.doubt, *both_costs)
            timings[i] = timing
    return [timings[i] for i in range(len(parts))]


def refuse_many(parts: Sequence[GroupTask], n_groups: int) -> int:
    """Return the transfers of *parts*, some of so many groups; refuse them if they are more than can be simulated."""
    n_transfers = sum(len(part.lowered.transfers) for part in parts)
    if n_transfers > MOST_TRANSFERS:
        what = f"{n_transfers} transfers of {len(parts)} of {n_groups} groups are too many to simulate one by one"
        hint = "ask for one group by --ranks or a list of ranks: alone it takes as long or less; or for fewer channels"
        raise UnsupportedError(Fault(what, "groups", hint))
    return n_transfers


def _take_own_routes(parts: Sequence[GroupTask], neighbours: Sequence[Sequence[int]]) -> bool:
    """Return True if some part takes other routes than those that its party was prepared with."""
    trunks = [{id(parts[i].run.trunk_capacity_Bps) for i in numbers} for numbers in neighbours]
    return any(len(found) > 1 for found in trunks) or any(bool(part.lowered.added.any()) for part in parts)


def _with_own_routes(parts: Sequence[GroupTask]) -> tuple[list[GroupTask], tuple[tuple[int, ...], ...]]:
    """Return the parts with trunks in common where they share links, and which of them do."""
    runs = [part.run for part in parts]
    neighbours = _neighbours([run.routes.used_links(run.fabric.n_links) for run in runs])
    for numbers in neighbours:
        if len(numbers) > 1:
            for i, run in zip(numbers, _with_common_trunks([runs[i] for i in numbers]), strict=True):
                runs[i] = run
    return [replace(part, run=run) for part, run in zip(parts, runs, strict=True)], neighbours


def slowest_of(timings: Sequence[Timing]) -> int:
    """Return which group takes longest; of those that take equally long the first."""
    longest_s = max(timing.time_s for timing in timings)
    return next(i for i, timing in enumerate(timings) if timing.time_s >= longest_s * (1 - EQUAL))


def group_times(
    row: Row, ran: Sequence[tuple[str, str | None]], timings: Sequence[Timing], party: Party
) -> tuple[GroupTime, ...]:
    """Return the time of each group in the collective of *row*; *ran* has the algorithm and protocol of each run."""
    factor = operation(row.op).busbw_factor(row.ranks)
    rates_Bps = [row.size_bytes / timing.time_s if timing.time_s > 0 else 0.0 for timing in timings]
    return tuple(
        GroupTime(gpus, *ran[run], timings[run].time_s, rates_Bps[run], rates_Bps[run] * factor)
        for gpus, run in party.groups
    )


@dataclass(slots=True, eq=False)
class _Solving:
    """Settings by which problems are solved, and the solutions of those that may come again."""

    engine: Engine
    tolerance: float | None
    bracket: bool
    again: bool
    """Whether more than one problem comes."""
    known: dict[bytes, tuple[Solution, ...]] = field(default_factory=dict)

    def solutions(self, problem: Problem) -> tuple[Solution, ...]:
        """Return the solution of a problem, and with a bracket the one from above."""
        key = _digest(problem) if self.again else b""
        if key not in self.known:
            found = solve(problem, engine=self.engine, tolerance=self.tolerance)
            above = found
            if self.bracket and found.tolerance:
                above = solve(problem, engine=self.engine, tolerance=found.tolerance, ledger=True)
            self.known[key] = (found, above) if self.bracket else (found,)
        return self.known[key]


def _solved(
    members: Sequence[GroupTask], problems: Sequence[Problem], joint: Problem, solving: _Solving
) -> list[tuple[Solution, ...]]:
    """Return the solutions of each of the neighbours, whose problems are one *joint* problem."""
    try:
        solutions = solving.solutions(joint)
    except EngineDeadlock:
        for part in members:  # no group waits for another: one of them is stuck alone, and says where
            time_lowered(part.lowered, part.run, part.costs, part.network)
        raise
    if len(problems) == 1:
        return [solutions]
    if broken := [what for solution in solutions for what in check_conservation(joint, solution)]:
        raise InternalError(*(Fault(what, f"{len(members)} groups at once", defect()) for what in broken))
    return list(zip(*(_split(solution, problems) for solution in solutions), strict=True))


def _digest(problem: Problem) -> bytes:
    """Return a hash of the arrays of a problem, the same for the same problem."""
    digest = hashlib.blake2b()
    for column in problem:
        digest.update(str(len(column)).encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def _joint(problems: Sequence[Problem], capacity_Bps: Float) -> Problem:
    """Return one problem of the transfers of all; *capacity_Bps* is that of the links that they have in common.

    A group that gets less of a common link, because its channels take turns on it, takes more of it per byte instead.
    Links beyond the common ones, the ports of ranks, belong to one group each.
    """
    n_common = len(capacity_Bps)
    capacities, links, weights = [capacity_Bps], [], []
    n_links = n_common
    for p in problems:
        ports = p.capacity_Bps[n_common:]
        takes = np.concatenate([capacity_Bps / p.capacity_Bps[:n_common], np.ones(len(ports))])
        links.append(np.where(p.route_link < n_common, p.route_link, p.route_link - n_common + n_links))
        weights.append(p.route_weight * takes[p.route_link])
        capacities.append(ports)
        n_links += len(ports)
    return Problem(
        capacity_Bps=np.concatenate(capacities),
        route_ptr=_chained([p.route_ptr for p in problems]),
        route_link=np.concatenate(links),
        route_weight=np.concatenate(weights),
        route=_shifted([p.route for p in problems], [len(p.route_ptr) - 1 for p in problems]),
        size_bytes=np.concatenate([p.size_bytes for p in problems]),
        latency_s=np.concatenate([p.latency_s for p in problems]),
        cap_Bps=np.concatenate([p.cap_Bps for p in problems]),
        dep_ptr=_chained([p.dep_ptr for p in problems]),
        dep=_shifted([p.dep for p in problems], [len(p.route) for p in problems]),
    )


def _chained(pointers: Sequence[Int]) -> Int:
    """Return the pointers of CSR rows put one after the other."""
    return np.concatenate(([0], np.cumsum(np.concatenate([np.diff(ptr) for ptr in pointers]))))


def _shifted(numbers: Sequence[Int], counts: Sequence[int]) -> Int:
    """Return *numbers* put one after the other, each shifted by the counts before it."""
    starts = np.cumsum([0, *counts[:-1]])
    return np.concatenate([part + start for part, start in zip(numbers, starts, strict=True)])


def _split(solution: Solution, problems: Sequence[Problem]) -> list[Solution]:
    """Return the solution of each problem of a joint one; the first has the count of what was simulated for all."""
    ends = np.cumsum([len(problem.route) for problem in problems])[:-1]
    columns = (solution.ready_s, solution.start_s, solution.finish_s, solution.moved_bytes)
    parts = zip(*(np.split(column, ends) for column in columns), strict=True)
    found = [
        solution._replace(
            ready_s=ready, start_s=start, finish_s=finish, moved_bytes=moved, simulated=0 if i else solution.simulated
        )
        for i, (ready, start, finish, moved) in enumerate(parts)
    ]
    if not solution.tolerance:
        return found
    return [_within(problem, part, solution) for problem, part in zip(problems, found, strict=True)]


def _within(problem: Problem, part: Solution, whole: Solution) -> Solution:
    """Return one part of a *whole* that was solved with a tolerance, with what that did to this part."""
    raised_s = whole.raised_s if part.finish_s.max() == whole.finish_s.max() else 0.0
    perturbed = perturbed_share(problem.size_bytes, part.moved_bytes)
    return not_too_soon(problem, part._replace(raised_s=raised_s, perturbed=perturbed))
