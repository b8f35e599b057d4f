"""Plain Python against the compiled engine, and classes against single transfers, on one switch.

Run with ``pytest benchmarks --benchmark-only``; the first call compiles or loads the kernel and is not timed.
"""

import numpy as np
import pytest

from collsim.engine import Problem, checked, solve


def all_to_all(ranks, *, skew=0.0):
    """Every rank sends to every other at once; *skew* is the Zipf exponent of the receivers' popularity."""
    source, target = np.nonzero(~np.eye(ranks, dtype=bool))
    n = len(source)
    popularity = np.arange(1, ranks + 1) ** -skew
    size = 1e6 * popularity[target] * (np.random.default_rng(0).uniform(0.5, 1.5, n) if skew else 1.0)
    return checked(
        Problem(
            np.full(2 * ranks, 50e9),
            2 * np.arange(n + 1),
            np.stack([source, ranks + target], axis=1).ravel(),
            np.ones(2 * n),
            np.arange(n),
            size,
            np.full(n, 1e-6),
            np.full(n, np.inf),
            np.zeros(n + 1, dtype=int),
            [],
        )
    )


def ring(ranks, channels, loops):
    """All-reduce in step: 2 (ranks - 1) steps per loop, each waits for the one before on both neighbours."""
    steps = 2 * (ranks - 1) * loops
    step, rank, channel = (x.ravel() for x in np.meshgrid(*map(np.arange, (steps, ranks, channels)), indexing="ij"))
    before = step > 0
    own, left = (((step - 1) * ranks + r) * channels + channel for r in (rank, (rank - 1) % ranks))
    n = len(step)
    return checked(
        Problem(
            np.full(2 * ranks, 400e9),
            2 * np.arange(ranks + 1),
            np.stack([np.arange(ranks), ranks + (np.arange(ranks) + 1) % ranks], axis=1).ravel(),
            np.ones(2 * ranks),
            rank,
            np.full(n, 65536.0),
            np.full(n, 2e-6),
            np.full(n, 20e9),
            np.concatenate(([0], np.cumsum(2 * before))),
            np.stack([own[before], left[before]], axis=1).ravel(),
        )
    )


CASES = {
    "all_to_all_64": all_to_all(64),
    "all_to_all_16_skewed": all_to_all(16, skew=1.0),
    "ring_8x1x18": ring(8, 1, 18),
    "ring_8x24x4": ring(8, 24, 4),
}


@pytest.mark.parametrize("engine", ["reference", "kernel"])
@pytest.mark.parametrize("name", CASES)
def test_solve(benchmark, name, engine):
    solve(CASES["all_to_all_16_skewed"], engine=engine)
    solution = benchmark.pedantic(solve, (CASES[name],), {"engine": engine}, rounds=5, warmup_rounds=1)
    assert solution.path == f"transfers, {engine}"


LARGE = {"all_to_all_512": all_to_all(512), "ring_8x24x64": ring(8, 24, 64)}


@pytest.mark.parametrize("engine", ["plain", "auto"])
@pytest.mark.parametrize("name", LARGE)
def test_solve_classes(benchmark, name, engine):
    """One by one against one transfer for each class of equal ones, with the search for the classes."""
    solution = benchmark.pedantic(solve, (LARGE[name],), {"engine": engine}, rounds=5, warmup_rounds=1)
    assert solution.path == ("classes, reference" if engine == "auto" else "transfers, kernel")
