"""Groups of ranks that are alike on links of their own: one of each class is prepared and stands for all.

Two groups are alike if their nodes can be put in place of each other, in order, GPU by GPU: nodes of one kind, the same
GPUs of each in the same order, adapters on leaves that are shared alike, and every link round them as fast. That is
looked up in the wiring, link by link. It holds for traffic that stays below the leaves, of machines in order.

Groups of one GPU of each node, such as the rails of a cluster, may pass switches above leaves: there it is looked up in
the routes of all their pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from collsim.core.arrays import distinct
from collsim.fabric.fabric import Fabric, Float, Int
from collsim.library import system_of
from collsim.library.costs.channel_costs import Bool
from collsim.simulation.runs import LoweredRun
from collsim.topology import Topology

__all__ = ["Copies", "classes_of_groups", "copies_of", "rails_alike", "share_links"]


class Copies(NamedTuple):
    """Groups that one run stands for, itself first."""

    numbers: tuple[int, ...]
    """Of the groups among all."""
    gpus: tuple[tuple[int, ...], ...]
    link: Int
    """int64[n]: links round the group of the run."""
    images: Int
    """int64[n_groups, n]: the same links round each of the groups."""

    def link_bytes(self, carried_bytes: Float) -> Float:
        """Return float64[n_links]: what all groups put on every link, from what the group of the run does."""
        found = np.zeros(len(carried_bytes))
        np.add.at(found, self.images, np.broadcast_to(carried_bytes[self.link], self.images.shape))
        return found


def classes_of_groups(topology: Topology, groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return numbers of groups, those together that stand alike in their nodes and racks; classes by their first."""
    cluster = topology.cluster
    if cluster is None or topology.damage is not None or len({len(group) for group in groups}) > 1:
        return [(number,) for number in range(len(groups))]
    where = topology.wiring.coordinates
    classes: dict[tuple[bytes, ...], list[int]] = {}
    for number, group in enumerate(groups):
        gpus = np.array(group)
        nodes, node = distinct(where.node[gpus])
        pod = distinct(where.pod[gpus])[1]
        key = tuple(column.tobytes() for column in (node, where.local[gpus], pod, cluster.kind[nodes]))
        classes.setdefault(key, []).append(number)
    return [tuple(numbers) for numbers in classes.values()]


def copies_of(
    topology: Topology, fabric: Fabric, used: Bool, groups: Sequence[Sequence[int]], numbers: tuple[int, ...]
) -> Copies | None:
    """Return the groups *numbers* as copies of the first, whose *fabric* and *used* links are given.

    None if messages of the first pass switches above the leaves, or links round some group are not as those round it.
    """
    cluster, wiring = topology.cluster, topology.wiring
    assert cluster is not None
    place_of = [_places(topology, groups[number]) for number in numbers]
    first = place_of[0]
    if any(len(places) != len(first) for places in place_of):
        return None
    places = np.array(place_of)
    at = np.full(wiring.n_nodes, -1, dtype=np.int64)
    at[first[::-1]] = np.arange(len(first))[::-1]
    if (places != places[:, at[first]]).any():  # a leaf of the first is two of another group
        return None
    own = np.zeros(wiring.n_nodes, dtype=np.bool_)
    own[first] = first < cluster.first_leaf
    inside = (at[wiring.link_src] >= 0) & (at[wiring.link_dst] >= 0)
    link = np.flatnonzero(inside & (own[wiring.link_src] | own[wiring.link_dst]))
    if np.count_nonzero(used) != np.count_nonzero(used[link]):
        return None
    images = wiring.find_links(places[:, at[wiring.link_src[link]]], places[:, at[wiring.link_dst[link]]])
    lone = np.array([len(np.unique(row)) for row in images]) == len(link)
    figures = (fabric.capacity_Bps, fabric.raw_capacity_Bps, fabric.link_latency_s, fabric.nominal_Bps)
    alike = all((column[images] == column[link]).all() for column in figures)
    alike &= bool((fabric.node_latency_s[places] == fabric.node_latency_s[first]).all())
    gpus = tuple(tuple(groups[number]) for number in numbers)
    return Copies(numbers, gpus, link, images) if alike and lone.all() and (images >= 0).all() else None


