"""Files that may hold a schedule: their bytes, and the text in them, packed by gzip or not."""

from __future__ import annotations

import os
import zlib

from collsim.core.errors import Fault, SpecError
from collsim.core.input_files import read_input_or_stdin

__all__ = ["MOST_PACKED", "read_schedule_file", "text_of"]

MAX_FILE_BYTES = 2**30
"""Longest text of a schedule, unpacked."""
A_FILE_IS = "check the path; a schedule file is JSON, or JSON packed by gzip"
MOST_PACKED = 200
"""Highest ratio of a text to its packed file, beyond `FREE_BYTES`; schedules come to some tens."""
FREE_BYTES = 2**24


def read_schedule_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file that may hold a schedule, ``-`` for stdin.

    Raises
    ------
    SpecError
        It cannot be read.
    """
    try:
        return read_input_or_stdin(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SpecError(Fault(f"cannot read: {why}", os.fspath(path), A_FILE_IS)) from None


def text_of(content: bytes, file: str) -> str:
    """Return the text of a file, unpacked if it is compressed."""
    try:
        if content[:2] == b"\x1f\x8b":
            content = _unpacked(content, file)
        text = content.decode()
    except ValueError:
        raise SpecError(Fault("cannot read: not UTF-8 text", file, A_FILE_IS)) from None
    except OSError as error:  # what gzip finds wrong
        raise SpecError(Fault(f"cannot read: {error.strerror or error}", file, A_FILE_IS)) from None
    except (EOFError, zlib.error):
        raise SpecError(Fault("cannot read: the compressed data are damaged or cut off", file)) from None
    if len(content) > MAX_FILE_BYTES:
        raise SpecError(Fault(f"longer than {MAX_FILE_BYTES} bytes", file))
    return text


def _unpacked(content: bytes, file: str) -> bytes:
    """Return the text in a gzip file, but not much more than may be."""
    import gzip
    import io

    limit = min(MAX_FILE_BYTES, max(FREE_BYTES, MOST_PACKED * len(content)))
    with gzip.open(io.BytesIO(content)) as stream:
        text = stream.read(limit + 1)
    if limit < len(text) <= MAX_FILE_BYTES:
        hint = f"no schedule is {MOST_PACKED} times as long as its packed file; give it unpacked if this one is"
        raise SpecError(Fault(f"unpacks {len(content)} bytes to more than {limit}", file, hint))
    return text
