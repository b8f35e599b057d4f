"""Types of the log reader: a Log of Tests, each a compact Table of rows and the run that made them.

This module imports only `log_rows`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from collsim.calibration.logs.printed_rows import RawRow

__all__ = ["ZERO_BYTES", "Dropped", "Log", "LogRow", "LogRun", "Table", "Test"]

NO_NUMBER = math.nan
NO_INTEGER = -(2**31)
LISTED_DROPS = 1000
"""Every dropped line is counted; a Test lists this many of them."""
ZERO_BYTES = "zero bytes: nothing is left of the size after rounding"
"""Why a row without data is dropped, which is no fault of the log."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A line, or a half of a row, that was not taken: where, why, and its beginning."""

    line: int
    reason: str
    text: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" + (f': "{self.text}"' if self.text else "")


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of a table; None stands for what the log does not say.

    Attributes
    ----------
    size_bytes, count : int
        As printed; a count that the size contradicts is replaced by the right one.
    time_s, algbw_Bps, busbw_Bps, wrong : float or None
        Out of place. *wrong* is None if the test did not check its result.
    in_place_time_s, in_place_algbw_Bps, in_place_busbw_Bps, in_place_wrong : float or None
        None throughout for all_to_all, all_to_all_v and send_recv, whose in-place half has no meaning.
    line : int
        Where the row begins in the file.
    algo, proto, channels : str, str and int, or None
        What the library ran, where the program prints it.
    """

    op: str | None
    ranks: int | None
    nodes: int | None
    dtype: str | None
    redop: str | None
    root: int | None
    size_bytes: int
    count: int | None
    time_s: float | None
    algbw_Bps: float | None
    busbw_Bps: float | None
    wrong: float | None
    in_place_time_s: float | None
    in_place_algbw_Bps: float | None
    in_place_busbw_Bps: float | None
    in_place_wrong: float | None
    line: int
    algo: str | None = None
    proto: str | None = None
    channels: int | None = None


FLOAT_COLUMNS = (
    "time_s", "algbw_Bps", "busbw_Bps", "wrong",
    "in_place_time_s", "in_place_algbw_Bps", "in_place_busbw_Bps", "in_place_wrong",
)  # fmt: skip
INTEGER_COLUMNS = ("size_bytes", "count", "root", "line", "channels")
NAME_COLUMNS = ("dtype", "redop", "algo", "proto")


class Table:
    """Rows as arrays of numbers, about 140 bytes a row; iterating makes `LogRow` objects one at a time."""

    def __init__(self, op: str | None = None, ranks: int | None = None, nodes: int | None = None) -> None:
        self.op, self.ranks, self.nodes = op, ranks, nodes
        self._columns: dict[str, array[Any]] = {name: array("d") for name in FLOAT_COLUMNS}
        self._columns |= {name: array("q") for name in INTEGER_COLUMNS}
        self._columns |= {name: array("i") for name in NAME_COLUMNS}
        self._names: list[str | None] = [None]

    def __len__(self) -> int:
        return len(self._columns["line"])

    def __iter__(self) -> Iterator[LogRow]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> LogRow:
        values: dict[str, Any] = {name: column[index] for name, column in self._columns.items()}
        for name in FLOAT_COLUMNS:
            values[name] = None if math.isnan(values[name]) else values[name]
        for name in ("count", "root", "channels"):
            values[name] = None if values[name] == NO_INTEGER else values[name]
        for name in NAME_COLUMNS:
            values[name] = self._names[values[name]]
        return LogRow(op=self.op, ranks=self.ranks, nodes=self.nodes, **values)

    def append(self, row: RawRow) -> None:
        """Add a row as printed."""
        columns = self._columns
        columns["size_bytes"].append(row.size)
        columns["count"].append(NO_INTEGER if row.count is None else row.count)
        columns["root"].append(NO_INTEGER if row.root is None else row.root)
        columns["line"].append(row.line)
        columns["dtype"].append(self._code(row.dtype))
        columns["redop"].append(self._code(row.redop))
        algo, proto, channels = row.choice or (None, None, None)
        columns["algo"].append(self._code(algo))
        columns["proto"].append(self._code(proto))
        columns["channels"].append(NO_INTEGER if channels is None else channels)
        for prefix, half in (("", row.out), ("in_place_", row.into)):
            columns[prefix + "time_s"].append(half.time if half else NO_NUMBER)
            columns[prefix + "algbw_Bps"].append(half.algbw if half else NO_NUMBER)
            columns[prefix + "busbw_Bps"].append(half.busbw if half else NO_NUMBER)
            columns[prefix + "wrong"].append(half.wrong if half else NO_NUMBER)

    def divide(self, name: str, by: float) -> None:
        """Divide a column of numbers."""
        self._columns[name] = array("d", [value / by for value in self._columns[name]])

    def multiply(self, name: str, by: float) -> None:
        """Multiply a column of numbers."""
        self._columns[name] = array("d", [value * by for value in self._columns[name]])

    def column(self, name: str) -> Any:
        """Return one column as a numpy array; NaN where a number is missing, None where a name is."""
        import numpy as np

        if name in NAME_COLUMNS:
            return np.array([self._names[code] for code in self._columns[name]], dtype=object)
        return np.array(self._columns[name])

    def name(self, column: str, index: int) -> str | None:
        """Return one entry of a column of names."""
        code: int = self._columns[column][index]
        return self._names[code]

    def raw(self, name: str) -> array[Any]:
        """Return the array behind a column of numbers, for the reader to work on in place."""
        return self._columns[name]

    def keep(self, wanted: bytes | bytearray) -> Table:
        """Return a table of the rows whose entry in *wanted* is not 0."""
        kept = Table(self.op, self.ranks, self.nodes)
        kept._names = self._names
        for name, column in self._columns.items():
            kept._columns[name] = array(column.typecode, (x for x, take in zip(column, wanted, strict=True) if take))
        return kept

    def clear(self, *names: str) -> None:
        """Forget all numbers of the named columns."""
        for name in names:
            self._columns[name] = array("d", [NO_NUMBER]) * len(self)

    def fill(self, name: str, given: str | None, fallback: str | None) -> None:
        """Put *given* into a column of names, or *fallback* where it has none."""
        codes, empty = self._columns[name], self._code(None)
        if given is not None:
            codes[:] = array("i", [self._code(given)]) * len(codes)
        elif fallback is not None and empty in codes:
            code = self._code(fallback)
            codes[:] = array("i", [code if old == empty else old for old in codes])

    def _code(self, name: str | None) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)


@dataclass(frozen=True, slots=True)
class LogRun:
    """Description of the run of a test, as far as its log says; None where it does not.

    Attributes
    ----------
    launch : str or None
        ``stream`` or ``graph`` (``-G``): different worlds, never to be mixed in one calibration.
    graph_launches : int or None
    registered : int or None
        ``-R``: 0 none, 1 registered, 2 symmetric.
    blocking : int or None
        ``-z``: the host waits after every operation.
    average : int or None
        ``-a``: the time is that of rank 0 (0), the mean (1), the least (2) or the greatest (3) over the ranks.
    cpu_time : bool
        ``-C``: times are those of the host's calls, useless here; all rows are dropped.
    split : str or None
        NCCL_TESTS_SPLIT or NCCL_TESTS_SPLIT_MASK: groups that run at once.
    groups : int or None
        How many groups the list of ranks shows.
    members : tuple of tuple of int
        The ranks of each group, where that list shows several.
    program, program_version : str or None
        ``nccl-tests`` or ``rccl-tests``.
    library, library_version : str or None
        ``NCCL`` or ``RCCL``.
    library_line : int or None
        Line of the comment that *library_version* is from.
    library_fault : str
        Why the library of a comment cannot be read; empty if it can, or there is none.
    gpus : tuple of str
        Names of the GPUs in the list of ranks, each once.
    seats : tuple of (int, int)
        Host, by its place in *hosts*, and number of the device of each rank, if the list of ranks is whole and no
        device is there twice.
    virtual : bool
        All GPUs are ones that a virtual machine is handed: on the first bus, where no other machine has any, or
        virtual functions (``VF``) by their names.
    failed : bool
        The closing lines say so: ``Out of bounds values : 4 FAILED``.
    """

    program: str | None = None
    program_version: str | None = None
    library: str | None = None
    library_version: str | None = None
    library_line: int | None = None
    library_fault: str = ""
    launch: str | None = None
    graph_launches: int | None = None
    registered: int | None = None
    blocking: int | None = None
    average: int | None = None
    cpu_time: bool = False
    split: str | None = None
    groups: int | None = None
    members: tuple[tuple[int, ...], ...] = ()
    threads: int | None = None
    gpus_per_thread: int | None = None
    iterations: int | None = None
    warmups: int | None = None
    aggregated: int | None = None
    validation: int | None = None
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    seats: tuple[tuple[int, int], ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    command: str | None = None
    printed_busbw_Bps: float | None = None
    virtual: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Test:
    """One table of a log.

    Attributes
    ----------
    op, ranks, nodes : str or int or None
        *ranks* of one communicator and the *nodes* that it spans.
    rows : Table
    run : LogRun
    source : str
        The process that printed the table, where the log carries labels (``0`` of ``[1,0]<stdout>:``).
    first_line, last_line : int
    dropped : tuple of Dropped
        At most `LISTED_DROPS`; *n_dropped* counts all.
    warnings : tuple of str
    contradictions : tuple of str
        What the log denies of what it says elsewhere, or of what the caller does.
    no_op, no_ranks : str
        Why what the text says of the operation, or of the ranks, is not taken; empty if it is, or says nothing.
    """

    op: str | None
    ranks: int | None
    nodes: int | None
    rows: Table
    run: LogRun
    source: str
    first_line: int
    last_line: int
    dropped: tuple[Dropped, ...] = ()
    n_dropped: int = 0
    warnings: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    no_op: str = ""
    no_ranks: str = ""

    __test__ = False  # not a test of pytest


@dataclass(frozen=True, slots=True)
class Log:
    """All tests of a file that have rows, and what was lost.

    Attributes
    ----------
    path : str
    tests : tuple of Test
    dropped : tuple of Dropped
    n_dropped : int
    warnings : tuple of str
    """

    path: str
    tests: tuple[Test, ...]
    dropped: tuple[Dropped, ...]
    n_dropped: int
    warnings: tuple[str, ...]

    @property
    def rows(self) -> Iterator[LogRow]:
        """The rows of all tests."""
        return (row for test in self.tests for row in test.rows)

    def __len__(self) -> int:
        return sum(len(test.rows) for test in self.tests)
