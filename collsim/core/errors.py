"""Every error a user can meet, as one tree.

::

    CollsimError                    exit code
    ├── InputError                      2      the request or a file is wrong: one or more faults
    │   ├── UnitError                   2      a number with a missing, ambiguous or unknown unit
    │   ├── UnknownNameError            2      no such topology, operation, algorithm, ...
    │   ├── SpecError                   2      faults of a topology, profile, schedule or matrix file
    │   ├── ArgumentError               2      an argument unknown, missing or of a wrong kind; a TypeError as well
    │   └── UnsupportedError            2      a valid request that this version cannot carry out
    ├── ModelError                      3      the model has no answer
    │   ├── NoRouteError                3      ranks that cannot reach each other
    │   └── DeadlockError               3      transfers that wait for each other for ever
    ├── VerificationError               1      a schedule that does not do what its operation promises
    └── InternalError                   1      a result that broke a conservation law; never shown as a number

A fault says what is wrong, where, with which value, the nearest valid value and what to do.
This module imports nothing of the package but `collsim.core.records`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

__all__ = [
    "PARTLY",
    "ArgumentError",
    "CollsimError",
    "DeadlockError",
    "Fault",
    "Faults",
    "InputError",
    "InternalError",
    "ModelError",
    "NoRouteError",
    "SpecError",
    "UnitError",
    "UnknownNameError",
    "UnsupportedError",
    "VerificationError",
    "chosen",
    "defect",
    "did_you_mean",
    "nearest",
    "unknown_keys",
]

T = TypeVar("T")

PARTLY = 4
"""Exit code where a part of what was asked is answered, and the rest refused."""
MOST_NAMES = 12
"""A message lists at most this many known names."""


LONGEST_WORD = 400
"""A longer word of a message is cut: no path is as long, only text in the place of a name."""


def _cut(word: re.Match[str]) -> str:
    return f"{word[0][:60]}..."


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: *what*, *where* (file, line, path or flag), *hint* (what to do).

    Where one thing is wrong at more places than are named, *places* has all of them.
    """

    what: str
    where: str = ""
    hint: str = ""
    places: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("what", "where", "hint"):
            if len(text := getattr(self, name)) > LONGEST_WORD:
                object.__setattr__(self, name, re.sub(rf"\S{{{LONGEST_WORD},}}", _cut, text))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  hint: {self.hint}" if self.hint else head


