"""A schedule laid on the fabric: the route of each transfer, and what it shares with others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from collsim.collectives import Algorithm, record_of
from collsim.core.arrays import distinct, spread
from collsim.core.errors import Fault, UnsupportedError
from collsim.fabric.bounds.lower import MOST_IN_TABLES
from collsim.fabric.fabric import Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes, merge_trunks, network_labels, routes_of
from collsim.library.costs.channel_costs import Bool, Use
from collsim.library.costs.network_costs import Steps, steps_of
from collsim.schedule import Schedule, Transfers
from collsim.schedule.forms import EVERY
from collsim.schedule.in_network import Groups
from collsim.simulation.runs import LoweredRun

__all__ = [
    "MOST_TRANSFERS",
    "Lowered",
    "Taken",
    "end_rates_Bps",
    "joined",
    "lower",
    "narrowest_Bps",
    "refuse_tables",
    "relaid",
    "steps_on",
    "use_of",
    "ways_of",
]

MOST_TRANSFERS = 3_000_000
"""Larger schedules take more than about half a minute and 4 GB."""
MOST_EQUAL_CHANNELS = 16
"""Before equal channels are merged, a schedule may be so many times larger."""


class Cut(NamedTuple):
    """Runs of equal steps, or of hops of a chain, of which only the first were written out: more take as long each."""

    pipe: Int
    """int64[classes]: the pipeline of each class of hops."""
    owner: Int
    """int64[runs]: the pipeline that has the run."""
    last: Int
    """int64[runs]: the last transfer of the run that was written out."""
    before: Int
    """int64[runs]: one before it."""
    middle: Int
    """int64[runs]: one between both."""
    later: Float
    """float64[runs]: which part of what lies between both lies behind the one in the middle."""
    times: Float
    """float64[runs]: how many times what is missing takes as long as from the one to the other."""
    of_hops: Bool
    """bool[runs]: whether hops are missing, not steps."""

    def ahead_s(self, hop: int, finish_s: Float, of_hops: float) -> float:
        """Return the seconds that the pipeline of a class of hops needs for what is missing.

        *of_hops* is the part of those for missing hops that a call shows.
        """
        own = self.owner == self.pipe[hop]
        return float((self._shown(own, of_hops) * (finish_s[self.last[own]] - finish_s[self.before[own]])).sum())

    def unsettled_s(self, hop: int, finish_s: Float, of_hops: float) -> float:
        """Return by how many seconds that differs at the pace before the one in the middle and at the pace after it."""
        own = self.owner == self.pipe[hop]
        begin_s, middle_s, end_s = (finish_s[each[own]] for each in (self.before, self.middle, self.last))
        paces_s = (middle_s - begin_s) / (1 - self.later[own]), (end_s - middle_s) / self.later[own]
        return abs(float((self._shown(own, of_hops) * (paces_s[1] - paces_s[0])).sum()))

    def _shown(self, own: Bool, of_hops: float) -> Float:
        """Return how many times what is missing of some runs is shown."""
        return np.asarray(np.where(self.of_hops[own], of_hops, 1.0) * self.times[own])


class Doubt(NamedTuple):
    """How far the time of hops that are only nearly alike may be off."""

    least: float
    """A part of the time."""
    times: int
    """So many times as far as hops that are told apart less far move it."""
    coarser: Callable[[], Lowered] | None
    """Returns the same by these."""


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A schedule laid on the routes of a run; what it costs is not said yet.

    Attributes
    ----------
    schedule : Schedule
    run : LoweredRun
        The one that it was laid on, with other routes if it takes some that were not kept.
    transfers : Transfers
        Equal channels merged.
    size_bytes : float64[n]
    route : int64[n]
        Which of *used* each transfer takes.
    used, copies : int64[n_used]
        Number of the route in the run, and how many equal transfers take it side by side.
    across, added : bool[n]
        Whether a transfer leaves its node, and whether switches there add or copy it.
    use : Use
    dtype : str
    steps : Steps or None
        The transfers between nodes; None within one node.
    carried : float64[n_links], float64[n_links], or None
        Bytes on the links of the fabric within nodes and between them, where transfers stand for others: routes are
        then those of classes over classes of links.
    ways : Routes or None
        By route, the links of the fabric that one of those transfers crosses; None: the routes of the run.
    tells : bool[n_deps] or None
        Whether a wait is for bytes; None: where the first arrives at whoever sends the second.
    near : bool
        Whether they stand for others that are only nearly alike.
    rounded : bool
        Whether chunks that differ by an element are taken as the largest.
    cut : Cut or None
        Steps that are not among the transfers.
    at_once : float64[n] or None
        Where all ranks do the same, and transfers are of one: how many messages the channel of each serves at a time.
    doubt : Doubt or None
        How far the time may be off because of that; None: hardly.
    narrowest_Bps : float64[n_used] or None
        What the narrowest link of each route carries, where links that are only nearly alike are pooled.
    compiled : bool
        Whether classes were told apart by compiled code: what solves them is then nearly there.
    bounds : bool
        Whether chunks are no larger than those of the schedule, so that a time is a bound only.
    found : dict
        What was found for these transfers, with what it was found for.
    """

    schedule: Schedule
    run: LoweredRun
    transfers: Transfers
    size_bytes: Float
    route: Int
    used: Int
    copies: Int
    across: Bool
    added: Bool
    use: Use
    dtype: str
    steps: Steps | None
    carried: tuple[Float, Float] | None = None
    ways: Routes | None = None
    tells: Bool | None = None
    near: bool = False
    rounded: bool = False
    cut: Cut | None = None
    at_once: Float | None = None
    doubt: Doubt | None = None
    narrowest_Bps: Float | None = None
    compiled: bool = False
    bounds: bool = False
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> Algorithm:
        """Record of the algorithm that made the schedule."""
        return record_of(self.schedule.op, self.schedule.algo)


