"""Streams of a log: what one process printed, its facts, the table under way and a row that is not whole yet.

This module imports only the other modules of the reader.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import fields
from typing import Any

from collsim.calibration.logs.comments import Comments, tell
from collsim.calibration.logs.facts import Facts
from collsim.calibration.logs.launchers import NAMED
from collsim.calibration.logs.log_sections import LogSection
from collsim.calibration.logs.named_tables import Columns
from collsim.calibration.logs.printed_rows import Block, RawRow, RowStart, choice_of

__all__ = ["LONGEST_TEXT", "Stream"]

LONGEST_TEXT = 8192


class Stream:
    """Output of one process: its facts, the table under way and a row that is not whole yet."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.facts = Facts()
        self.before: Facts | None = None
        self.current: LogSection | None = None
        self.columns: Columns | None = None
        self.pending: RowStart | None = None
        self.parsed: tuple[str | None, int | None, list[Block | None], str] = (None, None, [], "")
        self.half: RawRow | None = None
        self.command = ""
        self.record_key: tuple[Any, ...] | None = None
        self.comments: Comments | None = None
        """Those that the facts of the table under way hold; None until it begins."""
        self.op_before: str | None = None
        """The operation that a table without a header of its own has from the one before."""

    @property
    def has_rows(self) -> bool:
        """True if the table under way holds anything."""
        return self.pending is not None or self.half is not None or bool(self.current and len(self.current.table))

    def section(self, line: int) -> LogSection:
        """Return the table under way, a new one if there is none."""
        if self.current is None:
            self.current = LogSection(self.facts, self.label, line)
        self.current.facts = self.facts
        return self.current

    def whole_command(self, text: str) -> str:
        """Return a line; the pieces of a launcher's command, which backslashes part, as one when its last has come."""
        if not self.command and not (text.rstrip().endswith("\\") and NAMED.search(text)):
            return text
        self.command = f"{self.command} {text}".lstrip()
        if text.rstrip().endswith("\\") and len(self.command) < LONGEST_TEXT:
            self.command = self.command.rstrip().removesuffix("\\")
            return ""
        text, self.command = self.command, ""
        return text

    def inherit(self) -> None:
        """Take over from the test before what a table without a header of its own lacks."""
        if self.before is None:
            return
        own = self.facts
        self.facts = self.before.for_next()
        for entry in fields(Facts):
            value = getattr(own, entry.name)
            if value and value != 1:
                setattr(self.facts, entry.name, value)
        self.op_before = None if own.op else self.facts.op
        if own.op_hint and not own.op:
            self.facts.op = None
        self.before = None

    def hear(self, comments: Comments, fresh: Container[str]) -> None:
        """Take what comments say before the first row of a table; a *fresh* operation goes before an inherited one."""
        if self.has_rows or self.comments is comments:
            return
        self.comments = comments
        if "op" in fresh and self.facts.op == self.op_before:
            self.facts.op = None
        tell(comments, self.facts)

    def flush(self) -> None:
        """Add the row under way with the halves that it has."""
        if self.half is not None:
            row, self.half = self.half, None
            self.section(row.line).add(row)
        if self.pending is None:
            return
        start, self.pending = self.pending, None
        section = self.section(start.line)
        redop, root, blocks, fault = self.parsed
        if fault or not blocks:
            section.drop(start.line, fault or "the row ends too early", start.text)
            return
        halves = [*blocks, None][:2]
        if len(blocks) == 1 and (self.facts.in_place_only or start.gap):
            halves = [None, blocks[0]]
        elif None in blocks:
            name = "out-of-place" if blocks[0] is None else "in-place"
            section.drop(start.line, f"{name} time and algbw do not belong to {start.size} bytes", start.text)
        if self.facts.in_place_first:
            halves.reverse()
        choice = choice_of(start.rest)
        row = RawRow(start.size, start.count, start.dtype, redop, root, halves[0], halves[1], start.line, choice)
        section.add(row, start.text)
