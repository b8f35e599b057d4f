"""Functions as Python calls them: unknown arguments are told the nearest one, and messages name arguments, not flags.

The rooms write messages for the command line, which knows its flags; here each flag becomes the argument of its name.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from collsim.core.errors import ArgumentError, CollsimError, Fault, nearest
from collsim.core.kinds import MISUSED, annotations_of, mistaken
from collsim.core.old_names import current_name
from collsim.simulation.request.fields import FIELDS, SCALE_OUT
from collsim.simulation.request.kinds import call_faults

__all__ = ["called_from_python", "in_python"]

P = ParamSpec("P")
T = TypeVar("T")

SPELLINGS = {flag.lstrip("-").replace("-", "_"): entry.name for entry in FIELDS for flag in entry.flags}
SPELLINGS |= {"topk": "top_k", "topology": "topo", "sizes": "size", "collective": "op", "operation": "op"}
"""Arguments by other words for them: the flags of the command line that are spelled otherwise, and near misses."""
ELSEWHERE = {
    "topo": ("topos", "source"),
    "compare": ("topos",),
    "perfetto": ("file",),
    "file": ("source", "files", "logs"),
}
"""What functions call an argument that has another name in most of them."""
WHAT_IF = {"set": "overrides", "env": "environment", "degrade": "degrade"}
"""Arguments that are mappings, by the flags that set one entry."""
FLAG = re.compile(r"(?<![\w-])(--?)([a-z][a-z-]*)(?:[ =](\"[^\"]*\"|\w(?:[\w.:=%+,-]*[\w%])?))?(?![\w-])")
PROSE = {"if", "or", "and", "to", "with", "makes", "says", "shows", "takes", "for", "as", "is", "exclude", "names"}
"""Words behind a flag that are no value of it."""


def called_from_python(function: Callable[P, T]) -> Callable[P, T]:
    """Return *function* with messages for Python.

    Raises
    ------
    ArgumentError
        As the function is called: one fault for each argument that it does not have, with the nearest that it has; or
        that is missing, given twice, or of a kind that cannot be right.

    Examples
    --------
    >>> from collsim.simulation.simulate import simulate
    >>> called_from_python(simulate)("hgx_h100", "all_reduce", "1M", node=4)
    Traceback (most recent call last):
    collsim.core.errors.ArgumentError: node: simulate has no such argument
      hint: did you mean "nodes"?
    """
    known = annotations_of(function)
    takes = inspect.signature(function).parameters.values()
    checks_names = not any(each.kind is each.VAR_KEYWORD and each.annotation == "Any" for each in takes)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        for old in [name for name in kwargs if name not in known]:
            kwargs[current_name(old, known)] = kwargs.pop(old)
        if checks_names and (unknown := [name for name in kwargs if name not in known]):
            raise ArgumentError(*(_unknown(name, function.__name__, list(known)) for name in unknown))
        kinds = [*known.values(), *("Any",) * len(args)]
        places = tuple(_plain(value, kind) for value, kind in zip(args, kinds, strict=False))
        names = {name: _plain(value, known.get(name, "Any")) for name, value in kwargs.items()}
        given = {**dict(zip(known, places, strict=False)), **names}
        if wrong := call_faults(function, places, names):
            raise ArgumentError(*wrong)
        try:
            return cast("Callable[..., T]", function)(*places, **names)
        except CollsimError as error:
            faults = tuple(_of_file(in_python(fault, known), _files(given)) for fault in error.faults)
            error.faults, error.args = faults, ("\n".join(map(str, faults)),)
            raise
        except MISUSED as error:
            if wrong := mistaken(given, known):
                raise ArgumentError(*wrong) from error
            raise

    return called


def _plain(value: Any, annotation: str) -> Any:
    """Return an array as lists where none is asked for: of an array nobody can ask whether it is empty."""
    dimensions = getattr(value, "ndim", None)  # of a type of numpy it is no number
    return value.tolist() if isinstance(dimensions, int) and dimensions and annotation != "Any" else value


def _files(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the argument of each text and path that was passed, alone or in a list: any of them may be a file."""
    return {
        Fault("", os.fspath(each)).where: name  # a fault cuts what is too long to be a path
        for name, value in values.items()
        for each in (value if isinstance(value, list | tuple) else (value,))
        if isinstance(each, str | os.PathLike) and os.fspath(each)
    }


def _of_file(fault: Fault, files: Mapping[str, str]) -> Fault:
    """Return a fault that lies in a file with the argument that names the file.

    >>> print(_of_file(Fault("no such file", "own.yaml"), {"own.yaml": "topo"}))
    topo: own.yaml: no such file
    """
    name = next((name for file, name in files.items() if fault.where == file or fault.where.startswith(f"{file}:")), "")
    return replace(fault, where=f"{name}: {fault.where}") if name else fault


def _unknown(name: str, function: str, known: Sequence[str]) -> Fault:
    """Return the fault of an argument that is not there."""
    near = SPELLINGS.get(name, nearest(name, known))
    hint = f'did you mean "{near}"?' if near in known else f"it has {', '.join(known) or 'none'}"
    return Fault("no such argument" if not function else f"{function} has no such argument", name, hint)


def in_python(fault: Fault, known: Iterable[str]) -> Fault:
    """Return a fault with arguments in place of flags.

    >>> in_python(Fault("0 nodes", "--set scale_out.nodes", "give --nodes 2, or --env NCCL_ALGO=Ring"), ["nodes"])
    Fault(what='0 nodes', where='nodes', hint='give nodes=2, or --env NCCL_ALGO=Ring', places=())
    >>> in_python(Fault("no library", "env", "add --library nccl-2.28"), ["environment", "library"]).hint
    'add library="nccl-2.28"'
    """
    names = dict.fromkeys(known)
    what, hint = (_translated(text, names) for text in (fault.what, fault.hint))
    return replace(fault, what=what, where=_place(fault.where, names), hint=hint)


def _place(where: str, names: Mapping[str, None]) -> str:
    """Return the argument at a place; a file, or what else is none, as it is."""
    flag, _, path = where.partition(" ")
    name = flag.lstrip("-").replace("-", "_")
    key = (path or flag).removeprefix("scale_out.")
    if (path or flag) != key and key in SCALE_OUT and key in names:
        return key
    if flag == "--set" and path and "overrides" in names:
        return f'overrides["{path}"]'
    found = SPELLINGS.get(name, name)
    found = next((other for other in ELSEWHERE.get(found, ()) if other in names and found not in names), found)
    return f"{found} {path}".rstrip() if found in names else where


def _translated(text: str, names: Mapping[str, None]) -> str:
    """Return a text with flags as arguments; a command in it stays one."""
    if "-" not in text or "collsim " in text:
        return text

    def argument(match: re.Match[str]) -> str:
        dashes, flag, value = match.groups()
        name = flag.replace("-", "_")
        name = SPELLINGS.get(name, name)
        if name not in names or (dashes == "-" and len(flag) > 1):
            return match[0]
        behind = match[0][len(dashes) + len(flag) :]
        if value is None or value in PROSE:
            return name + behind
        if flag in WHAT_IF:
            path, _, figure = value.strip('"').partition("=")
            return f'{name}={{"{path}": "{figure}"}}'
        bare = value.startswith('"') or re.fullmatch(r"[A-Z]|[0-9.]+", value)
        return f"{name}={value}" if bare else f'{name}="{value}"'

    return FLAG.sub(argument, text)