def lower(
    schedule: Schedule,
    run: LoweredRun,
    dtype: str = "float",
    ports: TreePorts | None = None,
    ways: Callable[[Int, Int], Taken] | None = None,
) -> Lowered:
    """Lay *schedule*, which moves elements of *dtype*, on the fabric of *run*.

    *ports* is what reduction trees of other groups have taken of the network. *ways* says which ways transfers take if
    these are known already.

    Raises
    ------
    UnsupportedError
        The schedule has more transfers than fit in memory, or needs switches that add and multicast.
    NoRouteError
        The network has no tree for a group of ranks.
    """
    _refuse_size(schedule, MOST_TRANSFERS * MOST_EQUAL_CHANNELS)
    if schedule.op == "all_to_all_v":
        refuse_tables(schedule)
    merged = schedule.merged()
    _refuse_size(merged, MOST_TRANSFERS)
    transfers = merged.materialise()
    ends = transfers.src, transfers.dst
    taken = ways(*ends) if ways else ways_of(schedule, ends, run, ports or TreePorts.free(run.fabric))
    run, across, added = taken.run, taken.across, taken.added
    n_routes = len(run.routes.latency_s)
    key, route = distinct(transfers.copies * n_routes + taken.number)
    copies, used = np.divmod(key, n_routes)
    copies = spread(copies, 1)
    size_bytes = transfers.size_bytes(schedule.chunks).astype(np.float64)
    use = use_of(transfers, run, used[route], schedule.groups)
    steps = steps_on(transfers, run, used[route], use, across) if across.any() else None
    return Lowered(schedule, run, transfers, size_bytes, route, used, copies, across, added, use, dtype, steps)


class Taken(NamedTuple):
    """Ways of transfers between *ends*."""

    run: LoweredRun
    """With other routes if they take some that were not kept."""
    number: Int
    """int64[n]: the route of each."""
    across: Bool
    """bool[n]: whether it leads between nodes."""
    added: Bool
    """bool[n]: whether switches there add or copy it."""
    groups: Groups


