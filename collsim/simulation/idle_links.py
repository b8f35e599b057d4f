"""Links between switches that never fill, whatever is sent, so that nothing has to be told apart by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collsim.core.arrays import distinct, pointers
from collsim.fabric.fabric import Float
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool
from collsim.simulation.lowering import narrowest_Bps

__all__ = ["without_idle"]


def without_idle(routes: Routes, capacity_Bps: Float, over_network: Bool) -> Routes:
    """Return *routes* without links between switches that never fill, so that these tell no messages apart.

    What crosses a link has passed the narrowest link of its route, its gate, in the same proportion: all that comes
    through a gate puts no more on the link than the capacity of the gate times the largest share of a route that goes
    there. Where that is no more than the link carries, over all gates, the link never holds anybody back, whatever is
    sent. Gates stay, and so do links that not only messages *over_network* cross.
    """
    n, n_links = len(routes.latency_s), len(capacity_Bps)
    owner = np.repeat(np.arange(n), np.diff(routes.ptr))
    least_Bps = narrowest_Bps(routes, capacity_Bps)
    tied = np.flatnonzero(capacity_Bps[routes.link] / routes.weight <= least_Bps[owner] * (1 + 1e-12))
    full = routes.weight * least_Bps[owner]
    idle = np.zeros(n_links, dtype=np.bool_)
    for order in (tied, tied[::-1]):  # gates of senders and of receivers, in some order
        gate = np.full(n, -1)
        gate[owner[order]] = routes.link[order]
        cell, place = distinct(routes.link * n_links + gate[owner])
        most_Bps = np.zeros(len(cell))
        np.maximum.at(most_Bps, place, full)
        idle |= np.bincount(cell // n_links, most_Bps, n_links) <= capacity_Bps
    idle[routes.link[tied]] = idle[routes.link[~over_network[owner]]] = False
    kept = ~idle[routes.link]
    ptr = pointers(kept.astype(np.int64))[routes.ptr]
    return replace(routes, ptr=ptr, link=routes.link[kept], weight=routes.weight[kept])
