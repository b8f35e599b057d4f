"""Several values where a run takes one: refused, with the command that answers all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from collsim.core.errors import Fault
from collsim.simulation.request.fields import BY_NAME

__all__ = ["one_of_each"]

ONE = (
    "topo", "nodes", "gpus_per_node", "racks", "fabric", "network", "dtype", "redop", "root", "proto", "channels",
    "chunk", "library", "profile", "launch",
)  # fmt: skip
"""Parameters that hold for a whole run: each of their values is another system or another library."""
PREFIX = {"overrides": "set", "environment": "env"}
LISTS = ("op", "size", "algo", "ranks")
"""Parameters of which a run takes several, and a point of a sweep one."""


def one_of_each(flags: Mapping[str, Any], faults: list[Fault]) -> dict[str, Any]:
    """Return flags with the first value where several were given; a fault for each says what answers all of them."""
    several = {name: _values(flags.get(name)) for name in ONE}
    several = {name: values for name, values in several.items() if len(values) > 1}
    for name, values in several.items():
        what = f'"{flags[name]}" are {len(values)} values, and a run has one'
        faults.append(Fault(what, name, f"for all of them: {_command(flags, name, several)}"))
    return {**flags, **{name: values[0] for name, values in several.items()}}


def _values(text: Any) -> list[str]:
    """Return the values in a text; only one where it is a file, whose name may have commas."""
    if not isinstance(text, str) or "/" in text or os.path.exists(text):  # noqa: PTH110 - a path class is slower to import
        return []
    return [part.strip() for part in text.split(",") if part.strip()]


def _command(flags: Mapping[str, Any], name: str, several: Mapping[str, list[str]]) -> str:
    """Return the command: `compare` for systems, and a sweep for all else."""
    import shlex

    if name == "topo" and len(several) == 1:
        rest = [f"--{key} {shlex.quote(flags[key])}" for key in ("op", "size") if flags.get(key)]
        return " ".join(["collsim compare", *several[name], *rest])
    lists = {key: _values(flags.get(key)) for key in LISTS}
    grid = {**several, **{key: values for key, values in lists.items() if len(values) > 1}}
    given = {key: value for key, value in flags.items() if key in BY_NAME and _is_typed(key, value)}
    base = {key: str(given[key]) for key in dict.fromkeys(("topo", *LISTS, *ONE)) if key in given and key not in grid}
    base |= {f"{PREFIX[key]}.{entry.replace('=', ': ', 1)}": "" for key in PREFIX for entry in given.get(key, ())}
    rest = [key for key in given if key not in {*grid, *base, *PREFIX}]
    axes = {key: f"[{', '.join(values)}]" for key, values in grid.items()}
    document = f"{{schema: collsim.sweep/1, base: {{{_pairs(base)}}}, grid: {{{_pairs(axes)}}}}}"
    return f"echo {shlex.quote(document)} > grid.yaml && collsim sweep grid.yaml" + (
        f", with {', '.join(rest)} as an entry of base too" if rest else ""
    )


def _is_typed(name: str, value: Any) -> bool:
    """Return True if a flag is not what it is without anybody typing it."""
    default = BY_NAME[name].default
    return value not in {None, False, ()} and value != default and str(value) != str(default)


def _pairs(entries: Mapping[str, str]) -> str:
    return ", ".join(f"{key}: {value}" if value else key for key, value in entries.items())
