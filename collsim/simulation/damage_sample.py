"""Some nodes of a machine where something has failed, those among them that lost most: a sample small enough to look at
every message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collsim.collectives import ScheduleRequest
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import Bool
from collsim.simulation.lowering import LoweredRun, layout_of, prepare
from collsim.topology import Topology

__all__ = ["Sample", "hurt_nodes", "joins_switches", "sample_of"]

MOST_RANKS = {True: 512, False: 128}
"""Ranks of a sample with relays, where many messages are alike, and without (measured: 1 s of CPU for eleven sizes, and
0.3 s for each)."""
HURT_PART = 4
"""At most one of so many nodes of the sample has lost something, if there are others (chosen)."""


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
        How much longer the switch that lost most to those above needs for its bytes, as a part of the time, and which
        part of the switches of its tier lost something.
    """

    damaged: LoweredRun
    healthy: LoweredRun
    rounds: float
    hurt: float
    narrowed: float
    narrowed_part: float

    def request(self, whole: ScheduleRequest) -> ScheduleRequest:
        """Return the request for the sample: the same messages on the same channels."""
        n, layout = self.damaged.fabric.n_ranks, layout_of(self.damaged)
        size_bytes, rings = whole.block_bytes * n, whole.rings[:0]
        return replace(whole, n_ranks=n, size_bytes=size_bytes, nodes=layout.n_nodes, layout=layout, rings=rings)


def sample_of(run: LoweredRun, *, relayed: bool) -> Sample:
    """Return the sample of the damaged machine of a run, found once for all its sizes."""
    key = "sample", relayed
    if key not in run.found:
        run.found[key] = _sample_of(run, MOST_RANKS[relayed])
    found: Sample = run.found[key]
    return found


def _sample_of(run: LoweredRun, most_ranks: int) -> Sample:
    damage, nodes = run.topology.damage, layout_of(run).nodes
    assert damage is not None
    lost = _lost_Bps(run)
    n = min(max(most_ranks // len(nodes[0]), 2), len(nodes))
    gpus = run.fabric.rank_node[np.array(nodes)[_chosen(lost, n)].ravel()]
    in_order = np.array(damage.gpus)[gpus]
    return Sample(
        prepare(run.topology, run.profile, gpus.tolist(), alone=True),
        prepare(damage.healthy, run.profile, in_order.tolist(), alone=True),
        (len(nodes) - 1) / (n - 1),
        float((lost > 0).mean()),
        *_narrowed(run.topology),
    )


def _chosen(lost: Float, n: int) -> Int:
    """Return *n* nodes in order: of those that *lost* something one for each different loss first, others evenly."""
    hurt, sound = np.flatnonzero(lost), np.flatnonzero(lost == 0)
    most = max(n // HURT_PART, n - len(sound), 1)
    kinds = hurt[np.unique(-lost[hurt], return_index=True)[1][:most]]
    taken = np.concatenate([kinds, _evenly(np.setdiff1d(hurt, kinds), most - len(kinds))])
    return np.sort(np.concatenate([taken, _evenly(sound, n - len(taken))]))


def _evenly(nodes: Int, n: int) -> Int:
    """Return *n* of the nodes, or all if there are fewer, spread evenly."""
    n = min(n, len(nodes))
    return nodes[(np.arange(n) * 2 + 1) * len(nodes) // max(2 * n, 1)]


def hurt_nodes(run: LoweredRun) -> Bool:
    """Return bool[n]: which nodes of a run, in the order of their layout, have lost links or rate."""
    return _lost_Bps(run) > 0


def joins_switches(topology: Topology) -> bool:
    """Return True if links between switches of the network have failed, or are slower."""
    return bool((_changed(topology) >= 0).any())


def _lost_Bps(run: LoweredRun) -> Float:
    """Return float64[n]: the rate that links of each node of a run have lost, inside and to its leaves."""
    nodes, damage = layout_of(run).nodes, run.topology.damage
    if damage is None:
        return np.zeros(len(nodes))
    healthy, changed = damage.healthy, damage.changed
    cluster, wiring = healthy.cluster, healthy.wiring
    assert cluster is not None
    n_nodes = len(cluster.kind)
    owner = np.full(wiring.n_nodes, n_nodes)
    owner[: wiring.n_gpus] = wiring.coordinates.node
    inner = np.diff(cluster.first_inner)
    owner[cluster.first_inner[0] : cluster.first_inner[-1]] = np.repeat(np.arange(n_nodes), inner)
    owner[cluster.first_nic : cluster.first_leaf] = cluster.nic_node
    whose = np.minimum(owner[changed.src], owner[changed.dst])
    lost_Bps = np.bincount(whose, _gone_Bps(run.topology), n_nodes + 1).astype(np.float64)
    first = run.fabric.rank_node[[node[0] for node in nodes]]
    return lost_Bps[run.topology.wiring.coordinates.node[first]]


def _gone_Bps(topology: Topology) -> Float:
    """Return float64[n]: the rate that each changed link has lost."""
    assert topology.damage is not None
    changed, wiring = topology.damage.changed, topology.damage.healthy.wiring
    link = wiring.find_links(changed.src, changed.dst) + topology.damage.changed_place
    before_Bps = wiring.link_count[link] * wiring.link_bandwidth_Bps[link]
    return np.asarray(before_Bps - changed.parallel * changed.bandwidth_Bps)


def _changed(topology: Topology) -> Int:
    """Return int64[n]: the lower of the switches that each changed link joins, -1 if it ends elsewhere."""
    assert topology.damage is not None
    return _lower(topology, topology.damage.changed.src, topology.damage.changed.dst)


def _lower(topology: Topology, src: Int, dst: Int) -> Int:
    """Return the same of links with these ends; leaves are numbered before spines, and these before cores."""
    assert topology.damage is not None
    cluster = topology.damage.healthy.cluster
    assert cluster is not None
    return np.asarray(np.maximum(np.minimum(src, dst) - cluster.first_leaf, -1))


def _narrowed(topology: Topology) -> tuple[float, float]:
    """Return how much longer the switch that lost most to those above needs, and how many of its tier lost some.

    A switch without any link up passes nothing, and is no part of that.
    """
    assert topology.damage is not None
    wiring, cluster = topology.damage.healthy.wiring, topology.damage.healthy.cluster
    assert cluster is not None
    n = len(cluster.switch_tier)
    low, all_low = _changed(topology), _lower(topology, wiring.link_src, wiring.link_dst)
    lost_Bps = np.bincount(low[low >= 0], _gone_Bps(topology)[low >= 0], n)
    rate_Bps = wiring.link_count * wiring.link_bandwidth_Bps
    had_Bps = np.bincount(all_low[all_low >= 0], rate_Bps[all_low >= 0], n)
    worse = np.flatnonzero((lost_Bps > 0) & (lost_Bps < had_Bps))
    if not len(worse):
        return 0.0, 0.0
    longer = had_Bps[worse] / (had_Bps - lost_Bps)[worse] - 1
    tier = cluster.switch_tier[worse]
    same = tier[np.argmax(longer)]
    return float(longer.max()), float(np.count_nonzero(tier == same) / np.count_nonzero(cluster.switch_tier == same))
