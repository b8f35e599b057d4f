"""Residuals of a fit as SVG: error against size, one panel for each kernel, one colour for each operation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from collsim.calibration.findings import Residual

__all__ = ["residual_plot"]

WIDTH, PANEL, LEFT, RIGHT = 920, 200, 70, 30
CAPTION, LEGEND, LINE = 42, 64, 18
"""Heights of the baselines of the caption and of the first line of the legend, and of a line."""
ENTRY = 120
"""Width of an entry of the legend: the longest name of an operation takes 95."""
ENTRIES = (WIDTH - LEFT - RIGHT) // ENTRY
INNER = PANEL - 50
MOST = 0.5
"""Errors beyond this are drawn at the edge, as triangles."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#999933", "#882255", "#44aa99")
"""Told apart by colour-blind readers too (after Okabe and Ito)."""
STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.g{stroke:#8884;stroke-width:1}"
    ".z{stroke:#888;stroke-width:1.2}.o{fill-opacity:.75}"
    "@media(prefers-color-scheme:dark){svg{background:#181a1b}text{fill:#ddd}}</style>"
)


def residual_plot(residuals: Sequence[Residual], title: str) -> str:
    """Return the picture; a point is a row, above the line if the prediction is too long."""
    families = list(dict.fromkeys(f"{entry.family}, {entry.launch}" for entry in residuals))
    ops = list(dict.fromkeys(entry.op for entry in residuals))
    legend = list(_legend(ops))
    first = LEGEND + LINE * _lines(ops)
    height = first + PANEL * len(families) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">',
        STYLE,
        f'<text class="t" x="{LEFT}" y="22">{escape(title)}</text>',
        f'<text x="{LEFT}" y="{CAPTION}">predicted / measured time - 1, by size in bytes; '
        f"triangles: beyond {MOST:.0%}</text>",
        *legend,
    ]
    sizes = [entry.size_bytes for entry in residuals]
    for place, family in enumerate(families):
        rows = [entry for entry in residuals if f"{entry.family}, {entry.launch}" == family]
        parts += _panel(rows, family, ops, first + place * PANEL, (min(sizes), max(sizes)))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _lines(ops: Sequence[str]) -> int:
    """Return the number of lines that the legend takes."""
    return math.ceil(len(ops) / ENTRIES)


def _legend(ops: Sequence[str]) -> Iterator[str]:
    """Yield the names of the operations beside their colours, on as many lines as they need."""
    for place, op in enumerate(ops):
        x, y = LEFT + 4 + place % ENTRIES * ENTRY, LEGEND + place // ENTRIES * LINE
        yield f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{COLOURS[place % len(COLOURS)]}"/>'
        yield f'<text x="{x + 8}" y="{y}">{op}</text>'


def _panel(rows: Sequence[Residual], name: str, ops: Sequence[str], top: int, span: tuple[int, int]) -> Iterator[str]:
    """Yield axes and points of one kernel."""
    low, high = (math.log2(max(size, 1)) for size in span)

    def x(size: float) -> float:
        return LEFT + (math.log2(max(size, 1)) - low) / max(high - low, 1.0) * (WIDTH - LEFT - RIGHT)

    def y(error: float) -> float:
        return top + 24 + INNER / 2 * (1 - min(max(error, -MOST), MOST) / MOST)

    yield f'<text x="{LEFT}" y="{top + 16}">{escape(name)}: {len(rows)} rows</text>'
    for error in (-MOST, -0.1, 0.0, 0.1, MOST):
        kind = "z" if error == 0 else "g"
        yield f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(error):.1f}" y2="{y(error):.1f}"/>'
        label = f"{error:+.0%}" if error else "0"
        yield f'<text x="{LEFT - 8}" y="{y(error) + 4:.1f}" text-anchor="end">{label}</text>'
    for power in range(int(low), int(high) + 1, 4):
        yield f'<text x="{x(2**power):.1f}" y="{top + 24 + INNER + 16}" text-anchor="middle">{_size(2**power)}</text>'
    for entry in rows:
        colour = COLOURS[ops.index(entry.op) % len(COLOURS)]
        error = entry.predicted_s / entry.measured_s - 1
        told = f"{entry.op}, {entry.ranks} ranks, {entry.size_bytes} bytes, {entry.proto}: {error:+.1%}"
        mark = _mark(x(entry.size_bytes), y(error), error)
        yield f'<{mark} class="o" fill="{colour}"><title>{escape(told)}</title></{mark.split()[0]}>'


def _mark(x: float, y: float, error: float) -> str:
    """Return the tag of a point: a circle, or a triangle that points to where an error beyond the edge would be."""
    if abs(error) <= MOST:
        return f'circle cx="{x:.1f}" cy="{y:.1f}" r="3"'
    tip = -5 if error > 0 else 5
    return f'path d="M{x:.1f} {y + tip:.1f}l4 {-1.6 * tip:.0f}h-8z"'


def _size(size_bytes: int) -> str:
    """Return a power of two as nccl-tests writes it."""
    for unit, power in (("G", 30), ("M", 20), ("K", 10)):
        if size_bytes >= 2**power:
            return f"{size_bytes >> power}{unit}"
    return str(size_bytes)
