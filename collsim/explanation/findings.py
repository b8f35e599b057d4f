"""Findings of an explanation: plain data that reports can show; the document of schema ``collsim.explain/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from collsim.core.methods import telling_arguments
from collsim.simulation.result import Result, Row

__all__ = [
    "KINDS", "Chosen", "Constant", "Contender", "Explanation", "LinkUse", "Part", "Phase", "Span", "TierUse", "WhatIf",
]  # fmt: skip

SCHEMA = "collsim.explain/1"
KINDS: Mapping[str, str] = {
    "bound": "bytes on the wires at line rate: no algorithm is faster on these links",
    "failures": "what failed makes the bound itself higher, or those late who wait for others",
    "algorithm": "bytes beyond the least: detours, copies and flags that this algorithm sends",
    "imbalance": "the busiest link carries more than an even share",
    "contention": "transfers that meet on links do not keep the busiest one busy to the end",
    "pipeline fill": "steps wait for the steps before them",
    "protocol": "the protocol's efficiency and its caps: channels, links below line rate, copies",
    "latency": "waits before bytes flow: of the call, of steps, of links",
    "host floor": "the host's time to start a call, as far as nothing hides it",
}
"""What a part of the time may be, in the order of a page."""
FINE = 1e-6
"""Parts sum to the time within this share of it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a profile: its key there, its value as text, and what stands behind it."""

    profile: str
    key: str
    value: str
    status: str
    source: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time, by how much shorter the call is without it.

    *time_s* is negative where something hides time; *note* then says why.
    """

    kind: str
    title: str
    time_s: float
    constants: tuple[Constant, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that was compared: the library's own estimate, and the simulated time; None where there is none."""

    algo: str
    proto: str
    estimate_s: float | None
    simulated_s: float | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """The algorithm and protocol that ran, who chose it, why, and what was compared, cheapest first."""

    algo: str
    proto: str | None
    channels: int
    by: str
    why: str
    contenders: tuple[Contender, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """Transfers of the schedule that do the same: ``add`` or ``copy``, ``within`` nodes, ``between`` them.

    *bytes* are what all of them move together, *steps* is how many different steps of a channel they are.
    """

    does: str
    where: str
    steps: int
    transfers: int
    bytes: float


@dataclass(frozen=True, slots=True)
class TierUse:
    """What links of one tier carry: *mean* and *busiest* are bytes carried over capacity times time."""

    name: str
    title: str
    links: int
    bytes: float
    mean: float
    busiest: float
    link: str
    capacity_Bps: float


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link and how busy it is."""

    src: str
    dst: str
    count: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Span:
    """A transfer in time: from *ready_s* it waits for its latency, from *start_s* to *finish_s* it flows."""

    rank: int
    to: int
    step: int
    adds: bool
    ready_s: float
    start_s: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change and what it would gain, simulated: *flags* ask the same of ``collsim run``.

    *time_s* is None, and *refused* says why, where the change has no answer here. *warnings* are those that the run
    itself does not have.
    """

    title: str
    flags: str
    time_s: float | None
    gain_s: float
    algo: str = ""
    warnings: tuple[str, ...] = ()
    refused: str = ""
    channels: int | None = None


@telling_arguments
@dataclass(frozen=True)
class Explanation:
    """One run, explained.

    Attributes
    ----------
    result : Result
        Of one row.
    chosen : Chosen
    phases : tuple of Phase
        Empty where the machine is so large that a small part of it was simulated.
    tiers : tuple of TierUse
    parts : tuple of Part
        In the order of `KINDS`; they sum to the time.
    what_ifs : tuple of WhatIf
        All that were simulated, the one that gains most first; those without an answer last.
    links : tuple of LinkUse
        Every link, of machines small enough to draw; else empty.
    spans : tuple of Span
        The transfers in time; empty if they are too many to draw, and *spans_told* says so.
    notes : tuple of str
        What to know before trusting the parts.
    """

    result: Result
    chosen: Chosen
    phases: tuple[Phase, ...]
    tiers: tuple[TierUse, ...]
    parts: tuple[Part, ...]
    what_ifs: tuple[WhatIf, ...]
    links: tuple[LinkUse, ...] = ()
    spans: tuple[Span, ...] = ()
    spans_told: str = ""
    notes: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """The row that is explained."""
        return self.result.rows[0]

    @property
    def time_s(self) -> float:
        """Time of the row."""
        return self.row.time_s

    @property
    def tiers_told(self) -> str:
        """What is to be said of tiers; empty if nothing."""
        if not self.row.method.part_delay:
            return ""
        return "links are shown as on the machine in order, all but the busiest of them, which is as slow as it is"

    @property
    def best(self) -> WhatIf | None:
        """The change that gains most; None if none gains anything."""
        first = self.what_ifs[0] if self.what_ifs else None
        return first if first is not None and first.gain_s > 0 else None

    def total(self, kind: str) -> float:
        """Return the seconds of all parts of a kind."""
        return sum(part.time_s for part in self.parts if part.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.explain/1``: SI units, unit in the key."""
        whole = self.result.to_dict()
        head = {key: whole[key] for key in ("collsim", "config", "topology", "profile")}
        named = ("chosen", "phases", "tiers", "parts", "what_ifs", "links", "spans", "spans_told", "notes")
        return {
            "schema": SCHEMA,
            **head,
            "row": whole["results"][0],
            **{name: _plain(getattr(self, name)) for name in named},
            "warnings": whole["warnings"],
        }


def _plain(value: Any) -> Any:
    """Return records and sequences of them as plain data."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
