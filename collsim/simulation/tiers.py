"""Tiers of a machine: what a collective sends over links of GPUs, buses, adapters and switches, and how fast."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collsim.fabric.fabric import Fabric, Float, Int
from collsim.simulation.row import TierLoad

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["algorithm_bound_s", "tiers_of"]

FEW_BYTES = 0.5
"""Less is rounding."""


def tiers_of(fabric: Fabric, link_bytes: Float, members: Int) -> tuple[TierLoad, ...]:
    """Return the load of each tier that carries anything, from GPUs outwards.

    Parameters
    ----------
    fabric : Fabric
    link_bytes : float64[n_links]
        On the wire, flags of protocols included.
    members : int64[n_links]
        Links of a machine that each stands for.
    """
    wiring = fabric.wiring
    kinds = np.array(wiring.node_kinds)
    src, dst = kinds[wiring.link_src], kinds[wiring.link_dst]
    to_bus = (dst == "nic") | (dst == "cpu")
    chosen = {
        "node": (src == "gpu") & ~to_bus,
        "bus": (src == "gpu") & to_bus,
        "adapter": (src == "nic") & (dst == "switch"),
        "fabric": (src == "switch") & (dst == "switch"),
    }
    ends = {name: wiring.link_src if name != "fabric" else np.arange(len(src)) for name in chosen}
    loads = [_load(name, fabric, where, ends[name], (link_bytes, members)) for name, where in chosen.items()]
    found = [load for load in loads if load is not None]
    over_bus = next((load.node_bytes for load in found if load.tier == "bus"), 0.0)
    return tuple(replace(load, node_bytes=over_bus) if load.tier == "adapter" else load for load in found)


def _load(tier: str, fabric: Fabric, where: NDArray[np.bool_], ends: Int, loads: tuple[Float, Int]) -> TierLoad | None:
    """Return what the busiest sender of a tier puts on its links of it, and all do together; None of nothing."""
    link_bytes, members = loads
    if not where.any() or link_bytes[where].sum() <= FEW_BYTES:
        return None
    sent = np.bincount(ends[where], link_bytes[where])
    line_Bps = np.bincount(ends[where], fabric.raw_capacity_Bps[where])
    busiest = int(np.argmax(sent / np.where(line_Bps > 0, line_Bps, np.inf)))
    name = fabric.wiring.link_name(busiest) if tier == "fabric" else fabric.wiring.node_names[busiest]
    total, of_node = float((link_bytes * members)[where].sum()), 0.0
    if tier in ("node", "bus"):
        of_node = float(np.bincount(fabric.wiring.coordinates.node[ends[where]], link_bytes[where]).max())
    return TierLoad(tier, str(name), float(sent[busiest]), float(line_Bps[busiest]), total, of_node)


def algorithm_bound_s(fabric: Fabric, link_bytes: Float) -> float:
    """Return what the busiest link needs for its bytes at line rate: the schedule that ran is never faster."""
    return float((link_bytes / fabric.raw_capacity_Bps).max(initial=0.0))
