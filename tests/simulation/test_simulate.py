"""The conductor: which rows come back, what they say, and when there is no answer."""

import itertools
import pathlib
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import collsim
from collsim.collectives import ALGORITHMS, ScheduleRequest, algorithm, algorithms_for
from collsim.core.errors import DeadlockError, InputError, InternalError, UnknownNameError, UnsupportedError
from collsim.core.operations import OPERATIONS, operation
from collsim.engine import Solution
from collsim.library import load_profile
from collsim.schedule import EVERY, ChunksBuilder, Schedule, TransfersBuilder
from collsim.simulation import lowering, timing
from collsim.simulation.method import Method
from collsim.simulation.runs import prepare
from collsim.simulation.simulate import simulate
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology, load_topology, zoo_names

IDEAL = load_profile("ideal")
SUPPORTED = [op for op in OPERATIONS if algorithms_for(op) and op != "all_to_all_v"]
COVERING = [
    (topo, op, ("ideal", "default")[(number + place) % 2])
    for number, op in enumerate(SUPPORTED)
    for place, topo in enumerate(("mi300x_ubb8", "hgx_h100"))
]
"""Every two of a system, an operation and a profile."""


def line(*rates_GBps):
    """GPUs in a row; link i joins GPU i and GPU i + 1."""
    graph = nx.Graph()
    for i, rate in enumerate(rates_GBps):
        graph.add_edge(f"gpu{i}", f"gpu{i + 1}", bandwidth_Bps=rate * 1e9, latency_s=1e-6)
    return Topology.from_graph(graph)


# --- Which rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topo", "op", "profile"), COVERING)
def test_all_is_every_algorithm_and_auto_the_fastest(topo, op, profile):
    rows = simulate(topo, op, "1M", algo="all", profile=profile).rows
    adding = topo == "hgx_h100"
    anybodys = [entry for entry in algorithms_for(op) if not entry.libraries]
    assert [row.algo for row in rows] == [entry.name for entry in anybodys if adding or not entry.in_network]
    for word in ("auto", "best"):
        (chosen,) = simulate(topo, op, "1M", algo=word, profile=profile).rows
        fastest = min(rows, key=lambda row: row.time_s)
        assert chosen.asked == word
        assert replace(chosen, method=Method(), asked="all") == replace(
            fastest, method=Method()
        )  # more problems may be solved by another engine


def test_several_algorithms_are_several_rows():
    rows = simulate("mi300x_ubb8", "all_reduce", "1M", algo=["ring", "auto", "all_pairs"], profile="ideal").rows
    assert [row.algo for row in rows][::2] == ["ring", "all_pairs"]


def test_rows_come_by_ranks_then_operation_then_size():
    rows = simulate("mi300x_ubb8", ["alltoall", "ar"], ["1M", 2**21], ranks=[2, 4], algo="auto", profile="ideal").rows
    expected = list(itertools.product((2, 4), ("all_to_all", "all_reduce"), (2**20, 2**21)))
    assert [(row.ranks, row.op, row.size_bytes) for row in rows] == expected


def test_sizes_and_counts_follow_nccl_tests():
    """The block of a rank is a multiple of 16 bytes, a buffer one of elements; the rest of a request is dropped."""
    gather, reduce = simulate("hgx_h100", ["all_gather", "all_reduce"], 1001, dtype="half", profile="ideal").rows
    assert (gather.requested_bytes, gather.size_bytes, gather.count) == (1001, 896, 56)
    assert (reduce.requested_bytes, reduce.size_bytes, reduce.count) == (1001, 1000, 500)
    assert (gather.redop, reduce.redop, gather.root) == ("none", "sum", -1)


def test_root_is_shown_and_used_by_rooted_operations_only():
    """Whole messages along the ring 0 1 2 3, cut open at the root, on a line of 10, 10 and 1 GB/s."""
    topology = line(10, 10, 1)
    rows = simulate(topology, ["broadcast", "all_reduce"], "1M", root=1, profile="ideal").rows
    assert [row.root for row in rows] == [1, -1]
    options = {"algo": "ring", "channels": 1, "chunk": "16M", "profile": "ideal"}
    first, second = (simulate(topology, "broadcast", 10**7, root=root, **options).time_s for root in (0, 1))
    assert first == pytest.approx(1e-3 + 1e-3 + 1e-2, rel=1e-6, abs=0)  # 0 -> 1 -> 2 -> 3
    assert second == pytest.approx(1e-3 + 1e-2 + 1e-2, rel=1e-6, abs=0)  # 1 -> 2 -> 3 -> 0, over the slow link again


