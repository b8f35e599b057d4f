"""Timing of dispatch or combine on a fabric: flows over routes, ports of kernels, the engine, and the bound.

All flows of an operation run at once: the hops of normal mode are pipelined, so the slower one sets the pace, and the
other adds the time of one chunk at its end. Every rank is a port out and a port in, which kernels fill at the rate that
their SMs copy at; bytes to or from the network take part of that as well. Where the work of SMs is known, that rate
follows from what each rank has to copy. Network links give the part of their rate that the kernels reach. A message to
another node also keeps the adapters of its sender busy until it is posted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, InternalError, defect
from collsim.engine import Problem, check_conservation, checked, least_time_s, solve
from collsim.fabric.fabric import Fabric
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes, merge_trunks, routes_of
from collsim.moe.flows import Flows
from collsim.moe.gating import Float, Int
from collsim.moe.kernel_costs import Costs
from collsim.simulation.result import LinkLoad

__all__ = ["Laid", "OpTime", "Work", "laid_on", "load_of", "problem_of", "time_flows"]


SHARPNESS = 8
"""How sharply the slower of links and SMs sets the rate of copying: 1 adds their times, many take the longer. Chosen
once for all kernels, as rows with 16 to 24 SMs bend on H100; 4 to 16 fit about as well."""


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """Flows on the routes of a fabric: whether each leaves its node, and the routes of all, one each."""

    fabric: Fabric
    hops: Sequence[Flows]
    hop: Int
    across: NDArray[np.bool_]
    routes: Routes
    trunks: Routes
    """The same with one link for those that fill in step."""
    trunk_capacity_Bps: Float
    node_Bps: Float
    """float64[n_ranks]: what each GPU can send within its node at line rate; infinity if it is alone there."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What the SMs of each rank have to do in one operation.

    Attributes
    ----------
    tokens : float64[n_ranks]
    copies_out, copies_in : float64[n_ranks]
        Copies of tokens that it hands out and takes in, its own included.
    token_bytes : int
    sms : int
        That copy.
    """

    tokens: Float
    copies_out: Float
    copies_in: Float
    token_bytes: int
    sms: int

    def own_s(self, costs: Costs) -> Float:
        """Return float64[2 * n_ranks], what one SM alone would need for the copies out, and in."""
        copies = np.concatenate([self.copies_out, self.copies_in])
        each_token = costs.token_s + self.token_bytes / costs.token_Bps
        return np.tile(self.tokens, 2) * each_token + copies * (costs.copy_s + self.token_bytes / costs.copy_Bps)

    def shared_s(self, seconds: Float, costs: Costs) -> Float:
        """Return the time of so many seconds of one SM's work on all that copy, which get in each other's way."""
        return seconds * (1 / self.sms + costs.crowding)

    def ring_s(self, costs: Costs) -> float:
        """Return how much later the last tokens come: two SMs are a channel, one hands tokens to the other."""
        tokens = float(self.tokens.max(initial=0.0))
        if not costs.ring_tokens or not tokens:
            return 0.0
        at_once = min(tokens / (self.sms / 2), costs.ring_tokens)
        return at_once / 2 * float(self.own_s(costs).max()) / tokens


@dataclass(frozen=True, slots=True, eq=False)
class OpTime:
    """Time of one operation, with the load of links and ports.

    Attributes
    ----------
    time_s, load_s, bound_s : float
        With all costs; what the busiest link or port needs with them; and bytes over line rates alone.
    finish_s : float64[n_ranks]
        When each rank has received all that is for it.
    link_busy_s : float64[n_links]
        Bytes over what the kernels reach of the line rate.
    node_bytes, network_bytes : float
        Sent within nodes and between them, by all ranks together.
    port_load : float64[2 * n_ranks]
        Part of the time that the ports out and in of each rank's kernels are busy.
    path : str
    tolerance : float
    """

    time_s: float
    load_s: float
    bound_s: float
    finish_s: Float
    link_busy_s: Float
    port_load: Float
    node_bytes: float
    network_bytes: float
    path: str
    tolerance: float = 0.0
    bottleneck: tuple[LinkLoad, ...] = ()
    """The busiest links, where loads of links and ports are not known."""


def laid_on(fabric: Fabric, routes: Routes, hops: Sequence[Flows]) -> Laid:
    """Return the flows of all hops on *fabric*; *routes* are those that `collsim.fabric.routing.find_routes` keeps."""
    src, dst = (np.concatenate([getattr(flows, name) for flows in hops]) for name in ("src", "dst"))
    hop = np.repeat(np.arange(len(hops)), [len(flows.src) for flows in hops])
    node = fabric.wiring.coordinates.node[fabric.rank_node]
    routes, place = routes_of(fabric, routes, (src, dst), (), TreePorts.free(fabric))
    taken = routes.take(place, np.ones(len(src)))
    trunks, capacity = merge_trunks(taken, fabric.capacity_Bps)
    return Laid(fabric, hops, hop, node[src] != node[dst], taken, trunks, capacity, node_rates_Bps(fabric))


def node_rates_Bps(fabric: Fabric) -> Float:
    """Return float64[n_ranks]: what each rank can send to others of its node at line rate; infinity if it is alone."""
    wiring, ranks = fabric.wiring, fabric.rank_node
    inside = np.array([kind == "switch" for kind in wiring.node_kinds])
    inside[ranks] = True
    counts = (wiring.link_src < wiring.n_gpus) & inside[wiring.link_dst]
    out = np.bincount(wiring.link_src[counts], fabric.raw_capacity_Bps[counts], wiring.n_nodes)[ranks]
    return np.where(out > 0, out, np.inf)


def _columns(laid: Laid) -> tuple[Int, Int, Float, Float]:
    """Return source, target, bytes and messages of all flows."""
    src, dst, size, messages = (
        np.concatenate([getattr(flows, name) for flows in laid.hops])
        for name in ("src", "dst", "size_bytes", "messages")
    )
    return src, dst, size, messages


def _on_links(laid: Laid, costs: Costs) -> Float:
    """Return float64[flows]: time that a flow keeps its links busy, as a multiple of its bytes over the line rate."""
    return np.where(laid.across, 1 / costs.network_efficiency, 1.0)


def _sending_s(laid: Laid, costs: Costs) -> Float:
    """Return float64[flows]: seconds that a byte keeps the adapters of its sender busy, posting messages included."""
    _, _, size_bytes, messages = _columns(laid)
    seconds = np.zeros(len(laid.hop))
    routes, across = laid.routes.expanded(), np.flatnonzero(laid.across)
    if costs.message_s and len(across):
        each_s = routes.weight / laid.fabric.capacity_Bps[routes.link] / costs.network_efficiency
        alone_s = np.maximum.reduceat(each_s, routes.ptr[across])  # routes between nodes have links
        seconds[across] = alone_s + costs.message_s * messages[across] / size_bytes[across]
    return seconds


def _ports_Bps(laid: Laid, costs: Costs, share: float, work: Work | None) -> Float:
    """Return float64[2 * n_ranks], the rates that the ports out and in copy at, network bytes weighed by their work."""
    n = laid.fabric.n_ranks
    rate_Bps = np.tile(laid.node_Bps * costs.node_efficiency * share, 2)
    if work is None or not costs.by_sm:
        return rate_Bps
    src, dst, size_bytes, _ = _columns(laid)
    ports = np.concatenate([src, n + dst])
    inside, across = (np.bincount(ports, np.tile(size_bytes * part, 2), 2 * n) for part in (~laid.across, laid.across))
    extra_s = costs.network_work * across / costs.copy_Bps
    busy_s = work.shared_s(work.own_s(costs) + extra_s, costs)
    seconds = ((inside / rate_Bps) ** SHARPNESS + busy_s**SHARPNESS) ** (1 / SHARPNESS)
    done = inside + costs.network_work * across
    return np.where(done > 0, done / np.where(done > 0, seconds, 1.0), np.inf)


def problem_of(laid: Laid, costs: Costs, share: float, of: Work | None = None) -> Problem:
    """Return the problem for the engine: links, then the ports out of, into, and from each rank to its adapters."""
    src, dst, size_bytes, _ = _columns(laid)
    n, capacity = laid.fabric.n_ranks, laid.trunk_capacity_Bps
    ways = laid.trunks.take(np.arange(len(src)), _on_links(laid, costs))
    ports_Bps = _ports_Bps(laid, costs, share, of)
    work = np.where(laid.across, costs.network_work, 1.0)
    first = len(capacity)
    ptr = ways.ptr + 3 * np.arange(len(src) + 1)
    link, weight = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1])
    own = np.ones(ptr[-1], dtype=np.bool_)
    sending_s = _sending_s(laid, costs)
    for place, (port, takes) in enumerate(((src, work), (n + dst, work), (2 * n + src, sending_s))):
        at = ptr[:-1] + place
        own[at] = False
        link[at], weight[at] = first + port, takes
    link[own], weight[own] = ways.link, ways.weight
    capacity = np.concatenate([capacity, ports_Bps, np.ones(n)])  # an adapter has one second in a second
    kept = (weight > 0) & np.isfinite(capacity[link])
    ptr = np.concatenate([[0], np.cumsum(kept)])[ptr]
    return Problem(
        capacity_Bps=np.where(np.isfinite(capacity), capacity, 1.0),
        route_ptr=ptr,
        route_link=link[kept],
        route_weight=weight[kept],
        route=np.arange(len(src)),
        size_bytes=size_bytes,
        latency_s=laid.routes.latency_s,
        cap_Bps=np.full(len(src), np.inf),
        dep_ptr=np.zeros(len(src) + 1, dtype=np.int64),
        dep=np.zeros(0, dtype=np.int64),
    )


def time_flows(
    laid: Laid, costs: Costs, *, share: float = 1.0, chunk_tokens: int = 0, work: Work | None = None,
    tolerance: float | None = None,
) -> OpTime:  # fmt: skip
    """Simulate the flows of one operation.

    Parameters
    ----------
    laid : Laid
    costs : Costs
    share : float
        Part of the rate within the node that the SMs in use reach.
    chunk_tokens : int
        Tokens that one hop hands to the next at once.
    work : Work or None
        Of the SMs; None where *costs* tell none.
    tolerance : float or None
        As of `collsim.engine.solve`.

    Raises
    ------
    InternalError
        The solution broke a law of the model.
    """
    if not sum(len(flows.src) for flows in laid.hops):
        return load_of(laid, costs, share=share, work=work)
    problem = problem_of(laid, costs, share, work)
    solution = solve(problem, tolerance=tolerance)
    if broken := check_conservation(problem, solution):
        raise InternalError(*(Fault(what, f"{len(laid.hop)} flows", defect()) for what in broken))
    ring_s = 0.0 if work is None else work.ring_s(costs)
    finish_s = costs.start_s + ring_s + solution.finish_s + _tails(laid, problem, chunk_tokens)
    arrived = np.zeros(laid.fabric.n_ranks)
    np.maximum.at(arrived, _columns(laid)[1], finish_s)
    return _op_time(laid, costs, problem, arrived, path=solution.path, tolerance=solution.tolerance, later_s=ring_s)


def load_of(laid: Laid, costs: Costs, *, share: float = 1.0, work: Work | None = None) -> OpTime:
    """Return the time that the busiest link or port needs for one operation, which no simulation undercuts."""
    n = laid.fabric.n_ranks
    if not sum(len(flows.src) for flows in laid.hops):
        nothing, links = np.zeros(n), np.zeros(laid.fabric.n_links)
        return OpTime(costs.start_s, costs.start_s, 0.0, nothing, links, np.zeros(2 * n), 0.0, 0.0, "none")
    later_s = 0.0 if work is None else work.ring_s(costs)
    return _op_time(laid, costs, problem_of(laid, costs, share, work), None, path="load", later_s=later_s)


def _op_time(
    laid: Laid, costs: Costs, problem: Problem, finish_s: Float | None, *, path: str, tolerance: float = 0.0,
    later_s: float = 0.0,
) -> OpTime:  # fmt: skip
    """Return when ranks are done, by the load alone without *finish_s*, with how busy everything is."""
    fabric, n = laid.fabric, laid.fabric.n_ranks
    src, dst, size_bytes, _ = _columns(laid)
    load_s = costs.start_s + later_s + least_time_s(checked(problem))
    finish_s = np.full(n, load_s) if finish_s is None else finish_s
    time_s = float(finish_s.max())
    work = np.where(laid.across, costs.network_work, 1.0) * size_bytes
    done = np.bincount(np.concatenate([src, n + dst]), np.tile(work, 2), 2 * n)
    ports_s = np.where(np.isfinite(np.tile(laid.node_Bps, 2)), done / problem.capacity_Bps[-3 * n : -n], 0.0)
    link_bytes = laid.routes.link_bytes(size_bytes, fabric.n_links)
    seconds = laid.routes.link_bytes(size_bytes * _on_links(laid, costs), fabric.n_links) / fabric.capacity_Bps
    return OpTime(
        time_s=time_s,
        load_s=load_s,
        bound_s=float((link_bytes / fabric.raw_capacity_Bps).max()),
        finish_s=finish_s,
        link_busy_s=seconds,
        port_load=ports_s / time_s,
        node_bytes=float(size_bytes[~laid.across].sum()),
        network_bytes=float(size_bytes[laid.across].sum()),
        path=path,
        tolerance=tolerance,
    )


def _tails(laid: Laid, problem: Problem, chunk_tokens: int) -> Float:
    """Return float64[flows]: seconds that first hops' bytes come later, as the next hop moves the last chunk on."""
    then = laid.hop == 1
    if not then.any():
        return np.zeros(len(laid.hop))
    size_bytes, messages = (column[then] for column in _columns(laid)[2:])
    chunk_bytes = np.minimum(chunk_tokens * size_bytes / messages, size_bytes).max(initial=0.0)
    first = int(np.flatnonzero(then)[0])
    hops = slice(problem.route_ptr[first], problem.route_ptr[first + 1])
    rate_Bps = float((problem.capacity_Bps[problem.route_link[hops]] / problem.route_weight[hops]).min())
    return np.where(then, 0.0, chunk_bytes / rate_Bps)
