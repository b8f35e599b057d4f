"""Table for people: the columns of nccl-tests, then what bounds each row and how far from the bound it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from collsim.collectives import record_of
from collsim.core.operations import OPERATIONS
from collsim.core.units import format_count
from collsim.report.crossovers import contestant, crossover_lines
from collsim.report.nccl import draws_text, time_text
from collsim.report.sheet import (
    WHOLE,
    Column,
    Screen,
    document,
    fitted,
    fitting,
    heads,
    line_of,
    markdown,
    not_shown,
    with_refused,
)
from collsim.report.surprises import surprise_lines
from collsim.report.wires import wire_columns, wire_notes, wires_of
from collsim.simulation.method import Method
from collsim.simulation.request.tolerance import percent
from collsim.simulation.result import Refusal, Result, Row
from collsim.simulation.row import width_notes

__all__ = [
    "COLUMNS",
    "LIMITS",
    "as_markdown",
    "as_table",
    "consequences",
    "doubtful",
    "interval_notes",
    "preamble",
    "switch_notes",
]

E = TypeVar("E", Row, Row | Refusal)
MOST_FIGURES = 20


def _time(name: str) -> Callable[[Row], str]:
    """Text of a time; nothing where there is none."""

    def text(row: Row) -> str:
        time_s = getattr(row, name)
        return "" if time_s is None else time_text(time_s)

    return text


PLAIN = "data type, reduction operator, root rank; `none` and `-1` where there is none"
INTERVAL = "90 % of measured times lie between them; left out where nobody measured how far predictions are off"
BRACKET = (
    "with `--bracket`: times on [both sides](irregular.md#times-on-both-sides) of `time`; the same as `time` where the "
    "row is exact; also where what [failed on a large machine](scale.md#nearly-alike) was simulated among some nodes, "
    "and where what is only nearly alike may be off by 0.5 % or more"
)
DRAWS = (
    "with [draws of a hash](clusters.md#lucky-and-unlucky-hashes): of all draws; the other columns are of the median "
    "one"
)
COLUMNS: tuple[Column[Row], ...] = (
    Column(
        "size", lambda row: str(row.size_bytes), "(B)", 11,
        meaning="the larger of send and receive buffer of one rank, rounded as nccl-tests rounds it",
    ),
    Column("count", lambda row: str(row.count), "(elem)", 10, meaning="the count argument of the call"),
    Column("type", lambda row: row.dtype, "", 6, "word", meaning=PLAIN),
    Column("redop", lambda row: row.redop, "", 5, "word", meaning=PLAIN),
    Column("root", lambda row: str(row.root), "", 4, meaning=PLAIN),
    Column(
        "asked", lambda row: row.asked, "", 5, "word",
        meaning="if `auto`, `best` or `all` was one of several that were asked for: which of them the row answers",
    ),
    Column(
        "algo", lambda row: row.label, "", 6, "word",
        meaning="the algorithm that ran, and its protocol if the library or `--proto` chose one: `ring/LL`",
    ),
    Column(
        "time", lambda row: f"{'~' * bool(row.tolerance)}{time_text(row.time_s)}", "(us)", 8,
        meaning="predicted time of one collective; `~` before it: within a [tolerance](irregular.md)",
    ),
    Column("low", _time("time_lo_s"), "(us)", 8, meaning=INTERVAL),
    Column("high", _time("time_hi_s"), "(us)", 8, meaning=INTERVAL),
    Column("from", _time("bracket_lo_s"), "(us)", 8, meaning=BRACKET),
    Column("to", _time("bracket_hi_s"), "(us)", 8, meaning=BRACKET),
    Column("min", _time("time_min_s"), "(us)", 8, meaning=DRAWS),
    Column("p95", _time("time_p95_s"), "(us)", 8, meaning=DRAWS),
    Column("max", _time("time_max_s"), "(us)", 8, meaning=DRAWS),
    Column(
        "healthy", _time("healthy_time_s"), "(us)", 8,
        meaning="with [failures](failures.md): the time of the machine in which nothing failed",
    ),
    Column(
        "slower", lambda row: "" if row.slowdown is None else f"{row.slowdown:.3g}", "(x)", 6,
        meaning="`time / healthy`",
    ),
    Column("algbw", lambda row: f"{row.algbw_Bps / 1e9:.2f}", "(GB/s)", 7, meaning="`size / time`"),
    Column(
        "busbw", lambda row: f"{row.busbw_Bps / 1e9:.2f}", "(GB/s)", 7,
        meaning="`algbw` times the factor of nccl-tests, below",
    ),
    Column(
        "total", lambda row: f"{row.total_busbw_Bps / 1e9:.2f}" if row.group_times else "", "(GB/s)", 7,
        meaning="with several [groups](groups.md): `busbw` of all together; the other columns are of the slowest",
    ),
    Column(
        "bound", _time("lower_bound_s"), "(us)", 8,
        meaning="lower bound at line rate: no algorithm on these links is faster; switches that add and copy count if "
        "there are any, those between nodes if the row's algorithm uses them",
    ),
    Column(
        "eff", lambda row: f"{row.efficiency * 100:.1f}", "(%)", 5,
        meaning="`bound / time`: 100 is the line rate of the wires; a profile with links at their achievable rate, "
        "named above the table, can reach that share of it at most",
    ),
)  # fmt: skip
LIMITS: tuple[Column[Row], ...] = (
    Column(
        "bound by", lambda row: row.bound, kind="prose", gap=2,
        meaning="where the lower bound comes from: a GPU's egress or ingress, a cut, the egress of all ranks, latency",
    ),
    Column("limited by", lambda row: row.limited_by, kind="prose", gap=2, meaning="[what limits](#what-limits), below"),
)  # fmt: skip
"""Last columns, which are as wide as those of their block need."""
OWNERS: tuple[Column[Row], ...] = (
    Column("op", lambda row: row.op, kind="word"),
    Column("ranks", lambda row: str(row.ranks) if row.groups == 1 else f"{row.groups} x {row.ranks}"),
)
"""Columns in front of a table that is not parted into blocks."""


DROP = (
    "count", "root", "redop", "type", "bound_by", "algbw", "from to", "min max", "asked", "healthy", "bound", "total",
    "eff", "p95", "low high", "limited_by", "slower",
)  # fmt: skip
"""Columns that go first where a screen is too narrow, in this order."""


def as_table(result: Result, screen: Screen = WHOLE) -> str:
    """One block per operation and number of ranks; every line that is not data starts with ``#``."""
    everything: list[Row | Refusal] = [*result.rows, *result.refused]
    columns = fitted(_both(_columns(result, screen.columns)), everything)
    lines = screen.head([*preamble(result.version, result.topology, result.profile), *_asked_of_all(result)])
    lost: dict[str, None] = {}
    for (op, ranks, groups), entries in _blocks(everything).items():
        rows = [entry for entry in entries if isinstance(entry, Row)]
        who = f"ranks {ranks}" if groups == 1 else f"groups {groups} x {ranks} ranks ({_split(result)})"
        lines += ["#", *screen.one(f"op {op}   {who}   algo {_asked(result)}   model fluid")]
        whole = [*columns, *fitted(_both(LIMITS), entries)]
        shown = fitting(whole, screen, DROP)
        lost |= dict.fromkeys(not_shown(whole, shown))
        lines += [f"#{head[1:]}" for head in heads(shown)]
        lines += [line_of(shown, entry, screen) for entry in _in_order(entries)]
        lines += screen.one(f"Avg bus bandwidth    : {_mean_busbw(rows)}") if rows else []
        lines += screen.comments([*crossover_lines(rows), *_notes(rows, shown)])
    after = [*surprise_lines(result.rows), *lost, *_thresholds(result)]
    return document([*lines, *screen.comments(after)])


