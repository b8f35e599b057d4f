"""Results as text: one function per format, one table of formats."""

from __future__ import annotations

from collections.abc import Callable

from collsim.errors import UnknownNameError
from collsim.report.data import as_csv, as_json, as_jsonl
from collsim.report.nccl import as_nccl
from collsim.report.table import as_markdown, as_table
from collsim.result import Result

__all__ = ["FORMATS", "SUFFIXES", "render"]

FORMATS: dict[str, Callable[[Result], str]] = {
    "table": as_table,
    "nccl": as_nccl,
    "csv": as_csv,
    "json": as_json,
    "jsonl": as_jsonl,
    "md": as_markdown,
}

SUFFIXES = {".txt": "table", ".log": "nccl", ".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".md": "md"}
"""The format that a file name asks for."""


def render(result: Result, form: str = "table") -> str:
    """Return *result* in one of `FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    if form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS, "--format")
    return FORMATS[form](result)
