"""The forms that a phase of a schedule can take, and the chunks that it moves.

A *chunk* is a piece of the data of a collective that always travels whole. A *transfer* carries chunks from one
rank to another and either overwrites the receiver's copy or adds to it. Two forms describe transfers:

* `Transfers`: one row per transfer; anything irregular (trees, byte matrices, imported schedules).
* `Orbits`: one row per step, repeated at every position of a cyclic order; rings, all-pairs, PAT.

Every form has `materialise()`, which gives `Transfers`. This module knows only arrays.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import spread

__all__ = [
    "EVERY",
    "Chunks",
    "Int",
    "Orbits",
    "Phase",
    "Transfers",
    "split_bytes",
]

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
S = TypeVar("S", bound=np.generic)

EVERY = -1
"""As the source of a chunk: every rank contributes to it. As the target: every rank must end with it."""


ROW_COLUMNS = ("channel", "step", "reduces", "reads_input", "lanes", "copies")
"""Columns that both forms have and that `materialise` and `merged` carry along."""


def split_bytes(total_bytes: int, parts: int, grain_bytes: int = 1) -> Int:
    """Cut *total_bytes* into *parts* pieces that differ by at most one grain; the larger ones come first.

    The last piece also takes what is left over when the grain does not divide the total.

    >>> split_bytes(40, 3, 4).tolist()
    [16, 12, 12]
    """
    grains, rest_bytes = divmod(total_bytes, grain_bytes)
    each, extra = divmod(grains, parts)
    pieces = np.full(parts, each, dtype=np.int64)
    pieces[:extra] += 1
    pieces *= grain_bytes
    pieces[-1] += rest_bytes
    return pieces


def frozen(values: object, dtype: type = np.int64) -> NDArray[np.generic]:
    """Return *values* as a read-only array, C-contiguous or one number all over; one that is that is not copied."""
    fits = isinstance(values, np.ndarray) and values.dtype == dtype and not values.flags.writeable
    if isinstance(values, np.ndarray) and fits and (values.flags.c_contiguous or values.strides == (0,)):
        return values
    array: NDArray[np.generic] = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def sealed(array: NDArray[S]) -> NDArray[S]:
    """Return an array that nobody else has, made read-only, so that a form takes it without a copy."""
    array.setflags(write=False)
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The data of a collective, cut into chunks.

    Attributes
    ----------
    size_bytes : int64[n_chunks]
    source : int64[n_chunks]
        Rank that holds the chunk at the start; `EVERY` if each rank contributes its own addend.
    target : int64[n_chunks]
        Rank that must hold the finished chunk at the end; `EVERY` if all must.
    """

    size_bytes: Int
    source: Int
    target: Int

    def __post_init__(self) -> None:
        for name in ("size_bytes", "source", "target"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.size_bytes)


