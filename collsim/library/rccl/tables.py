"""Tuning tables of RCCL (projects/rccl/src/graph/tuning.cc of RCCL 2.27 and 2.28, src/graph/tuning.cc before).

A model is a set of tables for a kind of board. Rows are (LL, LL128, Simple); latencies are microseconds. The correction
vectors hold tenths per power of two from 64 B on; ``1x6`` repeats. They steer the choice and are no bandwidths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

__all__ = ["BASE_US", "MODELS", "TuningModel", "correction", "model_across"]

Row = tuple[float, float, float]
BASE_US: Row = (12.0, 12.0, 17.0)
"""Fixed cost of tree and ring."""


@dataclass(frozen=True, slots=True)
class TuningModel:
    """Tables of one kind of board; pairs are (few domains, more than two)."""

    tree_us: Row
    ring_us: Row
    net_tree_us: Row
    net_ring_us: Row
    tree_ratio: tuple[Row, Row]
    ring_ratio: tuple[Row, Row]
    tree: tuple[str, str, str]
    ring: tuple[str, str, str]
    bus_GBps: float | None = None
    """Bandwidth that replaces what the search found."""


_RING_LL_5 = "1x11 10 2 10 4 4 1 2 2 1x8"
_TREE_LL_5 = "1x6 10x5 6 10 9 10 10 1x11"
_TEN = "10x27"

MODELS = {
    0: TuningModel(
        (0.8, 1.4, 2.5),
        (0.8, 2.2, 3.6),
        (11.8, 18.2, 20.8),
        (9.5, 19.8, 15.1),
        ((0.04, 0.22, 0.91), (0.04, 0.22, 0.95)),
        ((0.04, 0.34, 1.0), (0.04, 0.34, 1.0)),
        (
            "1 2 1 1 9 3 4 1 2 4 2 1 3 3 2 2 2 1x10",
            "1 3 10 1 5 10 9 10 10 10 3 1 4 5 5 4 4 3 3 2x8",
            "2 10 1 1 7 2 4 1 1 3 4 3 6 8 10 10 10 10 9 8 8 8 8 8 9 9 9",
        ),
        (
            "1x5 2 4 2 3 5 3 1 5 5 3 2 2 1x10",
            "1x9 3 10x6 8 7 5 4 4 3x6",
            "10 8 2 10 10 3 10 1 1 2 2 1 5 10 8 8 10 9 10x9",
        ),
    ),
    3: TuningModel(
        (0.8, 0.0, 2.5),
        (0.8, 0.0, 3.6),
        (12.5, 0.0, 22.4),
        (9.5, 0.0, 19.8),
        ((0.20, 0.0, 1.75), (0.20, 0.0, 0.96)),
        ((0.20, 0.0, 1.0), (0.20, 0.0, 1.0)),
        ("1x6 10 10 2 10 9 10 6 4 6 4 3x5 2x6", _TEN, "10x6 1 1 1 2 10 8 10x9 8 7 8 9 7 7"),
        ("1x5 3 1 2 1 4 4 2 2 3 7 5 4 3x4 2x6", _TEN, "1x7 5 10 1 3 1 1 1 2 2 2 3 4 7 10x7"),
    ),
    4: TuningModel(
        (0.8, 1.4, 2.5),
        (0.8, 2.2, 3.6),
        (32.2, 34.4, 47.6),
        (35.4, 87.8, 209.2),
        ((0.16, 1.09, 1.61), (0.16, 1.09, 1.08)),
        ((0.15, 0.41, 1.0), (0.15, 0.41, 1.0)),
        (
            "1x8 10 1 1 2 4 6 5 1x12",
            "1x9 2 1 1 2 10 5 2x12",
            "10x8 8 4 3 3 1 1 10 10 7 5 6 5 6 6 5 6 6 6 7",
        ),
        (
            "1x11 2 2 1 3 1 1 1 2 1x8",
            "4 5 5 4 4 4 4 2 2 1 3 10 10 7 8 5 10x5 9 8 5 4 3 3",
            "1x9 10 10 8 5 1 7 2 4 4 6 7 9 10x6",
        ),
        bus_GBps=161.4,
    ),
    5: TuningModel(
        (0.9, 0.9, 2.3),
        (0.8, 0.8, 2.1),
        (10.5, 10.5, 25.0),
        (9.5, 9.5, 320.0),
        ((0.06, 0.06, 0.11), (0.06, 0.06, 0.59)),
        ((0.08, 0.08, 1.0), (0.08, 0.08, 1.0)),
        (_TREE_LL_5, _TREE_LL_5, "1x15 7 10x5 7 7 5 6 6 6"),
        (_RING_LL_5, _RING_LL_5, "1x22 7 2 10 10 10"),
    ),
    6: TuningModel(
        (0.9, 0.9, 2.3),
        (0.8, 0.8, 2.1),
        (10.5, 10.5, 25.0),
        (9.5, 9.5, 320.0),
        ((0.06, 0.06, 0.11), (0.06, 0.06, 0.59)),
        ((0.08, 0.08, 1.0), (0.08, 0.08, 1.0)),
        (_TREE_LL_5, "1x6 10x5 6 10 9 10x5 20 20 10 1 9 9 1 1", "1x15 7 10 1x5 7 1.5 6 1 6"),
        (_RING_LL_5, "1x11 10 2 10 4 4 1 2 1 1 1 1 55 1 1 10 10", "1x20 9 1 10 1 6 10 10"),
    ),
}
"""0: all else; 3: 8 dies of MI250; 4: 16 dies of MI250X with LL128; 5: gfx942; 6: gfx950."""


_FIRST_ACROSS, _SECOND_ACROSS = (2, 22), (2, 26)
"""Last release of the first and of the second tables of several boards; LL128 came to those of MI300X with the second
(ROCm/rccl pull request 1627, April 2025), the present ones by 2.27, of which a public log of two MI355X boards shows
the limits. Which release carries which is inferred from what else the files have, and from that log."""

_ZEROS, _RING_FIRST = "0x27", "1x23 8 10 10 10"
EARLIER = {
    5: (
        (
            _FIRST_ACROSS,
            replace(
                MODELS[5],
                tree=(_TREE_LL_5, _ZEROS, "1x15 7 10x10 8"),
                ring=(_RING_LL_5, _ZEROS, _RING_FIRST),
            ),
        ),
        (_SECOND_ACROSS, replace(MODELS[5], ring=(_RING_LL_5, _RING_LL_5, "1x22 10 8 10 10 10"))),
    ),
    6: (
        (
            _SECOND_ACROSS,
            replace(
                MODELS[6],
                tree=(_TREE_LL_5, "1x6 10x5 6 10 9 10x5 20 1x7", "1x15 7 10 1 1 1 9 9 7 8 6 6 6"),
                ring=(_RING_LL_5, "1x11 10 2 10 4 4 1 2 1x9", "1x22 10 8 8 10 10"),
            ),
        ),
    ),
}
"""Tables of several boards of gfx942 and gfx950 before those of `MODELS`, each with its last release."""


def model_across(number: int, version: tuple[int, int]) -> TuningModel:
    """Return the tables for several boards of a release."""
    return next((model for last, model in EARLIER.get(number, ()) if version <= last), MODELS[number])


@cache
def correction(vector: str) -> tuple[float, ...]:
    """Return the factors of a vector.

    >>> correction("10x2 5")
    (1.0, 1.0, 0.5)
    """
    factors: list[float] = []
    for word in vector.split():
        value, _, times = word.partition("x")
        factors += [float(value) / 10] * int(times or 1)
    return tuple(factors)
