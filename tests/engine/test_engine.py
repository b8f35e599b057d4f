"""Cases small enough to work out by hand, run by both engines, and what the door refuses."""

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from collsim.engine import (
    EngineDeadlock,
    EngineInputError,
    Problem,
    Solution,
    check_conservation,
    checked,
    kernels,
    not_too_soon,
    reference,
    solve,
    solve_reference,
)
from collsim.engine.rates import rates_over_time
from collsim.engine.reference import fair_rates

from ..property.made_problems import ring

ENGINES = ("reference", "kernel")
INF = np.inf


def problem(capacity, transfers):
    """One route per transfer: (route, size, latency, cap, dependencies), where a route is [link or (link, weight)]."""
    routes = [[hop if isinstance(hop, tuple) else (hop, 1.0) for hop in route] for route, *_ in transfers]
    hops = [hop for route in routes for hop in route]
    deps = [dep for *_, dep in transfers]
    return Problem(
        capacity_Bps=np.array(capacity, dtype=float),
        route_ptr=np.cumsum([0] + [len(route) for route in routes]),
        route_link=np.array([link for link, _ in hops], dtype=int),
        route_weight=np.array([weight for _, weight in hops], dtype=float),
        route=np.arange(len(transfers)),
        size_bytes=np.array([size for _, size, *_ in transfers]),
        latency_s=np.array([latency for _, _, latency, *_ in transfers], dtype=float),
        cap_Bps=np.array([cap for _, _, _, cap, _ in transfers], dtype=float),
        dep_ptr=np.cumsum([0] + [len(dep) for dep in deps]),
        dep=np.array([d for dep in deps for d in dep], dtype=int),
    )


def flow(route, size, latency=0.0, cap=INF, after=()):
    return (route, size, latency, cap, after)


CASES = {
    # name: capacities, transfers, finish times
    "one flow": ([2.0], [flow([0], 6)], [3.0]),
    "two flows share one link": ([2.0], [flow([0], 2), flow([0], 2)], [2.0, 2.0]),
    # 1 B/s each until t = 1, then the longer one has 2 B/s for its last 2 bytes
    "the longer one speeds up": ([2.0], [flow([0], 1), flow([0], 3)], [1.0, 2.0]),
    "three thirds": ([1.0], [flow([0], 1), flow([0], 1), flow([0], 1)], [3.0, 3.0, 3.0]),
    # the capped flow leaves 3 of 4 B/s to the other
    "a cap leaves the rest": ([4.0], [flow([0], 3, cap=1.0), flow([0], 9)], [3.0, 3.0]),
    "a cap that does not bind": ([4.0], [flow([0], 4, cap=3.0), flow([0], 4)], [2.0, 2.0]),
    # flow 0 crosses both links: 1 B/s on each; the single flows take the rest, 1 and 3 B/s
    "parking lot": ([2.0, 4.0], [flow([0, 1], 2), flow([0], 2), flow([1], 6)], [2.0, 2.0, 2.0]),
    # the narrow link holds flow 0 at 1, so flow 1 gets 9 of the 10
    "a bottleneck elsewhere": ([10.0, 1.0], [flow([0, 1], 1), flow([0], 9)], [1.0, 1.0]),
    "latency first": ([2.0], [flow([0], 2, latency=0.5)], [1.5]),
    "chain of latencies": (
        [1.0],
        [flow([0], 1, 0.5), flow([0], 1, 0.25, after=[0]), flow([0], 1, after=[1])],
        [1.5, 2.75, 3.75],
    ),
    # flow 1 starts at t = 1 when flow 0 has 1 of 2 bytes left; they share until t = 3, then flow 1 is alone
    "a late start slows down": ([1.0], [flow([0], 2), flow([0], 2, latency=1.0)], [3.0, 4.0]),
    "no bytes": ([1.0], [flow([0], 0, latency=0.5), flow([0], 1, after=[0])], [0.5, 1.5]),
    "no bytes at all, no latency": (
        [1.0],
        [flow([0], 0), flow([0], 0, after=[0]), flow([0], 1, after=[1])],
        [0.0, 0.0, 1.0],
    ),
    "local copy": ([], [flow([], 6, latency=1.0, cap=3.0)], [3.0]),
    "local copy without cap": ([1.0], [flow([], 6, latency=1.0), flow([0], 1, after=[0])], [1.0, 2.0]),
    "local copies do not share": ([], [flow([], 2, cap=1.0), flow([], 2, cap=1.0)], [2.0, 2.0]),
    # half of the bytes on each of two links: twice the capacity of one
    "spray over two links": ([1.0, 1.0], [flow([(0, 0.5), (1, 0.5)], 4)], [2.0]),
    # link 0 carries 0.5 x + y <= 1 with x = y: 2/3 B/s each; after t = 3, x has 2 bytes left at 2 B/s
    "spray meets a plain flow": ([1.0, 1.0], [flow([(0, 0.5), (1, 0.5)], 4), flow([0], 2)], [4.0, 3.0]),
    "a class of three": ([1.0], [flow([(0, 3.0)], 2), flow([0], 2)], [8.0, 8.0]),
    "the same link twice": ([1.0], [flow([0, 0], 1), flow([0], 1)], [3.0, 3.0]),
    # 1 and 2 share after 0; 3 waits for both
    "diamond": (
        [1.0, 1.0],
        [flow([0], 1), flow([1], 1, after=[0]), flow([1], 2, after=[0]), flow([0], 1, after=[1, 2])],
        [1.0, 3.0, 4.0, 5.0],
    ),
    "one predecessor twice": ([1.0], [flow([0], 1), flow([0], 1, after=[0, 0])], [1.0, 2.0]),
    "nothing": ([1.0], [], []),
}


