"""Print how far predictions are from measured logs that no fit has seen.

``python tools/accuracy.py`` compares collsim, a fit of alpha and beta on the same training logs, and the time by
which NCCL and RCCL rank their own algorithms, per system, class of operations and band of sizes, with the noise of the
measurements beside them. ``--write`` puts the summary into README.md, between its markers, and the tables by class and
by operation into docs/accuracy.md; ``--set train`` scores the logs of the fit instead. Which log is in which set, and
why: tools/data/split.csv.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pages import put_between
from predictors import (
    MESSAGES,
    Prediction,
    TableCase,
    TableRow,
    alpha_beta,
    choice_of,
    measured_rows,
    predict,
    predict_tuner,
    refusal,
    with_host_floor,
)

ROOT = Path(__file__).parent.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- accuracy -->\n\n", "\n<!-- /accuracy -->\n"
WORKERS, CHUNK = 2, 32
KIB, MIB = 2**10, 2**20
SMALL = ("64 KiB-1 MiB", "< 64 KiB")
BANDS = {
    ">= 16 MiB": (16 * MIB, math.inf),
    ">= 1 MiB": (MIB, math.inf),
    "64 KiB-1 MiB": (64 * KIB, MIB),
    "< 64 KiB": (0, 64 * KIB),
    ">= 512 MiB": (512 * MIB, math.inf),
    "32-512 MiB": (32 * MIB, 512 * MIB),
    "1-32 MiB": (MIB, 32 * MIB),
}
ONE_NODE, OVER_NODES = (">= 1 MiB", *SMALL), (">= 512 MiB", "32-512 MiB", "1-32 MiB", *SMALL)
"""Bands of runs on one node, and over several."""
FEW_NODES = 10
"""Where the time that the host takes to start a collective counts: predictions are moved by what tiny rows tell."""
ALL_SIZES = "all"
COVERED, LOGS_JUDGED = (85, 97), 5
"""Percent of the rows of a class that a 90 % interval should hold, and how many logs it takes to judge. Chosen."""
NVLS = "NVLS"
FORCED = ("NCCL_PROTO", "NCHANNELS", "NCCL_ALGO=Tree")
"""Signs, in the environment of a run, of a kernel that the library would not have chosen."""
NO_ANSWER = "-"
PREDICTORS = ("collsim", "alpha-beta", "tuner")


class Bar(NamedTuple):
    """Median and 90th percentile of the relative error, in percent: what must and what should be reached."""

    floor: tuple[float, float]
    goal: tuple[float, float]


BARS = {
    ("ring", ">= 1 MiB"): Bar((3, 10), (2, 6)),
    ("ring", "64 KiB-1 MiB"): Bar((10, 20), (6, math.inf)),
    ("ring", "< 64 KiB"): Bar((8, 20), (6, math.inf)),
    ("messages", ">= 1 MiB"): Bar((8, 20), (3, 10)),
    ("messages", "64 KiB-1 MiB"): Bar((20, 40), (8, math.inf)),
    ("messages", "< 64 KiB"): Bar((15, 30), (8, math.inf)),
    (NVLS, ">= 16 MiB"): Bar((3, 6), (2, 5)),
    ("MI300X", ">= 1 MiB"): Bar((3, 12), (2, 5)),
    ("unseen", ">= 16 MiB"): Bar((10, 20), (6, 12)),
    ("nodes", ">= 512 MiB"): Bar((5, 10), (3, 8)),
    ("nodes", "32-512 MiB"): Bar((15, 30), (8, 15)),
}


class Score(NamedTuple):
    """Median and 90th percentile of absolute relative errors, in percent, of *n* rows."""

    n: int
    median: float
    p90: float

    def __str__(self) -> str:
        return f"{self.median:.1f} / {self.p90:.1f}" if self.n else NO_ANSWER


def score(errors: Iterable[float]) -> Score:
    """Return the score of relative errors.

    >>> str(score([-0.1, 0.02, 0.03]))
    '3.0 / 8.6'
    """
    values = np.abs(np.array(list(errors), dtype=float)) * 100
    return Score(len(values), *(map(float, np.percentile(values, [50, 90])) if len(values) else (math.nan, math.nan)))


def band_of(case: TableCase) -> str:
    """Return the band of a size; >= 16 MiB is a part of >= 1 MiB and never the answer."""
    bands = OVER_NODES if case.nodes else ONE_NODE
    return next(name for name in bands if BANDS[name][0] <= case.size_bytes < BANDS[name][1])


def class_of(case: TableCase) -> str:
    """Return the class that a row is judged in; forced runs, graph replay and registered buffers are apart."""
    if case.op == "all_to_all_v":
        name = "byte matrices"
    elif case.op in MESSAGES:
        name = "messages"
    else:
        choice = choice_of(case)
        name = NVLS if choice and choice.algo.startswith("nvls") else "ring"
    return ", ".join([name, *world_of(case), *over(case)])


def over(case: TableCase) -> list[str]:
    """Return over how many nodes a run went, if not on one."""
    return [] if not case.nodes else [f"<= {FEW_NODES} nodes" if case.nodes <= FEW_NODES else "more nodes"]


def world_of(case: TableCase) -> list[str]:
    """Return the differences of a run from a plain one: forced choices, another way to launch."""
    forced = ["forced"] if any(word in case.env for word in FORCED) else []
    return [*forced, *([] if case.launch == "stream" else [case.launch])]


def op_of(case: TableCase) -> str:
    """Return the operation of a row, with what it differs in from a plain run."""
    return ", ".join([case.op, *world_of(case), *over(case)])


def bar_of(system: str, kind: str, band: str, *, unseen: bool) -> Bar | None:
    """Return the bar that a class must reach in a band; None if there is none."""
    if kind.endswith("nodes"):
        return BARS.get(("nodes", band)) if kind.endswith(f"<= {FEW_NODES} nodes") else None
    if unseen:
        return BARS.get(("unseen", band))
    base = kind.partition(",")[0]
    if system == "mi300x_ubb8" and band == ">= 1 MiB":
        return BARS["MI300X", band]
    return BARS.get(("messages" if base == "byte matrices" else base, band))


def verdict(found: Score, bar: Bar | None) -> str:
    """Return the bar that a score meets: goal, floor, no, or - without one; an open 90th percentile is the floor's.

    >>> verdict(Score(120, 5.2, 24.0), BARS["ring", "< 64 KiB"])
    'no'
    """
    if bar is None or not found.n:
        return NO_ANSWER
    floor, goal = (found.median <= level[0] and found.p90 <= level[1] for level in (bar.floor, bar.goal))
    return "no" if not floor else "goal" if goal else "floor"


def percent(level: tuple[float, float]) -> str:
    """Return a bar as text."""
    return f"{level[0]:g}" + ("" if math.isinf(level[1]) else f" / {level[1]:g}")


# --- predictions -----------------------------------------------------------------------------------------------------

Predictions = Mapping[TableCase, Prediction | None]


def predict_all(
    predictor: Callable[[TableCase], Prediction | None], cases: Iterable[TableCase], *, workers: int
) -> Predictions:
    """Return the prediction of every different case."""
    unique = sorted(set(cases))
    if workers < 2:
        return {case: predictor(case) for case in unique}
    with ProcessPoolExecutor(workers) as pool:
        return dict(zip(unique, pool.map(predictor, unique, chunksize=CHUNK), strict=True))


def errors_of(rows: Sequence[TableRow], predictions: Predictions, *, host_floor: bool) -> Iterator[tuple[int, float]]:
    """Yield position and relative error of the rows that have a prediction."""
    if not host_floor:
        for place, row in enumerate(rows):
            if found := predictions.get(row.case):
                yield place, found.time_s / row.time_s - 1
        return
    logs: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        logs[row.log].append(place)
    for places in logs.values():
        moved = with_host_floor([rows[place] for place in places], predictions)
        for inner, time_s in moved.items():
            yield places[inner], time_s / rows[places[inner]].time_s - 1


# --- noise -----------------------------------------------------------------------------------------------------------


def noise_between(rows: Sequence[TableRow]) -> Iterator[tuple[TableRow, float]]:
    """Yield what two runs of the same thing differ by: other boxes, or the same box again."""
    groups: dict[tuple[object, ...], list[TableRow]] = defaultdict(list)
    for row in rows:
        if row.repeat:
            case = row.case
            groups[row.repeat, case.ranks, case.dtype, case.launch, case.size_bytes, case.op].append(row)
    for group in groups.values():
        for one, other in itertools.combinations(group, 2):
            yield one, math.log(one.time_s / other.time_s)


def noise_in_place(rows: Sequence[TableRow]) -> Iterator[tuple[TableRow, float]]:
    """Yield what the in-place half of a row differs by from its out-of-place half."""
    for row in rows:
        if row.in_place_s:
            yield row, row.in_place_s / row.out_of_place_s - 1


# --- the table -------------------------------------------------------------------------------------------------------

Cell = tuple[str, str, str]
"""System, class, band."""


@dataclass
class Bucket:
    """Logs and errors behind one line of the table."""

    logs: set[str] = field(default_factory=set)
    errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


KindOf = Callable[[TableCase], str]


def cells_of(row: TableRow, unseen: set[str], kind_of: KindOf = class_of) -> Iterator[Cell]:
    """Yield the lines that a row counts in."""
    system, kind, size = row.case.system, kind_of(row.case), row.case.size_bytes
    yield system, kind, band_of(row.case)
    if row.case.nodes:
        return
    if size >= BANDS[">= 16 MiB"][0] and (kind.startswith(NVLS) or system in unseen):
        yield system, kind, ">= 16 MiB"


def fill_errors(buckets: dict[Cell, Bucket], name: str, scored: Sequence[TableRow], predictions: Predictions,
                cells: Callable[[TableRow], Iterable[Cell]]) -> None:  # fmt: skip
    """Add the errors of one predictor: with the log's own host floor below 1 MiB, where also those without are kept."""
    for host_floor in (False, True):
        for place, error in errors_of(scored, predictions, host_floor=host_floor):
            for cell in cells(scored[place]):
                if host_floor == (cell[2] in SMALL):
                    buckets[cell].errors[name].append(error)
                elif not host_floor:
                    buckets[cell].errors[f"{name} as it is"].append(error)


