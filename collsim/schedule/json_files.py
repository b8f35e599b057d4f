"""Schedules as JSON files that people can read, write, compare and keep: ``collsim.schedule/1``.

A table has one row per line under a list of its columns. The form of a phase is kept. Loading checks everything and
reports all faults at once, each with its place in the file, for example ``phases[0].rows[12].dst``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from collsim.core.errors import Fault, InputError, SpecError, VerificationError, nearest
from collsim.core.input_files import name_of_input
from collsim.core.operations import OPERATIONS
from collsim.schedule.forms import Chunks, Orbits, Transfers
from collsim.schedule.packed_files import read_schedule_file, text_of
from collsim.schedule.pipelines import Circles, Pipelines
from collsim.schedule.schedule import Schedule
from collsim.schedule.structure import MAX_INTEGER, structure_faults

__all__ = ["SCHEMA", "as_text", "load", "save"]

SCHEMA = "collsim.schedule/1"
MAX_RANKS = 2**20
MAX_FAULTS = 200
"""`load` names this many faults and counts the rest."""

KEYS = ("schema", "op", "algo", "n_ranks", "size_bytes", "parameters", "chunks", "phases")
CHUNK_COLUMNS = {"size_bytes": None, "source": None, "target": None}
LABEL_COLUMNS = {"channel": 0, "step": 0, "reduces": False, "reads_input": False, "lanes": 1, "copies": 1}
TRANSFER_COLUMNS = {"src": None, "dst": None, **LABEL_COLUMNS, "chunks": None, "deps": ()}
ORBIT_COLUMNS = {"shift": None, **LABEL_COLUMNS, "chunks": None, "deps": ()}
"""Columns in the order in which they are written, with what a file means that leaves them out; None: it must not."""
FLAGS = ("reduces", "reads_input")
LISTS = ("chunks", "deps")
FORMS = {"transfers": ("form", "columns", "rows"), "orbits": ("form", "order", "columns", "rows")}


def save(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Write *schedule* to *path*, compressed if its name ends in ``.gz``; a file is replaced in one step.

    Raises
    ------
    VerificationError
        If the arrays of the schedule do not fit together or a name has no place in a file, so that it could not be
        loaded.
    """
    target = Path(path)
    content = as_text(schedule, str(target)).encode()
    if target.suffix.lower() == ".gz":
        import gzip

        content = gzip.compress(content, mtime=0)
    try:
        _write(content, target)
    except OSError as error:
        raise InputError(Fault(f"cannot write: {error.strerror}", str(target))) from None


def as_text(schedule: Schedule, file: str = "") -> str:
    """Return the text that `save` writes; *file* is the place that faults name.

    Raises
    ------
    VerificationError
        As of `save`.
    """
    reader = _Reader(file)
    reader.head(_head(schedule))
    faults = [*reader.faults, *structure_faults(schedule, merged=True)]
    if faults:
        raise VerificationError(*faults)
    return _text(schedule)


def _write(content: bytes, target: Path) -> None:
    """Write in one step; what is no regular file, such as a device or a pipe, stays what it is and is written to."""
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    target = target.resolve()
    scratch = target.with_name(f".{target.name[:100]}.{os.urandom(4).hex()}.tmp")
    try:
        scratch.write_bytes(content)
        scratch.replace(target)
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], content: bytes | None = None) -> Schedule:
    """Return the schedule in the file *path*, ``-`` for stdin, or in *content* that was read from it before.

    Raises
    ------
    SpecError
        With everything that is wrong with the file. Whether the schedule does what its operation promises is left to
        `verify`.
    """
    file = name_of_input(path)
    reader = _Reader(file)
    text = text_of(read_schedule_file(path) if content is None else content, file)
    schedule = reader.schedule(_json(text, file, reader))
    if schedule is not None:
        reader.structure(schedule)
    if len(reader.faults) > MAX_FAULTS:
        rest = len(reader.faults) - MAX_FAULTS
        raise SpecError(*reader.faults[:MAX_FAULTS], Fault(f"... and {rest} more faults", file))
    if reader.faults or schedule is None:
        raise SpecError(*reader.faults)
    return schedule