def as_markdown(result: Result) -> str:
    """Rows as one Markdown table with the operation and the ranks in front."""
    told = [line for block in _blocks(result.rows).values() for line in (*crossover_lines(block), *_notes(block))]
    told += surprise_lines(result.rows)
    notes = [*preamble(result.version, result.topology, result.profile), *_asked_of_all(result), *told]
    everything: list[Row | Refusal] = [*result.rows, *result.refused]
    entries = [entry for block in _blocks(everything).values() for entry in _in_order(block)]
    return markdown(_both([*OWNERS, *_columns(result), *LIMITS]), entries, notes)


def _both(columns: Iterable[Column[Row]]) -> list[Column[Row | Refusal]]:
    """Return columns that show refusals as well: what was asked, and why there is no time."""

    def cells(refusal: Refusal) -> dict[str, str]:
        who = str(refusal.ranks) if refusal.groups == 1 else f"{refusal.groups} x {refusal.ranks}"
        asked = {"op": refusal.op, "ranks": who, "size": str(refusal.requested_bytes), "algo": refusal.asked}
        return {**asked, "time": "refused", "limited by": refusal.what}

    return with_refused(columns, Refusal, cells)


def _in_order(entries: Sequence[Row | Refusal]) -> list[Row | Refusal]:
    """Return rows and refusals of a block by size."""
    if not any(isinstance(entry, Refusal) for entry in entries):
        return list(entries)
    return sorted(entries, key=lambda entry: entry.requested_bytes)