def fill(scored: Sequence[TableRow], usable: Sequence[TableRow], predictions: Mapping[str, Predictions],
         unseen: set[str], kind_of: KindOf = class_of) -> dict[Cell, Bucket]:  # fmt: skip
    """Return errors and noise of every line that has a scored row."""

    def cells(row: TableRow) -> Iterator[Cell]:
        return cells_of(row, unseen, kind_of)

    buckets: dict[Cell, Bucket] = defaultdict(Bucket)
    for row in scored:
        for cell in cells(row):
            buckets[cell].logs.add(row.log)
    for name, found in predictions.items():
        fill_errors(buckets, name, scored, found, cells)
    for name, source in (("runs", noise_between(usable)), ("in place", noise_in_place(usable))):
        for row, error in source:
            for cell in cells(row):
                if cell in buckets:
                    buckets[cell].errors[name].append(error)
    return dict(buckets)


def order(cell: Cell) -> tuple[str, str, int]:
    """Return where a line belongs."""
    return cell[0], cell[1], [ALL_SIZES, *BANDS].index(cell[2])


HEADER = (
    "system", "class", "sizes", "logs", "rows", "collsim", "alpha-beta", "tuner", "between runs", "floor", "goal",
    "met", "in place", "no host floor",
)  # fmt: skip
SHORT = len(HEADER) - 2
"""Columns of the short table."""


