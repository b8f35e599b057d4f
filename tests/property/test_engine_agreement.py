"""The compiled engine against plain Python, plain Python against exact rationals, weights against what they stand for.

Some schedules amplify rounding: a difference in the last bit decides who shares with whom a little later. No fixed
tolerance holds there, so a case that misses it is judged by its own response to sizes changed by one part in 1e13.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.engine import Problem, check_conservation, checked, solve, solve_reference
from collsim.engine.reference import fair_rates

TOLERANCE = 1e-9
NOISE = 1e-13
AMPLIFIED = 1e4  # how far two engines may differ, in units of the response to NOISE


def csr(rows):
    return np.cumsum([0] + [len(row) for row in rows]), [x for row in rows for x in row]


def random_problem(rng, n, n_links, *, width=4, back=0.15, tidy=True):
    """A random DAG. *tidy* takes all numbers from short lists, so that many things happen at the same time."""

    def pick(choices, low, high, size):
        return rng.choice(choices, size) if tidy else rng.uniform(low, high, size)

    routes = [rng.choice(n_links, rng.integers(0, width + 1)).tolist() for _ in range(rng.integers(1, n + 1))]
    ptr, links = csr(routes)
    rank = rng.permutation(n)  # predecessors come before in this order, not by id
    order = np.argsort(rank)
    deps = [order[: rank[i]][rng.random(rank[i]) < min(back, 2.5 / max(rank[i], 1))] for i in range(n)]
    dep_ptr, dep = csr(deps)
    size = pick([0.0, 1.0, 1.0, 2.0, 3.0, 0.1], 0.01, 5.0, n) * (rng.random(n) > 0.1)
    latency = pick([0.0, 0.0, 0.5, 1.0, 0.1], 0.0, 1.0, n) * (rng.random(n) > 0.3)
    cap = np.where(rng.random(n) < 0.4, pick([0.25, 0.5, 1.0, 0.3], 0.1, 2.0, n), np.inf)
    weight = pick([1.0, 1.0, 1.0, 2.0, 0.5, 1 / 3, 7.0], 0.1, 3.0, len(links))
    capacity = pick([1.0, 2.0, 3.0, 0.7], 0.5, 3.0, n_links)
    return Problem(capacity, ptr, links, weight, rng.integers(0, len(routes), n), size, latency, cap, dep_ptr, dep)


def ring(rng, ranks, channels, steps, *, jitter, capacity=1.0):
    """Channels of a ring, side by side on a switch: a step waits for the last one of the rank and of its neighbour."""
    step, rank, channel = (x.ravel() for x in np.meshgrid(*map(np.arange, (steps, ranks, channels)), indexing="ij"))
    before = step > 0
    own, left = (((step - 1) * ranks + r) * channels + channel for r in (rank, (rank - 1) % ranks))
    n = len(step)
    return Problem(
        np.full(2 * ranks, capacity),
        2 * np.arange(ranks + 1),
        np.stack([np.arange(ranks), ranks + (np.arange(ranks) + 1) % ranks], axis=1).ravel(),
        np.ones(2 * ranks),
        rank,
        np.ones(n),
        0.3 * (1 + jitter * rng.random(n)),
        np.full(n, 0.4),
        np.concatenate(([0], np.cumsum(2 * before))),
        np.stack([own[before], left[before]], axis=1).ravel(),
    )


def pipelined_trees(rng, ranks, chunks):
    """Two opposed binary trees that send chunk after chunk from the root, and share every rank's links."""
    ids, rows, routes, sizes = {}, [], [], []
    for chunk in range(chunks):
        for tree in (0, 1):
            for child in range(1, ranks):
                parent = (child - 1) // 2
                sender, receiver = (parent, child) if tree == 0 else (ranks - 1 - parent, ranks - 1 - child)
                ids[tree, chunk, child] = len(rows)
                before = [(tree, chunk, parent), (tree, chunk - 1, child)]
                rows.append([ids[key] for key in before if key in ids])
                routes.append([sender, ranks + receiver])
                sizes.append(1.0 + 0.1 * tree)
    ptr, links = csr(routes)
    dep_ptr, dep = csr(rows)
    n = len(rows)
    latency = 0.05 * (1 + 0.2 * rng.random(n))
    return Problem(
        np.ones(2 * ranks),
        ptr,
        links,
        np.ones(len(links)),
        np.arange(n),
        sizes,
        latency,
        np.full(n, np.inf),
        dep_ptr,
        dep,
    )


