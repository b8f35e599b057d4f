"""Routes as a table with pointers: what each takes of every link, and how links that fill in step become trunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct, entries_of, pointers, spread
from collsim.fabric.fabric import Float, Int, Int32

__all__ = ["Path", "RouteBlock", "RouteBundles", "Routes", "Ways", "assemble", "bundled", "merge_trunks", "mixed"]

Path = tuple[list[int] | Int, list[float] | Float, float]
"""Links, the share of the message on each, and the latency of the slowest way."""
Code = NDArray[np.uint64]

BLOCK = 2**18
"""So many entries are sorted at a time, so that what is needed for it stays small."""


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """One route per ordered pair of ranks: pair (s, d) has number ``s * n_ranks + d``; (s, s) is empty.

    Where switches add and multicast, ``n_ranks**2 + r`` is the multicast of rank r and ``n_ranks**2 + n_ranks + r`` its
    load-reduce.

    Attributes
    ----------
    ptr : int64[n_routes+1]
    link : int64[n_entries]
    weight : float64[n_entries]
        Share of the message that crosses the link.
    latency_s : float64[n_routes]
        Of the slowest of the paths: links and forwarding nodes.
    slowdown : float64[n_routes]
        How much longer a byte keeps a link busy than on a plain route: 1, or more where switches add or multicast.
    ways : Ways or None
        What to draw the routes from again, with another seed of a network's hash.
    number : int64[n_routes] or None
        Of many ranks only some routes are kept: their numbers in order, the first is 0, which is empty. None: the
        place of each route is its number.
    """

    ptr: Int
    link: Int
    weight: Float
    latency_s: Float
    slowdown: Float
    ways: Ways | None = None
    number: Int | None = None
    bundles: RouteBundles | None = None
    """Links without entries, that others stand for."""

    def find(self, numbers: Int) -> Int:
        """Return the place of each route; that of the empty one where a route is not kept."""
        if self.number is None:
            return numbers
        place = np.searchsorted(self.number, numbers)
        place[place == len(self.number)] = 0
        return np.where(self.number[place] == numbers, place, 0)

    def take(self, which: Int, scale: Float) -> Routes:
        """Return the routes at the places *which*, each with its weights multiplied by *scale*."""
        rows: Int | slice = which
        if len(which) and np.all(np.diff(which) == 1):  # one behind the other: no copy
            rows = slice(which[0], which[-1] + 1)
            ptr = self.ptr[which[0] : which[-1] + 2]
            link, weight = self.link[ptr[0] : ptr[-1]], self.weight[ptr[0] : ptr[-1]]
            ptr = ptr - ptr[0]
        else:
            ptr, entry = entries_of(self.ptr, which)
            link, weight = self.link[entry], self.weight[entry]
            del entry
        if np.any(scale != 1):
            weight = weight * np.repeat(scale, np.diff(ptr))
        return Routes(ptr, link, weight, self.latency_s[rows], self.slowdown[rows], bundles=self.bundles)

    def expanded(self) -> Routes:
        """Return the routes with entries for all links, those too that others stand for."""
        if self.bundles is None:
            return self
        order = np.argsort(self.bundles.leader, kind="stable")
        n_links = int(max(self.link.max(initial=0), self.bundles.leader.max(initial=0))) + 1
        first = pointers(np.bincount(self.bundles.leader, minlength=n_links))
        _, follower = entries_of(first, self.link)
        follower = order[follower]
        entry = np.repeat(np.arange(len(self.link)), np.diff(first)[self.link])
        link = np.concatenate([self.link, self.bundles.link[follower]])
        weight = np.concatenate([self.weight, self.weight[entry] * self.bundles.factor[follower]])
        route = np.repeat(np.arange(len(self.latency_s)), np.diff(self.ptr))
        ones = np.ones(len(link), dtype=np.int64)
        route = np.concatenate([route, route[entry]])
        whole = assemble(self.slowdown, [RouteBlock(route, self.latency_s[route], ones, link, weight)], None)
        return replace(whole, latency_s=self.latency_s, number=self.number)

    def busiest(self, busy_s: Float) -> Int:
        """Return int64[n_routes]: the link of each that is busy longest, the first of equal ones; -1 without links.

        *busy_s* is float64[n_links]; links that others stand for count too.
        """
        links, place = distinct(self.link)
        most_s, most = busy_s[links], links.copy()
        if self.bundles is not None:
            met = np.zeros(len(busy_s), dtype=np.bool_)
            met[links] = True
            follows = met[self.bundles.leader]
            follower, lead = self.bundles.link[follows], np.searchsorted(links, self.bundles.leader[follows])
            np.maximum.at(most_s, lead, busy_s[follower])
            most[busy_s[links] < most_s] = len(busy_s)
            full = busy_s[follower] == most_s[lead]
            np.minimum.at(most, lead[full], follower[full])
        found = np.full(len(self.ptr) - 1, -1, dtype=np.int64)
        there = np.flatnonzero(np.diff(self.ptr))
        if len(there):
            counts, first = np.diff(self.ptr)[there], self.ptr[there]
            entry_s = most_s[place]
            full = entry_s == np.repeat(np.maximum.reduceat(entry_s, first), counts)
            found[there] = np.minimum.reduceat(np.where(full, most[place], len(busy_s)), first)
        return found

    def used_links(self, n_links: int) -> NDArray[np.bool_]:
        """Return bool[n_links]: whether any route takes the link."""
        used = np.zeros(n_links, dtype=np.bool_)
        used[self.link] = True
        if self.bundles is not None:
            used[self.bundles.link] = used[self.bundles.leader]
        return used

    def fastest_s(self) -> float:
        """Return the latency of the fastest route between two different ranks."""
        return float(self.latency_s[np.diff(self.ptr) > 0].min())

    def link_bytes(self, route_bytes: Float, n_links: int) -> Float:
        """Return float64[n_links], the load when route i carries ``route_bytes[i]``."""
        carried = np.repeat(route_bytes, np.diff(self.ptr))
        carried *= self.weight
        load = np.bincount(self.link, weights=carried, minlength=n_links).astype(np.float64)
        if self.bundles is not None:
            load[self.bundles.link] = self.bundles.factor * load[self.bundles.leader]
        return load


class RouteBundles(NamedTuple):
    """Links that carry a fixed multiple of what others do, whatever is sent."""

    link: Int
    """int64[k]"""
    leader: Int
    """int64[k]: the one that stands for it in routes."""
    factor: Float
    """float64[k]: bytes that it carries for each byte of the leader."""

    def renumbered(self, number: Int) -> RouteBundles:
        """Return the same with *number[i]* as the number of link i."""
        return RouteBundles(number[self.link], number[self.leader], self.factor)

    def behind(self, others: RouteBundles) -> RouteBundles:
        """Return these and *others*, in which some leaders of these follow in turn; both are in order of their links.

        >>> leads = RouteBundles(np.array([3]), np.array([1]), np.array([2.0]))
        >>> then = RouteBundles(np.array([1]), np.array([0]), np.array([0.5]))
        >>> [column.tolist() for column in leads.behind(then)]
        [[1, 3], [0, 0], [0.5, 1.0]]
        """
        leader, factor = self.leader, self.factor
        if len(others.link):
            place = np.minimum(np.searchsorted(others.link, leader), len(others.link) - 1)
            follows = others.link[place] == leader
            leader = np.where(follows, others.leader[place], leader)
            factor = np.where(follows, factor * others.factor[place], factor)
        link = np.concatenate([self.link, others.link])
        order = np.argsort(link, kind="stable")
        leader, factor = np.concatenate([leader, others.leader]), np.concatenate([factor, others.factor])
        return RouteBundles(link[order], leader[order], factor[order])


class RouteBlock(NamedTuple):
    """Ways of messages, side by side where a route has several: the first *hops[0]* links are those of way 0."""

    route: Int
    """int64[n_ways]"""
    latency_s: Float
    """float64[n_ways]"""
    hops: Int
    """int64[n_ways]"""
    link: Int
    """int64[n_entries]"""
    weight: Float
    """float64[n_entries]"""

    @classmethod
    def of_one(
        cls, route: int, latency_s: float, links: Sequence[int] | Int, shares: Sequence[float] | Float
    ) -> RouteBlock:
        """Return a single way."""
        place, count = (np.array([value], dtype=np.int64) for value in (route, len(links)))
        return cls(place, np.array([latency_s]), count, np.array(links, dtype=np.int64), np.array(shares))

    @classmethod
    def joined(cls, parts: Sequence[RouteBlock]) -> RouteBlock:
        """Return several parts as one, in the order of their routes; ways of one route stay in turn."""
        parts = [part for part in parts if len(part.route)] or parts[:1]
        route, latency_s, hops = (np.concatenate([part[column] for part in parts]) for column in range(3))
        if len(parts) == 1 and np.all(route[1:] >= route[:-1]):
            return parts[0]
        order = np.argsort(route, kind="stable")
        ptr = pointers(hops[order])
        begin = np.empty(len(order), dtype=np.int64)
        begin[order] = ptr[:-1]
        link, weight = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1])
        first = 0
        for part in parts:  # straight to its place: all entries at once would be there twice
            own, first = begin[first : first + len(part.route)], first + len(part.route)
            place = np.repeat(own - pointers(part.hops)[:-1], part.hops)
            place += np.arange(len(place))
            link[place], weight[place] = part.link, part.weight
        return cls(route[order], latency_s[order], hops[order], link, weight)

    def reordered(self, order: Int) -> RouteBlock:
        """Return the ways *order* in that order."""
        entry = entries_of(pointers(self.hops), order)[1]
        heads = self.route[order], self.latency_s[order], self.hops[order]
        return RouteBlock(*heads, self.link[entry], self.weight[entry])

    def tidy(self) -> RouteBlock:
        """Return one way for each route, both in order; its links are too, each once with all that crosses it."""
        part = self.sorted_by_link()
        first = np.flatnonzero(np.diff(part.route, prepend=-1))
        ways = np.diff(first, append=len(part.route))
        odd = np.repeat(ways > 1, ways)
        ptr, again = pointers(part.hops), np.flatnonzero(part.link[1:] == part.link[:-1])
        before, owner = (np.searchsorted(ptr, entry, side="right") - 1 for entry in (again, again + 1))
        odd[owner[before == owner]] = True
        if not odd.any():
            return part
        rest = part.reordered(np.flatnonzero(~odd))
        return RouteBlock.joined([rest, part.reordered(np.flatnonzero(odd))._added_up()])

    def _added_up(self) -> RouteBlock:
        """Return one way for each route; a link that several ways share gets the sum of their weights."""
        routes, place = distinct(self.route)
        latency_s = np.zeros(len(routes))
        np.maximum.at(latency_s, place, self.latency_s)
        n_links = int(self.link.max(initial=0)) + 1
        key, entry = np.unique(np.repeat(place * n_links, self.hops) + self.link, return_inverse=True)
        owner, link = np.divmod(key, n_links)
        weight = np.bincount(entry, weights=self.weight).astype(np.float64)
        return RouteBlock(routes, latency_s, np.bincount(owner, minlength=len(routes)), link, weight)

    def sorted_by_link(self) -> RouteBlock:
        """Return the same with the links of each way in order."""
        first, link, weight = pointers(self.hops), self.link, self.weight
        for length in np.flatnonzero(np.bincount(self.hops)).tolist():
            begins, size = first[:-1][self.hops == length], max(BLOCK // max(length, 1), 1)
            for block in range(0, len(begins), size):
                entry = begins[block : block + size, None] + np.arange(length)
                links = link[entry]
                mixed = np.flatnonzero((links[:, 1:] < links[:, :-1]).any(axis=1))
                if len(mixed):
                    if link is self.link:
                        link, weight = link.copy(), weight.copy()
                    order = np.argsort(links[mixed], axis=1, kind="stable")
                    target, origin = entry[mixed], np.take_along_axis(entry[mixed], order, axis=1)
                    link[target], weight[target] = self.link[origin], self.weight[origin]
        return self._replace(link=link, weight=weight)


class Draws(Protocol):
    """Routes that the seed of a hash decides, drawn for one seed at a time."""

    def drawn(self, seed: int) -> RouteBlock:
        """Return the part of the routes that *seed* decides."""


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """Routes of all pairs of ranks, but for what the hash of the network decides, which each seed draws anew."""

    fixed: Sequence[RouteBlock]
    hash: Draws | None
    bundles: RouteBundles | None = None
    """Links that others stand for in these routes."""

    def drawn(self, seed: int) -> list[RouteBlock]:
        """Return the routes with *seed*."""
        return [*self.fixed] if self.hash is None else [*self.fixed, self.hash.drawn(seed)]


def assemble(slowdown: Float, parts: Sequence[RouteBlock], number: Int | None = None) -> Routes:
    """Return *parts* as routes; a link that several ways of a route share gets the sum of their weights.

    Parameters
    ----------
    slowdown : float64[n_routes]
    parts : sequence of RouteBlock
    number : int64[n_routes], optional
        The numbers of the routes that are kept, by which *parts* name them.
    """
    part = RouteBlock.joined([_at_places(part, number) for part in parts])
    slowest, n_routes = np.zeros(len(slowdown)), len(slowdown)
    np.maximum.at(slowest, part.route, part.latency_s)
    part = part.tidy()
    counts = np.zeros(n_routes, dtype=np.int64)
    counts[part.route] = part.hops
    return Routes(pointers(counts), part.link, part.weight, spread(slowest, 1), spread(slowdown, 1), number=number)


def _at_places(part: RouteBlock, number: Int | None) -> RouteBlock:
    """Return the part with the places of its routes instead of their numbers."""
    return part if number is None else part._replace(route=np.searchsorted(number, part.route))


def merge_trunks(routes: Routes, capacity_Bps: Float) -> tuple[Routes, Float]:
    """Replace links that always fill in step by one trunk; rates are the same, with far fewer entries.

    Two links are in step if the same routes cross both and the weights on one are a fixed multiple of those on the
    other; then only the one with the larger weight per capacity can ever bind. The planes of a healthy switched domain
    collapse to one trunk out of and one into each GPU.

    Returns
    -------
    Routes
        Over trunks.
    float64[n_trunks]
        Capacity of each trunk, B/s, scaled so that its largest weight is 1.
    """
    n_links = int(routes.link.max(initial=-1)) + 1
    route = np.repeat(np.arange(len(routes.ptr) - 1, dtype=np.int32), np.diff(routes.ptr))
    load = routes.slowdown[route]
    load *= routes.weight
    top = np.zeros(n_links)
    np.maximum.at(top, routes.link, load)
    load /= top[routes.link]
    leader = _leaders(route, routes.link, load, n_links)
    links = np.flatnonzero(top > 0)
    if routes.bundles is not None:
        capacity_Bps = capacity_Bps.copy()
        narrowest = capacity_Bps[routes.bundles.link] / routes.bundles.factor
        np.minimum.at(capacity_Bps, routes.bundles.leader, narrowest)
    capacity = np.full(n_links, np.inf)
    np.minimum.at(capacity, leader[links], capacity_Bps[links] / top[links])
    leads = np.zeros(n_links, dtype=np.bool_)
    leads[links] = leader[links] == links
    trunk, kept = np.cumsum(leads) - 1, leads[routes.link]
    ptr, link, weight = routes.ptr, routes.link, routes.weight  # not copied where they stay as they are
    if not kept.all():
        ptr, link, load = pointers(np.bincount(route[kept], minlength=len(ptr) - 1)), link[kept], load[kept]
    if not leads.all():
        link = trunk[link]
    if not np.array_equal(load, weight):
        weight = load
    plain = np.broadcast_to(1.0, len(routes.latency_s))
    return Routes(ptr, link, weight, routes.latency_s, plain), capacity[leads]


def bundled(part: RouteBlock, n_links: int) -> tuple[RouteBlock, RouteBundles]:
    """Return ways, one for each of the routes 0, 1, ..., without links that follow another in all of them."""
    route = np.repeat(part.route, part.hops)
    top = np.zeros(n_links)
    np.maximum.at(top, part.link, part.weight)
    leader = _leaders(route, part.link, part.weight / top[part.link], n_links)
    leader[top == 0] = np.flatnonzero(top == 0)
    links = np.flatnonzero(leader != np.arange(n_links))
    kept = leader[part.link] == part.link
    hops = np.bincount(route[kept], minlength=len(part.route))
    bundles = RouteBundles(links, leader[links], top[links] / top[leader[links]])
    return part._replace(hops=hops, link=part.link[kept], weight=part.weight[kept]), bundles


def _leaders(route: Int | Int32, link: Int, relative: Float, n_links: int) -> Int:
    """Return int64[n_links]: the first of the links that are in step with each, which may be itself.

    Links that no route takes, most of a large machine, are told apart from the start.
    """
    leader = np.arange(n_links)
    met, place = distinct(link)
    leader[met] = met[_leaders_of_met(route, place, relative, len(met))]
    return leader


def _leaders_of_met(route: Int | Int32, link: Int, relative: Float, n_links: int) -> Int:
    """Return the same where every link is met.

    Hashes of what crosses each link tell most apart; those that agree are compared entry by entry.
    """
    code = np.zeros(n_links, dtype=np.uint64)
    for block in range(0, len(link), BLOCK):  # all at once would take many times what the routes do
        part = slice(block, block + BLOCK)
        values = np.round(relative[part], 12).view(np.uint64)
        np.add.at(code, link[part], mixed(route[part].astype(np.uint64) + mixed(values)))
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    leader, several = first[place], (np.bincount(place) > 1)[place]
    kept = np.flatnonzero(several[link])
    if not len(kept):
        return np.arange(n_links)
    kept = kept[np.argsort(link[kept].astype(np.int32), kind="stable")]
    counts = np.where(several, np.bincount(link, minlength=n_links), 0)
    ptr = pointers(counts)
    twins = np.flatnonzero((leader != np.arange(n_links)) & (counts > 0))
    alike = counts[twins] == counts[leader[twins]]
    leader[twins[~alike]] = twins[~alike]
    twins = twins[alike]
    ends = np.cumsum(counts[twins])
    for links in np.split(twins, np.searchsorted(ends, np.arange(BLOCK, ends.max(initial=0), BLOCK))):
        own, other = (kept[entries_of(ptr, each)[1]] for each in (links, leader[links]))
        differs = (route[own] != route[other]) | (np.round(relative[own], 12) != np.round(relative[other], 12))
        owner = np.repeat(links, counts[links])[differs]
        leader[owner] = owner
    return leader


def mixed(code: Code) -> Code:
    """Return *code* with every bit moved by every other: the end of SplitMix64."""
    code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(code ^ (code >> np.uint64(31)), dtype=np.uint64)
