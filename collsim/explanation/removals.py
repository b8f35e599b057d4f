"""Removals: what a call is made of beside bytes on bare wires, each as a change that takes it away.

Taken away one after the other, in this order, each is worth the time that the call is then shorter. What a removal is
worth depends on those before it, as for all times that overlap; the order is fixed, so that explanations compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collsim.library import Profile
from collsim.library.costs.channel_costs import FAMILIES, PEER_FAMILIES, Origin, Protocol
from collsim.library.library import PROTOCOLS
from collsim.simulation.runs import as_seen
from collsim.topology import Topology

__all__ = ["ONCE_OVERHEADS", "OVERLAP", "REMOVALS", "STEP_OVERHEADS", "Removal", "Site", "with_costs"]


ONCE_OVERHEADS = (
    "base_s", "threads_overhead_s", "exchange_overhead_s", "last_channel_overhead_s", "channel_overhead_s",
    "peer_overhead_s",
)  # fmt: skip
STEP_OVERHEADS = ("message_overhead_s", "small_overhead_s", "slice_overhead_s", "store_overhead_s", "turn_s")


@dataclass(frozen=True, slots=True)
class Site:
    """What a removal has to know of the call.

    Attributes
    ----------
    gpus : list of int
        All that take part.
    environment : mapping of str to str
    family : str
        The kernel that runs.
    """

    gpus: list[int]
    environment: dict[str, str]
    family: str


@dataclass(frozen=True, slots=True)
class Removal:
    """Something that can be taken away.

    Attributes
    ----------
    kind : str
        The part of the time that it is of: ``host floor``, ``latency`` or ``protocol``.
    title : str
        What goes, in words.
    constants : tuple of str
        The attributes of `Protocol` and `Profile` that go.
    apply : callable
        From machine and constants to those without it.
    """

    kind: str
    title: str
    constants: tuple[str, ...]
    apply: Callable[[Topology, Profile, Site], tuple[Topology, Profile]]

    def origins(self, profile: Profile, family: str, proto: str, *, network: bool) -> list[tuple[str, float, Origin]]:
        """Return name, value and origin of the constants of *profile* that go, those that a kernel has."""
        holders: list[Any] = [profile, profile.protocol(proto, family)]
        holders += [profile.network.protocol(proto, family)] if network else []
        found: dict[Origin, tuple[str, float, Origin]] = {}
        for holder in holders:
            for name in self.constants if holder is not None else ():
                told, value = holder.origins.get(name), getattr(holder, name, None)
                if told is not None and isinstance(value, float) and math.isfinite(value) and value not in (0.0, 1.0):
                    found.setdefault(told, (name, value, told))
        return list(found.values())


def with_costs(profile: Profile, change: Callable[[Protocol], Protocol], **own: Any) -> Profile:
    """Return a profile with every protocol changed, inside nodes and between them, and figures of its *own*.

    One that has no kernels gets none: its wires may be bare, between nodes too.
    """
    families = {
        family: {proto: change(profile.protocol(proto, family)) for proto in PROTOCOLS}
        for family in dict.fromkeys((*FAMILIES, *PEER_FAMILIES, *profile.families))
    }
    network = {
        family: {proto: change(costs) for proto, costs in protocols.items()}
        for family, protocols in profile.network.families.items()
    }
    changed = replace(profile, **own)
    if not profile.families:
        families = {}
        changed = replace(changed, protocols={proto: change(profile.protocol(proto)) for proto in PROTOCOLS})
    return replace(changed, families=families, network=replace(profile.network, families=network))


def _set(names: Iterable[str], value: Any = 0.0, **own: Any) -> Callable[..., tuple[Topology, Profile]]:
    """Return a removal that gives constants of protocols one value."""
    values = dict.fromkeys(names, value)

    def apply(topology: Topology, profile: Profile, _: Site) -> tuple[Topology, Profile]:
        return topology, with_costs(profile, lambda costs: replace(costs, **values), **own)

    return apply


def _no_step_overheads(topology: Topology, profile: Profile, _: Site) -> tuple[Topology, Profile]:
    zero: dict[str, Any] = dict.fromkeys(STEP_OVERHEADS, 0.0) | {"small_overhead_s": None}
    return topology, with_costs(profile, lambda costs: replace(costs, **zero), message_overhead_s=0.0)


def _no_wire_latency(topology: Topology, profile: Profile, _: Site) -> tuple[Topology, Profile]:
    """Take latencies of links and switches away, those that changes of the topology added too."""
    wiring = topology.wiring
    zeros: dict[str, Any] = {
        "link_latency_s": np.zeros(wiring.n_links),
        "node_latency_s": np.zeros(wiring.n_nodes),
    }
    for array in zeros.values():
        array.setflags(write=False)
    before = {path: value for path, value in topology.before.items() if not path.endswith("latency")}
    return replace(topology, wiring=replace(wiring, **zeros), before=before), replace(profile, latency=False)


def _no_channel_rates(topology: Topology, profile: Profile, _: Site) -> tuple[Topology, Profile]:
    free: dict[str, Any] = {
        "channel_rate_Bps": math.inf, "one_way_rate_Bps": None, "copy_out_rate_Bps": None,
        "keep_rate_Bps": math.inf, "reduce_rates_Bps": {}, "stepwise": False,
        "softness": math.inf, "contention": 0.0,
    }  # fmt: skip
    return topology, with_costs(profile, lambda costs: replace(costs, **free), channel_rate_Bps=math.inf)


def _bare(topology: Topology, profile: Profile, site: Site) -> tuple[Topology, Profile]:
    """Let links run at line rate; of protocols remains in which order they send, so that the schedule stays."""
    topology = as_seen(topology, profile, site.gpus, site.environment)
    kernels = {proto: profile.protocol(proto, site.family) for proto in PROTOCOLS}
    kept = {
        proto: Protocol(
            0.0, math.inf, in_turn=costs.in_turn, cut_through=costs.cut_through, back_to_back=costs.back_to_back
        )
        for proto, costs in kernels.items()
    }
    network = replace(profile.network, families={})
    return topology, replace(
        profile, achievable_rate=False, latency=False, families={}, protocols=kept, network=network
    )


REMOVALS = (
    Removal(
        "host floor", "what the host takes to start a call", ("floor_s", "launch_s", "thread_launch_s"),
        lambda topology, profile, _: (
            topology,
            with_costs(
                profile, lambda costs: replace(costs, floor_s=None), floor_s=0.0, launch_s=0.0, thread_launch_s=0.0
            ),
        ),
    ),
    Removal(
        "latency", "overheads once a call", ONCE_OVERHEADS,
        _set(ONCE_OVERHEADS),
    ),
    Removal(
        "latency", "overheads of every step",
        STEP_OVERHEADS, _no_step_overheads,
    ),
    Removal("latency", "links and switches", (), _no_wire_latency),
    Removal(
        "protocol", "copies around the transfers", ("fill_rate_Bps", "copy_rate_Bps"),
        _set(("fill_rate_Bps", "copy_rate_Bps"), math.inf),
    ),
    Removal(
        "protocol", "flags and headers on the wire", ("wire_efficiency", "node_share"),
        _set(("wire_efficiency", "node_share"), 1.0),
    ),
    Removal(
        "protocol", "what channels leave of a link", ("link_share", "duplex_share"),
        lambda topology, profile, _: (
            topology, with_costs(profile, lambda costs: replace(costs, link_share=1.0, duplex_share=None)),
        ),
    ),
    Removal(
        "protocol", "rates of channels", ("channel_rate_Bps", "one_way_rate_Bps", "copy_out_rate_Bps", "keep_rate_Bps"),
        _no_channel_rates,
    ),
    Removal("protocol", "what links reach of line rate, and memory", (), _bare),
)  # fmt: skip
"""In the order in which they are taken away."""
OVERLAP = Removal(
    "pipeline fill",
    "calls in a row overlap",
    (),
    lambda topology, profile, _: (topology, with_costs(profile, lambda costs: replace(costs, back_to_back=False))),
)
"""Of some kernels; without waits and caps such calls may be too short for the bytes of a link, and it goes first."""
