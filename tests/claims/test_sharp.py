"""Claims on all-reduce over InfiniBand with and without SHARP; SemiAnalysis on MI300X against H100."""

from itertools import pairwise

import pytest

import collsim
from collsim.topology import load_topology
from collsim.topology.cluster.links import FIBRE_S_PER_M

ON = {"NCCL_COLLNET_ENABLE": "1"}
IN_NETWORK = {"collnet_direct", "collnet_chain", "nvls_sharp"}
LEAST_FLAT = 0.05
"""Times within this share of each other count as constant."""


def h100(nodes):
    return load_topology("hgx_h100", scale_out={"nodes": nodes, "network": "infiniband"})


def rows(topology, size, **options):
    return collsim.simulate(topology, "all_reduce", size, **options).rows


def all_reduce(nodes, size, **options):
    (found,) = rows(h100(nodes), size, **options)
    return found


def test_C020_sharp_is_off_by_default():
    """Quantum-2 could add, but the library of the default run does not ask it to; the variable changes that."""
    topology = h100(4)
    assert topology.cluster.spec.in_network_reduction == "SHARP"
    off, on = (rows(topology, ["1M", "64M", "1G"], library="nccl-2.28", environment=env) for env in ({}, ON))
    assert not {row.algo for row in off} & IN_NETWORK
    assert {row.algo for row in on} <= IN_NETWORK
    assert all(with_it.lower_bound_s < without.lower_bound_s for with_it, without in zip(on, off, strict=True))
    assert all(with_it.time_s < 0.9 * without.time_s for with_it, without in zip(on[1:], off[1:], strict=True))


FALL = {
    # GB/s on 32 and on 256 GPUs
    "16M": (111, 62),
    "64M": (220, 161),
    "256M": (311, 277),
}


@pytest.mark.parametrize("size", FALL)
def test_C021_without_sharp_speed_falls_with_the_logarithm(size):
    """Every doubling from 32 to 256 GPUs costs nearly the same, 78 to 89 us, which matters less for long messages."""
    found = [all_reduce(nodes, size, library="nccl-2.28") for nodes in (4, 8, 16, 32)]
    assert not {row.algo for row in found} & IN_NETWORK
    rates = [row.busbw_Bps / 1e9 for row in found]
    assert rates == sorted(set(rates), reverse=True)
    assert (rates[0], rates[-1]) == pytest.approx(FALL[size], rel=0.05)
    steps_s = [after.time_s - before.time_s for before, after in pairwise(found)]
    assert max(steps_s) < 1.25 * min(steps_s)  # a straight line over log2(n); linear in n, the last were 4 of the first
    assert steps_s == pytest.approx([83e-6] * 3, abs=7e-6)


def test_C021_at_1_gib_it_hardly_falls():
    """The trees hide most of what a doubling costs."""
    rates = [all_reduce(nodes, "1G", library="nccl-2.28").busbw_Bps / 1e9 for nodes in (4, 8, 16, 32)]
    assert rates == pytest.approx([346, 347, 345, 341], rel=0.01)


def test_C022_C023_with_sharp_time_does_not_depend_on_the_number():
    """From 32 GPUs on one switch to the 1,024 on which it was observed, for small and large messages."""
    few, more, most = (rows(h100(nodes), [8192, "64M"], algo="collnet_direct") for nodes in (4, 16, 128))
    assert [found[0].ranks for found in (few, more, most)] == [32, 128, 1024]
    for least, middle, longest in zip(few, more, most, strict=True):
        assert least.time_s <= middle.time_s <= longest.time_s == pytest.approx(least.time_s, rel=LEAST_FLAT)
    spec = h100(128).cluster.spec
    level_s = 2 * (spec.switch_latency_s + spec.link_latency_s + FIBRE_S_PER_M * spec.leaf_cable_m)
    assert most[0].time_s - few[0].time_s == pytest.approx(level_s, rel=1e-5)  # spines above the leaves, up and down


def test_C022_without_sharp_small_messages_take_longer_with_every_node():
    """Trees over nodes grow with log2 of their number, rings linearly."""
    nodes = (2, 4, 8, 16, 32)
    tree = [all_reduce(n, 8192, algo="tree", proto="LL").time_s for n in nodes]
    steps_s = [after - before for before, after in pairwise(tree)]
    assert steps_s == pytest.approx([steps_s[0]] * len(steps_s), rel=0.01)
    ring = [all_reduce(n, 8192, algo="ring", proto="LL").time_s for n in nodes[:4]]
    steps_s = [after - before for before, after in pairwise(ring)]
    assert steps_s == pytest.approx([steps_s[0] * 2**i for i in range(len(steps_s))], rel=0.02)


def test_C025_sharp_is_fastest_at_32_gpus():
    """Default constants: SHARP first from 16 MiB to 4 GiB; RoCE last but at 1 GiB, level with InfiniBand."""
    sizes = ["16M", "64M", "256M", "1G", "4G"]
    roce = load_topology("mi300x_ubb8", scale_out={"nodes": 4, "network": "roce"})
    amd = rows(roce, sizes, library="rccl-2.28", profile="default")
    plain, sharp = (rows(h100(4), sizes, library="nccl-2.28", profile="default", environment=env) for env in ({}, ON))
    assert {row.algo for row in sharp} <= IN_NETWORK
    for slow, middle, fast in zip(amd, plain, sharp, strict=True):
        assert fast.busbw_Bps > 1.05 * max(slow.busbw_Bps, middle.busbw_Bps)
    behind = [slow.busbw_Bps / middle.busbw_Bps for slow, middle in zip(amd, plain, strict=True)]
    assert behind == pytest.approx([0.82, 0.66, 0.70, 1.03, 0.99], abs=0.05)


def test_C025_with_fitted_constants_the_order_holds():
    """SHARP first, then InfiniBand, then RoCE; at 16 MiB all three are within 1.3, and the last two change places."""
    roce = load_topology("mi300x_ubb8", scale_out={"nodes": 4, "network": "roce"})
    amd = rows(roce, ["16M", "64M", "256M"], library="rccl-2.28")
    plain, sharp = (rows(h100(4), ["16M", "64M", "256M"], library="nccl-2.28", environment=env) for env in ({}, ON))
    rates = [[entry.busbw_Bps / 1e9 for entry in found] for found in zip(amd, plain, sharp, strict=True)]
    assert rates[0][2] == max(rates[0])
    assert max(rates[0]) / min(rates[0]) == pytest.approx(1.28, rel=0.02)
    assert rates[1] == sorted(rates[1])
    assert rates[2] == sorted(rates[2])
