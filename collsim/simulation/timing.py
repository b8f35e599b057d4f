"""Timing of a lowered schedule: costs, engine, and the laws that every answer must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.collectives import family_of
from collsim.core.errors import DeadlockError, Fault, InternalError, defect
from collsim.core.operations import operation
from collsim.engine import (
    Engine,
    EngineDeadlock,
    Problem,
    Solution,
    chained_time_s,
    check_conservation,
    checked,
    least_time_s,
    one_chain_s,
    round_trip_s,
    solve,
)
from collsim.fabric.bounds.lower import Bound, lower_bound
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import Protocol, soft_max
from collsim.library.costs.direct_pointers import kernel_of
from collsim.library.costs.message_costs import Messages, call_s
from collsim.schedule import Schedule
from collsim.simulation.calls_in_a_row import busiest, channel_of_rank, shown_of_chain
from collsim.simulation.demand import (
    channels_of,
    empty_chunks,
    filling_bytes,
    gathers_alone,
    hands_on,
    is_grouped,
    messages_of,
    once_between,
    peers_of,
)
from collsim.simulation.heralds import passes_lines, without_heralds
from collsim.simulation.hops import laid
from collsim.simulation.limits import limits_of
from collsim.simulation.lowering import Lowered
from collsim.simulation.method import Method
from collsim.simulation.problems import deadlock_faults, problem_of, wire_copies
from collsim.simulation.result import Limit
from collsim.simulation.runs import LoweredRun
from collsim.simulation.time_parts import Chain, Parts, chain_parts, hide_wires

if TYPE_CHECKING:
    from collsim.simulation.link_bytes import HurtLink, Spans

__all__ = [
    "LEAST_COMPILED",
    "MOST_LINKS",
    "Timing",
    "base_s",
    "call_time_s",
    "costs_of",
    "device_time_s",
    "kernel_costs",
    "least_call_s",
    "record_timing",
    "refuse_broken_laws",
    "spans_of",
    "time_lowered",
    "time_schedule",
    "timing_of",
]

SLACK = 1e-9
"""Relative rounding allowed to the always-on checks."""
AT_CAP = 1e-6
"""A transfer that took at most this share longer than at its cap ran at its cap."""
LEAST_COMPILED = 40
"""From so many transfers on fits and draws, which solve many problems, use the compiled engine."""
FLOOR_SHARPNESS = 8
"""Sharpness with which the floor of the host and the time on the device meet; the fits do not resolve it."""
WAIT_SHARPNESS = 1.5
"""The same for the wait for GPUs that one thread starts in turn: between a sum (1) and the longer of both; on logs of
B200, H100 and V100 with several GPUs per thread 1.5 was better than 1, 2.5 and 8."""
MOST_UNUSED = 4
"""Bytes on links are added up over all routes of a run if these are at most so many times those that are taken."""
LEAST_UNSETTLED = 0.005
"""A pace that still changes so much, as a part of the time, is told (chosen)."""
MOST_LINKS = 8
"""Number of links that a message or a row names at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """Timing of a schedule: total time, load of each link, waits of the slowest chain, and how it was solved.

    *simulated* is for how many transfers, *solves* how often rates were shared.
    *tolerance*, *perturbed* and *raised_s* are those of the engine's solution; *bracket_s* are times on both sides.
    *link_members* is how many links of a machine each link stands for, if the run does not say. *spans* is when the
    transfers that were simulated flowed. *hurt* is the link by which what has failed delays.
    """

    time_s: float
    link_bytes: Float
    critical_s: Mapping[str, float]
    method: Method
    simulated: int
    solves: int
    bound: Bound
    tolerance: float = 0.0
    perturbed: float = 0.0
    raised_s: float = 0.0
    bracket_s: tuple[float, float] | None = None
    link_members: Int | None = None
    limits: tuple[tuple[Limit, int | None], ...] = ()
    spans: Spans | None = None
    hurt: HurtLink | None = None


def time_schedule(schedule: Schedule, run: LoweredRun, proto: str = "Simple", dtype: str = "float") -> Timing:
    """Run *schedule* on the fabric of *run*, with the costs of protocol *proto* for elements of *dtype*.

    Raises
    ------
    DeadlockError
        Transfers wait for each other; names ranks and steps.
    UnsupportedError
        As of `lower`.
    InternalError
        The result broke a conservation law.
    """
    lowered = laid(schedule, run, dtype)
    return time_lowered(lowered, lowered.run, *costs_of(schedule, run, proto))


