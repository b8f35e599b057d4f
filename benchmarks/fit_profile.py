"""Fit the constants of a profile to the training rows of benchmarks/data, kernel family by kernel family.

Every row is simulated: its schedule is built and laid on the fabric once, and only the costs change from one trial to
the next. Prints the figures of the profile and the errors on the rows that were fitted.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import predictors
from fit_settings import SETTINGS, Family, Fixed, Setting

from collsim.library import Profile, Protocol, load_profile
from collsim.library.calls import PROTOCOLS
from collsim.library.costs import STAND_IN, family_of
from collsim.library.profile import PROTOCOL_FIGURES
from collsim.library.protocols import Lines, efficiency
from collsim.operations import operation
from collsim.question import ask
from collsim.simulation import library_choice, request_of
from collsim.timing import Lowered, Run, lower, lower_twice, prepare, time_lowered

SCALE = {"channel_rate": 1e9, "fill_rate": 1e9, "fill_limit": 1.0}
"""Factor from the unit of a fit to SI, where it is not a microsecond."""
BARE = ("link_share", "duplex_share", "softness", "wire_efficiency")
"""Plain numbers."""
SOFTNESS = 2.3
"""Where the softness of a family starts, unless the settings fix it."""
FIT_SOURCE = "benchmarks/fit_profile.py on the training logs in benchmarks/data"
UNTOLD = "no training log of this family uses it"
Told = dict[str, dict[str, dict[str, Fixed]]]
"""Every figure of a profile, with status and source: family, protocol, key."""

Row = tuple[predictors.Measured, Lowered, Lowered | None, Run, str]


def bare(floor_us: float) -> Profile:
    """Return a profile with raw links and no cost but the floor."""
    return replace(load_profile("ideal"), floor_s=floor_us * 1e-6)


def lowered_rows(system: str) -> dict[str, list[Row]]:
    """Return the training rows by family, each laid on its fabric."""
    families: dict[str, list[Row]] = defaultdict(list)
    runs: dict[int, Run] = {}
    for row in predictors.measured_rows():
        case = row.case
        if (case.system, row.set, row.health, case.launch) != (system, "train", "ok", "stream") or row.spike:
            continue
        if case.ranks not in runs:
            runs[case.ranks] = prepare(
                predictors.topology_of(system), bare(SETTINGS[system].floor.value), range(case.ranks)
            )
        run = runs[case.ranks]
        question = ask(case.op, case.size_bytes, library=predictors.library_of(case.library), dtype=case.dtype,
                       environment=predictors.variables(case))  # fmt: skip
        request = request_of(operation(case.op), case.size_bytes, run, question)
        if request.size_bytes == 0:
            continue
        picked, asked, proto = library_choice(request, run, question)
        schedule, family = picked.build(asked), family_of(case.op, picked.name)
        if family not in SETTINGS[system].families:
            family = STAND_IN[family]
        back_to_back = "back_to_back" in SETTINGS[system].families[family].flags
        twice = lower_twice(schedule, run) if back_to_back else None
        families[family].append((row, lower(schedule, run), twice, run, proto))
    return families


def in_si(key: str, value: float) -> float:
    """Return a figure of the settings in SI."""
    return value if key in BARE else value * SCALE.get(key, 1e-6)


def protocol_of(family: Family, figures: Mapping[str, float], proto: str, lines: Lines) -> Protocol:
    """Return a protocol with the *figures* of a fit and the fixed ones of its family."""
    fixed = {**family.fixed.get("", {}), **family.fixed.get(proto, {})}
    given = {**{key: told.value for key, told in fixed.items()}, **figures}
    own = {PROTOCOL_FIGURES[key]: in_si(key, value) for key, value in given.items()}
    if family.one_way_ratio is not None:
        own["one_way_rate_Bps"] = own["channel_rate_Bps"] * family.one_way_ratio
    if proto in family.hidden_us:
        own["next_overhead_s"] = max(own["message_overhead_s"] - family.hidden_us[proto] * 1e-6, 0.0)
    rates = {dtype: told.value * 1e9 for dtype, told in family.reduce_rates.items()}
    flags = dict.fromkeys(family.flags, True)
    return Protocol(**own, **flags, wire_efficiency=efficiency(PROTOCOLS.index(proto), lines), reduce_rates_Bps=rates)  # type: ignore[arg-type]


def fit(family: Family, rows: Sequence[Row], lines: Lines) -> tuple[dict[str, dict[str, float]], np.ndarray]:
    """Return the fitted figures by protocol and the relative errors of the rows."""
    from scipy.optimize import least_squares

    rows = [row for row in rows if row[-1] in family.start]
    told = {proto for *_, proto in rows}
    names = [(proto, key) for proto, keys in family.start.items() for key in keys if proto in told]
    soft = "softness" not in family.fixed.get("", {})
    start = np.array([family.start[proto][key] for proto, key in names] + [SOFTNESS] * soft)

    def figures(values: np.ndarray) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {proto: {"softness": float(values[-1])} if soft else {} for proto in told}
        for (proto, key), value in zip(names, values, strict=False):
            found[proto][key] = float(value)
        return found

    def errors(logs: np.ndarray) -> np.ndarray:
        found = figures(np.exp(logs))
        costs = {proto: protocol_of(family, found[proto], proto, lines) for proto in told}
        times = [
            time_lowered(lowered, run, costs[proto], twice, row.case.dtype).time_s
            for row, lowered, twice, run, proto in rows
        ]
        return np.log(np.array(times) / np.array([row.time_s for row, *_ in rows]))

    least, most = np.log(start / 20), np.log(start * 20)
    found = least_squares(errors, np.log(start), bounds=(least, most), loss="soft_l1", f_scale=0.05, max_nfev=25)
    return figures(np.exp(found.x)), np.expm1(errors(found.x))


def with_sources(setting: Setting, fitted: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Told:
    """Return all figures with their sources; a protocol that no training row uses keeps what the settings say."""
    told: Told = {}
    for name, family in setting.families.items():
        own = fitted.get(name, {})
        twin = setting.families[family.like] if family.like else family
        told[name] = {}
        for proto in twin.start:
            if family.like:
                figures = _of_twin(family, twin, fitted.get(family.like, {}), proto)
            elif proto in own:
                figures = {key: Fixed(value, "fitted", FIT_SOURCE) for key, value in own[proto].items()}
            else:
                figures = {key: Fixed(value, "assumed", UNTOLD) for key, value in family.start[proto].items()}
                figures |= _softness_of(own)
            told[name][proto] = figures | {**family.fixed.get("", {}), **family.fixed.get(proto, {})}
    return told


def _of_twin(family: Family, twin: Family, fitted: Mapping[str, Mapping[str, float]], proto: str) -> dict[str, Fixed]:
    """Return the figures that a family without training rows takes from its twin."""
    values = fitted.get(proto) or twin.start[proto]
    source = f"as of {family.like}; {UNTOLD}"
    figures = {
        **twin.fixed.get("", {}),
        **twin.fixed.get(proto, {}),
        **{key: Fixed(value, "assumed", source) for key, value in values.items()},
    }
    return {key: figure for key, figure in figures.items() if key not in family.leaves}


def _softness_of(fitted: Mapping[str, Mapping[str, float]]) -> dict[str, Fixed]:
    """Return the softness that the protocols of a family share."""
    values = [figures["softness"] for figures in fitted.values() if "softness" in figures]
    return {"softness": Fixed(values[0], "fitted", FIT_SOURCE)} if values else {}


def shown(key: str, value: float) -> str:
    """Return a figure as a profile writes it."""
    if SCALE.get(key) == 1.0:
        return f"{value / 1024:g} KiB"
    unit = "" if key in BARE else {1e9: " GB/s"}.get(SCALE.get(key, 0.0), " us")
    return f"{value:.4g}{unit}"


def line_of(key: str, text: str, status: str, source: str) -> str:
    """Return the line of a figure; a source is quoted if YAML would read more into it."""
    source = f"'{source}'" if any(mark in source for mark in (",", ": ")) else source
    return f"      {key}: {{value: {text}, status: {status}, source: {source}}}"


def protocol_lines(family: Family, proto: str, figures: Mapping[str, Fixed], setting: Setting) -> list[str]:
    """Return the lines of a protocol."""
    lines = [f"    {proto}:"]
    lines += [line_of(key, shown(key, told.value), told.status, told.source) for key, told in figures.items()]
    share = efficiency(PROTOCOLS.index(proto), setting.lines)
    lines.append(line_of("wire_efficiency", f"{share:.4g}", "constant", setting.lines_source))
    if family.one_way_ratio is not None:
        rate = figures["channel_rate"].value * family.one_way_ratio
        source = f"{family.one_way_ratio:.3g} of channel_rate, from a fit of another model"
        lines.append(line_of("one_way_rate", f"{rate:.4g} GB/s", "assumed", source))
    if proto in family.hidden_us:
        value = max(figures["message_overhead"].value - family.hidden_us[proto], 0.0)
        source = f"message_overhead less {family.hidden_us[proto]} us, the hop of the tuner, which slots hide"
        lines.append(line_of("next_overhead", f"{value:.4g} us", "derived", source))
    if family.reduce_rates:
        lines.append("      reduce_rate:")
        lines += [
            "  " + line_of(dtype, f"{told.value:.4g} GB/s", told.status, told.source)
            for dtype, told in family.reduce_rates.items()
        ]
    return lines + [f"      {flag}: true" for flag in family.flags]


def as_yaml(system: str, told: Told, notes: Mapping[str, str], counts: set[int]) -> str:
    """Return the profile file."""
    setting, ranks = SETTINGS[system], " and ".join(map(str, sorted(counts)))
    floor = line_of("floor", f"{setting.floor.value:g} us", setting.floor.status, setting.floor.source).strip()
    lines = [
        "schema: collsim.profile/1",
        f"name: {system}",
        f"title: {setting.title}, fitted to logs of {ranks} ranks",
        "calibrated: true",
        f"systems: [{system}]",
        "link_rate: raw",
        "link_latency: ignored",
        floor,
        "families:",
    ]
    for name, protocols in told.items():
        lines += [f"  # {notes.get(name, 'no rows fitted')}", f"  {name}:"]
        for proto, figures in protocols.items():
            lines += protocol_lines(setting.families[name], proto, figures, setting)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, print the errors on the fitted rows, and write the profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", default="hgx_h100", choices=SETTINGS)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.system]
    families, fitted, notes = lowered_rows(arguments.system), {}, {}
    for name, family in setting.families.items():
        if families.get(name) and family.start:
            fitted[name], errors = fit(family, families[name], setting.lines)
            errors = abs(errors)
            notes[name] = (
                f"{len(errors)} rows fitted, error median {np.median(errors):.1%}, p90 {np.quantile(errors, 0.9):.1%}"
            )
            print(f"{name}: {notes[name]}")
    counts = {row.case.ranks for rows in families.values() for row, *_ in rows}
    text = as_yaml(arguments.system, with_sources(setting, fitted), notes, counts)
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
