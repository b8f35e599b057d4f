"""How long a schedule takes on a topology: fabric, routes, engine, and the laws that every answer must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from collsim.bounds import Bound, Cuts, find_cuts, lower_bound
from collsim.engine import Engine, EngineDeadlock, Problem, Solution, check_conservation, solve
from collsim.errors import DeadlockError, Fault, InternalError, NoRouteError, UnsupportedError
from collsim.fabric import Fabric, Float, Int, build_fabric
from collsim.flow_bounds import Flows, find_flows
from collsim.library import Profile
from collsim.library.costs import Bool, Protocol, Use, family_of, loop_steps, soft_max
from collsim.message_costs import Messages, call_s, caps_Bps, port_capacity_Bps
from collsim.message_parts import STEP_BYTES
from collsim.network_costs import Steps, steps_of, with_arrivals
from collsim.network_trees import TreePorts
from collsim.operations import operation
from collsim.routing import Routes, find_routes, links_in_reach, merge_trunks, network_labels, routes_of
from collsim.schedule import Schedule, Transfers
from collsim.topology import Topology

if TYPE_CHECKING:
    from collsim.cluster_routing import Ways

__all__ = [
    "LEAST_COMPILED",
    "MOST_LINKS",
    "MOST_TRANSFERS",
    "Lowered",
    "Run",
    "Timing",
    "call_time_s",
    "device_time_s",
    "lower",
    "prepare",
    "problem_of",
    "run_on",
    "time_lowered",
    "time_schedule",
    "timing_of",
]

SLACK = 1e-9
"""Relative rounding allowed to the always-on checks."""
AT_CAP = 1e-6
"""A transfer that took at most this share longer than at its cap ran at its cap."""
MOST_TRANSFERS = 3_000_000
"""Larger schedules take more than about half a minute and 4 GB."""
LEAST_COMPILED = 40
"""From so many transfers on fits and draws, which solve many problems, use the compiled engine."""
MOST_EQUAL_CHANNELS = 16
"""Before equal channels are merged, a schedule may be so many times larger."""
FLOOR_SHARPNESS = 8
"""How sharply the floor of the host and the time on the device meet; the fits do not resolve it."""
WAIT_SHARPNESS = 1.5
"""The same for the wait for GPUs that one thread starts in turn: between a sum (1) and the longer of both; on logs of
B200, H100 and V100 with several GPUs per thread 1.5 was better than 1, 2.5 and 8."""
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
    used: Bool
    """bool[n_links]: what some message between the ranks could take."""

    @property
    def egress_Bps(self) -> float:
        """What a rank can send at line rate to ranks of its node, or to any if it is alone there; the least of all."""
        wiring, ranks = self.fabric.wiring, self.fabric.rank_node
        adapter = np.array([kind == "nic" for kind in wiring.node_kinds])
        inside = self.used & ~adapter[wiring.link_dst]
        out = np.bincount(wiring.link_src, np.where(inside, self.fabric.raw_capacity_Bps, 0.0), len(adapter))[ranks]
        return float(np.where(out > 0, out, self.cuts.egress_Bps).min())


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """How a schedule ran: total time, load of each link, what the slowest chain waited for, and how it was solved."""

    time_s: float
    link_bytes: Float
    critical_s: Mapping[str, float]
    path: str
    transfers: int
    bound: Bound


def prepare(
    topology: Topology, profile: Profile, ranks: Sequence[int] | None = None, *, free_share: Float | None = None
) -> Run:
    """Build the fabric of *ranks* (all GPUs if None), its routes, and what bounds the time on it.

    *free_share* is float64[n_links], what background traffic leaves of each link; None: there is none.
    """
    bare = not (profile.achievable_rate or profile.latency or profile.families)  # raw wires, of the network too
    fabric = build_fabric(
        topology, ranks, efficiency=profile.achievable_rate, latency=profile.latency, network_counts=not bare
    )
    if free_share is not None:
        fabric = replace(fabric, capacity_Bps=fabric.capacity_Bps * free_share)
    return run_on(fabric, topology, profile)


def run_on(fabric: Fabric, topology: Topology, profile: Profile, ways: Ways | None = None) -> Run:
    """Return the run on a fabric: its routes, from *ways* if some are known, and what bounds the time on it."""
    try:
        routes = find_routes(fabric, ways)
    except NoRouteError as error:
        from collsim.topology.failing import cut_faults

        raise NoRouteError(*cut_faults(topology, fabric.rank_node.tolist(), error.faults)) from None
    trunks, capacity = merge_trunks(routes, fabric.capacity_Bps)
    used = links_in_reach(fabric, routes)
    return Run(
        topology,
        fabric,
        profile,
        routes,
        trunks,
        capacity,
        find_cuts(fabric, used, routes.fastest_s()),
        find_flows(fabric, used),
        used,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A schedule laid on the routes of a run; what it costs is not said yet.

    Attributes
    ----------
    schedule : Schedule
    run : Run
        The one that it was laid on, with other routes if it takes some that were not kept.
    transfers : Transfers
        Equal channels merged.
    size_bytes : int64[n]
    route : int64[n]
        Which of *used* each transfer takes.
    used, copies : int64[n_used]
        Number of the route in the run, and how many equal transfers take it side by side.
    across, added : bool[n]
        Whether a transfer leaves its node, and whether switches there add or copy it.
    use : Use
    dtype : str
    steps : Steps or None
        The transfers between nodes; None within one node.
    """

    schedule: Schedule
    run: Run
    transfers: Transfers
    size_bytes: Int
    route: Int
    used: Int
    copies: Int
    across: Bool
    added: Bool
    use: Use
    dtype: str
    steps: Steps | None


