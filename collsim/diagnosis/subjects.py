"""Subjects of a diagnosis: the rows of a log that are judged together, and the verdict by range of sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collsim.calibration.cases import MeasuredCase
from collsim.calibration.estimates import NORMAL_90
from collsim.calibration.health import limits_s
from collsim.calibration.log_placement import nodes_of
from collsim.calibration.verdicts import CheckedLog, JudgedCase
from collsim.diagnosis.findings import SizeRange
from collsim.diagnosis.fit import (
    ALPHA,
    LOCAL_OCTAVES,
    MOST_DIPS,
    RATES_FROM_BYTES,
    Noise,
    dips_of,
    late_row,
    p_value,
    shift,
    whole_shift,
)
from collsim.topology import Topology

Float = NDArray[np.float64]

__all__ = ["Subject", "is_possible", "subject_of"]

EDGES = (2**20, RATES_FROM_BYTES, 2**28)
"""Ranges of sizes: launch times and latency, pipelines that fill, those that are nearly full, rates."""
UNSURE = ((0.35, 0.25, 0.1, 0.1), (0.35, 0.45, 0.25, 0.15))
"""Standard deviations, by range, of the logarithm of a prediction that no measurement of the machine backs, within a
node and between nodes. Nine of ten rows of unseen nodes are off by at most 20 % where rates decide, by more below; of
unseen systems of several nodes by 16 % from 512 MiB on, 45 % from 32 MiB on, 81 % from 1 MiB on (docs/accuracy.md;
a standard deviation is the logarithm of the factor over 1.645). Chosen, near these."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One kind of rows of a log.

    Attributes
    ----------
    log : CheckedLog
    case : MeasuredCase
        What the rows share, as the model was asked.
    noise : Noise
    healthy_s : mapping of int to float
        Predicted seconds by size.
    outside : bool
        A row is slower than its interval, or margin.
    flagged : bool
        Results are wrong, or a time is impossible.
    nodes : int
        Of a cluster, between which messages went; 1 inside one domain.
    """

    log: CheckedLog
    case: MeasuredCase
    noise: Noise
    healthy_s: Mapping[int, float]
    low_s: tuple[float, ...]
    high_s: tuple[float, ...]
    outside: bool
    flagged: bool
    nodes: int = 1

    @property
    def p_value(self) -> float:
        """Part of healthy machines that would be as far off, over all sizes."""
        return p_value(self.noise, self.noise.healthy_s)

    def as_if(self, ratios: Float) -> Subject:
        """Return the rows as a healthy machine would be judged whose times are *ratios*, float64[n], of this one's."""
        return replace(self, noise=self.noise._replace(healthy_s=self.noise.healthy_s * ratios))

    def ranges(self) -> tuple[SizeRange, ...]:
        """Return each range of sizes with its verdict; last the whole, if it is slow by what no range shows alone.

        Sizes that are slow between two that are not do not count: they speak of a switch, not of a rate.
        """
        noise = self.noise.part(_rest(self.noise))
        sizes = noise.sizes
        which = np.searchsorted(EDGES, sizes, side="right")
        found = []
        for number in sorted(set(which.tolist())):
            part = noise.part(np.flatnonzero(which == number).tolist())
            mean, chance = shift(part)
            verdict = "healthy" if chance >= ALPHA else "slower" if mean > 0 else "faster"
            least, most = int(part.sizes.min()), int(part.sizes.max())
            found.append(SizeRange(least, most, float(np.exp(mean)), chance, verdict))
        if len(found) > 1 and all(part.verdict != "slower" for part in found):
            mean, chance = whole_shift(noise)
            if chance < ALPHA:
                found.append(SizeRange(int(sizes.min()), int(sizes.max()), float(np.exp(mean)), chance, "slower"))
        return tuple(found)

    def verdict(self, ranges: Sequence[SizeRange]) -> str:
        """Return the verdict on the log: ``doubtful`` is slow, but by no row alone, or at single sizes."""
        if self.flagged:
            return "broken"
        words = {part.verdict for part in ranges}
        if "slower" in words:
            return "faulty" if self.outside else "doubtful"
        if set(dips_of(self.noise)) - {late_row(self.noise)}:
            return "doubtful"
        return "fast" if "faster" in words else "healthy"


def _rest(noise: Noise) -> list[int]:
    """Return the rows that are no single slow sizes: all, where these are too many to be single ones."""
    dips = dips_of(noise)
    return [row for row in range(len(noise.sizes)) if row not in dips or len(dips) > MOST_DIPS]


def is_possible(row: JudgedCase) -> bool:
    """Return whether a time is one that the wires allow."""
    return "below_bound" not in row.flags and "below_floor" not in row.flags


def subject_of(log: CheckedLog, margin: float, topology: Topology) -> Subject | None:
    """Return the kind of rows that a log has most of; None if none of them has a sound time."""
    sound = [row for row in log.rows if is_possible(row)]
    kinds = Counter(_kind(row) for row in sound)
    if not kinds:
        return None
    chosen = kinds.most_common(1)[0][0]
    rows = [row for row in sound if _kind(row) == chosen and row.case.matrix is None]
    if not rows:
        return None
    ends = [limits_s(row, margin) for row in rows]
    measured, healthy = ([getattr(row, name) for row in rows] for name in ("measured_s", "predicted_s"))
    nodes = nodes_of(rows[0].case, topology)
    sigma = [_sigma(row, *both, over_nodes=nodes > 1) for row, both in zip(rows, ends, strict=True)]
    sizes = np.array([row.case.size_bytes for row in rows], dtype=np.float64)
    noise = Noise(sizes, np.array(measured), np.array(healthy), _evened(sizes, np.array(sigma)), nodes > 1)
    library = log.case.library
    case = replace(
        rows[0].case,
        library=library,
        environment=rows[0].case.environment if library else (),
        nodes=rows[0].case.nodes if topology.cluster is not None else None,
    )
    return Subject(
        log, case, noise, {row.case.size_bytes: row.predicted_s for row in rows},
        tuple(low for low, _ in ends), tuple(high for _, high in ends),
        outside=any(rows[number].verdict == "slower" for number in _rest(noise)),
        flagged=any(row.flags for row in log.rows),
        nodes=nodes,
    )  # fmt: skip


def _sigma(row: JudgedCase, low_s: float, high_s: float, *, over_nodes: bool) -> float:
    """Return the standard deviation of the logarithm of a prediction."""
    if row.covered is None:
        return UNSURE[over_nodes][int(np.searchsorted(EDGES, row.case.size_bytes, side="right"))]
    return float(np.log(high_s / low_s) / (2 * NORMAL_90))


def _evened(sizes: Float, sigma: Float) -> Float:
    """Return the widths float64[n] of errors that were counted by band of sizes, without the steps between bands.

    What a library changes at some size, and a model at another, is as near to the edge of a band on one side as on the
    other. Where rates decide, bands stay as they are.
    """
    octaves = np.log2(sizes)
    near = np.abs(octaves[:, None] - octaves[None, :]) <= LOCAL_OCTAVES
    mean = np.sqrt((near * sigma**2).sum(axis=1) / near.sum(axis=1))
    return np.where(sizes < RATES_FROM_BYTES, mean, sigma)


def _kind(row: JudgedCase) -> tuple[str, str, int]:
    return row.case.dtype, row.case.redop, row.case.root
