"""Byte matrices from text files: who sends how many bytes to whom in an all_to_all_v.

A file has one line per sender and one entry per receiver, separated by blanks or commas::

    # from row to column
    0    64K  1M
    64K  0    1M
    128K 64K  0

Entries are bytes or sizes such as ``64K``; ``#`` starts a comment; the diagonal is what a rank keeps for itself. All
faults of a file are reported at once. This module imports only numpy, `collsim.core.units` and `collsim.core.errors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, SpecError, UnitError
from collsim.core.input_files import read_input
from collsim.core.units import MAX_SIZE_BYTES, parse_size_bytes

__all__ = ["load_byte_matrix"]

MAX_FAULTS = 20
"""So many faults are shown; the rest are counted."""

MAX_FILE_BYTES = 2**28
"""A line of 2,048 sizes for each of as many ranks has a tenth of it."""

_ENTRY = re.compile(r"[^\s,]+|,")
_PLAIN = re.compile(r"[0-9]{1,18}")
_PLAIN_LINE = re.compile(r"(?: *[0-9]{1,18}(?= |\Z))+ *")
_COMMA_LINE = re.compile(r"(?: *[0-9]{1,18} *,)* *[0-9]{1,18} *")
"""Nearly all lines: bytes and blanks, or bytes and commas, which need no look at each entry."""
_SHAPE_HINT = "give one line per sender and one entry per receiver"

_Row = tuple[int, list[int]]
"""Line number and sizes; -1 stands for an entry that could not be read."""


def load_byte_matrix(path: str | PathLike[str]) -> NDArray[np.int64]:
    r"""Return int64[n, n], the bytes from row to column.

    Raises
    ------
    SpecError
        With every fault of the file as ``file:line:column``.

    Examples
    --------
    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("0 64K # first rank\n1e3, 0")
    ...     file.flush()
    ...     load_byte_matrix(file.name).tolist()
    [[0, 65536], [1000, 0]]
    """
    name = str(path)
    faults: list[Fault] = []
    rows: list[_Row] = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        sizes = _sizes(line.partition("#")[0], f"{name}:{number}", faults)
        if sizes:
            rows.append((number, sizes))
    faults += _shape_faults(rows, name)
    if not faults:
        faults += _total_faults(rows, name)
    if faults:
        rest = len(faults) - MAX_FAULTS
        raise SpecError(*faults[:MAX_FAULTS], *([Fault(f"... and {rest} more faults", name)] if rest > 0 else []))
    return np.array([sizes for _, sizes in rows], dtype=np.int64)


def _text(path: str | PathLike[str]) -> str:
    """Return the text of a file, refusing what cannot be one."""
    name = str(path)
    try:
        content = read_input(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(
            Fault(f"cannot read the byte matrix: {reason}", name, "check the path that --matrix names")
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise SpecError(
            Fault(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB", name, "a byte matrix is a small text file")
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SpecError(Fault("this is not a text file", name, f"{_SHAPE_HINT}, as text"))
    return text


def _sizes(line: str, where: str, faults: list[Fault]) -> list[int]:
    """Return the sizes in a line, -1 for each that cannot be read; add what is wrong to *faults*."""
    if _PLAIN_LINE.fullmatch(line):
        return list(map(int, line.split()))
    if _COMMA_LINE.fullmatch(line):
        return list(map(int, line.split(",")))
    return list(_entries(line, where, faults))


def _entries(line: str, where: str, faults: list[Fault]) -> Iterator[int]:
    """Yield the same, entry by entry."""
    after_comma = True
    column = 1
    for match in _ENTRY.finditer(line):
        entry, column = match[0], match.start() + 1
        if entry != ",":
            yield _size(entry, f"{where}:{column}", faults)
        elif after_comma:
            faults.append(Fault("an entry is missing before the comma", f"{where}:{column}", "write 0 for nothing"))
            yield -1
        after_comma = entry == ","
    if after_comma and line.strip():
        faults.append(Fault("an entry is missing after the comma", f"{where}:{column}", "write 0 for nothing"))
        yield -1


def _size(entry: str, where: str, faults: list[Fault]) -> int:
    """Return the size that *entry* stands for, or -1 after adding to *faults*."""
    if _PLAIN.fullmatch(entry):
        return int(entry)
    try:
        return parse_size_bytes(entry, where)
    except UnitError as error:
        faults.extend(error.faults)
        return -1


def _shape_faults(rows: list[_Row], name: str) -> Iterator[Fault]:
    """Yield what is wrong with the shape of the matrix."""
    n, lengths = len(rows), {len(sizes) for _, sizes in rows}
    if not rows:
        yield Fault("the file holds no matrix", name, _SHAPE_HINT)
    elif n == 1:
        yield Fault("the matrix has one row", f"{name}:{rows[0][0]}:1", "a collective needs at least 2 ranks")
    elif len(lengths) == 1 and lengths != {n}:
        first = rows[0]
        yield Fault(f"the matrix has {n} rows of {len(first[1])} entries", f"{name}:{first[0]}:1", _SHAPE_HINT)
    else:
        for number, sizes in rows:
            if len(sizes) != n:
                entries = "1 entry" if len(sizes) == 1 else f"{len(sizes)} entries"
                yield Fault(f"the row has {entries}, but there are {n} rows", f"{name}:{number}:1", _SHAPE_HINT)


def _total_faults(rows: list[_Row], name: str) -> Iterator[Fault]:
    """Yield whether the matrix moves nothing or more than can be counted."""
    total = sum(sum(sizes) for _, sizes in rows)
    if total == 0:
        yield Fault("every entry of the matrix is 0", name, "give some rank something to send")
    if total > MAX_SIZE_BYTES:
        yield Fault(f"all entries together are more than {MAX_SIZE_BYTES:,} bytes", name, "write smaller sizes")
