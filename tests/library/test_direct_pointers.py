"""Ranks of one process that write into each other's buffers: which versions let them, what it saves, who says so."""

import numpy as np
import pytest

from collsim import simulate
from collsim.calibration.cases import read_cases
from collsim.library.costs.direct_pointers import with_direct_pointers
from collsim.library.costs.profile_files import load_profile


def time_s(op, size="256M", library="nccl-2.21", **options):
    return simulate("hgx_h200", op, size, ranks=2, library=library, environment={"NCCL_NVLS_ENABLE": "0"}, **options)


@pytest.mark.parametrize("op", ["all_gather", "all_reduce", "send_recv"])
def test_old_versions_stage_nothing_within_a_process(op):
    many, one = (time_s(op, one_process=flag).time_s for flag in (False, True))
    assert 0.6 * many < one < 0.95 * many
    newer = [time_s(op, library="nccl-2.22", one_process=flag).time_s for flag in (False, True)]
    assert newer[0] == newer[1]


def test_lines_and_broadcasts_go_as_ever():
    assert time_s("all_reduce", "4K", one_process=True).time_s == time_s("all_reduce", "4K").time_s
    assert time_s("broadcast", one_process=True).time_s == time_s("broadcast").time_s


def test_the_output_says_so():
    assert "direct pointers" in time_s("all_gather", one_process=True).profile["constants"]
    assert "direct pointers" not in time_s("all_gather").profile["constants"]


@pytest.mark.parametrize(("threads", "gpus", "one"), [(2, 1, True), (1, 2, True), (1, 1, False)])
def test_logs_tell_one_process_by_its_threads_and_gpus(tmp_path, threads, gpus, one):
    path = tmp_path / "all_reduce.log"
    path.write_text(
        f"# nThread {threads} nGpus {gpus} minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
        + "".join(f"#  Rank  {rank} Group  0 Pid   9 on  node device  {rank} [0000:1b:00] H200\n" for rank in range(2))
        + "1048576  262144  float  sum  -1  20.00  52.43  52.43  0  19.00  55.19  55.19  0\n"
    )
    measured, _ = read_cases([path])
    assert [row.case.one_process for row in measured] == [one]


@pytest.mark.parametrize("name", ["hgx_h100", "hgx_b200", "dgx_a100", "mi300x_ubb8"])
def test_rings_wait_for_one_slice_of_the_last_chunk_and_store_at_a_lower_rate(name):
    """Staged rings copy all of the last chunk out; these wait for the second of its two slices."""
    own, direct = (
        profile.families["ring"]["Simple"] for profile in (load_profile(name), with_direct_pointers(load_profile(name)))
    )
    assert direct.channel_rate_Bps == pytest.approx(0.85 * own.channel_rate_Bps)
    staged_s, waited_s = (costs.once_s(np.array([1e6])) - costs.once_s(np.array([0.0])) for costs in (own, direct))
    assert waited_s == pytest.approx(staged_s / 2)
    assert not direct.stepwise


@pytest.mark.parametrize("version", ["2.18", "2.20"])
def test_a_reduce_scatter_is_staged_in_one_process_too(version):
    """NCCL 2.18.3 and 2.20.5, two H200, 64 MiB and 1 GiB: with direct pointers a fifth less was predicted."""
    measured_us = {"2.18": {"64M": 154.0, "1G": 1876.2}, "2.20": {"64M": 159.4, "1G": 1929.0}}[version]
    for size, time_us in measured_us.items():
        library = f"nccl-{version}"
        one, several = (time_s("reduce_scatter", size, library, one_process=told).time_s for told in (True, False))
        assert one == several
        assert one * 1e6 == pytest.approx(time_us, rel=0.1)


@pytest.mark.parametrize(
    ("op", "size", "measured_us"),
    [
        ("all_gather", "32M", 72.9),
        ("all_gather", "256M", 407.5),
        ("all_reduce", "32M", 118.8),
        ("all_reduce", "1G", 2969.4),
    ],
)
def test_times_of_two_h200_in_one_process(op, size, measured_us):
    """NCCL 2.21.5; with the law of several processes they are 15 to 40 % slower."""
    assert time_s(op, size, "nccl-2.21", one_process=True).time_s * 1e6 == pytest.approx(measured_us, rel=0.07)


def both_s(op, size, library="nccl-2.28"):
    return [time_s(op, size, library, launch=launch).time_s for launch in ("stream", "graph")]


@pytest.mark.parametrize(("size", "staged_us", "direct_us"), [("16M", 53.7, 43.3), ("64M", 157.0, 122.5)])
def test_what_a_captured_ring_gathers_lands_in_its_buffers(size, staged_us, direct_us):
    """All-gathers of two H200, NCCL 2.28.9; with the rings of streams they came out 18 and 34 % too slow."""
    assert both_s("all_gather", size) == pytest.approx([staged_us * 1e-6, direct_us * 1e-6], rel=0.09)


def test_a_captured_reduce_scatter_goes_as_ever():
    assert both_s("reduce_scatter", "256M")[1] == pytest.approx(both_s("reduce_scatter", "256M")[0], rel=0.03)


def test_registered_rings_take_fewer_channels():
    rows = {
        (op, launch): time_s(op, "64M", "nccl-2.28", launch=launch).rows[0].channels
        for op in ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce")
        for launch in ("stream", "graph")
    }
    assert {op: channels for (op, launch), channels in rows.items() if launch == "graph"} == {
        "all_reduce": 16, "all_gather": 16, "broadcast": 16, "reduce_scatter": 24, "reduce": 24,
    }  # fmt: skip
    assert {channels for (_, launch), channels in rows.items() if launch == "stream"} == {24}


def test_versions_that_register_no_rings_replay_them_as_ever():
    assert time_s("all_gather", "64M", "nccl-2.22", launch="graph").rows[0].channels == 24
    assert both_s("all_gather", "64M", "nccl-2.22")[1] > 1.1 * both_s("all_gather", "64M")[1]


@pytest.mark.parametrize("ops", [("reduce_scatter", "all_gather"), ("all_reduce", "reduce_scatter", "all_to_all")])
def test_an_operation_takes_as_long_beside_others(ops):
    asked = {"library": "nccl-2.21", "one_process": True, "ranks": 2, "environment": {"NCCL_NVLS_ENABLE": "0"}}
    together = {row.op: row.time_s for row in simulate("hgx_h200", list(ops), "64M", **asked).rows}
    assert together == {op: simulate("hgx_h200", op, "64M", **asked).rows[0].time_s for op in ops}
