"""Rates over time: stretches of one rate by hand, and against the solution of the same problem."""

from itertools import chain

import numpy as np
import pytest

from collsim.engine import Problem, solve
from collsim.engine.rates import WorkLimitReached, rates_over_time


def problem(capacity, routes, size, latency=None, cap=None, waits=None):
    """Transfer i takes the links *routes*[i] once each, and waits for *waits*[i]."""
    n, waits = len(size), waits or [[] for _ in size]
    return Problem(
        capacity_Bps=np.array(capacity, dtype=float),
        route_ptr=np.cumsum([0, *map(len, routes)]),
        route_link=np.array([*chain(*routes)], dtype=np.int64),
        route_weight=np.ones(sum(map(len, routes))),
        route=np.arange(n),
        size_bytes=np.array(size, dtype=float),
        latency_s=np.zeros(n) if latency is None else np.array(latency, dtype=float),
        cap_Bps=np.full(n, np.inf) if cap is None else np.array(cap, dtype=float),
        dep_ptr=np.cumsum([0, *map(len, waits)]),
        dep=np.array([*chain(*waits)], dtype=np.int64),
    )


def test_a_rate_changes_when_another_transfer_begins_and_ends():
    """10 B alone for 1 s at 4 B/s, beside 2 B for 1 s at 2 B/s each, then 4 B alone again for 1 s."""
    found = rates_over_time(problem([4.0], [[0], [0]], [10.0, 2.0], latency=[0.0, 1.0]))[-1]
    rows = sorted(zip(*(column.tolist() for column in found), strict=True))
    assert rows == [(0, 0.0, 1.0, 4.0), (0, 1.0, 2.0, 2.0), (0, 2.0, 3.0, 4.0), (1, 1.0, 2.0, 2.0)]


def test_times_are_those_of_the_engine_and_stretches_hold_all_bytes():
    draw = np.random.default_rng(5)
    n = 60
    routes = [sorted(draw.choice(6, 2, replace=False).tolist()) for _ in range(n)]
    waits = [[int(draw.integers(i))] if i > 8 else [] for i in range(n)]
    irregular = problem(draw.uniform(1, 3, 6), routes, draw.uniform(1, 9, n), draw.uniform(0, 1, n), None, waits)
    ready_s, start_s, finish_s, found = rates_over_time(irregular)
    solution = solve(irregular)
    for mine, theirs in ((ready_s, solution.ready_s), (start_s, solution.start_s), (finish_s, solution.finish_s)):
        assert mine == pytest.approx(theirs, rel=1e-12)
    moved = np.bincount(found.transfer, found.rate_Bps * (found.end_s - found.begin_s), n)
    assert moved == pytest.approx(irregular.size_bytes, rel=1e-12)
    with pytest.raises(WorkLimitReached):
        rates_over_time(irregular, work_limit=100)


def test_many_alike_have_the_stretches_of_one():
    """64 pairs of transfers on links of their own, the second behind the first: simulated as one pair."""
    n = 64
    apart = rates_over_time(problem([2.0] * 2 * n, [[i] for i in range(2 * n)], [6.0, 4.0] * n))[-1]  # 4 B end first
    assert apart.end_s[np.argsort(apart.transfer)].tolist() == [3.0, 2.0] * n
    waits = [[] if i % 2 == 0 else [i - 1] for i in range(2 * n)]
    alike = problem([2.0] * n, [[i // 2] for i in range(2 * n)], [4.0, 6.0] * n, waits=waits)
    found = rates_over_time(alike)[-1]
    assert sorted(found.transfer.tolist()) == list(range(2 * n))
    assert set(found.rate_Bps.tolist()) == {2.0}
    assert found.end_s[np.argsort(found.transfer)].tolist() == [2.0, 5.0] * n
    rates_over_time(alike, work_limit=100)  # far less than for all of them
