"""Limits of a call: the parts of its time as constants with their source, and links with how busy they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collsim.core.units import format_bandwidth, format_time
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import Origin, Protocol
from collsim.simulation.result import Limit
from collsim.simulation.runs import LoweredRun
from collsim.simulation.time_parts import Parts

if TYPE_CHECKING:
    from collsim.simulation.link_bytes import HurtLink

__all__ = ["EQUALLY_LOADED", "LEAST_PART", "busy", "by_time", "limit_of_hurt", "limits_of"]

LEAST_PART = 0.005
"""Of a time; smaller parts are not told."""
LEAST_SLOWER = 0.03
"""Wires are told as well if at half their rate the call would take so much longer, although they decide less today."""
EQUALLY_LOADED = 1e-3
"""Links within this share of each other count as equally loaded."""
OF_HOST = ("floor", "launch", "thread_launch")
"""Constants that are the host's."""
MEMORY = "memory of a GPU"
LATENCY = "latency of links"


def limit_of_hurt(hurt: HurtLink, part_s: float, time_s: float) -> Limit:
    """Return the limit that a link is, with *part_s* of *time_s*, all of which would double at half its rate."""
    value = format_bandwidth(hurt.rate_Bps) if hurt.rate_Bps else None
    return Limit("wire", hurt.name, part_s, hurt.links, hurt.utilisation(time_s), half_rate_s=part_s, value=value)


def limits_of(
    run: LoweredRun,
    both_costs: tuple[Protocol, Protocol | None],
    parts: Parts,
    time_s: float,
    link_bytes: Float,
) -> tuple[tuple[Limit, int | None], ...]:
    """Return what limits a call of *time_s*, the largest part first, and of wires the link; `busy` says how busy it is.

    *link_bytes* is float64[n_links].
    """
    added = run.profile.network.protocol("Simple", "sharp")
    sections: Mapping[str, object] = {
        "node": both_costs[0], "network": both_costs[1], "added": added, "profile": run.profile,
    }  # fmt: skip
    busy_s = link_bytes / run.fabric.capacity_Bps
    slower_s = max(parts.slower_s, 2 * float(busy_s.max(initial=0.0)) - time_s)
    found: list[tuple[Limit, int | None]] = [
        (_library_limit(sections[section], name, part_s), None)
        for (section, name), part_s in parts.seconds.items()
        if section != "wire" and part_s >= LEAST_PART * time_s
    ]
    wire_s = max(parts.seconds.get(("wire", ""), 0.0), 0.0)
    if wire_s >= LEAST_PART * time_s or slower_s >= LEAST_SLOWER * time_s:
        told = max(parts.links, key=lambda link: parts.links[link]) if parts.links else int(np.argmax(busy_s))
        if busy_s[told] < busy_s.max() * (1 - EQUALLY_LOADED) and wire_s < LEAST_SLOWER * time_s:
            told = int(np.argmax(busy_s))
        found.append((_wire_limit(run, both_costs, told, wire_s, slower_s), told))
    for name, words in (("latency", LATENCY), ("memory", MEMORY)):
        if (part_s := parts.seconds.get(("wire", name), 0.0)) >= LEAST_PART * time_s:
            found.append((Limit("wire", words, part_s), None))
    return by_time(found)


def by_time(limits: Sequence[tuple[Limit, int | None]]) -> tuple[tuple[Limit, int | None], ...]:
    """Return limits with their links, the largest part of the time first."""
    return tuple(sorted(limits, key=lambda entry: -entry[0].time_s))


def _library_limit(costs: object, name: str, part_s: float) -> Limit:
    """Return the limit that a constant of a profile is."""
    origin: Origin | None = getattr(costs, "origins", {}).get(name)
    dtype = name.partition(".")[2]
    value = getattr(costs, "reduce_rates_Bps", {})[dtype] if dtype else getattr(costs, name, None)
    key, _, unit = (name, "", "Bps") if dtype else name.rpartition("_")
    text = None if value is None else format_time(value) if unit == "s" else format_bandwidth(value)
    return _from(origin, Limit("host" if key in OF_HOST else "library", key, part_s, value=text))


def _wire_limit(
    run: LoweredRun, both_costs: tuple[Protocol, Protocol | None], link: int, part_s: float, slower_s: float
) -> Limit:  # fmt: skip
    """Return the limit that a link is, with the share of it that the library reaches where that is a constant."""
    wiring, kinds = run.fabric.wiring, run.fabric.wiring.node_kinds
    outside = "nic" in (kinds[int(wiring.link_src[link])], kinds[int(wiring.link_dst[link])])
    costs = both_costs[1] if outside and both_costs[1] is not None else both_costs[0]
    shares = [name for name in ("link_share", "wire_efficiency") if getattr(costs, name) < 1]
    value = format_bandwidth(float(run.fabric.capacity_Bps[link]))
    origin = costs.origins.get(shares[0]) if shares else None
    if shares:
        value = f"{getattr(costs, shares[0]):.3g} of {value}"
    found = Limit("wire", wiring.link_name(link), part_s, half_rate_s=slower_s, value=value)
    return _from(origin, found)


def busy(limits: Sequence[tuple[Limit, int | None]], utilisation: Float, members: Int) -> tuple[Limit, ...]:
    """Return the limits, those of links with how busy they are and how many are loaded alike.

    *utilisation* is float64[n_links], *members* int64[n_links], how many links of a machine each stands for.
    """

    def told(limit: Limit, link: int | None) -> Limit:
        if link is None:
            return limit
        own = float(utilisation[link])
        alike = np.abs(utilisation - own) <= own * EQUALLY_LOADED
        return replace(limit, links=int(members[alike].sum()), utilisation=min(own, 1.0))

    return tuple(told(limit, link) for limit, link in limits)


def _from(origin: Origin | None, limit: Limit) -> Limit:
    """Return a limit with where its constant stands and who says so."""
    if origin is None:
        return limit
    told = origin.profile or None, origin.key, origin.status, origin.source or None
    return replace(limit, profile=told[0], constant=told[1], status=told[2], source=told[3])