def lower(schedule: Schedule, run: Run, dtype: str = "float", ports: TreePorts | None = None) -> Lowered:
    """Lay *schedule*, which moves elements of *dtype*, on the fabric of *run*.

    *ports* is what reduction trees of other groups have taken of the network.

    Raises
    ------
    UnsupportedError
        The schedule has more transfers than fit in memory, or needs switches that add and multicast.
    NoRouteError
        The network has no tree for a group of ranks.
    """
    _refuse_size(schedule, MOST_TRANSFERS * MOST_EQUAL_CHANNELS)
    merged = schedule.merged()
    _refuse_size(merged, MOST_TRANSFERS)
    transfers = merged.materialise()
    ports = ports or TreePorts.free(run.fabric)
    ends = transfers.src, transfers.dst
    routes, number = routes_of(run.fabric, run.routes, ends, schedule.groups, ports)
    if routes is not run.routes:
        trunks, capacity = merge_trunks(routes, run.fabric.capacity_Bps)
        run = replace(run, routes=routes, trunks=trunks, trunk_capacity_Bps=capacity)
    n_routes = len(run.routes.latency_s)
    key, route = np.unique(transfers.copies * n_routes + number, return_inverse=True)
    copies, used = np.divmod(key, n_routes)
    size_bytes, use = transfers.size_bytes(schedule.chunks), _use(transfers, run, used[route])
    across, added = _across(schedule, transfers, run)
    steps = _steps(transfers, run, used[route], use, across) if across.any() else None
    return Lowered(schedule, run, transfers, size_bytes, route, used, copies, across, added, use, dtype, steps)


def _steps(transfers: Transfers, run: Run, route: Int, use: Use, across: Bool) -> Steps:
    """Return the transfers between nodes, which take the routes numbered *route*."""
    rate_Bps, link = _narrowest(run.trunks, run.trunk_capacity_Bps)
    return steps_of(across, use, _in_step(transfers, link[route]), transfers.copies, rate_Bps[route])


def _across(schedule: Schedule, transfers: Transfers, run: Run) -> tuple[Bool, Bool]:
    """Return bool[n], bool[n]: whether transfers lead between nodes, and whether switches there add or copy them."""
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    added = np.isin(np.minimum(transfers.src, transfers.dst), network_labels(run.fabric, schedule.groups))
    pair = (transfers.src >= 0) & (transfers.dst >= 0)
    return added | (pair & (node[transfers.src] != node[transfers.dst])), added


