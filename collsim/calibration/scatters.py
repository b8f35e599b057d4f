"""Errors of a fit, row by row, and how far measured times may then lie from predicted ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collsim.calibration.estimates import Estimate
from collsim.calibration.findings import Residual
from collsim.calibration.observations import Observation
from collsim.library import Scatter, band_of

__all__ = ["residual_of", "residuals_of", "scatter_of"]

INSIDE = 0.9
"""Share of measured times inside an interval."""
LEAST_REACH = {"small": 0.25, "middle": 0.2, "large": 0.05, "bulk": 0.05}
"""Least distance of an interval's ends, as a logarithm: what the same runs on two equal machines of one site differ by,
rounded (H100, 90th percentile: 0.27 below 64 KiB, 0.29 below 1 MiB, 0.02 above; B200 above 1 MiB 0.16)."""
FEW_ROWS = 10
"""Fewer rows may agree by chance: intervals are then wider by what they lack (chosen)."""


def residuals_of(observations: Sequence[Observation], found: Estimate) -> list[Residual]:
    """Return the residuals of a fit on its rows: as fitted, and predicted without those of like operation and ranks."""
    times = zip(found.predicted_s.tolist(), found.left_out_s.tolist(), strict=True)
    return [
        residual_of(entry, predicted_s, None if math.isnan(left_out_s) else left_out_s)
        for entry, (predicted_s, left_out_s) in zip(observations, times, strict=True)
    ]


def residual_of(entry: Observation, predicted_s: float, left_out_s: float | None) -> Residual:
    """Return one row beside what was predicted of it."""
    case = entry.row.case
    return Residual(
        entry.row.file, case.op, case.ranks, case.size_bytes, entry.launch, entry.family, entry.proto, entry.time_s,
        predicted_s, left_out_s, entry.channels,
    )  # fmt: skip


def scatter_of(residuals: Sequence[Residual]) -> dict[str, dict[str, Scatter]]:
    """Return the errors of rows left out of the fit by family and band; of fitted rows where none was left out."""
    groups: dict[tuple[str, str], list[Residual]] = defaultdict(list)
    for entry in residuals:
        band = band_of(entry.size_bytes)
        groups[entry.family, "large" if band == "bulk" else band].append(entry)
    found: dict[str, dict[str, Scatter]] = defaultdict(dict)
    for (family, band), entries in groups.items():
        found[family][band] = _scatter(entries, band)
        if band == "large":
            found[family] |= _halves(found[family][band], entries)
    return {family: dict(bands) for family, bands in found.items()}


def _halves(whole: Scatter, entries: Sequence[Residual]) -> dict[str, Scatter]:
    """Return errors from 1 MiB on with ends of their own below and above 32 MiB, where enough rows tell both.

    What is counted in ``large`` are all of them, as the output says.
    """
    halves = [[entry for entry in entries if (band_of(entry.size_bytes) == "bulk") == far] for far in (False, True)]
    if any(sum(entry.left_out_s is not None for entry in half) < FEW_ROWS for half in halves):
        return {}
    near, far = _scatter(halves[0], "large"), _scatter(halves[1], "bulk")
    return {"large": replace(whole, low=near.low, high=near.high), "bulk": far}


def _scatter(everything: Sequence[Residual], band: str) -> Scatter:
    """Return the errors of rows of one band."""
    entries = [entry for entry in everything if entry.left_out_s is not None] or everything
    ratios = np.array([entry.measured_s / (entry.left_out_s or entry.predicted_s) for entry in entries])
    errors = np.abs(1 / ratios - 1)
    n = len(ratios)
    # The share of n rows within which the next one lies with probability INSIDE (conformal prediction).
    share = min(INSIDE * (n + 1) / n, 1.0)
    least = LEAST_REACH[band] * (1 if n >= FEW_ROWS else FEW_ROWS / n)
    reach = math.exp(max(float(np.quantile(np.abs(np.log(ratios)), share)), least))
    return Scatter(
        low=1 / reach, high=reach, median=float(np.median(errors)), p90=float(np.quantile(errors, 0.9)), rows=n,
        logs=len({entry.file for entry in entries}), fitted=entries[0].left_out_s is None,
        ops=tuple(sorted({entry.op for entry in entries})),
    )  # fmt: skip
