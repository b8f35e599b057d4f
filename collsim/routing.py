"""Which links a message takes from one rank to another, and with which share of its bytes.

The shortest path in hops wins; where several are equally short the message is sprayed over all of them in proportion
to the narrowest link of each, at the rate that it should have: on an HGX H100 5/4/4/5 parts of 18 over the four
switches. Paths lead through switches if they can and through other GPUs only if they must. Where switches add and
multicast, a multicast takes its sender's links up and all links down, a load-reduce all links up and its receiver's
links down. What switches between the nodes add and copy follows a tree (`collsim.network_trees`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collsim.errors import Fault, NoRouteError, UnsupportedError
from collsim.fabric import Fabric, Float, Int
from collsim.schedule import EVERY, Groups
from collsim.schedule.in_network import members_of

if TYPE_CHECKING:
    from collsim.hashed_ways import Ways
    from collsim.network_trees import TreePorts

__all__ = ["Part", "Routes", "find_routes", "links_in_reach", "merge_trunks", "network_labels", "routes_of"]


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
    """

    ptr: Int
    link: Int
    weight: Float
    latency_s: Float
    slowdown: Float
    ways: Ways | None = None

    def take(self, which: Int, scale: Float) -> Routes:
        """Return the routes numbered *which*, each with its weights multiplied by *scale*."""
        counts = np.diff(self.ptr)[which]
        ptr = np.concatenate(([0], np.cumsum(counts)))
        entry = np.repeat(self.ptr[which] - ptr[:-1], counts) + np.arange(ptr[-1])
        return Routes(
            ptr,
            self.link[entry],
            self.weight[entry] * np.repeat(scale, counts),
            self.latency_s[which],
            self.slowdown[which],
        )

    def used_links(self, n_links: int) -> NDArray[np.bool_]:
        """Return bool[n_links]: whether any route takes the link."""
        used = np.zeros(n_links, dtype=np.bool_)
        used[self.link] = True
        return used

    def fastest_s(self) -> float:
        """Return the latency of the fastest route between two different ranks."""
        return float(self.latency_s[np.diff(self.ptr) > 0].min())

    def link_bytes(self, route_bytes: Float, n_links: int) -> Float:
        """Return float64[n_links], the load when route i carries ``route_bytes[i]``."""
        carried = np.repeat(route_bytes, np.diff(self.ptr)) * self.weight
        return np.bincount(self.link, weights=carried, minlength=n_links).astype(np.float64)


def find_routes(fabric: Fabric, ways: Ways | None = None, *, all_pairs: bool = True) -> Routes:
    """Return the routes between all ranks of *fabric*; in a cluster of many ranks those of a few pairs.

    Parameters
    ----------
    fabric : Fabric
    ways : Ways, optional
        Those of the same fabric but for the seed of its hash, so that only what that decides is found anew.
    all_pairs : bool
        Whether every rank must reach every other; if not, routes of pairs that cannot are empty.

    Raises
    ------
    UnsupportedError
        A cluster of too many ranks.
    NoRouteError
        Naming the groups of ranks that cannot reach each other.
    """
    cluster = fabric.machine.cluster
    if cluster is None:
        parts = _searched(fabric, all_pairs=all_pairs)
    else:
        from collsim.cluster_routing import between_nodes, kept_pairs

        ways = ways or between_nodes(fabric, find_routes, kept_pairs(fabric))
        parts = ways.drawn(cluster.spec.hash_seed)
    parts += [_through_all_switches(fabric, members) for members in _served(fabric)]
    return replace(_assemble(_slowdown(fabric), parts), ways=ways)


