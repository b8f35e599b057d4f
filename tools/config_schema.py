"""Write the fields of a request into the schemas of configurations and results.

python tools/config_schema.py
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

from collsim.simulation.request.fields import FIELDS

SCHEMAS = pathlib.Path(__file__).resolve().parent.parent / "collsim" / "report" / "schemas"
NAMES = ("config-1.json", "result-1.json")


def renew(config: dict[str, Any]) -> None:
    """Make the schema of a configuration say what the fields say; what says it already stays as it is."""
    wanted = json.loads(json.dumps({entry.config_key: entry.schema for entry in FIELDS if entry.schema}))
    config["required"] = [key for key in config["required"] if key in wanted]
    config["required"] += [key for key in wanted if key not in config["required"]]
    there = config["properties"]
    config["properties"] = {
        key: there[key] if there.get(key) == wanted[key] else wanted[key] for key in config["required"]
    }


def main() -> None:
    """Renew the schemas that hold a configuration of their own; a reference to another stays."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for name in NAMES:
        path = SCHEMAS / name
        document = json.loads(path.read_text(encoding="utf-8"))
        config = document["properties"]["config"]
        if "properties" in config:
            renew(config)
            path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
