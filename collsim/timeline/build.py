"""Graphs of traces: what each kernel waited for, how long it takes alone, and how late its peers were."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collsim.core.operations import operation
from collsim.timeline.calls import Prediction
from collsim.timeline.contention import LEAST_LATE_S, undo_contention
from collsim.timeline.gpus import Gpu
from collsim.timeline.graph import Node
from collsim.timeline.trace import COLLECTIVE, Call, HostEvent, Kernel, Trace

__all__ = ["Built", "build", "recorded_events"]

SLACK_S = 2e-6
"""Ends and starts of a trace may be off by so much."""
FOLLOWS_S = 20e-6
"""Without events, a kernel waited for one of another stream if it began within this time of its end."""


@dataclass(frozen=True, slots=True)
class Built:
    """Graph of a trace.

    Attributes
    ----------
    nodes : list of Node
        One for each kernel, by launch, then those of the host.
    calls : list of Call
        That differ, in the order of `Node.call`.
    late : dict of int to float
        Numbers of calls that always took much longer than the model says, and how many times as long.
    """

    nodes: list[Node]
    calls: list[Call]
    late: dict[int, float]


def build(trace: Trace, gpu: Gpu, recorded: Mapping[Call, Prediction]) -> Built:
    """Return the graph of a trace; *recorded* is what the model says of its collectives where it was recorded."""
    kernels = trace.kernels
    calls = list(dict.fromkeys(k.call for k in kernels if k.call is not None and k.call.size_bytes))
    after = _dependencies(trace)
    latency_s = min((k.start_s - k.launch_s for k in kernels if k.launch_s == k.launch_s), default=0.0)
    hosts = _hosts(trace)
    nodes = [
        Node(
            name=k.name,
            kind=k.kind,
            stream=k.stream,
            work_s=k.end_s - k.start_s,
            after=tuple(sorted(after[i])),
            full=k.full,
            sms=gpu.held(k.call.op if k.call else "", k.ctas) if k.kind == COLLECTIVE else 0,
            adds=k.call is not None and operation(k.call.op).reduces,
            call=calls.index(k.call) if k.call is not None and k.call in calls else -1,
        )
        for i, k in enumerate(kernels)
    ]
    for node in nodes:
        if node.call >= 0 and (told := recorded.get(calls[node.call])) is not None:
            node.spare, node.link, node.load = told.spare, told.kind, told.load
    _launch(nodes, kernels, hosts, max(latency_s, 0.0))
    model_s = {calls.index(call): told.time_s for call, told in recorded.items() if call in calls}
    late = undo_contention(nodes, kernels, gpu, model_s)
    return Built([*nodes, *(node for node, _ in hosts)], calls, late)


def _dependencies(trace: Trace) -> list[set[int]]:
    """Return what each kernel waits for: the one before on its stream, events, and its communicator."""
    kernels = trace.kernels
    after: list[set[int]] = [set() for _ in kernels]
    of_stream: dict[int, list[int]] = {}
    of_group: dict[str, int] = {}
    for i, k in enumerate(kernels):
        if before := of_stream.setdefault(k.stream, []):
            after[i].add(before[-1])
        before.append(i)
        if k.call is not None:
            last = of_group.get(k.call.group)
            if last is not None and kernels[last].end_s <= k.start_s + SLACK_S:
                after[i].add(last)
            of_group[k.call.group] = i
    if trace.has_waits:
        _add_waits(trace, of_stream, after)
    else:
        _add_inferred(trace, of_stream, after)
    return after


def _launched(k: Kernel) -> float:
    return k.start_s if math.isnan(k.launch_s) else k.launch_s


def _add_waits(trace: Trace, of_stream: Mapping[int, list[int]], after: list[set[int]]) -> None:
    """Add what streams were made to wait for: what had been launched on another when the event was recorded."""
    kernels = trace.kernels
    times = {stream: [_launched(kernels[i]) for i in each] for stream, each in of_stream.items()}
    everything = [_launched(k) for k in kernels]
    for wait, recorded_s in recorded_events(trace):
        if wait.stream not in of_stream:
            continue
        place = bisect_left(times[wait.stream], wait.time_s)
        if place == len(of_stream[wait.stream]):
            continue
        waiter = of_stream[wait.stream][place]
        source = wait.source if wait.source in of_stream else -1
        at = bisect_right(everything, recorded_s) - 1
        while at >= 0 and (kernels[at].stream == wait.stream or source not in (-1, kernels[at].stream)):
            at -= 1
        if at >= 0 and kernels[at].end_s <= kernels[waiter].start_s + SLACK_S:
            after[waiter].add(at)


def recorded_events(trace: Trace) -> list[tuple[HostEvent, float]]:
    """Return the waits of streams, each with the time at which its event was recorded.

    Where a trace does not say, numbers of events do: new ones grow as they are recorded. The event of a number higher
    than all before was recorded last before the wait; one of a lower number that was not seen yet, last before those of
    higher numbers were; one that was seen, last before the wait, unless nothing was recorded since.
    """
    records = [at for at, _ in trace.records]
    known: dict[int, float] = {}
    latest: dict[int, float] = {}
    numbers: list[int] = []
    found = []
    for wait in trace.waits:
        if wait.stream < 0:
            continue
        last = bisect_left(records, wait.time_s) - 1
        at = records[last] if last >= 0 else wait.time_s
        if not math.isnan(wait.recorded_s):
            at = wait.recorded_s
        elif wait.event in known:
            same = bisect_left(records, latest[wait.event]) - 1 == last
            at = known[wait.event] if same else at
        elif (place := bisect_left(numbers, wait.event)) < len(numbers):
            before = bisect_left(records, known[numbers[place]]) - 1
            at = records[before] if before >= 0 else at
        if wait.event not in known:
            insort(numbers, wait.event)
        known[wait.event] = at
        latest[wait.event] = wait.time_s
        found.append((wait, at))
    return found


def _add_inferred(trace: Trace, of_stream: Mapping[int, list[int]], after: list[set[int]]) -> None:
    """Add what a trace without events tells: collectives wait for what was launched before, others if they follow."""
    kernels = trace.kernels
    times = {stream: [_launched(kernels[i]) for i in each] for stream, each in of_stream.items()}
    for i, k in enumerate(kernels):
        for stream, each in of_stream.items():
            if stream == k.stream:
                continue
            last = bisect_right(times[stream], _launched(k)) - 1
            if last < 0:
                continue
            other = kernels[each[last]]
            if other.end_s > k.start_s + SLACK_S:
                continue
            if k.kind == COLLECTIVE or (other.kind == COLLECTIVE and k.start_s - other.end_s < FOLLOWS_S):
                after[i].add(each[last])


def _hosts(trace: Trace) -> list[tuple[Node, HostEvent]]:
    """Return waits of the host for all that was launched before, if anything is launched after."""
    kernels, found = trace.kernels, []
    launches = [_launched(k) for k in kernels]
    for wait in trace.waits:
        count = bisect_left(launches, wait.time_s)
        if wait.stream >= 0 or count == 0 or bisect_right(launches, wait.end_s) == len(kernels):
            continue
        last = tuple({kernels[i].stream: i for i in range(count)}.values())
        found.append((Node("host waits", "host", -1, 0.0, after=last), wait))
    return found


def _launch(
    nodes: list[Node], kernels: Sequence[Kernel], hosts: Sequence[tuple[Node, HostEvent]], latency_s: float
) -> None:
    """Set from when each kernel could start, and how much later it did."""
    n = len(kernels)
    ends = [wait.end_s for _, wait in hosts]
    full = sorted((k.start_s, k.end_s) for k in kernels if k.full)
    for node, k in zip(nodes, kernels, strict=True):
        ready_s = max((kernels[j].end_s for j in node.after), default=0.0)
        if not math.isnan(k.launch_s):
            latest = bisect_right(ends, k.launch_s) - 1
            begin_s = ends[latest] if latest >= 0 else 0.0
            node.host = n + latest if latest >= 0 else -1
            node.earliest_s = max(k.launch_s + latency_s - begin_s, 0.0) if latest >= 0 else k.launch_s + latency_s
            ready_s = max(ready_s, k.launch_s + latency_s)
        elif not node.after:
            node.earliest_s = ready_s = k.start_s
        free_s = _free_s(full, ready_s) if k.kind == COLLECTIVE else ready_s
        node.gap_s = (
            max(k.start_s - ready_s, 0.0) if free_s <= ready_s else min(max(k.start_s - free_s, 0.0), LEAST_LATE_S)
        )


def _free_s(full: Sequence[tuple[float, float]], ready_s: float) -> float:
    """Return when the kernel that fills the GPU at a moment ends; that moment if none does."""
    last = bisect_left(full, (ready_s, -math.inf)) - 1
    return max(full[last][1], ready_s) if last >= 0 else ready_s
