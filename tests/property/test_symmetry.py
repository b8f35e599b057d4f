"""Problems with one transfer for each class of equal ones have the times of the whole."""

import numpy as np
import pytest

from collsim.engine import EngineDeadlock, Problem, check_conservation, checked, solve, symmetry
from collsim.engine.symmetry import reduced

from .made_problems import difference, lifted, random_problem, ring, skewed_all_to_all

TOLERANCE = 1e-12


def expanded(p):
    """The solution of the quotient of *p* for all its transfers, and the quotient."""
    quotient = reduced(p, most=len(p.route))
    part = solve(quotient.problem, engine="reference")
    times = (column[quotient.ids] for column in (part.ready_s, part.start_s, part.finish_s))
    return part._replace(**dict(zip(("ready_s", "start_s", "finish_s"), times, strict=True)),
                         moved_bytes=part.moved_bytes[quotient.ids]), quotient  # fmt: skip


def assert_same_times(p):
    whole = solve(p, engine="reference")
    found, quotient = expanded(p)
    assert check_conservation(p, found) == []
    assert difference(whole, found) <= TOLERANCE
    return quotient


def with_defects(rng, p, count):
    """Some links at half rate, or single transfers that are late, larger or slower than their copies."""
    fields = {name: getattr(p, name).copy() for name in ("capacity_Bps", "latency_s", "size_bytes", "cap_Bps")}
    for _ in range(count):
        name = rng.choice(list(fields))
        at = rng.integers(len(fields[name]))
        if name == "latency_s":
            fields[name][at] += 0.5
        elif name == "cap_Bps":
            fields[name][at] = 0.2
        else:
            fields[name][at] *= 0.5
    return p._replace(**fields)


