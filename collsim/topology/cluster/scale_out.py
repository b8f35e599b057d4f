"""Scale-out: a node and what is said of its cluster, as a `Topology` of many nodes.

Figures that are not given come from the node (adapters) and from the network's file; each keeps its status and source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from collsim.core.errors import Fault, InputError, SpecError
from collsim.core.units import format_count
from collsim.topology.cluster.bonds import bond_share
from collsim.topology.cluster.spec import ClusterSpec, NodeKind, Plan
from collsim.topology.model import Fact, Topology

if TYPE_CHECKING:
    from collsim.topology.cluster.networks import NetworkSpec
    from collsim.topology.files.figures import Count, Figure
    from collsim.topology.files.schema import ScaleOut

__all__ = ["build_cluster", "bus_rate_Bps", "cluster_spec", "resolve", "section_faults", "spec_from"]

MAX_GPUS = 1_048_576
"""A cluster beyond this is refused: its arrays would need tens of gigabytes."""
MOST_FLOWS = 256
"""Flows for each pair of GPUs; every one has a path to remember."""
MOST_RAILS = 16
"""A node with more adapters is a rack, whose adapters share rails (assumed: servers have up to 16)."""
RACK_RAILS = 8
"""Rails of a rack at most (assumed: as of a server; no wiring of racks is published)."""

PCIE = (
    (100e9 / 8, 15.75e9, "PCIe 3 x16, 8 GT/s, 128b/130b"),
    (200e9 / 8, 31.5e9, "PCIe 4 x16, 16 GT/s, 128b/130b"),
    (400e9 / 8, 63.0e9, "PCIe 5 x16, 32 GT/s, 128b/130b"),
    (800e9 / 8, 121.0e9, "PCIe 6 x16, 64 GT/s, 242 of 256 bytes of a flit carry data"),
)
"""The bus that an adapter of at most the first rate comes with, bytes/s one direction (derived from the standards)."""


GPU_PORTS = (("V100", 15.75e9), ("A100", 31.5e9), ("H100", 63e9), ("H20", 63e9), ("H800", 63e9), ("B200", 63e9))
"""The one PCIe port of a GPU on a board, bytes/s one direction, by how its name begins (datasheets: PCIe 3, 4, 5 x16).
All adapters of a GPU share it: a GPU with four adapters of 400 Gb/s is measured at 50 GB/s (NVIDIA/nccl issue 1357).
GPUs beside a CPU of their own, and those not listed, are not held back."""


def build_cluster(
    node: Topology, spec: ClusterSpec, plan: Plan | None = None, *, kinds: Sequence[Topology] = ()
) -> Topology:
    """Return ``spec.nodes`` copies of *node* joined by the fabric; a single node stays as it is.

    Nodes that differ are copies of *kinds*; *node* then stands for the whole (see `mixing.as_one`).

    Raises
    ------
    SpecError
        The fabric does not hold so many nodes.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> node = load_topology("hgx_h100")
    >>> cluster = build_cluster(node, cluster_spec(node, nodes=4))
    >>> cluster.n_gpus, cluster.wiring.node_names[9], cluster.cluster.plan.leaves
    (32, 'n1.gpu1', 1)
    """
    from collsim.topology.cluster.cluster_wiring import wire_cluster
    from collsim.topology.cluster.plan import plan_cluster

    plan = plan or plan_cluster(spec)
    alone = [_alone(kind, spec) for kind in kinds or (node,)]
    if spec.nodes == 1:
        return alone[0]
    wiring, cluster = wire_cluster(alone, spec, plan)
    return replace(node, title=_title(kinds or (node,), spec), wiring=wiring, cluster=cluster)


def _alone(node: Topology, spec: ClusterSpec) -> Topology:
    """Return the GPUs of a node that take part, without the figures of the cluster around it."""
    inside = [fact for fact in node.facts if not fact.path.startswith("scale_out.") or fact.status == "set"]
    return replace(first_gpus(node, spec.gpus_per_node), facts=tuple(inside))


def cluster_spec(node: Topology, **figures: Any) -> ClusterSpec:
    """Return the specification of a cluster of *node*; the figures are those of ``scale_out`` in a file.

    >>> from collsim.topology import load_topology
    >>> cluster_spec(load_topology("mi325x_ubb8"), nodes=2, fabric="fat_tree").network
    'roce'
    """
    return resolve(spec_from(figures), node)[0]


def spec_from(figures: Mapping[str, Any]) -> ScaleOut:
    """Return the checked section of plain figures; raise `SpecError` with everything that is wrong."""
    from collsim.topology.files.reader import Document
    from collsim.topology.files.schema import SCHEMA
    from collsim.topology.files.sections import read_sections

    if not isinstance(figures, Mapping):
        raise SpecError(Fault(f"{figures!r:.40} is no section", "scale_out", 'pass {"nodes": 4}'))
    faults: list[Fault] = []
    document = Document("scale_out", {"schema": SCHEMA, "builder": "explicit", "scale_out": dict(figures)})
    section = read_sections(document, faults).scale_out
    if section is None:
        raise SpecError(*faults)
    return section


def first_gpus(node: Topology, count: int) -> Topology:
    """Return *node* with its first *count* GPUs and all that forwards between them."""
    import numpy as np

    from collsim.topology.builders import assemble
    from collsim.topology.wiring import LinkBundles

    wiring = node.wiring
    if count == wiring.n_gpus:
        return node
    keep = np.ones(wiring.n_nodes, dtype=np.bool_)
    keep[count : wiring.n_gpus] = False
    number = np.cumsum(keep) - 1
    there = keep[wiring.link_src] & keep[wiring.link_dst]
    bundles = LinkBundles(
        number[wiring.link_src[there]],
        number[wiring.link_dst[there]],
        wiring.link_count[there],
        wiring.link_bandwidth_Bps[there],
        wiring.link_latency_s[there],
        wiring.link_efficiency[there],
    )
    names = tuple(name for name, kept in zip(wiring.node_names, keep, strict=True) if kept)
    others = wiring.node_kinds[wiring.n_gpus :]
    return replace(node, wiring=assemble(names, count, wiring.node_latency_s[keep], bundles, forwarders=others))


def resolve(section: ScaleOut, node: Topology, kinds: Sequence[Topology] = ()) -> tuple[ClusterSpec, tuple[Fact, ...]]:
    """Return the specification with everything filled in, and the figures that were filled in, as facts.

    *kinds* are a node of each entry of ``mix``.

    Raises
    ------
    SpecError, InputError
        Figures that are missing or do not go together.
    """
    from collsim.topology.cluster.networks import load_network, network_file

    nodes = kinds or (node,)
    of_kinds = [{fact.path: fact for fact in kind.facts} for kind in nodes]
    if faults := section_faults(section, [(kind.name, kind.n_gpus) for kind in nodes], of_kinds):
        raise SpecError(*faults)
    name = section.network.value.text if section.network else _one_network(nodes)
    network = load_network(name)
    per_gpu, shared = _adapters(of_kinds[0])
    mix, bus_facts = _node_kinds(section, nodes, of_kinds)
    filled, added = _from_network(section, network, max(map(_bond_rate_Bps, of_kinds)))
    if shared > 1:
        mix = tuple(_in_one_slot(kind, section.bus_efficiency.si / filled["efficiency"]) for kind in mix)
    spec = ClusterSpec(
        nodes=sum(kind.nodes for kind in mix),
        node_gpus=max(kind.gpus for kind in mix),
        gpus_per_node=int(section.gpus_per_node.si) if section.gpus_per_node else mix[0].gpus,
        nics_per_gpu=per_gpu,
        gpus_per_nic=shared,
        fabric=section.fabric.value.text,
        network=name,
        routing=section.routing.value.text if section.routing else network.routing,
        hash_seed=_count(section.hash_seed) or 1,
        flows_per_pair=_count(section.flows_per_pair) or 1,
        rails=_rails(section, max(kind.nics for kind in mix)),
        nic_rate_Bps=min(kind.nic_rate_Bps for kind in mix),
        bus_rate_Bps=mix[0].bus_rate_Bps,
        mix=mix if kinds else (),
        oversubscription=section.oversubscription.si,
        nic_cable_m=section.nic_cable.si,
        leaf_cable_m=section.leaf_cable.si,
        core_cable_m=section.core_cable.si,
        bus_latency_s=section.bus_latency.si,
        bus_efficiency=section.bus_efficiency.si,
        in_network_reduction=network.in_network_reduction.value.text if network.in_network_reduction.si else None,
        tree_per=_tree_per(network, filled["port_rate_Bps"]),
        tiers=_count(section.tiers),
        racks=_count(section.racks),
        group_switches=_count(section.group_switches),
        switch_endpoints=_count(section.switch_endpoints),
        global_links=_count(section.global_links),
        **filled,
    )
    added += [_fact(f"scale_out.{key}", told, told.note, network_file(name)) for key, told in network.features()]
    chosen = Fact("scale_out.network", name, 1.0, "name", "derived", "adapter of the node")
    return spec, (*([] if section.network else [chosen]), *added, *bus_facts)


def _node_kinds(
    section: ScaleOut, nodes: Sequence[Topology], of_kinds: Sequence[Mapping[str, Fact]]
) -> tuple[tuple[NodeKind, ...], list[Fact]]:
    """Return the kinds of nodes, their number and what the network sees of them, and the buses as facts."""
    per_gpu, shared = _adapters(of_kinds[0])
    counts = [int(entry.nodes.si) for entry in section.mix] or [_count(section.nodes) or 1]
    kinds: list[NodeKind] = []
    bus_facts: list[Fact] = []
    for place, (node, count, facts) in enumerate(zip(nodes, counts, of_kinds, strict=True)):
        bus_Bps, derived = _bus(facts)
        if derived and per_gpu > 1 and bus_Bps * per_gpu > (port_Bps := _port_Bps(node)):
            bus_Bps = port_Bps / per_gpu
            text, note = f"{bus_Bps / 1e9:g} GB/s", "its part of the one port of a GPU"
            derived = [replace(derived[0], text=text, value=bus_Bps, note=note)]
        nics = -(-node.n_gpus // shared) * per_gpu
        kinds.append(NodeKind(node.name, count, node.n_gpus, nics, _line_rate_Bps(facts), bus_Bps))
        bus_facts += [replace(fact, path=f"mix[{place}].{fact.path}") if section.mix else fact for fact in derived]
    return tuple(kinds), bus_facts


def _in_one_slot(kind: NodeKind, efficiency: float) -> NodeKind:
    """Return a kind whose adapters, each shared by several GPUs, carry no more than the bus of their one slot."""
    return replace(kind, nic_rate_Bps=min(kind.nic_rate_Bps, kind.bus_rate_Bps * efficiency))


def _line_rate_Bps(facts: Mapping[str, Fact]) -> float:
    """Return what an adapter carries: its port, or what one queue pair has of the ports of a bond."""
    ports = int(facts["nic.ports"].value) if "nic.ports" in facts else 1
    return _bond_rate_Bps(facts) * bond_share(ports, 1)


def _bond_rate_Bps(facts: Mapping[str, Fact]) -> float:
    """Return what the ports of an adapter carry together; its cables are counted as one."""
    return facts["nic.bandwidth"].value * (facts["nic.ports"].value if "nic.ports" in facts else 1)


def _adapters(facts: Mapping[str, Fact]) -> tuple[int, int]:
    """Return the adapters of a GPU, and how many GPUs share one."""
    shared = int(facts["nic.shared_by"].value) if "nic.shared_by" in facts else 1
    return int(facts["nic.per_gpu"].value) if "nic.per_gpu" in facts and shared == 1 else 1, shared


def _one_network(nodes: Sequence[Topology]) -> str:
    """Return the network that the adapters of all nodes speak."""
    from collsim.topology.cluster.networks import network_for

    spoken = {node.name: network_for(node.labels.get("nic.model", "")) for node in nodes}
    if len(set(spoken.values())) > 1:
        told = ", ".join(f"those of {node} {network}" for node, network in spoken.items())
        raise SpecError(Fault(f"adapters speak different networks: {told}", "scale_out.network", "name the network"))
    return next(iter(spoken.values()))


def section_faults(
    section: ScaleOut, kinds: Sequence[tuple[str, int]], of_kinds: Sequence[Mapping[str, Fact]]
) -> list[Fault]:
    """Return what is wrong with a section around nodes, of each kind the name and the number of GPUs, and its facts."""
    from collsim.topology.cluster.mixing import mix_faults

    faults = mix_faults(section, kinds, [_adapters(facts) for facts in of_kinds]) if section.mix else []
    nodes = sum(int(entry.nodes.si) for entry in section.mix) or _count(section.nodes)
    if nodes is None:
        for_racks = " that the racks hold" if section.racks is not None else ""
        what, hint = f"the number of nodes{for_racks} is missing", "write nodes: 16, or give --nodes 16"
        faults.append(Fault(what, "scale_out.nodes", hint))
    for place, ((kind, _), facts) in enumerate(zip(kinds, of_kinds, strict=True)):
        if "nic.bandwidth" not in facts:
            where = f"scale_out.mix[{place}].node" if section.mix else "nic"
            hint = 'write nic: {bandwidth: "400 Gb/s"}'
            faults.append(Fault(f"{kind} has no network adapters to join nodes with", where, hint))
    node, n_gpus = min(kinds, key=lambda kind: kind[1])
    asked = int(section.gpus_per_node.si) if section.gpus_per_node else n_gpus
    if asked > n_gpus:
        what = f"{format_count(asked, 'GPU')} per node, but {node} has {n_gpus}"
        faults.append(Fault(what, "scale_out.gpus_per_node", f"at most {n_gpus}"))
    if nodes and nodes * asked > MAX_GPUS:
        what = f"{nodes * asked:,} GPUs are more than {MAX_GPUS:,}"
        faults.append(Fault(what, "scale_out.nodes", f"at most {MAX_GPUS // asked:,} nodes of {asked} GPUs"))
    if section.fabric.value.text in ("dragonfly", "single_switch") and section.oversubscription.si != 1:
        what = f"a {section.fabric.value.text} has no leaves with uplinks to oversubscribe"
        faults.append(Fault(what, "scale_out.oversubscription", "leave it out, or take rail or fat_tree"))
    faults += _rack_faults(section)
    if section.tiers and section.tiers.si > 3:
        faults.append(Fault(f"{section.tiers.si:g} tiers", "scale_out.tiers", "1 to 3"))
    if (flows := _count(section.flows_per_pair) or 1) > MOST_FLOWS:
        what = f"{flows} flows for each pair of GPUs are too many to follow"
        faults.append(Fault(what, "scale_out.flows_per_pair", f"at most {MOST_FLOWS}"))
    counts = zip(kinds, map(_adapters, of_kinds), strict=True)
    return faults + _rail_faults(section, max(-(-gpus // shared) * each for (_, gpus), (each, shared) in counts))


def _rack_faults(section: ScaleOut) -> list[Fault]:
    """Return the faults of the racks that were asked for."""
    nodes = sum(int(entry.nodes.si) for entry in section.mix) or _count(section.nodes)
    if section.racks is None or nodes is None:
        return []
    racks = int(section.racks.si)
    faults = []
    if nodes % racks:
        fits = ", ".join(str(n) for n in range(1, nodes + 1) if nodes % n == 0)
        faults.append(Fault(f"{nodes} nodes do not fill {racks} racks evenly", "scale_out.racks", f"one of {fits}"))
    if racks > 1 and _count(section.tiers) == 1:
        faults.append(Fault("one tier of switches cannot join racks", "scale_out.racks", "leave out tiers, or take 2"))
    if section.fabric.value.text in ("dragonfly", "single_switch"):
        hint = "take rail, rail_only or fat_tree" + ", or set group_switches" * (
            section.fabric.value.text == "dragonfly"
        )
        faults.append(Fault(f"a {section.fabric.value.text} has no leaves for each rack", "scale_out.racks", hint))
    return faults


def _rails(section: ScaleOut, nics: int) -> int:
    """Return the number of rails: as asked, else one for each adapter, or those that a rack's adapters divide into."""
    if section.rails is None:
        return nics if nics <= MOST_RAILS else max(n for n in range(1, RACK_RAILS + 1) if nics % n == 0)
    return int(section.rails.si)


