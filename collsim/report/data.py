"""Machine-readable formats: SI units, the unit in the key, null for what is not known."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from collsim.result import Result

__all__ = ["as_csv", "as_json", "as_jsonl"]


def as_json(result: Result) -> str:
    """Return the document of schema ``collsim.result/1``."""
    return json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"


def as_jsonl(result: Result) -> str:
    """Return one object per row; each names its schema, topology and profile."""
    common = _common(result)
    rows = ({"schema": "collsim.row/1", **common, **row.to_dict()} for row in result.rows)
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def as_csv(result: Result) -> str:
    """Return a header and one line per row; the busiest link takes the place of the list."""
    common = _common(result)
    records: list[dict[str, Any]] = []
    for row in result.rows:
        record = row.to_dict()
        loads = record.pop("bottleneck")
        record["bottleneck_link"] = loads[0]["link"] if loads else ""
        record["bottleneck_utilisation"] = loads[0]["utilisation"] if loads else ""
        record.update({f"critical_{kind.replace(' ', '_')}_s": part for kind, part in record.pop("critical_s").items()})
        records.append({**common, **record})
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _common(result: Result) -> dict[str, Any]:
    """Return what every row repeats when it stands alone."""
    return {
        "topology": result.topology["name"],
        "profile": result.profile["name"],
        "calibrated": result.profile["calibrated"],
    }
