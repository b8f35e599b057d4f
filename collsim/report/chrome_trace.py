"""Events of Chrome's trace format, which Perfetto opens; times in it are in microseconds.

Source: "Trace Event Format", the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["complete", "counter", "process_name", "thread_name", "trace_json"]


def process_name(pid: int, name: str) -> dict[str, Any]:
    """Return the name of a group of tracks."""
    return {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}


def thread_name(pid: int, tid: int, name: str) -> dict[str, Any]:
    """Return the name of a track."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}


def complete(
    pid: int, tid: int, name: str, category: str, span_s: tuple[float, float], **args: float | str
) -> dict[str, Any]:
    """Return a slice of a track, to the nanosecond, as Perfetto counts: it ends as the next begins."""
    begin_us = round(span_s[0] * 1e6, 3)
    long_us = round(round(span_s[1] * 1e6, 3) - begin_us, 3)
    found = {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": category, "ts": begin_us, "dur": long_us}
    return found | {"args": args} if args else found


def counter(pid: int, name: str, at_us: float, **values: float) -> dict[str, Any]:
    """Return the values of a counter from a time on."""
    return {"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": at_us, "args": values}


def trace_json(events: Sequence[dict[str, Any]]) -> str:
    """Return the file of the events, ending in a newline."""
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"
