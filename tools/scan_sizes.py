"""Look for jumps and falls of predicted times over sizes 2 % apart, and say which switch of the library each one is.

``python tools/scan_sizes.py`` prints them for some systems whose constants were fitted, every operation and the library
of the profile, at default flags; ``--all`` takes the others too, racks and clusters, ``--system NAME`` only these, and
``--write`` puts the table into docs/jumps.md. Sizes are looked at coarsely first, and 2 % apart wherever something
changes in between. A change of time for which no switch is found is a fault: it is printed to stderr, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pages import put_between
from predictors import TableRow, measured_rows

import collsim
from collsim.core.errors import CollsimError
from collsim.core.units import format_size
from collsim.library import Call, choose, load_library, load_profile, system_of
from collsim.simulation.result import Row
from collsim.topology import load_topology

PAGE = Path(__file__).parent.parent / "docs" / "jumps.md"
BEGIN, END = "<!-- jumps -->\n\n", "\n<!-- /jumps -->\n"
OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send_recv",
)  # fmt: skip
LEAST, MOST, STEP = 2**10, 2**30, 1.02
GRAIN = 64
"""Sizes are multiples of this part of the power of two below them: libraries have kernels for whole chunks only."""
COARSE = 8
"""Every so many sizes are looked at first."""
JUMP = 1.3
SLACK = 1e-9
WORKERS = 2


class Case(NamedTuple):
    """What is scanned: a system by name, how many ranks (0: all), and a library ("" for that of the profile)."""

    system: str
    ranks: int = 0
    library: str = ""

    def __str__(self) -> str:
        """Return its name in the table."""
        return ", ".join(filter(None, (self.system, f"{self.ranks} ranks" if self.ranks else "", self.library)))


CASES = (Case("dgx_a100"), Case("hgx_h100"), Case("hgx_b200"), Case("mi300x_ubb8"), Case("gb200_nvl72", 4))
NODES = (
    "dgx1_v100", "dgx2_v100", "hgx_h200", "hgx_h800", "gh200_nvl32", "hgx_b300", "gb200_nvl72", "gb300_nvl72",
    "vr200_nvl144", "mi250x_node", "mi325x_ubb8", "mi350x_ubb8", "mi355x_ubb8", "pcie_gen5_8gpu",
)  # fmt: skip
VERSIONS = ("nccl-2.18", "nccl-2.21", "nccl-2.23", "nccl-2.27", "nccl-2.30")
MORE = (
    *map(Case, NODES),
    Case("hgx_h100", 2), Case("hgx_h100", 4), Case("hgx_b200", 2), Case("mi300x_ubb8", 4),
    *(Case("hgx_h100", 0, version) for version in VERSIONS),
    Case("h100_rail", 16), Case("h100_rail", 32), Case("mi300x_roce", 16), Case("a100_rail", 16), Case("p5_efa", 16),
    Case("alps", 8), Case("alps", 32),
)  # fmt: skip
"""Those that only ``--all`` takes, for an hour."""


class Choice(NamedTuple):
    """What a library decides that times depend on: algorithm and protocol, channels, parts of a message, chunks."""

    algo: str
    channels: int
    parts: int
    chunk_bytes: int


class Point(NamedTuple):
    """A size with its time and the choice."""

    size_bytes: int
    time_s: float
    choice: Choice


class Event(NamedTuple):
    """Neighbours whose time falls or jumps."""

    case: Case
    op: str
    before: Point
    after: Point

    @property
    def ratio(self) -> float:
        """Time after over before."""
        return self.after.time_s / self.before.time_s

    @property
    def falls(self) -> bool:
        """Return True if the larger size takes less time."""
        return self.ratio < 1

    @property
    def switch(self) -> str:
        """What the library switched, as a key of `SWITCHES`; empty if nothing."""
        one, other = self.before.choice, self.after.choice
        named = zip(SWITCHES, one, other, strict=True)
        return next((name for name, before, after in named if before != after), "")

    @property
    def what(self) -> str:
        """The switch in words."""
        one, other = self.before.choice, self.after.choice
        if self.switch == "algorithm":
            return f"{one.algo} to {other.algo}"
        return f"{self.switch or 'nothing'} of {one.algo}"


SWITCHES = {
    "algorithm": "the cheapest algorithm and protocol in its cost model or size table, which times itself otherwise "
    "than collsim does (NCCL and RCCL `src/graph/tuning.cc`; messages take LL up to 16 KiB a part, `src/enqueue.cc`)",
    "channels": "one more channel for every so many bytes, which then carry less each (`src/enqueue.cc`: channels are "
    "given up while threads have less than their least bytes)",
    "parts": "a message is cut into more parts, each on a channel of its own (`src/enqueue.cc`, addP2pToPlan)",
    "chunk": "chunks double where a channel has enough of them to fill its pipeline (`src/enqueue.cc`, "
    "calcCollChunking)",
}
"""Switches in the order of `Choice`, with what decides them."""


@cache
def sizes() -> tuple[int, ...]:
    """Return sizes at most `STEP` apart, as far as they are multiples of a `GRAIN`-th of the power of two below."""
    count = math.ceil(math.log(2) / math.log(STEP)) * round(math.log2(MOST / LEAST))
    found = set()
    for k in range(count + 1):
        exact = LEAST * (MOST / LEAST) ** (k / count)
        grain = 2 ** int(math.log2(exact) + SLACK) // GRAIN
        found.add(round(exact / grain) * grain)
    return tuple(sorted(found))


@cache
def topo_of(system: str) -> str:
    """Return the argument of `collsim.simulate` for a system of the zoo or of tools/data."""
    from predictors import topo_of as known

    return known(system)


def choice_of(row: Row, case: Case) -> Choice:
    """Return the choice behind a row."""
    topology = load_topology(topo_of(case.system))
    name = case.library or load_profile("auto", topology).library
    algo = "/".join(filter(None, (row.algo, row.proto)))
    if not name:
        return Choice(algo, row.channels or 0, 0, 0)
    node = topology.cluster.node.n_gpus if topology.cluster else topology.n_gpus
    call = Call(row.op, row.ranks, row.size_bytes, n_nodes=-(-row.ranks // node))
    try:
        found = choose(call, system_of(topology, list(range(row.ranks))), load_library(name))
    except CollsimError:
        return Choice(algo, row.channels or 0, 0, 0)
    parts = found.point_to_point.parts if found.point_to_point else 0
    return Choice(algo, row.channels or 0, parts, found.chunk_bytes)


def points(case: Case, op: str) -> list[Point]:
    """Return the points of an operation in order, dense where something changes; raises if collsim refuses."""
    grid = sizes()
    found: dict[int, Point] = {}
    wanted = sorted({*range(0, len(grid), COARSE), len(grid) - 1})
    options: dict[str, Any] = {key: value for key, value in (("ranks", case.ranks), ("library", case.library)) if value}
    while wanted:
        rows = collsim.simulate(topo_of(case.system), op, [grid[k] for k in wanted], **options).rows
        found |= {
            k: Point(row.size_bytes, row.time_s, choice_of(row, case)) for k, row in zip(wanted, rows, strict=True)
        }
        wanted = [(a + b) // 2 for a, b in pairwise(sorted(found)) if b - a > 1 and changes(found[a], found[b])]
    return [found[k] for k in sorted(found)]


def changes(one: Point, other: Point) -> bool:
    """Return True if something happens between two points that are not neighbours."""
    return one.choice != other.choice or is_event(one, other)


def is_event(one: Point, other: Point) -> bool:
    """Return True if the time falls or jumps.

    >>> is_event(Point(1, 1.0, Choice("a", 1, 0, 0)), Point(2, 1.29, Choice("a", 1, 0, 0)))
    False
    """
    return other.time_s < one.time_s * (1 - SLACK) or other.time_s > one.time_s * JUMP


def scan(asked: tuple[Case, str]) -> list[Event]:
    """Return the events of an operation; none where it is refused."""
    case, op = asked
    try:
        found = points(case, op)
    except CollsimError as error:
        print(f"{case}, {op}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        return []
    alike = [(a, b) for a, b in pairwise(found) if b.size_bytes <= a.size_bytes * (1 + 2 / GRAIN)]
    return [Event(case, op, a, b) for a, b in alike if is_event(a, b)]


# --- the table -------------------------------------------------------------------------------------------------------


def measured_ratio(event: Event, rows: Sequence[TableRow]) -> str:
    """Return measured times over the two sizes around an event, of the log with the nearest two; empty if none has."""
    case, low, high = event.case, event.before.size_bytes, event.after.size_bytes
    ranks = case.ranks or load_topology(topo_of(case.system)).n_gpus
    logs: dict[str, list[TableRow]] = {}
    for row in rows:
        asked = row.case
        plain = not asked.env and asked.launch == "stream"
        if plain and (asked.system, asked.op, asked.ranks) == (case.system, event.op, ranks):
            logs.setdefault(row.log, []).append(row)
    best: tuple[float, str] = (4.1, "")
    for log, its in logs.items():
        below = max((row for row in its if row.case.size_bytes <= low), key=lambda r: r.case.size_bytes, default=None)
        above = min((row for row in its if row.case.size_bytes >= high), key=lambda r: r.case.size_bytes, default=None)
        if below and above and (span := above.case.size_bytes / below.case.size_bytes) < best[0]:
            places = f"{format_size(below.case.size_bytes)} to {format_size(above.case.size_bytes)}"
            best = span, f"{below.time_s * 1e6:.1f} to {above.time_s * 1e6:.1f} us from {places} (`{log}`)"
    return best[1]


def lines(events: Iterable[Event], rows: Sequence[TableRow]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each switch: neighbours in a row that switch the same thing are one line."""
    ordered = sorted(
        events, key=lambda e: ((*CASES, *MORE).index(e.case), OPS.index(e.op), e.falls, e.before.size_bytes)
    )
    for (case, op, _, what), group in groupby(ordered, key=lambda e: (e.case, e.op, e.falls, e.what)):
        its = list(group)
        most = max(its, key=lambda event: abs(event.ratio - 1))
        first, last = its[0], its[-1]
        span = format_size(first.after.size_bytes)
        span += "" if first is last else f" to {format_size(last.after.size_bytes)}"
        times = f"{most.before.time_s * 1e6:.1f} to {most.after.time_s * 1e6:.1f} us"
        yield (
            str(case), op, what, span, str(len(its)), f"{(most.ratio - 1) * 100:+.1f} %",
            f"{times} at {format_size(most.after.size_bytes)}", measured_ratio(most, rows),
        )  # fmt: skip


