"""Bus bandwidth over size as a picture: prediction with its interval, bound, and measured points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

from collsim.core.errors import Fault, InputError
from collsim.core.kinds import shown
from collsim.core.operations import operation
from collsim.core.units import format_size
from collsim.simulation.row import Row

__all__ = ["Curve", "curves_of", "draw", "points_of"]

COLOURS = ("#3b7dd8", "#d9822b", "#2e9d6a", "#b8508f", "#7a6bd1", "#8a8a2e")
"""Told apart on white and on black."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Bus bandwidth by size: predicted, its interval (None without one), and at the lower bound; bytes/s."""

    label: str
    sizes_bytes: tuple[int, ...]
    busbw_Bps: tuple[float, ...]
    low_Bps: tuple[float | None, ...]
    high_Bps: tuple[float | None, ...]
    bound_Bps: tuple[float | None, ...]


def curves_of(rows: Iterable[Row]) -> list[Curve]:
    """Return one curve for each operation, number of ranks and algorithm or choice that was asked for.

    Where a choice has several rows of one size, as ``all`` has, each of its algorithms is a curve.
    """
    found: dict[tuple[str, int, int, str], list[Row]] = {}
    rows = list(rows)
    named = [(row.op, row.groups, row.ranks, row.asked or row.algo) for row in rows]
    sizes = Counter((*name, row.size_bytes) for name, row in zip(named, rows, strict=True))
    split = {key[:4] for key, number in sizes.items() if number > 1}
    for name, row in zip(named, rows, strict=True):
        found.setdefault((*name[:3], row.algo) if name in split else name, []).append(row)
    several = len({key[-1] for key in found}) > 1
    return [_curve(key, sorted(rows, key=lambda row: row.size_bytes), several) for key, rows in found.items()]


def _curve(key: tuple[str, int, int, str], rows: Sequence[Row], several: bool) -> Curve:
    op, groups, ranks, asked = key
    who = f"{groups} x {ranks}" if groups > 1 else str(ranks)

    def at(row: Row, time_s: float | None) -> float | None:
        return row.size_bytes * operation(op).busbw_factor(ranks) / time_s if time_s else None

    return Curve(
        f"{op}, {who} ranks" + f", {asked}" * several,
        tuple(row.size_bytes for row in rows),
        tuple(row.busbw_Bps for row in rows),
        tuple(at(row, row.time_hi_s) for row in rows),
        tuple(at(row, row.time_lo_s) for row in rows),
        tuple(at(row, row.lower_bound_s) for row in rows),
    )


def points_of(measured: Any) -> list[tuple[int, float]]:
    """Return measured points, size in bytes and bytes/s: of a mapping, or of the rows of a `Validation`."""
    if measured is None:
        return []
    hint = "pass what collsim.validate returns, or {67108864: 290e9}"
    if isinstance(measured, Mapping):
        wrong = [pair for pair in measured.items() if not all(map(_is_positive, pair))]
        if wrong:
            what = f"{shown(wrong[0][0])}: {shown(wrong[0][1])} is not a size in bytes and a rate in bytes/s"
            raise InputError(Fault(what, "measured", hint))
        return sorted(measured.items())
    rows = list(measured) if isinstance(measured, Iterable) else []
    if not rows or not all(hasattr(row, "measured_busbw_Bps") for row in rows):
        raise InputError(Fault(f"{shown(measured)} has no measured rows", "measured", hint))
    return [(row.case.size_bytes, row.measured_busbw_Bps) for row in rows]


def _is_positive(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value) and float(value) > 0


def draw(curves: Sequence[Curve], points: Sequence[tuple[int, float]], title: str, ax: Any = None) -> Any:
    """Draw curves and points; returns the axes.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    InputError
        *ax* is no axes.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("matplotlib is not installed: pip install 'collsim[plot]'") from None
    if ax is not None and not hasattr(ax, "plot"):
        raise InputError(Fault(f"{shown(ax)} is no axes", "ax", "pass axes of matplotlib, or nothing for a new figure"))
    if ax is None:
        _, ax = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for place, curve in enumerate(curves):
        _draw(ax, curve, COLOURS[place % len(COLOURS)])
    _draw_bounds(ax, curves)
    if points:
        sizes, rates = zip(*points, strict=True)
        ax.plot(sizes, [rate / 1e9 for rate in rates], "o", mfc="none", color="#808080", label="measured")
    ax.set_xscale("log", base=2)
    ticks = sorted({size for curve in curves for size in curve.sizes_bytes} | {size for size, _ in points})
    ticks = ticks[:: max(1, -(-len(ticks) // 8))]
    ax.set_xticks(ticks, [format_size(size) for size in ticks])
    ax.set_ylim(bottom=0)
    ax.set_ylabel("busbw (GB/s)")
    ax.set_title(title, fontsize="medium")
    ax.grid(alpha=0.3)
    _show_legend(ax)
    return ax


def _draw(ax: Any, curve: Curve, colour: str) -> None:
    """Draw one curve: a line, and the band around it."""
    sizes = curve.sizes_bytes
    ax.plot(sizes, [rate / 1e9 for rate in curve.busbw_Bps], "-", color=colour, label=curve.label)
    band = [
        (size, low / 1e9, high / 1e9)
        for size, low, high in zip(sizes, curve.low_Bps, curve.high_Bps, strict=True)
        if low and high
    ]
    if band:
        ax.fill_between(*zip(*band, strict=True), color=colour, alpha=0.2, lw=0, label="90 % of measured times")


def _draw_bounds(ax: Any, curves: Sequence[Curve]) -> None:
    """Draw each bound once, as dashes: in grey if all curves share it, else in the colour of the first that has it."""
    bounds: dict[tuple[tuple[int, float], ...], str] = {}
    for place, curve in enumerate(curves):
        rates = zip(curve.sizes_bytes, curve.bound_Bps, strict=True)
        bounds.setdefault(tuple((size, rate / 1e9) for size, rate in rates if rate), COLOURS[place % len(COLOURS)])
    bounds.pop((), None)
    for bound, colour in bounds.items():
        ax.plot(*zip(*bound, strict=True), "--", color=colour if len(bounds) > 1 else "#808080", lw=1, label="bound")


def _show_legend(ax: Any) -> None:
    """Name each thing once, however often it is drawn."""
    handles, labels = ax.get_legend_handles_labels()
    once = dict(zip(reversed(labels), reversed(handles), strict=True))
    ax.legend([once[label] for label in dict.fromkeys(labels)], dict.fromkeys(labels), frameon=False)
