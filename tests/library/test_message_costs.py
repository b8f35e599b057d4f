"""Messages: channels of two directions, ports that several share, calls in a row."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from collsim.collectives import ScheduleRequest, algorithm
from collsim.core.operations import operation
from collsim.engine import check_conservation, solve
from collsim.library import Protocol, load_profile
from collsim.library.costs.message_costs import (
    Messages,
    _mean_by_growth,
    _mean_by_walks,
    call_s,
    caps_Bps,
    cycle_mean,
    port_capacity_Bps,
)
from collsim.schedule.message_parts import STEP_BYTES
from collsim.simulation.lowering import lower
from collsim.simulation.problems import problem_of
from collsim.simulation.request.request import ask
from collsim.simulation.runs import prepare
from collsim.simulation.simulate import build_schedule
from collsim.simulation.timing import Timing, time_lowered
from collsim.topology import load_topology

MIB = 2**20
PLAIN = Protocol(0.0, 20e9, one_way_rate_Bps=30e9)
"""Channels that never meet a soft limit."""
RUN = prepare(load_topology("hgx_h100"), load_profile("ideal"), range(4))


def messages(rows: list[tuple[int, int, int, float]], n: int = 4, own_blocks: bool = False) -> Messages:
    """Messages from (src, dst, channel, bytes)."""
    src, dst, channel, size = (np.array(column) for column in zip(*rows, strict=True))
    one = np.ones(len(rows))
    return Messages(n, src, dst, channel, np.zeros_like(src), size.astype(float), one, one, 32, STEP_BYTES, own_blocks)


def timed(matrix: np.ndarray, costs: Protocol) -> Timing:
    """Time a byte matrix among four ranks as the library would cut it."""
    request = ScheduleRequest(
        operation("all_to_all_v"), 4, int(matrix.sum(1).max()), 1, channels=32, matrix_bytes=matrix
    )
    return time_lowered(lower(algorithm("all_to_all_v", "nccl_p2p").build(request), RUN), RUN, costs)


def shifted(size: int, distance: int = 1) -> np.ndarray:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[np.arange(4), (np.arange(4) + distance) % 4] = size
    return matrix


def paired(size: int) -> np.ndarray:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[np.arange(4), np.arange(4) ^ 1] = size
    return matrix


# Channels


def test_a_channel_of_one_direction_takes_the_one_way_rate():
    both_ways = messages([(0, 1, 5, 1.0), (1, 0, 6, 1.0)])  # in different channels
    assert caps_Bps(both_ways, PLAIN).tolist() == [30e9, 30e9]


def test_the_first_chunk_goes_out_alone():
    ring = [(rank, (rank + 1) % 4, 0, 5.0 * STEP_BYTES) for rank in range(4)]
    expected = 5 / (1 / 30e9 + 4 / 20e9)
    assert caps_Bps(messages(ring), PLAIN) == pytest.approx([expected] * 4)
    assert caps_Bps(messages([(*row[:3], 4096.0) for row in ring]), PLAIN) == pytest.approx([30e9] * 4)


def test_chunks_are_as_long_as_the_library_says():
    request = ScheduleRequest(operation("send_recv"), 4, MIB, 1, channels=32, peer_step_bytes=128 * 1024)
    lowered = lower(algorithm("send_recv", "nccl_p2p").build(request), RUN)
    chunk_s, part = 128 * 1024 / 30e9, MIB / 8  # one chunk each: out alone, then copied out alone
    assert len(lowered.size_bytes) == 4
    assert lowered.size_bytes[0] == part
    assert time_lowered(lowered, RUN, PLAIN).time_s == pytest.approx(2 * chunk_s, rel=1e-6)


def test_a_direction_goes_on_faster_when_the_other_is_done():
    long, short = 9.0 * STEP_BYTES, 3.0 * STEP_BYTES
    unequal = messages([(0, 1, 0, long), (3, 0, 0, short)])  # rank 0 sends more than it receives
    expected_s = 2 * STEP_BYTES / 20e9 + 7 * STEP_BYTES / 30e9
    assert caps_Bps(unequal, PLAIN)[0] == pytest.approx(long / expected_s)


def test_the_slower_end_counts():
    busy_receiver = messages([(0, 1, 0, 1e9), (1, 2, 0, 1e9)])  # rank 0 only sends, rank 1 does both in one round
    assert caps_Bps(busy_receiver, PLAIN) == pytest.approx([20e9, 20e9], rel=1e-3)


def test_messages_at_once_share_a_channel():
    alone = messages([(0, 1, 0, 1e9)])
    two = messages([(0, 1, 0, 1e9), (0, 2, 0, 1e9)])
    assert caps_Bps(two, PLAIN) == pytest.approx(caps_Bps(alone, PLAIN)[0] / 2)


# Ports


def test_channels_and_port_meet_softly():
    costs = replace(PLAIN, softness=2.0, link_share=0.8)
    port = port_capacity_Bps(messages([(0, 1, 0, 1e9)]), np.array([80e9]), costs, 100e9)
    assert port[[0, 5]] == pytest.approx(80e9 / math.sqrt(2))  # out of rank 0 and into rank 1
    assert port[[1, 4]] == pytest.approx(80e9)


@pytest.mark.parametrize("softness", [1.0, 2.5, 6.0, math.inf])
def test_a_port_never_exceeds_its_line_rate_or_what_is_offered(softness: float):
    rng = np.random.default_rng(1)
    costs = replace(PLAIN, softness=softness, link_share=0.9, contention=0.2)
    rows = [(src, dst, dst, rng.uniform(1, 1e9)) for src in range(4) for dst in range(4) if src != dst]
    group, rates = messages(rows), rng.uniform(1e9, 80e9, 12)
    port = port_capacity_Bps(group, rates, costs, 100e9)
    assert np.all(port > 0)
    assert np.all(port <= 90e9)
    if math.isfinite(softness):
        assert np.all(port < group.at_ports(rates))


def test_only_ports_of_several_ranks_contend():
    costs = replace(PLAIN, contention=0.1)

    def lost(group: Messages) -> list[float]:
        rates = np.full(len(group.src), 1e12)
        return (1 - port_capacity_Bps(group, rates, costs, 1.0)).round(6).tolist()

    def everyone(parts: int) -> Messages:
        ends = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
        return messages([(*pair, channel, 1e6) for pair in ends for channel in range(parts)])

    assert lost(everyone(3)) == pytest.approx([0.1 / 3] * 8, abs=1e-6)  # nine flows a port
    assert lost(everyone(12)) == pytest.approx([0.1 / 6] * 8, abs=1e-6)
    assert lost(messages([(0, 1, 0, 1e6), (1, 0, 0, 1e6)], 2)) == [0.0] * 4
    assert lost(messages([(0, 1, 0, 1e6), (1, 0, 0, 1e6)], 2, own_blocks=True)) == pytest.approx([0.1] * 4)
    assert lost(messages([(src, 0, src, 1e6) for src in (1, 2, 3)])) == [0.0] * 8


def test_a_busy_port_loses_while_others_are_crowded():
    costs = replace(PLAIN, contention=0.1)
    rows = [(src, dst, dst, 1e6 if dst else 8e6) for src in range(4) for dst in range(4) if src != dst]
    port = port_capacity_Bps(messages(rows), np.full(12, 1e12), costs, 1.0)
    # 24 MB go into rank 0. Its sources are crowded for three turns of 1 MB, one of which is its own.
    assert port[4] == pytest.approx(1 - 0.1 / math.sqrt(3) * 3 / 24, rel=1e-6)


# Calls in a row


def period(rows: list[tuple[int, int, int, float]], finish_s: list[float], costs: Protocol) -> float:
    group = messages(rows)
    rates = np.full(len(rows), 10e9)
    return call_s(group, np.array(finish_s), rates, np.full(8, 100e9), costs)


BASE = replace(PLAIN, base_s=10e-6)
DRAIN_S = STEP_BYTES / 30e9


def test_ranks_that_wait_for_each_other_pay_base_and_drain():
    ring = [(rank, (rank + 1) % 4, 0, 1e6) for rank in range(4)]
    assert period(ring, [50e-6] * 4, BASE) == pytest.approx(60e-6 + DRAIN_S)
    one_late = [100e-6, 40e-6, 30e-6, 40e-6]  # its sender sets the pace alone: the mean of all is 52.5 us and the drain
    assert period(ring, one_late, BASE) == pytest.approx(110e-6)


def test_channels_take_time_as_if_every_rank_got_a_message():
    costs = replace(BASE, channel_overhead_s=1e-6)
    for parts, channels in ((1, 4), (3, 12), (20, 32)):  # there are 32
        rows = [(src, 0, 20 * src + part, 1e5) for src in (1, 2, 3) for part in range(parts)]
        finish_s = [1e-6] * len(rows)
        assert period(rows, finish_s, costs) - period(rows, finish_s, BASE) == pytest.approx(channels * 1e-6)


def test_without_staging_nothing_is_copied_out():
    ring = [(rank, (rank + 1) % 4, 0, 1e6) for rank in range(4)]
    assert period(ring, [50e-6] * 4, replace(BASE, zero_copy=True)) == pytest.approx(60e-6)


def test_memory_may_be_faster_than_the_port_that_is_copied_from():
    ring = [(rank, (rank + 1) % 4, 0, 1e6) for rank in range(4)]
    costs = replace(BASE, copy_out_rate_Bps=60e9)
    assert period(ring, [50e-6] * 4, costs) == pytest.approx(60e-6 + DRAIN_S / 2)


def test_a_rank_that_only_receives_is_as_fast_as_its_port():
    incast = [(src, 0, src, 1e6) for src in (1, 2, 3)]
    assert period(incast, [300e-6] * 3, BASE) == pytest.approx(300e-6)
    assert period(incast, [30e-6] * 3, BASE) == pytest.approx(10e-6 + 1e6 / 10e9)  # its senders' own time


def test_mean_weight_of_cycles():
    none = -math.inf
    assert cycle_mean(np.array([[none, 3.0], [none, none]])) == none
    assert cycle_mean(np.array([[1.0, 9.0, none], [none, none, 6.0], [3.0, none, 5.0]])) == pytest.approx(6.0)


# Whole calls


def test_pairs_are_faster_than_a_shift():
    """A pair exchanges in rounds 1 and 3, on different channels; a shift sends and receives on the same ones."""
    size = 64 * MIB
    assert timed(paired(size), PLAIN).time_s == pytest.approx(size / 8 / 30e9 + DRAIN_S, rel=1e-6)
    chunks = size // 8 // STEP_BYTES
    shift_s = STEP_BYTES / 30e9 + (chunks - 1) * STEP_BYTES / 20e9 + DRAIN_S
    assert timed(shifted(size), PLAIN).time_s == pytest.approx(shift_s, rel=1e-6)


def test_both_engines_agree_on_ports():
    rng = np.random.default_rng(5)
    costs = replace(BASE, softness=4.0, link_share=0.8, contention=0.1)
    matrix = rng.integers(1, 32 * MIB, (4, 4))
    request = ScheduleRequest(
        operation("all_to_all_v"), 4, int(matrix.sum(1).max()), 1, channels=32, matrix_bytes=matrix
    )
    problem = problem_of(lower(algorithm("all_to_all_v", "nccl_p2p").build(request), RUN), RUN, costs)
    assert len(problem.capacity_Bps) == len(RUN.trunk_capacity_Bps) + 2 * 4
    one, other = (solve(problem, engine=engine) for engine in ("reference", "kernel"))
    assert other.finish_s == pytest.approx(one.finish_s, rel=1e-9)
    assert check_conservation(problem, one) == check_conservation(problem, other) == []


@pytest.mark.parametrize("seed", range(4))
def test_random_matrices_keep_the_laws(seed: int):
    """Conservation and bounds are checked inside; ranks may be renumbered, and more bytes never take less."""
    rng = np.random.default_rng(seed)
    costs = replace(BASE, softness=4.0, link_share=0.8, contention=0.1)
    matrix = rng.integers(0, 32 * MIB, (4, 4)) * (rng.random((4, 4)) < 0.8)
    np.fill_diagonal(matrix, 0)
    timing = timed(matrix, costs)
    port_Bps = 0.8 * 450e9
    assert timing.time_s >= max(matrix.sum(0).max(), matrix.sum(1).max()) / port_Bps
    assert sum(timing.critical_s.values()) == pytest.approx(timing.time_s)
    turned = np.roll(matrix, (1, 1), axis=(0, 1))
    assert timed(turned, costs).time_s == pytest.approx(timing.time_s, rel=1e-9)
    assert timed(2 * matrix, costs).time_s > timing.time_s


def test_a_byte_matrix_of_equal_blocks_is_as_fast_as_an_all_to_all():
    size = 16 * MIB
    costs = replace(BASE, softness=4.0, contention=0.1)
    request = ScheduleRequest(operation("all_to_all"), 4, 4 * size, 1, channels=32)
    uniform = time_lowered(lower(algorithm("all_to_all", "nccl_p2p").build(request), RUN), RUN, costs)
    assert timed(np.full((4, 4), size), costs).time_s == pytest.approx(uniform.time_s, rel=1e-9)


def test_messages_over_nodes_are_cut_and_timed_by_the_same_slot():
    topology, profile = load_topology("hgx_h100", scale_out={"nodes": 2}), load_profile("hgx_h100")
    for op in ("all_to_all", "send_recv", "gather", "scatter"):
        schedule = build_schedule(topology, profile, ask(op, "64M", "nccl_p2p"), [list(range(16))])
        assert schedule.parameters["step_bytes"] == 128 * 2**10, op


def test_a_cycle_that_nobody_reaches_from_elsewhere():
    """Ranks without messages have no walk to them, which is no number to subtract."""
    weights = np.full((3, 3), -np.inf)
    weights[0, 0], weights[0, 1] = 2.0, 7.0
    assert cycle_mean(weights) == 2.0
    assert cycle_mean(np.full((2, 2), -np.inf)) == -np.inf


def started_s(op: str, ranks: int, costs: Protocol, channels: int = 32, topo: str = "hgx_h100") -> float:
    """Time of the smallest messages, to every other rank or to a neighbour."""
    run = prepare(load_topology(topo), load_profile("ideal"), range(ranks))
    request = ScheduleRequest(operation(op), ranks, 16 * ranks, 1, channels=channels)
    return time_lowered(lower(algorithm(op, "nccl_p2p").build(request), run), run, costs).time_s


def test_every_peer_of_a_rank_costs_once_and_no_more_than_there_are_channels():
    costs = Protocol(0.0, 20e9, peer_overhead_s=1e-6)
    for ranks, channels, peers in ((2, 32, 1), (8, 32, 7), (8, 4, 4)):
        assert started_s("all_to_all", ranks, costs, channels) == pytest.approx(peers * 1e-6, rel=0.01)
    assert started_s("send_recv", 8, costs) == pytest.approx(1e-6, rel=0.01)


@pytest.mark.parametrize("seed", range(40))
def test_few_rounds_find_the_mean_that_all_walks_find(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    weights = rng.random((n, n)) * 10.0 ** rng.integers(-6, 3)
    if seed % 2:
        weights[rng.random((n, n)) < rng.random()] = -np.inf
    found = _mean_by_growth(weights, 10 * n)
    assert found == pytest.approx(_mean_by_walks(weights), rel=1e-12)


def test_rounds_that_are_too_few_decide_nothing():
    ring = np.full((100, 100), -np.inf)
    ring[np.arange(100), (np.arange(100) + 1) % 100] = np.random.default_rng(1).random(100)
    assert _mean_by_growth(ring, 3) is None
    assert cycle_mean(ring) == pytest.approx(ring[np.isfinite(ring)].mean(), rel=1e-12)
