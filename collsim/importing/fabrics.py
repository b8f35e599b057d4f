"""Clusters around a node of the user's choice: what listings of fabrics say, as ``scale_out`` of a topology file.

Such listings know hosts, not what is in them: ``--like`` names it. collsim builds its clusters of equal racks and full
leaves; where the listing is less regular, the notes say so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from collsim.core.errors import Faults, InputError, UnknownNameError
from collsim.core.units import format_count
from collsim.importing.bases import adapter_count
from collsim.importing.fabric_tree import FabricTree
from collsim.importing.machine import Ask, Assumption, plural
from collsim.topology.loader import load_topology, plan_topology
from collsim.topology.zoo import zoo_names

if TYPE_CHECKING:
    from collsim.topology.model import Topology

__all__ = ["Cluster", "read_fabric", "write_fabric"]

Cluster = tuple[str, list[str], list[Assumption], list[str]]
"""A topology file, what was read, assumed, and noted."""
SOURCES = {
    "infiniband": "ibnetdiscover", "iblinkinfo": "iblinkinfo", "htsim": "htsim", "slurm": "a topology of Slurm",
}  # fmt: skip
SHOWN = ("network", "radix", "port_rate", "oversubscription", "efficiency")
"""Entries of ``scale_out`` that are listed where they are assumed."""
RACK_GPUS = 16
"""A domain of more GPUs is a rack, in which several of Slurm's hosts sit (assumed: servers have up to 16)."""


def read_fabric(kind: str, content: bytes, ask: Ask) -> Cluster | None:
    """Return the cluster that a listing describes, of nodes like a shipped system; None if its faults say why not."""
    tree = _read(kind, content.decode("utf-8-sig", "replace"), ask.file, ask.faults)
    if ask.faults:
        return None
    if ask.like is None:
        what = f"{'; '.join(tree.read)}: what the hosts are is not said"
        ask.fault(what, "name a shipped system that they are: --like hgx_h100")
        return None
    if ask.like not in zoo_names():
        ask.faults.extend(UnknownNameError("topology", ask.like[:60], zoo_names(), "like").faults)
        return None
    return write_fabric(tree, ask.like, SOURCES[kind], ask)


def _read(kind: str, text: str, file: str, faults: Faults) -> FabricTree:
    """Return the fabric of a listing."""
    if kind == "slurm":
        from collsim.importing.slurm_trees import read_slurm

        return read_slurm(text, file, faults)
    if kind == "htsim":
        from collsim.importing.htsim import read_htsim

        return read_htsim(text, file, faults)
    from collsim.importing.infiniband import read_iblinkinfo, read_ibnetdiscover

    return (read_ibnetdiscover if kind == "infiniband" else read_iblinkinfo)(text, file, faults)


def write_fabric(
    tree: FabricTree,
    like: str,
    source: str,
    ask: Ask,
    *,
    gpus: int | None = None,
    why: tuple[str, str] = ("set", "named with --like"),
) -> Cluster | None:
    """Return the cluster of a fabric; None if none can be built, with the reason in the faults.

    *gpus* of each node take part, where the file says how many it has. *why* is the status and the source of *like*.
    """
    node = load_topology(like)
    nodes, what = _nodes(tree, node)
    section = {"nodes": str(nodes), **_shape(tree, nodes)}
    few = {"count": str(gpus)} if gpus is not None and gpus < node.n_gpus else {}
    nic = _nic(tree, node, gpus or node.n_gpus)
    if tree.tiers == 1 and tree.leaves > tree.parts:
        flat = f"{plural(tree.leaves, 'switch')} with hosts are joined to each other, with none above: no tree"
        ask.fault(flat, "describe a dragonfly by scale_out: {fabric: dragonfly, ...}: docs/clusters.md")
        return None
    if nodes < 2:
        ask.fault(f"no cluster of {like} fits: 1 node, so that there is nothing to join", "name a smaller node")
        return None
    figures = {f"gpu.{key}": value for key, value in few.items()} | {f"nic.{key}": value for key, value in nic.items()}
    try:
        built, _, plan = plan_topology(like, figures, scale_out=section)
    except InputError as error:
        for fault in error.faults:
            ask.fault(f"no cluster of {like} fits: {fault.what}", fault.hint)
        return None
    notes = [*tree.notes, *_differences(tree, node, plan.leaves, plan.spines + plan.cores)]
    assumed = [Assumption("scale_out.node", like, why[0], f"{why[1]}: {what}"), *_assumed(built)]
    title = f"{nodes} nodes like {like}, imported from {source}"
    lines = ["schema: collsim.topology/1", f"name: {json.dumps(ask.name)}", f"title: {json.dumps(title)}"]
    for name, part in (("gpu", few), ("nic", nic)):
        lines += [f"{name}:", *_figures(part, source)] if part else []
    lines += ["scale_out:", f"  node: {like}", *_figures(section, source), ""]
    return "\n".join(lines), [*tree.read], assumed, notes


