"""Parts of the time of a call: how much of its time each constant of the profile decides, and how much the wires.

Twice every time and half of every rate that a call is made of is twice the time of the call. So that is the sum of the
parts that each of them decides: the constant times the change of the time with it, along the slowest chain of transfers
(Euler's theorem on homogeneous functions). Where limits meet softly, each has the part by which it counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from collsim.core.arrays import distinct
from collsim.engine import Problem, Solution
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import Bool, Protocol, soft_max
from collsim.library.costs.laws import Work, cap_Bps
from collsim.library.costs.message_costs import Messages, call_s, port_capacity_Bps
from collsim.simulation.demand import (
    channels_of,
    empty_chunks,
    filling_bytes,
    gathers_alone,
    hands_on,
    heads_of,
    held_back,
    is_grouped,
    messages_of,
    once_between,
    peers_of,
    served_of,
    stores_of,
    work_of,
)
from collsim.simulation.lowering import Lowered
from collsim.simulation.runs import LoweredRun

__all__ = ["Chain", "Parts", "all_rows", "chain_parts", "hide_wires"]

CHANGE = 1e-6
"""Relative change of a constant by which its part is found."""
TIMES = ("message_overhead_s", "small_overhead_s", "slice_overhead_s", "store_overhead_s", "turn_s")
RATES = ("channel_rate_Bps", "one_way_rate_Bps", "copy_out_rate_Bps", "keep_rate_Bps", "host_rate_Bps")
FREE = 1e6
"""So many times as fast, wires take no time."""
Key = tuple[str, str]
"""Whose constant, ``node``, ``network``, ``added``, ``profile`` or ``wire``, and its attribute."""
Law = Callable[[Protocol, float], tuple[Float, Float]]
"""Rates in B/s and waits in s of the transfers of a chain, from costs and from how fast wires are, 1 as they are."""


class Chain(NamedTuple):
    """Rows of a problem, the slowest chain of them: what each waited and flowed, and whether it flowed at its cap."""

    row: Int
    latency_s: Float
    flow_s: Float
    at_cap: Bool


@dataclass(slots=True)
class Parts:
    """Seconds of a call by what decides them.

    *links* are those of the wires by link of the fabric, *slower_s* what the call would take more if all wires were
    half as fast, as far as the chain tells.
    """

    seconds: dict[Key, float] = field(default_factory=dict)
    links: dict[int, float] = field(default_factory=dict)
    slower_s: float = 0.0

    def add(self, key: Key, seconds: float) -> None:
        """Add to the part of a key."""
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds

    def stretch(self, factor: float) -> None:
        """Take the parts so many times as long: of a pipeline of which only the beginning was simulated."""
        self.seconds = {key: part_s * factor for key, part_s in self.seconds.items()}
        self.links = {link: part_s * factor for link, part_s in self.links.items()}
        self.slower_s *= factor

    def fit(self, time_s: float) -> None:
        """Give each its proportion of a call that is shorter than all: where waits hide behind bytes."""
        told_s = sum(part_s for part_s in self.seconds.values() if part_s > 0)
        if told_s > time_s:
            self.seconds = {key: part_s * time_s / told_s for key, part_s in self.seconds.items()}

    def meet(self, key: Key, other_s: float, mine_s: float, sharpness: float) -> None:
        """Let a constant of the whole call, *other_s*, meet all of this, *mine_s*, softly: the longer one counts."""
        if not other_s:
            return
        whole_s, slow_s = (
            float(soft_max(np.array(other_s), np.array(each_s), sharpness))
            for each_s in (mine_s, mine_s + max(self.slower_s, 0.0))
        )
        kept = (mine_s / whole_s) ** (sharpness - 1)
        self.seconds = {key: part_s * kept for key, part_s in self.seconds.items()}
        self.slower_s = slow_s - whole_s
        self.add(key, whole_s * (other_s / whole_s) ** sharpness)

    def add_once(
        self,
        lowered: Lowered,
        run: LoweredRun,
        both_costs: tuple[Protocol, Protocol | None],
        once_s: float,
        largest_bytes: float,
    ) -> None:
        """Add what a call takes on the device beside its transfers, *once_s* altogether."""
        costs, network = both_costs
        between = once_between(lowered, run, network)
        told = {"base_s": costs.start_s(empty_chunks(lowered))}
        if costs.threads_overhead_s and not is_grouped(lowered, costs):
            told["threads_overhead_s"] = costs.threads_s(lowered.schedule.size_bytes)
        if exchange_s := costs.exchange_s(gathers=gathers_alone(lowered)):
            told["exchange_overhead_s"] = exchange_s
        if is_grouped(lowered, costs):
            told["channel_overhead_s"] = costs.channel_overhead_s * messages_of(lowered, run).channels_for_all
            begin_s, left_s = sum(told.values()), max(once_s - sum(between.values()), 0.0)
            told = {name: part_s * min(left_s / begin_s, 1.0) if begin_s else 0.0 for name, part_s in told.items()}
            alone = "channel_rate_Bps" if costs.one_way_rate_Bps is None else "one_way_rate_Bps"
            alone = "copy_out_rate_Bps" if costs.copy_out_rate_Bps is not None else alone
            told[alone] = max(left_s - begin_s, 0.0)  # the copies out at the ends of calls in a row
        else:
            filling = float(filling_bytes(lowered, np.array([largest_bytes]), costs)[0])
            told["fill_rate_Bps"] = min(filling, costs.fill_limit_bytes) / costs.fill_rate_Bps
            told["message_overhead_s"] = costs.hand_over_s(hands_on=hands_on(lowered))
            told["last_channel_overhead_s"] = costs.last_channel_s(channels_of(lowered))
        told["peer_overhead_s"] = costs.peer_overhead_s * peers_of(lowered)
        told["copy_rate_Bps"] = costs.copies * lowered.schedule.size_bytes / costs.copy_rate_Bps
        for name, part_s in told.items():
            self.add(("node", name), part_s)
        for name, part_s in between.items():
            self.add(("network", name), part_s)


def hide_wires(
    parts: Parts, messages: Messages, finish_s: Float, ends_Bps: tuple[Float, Float], costs: Protocol
) -> None:  # fmt: skip
    """Leave the wires what of their part a long row of calls shows, where ranks that wait for others set its pace.

    *finish_s* is float64[n], when messages arrive; *ends_Bps* is what each could reach alone, and what ports carry.
    """
    last_s, wire_s = float(finish_s.max(initial=0.0)), parts.seconds.get(("wire", ""), 0.0)
    if wire_s <= 0 or last_s <= 0:
        return
    rates_Bps, port_Bps = ends_Bps
    now_s = call_s(messages, finish_s, rates_Bps, port_Bps, costs)
    freed_s = call_s(messages, finish_s * (1 - min(wire_s / last_s, 1.0)), rates_Bps, port_Bps * FREE, costs)
    hidden_s = max(wire_s - (now_s - freed_s), 0.0)
    parts.add(("wire", ""), -hidden_s)
    parts.add(("node", "channel_rate_Bps" if costs.one_way_rate_Bps is None else "one_way_rate_Bps"), hidden_s)


def all_rows(problem: Problem, spent_s: tuple[float, float], *, at_cap: bool) -> Chain:
    """Return all rows of a problem as a chain that waits and flows *spent_s* altogether: it stands for a longer one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        flow_s = np.nan_to_num(problem.size_bytes / problem.cap_Bps)
    waits_s, flows_s = (
        own_s * (whole_s / total if (total := float(own_s.sum())) else 0.0)
        for own_s, whole_s in zip((problem.latency_s, flow_s), spent_s, strict=True)
    )
    return Chain(np.arange(len(problem.route)), waits_s, flows_s, np.full(len(problem.route), at_cap))


