"""Some nodes of a machine where something has failed, those among them that lost most: a sample small enough to look at
every message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from collsim.collectives import ScheduleRequest
from collsim.fabric.fabric import Float, Int
from collsim.simulation.runs import IN_ORDER, LoweredRun, layout_of, prepare
from collsim.topology import Topology

__all__ = ["Narrowed", "Sample", "joins_switches", "sample_of", "slower_links"]

MOST_RANKS, MOST_UNEVEN, MOST_STRAIGHT = 512, 256, 64
"""Ranks of a sample: with relays, where many messages are alike; the same where nodes are wired inside, which takes
longer; and without relays, where each message is simulated (chosen: some seconds of CPU for eleven sizes)."""
HURT_PART = 4
"""At most one of so many nodes of the sample has lost something, if there are others (chosen)."""


class Narrowed(NamedTuple):
    """The links between switches that need longest for their bytes by what has failed: how much longer, as a part of
    the time in order, the name of one, and how many there are.
    """

    share: float
    link: str
    links: int


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Some nodes of a damaged machine.

    Attributes
    ----------
    damaged, healthy : LoweredRun
        Their ranks on the machine as it is, and in order.
    whole : LoweredRun
        All ranks on the machine in order, with the bounds of what is left.
    rounds : float
        How many times as many rounds all nodes have.
    narrowed : Narrowed
        What has become of the links between switches.
    uneven : bool
        Whether ranks are not quite alike even where nothing failed.
    """

    damaged: LoweredRun
    healthy: LoweredRun
    whole: LoweredRun
    rounds: float
    narrowed: Narrowed
    uneven: bool

    def request(self, whole: ScheduleRequest) -> ScheduleRequest:
        """Return the request for the sample: the same messages on the same channels."""
        n, layout = self.damaged.fabric.n_ranks, layout_of(self.damaged)
        size_bytes, rings = whole.block_bytes * n, whole.rings[:0]
        return replace(whole, n_ranks=n, size_bytes=size_bytes, nodes=layout.n_nodes, layout=layout, rings=rings)


def sample_of(run: LoweredRun, *, relayed: bool, uneven: bool) -> Sample:
    """Return the sample of the damaged machine of a run, found once for all its sizes."""
    key = "sample", relayed
    if key not in run.found:
        most = (MOST_UNEVEN if uneven else MOST_RANKS) if relayed else MOST_STRAIGHT
        run.found[key] = _sample_of(run, most, uneven=uneven)
    found: Sample = run.found[key]
    return found


def _sample_of(run: LoweredRun, most_ranks: int, *, uneven: bool) -> Sample:
    damage, nodes = run.topology.damage, layout_of(run).nodes
    assert damage is not None
    n = min(max(most_ranks // len(nodes[0]), 2), len(nodes))
    some = run.fabric.rank_node[np.array(nodes)[_chosen(_lost_Bps(run), n)].ravel()]
    in_order = np.array(damage.gpus)
    damaged = prepare(run.topology, run.profile, some.tolist(), alone=True)
    healthy = prepare(damage.healthy, run.profile, in_order[some].tolist(), alone=True)
    whole = replace(_in_order(run, in_order[run.fabric.rank_node]), cuts=run.cuts, flows=run.flows)
    return Sample(damaged, healthy, whole, (len(nodes) - 1) / (n - 1), _narrowed(run.topology), uneven)


def _in_order(run: LoweredRun, gpus: Int) -> LoweredRun:
    """Return the run of all *gpus* on the machine in order: the one beside which *run* is shown, if it is there."""
    assert run.topology.damage is not None
    healthy = run.topology.damage.healthy
    known: LoweredRun | None = run.found.get(IN_ORDER)
    if known is not None and known.topology is healthy and np.array_equal(known.fabric.rank_node, gpus):
        return known
    return prepare(healthy, run.profile, gpus.tolist(), alone=True)


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


def joins_switches(topology: Topology) -> bool:
    """Return True if links between switches of the network have failed, or are slower."""
    return bool((_changed(topology) >= 0).any())


def _lost_Bps(run: LoweredRun) -> Float:
    """Return float64[n]: the rate that links of each node of a run have lost, inside and to its leaves."""
    nodes, damage = layout_of(run).nodes, run.topology.damage
    assert damage is not None
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
    changed, wiring, link = topology.damage.changed, topology.damage.healthy.wiring, _changed_links(topology)
    before_Bps = wiring.link_count[link] * wiring.link_bandwidth_Bps[link]
    return np.asarray(before_Bps - changed.parallel * changed.bandwidth_Bps)


def _changed_links(topology: Topology) -> Int:
    """Return int64[n]: the number that each changed link has in the machine in order."""
    assert topology.damage is not None
    changed, place = topology.damage.changed, topology.damage.changed_place
    return np.asarray(topology.damage.healthy.wiring.find_links(changed.src, changed.dst) + place)


def slower_links(topology: Topology) -> tuple[Int, Float]:
    """Return int64[n] and float64[n]: links that are slower and have all their cables, and which part of the rate is
    left; numbers are those in order.
    """
    assert topology.damage is not None
    changed, wiring, link = topology.damage.changed, topology.damage.healthy.wiring, _changed_links(topology)
    share = changed.bandwidth_Bps / wiring.link_bandwidth_Bps[link]
    slower = np.flatnonzero((share < 1) & (changed.parallel == wiring.link_count[link]))
    return link[slower], share[slower]


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


def _narrowed(topology: Topology) -> Narrowed:
    """Return what has become of links between switches.

    Bytes of cables that are gone go over those that their lower switch has left to switches above, each as much as
    before; a hash does not look at rates, so a cable that is slower gets no fewer. A switch with none left passes
    nothing.
    """
    assert topology.damage is not None
    changed, healthy, link = topology.damage.changed, topology.damage.healthy, _changed_links(topology)
    wiring = healthy.wiring
    cables, rate_Bps = wiring.link_count.copy(), wiring.link_bandwidth_Bps.copy()
    cables[link], rate_Bps[link] = changed.parallel, changed.bandwidth_Bps
    low = _lower(topology, wiring.link_src, wiring.link_dst)
    had, left = (
        np.bincount(low[low >= 0], (n * wiring.link_bandwidth_Bps)[low >= 0]) for n in (wiring.link_count, cables)
    )
    there = np.flatnonzero((low >= 0) & (cables > 0))
    if not len(there):
        return Narrowed(0.0, "", 0)
    longer = (had / np.maximum(left, 1.0))[low[there]] * wiring.link_bandwidth_Bps[there] / rate_Bps[there]
    most = int(np.argmax(longer))
    alike = int(np.isclose(longer, longer[most]).sum())
    return Narrowed(float(longer[most]) - 1, wiring.link_name(int(there[most])), alike)
