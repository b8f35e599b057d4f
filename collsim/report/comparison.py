"""Systems side by side, as a table for people, as Markdown, csv and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collsim.core.units import format_size
from collsim.report.data import json_text
from collsim.report.nccl import time_text
from collsim.report.sheet import Column, comments, document, fitted, markdown, sheet
from collsim.report.table import preamble, switch_notes
from collsim.simulation.comparison import ComparedRow, Comparison
from collsim.simulation.result import Row

__all__ = ["comparison_csv", "comparison_json", "comparison_markdown", "comparison_table"]

SHARED: tuple[Column[ComparedRow], ...] = (
    Column("op", lambda row: row.runs[0].op, kind="prose"),
    Column("ranks", lambda row: row.who),
    Column("size", lambda row: str(row.runs[0].size_bytes), "(B)"),
)


def _own(system: int) -> list[Column[ComparedRow]]:
    """Columns of a system by its number; the first has no speedup."""

    def run(row: ComparedRow) -> Row:
        return row.runs[system]

    columns: list[Column[ComparedRow]] = [
        Column("algo", lambda row: run(row).label, kind="word"),
        Column("time", lambda row: f"{'~' * bool(run(row).tolerance)}{time_text(run(row).time_s)}", "(us)"),
        Column("busbw", lambda row: f"{run(row).busbw_Bps / 1e9:.2f}", "(GB/s)"),
        Column("speedup", lambda row: f"{row.speedups[system]:.3g}", "(x)"),
        Column("bottleneck", lambda row: run(row).limit, kind="prose"),
    ]
    return [column for column in columns if system or column.name != "speedup"]


def comparison_table(comparison: Comparison) -> str:
    """One line per row, the systems side by side; every line that is not data starts with ``#``."""
    own = [column for i in range(len(comparison.systems)) for column in _own(i)]
    lines = [*comments(_before(comparison)), "#", _heading(comparison), *sheet([*SHARED, *own], comparison.rows)]
    return document([*lines, *comments(_after(comparison))])


def comparison_markdown(comparison: Comparison) -> str:
    """Rows as one Markdown table, with the name of the system at each of its columns."""
    own = [
        replace(column, name=f"{name} {column.name}")
        for i, name in enumerate(_names(comparison))
        for column in _own(i)
    ]  # fmt: skip
    return markdown([*SHARED, *own], comparison.rows, [*_before(comparison), *_after(comparison)])


def comparison_json(comparison: Comparison) -> str:
    """Document of schema ``collsim.compare/1``."""
    return json_text(comparison.to_dict())


def comparison_csv(comparison: Comparison) -> str:
    """Header and one line per row and system, SI, with the columns of `Comparison.to_records`."""
    return comparison.to_csv()


def _names(comparison: Comparison) -> list[str]:
    return [system.label for system in comparison.systems]


def _heading(comparison: Comparison) -> str:
    """Line that names each system where its columns begin."""
    place, line = 2 + _extent(fitted(SHARED, comparison.rows)), "#"
    for i, name in enumerate(_names(comparison)):
        line = f"{line:<{place}}" if len(line) < place else f"{line}  "
        line += f"{name} "
        place += _extent(fitted(_own(i), comparison.rows))
    return line


def _extent(columns: Sequence[Column[ComparedRow]]) -> int:
    return sum(column.width + column.gap for column in columns)


def _before(comparison: Comparison) -> list[str]:
    """Return the lines above the table: each system with its profile, and the doubts about them."""
    return [
        line
        for system in comparison.systems
        for line in preamble(comparison.version, {**system.topology, "name": system.label}, system.profile)
    ]


def _after(comparison: Comparison) -> list[str]:
    """Return the lines below the table: the least and the greatest speedup of each system with its row, and notes."""
    first, *others = _names(comparison)
    told = [
        f"speedup: the time of {first} over that of the other system",
        *(_range(comparison.rows, i, name) for i, name in enumerate(others, start=1)),
    ]
    if any(row.runs[0].groups > 1 for row in comparison.rows):
        told.append("all groups run at once: times and bandwidths are of the slowest")
    draws = max((len(run.draw_times_s) for row in comparison.rows for run in row.runs), default=0)
    if draws:
        told.append(f"times are medians of {draws} draws of the ECMP hash")
    return [*told, *switch_notes(run for row in comparison.rows for run in row.runs)]


def _range(rows: Sequence[ComparedRow], system: int, name: str) -> str:
    ordered = sorted(rows, key=lambda row: row.speedups[system])
    least, most = (f"{row.speedups[system]:.3g} times as fast" for row in (ordered[0], ordered[-1]))
    if least == most:
        return f"{name} is {least}" + (" everywhere" if len(rows) > 1 else "")
    return f"{name} is {least} ({_place(ordered[0])}) to {most} ({_place(ordered[-1])})"


def _place(row: ComparedRow) -> str:
    first = row.runs[0]
    return f"{first.op} of {row.who} ranks, {format_size(first.size_bytes)}"
