"""Verdicts on logs beside the model: rows, logs, summary; the document of schema ``collsim.validate/1``.

This module imports only the cases, the types of the log reader, `operations` and `result`: reports read it without
knowing how a prediction is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collsim.calibration.cases import MeasuredCase, Skipped
from collsim.calibration.logs.log_types import Dropped
from collsim.calibration.logs.printed_rows import Choice
from collsim.core.errors import Fault, InputError
from collsim.core.old_names import old_name
from collsim.core.operations import operation
from collsim.core.tabular import Tabular
from collsim.simulation.busbw_plot import Curve, draw
from collsim.simulation.row import LinkLoad, TierLoad

__all__ = ["FLAGS", "VERDICTS", "CheckedLog", "JudgedCase", "RefusedCase", "Unread", "Validation"]

SCHEMA = "collsim.validate/1"
VERDICTS = ("inside", "slower", "faster", "impossible", "wrong")
"""Of a row: inside interval or margin, slower or faster than that, below what is possible, with wrong results."""
FLAGS = ("wrong_results", "below_bound", "below_floor")
"""Flags of a row that no interval excuses: wrong results, and times below what is possible."""


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A measured case beside its prediction; times in seconds.

    Attributes
    ----------
    case : MeasuredCase
    line : int
        Where its first row begins.
    repeats : int
        Rows of the log with this case; *measured_s* is their median, *fastest_s* and *slowest_s* the extremes.
    predicted_s, time_lo_s, time_hi_s : float
        Ends of the interval are None where the profile has none.
    lower_bound_s, bound : float, str
        No algorithm is faster at line rate, and where that comes from.
    algo, proto, channels : str, str or None, int
        What the model ran.
    logged : Choice or None
        What the library ran, where its log says it.
    limited_by, bottleneck, tiers, algo_bound_s : str, tuple of LinkLoad, tuple of TierLoad, float
        What limits the prediction, its busiest links, what it puts on wires and the bound of its algorithm, as of
        `collsim.Result`.
    wide_because : str
        Why the interval is wide, if it is.
    wrong : float or None
        Most wrong values in a repeat; None if nothing was checked.
    verdict : str
        One of `VERDICTS`.
    flags : tuple of str
        Of `FLAGS`.
    """

    case: MeasuredCase
    line: int
    repeats: int
    measured_s: float
    fastest_s: float
    slowest_s: float
    predicted_s: float
    time_lo_s: float | None
    time_hi_s: float | None
    lower_bound_s: float
    bound: str
    algo: str
    proto: str | None
    wrong: float | None
    verdict: str = "inside"
    flags: tuple[str, ...] = ()
    channels: int = 0
    logged: Choice | None = None
    limited_by: str = ""
    bottleneck: tuple[LinkLoad, ...] = ()
    tiers: tuple[TierLoad, ...] = ()
    algo_bound_s: float = 0.0
    wide_because: str = ""

    @property
    def rel_error(self) -> float:
        """Predicted over measured, less 1: negative where the log is slower than the model."""
        return self.predicted_s / self.measured_s - 1

    @property
    def measured_busbw_Bps(self) -> float:
        """Bus bandwidth of the log."""
        return self._factor() * self.case.size_bytes / self.measured_s

    @property
    def predicted_busbw_Bps(self) -> float:
        """Bus bandwidth of the model."""
        return self._factor() * self.case.size_bytes / self.predicted_s

    def _factor(self) -> float:
        return operation(self.case.op).busbw_factor(self.case.ranks)

    @property
    def covered(self) -> bool | None:
        """True if the interval holds the measured time; None without an interval."""
        if self.time_lo_s is None or self.time_hi_s is None:
            return None
        return self.time_lo_s <= self.measured_s <= self.time_hi_s

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the JSON schema wants it, but for the file."""
        case, logged = self.case, self.logged or Choice(None, None, None)
        return {
            "line": self.line,
            "op": case.op,
            "ranks": case.ranks,
            "size_bytes": case.size_bytes,
            "dtype": case.dtype,
            "redop": case.redop if operation(case.op).reduces else "none",
            "root": case.root if operation(case.op).rooted else -1,
            "launch": case.launch,
            "registered": case.registered,
            "library": case.library,
            "algo": self.algo,
            "proto": self.proto,
            "repeats": self.repeats,
            "measured_s": self.measured_s,
            "fastest_s": self.fastest_s,
            "slowest_s": self.slowest_s,
            "measured_busbw_Bps": self.measured_busbw_Bps,
            "predicted_s": self.predicted_s,
            "predicted_busbw_Bps": self.predicted_busbw_Bps,
            "time_lo_s": self.time_lo_s,
            "time_hi_s": self.time_hi_s,
            "rel_error": self.rel_error,
            "lower_bound_s": self.lower_bound_s,
            "limited_by": self.limited_by,
            "wrong": self.wrong,
            "verdict": self.verdict,
            "flags": list(self.flags),
            "channels": self.channels,
            "logged_algo": logged.algo,
            "logged_proto": logged.proto,
            "logged_channels": logged.channels,
        }


@dataclass(frozen=True, slots=True)
class RefusedCase:
    """A measured case that the model has no answer for: its first *line*, its median time, and *what* is wrong."""

    case: MeasuredCase
    line: int
    measured_s: float
    what: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON schema wants it, but for the file."""
        case = self.case
        return {
            "line": self.line,
            "op": case.op,
            "ranks": case.ranks,
            "size_bytes": case.size_bytes,
            "measured_s": self.measured_s,
            "what": self.what,
        }


