"""Failures of clusters: what each should cost on bare wires by hand, and laws that hold whatever fails."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import collsim
from collsim.core.errors import NoRouteError
from collsim.fabric.fabric import build_fabric
from collsim.fabric.routing import find_routes
from collsim.library import system_of
from collsim.topology import Topology, load_topology
from collsim.topology.failures.degrade import damaged

SIZE = 2**26
NIC_BPS = 50e9


def cluster_of(node: str = "hgx_h100", **figures: Any) -> Topology:
    return load_topology(node, scale_out={"port_rate": "400 Gb/s", **figures})


TREE = cluster_of(nodes=8, fabric="fat_tree", radix=16, routing="spray")
"""Every node on a leaf of its own, 8 cables up to 4 spines: all traffic between nodes crosses spines and fills them."""
RAIL = cluster_of(nodes=16, fabric="rail", radix=16, routing="spray")
"""Two blocks of eight nodes with a leaf for each rail, 8 spines with a cable to every leaf."""
RAIL_RANKS = [*range(16), *range(64, 80)]
"""Two nodes of each block."""
MESH = cluster_of("mi300x_ubb8", nodes=4, fabric="fat_tree", radix=16, routing="spray")
THREE_TIERS = cluster_of(nodes=4, fabric="fat_tree", radix=8, tiers=3, routing="spray")
"""Two nodes in each of two groups; four cores, a cable from each of them to every spine."""
ACROSS = [8 * node + gpu for node in (0, 2, 1, 3) for gpu in range(8)]
"""The groups in turn: all messages from a node to the next cross cores, and fill them."""
DRAGONFLY = cluster_of(nodes=12, gpus_per_node=1, fabric="dragonfly", radix=16, global_links=1, routing="spray")
"""Three groups of four nodes, one optical cable between any two."""

OPS = (("all_reduce", "ring"), ("all_reduce", "hierarchical"), ("all_to_all", "direct"))


def rows_of(topology: Topology, **what: Any) -> list[Any]:
    """Return the rows of `OPS`, each with the machine in order beside it."""
    return [
        collsim.simulate(topology, op, SIZE, algo=algo, profile="ideal", **what).rows[0] for op, algo in OPS
    ]  # fmt: skip


def hierarchical(nodes: int, out_Bps: float, *, node: float = 1.0, network: float = 1.0) -> float:
    """Return how many times longer it takes if the parts in a node and between nodes take *node* and *network* times.

    The parts follow each other: 7 of 8 slices out of each GPU and back, a ring of each slice over the nodes between.
    """
    inside = 2 * SIZE * 7 / 8 / out_Bps
    outside = 2 * (nodes - 1) / nodes * SIZE / 8 / NIC_BPS
    return (inside * node + outside * network) / (inside + outside)


NVLINK_BPS, XGMI_BPS = 450e9, 7 * 64e9


@pytest.mark.parametrize("routing", ["spray", "ecmp"])
def test_a_gpu_that_failed_leaves_rails_in_step(routing: str) -> None:
    rail = cluster_of(nodes=16, fabric="rail", radix=16, routing=routing)
    row = collsim.simulate(
        rail, "all_reduce", SIZE, algo="ring", profile="ideal", fail="gpu:node0/1", rank_list=[0, *RAIL_RANKS[2:]]
    ).rows[0]
    assert row.slowdown == pytest.approx(1)  # seven rings on the seven rails that all nodes have ranks on


def test_a_cut_rank_is_named() -> None:
    with pytest.raises(NoRouteError) as caught:
        collsim.simulate(TREE, "all_reduce", SIZE, profile="ideal", fail=["nic:n3.nic*", "gpu:n3.gpu[1-7]"])
    assert caught.value.exit_code == 3
    assert "n3.gpu0" in str(caught.value)
    assert "cut off from each other by the loss of nic n3.nic0" in str(caught.value)


def test_ranks_that_only_gpus_of_other_nodes_could_join_are_named() -> None:
    """GPUs 0 and 2 of a node without rails in common, whose own PCIe switch is gone: no third node passes it on."""
    planes = cluster_of("pcie_gen5_8gpu", nodes=2, fabric="rail_only")
    with pytest.raises(NoRouteError, match=r"n0.gpu0 and n0.gpu2\n.*1 switch failed: n0.pcie0") as caught:
        collsim.simulate(planes, "all_reduce", SIZE, profile="ideal", fail="switch:n0.pcie0")
    assert caught.value.exit_code == 3


def test_planes_that_nothing_joins_are_left_by_a_relay_of_the_receiver() -> None:
    """Without spines a GPU on rail 1 is reached on any rail that the sender has, and over the links of its node."""
    planes = cluster_of(nodes=4, fabric="rail_only", radix=16, routing="spray")
    rows = [row for row, (_, algo) in zip(rows_of(planes, fail="nic:node0/1"), OPS, strict=True) if algo != "ring"]
    assert [row.slowdown for row in rows] == pytest.approx(
        [hierarchical(4, NVLINK_BPS, network=8 / 7), 8 / 7], rel=1e-5
    )
    fabric = build_fabric(damaged(planes, "nic:node0/1"))
    routes = find_routes(fabric)
    span = slice(int(routes.ptr[1 * 32 + 9]), int(routes.ptr[1 * 32 + 10]))
    names = {fabric.wiring.link_name(int(link)) for link in routes.link[span]}
    assert "n1.nic0->n1.gpu0" in names
    assert not any("leaf1" in name for name in names)


def test_one_of_two_adapters() -> None:
    two = load_topology("hgx_h100", ["nic.per_gpu=2"], scale_out={"nodes": 2, "routing": "spray"})
    result = collsim.simulate(two, "all_to_all", SIZE, algo="direct", profile="ideal", fail="nic:node0/2")
    assert result.rows[0].slowdown == pytest.approx(2, rel=1e-5)
    assert result.topology["damage"]["effects"] == ["n0.gpu1 keeps 1 of 2 adapters"]


@pytest.mark.parametrize("per_gpu", [1, 2])
@pytest.mark.parametrize("gone", range(1, 9))
@pytest.mark.parametrize("failed", [0, 1, 6])
def test_a_node_is_alone_when_its_last_adapter_is_gone(per_gpu: int, gone: int, failed: int) -> None:
    """Node 1 loses all adapters of its first GPUs, and its last GPUs with theirs; others serve while there is one."""
    two = load_topology("hgx_h100", [f"nic.per_gpu={per_gpu}"], scale_out={"nodes": 2, "fabric": "fat_tree"})
    names = [f"n1.gpu{gpu}" for gpu in range(min(gone, 8 - failed))]
    lost = [f"nic:n1.nic{nic}" for nic in range(gone * per_gpu)]
    damage = damaged(two, [*lost, *(f"gpu:n1.gpu{gpu}" for gpu in range(8 - failed, 8))]).damage
    assert damage
    then = "messages go through those of other GPUs of the node" if gone < 8 - failed else "node is alone"
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    has = "has no adapter: its" if len(names) == 1 else "have no adapter: their"
    assert [each for each in damage.effects if "adapter" in each] == [f"{listed} {has} {then}"]


def test_a_gpu_without_links_uses_the_network() -> None:
    fabric = build_fabric(damaged(RAIL, "link:n0.gpu3-n0.nvsw*"), range(16))
    routes = find_routes(fabric)
    names = [fabric.wiring.link_name(int(link)) for link in routes.link[routes.ptr[3] : routes.ptr[4]]]
    assert {"n0.gpu0->n0.nic0", "n0.nic3->n0.gpu3"} <= set(names), "GPU 0 to GPU 3 of one node"


CLUSTERS = {
    "rail": (cluster_of(nodes=9, fabric="rail", radix=16, gpus_per_node=4), "spine:0"),
    "rail_only": (cluster_of(nodes=4, fabric="rail_only", radix=16), "link:n2.nic3-leaf3"),
    "fat_tree": (cluster_of(nodes=4, fabric="fat_tree", radix=16), "link:leaf1-spine1:3"),
    "three tiers": (THREE_TIERS, "link:spine1-core1"),
    "dragonfly": (DRAGONFLY, ["link:leaf0-leaf8", "link:leaf16-leaf17"]),
    "mesh": (cluster_of("mi250x_node", nodes=4, fabric="fat_tree", radix=16), "link:n1.gpu0-n1.gpu6"),
}


@pytest.mark.parametrize("routing", ["spray", "ecmp"])
@pytest.mark.parametrize(("topology", "fail"), CLUSTERS.values(), ids=CLUSTERS)
def test_every_message_arrives_whole_over_what_is_left(topology: Topology, fail: Any, routing: str) -> None:
    fails = [fail] if isinstance(fail, str) else fail
    if len(fails) == 1:
        fails = [*fails, "nic:node0/1", "gpu:node1/2", "switch:n2.nvsw1"][: 4 if "nvsw" in str(topology.graph) else 3]
    if topology.cluster.spec.routing != routing:  # type: ignore[union-attr]
        spec = topology.cluster.spec  # type: ignore[union-attr]
        topology = cluster_of(
            topology.name, nodes=spec.nodes, fabric=spec.fabric, radix=spec.radix, gpus_per_node=spec.gpus_per_node,
            routing=routing, tiers=spec.tiers, global_links=spec.global_links,
        )  # fmt: skip
    fabric = build_fabric(damaged(topology, fails))
    routes, n = find_routes(fabric), fabric.n_ranks
    for src in range(n):
        for dst in range(n):
            if src != dst:
                span = slice(int(routes.ptr[src * n + dst]), int(routes.ptr[src * n + dst + 1]))
                net = np.zeros(fabric.wiring.n_nodes)
                np.add.at(net, fabric.wiring.link_src[routes.link[span]], routes.weight[span])
                np.add.at(net, fabric.wiring.link_dst[routes.link[span]], -routes.weight[span])
                net[fabric.rank_node[[src, dst]]] -= [1, -1]
                assert abs(net).max() < 1e-12


SPARED = ["nic:node5/1", "leaf:9", "gpu:node9/3", "switch:n3.nvsw2", "link:n7.gpu0-n7.nvsw1"]
"""What two nodes of one block of `RAIL` do not use."""


@pytest.mark.parametrize("routing", ["spray", "ecmp"])
@pytest.mark.parametrize("algo", ["ring", "nvls_tree", "hierarchical", "auto"])
def test_what_fails_elsewhere_changes_nothing(routing: str, algo: str) -> None:
    rail = cluster_of(nodes=16, fabric="rail", radix=16, routing=routing)
    asked: dict[str, Any] = {"algo": algo, "library": "nccl-2.28", "ranks": 16}
    alone = collsim.simulate(rail, "all_reduce", SIZE, **asked).rows[0]
    row = collsim.simulate(rail, "all_reduce", SIZE, fail=SPARED, **asked).rows[0]
    assert (row.label, row.time_s, row.slowdown) == (alone.label, alone.time_s, 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hashes_that_lead_elsewhere_stay(seed: int) -> None:
    tree = cluster_of(nodes=4, fabric="fat_tree", radix=16, routing="ecmp", hash_seed=seed)
    asked: dict[str, Any] = {"algo": "ring", "profile": "ideal", "rank_list": [*range(8), *range(16, 24)]}
    fails = ["link:leaf1-spine0:2", "leaf:3", "nic:node1/0", "gpu:n1.gpu[1-6]"]
    row = collsim.simulate(tree, "all_reduce", SIZE, fail=fails, **asked).rows[0]
    assert row.slowdown == 1


LOSSES = [
    ["nic:node0/1"],
    ["nic:node0/1", "nic:node1/2", "nic:node1/3"],
    ["link:leaf0-spine*:1"],
    ["link:leaf1-spine1"],
    ["link!:spine0->leaf2"],
    ["spine:1", "link:n0.gpu0-n0.nvsw0"],
    ["switch:n2.nvsw3", "link:leaf3-spine0:2"],
]


@pytest.mark.parametrize("fails", LOSSES, ids=str)
def test_no_loss_makes_sprayed_messages_faster(fails: list[str]) -> None:
    tree = cluster_of(nodes=4, fabric="fat_tree", radix=16, routing="spray")
    assert all(row.slowdown > 1 - 1e-9 for row in rows_of(tree, fail=fails))


HASHED = cluster_of(nodes=4, fabric="fat_tree", radix=16, routing="ecmp")
SEEDS = range(1, 101)


@cache
def most_flows(fail: str | None) -> float:
    """Return the flows on the busiest cable when every rank sends to that of the next node, in the mean over seeds."""
    fabric = build_fabric(HASHED if fail is None else damaged(HASHED, fail))
    routes, most = find_routes(fabric), []
    for seed in SEEDS:
        drawn = find_routes(fabric.with_hash_seed(seed), routes.ways)
        pairs = [src * 32 + (src + 8) % 32 for src in range(32)]
        links = [drawn.link[drawn.ptr[pair] : drawn.ptr[pair + 1]] for pair in pairs]
        most.append(np.bincount(np.concatenate(links)).max())
    return float(np.mean(most))


@pytest.mark.parametrize("fail", ["spine:0", "link:leaf0-spine*:2"])
def test_no_loss_makes_hashed_messages_faster_in_the_mean(fail: str) -> None:
    """Eight flows of each leaf on eight cables, or on four."""
    assert most_flows(fail) > most_flows(None) * 1.05


def test_a_hashed_ring_waits_for_the_busiest_cable_that_is_left() -> None:
    slowdowns = [
        collsim.simulate(
            cluster_of(nodes=4, fabric="fat_tree", radix=16, routing="ecmp", hash_seed=seed),
            "all_reduce", SIZE, algo="ring", profile="ideal", fail="spine:0",
        ).rows[0].slowdown
        for seed in range(1, 5)
    ]  # fmt: skip
    assert np.mean(slowdowns) > 1
    assert len(set(slowdowns)) > 1, "another seed, other cables"


def test_the_library_sees_the_poorest_node_in_use() -> None:
    broken = damaged(RAIL, "switch:n1.nvsw0")
    assert system_of(RAIL, range(16)).links_per_gpu == 18
    assert [system_of(broken, ranks).links_per_gpu for ranks in (range(16), [*range(8), *range(16, 24)])] == [13, 18]
    assert [system_of(broken, ranks).nvls for ranks in (range(16), [*range(8), *range(16, 24)])] == [False, True]
    row = collsim.simulate(RAIL, "all_reduce", SIZE, fail="switch:n1.nvsw0", ranks=16, library="nccl-2.28").rows[0]
    assert row.healthy_algo == "nvls_tree/Simple" != row.label
