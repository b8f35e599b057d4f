"""Write the fields of a request into the schemas of configurations and results.

python tools/config_schema.py
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from collsim.simulation.request.fields import FIELDS

SCHEMAS = pathlib.Path(__file__).resolve().parent.parent / "collsim" / "report" / "schemas"
NAMES = ("config-1.json", "result-1.json")


def config_schema() -> dict[str, Any]:
    """Properties and required keys of a configuration, as JSON has them."""
    properties = {entry.config_key: entry.schema for entry in FIELDS if entry.config_key and entry.schema}
    plain: dict[str, Any] = json.loads(json.dumps({"required": list(properties), "properties": properties}))
    return plain


def main() -> None:
    """Renew the schemas that hold a configuration of their own; a reference to another stays."""
    for name in NAMES:
        path = SCHEMAS / name
        document = json.loads(path.read_text(encoding="utf-8"))
        config = document["properties"]["config"]
        if "properties" in config:
            config.update(config_schema())
            path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
