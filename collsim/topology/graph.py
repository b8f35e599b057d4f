"""Topologies and NetworkX graphs: the border format for building, drawing and exchanging systems in Python.

Attributes, all in SI:

===========  ==================  =========  =====================================================================
where        attribute           default    meaning
===========  ==================  =========  =====================================================================
node         ``kind``            ``gpu``    ``gpu``, or ``switch``, ``nic`` or ``cpu`` (a socket), which forward
node         ``rank``            order      rank of a GPU; give it to all GPUs or to none
node         ``latency_s``       0          forwarding latency of a switch or a socket, seconds
edge         ``bandwidth_Bps``   required   rate of the whole edge in one direction, bytes/s
edge         ``latency_s``       required   latency of one traversal, seconds
edge         ``efficiency``      1          achievable fraction of the rate
edge         ``count``           1          parallel physical links that the edge stands for
graph        ``name, title``     ``graph``
===========  ==================  =========  =====================================================================

The graph may also have ``in_network_reduction`` (``NVLS``, ``SHARP`` or none), ``in_network_efficiency`` (1), and the
texts ``gpu.model``, ``link.type`` and ``switch.model``, as in a file. Rates lie between 1 B/s for each link and 1e18
B/s, latencies below 1e6 s.

An edge of an undirected graph is a full-duplex link; an edge of a directed graph is one direction. Parallel edges of a
multigraph are merged if they are alike.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from collsim.core.errors import Fault, InputError, SpecError, nearest
from collsim.core.units import MAX_RATE_BPS, MAX_TIME_S, MIN_RATE_BPS, one_line
from collsim.topology.labels import KIND_LABELS
from collsim.topology.reduction import reduction_name

if TYPE_CHECKING:
    import networkx as nx

    from collsim.topology.model import Topology
    from collsim.topology.wiring import Wiring

__all__ = ["from_graph", "to_graph"]

NODE_KEYS = ("kind", "rank", "latency_s")
NODE_KINDS = ("gpu", "switch", "cpu", "nic")
EDGE_KEYS = ("bandwidth_Bps", "latency_s", "efficiency", "count")
MOST_PLACES = 3
NOT = ", not "
"""What stands between a rule and the value that breaks it."""
TO_ALL = 'nx.set_edge_attributes(graph, {}, "{}") gives it to all edges'
SECONDS = f"seconds, 0 to {MAX_TIME_S:g}"
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:/-]+")
_FOREIGN = {"bandwidth": "bandwidth_Bps", "capacity": "bandwidth_Bps", "weight": "bandwidth_Bps"}
_FOREIGN |= {"latency": "latency_s", "multiplicity": "count", "links": "count"}


def to_graph(topology: Topology) -> nx.DiGraph[str]:
    """Return a directed graph with one edge per bundle and every attribute written out.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> graph = load_topology("mi355x_ubb8").graph
    >>> graph.number_of_edges(), graph.edges["gpu0", "gpu1"]["bandwidth_Bps"]
    (56, 76800000000.0)
    """
    import networkx as nx

    wiring = topology.wiring.bundled()
    graph: nx.DiGraph[str] = nx.DiGraph(name=topology.name, title=topology.title)
    graph.graph.update({key: topology.labels[key] for key in KIND_LABELS if key in topology.labels})
    if topology.in_network_reduction:
        graph.graph["in_network_reduction"] = topology.in_network_reduction
        graph.graph["in_network_efficiency"] = topology.in_network_efficiency
    for node, name in enumerate(wiring.node_names):
        if node < wiring.n_gpus:
            graph.add_node(name, kind="gpu", rank=node, latency_s=0.0)
        else:
            graph.add_node(name, kind=wiring.node_kinds[node], latency_s=float(wiring.node_latency_s[node]))
    columns = (
        wiring.link_src,
        wiring.link_dst,
        wiring.link_bandwidth_Bps,
        wiring.link_latency_s,
        wiring.link_efficiency,
        wiring.link_count,
    )
    names = wiring.node_names
    for src, dst, *values in zip(*(column.tolist() for column in columns), strict=True):
        graph.add_edge(names[src], names[dst], **dict(zip(EDGE_KEYS, values, strict=True)))
    return graph


def from_graph(
    graph: nx.Graph[Any], make: type[Topology], *, name: str | None = None, title: str | None = None
) -> Topology:
    """Return the topology that *graph* describes, made by *make*.

    Raises
    ------
    SpecError
        With everything that is wrong with the graph.

    Examples
    --------
    >>> import networkx as nx
    >>> from collsim.topology import Topology
    >>> ring = nx.cycle_graph(4)
    >>> for a, b in ring.edges:
    ...     ring.edges[a, b].update(bandwidth_Bps=50e9, latency_s=5e-7)
    >>> topology = from_graph(ring, Topology, name="ring4")
    >>> topology.n_gpus, topology.wiring.n_links, topology.wiring.link_name(0)
    (4, 8, 'gpu0->gpu1')
    """
    faults: list[Fault] = []
    order = _node_order(graph, faults)
    edges = _merge(graph, faults)
    wired = {end for a, b in graph.edges() for end in (a, b)}
    gpus = [node for node in order if graph.nodes[node].get("kind", "gpu") == "gpu"]
    faults += [
        Fault("the GPU has no edge", f"node {node!r}", "add an edge, or remove the node")
        for node in gpus
        if len(gpus) > 1 and node not in wired
    ]
    if not gpus:
        faults.append(Fault("there is no GPU", "graph", 'give a node kind="gpu"'))
    names = _names(order, len(gpus))
    if len(set(names)) != len(names):
        faults.append(Fault("two nodes have the same name as text", "graph", "rename one"))
    share = graph.graph.get("in_network_efficiency", 1.0)
    if not _is_number(share, least=0.0, most=1.0, strict=True):
        faults.append(Fault(f"in_network_efficiency is {share!r}", "graph", "give a fraction above 0, at most 1"))
    reduction = _reduction(graph, faults)
    if faults:
        raise SpecError(*_together(faults))
    wiring = _wire(graph, order, names, len(gpus), edges)
    called = one_line(name or str(graph.graph.get("name") or "graph"))
    shown = one_line(title or str(graph.graph.get("title") or called))
    return make(
        called,
        shown,
        "graph",
        (),
        wiring,
        _digest(wiring),
        labels={key: one_line(str(graph.graph[key])) for key in KIND_LABELS if graph.graph.get(key)},
        in_network_reduction=reduction,
        in_network_efficiency=float(share),
    )


def _together(faults: list[Fault]) -> list[Fault]:
    """Return faults, those that break one rule at several edges or nodes as one: it names the first, and holds all.

    >>> (fault,) = _together([Fault(f"must be 1, not {i}", f"edge 0-{i}", "do") for i in range(2, 9)])
    >>> print(fault)
    7 edges, first 0-2, 0-3, 0-4: must be 1, not 2, not 3, not 4, ...
      hint: do
    >>> fault.places[-1]
    'edge 0-8: not 8'
    """
    rules: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for fault in faults:
        rule, comma, value = fault.what.rpartition(NOT)
        rule, value = (rule, f"not {value}") if comma else (fault.what, "")
        rules.setdefault((rule, fault.hint, fault.where.partition(" ")[0]), []).append((fault.where, value))
    return [_one(rule, kind, hint, broken) for (rule, hint, kind), broken in rules.items()]


def _one(rule: str, kind: str, hint: str, broken: list[tuple[str, str]]) -> Fault:
    """Return the fault of a rule that is broken at some places, each with its value."""
    values = [value for value in dict.fromkeys(value for _, value in broken) if value]
    what = ", ".join([rule, *values[:MOST_PLACES], *(["..."] if len(values) > MOST_PLACES else [])])
    where = [place for place, _ in broken]
    if len(where) <= MOST_PLACES:
        return Fault(what, ", ".join(where), hint)
    first = ", ".join(place.removeprefix(f"{kind} ") for place in where[:MOST_PLACES])
    places = tuple(f"{place}: {value}" if len(values) > 1 else place for place, value in broken)
    return Fault(what, f"{len(where)} {kind}s, first {first}", hint, places)


def _reduction(graph: nx.Graph[Any], faults: list[Fault]) -> str | None:
    """Return the reduction of the switches of *graph*, such as ``NVLS``; None if there is none, or it is wrong."""
    try:
        name = reduction_name(graph.graph.get("in_network_reduction"))
    except InputError as error:
        faults += [Fault(fault.what, "graph: in_network_reduction", fault.hint) for fault in error.faults]
        return None
    if name is not None and all(attributes.get("kind") != "switch" for _, attributes in graph.nodes(data=True)):
        hint = "write None, or remove the attribute"
        faults.append(Fault(f"there is no switch that could reduce with {name}", "graph: in_network_reduction", hint))
    return name


def _node_order(graph: nx.Graph[Any], faults: list[Fault]) -> list[Any]:
    """Return GPUs by rank, then switches and sockets, checking the attributes of each."""
    gpus: list[Any] = []
    switches: list[Any] = []
    for node, attributes in graph.nodes(data=True):
        where, kind = f"node {node!r}", attributes.get("kind", "gpu")
        _check_keys(attributes, NODE_KEYS, where, faults)
        if kind not in NODE_KINDS:
            faults.append(Fault(f"kind {kind!r} is unknown", where, f"known: {', '.join(NODE_KINDS)}"))
        if not _is_number(latency_s := attributes.get("latency_s", 0.0), least=0.0, most=MAX_TIME_S):
            what = f"latency_s must be {SECONDS}, {_not(latency_s)}"
            faults.append(Fault(what, where, "write latency_s=2e-7"))
        (switches if kind in NODE_KINDS[1:] else gpus).append(node)
    ranks = [graph.nodes[node].get("rank") for node in gpus]
    if any(rank is not None for rank in ranks):
        if sorted(rank if isinstance(rank, int) else -1 for rank in ranks) != list(range(len(gpus))):
            hint = "give rank to every GPU, or to none: then ranks follow the order of the nodes"
            faults.append(Fault(f"ranks are not 0 to {len(gpus) - 1}, each once", "graph", hint))
        else:
            gpus.sort(key=lambda node: graph.nodes[node]["rank"])
    return gpus + switches


def _names(order: list[Any], n_gpus: int) -> tuple[str, ...]:
    """Return node names as a file may hold them; integer GPUs are called ``gpu0, gpu1, ...``."""
    if all(isinstance(node, int) for node in order[:n_gpus]):
        return tuple(f"gpu{rank}" for rank in range(n_gpus)) + tuple(
            f"sw{node}" if isinstance(node, int) else _name(node) for node in order[n_gpus:]
        )
    return tuple(map(_name, order))


def _name(node: Any) -> str:
    """Return the name of a node: the parts of a tuple in turn, and ``_`` for what a file may not hold.

    >>> _name((0, 1)), _name("rack 1/gpu0")
    ('0_1', 'rack_1/gpu0')
    """
    text = "_".join(map(str, node)) if isinstance(node, tuple) else str(node)
    return NOT_IN_NAMES.sub("_", text)


def _merge(graph: nx.Graph[Any], faults: list[Fault]) -> dict[tuple[Any, Any], dict[str, float]]:
    """Return the figures of every ordered pair of nodes that an edge joins."""
    merged: dict[tuple[Any, Any], dict[str, float]] = {}
    for a, b, figures in _edges(graph, faults):
        for pair in [(a, b)] if graph.is_directed() else [(a, b), (b, a)]:
            old = merged.get(pair)
            if old is None:
                merged[pair] = dict(figures)
                continue
            if (old["latency_s"], old["efficiency"]) != (figures["latency_s"], figures["efficiency"]):
                hint = "give them the same latency_s and efficiency, or put a node between"
                faults.append(Fault("parallel edges differ", f"edge {pair[0]!r}-{pair[1]!r}", hint))
            old["bandwidth_Bps"] += figures["bandwidth_Bps"]
            old["count"] += figures["count"]
    return merged


def _edges(graph: nx.Graph[Any], faults: list[Fault]) -> Iterator[tuple[Any, Any, dict[str, float]]]:
    """Yield the edges whose attributes are all valid."""
    for a, b, attributes in graph.edges(data=True):
        where, before = f"edge {a!r}-{b!r}", len(faults)
        meant = _check_keys(attributes, EDGE_KEYS, where, faults)
        count, efficiency = attributes.get("count", 1), attributes.get("efficiency", 1.0)
        if a == b:
            faults.append(Fault("the edge joins a node to itself", where, "remove it"))
        bandwidth_Bps, latency_s = attributes.get("bandwidth_Bps"), attributes.get("latency_s")
        counted = _is_number(count, least=1.0, most=1e9) and count == int(count)
        if not counted:
            what = f"count must be a whole number, 1 to 1e9, {_not(count)}"
            faults.append(Fault(what, where, "write count=2"))
        least_Bps = MIN_RATE_BPS * (count if counted else 1)
        if "bandwidth_Bps" not in meant and not _is_number(bandwidth_Bps, least=least_Bps, most=MAX_RATE_BPS):
            what = f"bandwidth_Bps must be bytes/s, 1 per link to 1e18, {_not(bandwidth_Bps)}"
            faults.append(Fault(what, where, f"write bandwidth_Bps=64e9; {TO_ALL.format('64e9', 'bandwidth_Bps')}"))
        if "latency_s" not in meant and not _is_number(latency_s, least=0.0, most=MAX_TIME_S):
            what = f"latency_s must be {SECONDS}, {_not(latency_s)}"
            faults.append(Fault(what, where, f"write latency_s=5e-7; {TO_ALL.format('5e-7', 'latency_s')}"))
        if not _is_number(efficiency, least=0.0, most=1.0, strict=True):
            what = f"efficiency must be more than 0 and at most 1, {_not(efficiency)}"
            faults.append(Fault(what, where, "write efficiency=0.8"))
        if len(faults) == before:
            yield a, b, {key: attributes.get(key, 1.0) for key in EDGE_KEYS}


def _check_keys(attributes: dict[Any, Any], known: tuple[str, ...], where: str, faults: list[Fault]) -> set[str]:
    """Refuse attributes that look like figures under other names, and return which; what else there is may stay."""
    found = set()
    for key in attributes:
        meant = _FOREIGN.get(str(key).lower()) or nearest(str(key), [k.lower() for k in known])
        meant = next((k for k in known if meant and k.lower() == meant.lower()), None)
        if key not in known and meant is not None and meant not in attributes:
            hint = "figures are in SI: bytes/s and seconds"
            faults.append(Fault(f'unknown attribute "{key}"; did you mean "{meant}"?', where, hint))
            found.add(meant)
    return found


def _is_number(value: Any, least: float, most: float, *, strict: bool = False) -> bool:
    import numbers

    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    number: Any = value
    return bool((least < number if strict else least <= number) and number <= most)


def _not(value: Any) -> str:
    """Return a given value as the end of a message, such as "not 3" or "and is missing"."""
    if value is None:
        return "and is missing"
    is_short = isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 10**40)
    return f"not {repr(value)[:40]}" if is_short else f"not of type {type(value).__name__}"


def _wire(
    graph: nx.Graph[Any],
    order: list[Any],
    names: tuple[str, ...],
    n_gpus: int,
    edges: dict[tuple[Any, Any], dict[str, float]],
) -> Wiring:
    import numpy as np

    from collsim.topology.builders import assemble
    from collsim.topology.wiring import LinkBundles

    ids = {node: index for index, node in enumerate(order)}
    node_latency_s = np.array([float(graph.nodes[node].get("latency_s", 0.0)) for node in order])
    node_latency_s[:n_gpus] = 0.0
    ends = np.array([(ids[a], ids[b]) for a, b in edges], dtype=np.int64).reshape(len(edges), 2)
    columns = {key: np.array([figures[key] for figures in edges.values()], dtype=np.float64) for key in EDGE_KEYS}
    bundles = LinkBundles(
        ends[:, 0].copy(),
        ends[:, 1].copy(),
        columns["count"].astype(np.int64),
        columns["bandwidth_Bps"],
        columns["latency_s"],
        columns["efficiency"],
    )
    forwarders = tuple(str(graph.nodes[node]["kind"]) for node in order[n_gpus:])
    return assemble(names, n_gpus, node_latency_s, bundles, forwarders=forwarders)


def _digest(wiring: Wiring) -> str:
    kinds = wiring.node_kinds if {"cpu", "nic"} & set(wiring.node_kinds) else ()
    digest = hashlib.sha256("\n".join((*wiring.node_names, *kinds, str(wiring.n_gpus))).encode())
    for array in (
        wiring.node_latency_s,
        wiring.link_src,
        wiring.link_dst,
        wiring.link_count,
        wiring.link_bandwidth_Bps,
        wiring.link_latency_s,
        wiring.link_efficiency,
    ):
        digest.update(array.tobytes())
    return digest.hexdigest()
