"""Compares what `collsim tune` would choose with measured times of forced algorithms and protocols.

    python tools/tuner_check.py --folder DIR

DIR holds outputs of nccl-tests on H100: ``default__OP__rN.log`` as the library chooses, and with NCCL_ALGO and
NCCL_PROTO set ``forced__OP__rN__ALGO_PROTO.log``. For every size of both, the time of the default is compared with that
of what the rules choose, and, as if the error of the model were nothing, with that of the fastest in the simulator.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collsim.calibration import read_log
from collsim.planning import tune
from collsim.planning.tuning import TunedSize

NAME = re.compile(r"(default|forced)__(\w+?)__r(\d+)(?:__(\w+?)_(\w+))?$")
TOPOLOGY = "hgx_h100"
OURS: dict[str, Any] = {"environment": {"NCCL_NVLS_ENABLE": "0"}, "one_process": True}
"""How the logs were made: a virtual machine without NVLS, threads of one process."""

Times = dict[tuple[str, int], dict[tuple[str, str] | None, dict[int, float]]]


def measured(folder: Path) -> Times:
    """Return seconds out of place by operation and ranks, choice (None: the library's) and size."""
    found: Times = defaultdict(dict)
    for path in sorted(folder.glob("*.log")):
        if not (named := NAME.match(path.stem)):
            continue
        choice = None if named[1] == "default" else (named[4].lower(), named[5])
        for test in read_log(path).tests:
            if test.op is None:
                continue
            times = {int(row.size_bytes): float(row.time_s) for row in test.rows if row.time_s}
            found[test.op, int(named[3])][choice] = times
    return {place: by_choice for place, by_choice in found.items() if None in by_choice and len(by_choice) > 1}


def compared(
    times: Times, rows: Mapping[tuple[str, int], list[TunedSize]]
) -> Iterator[tuple[str, float, float, float | None]]:
    """Yield for each size its place, default over what the rules choose, default over the fastest, and the error."""
    for place, tuned in rows.items():
        by_choice = times[place]
        for row in tuned:
            default_s = by_choice[None].get(row.size_bytes)
            best_s = by_choice.get((row.best.algo, row.best.proto), {}).get(row.size_bytes)
            if default_s is None or best_s is None:
                continue
            agrees = row.verdict == "agrees"
            chosen = best_s if row.verdict == "override" else default_s
            yield f"{row.op} of {row.ranks}, {row.size_bytes} B: {row.library.label} -> {row.best.label}", \
                default_s / chosen, 1.0 if agrees else default_s / best_s, row.band  # fmt: skip


def main() -> None:
    """Print how measured times compare, of all sizes and of those where the simulator differs from the library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--band", type=float, help="error of a ratio, in place of the profile's")
    parser.add_argument("--worst", type=int, default=10)
    arguments = parser.parse_args()
    times = measured(arguments.folder)
    if not times:
        parser.error(f"{arguments.folder} has no logs of forced choices (forced__*) beside default ones")
    rows = {}
    for (op, ranks), by_choice in times.items():
        sizes = sorted(set(by_choice[None]))
        tuning = tune(TOPOLOGY, op, sizes, ranks=ranks, band=arguments.band, search_channels=False, **OURS)
        rows[op, ranks] = list(tuning.rows)
    found = list(compared(times, rows))
    by_rules = [rules for _, rules, _, _ in found]
    other = [(fastest, band, where) for where, _, fastest, band in found if fastest != 1.0]
    beyond = [each for each in other if each[1] is not None and each[0] < 1 / each[1]]
    print(f"{len(found)} sizes of {len(rows)} operations and numbers of ranks")
    print(f"rules: {sum(value != 1 for value in by_rules)} overrides; default over chosen at least {min(by_rules):.3f}")
    ratios = [value for value, _, _ in other]
    faster = sum(ratio >= 1 for ratio in ratios)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"fastest in the simulator differs from the library at {len(other)} sizes, where default over it is:")
    print(f"  median {statistics.median(ratios):.3f}, geometric mean {mean:.3f}, 1 or more {faster} times")
    print(f"  and below 1 by more than the error {len(beyond)} times")
    for value, band, where in sorted(other)[: arguments.worst]:
        print(f"  {value:.3f} (error {band or math.nan:.2f})  {where}")


if __name__ == "__main__":
    main()
