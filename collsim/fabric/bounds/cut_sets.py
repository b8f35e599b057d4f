"""Cuts of the ranks into two sides, and what the links of a fabric carry from one to the other.

Of many ranks every cut has few of them on one side, so that all is counted from there. Nodes between the ranks may
stand on either side, and any choice bounds the flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct, entries_of, pointers
from collsim.fabric.fabric import Fabric, Float, Int
from collsim.fabric.routes import mixed

__all__ = ["Sides", "sparse_capacities", "sparse_sides"]

Bool = NDArray[np.bool_]

MOST_SWEEPS = 8
"""Most rounds in which nodes between the ranks may change sides; fewer only loosen the bound."""
MOST_RUNS = 16
"""So many runs of nodes are tried, evenly spread."""
FEW = 512
"""Of cuts of so few ranks one is looked at for all that are alike."""
MANY = 1 << 14
"""Cuts of more ranks are looked at all at once."""


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
    then; if that pays for one node, it pays no less when others move too. Of cuts round the same places of units that
    are alike one is looked at, if nothing beyond its unit moves.
    """
    wiring = fabric.wiring
    src, dst, rate = wiring.link_src[used], wiring.link_dst[used], fabric.raw_capacity_Bps[used]
    found, stands = np.zeros(len(sides)), _stands_for(fabric, (src, dst, rate), sides)
    unit = _units(fabric)
    counts = np.diff(sides.ptr)
    large = counts > MANY
    for outside in (False, True):  # seen from outside, links lead the other way
        graph = _Graph.of(wiring.n_nodes, dst if outside else src, src if outside else dst, rate)
        graph.is_rank[fabric.rank_node] = True

        def crossing(cuts: Int, graph: _Graph = graph) -> Bool:
            """Find what crosses *cuts*; return whether anything beyond units moved."""
            ptr, entry = entries_of(sides.ptr, cuts)
            owner, node = np.repeat(np.arange(len(cuts)), np.diff(ptr)), fabric.rank_node[sides.member[entry]]
            found[cuts], inside = graph.crossing(len(cuts), owner, node)
            moved = np.zeros(len(cuts), dtype=np.bool_)
            moved[(inside // wiring.n_nodes)[unit[inside % wiring.n_nodes] < 0]] = True
            return moved

        own = sides.outside == outside
        if len(cuts := np.flatnonzero(own & large)):
            nodes = [fabric.rank_node[sides.member[sides.ptr[cut] : sides.ptr[cut + 1]]] for cut in cuts.tolist()]
            found[cuts] = graph.crossing_dense(nodes)
        one_each = np.flatnonzero(own & ~large & (stands == np.arange(len(stands))))
        if len(one_each):
            moved = np.zeros(len(sides), dtype=np.bool_)
            moved[one_each] = crossing(one_each)
            followers = np.flatnonzero(own & ~large & (stands != np.arange(len(stands))))
            found[followers] = found[stands[followers]]
            if len(cuts := followers[moved[stands[followers]]]):
                crossing(cuts)
    return found


def _units(fabric: Fabric) -> Int:
    """Return int64[n_nodes]: the node of a cluster that a GPU, adapter or switch is part of; -1 between these."""
    cluster, n = fabric.machine.cluster, fabric.wiring.n_nodes
    unit = np.full(n, -1, dtype=np.int64)
    if cluster is None or fabric.machine.wiring.n_nodes != n:
        return unit
    unit[: fabric.wiring.n_gpus] = np.arange(fabric.wiring.n_gpus) // cluster.node.n_gpus
    inner = np.diff(cluster.first_inner)
    unit[fabric.wiring.n_gpus : cluster.first_nic] = np.repeat(np.arange(len(inner)), inner)
    unit[cluster.first_nic : cluster.first_leaf] = cluster.nic_node
    return unit


def _stands_for(fabric: Fabric, links: tuple[Int, Int, Float], sides: Sides) -> Int:
    """Return int64[n_cuts]: the first cut round the same places of a unit that is alike, seen from the same side."""
    unit, counts, stands = _units(fabric), np.diff(sides.ptr), np.arange(len(sides))
    member = fabric.rank_node[sides.member]
    at = unit[member]
    begin = np.minimum(sides.ptr[:-1], max(len(at) - 1, 0))
    same = np.ones(len(sides), dtype=np.bool_)
    same[sides.owner[at != np.repeat(at[begin], counts)]] = False
    inside_one = np.flatnonzero(same & (counts > 0) & (counts <= FEW))
    inside_one = inside_one[at[begin[inside_one]] >= 0]
    if len(inside_one) < 2:
        return stands
    kind, place = _kinds_of_units(fabric, links, unit)
    places, kinds = place[member], kind[at[begin]]
    single = inside_one[counts[inside_one] == 1]
    label = (kinds[single] * len(unit) + places[sides.ptr[single]]) * 2 + sides.outside[single]
    _, first, number = np.unique(label, return_index=True, return_inverse=True)
    stands[single] = single[first[number]]
    seen: dict[tuple[int, bool, bytes], int] = {}
    for cut in inside_one[counts[inside_one] > 1].tolist():
        where = np.sort(places[sides.ptr[cut] : sides.ptr[cut + 1]])
        stands[cut] = seen.setdefault((int(kinds[cut]), bool(sides.outside[cut]), where.tobytes()), cut)
    return stands


def _kinds_of_units(fabric: Fabric, links: tuple[Int, Int, Float], unit: Int) -> tuple[Int, Int]:
    """Return int64[n_units], equal for units that have equal links and what these end in, and the place of each node.

    What ends beyond a unit is told by all that it sends and gets, and by which links of the unit end in it.
    """
    (src, dst, rate), n, n_units = links, len(unit), int(unit.max()) + 1
    order = np.argsort(unit, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n) - np.searchsorted(unit[order], unit[order])
    sent, got = (np.bincount(end, rate, n) for end in (src, dst))
    is_rank = np.zeros(n, dtype=np.bool_)
    is_rank[fabric.rank_node] = True
    joins, both = np.maximum(unit[src], unit[dst]), (unit[src] >= 0) & (unit[dst] >= 0)
    if (unit[src] != unit[dst])[both].any():  # linked to each other: no two are known to be alike
        return np.arange(n_units), place
    beyond = np.where(both | (joins < 0), -1, np.where(unit[src] < 0, src, dst))
    pairs, pair = distinct(np.where(beyond >= 0, joins * n + beyond, -1))
    nth = pair - np.searchsorted(pairs, joins * n)  # which of those beyond its unit
    code = np.zeros(len(src), dtype=np.uint64)
    for number, end in enumerate((src, dst)):
        away = unit[end] < 0
        told = np.where(away, sent[end], is_rank[end]), np.where(away, got[end], 0.0), rate
        for column in (np.where(away, -1 - nth, place[end]), *told):
            code = mixed(code + mixed(column.view(np.uint64) + np.uint64(number)))
    kept = joins >= 0
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(joins[rows], kind="stable")]
    ptr = pointers(np.bincount(joins[rows], minlength=n_units)).tolist()
    codes, seen = code[rows], dict[bytes, int]()
    kinds = [seen.setdefault(codes[a:b].tobytes(), len(seen)) for a, b in pairwise(ptr)]
    return np.array(kinds, dtype=np.int64), place


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

    def crossing(self, n_cuts: int, cut: Int, node: Int) -> tuple[Float, Int]:
        """Return what crosses from the *node* inside each *cut* after others have joined them, and all inside.

        That is float64[n_cuts], and cuts times the number of nodes plus nodes.
        """
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
        return np.bincount(key // self.n_nodes, rate, n_cuts).astype(np.float64), inside

    def crossing_dense(self, sets: Sequence[Int]) -> Float:
        """Return float64[n_cuts]: the same of cuts with very many nodes inside, all at once."""
        from scipy.sparse import csr_array

        shape = self.n_nodes, self.n_nodes
        out, back = (
            csr_array((self.rate, self.dst, self.ptr), shape),
            csr_array((self.back_rate, self.src, self.back_ptr), shape),
        )
        inside = np.zeros((self.n_nodes, len(sets)))
        for column, nodes in enumerate(sets):
            inside[nodes, column] = 1.0
        for _ in range(MOST_SWEEPS):
            gained, kept = back @ inside, out @ inside
            joins = (inside == 0) & (gained > 0) & ~self.is_rank[:, None] & (self.total[:, None] - kept - gained < 0)
            if not joins.any():
                break
            inside[joins] = 1.0
        return np.asarray(((out @ (1 - inside)) * inside).sum(axis=0), dtype=np.float64)

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
