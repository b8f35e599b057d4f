"""The rows of a table: what runs at one size, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collsim.choosing import built, library_choice, request_of
from collsim.collectives import Algorithm, Request, algorithm, algorithms_for
from collsim.errors import Fault, UnsupportedError
from collsim.fabric import Fabric, Float
from collsim.library.costs import RUNS_WITH, family_of
from collsim.operations import Operation
from collsim.question import CHOICES, PROTOCOLS, Question
from collsim.result import LinkLoad, Row
from collsim.timing import MOST_LINKS
from collsim.together import EQUAL, Party, group_times, part_of, slowest_of, time_together

__all__ = ["rows_of"]

TIE = 1e-3
"""Links within this share of the busiest count as equally busy."""


def rows_of(op: Operation, requested_bytes: int, party: Party, question: Question, left_out: list[str]) -> list[Row]:
    """Return the rows of one size: one, or one per algorithm if all are asked for."""
    requests = [request_of(op, requested_bytes, run, question) for run in party.runs]
    if requests[0].size_bytes == 0:
        return [_empty_row(requests[0], requested_bytes, question, len(requests))]
    rows: list[Row] = []
    for name in question.algo:
        if name == "auto" and question.library is not None:
            rows.append(_chosen_row(requests, requested_bytes, party, question))
        elif name in CHOICES:
            timed = _all_rows(requests, requested_bytes, party, question, left_out)
            rows += timed if name == "all" else [_fastest(timed)]
        else:
            tasks = _tasks(algorithm(op.name, name), requests, question)
            rows.append(_timed_row(tasks, requested_bytes, party, question))
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What one group is to run; without a protocol of its own it has the costs of Simple."""

    algorithm: Algorithm
    request: Request
    proto: str | None


def _tasks(candidate: Algorithm, requests: Sequence[Request], question: Question) -> list[_Task]:
    """Return the same algorithm for every group."""
    return [_Task(candidate, request, question.proto) for request in requests]


def _fastest(rows: Sequence[Row]) -> Row:
    """Return the fastest row; of equally fast ones the first, which is the plainest algorithm."""
    least_s = min(row.time_s for row in rows)
    return next(row for row in rows if row.time_s <= least_s * (1 + EQUAL))


def _chosen_row(requests: Sequence[Request], requested_bytes: int, party: Party, question: Question) -> Row:
    """Simulate what the library would choose, for each group by itself."""
    choices = [library_choice(request, run, question) for request, run in zip(requests, party.runs, strict=True)]
    tasks = [_Task(picked, asked, question.proto or proto) for picked, asked, proto in choices]
    row = _timed_row(tasks, requested_bytes, party, question)
    profile, family = party.runs[0].profile, family_of(row.op, row.algo)
    if question.channels or question.chunk_bytes or question.proto or profile.lacks(row.proto or "Simple", family):
        return row  # not what the library would do, or not measured: nobody knows how far off that is
    topology = party.runs[0].topology
    if question.load or party.shares_links or topology.damage is not None or topology.cluster is not None:
        return row  # nor what traffic does to each other, nor broken machines, nor the network between nodes
    scatter = profile.scatter(family, row.size_bytes)
    if scatter is None or scatter.fitted:
        return row
    low_s, high_s = row.time_s * scatter.low, row.time_s * scatter.high
    return replace(row, time_lo_s=max(low_s, row.lower_bound_s), time_hi_s=max(high_s, row.lower_bound_s))


def _all_rows(
    requests: Sequence[Request], requested_bytes: int, party: Party, question: Question, left_out: list[str]
) -> list[Row]:
    """Return a row for every algorithm that the fabric can carry out; add those too large to simulate to *left_out*."""
    rows: list[Row] = []
    refused: list[Fault] = []
    for candidate in _able(requests[0].op, party.runs[0].fabric, question.proto):
        try:
            rows.append(_timed_row(_tasks(candidate, requests, question), requested_bytes, party, question))
        except UnsupportedError as error:
            refused.extend(error.faults)
            left_out.append(f"{candidate.name} is left out at {requested_bytes} bytes: {error.faults[0].what}")
    if not rows:
        raise UnsupportedError(*refused)
    return rows