def test_default_sizes():
    rows = simulate("mi300x_ubb8", "send_recv", profile="ideal").rows
    assert [row.size_bytes for row in rows] == [2**power for power in range(20, 31)]


def test_zero_sizes_are_skipped_and_said_so():
    result = simulate("gb200_nvl72", "all_gather", [100, 72 * 16, 1151], profile="ideal")
    assert [row.size_bytes for row in result] == [1152]
    assert [(row.requested_bytes, row.size_bytes, row.time_s) for row in result.skipped] == [(100, 0, 0), (1151, 0, 0)]
    assert any("all_gather is left out at 100, 1151 bytes" in text for text in result.warnings)
    assert result.skipped[0].busbw_Bps == 0


def test_nothing_left_is_an_error_that_names_the_smallest_size():
    with pytest.raises(InputError, match="the smallest that works is 1152"):
        simulate("gb200_nvl72", "all_gather", [100, 200])
    with pytest.raises(InputError, match="the smallest that works is 8"):
        simulate("gb200_nvl72", "all_reduce", 7, dtype="double")


def test_channels_suit_the_fabric_unless_they_are_given():
    """Two channels per ring on a mesh; else one per 20 GB/s of egress, in eights."""
    expected = {"mi300x_ubb8": 28, "hgx_h100": 24, "gb200_nvl72": 48, "mi400_ualoe72": 96}
    for topo, channels in expected.items():
        assert simulate(topo, "all_reduce", "64M", algo="ring", ranks=8, profile="ideal").rows[0].channels == channels
    assert simulate("hgx_h100", "all_reduce", "64M", algo="ring", channels=5).rows[0].channels == 5


# --- What they say ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["ideal", "default"])
@pytest.mark.parametrize("topo", ["mi300x_ubb8", "hgx_h100"])
@pytest.mark.parametrize("op", SUPPORTED)
def test_the_critical_path_adds_up(op, topo, profile):
    for row in simulate(topo, op, [4096, "3M", "64M"], algo="all", channels=8, profile=profile):
        assert sum(row.critical_s.values()) == pytest.approx(row.time_s, rel=1e-9, abs=0)
        assert min(row.critical_s.values()) >= 0
        assert set(row.critical_s) == {"launch", "latency", "channel rate", "links"}


def test_the_critical_path_knows_what_holds_it_up():
    small = simulate("hgx_h100", "all_to_all", 4096, algo="direct", profile="default").rows[0]
    assert small.critical_s["launch"] == 8e-6
    assert small.critical_s["latency"] == pytest.approx(2e-6 + 0.5e-6)
    wire = simulate("hgx_h100", "all_to_all", "1G", algo="direct", profile="ideal").rows[0]
    assert wire.critical_s["links"] == pytest.approx(wire.time_s)
    options = {"algo": "neighbour", "channels": 2, "profile": "default"}  # 2 x 30 GB/s
    capped = simulate("hgx_h100", "send_recv", "1G", **options).rows[0]
    assert capped.critical_s["channel rate"] == pytest.approx(2**30 / 60e9)
    assert capped.limited_by.startswith("channel_rate 30 GB/s")


def test_the_bottleneck_is_named():
    row = simulate(line(100, 1, 100), "all_reduce", "64M", algo="ring", profile="ideal").rows[0]
    assert {load.link for load in row.bottleneck[:2]} == {"gpu1->gpu2", "gpu2->gpu1"}
    assert row.bottleneck_links in (1, 2)
    assert row.limited_by.startswith(("gpu1->gpu2", "gpu2->gpu1"))
    assert len(row.bottleneck) <= 8


def test_rates_follow_from_the_time():
    for row in simulate("hgx_h100", SUPPORTED, "64M", algo="all"):
        factor = OPERATIONS[row.op].busbw_factor(8)
        assert row.algbw_Bps == row.size_bytes / row.time_s
        assert row.busbw_Bps == pytest.approx(row.algbw_Bps * factor, rel=1e-15, abs=0)
        assert row.efficiency == row.lower_bound_s / row.time_s
        assert (row.time_lo_s, row.time_hi_s) == (None, None)


def test_warnings():
    told = simulate("hgx_h100", "all_reduce", "1M", profile="default").warnings
    assert any("not calibrated" in text for text in told)
    assert simulate("hgx_h100", "all_reduce", "1M", profile="ideal").warnings == ()


