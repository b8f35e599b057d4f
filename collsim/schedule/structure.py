"""Structure checks of a schedule: shapes, ranks, chunk ids, dependencies.

Nothing here asks what the schedule computes. A schedule without structural faults can be materialised safely. Places
are written as in a schedule file, for example ``phases[0].rows[12].dst``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault
from collsim.core.units import with_article
from collsim.schedule.forms import EVERY, Chunks, Int, Orbits, Transfers
from collsim.schedule.pipelines import Circles, Pipelines
from collsim.schedule.schedule import Schedule

__all__ = ["MAX_INTEGER", "describe", "rank_names", "structure_faults"]

MAX_INTEGER = 2**62
"""No number is larger, positive or negative, nor is the sum of all chunks: what is computed from them fits int64."""

ROW_FIELDS = ("channel", "step", "reduces", "reads_input", "lanes", "copies")
TRANSFER_FIELDS = ("src", "dst", *ROW_FIELDS)
ORBIT_FIELDS = ("shift", *ROW_FIELDS)
AT_LEAST = {"channel": 0, "step": 0, "lanes": 1, "copies": 1}


def structure_faults(schedule: Schedule, *, merged: bool = False) -> list[Fault]:
    """Return the faults in the arrays of *schedule*; *merged* allows rows that stand for several channels."""
    faults = list(_chunk_faults(schedule.chunks, schedule.n_ranks))
    if schedule.n_ranks < 1:
        faults.append(Fault(f"{schedule.n_ranks} ranks", "n_ranks", "a schedule needs at least 1 rank"))
    faults.extend(_group_faults(schedule))
    if not schedule.phases:
        faults.append(Fault("the schedule has no phase", "phases", "a phase without transfers is fine"))
    for number, phase in enumerate(schedule.phases):
        where = f"phases[{number}]"
        if isinstance(phase, Transfers | Pipelines):
            faults.extend(_transfers_faults(phase.materialise(), schedule, where))
        elif isinstance(phase, Orbits | Circles):
            faults.extend(_orbits_faults(phase if isinstance(phase, Orbits) else phase.orbits(), schedule, where))
        else:
            faults.append(
                Fault(f"a phase cannot be {with_article(type(phase).__name__)}", where, "use Transfers or Orbits")
            )
            continue
        if not merged and np.any(phase.copies > 1):
            hint = "verify the schedule before merging its channels"
            faults.append(Fault("rows stand for several channels", where, hint))
    return faults


def describe(transfers: Transfers, transfer: int) -> str:
    """Return a transfer as people write it, for example ``3 -> 4 (channel 0, step 7)``."""
    label = f"(channel {transfers.channel[transfer]}, step {transfers.step[transfer]})"
    src, dst = int(transfers.src[transfer]), int(transfers.dst[transfer])
    names = {label: f"group {EVERY - 1 - label}" for label in (src, dst) if label < EVERY} | {EVERY: "every rank"}
    if src == dst and src >= EVERY:
        return f"join of rank {src} {label}"
    return f"{names.get(src, src)} -> {names.get(dst, dst)} {label}"


def rank_names(ranks: list[int]) -> str:
    """Return ranks as people write them.

    >>> rank_names([0, 1, 2, 5])
    'ranks 0-2, 5'
    """
    starts = [r for before, r in pairwise([-2, *ranks]) if r != before + 1]
    ends = [r for r, after in pairwise([*ranks, -2]) if after != r + 1]
    spans = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(spans)}"


def _chunk_faults(chunks: Chunks, n_ranks: int) -> Iterator[Fault]:
    """Check the chunk table."""
    if not len(chunks.size_bytes) == len(chunks.source) == len(chunks.target):
        yield Fault("size_bytes, source and target have different lengths", "chunks")
        return
    for chunk in _where(chunks.size_bytes < 0):
        what = f"chunk {chunk} has {chunks.size_bytes[chunk]} bytes"
        yield Fault(what, f"chunks.rows[{chunk}].size_bytes", "at least 0")
    if np.sum(np.maximum(chunks.size_bytes, 0), dtype=np.float64) > MAX_INTEGER:
        yield Fault("the chunks add up to more than 2^62 bytes", "chunks")
    for name in ("source", "target"):
        column = getattr(chunks, name)
        for chunk in _where((column < EVERY) | (column >= n_ranks)):
            hint = f"{_valid_ranks(n_ranks)}, or {EVERY} for every rank"
            yield Fault(f"the {name} of chunk {chunk} is rank {column[chunk]}", f"chunks.rows[{chunk}].{name}", hint)


def _transfers_faults(phase: Transfers, schedule: Schedule, where: str) -> Iterator[Fault]:
    """Check a phase of single transfers."""
    broken = list(_shape_faults(phase, TRANSFER_FIELDS, ("chunk",), ("dep",), where))
    yield from broken
    if broken:
        return
    n, n_chunks = schedule.n_ranks, len(schedule.chunks)
    lowest = EVERY - len(schedule.groups)
    load_reduce, multicast = phase.src < 0, phase.dst < 0
    in_tree = (phase.src == phase.dst) & (phase.src < EVERY) & phase.reduces
    for row in _where(((load_reduce & ~phase.reduces) | (multicast & (phase.reduces | load_reduce))) & ~in_tree):
        hint = "a transfer from every rank to one adds; one from a rank to every rank overwrites"
        yield Fault(f"{describe(phase, row)} is neither a multicast nor a load-reduce", f"{where}.rows[{row}]", hint)
    for name in ("src", "dst"):
        ranks = getattr(phase, name)
        for row in _where((ranks < lowest) | (ranks >= n)):
            what = f"{describe(phase, row)} names rank {ranks[row]}"
            yield Fault(what, f"{where}.rows[{row}].{name}", _valid_ranks(n))
    yield from _outsider_faults(phase, schedule, where)
    for row in _where((phase.src == phase.dst) & (phase.src >= 0) & (np.diff(phase.chunk_ptr) > 0)):
        what = f"rank {phase.src[row]} sends to itself (channel {phase.channel[row]}, step {phase.step[row]})"
        yield Fault(what, f"{where}.rows[{row}]", "a transfer needs two ranks; a join carries no chunk")
    owner = _owner(phase.chunk_ptr)
    for entry in _where((phase.chunk < 0) | (phase.chunk >= n_chunks)):
        row = int(owner[entry])
        what = f"{describe(phase, row)} carries chunk {phase.chunk[entry]}"
        yield Fault(what, f"{where}.rows[{row}].chunks", f"the schedule has {n_chunks} chunks, counted from 0")
    for row, chunk in _repeated(owner, phase.chunk):
        yield Fault(f"{describe(phase, row)} carries chunk {chunk} twice", f"{where}.rows[{row}].chunks")
    yield from _dep_faults(phase.dep, _owner(phase.dep_ptr), np.zeros_like(phase.dep), len(phase), where)


def _group_faults(schedule: Schedule) -> Iterator[Fault]:
    """Check the groups that switches serve."""
    for number, group in enumerate(schedule.groups):
        distinct = len(set(group)) == len(group) > 1
        if not distinct or any(not 0 <= rank < schedule.n_ranks for rank in group):
            hint = f"at least two different ranks; {_valid_ranks(schedule.n_ranks)}"
            yield Fault(f"group {number} is {list(group)}", f"groups[{number}]", hint)


def _outsider_faults(phase: Transfers, schedule: Schedule, where: str) -> Iterator[Fault]:
    """Check that who sends to a group, or receives its sum, is a member."""
    for name, other in (("src", "dst"), ("dst", "src")):
        label, rank = getattr(phase, name), getattr(phase, other)
        for number, group in enumerate(schedule.groups):
            for row in _where((label == EVERY - 1 - number) & (rank >= 0) & ~np.isin(rank, group)):
                what = f"{describe(phase, row)}: rank {rank[row]} is no member"
                yield Fault(what, f"{where}.rows[{row}].{other}", f"group {number} is {list(group)}")


def _orbits_faults(phase: Orbits, schedule: Schedule, where: str) -> Iterator[Fault]:
    """Check a phase of rows that are repeated around cyclic orders."""
    n, n_chunks = schedule.n_ranks, len(schedule.chunks)
    carried, waits = ("chunk_family", "chunk_offset"), ("dep_row", "dep_shift")
    broken = list(_shape_faults(phase, ORBIT_FIELDS, carried, waits, where))
    if phase.order.ndim != 2 or phase.order.shape[0] < 1 or phase.order.shape[1] != n:
        what = f"order has the shape {phase.order.shape}"
        broken.append(Fault(what, f"{where}.order", f"one row of {n} ranks per ring"))
    else:
        no_orders = np.flatnonzero(np.any(np.sort(phase.order, axis=1) != np.arange(n), axis=1))
        what, hint = "an order must name every rank once", _valid_ranks(n)
        broken.extend(Fault(what, f"{where}.order[{ring}]", hint) for ring in no_orders)
    yield from broken
    if broken:
        return
    for row in _where((phase.shift % n == 0) & (np.diff(phase.chunk_ptr) > 0)):
        what = f"every rank sends to itself (channel {phase.channel[row]}, step {phase.step[row]})"
        yield Fault(what, f"{where}.rows[{row}].shift", "the shift must not be a multiple of the number of ranks")
    owner, families = _owner(phase.chunk_ptr), n_chunks // n
    for entry in _where((phase.chunk_family < 0) | (phase.chunk_family >= families)):
        row = int(owner[entry])
        what = f"row {row} carries chunk family {phase.chunk_family[entry]}"
        yield Fault(what, f"{where}.rows[{row}].chunks", f"{n_chunks} chunks make {families} families of {n}")
    for row, chunk in _repeated(owner, phase.chunk_family * n + phase.chunk_offset % n):
        yield Fault(f"row {row} carries member {chunk % n} of family {chunk // n} twice", f"{where}.rows[{row}].chunks")
    waiter = _owner(phase.dep_ptr)
    yield from _dep_faults(phase.dep_row, waiter, phase.dep_shift % n, len(phase.channel), where)
    known = (phase.dep_row >= 0) & (phase.dep_row < len(phase.channel))
    for entry in _where(known):
        row, dep = int(waiter[entry]), int(phase.dep_row[entry])
        if phase.channel[row] != phase.channel[dep]:
            what = f"row {row} of channel {phase.channel[row]} waits for row {dep} of channel {phase.channel[dep]}"
            yield Fault(what, f"{where}.rows[{row}].deps", "rows of orbits wait only inside their channel")


def _shape_faults(
    phase: Transfers | Orbits, fields: tuple[str, ...], carried: tuple[str, ...], waits: tuple[str, ...], where: str
) -> Iterator[Fault]:
    """Check lengths, pointers and the smallest values of the columns."""
    rows = len(phase.channel)
    for name in fields:
        column = getattr(phase, name)
        if column.shape != (rows,):
            yield Fault(f"{name} has the shape {column.shape}", where, f"one value for each of the {rows} rows")
        elif name in AT_LEAST:
            for row in _where(column < AT_LEAST[name]):
                yield Fault(f"{name} is {column[row]}", f"{where}.rows[{row}].{name}", f"at least {AT_LEAST[name]}")
    for name in (*fields, *carried, *waits):
        column = getattr(phase, name)
        if column.dtype == np.int64 and np.any((column > MAX_INTEGER) | (column < -MAX_INTEGER)):
            yield Fault(f"{name} has a number beyond 2^62", where)
    for pointers, columns in (("chunk_ptr", carried), ("dep_ptr", waits)):
        ptr = getattr(phase, pointers)
        lengths = {getattr(phase, name).shape for name in columns}
        sound = ptr.shape == (rows + 1,) and ptr[0] == 0 and not np.any(np.diff(ptr) < 0)
        if not sound or lengths != {(int(ptr[-1]),)}:
            yield Fault(f"{pointers} does not fit {' and '.join(columns)}", where, f"{rows + 1} rising offsets from 0")


def _dep_faults(dep: Int, owner: Int, shift: Int, rows: int, where: str) -> Iterator[Fault]:
    """Check the rows that rows wait for."""
    for entry in _where((dep < 0) | (dep >= rows)):
        row = int(owner[entry])
        yield Fault(f"row {row} waits for row {dep[entry]}", f"{where}.rows[{row}].deps", f"the phase has {rows} rows")
    for entry in _where((dep == owner) & (shift == 0)):
        row = int(owner[entry])
        yield Fault(f"row {row} waits for itself", f"{where}.rows[{row}].deps", "drop this dependency")


def _repeated(owner: Int, value: Int) -> Iterator[tuple[int, int]]:
    """Yield (row, value) where a row names a value more than once."""
    by = np.lexsort((value, owner))
    again = (owner[by][1:] == owner[by][:-1]) & (value[by][1:] == value[by][:-1])
    for entry in by[1:][again]:
        yield int(owner[entry]), int(value[entry])


def _where(wrong: NDArray[np.bool_]) -> list[int]:
    """Return the indices at which *wrong* is true."""
    return [int(i) for i in np.flatnonzero(wrong)]


def _owner(ptr: Int) -> Int:
    """Return the row of every entry of a CSR table."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def _valid_ranks(n_ranks: int) -> str:
    return f"ranks are 0 to {n_ranks - 1}"