def _rail_faults(section: ScaleOut, nics: int) -> list[Fault]:
    """Return the faults of the rails that were asked for; a node has so many adapters."""
    rails = _count(section.rails) or 1
    if rails <= nics and not nics % rails:
        return []
    fits = ", ".join(str(n) for n in range(1, nics + 1) if nics % n == 0)
    return [Fault(f"{nics} adapters of a node do not divide into {rails} rails", "scale_out.rails", f"one of {fits}")]


def _from_network(section: ScaleOut, network: NetworkSpec, nic_Bps: float) -> tuple[dict[str, Any], list[Fact]]:
    """Return the figures that the section gives or else the network's file, and those of the file as facts."""
    from collsim.topology.cluster.networks import network_file

    values: dict[str, Figure] = {}
    facts = []
    model = network.switch_for(section.port_rate.si if section.port_rate else nic_Bps) if _needs(section) else None
    for key in ("radix", "port_rate", "switch_latency", "nic_latency", "link_latency", "efficiency"):
        given = getattr(section, key)
        if given is None:
            source = model if key in ("radix", "port_rate") else network
            given = getattr(source, {"radix": "ports"}.get(key, key))
            note = model.model if model and source is model else given.note
            facts.append(_fact(f"scale_out.{key}", given, note, network_file(network.name)))
        values[key] = given
    names = {"radix": "radix", "port_rate": "port_rate_Bps", "efficiency": "efficiency"}
    filled: dict[str, Any] = {names.get(key, f"{key}_s"): figure.si for key, figure in values.items()}
    filled["radix"] = int(filled["radix"])
    if filled["port_rate_Bps"] < nic_Bps:
        what = f"ports of {values['port_rate'].value.text} are slower than the adapters"
        raise InputError(Fault(what, "scale_out.port_rate", f"at least {nic_Bps * 8 / 1e9:g} Gb/s"))
    return filled, facts


