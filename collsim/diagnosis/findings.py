"""Findings of a diagnosis: plain data that reports can show; the document of schema ``collsim.diagnose/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collsim.calibration.health import FLOOR_S
from collsim.calibration.verdicts import CheckedLog, JudgedCase
from collsim.core.methods import telling_arguments

__all__ = ["Curve", "DiagnosedLog", "Diagnosis", "Evidence", "Finding", "Flagged", "SizeRange", "Suspect"]

SCHEMA = "collsim.diagnose/1"
MOST_TOLD = 4
"""Causes of a class that are named to people: who has to check more of them learns nothing from a class."""
VERDICTS = ("healthy", "doubtful", "faulty", "fast", "broken")


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Neighbouring sizes of a log, judged together.

    Attributes
    ----------
    least_bytes, most_bytes : int
    ratio : float
        Measured over predicted time, the weighted mean.
    p_value : float
        Part of healthy machines that would be as far off.
    verdict : str
        ``healthy``, ``slower`` or ``faster``.
    """

    least_bytes: int
    most_bytes: int
    ratio: float
    p_value: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Times of a cause at the sizes of a log, in seconds, and how well they fit."""

    name: str
    label: str
    times_s: tuple[float, ...]
    rms: float
    chi2: float
    score: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a log says beside its rows: *causes* that it speaks for or, where *weight* is negative, against."""

    file: str
    line: int
    text: str
    means: str
    causes: tuple[str, ...]
    weight: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON schema wants it."""
        names = ("file", "line", "text", "means", "weight")
        return {name: getattr(self, name) for name in names} | {"causes": list(self.causes)}


@dataclass(frozen=True, slots=True)
class Suspect:
    """A cause of a class: what it is, how it would be told from the others, and what would fix it."""

    name: str
    title: str
    degree: str
    flags: str
    measure: str
    fix: str
    source: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Causes whose curves no row of the logs tells apart.

    Attributes
    ----------
    suspects : tuple of Suspect
        The most probable first.
    rms, chi2, score : float
        Fit of the first, over all logs.
    probability : float
        Share of the likelihood of all classes, the healthy machine among them.
    fits : bool
        A machine with the cause would be as far off more than once in a thousand times, and *rms* is at most a half.
    """

    suspects: tuple[Suspect, ...]
    rms: float
    chi2: float
    score: float
    probability: float
    fits: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the causes."""
        return tuple(suspect.name for suspect in self.suspects)

    @property
    def told(self) -> tuple[Suspect, ...]:
        """The causes that are named to people, at most four."""
        return self.suspects[:MOST_TOLD]


@dataclass(frozen=True, slots=True)
class Flagged:
    """A row that no interval excuses: its results are wrong, or its time is below what is possible.

    Attributes
    ----------
    line : int
    size_bytes : int
    measured_s, least_s : float
        The fastest of its repeats, and what no time is below.
    bound : str
        Where *least_s* comes from.
    wrong : float or None
        Values that are wrong, if they were checked.
    flags : tuple of str
        As of `collsim.calibration.verdicts.FLAGS`.
    """

    line: int
    size_bytes: int
    measured_s: float
    least_s: float
    bound: str
    wrong: float | None
    flags: tuple[str, ...]

    @property
    def share(self) -> float:
        """Measured time over the least that is possible."""
        return self.measured_s / self.least_s

    @property
    def impossible(self) -> bool:
        """Whether the time is below what is possible."""
        return any(flag.startswith("below") for flag in self.flags)


def _flagged(row: JudgedCase) -> Flagged:
    by_floor = row.lower_bound_s < FLOOR_S
    bound = "no collective is over sooner" if by_floor else row.bound
    least_s = max(row.lower_bound_s, FLOOR_S)
    return Flagged(row.line, row.case.size_bytes, row.fastest_s, least_s, bound, row.wrong, row.flags)


@dataclass(frozen=True, slots=True)
class DiagnosedLog:
    """A log: its ranges of sizes, the healthy curve and those of the causes that were found.

    Sizes, times and ranges are empty where none of its times is possible.
    """

    log: CheckedLog
    verdict: str
    p_value: float
    ranges: tuple[SizeRange, ...]
    sizes: tuple[int, ...]
    measured_s: tuple[float, ...]
    healthy: Curve
    low_s: tuple[float, ...]
    high_s: tuple[float, ...]
    curves: tuple[Curve, ...]

    @property
    def flagged(self) -> list[Flagged]:
        """Rows with wrong results or an impossible time, the time that is farthest below its bound first."""
        return sorted((_flagged(row) for row in self.log.rows if row.flags), key=lambda row: row.share)

    def to_dict(self) -> dict[str, Any]:
        """Return the log as the JSON schema wants it."""
        return {
            "file": self.log.file,
            "line": self.log.line,
            "op": self.log.case.op,
            "ranks": self.log.case.ranks,
            "nodes": self.log.case.nodes,
            "hosts": list(self.log.hosts),
            "verdict": self.verdict,
            "p_value": self.p_value,
            "ranges": [
                {name: getattr(part, name) for name in ("least_bytes", "most_bytes", "ratio", "p_value", "verdict")}
                for part in self.ranges
            ],
            "sizes_bytes": list(self.sizes),
            "measured_s": list(self.measured_s),
            "healthy_s": list(self.healthy.times_s),
            "healthy_lo_s": list(self.low_s),
            "healthy_hi_s": list(self.high_s),
            "curves": [_plain(curve) | {"times_s": list(curve.times_s)} for curve in (self.healthy, *self.curves)],
            "flagged": [asdict(row) | {"flags": list(row.flags)} for row in self.flagged],
            "notes": list(self.log.notes),
        }


def _plain(curve: Curve) -> dict[str, Any]:
    return {name: getattr(curve, name) for name in ("name", "label", "rms", "chi2", "score")}


@telling_arguments
@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Logs of one machine, the verdict on each, and the causes that explain them.

    Attributes
    ----------
    version : str
    topology, profile : mapping
        As in a `collsim.Result`.
    logs : tuple of DiagnosedLog
    findings : tuple of Finding
        Best first; only those whose curves fit better than the healthy one.
    unexplained : bool
        Some log is faulty, and the best cause does not fit.
    looked_at : tuple of str
        Names of the causes that were simulated.
    evidence : tuple of Evidence
    remarks : tuple of str
        What the logs say together: the host that slow pairs share, results that are wrong.
    skipped, warnings : tuple of str
    said : str
        As of `collsim.Validation`.
    """

    version: str
    topology: Mapping[str, Any]
    profile: Mapping[str, Any]
    logs: tuple[DiagnosedLog, ...]
    findings: tuple[Finding, ...]
    unexplained: bool
    looked_at: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()
    remarks: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    said: str = ""

    @property
    def verdict(self) -> str:
        """The worst verdict of all logs, one of `VERDICTS`."""
        for verdict in ("broken", "faulty", "doubtful", "fast"):
            if any(log.verdict == verdict for log in self.logs):
                return verdict
        return "healthy"

    def rank_of(self, *names: str) -> int | None:
        """Return the place of the first class with one of some causes, 1 for the best; None if it is not there."""
        places = (place for place, found in enumerate(self.findings, 1) if set(names) & set(found.names))
        return next(places, None)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.diagnose/1``: SI units, unit in the key."""
        return {
            "schema": SCHEMA,
            "collsim": self.version,
            "topology": dict(self.topology),
            "profile": dict(self.profile),
            "said": self.said,
            "verdict": self.verdict,
            "unexplained": self.unexplained,
            "findings": [_finding(found) for found in self.findings],
            "logs": [log.to_dict() for log in self.logs],
            "evidence": [entry.to_dict() for entry in self.evidence],
            "remarks": list(self.remarks),
            "looked_at": list(self.looked_at),
            "skipped": list(self.skipped),
            "warnings": list(self.warnings),
        }


def _finding(found: Finding) -> dict[str, Any]:
    names = ("name", "title", "degree", "flags", "measure", "fix", "source")
    suspects = [
        {name: getattr(suspect, name) for name in names} | {"evidence": list(suspect.evidence)}
        for suspect in found.suspects
    ]
    figures = {name: getattr(found, name) for name in ("rms", "chi2", "score", "probability", "fits")}
    return {"causes": suspects, **figures}