def costs_of(schedule: Schedule, run: LoweredRun, proto: str) -> tuple[Protocol, Protocol | None]:
    """Return the costs of a protocol inside a node and between nodes."""
    family = family_of(schedule.op, schedule.algo)
    within = kernel_costs(run, proto, kernel_of(run.profile, family, schedule.op))
    return within, run.profile.network.protocol(proto, family)


def kernel_costs(run: LoweredRun, proto: str, family: str, network: Protocol | None = None) -> Protocol:
    """Return the costs of a kernel on the ranks of *run*, inside a node; of *network*, if it is not the profile's.

    Calls in a row overlap inside a node, and over nodes where they do inside one; each hop then costs what it does in
    one call. No log shows what each peer costs there.
    """
    costs = run.profile.protocol(proto, family)
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    if not (node != node[0]).any():
        return costs
    between = network or run.profile.network.protocol(proto, family)
    share = 1.0 if between is None else between.node_share
    return replace(
        costs,
        back_to_back=False,
        overlaps=costs.back_to_back,
        peer_overhead_s=0.0,
        wire_efficiency=costs.wire_efficiency * share,
    )


def time_lowered(lowered: Lowered, run: LoweredRun, costs: Protocol, network: Protocol | None = None) -> Timing:
    """Run a lowered schedule with *costs*, and those of *network* between nodes; raises as `time_schedule` does."""
    return timing_of(lowered, run, (costs, network), *_solved(lowered, run, costs, network=network))


def timing_of(
    lowered: Lowered,
    run: LoweredRun,
    both_costs: tuple[Protocol, Protocol | None],
    problem: Problem,
    solution: Solution,
    *,
    above: Solution | None = None,
    spans: bool = False,
) -> Timing:
    """Return the timing of a lowered schedule from the engine's solution, with costs inside a node and between nodes.

    With a solution from *above*, the times on both sides are part of it; with *spans*, when transfers flowed.
    Raises InternalError as `time_schedule` does.
    """
    costs = both_costs[0]
    broken = check_conservation(problem, solution)
    once_s = _once_s(lowered, problem, solution, run, both_costs)
    last, begin_s = busiest(lowered, solution, costs)
    end_s = float(solution.finish_s[last])
    ahead_s = unsettled_s = 0.0
    if lowered.cut is not None:
        sent = last
        while sent >= len(lowered.route):  # what arrives last
            sent = int(problem.dep[problem.dep_ptr[sent]])
        missing = int(lowered.route[sent]), solution.finish_s, shown_of_chain(lowered, costs)
        ahead_s, unsettled_s = (of(*missing) for of in (lowered.cut.ahead_s, lowered.cut.unsettled_s))
    chain = _critical_path(problem, solution, last, begin_s)
    if both_costs[1] is not None and passes_lines(lowered, both_costs[1]):
        chain = without_heralds(chain, problem, lowered, run, (costs, both_costs[1]))
    waits_s = _waits_s(chain)
    link_bytes = _link_bytes(lowered, run, both_costs)
    parts = chain_parts(lowered, run, both_costs, problem, chain, link_bytes=link_bytes, solution=solution)
    if ahead_s:
        waits_s = {name: part_s * (1 + ahead_s / end_s) for name, part_s in waits_s.items()}
        parts.stretch(1 + ahead_s / end_s)
    if is_grouped(lowered, costs) and once_s:
        hide_wires(parts, *_calls(lowered, problem, solution, run), costs)
    parts.add_once(lowered, run, both_costs, once_s, float(lowered.size_bytes.max(initial=0.0)))
    timing = record_timing(
        lowered,
        run,
        both_costs,
        (once_s, once_s + end_s + ahead_s - begin_s),
        waits_s=waits_s,
        parts=parts,
        link_bytes=link_bytes,
        method=_method(solution, unsettled_s / (end_s + ahead_s)),
        simulated=solution.simulated,
        solves=solution.solves,
        tolerance=solution.tolerance,
        perturbed=solution.perturbed,
        raised_s=solution.raised_s,
        spans=spans_of(lowered, solution.ready_s, solution.start_s, solution.finish_s)[0] if spans else None,
    )
    if above is not None:
        broken += check_conservation(problem, above)
        low_s, high_s = timing.time_s, timing.time_s
        if above.tolerance:
            low_s, high_s = _bracket_s(lowered, run, both_costs, problem, above)
        timing = replace(
            timing,
            bracket_s=(min(max(low_s, timing.bound.time_s), timing.time_s), max(high_s, timing.time_s)),
        )
    if lowered.near or lowered.cut is not None:
        timing = _not_below(timing, run)
    refuse_broken_laws(lowered.schedule, timing, run, broken)
    return timing


