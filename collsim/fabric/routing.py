"""Routing: the links that a message takes from one rank to another, and with which share of its bytes.

The shortest path in hops wins; where several are equally short the message is sprayed over all of them in proportion
to the narrowest link of each, at the rate that it should have: on an HGX H100 5/4/4/5 parts of 18 over the four
switches. Paths lead through switches if they can and through other GPUs only if they must. Where switches add and
multicast, a multicast takes its sender's links up and all links down, a load-reduce all links up and its receiver's
links down. What switches between the nodes add and copy follows a tree (`collsim.fabric.reduction_trees`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct
from collsim.core.errors import Fault, UnsupportedError
from collsim.fabric.domain import ALL_PAIRS_UP_TO, all_ways, links_to_switches, pairs_of_kinds, ways_through_switches
from collsim.fabric.fabric import Fabric, Int
from collsim.fabric.routes import RouteBlock, RouteBundles, Routes, Ways, assemble, merge_trunks
from collsim.schedule import EVERY, Groups
from collsim.schedule.in_network import members_of

if TYPE_CHECKING:
    from collsim.fabric.reduction_trees import TreePorts

__all__ = [
    "RouteBlock",
    "Routes",
    "find_routes",
    "links_beside",
    "links_in_reach",
    "merge_trunks",
    "network_labels",
    "routes_of",
]

ALL_MULTICASTS_UP_TO = 2048
"""Of more ranks the multicasts and load-reduces of nodes are found when a schedule has them; of a domain alone already
when its pairs are."""

MOST_WHOLE = 1 << 14
"""Of more pairs links between switches may stand for others, so that a way of a hundred links takes ten."""


def find_routes(fabric: Fabric, ways: Ways | None = None, *, all_pairs: bool = True, alone: bool = False) -> Routes:
    """Return the routes between all ranks of *fabric*; where there are many ranks those of a few pairs.

    Parameters
    ----------
    fabric : Fabric
    ways : Ways, optional
        Those of the same fabric but for the seed of its hash, so that only what that decides is found anew.
    all_pairs : bool
        Whether every rank must reach every other; if not, routes of pairs that cannot are empty.
    alone : bool
        Whether no other group of ranks will run beside these.

    Raises
    ------
    NoRouteError
        Naming the groups of ranks that cannot reach each other.
    """
    n, cluster = fabric.n_ranks, fabric.machine.cluster
    few = None
    if cluster is not None:
        from collsim.fabric.cluster_routes import between_nodes, kept_pairs

        pairs = kept_pairs(fabric, alone=alone)
        ways = ways or between_nodes(fabric, pairs, bundles=len(pairs) > MOST_WHOLE and not cluster.spec.hashes)
        parts = ways.drawn(cluster.spec.hash_seed)
        few = pairs if len(pairs) < n * (n - 1) else None
    elif all_pairs and n > ALL_PAIRS_UP_TO and (few := pairs_of_kinds(fabric)) is not None:
        parts = [ways_through_switches(fabric, few)]
    else:
        parts = all_ways(fabric, all_pairs=all_pairs)
    if few is None or n <= (ALL_PAIRS_UP_TO if cluster is None else ALL_MULTICASTS_UP_TO):
        parts += _through_all_switches(fabric, _served(fabric))
    number = None
    if few is not None:
        number = np.unique(np.concatenate([[0], *(part.route for part in parts)]))
    slowdown = np.ones(_n_numbers(fabric) if number is None else len(number))
    slowdown[np.arange(len(slowdown)) >= n * n if number is None else number >= n * n] /= fabric.in_network_efficiency
    return replace(assemble(slowdown, parts, number), ways=ways, bundles=None if ways is None else ways.bundles)


def _n_numbers(fabric: Fabric) -> int:
    """Return the number of possible routes: one per pair of ranks, two per rank where switches add and multicast."""
    n = fabric.n_ranks
    return n * n + (2 * n if fabric.in_network or fabric.node_in_network else 0)


def links_in_reach(fabric: Fabric, routes: Routes) -> NDArray[np.bool_]:
    """Return bool[n_links]: what the *routes* of `find_routes` take, or where few are kept what any could."""
    if routes.number is None:
        return routes.used_links(fabric.n_links)
    if fabric.machine.cluster is not None:
        from collsim.fabric.cluster_routes import links_around

        around = links_around(fabric.machine)
        return around if fabric.healthy_link is None else around[fabric.healthy_link]
    rate = np.append(fabric.nominal_Bps, 0.0)
    _, up, down = links_to_switches(fabric)
    used = np.zeros(fabric.n_links + 1, dtype=np.bool_)
    there, back = rate[up] > 0, rate[down] > 0
    used[up[there & (back.sum(axis=0) > back)]] = True  # some other rank can be reached over the switch
    used[down[back & (there.sum(axis=0) > there)]] = True
    return used[:-1]


def links_beside(fabric: Fabric, used: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool[n_links]: links of the nodes that no route takes though messages between the ranks could.

    They join ranks and switches. GPUs that are no ranks forward only where a route leads through them; between nodes
    adapters and switches carry what routes give them. Nodes without a rank have none: nothing inside leads there.
    """
    wiring, kinds = fabric.wiring, fabric.wiring.node_kinds
    inside = np.ones(wiring.n_nodes, dtype=np.bool_)
    inside[: wiring.n_gpus] = False
    inside[fabric.rank_node] = True
    if "nic" in kinds:  # these and what is behind them come last
        inside[kinds.index("nic") :] = False
    within = inside[wiring.link_src] & inside[wiring.link_dst]
    beside = np.asarray(within & ~used)
    return beside & _near_ranks(fabric, within) if "nic" in kinds and beside.any() else beside


