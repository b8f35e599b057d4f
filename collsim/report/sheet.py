"""Tables: columns, each written once, and what is made of them for people."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, Literal, TypeVar, cast

__all__ = [
    "Column",
    "comments",
    "document",
    "escaped",
    "fitted",
    "heads",
    "line_of",
    "markdown",
    "sheet",
    "with_refused",
    "wrapped",
]

T = TypeVar("T")
R = TypeVar("R")
TEXT_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """Column of a table for people.

    Attributes
    ----------
    name, unit : str
        The two lines of the heading; in Markdown they are one.
    text : callable
        The cell of a row. A column in which no row has anything is left out.
    width : int
        The least; a column grows with its longest cell.
    kind : {"number", "word", "prose"}
        Numbers stand to the right and prose to the left; a word stands to the left in Markdown alone.
    gap : int
        Blanks in front.
    meaning : str
        For the page about output, in Markdown.
    """

    name: str
    text: Callable[[T], str]
    unit: str = ""
    width: int = 0
    kind: Literal["number", "word", "prose"] = "number"
    gap: int = 1
    meaning: str = ""

    @property
    def heading(self) -> str:
        """Name and unit on one line."""
        return f"{self.name} {self.unit}".strip()


def fitted(columns: Iterable[Column[T]], rows: Sequence[T]) -> list[Column[T]]:
    """Columns that have something in *rows*, as wide as their headings and cells; without rows all."""
    longest = [(column, max((len(column.text(row)) for row in rows), default=0)) for column in columns]
    return [
        replace(column, width=max(column.width, len(column.name), len(column.unit), width))
        for column, width in longest
        if width or not rows
    ]


def with_refused(
    columns: Iterable[Column[T]], kind: type[R], cells: Callable[[R], Mapping[str, str]]
) -> list[Column[T | R]]:
    """Columns that show rows, and in a row without an answer, of that *kind*, what *cells* has under their names."""

    def either(column: Column[T]) -> Column[T | R]:
        def text(row: T | R) -> str:
            return cells(row).get(column.name, "") if isinstance(row, kind) else column.text(cast(T, row))

        entries = {entry.name: getattr(column, entry.name) for entry in fields(column)}
        return Column(**{**entries, "text": text})

    return [either(column) for column in columns]


def heads(columns: Sequence[Column[T]]) -> tuple[str, str]:
    """Names and units of fitted columns, each on a line."""
    return _line(columns, [column.name for column in columns]), _line(columns, [column.unit for column in columns])


def line_of(columns: Sequence[Column[T]], row: T) -> str:
    """Line of a row below fitted columns."""
    return _line(columns, [column.text(row) for column in columns])


def sheet(columns: Iterable[Column[T]], rows: Sequence[T]) -> list[str]:
    """Whole table: two lines of headings behind ``#``, and one line per row."""
    shown = fitted(columns, rows)
    return [*(f"# {head}" for head in heads(shown)), *(f"  {line_of(shown, row)}" for row in rows)]


def markdown(columns: Iterable[Column[T]], rows: Sequence[T], notes: Iterable[str]) -> str:
    """Table in Markdown, and a list of notes below it."""
    shown = fitted(columns, rows)
    cells = [
        [column.heading for column in shown],
        ["---:" if column.kind == "number" else "---" for column in shown],
        *([column.text(row) for column in shown] for row in rows),
    ]
    table = "".join("| " + " | ".join(map(escaped, line)) + " |\n" for line in cells)
    return table + "\n" + "\n".join(f"* {escaped(note)}" for note in notes) + "\n"


def document(lines: Iterable[str]) -> str:
    """Lines as one text, without blanks at their ends."""
    return "\n".join(line.rstrip() for line in lines) + "\n"


def comments(told: Iterable[str]) -> list[str]:
    """Sentences behind ``#``, each on as many lines as it needs."""
    return [f"# {line}" for text in told for line in wrapped(text)]


def wrapped(text: str) -> list[str]:
    """*text* on lines of at most `TEXT_WIDTH` characters."""
    if len(text) <= TEXT_WIDTH:
        return [text]
    return textwrap.wrap(text, TEXT_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def escaped(text: str) -> str:
    """*text* for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def _line(columns: Sequence[Column[T]], cells: Sequence[str]) -> str:
    parts = [
        " " * column.gap + (f"{cell:<{column.width}}" if column.kind == "prose" else f"{cell:>{column.width}}")
        for column, cell in zip(columns, cells, strict=True)
    ]
    return "".join(parts)[columns[0].gap if columns else 0 :]
