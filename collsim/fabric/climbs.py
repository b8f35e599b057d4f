"""Ways from leaf to leaf in pieces: up from a leaf and down to another, each found once for all that take it.

Where the cables of a tier are as wide as each other and every core hangs on equally many of them, what a message puts
on the cables above its leaf does not depend on where it goes. Ways are then put together from such pieces, of which
there are as many as leaves and not as pairs of these. Other ways, past cables that failures or odd counts left uneven,
are pieces of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collsim.core.arrays import entries_of, pointers
from collsim.fabric.cluster_router import Router
from collsim.fabric.fabric import Float, Int
from collsim.fabric.routes import Path, RouteBlock, RouteBundles, bundled

__all__ = ["Climbs"]


class _Side(NamedTuple):
    """What is next above a leaf, upwards or downwards."""

    spines: Int
    links: Int
    """int64[spines]: the cable to each, or from it."""
    upwards: bool


class _Fan(NamedTuple):
    """Cables between some spines and the cores: by their places, the spine, the core and the link of each."""

    spine: Int
    core: Int
    link: Int


@dataclass(slots=True, eq=False)
class Climbs:
    """Finds ways from leaf to leaf on a network without a hash.

    Attributes
    ----------
    router : Router
    pieces : list of Path
        All that were found so far.
    """

    router: Router
    pieces: list[Path] = field(default_factory=list)
    _sides: dict[tuple[int, bool], _Side] = field(default_factory=dict)
    _fans: dict[tuple[bytes, bool], _Fan] = field(default_factory=dict)
    _both: dict[tuple[bytes, bytes], Int] = field(default_factory=dict)
    _found: dict[tuple[object, ...], tuple[int, Float] | None] = field(default_factory=dict)

    def way(self, leaf_a: int, leaf_b: int) -> tuple[list[int], float]:
        """Return the numbers of the pieces of the way between two leaves that something joins, and its latency."""
        if leaf_a == leaf_b:
            return [], 0.0
        spec = self.router.cluster.spec
        numbers = None if spec.hashes or spec.fabric == "dragonfly" else self._in_pieces(leaf_a, leaf_b)
        if numbers is None:
            path = self.router.between_leaves(leaf_a, leaf_b)
            assert path is not None
            self.pieces.append(path)
            return [len(self.pieces) - 1], path[2]
        node_s = self.router.machine.node_latency_s
        own_s = float(node_s[self.router.cluster.first_leaf + leaf_a])
        return numbers, sum(self.pieces[number][2] for number in numbers) + own_s

    def blocks(self, ways: list[tuple[list[int], float]], *, bundles: bool) -> tuple[RouteBlock, RouteBundles | None]:
        """Return *ways* as a block, and the links that others stand for if any may."""
        hops = np.array([len(links) for links, _, _ in self.pieces], dtype=np.int64)
        link = np.concatenate([np.zeros(0), *(links for links, _, _ in self.pieces)])
        share = np.concatenate([np.zeros(0), *(shares for _, shares, _ in self.pieces)])
        number = np.arange(len(hops))
        block = RouteBlock(number, np.zeros(len(hops)), hops, link.astype(np.int64), share.astype(np.float64))
        n_links, in_pieces = self.router.machine.wiring.n_links, None
        if bundles and len(block.link):
            block, in_pieces = bundled(block, n_links)
        taken = np.array([number for numbers, _ in ways for number in numbers], dtype=np.int64)
        counts = np.array([len(numbers) for numbers, _ in ways], dtype=np.int64)
        ptr, entry = entries_of(pointers(block.hops), taken)
        ends = ptr[pointers(counts)]
        latency_s = np.array([way_s for _, way_s in ways])
        whole = RouteBlock(np.arange(len(ways)), latency_s, np.diff(ends), block.link[entry], block.weight[entry])
        if in_pieces is None:
            return whole, None
        whole, in_ways = bundled(whole, n_links)
        return whole, in_pieces.behind(in_ways)

    def _in_pieces(self, leaf_a: int, leaf_b: int) -> list[int] | None:
        """Return the pieces between two leaves, or None where what a message takes above one depends on the other."""
        up, down = self._side(leaf_a, upwards=True), self._side(leaf_b, upwards=False)
        spines = self._common(up.spines, down.spines)
        if len(spines):
            ends = [self._to_spines(leaf, side, spines) for leaf, side in ((leaf_a, up), (leaf_b, down))]
            return None if None in ends else [number for number in ends if number is not None]
        fans = [self._fan(side) for side in (up, down)]
        cores = self._common(*(fan.core for fan in fans))
        if not len(cores):
            return None
        numbers: list[int] = []
        for leaf, side, fan in ((leaf_a, up, fans[0]), (leaf_b, down, fans[1])):
            if (found := self._to_cores(side, fan, cores)) is None:
                return None
            if (near := self._below_cores(leaf, side, cores, found[1])) is None:
                return None
            numbers += [near, found[0]]
        return numbers

    def _side(self, leaf: int, *, upwards: bool) -> _Side:
        key = leaf, upwards
        if key not in self._sides:
            beside = self.router.above(leaf) if upwards else self.router.below(leaf)
            spines, links = (np.array(list(each), dtype=np.int64) for each in (beside, beside.values()))
            self._sides[key] = _Side(spines, links, upwards)
        return self._sides[key]

    def _fan(self, side: _Side) -> _Fan:
        """Return the cables between the spines of a side and the cores, which other leaves have in common."""
        key = side.spines.tobytes(), side.upwards
        if key not in self._fans:
            next_to = self.router.above if side.upwards else self.router.below
            beside = [next_to(spine) for spine in side.spines.tolist()]
            counts = np.array([len(each) for each in beside], dtype=np.int64)
            cores, links = (
                [number for each in beside for number in column(each)] for column in (dict.keys, dict.values)
            )
            spine = np.repeat(np.arange(len(counts)), counts)
            self._fans[key] = _Fan(spine, *(np.array(column, dtype=np.int64) for column in (cores, links)))
        return self._fans[key]

    def _common(self, some: Int, others: Int) -> Int:
        """Return the switches that are in both, in order."""
        key = some.tobytes(), others.tobytes()
        if key not in self._both:
            self._both[key] = np.intersect1d(some, others)
        return self._both[key]

    def _to_spines(self, leaf: int, side: _Side, spines: Int) -> int | None:
        """Return the piece between a leaf and some spines, with the latency of these for who goes up."""
        key = leaf, side.upwards, spines.tobytes()
        if key not in self._found:
            links = side.links[np.isin(side.spines, spines)]
            behind_s = self._switch_s(spines) * side.upwards
            shares = np.full(len(links), 1 / len(links))
            self._found[key] = self._piece(links, shares, self._link_s(links), behind_s)
        found = self._found[key]
        return found and found[0]

    def _to_cores(self, side: _Side, fan: _Fan, cores: Int) -> tuple[int, Float] | None:
        """Return the piece between the spines of a side and some cores, and the share of each spine."""
        key = "cores", side.spines.tobytes(), side.upwards, cores.tobytes()
        if key not in self._found:
            kept = np.isin(fan.core, cores)
            spine, core, link = fan.spine[kept], fan.core[kept], fan.link[kept]
            shares = np.bincount(spine, minlength=len(side.spines)) / len(link)
            each = np.unique(np.bincount(np.searchsorted(cores, core)))
            behind_s = self._switch_s(cores) * side.upwards
            links_s = self._link_s(link) + self._switch_s(side.spines[spine])
            piece = self._piece(link, np.full(len(link), 1 / len(link)), links_s, behind_s) if len(each) == 1 else None
            self._found[key] = piece and (piece[0], shares)
        return self._found[key]

    def _below_cores(self, leaf: int, side: _Side, cores: Int, shares: Float) -> int | None:
        """Return the piece between a leaf and its spines, of which some lead to *cores* with such *shares*."""
        key = leaf, side.upwards, "cores", cores.tobytes()
        if key not in self._found:
            links = side.links[shares > 0]
            self._found[key] = self._piece(links, shares[shares > 0], self._link_s(links), np.zeros(1))
        found = self._found[key]
        return found and found[0]

    def _piece(self, links: Int, shares: Float, links_s: Float, behind_s: Float) -> tuple[int, Float] | None:
        """Return the number of a new piece over *links*, None if these are not all as wide and as long."""
        alike = (self.router.nominal_Bps[links], links_s, behind_s)
        if any(len(each) and each.min() < each.max() for each in alike):
            return None
        self.pieces.append((links, shares, float(links_s[0] + behind_s[0])))
        return len(self.pieces) - 1, shares

    def _link_s(self, links: Int) -> Float:
        return np.asarray(self.router.machine.link_latency_s[links])

    def _switch_s(self, switches: Int) -> Float:
        return np.asarray(self.router.machine.node_latency_s[self.router.cluster.first_leaf + switches])
