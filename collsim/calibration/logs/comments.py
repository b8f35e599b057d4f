"""Comments that somebody wrote into a log: ``# op=all_gather ranks=16 nodes=2 library=NCCL 2.18``.

A statement holds for the tables after it, up to the next one of its kind. This module imports only errors, operations
and, of the reader, `facts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collsim.calibration.logs.facts import Facts, op_name
from collsim.core.errors import did_you_mean
from collsim.core.operations import OPERATIONS, REDUCTIONS

__all__ = [
    "Comments", "Said", "alike", "disagreements", "read_comment", "says_the_same", "tell", "unread", "with_statement",
]  # fmt: skip

MOST_SAID = 4
"""So many statements of a kind before one table are kept."""
LONGEST_VALUE = 60
_STATEMENT = re.compile(r"(?<![\w-])(op|ranks|nranks|nodes|nnodes)=\s*(\"[^\"]*\"|'[^']*'|[\w.-]+)")
_LIBRARY = re.compile(r"(?<![\w-])library=\s*(\"[^\"]*\"|'[^']*'|(?:(?!\s+\w+=)[^;,])*)", re.IGNORECASE)
_NAMED = re.compile(r"(NCCL|RCCL)\b(?:[ _-]?v?(\d+\.\d+(?:\.\d+)?))?(\s*)(.*)", re.IGNORECASE)
_NOTHING = ("", "none", "unknown", "-")


@dataclass(frozen=True, slots=True)
class Said:
    """One statement: what it says, on which line; *fault* is why it cannot be read."""

    value: str
    line: int
    fault: str = ""
    version: str | None = None
    """Of a library, whose family is then *value*."""

    @property
    def text(self) -> str:
        """The statement as people write it."""
        return f"{self.value} {self.version}" if self.version else self.value


Comments = Mapping[str, tuple[Said, ...]]
"""Statements by their kind: op, ranks, nodes, library; the last of a kind is the one that holds."""


def read_comment(text: str, line: int) -> Iterator[tuple[str, Said]]:
    """Yield the statements of a comment line with their kinds; of any other line none.

    >>> [(kind, said.text) for kind, said in read_comment("# op=all_gather ranks=16 library=NCCL 2.18", 1)]
    [('op', 'all_gather'), ('ranks', '16'), ('library', 'NCCL 2.18')]
    """
    if "=" not in text or not text.lstrip().startswith("#"):
        return
    for name, written in _STATEMENT.findall(text):
        kind, value = name.removeprefix("n") if name != "nodes" else name, _bare(written)
        if kind == "op" and value not in REDUCTIONS:
            yield kind, _operation(value, line)
        elif kind != "op":
            is_count = value.isdigit() and 0 < int(value[:9]) < 10**8
            fault = "" if is_count else f'line {line}: "{value}" is no number of {kind}'
            yield kind, Said(str(int(value[:9])) if is_count else value, line, fault)
    for written in _LIBRARY.findall(text):
        if (value := _bare(written)).lower() not in _NOTHING:
            yield "library", _library(value, line)


def _bare(written: str) -> str:
    return written.strip().strip("\"'").strip()[:LONGEST_VALUE]


def _operation(value: str, line: int) -> Said:
    if name := op_name(value):
        return Said(name, line)
    hint = did_you_mean(value, list(OPERATIONS)).rstrip()
    return Said(value, line, f'line {line}: unknown operation "{value}"{f": {hint}" if hint else ""}')


def _library(value: str, line: int) -> Said:
    found = _NAMED.match(value)
    if found is None:
        return Said(value, line, f'line {line}: "{value}" is no library with known constants, such as NCCL 2.28')
    if found[2] is None and found[4][:1].isalnum():
        return Said(value, line, f'line {line}: "{value}" names no version that can be read, such as NCCL 2.28')
    return Said(found[1].upper(), line, version=found[2])


def alike(one: str, other: str) -> bool:
    """Return True if two versions may be the same one, printed to other lengths.

    >>> alike("2.18", "2.18.3+cuda12.1"), alike("2.18.3", "2.28.9")
    (True, False)
    """
    parts = [re.match(r"[\d.]*", text)[0].strip(".").split(".") for text in (one, other)]  # type: ignore[index]
    return all(a == b for a, b in zip(*parts, strict=False))


def with_statement(comments: Comments, kind: str, said: Said, *, fresh: bool) -> Comments:
    """Return *comments* and another statement; it replaces those of its kind unless they are *fresh*.

    Fresh are those after which no table has begun: both are then of the same table.
    """
    before = comments.get(kind, ()) if fresh else ()
    return {**comments, kind: (*before, said)[-MOST_SAID:]}


def says_the_same(one: Comments, other: Comments) -> bool:
    """Return True if what holds is the same by both."""
    return {kind: said[-1].text for kind, said in one.items()} == {kind: said[-1].text for kind, said in other.items()}


def disagreements(comments: Comments, family: str | None, version: str | None) -> Iterator[str]:
    """Yield what statements deny of each other, and of the library and version that the log itself prints."""
    for kind, statements in comments.items():
        last, told = statements[-1], list(dict.fromkeys(said.text for said in statements if not said.fault))
        if len(told) > 1 and not (kind == "library" and all(_same(said, last) for said in statements)):
            of = "" if kind == "library" else f"{kind} "
            taken = next(said.text for said in reversed(statements) if not said.fault)
            yield f"the text says {of}{' and '.join(told)}: {taken}, the last, is taken"
    if (said := _readable(comments, "library")) and version and said.version:
        other = family not in (said.value, None) and "hip" not in version  # RCCL prints NCCL's name too
        if other or not alike(said.version, version):
            yield f"the log prints {family} {version}, the text says {said.text}: what the log prints is taken"


def _same(one: Said, other: Said) -> bool:
    return one.value == other.value and alike(one.version or "", other.version or "")


def _readable(comments: Comments, kind: str) -> Said | None:
    return next((said for said in reversed(comments.get(kind, ())) if not said.fault), None)


def unread(comments: Comments) -> dict[str, str]:
    """Return by kind why its statements cannot be read, where none of them can."""
    return {kind: told[-1].fault for kind, told in comments.items() if all(said.fault for said in told)}


def tell(comments: Comments, facts: Facts) -> None:
    """Add to the facts of a table what the comments before it say."""
    if op := _readable(comments, "op"):
        facts.op_hint = op.value
    if ranks := _readable(comments, "ranks"):
        facts.told_ranks = int(ranks.value)
    if nodes := _readable(comments, "nodes"):
        facts.told_nodes = int(nodes.value)
    if library := _readable(comments, "library"):
        facts.noted_library, facts.noted_version, facts.noted_line = library.value, library.version, library.line
