"""The regular order of a machine: to which unit, block and pod every node of its wiring belongs, and where it is there.

A *unit* is a node of a cluster, or a GPU of a switched domain; a *block* is the units on the same leaves, a *pod* those
under the same spines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.topology.model import Topology
from collsim.topology.wiring import Wiring

__all__ = ["BLOCK", "MACHINE", "POD", "UNIT", "Frame", "frame_of", "is_even"]

Ints = NDArray[np.int64]

UNIT, BLOCK, POD, MACHINE = range(4)
"""Levels of a machine: the smallest that two units share, or that a node of the wiring belongs to."""
PLACES = 1 << 20
"""More than there are nodes in a unit, a block or a pod."""


class Frame(NamedTuple):
    """The regular order of a machine in which nothing is missing; int64 each."""

    level: Ints
    """[n_nodes]: whether a node of the wiring belongs to a unit, a block, a pod or the machine."""
    owner: Ints
    """[n_nodes]: to which of them."""
    place: Ints
    """[n_nodes]: its place there."""
    merged: Ints
    """[n_nodes]: the same with spines of a group, and cores, at one place."""
    block: Ints
    """[n_units]"""
    pod: Ints
    """[n_blocks]"""
    per_unit: int
    """GPUs of a unit."""

    def shared(self, a: Ints, b: Ints) -> Ints:
        """Return int64[n]: the smallest level that units *a* and *b* share."""
        blocks, same_block = (self.block[a], self.block[b]), self.block[a] == self.block[b]
        above = np.where(self.pod[blocks[0]] == self.pod[blocks[1]], POD, MACHINE)
        return np.where(a == b, UNIT, np.where(same_block, BLOCK, above)).astype(np.int64)

    def of_links(self, src: Ints, dst: Ints) -> tuple[Ints, Ints, Ints]:
        """Return to what level and to which owner links with these ends belong, and their numbers among those."""
        inner = np.where(self.level[src] <= self.level[dst], src, dst)
        return self.level[inner], self.owner[inner], self.place[src] * PLACES + self.place[dst]


def frame_of(whole: Topology) -> Frame | None:
    """Return the order of a switched domain, or of a cluster that spreads messages over trees of switches."""
    wiring, cluster = whole.wiring, whole.cluster
    if cluster is None:
        return _frame_of_domain(wiring) if wiring.coordinates.kind == "switched" else None
    if len(cluster.kinds) > 1 or cluster.spec.hashes or cluster.spec.fabric == "dragonfly":
        return None
    plan, per, units = cluster.plan, cluster.node.n_gpus, cluster.spec.nodes
    first = (wiring.n_gpus, cluster.first_nic, cluster.first_leaf, cluster.first_spine)
    inner, nics = (first[1] - first[0]) // units, (first[2] - first[1]) // units
    each = plan.leaves // plan.blocks
    leaf = np.arange(plan.leaves, dtype=np.int64)
    by_rail = bool(wiring.coordinates.plane[first[2] - first[0]] >= 0) and each > 1
    pods = plan.groups // (each if by_rail else 1) if plan.tiers > 2 else 1
    group = cluster.switch_group[: -plan.cores] if plan.cores else cluster.switch_group
    line, pod = np.divmod(group, pods) if plan.tiers > 2 else (group, np.zeros_like(group))
    if (pod[: plan.leaves] != np.repeat(pod[: plan.leaves : each], each)).any():
        return None  # leaves of one block lie in several pods
    spine, core = np.arange(plan.spines, dtype=np.int64), np.arange(plan.cores, dtype=np.int64)
    per_group = plan.spines // plan.groups if plan.spines else 1
    block = np.arange(units, dtype=np.int64) // plan.block_nodes

    def tiled(count: int, start: int) -> Ints:
        return np.tile(start + np.arange(count, dtype=np.int64), units)

    def owned(count: int) -> Ints:
        return np.repeat(np.arange(units, dtype=np.int64), count)

    ends = per + inner + nics + each
    inside = [tiled(per, 0), tiled(inner, per), tiled(nics, per + inner), per + inner + nics + leaf % each]
    lines = ends + line[plan.leaves :]
    top = ends + int(line.max(initial=0)) + 1
    spines = ends + line[plan.leaves :] * per_group + spine % per_group
    plane = cluster.switch_plane[plan.leaves + plan.spines :]
    last = ends + (int(line.max(initial=0)) + 1) * per_group
    return Frame(
        level=np.repeat(np.array([UNIT, BLOCK, POD, MACHINE]), [first[2], plan.leaves, plan.spines, plan.cores]),
        owner=np.concatenate(
            [owned(per), owned(inner), owned(nics), leaf // each, pod[plan.leaves :], np.zeros_like(core)]
        ),
        place=np.concatenate([*inside, spines, last + core]),
        merged=np.concatenate([*inside, lines, top + plane]),
        block=block,
        pod=pod[: plan.leaves : each],
        per_unit=per,
    )


def _frame_of_domain(wiring: Wiring) -> Frame:
    """Return the order of a domain every GPU of which is a unit."""
    n, switches = wiring.n_gpus, wiring.n_nodes - wiring.n_gpus
    none = np.zeros(n, dtype=np.int64)
    place = np.concatenate([none, 1 + np.arange(switches)])
    level = np.repeat(np.array([UNIT, POD]), [n, switches])
    owner = np.concatenate([np.arange(n), np.zeros(switches, dtype=np.int64)])
    return Frame(level, owner, place, place, none, np.zeros(1, dtype=np.int64), 1)


def is_even(whole: Topology) -> bool:
    """Return True if every leaf has equally many cables to each spine of its group, and spines and cores likewise."""
    cluster = whole.cluster
    if cluster is None or not cluster.plan.spines:
        return True
    plan = cluster.plan
    if plan.leaf_up % (plan.spines // plan.groups):
        return False
    if not plan.cores:
        return True
    low = np.repeat(np.arange(plan.switches), np.diff(cluster.up_ptr))
    rising = cluster.switch_tier[low] == 1
    spine, core = low[rising], cluster.up_switch[rising] - plan.leaves - plan.spines
    met = np.bincount(core * plan.groups + cluster.switch_group[spine], minlength=plan.cores * plan.groups)
    reach = met.reshape(plan.cores, plan.groups)
    everywhere = (np.count_nonzero(reach, axis=1) == plan.groups // plan.planes).all()
    cables = (cluster.up_cables[rising], reach[reach > 0], np.bincount(spine)[plan.leaves :])
    return bool(everywhere) and all(len(np.unique(count)) == 1 for count in cables)
