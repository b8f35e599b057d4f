"""The sections of a ``collsim.topology/1`` file as pydantic models.

A *status* and *source* on a section apply to its figures that have none. Importing this module imports pydantic, so it
is imported only when a file is read.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

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
    Status,
    Time,
    default_figure,
    one_of,
)
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


class Section(BaseModel):
    """A group of figures; its status and source apply to those that have none of their own."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    status: Status | None = None
    source: str = ""
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _refuse_empty(cls, data: Any) -> Any:
        """Make a figure without a value a fault of its own, not a silent default."""
        if not isinstance(data, dict):
            return data
        return {
            key: {"value": None} if value is None and key in cls.model_fields else value for key, value in data.items()
        }

    @model_validator(mode="after")
    def _inherit(self) -> Section:
        for _, figure in self.figures():
            if figure.status is None:
                figure.status = self.status or "user"
                figure.source = figure.source or self.source
        return self

    def figures(self) -> list[tuple[str, Figure]]:
        """Return the figures that are given, with their keys."""
        return [(key, value) for key, value in self.__dict__.items() if isinstance(value, Figure)]


Word = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value), Field(max_length=500)]


class Header(BaseModel):
    """The scalar keys at the top of the file."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    schema_: Literal["collsim.topology/1"] = Field(alias="schema")
    name: Word | None = None
    title: Word = ""
    notes: Annotated[str, Field(max_length=10_000)] = ""
    extends: Word | None = None
    builder: Literal["full_mesh", "switched", "explicit"]


class Gpu(Section):
    """The accelerators."""

    model: Word = ""
    count: Count | None = None
    memory_bandwidth: Rate | None = None


class Link(Section):
    """One physical scale-up link, per direction."""

    type: Word = ""
    bandwidth: Rate | None = None
    latency: Time = default_figure(Time, "250 ns", "one traversal of a short electrical link, port to port")
    efficiency: Fraction = default_figure(Fraction, "1", "the raw rate")
    per_pair: Count = default_figure(Count, "1", "one link between two GPUs")


class Switch(Section):
    """The switches of a switched domain."""

    model: Word = ""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z_-]{0,30}$")] = "sw"
    planes: Planes | None = None
    links_per_plane: LinksPerPlane = default_figure(LinksPerPlane, "1", "one link from every GPU to each switch")
    ports: Count | None = None
    latency: Time = default_figure(Time, "200 ns", "forwarding latency of a scale-up switch")
    in_network_efficiency: Fraction | None = None


class Cpu(Section):
    """Sockets of the host; its memory is what GPUs without peer access copy through, each reading it at *read_rate*.

    *start_skew* is how much later than the first the last rank begins each call.
    """

    model: Word = ""
    memory_bandwidth: Rate | None = None
    read_rate: Rate | None = None
    start_skew: Time | None = None


def _read_distance(value: Any) -> Parsed:
    read = one_of("distance", lambda: [name.lower() for name in DISTANCES])(value)
    return Parsed(read.text.upper(), read.value)


class Distance(Figure):
    """Way over PCIe from an adapter to its GPU, one of `DISTANCES`."""

    unit: ClassVar[str] = "name"
    value: Annotated[Parsed, PlainValidator(_read_distance)]


class Nic(Section):
    """The scale-out adapters; wired in a cluster, recorded elsewhere. *bus* is what joins one to its GPU.

    *ports* of an adapter are bonded, each of *bandwidth*; a queue pair uses one of them.
    """

    model: Word = ""
    per_gpu: Count = default_figure(Count, "1", "one adapter for each GPU")
    shared_by: Count = default_figure(Count, "1", "no adapter serves two GPUs")
    ports: Count | None = None
    bandwidth: Rate
    bus_bandwidth: Rate | None = None
    distance: Distance | None = None


NodeName = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Field(pattern=r"^[A-Za-z0-9_.:/-]{1,100}$"),
]


class Node(Section):
    """A GPU, a switch, a CPU socket or a network adapter of an explicit topology."""

    name: NodeName
    kind: Literal["gpu", "switch", "cpu", "nic"] = "gpu"
    latency: Time | None = None


class ExplicitLink(Section):
    """*count* parallel physical links between two nodes; what is not given comes from ``link:``, its source too."""

    a: NodeName
    b: NodeName
    bandwidth: Rate | None = None
    latency: Time | None = None
    efficiency: Fraction | None = None
    count: Count = default_figure(Count, "1", "one link")
    duplex: bool = True


class LinkChange(Section):
    """Figures of the links between two nodes that differ from those of the builder; what is not given stays.

    *count* is of parallel links, each with the rate. *present* false: there are none.
    """

    a: NodeName
    b: NodeName
    bandwidth: Rate | None = None
    latency: Time | None = None
    efficiency: Fraction | None = None
    count: Count | None = None
    present: bool = True


class FabricName(Figure):
    """Arrangement of the switches between nodes."""

    unit: ClassVar[str] = "name"
    value: Annotated[Parsed, PlainValidator(one_of("fabric", lambda: FABRICS))]


class NetworkName(Figure):
    """Kind of network that joins the nodes: the name of a shipped file of figures."""

    unit: ClassVar[str] = "name"
    value: Annotated[Parsed, PlainValidator(one_of("network", network_names))]


class RoutingName(Figure):
    """Way in which switches spread messages over equal paths."""

    unit: ClassVar[str] = "name"
    value: Annotated[Parsed, PlainValidator(one_of("routing", lambda: ROUTINGS))]


class MixedNodes(BaseModel):
    """Equal nodes of a cluster whose nodes differ."""

    model_config = ConfigDict(extra="forbid")
    node: Word
    nodes: Count


class ScaleOut(Section):
    """The cluster around a node; what is not given comes from the network's file."""

    node: Word = ""
    mix: Annotated[list[MixedNodes], Field(max_length=MOST_KINDS)] = []
    nodes: Count | None = None
    racks: Count | None = None
    gpus_per_node: Count | None = None
    fabric: FabricName = default_figure(FabricName, "rail", "adapter i of every node on the switches of rail i")
    network: NetworkName | None = None
    routing: RoutingName | None = None
    hash_seed: Count | None = None
    flows_per_pair: Count | None = None
    radix: Count | None = None
    port_rate: Rate | None = None
    tiers: Count | None = None
    oversubscription: Ratio = default_figure(Ratio, "1", "as much rate above a leaf switch as below it")
    rails: Count | None = None
    group_switches: Count | None = None
    switch_endpoints: Count | None = None
    global_links: Count | None = None
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
    switch_latency: Time | None = None
    nic_latency: Time | None = None
    link_latency: Time | None = None
    efficiency: Fraction | None = None


SECTIONS: dict[str, type[BaseModel]] = {
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
