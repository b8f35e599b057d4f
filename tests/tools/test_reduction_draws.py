"""Runs by classes take as long as transfer by transfer: a few of the random cases of the tool, more of them deep."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BATCH = 5
DEEP = [pytest.param(number, marks=pytest.mark.deep) for number in range(1, 40)]


@pytest.fixture
def draws(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("reduction_draws")


@pytest.mark.parametrize("number", [0, *DEEP])
def test_classes_take_as_long_as_all_transfers(draws, number):
    found = [draws.compared(seed) for seed in range(BATCH * number, BATCH * (number + 1))]
    assert any(found)
    assert [each for each in found if each and each.verdict in ("different", "refused")] == []


def test_a_different_time_is_found(draws, monkeypatch):
    """A run whose classes are taken as shorter than they are does not pass."""
    seeds = range(40)
    equal = next(seed for seed in seeds if (each := draws.compared(seed)) and each.verdict == "equal")
    simulate = draws.simulate

    def shorter(*args, reduce, **asked):
        result = simulate(*args, reduce=reduce, **asked)
        rows = tuple(replace(row, time_s=row.time_s * (1 - 1e-6)) for row in result.rows)
        return replace(result, rows=rows) if reduce else result

    monkeypatch.setattr(draws, "simulate", shorter)
    assert draws.compared(equal).verdict == "different"
