"""The path from GPUs to adapters as a library uses it: another rate of bus or adapter, another latency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from collsim.topology.cluster.scale_out import build_cluster
from collsim.topology.model import Fact, Topology

__all__ = ["PATHS", "with_adapter_paths"]

PATHS = "path."
"""First word of the names of what is changed here, among the facts of a topology."""
FIELDS = {
    "nic_rate_Bps": "B/s",
    "bus_rate_Bps": "B/s",
    "nic_latency_s": "s",
    "relays": "count",
    "flows_per_pair": "",
    "gpus_per_nic": "",
    "rails": "",
}
"""Fields of the specification that may change, with their units."""

SEEN = {"gpus_per_nic": "nic.shared_by"}


def with_adapter_paths(topology: Topology, figures: Mapping[str, float], source: str) -> Topology:
    """Return a cluster of equal nodes with other *figures* (B/s, s; ``relays``: whether GPUs pass on what is for
    another rail) of all its adapters; *source* says what set them.

    >>> from collsim.topology import load_topology
    >>> cluster = load_topology("hgx_h100", scale_out={"nodes": 2})
    >>> with_adapter_paths(cluster, {"bus_rate_Bps": 10e9}, "a test").cluster.spec.bus_rate_Bps
    10000000000.0
    """
    cluster = topology.cluster
    assert cluster is not None
    spec = replace(cluster.spec, **figures)  # type: ignore[arg-type]
    told = [_fact(name, value, source) for name, value in figures.items()]
    kept = [fact for fact in topology.facts if fact.path not in {one.path for one in told}]
    node = replace(topology, wiring=cluster.node.wiring, cluster=None, facts=(*kept, *told))
    plan = cluster.plan if spec.node_nics == cluster.spec.node_nics else None  # fewer adapters: other switches
    return replace(build_cluster(node, spec, plan), title=topology.title)


def _fact(name: str, value: float, source: str) -> Fact:
    """Return a figure of the path; those of the adapter itself stay, because the library reads them for its choice.

    How many adapters there are the library sees.
    """
    unit = FIELDS[name]
    path = SEEN.get(name) or PATHS + (name.rpartition("_")[0] if unit in ("s", "B/s") else name)
    texts = {"s": f"{value * 1e6:g} us", "B/s": f"{value / 1e9:.4g} GB/s", "count": "on" if value else "off"}
    return Fact(path, texts.get(unit, f"{value:g}"), float(value), unit, "set", source, "", "--env")
