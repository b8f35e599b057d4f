"""Multicast, load-reduce and NVLS: what they mean, what they cost, and who may use them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import collsim
from collsim.collectives import ScheduleRequest, algorithm
from collsim.core.errors import SpecError, UnsupportedError, VerificationError
from collsim.core.operations import operation
from collsim.library import load_profile
from collsim.schedule import EVERY, ChunksBuilder, Schedule, TransfersBuilder, find_faults, verify
from collsim.schedule.in_network import point_to_point, ranks_of
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_schedule
from collsim.topology import load_topology

LINK_BPS = 450e9
OPS = ("all_reduce", "all_gather", "reduce_scatter")


def nvls(op: str, n: int, size_bytes: int, **more: int) -> Schedule:
    return algorithm(op, "nvls").build(ScheduleRequest(operation(op), n, size_bytes, 4, **more))


@pytest.mark.parametrize(("mib", "kib"), [(7, 16), (8, 32), (63, 32), (64, 64), (1023, 64), (1024, 128)])
def test_chunks_of_nvls_without_a_library(mib, kib):
    """16 channels, 8 heads: each limit counts rounds of the chunk before (NCCL src/enqueue.cc)."""
    assert nvls("all_reduce", 8, mib * 2**20, channels=16).parameters["chunk_bytes"] == kib * 2**10


def hand_made(n: int = 3) -> tuple[ChunksBuilder, TransfersBuilder]:
    """All-reduce of one chunk: rank 0 reads the sum and writes it to all."""
    chunks, rows = ChunksBuilder(), TransfersBuilder()
    chunks.add(12, EVERY, EVERY)
    total = rows.add(EVERY, 0, [0], reduces=True)
    rows.add(0, EVERY, [0], [total])
    return chunks, rows


def test_point_to_point_writes_out_every_part():
    _, rows = hand_made()
    flat = point_to_point(rows.build(), 3)
    assert list(zip(flat.src.tolist(), flat.dst.tolist(), strict=True)) == [(1, 0), (2, 0), (0, 1), (0, 2)]
    assert [flat.deps_of(i) for i in range(4)] == [[], [], [0, 1], [0, 1]]
    assert flat.reduces.tolist() == [True, True, False, False]


def test_ranks_of_names_everyone_once():
    _, rows = hand_made()
    rows.add(2, 1, [0])
    ptr, ranks = ranks_of(rows.build(), 3)
    assert [ranks[a:b].tolist() for a, b in pairwise(ptr)] == [[0, 1, 2], [0, 1, 2], [2, 1]]


def test_hand_made_all_reduce_verifies_and_its_faults_do_not():
    chunks, rows = hand_made()
    verify(Schedule("all_reduce", "mine", 3, 12, chunks.build(), (rows.build(),)))
    rows.deps[1] = []
    with pytest.raises(VerificationError, match="without waiting"):
        verify(Schedule("all_reduce", "mine", 3, 12, chunks.build(), (rows.build(),)))
    rows.deps[1] = [0]
    rows.rows[0] = (*rows.rows[0][:4], False, *rows.rows[0][5:])
    faults = find_faults(Schedule("all_reduce", "mine", 3, 12, chunks.build(), (rows.build(),)))
    assert "neither a multicast nor a load-reduce" in str(faults[0])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("n", [*range(2, 18), 31])
def test_nvls_verifies(op: str, n: int):
    for size_bytes in (16 * n, n * 40_000):
        verify(nvls(op, n, size_bytes, channels=2, chunk_bytes=8192))


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("op", OPS)
def test_bytes_per_gpu_and_direction(op: str, n: int):
    # Reads by all heads take S up, the multicast of one slice S/n; the mirror image comes down.
    up, down = {"all_reduce": (1 + 1 / n, 1 + 1 / n), "all_gather": (1 / n, 1), "reduce_scatter": (1, 1 / n)}[op]
    run = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(n))
    size_bytes = n * 2**22
    timing = time_schedule(nvls(op, n, size_bytes, channels=4), run)
    wiring = run.fabric.wiring
    for gpu in range(n):
        assert timing.link_bytes[wiring.link_src == gpu].sum() == pytest.approx(up * size_bytes, rel=1e-12)
        assert timing.link_bytes[wiring.link_dst == gpu].sum() == pytest.approx(down * size_bytes, rel=1e-12)


def test_busbw_of_many_chunks_tends_to_14_ninths_of_the_link_rate():
    # S (1 + 1/8) per direction against the 2 S 7/8 that busbw assumes: 450 x (14/8) / (9/8) = 700 GB/s.
    row = collsim.simulate("hgx_h100", "all_reduce", "16G", algo="nvls", profile="ideal").rows[0]
    assert row.busbw_Bps == pytest.approx(LINK_BPS * 14 / 9, rel=2e-3)
    assert row.busbw_Bps < LINK_BPS * 14 / 9
    assert row.lower_bound_s == pytest.approx(2**34 / LINK_BPS, rel=1e-12)


def test_the_default_profile_counts_the_efficiency_of_the_switches():
    # 450 x 0.824 achievable x 0.85 for in-network traffic, over 9/8 of the bytes, times the 14/8 of busbw.
    row = collsim.simulate("hgx_h100", "all_reduce", "16G", algo="nvls", profile="default").rows[0]
    assert row.busbw_Bps == pytest.approx(LINK_BPS * 0.824 * 0.85 * 14 / 9, rel=0.04)
    assert row.bottleneck[0].utilisation < 0.85


def test_gather_is_limited_by_the_copy_that_the_sender_gets_too():
    row = collsim.simulate("hgx_h100", "all_gather", "1G", algo="nvls", profile="ideal").rows[0]
    assert row.time_s == pytest.approx(2**30 / LINK_BPS, rel=1e-9)


def test_multicast_is_sprayed_over_the_planes_and_a_read_pays_the_path_twice():
    run = prepare(load_topology("hgx_h100"), load_profile("default"))
    routes, n = run.routes, 8
    first, last = routes.ptr[n * n + 3], routes.ptr[n * n + 4]
    names = [run.fabric.wiring.link_name(int(link)) for link in routes.link[first:last]]
    shares = dict(zip(names, routes.weight[first:last], strict=True))
    assert [shares[f"gpu3->nvsw{k}"] * 18 for k in range(4)] == pytest.approx([5, 4, 4, 5])
    assert [shares[f"nvsw{k}->gpu6"] * 18 for k in range(4)] == pytest.approx([5, 4, 4, 5])
    assert len(names) == 4 + 8 * 4
    one_way = routes.latency_s[1]
    assert routes.latency_s[n * n + 3] == pytest.approx(one_way)
    assert routes.latency_s[n * n + n + 3] == pytest.approx(2 * one_way)


def test_a_mesh_cannot_and_says_so():
    with pytest.raises(UnsupportedError, match="switches that add and multicast"):
        collsim.simulate("mi300x_ubb8", "all_reduce", "1M", algo="nvls")
    algos = [row.algo for row in collsim.simulate("mi300x_ubb8", "all_reduce", "1M", algo="all")]
    assert "nvls" not in algos


def test_bound_without_in_network_reduction_is_the_classical_one():
    # 2 (n-1)/n S over the link rate for switches that only forward.
    row = collsim.simulate("mi400_ualoe72", "all_reduce", "1G", algo="ring", profile="ideal").rows[0]
    assert row.lower_bound_s == pytest.approx(2 * 71 / 72 * 2**30 / 1800e9, rel=1e-12)


def test_phases_wait_for_everyone_in_a_multicast():
    chunks, rows = hand_made()
    after = TransfersBuilder()
    chunks.add(4, EVERY, EVERY)
    after.add(EVERY, 1, [1], reduces=True)
    chained = Schedule("all_reduce", "mine", 3, 16, chunks.build(), (rows.build(), after.build())).materialise()
    assert np.count_nonzero(chained.src == chained.dst) == 3
    assert sorted(chained.deps_of(len(chained) - 1)) == [2, 3, 4]


@pytest.mark.parametrize("way", ["graph", "yaml"])
def test_copies_keep_what_the_switches_can(way: str, tmp_path):
    original = load_topology("hgx_h100")
    file = tmp_path / "copy.yaml"
    file.write_text(original.to_yaml("copy"))
    copy = original.graph if way == "graph" else str(file)
    there, here = (collsim.simulate(topo, "all_reduce", "64M", algo="nvls").rows[0] for topo in (copy, original))
    assert there.time_s == here.time_s
    assert there.lower_bound_s == here.lower_bound_s


def test_a_graph_with_a_senseless_efficiency_is_refused():
    graph = load_topology("hgx_h100").graph.copy()
    graph.graph["in_network_efficiency"] = 1.5
    with pytest.raises(SpecError, match=r"in_network_efficiency is 1\.5"):
        load_topology(graph)