def test_result_of_one_row_has_its_figures():
    result = simulate("hgx_h100", "all_reduce", "1M", profile="ideal")
    row = result.rows[0]
    assert (result.time_s, result.algbw_Bps, result.busbw_Bps) == (row.time_s, row.algbw_Bps, row.busbw_Bps)
    with pytest.raises(ValueError, match="2 rows"):
        _ = simulate("hgx_h100", "all_reduce", ["1M", "2M"], profile="ideal").time_s


# --- Who takes part ---------------------------------------------------------------------------------------------------


def test_rank_list_order_matters_where_the_wires_are_not_alike():
    """On a line, ranks in order meet neighbours; in another order one message takes two links that others use too."""
    topology = line(10, 10, 10)
    options = {"algo": "neighbour", "channels": 1, "profile": "ideal"}
    times = {
        order: simulate(topology, "send_recv", 10**7, rank_list=order, **options).time_s
        for order in itertools.permutations(range(4))
    }
    # In order, only the way back from the last to the first is long: every link carries one message each way.
    assert times[0, 1, 2, 3] == pytest.approx(1e-3)
    # 0 -> 2 -> 1 -> 3 -> 0 crosses the middle twice in each direction.
    assert times[0, 2, 1, 3] == pytest.approx(2e-3)
    assert set(np.round(list(times.values()), 9)) == {1e-3, 2e-3}


def test_rank_list_picks_gpus():
    row = simulate("mi300x_ubb8", "send_recv", "1M", rank_list=[6, 3], profile="ideal").rows[0]
    assert {load.link for load in row.bottleneck} == {"gpu6->gpu3", "gpu3->gpu6"}
    assert row.ranks == 2


def test_a_byte_matrix():
    """Rank 0 sends 6 MB to rank 1 and 1 MB to rank 2; the size is the largest buffer of a rank, own block included."""
    matrix = np.zeros((3, 3), dtype=int)
    matrix[0] = 5e6, 6e6, 1e6
    result = simulate("mi300x_ubb8", "all_to_all_v", matrix=matrix, algo="direct", profile="ideal")
    row = result.rows[0]
    assert (row.ranks, row.size_bytes, row.requested_bytes) == (3, 12 * 10**6, 12 * 10**6)
    assert row.time_s == pytest.approx(6e6 / 64e9)
    assert row.bottleneck[0].link == "gpu0->gpu1"
    assert result.config["size"] is None
    assert result.config["matrix_bytes"] == matrix.tolist()
    both = simulate("mi300x_ubb8", ["all_to_all", "all_to_all_v"], "3M", matrix=matrix.tolist(), profile="ideal")
    assert [(row.op, row.ranks) for row in both] == [("all_to_all", 3), ("all_to_all_v", 3)]


@pytest.mark.parametrize(
    "matrix", [[[1, 2]], [[0, -1], [1, 0]], [[0, 1.5], [1, 0]], [[0, "x"], [1, 0]], [[9, 0], [0, 9]]]
)
def test_bad_matrices(matrix):
    with pytest.raises(InputError):
        simulate("mi300x_ubb8", "all_to_all_v", matrix=matrix)


def test_a_matrix_goes_with_its_operation():
    with pytest.raises(InputError, match="needs a matrix"):
        simulate("mi300x_ubb8", "all_to_all_v")
    with pytest.raises(InputError, match="all_to_all_v only"):
        simulate("mi300x_ubb8", "all_reduce", matrix=[[0, 1], [1, 0]])
    with pytest.raises(InputError, match="matrix is for 2 ranks, the run has 3"):
        simulate("mi300x_ubb8", "all_to_all_v", matrix=[[0, 1], [1, 0]], ranks=3)


def test_every_fault_at_once():
    with pytest.raises(InputError) as caught:
        simulate("mi300x_ubb8", "all_reduse", "64MB", channels=0, dtype="flaot", redop="summ", chunk="0")
    text = str(caught.value)
    for part in ("all_reduce", "64MB", "0 channels", "float", "summ", "chunk"):
        assert part in text
    assert len(caught.value.faults) == 6


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ranks": 1}, "1 ranks on 8 GPUs"),
        ({"ranks": [2, 9]}, "9 ranks on 8 GPUs"),
        ({"rank_list": [0, 8]}, "8 is out of range"),
        ({"rank_list": [0, 1, 1]}, "named (2 times|more than once)"),
        ({"rank_list": [0]}, "at least 2"),
        ({"ranks": 2, "rank_list": [0, 1]}, "give one of the two"),
        ({"op": "broadcast", "root": 8}, "root 8 is out of range"),
        ({"algo": "rign"}, 'did you mean "ring"'),
        ({"size": []}, "sizes is empty"),
    ],
)
def test_bad_requests(options, match):
    with pytest.raises(InputError, match=match):
        simulate(**{"topo": "mi300x_ubb8", "op": "all_reduce", "size": "1M", **options})


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="mi300x_ubb8"):
        simulate("mi300_ubb8", "all_reduce")
    with pytest.raises(UnknownNameError, match="ideal"):
        simulate("mi300x_ubb8", "all_reduce", profile="ideel")


