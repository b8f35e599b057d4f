"""Read logs of nccl-tests and rccl-tests as people have them: `read_log` for a file, `read_tests` for a long stream.

What is read, what is repaired and what is dropped is said in docs/logs.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collsim.calibration.logs.facts import op_in_words
from collsim.calibration.logs.line_reader import LogReader
from collsim.calibration.logs.lines import LogLines
from collsim.calibration.logs.log_types import LISTED_DROPS, Dropped, Log, Test
from collsim.core.errors import Fault, SpecError, UnknownNameError
from collsim.core.operations import dtype_bytes, operation

__all__ = ["read_log", "read_tests"]

OVERRIDES = (
    "op", "ranks", "nodes", "dtype", "redop", "launch", "registered", "blocking", "library", "library_version",
)  # fmt: skip
MOST_LINES_WITHOUT_ROWS = 5_000_000
"""Before its first row; debug text of a large run has a thousandth of it. It takes about ten seconds to read."""
LAUNCHES = ("stream", "graph")


def read_tests(path: str | Path, content: bytes | None = None, **overrides: Any) -> Iterator[Test]:
    """Yield the tests of a log one by one, in memory that does not grow with the file.

    A test that began but has no usable row is yielded too; its table is empty.

    Parameters
    ----------
    path : str or Path
        A file, packed or not; ``-`` is stdin.
    content : bytes, optional
        What is in it, if that was read already.
    **overrides
        ``op``, ``ranks``, ``nodes``, ``dtype``, ``redop``, ``launch``, ``registered``, ``blocking``, ``library``,
        ``library_version``: hold for all tests, whatever the log says.

    Raises
    ------
    SpecError
        If the file cannot be read, or holds no usable row.
    """
    given = _checked(overrides)
    lines = LogLines(path, content)
    reader = LogReader(given, op_in_words(Path(lines.name).name) if lines.name != "stdin" else None)
    counts = _Counts()
    for line, text in lines:
        reader.feed(line, text)
        if line >= MOST_LINES_WITHOUT_ROWS and not (counts.rows or reader.has_rows):
            lines.trouble = f"reading stopped after line {line:,}: no row until there"
            break
        while reader.done:
            yield from counts.pass_on(reader.done.popleft())
    reader.close()
    while reader.done:
        test = reader.done.popleft()
        yield from counts.pass_on(test)
    if lines.trouble:
        counts.trouble = lines.trouble
        yield _lost(lines.trouble)
    if not counts.rows:
        raise SpecError(_no_rows(lines.name, reader, counts))


def read_log(path: str | Path, content: bytes | None = None, **overrides: Any) -> Log:
    """Read all tests of a log.

    Parameters
    ----------
    path, content, **overrides
        As for `read_tests`.

    Returns
    -------
    Log

    Raises
    ------
    SpecError
        If the file cannot be read, or holds no usable row: what was seen and what is needed.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "all_reduce.log"
    >>> _ = path.write_text("1048576  262144  float  sum  -1  20.00  52.43  91.75  0  19.00  55.19  96.58  0")
    >>> log = read_log(path, nodes=1, launch="stream")
    >>> test = log.tests[0]
    >>> test.op, test.ranks, test.rows[0].time_s
    ('all_reduce', 8, 2e-05)
    """
    tests: list[Test] = []
    dropped: list[Dropped] = []
    warnings: list[str] = []
    n_dropped = 0
    for test in read_tests(path, content, **overrides):
        n_dropped += test.n_dropped
        dropped += test.dropped[: LISTED_DROPS - len(dropped)]
        where = f"lines {test.first_line} to {test.last_line}: " if test.first_line else ""
        warnings += [where + note for note in test.warnings]
        if len(test.rows):
            tests.append(test)
        elif test.first_line and test.op:
            warnings.append(f"{where}{test.op} has no usable row")
    sources = sorted({test.source for test in tests})
    if len(sources) > 1:
        warnings.append(f"{len(sources)} labelled processes printed tables of their own: {', '.join(sources[:8])}")
    return Log(str(path), tuple(tests), tuple(dropped), n_dropped, tuple(dict.fromkeys(warnings)))


class _Counts:
    """Counts of usable and dropped rows over all tests of a log, and why reading stopped early, if it did."""

    def __init__(self) -> None:
        self.rows = self.n_dropped = 0
        self.first_drops: list[Dropped] = []
        self.trouble: str | None = None

    def pass_on(self, test: Test) -> Iterator[Test]:
        self.rows += len(test.rows)
        self.n_dropped += test.n_dropped
        self.first_drops += test.dropped[: 3 - len(self.first_drops)]
        yield test


def _lost(trouble: str) -> Test:
    """Return an empty test that carries the news that the file could not be read to its end."""
    from collsim.calibration.logs.log_types import LogRun, Table

    return Test(None, None, None, Table(), LogRun(), "", 0, 0, warnings=(trouble,))


def _no_rows(name: str, reader: LogReader, counts: _Counts) -> Fault:
    what = f"no usable row in {reader.seen} lines"
    seen = sorted(reader.marks)
    if seen:
        what += f"; seen: {', '.join(seen)}"
    if counts.n_dropped:
        what += f"; {counts.n_dropped} dropped, first {counts.first_drops[0]}"
    if counts.trouble:
        what += f"; {counts.trouble}"
    hint = (
        "needed: the table that nccl-tests or rccl-tests prints (size, count, type, time, algbw, busbw), "
        "its -J report, or a csv file with columns for the size in bytes and the time"
    )
    return Fault(what, name, hint)


def _checked(overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the overrides with names in their one spelling; None means not given."""
    given = {name: value for name, value in overrides.items() if value is not None}
    for name in given:
        if name not in OVERRIDES:
            raise UnknownNameError("override", name, OVERRIDES)
    if "op" in given:
        given["op"] = operation(str(given["op"])).name
    if "dtype" in given:
        given["dtype"] = dtype_bytes(str(given["dtype"]))[0]
    if given.get("launch", "stream") not in LAUNCHES:
        raise UnknownNameError("launch mode", str(given["launch"]), LAUNCHES)
    for name in ("ranks", "nodes"):
        if name in given and (not isinstance(given[name], int) or given[name] < 1):
            raise SpecError(Fault(f'{name} "{given[name]}" is not a whole number above 0', "override"))
    return given
