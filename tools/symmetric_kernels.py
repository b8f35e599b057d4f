"""Fit the kernels of NCCL on symmetric memory, and print how far predictions are from the rows.

``python tools/symmetric_kernels.py`` prints errors by operation, of a fit to all rows and of fits that leave each
operation out in turn; ``--write`` also ships the constants. Rows are of tools/data/symmetric.csv: nccl-tests with
``-R 2``, out of place.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import collsim
from collsim.core.operations import DTYPES
from collsim.library import Profile, Protocol, load_profile

ROOT = Path(__file__).parent.parent
ROWS = ROOT / "tools" / "data" / "symmetric.csv"
FILE = ROOT / "collsim" / "library" / "costs" / "profiles" / "engines" / "symmetric_hgx_h200.yaml"
SYSTEM, LIBRARY, HOST = "hgx_h200", "nccl-2.32", "virtual"
SOURCE = "tools/symmetric_kernels.py on tools/data/symmetric.csv"
SOFTNESS = 3.0
"""With which blocks and links meet; the rows do not resolve it (assumed, as of the kernels of inference engines)."""
STARTS = {
    "LL.base": 4.5e-6, "LL.message_overhead": 0.6e-6, "LL.channel_rate": 0.3e9,
    "Simple.base": 7.8e-6, "Simple.message_overhead": 0.6e-6, "Simple.channel_rate": 4e9, "Simple.reduce_rate": 7e9,
}  # fmt: skip
"""Bases of NCCL's own model (src/sym_kernels.cc) and a hop of its tuner; rates are what the largest rows reach."""
SPREAD, NOISE = 1.0, 0.05
"""How far a logarithm goes from its start before it costs as much as a row that is off by `NOISE` (assumed)."""


class Row(NamedTuple):
    """A measured call; time in seconds."""

    op: str
    ranks: int
    size_bytes: int
    time_s: float


def measured() -> list[Row]:
    """Return the rows."""
    with ROWS.open(encoding="utf-8") as file:
        return [
            Row(line["op"], int(line["ranks"]), int(line["size_bytes"]), float(line["out_of_place_us"]) * 1e-6)
            for line in csv.DictReader(file)
        ]


def with_figures(profile: Profile, figures: dict[str, float]) -> Profile:
    """Return the profile with these costs of the kernels."""
    from dataclasses import replace

    def costs(proto: str) -> Protocol:
        reduce_Bps = figures.get(f"{proto}.reduce_rate")
        return Protocol(
            figures[f"{proto}.message_overhead"],
            figures[f"{proto}.channel_rate"],
            base_s=figures[f"{proto}.base"],
            link_share=0.944,
            softness=SOFTNESS,
            reduce_rates_Bps={} if reduce_Bps is None else dict.fromkeys(DTYPES, reduce_Bps),
        )

    families = {**profile.families, "symmetric": {"LL": costs("LL"), "Simple": costs("Simple")}}
    launches = {name: with_figures(each, figures) for name, each in profile.launches.items()}
    return replace(profile, families=families, launches=launches)


def predicted(rows: Sequence[Row], figures: dict[str, float]) -> NDArray[np.float64]:
    """Return float64[rows], times with these figures."""
    profile = with_figures(load_profile(SYSTEM), figures)
    told: dict[Row, float] = {}
    for op in dict.fromkeys(row.op for row in rows):
        own = [row for row in rows if row.op == op]
        result = collsim.simulate(
            SYSTEM, op, [row.size_bytes for row in own], ranks=own[0].ranks, library=LIBRARY, profile=profile,
            registered="symmetric", host=HOST,
        )  # fmt: skip
        told |= dict(zip(own, (row.time_s for row in result.rows), strict=True))
    return np.array([told[row] for row in rows])


def fit(rows: Sequence[Row]) -> dict[str, float]:
    """Return the figures that predict rows best: robust least squares of logarithms near their starts."""
    from scipy.optimize import least_squares

    begin = np.log(list(STARTS.values()))
    wanted = np.log([row.time_s for row in rows])

    def figures(logs: NDArray[np.float64]) -> dict[str, float]:
        return dict(zip(STARTS, np.exp(logs).tolist(), strict=True))

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([np.log(predicted(rows, figures(logs))) - wanted, (logs - begin) * NOISE / SPREAD])

    found = least_squares(residuals, begin, loss="soft_l1", f_scale=NOISE, diff_step=1e-3, max_nfev=15)
    return figures(found.x)


def text(figures: dict[str, float], rows: Sequence[Row]) -> str:
    """Return the file of constants."""
    logs = len({row.op for row in rows})
    lines = [
        "schema: collsim.profile/1",
        "name: symmetric_hgx_h200",
        f"title: 'kernels without multicast, fitted to {len(rows)} rows of {logs} logs on two H200, NCCL 2.32.3'",
        "calibrated: true",
        f"systems: [{SYSTEM}]",
        "gpus: [H100, H800, H200, H20]",
        f"library: {LIBRARY}",
        "families:",
        "  symmetric:",
    ]
    for proto in ("LL", "Simple"):
        lines.append(f"    {proto}:")
        for key, value in figures.items():
            name = key.partition(".")[2]
            if not key.startswith(f"{proto}."):
                continue
            shown = f"{value * 1e6:.4g} us" if value < 1 else f"{value / 1e9:.4g} GB/s"
            entry = f"{{value: {shown}, status: fitted, source: '{SOURCE}'}}"
            lines.append(f"      {name}: {_by_type(entry) if name == 'reduce_rate' else entry}")
        lines.append("      link_share: {value: 0.944, status: assumed, source: 'as of rings'}")
        lines.append(f"      softness: {{value: {SOFTNESS:g}, status: assumed, source: 'the rows do not resolve it'}}")
    return "\n".join(lines) + "\n"


def _by_type(entry: str) -> str:
    """Return the same figure for all data types: bytes are what loads take, and only float was measured."""
    return "{" + ", ".join(f"{name}: {entry}" for name in DTYPES) + "}"


def table(rows: Sequence[Row], errors: NDArray[np.float64]) -> str:
    """Return errors by operation in percent."""
    told = []
    for op in dict.fromkeys(row.op for row in rows):
        for name, low, high in (("< 1 MiB", 0, 2**20), (">= 1 MiB", 2**20, 2**62)):
            own = errors[[row.op == op and low <= row.size_bytes < high for row in rows]] * 100
            median, p90 = np.percentile(np.abs(own), [50, 90])
            told.append(f"{op:16} {name:9} {len(own):3} rows  {median:.1f} / {p90:.1f} ({np.median(own):+.1f})\n")
    return "".join(told)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="ship the constants")
    asked = parser.parse_args()
    rows, times = measured(), np.array([row.time_s for row in measured()])
    figures = fit(rows)
    print("fitted\n" + table(rows, predicted(rows, figures) / times - 1))
    left = np.zeros(len(rows))
    for op in dict.fromkeys(row.op for row in rows):
        own = np.array([row.op == op for row in rows])
        others = fit([row for row in rows if row.op != op])
        left[own] = predicted([row for row in rows if row.op == op], others) / times[own] - 1
    print("operation left out\n" + table(rows, left))
    if asked.write:
        FILE.write_text(text(figures, rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
