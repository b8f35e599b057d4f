"""On the bare wire (profile ideal) shipped systems reach the rates of their datasheets, by arithmetic."""

import numpy as np
import pytest

import collsim
from collsim.collectives import ScheduleRequest, algorithm, rings_for
from collsim.core.operations import operation
from collsim.library import load_profile
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_schedule
from collsim.topology import load_topology

GBPS = 1e9
EXACT = {"rel": 1e-9, "abs": 0}

# GB/s that one GPU sends another when nobody else does.
PAIR = {
    "mi300x_ubb8": 64.0,  # one xGMI link
    "mi355x_ubb8": 76.8,  # one xGMI link
    "hgx_h100": 450.0,  # all 18 NVLinks x 25, over 4 switches
    "hgx_b200": 900.0,  # 18 x 50
    "gb200_nvl72": 900.0,  # 18 x 50
    "mi400_ualoe72": 1800.0,  # 72 lanes x 25
}

# GB/s out of every GPU when all send to all; the busbw of an all-to-all counts only what leaves the GPU.
EGRESS = {
    "mi300x_ubb8": 448.0,  # 7 links x 64
    "mi355x_ubb8": 537.6,  # 7 links x 76.8
    "hgx_h100": 450.0,
    "hgx_b200": 900.0,
    "gb200_nvl72": 900.0,
    "mi400_ualoe72": 1800.0,
}


def ideal(topo, op, size="64M", **options):
    return collsim.simulate(topo, op, size, profile="ideal", **options).rows[0]


@pytest.mark.parametrize("topo", PAIR)
def test_two_ranks(topo):
    """send_recv moves S one way; an all-to-all of two moves S/2 each way, so algbw is twice the link, busbw just it."""
    pair = PAIR[topo] * GBPS
    one_way = ideal(topo, "send_recv", ranks=2)
    assert one_way.algbw_Bps == pytest.approx(pair, **EXACT)
    assert one_way.busbw_Bps == pytest.approx(pair, **EXACT)
    both_ways = ideal(topo, "all_to_all", ranks=2)
    assert both_ways.algbw_Bps == pytest.approx(2 * pair, **EXACT)
    assert both_ways.busbw_Bps == pytest.approx(pair, **EXACT)


@pytest.mark.parametrize("topo", EGRESS)
def test_all_to_all(topo):
    """A rank sends n - 1 of n blocks at its egress: busbw = (n-1)/n S / t = egress."""
    row = ideal(topo, "all_to_all", 72 * 2**20)
    assert row.ranks == (8 if topo in ("mi300x_ubb8", "mi355x_ubb8", "hgx_h100", "hgx_b200") else 72)
    assert row.busbw_Bps == pytest.approx(EGRESS[topo] * GBPS, **EXACT)
    assert row.efficiency == pytest.approx(1, **EXACT)
    assert row.bottleneck[0].utilisation == pytest.approx(1, **EXACT)


def test_helios_total_egress():
    """72 GPUs x 1.8 TB/s = 129.6 TB/s out of all GPUs together."""
    row = ideal("mi400_ualoe72", "all_to_all", 72 * 2**20)
    assert row.ranks * row.busbw_Bps == pytest.approx(129.6e12, **EXACT)


@pytest.mark.parametrize(("ranks", "busbw"), [(2, 64.0), (4, 192.0), (8, 448.0)])
def test_mi300x_all_reduce_by_all_pairs(ranks, busbw):
    """Every link carries S/n per phase: t = 2 S/n / 64, busbw = 2 (n-1)/n S / t = (n-1) x 64 GB/s."""
    row = ideal("mi300x_ubb8", "all_reduce", "64M", ranks=ranks, algo="all_pairs")
    assert row.busbw_Bps == pytest.approx(busbw * GBPS, **EXACT)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_mi300x_rings(op):
    """14 rings use every one of the 56 directed links twice; their channels fill all 7 links of a GPU: 7 x 64 GB/s."""
    size = 56 * 14 * 8 * 4 * 1024  # the same for every channel, ring and rank
    row = ideal("mi300x_ubb8", op, size, algo="ring")
    assert row.channels == 28
    assert row.busbw_Bps == pytest.approx(448 * GBPS, **EXACT)
    assert row.bottleneck_links == 56


@pytest.mark.parametrize("topo", ["mi300x_ubb8", "mi355x_ubb8"])
@pytest.mark.parametrize("n", range(2, 9))
def test_rings_load_every_link_of_a_mesh_alike(topo, n):
    """2 (n-1) S/n bytes leave each rank, over n - 1 links: 2 S/n on each."""
    run = prepare(load_topology(topo), load_profile("ideal"), range(n))
    rings = rings_for(run.fabric.peer_links())
    size = 2 * len(rings) * n * 4096
    request = ScheduleRequest(operation("all_reduce"), n, size, 4, channels=2 * len(rings), rings=rings)
    timing = time_schedule(algorithm("all_reduce", "ring").build(request), run)
    between = np.flatnonzero((run.fabric.wiring.link_src < n) & (run.fabric.wiring.link_dst < n))
    expected = np.zeros(run.fabric.n_links)
    expected[between] = 2 * size / n
    assert timing.link_bytes.tolist() == pytest.approx(expected.tolist(), **EXACT)
    rate = float(run.fabric.raw_capacity_Bps[0])
    assert timing.time_s == pytest.approx(2 * size / n / rate, **EXACT)


@pytest.mark.parametrize(
    ("topo", "busbw"), [("hgx_h100", 450.0), ("hgx_b200", 900.0), ("gb200_nvl72", 900.0), ("mi400_ualoe72", 1800.0)]
)
def test_a_ring_through_switches_fills_the_port(topo, busbw):
    """In every step every rank sends a chunk at its full egress: t = 2 (n-1) S/n / egress, busbw = egress."""
    ranks = load_topology(topo).n_gpus
    row = ideal(topo, "all_reduce", ranks * 8 * 2**16, algo="ring", channels=8)
    assert row.busbw_Bps == pytest.approx(busbw * GBPS, **EXACT)
