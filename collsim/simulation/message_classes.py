"""All-to-all over relays, by classes of its messages, where nodes are not all alike: something failed on some.

Messages that have to behave alike are looked for once, with every part in one piece; pieces of the members of a class
are alike too, for they wait for each other by their numbers. So other sizes, which only cut parts otherwise, have the
same classes, and nothing but one message of each is ever laid out again: same times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.collectives import Algorithm, ScheduleRequest
from collsim.collectives.node_p2p import build_uncut
from collsim.core.arrays import distinct, entries_of, pointers
from collsim.engine import Problem, checked
from collsim.engine.symmetry import WORTH, codes_of, firsts, reduced
from collsim.fabric.fabric import Float, Int
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool, Use
from collsim.library.costs.network_costs import Steps
from collsim.schedule import Chunks, Transfers
from collsim.simulation.exchanges import MessageCut
from collsim.simulation.idle_links import without_idle
from collsim.simulation.lowering import Lowered, lower
from collsim.simulation.message_places import Few, few_messages, shared_use
from collsim.simulation.runs import LoweredRun

__all__ = ["classed"]


def classed(picked: Algorithm, request: ScheduleRequest, run: LoweredRun, dtype: str) -> Lowered | None:
    """Return one message of each class, laid on one link of each class; None if there are too many classes.

    Raises
    ------
    UnsupportedError, NoRouteError
        As of `lower`.
    """
    cut = MessageCut.of(request, relayed=True)
    totals = [sum(sizes) for sizes in cut.pieces]
    if len({len(sizes) for sizes in cut.pieces}) > 1:
        return None
    key = "message classes", cut.channels, *map(totals.index, totals)
    if key not in run.found:
        run.found[key] = _classes(request, run, totals)
    found: _Classes | None = run.found[key]
    return None if found is None else found.lowered(picked, request, cut, dtype)


class _Waits(NamedTuple):
    """What classes wait for."""

    waiter: Int
    dep: Int
    tells: Bool
    """Whether it waits for bytes."""
    own: Bool
    """Whether it is a write that the waiter sends on, piece by piece."""


class _Rows(NamedTuple):
    """The pieces of all classes."""

    of_class: Int
    piece: Int
    transfers: Transfers
    tells: Bool
    use: Use
    steps: Steps


@dataclass(slots=True, eq=False)
class _Classes:
    """Classes of messages, every part in one piece."""

    whole: LoweredRun
    """The run that the messages were laid on."""
    first: Transfers
    """The first of each class; what it waits for is in *waits*."""
    waits: _Waits
    part: Int
    """The first part that is as long as that of each class."""
    direct: Bool
    connections: Int
    across: Bool
    uses: tuple[Use, Use]
    """What the first piece shares, and what others do, beside which no messages go straight."""
    steps: Use
    routes: Routes
    capacity_Bps: Float
    ways: Routes
    inside: Float
    """float64[n_parts, n_links]: for a byte in each part, what all its messages put on links within nodes."""
    outside: Float
    rows: dict[int, _Rows] = field(default_factory=dict)

    def lowered(self, picked: Algorithm, request: ScheduleRequest, cut: MessageCut, dtype: str) -> Lowered:
        """Return what is sent at one size."""
        n_pieces = len(cut.pieces[0])
        if n_pieces not in self.rows:
            self.rows[n_pieces] = self._cut_in(n_pieces)
        rows, of = self.rows[n_pieces], self.rows[n_pieces].of_class
        size = cut.bytes_of(self.part[of], rows.piece, self.direct[of]) * self.connections[of]
        totals = np.array([sum(sizes) for sizes in cut.pieces], dtype=np.float64)
        chunks = Chunks(np.array([request.block_bytes]), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
        parameters = {"channels": cut.channels, "parts": len(cut.pieces), "step_bytes": cut.step_bytes}
        n = len(self.first)
        return Lowered(
            schedule=request.schedule(picked.name, chunks, rows.transfers, **parameters),
            run=replace(self.whole, trunks=self.routes, trunk_capacity_Bps=self.capacity_Bps),
            transfers=rows.transfers,
            size_bytes=size.astype(np.float64),
            route=of,
            used=np.arange(n),
            copies=np.ones(n, dtype=np.int64),
            across=self.across[of],
            added=np.zeros(len(of), dtype=np.bool_),
            use=rows.use,
            dtype=dtype,
            steps=rows.steps,
            carried=(totals @ self.inside, totals @ self.outside),
            ways=self.ways,
            tells=rows.tells,
            compiled=True,
        )

    def _cut_in(self, n_pieces: int) -> _Rows:
        """Return the pieces of all classes; messages that go straight are not cut."""
        counts = np.where(self.direct, 1, n_pieces)
        start = pointers(counts)
        of = np.repeat(np.arange(len(counts)), counts)
        piece = np.arange(start[-1]) - start[:-1][of]
        waits, ahead = self.waits, np.flatnonzero(piece)
        times = np.where(waits.own, counts[waits.waiter], 1)
        wait = np.repeat(np.arange(len(times)), times)
        turn = np.arange(len(wait)) - pointers(times)[:-1][wait]
        last = start[1:] - 1  # who waits for a message waits for its last piece
        sent = np.where(waits.own[wait], start[:-1][waits.dep[wait]] + turn, last[waits.dep[wait]])
        waiter = np.concatenate([start[:-1][waits.waiter[wait]] + turn, ahead])
        order = np.argsort(waiter, kind="stable")
        dep = np.concatenate([sent, ahead - 1])[order]
        tells = np.concatenate([waits.tells[wait], np.zeros(len(ahead), dtype=np.bool_)])[order]
        first, n = self.first, len(of)
        columns = {name: getattr(first, name)[of] for name in ROWS}
        transfers = Transfers(
            **columns,
            step=first.step[of] + piece,
            chunk_ptr=pointers(self.connections[of]),
            chunk=np.zeros(int(self.connections[of].sum()), dtype=np.int64),
            dep_ptr=pointers(np.bincount(waiter, minlength=n)),
            dep=dep,
        )
        active = np.where(piece > 0, self.uses[1].active[of], self.uses[0].active[of])
        alone_Bps = np.where(piece > 0, self.uses[1].alone_Bps[of], self.uses[0].alone_Bps[of])
        use = replace(self.uses[0].take(of), active=active, alone_Bps=alone_Bps)
        return _Rows(of, piece, transfers, tells, use, Steps(self.steps.take(of)))


BITS = 40
"""Of what messages share so many bits count."""
ROWS = ("src", "dst", "channel", "reduces", "reads_input", "lanes", "copies")


def _classes(request: ScheduleRequest, run: LoweredRun, totals: list[int]) -> _Classes | None:
    """Return the classes of messages whose parts have *totals* of bytes; None if there are too many."""
    few = few_messages(request, run)
    whole = lower(build_uncut(request), run) if few is None else few.lowered
    if whole.steps is None:
        return None
    transfers, across = whole.transfers, whole.across
    connections = np.diff(transfers.chunk_ptr) if few is None else few.connections
    part, direct = _parts(whole, totals)
    lanes = transfers.lanes.astype(np.float64) if few is None else few.lanes
    with np.errstate(invalid="ignore"):  # of messages that go straight there is no later piece
        later = replace(shared_use(whole, np.where(direct, 0.0, lanes)), lanes=np.where(direct, 0.0, whole.use.lanes))
    look = _looks(whole, later, (part, direct), connections)
    quotient = reduced(checked(_problem(whole, look, few)), most=len(transfers) // (WORTH if few is None else 1))
    if quotient is None or (waits := _waits(transfers, across, quotient.ids)) is None:
        return None
    first, small = firsts(quotient.ids), checked(quotient.problem)  # links of a class on one route are one from now on
    ones = np.ones(len(first))
    loads = few.unit_loads if few is not None else partial(_unit_loads, whole)
    inside, outside = (loads(part, side, len(totals)) for side in (~across, across))
    return _Classes(
        whole=whole.run, first=_rows_of(transfers, first), waits=waits, part=part[first], direct=direct[first],
        connections=connections[first], across=across[first], uses=(whole.use.take(first), later.take(first)),
        steps=whole.steps.use.take(first),
        routes=Routes(small.route_ptr, small.route_link, small.route_weight, small.latency_s, ones),
        capacity_Bps=small.capacity_Bps, ways=whole.run.routes.take(whole.used[whole.route[first]], ones),
        inside=inside, outside=outside,
    )  # fmt: skip


def _parts(whole: Lowered, totals: list[int]) -> tuple[Int, Bool]:
    """Return the first part that is as long as that of each message, and whether messages go straight to their rank."""
    transfers, chunks = whole.transfers, whole.schedule.chunks
    lead = transfers.chunk[transfers.chunk_ptr[:-1]]
    part = np.zeros(len(transfers), dtype=np.int64)
    for total in dict.fromkeys(totals):
        part[chunks.size_bytes[lead] == total] = totals.index(total)
    return part, ~whole.across & (chunks.target[lead] == transfers.dst)


def _looks(whole: Lowered, later: Use, kinds: tuple[Int, Bool], connections: Int) -> Int:
    """Return int64[n]: equal numbers for messages of which costs of any size see the same."""
    transfers, steps = whole.transfers, whole.steps
    assert steps is not None
    columns: list[NDArray[Any]] = [*kinds, connections, whole.across, transfers.step, transfers.lanes, transfers.copies]
    for use in (whole.use, later, steps.use):
        sums = (np.nan_to_num(_rounded(column)) for column in (use.active, use.alone_Bps))
        columns += [use.lanes, *sums, use.duplex, use.adds]
    return distinct(codes_of(*(column.astype(np.float64) for column in columns)).view(np.int64))[1]


def _rounded(values: Float) -> Float:
    """Return values without their last bits, which tell in which order something was added up."""
    part, power = np.frexp(values)
    return np.asarray(np.ldexp(np.rint(np.ldexp(part, BITS)), power - BITS))


def _problem(whole: Lowered, look: Int, few: Few | None) -> Problem:
    """Return what the engine tells classes by: messages that *look* alike have to be as long."""
    if few is None:
        taken = whole.run.trunks.take(whole.used, whole.copies.astype(np.float64))
        over_network = np.zeros(len(whole.used), dtype=np.bool_)
        over_network[whole.route] = whole.across
        taken = without_idle(taken, whole.run.trunk_capacity_Bps, over_network)
    else:
        taken = few.routes
    return Problem(
        capacity_Bps=whole.run.trunk_capacity_Bps,
        route_ptr=taken.ptr,
        route_link=taken.link,
        route_weight=taken.weight,
        route=whole.route,
        size_bytes=(look + 1).astype(np.float64),
        latency_s=taken.latency_s[whole.route],
        cap_Bps=np.ones(len(look)),
        dep_ptr=whole.transfers.dep_ptr,
        dep=whole.transfers.dep,
    )


def _rows_of(transfers: Transfers, rows: Int) -> Transfers:
    """Return some transfers, with neither chunks nor waits."""
    nothing, none = np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    columns = {name: getattr(transfers, name)[rows] for name in (*ROWS, "step")}
    return Transfers(**columns, chunk_ptr=nothing, chunk=none, dep_ptr=nothing, dep=none)


def _waits(transfers: Transfers, across: Bool, ids: Int) -> _Waits | None:
    """Return what the first of each class waits for; None if others wait otherwise."""
    dep, counts = transfers.dep, np.diff(transfers.dep_ptr)
    waiter = np.repeat(np.arange(len(counts)), counts)
    tells = transfers.dst[dep] == transfers.src[waiter]
    own = ~across[dep] & across[waiter] & (transfers.step[dep] == transfers.step[waiter])
    kind = (ids[dep] * 2 + tells) * 2 + own
    total = np.zeros(len(dep) + 1, dtype=np.uint64)
    np.cumsum(codes_of(kind), out=total[1:])  # sums wrap round, differences wrap back
    each = total[transfers.dep_ptr[1:]] - total[transfers.dep_ptr[:-1]]
    first = firsts(ids)
    if (each != each[first][ids]).any():
        return None
    ptr, entry = entries_of(transfers.dep_ptr, first)
    pairs = np.sort(np.repeat(np.arange(len(first)), np.diff(ptr)) * (4 * len(first)) + kind[entry])
    waits, kind = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], 4 * len(first))
    return _Waits(waits, kind >> 2, (kind >> 1 & 1) > 0, (kind & 1) > 0)


def _unit_loads(whole: Lowered, part: Int, side: Bool, n_parts: int) -> Float:
    """Return float64[n_parts, n_links]: what messages of one *side* put on links for a byte in each part."""
    connections = np.diff(whole.transfers.chunk_ptr)
    routes = whole.run.routes.take(whole.used, whole.copies.astype(np.float64))
    found = np.zeros((n_parts, whole.run.fabric.n_links))
    for number in np.unique(part).tolist():
        which = side & (part == number)
        moved = np.bincount(whole.route[which], connections[which], len(whole.used)).astype(np.float64)
        found[number] = routes.link_bytes(moved, whole.run.fabric.n_links)
    return found
