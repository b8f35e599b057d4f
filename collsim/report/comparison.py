"""Systems side by side, as a table for people, as Markdown, csv and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from collsim.core.units import format_size
from collsim.report.data import json_text
from collsim.report.nccl import time_text
from collsim.report.table import escaped, preamble, switch_notes, wrapped
from collsim.simulation.comparison import Compared, Comparison
from collsim.simulation.result import Row

__all__ = ["comparison_csv", "comparison_json", "comparison_markdown", "comparison_table"]

SHARED = (("op", ""), ("ranks", ""), ("size", "(B)"))
OWN = (("algo", ""), ("time", "(us)"), ("busbw", "(GB/s)"), ("speedup", "(x)"), ("bottleneck", ""))
"""Columns of every row, and of every system in it: name and unit. The first system has no speedup."""
TO_THE_LEFT = ("op", "bottleneck")


def comparison_table(comparison: Comparison) -> str:
    """Return one line per row, the systems side by side; every line that is not data starts with ``#``."""
    columns = _columns(comparison)
    widths = [max(map(len, column)) for column in columns]
    lines = ["# " + line for told in _before(comparison) for line in wrapped(told)]
    lines += ["#", _heading(comparison, widths)]
    names = [column[0] for column in columns]
    for place, cells in enumerate(zip(*columns, strict=True)):
        text = " ".join(
            f"{cell:<{width}}" if name in TO_THE_LEFT else f"{cell:>{width}}"
            for name, cell, width in zip(names, cells, widths, strict=True)
        )
        lines.append(("# " if place < 2 else "  ") + text)
    lines += ["# " + line for told in _after(comparison) for line in wrapped(told)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    """Return the rows as one Markdown table, with the name of the system at each of its columns."""
    columns = _columns(comparison)
    owners = [""] * len(SHARED) + [name for i, name in enumerate(_names(comparison)) for _ in _own(i)]
    heads = [" ".join(filter(None, (owner, *column[:2]))) for owner, column in zip(owners, columns, strict=True)]
    rules = ["---" if column[0] in (*TO_THE_LEFT, "algo") else "---:" for column in columns]
    lines = [heads, rules, *zip(*(column[2:] for column in columns), strict=True)]
    table = "\n".join("| " + " | ".join(map(escaped, cells)) + " |" for cells in lines)
    notes = "\n".join(f"* {escaped(told)}" for told in (*_before(comparison), *_after(comparison)))
    return f"{table}\n\n{notes}\n"


def comparison_json(comparison: Comparison) -> str:
    """Return the document of schema ``collsim.compare/1``."""
    return json_text(comparison.to_dict())


def comparison_csv(comparison: Comparison) -> str:
    """Return a header and one line per row and system, SI, with the columns of `Comparison.to_records`."""
    records = [{**record, "calibrated": str(record["calibrated"]).lower()} for record in comparison.to_records()]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _names(comparison: Comparison) -> list[str]:
    return [system.label for system in comparison.systems]


def _own(system: int) -> list[tuple[str, str]]:
    """Return the columns of a system by its number."""
    return [column for column in OWN if system or column[0] != "speedup"]


def _columns(comparison: Comparison) -> list[list[str]]:
    """Return every column: its name, its unit and its cells."""
    heads = [*SHARED, *(column for i in range(len(comparison.systems)) for column in _own(i))]
    cells = [
        [row.runs[0].op, row.who, str(row.runs[0].size_bytes)]
        + [cell for i, run in enumerate(row.runs) for cell in _cells(i, run, row.speedups[i])]
        for row in comparison.rows
    ]
    return [[*head, *column] for head, column in zip(heads, zip(*cells, strict=True), strict=True)]


def _cells(system: int, run: Row, speedup: float) -> list[str]:
    ratio = [f"{speedup:.3g}"] if system else []
    time = f"{'~' * bool(run.tolerance)}{time_text(run.time_s)}"
    return [run.label, time, f"{run.busbw_Bps / 1e9:.2f}", *ratio, run.limit]


def _heading(comparison: Comparison, widths: Sequence[int]) -> str:
    """Return the line that names each system where its columns begin."""
    start, line = len(SHARED), "#"
    for i, name in enumerate(_names(comparison)):
        place = 2 + sum(widths[:start]) + start
        line = f"{line:<{place}}" if len(line) < place else f"{line}  "
        line += f"{name} "
        start += len(_own(i))
    return line


def _before(comparison: Comparison) -> list[str]:
    """Return what the reader must know of each system before the numbers."""
    return [
        line
        for system in comparison.systems
        for line in preamble(comparison.version, {**system.topology, "name": system.label}, system.profile)
    ]


def _after(comparison: Comparison) -> list[str]:
    """Return what the rows come to: the least and the greatest speedup of each system, and where they are."""
    first, *others = _names(comparison)
    told = [
        f"speedup: the time of {first} over that of the other system",
        *(_range(comparison.rows, i, name) for i, name in enumerate(others, start=1)),
    ]
    if any(row.runs[0].groups > 1 for row in comparison.rows):
        told.append("all groups run at once: times and bandwidths are of the slowest")
    draws = max((len(run.draw_times_s) for row in comparison.rows for run in row.runs), default=0)
    if draws:
        told.append(f"times are medians of {draws} draws of the ECMP hash")
    return [*told, *switch_notes(run for row in comparison.rows for run in row.runs)]


def _range(rows: Sequence[Compared], system: int, name: str) -> str:
    ordered = sorted(rows, key=lambda row: row.speedups[system])
    least, most = (f"{row.speedups[system]:.3g} times as fast" for row in (ordered[0], ordered[-1]))
    if least == most:
        return f"{name} is {least}" + (" everywhere" if len(rows) > 1 else "")
    return f"{name} is {least} ({_place(ordered[0])}) to {most} ({_place(ordered[-1])})"


def _place(row: Compared) -> str:
    first = row.runs[0]
    return f"{first.op} of {row.who} ranks, {format_size(first.size_bytes)}"
