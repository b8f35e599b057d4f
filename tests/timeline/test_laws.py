"""Laws of every replay, on graphs drawn at random."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.core.errors import DeadlockError
from collsim.timeline.analysis import critical_path, overlap_of
from collsim.timeline.gpus import Gpu, gpu_of
from collsim.timeline.graph import Node
from collsim.timeline.replay import compute_rate, fair_shares, replay
from collsim.timeline.trace import COLLECTIVE, MATMUL, MEMORY, STREAM

H200 = gpu_of("NVIDIA H200")
PLAIN = Gpu("plain", "", 132, known=False)


@st.composite
def graphs(draw, gaps=True):
    """Return nodes on up to three streams, each after the one before on its stream and some of those before."""
    nodes, last = [], {}
    for number in range(draw(st.integers(1, 14))):
        stream = draw(st.integers(0, 2))
        kind = COLLECTIVE if stream else draw(st.sampled_from([MATMUL, MEMORY, STREAM]))
        others = draw(st.sets(st.integers(0, max(number - 1, 0)), max_size=2)) if number else set()
        node = Node(
            f"{kind}_{number}",
            kind,
            stream,
            draw(st.floats(1e-6, 1e-2)),
            after=tuple(sorted(others | ({last[stream]} if stream in last else set()))),
            earliest_s=draw(st.floats(0, 1e-2)) if gaps else 0.0,
            gap_s=draw(st.floats(0, 1e-4)) if gaps else 0.0,
            late_s=draw(st.floats(0, 1e-3)) if kind == COLLECTIVE and gaps else 0.0,
            sms=draw(st.integers(1, 32)) if kind == COLLECTIVE else 0,
            full=kind != COLLECTIVE and draw(st.booleans()),
            spare=draw(st.floats(1, 2)) if kind == COLLECTIVE else 1.0,
        )
        nodes.append(node)
        last[stream] = number
    return nodes


@given(graphs())
def test_the_critical_path_sums_to_the_step(nodes):
    run = replay(nodes, H200)
    assert sum(critical_path(nodes, run).values()) == pytest.approx(run.span_s, rel=1e-9)


@given(graphs())
def test_a_stream_runs_one_at_a_time_and_nothing_starts_too_soon(nodes):
    run = replay(nodes, H200)
    for stream in range(3):
        of_stream = [i for i, node in enumerate(nodes) if node.stream == stream]
        for before, after in pairwise(of_stream):
            assert run.start_s[after] >= run.end_s[before] - 1e-12
    for i, node in enumerate(nodes):
        assert run.start_s[i] >= node.earliest_s - 1e-12
        assert all(run.start_s[i] >= run.end_s[j] - 1e-12 for j in node.after)
        assert run.start_s[i] <= run.moving_s[i] <= run.end_s[i]
        assert run.end_s[i] - run.moving_s[i] >= node.work_s * (1 - 1e-9)


@given(graphs())
def test_exposed_communication_is_between_its_bounds(nodes):
    found = overlap_of(nodes, replay(nodes, H200))
    slack = 1e-9
    assert found.exposed_s >= max(0.0, found.communication_s - found.compute_s) - slack
    assert found.exposed_s <= found.communication_s + slack
    assert found.overlap_s <= found.compute_s + slack


@given(graphs(gaps=False))
def test_collectives_of_no_bytes_leave_the_compute(nodes):
    empty = [replace(node, work_s=0.0) if node.kind == COLLECTIVE else replace(node, full=False) for node in nodes]
    kernels = [node.work_s for node in nodes if node.kind != COLLECTIVE]  # all on one stream
    assert replay(empty, H200).span_s == pytest.approx(math.fsum(kernels), rel=1e-9, abs=1e-12)


@settings(max_examples=60)
@given(graphs(gaps=False), st.floats(1.0, 10.0))
def test_a_faster_link_never_lengthens_a_step_without_contention(nodes, faster):
    """With contention it can: docs/timeline.md shows how, and the next test holds the example."""
    plain = [replace(node, full=False, sms=0) for node in nodes]
    quick = [replace(node, work_s=node.work_s / faster) if node.kind == COLLECTIVE else node for node in plain]
    assert replay(quick, PLAIN).span_s <= replay(plain, PLAIN).span_s * (1 + 1e-9)


def test_a_faster_link_may_lengthen_a_step_where_a_collective_misses_its_turn():
    """A collective that is ready a little sooner starts before a product, which then needs one more wave of blocks."""
    gpu = Gpu("one", "", 100, wave_s=2.0)

    def step(first_s):
        return [
            Node("first", COLLECTIVE, 1, first_s, sms=0),
            Node("second", COLLECTIVE, 1, 2.0, after=(0,), sms=50),
            Node("product", MATMUL, 0, 10.0, full=True, earliest_s=1.0),
            Node("norm", MEMORY, 0, 3.0, after=(2,)),
        ]

    slow, fast = (replay(step(first_s), gpu) for first_s in (1.1, 0.9))
    assert slow.span_s == pytest.approx(15.0)
    assert fast.span_s == pytest.approx(16.95)


def test_collectives_hold_multiprocessors_and_kernels_slow_their_channels():
    gpu = Gpu("one", "", 100, copy_slowdown=2.0)
    both = [Node("k", MATMUL, 0, 1.0), Node("c", COLLECTIVE, 1, 0.4, sms=20, spare=1.0)]
    run = replay(both, gpu)
    assert run.end_s[1] == pytest.approx(0.8)
    assert run.end_s[0] == pytest.approx(0.8 + (1.0 - 0.8 * compute_rate(20, gpu)))
    spared = [both[0], replace(both[1], spare=2.0)]
    assert replay(spared, gpu).end_s[1] == pytest.approx(0.4)


def test_a_collective_starts_when_the_kernel_that_fills_the_gpu_ends():
    nodes = [Node("k", MATMUL, 0, 1.0, full=True), Node("c", COLLECTIVE, 1, 0.2, sms=4, earliest_s=0.5)]
    run = replay(nodes, PLAIN)
    assert (run.start_s[1], run.cause[1]) == (1.0, 0)
    nodes[0].full = False
    assert replay(nodes, PLAIN).start_s[1] == 0.5


def test_collectives_that_share_links_take_turns_of_equal_rate():
    nodes = [Node(f"c{i}", COLLECTIVE, i, 1.0, sms=4, call=i, link="nvsw", load=1.0) for i in range(2)]
    run = replay(nodes, PLAIN)
    assert run.end_s == [2.0, 2.0]
    assert fair_shares([{"a": 1.0}, {"a": 0.25}]) == [0.8, 0.8]
    assert fair_shares([{"a": 1.0, "b": 0.5}, {"a": 1.0}, {"b": 0.9}]) == pytest.approx([0.5, 0.5, 0.75 / 0.9])


def test_nodes_that_wait_for_each_other_are_named():
    with pytest.raises(DeadlockError, match="never start"):
        replay([Node("a", MATMUL, 0, 1.0, after=(1,)), Node("b", MATMUL, 1, 1.0, after=(0,))], PLAIN)


@given(st.floats(0.05, 1.0), st.floats(0.3, 3.0))
def test_the_clock_of_a_step_elsewhere_and_back_is_that_of_the_trace(work_s, new_s):
    """Whichever of both steps is measured, the ratio of their clocks is the same."""
    there = H200.speed(work_s, 1.0, new_s)
    assert H200.speed(work_s / there, new_s, 1.0) == pytest.approx(1 / there, rel=1e-9)
    assert (there - 1) * (new_s - 1) >= 0
