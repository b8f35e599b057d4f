"""Groups that run at once: alone where nothing is shared, slower by the law of the shared link where something is."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import collsim
from collsim.collectives import algorithm
from collsim.core.errors import DeadlockError, InputError, UnsupportedError
from collsim.core.operations import operation
from collsim.engine import Problem
from collsim.library import load_profile
from collsim.schedule import ChunksBuilder, Schedule, TransfersBuilder
from collsim.simulation import concurrent as together
from collsim.simulation.concurrent import part_of, prepare_groups, time_together
from collsim.simulation.request.request import ask
from collsim.simulation.runs import prepare
from collsim.simulation.selection import request_of
from collsim.simulation.simulate import simulate
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology, load_topology

IDEAL = load_profile("ideal")
SIZE = 10**7


def two_switches(trunk_GBps, gpus_per_switch=2, latency_s=0.0):
    """GPUs 0, 1 on switch s0 and 2, 3 on s1 at 10 GB/s; a trunk joins the switches."""
    graph = nx.Graph()
    for gpu in range(2 * gpus_per_switch):
        graph.add_node(f"gpu{gpu}", kind="gpu")
    for side in range(2):
        graph.add_node(f"s{side}", kind="switch")
    for gpu in range(2 * gpus_per_switch):
        graph.add_edge(f"gpu{gpu}", f"s{gpu // gpus_per_switch}", bandwidth_Bps=10e9, latency_s=latency_s)
    graph.add_edge("s0", "s1", bandwidth_Bps=trunk_GBps * 1e9, latency_s=latency_s)
    return Topology.from_graph(graph)


def times_of(result):
    (row,) = result.rows
    return [group.time_s for group in row.group_times]


# --- Nothing shared ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "broadcast", "send_recv"])
@pytest.mark.parametrize("topo", ["hgx_h100", "mi300x_ubb8"])
def test_equal_groups_on_links_of_their_own_take_the_time_of_one_alone(topo, op):
    alone = simulate(topo, op, ["64K", "64M"], ranks=4)
    for split in ("MOD 2", "DIV 4"):
        for one, row in zip(alone, simulate(topo, op, ["64K", "64M"], split=split), strict=True):
            assert [group.time_s for group in row.group_times] == [one.time_s] * 2  # to the bit
            assert row.total_busbw_Bps == 2 * one.busbw_Bps
            same = {
                "groups": 1,
                "group_times": (),
                "classes": 0,
                "bottleneck": (),
                "bottleneck_links": 0,
                "bound": "",
                "limits": (),
                "tiers": (),  # bytes of all groups
            }
            assert replace(row, **same) == replace(one, **same)


def test_a_run_without_a_split_is_one_group():
    plain, split = (simulate("hgx_h100", "all_reduce", "1M", split=split) for split in (None, "DIV 8"))
    assert plain.rows == split.rows
    (row,) = plain.rows
    assert (row.groups, row.group_times, row.total_busbw_Bps) == (1, (), row.busbw_Bps)


def test_equal_groups_are_solved_once(monkeypatch):
    solved = []
    monkeypatch.setattr(together, "solve", lambda problem, **_: solved.append(problem) or collsim.engine.solve(problem))
    simulate("gb200_nvl72", "all_reduce", "1M", split="DIV 8", algo="ring", profile="ideal")
    assert len(solved) == 1


# --- Shared links -----------------------------------------------------------------------------------------------------


def test_groups_that_share_a_trunk_share_its_rate():
    """Pairs across the trunk: S bytes each way at 2 GB/s alone, at 1 GB/s when both pairs run."""
    topology = two_switches(2)
    options = {"algo": "neighbour", "profile": "ideal"}
    alone = simulate(topology, "send_recv", SIZE, rank_list=[0, 2], **options)
    across = simulate(topology, "send_recv", SIZE, split="MOD 2", **options)
    inside = simulate(topology, "send_recv", SIZE, split="DIV 2", **options)
    assert alone.time_s == pytest.approx(SIZE / 2e9)
    assert times_of(across) == pytest.approx([SIZE / 1e9] * 2)
    assert times_of(inside) == pytest.approx([SIZE / 10e9] * 2)
    assert across.rows[0].total_algbw_Bps == pytest.approx(alone.algbw_Bps)
    assert [load.link for load in across.rows[0].bottleneck[:2]] == ["s0->s1", "s1->s0"]
    assert across.rows[0].bottleneck[0].utilisation == pytest.approx(1)
    assert across.rows[0].bottleneck_links == 2


def test_the_slowest_group_gives_the_time():
    """Pairs inside a switch have 10 GB/s; of the 2 GB/s of the trunk, two pairs have 1 each."""
    topology = two_switches(2, gpus_per_switch=3)
    result = simulate(topology, "send_recv", SIZE, groups=[[0, 1], [2, 3], [5, 4]], algo="neighbour", profile="ideal")
    assert times_of(result) == pytest.approx([SIZE / 10e9, SIZE / 2e9, SIZE / 10e9])
    result = simulate(
        two_switches(2, gpus_per_switch=4), "send_recv", SIZE, groups="0,1;2,4;3,5", algo="neighbour", profile="ideal"
    )
    assert times_of(result) == pytest.approx([SIZE / 10e9, SIZE / 1e9, SIZE / 1e9])
    (row,) = result.rows
    assert (row.groups, row.ranks, row.time_s) == (3, 2, max(times_of(result)))
    assert [group.gpus for group in row.group_times] == [(0, 1), (2, 4), (3, 5)]
    assert row.total_busbw_Bps == pytest.approx(10e9 + 1e9 + 1e9)


def test_links_are_shared_through_third_groups():
    """Groups 0-2 and 1-3 meet between 1 and 2, 1-3 and 2-4 between 2 and 3: all three are one problem."""
    graph = nx.Graph()
    for gpu in range(6):
        graph.add_edge(f"gpu{gpu}", f"gpu{gpu + 1}", bandwidth_Bps=1e9, latency_s=1e-6)
    topology = Topology.from_graph(graph)
    assert prepare_groups(topology, IDEAL, [[0, 2], [1, 3]]).neighbours == ((0, 1),)
    assert prepare_groups(topology, IDEAL, [[0, 2], [4, 6], [1, 3]]).neighbours == ((0, 2), (1,))
    assert prepare_groups(topology, IDEAL, [[0, 2], [3, 5], [1, 4]]).neighbours == ((0, 1, 2),)


def test_intervals_are_of_groups_alone():
    """Nobody measured what groups do to each other on shared links, or what background traffic does."""
    options = {"split": "DIV 4", "library": "nccl-2.28", "profile": "hgx_h100"}
    free = simulate("hgx_h100", "all_reduce", "1M", **options)
    assert (free.rows[0].time_lo_s is None, free.warnings) == (False, ())
    loaded = simulate("hgx_h100", "all_reduce", "1M", load="link:gpu7->*=1%", **options)
    assert (loaded.rows[0].time_lo_s, len(loaded.warnings)) == (None, 1)
    assert "background traffic" in loaded.warnings[0]
    shared = simulate(two_switches(2), "all_reduce", "1M", split="MOD 2", profile="default")
    assert any("groups share links" in text for text in shared.warnings)
    apart = simulate(two_switches(2), "all_reduce", "1M", split="DIV 2", profile="default")
    assert not any("groups share links" in text for text in apart.warnings)


# --- The joint problem ------------------------------------------------------------------------------------------------


def problem(**columns):
    plain = {
        "capacity_Bps": np.array([4.0, 8.0]), "route_ptr": np.array([0, 2]), "route_link": np.array([0, 1]),
        "route_weight": np.array([1.0, 0.5]), "route": np.array([0, 0]), "size_bytes": np.array([8.0, 8.0]),
        "latency_s": np.zeros(2), "cap_Bps": np.full(2, np.inf), "dep_ptr": np.array([0, 0, 1]), "dep": np.array([0]),
    }  # fmt: skip
    return Problem(**{**plain, **columns})


def test_a_joint_problem_renumbers_and_keeps_what_each_group_gets_of_a_link():
    """The second group has a port, link 2 of its own, and half of common link 0."""
    second = problem(
        capacity_Bps=np.array([2.0, 8.0, 5.0]), route_ptr=np.array([0, 2]), route_link=np.array([0, 2]),
        route_weight=np.array([1.0, 1.0]),
    )  # fmt: skip
    joint = together._joint([second, problem(), second], np.array([4.0, 8.0]))
    assert joint.capacity_Bps.tolist() == [4, 8, 5, 5]
    assert joint.route_link.tolist() == [0, 2, 0, 1, 0, 3]
    assert joint.route_weight.tolist() == [2, 1, 1, 0.5, 2, 1]
    assert joint.route.tolist() == [0, 0, 1, 1, 2, 2]
    assert (joint.dep_ptr.tolist(), joint.dep.tolist()) == ([0, 0, 1, 1, 2, 2, 3], [0, 2, 4])
    assert joint.route_ptr.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("profile", ["hgx_h100", "mi300x_ubb8", "default"])
def test_laws_of_measured_profiles_hold_on_shared_links(profile):
    """With ports, turns and overheads too: not faster than alone, not slower than one after the other."""
    constants, topology = load_profile(profile), two_switches(2, latency_s=1e-6)
    for op, name in (("all_to_all", "nccl_p2p"), ("all_reduce", "ring"), ("broadcast", "ring")):
        party = prepare_groups(topology, constants, [[0, 2], [1, 3]])
        assert party.neighbours == ((0, 1),)
        question = ask(op, SIZE, name)
        schedules = [algorithm(op, name).build(request_of(operation(op), SIZE, run, question)) for run in party.runs]
        parts = [part_of(schedule, run, "Simple", "float") for schedule, run in zip(schedules, party.runs, strict=True)]
        timings = time_together(parts, party.neighbours)
        alone_s = time_schedule(schedules[0], prepare(topology, constants, [0, 2])).time_s
        for timing in timings:
            assert 1.1 * alone_s < timing.time_s <= 2 * alone_s * (1 + 1e-9)


def test_a_stuck_group_is_named():
    def waits_for_itself(run):
        chunks, transfers = ChunksBuilder(), TransfersBuilder()
        chunk = chunks.add([8], 0, 1)
        first = transfers.add(0, 1, [chunk], [1])
        transfers.add(0, 1, [chunk], [first])
        schedule = Schedule(
            op="send_recv", algo="direct", n_ranks=2, size_bytes=8, chunks=chunks.build(), phases=(transfers.build(),)
        )
        return part_of(schedule, run, "Simple", "float")

    party = prepare_groups(two_switches(1), IDEAL, [[0, 2], [1, 3]])
    with pytest.raises(DeadlockError, match="rank 0 -> rank 1"):
        time_together([waits_for_itself(run) for run in party.runs], party.neighbours)


def test_too_many_transfers_of_all_groups_are_refused(monkeypatch):
    monkeypatch.setattr(together, "MOST_TRANSFERS", 20)
    simulate("hgx_h100", "all_to_all", "1M", ranks=4, algo="direct", profile="ideal")
    with pytest.raises(UnsupportedError, match="24 transfers of 2 of 2 groups"):
        simulate("hgx_h100", "all_to_all", "1M", split="DIV 4", algo="direct", profile="ideal", reduce=False)


# --- Load and placement -----------------------------------------------------------------------------------------------


def test_a_load_takes_its_share_of_a_link():
    topology = two_switches(2)
    options = {"rank_list": [0, 2], "algo": "neighbour", "profile": "ideal"}
    free = simulate(topology, "send_recv", SIZE, **options)
    loaded = simulate(topology, "send_recv", SIZE, load=["link:s0->s1=30%", "link:gpu3->s1=90%"], **options)
    assert loaded.time_s == pytest.approx(free.time_s / 0.7)
    assert loaded.rows[0].lower_bound_s == free.rows[0].lower_bound_s  # at line rate
    assert loaded.config["load"] == ["link:s0->s1=30%", "link:gpu3->s1=90%"]
    assert loaded.profile["constants"] == free.profile["constants"]


def test_placement_comes_before_the_split(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("gpu0\ngpu2\ngpu1\ngpu3\n")
    options = {"algo": "neighbour", "profile": "ideal"}
    result = simulate(two_switches(2), "send_recv", SIZE, split="DIV 2", placement=file, **options)
    assert [group.gpus for group in result.rows[0].group_times] == [(0, 2), (1, 3)]
    assert times_of(result) == pytest.approx([SIZE / 1e9] * 2)
    assert result.config["rank_lists"] == [[0, 2, 1, 3]]


def test_what_is_wrong_with_groups_comes_at_once(tmp_path):
    with pytest.raises(InputError) as caught:
        simulate("hgx_h100", "broadcast", "1M", split="MOD 3", load="link:x->y=3%", placement=tmp_path / "none")
    assert [fault.where for fault in caught.value.faults] == ["placement", "load", "split"]
    with pytest.raises(InputError, match="root 5 is out of range"):
        simulate("hgx_h100", "broadcast", "1M", split="MOD 2", root=5)
    with pytest.raises(InputError, match="the matrix is for 8 ranks, each group has 4"):
        simulate("hgx_h100", "all_to_all_v", matrix=np.ones((8, 8), dtype=int), split="MOD 2")


def test_every_group_has_the_matrix():
    matrix = np.array([[0, SIZE], [0, 0]])
    result = simulate(two_switches(2), "all_to_all_v", matrix=matrix, split="MOD 2", profile="ideal", algo="best")
    assert times_of(result) == pytest.approx([SIZE / 1e9] * 2)


@pytest.mark.parametrize(
    ("ranks", "told"),
    [([0, 8, 1, 2], "hierarchical runs over several nodes, not on one"), ([1, 2, 0, 8], "nvls runs inside one node")],
)
def test_groups_of_different_kinds_run_what_all_of_them_can(ranks, told):
    """Algorithms are those of the first group; what another one cannot run is left out, and told."""
    topology = load_topology("hgx_h100", scale_out={"nodes": 2})
    result = simulate(topology, "all_reduce", "1M", algo="all", profile="ideal", rank_list=ranks, split="DIV 2")
    assert {"ring", "tree", "all_pairs"} <= {row.algo for row in result.rows}
    assert not {"nvls", "hierarchical"} & {row.algo for row in result.rows}
    assert any(told in warning for warning in result.warnings)
