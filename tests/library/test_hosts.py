"""Hosts that start calls: what they change, what they leave alone, and how logs show them."""

import math
import re
from dataclasses import replace

import pytest

from collsim import simulate
from collsim.calibration.logs.reading import read_tests
from collsim.core.errors import InputError
from collsim.library import load_library, load_profile
from collsim.library.costs.hosts import (
    HOSTS,
    _floor,
    around_s,
    as_hosted,
    checked_host,
    host_words,
    in_a_row,
    spread_of,
)


@pytest.fixture(scope="module")
def h100():
    return load_profile("hgx_h100")


def time_s(op="all_reduce", size="256", **options):
    return simulate("hgx_h100", op, size, ranks=2, **options).rows[0].time_s


def test_a_slower_host_starts_short_calls_later_and_leaves_long_ones_alone():
    bare, virtual, slow = (time_s(host=host) for host in ("bare", "virtual", "30us"))
    assert bare < virtual < slow
    assert slow == pytest.approx(30e-6, rel=0.01)
    assert time_s(size="4G", host="30us") == pytest.approx(time_s(size="4G", host="bare"), rel=1e-6)


def test_auto_is_bare_for_shipped_profiles_and_the_own_host_for_a_profile_of_own_logs(h100):
    assert time_s() == time_s(host="bare")
    own = replace(h100, host="")
    assert as_hosted(own) == own
    assert host_words(own, "auto", "stream") == ""


def test_the_host_that_was_measured_keeps_its_floor(h100):
    assert h100.host == "virtual"
    assert replace(as_hosted(h100, "virtual"), thread_launch_s=h100.thread_launch_s) == h100
    ratio = HOSTS["virtual"].slower / HOSTS["bare"].slower
    assert as_hosted(h100, "bare").floor_s == pytest.approx(h100.floor_s / ratio)


def test_further_gpus_of_a_thread_start_later_on_a_slower_host(h100):
    """The figure is one of bare hosts, though the floor of this profile was measured on a virtual machine."""
    assert as_hosted(h100).thread_launch_s == h100.thread_launch_s
    assert as_hosted(h100, "virtual").thread_launch_s == pytest.approx(1.7 * h100.thread_launch_s)
    assert as_hosted(h100, "8us").thread_launch_s == h100.thread_launch_s


def test_few_calls_take_longer_with_and_without_registered_buffers_and_replays_by_their_number(h100):
    few = in_a_row(h100, "nccl-2.28", 2, "stream")
    for launched in ({}, {"registered": True}):
        of, own = (profile.launched("stream", **launched) for profile in (few, h100))
        assert of.launch_s - own.launch_s == pytest.approx(9e-6 * (1 / 2 - 1 / 20))
    assert few.launched("graph") == h100.launched("graph")
    replayed, own = (each.launched("graph") for each in (in_a_row(h100, "nccl-2.28", 100, "graph", 5), h100))
    assert replayed.launch_s - own.launch_s == pytest.approx(25e-6 * (1 / 100 - 1 / 400))
    assert replayed.thread_launch_s == pytest.approx(4 * own.thread_launch_s)
    assert in_a_row(load_profile("ideal"), "nccl-2.28", 2, "stream") == load_profile("ideal")


def test_a_row_of_few_calls_shares_what_lies_around_them():
    """Twenty are usual; more do not take less, as far as is known, and of engines nothing is known."""
    assert around_s("rccl-2.22", 2) == pytest.approx(19e-6 * (1 / 2 - 1 / 20))
    assert around_s("nccl-2.28", 1) == pytest.approx(9e-6 * (1 - 1 / 20))
    assert [around_s("rccl-2.22", calls) for calls in (None, 20, 100)] == [0.0] * 3
    assert around_s("vllm-0.11", 2) == 0.0


def test_calls_in_which_nobody_waits_for_another_host_start_sooner():
    symmetric = time_s("all_reduce", host="virtual")
    for op in ("broadcast", "reduce", "gather", "scatter"):
        assert 0.75 * symmetric < time_s(op, host="virtual") < 0.9 * symmetric
    as_told = [time_s(op, host="20us") for op in ("all_reduce", "reduce", "scatter")]
    assert as_told == pytest.approx([20e-6] * 3, rel=1e-3)


