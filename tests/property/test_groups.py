"""Laws of groups that run at once: no byte is lost, and names change nothing."""

from random import Random

import networkx as nx
import numpy as np
import pytest

from collsim.collectives import algorithm
from collsim.core.operations import operation
from collsim.library import load_profile
from collsim.simulation.concurrent import part_of, prepare_groups, time_together
from collsim.simulation.request.groups import parse_groups
from collsim.simulation.request.request import ask
from collsim.simulation.runs import prepare
from collsim.simulation.selection import request_of
from collsim.simulation.simulate import simulate
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology

IDEAL = load_profile("ideal")
SIZE = 2**20
OPS = (("all_to_all", "direct"), ("all_reduce", "ring"), ("all_gather", "ring"), ("broadcast", "binomial"))
"""Algorithms whose bytes do not depend on what else runs."""

seeds = pytest.mark.parametrize("seed", range(12))


def fabric(random, n_gpus):
    """GPUs on two or three switches, which a ring of thin trunks joins."""
    graph, switches = nx.Graph(), random.choice([2, 3])
    for gpu in range(n_gpus):
        graph.add_node(f"gpu{gpu}", kind="gpu")
    for switch in range(switches):
        graph.add_node(f"s{switch}", kind="switch")
    for gpu in range(n_gpus):
        graph.add_edge(f"gpu{gpu}", f"s{gpu % switches}", bandwidth_Bps=50e9, latency_s=1e-6)
    for switch in range(switches if switches > 2 else 1):
        rate_Bps = random.choice([20e9, 40e9])
        graph.add_edge(f"s{switch}", f"s{(switch + 1) % switches}", bandwidth_Bps=rate_Bps, latency_s=2e-6)
    return Topology.from_graph(graph)


def drawn(seed):
    """Return a fabric, groups of its GPUs, and what they run."""
    random = Random(seed)
    n_groups, size = random.choice([(2, 3), (3, 2), (4, 2), (2, 4)])
    gpus = random.sample(range(n_groups * size), n_groups * size)
    groups = [gpus[k * size : (k + 1) * size] for k in range(n_groups)]
    return fabric(random, n_groups * size), groups, random.choice(OPS), random


def timed(topology, groups, op, name):
    party = prepare_groups(topology, IDEAL, groups)
    question = ask(op, SIZE, name, channels=2)
    parts = [
        part_of(algorithm(op, name).build(request_of(operation(op), SIZE, run, question)), run, "Simple", "float")
        for run in party.runs
    ]
    return parts, time_together(parts, party.neighbours)


@seeds
def test_links_carry_what_they_carry_when_the_groups_run_one_by_one(seed):
    topology, groups, (op, name), _ = drawn(seed)
    parts, timings = timed(topology, groups, op, name)
    alone = [
        time_schedule(part.lowered.schedule, prepare(topology, IDEAL, group))
        for part, group in zip(parts, groups, strict=True)
    ]
    for one, timing in zip(alone, timings, strict=True):
        np.testing.assert_allclose(timing.link_bytes, one.link_bytes, rtol=1e-12)
        assert timing.time_s >= one.time_s * (1 - 1e-9)
    capacity_Bps = parts[0].run.fabric.capacity_Bps
    slowest_s = max(timing.time_s for timing in timings)
    carried = sum(timing.link_bytes for timing in timings)
    assert (carried <= capacity_Bps * slowest_s * (1 + 1e-9)).all()
    assert slowest_s <= sum(one.time_s for one in alone) * (1 + 1e-9)


@seeds
def test_the_order_of_groups_changes_nothing(seed):
    topology, groups, (op, name), random = drawn(seed)
    order = random.sample(range(len(groups)), len(groups))
    _, timings = timed(topology, groups, op, name)
    _, shuffled = timed(topology, [groups[k] for k in order], op, name)
    assert [timing.time_s for timing in shuffled] == pytest.approx([timings[k].time_s for k in order], rel=1e-7)


@seeds
def test_which_gpus_form_a_group_changes_nothing_on_one_switch(seed):
    """Any groups of four on an HGX board, MOD 2 and DIV 4 among them, take the same time."""
    gpus = Random(seed).sample(range(8), 8)
    lists = [gpus[:4], gpus[4:]]
    options = {"size": [2**16, 2**24], "profile": "hgx_h100"}
    drawn_rows, mod, div = (
        simulate("hgx_h100", "all_reduce", **options, **how)
        for how in ({"groups": lists}, {"split": "MOD 2"}, {"split": "DIV 4"})
    )
    for rows in zip(drawn_rows, mod, div, strict=True):
        assert [row.time_s for row in rows] == pytest.approx([rows[0].time_s] * 3, rel=1e-9)
        assert [row.total_busbw_Bps for row in rows] == pytest.approx([2 * rows[0].busbw_Bps] * 3, rel=1e-9)


@seeds
def test_every_dimension_of_a_layout_parts_the_ranks(seed):
    random = Random(seed)
    sizes = {name: random.choice([2, 3, 4]) for name in ("tp", "dp", "pp")}
    total = sizes["tp"] * sizes["dp"] * sizes["pp"]
    for over in ("tp", "dp", "pp", "tp,pp", "dp,tp"):
        groups = parse_groups(sizes, over).groups(total)
        assert sorted(rank for group in groups for rank in group) == list(range(total))
        assert all(group == sorted(group) for group in groups)
        assert {len(group) for group in groups} == {int(np.prod([sizes[name] for name in over.split(",")]))}
        assert groups == sorted(groups)