class CollsimError(Exception):
    """Base of every error that collsim raises on purpose; *faults* lists all that is wrong."""

    exit_code = 1

    def __init__(self, *faults: Fault | str) -> None:
        self.faults: tuple[Fault, ...] = tuple(Fault(f) if isinstance(f, str) else f for f in faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class InputError(CollsimError):
    """The request is wrong."""

    exit_code = 2


class UnitError(InputError):
    """A number with a missing, ambiguous or unknown unit."""


class UnknownNameError(InputError):
    """A name that does not exist; the message offers the nearest one that does, and *otherwise* behind it.

    *near* is one that goes before the nearest.
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], where: str = "", otherwise: str = "", *, near: str = ""
    ) -> None:
        choices = sorted(known)
        name = str(name)
        near = near or nearest(name, choices) or ""
        listed = ", ".join(choices[:MOST_NAMES]) + (
            f" and {len(choices) - MOST_NAMES} more" if choices[MOST_NAMES:] else ""
        )
        hint = f'did you mean "{near}"? known: {listed}' if near else f"known: {listed}"
        super().__init__(Fault(f'unknown {kind} "{name}"', where, hint + otherwise))


class ArgumentError(InputError, TypeError):
    """An argument that a function does not have, that is missing, or of a kind that cannot be right."""


class SpecError(InputError):
    """Faults of a file; all of them at once."""


class UnsupportedError(InputError):
    """A valid request that this version cannot carry out."""


class ModelError(CollsimError):
    """The model has no answer."""

    exit_code = 3


class NoRouteError(ModelError):
    """Ranks that cannot reach each other."""


class DeadlockError(ModelError):
    """Transfers that wait for each other for ever."""


class VerificationError(CollsimError):
    """A schedule that does not do what its operation promises."""


class InternalError(CollsimError):
    """A result that broke a conservation law: a defect of collsim, never a number."""


class Faults(list[Fault]):
    """Faults of one request, gathered so that all are raised at once.

    Parameters
    ----------
    place : callable, optional
        From the *where* of a fault to the place where its user wrote the value, such as a flag.

    Attributes
    ----------
    refusals : list of InputError
        What `attempt` caught.

    Examples
    --------
    >>> faults = Faults()
    >>> faults.attempt(int, "8", where="ranks"), faults
    (8, [])
    """

    def __init__(self, place: Callable[[str], str] = str) -> None:
        super().__init__()
        self.place = place
        self.refusals: list[InputError] = []

    def attempt(self, parse: Callable[..., T], /, *values: Any, where: str = "", **named: Any) -> T | None:
        """Return the result of *parse* on the values; None, with its faults added, if it refuses.

        *where* is the place of faults that name none.
        """
        try:
            return parse(*values, **named)
        except InputError as error:
            self.refusals.append(error)
            self.extend(replace(fault, where=fault.where or where) for fault in error.faults)
            return None

    def raise_any(self, kind: type[InputError] = InputError) -> None:
        """Raise an error of this *kind* with every fault once, if there are any."""
        if self:
            raise kind(*dict.fromkeys(replace(fault, where=self.place(fault.where)) for fault in self))


def defect(shows: str = "this message") -> str:
    """Give the hint of an error that only a defect of collsim explains; *shows* is what to report beside the command.

    >>> defect()
    'this is a defect of collsim: please report the command with this message'
    """
    return f"this is a defect of collsim: please report the command with {shows}"


def chosen(kind: str, name: str, known: Mapping[str, T], where: str = "") -> T:
    """Return the entry of *known* called *name*.

    Raises
    ------
    UnknownNameError
        There is none; with the nearest of those that there are.
    """
    if name not in known:
        raise UnknownNameError(kind, name, known, where)
    return known[name]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the beginning of a hint that offers the entry of *known* most like *name*; empty if none is close.

    >>> did_you_mean("rign", ["ring", "tree"]) + "known: ring, tree"
    'did you mean "ring"? known: ring, tree'
    """
    near = nearest(name, known)
    return f'did you mean "{near}"? ' if near else ""


def unknown_keys(data: Iterable[Any], known: Sequence[str], place: Callable[[str], str]) -> list[Fault]:
    """Return a fault, with the nearest known one, for each key of *data* that is not known.

    >>> print(*unknown_keys({"sise": 1, "op": "reduce"}, ("op", "size"), lambda key: f"grid.yaml: {key}"))
    grid.yaml: sise: unknown key "sise"
      hint: did you mean "size"?
    """
    return [
        Fault(f'unknown key "{str(key)[:60]}"', place(str(key)), did_you_mean(str(key), known).rstrip() or _all(known))
        for key in data
        if key not in known
    ]


def _all(known: Sequence[str]) -> str:
    return f"known: {', '.join(known)}"


def short_for(name: str, known: Iterable[str]) -> str | None:
    """Return the first entry of *known* that begins as *name* does, in any case; None if none does.

    >>> short_for("mi355", ["hgx_h100", "mi355x_rack128", "mi355x_ubb8"]), short_for("x", ["xx"])
    ('mi355x_rack128', None)
    """
    return next((each for each in known if each.lower().startswith(name.lower())), None) if len(name) > 1 else None


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the entry of *known* most like *name* in any case, or the one that it is short for; None if none is close.

    >>> nearest("mi355_ubb8", ["mi300x_ubb8", "mi355x_ubb8"]), nearest("LL12", ["LL128", "Simple"])
    ('mi355x_ubb8', 'LL128')
    >>> nearest("ib", ["efa", "infiniband", "roce"]), nearest("x", ["spectrum_x"])
    ('infiniband', None)
    """
    import difflib

    by_case = {each.lower(): each for each in reversed(known)}
    found = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.6) or _long_for(name.lower(), by_case)
    return by_case[found[0]] if len(found) == 1 else None


def _long_for(name: str, known: Iterable[str]) -> list[str]:
    """Return the entries that begin as *name* does and have all of its two or more letters, in their order."""
    letters = re.compile(".*".join(map(re.escape, name)))
    return [each for each in known if letters.match(each)] if len(name) > 1 and name.isalnum() else []
