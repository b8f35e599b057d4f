"""The transfers of a schedule in time as SVG, for a page that has the colours: a row for each sender."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from collsim.core.units import format_time
from collsim.explanation.findings import Span

__all__ = ["step_chart"]

WIDTH, LEFT, RIGHT, TOP, ROW = 920, 84, 16, 12, 30
MOST_ROWS, MOST_BOXES, MOST_LANES = 8, 1_600, 8
LEAST_PX = 0.5


def step_chart(spans: Sequence[Span], whole_s: float) -> tuple[str, str]:
    """Return the picture of transfers that begin as the call does, and which senders it leaves out, in words.

    *whole_s* is the time of the call; the axis ends with the last transfer.
    """
    senders = list(dict.fromkeys(sorted((span.rank for span in spans), key=lambda rank: (rank < 0, abs(rank)))))
    shown = senders[:MOST_ROWS]
    while len(shown) > 1 and sum(span.rank in shown for span in spans) > MOST_BOXES:
        shown.pop()
    end_s = max(span.finish_s for span in spans)
    body: list[str] = []
    y = float(TOP)
    for rank in shown:
        own = [span for span in spans if span.rank == rank]
        body += _row(own, y, end_s, _name(rank))
        y += ROW + 8
    height = y + 28
    told = f"senders {', '.join(_name(rank) for rank in shown)} of {len(senders)}" if len(shown) < len(senders) else ""
    label = f"transfers in time, {format_time(round(end_s, 9))} of {format_time(round(whole_s, 9))}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}">\n' + "\n".join([*_axis(end_s, y), *body]) + "\n</svg>\n",
        told,
    )


def _name(rank: int) -> str:
    return f"rank {rank}" if rank >= 0 else "switches" if rank == -1 else f"switches {-rank - 1}"


def _x(time_s: float, end_s: float) -> float:
    return LEFT + time_s / end_s * (WIDTH - LEFT - RIGHT)


def _axis(end_s: float, bottom: float) -> Iterator[str]:
    step_s = 10.0 ** math.floor(math.log10(end_s / 2))
    step_s *= next(factor for factor in (1, 2, 5, 10) if end_s / (step_s * factor) <= 8)
    for number in range(int(end_s / step_s) + 1):
        x = _x(number * step_s, end_s)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>'
        label = format_time(round(number * step_s, 12)) if number else "0"
        yield f'<text class="soft" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>'


def _row(spans: Sequence[Span], y: float, end_s: float, name: str) -> Iterator[str]:
    """Yield the transfers of one sender in lanes: those at once stand one below the other."""
    yield f'<text class="soft" x="{LEFT - 8}" y="{y + ROW / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>'
    ends: list[float] = []
    placed = []
    for span in sorted(spans, key=lambda each: (each.ready_s, each.finish_s)):
        lane = next((i for i, end in enumerate(ends) if end <= span.ready_s * (1 + 1e-9)), len(ends))
        lane = min(lane, MOST_LANES - 1)
        ends[lane : lane + 1] = [max(span.finish_s, ends[lane] if lane < len(ends) else 0.0)]
        placed.append((lane, span))
    high = ROW / max(len(ends), 1)
    for lane, span in placed:
        top = y + lane * high
        yield from _box(span, top, max(high - 0.8, 0.8), end_s)


def _box(span: Span, top: float, high: float, end_s: float) -> Iterator[str]:
    """Yield a pale box for the wait of a transfer and a full one for its flow."""
    a, b, c = (_x(time_s, end_s) for time_s in (span.ready_s, span.start_s, span.finish_s))
    look = "adds" if span.adds else "copies"
    to = _name(span.to)
    told = f"{look} to {to}, step {span.step}: {format_time(round(span.finish_s - span.ready_s, 10))}"
    if b - a >= LEAST_PX:
        yield f'<rect class="wait {look}" x="{a:.2f}" y="{top:.2f}" width="{b - a:.2f}" height="{high:.2f}"/>'
    yield (
        f'<rect class="flow {look}" x="{b:.2f}" y="{top:.2f}" width="{max(c - b, LEAST_PX):.2f}" '
        f'height="{high:.2f}"><title>{escape(told)}</title></rect>'
    )
