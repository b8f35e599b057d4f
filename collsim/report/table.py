"""The table for people: the columns of nccl-tests, then what bounds each row and how far from the bound it is."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from collsim.collectives import record_of
from collsim.core.operations import OPERATIONS
from collsim.report.crossovers import crossover_lines
from collsim.report.nccl import draws_text, time_text
from collsim.simulation.request.tolerance import percent
from collsim.simulation.result import Result, Row

__all__ = ["as_markdown", "as_table", "doubtful", "escaped", "preamble", "switch_notes", "wrapped"]

COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("size", "(B)", 11),
    ("count", "(elem)", 10),
    ("type", "", 6),
    ("redop", "", 5),
    ("root", "", 4),
    ("algo", "", 6),
    ("time", "(us)", 8),
    ("low", "(us)", 8),
    ("high", "(us)", 8),
    ("from", "(us)", 8),
    ("to", "(us)", 8),
    ("min", "(us)", 8),
    ("p95", "(us)", 8),
    ("max", "(us)", 8),
    ("healthy", "(us)", 8),
    ("slower", "(x)", 6),
    ("algbw", "(GB/s)", 7),
    ("busbw", "(GB/s)", 7),
    ("total", "(GB/s)", 7),
    ("bound", "(us)", 8),
    ("eff", "(%)", 5),
)
"""Name, unit and least width; a column grows with its longest cell, and is left out where no row has anything."""
PREAMBLE_WIDTH = 110
MOST_FIGURES = 20


def as_table(result: Result) -> str:
    """Return one block per operation and number of ranks; every line that is not data starts with ``#``."""
    widths = _widths(result.rows)
    heads = [_aligned(texts, widths) for texts in zip(*((name, unit) for name, unit, _ in COLUMNS), strict=True)]
    lines = [
        f"# {line}" for text in preamble(result.version, result.topology, result.profile) for line in wrapped(text)
    ]
    lines += [f"# {line}" for text in _asked_of_all(result) for line in wrapped(text)]
    for (op, ranks, groups), rows in _blocks(result.rows).items():
        who = f"ranks {ranks}" if groups == 1 else f"groups {groups} x {ranks} ranks ({_split(result)})"
        lines += ["#", f"# op {op}   {who}   algo {_asked(result)}   model fluid"]
        by = max(map(len, ("bound by", *(row.bound for row in rows))))
        lines += [f"#{heads[0][1:]}  {'bound by':{by}}  bottleneck", f"#{heads[1][1:]}"]
        lines += [f"{_aligned(_cells(row), widths)}  {row.bound:{by}}  {row.limit}" for row in rows]
        lines += [f"# Avg bus bandwidth    : {_mean_busbw(rows)}"]
        lines += [f"# {line}" for note in (*crossover_lines(rows), *_notes(rows)) for line in wrapped(note)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def as_markdown(result: Result) -> str:
    """Return the rows as one Markdown table with the operation and the ranks in front."""
    shown = [place for place, width in enumerate(_widths(result.rows)) if width]
    names = [f"{name} {unit}".strip() for name, unit, _ in COLUMNS]
    heads = ["op", "ranks", *(names[place] for place in shown), "bound by", "bottleneck"]
    rows = []
    for row in result.rows:
        cells = _cells(row)
        ranks = str(row.ranks) if row.groups == 1 else f"{row.groups} x {row.ranks}"
        rows.append([row.op, ranks, *(cells[place] for place in shown), row.bound, row.limit])
    lines = [heads, _rules(heads), *rows]
    told = [line for block in _blocks(result.rows).values() for line in (*crossover_lines(block), *_notes(block))]
    notes = "\n".join(
        f"* {escaped(line)}"
        for line in (*preamble(result.version, result.topology, result.profile), *_asked_of_all(result), *told)
    )
    table = "\n".join("| " + " | ".join(map(escaped, cells)) + " |" for cells in lines)
    return f"{table}\n\n{notes}\n"


def _rules(heads: Sequence[str]) -> list[str]:
    """Return the line below the heads of a Markdown table: numbers to the right."""
    words = ("op", "type", "redop", "algo", "bound by", "bottleneck")
    return ["---" if head in words else "---:" for head in heads]


def escaped(text: str) -> str:
    """Return *text* for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def preamble(version: str, topology: Mapping[str, Any], profile: Mapping[str, Any]) -> list[str]:
    """Return what the reader must know before the numbers."""
    lines = [
        f"collsim {version}   topo {topology['name']} ({topology['ranks']} GPUs, {topology['links']} links)   "
        f"calibrated: {'yes' if profile['calibrated'] else 'no'}",
        f"profile {profile['name']}: {profile['constants']}",
    ]
    if damage := topology.get("damage"):
        lines += [f"with {damage['summary']}", *damage["effects"]]
    lines += doubtful(topology["not_datasheet"])
    return lines


def _split(result: Result) -> str:
    """Return how the ranks form groups."""
    config = result.config
    layout = f"{config['over']} of {config['groups']}" if config.get("over") else "lists of ranks"
    return str(config.get("split") or layout)


def _asked_of_all(result: Result) -> list[str]:
    """Return what all rows are subject to: background traffic, draws of a hash."""
    told = []
    if loads := result.config.get("load"):
        told.append(f"background traffic, taken off the rate of the links: {', '.join(loads)}")
    if result.config.get("hash_seeds"):
        told.append(f"{draws_text(result)}; min, p95 and max are of all draws, the rest is of the median one")
    return told


def _notes(rows: Sequence[Row]) -> list[str]:
    """Return what may puzzle the reader of a block."""
    notes = []
    if any(row.time_lo_s is not None for row in rows):
        notes.append("low to high: 90 % of measured times lie there, by the errors of logs that the fit did not see")
    if any(row.group_times for row in rows):
        notes.append("all groups run at once: times and bandwidths are of the slowest, total is the busbw of all")
    if any(len({(group.algo, group.proto) for group in row.group_times}) > 1 for row in rows):
        notes.append("not all groups run the same algorithm: algo is that of the slowest")
    notes += [*_tolerance_notes(rows), *_path_notes(rows), *switch_notes(rows)]
    others = Counter((row.healthy_algo, row.label) for row in rows if row.healthy_algo not in (None, row.label))
    notes += [
        f"healthy: {before} where {now} runs now ({count} row{'s' * (count > 1)})"
        for (before, now), count in others.items()
    ]
    return notes


def _path_notes(rows: Sequence[Row]) -> list[str]:
    """Return which rows rest on fewer transfers than there are."""
    notes = []
    if any(row.path.startswith("classes") for row in rows):
        notes.append("one transfer was simulated for each class of those that have to behave alike: same times")
    if any(row.path.startswith("wavefront") for row in rows):
        notes.append("steps of rings were computed row by row, from one place of each kind: same times")
    if any(row.path.endswith("equal chunks") for row in rows):
        notes.append("chunks that differ by an element were taken as the largest, which is at most that much too long")
    return notes


def _tolerance_notes(rows: Sequence[Row]) -> list[str]:
    """Return what is approximate, and what the times on both sides are."""
    notes = []
    if about := [row for row in rows if row.tolerance]:
        notes.append(
            f"~: ends of transfers were moved by up to {percent(max(row.tolerance for row in about))} of their time; "
            f"{percent(max(row.perturbed for row in about))} of all bytes went too early or too late. "
            "This bounds no error; tolerance 0 is exact"
        )
    if any(row.raised_s for row in rows):
        most = max(row.raised_s / row.time_s for row in rows)
        notes.append(f"~: raised by up to {percent(most)}, to the time that the busiest link needs for its bytes")
    if any(row.bracket_hi_s is not None for row in rows):
        notes.append("from: what the busiest link needs; to: no link is ever ahead of its bytes, which is no proof")
    return notes


def switch_notes(rows: Iterable[Row]) -> list[str]:
    """Return why the busbw of switches that add can exceed the rate of the links, for each number of ranks."""
    sums = (row for row in rows if row.op == "all_reduce" and "all" in record_of(row.op, row.algo).in_network)
    counts = dict.fromkeys((row.algo, row.ranks) for row in sums)
    return [
        f"{algo}: the switches add and copy, so a GPU moves S (1 + 1/{n}) per direction, not the 2 S {n - 1}/{n} "
        f"that busbw assumes; busbw can therefore exceed the rate of the links by up to "
        f"{2 * (n - 1) / (n + 1):.3g}x"
        for algo, n in counts
    ]


def doubtful(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the figures that stand on nothing public; those of a user's own file are only counted."""
    alike = Counter(
        (re.sub(r"\[\d+\]", "[*]", fact["path"]), fact["value"], fact["status"])
        for fact in facts
        if fact["status"] != "user"
    )
    named = [
        f"{path} {value} ({status})" + (f" {count} times" if count > 1 else "")
        for (path, value, status), count in alike.items()
    ]
    own = len(facts) - alike.total()
    shown = named[:MOST_FIGURES]
    if len(named) > MOST_FIGURES:
        shown.append(f"and {len(named) - MOST_FIGURES} more")
    if own:
        shown.append(f"{own} of the file's own without a status")
    return [f"figures that no datasheet or measurement backs: {', '.join(shown)}"] if shown else []


def wrapped(text: str) -> list[str]:
    """Return *text* on lines of at most `PREAMBLE_WIDTH` characters."""
    if len(text) <= PREAMBLE_WIDTH:
        return [text]
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, PREAMBLE_WIDTH, subsequent_indent="  ", **options)  # type: ignore[arg-type]


