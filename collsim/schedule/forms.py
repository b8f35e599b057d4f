"""The forms that a phase of a schedule can take, and the chunks that it moves.

A *chunk* is a piece of the data of a collective that always travels whole. A *transfer* carries chunks from one
rank to another and either overwrites the receiver's copy or adds to it. Two forms describe transfers:

* `Transfers`: one row per transfer; anything irregular (trees, byte matrices, imported schedules).
* `Orbits`: one row per step, repeated at every position of a cyclic order; rings, all-pairs, PAT.

Every form has `materialise()`, which gives `Transfers`. This module imports only numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EVERY",
    "Chunks",
    "ChunksBuilder",
    "Int",
    "Orbits",
    "OrbitsBuilder",
    "Phase",
    "Transfers",
    "TransfersBuilder",
    "split_bytes",
]

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

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
    """Return *values* as a read-only, C-contiguous array."""
    array: NDArray[np.generic] = np.array(values, dtype=dtype, order="C")
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


@dataclass(slots=True)
class ChunksBuilder:
    """Collects chunks; `build` gives the table."""

    sizes: list[Int] = field(default_factory=list)
    sources: list[object] = field(default_factory=list)
    targets: list[object] = field(default_factory=list)
    length: int = 0

    def add(self, size_bytes: object, source: object, target: object) -> int:
        """Add the chunks of int64[k] *size_bytes*, with one source and target for all or one each; return the first id.

        A family of `Orbits` is an aligned group of n chunks: add only groups of n, and its number is ``id // n``.
        """
        sizes = np.atleast_1d(np.asarray(size_bytes, dtype=np.int64))
        self.sizes.append(sizes)
        self.sources.append(source)
        self.targets.append(target)
        self.length += len(sizes)
        return self.length - len(sizes)

    def build(self) -> Chunks:
        """Return the collected chunks."""
        return Chunks(np.concatenate(self.sizes), self._each(self.sources), self._each(self.targets))

    def _each(self, values: list[object]) -> Int:
        """Return int64[n_chunks] from *values* of calls: one for all chunks of a call, or one for each of them."""
        counts = [len(sizes) for sizes in self.sizes]
        if all(isinstance(value, int) for value in values):
            return np.repeat(np.array(values, dtype=np.int64), counts)
        columns = (np.full(n, value, dtype=np.int64) for n, value in zip(counts, values, strict=True))
        return np.concatenate(list(columns))


class Phase(Protocol):
    """What every form offers."""

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

    def __len__(self) -> int:
        return len(self.src)

    def materialise(self) -> Transfers:
        """Return itself."""
        return self

    def merged(self, chunks: Chunks) -> Transfers:
        """Return the transfers with equal channels merged."""
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
        total = np.concatenate(([0], np.cumsum(chunks.size_bytes[self.chunk])))
        return np.asarray(total[self.chunk_ptr[1:]] - total[self.chunk_ptr[:-1]], dtype=np.int64)

    def chunks_of(self, transfer: int) -> list[int]:
        """Return the chunk ids that *transfer* carries."""
        return [int(c) for c in self.chunk[self.chunk_ptr[transfer] : self.chunk_ptr[transfer + 1]]]

    def deps_of(self, transfer: int) -> list[int]:
        """Return the transfers that *transfer* waits for."""
        return [int(d) for d in self.dep[self.dep_ptr[transfer] : self.dep_ptr[transfer + 1]]]


@dataclass(slots=True)
class TransfersBuilder:
    """Collects transfers one by one; `build` gives the arrays."""

    rows: list[tuple[int, int, int, int, bool, bool, int]] = field(default_factory=list)
    chunks: list[Sequence[int]] = field(default_factory=list)
    deps: list[Sequence[int]] = field(default_factory=list)

    def add(
        self,
        src: int,
        dst: int,
        chunks: Sequence[int],
        deps: Iterable[int] = (),
        *,
        channel: int = 0,
        step: int = 0,
        reduces: bool = False,
        reads_input: bool = False,
        lanes: int = 1,
    ) -> int:
        """Add a transfer and return its id."""
        self.rows.append((src, dst, channel, step, reduces, reads_input, lanes))
        self.chunks.append(chunks)
        self.deps.append(sorted(set(deps)))
        return len(self.rows) - 1

    def build(self) -> Transfers:
        """Return the collected transfers."""
        columns = np.array(self.rows, dtype=np.int64).reshape(-1, 7).T
        chunk_ptr, chunk = _csr(self.chunks)
        dep_ptr, dep = _csr(self.deps)
        src, dst, channel, step, reduces, reads_input, lanes = columns
        return Transfers(
            src=src,
            dst=dst,
            channel=channel,
            step=step,
            reduces=reduces.astype(np.bool_),
            reads_input=reads_input.astype(np.bool_),
            lanes=lanes,
            copies=np.ones(len(src), dtype=np.int64),
            chunk_ptr=chunk_ptr,
            chunk=chunk,
            dep_ptr=dep_ptr,
            dep=dep,
        )


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
        member = order[row, (place + self.chunk_offset[entry]) % n]
        dep_ptr, _, dep_place, dep_entry = _expand(self.dep_ptr, n)
        dep = self.dep_row[dep_entry] * n + (dep_place + self.dep_shift[dep_entry]) % n
        repeated = {name: np.repeat(getattr(self, name), n) for name in ROW_COLUMNS}
        return Transfers(
            src=order.reshape(rows * n),
            dst=dst.reshape(rows * n),
            chunk_ptr=chunk_ptr,
            chunk=self.chunk_family[entry] * n + member,
            dep_ptr=dep_ptr,
            dep=dep,
            **repeated,
        )

    def merged(self, chunks: Chunks) -> Orbits:
        """Return the orbits with equal channels merged."""
        n, which = self.order.shape[1], self.channel % len(self.order)
        counts = np.diff(self.chunk_ptr)
        row = np.repeat(np.arange(len(self.channel)), counts)
        member = self.order[which[row, None], (np.arange(n) + self.chunk_offset[:, None]) % n]
        size_bytes = chunks.size_bytes[self.chunk_family[:, None] * n + member]
        if np.any(counts != 1):
            carried_bytes, size_bytes = size_bytes, np.zeros((len(self.channel), n), dtype=np.int64)
            np.add.at(size_bytes, row, carried_bytes)
        looks = np.column_stack([which, self.shift, self.step, self.lanes, self.reduces, size_bytes])
        waits_for = np.stack([self.dep_row, self.dep_shift % n], axis=1)
        keep, copies = _equal_channels(self.channel, looks, self.dep_ptr, waits_for)
        if keep is None:
            return self
        chunk_ptr, carried = _take(self.chunk_ptr, keep)
        dep_ptr, waits = _take(self.dep_ptr, keep)
        renumber = np.cumsum(keep) - 1
        columns = {name: getattr(self, name)[keep] for name in ROW_COLUMNS if name != "copies"}
        return Orbits(
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


@dataclass(slots=True)
class OrbitsBuilder:
    """Collects rows of `Orbits` one by one; *order* holds one permutation of the ranks per ring."""

    order: NDArray[np.int64]
    rows: list[tuple[int, int, int, bool, bool, int]] = field(default_factory=list)
    chunks: list[Sequence[tuple[int, int]]] = field(default_factory=list)
    deps: list[Sequence[tuple[int, int]]] = field(default_factory=list)

    def add(
        self,
        shift: int,
        chunks: Sequence[tuple[int, int]],
        deps: Iterable[tuple[int, int]] = (),
        *,
        channel: int = 0,
        step: int = 0,
        reduces: bool = False,
        reads_input: bool = False,
        lanes: int = 1,
    ) -> int:
        """Add a row with *chunks* as (family, offset) and *deps* as (row, shift); return its id."""
        self.rows.append((channel, step, shift, reduces, reads_input, lanes))
        self.chunks.append(chunks)
        self.deps.append(sorted(set(deps)))
        return len(self.rows) - 1

    def build(self) -> Orbits:
        """Return the collected rows."""
        channel, step, shift, reduces, reads_input, lanes = np.array(self.rows, dtype=np.int64).reshape(-1, 6).T
        chunk_ptr, family = _csr([[family for family, _ in row] for row in self.chunks])
        dep_ptr, dep_row = _csr([[row for row, _ in deps] for deps in self.deps])
        return Orbits(
            order=np.atleast_2d(self.order),
            channel=channel,
            step=step,
            shift=shift,
            reduces=reduces.astype(np.bool_),
            reads_input=reads_input.astype(np.bool_),
            lanes=lanes,
            copies=np.ones(len(channel), dtype=np.int64),
            chunk_ptr=chunk_ptr,
            chunk_family=family,
            chunk_offset=_csr([[offset for _, offset in row] for row in self.chunks])[1],
            dep_ptr=dep_ptr,
            dep_row=dep_row,
            dep_shift=_csr([[shift for _, shift in deps] for deps in self.deps])[1],
        )


def _equal_channels(channel: Int, looks: Int, dep_ptr: Int, waits_for: Int) -> tuple[Bool | None, Int]:
    """Find channels whose rows look alike and wait for each other alike.

    *looks* is int64[rows, k]; *waits_for* is int64[n_deps, k] with the row waited for in column 0. Returns which rows
    to keep (None: nothing to merge, also when channels wait for each other) and how many copies each stands for.
    """
    copies = np.ones(len(channel), dtype=np.int64)
    order = np.argsort(channel, kind="stable")
    names, starts = np.unique(channel[order], return_index=True)
    waiter = np.repeat(np.arange(len(channel)), np.diff(dep_ptr))
    if len(names) == 1 or np.any(channel[waits_for[:, 0]] != channel[waiter]):
        return None, copies
    local = np.empty(len(channel), dtype=np.int64)
    local[order] = np.arange(len(channel)) - np.repeat(starts, np.diff(np.append(starts, len(channel))))
    counts = np.diff(dep_ptr)[order]  # rows by channel, and what they wait for in that order
    ends = np.concatenate(([0], np.cumsum(counts)))
    relative = waits_for[np.repeat(dep_ptr[order] - ends[:-1], counts) + np.arange(ends[-1])]
    relative[:, 0] = local[relative[:, 0]]
    keep = np.zeros(len(channel), dtype=np.bool_)
    first: dict[tuple[bytes, bytes, bytes], Int] = {}
    parts = (np.split(order, starts[1:]), np.split(counts, starts[1:]), np.split(relative, ends[starts[1:]]))
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


def _csr(lists: Sequence[Sequence[int]]) -> tuple[Int, Int]:
    """Return (pointers, values) of ragged lists."""
    ptr = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(items) for items in lists], out=ptr[1:])
    values = np.fromiter((item for items in lists for item in items), dtype=np.int64, count=int(ptr[-1]))
    return ptr, values


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
