"""The compiled engine against plain Python, plain Python against exact rationals, weights against what they stand for.

Some schedules amplify rounding: a difference in the last bit decides who shares with whom a little later. No fixed
tolerance holds there, so a case that misses it is judged by its own response to sizes changed by one part in 1e13.
"""

from fractions import Fraction
from graphlib import TopologicalSorter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.engine import (
    Problem,
    chained_time_s,
    check_conservation,
    checked,
    least_time_s,
    one_chain_s,
    solve,
    solve_reference,
)
from collsim.engine.reference import fair_rates

from .made_problems import (
    crowded_trunks,
    difference,
    lifted,
    pipelined_trees,
    random_problem,
    ring,
    skewed_all_to_all,
)

TOLERANCE = 1e-12
NOISE = 1e-13
AMPLIFIED = 1e4  # how far two engines may differ, in units of the response to NOISE


def assert_agree(p, rng):
    """Both engines obey the laws and give the same times, up to what rounding can do to this problem."""
    reference, kernel = solve(p, engine="reference"), solve(p, engine="kernel")
    assert check_conservation(p, reference) == []
    assert check_conservation(p, kernel) == []
    found = difference(reference, kernel)
    if found > TOLERANCE:
        noisy = p._replace(size_bytes=np.asarray(p.size_bytes) * (1 + NOISE * rng.uniform(-1, 1, len(p.route))))
        assert found <= AMPLIFIED * difference(reference, solve(noisy, engine="reference")) + TOLERANCE


@pytest.mark.parametrize("tidy", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("seed", range(10))
def test_kernel_agrees_on_small_graphs(seed, tidy):
    rng = np.random.default_rng([seed, tidy])
    for _ in range(30):
        assert_agree(random_problem(rng, int(rng.integers(1, 40)), int(rng.integers(1, 9)), tidy=tidy), rng)


@pytest.mark.parametrize("tidy", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("n_links", [10, 60, 300])
def test_kernel_agrees_on_large_graphs(n_links, tidy):
    rng = np.random.default_rng([n_links, tidy])
    for _ in range(4):
        assert_agree(random_problem(rng, 400, n_links, width=5, back=0.02, tidy=tidy), rng)


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 25), st.integers(1, 6), st.booleans())
def test_kernel_agrees_wherever_hypothesis_looks(seed, n, n_links, tidy):
    rng = np.random.default_rng(seed)
    assert_agree(random_problem(rng, n, n_links, back=0.3, tidy=tidy), rng)


def in_order(p):
    """The same problem with predecessors before what waits for them."""
    waits = {i: p.dep[p.dep_ptr[i] : p.dep_ptr[i + 1]].tolist() for i in range(len(p.route))}
    order = np.array([*TopologicalSorter(waits).static_order()])
    new = np.argsort(order)
    rows = [new[p.dep[p.dep_ptr[i] : p.dep_ptr[i + 1]]] for i in order]
    columns = {name: np.asarray(getattr(p, name))[order] for name in ("route", "size_bytes", "latency_s", "cap_Bps")}
    return p._replace(**columns, dep_ptr=np.cumsum([0, *map(len, rows)]), dep=np.concatenate([*rows, []]).astype(int))


