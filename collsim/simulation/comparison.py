"""Comparisons of systems: the same collectives on each, side by side, and how many times faster each is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collsim.core.errors import Fault, InputError
from collsim.core.kinds import shown
from collsim.core.tabular import Tabular
from collsim.prices import Cost, Price, cost_of
from collsim.simulation.result import Row, asked_of

__all__ = ["VERDICTS", "ComparedRefusal", "ComparedRow", "ComparedSystem", "Comparison", "named_system"]

SCHEMA = "collsim.compare/1"
SAME = 1e-9
"""Times within this share of each other are the same."""
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
    price: Price | None = None
    """Of one GPU, where costs were asked for."""


@dataclass(frozen=True, slots=True)
class ComparedRefusal:
    """A refusal by a system of a comparison: *what* is wrong, and *hint*, what to do about it."""

    system: str
    what: str
    hint: str
    exit_code: int

    def to_dict(self) -> dict[str, str]:
        """Return the refusal as the JSON schema wants it."""
        return {"system": self.system, "what": self.what, "hint": self.hint}


VERDICTS = ("faster", "slower", "same", "overlapping", "unmeasured")
"""Verdicts on a system beside the first one. Where the intervals of measured times overlap, neither is faster for sure;
where one of both has none, nobody measured how far off the prediction is."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One collective at one size: its row on each system, None where there is no answer.

    *grouping* is the split or layout, None for one group. *bare* says that all profiles are of bare wires, on which
    predictions are exact: a verdict then needs no interval.
    """

    grouping: str | None
    runs: tuple[Row | None, ...]
    bare: bool = False

    @property
    def any(self) -> Row:
        """The row of the first system that has one: what was asked is the same for all."""
        return next(run for run in self.runs if run is not None)

    @property
    def speedups(self) -> tuple[float | None, ...]:
        """Speedup of each system over the first one: the time of the first over its own; None without both."""
        first = self.runs[0]
        return tuple(None if run is None or first is None else first.time_s / run.time_s for run in self.runs)

    @property
    def verdicts(self) -> tuple[str | None, ...]:
        """Which of `VERDICTS` holds for each system; None for the first, and without both times."""
        first, *others = self.runs
        return (None, *(None if first is None or run is None else _verdict(first, run, self.bare) for run in others))

    @property
    def who(self) -> str:
        """Ranks, or groups and how they came about."""
        if self.any.groups == 1:
            return str(self.any.ranks)
        return f"{self.any.groups} x {self.any.ranks}" + (f" ({self.grouping})" if self.grouping else "")


def _cost(price: Price, run: Row) -> Cost:
    """Return the cost of a row: all ranks of all groups, and what they send by the factors of nccl-tests."""
    gpus = run.ranks * run.groups
    return cost_of(price, gpus, run.time_s, run.busbw_Bps * run.time_s * gpus)


def _verdict(first: Row, other: Row, bare: bool) -> str:
    """Return the verdict on *other* beside *first*."""
    if not bare:
        ends = first.time_lo_s, first.time_hi_s, other.time_lo_s, other.time_hi_s
        if None in ends:
            return "unmeasured"
        low_s, high_s, other_low_s, other_high_s = (end or 0.0 for end in ends)
        if low_s <= other_high_s and other_low_s <= high_s:
            return "overlapping"
    if abs(other.time_s - first.time_s) <= SAME * first.time_s:
        return "same"
    return "faster" if other.time_s < first.time_s else "slower"


@dataclass(frozen=True, slots=True, repr=False)
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
    refused: tuple[ComparedRefusal, ...] = ()
    """Systems without an answer, which are not among *systems*, and what single rows lack."""

    def __iter__(self) -> Iterator[ComparedRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def priced(self) -> bool:
        """True if costs were asked for."""
        return any(system.price is not None for system in self.systems)

    def costs(self, row: ComparedRow) -> tuple[Cost | None, ...]:
        """Return the costs of a row on each system, for all GPUs that take part; None without a price or an answer.

        Raises
        ------
        InputError
            *row* is none of this comparison.
        """
        if not isinstance(row, ComparedRow) or len(row.runs) != len(self.systems):
            raise InputError(Fault(f"{shown(row)} is no row of this comparison", "row", "pass one of its rows"))
        pairs = zip(self.systems, row.runs, strict=True)
        return tuple(None if run is None or system.price is None else _cost(system.price, run) for system, run in pairs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to read before trusting the numbers, each with the name of its system."""
        told = tuple(f"{system.label}: {told}" for system in self.systems for told in system.warnings)
        return (*told, *self.mixed_versions)

    @property
    def mixed_versions(self) -> tuple[str, ...]:
        """Warnings where systems follow different versions of one library."""
        found: dict[str, dict[str, list[str]]] = {}
        for system in self.systems:
            if name := system.profile["library"]:
                found.setdefault(name.partition("-")[0], {}).setdefault(name, []).append(system.label)
        return tuple(_differ(versions) for versions in found.values() if len(versions) > 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.compare/1``: SI units, unit in the key."""
        systems = [
            {
                "system": system.label,
                "topology": dict(system.topology),
                "profile": dict(system.profile),
                "configs": [dict(config) for config in system.configs],
                "warnings": list(system.warnings),
                **({"price": system.price.to_dict()} if system.price is not None else {}),
            }
            for system in self.systems
        ]
        rows = [
            {
                "grouping": row.grouping,
                "speedups": list(row.speedups),
                "verdicts": list(row.verdicts),
                "runs": [None if run is None else run.to_dict() for run in row.runs],
                **({"costs": [cost and cost.to_dict() for cost in self.costs(row)]} if self.priced else {}),
            }
            for row in self.rows
        ]
        refused = [refusal.to_dict() for refusal in self.refused]
        return {"schema": SCHEMA, "collsim": self.version, "systems": systems, "rows": rows, "refused": refused}

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each system of each row: what tells rows apart, then that of `Row.to_record`."""
        return [
            {
                "system": system.label,
                "topology": system.topology["name"],
                "profile": system.profile["name"],
                "calibrated": system.profile["calibrated"],
                **asked_of(system.configs[0] if system.configs else {}),
                "library": system.profile["library"],
                "grouping": row.grouping,
                "speedup": speedup,
                "verdict": verdict,
                **run.to_record(),
                **({} if cost is None else cost.to_dict()),
            }
            for row in self.rows
            for system, speedup, verdict, run, cost in zip(
                self.systems, row.speedups, row.verdicts, row.runs, self.costs(row), strict=True
            )
            if run is not None
        ]

    def _refused_records(self) -> list[dict[str, Any]]:
        return [{"system": each.system, "refused": each.what} for each in self.refused]

    def _caption(self) -> str:
        return ", ".join(system.label for system in self.systems)

    def _listed(self) -> list[dict[str, str]]:
        return [
            {
                "op": row.any.op,
                "ranks": row.who,
                "size (B)": str(row.any.size_bytes),
                "system": system.label,
                "algo": run.label if run else "",
                "time (us)": f"{run.time_s * 1e6:.2f}" if run else "refused",
                "busbw (GB/s)": f"{run.busbw_Bps / 1e9:.2f}" if run else "",
                "speedup (x)": "" if speedup is None else f"{speedup:.3g}",
                "verdict": verdict or "",
                "limited by": run.limited_by if run else "",
            }
            for row in self.rows
            for system, run, speedup, verdict in zip(self.systems, row.runs, row.speedups, row.verdicts, strict=True)
        ]

    def _shown(self) -> list[dict[str, str]]:
        return [_shown(row, self.systems) for row in self.rows]


def _differ(versions: Mapping[str, Sequence[str]]) -> str:
    """Return the warning about versions of one library, each with the systems that follow it."""
    whose = ", ".join(f"{name} on {' and '.join(labels)}" for name, labels in versions.items())
    return f"library versions differ, and with them choices and channels: {whose}; --library takes one for all"


def _shown(row: ComparedRow, systems: Sequence[ComparedSystem]) -> dict[str, str]:
    """Headings and texts of a row, the systems side by side."""
    shown = {"op": row.any.op, "ranks": row.who, "size (B)": str(row.any.size_bytes)}
    for system, run, speedup, verdict in zip(systems, row.runs, row.speedups, row.verdicts, strict=True):
        own = {
            "algo": run.label if run else "",
            "time (us)": f"{run.time_s * 1e6:.2f}" if run else "",
            "low (us)": _us(run.time_lo_s if run else None),
            "high (us)": _us(run.time_hi_s if run else None),
            "busbw (GB/s)": f"{run.busbw_Bps / 1e9:.2f}" if run else "",
            "speedup (x)": "" if speedup is None else f"{speedup:.3g}",
            "verdict": verdict or "",
            "limited by": run.limited_by if run else "",
        }
        shown |= {f"{system.label} {heading}": text for heading, text in own.items()}
    return shown


def _us(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s * 1e6:.2f}"
