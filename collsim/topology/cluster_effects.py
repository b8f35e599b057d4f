"""What follows for messages between nodes when something of a cluster is missing, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collsim.topology.cluster import Cluster
from collsim.topology.model import Wiring

__all__ = ["cluster_effects", "kept_of", "listed"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
MOST_NAMES = 4
"""A sentence names at most this many things."""
TIERS = ("to spines", "to cores")
"""Where the cables above a leaf and above a spine lead."""


def listed(names: Sequence[str]) -> str:
    """Return a few names in a row."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def kept_of(names: Sequence[str], alive: Mask, left: Ints, full: Ints, what: str) -> list[str]:
    """Return who keeps how many of *what*, one sentence for each number.

    >>> yes = np.ones(3, dtype=np.bool_)
    >>> kept_of(["a", "b", "c"], yes, np.array([1, 2, 1]), np.array([2, 2, 2]), "cables")
    ['a, c keep 1 of 2 cables']
    """
    short = np.flatnonzero(alive & (left < full))
    told = []
    for some, all_of in dict.fromkeys(zip(left[short].tolist(), full[short].tolist(), strict=True)):
        whose = [names[int(one)] for one in short if (left[one], full[one]) == (some, all_of)]
        told.append(f"{listed(whose)} keep{'s' * (len(whose) == 1)} {some:g} of {all_of:g} {what}")
    return told


def cluster_effects(cluster: Cluster, wiring: Wiring, alive: Mask, cables: Ints) -> list[str]:
    """Return what is missing between the nodes, and where messages go instead.

    Parameters
    ----------
    cluster : Cluster
    wiring : Wiring
        In order, as numbers of *cluster* count.
    alive : bool[n_nodes]
    cables : int64[n_links]
        What is left of each link.
    """
    return [*_adapters(cluster, wiring, alive, cables), *_switches(cluster, wiring, alive, cables)]


def _adapters(cluster: Cluster, wiring: Wiring, alive: Mask, cables: Ints) -> list[str]:
    """Return which GPUs have lost adapters, or the way of these to the network."""
    gpu = np.repeat(np.arange(wiring.n_gpus), np.diff(cluster.nic_ptr))
    nic = cluster.nic_of - cluster.first_nic
    on = (cables[cluster.nic_up] > 0) & (cables[cluster.nic_down] > 0)
    bus = (cables[wiring.find_links(gpu, cluster.nic_of)] > 0) & (cables[wiring.find_links(cluster.nic_of, gpu)] > 0)
    left = np.bincount(gpu, on[nic] & bus, minlength=wiring.n_gpus)
    gpus = alive[: wiring.n_gpus]
    node = wiring.coordinates.node
    joined = np.bincount(node, left * gpus)[node] > 0
    told = kept_of(wiring.node_names, gpus & (left > 0), left, np.diff(cluster.nic_ptr), "adapters")
    for without, then in ((joined, "messages go through those of other GPUs of the node"), (~joined, "node is alone")):
        names = [wiring.node_names[int(one)] for one in np.flatnonzero(gpus & (left == 0) & without)]
        if names:
            has, its = ("has", "its") if len(names) == 1 else ("have", "their")
            told.append(f"{listed(names)} {has} no adapter: {its} {then}")
    return told


def _switches(cluster: Cluster, wiring: Wiring, alive: Mask, cables: Ints) -> list[str]:
    """Return which switches have lost cables upwards, in a dragonfly to any other, and what becomes of messages."""
    first = cluster.first_leaf
    among = np.flatnonzero(np.minimum(wiring.link_src, wiring.link_dst) >= first)
    src, dst = wiring.link_src[among] - first, wiring.link_dst[among] - first
    tier = cluster.switch_tier
    level = cluster.spec.fabric == "dragonfly"
    upwards = np.ones(len(among), dtype=np.bool_) if level else tier[dst] > tier[src]
    left, full = (np.bincount(src[upwards], count[among][upwards], len(tier)) for count in (cables, wiring.link_count))
    names, there = wiring.node_names[first:], alive[first:]
    told = []
    for number in range(3):
        what = "to other switches" if level else TIERS[min(number, 1)]
        told += kept_of(names, there & (tier == number), left, full, f"cables {what}")
    if told:
        anew = "hashed anew over" if cluster.spec.routing == "ecmp" else "spread over"
        told[-1] += f"; messages are {anew} those"
    return told
