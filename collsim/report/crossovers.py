"""Crossovers: the fastest algorithm at each size, and where the lead changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

from collsim.core.units import format_size
from collsim.simulation.result import Row

__all__ = ["crossover_lines"]

EQUAL = 1e-9
"""Times within this share of each other are the same."""


def crossover_lines(rows: Sequence[Row]) -> list[str]:
    """Return the fastest algorithm by size and the sizes at which the lead changes; nothing for one algorithm.

    Between two sizes, the time of each algorithm is taken to be a straight line in log-log; a change of lead lies where
    the lines of the old and the new leader meet.
    """
    times: dict[int, dict[str, float]] = {}
    for row in rows:
        times.setdefault(row.size_bytes, {})[row.algo] = row.time_s
    if all(len(found) < 2 for found in times.values()):
        return []
    leaders = [(size, _leader(found)) for size, found in sorted(times.items())]
    spans = []
    for algo, run in groupby(leaders, key=lambda leader: leader[1]):
        sizes = [size for size, _ in run]
        spans.append(f"{algo} {_span(sizes[0], sizes[-1])}")
    lines = [f"fastest: {', '.join(spans)}"]
    for (small, old), (large, new) in pairwise(leaders):
        if old != new:
            meet = _meeting(small, large, times[small], times[large], (old, new))
            lines.append(f"{new} overtakes {old} at about {format_size(meet)}" if meet else f"{new} leads after {old}")
    return lines


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
