"""Health of a log: a verdict for every row, and for every range of sizes a sentence.

A row is judged by the interval of its prediction; without one by a margin, which no measurement has calibrated.
Wrong results and times that the wires rule out are flagged whatever the interval says. Causes are not guessed.
This module imports only `verdicts`, `operations` and `units`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median

from collsim.calibration.verdicts import JudgedCase
from collsim.core.operations import operation
from collsim.core.units import format_size, format_time

__all__ = ["MARGIN", "health_of", "impossible_flags", "judged", "limits_s"]

MARGIN = 0.25
"""Share by which measured and predicted time may differ where there is no interval. Chosen, not calibrated: above what
the model itself errs by on most unseen logs of 1 MiB and more, and below what a lost link or a clock limit costs."""
BOUND_SLACK = 0.01
"""A time is impossible if it is this far below the lower bound: logs print four digits, or hundredths of a us."""
FLOOR_S = 1e-6
"""No collective is over sooner, whatever its size. Chosen, not measured: a sixth of the fastest row of the public logs,
6.0 us by graph launches on MI300X."""
BANDWIDTH_FROM_BYTES = 2**20
"""A range whose middle row has this size is described by bus bandwidth, one of smaller rows by time."""
TIMES = 2.0
"""From this ratio on a time is described as a multiple."""


def judged(row: JudgedCase, margin: float = MARGIN) -> JudgedCase:
    """Return *row* with its verdict and flags."""
    flags = ["wrong_results"] if row.wrong else []
    flags += impossible_flags(row.fastest_s, row.lower_bound_s)
    verdict = "wrong" if row.wrong else "impossible" if flags else _verdict(row, margin)
    return replace(row, verdict=verdict, flags=tuple(flags))


def impossible_flags(time_s: float, lower_bound_s: float) -> list[str]:
    """Return which physical limits a measured time breaks.

    >>> impossible_flags(3e-7, 1e-5), impossible_flags(9.95e-6, 1e-5)
    (['below_bound', 'below_floor'], [])
    """
    limits_s = {"below_bound": lower_bound_s * (1 - BOUND_SLACK), "below_floor": FLOOR_S}
    return [flag for flag, limit_s in limits_s.items() if time_s < limit_s]


def _verdict(row: JudgedCase, margin: float) -> str:
    lowest_s, highest_s = limits_s(row, margin)
    return "slower" if row.measured_s > highest_s else "faster" if row.measured_s < lowest_s else "inside"


def limits_s(row: JudgedCase, margin: float) -> tuple[float, float]:
    """Return the interval of the prediction, or what stands in for it."""
    lowest_s = row.predicted_s / (1 + margin) if row.time_lo_s is None else row.time_lo_s
    highest_s = row.predicted_s * (1 + margin) if row.time_hi_s is None else row.time_hi_s
    return lowest_s, highest_s


def health_of(rows: Sequence[JudgedCase], system: str, margin: float = MARGIN) -> tuple[str, ...]:
    """Return a sentence for every range of neighbouring sizes with one verdict; *rows* are judged and by size.

    Rows of several types, reductions or roots follow each other, and each kind has sentences of its own.
    """
    kinds = [(kind, list(part)) for kind, part in groupby(rows, key=_kind)]
    return tuple(
        (f"{kind}: " if len(kinds) > 1 else "") + sentence
        for kind, part in kinds
        for sentence in _sentences(part, system, margin)
    )


def _kind(row: JudgedCase) -> str:
    case, op = row.case, operation(row.case.op)
    words = (case.dtype, case.redop if op.reduces else "", f"root {case.root}" if op.rooted else "")
    return " ".join(word for word in words if word)


def _sentences(rows: Sequence[JudgedCase], system: str, margin: float) -> Iterator[str]:
    """Yield what rows of one kind say: each range, then single repeats that the median hides."""
    for _, part in groupby(rows, key=lambda row: (row.verdict, row.covered is None)):
        yield _sentence(list(part), system, margin)
    for row in rows:
        if row.verdict == "inside" and row.slowest_s > limits_s(row, margin)[1]:
            slowest = f"the slowest of {row.repeats} repeats at {format_size(row.case.size_bytes)}"
            yield f"{slowest}: time {_apart(row.slowest_s / row.predicted_s)}"


def _sentence(rows: Sequence[JudgedCase], system: str, margin: float) -> str:
    """Return the verdict on a range of sizes as a sentence."""
    where, verdict = _sizes_text(rows[0].case.size_bytes, rows[-1].case.size_bytes), rows[0].verdict
    if verdict == "wrong":
        return f"results {where} are wrong, in up to {max(row.wrong or 0 for row in rows):g} values"
    if verdict == "impossible":
        bounded = [row for row in rows if "below_bound" in row.flags]
        if not bounded:
            return f"time {where} is impossible: no collective takes less than {format_time(FLOOR_S)}"
        least = min(row.fastest_s / row.lower_bound_s for row in bounded) * 100
        kind = "latency" if all(row.bound == "latency" for row in bounded) else "line rate"
        return f"time {where} is impossible on {system}: down to {least:.0f} % of what the {kind} of its links allows"
    limits = f"a factor of {1 + margin:g} (margin)" if rows[0].covered is None else "the 90 % interval"
    side = "inside" if verdict == "inside" else "outside"
    return f"{_difference(rows, where)}, {side} {limits}{_width(rows, margin) if side == 'inside' else ''}"


def _width(rows: Sequence[JudgedCase], margin: float) -> str:
    """Return a clause with the width of the interval, if it excuses what the margin would not; empty otherwise."""
    ratio = median(row.measured_s / row.predicted_s for row in rows)
    ends = [(row.time_lo_s, row.time_hi_s, row.predicted_s) for row in rows if row.time_lo_s and row.time_hi_s]
    if not ends or 1 / (1 + margin) <= ratio <= 1 + margin:
        return ""
    least, most = min(low / time for low, _, time in ends), max(high / time for _, high, time in ends)
    return f", which is wide here: from {least:.2g} to {most:.2g} times the predicted time"


def _difference(rows: Sequence[JudgedCase], where: str) -> str:
    """Return a clause with the deviation of measured bandwidths or times from the model, the median of the range."""
    ratio = median(row.measured_s / row.predicted_s for row in rows)
    if rows[len(rows) // 2].case.size_bytes >= BANDWIDTH_FROM_BYTES:
        return f"busbw {where} {_apart(1 / ratio)}"
    return f"time {where} {_apart(ratio)}"


def _apart(ratio: float) -> str:
    """Return a clause on a figure whose *ratio* is measured over predicted.

    >>> _apart(0.62), _apart(1.004), _apart(3.14)
    ('is 38 % below the model', 'agrees with the model', 'is 3.1 times that of the model')
    """
    if ratio >= TIMES:
        return f"is {ratio:.2g} times that of the model"
    percent = round(abs(ratio - 1) * 100)
    if not percent:
        return "agrees with the model"
    return f"is {percent} % {'above' if ratio > 1 else 'below'} the model"


def _sizes_text(first: int, last: int) -> str:
    """Return a range of sizes in words.

    >>> _sizes_text(8, 2**30), _sizes_text(2**20, 2**20)
    ('from 8 B to 1 GiB', 'at 1 MiB')
    """
    return f"at {format_size(first)}" if first == last else f"from {format_size(first)} to {format_size(last)}"
