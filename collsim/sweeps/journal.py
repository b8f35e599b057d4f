"""The file of a sweep: a line of JSON per point, written at once, so that a kill at any moment costs at most a line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeGuard

from collsim.core.atomic_files import replacing
from collsim.core.errors import Fault, InputError
from collsim.sweeps.records import SCHEMA

__all__ = ["Journal", "parquet_records", "write_parquet"]

NESTED = ("asked", "answer")


class Journal:
    """Records by key, kept in a file: those that it had, and those that are appended while it is open.

    A line is written by one call, so that only the last one can be torn: it is cut off when the file is opened again.

    Parameters
    ----------
    file : str or None
        JSON lines; None keeps records in memory alone.

    Raises
    ------
    InputError
        As it is entered: the file cannot be written, holds something else, or another sweep writes to it.
    """

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.records: dict[str, dict[str, Any]] = {}
        self.torn = False
        self._descriptor: int | None = None

    def __enter__(self) -> Journal:
        if self.file is None:
            return self
        try:
            if Path(self.file).is_fifo():
                raise InputError(Fault("a pipe keeps nothing", self.file, "write to a file"))
            self._descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            self._lock()
            self._read()
        except OSError as error:
            self.close()
            what = f"cannot be written: {error.strerror or error}"
            raise InputError(Fault(what, self.file, "check the path")) from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the records stay."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Keep a record, and write its line before anything else happens."""
        self.records[str(record["key"])] = dict(record)
        if self._descriptor is None:
            return
        line = (json.dumps(record, allow_nan=False, default=str) + "\n").encode()
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise InputError(Fault(f"cannot be written: {error.strerror}", str(self.file), "check the disk")) from None
        if written != len(line):  # a full disk: the part of a line is cut off by whoever opens the file next
            raise InputError(Fault("a line was not written as a whole", str(self.file), "check the disk"))

    def _lock(self) -> None:
        """Make sure that no other sweep writes to the file; the system lets go of it however this one ends."""
        with suppress(ImportError):
            import fcntl

            assert self._descriptor is not None
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = "wait for it, or write to another file"
                raise InputError(Fault("another sweep writes to it", str(self.file), hint)) from None

    def _read(self) -> None:
        """Read all whole lines, and cut a torn last one off."""
        assert self.file is not None
        assert self._descriptor is not None
        content = Path(self.file).read_bytes()
        whole = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            if line.strip():
                record = _record_of(line, self.file, number)
                self.records[record["key"]] = record
        self.torn = whole < len(content)
        if self.torn:
            if not whole and not content.startswith(b'{"schema": "collsim.'[: len(content)]):
                raise _foreign(self.file, 1)
            os.ftruncate(self._descriptor, whole)


def _record_of(line: bytes, file: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not _is_record(record):
        raise _foreign(file, number)
    return record


def _is_record(record: Any) -> TypeGuard[dict[str, Any]]:
    """Return True if a value is what `collsim.sweeps.records.record` makes."""
    kinds = {"key": str, "status": str, "exit_code": int, "asked": dict, "answer": dict}
    return (
        isinstance(record, dict)
        and record.get("schema") == SCHEMA
        and all(isinstance(record.get(name), kind) for name, kind in kinds.items())
    )


def _foreign(file: str, number: int) -> InputError:
    return InputError(Fault(f"line {number} is no point of a sweep", file, "write to another file"))


def write_parquet(records: list[dict[str, Any]], file: str) -> None:
    """Write records as one Parquet file, whole or not at all, with the asked and the answered values in columns.

    Raises
    ------
    ImportError
        Polars is not installed.
    """
    import polars

    flat = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for record in flat for name in record))
    data = {name: _column([record.get(name) for record in flat]) for name in names}
    with replacing(file) as partial:
        polars.DataFrame(data, strict=False).write_parquet(partial)


def parquet_records(file: str) -> list[dict[str, Any]]:
    """Return the records of a Parquet file that `write_parquet` wrote.

    Raises
    ------
    InputError
        It is none of a sweep.
    """
    import polars

    try:
        lines = polars.read_parquet(file)["record"].to_list()
    except Exception:
        raise InputError(Fault("this is no file of a sweep", file, "write to another file")) from None
    return [json.loads(line) for line in lines]


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as one level: what was asked with ``asked.`` in front, and the whole as JSON in ``record``."""
    head = {name: value for name, value in record.items() if name not in NESTED}
    asked = {f"asked.{name}": value for name, value in record["asked"].items()}
    return {**head, **asked, **record["answer"], "record": json.dumps(record, default=str)}


def _column(values: list[Any]) -> list[Any]:
    """Return values of one kind: numbers, truth or text; what is mixed or nested becomes text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or kinds <= {int} or kinds <= {str}:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
