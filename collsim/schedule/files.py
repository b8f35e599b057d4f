"""Schedules as JSON files that people can read, write, compare and keep: ``collsim.schedule/1``.

A table has one row per line under a list of its columns. The form of a phase is kept. Loading checks everything and
reports all faults at once, each with its place in the file, for example ``phases[0].rows[12].dst``.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.errors import Fault, InputError, SpecError, VerificationError, nearest
from collsim.operations import OPERATIONS
from collsim.schedule.forms import Chunks, Orbits, Transfers
from collsim.schedule.structure import structure_faults

if TYPE_CHECKING:
    from collsim.schedule import Schedule

__all__ = ["SCHEMA", "load", "save"]

SCHEMA = "collsim.schedule/1"
MAX_FILE_BYTES = 2**30
"""Longest text of a schedule, unpacked."""
MAX_RANKS = 2**20
MAX_INTEGER = 2**62

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
        If the arrays of the schedule do not fit together, so that the file could not be loaded.
    """
    faults = structure_faults(schedule, merged=True)
    if faults:
        raise VerificationError(*faults)
    target = Path(path)
    content = _text(schedule).encode()
    if target.suffix == ".gz":
        import gzip

        content = gzip.compress(content, mtime=0)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        scratch.write_bytes(content)
        scratch.replace(target)
    except OSError as error:
        raise InputError(Fault(f"cannot write: {error.strerror}", str(target))) from None
    finally:
        scratch.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Schedule:
    """Return the schedule in the file *path*.

    Raises
    ------
    SpecError
        With everything that is wrong with the file. Whether the schedule does what its operation promises is left to
        `verify`.
    """
    file = os.fspath(path)
    reader = _Reader(file)
    schedule = reader.schedule(_json(file, reader))
    if schedule is not None:
        reader.faults.extend(
            Fault(fault.what, f"{file}: {fault.where}", fault.hint) for fault in structure_faults(schedule, merged=True)
        )
    if reader.faults or schedule is None:
        raise SpecError(*reader.faults)
    return schedule


