"""The rows of a table: what was asked for at one size, simulated, with its interval."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from collsim.collectives import Algorithm, ScheduleRequest, algorithm
from collsim.core.errors import Fault, InputError, ModelError, NoRouteError, UnsupportedError
from collsim.core.operations import Operation
from collsim.core.progress import INTERRUPTED, interrupted, keeps_done, steps
from collsim.simulation.concurrent import Party, redrawn
from collsim.simulation.contest import able, contest, fastest
from collsim.simulation.draws import over_draws
from collsim.simulation.intervals import with_interval
from collsim.simulation.lowering import MOST_TRANSFERS
from collsim.simulation.plans import Call, Case, Task, Told, case_of, empty_row, plan_of, timed_row
from collsim.simulation.request.request import CHOICES, Request
from collsim.simulation.result import Row
from collsim.simulation.selection import library_choice, library_kernel, request_of

__all__ = ["named", "tables_of"]


def tables_of(party: Party, question: Request, told: Told) -> list[list[list[Row]]]:
    """Return the rows of every operation and size, for each algorithm or choice that was asked for.

    With several seeds of a hash, *party* has the routes of the first; other draws repeat only routes and flow. What is
    interrupted is refused, if whoever listens to progress asks for that.
    """
    call = Call(party, question, told)
    tables: list[list[tuple[str, list[Case]]]] = []
    waiting: list[Case] = []
    asked = [(op, size_bytes) for op in question.ops for size_bytes in question.sizes_of(op)]
    try:
        for op, size_bytes in steps([] if interrupted() else asked, "row"):
            tables.append(_candidates(op, size_bytes, call))
            waiting += [case for _, found in tables[-1] for case in found if case.plan]
            if sum(case.transfers for case in waiting) > MOST_TRANSFERS:
                _draw(waiting, call)
                waiting = []
        _draw(waiting, call)
    except KeyboardInterrupt:
        if not keeps_done():
            raise
    tables += [_interrupted(op, size_bytes, call) for op, size_bytes in asked[len(tables) :]]
    return [[_shown(name, found, party, question) for name, found in table] for table in tables]


def _interrupted(op: Operation, requested_bytes: int, call: Call) -> list[tuple[str, list[Case]]]:
    """Return no cases for a size that an interruption left out, and refuse each of its names."""
    runs = call.party.runs
    place = (op.name, len(runs[0].fabric.rank_node), call.party.n_groups, requested_bytes)
    for name in call.question.algo:
        call.told.refuse_at((*place, name), ModelError(Fault(INTERRUPTED, "", "ask for it again")))
    return [(name, []) for name in call.question.algo]


def _draw(cases: Sequence[Case], call: Call) -> None:
    """Add the row of each seed but the first to *cases*, nothing where no hash sends any message elsewhere."""
    plans = [case.plan for case in cases if case.plan]
    party, seeds = call.party, call.question.hash_seeds

    def drawn(seed: int) -> list[Row]:
        again = redrawn(party, seed)
        return [timed_row(plan, again, call) for plan in plans]

    if plans and party.meets_hash:
        from concurrent.futures import ThreadPoolExecutor  # the engine does not hold the interpreter

        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            drawing = pool.map(drawn, seeds[1:])
            for _ in steps(seeds[1:], "draw"):
                rows = next(drawing)
                for case, row in zip(cases, rows, strict=True):
                    case.rows.append(row)
        finally:  # who interrupts does not wait for the draws under way
            pool.shutdown(wait=False, cancel_futures=True)
    for case in cases:
        case.plan = None  # lets go of memory


def _candidates(op: Operation, requested_bytes: int, call: Call) -> list[tuple[str, list[Case]]]:
    """Return the cases at one size for each algorithm or choice that was asked for; none for one that is refused."""
    party, question = call.party, call.question
    requests = [request_of(op, requested_bytes, run, question) for run in party.runs]
    if requests[0].size_bytes == 0:
        return [("", [Case(None, [empty_row(requests[0], requested_bytes, question, party.n_groups)])])]
    found = []
    for name in question.algo:
        try:
            found.append((name, _cases(name, requests, requested_bytes, call)))
        except (InputError, NoRouteError) as error:
            call.told.refuse(error, empty_row(requests[0], requested_bytes, question, party.n_groups), name)
            found.append((name, []))
    return found


def _cases(name: str, requests: Sequence[ScheduleRequest], requested_bytes: int, call: Call) -> list[Case]:
    """Return the cases of one name: an algorithm or a choice."""
    question = call.question
    if name in CHOICES and not (name == "auto" and question.library is not None):
        return contest(requests, requested_bytes, call, only_fastest=name != "all")
    if name == "auto":
        tasks = _chosen_tasks(requests, call)
    elif (picked := named(requests[0].op, name, question)).libraries:
        tasks = [
            Task(*library_kernel(picked, request, run, question))
            for request, run in zip(requests, call.party.runs, strict=True)
        ]
    else:
        _refuse_forwarders(picked, requests[0].op, call)
        tasks = [Task(picked, request, question.proto) for request in requests]
    return [case_of(plan_of(tasks, requested_bytes, call), call)]


def _refuse_forwarders(picked: Algorithm, op: Operation, call: Call) -> None:
    """Raise UnsupportedError, with what runs instead, if an algorithm that was named needs switches that add, and those
    here only forward.
    """
    question, runs = call.question, call.party.runs
    fabrics = [run.fabric for run in runs]
    everywhere = all(fabric.in_network is not None for fabric in fabrics) or "all" not in picked.in_network
    on_nodes = all(fabric.node_in_network is not None for fabric in fabrics) or "node" not in picked.in_network
    if everywhere and on_nodes:
        return
    others = ", ".join(entry.name for entry in able(op, runs[0], question))
    what = (
        f"{picked.name} needs switches that add and multicast, and {runs[0].topology.name} has none between these ranks"
    )
    raise UnsupportedError(Fault(what, "algo", f"take auto, or one that runs here: {others}"))


def named(op: Operation, name: str, question: Request) -> Algorithm:
    """Return the algorithm called *name*, which another operation or protocol of the question may have.

    Raises
    ------
    UnknownNameError, UnsupportedError
        It does not carry out *op*, or not with the protocol.
    """
    picked = algorithm(op.name, name)
    if question.proto not in (None, *picked.protocols):
        has = f"it has {' and '.join(picked.protocols)}"
        raise UnsupportedError(Fault(f"{name} does not run with {question.proto}", "proto", has))
    return picked


def _shown(name: str, cases: Sequence[Case], party: Party, question: Request) -> list[Row]:
    """Return the rows to show of what ran for one name: all, or the fastest."""
    if not cases:
        return []
    drawn = question.hash_seeds and cases[0].rows[0].size_bytes > 0
    rows = [over_draws(case.rows, question.hash_seeds) if drawn else case.rows[0] for case in cases if case.rows]
    if name == "auto" and question.library is not None:
        rows = [with_interval(row, party, question) for row in rows]
    elif name in ("auto", "best"):
        rows = [fastest(rows)]
    return [replace(row, asked=name) for row in rows]


def _chosen_tasks(requests: Sequence[ScheduleRequest], call: Call) -> list[Task]:
    """Return the tasks that the library would choose, for each group by itself."""
    question, runs = call.question, call.party.runs
    choices = [
        library_choice(request, run, question, call.told.by_plugin) for request, run in zip(requests, runs, strict=True)
    ]
    return [Task(picked, asked, question.proto or proto) for picked, asked, proto in choices]
