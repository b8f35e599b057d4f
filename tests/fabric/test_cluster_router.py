"""Routes between nodes: flow is conserved, loads follow from the wiring, hashed flows are balls into bins."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import collsim
from collsim.core.errors import UnsupportedError
from collsim.fabric.cluster_router import Router
from collsim.fabric.fabric import build_fabric
from collsim.fabric.routing import Routes, find_routes
from collsim.library import load_profile
from collsim.simulation.runs import prepare
from collsim.topology import Topology, load_topology
from collsim.topology.cluster.scale_out import build_cluster, cluster_spec
from collsim.topology.failures.degrade import damaged

IDEAL = load_profile("ideal")
FABRICS = ("rail", "rail_only", "fat_tree", "dragonfly", "single_switch")


def cluster_of(name: str = "hgx_h100", **figures: Any) -> Topology:
    node = load_topology(name)
    return build_cluster(node, cluster_spec(node, **figures))


def routed(topology: Topology) -> tuple[Any, Routes]:
    fabric = build_fabric(topology)
    return fabric, find_routes(fabric)


def net_flow(fabric: Any, routes: Routes, pair: int) -> np.ndarray:
    """Return float64[nodes]: what leaves each node less what arrives, of one unit from the pair's first rank."""
    span = slice(int(routes.ptr[pair]), int(routes.ptr[pair + 1]))
    net = np.zeros(fabric.wiring.n_nodes)
    np.add.at(net, fabric.wiring.link_src[routes.link[span]], routes.weight[span])
    np.add.at(net, fabric.wiring.link_dst[routes.link[span]], -routes.weight[span])
    return net


@pytest.mark.parametrize("routing", ["adaptive", "ecmp", "spray"])
@pytest.mark.parametrize("fabric_name", FABRICS)
@pytest.mark.parametrize(
    ("node", "figures"),
    [
        ("hgx_h100", {"nodes": 3}),
        ("hgx_h100", {"nodes": 5, "gpus_per_node": 3}),
        ("hgx_h100", {"nodes": 9, "radix": 128}),
        ("gh200_nvl32", {"nodes": 2, "gpus_per_node": 5}),
        ("mi300x_ubb8", {"nodes": 4, "radix": 32}),
        ("dgx_a100", {"nodes": 2}),
    ],
)
def test_every_message_arrives_whole(node: str, figures: dict[str, int], fabric_name: str, routing: str) -> None:
    fabric, routes = routed(cluster_of(node, fabric=fabric_name, routing=routing, **figures))
    n = fabric.n_ranks
    for src in range(n):
        for dst in range(n):
            if src != dst:
                expected = np.zeros(fabric.wiring.n_nodes)
                expected[src], expected[dst] = 1, -1
                np.testing.assert_allclose(net_flow(fabric, routes, src * n + dst), expected, atol=1e-12)


