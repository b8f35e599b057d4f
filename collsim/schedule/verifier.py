"""The symbolic verifier: a schedule does what its operation promises, in every order in which its transfers may run.

The data are symbols: the value of a chunk at a rank is the set of ranks whose contributions it holds, one bit each.
Transfers are applied phase by phase in an order that respects their dependencies. That one order speaks for all,
because everything that touches the same copy must be ordered by the dependencies: a write and any other access. Two
exceptions keep the sum the same in either order:

* two transfers that add to the same copy;
* an *exchange*: two ranks that, in the same step of the same channel, send each other the same chunk to be added. Both
  read before either adds, as with a receive buffer.

Traffic that nobody needs is not a fault; data that arrives where it already is, is.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from collsim.core.errors import Fault, UnsupportedError, VerificationError
from collsim.schedule.contract import contract_faults
from collsim.schedule.forms import EVERY, Int, Transfers
from collsim.schedule.in_network import expanded_entries, is_in_network, point_to_point
from collsim.schedule.pipelines import Pipelines
from collsim.schedule.schedule import Schedule
from collsim.schedule.structure import describe, rank_names, structure_faults

__all__ = ["MAX_FAULTS", "dependency_order", "find_faults", "verify"]

MAX_FAULTS = 20
"""`verify` shows this many faults and counts the rest."""

MAX_SHOWN_CIRCLE = 6
MAX_LACKS = 10_000
"""Chunks times ranks, up to which every rank that lacks something is named."""
MAX_ENTRIES = 2**26
MAX_BITS = 2**36
"""Limits of what is written out from rank to rank, and of that times the ranks, which are the bits of each set."""
TRIM_EVERY = 1024
RACE_HINT = "let the later one depend on the earlier one, directly or through others"

READS, ADDS, OVERWRITES = 0, 1, 2

_Carried = tuple[int, int]
"""A transfer and a chunk that it carries."""


def verify(schedule: Schedule) -> None:
    """Raise if *schedule* does not do what its operation promises.

    Raises
    ------
    VerificationError
        With the first `MAX_FAULTS` faults and a count of the others.
    UnsupportedError
        As of `find_faults`.
    """
    faults = find_faults(schedule)
    if len(faults) > MAX_FAULTS:
        rest = len(faults) - MAX_FAULTS
        raise VerificationError(*faults[:MAX_FAULTS], Fault(f"... and {rest} more faults"))
    if faults:
        raise VerificationError(*faults)


def find_faults(schedule: Schedule) -> list[Fault]:
    """Return everything that is wrong with *schedule*; what the data do is only followed through a sound structure.

    Raises
    ------
    UnsupportedError
        Its transfers by the switches are too many to be followed from rank to rank.
    """
    faults = structure_faults(schedule)
    if faults:
        return faults
    faults = contract_faults(schedule)
    idle = _idle_fault(schedule)
    if idle is not None:
        return [idle, *faults]
    labour = _labour(schedule)
    if faults and labour > 1 / 64:
        return faults
    if labour > 1:
        what = f"the transfers by the switches stand for too many transfers between {schedule.n_ranks} ranks to check"
        raise UnsupportedError(Fault(what, "n_ranks", "verify the same algorithm on fewer ranks"))
    data = _Data(schedule)
    for number, phase in enumerate(schedule.phases):
        where = f"phase {number}" if len(schedule.phases) > 1 else ""
        transfers = point_to_point(phase.materialise(), schedule.n_ranks, schedule.groups)
        order, circle = dependency_order(transfers)
        if circle:
            return [*faults, _circle_fault(transfers, circle, where)]
        partners = _exchanges(transfers, order)
        races = list(_races(transfers, order, len(schedule.chunks), partners))
        faults.extend(Fault(_race_text(transfers, race), where, RACE_HINT) for race in races)
        early = {(race.second, race.chunk) for race in races if race.kinds[1] == READS}
        faults.extend(Fault(what, where) for what in data.apply(transfers, order, partners, early))
    return [*faults, *(Fault(what, "at the end") for what in data.unfinished())]


def _idle_fault(schedule: Schedule) -> Fault | None:
    """Return a fault if so many ranks are in no transfer that naming each for each chunk would take for ever."""
    n, chunks = schedule.n_ranks, schedule.chunks
    shared = np.count_nonzero((chunks.source == EVERY) | (chunks.target == EVERY))
    if n * shared <= MAX_LACKS:
        return None
    used: set[int] = set()
    for phase in schedule.phases:
        transfers = phase.materialise()
        moves = np.diff(transfers.chunk_ptr) > 0
        used.update(np.unique([transfers.src[moves], transfers.dst[moves]]).tolist())
    if min(used, default=0) < 0 or n - len(used) < 2:  # one idle rank may be the source or the target of all chunks
        return None
    what = f"{n - len(used)} of {n} ranks take part in no transfer, but {shared} chunks come from or go to every rank"
    highest = f"the highest rank that a transfer names is {max(used)}" if used else "no transfer carries a chunk"
    return Fault(what, "n_ranks", highest)


def _labour(schedule: Schedule) -> float:
    """Return the size of in-network transfers written out from rank to rank, over the limit; above 1 is too much."""
    phases = [phase.materialise() for phase in schedule.phases if isinstance(phase, Transfers | Pipelines)]
    in_network = [phase for phase in phases if is_in_network(phase)]
    entries = max((expanded_entries(phase, schedule.n_ranks, schedule.groups) for phase in in_network), default=0.0)
    return max(entries / MAX_ENTRIES, entries * schedule.n_ranks / MAX_BITS)


def dependency_order(transfers: Transfers) -> tuple[list[int], list[int]]:
    """Return the transfers in an order that respects the dependencies, the smallest id first; or a circle of them."""
    n, waiter = len(transfers), np.repeat(np.arange(len(transfers)), np.diff(transfers.dep_ptr))
    if np.all(transfers.dep < waiter):
        return list(range(n)), []
    by_dep = np.argsort(transfers.dep, kind="stable")
    followers = waiter[by_dep].tolist()
    first = np.searchsorted(transfers.dep[by_dep], np.arange(n + 1)).tolist()
    missing = np.diff(transfers.dep_ptr).tolist()
    ready = [i for i in range(n) if not missing[i]]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for follower in followers[first[order[-1]] : first[order[-1] + 1]]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, follower)
    if len(order) == n:
        return order, []
    return [], _circle(transfers, {i for i in range(n) if missing[i]})


def _circle(transfers: Transfers, stuck: set[int]) -> list[int]:
    """Return transfers that wait for each other in a circle; every stuck transfer waits for a stuck one."""
    path, place = [min(stuck)], {min(stuck): 0}
    while True:
        after = min(dep for dep in transfers.deps_of(path[-1]) if dep in stuck)
        if after in place:
            return path[place[after] :]
        place[after] = len(path)
        path.append(after)


def _circle_fault(transfers: Transfers, circle: list[int], where: str) -> Fault:
    """Name the transfers of a dependency cycle."""
    shown = [describe(transfers, i) for i in circle[:MAX_SHOWN_CIRCLE]]
    if len(circle) > MAX_SHOWN_CIRCLE:
        shown.append(f"{len(circle) - MAX_SHOWN_CIRCLE} more")
    chain = " waits for ".join([*shown, shown[0]])
    return Fault(f"dependency cycle: {chain}", where, "none of these transfers can ever start")


@dataclass(frozen=True, slots=True)
class _Race:
    """Two accesses to the copy of *chunk* at *rank* that no dependency orders; *first* runs first by its id."""

    rank: int
    chunk: int
    first: int
    second: int
    kinds: tuple[int, int]


def _race_text(transfers: Transfers, race: _Race) -> str:
    """Say what may go wrong in a race."""
    first, second = describe(transfers, race.first), describe(transfers, race.second)
    copy = f"chunk {race.chunk} at rank {race.rank}"
    if race.kinds[1] == READS:
        return f"{copy} is read before it has arrived: {second} sends it without waiting for {first}"
    if race.kinds[0] == READS:
        return f"{copy} is overwritten before it was read: {second} changes it without waiting for {first} to send it"
    return f"two writes in no order: {first} and {second} both write {copy}"


def _races(transfers: Transfers, order: list[int], n_chunks: int, partners: dict[_Carried, int]) -> Iterator[_Race]:
    """Yield the unordered accesses of one phase.

    The accesses to a copy, in the order of the simulation, fall into runs that need no order inside: reads, additions,
    the two sides of an exchange, or one overwrite. Nothing races if every member of a run comes after every member of
    the run before.
    """
    copy, transfer, kind, starts = _runs(transfers, order, n_chunks, partners)
    ends = np.append(starts[1:], len(copy))
    waits = np.flatnonzero(copy[starts[1:]] == copy[starts[:-1]]) + 1
    single = (ends[waits] - starts[waits] == 1) & (ends[waits - 1] - starts[waits - 1] == 1)
    later, earlier = transfer[starts[waits]], transfer[starts[waits - 1]]
    waits = waits[~(single & _depends_directly(transfers, later, earlier))]
    needed: dict[int, list[int]] = defaultdict(list)
    for run in waits.tolist():
        for member in transfer[starts[run] : ends[run]].tolist():
            needed[member].append(run - 1)
    members = {run: transfer[starts[run] : ends[run]].tolist() for run in (waits - 1).tolist()}
    for second, run, first in _unordered(transfers, order, needed, members):
        rank, chunk = divmod(int(copy[starts[run]]), n_chunks)
        here, after = members[run].index(first), transfer[starts[run + 1] : ends[run + 1]].tolist().index(second)
        kinds = int(kind[starts[run] + here]), int(kind[starts[run + 1] + after])
        yield _Race(rank, chunk, first, second, kinds)


def _runs(
    transfers: Transfers, order: list[int], n_chunks: int, partners: dict[_Carried, int]
) -> tuple[Int, Int, Int, Int]:
    """Return all accesses as (copy, transfer, kind), sorted by copy and order, and where each run starts."""
    owner = np.repeat(np.arange(len(order)), np.diff(transfers.chunk_ptr))
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    place, kind = position[owner], np.where(transfers.reduces[owner], ADDS, OVERWRITES)
    # Accesses of one copy with equal tags need no order: additions, reads, the two sides of an exchange.
    tag = np.where(transfers.reduces[owner], -1, np.arange(len(owner)))
    read_tag = np.full(len(owner), -2)
    for entry in np.flatnonzero(transfers.reduces[owner]).tolist() if partners else ():
        partner = partners.get((int(owner[entry]), int(transfers.chunk[entry])))
        if partner is not None:
            place[entry] = min(place[entry], position[partner])
            tag[entry] = read_tag[entry] = -3 - place[entry]
    working = ~transfers.reads_input[owner]
    reads = transfers.src[owner] * n_chunks + transfers.chunk
    writes = transfers.dst[owner] * n_chunks + transfers.chunk
    copy = np.concatenate([reads[working], writes])
    place, tag = np.concatenate([place[working], place]), np.concatenate([read_tag[working], tag])
    by = np.lexsort((place, copy))
    copy, tag = copy[by], tag[by]
    transfer = np.concatenate([owner[working], owner])[by]
    kind = np.concatenate([np.full(np.count_nonzero(working), READS), kind])[by]
    begins = np.ones(len(copy), dtype=np.bool_)
    begins[1:] = (copy[1:] != copy[:-1]) | (tag[1:] != tag[:-1])
    return copy, transfer, kind, np.flatnonzero(begins)


def _exchanges(transfers: Transfers, order: list[int]) -> dict[_Carried, int]:
    """Return the partner of every (transfer, chunk) that is one side of an exchange."""
    owner = np.repeat(np.arange(len(order)), np.diff(transfers.chunk_ptr))
    adding = np.flatnonzero((transfers.reduces & ~transfers.reads_input)[owner])
    side, chunk = owner[adding], transfers.chunk[adding]
    src, dst = transfers.src[side], transfers.dst[side]
    columns = (np.minimum(src, dst), np.maximum(src, dst), chunk, transfers.channel[side], transfers.step[side])
    by = np.lexsort(columns)
    looks = np.stack(columns, axis=1)[by]
    twins = np.flatnonzero(np.all(looks[1:] == looks[:-1], axis=1) & (src[by][1:] == dst[by][:-1]))
    if not len(twins):
        return {}
    position = {transfer: place for place, transfer in enumerate(order)}
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one, other in zip(by[twins].tolist(), by[twins + 1].tolist(), strict=True):
        first, second = sorted((int(side[one]), int(side[other])), key=position.__getitem__)
        pairs[first, second].append(int(chunk[one]))
    needed: dict[int, list[int]] = defaultdict(list)
    members: dict[int, list[int]] = {}
    for number, (first, second) in enumerate(pairs):
        members[number] = [first]
        needed[second].append(number)
    partners = {}
    for second, _, first in _unordered(transfers, order, needed, members):
        for swapped in pairs[first, second]:
            partners[first, swapped], partners[second, swapped] = second, first
    return partners


def _depends_directly(transfers: Transfers, later: Int, earlier: Int) -> np.ndarray:
    """Return bool[k], whether *later* names *earlier* among its dependencies."""
    n = len(transfers)
    edges = np.repeat(np.arange(n), np.diff(transfers.dep_ptr)) * n + transfers.dep
    edges.sort(kind="stable")  # nearly sorted: quicker than the hashes of np.isin, which collide here
    asked = later * n + earlier
    place = np.searchsorted(edges, asked)
    return np.asarray(np.append(edges, -1)[place] == asked)


def _unordered(
    transfers: Transfers, order: list[int], needed: dict[int, list[int]], members: dict[int, list[int]]
) -> Iterator[tuple[int, int, int]]:
    """Yield (transfer, run, member) for each member of a needed run that is no ancestor of the transfer."""
    if not needed:
        return
    group = _groups(transfers)
    inside: dict[int, list[int]] = defaultdict(list)
    for transfer in order:
        inside[group[transfer]].append(transfer)
    ptr, dep = transfers.dep_ptr.tolist(), transfers.dep.tolist()
    uses = np.bincount(transfers.dep, minlength=len(order)).tolist()
    for transfers_inside in inside.values():
        asked = _Asked(transfers_inside, needed, members)
        reach: dict[int, int] = {}
        for position, transfer in enumerate(transfers_inside):
            if position % TRIM_EVERY == 0:
                asked.trim(position, reach)
            ancestors = 0
            for before in dep[ptr[transfer] : ptr[transfer + 1]]:
                ancestors |= reach[before]
                uses[before] -= 1
                if not uses[before]:
                    del reach[before]
            for run in needed.get(transfer, ()):
                for member in members[run]:
                    if member not in asked.bit or not ancestors >> (asked.bit[member] - asked.base) & 1:
                        yield transfer, run, member
            if uses[transfer]:
                reach[transfer] = ancestors | asked.own(transfer)


class _Asked:
    """Numbers for the transfers of a group that others must come after: the bits of a set of ancestors.

    Sets are Python integers. A set lives until all followers have it, and bits below *base* are cut off once nobody
    will ask for them, so that long schedules take little memory.
    """

    def __init__(self, inside: list[int], needed: dict[int, list[int]], members: dict[int, list[int]]) -> None:
        last: dict[int, int] = {}
        for position, transfer in enumerate(inside):
            for run in needed.get(transfer, ()):
                last.update(dict.fromkeys(members[run], position))
        asked = [(transfer, max(last[transfer], place)) for place, transfer in enumerate(inside) if transfer in last]
        self.bit = {transfer: bit for bit, (transfer, _) in enumerate(asked)}
        self.ends = list(accumulate((end for _, end in asked), max))
        self.base = 0

    def own(self, transfer: int) -> int:
        """Return the set of *transfer* alone; empty if nobody asks for it."""
        return 1 << (self.bit[transfer] - self.base) if transfer in self.bit else 0

    def trim(self, position: int, reach: dict[int, int]) -> None:
        """Cut the bits off that nobody asks for at *position* or later."""
        base = bisect_left(self.ends, position)
        for transfer in reach:
            reach[transfer] >>= base - self.base
        self.base = base


def _groups(transfers: Transfers) -> list[int]:
    """Return a number per transfer such that no transfer waits for one of another number: the channel, or all 0."""
    waiter = np.repeat(np.arange(len(transfers)), np.diff(transfers.dep_ptr))
    closed = np.array_equal(transfers.channel[waiter], transfers.channel[transfers.dep])
    return [int(channel) if closed else 0 for channel in transfers.channel]


@dataclass(slots=True)
class _Data:
    """Data that every rank holds of every chunk: a set of contributing ranks as bits, 0 for nothing."""

    schedule: Schedule
    sources: list[int] = field(init=False)
    wholes: list[int] = field(init=False)
    held: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        everyone = (1 << self.schedule.n_ranks) - 1
        self.sources = self.schedule.chunks.source.tolist()
        self.wholes = [everyone if source == EVERY else 1 << source for source in self.sources]

    def at_start(self, rank: int, chunk: int) -> int:
        """Return the input of *rank*."""
        return 1 << rank if self.sources[chunk] in (EVERY, rank) else 0

    def now(self, rank: int, chunk: int) -> int:
        """Return the working copy of *rank*."""
        value = self.held.get(rank * len(self.sources) + chunk)
        return self.at_start(rank, chunk) if value is None else value

    def apply(
        self, transfers: Transfers, order: list[int], partners: dict[_Carried, int], early: set[_Carried]
    ) -> Iterator[str]:
        """Carry out *transfers* and yield what goes wrong; reads in *early* are reported already."""
        n_chunks = len(self.sources)
        src, dst = transfers.src.tolist(), transfers.dst.tolist()
        reduces, reads_input = transfers.reduces.tolist(), transfers.reads_input.tolist()
        ptr, carried = transfers.chunk_ptr.tolist(), transfers.chunk.tolist()
        added: dict[_Carried, int] = {}
        for transfer in order:
            sender, receiver, reduce = src[transfer], dst[transfer], reduces[transfer]
            read = self.at_start if reads_input[transfer] else self.now
            for chunk in carried[ptr[transfer] : ptr[transfer + 1]]:
                arriving, held = read(sender, chunk), self.now(receiver, chunk)
                if partners and (transfer, chunk) in partners:
                    arriving &= ~added.get((partners[transfer, chunk], chunk), 0)
                    added[transfer, chunk] = arriving & ~held
                if not arriving:
                    if (transfer, chunk) not in early:
                        yield _missing_text(transfers, transfer, chunk, self.sources[chunk])
                    arriving = self.wholes[chunk]  # as if it had come, so that one fault is reported once
                if reduce and not held:
                    yield _nothing_text(transfers, transfer, chunk)
                elif reduce and held & arriving:
                    yield _double_text(transfers, transfer, chunk, held & arriving)
                elif not reduce and held and (held == arriving or self._finished(receiver, chunk, held)):
                    yield _again_text(transfers, transfer, chunk, held == arriving)
                self.held[receiver * n_chunks + chunk] = held | arriving if reduce else arriving

    def unfinished(self) -> Iterator[str]:
        """Yield what the targets lack at the end, one line per chunk and lack."""
        targets, n = self.schedule.chunks.target.tolist(), self.schedule.n_ranks
        for chunk, (target, whole) in enumerate(zip(targets, self.wholes, strict=True)):
            lacking: dict[int, list[int]] = defaultdict(list)
            for rank in range(n) if target == EVERY else (target,):
                lack = whole & ~self.now(rank, chunk)
                if lack:
                    lacking[lack].append(rank)
            for lack, ranks in lacking.items():
                yield _lack_text(chunk, ranks, lack, self.sources[chunk])

    def _finished(self, rank: int, chunk: int, held: int) -> bool:
        """Return True if *rank* is to end with *chunk* and holds all of it."""
        return held == self.wholes[chunk] and int(self.schedule.chunks.target[chunk]) in (EVERY, rank)


def _missing_text(transfers: Transfers, transfer: int, chunk: int, source: int) -> str:
    """Say that a transfer sends nothing."""
    rank, who = transfers.src[transfer], describe(transfers, transfer)
    if transfers.reads_input[transfer]:
        return f"{who} reads chunk {chunk} from the input of rank {rank}, but only rank {source} has it as input"
    return f"early read: {who} sends chunk {chunk}, which rank {rank} does not have yet (it starts at rank {source})"


def _nothing_text(transfers: Transfers, transfer: int, chunk: int) -> str:
    """Say that there is nothing to add to."""
    rank, who = transfers.dst[transfer], describe(transfers, transfer)
    return f"nothing to add to: {who} adds to chunk {chunk}, but rank {rank} has no copy of it"


def _double_text(transfers: Transfers, transfer: int, chunk: int, again: int) -> str:
    """Say that contributions are counted twice."""
    has, who = rank_names(_ranks(again)), describe(transfers, transfer)
    rank = transfers.dst[transfer]
    return f"double add: {who} adds to chunk {chunk} at rank {rank} what it holds already, from {has}"


def _again_text(transfers: Transfers, transfer: int, chunk: int, same: bool) -> str:
    """Say that a chunk was there already."""
    rank, who = transfers.dst[transfer], describe(transfers, transfer)
    if same:
        return f"duplicate delivery: {who} brings chunk {chunk}, which rank {rank} already has in the same state"
    return f"finished chunk overwritten: {who} replaces chunk {chunk}, complete at rank {rank}, by an incomplete one"


def _lack_text(chunk: int, ranks: list[int], lack: int, source: int) -> str:
    """Say what is not there at the end."""
    if source != EVERY:
        return f"lost chunk: chunk {chunk} of rank {source} is never delivered to {rank_names(ranks)}"
    return f"lost contribution: chunk {chunk} at {rank_names(ranks)} lacks {rank_names(_ranks(lack))}"


def _ranks(bits: int) -> list[int]:
    """Return the ranks in a set of bits."""
    return [rank for rank, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]
