"""Transfers of which none is in another's way: the times of the event loop, and none where some are."""

import numpy as np
import pytest

from collsim.engine import Problem
from collsim.engine import run as door
from collsim.engine.problem import checked
from collsim.engine.reference import EARLY, WorkLimitReached, solve_reference
from collsim.engine.unhindered import unhindered


def drawn(seed, room):
    """Return random transfers over links that carry *room* times the caps of two of them, each after a few others."""
    rng = np.random.default_rng(seed)
    n, n_links = 60, 8
    hops = rng.integers(0, 3, n)
    deps = [rng.choice(i, min(i, rng.integers(0, 3)), replace=False) for i in range(n)]
    return checked(
        Problem(
            capacity_Bps=np.full(n_links, 2.0 * room), route_ptr=np.cumsum([0, *hops]),
            route_link=np.concatenate([rng.choice(n_links, k, replace=False) for k in hops]),
            route_weight=rng.choice([0.5, 1.0], hops.sum()), route=rng.permutation(n),
            size_bytes=rng.choice([0.0, 1.0, 3.0], n), latency_s=rng.choice([0.0, 0.25], n),
            cap_Bps=rng.choice([1.0, 0.7, np.inf], n) if room < n else rng.choice([1.0, 0.7], n),
            dep_ptr=np.cumsum([0, *map(len, deps)]), dep=np.concatenate(deps).astype(int),
        )
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("room", [1, 4, 60])
def test_times_are_those_of_the_event_loop(seed, room):
    p = drawn(seed, room)
    found = unhindered(p)
    assert found is not None or room < 60
    if found is not None:
        expected = solve_reference(p)
        for own, whole in zip(found, expected[:3], strict=True):
            assert own == pytest.approx(np.array(whole), rel=1e-12, abs=1e-15)


def two(start_s, capacity_Bps=3.0):
    """Return two transfers of 6 bytes over one link, the second *start_s* later."""
    return checked(
        Problem(
            np.array([capacity_Bps]), np.array([0, 1]), np.array([0]), np.ones(1), np.zeros(2, dtype=int),
            np.full(2, 6.0), np.array([0.0, start_s]), np.full(2, np.inf), np.zeros(3, dtype=int), np.array([], int),
        )
    )  # fmt: skip


def test_a_link_serves_one_after_the_other_but_not_two_at_once():
    assert unhindered(two(2.0)).finish_s.tolist() == [2.0, 4.0]
    assert unhindered(two(1.999)) is None


def test_caps_leave_room_for_others():
    wide = two(0.0)._replace(cap_Bps=np.full(2, 1.5))
    assert unhindered(wide).finish_s.tolist() == [4.0, 4.0]
    assert unhindered(wide._replace(cap_Bps=np.array([1.5, 1.6]))) is None


def test_what_does_not_follow_its_predecessors_is_left_to_the_event_loop():
    late = two(2.0)._replace(dep_ptr=np.array([0, 1, 1]), dep=np.array([1]))
    assert unhindered(late) is None
    assert door.solve(late).finish_s.tolist() == [6.0, 4.0]


def test_the_door_asks_first_whether_anybody_is_in_the_way(monkeypatch):
    monkeypatch.setattr(door, "solve_reference", lambda *_, **__: pytest.fail("nobody meets"))
    assert door.solve(two(2.0)).solves == 1


@pytest.mark.parametrize("seed", range(40))
def test_what_is_not_even_begun_in_python_would_not_have_been_ended(seed, monkeypatch):
    """A flow is looked at on each of its links when it begins: so much work is certain."""
    p = drawn(seed, 1)
    certain = int(np.diff(p.route_ptr)[p.route[p.size_bytes > 0]].sum())
    limit = int(certain / (1 + EARLY)) - 1
    with pytest.raises(WorkLimitReached):
        solve_reference(p, work_limit=limit)
    monkeypatch.setattr(door, "REFERENCE_WORK", limit)
    monkeypatch.setattr(door, "solve_reference", None)
    with pytest.raises(WorkLimitReached):
        door._in_python(p)