@dataclass(frozen=True, slots=True)
class Unread:
    """Parts of a file that the reader dropped.

    Attributes
    ----------
    file : str
    count : int
        Lines, or halves of rows; rows of zero bytes do not count.
    first : tuple of Dropped
        The first of them.
    """

    file: str
    count: int
    first: tuple[Dropped, ...]

    def __str__(self) -> str:
        shown = "; ".join(f"line {drop.line}: {drop.reason}" for drop in self.first)
        more = f"; and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return f"{self.file}: rows, or halves of rows, that are not taken: {self.count}; {shown}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON schema wants it."""
        first = [{"line": drop.line, "reason": drop.reason} for drop in self.first]
        return {"file": self.file, "count": self.count, "first": first}


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """The rows of one test, or of all tests of a file that were run alike on the same hosts.

    Attributes
    ----------
    file : str
    line : int
        First line of the first of them.
    case : MeasuredCase
        What the rows share; its size is 0.
    hosts : tuple of str
    mapping : str
        Where on the topology the ranks are taken to be, in words.
    rows : tuple of JudgedCase
        By size.
    health : tuple of str
        What the rows say, by range of sizes.
    notes : tuple of str
        What to know before trusting the comparison.
    failed : bool
        The log says that one of the tests failed.
    refused : tuple of RefusedCase
        Rows of the log that the model has no answer for, by size.
    library_version : str or None
        Of the library, as the log has it.
    """

    file: str
    line: int
    case: MeasuredCase
    hosts: tuple[str, ...]
    mapping: str
    rows: tuple[JudgedCase, ...]
    health: tuple[str, ...]
    notes: tuple[str, ...]
    failed: bool = False
    refused: tuple[RefusedCase, ...] = ()
    library_version: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the log as the JSON schema wants it; its rows are elsewhere."""
        case = self.case
        return {
            "file": self.file,
            "line": self.line,
            "op": case.op,
            "ranks": case.ranks,
            "nodes": case.nodes,
            "hosts": list(self.hosts),
            "mapping": self.mapping,
            "launch": case.launch,
            "registered": case.registered,
            "library": case.library,
            "environment": dict(case.environment),
            "n_rows": len(self.rows),
            "failed": self.failed,
            "health": list(self.health),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, repr=False)
