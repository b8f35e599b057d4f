"""Topologies, as the user describes them: files, the zoo of shipped systems, and NetworkX graphs.

`load_topology` is the door. It returns a `Topology`: facts with their provenance, and the `Wiring` as frozen arrays.
Importing this package imports nothing heavy; numpy, PyYAML and NetworkX are imported when they are used.
"""

from __future__ import annotations

from collsim.topology.cluster.scale_out import build_cluster, cluster_spec
from collsim.topology.cluster.spec import Cluster, ClusterSpec, Plan
from collsim.topology.labels import FABRICS
from collsim.topology.listing import systems
from collsim.topology.loader import check_file, load_topology, parse_topology, plan_topology
from collsim.topology.model import STATUSES, Damage, Fact, Topology
from collsim.topology.summary import describe, remarks
from collsim.topology.wiring import Coordinates, Wiring
from collsim.topology.zoo import cluster_names, network_names, zoo_names

__all__ = [
    "FABRICS",
    "STATUSES",
    "Cluster",
    "ClusterSpec",
    "Coordinates",
    "Damage",
    "Fact",
    "Plan",
    "Topology",
    "Wiring",
    "build_cluster",
    "check_file",
    "cluster_names",
    "cluster_spec",
    "describe",
    "load_topology",
    "network_names",
    "parse_topology",
    "plan_topology",
    "remarks",
    "systems",
    "zoo_names",
]
