"""Files that are read, whatever they are, and stdin: no command waits for ever for a pipe to which nobody writes."""

from __future__ import annotations

import codecs
import errno
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["beside", "name_of_input", "narrowed", "open_input", "read_input", "read_input_or_stdin", "wide_encoding"]

WAIT_S = 5.0
"""So long a pipe may be without anyone who writes to it (chosen); who has opened it may take any time."""


def open_input(path: str | os.PathLike[str]) -> BinaryIO:
    """Return an open file; the caller closes it.

    Raises
    ------
    OSError
        As `open` does; a `TimeoutError` for a named pipe that nobody opens to write to it.
    ValueError
        The name cannot be that of a file.
    """
    return _open_pipe(path) if Path(path).is_fifo() else Path(path).open("rb")


def read_input(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the bytes of a file, one more than *most_bytes* of a longer one; raise as `open_input`."""
    with open_input(path) as stream:
        return stream.read(most_bytes + 1)


def read_input_or_stdin(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the bytes of a file, or of stdin for ``-``, as `read_input` does; stdin can be read only once."""
    return sys.stdin.buffer.read(most_bytes + 1) if os.fspath(path) == "-" else read_input(path, most_bytes)


def name_of_input(path: str | os.PathLike[str]) -> str:
    """Return what messages call a file: ``stdin`` for ``-``.

    >>> name_of_input("ring.json"), name_of_input("-")
    ('ring.json', 'stdin')
    """
    return "stdin" if os.fspath(path) == "-" else os.fspath(path)


def beside(path: str | os.PathLike[str]) -> str:
    """Return the beginning of a hint that offers a file with a name like that of one that is not there; else empty.

    >>> beside("examples/sweep.yml")
    'did you mean "examples/sweep.yaml"? '
    """
    from collsim.core.errors import nearest

    with suppress(OSError, ValueError):
        file = Path(path)
        near = (
            None
            if file.exists()
            else nearest(file.name, [each.name for each in file.parent.iterdir() if each.is_file()])
        )
        return f'did you mean "{file.parent / near}"? ' if near else ""
    return ""


def _open_pipe(path: str | os.PathLike[str]) -> BinaryIO:
    """Return an open pipe once somebody has opened its other end."""
    from threading import Thread

    opened: list[BinaryIO] = []
    failed: list[OSError] = []

    def wait() -> None:
        try:
            opened.append(Path(path).open("rb"))  # noqa: SIM115 - the caller closes it
        except OSError as error:
            failed.append(error)

    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(WAIT_S)
    if failed:
        raise failed[0]
    if opened:
        return opened[0]
    with suppress(OSError):  # lets the thread go, which would hold the pipe open
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    waiting.join(WAIT_S)
    for stream in opened:
        stream.close()
    raise TimeoutError(errno.ETIMEDOUT, f"nobody has opened this pipe to write to it for {WAIT_S:g} s", str(path))


def wide_encoding(head: bytes) -> str | None:
    """Return the UTF-16 or UTF-32 encoding that *head* shows, by its byte order mark or by its zeros."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = head[0:512:2], head[1:512:2]
    if len(odd) >= 8:
        if odd.count(0) > 0.9 * len(odd) and even.count(0) < 0.1 * len(even):
            return "utf-16-le"
        if even.count(0) > 0.9 * len(even) and odd.count(0) < 0.1 * len(odd):
            return "utf-16-be"
    return None


def narrowed(content: bytes) -> bytes:
    r"""Return text of two or four bytes a character, as PowerShell writes it, as UTF-8; all else less its mark.

    >>> narrowed("GPU0".encode("utf-16")), narrowed(b"GPU0")
    (b'GPU0', b'GPU0')
    """
    encoding = wide_encoding(content)
    if encoding is None:
        return content.removeprefix(codecs.BOM_UTF8)
    text = content.decode(encoding, "replace").removeprefix("\ufeff")
    return re.sub(r"^<\?xml[^>]*\?>", "", text).encode()  # which names the encoding
