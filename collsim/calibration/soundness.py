"""Sound rows, which may be fitted: right results, in a time that the wires allow.

The test of the time is that of `health`, so that what ``validate`` calls impossible ``calibrate`` does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.health import impossible_flags
from collsim.calibration.log_placement import gpus_of, on_one_domain
from collsim.core.errors import CollsimError
from collsim.core.operations import dtype_bytes, operation
from collsim.fabric.bounds.lower import lower_bound
from collsim.library import Profile
from collsim.simulation.runs import LoweredRun, prepare
from collsim.topology import Topology

__all__ = ["sound_rows"]

WHY = {
    "wrong": "their results are wrong",
    "below_bound": "faster than the line rate or latency of the links allows",
    "below_floor": "faster than any collective is",
    "flat": "their times do not rise with size",
}
FLAT_OVER, SAME = 256, 1.01
"""Chosen: over so many times the size no time stays within a hundredth; printed times of small sizes alone may."""


def sound_rows(rows: Iterable[Measured], topology: Topology, profile: Profile) -> tuple[list[Measured], dict[str, int]]:
    """Return the rows that may be fitted, and how many may not, by the reason."""
    runs: dict[tuple[int, ...], LoweredRun | None] = {}
    bounds_s: dict[MeasuredCase, float] = {}
    kept: list[Measured] = []
    refused: Counter[str] = Counter()
    for row in rows:
        case = row.case
        gpus = tuple(gpus_of(case, topology)[: case.ranks])
        if gpus not in runs:
            runs[gpus] = _run(topology, profile, gpus)
        if case not in bounds_s:
            bounds_s[case] = _bound_s(case, runs[gpus] if on_one_domain(case, topology) else None)
        flags = ["wrong"] if row.wrong else impossible_flags(row.time_s(topology.name), bounds_s[case])
        if flags:
            refused[WHY[flags[0]]] += 1
        else:
            kept.append(row)
    flat = [row for table in _tables(kept) if _never_rises(table, topology.name) for row in table]
    if flat:
        refused[WHY["flat"]] += len(flat)
        kept = [row for row in kept if row not in flat]
    return kept, dict(refused)


def _tables(rows: Iterable[Measured]) -> list[list[Measured]]:
    """Return the rows of each call of each file, by size."""
    found: dict[tuple[str, MeasuredCase], list[Measured]] = {}
    for row in sorted(rows, key=lambda row: row.case.size_bytes):
        found.setdefault((row.file, replace(row.case, size_bytes=0)), []).append(row)
    return list(found.values())


def _never_rises(table: Sequence[Measured], system: str) -> bool:
    """Return True if times of many sizes are all the same, or fall from the least to the greatest."""
    first, last = table[0], table[-1]
    if last.case.size_bytes < FLAT_OVER * first.case.size_bytes:
        return False
    times = [row.time_s(system) for row in table]
    return max(times) < SAME * min(times) or times[-1] < times[0] / SAME


def _run(topology: Topology, profile: Profile, gpus: Sequence[int]) -> LoweredRun | None:
    """Return the fabric of some GPUs; None where that cannot be, which others tell."""
    try:
        return prepare(topology, profile, gpus) if max(gpus) < topology.n_gpus else None
    except CollsimError:
        return None


def _bound_s(case: MeasuredCase, run: LoweredRun | None) -> float:
    """Return the least time of a call in seconds; 0 where it is not known."""
    if run is None or case.groups is not None:
        return 0.0
    op, matrix = operation(case.op), None if case.matrix is None else np.array(case.matrix, dtype=np.int64)
    size_bytes = case.size_bytes
    if matrix is None:
        size_bytes = op.whole_size_bytes(case.size_bytes, case.ranks, dtype_bytes(case.dtype)[1])
    if size_bytes == 0:
        return 0.0
    return lower_bound(op, size_bytes, run.cuts, case.root, matrix, flows=run.flows).time_s
