"""Print how far predictions are from measured logs that no fit has seen.

``python tools/accuracy.py`` compares collsim, a fit of alpha and beta on the same training logs, and the time by
which NCCL and RCCL rank their own algorithms, per system, class of operations and band of sizes, with the noise of the
measurements beside them. ``--write`` puts the overview into README.md, between its markers, and the tables by place, by
class and by operation into docs/accuracy.md; ``--set train`` scores the logs of the fit instead. Which log is in which
set, and why: tools/data/split.csv. ``--look-up`` compares with a table look-up, groups of rows left out in turn; with
``--write`` that table goes into docs/profiles.md.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from fit_profiles import FITS, NETWORKS
from pages import put_between
from predictors import TableRow, alpha_beta, measured_rows, predict, predict_tuner, refusal
from scores import (
    ALL_SIZES,
    AS_IS,
    BANDS,
    COVERED,
    FEW_NODES,
    LOGS_JUDGED,
    MIB,
    MOVED,
    NO_ANSWER,
    ONE_NODE,
    OVER_NODES,
    PREDICTORS,
    SMALL,
    Bucket,
    Cell,
    Fitted,
    Hits,
    Predictions,
    Score,
    band_of,
    bar_of,
    errors_of,
    fill,
    fitted_sites,
    hits_of,
    noise_again,
    op_of,
    percent,
    predict_all,
    score,
    verdict,
    world_of,
)  # fmt: skip
from table_lookup import judge_groups, lookup_table, plain_groups

ROOT = Path(__file__).parent.parent
README, PAGE, MODEL = ROOT / "README.md", ROOT / "docs" / "accuracy.md", ROOT / "docs" / "model.md"
BEGIN, END = "<!-- accuracy -->\n\n", "\n<!-- /accuracy -->\n"
PROFILES = ROOT / "docs" / "profiles.md"
BEGIN_LOOKUP, END_LOOKUP = "<!-- look-up -->\n\n", "\n<!-- /look-up -->\n"
WORKERS = 2


def order(cell: Cell) -> tuple[str, str, int]:
    """Return where a line belongs."""
    return cell[0], cell[1], [ALL_SIZES, *BANDS].index(cell[2])


HEADER = (
    "system", "class", "sizes", "logs", "rows", "of a fitted site", "collsim", "alpha-beta", "tuner", "between runs",
    "floor", "goal", "met", "with host floor", "rows", "without", "in place",
)  # fmt: skip
SHORT = len(HEADER) - 1
"""Columns of the short table."""


def table(buckets: Mapping[Cell, Bucket], fitted: Fitted, *, short: bool) -> str:
    """Return the Markdown table; the short one has only what a bar exists for."""
    lines = [HEADER, ("---",) * len(HEADER)]
    for cell in sorted(buckets, key=order):
        system, kind, band = cell
        bucket, unseen = buckets[cell], fitted.is_unseen(system)
        bar = bar_of(system, kind, band, unseen=unseen)
        if short and (bar is None or not bucket.errors["collsim"]):
            continue
        extra = (f"collsim{AS_IS}", f"collsim{MOVED}", "runs", "in place")
        found = {name: score(bucket.errors[name]) for name in (*PREDICTORS, *extra)}
        bars = (percent(bar.floor), percent(bar.goal)) if bar else (NO_ANSWER, NO_ANSWER)
        moved = found[f"collsim{MOVED}"]
        lines.append((
            system + (" (unseen)" if unseen else ""), kind, band, str(len(bucket.logs)), str(found["collsim"].n),
            str(bucket.at_home), *(str(found[name]) for name in (*PREDICTORS, "runs")), *bars,
            verdict(found["collsim"], bar), str(moved), str(moved.n) if moved.n else NO_ANSWER,
            str(found[f"collsim{AS_IS}"]), str(found["in place"]),
        ))  # fmt: skip
    return "".join(f"| {' | '.join(line[: SHORT if short else None])} |\n" for line in lines)


MEANT = """Relative errors in percent, median / 90th percentile and number of rows, of whole logs outside every fit, run
with default flags. Beside other predictors, and with the host's time to start a call taken from the log itself, which
would be nearer below 1 MiB: [docs/accuracy.md](docs/accuracy.md#by-place).
"""
LARGEST_FIRST = (">= 512 MiB", "32-512 MiB", ">= 1 MiB", "1-32 MiB", *SMALL)
SUMMARY = ("runs with default flags", "sizes", "logs", "rows", *PREDICTORS, "the same run again", "pairs")
AGAIN = "again"
PLACES = ("site of the fit", "another site", "system in no fit")
OVER = {False: "one node", True: f"2 to {FEW_NODES} nodes"}
Pool = tuple[bool, str, str]
"""Key of a line: over nodes or not, place and band."""


def pooled(
    scored: Sequence[TableRow], usable: Sequence[TableRow], predictions: Mapping[str, Predictions], fitted: Fitted
) -> dict[Pool, Bucket]:
    """Return plain runs of all systems by number of nodes, place and band; what the *usable* ones repeat is noise."""
    found: dict[Pool, Bucket] = defaultdict(Bucket)
    plain, told = (
        [row for row in rows if not world_of(row.case) and row.case.nodes <= FEW_NODES] for rows in (scored, usable)
    )

    def pool(row: TableRow) -> Pool:
        place = 2 if fitted.is_unseen(row.case.system) else 1 - fitted.is_home(row)
        return bool(row.case.nodes), PLACES[place], band_of(row.case)

    for row in plain:
        found[pool(row)].logs.add(row.log)
    for name, said in predictions.items():
        errors = dict(errors_of(plain, said, host_floor=False))
        for place, error in errors.items():
            found[pool(plain[place])].errors[name].append(error)
        for place, moved in errors_of(plain, said, host_floor=True):
            found[pool(plain[place])].errors[f"{name}{AS_IS}"].append(errors[place])
            found[pool(plain[place])].errors[f"{name}{MOVED}"].append(moved)
    for row, error in noise_again(told):
        if pool(row) in found:
            found[pool(row)].errors[AGAIN].append(error)
    return dict(found)


def pool_order(pool: Pool) -> tuple[bool, int, int]:
    """Return where a line of the summary belongs."""
    return pool[0], PLACES.index(pool[1]), LARGEST_FIRST.index(pool[2])


def overview(pools: Mapping[Pool, Bucket]) -> str:
    """Return the tables of README.md: a column for each band, a line for each place; and where predictions are weak."""
    told = []
    for nodes, bands in ((False, ONE_NODE), (True, OVER_NODES)):
        told += [(OVER[nodes], *bands), ("---",) * (len(bands) + 1)]
        for place in PLACES:
            found = [over_pools(pools, "collsim", nodes=nodes, bands=[band], places=[place]) for band in bands]
            told.append((place, *(f"{each} ({each.n})" if each.n else NO_ANSWER for each in found)))
        told.append(())
    return "".join(f"| {' | '.join(line)} |\n" if line else "\n" for line in told) + weak(pools)


def summary(pools: Mapping[Pool, Bucket]) -> str:
    """Return the table by place, and in words where predictions are weak and what the host floor would change."""
    lines = [SUMMARY, ("---",) * len(SUMMARY)]
    for pool in sorted(pools, key=pool_order):
        bucket = pools[pool]
        found = [score(bucket.errors[name]) for name in PREDICTORS]
        if found[0].n:
            place = f"{OVER[pool[0]]}, {pool[1]}"
            again = score(bucket.errors[AGAIN])
            noise = (str(again), str(again.n // 2) if again.n else NO_ANSWER)
            lines.append((place, pool[2], str(len(bucket.logs)), str(found[0].n), *map(str, found), *noise))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{weak(pools)}\n{host_floor(pools)}"


def over_pools(
    pools: Mapping[Pool, Bucket], name: str, *, nodes: bool, bands: Sequence[str], places: Sequence[str] = PLACES
) -> Score:
    """Return the score of several lines of the summary together."""
    return score(
        error
        for (over, place, band), bucket in pools.items()
        if over == nodes and band in bands and place in places
        for error in bucket.errors[name]
    )


def weak(pools: Mapping[Pool, Bucket]) -> str:
    """Return in words how far off runs over nodes are where that is much."""
    (middle, again), (small, small_again) = (
        [over_pools(pools, name, nodes=True, bands=bands) for name in ("collsim", AGAIN)]
        for bands in (("1-32 MiB",), SMALL)
    )
    large = [
        over_pools(pools, "collsim", nodes=True, bands=(">= 512 MiB", "32-512 MiB"), places=places)
        for places in (PLACES[:1], PLACES[1:])
    ]
    return (
        f"Over nodes predictions are weak below 32 MiB: {middle} from 1 MiB on, {small} below (the same run again:\n"
        f"{again}, {small_again}); from 32 MiB on {large[0]} at the sites of the fits and {large[1]} elsewhere.\n"
    )


def host_floor(pools: Mapping[Pool, Bucket]) -> str:
    """Return in words what the host's time to start a call, told by a log's tiny rows, would change below 1 MiB."""
    told = []
    for nodes, over in OVER.items():
        for band in SMALL:
            raw, moved = (over_pools(pools, f"collsim{kind}", nodes=nodes, bands=[band]) for kind in (AS_IS, MOVED))
            told.append(f"{over}, {band}: {raw} becomes {moved} on the same {moved.n} rows")
    return (
        "How long a host takes to start a call differs from site to site. Predictions moved by what the rows up to\n"
        f"1 KiB of the same log say of it would be nearer:\n{textwrap.fill('; '.join(told) + '.', 120)}\n"
    )


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


def preamble(rows: Sequence[TableRow], left_out: int, fitted: Fitted) -> str:
    """Return the notes to the table."""
    where = "outside every fit" if rows[0].set == "test" else "of the fits"
    unseen = {row.case.system for row in rows if fitted.is_unseen(row.case.system)}
    return (
        f"Relative errors in percent, median / 90th percentile, over {len(rows)} rows of {len({r.log for r in rows})} "
        f"logs {where}; {left_out} disturbed rows are left out. Below 1 MiB, *with host floor* is what the predictions "
        "would be off if moved by what the rows up to 1 KiB of the same log say of its host, over the larger rows of "
        "logs with such rows, and *without* what they are off on the same rows; only the predictions as they are have "
        "a verdict. *Of a fitted site* counts the rows from sites whose logs of that system were fitted. *Forced*: "
        "protocol, tree or channels given by hand. *Alpha-beta* is fitted to the same training logs; *tuner* is the "
        "time by which the library ranks its algorithms; *between runs* is noise: the same run on another box, or "
        "again. " + (f"Nothing of {', '.join(sorted(unseen))} is in any fit. " if unseen else "")
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


def page(sections: Mapping[str, str], told: str) -> str:
    """Return docs/accuracy.md: what is *told* of all figures, then each section under its heading."""
    head = "# Accuracy\n\nWritten by `python tools/accuracy.py --write`; which log is in which set, and why: "
    text = "\n".join(f"## {name}\n\n{body}" for name, body in sections.items())
    return f"{head}`tools/data/split.csv`.\n\n{told}\n\n{text}"


def write(text: str) -> None:
    """Replace what README.md and docs/model.md have between the markers."""
    put_between(README, BEGIN, END, text)
    put_between(MODEL, BEGIN, END, as_in_docs(text))


def as_in_docs(text: str) -> str:
    """Return the overview with links as from a page beside docs/accuracy.md."""
    return text.replace("docs/accuracy.md", "accuracy.md")


def look_up(rows: Sequence[TableRow], options: argparse.Namespace) -> int:
    """Print the comparison with a table look-up, or write it."""
    text = lookup_table(judge_groups(plain_groups(rows), workers=options.workers))
    if options.write:
        put_between(PROFILES, BEGIN_LOOKUP, END_LOOKUP, text)
    else:
        print(text, end="")
    return 0


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("test", "train"), default="test", help="which logs to score")
    parser.add_argument("--system", help="only this system")
    parser.add_argument("--worst", type=int, default=15, help="how many of the worst logs to name")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument(
        "--write", action="store_true", help="write the overview of README.md and docs/model.md, and docs/accuracy.md"
    )
    parser.add_argument("--look-up", action="store_true", help="compare with a table look-up, groups of rows left out")
    options = parser.parse_args()
    if options.write and (options.set, options.system) != ("test", None):
        parser.error("--write goes with all systems and the test set")
    start = time.perf_counter()
    every = [row for row in measured_rows() if options.system in (None, row.case.system)]
    if options.look_up:
        return look_up(every, options)
    healthy = [row for row in every if row.health == "ok"]
    usable = [row for row in healthy if not row.spike]
    train = [row for row in usable if row.set == "train"]
    scored = [row for row in usable if row.set == options.set]
    left_out = sum(row.spike and row.set == options.set for row in healthy)
    fitted = fitted_sites(train, {*FITS, *(network.systems[0] for network in NETWORKS.values())})
    told = [row for row in train if not fitted.is_unseen(row.case.system)]
    cases = [row.case for row in scored]
    predictions = {
        "collsim": predict_all(predict, cases, workers=options.workers),
        "alpha-beta": predict_all(alpha_beta(told), cases, workers=1),
        "tuner": predict_all(predict_tuner, cases, workers=1),
    }
    buckets = fill(scored, usable, predictions, fitted)
    words, inside = preamble(scored, left_out, fitted), coverage(hits_of(scored, predictions["collsim"]))
    if options.write:
        pools = pooled(scored, usable, predictions, fitted)
        write(f"{MEANT}\n{overview(pools)}")
        sections = {
            "By place": summary(pools),
            "By class": table(buckets, fitted, short=True),
            "By operation": table_by_op(fill(scored, usable, predictions, fitted, op_of)),
            "Where another predictor has the smaller median": better_elsewhere(buckets),
            "Intervals": inside,
        }
        PAGE.write_text(page(sections, words), encoding="utf-8")
        return 0
    text = f"{words}\n\n{table(buckets, fitted, short=False)}"
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
