"""Which links a message takes, with which share, and how links that fill in step become trunks."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from collsim.collectives import ScheduleRequest, algorithm
from collsim.core.errors import NoRouteError
from collsim.core.operations import operation
from collsim.fabric.fabric import build_fabric
from collsim.fabric.routing import find_routes, merge_trunks
from collsim.library import load_profile
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology, load_topology

GBPS = 1e9


def system(*links, latency_s=1e-6, switch_latency_s=0.0, duplex=True):
    """A topology from (a, b, GB/s[, latency]); a name that begins with s is a switch."""
    graph = nx.DiGraph()
    for a, b, rate, *own in links:
        for name in (a, b):
            switch = name.startswith("s")
            graph.add_node(name, kind="switch" if switch else "gpu", latency_s=switch_latency_s if switch else 0.0)
        for ends in ((a, b), (b, a))[: 2 if duplex else 1]:
            graph.add_edge(*ends, bandwidth_Bps=rate * GBPS, latency_s=own[0] if own else latency_s)
    return Topology.from_graph(graph)


def path(topology, source, target, ranks=None):
    """The links of one route with their weights, and its latency."""
    fabric = build_fabric(topology, ranks)
    routes = find_routes(fabric)
    number = source * fabric.n_ranks + target
    entries = range(routes.ptr[number], routes.ptr[number + 1])
    shares = {fabric.wiring.link_name(int(routes.link[i])): float(routes.weight[i]) for i in entries}
    assert len(shares) == len(entries), "a link appears twice"
    return shares, float(routes.latency_s[number])


def test_spray_over_the_planes_of_an_h100_board():
    shares, latency_s = path(load_topology("hgx_h100"), 2, 7)
    parts = {0: 5 / 18, 1: 4 / 18, 2: 4 / 18, 3: 5 / 18}
    expected = {f"gpu2->nvsw{plane}": part for plane, part in parts.items()}
    expected |= {f"nvsw{plane}->gpu7": part for plane, part in parts.items()}
    assert shares == pytest.approx(expected, rel=1e-12, abs=0)
    assert latency_s == pytest.approx(150e-9 + 200e-9 + 150e-9)


def test_a_mesh_goes_straight():
    assert path(load_topology("mi300x_ubb8"), 3, 5) == ({"gpu3->gpu5": 1.0}, 5e-7)


def test_one_switch():
    shares, latency_s = path(system(("a", "s", 10), ("b", "s", 20), switch_latency_s=3e-7), 0, 1)
    assert shares == {"a->s": 1.0, "s->b": 1.0}
    assert latency_s == pytest.approx(2.3e-6)


def test_the_narrowest_link_of_a_plane_decides_its_share():
    shares, _ = path(system(("a", "s0", 30), ("s0", "b", 10), ("a", "s1", 20), ("s1", "b", 90)), 0, 1)
    assert shares == pytest.approx({"a->s0": 1 / 3, "s0->b": 1 / 3, "a->s1": 2 / 3, "s1->b": 2 / 3})


def test_a_direct_link_beats_a_switch():
    assert path(system(("a", "s", 90), ("b", "s", 90), ("a", "b", 1)), 0, 1)[0] == {"a->b": 1.0}


LEAVES = (
    ("a", "sleaf0", 50),
    ("b", "sleaf1", 50),
    ("sleaf0", "sspine0", 30),
    ("sleaf1", "sspine0", 45),
    ("sleaf0", "sspine1", 10, 4e-6),
    ("sleaf1", "sspine1", 10),
)


def test_two_levels_of_switches():
    """Spines carry 30 : 10; the links that both paths share carry all, once; the slower spine makes the latency."""
    shares, latency_s = path(system(*LEAVES, switch_latency_s=1e-7), 0, 1)
    assert shares == pytest.approx(
        {
            "a->sleaf0": 1.0,
            "sleaf0->sspine0": 0.75,
            "sspine0->sleaf1": 0.75,
            "sleaf0->sspine1": 0.25,
            "sspine1->sleaf1": 0.25,
            "sleaf1->b": 1.0,
        }
    )
    assert latency_s == pytest.approx(1e-6 + 4e-6 + 1e-6 + 1e-6 + 3e-7)


def test_the_slowest_plane_makes_the_latency():
    topology = system(("a", "s0", 10, 1e-6), ("s0", "b", 10, 2e-6), ("a", "s1", 10, 5e-6), ("s1", "b", 10, 1e-6))
    assert path(topology, 0, 1)[1] == pytest.approx(6e-6)


def test_gpus_forward_only_if_they_must():
    line = system(("a", "b", 10), ("b", "c", 10))
    assert path(line, 0, 2) == ({"a->b": 1.0, "b->c": 1.0}, pytest.approx(2e-6))
    longer = system(("a", "b", 10), ("b", "c", 10), ("a", "s0", 1), ("s0", "s1", 1), ("s1", "c", 1))
    assert path(longer, 0, 2)[0] == {"a->s0": 1.0, "s0->s1": 1.0, "s1->c": 1.0}


def test_a_gpu_that_takes_no_part_forwards_too():
    assert path(system(("a", "b", 10), ("b", "c", 10)), 1, 0, ranks=[0, 2])[0] == {"c->b": 1.0, "b->a": 1.0}


def test_one_way_links_are_followed_one_way():
    ring = system(("a", "b", 10), ("b", "c", 10), ("c", "a", 10), duplex=False)
    assert path(ring, 1, 0)[0] == {"b->c": 1.0, "c->a": 1.0}


def test_ranks_are_numbered_by_the_list():
    assert path(load_topology("mi300x_ubb8"), 0, 1, ranks=[6, 2])[0] == {"gpu6->gpu2": 1.0}


def test_ranks_that_cannot_reach_each_other_are_named():
    with pytest.raises(NoRouteError) as caught:
        find_routes(build_fabric(system(("a", "b", 10), ("c", "d", 10))))
    text = str(caught.value)
    assert "rank 0 (a) cannot reach ranks 2, 3" in text
    assert "rank 3 (d) cannot reach ranks 0, 1" in text
    assert "4 of 4 ranks cannot reach every other rank" in text
    assert "hint" in text
    assert caught.value.exit_code == 3


def test_one_way_out_is_not_a_way_back():
    with pytest.raises(NoRouteError, match=r"rank 1 \(b\) cannot reach rank 0\n"):
        find_routes(build_fabric(system(("a", "b", 10), duplex=False)))


def test_many_lost_ranks_are_counted():
    wires = [(f"x{i}", f"y{i}", 10) for i in range(10)]
    with pytest.raises(NoRouteError) as caught:
        find_routes(build_fabric(system(*wires)))
    assert len(caught.value.faults) == 9
    assert "and 10 more" in str(caught.value)
    assert "20 of 20 ranks" in str(caught.value)


def test_every_route_starts_and_ends_where_it_should_and_loses_nothing():
    for topology in (load_topology("hgx_h100"), system(*LEAVES, ("c", "sspine0", 5))):
        fabric = build_fabric(topology)
        routes = find_routes(fabric)
        n, wiring = fabric.n_ranks, fabric.wiring
        for number in range(n * n):
            source, target = divmod(number, n)
            flow = np.zeros(len(wiring.node_names))
            entries = slice(routes.ptr[number], routes.ptr[number + 1])
            np.add.at(flow, wiring.link_src[routes.link[entries]], routes.weight[entries])
            np.add.at(flow, wiring.link_dst[routes.link[entries]], -routes.weight[entries])
            expected = np.zeros(len(flow))
            if source != target:
                expected[[fabric.rank_node[source], fabric.rank_node[target]]] = 1, -1
            assert flow == pytest.approx(expected, abs=1e-12)


def test_take_and_link_bytes():
    fabric = build_fabric(system(("a", "s", 10), ("b", "s", 10), ("c", "s", 10)))
    routes = find_routes(fabric)
    some = routes.take(np.array([1, 1, 5]), np.array([1.0, 2.0, 1.0]))  # a to b, b twice as heavy, b to c
    carried = some.link_bytes(np.array([10.0, 100.0, 7.0]), fabric.n_links)
    named = {fabric.wiring.link_name(i): carried[i] for i in range(fabric.n_links) if carried[i]}
    assert named == {"a->s": 210.0, "s->b": 210.0, "b->s": 7.0, "s->c": 7.0}


# --- Trunks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "trunks"),
    [("gb200_nvl72", 144), ("hgx_h100", 16), ("mi400_ualoe72", 144), ("mi300x_ubb8", 56)],
)
def test_healthy_domains_collapse_to_a_trunk_out_and_one_in(name, trunks):
    run = prepare(load_topology(name), load_profile("ideal"))
    assert len(run.trunk_capacity_Bps) == trunks
    if trunks != 56:
        per_gpu = run.fabric.capacity_Bps[run.fabric.wiring.link_src == 0].sum()
        assert run.trunk_capacity_Bps == pytest.approx(np.full(trunks, per_gpu), rel=1e-12, abs=0)


def without_trunks(run):
    return replace(run, trunks=run.routes, trunk_capacity_Bps=run.fabric.capacity_Bps)


def damaged(topology, rng, what):
    """Some links of a topology made slower or less efficient."""
    wiring = topology.wiring
    hit = rng.random(wiring.n_links) < rng.choice([1 / wiring.n_links, 0.2])
    hit[rng.integers(wiring.n_links)] = True
    return replace(
        topology, wiring=replace(wiring, **{what: np.where(hit, rng.choice([0.2, 0.5]), 1.0) * getattr(wiring, what)})
    )


@pytest.mark.parametrize("what", ["link_bandwidth_Bps", "link_efficiency"])
@pytest.mark.parametrize("name", ["hgx_h100", "gb200_nvl72", "mi300x_ubb8"])
@pytest.mark.parametrize("seed", range(3))
def test_trunks_change_no_time_on_damaged_fabrics(name, what, seed):
    """A slow bandwidth moves the spray away from it; a low efficiency leaves the spray and slows the plane."""
    rng = np.random.default_rng(seed)
    topology = damaged(load_topology(name), rng, what)
    run = prepare(topology, load_profile("default"), rng.permutation(topology.n_gpus)[:8])
    for op, algo in (("all_reduce", "ring"), ("all_to_all", "direct"), ("all_reduce", "all_pairs"), ("reduce", "tree")):
        schedule = algorithm(op, algo).build(ScheduleRequest(operation(op), 8, 8 * 123456, 4, channels=2))
        merged, plain = time_schedule(schedule, run), time_schedule(schedule, without_trunks(run))
        assert merged.time_s == pytest.approx(plain.time_s, rel=1e-9, abs=0)
        assert merged.link_bytes.tolist() == plain.link_bytes.tolist()


@pytest.mark.parametrize("name", ["hgx_h100", "gb200_nvl72"])
def test_one_inefficient_link_binds_its_trunk(name):
    """Half of one plane's efficiency halves what its GPU can send, since the spray does not avoid it."""
    topology = load_topology(name)
    wiring = topology.wiring
    efficiency = np.where(np.arange(wiring.n_links) == 0, 0.5, 1.0)
    run = prepare(replace(topology, wiring=replace(wiring, link_efficiency=efficiency)), load_profile("default"))
    slowest = np.sort(run.trunk_capacity_Bps)
    assert slowest[0] == pytest.approx(slowest[1] / 2)
    assert len(slowest) == 2 * topology.n_gpus