# --- Again ------------------------------------------------------------------------------------------------------------


def again(config):
    """Ask the same as *config* says, one call per group of ranks."""
    source = pathlib.PurePath(config["topo"])
    rows = []
    for group in config["rank_lists"]:
        result = simulate(
            source.stem if source.stem in zoo_names() else config["topo"],
            config["op"],
            config["size"],
            rank_list=group,
            algo=config["algo"],
            channels=config["channels"],
            chunk=config["chunk_bytes"],
            dtype=config["dtype"],
            redop=config["redop"],
            root=config["root"],
            matrix=config["matrix_bytes"],
            profile=config["profile"],
            overrides=config["overrides"],
        )
        rows += result.rows
    return tuple(rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ranks": [2, 5, 8], "size": ["1M", 12345678], "dtype": "half"},
        {"rank_list": [7, 2, 4], "algo": ["ring", "all"], "channels": 3, "chunk": "64K", "redop": "max"},
        {"op": ["broadcast", "reduce"], "root": 3, "profile": "ideal", "overrides": {"link.bandwidth": "400 Gb/s"}},
        {"op": ["all_to_all", "all_to_all_v"], "matrix": [[0, 5000, 1], [70000, 0, 0], [0, 0, 9]]},
    ],
)
def test_the_config_gives_the_same_rows(options):
    result = simulate(**{"topo": "hgx_h100", "op": "all_reduce", "size": "1M", **options})
    assert again(result.config) == result.rows


