"""Tables of routes: sorting labels out, joining ways, trunks, and routes that are found when they are needed."""

import networkx as nx
import numpy as np
import pytest

from collsim.core.arrays import distinct, entries_of
from collsim.fabric import routing
from collsim.fabric.fabric import build_fabric, memory_need_Bps
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routes import RouteBlock, Routes, assemble, merge_trunks
from collsim.fabric.routing import find_routes, links_beside, links_in_reach, routes_of
from collsim.library import load_profile
from collsim.simulation.runs import as_seen
from collsim.topology import Topology, load_topology
from collsim.topology.failures.degrade import damaged


def test_what_links_ask_of_memory():
    """A byte that leaves is read; one that arrives is written, and what it is added to is read: of 10 GB/s one way."""
    graph = nx.DiGraph()
    graph.add_edge("gpu0", "gpu1", bandwidth_Bps=10e9, latency_s=0.0)
    graph.add_edge("gpu1", "gpu0", bandwidth_Bps=2e9, latency_s=0.0)
    assert memory_need_Bps(load_topology(graph).wiring, [0, 1]).tolist() == [14e9, 22e9]


@pytest.mark.parametrize(("low", "high", "n"), [(0, 1, 0), (5, 6, 3), (-40, 40, 500), (-3, 2**60, 200), (0, 300, 300)])
def test_distinct_is_unique(low, high, n):
    labels = np.random.default_rng(n).integers(low, high, n)
    expected = np.unique(labels, return_inverse=True)
    assert all(np.array_equal(got, want) for got, want in zip(distinct(labels), expected, strict=True))


def test_rows_of_a_table():
    ptr, place = entries_of(np.array([0, 2, 2, 5]), np.array([2, 1, 2, 0]))
    assert ptr.tolist() == [0, 3, 3, 6, 8]
    assert place.tolist() == [2, 3, 4, 2, 3, 4, 0, 1]


def random_parts(seed, n_routes=30, n_links=20):
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(3):
        hops = rng.integers(1, 6, 12)
        shares = rng.choice([0.25, 0.5, 1.0], hops.sum())
        route = rng.integers(0, n_routes, 12)
        parts.append(RouteBlock(route, rng.random(12), hops, rng.integers(0, n_links, hops.sum()), shares))
    return parts


@pytest.mark.parametrize("seed", range(5))
def test_ways_of_a_route_are_added_up(seed):
    parts = random_parts(seed)
    routes = assemble(np.ones(30), parts)
    table, slowest = np.zeros((30, 20)), np.zeros(30)
    for part in parts:
        np.add.at(table, (np.repeat(part.route, part.hops), part.link), part.weight)
        np.maximum.at(slowest, part.route, part.latency_s)
    found = np.zeros((30, 20))
    owner = np.repeat(np.arange(30), np.diff(routes.ptr))
    assert np.all(np.diff(owner * 20 + routes.link) > 0)
    found[owner, routes.link] = routes.weight
    assert np.array_equal(found, table)
    assert np.array_equal(routes.latency_s, slowest)


def trunks_one_by_one(routes, capacity_Bps):
    """The links that are in step with each, as sets, and the capacity of each set, found link by link."""
    owner = np.repeat(np.arange(len(routes.ptr) - 1), np.diff(routes.ptr))
    sets = {}
    for link in np.unique(routes.link).tolist():
        here = routes.link == link
        load = routes.weight[here] * routes.slowdown[owner[here]]
        key = (owner[here].tobytes(), np.round(load / load.max(), 12).tobytes())
        sets.setdefault(key, []).append((link, float(capacity_Bps[link] / load.max())))
    return [([link for link, _ in found], min(rate for _, rate in found)) for found in sets.values()]


@pytest.mark.parametrize("seed", range(8))
def test_trunks_are_those_found_link_by_link(seed):
    rng = np.random.default_rng(seed)
    routes = assemble(rng.choice([1.0, 1.25], 30), random_parts(seed))
    twins = rng.permutation(20)  # a second link beside each, of another capacity
    both = np.stack([routes.link, 20 + twins[routes.link]], axis=1).ravel()
    doubled = Routes(2 * routes.ptr, both, np.repeat(routes.weight, 2), routes.latency_s, routes.slowdown)
    doubled = assemble(
        routes.slowdown, [RouteBlock(np.arange(30), routes.latency_s, np.diff(doubled.ptr), both, doubled.weight)]
    )
    capacity_Bps = rng.choice([1.0, 2.0, 3.0], 40)
    trunks, capacity = merge_trunks(doubled, capacity_Bps)
    expected = trunks_one_by_one(doubled, capacity_Bps)
    assert capacity.tolist() == [rate for _, rate in expected]
    owner = np.repeat(np.arange(30), np.diff(trunks.ptr))
    for number, (links, _) in enumerate(expected):
        crossing = np.unique(np.repeat(np.arange(30), np.diff(doubled.ptr))[doubled.link == links[0]])
        assert np.array_equal(owner[trunks.link == number], crossing)