def _text(schedule: Schedule) -> str:
    """Return the whole file."""
    chunks = schedule.chunks
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in _head(schedule).items()]
    rows = zip(chunks.size_bytes.tolist(), chunks.source.tolist(), chunks.target.tolist(), strict=True)
    lines.append('  "chunks": {' + _table(CHUNK_COLUMNS, rows, "    ") + "\n  },")
    phases = ",\n".join(f"    {{{_phase(phase)}\n    }}" for phase in schedule.phases)
    return "{\n" + "\n".join(lines) + f'\n  "phases": [\n{phases}\n  ]\n}}\n'


def _head(schedule: Schedule) -> dict[str, Any]:
    """Return the entries of a file that describe the schedule as a whole."""
    return {
        "schema": SCHEMA,
        "op": schedule.op,
        "algo": schedule.algo,
        "n_ranks": int(schedule.n_ranks),
        "size_bytes": int(schedule.size_bytes),
        "parameters": {
            key: int(value) if isinstance(value, np.integer) else value
            for key, value in sorted(schedule.parameters.items())
        },
        **({"groups": [list(map(int, group)) for group in schedule.groups]} if schedule.groups else {}),
    }


def _phase(phase: object) -> str:
    """Return the inside of a phase."""
    if isinstance(phase, Pipelines):
        phase = phase.materialise()
    if isinstance(phase, Transfers):
        chunks, deps = _lists(phase.chunk_ptr, phase.chunk.tolist()), _lists(phase.dep_ptr, phase.dep.tolist())
        rows = _rows(phase, TRANSFER_COLUMNS, chunks, deps)
        return '\n      "form": "transfers",' + _table(TRANSFER_COLUMNS, rows, " " * 6)
    if isinstance(phase, Circles):
        phase = phase.orbits()
    assert isinstance(phase, Orbits)
    carried = np.stack([phase.chunk_family, phase.chunk_offset], axis=1).tolist()
    waits = np.stack([phase.dep_row, phase.dep_shift], axis=1).tolist()
    rows = _rows(phase, ORBIT_COLUMNS, _lists(phase.chunk_ptr, carried), _lists(phase.dep_ptr, waits))
    order = _array("order", phase.order.tolist(), " " * 6)
    return f'\n      "form": "orbits",{order},' + _table(ORBIT_COLUMNS, rows, " " * 6)


def _rows(phase: Transfers | Orbits, columns: Iterable[str], chunks: list[Any], deps: list[Any]) -> Iterable[Any]:
    """Return the rows of a phase as plain values."""
    plain = {"chunks": chunks, "deps": deps}
    return zip(*(plain.get(name) if name in plain else getattr(phase, name).tolist() for name in columns), strict=True)


def _lists(ptr: np.ndarray, values: list[Any]) -> list[list[Any]]:
    """Return a CSR table as ragged lists."""
    return [values[start:end] for start, end in pairwise(ptr.tolist())]


def _table(columns: Iterable[str], rows: Iterable[Any], indent: str) -> str:
    """Return the columns and rows of a table, one row per line."""
    return f'\n{indent}"columns": {json.dumps(list(columns))},' + _array("rows", rows, indent)


def _array(key: str, rows: Iterable[Any], indent: str) -> str:
    """Return an array with one element per line."""
    lines = ",\n".join(f"{indent}  {json.dumps(row)}" for row in rows)
    return f'\n{indent}"{key}": [\n{lines}\n{indent}]' if lines else f'\n{indent}"{key}": []'