def _method(solution: Solution, unsettled: float) -> Method:
    """Return how the engine found a solution, and by which part a pace of chunks still changed when they were cut."""
    pace_share = unsettled if unsettled >= LEAST_UNSETTLED else 0.0
    return Method("classes" if solution.classes else "transfers", solution.solver, pace_share=pace_share)


def spans_of(lowered: Lowered, ready_s: Float, start_s: Float, finish_s: Float) -> tuple[Spans, Int]:
    """Return when transfers flowed, by the times of all rows of a problem, and their rows: joins are left out."""
    from collsim.simulation.link_bytes import Spans

    transfers, n = lowered.transfers, len(lowered.transfers)
    rows = np.flatnonzero((transfers.src != transfers.dst) | (transfers.src < 0))
    found = Spans(
        transfers.src[rows],
        transfers.dst[rows],
        transfers.step[rows],
        transfers.channel[rows],
        transfers.reduces[rows],
        ready_s[:n][rows],
        start_s[:n][rows],
        finish_s[:n][rows],
    )
    return found, rows


def _not_below(timing: Timing, run: LoweredRun) -> Timing:
    """Return the timing of classes that are only nearly alike, put off to what links and the bound need at least."""
    least_s = max(timing.bound.time_s, float((timing.link_bytes / run.fabric.capacity_Bps).max(initial=0.0)))
    return replace(timing, time_s=max(timing.time_s, least_s), raised_s=max(least_s - timing.time_s, 0.0))


def record_timing(
    lowered: Lowered,
    run: LoweredRun,
    both_costs: tuple[Protocol, Protocol | None],
    spent_s: tuple[float, float],
    *,
    waits_s: Mapping[str, float],
    parts: Parts,
    **found: Any,
) -> Timing:
    """Return the record of a call.

    Parameters
    ----------
    lowered : Lowered
    run : LoweredRun
    both_costs : Protocol, Protocol or None
        Inside a node and between nodes.
    spent_s : float, float
        On the device beside transfers, and altogether.
    waits_s : Mapping of str to float
        What the slowest chain of transfers waited for.
    parts : Parts
        What decides the time on the device.
    **found
        Fields of `Timing` that the engine, or whatever stood for it, found.
    """
    once_s, device_s = spent_s
    own_floor, floor_s = both_costs[0].floor_s is not None, _floor_s(run, both_costs[0])
    total_s = call_time_s(device_s, floor_s, run.profile.wait_s)
    launch_s = run.profile.begin_s
    parts.meet(("node" if own_floor else "profile", "floor_s"), floor_s, device_s, FLOOR_SHARPNESS)
    parts.meet(("profile", "thread_launch_s"), run.profile.wait_s, call_time_s(device_s, floor_s), WAIT_SHARPNESS)
    parts.add(("profile", "launch_s"), run.profile.launch_s)
    parts.add(("profile", "skew_s"), run.profile.skew_s)
    parts.fit(launch_s + total_s)
    return Timing(
        time_s=launch_s + total_s,
        critical_s={"launch": launch_s + once_s + max(total_s - device_s, 0.0), **waits_s},
        bound=_bound_of(lowered, run),
        limits=limits_of(run, both_costs, parts, launch_s + total_s, found["link_bytes"]),
        **found,
    )


def _bracket_s(
    lowered: Lowered, run: LoweredRun, both_costs: tuple[Protocol, Protocol | None], problem: Problem, above: Solution
) -> tuple[float, float]:
    """Return the time of a call by the load of links, and by the solution from above."""
    once_s, floor_s = _once_s(lowered, problem, above, run, both_costs), _floor_s(run, both_costs[0])
    last, begin_s = busiest(lowered, above, both_costs[0])
    low_s, high_s = (
        run.profile.begin_s + call_time_s(once_s + end_s - begin_s, floor_s, run.profile.wait_s)
        for end_s in (least_time_s(problem), float(above.finish_s[last]))
    )
    return low_s, high_s