@pytest.mark.parametrize("name", CASES)
def test_rates_over_time_end_when_worked_out_by_hand(name):
    capacity, transfers, finish_s = CASES[name]
    _, _, found_s, _ = rates_over_time(problem(capacity, transfers))
    assert found_s == pytest.approx(finish_s, rel=1e-14)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_worked_out_by_hand(name, engine):
    capacity, transfers, finish_s = CASES[name]
    p = problem(capacity, transfers)
    solution = solve(p, engine=engine)
    assert solution.finish_s == pytest.approx(finish_s, rel=1e-14)
    assert solution.path == f"transfers, {engine}"
    assert check_conservation(p, solution) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("power", range(17))
def test_rates_keep_their_digits_beside_heavier_classes(power, engine):
    """What is left of a link after a class of much larger weight is as exact as if that class had never been there."""
    rng = np.random.default_rng(power)
    heavy, light = 10.0**power * rng.uniform(1, 2, 3), rng.uniform(0.1, 1, 3)
    weights = np.concatenate([heavy, light])
    capacity, caps = 3.0, [1 / (3 * sum(heavy))] * 3 + [INF] * 3  # the heavy ones take a third of a byte per second
    exact = (Fraction(capacity) - sum(map(Fraction, heavy)) * Fraction(caps[0])) / sum(map(Fraction, light))
    rates, _ = fair_rates(range(6), [[(0, weight)] for weight in weights.tolist()], [capacity], caps)
    assert [rates[i] for i in range(3)] == caps[:3]
    assert [rates[i] for i in range(3, 6)] == pytest.approx([float(exact)] * 3, rel=2e-13, abs=0)
    sizes = [caps[0]] * 3 + [float(exact)] * 3  # all take one second
    transfers = [flow([(0, weight)], size, cap=cap) for weight, size, cap in zip(weights, sizes, caps, strict=True)]
    p = problem([capacity], transfers)._replace(size_bytes=np.array(sizes))
    assert solve(p, engine=engine).finish_s == pytest.approx([1.0] * 6, rel=2e-13, abs=0)


def test_times_of_a_chain():
    p = problem([1.0], [flow([0], 1, 0.5), flow([0], 1, 0.25, after=[0])])
    solution = solve(p)
    assert solution.ready_s.tolist() == [0.0, 1.5]
    assert solution.start_s.tolist() == [0.5, 1.75]
    assert solution.moved_bytes.tolist() == [1.0, 1.0]


def test_fractions_are_exact():
    capacity, transfers = [1.0], [flow([0], 1), flow([0], 2), flow([0], 4)]
    trace = solve_reference(checked(problem(capacity, transfers)), Fraction)
    # 1/3 each until 3; then 1/2 each for the second byte of flow 1 until 5; then flow 2 alone for 2 bytes
    assert trace.finish_s == [Fraction(3), Fraction(5), Fraction(7)]
    third = solve_reference(checked(problem([3.0], [flow([0], 1), flow([0], 1, after=[0])])), Fraction)
    assert third.finish_s == [Fraction(1, 3), Fraction(2, 3)]


