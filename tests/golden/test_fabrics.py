"""Counts of fabrics against published reference designs; each number's arithmetic stands beside it."""

import pytest

from collsim.core.errors import SpecError
from collsim.topology import describe, load_topology, plan_topology


def plan(node, **scale_out):
    return plan_topology(node, scale_out=scale_out)[2]


@pytest.mark.parametrize(
    ("nodes", "leaves", "spines", "cores"),
    [
        (64, 16, 8, 0),
        (128, 32, 16, 0),
        (256, 64, 32, 0),
        (512, 128, 128, 64),
        (1024, 256, 256, 128),
        (2048, 512, 512, 256),
    ],
)
def test_dgx_b200_superpod(nodes, leaves, spines, cores):
    """NVIDIA DGX SuperPOD reference architecture, DGX B200: units of 32 nodes, 8 rails, switches of 64 ports."""
    found = plan("hgx_b200", nodes=nodes, fabric="rail", network="infiniband")
    assert (found.leaves, found.spines, found.cores) == (leaves, spines, cores)
    assert found.block_nodes == 32
    ports = nodes * 8
    assert found.cables == {"nic_leaf": ports, "leaf_spine": ports} | ({"spine_core": ports} if cores else {})


@pytest.mark.parametrize(("network", "gpus"), [("infiniband", 64), ("spectrum_x", 128), ("roce", 128)])
def test_one_switch_of_400g(network, gpus):
    """64 GPUs on one Quantum-2 (64 x 400), 128 on one 51.2T switch (51.2 / 0.4)."""
    found = plan("hgx_h100", nodes=gpus // 8, fabric="single_switch", network=network)
    assert (found.switches, found.cables) == (1, {"nic_leaf": gpus})
    with pytest.raises(SpecError, match=rf"at most {gpus // 8} nodes fit \({gpus} GPUs\)"):
        plan("hgx_h100", nodes=gpus // 8 + 1, fabric="single_switch", network=network)


@pytest.mark.parametrize("fabric", ["rail", "fat_tree"])
@pytest.mark.parametrize("radix", [64, 128])
@pytest.mark.parametrize("tiers", [2, 3])
def test_full_bisection_tree(fabric, radix, tiers):
    """k^2/2 ports with two tiers and k^3/4 with three: 2048 and 65536 for 64, 8192 and 524288 for 128."""
    ports = radix**2 // 2 if tiers == 2 else radix**3 // 4
    figures = {"fabric": fabric, "radix": radix, "port_rate": "400 Gb/s", "tiers": tiers}
    found = plan("hgx_h100", nodes=ports // 8, **figures)
    assert found.tiers == tiers
    assert found.leaves == ports // (radix // 2)
    assert found.cables["leaf_spine"] == ports
    with pytest.raises(SpecError, match=f"at most {ports // 8:,} nodes fit"):
        plan("hgx_h100", nodes=ports // 8 + 1, **figures)


def test_more_than_100k_gpus_on_three_tiers():
    found = plan("hgx_h100", nodes=16_384, network="spectrum_x")  # 131,072 GPUs
    assert (found.tiers, found.leaves, found.spines, found.cores) == (3, 2048, 2048, 1024)


def test_amd_reference_of_2048_gpus():
    """About 61 switches: 40 leaves with 51.2 nodes on each rail's, 2048 x 1.16 / 128 = 18.6 spines or a few more."""
    found = load_topology("mi355x_pollara").cluster.plan
    assert found.leaves == 40
    assert 59 <= found.switches <= 63
    assert found.leaf_up / found.leaf_ports == pytest.approx(1.16, abs=0.02)


def test_slingshot_dragonfly_limits():
    """64 ports are 16 + 31 + 17: 32 switches in a group, 32 x 17 + 1 = 545 groups of 512 endpoints."""
    most = 545 * 512 // 4
    found = plan("alps", nodes=most)
    assert (found.groups, found.leaves, found.global_links) == (545, 545 * 32, 1)
    with pytest.raises(SpecError, match=f"at most {most:,} nodes fit"):
        plan("alps", nodes=most + 1)


def test_frontier():
    """74 cabinets of 32 switches; 4 cables between any two groups carry 270 TB/s (OLCF)."""
    node, spec, found = plan_topology("frontier")
    assert node.n_gpus == 8
    assert (found.groups, found.leaves, found.local_links) == (74, 2368, 1)
    assert found.cables["global"] == 74 * 73 // 2 * 4
    assert found.cables["global"] * spec.port_rate_Bps == pytest.approx(270e12, rel=1e-3)


def test_rail_only_saves_the_spines():
    """arXiv 2307.12169: without traffic across rails each needs switches of its own only; 64 nodes fit on 8 of them."""
    alone = plan("hgx_h100", nodes=64, fabric="rail_only", network="infiniband")
    joined = plan("hgx_h100", nodes=64, fabric="rail", network="infiniband")
    assert (alone.switches, joined.switches) == (8, 24)
    # beyond one switch every rail is a tree of its own, with k^2/2 ports
    assert plan("hgx_h100", nodes=2048, fabric="rail_only", network="infiniband").planes == 8
    with pytest.raises(SpecError, match="at most 2,048 nodes"):
        plan("hgx_h100", nodes=2049, fabric="rail_only", network="infiniband", tiers=2)


@pytest.mark.parametrize(
    ("name", "gpus", "per_gpu_GBps"),
    [
        ("h100_rail", 512, 50),
        ("gb200_racks", 576, 50),
        ("mi355x_rack128", 128, 50),
        ("mi355x_pollara", 2048, 50),
        ("mi325x_thor2", 256, 50),
        ("polaris", 2240, 12.5),
        ("alps", 10_752, 25),
        ("frontier", 75_776, 12.5),
    ],
)
def test_shipped_clusters(name, gpus, per_gpu_GBps):
    shown = describe(load_topology(name))
    assert shown["ranks"] == gpus
    assert shown["per_gpu_scale_out_Bps"] == per_gpu_GBps * 1e9
    assert shown["connected"]
