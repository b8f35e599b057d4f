"""A comparison of logs with the model, as a table for people, as csv and as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from collsim.calibration.verdicts import CheckedLog, Compared, Validation
from collsim.core.operations import operation
from collsim.report.data import json_text
from collsim.report.nccl import time_text
from collsim.report.table import preamble, wrapped

__all__ = ["validation_csv", "validation_json", "validation_table"]

COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("size", "(B)", 11),
    ("type", "", 6),
    ("redop", "", 5),
    ("root", "", 4),
    ("algo", "", 6),
    ("measured", "(us)", 9),
    ("predicted", "(us)", 9),
    ("low", "(us)", 8),
    ("high", "(us)", 8),
    ("error", "(%)", 6),
)
"""Name, unit and least width; a column grows with its longest cell."""


def validation_table(validation: Validation) -> str:
    """Return one block per log, its health below its rows, and the summary; whatever is not data starts with ``#``."""
    lines = preamble(validation.version, validation.topology, validation.profile)
    text = [f"# {line}" for told in lines for line in wrapped(told)]
    widths = _widths(list(validation.rows))
    for log in validation.logs:
        text += ["#", *_block(log, widths)]
    text.append("#")
    text += [f"# {line}" for told in _closing(validation) for line in wrapped(told)]
    return "\n".join(line.rstrip() for line in text) + "\n"


def validation_json(validation: Validation) -> str:
    """Return the document of schema ``collsim.validate/1``."""
    return json_text(validation.to_dict())


def validation_csv(validation: Validation) -> str:
    """Return a header and one line per row, SI, with the topology and the profile in front."""
    common = {
        "topology": validation.topology["name"],
        "profile": validation.profile["name"],
        "calibrated": str(validation.profile["calibrated"]).lower(),
    }
    records = [
        {**common, **record, "flags": "; ".join(record["flags"])}
        for record in validation.to_records()
    ]  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _block(log: CheckedLog, widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one log."""
    case = log.case
    launch = case.launch + (", registered buffers" if case.registered else "")
    library = f"   as {case.library} chooses" if case.library else ""
    settings = "".join(f", {name}={value}" for name, value in case.environment)
    yield f"# {log.file}:{log.line}" if log.line else f"# {log.file}"
    groups = "" if case.groups is None else f"   groups {case.all_ranks // case.ranks}"
    yield f"# op {case.op}   ranks {case.ranks}{groups}   launch {launch}{library}{settings}"
    yield from (f"# {line}" for line in wrapped(log.mapping))
    for texts in zip(*((name, unit) for name, unit, _ in COLUMNS), strict=True):
        verdict = "  verdict" if texts[0] == "size" else ""
        yield f"#{_aligned(texts, widths)[1:]}{verdict}"
    for row in log.rows:
        yield f"{_aligned(_cells(row), widths)}  {_verdict(row)}"
    for sentence in log.health:
        yield from (f"# {line}" for line in wrapped(sentence))
    for note in log.notes:
        yield from (f"# note: {line}" for line in wrapped(note))


def _cells(row: Compared) -> list[str]:
    case, op = row.case, operation(row.case.op)
    ends = ("-" if end_s is None else time_text(end_s) for end_s in (row.time_lo_s, row.time_hi_s))
    return [
        str(case.size_bytes),
        case.dtype,
        case.redop if op.reduces else "none",
        str(case.root if op.rooted else -1),
        row.algo if row.proto is None else f"{row.algo}/{row.proto}",
        time_text(row.measured_s),
        time_text(row.predicted_s),
        *ends,
        f"{row.rel_error * 100:+.1f}",
    ]


def _verdict(row: Compared) -> str:
    """Return the verdict, both if results are wrong and the time is impossible, and how many repeats there are."""
    both = row.verdict == "wrong" and len(row.flags) > 1
    verdict = "wrong, impossible" if both else row.verdict
    return verdict + (f" (median of {row.repeats})" if row.repeats > 1 else "")


def _closing(validation: Validation) -> Iterator[str]:
    """Yield what was skipped or dropped, how well the model met the rest, and what the verdicts mean."""
    yield from (f"skipped {skip}" for skip in validation.skipped)
    yield from (f"note: {unread}" for unread in validation.dropped)
    summary = validation.summary
    if summary["n"]:
        coverage = summary["coverage"]
        yield (
            f"rows {summary['n']}   abs error median {summary['median_abs_rel_error']:.1%}, p90 "
            f"{summary['p90_abs_rel_error']:.1%}   bias {summary['bias']:+.1%}   "
            f"in the interval {'-' if coverage is None else f'{coverage:.0%}'}"
        )
    failed = f"failed tests {summary['failed']}   " if summary["failed"] else ""
    yield f"outside {summary['outside']}   flagged {summary['flagged']}   {failed}skipped {summary['skipped']}"
    if any(row.covered is None for row in validation.rows):
        yield (
            f"without an interval, inside means that the times differ by a factor of at most "
            f"{1 + validation.tolerance:g}: a tolerance, no calibrated interval"
        )


def _widths(rows: Sequence[Compared]) -> list[int]:
    """Return the width of each column: its least, or its longest cell."""
    columns = zip(*map(_cells, rows), strict=True)
    return [max(least, *map(len, cells)) for (_, _, least), cells in zip(COLUMNS, columns, strict=True)]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
