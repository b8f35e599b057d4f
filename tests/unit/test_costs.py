"""What protocols cost: soft limits, slices, one-way channels, calls in a row, floors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import collsim
from collsim.collectives import Request, algorithm, algorithms_for
from collsim.collectives.rings import balanced_rings
from collsim.library import Protocol, load_profile
from collsim.library.costs import FAMILIES, STAND_IN, Use, family_of
from collsim.operations import OPERATIONS, operation
from collsim.schedule import verify
from collsim.timing import lower, lower_twice, prepare, time_lowered
from collsim.topology import load_topology

ONE = np.ones(1)
TWO_WAY = np.array([True])


def rate(costs: Protocol, active: float = 1.0, two_way: bool = True, steps: int = 1) -> float:
    use = Use(ONE, ONE * active, 450e9 * ONE, np.array([two_way]), np.array([False]), np.array([False]))
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


def test_a_link_that_is_busy_both_ways_has_a_share_of_its_own():
    costs = Protocol(0.0, 1e12, softness=400.0, link_share=0.9, duplex_share=0.7)
    yes, no = np.array([True]), np.array([False])
    both, one = (Use(ONE, 4 * ONE, 64e9 * ONE, yes, duplex, no) for duplex in (yes, no))
    assert costs.rates_Bps(both, 1)[0] == pytest.approx(0.7 * 16e9, rel=1e-9)
    assert costs.rates_Bps(one, 1)[0] == pytest.approx(0.9 * 16e9, rel=1e-9)
    assert replace(costs, in_turn=True).rates_Bps(one, 1)[0] == pytest.approx(0.9 * 64e9, rel=1e-9)


def test_adding_takes_the_threads_that_move():
    costs = Protocol(0.0, 30e9, reduce_rates_Bps={"bfloat16": 20e9})
    adds = Use(ONE, ONE, 64e9 * ONE, TWO_WAY, np.array([False]), np.array([True]))
    copies = replace(adds, adds=np.array([False]))
    assert costs.rates_Bps(adds, 1, "bfloat16")[0] == pytest.approx(12e9)
    assert costs.rates_Bps(adds, 1, "float")[0] == costs.rates_Bps(copies, 1, "bfloat16")[0] == 30e9


def test_the_last_copy_moves_a_slot_at_most():
    costs = Protocol(0.0, 30e9, fill_rate_Bps=1e9, fill_limit_bytes=2e6)
    assert [costs.fill_s(np.array([size, 1.0])) for size in (1e6, 2e6, 9e6)] == [1e-3, 2e-3, 2e-3]


def test_one_way_channels():
    costs = Protocol(0.0, 20e9, one_way_rate_Bps=35e9)
    assert (rate(costs), rate(costs, two_way=False)) == (20e9, 35e9)


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
    assert {family_of(*pair) for pair in pairs} == set(FAMILIES)


def mesh_use(op: str, algo: str, ranks: int = 8, channels: int = 8, **more: int) -> Use:
    run = prepare(load_topology("mi300x_ubb8"), replace(load_profile("ideal"), latency=False), range(ranks))
    return lower(algorithm(op, algo).build(Request(operation(op), ranks, 2**23, 4, channels=channels, **more)), run).use


def test_channels_on_a_mesh_share_the_link_to_their_peer():
    everyone, shift, pair = (
        mesh_use("all_to_all", "direct"), mesh_use("send_recv", "neighbour"), mesh_use("send_recv", "neighbour", 2),
    )  # fmt: skip
    for use in (everyone, shift, pair):
        assert set(use.active.tolist()) == {8.0}
        assert set(use.alone_Bps.tolist()) == {64e9}
    assert [set(use.duplex.tolist()) for use in (everyone, shift, pair)] == [{True}, {False}, {True}]
    assert set(mesh_use("all_to_all", "direct", peer_channels=2).lanes.tolist()) == {2.0}


def test_ranks_behind_a_switch_share_all_their_links():
    run = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(8))
    use = lower(
        algorithm("all_to_all", "direct").build(Request(operation("all_to_all"), 8, 2**23, channels=8)), run
    ).use
    assert set(use.active.tolist()) == {56.0}
    assert set(use.alone_Bps.tolist()) == {450e9}
    assert not use.duplex.any()


def test_a_family_without_constants_takes_those_of_its_stand_in():
    profile = load_profile("hgx_h100")
    for family, other in STAND_IN.items():
        assert profile.protocol("Simple", family) == profile.protocol("Simple", other)
    mesh = load_profile("mi300x_ubb8")
    assert mesh.protocol("Simple", "direct") != mesh.protocol("Simple", "messages")


def test_pairs_are_one_way_and_a_shift_is_two_way():
    run = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(4))
    size = 2**26
    pairs, shift = np.zeros((4, 4), dtype=np.int64), np.zeros((4, 4), dtype=np.int64)
    for rank in range(4):
        pairs[rank, rank ^ 1] = size
        shift[rank, (rank + 1) % 4] = size
    for matrix, two_way in ((pairs, False), (shift, True)):
        request = Request(operation("all_to_all_v"), 4, size, 1, channels=32, matrix_bytes=matrix)
        lowered = lower(algorithm("all_to_all_v", "nccl_p2p").build(request), run)
        moves = lowered.transfers.src != lowered.transfers.dst
        assert set(lowered.use.two_way[moves].tolist()) == {two_way}


def test_calls_in_a_row_of_a_chain_take_no_depth():
    # k chunks over 3 hops take k + 2 turns; a second call behind the first comes k + 1 turns later: its second rank
    # must have passed on the last chunk. With many chunks that is the time of the bytes alone.
    run = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(4))
    request = Request(operation("broadcast"), 4, 64 * 2**20, 1, channels=1, chunk_bytes=2**20)
    schedule = algorithm("broadcast", "ring").build(request)
    costs = Protocol(0.0, 10e9, back_to_back=True)
    turn_s = 2**20 / 10e9
    assert time_lowered(lower(schedule, run), run, costs).time_s == pytest.approx(66 * turn_s, rel=1e-9)
    in_a_row = time_lowered(lower(schedule, run), run, costs, lower_twice(schedule, run))
    assert in_a_row.time_s == pytest.approx(65 * turn_s, rel=1e-9)


def chain_request(op: str, channels: int, in_turn: bool) -> Request:
    rings = balanced_rings(8)
    return Request(operation(op), 8, 2**24, 4, channels=channels, chunk_bytes=2**16, rings=rings, in_turn=in_turn)


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
@pytest.mark.parametrize("channels", [3, 32, 56])
def test_channels_that_take_turns_move_the_same_bytes(op: str, channels: int):
    step, turn = (algorithm(op, "ring").build(chain_request(op, channels, in_turn)) for in_turn in (False, True))
    verify(turn)
    rows = turn.merged().materialise()
    assert rows.channel.max() + 1 == min(channels, 14)
    assert rows.lanes.max() == -(-channels // 14)
    assert turn.chunks.size_bytes.sum() == step.chunks.size_bytes.sum() == 2**24


def test_channels_that_take_turns_hide_the_depth_of_a_chain():
    # In step, four channels with the same order share every link that they come to; in turn, the first chunk has it to
    # itself while the others follow, so that seven hops cost seven turns of one chunk instead of seven of four.
    run = prepare(load_topology("mi300x_ubb8"), replace(load_profile("ideal"), latency=False), range(8))
    costs = Protocol(0.0, 1e12)
    step, turn = (
        time_lowered(lower(algorithm("reduce", "ring").build(chain_request("reduce", 56, in_turn)), run), run, costs)
        for in_turn in (False, True)
    )
    assert turn.time_s < step.time_s


def test_slots_hide_a_part_of_the_hand_over_of_later_chunks():
    costs = Protocol(4e-6, 1e12, next_overhead_s=1.5e-6)
    waits = costs.latency_s(np.ones(2), np.full(2, 1e9), np.array([False, True]))
    assert waits.tolist() == [4e-6, 1.5e-6]
    assert costs.latency_s(np.ones(2), np.full(2, 1e9)).tolist() == [4e-6, 4e-6]


def test_floor_hides_what_is_short_and_not_what_is_long():
    profile = replace(load_profile("ideal"), floor_s=10e-6)
    tiny, large = collsim.simulate("hgx_h100", "all_reduce", ["64", "1G"], algo="ring", profile=profile).rows
    assert tiny.time_s == pytest.approx(10e-6, rel=1e-6)
    assert large.time_s == pytest.approx(2 * 7 / 8 * 2**30 / 450e9, rel=1e-6)
    assert sum(tiny.critical_s.values()) == pytest.approx(tiny.time_s, rel=1e-6)


def test_the_shipped_profile_is_calibrated_and_says_for_what():
    profile = load_profile("hgx_h100")
    assert profile.calibrated
    assert set(profile.families) == set(FAMILIES) - set(STAND_IN)
    assert "stream launches" in profile.describe()
    for protocols in profile.families.values():
        for costs in protocols.values():
            assert costs.channel_rate_Bps > 1e9
            assert 0 < costs.message_overhead_s < 20e-6


@pytest.mark.parametrize(("ranks", "op"), [(2, "all_reduce"), (4, "all_gather"), (8, "all_to_all"), (8, "broadcast")])
def test_calibrated_times_keep_the_laws(ranks: int, op: str):
    sizes = [2**power for power in range(8, 31, 2)]
    result = collsim.simulate("hgx_h100", op, sizes, ranks=ranks, profile="hgx_h100", library="nccl-2.28")
    assert len(result) == len(sizes)
    for row in result:
        assert row.time_s >= max(row.lower_bound_s, 9e-6)


MESH = {"profile": "mi300x_ubb8", "library": "rccl-2.22"}


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "send_recv", "gather", "reduce", "broadcast"])
def test_times_of_the_mesh_keep_the_laws(op: str):
    rows = collsim.simulate("mi300x_ubb8", op, [2**power for power in range(8, 31, 2)], **MESH).rows
    assert all(row.time_s >= max(row.lower_bound_s, 15e-6) for row in rows)
    assert rows[-1].busbw_Bps > 2 * rows[6].busbw_Bps


def test_large_transfers_of_the_mesh_are_bound_by_its_links():
    # One link of 64 GB/s carries 48.6 one way and 46.55 with all links busy both ways; the channels cost a little more.
    for op, links, least, most in (
        ("send_recv", 1, 47, 50),
        ("all_reduce", 7, 44, 46.55),
        ("all_to_all", 7, 41, 46.55),
    ):
        found = collsim.simulate("mi300x_ubb8", op, "8G", **MESH).busbw_Bps / links / 1e9
        assert least < found < most, op


def test_bfloat16_costs_where_ranks_add():
    times = {
        (op, dtype): collsim.simulate("mi300x_ubb8", op, "1G", dtype=dtype, **MESH).time_s
        for op in ("reduce_scatter", "all_gather")
        for dtype in ("float", "bfloat16")
    }
    assert times["all_gather", "bfloat16"] == times["all_gather", "float"]
    assert 1.02 < times["reduce_scatter", "bfloat16"] / times["reduce_scatter", "float"] < 1.3


@pytest.mark.parametrize(
    ("topo", "more", "calibrated", "word"),
    [
        ("hgx_h100", {"library": "nccl-2.28"}, True, None),
        ("hgx_h100", {}, True, "name one, such as nccl-2.28"),
        ("hgx_h100", {"overrides": {"link.bandwidth": "10 GB/s"}}, False, "fitted to hgx_h100 as shipped, not to this"),
        ("mi355x_ubb8", {}, False, "fitted to hgx_h100 as shipped, not to this"),
        ("mi300x_ubb8", {"profile": "mi300x_ubb8"}, True, "name one, such as rccl-2.22"),
    ],
)
def test_calibrated_is_said_of_the_measured_system_only(topo: str, more: dict, calibrated: bool, word: str | None):
    result = collsim.simulate(topo, "all_reduce", "1M", algo="auto", **{"profile": "hgx_h100", **more})
    assert result.profile["calibrated"] is calibrated
    assert [word in text for text in result.warnings] == ([] if word is None else [True])
