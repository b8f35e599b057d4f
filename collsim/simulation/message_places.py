"""Messages of an all-to-all over relays between two places of each kind, which stand for those of all places.

Every rank sends to every other, so what is sent stays the same whoever of a node changes places, if everywhere the same
do. On the four nodes of `place_kinds`, places 0 and 1 stand for the seven of their kind, place 2 for itself: 12 ranks
are simulated of 32. What GPU 0 sends to GPU 1 of its node stands for six messages, those to places 1 and 3 to 7; what
it sends to GPU 2, for one. On a link all of them count: one that carries seven such messages, of which two are
simulated, counts each as three and a half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collsim.collectives import ScheduleRequest
from collsim.collectives.node_p2p import build_uncut
from collsim.core.arrays import distinct
from collsim.fabric.fabric import Float, Int
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool, Use
from collsim.schedule import Transfers
from collsim.simulation.lowering import Lowered, lower, steps_on, use_of
from collsim.simulation.place_kinds import Places, places_of
from collsim.simulation.runs import LoweredRun

__all__ = ["Few", "few_messages"]

ROUNDING = 1e-12
"""Sums over links that are alike are taken in another order at each place."""


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
    places: Places

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
    places = places_of(request, run)
    if places is None:
        return None
    lowered = lower(build_uncut(request, places.kept), run, ways=places.ways_of)
    if lowered.steps is None or (lowered.copies != 1).any():
        return None
    lanes = _lanes(lowered, places)
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


def _lanes(lowered: Lowered, places: Places) -> Float:
    """Return float64[n]: how many messages of its sender each message stands for.

    Between nodes a GPU sends to its own place only. Within one, all of a kind but the sender are shared out among those
    of it that are kept, but the sender.
    """
    transfers = lowered.transfers
    many, kept = np.bincount(places.kind), np.bincount(places.kept_kind)
    own, other = (places.kind[places.place[end]] for end in (transfers.src, transfers.dst))
    same = own == other
    with np.errstate(invalid="ignore"):  # between nodes: the only one of a kind, without the sender
        each = (many[other] - same) / (kept[other] - same)
    return np.where(lowered.across, 1.0, each)


def _steps_use(lowered: Lowered, places: Places) -> Use | None:
    """Return what messages between nodes share with those of all places; None if those of a kind do not share alike.

    The messages of the first place of a kind are sent in all places of the kind too, and what they share is counted
    there.
    """
    assert lowered.steps is not None
    transfers, node, n_places = lowered.transfers, places.node, len(places.kind)
    rows = np.flatnonzero(lowered.across)
    columns = (node[transfers.dst], node[transfers.src], transfers.step, transfers.channel, places.place[transfers.src])
    of_kept = rows[np.lexsort([column[rows] for column in columns])].reshape(len(places.kept), -1)  # by kept place
    stands = np.array([np.flatnonzero(places.kept_kind == kind)[0] for kind in places.kind.tolist()])
    some = of_kept[stands].ravel()
    of_place = np.repeat(np.arange(n_places), of_kept.shape[1])
    src, dst = (places.ranks[node[end[some]], of_place] for end in (transfers.src, transfers.dst))
    number = places.ways.number[places.pair[src, dst]]
    every = _sent_from(transfers, some, src, dst)
    found = steps_on(every, lowered.run, number, lowered.use.take(some), np.ones(len(some), dtype=np.bool_)).use
    use = lowered.steps.use
    whole = use.active.copy(), use.alone_Bps.copy()
    for column, of_some in zip(whole, (found.active, found.alone_Bps), strict=True):
        of_places = of_some.reshape(n_places, -1)
        of_kinds = of_places[places.kept[stands]]
        if (np.abs(of_places - of_kinds) > ROUNDING * of_kinds).any():
            return None
        column[of_kept] = of_kinds[places.kept]
    return replace(use, active=whole[0], alone_Bps=whole[1])


def _sent_from(transfers: Transfers, rows: Int, src: Int, dst: Int) -> Transfers:
    """Return some messages, from and to other ranks, with neither chunks nor waits."""
    nothing, none = np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    names = ("channel", "step", "reduces", "reads_input", "lanes", "copies")
    columns = {name: getattr(transfers, name)[rows] for name in names}
    return Transfers(src=src, dst=dst, **columns, chunk_ptr=nothing, chunk=none, dep_ptr=nothing, dep=none)


def _weighed(lowered: Lowered, places: Places) -> Routes:
    """Return the routes that are used, each link of them with the weight of all messages that are like those simulated.

    Of the pairs that one of kept places stands for, all cross a link so much; those that are simulated, less.
    """
    routes, n_pairs = places.routes, len(places.like)
    owner = np.repeat(np.arange(n_pairs), np.diff(routes.ptr))
    cell, at = distinct(places.like[owner] * len(lowered.run.trunk_capacity_Bps) + routes.link)
    is_kept = np.isin(places.place, places.kept)
    simulated = is_kept[places.src] & is_kept[places.dst]
    every, own = (np.bincount(at, weight, len(cell)) for weight in (routes.weight, routes.weight * simulated[owner]))
    with np.errstate(divide="ignore", invalid="ignore"):  # links that no simulated message crosses
        routes = replace(routes, weight=routes.weight * (every / own)[at])
    pair_of = np.zeros(len(lowered.run.routes.latency_s), dtype=np.int64)
    pair_of[places.ways.number] = np.arange(n_pairs)
    return routes.take(pair_of[lowered.used], np.ones(len(lowered.used)))
