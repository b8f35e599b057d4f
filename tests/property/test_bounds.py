"""No algorithm is faster than the bound, on whatever wiring."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.collectives import ScheduleRequest, algorithms_for, rings_for
from collsim.core.operations import OPERATIONS
from collsim.fabric.bounds.lower import lower_bound
from collsim.library import load_profile
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology, load_topology

IRREGULAR = ("dgx1_v100", "mi250x_node", "mi250x_8oam", "pcie_gen5_8gpu")
RATES_BPS = (1e9, 10e9, 25e9, 80e9)


@st.composite
def random_graphs(draw):
    """Two to seven GPUs and up to three switches: a tree both ways and more links, some of them one-way."""
    n_gpus = draw(st.integers(2, 7))
    names = draw(st.permutations([f"g{i}" for i in range(n_gpus)] + [f"s{i}" for i in range(draw(st.integers(0, 3)))]))
    graph = nx.DiGraph()
    for name in sorted(names):
        graph.add_node(name, kind="gpu" if name[0] == "g" else "switch")
    ends = [(names[draw(st.integers(0, i - 1))], names[i], True) for i in range(1, len(names))]
    ends += draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names), st.booleans()), max_size=10))
    for a, b, both_ways in ends:
        for link in ((a, b), (b, a))[: 1 + both_ways]:
            if a != b:
                rate, latency_s = draw(st.sampled_from(RATES_BPS)), draw(st.sampled_from((0.0, 5e-7)))
                graph.add_edge(*link, bandwidth_Bps=rate, latency_s=latency_s)
    return Topology.from_graph(graph)


def check(topology, ranks, profile, seed):
    """Run every algorithm of every operation; `time_schedule` itself raises if a time is below the bound."""
    rng = np.random.default_rng(seed)
    run = prepare(topology, load_profile(profile), ranks)
    n, rings = run.fabric.n_ranks, rings_for(run.fabric.peer_links())
    for op in OPERATIONS.values():
        root = int(rng.integers(n)) if op.rooted else 0
        size = 48 * n * int(rng.choice([1, 1000, 10**6]))
        matrix = rng.integers(0, size, (n, n)) if op.name == "all_to_all_v" else None
        if matrix is not None:
            matrix[0, 1] += 1
        for entry in algorithms_for(op.name):
            if entry.in_network:
                continue
            request = ScheduleRequest(op, n, size, 1, root, channels=2, rings=rings, matrix_bytes=matrix)
            time_s = time_schedule(entry.build(request), run).time_s
            cut = lower_bound(op, size, run.cuts, root, matrix)
            bound = lower_bound(op, size, run.cuts, root, matrix, flows=run.flows)
            assert cut.time_s <= bound.time_s <= time_s * (1 + 1e-9)


@settings(max_examples=10)
@given(topology=random_graphs(), profile=st.sampled_from(("ideal", "default")), seed=st.integers(0, 2**32 - 1))
def test_no_algorithm_is_faster_than_the_bound_on_random_wiring(topology, profile, seed):
    check(topology, np.random.default_rng(seed).permutation(topology.n_gpus).tolist(), profile, seed)


@settings(max_examples=8)
@given(
    name=st.sampled_from(IRREGULAR),
    n=st.integers(2, 8),
    profile=st.sampled_from(("ideal", "default")),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_algorithm_is_faster_than_the_bound_on_real_systems(name, n, profile, seed):
    topology = load_topology(name)
    check(topology, np.random.default_rng(seed).permutation(topology.n_gpus)[:n].tolist(), profile, seed)


def beside_a_switch(direct_Bps=None):
    """Two GPUs at 50 GB/s on a switch, and perhaps a direct link of another rate."""
    graph = nx.Graph()
    graph.add_node("s", kind="switch")
    for gpu in ("g0", "g1"):
        graph.add_edge(gpu, "s", bandwidth_Bps=50e9, latency_s=0.0)
    if direct_Bps is not None:
        graph.add_edge("g0", "g1", bandwidth_Bps=direct_Bps, latency_s=0.0)
    return prepare(Topology.from_graph(graph), load_profile("ideal"))


def test_links_that_no_route_takes_count_too():
    """Each of two GPUs sends half of an all-to-all to the other: over both ways at most 50 and 1 GB/s together."""
    op = OPERATIONS["all_to_all"]
    alone, both = beside_a_switch(), beside_a_switch(1e9)
    assert np.diff(both.routes.ptr).max() == 1, "the route is the direct link"
    for run, rate_Bps in ((alone, 50e9), (both, 51e9)):
        bound = lower_bound(op, 2**30, run.cuts, flows=run.flows)
        assert bound.time_s == 2**29 / rate_Bps


@settings(max_examples=40, deadline=None)
@given(topology=random_graphs(), seed=st.integers(0, 2**32 - 1))
def test_one_more_link_never_raises_the_bound(topology, seed):
    rng = np.random.default_rng(seed)
    graph = topology.graph.copy()
    ends = rng.choice(sorted(graph), 2, replace=False).tolist()
    before = prepare(topology, load_profile("ideal"))
    if graph.has_edge(*ends):
        return
    graph.add_edge(*ends, bandwidth_Bps=float(rng.choice(RATES_BPS)), latency_s=0.0)
    after = prepare(Topology.from_graph(graph), load_profile("ideal"))
    for name in ("all_reduce", "all_gather", "all_to_all", "broadcast"):
        least = [lower_bound(OPERATIONS[name], 2**20, run.cuts, flows=run.flows).time_s for run in (before, after)]
        assert least[1] <= least[0] * (1 + 1e-6), (name, ends)
