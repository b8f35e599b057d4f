"""Machines whose ways are too many to keep: refused from counts, at once."""

import time

import networkx as nx
import pytest

from collsim import simulate
from collsim.core.errors import UnsupportedError
from collsim.fabric.domain import MOST_ENTRIES, MOST_PAIRS
from collsim.topology import Topology, parse_topology

HEAD = "schema: collsim.topology/1\nbuilder: explicit\nlink: {bandwidth: 50 GB/s, latency: 1 us}\n"


def _graph(graph):
    for index, name in enumerate(graph):
        graph.nodes[name].update(kind="gpu", rank=index)
    for a, b in graph.edges:
        graph.edges[a, b].update(bandwidth_Bps=50e9, latency_s=1e-6)
    return Topology.from_graph(nx.relabel_nodes(graph, {name: f"gpu{i}" for i, name in enumerate(graph)}))


def _ring(n):
    nodes = "".join(f"  - {{name: gpu{i}}}\n" for i in range(n))
    links = "".join(f"  - {{a: gpu{i}, b: gpu{(i + 1) % n}}}\n" for i in range(n))
    return parse_topology(f"{HEAD}nodes:\n{nodes}links:\n{links}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: _ring(1000), ["all ways between 1,000 ranks have about 2.5e+08 links", "fewer ranks, such as"]),
        (lambda: _graph(nx.grid_2d_graph(14, 14)), ["all ways between 196 ranks", "too many to keep"]),
        (lambda: _ring(3000), ["all 8,997,000 pairs of 3,000 ranks", "at most 2048 ranks"]),
    ],
    ids=["ring", "grid", "pairs"],
)
def test_too_many_ways_are_refused_at_once(make, words):
    topology = make()
    began = time.process_time()
    with pytest.raises(UnsupportedError) as caught:
        simulate(topology, "all_reduce", "1M", algo="ring", profile="ideal")
    assert time.process_time() - began < 10
    for word in words:
        assert word in str(caught.value)


def test_the_count_is_that_of_the_ways():
    """A ring of n has n (n - 1) pairs; those half way round have two ways."""
    n = 24
    hops = sum(min(d, n - d) * (2 if 2 * d == n else 1) for d in range(1, n))
    assert n * hops < MOST_ENTRIES
    assert n * n < MOST_PAIRS
    from collsim.fabric.domain import all_ways
    from collsim.fabric.fabric import build_fabric

    parts = all_ways(build_fabric(_ring(n)), all_pairs=True)
    assert sum(len(part.link) for part in parts) == n * hops