@pytest.mark.parametrize("engine", ENGINES)
def test_shared_routes(engine):
    p = problem([1.0], [flow([0], 1)])._replace(
        route=[0, 0, 0], size_bytes=[1, 1, 1], latency_s=[0, 0, 0], cap_Bps=[INF] * 3, dep_ptr=[0, 0, 0, 1], dep=[0]
    )
    assert solve(p, engine=engine).finish_s.tolist() == [2.0, 2.0, 3.0]


@pytest.mark.parametrize("engine", ENGINES)
def test_same_input_same_bits(engine):
    rng = np.random.default_rng(5)
    p = problem(
        rng.uniform(1, 2, 6), [flow(rng.choice(6, 2, replace=False).tolist(), rng.uniform(1, 9)) for _ in range(60)]
    )
    one, two = solve(p, engine=engine), solve(p, engine=engine)
    assert all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_steps_stay_one_event(engine):
    # 4 flows in step for 500 steps: one solve per step (the reference also counts the gap before the next start)
    steps, width = 500, 4
    p = problem(
        [0.3] * width,
        [
            flow([r], 0.1, 1e-3, after=[(s - 1) * width + r, (s - 1) * width + (r + 1) % width] if s else ())
            for s in range(steps)
            for r in range(width)
        ],
    )
    assert solve(p, engine=engine).solves <= 2 * steps


