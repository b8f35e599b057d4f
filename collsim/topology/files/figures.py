"""Figures: values with units and their provenance.

A figure may be written bare (``25 GB/s``) or as ``{value, status, source, note}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from collsim.core import units
from collsim.core.errors import InputError, UnitError, nearest
from collsim.topology.files.models import Key, Model, Refused, key, one_word, text
from collsim.topology.reduction import reduction_name

__all__ = [
    "STATUSES",
    "Count",
    "Feature",
    "Figure",
    "Fraction",
    "Length",
    "LinksPerPlane",
    "Parsed",
    "Planes",
    "Rate",
    "Ratio",
    "Reduction",
    "Time",
    "default_figure",
    "one_of",
]

MAX_COUNT = 10**9
MAX_RATIO = 1000.0
MAX_LENGTH_M = 10_000.0

STATUSES = (
    "datasheet", "announced", "measured", "constant", "derived", "fitted", "estimate", "assumed", "user", "set",
)  # fmt: skip
"""What a figure may rest on."""


class Parsed(NamedTuple):
    """A figure's value: as written, in SI, and one number per plane where it is a list."""

    text: str
    value: float
    numbers: tuple[int, ...] = ()


def _reader(parse: Callable[[Any], float]) -> Callable[[Any], Parsed]:
    def read(value: Any) -> Parsed:
        if value is None:
            raise Refused("has no value", "give a value or remove the key")
        try:
            return Parsed(str(value), parse(value))
        except UnitError as error:
            raise Refused(error.faults[0].what, error.faults[0].hint) from None

    return read


def _read_count(value: Any) -> Parsed:
    number = _integer(value)
    if number is None or not 1 <= number <= MAX_COUNT:
        shown = f'"{value}"' if isinstance(value, str | int) and len(str(value)) < 40 else f"({type(value).__name__})"
        hint = "; for fewer adapters than GPUs, set nic.shared_by=2" if _is_part(value) else ""
        hint = "; several are a grid of collsim sweep: nodes: [4, 8]" if "," in str(value) else hint
        raise Refused(f"count {shown} must be a whole number, 1 or more", f"write a number such as 8{hint}")
    return Parsed(str(number), float(number), (number,))


def _read_counts(value: Any) -> Parsed:
    if isinstance(value, str) and ("," in value or value.strip().startswith("[")):
        value = [part.strip() for part in value.strip().strip("[]").split(",")]
    if not isinstance(value, list):
        return _read_count(value)
    if not value:
        raise Refused("the list is empty", "write the links per plane, such as [5, 4, 4, 5]")
    numbers = tuple(_read_count(item).numbers[0] for item in value)
    return Parsed(f"[{', '.join(str(number) for number in numbers)}]", float(sum(numbers)), numbers)


def _read_planes(value: Any) -> Parsed:
    if isinstance(value, list):
        listed = ", ".join(str(item)[:8] if isinstance(item, str | int) else "?" for item in value[:32])
        raise Refused("planes is the number of switches", f"write planes: {len(value)} and links_per_plane: [{listed}]")
    return _read_count(value)


def _read_reduction(value: Any) -> Parsed:
    try:
        name = reduction_name(value)
    except InputError as error:
        raise Refused(error.faults[0].what, error.faults[0].hint) from None
    return Parsed(name or "none", 1.0 if name else 0.0)


def _read_feature(value: Any) -> Parsed:
    if not isinstance(value, str) or not value.strip() or len(value) > 100:
        raise Refused(f"{_quoted(value)} is not a feature", "say what it does in at most 100 characters")
    return Parsed(value.strip(), 1.0)


def _read_ratio(value: Any) -> Parsed:
    text = value.strip().removesuffix(":1") if isinstance(value, str) else value  # planners write 2:1
    number = _decimal(text)
    if number is None or not 1 / MAX_RATIO <= number <= MAX_RATIO:
        raise Refused(f"{_quoted(value)} is not a ratio", "write a number such as 2 (or 2:1), or 1 for none")
    return Parsed(str(value), number)