def _text(schedule: Schedule) -> str:
    """Return the whole file."""
    chunks = schedule.chunks
    head = {
        "schema": SCHEMA,
        "op": schedule.op,
        "algo": schedule.algo,
        "n_ranks": int(schedule.n_ranks),
        "size_bytes": int(schedule.size_bytes),
        "parameters": {
            key: value if isinstance(value, str) else int(value) for key, value in sorted(schedule.parameters.items())
        },
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = zip(chunks.size_bytes.tolist(), chunks.source.tolist(), chunks.target.tolist(), strict=True)
    lines.append('  "chunks": {' + _table(CHUNK_COLUMNS, rows, "    ") + "\n  },")
    phases = ",\n".join(f"    {{{_phase(phase)}\n    }}" for phase in schedule.phases)
    return "{\n" + "\n".join(lines) + f'\n  "phases": [\n{phases}\n  ]\n}}\n'


def _phase(phase: object) -> str:
    """Return the inside of a phase."""
    if isinstance(phase, Transfers):
        chunks, deps = _lists(phase.chunk_ptr, phase.chunk.tolist()), _lists(phase.dep_ptr, phase.dep.tolist())
        return '\n      "form": "transfers",' + _table(TRANSFER_COLUMNS, _rows(phase, TRANSFER_COLUMNS, chunks, deps), " " * 6)
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
    ends = ptr.tolist()
    return [values[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]


def _table(columns: Iterable[str], rows: Iterable[Any], indent: str) -> str:
    """Return the columns and rows of a table, one row per line."""
    return f'\n{indent}"columns": {json.dumps(list(columns))},' + _array("rows", rows, indent)


def _array(key: str, rows: Iterable[Any], indent: str) -> str:
    """Return an array with one element per line."""
    lines = ",\n".join(f"{indent}  {json.dumps(row)}" for row in rows)
    return f'\n{indent}"{key}": [\n{lines}\n{indent}]' if lines else f'\n{indent}"{key}": []'


def _json(file: str, reader: _Reader) -> Any:
    """Return the plain data of a file; duplicate keys become faults of *reader*."""
    text = _read(file)

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
        raise SpecError(Fault(f"not JSON: {error.msg}", f"{file}:{error.lineno}", "see docs/schedules.md")) from None
    except RecursionError:
        raise SpecError(Fault("nested too deeply", file, "see docs/schedules.md")) from None
    except ValueError:
        raise SpecError(Fault("a number has thousands of digits", file, "sizes are at most 2^62 bytes")) from None


def _read(file: str) -> str:
    """Return the text of a file, unpacked if it is compressed."""
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if content[:2] == b"\x1f\x8b":
            content = _unpacked(content)
        text = content.decode()
    except (OSError, ValueError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
        raise SpecError(Fault(f"cannot read: {why}", file, "a schedule file is JSON, or JSON packed by gzip")) from None
    except (EOFError, zlib.error):
        raise SpecError(Fault("cannot read: the compressed data are damaged or cut off", file)) from None
    if len(content) > MAX_FILE_BYTES:
        raise SpecError(Fault(f"longer than {MAX_FILE_BYTES} bytes", file))
    return text


def _unpacked(content: bytes) -> bytes:
    """Return the text in a gzip file, but not much more than may be."""
    import gzip
    import io

    with gzip.open(io.BytesIO(content)) as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def _shown(value: object) -> str:
    """Return a value as JSON writes it, shortened."""
    text = json.dumps(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(slots=True)
class _Reader:
    """Turns plain data into a schedule and collects what is wrong on the way."""

    file: str
    faults: list[Fault] = field(default_factory=list)

    def fault(self, what: str, where: str, hint: str = "") -> None:
        """Record a fault at a path inside the file."""
        self.faults.append(Fault(what, f"{self.file}: {where}" if where else self.file, hint))

    def schedule(self, data: Any) -> Schedule | None:
        """Return the schedule, or None if there are faults that keep it from being built."""
        from collsim.schedule import Schedule

        if not isinstance(data, dict):
            self.fault(f"expected an object, not {_shown(data)}", "", f'start with {{"schema": "{SCHEMA}", ...')
            return None
        if data.get("schema") != SCHEMA:
            self.fault(f"the schema is {_shown(data.get('schema'))}", "schema", f'this version reads "{SCHEMA}"')
            return None
        self.keys(data, KEYS, "")
        op, algo = self.word(data.get("op"), "op"), self.word(data.get("algo"), "algo")
        if op and op not in OPERATIONS:
            close, known = nearest(op, list(OPERATIONS)), ", ".join(OPERATIONS)
            hint = f'did you mean "{close}"?' if close else f"known: {known}"
            self.fault(f"unknown operation {_shown(op)}", "op", hint)
        n_ranks = self.integer(data.get("n_ranks"), "n_ranks", 1, MAX_RANKS)
        size_bytes = self.integer(data.get("size_bytes"), "size_bytes", 0, MAX_INTEGER)
        parameters = self.parameters(data.get("parameters"))
        chunks, phases = self.chunks(data.get("chunks")), self.phases(data.get("phases"), n_ranks)
        if self.faults:
            return None
        return Schedule(op, algo, n_ranks, size_bytes, chunks, phases, parameters)

    def keys(self, data: dict[str, Any], known: Sequence[str], where: str) -> None:
        """Check the keys of an object."""
        for key in data:
            if key not in known:
                close = nearest(key, known)
                hint = f'did you mean "{close}"?' if close else f"known: {', '.join(known)}"
                self.fault(f"unknown key {_shown(key)}", where, hint)
        for key in known:
            if key not in data:
                self.fault(f'the key "{key}" is missing', where, f"needed: {', '.join(known)}")

    def word(self, value: Any, where: str) -> str:
        """Return a text that is not empty."""
        if not isinstance(value, str) or not value:
            self.fault(f"expected a name, not {_shown(value)}", where)
            return ""
        return value

    def integer(self, value: Any, where: str, low: int, high: int) -> int:
        """Return an integer between *low* and *high*."""
        if type(value) is not int:
            self.fault(f"expected an integer, not {_shown(value)}", where, f"{low} to {high}")
        elif not low <= value <= high:
            self.fault(f"{_shown(value)} is out of range", where, f"nearest valid value: {low if value < low else high}")
        else:
            return value
        return low

    def parameters(self, data: Any) -> dict[str, int | str]:
        """Return the parameters: names with integers or texts."""
        if not isinstance(data, dict):
            self.fault(f"expected an object, not {_shown(data)}", "parameters", '{} or {"channels": 2}')
            return {}
        for key, value in data.items():
            if not isinstance(value, str):
                self.integer(value, f"parameters.{key}", -MAX_INTEGER, MAX_INTEGER)
        return data

    def chunks(self, data: Any) -> Chunks:
        """Return the chunk table."""
        if not isinstance(data, dict):
            self.fault(f"expected an object, not {_shown(data)}", "chunks", "columns and rows")
            return Chunks(*np.zeros((3, 0), dtype=np.int64))
        self.keys(data, ("columns", "rows"), "chunks")
        return Chunks(**self.table(data, CHUNK_COLUMNS, "chunks"))

    def phases(self, data: Any, n_ranks: int) -> tuple[Transfers | Orbits, ...]:
        """Return the phases."""
        if not isinstance(data, list) or not data:
            self.fault(f"expected a list of phases, not {_shown(data)}", "phases", "at least one")
            return ()
        phases = (self.phase(phase, n_ranks, f"phases[{number}]") for number, phase in enumerate(data))
        return tuple(phase for phase in phases if phase is not None)

    def phase(self, data: Any, n_ranks: int, where: str) -> Transfers | Orbits | None:
        """Return one phase, or None."""
        form = data.get("form") if isinstance(data, dict) else None
        if not isinstance(form, str) or form not in FORMS:
            shown = _shown(form) if isinstance(data, dict) else _shown(data)
            self.fault(f"the form is {shown}", f"{where}.form", f"known: {', '.join(FORMS)}")
            return None
        self.keys(data, FORMS[form], where)
        if form == "transfers":
            return self.built(Transfers, self.table(data, TRANSFER_COLUMNS, where), ("chunk",), ("dep",))
        order = self.order(data.get("order"), n_ranks, f"{where}.order")
        columns = self.table(data, ORBIT_COLUMNS, where)
        return self.built(Orbits, {"order": order, **columns}, ("chunk_family", "chunk_offset"), ("dep_row", "dep_shift"))

    def built(
        self, form: type[Transfers | Orbits], columns: dict[str, Any], carried: Sequence[str], waits: Sequence[str]
    ) -> Transfers | Orbits | None:
        """Return a phase of *form* from its columns; the lists become pointers and values."""
        if self.faults:
            return None
        for name, pointers, parts in (("chunks", "chunk_ptr", carried), ("deps", "dep_ptr", waits)):
            lists = columns.pop(name)
            columns[pointers] = np.concatenate(([0], np.cumsum([len(items) for items in lists], dtype=np.int64)))
            flat = np.array([entry for items in lists for entry in items], dtype=np.int64).reshape(-1, len(parts))
            columns.update(zip(parts, flat.T, strict=True))
        return form(**columns)

    def order(self, data: Any, n_ranks: int, where: str) -> Any:
        """Return the orders as int64[n_orders, n_ranks]."""
        if not isinstance(data, list) or not data:
            self.fault(f"expected a list of orders, not {_shown(data)}", where, "each names every rank once")
            return None
        for number, order in enumerate(data):
            if not isinstance(order, list) or len(order) != n_ranks:
                self.fault("an order must name every rank once", f"{where}[{number}]", f"ranks are 0 to {n_ranks - 1}")
            else:
                for place, rank in enumerate(order):
                    self.integer(rank, f"{where}[{number}][{place}]", 0, n_ranks - 1)
        return None if self.faults else np.array(data, dtype=np.int64)

    def table(self, data: dict[str, Any], known: dict[str, Any], where: str) -> dict[str, Any]:
        """Return the columns of a table by name; lists of columns, or plain defaults."""
        names, rows = data.get("columns"), data.get("rows")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.fault(f"expected a list of names, not {_shown(names)}", f"{where}.columns", f"known: {', '.join(known)}")
            names = []
        for name in names:
            if name not in known or names.count(name) > 1:
                close = nearest(name, list(known))
                hint = f'did you mean "{close}"?' if close else f"known: {', '.join(known)}"
                self.fault(f"unknown or repeated column {_shown(name)}", f"{where}.columns", hint)
        for name, default in known.items():
            if default is None and name not in names:
                self.fault(f'the column "{name}" is missing', f"{where}.columns")
        if not isinstance(rows, list):
            self.fault(f"expected a list of rows, not {_shown(rows)}", f"{where}.rows")
            rows = []
        for number, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != len(names):
                self.fault(f"expected a list of {len(names)} values", f"{where}.rows[{number}]", f"columns: {', '.join(names)}")
        if self.faults:
            return {name: [] for name in known}
        columns = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
        width = 2 if "shift" in known else 1
        for name, column in columns.items():
            self.column(name, column, width, f"{where}.rows")
        return {name: columns.get(name, [default] * len(rows)) for name, default in known.items()}

    def column(self, name: str, column: Sequence[Any], width: int, where: str) -> None:
        """Check the types of a column."""
        for number, value in enumerate(column):
            place = f"{where}[{number}].{name}"
            if name in FLAGS:
                if type(value) is not bool:
                    self.fault(f"expected true or false, not {_shown(value)}", place)
            elif name in LISTS:
                self.entries(value, width, place)
            elif type(value) is not int or abs(value) > MAX_INTEGER:
                self.integer(value, place, -MAX_INTEGER, MAX_INTEGER)

    def entries(self, value: Any, width: int, where: str) -> None:
        """Check a list of integers, or of pairs of them."""
        if not isinstance(value, list):
            self.fault(f"expected a list, not {_shown(value)}", where)
            return
        for number, entry in enumerate(value):
            place = f"{where}[{number}]"
            if width == 1:
                self.integer(entry, place, -MAX_INTEGER, MAX_INTEGER)
            elif not isinstance(entry, list) or len(entry) != width:
                self.fault(f"expected a pair of integers, not {_shown(entry)}", place)
            else:
                for part in entry:
                    self.integer(part, place, -MAX_INTEGER, MAX_INTEGER)
