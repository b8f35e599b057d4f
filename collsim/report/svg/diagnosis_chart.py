"""A diagnosis as SVG: rates by size as parts of the healthy one: measured, the band of it, and the best causes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from collsim.core.errors import Fault, InputError
from collsim.core.operations import operation
from collsim.core.units import format_size
from collsim.diagnosis.findings import DiagnosedLog, Diagnosis

__all__ = ["diagnosis_chart"]

WIDTH, LEFT, RIGHT, TOP, INNER, LINE = 920, 78, 30, 62, 340, 20
MOST_CAUSES = 3
COLOURS = ("#d55e00", "#009e73", "#cc79a7")
"""Of the causes; told apart by colour-blind readers too (after Okabe and Ito)."""
DASHES = ("", "8 4", "2 4")
MOST_TICKS = 9
MOST_SHARE = 2.0
"""What is faster is drawn at the edge."""
STEP = 0.25
LONGEST = 96
"""Characters of a line of the legend."""
STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.g{stroke:#8884;stroke-width:1}"
    ".b{fill:#0072b2;fill-opacity:.15}.h{stroke:#0072b2}.m{fill:#222}line,polyline{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){svg{background:#181a1b}text,.m{fill:#ddd}}</style>"
)


class _Axes:
    """Where sizes and shares stand: sizes on a logarithmic axis, shares of the healthy rate from 0 on."""

    def __init__(self, sizes: Sequence[int], shares: Sequence[float]) -> None:
        self.low, self.high = math.log2(min(sizes)), math.log2(max(sizes))
        self.most = min(MOST_SHARE, max(1.25, *shares))

    def x(self, size: float) -> float:
        return LEFT + (math.log2(size) - self.low) / max(self.high - self.low, 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(self, share: float) -> float:
        return TOP + INNER * (1 - min(share, self.most) / self.most)


def diagnosis_chart(diagnosis: Diagnosis) -> str:
    """Return the picture of the first log that is not healthy, of the first if all are."""
    drawn = [log for log in diagnosis.logs if log.sizes]
    if not drawn:
        what = "no time of the logs is possible: there is nothing to draw"
        raise InputError(Fault(what, "format", "--format table lists the times and what bounds them"))
    log = next((log for log in drawn if log.curves), drawn[0])
    factor = operation(log.log.case.op).busbw_factor(log.log.case.ranks) / 1e9

    def shares(times_s: Sequence[float]) -> list[float]:
        return [healthy_s / time_s for healthy_s, time_s in zip(log.healthy.times_s, times_s, strict=True)]

    causes = [(curve, shares(curve.times_s)) for curve in log.curves[:MOST_CAUSES]]
    measured, band = shares(log.measured_s), (shares(log.low_s), shares(log.high_s))
    everything = [*measured, *band[0], *(share for _, row in causes for share in row)]
    axes = _Axes(log.sizes, everything)
    title = f"{log.log.case.op}, {log.log.case.ranks} ranks of {diagnosis.topology['name']}: {log.verdict}"
    legend = list(_legend(diagnosis, log))
    height = TOP + INNER + 56 + LINE * (len(legend) // 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">',
        STYLE,
        f'<text class="t" x="{LEFT}" y="22">{escape(title)}</text>',
        f'<text x="{LEFT}" y="42">bus bandwidth as a part of that of a healthy machine, by size; '
        f"{escape(log.log.file)}</text>",
        *_grid(axes),
        f'<polygon class="b" points="{_points(axes, log.sizes, band[0])} '
        f'{_points(axes, log.sizes[::-1], band[1][::-1])}"/>',
        f'<polyline class="h" points="{_points(axes, log.sizes, [1.0] * len(log.sizes))}"/>',
        *(
            f'<polyline stroke="{colour}" stroke-dasharray="{dash}" points="{_points(axes, log.sizes, row)}"/>'
            for (_, row), colour, dash in zip(causes, COLOURS, DASHES, strict=False)
        ),
        *(
            f'<circle class="m" cx="{axes.x(size):.1f}" cy="{axes.y(share):.1f}" r="4"><title>{format_size(size)}: '
            f"{factor * size / time_s:.4g} GB/s, {share:.0%}</title></circle>"
            for size, time_s, share in zip(log.sizes, log.measured_s, measured, strict=True)
        ),
        *legend,
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _points(axes: _Axes, sizes: Sequence[int], shares: Sequence[float]) -> str:
    return " ".join(f"{axes.x(size):.1f},{axes.y(rate):.1f}" for size, rate in zip(sizes, shares, strict=True))


def _grid(axes: _Axes) -> Iterator[str]:
    """Yield lines and labels: sizes below, shares in quarters."""
    bottom = TOP + INNER
    every = max(1, math.ceil((axes.high - axes.low) / MOST_TICKS))
    for power in range(math.ceil(axes.low), math.floor(axes.high) + 1, every):
        x = axes.x(2**power)
        yield f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{format_size(2**power)}</text>'
    for step in range(int(axes.most / STEP) + 1):
        y = axes.y(step * STEP)
        yield f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{step * STEP:.0%}</text>'


def _legend(diagnosis: Diagnosis, log: DiagnosedLog) -> Iterator[str]:
    """Yield a mark and a text for each curve, with how far it is off."""
    line = '<line class="h" x1="{a}" x2="{b}" y1="{y}" y2="{y}"/>'
    entries = [
        ("measured", '<circle class="m" cx="{x}" cy="{y}" r="4"/>'),
        (f"healthy, with its interval: off by {log.healthy.rms:.0%}", line),
    ]
    titles = {found.suspects[0].name: found for found in diagnosis.findings}
    for curve, colour, dash in zip(log.curves[:MOST_CAUSES], COLOURS, DASHES, strict=False):
        found = titles[curve.name]
        others = ", ".join(suspect.name for suspect in found.told[1:])
        others = f" (or {others})" if others else ""
        mark = f'<line stroke="{colour}" stroke-dasharray="{dash}" x1="{{a}}" x2="{{b}}" y1="{{y}}" y2="{{y}}"/>'
        entries.append((f"off by {curve.rms:.0%}: {found.suspects[0].title}{others}", mark))
    for place, (text, mark) in enumerate(entries):
        y = TOP + INNER + 46 + LINE * place
        yield mark.format(x=LEFT + 14, a=LEFT, b=LEFT + 28, y=y - 4)
        short = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        yield f'<text x="{LEFT + 38}" y="{y}">{escape(short)}</text>'
