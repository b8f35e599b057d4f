"""Comparisons of systems by a whole workload: time, tokens a second and dollars of each, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collsim.core.tabular import Tabular
from collsim.prices import Price

__all__ = ["WorkloadComparison", "WorkloadRun"]

SCHEMA = "collsim.compare_workload/1"


@dataclass(frozen=True, slots=True)
class WorkloadRun:
    """Workload on one system: its flat answer, or why there is none, and the price of a GPU."""

    label: str
    answer: Mapping[str, Any]
    error: str | None
    exit_code: int
    price: Price


@dataclass(frozen=True, slots=True, repr=False)
class WorkloadComparison(Tabular):
    """A workload on several systems, the first of which is what the others are compared with."""

    version: str
    workload: str
    kind: str
    runs: tuple[WorkloadRun, ...]

    @property
    def speedups(self) -> tuple[float | None, ...]:
        """Speedup of each system over the first one: the time of the first over its own; None without both."""
        first = self.runs[0].answer.get("time_s")
        return tuple(
            first / run.answer["time_s"] if first and run.answer.get("time_s") else None for run in self.runs
        )  # fmt: skip

    @property
    def refused(self) -> tuple[WorkloadRun, ...]:
        """Systems without an answer."""
        return tuple(run for run in self.runs if run.error is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.compare_workload/1``."""
        systems = [
            {
                "system": run.label,
                "price": run.price.to_dict(),
                "speedup": speedup,
                "error": run.error,
                "answer": dict(run.answer),
            }
            for run, speedup in zip(self.runs, self.speedups, strict=True)
        ]
        return {
            "schema": SCHEMA,
            "collsim": self.version,
            "workload": self.workload,
            "kind": self.kind,
            "systems": systems,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each system that has an answer."""
        pairs = zip(self.runs, self.speedups, strict=True)
        return [
            {"system": run.label, "workload": self.workload, "speedup": speedup, **run.answer}
            for run, speedup in pairs
            if run.error is None
        ]

    def _caption(self) -> str:
        return self.workload

    def _shown(self) -> list[dict[str, str]]:
        keys = ("time_s", "speedup", "tokens_per_s", "usd", "joules")
        return [
            {"system": row["system"], **{key: f"{row[key]:.4g}" if row.get(key) else "" for key in keys}}
            for row in self.to_records()
        ]  # fmt: skip