class Phase(Protocol):
    """Interface that all forms of a phase share."""

    def __len__(self) -> int:
        """Return the number of transfers when materialised."""

    def materialise(self) -> Transfers:
        """Return the phase as one row per transfer."""

    def merged(self, chunks: Chunks) -> Self:
        """Return the phase with channels that do exactly the same merged into one row that counts its copies."""


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """One row per transfer.

    A row whose source is its destination and that carries no chunk is a *join*: it takes no time and only gathers
    dependencies.

    Attributes
    ----------
    src, dst : int64[n]
        Ranks; `EVERY` as one of them is a load-reduce or a multicast by the switches (see in_network).
    channel, step : int64[n]
        Labels: the channel (CTA) that carries the transfer and its step in that channel's program.
    reduces : bool[n]
        True: the receiver adds the chunks to its own; False: it overwrites its own.
    reads_input : bool[n]
        True: the chunks are read from the sender's untouched input; False: from its working copy.
    lanes : int64[n]
        How many channels serve this transfer at once; its rate cap is that many channel rates.
    copies : int64[n]
        How many transfers of equal channels, which run in lockstep, the row stands for; 1 unless `merged`.
    chunk_ptr : int64[n+1]
        ``chunk[chunk_ptr[i]:chunk_ptr[i+1]]`` are the chunks of transfer i.
    chunk : int64[n_carried]
    dep_ptr : int64[n+1]
        ``dep[dep_ptr[i]:dep_ptr[i+1]]`` are the transfers that must complete before i starts.
    dep : int64[n_deps]
    """

    src: Int
    dst: Int
    channel: Int
    step: Int
    reduces: Bool
    reads_input: Bool
    lanes: Int
    copies: Int
    chunk_ptr: Int
    chunk: Int
    dep_ptr: Int
    dep: Int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            dtype = np.bool_ if name in ("reduces", "reads_input") else np.int64
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))

    @classmethod
    def side_by_side(
        cls,
        src: Int,
        dst: Int,
        chunk: Int | int = 0,
        *,
        step: Int | int = 0,
        reduces: Bool | bool = False,
        reads_input: Bool | bool = False,
        lanes: Int | int = 1,
        copies: Int | int = 1,
        waits: tuple[Int, Int] | None = None,
    ) -> Transfers:
        """Transfers of one chunk each, all on one channel; a number holds for every row.

        *waits* are ``dep_ptr`` and ``dep``; None: none waits for another.
        """
        n = len(src)
        dep_ptr, dep = waits or (np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))
        return cls(
            src=src,
            dst=dst,
            channel=np.zeros(n, dtype=np.int64),
            step=np.zeros(n, dtype=np.int64) + step,
            reduces=np.zeros(n, dtype=np.bool_) | reduces,
            reads_input=np.zeros(n, dtype=np.bool_) | reads_input,
            lanes=np.zeros(n, dtype=np.int64) + lanes,
            copies=np.zeros(n, dtype=np.int64) + copies,
            chunk_ptr=np.arange(n + 1),
            chunk=np.zeros(n, dtype=np.int64) + chunk,
            dep_ptr=dep_ptr,
            dep=dep,
        )

    def __len__(self) -> int:
        return len(self.src)

    def materialise(self) -> Transfers:
        """Return itself."""
        return self

    def merged(self, chunks: Chunks) -> Transfers:
        """Return the transfers with equal channels merged."""
        if not _has_several(self.channel):
            return self
        looks = np.stack([self.src, self.dst, self.step, self.lanes, self.reduces, self.size_bytes(chunks)], axis=1)
        keep, copies = _equal_channels(self.channel, looks, self.dep_ptr, np.stack([self.dep], axis=1))
        if keep is None:
            return self
        chunk_ptr, carried = _take(self.chunk_ptr, keep)
        dep_ptr, waits = _take(self.dep_ptr, keep)
        renumber = np.cumsum(keep) - 1
        columns = {name: getattr(self, name)[keep] for name in ROW_COLUMNS if name != "copies"}
        return Transfers(
            src=self.src[keep],
            dst=self.dst[keep],
            copies=copies[keep],
            chunk_ptr=chunk_ptr,
            chunk=self.chunk[carried],
            dep_ptr=dep_ptr,
            dep=renumber[self.dep[waits]],
            **columns,
        )

    def size_bytes(self, chunks: Chunks) -> Int:
        """Return int64[n], the bytes that each transfer moves."""
        total = np.zeros(len(self.chunk) + 1, dtype=np.int64)
        np.cumsum(chunks.size_bytes[self.chunk], out=total[1:])
        return np.asarray(np.diff(total[self.chunk_ptr]), dtype=np.int64)

    def chunks_of(self, transfer: int) -> list[int]:
        """Return the chunk ids that *transfer* carries."""
        return [int(c) for c in self.chunk[self.chunk_ptr[transfer] : self.chunk_ptr[transfer + 1]]]

    def deps_of(self, transfer: int) -> list[int]:
        """Return the transfers that *transfer* waits for."""
        return [int(d) for d in self.dep[self.dep_ptr[transfer] : self.dep_ptr[transfer + 1]]]


