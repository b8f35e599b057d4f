"""Runs: some ranks on a fabric, with their routes and bounds; what all sizes and algorithms of one call share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.collectives import NodeLayout
from collsim.core.errors import NoRouteError
from collsim.core.kept import Kept
from collsim.fabric.bounds.flow_bounds import BoundFlows, find_flows
from collsim.fabric.bounds.lower import Cuts, find_cuts
from collsim.fabric.fabric import Fabric, Float, Int, build_fabric
from collsim.fabric.routing import Routes, find_routes, links_beside, links_in_reach, merge_trunks
from collsim.library import Profile, read_environment
from collsim.library.costs.channel_costs import Bool
from collsim.library.peers import peer_level
from collsim.simulation.request.prepare import MOST_KEPT_GPUS
from collsim.topology import Topology
from collsim.topology.peers import staged

if TYPE_CHECKING:
    from collsim.fabric.routes import Ways

__all__ = ["IN_ORDER", "LoweredRun", "as_seen", "layout_of", "prepare", "run_on"]

MOST_KEPT_RANKS = 128
"""Routes of more ranks are found for each call: they are as many as the square of that."""
RUNS: Kept[LoweredRun] = Kept(32)
"""Fabric and routes of calls before, by topology, GPUs and what of links counts: constants of a profile change neither
one."""
IN_ORDER = "in order"
"""In what was found for a run on a damaged machine: the run of the same ranks on the machine in order."""


@dataclass(frozen=True, slots=True, eq=False)
class LoweredRun:
    """Everything that the sizes and algorithms of one call share."""

    topology: Topology
    fabric: Fabric
    profile: Profile
    routes: Routes
    trunks: Routes
    trunk_capacity_Bps: Float
    cuts: Cuts
    flows: BoundFlows | None
    used: Bool
    """bool[n_links]: what some message between the ranks could take."""
    single: Routes | None = None
    """The same routes with what one message alone takes of each link, where trunks carry all of a kind."""
    link_members: Int | None = None
    """int64[n_links]: how many links of a machine each stands for; None: itself."""
    found: dict[Any, Any] = field(default_factory=dict)
    """What was found for a schedule of one size and holds for others."""

    @property
    def port_rates_Bps(self) -> tuple[Float, Float]:
        """Rates in B/s from each rank to the others of its node and from them, float64[n_ranks] twice.

        Those of a rank that is alone in its node are what it can send to any.
        """
        wiring, ranks = self.fabric.wiring, self.fabric.rank_node
        adapter = np.array([kind == "nic" for kind in wiring.node_kinds])
        alone_Bps = self.cuts.egress_Bps if len(self.cuts.egress_Bps) == len(ranks) else self.cuts.egress_Bps.min()

        def rates_Bps(own: Int, other: Int) -> Float:
            inside_Bps = np.where(self.used & ~adapter[other], self.fabric.capacity_Bps, 0.0)
            found_Bps = np.bincount(own, inside_Bps, len(adapter))[ranks]
            return np.where(found_Bps > 0, found_Bps, alone_Bps)

        return rates_Bps(wiring.link_src, wiring.link_dst), rates_Bps(wiring.link_dst, wiring.link_src)


def prepare(
    topology: Topology,
    profile: Profile,
    ranks: Sequence[int] | None = None,
    *,
    free_share: Float | None = None,
    alone: bool = False,
) -> LoweredRun:
    """Build the fabric of *ranks* (all GPUs if None), its routes, and what bounds the time on it.

    *free_share* is float64[n_links], what background traffic leaves of each link; None: there is none. *alone*: no
    other group runs beside these, so that routes of fewer pairs are kept.
    """
    settings = (profile.achievable_rate, profile.latency, _is_bare(profile))

    def run() -> LoweredRun:
        efficiency, latency, bare = settings
        fabric = build_fabric(topology, ranks, efficiency=efficiency, latency=latency, network_counts=not bare)
        if free_share is not None:
            fabric = replace(fabric, capacity_Bps=fabric.capacity_Bps * free_share)
        return run_on(fabric, topology, profile, alone=alone)

    large = topology.n_gpus > MOST_KEPT_GPUS or (ranks is not None and len(ranks) > MOST_KEPT_RANKS)
    if free_share is not None or ranks is None or large:
        return run()
    kept = RUNS.get((id(topology), tuple(ranks), *settings, alone), run, holds=topology)
    return replace(kept, profile=profile, found={})


def as_seen(topology: Topology, profile: Profile, ranks: Sequence[int], variables: Mapping[str, str]) -> Topology:
    """Return the machine as the GPUs of a run see it: those without peer access copy through the memory of the host.

    *variables* are those of the environment. On bare wires nobody asks who reaches whom.
    """
    return topology if _is_bare(profile) else staged(topology, peer_level(topology, ranks, read_environment(variables)))


def _is_bare(profile: Profile) -> bool:
    """Return True if links run at their line rate without latency, in the network too."""
    return not (profile.achievable_rate or profile.latency or profile.families)


def run_on(
    fabric: Fabric, topology: Topology, profile: Profile, ways: Ways | None = None, *, alone: bool = False
) -> LoweredRun:
    """Return the run on a fabric: its routes, from *ways* if some are known, and what bounds the time on it."""
    try:
        routes = find_routes(fabric, ways, alone=alone)
    except NoRouteError as error:
        from collsim.topology.failures.degrade import cut_faults

        raise NoRouteError(*cut_faults(topology, fabric.rank_node.tolist(), error.faults)) from None
    trunks, capacity = merge_trunks(routes, fabric.capacity_Bps)
    used = links_in_reach(fabric, routes)
    beside = links_beside(fabric, used)
    latency_s = min(routes.fastest_s(), float(fabric.link_latency_s[beside].min(initial=np.inf)))
    return LoweredRun(
        topology,
        fabric,
        profile,
        routes,
        trunks,
        capacity,
        find_cuts(fabric, used | beside, latency_s),
        find_flows(fabric, used | beside),
        used,
    )


def layout_of(run: LoweredRun) -> NodeLayout:
    """Return which ranks share a scale-up domain, and which domains leaf switches, by the coordinates of their GPUs."""
    if "layout" not in run.found:
        where, gpus = run.topology.wiring.coordinates, run.fabric.rank_node
        columns = (column[gpus].tolist() for column in (where.node, where.local, where.pod))
        run.found["layout"] = NodeLayout.from_nodes(*columns)
    layout: NodeLayout = run.found["layout"]
    return layout
