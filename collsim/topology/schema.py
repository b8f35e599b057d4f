"""The sections of a ``collsim.topology/1`` file as pydantic models.

Every figure may be written bare (``bandwidth: 25 GB/s``) or with its provenance (``{value, status, source, note}``);
a *status* and *source* on the section itself apply to its figures that have none. Importing this module imports
pydantic, so it is imported only when a file is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from collsim import units
from collsim.errors import UnitError

__all__ = [
    "SCHEMA",
    "SECTIONS",
    "Count",
    "ExplicitLink",
    "Figure",
    "Gpu",
    "Header",
    "Link",
    "Nic",
    "Node",
    "Reduction",
    "Section",
    "Switch",
]

SCHEMA = "collsim.topology/1"
MAX_COUNT = 10**9

Status = Literal[
    "datasheet", "announced", "measured", "constant", "derived", "fitted", "estimate", "assumed", "user", "set"
]


class Parsed(NamedTuple):
    """A figure's value: as written, in SI, and one number per plane where it is a list."""

    text: str
    value: float
    numbers: tuple[int, ...] = ()


def _complain(what: str, hint: str) -> PydanticCustomError:
    # The texts travel in the context, where braces are not read as a template.
    return PydanticCustomError("collsim", "{what}", {"what": what, "hint": hint})


def _reader(parse: Callable[[Any], float]) -> Callable[[Any], Parsed]:
    def read(value: Any) -> Parsed:
        if value is None:
            raise _complain("has no value", "give a value or remove the key")
        try:
            return Parsed(str(value), parse(value))
        except UnitError as error:
            raise _complain(error.faults[0].what, error.faults[0].hint) from None

    return read


def _read_count(value: Any) -> Parsed:
    number = _integer(value)
    if number is None or not 1 <= number <= MAX_COUNT:
        shown = f'"{value}"' if isinstance(value, str | int) and len(str(value)) < 40 else f"({type(value).__name__})"
        raise _complain(f"count {shown} must be a whole number, 1 or more", "write a number such as 8")
    return Parsed(str(number), float(number), (number,))


def _read_counts(value: Any) -> Parsed:
    if isinstance(value, str) and ("," in value or value.strip().startswith("[")):
        value = [part.strip() for part in value.strip().strip("[]").split(",")]
    if not isinstance(value, list):
        return _read_count(value)
    if not value:
        raise _complain("the list is empty", "write the links per plane, such as [5, 4, 4, 5]")
    numbers = tuple(_read_count(item).numbers[0] for item in value)
    return Parsed(f"[{', '.join(str(number) for number in numbers)}]", float(sum(numbers)), numbers)


def _read_planes(value: Any) -> Parsed:
    if isinstance(value, list):
        listed = ", ".join(str(item)[:8] if isinstance(item, str | int) else "?" for item in value[:32])
        raise _complain(
            "planes is the number of switches", f"write planes: {len(value)} and links_per_plane: [{listed}]"
        )
    return _read_count(value)


def _read_reduction(value: Any) -> Parsed:
    if not isinstance(value, str | bool | None) or value is True or (isinstance(value, str) and len(value) > 40):
        raise _complain("in_network_reduction is a name or none", "write a name such as NVLS or SHARP, or none")
    name = "none" if value is None or value is False or value.lower() in ("none", "no", "") else value
    return Parsed(name, 0.0 if name == "none" else 1.0)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= 18:
        return int(value)
    return value if isinstance(value, int) else None


class Figure(BaseModel):
    """A value with its provenance."""

    model_config = ConfigDict(extra="forbid")
    unit: ClassVar[str] = "count"
    value: Parsed
    status: Status | None = None
    source: str = ""
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        return data if isinstance(data, dict) else {"value": data}

    @property
    def si(self) -> float:
        """The value in SI."""
        return self.value.value


class Rate(Figure):
    """A rate in bytes/s."""

    unit: ClassVar[str] = "B/s"
    value: Annotated[Parsed, PlainValidator(_reader(units.parse_bandwidth_Bps))]


class Time(Figure):
    """A time in seconds, 0 or more."""

    unit: ClassVar[str] = "s"
    value: Annotated[Parsed, PlainValidator(_reader(units.parse_time_s))]


class Fraction(Figure):
    """A fraction, more than 0 and at most 1."""

    unit: ClassVar[str] = "fraction"
    value: Annotated[Parsed, PlainValidator(_reader(units.parse_fraction))]


class Count(Figure):
    """A whole number, 1 or more."""

    value: Annotated[Parsed, PlainValidator(_read_count)]


class Planes(Figure):
    """The number of switches that every GPU is wired to."""

    value: Annotated[Parsed, PlainValidator(_read_planes)]


class LinksPerPlane(Figure):
    """Links from every GPU to each plane: one number for all planes, or a list."""

    value: Annotated[Parsed, PlainValidator(_read_counts)]


class Reduction(Figure):
    """The name of what the switches can reduce with, or none."""

    unit: ClassVar[str] = "flag"
    value: Annotated[Parsed, PlainValidator(_read_reduction)]


FigureT = TypeVar("FigureT", bound=Figure)


def _default(kind: type[FigureT], value: str, reason: str) -> Any:
    def make() -> FigureT:
        return kind(value=value, status="assumed", source=f"collsim default: {reason}")  # type: ignore[arg-type]

    return Field(default_factory=make)


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
    latency: Time = _default(Time, "250 ns", "one traversal of a short electrical link, port to port")
    efficiency: Fraction = _default(Fraction, "1", "the raw rate")
    per_pair: Count = _default(Count, "1", "one link between two GPUs")


class Switch(Section):
    """The switches of a switched domain."""

    model: Word = ""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z_-]{0,30}$")] = "sw"
    planes: Planes | None = None
    links_per_plane: LinksPerPlane = _default(LinksPerPlane, "1", "one link from every GPU to each switch")
    ports: Count | None = None
    latency: Time = _default(Time, "200 ns", "forwarding latency of a scale-up switch")


class Nic(Section):
    """The scale-out adapters; recorded, not wired."""

    model: Word = ""
    per_gpu: Count = _default(Count, "1", "one adapter for each GPU")
    bandwidth: Rate


NodeName = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Field(pattern=r"^[A-Za-z0-9_.:/-]{1,100}$"),
]


class Node(Section):
    """A GPU or a switch of an explicit topology."""

    name: NodeName
    kind: Literal["gpu", "switch"] = "gpu"
    latency: Time | None = None


class ExplicitLink(Section):
    """*count* parallel physical links between two nodes; what is not given comes from ``link:``."""

    a: NodeName
    b: NodeName
    bandwidth: Rate | None = None
    latency: Time | None = None
    efficiency: Fraction | None = None
    count: Count = _default(Count, "1", "one link")
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