def table(buckets: Mapping[Cell, Bucket], unseen: set[str], *, short: bool) -> str:
    """Return the Markdown table; the short one has only what a bar exists for."""
    lines = [HEADER, ("---",) * len(HEADER)]
    for cell in sorted(buckets, key=order):
        system, kind, band = cell
        bucket = buckets[cell]
        bar = bar_of(system, kind, band, unseen=system in unseen)
        if short and (bar is None or not bucket.errors["collsim"]):
            continue
        found = {name: score(bucket.errors[name]) for name in (*PREDICTORS, "collsim as it is", "runs", "in place")}
        mark = " (unseen)" if system in unseen else ""
        bars = (percent(bar.floor), percent(bar.goal)) if bar else (NO_ANSWER, NO_ANSWER)
        lines.append((
            system + mark, kind, band, str(len(bucket.logs)), str(found["collsim"].n),
            *(str(found[name]) for name in (*PREDICTORS, "runs")), *bars, verdict(found["collsim"], bar),
            str(found["in place"]), str(found["collsim as it is"]),
        ))  # fmt: skip
    return "".join(f"| {' | '.join(line[: SHORT if short else None])} |\n" for line in lines)


MEANT = """Relative errors in percent, median / 90th percentile, of whole logs outside every fit. *Alpha-beta* is fitted
to the same training logs; *tuner* is the time by which the library ranks its algorithms.
"""
LARGEST_FIRST = (">= 512 MiB", "32-512 MiB", ">= 1 MiB", "1-32 MiB", *SMALL)
SUMMARY = ("runs with default flags", "sizes", "logs", "rows", *PREDICTORS)