def least_call_s(
    lowered: Lowered, run: LoweredRun, both_costs: tuple[Protocol, Protocol | None], *, chained: bool
) -> float:
    """Return a time that `time_lowered` cannot undercut, without a simulation.

    By the bytes of each link and one chain of waits, or better, but slower, with all that transfers wait for.
    """
    costs, network = both_costs
    links_s = float((_link_bytes(lowered, run, both_costs) / run.fabric.capacity_Bps).max(initial=0.0))
    if is_grouped(lowered, costs) or costs.overlaps or (costs.back_to_back and not chained):
        return links_s  # no answer passes the checks below it
    problem = checked(problem_of(lowered, run, costs, network))
    if costs.back_to_back:
        end_s = round_trip_s(problem, channel_of_rank(lowered, costs))
    else:
        end_s = chained_time_s(problem) if chained else max(least_time_s(problem), one_chain_s(problem))
    once_s = base_s(lowered, costs, network, lowered.size_bytes.astype(np.float64))
    return max(links_s, run.profile.begin_s + call_time_s(once_s + end_s, _floor_s(run, costs), run.profile.wait_s))


def _floor_s(run: LoweredRun, costs: Protocol) -> float:
    """Return what a call of a kernel takes at least."""
    return run.profile.floor_s if costs.floor_s is None else costs.floor_s


def device_time_s(lowered: Lowered, run: LoweredRun, costs: Protocol, network: Protocol | None = None) -> float:
    """Return the time of `time_lowered` without floor, launch, bound and checks, for fits that try many costs."""
    kernel = len(lowered.transfers) > LEAST_COMPILED
    problem, solution = _solved(lowered, run, costs, "kernel" if kernel else "auto", network)
    last, begin_s = busiest(lowered, solution, costs)
    return _once_s(lowered, problem, solution, run, (costs, network)) + float(solution.finish_s[last]) - begin_s


def call_time_s(device_s: float, floor_s: float, wait_s: float = 0.0) -> float:
    """Return the time of a call that takes *device_s* on the device and at least *floor_s*.

    *wait_s* is how much later the last GPU starts than the first, which long calls hide in part.
    """
    total_s = float(soft_max(np.array(floor_s), np.array(device_s), FLOOR_SHARPNESS)) if floor_s else device_s
    return float(soft_max(np.array(total_s), np.array(wait_s), WAIT_SHARPNESS)) if wait_s else total_s


def _once_s(
    lowered: Lowered,
    problem: Problem,
    solution: Solution,
    run: LoweredRun,
    both_costs: tuple[Protocol, Protocol | None],
) -> float:
    """Return the seconds of a call on the device beside its transfers; over nodes both kinds of costs have a base."""
    costs, network = both_costs
    over_nodes_s = sum(once_between(lowered, run, network).values())
    if not is_grouped(lowered, costs):
        return base_s(lowered, costs, None, lowered.size_bytes) + over_nodes_s
    messages, finish_s, ends_Bps = _calls(lowered, problem, solution, run)
    return call_s(messages, finish_s, *ends_Bps, costs) - float(finish_s.max()) + over_nodes_s


def _calls(
    lowered: Lowered, problem: Problem, solution: Solution, run: LoweredRun
) -> tuple[Messages, Float, tuple[Float, Float]]:
    """Return the messages of a call, when they arrive, and what each could reach alone and every port carries."""
    messages, n = messages_of(lowered, run), len(lowered.transfers)
    port_Bps = problem.capacity_Bps[len(run.trunk_capacity_Bps) :][: 2 * messages.n_ranks]
    return messages, solution.finish_s[:n], (problem.cap_Bps[:n], port_Bps)


def base_s(lowered: Lowered, costs: Protocol, network: Protocol | None, size_bytes: Float) -> float:
    """Return the seconds of a call on the device beside its transfers of such sizes, which are no grouped messages."""
    over_nodes_s = network.base_s if network is not None and lowered.steps is not None else 0.0
    around_s = costs.around_s(peers_of(lowered), lowered.schedule.size_bytes)
    filling = filling_bytes(lowered, size_bytes, costs)
    once_s = costs.once_s(
        filling,
        hands_on=hands_on(lowered),
        empty_chunks=empty_chunks(lowered),
        call_bytes=lowered.schedule.size_bytes,
        gathers=gathers_alone(lowered),
        channels=channels_of(lowered),
    )
    return once_s + around_s + over_nodes_s