def _places(topology: Topology, group: Sequence[int]) -> Int:
    """Return the numbers of all that belongs to the nodes of a group: GPUs, switches, adapters, and leaves of these."""
    cluster = topology.cluster
    assert cluster is not None
    where = topology.wiring.coordinates.node
    found = []
    for node in np.unique(where[list(group)]).tolist():
        nics = np.flatnonzero(cluster.nic_node == node)
        found += [
            np.flatnonzero(where == node),
            np.arange(cluster.first_inner[node], cluster.first_inner[node + 1]),
            cluster.first_nic + nics,
            cluster.first_leaf + cluster.nic_leaf[nics],
        ]
    return np.concatenate(found)


def rails_alike(
    topology: Topology, groups: Sequence[Sequence[int]], prepared: Callable[[Sequence[int]], LoweredRun]
) -> tuple[LoweredRun, Copies] | None:
    """Return the run of the first of groups of one GPU of each node, of which the others are copies on other links.

    None if one of them does not look like the first one, or two of them can meet on a link.
    """
    cluster, where = topology.cluster, topology.wiring.coordinates
    if cluster is None or topology.damage is not None or len(cluster.kinds) > 1:
        return None
    nodes = where.node[np.array(groups)]
    if (nodes != nodes[0]).any() or len(np.unique(nodes[0])) < len(nodes[0]):
        return None
    first, look, images = None, b"", []
    for group in groups:
        if system_of(topology, group) != system_of(topology, groups[0]):
            return None
        run = prepared(group)
        links = _by_first_use(run)
        if links is None or (first is not None and _look(run, *links) != look):
            return None
        if first is None:
            first, look = run, _look(run, *links)
        images.append(links[0])
    if first is None or len(np.unique(np.concatenate(images))) < sum(map(len, images)):
        return None
    numbers, gpus = tuple(range(len(groups))), tuple(map(tuple, groups))
    return first, Copies(numbers, gpus, images[0], np.array(images))


def _by_first_use(run: LoweredRun) -> tuple[Int, Int, Float] | None:
    """Return the links of a run's routes in the order in which these first take them, then those that others stand for;
    the place of the link of each hop among them, then of those others; and what these carry of that. None unless the
    routes of all pairs are kept.
    """
    routes = run.routes
    if routes.number is not None:
        return None
    links, place = distinct(routes.link)
    begin = np.empty(len(links), dtype=np.int64)
    begin[place[::-1]] = np.arange(len(place))[::-1]
    order = np.argsort(begin)
    rank = np.empty(len(links), dtype=np.int64)
    rank[order] = np.arange(len(links))
    if routes.bundles is None:
        return links[order], rank[place], np.zeros(0)
    met = np.isin(routes.bundles.leader, links)
    follower, factor = routes.bundles.link[met], routes.bundles.factor[met]
    lead = rank[np.searchsorted(links, routes.bundles.leader[met])]
    by_lead = np.argsort(lead, kind="stable")
    taken = np.concatenate([links[order], follower[by_lead]])
    return taken, np.concatenate([rank[place], lead[by_lead]]), factor[by_lead]


def _look(run: LoweredRun, links: Int, place: Int, factor: Float) -> bytes:
    """Return a hash of all that the times of a run depend on beside the kind of its nodes."""
    routes, fabric, cuts = run.routes, run.fabric, run.cuts
    where, gpus = run.topology.wiring.coordinates, fabric.rank_node
    figures = (fabric.capacity_Bps, fabric.raw_capacity_Bps, fabric.nominal_Bps, fabric.link_latency_s)
    columns = [
        place,
        factor,
        routes.ptr,
        routes.weight,
        routes.latency_s,
        routes.slowdown,
        distinct(where.pod[gpus])[1],
    ]
    columns += [column[links] for column in figures]
    columns += [*run.port_rates_Bps, cuts.capacity_Bps, cuts.egress_Bps, np.array([cuts.latency_s])]
    columns += [] if fabric.memory_Bps is None else [fabric.memory_Bps]
    digest = hashlib.blake2b()
    for column in columns:
        digest.update(str(len(column)).encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def share_links(used: Sequence[Bool], copies: Sequence[Copies]) -> bool:
    """Return True if any two groups of all copies can meet on a link; *used* is bool[n_links] for each run."""
    met = [each.images[:, own[each.link]].ravel() for own, each in zip(used, copies, strict=True)]
    links = np.concatenate(met)
    return len(np.unique(links)) < len(links)
