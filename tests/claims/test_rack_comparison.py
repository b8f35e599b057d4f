"""Claims that put MI355X beside racks and adapters of NVIDIA; SemiAnalysis, June 2025, and on MI300X against H100.

"18 times" is 900 over 50 GB/s, a link of NVLink over an adapter. Which operations wait for adapters decides how much of
it a collective sees; docs/rack_comparison.md has all of them in one table.
"""

from itertools import pairwise

import pytest

import collsim
from collsim.topology import load_topology

from .measures import EXACT, rounds_to, row, scale_out_GBps, uni_GBps

AMD, NVIDIA = "mi355x_rack128", "gb200_nvl72"
ONE_OF_EACH_SERVER = "AND 0x7"
LINKS = 900 / 50


def speedup(op, *, size="1G", ranks=72, profile="ideal", nvidia=NVIDIA, **asked):
    """Return how many times as fast as the rack of MI355X the other system is."""
    (found,) = collsim.compare([AMD, nvidia], op, size, ranks=ranks, profile=profile, **asked).rows
    return found.speedups[1]


def test_C031_800g_is_twice_400g():
    """ConnectX-8 of HGX B300 against Pollara 400 of MI355X: one flow between two nodes."""
    two = {topo: load_topology(topo, scale_out={"nodes": 2}) for topo in ("hgx_b300", "mi355x_ubb8")}
    assert "ConnectX-8" in two["hgx_b300"].labels["nic.model"]
    assert "Pollara 400" in two["mi355x_ubb8"].labels["nic.model"]

    def ratio(profile):
        asked = {"matrix": [[0, 2**30], [0, 0]], "rank_list": [0, 8], "algo": "direct", "profile": profile}
        slow, fast = (row(two[topo], "all_to_all_v", None, **asked).time_s for topo in ("mi355x_ubb8", "hgx_b300"))
        return slow / fast

    assert ratio("ideal") == pytest.approx(2, **EXACT)
    # InfiniBand carries 0.975 of the line rate, Ethernet 0.968
    assert ratio("default") == pytest.approx(2 * 0.975 / 0.968, rel=5e-3)


def test_C054_what_leaves_by_adapters_is_18_times_slower():
    """A ring round all servers waits for its slowest step; groups of one GPU per server have no others."""
    assert uni_GBps(NVIDIA) / scale_out_GBps(AMD) == pytest.approx(LINKS, **EXACT)
    assert speedup("send_recv", algo="neighbour") == pytest.approx(LINKS, **EXACT)
    for op, algo in (("all_to_all", "direct"), ("all_gather", "ring"), ("reduce_scatter", "ring")):
        assert speedup(op, split=ONE_OF_EACH_SERVER, algo=algo) == pytest.approx(LINKS, rel=1e-5), op


def test_C054_whole_racks_are_not_18_times_slower():
    """Rings enter and leave each server by all eight adapters at once: 8 x 50 against 900, and with NVLS 1588 busbw."""
    for op in ("all_gather", "reduce_scatter"):
        assert speedup(op, algo="ring") == pytest.approx(900 / 400, rel=1e-4), op
    ring, other, nvls = (
        row(topo, "all_reduce", ranks=72, algo=algo)
        for topo, algo in ((AMD, "ring"), (NVIDIA, "ring"), (NVIDIA, "nvls"))
    )
    assert ring.time_s / other.time_s == pytest.approx(900 / 400, rel=1e-4)
    assert ring.time_s / nvls.time_s == pytest.approx(1588 / 400, rel=1e-3)
    assert rounds_to(ring.time_s / nvls.time_s, "3.97")
    # inside servers, with no adapter at all, it is the ratio of the links: 900 / 537.6
    assert speedup("all_reduce", split="DIV 8", algo="ring") == pytest.approx(900 / 537.6, rel=1e-4)


def test_C054_hierarchical_all_reduce_of_the_whole_rack():
    """One level after the other: 7/8 inside, 2 x 8/9 of an eighth through the adapter, 7/8 inside again."""
    slow = row(AMD, "all_reduce", ranks=72, algo="hierarchical").time_s
    inside, between = 7 / 8 / 537.6e9, 2 * (8 / 9) / 8 / 50e9
    assert slow == pytest.approx(2**30 * (2 * inside + between), rel=1e-6)
    ring, nvls = (row(NVIDIA, "all_reduce", ranks=72, algo=algo).time_s for algo in ("ring", "nvls"))
    assert rounds_to(slow / ring, "3.5")
    assert rounds_to(slow / nvls, "6.2")


