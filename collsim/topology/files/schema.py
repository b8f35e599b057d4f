"""The sections of a ``collsim.topology/1`` file.

A *status* and *source* on a section apply to its figures that have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from collsim.topology.files.figures import (
    Count,
    Figure,
    Fraction,
    Length,
    LinksPerPlane,
    Parsed,
    Planes,
    Rate,
    Ratio,
    Reduction,
    Time,
    default_figure,
    one_of,
    read_status,
)
from collsim.topology.files.models import Model, Refused, describe, flag, items, key, one_word, part, text, text_of
from collsim.topology.labels import DISTANCES, FABRICS, ROUTINGS
from collsim.topology.zoo import network_names

__all__ = [
    "SCHEMA",
    "SECTIONS",
    "Cpu",
    "ExplicitLink",
    "Gpu",
    "Header",
    "Link",
    "MixedNodes",
    "Nic",
    "Node",
    "ScaleOut",
    "Section",
    "Switch",
]

SCHEMA = "collsim.topology/1"
MOST_KINDS = 100
"""Kinds of nodes in one cluster."""


class Section(Model):
    """A group of figures; its status and source apply to those that have none of their own."""

    status: str | None = key(read_status, None)
    source: str = key(text, "")
    note: str = key(text, "")

    @classmethod
    def prepared(cls, data: Any) -> Any:
        """Make a figure without a value a fault of its own, not a silent default."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        return {name: {"value": None} if value is None and name in cls.keys else value for name, value in data.items()}

    def finish(self) -> None:
        """Hand status and source on to the figures that have none."""
        for _, figure in self.figures():
            if figure.status is None:
                figure.status = self.status or "user"
                figure.source = figure.source or self.source

    def figures(self) -> list[tuple[str, Figure]]:
        """Return the figures that are given, with their keys."""
        return [(key, value) for key, value in self.__dict__.items() if isinstance(value, Figure)]


_word = text_of(500, numbers=True)


def _schema(value: Any) -> str:
    if value != SCHEMA:
        raise Refused(f"schema {describe(value)} is not supported", f"this version reads {SCHEMA}")
    return SCHEMA


def _matching(pattern: str, *, numbers: bool = False) -> Callable[[Any], str]:
    """Return the reader of a text that is of a pattern; *numbers* are taken as texts."""
    known = re.compile(pattern)

    def read(value: Any) -> str:
        found = str(value) if numbers and type(value) is int else value
        if isinstance(found, str) and not known.fullmatch(found):
            raise Refused(f"{describe(value)} is not a valid text here", "use letters, digits and _ . : / - only")
        return text(found)

    return read


class Header(Model):
    """The scalar keys at the top of the file."""

    schema: str = key(_schema)
    name: str | None = key(lambda value: None if value is None else _word(value), None)
    title: str = key(_word, "")
    notes: str = key(text_of(10_000), "")
    extends: str | None = key(lambda value: None if value is None else _word(value), None)
    builder: str = key(one_word("full_mesh", "switched", "explicit"))


class Gpu(Section):
    """The accelerators."""

    model: str = key(_word, "")
    count: Count | None = part(Count, None)
    memory_bandwidth: Rate | None = part(Rate, None)


class Link(Section):
    """One physical scale-up link, per direction."""

    type: str = key(_word, "")
    bandwidth: Rate | None = part(Rate, None)
    latency: Time = default_figure(Time, "250 ns", "one traversal of a short electrical link, port to port")
    efficiency: Fraction = default_figure(Fraction, "1", "the raw rate")
    per_pair: Count = default_figure(Count, "1", "one link between two GPUs")


class Switch(Section):
    """The switches of a switched domain."""

    model: str = key(_word, "")
    prefix: str = key(_matching(r"[A-Za-z_][A-Za-z_-]{0,30}"), "sw")
    planes: Planes | None = part(Planes, None)
    links_per_plane: LinksPerPlane = default_figure(LinksPerPlane, "1", "one link from every GPU to each switch")
    ports: Count | None = part(Count, None)
    latency: Time = default_figure(Time, "200 ns", "forwarding latency of a scale-up switch")
    in_network_efficiency: Fraction | None = part(Fraction, None)


class Cpu(Section):
    """Sockets of the host; its memory is what GPUs without peer access copy through, each reading it at *read_rate*.

    *start_skew* is how much later than the first the last rank begins each call.
    """

    model: str = key(_word, "")
    memory_bandwidth: Rate | None = part(Rate, None)
    read_rate: Rate | None = part(Rate, None)
    start_skew: Time | None = part(Time, None)


def _read_distance(value: Any) -> Parsed:
    read = one_of("distance", lambda: [name.lower() for name in DISTANCES])(value)
    return Parsed(read.text.upper(), read.value)


class Distance(Figure):
    """Way over PCIe from an adapter to its GPU, one of `DISTANCES`."""

    unit: ClassVar[str] = "name"
    value: Parsed = key(_read_distance)


