"""Tables of ``rocm-smi --showtopo`` and of ``amd-smi topology``, as text and as JSON: kinds of links between GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from collsim.core.errors import Fault, Faults, did_you_mean
from collsim.importing.machine import Machine, gpu_list, plural

__all__ = ["read_amd_smi", "read_rocm_smi"]

TITLES = {
    "weight": r"Weight between|WEIGHT TABLE",
    "hops": r"Hops between|HOPS TABLE",
    "type": r"Link Type between|LINK TYPE TABLE",
    "access": r"ACCESS TABLE",
}
OTHER_TITLE = re.compile(r"^=+ .*=+$|^[A-Z][A-Z -]+ TABLE:|^Legend:")
NUMA = re.compile(r"GPU\s*\[?(\d+)\]?\s*:\s*\(Topology\)\s*Numa Node:\s*(-?\d+)")
SELF = ("0", "SELF")
TYPES = ("XGMI", "PCIE")
SAME_HOST_WEIGHT, SAME_HOST_HOPS = 40, 2
"""Two PCIe hops of weight 20 by way of one processor; more is by way of others (AMD kfd, weights of io links)."""
MOST_LISTED = 40
WHOLE = "copy the output again as a whole: rocm-smi --showtopo > topo.txt, or amd-smi topology --json > topo.json"
NONE = "-"


class _Tables:
    """Tables by their kind: from (row, column) to the word that stands there."""

    def __init__(self, file: str, faults: Faults) -> None:
        self.file, self.faults = file, faults
        self.names: list[str] = []
        self.words: dict[str, dict[tuple[int, int], tuple[str, int]]] = {}
        self.lines: dict[str, int] = {}

    def get(self, kind: str, a: int, b: int) -> str:
        """Return a word of a table; `NONE` if it is not there."""
        return self.words.get(kind, {}).get((a, b), (NONE, 0))[0]

    def where(self, kind: str, a: int, b: int) -> str:
        """Return the place of a word of a table."""
        line = self.words.get(kind, {}).get((a, b), ("", self.lines.get(kind, 1)))[1]
        return f"{self.file}:{line}: {kind}, row {self.names[a]}, column {self.names[b]}"


def read_rocm_smi(text: str, file: str, faults: Faults) -> Machine:
    """Return the machine of ``rocm-smi --showtopo`` and its parts; what is wrong with it goes to *faults*."""
    tables = _Tables(file, faults)
    _read_text(text, tables)
    numa: dict[int, str] = {}
    for found in NUMA.finditer(text):
        numa.setdefault(int(found[1]), found[2])
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*ERROR\b|.*Not supported on", line):
            what = f'the program could not read everything: "{line.strip()[:80]}"'
            faults.append(Fault(what, f"{file}:{number}", "run it as root, on a driver that supports the GPUs"))
    if not tables.names and numa:
        what = f"NUMA nodes of {plural(len(numa), 'GPU')}, but no table of links"
        faults.append(Fault(what, file, "rocm-smi --showtopo prints all tables, --showtoponuma only this one"))
    return _machine(tables, tuple(numa.get(gpu, "") for gpu in range(len(tables.names))))


def read_amd_smi(text: str, file: str, faults: Faults) -> Machine:
    """Return the machine of ``amd-smi topology``, as text or JSON; what is wrong with it goes to *faults*."""
    tables = _Tables(file, faults)
    if text.lstrip()[:1] in ("[", "{"):
        _read_json(text, tables)
    else:
        _read_text(text, tables)
    return _machine(tables, ())


def _read_text(text: str, tables: _Tables) -> None:
    """Read tables below their titles; the first line of each names the columns."""
    kind, columns = "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        title = next((name for name, pattern in TITLES.items() if re.search(pattern, line)), "")
        if title or OTHER_TITLE.match(line.strip()):
            kind, columns = title, []
            tables.lines.setdefault(title, number)
            continue
        words = line.split()
        if not kind or not words or not re.fullmatch(r"GPU\d+|[\da-fA-F:.]+", words[0]):
            continue
        if not columns:
            columns = words
            tables.names = tables.names or words
            tables.words.setdefault(kind, {})
            _check_columns(words, number, tables)
        else:
            _read_row(words, columns, number, kind, tables)
    for name, words_of in tables.words.items():
        for index, row in enumerate(tables.names):
            if not any(a == index for a, _ in words_of):
                what = f"row {row} is missing from the table of {name}"
                tables.faults.append(Fault(what, f"{tables.file}:{tables.lines[name]}", WHOLE))


def _check_columns(words: list[str], number: int, tables: _Tables) -> None:
    where = f"{tables.file}:{number}"
    if words != tables.names:
        what = f"columns {' '.join(words[:8])} are not those of the first table"
        tables.faults.append(Fault(what, where, f"they are {' '.join(tables.names[:8])}"))
    if len(set(words)) < len(words):
        tables.faults.append(Fault("a column is there twice", where, WHOLE))
    if words[0].startswith("GPU") and words != [f"GPU{i}" for i in range(len(words))]:
        tables.faults.append(Fault("columns are not GPU0, GPU1, ... in order", where, WHOLE))


def _read_row(words: list[str], columns: list[str], number: int, kind: str, tables: _Tables) -> None:
    """Read one row of a table."""
    name, cells = words[0], words[1:]
    if name not in tables.names:
        near = did_you_mean(name, tables.names)
        tables.faults.append(Fault(f"row {name} has no column", f"{tables.file}:{number}", f"{near}{WHOLE}"))
        return
    row = tables.names.index(name)
    if len(cells) != len(columns):
        what = f"row {name} has {len(cells)} of {len(columns)} cells"
        tables.faults.append(Fault(what, f"{tables.file}:{number}", WHOLE))
    found = tables.words.setdefault(kind, {})
    if (row, 0) in found:
        what = f"row {name} is there already, on line {found[row, 0][1]}"
        tables.faults.append(Fault(what, f"{tables.file}:{number}", "give one output"))
        return
    for column, cell in enumerate(cells[: len(columns)]):
        found[row, column] = (cell, number)


def _read_json(text: str, tables: _Tables) -> None:
    """Read the list of GPUs that ``--json`` prints, in the layout of today or that of old releases."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"not valid JSON: {error.msg.lower()}, column {error.colno}"
        hint = "JSON has no comma before a closing bracket and no ...: take the whole output of the program"
        tables.faults.append(Fault(what, f"{tables.file}:{error.lineno}", hint))
        return
    except RecursionError:
        tables.faults.append(Fault("nested too deep", tables.file, WHOLE))
        return
    entries = data if isinstance(data, list) else [data]
    gpus = [entry.get("gpu") for entry in entries if isinstance(entry, dict)]
    if len(gpus) < len(entries) or sorted(map(str, gpus)) != sorted(map(str, range(len(gpus)))):
        what = f'the entries have "gpu" {", ".join(map(str, gpus[:12])) or "nowhere"}'
        tables.faults.append(Fault(what, tables.file, f"they are numbered from 0 to {max(len(entries) - 1, 0)}"))
        return
    tables.names = [f"GPU{index}" for index in range(len(gpus))]
    for index, entry in enumerate(entries):
        _read_entry(entry, f"[{index}]", tables)


