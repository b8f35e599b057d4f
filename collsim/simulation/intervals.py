"""In which interval a measured time of a row lies, and why it is wide where it is."""

from __future__ import annotations

from dataclasses import replace

from collsim.collectives import algorithm
from collsim.library.costs.hosts import spread_of
from collsim.library.costs.profile import NetworkCosts
from collsim.simulation.concurrent import Party
from collsim.simulation.request.request import Request
from collsim.simulation.result import Row
from collsim.simulation.row import WIDE
from collsim.simulation.runs import layout_of
from collsim.topology import Topology

__all__ = ["nodes_measured", "with_interval"]

MANY_NODES, CONGESTED = 64, 2.5
"""From so many nodes on, large sizes took up to so many times what laws of their number say: all-reduce on 128 to 512
nodes of Alps from 256 MiB on 1.3 to 2.4 times, most of all on 256. Other jobs or placement; no log tells which."""
HARDLY_TOLD = 10.0
"""An interval that reaches so many times as far as the prediction hardly tells anything, and says so (chosen)."""
UNSEEN = "none of the few logs holds this operation; "


def with_interval(row: Row, party: Party, question: Request) -> Row:
    """Return the row of what the library chose with its interval, where errors that were counted give one."""
    profile, picked = party.runs[0].profile, algorithm(row.op, row.algo)
    family = picked.family_for(row.op)
    if question.channels or question.chunk_bytes or question.proto or profile.lacks(row.proto or "Simple", family):
        return row  # not what the library would do, or not measured: nobody knows how far off that is
    topology = party.runs[0].topology
    if question.load or party.shares_links or topology.damage is not None:
        return row  # nor what traffic does to each other, nor broken machines
    if "network" in picked.in_network:
        return row  # nor steps that switches between the nodes add
    counted = profile.scatter(family, row.size_bytes)
    if counted is None or not counted.is_told:
        return row
    scatter = counted.for_op(row.op)
    nodes = layout_of(party.runs[0]).n_nodes
    if nodes > 1:
        scatter = scatter.farther(profile.network.beyond(nodes, family, row.size_bytes))
    scatter = scatter.at_least(spread_of(profile.host, question.host) ** (row.host_s / row.time_s))
    low_s, high_s = row.time_s * scatter.low, row.time_s * scatter.high
    if nodes >= MANY_NODES:
        high_s *= CONGESTED
    low_s, high_s = (max(end_s, row.lower_bound_s) for end_s in (low_s, high_s))
    wide = high_s > WIDE * row.time_s or low_s < row.time_s / WIDE
    reasons = _reasons(party, nodes, unseen=counted.for_op(row.op) is not counted) if wide else ""
    if high_s > HARDLY_TOLD * row.time_s or low_s < row.time_s / HARDLY_TOLD:
        reasons += f"; more than {HARDLY_TOLD:g} times either way: nothing measured tells more"
    return replace(row, time_lo_s=low_s, time_hi_s=high_s, wide_because=reasons)


def nodes_measured(topology: Topology, network: NetworkCosts) -> bool:
    """Return True if logs of such nodes on such a network are among those that errors between nodes were counted on."""
    assert topology.cluster is not None
    return network.is_measured(topology.cluster.spec.network, topology.labels.get("gpu.model", ""))


def _reasons(party: Party, nodes: int, *, unseen: bool) -> str:
    """Return why an interval is wide: what the logs behind it do not tell; *unseen*: none holds the operation."""
    run = party.runs[0]
    network = run.profile.network
    if nodes <= 1:
        derived = "nothing was measured on this system" if run.profile.derived and not run.profile.checked else ""
        return derived or f"{UNSEEN if unseen else ''}logs left out of the fit, and hosts, differ so much"
    told = ["sites differ so much in hosts, plugins and settings"]
    if network.pooled and not nodes_measured(run.topology, network):
        told.append("no log has these GPUs on such a network")
    if nodes > network.nodes:
        told.append(f"logs have at most {network.nodes} nodes" if network.nodes else "no log has several nodes")
    if nodes >= MANY_NODES:
        told.append("other jobs on the network")
    return "; ".join(told)