@dataclass(frozen=True, slots=True, eq=False)
class Orbits:
    """One row per step, repeated at every position of a cyclic order of the ranks.

    Row i at position p is the transfer ``order[channel[i], p] -> order[channel[i], (p + shift[i]) mod n]``. Chunks
    come in families of n: the member of family f that a row names with offset o is chunk
    ``f * n + order[channel[i], (p + o) mod n]``. A dependency (j, s) of row i means that the transfer of row i at p
    waits for the transfer of row j at ``(p + s) mod n``; both rows must be of the same channel.

    Attributes
    ----------
    order : int64[n_orders, n]
        Each row is a permutation of the ranks; channel c uses row ``c mod n_orders``.
    channel, step, shift : int64[rows]
    reduces, reads_input : bool[rows]
    lanes, copies : int64[rows]
    chunk_ptr : int64[rows+1]
    chunk_family, chunk_offset : int64[n_carried]
    dep_ptr : int64[rows+1]
    dep_row, dep_shift : int64[n_deps]
    """

    order: Int
    channel: Int
    step: Int
    shift: Int
    reduces: Bool
    reads_input: Bool
    lanes: Int
    copies: Int
    chunk_ptr: Int
    chunk_family: Int
    chunk_offset: Int
    dep_ptr: Int
    dep_row: Int
    dep_shift: Int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            dtype = np.bool_ if name in ("reduces", "reads_input") else np.int64
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))

    def __len__(self) -> int:
        return len(self.channel) * int(self.order.shape[1])

    def materialise(self) -> Transfers:
        """Return n transfers per row; the one of row i at position p has id ``i * n + p``."""
        rows, n = len(self.channel), self.order.shape[1]
        order = self.order[self.channel % len(self.order)]
        position = np.arange(n)
        dst = np.take_along_axis(order, (position + self.shift[:, None]) % n, axis=1)
        chunk_ptr, row, place, entry = _expand(self.chunk_ptr, n)
        chunk = order[row, (place + self.chunk_offset[entry]) % n]
        chunk += self.chunk_family[entry] * n
        del row, place, entry
        dep_ptr, _, place, entry = _expand(self.dep_ptr, n)
        place += self.dep_shift[entry]
        place %= n
        place += self.dep_row[entry] * n
        repeated = {name: spread(getattr(self, name), n) for name in ROW_COLUMNS}
        return Transfers(
            src=sealed(order.reshape(rows * n)),
            dst=sealed(dst.reshape(rows * n)),
            chunk_ptr=sealed(chunk_ptr),
            chunk=sealed(chunk),
            dep_ptr=sealed(dep_ptr),
            dep=sealed(place),
            **repeated,
        )

    def merged(self, chunks: Chunks) -> Orbits:
        """Return the orbits with equal channels merged."""
        if not _has_several(self.channel):
            return self
        n, which = self.order.shape[1], self.channel % len(self.order)
        counts = np.diff(self.chunk_ptr)
        row = np.repeat(np.arange(len(self.channel)), counts)
        member = self.order[which[row, None], (np.arange(n) + self.chunk_offset[:, None]) % n]
        size_bytes = chunks.size_bytes[self.chunk_family[:, None] * n + member]
        if np.any(counts != 1):
            carried_bytes, size_bytes = size_bytes, np.zeros((len(self.channel), n), dtype=np.int64)
            np.add.at(size_bytes, row, carried_bytes)
        return self.with_equal_merged(size_bytes)[0]

    def with_equal_merged(self, size_bytes: Int) -> tuple[Orbits, Int]:
        """Return the orbits with channels merged whose rows move as much, int64[rows] or int64[rows, n]; and that of
        each row.
        """
        if not _has_several(self.channel):
            return self, size_bytes
        n, which = self.order.shape[1], self.channel % len(self.order)
        looks = np.column_stack([which, self.shift, self.step, self.lanes, self.reduces, size_bytes])
        waits_for = np.stack([self.dep_row, self.dep_shift % n], axis=1)
        keep, copies = _equal_channels(self.channel, looks, self.dep_ptr, waits_for)
        if keep is None:
            return self, size_bytes
        chunk_ptr, carried = _take(self.chunk_ptr, keep)
        dep_ptr, waits = _take(self.dep_ptr, keep)
        renumber = np.cumsum(keep) - 1
        columns = {name: getattr(self, name)[keep] for name in ROW_COLUMNS if name != "copies"}
        merged = Orbits(
            order=self.order,
            shift=self.shift[keep],
            copies=copies[keep],
            chunk_ptr=chunk_ptr,
            chunk_family=self.chunk_family[carried],
            chunk_offset=self.chunk_offset[carried],
            dep_ptr=dep_ptr,
            dep_row=renumber[self.dep_row[waits]],
            dep_shift=self.dep_shift[waits],
            **columns,
        )
        return merged, size_bytes[keep]


