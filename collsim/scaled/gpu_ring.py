"""GPUs wired to their two neighbours: all messages over one distance are alike, whoever sends them."""

from __future__ import annotations

import numpy as np

from collsim.bounds import find_cuts
from collsim.fabric import Int, build_fabric
from collsim.library import Profile
from collsim.lowering import Run
from collsim.routing import Routes
from collsim.topology import Topology
from collsim.topology.miniature import Pairs

__all__ = ["run_of_ring"]


def run_of_ring(topology: Topology, profile: Profile, gpus: Int) -> tuple[Run, Pairs] | None:
    """Return a run whose routes carry what all messages over their distance carry, and one message for each.

    None if the machine is no ring of equal links in the order of its GPUs, or if not all of them take part.
    """
    wiring, n = topology.wiring, topology.n_gpus
    if topology.cluster is not None or wiring.n_nodes > n or wiring.n_links != 2 * n or len(gpus) < n:
        return None
    forward = (wiring.link_dst - wiring.link_src) % n == 1
    backward = (wiring.link_src - wiring.link_dst) % n == 1
    columns = (wiring.link_bandwidth_Bps, wiring.link_latency_s, wiring.link_efficiency)
    alike = all((column[way] == column[way][0]).all() for column in columns for way in (forward, backward) if way.any())
    if n < 4 or not (forward.sum() == backward.sum() == n and alike and (gpus == np.arange(n)).all()):
        return None
    fabric = build_fabric(topology, gpus.tolist(), efficiency=profile.achievable_rate, latency=profile.latency)
    distance = np.arange(1, n)
    there, back = (int(np.flatnonzero(way & (wiring.link_src == 0))[0]) for way in (forward, backward))
    width = fabric.nominal_Bps[[there, back]]
    # At half way round both ways are as short, and a message takes both in proportion to their rates.
    share = np.where(2 * distance == n, width[0] / width.sum(), 2 * distance < n).astype(np.float64)
    hops = np.stack([share * distance, (1 - share) * (n - distance)], axis=1)
    latency_s = np.maximum(
        *(
            np.where(hops[:, way] > 0, 1, 0) * (distance if way == 0 else n - distance) * fabric.link_latency_s[link]
            for way, link in enumerate((there, back))
        )
    )
    used = np.ones(wiring.n_links, dtype=np.bool_)
    routes, single = (
        _from_first(n, weights, latency_s, (there, back))
        for weights in (hops, (hops > 0) * np.stack([share, 1 - share], axis=1))
    )
    cuts = find_cuts(fabric, used, float(min(fabric.link_latency_s[[there, back]])))
    members = np.where(np.isin(np.arange(wiring.n_links), [there, back]), n, 0)
    run = Run(topology, fabric, profile, routes, routes, fabric.capacity_Bps, cuts, None, used, single, members)
    none = np.zeros(n - 1, dtype=np.int64)
    return run, Pairs(none, distance, none + n, none + 1)


def _from_first(n: int, weights: np.ndarray, latency_s: np.ndarray, links: tuple[int, int]) -> Routes:
    """Return the routes of all pairs, those from the first rank over two links with these weights, others empty."""
    row, way = np.nonzero(weights > 0)
    counts = np.zeros(n * n, dtype=np.int64)
    counts[1:n] = np.bincount(row, minlength=n - 1)
    whole_s = np.zeros(n * n)
    whole_s[1:n] = latency_s
    return Routes(
        np.concatenate([[0], np.cumsum(counts)]), np.array(links)[way], weights[row, way], whole_s, np.ones(n * n)
    )
