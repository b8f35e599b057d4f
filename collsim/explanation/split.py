"""The split of a time: what each thing beside bytes on bare wires is worth, taken away one after the other.

Every part but the last is a difference of two simulations, so that parts sum to the time by construction. After the
removals of `REMOVALS`, which leave the schedule on bare wires, go: background traffic; other groups; the order of
transfers, so that all begin at once; what sharing leaves of the busiest link; the uneven spread over links; bytes that
no algorithm has to send. What is left is the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from collsim.collectives import family_of
from collsim.core.errors import InputError, InternalError
from collsim.core.units import format_bandwidth, format_time
from collsim.explanation.bench import Bench
from collsim.explanation.findings import FINE, KINDS, Constant, Part
from collsim.explanation.removals import OVERLAP, Removal
from collsim.library.costs.direct_pointers import kernel_of
from collsim.simulation.provenance import machine_gpus
from collsim.simulation.request.fields import Request
from collsim.simulation.result import Row

__all__ = ["parts_of", "split_of"]

NONE = 1e-9
"""Parts below this share of the time are none."""
NEGATIVE = {
    OVERLAP.title: "negative: calls that overlap hide a part of this one",
    "": "negative: what was taken away before had hidden it, or transfers that end sooner meet others later",
}
UNTOLD = "steps that wait, and transfers that meet: too many to tell apart"


def parts_of(bench: Bench, in_order: Bench | None = None) -> tuple[Part, ...]:
    """Return the parts of the time of a bench, in the order of `KINDS`; they sum to it.

    Where the time is that of the machine *in order* and a delay by what has failed, the delay is one part, and the
    others are those of that machine.
    """
    if in_order is not None:
        damage, late_s = bench.asked.topology.damage, bench.row.time_s - in_order.row.time_s
        assert damage is not None
        title, more_s = (
            f"delay by what has failed: {damage.summary}",
            bench.row.lower_bound_s - in_order.row.lower_bound_s,
        )
        note = f"the bound is {format_time(more_s)} longer by it" if more_s > NONE * bench.row.time_s else ""
        return _sorted([*parts_of(in_order), Part("failures", title, late_s, note=note)])
    try:
        return split_of(bench)
    except InternalError:  # without caps, overlapping calls are too short for what a link carries
        return split_of(replace(bench, removals=(OVERLAP, *bench.removals)))


def split_of(bench: Bench) -> tuple[Part, ...]:
    """Return the same with the removals of the bench in their order.

    Raises
    ------
    InternalError
        A run without some of them broke a law of conservation.
    """
    rows = [bench.row]
    found = []
    for count, removal in enumerate(bench.removals, 1):
        rows.append(bench.without(count))
        worth_s = rows[-2].time_s - rows[-1].time_s
        note = NEGATIVE.get(removal.title, NEGATIVE[""]) if worth_s < 0 else ""
        found.append(Part(removal.kind, removal.title, worth_s, _constants(bench, removal), note))
    found += _on_bare_wires(bench, rows[-1])
    least_s = NONE * bench.row.time_s
    kept = [part for part in found if abs(part.time_s) > least_s or part.kind == "bound"]
    told_s = sum(part.time_s for part in kept)
    assert abs(told_s - bench.row.time_s) <= FINE * bench.row.time_s, "parts do not sum to the time"
    return _sorted(kept)


def _sorted(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return parts in the order of a page, the largest of a kind first."""
    kinds = list(KINDS)
    return tuple(sorted(parts, key=lambda part: (kinds.index(part.kind), -part.time_s)))


def _constants(bench: Bench, removal: Removal) -> tuple[Constant, ...]:
    """Return the constants that a removal takes away, those that the kernel of the row has."""
    row = bench.row
    node = bench.asked.topology.wiring.coordinates.node
    groups = [group.gpus for group in row.group_times] or [tuple(bench.gpus)]
    several = any(len({int(node[gpu]) for gpu in group}) > 1 for group in groups)
    kernel = kernel_of(bench.profile, family_of(row.op, row.algo), row.op)
    told = removal.origins(bench.profile, kernel, row.proto or "Simple", network=several)
    return tuple(
        Constant(origin.profile, origin.key, _value(name, value), origin.status, origin.source)
        for name, value, origin in told
    )


def _value(name: str, value: float) -> str:
    if name.endswith("_s"):
        return format_time(value)
    return format_bandwidth(value) if name.endswith("_Bps") else f"{value:.4g}"


def _on_bare_wires(bench: Bench, bare: Row) -> Iterator[Part]:
    """Yield the parts of a schedule on bare wires."""
    question, groups = bench.asked.question, bench.asked.groups
    whole = len(bench.removals)
    if question.load:
        question = replace(question, load=())
        free = bench.without(whole, question)
        yield Part("contention", "background traffic", bare.time_s - free.time_s)
        bare = free
    if len(bare.group_times) > 1 and question.matrix_bytes is None:
        slowest = max(bare.group_times, key=lambda group: group.time_s)
        question, groups = replace(question, grouping=None), [list(slowest.gpus)]
        alone = bench.without(whole, question, groups)
        yield Part("contention", "other groups at the same time", bare.time_s - alone.time_s)
        bare = alone
    yield from _order(bench, bare, replace(question, at_once=True), groups)
    yield from _loads(bare)
    yield from _bound(bench, bare, question, groups)


def _order(bench: Bench, bare: Row, at_once: Request, groups: Sequence[Sequence[int]]) -> Iterator[Part]:
    """Yield what is beyond the bytes of the busiest link: steps that wait, and sharing."""
    try:
        free = bench.without(len(bench.removals), at_once, groups)
    except InputError:
        yield Part("pipeline fill", UNTOLD, bare.time_s - _busiest_s(bare))
        return
    filled_s = bare.time_s - free.time_s
    note = NEGATIVE[""] if filled_s < 0 else ""
    yield Part("pipeline fill", "steps that wait for the ones before", filled_s, note=note)
    yield Part("contention", "transfers that meet on links", free.time_s - _busiest_s(bare))


def _busiest_s(bare: Row) -> float:
    """Return how long the busiest link takes; by loads as on a machine in order that may be less than the bound."""
    assert bare.loads is not None
    return max(bare.loads.busiest_s, bare.lower_bound_s)


def _loads(bare: Row) -> Iterator[Part]:
    """Yield what the busiest link carries beyond an even share, and what is beyond the bound in that."""
    assert bare.loads is not None
    even_s = min(max(bare.loads.even_s, bare.lower_bound_s), _busiest_s(bare))
    yield Part("imbalance", "the busiest link carries more than an even share", _busiest_s(bare) - even_s)
    yield Part("algorithm", "more bytes, or fewer links for them, than the bound asks for", even_s - bare.lower_bound_s)


def _bound(bench: Bench, bare: Row, question: Request, groups: Sequence[Sequence[int]]) -> Iterator[Part]:
    """Yield the bound, and what failures add to that of the machine in order."""
    damage, bound_s = bench.asked.topology.damage, bare.lower_bound_s
    if damage is not None:
        there = [machine_gpus(bench.asked.topology, gpus) for gpus in groups]
        order = bench.without(len(bench.removals), question, there, damage.healthy)
        yield Part("failures", damage.summary, bound_s - order.lower_bound_s)
        bound_s = order.lower_bound_s
    yield Part("bound", f"serialisation at line rate: {bare.bound}", bound_s)
