"""Bytes from rank to rank as SVG: one shade per cell, lines between nodes, and a legend in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from collsim.core.units import format_bytes
from collsim.moe.result import MoeResult, MoeRow

__all__ = ["byte_map_svg"]

SIDE, LEFT, TOP, RIGHT, BOTTOM = 640, 76, 84, 150, 56
SHADES = 24
LIGHT, MIDDLE, DARK = (247, 251, 255), (66, 146, 198), (8, 30, 88)
"""From nothing to the most, told apart by colour-blind readers and in grey too."""
MOST_TICKS = 8
STYLE = (
    "text{font:12px sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.n{stroke:#d55e00;stroke-width:1;fill:none}"
    ".f{stroke:#888;fill:none}@media(prefers-color-scheme:dark){svg{background:#181a1b}text{fill:#ddd}}"
)


def byte_map_svg(result: MoeResult) -> str:
    """Return the byte matrix of the only dispatch of *result*, source ranks downwards, target ranks to the right.

    Cells of one shade are one path, in which each cell is one ``M``; those of nothing have the lightest shade.
    """
    row = result.rows[0]
    n, most = row.ranks, max(max(line) for line in row.matrix_bytes)
    title = f"Bytes of dispatch from rank to rank: {result.model['name']} on {n} GPUs of {result.topology['name']}"
    told = f"routing {result.routing}, placement {result.placement}, mode {result.config['mode']}; " + (
        "expected" if row.seed is None else f"sample {row.seed}"
    )
    width, height = LEFT + SIDE + RIGHT, TOP + SIDE + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="t" x="{LEFT}" y="28">{escape(title)}</text>',
        f'<text x="{LEFT}" y="48">{escape(told)}</text>',
        f'<text x="{LEFT}" y="66">lines lie between nodes; what is on the diagonal stays where it is</text>',
        f'<g transform="translate({LEFT} {TOP}) scale({SIDE / n:.6g})" shape-rendering="crispEdges">',
        *_cells(row.matrix_bytes, most),
        "</g>",
        *_borders(row),
        *_axes(n),
        *_legend(most),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shade(size_bytes: int, most: int) -> int:
    """Return the shade of a cell: 0 for nothing, `SHADES` for the most."""
    return -(-size_bytes * SHADES // most) if most else 0


def _colour(shade: int) -> str:
    """Return a shade between light and dark, by way of the middle."""
    share = 2 * shade / SHADES
    a, b, part = (LIGHT, MIDDLE, share) if share <= 1 else (MIDDLE, DARK, share - 1)
    return "#" + "".join(f"{round(x + (y - x) * part):02x}" for x, y in zip(a, b, strict=True))


def _cells(matrix: Sequence[Sequence[int]], most: int) -> Iterator[str]:
    """Yield one path for each shade."""
    found: dict[int, list[str]] = {}
    for source, line in enumerate(matrix):
        for target, size_bytes in enumerate(line):
            found.setdefault(_shade(size_bytes, most), []).append(f"M{target} {source}h1v1h-1z")
    for shade, cells in sorted(found.items()):
        yield f'<path class="c" fill="{_colour(shade)}" d="{"".join(cells)}"/>'


def _borders(row: MoeRow) -> Iterator[str]:
    """Yield the frame, and lines where one node ends and the next begins."""
    yield f'<rect class="f" x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>'
    first = 0
    for size in row.node_sizes[:-1]:
        first += size
        at = SIDE * first / row.ranks
        yield f'<path class="n" d="M{LEFT + at:.2f} {TOP}v{SIDE}M{LEFT} {TOP + at:.2f}h{SIDE}"/>'


def _axes(n: int) -> Iterator[str]:
    """Yield the numbers of ranks and what the axes are."""
    step = next(step for step in (1, 2, 4, 8, 16, 32, 64) if n / step <= MOST_TICKS or step == 64)
    for rank in range(0, n, step):
        at = SIDE * (rank + 0.5) / n
        yield f'<text x="{LEFT + at:.1f}" y="{TOP + SIDE + 18}" text-anchor="middle">{rank}</text>'
        yield f'<text x="{LEFT - 8}" y="{TOP + at + 4:.1f}" text-anchor="end">{rank}</text>'
    middle = SIDE / 2
    yield f'<text x="{LEFT + middle:.0f}" y="{TOP + SIDE + 42}" text-anchor="middle">to rank</text>'
    x, y = 22, TOP + middle
    yield f'<text x="{x}" y="{y:.0f}" text-anchor="middle" transform="rotate(-90 {x} {y:.0f})">from rank</text>'


def _legend(most: int) -> Iterator[str]:
    """Yield the shades from the most down to nothing, with their bytes."""
    x, high = LEFT + SIDE + 26, SIDE / 2 / SHADES
    for shade in range(1, SHADES + 1):
        y = TOP + (SHADES - shade) * high
        yield f'<rect x="{x}" y="{y:.1f}" width="18" height="{high + 0.3:.1f}" fill="{_colour(shade)}"/>'
    yield f'<rect class="f" x="{x}" y="{TOP}" width="18" height="{SIDE / 2:g}"/>'
    for quarter in range(5):
        y = TOP + SIDE / 2 * (1 - quarter / 4)
        yield f'<text x="{x + 26}" y="{y + 4:.1f}">{format_bytes(most * quarter / 4)}</text>'
