"""Fit the constants of a profile to the training rows of benchmarks/data, kernel family by kernel family.

Every row is simulated: its schedule is built and laid on the fabric once, and only the costs change from one trial to
the next. Prints the figures of the profile and the errors on the rows that were fitted.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import predictors

from collsim.library import Profile, Protocol, load_profile
from collsim.library.costs import family_of
from collsim.operations import operation
from collsim.question import ask
from collsim.simulation import library_choice, request_of
from collsim.timing import Lowered, Run, lower, prepare, time_lowered

START: dict[str, dict[str, dict[str, float]]] = {
    "ring": {
        "LL": {"base": 7.0, "message_overhead": 0.5, "channel_rate": 9.0},
        "LL128": {"base": 10.0, "message_overhead": 1.8, "channel_rate": 24.0, "fill_rate": 30.0},
        "Simple": {
            "base": 11.0, "message_overhead": 5.8, "small_overhead": 3.5, "slice_overhead": 1.3, "channel_rate": 31.0,
            "fill_rate": 30.0,
        },
    },
    "chain": {
        "LL": {"base": 7.0, "message_overhead": 0.6, "channel_rate": 4.0},
        "LL128": {"base": 10.0, "message_overhead": 1.6, "channel_rate": 12.0},
        "Simple": {"base": 11.0, "message_overhead": 5.0, "small_overhead": 4.0, "channel_rate": 25.0},
    },
    "messages": {
        "LL": {"base": 8.0, "message_overhead": 0.5, "channel_rate": 9.0},
        "Simple": {"base": 9.0, "message_overhead": 1.0, "channel_rate": 22.0, "fill_rate": 40.0},
    },
    "rooted": {"LL": {"base": 7.0}, "LL128": {"base": 10.0}, "Simple": {"base": 11.0}},
    "nvls": {"Simple": {"base": 40.0, "wire_efficiency": 0.7}},
}  # fmt: skip
"""Where each fit starts: times in us, rates in GB/s. The softness of a family is fitted too, from `SOFTNESS`."""
SOFTNESS = 2.3
LINK_SHARE = {"ring": 0.944, "chain": 0.944, "messages": 0.92, "nvls": 1.0}
"""Fixed: it trades against the softness, which is fitted."""
EFFICIENCY = {"LL": 0.5, "LL128": 0.9375}
CUT_THROUGH = ("ring", "chain")
"""Here LL passes a chunk on while it still arrives; messages cross one hop."""
SCALE = {"channel_rate": 1e9, "fill_rate": 1e9, "wire_efficiency": 1.0}
FLOOR_US = 9.8
FLOOR_SOURCE = "chosen near the smallest times of the training logs, 7.5 to 10.4 us by operation"
RING_SOURCE = "status: derived, source: as of ring"
UNTOLD_SOURCE = "status: assumed, source: no training log of this family uses it"
FIT_SOURCE = "benchmarks/fit_profile.py on the training logs in benchmarks/data"
ATTRIBUTE = {
    "base": "base_s",
    "message_overhead": "message_overhead_s",
    "small_overhead": "small_overhead_s",
    "slice_overhead": "slice_overhead_s",
    "channel_rate": "channel_rate_Bps",
    "fill_rate": "fill_rate_Bps",
    "wire_efficiency": "wire_efficiency",
}

ONE_WAY = 36.7 / 21.9
"""A channel that only sends or only receives is faster by this. Not fitted here: the two rates (GB/s) come from a fit
of another model to messages between four H100s, which did not keep the test logs apart."""
ONE_WAY_SOURCE = f"{ONE_WAY:.3g} of channel_rate, from a fit of another model"

Row = tuple[predictors.Measured, Lowered, Run, str]


def bare(floor_us: float) -> Profile:
    """Return a profile with raw links and no cost but the floor, that says where LL cuts through."""
    flags = Protocol(0.0, float("inf"), EFFICIENCY["LL"], cut_through=True)
    return replace(
        load_profile("ideal"),
        floor_s=floor_us * 1e-6,
        families={family: {"LL": flags} for family in (*CUT_THROUGH, "rooted")},
    )


DISTURBED = 1.5
"""A training row that takes this much longer than another one of the same work is left out: its host was disturbed."""


def undisturbed(rows: list[Row]) -> list[Row]:
    """Return the rows without those that another row of the same size, schedule and protocol shows to be too slow."""
    least: dict[tuple[object, ...], float] = {}
    keys = []
    for measured, lowered, _, proto in rows:
        schedule, case = lowered.schedule, measured.case
        key = (case.op, case.ranks, case.size_bytes, schedule.algo, proto, schedule.parameters.get("channels"))
        least[key] = min(measured.time_s, least.get(key, measured.time_s))
        keys.append(key)
    return [row for row, key in zip(rows, keys, strict=True) if row[0].time_s <= DISTURBED * least[key]]


def lowered_rows(system: str) -> dict[str, list[Row]]:
    """Return the training rows by family, each laid on its fabric."""
    families: dict[str, list[Row]] = defaultdict(list)
    runs: dict[int, Run] = {}
    for row in predictors.measured_rows():
        case = row.case
        if (case.system, row.set, row.health, case.launch) != (system, "train", "ok", "stream") or row.spike:
            continue
        if case.ranks not in runs:
            runs[case.ranks] = prepare(predictors.topology_of(system), bare(FLOOR_US), range(case.ranks))
        run = runs[case.ranks]
        question = ask(case.op, case.size_bytes, library=predictors.library_of(case.library), dtype=case.dtype,
                       environment=predictors.variables(case))  # fmt: skip
        request = request_of(operation(case.op), case.size_bytes, run, question)
        if request.size_bytes == 0:
            continue
        picked, asked, proto = library_choice(request, run, question)
        schedule, family = picked.build(asked), family_of(case.op, picked.name)
        families[family].append((row, lower(schedule, run), run, proto))
    return {family: undisturbed(rows) for family, rows in families.items()}


def protocols(family: str, names: list[tuple[str, str]], values: np.ndarray) -> dict[str, Protocol]:
    """Return the protocols of a family for a vector of figures; the last value is the softness."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (proto, key), value in zip(names, values, strict=False):
        found[proto][ATTRIBUTE[key]] = value * SCALE.get(key, 1e-6)
    hard = family == "nvls"  # the switches set the rate, not the channels
    return {
        proto: Protocol(**{
            "message_overhead_s": 0.0, "channel_rate_Bps": float("inf"), "wire_efficiency": EFFICIENCY.get(proto, 1.0),
            "link_share": LINK_SHARE[family], "softness": float("inf") if hard else float(values[-1]),
            "stepwise": family == "ring", "cut_through": proto == "LL" and family in CUT_THROUGH,
            "one_way_rate_Bps": own["channel_rate_Bps"] * ONE_WAY if family == "messages" else None, **own,
        })
        for proto, own in found.items()
    }  # fmt: skip


