"""The small part of a large regular machine that stands for all of it.

The *units* of a machine are the nodes of a cluster, or the GPUs of a switched domain. Units are of one kind if they
have lost the same, as many of their GPUs take part, and what is around them is alike too: those on the same leaves (a
*block*) and those under the same spines (a *pod*). Pairs of units are alike if their kinds are, and if they share as
much: the unit, the block, the pod, or only the machine. Whatever treats all ranks the same is equally fast between
pairs that are alike, so one pair of each kind is kept, with the links around it and the number of pairs and links that
it stands for.

Spines of a group, to which every leaf of the group has equally many cables, are always equally busy, so they are kept
as one with all their cables; likewise cores. Nothing here grows with the square of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import InputError
from collsim.simulation.quotient.frames import BLOCK, MACHINE, UNIT, Frame, frame_of, is_even
from collsim.topology.cluster.spec import Cluster
from collsim.topology.failures.degrade import damaged
from collsim.topology.failures.selectors import select
from collsim.topology.model import Topology
from collsim.topology.wiring import Coordinates, Wiring

__all__ = ["EXACT_UP_TO", "Miniature", "Pairs", "miniature_of"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_BLOCKS = 16
"""Only so many blocks are told apart where cables are not dealt out evenly."""
MOST_UNITS = 64
"""A part with more units would be no small one."""
WORTH = 3
"""A part with more ranks than one in so many saves little: a hop of its own costs more than one of the whole."""
EXACT_UP_TO = 2048
"""Up to so many ranks all pairs can be looked at one by one instead."""


class Pairs(NamedTuple):
    """One ordered pair of ranks for each kind; int64[n] each."""

    src: Ints
    dst: Ints
    """Ranks of the miniature."""
    members: Ints
    """Number of pairs of the machine that each stands for."""
    per_source: Ints
    """Number of these that have the same source."""


class _Kinds(NamedTuple):
    """The kinds of units in which ranks are."""

    kind: Ints
    """[n_units], -1 without ranks."""
    members: Ints
    """[n_kinds]: units."""
    first: Ints
    """[n_kinds]: the first unit."""
    partner: Mapping[tuple[int, int, int], int]
    """By kind, what is shared, and kind: a unit of the second kind that shares so much with the first of the first."""
    partners: Mapping[tuple[int, int, int], int]
    """Number of such units."""
    block_label: Ints
    """[n_blocks]: equal for blocks that are alike."""
    pod_label: Ints
    """[n_pods]"""

    @property
    def kept(self) -> Ints:
        """Units that stand for the others, in order."""
        return np.unique(np.array([*self.first.tolist(), *self.partner.values()], dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Miniature:
    """A part that stands for a whole machine.

    Attributes
    ----------
    topology : Topology
        The part, without what has failed of it.
    ranks : int64[k]
        GPUs of the part that take part.
    gpus : int64[n_ranks]
        The GPU of each rank of the whole, as numbered there in order.
    frame, kinds : Frame, _Kinds
        Of the whole; places as they count in the part.
    exact : bool
        Whether the part behaves exactly as the whole. If not, leaves share their cables unevenly among spines, and are
        taken as if they did evenly.
    link_class, link_members, link_bundles : int64[n_links]
        Of each link of the part the first one that is like it, how many of the whole are like it, and how many of the
        whole it holds together.
    link_level, link_owner, link_spot : int64[n_links]
        To which unit, block or pod of the whole each link belongs, and a number for its place in such a one.
    link_rises : bool[n_links]
        Whether it leads upwards there.
    unit_ranks : int64[n_units]
        How many ranks are in each unit of the whole.
    rank_of : int64[n_units, GPUs of a unit]
        The number in *ranks* of each GPU of the whole, -1 if it is not there.
    """

    topology: Topology
    ranks: Ints
    gpus: Ints
    exact: bool
    link_class: Ints
    link_members: Ints
    link_bundles: Ints
    link_level: Ints
    link_owner: Ints
    link_spot: Ints
    link_rises: Mask
    unit_ranks: Ints
    rank_of: Ints
    frame: Frame
    kinds: _Kinds

    @property
    def n_ranks(self) -> int:
        """Ranks of the whole."""
        return len(self.gpus)

    @property
    def rank_unit(self) -> Ints:
        """int64[k]: the unit of the whole that each rank of the part is in."""
        unit, local = np.nonzero(self.rank_of >= 0)
        found = np.zeros(len(self.ranks), dtype=np.int64)
        found[self.rank_of[unit, local]] = unit
        return found

    def pairs(self) -> Pairs:
        """Return every kind of ordered pair of different ranks."""
        kinds, parts = self.kinds, []
        for (a, shared, b), unit in kinds.partner.items():
            sources, targets = (row[row >= 0] for row in (self.rank_of[kinds.first[a]], self.rank_of[unit]))
            src, dst = np.repeat(sources, len(targets)), np.tile(targets, len(sources))
            src, dst = src[src != dst], dst[src != dst]
            each = np.full(len(src), kinds.partners[a, shared, b])
            parts.append((src, dst, each * kinds.members[a], each))
        return Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def stand_ins(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the ranks of the part that stand for pairs of GPUs, as numbered in the whole in order; int64[n]."""
        kinds, n = self.kinds, len(self.kinds.first)
        (a, i), (b, j) = np.divmod(src, self.frame.per_unit), np.divmod(dst, self.frame.per_unit)
        keys = (kinds.kind[a] * (MACHINE + 1) + self.frame.shared(a, b)) * n + kinds.kind[b]
        found, which = np.unique(keys, return_inverse=True)
        sorts = [(key // n // (MACHINE + 1), key // n % (MACHINE + 1), key % n) for key in found.tolist()]
        first = np.array([kinds.first[sort[0]] for sort in sorts])[which]
        other = np.array([kinds.partner[sort] for sort in sorts])[which]
        return self.rank_of[first, i], self.rank_of[other, j]


def miniature_of(topology: Topology, gpus: Ints) -> Miniature | None:
    """Return the part that stands for *gpus* of a machine; None if there is none that does.

    Parameters
    ----------
    topology : Topology
        A cluster of equal nodes, or a switched domain; something of it may have failed.
    gpus : int64[n]
        The ranks, as the topology counts its GPUs.
    """
    damage = topology.damage
    whole = topology if damage is None else damage.healthy
    frame = frame_of(whole)
    if frame is None:
        return None
    lost = _lost(topology, frame)
    tiers = whole.cluster.plan.tiers if whole.cluster else 1
    level, even = _uneven_level(topology, frame), is_even(whole)
    apart = not even and tiers <= 2 and len(frame.pod) <= MOST_BLOCKS
    merges, exact = level == UNIT and not apart, even or apart
    if level > BLOCK or (level == BLOCK and tiers > 2) or not (exact or (merges and len(gpus) > EXACT_UP_TO)):
        return None
    numbers = np.asarray(gpus if damage is None else np.array(damage.gpus)[gpus], dtype=np.int64)
    kinds = _kinds(frame, lost, numbers, apart=apart)
    small = len(kinds.kept) * frame.per_unit * WORTH <= len(gpus)
    if len(kinds.kept) > MOST_UNITS or not (small or len(gpus) > EXACT_UP_TO):
        return None
    place = frame.merged if merges else frame.place
    return _cut_out(topology, whole, frame._replace(place=place), kinds, numbers, exact=exact)


def _uneven_level(topology: Topology, frame: Frame) -> int:
    """Return the highest level at which things that were alike no longer are; a leaf that is gone is missed by all."""
    if topology.damage is None:
        return UNIT
    changed, gone = topology.damage.changed, topology.damage.nodes
    leaves = gone[frame.level[gone] == BLOCK]
    left = ~np.isin(changed.src, leaves) & ~np.isin(changed.dst, leaves)
    return int(frame.of_links(changed.src[left], changed.dst[left])[0].max(initial=UNIT))


def _lost(topology: Topology, frame: Frame) -> dict[tuple[int, int], tuple[object, ...]]:
    """Return by level and number what has lost links or has slower ones, and which."""
    if topology.damage is None:
        return {}
    changed = topology.damage.changed
    lost: dict[tuple[int, int], tuple[object, ...]] = {}
    columns = *frame.of_links(changed.src, changed.dst), changed.parallel, changed.bandwidth_Bps
    for level, owner, *what in zip(*(column.tolist() for column in columns), strict=True):
        lost[level, owner] = (*lost.get((level, owner), ()), tuple(what))
    return lost


def _kinds(frame: Frame, lost: Mapping[tuple[int, int], tuple[object, ...]], gpus: Ints, *, apart: bool) -> _Kinds:
    """Return the kinds of units; *apart* tells all blocks apart."""
    n_units, n_blocks = len(frame.block), len(frame.pod)
    used = np.zeros((n_units, frame.per_unit), dtype=np.bool_)
    used.reshape(-1)[gpus] = True
    own, of_block = (_labels(lost, level, count) for level, count in ((UNIT, n_units), (BLOCK, n_blocks)))
    label = _alike(np.column_stack([np.packbits(used, axis=1), own]))
    block_label = _alike(np.column_stack([_counts(frame.block, label, n_blocks), of_block]))
    block_label = np.arange(n_blocks) if apart else block_label
    pod_label = _alike(_counts(frame.pod, block_label, int(frame.pod.max()) + 1))
    kind = _alike(np.column_stack([pod_label[frame.pod[frame.block]], block_label[frame.block], label]))
    kind = np.where(used.any(axis=1), kind, -1)
    names, first, kind_of, members = np.unique(kind, return_index=True, return_inverse=True, return_counts=True)
    skipped = int(names[0] == -1)
    kind, first, members = kind_of - skipped, first[skipped:], members[skipped:]
    partner, partners = {}, {}
    units = np.flatnonzero(kind >= 0)
    for a, unit in enumerate(first.tolist()):
        keys = frame.shared(np.full(len(units), unit), units) * len(first) + kind[units]
        for key, place, count in zip(*np.unique(keys, return_index=True, return_counts=True), strict=True):
            shared, b = divmod(int(key), len(first))
            partner[a, shared, b], partners[a, shared, b] = int(units[place]), int(count)
    return _Kinds(kind, members, first, partner, partners, block_label, pod_label)


def _labels(lost: Mapping[tuple[int, int], tuple[object, ...]], level: int, count: int) -> Ints:
    """Return int64[count]: equal numbers for those of a level that have lost the same, 0 for nothing."""
    labels, numbers = np.zeros(count, dtype=np.int64), {(): 0}
    for (of, owner), what in lost.items():
        if of == level:
            labels[owner] = numbers.setdefault(tuple(sorted(what)), len(numbers))  # type: ignore[arg-type, type-var]
    return labels


def _alike(rows: Ints) -> Ints:
    """Return int64[n]: equal numbers for equal rows."""
    if (rows == rows[0]).all():
        return np.zeros(len(rows), dtype=np.int64)
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def _counts(owner: Ints, label: Ints, n_owners: int) -> Ints:
    """Return int64[n_owners, n_labels]: how many of each label every owner has."""
    n_labels = int(label.max()) + 1
    return np.bincount(owner * n_labels + label, minlength=n_owners * n_labels).reshape(n_owners, n_labels)


def _cut_out(topology: Topology, whole: Topology, frame: Frame, kinds: _Kinds, gpus: Ints, *, exact: bool) -> Miniature:
    """Return the part with the units that stand for the others; nodes at one place become one."""
    units = kinds.kept
    blocks = np.unique(frame.block[units])
    keeps = (units, blocks, np.unique(frame.pod[blocks]), np.zeros(1, dtype=np.int64))
    kept = np.zeros(len(frame.level), dtype=np.bool_)
    for level, owners in enumerate(keeps):
        kept |= (frame.level == level) & np.isin(frame.owner, owners)
    number, nodes = _numbered(frame, kept)
    small, src, dst, bundles = _wired(whole, number, nodes, units)
    if topology.damage is not None:
        small = _with_damage(small, topology)
    if small.damage is not None:
        src, dst, bundles = (column[small.damage.links] for column in (src, dst, bundles))
    levels, owner, place = frame.of_links(src, dst)
    class_of, members = _classes(frame, kinds, levels, owner, place)
    first_of = np.unique(class_of, return_index=True, return_inverse=True)
    rank_of, ranks = _ranks(small, units, frame, gpus)
    return Miniature(
        topology=small,
        ranks=ranks,
        gpus=gpus,
        exact=exact,
        link_class=first_of[1][first_of[2]],
        link_members=members,
        link_bundles=bundles,
        link_level=levels,
        link_owner=owner,
        link_spot=_alike(np.stack([levels, place], axis=1)),
        link_rises=frame.level[src] < frame.level[dst],
        unit_ranks=np.bincount(gpus // frame.per_unit, minlength=len(frame.block)),
        rank_of=rank_of,
        frame=frame,
        kinds=kinds,
    )


def _numbered(frame: Frame, kept: Mask) -> tuple[Ints, Ints]:
    """Return int64[n_nodes], the number in the part of each node, -1 if it is gone, and the first node of each."""
    nodes = np.flatnonzero(kept)
    keys = np.stack([frame.level[nodes], frame.owner[nodes], frame.place[nodes]], axis=1)
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.full(len(kept), -1, dtype=np.int64)
    number[nodes] = np.argsort(order)[which.reshape(-1)]
    return number, nodes[first[order]]


def _wired(whole: Topology, number: Ints, nodes: Ints, units: Ints) -> tuple[Topology, Ints, Ints, Ints]:
    """Return the part in order, the ends in the whole of the first link in each of its links, and how many are in it.

    *nodes* are the first of the whole at each place of the part.
    """
    wiring = whole.wiring
    around = wiring.around(np.flatnonzero(number >= 0))
    within = around.take(np.flatnonzero((number[around.src] >= 0) & (number[around.dst] >= 0)))
    bundles = within.take(np.lexsort((number[within.dst], number[within.src])))
    keys = number[bundles.src] * len(nodes) + number[bundles.dst]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    first, members = bundles.take(starts), np.diff(np.append(starts, len(keys)))
    n_gpus = int((nodes < wiring.n_gpus).sum())
    small = Wiring(
        node_names=tuple(wiring.node_names[node] for node in nodes.tolist()),
        node_kinds=tuple(wiring.node_kinds[node] for node in nodes.tolist()),
        n_gpus=n_gpus,
        node_latency_s=wiring.node_latency_s[nodes],
        link_src=number[first.src],
        link_dst=number[first.dst],
        link_count=np.add.reduceat(bundles.parallel, starts),
        link_bandwidth_Bps=np.add.reduceat(bundles.bandwidth_Bps, starts),
        link_latency_s=first.latency_s,
        link_efficiency=first.efficiency,
        coordinates=_coordinates(whole, nodes, units),
    )
    cluster = None if whole.cluster is None else _cluster(whole.cluster, small, number, nodes, units)
    return replace(whole, wiring=small, cluster=cluster), first.src, first.dst, members


def _coordinates(whole: Topology, nodes: Ints, units: Ints) -> Coordinates:
    """Return where the GPUs of the part stand."""
    old, n_gpus = whole.wiring.coordinates, whole.wiring.n_gpus
    gpus = nodes[nodes < n_gpus]
    node = old.node[gpus] if whole.cluster is None else np.searchsorted(units, old.node[gpus])
    plane = old.plane[nodes[nodes >= n_gpus] - n_gpus]
    return Coordinates(old.kind, node, old.local[gpus], old.rail[gpus], old.pod[gpus], plane)


def _cluster(whole: Cluster, small: Wiring, number: Ints, nodes: Ints, units: Ints) -> Cluster:
    """Return the cluster's data of the part, by which a router finds its way, with nodes and switches numbered anew."""
    first = [int(np.searchsorted(nodes, start)) for start in (whole.first_nic, whole.first_leaf, whole.first_spine)]
    gpus, nics = nodes[: small.n_gpus], nodes[first[0] : first[1]] - whole.first_nic
    switches = nodes[first[1] :] - whole.first_leaf
    leaf = number[whole.first_leaf + whole.nic_leaf[nics]]
    numbers = first[0] + np.arange(len(nics))
    low = number[whole.first_leaf + np.repeat(np.arange(len(whole.up_ptr) - 1), np.diff(whole.up_ptr))]
    high = number[whole.first_leaf + whole.up_switch]
    there = (low >= 0) & (high >= 0)
    low, high = np.unique(np.stack([low[there], high[there]], axis=1), axis=0).T
    up_link = small.find_links(low, high)
    tier = whole.switch_tier[switches]
    counts = [int((tier == number).sum()) for number in range(3)]
    per_unit = np.diff(whole.nic_ptr)[gpus]
    nic_of = np.concatenate([whole.nic_of[whole.nic_ptr[gpu] : whole.nic_ptr[gpu + 1]] for gpu in gpus.tolist()])
    return replace(
        whole,
        spec=replace(whole.spec, nodes=len(units)),
        plan=replace(whole.plan, leaves=counts[0], spines=counts[1], cores=counts[2]),
        kind=whole.kind[units],
        first_inner=np.concatenate([[0], np.cumsum(np.diff(whole.first_inner)[units])]) + len(gpus),
        first_nic=first[0],
        first_leaf=first[1],
        first_spine=first[2],
        nic_ptr=np.concatenate([[0], np.cumsum(per_unit)]),
        nic_of=number[nic_of],
        nic_node=np.searchsorted(units, whole.nic_node[nics]),
        nic_rail=whole.nic_rail[nics],
        nic_leaf=leaf - first[1],
        nic_up=small.find_links(numbers, leaf),
        nic_down=small.find_links(leaf, numbers),
        switch_plane=whole.switch_plane[switches],
        switch_group=whole.switch_group[switches],
        switch_tier=tier,
        up_ptr=np.concatenate([[0], np.cumsum(np.bincount(low - first[1], minlength=len(switches)))]),
        up_switch=high - first[1],
        up_cables=small.link_count[up_link],
        up_link=up_link,
        down_link=small.find_links(high, low),
    )


def _with_damage(small: Topology, topology: Topology) -> Topology:
    """Return the part without what has failed of it."""
    assert topology.damage is not None

    def is_there(name: str) -> bool:
        try:
            select(small.wiring, name, "fail")
        except InputError:
            return False
        return True

    fail = [name for name in topology.damage.fail if is_there(name)]
    return damaged(small, fail, {name: share for name, share in topology.damage.degrade.items() if is_there(name)})


def _classes(frame: Frame, kinds: _Kinds, level: Ints, owner: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Return int64[n], int64[n]: which links are alike, by what they belong to, and how many are like each."""
    unit_label = np.where(kinds.kind >= 0, kinds.kind, kinds.kind.max() + 1)
    labels = [
        unit_label,
        _alike(np.column_stack([kinds.pod_label[frame.pod], kinds.block_label])),
        kinds.pod_label,
        np.zeros(1, dtype=np.int64),
    ]
    label, members = np.zeros_like(level), np.ones_like(level)
    for which, values in enumerate(labels):
        here = level == which
        label[here] = values[owner[here]]
        members[here] = np.bincount(values)[label[here]]
    return _alike(np.stack([level, label, place], axis=1)), members


def _ranks(small: Topology, units: Ints, frame: Frame, gpus: Ints) -> tuple[Ints, Ints]:
    """Return the rank of each GPU of the whole, -1 if it is none of the part, and the GPU of each rank."""
    per = frame.per_unit
    used = np.zeros(len(frame.block) * per, dtype=np.bool_)
    used[gpus] = True
    whole = (units[:, None] * per + np.arange(per)).ravel()  # of each GPU of the part in order
    numbers = np.arange(len(whole)) if small.damage is None else np.array(small.damage.gpus)
    chosen = np.flatnonzero(used[whole[numbers]])
    rank_of = np.full(len(used), -1, dtype=np.int64)
    rank_of[whole[numbers[chosen]]] = np.arange(len(chosen))
    return rank_of.reshape(-1, per), chosen