def _use(transfers: Transfers, run: Run, route: Int) -> Use:
    """Return what the transfers, which take the routes numbered *route*, share."""
    lanes, way, alone_Bps = transfers.lanes.astype(np.float64), transfers.src, np.full(len(route), run.egress_Bps)
    duplex = np.zeros(len(route), dtype=np.bool_)
    direct = _direct(transfers, run)
    if direct.any():
        pairs = run.fabric.n_ranks + 1
        there, back = ((a + 1) * pairs + b for a, b in ((transfers.src, transfers.dst), (transfers.dst, transfers.src)))
        way = np.where(direct, there, way)
        duplex = direct & np.isin(_in_step(transfers, there), _in_step(transfers, back))
        alone_Bps = np.where(direct, _narrowest(run.trunks, run.trunk_capacity_Bps)[0][route], alone_Bps)
    _, group = np.unique(_in_step(transfers, way), return_inverse=True)
    active = np.bincount(group, weights=transfers.lanes * transfers.copies)[group].astype(np.float64)
    return Use(lanes, active, alone_Bps, duplex, transfers.reduces)


def _direct(transfers: Transfers, run: Run) -> Bool:
    """Return bool[n]: whether a link joins sender and receiver."""
    both = (transfers.src >= 0) & (transfers.dst >= 0)
    joined = run.fabric.peer_links() > 0
    return np.asarray(both & joined[np.where(both, transfers.src, 0), np.where(both, transfers.dst, 0)])


def _narrowest(trunks: Routes, capacity_Bps: Float) -> tuple[Float, Int]:
    """Return what each route carries if it has its trunks to itself, and the first trunk that is so narrow.

    float64[n_routes], inf for a route without trunks, and int64[n_routes].
    """
    narrowest, first = np.full(len(trunks.ptr) - 1, np.inf), np.zeros(len(trunks.ptr) - 1, dtype=np.int64)
    route = np.repeat(np.arange(len(narrowest)), np.diff(trunks.ptr))
    rate_Bps = capacity_Bps[trunks.link] / trunks.weight
    np.minimum.at(narrowest, route, rate_Bps)
    entry = np.flatnonzero(rate_Bps <= narrowest[route])[::-1]
    first[route[entry]] = trunks.link[entry]
    return narrowest, first


def _in_step(transfers: Transfers, label: Int) -> Int:
    """Return int64[n]: a number for each pair of label and step."""
    return np.asarray(label * (int(transfers.step.max(initial=0)) + 1) + transfers.step)


def time_schedule(schedule: Schedule, run: Run, proto: str = "Simple", dtype: str = "float") -> Timing:
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
    costs = kernel_costs(run, proto, family_of(schedule.op, schedule.algo))
    lowered, network = lower(schedule, run, dtype), run.profile.network
    return time_lowered(lowered, lowered.run, costs, network.protocol(proto, family_of(schedule.op, schedule.algo)))


def kernel_costs(run: Run, proto: str, family: str) -> Protocol:
    """Return the costs of a kernel on the ranks of *run*.

    Calls in a row overlap inside a node. Over nodes they are taken one by one: no log shows that they overlap there.
    """
    costs = run.profile.protocol(proto, family)
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    return replace(costs, back_to_back=False) if costs.back_to_back and (node != node[0]).any() else costs


def time_lowered(lowered: Lowered, run: Run, costs: Protocol, network: Protocol | None = None) -> Timing:
    """Run a lowered schedule with *costs*, and those of *network* between nodes; raises as `time_schedule` does."""
    return timing_of(lowered, run, (costs, network), *_solved(lowered, run, costs, network=network))


def timing_of(
    lowered: Lowered, run: Run, both_costs: tuple[Protocol, Protocol | None], problem: Problem, solution: Solution
) -> Timing:
    """Return how a lowered schedule ran by what the engine found, with the costs inside a node and between nodes.

    Raises InternalError as `time_schedule` does.
    """
    costs, network = both_costs
    broken = check_conservation(problem, solution)
    carried = np.bincount(lowered.route, weights=lowered.size_bytes, minlength=len(lowered.used)).astype(np.float64)
    taken = run.routes.take(lowered.used, _wire_copies(lowered, costs, network))
    once_s = _once_s(lowered, problem, solution, run, both_costs)
    last, begin_s = _busiest(lowered, solution, costs)
    device_s = once_s + float(solution.finish_s[last]) - begin_s
    total_s = call_time_s(device_s, run.profile.floor_s, run.profile.wait_s)
    timing = Timing(
        time_s=run.profile.launch_s + total_s,
        link_bytes=taken.link_bytes(carried, run.fabric.n_links),
        critical_s={
            "launch": run.profile.launch_s + once_s + max(total_s - device_s, 0.0),
            **_critical_path(problem, solution, last, begin_s),
        },
        path=f"transfers, {solution.path}",
        transfers=len(lowered.transfers),
        bound=_bound_of(lowered, run),
    )
    _refuse_broken_laws(lowered.schedule, timing, run, broken)
    return timing


