"""Values as callers give them, read one by one: what is wrong is added to the faults of the request, not raised."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from collsim.core.errors import Fault, UnknownNameError
from collsim.core.kinds import shown
from collsim.core.units import with_article

__all__ = ["in_known_case", "plain", "read_choice", "read_items", "read_name", "read_names", "read_whole"]


def read_name(value: Any, where: str, kind: str, known: Iterable[str], faults: list[Fault]) -> str:
    """Return a name; empty, with the fault added, if it is none."""
    if isinstance(value, str):
        return value
    faults.append(Fault(f"{kind} {shown(value)} is not a name", where, f"known: {', '.join(known)}"))
    return ""


def read_choice(value: Any, where: str, kind: str, known: Sequence[str], faults: list[Fault]) -> str:
    """Return a name that must be one of *known*, in any case, as these spell it."""
    name = in_known_case(read_name(value, where, kind, known, faults), known)
    if isinstance(value, str) and name not in known:
        faults.extend(UnknownNameError(kind, value, known, where).faults)
    return name


def in_known_case(name: str, known: Iterable[str]) -> str:
    """Return a name as one of *known* spells it; as it is if none does.

    >>> in_known_case("simple", ("LL", "Simple")), in_known_case("sample", ("LL", "Simple"))
    ('Simple', 'sample')
    """
    return {each.casefold(): each for each in known}.get(name.casefold(), name)


def plain(value: Any) -> Any:
    """Return an array as lists, and anything else as it is: of an array nobody can ask whether it is empty."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def read_whole(value: Any, where: str, noun: str, hint: str, faults: list[Fault]) -> int:
    """Return a whole number, of numpy too; 0, with the fault added, if it is none."""
    try:
        if not isinstance(value, bool | np.bool_):
            return operator.index(value)
    except TypeError:
        pass
    faults.append(Fault(f"{noun} {shown(value)} is not a whole number", where, hint))
    return 0


def read_items(value: Any, where: str, hint: str, faults: list[Fault], empty: str = "the list is empty") -> list[Any]:
    """Return the entries of a list, a range or an array; a value that is none of these is the only entry."""
    if isinstance(value, np.ndarray) and value.ndim != 1:
        if value.ndim == 0:
            return [value.item()]
        faults.append(Fault(f"an array of {value.ndim} dimensions where a list is needed", where, hint))
        return []
    if isinstance(value, Mapping | Set):
        faults.append(
            Fault(f"{with_article(type(value).__name__)} where a list is needed", where, f"pass a list; {hint}")
        )
        return []
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, Iterable):
        return [value]
    entries = list(value)
    if not entries:
        faults.append(Fault(empty, where, hint))
    return entries


def read_names(value: Any, where: str, kind: str, hint: str, faults: list[Fault]) -> tuple[str, ...]:
    """Return names of operations or algorithms."""
    entries = read_items(value, where, hint, faults, f"no {kind} is named")
    faults.extend(
        Fault(f"{kind} {shown(entry)} is not a name", where, hint) for entry in entries if not isinstance(entry, str)
    )
    return tuple(entry for entry in entries if isinstance(entry, str))
