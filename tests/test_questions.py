"""Questions that practitioners asked in public, with the figures they gave, answered by the product.

`QUESTIONS` is our own table of them: where the question was asked, what was measured or answered there, and for those
that collsim does not answer yet, by which figure it misses. Each of the others has a test of its name below.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import pytest

import collsim
from collsim.core.operations import operation
from collsim.diagnosis import diagnose
from collsim.simulation.request.prepare import prepare
from collsim.simulation.simulate import build_schedule
from collsim.topology import load_topology

from .calibration.made_logs import log_text

GIB, MIB = 2**30, 2**20


class Question(NamedTuple):
    """Where it was asked, what holds according to measurements or maintainers, and why it fails, if it does."""

    source: str
    known: str
    misses: str = ""


# ruff: noqa: E501
QUESTIONS = {
    "A01": Question("NVIDIA/nccl-tests#212", "8 H100 all_reduce: algbw 250 at 256 MiB, busbw 480 at 8 GiB, ring 370"),
    "A04": Question("NVIDIA/nccl#1807; stas00/ml-engineering", "8 B200 all_reduce 8 GiB: busbw 838, ring 682"),
    "A06": Question("coreweave/nccl-tests#43", "72 GB200 all_reduce: busbw 586 at 512 MiB to 835 at 8 GiB"),
    "A09": Question("NVIDIA/nccl-tests#252", "ring over 2 x 4 H100, 4 x 200 Gb/s: busbw 93.5 to 97.4, 24 an adapter"),
    "A12": Question(
        "Azure/azurehpc-health-checks#73", "gates: A100 228, H100 460",
        "221.6 on 8 A100: what is fitted of them is a reduce_scatter, which ends 4 % lower than all_reduce; 480 on H100",
    ),
    "B01": Question("NVIDIA/nccl#949", "2 x 200 Gb/s: 56 % through the root complex, 48 after"),
    "B03": Question("NVIDIA/nccl-tests#152", "4 x 200 Gb/s: 30, and 90 to 93 with more outstanding PCIe reads"),
    "B05": Question("NVIDIA/nccl#1412", "4 x 200 Gb/s: 33 without GPUDirect, 93 with it"),
    "B07": Question("ROCm/rccl#1204", "8 MI300X virtual machine: 50 instead of 310"),
    "B09": Question("areal-project/AReaL#639", "one 200 Gb/s bond: 5 instead of 25 over sockets"),
    "B13": Question(
        "deepseek-ai/DeepEP#38 and #60",
        "all queue pairs on one adapter: 4 instead of 43 logical",
        "with an adapter for each of 8 H100 the kernels are said to reach 76 to 84, not 35 to 60; the rest holds",
    ),
    "B15": Question("deepseek-ai/DeepEP#82", "RoCE with hashing slower than InfiniBand, with spraying nearly equal"),
    "B17": Question("NVIDIA/nccl-tests#178", "A100 PCIe in NVLink pairs: 208 with 2 GPUs, 20 with 3"),
    "B21": Question("NVIDIA/nccl-tests#265; NVIDIA/nccl#1015", "2 x 200 Gb/s bond: 240 Gb/s with one queue pair, 395 with many"),
    "C01": Question("stas00/ml-engineering", "MI300X all_reduce 4 GiB: 47.7 with 2 GPUs, 313 with 8"),
    "C05": Question("marin-community/marin#7706", "bytes a token: EP8 3.94 MiB, EP16 4.22 MiB of which 2.25 MiB cross"),
    "C07": Question(
        "arXiv 2307.12169", "without spines all_reduce the same, all_to_all 8 to 11 % longer",
        "32 nodes: NCCL's relays (PXN) forward on both, so 1.00; against messages over spines 1.02, not 1.03 to 1.20",
    ),
    "C10": Question(
        "NVIDIA/nccl#1357; nccl-tests#232", "tree over 2 nodes: one GPU 50 with 4 adapters, 8 GPUs 93 and 185 with 1 and 2",
        "four adapters are 1.905 times as fast as two, where less than 1.9 was said; rates with one and two hold",
    ),
    "D01": Question("deepseek-ai/DeepEP#285", "H800 EP16 dispatch: 43 logical, NVLink is the limit"),
    "D04": Question("deepseek-ai/DeepEP#28", "low latency EP16, 128 tokens: dispatch 95 to 150 us, combine 160 to 240 us"),
    "D06": Question("deepseek-ai/DeepEP#208", "one node of four sends four times the tokens: between 1.5 and 4.5 times as long"),
    "D11": Question("deepseek-ai/DeepEP#31", "forwarding to the right rail in low latency brings nothing"),
    "E01": Question("stas00/ml-engineering; NVIDIA/nccl#1455", "H200 all_reduce 8 GiB: ring at 4, NVLS from 5 GPUs on"),
    "E02": Question("stas00/ml-engineering", "B200 with the cloud's tuner: ring at 5 GPUs, NVLS from 6"),
    "E03": Question(
        "stas00/ml-engineering", "1 and 4 B200 nodes over EFA, with the cloud's tuner: half the rate at 16 GiB, a seventh at 1 MiB"
    ),
    "E06": Question("NVIDIA/nccl#1712", "ring over 2 to 16 nodes keeps its peak and loses the middle"),
    "E08": Question("NVIDIA/nccl#457", "bytes of a GPU: ring 2 (N-1)/N S; an inner rank of the tree 2 S, the root S"),
    "E12": Question(
        "NVIDIA/nccl#1229", "H100 reduce_scatter: 360 on 4 nodes to 260 on 128",
        "324 on 4 nodes at 8 GiB, not 330 to 395: 16 channels bind in the node (369 with 24); it falls from 512 ranks on",
    ),
    "E15": Question("NVIDIA/nccl#1801", "3 partitions of 4 and 8 GB200: ring 197 and 394, tree 234 and 485, so the tree"),
    "E21": Question("NVIDIA/nccl#1083 and #1047", "H100 reduce_scatter: ring 311 to 362, NVLS lower"),
    "F01": Question("NVIDIA/nccl-tests#22", "tree over two nodes shows more than the wire carries, and is faster than ring"),
    "F04": Question("NVIDIA/nccl#1442", "900 GB/s of a data sheet are both directions"),
    "F06": Question("NVIDIA/nccl-tests#45", "size is the total, busbw is algbw (n-1)/n"),
    "F09": Question("ROCm/mori#107", "logical bandwidth may exceed the adapter's, physical may not"),
    "F13": Question("aliyun/SimAI#208 and #136", "groups of 8 take the same time at any number of nodes, with their number told"),
}  # fmt: skip
OTHERS = {
    "NVIDIA/nccl-tests#272": (475, 0.05, "hgx_h200", "all_reduce", "4G", {}),
    "NVIDIA/nccl#1374": (215, 0.05, "hgx_h800", "all_reduce", "8G", {}),
    "NVIDIA/nccl-tests#309": (470, 0.05, "hgx_h100", "all_reduce", "8G", {"scale_out.nodes": "2"}),
    "NVIDIA/nccl-tests#119": (95.7, 0.1, "dgx_a100", "all_reduce", "128M", {"scale_out.nodes": "2", "nic.shared_by": "2"}),
    "NVIDIA/nccl#412": (24, 0.1, "dgx_a100", "all_reduce", "8G", {"scale_out.nodes": "12", "nic.shared_by": "8"}),
    "NVIDIA/nccl-tests#153": (161, 0.15, "hgx_h800", "all_reduce", "8G", {"scale_out.nodes": "2", "scale_out.network": "roce", "nic.bandwidth": "100 Gb/s"}),
}  # fmt: skip
"""More questions with a bus bandwidth, in GB/s: measured or called right there, how far the model may be off, and what
was run: H200 and H800 in one node, 2 nodes of H100, 2 of A100 with 4 x 200 Gb/s, 12 with one, 2 of H800 with 100 Gb/s.
Not met, though asked: 366 GB/s on four H100 nodes (nccl-tests#309) are 326, as E12; on 24 channels, or with trees of NVLS, they
are 370 and 375, but the asker does not say what ran, and NVIDIA/nccl#1221 has 320 there. An all-to-all of four H100 that falls
by an eighth above 512 MiB (NVIDIA/nccl#2169), where NCCL sends twice as many parts at once, rises by a twentieth here and
on the four machines whose logs there are."""
KERNEL = "deepep_v1_h800"
"""Of the time of the question."""
CAUSES = ["slow_bus", "slow_adapters", "gdr_off", "sockets", "one_bus", "few_channels", "protocol"]
"""Those that a test looks at, for its time."""
LEAST_ANSWERED = 30
"""Of 35."""
NODES = ", ".join([*(f"{{name: gpu{gpu}}}" for gpu in range(8)), *(f"{{name: cpu{cpu}, kind: cpu}}" for cpu in (0, 1))])
BRIDGES = (
    f"{{a: gpu{gpu}, b: gpu{gpu + 1}, count: 12, bandwidth: 25 GB/s, efficiency: 0.8}}" for gpu in range(0, 8, 2)
)
SLOTS = (f"{{a: gpu{gpu}, b: cpu{gpu // 4}}}" for gpu in range(8))
PAIRS = f"""
schema: collsim.topology/1
name: a100_pcie_pairs
title: eight A100 PCIe, bridged in pairs, two pairs on each of two sockets
builder: explicit
gpu: {{model: A100 PCIe, count: 8}}
link: {{type: PCIe Gen4 x16, bandwidth: 31.5 GB/s, efficiency: 0.84, latency: 150 ns}}
in_network_reduction: none
nodes: [{NODES}]
links: [{", ".join([*BRIDGES, *SLOTS])}, {{a: cpu0, b: cpu1, count: 3, bandwidth: 36 GB/s}}]
"""
"""NVLinks and PCIe as of the data sheets; efficiencies as of dgx_a100 and l40s_8gpu."""


def cluster(name, nodes, **figures):
    return load_topology(name, {"scale_out.nodes": str(nodes), **{k.replace("__", "."): v for k, v in figures.items()}})


def busbw(topo, op, size, **options):
    return collsim.simulate(topo, op, size, **options).rows[0].busbw_Bps / 1e9


def busbws(topo, op, sizes, **options):
    return [row.busbw_Bps / 1e9 for row in collsim.simulate(topo, op, sizes, **options).rows]


def diagnosis_of(tmp_path, topo, op, ranks, nodes, rates, **options):
    """Diagnose a log of rows with a size in MiB and a bus bandwidth in GB/s."""
    factor = operation(op).busbw_factor(ranks)
    rows = [(mib * MIB, mib * MIB * factor / rate / 1e3) for mib, rate in rates.items()]
    path = tmp_path / f"{op}.log"
    path.write_text(log_text(op, ranks, nodes, rows=rows))
    return diagnose(path, topo, **options)


def sound(tmp_path, *asked, **options):
    return diagnosis_of(tmp_path, *asked, **options).verdict in ("healthy", "fast")


class TestExpected:
    def test_A01(self, tmp_path):
        automatic, ring = (
            collsim.simulate("hgx_h100", "all_reduce", ["256M", "8G"], algo=algo) for algo in ("auto", "ring")
        )
        middle, large = automatic.rows
        assert 460e9 < large.busbw_Bps < 490e9
        assert 263e9 < large.algbw_Bps < 280e9
        assert 225e9 < middle.algbw_Bps < 265e9
        assert 350e9 < ring.rows[1].busbw_Bps < 375e9
        assert sound(tmp_path, "hgx_h100", "all_reduce", 8, 1, {256: 250 * 1.75})

    def test_A04(self, tmp_path):
        assert 805 < busbw("hgx_b200", "all_reduce", "8G") < 870
        assert 650 < busbw("hgx_b200", "all_reduce", "8G", algo="ring") < 705
        assert sound(tmp_path, "hgx_b200", "all_reduce", 8, 1, {8192: 830, 16384: 846})

    def test_A06(self):
        rates = busbws("gb200_nvl72", "all_reduce", ["512M", "1G", "2G", "4G", "8G"], ranks=72)
        assert rates[-1] == pytest.approx(835, rel=0.08)
        assert rates[0] == pytest.approx(586, rel=0.15)
        assert rates[:4] == sorted(rates[:4])

    def test_A09(self, tmp_path):
        """The GPUs are H100, by the ranks that the issue lists."""
        figures = {"gpu.count": "4", "nic.bandwidth": "200 Gb/s"}
        topo = cluster("hgx_h100", 2, **figures)
        row = collsim.simulate(topo, "all_reduce", "8G", algo="ring", library="nccl-2.22").rows[0]
        assert 92e9 < row.busbw_Bps < 98e9
        adapter = next(load for load in row.tiers if load.tier == "adapter")
        assert 23e9 < adapter.sent_bytes / row.time_s < 24.5e9
        rates = {512: 93.5, 1024: 93.6, 2048: 94.3, 4096: 97.4, 8192: 95.1}
        asked = ("hgx_h100", "all_reduce", 8, 2, rates)
        assert sound(tmp_path, *asked, overrides=figures, environment={"NCCL_ALGO": "Ring"})


class TestWhySlow:
    @pytest.mark.deep
    def test_B01(self, tmp_path):
        two = {"nic.shared_by": "4"}
        found = diagnosis_of(
            tmp_path, "dgx_a100", "all_reduce", 16, 2, {1024: 27, 2048: 27.2, 4096: 27.3, 8192: 27.3}, overrides=two
        )
        assert found.rank_of("slow_bus") <= 3
        assert "root complex" in next(s.title for f in found.findings for s in f.suspects if s.name == "slow_bus")
        healthy = 8 * GIB * 15 / 8 / found.logs[0].healthy.times_s[-1] / 1e9
        assert 45.5 <= round(healthy, 1) < 49  # 45.49: to the digits of what was answered

    @pytest.mark.deep
    def test_B05(self, tmp_path):
        four = {"nic.shared_by": "2"}
        found = diagnosis_of(
            tmp_path, "dgx_a100", "all_reduce", 16, 2, {256: 33, 512: 33.3, 1024: 33.5}, overrides=four
        )
        assert found.rank_of("gdr_off") <= 2
        topo = cluster("dgx_a100", 2, nic__shared_by="2")
        assert 90 < busbw(topo, "all_reduce", "1G") < 98
        assert 20 < busbw(topo, "all_reduce", "1G", environment={"NCCL_NET_GDR_LEVEL": "LOC"}) < 60

    def test_B17(self, tmp_path):
        path = tmp_path / "pairs.yaml"
        path.write_text(PAIRS)
        two, three, eight = (
            collsim.simulate(str(path), "all_reduce", "8G", ranks=ranks).rows[0] for ranks in (2, 3, 8)
        )
        assert 190e9 < two.busbw_Bps < 240e9
        assert 12e9 < three.busbw_Bps < 27e9
        assert "cpu" in three.bottleneck[0].link
        assert eight.busbw_Bps < 1.1 * three.busbw_Bps

    def test_B03(self, tmp_path):
        four = {"nic.shared_by": "2"}
        before = diagnosis_of(
            tmp_path,
            "dgx_a100",
            "all_reduce",
            16,
            2,
            {128: 29, 1024: 30, 4096: 30},
            overrides=four,
            causes=[*CAUSES, "adapter_down"],
        )
        assert before.verdict == "faulty"
        assert before.rank_of("slow_bus", "slow_adapters") <= 2
        assert (before.rank_of("adapter_down") or 99) > before.rank_of("slow_bus")
        healthy = dict(zip(before.logs[0].sizes, before.logs[0].healthy.times_s, strict=True))[GIB]
        assert 88 < GIB * 15 / 8 / healthy / 1e9 < 98
        assert sound(tmp_path, "dgx_a100", "all_reduce", 16, 2, {128: 93, 1024: 89.5, 2048: 89.5}, overrides=four)

    def test_B07(self, tmp_path):
        found = diagnosis_of(
            tmp_path,
            "mi300x_ubb8",
            "all_reduce",
            8,
            1,
            {256: 49, 1024: 50, 4096: 50},
            causes=["few_links", "slow_gpu", "few_channels", "protocol"],
        )
        assert 290 < busbw("mi300x_ubb8", "all_reduce", "4G") < 325
        assert found.rank_of("few_links") == 1

    def test_B09(self, tmp_path):
        one = {"nic.shared_by": "8", "scale_out.network": "roce"}
        found = diagnosis_of(tmp_path, "dgx_a100", "all_reduce", 16, 2, {1024: 5.0}, overrides=one, causes=CAUSES)
        assert found.rank_of("sockets") <= 2
        healthy = GIB * 15 / 8 / found.logs[0].healthy.times_s[0] / 1e9
        assert 4 < healthy / 5 < 8

    def test_B15(self):
        def time_s(**figures):
            topo = cluster("hgx_h100", 4, scale_out__racks="4", scale_out__fabric="fat_tree", **figures)
            return collsim.simulate_moe(topo, ep=32, mode="normal").rows[0].time_s

        roce = {"scale_out__network": "roce"}
        hashed = [time_s(**roce, scale_out__routing="ecmp", scale_out__hash_seed=str(seed)) for seed in range(1, 6)]
        sprayed, other = time_s(**roce, scale_out__routing="spray"), time_s(scale_out__network="infiniband")
        assert np.median(hashed) > sprayed
        assert sprayed == pytest.approx(other, rel=0.10)
        assert max(hashed) > min(hashed)

    def test_B21(self):
        topo = cluster("hgx_h100", 2, nic__ports="2", nic__bandwidth="200 Gb/s")
        rates = [
            busbw(topo, "all_to_all", "1G", environment={"NCCL_IB_QPS_PER_CONNECTION": pairs}) * 8 / 15
            for pairs in ("1", "4", "8", "64")
        ]
        assert 23 < rates[0] < 25.5
        assert rates == sorted(rates)


class TestDesign:
    def test_C01(self):
        pair, board = (busbw("mi300x_ubb8", "all_reduce", "4G", ranks=ranks) for ranks in (2, 8))
        assert 44 < pair < 50
        assert 290 < board < 325
        assert 5.9 < board / pair < 7.2

    def test_C05(self):
        common = {"mode": "all_to_all", "top_k": 4, "hidden": 6144, "layers": 48, "dispatch": "bf16", "combine": "bf16"}

        def per_token(topo, ep):  # one expert on every rank: no token goes to a rank twice
            row = collsim.simulate_moe(topo, None, ep=ep, tokens=4096, experts=ep, **common).rows[0]
            return [2 * 48 * sent / 4096 / MIB for sent in (row.node_bytes + row.network_bytes, row.network_bytes)]

        topo = cluster("hgx_h100", 2)
        assert per_token(topo, 8) == pytest.approx([3.94, 0], rel=0.01)
        assert per_token(topo, 16) == pytest.approx([4.22, 2.25], rel=0.01)
        assert per_token("gb200_nvl72", 16)[1] == 0


class TestExperts:
    def test_D01(self):
        h800, h200 = (
            collsim.simulate_moe(cluster(name, 2), ep=16, tokens=4096, mode="normal").rows[0]
            for name in ("hgx_h800", "hgx_h200")
        )
        assert 37e9 < h800.logical_Bps < 49e9
        assert h200.logical_Bps > h800.logical_Bps
        assert h800.network_Bps < h800.logical_Bps

    def test_D04(self):
        dispatch, combine = collsim.simulate_moe(cluster("hgx_h800", 2), ep=16, tokens=128, mode="low_latency").rows
        assert 95e-6 < dispatch.time_s < 150e-6
        assert 160e-6 < combine.time_s < 240e-6

    def test_D06(self):
        topo = cluster("hgx_h100", 4)
        heavy = collsim.simulate_moe(topo, ep=32, tokens=[256] * 8 + [64] * 24, mode="low_latency").rows
        even = collsim.simulate_moe(topo, ep=32, tokens=64, mode="low_latency").rows
        ratio = sum(row.time_s for row in heavy) / sum(row.time_s for row in even)
        assert 1.5 < ratio < 4.5

    def test_D11(self):
        topo = cluster("hgx_h800", 4)
        direct, rail = (
            sum(
                row.time_s
                for row in collsim.simulate_moe(topo, ep=32, tokens=128, mode="low_latency", forward=way).rows
            )
            for way in ("direct", "rail")
        )
        assert rail == pytest.approx(direct, rel=0.10)
        assert direct < 1.05 * rail


class TestScaling:
    def test_E01(self):
        """As the version of the time of the question chooses."""
        measured = {4: 363.3, 5: 414.2, 6: 435.6, 7: 460.0, 8: 473.1}
        result = collsim.simulate("hgx_h200", "all_reduce", "8G", ranks=list(measured), library="nccl-2.22")
        assert [row.algo for row in result.rows] == ["ring", "nvls", "nvls", "nvls", "nvls"]
        assert [row.busbw_Bps / 1e9 for row in result.rows] == pytest.approx(list(measured.values()), rel=0.05)
        assert all(
            355 < rate < 375 for rate in busbws("hgx_h200", "all_reduce", "8G", ranks=list(measured), algo="ring")
        )

    def test_E02(self, invoke_collsim):
        ranks, measured = [6, 7, 8], [778.2, 811.2, 838.0]
        rates = busbws("hgx_b200", "all_reduce", "8G", ranks=ranks, environment={"NCCL_ALGO": "NVLS"})
        assert rates == pytest.approx(measured, rel=0.05)
        assert all(650 < rate < 705 for rate in busbws("hgx_b200", "all_reduce", "8G", ranks=[5, *ranks], algo="ring"))
        flags = ("--topo", "hgx_b200", "--ranks", "4,5,6,7,8", "--op", "all_reduce", "--size", "8G", "-q")
        assert "a tuner plug-in (NCCL_TUNER_PLUGIN" in " ".join(invoke_collsim("run", *flags).replace("#", "").split())

    def test_E03(self):
        """The tuner of the cloud's plug-in takes LL128 in the middle, where NCCL would take the tree of NVLS."""
        measured = {1: 5.4, 16: 64.4, 64: 157, 256: 229, 1024: 362, 4096: 377, 16384: 382}
        near = {16: 0.35, 64: 0.35, 256: 0.35, 1024: 0.15, 4096: 0.15, 16384: 0.15}
        sizes = [mib * MIB for mib in measured]
        one = busbws("hgx_b200", "all_reduce", sizes)
        four = busbws(cluster("hgx_b200", 4, scale_out__network="efa"), "all_reduce", sizes)
        for mib, rate in zip(measured, four, strict=True):
            assert mib not in near or rate == pytest.approx(measured[mib], rel=near[mib]), mib
        assert 4 < one[0] / four[0] < 10
        assert 1.9 < one[-1] / four[-1] < 2.6

    def test_E06(self):
        curves = {}
        for nodes in (2, 4, 8, 16):
            topo = cluster("dgx_a100", nodes, nic__shared_by="2")
            curves[nodes] = busbws(topo, "all_reduce", ["1M", "4M", "32M", "8G"], algo="ring")
        large = [curve[-1] for curve in curves.values()]
        assert max(large) / min(large) < 1.05
        for place in range(3):
            rates = [curve[place] for curve in curves.values()]
            assert rates == sorted(rates, reverse=True)
            assert len(set(rates)) == 4

    def test_E08(self):
        ranks = 8

        def sent(algo):
            schedule = build_schedule(*prepare("hgx_h100", "all_reduce", "16M", algo, ranks=ranks))
            moves = schedule.materialise()
            row = np.repeat(np.arange(len(moves.src)), np.diff(moves.chunk_ptr))
            carried = schedule.chunks.size_bytes[moves.chunk]
            return np.bincount(moves.src[row], weights=carried, minlength=ranks) / (16 * MIB)

        assert sent("ring") == pytest.approx(np.full(ranks, 2 * (ranks - 1) / ranks), rel=1e-3)
        assert sent("tree").max() == pytest.approx(2, rel=1e-3)

    def test_E15(self):
        asked = {"op": "all_reduce", "size": "16G", "algo": ["ring", "tree"]}
        for gpus, least, most in ((4, 185, 200), (8, 370, 400)):
            found = collsim.simulate("gb200_nvl72", nodes=3, gpus_per_node=gpus, **asked)
            ring, tree = (row.busbw_Bps / 1e9 for row in found.rows)
            assert least < ring < most
            assert 1.1 < tree / ring < 1.4
        tuned = collsim.tune("gb200_nvl72", "all_reduce", "16G", nodes=3, gpus_per_node=8)
        assert [(row.library.algo, row.best.algo, row.verdict) for row in tuned.rows] == [("ring", "tree", "override")]

    def test_E21(self):
        ring = busbws("hgx_h100", "reduce_scatter", ["128M", "8G"], algo="ring")
        nvls = busbws("hgx_h100", "reduce_scatter", ["128M", "8G"], algo="nvls")
        assert 290 < ring[0] < 330
        assert 350 < ring[1] < 372
        assert nvls[0] < ring[0]
        assert nvls[1] < ring[1]


class TestOthers:
    """Questions beyond the table, tried by hand."""

    @pytest.mark.parametrize("source", OTHERS)
    def test_a_rate_that_was_asked_about(self, source):
        known, near, name, op, size, figures = OTHERS[source]
        assert busbw(load_topology(name, figures), op, size) == pytest.approx(known, rel=near)

    def test_more_channels_for_each_peer_cure_eight_nodes(self):
        """NVIDIA/nccl#1272: send and receive of GH200 falls by a quarter from four to eight nodes; a variable cures it."""
        four, eight = (busbw("alps", "send_recv", "512M", ranks=ranks) for ranks in (16, 32))
        cured = busbw("alps", "send_recv", "512M", ranks=32, environment={"NCCL_NCHANNELS_PER_NET_PEER": "4"})
        assert eight < 0.8 * four
        assert cured == pytest.approx(four, rel=0.05)

    def test_a_long_way_halves_the_ring(self):
        """NVIDIA/nccl-tests#241: the peak at 20 us between nodes, nearly half of it at several hundred."""
        near, far = (
            busbw(
                cluster("hgx_h100", 4, scale_out__link_latency=late),
                "all_reduce",
                "8G",
                algo="ring",
                library="nccl-2.22",
            )
            for late in ("10 us", "300 us")
        )
        assert near > 0.95 * busbw(cluster("hgx_h100", 4), "all_reduce", "8G", algo="ring", library="nccl-2.22")
        assert 0.5 < far / near < 0.7

    def test_H20_has_the_links_of_H100(self):
        """deepseek-ai/DeepEP#138: 327 GB/s of fp8, 344 of bf16 and 333 of combine in a node; #148: 62 on two nodes."""
        node = [
            row.logical_Bps / 1e9
            for form in ("fp8", "bf16")
            for row in collsim.simulate_moe("hgx_h20", ep=8, tokens=4096, mode="normal", dispatch=form).rows[:2]
        ]
        assert node[:2] == pytest.approx([327, 333], rel=0.1)
        assert node[2:] == pytest.approx([344, 333], rel=0.1)
        combine = collsim.simulate_moe(cluster("hgx_h20", 2), ep=16, tokens=4096, mode="normal").rows[1]
        assert combine.logical_Bps / 1e9 == pytest.approx(62, rel=0.1)

    @pytest.mark.deep
    def test_access_control_halves_an_adapter(self, tmp_path):
        """NVIDIA/nccl-tests#112: 9.84 GB/s over one of 200 Gb/s, by access control of PCIe as the answer has it."""
        one = {"nic.shared_by": "8", "scale_out.network": "roce"}
        rates = {1024: 9.8, 2048: 9.84, 4096: 9.84, 8192: 9.85}
        found = diagnosis_of(tmp_path, "dgx_a100", "all_reduce", 16, 2, rates, overrides=one, causes=CAUSES)
        assert found.verdict == "faulty"
        assert found.rank_of("slow_bus") == 1


class TestConfusion:
    def test_F01(self):
        topo = cluster("dgx1_v100", 2, nic__shared_by="8", nic__bandwidth="100 Gb/s", scale_out__network="efa")
        tree, ring = collsim.simulate(topo, "all_reduce", "1G", algo=["tree", "ring"]).rows
        assert 12.5e9 < tree.busbw_Bps < 24e9
        assert ring.busbw_Bps < 12.5e9
        assert 1.4 < ring.time_s / tree.time_s < 2.1

    def test_F04(self, invoke_collsim):
        shown = invoke_collsim("topo", "show", "hgx_h100")
        assert "per GPU, one direction               450 GB/s" in shown
        assert "per GPU, both directions             900 GB/s" in shown

    def test_F06(self):
        row = collsim.simulate("hgx_h100", "all_gather", "1G", ranks=8).rows[0]
        assert row.count == GIB // 8 // 4
        assert row.algbw_Bps * row.time_s == pytest.approx(GIB)
        assert row.busbw_Bps / row.algbw_Bps == pytest.approx(7 / 8, rel=1e-12)

    def test_F09(self):
        combine = collsim.simulate_moe(cluster("mi300x_ubb8", 2), ep=16, mode="normal").rows[1]
        assert combine.network_Bps < 50e9 < combine.logical_Bps

    def test_F13(self, invoke_collsim):
        times = {
            nodes: collsim.simulate(cluster("hgx_h100", nodes), "all_reduce", ["256M", "512M"]) for nodes in (4, 8)
        }
        assert times[4].rows[0].time_s != times[8].rows[0].time_s
        assert 1.7 < times[4].rows[1].time_s / times[4].rows[0].time_s < 2.05
        groups = [
            collsim.simulate(cluster("hgx_h100", nodes), "all_reduce", "256M", split="DIV 8").rows[0]
            for nodes in (4, 8)
        ]
        assert groups[0].time_s == groups[1].time_s
        flags = ("--topo", "hgx_h100", "--nodes", "4", "--op", "all_reduce", "--size", "256M", "--split", "DIV 8", "-q")
        assert "groups 4 x 8 ranks" in invoke_collsim("run", *flags)


class TestFoundThoughTheRateMisses:
    """Of questions that miss by a rate, the cause or the rest of what was accepted."""

    def test_B13(self):
        rates = {}
        for shared_by in ("8", "2"):
            topo = cluster("hgx_h100", 2, nic__shared_by=shared_by)
            rates[shared_by] = (
                collsim.simulate_moe(topo, ep=16, tokens=4096, mode="normal", kernel=KERNEL).rows[0].logical_Bps / 1e9
            )
        assert 4 <= rates["8"] <= 13
        assert 3 <= rates["2"] / rates["8"] <= 5

    def test_C10(self):
        def tree(**figures):
            return busbw(cluster("hgx_h100", 2, **figures), "all_reduce", "16G", algo="tree", library="nccl-2.22")

        alone = [tree(gpu__count="1", nic__per_gpu=adapters) for adapters in ("1", "4")]
        assert all(45 < rate < 55 for rate in alone)
        one, two, four = (tree(nic__shared_by=shared_by) for shared_by in ("8", "4", "2"))
        assert 86 < one < 96
        assert 172 < two < 192
        assert 230 < four < 350
        assert four < 2 * two


@pytest.fixture
def invoke_collsim(capsys):
    """Run a command in this process and return what it prints."""

    def run(*words):
        from collsim.cli import cli

        cli(list(words), prog_name="collsim", standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_every_question_has_a_test_or_a_reason():
    tests = {
        name.removeprefix("test_")
        for kind in vars(sys.modules[__name__]).values()
        if isinstance(kind, type) and kind.__name__ not in ("Question", "TestOthers", "TestFoundThoughTheRateMisses")
        for name in vars(kind)
        if name.startswith("test_")
    }
    assert tests == {name for name, question in QUESTIONS.items() if not question.misses}
    assert len(QUESTIONS) == 35
    assert len(tests) >= LEAST_ANSWERED
