"""Score constants of steps between nodes by site: as shipped, and fitted to all other sites of the same technology.

``python tools/network_sites.py`` takes all healthy rows over several nodes, of training and test logs, thins them, and
prints relative errors by technology, sizes and site; ``--network NAME``, as often as wanted, takes only these. Sites
whose training logs the shipped constants were fitted to are marked: the first column is no prediction there. What is
printed fits nothing that is shipped; constants of all sites together are for the comparison only.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fit_profiles import DEFAULT, NETWORKS, as_case, with_start
from predictors import TableRow, measured_rows, profile_of, topology_of
from scores import BANDS, OVER_NODES, SMALL, score

from collsim.calibration.fit_network import fit_steps
from collsim.calibration.log_placement import misfit
from collsim.calibration.observations import Observation, observe, thinned
from collsim.library import load_profile, system_of
from collsim.library.costs.channel_costs import BETWEEN
from collsim.simulation.timing import call_time_s

MOST_TRANSFERS = 6000
"""Larger schedules are left out: a fit times each of them some hundred times."""
MOST_ROWS = 40
"""Of a site: more of one would outweigh all others."""
SMALLEST = "< 1 MiB"
ALL = "all sites"

Errors = Mapping[tuple[str, str], tuple[list[float], list[float]]]
"""By site and band: relative errors of the shipped constants, and of those fitted to all other sites."""


class Entry(NamedTuple):
    """A row over several nodes, laid on its cluster, with its site and whether it may be fitted."""

    site: str
    trained: bool
    seen: Observation

    @property
    def band(self) -> str:
        """Band of its size."""
        size = self.seen.row.case.size_bytes
        found = next(name for name in OVER_NODES if BANDS[name][0] <= size < BANDS[name][1])
        return SMALLEST if found in SMALL else found

    def shipped_s(self) -> float:
        """Return the time with the constants as shipped."""
        profile = self.seen.run.profile
        costs = profile.network.protocol(self.seen.proto, self.seen.family)
        assert costs is not None
        wait_s = (self.seen.gpus_per_thread - 1) * profile.thread_launch_s
        return call_time_s(self.seen.device_s(costs), profile.floor_s, wait_s)


def laid(system: str, rows: Sequence[TableRow]) -> Iterator[Entry]:
    """Yield the rows of a cluster whose schedules are small enough."""
    topology = topology_of(system)
    profile = load_profile(profile_of(system), topology)
    cases = [case for case in thinned(list(map(as_case, rows))) if misfit(case.case, topology) is None]
    library = profile.library or DEFAULT[system_of(topology).is_amd]
    logs = {row.log: row for row in rows}
    for seen in observe(cases, topology, profile, library)[0]:
        if seen.over_nodes and len(seen.lowered.transfers) <= MOST_TRANSFERS:
            alike = replace(seen, family=BETWEEN.get(seen.family, seen.family))
            yield Entry(logs[seen.row.file].site, logs[seen.row.file].set == "train", alike)


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
            found[name] += laid(system, rows)
    return {name: few(entries) for name, entries in found.items()}


def few(entries: Sequence[Entry]) -> list[Entry]:
    """Return at most `MOST_ROWS` of each site, of all kernels and sizes."""
    sites: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        sites[entry.site].append(entry)
    kept: list[Entry] = []
    for rows in sites.values():
        rows.sort(key=lambda one: (one.seen.family, one.seen.proto, *one.seen.group, one.seen.row.case.size_bytes))
        kept += rows[:: -(-len(rows) // MOST_ROWS)]
    return kept


def errors_of(name: str, entries: Sequence[Entry]) -> Errors:
    """Return the errors of constants *name*; those fitted to other sites are missing where there is but one."""
    first = topology_of(NETWORKS[name].systems[0])
    seen, sites = [entry.seen for entry in entries], [entry.site for entry in entries]
    left_out_s = fit_steps(seen, with_start(first), NETWORKS[name].networks[0], sites)[2].left_out_s.tolist()
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    trained = {entry.site for entry in entries if entry.trained}
    for entry, other_s in zip(entries, left_out_s, strict=True):
        for site in (ALL, entry.site + (" (fitted)" if entry.site in trained else "")):
            shipped, others = found[site, entry.band]
            shipped.append(entry.shipped_s() / entry.seen.time_s - 1)
            if not math.isnan(other_s):
                others.append(other_s / entry.seen.time_s - 1)
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", choices=list(NETWORKS), help="only these; all by default")
    names = parser.parse_args().network or list(NETWORKS)
    print("| constants | site | sizes | rows | as shipped | fitted to all other sites |\n|" + " --- |" * 6)
    for name, entries in entries_of(names).items():
        errors = errors_of(name, entries)
        bands = (*OVER_NODES[:3], SMALLEST)
        for site, band in sorted(errors, key=lambda cell: (cell[0] != ALL, cell[0], bands.index(cell[1]))):
            shipped, others = errors[site, band]
            print(f"| {name} | {site} | {band} | {len(shipped)} | {score(shipped)} | {score(others)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