def test_C054_launches_and_protocols_make_it_less():
    """What the libraries do, at 1 MiB: no operation on the whole rack is 18 times slower, nor is any at 1 GiB.

    The ring of all_gather waits 71 times for a step at 1 MiB, in either rack: neither is the faster one then.
    """
    for size in ("1M", "1G"):
        for op in ("all_to_all", "all_reduce", "all_gather"):
            faster = speedup(op, size=size, profile="auto")
            assert faster < 0.8 * LINKS, (op, size)
            assert faster > 1 or (op, size) == ("all_gather", "1M"), (op, size)
    assert speedup("all_gather", size="1M", profile="auto") == pytest.approx(0.96, abs=0.01)


def test_C055_all_to_all_is_16_times_slower():
    """7 of the 71 peers of a GPU are in its own server: 64/50 against 71/900."""
    assert speedup("all_to_all", algo="direct") == pytest.approx((64 / 50) / (71 / 900), **EXACT)
    assert rounds_to(speedup("all_to_all", algo="direct"), "16.2")
    # a hypothetical domain of 128: 120/50 against 127/900; the more GPUs, the nearer to 18
    larger = f"{NVIDIA},gpu.count=128,switch.ports=128"
    sizes = [speedup("all_to_all", algo="direct", nvidia=larger, ranks=n) for n in (16, 72, 128)]
    assert [f"{found:.1f}" for found in sizes] == ["9.6", "16.2", "17.0"]
    assert all(small < large < LINKS for small, large in pairwise(sizes))


def test_C056_all_to_all_is_twice_as_slow_as_on_b300():
    """Over servers, 800 Gb/s against 400; within one, by the links inside."""
    eight = "hgx_b300,scale_out.nodes=8"
    assert speedup("all_to_all", nvidia=eight, ranks=64, algo="direct") == pytest.approx(2, **EXACT)
    assert speedup("all_to_all", nvidia=eight, ranks=8, algo="direct") == pytest.approx(900 / 537.6, **EXACT)
    assert speedup("all_to_all", nvidia=eight, ranks=64, profile="auto") == pytest.approx(2, rel=0.1)


def test_C057_all_reduce_of_one_gpu_per_server():
    """Nine GPUs in each of eight groups, in rings: 18, whatever the size."""
    for size in ("1M", "64M", "1G"):
        found = speedup("all_reduce", size=size, split=ONE_OF_EACH_SERVER, algo="ring")
        assert found == pytest.approx(LINKS, rel=1e-3), size
        assert rounds_to(found, "18.0")


def test_C057_depends_on_what_is_compared():
    """NVLS sends 1 + 1/9 of the size instead of 16/9; groups of 16 in the rack of 128 have more to send."""
    split = {"split": ONE_OF_EACH_SERVER}
    rings, nvls = (
        row(topo, "all_reduce", ranks=72, algo=algo, **split) for topo, algo in ((AMD, "ring"), (NVIDIA, "nvls"))
    )
    assert rings.time_s / nvls.time_s == pytest.approx(LINKS * 1410.25 / 900, rel=1e-4)
    assert rounds_to(rings.time_s / nvls.time_s, "28.2")
    sixteen = row(AMD, "all_reduce", ranks=128, algo="ring", **split)
    nine = row(NVIDIA, "all_reduce", ranks=72, algo="ring", **split)
    assert (sixteen.ranks, nine.ranks) == (16, 9)
    assert sixteen.time_s / nine.time_s == pytest.approx(LINKS * (15 / 16) / (8 / 9), rel=1e-4)
    assert nine.busbw_Bps / sixteen.busbw_Bps == pytest.approx(LINKS, rel=1e-4)


def test_C080_all_to_all_of_16_over_two_servers():
    """EP = 16: half of what a GPU sends leaves its server, at 50 GB/s; in one rack of GB200 none does."""
    found = row("mi355x_ubb8", "all_to_all", overrides={"scale_out.nodes": "2"}, algo="direct")
    assert found.ranks == 16
    assert found.time_s == pytest.approx(2**30 / 2 / 50e9, **EXACT)
    assert rounds_to(found.busbw_Bps / 1e9, "93.75")
    assert speedup("all_to_all", ranks=16, algo="direct") == pytest.approx((8 / 50) / (15 / 900), **EXACT)
