"""Open a log, whatever it is packed in, and hand out its lines as text; never more than one line in memory.

Understands gzip, bzip2 and xz files, UTF-8, UTF-16 and latin-1, all three kinds of line ends and ``-`` for stdin.
This module imports nothing of the package but errors.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from collsim.core.errors import Fault, SpecError
from collsim.core.input_files import beside, open_input, wide_encoding

__all__ = ["LogLines"]

LONGEST_LINE_BYTES = 1 << 25
"""A longer line is cut off here; a JSON report of nccl-tests is one line of a few megabytes."""

PEEKED_BYTES = 4096
MOST_BYTES, MOST_LINES = 1 << 28, 5_000_000
"""Of a log, unpacked: more is a device or a pipe that never ends. The longest public log has a hundredth of it."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNREADABLE = (EOFError, OSError, lzma.LZMAError, zlib.error, UnicodeError)
_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


class LogLines:
    """The lines of a log with their numbers; of one that was read already, its *content* is given.

    Attributes
    ----------
    trouble : str or None
        Why reading stopped before the end of the file, if it did.
    """

    def __init__(self, path: str | Path, content: bytes | None = None) -> None:
        self.name = "stdin" if str(path) == "-" else str(path)
        self.trouble: str | None = None
        self.most_bytes, self.most_lines = MOST_BYTES, MOST_LINES
        self._close = str(path) != "-"
        if content is not None:
            self._raw: IO[bytes] = io.BytesIO(content)
            return
        try:
            if self._close and Path(path).is_char_device():
                hint = "give the path of a log"
                raise SpecError(Fault("this is a device, which may never end", self.name, hint))
            raw = _stdin() if not self._close else open_input(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = f'{beside(path)}give the path of a log, or "-" to read from stdin'
            fault = Fault(f"cannot be read: {reason}", self.name, hint)
            raise SpecError(fault) from error
        self._raw = raw

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield (line number, text without its line end); pieces parted by a bare carriage return share a number."""
        number = seen = 0
        try:
            stream, encoding = _unpack(self._raw)
            for number, text in enumerate(_texts(stream, encoding), 1):
                seen += len(text)
                if seen > self.most_bytes or number > self.most_lines:
                    most = f"{self.most_bytes:,} bytes and {self.most_lines:,} lines"
                    self.trouble = f"reading stopped after line {number}: a log has at most {most}"
                    return
                clean = _ANSI.sub("", text) if "\x1b" in text else text
                clean = clean.rstrip("\r\n\x00\x1a")
                if "\r" in clean:
                    for piece in clean.split("\r"):
                        yield number, piece
                else:
                    yield number, clean
        except _UNREADABLE as error:
            self.trouble = f"reading stopped after line {number}: {str(error) or type(error).__name__}"
        finally:
            if self._close:
                self._raw.close()


def _stdin() -> IO[bytes]:
    return sys.stdin.buffer


def _unpack(raw: IO[bytes]) -> tuple[IO[bytes], str | None]:
    """Return the unpacked stream, and its encoding if it is one of two bytes a character."""
    stream = _peekable(raw)
    head = _peek(stream)
    for magic, opener in _OPENERS.items():
        if head.startswith(magic):
            stream = io.BufferedReader(cast(io.RawIOBase, opener(stream, "rb")))
            head = _peek(stream)
    return cast(IO[bytes], stream), wide_encoding(head)


def _peekable(raw: IO[bytes]) -> io.BufferedReader:
    return raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw))


def _peek(stream: io.BufferedReader) -> bytes:
    return stream.peek(PEEKED_BYTES)[:PEEKED_BYTES]


def _texts(stream: IO[bytes], encoding: str | None) -> Iterator[str]:
    if encoding:
        wide = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n")
        while text := wide.readline(LONGEST_LINE_BYTES):
            yield text
        wide.detach()
        return
    while line := stream.readline(LONGEST_LINE_BYTES):
        try:
            yield line.decode("utf-8-sig" if line.startswith(codecs.BOM_UTF8) else "utf-8")
        except UnicodeDecodeError:
            yield line.decode("latin-1")