def rooted(ring: Mapping[str, Protocol]) -> dict[str, Protocol]:
    """Return what broadcast and reduce cost: they copy as rings do, but calls overlap and no step is lost."""
    change = {"stepwise": False, "back_to_back": True, "fill_rate_Bps": float("inf"), "small_overhead_s": None}
    return {proto: replace(own, **change) for proto, own in ring.items()}  # type: ignore[arg-type]


def fit(
    family: str, rows: list[Row], ring: Mapping[str, Protocol] | None = None
) -> tuple[dict[str, Protocol], np.ndarray]:
    """Return the fitted protocols and the relative errors of the rows; a protocol without rows stays as it starts.

    Of rooted operations the base alone is fitted; the rest is as of *ring*.
    """
    from scipy.optimize import least_squares

    rows = [row for row in rows if row[-1] in START[family]]
    told = {proto for *_, proto in rows}
    names = [(proto, key) for proto, keys in START[family].items() for key in keys if proto in told]
    untold = [(proto, key) for proto, keys in START[family].items() for key in keys if proto not in told]
    start = np.array([START[family][proto][key] for proto, key in names] + [SOFTNESS])

    def made(keys: list[tuple[str, str]], values: np.ndarray) -> dict[str, Protocol]:
        if ring is None:
            return protocols(family, keys, values)
        given = rooted(ring)
        return {
            proto: replace(given[proto], base_s=value * 1e-6) for (proto, _), value in zip(keys, values, strict=False)
        }

    def errors(logs: np.ndarray) -> np.ndarray:
        costs = made(names, np.exp(logs))
        times = [time_lowered(lowered, run, costs[proto]).time_s for _, lowered, run, proto in rows]
        return np.log(np.array(times) / np.array([row.time_s for row, *_ in rows]))

    least, most = np.log(start / 20), np.log(start * 20)
    found = least_squares(errors, np.log(start), bounds=(least, most), loss="soft_l1", f_scale=0.05, max_nfev=25)
    softness = float(np.exp(found.x[-1]))
    rest = made(untold, np.array([START[family][proto][key] for proto, key in untold] + [softness]))
    return made(names, np.exp(found.x)) | rest, np.expm1(errors(found.x))