def _tree_per(network: NetworkSpec, port_rate_Bps: float) -> str | None:
    """Return the unit with one reduction tree, port or switch; ports faster than any known count as the fastest."""
    switch = next((switch for switch in network.switches if switch.port_rate.si >= port_rate_Bps), network.switches[-1])
    return switch.aggregation.tree_per if network.in_network_reduction.si and switch.aggregation else None


def _fact(path: str, figure: Figure, note: str, where: str) -> Fact:
    status = figure.status or "user"
    return Fact(path, figure.value.text, figure.si, figure.unit, status, figure.source, note, where)


def _needs(section: ScaleOut) -> bool:
    """Return True if the network's file has to say which switch it is."""
    return section.radix is None or section.port_rate is None


def _bus(facts: Mapping[str, Fact]) -> tuple[float, list[Fact]]:
    """Return the rate of an adapter's bus: as given, else that of the PCIe that such an adapter comes with."""
    if "nic.bus_bandwidth" in facts:
        return facts["nic.bus_bandwidth"].value, []
    nic_Bps = _bond_rate_Bps(facts)
    _, rate_Bps, source = next((row for row in PCIE if nic_Bps <= row[0]), PCIE[-1])
    text, note = f"{rate_Bps / 1e9:g} GB/s", "the narrowest that such an adapter comes with"
    return rate_Bps, [Fact("nic.bus_bandwidth", text, rate_Bps, "B/s", "derived", source, note)]


def _port_Bps(node: Topology) -> float:
    """Return the rate of a GPU's own port."""
    model = node.labels.get("gpu.model", "")
    return next((rate_Bps for name, rate_Bps in GPU_PORTS if model.startswith(name)), math.inf)


def bus_rate_Bps(facts: Mapping[str, Fact]) -> float:
    """Return the rate of the bus of an adapter, by the facts of its topology, one direction."""
    return _bus(facts)[0]


def _count(figure: Count | None) -> int | None:
    return int(figure.si) if figure else None


def _title(kinds: Sequence[Topology], spec: ClusterSpec) -> str:
    """Return a title for a cluster whose file has none of its own."""
    told = zip(kinds, spec.kinds, strict=True)
    return " and ".join(f"{kind.nodes} node{'s' * (kind.nodes > 1)} of {node.title}" for node, kind in told)