def _solved(
    lowered: Lowered,
    run: LoweredRun,
    costs: Protocol,
    engine: Engine = "auto",
    network: Protocol | None = None,
) -> tuple[Problem, Solution]:
    """Return the problem that the engine was given and its solution."""
    problem = problem_of(lowered, run, costs, network)
    if engine == "auto" and lowered.carried is not None:
        engine = "plain"  # classes of classes there are none
    try:
        return problem, solve(problem, engine=engine)
    except EngineDeadlock as stuck:
        raise DeadlockError(*deadlock_faults(stuck, lowered.transfers)) from None


def _critical_path(problem: Problem, solution: Solution, last: int, begin_s: float) -> Chain:
    """Walk back from the *last* transfer through what it waited for; return the chain since *begin_s*."""
    found: list[tuple[int, float, float, bool]] = []
    while True:
        ready_s, start_s, finish_s = (float(times[last]) for times in solution[:3])
        capped = finish_s - start_s <= problem.size_bytes[last] / problem.cap_Bps[last] * (1 + AT_CAP)
        found.append((last, max(start_s - max(ready_s, begin_s), 0.0), finish_s - max(start_s, begin_s), bool(capped)))
        waited_for = problem.dep[problem.dep_ptr[last] : problem.dep_ptr[last + 1]]
        if len(waited_for) == 0 or ready_s <= begin_s:
            break
        last = int(waited_for[np.argmax(solution.finish_s[waited_for])])
    return Chain(*(np.array(column) for column in zip(*found, strict=True)))


def _waits_s(chain: Chain) -> dict[str, float]:
    """Return the time of a chain by kind of wait: *latency* is before bytes flow, *channel rate* flow at the transfer's
    own cap, *links* flow held back by links.
    """
    return {
        "latency": float(chain.latency_s.sum()),
        "channel rate": float(chain.flow_s[chain.at_cap].sum()),
        "links": float(chain.flow_s[~chain.at_cap].sum()),
    }


def _link_bytes(lowered: Lowered, run: LoweredRun, both_costs: tuple[Protocol, Protocol | None]) -> Float:
    """Return float64[n_links]: what goes over each link, flags of the protocols included."""
    if lowered.carried is not None:
        (costs, network), (inside, across) = both_costs, lowered.carried
        return inside / costs.wire_efficiency + across / (network or costs).wire_efficiency
    carried = np.bincount(lowered.route, weights=lowered.size_bytes, minlength=len(lowered.used)).astype(np.float64)
    n_routes, copies = len(run.routes.latency_s), wire_copies(lowered, *both_costs)
    if n_routes <= MOST_UNUSED * len(lowered.used):  # to add up all costs less than to copy some
        carried, every = np.bincount(lowered.used, carried * copies, n_routes).astype(np.float64), run.routes
    else:
        every = run.routes.take(lowered.used, copies)
    return every.link_bytes(carried, run.fabric.n_links)


def refuse_broken_laws(schedule: Schedule, timing: Timing, run: LoweredRun, broken: Sequence[str]) -> None:
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
    if timing.bound.time_s > timing.time_s * (1 + SLACK):
        name, bound_s = timing.bound.name, timing.bound.time_s
        faults.append(f"time {timing.time_s:.9g} s is below the {name} bound of {bound_s:.9g} s")
    if faults:
        where = f"{schedule.op} by {schedule.algo} on {schedule.n_ranks} ranks, {schedule.size_bytes} bytes"
        raise InternalError(*(Fault(what, where, defect()) for what in faults))


def _bound_of(lowered: Lowered, run: LoweredRun) -> Bound:
    """Return the lower bound for what a schedule does; the network adds if it has been turned on to."""
    schedule, cuts, matrix = lowered.schedule, run.cuts, None
    chunks = schedule.chunks
    if schedule.op == "all_to_all_v":
        matrix = np.zeros((schedule.n_ranks,) * 2, dtype=np.int64)
        np.add.at(matrix, (chunks.source, chunks.target), chunks.size_bytes)
    root = int(schedule.parameters.get("root", 0))
    if lowered.added.any():
        cuts = replace(cuts, network_adds=True)
    return lower_bound(operation(schedule.op), schedule.size_bytes, cuts, root, matrix, flows=run.flows)
