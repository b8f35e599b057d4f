"""What follows for messages between nodes when something of a cluster is missing, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collsim.topology.cluster import Cluster
from collsim.topology.model import Wiring
from collsim.topology.wreck import Wreck

__all__ = ["cluster_effects", "kept_of", "listed"]

Ints = NDArray[np.int64]
MOST_NAMES = 4
"""A sentence names at most this many things."""
TIERS = ("to spines", "to cores")
"""Where the cables above a leaf and above a spine lead."""


def listed(names: Sequence[str]) -> str:
    """Return a few names in a row."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def kept_of(names: Sequence[str], left: Ints, full: Ints, what: str) -> list[str]:
    """Return who keeps how many of *what*, one sentence for each number.

    >>> kept_of(["a", "b", "c"], np.array([1, 2, 1]), np.array([2, 2, 2]), "cables")
    ['a, c keep 1 of 2 cables']
    """
    told = []
    for some, all_of in dict.fromkeys(zip(left[left < full].tolist(), full[left < full].tolist(), strict=True)):
        whose = [names[one] for one in np.flatnonzero((left == some) & (full == all_of)).tolist()]
        told.append(f"{listed(whose)} keep{'s' * (len(whose) == 1)} {some:g} of {all_of:g} {what}")
    return told


def cluster_effects(cluster: Cluster, wiring: Wiring, wreck: Wreck) -> list[str]:
    """Return what is missing between the nodes, and where messages go instead.

    Parameters
    ----------
    cluster : Cluster
    wiring : Wiring
        In order, as numbers of *cluster* count.
    wreck : Wreck
    """
    return [*_adapters(cluster, wiring, wreck), *_switches(cluster, wiring, wreck)]


def _adapters(cluster: Cluster, wiring: Wiring, wreck: Wreck) -> list[str]:
    """Return which GPUs have lost adapters, or the way of these to the network."""
    gpus = _around(cluster, wiring, np.concatenate([wreck.src, wreck.dst]))
    nics = cluster.nic_of.reshape(-1, cluster.spec.nics_per_gpu)[gpus]
    own, number = np.repeat(gpus, nics.shape[1]), nics.ravel() - cluster.first_nic
    ways = (
        cluster.nic_up[number], cluster.nic_down[number],
        wiring.find_links(own, nics.ravel()), wiring.find_links(nics.ravel(), own),
    )  # fmt: skip
    works = np.min([wreck.left(wiring, way) for way in ways], axis=0, initial=1) > 0
    left, full = works.reshape(nics.shape).sum(axis=1), np.full(len(gpus), nics.shape[1])
    alive = wreck.alive[gpus]
    node = wiring.coordinates.node[gpus]
    joined = np.bincount(node, left * alive)[node] > 0
    names = np.array([wiring.node_names[gpu] for gpu in gpus.tolist()])
    some = alive & (left > 0)
    told = kept_of(names[some].tolist(), left[some], full[some], "adapters")
    for without, then in ((joined, "messages go through those of other GPUs of the node"), (~joined, "node is alone")):
        bare = names[alive & (left == 0) & without].tolist()
        if bare:
            has, its = ("has", "its") if len(bare) == 1 else ("have", "their")
            told.append(f"{listed(bare)} {has} no adapter: {its} {then}")
    return told


def _around(cluster: Cluster, wiring: Wiring, ends: Ints) -> Ints:
    """Return the GPUs of all nodes with a GPU or an adapter among the *ends* of links."""
    adapters = ends[(ends >= cluster.first_nic) & (ends < cluster.first_leaf)] - cluster.first_nic
    node = np.concatenate([wiring.coordinates.node[ends[ends < wiring.n_gpus]], cluster.nic_node[adapters]])
    per = cluster.spec.gpus_per_node
    return (np.unique(node)[:, None] * per + np.arange(per)).ravel()


def _switches(cluster: Cluster, wiring: Wiring, wreck: Wreck) -> list[str]:
    """Return which switches have lost cables upwards, in a dragonfly to any other, and what becomes of messages."""
    first, tier = cluster.first_leaf, cluster.switch_tier
    level = cluster.spec.fabric == "dragonfly"
    switches = np.unique(wreck.src[(np.minimum(wreck.src, wreck.dst) >= first) & wreck.alive[wreck.src]]) - first
    links = wiring.leaving(first + switches)
    links = links[wiring.link_dst[links] >= first]
    src, dst = wiring.link_src[links] - first, wiring.link_dst[links] - first
    upwards = np.ones(len(links), dtype=np.bool_) if level else tier[dst] > tier[src]
    left, full = (
        np.bincount(np.searchsorted(switches, src[upwards]), cables[upwards], len(switches))
        for cables in (wreck.left(wiring, links), wiring.link_count[links])
    )
    told = []
    for number in range(3):
        what = "to other switches" if level else TIERS[min(number, 1)]
        here = tier[switches] == number
        names = [wiring.node_names[first + switch] for switch in switches[here].tolist()]
        told += kept_of(names, left[here], full[here], f"cables {what}")
    if told:
        anew = "hashed anew over" if cluster.spec.routing == "ecmp" else "spread over"
        told[-1] += f"; messages are {anew} those"
    return told
