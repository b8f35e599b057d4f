"""The table look-up that collsim is compared with: nearest number of ranks, interpolated in the size."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from predictors import TableCase, TableRow
from table_lookup import looked_up_s


def row(op: str, ranks: int, size: int, time_s: float, dtype: str = "half") -> TableRow:
    case = TableCase("s", "", "stream", "", "", 1, ranks, op, dtype, size, "", 1.0)
    return TableRow("log", case, time_s, time_s, None, "train", "", "", "", "ok", spike=False)


TABLE = [
    row("all_reduce", 2, 1000, 1e-6),
    row("all_reduce", 2, 4000, 4e-6),
    row("all_reduce", 8, 1000, 9e-6),
    row("all_reduce", 8, 1000, 9e-6, "float"),
    row("all_gather", 4, 1000, 5e-6),
]


@pytest.mark.parametrize(
    ("op", "ranks", "size", "due"),
    [
        ("all_reduce", 2, 2000, 2e-6),  # half way in logarithms
        ("all_reduce", 3, 1000, 1e-6),  # 2 is nearer than 8
        ("all_reduce", 4, 1000, 1e-6),  # as near: the fewer
        ("all_reduce", 6, 3000, 27e-6),  # above the largest size it grows with the bytes
        ("all_reduce", 2, 500, None),  # below the smallest it has no answer
        ("broadcast", 2, 1000, None),
    ],
)
def test_looks_up(op: str, ranks: int, size: int, due: float | None) -> None:
    found = looked_up_s(row(op, ranks, size, 1.0).case, TABLE)
    assert found == (None if due is None else pytest.approx(due))