def _able(op: Operation, fabric: Fabric, proto: str | None) -> tuple[Algorithm, ...]:
    """Return the algorithms for *op* that the switches of *fabric* can carry out, and that have the protocol."""
    node, rack = (
        len(np.unique(label[fabric.rank_node])) > 1
        for label in (fabric.wiring.coordinates.node, fabric.wiring.coordinates.pod)
    )
    entries = algorithms_for(op.name, several_nodes=node, several_racks=rack)
    entries = tuple(entry for entry in entries if (proto or "Simple") in RUNS_WITH.get(entry.name, PROTOCOLS))
    reach = "all" if fabric.in_network else "node" if fabric.node_in_network else ""
    return tuple(entry for entry in entries if not entry.in_network or entry.in_network_of == reach)


def _timed_row(tasks: Sequence[_Task], requested_bytes: int, party: Party, question: Question) -> Row:
    """Simulate what all groups of a party run at one size; the row is that of the slowest."""
    schedules = [built(task.algorithm, task.request, question) for task in tasks]
    timings = time_together(
        [
            part_of(schedule, run, task.proto or "Simple", question.dtype)
            for schedule, run, task in zip(schedules, party.runs, tasks, strict=True)
        ],
        party.neighbours,
    )
    slowest = slowest_of(timings)
    task, timing, fabric = tasks[slowest], timings[slowest], party.runs[slowest].fabric
    carried = np.sum([each.link_bytes for each in timings], axis=0)
    utilisation = carried / (fabric.capacity_Bps * timing.time_s)
    row = replace(
        _empty_row(task.request, requested_bytes, question, len(tasks)),
        algo=task.algorithm.name,
        proto=task.proto,
        channels=int(schedules[slowest].parameters.get("channels", 1)),
        time_s=timing.time_s,
        lower_bound_s=timing.bound.time_s,
        bound=timing.bound.name,
        bottleneck=_busiest(utilisation, fabric),
        critical_s=timing.critical_s,
        bottleneck_links=int((utilisation >= utilisation.max() * (1 - TIE)).sum()),
        path=timing.path,
        classes=sum(each.transfers for each in timings),
    )
    ran = [(each.algorithm.name, each.proto) for each in tasks]
    return row if len(tasks) == 1 else replace(row, group_times=group_times(row, ran, timings, party))


def _busiest(utilisation: Float, fabric: Fabric) -> tuple[LinkLoad, ...]:
    """Return the busiest links, busiest first."""
    order = np.argsort(-np.round(utilisation, 9), kind="stable")[:MOST_LINKS]
    return tuple(
        LinkLoad(fabric.wiring.link_name(int(i)), min(float(utilisation[i]), 1.0)) for i in order if utilisation[i] > 0
    )


def _empty_row(request: Request, requested_bytes: int, question: Question, groups: int = 1) -> Row:
    """Return the row of a collective that moves nothing and takes no time."""
    op, element_bytes = request.op, question.element_bytes
    return Row(
        op=op.name,
        algo="none",
        proto=question.proto,
        channels=0,
        ranks=request.n_ranks,
        groups=groups,
        dtype=question.dtype,
        redop=question.redop if op.reduces else "none",
        root=request.root if op.rooted else -1,
        count=op.count(request.size_bytes, request.n_ranks, element_bytes),
        requested_bytes=requested_bytes,
        size_bytes=request.size_bytes,
        time_s=0.0,
        lower_bound_s=0.0,
        bound="none",
        bottleneck=(),
        bottleneck_links=0,
        critical_s={},
        path="none",
        classes=0,
    )