def test_rails_need_no_spine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collsim.fabric.cluster_routes.FEW", 512)  # keeps the routes of all pairs
    topology = cluster_of(nodes=20, fabric="rail", radix=32)
    fabric, routes = routed(topology)
    cluster = topology.cluster
    assert cluster is not None
    assert cluster.plan.spines > 0
    one_block = [rank for rank in range(fabric.n_ranks) if rank // 8 < cluster.plan.block_nodes]
    for src in one_block:
        for dst in one_block:
            if src // 8 != dst // 8:
                pair = src * fabric.n_ranks + dst
                links = routes.link[int(routes.ptr[pair]) : int(routes.ptr[pair + 1])]
                assert fabric.wiring.link_dst[links].max() < cluster.first_spine


def test_relay_takes_the_rail_of_the_receiver() -> None:
    fabric, routes = routed(cluster_of(nodes=2, fabric="rail_only"))
    pair = 1 * 16 + 8 + 6  # GPU 1 of node 0 to GPU 6 of node 1
    links = routes.link[int(routes.ptr[pair]) : int(routes.ptr[pair + 1])]
    names = [fabric.wiring.link_name(int(link)) for link in links]
    assert any(name.endswith("->n0.gpu6") for name in names)
    assert "n0.gpu6->n0.nic6" in names
    assert not any("nic1" in name for name in names)


@pytest.mark.parametrize(("nodes", "inside"), [(2, 8), (4, 8), (3, 8)])
def test_uniform_all_to_all_fills_the_adapters(nodes: int, inside: int) -> None:
    result = collsim.simulate(cluster_of(nodes=nodes), "all_to_all", "1G", profile="ideal")
    ranks = nodes * inside
    assert result.rows[0].algo == "direct"
    away = 2**30 * (ranks - inside) / ranks
    assert result.rows[0].time_s == pytest.approx(away / 50e9, rel=1e-6)  # whole elements


def carried(fabric: Any, routes: Routes, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return float64[links]: messages over each, one for each pair."""
    load = np.zeros(fabric.n_links)
    for src, dst in pairs:
        span = slice(int(routes.ptr[src * fabric.n_ranks + dst]), int(routes.ptr[src * fabric.n_ranks + dst + 1]))
        np.add.at(load, routes.link[span], routes.weight[span])
    return load


def small_tree(**figures: Any) -> Topology:
    """Return four nodes of eight GPUs, each on a leaf of its own; rank r sends to rank r + 8 in the tests below."""
    return cluster_of(nodes=4, fabric="fat_tree", radix=16, **figures)


SHIFT = [(rank, (rank + 8) % 32) for rank in range(32)]


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_oversubscribed_leaves(ratio: float) -> None:
    fabric, routes = routed(small_tree(oversubscription=ratio))
    worst = (carried(fabric, routes, SHIFT) / fabric.raw_capacity_Bps).max() * 50e9
    assert worst == pytest.approx(ratio, rel=1e-12)


UPLINKS = 8
SEEDS = range(1, 1001)


@cache
def hashed_loads() -> np.ndarray:
    """Return float64[seeds, cables]: flows on each cable from one leaf to its spines, for 8 flows on 8 cables."""
    fabric = build_fabric(small_tree(routing="ecmp"), range(16))
    routes = find_routes(fabric)
    assert fabric.cluster is not None
    up = np.flatnonzero(fabric.wiring.link_src == fabric.cluster.first_leaf)
    cables = up[fabric.wiring.link_dst[up] >= fabric.cluster.first_spine]
    assert len(cables) == UPLINKS
    return np.array([carried(fabric, redrawn_routes(fabric, routes, seed), SHIFT[:8])[cables] for seed in SEEDS])


def redrawn_routes(fabric: Any, routes: Routes, seed: int) -> Routes:
    return find_routes(fabric.with_hash_seed(seed), routes.ways)


@pytest.mark.parametrize("figures", [{}, {"flows_per_pair": 3}, {"fabric": "dragonfly", "nodes": 12}])
def test_routes_drawn_again_are_those_of_another_seed(figures: dict[str, Any]) -> None:
    build = {"nodes": 4, "fabric": "fat_tree", "radix": 16, "routing": "ecmp"} | figures
    fabric, routes = routed(cluster_of(**build))
    again, other = redrawn_routes(fabric, routes, 7), routed(cluster_of(**build, hash_seed=7))[1]
    for column in ("ptr", "link", "weight", "latency_s", "slowdown"):
        assert np.array_equal(getattr(again, column), getattr(other, column)), column
    assert not np.array_equal(again.link, routes.link)


def most_in_a_bin(balls: int, bins: int) -> float:
    """Return the mean of 1 / (most balls in a bin), exactly: of all ways to throw, those with at most k in each."""
    at_most = []
    for k in range(balls + 1):
        series = np.array([1 / math.factorial(i) if i <= k else 0.0 for i in range(balls + 1)])
        ways = np.array([1.0] + [0.0] * balls)
        for _ in range(bins):
            ways = np.convolve(ways, series)[: balls + 1]
        at_most.append(ways[balls] * math.factorial(balls) / bins**balls)
    return sum((at_most[k] - at_most[k - 1]) / k for k in range(1, balls + 1))


def test_hashed_flows_are_balls_into_bins() -> None:
    loads = hashed_loads()
    assert (loads.sum(axis=1) == UPLINKS).all()
    busy = (loads > 0).mean()
    assert busy == pytest.approx(1 - (1 - 1 / UPLINKS) ** UPLINKS, rel=0.02)
    assert (1 / loads.max(axis=1)).mean() == pytest.approx(most_in_a_bin(UPLINKS, UPLINKS), rel=0.02)


def test_draws_of_equal_flows_are_balls_into_bins() -> None:
    topology = cluster_of(nodes=16, fabric="fat_tree", radix=16, routing="ecmp")  # a cable to each of 8 spines
    assert topology.cluster is not None
    assert (topology.cluster.plan.leaf_up, topology.cluster.plan.spines) == (UPLINKS, UPLINKS)
    matrix = np.zeros((16, 16), dtype=np.int64)
    matrix[np.arange(8), np.arange(8, 16)] = 2**20
    asked = {"matrix": matrix, "rank_list": range(16), "profile": "ideal", "hash_seeds": range(1, 401)}
    row = collsim.simulate(topology, "all_to_all_v", algo="direct", **asked).rows[0]
    efficiency = 2**20 / 50e9 / np.array(row.draw_times_s)
    assert efficiency.mean() == pytest.approx(most_in_a_bin(UPLINKS, UPLINKS), rel=0.03)


def test_most_in_a_bin_by_hand() -> None:
    assert most_in_a_bin(2, 2) == pytest.approx(0.75)  # together or apart, equally often
    assert most_in_a_bin(1, 5) == 1
    assert most_in_a_bin(3, 3) == pytest.approx((6 * 1 + 18 / 2 + 3 / 3) / 27)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_time_of_hashed_flows_is_that_of_the_busiest_cable(seed: int) -> None:
    topology = small_tree(routing="ecmp", hash_seed=seed)
    matrix = np.zeros((32, 32), dtype=np.int64)
    matrix[np.arange(8), np.arange(8, 16)] = 2**28
    fabric, routes = routed(topology)
    load = carried(fabric, routes, SHIFT[:8])
    result = collsim.simulate(topology, "all_to_all_v", matrix=matrix, profile="ideal")
    assert result.rows[0].time_s == pytest.approx(load.max() * 2**28 / 50e9, rel=1e-9)


@pytest.mark.parametrize("routing", ["spray", "adaptive"])
def test_spread_flows_share_nothing(routing: str) -> None:
    fabric, routes = routed(small_tree(routing=routing))
    load = carried(fabric, routes, SHIFT)
    assert (load / fabric.raw_capacity_Bps).max() * 50e9 == pytest.approx(1.0, rel=1e-12)


def test_flows_of_a_pair_even_out() -> None:
    worst = []
    for flows in (1, 64):
        fabric, routes = routed(small_tree(routing="ecmp", flows_per_pair=flows))
        worst.append(carried(fabric, routes, SHIFT).max())
    assert 1 <= worst[1] < 1.6 < worst[0]


def test_paths_of_a_dragonfly_are_minimal_but_for_detours_in_a_group() -> None:
    topology = cluster_of("hgx_h100", nodes=24, gpus_per_node=1, fabric="dragonfly", radix=16)
    cluster = topology.cluster
    assert cluster is not None
    router = Router(build_fabric(topology))
    groups = cluster.switch_group
    for src in range(24):
        for dst in range(24):
            if src != dst:
                leaf_a, leaf_b = int(cluster.nic_leaf[src]), int(cluster.nic_leaf[dst])
                ways = router.all_ways(leaf_a, leaf_b) if leaf_a != leaf_b else []
                hops = [len(path[0]) for path, _ in ways]
                assert max(hops, default=0) <= (2 if groups[leaf_a] == groups[leaf_b] else 3)
                if groups[leaf_a] == groups[leaf_b] and ways:
                    assert hops.count(1) == 1
                    assert len({path[2] for path, _ in ways}) == 1  # a message alone goes straight


def test_ways_over_a_core_take_the_time_of_each_switch_and_cable_on_them() -> None:
    """Leaf, spine, core and spine each forward in a time of their own; the last leaf counts with its adapter."""
    fabric = build_fabric(cluster_of(nodes=2, fabric="fat_tree", radix=4))
    wiring, rng = fabric.wiring, np.random.default_rng(0)
    cable_s, switch_s = rng.random(wiring.n_links), rng.random(wiring.n_nodes)
    router = Router(replace(fabric, link_latency_s=cable_s, node_latency_s=switch_s))
    leaf = router.cluster.nic_leaf
    links, _, latency_s = router.over_cores(int(leaf[0]), int(leaf[-1]))
    assert len(latency_s)
    for *way, found_s in zip(*links, latency_s, strict=True):
        assert (wiring.link_dst[way[:-1]] == wiring.link_src[way[1:]]).all()
        assert len({*wiring.link_src[way]}) == 4
        assert found_s == pytest.approx(cable_s[way].sum() + switch_s[wiring.link_src[way]].sum(), rel=1e-12)


@pytest.mark.parametrize(("routing", "ways"), [("ecmp", [1]), ("spray", [1, 2]), ("adaptive", [1, 2])])
def test_only_a_hash_keeps_a_dragonfly_to_the_cable_within_a_group(routing: str, ways: list[int]) -> None:
    """Between two switches of a group flows that are hashed take the cable; others also go over third switches."""
    topology = cluster_of("hgx_h100", nodes=24, gpus_per_node=1, fabric="dragonfly", radix=16, routing=routing)
    cluster = topology.cluster
    assert cluster is not None
    group = cluster.switch_group
    leaf_a, leaf_b = np.flatnonzero(group == 0)[:2].tolist()
    found = [len(path[0]) for path, _ in Router(build_fabric(topology)).all_ways(leaf_a, leaf_b)]
    assert sorted(set(found)) == ways
    assert found.count(1) == 1
    assert found.count(2) == ((group == 0).sum() - 2 if 2 in ways else 0)


def test_a_busy_cable_of_a_dragonfly_is_gone_round() -> None:
    """Three adapters of a switch send to three of another in its group: one cable alone would take three times."""
    topology = cluster_of("hgx_h100", nodes=6, gpus_per_node=4, fabric="dragonfly", radix=16)
    cluster = topology.cluster
    assert cluster is not None
    leaf = cluster.nic_leaf
    full = [
        int(switch) for switch in np.unique(leaf) if (leaf == switch).sum() == 3 and cluster.switch_group[switch] == 0
    ]
    first, second = (np.flatnonzero(leaf == switch) for switch in full[:2])
    matrix = np.zeros((24, 24), dtype=np.int64)
    matrix[first, second] = 2**30
    row = collsim.simulate(topology, "all_to_all_v", matrix=matrix, algo="direct", profile="ideal").rows[0]
    assert 1 - 1e-9 < row.time_s / (2**30 / 50e9) < 1.5


def test_many_ranks_keep_some_routes_and_find_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = cluster_of(nodes=5, radix=16, gpus_per_node=4)
    matrix = np.full((20, 20), 2**12) + 2**26 * (np.arange(20)[:, None] // 2 == np.arange(20) // 2)

    def outcome() -> tuple[Any, list[tuple[float, float, float]]]:
        rows = collsim.simulate(topology, "all_reduce", "20M", algo=["ring", "nvls_tree"]).rows
        rows += collsim.simulate(topology, "all_to_all", "20M", algo=["nccl_pxn", "nccl_p2p"]).rows
        rows += collsim.simulate(topology, "all_to_all_v", matrix=matrix, algo="nccl_p2p").rows
        return prepare(topology, IDEAL), [
            (row.time_s, row.lower_bound_s, row.bottleneck[0].utilisation) for row in rows
        ]

    whole, before = outcome()
    monkeypatch.setattr("collsim.fabric.cluster_routes.FEW", 19)
    part, after = outcome()
    assert len(part.routes.link) < len(whole.routes.link) / 3
    assert part.routes.fastest_s() == whole.routes.fastest_s()
    assert not (whole.used & ~part.used).any()
    np.testing.assert_allclose(before, after, rtol=1e-9)


def test_tables_of_pairs_are_refused_for_too_many_ranks() -> None:
    cluster = cluster_of(nodes=257)
    with pytest.raises(UnsupportedError, match="all_reduce by rabenseifner has too many pieces on 2056 ranks"):
        collsim.simulate(cluster, "all_reduce", "1M", algo="rabenseifner")
    with pytest.raises(UnsupportedError, match="transfers are too many to simulate one by one"):
        collsim.simulate(cluster, "all_gather", "1M", algo="ring", reduce=False)
    row = collsim.simulate(cluster, "all_reduce", "1M", algo="tree", channels=2, profile="ideal").rows[0]
    assert row.ranks == 2056
    assert 0 < row.lower_bound_s < row.time_s


def test_send_recv_needs_no_tables_and_does_not_jump():
    """Every rank sends to one other: 255 and 257 nodes under equal switches take the same time."""
    sizes = ["4K", "64K", "1M", "64M"]
    few, many = (
        [
            row.time_s
            for row in collsim.simulate(cluster_of(nodes=nodes, radix=128), "send_recv", sizes, algo="nccl_p2p").rows
        ]
        for nodes in (255, 257)
    )
    assert many == pytest.approx(few, rel=1e-9)


def test_broadcasts_over_more_nodes_take_longer():
    times = [
        collsim.simulate("h100_rail", "broadcast", "64K", ranks=8 * nodes, algo="ring", proto="LL128").rows[0].time_s
        for nodes in (2, 3, 5)
    ]
    assert times == sorted(set(times))


def test_slow_links_of_a_cluster():
    two = cluster_of(nodes=2)

    def slowdown(name: str) -> float:
        row = collsim.simulate(two, "all_reduce", "64M", profile="ideal", algo="nvls_tree", degrade=[name]).rows[0]
        return float(row.slowdown)

    assert slowdown("link:n0.gpu0-n0.nic0=90%") == 1  # 56.7 GB/s are still more than the adapter's 50
    assert 1.5 < slowdown("nic:node1/5=50%") < 2  # twice as long in the network, as long in the node


def test_an_adapter_fails() -> None:
    row = collsim.simulate("h100_rail", "all_reduce", "64M", ranks=16, fail="nic:node0/1", library="nccl-2.28").rows[0]
    assert (row.algo, row.healthy_algo) == ("nvls_tree", "nvls_tree/Simple")  # the switches of both nodes are whole
    assert 1 < row.slowdown < 2


@pytest.mark.parametrize("routing", ["adaptive", "ecmp"])
def test_cables_of_a_hashed_bundle_count_as_a_bundle(routing: str) -> None:
    topology = small_tree(routing=routing)
    assert topology.wiring.n_physical_links == small_tree().wiring.n_physical_links
    assert sum(rate for *_, rate in topology.graph.edges(data="bandwidth_Bps")) == pytest.approx(
        float(topology.wiring.link_bandwidth_Bps.sum())
    )
    before = topology.wiring.link_bandwidth_Bps.sum()
    after = damaged(topology, ["link:leaf0-spine0:3"]).wiring.link_bandwidth_Bps.sum()
    assert before - after == pytest.approx(2 * 3 * 50e9)


def test_a_few_ranks_of_a_huge_machine() -> None:
    row = collsim.simulate("frontier", "all_reduce", "1M", ranks=16, algo="ring", profile="ideal").rows[0]
    assert row.time_s >= row.lower_bound_s > 0


def test_switches_of_nodes_reduce_where_every_node_has_two_gpus():
    """NVLS of nodes on InfiniBand: GPUs 0 to 7 are on the first node, 8 to 15 on the second."""
    topology = load_topology("hgx_h100", {"scale_out.nodes": "2"})
    for gpus, reduces in ((range(16), "NVLS"), ([0, 1, 8, 9], "NVLS"), ([0, 8], None), ([0, 1, 8], None)):
        assert build_fabric(topology, gpus).node_in_network == reduces