def links_in_reach(fabric: Fabric, routes: Routes) -> NDArray[np.bool_]:
    """Return bool[n_links]: what the *routes* of `find_routes` take, or in a cluster of many ranks what any could."""
    if fabric.machine.cluster is not None:
        from collsim.cluster_routing import ALL_PAIRS_UP_TO, links_around

        if fabric.n_ranks > ALL_PAIRS_UP_TO:
            around = links_around(fabric.machine)
            return around if fabric.healthy_link is None else around[fabric.healthy_link]
    return routes.used_links(fabric.n_links)


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
    kinds, which = np.unique(np.stack(ends, axis=1), axis=0, return_inverse=True)
    src, dst = kinds.T
    label = np.minimum(src, dst)
    over_network = np.isin(label, network_labels(fabric, groups))
    _refuse_forwarders(fabric, kinds[~over_network])
    # The switches that serve a group in a node are those of the node that its rank at the other end is in.
    number = np.where(src < 0, n * n + n + dst, np.where(dst < 0, n * n + src, src * n + dst))
    number[over_network] = 0  # the pair (0, 0), which is empty
    counts = np.diff(routes.ptr)[number]
    lacking = (counts == 0) & (src != dst) & ~over_network
    if not (over_network.any() or lacking.any()):
        return routes, number[which.reshape(-1)]
    known = routes.take(number, np.ones(len(number)))
    place = np.repeat(np.arange(len(number)), counts)
    parts = [(place, known.latency_s[place], known.link, known.weight)]
    if lacking.any():
        from collsim.cluster_routing import between_nodes

        pairs, cluster = np.flatnonzero(lacking), fabric.machine.cluster
        assert cluster is not None
        ways = between_nodes(fabric, find_routes, number[pairs])
        parts += [
            (pairs[np.searchsorted(number[pairs], part[0])], *part[1:]) for part in ways.drawn(cluster.spec.hash_seed)
        ]
    parts += _over_trees(fabric, kinds, np.flatnonzero(over_network), groups, ports)
    return _assemble(known.slowdown, parts), which.reshape(-1)


def network_labels(fabric: Fabric, groups: Groups) -> list[int]:
    """Return the labels of the groups that no single node holds."""
    node = fabric.wiring.coordinates.node[fabric.rank_node]
    return [EVERY - 1 - i for i, members in enumerate(groups) if len(np.unique(node[list(members)])) > 1]


def _refuse_forwarders(fabric: Fabric, kinds: Int) -> None:
    """Refuse multicasts and load-reduces in domains whose switches only forward, and both at once in any."""
    named, everyone, both = (kinds < EVERY).any(), (kinds == EVERY).any(), (kinds < 0).all(axis=1).any()
    if (named and fabric.node_in_network is None) or (everyone and fabric.in_network is None) or both:
        hint = "choose another algorithm, or a switched topology with in_network_reduction"
        raise UnsupportedError(Fault("the schedule needs switches that add and multicast", "topology", hint))


def _over_trees(fabric: Fabric, kinds: Int, rows: Int, groups: Groups, ports: TreePorts) -> list[Part]:
    """Return the entries of those *rows* of *kinds* that trees of the network carry."""
    from collsim.network_trees import plant

    parts = []
    trees = {}
    for row in sorted(rows.tolist(), key=lambda row: -int(kinds[row].min())):  # the first group chooses first
        src, dst = kinds[row].tolist()
        label = min(src, dst)
        if label not in trees:
            trees[label] = plant(fabric, members_of(label, fabric.n_ranks, groups), ports)
        links, shares, latency_s = trees[label].path(*(end if end >= 0 else None for end in (src, dst)))
        parts.append((np.full(len(links), row), np.full(len(links), latency_s), np.array(links), np.array(shares)))
    return parts


def _searched(fabric: Fabric, *, all_pairs: bool) -> list[Part]:
    """Return the routes of all pairs, the plainest ways first; raise as `find_routes` does."""
    n = fabric.n_ranks
    parts = [_direct(fabric)]
    todo = np.ones(n * n, dtype=np.bool_)
    todo[:: n + 1] = False
    todo[parts[0][0]] = False
    if todo.any():
        part = _through_one_switch(fabric, todo)
        todo[part[0]] = False
        parts.append(part)
    lost: list[int] = []
    for number in np.flatnonzero(todo):
        found = _search(fabric, int(number))
        if found is None:
            lost.append(int(number))
        else:
            parts.append(found)
    if lost and all_pairs:
        raise _no_route(fabric, lost)
    return parts


def _served(fabric: Fabric) -> list[Int]:
    """Return the groups of ranks for which switches add and multicast: all, or those of each node, if any."""
    if fabric.in_network:
        return [np.arange(fabric.n_ranks)]
    if not fabric.node_in_network:
        return []
    node = fabric.wiring.coordinates.node[fabric.rank_node]
    return [np.flatnonzero(node == each) for each in dict.fromkeys(node.tolist())]


def _slowdown(fabric: Fabric) -> Float:
    """Return float64[n_routes]: how much longer bytes take that switches add or multicast."""
    n = fabric.n_ranks
    slowdown = np.ones(n * n + (2 * n if fabric.in_network or fabric.node_in_network else 0))
    slowdown[n * n :] /= fabric.in_network_efficiency
    return slowdown


