"""Values beside the annotations of what takes them: whether they can be meant, and what to pass instead.

This module reads annotations as they are written, so that nothing has to be imported to look a value over.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from numbers import Integral, Real
from typing import Any

from collsim.core.errors import Fault
from collsim.core.units import with_article

__all__ = ["MISUSED", "annotations_of", "fits", "mistaken", "shown"]

MISUSED = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""What Python raises where a value is of a kind that nobody thought of."""
TOLD = {
    "int": "a whole number, such as 8",
    "float": "a number, such as 0.5",
    "bool": "True or False",
    "str": "a text",
    "Path": "a path",
    "PathLike": "a path",
}
"""What to pass, by annotation."""
LISTS, MAPPINGS = ("Sequence", "Iterable", "list", "tuple"), ("Mapping", "dict")


def shown(value: Any) -> str:
    """Return a value for a message, never at length.

    >>> shown("sum"), shown(10**50), shown([0] * 99)
    ('"sum"', 'a very large number', '[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,...')
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(value) if abs(int(value)) < 10**40 else "a very large number"
    try:
        text = f'"{value}"' if isinstance(value, str) else repr(value)
    except Exception:  # the value is the caller's: whatever its repr does must not hide the fault
        text = with_article(type(value).__name__)
    return text if len(text) <= 60 else f"{text[:57]}..."


def annotations_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return the annotation of each argument of a function; last those of a typed dictionary that it has."""
    found: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[parameter.name] = "Any" if parameter.annotation is parameter.empty else str(parameter.annotation)
        elif taken := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation)):
            kinds = inspect.unwrap(function).__globals__[taken[1]].__annotations__
            found |= {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in kinds.items()}
    return found


def mistaken(values: Mapping[str, Any], annotations: Mapping[str, str]) -> list[Fault]:
    """Return a fault for each value that its annotation does not allow.

    >>> print(*mistaken({"ranks": ["4"], "size": "1M"}, {"ranks": "Sequence[int] | None", "size": "str"}))
    ranks: ['4'] is not of the kind that is needed
      hint: pass a list, each of it a whole number, such as 8
    """
    return [
        Fault(f"{shown(value)} is not of the kind that is needed", name, f"pass {_told(annotations[name])}")
        for name, value in values.items()
        if name in annotations and not fits(value, annotations[name])
    ]


def fits(value: Any, annotation: str) -> bool:
    """Return whether a value is what an annotation allows; one that nobody can look into, an iterator, may be.

    >>> fits([1, 2], "Sequence[int] | None"), fits(True, "int"), fits({1: 2}, "Mapping[str, int]")
    (True, False, False)
    """
    return any(_fits(value, each) for each in _parts(annotation, "|"))


def _fits(value: Any, kind: str) -> bool:
    name, _, inner = kind.partition("[")
    name, of = name.rpartition(".")[2], _parts(inner[:-1], ",") if inner else []
    simple: Mapping[str, Callable[[], bool]] = {
        "Any": lambda: True,
        "None": lambda: value is None,
        "bool": lambda: type(value).__name__ in ("bool", "bool_"),
        "int": lambda: isinstance(value, Integral) and not isinstance(value, bool),
        "float": lambda: isinstance(value, Real) and not isinstance(value, bool),
        "Path": lambda: isinstance(value, os.PathLike),
        "PathLike": lambda: isinstance(value, os.PathLike),
        "Callable": lambda: callable(value),
        "Graph": lambda: hasattr(value, "nodes") and hasattr(value, "edges"),
    }
    if name in simple:
        return simple[name]()
    if name in LISTS:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        return not isinstance(value, Sequence | Set) or not of or all(fits(each, of[0]) for each in value)
    if name in MAPPINGS:
        return isinstance(value, Mapping) and (not of or all(fits(each, of[0]) for each in value))
    return any(each.__name__ == name for each in type(value).__mro__)


def _told(annotation: str) -> str:
    """Return what to pass, in words."""
    words = []
    for kind in _parts(annotation, "|"):
        name, _, inner = kind.partition("[")
        name = name.rpartition(".")[2]
        if name in LISTS:
            words.append("a list" + (f", each of it {_told(_parts(inner[:-1], ',')[0])}" if inner else ""))
        elif name in MAPPINGS:
            words.append("a mapping of names")
        elif name != "None":
            words.append(TOLD.get(name, with_article(name)))
    return " or ".join(words) or "nothing"


def _parts(annotation: str, mark: str) -> list[str]:
    """Return what stands between marks that no bracket holds."""
    parts, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip().strip("'\"") for part in parts]
