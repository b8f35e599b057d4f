"""Delays by what has failed, in an all-to-all by a library's messages on a machine too large to simulate them all.

Whoever lost links keeps others waiting, who keep others waiting in later rounds, and channels fall out of step. So no
rank stands for all, as it does where nothing failed. How much later the last one ends is simulated message by message
among some of the nodes, damaged ones among them, once as they are and once in order. Rounds follow each other in the
same way on the whole machine, so the delay grows with their number. What of that is not so is measured in tests, and
each row says between which times it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collsim.collectives import ScheduleRequest
from collsim.collectives.node_layout import NodeLayout
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import Bool
from collsim.simulation.concurrent import GroupTask, time_together
from collsim.simulation.lowering import LoweredRun, layout_of, prepare
from collsim.simulation.timing import Timing
from collsim.topology import Topology

__all__ = ["SAMPLED", "Delay", "Sample", "delayed", "hurt_nodes", "joins_switches", "sample_of"]

SAMPLED = "delay of a part"
"""In the path of rows whose delay is that of some nodes."""
MOST_RANKS = {True: 512, False: 128}
"""Ranks that are simulated message by message: with relays, where many are alike, and without (measured: 1 s for
eleven sizes, and 0.3 s for each)."""
HURT_PART = 4
"""At most one of so many nodes of the sample has lost something, if there are others (chosen)."""
MOST_LATER = 2.0
"""No delay of the whole was so many times that of the sample: of three times as many nodes and more (tests)."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Some nodes of a damaged machine.

    Attributes
    ----------
    damaged, healthy : LoweredRun
        Their ranks on the machine as it is, and in order.
    rounds : float
        How many times as many rounds the whole has.
    hurt : float
        Which part of all nodes has lost something.
    narrowed, narrowed_part : float
        By how much longer the links between switches need that lost most, and which part of the switches lost some.
    """

    damaged: LoweredRun
    healthy: LoweredRun
    rounds: float
    hurt: float
    narrowed: float
    narrowed_part: float

    def request(self, whole: ScheduleRequest) -> ScheduleRequest:
        """Return the request for the sample: the same messages on the same channels."""
        layout = layout_of(self.damaged)
        n = self.damaged.fabric.n_ranks
        return replace(
            whole, n_ranks=n, size_bytes=whole.block_bytes * n, nodes=layout.n_nodes, layout=layout, rings=whole.rings[:0]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """What a sample of the nodes exchanges on the damaged machine, and in order."""

    sample: Sample
    damaged: GroupTask
    healthy: GroupTask


def delayed(timing: Timing, run: LoweredRun, delay: Delay | None) -> Timing:
    """Return the *timing* of a rank that lost nothing with how much later the last one ends, and times on both sides.

    The lower one is without any delay, the upper one with twice as much.
    """
    if delay is None:
        return timing
    late_s, in_order_s = (time_together([part], ((0,),))[0].time_s for part in (delay.damaged, delay.healthy))
    sample = delay.sample
    own_s = max(late_s - in_order_s, 0.0) * sample.rounds
    shared_s = sample.narrowed * _switches_s(timing, run)
    # What all have lost, the rank that stands for them has lost too.
    added_s = max(own_s * (1 - sample.hurt), shared_s * (1 - sample.narrowed_part))
    spent_s = dict(timing.critical_s)
    spent_s["links"] = spent_s.get("links", 0.0) + added_s
    return replace(
        timing,
        time_s=timing.time_s + added_s,
        critical_s=spent_s,
        path=f"{timing.path}, {SAMPLED}",
        bracket_s=(timing.time_s, timing.time_s + MOST_LATER * (own_s + shared_s)),
    )


def _switches_s(timing: Timing, run: LoweredRun) -> float:
    """Return what the links between switches of the network need for their bytes."""
    cluster, wiring = run.topology.cluster, run.fabric.wiring
    assert cluster is not None
    both = (wiring.link_src >= cluster.first_leaf) & (wiring.link_dst >= cluster.first_leaf)
    return float((timing.link_bytes[both] / run.fabric.capacity_Bps[both]).max(initial=0.0))


def sample_of(run: LoweredRun, *, relayed: bool) -> Sample:
    """Return some nodes of the damaged machine of a run, found once for all its sizes."""
    if ("sample", relayed) not in run.found:
        run.found["sample", relayed] = _sample_of(run, relayed=relayed)
    found: Sample = run.found["sample", relayed]
    return found


def _sample_of(run: LoweredRun, *, relayed: bool) -> Sample:
    topology, layout = run.topology, layout_of(run)
    assert topology.damage is not None
    lost = _lost_Bps(topology)[_node_of(run, layout)]
    n_nodes = min(max(MOST_RANKS[relayed] // len(layout.nodes[0]), 2), layout.n_nodes)
    chosen = _chosen(lost, n_nodes)
    gpus = run.fabric.rank_node[[rank for node in chosen.tolist() for rank in layout.nodes[node]]]
    in_order = np.array(topology.damage.gpus)[gpus]
    narrowed, part = _narrowed(topology)
    return Sample(
        prepare(topology, run.profile, gpus.tolist(), alone=True),
        prepare(topology.damage.healthy, run.profile, in_order.tolist(), alone=True),
        (layout.n_nodes - 1) / (n_nodes - 1),
        float((lost > 0).mean()),
        narrowed,
        part,
    )


def _chosen(lost: Float, n: int) -> Int:
    """Return *n* nodes in order: of those that *lost* something one for each different loss first, others evenly."""
    hurt, sound = np.flatnonzero(lost), np.flatnonzero(lost == 0)
    if not len(sound):
        return _evenly(hurt, n)
    kinds = np.unique(-lost[hurt], return_index=True)[1][: max(n // HURT_PART, 1)]
    more = np.setdiff1d(hurt, hurt[kinds])
    taken = np.concatenate([hurt[kinds], _evenly(more, max(n // HURT_PART - len(kinds), 0))])
    rest = _evenly(sound, n - len(taken))
    return np.sort(np.concatenate([taken, rest, np.setdiff1d(hurt, taken)[: n - len(taken) - len(rest)]]))


def _evenly(nodes: Int, n: int) -> Int:
    """Return at most *n* of the nodes, spread evenly."""
    n = min(n, len(nodes))
    return nodes[(np.arange(n) * 2 + 1) * len(nodes) // max(2 * n, 1)]


def _node_of(run: LoweredRun, layout: NodeLayout) -> Int:
    """Return int64[n]: the nodes of the machine that the ranks are on, in the order of their layout."""
    first = run.fabric.rank_node[[node[0] for node in layout.nodes]]
    return np.asarray(run.topology.wiring.coordinates.node[first])


def hurt_nodes(run: LoweredRun) -> Bool:
    """Return bool[n]: which nodes of a run, in the order of their layout, have lost some of their links, or its rate."""
    layout = layout_of(run)
    if run.topology.damage is None:
        return np.zeros(layout.n_nodes, dtype=np.bool_)
    return _lost_Bps(run.topology)[_node_of(run, layout)] > 0


def joins_switches(topology: Topology) -> bool:
    """Return True if links between switches of the network have failed, or are slower."""
    return bool(_between_switches(topology).any())


def _between_switches(topology: Topology) -> Bool:
    assert topology.damage is not None
    cluster, changed = topology.damage.healthy.cluster, topology.damage.changed
    assert cluster is not None
    return np.asarray((changed.src >= cluster.first_leaf) & (changed.dst >= cluster.first_leaf))


def _gone_Bps(topology: Topology) -> Float:
    """Return float64[n]: the rate that each changed link has lost."""
    assert topology.damage is not None
    changed, wiring = topology.damage.changed, topology.damage.healthy.wiring
    link = wiring.find_links(changed.src, changed.dst) + topology.damage.changed_place
    before = wiring.link_count[link] * wiring.link_bandwidth_Bps[link]
    return np.asarray(before - changed.parallel * changed.bandwidth_Bps)


def _lost_Bps(topology: Topology) -> Float:
    """Return float64[n_nodes]: the rate that the links of each node have lost, inside and to their leaves."""
    assert topology.damage is not None
    healthy, changed = topology.damage.healthy, topology.damage.changed
    cluster, wiring = healthy.cluster, healthy.wiring
    assert cluster is not None
    n_nodes = len(cluster.kind)
    owner = np.full(wiring.n_nodes, n_nodes)
    owner[: wiring.n_gpus] = wiring.coordinates.node
    owner[cluster.first_inner[0] : cluster.first_inner[-1]] = np.repeat(np.arange(n_nodes), np.diff(cluster.first_inner))
    owner[cluster.first_nic : cluster.first_leaf] = cluster.nic_node
    whose = np.minimum(owner[changed.src], owner[changed.dst])
    return np.bincount(whose, _gone_Bps(topology), n_nodes + 1)[:-1].astype(np.float64)


def _narrowed(topology: Topology) -> tuple[float, float]:
    """Return by how much longer the links between a switch and all above need at most, and how many of its tier do."""
    assert topology.damage is not None
    healthy, changed, which = topology.damage.healthy, topology.damage.changed, _between_switches(topology)
    cluster, wiring = healthy.cluster, healthy.wiring
    assert cluster is not None
    if not which.any():
        return 0.0, 0.0
    first, n = cluster.first_leaf, len(cluster.switch_tier)
    gone_Bps = _gone_Bps(topology)[which]
    most = (0.0, 0.0)
    for own, other, src, dst in _directions(changed.src[which], changed.dst[which], wiring.link_src, wiring.link_dst):
        up = cluster.switch_tier[own - first] < cluster.switch_tier[other - first]
        lost_Bps = np.bincount(own[up] - first, gone_Bps[up], n)
        there = (src >= first) & (dst >= first)
        lower = cluster.switch_tier[src[there] - first] < cluster.switch_tier[dst[there] - first]
        rate_Bps = (wiring.link_count * wiring.link_bandwidth_Bps)[there][lower]
        had_Bps = np.bincount(src[there][lower] - first, rate_Bps, n)
        worse = (lost_Bps > 0) & (lost_Bps < had_Bps)
        if worse.any():
            longer = had_Bps[worse] / (had_Bps - lost_Bps)[worse] - 1
            tier = cluster.switch_tier[np.flatnonzero(worse)[np.argmax(longer)]]
            part = worse[cluster.switch_tier == tier].mean()
            most = max(most, (float(longer.max()), float(part)))
    return most


def _directions(src: Int, dst: Int, all_src: Int, all_dst: Int) -> Sequence[tuple[Int, Int, Int, Int]]:
    """Return the ends of changed links, and of all, once as they are and once turned round."""
    return ((src, dst, all_src, all_dst), (dst, src, all_dst, all_src))