def _blocks(rows: Iterable[Row]) -> dict[tuple[str, int, int], list[Row]]:
    """Put rows together by operation, number of ranks and number of groups."""
    blocks: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row.op, row.ranks, row.groups), []).append(row)
    return blocks


def _asked(result: Result) -> str:
    algo, library = ", ".join(result.config["algo"]), result.profile.get("library")
    if library and "auto" in result.config["algo"]:
        settings = "".join(f", {name}={value}" for name, value in result.config["environment"].items())
        return f"{algo} (auto: as {library} chooses{settings})"
    if algo not in ("auto", "best"):
        return algo
    left_out = (warning.split()[0] for warning in result.warnings if " left out " in warning)
    some = any(name not in OPERATIONS for name in left_out)  # sizes of an operation are left out as well
    return f"{algo} (the fastest {'of those simulated' if some else 'in the simulator'})"


def _mean_busbw(rows: Sequence[Row]) -> str:
    """Return the mean in GB/s; one for each algorithm if a size has several rows."""
    if len({row.requested_bytes for row in rows}) == len(rows):
        return f"{_mean_GBps(rows):.4g}"
    algos = dict.fromkeys(row.algo for row in rows)
    return ", ".join(f"{algo} {_mean_GBps([row for row in rows if row.algo == algo]):.4g}" for algo in algos)


