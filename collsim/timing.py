"""How long a schedule takes on a topology: fabric, routes, engine, and the laws that every answer must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collsim.bounds import Bound, Cuts, find_cuts, lower_bound
from collsim.engine import EngineDeadlock, Problem, Solution, check_conservation, solve
from collsim.errors import DeadlockError, Fault, InternalError, UnsupportedError
from collsim.fabric import Fabric, Float, Int, build_fabric
from collsim.flow_bounds import Flows, find_flows
from collsim.library import Profile, Protocol
from collsim.operations import operation
from collsim.routing import Routes, find_routes, merge_trunks
from collsim.schedule import EVERY, Schedule, Transfers, is_in_network
from collsim.topology import Topology

__all__ = ["MOST_LINKS", "Run", "Timing", "bound_of", "prepare", "time_schedule"]

SLACK = 1e-9
"""Relative rounding allowed to the always-on checks."""
AT_CAP = 1e-6
"""A transfer that took at most this share longer than at its cap ran at its cap."""
MOST_TRANSFERS = 2_000_000
"""Larger schedules take more than about half a minute and 1 GB."""
MOST_EQUAL_CHANNELS = 16
"""Before equal channels are merged, a schedule may be so many times larger."""
MOST_LINKS = 8
"""How many links a message or a row names."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Everything that the sizes and algorithms of one call share."""

    topology: Topology
    fabric: Fabric
    profile: Profile
    routes: Routes
    trunks: Routes
    trunk_capacity_Bps: Float
    cuts: Cuts
    flows: Flows | None


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """How a schedule ran: total time, load of each link, what the slowest chain waited for, and how it was solved."""

    time_s: float
    link_bytes: Float
    critical_s: Mapping[str, float]
    path: str
    transfers: int


def prepare(topology: Topology, profile: Profile, ranks: Sequence[int] | None = None) -> Run:
    """Build the fabric of *ranks* (all GPUs if None), its routes, and what bounds the time on it."""
    fabric = build_fabric(topology, ranks, efficiency=profile.achievable_rate, latency=profile.latency)
    routes = find_routes(fabric)
    trunks, capacity = merge_trunks(routes, fabric.capacity_Bps)
    used = routes.used_links(fabric.n_links)
    return Run(
        topology,
        fabric,
        profile,
        routes,
        trunks,
        capacity,
        find_cuts(fabric, used, routes.fastest_s()),
        find_flows(fabric, used),
    )


def time_schedule(schedule: Schedule, run: Run, proto: str = "Simple") -> Timing:
    """Run *schedule* on the fabric of *run*, with the costs of protocol *proto*.

    Raises
    ------
    DeadlockError
        Transfers wait for each other; names ranks and steps.
    UnsupportedError
        The schedule has more transfers than fit in memory.
    InternalError
        The result broke a conservation law.
    """
    _refuse_size(schedule, MOST_TRANSFERS * MOST_EQUAL_CHANNELS)
    merged = schedule.merged()
    _refuse_size(merged, MOST_TRANSFERS)
    transfers = merged.materialise()
    size_bytes = transfers.size_bytes(schedule.chunks)
    n_routes = len(run.routes.latency_s)
    key, route = np.unique(transfers.copies * n_routes + _route_numbers(transfers, run), return_inverse=True)
    copies, used = np.divmod(key, n_routes)
    costs = run.profile.protocol(proto)
    weight = copies / costs.wire_efficiency
    problem = _problem(
        transfers, size_bytes, route, run.trunks.take(used, weight), capacity_Bps=run.trunk_capacity_Bps, costs=costs
    )
    try:
        solution = solve(problem)
    except EngineDeadlock as stuck:
        raise DeadlockError(*_deadlock_faults(stuck, transfers)) from None
    link_bytes = run.routes.take(used, weight).link_bytes(
        np.bincount(route, weights=size_bytes, minlength=len(used)).astype(np.float64), run.fabric.n_links
    )
    time_s = run.profile.launch_s + float(solution.finish_s.max())
    timing = Timing(
        time_s=time_s,
        link_bytes=link_bytes,
        critical_s={"launch": run.profile.launch_s, **_critical_path(problem, solution)},
        path=f"transfers, {solution.path}",
        transfers=len(transfers),
    )
    _refuse_broken_laws(schedule, timing, run, check_conservation(problem, solution))
    return timing


def _route_numbers(transfers: Transfers, run: Run) -> Int:
    """Return int64[n]: which of the routes each transfer takes.

    Raises
    ------
    UnsupportedError
        A multicast or load-reduce on switches that only forward.
    """
    n, src, dst = run.fabric.n_ranks, transfers.src, transfers.dst
    if is_in_network(transfers) and run.fabric.in_network is None:
        hint = "choose another algorithm, or a switched topology with in_network_reduction"
        raise UnsupportedError(Fault("the schedule needs switches that add and multicast", "topology", hint))
    return np.where(src == EVERY, n * n + n + dst, np.where(dst == EVERY, n * n + src, src * n + dst))


