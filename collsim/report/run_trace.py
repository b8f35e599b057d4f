"""A run as a trace that Perfetto shows: what each rank sends when, and a counter for each link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from collsim._version import __version__
from collsim.core.units import format_size
from collsim.report.chrome_trace import complete, counter, process_name, thread_name, trace_json
from collsim.simulation.link_bytes import LinkBytes, Sent
from collsim.simulation.row import Row

__all__ = ["run_trace_text"]

CALL, LINKS, FIRST = 1, 2, 3
"""Numbers of processes: the call, the counters of links, the first rank."""

ROUNDING = 1e-9
"""Times so near to each other, as a share, are the same."""


class _Message(NamedTuple):
    """A transfer: when it is ready, flows and ends, what it is called, and what else is known of it."""

    ready_s: float
    start_s: float
    finish_s: float
    name: str
    kind: str
    args: dict[str, float | str]


def run_trace_text(row: Row, topology: str) -> str:
    """Return a traced run in the format of Chrome's trace viewer, which Perfetto opens.

    The call is a slice, with its launch and what it takes once nested in it, put before everything that moves. Every
    rank is a process; a transfer is a slice on one of its tracks, of which there are as many as it has transfers under
    way at a time, with the wait for its latency nested in it. Every link that carries anything is a counter, in GB/s
    and in percent of its capacity: its exact rate, which changes whenever any transfer begins or ends. The area under a
    counter is what the link carries, flags of protocols included.

    Parameters
    ----------
    row : Row
        With `LinkBytes.flows` in its loads, as of `collsim.simulation.traced.traced`.
    topology : str
        What it ran on.
    """
    loads = row.loads
    assert loads is not None
    assert loads.flows is not None
    groups = loads.flows.groups
    lead_s = row.critical_s["launch"]
    title = f"{row.op} {format_size(row.size_bytes)} by {row.label}, {topology}, collsim {__version__}"
    names = [process_name(CALL, title), thread_name(CALL, 1, "call"), process_name(LINKS, "links")]
    end_s = lead_s + max(float(sent.spans.finish_s.max(initial=0.0)) for sent in groups)
    told: dict[str, float | str] = {"bytes": row.size_bytes, "time_us": row.time_s * 1e6}
    if end_s > row.time_s * (1 + ROUNDING):
        told["note"] = "calls in a row overlap: each takes time_us, alone it would take as long as this"
    events = [complete(CALL, 1, row.op, "call", (0.0, max(end_s, row.time_s)), **told)]
    if lead_s:
        events.append(complete(CALL, 1, "launch and costs once a call", "call", (0.0, lead_s)))
    pid = FIRST
    for number, sent in enumerate(groups):
        for rank, messages in _by_sender(sent).items():
            names.append(process_name(pid, _name(rank, number, sent, loads, several=len(groups) > 1)))
            lanes = _in_lanes(messages)
            names += [thread_name(pid, lane, "sends" if lane == 1 else f"sends ({lane})") for lane in _numbers(lanes)]
            for lane, message in lanes:
                events += _slices(pid, lane, message, lead_s)
            pid += 1
    events += _counters(loads, lead_s)
    return trace_json([*names, *sorted(events, key=lambda event: float(event["ts"]))])


def _by_sender(sent: Sent) -> dict[int, list[_Message]]:
    """Return the transfers of a group by their sender, in its order; ranks first, then the switches."""
    spans = sent.spans
    rows = zip(*(column.tolist() for column in (*spans, sent.size_bytes, sent.copies)), strict=True)
    found: dict[int, list[_Message]] = {rank: [] for rank in range(len(sent.gpus))}
    for src, dst, step, channel, adds, ready_s, start_s, finish_s, size_bytes, copies in rows:
        target = f"rank {dst}" if dst >= 0 else "switches"
        alike = f" and {copies - 1} alike" if copies > 1 else ""
        name = f"to {target} step {step} channel {channel}{alike}"
        args = {"bytes": size_bytes * copies, "channels": copies, "flows_us": (finish_s - start_s) * 1e6}
        message = _Message(ready_s, start_s, finish_s, name, "adds" if adds else "copies", args)
        found.setdefault(src, []).append(message)
    return {rank: messages for rank, messages in found.items() if messages}


def _name(rank: int, number: int, sent: Sent, loads: LinkBytes, *, several: bool) -> str:
    """Return the name of a sender: a rank with its GPU, or the switches."""
    group = f"group {number} " * several
    return f"{group}rank {rank} ({loads.wiring.node_names[sent.gpus[rank]]})" if rank >= 0 else f"{group}switches"


def _in_lanes(messages: Sequence[_Message]) -> list[tuple[int, _Message]]:
    """Return every message with the first track, from 1 on, on which none is under way as it begins."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    found = []
    for message in sorted(messages, key=lambda each: (each.ready_s, each.finish_s)):
        while busy and busy[0][0] <= message.ready_s:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy) + 1
        heappush(busy, (message.finish_s, lane))
        found.append((lane, message))
    return found


def _numbers(lanes: Sequence[tuple[int, _Message]]) -> range:
    return range(1, max(lane for lane, _ in lanes) + 1)


def _slices(pid: int, lane: int, message: _Message, lead_s: float) -> Iterator[dict[str, Any]]:
    """Yield the slice of a message, and its wait nested in it."""
    ready_s, start_s, finish_s = (lead_s + at_s for at_s in message[:3])
    yield complete(pid, lane, message.name, message.kind, (ready_s, finish_s), **message.args)
    if start_s > ready_s:
        yield complete(pid, lane, "latency", "latency", (ready_s, start_s))


def _counters(loads: LinkBytes, lead_s: float) -> Iterator[dict[str, Any]]:
    """Yield the rate of every link in use, at every change."""
    assert loads.flows is not None
    capacity_Bps = loads.capacity_Bps.tolist()
    _, link, when_s, rate_Bps = loads.flows
    names = {i: loads.wiring.link_name(i) for i in dict.fromkeys(link.tolist())}
    for i, at_s, rate in zip(link.tolist(), when_s.tolist(), rate_Bps.tolist(), strict=True):
        values = {"GB/s": rate / 1e9, "percent": 100 * rate / capacity_Bps[i]}
        yield counter(LINKS, names[i], (lead_s + at_s) * 1e6, **values)
