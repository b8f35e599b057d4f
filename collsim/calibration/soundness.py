"""Sound rows, which may be fitted: right results, in a time that the wires allow.

The test of the time is that of `health`, so that what ``validate`` calls impossible ``calibrate`` does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.health import impossible_flags
from collsim.calibration.log_placement import on_one_domain
from collsim.core.errors import CollsimError
from collsim.core.operations import dtype_bytes, operation
from collsim.fabric.bounds.lower import lower_bound
from collsim.library import Profile
from collsim.simulation.lowering import LoweredRun, prepare
from collsim.topology import Topology

__all__ = ["sound_rows"]

WHY = {
    "wrong": "their results are wrong",
    "below_bound": "faster than the line rate or latency of the links allows",
    "below_floor": "faster than any collective is",
}


def sound_rows(rows: Iterable[Measured], topology: Topology, profile: Profile) -> tuple[list[Measured], dict[str, int]]:
    """Return the rows that may be fitted, and how many may not, by the reason."""
    runs: dict[int, LoweredRun | None] = {}
    bounds_s: dict[MeasuredCase, float] = {}
    kept: list[Measured] = []
    refused: Counter[str] = Counter()
    for row in rows:
        case = row.case
        if case.ranks not in runs:
            runs[case.ranks] = _run(topology, profile, case.ranks)
        if case not in bounds_s:
            bounds_s[case] = _bound_s(case, runs[case.ranks] if on_one_domain(case, topology) else None)
        flags = ["wrong"] if row.wrong else impossible_flags(row.time_s(topology.name), bounds_s[case])
        if flags:
            refused[WHY[flags[0]]] += 1
        else:
            kept.append(row)
    return kept, dict(refused)


def _run(topology: Topology, profile: Profile, ranks: int) -> LoweredRun | None:
    """Return the fabric of the first so many GPUs; None where that cannot be, which others tell."""
    try:
        return prepare(topology, profile, range(ranks)) if ranks <= topology.n_gpus else None
    except CollsimError:
        return None


def _bound_s(case: MeasuredCase, run: LoweredRun | None) -> float:
    """Return the least time of a call in seconds; 0 where it is not known."""
    if run is None or case.groups is not None:
        return 0.0
    op, matrix = operation(case.op), None if case.matrix is None else np.array(case.matrix, dtype=np.int64)
    size_bytes = case.size_bytes
    if matrix is None:
        size_bytes = op.rounded_size_bytes(case.size_bytes, case.ranks, dtype_bytes(case.dtype)[1])
    if size_bytes == 0:
        return 0.0
    return lower_bound(op, size_bytes, run.cuts, case.root, matrix, flows=run.flows).time_s
