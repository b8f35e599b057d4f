"""Links that never fill tell no messages apart: without them everything takes as long."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import simulate
from collsim.engine import Problem, solve
from collsim.fabric.routes import Routes
from collsim.simulation import message_classes
from collsim.simulation.idle_links import without_idle


def problem(seed):
    """Return messages from adapter to adapter over some switches, which are not all as wide as what comes in."""
    draw = np.random.default_rng(seed)
    n, spines = int(draw.integers(3, 9)), int(draw.integers(1, 4))
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    chosen = draw.permutation(len(pairs))[: int(draw.integers(4, 40))]
    widths = draw.choice([0.5, 1.0, 2.0, n / 2, float(n)], spines)
    capacity_Bps = np.concatenate([np.ones(2 * n) * draw.choice([1.0, 1.0, 0.5], 2 * n), widths])
    link, weight = [], []
    for a, b in (pairs[i] for i in chosen):
        share = draw.dirichlet(np.ones(spines)) if draw.random() < 0.5 else np.full(spines, 1 / spines)
        link.append([a, n + b, *range(2 * n, 2 * n + spines)])
        weight.append([1.0, 1.0, *share])
    many = len(chosen)
    ptr = np.arange(many + 1) * (2 + spines)
    routes = Routes(ptr, np.concatenate(link), np.concatenate(weight), draw.random(many), np.ones(many))
    waits = [int(draw.integers(0, i)) if i and draw.random() < 0.5 else -1 for i in range(many)]
    dep = np.array([wait for wait in waits if wait >= 0], dtype=np.int64)
    dep_ptr = np.concatenate(([0], np.cumsum([wait >= 0 for wait in waits])))
    return capacity_Bps, routes, draw.random(many) + 0.1, dep_ptr, dep


def times_s(capacity_Bps, routes, size_bytes, dep_ptr, dep):
    """Return when each message ends."""
    many = len(size_bytes)
    columns = routes.ptr, routes.link, routes.weight, np.arange(many), size_bytes, routes.latency_s
    whole = Problem(capacity_Bps, *columns, np.full(many, np.inf), dep_ptr, dep)
    return solve(whole, engine="reference").finish_s


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_messages_take_as_long_without_links_that_never_fill(seed):
    capacity_Bps, routes, *rest = problem(seed)
    left = without_idle(routes, capacity_Bps, np.ones(len(routes.latency_s), dtype=np.bool_))
    found, whole = (times_s(capacity_Bps, each, *rest) for each in (left, routes))
    np.testing.assert_allclose(found, whole, rtol=1e-12)


def test_some_links_never_fill_and_others_do():
    kept = []
    for seed in range(50):
        capacity_Bps, routes, *_ = problem(seed)
        everyone = np.ones(len(routes.latency_s), dtype=np.bool_)
        kept.append(len(without_idle(routes, capacity_Bps, everyone).link) / len(routes.link))
        assert len(without_idle(routes, capacity_Bps, ~everyone).link) == len(routes.link)
    assert min(kept) < 0.6
    assert max(kept) == 1


@pytest.mark.parametrize(("most", "kept"), [(1.02, True), (1.0, False), (0.98, False)])
def test_a_link_is_idle_if_all_that_comes_in_fits(most, kept):
    """Two messages of 1 B/s each over one link between switches, which would have to carry *most* times what it can."""
    capacity_Bps = np.array([1.0, 1.0, 1.0, 1.0, 2 / most])
    link = np.array([0, 4, 2, 1, 4, 3])
    routes = Routes(np.array([0, 3, 6]), link, np.ones(6), np.zeros(2), np.ones(2))
    left = without_idle(routes, capacity_Bps, np.ones(2, dtype=np.bool_))
    assert left.link.tolist() == (link if kept else link[link < 4]).tolist()


@pytest.mark.parametrize("fail", ["nic:node3/2", "leaf:1", "spine:0"])
def test_what_fails_takes_as_long_by_fewer_classes(fail, monkeypatch):
    asked = {"nodes": 36, "fail": fail, "size": ["1M", "64M"], "overrides": {"scale_out.radix": "16"}}
    found = simulate("h100_rail", "all_to_all", **asked).rows
    monkeypatch.setattr(message_classes, "without_idle", lambda routes, *_: routes)
    for row, whole in zip(found, simulate("h100_rail", "all_to_all", **asked).rows, strict=True):
        assert row.time_s == pytest.approx(whole.time_s, rel=1e-9)
        assert row.limits[0].name == whole.limits[0].name
        assert row.classes <= whole.classes


@pytest.mark.parametrize(
    "fail", [["nic:node3/2"], ["nic:node3/2", "nic:node5/2"], ["nic:node3/2", "nic:node3/6", "nic:node7/1"], ["leaf:1"]]
)
def test_places_that_stand_for_others_take_as_long_as_all(fail, monkeypatch):
    asked = {"nodes": 34, "fail": fail, "size": ["1M", "256M", "2G"]}
    found = simulate("h100_rail", "all_to_all", **asked).rows
    monkeypatch.setattr(message_classes, "few_messages", lambda *_: None)
    for row, whole in zip(found, simulate("h100_rail", "all_to_all", **asked).rows, strict=True):
        assert row.time_s == pytest.approx(whole.time_s, rel=1e-9)
        assert row.classes <= whole.classes
        assert row.algo_bound_s == pytest.approx(whole.algo_bound_s, rel=1e-9)
        assert row.bottleneck[0].utilisation == pytest.approx(whole.bottleneck[0].utilisation, rel=1e-9)