def _has_several(channel: Int) -> bool:
    """Return True if rows belong to more than one channel."""
    return bool(len(channel)) and bool((channel != channel[0]).any())


def _equal_channels(channel: Int, looks: Int, dep_ptr: Int, waits_for: Int) -> tuple[Bool | None, Int]:
    """Find channels whose rows look alike and wait for each other alike.

    *looks* is int64[rows, k]; *waits_for* is int64[n_deps, k] with the row waited for in column 0. Returns which rows
    to keep (None: nothing to merge, also when channels wait for each other) and how many copies each stands for.
    """
    copies = np.ones(len(channel), dtype=np.int64)
    order = np.argsort(channel, kind="stable")
    starts = np.flatnonzero(np.diff(channel[order], prepend=-1))
    own_rows = np.split(order, starts[1:])
    if len({hashlib.blake2b(looks[rows].tobytes()).digest() for rows in own_rows}) == len(own_rows):
        return None, copies  # no two look alike, whatever they wait for
    waiter = np.repeat(np.arange(len(channel)), np.diff(dep_ptr))
    if np.any(channel[waits_for[:, 0]] != channel[waiter]):
        return None, copies
    local = np.empty(len(channel), dtype=np.int64)
    local[order] = np.arange(len(channel)) - np.repeat(starts, np.diff(np.append(starts, len(channel))))
    counts = np.diff(dep_ptr)[order]  # rows by channel, and what they wait for in that order
    ends = np.concatenate(([0], np.cumsum(counts)))
    relative = waits_for[np.repeat(dep_ptr[order] - ends[:-1], counts) + np.arange(ends[-1])]
    relative[:, 0] = local[relative[:, 0]]
    keep = np.zeros(len(channel), dtype=np.bool_)
    first: dict[tuple[bytes, bytes, bytes], Int] = {}
    parts = (own_rows, np.split(counts, starts[1:]), np.split(relative, ends[starts[1:]]))
    for rows, waits, of in zip(*parts, strict=True):
        key = (looks[rows].tobytes(), waits.tobytes(), of.tobytes())
        representative = first.setdefault(key, rows)
        if representative is rows:
            keep[rows] = True
        else:
            copies[representative] += 1
    return keep, copies


def _take(ptr: Int, keep: Bool) -> tuple[Int, Int]:
    """Return the pointers of the kept CSR rows and the indices of their entries in the original values."""
    counts = np.diff(ptr)
    entries = np.flatnonzero(np.repeat(keep, counts))
    return np.concatenate(([0], np.cumsum(counts[keep]))), entries


def _expand(ptr: Int, n: int) -> tuple[Int, Int, Int, Int]:
    """Repeat every CSR row n times.

    Returns the pointers of the repeated rows and, per entry, its row, its repetition and its index in the original.
    """
    counts = np.repeat(np.diff(ptr), n)
    wide_ptr = np.concatenate(([0], np.cumsum(counts)))
    wide_row = np.repeat(np.arange(len(counts)), counts)
    row, place = np.divmod(wide_row, n)
    entry = ptr[row] + np.arange(wide_ptr[-1]) - wide_ptr[wide_row]
    return wide_ptr, row, place, entry