def _read_entry(entry: dict[str, Any], where: str, tables: _Tables) -> None:
    """Read what one GPU says of the others."""
    row, n = int(entry["gpu"]), len(tables.names)
    listed = entry.get("links")
    if isinstance(listed, list):
        for place, link in enumerate(listed):
            peer = link.get("gpu") if isinstance(link, dict) else None
            if not isinstance(peer, int) or not 0 <= peer < n:
                what = f'"gpu": {peer!r:.30} is none of the {n} GPUs'
                tables.faults.append(Fault(what, f"{tables.file}: {where}.links[{place}]", f"0 to {n - 1}"))
                continue
            named = {"type": "link_type", "weight": "weight", "hops": "num_hops", "access": "link_status"}
            _put(row, peer, {kind: link[key] for kind, key in named.items() if key in link}, tables)
        return
    named = {"type": "link_type", "weight": "weight", "hops": "hops", "access": "link_accessibility"}
    for kind, key in named.items():
        for name, word in (entry[key] if isinstance(entry.get(key), dict) else {}).items():
            found = re.fullmatch(r"gpu_(\d+)", name)
            if not found or int(found[1]) >= n:
                what = f'"{name[:30]}" is none of the {n} GPUs'
                tables.faults.append(Fault(what, f"{tables.file}: {where}.{key}", f"gpu_0 to gpu_{n - 1}"))
                continue
            _put(row, int(found[1]), {kind: word}, tables)


def _put(row: int, column: int, words: dict[str, Any], tables: _Tables) -> None:
    for kind, word in words.items():
        tables.lines.setdefault(kind, 1)
        tables.words.setdefault(kind, {})[row, column] = (str(word), 1)


