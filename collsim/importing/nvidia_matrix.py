"""The matrix of ``nvidia-smi topo -m``: NVLinks between GPUs, ways over PCIe, and adapters.

People paste it through terminals, tickets and Markdown: colours, lost tabs, cells that are glued together and squeezed
heads are read as they are meant; cells, rows and columns that are missing are faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from collsim.core.errors import Fault, Faults, did_you_mean
from collsim.importing.machine import DISTANCES, Adapter, Machine, gpu_list, plural

__all__ = ["read_nvidia_matrix"]

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LABEL = re.compile(r"GPU\d+|NIC\d+|(?:mlx|bnxt|irdma|ib|roce|efa|rdmap|hsi|cxi|hfi|qede|ens|eth|en)[\w-]*\d\w*")
CELL = re.compile(r"\s*(NV\d+|NODE|SYS|SOC|PHB|PXB|PIX|PSB|X(?![\w]))")
KNOWN = ["X", "NV1", "NV18", *DISTANCES]
SAME = {"SOC": "SYS", "PSB": "PXB"}
"""Words of old drivers."""
MOST_LISTED = 40
MOST_GPUS = 128
WHOLE = "copy the output of nvidia-smi topo -m again, into a file: nvidia-smi topo -m > topo.txt"


@dataclass(slots=True)
class _Row:
    """A row: its line, and the cells under the columns."""

    line: int
    cells: list[str]
    rest: str


class _Table:
    """The matrix as it stands in a file."""

    def __init__(self, text: str, file: str, faults: Faults) -> None:
        self.file, self.faults = file, faults
        self.lines = COLOUR.sub("", text).splitlines()
        self.head = next(i for i, line in enumerate(self.lines) if re.match(r"\W*GPU0\b", line))
        before_affinity = re.split(r"\bCPU\s+Affinity|\bNUMA\s+Affinity", self.lines[self.head])[0]
        self.columns = before_affinity.split()
        self.titles = self.lines[self.head][len(before_affinity) :]
        self.rows: dict[str, _Row] = {}
        for index, line in enumerate(self.lines[self.head + 1 :], self.head + 2):
            self._add(line.strip(), index)

    def _add(self, line: str, number: int) -> None:
        """Read one line, if it is a row of the matrix."""
        label, _, rest = line.replace("\t", " ").partition(" ")
        if label not in self.columns:
            if LABEL.fullmatch(label) and CELL.match(rest):
                near = did_you_mean(label, self.columns)
                hint = f"{near}columns: {', '.join(self.columns[:12])}"
                self.faults.append(Fault(f"row {label} has no column", f"{self.file}:{number}", hint))
            return
        if label in self.rows:
            what = f"row {label} is there already, on line {self.rows[label].line}"
            self.faults.append(Fault(what, f"{self.file}:{number}", "give one matrix"))
            return
        self.rows[label] = self._row(label, rest, number)

    def _row(self, label: str, rest: str, number: int) -> _Row:
        cells: list[str] = []
        place = 0
        while len(cells) < len(self.columns) and (found := CELL.match(rest, place)):
            cells.append(SAME.get(found[1], found[1]))
            place = found.end()
        left = rest[place:]
        if len(cells) < len(self.columns):
            column, word = self.columns[len(cells)], left.split()[:1]
            where = f"{self.file}:{number}: row {label}, column {column}"
            if word and not re.fullmatch(r"[\d,N/A-]+", word[0]):
                hint = f"{did_you_mean(word[0], KNOWN)}known: X, NV1 to NV36, {', '.join(DISTANCES)}"
                self.faults.append(Fault(f'"{word[0][:20]}" is no cell of such a matrix', where, hint))
            else:
                what = f"the row is cut: it has {len(cells)} of {len(self.columns)} cells"
                self.faults.append(Fault(what, where, WHOLE))
        elif CELL.match(left):
            what = f"the row has more cells than there are columns ({len(self.columns)})"
            self.faults.append(Fault(what, f"{self.file}:{number}: row {label}", WHOLE))
        return _Row(number, cells, left)

    def cell(self, row: str, column: str) -> str:
        """Return a cell, from the mirrored one where its row is missing; empty if neither is there."""
        for label, other in ((row, column), (column, row)):
            found = self.rows.get(label)
            place = self.columns.index(other)
            if found and place < len(found.cells):
                return found.cells[place]
        return ""

    def place(self, row: str, column: str) -> str:
        """Return where a cell stands."""
        line = self.rows[row].line if row in self.rows else self.head + 1
        return f"{self.file}:{line}: row {row}, column {column}"


def read_nvidia_matrix(text: str, file: str, faults: Faults) -> Machine:
    """Return the machine of a matrix; what is wrong with it goes to *faults*."""
    table = _Table(text, file, faults)
    gpus = [name for name in table.columns if name.startswith("GPU")]
    others = [name for name in table.columns if not name.startswith("GPU")]
    _check_names(table, gpus, others)
    if not faults:
        _check_cells(table)
    if faults:
        return Machine(len(gpus))
    machine = Machine(len(gpus))
    for a, b in machine.pairs:
        cell = table.cell(gpus[a], gpus[b])
        if cell.startswith("NV"):
            machine.links[a, b] = int(cell[2:])
        else:
            machine.distances[a, b] = cell
    machine.adapters = tuple(_adapter(table, name, gpus) for name in others)
    _read_numa(table, gpus, machine)
    legend = {found[1] for line in table.lines if (found := re.match(r"\s*([A-Z]+#?)\s+=", line))}
    machine.tells_links = bool(machine.links) or not legend >= {*DISTANCES} or "NV#" in legend  # -mp has all but NV#
    machine.read = [*_said(machine), *_said_adapters(machine)]
    missing = [name for name in others if name not in table.rows]
    if missing:
        machine.notes.append(f"rows {', '.join(missing)} are missing; their cells were taken from the columns")
    return machine


def _check_names(table: _Table, gpus: list[str], others: list[str]) -> None:
    faults, where = table.faults, f"{table.file}:{table.head + 1}"
    numbers = [int(name[3:8]) for name in gpus if name[3:].isdecimal()]
    if numbers != list(range(len(gpus))):
        absent = sorted(set(range(min(max(numbers, default=0) + 1, MOST_GPUS))) - set(numbers))
        what = f"column{'s' * (len(absent) != 1)} {gpu_list(absent)} missing" if absent else "GPUs are not in order"
        faults.append(Fault(what, where, f"GPUs are GPU0 to GPU{max(numbers, default=0)}: {WHOLE}"))
    for name in dict.fromkeys(table.columns):
        if table.columns.count(name) > 1:
            faults.append(Fault(f"column {name} is there twice", where, WHOLE))
    for name in others:
        if not LABEL.fullmatch(name) and not re.fullmatch(r"[A-Za-z][\w.-]*\d[\w.-]*", name):
            faults.append(Fault(f'"{name[:30]}" is no name of a GPU or an adapter', where, "such as NIC0 or mlx5_0"))
    for name in gpus:
        if name not in table.rows:
            what = f"row {name} is missing, though there is a column for it"
            faults.append(Fault(what, f"{table.file}:{len(table.lines)}", WHOLE))


def _check_cells(table: _Table) -> None:
    """Add faults of cells: links of a GPU to itself, and cells that differ from their mirror."""
    listed = 0
    for row, found in table.rows.items():
        for column, cell in zip(table.columns, found.cells, strict=False):
            what = hint = ""
            mirror = table.rows.get(column)
            place = table.columns.index(row)
            back = mirror.cells[place] if mirror and place < len(mirror.cells) else cell
            if row == column and cell != "X":
                what, hint = f"{row} has {cell} to itself", "the diagonal is X"
            elif row != column and cell == "X":
                what, hint = f"X between {row} and {column}", f"X is for {row} itself: {back} stands opposite"
            elif cell in ("NV0", "NV") or (cell.startswith("NV") and int(cell[2:]) > 36):
                what, hint = f"{cell}: no GPU has so many NVLinks", "NV1 to NV36"
            elif cell != back and table.columns.index(column) > place:
                what = f"{row} to {column} is {cell}, but {column} to {row} is {back}"
                hint = f"write {max(cell, back)} in both, or {WHOLE}"
            if what and listed < MOST_LISTED:
                listed += 1
                table.faults.append(Fault(what, table.place(row, column), hint))


def _adapter(table: _Table, name: str, gpus: list[str]) -> Adapter:
    """Return an adapter with the GPUs beside it: behind PCIe switches, else behind the same host bridge."""
    ways = [table.cell(gpu, name) for gpu in gpus]
    near = next((near for near in (("PIX", "PXB"), ("PHB",)) if {*near} & {*ways}), ())
    return Adapter(name, None, tuple(gpu for gpu, way in enumerate(ways) if way in near))


def _read_numa(table: _Table, gpus: list[str], machine: Machine) -> None:
    """Read the NUMA node of each GPU, and whether GPUs have memory nodes of their own."""
    titles = table.titles
    found = []
    for name in gpus:
        words = table.rows[name].rest.split()
        identity = words.pop() if "GPU NUMA ID" in titles and len(words) > 1 else "N/A"
        listed = words[-1] if words and ("NUMA Affinity" in titles or len(words) > 1) else ""
        found.append("" if listed == "N/A" else listed)
        machine.is_grace |= identity.isdecimal() or ("GPU NUMA ID" in titles and "," in listed)
    firsts = [re.split("[,-]", numa)[0] for numa in found]
    machine.numa = tuple(firsts) if all(firsts) and "0-" not in "".join(found) else ()


def _said(machine: Machine) -> Iterator[str]:
    """Yield what was read of the GPUs."""
    n = machine.n_gpus
    if n == 1:
        yield "1 GPU, no links"
    elif machine.even:
        every = "the two" if n == 2 else "every two"
        yield f"{plural(n, 'GPU')}, {plural(machine.even, 'NVLink')} between {every} of them"
    elif machine.links:
        each = sorted(set(machine.links_per_gpu))
        count = f"{each[0]}" if len(each) == 1 else f"{each[0]} to {each[-1]}"
        yield f"{plural(n, 'GPU')}, NVLinks between {len(machine.links)} of {len(machine.pairs)} pairs, {count} per GPU"
    else:
        ways = [way for way in DISTANCES if way in machine.distances.values()]
        yield f"{plural(n, 'GPU')}, no NVLink shown; over PCIe: {', '.join(ways)}"
    if machine.numa:
        nodes = dict.fromkeys(machine.numa)
        where = (f"{node} ({gpu_list(i for i, each in enumerate(machine.numa) if each == node)})" for node in nodes)
        yield f"NUMA {', '.join(where)}"


def _said_adapters(machine: Machine) -> Iterator[str]:
    """Yield what was read of the adapters."""
    near = [adapter for adapter in machine.adapters if adapter.near]
    if not machine.adapters:
        yield "no adapter"
        return
    beside = (f"{adapter.name} ({gpu_list(adapter.near)})" for adapter in near)
    shown = f"; beside GPUs: {', '.join(beside)}" if near else "; none beside a GPU"
    yield f"{plural(len(machine.adapters), 'adapter')}{shown}"
