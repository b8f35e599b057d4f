"""Paces of a ring: what a step takes at each place, on a machine that a small part stands for.

A ring visits the ranks of a unit, then those of the next. All units whose neighbours are alike are at places of one
kind: there all hops of a step are laid on the part, with the costs that the same hops have in a schedule of all ranks.

A transfer never runs faster than alone on its links, and never slower than with a fair share of each beside all
transfers that could be there. Where both are the same, or where everything that shares a link does so in step, what a
step takes is known. Elsewhere the ring is walked with both, and the answer holds if it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.engine import Problem
from collsim.engine.wavefront import Chain
from collsim.fabric.fabric import Float, Int
from collsim.schedule import EVERY, Transfers
from collsim.schedule.forms import Chunks
from collsim.simulation.quotient.frames import UNIT
from collsim.simulation.quotient.link_loads import UnitBytes, alike
from collsim.simulation.quotient.representatives import Miniature

__all__ = ["Paces", "Places", "Road", "Stream", "paces_of", "places_of"]

Bool = NDArray[np.bool_]

OVER = 1 + 1e-9
"""A link is full if its transfers could take more than its capacity by more than rounding."""


class Stream(NamedTuple):
    """Equal channels that go round together."""

    ring: int
    kinds: tuple[tuple[int, bool], ...]
    """The different sizes of their chunks, in bytes, and whether who gets them adds."""
    copies: int
    sent_bytes: float
    """Least bytes that one of them sends from each place altogether: all chunks but one in each leg."""


@dataclass(frozen=True, slots=True, eq=False)
class Road:
    """The order in which rings visit units, and the GPUs of each.

    Attributes
    ----------
    units : int64[m]
        Units of the whole, in the order in which they are visited.
    style : int64[m]
        How each is passed.
    paths : sequence of sequence of sequence of int
        By style and ring: the GPUs, as numbered in a unit, in the order in which they are visited.
    """

    units: Int
    style: Int
    paths: Sequence[Sequence[Sequence[int]]]

    @property
    def stops(self) -> Int:
        """int64[m]: how many GPUs of each unit are visited."""
        return np.array([len(rings[0]) for rings in self.paths])[self.style]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Hops of one step from a unit of each kind.

    Attributes
    ----------
    transfers : Transfers
        On ranks of the part; the step is the number of the kind.
    chunks : Chunks
    kind : int64[m]
        Of each unit on the road.
    row : int64[kinds, streams, kinds of chunks, hops]
        The transfer; -1 where there is none.
    """

    transfers: Transfers
    chunks: Chunks
    kind: Int
    row: Int


def places_of(mini: Miniature, road: Road, streams: Sequence[Stream], lanes: int) -> Places:
    """Return the hops of *streams* from each kind of unit on a road."""
    kind, first = _kinds(mini, road)
    after = np.roll(road.units, -1), np.roll(road.style, -1)
    n_kinds = max(len(stream.kinds) for stream in streams)
    sizes = sorted({size for stream in streams for size, _ in stream.kinds})
    row = np.full((len(first), len(streams), n_kinds, int(road.stops.max())), -1, dtype=np.int64)
    ends: list[tuple[int, int]] = []
    labels: list[tuple[int, int, int, bool]] = []
    for number, place in enumerate(first.tolist()):
        for which, stream in enumerate(streams):
            path = road.paths[road.style[place]][stream.ring]
            stops = [int(road.units[place]) * mini.frame.per_unit + gpu for gpu in path]
            entry = int(after[0][place]) * mini.frame.per_unit + road.paths[after[1][place]][stream.ring][0]
            for j in range(n_kinds):
                size, adds = stream.kinds[min(j, len(stream.kinds) - 1)]
                row[number, which, j, : len(path)] = len(ends) + np.arange(len(path))
                ends += list(zip(stops, [*stops[1:], entry], strict=True))
                labels += [(number * n_kinds + j, stream.copies, sizes.index(size), adds)] * len(path)
    src, dst = mini.stand_ins(*np.array(ends).T)
    step, copies, chunk, adds = np.array(labels).T
    transfers = Transfers.side_by_side(src, dst, chunk, step=step, reduces=adds > 0, lanes=lanes, copies=copies)
    every = np.full(len(sizes), EVERY)
    return Places(transfers, Chunks(np.array(sizes), every, every), kind, row)


def _kinds(mini: Miniature, road: Road) -> tuple[Int, Int]:
    """Return int64[m], the kind of each place on the road, and the first place of each kind."""
    unit_kind = mini.kinds.kind[road.units]
    after = np.roll(road.units, -1)
    shared = mini.frame.shared(road.units, after)
    columns = [road.style, unit_kind, shared, np.roll(unit_kind, -1), np.roll(road.style, -1)]
    return alike(*columns)