class Nic(Section):
    """The scale-out adapters; wired in a cluster, recorded elsewhere. *bus* is what joins one to its GPU.

    *ports* of an adapter are bonded, each of *bandwidth*; a queue pair uses one of them.
    """

    model: str = key(_word, "")
    per_gpu: Count = default_figure(Count, "1", "one adapter for each GPU")
    shared_by: Count = default_figure(Count, "1", "no adapter serves two GPUs")
    ports: Count | None = part(Count, None)
    bandwidth: Rate = part(Rate)
    bus_bandwidth: Rate | None = part(Rate, None)
    distance: Distance | None = part(Distance, None)


_node_name = _matching(r"[A-Za-z0-9_.:/-]{1,100}", numbers=True)


class Node(Section):
    """A GPU, a switch, a CPU socket or a network adapter of an explicit topology."""

    name: str = key(_node_name)
    kind: str = key(one_word("gpu", "switch", "cpu", "nic"), "gpu")
    latency: Time | None = part(Time, None)


class ExplicitLink(Section):
    """*count* parallel physical links between two nodes; what is not given comes from ``link:``, its source too."""

    a: str = key(_node_name)
    b: str = key(_node_name)
    bandwidth: Rate | None = part(Rate, None)
    latency: Time | None = part(Time, None)
    efficiency: Fraction | None = part(Fraction, None)
    count: Count = default_figure(Count, "1", "one link")
    duplex: bool = key(flag, True)


class LinkChange(Section):
    """Figures of the links between two nodes that differ from those of the builder; what is not given stays.

    *count* is of parallel links, each with the rate. *present* false: there are none.
    """

    a: str = key(_node_name)
    b: str = key(_node_name)
    bandwidth: Rate | None = part(Rate, None)
    latency: Time | None = part(Time, None)
    efficiency: Fraction | None = part(Fraction, None)
    count: Count | None = part(Count, None)
    present: bool = key(flag, True)


class FabricName(Figure):
    """Arrangement of the switches between nodes."""

    unit: ClassVar[str] = "name"
    value: Parsed = key(one_of("fabric", lambda: FABRICS))


class NetworkName(Figure):
    """Kind of network that joins the nodes: the name of a shipped file of figures."""

    unit: ClassVar[str] = "name"
    value: Parsed = key(one_of("network", network_names))


class RoutingName(Figure):
    """Way in which switches spread messages over equal paths."""

    unit: ClassVar[str] = "name"
    value: Parsed = key(one_of("routing", lambda: ROUTINGS))


class MixedNodes(Model):
    """Equal nodes of a cluster whose nodes differ."""

    node: str = key(_word)
    nodes: Count = part(Count)


class ScaleOut(Section):
    """The cluster around a node; what is not given comes from the network's file."""

    node: str = key(_word, "")
    mix: list[MixedNodes] = items(MixedNodes, most=MOST_KINDS)
    nodes: Count | None = part(Count, None)
    racks: Count | None = part(Count, None)
    gpus_per_node: Count | None = part(Count, None)
    fabric: FabricName = default_figure(FabricName, "rail", "adapter i of every node on the switches of rail i")
    network: NetworkName | None = part(NetworkName, None)
    routing: RoutingName | None = part(RoutingName, None)
    hash_seed: Count | None = part(Count, None)
    flows_per_pair: Count | None = part(Count, None)
    radix: Count | None = part(Count, None)
    port_rate: Rate | None = part(Rate, None)
    tiers: Count | None = part(Count, None)
    oversubscription: Ratio = default_figure(Ratio, "1", "as much rate above a leaf switch as below it")
    rails: Count | None = part(Count, None)
    group_switches: Count | None = part(Count, None)
    switch_endpoints: Count | None = part(Count, None)
    global_links: Count | None = part(Count, None)
    nic_cable: Length = default_figure(Length, "5 m", "adapter to leaf, a few racks apart at most")
    leaf_cable: Length = default_figure(Length, "30 m", "leaf to spine, along a row; inside a dragonfly group too")
    core_cable: Length = default_figure(Length, "50 m", "spine to core, across a hall; between dragonfly groups too")
    bus_latency: Time = default_figure(
        Time, "250 ns", "GPU to adapter through a PCIe switch; with the adapter 1 to 1.5 us for both ends together"
    )
    bus_efficiency: Fraction = default_figure(
        Fraction,
        "0.858",
        "one way 56.3 of 63 GB/s, copies of an MI300X over PCIe 5 x16 in public benchmarks; an adapter reads and "
        "writes at once, and each way carries the other's read requests as well, 24 bytes for every 512",
    )
    switch_latency: Time | None = part(Time, None)
    nic_latency: Time | None = part(Time, None)
    link_latency: Time | None = part(Time, None)
    efficiency: Fraction | None = part(Fraction, None)


SECTIONS: dict[str, type[Model]] = {
    "gpu": Gpu,
    "link": Link,
    "switch": Switch,
    "cpu": Cpu,
    "nic": Nic,
    "in_network_reduction": Reduction,
    "scale_out": ScaleOut,
    "nodes": Node,
    "links": ExplicitLink,
    "changes": LinkChange,
}
"""The model of each section; ``nodes``, ``links`` and ``changes`` are lists of theirs."""
