"""JSON schemas of the documents, put together from the shipped files and the fields of a row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from collsim.core.errors import UnknownNameError
from collsim.simulation.result import FIELDS

__all__ = ["schema"]

NAMED = {
    "collsim.result/1": "config/1",
    "collsim.compare/1": "result/1",
    "collsim.explain/1": "result/1",
    "collsim.moe/1": "result/1",
    "collsim.moe_compare/1": "moe/1",
}
"""The documents whose parts are those of another, which they name by its $id."""
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def schema(name: str = "collsim.result/1") -> dict[str, Any]:
    """Return the JSON schema of a document: ``collsim.result/1``, ``row/1``, ``config/1``, ``validate/1``,
    ``diagnose/1``, ``compare/1``, ``explain/1``, ``import/1``, ``moe/1``, ``moe_compare/1``, ``moe_logs/1``,
    ``timeline/1``, ``serving_result/1`` or ``calibrate/1``.

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
    document = dict(json.loads(known[name].read_text(encoding="utf-8")))
    if inner := NAMED.get(name):
        document["$defs"] = {**document.get("$defs", {}), inner.partition("/")[0]: schema(f"collsim.{inner}")}
    if name == "collsim.result/1":
        document["$defs"]["row"] = {"type": "object", "additionalProperties": False, **_row()}
        document["$defs"]["row"]["description"] = "one collective at one size"
    if name == "collsim.row/1":
        row = _row()
        document["required"] = [*document["required"], *row["required"]]
        document["properties"] = {**document["properties"], **row["properties"]}
    return document


def _row() -> dict[str, Any]:
    """Properties of a row, all of which are required."""
    properties = {
        entry.key: {**entry.schema, "description": LINK.sub(r"\1", entry.meaning)} for entry in FIELDS
    }  # fmt: skip
    return {"required": list(properties), "properties": properties}