Part = tuple[Int, Float, Int, Float]
"""Entries of routes: pair, latency of the path, link, weight; each of length n_entries."""


def _direct(fabric: Fabric) -> Part:
    """Return the routes of pairs that a link joins."""
    wiring, n = fabric.wiring, fabric.n_ranks
    rank_of = np.full(len(wiring.node_names), -1, dtype=np.int64)
    rank_of[fabric.rank_node] = np.arange(n)
    src, dst = rank_of[wiring.link_src], rank_of[wiring.link_dst]
    link = np.flatnonzero((src >= 0) & (dst >= 0))
    return src[link] * n + dst[link], fabric.link_latency_s[link], link, np.ones(len(link))


def _through_one_switch(fabric: Fabric, todo: NDArray[np.bool_]) -> Part:
    """Return the routes, among the pairs marked *todo*, of those that share a switch: one path per switch plane."""
    wiring, n = fabric.wiring, fabric.n_ranks
    n_nodes, n_gpus = len(wiring.node_names), wiring.n_gpus
    number = np.full((n_nodes, n_nodes), -1, dtype=np.int64)
    number[wiring.link_src, wiring.link_dst] = np.arange(fabric.n_links)
    number[:, [kind == "nic" for kind in wiring.node_kinds]] = -1  # an adapter that two GPUs share joins none of them
    up, down = number[fabric.rank_node, n_gpus:], number[n_gpus:, fabric.rank_node].T
    rate = np.append(fabric.nominal_Bps, 0.0)
    src, dst = np.divmod(np.flatnonzero(todo), n)
    width = np.minimum(rate[up[src]], rate[down[dst]])
    row, switch = np.nonzero(width)
    first, second = up[src[row], switch], down[dst[row], switch]
    share = width[row, switch] / width.sum(axis=1)[row]
    latency = fabric.link_latency_s[first] + fabric.node_latency_s[n_gpus + switch] + fabric.link_latency_s[second]
    pair = src[row] * n + dst[row]
    return np.tile(pair, 2), np.tile(latency, 2), np.concatenate([first, second]), np.tile(share, 2)


def _through_all_switches(fabric: Fabric, members: Int) -> Part:
    """Return the multicasts and load-reduces of some ranks, sprayed over the switches that reach all of these.

    A load-reduce is a read: its request travels the path before the data do.
    """
    wiring, n, gpus = fabric.wiring, fabric.n_ranks, fabric.rank_node[members][:, None]
    met = wiring.link_dst[wiring.link_src == gpus[0]]
    switches = met[[wiring.node_kinds[node] == "switch" for node in met.tolist()]]
    up, down = wiring.find_links(gpus, switches), wiring.find_links(switches, gpus)
    shared = np.flatnonzero((up >= 0).all(axis=0) & (down >= 0).all(axis=0))
    up, down = up[:, shared], down[:, shared]
    parts = []
    for first, single, spread, trips in ((n * n, up, down, 1), (n * n + n, down, up, 2)):
        width = fabric.nominal_Bps[single]
        share = width / width.sum(axis=1, keepdims=True)
        one_way = fabric.link_latency_s[up].max() + fabric.link_latency_s[down].max()
        latency = trips * (one_way + float(fabric.node_latency_s[switches[shared]].max(initial=0.0)))
        pair, each = first + members, len(members)
        links = np.concatenate([single.ravel(), np.tile(spread.ravel(), each)])
        numbers = np.concatenate([np.repeat(pair, len(shared)), np.repeat(pair, each * len(shared))])
        weights = np.concatenate([share.ravel(), np.repeat(share, each, axis=0).ravel()])
        parts.append((numbers, np.full(len(links), latency), links, weights))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))  # type: ignore[return-value]


def _search(fabric: Fabric, pair: int) -> Part | None:
    """Return the route of one pair by breadth-first search, through switches if possible, else through GPUs too."""
    source, target = (int(fabric.rank_node[r]) for r in divmod(pair, fabric.n_ranks))
    paths = _shortest_paths(fabric, source, target, relays=False) or _shortest_paths(
        fabric, source, target, relays=True
    )
    if not paths:
        return None
    width = np.array([fabric.nominal_Bps[path].min() for path in paths])
    wiring = fabric.wiring
    latency = [
        float(fabric.link_latency_s[path].sum() + fabric.node_latency_s[wiring.link_src[path[1:]]].sum())
        for path in paths
    ]
    lengths = [len(path) for path in paths]
    return (
        np.full(sum(lengths), pair),
        np.repeat(latency, lengths),
        np.concatenate(paths),
        np.repeat(width / width.sum(), lengths),
    )


