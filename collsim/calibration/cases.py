"""Measured rows as requests to the model: `read_cases` for files, `read_sections` for a stream.

A `MeasuredCase` is hashable and holds all that a prediction may depend on, so that equal calls are predicted once. What
a log does not say keeps its default; what collsim cannot be told (groups of unlike sizes, an unknown byte matrix) is
skipped with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collsim.calibration.gpu_models import other_gpus
from collsim.calibration.logs.log_types import LogRow, LogRun, Test
from collsim.calibration.logs.printed_rows import Choice
from collsim.calibration.logs.reading import read_tests
from collsim.core.errors import Fault, InputError, UnknownNameError
from collsim.core.operations import OPERATIONS, REDUCTIONS, dtype_bytes
from collsim.library.costs.hosts import USUAL_CALLS, USUAL_REPLAYED
from collsim.library.costs.profile import REPLAYS
from collsim.simulation.request.groups import Lists

if TYPE_CHECKING:
    from collections.abc import Callable

    from collsim.topology import Topology

__all__ = [
    "Measured",
    "MeasuredCase",
    "Section",
    "Skipped",
    "nearest_library",
    "read_cases",
    "read_sections",
    "used_time_s",
]

ByteMatrix = tuple[tuple[int, ...], ...]

SLOW_FIRST_USE = ("mi300x_ubb8",)
"""Systems in whose public logs the out-of-place half, run first, pays for first uses: the smaller half counts."""
MATRIX_FILE = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE"
MATRIX_SCALE = "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE"
MATRIX_SPREAD = "NCCL_TESTS_ALLTOALLV_SPREAD"
MATRIX_SLACK = 0.01
"""A byte matrix belongs to a row if its busiest rank agrees with the size column this well; entries were rounded."""


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """All that a prediction may depend on, as far as the log says it.

    Attributes
    ----------
    op : str
    ranks : int
    size_bytes : int
        The size column; 0 in the case that the rows of a `Section` share.
    dtype, redop : str
    root : int
    nodes : int or None
        Hosts; None if the log does not say.
    launch : str
        ``stream`` or ``graph``; what a log does not say is a stream launch, as the tests do.
    registered : int
        0 none, 1 registered buffers, 2 symmetric.
    library : str or None
        Such as ``nccl-2.28``, the newest known one for newer major versions; None if the log names no version.
    environment : tuple of (str, str)
        Variables that change the library's choice, sorted.
    gpus_per_thread : int or None
    one_process : bool
        Whether all ranks are threads of one process.
    host : str
        Kind of host, ``auto`` if the log shows none.
    calls : int or None
        Over how many calls in a row a time is the mean, where these are fewer than usual.
    replays : int or None
        How many times in a row a graph is replayed, where that is fewer than usual.
    matrix : tuple of tuple of int or None
        Bytes from row to column of an ``all_to_all_v``.
    groups : str or None
        Ranks of each of several groups that ran at once, such as ``0,1;2,3``; *ranks* are then those of one.
    seats : tuple of (int, int)
        Host and device of each rank by the list of ranks; empty if the log does not say, or if they are the first of
        every host in their order.
    """

    op: str
    ranks: int
    size_bytes: int = 0
    dtype: str = "float"
    redop: str = "sum"
    root: int = 0
    nodes: int | None = None
    launch: str = "stream"
    registered: int = 0
    library: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    gpus_per_thread: int | None = None
    one_process: bool = False
    host: str = "auto"
    calls: int | None = None
    replays: int | None = None
    matrix: ByteMatrix | None = None
    groups: str | None = None
    seats: tuple[tuple[int, int], ...] = ()

    @property
    def all_ranks(self) -> int:
        """Ranks of all groups together."""
        return self.ranks * (1 if self.groups is None else self.groups.count(";") + 1)


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of a log with its case; times in seconds.

    *wrong* is the greater count of wrong values of both halves, *choice* what the library ran, where the log says it.
    """

    case: MeasuredCase
    file: str
    line: int
    out_of_place_s: float | None
    in_place_s: float | None
    wrong: float | None
    choice: Choice | None = None

    def time_s(self, system: str) -> float:
        """Return the time to compare with on *system*, by the rule of `used_time_s`."""
        return used_time_s(self.out_of_place_s, self.in_place_s, system)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A test, or some of its rows, that cannot be compared: which file, from which line on, and why."""

    file: str
    line: int
    reason: str

    @property
    def where(self) -> str:
        """File and line, as a fault names them."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Section:
    """One test of a log that a prediction can be told of.

    Attributes
    ----------
    case : MeasuredCase
        What its rows share; type, reduction, root and size belong to the rows.
    file : str
    line : int
        First line of its table.
    hosts : tuple of str
    source : str
        The process that printed it, where the log carries labels.
    notes : tuple of str
        What of the log the case does not hold.
    test : Test
    matrices : mapping or None
        Byte matrix by size of an ``all_to_all_v``; rows of other sizes are left out.
    """

    case: MeasuredCase
    file: str
    line: int
    hosts: tuple[str, ...]
    source: str
    notes: tuple[str, ...]
    test: Test
    matrices: Mapping[int, ByteMatrix] | None = None

    def rows(self) -> Iterator[Measured]:
        """Yield the rows that have a time."""
        for row in self.test.rows:
            if not (row.time_s or row.in_place_time_s):
                continue
            case = _case_of_row(self.case, row)
            if self.matrices is not None:
                if row.size_bytes not in self.matrices:
                    continue
                case = replace(case, matrix=self.matrices[row.size_bytes])
            wrong = max((count for count in (row.wrong, row.in_place_wrong) if count is not None), default=None)
            choice = Choice(row.algo, row.proto, row.channels)
            told = None if choice == (None, None, None) else choice
            yield Measured(case, self.file, row.line, row.time_s, row.in_place_time_s, wrong, told)


