"""The pace of calls in a row, against the calls one after the other, by hand."""

from collections import defaultdict

import pytest

from collsim import simulate
from collsim.library import load_profile
from collsim.simulation.lowering import lower
from collsim.simulation.request.request import ask
from collsim.simulation.runs import prepare
from collsim.simulation.selection import library_choice, request_of
from collsim.simulation.timing import base_s, device_time_s, kernel_costs
from collsim.topology import load_topology

KIB = 2**10
CALLS, FIRST = 60, 20
MEET = 2e-3
"""Chunks of two orders that meet on a link are up to so much slower; by hand none do."""


def laid(system, op, size):
    """A rooted call as the library makes it, with the costs of its kernel."""
    topology = load_topology(system)
    profile = load_profile("auto", topology)
    question = ask(op, size, library=profile.library)
    run = prepare(topology, profile)
    picked, asked, proto = library_choice(request_of(question.ops[0], question.sizes[0], run, question), run, question)
    return lower(picked.build(asked), run), run, kernel_costs(run, proto, picked.family_for(op))


def orders_of(transfers, size_bytes):
    """By channel, the hops in order, and the bytes of the chunks that pass them."""
    hops, chunks = defaultdict(dict), defaultdict(dict)
    for row, channel in enumerate(transfers.channel.tolist()):
        hops[channel][int(transfers.src[row]), int(transfers.dst[row])] = None
        chunks[channel][int(transfers.chunk[row])] = float(size_bytes[row])
    return [(list(hops[channel]), list(chunks[channel].values())) for channel in hops]


def pace_s(orders, took_s, n_ranks):
    """Seconds from call to call where a rank begins the next one when it is done on all orders, and whoever sends may
    run ahead.
    """
    begin_s, ends_s = [0.0] * n_ranks, []
    for _ in range(CALLS):
        end_s = list(begin_s)
        for hops, chunks in orders:
            arrived_s = [0.0] * len(chunks)
            for src, dst in hops:
                free_s = begin_s[src]
                for number, size_bytes in enumerate(chunks):
                    free_s = max(free_s, arrived_s[number]) + took_s(size_bytes)
                    arrived_s[number] = free_s
                end_s[src], end_s[dst] = max(end_s[src], free_s), max(end_s[dst], free_s)
        begin_s = end_s
        ends_s.append(max(end_s))
    return (ends_s[-1] - ends_s[FIRST - 1]) / (CALLS - FIRST)


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
@pytest.mark.parametrize("kib", [20, 33, 49, 55, 104, 232])
def test_ranks_on_several_orders_wait_for_each_other(op, kib):
    found, run, costs = laid("mi350x_ubb8", op, kib * KIB)
    orders = orders_of(found.transfers, found.size_bytes)
    assert (found.use.lanes == 1).all()
    cap_Bps = float(costs.rates_Bps(found.use, 1, "float")[0])
    by_hand_s = pace_s(orders, lambda size: costs.slice_overhead_s + size / cap_Bps, found.schedule.n_ranks)
    once_s = base_s(found, costs, None, found.size_bytes)
    assert device_time_s(found, run, costs) - once_s == pytest.approx(by_hand_s, rel=MEET)


def test_a_rank_that_begins_later_is_not_done_sooner():
    """What the last channel carries grows from 9 to 15 KiB, and nothing else does."""
    rows = simulate("mi350x_ubb8", "broadcast", [size * KIB for size in (49, 51, 53, 55)]).rows
    assert len({(row.algo, row.proto, row.channels) for row in rows}) == 1
    times = [row.time_s for row in rows]
    assert times == sorted(times)