def ways_of(schedule: Schedule, ends: tuple[Int, Int], run: LoweredRun, ports: TreePorts) -> Taken:
    """Return the ways of transfers of *schedule* from and to *ends*, int64[n] each; raises as `lower` does.

    Other sizes have other numbers of transfers between the same ends, which are laid once. Of clusters, whose ways are
    many, those of the last ends are kept; trees of the network are planted anew, for they take what others leave.
    """
    lowest = min(int(ends[0].min(initial=0)), int(ends[1].min(initial=0)), 0)
    width = run.fabric.n_ranks - lowest
    pairs, which = distinct((ends[0] - lowest) * width + (ends[1] - lowest))
    key, slot = (lowest, hashlib.blake2b(pairs.tobytes()).digest()), None
    if run.routes.number is not None and not schedule.groups:
        in_cluster = run.topology.cluster is not None
        slot = ("ways", *key) if not in_cluster else ("ways",) if lowest == 0 else None
    before: object
    taken: Taken | None
    before, taken = run.found.get(slot, (None, None))
    if taken is None or before != key:
        src, dst = (end + lowest for end in np.divmod(pairs, width))
        routes, number = routes_of(run.fabric, run.routes, (src, dst), schedule.groups, ports)
        own = run
        if routes is not run.routes:
            trunks, capacity = merge_trunks(routes, run.fabric.capacity_Bps)
            own = replace(run, routes=routes, trunks=trunks, trunk_capacity_Bps=capacity)
        taken = Taken(own, number, *_across(schedule, (src, dst), own), schedule.groups)
        if slot is not None:
            run.found[slot] = key, taken
    return taken._replace(number=taken.number[which], across=taken.across[which], added=taken.added[which])


def relaid(lowered: Lowered, run: LoweredRun) -> Lowered:
    """Return the same on the routes of another draw of the hash, which meet elsewhere in the network."""
    if lowered.steps is None:
        return replace(lowered, run=run)
    way = lowered.used[lowered.route]
    return replace(lowered, run=run, steps=steps_on(lowered.transfers, run, way, lowered.use, lowered.across))


def steps_on(transfers: Transfers, run: LoweredRun, route: Int, use: Use, across: Bool) -> Steps:
    """Return the transfers between nodes, which take the routes numbered *route*."""
    trunks, capacity_Bps = run.trunks, run.trunk_capacity_Bps
    rows = np.flatnonzero(across)
    kind, which = distinct(_in_step(transfers, route)[rows])
    n_steps = int(transfers.step.max(initial=0)) + 1
    way, step = np.divmod(kind, n_steps)
    lanes = np.bincount(which, weights=(use.lanes * transfers.copies)[rows])
    taken = trunks.take(way, np.ones(len(way)))
    owner = np.repeat(np.arange(len(kind)), np.diff(taken.ptr))
    _, met = distinct(taken.link * n_steps + step[owner])
    load = np.bincount(met, weights=lanes[owner] * taken.weight)
    shared_Bps = np.full(len(kind), np.inf)
    np.minimum.at(shared_Bps, owner, capacity_Bps[taken.link] / load[met])
    alone_Bps = _alone_Bps(run)[way]
    return steps_of(use, rows, alone_Bps[which], shared_Bps[which])


def _across(schedule: Schedule, ends: tuple[Int, Int], run: LoweredRun) -> tuple[Bool, Bool]:
    """Return bool[n], bool[n]: whether transfers lead between nodes, and whether switches there add or copy them."""
    src, dst = ends
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    added = np.isin(np.minimum(src, dst), network_labels(run.fabric, schedule.groups))
    pair = (src >= 0) & (dst >= 0)
    return added | (pair & (node[src] != node[dst])), added


def use_of(transfers: Transfers, run: LoweredRun, route: Int, groups: Groups) -> Use:
    """Return the channels and ways out that the transfers share; *route* numbers the route of each."""
    lanes, way = spread(transfers.lanes.astype(np.float64), 1), transfers.src
    alone_Bps, duplex = _port_Bps(transfers, run, groups), spread(np.zeros(1, dtype=np.bool_), len(route))
    straight = joined(transfers.src, transfers.dst, run)
    if straight.any():
        pairs = run.fabric.n_ranks + 1
        there, back = ((a + 1) * pairs + b for a, b in ((transfers.src, transfers.dst), (transfers.dst, transfers.src)))
        way = np.where(straight, there, way)
        duplex = straight & np.isin(_in_step(transfers, there), _in_step(transfers, back))
        alone_Bps = np.where(straight, _alone_Bps(run)[route], alone_Bps)
    return Use(lanes, spread(_active(transfers, way), 1), alone_Bps, duplex, transfers.reduces)


