"""Bus bandwidth over size as SVG, for a page that has the colours: curves with bands, bounds, and measured points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from collsim.core.units import format_size
from collsim.simulation.busbw_plot import Curve

__all__ = ["SERIES", "bandwidth_curves"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 920, 360, 64, 30, 16, 44
SERIES = 6
"""Colours of curves that a page has: classes ``s0`` to ``s5``."""
MOST_TICKS = 10
MOST_ABOVE = 1.6
"""Bands reach so far above all else, times the highest curve or point; wider ones are cut off there."""
Points = Sequence[tuple[int, float]]


class _Axes:
    """Where sizes and rates stand: sizes on a logarithmic axis, rates from 0 on."""

    def __init__(self, sizes: Sequence[int], most_Bps: float) -> None:
        self.low, self.high = math.log2(min(sizes)), math.log2(max(sizes))
        self.step_Bps = _step(most_Bps / 5)
        self.top_Bps = self.step_Bps * math.ceil(most_Bps / self.step_Bps * 1.001)

    def x(self, size: float) -> float:
        span = self.high - self.low
        share = (math.log2(size) - self.low) / span if span else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, rate_Bps: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(rate_Bps / self.top_Bps, 1.0))


def _step(least: float) -> float:
    """Return the round number, 1, 2 or 5 times a power of ten, from *least* on.

    >>> _step(3e9), _step(0.9)
    (5000000000.0, 1.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def bandwidth_curves(curves: Sequence[Curve], measured: Sequence[tuple[str, Points]], title: str) -> str:
    """Return the picture; the n-th curve has class ``s`` and n modulo `SERIES`, measured points ``m``.

    Raises
    ------
    ValueError
        There is neither a curve nor a point.
    """
    sizes = [size for curve in curves for size in curve.sizes_bytes]
    sizes += [size for _, points in measured for size, _ in points]
    rates = [rate for curve in curves for rate in (*curve.busbw_Bps, *filter(None, curve.bound_Bps))]
    rates += [rate for _, points in measured for _, rate in points]
    bands = [rate for curve in curves for rate in curve.high_Bps if rate is not None]
    axes = _Axes(sizes, max(*rates, min(max(bands, default=0.0), MOST_ABOVE * max(rates))))
    body = [*_grid(axes, sorted(set(sizes)))]
    for place, curve in enumerate(curves):
        body += _curve(axes, curve, f"s{place % SERIES}")
    for name, points in measured:
        body += _points(axes, name, points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">\n' + "\n".join(body) + "\n</svg>\n"
    )


def _grid(axes: _Axes, sizes: Sequence[int]) -> Iterator[str]:
    """Yield lines and labels of both axes."""
    bottom = HEIGHT - BOTTOM
    for number in range(round(axes.top_Bps / axes.step_Bps) + 1):
        y = axes.y(number * axes.step_Bps)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        label = f"{number * axes.step_Bps / 1e9:g}"
        yield f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for size in sizes[:: max(1, -(-len(sizes) // MOST_TICKS))]:
        x = axes.x(size)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
        yield f'<text class="soft" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{format_size(size)}</text>'
    yield f'<text class="soft" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">size</text>'
    yield (
        f'<text class="soft" x="16" y="{(TOP + bottom) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 16 {(TOP + bottom) / 2})">busbw (GB/s)</text>'
    )


def _curve(axes: _Axes, curve: Curve, look: str) -> Iterator[str]:
    """Yield the band, the bound and the curve of one prediction, and a dot with its figures at each size."""
    sizes = curve.sizes_bytes
    sure = [
        (size, low, high)
        for size, low, high in zip(sizes, curve.low_Bps, curve.high_Bps, strict=True)
        if low is not None and high is not None
    ]
    if len(sure) > 1:
        around = [(size, high) for size, _, high in sure] + [(size, low) for size, low, _ in sure[::-1]]
        yield f'<polygon class="band {look}" points="{_path(axes, around)}"/>'
    for size, low, high in sure:
        x = axes.x(size)
        yield f'<line class="whisker {look}" x1="{x:.1f}" x2="{x:.1f}" y1="{axes.y(low):.1f}" y2="{axes.y(high):.1f}"/>'
    bound = [(size, rate) for size, rate in zip(sizes, curve.bound_Bps, strict=True) if rate]
    if len(bound) > 1:
        yield f'<polyline class="bound {look}" points="{_path(axes, bound)}"/>'
    rows = list(zip(sizes, curve.busbw_Bps, strict=True))
    if len(rows) > 1:
        yield f'<polyline class="curve {look}" points="{_path(axes, rows)}"/>'
    for size, rate in rows:
        told = f"{curve.label}, {format_size(size)}: {rate / 1e9:.4g} GB/s"
        yield (
            f'<circle class="dot {look}" cx="{axes.x(size):.1f}" cy="{axes.y(rate):.1f}" r="3.2">'
            f"<title>{escape(told)}</title></circle>"
        )


def _points(axes: _Axes, name: str, points: Points) -> Iterator[str]:
    """Yield a ring for each measured point."""
    for size, rate in points:
        told = f"measured, {name}, {format_size(size)}: {rate / 1e9:.4g} GB/s"
        yield (
            f'<circle class="m" cx="{axes.x(size):.1f}" cy="{axes.y(rate):.1f}" r="4.6">'
            f"<title>{escape(told)}</title></circle>"
        )


def _path(axes: _Axes, points: Sequence[tuple[int, float]]) -> str:
    return " ".join(f"{axes.x(size):.1f},{axes.y(rate):.1f}" for size, rate in points)
