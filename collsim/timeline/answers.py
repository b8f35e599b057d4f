"""Answers about a replay: rows of collectives, use of streams, critical path, what would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from collsim.core import progress
from collsim.timeline.analysis import critical_path
from collsim.timeline.graph import Node
from collsim.timeline.replay import HOST, Replay
from collsim.timeline.result import CallRow, Event, Help, PathPart, StreamUse
from collsim.timeline.trace import COLLECTIVE, Call

__all__ = ["Told", "call_row", "events_of", "helps_of", "path_of", "streams_of"]


@dataclass(frozen=True, slots=True)
class Told:
    """Collectives that are alike: of how many ranks, with how many channels, and the link that they load most."""

    call: Call
    ranks: int
    channels: int
    link: str


def call_row(
    told: Told,
    nodes: Sequence[Node],
    run: Replay,
    which: Sequence[int],
    *,
    steps: int,
    recorded_s: Sequence[float] = (),
) -> CallRow:
    """Return the row of collectives that are alike, the nodes *which*."""
    return CallRow(
        op=told.call.op,
        size_bytes=told.call.size_bytes,
        ranks=told.ranks,
        count=len(which) / steps,
        recorded_s=sum(recorded_s) / len(recorded_s) if recorded_s else None,
        alone_s=sum(nodes[i].work_s for i in which) / len(which),
        time_s=sum(run.end_s[i] - run.start_s[i] for i in which) / len(which),
        channels=told.channels,
        bottleneck_link=told.link,
    )


def streams_of(nodes: Sequence[Node], run: Replay, steps: int) -> tuple[StreamUse, ...]:
    """Return how long each stream is busy, longest first."""
    busy: dict[int, float] = {}
    for i, node in enumerate(nodes):
        if node.kind != HOST:
            busy[node.stream] = busy.get(node.stream, 0.0) + run.end_s[i] - run.start_s[i]
    span_s = run.span_s or 1.0
    return tuple(StreamUse(str(s), t / steps, t / span_s) for s, t in sorted(busy.items(), key=lambda each: -each[1]))


def path_of(nodes: Sequence[Node], run: Replay, steps: int) -> tuple[PathPart, ...]:
    """Return the critical path, longest part first."""
    spent = critical_path(nodes, run)
    return tuple(PathPart(what, t / steps) for what, t in sorted(spent.items(), key=lambda each: -each[1]))


def helps_of(
    nodes: Sequence[Node],
    span_s: float,
    span_of: Callable[[list[Node]], float],
    steps: int,
    others_s: Mapping[str, float] | None = None,
) -> tuple[Help, ...]:
    """Return what would make the step shorter, by replaying it changed; most first.

    *others_s* are spans on other machines, by what is different there.
    """
    changes: dict[str, Callable[[Node], Node]] = {
        "collectives twice as fast": lambda n: replace(n, work_s=n.work_s / 2) if n.kind == COLLECTIVE else n,
        "kernels 10 % faster": lambda n: n if n.kind in (COLLECTIVE, HOST) else replace(n, work_s=n.work_s / 1.1),
        "launches that cost the host nothing": lambda n: replace(n, earliest_s=0.0, gap_s=0.0),
        "peers in step": lambda n: replace(n, late_s=0.0),
    }
    saved = {}
    for what, change in progress.steps(list(changes.items()), "changes"):
        saved[what] = (span_s - span_of([change(n) for n in nodes])) / steps
    saved |= {what: (span_s - other_s) / steps for what, other_s in (others_s or {}).items()}
    return tuple(Help(what, s) for what, s in sorted(saved.items(), key=lambda each: -each[1]))


def events_of(nodes: Sequence[Node], run: Replay) -> tuple[Event, ...]:
    """Return what ran, by start, from the first start on."""
    shown = [i for i, node in enumerate(nodes) if node.kind != HOST]
    begin_s = min((run.start_s[i] for i in shown), default=0.0)
    found = []
    for i in shown:
        node, start_s, moving_s, end_s = nodes[i], run.start_s[i], run.moving_s[i], run.end_s[i]
        load = node.load * min(node.work_s / (end_s - moving_s), 1.0) if end_s > moving_s else 0.0
        start_s, moving_s, end_s = start_s - begin_s, moving_s - begin_s, end_s - begin_s
        found.append(Event(node.name, node.kind, str(node.stream), start_s, moving_s, end_s, node.link, load))
    return tuple(sorted(found, key=lambda event: event.start_s))
