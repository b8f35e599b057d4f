"""Reduction trees of the network: their shape, what they carry, how long they take, who gets none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collsim
from collsim.collectives import algorithm
from collsim.core.errors import NoRouteError, UnsupportedError
from collsim.core.operations import operation
from collsim.fabric.fabric import Fabric, build_fabric
from collsim.fabric.reduction_trees import GroupTrees, TreePorts, plant
from collsim.library import load_profile
from collsim.simulation.request.request import ask
from collsim.simulation.runs import LoweredRun, prepare
from collsim.simulation.selection import request_of
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology, load_topology
from collsim.topology.cluster.links import FIBRE_S_PER_M
from collsim.topology.failures.degrade import damaged

IDEAL = load_profile("ideal")
MIB = 2**20


def cluster(nodes: int, name: str = "hgx_h100", **figures: Any) -> Topology:
    return load_topology(name, scale_out={"nodes": nodes, **figures})


def rails(fabric: Fabric, per_node: int) -> list[tuple[int, ...]]:
    return [tuple(range(local, fabric.n_ranks, per_node)) for local in range(per_node)]


def ends(fabric: Fabric, links: list[int]) -> list[tuple[int, int]]:
    wiring = fabric.wiring
    return list(zip(wiring.link_src[links].tolist(), wiring.link_dst[links].tolist(), strict=True))


def timed(run: LoweredRun, op: str, algo: str, size: int, **more: Any) -> Any:
    request = request_of(operation(op), size, run, ask(op, size, **more))
    return time_schedule(algorithm(op, algo).build(request), run)


SHAPES = [
    ("rail", {"nodes": 5}, 1),
    ("rail", {"nodes": 9, "radix": 16}, 3),  # two tiers
    ("fat_tree", {"nodes": 6, "radix": 8, "gpus_per_node": 2}, 5),  # three tiers
    ("rail_only", {"nodes": 20, "radix": 16}, 3),
    ("fat_tree", {"nodes": 9, "radix": 16, "routing": "ecmp", "gpus_per_node": 4}, 3),
    ("single_switch", {"nodes": 5}, 1),
    ("dragonfly", {"nodes": 12, "radix": 16, "gpus_per_node": 4}, None),
]


@pytest.mark.parametrize(("shape", "figures", "switches"), SHAPES)
def test_one_copy_goes_up_and_one_down_each_link(shape: str, figures: dict[str, Any], switches: int | None) -> None:
    topology = cluster(fabric=shape, **figures)
    fabric, ports = build_fabric(topology), TreePorts.free(build_fabric(topology))
    taken = np.zeros(fabric.n_links)
    for rail in rails(fabric, topology.cluster.node.n_gpus):
        links, shares, _ = plant(fabric, rail, ports).path(None, None)
        assert set(shares) == {1.0}
        assert len(links) == len(set(links))
        pairs = ends(fabric, links)
        half = len(links) // 2
        assert sorted(pairs[half:]) == sorted((dst, src) for src, dst in pairs[:half])
        above = dict(pairs[:half])
        assert len(above) == half  # every node has one way up
        roots = set(above.values()) - set(above)
        assert len(roots) == 1
        assert {int(fabric.rank_node[rank]) for rank in rail} == set(above) - set(above.values())
        longest = max(len(climb(above, int(fabric.rank_node[rank]))) for rank in rail)
        assert switches is None or 2 * (longest - 1) - 1 == switches
        np.add.at(taken, links, 1)
    assert (taken <= fabric.wiring.link_count).all()  # one tree on each cable


def climb(above: dict[int, int], node: int) -> list[int]:
    """Return the nodes on the way from *node* to the root, without the first."""
    way = []
    while node in above:
        node = above[node]
        way.append(node)
    return way


@pytest.mark.parametrize(("shape", "figures", "switches"), [case for case in SHAPES if case[2]])
def test_levels_add_latency(shape: str, figures: dict[str, Any], switches: int) -> None:
    topology = cluster(fabric=shape, **figures)
    fabric, spec = build_fabric(topology), topology.cluster.spec
    cables = (
        [spec.leaf_cable_m] * 2 * (switches > 1) + [spec.core_cable_m] * 2 * (switches > 3) + [spec.nic_cable_m] * 2
    )
    expected_s = 2 * (spec.bus_latency_s + spec.nic_latency_s) + switches * spec.switch_latency_s
    expected_s += sum(spec.link_latency_s + FIBRE_S_PER_M * metres for metres in cables)
    rail = rails(fabric, topology.cluster.node.n_gpus)[0]
    trees = plant(fabric, rail, TreePorts.free(fabric))
    assert trees.path(None, None)[2] == pytest.approx(expected_s, rel=1e-9)
    assert trees.path(rail[0], None)[2] == pytest.approx(expected_s, rel=1e-9)


def test_sums_for_one_and_copies_of_one() -> None:
    topology = cluster(9, radix=16)
    fabric = build_fabric(topology)
    rail = rails(fabric, 8)[0]
    trees = plant(fabric, rail, TreePorts.free(fabric))
    whole = {direction: set(trees.path(*way)[0]) for direction, way in WAYS.items()}
    assert whole["sum"] | whole["copies"] == whole["both"]
    leaves = len({int(topology.cluster.nic_leaf[8 * node]) for node in range(9)})
    assert len(whole["both"]) == 2 * (2 * 9 + leaves)
    assert len(whole["sum"]) == len(whole["copies"]) == 2 * 9 + leaves + 3  # all of one direction, one way of the other


WAYS: dict[str, tuple[int | None, int | None]] = {"both": (None, None), "sum": (None, 8), "copies": (8, None)}


def tier_bytes(topology: Topology, link_bytes: np.ndarray) -> dict[str, np.ndarray]:
    """Return the bytes on each link of each tier: out of GPUs into adapters, into leaves, into spines, and back."""
    wiring, found = topology.wiring, topology.cluster
    kind = np.searchsorted(
        [wiring.n_gpus, found.first_nic, found.first_leaf, found.first_spine], range(wiring.n_nodes), "right"
    )
    src, dst = kind[wiring.link_src], kind[wiring.link_dst]
    tiers = {"bus": (0, 2), "adapter": (2, 3), "leaf": (3, 4)}
    ups = {f"{name} up": link_bytes[(src == low) & (dst == high)] for name, (low, high) in tiers.items()}
    return ups | {f"{name} down": link_bytes[(src == high) & (dst == low)] for name, (low, high) in tiers.items()}


@pytest.mark.parametrize("algo", ["collnet_direct", "collnet_chain", "nvls_sharp"])
@pytest.mark.parametrize("nodes", [2, 9])
def test_bytes_of_each_tier(algo: str, nodes: int) -> None:
    """S / g up and down each adapter, and once more between each leaf and the root, however many nodes there are."""
    topology = cluster(nodes, radix=16, tiers=2)
    run, size = prepare(topology, IDEAL), 8 * MIB
    timing = timed(run, "all_reduce", algo, size, channels=8)
    leaves = topology.cluster.plan.blocks
    assert leaves == (1 if nodes == 2 else 2)
    for name, carried in tier_bytes(topology, timing.link_bytes).items():
        busy = carried[carried > 0]
        assert np.allclose(busy, size / 8, rtol=1e-12), name
        assert len(busy) == (8 * leaves * (leaves > 1) if name.startswith("leaf") else 8 * nodes), name


@pytest.mark.parametrize(("op", "whole"), [("reduce_scatter", "up"), ("all_gather", "down")])
def test_bytes_of_blocks(op: str, whole: str) -> None:
    """All blocks of a rail go one way, those of a single rank the other."""
    topology = cluster(9, radix=16)
    size = 72 * 2**17
    carried = tier_bytes(topology, timed(prepare(topology, IDEAL), op, "collnet_direct", size, channels=1).link_bytes)
    other = {"up": "down", "down": "up"}[whole]
    for name in ("bus", "adapter"):
        assert np.allclose(carried[f"{name} {whole}"], size / 8)
        assert np.allclose(carried[f"{name} {other}"], size / 72)
    assert carried[f"leaf {whole}"].sum() == pytest.approx(8 * 2 * size / 8)
    assert carried[f"leaf {other}"].sum() == pytest.approx(size)  # every block on the one leaf of its owner


@pytest.mark.parametrize("nodes", [2, 5, 9, 33])
def test_one_gpu_per_node_sends_its_bytes_once(nodes: int) -> None:
    topology = cluster(nodes, gpus_per_node=1, radix=16)
    row = collsim.simulate(topology, "all_reduce", "64M", algo="collnet_chain", profile="ideal").rows[0]
    assert row.time_s == pytest.approx(64 * MIB / 50e9, rel=1e-9)
    assert row.lower_bound_s == pytest.approx(row.time_s, rel=1e-9)
    assert row.bound.startswith(("egress", "ingress"))


def test_bounds_know_whether_the_network_adds() -> None:
    run = prepare(cluster(4), IDEAL)
    adds, sends = (timed(run, "all_reduce", algo, 64 * MIB).bound for algo in ("collnet_direct", "ring"))
    assert adds.time_s == pytest.approx(64 * MIB / 400e9, rel=1e-9)
    assert sends.time_s == pytest.approx(2 * 3 / 4 * 64 * MIB / 400e9, rel=1e-9)


def test_a_step_costs_what_the_profile_says() -> None:
    topology, profile = cluster(2, gpus_per_node=1), load_profile("default")
    row = collsim.simulate(topology, "all_reduce", 4, algo="collnet_chain", profile="default").rows[0]
    fabric = build_fabric(topology)
    way_s = plant(fabric, [0, 1], TreePorts.free(fabric)).path(None, None)[2]
    step = profile.network.protocol("Simple", "sharp")
    assert step is not None
    assert row.time_s == pytest.approx(profile.launch_s + step.message_overhead_s + way_s, rel=1e-3)


class TestLimits:
    def test_a_quantum_streams_one_tree(self) -> None:
        """Eight rails of DGX A100 on one switch are seven too many; on leaves of their own they have room."""
        with pytest.raises(NoRouteError, match=r"n0\.gpu1, n1\.gpu1 has no reduction tree: the switch of"):
            collsim.simulate(cluster(2, "dgx_a100"), "all_reduce", "1M", algo="collnet_direct", profile="ideal")
        rows = collsim.simulate(
            cluster(20, "dgx_a100"), "all_reduce", "1M", algo="collnet_direct", profile="ideal"
        ).rows
        assert rows[0].time_s > 0

    def test_a_port_has_one_tree(self) -> None:
        with pytest.raises(NoRouteError, match=r"n0\.gpu1, n1\.gpu1 has no reduction tree: the port of"):
            collsim.simulate(
                cluster(2, "polaris", network="infiniband", port_rate="400 Gb/s", radix=64),
                "all_reduce", "1M", algo="collnet_chain", profile="ideal",
            )  # fmt: skip

    def test_groups_share_the_ports_above_the_leaves(self) -> None:
        """Ten pairs of nodes, each over both blocks: more trees of a rail than cables to the spines."""
        groups = [[8 * a + i for a in (pair, pair + 10) for i in range(8)] for pair in range(10)]
        wide = {"op": "all_reduce", "size": "1M", "algo": "nvls_sharp", "profile": "ideal", "groups": groups}
        rows = collsim.simulate(cluster(20, radix=32), **wide).rows
        assert len({round(group.time_s, 12) for group in rows[0].group_times}) == 1
        with pytest.raises(NoRouteError, match="no switch reaches all of them over ports without a tree"):
            collsim.simulate(cluster(20, radix=16, oversubscription=4), **wide)

    def test_other_networks_say_so(self) -> None:
        for network in ("roce", "spectrum_x"):
            with pytest.raises(UnsupportedError, match="no switch between the nodes adds"):
                collsim.simulate(cluster(2, network=network), "all_reduce", "1M", algo="collnet_direct")
        slow = cluster(2, "dgx1_v100", network="infiniband")
        with pytest.raises(UnsupportedError, match="no switch between the nodes adds"):
            collsim.simulate(slow, "all_reduce", "1M", algo="collnet_chain", profile="ideal")


class TestFailures:
    def test_a_group_without_an_adapter(self) -> None:
        with pytest.raises(NoRouteError, match=r"n0\.gpu5, n1\.gpu5 has no reduction tree: no adapter joins n1\.gpu5"):
            collsim.simulate(cluster(2), "all_reduce", "1M", algo="collnet_direct", fail="nic:node1/5")

    def test_another_spine_takes_over(self) -> None:
        before = cluster(9, radix=16)
        after = damaged(before, ["spine:0"])
        used = []
        for topology in (before, after):
            fabric = build_fabric(topology)
            links = plant(fabric, rails(fabric, 8)[0], TreePorts.free(fabric)).path(None, None)[0]
            used.append({fabric.wiring.node_names[node] for pair in ends(fabric, links) for node in pair})
        assert "spine0" in used[0]
        assert not any(name == "spine0" for name in used[1])
        assert any(name.startswith("spine") for name in used[1])

    def test_no_spine_left(self) -> None:
        topology = damaged(cluster(9, radix=16), ["link:leaf0-spine*"])
        fabric = build_fabric(topology)
        with pytest.raises(NoRouteError, match="no switch reaches all of them"):
            plant(fabric, rails(fabric, 8)[0], TreePorts.free(fabric))

    def test_a_slow_adapter_slows_its_rail(self) -> None:
        one = cluster(4, gpus_per_node=1)
        row = collsim.simulate(
            one, "all_reduce", "64M", algo="collnet_chain", profile="ideal", degrade=["nic:node2/0=50%"]
        ).rows[0]
        assert row.slowdown == pytest.approx(2, rel=1e-9)


ON = {"NCCL_COLLNET_ENABLE": "1"}
SHARP = {"collnet_direct", "collnet_chain", "nvls_sharp"}


class TestOffByDefault:
    def algos(self, topology: Topology, **more: Any) -> tuple[list[str], tuple[str, ...]]:
        found = collsim.simulate(topology, "all_reduce", "64M", library="nccl-2.28", **more)
        return [row.algo for row in found.rows], found.warnings

    def test_the_library_takes_it_when_enabled(self) -> None:
        assert self.algos(cluster(4))[0] == ["nvls_tree"]
        assert self.algos(cluster(4), environment=ON)[0] == ["nvls_sharp"]
        for cannot in ({"dtype": "f8e4m3"}, {"redop": "prod"}):
            assert not set(self.algos(cluster(4), environment=ON, **cannot)[0]) & SHARP

    @pytest.mark.parametrize(
        ("figures", "fail", "why"),
        [
            ({"network": "roce"}, None, "SHARP is off: no switch between the nodes adds"),
            ({}, "nic:node0/5", "SHARP is off: the group of n0.gpu5, n1.gpu5"),
        ],
    )
    def test_without_trees_the_library_does_without(self, figures: dict[str, str], fail: str | None, why: str) -> None:
        algos, warnings = self.algos(cluster(4, **figures), environment=ON, fail=fail)
        assert algos == ["nvls_tree"]
        assert any(warning.startswith(why) for warning in warnings)

    def test_best_is_without_it_unless_enabled(self) -> None:
        off, on = (set(self.algos(cluster(2), algo="all", environment=environment)[0]) for environment in ({}, ON))
        assert not off & SHARP
        assert on - off == SHARP


@pytest.mark.parametrize(("nodes", "g"), [(2, 1), (3, 8), (5, 3)])
def test_no_law_breaks(nodes: int, g: int) -> None:
    """Every run checks conservation, capacities and its bound; here with all operations, odd nodes and the profile."""
    topology = cluster(nodes, gpus_per_node=g)
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        algos = ["collnet_direct", "nvls_sharp"] + ["collnet_chain"] * (op == "all_reduce")
        for profile in ("ideal", "hgx_h100"):
            for row in collsim.simulate(topology, op, ["4K", "16M"], algo=algos, profile=profile).rows:
                assert row.time_s >= row.lower_bound_s > 0


def test_adapters_of_a_gpu_share_its_bytes() -> None:
    topology = load_topology("hgx_h100", overrides=["nic.per_gpu=2"], scale_out={"nodes": 2, "gpus_per_node": 1})
    fabric = build_fabric(topology)
    trees: GroupTrees = plant(fabric, [0, 1], TreePorts.free(fabric))
    links, shares, _ = trees.path(None, None)
    assert len(trees.trees) == 2
    assert len(links) == 2 * 2 * 4
    assert set(shares) == {0.5}
