"""A table look-up beside collsim, on one node, with whole groups of rows left out: all of a system with so many ranks.

Serving planners predict that way: the measured rows of the same system and operation with the nearest number of ranks,
interpolated in the size. ``python tools/accuracy.py --look-up`` prints both.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from fit_profiles import FITS, fit, start_profile
from predictors import TableCase, TableRow, predict
from scores import KIB, MIB, NO_ANSWER, predict_all, score, world_of

from collsim.core.errors import InputError
from collsim.library import Profile

BANDS = {"< 64 KiB": 64 * KIB, "64 KiB-1 MiB": MIB, "1-16 MiB": 16 * MIB, ">= 16 MiB": math.inf}
"""Upper ends."""
ALL = "all"

Group = tuple[str, int]
"""System and ranks."""


class Left(NamedTuple):
    """A row that was left out, with relative errors; those of the look-ups are None where the table has no such row."""

    group: Group
    band: str
    ours: float
    same: float | None
    every: float | None


def plain_groups(rows: Iterable[TableRow]) -> dict[Group, list[TableRow]]:
    """Return the sound rows of plain runs on one node, of systems with logs of several numbers of ranks."""
    groups: dict[Group, list[TableRow]] = defaultdict(list)
    for row in rows:
        if row.health == "ok" and not row.spike and row.set != "none" and not row.case.nodes and not world_of(row.case):
            groups[row.case.system, row.case.ranks].append(row)
    systems = [system for system, _ in groups]
    return {group: groups[group] for group in sorted(groups) if systems.count(group[0]) > 1 and group[0] in FITS}


def looked_up_s(case: TableCase, table: Sequence[TableRow]) -> float | None:
    """Return the time of the rows of a table with the nearest number of ranks, interpolated in the size.

    Above the largest size it grows with the bytes. None if the table has no row of the operation, or only larger ones.
    """
    alike = [row for row in table if row.case.op == case.op]
    alike = [row for row in alike if row.case.dtype == case.dtype] or alike
    if not alike:
        return None
    near = min({row.case.ranks for row in alike}, key=lambda ranks: (abs(math.log(ranks / case.ranks)), ranks))
    times: dict[int, list[float]] = defaultdict(list)
    for row in alike:
        if row.case.ranks == near:
            times[row.case.size_bytes].append(math.log(row.time_s))
    sizes = sorted(times)
    if case.size_bytes < sizes[0]:
        return None
    log_s = np.interp(math.log(case.size_bytes), np.log(sizes), [np.median(times[size]) for size in sizes])
    return math.exp(float(log_s)) * max(case.size_bytes / sizes[-1], 1)


def profile_without(group: Group) -> Profile | None:
    """Return the profile fitted to the training rows of a system without those of so many ranks.

    Where too few others are left, that is what the fit starts from; None if no training row is of the group, so that
    the shipped profile never saw it.
    """
    system, ranks = group
    try:
        return fit(system, without=ranks).profile
    except InputError:
        return start_profile(system)


def judge_groups(groups: dict[Group, list[TableRow]], *, workers: int) -> list[Left]:
    """Return every row with errors of collsim and of the look-up, neither of which saw its group."""
    seen = [group for group, rows in groups.items() if any(row.set == "train" for row in rows)]
    with ProcessPoolExecutor(workers) as pool:
        profiles = dict(zip(seen, pool.map(profile_without, seen), strict=True))
    return [
        left
        for group, rows in groups.items()
        for left in judged(group, rows, others(group, groups), profiles.get(group), workers=workers)
    ]


def others(group: Group, groups: dict[Group, list[TableRow]]) -> list[TableRow]:
    """Return the rows of the same system with other numbers of ranks."""
    return [row for other, rows in groups.items() if other[0] == group[0] and other != group for row in rows]


def judged(
    group: Group, rows: Sequence[TableRow], table: Sequence[TableRow], profile: Profile | None, *, workers: int
) -> list[Left]:
    """Return the rows of one group with their errors."""
    said = predict_all(partial(predict, profile=profile), [row.case for row in rows], workers=workers)
    train = [row for row in table if row.set == "train"]
    return [
        Left(group, band_of(row), found.time_s / row.time_s - 1, error_of(row, train), error_of(row, table))
        for row in rows
        if (found := said[row.case])
    ]


def error_of(row: TableRow, table: Sequence[TableRow]) -> float | None:
    """Return the relative error of the look-up; None if it has no answer."""
    time_s = looked_up_s(row.case, table)
    return None if time_s is None else time_s / row.time_s - 1


def band_of(row: TableRow) -> str:
    """Return the band of a row."""
    return next(band for band, end in BANDS.items() if row.case.size_bytes < end)


HEAD = (
    "system", "ranks left out", "sizes", "rows", "collsim", "look-up, same rows", "rows", "collsim on these",
    "look-up, every row", "rows", "nearer",
)  # fmt: skip


def lookup_table(found: Sequence[Left]) -> str:
    """Return the Markdown table, and in words who is nearer how often."""
    lines, won = [HEAD, ("---",) * len(HEAD)], {"collsim": 0, "look-up": 0}
    cells: dict[tuple[Group, str], list[Left]] = defaultdict(list)
    for left in found:
        cells[left.group, left.band].append(left)
        cells[(left.group[0], 0), left.band].append(left)
        cells[(ALL, 0), left.band].append(left)
    for group, band in sorted(cells, key=lambda cell: (cell[0][0] == ALL, cell[0], list(BANDS).index(cell[1]))):
        rows = cells[group, band]
        every = [left for left in rows if left.every is not None]
        told = [score(left.ours for left in rows), score(left.same for left in rows if left.same is not None)]
        both = [score(left.ours for left in every), score(left.every for left in every if left.every is not None)]
        nearer = NO_ANSWER if not every else "collsim" if both[0].median < both[1].median else "look-up"
        if group[0] != ALL and group[1] and every:
            won[nearer] += 1
        ranks = str(group[1]) if group[1] else "each in turn"
        lines.append((
            group[0], ranks, band, str(told[0].n), str(told[0]), str(told[1]), str(told[1].n), str(both[0]),
            str(both[1]), str(both[1].n), nearer,
        ))  # fmt: skip
    total = sum(won.values())
    words = f"The median of collsim is the smaller one in {won['collsim']} of {total} groups and bands.\n\n"
    return words + "".join(f"| {' | '.join(line)} |\n" for line in lines)
