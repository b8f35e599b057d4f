"""The table for people: the columns of nccl-tests, then what bounds each row and how far from the bound it is."""

from __future__ import annotations

from collections.abc import Iterable

from collsim.report.nccl import time_text
from collsim.result import Result, Row

__all__ = ["as_markdown", "as_table"]

COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("size", "(B)", 12),
    ("count", "(elem)", 12),
    ("type", "", 8),
    ("redop", "", 5),
    ("root", "", 4),
    ("algo", "", 9),
    ("time", "(us)", 9),
    ("algbw", "(GB/s)", 7),
    ("busbw", "(GB/s)", 7),
    ("bound", "(us)", 9),
    ("eff", "(%)", 5),
)


def as_table(result: Result) -> str:
    """Return one block per operation and number of ranks; every line that is not data starts with ``#``."""
    lines = [f"# {line}" for line in _preamble(result)]
    for (op, ranks), rows in _blocks(result.rows).items():
        lines += ["#", f"# op {op}   ranks {ranks}   algo {_asked(result)}   model fluid"]
        lines += ["#" + _aligned(head)[1:] for head in zip(*((name, unit) for name, unit, _ in COLUMNS), strict=True)]
        lines[-2] += "  bottleneck"
        lines += [f"{_aligned(_cells(row))}  {row.limit}" for row in rows]
        mean = sum(row.busbw_Bps for row in rows) / len(rows) / 1e9
        lines += [f"# Avg bus bandwidth    : {mean:.4g}"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def as_markdown(result: Result) -> str:
    """Return the rows as one Markdown table with the operation and the ranks in front."""
    heads = ["op", "ranks", *(f"{name} {unit}".strip() for name, unit, _ in COLUMNS), "bottleneck"]
    rows = [[row.op, str(row.ranks), *_cells(row), row.limit] for row in result.rows]
    lines = [heads, ["---"] * len(heads), *rows]
    notes = "\n".join(f"* {line}" for line in _preamble(result))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + f"\n\n{notes}\n"


def _preamble(result: Result) -> list[str]:
    """Return what the reader must know before the numbers."""
    topology, profile = result.topology, result.profile
    lines = [
        f"collsim {result.version}   topo {topology['name']} ({topology['ranks']} GPUs, {topology['links']} links)   "
        f"calibrated: {'yes' if profile['calibrated'] else 'no'}",
        f"profile {profile['name']}: {profile['constants']}",
    ]
    doubtful = topology["not_datasheet"]
    if doubtful:
        lines.append(
            "figures that no datasheet or measurement backs: "
            + ", ".join(f"{fact['path']} {fact['value']} ({fact['status']})" for fact in doubtful)
        )
    return lines


def _blocks(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """Group rows by operation and number of ranks."""
    blocks: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row.op, row.ranks), []).append(row)
    return blocks


def _asked(result: Result) -> str:
    algo = ", ".join(result.config["algo"])
    return f"{algo} (the fastest in the simulator)" if algo in ("auto", "best") else algo


def _aligned(cells: Iterable[str]) -> str:
    """Join cells, each right-aligned in its column."""
    return " ".join(f"{cell:>{width}}" for cell, (_, _, width) in zip(cells, COLUMNS, strict=True))


def _cells(row: Row) -> list[str]:
    return [
        str(row.size_bytes),
        str(row.count),
        row.dtype,
        row.redop,
        str(row.root),
        row.algo,
        time_text(row.time_s),
        f"{row.algbw_Bps / 1e9:.2f}",
        f"{row.busbw_Bps / 1e9:.2f}",
        time_text(row.lower_bound_s),
        f"{row.efficiency * 100:.1f}",
    ]
