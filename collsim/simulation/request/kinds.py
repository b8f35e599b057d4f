"""Kinds of arguments, as annotations have them: files, lists of systems, truths; told before a function is called.

What a run is asked, and names, numbers and sizes, are checked where they are used, beside all else that is wrong there.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from collsim.core.errors import Fault
from collsim.core.kinds import shown
from collsim.simulation.request.fields import BY_NAME

__all__ = ["call_faults"]

FILE, FILES = "pass the path of a file", "pass a path or a list of paths"
PATHS = {
    "file": FILE,
    "files": FILES,
    "logs": f"{FILES}; - is stdin",
    "workload": "pass the path of a trace or of a workload in YAML",
    "grid": "pass the path of a YAML file, or a mapping",
    "output": "pass the path of the file to write",
}
"""Arguments that name files, with what to pass."""
KINDS: Mapping[str, tuple[Callable[[Any], bool], str, str]] = {
    "topos": (
        lambda value: isinstance(value, Iterable) and not isinstance(value, str | os.PathLike) and not _is_graph(value),
        "a list of systems",
        'pass a list, such as ["hgx_h100", "hgx_b200"]',
    ),
    "progress": (callable, "a function", "pass a function of the points that are done and of all"),
    "dask": (lambda value: isinstance(value, str), "an address", 'such as "tcp://scheduler:8786"'),
    "price": (lambda value: isinstance(value, Mapping), "a mapping of systems", 'pass {"hgx_b200": 2.50}, USD an hour'),
    "power": (lambda value: isinstance(value, Mapping), "a mapping of systems", 'pass {"hgx_b200": 1000}, watts'),
}
"""Other arguments: whether a value is of the kind, what it is called, and what to pass."""


def call_faults(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Fault]:
    """Return a fault for each argument that is missing, too many, given twice, or of a kind that cannot be right.

    >>> def run(file: str | Path, *, fast: bool = False) -> None: ...
    >>> for fault in call_faults(run, (5,), {"fast": "yes"}):
    ...     print(fault)
    file: 5 is not a path
      hint: pass the path of a file
    fast: fast "yes" is not true or false
      hint: pass True or False
    """
    parameters = inspect.signature(function).parameters
    of_place = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    given = dict(zip([each.name for each in of_place], args, strict=False))
    twice = [(number, name) for number, name in enumerate(given, 1) if name in kwargs]
    faults = [Fault("given twice", name, f"it is argument {number} already") for number, name in twice]
    if len(args) > len(of_place):
        names = ", ".join(given) or "none"
        hint = f"by place {function.__name__} takes {names}; name the others, as name=value"
        faults.append(Fault(f"{len(args)} arguments by place", function.__name__, hint))
    needed = [each.name for each in of_place if each.default is each.empty]
    faults += [
        Fault("not given", name, f"{function.__name__} needs {' and '.join(needed)}")
        for name in needed
        if name not in given and name not in kwargs
    ]
    given |= kwargs
    kinds = ((name, value, str(parameters[name].annotation)) for name, value in given.items() if name in parameters)
    return faults + [fault for each in kinds if (fault := _fault(*each)) is not None]


def _fault(name: str, value: Any, annotation: str) -> Fault | None:
    """Return what is wrong with the kind of a value, if anything."""
    if value is None and annotation.endswith("None"):
        return None
    if name in BY_NAME:
        return None
    if annotation == "bool":
        wrong = type(value).__name__ not in ("bool", "bool_")
        return Fault(f"{name} {shown(value)} is not true or false", name, "pass True or False") if wrong else None
    if name in PATHS and "Path" in annotation:
        wrongs = [each for each in _entries(value, annotation) if not each or not isinstance(each, str | os.PathLike)]
        return Fault(f"{shown(wrongs[0])} is not a path", name, PATHS[name]) if wrongs else None
    if name in KINDS and not KINDS[name][0](value):
        return Fault(f"{shown(value)} is not {KINDS[name][1]}", name, KINDS[name][2])
    return None


def _entries(value: Any, annotation: str) -> Iterable[Any]:
    """Return the paths of an argument; none where it is of another type that the annotation names."""
    named = re.findall(r"\w+", annotation)
    if type(value).__name__ in named or ("Mapping" in named and isinstance(value, Mapping)):
        return () if not isinstance(value, str) else (value,)
    if not {"Sequence", "Iterable"} & {*named} or isinstance(value, str | bytes | os.PathLike | Mapping):
        return (value,)
    # Nobody may look into an iterator before it is used.
    return value if isinstance(value, list | tuple | Set) else () if isinstance(value, Iterable) else (value,)


def _is_graph(value: Any) -> bool:
    return hasattr(value, "nodes") and hasattr(value, "edges")
