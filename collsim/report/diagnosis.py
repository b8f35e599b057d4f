"""Diagnosis of logs as text for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from collsim.core.operations import operation
from collsim.core.tabular import json_text
from collsim.core.units import format_count, format_size
from collsim.diagnosis.findings import Curve, DiagnosedLog, Diagnosis, Finding, Flagged, SizeRange, Suspect
from collsim.report.nccl import time_text
from collsim.report.sheet import Column, comments, document, sheet, wrapped
from collsim.report.table import preamble

__all__ = ["diagnosis_json", "diagnosis_text"]

MOST_CURVES = 3
"""Causes whose times stand beside the measured ones."""
MOST_FLAGGED = 5
"""Rows with impossible times that are shown, the worst first."""
MOST_FINDINGS = 5
LIKELY = 0.01
"""Of less likely causes, all but the first are one line."""
BANDWIDTH_FROM_BYTES = 2**20
WORDS = {
    "healthy": "healthy",
    "doubtful": "doubtful: slow as a whole with every row inside its interval, or at single sizes",
    "faulty": "faulty: slower than the model allows",
    "fast": "faster than the model allows",
}


def diagnosis_json(diagnosis: Diagnosis) -> str:
    """Return the document of schema ``collsim.diagnose/1``."""
    return json_text(diagnosis.to_dict())


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Return a block per log, then the causes, best first, with what tells them apart and what would fix each."""
    lines = comments(
        [*preamble(diagnosis.version, diagnosis.topology, diagnosis.profile), *filter(None, [diagnosis.said])]
    )
    for log in diagnosis.logs:
        lines += ["", *_log(log, diagnosis.topology["name"])]
    lines += ["", *_causes(diagnosis)]
    for title, told in (("remarks", diagnosis.remarks), ("skipped", diagnosis.skipped)):
        lines += [line for text in told for line in wrapped(f"{title}: {text}")]
    return document(lines)


def _log(log: DiagnosedLog, topology: str) -> Iterator[str]:
    """Yield the verdict on a log by range of sizes, and its rows beside the best causes."""
    case, line = log.log.case, f":{log.log.line}" if log.log.line else ""
    words = WORDS.get(log.verdict) or f"broken: {_broken(log)}"
    yield f"{log.log.file}{line}   {case.op}, {case.ranks} ranks: {words}"
    yield from (f"  {_range(part)}" for part in log.ranges)
    yield from _impossible([row for row in log.flagged if row.impossible], topology)
    shown = log.curves[:MOST_CURVES]
    if not shown:
        return
    factor = operation(case.op).busbw_factor(case.ranks)
    columns: list[Column[int]] = [
        Column("size", lambda row: str(log.sizes[row]), "(B)", 11),
        Column("measured", lambda row: time_text(log.measured_s[row]), "(us)", 9),
        Column("busbw", lambda row: f"{factor * log.sizes[row] / log.measured_s[row] / 1e9:.1f}", "(GB/s)", 7),
        Column("healthy", lambda row: time_text(log.healthy.times_s[row]), "(us)", 9),
        *(_times(curve) for curve in shown),
    ]
    yield from sheet(columns, range(len(log.sizes)))


def _broken(log: DiagnosedLog) -> str:
    """Return how many of the times are impossible, and where results are wrong."""
    of = f"of {len(log.log.rows)}"
    impossible = sum(row.impossible for row in log.flagged)
    wrong = [row for row in log.flagged if "wrong_results" in row.flags]
    told = [f"{impossible} {of} times impossible"] if impossible else []
    if wrong:
        most = max(row.wrong or 0.0 for row in wrong)
        told.append(f"{len(wrong)} {of} rows with wrong results, up to {most:g} values")
    return ", ".join(told)


def _impossible(rows: Sequence[Flagged], topology: str) -> Iterator[str]:
    """Yield the rows that are farthest below what is possible, what bounds each, and what is to be looked at."""
    if not rows:
        return
    columns: list[Column[Flagged]] = [
        Column("size", lambda row: str(row.size_bytes), "(B)", 11),
        Column("measured", lambda row: time_text(row.measured_s), "(us)", 9),
        Column("bound", lambda row: time_text(row.least_s), "(us)", 9),
        Column("share", lambda row: f"{row.share * 100:.2g}", "(%)", 6),
        Column("bound by", lambda row: row.bound, kind="prose", gap=2),
    ]
    yield from sheet(columns, rows[:MOST_FLAGGED])
    more = f"{len(rows) - MOST_FLAGGED} more in --format json; " if len(rows) > MOST_FLAGGED else ""
    hint = f"no algorithm is faster on {topology}: is --topo the machine, are --ranks, --nodes and the unit those of"
    yield from _indented(f"{more}{hint} the log?")


