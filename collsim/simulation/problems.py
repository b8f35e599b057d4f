"""Problems for the engine: a lowered schedule with its costs, as rates, waits, routes and ports in arrays."""

from __future__ import annotations

import numpy as np

from collsim.core.errors import Fault
from collsim.engine import EngineDeadlock, Problem
from collsim.fabric.fabric import Float
from collsim.library.costs.channel_costs import Bool, Protocol
from collsim.library.costs.laws import cap_Bps
from collsim.library.costs.message_costs import port_capacity_Bps
from collsim.schedule import Transfers
from collsim.simulation.arrivals import with_arrivals
from collsim.simulation.demand import (
    heads_of,
    held_back,
    served_of,
    stores_of,
    work_of,
)
from collsim.simulation.heralds import heralded, passes_lines, tells_of
from collsim.simulation.lowering import Lowered
from collsim.simulation.memories import with_memories
from collsim.simulation.runs import LoweredRun

__all__ = ["deadlock_faults", "problem_of", "wire_copies"]


def _outside(lowered: Lowered) -> Bool:
    """Return bool[n_used]: whether a route leaves its node."""
    return np.asarray(np.bincount(lowered.route[lowered.across], minlength=len(lowered.used)) > 0)


def wire_copies(lowered: Lowered, costs: Protocol, network: Protocol | None) -> Float:
    """Return float64[n_used]: bytes on the wire for each byte of a message, times the copies of it."""
    efficiency = np.full(len(lowered.used), costs.wire_efficiency)
    if network is not None:
        efficiency[lowered.route[lowered.across]] = network.wire_efficiency
    return np.asarray(lowered.copies / efficiency, dtype=np.float64)


def _rates(lowered: Lowered, run: LoweredRun, costs: Protocol) -> tuple[Float, Float]:
    """Return float64[n], what each transfer reaches within a node, and what ports of ranks carry, if they count."""
    work = work_of(lowered, run, costs)
    rates = cap_Bps(costs, work)
    if work.grouped is None or lowered.at_once is not None:
        return rates, np.zeros(0)
    return rates, port_capacity_Bps(work.grouped.but(lowered.across), rates, costs, np.concatenate(run.port_rates_Bps))


def _over_network(
    lowered: Lowered, run: LoweredRun, network: Protocol, rates_Bps: Float, waits_s: Float
) -> tuple[Float, Float, Float]:
    """Return rates, waits and lateness of all transfers, with the costs of *network* for those between nodes.

    Grouped messages depend on nothing that arrives: theirs is all in the wait.
    """
    steps, size_bytes = lowered.steps, lowered.size_bytes
    assert steps is not None
    work = work_of(lowered, run, network)
    caps = held_back(lowered, run, cap_Bps(network, work, between_nodes=True))
    added = run.profile.network.protocol("Simple", "sharp") or network
    turn_s = np.where(lowered.added, added.turn_s, network.turn_s)
    arrival_s = np.where(lowered.added, added.message_overhead_s, network.message_overhead_s)
    served = served_of(lowered, run)
    turn_s, arrival_s = served * turn_s, served * arrival_s
    arrival_s = arrival_s + run.trunks.latency_s[lowered.used][lowered.route]
    own_s, late_s = steps.waits_s(network, size_bytes, caps, (turn_s, arrival_s))
    if work.grouped is not None:
        own_s, late_s = own_s + late_s, np.zeros(len(late_s))
    return (
        np.where(lowered.across, steps.rates_Bps(network, size_bytes, caps), rates_Bps),
        np.where(lowered.across, own_s, waits_s),
        np.where(lowered.across, late_s, 0.0),
    )


def problem_of(lowered: Lowered, run: LoweredRun, costs: Protocol, network: Protocol | None = None) -> Problem:
    """Return the arrays that the engine takes."""
    transfers, size_bytes = lowered.transfers, lowered.size_bytes
    trunks = run.trunks.take(lowered.used, wire_copies(lowered, costs, network))
    rates, port_Bps = _rates(lowered, run, costs)
    latency_s = costs.latency_s(size_bytes, rates, stores_of(lowered))
    waits_s = np.where(transfers.src != transfers.dst, latency_s, 0.0) * heads_of(lowered, run)
    waits_s += trunks.latency_s[lowered.route]
    late_s = np.zeros(len(transfers))
    if network is not None and lowered.steps is not None:
        rates, waits_s, late_s = _over_network(lowered, run, network, rates, waits_s)
    capacity_Bps = run.trunk_capacity_Bps
    if lowered.narrowest_Bps is not None:
        rates = np.minimum(rates, (lowered.narrowest_Bps / wire_copies(lowered, costs, network))[lowered.route])
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
    if run.fabric.memory_Bps is not None:
        problem = with_memories(problem, lowered, run.fabric.memory_Bps)
    late = np.flatnonzero(late_s)
    if len(late):
        problem = with_arrivals(problem, late, late_s[late], tells_of(lowered))
    if network is not None and passes_lines(lowered, network):
        problem = heralded(problem, lowered, run, (costs, network), late_s)
    return problem


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


def deadlock_faults(stuck: EngineDeadlock, transfers: Transfers) -> list[Fault]:
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
