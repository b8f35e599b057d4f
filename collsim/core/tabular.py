"""One flat table of a result: as a data frame, as CSV and in a notebook."""

from __future__ import annotations

import csv
import html
import importlib
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, overload

from collsim.core.atomic_files import write_text
from collsim.core.errors import Fault, InputError, UnknownNameError
from collsim.core.methods import telling_arguments

__all__ = ["Field", "Tabular", "csv_text", "json_text", "plain"]

FLAT_LIST = re.compile(r"\[\n *([^\[\]{}]+?)\n *\]")
BREAK = re.compile(r"\n *")
MOST_LINES, MOST_WIDE = 20, 160
"""Of what Python shows of a result."""
BACKENDS = ("polars", "pandas")


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a machine-readable row: a key with its schema and its meaning.

    Attributes
    ----------
    key : str
        Of the attribute, in JSON and in CSV; it carries the unit.
    schema : Mapping
        JSON schema of the value, without a description.
    meaning : str
        In Markdown: the description in the schema and the line on the page about output.
    flat : bool
        Whether it is one value, which has a place in a line of CSV.
    """

    key: str
    schema: Mapping[str, Any]
    meaning: str
    flat: bool = True


@telling_arguments
class Tabular(ABC):
    """Base of the results of all commands, with their rows as documents, records and data frames."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Let the methods of each result tell what is wrong with their arguments."""
        super().__init_subclass__()
        telling_arguments(cls)

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, in SI units: the JSON document."""

    @abstractmethod
    def to_records(self) -> list[dict[str, Any]]:
        """One flat record for each row, with what tells it from rows of other results; all have the same keys."""

    def to_frame(self, backend: str = "polars") -> Any:
        """`to_records` as a data frame of ``polars`` or ``pandas``.

        Raises
        ------
        InputError
            Another backend.
        ImportError
            The library is not installed; ``pip install 'collsim[frames]'`` brings polars.
        """
        return _frame(self.to_records(), backend)

    @overload
    def to_json(self, path: None = None) -> str: ...

    @overload
    def to_json(self, path: str | os.PathLike[str]) -> None: ...

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """`to_dict` as the JSON of the command line; with a *path* it is written there, whole or not at all.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        return _kept(json_text(self.to_dict()), path)

    @overload
    def to_csv(self, path: None = None) -> str: ...

    @overload
    def to_csv(self, path: str | os.PathLike[str]) -> None: ...

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """`to_records` as the CSV of the command line, then a line with the reason for each thing refused.

        With a *path* it is written there, whole or not at all.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        answered, refused = self._csv_records(), self._refused_records()
        if refused is None:
            return _kept(csv_text(answered), path)
        columns = dict.fromkeys(answered[0] if answered else ())
        lines = [*({**record, "refused": None} for record in answered), *({**columns, **each} for each in refused)]
        return _kept(csv_text(lines), path)

    def _csv_records(self) -> list[dict[str, Any]]:
        return self.to_records()

    def _refused_records(self) -> list[dict[str, Any]] | None:
        """One record for each thing refused, with the columns that tell it and *refused*; None: nothing ever is."""
        return None

    def __repr__(self) -> str:
        """Table of at most `MOST_LINES` lines: the first rows and the last one."""
        shown = self._listed()
        cells = [list(shown[0]), *(list(row.values()) for row in shown)] if shown else []
        if len(cells) > MOST_LINES - 1:
            left_out = f"... {len(cells) - MOST_LINES + 2} more"
            cells = [*cells[: MOST_LINES - 3], [left_out], cells[-1]]
        return "\n".join([f"{type(self).__name__}: {self._caption()}", *_aligned(cells)])

    def _repr_html_(self) -> str:
        """Table for a notebook."""
        shown = self._shown()
        caption = f"<caption>{html.escape(self._caption())}</caption>" if self._caption() else ""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (shown[0] if shown else ()))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in shown
        )
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _listed(self) -> list[dict[str, str]]:
        """Rows in a terminal: heading to text."""
        return self._shown()

    @abstractmethod
    def _caption(self) -> str:
        """Line above the table in a notebook; empty for none."""

    @abstractmethod
    def _shown(self) -> list[dict[str, str]]:
        """Rows in a notebook: heading to text."""


def _kept(text: str, path: str | os.PathLike[str] | None) -> str | None:
    """Return *text*, or write it to *path*."""
    if path is None:
        return text
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(Fault(f"{path!r} is not a path", "path", "pass the path of a file, or nothing for the text"))
    write_text(text, os.fspath(path))
    return None


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of cells, the columns below each other: numbers to the right, and none wider than a screen."""
    whole = [row for row in cells if len(row) == len(cells[0])]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    right = [all(cell[:1].isdigit() or not cell for cell in column[1:]) for column in zip(*whole, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if ends else cell.ljust(width)
            for cell, width, ends in zip(row, widths, right, strict=False)
        ).rstrip()
        for row in cells
    ]
    return [line if len(line) <= MOST_WIDE else f"{line[: MOST_WIDE - 3]}..." for line in lines]


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    r"""Header and one line per record; lists are joined, truth is in lower case, and None is empty.

    >>> csv_text([{"op": "reduce", "calibrated": True, "proto": None, "flags": ["a", "b"]}])
    'op,calibrated,proto,flags\nreduce,true,,a; b\n'
    """
    if not records:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _csv_cell(value) for key, value in record.items()} for record in records)
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return "; ".join(value) if isinstance(value, list | tuple) else value


def plain(value: Any) -> Any:
    """*value* as JSON has it: records and mappings as dictionaries, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _frame(records: Sequence[Mapping[str, Any]], backend: str) -> Any:
    if backend not in BACKENDS:
        raise UnknownNameError("library of data frames", str(backend), BACKENDS, "backend")
    try:
        library = importlib.import_module(backend)
    except ImportError:
        hint = "'collsim[frames]', or pass 'pandas' if you have it" if backend == "polars" else "pandas"
        raise ImportError(f"{backend} is not installed: pip install {hint}") from None
    options = {"infer_schema_length": None} if backend == "polars" else {}
    return library.DataFrame(records, **options)


def json_text(document: Mapping[str, Any]) -> str:
    """Return *document* indented, with lists of plain values on one line.

    >>> print(json_text({"ranks": [0, 1]}), end="")
    {
      "ranks": [0, 1]
    }
    """
    text = json.dumps(document, indent=2, allow_nan=False)
    return FLAT_LIST.sub(lambda match: f"[{BREAK.sub(' ', match[1])}]", text) + "\n"