def _times(curve: Curve) -> Column[int]:
    return Column(curve.name, lambda row: time_text(curve.times_s[row]), "(us)", 9)


def _range(part: SizeRange) -> str:
    least, most = format_size(part.least_bytes), format_size(part.most_bytes)
    where = f"at {least}" if least == most else f"{least} to {most}"
    as_rate = part.most_bytes > BANDWIDTH_FROM_BYTES
    ratio = 1 / part.ratio if as_rate else part.ratio
    words = f"{'busbw' if as_rate else 'time'} {ratio:.0%} of the model's"
    return f"{where:22s} {part.verdict:8s} {words:30s} p = {part.p_value:.2g}"


def _causes(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the classes of causes with their fits."""
    if not any(log.verdict in ("faulty", "doubtful", "broken") for log in diagnosis.logs):
        yield "no cause is looked for: nothing is slower than a healthy machine may be"
        return
    told = any(found.fits for found in diagnosis.findings)
    healthy = max((log.healthy.rms for log in diagnosis.logs), default=0.0)
    if diagnosis.unexplained:
        yield _unexplained(diagnosis, told=told)
    if any(found.probability < after.probability for found, after in pairwise(diagnosis.findings[:MOST_FINDINGS])):
        yield "of causes about as likely the nearest stands first"
    for place, found in enumerate(diagnosis.findings[:MOST_FINDINGS], 1):
        yield from _finding(
            place, found, healthy, whole=place == 1 or (found.probability >= LIKELY and (found.fits or not told))
        )
    if (more := len(diagnosis.findings) - MOST_FINDINGS) > 0:
        yield f"{more} more fit better than the healthy machine, and worse than these"


def _unexplained(diagnosis: Diagnosis, *, told: bool) -> str:
    """Say that the likeliest cause, or all of them, are too far from the rows; *told*: another one is not."""
    causes = format_count(len(diagnosis.looked_at), "cause")
    if told:
        return f"the likeliest of {causes} that were simulated is too far to explain this"
    nearest = "; the nearest follow" if diagnosis.findings else ""
    if len(diagnosis.looked_at) == 1:
        return f"the one cause that was simulated does not explain this{nearest}"
    return f"none of the {causes} that were simulated explains this{nearest}"


def _finding(place: int, found: Finding, healthy_rms: float, *, whole: bool) -> Iterator[str]:
    """Yield a class: its fit and, as a *whole*, what tells its causes apart and what fixes each."""
    poor = "" if found.fits else ", too far to explain it"
    fit = f"off by {found.rms:.0%} (healthy {healthy_rms:.0%}){poor}, {found.probability:.0%} of the likelihood"
    yield f"{place}. {_name(found.suspects[0])}"
    yield f"   {fit}"
    if len(found.suspects) > 1:
        same = [_name(suspect) for suspect in found.told[1:]]
        same += [f"{more} more, in --format json"] if (more := len(found.suspects) - len(found.told)) else []
        yield from _indented(f"no row tells it from: {'; '.join(same)}")
    for suspect in found.told if whole else ():
        head = f"{suspect.name}: " if len(found.suspects) > 1 else ""
        for text in suspect.evidence:
            yield from _indented(f"{head}the log says: {text}")
        yield from _indented(f"{head}to tell: {suspect.measure}")
        yield from _indented(f"{head}to fix: {suspect.fix}")
        if suspect.flags:
            yield from _indented(f"{head}as a what-if: collsim run {suspect.flags}")


def _name(suspect: Suspect) -> str:
    degree = f" ({suspect.degree})" if suspect.degree else ""
    return f"{suspect.title}{degree} [{suspect.name}]"


def _indented(text: str) -> Sequence[str]:
    return [f"   {line}" for line in wrapped(text)]
