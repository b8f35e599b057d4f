"""Crossovers: the fastest algorithm at each size, and where the lead changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

from collsim.core.units import format_size
from collsim.simulation.result import Row

__all__ = ["contestant", "crossover_lines"]

EQUAL = 1e-9
"""Times within this share of each other are the same."""


def crossover_lines(rows: Sequence[Row]) -> list[str]:
    """Return the fastest algorithm by size, and the sizes at which the lead changes; nothing where only one thing ran.

    Between two sizes, the time of each contestant is taken to be a straight line in log-log; a change of lead lies
    where the lines of the old and the new leader meet. What a choice ran stands behind it.
    """
    times: dict[int, dict[str, float]] = {}
    labels: dict[tuple[int, str], str] = {}
    for row in rows:
        times.setdefault(row.size_bytes, {})[contestant(row)] = row.time_s
        labels[row.size_bytes, contestant(row)] = _shown(row)
    if all(len(found) < 2 for found in times.values()):
        return []
    leaders = [(size, _leader(found)) for size, found in sorted(times.items())]
    spans = []
    for label, run in groupby(leaders, key=lambda leader: labels[leader]):
        sizes = [size for size, _ in run]
        spans.append(f"{label} {_span(sizes[0], sizes[-1])}")
    lines = [f"fastest: {', '.join(spans)}"]
    for (small, old), (large, new) in pairwise(leaders):
        if old != new:
            meet = _meeting(small, large, times[small], times[large], (old, new))
            lines.append(f"{new} overtakes {old} at about {format_size(meet)}" if meet else f"{new} leads after {old}")
    return lines


def contestant(row: Row) -> str:
    """Return who a row is of: a choice by its name, which may run another algorithm at each size, or an algorithm; with
    its protocol if that was asked for by name.
    """
    if row.asked in ("auto", "best"):
        return row.asked
    return row.algo if row.asked in ("all", "") else row.label


def _shown(row: Row) -> str:
    """Return the name that leads, with the algorithm that ran if that is another."""
    return f"{row.asked} ({row.label})" if row.asked in ("auto", "best") else row.label


def _leader(found: dict[str, float]) -> str:
    """Return the fastest algorithm; of equally fast ones the first."""
    least_s = min(found.values())
    return next(algo for algo, time_s in found.items() if time_s <= least_s * (1 + EQUAL))


def _span(first: int, last: int) -> str:
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


def _meeting(
    small: int, large: int, before: dict[str, float], after: dict[str, float], pair: tuple[str, str]
) -> float | None:
    """Return the size at which two log-log lines meet; None if one of the four times is missing."""
    old, new = pair
    if not {old, new} <= before.keys() & after.keys():
        return None
    lead_before, lead_after = math.log(before[new] / before[old]), math.log(after[old] / after[new])
    share = lead_before / (lead_before + lead_after) if lead_before + lead_after > 0 else 0.5
    return float(small * (large / small) ** share)
