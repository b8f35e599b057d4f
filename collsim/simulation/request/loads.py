"""Background traffic: what others take of some links for as long as a collective runs.

A load is a steady share of a link's rate; nothing says how it would give way. This module imports only `errors`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, nearest

__all__ = ["Load", "free_shares", "parse_load", "parse_loads"]

LOAD = re.compile(r"link:(.+?)\s*=\s*([0-9]+(?:\.[0-9]+)?)\s*%")
HINT = 'write "link:gpu0->nvsw0=30%" for one direction, "link:gpu0-nvsw*=30%" for both'
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Load:
    """A share of the rate of the links whose name fits a pattern; both directions unless the pattern has an arrow."""

    pattern: str
    share: float

    @property
    def text(self) -> str:
        """The load as it is written."""
        return f"link:{self.pattern}={self.share * 100:.12g}%"

    def takes(self, link_name: str) -> bool:
        """Return True if the load is on the link called *link_name*, such as ``gpu0->nvsw0``."""
        if "->" in self.pattern:
            return fnmatchcase(link_name, self.pattern)
        source, _, target = link_name.partition("->")
        return fnmatchcase(f"{source}-{target}", self.pattern) or fnmatchcase(f"{target}-{source}", self.pattern)


def parse_load(text: Any) -> Load:
    """Return a load from its text.

    >>> parse_load("link:gpu0->nvsw0=30%")
    Load(pattern='gpu0->nvsw0', share=0.3)
    """
    found = LOAD.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        kind, _, rest = str(text)[:60].partition(":")
        meant = f'did you mean "link:{rest}"? ' if kind != "link" and nearest(kind, ["link"]) else ""
        raise InputError(Fault(f'"{str(text)[:60]}" is not a load on links', "load", meant + HINT))
    share = float(found[2]) / 100
    if not 0 < share < 1:
        raise InputError(Fault(f"a load of {found[2]} %", "load", "give more than 0 % and less than 100 %"))
    return Load(found[1].strip(), share)


def parse_loads(texts: Any) -> tuple[Load, ...]:
    """Return several loads, or one from a single text; raise every fault."""
    faults = Faults()
    if not isinstance(texts, str | Iterable | None):
        raise InputError(Fault(f"{texts!r:.40} is not a load on links", "load", HINT))
    loads = [faults.attempt(parse_load, text) for text in ([texts] if isinstance(texts, str) else texts or ())]
    faults.raise_any()
    return tuple(load for load in loads if load is not None)


def free_shares(loads: Sequence[Load], link_names: Sequence[str]) -> list[float]:
    """Return the share of the rate of each link that *loads* leave; loads on one link add up.

    Raises
    ------
    InputError
        A load that is on no link; links of which nothing is left.
    """
    taken = [0.0] * len(link_names)
    faults = Faults()
    for load in loads:
        on = [link for link, name in enumerate(link_names) if load.takes(name)]
        for link in on:
            taken[link] += load.share
        if not on:
            names = ", ".join(link_names[:SHOWN])
            faults.append(Fault(f'no link is called "{load.pattern}"', "load", f"links are called {names}, ..."))
    full = [name for name, share in zip(link_names, taken, strict=True) if share >= 1 or math.isclose(share, 1)]
    if full:
        what = f"loads take all of {len(full)} links, such as {full[0]}"
        faults.append(Fault(what, "load", "the loads on a link must stay below 100 %"))
    faults.raise_any()
    return [1 - share for share in taken]