def test_the_config_of_a_file_gives_the_same_rows(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(load_topology("hgx_h100").to_yaml("mine"), encoding="utf-8")
    result = simulate(path, "all_reduce", "1M", overrides={"links[0].bandwidth": "1 GB/s"})
    assert again(result.config) == result.rows


def test_a_topology_a_file_and_a_graph_are_the_same(tmp_path):
    topology = load_topology("mi300x_ubb8")
    path = tmp_path / "mine.yaml"
    path.write_text(topology.to_yaml("mine"), encoding="utf-8")
    ways = ("mi300x_ubb8", topology, topology.graph, path, str(path))
    rows = [simulate(way, "all_reduce", "1M").rows[0] for way in ways]
    assert all(replace(row, time_lo_s=None, time_hi_s=None) == rows[-1] for row in rows)
    assert [row.time_lo_s is None for row in rows] == [False, False, True, True, True]  # only the shipped was measured


# --- No answer --------------------------------------------------------------------------------------------------------


def in_a_circle(n):
    """Every rank sends to the next once it has received from the one before."""
    chunks, rows = ChunksBuilder(), TransfersBuilder()
    chunks.add(np.full(n, 1000), np.arange(n), EVERY)
    for rank in range(n):
        rows.add(rank, (rank + 1) % n, [rank], [(rank - 1) % n], channel=2, step=7)
    return Schedule("all_gather", "circle", n, 1000 * n, chunks.build(), (rows.build(),))


def test_a_deadlock_names_the_ranks():
    run = prepare(load_topology("mi300x_ubb8"), IDEAL, range(3))
    with pytest.raises(DeadlockError) as caught:
        time_schedule(in_a_circle(3), run)
    assert caught.value.exit_code == 3
    text = str(caught.value)
    assert "3 transfers never start, at ranks 0, 1, 2" in text
    assert "rank 0 -> rank 1 (channel 2, step 7)" in text
    assert "waiting for each other" in text


def test_a_large_deadlock_is_told_briefly():
    run = prepare(load_topology("gb200_nvl72"), IDEAL)
    with pytest.raises(DeadlockError) as caught:
        time_schedule(in_a_circle(72), run)
    text = str(caught.value)
    assert "72 transfers never start" in text
    assert "15 and more" in text
    assert text.count("->") == 5


def test_ranks_that_finish_are_not_blamed():
    chunks, rows = ChunksBuilder(), TransfersBuilder()
    chunks.add(np.full(4, 1000), np.arange(4), EVERY)
    rows.add(0, 1, [0])
    rows.add(2, 3, [2], [2])
    rows.add(3, 2, [3], [1])
    stuck = Schedule("all_gather", "half", 4, 4000, chunks.build(), (rows.build(),))
    with pytest.raises(DeadlockError, match=r"2 transfers never start, at ranks 2, 3\n"):
        time_schedule(stuck, prepare(load_topology("mi300x_ubb8"), IDEAL, range(4)))


def test_in_network_schedules_need_switches_that_add():
    with pytest.raises(UnsupportedError, match="switches that add and multicast"):
        simulate("mi300x_ubb8", "all_reduce", "1M", algo=next(e.name for e in ALGORITHMS if e.in_network))


# --- Laws that are always checked -------------------------------------------------------------------------------------


def direct_on_four():
    run = prepare(load_topology("mi300x_ubb8"), IDEAL, range(4))
    return algorithm("all_to_all", "direct").build(ScheduleRequest(operation("all_to_all"), 4, 4 * 10**6)), run


def hurried(solve, factor):
    """An engine whose answer is *factor* of the true times."""

    def wrong(problem, **options):
        right = solve(problem, **options)
        times = (factor * array for array in (right.ready_s, right.start_s, right.finish_s))
        return Solution(*times, right.solver, right.solves, right.moved_bytes)

    return wrong


def test_a_time_that_is_too_short_is_refused(monkeypatch):
    schedule, run = direct_on_four()
    assert time_schedule(schedule, run).time_s > 0
    monkeypatch.setattr(timing, "solve", hurried(timing.solve, 0.99))
    with pytest.raises(InternalError) as caught:
        time_schedule(schedule, run)
    text = str(caught.value)
    assert "below the egress gpu0 bound" in text
    assert "more than its capacity times the time" in text
    assert "at least" in text  # the transfer that was too fast
    assert "all_to_all by direct on 4 ranks" in text
    assert "please report" in text
    assert len(caught.value.faults) > 3


def test_the_bound_and_the_links_are_checked_even_if_the_engine_is_content(monkeypatch):
    schedule, run = direct_on_four()
    monkeypatch.setattr(timing, "solve", hurried(timing.solve, 0.99))
    monkeypatch.setattr(timing, "check_conservation", lambda problem, solution: [])
    with pytest.raises(InternalError, match="below the egress gpu0 bound") as caught:
        time_schedule(schedule, run)
    assert len(caught.value.faults) == 9  # 8 of the 12 full links, and the bound


def test_what_the_engine_finds_is_passed_on(monkeypatch):
    schedule, run = direct_on_four()
    monkeypatch.setattr(timing, "check_conservation", lambda problem, solution: ["transfer 3 went astray"])
    with pytest.raises(InternalError, match="transfer 3 went astray"):
        time_schedule(schedule, run)


def test_moved_bytes_are_checked(monkeypatch):
    schedule, run = direct_on_four()
    solve = timing.solve

    def lossy(problem, **options):
        right = solve(problem, **options)
        return right._replace(moved_bytes=right.moved_bytes * 0.999)

    monkeypatch.setattr(timing, "solve", lossy)
    with pytest.raises(InternalError, match="moved"):
        time_schedule(schedule, run)


def test_rounding_is_not_a_broken_law(monkeypatch):
    schedule, run = direct_on_four()
    monkeypatch.setattr(timing, "solve", hurried(timing.solve, 1 - 1e-12))
    time_schedule(schedule, run)


def test_launch_counts_once():
    schedule, run = direct_on_four()
    later = time_schedule(schedule, replace(run, profile=replace(IDEAL, launch_s=1.0)))
    assert later.time_s == 1.0 + time_schedule(schedule, run).time_s
    assert later.critical_s["launch"] == 1.0


def test_no_warning_where_nothing_caps_a_phase_boundary():
    """The slowest chain of a two-phase schedule passes a rank's boundary, which has no bytes and no cap."""
    row = simulate("mi300x_ubb8", "all_reduce", "1M", algo="all_pairs", profile="ideal").rows[0]
    assert row.critical_s == {"launch": 0, "latency": 0, "channel rate": 0, "links": pytest.approx(row.time_s)}


def test_the_package_shows_what_it_promises():
    assert collsim.simulate.__wrapped__ is simulate  # with messages for Python around it


def test_what_would_not_fit_in_memory_is_refused_and_left_out_with_a_word(monkeypatch):
    monkeypatch.setattr(lowering, "MOST_TRANSFERS", 300)
    with pytest.raises(UnsupportedError, match="transfers are too many to simulate"):
        simulate("mi300x_ubb8", "all_reduce", "1M", algo="ring")
    result = simulate("mi300x_ubb8", "all_reduce", "1M", algo="all")
    assert "all_pairs" in {row.algo for row in result}
    assert any(warning.startswith("ring is left out at 1048576 bytes") for warning in result.warnings)


def test_the_wait_for_the_last_gpu_is_hidden_in_part():
    """Between a sum and the longer of both: (t^1.5 + w^1.5)^(1/1.5), fitted to logs with several GPUs per thread."""
    assert timing.call_time_s(1e-5, 0.0, 1e-5) == pytest.approx(1e-5 * 2 ** (2 / 3), rel=1e-12)
    assert timing.call_time_s(8e-5, 0.0, 4e-5) == pytest.approx(4e-5 * (2**1.5 + 1) ** (2 / 3), rel=1e-12)
    assert timing.call_time_s(1.0, 0.0, 1e-5) == pytest.approx(1.0, rel=1e-6)
    # a floor meets the time on the device more sharply, and comes first
    device_s = timing.call_time_s(1e-5, 1e-5)
    assert device_s == pytest.approx(1e-5 * 2 ** (1 / 8), rel=1e-12)
    assert timing.call_time_s(1e-5, 1e-5, 2e-5) == timing.call_time_s(device_s, 0.0, 2e-5)
    assert timing.call_time_s(3e-5, 0.0) == 3e-5


def test_each_rank_has_the_way_out_of_its_own_gpu():
    """Line rate to the node, by rank; where a rank is alone in its node, that of its adapters."""

    def out_Bps(topology, *ranks):
        return prepare(topology, IDEAL, *ranks).port_rates_Bps[0].tolist()

    assert out_Bps(line(10, 20, 30)) == [10e9, 30e9, 50e9, 30e9]  # ends have one neighbour, those between two
    assert min(out_Bps(load_topology("mi250x_node"))) == 300e9  # some have 350
    two = load_topology("hgx_h100", scale_out={"nodes": 2})
    assert out_Bps(two) == [450e9] * 16  # 18 links of 25, not the adapter of 50
    assert out_Bps(two, range(9)) == [450e9] * 8 + [50e9]  # the ninth has none in its node
    assert out_Bps(two, [0, 8]) == [50e9, 50e9]
    mixed = load_topology("hgx_h100", {"nic.per_gpu": "2"}, scale_out={"nodes": 2})
    assert out_Bps(mixed, [0, 8]) == [63e9, 63e9]  # both adapters of a GPU hang on its own x16 port


@pytest.mark.parametrize("pair", [(0, 1), (0, 7), (7, 0)])
@pytest.mark.parametrize("sent_bytes", [5, 10**9])
def test_a_matrix_with_a_single_pair(pair, sent_bytes):
    matrix = np.zeros((8, 8), dtype=int)
    matrix[pair] = sent_bytes
    (row,) = simulate("hgx_h100", "all_to_all_v", matrix=matrix.tolist())
    assert row.time_s >= row.lower_bound_s > 0


@pytest.mark.parametrize(
    ("topo", "profile", "doubtful"),
    [("pcie_gen5_8gpu", "auto", True), ("pcie_gen5_8gpu", "ideal", False), ("hgx_h100", "auto", False)],
)
def test_gpus_that_meet_in_sockets_are_a_stated_doubt(topo, profile, doubtful):
    result = simulate(topo, "all_reduce", "1M", profile=profile)
    assert any("no constants were fitted to this machine" in text for text in result.warnings) == doubtful


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_as_many_bytes_to_or_from_a_root_take_as_long_over_more_nodes(op):
    """The root's adapters carry them eight messages at a time, however many follow; each is posted, some 4 us."""
    few, many = (
        collsim.simulate("alps", op, "256M", overrides=[f"scale_out.nodes={n}"]).rows[0].time_s for n in (16, 128)
    )
    posted_s = 4.3e-6 * 4 * (128 - 16)
    assert few + 0.5 * posted_s < many < few * 1.1 + posted_s


def test_a_root_of_many_ranks_is_answered():
    for op in ("gather", "scatter", "broadcast", "reduce"):
        size = "256K" if op in ("broadcast", "reduce") else "64M"
        (row,) = collsim.simulate("alps", op, size, overrides=["scale_out.nodes=1056"]).rows
        assert row.time_s > row.lower_bound_s
        assert row.limits
