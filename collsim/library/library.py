"""Libraries and their versions: which of NCCL and RCCL are known, and the protocols that all of them have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from collsim.core.errors import Fault, InputError, UnsupportedError

__all__ = ["DEFAULT_LIBRARY", "PROTOCOLS", "RANGES", "Library", "load_library"]

DEFAULT_LIBRARY = "nccl-2.28"
RANGES = {"nccl": ((2, 18), (2, 30)), "rccl": ((2, 18), (2, 31))}
"""The oldest and the newest version whose constants are known; an older one of the same major takes the oldest."""
PROTOCOLS = ("LL", "LL128", "Simple")


@dataclass(frozen=True, slots=True, order=True)
class Library:
    """A library and its version, such as ``nccl`` and (2, 28)."""

    family: str
    version: tuple[int, int]

    @property
    def name(self) -> str:
        """``nccl-2.28``."""
        return f"{self.family}-{_dotted(self.version)}"

    @property
    def known(self) -> Library:
        """The version whose constants this one takes: itself, or the oldest known one."""
        return Library(self.family, max(self.version, RANGES[self.family][0]))


def load_library(name: str | Library) -> Library:
    """Return the library called *name*; a patch level is accepted and does not matter.

    A version older than any that is known is accepted too: `Library.known` says whose constants it takes.

    Raises
    ------
    UnsupportedError
        No such library, a version newer than any that is known, or of another major version.

    Examples
    --------
    >>> load_library("nccl-2.28.9").name
    'nccl-2.28'
    """
    if isinstance(name, Library):
        return name
    if not isinstance(name, str):
        hint = "write a name and version such as nccl-2.28"
        raise InputError(Fault(f"library {repr(name)[:40]} is not a name", "library", hint))
    found = re.fullmatch(r"(nccl|rccl)[-_ v]*(\d+)\.(\d+)(\.\d+)*([-+].*)?", name.strip().lower())
    spans = ", ".join(f"{family}-{_dotted(low)} to {_dotted(high)}" for family, (low, high) in RANGES.items())
    if not found:
        raise UnsupportedError(Fault(f'"{name}" is no library and version', "library", f"known: {spans}"))
    family, version = found[1], (int(found[2]), int(found[3]))
    low, high = RANGES[family]
    if not (low[0], 0) <= version <= high:
        near = low if version < low else high
        what = f"no constants for {family} {_dotted(version)}"
        raise UnsupportedError(Fault(what, "library", f"nearest: {family}-{_dotted(near)}; known: {spans}"))
    return Library(family, version)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