def _critical_path(problem: Problem, solution: Solution) -> dict[str, float]:
    """Walk back from the last transfer through what it waited for; return the time spent in each kind of wait.

    *latency* is before bytes flow, *channel rate* flow at the transfer's own cap, *links* flow held back by links.
    """
    spent = {"latency": 0.0, "channel rate": 0.0, "links": 0.0}
    last = int(np.argmax(solution.finish_s))
    while True:
        flow_s = float(solution.finish_s[last] - solution.start_s[last])
        capped = flow_s <= problem.size_bytes[last] / problem.cap_Bps[last] * (1 + AT_CAP)
        spent["channel rate" if capped else "links"] += flow_s
        spent["latency"] += float(solution.start_s[last] - solution.ready_s[last])
        waited_for = problem.dep[problem.dep_ptr[last] : problem.dep_ptr[last + 1]]
        if len(waited_for) == 0:
            return spent
        last = int(waited_for[np.argmax(solution.finish_s[waited_for])])


def _refuse_size(schedule: Schedule, most: int) -> None:
    """Refuse a schedule that would not fit in memory."""
    if schedule.n_transfers > most:
        what = f"{schedule.n_transfers} transfers are too many to simulate one by one"
        hint = "ask for fewer ranks or channels, or larger chunks"
        raise UnsupportedError(Fault(what, f"{schedule.op} by {schedule.algo}", hint))


def _problem(
    transfers: Transfers, size_bytes: Int, route: Int, trunks: Routes, *, capacity_Bps: Float, costs: Protocol
) -> Problem:
    """Return the arrays that the engine takes; *trunks* holds the routes by the numbers in *route*."""
    moves = transfers.src != transfers.dst
    return Problem(
        capacity_Bps=capacity_Bps,
        route_ptr=trunks.ptr,
        route_link=trunks.link,
        route_weight=trunks.weight,
        route=route,
        size_bytes=size_bytes.astype(np.float64),
        latency_s=trunks.latency_s[route] + np.where(moves, costs.message_overhead_s, 0.0),
        cap_Bps=transfers.lanes.astype(np.float64) * costs.channel_rate_Bps,
        dep_ptr=transfers.dep_ptr,
        dep=transfers.dep,
    )


def _deadlock_faults(stuck: EngineDeadlock, transfers: Transfers) -> list[Fault]:
    """Say which ranks wait for each other."""
    shown = list(stuck.cycle or stuck.transfers)[:5]
    ranks = sorted({int(r) for t in stuck.transfers for r in (transfers.src[t], transfers.dst[t])})
    names = [
        f"rank {transfers.src[t]} -> rank {transfers.dst[t]} (channel {transfers.channel[t]}, step {transfers.step[t]})"
        for t in shown
    ]
    more = " and more" if len(ranks) > 16 else ""
    return [
        Fault(
            f"deadlock: {len(stuck.transfers)} transfers never start, at ranks {', '.join(map(str, ranks[:16]))}{more}",
            "schedule",
            "waiting for each other: " + "; ".join(names),
        )
    ]


def _refuse_broken_laws(schedule: Schedule, timing: Timing, run: Run, broken: Sequence[str]) -> None:
    """Raise if the engine found *broken* laws, a link carried more than it can, or the time is below the bound."""
    room = run.fabric.capacity_Bps * timing.time_s * (1 + SLACK)
    faults = [
        *broken,
        *(
            f"link {run.fabric.wiring.link_name(int(i))} carried {timing.link_bytes[i]:.6g} bytes, more than its "
            f"capacity times the time, {room[i]:.6g}"
            for i in np.flatnonzero(timing.link_bytes > room)[:MOST_LINKS]
        ),
    ]
    bound = bound_of(schedule, run)
    if bound.time_s > timing.time_s * (1 + SLACK):
        faults.append(f"time {timing.time_s:.9g} s is below the {bound.name} bound of {bound.time_s:.9g} s")
    if faults:
        where = f"{schedule.op} by {schedule.algo} on {schedule.n_ranks} ranks, {schedule.size_bytes} bytes"
        hint = "this is a defect of collsim: please report the command with this message"
        raise InternalError(*(Fault(what, where, hint) for what in faults))


def bound_of(schedule: Schedule, run: Run) -> Bound:
    """Return the lower bound for what *schedule* does."""
    chunks, matrix = schedule.chunks, None
    if schedule.op == "all_to_all_v":
        matrix = np.zeros((schedule.n_ranks,) * 2, dtype=np.int64)
        np.add.at(matrix, (chunks.source, chunks.target), chunks.size_bytes)
    root = int(schedule.parameters.get("root", 0))
    return lower_bound(operation(schedule.op), schedule.size_bytes, run.cuts, root, matrix, flows=run.flows)
