"""Findings of a fit, as text for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from collsim._version import __version__
from collsim.calibration.advice import measurements_for
from collsim.calibration.findings import Calibration, Constant, Residual
from collsim.core.units import format_count
from collsim.library import band_of
from collsim.report.sheet import Column, T, document, fitted, heads, line_of, wrapped

__all__ = ["BAND_NAMES", "calibration_table"]

BAND_NAMES = {"small": "< 64 KiB", "middle": "64 KiB to 1 MiB", "large": "1 to 32 MiB", "bulk": ">= 32 MiB"}
MOST_SKIPPED = 10
MOST_COMMANDS = 6
"""So many measurements one can take in an afternoon (chosen)."""


def calibration_table(calibration: Calibration) -> str:
    """Return constants, what was not identified, and errors; whatever is not data starts with ``#``."""
    told = [*_preamble(calibration), "", *_constants(calibration.constants)]
    told += ["", *_errors(calibration.residuals), "", *_advice(calibration)]
    return document(told)


def _preamble(calibration: Calibration) -> Iterator[str]:
    residuals, profile = calibration.residuals, calibration.profile
    logs = len({entry.file for entry in residuals})
    rows_of = f"{format_count(len(residuals), 'row')} of {format_count(logs, 'log')}"
    told = ", ".join(filter(None, (rows_of, profile.library)))
    yield f"# collsim {__version__}   profile {profile.name}: {told}"
    yield f"# the fit starts from profile {calibration.start}; constants that are not listed are as there"
    if not all(constant.identified for constant in calibration.constants):
        yield "# not identified: start and logs together made the value, the logs alone do not fix it"
    for why, count in (calibration.left_out or {}).items():
        yield f"# {format_count(count, 'row')} left out: {why}"
    for skip in calibration.skipped[:MOST_SKIPPED]:
        yield f"# skipped {skip}"
    if len(calibration.skipped) > MOST_SKIPPED:
        yield f"# and {len(calibration.skipped) - MOST_SKIPPED} more skipped"
    for note in calibration.notes:
        yield from (f"# note: {line}" for line in wrapped(note))


def _constants(constants: Sequence[Constant]) -> list[str]:
    """Return a line for each constant."""

    def figure(name: str) -> Column[Constant]:
        return Column(name, lambda one: f"{getattr(one, name) / unit_of(one.name)[1]:.4g}", width=9)

    columns: tuple[Column[Constant], ...] = (
        Column("constant", lambda one: one.name),
        Column("launch", lambda one: one.launch, width=10),
        Column("unit", lambda one: unit_of(one.name)[0], width=5),
        *map(figure, ("start", "value", "low", "high")),
        Column("", lambda one: "" if one.identified else "not identified", kind="prose", gap=2),
    )
    return _below_one_head(columns, constants)


def _below_one_head(columns: Iterable[Column[T]], rows: Sequence[T]) -> list[str]:
    shown = fitted(columns, rows)
    return [f"#{heads(shown)[0][1:]}", *(line_of(shown, row) for row in rows)]


def unit_of(name: str) -> tuple[str, float]:
    """Return the unit of a constant and its size in SI."""
    key = name.rpartition(".")[2]
    if key.endswith("_rate"):
        return "GB/s", 1e9
    return ("us", 1e-6) if key.endswith("overhead") or key in ("base", "floor", "turn") else ("1", 1.0)


class _Errors(NamedTuple):
    """Rows of the fit that share way to launch, kernel and band."""

    launch: str
    family: str
    band: str
    rows: list[Residual]


ERRORS: tuple[Column[_Errors], ...] = (
    Column("launch", lambda group: group.launch, width=11),
    Column("kernel", lambda group: group.family, width=9),
    Column("sizes", lambda group: BAND_NAMES[group.band], width=16),
    Column("rows", lambda group: str(len(group.rows)), width=5),
    Column("logs", lambda group: str(len({entry.file for entry in group.rows})), width=5),
    Column("fitted", lambda group: _score([row.predicted_s / row.measured_s for row in group.rows]), width=13),
    Column(
        "left out",
        lambda group: _score([row.left_out_s / row.measured_s for row in group.rows if row.left_out_s]),
        width=13,
    ),
)
"""Errors in percent."""


def _errors(residuals: Sequence[Residual]) -> Iterator[str]:
    """Yield the errors by way to launch, kernel and band: of the fitted rows, and left out in turn."""
    groups: dict[tuple[str, str, str], list[Residual]] = defaultdict(list)
    for entry in residuals:
        groups[entry.launch, entry.family, band_of(entry.size_bytes)].append(entry)
    yield "# errors in percent, median / 90th percentile; left out: predicted without that operation and ranks"
    bands = list(BAND_NAMES)
    ordered = sorted(groups, key=lambda key: (key[:2], bands.index(key[2])))
    yield from _below_one_head(ERRORS, [_Errors(*key, groups[key]) for key in ordered])
    if any(entry.left_out_s is None for entry in residuals):
        yield "# left out -: nothing else tells of these rows, and their own errors make no interval"


def _score(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    median, p90 = np.quantile(np.abs(np.array(ratios) - 1), [0.5, 0.9]) * 100
    return f"{median:.1f} / {p90:.1f}"


def _advice(calibration: Calibration) -> Iterator[str]:
    """Yield which measurement would tell what, the most useful first, and what such measurements did not tell."""
    found = measurements_for(calibration)
    if not found.commands and not found.measured:
        yield "# every constant is identified"
        return
    if found.commands:
        yield "# not identified by these logs; these measurements would tell:"
    shown = sorted(found.commands.items(), key=lambda entry: -len(entry[1]))
    for command, names in shown[:MOST_COMMANDS]:
        yield f"#   {command}"
        yield from (f"#       {line}" for line in wrapped(", ".join(dict.fromkeys(names))))
    if len(shown) > MOST_COMMANDS:
        untold = sum(len(names) for _, names in shown[MOST_COMMANDS:])
        rest = format_count(len(shown) - MOST_COMMANDS, "more measurement")
        yield f"#   and {rest}, for {format_count(untold, 'constant')}"
    if found.measured:
        yield "# not identified though the logs hold the measurements for it, which do not tell these constants apart:"
        yield from (f"#       {line}" for line in wrapped(", ".join(dict.fromkeys(found.measured))))
