"""Tunings: what a library chooses at each size beside the best of the simulator, and the rules that are worth it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from collsim.core.tabular import Tabular
from collsim.core.units import format_size
from collsim.planning.tuner_csv import ANY, COLLECTIVES, Rule, write_rules

__all__ = ["Option", "TunedSize", "Tuning"]

SCHEMA = "collsim.tune/1"
VARIABLES = {
    "nvls": "NVLS", "nvls_tree": "NVLSTree", "collnet_direct": "CollnetDirect", "collnet_chain": "CollnetChain",
    "pat": "PAT", "ll": "LL", "ll128": "LL128", "simple": "Simple",
}  # fmt: skip
"""Words of NCCL_ALGO and NCCL_PROTO where they are not those of the rules with a capital."""
VERDICTS = ("agrees", "within error", "unmeasured", "override")
"""Verdicts on a size: the library's choice is the best one; another is faster, by less than the error of the model, or
by an error that nobody measured; or by more."""


@dataclass(frozen=True, slots=True)
class Option:
    """Choice of algorithm, protocol and channels (-1: the library's own) with its time; *band* is the error of the
    logarithm of the time that 90 % of measured ones keep, None where nobody measured it.
    """

    algo: str
    proto: str
    channels: int
    time_s: float
    band: float | None
    limited_by: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """Words for tables."""
        return f"{self.algo}/{self.proto}" + (f" x{self.channels}" if self.channels != ANY else "")


@dataclass(frozen=True, slots=True)
class TunedSize:
    """One operation at one size: the library's choice, the best option, and all others.

    Attributes
    ----------
    op : str
    ranks, nodes : int
        *nodes* is -1 where hosts are not nodes of the topology, as in a rack.
    size_bytes : int
        As the tuner sees it: that of the size column of nccl-tests.
    library, best : Option
    options : tuple of Option
        All, fastest first.
    given_band : float or None
        Error of a ratio that the caller says, in place of that of the profile.
    """

    op: str
    ranks: int
    nodes: int
    size_bytes: int
    library: Option
    best: Option
    options: tuple[Option, ...]
    given_band: float | None = None

    @property
    def gain(self) -> float:
        """Time of the library's choice over that of the best."""
        return self.library.time_s / self.best.time_s

    @property
    def band(self) -> float | None:
        """Factor by which a ratio of two predicted times may be off: errors of both add as squares; None if unknown."""
        if self.given_band is not None:
            return 1 + self.given_band
        if self.library.band is None or self.best.band is None:
            return None
        return math.exp(math.hypot(self.library.band, self.best.band))

    @property
    def verdict(self) -> str:
        """Which of `VERDICTS` holds."""
        if self.best.label == self.library.label:
            return VERDICTS[0]
        if self.band is None:
            return VERDICTS[2]
        return VERDICTS[3] if self.gain > self.band else VERDICTS[1]

    @property
    def chosen(self) -> Option:
        """What runs with the rules: the best if it is an override, else the library's choice."""
        return self.best if self.verdict == VERDICTS[3] else self.library


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Tabular):
    """Tuned sizes of a topology, in the order of operations, ranks and sizes."""

    version: str
    topology: str
    profile: str
    library: str
    registered: bool
    rows: tuple[TunedSize, ...]
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[TunedSize]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def rules(self) -> tuple[tuple[Rule, str], ...]:
        """Rules for ranges of sizes whose gain exceeds the error, each with a sentence on it."""
        found: list[tuple[Rule, str]] = []
        for _, rows in groupby(self.rows, key=lambda row: (row.op, row.ranks)):
            found += self._rules_of(list(rows))
        return tuple(found)

    def _rules_of(self, rows: Sequence[TunedSize]) -> Iterator[tuple[Rule, str]]:
        """Yield the rules of one operation: runs of sizes with one override, each up to half way to its neighbours."""
        numbered = list(enumerate(rows))
        for label, run in groupby(
            numbered, key=lambda each: each[1].best.label if each[1].verdict == "override" else ""
        ):
            members = list(run)
            if not label:
                continue
            (first, low), (last, high) = members[0], members[-1]
            least = (rows[first - 1].size_bytes + low.size_bytes) // 2 + 1 if first else low.size_bytes
            most = (high.size_bytes + rows[last + 1].size_bytes) // 2 if last + 1 < len(rows) else high.size_bytes
            gains = [row.gain for _, row in members]
            band = max(row.band or 1.0 for _, row in members)
            told = f"predicted {_span(gains)} times as fast as {_words(members)}, the error of that is {band:.2f}"
            best = low.best
            rule = Rule(
                COLLECTIVES[low.op], least, most, best.algo, best.proto.lower(), best.channels, low.nodes, low.ranks,
                ANY, int(self.registered),
            )  # fmt: skip
            yield rule, told

    def to_rules(self) -> str:
        """Return the file that the tuner plugin reads."""
        agree = sum(row.verdict == "agrees" for row in self.rows)
        comments = [
            f"collsim {self.version}: {self.topology}, profile {self.profile}, {self.library}",
            f"Of {len(self.rows)} sizes {agree} are chosen by the library as the simulator would; rules are those of",
            "ranges whose predicted gain exceeds the error of the model. Everything else stays the library's choice.",
            *([] if self.rules else ["No range is worth a rule."]),
        ]
        return write_rules(self.rules, comments)

    def to_environment(self) -> list[str]:
        """Return the variables that make the same choices, by range of sizes: the library knows no sizes in them."""
        return [
            f"{rule.collective} of {format_size(rule.min_bytes)} to {format_size(rule.max_bytes)}: "
            f"NCCL_ALGO={VARIABLES.get(rule.algorithm, rule.algorithm.title())} NCCL_PROTO={VARIABLES[rule.protocol]}"
            + (
                f" NCCL_MIN_NCHANNELS={rule.channels} NCCL_MAX_NCHANNELS={rule.channels}"
                if rule.channels != ANY
                else ""
            )
            for rule, _ in self.rules
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.tune/1``."""
        return {
            "schema": SCHEMA,
            "collsim": self.version,
            "topology": self.topology,
            "profile": self.profile,
            "library": self.library,
            "sizes": self.to_records(),
            "rules": [str(rule) for rule, _ in self.rules],
            "environment": self.to_environment(),
            "warnings": list(self.warnings),
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each size."""
        return [
            {
                "op": row.op,
                "ranks": row.ranks,
                "size_bytes": row.size_bytes,
                "library_algo": row.library.algo,
                "library_proto": row.library.proto,
                "library_time_s": row.library.time_s,
                "best_algo": row.best.algo,
                "best_proto": row.best.proto,
                "best_channels": None if row.best.channels == ANY else row.best.channels,
                "best_time_s": row.best.time_s,
                "gain": row.gain,
                "band": row.band,
                "verdict": row.verdict,
                "limited_by": row.best.limited_by,
            }
            for row in self.rows
        ]

    def _caption(self) -> str:
        return f"{self.topology}, {self.library}"

    def _shown(self) -> list[dict[str, str]]:
        return [
            {
                "op": row.op,
                "size (B)": str(row.size_bytes),
                "library": row.library.label,
                "best": row.best.label,
                "gain (x)": f"{row.gain:.2f}",
                "verdict": row.verdict,
                "limited_by": row.best.limited_by,
            }
            for row in self.rows
        ]


def _span(gains: Sequence[float]) -> str:
    low, high = (f"{value:.2f}" for value in (min(gains), max(gains)))
    return low if low == high else f"{low} to {high}"


def _words(members: Sequence[tuple[int, TunedSize]]) -> str:
    return " and ".join(dict.fromkeys(row.library.label for _, row in members))