def chain_parts(
    lowered: Lowered,
    run: LoweredRun,
    both_costs: tuple[Protocol, Protocol | None],
    problem: Problem,
    chain: Chain,
    *,
    link_bytes: Float,
    solution: Solution | None = None,
) -> Parts:
    """Return the parts of the slowest *chain*; without a *solution* the chain stands for one that nobody solved.

    *link_bytes* is float64[n_links], what each link of the fabric carries.
    """
    parts, n = Parts(), len(lowered.transfers)
    late = chain.row >= n
    transfer = chain.row.copy()
    transfer[late] = problem.dep[problem.dep_ptr[chain.row[late]]]  # an arrival follows what arrives
    across = lowered.across[transfer]
    ports = _Ports.of(lowered, run, both_costs[0], problem, chain)
    for group in _groups(lowered, run, both_costs, (transfer, late, across)):
        _split(parts, _Slice.of(chain, group.rows, transfer), group, ports)
    _name_wires(parts, lowered, run, link_bytes / run.fabric.capacity_Bps, (transfer, chain.flow_s))
    if solution is not None:
        parts.slower_s = max(parts.slower_s, _crowded_s(problem, solution))
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Rows of a chain under one law: whose constants it takes, and which of them."""

    rows: Int
    laws: Sequence[tuple[str, Protocol, tuple[str, ...], Law]]
    hop_s: Float
    """What links themselves delay: part of the waits of a law beyond a node, on top of them within one."""
    hop_inside: bool = False


class _Slice(NamedTuple):
    """Part of a chain: its transfers, waits, flows."""

    rows: Int
    transfer: Int
    latency_s: Float
    flow_s: Float
    at_cap: Bool

    @classmethod
    def of(cls, chain: Chain, rows: Int, transfer: Int) -> _Slice:
        return cls(rows, transfer[rows], chain.latency_s[rows], chain.flow_s[rows], chain.at_cap[rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Ports:
    """What holds transfers that flow below their cap: links (0), or ports that channels and links fill together."""

    offered: Float
    """float64[m], by row of the chain: the share of its flow that channels decide."""
    memory: Bool

    @classmethod
    def of(cls, lowered: Lowered, run: LoweredRun, costs: Protocol, problem: Problem, chain: Chain) -> _Ports:
        offered, n_trunks = np.where(chain.at_cap, 1.0, 0.0), len(run.trunk_capacity_Bps)
        memory = np.zeros(len(chain.row), dtype=np.bool_)
        held = np.flatnonzero(~chain.at_cap)
        if len(problem.capacity_Bps) == n_trunks or not len(held):
            return cls(offered, memory)
        tightest = _tightest(problem, problem.route[chain.row[held]])
        work = work_of(lowered, run, costs)
        n_ports = 2 * run.fabric.n_ranks if work.grouped is not None else 0
        if work.grouped is not None:
            at_port = (tightest >= n_trunks) & (tightest < n_trunks + n_ports)
            share = _offered_share(work.grouped.but(lowered.across), run, costs, problem)
            offered[held[at_port]] = share[tightest[at_port] - n_trunks]
        memory[held] = tightest >= n_trunks + n_ports
        return cls(offered, memory)


def _offered_share(messages: Messages, run: LoweredRun, costs: Protocol, problem: Problem) -> Float:
    """Return float64[2 n_ranks]: how far the channels decide what ports carry, from 0 to 1."""
    rates, line_Bps = problem.cap_Bps[: len(messages.src)], np.concatenate(run.port_rates_Bps)
    now, more = (port_capacity_Bps(messages, rates * by, costs, line_Bps) for by in (1.0, 1 + CHANGE))
    return np.clip((more / now - 1) / CHANGE, 0.0, 1.0)


def _tightest(problem: Problem, routes: Int) -> Int:
    """Return int64[m]: the link of each route that is busy longest; -1 where it has none."""
    moved = np.bincount(problem.route, weights=problem.size_bytes, minlength=len(problem.route_ptr) - 1)
    carried = np.repeat(moved, np.diff(problem.route_ptr)) * problem.route_weight
    n_links = len(problem.capacity_Bps)
    busy_s = np.bincount(problem.route_link, weights=carried, minlength=n_links) / problem.capacity_Bps
    found = {route: _longest(problem.route_link, problem.route_ptr, busy_s, route) for route in distinct(routes)[0]}
    return np.array([found[route] for route in routes.tolist()], dtype=np.int64)


def _longest(link: Int, ptr: Int, busy_s: Float, route: int) -> int:
    """Return the link of a route that is busy longest; -1 if it has none."""
    links = link[ptr[route] : ptr[route + 1]]
    return int(links[np.argmax(busy_s[links])]) if len(links) else -1


def _groups(
    lowered: Lowered, run: LoweredRun, both_costs: tuple[Protocol, Protocol | None], rows: tuple[Int, Bool, Bool]
) -> Iterator[_Group]:
    """Yield the rows of a chain within nodes, between them, and what arrives late there."""
    transfer, late, across = rows
    costs, network = both_costs
    latency_s = run.trunks.latency_s[lowered.used][lowered.route]
    if network is None or lowered.steps is None:
        across = np.zeros(len(transfer), dtype=np.bool_)
    within = np.flatnonzero(~across)
    if len(within):
        law = _law_within(lowered, run, work_of(lowered, run, costs), transfer[within])
        yield _Group(within, [("node", costs, (*TIMES, *RATES), law)], latency_s[transfer[within]])
    if network is None:
        return
    added = lowered.added[transfer] if len(transfer) else late
    work = work_of(lowered, run, network) if across.any() else None
    sharp = run.profile.network.protocol("Simple", "sharp") or network
    for arrives in (False, True):
        for adds in (False, True):
            picked = np.flatnonzero(across & (late == arrives) & (added == adds))
            if not len(picked) or work is None:
                continue
            both = _law_across(lowered, run, work, transfer[picked], (network, sharp if adds else network, arrives))
            waits, own = ("added", sharp) if adds else ("network", network)
            laws = [("network", network, RATES, both[0]), (waits, own, ("turn_s", "message_overhead_s"), both[1])]
            yield _Group(picked, laws, latency_s[transfer[picked]], hop_inside=True)


def _law_within(lowered: Lowered, run: LoweredRun, work: Work, transfer: Int) -> Law:
    """Return the law of rates and waits within a node."""
    use, size_bytes = _taken(work, transfer).use, lowered.size_bytes[transfer]
    stores = stores_of(lowered)[transfer]
    moves = (lowered.transfers.src[transfer] != lowered.transfers.dst[transfer]) * heads_of(lowered, run)[transfer]

    def law(costs: Protocol, wire: float) -> tuple[Float, Float]:
        if work.grouped is not None:
            rates = cap_Bps(costs, work)[transfer]
        else:
            own = replace(use, alone_Bps=use.alone_Bps * wire)
            rates = costs.rates_Bps(own, work.steps, work.dtype, work.gathered)
        return rates, np.where(moves > 0, costs.latency_s(size_bytes, rates, stores), 0.0) * moves

    return law


def _law_across(
    lowered: Lowered, run: LoweredRun, work: Work, transfer: Int, told: tuple[Protocol, Protocol, bool]
) -> tuple[Law, Law]:
    """Return the law between nodes twice: as one of what moves bytes, and of what makes them wait.

    *told* are the costs of both, and whether a row is what arrives late.
    """
    network, waiting, arrives = told
    assert lowered.steps is not None
    whole, mine = lowered.steps, lowered.steps.use.take(transfer)
    size_bytes, hop_s = lowered.size_bytes[transfer], run.trunks.latency_s[lowered.used][lowered.route][transfer]
    alone, served = _taken(work, transfer), served_of(lowered, run)

    def law(moves: Protocol, waits: Protocol, wire: float) -> tuple[Float, Float]:
        steps = replace(whole, use=replace(mine, alone_Bps=mine.alone_Bps * wire))
        caps = cap_Bps(moves, work, between_nodes=True)[transfer] if work.grouped else cap_Bps(
            moves, alone, between_nodes=True
        )  # fmt: skip
        caps = held_back(lowered, run, caps, transfer)
        overheads = np.full(len(transfer), served * waits.turn_s), served * waits.message_overhead_s + hop_s
        own_s, late_s = steps.waits_s(moves, size_bytes, caps, overheads)
        if work.grouped is not None:
            own_s, late_s = own_s + late_s, np.zeros(len(late_s))
        return steps.rates_Bps(moves, size_bytes, caps), late_s if arrives else own_s

    return (lambda costs, wire: law(costs, waiting, wire)), (lambda costs, wire: law(network, costs, wire))


def _taken(work: Work, transfer: Int) -> Work:
    """Return the work of some transfers, whose channels are their own."""
    connections = None if work.connections is None else work.connections[transfer]
    return replace(work, use=work.use.take(transfer), grouped=None, connections=connections)


def _split(parts: Parts, chain: _Slice, group: _Group, ports: _Ports) -> None:
    """Add the parts of some rows of a chain, which follow one law."""
    _, costs, _, law = group.laws[0]
    rates, waits_s = law(costs, 1.0)
    full_s = waits_s if group.hop_inside else waits_s + group.hop_s
    seen = np.divide(chain.latency_s, full_s, out=np.zeros(len(full_s)), where=full_s > 0)
    through, left_s = ports.offered[chain.rows], float((chain.flow_s + chain.latency_s).sum())
    for section, own, names, its_law in group.laws:
        for name, changed in _changes(own, names):
            more, longer_s = its_law(changed, 1.0)
            faster = (np.divide(more, rates, out=np.ones(len(rates)), where=np.isfinite(rates)) - 1) / CHANGE
            part_s = float(((longer_s - waits_s) * seen).sum()) / CHANGE
            part_s = part_s if name.endswith("_s") else float((chain.flow_s * through * faster).sum()) - part_s
            parts.add((section, name), part_s)
            left_s -= part_s
    hops_s = 0.0 if group.hop_inside else float((group.hop_s * seen).sum())
    in_memory_s = float((chain.flow_s * ports.memory[chain.rows]).sum())
    parts.add(("wire", "latency"), hops_s)
    parts.add(("wire", "memory"), in_memory_s)
    parts.add(("wire", ""), left_s - hops_s - in_memory_s)
    slow, slow_wait_s = law(costs, 0.5)
    capped = chain.at_cap & np.isfinite(rates)
    longer = np.divide(rates, slow, out=np.ones(len(rates)), where=capped) - 1
    held_s = chain.flow_s * np.where(capped, longer, (1 - through) * ~ports.memory[chain.rows])
    parts.slower_s += float((held_s + (slow_wait_s - waits_s) * seen).sum())


def _changes(costs: Protocol, names: Sequence[str]) -> Iterator[tuple[str, Protocol]]:
    """Yield the constants of some names that cost anything, and costs in which each is a little more."""
    for name in names:
        value = getattr(costs, name)
        if value and math.isfinite(value):
            yield name, replace(costs, **{name: value * (1 + CHANGE)})
    if RATES[0] in names:
        for dtype, rate in costs.reduce_rates_Bps.items():
            more = {**costs.reduce_rates_Bps, dtype: rate * (1 + CHANGE)}
            yield f"reduce_rate.{dtype}", replace(costs, reduce_rates_Bps=more)


def _name_wires(
    parts: Parts, lowered: Lowered, run: LoweredRun, busy_s: Float, of_chain: tuple[Int, Float]
) -> None:  # fmt: skip
    """Share the part of the wires among the links on the way of the chain: each transfer names its busiest."""
    which, place = distinct(lowered.route[of_chain[0]])
    flow_s = np.bincount(place, weights=of_chain[1]).tolist()
    ways = (lowered.ways or run.routes).take(lowered.used[which], np.ones(len(which)))
    for link, part_s in zip(ways.busiest(busy_s).tolist(), flow_s, strict=True):
        if link >= 0:
            parts.links[link] = parts.links.get(link, 0.0) + part_s


def _crowded_s(problem: Problem, solution: Solution) -> float:
    """Return how much longer the busiest link would take at half its rate for what it carries at every moment."""
    moved = np.bincount(problem.route, weights=problem.size_bytes, minlength=len(problem.route_ptr) - 1)
    owner = np.repeat(np.arange(len(moved)), np.diff(problem.route_ptr))
    loads = np.bincount(problem.route_link, weights=moved[owner] * problem.route_weight)
    busiest = int(np.argmax(loads / problem.capacity_Bps[: len(loads)]))
    weight = np.bincount(owner, weights=problem.route_weight * (problem.route_link == busiest), minlength=len(moved))
    rows = np.flatnonzero((weight[problem.route] > 0) & (problem.size_bytes > 0))
    begin, end = solution.start_s[rows], solution.finish_s[rows]
    use = weight[problem.route[rows]] * problem.size_bytes[rows] / np.maximum(end - begin, 1e-15)
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    share = np.cumsum(np.concatenate([use, -use])[order])[:-1] / problem.capacity_Bps[busiest]
    return float((np.maximum(2 * share - 1, 0.0) * np.diff(times[order])).sum())