def _shortest_paths(fabric: Fabric, source: int, target: int, *, relays: bool) -> list[Int]:
    """Return all shortest paths from node to node as lists of links; GPUs forward only if *relays*."""
    wiring = fabric.wiring
    paths: dict[int, list[list[int]]] = {source: [[]]}
    seen = {source}
    while paths and target not in paths:
        following: dict[int, list[list[int]]] = {}
        for node, reached in paths.items():
            if node != source and node < wiring.n_gpus and not relays:
                continue
            for link in np.flatnonzero(wiring.link_src == node):
                after = int(wiring.link_dst[link])
                if after not in seen:
                    following.setdefault(after, []).extend([*path, int(link)] for path in reached)
        seen.update(following)
        paths = following
    return [np.array(path) for path in paths.get(target, [])]


def _assemble(slowdown: Float, parts: list[Part]) -> Routes:
    """Merge entries into routes; a link that several paths of a pair share gets the sum of their weights."""
    pair, link = (np.concatenate([part[column] for part in parts]).astype(np.int64) for column in (0, 2))
    latency, weight = (np.concatenate([part[column] for part in parts]).astype(np.float64) for column in (1, 3))
    n_routes, n_links = len(slowdown), int(link.max()) + 1
    key, inverse = np.unique(pair * n_links + link, return_inverse=True)
    merged_pair, merged_link = np.divmod(key, n_links)
    ptr = np.concatenate(([0], np.cumsum(np.bincount(merged_pair, minlength=n_routes))))
    slowest = np.zeros(n_routes)
    np.maximum.at(slowest, pair, latency)
    return Routes(ptr, merged_link, np.bincount(inverse, weights=weight).astype(np.float64), slowest, slowdown)


def _no_route(fabric: Fabric, lost: list[int]) -> NoRouteError:
    """Return the error that names who cannot reach whom."""
    by_source: dict[int, list[int]] = {}
    for number in lost:
        source, target = divmod(number, fabric.n_ranks)
        by_source.setdefault(source, []).append(target)
    faults = [
        Fault(
            f"rank {source} ({fabric.rank_name(source)}) cannot reach rank"
            f"{'s' if len(targets) > 1 else ''} {', '.join(map(str, targets[:8]))}"
            + (f" and {len(targets) - 8} more" if len(targets) > 8 else ""),
            "routing",
        )
        for source, targets in list(by_source.items())[:8]
    ]
    hint = "wire the groups together, or choose ranks of one group with --rank-list"
    faults.append(Fault(f"{len(by_source)} of {fabric.n_ranks} ranks cannot reach every other rank", "routing", hint))
    return NoRouteError(*faults)


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
    route = np.repeat(np.arange(len(routes.ptr) - 1), np.diff(routes.ptr))
    load = routes.weight * routes.slowdown[route]
    order = np.argsort(routes.link, kind="stable")
    links, starts = np.unique(routes.link[order], return_index=True)
    crossing, weight = np.split(route[order], starts[1:]), np.split(load[order], starts[1:])
    trunk_of: dict[tuple[bytes, bytes], int] = {}
    capacity: list[float] = []
    members: list[tuple[Int, Float]] = []
    for link, who, shares in zip(links, crossing, weight, strict=True):
        top = shares.max()
        relative = shares / top
        key = (who.tobytes(), np.round(relative, 12).tobytes())
        trunk = trunk_of.setdefault(key, len(capacity))
        if trunk == len(capacity):
            capacity.append(float(capacity_Bps[link] / top))
            members.append((who, relative))
        else:
            capacity[trunk] = min(capacity[trunk], float(capacity_Bps[link] / top))
    return _by_route(members, routes), np.array(capacity)


def _by_route(members: list[tuple[Int, Float]], routes: Routes) -> Routes:
    """Turn per-trunk lists of (routes, weights) into routes; what slows a route down is in its weights now."""
    n_routes = len(routes.latency_s)
    route = np.concatenate([who for who, _ in members])
    trunk = np.repeat(np.arange(len(members)), [len(who) for who, _ in members])
    order = np.argsort(route, kind="stable")
    ptr = np.concatenate(([0], np.cumsum(np.bincount(route, minlength=n_routes))))
    weight = np.concatenate([shares for _, shares in members])[order]
    return Routes(ptr, trunk[order], weight, routes.latency_s, np.ones(n_routes))