def _mean_GBps(rows: Sequence[Row]) -> float:
    return sum(row.busbw_Bps for row in rows) / len(rows) / 1e9


def _widths(rows: Iterable[Row]) -> list[int]:
    """Return the width of each column: its least, or its longest cell."""
    columns = zip(*map(_cells, rows), strict=True)
    longest = [max(map(len, cells)) for cells in columns]
    return [max(least, width) if width else 0 for (_, _, least), width in zip(COLUMNS, longest, strict=True)]


def _aligned(cells: Iterable[str], widths: Sequence[int]) -> str:
    """Join cells, each right-aligned in its column; columns of no width are left out."""
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True) if width)


def _cells(row: Row) -> list[str]:
    return [
        str(row.size_bytes),
        str(row.count),
        row.dtype,
        row.redop,
        str(row.root),
        row.label,
        f"{'~' * bool(row.tolerance)}{time_text(row.time_s)}",
        "" if row.time_lo_s is None else time_text(row.time_lo_s),
        "" if row.time_hi_s is None else time_text(row.time_hi_s),
        "" if row.bracket_lo_s is None else time_text(row.bracket_lo_s),
        "" if row.bracket_hi_s is None else time_text(row.bracket_hi_s),
        *("" if time_s is None else time_text(time_s) for time_s in (row.time_min_s, row.time_p95_s, row.time_max_s)),
        "" if row.healthy_time_s is None else time_text(row.healthy_time_s),
        "" if row.slowdown is None else f"{row.slowdown:.3g}",
        f"{row.algbw_Bps / 1e9:.2f}",
        f"{row.busbw_Bps / 1e9:.2f}",
        f"{row.total_busbw_Bps / 1e9:.2f}" if row.group_times else "",
        time_text(row.lower_bound_s),
        f"{row.efficiency * 100:.1f}",
    ]
