"""Groups of ranks that are alike on links of their own: one of each class is prepared and stands for all.

Two groups are alike if their nodes can be put in place of each other, in order, GPU by GPU: nodes of one kind, the same
GPUs of each in the same order, adapters on leaves that are shared alike, and every link round them as fast. That is
looked up in the wiring, link by link. It holds for traffic that stays below the leaves, of machines in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collsim.core.arrays import distinct
from collsim.fabric.fabric import Fabric, Float, Int
from collsim.library.costs.channel_costs import Bool
from collsim.topology import Topology

__all__ = ["Copies", "classes_of_groups", "copies_of", "share_links"]


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


def share_links(used: Sequence[Bool], copies: Sequence[Copies]) -> bool:
    """Return True if any two groups of all copies can meet on a link; *used* is bool[n_links] for each run."""
    met = [each.images[:, own[each.link]].ravel() for own, each in zip(used, copies, strict=True)]
    links = np.concatenate(met)
    return len(np.unique(links)) < len(links)
