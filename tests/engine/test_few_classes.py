"""Few classes of alike transfers, found in NumPy: the same times as of all transfers, and none where there are many."""

import numpy as np
import pytest

from collsim.engine import Problem
from collsim.engine import run as door
from collsim.engine.few_classes import few_classes
from collsim.engine.problem import checked
from collsim.engine.reference import solve_reference


def exchange(n, heavy, rng):
    """Everybody to everybody, then again once all that a rank takes part in has ended; the first *heavy* get more."""
    src, dst = (ends[~np.eye(n, dtype=bool)] for ends in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    m = len(src)
    sizes = np.where(dst < heavy, 2.0, 1.0) * rng.integers(1, 9)
    dep = [[] for _ in range(m)] + [[i for i in range(m) if src[i] == r or dst[i] == r] for r in range(n)]
    dep += [[m + src[i], m + dst[i]] for i in range(m)]
    ends = np.stack([src, n + dst], axis=1)
    return Problem(
        capacity_Bps=np.full(2 * n, 3.0),
        route_ptr=np.concatenate([np.arange(m + 1) * 2, [2 * m]]),
        route_link=ends.ravel(),
        route_weight=np.ones(2 * m),
        route=np.concatenate([np.arange(m), np.full(n, m), np.arange(m)]),
        size_bytes=np.concatenate([sizes, np.zeros(n), sizes[::-1]]),
        latency_s=np.concatenate([np.full(m, 0.5), np.zeros(n), np.full(m, 0.25)]),
        cap_Bps=np.concatenate([np.full(m, 2.0), np.full(n, np.inf), np.full(m, 2.0)]),
        dep_ptr=np.cumsum([0, *map(len, dep)]),
        dep=np.array([i for row in dep for i in row]),
    )


@pytest.mark.parametrize("heavy", [0, 1, 5])
def test_classes_have_the_times_of_all(heavy):
    p = checked(exchange(14, heavy, np.random.default_rng(heavy)))
    quotient = few_classes(p)
    assert len(quotient.problem.route) <= 24
    found, expected = solve_reference(quotient.problem), solve_reference(p)
    for own, whole in zip(found[:4], expected[:4], strict=True):
        assert np.array(own)[quotient.ids] == pytest.approx(np.array(whole), rel=1e-9, abs=1e-12)


def test_what_is_not_alike_is_left_as_it_is():
    p = exchange(14, 0, np.random.default_rng(1))
    odd = p._replace(size_bytes=p.size_bytes * np.random.default_rng(2).random(len(p.route)))
    assert few_classes(checked(odd)) is None


def test_a_chain_has_as_many_classes_as_hops():
    n = 400
    chain = Problem(
        np.full(n, 2.0), np.arange(n + 1), np.arange(n), np.ones(n), np.arange(n), np.ones(n), np.zeros(n),
        np.full(n, np.inf), np.concatenate([[0], np.arange(n)]), np.arange(n - 1),
    )  # fmt: skip
    assert few_classes(checked(chain)) is None


def test_the_door_asks_for_few_classes(monkeypatch):
    p = exchange(14, 3, np.random.default_rng(4))
    whole = door.solve(p, engine="plain")
    monkeypatch.setattr(door, "FEW_CLASSES_FROM", 10)
    found = door.solve(p)
    assert (whole.path, found.path) == ("transfers, reference", "classes, reference")
    assert found.finish_s == pytest.approx(whole.finish_s, rel=1e-9)
    assert found.simulated < whole.simulated / 10


def test_transfers_that_wait_for_each_other_are_named(monkeypatch):
    monkeypatch.setattr(door, "FEW_CLASSES_FROM", 1)
    p = exchange(6, 0, np.random.default_rng(5))
    stuck = p._replace(dep_ptr=np.arange(len(p.route) + 1), dep=np.roll(np.arange(len(p.route)), 1))
    with pytest.raises(door.EngineDeadlock):
        door.solve(stuck)
