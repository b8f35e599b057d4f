"""GPUs wired to their two neighbours: all messages over one distance are alike, whoever sends them."""

from __future__ import annotations

import numpy as np

from collsim.fabric.bounds.lower import find_cuts
from collsim.fabric.fabric import Float, Int, build_fabric
from collsim.fabric.routes import Routes
from collsim.library import Profile
from collsim.simulation.quotient.representatives import Pairs
from collsim.simulation.runs import LoweredRun
from collsim.topology import Topology, Wiring

__all__ = ["run_of_ring"]

LEAST = 4
"""With fewer GPUs both neighbours are one, or everyone is a neighbour."""


def run_of_ring(topology: Topology, profile: Profile, gpus: Int) -> tuple[LoweredRun, Pairs] | None:
    """Return a run whose routes carry what all messages over their distance carry, and one message for each.

    None if the machine is no ring of equal links in the order of its GPUs, or if not all of them take part.
    """
    n = topology.n_gpus
    if len(gpus) < n or topology.cluster is not None or topology.damage is not None:
        return None
    first = _first_links(topology.wiring)
    if first is None:
        return None
    fabric = build_fabric(topology, efficiency=profile.achievable_rate, latency=profile.latency)
    distance = np.arange(1, n)
    hops = np.stack([distance, n - distance], axis=1)
    # At half way round both ways are as short, and a message takes both in proportion to their rates.
    width = fabric.nominal_Bps[first] * (hops == hops.min(axis=1, keepdims=True))
    share = width / width.sum(axis=1, keepdims=True)
    latency_s = (hops * fabric.link_latency_s[first] * (share > 0)).max(axis=1)
    routes, single = (_routes(first, weight, latency_s) for weight in (share * hops, share))
    used = np.ones(fabric.n_links, dtype=np.bool_)
    cuts = find_cuts(fabric, used, float(fabric.link_latency_s[first].min()))
    members = np.zeros(fabric.n_links, dtype=np.int64)
    members[first] = n
    run = LoweredRun(topology, fabric, profile, routes, routes, fabric.capacity_Bps, cuts, None, used, single, members)
    none = np.zeros(n - 1, dtype=np.int64)
    return run, Pairs(none, distance, none + n, none + 1)


def _first_links(wiring: Wiring) -> Int | None:
    """Return the links of the first GPU to the next and to the last one; None if the others do not have such links."""
    n = wiring.n_gpus
    if n < LEAST or wiring.n_nodes > n or wiring.n_links != 2 * n:
        return None
    ends = np.arange(n)
    links = np.stack([wiring.find_links(ends, (ends + way) % n) for way in (1, -1)])
    if (links < 0).any():
        return None
    for column in (wiring.link_bandwidth_Bps, wiring.link_latency_s, wiring.link_efficiency):
        if (column[links] != column[links[:, :1]]).any():
            return None
    return links[:, 0]


def _routes(first: Int, weight: Float, latency_s: Float) -> Routes:
    """Return the routes from the first rank to every other, over two links with these weights."""
    row, way = np.nonzero(weight)
    n = len(weight) + 1
    counts = np.concatenate([[0, 0], np.cumsum(np.bincount(row, minlength=n - 1))])
    whole_s = np.concatenate([[0.0], latency_s])
    return Routes(counts, first[way], weight[row, way], whole_s, np.ones(n), number=np.arange(n))