def _near_ranks(fabric: Fabric, within: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool[n_links]: links whose source is joined to a rank by links that are *within* nodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    wiring = fabric.wiring
    ends = wiring.link_src[within], wiring.link_dst[within]
    joined = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), (wiring.n_nodes,) * 2)
    part = connected_components(joined, directed=False)[1]
    has_rank = np.zeros(wiring.n_nodes, dtype=np.bool_)
    has_rank[part[fabric.rank_node]] = True
    return np.asarray(has_rank[part[wiring.link_src]])


def routes_of(
    fabric: Fabric, routes: Routes, ends: tuple[Int, Int], groups: Groups, ports: TreePorts
) -> tuple[Routes, Int]:
    """Return the routes of transfers, and which of them each takes.

    They are *routes* themselves if these have what it needs; else only those that are taken, with pairs that are too
    many to keep and trees of the network among them.

    Parameters
    ----------
    fabric : Fabric
    routes : Routes
        Of `find_routes`.
    ends : int64[n], int64[n]
        Source and target of each transfer: ranks, `EVERY` or labels of *groups*.
    groups : tuple of tuple of int
    ports : TreePorts
        What trees have taken; those of the transfers are added.

    Raises
    ------
    UnsupportedError
        Switches that only forward would have to add or multicast.
    NoRouteError
        A group has no tree in the network.
    """
    n = fabric.n_ranks
    lowest = min(int(ends[0].min(initial=0)), int(ends[1].min(initial=0)), 0)
    key, which = distinct((ends[0] - lowest) * (n - lowest) + (ends[1] - lowest))
    src, dst = (end + lowest for end in np.divmod(key, n - lowest))
    del key
    over_network = np.isin(np.minimum(src, dst), network_labels(fabric, groups)) if lowest < EVERY else src < lowest
    _refuse_forwarders(fabric, src[~over_network], dst[~over_network])
    # The switches that serve a group in a node are those of the node that its rank at the other end is in.
    number = np.where(src < 0, n * n + n + dst, np.where(dst < 0, n * n + src, src * n + dst))
    number[over_network | (src == dst)] = 0  # the pair (0, 0), which is empty
    place = routes.find(number)
    counts = routes.ptr[place + 1] - routes.ptr[place]
    lacking = (counts == 0) & (number > 0)
    if not (over_network.any() or lacking.any()):
        return routes, place[which]
    bundles = None
    found_alike = fabric.machine.cluster is not None or routes.number is not None
    if lacking.any() and found_alike and not over_network.any():
        lacking |= (number > 0) & (number < n * n)  # in order, and links stand for the same others in all routes
    kept = np.flatnonzero((counts > 0) & ~lacking)
    known = routes.take(place[kept], np.ones(len(kept)))
    if over_network.any():  # trees name the links that others stand for
        known = known.expanded()
    parts = [RouteBlock(kept, known.latency_s, np.diff(known.ptr), known.link, known.weight)]
    if lacking.any():
        found, bundles = _of_lacking(fabric, number, np.flatnonzero(lacking), bundles=not over_network.any())
        parts += found
    rows = np.flatnonzero(over_network)
    parts += _over_trees(fabric, rows, np.stack([src, dst], axis=1)[rows], groups, ports)
    slowdown = np.where(number < n * n, 1.0, 1 / fabric.in_network_efficiency)
    return replace(assemble(slowdown, parts), bundles=bundles), which