def test_one_slow_link_is_not_merged_with_its_plane():
    """GPU 0 sends half as much over its slow link as over the others."""
    topology = load_topology("gb200_nvl72")
    wiring = topology.wiring
    rate = np.where(np.arange(wiring.n_links) == 0, 0.5, 1.0) * wiring.link_bandwidth_Bps
    run = prepare(replace(topology, wiring=replace(wiring, link_bandwidth_Bps=rate)), load_profile("ideal"))
    out = run.fabric.wiring.link_src == 0
    number = 0 * 72 + 1
    entries = slice(run.routes.ptr[number], run.routes.ptr[number + 1])
    weight = dict(zip(run.routes.link[entries].tolist(), run.routes.weight[entries].tolist(), strict=True))
    assert weight[0] == pytest.approx(0.5 / 17.5)
    assert sum(weight[link] for link in np.flatnonzero(out)) == pytest.approx(1)
    entries = slice(run.trunks.ptr[number], run.trunks.ptr[number + 1])
    alone_Bps = run.trunk_capacity_Bps[run.trunks.link[entries]] / run.trunks.weight[entries]
    assert alone_Bps.min() == pytest.approx(17.5 * 50 * GBPS)


def test_links_in_different_proportion_stay_apart():
    """Two routes cross both links, but with weights 3:1 and 1:1."""
    fabric = build_fabric(
        system(
            ("a", "s0", 30), ("a", "s1", 30), ("s0", "b", 30), ("s1", "b", 10), ("s0", "c", 10), ("s1", "c", 10)
        )
    )  # fmt: skip
    routes = find_routes(fabric)
    trunks, capacity = merge_trunks(routes, fabric.capacity_Bps)
    number = {fabric.wiring.link_name(i): i for i in range(fabric.n_links)}
    assert (routes.link == number["a->s0"]).sum() == (routes.link == number["a->s1"]).sum() == 2
    to_b, to_c = (trunks.link[trunks.ptr[target] : trunks.ptr[target + 1]] for target in (1, 2))
    assert len(np.intersect1d(to_b, to_c)) == 2
    assert len(capacity) < fabric.n_links
