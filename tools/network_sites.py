"""Score constants of steps between nodes by site: as shipped, and fitted to all other sites.

``python tools/network_sites.py`` takes all healthy rows over several nodes, of training and test logs, thins them, and
prints relative errors by technology, sizes and site; ``--network NAME``, as often as wanted, takes only these. Sites
whose training logs the shipped constants were fitted to are marked: the first column is no prediction there. What is
printed fits nothing that is shipped; constants of all sites together are for the comparison only. ``--parts`` says what
each part of the law is worth that the networks of NVIDIA's GPUs are fitted to together, ``--intervals`` what share of
the training rows lies inside intervals made without their site, ``--farther`` how much farther off rows of more nodes
are if only those of the fewest of their site are kept, and ``--rivals`` how other predictors that know as
little of a site do: the time by which NCCL and RCCL rank their algorithms, and alpha and beta of all other sites; fits
without a site are then one step of the linear problem, a tenth of the time.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from fit_profiles import DEFAULT, NETWORKS, as_case, draws, joint_fit, law_of_nccl, start_of, with_start
from joint_networks import (
    JOINT,
    LEFT_OUT_ROUNDS,
    PARTS,
    Seen,
    begin_near,
    few,
    fit_jointly,
    left_out_s,
    time_s,
    without_s,
)
from predictors import (
    MESSAGES,
    TableRow,
    fit_alpha_beta,
    measured_rows,
    predict_tuner,
    profile_of,
    steps_and_bytes,
    topology_of,
)
from scores import BANDS, OVER_NODES, SMALL, score
from site_errors import Draw, coverage

from collsim.calibration.fit_network import fit_steps
from collsim.calibration.log_placement import misfit, nodes_of
from collsim.calibration.observations import observe, thinned
from collsim.library import load_profile, system_of
from collsim.library.costs.channel_costs import BETWEEN
from collsim.library.costs.profile import BANDS_BETWEEN

MOST_TRANSFERS = 6000
"""Larger schedules are left out: a fit times each of them some hundred times."""
MOST_ROWS = 40
"""Of a site: more of one would outweigh all others."""
ROWS_OF_PARTS = 16
"""The same where the fit is repeated for every part of the law."""
SMALLEST = "< 1 MiB"
PART_BANDS = (SMALLEST, "1-512 MiB", OVER_NODES[0])
ALL = "all sites"

Errors = Mapping[tuple[str, str], tuple[list[float], list[float]]]
"""By site and band: relative errors of the shipped constants, and of those fitted to all other sites."""


class Entry(NamedTuple):
    """A row over several nodes, laid on its cluster, and as it stands in its table."""

    seen: Seen
    row: TableRow

    @property
    def trained(self) -> bool:
        """Whether it may be fitted."""
        return self.row.set == "train"

    @property
    def band(self) -> str:
        """Band of its size."""
        size = self.seen.row.row.case.size_bytes
        found = next(name for name in OVER_NODES if BANDS[name][0] <= size < BANDS[name][1])
        return SMALLEST if found in SMALL else found

    @property
    def part_band(self) -> str:
        """The same, with all from 1 to 512 MiB together."""
        return self.band if self.band in (SMALLEST, PART_BANDS[-1]) else PART_BANDS[1]

    def shipped_s(self) -> float:
        """Return the time with the constants as shipped."""
        return time_s(self.seen.row, start_of(self.seen))


def laid(system: str, name: str, rows: Sequence[TableRow]) -> Iterator[Entry]:
    """Yield the rows of a cluster, whose constants are those of *name*, if their schedules are small enough."""
    topology = topology_of(system)
    profile = load_profile(profile_of(system), topology)
    cases = [case for case in thinned(list(map(as_case, rows))) if misfit(case.case, topology) is None]
    library = profile.library or DEFAULT[system_of(topology).is_amd]
    of_case = {(row.log, row.case.op, row.case.size_bytes): row for row in rows}
    for seen in observe(cases, topology, profile, library)[0]:
        if seen.over_nodes and len(seen.lowered.transfers) <= MOST_TRANSFERS:
            alike = replace(seen, family=BETWEEN.get(seen.family, seen.family))
            row = of_case[seen.row.file, seen.row.case.op, seen.row.case.size_bytes]
            yield Entry(Seen(name, f"{row.site} ({system})", alike), row)


def entries_of(names: Iterable[str]) -> dict[str, list[Entry]]:
    """Return the entries by the constants that are shipped for their cluster, of *names* only."""
    systems: dict[str, list[TableRow]] = defaultdict(list)
    for row in measured_rows():
        plain = row.case.nodes > 1 and row.case.launch == "stream" and row.health == "ok" and not row.spike
        if plain and row.set in ("train", "test"):
            systems[row.case.system].append(row)
    found: dict[str, list[Entry]] = defaultdict(list)
    for system, rows in systems.items():
        name = load_profile(profile_of(system), topology_of(system)).network.name
        if name in names:
            found[name] += laid(system, name, rows)
    kept = {name: set(map(id, few([entry.seen for entry in its], MOST_ROWS))) for name, its in found.items()}
    return {name: [entry for entry in its if id(entry.seen) in kept[name]] for name, its in found.items()}


def others_s(entries: Mapping[str, Sequence[Entry]], rounds: int = LEFT_OUT_ROUNDS) -> dict[str, list[float]]:
    """Return, by network, the time of each entry with constants fitted to all other sites; NaN where there are none.

    Networks of the joint law are fitted together; *rounds* are those of `left_out_s`.
    """
    found = {
        name: fit_steps(
            [entry.seen.row for entry in rows],
            with_start(topology_of(NETWORKS[name].systems[0])),
            NETWORKS[name].networks[0],
            [entry.seen.site for entry in rows],
        )[2].left_out_s.tolist()
        for name, rows in entries.items()
        if name not in JOINT
    }
    seen = [entry.seen for name, rows in entries.items() if name in JOINT for entry in rows]
    times = left_out_s(fit_jointly(law_of_nccl(), seen), rounds).tolist() if seen else []
    for entry, its_s in zip(seen, times, strict=True):
        found.setdefault(entry.network, []).append(its_s)
    return found


def errors_of(entries: Sequence[Entry], times_s: Sequence[float]) -> Errors:
    """Return the errors of the shipped constants, and of times by those fitted to other sites, where there are some."""
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    trained = {entry.seen.site for entry in entries if entry.trained}
    for entry, other_s in zip(entries, times_s, strict=True):
        for site in (ALL, entry.seen.site + (" (fitted)" if entry.seen.site in trained else "")):
            shipped, others = found[site, entry.band]
            shipped.append(entry.shipped_s() / entry.seen.row.time_s - 1)
            if not math.isnan(other_s):
                others.append(other_s / entry.seen.row.time_s - 1)
    return found


def print_parts(entries: Mapping[str, Sequence[Entry]]) -> None:
    """Print the errors of sites left out with the whole joint law, and without each of its parts."""
    print("| left out of the law | " + " | ".join(PART_BANDS) + " |\n|" + " --- |" * (1 + len(PART_BANDS)))
    rows = [entry for name in entries for entry in entries[name]]
    kept = set(map(id, few([entry.seen for entry in rows], ROWS_OF_PARTS)))
    rows = [entry for entry in rows if id(entry.seen) in kept]
    seen = [entry.seen for entry in rows]
    law = law_of_nccl()
    whole = fit_jointly(law, seen, begin_near(law, joint_fit()), LEFT_OUT_ROUNDS)
    for part in ("", *PARTS):
        law = law_of_nccl([part])
        fitted = fit_jointly(law, seen, begin_near(law, whole), LEFT_OUT_ROUNDS) if part else whole
        times_s = left_out_s(fitted, rounds=0).tolist()
        found: dict[str, list[float]] = defaultdict(list)
        for entry, its_s in zip(rows, times_s, strict=True):
            found[entry.part_band].append(its_s / entry.seen.row.time_s - 1)
        scores = " | ".join(str(score(found[band])) for band in PART_BANDS)
        print(f"| {part or 'nothing'} | {scores} |", flush=True)


def alpha_beta_s(entries: Sequence[Entry], entry: Entry) -> float:
    """Return what alpha and beta of all other sites say: of the operation if one has it, else of its kind."""
    others = [each.row for each in entries if each.seen.site != entry.seen.site]
    op, kind = entry.row.case.op, entry.row.case.op in MESSAGES
    told = [row for row in others if row.case.op == op] or [row for row in others if (row.case.op in MESSAGES) == kind]
    if not told:
        return math.nan
    alpha, beta = fit_alpha_beta((*steps_and_bytes(row.case), row.time_s) for row in told)
    steps, sent = steps_and_bytes(entry.row.case)
    return alpha * steps + beta * sent


def print_rivals(entries: Mapping[str, Sequence[Entry]], times_s: Mapping[str, Sequence[float]]) -> None:
    """Print errors by site and band, and how many of these cells collsim wins against each of the others."""
    rows = [entry for name in entries for entry in entries[name]]
    ours_s = dict(zip(map(id, rows), (its_s for name in entries for its_s in times_s[name]), strict=True))
    cells: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in rows:
        its_s = ours_s[id(entry)]
        tuner, took_s = predict_tuner(entry.row.case), entry.seen.row.time_s
        said_s = {
            "collsim": entry.shipped_s() if math.isnan(its_s) else its_s,
            "tuner": tuner.time_s if tuner else math.nan,
            "alpha-beta": alpha_beta_s(rows, entry),
        }
        cell = cells[entry.seen.site, entry.band]
        for rival, its in said_s.items():
            if not math.isnan(its):
                cell[rival].append(its / took_s - 1)
    print("| site | sizes | rows | collsim | tuner | alpha-beta |\n|" + " --- |" * 6)
    won: dict[str, list[bool]] = defaultdict(list)
    bands = (*OVER_NODES[:3], SMALLEST)
    for site, band in sorted(cells, key=lambda key: (key[0], bands.index(key[1]))):
        found = {rival: score(cells[site, band][rival]) for rival in ("collsim", "tuner", "alpha-beta")}
        print(f"| {site} | {band} | {found['collsim'].n} | {' | '.join(map(str, found.values()))} |", flush=True)
        for rival in ("tuner", "alpha-beta"):
            if found[rival].n:
                won[rival].append(found["collsim"].median <= found[rival].median)
    print("\n" + "; ".join(f"{rival}: {sum(wins)} of {len(wins)} cells won" for rival, wins in won.items()))


def print_intervals() -> None:
    """Print how far intervals reach, by band, and how many rows are inside those made without their site."""
    print("| sizes | sites | rows | factor | rows inside | the same, sites alike |\n|" + " --- |" * 6)
    words = dict(zip(BANDS_BETWEEN, reversed(OVER_NODES), strict=True))
    for band, told in coverage(draws()).items():
        shares = f"{told.of_rows:.0%} | {told.of_sites:.0%}"
        print(f"| {words[band]} | {told.sites} | {told.rows} | {told.factor:.2f} | {shares} |", flush=True)


def print_farther() -> None:
    """Print how far off rows are of sites whose rows of more nodes than the fewest were left out, by doublings."""
    found = joint_fit()
    nodes = [nodes_of(entry.row.row.case, entry.row.run.topology) for entry in found.seen]
    fewest: dict[str, int] = {}
    for entry, count in zip(found.seen, nodes, strict=True):
        fewest[entry.site] = min(count, fewest.get(entry.site, count))
    print("| site | sizes | nodes | rows | 90 % within |\n|" + " --- |" * 5)
    more = [count > fewest[entry.site] for entry, count in zip(found.seen, nodes, strict=True)]
    for site in dict.fromkeys(entry.site for entry, its in zip(found.seen, more, strict=True) if its):
        left_out = [its and entry.site == site for entry, its in zip(found.seen, more, strict=True)]
        errors: dict[tuple[str, int], list[float]] = defaultdict(list)
        for entry, count, its_s in zip(found.seen, nodes, without_s(found, left_out).tolist(), strict=True):
            if entry.site == site:
                draw = Draw(entry, its_s)
                errors[draw.band, count].append(abs(draw.error))
        bands = list(BANDS_BETWEEN)
        for band, count in sorted(errors, key=lambda cell: (bands.index(cell[0]), cell[1])):
            its = errors[band, count]
            reach = math.exp(float(np.quantile(its, 0.9)))
            print(f"| {site} | {band} | {count} | {len(its)} | {reach:.2f} times |", flush=True)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", choices=list(NETWORKS), help="only these; all by default")
    parser.add_argument("--parts", action="store_true", help="what each part of the joint law is worth, instead")
    parser.add_argument("--intervals", action="store_true", help="what intervals hold of sites left out, instead")
    parser.add_argument("--farther", action="store_true", help="how far off rows of more nodes are, instead")
    parser.add_argument("--rivals", action="store_true", help="other predictors beside it, by site, instead")
    asked = parser.parse_args()
    if asked.intervals:
        print_intervals()
        return 0
    if asked.farther:
        print_farther()
        return 0
    names = list(JOINT) if asked.parts else asked.network or list(NETWORKS)
    if asked.parts:
        print_parts(entries_of(names))
        return 0
    entries = entries_of([*names, *JOINT] if set(names) & set(JOINT) else names)
    times = others_s(entries, rounds=0 if asked.rivals else LEFT_OUT_ROUNDS)
    if asked.rivals:
        print_rivals(entries, times)
        return 0
    print("| constants | site | sizes | rows | as shipped | fitted to all other sites |\n|" + " --- |" * 6)
    for name in (name for name in entries if name in names):
        errors = errors_of(entries[name], times[name])
        bands = (*OVER_NODES[:3], SMALLEST)
        for site, band in sorted(errors, key=lambda cell: (cell[0] != ALL, cell[0], bands.index(cell[1]))):
            shipped, others = errors[site, band]
            print(f"| {name} | {site} | {band} | {len(shipped)} | {score(shipped)} | {score(others)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