@dataclass(frozen=True, slots=True, eq=False)
class Paces:
    """Bounds on the pace of the hops of a road, by stream.

    Attributes
    ----------
    fast, slow : list of Chain
        No hop takes less than with the first, nor more than with the second.
    in_step : bool
        Whether that holds only if all streams keep in step.
    at_cap : list of bool[n]
        Which hops run as fast as their channels.
    carried : UnitBytes
        By unit on the road.
    above : float64[spots, owners]
        Bytes on links of blocks and pods.
    """

    fast: list[Chain]
    slow: list[Chain]
    in_step: bool
    at_cap: list[Bool]
    carried: UnitBytes
    above: Float


def paces_of(mini: Miniature, road: Road, streams: Sequence[Stream], places: Places, problem: Problem) -> Paces:
    """Return the paces of the hops, by the waits, caps and routes (over links of the part) of *problem*."""
    n, (_, _, n_chunks, _) = len(places.transfers), places.row.shape
    cross = _crossings(mini, places, problem)
    alone_Bps = problem.cap_Bps[:n].copy()
    np.minimum.at(alone_Bps, cross.row, problem.capacity_Bps[cross.link] / cross.weight)
    loads = _loads(mini, road, streams, (places, cross), alone_Bps)
    before, after = np.roll(places.kind, 1), np.roll(places.kind, -1)
    group, first = alike(before, places.kind, after)
    fast_Bps, slow_Bps = (np.tile(alone_Bps, (len(first), 1)) for _ in range(2))
    in_step = False
    for number, place in enumerate(first.tolist()):
        here = np.flatnonzero(cross.step // n_chunks == places.kind[place])
        load = loads.around(here, (int(before[place]), int(after[place])))
        link, row = cross.link[here], cross.row[here]
        full = load.offered_Bps > problem.capacity_Bps[link] * OVER
        share_Bps = problem.capacity_Bps[link] / load.weight
        in_step |= bool((full & load.at_once).any())
        for rates_Bps, held in ((fast_Bps, full & load.at_once), (slow_Bps, full)):
            np.minimum.at(rates_Bps[number], row[held], share_Bps[held])
    late_s = np.zeros(n)
    late_s[problem.dep[len(problem.dep) - (len(problem.route) - n) :]] = problem.latency_s[n:]  # rows of arrivals
    walks = [_walk(road, places, which, len(stream.kinds)) for which, stream in enumerate(streams)]

    def chain(walk: Int, unit: Int, rates_Bps: Float) -> Chain:
        flow_s = problem.size_bytes[walk] / rates_Bps[group[unit], walk]
        return Chain(problem.latency_s[walk], flow_s, late_s[walk])

    return Paces(
        fast=[chain(*walk, fast_Bps) for walk in walks],
        slow=[chain(*walk, slow_Bps) for walk in walks],
        in_step=in_step,
        at_cap=[slow_Bps[group[unit], walk[0]] >= problem.cap_Bps[walk[0]] / OVER for walk, unit in walks],
        carried=loads.of_units(places.kind),
        above=loads.above_bytes,
    )


def _walk(road: Road, places: Places, which: int, n_chunks: int) -> tuple[Int, Int]:
    """Return int64[sizes, n], the transfer from each place of a stream, and int64[n], the unit on the road there."""
    stops = road.stops
    unit = np.repeat(np.arange(len(stops)), stops)
    hop = np.arange(len(unit)) - np.repeat(np.cumsum(stops) - stops, stops)
    return places.row[places.kind[unit], which, :n_chunks, hop].T, unit


class _Crossings(NamedTuple):
    """Which links the transfers of places cross; arrays of one length."""

    row: Int
    link: Int
    weight: Float
    step: Int
    """Kind of place times number of kinds of chunks, plus kind of chunk."""
    far: Int
    """0 if the link belongs to the unit (or block or pod) that the hop comes from, 1 if to the one where it leads."""
    left: Int
    """Number of hops of the unit that come after this one."""
    place: Int
    """The number of the link's place in a unit, a block or a pod."""


def _crossings(mini: Miniature, places: Places, problem: Problem) -> _Crossings:
    """Return every pair of a transfer and a link that it crosses."""
    transfers, n = places.transfers, len(places.transfers)
    counts = np.diff(problem.route_ptr)[problem.route[:n]]
    row = np.repeat(np.arange(n), counts)
    start = np.repeat(problem.route_ptr[problem.route[:n]] - np.cumsum(counts) + counts, counts)
    entry = start + np.arange(len(row))
    link = problem.route_link[entry]
    unit, frame = mini.rank_unit[transfers.src[row]], mini.frame
    levels = np.stack([unit, frame.block[unit], frame.pod[frame.block[unit]], np.zeros_like(unit)])
    source = levels[mini.link_level[link], np.arange(len(row))]
    left = np.zeros(n, dtype=np.int64)
    there = places.row >= 0
    after = there.sum(axis=-1, keepdims=True) - 1 - np.arange(places.row.shape[-1])
    left[places.row[there]] = np.broadcast_to(after, places.row.shape)[there]
    far = (mini.link_owner[link] != source).astype(np.int64)
    return _Crossings(row, link, problem.route_weight[entry], transfers.step[row], far, left[row], mini.link_spot[link])


class _Load(NamedTuple):
    """Load of a link while a hop crosses it."""

    weight: Float
    offered_Bps: Float
    """Sum of the rates that all that could be there would take alone."""
    at_once: Bool
    """True if all that is ever there comes from one hop of one unit, in all streams."""


@dataclass(frozen=True, slots=True, eq=False)
class _Loads:
    """Loads that hops put on links: weight, rate alone, and bytes.

    Attributes
    ----------
    cross : _Crossings
    n_chunks : int
    table : float64[3, steps, 2, link places]
    first_left, last_left : int64[steps, 2, link places]
        Of the hops over a link, how many come after the first and the last of them.
    above : float64[2, crossings]
        Instead, weight and rate on links of blocks and pods, which hops from several units cross.
    above_bytes : float64[spots, owners]
        What is on these links.
    is_above : bool[crossings]
    """

    cross: _Crossings
    n_chunks: int
    table: Float
    first_left: Int
    last_left: Int
    above: Float
    above_bytes: Float
    is_above: Bool

    def of_units(self, kind: Int) -> UnitBytes:
        """Return the bytes on the links of units, at places of such kinds: of their own hops and of those before."""
        before = np.roll(kind, 1)
        pairs, first = alike(before, kind)
        sent = self.table[2, :: self.n_chunks]  # with chunks of every kind the same hops
        return UnitBytes(pairs, sent[kind[first], 0] + sent[before[first], 1])

    def around(self, here: Int, neighbours: tuple[int, int]) -> _Load:
        """Return the loads of the crossings *here*, whose unit has *neighbours* of these kinds."""
        cross, (before, after) = self.cross, neighbours
        step, far, place = cross.step[here], cross.far[here], cross.place[here]
        own = self.table[:2, step, far, place]
        beside = np.where(far == 0, before, after) * self.n_chunks + step % self.n_chunks
        other = self.table[:2, beside, 1 - far, place]
        alone = (other[0] == 0) & (self.first_left[step, far, place] == self.last_left[step, far, place])
        total = np.where(self.is_above[here], self.above[:, here], own + other)
        return _Load(total[0], total[1], alone & ~self.is_above[here])


def _loads(
    mini: Miniature, road: Road, streams: Sequence[Stream], hops: tuple[Places, _Crossings], alone_Bps: Float
) -> _Loads:
    """Return the loads that all hops put on the links."""
    places, cross = hops
    n_kinds, _, n_chunks, _ = places.row.shape
    shape = (n_kinds * n_chunks, 2, int(mini.link_spot.max()) + 1)
    sent = np.zeros(len(places.transfers))
    for which, stream in enumerate(streams):
        rows = places.row[:, which]
        sent[rows[rows >= 0]] = stream.sent_bytes
    columns = np.stack([cross.weight, cross.weight * alone_Bps[cross.row], cross.weight * sent[cross.row]])
    where = cross.step, cross.far, cross.place
    is_above = mini.link_level[cross.link] > UNIT
    table, first, last = np.zeros((3, *shape)), np.full(shape, -1), np.full(shape, 1 << 30)
    for target, values in zip(table, columns * ~is_above, strict=True):
        np.add.at(target, where, values)
    np.maximum.at(first, where, cross.left)
    np.minimum.at(last, where, cross.left)
    above, above_bytes = _above(mini, road, places, cross, columns)
    return _Loads(cross, n_chunks, table, first, last, above, above_bytes, is_above)


def _above(mini: Miniature, road: Road, places: Places, cross: _Crossings, columns: Float) -> tuple[Float, Float]:
    """Return the most that any block or pod has on such a link of its own, and float64[spots, owners], bytes on all.

    The former is float64[2, crossings], weight and rate.
    """
    n_chunks, frame = places.row.shape[2], mini.frame
    ends = np.stack([road.units, np.roll(road.units, -1)])
    level, kind = mini.link_level[cross.link], cross.step // n_chunks
    owners = np.stack([ends, frame.block[ends], frame.pod[frame.block[ends]], np.zeros_like(ends)])
    members = [np.flatnonzero(places.kind == number) for number in range(places.row.shape[0])]
    n_places, n_owners = int(mini.link_spot.max()) + 1, int(owners.max()) + 1
    total = np.zeros((3, n_chunks * n_places * n_owners))
    spots = {}
    for crossing in np.flatnonzero(level > UNIT).tolist():
        owner = owners[level[crossing], cross.far[crossing], members[kind[crossing]]]
        label = (cross.step[crossing] % n_chunks) * n_places + cross.place[crossing]
        spots[crossing] = label * n_owners + owner
        for target, value in zip(total, columns[:, crossing], strict=True):
            np.add.at(target, spots[crossing], value)
    found = columns[:2].copy()
    for crossing, spot in spots.items():
        found[:, crossing] = total[:2, spot].max(axis=1)
    return found, total[2, : n_places * n_owners].reshape(n_places, n_owners)
