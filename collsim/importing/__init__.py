"""Importers: files of other programs that describe machines and schedules, read into topologies and schedules.

`import_topology` and `import_schedule` are the doors. Readers make plain data of a file (`machine`), `bases` finds the
shipped system whose figures hold, `writer` makes a topology file of both. What a file does not say is never silent: it
is listed as assumed, with its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collsim.core.lazy_names import names_from

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

__getattr__ = names_from(__name__, HOME)
