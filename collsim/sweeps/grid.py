"""Grids: a file, or a mapping, to the points that it says, with all that is wrong with it at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, SpecError, did_you_mean
from collsim.core.input_files import beside, read_input
from collsim.core.old_names import current_name
from collsim.core.plain_yaml import read_yaml
from collsim.sweeps.kinds import KINDS, check_value, listed_value, spelled
from collsim.sweeps.points import Point, point_of

__all__ = ["MOST_POINTS", "read_grid"]

SCHEMA = "collsim.sweep/1"
KEYS = ("schema", "kind", "base", "grid", "zip", "points")
MOST_POINTS = 1_000_000
MOST_BYTES = 64 << 20


def read_grid(source: str | Path | Mapping[str, Any]) -> list[Point]:
    """Return the points of a grid, each once, in the order of the file: the last axis varies fastest.

    A file is YAML: ``kind`` (``run``, ``moe`` or ``timeline``), ``base`` (arguments of every point), ``grid`` (lists
    of values, of which every combination is a point), ``zip`` (lists of equal length, walked together) and ``points``
    (lists of arguments). Names are those of Python or of flags; ``set.PATH`` and ``env.NAME`` set one entry.

    Raises
    ------
    SpecError
        Everything that is wrong with it, with its place.

    Examples
    --------
    >>> points = read_grid({"base": {"topo": "hgx_h100", "op": "all_reduce"}, "grid": {"size": ["1M", "2M"]}})
    >>> [point.asked["size"] for point in points]
    ['1M', '2M']
    """
    data, name = _data(source)
    faults = Faults(lambda where: f"{name}: {where}" if name and where else where or name)
    if not isinstance(data, Mapping):
        raise SpecError(Fault("this is no mapping", name, f"write schema: {SCHEMA}, base: and grid:"))
    for key in data:
        if key not in KEYS:
            faults.append(Fault(f'unknown key "{key}"', "", f"{did_you_mean(str(key), KEYS)}known: {', '.join(KEYS)}"))
    if name and data.get("schema") != SCHEMA:
        what = f'schema is "{data["schema"]}"' if "schema" in data else "no schema"
        faults.append(Fault(what, "schema", f"write schema: {SCHEMA}"))
    kind = str(data.get("kind", "run"))
    if kind not in KINDS:
        faults.append(
            Fault(f'unknown kind "{kind}"', "kind", f"{did_you_mean(kind, list(KINDS))}known: run, moe, timeline")
        )
        faults.raise_any(SpecError)
    reader = _Reader(kind, faults)
    base = reader.single(data.get("base") or {}, "base")
    axes = reader.axes(data.get("grid") or {}, "grid")
    zipped = reader.axes(data.get("zip") or {}, "zip")
    listed = reader.entries(data.get("points"), "points")
    _check_lengths(zipped, faults)
    _check_once({"grid": [axes], "zip": [zipped], "points": listed}, faults)
    reader.check_complete([*base, *axes, *zipped], listed)
    faults.raise_any(SpecError)
    together = [dict(zip(zipped, row, strict=True)) for row in zip(*zipped.values(), strict=True)] or [{}]
    _check_count(len(together) * len(listed), axes, faults)
    combined = _combinations(base, axes, together, listed)
    return list({point.key: point for point in (point_of(kind, asked) for asked in combined)}.values())


def _data(source: str | Path | Mapping[str, Any]) -> tuple[Any, str]:
    if isinstance(source, Mapping):
        return source, ""
    try:
        text = read_input(source, MOST_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = f"{beside(source)}give a YAML file with schema: {SCHEMA}"
        raise InputError(Fault(f"cannot be read: {reason}", str(source), hint)) from None
    return read_yaml(text, str(source)), str(source)


class _Reader:
    """Reader of the parts of a grid: names to arguments, values checked one by one."""

    def __init__(self, kind: str, faults: Faults) -> None:
        self.name, self.kind, self.faults = kind, KINDS[kind], faults

    def single(self, told: Any, where: str) -> dict[str, Any]:
        """Return arguments with one value each, entries of mappings as ``NAME.ENTRY``."""
        found = {}
        for name, place, value in self._named(told, where):
            found[name] = value
            if isinstance(value, list | tuple) and not listed_value(name):
                self.faults.append(Fault("a list of values", place, f"move it to grid: {name}: [...]"))
            else:
                check_value(self.name, name, value, place, self.faults)
        return found

    def axes(self, told: Any, where: str) -> dict[str, list[Any]]:
        """Return arguments with their lists of values."""
        found: dict[str, list[Any]] = {}
        for name, place, values in self._named(told, where):
            found[name] = list(values) if isinstance(values, list | tuple) else []
            if isinstance(values, list | tuple) and not values:
                self.faults.append(Fault("an empty list", place, f"give values, or leave {name} out"))
            elif not found[name]:
                self.faults.append(Fault(f"{values!r} is no list of values", place, f"such as {name}: [{values}, ...]"))
            for i, value in enumerate(found[name]):
                check_value(self.name, name, value, f"{place}[{i}]", self.faults)
        return found

    def entries(self, told: Any, where: str) -> list[dict[str, Any]]:
        """Return the arguments of each point that is written down; one without any if none is."""
        if told is None:
            return [{}]
        if not isinstance(told, list) or not told:
            self.faults.append(
                Fault(f"{told!r} is no list of points", where, "such as points: [{size: 1M}, {size: 8M}]")
            )
            return [{}]
        return [self.single(entry, f"{where}[{i}]") for i, entry in enumerate(told)]

    def _named(self, told: Any, where: str) -> Iterator[tuple[str, str, Any]]:
        """Yield argument (``NAME`` or ``NAME.ENTRY``), place and value of each entry that has a name."""
        if not isinstance(told, Mapping):
            self.faults.append(Fault(f"{told!r} is no mapping", where, "write NAME: VALUE"))
            return
        places: dict[str, str] = {}
        for name, place, value in self._entries(told, where):
            if places.setdefault(name, place) != place:
                self.faults.append(Fault(f"the same as {places[name]}", place, "keep one of the two"))
            yield name, place, value

    def _entries(self, told: Mapping[Any, Any], where: str) -> Iterator[tuple[str, str, Any]]:
        for key, value in told.items():
            head, dot, entry = str(key).partition(".")
            name = current_name(spelled(head), self.kind.arguments)
            place = f"{where}.{key}"
            if name not in self.kind.arguments or (dot and name not in self.kind.pairs):
                self.faults.append(self._unknown(str(key), name, place, dot))
                continue
            if isinstance(value, Mapping) and not dot and name in self.kind.pairs:
                for inner, each in value.items():
                    yield f"{name}.{inner}", f"{place}.{inner}", each
            else:
                yield f"{name}{dot}{entry}", place, value

    def _unknown(self, key: str, name: str, place: str, dot: str) -> Fault:
        known = list(self.kind.arguments)
        if dot and name in known:
            return Fault(f"{name} has no entries", place, f"write {name}: VALUE")
        near = did_you_mean(name, known)
        return Fault(f'a point of kind {self.name} has no "{key}"', place, f"{near}it has {', '.join(known)}")

    def check_complete(self, always: Sequence[str], listed: Sequence[Mapping[str, Any]]) -> None:
        """Add a fault for each argument that some point lacks; *always* are those that all have."""
        for name in self.kind.needs:
            if name not in always and not all(name in entry for entry in listed):
                self.faults.append(Fault(f"no {name}", "", f"add {name}: to base, or a list of them to grid"))


def _check_lengths(zipped: Mapping[str, Sequence[Any]], faults: Faults) -> None:
    lengths = {name: len(values) for name, values in zipped.items() if values}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        faults.append(Fault(f"lists of different length: {told}", "zip", "give each as many values"))


def _check_once(parts: Mapping[str, Sequence[Mapping[str, Any]]], faults: Faults) -> None:
    """Add a fault for each argument that two parts vary, as the values of one of them would never be asked."""
    varied: dict[str, str] = {}
    for part, entries in parts.items():
        for name in dict.fromkeys(name for entry in entries for name in entry):
            if name in varied:
                faults.append(Fault(f"varied here and in {varied[name]}", f"{part}.{name}", "keep one of the two"))
            varied.setdefault(name, part)


def _check_count(others: int, axes: Mapping[str, Sequence[Any]], faults: Faults) -> None:
    count = others
    for values in axes.values():
        count *= len(values)
    if count > MOST_POINTS:
        faults.append(Fault(f"{count:,} points", "grid", f"at most {MOST_POINTS:,}: split it into several files"))
        faults.raise_any(SpecError)


def _combinations(
    base: Mapping[str, Any],
    axes: Mapping[str, Sequence[Any]],
    together: Sequence[Mapping[str, Any]],
    listed: Sequence[Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    for entry, row in itertools.product(listed, together):
        for values in itertools.product(*axes.values()):
            yield {**base, **row, **entry, **dict(zip(axes, values, strict=True))}
