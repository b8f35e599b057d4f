"""Lines that chains over nodes pass on while a chunk still arrives.

Every line of LL and LL128 carries its flag, so that threads pass on what has arrived, and a chunk fills a chain of
ranks in the time of a few lines for each instead of that of the chunk. An adapter sends a step of a connection as a
whole, once all of it has been written (NCCL src/transport/net.cc, sendProxyProgress); what its peer writes there the
next rank passes on as it comes. In a ring all ranks send in every step, so that nothing is
gained, and within one node the constants of chains were fitted with chunks that are passed on whole. So were those of
trees over nodes, which do the same: with lines, trees of the sites left out of the fit came out farther off
(docs/profiles.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collsim.engine import Problem
from collsim.fabric.fabric import Float
from collsim.library.costs.channel_costs import Bool, Protocol
from collsim.schedule import Pipelines
from collsim.simulation.arrivals import Heralds, with_heralds
from collsim.simulation.demand import stores_of
from collsim.simulation.time_parts import Chain

if TYPE_CHECKING:
    from collsim.simulation.lowering import Lowered
    from collsim.simulation.runs import LoweredRun

__all__ = ["PASSED_ON", "heralded", "passes_lines", "tells_of", "without_heralds"]

PASSED_ON = ("broadcast", "reduce")
"""Operations whose chains over nodes pass on lines."""


def passes_lines(lowered: Lowered, network: Protocol) -> bool:
    """Return True for chunks that flow along chains over nodes in lines."""
    chains = isinstance(lowered.schedule.phases[0], Pipelines)
    large = bool(lowered.size_bytes.max(initial=0.0) > network.passed_on_bytes)
    return lowered.steps is not None and chains and large and lowered.schedule.op in PASSED_ON


def heralded(
    problem: Problem, lowered: Lowered, run: LoweredRun, both_costs: tuple[Protocol, Protocol], late_s: Float
) -> Problem:
    """Return a problem in which ranks inside a node pass on a chunk as soon as its first bytes have arrived.

    *late_s* is float64[n]: how much later than its end a transfer between nodes arrives.
    """
    found, _ = _heralds(problem, lowered, run, both_costs)
    return with_heralds(problem, found._replace(early_s=found.early_s + late_s[found.rows]))


def without_heralds(
    chain: Chain, problem: Problem, lowered: Lowered, run: LoweredRun, both_costs: tuple[Protocol, Protocol]
) -> Chain:
    """Return a chain of rows of a heralded problem with transfers and their arrivals instead of heralds and ends."""
    found, flow_s = _heralds(problem, lowered, run, both_costs)
    of_row, n = np.concatenate([found.rows, found.led()[1]]), len(lowered.transfers)
    begin = len(problem.route) - len(of_row)
    told = chain.row >= begin
    row = of_row[chain.row[told] - begin]
    late_s = np.maximum(chain.latency_s[told] - found.first_s[row], 0.0)
    arrival = np.zeros(n, dtype=np.int64)
    arrival[problem.dep[problem.dep_ptr[n:begin]]] = np.arange(n, begin)
    late = np.flatnonzero((arrival[row] > 0) & (late_s > 0))
    return Chain(
        np.concatenate([chain.row[~told], row, arrival[row[late]]]),
        np.concatenate([chain.latency_s[~told], found.first_s[row] - flow_s[row], late_s[late]]),
        np.concatenate([chain.flow_s[~told], flow_s[row], np.zeros(len(late))]),
        np.concatenate([chain.at_cap[~told], np.ones(len(row) + len(late), dtype=np.bool_)]),
    )


def _heralds(
    problem: Problem, lowered: Lowered, run: LoweredRun, both_costs: tuple[Protocol, Protocol]
) -> tuple[Heralds, Float]:
    """Return the heralds of a problem, without what arrives late, and float64[n]: for how long first bytes flow."""
    (costs, network), n, transfers = both_costs, len(lowered.transfers), lowered.transfers
    first_bytes = np.minimum(lowered.size_bytes, network.passed_on_bytes)
    waiter = np.repeat(np.arange(n), np.diff(transfers.dep_ptr))
    leaves = lowered.across[waiter]
    tells = tells_of(lowered)
    passed_on = np.zeros(n, dtype=np.bool_)
    passed_on[transfers.dep[tells & ~leaves]] = True
    rows = np.flatnonzero(passed_on & (first_bytes < lowered.size_bytes))
    rates_Bps = problem.cap_Bps[:n]
    inside_s = costs.latency_s(first_bytes, rates_Bps, stores_of(lowered))
    inside_s = inside_s + run.trunks.latency_s[lowered.used][lowered.route]
    flow_s = first_bytes / rates_Bps
    first_s = np.where(lowered.across, problem.latency_s[:n], inside_s) + flow_s
    return Heralds(rows, first_s[rows], first_s, waiter, transfers.dep, tells & ~leaves, tells & leaves), flow_s


def tells_of(lowered: Lowered) -> Bool:
    """Return bool[n_deps]: whether a transfer waits for the bytes of another, not only for its sender."""
    if lowered.tells is not None:
        return lowered.tells
    transfers = lowered.transfers
    sent, then = transfers.dep, np.repeat(transfers.src, np.diff(transfers.dep_ptr))
    return np.asarray((transfers.dst[sent] == then) | (transfers.dst[sent] < 0))