def _json(text: str, file: str, reader: _Reader) -> Any:
    """Return the plain data of a file; duplicate keys become faults of *reader*."""
    hint = "collsim schedule export writes files that can be read"

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) < len(pairs):
            for key in sorted(key for key in seen if sum(key == other for other, _ in pairs) > 1):
                reader.fault(f"the key {_shown(key)} appears twice", "", "keep one of them")
        return seen

    def refuse(constant: str) -> None:
        reader.fault(f"{constant} is no number of JSON", "", "use an integer")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise SpecError(Fault(f"not JSON: {error.msg}", f"{file}:{error.lineno}", hint)) from None
    except RecursionError:
        raise SpecError(Fault("nested too deeply", file, hint)) from None
    except ValueError:
        raise SpecError(Fault("a number has thousands of digits", file, "sizes are at most 2^62 bytes")) from None


def _shown(value: object) -> str:
    """Return a value as JSON writes it, shortened."""
    text = json.dumps(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(slots=True)
class _Reader:
    """Turns plain data into a schedule and collects what is wrong on the way.

    A wrong value is replaced by a harmless one, so that the rest can be checked; *built* is false once something is
    missing that has no substitute.
    """

    file: str
    faults: list[Fault] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    built: bool = True

    def fault(self, what: str, where: str, hint: str = "") -> None:
        """Record a fault at a path inside the file."""
        self.faults.append(Fault(what, f"{self.file}: {where}" if where else self.file, hint))
        self.wrong.add(_row(where))

    def gap(self, what: str, where: str, hint: str = "") -> None:
        """Record a fault that leaves nothing to build on."""
        self.fault(what, where, hint)
        self.built = False

    def structure(self, schedule: Schedule) -> None:
        """Check whether the arrays fit together; rows with a wrong value are left out."""
        for fault in structure_faults(schedule, merged=True):
            if _row(fault.where) not in self.wrong:
                self.fault(fault.what, fault.where, fault.hint)

    def schedule(self, data: Any) -> Schedule | None:
        """Return the schedule, or None if too little of it is there."""
        if not isinstance(data, dict):
            self.fault(f"expected an object, not {_shown(data)}", "", f'start with {{"schema": "{SCHEMA}", ...')
            return None
        if data.get("schema") != SCHEMA:
            schema = data.get("schema")
            what = "the schema is missing" if schema is None else f"the schema is {_shown(schema)}"
            self.fault(what, "schema", f'this version reads "{SCHEMA}"')
            return None
        self.keys(data, (*KEYS, "groups") if "groups" in data else KEYS, "")
        op, algo, n_ranks, size_bytes, parameters = self.head(data)
        chunks = self.table(data.get("chunks"), CHUNK_COLUMNS, "chunks", ("columns", "rows"))
        phases, groups = self.phases(data.get("phases"), n_ranks), self.groups(data.get("groups", []), n_ranks)
        if chunks is None or not self.built:
            return None
        table = Chunks(*map(np.array, chunks.values()))
        return Schedule(op, algo, n_ranks, size_bytes, table, phases, parameters, groups)

    def head(self, data: dict[str, Any]) -> tuple[str, str, int, int, dict[str, int | str]]:
        """Return op, algo, n_ranks, size_bytes and parameters."""
        op, algo = self.word(data.get("op"), "op"), self.word(data.get("algo"), "algo")
        if op and op not in OPERATIONS:
            self.fault(f"unknown operation {_shown(op)}", "op", _closest(op, OPERATIONS))
        before = len(self.faults)
        n_ranks = self.integer(data.get("n_ranks"), "n_ranks", 1, MAX_RANKS)
        self.built = self.built and len(self.faults) == before
        size_bytes = self.integer(data.get("size_bytes"), "size_bytes", 0, MAX_INTEGER)
        return op, algo, n_ranks, size_bytes, self.parameters(data.get("parameters"))

    def keys(self, data: dict[str, Any], known: Sequence[str], where: str) -> None:
        """Check the keys of an object."""
        for key in data:
            if key not in known:
                self.fault(f"unknown key {_shown(key)}", where, _closest(key, known))
        for key in known:
            if key not in data:
                self.fault(f'the key "{key}" is missing', where, f"needed: {', '.join(known)}")

    def word(self, value: Any, where: str) -> str:
        """Return a printable text that is not empty."""
        if isinstance(value, str) and value and value.isprintable():
            return value
        self.fault(f"expected a name, not {_shown(value)}", where)
        return ""

    def integer(self, value: Any, where: str, low: int, high: int) -> int:
        """Return an integer between *low* and *high*."""
        if type(value) is int and low <= value <= high:
            return value
        if type(value) is int:
            self.fault(f"{_shown(value)} is out of range", where, f"nearest valid value: {min(max(value, low), high)}")
        else:
            self.fault(f"expected an integer, not {_shown(value)}", where, f"{low} to {high}")
        return low

    def parameters(self, data: Any) -> dict[str, int | str]:
        """Return the parameters: names with integers or texts."""
        if not isinstance(data, dict):
            self.fault(f"expected an object, not {_shown(data)}", "parameters", '{} or {"channels": 2}')
            return {}
        for key, value in data.items():
            self.word(key, "parameters")
            if isinstance(value, str):
                self.word(value, f"parameters.{_plain(key)}")
            else:
                self.integer(value, f"parameters.{_plain(key)}", -MAX_INTEGER, MAX_INTEGER)
        return data

    def groups(self, data: Any, n_ranks: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups of ranks that switches serve together; a file without any leaves them out."""
        if not isinstance(data, list) or not all(isinstance(group, list) for group in data):
            self.gap(f"expected a list of lists of ranks, not {_shown(data)}", "groups", "[[0, 1], [2, 3]]")
            return ()
        return tuple(
            tuple(self.integer(rank, f"groups[{number}][{i}]", 0, n_ranks - 1) for i, rank in enumerate(group))
            for number, group in enumerate(data)
        )

    def phases(self, data: Any, n_ranks: int) -> tuple[Transfers | Orbits, ...]:
        """Return the phases."""
        if not isinstance(data, list) or not data:
            self.gap(_no_list("phases", data), "phases", "give at least one phase")
            return ()
        phases = [self.phase(phase, n_ranks, f"phases[{number}]") for number, phase in enumerate(data)]
        return tuple(phase for phase in phases if phase is not None)

    def phase(self, data: Any, n_ranks: int, where: str) -> Transfers | Orbits | None:
        """Return one phase, or None."""
        form = data.get("form") if isinstance(data, dict) else data
        if not isinstance(data, dict) or not isinstance(form, str) or form not in FORMS:
            self.gap(f"the form is {_shown(form)}", f"{where}.form", f"known: {', '.join(FORMS)}")
            return None
        if form == "transfers":
            columns = self.table(data, TRANSFER_COLUMNS, where, FORMS[form])
            return None if columns is None else Transfers(**_with_pointers(columns, ("chunk",), ("dep",)))
        order = self.order(data.get("order"), n_ranks, f"{where}.order")
        columns = self.table(data, ORBIT_COLUMNS, where, FORMS[form])
        if columns is None or order is None:
            return None
        arrays = _with_pointers(columns, ("chunk_family", "chunk_offset"), ("dep_row", "dep_shift"))
        return Orbits(order=order, **arrays)

    def order(self, data: Any, n_ranks: int, where: str) -> Any:
        """Return the orders as int64[n_orders, n_ranks], or None."""
        if not isinstance(data, list) or not data:
            self.gap(_no_list("orders", data), where, "give at least one order; each names every rank once")
            return None
        before = len(self.faults)
        for number, order in enumerate(data):
            if not isinstance(order, list) or len(order) != n_ranks:
                self.gap("an order must name every rank once", f"{where}[{number}]", f"ranks are 0 to {n_ranks - 1}")
            else:
                for place, rank in enumerate(order):
                    self.integer(rank, f"{where}[{number}][{place}]", 0, n_ranks - 1)
        self.built = self.built and len(self.faults) == before
        return np.array(data, dtype=np.int64) if len(self.faults) == before else None

    def table(self, data: Any, known: dict[str, Any], where: str, keys: Sequence[str]) -> dict[str, list[Any]] | None:
        """Return the columns of a table by name, or None."""
        if not isinstance(data, dict):
            self.gap(f"expected an object, not {_shown(data)}", where, "columns and rows")
            return None
        self.keys(data, keys, where)
        rows, names = data.get("rows"), self.names(data.get("columns"), known, f"{where}.columns")
        if not isinstance(rows, list):
            self.gap(f"expected a list of rows, not {_shown(rows)}", f"{where}.rows")
        if names is None or not isinstance(rows, list):
            return None
        ragged = [i for i, row in enumerate(rows) if not isinstance(row, list) or len(row) != len(names)]
        for i in ragged:
            self.gap(f"expected a list of {len(names)} values", f"{where}.rows[{i}]", f"columns: {', '.join(names)}")
        if ragged:
            return None
        width = 2 if "shift" in known else 1
        columns = {name: [default] * len(rows) for name, default in known.items()}
        for place, name in enumerate(names):
            column = [row[place] for row in rows]
            columns[name] = [self.value(name, v, width, f"{where}.rows[{i}].{name}") for i, v in enumerate(column)]
        return columns

    def names(self, data: Any, known: dict[str, Any], where: str) -> list[str] | None:
        """Return the names of the columns, or None."""
        if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
            self.gap(f"expected a list of names, not {_shown(data)}", where, f"known: {', '.join(known)}")
            return None
        before = len(self.faults)
        for name in dict.fromkeys(data):
            if name not in known:
                self.gap(f"unknown column {_shown(name)}", where, _closest(name, known))
            elif data.count(name) > 1:
                self.gap(f"the column {_shown(name)} appears twice", where, "keep one of them")
        for name, default in known.items():
            if default is None and name not in data:
                self.gap(f'the column "{name}" is missing', where, f"known: {', '.join(known)}")
        return data if len(self.faults) == before else None

    def value(self, name: str, value: Any, width: int, where: str) -> Any:
        """Return the value of a cell."""
        if name in FLAGS:
            if type(value) is not bool:
                self.fault(f"expected true or false, not {_shown(value)}", where)
            return value is True
        if name not in LISTS:
            return self.integer(value, where, -MAX_INTEGER, MAX_INTEGER)
        if not isinstance(value, list):
            self.fault(f"expected a list, not {_shown(value)}", where)
            return []
        if width == 1:
            return [self.integer(v, where, -MAX_INTEGER, MAX_INTEGER) for v in value]
        pairs = [v for v in value if isinstance(v, list) and len(v) == width]
        if len(pairs) < len(value):
            self.fault("expected a list of pairs of integers", where)
        return [[self.integer(v, where, -MAX_INTEGER, MAX_INTEGER) for v in pair] for pair in pairs]


def _no_list(noun: str, data: object) -> str:
    """Say that *data* is an empty list or none at all."""
    return f"the list of {noun} is empty" if data == [] else f"expected a list of {noun}, not {_shown(data)}"


def _row(where: str) -> str:
    """Return the part of a path that leads to a row, or the whole path."""
    found = re.match(r".*?rows\[\d+\]", where)
    return found.group() if found else where


def _plain(key: str) -> str:
    """Return a key as it can be printed."""
    return key if key.isprintable() and key else _shown(key)


def _closest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name, or all of them."""
    choices = list(known)
    close = nearest(name, choices)
    return f'did you mean "{close}"?' if close else f"known: {', '.join(choices)}"


def _with_pointers(columns: dict[str, list[Any]], carried: Sequence[str], waits: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a phase with its ragged lists as pointers and values."""
    arrays: dict[str, Any] = {name: column for name, column in columns.items() if name not in LISTS}
    for name, pointers, parts in (("chunks", "chunk_ptr", carried), ("deps", "dep_ptr", waits)):
        lists = columns[name]
        arrays[pointers] = np.concatenate(([0], np.cumsum([len(items) for items in lists], dtype=np.int64)))
        flat = np.array([entry for items in lists for entry in items], dtype=np.int64).reshape(-1, len(parts))
        arrays.update(zip(parts, flat.T, strict=True))
    return arrays
