"""Inference engines as libraries: what they choose, what their kernels cost, and what a run says of it."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import collsim
from collsim.collectives import algorithm
from collsim.core.errors import InputError, UnsupportedError
from collsim.library import Call, choose, load_library, load_profile, system_of, with_kernels
from collsim.library.costs.channel_costs import PEER_FAMILIES, Protocol
from collsim.library.engines.kernels import ENGINES
from collsim.topology import load_topology

ROWS = Path(__file__).parents[2] / "tools" / "data" / "engines.csv"
KIB, MIB = 1024, 1024 * 1024
BF16 = {"dtype": "bfloat16", "launch": "graph"}


def chosen(engine: str, topo: str, ranks: int, size_bytes: int, **more: object) -> str:
    call = Call("all_reduce", ranks, size_bytes, **{"dtype": "bfloat16", **more})
    return choose(call, system_of(load_topology(topo), range(ranks)), engine).algo


def times(engine: str, sizes: list[str] | str, topo: str = "hgx_h100", **more: object) -> list[float]:
    return [row.time_s for row in collsim.simulate(topo, "all_reduce", sizes, library=engine, **{**BF16, **more})]


# Names


def test_an_engine_is_known_by_name_and_by_its_release():
    assert {load_library(name).name for name in ("vllm", "vLLM-0.24", "vllm_0.24.0")} == {"vllm-0.24.0"}
    assert load_library("trtllm-1.3").name == "trtllm-1.3.0rc20"
    assert load_library("sglang").version == (0, 5)


@pytest.mark.parametrize("name", ["vllm-0.9", "vllm-0.2", "sglang-0.5.1", "trtllm-", "vllmx"])
def test_other_releases_are_refused_with_the_one_that_is_known(name: str):
    with pytest.raises(UnsupportedError, match=r"vllm-0\.24\.0|sglang-0\.5\.14|trtllm-1\.3\.0rc20"):
        load_library(name)


def test_what_lies_beneath_an_engine_follows_the_gpus():
    assert load_library("vllm").beneath(is_amd=False).family == "nccl"
    assert load_library("vllm").beneath(is_amd=True).family == "rccl"
    assert load_library("nccl-2.21").beneath(is_amd=False).name == "nccl-2.21"


# Choices, as the sources have them


@pytest.mark.parametrize(
    ("engine", "topo", "ranks", "size_bytes", "kernel"),
    [
        ("vllm", "hgx_h100", 2, 8 * MIB - 16, "peer_one_shot"),
        ("vllm", "hgx_h100", 2, 8 * MIB, "peer_staged"),
        ("vllm", "hgx_h100", 2, 64 * MIB, "peer_staged"),
        ("vllm", "hgx_h100", 4, 512 * KIB - 16, "peer_one_shot"),
        ("vllm", "hgx_h100", 4, 512 * KIB, "peer_two_shot"),
        ("vllm", "hgx_h100", 4, 8 * MIB, "peer_multimem"),
        ("vllm", "hgx_h100", 8, 256 * KIB - 16, "peer_one_shot"),
        ("vllm", "hgx_h100", 8, 256 * KIB, "peer_multimem"),
        ("vllm", "gb200_nvl72", 4, 4 * MIB, "peer_two_shot"),
        ("sglang", "hgx_h100", 2, 16 * MIB, "peer_one_shot"),
        ("sglang", "hgx_h100", 4, 384 * KIB, "peer_one_shot"),
        ("sglang", "hgx_h100", 4, 384 * KIB + 16, "peer_two_shot"),
        ("sglang", "hgx_h100", 8, 16 * MIB, "peer_two_shot"),
        ("sglang", "hgx_b200", 8, 720 * KIB, "peer_one_shot"),
        ("trtllm", "hgx_h100", 8, 512 * KIB, "peer_one_shot"),
        ("trtllm", "hgx_h100", 8, 4 * MIB, "peer_two_shot"),
        ("trtllm", "hgx_b200", 8, 2 * MIB, "peer_one_shot"),
        ("trtllm", "hgx_b200", 8, 32 * MIB, "peer_two_shot"),
    ],
)
def test_kernels_are_chosen_by_size_and_ranks(engine: str, topo: str, ranks: int, size_bytes: int, kernel: str):
    assert chosen(engine, topo, ranks, size_bytes) == kernel


@pytest.mark.parametrize(
    ("engine", "topo", "ranks", "size_bytes"),
    [
        ("vllm", "hgx_h100", 2, 64 * MIB + 16),
        ("vllm", "hgx_h100", 3, 64 * KIB),
        ("vllm", "hgx_h100", 8, 64 * KIB + 2),
        ("vllm", "gb200_nvl72", 4, 8 * MIB),
        ("sglang", "hgx_h100", 8, 16 * MIB + 16),
        ("trtllm", "hgx_h100", 8, MIB),
        ("trtllm", "hgx_h100", 6, 64 * KIB),
    ],
)
def test_the_rest_goes_to_nccl_as_it_chooses(engine: str, topo: str, ranks: int, size_bytes: int):
    assert chosen(engine, topo, ranks, size_bytes) == chosen("nccl-2.28", topo, ranks, size_bytes)


def test_calls_that_no_engine_has_a_kernel_for_go_to_the_library_beneath():
    topology = load_topology("hgx_h100")
    system = system_of(topology)
    for call in (
        Call("all_gather", 8, 64 * KIB, "bfloat16"),
        Call("all_reduce", 8, 64 * KIB, "bfloat16", redop="max"),
        Call("all_reduce", 8, 64 * KIB, "int8"),
        Call("all_reduce", 16, 64 * KIB, "bfloat16", n_nodes=2),
        Call("all_to_all", 8, 64 * KIB, "bfloat16"),
    ):
        for engine in ENGINES:
            found, plain = choose(call, system, engine), choose(call, system, "nccl-2.28")
            assert replace(found, why="") == replace(plain, why=""), (engine, call)
            assert found.why.startswith(f"{load_library(engine).name} calls nccl-2.28 here: ")


def test_symmetric_memory_of_vllm_is_for_bfloat16_and_switches_that_add():
    assert chosen("vllm", "hgx_h100", 8, MIB, dtype="float") == chosen("nccl-2.28", "hgx_h100", 8, MIB, dtype="float")
    hidden = replace(system_of(load_topology("hgx_h100")), nvls=False)
    assert choose(Call("all_reduce", 8, MIB, "bfloat16"), hidden, "vllm").algo not in PEER_FAMILIES


def test_ranks_that_links_do_not_join_go_to_nccl():
    assert chosen("vllm", "dgx1_v100", 8, 64 * KIB) not in PEER_FAMILIES
    assert chosen("vllm", "dgx1_v100", 4, 64 * KIB) == "peer_one_shot"


# Laws of the costs


def test_flags_go_to_every_peer_and_copies_take_the_whole_buffer():
    # 3 peers at 2 us, and 1 GB copied twice at 100 GB/s: 6 us and 20 ms.
    costs = Protocol(0.0, 1e9, peer_overhead_s=2e-6, copies=2, copy_rate_Bps=100e9)
    assert costs.around_s(3, 10**9) == pytest.approx(20.006e-3)
    assert Protocol(0.0, 1e9).around_s(3, 10**9) == 0.0


def test_the_costs_of_a_kernel_are_those_in_its_file_and_add_up():
    # 8 ranks, 64 KiB: base, 7 flags, 16 KiB and more cost the whole overhead, then 7 x 64 KiB leave a GPU.
    costs = with_kernels(load_profile("hgx_h100"), load_library("vllm"), load_topology("hgx_h100")).launches["graph"]
    found = costs.families["peer_one_shot"]["Simple"]
    link_Bps = 450e9 * found.link_share / (7 * 36)
    rate_Bps = 36 * (found.channel_rate_Bps**-found.softness + link_Bps**-found.softness) ** (-1 / found.softness)
    expected_s = found.base_s + 7 * found.peer_overhead_s + found.message_overhead_s + 64 * KIB / rate_Bps
    assert times("vllm", "64K") == pytest.approx([expected_s], rel=1e-6)


def test_a_kernel_has_a_floor_of_its_own():
    [eager] = times("vllm", "256", launch="stream")
    [staged] = times("vllm", "256K", launch="stream")
    [graph] = times("vllm", "256")
    profile = with_kernels(load_profile("hgx_h100"), load_library("vllm"), load_topology("hgx_h100"))
    own = profile.families["peer_one_shot"]["Simple"].floor_s
    assert own != profile.floor_s
    assert eager == pytest.approx(own, rel=1e-3)
    assert staged == pytest.approx(profile.families["peer_multimem"]["Simple"].floor_s, rel=1e-3)
    assert graph < eager / 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("topo", ["hgx_h100", "hgx_b200", "mi300x_ubb8"])
def test_times_of_a_kernel_grow_with_size_and_ranks(engine: str, topo: str):
    sizes = [str(2**power) for power in range(8, 26)]
    for kernel, ranks in (("peer_one_shot", (2, 4, 8)), ("peer_two_shot", (4, 8))):
        by_ranks = [np.array(times(engine, sizes, topo, algo=kernel, ranks=n)) for n in ranks]
        for found in by_ranks:
            assert (np.diff(found) >= 0).all()
        # Of large sizes two shots move little more with more ranks, from more peers at once.
        compared = slice(None) if kernel == "peer_one_shot" else slice(8)
        for fewer, more in pairwise(found[compared] for found in by_ranks):
            assert (more > fewer * 0.999).all()


@pytest.mark.parametrize("size", ["4K", "1M", "64M"])
def test_no_kernel_is_faster_than_the_wires_allow(size: str):
    for engine in ENGINES:
        for row in collsim.simulate("hgx_h100", "all_reduce", size, library=engine, algo="all", **BF16):
            assert row.time_s >= row.lower_bound_s


def test_slower_links_slow_large_calls_down():
    plain, half = (times("sglang", "16M", overrides=more) for more in (None, {"link.bandwidth": "12.5 GB/s"}))
    assert half[0] > plain[0] * 1.8


# Runs


def test_best_takes_the_kernel_and_all_has_a_row_for_each():
    best = collsim.simulate("hgx_h100", "all_reduce", "64K", library="vllm", algo="best", **BF16)
    every = collsim.simulate("hgx_h100", "all_reduce", "64K", library="vllm", algo="all", **BF16)
    times_s = {row.algo: row.time_s for row in every}
    assert times_s["peer_one_shot"] < min(times_s["ring"], times_s["nvls"], times_s["tree"])
    assert {"peer_one_shot", "peer_two_shot", "peer_multimem", "ring", "nvls"} < {row.algo for row in every}
    assert best.rows[0].time_s == min(row.time_s for row in every)


def test_nobody_else_runs_the_kernels():
    every = collsim.simulate("hgx_h100", "all_reduce", "64K", algo="all")
    assert not set(PEER_FAMILIES) & {row.algo for row in every}
    with pytest.raises(UnsupportedError, match="kernel of vllm or sglang or trtllm"):
        collsim.simulate("hgx_h100", "all_reduce", "64K", algo="peer_one_shot", library="nccl-2.28")
    with pytest.raises(UnsupportedError, match="kernel of vllm"):
        collsim.simulate("hgx_h100", "all_reduce", "64K", algo="peer_staged", library="trtllm")
    with pytest.raises(UnsupportedError, match=r"no peer_staged for such calls of 8 ranks"):
        collsim.simulate("hgx_h100", "all_reduce", "64K", algo="peer_staged", library="vllm", **BF16)


def test_a_named_kernel_runs_with_the_blocks_of_its_engine():
    for engine, blocks in (("vllm", 36), ("sglang", 64), ("trtllm", 128)):
        named, own = collsim.simulate(
            "hgx_h100", "all_reduce", "64K", algo=["peer_one_shot", "auto"], library=engine, **BF16
        )
        assert (named.channels, named.time_s) == (blocks, own.time_s)


def test_a_protocol_of_nccl_leaves_the_call_to_nccl():
    [row] = collsim.simulate("hgx_h100", "all_reduce", "64K", library="vllm", proto="LL", **BF16)
    assert (row.algo, row.proto) == ("ring", "LL")
    [row] = collsim.simulate("hgx_h100", "all_reduce", "64K", library="vllm", proto="Simple", **BF16)
    assert row.algo == "peer_one_shot"


def test_a_run_says_what_it_leaves_to_nccl():
    result = collsim.simulate("hgx_h100", "all_reduce", ["64K", "1G"], library="sglang", **BF16)
    assert any("leaves 1 of 2 calls to nccl-2.28" in text for text in result.warnings)
    result = collsim.simulate("mi300x_ubb8", "all_gather", ["64K", "1M"], library="sglang")
    assert any("leaves all 2 calls to rccl-2.28" in text for text in result.warnings)
    result = collsim.simulate("hgx_h100", "all_reduce", "64K", library="sglang", **BF16)
    assert not any("leaves" in text for text in result.warnings)


def test_measured_systems_are_calibrated_and_have_intervals_others_say_whose_constants_hold():
    measured = collsim.simulate("hgx_h100", "all_reduce", "64K", library="vllm", **BF16)
    assert measured.profile["calibrated"]
    assert measured.rows[0].time_lo_s < measured.rows[0].time_s < measured.rows[0].time_hi_s
    for topo in ("hgx_h200", "hgx_b200", "mi300x_ubb8"):
        carried = collsim.simulate(topo, "all_reduce", "64K", library="vllm", **BF16)
        assert not carried.profile["calibrated"]
        assert carried.rows[0].time_lo_s is None
        assert any("where nothing of vllm-0.24.0 was measured" in text for text in carried.warnings)


def test_bare_wires_and_constants_of_ones_own_stay_as_they_are():
    topology, library = load_topology("hgx_h100"), load_library("vllm")
    ideal = load_profile("ideal")
    assert with_kernels(ideal, library, topology) is ideal
    own = replace(load_profile("hgx_h100"), families={"peer_one_shot": {"Simple": Protocol(1e-3, 1e9)}})
    assert with_kernels(own, library, topology).families["peer_one_shot"]["Simple"].message_overhead_s == 1e-3


def test_validate_follows_an_engine(tmp_path: Path):
    log = tmp_path / "vllm.log"
    lines = ["# nThread 1 nGpus 8 minBytes 65536 maxBytes 65536 step: 2(factor)"]
    lines += [f"# Rank {n} Group 0 Pid 1 on host device {n} [0x00] NVIDIA H100 80GB HBM3" for n in range(8)]
    lines += ["65536 32768 bfloat16 sum -1 23.9 2.74 4.80 0 23.9 2.74 4.80 0"]
    log.write_text("\n".join(lines) + "\n")
    checked = collsim.validate(str(log), "hgx_h100", op="all_reduce", library="vllm")
    assert [row.algo for each in checked.logs for row in each.rows] == ["peer_one_shot"]


# Data


def test_every_row_of_the_table_is_of_an_engine_and_a_system_whose_constants_ship():
    with ROWS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 506
    for row in rows:
        assert load_library(f"{row['engine']}-{row['release']}").name == f"{row['engine']}-{row['release']}"
        kernels = with_kernels(load_profile("default"), load_library(row["engine"]), load_topology(row["system"]))
        assert "carried over" not in kernels.title
        assert float(row["time_us"]) > 0


@pytest.mark.parametrize(
    ("engine", "topo", "ranks", "launch"),
    [
        ("vllm", "hgx_h100", 8, "graph"),
        ("vllm", "gb200_nvl72", 4, "graph"),
        ("sglang", "hgx_h100", 4, "stream"),
        ("trtllm", "hgx_b200", 8, "graph"),
    ],
)
def test_shipped_constants_reproduce_what_they_were_fitted_to(engine: str, topo: str, ranks: int, launch: str):
    with ROWS.open(encoding="utf-8") as file:
        key = {"engine": engine, "system": topo, "ranks": str(ranks), "launch": launch}
        rows = [row for row in csv.DictReader(file) if key.items() <= row.items()]
    found = collsim.simulate(
        topo, "all_reduce", [row["size_bytes"] for row in rows], ranks=ranks, dtype="bfloat16", library=engine,
        launch=launch,
    )  # fmt: skip
    own = [
        abs(row.time_s * 1e6 / float(measured["time_us"]) - 1)
        for row, measured in zip(found, rows, strict=True)
        if algorithm(row.op, row.algo).libraries and row.size_bytes <= MIB
    ]
    assert len(own) >= 12
    assert np.median(own) < 0.10


def test_an_unknown_library_names_the_engines_too():
    with pytest.raises(InputError, match="vllm, sglang, trtllm"):
        load_library("oneccl-2021")
