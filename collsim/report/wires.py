"""Columns on demand that tell wires from bandwidths of benchmarks: rates, bytes by tier, bounds of algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from collsim.core.errors import Faults, UnknownNameError
from collsim.report.nccl import time_text
from collsim.report.sheet import Column
from collsim.simulation.row import Row, TierLoad

__all__ = ["SETS", "Wires", "check_sets", "wire_columns", "wire_notes", "wires_of"]

T = TypeVar("T")
SETS = ("rates", "bytes", "bounds")
"""Sets of columns that ``--columns`` takes."""
NAMES = {"node": "GPU", "bus": "bus", "adapter": "adapter", "fabric": "spine"}
"""Headings of tiers."""


class Wires(NamedTuple):
    """What a row puts on wires in *time_s*, measured or predicted, with both bounds of the algorithm that ran."""

    tiers: tuple[TierLoad, ...]
    time_s: float
    algo_bound_s: float
    busbw_Bps: float
    op: str
    algo: str


def wires_of(row: Row) -> Wires:
    """Return what a predicted row puts on wires."""
    return Wires(row.tiers, row.time_s, row.algo_bound_s, row.busbw_Bps, row.op, row.algo)


def check_sets(text: str | None, faults: Faults) -> tuple[str, ...]:
    """Return the sets of columns that a flag names; unknown ones are added to *faults*."""
    named = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    for name in named:
        if name not in SETS:
            faults.append(UnknownNameError("set of columns", name, SETS, "columns").faults[0])
    return tuple(name for name in SETS if name in named)


def wire_columns(sets: Sequence[str], wires: Callable[[T], Wires | None]) -> list[Column[T]]:
    """Return the columns of some sets; *wires* returns what a row puts on wires, None of a row without an answer."""
    columns: list[Column[T]] = []
    if "rates" in sets:
        for tier in ("node", "adapter"):
            columns += [_rate(wires, tier, 1e9, "(GB/s)"), _rate(wires, tier, 1e9 / 8, "(Gb/s)")]
    if "bytes" in sets:
        columns += [_bytes(wires, tier) for tier in NAMES]
    if "bounds" in sets:
        columns += [
            Column("own bound", _told(wires, lambda row: time_text(row.algo_bound_s)), "(us)", 9),
            Column("own eff", _told(wires, lambda row: f"{row.algo_bound_s / row.time_s * 100:.1f}"), "(%)", 7),
        ]
    return columns


def _told(wires: Callable[[T], Wires | None], text: Callable[[Wires], str]) -> Callable[[T], str]:
    def cell(row: T) -> str:
        found = wires(row)
        return "" if found is None or found.time_s <= 0 or not found.tiers else text(found)

    return cell


def _load(wires: Wires, tier: str) -> TierLoad | None:
    return next((load for load in wires.tiers if load.tier == tier), None)


def _rate(wires: Callable[[T], Wires | None], tier: str, unit_Bps: float, unit: str) -> Column[T]:
    def text(row: Wires) -> str:
        load = _load(row, tier)
        return "" if load is None else f"{load.sent_bytes / row.time_s / unit_Bps:.1f}"

    return Column(f"{NAMES[tier]} wire", _told(wires, text), unit, 8)


def _bytes(wires: Callable[[T], Wires | None], tier: str) -> Column[T]:
    def text(row: Wires) -> str:
        load = _load(row, tier)
        return "" if load is None else f"{load.sent_bytes:.4g}"

    return Column(f"{NAMES[tier]} sends", _told(wires, text), "(B)", 9)


def wire_notes(rows: Iterable[Wires]) -> list[str]:
    """Return why the busbw of some algorithms is above the line rate of adapters, a sentence for each.

    That of an all-reduce counts what a node would send over all of its adapters; that of an all-to-all what each rank
    sends, to ranks of its own node, too.
    """
    most: dict[str, float] = {}
    carried: dict[str, float] = {}
    for row in rows:
        bus, adapter = _load(row, "bus"), _load(row, "adapter")
        if bus is None or adapter is None or row.time_s <= 0:
            continue
        if row.op == "all_reduce" and row.busbw_Bps > adapter.line_Bps * bus.node_bytes / adapter.sent_bytes:
            most[row.algo] = max(most.get(row.algo, 0.0), row.busbw_Bps * row.time_s / bus.node_bytes)
        if row.op == "all_to_all" and row.busbw_Bps > adapter.line_Bps:
            carried[row.algo] = max(carried.get(row.algo, 0.0), adapter.sent_bytes / row.time_s)
    return [
        f"{algo}: busbw is above the rate of the adapters, as it counts up to {ratio:.3g} times what a node sends over "
        "them: less than the ring that it assumes. It is no rate of a wire (--columns rates)"
        for algo, ratio in most.items()
    ] + [
        f"{algo}: busbw is above the rate of an adapter, as it counts messages within the node, too; an adapter "
        f"carries {rate_Bps / 1e9:.3g} GB/s (--columns rates)"
        for algo, rate_Bps in carried.items()
    ]
