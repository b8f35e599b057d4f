"""Builders that collect chunks and transfers, one by one or many at once, and give the forms of a phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import pointers
from collsim.schedule.forms import Bool, Chunks, Int, Orbits, Transfers, sealed

__all__ = ["ChunksBuilder", "OrbitsBuilder", "TransfersBuilder"]


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
        columns = np.concatenate(self.sizes), self._each(self.sources), self._each(self.targets)
        return Chunks(*(sealed(column) for column in columns))

    def _each(self, values: list[object]) -> Int:
        """Return int64[n_chunks] from *values* of calls: one for all chunks of a call, or one for each of them."""
        counts = [len(sizes) for sizes in self.sizes]
        if all(isinstance(value, int) for value in values):
            return np.repeat(np.array(values, dtype=np.int64), counts)
        columns = (np.full(n, value, dtype=np.int64) for n, value in zip(counts, values, strict=True))
        return np.concatenate(list(columns))


class _Table(NamedTuple):
    """Transfers as they are collected: seven columns, and ragged rows by their lengths."""

    columns: Int
    chunk_counts: Int
    chunk: Int
    dep_counts: Int
    dep: Int


@dataclass(slots=True)
class TransfersBuilder:
    """Collects transfers one by one, or many at once; `build` gives the arrays."""

    rows: list[tuple[int, int, int, int, bool, bool, int]] = field(default_factory=list)
    chunks: list[Sequence[int]] = field(default_factory=list)
    deps: list[Sequence[int]] = field(default_factory=list)
    tables: list[_Table] = field(default_factory=list)
    length: int = 0

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
        self.length += 1
        return self.length - 1

    def add_many(
        self,
        src: Int,
        dst: Int,
        chunks: tuple[Int, Int],
        deps: tuple[Int, Int],
        *,
        channel: int | Int = 0,
        step: int | Int = 0,
        reduces: bool | Bool = False,
        reads_input: bool | Bool = False,
        lanes: int | Int = 1,
    ) -> int:
        """Add transfers from int64[n] *src* to *dst* and return the id of the first.

        *chunks* and *deps* are pairs of columns: which of the transfers, from 0 on, and a chunk that it carries or the
        id of a transfer that it waits for. A transfer carries its chunks in the order in which they stand there.
        """
        self.tables += self._single()
        self.rows, self.chunks, self.deps = [], [], []
        columns = np.zeros((7, len(src)), dtype=np.int64)
        for column, values in zip(columns, (src, dst, channel, step, reduces, reads_input, lanes), strict=True):
            column[:] = values
        owner, chunk = chunks
        order = np.argsort(owner, kind="stable")
        waiter, dep = deps
        span = self.length + len(src)
        waits = np.sort(waiter * span + dep)  # several times faster than np.unique, which hashes
        waits = waits[np.diff(waits, prepend=-1) > 0]
        counts = (np.bincount(rows, minlength=len(src)) for rows in (owner, waits // span))
        chunk_counts, dep_counts = counts
        self.tables.append(_Table(columns, chunk_counts, chunk[order], dep_counts, waits % span))
        self.length = span
        return span - len(src)

    def _single(self) -> list[_Table]:
        """Return a table of the transfers added one by one since the last table, [] if there are none."""
        if not self.rows:
            return []
        columns = np.array(self.rows, dtype=np.int64).reshape(-1, 7).T
        lists = ((np.array([len(items) for items in rows]), _flat(rows)) for rows in (self.chunks, self.deps))
        (chunk_counts, chunk), (dep_counts, dep) = lists
        return [_Table(columns, chunk_counts, chunk, dep_counts, dep)]

    def build(self) -> Transfers:
        """Return the collected transfers."""
        nothing = np.zeros(0, dtype=np.int64)
        tables = [*self.tables, *self._single()] or [
            _Table(np.zeros((7, 0), dtype=np.int64), nothing, nothing, nothing, nothing)
        ]
        src, dst, channel, step, reduces, reads_input, lanes = np.concatenate([t.columns for t in tables], axis=1)
        chunk_ptr, dep_ptr = (
            pointers(np.concatenate([getattr(t, name) for t in tables])) for name in ("chunk_counts", "dep_counts")
        )
        chunk, dep = (np.concatenate([getattr(t, name) for t in tables]) for name in ("chunk", "dep"))
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


def _csr(lists: Sequence[Sequence[int]]) -> tuple[Int, Int]:
    """Return (pointers, values) of ragged lists."""
    return pointers(np.array([len(items) for items in lists], dtype=np.int64)), _flat(lists)


def _flat(lists: Sequence[Sequence[int]]) -> Int:
    """Return the values of ragged lists."""
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=sum(map(len, lists)))
