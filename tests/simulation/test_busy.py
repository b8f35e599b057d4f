"""What is busy beside hops: entries of a table of steps, one by one and as a whole."""

import numpy as np
import pytest

from collsim.simulation.busy import _Met


@pytest.mark.parametrize("seed", range(8))
def test_busy_hops_are_counted_as_in_the_table_of_steps(seed):
    rng = np.random.default_rng(seed)
    n_lines, n_hops, n_pipes = 5, int(rng.integers(0, 40)), 3
    n_chunks = rng.integers(0, 6, n_pipes)
    met = _Met(
        n_lines, rng.integers(0, n_lines, n_hops), rng.integers(0, n_pipes, n_hops), rng.integers(0, 9, n_hops),
        rng.integers(1, 4, n_hops).astype(np.float64),
    )  # fmt: skip
    line, step = (each.ravel() for each in np.mgrid[:n_lines, :16])
    expected = np.zeros((n_lines, 16))
    for where, pipe, begin, weight in zip(*met[1:], strict=True):
        expected[where, begin : begin + n_chunks[pipe]] += weight
    assert met.table(n_chunks, 16).tolist() == expected.tolist()
    assert met.busy(n_chunks, 16, line, step).tolist() == expected.ravel().tolist()