def _read_length(value: Any) -> Parsed:
    text = value.strip() if isinstance(value, str) else ""
    number = _decimal(text.removesuffix("m").strip()) if text.endswith("m") else None
    if number is None or not 0 <= number <= MAX_LENGTH_M:
        raise Refused(f"{_quoted(value)} is not a length", 'write metres, such as "30 m"')
    return Parsed(text, number)


def _decimal(value: Any) -> float | None:
    text = str(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else ""
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,12})?", text.strip(), re.ASCII) else None


def _quoted(value: Any) -> str:
    return f'"{str(value)[:40]}"' if isinstance(value, str | int | float) else units.with_article(type(value).__name__)


def one_of(kind: str, names: Callable[[], Sequence[str]]) -> Callable[[Any], Parsed]:
    """Return the reader of a figure whose value is one of *names*, in any case; *kind* is for the message."""

    def read(value: Any) -> Parsed:
        known = names()
        key = value.strip().lower().replace("-", "_") if isinstance(value, str) and len(value) <= 40 else ""
        if key not in known:
            near = nearest(key, known) if key else None
            hint = f'did you mean "{near}"? ' if near else ""
            raise Refused(f"unknown {kind} {_quoted(value)}", f"{hint}known: {', '.join(known)}")
        return Parsed(key, 1.0)

    return read


def _is_part(value: Any) -> bool:
    """Whether a value is a number between 0 and 1."""
    try:
        return 0 < float(value) < 1
    except (TypeError, ValueError):
        return False


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= 18:
        return int(value)
    return value if isinstance(value, int) else None


def read_status(value: Any) -> str | None:
    """Read what a figure rests on; nothing is not said."""
    return None if value is None else _STATUS(value)


_STATUS = one_word(*STATUSES)


class Figure(Model):
    """A value with its provenance."""

    unit: ClassVar[str] = "count"
    value: Parsed = key(lambda value: value)
    status: str | None = key(read_status, None)
    source: str = key(text, "")
    note: str = key(text, "")

    @classmethod
    def prepared(cls, data: Any) -> Any:
        """Return a figure that is written bare as a mapping."""
        return data if isinstance(data, dict) else {"value": data}

    @property
    def si(self) -> float:
        """The value in SI."""
        return self.value.value


class Rate(Figure):
    """A rate in bytes/s."""

    unit: ClassVar[str] = "B/s"
    value: Parsed = key(_reader(units.parse_bandwidth_Bps))


class Time(Figure):
    """A time in seconds, 0 or more."""

    unit: ClassVar[str] = "s"
    value: Parsed = key(_reader(units.parse_time_s))


class Fraction(Figure):
    """A fraction, more than 0 and at most 1."""

    unit: ClassVar[str] = "fraction"
    value: Parsed = key(_reader(units.parse_fraction))


class Count(Figure):
    """A whole number, 1 or more."""

    value: Parsed = key(_read_count)


class Planes(Figure):
    """The number of switches that every GPU is wired to."""

    value: Parsed = key(_read_planes)


class LinksPerPlane(Figure):
    """Links from every GPU to each plane: one number for all planes, or a list."""

    value: Parsed = key(_read_counts)


class Reduction(Figure):
    """The name of what the switches can reduce with, or none."""

    unit: ClassVar[str] = "flag"
    value: Parsed = key(_read_reduction)


class Feature(Figure):
    """Ability of a part, in words: shown, and not simulated by itself."""

    unit: ClassVar[str] = "feature"
    value: Parsed = key(_read_feature)


class Ratio(Figure):
    """A number more than 0, such as 2 for twice as much traffic below as above."""

    unit: ClassVar[str] = "ratio"
    value: Parsed = key(_read_ratio)


class Length(Figure):
    """A length in metres."""

    unit: ClassVar[str] = "m"
    value: Parsed = key(_read_length)


FigureT = TypeVar("FigureT", bound=Figure)


def default_figure(kind: type[FigureT], value: str, reason: str) -> Any:
    """Return a key whose default is *value*, marked as an assumption of collsim for *reason*."""

    def make() -> FigureT:
        return kind(value=value, status="assumed", source=f"collsim default: {reason}")

    return Key(model=kind, make=make)