def test_own_logs_have_told_how_long_every_kernel_takes_to_start(h100):
    own = replace(h100, host="")
    assert as_hosted(own, "auto", load_library("nccl-2.32")) == own


def test_a_replayed_graph_leaves_the_host_out():
    assert time_s(launch="graph", host="50us") == time_s(launch="graph", host="bare")


def test_from_a_version_on_collectives_start_later_and_sends_and_broadcasts_do_not():
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        assert time_s(op, library="nccl-2.32", host="virtual") > 1.2 * time_s(op, library="nccl-2.30", host="virtual")
    for op in ("broadcast", "send_recv"):
        assert time_s(op, library="nccl-2.32") == time_s(op, library="nccl-2.30")
    assert time_s(library="nccl-2.32", host="8us") == time_s(library="nccl-2.30", host="8us")  # as told


def test_rows_say_how_much_of_the_time_is_the_host():
    result = simulate("hgx_h100", "all_reduce", ["256", "1G"], ranks=2, host="30us")
    small, large = result.rows
    assert small.host_s == pytest.approx(small.time_s, rel=0.01)
    assert large.host_s < 1e-3 * large.time_s
    assert small.limited_by.startswith("host floor 30 us")
    assert "30 us" in result.profile["host"]
    assert simulate("hgx_h100", "all_reduce", "1G", host="30us").profile["host"] is None


def test_an_assumed_host_makes_an_interval_as_wide_as_hosts_differ(h100):
    kind, told = (simulate("hgx_h100", "all_reduce", "256", ranks=2, host=host).rows[0] for host in ("bare", "6us"))
    assert spread_of(h100.host, "auto") == HOSTS["bare"].spread
    assert spread_of(h100.host, "6us") == spread_of("", "auto") == spread_of(h100.host, h100.host) == 1.0
    assert kind.time_hi_s / kind.time_s >= HOSTS["bare"].spread ** (kind.host_s / kind.time_s) * (1 - 1e-12)
    assert math.log(kind.time_hi_s / kind.time_s) >= math.log(told.time_hi_s / told.time_s) - 1e-12


@pytest.mark.parametrize(("text", "hint"), [("virtul", "virtual"), ("fast", "bare, virtual"), ("8", "8us")])
def test_what_is_no_host_is_refused_with_what_is(text, hint):
    with pytest.raises(InputError) as caught:
        checked_host(text)
    assert hint in (caught.value.faults[0].hint or "").replace("8 us", "8us")


def test_no_bare_wire_has_a_host():
    ideal = load_profile("ideal")
    assert as_hosted(ideal, "virtual", load_library("nccl-2.32")) == ideal


@pytest.mark.parametrize(
    ("device", "virtual"),
    [
        ("device  {} [0000:00:0{}] NVIDIA H100", True),
        ("device  {} [0000:1{}:00] NVIDIA H100", False),
        ("device  {} [0x0{}] NVIDIA H100", False),
        ("device  {} [0002:0{}:00] AMD Instinct MI300X VF", True),
    ],
)
def test_logs_show_a_virtual_machine_by_the_addresses_of_its_gpus(tmp_path, device, virtual):
    ranks = "".join(f"#  Rank  {rank} Group  0 Pid   9 on  node {device.format(rank, rank + 6)}\n" for rank in range(2))
    path = tmp_path / "all_reduce.log"
    path.write_text(f"{ranks}1048576  262144  float  sum  -1  20.00  52.43  52.43  0  19.00  55.19  55.19  0\n")
    assert [test.run.virtual for test in read_tests(path)] == [virtual]


@pytest.mark.parametrize("kind", sorted(HOSTS))
def test_the_floor_of_another_host_says_how_it_follows(kind):
    """What is told of it, so many microseconds times a factor, is the floor itself."""
    profile = load_profile("hgx_h100")
    floor_s, origin = _floor(profile, kind)
    if origin is None:
        assert floor_s == profile.floor_s
        return
    told_us, factor = re.match(r"([\d.]+) us, times ([\d.]+) ", origin.source).groups()
    assert (origin.key, origin.status) == ("floor", "derived")
    assert floor_s == pytest.approx(float(told_us) * float(factor) * 1e-6, rel=5e-3)