HEADINGS = ("system", "operation", "switch", "sizes", "times", "most", "there", "measured around it")


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    every = [HEADINGS, ("---",) * len(HEADINGS), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in every)


def text(events: Sequence[Event], rows: Sequence[TableRow], n_cases: int) -> str:
    """Return what docs/jumps.md has between its markers."""
    falls = [event for event in events if event.falls]
    jumps = [event for event in events if not event.falls]
    odd = sum(not event.switch for event in events)
    means = "".join(f"* **{name}**: {what}.\n" for name, what in SWITCHES.items())
    return (
        f"{n_cases} systems, numbers of ranks and versions: {len(jumps)} jumps of more than {(JUMP - 1) * 100:.0f} % "
        f"and {len(falls)} falls between neighbours, {odd} where the library switches nothing, which is a fault of the "
        f"model. What it switches elsewhere, and why:\n\n"
        f"{means}\n## Jumps\n\n{table(lines(jumps, rows))}\n## Falls\n\n{table(lines(falls, rows))}"
    )


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", help="only this one, as often as wanted")
    parser.add_argument("--op", action="append", choices=OPS, help="only this operation, as often as wanted")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--all", action="store_true", help="also all other systems, racks and clusters")
    parser.add_argument("--write", action="store_true", help="write docs/jumps.md")
    asked = parser.parse_args()
    if asked.write and (asked.system or asked.op or asked.all):
        parser.error("--write goes alone")
    start = time.perf_counter()
    every = (*CASES, *MORE) if asked.all or asked.system else CASES
    cases = [case for case in every if not asked.system or case.system in asked.system]
    runs = [(case, op) for case in cases for op in asked.op or OPS]
    with ProcessPoolExecutor(asked.workers) as pool:
        events = [event for found in pool.map(scan, runs) for event in found]
    found = text(events, measured_rows(), len(cases))
    if asked.write:
        put_between(PAGE, BEGIN, END, found)
    else:
        print(found)
    faults = [event for event in events if not event.switch]
    for event in faults:
        print(f"{event.case}, {event.op}: nothing switches: {event.before}, {event.after}", file=sys.stderr)
    print(f"{len(runs)} scans, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
