"""Look for jumps and falls of predicted times over sizes 2 % apart, and say which switch of the library each one is.

``python tools/scan_sizes.py`` prints them by kind for every system that ``collsim topo list`` has, alone and as two and
four nodes, every operation and the library of the profile, at default flags; ``--system NAME`` takes only these,
``--lines`` prints a line for each system and operation, and ``--write`` puts the table into docs/jumps.md, for some
twenty minutes of a core. Sizes are looked at coarsely first, and 2 % apart wherever something changes in between. A
change of time for which no switch is found is a fault: it is listed, and the exit status is 1. More rounds are no
reason for a fall, nor are copies by hosts; one without any other switch counts as transfers that meet on links only if
the same schedule, timed on links that hold nobody up, takes as long or longer.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pages import put_between
from predictors import TableRow, measured_rows

import collsim
from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.observations import Observation, observe
from collsim.core.errors import CollsimError
from collsim.core.units import format_size
from collsim.library import Call, Library, Profile, System, choose, load_library, load_profile, system_of
from collsim.library.calls import Choice as LibraryChoice
from collsim.simulation.result import Row
from collsim.topology import Topology, load_topology
from collsim.topology.zoo import cluster_names, zoo_names

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
WIDE = 1e6
"""Links so many times as wide hold nobody up."""
MOST_TRANSFERS = 1_000_000
"""Schedules of more are not timed again on other links."""
MOST_ELEMENT_BYTES = 8
WORKERS = 2


class Case(NamedTuple):
    """What is scanned: a system by name, as how many nodes (0: as it is), and how many ranks (0: all)."""

    system: str
    nodes: int = 0
    ranks: int = 0

    def __str__(self) -> str:
        """Return its name in the table."""
        extent = f"{self.nodes} nodes" if self.nodes else f"{self.ranks} ranks" if self.ranks else ""
        return ", ".join(filter(None, (self.system, extent)))

    @property
    def options(self) -> dict[str, Any]:
        """What is asked of `collsim.simulate`."""
        return {key: value for key, value in (("nodes", self.nodes), ("ranks", self.ranks)) if value}

    @property
    def topology(self) -> Topology:
        """The machine."""
        return load_topology(topo_of(self.system), scale_out={"nodes": self.nodes} if self.nodes else None)

    @property
    def n_ranks(self) -> int:
        """How many ranks take part."""
        return self.ranks or self.topology.n_gpus


HOST_COPIES = "host_rate"
"""Limit of rows whose messages hosts copy."""
SCALES = (2, 4)
MOST_RANKS = 80
"""More are left out: a scan of them takes minutes, and more ranks switch as these do."""


def every_case() -> tuple[Case, ...]:
    """Return every system of the zoo by itself and as several nodes, and so many nodes of every cluster."""
    found = [Case(name, nodes) for name in zoo_names() for nodes in (0, *SCALES)]
    for name in cluster_names():
        cluster = load_topology(name).cluster
        assert cluster is not None
        found += [Case(name, 0, nodes * cluster.node.n_gpus) for nodes in SCALES]
    return tuple(case for case in found if _counts(case))


def _counts(case: Case) -> bool:
    """Return True if a case can be built, and is not too large."""
    try:
        return case.n_ranks <= MOST_RANKS
    except CollsimError:
        return False


class Choice(NamedTuple):
    """What a library decides that times depend on: algorithm and protocol, channels, parts of a message, chunks; the
    bytes of a channel that is dealt whole cells, how often the fullest channel goes through its loop, and whether the
    network's plug-in lets hosts copy the messages.
    """

    algo: str
    channels: int
    parts: int
    chunk_bytes: int
    cells_bytes: int = 0
    rounds: int = 0
    copied: bool = False


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
    meets: bool = False
    """Whether the fall comes from transfers that meet on links."""

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
        """What the library switched, as a key of `SWITCHES`, or what else it is; empty if nothing.

        More rounds are no reason for less time, nor are copies.
        """
        one, other = self.before.choice, self.after.choice
        names = [name for name in SWITCHES if not (self.falls and name in LENGTHEN)]
        named = zip(names, one, other, strict=False)
        return next((name for name, before, after in named if before != after), "links" if self.meets else "")

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
    "cells": "bytes are dealt to channels in whole cells: all but the last get one more, and the last what is left, "
    "which is less than before (`src/enqueue.cc`, scheduleCollTasksToPlan)",
    "rounds": "a channel goes through its loop once more, with all its steps, for what one round of chunks leaves: "
    "only an all-reduce on rings evens out the last round (loops of `src/device`: `all_gather.h`, `reduce_scatter.h`, "
    "`broadcast.h`, `reduce.h`)",
    "copies": "messages pass 4 KiB on the wire, from where on the network's plug-in lets hosts copy them at the "
    "`host_rate` of the profile ([profiles.md](profiles.md)): Slingshot as it comes",
}
"""Switches in the order of `Choice`, with what decides them."""
LENGTHEN = ("rounds", "copies")
"""Switches that make nothing faster."""
LINKS = (
    "nothing is switched, but transfers of several channels, in step so far, meet on a link no more, or for less long: "
    "the same schedule on links that hold nobody up takes no less time for more bytes"
)
N_SWITCHES = 4
"""The first so many are looked for between sizes that are far apart."""


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


@cache
def library_of(case: Case) -> tuple[Library, System] | None:
    """Return the library of the profile and the system that it sees; None where the profile has none."""
    topology = case.topology
    name = load_profile("auto", topology).library
    return (load_library(name), system_of(topology, list(range(case.n_ranks)))) if name else None


def choice_of(row: Row, case: Case) -> Choice:
    """Return the choice behind a row."""
    algo = "/".join(filter(None, (row.algo, row.proto)))
    copied = any(limit.name == HOST_COPIES for limit in row.limits)
    plain = Choice(algo, row.channels or 0, 0, 0, copied=copied)
    try:
        known = library_of(case)
        if known is None:
            return plain
        cluster = case.topology.cluster
        node = cluster.node.n_gpus if cluster else case.n_ranks
        call = Call(row.op, row.ranks, row.size_bytes, n_nodes=-(-row.ranks // node))
        found = choose(call, known[1], known[0])
    except CollsimError:
        return plain
    parts = found.point_to_point.parts if found.point_to_point else 0
    cells, rounds = dealt(found, row.ranks if (row.op, row.algo) == ("all_reduce", "ring") else 1)
    return plain._replace(parts=parts, chunk_bytes=found.chunk_bytes, cells_bytes=cells, rounds=rounds)


def dealt(choice: LibraryChoice, chunks: int) -> tuple[int, int]:
    """Return the bytes of a channel that gets whole cells, 0 if all get the same or there is one; and the most rounds
    of so many *chunks* that a channel goes.
    """
    shares = choice.shares_bytes
    if not shares:
        return 0, 0
    is_even = max(shares) - min(shares) <= MOST_ELEMENT_BYTES
    return 0 if is_even else max(shares[:-1]), -(-max(shares) // (choice.chunk_bytes * chunks))


def meets(case: Case, op: str, before: Point, after: Point) -> bool:
    """Return True if the larger size takes less time only as long as links hold transfers up, by the same schedules."""
    topology = case.topology
    profile = load_profile("auto", topology)
    rows = [
        Measured(
            MeasuredCase(op, case.n_ranks, point.size_bytes, library=profile.library, nodes=case.nodes or None),
            "", 0, point.time_s, None, None,
        )
        for point in (before, after)
    ]  # fmt: skip
    found, _ = observe(rows, topology, profile, profile.library or "", most_transfers=MOST_TRANSFERS)
    if len(found) < len(rows):
        return False
    as_is, unhindered = ([device_s(each, profile, wide) for each in found] for wide in (1.0, WIDE))
    return as_is[1] < as_is[0] and unhindered[1] >= unhindered[0] * (1 - SLACK)


def device_s(observation: Observation, profile: Profile, wide: float) -> float:
    """Return the time on the device where every link carries so many times what it does."""
    run, proto, family = observation.lowered.run, observation.proto, observation.family
    run = replace(run, trunk_capacity_Bps=run.trunk_capacity_Bps * wide)
    costs = profile.network.protocol(proto, family) if observation.over_nodes else profile.protocol(proto, family)
    assert costs is not None
    return replace(observation, run=run).device_s(costs)


def points(case: Case, op: str) -> list[Point]:
    """Return the points of an operation in order, dense where something changes; raises if collsim refuses."""
    grid = sizes()
    found: dict[int, Point] = {}
    asked: set[int] = set()
    wanted = {*range(0, len(grid), COARSE), len(grid) - 1}
    while wanted:
        asked |= wanted
        rows = collsim.simulate(topo_of(case.system), op, [grid[k] for k in sorted(wanted)], **case.options).rows
        places = {grid[k]: k for k in wanted}  # a size that is refused has no row
        found |= {places[row.requested_bytes]: Point(row.size_bytes, row.time_s, choice_of(row, case)) for row in rows}
        near = [(a, b) for a, b in pairwise(sorted(found)) if b - a > 1 and changes(found[a], found[b])]
        wanted = {(a + b) // 2 for a, b in near} - asked
    return [found[k] for k in sorted(found)]


def changes(one: Point, other: Point) -> bool:
    """Return True if something happens between two points that are not neighbours."""
    return one.choice[:N_SWITCHES] != other.choice[:N_SWITCHES] or is_event(one, other)


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
    events = [Event(case, op, a, b) for a, b in alike if is_event(a, b)]
    return [
        event if event.switch else event._replace(meets=event.falls and meets(case, op, event.before, event.after))
        for event in events
    ]


# --- the table -------------------------------------------------------------------------------------------------------


def measured_ratio(event: Event, rows: Sequence[TableRow]) -> str:
    """Return measured times over the two sizes around an event, of the log with the nearest two; empty if none has."""
    case, low, high = event.case, event.before.size_bytes, event.after.size_bytes
    if case.nodes:
        return ""
    ranks = case.n_ranks
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
    """Yield a line for each switch of a system and an operation."""
    for (case, op, _, what), its in grouped(events, lambda e: (str(e.case), e.op, e.falls, e.what)):
        yield (case, op, what, *extent(its), *worst(its, rows))


def kinds(events: Iterable[Event], rows: Sequence[TableRow]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each switch of NCCL's and of RCCL's, whatever the system and the operation."""
    for (library, _, what), its in grouped(events, lambda e: (family_of(e.case), e.falls, e.what)):
        ops = [op for op in OPS if any(event.op == op for event in its)]
        systems = len({event.case for event in its})
        most = max(its, key=lambda event: abs(event.ratio - 1))
        yield (library, what, ", ".join(ops), str(systems), *extent(its), f"{most.case}, {most.op}", *worst(its, rows))


