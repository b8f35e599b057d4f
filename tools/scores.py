"""Scores of predictions: classes, bands and bars, errors of rows with and without the log's host floor, and noise."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from predictors import MESSAGES, Prediction, TableCase, TableRow, choice_of, with_host_floor

CHUNK = 32
KIB, MIB = 2**10, 2**20
SMALL = ("64 KiB-1 MiB", "< 64 KiB")
"""Where the time that the host takes to start a collective counts."""
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
ALL_SIZES = "all"
COVERED, LOGS_JUDGED = (85, 97), 5
"""Percent of the rows of a class that a 90 % interval should hold, and how many logs it takes to judge. Chosen."""
NVLS = "NVLS"
FORCED = ("NCCL_PROTO", "NCHANNELS", "NCCL_ALGO=Tree")
"""Signs of a run that the library would not have chosen."""
NO_ANSWER = "-"
PREDICTORS = ("collsim", "alpha-beta", "tuner")
AS_IS, MOVED = " as it is", " moved"
"""Suffix of a predictor's name: its errors on the rows that the log's own host floor can move, before and after."""


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
    """Return the differences of a run from a plain one."""
    forced = ["forced"] if any(word in case.env for word in FORCED) else []
    return [*forced, *([] if case.launch == "stream" else [case.launch])]


def op_of(case: TableCase) -> str:
    """Return the operation of a row, with what it differs in from a plain run."""
    return ", ".join([case.op, *world_of(case), *over(case)])


def bar_of(system: str, kind: str, band: str, *, unseen: bool) -> Bar | None:
    """Return the bar of a class in a band."""
    if kind.endswith("nodes"):
        return BARS.get(("nodes", band)) if kind.endswith(f"<= {FEW_NODES} nodes") else None
    if unseen:
        return BARS.get(("unseen", band))
    base = kind.partition(",")[0]
    if system == "mi300x_ubb8" and band == ">= 1 MiB":
        return BARS["MI300X", band]
    return BARS.get(("messages" if base == "byte matrices" else base, band))


def verdict(found: Score, bar: Bar | None) -> str:
    """Return the verdict on a score; a goal that leaves the 90th percentile open has that of the floor.

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


def noise_again(rows: Iterable[TableRow]) -> Iterator[tuple[TableRow, float]]:
    """Yield what rows differ by that no prediction tells apart: of one case, at one site, in different logs.

    Each of two is held against the other, as a prediction is held against what was measured.
    """
    groups: dict[tuple[str, TableCase], list[TableRow]] = defaultdict(list)
    for row in rows:
        groups[row.site, row.case].append(row)
    for group in groups.values():
        for one, other in itertools.permutations(group, 2):
            if one.log != other.log:
                yield one, other.time_s / one.time_s - 1


def noise_in_place(rows: Sequence[TableRow]) -> Iterator[tuple[TableRow, float]]:
    """Yield what the in-place half of a row differs by from its out-of-place half."""
    for row in rows:
        if row.in_place_s:
            yield row, row.in_place_s / row.out_of_place_s - 1


# --- lines of the tables ----------------------------------------------------------------------------------------------

Cell = tuple[str, str, str]
"""System, class, band."""


@dataclass
class Bucket:
    """Rows of one line of the table; *at_home* counts its rows from a site whose logs were fitted."""

    logs: set[str] = field(default_factory=set)
    at_home: int = 0
    errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


KindOf = Callable[[TableCase], str]


class Fitted(NamedTuple):
    """Sites whose logs were fitted, by system; systems that are not there are in no fit."""

    sites: Mapping[str, frozenset[str]]

    def is_unseen(self, system: str) -> bool:
        """Return True if nothing of a system is in any fit."""
        return system not in self.sites

    def is_home(self, row: TableRow) -> bool:
        """Return True if a row is from a site whose logs of that system were fitted."""
        return row.site in self.sites.get(row.case.system, ())


def fitted_sites(train: Iterable[TableRow], systems: Collection[str]) -> Fitted:
    """Return the sites of the training rows of those *systems* that have a fit."""
    sites: dict[str, set[str]] = defaultdict(set)
    for row in train:
        if row.case.system in systems:
            sites[row.case.system].add(row.site)
    return Fitted({system: frozenset(found) for system, found in sites.items()})


def cells_of(row: TableRow, fitted: Fitted, kind_of: KindOf = class_of) -> Iterator[Cell]:
    """Yield the lines that a row counts in."""
    system, kind, size = row.case.system, kind_of(row.case), row.case.size_bytes
    yield system, kind, band_of(row.case)
    if row.case.nodes:
        return
    if size >= BANDS[">= 16 MiB"][0] and (kind.startswith(NVLS) or fitted.is_unseen(system)):
        yield system, kind, ">= 16 MiB"


def fill_errors(buckets: dict[Cell, Bucket], name: str, scored: Sequence[TableRow], predictions: Predictions,
                cells: Callable[[TableRow], Iterable[Cell]]) -> None:  # fmt: skip
    """Add the errors of one predictor; below 1 MiB also on the rows that their log's host floor moves, both ways."""
    raw = dict(errors_of(scored, predictions, host_floor=False))
    for place, error in raw.items():
        for cell in cells(scored[place]):
            buckets[cell].errors[name].append(error)
    for place, error in errors_of(scored, predictions, host_floor=True):
        for cell in cells(scored[place]):
            if cell[2] in SMALL:
                buckets[cell].errors[f"{name}{AS_IS}"].append(raw[place])
                buckets[cell].errors[f"{name}{MOVED}"].append(error)


def fill(scored: Sequence[TableRow], usable: Sequence[TableRow], predictions: Mapping[str, Predictions],
         fitted: Fitted, kind_of: KindOf = class_of) -> dict[Cell, Bucket]:  # fmt: skip
    """Return errors and noise of every line that has a scored row."""

    def cells(row: TableRow) -> Iterator[Cell]:
        return cells_of(row, fitted, kind_of)

    buckets: dict[Cell, Bucket] = defaultdict(Bucket)
    for row in scored:
        for cell in cells(row):
            buckets[cell].logs.add(row.log)
            buckets[cell].at_home += fitted.is_home(row) and predictions[PREDICTORS[0]].get(row.case) is not None
    for name, found in predictions.items():
        fill_errors(buckets, name, scored, found, cells)
    for name, source in (("runs", noise_between(usable)), ("in place", noise_in_place(usable))):
        for row, error in source:
            for cell in cells(row):
                if cell in buckets:
                    buckets[cell].errors[name].append(error)
    return dict(buckets)


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
    """Return the number of rows inside their interval: by class, by class and band, and of all."""
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