def used_time_s(out_of_place_s: float | None, in_place_s: float | None, system: str) -> float:
    """Return the time to compare with: out of place; the smaller half on `SLOW_FIRST_USE`; the only one if one lacks.

    >>> used_time_s(2e-5, 1e-5, "hgx_h100"), used_time_s(2e-5, 1e-5, "mi300x_ubb8"), used_time_s(None, 1e-5, "hgx_h100")
    (2e-05, 1e-05, 1e-05)
    """
    halves = [time_s for time_s in (out_of_place_s, in_place_s) if time_s]
    if not halves:
        raise ValueError("neither half has a time")
    return min(halves) if system in SLOW_FIRST_USE else halves[0]


def read_cases(
    paths: Iterable[str | Path],
    *,
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    topology: Topology | None = None,
    **overrides: Any,
) -> tuple[list[Measured], list[Skipped]]:
    """Return every row of some logs with its case, and what was skipped.

    Parameters
    ----------
    paths : iterable of str or Path
    library : str, optional
        Such as ``nccl-2.28``: holds for all logs, whatever they say.
    environment : mapping, optional
        Variables beside those of the logs; they go before them.
    topology : Topology, optional
        Tests whose log names GPUs of another model are skipped.
    **overrides
        ``op``, ``ranks``, ``nodes``, ``launch``, ``registered`` and the others of `read_tests`.

    Raises
    ------
    InputError
        The faults of all files that cannot be read or hold no row.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "all_reduce.log"
    >>> _ = path.write_text("1048576  262144  float  sum  -1  20.00  52.43  91.75  0  19.00  55.19  96.58  0")
    >>> measured, skipped = read_cases([path], library="nccl-2.28.9")
    >>> case = measured[0].case
    >>> case.op, case.ranks, case.size_bytes, case.library, measured[0].time_s("hgx_h100"), skipped
    ('all_reduce', 8, 1048576, 'nccl-2.28', 2e-05, [])
    """
    measured: list[Measured] = []
    skipped: list[Skipped] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            for section in read_sections(path, library=library, environment=environment, **overrides):
                if isinstance(section, Skipped):
                    skipped.append(section)
                elif topology is not None and (reason := other_gpus(section.test.run.gpus, topology)):
                    skipped.append(Skipped(section.file, section.line, reason))
                else:
                    measured.extend(section.rows())
        except InputError as error:
            faults += [fault for fault in error.faults if fault not in faults]
    if faults:
        raise InputError(*faults)
    return measured, skipped


def read_sections(
    path: str | Path,
    *,
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    seen: Callable[[Test], None] = lambda _: None,
    **overrides: Any,
) -> Iterator[Section | Skipped]:
    """Yield the tests of a log one by one, in memory that does not grow with the file; parameters as of `read_cases`.

    *seen* is called with every test, also one without a row.

    Raises
    ------
    SpecError
        The file cannot be read, or holds no usable row.
    """
    file = "stdin" if str(path) == "-" else str(path)
    given = nearest_library(library) if library is not None else None
    for test in read_tests(path, **overrides):
        seen(test)
        reason = _reason_to_skip(test)
        if reason is None and test.op == "all_to_all_v":
            yield from _irregular(test, Path(file), given, environment or {})
        elif reason is None:
            yield _section(test, file, given, environment or {})
        elif reason:
            yield Skipped(file, test.first_line, reason)


