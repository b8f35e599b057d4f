"""Routes of many pairs of a cluster at once.

What a router decides about two GPUs depends on where they stand in their nodes, on what these have left and on the
leaves that their adapters hang on. So one pair is looked at for each combination of these that occurs, and the ways of
all others are put together from pieces: inside the first node, through two adapters and from leaf to leaf, inside the
last node.

Links between switches that always share the messages between two leaves in one proportion need no entries of their own:
the first of them stands for all (`collsim.fabric.routes.RouteBundles`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct, entries_of, pointers
from collsim.fabric.climbs import Climbs
from collsim.fabric.cluster_router import Router
from collsim.fabric.ecmp import Hash, HashedFlow
from collsim.fabric.fabric import Fabric, Float, Int
from collsim.fabric.routes import RouteBlock, RouteBundles, Routes, Ways

__all__ = ["between_nodes", "kept_pairs", "links_around"]

Bool = NDArray[np.bool_]

FEW = 128
"""Up to so many ranks all pairs are kept, where no hash has to be drawn for all of them: few schedules need them."""
ALL_KEPT_UP_TO = 512
"""The same where groups may share links, or a hash has to be drawn for every flow."""
BLOCK = 1 << 17
"""So many pairs are put together in one go."""


def between_nodes(fabric: Fabric, pairs: Int, *, bundles: bool = False) -> Ways:
    """Return the routes of some pairs of ranks of a cluster, with what its hash decides left open.

    Parameters
    ----------
    fabric : Fabric
        Of a topology with a `Cluster`, of which something may be missing.
    pairs : int64[n]
        Source times number of ranks plus target, in order.
    bundles : bool
        Whether links between switches may stand for others that always carry a fixed multiple of their bytes.

    Raises
    ------
    NoRouteError
        Ranks of one node that cannot reach each other.
    """
    router = Router(fabric)
    parts, flows, found = _found_ways(router, pairs, bundles=bundles)
    return Ways(parts, Hash(flows, router.trunks, router.before, router.spans) if flows else None, found)


def kept_pairs(fabric: Fabric, *, alone: bool) -> Int:
    """Return int64[n]: the pairs of ranks whose routes are kept, all of them or those that stand for the others.

    *alone*: no other group runs beside these ranks.

    These are neighbours by rank and by place, and all pairs of the fullest node: among them are the nearest of all.
    """
    n, cluster = fabric.n_ranks, fabric.machine.cluster
    several = not alone and 2 * n <= fabric.machine.wiring.n_gpus  # of groups routes say whether they share links
    if n <= (ALL_KEPT_UP_TO if several or (cluster is not None and cluster.spec.hashes) else FEW):
        return np.flatnonzero(~np.eye(n, dtype=np.bool_))
    node: Int = fabric.wiring.coordinates.node[fabric.rank_node]
    place = np.argsort(fabric.rank_node)
    fullest = np.flatnonzero(node == np.bincount(node).argmax())
    ends = [(np.arange(n), np.roll(np.arange(n), -1)), (place, np.roll(place, -1))]
    ends.append((np.repeat(fullest, len(fullest)), np.tile(fullest, len(fullest))))
    src, dst = (np.concatenate(column) for column in zip(*ends, strict=True))
    return np.asarray(np.unique((src * n + dst)[src != dst]))


def links_around(fabric: Fabric) -> NDArray[np.bool_]:
    """Return bool[n_links]: links of the nodes in use, and all cables between switches of the network."""
    cluster, wiring = fabric.cluster, fabric.wiring
    assert cluster is not None
    gpus, nodes = cluster.node.n_gpus, cluster.spec.nodes
    owner = np.full(wiring.n_nodes, -1)
    owner[: wiring.n_gpus] = np.arange(wiring.n_gpus) // gpus
    owner[wiring.n_gpus : cluster.first_nic] = np.repeat(np.arange(nodes), np.diff(cluster.first_inner))
    owner[cluster.first_nic : cluster.first_leaf] = cluster.nic_node
    around = (owner < 0) | np.isin(owner, owner[fabric.rank_node])
    return np.asarray(around[wiring.link_src] & around[wiring.link_dst])


class Lane(NamedTuple):
    """A GPU and an adapter of it that messages leave by, and those that they arrive by, by their places.

    Those of GPUs count within the node, those of adapters among the adapters of the GPU.
    """

    out_gpu: int
    out_nic: int
    in_gpu: int
    in_nic: int


def _found_ways(
    router: Router, pairs: Int, *, bundles: bool
) -> tuple[list[RouteBlock], list[HashedFlow], RouteBundles | None]:
    """Return the ways of *pairs*, the flows that a hash decides on, and the links that others stand for.

    Parameters
    ----------
    router : Router
    pairs : int64[n]
        Numbers of pairs of ranks, in order.
    bundles : bool
        Whether a link may stand for others.
    """
    a, b = (router.machine.rank_node[end] for end in np.divmod(pairs, router.fabric.n_ranks))
    inner = np.flatnonzero(a // router.per_node == b // router.per_node)
    nodes = _Nodes(router)
    hops, joined = nodes.inside(a[inner], b[inner])
    near, far = inner[joined], np.ones(len(pairs), dtype=np.bool_)
    far[near] = False
    within = hops.reordered(np.flatnonzero(joined))
    parts = [within._replace(route=pairs[near])] if len(near) else []
    flows: list[HashedFlow] = []
    found = None
    if far.any():
        across = _Across(nodes, pairs[far], a[far], b[far])
        middle, found = across.middles(bundles=bundles)
        for rows, lanes in across.alike():
            for begin in range(0, len(rows), BLOCK):
                block = slice(begin, begin + BLOCK)
                part, hashed = across.laid(rows[block], lanes[block], middle)
                parts.append(part)
                flows += hashed
    return [part._replace(link=router.before[part.link]) for part in parts], flows, found


class _Nodes:
    """Links inside the nodes, and adapters, that failures left, as arrays.

    Attributes
    ----------
    group : int64[nodes]
        Nodes of one group have the same left inside.
    links : list of int64[nodes of the group, links]
        Their links, one group after the other.
    row : int64[nodes]
        Row of each node in these.
    look : int64[nodes]
        Numbers of what the rules of a router see of each node: its inside, its adapters and, where these do not say it
        by `unit`, their leaves.
    unit : int64[nodes]
        Equal for nodes on the same leaves, where all leaves are joined and no two units have one in common.
    leaf : int64[ports]
        The leaf, as a switch, that an adapter hangs on; a port is a place in `Cluster.nic_of`.
    """

    def __init__(self, router: Router) -> None:
        self.router, cluster = router, router.cluster
        n_nodes = len(cluster.kind)
        groups: dict[tuple[int, bytes], list[int]] = {}
        links = [router.links_of(node) for node in range(n_nodes)]
        for node, kind in enumerate(cluster.kind.tolist()):
            groups.setdefault((kind, router.nominal_Bps[links[node]].tobytes()), []).append(node)
        self.group, self.row = np.zeros(n_nodes, dtype=np.int64), np.zeros(n_nodes, dtype=np.int64)
        self.links = []
        for number, nodes in enumerate(groups.values()):
            self.group[nodes], self.row[nodes] = number, np.arange(len(nodes))
            self.links.append(np.array([links[node] for node in nodes], dtype=np.int64))
        self.first = [nodes[0] for nodes in groups.values()]
        nics = cluster.nic_of - cluster.first_nic
        self.leaf = cluster.nic_leaf[nics]
        self.unit = np.zeros(n_nodes, dtype=np.int64)
        self.look = self._looks(nics)

    def _looks(self, nics: Int) -> Int:
        """Return the numbers of looks; *nics* is the adapter of each port."""
        router, cluster, n_nodes = self.router, self.router.cluster, len(self.group)
        buses = (router.bus_out, cluster.nic_up[nics]), (router.bus_in, cluster.nic_down[nics])
        there = [np.minimum(*(router.nominal_Bps[link] for link in ends)) > 0 for ends in buses]
        own = nics.reshape(n_nodes, -1)
        rails = cluster.spec.fabric in ("rail", "rail_only")
        whole = len(router.left) == router.machine.wiring.n_links and bool(router.nominal_Bps.all())
        leaf = np.zeros_like(self.leaf)  # where all leaves are joined and equal
        if not whole or (rails and not self._has_units(cluster.spec.fabric)):
            leaf = self.leaf
        columns = [*(column.reshape(n_nodes, -1) for column in (*there, leaf)), own - own[:, :1]]
        table = np.concatenate([self.group[:, None], *columns], axis=1)
        seen: dict[bytes, int] = {}
        return np.array([seen.setdefault(row.tobytes(), len(seen)) for row in table])

    def _has_units(self, fabric: str) -> bool:
        """Return True if nodes share either all leaves, in the same places, or none; then say which in `unit`."""
        if fabric != "rail":  # elsewhere not all leaves are joined
            return False
        table = self.leaf.reshape(len(self.group), -1)
        seen: dict[bytes, int] = {}
        unit = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in table])
        owner = np.full(int(self.leaf.max()) + 1, -1)
        owner[self.leaf] = np.repeat(unit, table.shape[1])
        if not np.array_equal(owner[table], np.repeat(unit[:, None], table.shape[1], axis=1)):
            return False
        self.unit = unit
        return True

    def inside(self, a: Int, b: Int) -> tuple[RouteBlock, Bool]:
        """Return the ways between GPUs of one node, counted from 0 on, and bool[n]: whether there is one."""
        per_node = self.router.per_node
        node, parts, joined = a // per_node, [], np.asarray(a == b)
        for group in np.unique(self.group[node[~joined]]).tolist():
            routes, links, place = self._routes(group)
            ends = [place[gpus % per_node] for gpus in (a, b)]
            rows = np.flatnonzero((self.group[node] == group) & (a != b) & (np.minimum(*ends) >= 0))
            if routes is None or not len(rows):
                continue
            where = routes.find(ends[0][rows] * (int(place.max()) + 1) + ends[1][rows])
            there = routes.ptr[where + 1] > routes.ptr[where]
            rows, where = rows[there], where[there]
            joined[rows] = True
            ptr, entry = entries_of(routes.ptr, where)
            link = links[np.repeat(self.row[node[rows]], np.diff(ptr)), routes.link[entry]]
            parts.append(RouteBlock(rows, routes.latency_s[where], np.diff(ptr), link, routes.weight[entry]))
        return _padded(parts, len(a)), joined

    def _routes(self, group: int) -> tuple[Routes | None, Int, Int]:
        """Return the routes inside nodes of a group, the links of each of these, and the ranks of the GPUs there."""
        routes, _, place = self.router.inner_of(self.first[group])
        there = self.router.nominal_Bps[self.links[group][0]] > 0
        return routes, self.links[group][:, there], np.array(place)


def _padded(parts: Sequence[RouteBlock], n: int) -> RouteBlock:
    """Return *n* ways: those of *parts*, each at its place, and empty ones without latency between them."""
    nothing = np.zeros(0, dtype=np.int64)
    whole = RouteBlock.joined([*parts, RouteBlock(nothing, np.zeros(0), nothing, nothing, np.zeros(0))])
    hops, latency_s = np.zeros(n, dtype=np.int64), np.zeros(n)
    hops[whole.route], latency_s[whole.route] = whole.hops, whole.latency_s
    return RouteBlock(np.arange(n), latency_s, hops, whole.link, whole.weight)


class _Across:
    """Pairs of GPUs whose messages cross the network.

    Attributes
    ----------
    pairs, a, b : int64[n]
        Numbers of the pairs, and their GPUs as nodes.
    which : int64[n]
        Number of the combination of each.
    lanes : list of list of Lane
        Those of each combination.
    """

    def __init__(self, nodes: _Nodes, pairs: Int, a: Int, b: Int) -> None:
        self.nodes, self.router, self.pairs, self.a, self.b = nodes, nodes.router, pairs, a, b
        self.n_switches = len(self.router.cluster.up_ptr) - 1
        look, unit, per_node = nodes.look, nodes.unit, self.router.per_node
        n_kinds = (int(look.max()) + 1) * per_node
        kinds = [look[gpus // per_node] * per_node + gpus % per_node for gpus in (a, b)]
        together = unit[a // per_node] == unit[b // per_node]
        key, self.which = distinct((kinds[0] * n_kinds + kinds[1]) * 2 + together)
        first = np.empty(len(key), dtype=np.int64)
        first[self.which[::-1]] = np.arange(len(a))[::-1]
        self.lanes: list[list[Lane]] = [[] for _ in key]
        for i in np.argsort(first).tolist():  # so that the first pair without a way is the one that is named
            self.lanes[i] = self._lanes_of(int(a[first[i]]), int(b[first[i]]))

    def _lanes_of(self, a: int, b: int) -> list[Lane]:
        """Return the lanes of one pair."""
        router, per_node = self.router, self.router.per_node
        spots = [[(gpu % per_node, self._slot(gpu, nic)) for gpu, nic in lane] for lane in router.lanes(a, b)]
        return [Lane(*out, *into) for out, into in spots]

    def _slot(self, gpu: int, nic: int) -> int:
        """Return which of the adapters of a GPU one is."""
        cluster = self.router.cluster
        return int(np.flatnonzero(cluster.nic_of[cluster.nic_ptr[gpu] : cluster.nic_ptr[gpu + 1]] == nic)[0])

    def alike(self) -> Iterator[tuple[Int, Int]]:
        """Yield pairs with equally many lanes, and these as int64[n, n_lanes, 4]."""
        counts = np.array([len(lanes) for lanes in self.lanes])
        for count in np.unique(counts).tolist():
            chosen = np.flatnonzero(counts == count)
            table = np.array([self.lanes[i] for i in chosen.tolist()], dtype=np.int64)
            place = np.zeros(len(counts), dtype=np.int64)
            place[chosen] = np.arange(len(chosen))
            rows = np.flatnonzero(counts[self.which] == count)
            yield rows, table[place[self.which[rows]]]

    def ports(self, rows: Int, lanes: Int) -> tuple[Int, Int, Int, Int]:
        """Return the GPU and the port that messages leave by in one lane, int64[n, 4], and those they arrive by."""
        router, per_node = self.router, self.router.per_node
        out = self.a[rows] // per_node * per_node + lanes[:, 0]
        into = self.b[rows] // per_node * per_node + lanes[:, 2]
        first = router.cluster.nic_ptr
        return out, first[out] + lanes[:, 1], into, first[into] + lanes[:, 3]

    def middles(self, *, bundles: bool) -> tuple[_Middle, RouteBundles | None]:
        """Return the ways between all leaves that occur."""
        router, met = self.router, []
        for rows, lanes in self.alike():
            for lane in range(lanes.shape[1]):
                _, out, _, into = self.ports(rows, lanes[:, lane])
                met.append(distinct(self.nodes.leaf[out] * self.n_switches + self.nodes.leaf[into])[0])
        keys = np.unique(np.concatenate(met))
        climbs = Climbs(router)
        ways = [climbs.way(*divmod(key, self.n_switches)) for key in keys.tolist()]
        whole, found_bundles = climbs.blocks(ways, bundles=bundles)
        return _Middle(keys, whole), found_bundles and found_bundles.renumbered(router.before)

    def laid(self, rows: Int, lanes: Int, middle: _Middle) -> tuple[RouteBlock, list[HashedFlow]]:
        """Return the ways of some pairs, lane by lane one behind the other, and their flows."""
        pieces: list[RouteBlock] = []
        flows: list[HashedFlow] = []
        slowest = np.zeros(len(rows))
        share = 1 / lanes.shape[1]
        for lane in range(lanes.shape[1]):
            found, leaves, latency_s = self._lane(rows, lanes[:, lane], middle)
            pieces += [piece._replace(weight=piece.weight * share) for piece in found]
            slowest = np.maximum(slowest, latency_s)
            if self.router.cluster.spec.hashes:
                out = self.ports(rows, lanes[:, lane])[0]
                flows += self._flows(rows, out, leaves, latency_s, share)
        hops, link, weight = _one_behind_the_other(pieces)
        return RouteBlock(self.pairs[rows], slowest, hops, link, weight), flows

    def _lane(self, rows: Int, lane: Int, middle: _Middle) -> tuple[list[RouteBlock], Int, Float]:
        """Return the pieces of one lane, the pair of leaves as one number, and the latency."""
        router, cluster, machine = self.router, self.router.cluster, self.router.machine
        out_gpu, out, in_gpu, into = self.ports(rows, lane)
        first, last = (self.nodes.inside(*ends)[0] for ends in ((self.a[rows], out_gpu), (in_gpu, self.b[rows])))
        nics = [cluster.nic_of[port] - cluster.first_nic for port in (out, into)]
        outwards = np.stack([router.bus_out[out], cluster.nic_up[nics[0]]], axis=1)
        inwards = np.stack([cluster.nic_down[nics[1]], router.bus_in[into]], axis=1)
        leaves = self.nodes.leaf[out] * self.n_switches + self.nodes.leaf[into]
        between = middle.part.reordered(np.searchsorted(middle.keys, leaves))
        link_s, node_s = machine.link_latency_s, machine.node_latency_s
        ports_s = (link_s[outwards[:, 0]] + link_s[outwards[:, 1]]) + link_s[inwards[:, 0]] + link_s[inwards[:, 1]]
        passed = [cluster.nic_of[out], cluster.nic_of[into], cluster.first_leaf + self.nodes.leaf[into]]
        latency_s = first.latency_s + ports_s + between.latency_s + last.latency_s
        latency_s += node_s[passed[0]] + node_s[passed[1]] + node_s[passed[2]]
        return [first, _plain(outwards), between, _plain(inwards), last], leaves, latency_s

    def _flows(self, rows: Int, out: Int, leaves: Int, latency_s: Float, share: float) -> list[HashedFlow]:
        """Return the flows of one lane that a hash places: one per connection between two different leaves."""
        router = self.router
        count = router.cluster.spec.flows_per_pair
        ends = np.divmod(leaves, self.n_switches)
        columns = (self.pairs[rows], out, self.b[rows], *ends, latency_s)
        return [
            HashedFlow(pair, (leaf_a, leaf_b), f"{gpu}:{b}:{flow}", 1 / count * share, rest_s)
            for pair, gpu, b, leaf_a, leaf_b, rest_s in zip(*(column.tolist() for column in columns), strict=True)
            if leaf_a != leaf_b
            for flow in range(count)
        ]


class _Middle(NamedTuple):
    """The ways between leaves, by their pairs as one number, in order."""

    keys: Int
    part: RouteBlock


def _plain(links: Int) -> RouteBlock:
    """Return ways over int64[n, k] links that take the whole message, whose latency is counted elsewhere."""
    n, hops = links.shape
    return RouteBlock(np.arange(n), np.zeros(n), np.full(n, hops), links.ravel(), np.ones(n * hops))


def _one_behind_the_other(pieces: Sequence[RouteBlock]) -> tuple[Int, Int, Float]:
    """Return hops, links and weights of ways that take all *pieces*, which have one way for each of them."""
    hops = np.sum([piece.hops for piece in pieces], axis=0)
    begin = pointers(hops)[:-1].copy()
    link, weight = np.empty(hops.sum(), dtype=np.int64), np.empty(hops.sum())
    for piece in pieces:
        if len(piece.link):
            place = np.repeat(begin - pointers(piece.hops)[:-1], piece.hops)
            place += np.arange(len(place))
            link[place], weight[place] = piece.link, piece.weight
            begin += piece.hops
    return hops, link, weight