@pytest.mark.parametrize("engine", ENGINES)
def test_short_transfers_late_in_a_run_keep_their_own_ends(engine):
    # 5e-13 s is less than 1e-12 of the clock but far more than 1e-12 of a transfer that takes 1e-4 s
    short = 1e-4 + 5e-13
    p = problem(
        [1.0, 1.0, 1.0],
        [
            flow([0], 1.0),
            flow([1], short, latency=1 - 1e-4),
            flow([2], short, latency=1 - 1e-4, cap=1.0),
            flow([0], 1, 1 + 5e-13),
        ],
    )
    finish_s = solve(p, engine=engine).finish_s
    assert finish_s[0] == 1.0
    assert finish_s[1:3] - 1 == pytest.approx([5e-13, 5e-13], rel=1e-3)
    assert finish_s[3] - 2 == pytest.approx(5e-13, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_deadlock_names_a_cycle(engine):
    p = problem([1.0], [flow([0], 1), flow([0], 1, after=[2]), flow([0], 1, after=[0, 1]), flow([0], 1, after=[2])])
    with pytest.raises(EngineDeadlock, match="3 transfers never start: 1 waits for 2 waits for 1") as caught:
        solve(p, engine=engine)
    assert caught.value.transfers == [1, 2, 3]
    assert caught.value.cycle == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_waiting_for_oneself(engine):
    with pytest.raises(EngineDeadlock) as caught:
        solve(problem([1.0], [flow([0], 1, after=[0])]), engine=engine)
    assert caught.value.cycle == [0]


def test_every_fault_is_listed():
    p = problem([1.0, 0.0], [flow([0], 1), flow([1], 2, after=[0])])
    bad = p._replace(
        size_bytes=[-1, 2], latency_s=[0.0, np.nan], cap_Bps=[0.0, INF], dep=[7], route_weight=[1.0, INF], route=[0, -3]
    )
    with pytest.raises(EngineInputError) as caught:
        solve(bad)
    assert caught.value.faults == (
        "route[1] = -3: must be one of the 2 route ids",
        "dep[0] = 7: must be one of the 2 transfer ids",
        "route_weight[1] = inf: must be finite and > 0",
        "size_bytes[0] = -1.0: must be finite and >= 0",
        "latency_s[1] = nan: must be finite and >= 0",
        "cap_Bps[0] = 0.0: must be > 0 (infinity for no cap)",
        "capacity_Bps[1] = 0.0: must be > 0 on a used link",
    )


def test_shapes_and_types_are_listed():
    p = problem([1.0], [flow([0], 1), flow([0], 2, after=[0])])
    with pytest.raises(EngineInputError) as caught:
        solve(p._replace(route=[0.5, 1.0], size_bytes=[[1, 2]], cap_Bps=["a", "b"]))
    assert caught.value.faults == (
        "route has dtype float64, expected int64",
        "size_bytes has 2 dimensions, expected 1",
        "cap_Bps has dtype <U1, expected float64",
    )
    with pytest.raises(EngineInputError) as caught:
        solve(p._replace(route_ptr=[0, 2, 1], size_bytes=[1], dep_ptr=[1, 0, 1, 4]))
    assert caught.value.faults == (
        "route_ptr[2] = 1: must be 2, the length of route_link",
        "route_ptr[2] = 1: must be not less than the entry before",
        "dep_ptr[0] = 1: must be 0",
        "dep_ptr[3] = 4: must be 1, the length of dep",
        "dep_ptr[1] = 0: must be not less than the entry before",
        "dep_ptr has 4 entries, route asks for 3",
        "size_bytes has 1 entries, route asks for 2",
    )


def test_routes_that_are_missing():
    p = problem([1.0], [flow([], 1)])
    with pytest.raises(EngineInputError) as caught:
        solve(p._replace(route_ptr=[]))
    assert caught.value.faults[0] == "route_ptr is empty, expected at least one entry"
    for none in ([], [0]):
        with pytest.raises(EngineInputError, match=r"route\[0\] = 0: must be one of the 0 route ids"):
            solve(p._replace(route_ptr=none))


def test_what_waits_for_bytes_that_come_too_soon_waits_on():
    """With a tolerance the end may lie before the links allow; it is put off, and all that depends on it with it."""
    transfers = [flow([0], 6), flow([], 0, 0.5, after=[0]), flow([], 0, 0.25, after=[1]), flow([], 0, 9.0)]
    p = checked(problem([2.0], transfers))
    exact = solve(p, engine="reference")
    early = exact._replace(
        ready_s=np.array([0.0, 2.9, 3.4, 0.0]),
        start_s=np.array([0.0, 3.4, 3.65, 9.0]),
        finish_s=np.array([2.9, 3.4, 3.65, 9.0]),
    )
    put_off = not_too_soon(p, early)
    for found, right in zip(put_off[:3], exact[:3], strict=True):
        assert found == pytest.approx(right, rel=1e-12)
    assert put_off.raised_s == pytest.approx(0.1, rel=1e-9)
    assert not_too_soon(p, exact) is exact


def test_plain_python_gives_up_early(monkeypatch):
    """After a 16th of the work a 32nd of the transfers has to be over; here none ends before all have begun."""
    p = checked(problem([1.0], [flow([0], 10.0**6, latency=float(i)) for i in range(100)]))
    calls = []
    monkeypatch.setattr(reference, "fair_rates", lambda *given: calls.append(1) or fair_rates(*given))
    whole = solve_reference(p)
    assert len(calls) == whole.solves == 200
    calls.clear()
    with pytest.raises(reference.WorkLimitReached):
        solve_reference(p, work_limit=8000)
    assert 10 < len(calls) < 25  # with the whole of the work it would come past all hundred
    assert solve_reference(p, work_limit=10**6) == whole


def test_a_solve_gives_up_at_its_pace(monkeypatch):
    """Looked at every time its work has doubled; the least number of hops at which this one ends was recorded."""
    monkeypatch.setattr(kernels, "FIRST_CHECK", 200)
    p = checked(ring(np.random.default_rng(1), 8, 4, 12, jitter=0.2))
    assert kernels.simulate(p, 1201) is None
    *times, solves = kernels.simulate(p, 1202)
    *whole, all_solves = kernels.simulate(p)
    assert solves == all_solves
    assert all(np.array_equal(one, other) for one, other in zip(times, whole, strict=True))


@pytest.mark.parametrize("short", [0, 1])
def test_a_run_holds_so_many_hops(short):
    """46,340 times 46,341 hops and 41,707 times one are 2^31 - 1, which is one too many."""
    users, hops = np.array([46_340, 41_707 - short]), np.array([46_341, 1])
    route, route_ptr = np.repeat([0, 1], users), np.concatenate([[0], np.cumsum(hops)])
    n, n_links = len(route), int(hops[0])
    links, nobody = np.concatenate([np.arange(n_links), [0]]), np.zeros(0, dtype=np.int64)
    p = Problem(
        np.ones(n_links), route_ptr, links, np.ones(len(links)), route, np.ones(n), np.zeros(n), np.full(n, INF),
        np.zeros(n + 1, dtype=np.int64), nobody,
    )  # fmt: skip
    if short:
        assert kernels.tables(checked(p))[-1].sum() == 2**31 - 2
    else:
        with pytest.raises(OverflowError, match="2147483647 hops"):
            kernels.tables(checked(p))


def test_many_faults_of_a_kind_are_counted():
    p = problem([1.0], [flow([0], -1)] * 9)
    with pytest.raises(EngineInputError, match="size_bytes: 4 more entries must be finite and >= 0"):
        solve(p)


def test_an_unused_link_may_be_down():
    assert solve(problem([1.0, 0.0], [flow([0], 1)])).finish_s.tolist() == [1.0]


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="engine is 'fast'"):
        solve(problem([1.0], []), engine="fast")


