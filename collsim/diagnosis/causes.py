"""Causes as data: what each is as a change of the question, on the machine at hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from collsim.core.units import format_bandwidth
from collsim.topology import Topology

__all__ = ["Cause", "Change", "all_causes", "changes_of", "meets"]

FILE = "causes.yaml"
REBUILT = ("rail", "fat_tree")
"""Fabrics whose leaves a cause may deal anew; the cables of a dragonfly are what they are."""
FEW_NODES = 4
"""Nodes up to which one of them is looked at by itself: all ranks then differ, and of many that takes too long."""
LEAST_MESH = 3
"""GPUs from which a full mesh has rings to choose from."""


@dataclass(frozen=True, slots=True)
class Change:
    """One question to the simulator: what differs from the healthy one.

    Attributes
    ----------
    label : str
        The degree, in words; empty if there is one only.
    environment : mapping of str to str
    overrides : mapping of str to str
        Figures of the topology, as of ``--set``.
    fail, degrade : tuple of str
        As of ``--fail`` and ``--degrade``.
    gpus_per_thread : int or None
        All GPUs of a node of the first log; of each log those that it has.
    launch : str
        How calls are launched, with buffers that nobody registered; empty: as the log says.
    node_order : tuple of int
        The nodes in the order in which ranks take them; empty: as they are.
    rank_list : tuple of int
        The GPU of each rank of the first log in that order, for `flags`.
    """

    label: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    fail: tuple[str, ...] = ()
    degrade: tuple[str, ...] = ()
    gpus_per_thread: int | None = None
    launch: str = ""
    node_order: tuple[int, ...] = ()
    rank_list: tuple[int, ...] = ()

    @property
    def flags(self) -> str:
        """The change as flags of ``collsim run``."""
        words = [f"--env {name}={value}" for name, value in self.environment.items()]
        words += [f'--set {path}="{value}"' for path, value in self.overrides.items()]
        words += [f"--fail {name}" for name in self.fail] + [f'--degrade "{name}"' for name in self.degrade]
        words += [] if self.gpus_per_thread is None else [f"--gpus-per-thread {self.gpus_per_thread}"]
        words += [f"--launch {self.launch}"] if self.launch else []
        words += [f"--rank-list {','.join(map(str, self.rank_list))}"] if self.rank_list else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause as its file has it; *variants* are raw until `changes_of` puts names of a machine in.

    Attributes
    ----------
    name, title : str
    where : tuple of str
        What a machine must be for it, all of them: words of `meets`.
    measure, fix, source : str
        What tells it from others, what to set, and where it was seen.
    grows : bool
        Variants are degrees of one thing.
    seldom : float
        Twice the logarithm of the odds against it before a log was read: it needs two faults, or is rare. Chosen.
    shape : str
        ``skew``, ``falling`` or ``dips``: a change of the curve, no question; ``network``: a time for each call beside
        the variants; empty otherwise.
    """

    name: str
    title: str
    where: tuple[str, ...]
    measure: str
    fix: str
    source: str
    grows: bool = False
    seldom: float = 0.0
    shape: str = ""
    variants: tuple[Mapping[str, Any], ...] = ()


@cache
def all_causes() -> tuple[Cause, ...]:
    """Return the shipped causes."""
    import yaml

    text = files("collsim.diagnosis").joinpath(FILE).read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["causes"]
    return tuple(
        Cause(**{**entry, "where": tuple(entry["where"].split()), "variants": tuple(entry.get("variants", ()))})
        for entry in entries
    )


def meets(cause: Cause, topology: Topology, ranks: int, nodes: int) -> bool:
    """Return True if a cause can be looked for in a test with so many ranks on so many nodes of a machine."""
    model = topology.labels.get("gpu.model", "")
    node = topology if topology.cluster is None else topology.cluster.node
    mesh = "switch" not in node.wiring.node_kinds and "cpu" not in node.wiring.node_kinds
    holds = {
        "any": True,
        "several": ranks > 1,
        "node": nodes == 1,
        "cluster": topology.cluster is not None and nodes > 1,
        "leaves": topology.cluster is not None and topology.cluster.spec.fabric in REBUILT,
        "pods": len(set(_pods(topology, nodes))) > 1 and _dealt(topology, nodes) != tuple(range(nodes)),
        "few": nodes <= FEW_NODES,
        "nvidia": not model.startswith(("MI", "Instinct", "AMD")),
        "nvls": topology.in_network_reduction == "NVLS" or node.in_network_reduction == "NVLS",
        "mesh": mesh and node.n_gpus >= LEAST_MESH,
        "switched": nodes == 1 and "switch" in node.wiring.node_kinds,
    }
    return all(holds[word] for word in cause.where)


