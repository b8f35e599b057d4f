"""Logs of DeepEP's tests beside the model, as a table for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from collsim.core.tabular import json_text
from collsim.core.units import format_count
from collsim.diagnosis.expert_findings import ExpertLog, ExpertRow
from collsim.report.nccl import time_text
from collsim.report.sheet import WHOLE, Column, Screen, document, sheet

__all__ = ["EXPERT_FORMATS", "render_experts"]

EXPERT_FORMATS = ("table", "json")
COLUMNS: tuple[Column[ExpertRow], ...] = (
    Column("op", lambda row: row.op, "", 8, "prose"),
    Column("type", lambda row: row.dtype, "", 4, "word"),
    Column("measured", lambda row: time_text(row.measured_s), "(us)", 9),
    Column("predicted", lambda row: time_text(row.predicted_s), "(us)", 9),
    Column("low", lambda row: time_text(row.time_lo_s), "(us)", 8),
    Column("high", lambda row: time_text(row.time_hi_s), "(us)", 8),
    Column("logical", lambda row: f"{row.logical_Bps / 1e9:.1f}", "(GB/s)", 7),
    Column("network", lambda row: f"{row.network_Bps / 1e9:.1f}" if row.network_Bps else "-", "(GB/s)", 7),
    Column("verdict", lambda row: row.verdict, kind="prose", gap=2),
)


def render_experts(logs: Sequence[ExpertLog], form: str = "table", screen: Screen = WHOLE) -> str:
    """Return logs in one of `EXPERT_FORMATS`, ending in a newline."""
    if form == "json":
        return json_text({"schema": "collsim.moe_logs/1", "logs": [_plain(each) for each in logs]})
    lines: list[str] = []
    for each in logs:
        lines += [*([] if not lines else ["#"]), *_block(each, screen)]
    return document(lines)


def _block(found: ExpertLog, screen: Screen) -> Iterator[str]:
    log, kernel = found.log, found.result.kernel
    yield f"# {log.file}"
    yield from screen.comments([
        f"collsim {found.result.version}   topo {found.result.topology['name']}   ranks {found.ranks} on "
        f"{format_count(found.nodes, 'node')}   mode {log.mode}   tokens {log.tokens}   hidden {log.hidden}   "
        f"top {log.top_k}",
        f"kernels {kernel['name']}: {kernel['title']}; calibrated: {'yes' if kernel['calibrated'] else 'no'}; "
        f"source: {kernel['source']}",
    ])  # fmt: skip
    yield from sheet(COLUMNS, found.rows, screen)
    yield from screen.comments(f"note: {note}" for note in found.notes)
    yield from screen.comments([f"{found.verdict}: low to high holds nine of ten measured times"])
    if found.causes and not found.causes[0].fits:
        yield from screen.comments(["none of the causes explains it by itself; the nearest come first"])
    for place, cause in enumerate(found.causes, 1):
        yield from screen.comments([
            f"{place}. {cause.title} [{cause.name}]: off by {cause.off:.0%} (healthy {cause.healthy_off:.0%})",
            f"to tell: {cause.measure}",
            f"to fix: {cause.fix}",
            f"as a what-if: collsim moe {cause.flags}   ({cause.source})",
        ])  # fmt: skip


def _plain(found: ExpertLog) -> dict[str, object]:
    """Return a log as plain data, SI units."""
    return {
        "file": found.log.file,
        "mode": found.log.mode,
        "ranks": found.ranks,
        "nodes": found.nodes,
        "tokens": found.log.tokens,
        "kernel": found.result.kernel["name"],
        "verdict": found.verdict,
        "rows": [{**asdict(row), "verdict": row.verdict} for row in found.rows],
        "notes": list(found.notes),
        "causes": [asdict(cause) for cause in found.causes],
    }
