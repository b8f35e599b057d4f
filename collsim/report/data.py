"""Machine-readable formats: SI units, the unit in the key, null for what is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from collsim.simulation.result import Result

__all__ = ["as_csv", "as_json", "as_jsonl", "json_text"]

ROW_SCHEMA = "collsim.row/1"
FLAT_LIST = re.compile(r"\[\n *([^\[\]{}]+?)\n *\]")
BREAK = re.compile(r"\n *")


def as_json(result: Result) -> str:
    """Return the document of schema ``collsim.result/1``."""
    return json_text(result.to_dict())


def json_text(document: Mapping[str, Any]) -> str:
    """Return *document* indented, with lists of plain values on one line.

    >>> print(json_text({"ranks": [0, 1]}), end="")
    {
      "ranks": [0, 1]
    }
    """
    text = json.dumps(document, indent=2, allow_nan=False)
    return FLAT_LIST.sub(lambda match: f"[{BREAK.sub(' ', match[1])}]", text) + "\n"


def as_jsonl(result: Result) -> str:
    """Return one object per row; each names its schema, topology and profile."""
    common = {"schema": ROW_SCHEMA, **_common(result), "overrides": dict(result.config.get("overrides", {}))}
    common |= {"fail": list(result.config.get("fail", ())), "degrade": dict(result.config.get("degrade", {}))}
    rows = ({**common, **row.to_dict()} for row in result.rows)
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def as_csv(result: Result) -> str:
    """Return a header and one line per row, with the columns of `Result.to_records`."""
    return result.to_csv()


def _common(result: Result) -> dict[str, Any]:
    """Return the fields that every row repeats because it may stand alone."""
    return {
        "topology": result.topology["name"],
        "profile": result.profile["name"],
        "calibrated": result.profile["calibrated"],
    }
