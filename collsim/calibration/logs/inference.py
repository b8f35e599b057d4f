"""Inference from the rows of a table alone: its units, its operation and its number of ranks.

busbw / algbw is a known function of the operation and the ranks, and size / (count * element) is the number of ranks
for operations whose size counts one block per rank. This module imports only `operations` and the table.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from collsim.calibration.logs.log_types import Table
from collsim.calibration.logs.printed_rows import others_of
from collsim.core.operations import OPERATIONS

__all__ = ["Ratios", "Signs", "factor", "possible_ops", "ranks_of_blocks", "ranks_of_ratio", "read_signs"]

TELLING_WIDTH = 0.2
"""A ratio known worse than this says nothing."""
TIGHTEST = 200
MAX_RANKS = 1 << 22
MOST_STRAYS = 0.3
"""Up to this share of rows may contradict the table and is dropped; beyond, it is the header that is doubted."""


@dataclass(slots=True)
class Ratios:
    """The interval in which busbw / algbw of each row lies."""

    low: array[float] = field(default_factory=lambda: array("d"))
    high: array[float] = field(default_factory=lambda: array("d"))

    def append(self, algbw: float, algbw_step: float, busbw: float, busbw_step: float) -> None:
        """Add the interval of a row; everything is possible if its rates round to nothing."""
        if algbw > 2 * algbw_step and busbw >= 0:
            self.low.append((busbw - busbw_step * 1.02) / (algbw + algbw_step * 1.02) * 0.9995)
            self.high.append((busbw + busbw_step * 1.02) / (algbw - algbw_step * 1.02) * 1.0005)
        else:
            self.low.append(-math.inf)
            self.high.append(math.inf)

    def keep(self, wanted: bytes | bytearray) -> Ratios:
        """Return the intervals of the rows whose entry in *wanted* is not 0."""
        pairs = [(a, b) for a, b, take in zip(self.low, self.high, wanted, strict=True) if take]
        return Ratios(array("d", [a for a, _ in pairs]), array("d", [b for _, b in pairs]))

    def telling(self) -> list[int]:
        """Return the rows whose ratio is known well enough to speak."""
        return [i for i, (low, high) in enumerate(zip(self.low, self.high, strict=True)) if high - low < TELLING_WIDTH]

    def strays(self, value: float) -> list[int]:
        """Return the rows whose ratio cannot be *value*."""
        return [i for i in self.telling() if not self.low[i] <= value <= self.high[i]]

    def narrow(self) -> tuple[float, float] | None:
        """Return the interval that the best known rows share; rows at odds with better known ones are left out."""
        rows = heapq.nsmallest(TIGHTEST, self.telling(), key=lambda i: self.high[i] - self.low[i])
        if not rows:
            return None
        low, high = self.low[rows[0]], self.high[rows[0]]
        for row in rows[1:]:
            if max(low, self.low[row]) <= min(high, self.high[row]):
                low, high = max(low, self.low[row]), min(high, self.high[row])
        return low, high


def factor(op: str, ranks: int) -> float:
    """Return busbw / algbw."""
    return 1.0 if op == "hypercube" else OPERATIONS[op].busbw_factor(ranks)


@dataclass(slots=True)
class Signs:
    """Signs that tell operations apart: reduction operators, roots, N/A in place, blocks per row, ratio."""

    reduces: bool | None
    rooted: bool | None
    in_place_unchecked: bool
    blocks: int | None
    ratio: tuple[float, float] | None


def read_signs(table: Table, ratios: Ratios) -> Signs:
    """Collect the signs of a table."""
    redops = set(table.column("redop"))
    roots = set(table.raw("root")) - {-(2**31)}
    checked = any(not math.isnan(value) for value in table.raw("wrong"))
    in_checked = any(not math.isnan(value) for value in table.raw("in_place_wrong"))
    return Signs(
        reduces=None if redops <= {None} else bool(redops - {"none", None}),
        rooted=None if not roots else max(roots) >= 0,
        in_place_unchecked=checked and not in_checked,
        blocks=ranks_of_blocks(table),
        ratio=ratios.narrow(),
    )


def ranks_of_blocks(table: Table) -> int | None:
    """Return the size / (count * element) that most rows share, or None."""
    types = table.column("dtype")
    seen = Counter(
        others_of(size, count, dtype)
        for size, count, dtype in zip(table.raw("size_bytes"), table.raw("count"), types, strict=True)
        if count > 0
    )
    seen.pop(0, None)
    if not seen:
        return None
    blocks, rows = seen.most_common(1)[0]
    return blocks if rows * 2 > sum(seen.values()) else None


def possible_ops(signs: Signs, ranks: int | None, *, strict: bool = True) -> set[str]:
    """Return the operations that the signs allow; counts and N/A in place are heard only if *strict*."""
    if not strict:
        signs = replace(signs, in_place_unchecked=False, blocks=None)
    return {name for name in OPERATIONS if name != "all_to_all_v" and _allowed(name, signs, ranks)}


def _allowed(name: str, signs: Signs, ranks: int | None) -> bool:
    op = OPERATIONS[name]
    if signs.reduces is not None and name != "send_recv" and signs.reduces != op.reduces:
        return False
    if signs.rooted is not None and signs.rooted != op.rooted:
        return False
    if signs.in_place_unchecked and name not in ("all_to_all", "send_recv"):
        return False
    if signs.blocks is not None and (signs.blocks > 1) != op.blocked and (ranks or 2) > 1:
        return False
    return _ratio_allows(name, signs, ranks)


def _ratio_allows(name: str, signs: Signs, ranks: int | None) -> bool:
    if signs.ratio is None:
        return True
    ranks = ranks or (signs.blocks if OPERATIONS[name].blocked else None)
    low, high = signs.ratio
    return low <= factor(name, ranks) <= high if ranks else _ranks_between(name, low, high) is not None


def ranks_of_ratio(op: str, ratios: Ratios) -> tuple[int, int] | None:
    """Return the least and the greatest number of ranks that the ratio allows; None if it says nothing."""
    shared = ratios.narrow()
    if shared is None or op == "hypercube" or OPERATIONS[op].busbw_factor(2) == OPERATIONS[op].busbw_factor(3):
        return None
    return _ranks_between(op, *shared)


def _ranks_between(op: str, low: float, high: float) -> tuple[int, int] | None:
    """Return the least and the greatest number of ranks with a factor between *low* and *high*, or None."""
    least = _first(lambda n: factor(op, n) >= low)
    greatest = _first(lambda n: factor(op, n) > high) - 1
    return (least, greatest) if least <= greatest else None


def _first(holds: Callable[[int], bool]) -> int:
    """Return the least number of ranks at which a condition that stays true becomes true."""
    low, high = 1, MAX_RANKS
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
