"""Importers: files of other programs that describe machines and schedules, read into topologies and schedules.

`import_topology` and `import_schedule` are the doors. Readers make plain data of a file (`machine`), `bases` finds the
shipped system whose figures hold, `writer` makes a topology file of both. What a file does not say is never silent: it
is listed as assumed, with its source.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.importing.imports import KINDS, ImportedTopology, import_topology
    from collsim.importing.msccl_schedules import import_schedule

__all__ = ["KINDS", "ImportedTopology", "import_schedule", "import_topology"]

HOME = {
    "KINDS": "imports",
    "ImportedTopology": "imports",
    "import_topology": "imports",
    "import_schedule": "msccl_schedules",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in HOME:
        raise AttributeError(f"module 'collsim.importing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"collsim.importing.{HOME[name]}"), name)
    globals()[name] = value
    return value
