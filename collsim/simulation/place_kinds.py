"""Kinds of places of GPUs in nodes: which may change places in all nodes at once, so that the machine stays the same.

On four nodes of eight GPUs on rails, of which node 3 has lost the adapter of its GPU 2, places 0, 1 and 3 to 7 are of
one kind: whoever exchanges GPU 0 and GPU 1 of every node finds the same machine. Place 2 is of a kind of its own.

Routes tell that. Those of all pairs that messages of an exchange over relays take (two GPUs of a node, or the same
place in two nodes) are told apart by the links that they cross, and by nothing but the nodes at their ends. Places look
alike if their routes between the same nodes are alike; that exchanging them leaves all routes alike is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np

from collsim.collectives import ScheduleRequest
from collsim.engine import Problem, checked
from collsim.engine.symmetry import reduced
from collsim.fabric.fabric import Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool
from collsim.schedule import Chunks, Schedule
from collsim.schedule.message_parts import BATCH
from collsim.simulation.idle_links import without_idle
from collsim.simulation.lowering import Taken, ways_of
from collsim.simulation.runs import LoweredRun

__all__ = ["Places", "places_of"]


class _Pairs(NamedTuple):
    """Pairs of GPUs that messages take, int64[n_pairs] each: all of a node, then the same place in two nodes."""

    node: Int
    place: Int
    to_node: Int
    to_place: Int

    @classmethod
    def of(cls, n_nodes: int, n_places: int) -> _Pairs:
        """Return those of so many nodes and places; of two nodes one place after the other."""
        a, i, j = (each.ravel() for each in np.indices((n_nodes, n_places, n_places)))
        b, c, k = (each.ravel() for each in np.indices((n_nodes, n_nodes, n_places)))
        inside, outside = i != j, b != c
        columns = ((a, b), (i, k), (a, c), (j, k))
        return cls(*(np.concatenate([one[inside], two[outside]]) for one, two in columns))

    @property
    def inside(self) -> Bool:
        """Whether both are in one node."""
        return np.asarray(self.node == self.to_node)


@dataclass(slots=True, eq=False)
class Places:
    """Kinds of places, and the routes between all pairs of ranks that messages take.

    Attributes
    ----------
    ranks : int64[n_nodes, n_places]
    node, place : int64[n_ranks]
        Where each rank is.
    kind : int64[n_places]
    kept : int64[k]
        Places that stand for all, in order: two of each kind, for messages between them, or its only one.
    src, dst : int64[n_pairs]
        The pairs.
    pair : int64[n_ranks, n_ranks]
        Number of a pair, -1 if no message takes it.
    like : int64[n_pairs]
        The pair of kept places that stands for each.
    ways : Taken
        Of the pairs.
    routes : Routes
        The same over links that can fill.
    """

    ranks: Int
    node: Int
    place: Int
    kind: Int
    kept: Int
    src: Int
    dst: Int
    pair: Int
    like: Int
    ways: Taken
    routes: Routes

    @property
    def kept_kind(self) -> Int:
        """int64[k]: the kind of each kept place."""
        return self.kind[self.kept]

    def ways_of(self, src: Int, dst: Int) -> Taken:
        """Return the ways of messages."""
        which, ways = self.pair[src, dst], self.ways
        return ways._replace(number=ways.number[which], across=ways.across[which], added=ways.added[which])


def places_of(request: ScheduleRequest, run: LoweredRun) -> Places | None:
    """Return the kinds of places; None if all differ or ranks are wired to each other, or share a node with others."""
    ranks = np.array(request.spread.nodes)
    n_nodes, n = ranks.shape
    out_Bps, in_Bps = run.port_rates_Bps
    if gcd(BATCH, n) < n or run.fabric.joins_ranks or in_Bps.min() < out_Bps.max():
        return None
    pairs = _Pairs.of(n_nodes, n)
    src, dst = ranks[pairs.node, pairs.place], ranks[pairs.to_node, pairs.to_place]
    nothing = Chunks(*(np.zeros(0, dtype=np.int64),) * 3)
    schedule = Schedule("all_to_all", "", request.n_ranks, 0, nothing, ())
    ways = ways_of(schedule, (src, dst), run, TreePorts.free(run.fabric))
    routes = ways.run.trunks.take(ways.number, np.ones(len(src)))
    routes = without_idle(routes, ways.run.trunk_capacity_Bps, ways.across)
    alike = _alike(routes, ways.run.trunk_capacity_Bps, pairs.node * n_nodes + pairs.to_node)
    if alike is None:
        return None
    kind = _kinds(alike[~pairs.inside].reshape(-1, n), out_Bps[ranks])
    members = [np.flatnonzero(kind == each) for each in range(kind.max() + 1)]
    first, second = (np.array([each[:2][at] for each in members]) for at in (0, -1))
    kept = np.unique(np.concatenate([first, second]))
    pair = np.full((request.n_ranks, request.n_ranks), -1)
    pair[src, dst] = np.arange(len(src))
    own, other = kind[pairs.place], kind[pairs.to_place]
    to_place = np.where(pairs.inside & (own == other), second[other], first[other])
    like = pair[ranks[pairs.node, first[own]], ranks[pairs.to_node, to_place]]
    if len(kept) == n or (alike[like] != alike).any():
        return None
    node, place = np.empty(ranks.size, dtype=np.int64), np.empty(ranks.size, dtype=np.int64)
    node[ranks], place[ranks] = np.arange(n_nodes)[:, None], np.arange(n)
    return Places(ranks, node, place, kind, kept, src, dst, pair, like, ways, routes)


def _kinds(alike: Int, rates_Bps: Float) -> Int:
    """Return int64[n_places]: equal numbers for places that look alike.

    *alike* is int64[pairs of nodes, n_places], the class of the route of each place; *rates_Bps* is
    float64[n_nodes, n_places], the way out of each GPU.
    """
    seen: dict[bytes, int] = {}
    looks = [alike[:, place].tobytes() + rates_Bps[:, place].tobytes() for place in range(alike.shape[1])]
    return np.array([seen.setdefault(look, len(seen)) for look in looks])


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