def _machine(tables: _Tables, numa: tuple[str, ...]) -> Machine:
    """Return the machine of the tables, after checking them against each other."""
    n = len(tables.names)
    if not n and not tables.faults:
        tables.faults.append(Fault("there is no table of GPUs", tables.file, WHOLE))
    if n > 1 and "type" not in tables.words and not tables.faults:
        what = "the table of link types is missing"
        tables.faults.append(Fault(what, tables.file, f"it says which GPUs have xGMI: {WHOLE}"))
    for fault in [] if tables.faults else list(_pair_faults(tables))[:MOST_LISTED]:
        tables.faults.append(fault)
    machine = Machine(n, is_amd=True, numa=numa if all(numa) else ())
    if tables.faults:
        return machine
    for a, b in machine.pairs:
        if tables.get("type", a, b) == "XGMI":
            machine.links[a, b] = 1
        else:
            machine.distances[a, b] = _way(tables, a, b)
    machine.read = [*_said(machine, tables)]
    if machine.distances and "hops" not in tables.words and "weight" not in tables.words:
        machine.notes.append("neither weights nor hops: GPUs on PCIe are taken to be on one processor")
    return machine


def _way(tables: _Tables, a: int, b: int) -> str:
    """Return the way over PCIe between two GPUs, by weight or hops."""
    weight, hops = tables.get("weight", a, b), tables.get("hops", a, b)
    if weight.isdecimal() and int(weight):
        return "PHB" if int(weight) <= SAME_HOST_WEIGHT else "SYS"
    return "SYS" if hops.isdecimal() and int(hops) > SAME_HOST_HOPS else "PHB"


def _pair_faults(tables: _Tables) -> Iterator[Fault]:
    """Yield a fault for each cell that is missing, unknown, or differs from its mirror."""
    n = len(tables.names)
    for a in range(n):
        for b in range(n):
            word, back = tables.get("type", a, b), tables.get("type", b, a)
            where = tables.where("type", a, b)
            if a == b:
                if word not in (*SELF, NONE):
                    yield Fault(f"{tables.names[a]} has {word} to itself", where, "the diagonal is 0 or SELF")
            elif word == NONE:
                yield Fault("there is no cell", where, WHOLE)
            elif word not in TYPES:
                near = did_you_mean(word, TYPES)
                yield Fault(f'"{word[:20]}" is no type of link', where, f"{near}known: {', '.join(TYPES)}")
            elif a < b and back in TYPES and back != word:
                what = f"{word} one way, {back} the other"
                yield Fault(what, where, f"write one of them in both; {WHOLE}")
            for kind in ("weight", "hops"):
                found = tables.get(kind, a, b)
                if found not in (NONE, "N/A") and not found.isdecimal():
                    what = f'"{found[:20]}" is no number'
                    yield Fault(what, tables.where(kind, a, b), "weights and hops are whole numbers")


def _said(machine: Machine, tables: _Tables) -> Iterator[str]:
    """Yield what was read."""
    n, linked = machine.n_gpus, len(machine.links)
    if n == 1:
        yield "1 GPU, no links"
    elif linked == len(machine.pairs):
        yield f"{plural(n, 'GPU')}, xGMI between every two of them"
    elif linked:
        yield f"{plural(n, 'GPU')}, xGMI between {linked} of {len(machine.pairs)} pairs, PCIe between the others"
    else:
        yield f"{plural(n, 'GPU')}, all on PCIe"
    for kind in ("weight", "hops"):
        found = {tables.get(kind, a, b) for a, b in machine.pairs} - {NONE}
        if found == {"0"}:
            machine.notes.append(f"{kind} 0 between all GPUs: it says nothing")
        elif found:
            yield f"{kind} {', '.join(sorted(found, key=lambda word: (len(word), word)))}"
    if machine.numa:
        nodes = dict.fromkeys(machine.numa)
        where = (f"{node} ({gpu_list(i for i, each in enumerate(machine.numa) if each == node)})" for node in nodes)
        yield f"NUMA {', '.join(where)}"
    refused = [pair for pair in machine.pairs if tables.get("access", *pair) == "DISABLED"]
    if refused:
        yield f"peer access is disabled between {len(refused)} of {len(machine.pairs)} pairs"
        machine.notes.append(
            "without peer access GPUs copy through the memory of their hosts: add --env NCCL_P2P_DISABLE=1"
        )
