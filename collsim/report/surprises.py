"""Surprises: rows that take less time for more bytes or more ranks, and what the library did otherwise there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from collsim.core.units import format_size
from collsim.simulation.result import Row

__all__ = ["surprise_lines"]

EQUAL = 1e-9
"""Times within this share of each other are the same."""
MOST = 3
"""Surprises of one kind that are told one by one."""


def surprise_lines(rows: Sequence[Row]) -> list[str]:
    """Return where more bytes, or more ranks, take less time by the library's own choice, and what it chose.

    A library times algorithms by a cost model of its own and switches channels and parts at fixed sizes, so its choice
    need not be the fastest; docs/jumps.md lists such switches. Rows of an algorithm that the user named are left out.
    """
    chosen = [row for row in rows if row.asked == "auto" and row.time_s > 0]
    by_size = sorted(chosen, key=lambda row: (row.op, row.groups, row.ranks, row.size_bytes))
    by_ranks = sorted(chosen, key=lambda row: (row.op, row.groups, row.requested_bytes, row.ranks))
    more_bytes = [
        f"{format_size(less.size_bytes)} to {format_size(more.size_bytes)}{_ranks(more, rows)}: {_told(less, more)}"
        for less, more in pairwise(by_size)
        if _alike(less, more, "ranks") and more.size_bytes > less.size_bytes and _is_faster(less, more)
    ]
    more_ranks = [
        f"{less.ranks} to {more.ranks} ranks at {format_size(more.size_bytes)}: {_told(less, more)}"
        for less, more in pairwise(by_ranks)
        if _alike(less, more, "requested_bytes") and more.ranks > less.ranks and _is_faster(less, more)
    ]
    return [*_few("bytes", more_bytes), *_few("ranks", more_ranks)]


def _alike(one: Row, other: Row, name: str) -> bool:
    """Return True if two rows differ in one respect only, which is not *name*."""
    return all(getattr(one, key) == getattr(other, key) for key in ("op", "groups", name))


def _is_faster(less: Row, more: Row) -> bool:
    return more.time_s < less.time_s * (1 - EQUAL)


def _told(less: Row, more: Row) -> str:
    """Return what ran before and what after; what a row does not record is the cut of messages and chunks."""
    if (less.algo, less.proto) != (more.algo, more.proto):
        return f"{less.label}, then {more.label}"
    if less.channels != more.channels:
        return f"{more.label} on {less.channels}, then {more.channels} channels"
    return f"{more.label} on the same channels, in other parts or chunks"


def _ranks(row: Row, rows: Iterable[Row]) -> str:
    """Return the ranks of a row where a table has several numbers of them."""
    return f" on {row.ranks} ranks" if any(other.ranks != row.ranks for other in rows) else ""


def _few(what: str, told: Sequence[str]) -> list[str]:
    """Return one line of surprises of a kind, the first of many."""
    if not told:
        return []
    rest = f"; {len(told) - MOST} more" if len(told) > MOST else ""
    return [f"less time for more {what}, as the library switches (docs/jumps.md): {'; '.join(told[:MOST])}{rest}"]
