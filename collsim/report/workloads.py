"""Workloads on several systems as a table for people, as Markdown, CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from collsim.core.errors import chosen
from collsim.planning.workload_comparison import WorkloadComparison, WorkloadRun
from collsim.report.nccl import time_text
from collsim.report.price_notes import price_lines
from collsim.report.sheet import WHOLE, Column, Screen, document, fitted, fitting, markdown, not_shown, sheet

__all__ = ["render_workloads"]

DROP = ("low high", "energy", "tokens")


@dataclass(frozen=True, slots=True)
class _Line:
    run: WorkloadRun
    speedup: float | None

    def figure(self, key: str, spec: str) -> str:
        value = self.run.answer.get(key)
        return "" if value is None else f"{value:{spec}}"

    def time(self, key: str) -> str:
        return time_text(self.run.answer[key]) if self.run.answer.get(key) is not None else ""


COLUMNS: tuple[Column[_Line], ...] = (
    Column("system", lambda line: line.run.label, kind="prose"),
    Column("GPUs", lambda line: line.figure("gpus", "d")),
    Column("time", lambda line: line.time("time_s") or "refused", "(us)"),
    Column("low", lambda line: line.time("time_lo_s"), "(us)"),
    Column("high", lambda line: line.time("time_hi_s"), "(us)"),
    Column("speedup", lambda line: "" if line.speedup is None else f"{line.speedup:.3g}", "(x)"),
    Column("exposed", lambda line: line.time("exposed_s"), "(us)"),
    Column("tokens", lambda line: line.figure("tokens_per_s", ".4g"), "(1/s)"),
    Column("cost", lambda line: line.figure("usd", ".3g"), "(USD)"),
    Column("per million", lambda line: line.figure("usd_per_million_tokens", ".3g"), "(USD)"),
    Column("energy", lambda line: line.figure("joules", ".3g"), "(J)"),
    Column("limited by", lambda line: line.run.error or str(line.run.answer.get("limited_by", "")), kind="prose"),
)


def render_workloads(found: WorkloadComparison, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return *found* as ``table``, ``csv``, ``json`` or ``md``, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    lines = [_Line(run, speedup) for run, speedup in zip(found.runs, found.speedups, strict=True)]
    notes = [*price_lines({run.label: run.price for run in found.runs}), *_decides(found)]
    forms: dict[str, Callable[[], str]] = {
        "table": lambda: _table(found, lines, notes, screen),
        "csv": found.to_csv,
        "json": found.to_json,
        "md": lambda: markdown(COLUMNS, lines, notes),
    }
    return chosen("format", form, forms, "--format")()


def _table(found: WorkloadComparison, lines: list[_Line], notes: list[str], screen: Screen) -> str:
    whole = fitted(COLUMNS, lines)
    shown = fitting(whole, screen if screen.width is None else replace(screen, width=screen.width - 2), DROP)
    head = screen.comments([f"collsim {found.version}   workload {found.workload}"])
    return document([*head, "#", *sheet(shown, lines, screen), *screen.comments([*notes, *not_shown(whole, shown)])])


def _decides(found: WorkloadComparison) -> list[str]:
    """Return a sentence for each system on what decides its time, and what the tokens are of."""
    told = []
    for run in found.runs:
        if run.error is None:
            part = run.answer.get("exposed_s")
            exposed = "" if part is None else f", {part / run.answer['time_s']:.0%} of it exposed communication"
            told.append(
                f"{run.label}: {time_text(run.answer['time_s'])} us{exposed}; decided by {run.answer['limited_by']}"
            )
    if found.kind == "moe":
        return [*told, "time: of dispatch and combine of a layer; tokens and their cost: of those of all layers alone"]
    scaled = "workload.flops=... behind a name, or --compute-scale"
    return [*told, f"kernels take what the file says on every system ({scaled}, changes that)"]
