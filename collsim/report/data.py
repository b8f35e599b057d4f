"""Machine-readable formats: SI units, the unit in the key, null for what is not known."""

from __future__ import annotations

import json
from typing import Any

from collsim.simulation.result import Result

__all__ = ["as_csv", "as_json", "as_jsonl"]

ROW_SCHEMA = "collsim.row/1"


def as_json(result: Result) -> str:
    """Return the document of schema ``collsim.result/1``."""
    return result.to_json()


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
