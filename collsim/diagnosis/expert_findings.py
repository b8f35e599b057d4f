"""Findings on logs of DeepEP's tests: plain data that reports can show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collsim.moe.logs import MoeLog
from collsim.moe.result import MoeResult

__all__ = ["ExpertCause", "ExpertLog", "ExpertRow"]

NEAR = math.log(1.25)
"""A cause explains a log if its times are off by less, as a root mean square of logarithms. Chosen: as far as kernels
are off where rows of them were measured."""


@dataclass(frozen=True, slots=True)
class ExpertRow:
    """An operation as measured and as predicted; rates are bytes/s, *network_Bps* of the wire at the measured time."""

    op: str
    dtype: str
    measured_s: float
    predicted_s: float
    time_lo_s: float
    time_hi_s: float
    logical_Bps: float
    network_Bps: float

    @property
    def verdict(self) -> str:
        """``inside``, ``slower`` or ``faster``."""
        if self.measured_s > self.time_hi_s:
            return "slower"
        return "faster" if self.measured_s < self.time_lo_s else "inside"


@dataclass(frozen=True, slots=True)
class ExpertCause:
    """What would explain a log: *off* and *healthy_off* are roots of mean squares of logarithms of its times."""

    name: str
    title: str
    flags: str
    measure: str
    fix: str
    source: str
    off: float
    healthy_off: float

    @property
    def fits(self) -> bool:
        """True if times with it are about as near as the kernels are known."""
        return self.off < NEAR


@dataclass(frozen=True, slots=True)
class ExpertLog:
    """A log beside the model."""

    log: MoeLog
    ranks: int
    nodes: int
    result: MoeResult
    rows: tuple[ExpertRow, ...]
    notes: tuple[str, ...]
    causes: tuple[ExpertCause, ...] = ()

    @property
    def verdict(self) -> str:
        """``faulty`` if a phase, or both in a log of nothing else, is slower than nine of ten, else ``healthy``."""
        phases = [row for row in self.rows if row.op != "both"] or list(self.rows)
        return "faulty" if any(row.verdict == "slower" for row in phases) else "healthy"
