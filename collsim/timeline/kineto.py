"""Traces of torch.profiler (Kineto) as text: events one by one, so that a file may be larger than memory allows."""

from __future__ import annotations

import codecs
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from collsim.core.errors import Fault, InputError
from collsim.core.input_files import beside
from collsim.core.progress import steps

__all__ = ["TraceText", "check_kind", "is_trace"]

BLOCK = 1 << 18
"""Bytes that are read in one go."""
PIECE = 1 << 10
"""Compressed bytes that are lost if one of them is wrong."""
MAGIC, GZIP = b"\x1f\x8b", 31
"""How gzip begins (RFC 1952), and what tells zlib so."""
KEY = '"traceEvents"'
MOST_HEAD = 64 << 20
"""Characters in front of the events: properties of the devices and process groups."""
CHAKRA = re.compile(r'"schema"\s*:\s*"[^"]*chakra', re.IGNORECASE)
CHAKRA_WORDS = "is an execution trace (Chakra): it says what ran, but not when on the GPU"
MOST_SCHEMA = 1 << 12
FOREIGN = {
    ".et": CHAKRA_WORDS,
    ".nsys-rep": "is a report of Nsight Systems",
    ".sqlite": "is a database, such as Nsight Systems exports",
    ".pftrace": "is a trace of Perfetto in its binary format",
    ".csv": "is a table",
    ".pt": "is a file of tensors",
}
"""Ends of files of other tools, and what those are."""
SUFFIXES = (".json", ".json.gz", ".pt.trace.json", ".gz")


def is_trace(file: str) -> bool:
    """Return True if the name of a file is that of a trace.

    >>> is_trace("rank0.json.gz"), is_trace("step.yaml")
    (True, False)
    """
    return file.endswith(SUFFIXES)


def check_kind(file: str) -> None:
    """Refuse files of other tools, by their names.

    Raises
    ------
    InputError
        Of such.
    """
    if what := FOREIGN.get(Path(file).suffix.lower()):
        hint = "give a trace of torch.profiler (export_chrome_trace: .json or .json.gz), or a workload in YAML"
        raise InputError(Fault(what, file, hint))


class TraceText:
    """Text of a trace.

    Attributes
    ----------
    head : dict
        What the file says beside its events; complete once all events were read.
    cut : str
        How the file ends too soon; empty if it does not.

    Raises
    ------
    InputError
        The file cannot be opened, or holds no events.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = str(file)
        self.head: dict[str, Any] = {}
        self.cut = ""

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events in the order of the file."""
        try:
            with Path(self.file).open("rb") as source:
                yield from self._events(_Reader(source))
        except OSError as error:
            raise InputError(
                Fault(
                    f"cannot be read: {error.strerror or error}",
                    self.file,
                    f"{beside(self.file)}give a file of torch.profiler",
                )
            ) from None

    def _events(self, reader: _Reader) -> Iterator[dict[str, Any]]:
        self._read_head(reader)
        decode = json.JSONDecoder().raw_decode
        while True:
            mark = reader.skip(" \t\r\n,")
            if mark == "]":
                break
            if not mark:
                self.cut = reader.trouble or "it ends inside its events"
                return
            try:
                event, reader.at = decode(reader.text, reader.at)
            except RecursionError:
                self.cut = "an event is nested too deeply"
                return
            except ValueError as error:
                if reader.more():
                    continue
                self.cut = reader.trouble or f"it ends inside an event ({error})"
                return
            if isinstance(event, dict):
                yield event
        self._read_tail(reader)

    def _read_head(self, reader: _Reader) -> None:
        if reader.skip(" \t\r\n\ufeff") == "[":
            reader.at += 1
            return
        while (found := reader.text.find(KEY)) < 0:
            if len(reader.text) > MOST_HEAD or not reader.more():
                hint = "give a trace that torch.profiler exported with export_chrome_trace"
                what = CHAKRA_WORDS if CHAKRA.search(reader.text[:MOST_SCHEMA]) else f"holds no {KEY}"
                raise InputError(Fault(reader.trouble or what, self.file, hint))
        try:
            self.head = json.loads(f"{reader.text[reader.at : found].rstrip().rstrip(',')}}}")
        except (RecursionError, ValueError):
            self.head = {}
        reader.at = found + len(KEY)
        reader.skip(" \t\r\n:")
        if reader.skip(" ") != "[":
            raise InputError(Fault(f"{KEY} is no list", self.file, "give a trace of torch.profiler"))
        reader.at += 1

    def _read_tail(self, reader: _Reader) -> None:
        reader.at += 1
        while reader.more():
            if len(reader.text) > MOST_HEAD:
                return
        if not (rest := reader.text[reader.at :].strip().lstrip(",").strip()).endswith("}"):
            return
        try:
            self.head |= json.loads("{" + rest)
        except (RecursionError, ValueError):
            return


class _Reader:
    """Text as far as it is needed: *text* from *at* on is not yet used."""

    def __init__(self, source: BinaryIO) -> None:
        self.source, self.text, self.at, self.trouble = source, "", 0, ""
        self._unpack = zlib.decompressobj(GZIP) if source.peek(2)[:2] == MAGIC else None  # type: ignore[attr-defined]
        blocks = -(-os.fstat(source.fileno()).st_size // BLOCK)
        self._told = steps(range(blocks), "blocks of a trace")
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def more(self) -> bool:
        """Read on; return False at the end."""
        while data := self._block():
            if self._unpack is not None:
                data = self._unpacked(data)
            if found := self._decode(data):
                self.text, self.at = self.text[self.at :] + found, 0
                return True
            if self.trouble:
                return False
        if self._unpack is not None and not self._unpack.eof:
            self.trouble = self.trouble or "it is cut short: the compressed data has no end"
        return False

    def _block(self) -> bytes:
        """Return the next block, and tell how many there were."""
        next(self._told, None)
        return self.source.read(BLOCK)

    def _unpacked(self, data: bytes) -> bytes:
        """Return what compressed data holds, as far as it is sound; a file may hold several, one after the other."""
        found = bytearray()
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            while piece:
                assert self._unpack is not None
                try:
                    found += self._unpack.decompress(piece)
                except zlib.error as error:
                    self.trouble = f"it is damaged: {error}"
                    return bytes(found)
                if piece := self._unpack.unused_data:
                    self._unpack = zlib.decompressobj(GZIP)
        return bytes(found)

    def skip(self, what: str) -> str:
        """Go to the first character that is not in *what* and return it; nothing at the end."""
        while True:
            text, at = self.text, self.at
            while at < len(text) and text[at] in what:
                at += 1
            self.at = at
            if at < len(text):
                return text[at]
            if not self.more():
                return ""
