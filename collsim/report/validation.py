"""Comparison of logs with the model, as a table for people, as csv and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from collsim.calibration.verdicts import CheckedLog, JudgedCase, RefusedCase, Validation
from collsim.core.operations import operation
from collsim.core.tabular import json_text
from collsim.report.nccl import time_text
from collsim.report.sheet import (
    WHOLE,
    Column,
    Screen,
    document,
    fitted,
    fitting,
    heads,
    line_of,
    not_shown,
    with_refused,
    wrapped,
)
from collsim.report.table import preamble
from collsim.report.wires import Wires, wire_columns, wire_notes

__all__ = ["validation_csv", "validation_json", "validation_table"]


def _redop(row: JudgedCase) -> str:
    return row.case.redop if operation(row.case.op).reduces else "none"


def _root(row: JudgedCase) -> str:
    return str(row.case.root if operation(row.case.op).rooted else -1)


def _end(name: str) -> Callable[[JudgedCase], str]:
    """Text of an end of the interval."""

    def text(row: JudgedCase) -> str:
        end_s = getattr(row, name)
        return "-" if end_s is None else time_text(end_s)

    return text


def _verdict(row: JudgedCase) -> str:
    """Verdict, both if results are wrong and the time is impossible, and how many repeats there are."""
    both = row.verdict == "wrong" and len(row.flags) > 1
    verdict = "wrong, impossible" if both else row.verdict
    return verdict + (f" (median of {row.repeats})" if row.repeats > 1 else "")


COLUMNS: tuple[Column[JudgedCase], ...] = (
    Column("size", lambda row: str(row.case.size_bytes), "(B)", 11),
    Column("type", lambda row: row.case.dtype, "", 6),
    Column("redop", _redop, "", 5),
    Column("root", _root, "", 4),
    Column("algo", lambda row: row.algo if row.proto is None else f"{row.algo}/{row.proto}", "", 6),
    Column("measured", lambda row: time_text(row.measured_s), "(us)", 9),
    Column("predicted", lambda row: time_text(row.predicted_s), "(us)", 9),
    Column("low", _end("time_lo_s"), "(us)", 8),
    Column("high", _end("time_hi_s"), "(us)", 8),
    Column("error", lambda row: f"{row.rel_error * 100:+.1f}", "(%)", 6),
    Column("verdict", _verdict, kind="prose", gap=2),
)


DROP = ("root", "redop", "type", "low high", "algo")
"""Columns that go first where a screen is too narrow, in this order."""


def validation_table(validation: Validation, screen: Screen = WHOLE) -> str:
    """Return one block per log, its health below its rows, and the summary; whatever is not data starts with ``#``."""
    lines = screen.head(preamble(validation.version, validation.topology, validation.profile))
    lines += screen.comments(filter(None, [validation.said]))
    entries: list[JudgedCase | RefusedCase] = [*validation.rows, *(refusal for _, refusal in validation.refused)]
    whole = fitted(_both(screen.columns), entries)
    columns = fitting(whole, screen, DROP)
    for log in validation.logs:
        lines += ["#", *_block(log, columns, screen)]
    return document([*lines, "#", *screen.comments([*_closing(validation), *not_shown(whole, columns)])])


def validation_json(validation: Validation) -> str:
    """Return the document of schema ``collsim.validate/1``."""
    return json_text(validation.to_dict())


def validation_csv(validation: Validation) -> str:
    """Return a header and one line per row, SI, with the topology and the profile in front."""
    return validation.to_csv()


def _wires(row: JudgedCase) -> Wires:
    """Return what a measured row put on wires, if the library did as the model."""
    return Wires(row.tiers, row.measured_s, row.algo_bound_s, row.measured_busbw_Bps, row.case.op, row.algo)


def _both(sets: Sequence[str]) -> list[Column[JudgedCase | RefusedCase]]:
    """Return the columns, which show rows without a prediction as well."""

    def cells(refusal: RefusedCase) -> dict[str, str]:
        size, measured = str(refusal.case.size_bytes), time_text(refusal.measured_s)
        return {"size": size, "measured": measured, "predicted": "refused", "verdict": refusal.what}

    return with_refused([*COLUMNS[:-1], *wire_columns(sets, _wires), COLUMNS[-1]], RefusedCase, cells)


def _block(log: CheckedLog, columns: Sequence[Column[JudgedCase | RefusedCase]], screen: Screen) -> Iterator[str]:
    """Yield the lines of one log."""
    case = log.case
    launch = case.launch + (", registered buffers" if case.registered else "")
    library = f"   as {case.library} chooses" if case.library else ""
    settings = "".join(f", {name}={value}" for name, value in case.environment)
    yield f"# {log.file}:{log.line}" if log.line else f"# {log.file}"
    groups = "" if case.groups is None else f"   groups {case.all_ranks // case.ranks}"
    yield from screen.one(f"op {case.op}   ranks {case.ranks}{groups}   launch {launch}{library}{settings}")
    yield from screen.comments([log.mapping])
    yield from (f"#{head[1:]}" for head in heads(columns))
    entries: list[JudgedCase | RefusedCase] = [*log.rows, *log.refused]
    yield from (line_of(columns, entry, screen) for entry in entries)
    yield from screen.comments([*log.health, *wire_notes(map(_wires, log.rows))])
    if screen.width is None:
        yield from (f"# note: {line}" for note in log.notes for line in wrapped(note))
    else:
        yield from screen.comments(f"note: {note}" for note in log.notes)


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
    refused = f"   refused {summary['refused']}" if summary["refused"] else ""
    yield f"outside {summary['outside']}   flagged {summary['flagged']}   {failed}skipped {summary['skipped']}{refused}"
    if any(row.covered is None for row in validation.rows):
        yield (
            f"without an interval, inside means that the times differ by a factor of at most "
            f"{1 + validation.margin:g}: a margin, no calibrated interval"
        )