def broken(**changes):
    p = problem([1.0], [flow([0], 1), flow([0], 1, 0.5, after=[0])])
    return check_conservation(p, solve(p)._replace(**{name: np.array(value) for name, value in changes.items()}))


def test_conservation_finds_what_is_wrong():
    assert broken() == []
    assert broken(moved_bytes=[1.0, 0.5]) == ["transfer 1 moved 0.5 bytes of 1"]
    assert broken(finish_s=[1.0, np.nan]) == ["times or moved bytes are not finite"]
    assert "transfer 1 took 0.5 s, at least 1 s are needed" in broken(finish_s=[1.0, 2.0])
    assert "transfer 1 is ready at 1.2 s, not when its predecessors end" in broken(ready_s=[0.0, 1.2])
    assert "transfer 0 starts at 2 s and ends before, at 1 s" in broken(start_s=[2.0, 1.5])
    assert broken(start_s=[0.0, 1.25]) == ["transfer 1 is ready at 1 s but starts at 1.25 s"]


def test_conservation_finds_an_overfull_link():
    p = problem([1.0], [flow([0], 1), flow([0], 1)])
    both_at_once = Solution(*(np.array(x) for x in ([0.0, 0], [0.0, 0], [1.0, 1])), "kernel", 1, np.array([1.0, 1]))
    assert check_conservation(p, both_at_once) == ["link 0 carried 2 bytes in 1 s, it holds 1"]


def test_auto_turns_to_the_kernel_when_python_would_be_slow(monkeypatch):
    from collsim.engine import run as door

    p = problem([1.0], [flow([0], i + 1) for i in range(30)])
    assert solve(p).path == "transfers, reference"
    monkeypatch.setattr(door, "REFERENCE_WORK", 100)
    assert solve(p).path == "transfers, kernel"
    monkeypatch.setattr(door, "REFERENCE_TRANSFERS", 10)
    assert solve(p).path == "transfers, kernel"


def run_python(code, **env):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | env, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


SMALL = """
import sys, numpy as np
from collsim.engine import Problem, solve
a = np.array
p = Problem(a([1.0, 2.0]), a([0, 1, 3]), a([0, 0, 1]), a([1.0, 1.0, 0.5]), a([0, 1, 1, 0]), a([3.0, 2.0, 5.0, 1.0]),
            a([0.0, 0.1, 0.0, 0.2]), a([9.0, 9.0, 0.25, 9.0]), a([0, 0, 0, 1, 2]), a([0, 1]))
"""


def test_examples_in_docstrings():
    import doctest

    from collsim.engine import problem as module
    from collsim.engine import run as door

    assert doctest.testmod(door) == (0, 3)
    assert doctest.testmod(module) == (0, 7)


def test_small_problems_do_not_import_numba():
    assert run_python(SMALL + "print(solve(p).path, 'numba' in sys.modules)") == "transfers, reference False\n"


def test_the_kernel_gives_the_same_bits_uncompiled():
    code = SMALL + "print([x.hex() for x in solve(p, engine='kernel').finish_s.tolist()])"
    assert run_python(code) == run_python(code, NUMBA_DISABLE_JIT="1")


