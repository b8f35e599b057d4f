"""What a fit found: plain data that reports can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collsim.calibration.cases import Skipped
from collsim.library import Profile

__all__ = ["Calibration", "Constant", "Residual"]


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


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a fit found, and what it could not find.

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
    """

    profile: Profile
    start: str
    constants: tuple[Constant, ...]
    residuals: tuple[Residual, ...]
    skipped: tuple[Skipped, ...] = ()
    left_out: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    over_nodes: bool = False
