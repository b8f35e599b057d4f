"""Bounds of shipped systems need no solver: prices on file give what it gives, and wrong ones a lower one."""

import numpy as np
import pytest

from collsim import simulate
from collsim.core.operations import OPERATIONS
from collsim.fabric.bounds import flow_bounds
from collsim.topology import load_topology, zoo_names

IRREGULAR = [
    name
    for name in zoo_names()
    if (topology := load_topology(name)).cluster is None and topology.wiring.coordinates.kind == "irregular"
]


def bounds(name, ops=tuple(OPERATIONS)):
    topology = load_topology(name)  # anew: nothing is known of it from other tests
    return [simulate(topology, op, "1M").rows[0].lower_bound_s for op in ops if op != "all_to_all_v"]


@pytest.mark.parametrize("name", IRREGULAR)
def test_shipped_systems_are_bounded_without_a_solver(name, monkeypatch):
    monkeypatch.setattr(flow_bounds, "solved_prices", lambda *_: pytest.fail("python tools/bound_prices.py --write"))
    assert min(bounds(name)) > 0


@pytest.mark.parametrize("name", ["dgx1_v100", "mi250x_node"])
def test_prices_on_file_are_those_of_the_solver(name, monkeypatch):
    found = bounds(name)
    monkeypatch.setattr(flow_bounds, "_on_file", dict)
    assert bounds(name) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_wrong_prices_make_no_bound_larger(seed, monkeypatch):
    ops = ("all_reduce", "all_to_all", "broadcast")
    right, rng = bounds("mi250x_node", ops), np.random.default_rng(seed)
    known = flow_bounds._on_file()
    wrong = {key: (index, rng.exponential(size=len(index)).tolist()) for key, (index, _) in known.items()}
    monkeypatch.setattr(flow_bounds, "_on_file", lambda: wrong)
    found = bounds("mi250x_node", ops)
    assert found != right
    assert all(ours <= theirs * (1 + 1e-9) for ours, theirs in zip(found, right, strict=True))
