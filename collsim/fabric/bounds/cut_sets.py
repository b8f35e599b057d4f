"""Cuts of the ranks into two sides, and what the links of a fabric carry from one to the other.

Of many ranks every cut has few of them on one side, so that all is counted from there. Nodes between the ranks may
stand on either side, and any choice bounds the flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct, entries_of, pointers
from collsim.fabric.fabric import Fabric, Float, Int

__all__ = ["Sides", "sparse_capacities", "sparse_sides"]

Bool = NDArray[np.bool_]

MOST_SWEEPS = 8
"""Most rounds in which nodes between the ranks may change sides; fewer only loosen the bound."""
MOST_RUNS = 16
"""So many runs of nodes are tried, evenly spread."""


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Sets of ranks: those inside each cut, or those outside where it is the complement.

    Attributes
    ----------
    n_ranks : int
    ptr, member : int64[n_cuts+1], int64[...]
    outside : bool[n_cuts]
        Whether the members are outside.
    """

    n_ranks: int
    ptr: Int
    member: Int
    outside: Bool

    @classmethod
    def of_table(cls, inside: Bool) -> Sides:
        """Return bool[n_cuts, n_ranks] *inside* as sets, each of the smaller side."""
        counts, n_ranks = inside.sum(axis=1), inside.shape[1]
        outside = 2 * counts > n_ranks
        member = np.flatnonzero(inside ^ outside[:, None])
        member %= n_ranks
        return cls(n_ranks, pointers(np.where(outside, n_ranks - counts, counts)), member, outside)

    @classmethod
    def of_sets(cls, n_ranks: int, sets: Sequence[Int]) -> Sides:
        """Return sets of ranks as the inside of cuts."""
        ptr = pointers(np.array([len(members) for members in sets]))
        return cls(n_ranks, ptr, np.concatenate(sets), np.zeros(len(sets), dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.outside)

    @property
    def owner(self) -> Int:
        """int64: the cut of each member."""
        return np.repeat(np.arange(len(self)), np.diff(self.ptr))

    def complements(self) -> Sides:
        """Return the same cuts in the other direction."""
        return replace(self, outside=~self.outside)

    def and_more(self, others: Sides) -> Sides:
        """Return these cuts, then *others*."""
        ptr = np.concatenate([self.ptr, self.ptr[-1] + others.ptr[1:]])
        member, outside = (
            np.concatenate([getattr(each, name) for each in (self, others)]) for name in ("member", "outside")
        )
        return Sides(self.n_ranks, ptr, member, outside)

    def sizes(self) -> Int:
        """Return int64[n_cuts]: how many ranks are inside."""
        counts = np.diff(self.ptr)
        return np.where(self.outside, self.n_ranks - counts, counts)

    def holds(self, rank: int) -> Bool:
        """Return bool[n_cuts]: whether a rank is inside."""
        found = np.zeros(len(self), dtype=np.bool_)
        found[self.owner[self.member == rank]] = True
        return found ^ self.outside

    def leavers(self) -> Int:
        """Return int64[n_cuts]: how many ranks inside are followed by one outside; round the circle as many enter."""
        key = self.owner * self.n_ranks + self.member
        after = self.owner * self.n_ranks + (self.member + 1) % self.n_ranks
        stays = _among(np.sort(key), after)
        return np.bincount(self.owner[~stays], minlength=len(self))

    def inside(self, cut: int) -> Int:
        """Return the ranks inside one cut."""
        members = self.member[self.ptr[cut] : self.ptr[cut + 1]]
        return np.setdiff1d(np.arange(self.n_ranks), members) if self.outside[cut] else np.sort(members)

    def table(self) -> Bool:
        """Return bool[n_cuts, n_ranks]: which ranks are inside."""
        inside = np.zeros((len(self), self.n_ranks), dtype=np.bool_)
        inside[self.owner, self.member] = True
        return inside ^ self.outside[:, None]


def sparse_sides(fabric: Fabric) -> tuple[Sides, Sides]:
    """Return cuts of many ranks: single ones, blocks of nodes that share leaves and runs of nodes; then single nodes.

    The second is empty if there is one node.
    """
    where, ranks = fabric.wiring.coordinates, np.arange(fabric.n_ranks)
    node, pod = distinct(where.node[fabric.rank_node])[1], where.pod[fabric.rank_node]
    order = np.argsort(node, kind="stable")
    n_nodes, ends = int(node.max()) + 1, np.append(np.flatnonzero(np.diff(node[order])) + 1, fabric.n_ranks)
    runs = np.unique(np.linspace(1, n_nodes - 1, MOST_RUNS).astype(np.int64)).tolist() if n_nodes > 1 else []
    sets = [order[: ends[number - 1]] for number in runs]
    pods = [np.flatnonzero(pod == each) for each in np.unique(pod)] if n_nodes > 1 else []
    sets += [members for members in pods if len(members) < fabric.n_ranks]
    single = Sides(fabric.n_ranks, np.arange(fabric.n_ranks + 1), ranks, np.zeros(fabric.n_ranks, dtype=np.bool_))
    some = single.and_more(Sides.of_sets(fabric.n_ranks, sets)) if sets else single
    nodes = np.split(order, ends[:-1]) if n_nodes > 1 else []
    whole = (
        Sides.of_sets(fabric.n_ranks, nodes)
        if nodes
        else Sides(
            fabric.n_ranks, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        )
    )
    return some, whole


def sparse_capacities(fabric: Fabric, used: Bool, sides: Sides) -> Float:
    """Return float64[n_cuts]: what the used links carry from inside to outside.

    All nodes between the ranks start on the side without members. Each moves to the other as long as fewer bytes cross
    then; if that pays for one node, it pays no less when others move too.
    """
    wiring = fabric.wiring
    src, dst, rate = wiring.link_src[used], wiring.link_dst[used], fabric.raw_capacity_Bps[used]
    found = np.zeros(len(sides))
    for outside in (False, True):  # seen from outside, links lead the other way
        cuts = np.flatnonzero(sides.outside == outside)
        if len(cuts):
            ptr, entry = entries_of(sides.ptr, cuts)
            graph = _Graph.of(wiring.n_nodes, dst if outside else src, src if outside else dst, rate)
            graph.is_rank[fabric.rank_node] = True
            owner = np.repeat(np.arange(len(cuts)), np.diff(ptr))
            found[cuts] = graph.crossing(len(cuts), owner, fabric.rank_node[sides.member[entry]])
    return found


@dataclass(slots=True)
class _Graph:
    """Links by their sources and by their targets, and which nodes are ranks.

    Attributes
    ----------
    ptr, dst, rate : int64[n_nodes+1], int64[n_links], float64[n_links]
        What leaves each node.
    back_ptr, src, back_rate : int64[n_nodes+1], int64[n_links], float64[n_links]
        What arrives there.
    total : float64[n_nodes]
        All that leaves each.
    """

    n_nodes: int
    ptr: Int
    dst: Int
    rate: Float
    back_ptr: Int
    src: Int
    back_rate: Float
    total: Float
    is_rank: Bool

    @classmethod
    def of(cls, n_nodes: int, src: Int, dst: Int, rate: Float) -> _Graph:
        """Return the graph of some links."""
        out, into = np.argsort(src, kind="stable"), np.argsort(dst, kind="stable")
        ptr, back = (pointers(np.bincount(end, minlength=n_nodes)) for end in (src, dst))
        total = np.bincount(src, rate, n_nodes).astype(np.float64)
        is_rank = np.zeros(n_nodes, dtype=np.bool_)
        return cls(n_nodes, ptr, dst[out], rate[out], back, src[into], rate[into], total, is_rank)

    def crossing(self, n_cuts: int, cut: Int, node: Int) -> Float:
        """Return float64[n_cuts]: what crosses from the *node* inside each *cut*, after others have joined them."""
        inside = np.sort(cut * self.n_nodes + node)
        for _ in range(MOST_SWEEPS + 1):
            key, rate = self._leaving(inside)
            if not len(key):
                break
            candidate, place = distinct(key)
            gained, node = np.bincount(place, rate), candidate % self.n_nodes
            open_, kept = np.flatnonzero(~self.is_rank[node]), self._staying(candidate, inside)
            joins = candidate[open_][(self.total[node] - kept - gained)[open_] < 0]
            if not len(joins):
                break
            inside = np.sort(np.concatenate([inside, joins]))
        return np.bincount(key // self.n_nodes, rate, n_cuts).astype(np.float64)

    def _leaving(self, inside: Int) -> tuple[Int, Float]:
        """Return where the links out of the inside of all cuts lead, with the number of the cut, and their rates."""
        cut, node = np.divmod(inside, self.n_nodes)
        ptr, entry = entries_of(self.ptr, node)
        key = np.repeat(cut * self.n_nodes, np.diff(ptr)) + self.dst[entry]
        leaves = ~_among(inside, key)
        return key[leaves], self.rate[entry[leaves]]

    def _staying(self, candidate: Int, inside: Int) -> Float:
        """Return float64[n_candidates]: what leads from each candidate, in order, back inside."""
        cut, node = np.divmod(inside, self.n_nodes)
        ptr, entry = entries_of(self.back_ptr, node)
        key = np.repeat(cut * self.n_nodes, np.diff(ptr)) + self.src[entry]
        place = np.minimum(np.searchsorted(candidate, key), len(candidate) - 1)
        met = candidate[place] == key
        return np.bincount(place[met], self.back_rate[entry[met]], len(candidate)).astype(np.float64)


def _among(values: Int, wanted: Int) -> Bool:
    """Return bool[n]: whether each of *wanted* is one of *values*, which are in order."""
    place = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.asarray(values[place] == wanted)
