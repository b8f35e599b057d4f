"""Comparisons of systems: the same collectives on each, side by side, and how many times faster each is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collsim.core.tabular import Tabular
from collsim.simulation.result import Row

__all__ = ["ComparedRow", "ComparedSystem", "Comparison", "named_system"]

SCHEMA = "collsim.compare/1"
CHANGE = re.compile(r",\s*(?=[A-Za-z_][\w.\[\]]*=)")
"""Separator of the changes behind the name of a system: a comma before PATH=VALUE."""


def named_system(entry: Any) -> tuple[Any, list[str]]:
    """Return a system and the changes behind its name.

    >>> named_system("gb200_nvl72,gpu.count=128, switch.ports=128")
    ('gb200_nvl72', ['gpu.count=128', 'switch.ports=128'])
    """
    if not isinstance(entry, str):
        return entry, []
    name, *changes = CHANGE.split(entry.strip())
    return name, changes


@dataclass(frozen=True, slots=True)
class ComparedSystem:
    """One of the systems: how it is called, what `Result` says of it, and one configuration for each split."""

    label: str
    topology: Mapping[str, Any]
    profile: Mapping[str, Any]
    configs: tuple[Mapping[str, Any], ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One collective at one size: its row on each system; *grouping* is the split or layout, None for one group."""

    grouping: str | None
    runs: tuple[Row, ...]

    @property
    def speedups(self) -> tuple[float, ...]:
        """Speedup of each system over the first one: the time of the first over its own."""
        return tuple(self.runs[0].time_s / run.time_s for run in self.runs)

    @property
    def who(self) -> str:
        """Ranks, or groups and how they came about."""
        first = self.runs[0]
        if first.groups == 1:
            return str(first.ranks)
        return f"{first.groups} x {first.ranks}" + (f" ({self.grouping})" if self.grouping else "")


@dataclass(frozen=True, slots=True)
class Comparison(Tabular):
    """The rows of several systems, the first of which is what the others are compared with.

    Examples
    --------
    >>> import collsim
    >>> comparison = collsim.compare(["mi355x_ubb8", "hgx_b200"], "all_to_all", "1G", profile="ideal")
    >>> [f"{speedup:.3f}" for speedup in comparison.rows[0].speedups]
    ['1.000', '1.674']
    """

    version: str
    systems: tuple[ComparedSystem, ...]
    rows: tuple[ComparedRow, ...]

    def __iter__(self) -> Iterator[ComparedRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to read before trusting the numbers, each with the name of its system."""
        return tuple(f"{system.label}: {told}" for system in self.systems for told in system.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.compare/1``: SI units, unit in the key."""
        systems = [
            {
                "system": system.label,
                "topology": dict(system.topology),
                "profile": dict(system.profile),
                "configs": [dict(config) for config in system.configs],
                "warnings": list(system.warnings),
            }
            for system in self.systems
        ]
        rows = [
            {"grouping": row.grouping, "speedups": list(row.speedups), "runs": [run.to_dict() for run in row.runs]}
            for row in self.rows
        ]
        return {"schema": SCHEMA, "collsim": self.version, "systems": systems, "rows": rows}

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each system of each row: what tells rows apart, then that of `Row.to_record`."""
        return [
            {
                "system": system.label,
                "profile": system.profile["name"],
                "calibrated": system.profile["calibrated"],
                "grouping": row.grouping,
                "speedup": speedup,
                **run.to_record(),
            }
            for row in self.rows
            for system, speedup, run in zip(self.systems, row.speedups, row.runs, strict=True)
        ]

    def _caption(self) -> str:
        return ", ".join(system.label for system in self.systems)

    def _shown(self) -> list[dict[str, str]]:
        return [_shown(row, self.systems) for row in self.rows]


def _shown(row: ComparedRow, systems: Sequence[ComparedSystem]) -> dict[str, str]:
    """Headings and texts of a row, the systems side by side."""
    shown = {"op": row.runs[0].op, "ranks": row.who, "size (B)": str(row.runs[0].size_bytes)}
    for system, run, speedup in zip(systems, row.runs, row.speedups, strict=True):
        own = {
            "algo": run.label,
            "time (us)": f"{run.time_s * 1e6:.2f}",
            "busbw (GB/s)": f"{run.busbw_Bps / 1e9:.2f}",
            "speedup (x)": f"{speedup:.3g}",
            "bottleneck": run.limit,
        }
        shown |= {f"{system.label} {heading}": text for heading, text in own.items()}
    return shown
