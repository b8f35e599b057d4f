"""Sweeps as a table for people, as CSV and as JSON; with objectives, of the points on the Pareto front."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from collsim.core.errors import chosen
from collsim.core.units import format_count
from collsim.report.nccl import time_text
from collsim.report.sheet import WHOLE, Column, Screen, document, fitted, fitting, not_shown, sheet
from collsim.sweeps.pareto import OBJECTIVES, work_of
from collsim.sweeps.result import SweepResult

__all__ = ["SWEEP_FORMATS", "render_sweep"]

SWEEP_FORMATS = ("table", "csv", "json")
Record = Mapping[str, Any]
DROP = ("energy", "low high", "algo", "cost")
"""Columns that go first where a screen is too narrow, in this order; measures of a front never go."""
LESS = ("tokens", "busbw", "limited_by", "time")
"""What goes after those where there is a front, whose measures are what was asked."""


def render_sweep(found: SweepResult, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return *found* in one of `SWEEP_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    forms: dict[str, Callable[[], str]] = {
        "table": lambda: _table(found, screen), "csv": found.to_csv, "json": found.to_json,
    }  # fmt: skip
    return chosen("format", form, forms, "--format")()


def _table(found: SweepResult, screen: Screen) -> str:
    """One line per point, or per point of the front: the axes of the grid, then what came out."""
    rows, equal = _distinct(found) if found.objectives else (list(found.rows), [])
    kept = [MEASURES[name] for name in found.objectives]
    columns = [column for column in COLUMNS if column.name not in OF_FRONTS or column.name in kept]
    whole = fitted([*map(_axis, found.axes), *columns], rows)
    drop = [names for names in (*DROP, *LESS * bool(kept)) if names not in kept]
    shown = fitting(whole, screen if screen.width is None else replace(screen, width=screen.width - 2), drop)
    told = [f"collsim {found.version}   {len(found)} points, {len(found.failed)} failed"]
    if found.objectives:
        beaten = " and ".join(found.objectives)
        told.append(f"the {len(rows)} that no other of the same operation and size, or workload, beats in {beaten}")
        told += equal
    if any(row["answer"].get("usd") is not None for row in rows):
        told.append("cost and energy: of the GPUs that take part, at public prices and thermal design power")
    return document(
        [*screen.comments(told), "#", *sheet(shown, rows, screen), *screen.comments(not_shown(whole, shown))]
    )


def _distinct(found: SweepResult) -> tuple[list[Record], list[str]]:
    """Return the points of the front, of those with the same measures the first, and a sentence on the others."""
    first: dict[tuple[Any, ...], Record] = {}
    others: Counter[str] = Counter()
    for row in found.front():
        measures = tuple(row["answer"][OBJECTIVES[name][0]] for name in found.objectives)
        one = first.setdefault((work_of(row), measures), row)
        if one is not row:
            differ = [name for name in found.axes if row["asked"].get(name) != one["asked"].get(name)]
            others[", ".join(f"{_entry(name)} {row['asked'].get(name, 'left out')}" for name in differ)] += 1
    if not others:
        return list(first.values()), []
    told = "; ".join(f"{what} ({count})" for what, count in others.items())
    return list(first.values()), [
        f"{format_count(others.total(), 'other')} with the same measures as one of them: {told}"
    ]


def _axis(name: str) -> Column[Record]:
    return Column(_entry(name), lambda row: str(row["asked"].get(name, "")))


def _entry(name: str) -> str:
    """Return the name of an axis, without that of the argument of which it is one entry."""
    head, dot, entry = name.partition(".")
    return entry if dot and head in ("overrides", "environment") else name


def _figure(key: str, scale: float, spec: str) -> Callable[[Record], str]:
    def text(row: Record) -> str:
        value = row["answer"].get(key)
        return "" if value is None else f"{value * scale:{spec}}"

    return text


def _time(key: str) -> Callable[[Record], str]:
    return lambda row: "" if row["answer"].get(key) is None else time_text(row["answer"][key])


def _algorithm(row: Record) -> str:
    answer = row["answer"]
    return "/".join(filter(None, [answer.get("algo"), answer.get("proto")]))


COLUMNS: tuple[Column[Record], ...] = (
    Column("algo", _algorithm, kind="word"),
    Column("time", lambda row: _time("time_s")(row) if row["status"] == "ok" else "failed", "(us)"),
    Column("low", _time("time_lo_s"), "(us)"),
    Column("high", _time("time_hi_s"), "(us)"),
    Column("busbw", _figure("busbw_Bps", 1e-9, ".2f"), "(GB/s)"),
    Column("tokens", _figure("tokens_per_s", 1, ".4g"), "(1/s)"),
    Column("cost", _figure("usd", 1, ".3g"), "(USD)"),
    Column("energy", _figure("joules", 1, ".3g"), "(J)"),
    Column("gpus", _figure("gpus", 1, ".0f")),
    Column("cost/TB", _figure("usd_per_TB", 1, ".3g"), "(USD)"),
    Column("energy/TB", _figure("joules_per_TB", 1, ".3g"), "(J)"),
    Column("limited by", lambda row: row["error"] or str(row["answer"].get("limited_by") or ""), kind="prose"),
)
MEASURES = {
    **{name: name for name in ("time", "cost", "energy", "gpus", "busbw", "tokens")},
    "cost_per_TB": "cost/TB", "energy_per_TB": "energy/TB",
}  # fmt: skip
"""The column of each objective."""
OF_FRONTS = ("gpus", "cost/TB", "energy/TB")
"""Columns that are there only as measures of a front."""