def _of_lacking(
    fabric: Fabric, number: Int, rows: Int, *, bundles: bool
) -> tuple[list[RouteBlock], RouteBundles | None]:
    """Return the ways of those *rows* of *number*, by which the parts name them, and links that others stand for."""
    found = None
    pairs, cluster = number[rows] < fabric.n_ranks**2, fabric.machine.cluster
    parts: list[RouteBlock] = []
    wanted = number[rows[pairs]]
    if len(wanted) and cluster is not None:
        from collsim.fabric.cluster_routes import between_nodes

        ways = between_nodes(fabric, wanted, bundles=bundles and not cluster.spec.hashes)
        parts, found = ways.drawn(cluster.spec.hash_seed), ways.bundles
    elif len(wanted):
        parts.append(ways_through_switches(fabric, wanted))
    if not pairs.all():
        node = fabric.wiring.coordinates.node[fabric.rank_node]
        met = np.isin(node, node[number[rows[~pairs]] % fabric.n_ranks])
        parts += _through_all_switches(fabric, [members for members in _served(fabric) if met[members].any()])
    order = rows[np.argsort(number[rows], kind="stable")]
    named = number[order]
    return [_renamed(part, named, order) for part in parts], found


def _renamed(part: RouteBlock, number: Int, row: Int) -> RouteBlock:
    """Return those ways of *part* whose route is one of *number*, int64[k] in order, named by *row*, int64[k]."""
    place = np.minimum(np.searchsorted(number, part.route), len(number) - 1)
    wanted = number[place] == part.route
    kept = part if wanted.all() else part.reordered(np.flatnonzero(wanted))
    return kept._replace(route=row[place[wanted]])


def network_labels(fabric: Fabric, groups: Groups) -> list[int]:
    """Return the labels of the groups that no single node holds."""
    node = fabric.wiring.coordinates.node[fabric.rank_node]
    return [EVERY - 1 - i for i, members in enumerate(groups) if len(np.unique(node[list(members)])) > 1]


def _refuse_forwarders(fabric: Fabric, src: Int, dst: Int) -> None:
    """Refuse multicasts and load-reduces in domains whose switches only forward, and both at once in any."""
    label, both = np.minimum(src, dst), (np.maximum(src, dst) < 0).any()
    named, everyone = (label < EVERY).any(), ((src == EVERY) | (dst == EVERY)).any()
    if (named and fabric.node_in_network is None) or (everyone and fabric.in_network is None) or both:
        hint = "choose another algorithm, or a switched topology with in_network_reduction"
        raise UnsupportedError(Fault("the schedule needs switches that add and multicast", "topology", hint))


def _over_trees(fabric: Fabric, rows: Int, ends: Int, groups: Groups, ports: TreePorts) -> list[RouteBlock]:
    """Return the ways of the *rows* that trees of the network carry, from end to end of *ends*, int64[k, 2]."""
    from collsim.fabric.reduction_trees import plant

    parts = []
    trees = {}
    for place in np.argsort(-ends.min(axis=1, initial=0), kind="stable").tolist():  # the first group chooses first
        row, (src, dst) = int(rows[place]), ends[place].tolist()
        label = min(src, dst)
        if label not in trees:
            trees[label] = plant(fabric, members_of(label, fabric.n_ranks, groups), ports)
        links, shares, latency_s = trees[label].path(*(end if end >= 0 else None for end in (src, dst)))
        parts.append(RouteBlock.of_one(row, latency_s, links, shares))
    return parts


