"""Levels of teams through which data goes one after the other, each of which cuts it by its number of members.

What a rank sends waits for what arrived at the level before, and for what it sent itself at this level for the piece
before: pieces of the data flow through the levels one behind the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from collsim.schedule import TransfersBuilder

__all__ = ["Level", "Stage", "Team", "Work", "parts_of", "ring_inwards", "ring_outwards"]

Team = tuple[int, ...]
"""Ranks that exchange data at one level, in the order of their places."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the hierarchy.

    Attributes
    ----------
    teams : list of tuple of int
    parts : dict
        Per rank: the slices that it stands for, among those that reach its team from the levels below.
    """

    teams: list[Team]
    parts: dict[int, list[int]]


def parts_of(place: Mapping[int, tuple[int, ...]], depth: int) -> dict[int, list[int]]:
    """Return, per rank, the slices whose owners share its first *depth* coordinates; slice r belongs to rank r."""
    owners: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for owner in sorted(place):
        owners[place[owner][:depth]].append(owner)
    return {rank: owners[where[:depth]] for rank, where in place.items()}


@dataclass(slots=True)
class Work:
    """Transfers so far, and what each rank has to wait for.

    Attributes
    ----------
    lanes : int
        Channels that serve every transfer.
    rows : TransfersBuilder
        Takes the transfers; works side by side share it.
    channel : int
        The first that the transfers are on.
    arrived, arriving : dict
        Per rank, the transfers of the stage before and of this stage that bring it data of this piece.
    sent, sending : dict
        Per stage and rank, the transfers that it sent for the piece before and sends for this one.
    """

    lanes: int
    rows: TransfersBuilder = field(default_factory=TransfersBuilder)
    channel: int = 0
    stage: int = 0
    first: int = 0
    pieces: int = 0
    base: int = 0
    top: int = -1
    arrived: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    arriving: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    sent: defaultdict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    sending: defaultdict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def begin(self, stage: int, first: int) -> None:
        """Turn to the next stage of the piece whose slices count up from chunk *first*."""
        self.stage, self.first, self.base = stage, first, self.top + 1
        if self.arriving:
            self.arrived, self.arriving = self.arriving, defaultdict(list)

    def end_piece(self) -> None:
        """Forget what arrived; the next piece waits for its senders only."""
        self.arrived, self.arriving = defaultdict(list), defaultdict(list)
        self.sent, self.sending = self.sending, defaultdict(list)
        self.pieces += 1
        self.top = self.pieces - 1

    def waits(self, rank: int) -> list[int]:
        """Return the transfers that the first transfer of *rank* in this stage waits for."""
        return self.arrived[rank] + self.sent[self.stage, rank]

    def send(
        self,
        ends: tuple[int, int],
        slices: Iterable[int],
        deps: Iterable[int],
        *,
        step: int = 0,
        reduces: bool = False,
        reads_input: bool = False,
    ) -> int:
        """Add a transfer of this stage and return its id."""
        src, dst = ends
        carried, step = [self.first + number for number in slices], self.base + step
        kind = {"reduces": reduces, "reads_input": reads_input}
        row = self.rows.add(src, dst, carried, deps, channel=self.channel, step=step, lanes=self.lanes, **kind)
        self.top = max(self.top, step)
        self.arriving[dst].append(row)
        self.sending[self.stage, src].append(row)
        return row


Stage = Callable[[Work, Level, Team], None]


def ring_outwards(work: Work, level: Level, team: Team) -> None:
    """Add up around a ring; afterwards every member has the sum of the slices that it stands for."""
    _ring(work, level, team, first=1, reduces=True)


def ring_inwards(work: Work, level: Level, team: Team) -> None:
    """Pass finished slices around a ring."""
    _ring(work, level, team, first=0, reduces=False)


def _ring(work: Work, level: Level, team: Team, *, first: int, reduces: bool) -> None:
    """Pass slices to the next member, in the first step those of the member *first* places before."""
    n = len(team)
    before: dict[int, int] = {}
    for step in range(n - 1):
        now = {}
        for place, rank in enumerate(team):
            deps = [before[place], before[(place - 1) % n]] if before else work.waits(rank)
            slices = level.parts[team[(place - first - step) % n]]
            now[place] = work.send((rank, team[(place + 1) % n]), slices, deps, step=step, reduces=reduces)
        before = now
    for place, rank in enumerate(team) if before else ():
        work.arriving[rank] = [before[place], before[(place - 1) % n]]  # each of them follows all that came before
