"""Steps round a ring, row by row: by hand, in NumPy, compiled, and against the engine on the same transfers."""

import numpy as np
import pytest

from collsim.engine import Problem, solve, wavefront
from collsim.engine.wavefront import Chain, RingTurn, march, periodic


def chain(rng, kinds, n):
    """Return random costs."""
    return Chain(*(rng.random((kinds, n)) for _ in range(3)))


def test_by_hand():
    """Two places; the second takes longer, so what it sends holds back the first."""
    costs = Chain(np.zeros((1, 2)), np.array([[1.0, 3.0]]), np.array([[0.5, 0.0]]))
    sent_s, got_s, latency_s = march(costs, [RingTurn(np.zeros(2, dtype=int), np.array([0, 1]))], np.zeros(2))
    # First 1 and 3; then the first waits for 3 and takes 1, the second goes on at 3 (1.5 has come) and takes 3.
    assert sent_s.tolist() == [4.0, 6.0]
    assert got_s.tolist() == [4.5, 6.0]
    assert latency_s.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("steps", [1, 2, 3, 6, 11])
@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_compiled_and_plain_are_the_same(monkeypatch, n, steps):
    rng = np.random.default_rng(100 * n + steps)
    costs = chain(rng, 3, n)
    turns = [RingTurn(rng.integers(0, 3, n), rng.integers(0, n, steps)), RingTurn(np.full(n, 2), np.arange(steps) % n)]
    ready_s = rng.random(n)
    plain = march(costs, turns, ready_s)
    monkeypatch.setattr(wavefront, "PLAIN_STEPS", 0)
    for one, other in zip(plain, march(costs, turns, ready_s), strict=True):
        assert one == pytest.approx(other, rel=1e-13)


def test_nothing_waits(monkeypatch):
    rng = np.random.default_rng(3)
    costs = Chain(np.zeros((1, 7)), rng.random((1, 7)), np.zeros((1, 7)))
    turns = [RingTurn(np.zeros(7, dtype=int), np.arange(12) % 7)] * 2
    plain = march(costs, turns, rng.random(7))
    monkeypatch.setattr(wavefront, "PLAIN_STEPS", 0)
    compiled = march(costs, turns, np.random.default_rng(3).random(14)[7:])
    for one, other in zip(plain, compiled, strict=True):
        assert np.array_equal(one, other)


def test_a_period_stands_for_the_ring():
    rng = np.random.default_rng(7)
    n, period = 24, 6
    costs = Chain(*(np.tile(column, n // period) for column in chain(rng, 2, period)))
    turns = [RingTurn(np.zeros(n, dtype=int), np.arange(9)), RingTurn(np.ones(n, dtype=int), np.arange(4))]
    ready_s = np.tile(rng.random(period), n // period)
    short = periodic(costs, turns, ready_s)
    assert short[0].wait_s.shape == (2, period)
    for one, other in zip(march(*short), march(costs, turns, ready_s), strict=True):
        assert np.array_equal(np.tile(one, n // period), other)


@pytest.mark.parametrize("seed", range(10))
def test_the_engine_agrees(seed):
    """Every hop on a link of its own; what arrives late is a row without bytes."""
    rng = np.random.default_rng(seed)
    n, steps = int(rng.integers(2, 9)), int(rng.integers(2, 12))
    costs = chain(rng, 1, n)
    m = n * steps
    own = np.arange(m)
    step, place = np.divmod(own, n)
    before = (step - 1) * n
    deps = [[] if s == 0 else [b + p, m + b + (p - 1) % n] for s, p, b in zip(step, place, before, strict=True)]
    deps += [[i] for i in own]
    problem = Problem(
        capacity_Bps=np.full(n, 1.0),
        route_ptr=np.append(np.arange(n + 1), n),
        route_link=np.arange(n),
        route_weight=np.ones(n),
        route=np.concatenate([place, np.full(m, n)]),
        size_bytes=np.concatenate([costs.flow_s[0, place], np.zeros(m)]),
        latency_s=np.concatenate([costs.wait_s[0, place], costs.late_s[0, place]]),
        cap_Bps=np.full(2 * m, np.inf),
        dep_ptr=np.cumsum([0, *map(len, deps)]),
        dep=np.array([d for row in deps for d in row]),
    )
    finish_s = solve(problem).finish_s
    sent_s, got_s, latency_s = march(costs, [RingTurn(np.zeros(n, dtype=int), np.arange(steps))], np.zeros(n))
    assert sent_s == pytest.approx(finish_s[m - n : m], rel=1e-12)
    assert got_s == pytest.approx(finish_s[-n:], rel=1e-12)
    assert (latency_s <= sent_s).all()