def summary(buckets: Mapping[Cell, Bucket], unseen: set[str]) -> str:
    """Return the table of README.md: plain runs of all systems pooled, and below 1 MiB without the log's host floor."""
    pooled: dict[tuple[str, str], Bucket] = defaultdict(Bucket)
    for (system, kind, band), bucket in buckets.items():
        _, _, world = kind.partition(", ")
        if band == ">= 16 MiB" or world not in ("", f"<= {FEW_NODES} nodes"):
            continue
        place = f"{'2 to 10 nodes' if world else 'one node'}, {'in no fit' if system in unseen else 'system in a fit'}"
        into = pooled[place, band]
        into.logs |= bucket.logs
        for predictor in PREDICTORS:
            into.errors[predictor] += bucket.errors[f"{predictor} as it is" if band in SMALL else predictor]
    lines = [SUMMARY, ("---",) * len(SUMMARY)]
    for place, band in sorted(
        pooled, key=lambda cell: (cell[0].startswith("2"), cell[0], LARGEST_FIRST.index(cell[1]))
    ):
        bucket = pooled[place, band]
        found = [score(bucket.errors[name]) for name in PREDICTORS]
        if found[0].n:
            lines.append((place, band, str(len(bucket.logs)), str(found[0].n), *map(str, found)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


BY_OP = ("system", "operation", "sizes", "logs", "rows", *PREDICTORS, "between runs")


def table_by_op(buckets: Mapping[Cell, Bucket]) -> str:
    """Return the Markdown table of operations."""
    lines = [BY_OP, ("---",) * len(BY_OP)]
    for cell in sorted(buckets, key=order):
        bucket = buckets[cell]
        found = [score(bucket.errors[name]) for name in (*PREDICTORS, "runs")]
        if found[0].n and cell[2] != ">= 16 MiB":
            lines.append((*cell, str(len(bucket.logs)), str(found[0].n), *map(str, found)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def better_elsewhere(buckets: Mapping[Cell, Bucket]) -> str:
    """Return where another predictor has the smaller median, and whether that is more than noise."""
    told = []
    for cell in sorted(buckets, key=order):
        errors = buckets[cell].errors
        ours, noise = score(errors["collsim"]), score(errors["runs"])
        for name in PREDICTORS[1:]:
            other = score(errors[name])
            if other.n and ours.n and other.median < ours.median:
                small = " (less than runs differ by)" if noise.n and ours.median <= noise.median else ""
                told.append(f"{', '.join(cell)}: {name} {other}, collsim {ours}{small}")
    return "".join(f"* {line}\n" for line in told) or "* nowhere\n"


@dataclass
class Hits:
    """The logs of a line of the table of intervals, whether rows were inside, and how many have no interval."""

    logs: set[str] = field(default_factory=set)
    inside: list[bool] = field(default_factory=list)
    bare: int = 0

    @property
    def percent(self) -> float:
        """Share of the rows with an interval that lie inside it."""
        return 100 * sum(self.inside) / len(self.inside) if self.inside else math.nan

    def place(self) -> str:
        """Return where the share is beside the bar; few logs are not judged."""
        if not self.inside or len(self.logs) < LOGS_JUDGED:
            return NO_ANSWER
        least, most = COVERED
        return "below" if self.percent < least else "above" if self.percent > most else "met"


def hits_of(rows: Sequence[TableRow], predictions: Predictions, kind_of: KindOf = class_of) -> dict[Cell, Hits]:
    """Return the numbers of rows inside their interval: by class, by class and band, and of all."""
    hits: dict[Cell, Hits] = defaultdict(Hits)
    for row in rows:
        found = predictions.get(row.case)
        inside: list[bool] = []
        if found is not None and found.lo_s is not None and found.hi_s is not None:
            inside = [found.lo_s <= row.time_s <= found.hi_s]
        system, kind = row.case.system, kind_of(row.case)
        for cell in (("all", "all", ALL_SIZES), (system, kind, ALL_SIZES), (system, kind, band_of(row.case))):
            hits[cell].logs.add(row.log)
            hits[cell].bare += not inside
            hits[cell].inside += inside
    return dict(hits)


def coverage(hits: Mapping[Cell, Hits]) -> str:
    """Return the coverage of the 90 % intervals, in words and as a table."""
    total, least, most = hits["all", "all", ALL_SIZES], *COVERED
    outside: dict[str, list[str]] = {"below": [], "above": [], "met": [], NO_ANSWER: []}
    for cell in sorted(hits, key=order):
        sizes = "" if cell[2] == ALL_SIZES else f" {cell[2]}"
        outside[hits[cell].place()].append(f"{' '.join(cell[:2])}{sizes} {hits[cell].percent:.1f} %")
    low, high = (", ".join(outside[place]) or "none" for place in ("below", "above"))
    lines = ["| system | class | sizes | logs | rows | no interval | inside | bar |\n", "|" + " --- |" * 8 + "\n"]
    for cell in sorted(hits, key=order):
        found = hits[cell]
        share = f"{found.percent:.1f} %" if found.inside else NO_ANSWER
        counts = f"{len(found.logs)} | {len(found.inside) + found.bare} | {found.bare}"
        lines.append(f"| {' | '.join(cell)} | {counts} | {share} | {found.place()} |\n")
    return (
        f"The bar: {least} to {most} % of the rows of a class inside their 90 % interval, where {LOGS_JUDGED} logs or "
        f"more judge it. Of {len(total.inside) + total.bare} rows {total.bare} have no interval; of the others "
        f"{total.percent:.1f} % are inside. Below the bar, by class or by class and sizes: {low}. Above "
        f"it, with intervals wider than they need be: {high}.\n\n{''.join(lines)}"
    )


def preamble(rows: Sequence[TableRow], left_out: int, unseen: set[str]) -> str:
    """Return the words above the table: which rows and predictors, and what was left out."""
    where = "outside every fit" if rows[0].set == "test" else "of the fits"
    return (
        f"Relative errors in percent, median / 90th percentile, over {len(rows)} rows of {len({r.log for r in rows})} "
        f"logs {where}; {left_out} disturbed rows are left out. Below 1 MiB predictions are moved by what the "
        "rows up to 1 KiB of the same log say of its host, and only logs with such rows count. *Forced*: protocol, "
        "tree or channels given by hand. *Alpha-beta* is fitted to the same training logs; *tuner* is the time by "
        "which the library ranks its algorithms; *between runs* is noise: the same run on another box, or again. "
        + (f"Nothing of {', '.join(sorted(unseen))} is in any fit. " if unseen else "")
    )


# --- other views -----------------------------------------------------------------------------------------------------


def by_kind(rows: Sequence[TableRow], predictions: Mapping[str, Predictions]) -> str:
    """Return the errors at 1 MiB and more by what a log differs in from the fit."""
    large = [row for row in rows if row.case.size_bytes >= MIB]
    lines = [
        "| system | outside the fit is | logs | rows | collsim | alpha-beta | tuner |\n",
        "|" + " --- |" * 7 + "\n",
    ]
    groups: dict[tuple[str, str], list[TableRow]] = defaultdict(list)
    for row in large:
        groups[row.case.system, row.kind].append(row)
    for (system, kind), group in sorted(groups.items()):
        scores = [score(e for _, e in errors_of(group, predictions[name], host_floor=False)) for name in PREDICTORS]
        logs = len({row.log for row in group})
        lines.append(f"| {system} | {kind or NO_ANSWER} | {logs} | {len(group)} | {' | '.join(map(str, scores))} |\n")
    return "".join(lines)


def worst_logs(rows: Sequence[TableRow], predictions: Predictions, count: int) -> str:
    """Return the logs with the greatest median errors at 1 MiB and more, with their bias."""
    logs: dict[str, list[float]] = defaultdict(list)
    for place, error in errors_of(rows, predictions, host_floor=False):
        if rows[place].case.size_bytes >= MIB:
            logs[rows[place].log].append(error)
    found = sorted(logs.items(), key=lambda item: -score(item[1]).median)[:count]
    width = max((len(log) for log, _ in found), default=0)
    return "".join(
        f"{log:{width}}  rows {len(errors):3}  error {score(errors)!s:>14} %  bias {np.median(errors) * 100:+7.1f} %\n"
        for log, errors in found
    )


def page(told: str, classes: str, by_op: str, by_class: Mapping[Cell, Bucket], inside: str) -> str:
    """Return docs/accuracy.md."""
    return (
        "# Accuracy\n\nWritten by `python tools/accuracy.py --write`; which log is in which set, and why: "
        f"`tools/data/split.csv`.\n\n{told}\n\n## By class\n\n{classes}\n## By operation\n\n{by_op}\n"
        f"## Where another predictor has the smaller median\n\n{better_elsewhere(by_class)}\n## Intervals\n\n{inside}"
    )


def write(text: str) -> None:
    """Replace what README.md has between the markers."""
    put_between(README, BEGIN, END, text)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("test", "spread", "train"), default="test", help="which logs to score")
    parser.add_argument("--system", help="only this system")
    parser.add_argument("--worst", type=int, default=15, help="how many of the worst logs to name")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--write", action="store_true", help="write README.md's table and docs/accuracy.md")
    options = parser.parse_args()
    if options.write and (options.set, options.system) != ("test", None):
        parser.error("--write goes with all systems and the test set")
    start = time.perf_counter()
    every = [row for row in measured_rows() if options.system in (None, row.case.system)]
    healthy = [row for row in every if row.health == "ok"]
    usable = [row for row in healthy if not row.spike]
    train = [row for row in usable if row.set == "train"]
    scored = [row for row in usable if row.set == options.set]
    left_out = sum(row.spike and row.set == options.set for row in healthy)
    unseen = {row.case.system for row in scored} - {row.case.system for row in train}
    cases = [row.case for row in scored]
    predictions = {
        "collsim": predict_all(predict, cases, workers=options.workers),
        "alpha-beta": predict_all(alpha_beta(train), cases, workers=1),
        "tuner": predict_all(predict_tuner, cases, workers=1),
    }
    buckets = fill(scored, usable, predictions, unseen)
    told, inside = preamble(scored, left_out, unseen), coverage(hits_of(scored, predictions["collsim"]))
    if options.write:
        write(f"{MEANT}\n{summary(buckets, unseen)}")
        by_op = table_by_op(fill(scored, usable, predictions, unseen, op_of))
        classes = table(buckets, unseen, short=True)
        PAGE.write_text(page(told, classes, by_op, buckets, inside), encoding="utf-8")
        return 0
    text = f"{told}\n\n{table(buckets, unseen, short=False)}"
    print(text)
    print(inside, "\n", sep="")
    print(f"Where another predictor has the smaller median:\n\n{better_elsewhere(buckets)}")
    print(f"At 1 MiB and more:\n\n{by_kind(scored, predictions)}")
    print(f"Worst logs at 1 MiB and more:\n\n{worst_logs(scored, predictions['collsim'], options.worst)}")
    silent = [case for case, answer in predictions["collsim"].items() if answer is None]
    for reason, count in Counter(map(refusal, silent)).most_common(5):
        print(f"no answer to {count} cases: {reason}")
    print(f"{len(set(cases))} different cases, {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
