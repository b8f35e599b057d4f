"""Systems side by side, as a table for people, as Markdown, csv and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from collsim.core.tabular import json_text
from collsim.core.units import format_size
from collsim.prices import Price
from collsim.report.costs import costs_markdown, costs_table, decides
from collsim.report.nccl import time_text
from collsim.report.price_notes import price_lines
from collsim.report.sheet import WHOLE, Column, Screen, document, fitted, fitting, markdown, not_shown, sheet
from collsim.report.table import interval_notes, preamble, switch_notes
from collsim.report.wires import Wires, wire_columns, wire_notes, wires_of
from collsim.simulation.comparison import ComparedRow, Comparison
from collsim.simulation.result import Row

__all__ = ["comparison_csv", "comparison_json", "comparison_markdown", "comparison_table", "refused_lines"]

SHARED: tuple[Column[ComparedRow], ...] = (
    Column("op", lambda row: row.any.op, kind="prose"),
    Column("ranks", lambda row: row.who),
    Column("size", lambda row: str(row.any.size_bytes), "(B)"),
)
OPEN = {"overlapping": "intervals overlap", "unmeasured": "one has no interval"}
"""Why a verdict is open."""
NOTHING, REFUSED = "-", "refused"
"""Stand where a system has no answer."""
MOST_PLACES = 4


def _own(system: int, sets: Sequence[str] = ()) -> list[Column[ComparedRow]]:
    """Columns of a system by its number; the first has no speedup, and on bare wires the speedup is the verdict."""

    def cell(text: Callable[[Row], str], without: str = NOTHING) -> Callable[[ComparedRow], str]:
        return lambda row: without if (run := row.runs[system]) is None else text(run)

    def wires(row: ComparedRow) -> Wires | None:
        run = row.runs[system]
        return None if run is None else wires_of(run)

    columns: list[Column[ComparedRow]] = [
        Column("algo", cell(lambda run: run.label), kind="word"),
        Column("time", cell(lambda run: f"{'~' * bool(run.tolerance)}{time_text(run.time_s)}", REFUSED), "(us)"),
        Column("low", cell(lambda run: _end(run.time_lo_s)), "(us)"),
        Column("high", cell(lambda run: _end(run.time_hi_s)), "(us)"),
        Column("busbw", cell(lambda run: f"{run.busbw_Bps / 1e9:.2f}"), "(GB/s)"),
        *wire_columns(sets, wires),
        Column("speedup", lambda row: _factor(row.speedups[system]), "(x)"),
        Column("verdict", lambda row: "" if row.bare else row.verdicts[system] or "", kind="word"),
        Column("limited by", cell(lambda run: run.limited_by), kind="prose"),
    ]
    return [column for column in columns if system or column.name not in ("speedup", "verdict")]


def _end(time_s: float | None) -> str:
    return "" if time_s is None else time_text(time_s)


def _factor(speedup: float | None) -> str:
    return NOTHING if speedup is None else f"{speedup:.3g}"


def _as_fast(speedup: float | None) -> str:
    """Return a speedup in a sentence.

    >>> _as_fast(1.0004), _as_fast(1.02), _as_fast(0.25)
    ('as fast', '1.02 times as fast', '0.25 times as fast')
    """
    factor = _factor(speedup)
    return "as fast" if factor == "1" else f"{factor} times as fast"


DROP = ("low high", "limited_by", "algo", "verdict", "busbw")
"""Columns of each system that go first where a screen is too narrow, in this order."""


def comparison_table(comparison: Comparison, screen: Screen = WHOLE) -> str:
    """One line per row, the systems side by side; every line that is not data starts with ``#``.

    With costs a line for each system, as they would be too wide beside each other.
    """
    if comparison.priced:
        return costs_table(comparison, screen, _before(comparison), partial(_after, comparison))
    parts = [fitted(_own(i, screen.columns), comparison.rows) for i in range(len(comparison.systems))]
    whole = [*fitted(SHARED, comparison.rows), *(column for part in parts for column in part)]
    inner = screen if screen.width is None else replace(screen, width=screen.width - 2)
    shown = fitting(whole, inner, DROP)
    kept = {column.name for column in shown}
    heading = _heading(comparison, [[column for column in part if column.name in kept] for part in parts])
    lines = [*screen.head(_before(comparison)), "#", heading, *sheet(shown, comparison.rows, screen)]
    return document([*lines, *screen.comments([*_after(comparison, shown), *not_shown(whole, shown)])])


def comparison_markdown(comparison: Comparison) -> str:
    """Rows as one Markdown table, with the name of the system at each of its columns."""
    if comparison.priced:
        return costs_markdown(comparison, [*_before(comparison), *_after(comparison)])
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


def _heading(comparison: Comparison, parts: Sequence[Sequence[Column[ComparedRow]]]) -> str:
    """Line that names each system where its columns begin."""
    place, line = 2 + _extent(fitted(SHARED, comparison.rows)), "#"
    for i, name in enumerate(_names(comparison)):
        line = f"{line:<{place}}" if len(line) < place else f"{line}  "
        line += f"{name} "
        place += _extent(parts[i])
    return line


def _extent(columns: Sequence[Column[ComparedRow]]) -> int:
    return sum(column.width + column.gap for column in columns)


def _before(comparison: Comparison) -> list[str]:
    """Return the lines above the table: each system with its profile and library, and the doubts about them."""
    lines = []
    for system in comparison.systems:
        lines += preamble(comparison.version, {**system.topology, "name": system.label}, system.profile)
        lines += [f"algorithms as {system.profile['library']} chooses"] if system.profile["library"] else []
    return lines


def _after(comparison: Comparison, shown: Sequence[Column[Any]] | None = None) -> list[str]:
    """Return the lines below the table: speedups and open verdicts of each system, refusals, notes on what is *shown*,
    by default everything.
    """
    first, *others = _names(comparison)
    told = [f"speedup: the time of {first} over that of the other system"] if others else []
    for i, name in enumerate(others, start=1):
        told += _range(comparison.rows, i, name) + _open(comparison.rows, i, name)
    told += comparison.mixed_versions
    if comparison.priced:
        told += price_lines({system.label: system.price or Price() for system in comparison.systems})
        told.append("per TB: of what all GPUs have to send, by the factors of nccl-tests; bound: least time over time")
        told += [f"{_place(row)}: {decides(comparison, row)}" for row in comparison.rows]
    if shown is None or any(column.name == "low" for column in shown):
        told += interval_notes([run for row in comparison.rows for run in row.runs if run])
    if any(row.any.groups > 1 for row in comparison.rows):
        told.append("all groups run at once: times and bandwidths are of the slowest")
    runs = [run for row in comparison.rows for run in row.runs if run is not None]
    if draws := max((len(run.draw_times_s) for run in runs), default=0):
        told.append(f"times are medians of {draws} draws of the ECMP hash")
    return [*told, *switch_notes(runs), *wire_notes(map(wires_of, runs)), *refused_lines(comparison)]


def refused_lines(comparison: Comparison) -> list[str]:
    """Return a line for each refusal: the system, and why."""
    return [f"{refusal.system} is refused: {refusal.what}" for refusal in comparison.refused]


def _range(rows: Sequence[ComparedRow], system: int, name: str) -> list[str]:
    """Return the least and the greatest speedup, and where they are; as predictions if some verdict is open."""
    both = [row for row in rows if row.speedups[system] is not None]
    ordered = sorted(both, key=lambda row: row.speedups[system] or 0.0)
    if not ordered:
        return []
    told = f"{'predicted: ' * any(row.verdicts[system] in OPEN for row in both)}{name} is "
    least, most = (_as_fast(row.speedups[system]) for row in (ordered[0], ordered[-1]))
    if least == most:
        return [f"{told}{least}" + (" everywhere" if len(rows) > 1 else "")]
    return [f"{told}{least} ({_place(ordered[0])}) to {most} ({_place(ordered[-1])})"]


def _open(rows: Sequence[ComparedRow], system: int, name: str) -> list[str]:
    """Return in which rows nothing tells for sure which of both systems is faster, and why."""
    told = []
    for verdict, why in OPEN.items():
        if found := [row for row in rows if row.verdicts[system] == verdict]:
            told.append(f"whether {name} is faster is open where {why}{_places(found)}")
    return told


def _places(rows: Sequence[ComparedRow]) -> str:
    more = f" and {len(rows) - MOST_PLACES} more" if len(rows) > MOST_PLACES else ""
    return f" ({'; '.join(map(_place, rows[:MOST_PLACES]))}{more})"


def _place(row: ComparedRow) -> str:
    return f"{row.any.op} of {row.who} ranks, {format_size(row.any.size_bytes)}"
