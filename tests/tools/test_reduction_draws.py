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


def test_a_run_that_makes_rounding_larger_is_no_fault_of_its_classes(draws):
    """Sixteen trees whose chunks meet on an adapter: sizes moved by 1e-13 move the time by a thousandth."""
    topology = draws.damaged(draws.load_topology("h100_rail", {"scale_out.nodes": "9"}), ["nic:node1/0"])
    asked = {"op": "all_reduce", "size": "64M", "algo": "tree", "channels": 16, "proto": "LL128", "profile": "ideal"}
    asked["tolerance"] = 0
    whole, part = (draws._row(topology, asked, classes=classes, divide=1) for classes in (False, True))
    moved = draws.noise_of(topology, asked, whole.time_s)
    assert "nearly" not in part.path
    assert 1e-9 < abs(part.time_s / whole.time_s - 1) < moved < 0.01


def test_what_is_not_chaotic_moves_by_as_much_as_sizes(draws):
    topology = draws.load_topology("h100_rail", {"scale_out.nodes": "4"})
    asked = {"op": "all_gather", "size": "16M", "algo": "ring", "profile": "ideal", "tolerance": 0}
    row = draws._row(topology, asked, classes=False, divide=1)
    assert draws.noise_of(topology, asked, row.time_s) < 1e-12