def _served(fabric: Fabric) -> list[Int]:
    """Return the groups of ranks for which switches add and multicast: all, or those of each node, if any."""
    if fabric.in_network:
        return [np.arange(fabric.n_ranks)]
    if not fabric.node_in_network:
        return []
    node = distinct(fabric.wiring.coordinates.node[fabric.rank_node])[1]
    order = np.argsort(node, kind="stable")
    return sorted(np.split(order, np.cumsum(np.bincount(node))[:-1]), key=lambda members: int(members[0]))


def _through_all_switches(fabric: Fabric, groups: Sequence[Int]) -> list[RouteBlock]:
    """Return the multicasts and load-reduces of groups of ranks, sprayed over the switches that reach all of a group.

    A load-reduce is a read: its request travels the path before the data do.
    """
    wiring = fabric.wiring
    kinds = wiring.node_kinds
    shapes: dict[tuple[int, int], list[tuple[Int, Int]]] = {}
    for members in groups:
        first = int(fabric.rank_node[members[0]])
        met = wiring.link_dst[slice(*np.searchsorted(wiring.link_src, (first, first + 1)))]
        switches = met[[kinds[node] == "switch" for node in met.tolist()]]
        shapes.setdefault((len(members), len(switches)), []).append((members, switches))
    alike = ((np.array(column) for column in zip(*each, strict=True)) for each in shapes.values())
    return [part for members, switches in alike for part in _through_shared(fabric, members, switches)]


def _through_shared(fabric: Fabric, members: Int, switches: Int) -> list[RouteBlock]:
    """Return the same of groups of as many members, int64[groups, k], with as many switches, int64[groups, s]."""
    gpus = fabric.rank_node[members]
    ends = gpus[:, :, None], switches[:, None, :]
    up, down = fabric.wiring.find_links(*ends), fabric.wiring.find_links(*ends[::-1])
    shared = np.asarray((up >= 0).all(axis=1) & (down >= 0).all(axis=1))
    parts = []
    kinds = {row.tobytes(): row for row in shared}  # np.unique of rows would load numpy.ma
    for _, row in sorted(kinds.items()):
        of = np.flatnonzero((shared == row).all(axis=1))
        links = (each[of][:, :, row] for each in (up, down))
        parts.append(_sprayed(fabric, members[of], switches[of][:, row], *links))
    return parts


def _sprayed(fabric: Fabric, members: Int, switches: Int, up: Int, down: Int) -> RouteBlock:
    """Return the same, where *up* and *down* are the links, int64[groups, k, s], between members and switches."""
    n, (groups, each, n_switches) = fabric.n_ranks, up.shape
    link_s, node_s = fabric.link_latency_s, fabric.node_latency_s[switches].max(axis=1, initial=0.0)
    one_way_s = link_s[up].max(axis=(1, 2)) + link_s[down].max(axis=(1, 2)) + node_s
    parts = []
    for first, single, spread, trips in ((n * n, up, down, 1), (n * n + n, down, up, 2)):
        width = fabric.nominal_Bps[single]
        share = width / width.sum(axis=2, keepdims=True)
        to_all = (groups, each, each * n_switches)
        link = np.concatenate([single, np.broadcast_to(spread.reshape(groups, 1, -1), to_all)], axis=2)
        weight = np.concatenate([share, np.broadcast_to(np.tile(share, (1, 1, each)), to_all)], axis=2)
        hops = np.full(members.size, link.shape[2], dtype=np.int64)
        latency_s = np.repeat(trips * one_way_s, each)
        parts.append(RouteBlock((first + members).ravel(), latency_s, hops, link.ravel(), weight.ravel()))
    return RouteBlock.joined(parts)