@pytest.mark.parametrize("tidy", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("seed", range(10))
def test_no_problem_ends_before_the_least_times(seed, tidy):
    rng = np.random.default_rng([seed, tidy, 17])
    better = 0
    for _ in range(20):
        p = checked(random_problem(rng, int(rng.integers(2, 40)), int(rng.integers(1, 9)), tidy=tidy))
        p = checked(in_order(p))
        end_s = solve(p, engine="reference").finish_s.max()
        assert chained_time_s(p) <= end_s * (1 + 1e-12)
        assert max(least_time_s(p), one_chain_s(p)) <= chained_time_s(p) * (1 + 1e-12)
        better += chained_time_s(p) > least_time_s(p) * (1 + 1e-9)
    assert better  # what transfers wait for does count


def test_the_least_time_of_a_ring_is_that_of_its_chain_or_of_its_links():
    two, three = (checked(ring(np.random.default_rng(0), 8, channels, 50, jitter=0.0)) for channels in (2, 3))
    assert chained_time_s(two) == pytest.approx(50 * (0.3 + 1 / 0.4), rel=1e-12)  # there is room for both caps
    assert chained_time_s(three) == pytest.approx(0.3 + 50 * 3, rel=1e-12)
    assert one_chain_s(two) == one_chain_s(three) == pytest.approx(50 * (0.3 + 1 / 0.4), rel=1e-12)


def test_a_link_is_done_before_what_waits_for_its_last_transfer_begins():
    """Two transfers of 8 bytes over 4 B/s, each followed by a wait of 10 s: 4 s for all bytes, then another 10."""
    waits = {
        "latency_s": np.array([0.0, 0.0, 10.0, 10.0]),
        "dep_ptr": np.array([0, 0, 0, 1, 2]),
        "dep": np.array([0, 1]),
    }
    problem = checked(
        Problem(
            capacity_Bps=np.array([4.0]), route_ptr=np.array([0, 1, 1]), route_link=np.array([0]),
            route_weight=np.array([1.0]), route=np.array([0, 0, 1, 1]), size_bytes=np.array([8.0, 8.0, 0.0, 0.0]),
            cap_Bps=np.full(4, np.inf), **waits,
        )
    )  # fmt: skip
    assert chained_time_s(problem) == solve(problem).finish_s.max() == 14.0


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_kernel_agrees_on_rings_out_of_step(channels):
    rng = np.random.default_rng(channels)
    assert_agree(ring(rng, 6, channels, 40, jitter=0.2), rng)


@pytest.mark.parametrize("ranks", [6, 15])
def test_kernel_agrees_on_pipelined_trees(ranks):
    rng = np.random.default_rng(ranks)
    assert_agree(pipelined_trees(rng, ranks, 16), rng)


@pytest.mark.parametrize("seed", range(8))
def test_kernel_agrees_on_crowded_trunks(seed):
    rng = np.random.default_rng([seed, 5])
    assert_agree(crowded_trunks(rng, 250), rng)


@pytest.mark.parametrize("tidy", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("ranks", [5, 12, 20])
def test_kernel_agrees_on_skewed_all_to_all(ranks, tidy):
    rng = np.random.default_rng([ranks, tidy])
    assert_agree(skewed_all_to_all(rng, ranks, tidy=tidy), rng)


def test_a_ring_in_step_has_a_closed_form():
    # 3 channels share a link of 1 B/s: 1/3 B/s each, below the cap of 0.4; a step takes 0.3 s and 3 s
    p = ring(np.random.default_rng(0), 8, 3, 50, jitter=0.0)
    for engine in ("reference", "kernel"):
        assert np.max(solve(p, engine=engine).finish_s) == pytest.approx(50 * 3.3, rel=1e-12)


@pytest.mark.parametrize("tidy", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("seed", range(5))
def test_floats_agree_with_exact_rationals(seed, tidy):
    rng = np.random.default_rng([seed, tidy, 7])
    for _ in range(6):
        p = checked(random_problem(rng, int(rng.integers(1, 13)), int(rng.integers(1, 6)), back=0.3, tidy=tidy))
        exact = solve_reference(p, Fraction)
        assert exact.moved_bytes == [Fraction(x) for x in p.size_bytes.tolist()]
        for engine in ("reference", "kernel"):
            assert solve(p, engine=engine).finish_s == pytest.approx([float(x) for x in exact.finish_s], rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_weights_stand_for_multiplicity(seed):
    rng = np.random.default_rng([seed, 11])
    for _ in range(15):
        # a route that names a link twice: the lifted transfer crosses two copies of it, so its class counts twice
        quotient = random_problem(rng, int(rng.integers(2, 20)), int(rng.integers(1, 5)), tidy=bool(seed % 2))
        copies = int(rng.integers(2, 6))
        whole = solve(lifted(rng, quotient, copies), engine="kernel")
        for engine in ("reference", "kernel"):
            part = solve(quotient, engine=engine)
            assert whole.finish_s == pytest.approx(np.tile(part.finish_s, copies), rel=1e-12)


@pytest.mark.parametrize("tidy", [True, False], ids=["ties", "no ties"])
def test_rates_are_certified_max_min(tidy):
    """Each flow is at its cap or has a full link on which nobody is faster; the kernel finds the same rates."""
    rng = np.random.default_rng([tidy, 13])
    for _ in range(40):
        p = checked(random_problem(rng, 40, 6, back=0.0, tidy=tidy))
        hops = [list(zip(*row, strict=True)) for row in rows_of(p)]
        flowing = [i for i in range(40) if hops[i]]
        rates, _ = fair_rates(flowing, hops, p.capacity_Bps.tolist(), p.cap_Bps.tolist())
        load, fastest = np.zeros(6), np.zeros(6)
        for i in flowing:
            for link, weight in hops[i]:
                load[link] += weight * rates[i]
                fastest[link] = max(fastest[link], rates[i])
        full = load >= p.capacity_Bps * (1 - 1e-12)
        assert np.all(load <= p.capacity_Bps * (1 + 1e-12))
        for i in flowing:
            stopped = any(full[link] and rates[i] >= fastest[link] * (1 - 1e-12) for link, _ in hops[i])
            assert stopped or rates[i] == p.cap_Bps[i]
        # sizes equal to rates: every flow takes exactly one second if the kernel shares the links in the same way
        one_second = p._replace(size_bytes=np.array([rates.get(i, 0.0) for i in range(40)]), latency_s=np.zeros(40))
        solution = solve(one_second, engine="kernel")
        assert solution.finish_s[flowing] == pytest.approx(1.0, rel=1e-12)
        assert solution.solves <= 2


def rows_of(p):
    ptr = p.route_ptr
    for route in p.route:
        yield p.route_link[ptr[route] : ptr[route + 1]].tolist(), p.route_weight[ptr[route] : ptr[route + 1]].tolist()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
def test_units_do_not_matter(scale):
    """Bandwidths times k and latencies over k: every time is over k, exactly for powers of two."""
    k = 2.0 ** np.round(np.log2(scale))
    p = checked(random_problem(np.random.default_rng(3), 60, 8))
    faster = p._replace(capacity_Bps=p.capacity_Bps * k, latency_s=p.latency_s / k, cap_Bps=p.cap_Bps * k)
    for engine in ("reference", "kernel"):
        assert np.array_equal(solve(faster, engine=engine).finish_s * k, solve(p, engine=engine).finish_s)


def test_extreme_weights_keep_rates_positive():
    """Classes of a hundred thousand next to single transfers on one link."""
    rng = np.random.default_rng(17)
    for _ in range(20):
        p = checked(random_problem(rng, 30, 3, tidy=False))
        p = p._replace(route_weight=p.route_weight * 10.0 ** rng.integers(-6, 7, len(p.route_weight)))
        assert_agree(p, rng)
