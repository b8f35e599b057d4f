"""An explanation as one page of text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from collsim.core.tabular import json_text
from collsim.core.units import format_bandwidth, format_bytes, format_size
from collsim.explanation.findings import KINDS, Chosen, Constant, Contender, Explanation, Part, Phase, TierUse, WhatIf
from collsim.report.nccl import time_text
from collsim.report.sheet import Column, comments, document, fitted, heads, line_of, wrapped
from collsim.report.table import preamble

__all__ = ["explanation_json", "explanation_text", "headline", "shown_what_ifs"]

T = TypeVar("T")
MOST_WHAT_IFS = 5
MOST_CONTENDERS = 8
BAR = 28
"""Characters of a bar as long as the whole time."""
MOST_CONSTANTS = 3
LEAST_PART = 5e-5
"""Of the time; smaller parts are in JSON only."""


def explanation_json(found: Explanation) -> str:
    """Return the document of schema ``collsim.explain/1``."""
    return json_text(found.to_dict())


def explanation_text(found: Explanation) -> str:
    """Return the page: what ran and why, what it moved where, what its time is made of, what would help."""
    result = found.result
    lines = comments(preamble(result.version, result.topology, result.profile))
    lines += ["", *headline(found)]
    lines += ["", *_chosen(found.chosen)]
    if found.phases:
        lines += ["", "What it sends", *_table(PHASES, found.phases)]
    if found.tiers:
        lines += ["", "Over which links", *_table(TIERS, found.tiers)]
        lines += [f"  {line}" for line in wrapped(found.tiers_told)] if found.tiers_told else []
    lines += ["", *_parts(found)]
    if found.what_ifs:
        lines += ["", *_what_ifs(found)]
    lines += [line for note in found.notes for line in wrapped(f"note: {note}")]
    return document(lines)


def headline(found: Explanation) -> list[str]:
    """Return the answer in sentences: time, interval, bound, and what limits."""
    row = found.row
    who = f"{row.groups} x {row.ranks} ranks" if row.groups > 1 else f"{row.ranks} ranks"
    sure = "nobody measured how far predictions of such a run are off"
    if row.time_lo_s is not None and row.time_hi_s is not None:
        low, high = row.time_lo_s / row.time_s - 1, row.time_hi_s / row.time_s - 1
        sure = f"90 % of measured times lie in {_us(row.time_lo_s)} to {_us(row.time_hi_s)} us"
        sure += f" ({low:+.0%} to {high:+.0%})"
    told = [
        f"{row.op} of {format_size(row.size_bytes)} on {who}: {_us(row.time_s)} us, "
        f"busbw {row.busbw_Bps / 1e9:.2f} GB/s",
        f"error band: {sure}",
        f"limited by: {row.limited_by}",
        f"bound: {_us(row.lower_bound_s)} us ({row.bound}), which is {row.efficiency:.0%} of the time",
    ]
    damage = found.result.topology.get("damage")
    told += [f"failures: {damage['summary']}"] if damage else []
    return [line for text in told for line in wrapped(text)]


def _us(time_s: float) -> str:
    return time_text(time_s)


def _chosen(chosen: Chosen) -> Iterator[str]:
    """Yield what ran, who chose it and why, and what was compared."""
    proto = f" with {chosen.proto}" if chosen.proto else ""
    by = chosen.by if chosen.by.startswith("named") else f"chosen by {chosen.by}"
    yield f"What ran: {chosen.algo}{proto} on {chosen.channels} channel{'s' * (chosen.channels != 1)}, {by}"
    yield from (f"  {line}" for line in wrapped(chosen.why))
    if chosen.contenders:
        yield from _table(CONTENDERS, chosen.contenders[:MOST_CONTENDERS])
    if (more := len(chosen.contenders) - MOST_CONTENDERS) > 0:
        yield f"  and {more} more, dearer"
    for doubt in chosen.doubts:
        yield from (f"  {line}" for line in wrapped(f"in doubt: {doubt}"))


def _time(time_s: float | None) -> str:
    return "" if time_s is None else _us(time_s)


CONTENDERS: tuple[Column[Contender], ...] = (
    Column("compared", lambda each: f"{each.algo}/{each.proto}" if each.proto else each.algo, kind="prose"),
    Column("estimate", lambda each: _time(each.estimate_s), "(us)", 9),
    Column("simulated", lambda each: _time(each.simulated_s), "(us)", 9),
    Column("", lambda each: "<- runs" if each.chosen else "", kind="prose"),
)
PHASES: tuple[Column[Phase], ...] = (
    Column("does", lambda phase: f"{phase.does} {phase.where}", kind="prose"),
    Column("steps", lambda phase: str(phase.steps), "", 6),
    Column("messages", lambda phase: str(phase.transfers), "", 9),
    Column("bytes", lambda phase: format_bytes(phase.bytes), "", 9),
)
TIERS: tuple[Column[TierUse], ...] = (
    Column("tier", lambda tier: tier.title, kind="prose"),
    Column("links", lambda tier: str(tier.links), "", 6),
    Column("bytes", lambda tier: format_bytes(tier.bytes), "", 9),
    Column("busy", lambda tier: f"{tier.mean:.0%}", "(mean)", 6),
    Column("busy", lambda tier: f"{tier.busiest:.0%}", "(most)", 6),
    Column("busiest link", lambda tier: f"{tier.link} of {format_bandwidth(tier.capacity_Bps)}", kind="prose", gap=2),
)


def _table(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[str]:
    """Return a table with one line of headings, two where columns have units."""
    shown = fitted(columns, rows)
    names, units = heads(shown)
    return [f"  {line}" for line in (names, *[units] * bool(units.strip()), *(line_of(shown, row) for row in rows))]


def _parts(found: Explanation) -> Iterator[str]:
    """Yield the parts of the time by their kinds, each with what it is made of."""
    yield f"Where {_us(found.time_s)} us go: each part is how much sooner the call ends without it, taken away in turn"
    for kind in reversed([*KINDS]):
        parts = [part for part in found.parts if part.kind == kind]
        if not parts:
            continue
        total_s = found.total(kind)
        if _us(abs(total_s)) == _us(0.0):
            continue  # a rounding of the last digit shown
        share = total_s / found.time_s
        bar = "#" * max(round(share * BAR), 1 if share >= 0.005 else 0)
        yield f"  {kind:<14s} {_us(total_s):>9s} us {share:>6.1%}  {bar}".rstrip()
        shown = [part for part in parts if abs(part.time_s) >= LEAST_PART * found.time_s] or parts
        yield from (line for part in shown for line in _part(part, alone=len(shown) == 1))
    yield f"  {'sum':<14s} {_us(sum(part.time_s for part in found.parts)):>9s} us {1:>6.1%}"


def _part(part: Part, *, alone: bool) -> Iterator[str]:
    """Yield a part: what it is, which constants it is of, and why it is negative if it is."""
    own = "" if alone else f"{_us(part.time_s)} us: "
    constants = ", ".join(_constant(each) for each in part.constants[:MOST_CONSTANTS])
    if (more := len(part.constants) - MOST_CONSTANTS) > 0:
        constants += f" and {more} more"
    text = f"{own}{part.title}" + f": {constants}" * bool(constants) + f" ({part.note})" * bool(part.note)
    yield from (f"      {line}" for line in wrapped(text))


def _constant(constant: Constant) -> str:
    key = constant.key.removeprefix("families.")
    return f"{key} {constant.value} ({constant.status})"


def shown_what_ifs(found: Explanation) -> list[WhatIf]:
    """Return the changes that gain most, those that gain anything."""
    least_s = 1e-3 * found.time_s
    return [each for each in found.what_ifs if each.gain_s > least_s][:MOST_WHAT_IFS]


def _by(each: WhatIf, found: Explanation) -> str:
    """Return what runs with a change, if it is something else; by how many channels where that is the difference."""
    if each.algo == found.row.label:
        return ""
    differ = each.algo.partition("/")[0] == found.row.algo and each.channels not in (None, found.row.channels)
    return f", by {each.algo}" + f" on {each.channels} channels" * differ


def _what_ifs(found: Explanation) -> Iterator[str]:
    """Yield the changes that help most, and how many others were simulated."""
    shown = shown_what_ifs(found)
    yield "What would help most, each simulated" if shown else "Nothing that was simulated would help"
    for place, each in enumerate(shown, 1):
        assert each.time_s is not None
        less = f"{each.gain_s / found.time_s:.1%} less{_by(each, found)}"
        yield f"  {place}. {each.title}: {_us(each.time_s)} us, {less}"
        yield from (f"       {line}" for line in wrapped(each.flags))
        for warning in each.warnings[:1]:
            yield from (f"       {line}" for line in wrapped(f"in doubt: {warning}"))
    refused = sum(each.time_s is None for each in found.what_ifs)
    others = len(found.what_ifs) - len(shown) - refused
    told = [f"{others} more gain less or nothing"] * bool(others) + [f"{refused} have no answer here"] * bool(refused)
    if told:
        yield f"  {', '.join(told)}: --format json has all"
