"""Timelines as a table for people, as JSON, and as a trace that Perfetto shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collsim._version import __version__
from collsim.core.errors import chosen
from collsim.core.tabular import json_text
from collsim.core.units import format_time
from collsim.report.chrome_trace import complete, counter, process_name, thread_name, trace_json
from collsim.report.nccl import time_text
from collsim.report.sheet import Column, comments, document, sheet
from collsim.timeline.result import CallRow, Event, PathPart, TimelineResult

__all__ = ["TIMELINE_FORMATS", "perfetto_text", "render_timeline"]

TIMELINE_FORMATS = ("table", "json")
SCHEMA = "collsim.timeline/1"
MOST_PARTS = 8
"""Parts of the critical path that a table shows."""
LEAST_HELP = 0.002
"""Share of the step below which a change is not worth a line."""

CALLS: tuple[Column[CallRow], ...] = (
    Column("op", lambda row: row.op, kind="prose"),
    Column("size", lambda row: str(row.size_bytes), "(B)"),
    Column("ranks", lambda row: str(row.ranks)),
    Column("count", lambda row: f"{row.count:g}"),
    Column("recorded", lambda row: "" if row.recorded_s is None else time_text(row.recorded_s), "(us)"),
    Column("alone", lambda row: time_text(row.alone_s), "(us)"),
    Column("time", lambda row: time_text(row.time_s), "(us)"),
    Column("channels", lambda row: str(row.channels)),
    Column("bottleneck", lambda row: row.bottleneck_link, kind="prose"),
)


def render_timeline(found: TimelineResult, form: str = "table") -> str:
    """Return a step in one of `TIMELINE_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    forms: dict[str, Callable[[TimelineResult], str]] = {"table": _table, "json": _json}
    return chosen("format", form, forms, "--format")(found)


def _json(found: TimelineResult) -> str:
    return json_text({"schema": SCHEMA, "collsim": __version__, **found.to_dict()})


def _table(found: TimelineResult) -> str:
    """Every line that is no row of the table of collectives starts with ``#``."""
    step_s = found.step_time_s
    lines = [
        f"collsim {__version__}   {found.file}   {found.gpu}   topo {found.topology or 'unknown'}",
        f"step {_ms(step_s)} ({_ms(found.time_lo_s)} to {_ms(found.time_hi_s)})",
    ]
    if found.recorded_step_time_s is not None:
        replayed_s = found.replayed_step_time_s or found.recorded_step_time_s
        lines[1] += (
            f"; recorded {_ms(found.recorded_step_time_s)}, replayed {_ms(replayed_s)}, "
            f"{step_s / found.recorded_step_time_s - 1:+.1%}"
        )
    lines += [
        f"kernels {_ms(found.compute_s)}, collectives {_ms(found.communication_s)}: {_ms(found.overlap_s)} at once, "
        f"{_ms(found.exposed_s)} exposed ({_share(found.exposed_s, step_s)} of the step)",
        "streams " + ", ".join(f"{use.stream}: {use.utilisation:.0%} busy" for use in found.streams),
    ]
    if abs(found.speed - 1) > 0.002:
        lines.append(f"the clock of the GPU is {found.speed:.3f} times that of the trace: power is what limits it")
    rows = [row for row in found.calls if row.count]
    shown = sheet(CALLS, rows) if rows else []
    return document([*comments(lines), "#", *shown, *comments(_after(found))])


def _after(found: TimelineResult) -> list[str]:
    """Return the critical path, what would help, and the notes."""
    step_s = found.step_time_s
    path: list[PathPart] = list(found.path[:MOST_PARTS])
    rest_s = sum(part.time_s for part in found.path[MOST_PARTS:])
    if rest_s > 0:
        path.append(PathPart(f"{len(found.path) - MOST_PARTS} more", rest_s))
    told = ["critical path:", *(f"  {_share(part.time_s, step_s):>6} {part.what}" for part in path)]
    helps = [each for each in found.helps if each.saved_s > LEAST_HELP * step_s]
    if helps:
        told.append("what would help:")
        told += [f"  {_share(each.saved_s, step_s):>6} {each.what}" for each in helps]
    return [*told, *(f"note: {note}" for note in found.notes)]


def _ms(time_s: float) -> str:
    return format_time(round(time_s, 7))


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else "0.0%"


def perfetto_text(found: TimelineResult) -> str:
    """Return the step in the format of Chrome's trace viewer, which Perfetto opens.

    A track for each stream, on which what a collective waits for and moves is nested in it; a counter for each kind of
    link, of how full collectives make it. Times are in microseconds.
    """
    streams = {name: number for number, name in enumerate(dict.fromkeys(event.stream for event in found.events), 1)}
    events = [process_name(1, f"{found.gpu} {found.topology}")]
    for name, number in streams.items():
        events.append(thread_name(1, number, name if not name.lstrip("-").isdigit() else f"stream {name}"))
    for event in found.events:
        events += _slices(event, streams[event.stream])
    events += _counters(found)
    return trace_json(events)


def _slices(event: Event, track: int) -> list[dict[str, Any]]:
    """Return the slice of an event, and those nested in it."""

    def piece(name: str, begin_s: float, end_s: float) -> dict[str, Any]:
        return complete(1, track, name, event.kind, (begin_s, end_s))

    found = [piece(event.name, event.start_s, event.end_s)]
    if event.kind == "collective" and event.moving_s > event.start_s:
        found += [piece("waits for peers", event.start_s, event.moving_s), piece("moves", event.moving_s, event.end_s)]
    return found


def _counters(found: TimelineResult) -> list[dict[str, Any]]:
    """Return how full links of each kind are, in percent, at every change."""
    changes: dict[str, dict[float, float]] = {}
    for event in found.events:
        if event.kind == "collective" and event.end_s > event.moving_s:
            of_link = changes.setdefault(event.link or "links", {})
            of_link[event.moving_s] = of_link.get(event.moving_s, 0.0) + event.load
            of_link[event.end_s] = of_link.get(event.end_s, 0.0) - event.load
    told = []
    for link, of_link in changes.items():
        now = 0.0
        for at, by in sorted(of_link.items()):
            now += by
            percent = round(100 * min(max(now, 0.0), 1.0), 1)
            told.append(counter(1, f"links to {link}", round(at * 1e6, 3), percent=percent))
    return told
