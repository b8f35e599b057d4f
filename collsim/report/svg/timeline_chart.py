"""A step as SVG: a row for each stream, a box for each kernel, and when collectives wait for their peers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from collsim.core.units import format_time
from collsim.timeline.analysis import short
from collsim.timeline.result import Event, TimelineResult

__all__ = ["timeline_svg"]

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 1200, 115, 20, 70, 44, 28
COLOURS = {"collective": "#d55e00", "matmul": "#0072b2", "memory": "#56b4e9", "stream": "#009e73"}
NAMES = {"collective": "collectives", "matmul": "tensor cores", "memory": "other kernels", "stream": "copies"}
LEAST_PX, LABEL_PX, CHARACTER_PX = 0.3, 60, 6.2
"""Narrower boxes are joined with their neighbours; boxes this wide have a name."""
STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.g{stroke:#8884}"
    ".b{fill:#fff;font-size:10px}.w{fill:#fff;fill-opacity:.45}"
    "@media(prefers-color-scheme:dark){svg{background:#181a1b}text{fill:#ddd}}</style>"
)


def timeline_svg(found: TimelineResult) -> str:
    """Return the picture of one step: the last one of a trace, which starts as those in a run do."""
    events, span_s = _last_step(found)
    streams = list(dict.fromkeys(event.stream for event in sorted(events, key=lambda event: event.stream)))
    height = TOP + ROW * len(streams) + 40
    title = f"{found.file.rpartition('/')[2]}: step {format_time(round(found.step_time_s, 7))} on {found.topology}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">',
        STYLE,
        f'<text class="t" x="{LEFT}" y="22">{escape(title)}</text>',
        *_legend({event.kind for event in events}),
        *_axis(span_s, height),
    ]
    for place, stream in enumerate(streams):
        y = TOP + ROW * place
        name = f"stream {stream}" if stream.lstrip("-").isdigit() else stream
        parts.append(f'<text x="{LEFT - 8}" y="{y + 19}" text-anchor="end">{escape(name)}</text>')
        parts += _boxes([event for event in events if event.stream == stream], y, span_s)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _last_step(found: TimelineResult) -> tuple[list[Event], float]:
    """Return the events of the last of equal steps, from its start on, and how long they take."""
    events = list(found.events)
    if found.steps > 1 and events:
        per_step = len(events) // found.steps
        events = events[per_step * (found.steps - 1) :]
    begin_s = min((event.start_s for event in events), default=0.0)
    end_s = max((event.end_s for event in events), default=0.0)
    moved = [
        Event(e.name, e.kind, e.stream, e.start_s - begin_s, e.moving_s - begin_s, e.end_s - begin_s) for e in events
    ]
    return moved, max(end_s - begin_s, 1e-12)


def _x(time_s: float, span_s: float) -> float:
    return LEFT + time_s / span_s * (WIDTH - LEFT - RIGHT)


def _legend(kinds: set[str]) -> Iterator[str]:
    shown = [kind for kind in COLOURS if kind in kinds]
    for place, kind in enumerate(shown):
        x = LEFT + place * 130
        yield f'<rect x="{x}" y="34" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{x + 17}" y="44">{NAMES[kind]}</text>'
    yield f'<text x="{LEFT + len(shown) * 130}" y="44">pale: waiting for peers</text>'


def _axis(span_s: float, height: int) -> Iterator[str]:
    step_s = 10 ** math.floor(math.log10(span_s / 2))
    step_s *= next(factor for factor in (1, 2, 5, 10) if span_s / (step_s * factor) <= 10)
    for number in range(int(span_s / step_s) + 1):
        x = _x(number * step_s, span_s)
        yield f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 30}"/>'
        label = format_time(round(number * step_s, 12)) if number else "0"
        yield f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{label}</text>'


def _boxes(events: list[Event], y: int, span_s: float) -> Iterator[str]:
    """Yield a box for each kernel; neighbours of one kind that are too narrow to see share one."""
    boxes: list[tuple[float, float, Event, int]] = []
    for event in events:
        a, b = _x(event.start_s, span_s), _x(event.end_s, span_s)
        if boxes and event.kind == boxes[-1][2].kind and b - a < 1 and a - boxes[-1][1] < LEAST_PX:
            first, _, kept, count = boxes[-1]
            boxes[-1] = (first, max(b, boxes[-1][1]), kept, count + 1)
        else:
            boxes.append((a, b, event, 1))
    for a, b, event, count in boxes:
        name = short(event.name) if count == 1 else f"{count} kernels"
        told = f"{name}: {format_time(round(event.end_s - event.start_s, 9))}" if count == 1 else name
        yield (
            f'<rect x="{a:.2f}" y="{y}" width="{max(b - a, LEAST_PX):.2f}" height="{BAR}" '
            f'fill="{COLOURS.get(event.kind, "#7f7f7f")}"><title>{escape(told)}</title></rect>'
        )
        if event.moving_s > event.start_s and count == 1:
            wide = _x(event.moving_s, span_s) - a
            yield f'<rect class="w" x="{a:.2f}" y="{y}" width="{wide:.2f}" height="{BAR}"/>'
        if b - a > LABEL_PX:
            fits = int((b - a - 6) / CHARACTER_PX)
            yield f'<text class="b" x="{a + 3:.2f}" y="{y + 18}">{escape(name[:fits])}</text>'
