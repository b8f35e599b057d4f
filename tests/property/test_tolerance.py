"""The engine with a tolerance against the exact one, on matrices that no choice in it was made by."""

import re

import numpy as np
import pytest

from collsim.engine import EngineDeadlock, check_conservation, checked, least_time_s, solve
from collsim.engine.kernels import simulate

from .depth import deep_but
from .made_problems import (
    difference,
    lifted,
    pipelined_trees,
    random_problem,
    ring,
    sent_and_answered,
    sent_at_once,
    uneven_matrix,
)

EPS = 0.01
KINDS = ("zipf0.5", "zipf1", "zipf1.5", "lognormal")
RANKS = (16, 24, 32, 64)


def fresh(seed):
    """One of the sizes, kinds and fabrics in turn."""
    rng, ranks, nodes = np.random.default_rng(seed), RANKS[seed // 4 % 4], bool(seed // 16 % 2)
    return uneven_matrix(rng, ranks, KINDS[seed % 4]), nodes, rng


def makespan(p, **asked):
    """The last end of a sound solution."""
    solution = solve(p, engine="kernel", **asked)
    assert check_conservation(p, solution) == []
    return float(solution.finish_s.max())


def assert_within(p):
    """Return the error of the makespan; every law holds, and the ends are no sooner than the load of links allows."""
    exact_s, found_s = makespan(p), makespan(p, tolerance=EPS)
    sent_bytes = np.bincount(p.route, weights=p.size_bytes, minlength=len(p.route_ptr) - 1)
    crossing = np.repeat(sent_bytes, np.diff(p.route_ptr)) * p.route_weight
    load_s = np.bincount(p.route_link, weights=crossing, minlength=len(p.capacity_Bps)) / p.capacity_Bps
    assert found_s >= load_s.max() * (1 - 1e-12)
    return found_s / exact_s - 1


@pytest.mark.parametrize("first", deep_but([5000], range(5000, 5096, 16)))  # 32 seeds: each size, kind and fabric
def test_all_messages_at_once(first):
    errors = [assert_within(sent_at_once(fresh(seed)[0], nodes=fresh(seed)[1])) for seed in range(first, first + 16)]
    assert np.max(np.abs(errors)) <= EPS


@pytest.mark.parametrize("seed", deep_but([5050], range(5050, 5054)))
def test_many_small_messages_end_early(seed):
    """128 ranks are enough that one end frees less than the tolerance of any link: rates stay for a while."""
    matrix = uneven_matrix(np.random.default_rng(seed), 128, KINDS[seed % 4])
    small = np.floor(matrix * np.random.default_rng(seed).random(matrix.shape) ** 3)
    assert abs(assert_within(sent_at_once(small, nodes=bool(seed // 2 % 2)))) <= EPS / 10


@pytest.mark.parametrize("first", deep_but([5100], range(5100, 5124, 12)))
def test_caps_and_latencies_of_all_kinds(first):
    for seed in range(first, first + 12):
        matrix, nodes, rng = fresh(seed)
        p = sent_at_once(matrix, nodes=nodes)
        n = len(p.route)
        cap_Bps = np.where(rng.random(n) < 0.3, rng.uniform(0.2e9, 5e9, n), np.inf)
        p = p._replace(cap_Bps=cap_Bps, latency_s=p.latency_s * rng.uniform(0.8, 1.2, n))
        assert abs(assert_within(p)) <= EPS


@pytest.mark.parametrize("first", range(5200, 5224, 8))
def test_answers_once_everything_has_arrived(first):
    """Who answers first decides whom the last answers share links with: some of these double what changes in a size.

    A case that misses the tolerance is judged by its own response to sizes that differ by as much.
    """
    for seed in range(first, first + 8):
        matrix, nodes, rng = fresh(seed)
        p = checked(sent_and_answered(matrix, nodes=nodes))
        error = assert_within(p)
        if abs(error) > EPS:
            exact_s = makespan(p)
            noisy = [
                p._replace(size_bytes=p.size_bytes * (1 + EPS * rng.uniform(-1, 1, len(p.route)))) for _ in range(8)
            ]
            assert abs(error) <= max(abs(makespan(other) / exact_s - 1) for other in noisy)


def test_the_ledger_is_above():
    """An observation, no theorem: with it no link is ever ahead, yet flows that start later may then get more."""
    for seed in range(5300, 5332):
        matrix, nodes, _ = fresh(seed)
        p = sent_at_once(matrix, nodes=nodes)
        exact_s, above_s = makespan(p), makespan(p, tolerance=EPS, ledger=True)
        assert exact_s * (1 - 1e-9) <= above_s <= exact_s * (1 + 5 * EPS)


@pytest.mark.parametrize("case", deep_but([(True, 0.05)], [(False, 0.01), (False, 0.05), (True, 0.01), (True, 0.05)]))
def test_many_ranks(case):
    """Groups that come out empty and flows that are overrun showed only here: both break a law."""
    nodes, eps = case
    p = sent_at_once(uneven_matrix(np.random.default_rng(5400), 256, "zipf1"), nodes=nodes)
    for ledger in (False, True):
        solution = solve(p, engine="kernel", tolerance=eps, ledger=ledger)
        assert check_conservation(p, solution) == []
        assert solution.moved_bytes.min() > 0
        assert solution.finish_s.max() <= least_time_s(checked(p)) * (1 + 4 * eps)
        assert 0 < solution.perturbed <= 2 * eps
        assert solution.solves < len(p.route) / 20


@pytest.mark.parametrize("ledger", [False, True])
@pytest.mark.parametrize("tidy", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("eps", [1e-15, 1e-6, 0.01, 0.3])
def test_laws_hold_on_all_graphs(eps, tidy, ledger):
    rng = np.random.default_rng([5500, tidy])
    for _ in range(40):
        p = random_problem(rng, int(rng.integers(1, 60)), int(rng.integers(1, 9)), tidy=tidy)
        assert check_conservation(p, solve(p, engine="kernel", tolerance=eps, ledger=ledger)) == []


@pytest.mark.parametrize("ledger", [False, True])
def test_laws_hold_on_long_chains(ledger):
    rng = np.random.default_rng(5600)
    for p in (ring(rng, 6, 3, 40, jitter=0.2), ring(rng, 6, 3, 40, jitter=0.0), pipelined_trees(rng, 15, 16)):
        solution = solve(p, engine="kernel", tolerance=0.02, ledger=ledger)
        assert check_conservation(p, solution) == []


def test_extreme_weights():
    rng = np.random.default_rng(5700)
    for _ in range(20):
        p = checked(random_problem(rng, 30, 3, tidy=False))
        p = p._replace(route_weight=p.route_weight * 10.0 ** rng.integers(-6, 7, len(p.route_weight)))
        assert check_conservation(p, solve(p, engine="kernel", tolerance=0.01)) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_tiny_tolerance_is_nearly_exact(seed):
    p = sent_at_once(uneven_matrix(np.random.default_rng(5800 + seed), 16, KINDS[seed]), nodes=bool(seed % 2))
    assert difference(solve(p, engine="kernel"), solve(p, engine="kernel", tolerance=1e-12)) < 1e-10


def test_none_is_exact_to_the_bit():
    for seed in range(5900, 5904):
        p = checked(sent_at_once(fresh(seed)[0], nodes=fresh(seed)[1]))
        plain, zero, auto = (
            solve(p, engine="kernel", **asked) for asked in ({}, {"tolerance": 0}, {"tolerance": None})
        )
        for other in (zero, auto):
            assert all(np.array_equal(one, two) for one, two in zip(plain, other, strict=True))
        assert plain.tolerance == plain.perturbed == plain.raised_s == 0


def test_same_input_same_bits():
    p = sent_at_once(uneven_matrix(np.random.default_rng(6000), 64, "zipf1"), nodes=True)
    one, two = (solve(p, engine="kernel", tolerance=0.01) for _ in range(2))
    assert all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))


def test_what_takes_long_is_given_up():
    """128 ranks are 2e7 hops of work: exact if so much is wanted, given up at a tenth."""
    p = checked(sent_at_once(uneven_matrix(np.random.default_rng(6100), 128, "zipf1"), nodes=False))
    assert simulate(p, 10**8) is not None
    assert simulate(p, 10**6) is None


def test_auto_takes_a_tolerance_where_exact_is_slow(monkeypatch):
    p = checked(sent_at_once(uneven_matrix(np.random.default_rng(6200), 128, "zipf1"), nodes=False))
    monkeypatch.setattr("collsim.engine.run.MOST_WORK", 10**6)
    auto, asked = solve(p, tolerance=None), solve(p, tolerance=0.01)
    assert auto.tolerance == 0.01
    assert auto.path == "transfers, tolerance"
    assert all(np.array_equal(x, y) for x, y in zip(auto, asked, strict=True))
    assert solve(p).tolerance == 0


def test_classes_come_first(monkeypatch):
    monkeypatch.setattr("collsim.engine.run.REFERENCE_TRANSFERS", 0)
    monkeypatch.setattr("collsim.engine.run.REDUCED_TRANSFERS", 1000)
    one = checked(sent_at_once(uneven_matrix(np.random.default_rng(6250), 24, "zipf1"), nodes=False))
    p = checked(lifted(np.random.default_rng(6251), one, 8))
    found, alone = solve(p, tolerance=0.01), solve(one, tolerance=0.01)
    assert (found.path, found.simulated) == ("classes, tolerance", len(one.route))
    assert check_conservation(p, found) == []
    assert found.finish_s == pytest.approx(np.tile(alone.finish_s, 8))
    assert found.perturbed == pytest.approx(alone.perturbed)


@pytest.mark.parametrize("ledger", [False, True])
def test_a_deadlock_is_told(ledger):
    p = checked(random_problem(np.random.default_rng(1), 6, 3, back=0.0))
    circle = p._replace(dep_ptr=np.array([0, 1, 2, 2, 2, 2, 2]), dep=np.array([1, 0]))
    with pytest.raises(EngineDeadlock, match="2 transfers never start"):
        solve(circle, engine="kernel", tolerance=0.01, ledger=ledger)


def test_a_time_below_the_bound_is_raised():
    """The links are full to the end; the last ones end together at their mean, a little early."""
    raised = []
    for seed in range(6300, 6332):
        matrix, nodes, _ = fresh(seed)
        p = checked(sent_at_once(matrix, nodes=nodes))
        solution = solve(p, engine="kernel", tolerance=0.1)
        assert check_conservation(p, solution) == []
        if solution.raised_s:
            raised.append(solution.raised_s)
            assert solution.finish_s.max() == pytest.approx(least_time_s(p), rel=1e-12)
    assert raised


@pytest.mark.parametrize("tolerance", [-0.1, 0.6, float("nan")])
def test_refuses_what_is_no_tolerance(tolerance):
    p = random_problem(np.random.default_rng(0), 3, 2)
    with pytest.raises(ValueError, match="tolerance is"):
        solve(p, tolerance=tolerance)


def test_laws_that_are_broken_are_told():
    p = checked(sent_at_once(uneven_matrix(np.random.default_rng(6400), 16, "zipf1"), nodes=False))
    solution = solve(p, engine="kernel", tolerance=0.01)
    for share, wrong in ((1.1, True), (0.9, True), (1.005, False)):  # within 1 % of what moves until the end
        much = solution._replace(moved_bytes=p.size_bytes * share)
        assert any(re.match(r"transfer \d+ moved", what) for what in check_conservation(p, much)) == wrong
    told = check_conservation(p, solution._replace(perturbed=solution.perturbed / 2))
    assert len(told) == 1
    assert "of all bytes were moved too much or too little" in told[0]
    early = solution._replace(finish_s=np.minimum(solution.finish_s, least_time_s(p) * 0.9))
    assert any("the last bytes are moved by" in what for what in check_conservation(p, early))
