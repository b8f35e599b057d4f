"""Evidence in a log beside its rows: what the library prints, settings that cost, versions with known faults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from collsim.calibration.logs.lines import LogLines
from collsim.core.errors import InputError
from collsim.core.units import format_size
from collsim.diagnosis.findings import Evidence
from collsim.diagnosis.fit import late_row
from collsim.diagnosis.subjects import Subject

__all__ = [
    "evidence_of",
    "known_faults",
    "network_of",
    "shape_of",
    "told_network",
    "unknown_library",
    "usual_settings",
]

FILE = "evidence.yaml"
MOST_LINES = 200_000
SHOWN = 100
FALL = 0.2
"""A rate that falls by this part beyond its peak is worth a word."""


class _Sign(NamedTuple):
    """A pattern of a line and what it speaks for, or against where *weight* is negative."""

    pattern: re.Pattern[str]
    means: str
    causes: tuple[str, ...]
    weight: float


@cache
def _document() -> dict[str, Any]:
    import yaml

    text = files("collsim.diagnosis").joinpath(FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


@cache
def _signs() -> tuple[_Sign, ...]:
    return tuple(
        _Sign(re.compile(entry["line"]), entry["means"], tuple(entry["causes"]), float(entry["weight"]))
        for entry in _document()["lines"]
    )


def evidence_of(files_read: Sequence[str]) -> tuple[Evidence, ...]:
    """Return the first line of each kind in each file that speaks for or against a cause."""
    found: dict[tuple[str, str], Evidence] = {}
    for file in files_read:
        for number, text in _lines(file):
            for sign in _signs():
                if (file, sign.means) not in found and sign.pattern.search(text):
                    words = (file, number, text.strip()[:SHOWN], sign.means, sign.causes, sign.weight)
                    found[file, sign.means] = Evidence(*words)
    return tuple(found.values())


def usual_settings(file: str, variables: Sequence[tuple[str, str]]) -> tuple[dict[str, str], list[Evidence]]:
    """Return *variables* of a log without those that a healthy machine does not set, and these as evidence."""
    costly, weight = _document()["settings"], float(_document()["setting_weight"])
    kept, told = {}, []
    for name, value in variables:
        if name in costly and value.strip().upper() in costly[name]["values"]:
            means = f"{name}={value} is set"
            told.append(Evidence(file, 0, f"{name}={value}", means, (costly[name]["cause"],), weight))
        else:
            kept[name] = value
    return kept, told


def unknown_library(file: str, name: str) -> Evidence:
    """Return what a library that is older or newer than all known ones speaks for: it may choose otherwise."""
    entry = _document()["unknown_library"]
    return Evidence(file, 0, name, f"{name} is {entry['means']}", tuple(entry["causes"]), float(entry["weight"]))


def told_network(file: str, *, is_told: bool) -> Evidence:
    """Return what it speaks for that the network of a log is told, by its lines or by the caller, or is not."""
    entry = _document()["network_told" if is_told else "network_untold"]
    return Evidence(file, 0, "", entry["means"], tuple(entry["causes"]), float(entry["weight"]))


class Named(NamedTuple):
    """The network that a log names, and those of ours that it may be; none: nobody measured such a machine."""

    name: str
    networks: tuple[str, ...]


def network_of(file: str) -> Named | None:
    """Return the network that the lines of a log name; None if they name none."""
    signs = [(re.compile(entry["line"]), entry) for entry in _document()["networks"]]
    for _, text in _lines(file):
        for pattern, entry in signs:
            if pattern.search(text):
                return Named(entry["means"], tuple(entry["networks"]))
    return None


def _lines(file: str) -> Iterator[tuple[int, str]]:
    """Yield the first lines of a file that are worth a look, with their numbers."""
    if file in ("stdin", "-"):
        return
    try:
        for number, text in LogLines(file):
            if number > MOST_LINES:
                return
            if "N" in text or "R" in text:
                yield number, text
    except InputError:
        return


def known_faults(library: str | None, version: str | None, op: str, nodes: int) -> Iterator[str]:
    """Yield what is known of a version of a library, with its source."""
    number = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    if library is None or number is None:
        return
    here = tuple(int(part or 0) for part in number.groups())
    for entry in _document()["versions"]:
        first, last = (tuple(map(int, entry[end].split("."))) for end in ("from", "to"))
        meant = entry["library"] == library.lower() and first <= here <= last
        if meant and op in entry.get("ops", (op,)) and (nodes > 1 or not entry.get("between_nodes")):
            yield f"{library} {version}: {entry['what']} ({entry['source']})"


def shape_of(subject: Subject) -> Iterator[str]:
    """Yield what the rows of a log show by themselves, without a model."""
    noise = subject.noise
    rates = noise.sizes / noise.measured_s
    peak = int(rates.argmax())
    if peak < len(rates) - 1 and rates[-1] < (1 - FALL) * rates[peak]:
        share = 1 - rates[-1] / rates[peak]
        yield f"the rate falls by {share:.0%} from {format_size(noise.sizes[peak])} to the largest size"
    if (late := late_row(noise)) is not None:
        size, late_us = format_size(noise.sizes[late]), noise.measured_s[late] * 1e6
        near_us = [noise.measured_s[row] * 1e6 for row in (late - 1, late + 1) if row >= 0]
        beside = " and ".join(f"{time_us:.4g}" for time_us in near_us)
        yield (
            f"the row of {size} took {late_us:.4g} us beside {beside} us of its neighbours: noise of a host, if a "
            "second run does not show it too"
        )
    wrong = [row for row in subject.log.rows if row.wrong]
    if wrong:
        yield (
            f"results are wrong in {len(wrong)} of {len(subject.log.rows)} rows: memory, links or the library corrupt "
            "data; no time of this machine counts before that is found (dcgmi diag, NCCL_PROTO=Simple, other versions)"
        )
