"""The shipped systems as records: what `collsim topo list` prints."""

from __future__ import annotations

from typing import Any

from collsim.topology.loader import load_topology, plan_topology
from collsim.topology.summary import describe
from collsim.topology.zoo import cluster_names, zoo_names

__all__ = ["systems"]


def systems() -> list[dict[str, Any]]:
    """Return one record for each shipped system: nodes and racks, each one scale-up domain, then clusters.

    Each has ``name``, ``title``, ``kind`` (``domain`` or ``cluster``), ``gpus``, ``nodes`` (1 of a domain), the model
    of the GPU, and ``gpu_Bps``: what a GPU sends at most, in each direction, to other GPUs of a domain, or to other
    nodes of a cluster; the least where GPUs differ.

    Examples
    --------
    >>> import collsim
    >>> [each["name"] for each in collsim.systems() if each["gpus"] == 72]
    ['gb200_nvl72', 'gb300_nvl72', 'mi400_ualoe72', 'vr200_nvl144']
    """
    return [*map(_domain, zoo_names()), *map(_cluster, cluster_names())]


def _domain(name: str) -> dict[str, Any]:
    topology = load_topology(name)
    shown = describe(topology)
    return {
        "name": name,
        "title": shown["title"],
        "kind": "domain",
        "gpus": shown["ranks"],
        "nodes": 1,
        "gpu": topology.labels.get("gpu.model"),
        "gpu_Bps": shown["per_gpu_uni_Bps"],
    }


def _cluster(name: str) -> dict[str, Any]:
    node, spec, _ = plan_topology(name)
    return {
        "name": name,
        "title": node.title,
        "kind": "cluster",
        "gpus": spec.nodes * spec.gpus_per_node,
        "nodes": spec.nodes,
        "gpu": node.labels.get("gpu.model"),
        "gpu_Bps": spec.link_rate_Bps * spec.nics_per_gpu / spec.gpus_per_nic,
    }