def device_time_s(lowered: Lowered, run: Run, costs: Protocol, network: Protocol | None = None) -> float:
    """Return the time of `time_lowered` without floor, launch, bound and checks, for fits that try many costs."""
    kernel = len(lowered.transfers) > LEAST_COMPILED
    problem, solution = _solved(lowered, run, costs, "kernel" if kernel else "auto", network)
    last, begin_s = _busiest(lowered, solution, costs)
    return _once_s(lowered, problem, solution, run, (costs, network)) + float(solution.finish_s[last]) - begin_s


def call_time_s(device_s: float, floor_s: float, wait_s: float = 0.0) -> float:
    """Return the time of a call that takes *device_s* on the device and at least *floor_s*.

    *wait_s* is how much later the last GPU starts than the first, which long calls hide in part.
    """
    total_s = float(soft_max(np.array(floor_s), np.array(device_s), FLOOR_SHARPNESS)) if floor_s else device_s
    return float(soft_max(np.array(total_s), np.array(wait_s), WAIT_SHARPNESS)) if wait_s else total_s


def _busiest(lowered: Lowered, solution: Solution, costs: Protocol) -> tuple[int, float]:
    """Return the transfer that ends last, and when the time of the call begins.

    That is 0; if calls overlap it is when the channel of a rank that is busy longest begins, and the transfer is the
    last one of that channel.
    """
    if not costs.back_to_back:
        return int(np.argmax(solution.finish_s)), 0.0
    transfers = lowered.transfers
    channels = 0 if costs.in_turn else transfers.channel  # those that take turns are done together
    return _longest(channels * (int(transfers.src.max()) + 1) + transfers.src, solution)


def _longest(label: Int, solution: Solution) -> tuple[int, float]:
    """Return the last transfer of the label that takes longest from its first to its last, and when it begins."""
    _, place = np.unique(label, return_inverse=True)
    begin, end = np.full(int(place.max()) + 1, np.inf), np.zeros(int(place.max()) + 1)
    np.minimum.at(begin, place, solution.ready_s)
    np.maximum.at(end, place, solution.finish_s)
    longest = int(np.argmax(end - begin))
    return int(np.argmax(np.where(place == longest, solution.finish_s, -1.0))), float(begin[longest])


def _once_s(
    lowered: Lowered, problem: Problem, solution: Solution, run: Run, both_costs: tuple[Protocol, Protocol | None]
) -> float:
    """Return what a call takes on the device beside its transfers; over nodes both kinds of costs have a base."""
    costs, network = both_costs
    over_nodes_s = network.base_s if network is not None and lowered.steps is not None else 0.0
    if not _is_grouped(lowered, costs):
        return costs.once_s(lowered.size_bytes.astype(np.float64)) + over_nodes_s
    messages, finish_s = _messages(lowered, run), solution.finish_s[: len(lowered.transfers)]
    port_Bps = problem.capacity_Bps[-2 * messages.n_ranks :]
    cap_Bps = problem.cap_Bps[: len(lowered.transfers)]
    return call_s(messages, finish_s, cap_Bps, port_Bps, costs) - float(finish_s.max()) + over_nodes_s


def _is_grouped(lowered: Lowered, costs: Protocol) -> bool:
    """Return whether the laws of grouped messages hold: for the kernel that sends them in rounds of parts."""
    return lowered.schedule.algo == "nccl_p2p" and costs.one_way_rate_Bps is not None


def _messages(lowered: Lowered, run: Run) -> Messages:
    """Return the transfers as messages."""
    transfers, told = lowered.transfers, lowered.schedule.parameters
    return Messages(
        n_ranks=run.fabric.n_ranks,
        src=transfers.src,
        dst=transfers.dst,
        channel=transfers.channel,
        step=transfers.step,
        size_bytes=lowered.size_bytes.astype(np.float64),
        lanes=transfers.lanes.astype(np.float64),
        copies=transfers.copies.astype(np.float64),
        channels=int(told.get("channels", int(transfers.channel.max(initial=0)) + 1)),
        chunk_bytes=int(told.get("step_bytes", STEP_BYTES)),
        own_blocks=lowered.schedule.op == "all_to_all",
    )