def crowded_trunks(rng, n):
    """Many flows that come and go on a few wide links, which are full at times, and on narrow ones behind them."""
    trunks, leaves = 3, 12
    routes = [
        [int(rng.integers(0, trunks)), *(trunks + rng.choice(leaves, 2, replace=False)).tolist()] for _ in range(n)
    ]
    ptr, links = csr(routes)
    capacity = np.concatenate([rng.uniform(2.5, 4.0, trunks), rng.uniform(1.0, 3.0, leaves)])
    cap = np.where(rng.random(n) < 0.7, rng.uniform(0.05, 0.4, n), np.inf)
    none = np.zeros(n + 1, dtype=int), []
    latency = rng.uniform(0, 0.1 * n, n)
    return Problem(
        capacity,
        ptr,
        links,
        rng.uniform(0.5, 1.5, len(links)),
        np.arange(n),
        rng.uniform(0.1, 3, n),
        latency,
        cap,
        *none,
    )


def skewed_all_to_all(rng, ranks, *, tidy):
    """All pairs at once over one switch, receivers of unequal popularity, some pairs capped: no two links alike."""
    source, target = np.nonzero(~np.eye(ranks, dtype=bool))
    n = len(source)
    size = 1.0 / (1 + target) * (rng.integers(1, 4, n) if tidy else rng.uniform(0.5, 1.5, n))
    cap = np.where(rng.random(n) < 0.3, rng.choice([0.02, 0.05, 0.1], n) if tidy else rng.uniform(0.01, 0.2, n), np.inf)
    ptr, links = 2 * np.arange(n + 1), np.stack([source, ranks + target], axis=1).ravel()
    none = np.zeros(n + 1, dtype=int), []
    return Problem(np.ones(2 * ranks), ptr, links, np.ones(2 * n), np.arange(n), size, np.zeros(n), cap, *none)


def difference(one, two):
    return np.max(np.abs(one.finish_s - two.finish_s) / np.maximum(one.finish_s, 1e-300), initial=0.0)


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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 25), st.integers(1, 6), st.booleans())
def test_kernel_agrees_wherever_hypothesis_looks(seed, n, n_links, tidy):
    rng = np.random.default_rng(seed)
    assert_agree(random_problem(rng, n, n_links, back=0.3, tidy=tidy), rng)


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


def lifted(rng, p, copies):
    """Copy every transfer and link; hops and dependencies of copy c go to copy c + shift, shift random per hop."""
    p = Problem(*(np.asarray(x) for x in p))
    n, n_links, copy = len(p.route), len(p.capacity_Bps), np.arange(copies)

    def turned(ptr, targets, count):
        """Rows of all copies, copy by copy: each target in the copy that its shift says."""
        shift = rng.integers(0, copies, len(targets))
        return np.concatenate([targets + count * ((c + shift) % copies) for c in copy]).astype(int), np.concatenate(
            [[0], *(ptr[1:] + c * len(targets) for c in copy)]
        )

    links, route_ptr = turned(p.route_ptr, p.route_link, n_links)
    dep, dep_ptr = turned(p.dep_ptr, p.dep, n)
    return Problem(
        np.tile(p.capacity_Bps, copies),
        route_ptr,
        links,
        np.tile(p.route_weight, copies),
        np.concatenate([p.route + c * (len(p.route_ptr) - 1) for c in copy]),
        *(np.tile(x, copies) for x in (p.size_bytes, p.latency_s, p.cap_Bps)),
        dep_ptr,
        dep,
    )


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
            assert whole.finish_s == pytest.approx(np.tile(part.finish_s, copies), rel=1e-9)


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
