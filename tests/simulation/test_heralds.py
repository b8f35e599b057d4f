"""Chains over nodes whose lines are passed on as they come, against the same hop by hop, by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest

from collsim import simulate
from collsim.collectives import algorithm
from collsim.collectives.algorithm import ScheduleRequest
from collsim.core.operations import operation
from collsim.engine import solve
from collsim.library import load_profile
from collsim.library.costs.hosts import USUAL_CALLS
from collsim.simulation.calls_in_a_row import busiest
from collsim.simulation.heralds import passes_lines
from collsim.simulation.lowering import lower
from collsim.simulation.problems import problem_of
from collsim.simulation.runs import prepare
from collsim.simulation.timing import kernel_costs
from collsim.topology import load_topology

CHUNK = 480_000
FIRST = {"LL": 4096, "LL128": 1920}


def laid(proto, op="broadcast", chunks=1, nodes=2, channels=1):
    """A call of whole chunks on each channel, with its costs inside a node and between nodes."""
    topology = load_topology("hgx_h100", scale_out={"nodes": nodes})
    profile = load_profile("auto", topology)
    run = prepare(topology, profile)
    ranks, size = topology.n_gpus, chunks * channels * CHUNK
    request = ScheduleRequest(operation(op), ranks, size, channels=channels, chunk_bytes=CHUNK, nodes=nodes)
    lowered = lower(algorithm(op, "ring").build(request), run)
    both = kernel_costs(run, proto, "rooted"), profile.network.protocol(proto, "rooted")
    return lowered, run, both


def by_hand_s(lowered, problem, costs, proto):
    """Seconds from the first to the last hop of one chunk."""
    n, ends = len(lowered.transfers), []
    arrivals = {
        int(problem.dep[problem.dep_ptr[row]]): problem.latency_s[row] for row in range(n, n + lowered.across.sum())
    }
    first_came_s = whole_came_s = 0.0
    for row in np.argsort(lowered.transfers.step):
        size, rate = lowered.size_bytes[row], problem.cap_Bps[row]
        if lowered.across[row]:
            begin_s, wait_s, late_s = whole_came_s, problem.latency_s[row], arrivals[int(row)]
        else:
            begin_s, wait_s, late_s = first_came_s, float(costs.latency_s(np.array([FIRST[proto]]), rate)[0]), 0.0
            wait_s += problem.latency_s[row] - float(costs.latency_s(np.array([size]), rate)[0])  # of the links
        first_came_s = begin_s + wait_s + FIRST[proto] / rate + late_s
        end_s = begin_s + problem.latency_s[row] + size / rate + late_s
        whole_came_s = end_s if lowered.across[row] else max(end_s, whole_came_s + wait_s + FIRST[proto] / rate)
        ends.append(whole_came_s)
    return max(ends)


@pytest.mark.parametrize("proto", ["LL", "LL128"])
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_chunk_goes_on_inside_a_node_with_its_first_lines_and_leaves_it_whole(proto, op):
    lowered, run, both = laid(proto, op)
    problem = problem_of(lowered, run, *both)
    found_s = float(solve(problem).finish_s.max())
    assert found_s == pytest.approx(by_hand_s(lowered, problem, both[0], proto), rel=1e-9)
    alone_s = (
        problem.latency_s[: len(lowered.transfers)] + lowered.size_bytes / problem.cap_Bps[: len(lowered.transfers)]
    )
    assert found_s < 0.5 * alone_s.sum()


def test_whole_chunks_wait_where_no_flag_says_that_a_line_is_there():
    assert not passes_lines(laid("Simple")[0], laid("Simple")[2][1])
    assert passes_lines(laid("LL128")[0], laid("LL128")[2][1])
    lowered, _, (_, network) = laid("LL128", "all_reduce")
    assert not passes_lines(lowered, network)  # all ranks of a ring send in every step
    lowered, _, (_, _) = laid("LL128", nodes=1)
    assert not passes_lines(lowered, network)


def test_calls_along_one_order_of_ranks_follow_each_other_as_fast_as_the_busiest_rank():
    """A row of calls also shows its part of the chain that the first one goes along."""
    lowered, run, both = laid("LL128", chunks=4)
    solution = solve(problem_of(lowered, run, *both))
    n, src = len(lowered.transfers), lowered.transfers.src
    ready_s, finish_s = solution.ready_s[:n], solution.finish_s[:n]
    spans = [finish_s[src == rank].max() - ready_s[src == rank].min() for rank in set(src.tolist())]
    last, begin_s = busiest(lowered, solution, both[0])
    pace_s, whole_s = max(spans), solution.finish_s.max()
    assert finish_s[last] - begin_s == pytest.approx(pace_s + (whole_s - pace_s) / (2 * USUAL_CALLS), rel=1e-9)
    assert pace_s < 0.8 * whole_s


def test_channels_that_enter_nodes_at_other_ranks_keep_calls_from_overlapping():
    paces = []
    for channels in (1, 8):
        lowered, run, both = laid("LL128", channels=channels, nodes=4)
        solution = solve(problem_of(lowered, run, *both))
        last, begin_s = busiest(lowered, solution, both[0])
        paces.append((solution.finish_s[last] - begin_s) / solution.finish_s.max())
    one_order, several = paces
    assert one_order < 0.4
    assert several == 1.0


@pytest.mark.parametrize("size", ["64K", "4M", "64M"])
def test_parts_of_a_call_are_the_call(size):
    row = simulate("h100_rail", "broadcast", size, nodes=2).rows[0]
    assert math.fsum(limit.time_s for limit in row.limits) == pytest.approx(row.time_s, rel=0.02)


def test_more_bytes_take_longer():
    sizes = [f"{4**i}M" for i in range(5)]
    times = [row.time_s for row in simulate("h100_rail", "broadcast", sizes, algo="ring", proto="LL128", nodes=4).rows]
    assert all(fewer < more for fewer, more in pairwise(times))