def test_of_many_ranks_routes_are_found_when_they_are_needed(monkeypatch):
    fabric = build_fabric(load_topology("gh200_nvl32"), list(range(1, 32, 2)))
    n, whole = fabric.n_ranks, find_routes(fabric)
    monkeypatch.setattr(routing, "ALL_PAIRS_UP_TO", 4)
    few = find_routes(fabric)
    assert len(few.ptr) < 3 * n < len(whole.ptr) / 4
    assert few.fastest_s() == whole.fastest_s()
    assert np.array_equal(links_in_reach(fabric, few), whole.used_links(fabric.n_links))
    rng = np.random.default_rng(0)
    ends = rng.integers(0, n, 40), rng.integers(0, n, 40)
    found, place = routes_of(fabric, few, ends, (), TreePorts.free(fabric))
    taken = [found.take(place, np.ones(40)), whole.take(ends[0] * n + ends[1], np.ones(40))]
    for column in ("ptr", "link", "weight", "latency_s"):
        assert np.array_equal(*(getattr(routes, column) for routes in taken))


def test_one_rank_with_other_links_is_looked_at(monkeypatch):
    topology = load_topology("hgx_h100", {"gpu.count": "8"})

    topology = damaged(topology, ["link:gpu5-nvsw0", "link:gpu2-nvsw3"])
    fabric = build_fabric(topology)
    whole = find_routes(fabric)
    monkeypatch.setattr(routing, "ALL_PAIRS_UP_TO", 4)
    few = find_routes(fabric)
    assert few.number is not None
    assert np.array_equal(links_in_reach(fabric, few), whole.used_links(fabric.n_links))
    pairs = np.flatnonzero(~np.eye(8, dtype=bool))
    found, place = routes_of(fabric, few, np.divmod(pairs, 8), (), TreePorts.free(fabric))
    taken = [found.take(place, np.ones(56)), whole.take(pairs, np.ones(56))]
    assert all(np.array_equal(getattr(taken[0], name), getattr(taken[1], name)) for name in ("link", "weight"))


def paths_of_one_pair(fabric, source, target, *, relays):
    """All shortest paths as lists of links, node by node; GPUs forward only if *relays*."""
    wiring = fabric.wiring
    paths, seen = {source: [[]]}, {source}
    while paths and target not in paths:
        following = {}
        for node, reached in paths.items():
            if node == source or node >= wiring.n_gpus or relays:
                for link in np.flatnonzero(wiring.link_src == node).tolist():
                    after = int(wiring.link_dst[link])
                    if after not in seen:
                        following.setdefault(after, []).extend([*path, link] for path in reached)
        seen.update(following)
        paths = following
    return paths.get(target, [])


@pytest.mark.parametrize("seed", range(6))
def test_searches_from_all_sources_are_those_of_one_pair(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    graph = nx.connected_watts_strogatz_graph(16, 4, 0.4, seed=seed)
    for node in range(12, 16):
        graph.nodes[node]["kind"] = "switch" if seed % 2 else "gpu"
    for a, b in graph.edges:
        figures = {"bandwidth_Bps": float(rng.choice([1e9, 2e9])), "latency_s": float(rng.choice([1e-6, 3e-6]))}
        graph.edges[a, b].update(figures)
    fabric = build_fabric(Topology.from_graph(graph), list(range(0, 12, 2)))
    monkeypatch.setattr("collsim.fabric.domain.BLOCK", 400)  # several blocks of sources
    routes, n = find_routes(fabric), fabric.n_ranks
    for source, target in zip(*np.nonzero(~np.eye(n, dtype=bool)), strict=True):
        ends = [int(fabric.rank_node[rank]) for rank in (source, target)]
        paths = paths_of_one_pair(fabric, *ends, relays=False) or paths_of_one_pair(fabric, *ends, relays=True)
        width = np.array([fabric.nominal_Bps[path].min() for path in paths])
        table = np.zeros(fabric.n_links)
        for path, share in zip(paths, width / width.sum(), strict=True):
            table[path] += share
        place = source * n + target
        span = slice(routes.ptr[place], routes.ptr[place + 1])
        found = np.zeros(fabric.n_links)
        found[routes.link[span]] = routes.weight[span]
        np.testing.assert_allclose(found, table, rtol=1e-12)
        slowest_s = max(
            fabric.link_latency_s[path].sum() + fabric.node_latency_s[fabric.wiring.link_src[path[1:]]].sum()
            for path in paths
        )
        assert routes.latency_s[place] == pytest.approx(slowest_s, rel=1e-12)


def test_links_beside_are_those_of_nodes_with_ranks():
    """Without peer access a GPU copies through its host, whose memory has links that no route takes."""
    found = []
    for nodes in ("2", "64"):
        whole = load_topology("alps", {"scale_out.nodes": nodes})
        seen = as_seen(whole, load_profile("gh200_quad"), range(6), {"NCCL_P2P_DISABLE": "1"})
        fabric = build_fabric(seen, range(6))
        found.append(int(links_beside(fabric, links_in_reach(fabric, find_routes(fabric))).sum()))
    assert found[0] == found[1] > 0
