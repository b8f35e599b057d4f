"""Findings of a fit: plain data that reports can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collsim._version import __version__
from collsim.calibration.cases import Skipped
from collsim.core.tabular import Tabular
from collsim.core.units import format_count
from collsim.library import Profile

__all__ = ["Calibration", "Constant", "Residual", "evidence", "is_told"]

SCHEMA = "collsim.calibrate/1"


@dataclass(frozen=True, slots=True)
class Constant:
    """A fitted constant in SI with the ends of its 90 % interval; *launch* is the way to launch that it holds for.

    Where it is not *identified*, start and logs together made the value: the logs alone do not fix it.
    """

    launch: str
    name: str
    start: float
    value: float
    low: float
    high: float
    identified: bool


@dataclass(frozen=True, slots=True)
class Residual:
    """A row of the fit; *left_out_s* is predicted without the rows of its operation and ranks, None if impossible."""

    file: str
    op: str
    ranks: int
    size_bytes: int
    launch: str
    family: str
    proto: str
    measured_s: float
    predicted_s: float
    left_out_s: float | None
    channels: int | None = None


def is_told(rows: int, constants: Sequence[Constant]) -> bool:
    """Return True if rows say enough of fitted constants: there are more of them, and they fix some."""
    return rows > len(constants) and any(constant.identified for constant in constants)


def evidence(rows: int, constants: Sequence[Constant], start: str) -> str:
    """Return the words of a title on a fit to few rows: how many numbers they fix, and where the others are from.

    >>> evidence(5, [Constant("stream", "ring.Simple.turn", 4e-6, 4e-6, 1e-6, 2e-5, False)], "mi300x_ubb8")
    '; 5 rows fix 0 of 1 free number: the others, and other ranks, are as assumed before (mi300x_ubb8)'
    """
    if is_told(rows, constants):
        return ""
    fixed = sum(constant.identified for constant in constants)
    told = f"{format_count(rows, 'row')} fix {fixed} of {format_count(len(constants), 'free number')}"
    return f"; {told}: the others, and other ranks, are as assumed before ({start})"


@dataclass(frozen=True, slots=True, repr=False)
class Calibration(Tabular):
    """Result of a fit: a profile, and what the logs could not tell; its rows are the constants.

    Attributes
    ----------
    profile : Profile
        Fitted constants; those that no row depends on are as in the profile that the fit started from.
    start : str
        Name of that profile.
    constants : tuple of Constant
    residuals : tuple of Residual
    skipped : tuple of Skipped
        Tests or rows of the logs that cannot be compared.
    left_out : Mapping of str to int
        Why other rows were not fitted, and how many.
    notes : tuple of str
        What was assumed.
    over_nodes : bool
        Whether the constants are those of steps between nodes.
    joint : bool
        Whether one law of many networks was fitted, of which these are the constants of one.
    """

    profile: Profile
    start: str
    constants: tuple[Constant, ...]
    residuals: tuple[Residual, ...]
    skipped: tuple[Skipped, ...] = ()
    left_out: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    over_nodes: bool = False
    joint: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.calibrate/1``: SI units, unit in the key where all have the same."""
        profile = self.profile
        return {
            "schema": SCHEMA,
            "collsim": __version__,
            "profile": {"name": profile.name, "title": profile.title, "library": profile.library or None},
            "start": self.start,
            "over_nodes": self.over_nodes,
            "constants": [asdict(constant) for constant in self.constants],
            "residuals": [asdict(residual) for residual in self.residuals],
            "skipped": [{"file": skip.file, "line": skip.line, "reason": skip.reason} for skip in self.skipped],
            "left_out": dict(self.left_out or {}),
            "notes": list(self.notes),
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record for each constant, with the name of the profile in front."""
        return [{"profile": self.profile.name, **asdict(constant)} for constant in self.constants]

    def _caption(self) -> str:
        return f"profile {self.profile.name}, fitted from {self.start}"

    def _shown(self) -> list[dict[str, str]]:
        return [
            {
                "constant": constant.name,
                "launch": constant.launch,
                **{name: f"{getattr(constant, name):.4g}" for name in ("start", "value", "low", "high")},
                "identified": "yes" if constant.identified else "no",
            }
            for constant in self.constants
        ]
