"""Classes of hops of pipelines that have to behave alike, or nearly so: the finest that are not too many.

Where even the classes are too many to simulate, hops are only told apart by what is a few waits and shared links away,
and links of a class carry what they carry on average.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from collsim.core.arrays import distinct, entries_of, pointers
from collsim.engine.symmetry import Hops, alike_hops, codes_of, firsts, numbers
from collsim.fabric.fabric import Float, Int, Int32
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool
from collsim.simulation.busy import Busy
from collsim.simulation.hop_rows import HopWays, Rows, runs_of
from collsim.simulation.lowering import end_rates_Bps, joined
from collsim.simulation.runs import LoweredRun

__all__ = ["TIMES_WHOLE", "Classes", "chunks_that_fit", "classes_of", "coarser", "fits_whole"]

MOST_EXACT = 200_000
"""Of so many transfers of classes the engine takes a second or two (chosen)."""
TIMES_WHOLE = 2
"""So many times as many are simulated if they are all that a pipeline has: to go on at a pace was up to 5 % off."""
LEAST_CHUNKS = 48
"""Fewer equal chunks in a row than these do not show at which pace more follow (chosen)."""
MOST_NEAR = 120_000
"""The same of classes that are only nearly alike, of which there are as many as one likes: enough to tell hops apart by
what is two waits away where one was 39 % off (docs/scale.md, "Nearly alike")."""
MOST_NEAR_HOPS = 4_000_000
"""So many kinds of links all transfers of classes may cross (chosen: the engine looks at each again and again, some
seconds for so many)."""
MOST_ROUNDS = 4
TIMES_ONE_WAIT = 4
"""So many times as many of rings are simulated before not even one wait tells hops apart: then times were 32 % too
short to 140 % too long, as who is just behind another stands for all, and links of a kind are pooled."""
LOAD_STEP = 0.01
"""Links are only nearly alike if they are of one kind and their loads differ by no more (chosen: hundreds of kinds)."""


class Classes(NamedTuple):
    """Classes of rows and links."""

    of_row: Int
    of_link: Int
    first: Int
    """The row that stands for each class."""
    rounds: int | None
    """By how many waits members are told apart; None: they have to behave alike."""
    ptr: Int
    link: Int
    weight: Float
    """What one row of each class takes of one link of each class."""
    wait_ptr: Int
    wait: Int
    """The classes that each waits for."""
    lag: Int
    tells: Bool
    """Whether it waits for bytes."""
    busy: Busy
    """What is busy beside each."""
    few_links: bool = False
    """Whether links are told apart by what they carry only."""

    @property
    def near(self) -> bool:
        """True if members are only nearly alike."""
        return self.rounds is not None


def classes_of(rows: Rows, run: LoweredRun, times: int = 1) -> Classes:
    """Return the classes of rows: the finest that are not too many for the chunks of these.

    Of classes that are exactly alike, *times* as many are not too many.
    """
    of_rings = rows.programs[0].adds is not None  # of others chunks can be cut
    most = {None: times * MOST_EXACT, 1: (TIMES_ONE_WAIT if of_rings else 1) * MOST_NEAR}

    def fit(rounds: int | None) -> bool:
        return _transfers(_parted(rows, run, rounds).first, rows) <= most.get(rounds, MOST_NEAR)

    if fit(None):
        return _told_apart(rows, run, None)
    by_waits = takewhile(fit, range(1, MOST_ROUNDS + 1))  # what is told apart stays so: beyond too many are more
    return _told_apart(rows, run, max(by_waits, default=0))


def coarser(rows: Rows, run: LoweredRun, classes: Classes) -> Classes | None:
    """Return classes that are told apart by one wait less; None where none are coarser."""
    return _told_apart(rows, run, classes.rounds - 1) if classes.rounds else None


class _Parted(NamedTuple):
    """Classes of rows and of links."""

    of_row: Int32
    of_link: Int32
    first: Int
    """The first of each of rows."""
    most: int
    """Beyond so many of rows they are told apart no further."""


def _parted(rows: Rows, run: LoweredRun, rounds: int | None) -> _Parted:
    """Return the classes by so many waits; exact ones only as far as their chunks, or a few, can be simulated."""
    told, parted, _, kept = _known(rows, run)
    most = len(rows.hop)
    if rounds is None:
        most = min(most, TIMES_WHOLE * MOST_EXACT // max(int(min(rows.pipes.n_chunks.min(), LEAST_CHUNKS)), 1))
    if rounds not in parted or parted[rounds].most < len(parted[rounds].first) <= most:
        of_row, of_link = alike_hops(told, rounds, most, kept)
        parted[rounds] = _Parted(of_row.astype(np.int32), of_link.astype(np.int32), firsts(of_row), most)
        if rounds:  # colours that nobody asks for again; those of no round say which links are of a kind
            kept.pop(rounds, None)
    return parted[rounds]


class _Known(NamedTuple):
    """What was found for rows."""

    told: Hops
    parted: dict[int | None, _Parted]
    known: dict[tuple[int | None, bool], Classes]
    """By so many waits; True: of links by what they carry only."""
    kept: dict[int, Any]


def _known(rows: Rows, run: LoweredRun) -> _Known:
    """Return what was found for rows that are told apart alike."""
    key = "classes", *rows.labels
    if key not in run.found:
        run.found[key] = _Known(_told(rows), {}, {}, {})
    found: _Known = run.found[key]
    return found


def _told_apart(rows: Rows, run: LoweredRun, rounds: int | None) -> Classes:
    """Return the classes of rows by so many waits; of links, if that are too many, by what they carry.

    Both are kept for other sizes, each of which decides by chunks of its own which of them it takes.
    """
    known = _known(rows, run).known
    if (rounds, False) not in known:
        found = _with_waits(rows, run, rounds)
        if rounds is not None and len(found.link) > MOST_NEAR_HOPS:  # of no use at any size, and large
            found = known[rounds, True] = _over_few_links(rows, run, found)
        known[rounds, False] = found
    found = known[rounds, False]
    if rounds is None or found.few_links or _hops_of_all(found, rows) <= MOST_NEAR_HOPS:
        return found
    if (rounds, True) not in known:
        known[rounds, True] = _over_few_links(rows, run, found)
    return known[rounds, True]


def _over_few_links(rows: Rows, run: LoweredRun, classes: Classes) -> Classes:
    """Return the same classes of rows over links that are told apart by what they carry only."""
    told, _, _, kept = _known(rows, run)
    of_link = _nearly_alike(told, alike_hops(told, 0, MOST_EXACT, kept)[1])
    crossed = _crossed(rows.hops, told, classes.of_row, of_link)
    return classes._replace(**crossed._asdict(), few_links=True)


def _hops_of_all(classes: Classes, rows: Rows) -> int:
    """Return how many kinds of links all transfers of the rows that stand for classes cross."""
    return int((rows.pipes.n_chunks[rows.pipe[classes.first]] * np.diff(classes.ptr)).sum())


def _nearly_alike(told: Hops, kind: Int) -> Int:
    """Return int64[n_links]: equal numbers for links of a *kind* that rows load nearly alike.

    Which rows cross a link would tell nearly all links apart, and the engine looks at every kind that a class crosses.
    """
    crossed = np.bincount(told.route, minlength=len(told.route_ptr) - 1)
    load = np.bincount(told.route_link, np.repeat(crossed, np.diff(told.route_ptr)) * told.route_weight, len(kind))
    step = np.rint(np.log1p(load) / np.log1p(LOAD_STEP))
    return numbers(codes_of(kind, step))[0]


def fits_whole(rows: Rows, run: LoweredRun) -> bool:
    """Return True if all chunks can be simulated although classes that are exactly alike have rather many."""
    return _transfers(_parted(rows, run, None).first, rows) <= TIMES_WHOLE * MOST_EXACT


def chunks_that_fit(rows: Rows, run: LoweredRun, rounds: int | None) -> int:
    """Return of how many equal chunks in a row all hops can be simulated if they are told apart by so many waits; 0 if
    of fewer than `LEAST_CHUNKS`.

    Chunks follow each other at a pace that is theirs after some, while hops that are only nearly alike hide which link
    is busiest. Each run of equal chunks counts, also the last one that is shorter.
    """
    hops = np.bincount(rows.pipe[_parted(rows, run, rounds).first], minlength=len(rows.programs))
    lengths = [runs_of(each.size_bytes, each.adds)[1] for each in rows.programs]

    def transfers(most: int) -> int:
        return sum(n * int(np.minimum(long, most).sum()) for n, long in zip(hops.tolist(), lengths, strict=True))

    longest = max((int(each.max(initial=0)) for each in lengths), default=0)
    fitting = MOST_EXACT if rounds is None else MOST_NEAR
    found = bisect_right(range(longest + 1), fitting, key=transfers) - 1
    return found if found >= LEAST_CHUNKS else 0


def _transfers(first: Int, rows: Rows) -> int:
    """Return how many transfers the rows that stand for classes have."""
    return int(rows.pipes.n_chunks[rows.pipe[first]].sum())


def _told(rows: Rows) -> Hops:
    """Return what tells rows apart: the senders and receivers that they have in common are links too."""
    pipes, hops = rows.pipes, rows.hops
    run = hops.run
    lowest = int(min(hops.src.min(), hops.dst.min()))
    n_ends, n_links = int(max(hops.src.max(), hops.dst.max())) - lowest + 1, len(run.trunk_capacity_Bps)
    taken, used, place = _used_routes(hops)
    first = np.empty(len(used), dtype=np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1]
    owner = np.repeat(np.arange(len(used)), np.diff(taken.ptr))
    ends = [n_links + hops.src[first] - lowest, n_links + n_ends + hops.dst[first] - lowest]
    codes = [np.full(len(used), 2.0), np.full(len(used), 3.0)]
    extra, sole = 2 * n_ends, _sole_ends(taken, owner, n_links, (hops.src[first], hops.dst[first]))
    if (straight := joined(hops.src[first], hops.dst[first], run)).any():
        both = hops.src[first], hops.dst[first]
        there, back = (a * n_ends + b for a, b in (both, both[::-1]))
        pairs, number = distinct(np.where(np.tile(straight, 2), np.concatenate([there, back]), -1))
        ends += [n_links + extra + part for part in np.split(number, 2)]  # what goes there, and what comes back
        codes += [np.full(len(used), code) for code in (4.0, 5.0)]
        extra += len(pairs)
    del owner
    ptr = taken.ptr + len(ends) * np.arange(len(used) + 1)
    link, weight, real = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1]), np.ones(ptr[-1], dtype=np.bool_)
    for before, (end, code) in enumerate(zip(ends, codes, strict=True), -len(ends)):
        link[ptr[1:] + before], weight[ptr[1:] + before], real[ptr[1:] + before] = end, code, False
    link[real], weight[real] = taken.link, taken.weight
    profile = codes_of(*(column.astype(np.float64) for column in (rows.profile, pipes.lanes, pipes.copies)))
    wait_ptr, wait, lag = _waits(rows)
    return Hops(
        route_ptr=ptr,
        route_link=link,
        route_weight=weight,
        route=place if rows.is_plain else place[rows.hop],
        own=codes_of(_own(hops)[rows.hop], profile[rows.pipe]),
        wait_ptr=wait_ptr,
        wait=wait,
        lag=lag,
        link=tuple(
            np.concatenate([column, np.repeat([-1.0, -2.0, -3.0], [n_ends, n_ends, extra - 2 * n_ends])])
            for column in (run.trunk_capacity_Bps, *sole)
        ),
    )


def _used_routes(hops: HopWays) -> tuple[Routes, Int, Int]:
    """Return the trunks of the routes that hops take, which these are, and which of them each hop takes."""
    used, place = distinct(hops.ways.number)
    return hops.run.trunks.take(used, np.ones(len(used))), used, place


def _own(hops: HopWays) -> np.ndarray:
    """Return uint64[n_hops]: a code for what a hop is by itself."""
    ways = hops.ways
    flags = (ways.across, ways.added, hops.reduces, hops.src < 0, hops.dst < 0, hops.src == hops.dst)
    kind = np.zeros(len(hops.src))
    for place, flag in enumerate(flags):
        kind += flag * float(1 << place)
    rates = end_rates_Bps(hops.src, hops.dst, hops.run, ways.groups)
    depths = (column.astype(np.float64) for column in (hops.depth, hops.between))
    return codes_of(kind, *depths, hops.run.trunks.latency_s[ways.number], *rates)


def _waits(rows: Rows) -> tuple[Int, Int32, Int32]:
    """Return what rows wait for: pointers, rows, and how many chunks earlier."""
    hops = rows.hops
    if rows.is_plain:
        return hops.wait_ptr, hops.wait, hops.lag
    counts = np.diff(hops.wait_ptr)[rows.hop]
    shift = rows.first[:-1] - hops.first[rows.pipes.shape]
    wait_ptr, entry = entries_of(hops.wait_ptr, rows.hop)
    wait = hops.wait[entry] + np.repeat(shift[rows.pipe], counts)
    return wait_ptr, wait.astype(np.int32), hops.lag[entry]


def _sole_ends(taken: Routes, owner: Int, n_links: int, ends: tuple[Int, Int]) -> list[Float]:
    """Return float64[n_links] twice: 1 for links that only ways from one source, or to one target, cross."""
    found = []
    for end in ends:
        low, high = np.full(n_links, np.iinfo(np.int64).max), np.full(n_links, np.iinfo(np.int64).min)
        np.minimum.at(low, taken.link, end[owner])
        np.maximum.at(high, taken.link, end[owner])
        found.append((low >= high).astype(np.float64))
    return found


class _Crossed(NamedTuple):
    """What classes cross, as in `Classes`."""

    of_link: Int
    ptr: Int
    link: Int
    weight: Float


def _crossed(hops: HopWays, told: Hops, of_row: Int, of_link: Int) -> _Crossed:
    """Return what one row of each class takes of one link of each class."""
    of_link = of_link[: len(hops.run.trunk_capacity_Bps)]  # others are ends that rows have in common
    n_kinds = int(of_link.max(initial=0)) + 1
    routes = _used_routes(hops)[0]
    kind = _kinds_of_routes(routes, of_link)
    stands = firsts(kind)
    pair, _ = numbers(codes_of(of_row, kind[told.route]))
    some = firsts(pair)
    owner, route, count = of_row[some], stands[kind[told.route[some]]], np.bincount(pair)
    ptr, entry = entries_of(routes.ptr, route)
    key = np.repeat(owner, np.diff(ptr)) * n_kinds + of_link[routes.link[entry]]
    cell, place = np.unique(key, return_inverse=True)
    taken = routes.weight[entry] * np.repeat(count, np.diff(ptr))
    row, link = np.divmod(cell, n_kinds)
    weight = np.bincount(place, taken, len(cell)).astype(np.float64) / np.bincount(of_link, minlength=n_kinds)[link]
    return _Crossed(of_link, pointers(np.bincount(row, minlength=int(of_row.max(initial=-1)) + 1)), link, weight)


def _with_waits(rows: Rows, run: LoweredRun, rounds: int | None) -> Classes:
    """Return the classes by so many waits with what they take of links and wait for."""
    told, hops, parted = _known(rows, run).told, rows.hops, _parted(rows, run, rounds)
    of_row, first, n_classes = parted.of_row.astype(np.int64), parted.first, len(parted.first)
    wait_ptr, entry = entries_of(told.wait_ptr, first)
    waiter = np.repeat(np.arange(n_classes), np.diff(wait_ptr))
    for_whom, by_whom = told.wait[entry], first[waiter]
    src, dst = hops.src, hops.dst
    sent = dst[rows.hop[for_whom]]
    tells = (sent == src[rows.hop[by_whom]]) | (sent < 0)
    lag = told.lag[entry]
    most = int(lag.max(initial=0)) + 1
    waits = np.unique(((waiter * n_classes + of_row[for_whom]) * most + lag) * 2 + tells)
    pair, late = np.divmod(waits >> 1, most)
    waiter, wait = np.divmod(pair, n_classes)
    return Classes(
        of_row=of_row,
        first=first,
        rounds=rounds,
        wait_ptr=pointers(np.bincount(waiter, minlength=n_classes)),
        wait=wait,
        lag=late,
        tells=(waits & 1) > 0,
        busy=Busy(rows, first),
        **_crossed(hops, told, of_row, parted.of_link.astype(np.int64))._asdict(),
    )


def _kinds_of_routes(routes: Routes, of_link: Int) -> Int:
    """Return int64[n_routes]: equal numbers for routes that take the same of the same kinds of links."""
    total = np.cumsum(codes_of(of_link[routes.link], routes.weight))  # sums wrap round, differences wrap back
    upto = np.zeros(len(routes.ptr), dtype=np.uint64)
    upto[routes.ptr > 0] = total[routes.ptr[routes.ptr > 0] - 1]
    return numbers(codes_of(np.diff(upto)))[0]
