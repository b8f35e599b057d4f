"""Results as text: one function per format, one table of formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collsim.errors import UnknownNameError
from collsim.report.data import as_csv, as_json, as_jsonl
from collsim.report.files import check_writable, write_text
from collsim.report.nccl import as_nccl
from collsim.report.table import as_markdown, as_table
from collsim.result import Result

__all__ = ["FORMATS", "SUFFIXES", "check_writable", "render", "schema", "write_text"]

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


def schema(name: str = "collsim.result/1") -> dict[str, Any]:
    """Return the JSON schema of a document: ``collsim.result/1``, ``collsim.row/1`` or ``collsim.config/1``.

    Raises
    ------
    UnknownNameError
        No such schema.

    Examples
    --------
    >>> schema("collsim.result/1")["title"]
    'Result of collsim run'
    """
    folder = Path(__file__).parent / "schemas"
    known = {f"collsim.{path.stem.replace('-', '/')}": path for path in folder.glob("*.json")}
    if name not in known:
        raise UnknownNameError("schema", name, known)
    return dict(json.loads(known[name].read_text(encoding="utf-8")))