def _reason_to_skip(test: Test) -> str | None:
    """Return why a test cannot be predicted; empty if there is nothing to say, None if it can."""
    op, ranks, run = test.op, test.ranks, test.run
    if not len(test.rows):
        return "" if test.first_line and not op else "; ".join(test.warnings) or "no usable row"
    reasons = (
        (op is None, _asking(test.no_op or "the log does not say which operation this is", "--op")),
        (op not in OPERATIONS, f"{op} is not modelled"),
        (ranks is None, _asking(test.no_ranks or "the log does not say how many ranks there are", "--ranks")),
        (ranks == 1, "one rank communicates with nobody"),
        (bool(run.split) and run.groups is None, "ranks were split into groups, and the log does not list them"),
        (
            bool(run.members) and any(len(group) != ranks for group in run.members),
            "groups of different sizes run at once, which is not modelled",
        ),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _asking(reason: str, flag: str) -> str:
    """Return a reason with the flag that helps, behind a colon or a question."""
    return f"{reason}{'' if reason.endswith('?') else ':'} add {flag}"


def _section(test: Test, file: str, library: str | None, given: Mapping[str, str]) -> Section:
    """Return a test with the case that its rows share."""
    assert test.op is not None
    assert test.ranks is not None
    run = test.run
    environment, notes = _choosing(run.environment, given)
    case = MeasuredCase(
        op=test.op,
        ranks=test.ranks,
        nodes=test.nodes,
        launch=run.launch or "stream",
        registered=run.registered or 0,
        library=library or _library_of(run),
        environment=environment,
        gpus_per_thread=run.gpus_per_thread,
        one_process=(run.threads or 0) * (run.gpus_per_thread or 0) == test.ranks,
        host="virtual" if run.virtual else "auto",
        calls=_few_calls(run),
        replays=run.graph_launches if 0 < (run.graph_launches or 0) < REPLAYS else None,
        groups=Lists(run.members).text if run.members else None,
        seats=_unlike_first(run.seats, test.ranks * max(1, len(run.members))),
    )
    notes += [] if library else _far_version(run)
    return Section(case, file, test.first_line, run.hosts, test.source, (*test.warnings, *notes), test)


def _few_calls(run: LogRun) -> int | None:
    """Return over how many calls in a row, of all replays of a graph, a time is the mean; None if these are not few."""
    replayed = run.launch == "graph"
    calls = (run.iterations or 0) * ((run.graph_launches or 0) if replayed else 1)
    return calls if 0 < calls < (USUAL_REPLAYED if replayed else USUAL_CALLS) else None


def _unlike_first(seats: tuple[tuple[int, int], ...], ranks: int) -> tuple[tuple[int, int], ...]:
    """Return the seats of all ranks; nothing if they are the first devices of every host in their order."""
    hosts = 1 + max((host for host, _ in seats), default=0)
    first = tuple((rank // (ranks // hosts or 1), rank % (ranks // hosts or 1)) for rank in range(ranks))
    return () if len(seats) != ranks or seats == first else seats


def _case_of_row(common: MeasuredCase, row: LogRow) -> MeasuredCase:
    """Return the case of one row; names that collsim does not know are those that change nothing but rounding."""
    try:
        dtype = dtype_bytes(row.dtype or common.dtype)[0]
    except UnknownNameError:
        dtype = "int8"  # such as a new 8-bit float: with single bytes no size is rounded
    op = OPERATIONS[common.op]
    redop = row.redop if op.reduces and row.redop in REDUCTIONS else common.redop
    root = row.root if op.rooted and row.root is not None and 0 <= row.root < common.ranks else common.root
    return replace(common, size_bytes=row.size_bytes, dtype=dtype, redop=redop, root=root)


# --- library and environment -----------------------------------------------------------------------------------------


def _library_of(run: LogRun) -> str | None:
    """Return the nearest known version of the library that a log names."""
    version = re.match(r"\d+\.\d+", run.library_version or "")
    family = (run.library or "").lower()
    return nearest_library(f"{family}-{version[0]}") if version and family in ("nccl", "rccl") else None


def _far_version(run: LogRun) -> list[str]:
    """Return a note on a version so old or new that another major one's constants are taken; nothing of others."""
    from collsim.library.library import RANGES

    taken = _library_of(run)
    major = int((run.library_version or "").partition(".")[0][:9]) if taken else 0
    if taken is None or major in {end[0] for end in RANGES[taken.partition("-")[0]]}:
        return []
    where = f"line {run.library_line}: " if run.library_line else ""
    told = f"{where}no constants of {run.library} {run.library_version} are known"
    return [f"{told}: those of the nearest, {taken}, are taken"]


@cache
def nearest_library(name: str) -> str:
    """Return the library called *name*; of another major version, the newest or oldest that is known.

    >>> nearest_library("nccl-2.28.9"), nearest_library("nccl-2.32.3"), nearest_library("nccl-9.9")
    ('nccl-2.28', 'nccl-2.32', 'nccl-2.30')
    >>> nearest_library("nccl-1.3")
    'nccl-2.18'
    """
    from collsim.library import load_library
    from collsim.library.library import RANGES

    found = re.match(r"(nccl|rccl)[-_ v]*(\d+)\.(\d+)", name.strip().lower())
    if found:
        version, (oldest, newest) = (int(found[2][:9]), int(found[3][:9])), RANGES[found[1]]
        major, minor = newest if version[0] > newest[0] else oldest if version[0] < oldest[0] else version
        return load_library(f"{found[1]}-{major}.{minor}").name
    return load_library(name).name


def _choosing(variables: Mapping[str, str], given: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return the variables that change the library's choice, and notes on those that collsim cannot be told."""
    from collsim.library import read_environment
    from collsim.library.environment import is_modelled

    kept: dict[str, str] = {}
    notes = []
    for name, value in variables.items():
        if name in given or not name.startswith(("NCCL_", "RCCL_")):
            continue
        try:
            read_environment({name: value})
        except InputError as error:
            notes.append(f"{name}={value} of the log is not used: {error.faults[0].what}")
        else:
            if is_modelled(name):
                kept[name] = value
    return tuple(sorted({**kept, **given}.items())), notes


# --- byte matrices ---------------------------------------------------------------------------------------------------


def _irregular(
    test: Test, log: Path, library: str | None, environment: Mapping[str, str]
) -> Iterator[Section | Skipped]:
    """Yield the rows of an all_to_all_v whose byte matrix is known as a section, and each other size as skipped."""
    matrices: dict[int, ByteMatrix] = {}
    refused: dict[int, Skipped] = {}
    for row in test.rows:
        if row.size_bytes in matrices or row.size_bytes in refused:
            continue
        try:
            matrix = _matrix_of(test, row.size_bytes, log)
        except InputError as error:
            matrix = str(error.faults[0]).partition("\n")[0]
        if isinstance(matrix, str):
            refused[row.size_bytes] = Skipped(str(log), row.line, matrix)
        else:
            matrices[row.size_bytes] = matrix
    yield from refused.values()
    if matrices:
        yield replace(_section(test, str(log), library, environment), matrices=matrices)


def _matrix_of(test: Test, size_bytes: int, log: Path) -> ByteMatrix | str:
    """Return the byte matrix of a row, or why it is not known."""
    assert test.ranks is not None
    variables, n = test.run.environment, test.ranks
    if MATRIX_FILE in variables:
        path = log.parent / Path(variables[MATRIX_FILE]).name
        if not path.is_file():
            return f"the byte matrix {path.name} is not beside the log"
        matrix = _scaled(str(path), _number(variables.get(MATRIX_SCALE, "1"), 1.0))
    elif _number(variables.get(MATRIX_SPREAD, ""), 1.0) == 0:
        matrix = ((size_bytes // n,) * n,) * n
    else:
        return "the log does not say how many bytes go from whom to whom"
    if len(matrix) != n:
        return f"the byte matrix is for {len(matrix)} ranks, the test has {n}"
    busiest = max(*map(sum, matrix), *map(sum, zip(*matrix, strict=True)))
    if abs(busiest - size_bytes) > MATRIX_SLACK * size_bytes:
        return f"the busiest rank of the byte matrix moves {busiest} bytes, the size column says {size_bytes}"
    return matrix


def _number(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise


@cache
def _scaled(path: str, scale: float) -> ByteMatrix:
    """Return a byte matrix of a file at a scale."""
    from collsim.simulation.request.matrices import load_byte_matrix

    return tuple(tuple(int(entry * scale) for entry in row) for row in load_byte_matrix(path).tolist())
