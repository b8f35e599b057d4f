"""What protocols cost: soft limits, slices, one-way channels, calls in a row, floors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import collsim
from collsim.collectives import ScheduleRequest, algorithm, algorithms_for, family_of
from collsim.core.operations import OPERATIONS, operation
from collsim.library import Protocol, load_profile
from collsim.library.costs.channel_costs import FAMILIES, PEER_FAMILIES, STAND_IN, Use
from collsim.simulation.demand import stores_of
from collsim.simulation.lowering import lower
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_lowered
from collsim.topology import load_topology

ONE = np.ones(1)


def rate(costs: Protocol, active: float = 1.0, steps: int = 1) -> float:
    use = Use(ONE, ONE * active, ONE * 450e9, ONE < 0, ONE < 0)
    return float(costs.rates_Bps(use, steps)[0])


def test_plain_costs_are_the_channel_rate():
    assert rate(Protocol(1e-6, 30e9)) == 30e9
    assert Protocol(1e-6, 30e9).latency_s(np.array([0.0, 1e6]), np.array([30e9, 30e9])).tolist() == [1e-6, 1e-6]


def test_soft_limits_meet_at_the_root_of_two():
    # Equal limits and softness 2: the rate is either limit over the square root of two.
    costs = Protocol(0.0, 45e9, softness=2.0)
    assert rate(costs, active=10) == pytest.approx(45e9 / math.sqrt(2), rel=1e-12)
    assert rate(replace(costs, softness=400.0), active=100) == pytest.approx(4.5e9, rel=1e-9)
    assert rate(replace(costs, wire_efficiency=0.5), active=1e-3) == pytest.approx(45e9, rel=1e-6)


def test_last_step_of_a_ring_only_copies():
    assert rate(Protocol(0.0, 30e9, stepwise=True), steps=14) == pytest.approx(30e9 * 14 / 15)


def test_a_copy_inside_the_gpu_takes_less_than_a_step():
    # Fourteen steps of 10 us each and a copy of 4 us: 140 of 144 us are steps.
    costs = Protocol(0.0, 12e9, stepwise=True, copy_out_rate_Bps=30e9)
    assert rate(costs, steps=14) == pytest.approx(12e9 * 140 / 144)
    assert rate(replace(costs, copy_out_rate_Bps=12e9), steps=14) == rate(Protocol(0.0, 12e9, stepwise=True), steps=14)


def test_what_a_ring_in_registered_buffers_keeps_is_stored_once():
    """Of three gathering steps one stores twice: a byte takes 25 ps in each, and a third of 20 more."""
    costs = Protocol(0.0, 30e9, stepwise=True, one_way_rate_Bps=40e9, keep_rate_Bps=50e9, zero_copy=True)
    use = Use(ONE, ONE, ONE * 450e9, ONE < 0, ONE < 0)
    assert costs.rates_Bps(use, 3, gathered=3)[0] == pytest.approx(1e12 / (25 + 20 / 3))
    assert costs.rates_Bps(replace(use, adds=ONE > 0), 6, gathered=3)[0] == pytest.approx(40e9)
    assert costs.rates_Bps(replace(use, adds=ONE > 0), 3)[0] == rate(Protocol(0.0, 30e9, stepwise=True), steps=3)


def test_a_reduce_of_two_waits_for_nobody():
    """Two H200, NCCL 2.28.9, 2 MiB: 17 us, where it was 24; a broadcast waits for its hand-over."""
    costs = load_profile("hgx_h100").families["rooted"]["Simple"]
    waits = {
        (op, n): sum(
            limit.time_s for limit in collsim.simulate(
                "hgx_h100", op, "2M", ranks=n, environment={"NCCL_NVLS_ENABLE": "0"}
            ).rows[0].limits if limit.name == "message_overhead"
        )
        for op in ("reduce", "broadcast") for n in (2, 4)
    }  # fmt: skip
    assert waits["reduce", 2] == 0
    assert [waits[case] for case in waits if case != ("reduce", 2)] == pytest.approx(
        [costs.message_overhead_s] * 3, rel=1e-4
    )


def test_elements_of_a_line_are_stored_one_by_one():
    costs = Protocol(1e-6, 30e9, store_overhead_s=32e-9)
    sizes, speed = np.array([2048.0, 4096.0, 65536.0]), np.full(3, 30e9)
    assert costs.latency_s(sizes, speed, 6.0) == pytest.approx([1e-6 + 96e-9, 1e-6 + 192e-9, 1e-6 + 192e-9])
    assert costs.latency_s(sizes, speed, -1.0)[1] == pytest.approx(1e-6 - 32e-9)
    assert Protocol(1e-9, 30e9, store_overhead_s=32e-9).latency_s(sizes, speed, -1.0).min() == 0.0


@pytest.mark.parametrize(
    ("op", "dtype", "stores"),
    [
        ("all_gather", "float", [6] * 7),  # a kernel of bytes, whatever the type
        ("reduce_scatter", "int8", [0] * 6 + [6]),  # what is added goes on as whole lines, until the sum is complete
        ("all_reduce", "float", [0] * 14),
        ("all_reduce", "int8", [0] * 6 + [6] * 8),
        ("all_reduce", "half", [0] * 6 + [2] * 8),
        ("all_reduce", "double", [0] * 6 + [-1] * 8),
    ],
)
def test_receivers_that_keep_what_they_get_store_elements(op: str, dtype: str, stores: list[int]):
    request = ScheduleRequest(operation(op), 8, 1 << 20)
    run = prepare(load_topology("hgx_h100"), load_profile("hgx_h100"), range(8))
    lowered = lower(algorithm(op, "ring").build(request), run, dtype)
    by_step = {int(step): float(n) for step, n in zip(lowered.transfers.step, stores_of(lowered), strict=True)}
    assert [by_step[step] for step in sorted(by_step)] == stores


@pytest.mark.parametrize("op", ["all_gather", "all_reduce", "broadcast"])
def test_bytes_take_as_long_as_floats_or_longer_with_ll(op: str):
    told = {"environment": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}, "ranks": 8}
    times = {d: collsim.simulate("hgx_h100", op, 1 << 18, dtype=d, **told).rows[0].time_s for d in ("float", "int8")}
    assert times["int8"] > times["float"] if op == "all_reduce" else times["int8"] == times["float"]


def test_overhead_grows_from_small_chunks_to_large():
    costs = Protocol(5e-6, 30e9, small_overhead_s=3e-6)
    waits = costs.latency_s(np.array([1.0, 2.0**11, 2.0**12.5, 2.0**14, 1e9]), np.full(5, 30e9))
    assert waits == pytest.approx([3e-6, 3e-6, 4e-6, 5e-6, 5e-6])


def test_a_step_takes_the_longer_of_slices_and_hand_over():
    # A slice of 100 us: two slices with 1 us each take 202 us, one slice and the hand-over 105 us.
    costs = Protocol(5e-6, 30e9, slice_overhead_s=1e-6)
    size, speed = np.array([30e9 * 200e-6]), np.array([30e9])
    expected = (202e-6**6 + 105e-6**6) ** (1 / 6) - 200e-6
    assert costs.latency_s(size, speed)[0] == pytest.approx(expected, rel=1e-9)
    assert costs.latency_s(np.array([3e3]), speed)[0] == pytest.approx(5e-6 - 0.05e-6, rel=0.01)


def test_every_operation_and_algorithm_has_a_family():
    pairs = [(op, entry.name) for op in OPERATIONS for entry in algorithms_for(op)]
    assert {family_of(*pair) for pair in pairs} == {*FAMILIES, *PEER_FAMILIES}


def broadcast_on_one_channel(costs: Protocol, size_bytes: int, chunk_bytes: int, ranks: int = 4) -> float:
    run = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(ranks))
    request = ScheduleRequest(operation("broadcast"), ranks, size_bytes, 1, channels=1, chunk_bytes=chunk_bytes)
    return time_lowered(lower(algorithm("broadcast", "ring").build(request), run), run, costs).time_s


def test_calls_in_a_row_of_a_chain_take_no_depth():
    # 64 chunks over 3 hops take 66 turns; in a row, every rank sends for 64 turns, however many ranks there are.
    costs, turn_s = Protocol(0.0, 10e9), 2**20 / 10e9
    assert broadcast_on_one_channel(costs, 64 * 2**20, 2**20) == pytest.approx(66 * turn_s, rel=1e-9)
    for ranks in (2, 4, 8):
        in_a_row = broadcast_on_one_channel(replace(costs, back_to_back=True), 64 * 2**20, 2**20, ranks)
        assert in_a_row == pytest.approx(64 * turn_s, rel=1e-9)


def test_calls_in_a_row_wait_for_one_hand_over_and_pay_each_chunk():
    costs = Protocol(5e-6, 10e9, base_s=11e-6, slice_overhead_s=1e-6, back_to_back=True)
    expected_s = 11e-6 + 5e-6 + 64 * (2**20 / 10e9 + 1e-6)
    assert broadcast_on_one_channel(costs, 64 * 2**20, 2**20) == pytest.approx(expected_s, rel=1e-9)


def test_empty_chunks_take_of_the_start_but_no_more_than_all_of_it():
    costs = Protocol(0.0, 10e9, base_s=12e-6, empty_overhead_s=1e-6)
    assert [costs.start_s(empty) for empty in (0, 7, 20)] == pytest.approx([12e-6, 5e-6, 0.0])
    assert costs.once_s(np.array([0.0]), empty_chunks=7) == pytest.approx(5e-6)


def test_fewer_threads_start_sooner():
    """An eighth of them start at the base; from the size on that all of them serve, the whole overhead is added."""
    costs = Protocol(0.0, 10e9, base_s=7e-6, threads_overhead_s=3.5e-6, threads_full_bytes=32768)
    times_s = [costs.once_s(np.array([0.0]), call_bytes=size) for size in (8, 4096, 16384, 32768, 2**30)]
    assert times_s == pytest.approx([7e-6, 7e-6, 8.5e-6, 10.5e-6, 10.5e-6])
    assert Protocol(0.0, 10e9, base_s=7e-6).once_s(np.array([0.0]), call_bytes=8) == 7e-6


def test_a_call_waits_for_the_last_of_its_channels():
    """Every doubling of the channels adds the same."""
    costs = Protocol(0.0, 10e9, base_s=7e-6, last_channel_overhead_s=0.25e-6)
    times_s = [costs.once_s(np.array([0.0]), channels=count) for count in (1, 2, 8, 32)]
    assert times_s == pytest.approx([7e-6, 7.25e-6, 7.75e-6, 8.25e-6])


def test_rings_of_blackwell_wait_for_the_last_of_the_channels_that_they_run_on():
    profile, run = load_profile("hgx_b200"), {"rank_list": [0, 1], "library": "nccl-2.29"}
    costs = profile.families["ring"]["LL"]
    ring = {**profile.families["ring"], "LL": replace(costs, last_channel_overhead_s=0.0)}
    told = [replace(profile, floor_s=0.0), replace(profile, floor_s=0.0, families={**profile.families, "ring": ring})]
    for size, doublings in ((8192, 0), (16384, 1), (131072, 4)):  # 4 KiB of a block on every channel
        with_s, without_s = (
            collsim.simulate("hgx_b200", "reduce_scatter", size, profile=each, **run).rows[0].time_s for each in told
        )
        assert with_s - without_s == pytest.approx(doublings * costs.last_channel_overhead_s, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("proto", ["LL", "LL128", "Simple"])
def test_nccl_is_done_sooner_where_chunks_are_empty(proto):
    """Eight bytes leave three of four chunks empty, 64 none; they are one line each."""
    costs = load_profile("hgx_h100").launches["graph"].families["ring"][proto]
    words = {"NCCL_ALGO": "Ring", "NCCL_PROTO": proto}
    run = {"rank_list": [0, 1, 2, 3], "launch": "graph", "environment": words}
    few_s, all_s = (collsim.simulate("hgx_h100", "all_reduce", size, **run).rows[0].time_s for size in (8, 64))
    assert costs.empty_overhead_s > 0
    assert all_s - few_s == pytest.approx(3 * costs.empty_overhead_s, rel=0.1)


def test_a_ring_that_only_gathers_waits_for_addresses_where_bytes_land_there():
    costs = Protocol(0.0, 10e9, base_s=7e-6, exchange_overhead_s=1.5e-6, zero_copy=True)
    start_s = [costs.once_s(np.array([0.0]), gathers=gathers) for gathers in (False, True)]
    assert start_s == pytest.approx([7e-6, 8.5e-6])
    assert replace(costs, zero_copy=False).once_s(np.array([0.0]), gathers=True) == 7e-6


@pytest.mark.parametrize(
    ("op", "size", "empty"),
    [("all_reduce", 8, 7), ("all_reduce", 72, 3), ("all_reduce", 128, 0), ("all_gather", 128, 0)],
)
def test_a_rings_all_reduce_of_few_bytes_has_empty_chunks(op, size, empty):
    """A chunk has 16 bytes at least. Without the law the same ring takes 1.05 us more for each."""
    profile = load_profile("mi300x_ubb8")
    rings = {proto: replace(costs, empty_overhead_s=0.0) for proto, costs in profile.families["ring"].items()}
    full = replace(profile, floor_s=0.0, families={**profile.families, "ring": rings})
    took_s, full_s = (
        collsim.simulate("mi300x_ubb8", op, size, profile=one).rows[0].time_s
        for one in (replace(profile, floor_s=0.0), full)
    )
    assert full_s - took_s == pytest.approx(1.05e-6 * empty, abs=1e-12)


def test_flags_let_a_chunk_through_while_it_arrives():
    # The bytes take 10 us: with flags a step takes less than both together and more than the longer of them,
    # (10^1.5 + 1^1.5)^(2/3) = 10.2097 us and (10^1.5 + 100^1.5)^(2/3) = 102.0973 us; without flags it takes both.
    size, speed = np.array([1e5]), np.array([10e9])
    for overhead_s, extra_s in ((1e-6, 0.2097e-6), (100e-6, 92.0973e-6)):
        costs = Protocol(overhead_s, 10e9, cut_through=True)
        assert costs.latency_s(size, speed)[0] == pytest.approx(extra_s, abs=1e-10)
        assert replace(costs, cut_through=False).latency_s(size, speed)[0] == overhead_s
    assert Protocol(0.0, 10e9, cut_through=True).latency_s(size, speed)[0] == pytest.approx(0.0, abs=1e-10)


def test_a_ring_loses_one_step_in_every_loop():
    # All-gather on two ranks: a step that sends and one that copies out, in each of 8 loops. Half of the rate is left.
    run = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(2))
    costs = Protocol(0.0, 10e9, stepwise=True)
    for loops in (1, 8):
        request = ScheduleRequest(operation("all_gather"), 2, 2 * loops * 2**20, 1, channels=1, chunk_bytes=2**20)
        lowered = lower(algorithm("all_gather", "ring").build(request), run)
        assert time_lowered(lowered, run, costs).time_s == pytest.approx(loops * 2**20 / 5e9, rel=1e-9)


def test_a_lone_chunk_has_the_link_to_itself_and_a_full_pipeline_shares_it():
    # In a chain of four, two ranks send up and down. One chunk at a time is never in two places.
    run = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(4))
    for chunks, busiest in ((1, 1.0), (64, 2.0)):
        request = ScheduleRequest(operation("all_reduce"), 4, chunks * 2**20, 1, channels=1, chunk_bytes=2**20)
        assert lower(algorithm("all_reduce", "chain").build(request), run).use.active.max() == busiest


def test_floor_hides_what_is_short_and_not_what_is_long():
    profile = replace(load_profile("ideal"), floor_s=10e-6)
    tiny, large = collsim.simulate("hgx_h100", "all_reduce", ["64", "1G"], algo="ring", profile=profile).rows
    assert tiny.time_s == pytest.approx(10e-6, rel=1e-6)
    assert large.time_s == pytest.approx(2 * 7 / 8 * 2**30 / 450e9, rel=1e-6)
    assert sum(tiny.critical_s.values()) == pytest.approx(tiny.time_s, rel=1e-6)


def test_the_shipped_profile_is_calibrated_and_says_for_what():
    profile = load_profile("hgx_h100")
    assert profile.calibrated
    assert {STAND_IN.get(family, family) for family in FAMILIES} == set(profile.families) - set(STAND_IN)
    assert "fitted to" in profile.describe()
    for protocols in profile.families.values():
        for costs in protocols.values():
            assert costs.channel_rate_Bps > 1e9
            assert 0 <= costs.message_overhead_s < 20e-6


@pytest.mark.parametrize(("ranks", "op"), [(2, "all_reduce"), (4, "all_gather"), (8, "all_to_all"), (8, "broadcast")])
def test_calibrated_times_keep_the_laws(ranks: int, op: str):
    sizes = [2**power for power in range(8, 31, 2)]
    result = collsim.simulate("hgx_h100", op, sizes, ranks=ranks, library="nccl-2.28", host="virtual")
    assert len(result) == len(sizes)
    for row in result:
        assert row.time_s >= max(row.lower_bound_s, 8e-6)  # NCCL's kernels with a root start sooner than others


@pytest.mark.parametrize(
    ("topo", "more", "calibrated", "word"),
    [
        ("hgx_h100", {"library": "nccl-2.28"}, True, None),
        ("hgx_h100", {}, True, None),
        (
            "hgx_h100",
            {"overrides": {"link.bandwidth": "10 GB/s"}},
            False,
            "fitted to hgx_h100 or h100_rail as shipped, not to this",
        ),
        ("hgx_h100", {"nodes": 1, "fabric": "rail"}, True, None),
        ("hgx_h100", {"overrides": {"nic.bandwidth": "800 Gb/s"}}, True, "changes nothing within one node"),
        ("hgx_h100", {"algo": "ring"}, True, None),
    ],
)
def test_calibrated_is_said_of_the_measured_system_only(topo: str, more: dict, calibrated: bool, word: str | None):
    result = collsim.simulate(topo, "all_reduce", "1M", **{"algo": "auto"} | more, profile="hgx_h100")
    assert result.profile["calibrated"] is calibrated
    assert (result.rows[0].time_lo_s is not None) is (calibrated and "algo" not in more)
    assert [word in text for text in result.warnings] == ([] if word is None else [True])
