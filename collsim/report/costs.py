"""Costs of systems side by side: a line for each system, and what decides between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collsim.prices import Cost
from collsim.report.nccl import time_text
from collsim.report.sheet import WHOLE, Column, Screen, document, fitted, fitting, markdown, not_shown, sheet
from collsim.simulation.comparison import ComparedRow, Comparison
from collsim.simulation.result import Row

__all__ = ["costs_markdown", "costs_table", "decides"]

DROP = ("per_TB energy/TB", "energy", "bound", "low high", "algo", "limited_by", "verdict", "busbw")
"""Columns that go first where a screen is too narrow."""
ALIKE = 1.005
"""Times as near as that are told as the same."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One system of a row: the first has what was asked of all."""

    row: ComparedRow
    first: bool
    label: str
    run: Row | None
    cost: Cost | None
    speedup: float | None
    verdict: str | None

    def of(self, text: Callable[[Row], str], without: str = "") -> str:
        return without if self.run is None else text(self.run)

    def paid(self, name: str) -> str:
        value = None if self.cost is None else getattr(self.cost, name)
        return "" if value is None else f"{value:.3g}"


COLUMNS: tuple[Column[_Line], ...] = (
    Column("op", lambda line: line.row.any.op if line.first else "", kind="prose"),
    Column("ranks", lambda line: line.row.who if line.first else ""),
    Column("size", lambda line: str(line.row.any.size_bytes) if line.first else "", "(B)"),
    Column("system", lambda line: line.label, kind="prose"),
    Column("algo", lambda line: line.of(lambda run: run.label), kind="word"),
    Column("time", lambda line: line.of(lambda run: time_text(run.time_s), "refused"), "(us)"),
    Column("low", lambda line: line.of(lambda run: _end(run.time_lo_s)), "(us)"),
    Column("high", lambda line: line.of(lambda run: _end(run.time_hi_s)), "(us)"),
    Column("bound", lambda line: line.of(lambda run: f"{run.efficiency:.0%}")),
    Column("busbw", lambda line: line.of(lambda run: f"{run.busbw_Bps / 1e9:.2f}"), "(GB/s)"),
    Column("speedup", lambda line: "" if line.speedup is None else f"{line.speedup:.3g}", "(x)"),
    Column("verdict", lambda line: "" if line.row.bare else line.verdict or "", kind="word"),
    Column("cost", lambda line: line.paid("usd"), "(USD)"),
    Column("per TB", lambda line: line.paid("usd_per_TB"), "(USD)"),
    Column("energy", lambda line: line.paid("joules"), "(J)"),
    Column("energy/TB", lambda line: line.paid("joules_per_TB"), "(J)"),
    Column("limited by", lambda line: line.of(lambda run: run.limited_by), kind="prose"),
)


def costs_table(
    comparison: Comparison, screen: Screen = WHOLE, before: Sequence[str] = (),
    after: Callable[[Sequence[Column[_Line]]], Sequence[str]] = lambda _: (),
) -> str:  # fmt: skip
    """Return one line per row and system; every line that is not data starts with ``#``.

    *after* has the lines below a table of such columns.
    """
    lines = _lines(comparison)
    whole = fitted(COLUMNS, lines)
    shown = fitting(whole, screen if screen.width is None else replace(screen, width=screen.width - 2), DROP)
    notes = screen.comments([*after(shown), *not_shown(whole, shown)])
    return document([*screen.head(list(before)), "#", *sheet(shown, lines, screen), *notes])


def costs_markdown(comparison: Comparison, notes: Sequence[str]) -> str:
    """Return the same as a Markdown table."""
    return markdown(COLUMNS, _lines(comparison), notes)


def _lines(comparison: Comparison) -> list[_Line]:
    return [
        _Line(row, i == 0, system.label, row.runs[i], comparison.costs(row)[i], row.speedups[i], row.verdicts[i])
        for row in comparison.rows
        for i, system in enumerate(comparison.systems)
    ]


def _end(time_s: float | None) -> str:
    return "" if time_s is None else time_text(time_s)


def decides(comparison: Comparison, row: ComparedRow) -> str:
    """Return a sentence on a row: what limits each system, how much longer others take, and what the dearest costs."""
    labels = [system.label for system in comparison.systems]
    runs = [(label, run, cost) for label, run, cost in zip(labels, row.runs, comparison.costs(row), strict=True) if run]
    fast = min(runs, key=lambda each: each[1].time_s)
    unmeasured = fast[1].time_lo_s is None and any(run.time_lo_s is not None for _, run, _ in runs)
    told = [f"{fast[0]} is fastest{' (unmeasured)' * unmeasured}, limited by {fast[1].limited_by}"]
    for name, run, _ in runs:
        longer = run.time_s / fast[1].time_s
        if name != fast[0]:
            told.append(
                f"{name} takes {'as long' if longer < ALIKE else f'{longer:.3g} times as long'}, by {run.limited_by}"
            )
    paid = [(cost.usd, name) for name, _, cost in runs if cost is not None and cost.usd]
    if len(paid) > 1:
        (least, cheap), (most, dear) = min(paid), max(paid)
        told.append(f"{cheap} costs least, {dear} {most / least:.3g} times as much")
    return "; ".join(told)