def test_no_place_for_a_cache(monkeypatch):
    import numba

    from collsim.engine.decorators import compilers

    compiled = numba.njit

    def njit(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compiled(**options)

    monkeypatch.setattr(numba, "njit", njit)
    _, entry = compilers({"nogil": True})
    assert entry(lambda x: x + 1)(1) == 2


def in_step(steps):
    """Two transfers that share a link, again and again: each waits for both of the step before."""
    n = 2 * steps
    dep_ptr = np.concatenate(([0, 0], np.arange(0, 2 * n - 3, 2)))
    dep = np.repeat(np.arange(n - 2).reshape(-1, 2), 2, axis=0).ravel()
    route, sizes = np.tile([0, 1], steps), np.tile([6.0, 5.0], steps)
    wires = ([3.0, 2.0], [0, 1, 3], [0, 1, 0], [1.0, 1.0, 1.0])
    return Problem(*map(np.array, (*wires, route, sizes, np.zeros(n), np.full(n, INF), dep_ptr, dep)))


def frozen_copy(array):
    """Return the same, read-only."""
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def test_kernels_are_compiled_once_whatever_the_arrays(monkeypatch):
    from collsim.engine import wavefront
    from collsim.engine.symmetry import reduced
    from collsim.engine.warmup import entry_points, is_compiling, warm
    from collsim.engine.wavefront import Chain, RingTurn, march

    monkeypatch.setattr(wavefront, "PLAIN_STEPS", 0)

    if not is_compiling():
        pytest.skip("kernels are not compiled")
    frozen = in_step(4)
    for array in frozen:
        array.setflags(write=False)
    for problem in (in_step(4), frozen, in_step(1)):
        solve(problem, engine="kernel")
        solve(problem, engine="kernel", tolerance=0.01)
        reduced(checked(problem))
    ring = np.arange(6.0).reshape(1, 6)
    for columns in (ring, np.concatenate([ring, ring]), frozen_copy(ring), 0 * ring):
        for kind in (np.zeros(6, dtype=int), np.arange(6) % len(columns)):
            march(Chain(columns, columns, columns), [RingTurn(kind, np.arange(5))], ring[0])
    warm()  # what a process has not run yet, and no more
    assert [len(kernel.signatures) for kernel in entry_points()] == [1] * 11


@pytest.mark.parametrize("most", [0, 2])
def test_rates_that_are_kept_are_those_that_come_again(monkeypatch, most):
    from collsim.engine import reference

    kept = solve_reference(in_step(12))
    monkeypatch.setattr(reference, "MOST_KNOWN", most)
    assert solve_reference(in_step(12)) == kept


def test_both_engines_have_one_idea_of_a_tie():
    from collsim.engine import kernels, reference

    assert (kernels.TIE, kernels.TIE_NOW) == (reference.TIE, reference.TIE_NOW)


@pytest.mark.parametrize("item", range(6))
def test_who_leaves_the_calendar_leaves_it_in_order(item, monkeypatch):
    """Times 1, 10, 2, 11, 12, 3 down the heap: if 11 leaves, 3 takes its seat below 10 and has to rise."""
    for name in ("_schedule", "_sift_down"):
        monkeypatch.setattr(kernels, name, getattr(kernels, name).py_func)
    times = [1.0, 10.0, 2.0, 11.0, 12.0, 3.0]
    calendar, count = np.zeros(6, kernels.ENTRY).view(np.recarray), np.zeros(1, kernels.COUNT).view(np.recarray)[0]
    for each, time in enumerate(times):
        kernels._schedule(calendar, count, each, time)
    assert calendar.heap.tolist() == [0, 1, 2, 3, 4, 5]
    kernels._cancel.py_func(calendar, count, item)
    heap = calendar.heap[: count.calendar].tolist()
    assert sorted(heap) == [each for each in range(6) if each != item]
    assert calendar.place[heap].tolist() == [1, 2, 3, 4, 5]
    assert calendar.place[item] == 0
    assert all(times[heap[(at - 1) // 2]] <= times[heap[at]] for at in range(1, 5))


def test_plain_python_does_not_give_up_what_ends_evenly_or_at_once():
    """Transfers one after the other end as the work goes on, seven visits each: four for the event, three to share."""
    chain = checked(problem([1.0], [flow([0], 1.0, after=[i - 1] if i else []) for i in range(64)]))
    assert solve_reference(chain, work_limit=7 * 64).finish_s == [i + 1.0 for i in range(64)]
    with pytest.raises(reference.WorkLimitReached):
        solve_reference(chain, work_limit=6 * 64)
    together = checked(problem([1.0], [flow([0], 1.0)] * 8))
    assert solve_reference(together, work_limit=16 * 21).finish_s == [8.0] * 8  # exactly a sixteenth, and then they end
    with pytest.raises(reference.WorkLimitReached):
        solve_reference(together, work_limit=16 * 20)
