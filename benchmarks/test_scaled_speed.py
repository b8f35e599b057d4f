"""Whole runs on large machines, in process: a small part of the machine against all ranks, and how both grow.

Run with ``pytest benchmarks --benchmark-only``. ``benchmarks/speed.py`` measures whole processes.
"""

import pytest

from collsim import simulate
from collsim.topology import load_topology

ASKED = {
    "all_to_all": {"op": "all_to_all", "algo": "direct"},
    "ring": {"op": "all_reduce", "algo": "ring", "channels": 1},
    "hierarchical": {"op": "all_reduce", "algo": "hierarchical"},
}


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("name", ASKED)
def test_a_small_part_against_all_ranks(benchmark, name, reduce):
    topology = load_topology("hgx_h100", scale_out={"nodes": 40})
    asked = {"size": "64M", "profile": "ideal", "reduce": reduce, **ASKED[name]}
    result = benchmark.pedantic(simulate, (topology,), asked, rounds=2, warmup_rounds=1)
    assert result.rows[0].path.startswith("transfers" if not reduce else ("classes", "wavefront"))


@pytest.mark.parametrize("nodes", [1024, 8192])
@pytest.mark.parametrize("name", ASKED)
def test_large(benchmark, name, nodes):
    topology = load_topology("hgx_h100", scale_out={"nodes": nodes, "radix": 128})
    asked = {"size": "64M", "profile": "ideal", **ASKED[name]}
    result = benchmark.pedantic(simulate, (topology,), asked, rounds=2, warmup_rounds=1)
    assert result.rows[0].ranks == 8 * nodes