def protocol_lines(family: str, own: Protocol, *, told: bool) -> list[str]:
    """Return the lines of one protocol; *told* is whether a training row uses it."""
    status = f"status: fitted, source: {FIT_SOURCE}" if told else UNTOLD_SOURCE
    shared = RING_SOURCE if family == "rooted" else status
    lines = []
    for key, attribute in ATTRIBUTE.items():
        value = getattr(own, attribute)
        if value is not None and 0 < value < float("inf") and attribute != "wire_efficiency":
            shown = f"{value / 1e9:.4g} GB/s" if key in SCALE else f"{value * 1e6:.4g} us"
            lines.append(f"      {key}: {{value: {shown}, {status if key == 'base' else shared}}}")
    if own.softness < float("inf"):
        lines.append(f"      softness: {{value: {own.softness:.4g}, {shared}}}")
        lines.append(f"      link_share: {{value: {own.link_share:.4g}, status: assumed, source: not identified}}")
    source = status if family == "nvls" else "status: constant, source: NCCL device.h"
    lines.append(f"      wire_efficiency: {{value: {own.wire_efficiency:.4g}, {source}}}")
    lines.append(f"      stepwise: {str(own.stepwise).lower()}")
    lines.append(f"      cut_through: {str(own.cut_through).lower()}")
    if own.one_way_rate_Bps is not None:
        rate = f"{own.one_way_rate_Bps / 1e9:.4g} GB/s"
        lines.append(f"      one_way_rate: {{value: {rate}, status: assumed, source: '{ONE_WAY_SOURCE}'}}")
    lines.append(f"      back_to_back: {str(own.back_to_back).lower()}")
    return lines


def as_yaml(
    system: str,
    fitted: Mapping[str, Mapping[str, Protocol]],
    notes: Mapping[str, str],
    seen: set[tuple[str, str]],
    counts: set[int],
) -> str:
    """Return the profile file; a protocol that no training row uses keeps the figures that the fit starts from."""
    ranks = " and ".join(map(str, sorted(counts)))
    lines = [
        "schema: collsim.profile/1",
        f"name: {system}",
        f"title: NCCL on {system}, stream launches, fitted to logs of {ranks} ranks",
        "calibrated: true",
        f"systems: [{system}]",
        "link_rate: raw",
        "link_latency: ignored",
        f"floor: {{value: {FLOOR_US} us, status: assumed, source: '{FLOOR_SOURCE}'}}",
        "families:",
    ]
    for family, costs in fitted.items():
        lines += [f"  # {notes[family]}", f"  {family}:"]
        for proto, own in costs.items():
            lines.append(f"    {proto}:")
            lines += protocol_lines(family, own, told=(family, proto) in seen)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, print the errors on the fitted rows, and write the profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", default="hgx_h100")
    parser.add_argument("--families", default=",".join(START))
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if "rooted" in arguments.families.split(",") and not arguments.families.startswith("ring"):
        parser.error("rooted operations take the constants of rings: name ring first")
    families, fitted, notes = lowered_rows(arguments.system), {}, {}
    for family in arguments.families.split(","):
        if families.get(family):
            ring = fitted["ring"] if family == "rooted" else None
            fitted[family], errors = fit(family, families[family], ring)
            errors = abs(errors)
            notes[family] = (
                f"{len(errors)} rows fitted, error median {np.median(errors):.1%}, p90 {np.quantile(errors, 0.9):.1%}"
            )
            print(f"{family}: {notes[family]}")
    seen = {(family, proto) for family, rows in families.items() for *_, proto in rows}
    counts = {row.case.ranks for rows in families.values() for row, *_ in rows}
    text = as_yaml(arguments.system, fitted, notes, seen, counts)
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
