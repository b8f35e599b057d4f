"""Libraries and their versions: NCCL, RCCL and inference engines that bring kernels of their own, and protocols."""

from __future__ import annotations

import re
from dataclasses import dataclass

from collsim.core.errors import Fault, InputError, UnsupportedError, did_you_mean

__all__ = ["DEFAULT_LIBRARY", "ENGINES", "PROTOCOLS", "RANGES", "Library", "load_library"]

DEFAULT_LIBRARY = "nccl-2.28"
RANGES = {"nccl": ((2, 18), (2, 30)), "rccl": ((2, 18), (2, 31))}
"""The oldest and the newest version whose constants are known; others of the same major take the nearer one's."""
ENGINES = {"vllm": "0.24.0", "sglang": "0.5.14", "trtllm": "1.3.0rc20"}
"""Inference engines whose all-reduce kernels are known, and the release that was read and measured."""
DEFAULT_RCCL = "rccl-2.28"
"""What an engine calls on AMD where its own kernels do not run."""
PROTOCOLS = ("LL", "LL128", "Simple")


@dataclass(frozen=True, slots=True, order=True)
class Library:
    """A library and its version, such as ``nccl`` and (2, 28)."""

    family: str
    version: tuple[int, int]

    @property
    def name(self) -> str:
        """``nccl-2.28``."""
        return f"{self.family}-{ENGINES.get(self.family) or _dotted(self.version)}"

    @property
    def is_engine(self) -> bool:
        """True if it is an inference engine, which has kernels of its own and calls NCCL or RCCL for the rest."""
        return self.family in ENGINES

    def beneath(self, *, is_amd: bool) -> Library:
        """Return the library that does what this one has no kernel for: of an engine NCCL or RCCL, else itself."""
        return load_library(DEFAULT_RCCL if is_amd else DEFAULT_LIBRARY) if self.is_engine else self

    @property
    def known(self) -> Library:
        """The version whose constants this one takes: itself, or the nearest known one."""
        if self.is_engine:
            return self
        oldest, newest = RANGES[self.family]
        return Library(self.family, min(max(self.version, oldest), newest))


def load_library(name: str | Library) -> Library:
    """Return the library called *name*; a patch level is accepted and does not matter.

    A version older or newer than all that are known is accepted too: `Library.known` says whose constants it takes.

    Raises
    ------
    UnsupportedError
        No such library, or another major version.

    Examples
    --------
    >>> load_library("nccl-2.28.9").name, load_library("vllm").name
    ('nccl-2.28', 'vllm-0.24.0')
    """
    if isinstance(name, Library):
        return name
    if not isinstance(name, str):
        hint = "write a name and version such as nccl-2.28"
        raise InputError(Fault(f"library {repr(name)[:40]} is not a name", "library", hint))
    for engine in ENGINES:
        if name.strip().lower().startswith(engine):
            return _engine(engine, name)
    found = re.fullmatch(r"(nccl|rccl)[-_ v]*(\d+)\.(\d+)(\.\d+)*([-+].*)?", name.strip().lower())
    spans = ", ".join(f"{family}-{_dotted(low)} to {_dotted(high)}" for family, (low, high) in RANGES.items())
    if not found:
        newest_first = [
            f"{family}-{low[0]}.{minor}"
            for family, (low, high) in RANGES.items()
            for minor in range(high[1], low[1] - 1, -1)
        ]
        known = f"{did_you_mean(name, [*newest_first, *ENGINES])}known: {spans}, {', '.join(ENGINES)}"
        raise UnsupportedError(Fault(f'"{name}" is no library and version', "library", known))
    family, version = found[1], (int(found[2]), int(found[3]))
    low, high = RANGES[family]
    if version[0] not in (low[0], high[0]):
        near = low if version < low else high
        what = f"no constants for {family} {_dotted(version)}"
        raise UnsupportedError(Fault(what, "library", f"nearest: {family}-{_dotted(near)}; known: {spans}"))
    return Library(family, version)


def _engine(family: str, name: str) -> Library:
    """Return the engine called *name*, which may leave out its release or the end of it."""
    release = ENGINES[family]
    given = re.fullmatch(rf"{family}(?:[-_ v]+(\d+(?:\.\w+)*))?", name.strip().lower())
    if not given or (given[1] and f"{release}.".find(f"{given[1]}.") != 0):
        what = f'the kernels of "{name}" are not known'
        raise UnsupportedError(Fault(what, "library", f"nearest: {family}-{release}"))
    major, minor = release.split(".")[:2]
    return Library(family, (int(major), int(minor)))


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