@pytest.mark.parametrize("defects", [0, 1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_lifted_graphs_with_defects(seed, defects):
    rng = np.random.default_rng([seed, defects, 19])
    left = 52
    while left:  # defects may leave nothing alike: only problems that became smaller count
        base = random_problem(rng, int(rng.integers(2, 14)), int(rng.integers(1, 6)), tidy=bool(seed % 2))
        p = with_defects(rng, checked(lifted(rng, base, int(rng.integers(2, 6)))), defects)
        quotient = assert_same_times(p)
        left -= len(quotient.problem.route) < len(p.route)
        if not defects:
            assert len(quotient.problem.route) <= len(base.route)


def coarsest(p):
    """The coarsest partition that the proof allows, from its conditions alone: exact tuples, pass after pass."""
    rows = [range(*pair) for pair in zip(p.route_ptr, p.route_ptr[1:], strict=False)]
    before = [p.dep[a:b].tolist() for a, b in zip(p.dep_ptr, p.dep_ptr[1:], strict=False)]
    transfers, links = [0] * len(p.route), [0] * len(p.capacity_Bps)
    for _ in range(2 * (len(transfers) + len(links))):
        own = zip(p.size_bytes.tolist(), p.latency_s.tolist(), p.cap_Bps.tolist(), strict=True)
        seen = [
            (
                transfers[i],
                facts,
                tuple(sorted((links[p.route_link[h]], p.route_weight[h]) for h in rows[p.route[i]])),
                tuple(sorted(transfers[j] for j in before[i])),
            )
            for i, facts in enumerate(own)
        ]
        over = [[] for _ in links]
        for i in range(len(transfers)):
            for h in rows[p.route[i]]:
                over[p.route_link[h]].append((transfers[i], p.route_weight[h]))
        held = [(links[at], p.capacity_Bps[at], tuple(sorted(row))) for at, row in enumerate(over)]
        transfers, links = (
            [{key: k for k, key in enumerate(dict.fromkeys(keys))}[key] for key in keys] for keys in (seen, held)
        )
    return len(set(transfers)), len(set(links))


@pytest.mark.parametrize("defects", [0, 1])
def test_classes_are_as_few_as_exact_refinement_finds(defects):
    rng = np.random.default_rng([defects, 23])
    for _ in range(40):
        base = random_problem(rng, int(rng.integers(2, 7)), int(rng.integers(1, 4)))
        p = with_defects(rng, checked(lifted(rng, base, int(rng.integers(2, 5)))), defects)
        quotient = reduced(p, most=len(p.route))
        assert (len(quotient.problem.route), quotient.n_link_classes) == coarsest(p)


def all_to_all(ranks):
    return checked(skewed_all_to_all(np.random.default_rng(0), ranks, tidy=True)._replace(
        size_bytes=np.ones(ranks * (ranks - 1)), cap_Bps=np.full(ranks * (ranks - 1), np.inf)))  # fmt: skip


def test_a_uniform_all_to_all_is_one_transfer_and_a_slow_link_makes_three():
    p = all_to_all(16)
    assert expanded(p)[0].finish_s == pytest.approx(15.0, rel=1e-12)
    assert (len(reduced(p).problem.route), reduced(p).n_link_classes) == (1, 1)
    slow = p._replace(capacity_Bps=np.where(np.arange(32) == 5, 0.5, 1.0))
    # from the slow sender, to it, between others; its two links, and those of the others out and in
    assert (len(reduced(slow).problem.route), reduced(slow).n_link_classes) == (3, 4)
    assert expanded(slow)[0].finish_s.max() == pytest.approx(30.0, rel=1e-12)


def test_a_ring_is_as_many_classes_as_it_has_steps():
    p = checked(ring(np.random.default_rng(0), 13, 3, 24, jitter=0.0))
    quotient = reduced(p)
    assert (len(quotient.problem.route), quotient.n_link_classes) == (24, 1)
    assert expanded(p)[0].finish_s.max() == pytest.approx(24 * 3.3, rel=1e-12)


def test_what_has_no_equals_is_left_whole():
    assert reduced(checked(skewed_all_to_all(np.random.default_rng(1), 12, tidy=False))) is None
    nothing = Problem(*(np.array(x) for x in ([], [0], [], [], [], [], [], [], [0], [])))
    assert solve(nothing).finish_s.size == 0


def test_waiting_in_a_circle_is_not_reduced(monkeypatch):
    monkeypatch.setattr("collsim.engine.run.REDUCED_TRANSFERS", 1)
    monkeypatch.setattr("collsim.engine.run.REFERENCE_TRANSFERS", 1)
    p = all_to_all(4)
    after = np.roll(np.arange(12), 1)
    circle = p._replace(dep_ptr=np.arange(13), dep=after)
    assert reduced(checked(circle)) is None
    with pytest.raises(EngineDeadlock):
        solve(circle)


def test_the_door_takes_classes_where_they_are_worth_it(monkeypatch):
    monkeypatch.setattr("collsim.engine.run.REDUCED_TRANSFERS", 100)
    monkeypatch.setattr("collsim.engine.run.REFERENCE_TRANSFERS", 100)
    p = all_to_all(16)
    found, again, plain = solve(p), solve(p), solve(p, engine="plain")
    assert (found.path, found.simulated) == ("classes, reference", 1)
    assert (plain.path, plain.simulated) == ("transfers, kernel", 240)
    assert np.array_equal(found.finish_s, again.finish_s)
    assert difference(found, plain) <= TOLERANCE
    irregular = checked(skewed_all_to_all(np.random.default_rng(1), 12, tidy=False))
    assert solve(irregular).path == "transfers, kernel"


def test_two_colours_that_are_equal_by_accident_are_noticed(monkeypatch):
    p = all_to_all(6)
    larger = p._replace(size_bytes=np.where(np.arange(30) == 3, 2.0, 1.0))
    monkeypatch.setattr(symmetry, "codes_of", lambda *columns: np.ones(len(columns[0]), dtype=np.uint64))
    assert reduced(p) is not None
    assert reduced(larger) is None