def grouped(
    events: Iterable[Event], key: Callable[[Event], tuple[Any, ...]]
) -> Iterator[tuple[tuple[Any, ...], list[Event]]]:
    """Yield events together that have the same *key*, in the order of keys."""
    for name, group in groupby(sorted(events, key=lambda e: (key(e), e.before.size_bytes)), key):
        yield name, list(group)


@cache
def family_of(case: Case) -> str:
    """Return the family of the library."""
    known = library_of(case)
    return known[0].family.upper() if known else "none"


def extent(its: Sequence[Event]) -> tuple[str, str]:
    """Return the sizes between which events lie, and how many there are."""
    first = min(event.after.size_bytes for event in its)
    last = max(event.after.size_bytes for event in its)
    return format_size(first) + (f" to {format_size(last)}" if last > first else ""), str(len(its))


def worst(its: Sequence[Event], rows: Sequence[TableRow]) -> tuple[str, str, str]:
    """Return the largest step, where it is, and what logs have around the largest one that lies between their rows."""
    order = sorted(its, key=lambda event: -abs(event.ratio - 1))
    most = order[0]
    times = (
        f"{most.before.time_s * 1e6:.1f} to {most.after.time_s * 1e6:.1f} us at {format_size(most.after.size_bytes)}"
    )
    seen = next(
        ((event, text) for event in order[:MOST_LOOKED] if event.switch and (text := measured_ratio(event, rows))), None
    )
    told = "" if seen is None else seen[1]
    if seen is not None and seen[0] is not most:
        event = seen[0]
        here = f"{event.before.time_s * 1e6:.1f} to {event.after.time_s * 1e6:.1f} us here"
        told = f"{told}; {here} ({event.case}, {event.op})"
    return f"{(most.ratio - 1) * 100:+.1f} %", times, told


