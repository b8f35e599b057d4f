"""The same question about experts on several systems: dispatch and combine of each, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collsim.core.tabular import Tabular
from collsim.moe.result import MoeRefusal, MoeResult, MoeRow

__all__ = ["MoeComparison", "MoeSystem"]

SCHEMA = "collsim.moe_compare/1"


@dataclass(frozen=True, slots=True)
class MoeSystem:
    """A system: how it is called, how many GPUs it has, and its answer; None if they are too few for anything, or if
    there is none for the reasons in *lacks*.
    """

    label: str
    gpus: int
    result: MoeResult | None
    lacks: tuple[MoeRefusal, ...] = ()

    def why_not(self, ranks: int) -> MoeRefusal:
        """Return why there is no answer for so many ranks."""
        told = [*self.lacks, *(self.result.refused if self.result else ())]
        few = MoeRefusal(ranks, f"{self.gpus} GPUs are too few", f"compare at most {self.gpus} ranks")
        return next((each for each in told if each.ranks == ranks), few)


@dataclass(frozen=True, slots=True, repr=False)
class MoeComparison(Tabular):
    """Dispatch and combine for each number of ranks *ep* on several systems, the first of which has room for all."""

    version: str
    ep: tuple[int, ...]
    systems: tuple[MoeSystem, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to read before trusting the numbers, each with the name of its system."""
        return tuple(f"{each.label}: {told}" for each in self.systems if each.result for told in each.result.warnings)

    def pairs(self, ranks: int) -> list[tuple[MoeRow, MoeRow] | None]:
        """Return dispatch and combine of each system with so many ranks; None where it has too few GPUs."""
        return [
            next((pair for pair in each.result.pairs() if pair[0].ranks == ranks), None) if each.result else None
            for each in self.systems
        ]

    def times_s(self, ranks: int) -> list[float | None]:
        """Return dispatch and combine together, of each system; None where it has too few GPUs."""
        return [None if pair is None else pair[0].whole_s + pair[1].whole_s for pair in self.pairs(ranks)]

    def speedups(self, ranks: int) -> list[float | None]:
        """Return the time of the first system over that of each."""
        first, *_ = times = self.times_s(ranks)
        return [first / time_s if first and time_s else None for time_s in times]

    @property
    def refused(self) -> tuple[tuple[str, MoeRefusal], ...]:
        """What has no answer: a system by its label, and a number of ranks with the reason."""
        return tuple(
            (system.label, system.why_not(ranks))
            for ranks in self.ep
            for system, pair in zip(self.systems, self.pairs(ranks), strict=True)
            if pair is None
        )

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each operation, number of ranks and system that has an answer."""
        return [
            {"system": system.label, "speedup": speedup, **record}
            for ranks in self.ep
            for system, speedup in zip(self.systems, self.speedups(ranks), strict=True)
            if system.result is not None
            for record in system.result.to_records()
            if record["ranks"] == ranks
        ]

    def _refused_records(self) -> list[dict[str, Any]]:
        return [{"system": label, "ranks": each.ranks, "refused": each.what} for label, each in self.refused]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.moe_compare/1``."""
        systems = [
            {"system": each.label, "gpus": each.gpus, "result": each.result.to_dict() if each.result else None}
            for each in self.systems
        ]
        rows = [{"ranks": n, "times_s": self.times_s(n), "speedups": self.speedups(n)} for n in self.ep]
        refused = [{"system": label, **each.to_dict()} for label, each in self.refused]
        return {"schema": SCHEMA, "collsim": self.version, "systems": systems, "rows": rows, "refused": refused}

    def _caption(self) -> str:
        return ", ".join(system.label for system in self.systems)

    def _shown(self) -> list[dict[str, str]]:
        return [
            {"system": system.label, **row.shown(), "speedup of both (x)": f"{speedup:.3g}"}
            for ranks in self.ep
            for system, pair, speedup in zip(self.systems, self.pairs(ranks), self.speedups(ranks), strict=True)
            if pair is not None
            for row in pair
        ]
