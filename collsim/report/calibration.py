"""What a fit found, as text for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from collsim._version import __version__
from collsim.calibration.advice import measurements_for
from collsim.calibration.findings import Calibration, Constant, Residual
from collsim.core.units import format_count
from collsim.library import band_of
from collsim.report.sheet import wrapped

__all__ = ["BAND_NAMES", "calibration_table"]

BAND_NAMES = {"small": "< 64 KiB", "middle": "64 KiB to 1 MiB", "large": ">= 1 MiB"}
MOST_SKIPPED = 10
MOST_COMMANDS = 6
"""So many measurements one can take in an afternoon (chosen)."""


def calibration_table(calibration: Calibration) -> str:
    """Return constants, what was not identified, and errors; whatever is not data starts with ``#``."""
    told = [*_preamble(calibration), "", *_constants(calibration.constants)]
    told += ["", *_errors(calibration.residuals), "", *_advice(calibration)]
    return "\n".join(line.rstrip() for line in told) + "\n"


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


def _constants(constants: Sequence[Constant]) -> Iterator[str]:
    """Yield a line for each constant."""
    widest = max((len(constant.name) for constant in constants), default=8)
    yield f"#{'constant':>{widest - 1}} {'launch':>10} {'unit':>5} {'start':>9} {'value':>9} {'low':>9} {'high':>9}"
    for constant in constants:
        unit, factor = unit_of(constant.name)
        numbers = (constant.start, constant.value, constant.low, constant.high)
        shown = " ".join(f"{number / factor:>9.4g}" for number in numbers)
        doubt = "" if constant.identified else "  not identified"
        yield f"{constant.name:>{widest}} {constant.launch:>10} {unit:>5} {shown}{doubt}"


def unit_of(name: str) -> tuple[str, float]:
    """Return the unit of a constant and its size in SI."""
    key = name.rpartition(".")[2]
    if key.endswith("_rate"):
        return "GB/s", 1e9
    return ("us", 1e-6) if key.endswith("overhead") or key in ("base", "floor", "turn") else ("1", 1.0)


def _errors(residuals: Sequence[Residual]) -> Iterator[str]:
    """Yield the errors by way to launch, kernel and band: of the fitted rows, and left out in turn."""
    groups: dict[tuple[str, str, str], list[Residual]] = defaultdict(list)
    for entry in residuals:
        groups[entry.launch, entry.family, band_of(entry.size_bytes)].append(entry)
    yield "# errors in percent, median / 90th percentile; left out: predicted without that operation and ranks"
    yield f"#{'launch':>10} {'kernel':>9} {'sizes':>16} {'rows':>5} {'logs':>5} {'fitted':>13} {'left out':>13}"
    bands = list(BAND_NAMES)
    for launch, family, band in sorted(groups, key=lambda key: (key[:2], bands.index(key[2]))):
        entries = groups[launch, family, band]
        logs = len({entry.file for entry in entries})
        fitted = _score([entry.predicted_s / entry.measured_s for entry in entries])
        left_out = _score([entry.left_out_s / entry.measured_s for entry in entries if entry.left_out_s])
        yield (
            f" {launch:>10} {family:>9} {BAND_NAMES[band]:>16} {len(entries):>5} {logs:>5} {fitted:>13} {left_out:>13}"
        )
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
