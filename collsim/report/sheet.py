"""Tables: columns, each written once, and what is made of them for people."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, Literal, TypeVar, cast

__all__ = [
    "WHOLE",
    "Column",
    "Screen",
    "comments",
    "document",
    "escaped",
    "fitted",
    "fitting",
    "heads",
    "line_of",
    "markdown",
    "not_shown",
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


@dataclass(frozen=True, slots=True)
class Screen:
    """Terminal that a table is for.

    Attributes
    ----------
    width : int or None
        Columns of text that it has; None: as many as a table takes, as in a file.
    brief : bool
        Whether what stands above a table is cut to three lines.
    colour : bool
    columns : tuple of str
        Sets of columns that were asked for, of `collsim.report.wires.SETS`.
    """

    width: int | None = None
    brief: bool = False
    colour: bool = False
    columns: tuple[str, ...] = ()

    def comments(self, told: Iterable[str]) -> list[str]:
        """Sentences behind ``#``, each on as many lines as it needs."""
        lines = comments(told) if self.width is None else comments(told, min(TEXT_WIDTH, self.width - 2))
        return [self.painted(line, DIM) for line in lines]

    def one(self, told: str) -> list[str]:
        """Sentence behind ``#`` that stays on one line in a file."""
        return [f"# {told}"] if self.width is None else self.comments([told])

    def head(self, told: Sequence[str]) -> list[str]:
        """Head of a table: all of it, or its first two sentences, and how many more there are."""
        if not self.brief or len(told) <= 2:
            return self.comments(told)
        width = min(TEXT_WIDTH, (self.width or TEXT_WIDTH) - 2)
        cut = [line if len(line) <= width else f"{line[: width - 4]} ..." for line in told[:2]]
        return self.comments([*cut, f"{len(told) - 2} more about this model and its figures: -v"])

    def painted(self, text: str, style: str) -> str:
        """*text* in a style, where there are any."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and style and text.strip() else text


WHOLE = Screen()
"""A file: everything, and no colours."""
DIM, RED, BOLD = "2", "31", "1"
STYLES = {"low": DIM, "high": DIM, "busbw": BOLD, "time": BOLD, "predicted": BOLD, "limited by": "36", "verdict": "36"}
LEAST_COLUMNS = 4
LEAST_PROSE, LEAST_WORD = 16, 9
"""Prose, and after all else words, are cut to what room there is, but not further."""


def fitting(columns: Sequence[Column[T]], screen: Screen, drop: Sequence[str]) -> list[Column[T]]:
    """Fitted columns that a screen has room for.

    Those that *drop* names go first, in that order; then prose is cut, then words, and at last the columns to
    the right go.
    An entry of *drop* may be several names that only make sense together.
    """
    if screen.width is None:
        return list(columns)
    shown = list(columns)
    for names in drop:
        if _extent(shown) - _spare(shown) <= screen.width:
            break
        shown = [column for column in shown if column.name.replace(" ", "_") not in names.split()]
    over = _extent(shown) - screen.width
    if over > 0 and shown and shown[-1].kind == "prose":
        shown[-1] = _cut(shown[-1], max(shown[-1].width - over, LEAST_PROSE))
    shown = _narrowed(shown, screen.width)
    while _extent(shown) > screen.width and len(shown) > LEAST_COLUMNS:
        shown.pop()
    return shown


def _narrowed(columns: list[Column[T]], width: int) -> list[Column[T]]:
    """Columns cut until they fit, the widest of those with words first and none below `LEAST_WORD`."""
    shown = list(columns)
    while _extent(shown) > width:
        wide = [place for place, column in enumerate(shown) if column.kind != "number" and column.width > LEAST_WORD]
        if not wide:
            break
        widest = max(wide, key=lambda place: shown[place].width)
        shown[widest] = _cut(shown[widest], shown[widest].width - 1)
    return shown


def not_shown(before: Iterable[Column[T]], shown: Iterable[Column[T]], remedy: str = "--wide shows all") -> list[str]:
    """Sentence on columns that a screen had no room for."""
    kept = {column.name for column in shown}
    lost = dict.fromkeys(column.name for column in before if column.name not in kept)
    return [f"no room for {', '.join(lost)}: {remedy}"] if lost else []


def _extent(columns: Sequence[Column[T]]) -> int:
    return sum(column.width + column.gap for column in columns)


def _spare(columns: Sequence[Column[T]]) -> int:
    """How much shorter the last column could be, if it is prose."""
    return max(columns[-1].width - 2 * LEAST_PROSE, 0) if columns and columns[-1].kind == "prose" else 0


def _cut(column: Column[T], width: int) -> Column[T]:
    def text(row: T) -> str:
        whole = column.text(row)
        return whole if len(whole) <= width else f"{whole[: width - 3]}..."

    return replace(column, text=text, width=width)


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


def line_of(columns: Sequence[Column[T]], row: T, screen: Screen = WHOLE) -> str:
    """Line of a row below fitted columns."""
    return _line(columns, [column.text(row) for column in columns], screen)


def sheet(columns: Iterable[Column[T]], rows: Sequence[T], screen: Screen = WHOLE) -> list[str]:
    """Whole table: two lines of headings behind ``#``, and one line per row."""
    shown = fitted(columns, rows)
    return [*(f"# {head}" for head in heads(shown)), *(f"  {line_of(shown, row, screen)}" for row in rows)]


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


def comments(told: Iterable[str], width: int = TEXT_WIDTH) -> list[str]:
    """Sentences behind ``#``, each on as many lines as it needs."""
    return [f"# {line}" for text in told for line in wrapped(text, width)]


def wrapped(text: str, width: int = TEXT_WIDTH) -> list[str]:
    """*text* on lines of at most *width* characters."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def escaped(text: str) -> str:
    """*text* for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def _line(columns: Sequence[Column[T]], cells: Sequence[str], screen: Screen = WHOLE) -> str:
    refused = "refused" in cells
    parts = [
        " " * (column.gap * bool(place))
        + screen.painted(
            f"{cell:<{column.width}}" if column.kind == "prose" else f"{cell:>{column.width}}",
            RED if refused else STYLES.get(column.name, ""),
        )
        for place, (column, cell) in enumerate(zip(columns, cells, strict=True))
    ]
    return "".join(parts)
