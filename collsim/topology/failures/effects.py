"""Effects of losses on messages between nodes, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collsim.topology.cluster.spec import Cluster
from collsim.topology.failures.losses import Wreck
from collsim.topology.failures.selectors import keyed
from collsim.topology.wiring import Wiring

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
    """Return sentences on what is missing between the nodes, and where messages go instead.

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
    gone = wreck.links.take(np.flatnonzero(wreck.cables == 0))
    low, high = np.minimum(gone.src, gone.dst), np.maximum(gone.src, gone.dst)
    gpus = _around(cluster, wiring, np.concatenate([low, high]))
    nics = cluster.nic_of.reshape(-1, cluster.spec.nics_per_gpu)[gpus]
    off = np.isin(nics, low[high >= cluster.first_leaf])
    off |= np.isin(gpus[:, None] * wiring.n_nodes + nics, low * wiring.n_nodes + high)
    left, full = (~off).sum(axis=1), np.full(len(gpus), nics.shape[1])
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
    hurt = wreck.links.src[(np.minimum(wreck.links.src, wreck.links.dst) >= first) & wreck.alive[wreck.links.src]]
    switches = np.unique(hurt) - first
    keys, links = keyed(wiring, first + switches)
    src, dst = links.src - first, links.dst - first
    own = np.flatnonzero(np.isin(src, switches) & (dst >= 0))
    own = own if level else own[tier[dst[own]] > tier[src[own]]]
    at = np.searchsorted(switches, src[own])
    left, full = (np.bincount(at, cables[own], len(switches)) for cables in (wreck.left(keys, links), links.parallel))
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
