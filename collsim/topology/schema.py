"""The sections of a ``collsim.topology/1`` file as pydantic models.

A *status* and *source* on a section apply to its figures that have none. Importing this module imports pydantic, so it
is imported only when a file is read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from collsim.topology.figures import (
    Count,
    Figure,
    Fraction,
    LinksPerPlane,
    Planes,
    Rate,
    Reduction,
    Status,
    Time,
    default_figure,
)

__all__ = ["SCHEMA", "SECTIONS", "ExplicitLink", "Gpu", "Header", "Link", "Nic", "Node", "Section", "Switch"]

SCHEMA = "collsim.topology/1"


class Section(BaseModel):
    """A group of figures; its status and source apply to those that have none of their own."""

    model_config = ConfigDict(extra="forbid")
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
        values = ((key, getattr(self, key)) for key in type(self).model_fields)
        return [(key, value) for key, value in values if isinstance(value, Figure)]


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


class Nic(Section):
    """The scale-out adapters; recorded, not wired."""

    model: Word = ""
    per_gpu: Count = default_figure(Count, "1", "one adapter for each GPU")
    shared_by: Count = default_figure(Count, "1", "no adapter serves two GPUs")
    bandwidth: Rate


NodeName = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Field(pattern=r"^[A-Za-z0-9_.:/-]{1,100}$"),
]


class Node(Section):
    """A GPU, a switch or a CPU socket of an explicit topology."""

    name: NodeName
    kind: Literal["gpu", "switch", "cpu"] = "gpu"
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


SECTIONS: dict[str, type[BaseModel]] = {
    "gpu": Gpu,
    "link": Link,
    "switch": Switch,
    "nic": Nic,
    "in_network_reduction": Reduction,
    "nodes": Node,
    "links": ExplicitLink,
}
"""The model of each section; ``nodes`` and ``links`` are lists of theirs."""
