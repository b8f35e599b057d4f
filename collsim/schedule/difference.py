"""Differences of two schedules, transfer by transfer; ids of rows and the form of a phase do not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from collsim.core.errors import VerificationError
from collsim.schedule.forms import EVERY, Transfers
from collsim.schedule.schedule import Schedule
from collsim.schedule.structure import structure_faults

__all__ = ["diff"]

MAX_LINES = 40
"""`diff` writes this many lines and counts the rest."""

MAX_ROUNDS = 16

_Key = tuple[int | bool | tuple[int, ...], ...]


def diff(a: Schedule, b: Schedule) -> list[str]:
    """Return the differences between *a* and *b* as lines for people; nothing if they do the same.

    Raises
    ------
    VerificationError
        If the arrays of one of them do not fit together.
    """
    for schedule in (a, b):
        faults = structure_faults(schedule, merged=True)
        if faults:
            raise VerificationError(*faults)
    lines = [*_head(a, b), *_chunk_table(a, b)]
    if len(a.phases) != len(b.phases):
        lines.append(f"phases: {len(a.phases)} in a, {len(b.phases)} in b")
    for number in range(max(len(a.phases), len(b.phases))):
        if _identical(a, b, number):
            continue
        prefix = f"phase {number}: " if max(len(a.phases), len(b.phases)) > 1 else ""
        lines += [prefix + line for line in _phase(_Labels(a, number), _Labels(b, number))]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"... and {len(lines) - MAX_LINES} more differences"]
    return lines


def _identical(a: Schedule, b: Schedule, number: int) -> bool:
    """Return True if a phase has the same transfers in the same order, of the same sizes; the quick way out."""
    if number >= min(len(a.phases), len(b.phases)):
        return False
    left, right = a.phases[number].materialise(), b.phases[number].materialise()
    return np.array_equal(a.chunks.size_bytes, b.chunks.size_bytes) and all(
        np.array_equal(getattr(left, field.name), getattr(right, field.name)) for field in fields(Transfers)
    )


class _Labels:
    """The transfers of one phase by what they do instead of by id; none if there is no such phase."""

    def __init__(self, schedule: Schedule, number: int) -> None:
        self.keys: list[_Key] = []
        self.deps: list[list[int]] = []
        self.sizes: dict[_Key, int] = {}
        if number >= len(schedule.phases):
            return
        rows = schedule.phases[number].materialise()
        names = ("src", "dst", "channel", "step", "reduces", "reads_input", "lanes", "copies")
        columns = [getattr(rows, name).tolist() for name in names]
        for i, values in enumerate(zip(*columns, strict=True)):
            self.keys.append((*values, tuple(sorted(rows.chunks_of(i)))))
            self.deps.append(rows.deps_of(i))
        self.sizes = dict(zip(self.keys, rows.size_bytes(schedule.chunks).tolist(), strict=True))

    def waits(self) -> Iterator[tuple[_Key, tuple[_Key, ...]]]:
        """Yield every transfer with what it waits for."""
        for key, deps in zip(self.keys, self.deps, strict=True):
            yield key, tuple(sorted({self.keys[dep] for dep in deps}))

    def show(self, key: _Key) -> str:
        """Return a transfer as people write it."""
        src, dst, channel, step, reduces, reads_input, lanes, copies, chunks = key
        if src == dst:
            return f"join of rank {src} (channel {channel}, step {step})"
        assert isinstance(chunks, tuple)
        verb = f"{'adds' if reduces else 'copies'}{' from its input' if reads_input else ''}"
        carried = ", ".join(map(str, chunks[:8])) + (f" and {len(chunks) - 8} more" if len(chunks) > 8 else "")
        extra = "".join(
            f", {count} {what}" for count, what in ((lanes, "lanes"), (copies, "equal channels")) if count != 1
        )
        size_bytes = self.sizes[key]
        return f"{src} -> {dst} (channel {channel}, step {step}) {verb} chunks [{carried}], {size_bytes} bytes{extra}"


def _head(a: Schedule, b: Schedule) -> Iterator[str]:
    """Compare what is said about the schedules as a whole."""
    for name in ("op", "algo", "n_ranks", "size_bytes", "groups"):
        left, right = getattr(a, name), getattr(b, name)
        if left != right:
            yield f"{name}: {left} in a, {right} in b"
    for key in sorted({*a.parameters, *b.parameters}):
        left, right = a.parameters.get(key, "not set"), b.parameters.get(key, "not set")
        if left != right:
            yield f"parameters.{key}: {left} in a, {right} in b"


def _chunk_table(a: Schedule, b: Schedule) -> Iterator[str]:
    """Compare the chunks."""
    tables = [
        list(zip(s.chunks.size_bytes.tolist(), s.chunks.source.tolist(), s.chunks.target.tolist(), strict=True))
        for s in (a, b)
    ]
    if len(tables[0]) != len(tables[1]):
        yield f"chunks: {len(tables[0])} in a, {len(tables[1])} in b"
    for chunk, (left, right) in enumerate(zip(*tables, strict=False)):
        if left != right:
            yield f"chunk {chunk}: {_show_chunk(left)} in a, {_show_chunk(right)} in b"


def _show_chunk(chunk: tuple[int, int, int]) -> str:
    size_bytes, *ends = chunk
    source, target = ("every rank" if rank == EVERY else f"rank {rank}" for rank in ends)
    return f"{size_bytes} bytes from {source} to {target}"


def _phase(a: _Labels, b: _Labels) -> Iterator[str]:
    """Compare the transfers of a phase, then what they wait for."""
    left, right = Counter(a.keys), Counter(b.keys)
    for name, labels, only in (("a", a, left - right), ("b", b, right - left)):
        for key, count in sorted(only.items()):
            yield f"only in {name}: {labels.show(key)}" + (f" ({count} times)" if count > 1 else "")
    resized = sorted(key for key in left.keys() & right.keys() if a.sizes[key] != b.sizes[key])
    yield from (f"other size: {a.show(key)} in a, {b.sizes[key]} bytes in b" for key in resized)
    if left != right:
        return
    waits = Counter(a.waits()), Counter(b.waits())
    differing = sorted({key for key, _ in (waits[0] - waits[1]) + (waits[1] - waits[0])})
    for key in differing:
        sides = [Counter(dep for (who, deps), _ in side.items() if who == key for dep in deps) for side in waits]
        alone = ("a", sides[0] - sides[1]), ("b", sides[1] - sides[0])
        for name, others in alone:
            for dep in sorted(others):
                yield f"only in {name}: {a.show(key)} waits for {a.show(dep)}"
        if not any(others for _, others in alone):
            yield f"other combinations: transfers like {a.show(key)} wait for the same ones, grouped differently"
    if not differing and _refined(a, b):
        yield "transfers that look alike wait for transfers that look alike, but not for the same ones"


def _refined(a: _Labels, b: _Labels) -> bool:
    """Return True if the dependencies differ further back than one transfer."""
    numbers: dict[object, int] = {}
    sides = [[numbers.setdefault(key, len(numbers)) for key in side.keys] for side in (a, b)]
    classes = len(numbers)
    for _ in range(MAX_ROUNDS):
        numbers = {}
        sides = [
            [
                numbers.setdefault((label, tuple(sorted(labels[dep] for dep in deps))), len(numbers))
                for label, deps in zip(labels, side.deps, strict=True)
            ]
            for labels, side in zip(sides, (a, b), strict=True)
        ]
        if Counter(sides[0]) != Counter(sides[1]):
            return True
        if len(numbers) == classes:
            return False
        classes = len(numbers)
    return False
