"""Lower bounds: cuts that can be computed by hand, and cuts found by trying everything."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from collsim.collectives import ScheduleRequest, algorithms_for, rings_for
from collsim.core.operations import OPERATIONS, operation
from collsim.fabric.bounds.lower import lower_bound
from collsim.library import load_profile
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology, load_topology, parse_topology

GBPS = 1e9
IDEAL = load_profile("ideal")


def cuts_of(topology, ranks=None, profile=IDEAL):
    return prepare(topology, profile, ranks).cuts


def bound(op, size_bytes, cuts, **options):
    return lower_bound(operation(op), size_bytes, cuts, **options)


def mesh(n, latency="0 ns"):
    return parse_topology(
        f"{{schema: collsim.topology/1, builder: full_mesh, gpu: {{count: {n}}}, "
        f"link: {{bandwidth: 10 GB/s, latency: {latency}}}}}"
    )


def islands(per_side, thin_GBps=10):
    """Two switches of 100 GB/s ports joined by one thin link."""
    graph = nx.Graph()
    for side in (0, 1):
        graph.add_node(f"s{side}", kind="switch")
        for i in range(per_side):
            graph.add_node(f"g{side}{i}", kind="gpu")
            graph.add_edge(f"g{side}{i}", f"s{side}", bandwidth_Bps=100 * GBPS, latency_s=0.0)
    graph.add_edge("s0", "s1", bandwidth_Bps=thin_GBps * GBPS, latency_s=0.0)
    return Topology.from_graph(graph)


# Seconds per GB and name, on a mesh of 4 with links of 10 GB/s: 30 GB/s out of a rank, 40 GB/s from two ranks to the
# two others. Of several cuts that bind alike, single ranks are named before pairs, in the order of the ranks inside.
MESH_OF_4 = {
    "all_reduce": (6 / 120, "egress of all ranks"),  # 2 x 3 S cross the egress of all; one cut alone: 1/30
    "all_gather": (3 / 4 / 30, "ingress gpu3"),  # 3 blocks into a rank
    "reduce_scatter": (3 / 4 / 30, "egress gpu0"),  # 3 sums out of a rank
    "all_to_all": (3 / 4 / 30, "egress gpu0"),  # 3 blocks out of a rank, as tight as 4 blocks from two to two
    "broadcast": (1 / 30, "egress gpu2"),
    "reduce": (1 / 30, "egress gpu0"),
    "scatter": (3 / 4 / 30, "egress gpu2"),
    "gather": (3 / 4 / 30, "ingress gpu2"),
    "send_recv": (2 / 40, "cut 2|2"),  # ranks 0 and 2 both send to the other side
}


@pytest.mark.parametrize("op", MESH_OF_4)
def test_every_operation_on_a_mesh(op):
    seconds_per_GB, name = MESH_OF_4[op]
    found = bound(op, 4 * 10**9, cuts_of(mesh(4)), root=2 if operation(op).rooted else 0)
    assert found.time_s == pytest.approx(4 * seconds_per_GB, rel=1e-12, abs=0)
    assert found.name == name


def test_all_operations_are_covered():
    assert set(MESH_OF_4) | {"all_to_all_v"} == set(OPERATIONS)


def test_byte_matrix():
    """15 bytes leave rank 1 for 30 GB/s, 12 enter rank 3; the block that a rank keeps counts nowhere."""
    matrix = np.array([[99, 0, 0, 4], [5, 99, 5, 5], [0, 0, 0, 3], [1, 0, 0, 0]]) * 10**9
    found = bound("all_to_all_v", 0, cuts_of(mesh(4)), matrix_bytes=matrix)
    assert found.time_s == pytest.approx(15 / 30)
    assert found.name == "egress gpu1"


# S/6 blocks: all-reduce S; 3 blocks of S/6; 3 x 3 messages of S/6 each way over 10 GB/s
THIN = {
    "all_reduce": 1.0,
    "all_gather": 0.5,
    "reduce_scatter": 0.5,
    "all_to_all": 9 / 6,
    "broadcast": 1.0,
    "reduce": 1.0,
    "scatter": 0.5,
    "gather": 0.5,
}


@pytest.mark.parametrize("op", THIN)
@pytest.mark.parametrize("order", [None, [0, 3, 1, 4, 2, 5], [5, 1, 3, 0, 4, 2]])
def test_a_thin_link_between_two_islands_is_found_in_any_order(op, order):
    """Up to ten ranks every cut is tried."""
    found = bound(op, 10**9, cuts_of(islands(3), order))
    assert found.time_s == pytest.approx(THIN[op] / 10, rel=1e-12, abs=0)
    assert found.name == "cut 3|3"


def test_a_thin_link_counts_neighbours_across():
    """Islands in order: one message each way. Alternating: three."""
    assert bound("send_recv", 10**9, cuts_of(islands(3))).time_s == pytest.approx(0.1)
    assert bound("send_recv", 10**9, cuts_of(islands(3), [0, 3, 1, 4, 2, 5])).time_s == pytest.approx(0.3)


def test_a_thin_link_between_many_ranks_in_order():
    """Above ten ranks single ranks and runs of ranks are tried: enough where islands are in order."""
    assert bound("all_reduce", 10**9, cuts_of(islands(6))).time_s == pytest.approx(0.1)
    mixed = [i // 2 + 6 * (i % 2) for i in range(12)]
    assert 0 < bound("all_reduce", 10**9, cuts_of(islands(6), mixed)).time_s < 0.1


def test_only_links_that_routes_use_count():
    """GPUs do not forward where a switch connects them, so the ring beside the switch adds one link per neighbour."""
    graph = nx.Graph()
    graph.add_node("s", kind="switch")
    for i in range(3):
        graph.add_node(f"g{i}", kind="gpu")
        graph.add_edge(f"g{i}", "s", bandwidth_Bps=10 * GBPS, latency_s=0.0)
    graph.add_edge("g0", "g1", bandwidth_Bps=90 * GBPS, latency_s=0.0)
    found = bound("broadcast", 10**9, cuts_of(Topology.from_graph(graph)))
    assert found.time_s == pytest.approx(0.1)  # into g2
    assert found.name == "ingress g2"


def test_latency_comes_on_top():
    profile = load_profile("default")
    cuts = cuts_of(mesh(4, "3 us"), profile=profile)
    small, large = bound("all_reduce", 4, cuts), bound("all_reduce", 4 * 10**9, cuts)
    assert small.name == "latency"
    assert small.time_s == pytest.approx(3e-6, rel=1e-3, abs=0)
    assert large.time_s == pytest.approx(0.2 + 3e-6)


def test_switches_that_add_need_not_send_twice():
    """S out of every rank through NVLS, 2 (n-1)/n S without."""
    topology = load_topology("hgx_h100")
    adding, plain = cuts_of(topology), cuts_of(replace(topology, in_network_reduction=None))
    assert bound("all_reduce", 450 * 10**9, adding).time_s == pytest.approx(1.0)
    assert bound("all_reduce", 450 * 10**9, plain).time_s == pytest.approx(14 / 8)
    assert bound("all_gather", 450 * 10**9, adding).time_s == bound("all_gather", 450 * 10**9, plain).time_s


def test_rings_on_a_mesh_and_all_to_all_through_a_switch_reach_the_bound():
    for name, op, algo, size in (
        ("mi300x_ubb8", "all_reduce", "ring", 56 * 4 * 2**12),
        ("mi300x_ubb8", "all_reduce", "all_pairs", 2**23),
        ("hgx_h100", "all_to_all", "direct", 2**23),
        ("hgx_h100", "all_gather", "all_pairs", 2**23),
    ):
        run = prepare(load_topology(name), IDEAL)
        rings = rings_for(run.fabric.peer_links())
        built = next(entry for entry in algorithms_for(op) if entry.name == algo)
        request = ScheduleRequest(operation(op), 8, size, 4, channels=28, rings=rings)
        time_s = time_schedule(built.build(request), replace(run, cuts=replace(run.cuts, in_network=False))).time_s
        assert bound(op, size, run.cuts).time_s == pytest.approx(time_s, rel=1e-9, abs=0)


# --- Everything tried -------------------------------------------------------------------------------------------------


def demand(op, size, inside, n, root, matrix):
    """Bytes that must cross from *inside*, counted pair by pair."""
    outside = [rank for rank in range(n) if rank not in inside]
    block = size / n
    pairs = [(s, d) for s in inside for d in outside]
    if matrix is not None:
        return sum(matrix[s, d] for s, d in pairs)
    return {
        "all_reduce": size,
        "all_gather": len(inside) * block,
        "reduce_scatter": len(outside) * block,
        "all_to_all": len(pairs) * block,
        "broadcast": size * (root in inside),
        "reduce": size * (root in outside),
        "scatter": len(outside) * block * (root in inside),
        "gather": len(inside) * block * (root in outside),
        "send_recv": size * sum((s + 1) % n == d for s, d in pairs),
    }[op]


def narrowest(fabric, used, inside):
    """Capacity from *inside* to the other ranks, with every other node on whichever side is best: all ways tried."""
    wiring = fabric.wiring
    ranks = [int(node) for node in fabric.rank_node]
    near = {ranks[rank] for rank in inside}
    free = [node for node in range(len(wiring.node_names)) if node not in ranks]
    best = np.inf
    for choice in itertools.product((False, True), repeat=len(free)):
        side = near | {node for node, chosen in zip(free, choice, strict=True) if chosen}
        crossing = [
            fabric.raw_capacity_Bps[i]
            for i in np.flatnonzero(used)
            if wiring.link_src[i] in side and wiring.link_dst[i] not in side
        ]
        best = min(best, sum(crossing))
    return best


def random_system(rng):
    """Two to six GPUs and up to three switches, connected both ways, with links of a few widths."""
    n_gpus, n_switches = int(rng.integers(2, 7)), int(rng.integers(0, 4))
    names = [f"g{i}" for i in range(n_gpus)] + [f"s{i}" for i in range(n_switches)]
    graph = nx.DiGraph()
    for name in names:
        graph.add_node(name, kind="gpu" if name[0] == "g" else "switch")
    order = rng.permutation(names)
    pairs = [(order[rng.integers(i)], order[i]) for i in range(1, len(order))]
    pairs += [tuple(rng.choice(names, 2, replace=False)) for _ in range(rng.integers(0, 10))]
    for a, b in pairs:
        for ends in ((a, b), (b, a)):
            graph.add_edge(*map(str, ends), bandwidth_Bps=float(rng.choice([10, 25, 80])) * GBPS, latency_s=1e-7)
    return Topology.from_graph(graph)


@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_above_the_best_cut_and_no_time_below_the_bound(seed):
    rng = np.random.default_rng(seed)
    topology = random_system(rng)
    run = prepare(topology, load_profile("ideal"), rng.permutation(topology.n_gpus))
    n, fabric = run.fabric.n_ranks, run.fabric
    used = np.ones(fabric.n_links, dtype=np.bool_)  # all GPUs take part, so any message could take any
    sides = [side for k in range(1, n) for side in itertools.combinations(range(n), k)]
    capacity = {side: narrowest(fabric, used, side) for side in sides}
    rings = rings_for(fabric.peer_links())
    for op in OPERATIONS.values():
        root = int(rng.integers(n)) if op.rooted else 0
        size = 48 * n * int(rng.integers(1, 10**5))
        matrix = rng.integers(0, 10**6, (n, n)) + 1 if op.name == "all_to_all_v" else None
        found = bound(op.name, size, run.cuts, root=root, matrix_bytes=matrix)
        best = max(demand(op.name, size, side, n, root, matrix) / capacity[side] for side in sides)
        if op.name == "all_reduce":
            out = sum(
                fabric.raw_capacity_Bps[used & (fabric.wiring.link_src == node)].sum() for node in fabric.rank_node
            )
            best = max(best, 2 * (n - 1) * size / out)
        assert 0 < found.time_s <= best * (1 + 1e-12)
        among = [fabric.wiring.link_src >= fabric.wiring.n_gpus, fabric.wiring.link_dst >= fabric.wiring.n_gpus]
        if not np.any(used & among[0] & among[1]):  # no link between switches: each is placed as well as can be
            assert found.time_s == pytest.approx(best, rel=1e-12, abs=0)
        for entry in algorithms_for(op.name):
            if not entry.in_network:
                request = ScheduleRequest(op, n, size, 1, root, channels=2, rings=rings, matrix_bytes=matrix)
                assert time_schedule(entry.build(request), run).time_s >= found.time_s * (1 - 1e-9)