def changes_of(cause: Cause, topology: Topology, ranks: int, nodes: int) -> list[Change]:
    """Return the variants of a cause with the names and figures of the machine, for a test on some of its nodes."""
    names = _names(topology)
    known = {fact.path for fact in topology.facts}
    possible = [entry for entry in cause.variants if _has_figures(entry, known)]
    return [_change(entry, topology, names, (ranks // nodes, nodes)) for entry in possible]


def _pods(topology: Topology, nodes: int) -> list[int]:
    """Return under which leaves each of the first nodes is."""
    if topology.cluster is None or nodes < 2:
        return []
    where, each = topology.wiring.coordinates, topology.cluster.node.n_gpus
    return [int(pod) for pod in where.pod[: nodes * each : each]]


def _dealt(topology: Topology, nodes: int) -> tuple[int, ...]:
    """Return the first nodes in turn from each leaf, so that every node's successor is under another one.

    >>> from collsim.topology import load_topology
    >>> _dealt(load_topology("hgx_h100", {"scale_out.nodes": "4", "scale_out.racks": "2"}), 4)
    (0, 2, 1, 3)
    """
    pods = _pods(topology, nodes)
    turns = [pods[:node].count(pod) for node, pod in enumerate(pods)]
    return tuple(sorted(range(nodes), key=lambda node: (turns[node], node)))


def _has_figures(entry: Mapping[str, Any], known: Collection[str]) -> bool:
    """Return True if the machine has the figures that a variant multiplies."""
    return all(path in known for path, value in entry.get("set", {}).items() if value.startswith("x"))


def _names(topology: Topology) -> dict[str, str]:
    """Return parts of the machine by the words that stand for them."""
    cluster, wiring = topology.cluster, topology.wiring
    switches = [name for name, kind in zip(wiring.node_names, wiring.node_kinds, strict=True) if kind == "switch"]
    names = {"gpu": wiring.node_names[min(1, topology.n_gpus - 1)], "switch": next(iter(switches), "")}
    if cluster is not None:
        names |= {
            "nic": wiring.node_names[cluster.first_nic],
            "nodes": str(cluster.spec.nodes),
            "adapters": str(cluster.spec.used_nics),
        }
    return names


def _change(entry: Mapping[str, Any], topology: Topology, names: Mapping[str, str], shape: tuple[int, int]) -> Change:
    """Return a variant; *shape* is the ranks of a node, and the nodes."""
    each, nodes = shape
    order = _dealt(topology, nodes) if "order" in entry else ()
    there = topology.cluster.node.n_gpus if topology.cluster is not None else each
    environment = dict(entry.get("env", {}))
    if "channels" in entry:
        limits = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NVLS_NCHANNELS")
        environment = dict.fromkeys(limits, str(entry["channels"]))
    return Change(
        label=entry.get("label", ""),
        environment=environment,
        overrides={
            path: _figure(path, value.format(**names), topology) for path, value in entry.get("set", {}).items()
        },
        fail=tuple(name.format(**names) for name in entry.get("fail", ())),
        degrade=tuple(name.format(**names) for name in entry.get("degrade", ())),
        gpus_per_thread=each if "gpus_per_thread" in entry else None,
        launch=entry.get("launch", ""),
        node_order=order,
        rank_list=tuple(node * there + gpu for node in order for gpu in range(each)),
    )


def _figure(path: str, value: str, topology: Topology) -> str:
    """Return a figure as text; one that begins with x is a factor on what the machine has."""
    if not value.startswith("x"):
        return value
    over, _, under = value[1:].partition("/")
    fact = topology.fact(path)
    return format_bandwidth(fact.value * float(over) / float(under or 1))