def _solved(
    lowered: Lowered,
    run: Run,
    costs: Protocol,
    engine: Engine = "auto",
    network: Protocol | None = None,
) -> tuple[Problem, Solution]:
    """Return what the engine was given and what it found."""
    problem = problem_of(lowered, run, costs, network)
    try:
        return problem, solve(problem, engine=engine)
    except EngineDeadlock as stuck:
        raise DeadlockError(*_deadlock_faults(stuck, lowered.transfers)) from None


def _critical_path(problem: Problem, solution: Solution, last: int, begin_s: float) -> dict[str, float]:
    """Walk back from the *last* transfer through what it waited for; return the time since *begin_s* by kind of wait.

    *latency* is before bytes flow, *channel rate* flow at the transfer's own cap, *links* flow held back by links.
    """
    spent = {"latency": 0.0, "channel rate": 0.0, "links": 0.0}
    while True:
        ready_s, start_s, finish_s = (float(times[last]) for times in solution[:3])
        capped = finish_s - start_s <= problem.size_bytes[last] / problem.cap_Bps[last] * (1 + AT_CAP)
        spent["channel rate" if capped else "links"] += finish_s - max(start_s, begin_s)
        spent["latency"] += max(start_s - max(ready_s, begin_s), 0.0)
        waited_for = problem.dep[problem.dep_ptr[last] : problem.dep_ptr[last + 1]]
        if len(waited_for) == 0 or ready_s <= begin_s:
            return spent
        last = int(waited_for[np.argmax(solution.finish_s[waited_for])])


def _refuse_size(schedule: Schedule, most: int) -> None:
    """Refuse a schedule that would not fit in memory."""
    if schedule.n_transfers > most:
        what = f"{schedule.n_transfers} transfers are too many to simulate one by one"
        hint = "ask for fewer ranks or channels, or larger chunks"
        raise UnsupportedError(Fault(what, f"{schedule.op} by {schedule.algo}", hint))


def _outside(lowered: Lowered) -> Bool:
    """Return bool[n_used]: whether a route leaves its node."""
    return np.asarray(np.bincount(lowered.route[lowered.across], minlength=len(lowered.used)) > 0)


def _wire_copies(lowered: Lowered, costs: Protocol, network: Protocol | None) -> Float:
    """Return float64[n_used]: bytes on the wire for each byte of a message, times the copies of it."""
    efficiency = np.full(len(lowered.used), costs.wire_efficiency)
    if network is not None:
        efficiency[lowered.route[lowered.across]] = network.wire_efficiency
    return np.asarray(lowered.copies / efficiency, dtype=np.float64)


def _rates(lowered: Lowered, run: Run, costs: Protocol) -> tuple[Float, Float]:
    """Return float64[n], what each transfer reaches within a node, and what ports of ranks carry, if they count."""
    if _is_grouped(lowered, costs):
        messages = _messages(lowered, run)
        rates = caps_Bps(messages, costs)
        return rates, port_capacity_Bps(messages.but(lowered.across), rates, costs, run.egress_Bps)
    schedule = lowered.schedule
    steps = loop_steps(schedule.op, schedule.algo, schedule.n_ranks, int(lowered.transfers.step.max(initial=0)))
    return costs.rates_Bps(lowered.use, steps, lowered.dtype), np.zeros(0)


def _over_network(
    lowered: Lowered, run: Run, network: Protocol, rates_Bps: Float, waits_s: Float
) -> tuple[Float, Float, Float]:
    """Return rates, waits and lateness of all transfers, with the costs of *network* for those between nodes.

    Grouped messages depend on nothing that arrives: theirs is all in the wait.
    """
    steps, size_bytes = lowered.steps, lowered.size_bytes.astype(np.float64)
    assert steps is not None
    grouped = _is_grouped(lowered, network)
    caps = caps_Bps(_messages(lowered, run), network) if grouped else lowered.use.lanes * network.channel_rate_Bps
    if lowered.schedule.algo == "nccl_pxn":  # each of the messages that travel together has a connection of its own
        caps = caps * np.diff(lowered.transfers.chunk_ptr)
    added = run.profile.network.protocol("Simple", "sharp") or network
    turn_s = np.where(lowered.added, added.turn_s, network.turn_s)
    arrival_s = np.where(lowered.added, added.message_overhead_s, network.message_overhead_s)
    arrival_s = arrival_s + run.trunks.latency_s[lowered.used][lowered.route]
    own_s, late_s = steps.waits_s(network, size_bytes, caps, (turn_s, arrival_s))
    if grouped:
        own_s, late_s = own_s + late_s, np.zeros(len(late_s))
    return (
        np.where(lowered.across, steps.rates_Bps(network, caps), rates_Bps),
        np.where(lowered.across, own_s, waits_s),
        np.where(lowered.across, late_s, 0.0),
    )


