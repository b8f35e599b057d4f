"""What importers read of a collection of files of other programs, beside the notes that it has on each.

``python tools/sample_readings.py FOLDER`` takes a folder of folders, one a format, each with an ``INDEX.csv`` of
columns ``file`` and ``expected_reading``: a sentence on what a reader should find. Counts that such a sentence names
(GPUs, links of a pair, switches, adapters and their rate, NUMA nodes, hosts, steps of an algorithm) are compared with
what was read; a file that needs ``--like`` is read with each of a few systems in turn. Printed are disagreements,
counts that the import does not tell, and refusals with their reason; the exit status is 1 if a count differs.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from collsim.core.errors import CollsimError
from collsim.importing import ImportedTopology, import_topology
from collsim.importing.msccl import TYPES, read_msccl
from collsim.planning.tuner_csv import read_rules

LIKES = ("hgx_h100", "dgx_a100", "gb300_nvl72", "mi250x_node")
"""Nodes that hosts of a fabric are taken for, until one fits."""
COUNTS: tuple[tuple[str, str], ...] = (
    ("gpus", r"^(\d+) (?:GPUs?|NPUs)\b"),
    ("links of every pair", r"NV(\d+) (?:every|all) pair"),
    ("links of every pair", r"^\d+ GPUs,? NV(?:Link )?(\d+)(?:;|$)"),
    ("links of every pair", r"xgmi (\d+) every pair"),
    ("links of a GPU", r"(?:each )?(\d+) NVLinks(?: each)?"),
    ("switches", r"to (?:each of )?(\d+) (?:NVSwitches|switches)|^(\d+) (?:Switch records|switches)"),
    ("adapters", r"(\d+) nets?\b"),
    ("Gb/s", r"nets?(?: of)? (\d+)000\b"),
    ("NUMA nodes", r"(\d+) NUMA\b"),
    ("hosts", r"^(\d+) (?:CAs|hosts|nodes)\b|tree (\d+) nodes"),
    ("blocks", r"(\d+) blocks"),
    ("hosts of a block", r"blocks of (\d+)"),
    ("dimensions", r"(\d+) dimensions"),
    ("in place", r"inplace (\d)"),
)
"""What a sentence tells, as numbers."""
READ: tuple[tuple[str, str], ...] = (
    ("links of every pair", r"(\d+) NVLinks between (?:every|the) two"),
    ("links of every pair", r"between (\d+) of \1 pairs, (?P<n>\d+) a pair"),
    ("links of a GPU", r"(\d+) (?:links per GPU|per GPU)"),
    ("switches", r"into (\d+) switches|^(\d+) switch"),
    ("adapters", r"^(\d+) adapters?\b"),
    ("Gb/s", r"adapters? of ([\d.]+) Gb/s"),
    ("NUMA nodes", r"on (\d+) NUMA node"),
    ("hosts", r"(\d+) (?:hosts|endpoints)"),
    ("blocks", r"in (\d+) blocks"),
    ("hosts of a block", r"blocks of (\d+)"),
    ("dimensions", r"in (\d+) dimension"),
)
"""What an import says it has read, as numbers."""


class Reading(NamedTuple):
    """What became of a file: counts by name, and why it was refused, if it was."""

    counts: dict[str, set[float]]
    refused: str = ""


def _numbers(patterns: tuple[tuple[str, str], ...], text: str) -> Iterator[tuple[str, float]]:
    """Yield what patterns find in a text, by name."""
    for name, pattern in patterns:
        for found in re.finditer(pattern, text):
            groups = found.groupdict()
            yield name, float(groups.get("n") or next(group for group in found.groups() if group))


def _collected(numbers: Iterator[tuple[str, float]]) -> dict[str, set[float]]:
    counts: dict[str, set[float]] = {}
    for name, number in numbers:
        counts.setdefault(name, set()).add(number)
    return counts


def expected(text: str) -> dict[str, set[float]]:
    """Return the counts that a sentence names.

    >>> expected("2 GPUs NVLink 12; 1 net 200000; one NUMA")["Gb/s"]
    {200.0}
    """
    counts = _collected(_numbers(COUNTS, text))
    for way, pairs in re.findall(r"NV(\d+) (?:for )?((?:\d-\d(?:,| and)? ?)+)", text):
        counts.setdefault("links of pairs", set()).update(_pair(pair, way) for pair in re.findall(r"\d-\d", pairs))
    for pair, way in re.findall(r"(\d-\d) NV(\d+)", text):
        counts.setdefault("links of pairs", set()).add(_pair(pair, way))
    steps = re.findall(rf"[(,] ?({'|'.join(TYPES)}) (\d+)(?=[,)])", text)
    counts |= {f"steps {kind}": {float(number)} for kind, number in steps}
    return counts


def _pair(pair: str, links: str) -> float:
    """Return a pair and its links as one number: 0-3 with 12 as 3.12."""
    a, b = sorted(map(int, pair.split("-")))
    return a * 10 + b + int(links) / 100


def read(path: Path) -> Reading:
    """Return what is read of a file, with the first system of `LIKES` if it needs one."""
    if path.parent.name == "msccl_algorithm":
        return _algorithm(path)
    if path.parent.name == "nccl_tuner_csv":
        try:
            return Reading({"rules": {float(len(read_rules(path.read_text(), path.name)))}})
        except CollsimError as error:
            return Reading({}, str(error))
    refused = ""
    for like in (None, *LIKES):
        try:
            return Reading(_counts(import_topology(path, like=like)))
        except CollsimError as error:
            refused = str(error)
            if like is None and "--like" not in refused:
                break
    return Reading({}, refused)


def _counts(found: ImportedTopology) -> dict[str, set[float]]:
    """Return the counts of an import: what it says it has read, and what the topology has."""
    numbers = [pair for line in found.read for pair in _numbers(READ, line)]
    totals = Counter[str]()
    for name, number in numbers:
        totals[name] += int(number) if name == "adapters" else 0
    counts = _collected(iter(numbers)) | {name: {float(total)} for name, total in totals.items() if total}
    if found.yaml:
        topology: Any = found.topology
        if topology.cluster is None:
            counts["gpus"] = {float(topology.n_gpus)}
            counts["links of pairs"] = _links(topology.wiring)
        else:
            counts["nodes built"] = {topology.n_gpus / topology.cluster.node.n_gpus}
    return counts


def _links(wiring: Any) -> set[float]:
    """Return the links of GPUs with each other as `expected` writes them."""
    ends = zip(wiring.link_src.tolist(), wiring.link_dst.tolist(), wiring.link_count.tolist(), strict=True)
    return {_pair(f"{a}-{b}", str(count)) for a, b, count in ends if a < b < wiring.n_gpus < 10}


def _algorithm(path: Path) -> Reading:
    """Return the steps of an algorithm by their kind."""
    try:
        program = read_msccl(path.read_bytes(), str(path))
    except CollsimError as error:
        return Reading({}, str(error))
    steps = Counter(step.kind for block in program.blocks for step in block.steps)
    counts = {f"steps {kind}": {float(number)} for kind, number in steps.items()}
    return Reading(counts | {"in place": {float(program.in_place)}})


def compare(index: Path) -> Iterator[tuple[str, str]]:
    """Yield what became of every file and count of a folder, and a line on it (empty: as expected)."""
    with index.open(encoding="utf-8", newline="") as stream:
        rows = [(row[0], row[-1]) for row in csv.reader(stream)][1:]  # a comma too many shifts the middle only
    for file, sentence in rows:
        found, wanted, name = read(index.parent / file), expected(sentence), f"{index.parent.name}/{file}"
        if found.refused:
            yield "files refused", f"refused  {name}: {found.refused.splitlines()[0]}"
            continue
        yield "files read", ""
        for count, numbers in wanted.items():
            told = found.counts.get(count)
            if told is None:
                yield "counts that are not told", f"untold   {name}: {count} {sorted(numbers)}"
            elif numbers <= told:
                yield "counts alike", ""
            else:
                yield "counts that differ", f"differs  {name}: {count} {sorted(told)}, not {sorted(numbers)}"


def main() -> int:
    """Print what differs, and what is refused; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    totals = Counter[str]()
    for index in sorted(parser.parse_args().folder.glob("*/INDEX.csv")):
        for word, line in compare(index):
            totals[word] += 1
            if line:
                print(line)
    print(", ".join(f"{number} {word}" for word, number in sorted(totals.items())))
    return int(totals["counts that differ"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