def _assumed(built: Topology) -> Iterator[Assumption]:
    """Yield what the figures of a cluster are where the listing does not say."""
    for fact in built.facts:
        if fact.path.removeprefix("scale_out.") in SHOWN and fact.status != "set":
            yield Assumption(fact.path, fact.text, fact.status, fact.source)
    yield Assumption("cables, latencies", "those of collsim", "assumed", "collsim topo show lists them")


def _figures(section: dict[str, str], source: str) -> Iterator[str]:
    """Yield the lines of a section that was imported."""
    for key, text in section.items():
        value = text if text.replace(".", "").isdigit() else json.dumps(text)
        yield f"  {key}: {{value: {value}, status: user, source: {json.dumps(f'imported from {source}')}}}"


def _nodes(tree: FabricTree, node: Topology) -> tuple[int, str]:
    """Return how many nodes the hosts are, and how many hosts are one node."""
    hosts = len(tree.hosts)
    if tree.is_blocks and node.n_gpus > RACK_GPUS:
        return tree.leaves, "each block of hosts is one of them"
    if tree.is_endpoints:
        ports = adapter_count(node, node.n_gpus)
        if hosts % ports:
            tree.notes.append(f"{hosts} endpoints do not make nodes of {ports} adapters: some are left out")
        return hosts // ports, f"{plural(ports, 'endpoint')} each are one of them"
    return hosts, "each host is one of them"


def _shape(tree: FabricTree, nodes: int) -> dict[str, str]:
    """Return the entries of ``scale_out`` that say how the switches are arranged."""
    section = {}
    single = tree.leaves == 1 and not tree.is_blocks
    rails = ("rail_only" if tree.tiers == 1 else "rail") if tree.on_rails else "fat_tree"
    section["fabric"] = "single_switch" if single else rails
    if tree.network:
        section["network"] = tree.network
    if tree.rate_Bps:
        section["port_rate"] = f"{tree.rate_Bps * 8 / 1e9:g} Gb/s"
    if tree.radix:
        section["radix"] = str(tree.radix)
    if single:
        return section
    groups = tree.groups
    if tree.is_endpoints:
        groups = []
    if len(set(groups)) == 1 and nodes == len(tree.hosts) and (len(groups) > 1 or tree.on_rails):
        section["racks"] = str(len(groups))
    over = tree.oversubscription
    if over and over >= 1:
        section["oversubscription"] = f"{over:g}"
    return section


def _nic(tree: FabricTree, node: Topology, gpus: int) -> dict[str, str]:
    """Return what the listing says of adapters: their rate, and how many a host has."""
    if not tree.rate_Bps:
        return {}
    nic = {"bandwidth": f"{tree.rate_Bps * 8 / 1e9:g} Gb/s"}
    count = tree.adapters
    if tree.is_endpoints or count * node.n_gpus == adapter_count(node, node.n_gpus) * gpus:
        return nic
    if count % gpus == 0:
        return {"per_gpu": str(count // gpus), "shared_by": "1", **nic}
    if gpus % count == 0:
        return {"per_gpu": "1", "shared_by": str(gpus // count), **nic}
    usual = adapter_count(node, node.n_gpus)
    tree.notes.append(f"hosts have {plural(count, 'adapter')}, which {gpus} GPUs cannot share; taken as {usual}")
    return nic


def _differences(tree: FabricTree, node: Topology, leaves: int, upper: int) -> Iterator[str]:
    """Yield how the fabric that collsim builds differs from the listed one."""
    counts = Counter(len(each) for each in tree.hosts.values())
    if len(counts) > 1:
        listed = ", ".join(f"{number} with {plural(count, 'adapter')}" for count, number in sorted(counts.items()))
        yield f"hosts differ: {listed}; all are taken to be alike"
    sizes = tree.groups
    if len(set(sizes)) > 1:
        yield f"groups of hosts on the same leaves differ, {sizes[-1]} to {sizes[0]} hosts: racks are left to collsim"
    if tree.parts > 1:
        yield f"{tree.parts} parts of the fabric are not joined in the file; here they are"
    if not tree.is_blocks and (tree.leaves, tree.upper) != (leaves, upper) and tree.tiers:
        listed = f"{plural(tree.leaves, 'leaf')} and {plural(tree.upper, 'switch')} above"
        yield f"the file has {listed}, collsim builds {leaves} and {upper}"
    if node.n_gpus > RACK_GPUS and not tree.is_blocks:
        yield f"every host is taken for {format_count(node.n_gpus, 'GPU')}, a whole {node.name}"