def _active(transfers: Transfers, label: Int) -> Float:
    """Return float64[n]: the number of channels that are busy under the label of each transfer in its step."""
    _, group = distinct(_in_step(transfers, label))
    return np.bincount(group, weights=transfers.lanes * transfers.copies).astype(np.float64)[group]


def _port_Bps(transfers: Transfers, run: LoweredRun, groups: Groups) -> Float:
    """Return float64[n]: the way out of each sender, as far as the way into its receiver lets it be used.

    The channels of one sender share the way into a receiver; those of other senders meet them on its links.
    """
    out_Bps, in_Bps = end_rates_Bps(transfers.src, transfers.dst, run, groups)
    if (in_Bps >= out_Bps).all():
        return spread(out_Bps, 1)
    n_labels = len(groups) + 1
    pair = (transfers.src + n_labels) * (run.fabric.n_ranks + n_labels) + transfers.dst + n_labels
    return np.minimum(out_Bps, in_Bps * _active(transfers, transfers.src) / _active(transfers, pair))


def end_rates_Bps(src: Int, dst: Int, run: LoweredRun, groups: Groups) -> tuple[Float, Float]:
    """Return float64[n] twice: the way out of the source of each transfer, and the way into its target."""
    out_Bps, in_Bps = (
        _of_ends(rates_Bps, ends, groups) for rates_Bps, ends in zip(run.port_rates_Bps, (src, dst), strict=True)
    )
    return out_Bps, in_Bps


def _of_ends(rates_Bps: Float, ends: Int, groups: Groups) -> Float:
    """Return float64[n]: the rate of each rank in *ends*, of a group the least of its members."""
    least_Bps = np.array([rates_Bps.min(), *(rates_Bps[list(members)].min() for members in groups)])
    return np.where(ends >= 0, rates_Bps[np.maximum(ends, 0)], least_Bps[np.where(ends < 0, EVERY - ends, 0)])


def joined(src: Int, dst: Int, run: LoweredRun) -> Bool:
    """Return bool[n]: whether a link joins sender and receiver."""
    both = (src >= 0) & (dst >= 0)
    if not run.fabric.joins_ranks:
        return np.zeros(len(src), dtype=np.bool_)
    ends = (run.fabric.rank_node[np.where(both, end, 0)] for end in (src, dst))
    return np.asarray(both & (run.fabric.wiring.find_links(*ends) >= 0))


def _alone_Bps(run: LoweredRun) -> Float:
    """Return what each route of a run carries alone, found once for all its sizes as long as they take these routes."""
    trunks, capacity_Bps = run.single or run.trunks, run.trunk_capacity_Bps
    known = run.found.get("alone")
    if known is None or known[0] is not trunks or known[1] is not capacity_Bps:
        known = run.found["alone"] = trunks, capacity_Bps, narrowest_Bps(trunks, capacity_Bps)
    found: Float = known[2]
    return found


def narrowest_Bps(trunks: Routes, capacity_Bps: Float) -> Float:
    """Return float64[n_routes]: what each route carries if it has its trunks to itself; inf if it has none."""
    narrowest = np.full(len(trunks.ptr) - 1, np.inf)
    route = np.repeat(np.arange(len(narrowest)), np.diff(trunks.ptr))
    np.minimum.at(narrowest, route, capacity_Bps[trunks.link] / trunks.weight)
    return narrowest


def _in_step(transfers: Transfers, label: Int) -> Int:
    """Return int64[n]: a number for each pair of label and step."""
    return np.asarray(label * (int(transfers.step.max(initial=0)) + 1) + transfers.step)


def refuse_tables(schedule: Schedule) -> None:
    """Refuse what needs tables of all pairs of ranks if there are too many."""
    if schedule.n_ranks > MOST_IN_TABLES:
        what = f"{schedule.n_ranks} ranks are too many for tables of pairs"
        raise UnsupportedError(Fault(what, f"{schedule.op} by {schedule.algo}", f"at most {MOST_IN_TABLES} ranks"))


def _refuse_size(schedule: Schedule, most: int) -> None:
    """Refuse a schedule that would not fit in memory."""
    if schedule.n_transfers > most:
        what = f"{schedule.n_transfers} transfers are too many to simulate one by one"
        hint = "ask for fewer ranks or channels, or larger chunks"
        raise UnsupportedError(Fault(what, f"{schedule.op} by {schedule.algo}", hint))
