"""Pipelines: chunks that flow one after another along the hops of a chain or a tree, hop by hop and not chunk by chunk.

A *stage* is a thread group of a rank that handles chunks in program order: it receives a chunk from every hop that
ends in it, then sends it along every hop that starts from it. Three kinds of dependency follow:

* data: a chunk leaves a stage after it has arrived there on every incoming hop;
* program order: a stage sends a chunk after it has sent the chunk before, along all its hops;
* credit: a hop carries a chunk once its receiver has passed on the chunk *slots* earlier.

They are the same for every chunk but the first ones, so that hops, and how many chunks earlier a hop waits for which
others, say all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from collsim.core.arrays import distinct, entries_of, pointers, spread
from collsim.schedule.forms import Bool, Chunks, Int, Orbits, Transfers, frozen, sealed
from collsim.schedule.schedule_builder import OrbitsBuilder

__all__ = ["Circle", "Circles", "Pipelines", "Shape"]

MOST_DEEP = 512
"""Shapes of so many hops one behind the other are gone through hop by hop: a round costs as much as some dozen."""


@dataclass(frozen=True, eq=False)
class Shape:
    """Hops of a pipeline, such that each comes after those from which its data arrive.

    Attributes
    ----------
    src, dst : int64[n_hops]
        Ranks or labels, as of `Transfers`.
    sender, receiver : int64[n_hops]
        Stages.
    reduces : bool[n_hops]
    """

    src: Int
    dst: Int
    sender: Int
    receiver: Int
    reduces: Bool

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def of_table(cls, table: Int) -> Shape:
        """Return the hops of int64[5, n_hops]: source, target, stages of both, and whether the receiver adds."""
        src, dst, sender, receiver, reduces = table.copy()
        return cls(src, dst, sender, receiver, reduces > 0)

    @cached_property
    def depth(self) -> Int:
        """int64[n_hops]: how many hops a chunk has behind it before each."""
        return self.behind(np.ones(len(self), dtype=np.int64))

    def behind(self, weight: Int) -> Int:
        """Return int64[n_hops]: the most that hops with such weights add up to, before each, on a way of a chunk."""
        if self.is_path:
            return np.cumsum(weight) - weight
        place = distinct(np.concatenate([self.sender, self.receiver]))[1]
        sender, receiver = np.split(place, 2)
        found = _behind_in_rounds(sender, receiver, weight)
        return _behind_one_by_one(sender, receiver, weight) if found is None else found

    @property
    def is_path(self) -> bool:
        """True if every hop goes on from where the one before it leads."""
        return bool(len(self)) and np.array_equal(self.receiver[:-1], self.sender[1:])

    @property
    def stages(self) -> tuple[object, ...]:
        """Equal for shapes that differ in nothing but the ranks that their hops join."""
        return type(self), self.sender.tobytes(), self.receiver.tobytes(), self.reduces.tobytes()

    def begin(self, n_hops: int) -> Shape:
        """Return the first hops."""
        kept = slice(n_hops)
        return Shape(self.src[kept], self.dst[kept], self.sender[kept], self.receiver[kept], self.reduces[kept])

    def waits(self, slots: int) -> tuple[Int, Int, Int]:
        """Return hops, hops that each waits for, and how many chunks earlier, sorted by the first."""
        stages, place = distinct(np.concatenate([self.sender, self.receiver]))
        sender, receiver = np.split(place, 2)
        tables = [
            (pointers(np.bincount(stage, minlength=len(stages))), np.argsort(stage, kind="stable"))
            for stage in (receiver, sender)
        ]
        found = []
        for (ptr, hops), stage, lag in ((tables[0], sender, 0), (tables[1], sender, 1), (tables[1], receiver, slots)):
            taken, entry = entries_of(ptr, stage)
            found.append((np.repeat(np.arange(len(stage)), np.diff(taken)), hops[entry], np.full(len(entry), lag)))
        waiter, waits_for, lags = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(waiter, kind="stable")
        return waiter[order], waits_for[order], lags[order]


def _behind_in_rounds(sender: Int, receiver: Int, weight: Int) -> Int | None:
    """Return int64[n_hops] as of `Shape.behind`, all stages that are as far along at once; None if that takes long."""
    n_stages = int(max(sender.max(initial=-1), receiver.max(initial=-1))) + 1
    ptr, order = pointers(np.bincount(sender, minlength=n_stages)), np.argsort(sender, kind="stable")
    awaited = np.bincount(receiver, minlength=n_stages)
    arrived, behind = np.zeros(n_stages, dtype=np.int64), np.zeros(len(sender), dtype=np.int64)
    ready = np.flatnonzero(awaited == 0)
    for _ in range(MOST_DEEP):
        hops = order[entries_of(ptr, ready)[1]]
        if not len(hops):
            return behind
        behind[hops] = arrived[sender[hops]]
        np.maximum.at(arrived, receiver[hops], behind[hops] + weight[hops])
        np.subtract.at(awaited, receiver[hops], 1)
        reached = distinct(receiver[hops])[0]
        ready = reached[awaited[reached] == 0]
    return None


def _behind_one_by_one(sender: Int, receiver: Int, weight: Int) -> Int:
    """Return the same hop by hop, for shapes that are long rather than wide."""
    arrived, behind = [0] * (int(max(sender.max(), receiver.max())) + 1), []
    for source, target, each in zip(sender.tolist(), receiver.tolist(), weight.tolist(), strict=True):
        behind.append(arrived[source])
        arrived[target] = max(arrived[target], arrived[source] + each)
    return np.array(behind, dtype=np.int64)


class Circle(Shape):
    """Hops of a ring, in which a place sends once per step: after what it got, and what it sent, in the step before."""

    @classmethod
    def of_order(cls, order: Int) -> Circle:
        """Return the hops of a cyclic order of the ranks."""
        place = np.arange(len(order))
        return cls(order, np.roll(order, -1), place, np.roll(place, -1), np.zeros(len(order), dtype=np.bool_))

    @cached_property
    def depth(self) -> Int:
        """int64[n_hops]: all places send in every step."""
        return self.behind(self.sender)

    def behind(self, weight: Int) -> Int:
        """Return int64[n_hops]: nothing, since no place waits for the same step of another."""
        return np.zeros_like(weight)

    def waits(self, slots: int) -> tuple[Int, Int, Int]:
        """Return hops, hops that each waits for, and how many steps earlier, as of `Shape`."""
        del slots
        place = np.arange(len(self))
        return (
            np.repeat(place, 2),
            np.stack([place, place - 1], axis=1).ravel() % len(self),
            np.ones_like(place).repeat(2),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Circles:
    """Chunks that go round cyclic orders of the ranks, all places in step, channel by channel.

    Attributes
    ----------
    order : int64[n_orders, n]
        As of `Orbits`.
    program : tuple of (int, bool)
        Per step of a loop, the offset of the chunk that a place sends, and whether its receiver adds.
    families : tuple of int64[loops]
        By channel, the families of chunks that go round one after the other.
    channel, copies : int64[channels]
    """

    order: Int
    program: tuple[tuple[int, bool], ...]
    families: tuple[Int, ...]
    channel: Int
    copies: Int

    def __len__(self) -> int:
        return sum(map(len, self.families)) * len(self.program) * int(self.order.shape[1])

    def orbits(self) -> Orbits:
        """Return the same with a row for each step."""
        rows, copies = OrbitsBuilder(self.order), []
        for channel, families, count in zip(self.channel.tolist(), self.families, self.copies.tolist(), strict=True):
            before: int | None = None
            step = 0
            for family in families.tolist():
                for offset, reduces in self.program:
                    deps = [] if before is None else [(before, 0), (before, -1)]
                    before = rows.add(1, [(family, offset)], deps, channel=channel, step=step, reduces=reduces)
                    step += 1
            copies += [count] * step
        return replace(rows.build(), copies=np.array(copies, dtype=np.int64))

    def materialise(self) -> Transfers:
        """Return one row per step and place."""
        return self.orbits().materialise()

    def merged(self, chunks: Chunks) -> Circles:
        """Return the circles with equal channels merged."""
        n_orders, n = self.order.shape
        first: dict[tuple[int, bytes], int] = {}
        copies = self.copies.copy()
        for number, families in enumerate(self.families):
            sizes = chunks.size_bytes.reshape(-1, n)[families]
            same = first.setdefault((int(self.channel[number]) % n_orders, sizes.tobytes()), number)
            if same != number:
                copies[same] += copies[number]
        kept = np.array(list(first.values()), dtype=np.int64)
        left = tuple(self.families[number] for number in kept.tolist())
        return replace(self, families=left, channel=self.channel[kept], copies=copies[kept])

    def largest(self, chunks: Chunks) -> list[Int]:
        """Return the bytes of the largest chunk of each step, by channel."""
        most = chunks.size_bytes.reshape(-1, self.order.shape[1]).max(axis=1)
        return [np.repeat(most[families], len(self.program)) for families in self.families]


@dataclass(frozen=True, slots=True, eq=False)
class Pipelines:
    """Pipelines side by side.

    Attributes
    ----------
    shapes : tuple of Shape
    shape : int64[n]
        Which of them each pipeline has.
    n_chunks, first_chunk : int64[n]
        How many chunks flow along each, and the first of these, which are numbered one after the other.
    channel, lanes, copies : int64[n]
        As of `Transfers`, for all hops of each.
    slots : int
        How many chunks a sender may run ahead of its receiver.
    """

    shapes: tuple[Shape, ...]
    shape: Int
    n_chunks: Int
    first_chunk: Int
    channel: Int
    lanes: Int
    copies: Int
    slots: int

    def __post_init__(self) -> None:
        for name in ("shape", "n_chunks", "first_chunk", "channel", "lanes", "copies"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def __len__(self) -> int:
        return int((self.n_chunks * self.n_hops).sum())

    @property
    def n_hops(self) -> Int:
        """int64[n]: hops of each pipeline."""
        return np.array([len(shape) for shape in self.shapes], dtype=np.int64)[self.shape]

    def materialise(self) -> Transfers:
        """Return one row per hop and chunk: those of a pipeline by their chunks, those of a chunk by their hops.

        The step of a transfer is its turn in a pipeline that never waits: the number of its chunk, plus the hops that
        the chunk has behind it. Transfers of one step run at the same time.
        """
        made: dict[tuple[tuple[object, ...], int], Transfers] = {}
        ends: dict[tuple[int, int], tuple[Int, Int]] = {}
        stages = [shape.stages for shape in self.shapes]
        kinds = list(zip(self.shape.tolist(), self.n_chunks.tolist(), strict=True))
        parts = []
        for kind in kinds:
            shape, like = self.shapes[kind[0]], (stages[kind[0]], kind[1])
            if like not in made:
                made[like] = _one_pipeline(shape, kind[1], self.slots)
            if kind not in ends:
                ends[kind] = np.tile(shape.src, kind[1]), np.tile(shape.dst, kind[1])
            parts.append(made[like])
        lengths = np.array([len(part) for part in parts])
        first_row = np.cumsum(lengths) - lengths
        src, dst = (sealed(np.concatenate([ends[kind][side] for kind in kinds])) for side in (0, 1))
        together = {
            name: sealed(np.concatenate([getattr(part, name) for part in parts]))
            for name in ("step", "reduces", "reads_input")
        }
        labels = {name: sealed(np.repeat(getattr(self, name), lengths)) for name in ("channel", "lanes", "copies")}
        return Transfers(
            src=src,
            dst=dst,
            **together,
            **labels,
            chunk_ptr=sealed(np.arange(lengths.sum() + 1)),
            chunk=sealed(_shifted([part.chunk for part in parts], self.first_chunk)),
            dep_ptr=sealed(pointers(np.concatenate([np.diff(part.dep_ptr) for part in parts]))),
            dep=sealed(_shifted([part.dep for part in parts], first_row)),
        )

    def merged(self, chunks: Chunks) -> Pipelines:
        """Return the pipelines with equal ones merged: they run in lockstep."""
        first: dict[tuple[int, int, bytes], int] = {}
        copies = self.copies.copy()
        for number, sizes in enumerate(self.pieces(chunks)):
            kind = int(self.shape[number]), int(self.lanes[number]), sizes.tobytes()
            same = first.setdefault(kind, number)
            if same != number:
                copies[same] += copies[number]
        kept = np.array(list(first.values()), dtype=np.int64)
        columns = ("shape", "n_chunks", "first_chunk", "channel", "lanes")
        return replace(self, copies=copies[kept], **{name: getattr(self, name)[kept] for name in columns})

    def pieces(self, chunks: Chunks) -> list[Int]:
        """Return the bytes of the chunks of each pipeline."""
        ends = self.first_chunk + self.n_chunks
        return [chunks.size_bytes[a:b] for a, b in zip(self.first_chunk.tolist(), ends.tolist(), strict=True)]


def _one_pipeline(shape: Shape, n_chunks: int, slots: int) -> Transfers:
    """Return the transfers of one pipeline; the one of chunk k along hop i has id ``k * len(shape) + i``."""
    n_hops, rows = len(shape), n_chunks * len(shape)
    waiter, waits_for, lag = shape.waits(slots)
    chunk, entry = np.nonzero(np.arange(n_chunks)[:, None] >= lag)
    counts = np.bincount(chunk * n_hops + waiter[entry], minlength=rows)
    number = np.repeat(np.arange(n_chunks), n_hops)
    dep = (chunk - lag[entry]) * n_hops + waits_for[entry]
    del chunk, entry
    ones = spread(np.ones(1, dtype=np.int64), rows)
    return Transfers(
        src=sealed(np.tile(shape.src, n_chunks)),
        dst=sealed(np.tile(shape.dst, n_chunks)),
        channel=spread(np.zeros(1, dtype=np.int64), rows),
        step=sealed(number + np.tile(shape.depth, n_chunks)),
        reduces=sealed(np.tile(shape.reduces, n_chunks)),
        reads_input=sealed(np.zeros(rows, dtype=np.bool_)),
        lanes=ones,
        copies=ones,
        chunk_ptr=sealed(np.arange(rows + 1)),
        chunk=sealed(number),
        dep_ptr=sealed(pointers(counts)),
        dep=sealed(dep),
    )


def _shifted(parts: list[Int], offsets: Int) -> Int:
    """Concatenate *parts*, adding to each its offset."""
    values = np.concatenate(parts)
    values += np.repeat(offsets, [len(part) for part in parts])
    return values