class Validation(Tabular):
    """Logs beside the model.

    Attributes
    ----------
    version : str
    topology, profile : mapping
        As in a `collsim.Result`.
    margin : float
        What stands in for an interval where there is none: a row is inside if measured and predicted time differ by a
        factor of at most 1 + margin. It is no calibrated interval.
    logs : tuple of CheckedLog
    skipped : tuple of Skipped
    dropped : tuple of Unread
        One for each file of which the reader dropped something.
    warnings : tuple of str
    said : str
        What the logs say of the machine that no caller said, such as how many nodes there were; empty if nothing.
    """

    version: str
    topology: Mapping[str, Any]
    profile: Mapping[str, Any]
    margin: float
    logs: tuple[CheckedLog, ...]
    skipped: tuple[Skipped, ...] = ()
    dropped: tuple[Unread, ...] = ()
    warnings: tuple[str, ...] = ()
    said: str = ""

    tolerance = old_name("tolerance", "margin")

    def __iter__(self) -> Iterator[JudgedCase]:
        return self.rows

    def __len__(self) -> int:
        return sum(len(log.rows) for log in self.logs)

    @property
    def rows(self) -> Iterator[JudgedCase]:
        """The rows of all logs."""
        return (row for log in self.logs for row in log.rows)

    @property
    def flagged(self) -> int:
        """Number of rows that have wrong results or are faster than the wires allow."""
        return sum(bool(row.flags) for row in self.rows)

    @property
    def refused(self) -> list[tuple[str, RefusedCase]]:
        """Rows that the model has no answer for, each with its file."""
        return [(log.file, each) for log in self.logs for each in log.refused]

    @property
    def failed(self) -> int:
        """Number of logs that say that their test failed."""
        return sum(log.failed for log in self.logs)

    @property
    def outside(self) -> int:
        """Number of rows without a flag that are outside the interval, or the margin where there is none."""
        return sum(not row.flags and row.verdict != "inside" for row in self.rows)

    def below(self, least_Bps: float) -> list[tuple[CheckedLog, float]]:
        """Return the logs whose best row has less bus bandwidth than *least_Bps*, with what it has, in bytes/s.

        Raises
        ------
        InputError
            *least_Bps* is not a number of bytes/s above 0.
        """
        if isinstance(least_Bps, bool) or not isinstance(least_Bps, int | float) or not 0 < least_Bps < math.inf:
            raise InputError(Fault(f"{least_Bps!r} is no rate", "least_Bps", "give bytes/s, such as 350e9"))
        best = [(log, max(row.measured_busbw_Bps for row in log.rows)) for log in self.logs if log.rows]
        return [(log, best_Bps) for log, best_Bps in best if best_Bps < least_Bps]

    @property
    def summary(self) -> dict[str, Any]:
        """Errors and coverage of the model over rows without a flag; counts of flagged, failed, outside and skipped."""
        rows = [row for row in self.rows if not row.flags]
        covered = [row.covered for row in rows if row.covered is not None]
        counts = {"flagged": self.flagged, "failed": self.failed, "outside": self.outside}
        counts |= {"skipped": len(self.skipped), "refused": len(self.refused)}
        return {"n": len(rows), **_errors([row.rel_error for row in rows]), "coverage": _mean(covered), **counts}

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.validate/1``: SI units, unit in the key."""
        return {
            "schema": SCHEMA,
            "collsim": self.version,
            "topology": dict(self.topology),
            "profile": dict(self.profile),
            "tolerance": self.margin,
            "said": self.said,
            "logs": [log.to_dict() for log in self.logs],
            "rows": [row for _, row in self._filed()],
            "refused": [{"file": file, **each.to_dict()} for file, each in self.refused],
            "summary": self.summary,
            "skipped": [{"file": skip.file, "line": skip.line, "reason": skip.reason} for skip in self.skipped],
            "dropped": [unread.to_dict() for unread in self.dropped],
            "warnings": list(self.warnings),
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows, each with topology and profile and with its file."""
        return [{**self._common(), **row} for _, row in self._filed()]

    def _common(self) -> dict[str, Any]:
        """Return the names of what the logs are compared with."""
        return {
            "topology": self.topology["name"],
            "profile": self.profile["name"],
            "calibrated": self.profile["calibrated"],
        }

    def _filed(self) -> list[tuple[JudgedCase, dict[str, Any]]]:
        """Every row, and the same as plain data with its file."""
        return [(row, {"file": log.file, **row.to_dict()}) for log in self.logs for row in log.rows]

    def _csv_records(self) -> list[dict[str, Any]]:
        # this one truth is in capitals, since the first version of the sheet
        return [{**record, "registered": str(record["registered"])} for record in self.to_records()]

    def _refused_records(self) -> list[dict[str, Any]]:
        refused = [(file, {**each.to_dict()}) for file, each in self.refused]
        return [{**self._common(), "file": file, "refused": each.pop("what"), **each} for file, each in refused]

    def plot(self, ax: Any = None) -> Any:
        """Draw measured bus bandwidth over size beside the prediction, its interval and the bound; returns the axes.

        Raises
        ------
        ImportError
            matplotlib is not installed; ``pip install 'collsim[plot]'`` brings it.
        """
        points = [(row.case.size_bytes, row.measured_busbw_Bps) for row in self.rows]
        return draw([_curve(log) for log in self.logs], points, self._caption(), ax)

    def _caption(self) -> str:
        calibrated = "yes" if self.profile["calibrated"] else "no"
        return f"{self.topology['name']}, profile {self.profile['name']}, calibrated: {calibrated}"

    def _shown(self) -> list[dict[str, str]]:
        return [
            {
                "file": record["file"],
                "op": row.case.op,
                "ranks": str(row.case.ranks),
                "size (B)": str(row.case.size_bytes),
                "algo": row.algo if row.proto is None else f"{row.algo}/{row.proto}",
                "measured (us)": f"{row.measured_s * 1e6:.2f}",
                "predicted (us)": f"{row.predicted_s * 1e6:.2f}",
                "error (%)": f"{row.rel_error * 100:+.1f}",
                "verdict": row.verdict,
            }
            for row, record in self._filed()
        ]


def _curve(log: CheckedLog) -> Curve:
    """Return the prediction of a log as a curve."""
    case = log.case

    def rates(name: str) -> tuple[float | None, ...]:
        times_s = [getattr(row, name) for row in log.rows]
        factor = operation(case.op).busbw_factor(case.ranks)
        sizes = [row.case.size_bytes for row in log.rows]
        return tuple(factor * size / each if each else None for size, each in zip(sizes, times_s, strict=True))

    return Curve(
        f"{case.op}, {case.ranks} ranks",
        tuple(row.case.size_bytes for row in log.rows),
        tuple(row.predicted_busbw_Bps for row in log.rows),
        rates("time_hi_s"),
        rates("time_lo_s"),
        rates("lower_bound_s"),
    )


def _errors(errors: Sequence[float]) -> dict[str, float | None]:
    """Return median and 90th percentile of the absolute errors and the median of the errors; None of nothing."""
    if not errors:
        return {"median_abs_rel_error": None, "p90_abs_rel_error": None, "bias": None}
    import numpy as np

    median, p90 = np.percentile(np.abs(errors), [50, 90])
    return {"median_abs_rel_error": float(median), "p90_abs_rel_error": float(p90), "bias": float(np.median(errors))}


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
