"""Tiers of a machine: what a collective sends over links of GPUs, buses, adapters and switches, and how fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from collsim.fabric.fabric import Fabric, Float, Int
from collsim.simulation.row import TierLoad

__all__ = ["algorithm_bound_s", "tiers_of"]

FEW_BYTES = 0.5
"""Less is rounding."""


class _Tier(NamedTuple):
    """Links of a tier, which node or link stands for the sender of each, and what these send at most."""

    name: str
    link: Int
    sender: Int
    line_Bps: Float


def tiers_of(fabric: Fabric, link_bytes: Float, members: Int, found: dict[Any, Any]) -> tuple[TierLoad, ...]:
    """Return the load of each tier that carries anything, from GPUs outwards.

    Parameters
    ----------
    fabric : Fabric
    link_bytes : float64[n_links]
        On the wire, flags of protocols included.
    members : int64[n_links]
        Links of a machine that each stands for.
    found : dict
        What is kept of the fabric between calls.
    """
    if "tiers" not in found:
        found["tiers"] = _tiers(fabric)
    loads = [load for tier in found["tiers"] if (load := _load(tier, fabric, (link_bytes, members))) is not None]
    over_bus = next((load.node_bytes for load in loads if load.tier == "bus"), 0.0)
    return tuple(replace(load, node_bytes=over_bus) if load.tier == "adapter" else load for load in loads)


def _tiers(fabric: Fabric) -> list[_Tier]:
    """Return the tiers that have links."""
    wiring = fabric.wiring
    gpu, nic, cpu, switch = range(4)
    numbers = {"gpu": gpu, "nic": nic, "cpu": cpu, "switch": switch}
    kinds = np.array([numbers.get(kind, -1) for kind in wiring.node_kinds], dtype=np.int8)
    src, dst = kinds[wiring.link_src], kinds[wiring.link_dst]
    to_bus = (dst == nic) | (dst == cpu)
    chosen = {
        "node": (src == gpu) & ~to_bus,
        "bus": (src == gpu) & to_bus,
        "adapter": (src == nic) & (dst == switch),
        "fabric": (src == switch) & (dst == switch),
    }
    tiers = []
    for name, where in chosen.items():
        link = np.flatnonzero(where)
        sender = link if name == "fabric" else wiring.link_src[link]
        if len(link):
            line_Bps = np.bincount(sender, fabric.raw_capacity_Bps[link]).astype(np.float64)
            tiers.append(_Tier(name, link, sender, line_Bps))
    return tiers


def _load(tier: _Tier, fabric: Fabric, loads: tuple[Float, Int]) -> TierLoad | None:
    """Return what the busiest sender of a tier puts on its links of it, and all do together; None of nothing."""
    own_bytes = loads[0][tier.link]
    if own_bytes.sum() <= FEW_BYTES:
        return None
    sent, line_Bps = np.bincount(tier.sender, own_bytes), tier.line_Bps
    busiest = int(np.argmax(sent / np.where(line_Bps > 0, line_Bps, np.inf)))
    name = fabric.wiring.link_name(busiest) if tier.name == "fabric" else fabric.wiring.node_names[busiest]
    total, of_node = float((own_bytes * loads[1][tier.link]).sum()), 0.0
    if tier.name in ("node", "bus"):
        of_node = float(np.bincount(fabric.wiring.coordinates.node[tier.sender], own_bytes).max())
    return TierLoad(tier.name, str(name), float(sent[busiest]), float(line_Bps[busiest]), total, of_node)


def algorithm_bound_s(fabric: Fabric, link_bytes: Float) -> float:
    """Return what the busiest link needs for its bytes at line rate: the schedule that ran is never faster."""
    return float((link_bytes / fabric.raw_capacity_Bps).max(initial=0.0))