def problem_of(lowered: Lowered, run: Run, costs: Protocol, network: Protocol | None = None) -> Problem:
    """Return the arrays that the engine takes."""
    transfers, size_bytes = lowered.transfers, lowered.size_bytes.astype(np.float64)
    trunks = run.trunks.take(lowered.used, _wire_copies(lowered, costs, network))
    rates, port_Bps = _rates(lowered, run, costs)
    waits_s = np.where(transfers.src != transfers.dst, costs.latency_s(size_bytes, rates), 0.0)
    waits_s += trunks.latency_s[lowered.route]
    late_s = np.zeros(len(transfers))
    if network is not None and lowered.steps is not None:
        rates, waits_s, late_s = _over_network(lowered, run, network, rates, waits_s)
    capacity_Bps = run.trunk_capacity_Bps
    if costs.in_turn:
        outside = trunks.link[np.repeat(_outside(lowered), np.diff(trunks.ptr))]
        capacity_Bps = capacity_Bps * float(costs.shares(lowered.use.duplex).min())
        capacity_Bps[outside] = run.trunk_capacity_Bps[outside]
    problem = Problem(
        capacity_Bps=capacity_Bps,
        route_ptr=trunks.ptr,
        route_link=trunks.link,
        route_weight=trunks.weight,
        route=lowered.route,
        size_bytes=size_bytes,
        latency_s=waits_s,
        cap_Bps=rates,
        dep_ptr=transfers.dep_ptr,
        dep=transfers.dep,
    )
    if len(port_Bps):
        problem = _with_ports(problem, lowered, port_Bps)
    late = np.flatnonzero(late_s)
    if not len(late):
        return problem
    src, dst = transfers.src, transfers.dst
    return with_arrivals(problem, late, late_s[late], lambda sent, then: (dst[sent] == src[then]) | (dst[sent] < 0))


def _with_ports(problem: Problem, lowered: Lowered, port_Bps: Float) -> Problem:
    """Let every route within a node also cross the port out of its source and the one into its target."""
    n_links, n = len(problem.capacity_Bps), len(port_Bps) // 2
    first = np.unique(lowered.route, return_index=True)[1]
    src, dst = lowered.transfers.src[first], lowered.transfers.dst[first]
    joins = (src == dst) | _outside(lowered)  # adapters are no ports
    route = np.repeat(np.arange(len(lowered.used)), np.diff(problem.route_ptr))
    crossing = np.concatenate([route, np.flatnonzero(~joins), np.flatnonzero(~joins)])
    order = np.argsort(crossing, kind="stable")
    link = np.concatenate([problem.route_link, n_links + src[~joins], n_links + n + dst[~joins]])
    copies = lowered.copies[~joins].astype(np.float64)
    return problem._replace(
        capacity_Bps=np.concatenate([problem.capacity_Bps, port_Bps]),
        route_ptr=np.concatenate(([0], np.cumsum(np.bincount(crossing, minlength=len(lowered.used))))),
        route_link=link[order],
        route_weight=np.concatenate([problem.route_weight, copies, copies])[order],
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
    if timing.bound.time_s > timing.time_s * (1 + SLACK):
        name, bound_s = timing.bound.name, timing.bound.time_s
        faults.append(f"time {timing.time_s:.9g} s is below the {name} bound of {bound_s:.9g} s")
    if faults:
        where = f"{schedule.op} by {schedule.algo} on {schedule.n_ranks} ranks, {schedule.size_bytes} bytes"
        hint = "this is a defect of collsim: please report the command with this message"
        raise InternalError(*(Fault(what, where, hint) for what in faults))


def _bound_of(lowered: Lowered, run: Run) -> Bound:
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
