"""What the user describes: topology files, the zoo of shipped systems, and NetworkX graphs.

`load_topology` is the door. It returns a `Topology`: facts with their provenance, and the `Wiring` as frozen arrays.
Importing this package imports nothing heavy; numpy, PyYAML, pydantic and NetworkX are imported when they are used.
"""

from __future__ import annotations

from collsim.topology.loader import check_file, load_topology, parse_topology, zoo_names
from collsim.topology.model import STATUSES, Coordinates, Damage, Fact, Topology, Wiring
from collsim.topology.summary import describe, remarks

__all__ = [
    "STATUSES",
    "Coordinates",
    "Damage",
    "Fact",
    "Topology",
    "Wiring",
    "check_file",
    "describe",
    "load_topology",
    "parse_topology",
    "remarks",
    "zoo_names",
]
