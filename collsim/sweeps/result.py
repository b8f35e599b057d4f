"""Results of sweeps: the record of every point, in the order of the grid, and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collsim.core.tabular import Tabular
from collsim.sweeps.pareto import objectives_of, pareto_front, work_of
from collsim.sweeps.records import OK

__all__ = ["SweepResult"]

SCHEMA = "collsim.sweep_result/1"
METRICS = ("time_s", "busbw_Bps", "tokens_per_s", "usd", "joules")


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult(Tabular):
    """Records of the points of a sweep.

    Attributes
    ----------
    version : str
    rows : tuple of mapping
        ``key``, ``status`` (``ok`` or ``failed``), ``error``, ``asked`` and ``answer``: flat values in SI units.
    objectives : tuple of str
        That the front is of; empty for none.
    new, kept, others : int
        Points that were answered, those that the file had before, and records of the file that are of other grids or
        versions.
    """

    version: str
    rows: tuple[Mapping[str, Any], ...]
    objectives: tuple[str, ...] = ()
    new: int = 0
    kept: int = 0
    others: int = 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        """Records of the points that have no answer."""
        return tuple(row for row in self.rows if row["status"] != OK)

    def front(self, objectives: str | Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        """Return the records that no other one of the same work beats in all objectives, by default those of the sweep.

        Raises
        ------
        InputError
            Unknown objectives, or fewer than two.
        """
        names = objectives_of(objectives) if objectives is not None else list(self.objectives)
        alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in self.rows if names else ():
            if row["status"] == OK:
                alike.setdefault(work_of(row), []).append(row)
        return [rows[i] for rows in alike.values() for i in pareto_front([row["answer"] for row in rows], names)]

    @property
    def axes(self) -> list[str]:
        """Arguments whose values differ between points."""
        names = dict.fromkeys(name for row in self.rows for name in row["asked"])
        return [name for name in names if len({str(row["asked"].get(name)) for row in self.rows}) > 1]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.sweep_result/1``."""
        return {
            "schema": SCHEMA,
            "collsim": self.version,
            "objectives": list(self.objectives),
            "front": [row["key"] for row in self.front()],
            "points": [dict(row) for row in self.rows],
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each point: what was asked with ``asked_`` in front, then the answer."""
        asked = list(dict.fromkeys(name for row in self.rows for name in row["asked"]))
        answers = list(dict.fromkeys(name for row in self.rows for name in row["answer"]))
        front = {row["key"] for row in self.front()}
        return [
            {
                "key": row["key"],
                "kind": row["kind"],
                "status": row["status"],
                "error": row["error"],
                **({"pareto": row["key"] in front} if self.objectives else {}),
                **{f"asked_{name}": row["asked"].get(name) for name in asked},
                **{name: row["answer"].get(name) for name in answers},
            }
            for row in self.rows
        ]

    def _caption(self) -> str:
        failed = len(self.failed)
        return f"{len(self.rows)} points" + (f", {failed} failed" if failed else "")

    def _shown(self) -> list[dict[str, str]]:
        return [{**{name: str(row["asked"].get(name, "")) for name in self.axes}, **_metrics(row)} for row in self.rows]


def _metrics(row: Mapping[str, Any]) -> dict[str, str]:
    answer = row["answer"]
    told = {name: f"{answer[name]:.4g}" if answer.get(name) is not None else "" for name in METRICS}
    return {**told, "limited by, or error": row["error"] or str(answer.get("limited_by", ""))}
