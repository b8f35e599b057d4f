"""Points of a sweep: what each asks, and the key that tells it from every other question and version."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from collsim._version import __version__
from collsim.core.errors import CollsimError
from collsim.sweeps.kinds import KINDS, signature_defaults

__all__ = ["Point", "arguments_of", "point_of"]

FILES = ("topo", "profile", "matrix", "counts", "placement", "workload")
"""Arguments that may name files, whose content is part of the key."""
OF_MACHINE = (
    "topo", "profile", "nodes", "gpus_per_node", "racks", "fabric", "network", "ranks", "rank_list", "placement",
    "overrides", "fail", "degrade",
)  # fmt: skip
"""Arguments of `simulate` that are no part of its `Request`."""
KEY_LENGTH = 24


@dataclass(frozen=True, slots=True)
class Point:
    """Point of a sweep.

    Attributes
    ----------
    kind : str
        ``run``, ``moe`` or ``timeline``.
    asked : mapping
        Argument to value; of entries of mappings ``NAME.ENTRY``.
    key : str
        Of the resolved request, the content of the files that it names, and the version of collsim.
    """

    kind: str
    asked: Mapping[str, Any]
    key: str


def point_of(kind: str, asked: Mapping[str, Any]) -> Point:
    """Return the point of arguments; those that mean the same have one key.

    >>> one, other = (point_of("run", {"topo": "hgx_h100", "op": op, "size": size})
    ...               for op, size in (("all_reduce", "1M"), ("allreduce", 1048576)))
    >>> one.key == other.key
    True
    """
    arguments = arguments_of(kind, asked)
    content = {name: _content(str(arguments[name])) for name in FILES if isinstance(arguments.get(name), str)}
    resolved = {"collsim": __version__, "kind": kind, "files": content, "asked": _resolved(kind, arguments)}
    text = json.dumps(resolved, sort_keys=True, default=str)
    return Point(kind, dict(asked), hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH])


def arguments_of(kind: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a point as functions take them: entries of mappings under the name of the mapping."""
    found: dict[str, Any] = {}
    for name, value in asked.items():
        head, dot, entry = name.partition(".")
        if dot and head in KINDS[kind].pairs:
            told = found.setdefault(head, {})
            told[entry] = value if head == "figures" else str(value)
        else:
            found[name] = value
    return found


def _resolved(kind: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with defaults, read as far as they can be without a machine."""
    whole = {**signature_defaults(kind), **arguments}
    if kind == "run":
        from collsim.simulation.request.request import ask

        question = {name: value for name, value in arguments.items() if name not in OF_MACHINE}
        try:
            request = ask(**question)
        except CollsimError:
            return whole
        return {**_plain(request), **{name: whole[name] for name in OF_MACHINE}}
    return whole


def _plain(request: Any) -> dict[str, Any]:
    """Return a request as plain data that is the same in every process."""
    found = {entry.name: getattr(request, entry.name) for entry in dataclasses.fields(request)}
    found["ops"] = [op.name for op in request.ops]
    found["library"] = None if request.library is None else request.library.name
    found["matrix_bytes"] = None if request.matrix_bytes is None else request.matrix_bytes.tolist()
    return {name: repr(value) if dataclasses.is_dataclass(value) else value for name, value in found.items()}


@cache
def _content(file: str) -> str | None:
    """Return the hash of a file; None if there is none of that name."""
    path = Path(file)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except (OSError, ValueError):
        return None
