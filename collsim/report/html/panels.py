"""Parts of a page that several documents have: curves of bus bandwidth, and rows as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from types import SimpleNamespace
from typing import Any, cast

from collsim.core.units import format_size
from collsim.explanation.contents import Measured
from collsim.report.html.marks import figure, legend, table
from collsim.report.svg.bandwidth_curves import SERIES, bandwidth_curves
from collsim.simulation.busbw_plot import Curve, curves_of
from collsim.simulation.row import Row

__all__ = ["MOST_ROWS", "curves_by_op", "panel", "panels", "plain_table"]

MOST_ROWS = 60
MOST_COLUMNS = 10
SIZE = "size_bytes"
COUNTS = range(2, 100)
"""Such floats are counts, and have no decimals."""
WHOLE = 1000
"""Rates a second from here on have no decimals."""
HEADS = (
    "size", "algorithm", "time (us)", "low (us)", "high (us)", "busbw (GB/s)", "bound (us)", "eff", "limited by",
)  # fmt: skip


def curves_by_op(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], list[Curve]]:
    """Return the curves of rows by operation and ranks."""
    found: dict[tuple[str, int], list[Curve]] = {}
    for op, ranks in dict.fromkeys((row["op"], row["ranks"]) for row in rows):
        own = [cast(Row, SimpleNamespace(**row)) for row in rows if (row["op"], row["ranks"]) == (op, ranks)]
        found[op, ranks] = curves_of(own)
    return found


def panels(
    curves: Mapping[tuple[str, int], Sequence[Curve]],
    measured: Sequence[Measured],
    rows: Sequence[Mapping[str, Any]] = (),
) -> Iterator[str]:
    """Yield a picture for each operation and number of ranks, with what was measured of it, and its rows below."""
    for (op, ranks), own in curves.items():
        points = [(each.name, each.points) for each in measured if (each.op, each.ranks) == (op, ranks)]
        yield f"<h3>Bus bandwidth: {escape(op)} on {ranks} ranks</h3>"
        shown = sorted(own, key=lambda curve: -curve.busbw_Bps[-1])[:SERIES] if len(own) > SERIES else own
        yield panel(shown, points, f"bus bandwidth of {op} on {ranks} ranks")
        if len(shown) < len(own):
            yield f'<p class="soft">The {SERIES} fastest at the largest size of {len(own)} curves.</p>'
        if below := [row for row in rows if (row["op"], row["ranks"]) == (op, ranks)]:
            yield _run_table(below)


def panel(curves: Sequence[Curve], points: Sequence[tuple[str, Sequence[tuple[int, float]]]], title: str) -> str:
    """Return a picture of curves and points with its legend."""
    told = [(f"s{place % SERIES}", "line", curve.label) for place, curve in enumerate(curves)]
    each = "s0" if len(curves) == 1 else "each"
    if any(low is not None for curve in curves for low in curve.low_Bps):
        told.append((each, "area", "90 % of measured times (error band)"))
    if any(rate for curve in curves for rate in curve.bound_Bps):
        told.append((each, "dash", "bound: no algorithm is faster"))
    told += [("", "ring", f"measured, {name}") for name, _ in points]
    return figure(bandwidth_curves(curves, points, title), "") + legend(dict.fromkeys(told))


def _run_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of a run with what a reader asks of them first; columns in which no row has anything are left
    out.
    """
    every = [_run_cells(row) for row in rows[:MOST_ROWS]]
    kept = [i for i in range(len(HEADS)) if any(cells[i] for cells in every)]
    more = f'<p class="soft">{len(rows) - MOST_ROWS} more rows are in the file.</p>' * (len(rows) > MOST_ROWS)
    words = [place for place, i in enumerate(kept) if HEADS[i] in ("algorithm", "limited by")]
    return table([HEADS[i] for i in kept], [[cells[i] for i in kept] for cells in every], words) + more


def _run_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    def us(time_s: float | None) -> str:
        return "" if time_s is None else f"{time_s * 1e6:.2f}"

    algo = row["algo"] if row["proto"] is None else f"{row['algo']}/{row['proto']}"
    return (
        format_size(row["size_bytes"]), algo, us(row["time_s"]), us(row["time_lo_s"]), us(row["time_hi_s"]),
        f"{row['busbw_Bps'] / 1e9:.2f}", us(row["lower_bound_s"]), f"{row['efficiency']:.0%}", row["limited_by"],
    )  # fmt: skip


def plain_table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str] = ()) -> str:
    """Return rows of any kind as a table of some *keys*; by default of the first that hold one value each."""
    if not rows:
        return '<p class="soft">No rows.</p>'
    single = (str, int, float)
    by_default = [key for key, value in rows[0].items() if isinstance(value, single) and not isinstance(value, bool)]
    chosen = keys or by_default[:MOST_COLUMNS]
    keys = [key for key in chosen if any(row.get(key) not in (None, "", 0, 0.0) for row in rows)]
    units = [_unit(key, [row.get(key) for row in rows]) for key in keys]
    words = [i for i, key in enumerate(keys) if any(isinstance(row.get(key), str) for row in rows)]
    heads = [f"{name} ({unit})" if unit else name for name, unit, _ in units]
    cells = [[format_size(row[key]) if key == SIZE else _cell(row.get(key), factor)
              for key, (_, _, factor) in zip(keys, units, strict=True)] for row in rows[:MOST_ROWS]]  # fmt: skip
    more = f'<p class="soft">{len(rows) - MOST_ROWS} more rows are in the file.</p>' * (len(rows) > MOST_ROWS)
    return table(heads, cells, words) + more


def _unit(key: str, values: Sequence[Any] = ()) -> tuple[str, str, float | None]:
    """Return a key as words, the unit that its cells are in, and the factor to it from the unit of the key.

    >>> _unit("time_lo_s"), _unit("network_bytes"), _unit("tokens_per_s")
    (('time lo', 'us', 1000000.0), ('network', 'MB', 1e-06), ('tokens', '1/s', 1.0))
    >>> _unit("begin_s", [0.0, 19.0]), _unit("gain")
    (('begin', 's', 1.0), ('gain', '', None))
    """
    if key == SIZE:  # of a message, in powers of two as everywhere; bytes that links carry are counted by tens
        return "size", "", None
    most = max((abs(value) for value in values if isinstance(value, int | float)), default=0.0)
    seconds = ("s", 1.0) if most >= 1 else ("us", 1e6)
    known = (
        ("_load", ("%", 100.0)),
        ("_per_s", ("1/s", 1.0)),
        ("_Bps", ("GB/s", 1e-9)),
        ("_bytes", ("MB", 1e-6)),
        ("_s", seconds),
    )
    for suffix, (unit, factor) in known:
        if key.endswith(suffix):
            return key.removesuffix(suffix).replace("_", " "), unit, factor
    return key.replace("_", " "), "", None


def _cell(value: Any, factor: float | None) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if factor is not None:
        return f"{value * factor:,.0f}" if factor == 1.0 and abs(value) >= WHOLE else f"{value * factor:,.2f}"
    if isinstance(value, float):
        return f"{value:.2f}" if 0.1 <= abs(value) < 100 and value not in COUNTS else f"{value:,.4g}"
    return f"{value:,}"