def _columns(result: Result, sets: Sequence[str] = ()) -> list[Column[Row]]:
    """Return the columns; what was asked for is one only where that is not what ran, for some of several."""
    tells = len(result.config["algo"]) > 1 and any(row.asked != row.algo for row in result.rows)
    return [*(column for column in COLUMNS if column.name != "asked" or tells), *wire_columns(sets, wires_of)]


def preamble(version: str, topology: Mapping[str, Any], profile: Mapping[str, Any]) -> list[str]:
    """Return the lines above a table: version, topology, profile, damage, and figures that are in doubt."""
    size = f"{format_count(topology['ranks'], 'GPU')}, {format_count(topology['links'], 'link')}"
    lines = [
        f"collsim {version}   topo {topology['name']} ({size})   "
        f"calibrated: {'yes' if profile['calibrated'] else 'no'}",
        f"profile {profile['name']}: {profile['constants']}",
    ]
    lines += [f"peers: {topology['peers']}"] if topology.get("peers") else []
    lines += [f"host {profile['host']}"] if profile.get("host") else []
    if damage := topology.get("damage"):
        lines += [f"with {damage['summary']}", *damage["effects"]]
    lines += [*consequences(topology["follows"]), *doubtful(topology["not_datasheet"])]
    return lines


def consequences(follows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what settings changed beside the figures that they name, a line for each of them."""
    causes = dict.fromkeys(each["from"] for each in follows)
    return [
        f"follows from {cause}: "
        + ", ".join(
            f"{each['path']} {each['value']}, not {each['before']}" for each in follows if each["from"] == cause
        )
        for cause in causes
    ]


def _split(result: Result) -> str:
    """Return the layout of the groups as the user gave it: a split, named groups, or lists of ranks."""
    config = result.config
    layout = f"{config['over']} of {config['groups']}" if config.get("over") else "lists of ranks"
    return str(config.get("split") or layout)


def _asked_of_all(result: Result) -> list[str]:
    """Return notes on conditions of all rows: background traffic, draws of a hash."""
    told = []
    if loads := result.config.get("load"):
        told.append(f"background traffic, taken off the rate of the links: {', '.join(loads)}")
    if result.config.get("hash_seeds"):
        told.append(f"{draws_text(result)}; min, p95 and max are of all draws, the rest is of the median one")
    return told


def _notes(rows: Sequence[Row], shown: Sequence[Column[Any]] = COLUMNS) -> list[str]:
    """Return the notes below a block, on those columns that are *shown* and figures that may puzzle."""
    notes = []
    if any(column.name == "low" for column in shown):
        notes += interval_notes(rows)
    if any(row.group_times for row in rows):
        notes.append("all groups run at once: times and bandwidths are of the slowest, total is the busbw of all")
    if any(len({(group.algo, group.proto) for group in row.group_times}) > 1 for row in rows):
        notes.append("not all groups run the same algorithm: algo is that of the slowest")
    notes += [*_tolerance_notes(rows), *_path_notes(rows), *switch_notes(rows), *wire_notes(map(wires_of, rows))]
    others = Counter((row.healthy_algo, row.label) for row in rows if row.healthy_algo not in (None, row.label))
    notes += [
        f"healthy: {before} where {now} runs now ({count} row{'s' * (count > 1)})"
        for (before, now), count in others.items()
    ]
    return notes


def interval_notes(rows: Sequence[Row]) -> list[str]:
    """Return what low and high say, and where they are far apart; nothing where no row has them."""
    measured = any(row.time_lo_s is not None for row in rows)
    told = "low to high: 90 % of measured times lie there, by the errors of logs that the fit did not see"
    return [*[told] * measured, *width_notes((row.size_bytes, row.wide_because) for row in rows)]


def _thresholds(result: Result) -> list[str]:
    """Return who else moves a threshold that lies between the numbers of ranks shown: nothing in the library alone."""
    taken: dict[tuple[str, int], set[str]] = {}
    for row in result.rows:
        if row.asked == "auto" and result.profile.get("library"):
            taken.setdefault((row.op, row.requested_bytes), set()).add(row.algo)
    moving = sorted({algo for algos in taken.values() if len(algos) > 1 for algo in algos})
    if not moving:
        return []
    what = f"{' and '.join(moving)} change with the number of ranks as {result.profile['library']} chooses by itself"
    return [f"{what}; a tuner plug-in (NCCL_TUNER_PLUGIN, as clouds have it) can move that: NCCL_ALGO settles it"]


def _path_notes(rows: Sequence[Row]) -> list[str]:
    """Return which rows rest on fewer transfers than there are."""
    methods, notes = [row.method for row in rows], []
    if any(each.simulated == "classes" and not each.nearly_alike for each in methods):
        notes.append("one transfer was simulated for each class of those that have to behave alike: same times")
    if sampled := sum(each.part_delay for each in methods):
        what = "the delay by what has failed was simulated among some of the nodes and grows with the rounds of all"
        sides = (
            "from: without it, less what ranks are not quite alike by, or what a slower link needs; to: twice as much"
        )
        notes.append(f"{format_count(sampled, 'row')}: {what}; {sides}, which is no proof")
    if near := sum(each.nearly_alike and not _doubt(each) for each in methods):
        what = "what is only nearly alike was taken as alike, so times are a little off (docs/scale.md says how much)"
        notes.append(f"{format_count(near, 'row')}: {what}")
    if doubts := [share for each in methods if (share := _doubt(each))]:
        most = percent(max(doubts))
        what = (
            "what is only nearly alike was taken as alike; telling apart less moves the time, which may be off by "
            f"{most} at most (from, to); that is no proof"
        )
        notes.append(f"{format_count(len(doubts), 'row')}: {what}")
    if paces := [each.pace_share for each in methods if each.pace_share]:
        most = percent(max(paces))
        what = "chunks beyond the first ones follow at a pace that still changed when they were cut"
        notes.append(f"{format_count(len(paces), 'row')}: {what}, which is worth {most} of a time at most")
    if any(each.simulated == "wavefront" for each in methods):
        notes.append("steps of rings were computed row by row, from one place of each kind: same times")
    if any(each.groups_alike for each in methods):
        notes.append("one group was simulated for all that are alike and share no link with another: same times")
    if any(each.equal_chunks for each in methods):
        notes.append("chunks that differ by an element were taken as the largest, which was up to 2 % too long")
    return notes


def _doubt(method: Method) -> float:
    """Return which part of its time a row may be off by what is only nearly alike; 0 where a delay says more."""
    return 0.0 if method.part_delay else method.doubt_share


def _tolerance_notes(rows: Sequence[Row]) -> list[str]:
    """Return notes on times that are approximate, and on the times on both sides of them."""
    notes = []
    if about := [row for row in rows if row.tolerance]:
        notes.append(
            f"~: ends of transfers were moved by up to {percent(max(row.tolerance for row in about))} of their time; "
            f"{percent(max(row.perturbed for row in about))} of all bytes went too early or too late. "
            "This bounds no error; tolerance 0 is exact"
        )
    if raised := [row for row in about if row.raised_s]:
        most = max(row.raised_s / row.time_s for row in raised)
        notes.append(f"~: raised by up to {percent(most)}, to the time that the busiest link needs for its bytes")
    if any(row.bracket_hi_s is not None and not row.method.nearly_alike for row in rows):
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


def _blocks(rows: Iterable[E]) -> dict[tuple[str, int, int], list[E]]:
    """Put rows together by operation, number of ranks and number of groups."""
    blocks: dict[tuple[str, int, int], list[E]] = {}
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
    """Return the mean in GB/s; one for each choice and algorithm if a size has several rows."""
    if len({row.requested_bytes for row in rows}) == len(rows):
        return f"{_mean_GBps(rows):.4g}"
    names = dict.fromkeys(contestant(row) for row in rows)
    return ", ".join(f"{name} {_mean_GBps([row for row in rows if contestant(row) == name]):.4g}" for name in names)


def _mean_GBps(rows: Sequence[Row]) -> float:
    return sum(row.busbw_Bps for row in rows) / len(rows) / 1e9
