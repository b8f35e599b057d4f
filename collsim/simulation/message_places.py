"""Places of GPUs in nodes that are alike: two of each kind stand for all in an all-to-all over relays.

Every rank sends to every other, and within a node all of a group are as far as each other, so messages stay the same
whoever of a node changes places, if everywhere the same do. Places are alike where that leaves the links alike too:
routes of all pairs are told apart by the links that they cross, from the nodes at their ends on, and those of such
places may not be. Then messages between two of each kind, or its only one, say all: they count as often on a link as
there are messages on it that are like them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from collsim.collectives import ScheduleRequest
from collsim.collectives.node_p2p import build_uncut
from collsim.core.arrays import distinct
from collsim.engine import Problem, checked
from collsim.engine.symmetry import reduced
from collsim.fabric.fabric import Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool, Use
from collsim.schedule import Chunks, Schedule, Transfers
from collsim.schedule.message_parts import BATCH
from collsim.simulation.idle_links import without_idle
from collsim.simulation.lowering import Lowered, Taken, lower, steps_on, use_of, ways_of
from collsim.simulation.runs import LoweredRun

__all__ = ["Few", "few_messages"]

ROUNDING = 1e-12
"""Sums over links that are alike are taken in another order at each place."""


@dataclass(slots=True, eq=False)
class _Places:
    """Kinds of places, and the routes of all pairs of ranks that messages take.

    Attributes
    ----------
    ranks : int64[n_nodes, n_places]
    kind : int64[n_places]
    kept : int64[k]
        Places that stand for all: two of each kind, or its only one.
    pair : int64[n_ranks, n_ranks]
        Place of a pair among those of *ways*, -1 if no message takes it.
    like : int64[n_pairs]
        The pair of kept places that stands for each.
    ways : Taken
    routes : Routes
        Of those pairs, over links that can fill.
    """

    ranks: Int
    kind: Int
    kept: Int
    pair: Int
    like: Int
    ways: Taken
    routes: Routes

    def ways_of(self, src: Int, dst: Int) -> Taken:
        """Return the ways of messages."""
        which = self.pair[src, dst]
        ways = self.ways
        return ways._replace(number=ways.number[which], across=ways.across[which], added=ways.added[which])


@dataclass(frozen=True, slots=True, eq=False)
class Few:
    """Messages between the ranks that stand for all.

    Attributes
    ----------
    lowered : Lowered
        These messages, with what they share with all others.
    connections : int64[n]
        For how many peers each is.
    lanes : float64[n]
        How many messages of its sender each stands for.
    routes : Routes
        By route that is used, what of links that can fill all take that each stands for.
    """

    lowered: Lowered
    connections: Int
    lanes: Float
    routes: Routes
    places: _Places

    def unit_loads(self, part: Int, side: Bool, n_parts: int) -> Float:
        """Return float64[n_parts, n_links]: what all messages of one *side* put on links for a byte in each part."""
        places, lowered = self.places, self.lowered
        pair = places.pair[lowered.transfers.src, lowered.transfers.dst]
        n, routes = len(places.like), lowered.run.routes
        found = np.zeros((n_parts, lowered.run.fabric.n_links))
        for number in np.unique(part).tolist():
            which = side & (part == number)
            moved = np.bincount(pair[which], self.connections[which], n)[places.like]
            by_route = np.bincount(places.ways.number, moved, len(routes.latency_s)).astype(np.float64)
            found[number] = routes.link_bytes(by_route, lowered.run.fabric.n_links)
        return found


def few_messages(request: ScheduleRequest, run: LoweredRun) -> Few | None:
    """Return the messages between ranks that stand for all; None if no places in nodes are alike."""
    places = _places_of(request, run)
    if places is None:
        return None
    lowered = lower(build_uncut(request, places.kept), run, ways=places.ways_of)
    if lowered.steps is None or (lowered.copies != 1).any():
        return None
    lanes = _lanes(lowered.transfers, lowered.across, places)
    use = shared_use(lowered, lanes)
    steps_use = _steps_use(lowered, places)
    if steps_use is None:
        return None
    steps = replace(lowered.steps, use=replace(steps_use, duplex=use.duplex))
    lowered = replace(lowered, use=use, steps=steps)
    connections = np.where(lowered.across, len(places.kind), 1)
    return Few(lowered, connections, lanes, _weighed(lowered, places), places)


def shared_use(lowered: Lowered, lanes: Float) -> Use:
    """Return what messages share if each of their senders has so many in the place of each."""
    halves = replace(lowered.transfers, lanes=np.rint(2 * lanes).astype(np.int64))  # at most two stand for a kind
    use = use_of(halves, lowered.run, lowered.used[lowered.route], ())
    return replace(use, lanes=lowered.use.lanes, active=use.active / 2)


def _places_of(request: ScheduleRequest, run: LoweredRun) -> _Places | None:
    """Return the kinds of places, None if all differ or ranks are wired to each other, or share a node with others."""
    ranks = np.array(request.spread.nodes)
    n_nodes, n = ranks.shape
    out_Bps, in_Bps = run.port_rates_Bps
    if gcd(BATCH, n) < n or run.fabric.joins_ranks or in_Bps.min() < out_Bps.max():
        return None
    a, i, j = (each.ravel() for each in np.indices((n_nodes, n, n)))
    inside = np.flatnonzero(i != j)
    b, c, k = (each.ravel() for each in np.indices((n_nodes, n_nodes, n)))
    outside = np.flatnonzero(b != c)
    src = np.concatenate([ranks[a, i][inside], ranks[b, k][outside]])
    dst = np.concatenate([ranks[a, j][inside], ranks[c, k][outside]])
    nothing = Chunks(*(np.zeros(0, dtype=np.int64),) * 3)
    schedule = Schedule("all_to_all", "", request.n_ranks, 0, nothing, ())
    ways = ways_of(schedule, (src, dst), run, TreePorts.free(run.fabric))
    routes = ways.run.trunks.take(ways.number, np.ones(len(src)))
    routes = without_idle(routes, ways.run.trunk_capacity_Bps, ways.across)
    ends = np.concatenate([a[inside], n_nodes + (b * n_nodes + c)[outside]])
    alike = _alike(routes, ways.run.trunk_capacity_Bps, ends)
    if alike is None:
        return None
    wires = alike[len(inside) :].reshape(-1, n)
    seen: dict[bytes, int] = {}
    looks = [wires[:, place].tobytes() + out_Bps[ranks[:, place]].tobytes() for place in range(n)]
    kind = np.array([seen.setdefault(look, len(seen)) for look in looks])
    first = np.array([np.flatnonzero(kind == each)[0] for each in range(kind.max() + 1)])
    second = np.array([np.flatnonzero(kind == each)[:2][-1] for each in range(kind.max() + 1)])
    kept = np.unique(np.concatenate([first, second]))
    pair = np.full((request.n_ranks, request.n_ranks), -1)
    pair[src, dst] = np.arange(len(src))
    from_, to = first[kind[i]], np.where(kind[i] == kind[j], second[kind[j]], first[kind[j]])
    like = np.concatenate(
        [pair[ranks[a, from_], ranks[a, to]][inside], pair[ranks[b, first[kind[k]]], ranks[c, first[kind[k]]]][outside]]
    ).astype(np.int64)
    if len(kept) == n or (alike[like] != alike).any():
        return None
    return _Places(ranks, kind, kept, pair, like, ways, routes)


def _alike(routes: Routes, capacity_Bps: Float, ends: Int) -> Int | None:
    """Return int64[n]: the class of each route, of those between the same *ends*."""
    n = len(ends)
    problem = Problem(
        capacity_Bps=capacity_Bps,
        route_ptr=routes.ptr,
        route_link=routes.link,
        route_weight=routes.weight,
        route=np.arange(n),
        size_bytes=(ends + 1).astype(np.float64),
        latency_s=routes.latency_s,
        cap_Bps=np.ones(n),
        dep_ptr=np.zeros(n + 1, dtype=np.int64),
        dep=np.zeros(0, dtype=np.int64),
    )
    quotient = reduced(checked(problem), most=n)
    return None if quotient is None else quotient.ids


def _lanes(transfers: Transfers, across: Bool, places: _Places) -> Float:
    """Return float64[n]: how many messages of its sender each message stands for."""
    place = _place(places)
    many, kept = (np.bincount(kinds) for kinds in (places.kind, places.kind[places.kept]))
    own, other = places.kind[place[transfers.src]], places.kind[place[transfers.dst]]
    same = own == other
    with np.errstate(invalid="ignore"):  # one that goes to itself is none
        each = (many[other] - same) / (kept[other] - same)
    return np.where(across, 1.0, each)


def _place(places: _Places) -> Int:
    """Return int64[n_ranks]: the place of each rank in its node."""
    found = np.zeros(places.ranks.size, dtype=np.int64)
    found[places.ranks] = np.arange(len(places.kind))
    return found


def _steps_use(lowered: Lowered, places: _Places) -> Use | None:
    """Return what messages between nodes share with those of all places; None if those of a kind do not share alike."""
    assert lowered.steps is not None
    transfers, place = lowered.transfers, _place(places)
    node = np.zeros(places.ranks.size, dtype=np.int64)
    node[places.ranks] = np.arange(len(places.ranks))[:, None]
    rows = np.flatnonzero(lowered.across)
    order = np.lexsort(
        [column[rows] for column in (node[transfers.dst], node[transfers.src], transfers.step, transfers.channel)]
    )
    rows = rows[order]
    by_place = {each: rows[place[transfers.src[rows]] == each] for each in places.kept.tolist()}
    stands = [int(places.kept[places.kind[places.kept] == kind][0]) for kind in places.kind.tolist()]
    some = np.concatenate([by_place[each] for each in stands])
    of_place = np.repeat(np.arange(len(stands)), [len(by_place[each]) for each in stands])
    src, dst = (places.ranks[node[end[some]], of_place] for end in (transfers.src, transfers.dst))
    every = _some_of(transfers, some, src, dst)
    number = places.ways.number[places.pair[src, dst]]
    ones = np.ones(len(some), dtype=np.bool_)
    found = steps_on(every, lowered.run, number, lowered.use.take(some), ones).use
    active = found.active.reshape(len(stands), -1)
    alone_Bps = found.alone_Bps.reshape(len(stands), -1)
    use = lowered.steps.use
    whole_active, whole_Bps = use.active.copy(), use.alone_Bps.copy()
    for each in places.kept.tolist():
        like = np.flatnonzero(places.kind == places.kind[each])
        for found_of_kind, column in ((active, whole_active), (alone_Bps, whole_Bps)):
            first = found_of_kind[like[0]]
            if (np.abs(found_of_kind[like] - first) > ROUNDING * first).any():
                return None
            column[by_place[each]] = first
    return replace(use, active=whole_active, alone_Bps=whole_Bps)


def _some_of(transfers: Transfers, rows: Int, src: Int, dst: Int) -> Transfers:
    """Return some messages, from and to other ranks, with neither chunks nor waits."""
    nothing, none = np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    names = ("channel", "step", "reduces", "reads_input", "lanes", "copies")
    columns = {name: getattr(transfers, name)[rows] for name in names}
    return Transfers(src=src, dst=dst, **columns, chunk_ptr=nothing, chunk=none, dep_ptr=nothing, dep=none)


def _weighed(lowered: Lowered, places: _Places) -> Routes:
    """Return the routes that are used, of each link as much more as all take that are like those that cross it."""
    routes, n_links = places.routes, len(lowered.run.trunk_capacity_Bps)
    owner = np.repeat(np.arange(len(places.like)), np.diff(routes.ptr))
    label = places.like[owner] * n_links + routes.link
    place = _place(places)
    kept = np.isin(place, places.kept)
    stands = np.zeros(len(places.like), dtype=np.bool_)
    ranks = np.flatnonzero(kept)
    stands[places.pair[np.ix_(ranks, ranks)][places.pair[np.ix_(ranks, ranks)] >= 0]] = True
    cell, at = distinct(label)
    every = np.bincount(at, routes.weight, len(cell))
    own = np.bincount(at, routes.weight * stands[owner], len(cell))
    with np.errstate(divide="ignore", invalid="ignore"):
        routes = replace(routes, weight=routes.weight * (every / own)[at])
    pair_of = np.zeros(len(lowered.run.routes.latency_s), dtype=np.int64)
    pair_of[places.ways.number] = np.arange(len(places.like))
    return routes.take(pair_of[lowered.used], np.ones(len(lowered.used)))