MOST_LOOKED = 40
"""So many events of a kind are looked up among measured rows."""
KINDS = (
    "library",
    "switch",
    "operations",
    "systems",
    "sizes",
    "times",
    "largest",
    "most",
    "there",
    "measured around it",
)
LINES = ("system", "operation", "switch", "sizes", "times", "most", "there", "measured around it")


def table(rows: Iterable[Sequence[str]], headings: Sequence[str] = KINDS) -> str:
    """Return a Markdown table."""
    every = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in every)


def text(events: Sequence[Event], rows: Sequence[TableRow], n_cases: int) -> str:
    """Return what docs/jumps.md has between its markers."""
    falls = [event for event in events if event.falls and event.switch]
    met = sum(event.switch == "links" for event in falls)
    jumps = [event for event in events if not event.falls and event.switch]
    odd = [event for event in events if not event.switch]
    means = "".join(f"* **{name}**: {what}.\n" for name, what in (*SWITCHES.items(), ("links", LINKS)))
    told = f"\n## Faults\n\nWhere the library switches nothing:\n\n{table(lines(odd, rows), LINES)}" if odd else ""
    return (
        f"{n_cases} machines (every system alone, as two and as four nodes, and so many nodes of every cluster, up to "
        f"{MOST_RANKS} ranks): {len(jumps)} jumps of more than {(JUMP - 1) * 100:.0f} % and {len(falls) - met} falls "
        f"between neighbours where the library switches something, {met} falls where it does not and transfers meet on "
        f"links no more, {len(odd)} falls of any other kind, which are faults of the model. What it is, and why:\n\n"
        f"{means}\n## Jumps\n\n{table(kinds(jumps, rows))}\n## Falls\n\n{table(kinds(falls, rows))}{told}"
    )


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", help="only this one, as often as wanted")
    parser.add_argument("--op", action="append", choices=OPS, help="only this operation, as often as wanted")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--lines", action="store_true", help="a line for each system and operation")
    parser.add_argument("--write", action="store_true", help="write docs/jumps.md")
    asked = parser.parse_args()
    if asked.write and (asked.system or asked.op):
        parser.error("--write goes alone")
    cases = [case for case in every_case() if not asked.system or case.system in asked.system]
    runs = [(case, op) for case in cases for op in asked.op or OPS]
    with ProcessPoolExecutor(asked.workers) as pool:
        events = [event for found in pool.map(scan, runs) for event in found]
    rows = measured_rows()
    found = text(events, rows, len(cases))
    if asked.write:
        put_between(PAGE, BEGIN, END, found)
    else:
        print(table(lines(events, rows), LINES) if asked.lines else found)
    faults = [event for event in events if not event.switch]
    for event in faults:
        print(f"{event.case}, {event.op}: nothing switches: {event.before}, {event.after}", file=sys.stderr)
    print(f"{len(runs)} scans, {sum(os.times()[:4]):.0f} s of a core", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
