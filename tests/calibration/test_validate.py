"""Verdicts, sentences and the whole comparison of logs with the model."""

import json
import re
from dataclasses import replace

import pytest

from collsim import simulate, validate
from collsim.calibration.cases import MeasuredCase
from collsim.calibration.gathered import gather
from collsim.calibration.health import BOUND_SLACK, health_of, judged
from collsim.calibration.validate import compare
from collsim.calibration.verdicts import JudgedCase
from collsim.core.errors import InputError
from collsim.core.operations import OPERATIONS
from collsim.library import load_profile
from collsim.library.costs.profile import Scatter
from collsim.report.validation import validation_table
from collsim.topology import load_topology

from .logs.test_reading import row as row_of_log
from .made_logs import log_text

BOARD = "hgx_h100"
IDEAL = {"profile": "ideal", "library": "nccl-2.28"}


def row(measured_us, *, predicted_us=100.0, size=2**20, interval=None, bound_us=50.0, wrong=0, repeats=(), **case):
    """Return a judged row."""
    times = [measured_us, *repeats]
    low, high = interval or (None, None)
    return judged(
        JudgedCase(
            MeasuredCase(case.pop("op", "all_reduce"), 8, size, **case), 7, len(times), measured_us * 1e-6,
            min(times) * 1e-6, max(times) * 1e-6, predicted_us * 1e-6,
            low and low * 1e-6, high and high * 1e-6, bound_us * 1e-6,
            "egress gpu0", "ring", "LL", wrong,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "verdict", "flags"),
    [
        (row(100), "inside", ()),
        (row(124.9), "inside", ()),
        (row(125.1), "slower", ()),
        (row(80.1), "inside", ()),
        (row(79.9), "faster", ()),
        (row(119, interval=(95, 120)), "inside", ()),
        (row(121, interval=(95, 120)), "slower", ()),
        (row(94, interval=(95, 120)), "faster", ()),
        (row(100, wrong=3), "wrong", ("wrong_results",)),
        (row(100, wrong=None), "inside", ()),
        (row(49, predicted_us=60), "impossible", ("below_bound",)),
        (row(50 * (1 - BOUND_SLACK) + 0.01, predicted_us=60), "inside", ()),
        (row(0.9, predicted_us=9, bound_us=0.1), "impossible", ("below_floor",)),
        (row(1.1, predicted_us=1.2, bound_us=0.1), "inside", ()),
        (row(49, wrong=1), "wrong", ("wrong_results", "below_bound")),
        (row(90, repeats=(49, 95)), "impossible", ("below_bound",)),
    ],
)
def test_verdict(found, verdict, flags):
    assert (found.verdict, found.flags) == (verdict, flags)


def test_relative_error_and_bandwidth():
    found = row(160, size=2**20)
    assert found.rel_error == pytest.approx(100 / 160 - 1)
    assert found.measured_busbw_Bps == pytest.approx(2**20 / 160e-6 * 1.75)
    assert found.predicted_busbw_Bps == pytest.approx(2**20 / 100e-6 * 1.75)
    assert (found.covered, row(90, interval=(80, 100)).covered, row(90, interval=(95, 100)).covered) == (
        None, True, False,
    )  # fmt: skip


def test_neighbours_with_one_verdict_are_one_sentence():
    rows = [row(100, size=2**24), row(98, size=2**25), row(160, size=2**27), row(163, size=2**30)]
    assert health_of(rows, BOARD) == (
        "busbw from 16 MiB to 32 MiB is 1 % above the model, inside a factor of 1.25 (margin)",
        "busbw from 128 MiB to 1 GiB is 38 % below the model, outside a factor of 1.25 (margin)",
    )


def test_small_sizes_are_told_by_time():
    rows = [row(310, size=8), row(310, size=1024), row(100, size=2**14), row(70, size=2**15)]
    assert health_of(rows, BOARD) == (
        "time from 8 B to 1 KiB is 3.1 times that of the model, outside a factor of 1.25 (margin)",
        "time at 16 KiB agrees with the model, inside a factor of 1.25 (margin)",
        "time at 32 KiB is 30 % below the model, outside a factor of 1.25 (margin)",
    )


def test_interval_and_tolerance_are_told_apart():
    rows = [row(115, interval=(90, 120)), row(115, size=2**21), row(115, size=2**22, interval=(90, 110))]
    assert health_of(rows, BOARD) == (
        "busbw at 1 MiB is 13 % below the model, inside the 90 % interval",
        "busbw at 2 MiB is 13 % below the model, inside a factor of 1.25 (margin)",
        "busbw at 4 MiB is 13 % below the model, outside the 90 % interval",
    )


def test_a_wide_interval_is_said_to_be_wide():
    rows = [row(230, size=2**12, interval=(40, 250)), row(232, size=2**13, interval=(45, 260))]
    assert health_of(rows, BOARD) == (
        "time from 4 KiB to 8 KiB is 2.3 times that of the model, inside the 90 % interval, "
        "which is wide here: from 0.4 to 2.6 times the predicted time",
    )
    assert "wide" not in health_of([row(120, interval=(40, 250))], BOARD)[0]
    assert "wide" not in health_of([row(260, interval=(40, 250))], BOARD)[0]


def test_flagged_ranges():
    rows = [row(100, wrong=3), row(100, size=2**21, wrong=1e6), row(20, size=2**22), row(30, size=2**23)]
    assert health_of(rows, BOARD) == (
        "results from 1 MiB to 2 MiB are wrong, in up to 1e+06 values",
        "time from 4 MiB to 8 MiB is impossible on hgx_h100: down to 40 % of what the line rate of its links allows",
    )
    (floor,) = health_of([row(0.5, bound_us=0.1)], BOARD)
    assert floor == "time at 1 MiB is impossible: no collective takes less than 1 us"
    assert "latency" in health_of([replace(rows[2], bound="latency")], BOARD)[0]


def test_a_repeat_that_the_median_hides():
    assert health_of([row(100, repeats=(99, 210))], BOARD)[1] == (
        "the slowest of 3 repeats at 1 MiB: time is 2.1 times that of the model"
    )


def test_kinds_of_rows_have_their_own_sentences():
    rows = [row(100), row(100, dtype="half"), row(200, dtype="half", size=2**22)]
    assert [sentence.partition(":")[0] for sentence in health_of(rows, BOARD)] == ["float sum", "half sum", "half sum"]


@pytest.fixture
def write(tmp_path):
    def call(text, name="test.log"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return call


def test_prediction_is_that_of_simulate(write):
    """With the op, ranks, type, library and environment of the log."""
    lines = ("# env: NCCL_PROTO=LL", "NCCL version 2.27.3")
    path = write(log_text(lines=lines, ranks=4, dtype="half", rows=((2**20, 40.0), (2**24, 400.0))))
    rows = list(validate(path, BOARD))
    options = {"library": "nccl-2.27", "environment": {"NCCL_PROTO": "LL"}, "ranks": 4, "dtype": "half"}
    expected = simulate(BOARD, "all_reduce", [2**20, 2**24], **options)
    assert [found.predicted_s for found in rows] == [found.time_s for found in expected]
    assert [found.lower_bound_s for found in rows] == [found.lower_bound_s for found in expected]
    assert {found.proto for found in rows} == {"LL"}
    assert [found.measured_s for found in rows] == [pytest.approx(40e-6), pytest.approx(400e-6)]


def test_byte_matrix_is_simulated(write):
    write("0 64M\n0 0\n", "bytes.txt")
    variables = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE=bytes.txt"
    text = f"# env: {variables}\n# Collective test starting: alltoallv_perf\n# op=alltoallv ranks=2\n"
    path = write(f"{text}{2**26} 0 float none -1 200.00 335.54 167.77 N/A\n")
    (found,) = validate(path, BOARD, **IDEAL)
    assert found.predicted_s == simulate(BOARD, "alltoallv", matrix=[[0, 2**26], [0, 0]], **IDEAL).time_s


def test_equal_cases_are_predicted_once(write, monkeypatch):
    from collsim.simulation import simulate as simulation

    calls = []
    predict = simulation.predict
    monkeypatch.setattr(simulation, "predict", lambda *asked, **how: (calls.append(asked), predict(*asked, **how))[1])
    rows = ((2**20, 20.0), (2**22, 50.0))
    paths = [write(log_text(rows=rows) * 3, f"{number}.log") for number in range(3)]
    validation = validate(paths, BOARD, **IDEAL)
    assert len(calls) == 1
    assert len(validation) == 6
    assert {found.repeats for found in validation} == {3}


def test_repeats_are_a_median(write):
    text = "".join(log_text(rows=((2**20, time_us),)) for time_us in (60.0, 31.0, 30.0))
    (found,) = validate(write(text), BOARD, **IDEAL)
    times = (found.measured_s, found.fastest_s, found.slowest_s)
    assert times == (pytest.approx(31e-6), pytest.approx(30e-6), pytest.approx(60e-6))


def test_wrong_results_and_impossible_times_are_flagged_and_not_scored(write):
    rows = ((2**26, 400.0, 5), (2**28, 1000.0), (2**30, 100.0))
    validation = validate(write(log_text(rows=rows)), BOARD, **IDEAL)
    assert [found.verdict for found in validation] == ["wrong", "inside", "impossible"]
    assert (validation.flagged, validation.summary["n"], validation.summary["flagged"]) == (2, 1, 2)


def test_summary(write):
    predicted = simulate(BOARD, "all_reduce", "64M", ranks=4, **IDEAL).time_s * 1e6
    paths = [write(log_text(rows=((2**26, predicted * slow),)), f"{slow}.log") for slow in (1.0, 1.25, 2.0)]
    summary = validate(paths, BOARD, **IDEAL).summary
    assert summary["n"] == 3
    assert summary["median_abs_rel_error"] == pytest.approx(0.2, abs=1e-3)
    assert summary["bias"] == pytest.approx(-0.2, abs=1e-3)
    assert summary["p90_abs_rel_error"] == pytest.approx(0.2 + 0.8 * 0.3, abs=1e-3)
    assert summary["coverage"] is None


def test_interval_of_a_profile_decides(write):
    scatter = Scatter(low=0.9, high=1.2, median=0.03, p90=0.1, rows=40, logs=4)
    profile = replace(load_profile("default"), accuracy={"ring": {"large": scatter}}, systems=(BOARD,))
    options = {"profile": profile, "library": "nccl-2.28", "environment": {"NCCL_ALGO": "Ring"}}
    predicted = simulate(BOARD, "all_reduce", "64M", ranks=4, **options).time_s * 1e6
    paths = [write(log_text(rows=((2**26, predicted * slow),)), f"{slow}.log") for slow in (0.95, 1.1, 1.19, 1.21)]
    validation = validate(paths, BOARD, **options)
    assert [found.verdict for found in validation] == ["inside", "inside", "inside", "slower"]
    assert validation.summary["coverage"] == 0.75
    assert validation.outside == 1
    assert validation.logs[-1].health[0].endswith("outside the 90 % interval")


def test_ranks_of_a_cluster_stand_on_its_nodes(write):
    log = write(log_text(hosts=2, ranks=4))
    (found,) = validate(log, "h100_rail").logs
    assert found.mapping == "ranks 0-3 on the first 2 GPUs of 2 nodes of h100_rail"
    case = found.rows[0].case
    predicted = simulate("h100_rail", case.op, case.size_bytes, rank_list=[0, 1, 8, 9], library=case.library)
    assert found.rows[0].predicted_s == predicted.rows[0].time_s
    wide, odd = write(log_text(hosts=2, ranks=12), "wide.log"), write(log_text(hosts=3, ranks=8), "odd.log")
    many = write(log_text(hosts=3, ranks=6), "many.log")
    reasons = {skip.file: skip.reason for skip in validate([log, wide, odd], "h100_rail").skipped}
    assert "no equal share" in reasons[str(odd)]
    assert str(wide) not in reasons  # 6 on each of two nodes
    small = load_topology("hgx_h100", scale_out={"nodes": 2, "gpus_per_node": 4})
    reasons = {skip.file: skip.reason for skip in validate([log, wide, many], small).skipped}
    assert "12 ranks" in reasons[str(wide)]
    assert "ran on 3 nodes, the cluster has 2" in reasons[str(many)]


def test_what_does_not_fit_the_topology_is_skipped(write):
    fits = write(log_text(), "fits.log")
    nodes, large = write(log_text(hosts=2, ranks=8), "nodes.log"), write(log_text(ranks=12), "large.log")
    board = load_topology(BOARD)  # one host, and nothing but that
    validation = validate([fits, nodes, large], board)
    assert [log.file for log in validation.logs] == [str(fits)]
    reasons = {skip.file: skip.reason for skip in validation.skipped}
    assert "2 nodes" in reasons[str(nodes)]
    assert "give a cluster" in reasons[str(nodes)]
    assert "12 ranks, hgx_h100 has 8 GPUs" in reasons[str(large)]
    with pytest.raises(InputError, match="nothing is left") as caught:
        validate([nodes, large], board)
    assert len(caught.value.faults) == 3


INFO = "box-0:1:2 [0] NCCL INFO comm 0x55 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"


@pytest.mark.parametrize("told", ["list of ranks", "debug line"])
def test_a_log_says_how_many_nodes_there_are(write, told):
    text = log_text(hosts=2, ranks=16)
    if told == "debug line":
        text = INFO + "".join(
            f"{line}\n" for line in text.splitlines() if " Rank " not in line and "nThread" not in line
        )
    path = write(text)
    found, asked = validate(path, BOARD), validate(path, BOARD, nodes=2)
    assert [row.predicted_s for row in found] == [row.predicted_s for row in asked]
    assert (found.topology["ranks"], found.logs[0].case.nodes, found.logs[0].case.ranks) == (16, 2, 16)
    hosts = ": box-0, box-1" if told == "list of ranks" else ""
    assert (found.said, asked.said) == (f"2 nodes of {BOARD}, as the logs say{hosts}", "")
    assert f"# {found.said}\n" in validation_table(found)
    assert found.to_dict()["said"] == found.said
    assert found.warnings == asked.warnings


def test_the_most_nodes_of_several_logs_hold(write):
    one, two = write(log_text(ranks=8), "one.log"), write(log_text(hosts=2, ranks=16), "two.log")
    found = validate([one, two], BOARD)
    assert found.said == f"2 nodes of {BOARD}, the most that one of the logs says: box-0, box-1"
    assert [row.predicted_s for row in found][:1] == [row.predicted_s for row in validate(one, BOARD)]
    assert validate([one], BOARD).said == ""
    assert validate([one, two], "h100_rail").said == ""


def test_what_a_caller_says_against_a_log_is_told(write):
    path = write(log_text(hosts=2, ranks=16))
    found = validate(path, BOARD, nodes=4, ranks=8, op="all_gather")
    assert found.warnings[:3] == (
        f"{path}:1: the log says op all_reduce; all_gather is taken, as asked",
        f"{path}:1: the log says ranks 16; 8 is taken, as asked",
        f"{path}:1: the log says nodes 2; 4 is taken, as asked",
    )
    assert found.logs[0].case.nodes == 4
    (warning, *_) = validate(write("# nodes=3\n" + log_text(hosts=2, ranks=16)), BOARD).warnings
    assert warning.endswith("the list of ranks shows 2 hosts, the text says 3 nodes")


def test_a_mean_of_few_calls_holds_more_of_what_lies_around_them(write):
    """Half of 19 us with RCCL, of which the mean of twenty holds a twentieth; wires alone have nothing around them."""
    text = log_text(ranks=8, rows=((2**12, 22.0),))
    few = text.replace("iters: 20", "iters: 2")
    assert few != text
    two, twenty = (validate(write(one), "mi300x_ubb8").logs[0] for one in (few, text))
    assert two.rows[0].predicted_s - twenty.rows[0].predicted_s == pytest.approx(8.55e-6, rel=1e-6)
    assert "a row is the mean of 2 calls, 8.55 us longer than that of 20" in two.notes
    assert not any("a row is the mean" in note for note in twenty.notes)
    bare = [validate(write(one), "mi300x_ubb8", profile="ideal").logs[0].rows[0].predicted_s for one in (few, text)]
    assert bare[0] == bare[1]


def test_a_replayed_graph_leaves_the_host_out_but_for_its_one_start(write):
    """25 us a row over its 20 calls in each replay; the later start of a thread's second GPU over the replays."""

    def log(calls, gpus):
        text = log_text(ranks=2, graph=calls, rows=((8, 6.0),))
        told = text.replace("nThread 1 nGpus 1", f"nThread {2 // gpus} nGpus {gpus}")
        assert told != text
        return validate(write(told, f"{calls}-{gpus}.log"), BOARD).logs[0]

    many, few, one = (log(calls, 1) for calls in (20, 5, 1))
    times_s = [entry.rows[0].predicted_s for entry in (many, few, one)]
    assert [few_s - times_s[0] for few_s in times_s[1:]] == pytest.approx([0.1875e-6, 1.1875e-6], rel=1e-3)
    assert "a row is the mean of replayed 20 calls, 1.188 us longer than that of 400" in one.notes
    assert not any("a row is the mean" in note for note in many.notes)
    threads_s = [log(calls, 2).rows[0].predicted_s - base_s for calls, base_s in zip((20, 5, 1), times_s, strict=True)]
    assert 0 <= threads_s[0] < 0.1e-6 < threads_s[1] < threads_s[2]
    assert threads_s[2] > 1e-6


def test_hosts_of_a_rack_are_one_domain(write):
    path = write(log_text(hosts=2, ranks=8))
    assert "2 hosts in one domain" in validate(path, "gb200_nvl72").logs[0].mapping


def test_groups_at_once_are_predicted_together(write):
    """On one board groups do not meet: each takes as long as one of its size alone."""
    one, two = (validate(write(log_text(groups=n, ranks=4), f"{n}.log"), BOARD, **IDEAL).logs[0] for n in (1, 2))
    assert two.rows[0].predicted_s == one.rows[0].predicted_s
    assert two.rows[0].case.ranks == 4
    assert two.mapping.startswith("ranks 0-7 on GPUs 0-7")
    assert any("ranks 0,2,4,6 | 1,3,5,7 form groups that ran at once" in note for note in two.notes)
    with pytest.raises(InputError, match="the test has 12 ranks"):
        validate(write(log_text(groups=3, ranks=4)), BOARD, **IDEAL)


def test_topology_without_a_library(write):
    validation = validate(write(log_text(lines=("# env: NCCL_ALGO=Ring", "NCCL version 2.28.9"))), "mi400_ualoe72")
    assert any("no library is known" in text for text in validation.warnings)
    assert validation.logs[0].case.library is None
    assert any("NCCL_ALGO changes nothing" in note for note in validation.logs[0].notes)


def test_library_of_the_other_vendor(write):
    with pytest.raises(InputError, match="does not run on gfx942"):
        validate(write(log_text(lines=("NCCL version 2.28.9",))), "mi300x_ubb8")


def test_log_without_a_version(write):
    for topology, library in ((BOARD, "nccl-"), ("mi300x_ubb8", "rccl-")):
        (log,) = validate(write(log_text()), topology).logs
        assert log.case.library.startswith(library)
        assert any("names no version" in note for note in log.notes)


@pytest.mark.parametrize(
    ("written", "told", "library"),
    [
        ("NCCL 1.3", "line 1: no constants of NCCL 1.3 are known: those of the nearest, nccl-2.18,", "nccl-2.18"),
        ("NCCL 99.1", "line 1: no constants of NCCL 99.1 are known: those of the nearest, nccl-2.30,", "nccl-2.30"),
        ("oneCCL 2021.3", 'line 1: "oneCCL 2021.3" is no library with known constants', "nccl-2.28"),
        ("NCCL two", 'line 1: "NCCL two" names no version that can be read', "nccl-2.28"),
        ("NCCL 2.18", "", "nccl-2.18"),
    ],
)  # fmt: skip
def test_a_version_that_cannot_be_followed_is_told_with_its_line(write, written, told, library):
    (log,) = validate(write(log_text(lines=(f"# library={written}",))), "hgx_h100").logs
    assert log.case.library == library
    assert not any("names no version of the library" in note for note in log.notes)
    assert any(note.startswith(told) for note in log.notes)
    (log,) = validate(write(log_text(lines=(f"# library={written}",))), "hgx_h100", library="nccl-2.28").logs
    assert not any("constants" in note for note in log.notes)


def test_a_version_that_a_library_prints_and_nobody_knows_is_told(write):
    (log,) = validate(write(log_text(lines=("NCCL version 99.1.2",))), "hgx_h100").logs
    assert any(note.startswith("no constants of NCCL 99.1.2 are known") for note in log.notes)


@pytest.mark.parametrize(
    ("op", "told"),
    [
        ("all_reduce", "the text around the table names all_reduce, which the rows contradict: add op"),
        ("all_gathr", 'line 1: unknown operation "all_gathr": did you mean "all_gather"? add op'),
    ],
)
def test_why_an_operation_is_not_taken_is_told(write, op, told):
    gathered = row_of_log(2**20, 30.0, 29.0, op="all_gather", ranks=4)
    with pytest.raises(InputError) as refused:
        validate(write(f"# op={op} ranks=4\n{gathered}"), "hgx_h100")
    assert refused.value.faults[0].what.startswith(told)


def test_why_ranks_are_not_taken_is_told(write):
    half = f"{2**20 / 30e3:.2f} {2**20 / 30e3:.2f} 0"
    with pytest.raises(InputError) as refused:
        validate(
            write(f"# op=broadcast ranks=four\n{2**20} {2**18} float none 0 30.00 {half} 30.00 {half}\n"), "hgx_h100"
        )
    assert refused.value.faults[0].what == 'line 1: "four" is no number of ranks: add ranks'


def test_graph_and_registered_launches_are_told(write, monkeypatch):
    from collsim.simulation import simulate as simulation

    asked = []
    predict = simulation.predict
    follow = lambda *given, **how: (asked.append(given[2]), predict(*given, **how))[1]  # noqa: E731
    monkeypatch.setattr(simulation, "predict", follow)
    validate(write(log_text(graph=2)), BOARD)
    validate(write("# cmd: all_reduce_perf -R 2\n" + log_text()), BOARD)
    assert [(question.launch, question.registered) for question in asked] == [("graph", False), ("stream", "symmetric")]


def test_one_size_that_is_refused_leaves_the_others(write):
    path = write(
        "# op=all_to_all ranks=8\n16 0 float none -1 9.00 0.00 0.00 0\n"
        "1048576 32768 float none -1 30.00 34.95 30.58 0\n"
    )
    validation = validate(path, BOARD)
    assert [found.case.size_bytes for found in validation] == [2**20]
    ((file, refused),) = validation.refused
    assert (file, refused.line, refused.case.size_bytes, refused.measured_s) == (str(path), 2, 16, 9e-6)
    assert "less than an element for each rank" in refused.what
    assert validation.skipped == ()


@pytest.mark.parametrize("op", [name for name, entry in OPERATIONS.items() if entry.blocked])
def test_sizes_are_those_that_the_log_prints(op, write):
    """Older nccl-tests round to elements, not to 16 bytes a rank: 1 and 9 floats a rank are as long as they look."""
    sizes = (32, 288, 32 * 2**10)
    rates = [(size, f"{size / 9e3:.2f} {size * 7 / 8 / 9e3:.2f}") for size in sizes]
    rows = "".join(f"{size} {size // 32} float none -1 9.00 {rate} 0\n" for size, rate in rates)
    still = {"link.latency": "0 ns", "switch.latency": "0 ns"}
    validation = validate(write(f"# op={op} ranks=8\n{rows}"), "hgx_h100", profile="ideal", overrides=still)
    assert (len(validation.refused), [row.case.size_bytes for row in validation]) == (0, list(sizes))
    one, nine, many = (row.predicted_s for row in validation)
    assert nine == pytest.approx(9 * one)  # bare wires without latency: time goes by bytes alone
    assert many == pytest.approx(2**10 * one)


def test_every_fault_at_once(tmp_path):
    options = {"op": "reduec", "ranks": 0, "nodes": True, "launch": "x", "profile": "defualt", "library": "nccl-9"}
    with pytest.raises(InputError) as caught:
        gather([tmp_path / "none.log", tmp_path], None, environment={"NCCL_X": "1"}, **options)
    assert len(caught.value.faults) == 10
    with pytest.raises(InputError, match="no log is named"):
        validate([], BOARD)
    with pytest.raises(InputError, match="margin"):
        validate(tmp_path / "none.log", BOARD, margin=0)


def test_document_is_plain(write):
    validation = compare(gather(write(log_text()), BOARD))
    document = json.loads(json.dumps(validation.to_dict(), allow_nan=False))
    assert document["schema"] == "collsim.validate/1"
    assert all(
        {
            "topology": BOARD,
            "profile": validation.profile["name"],
            "calibrated": validation.profile["calibrated"],
            **row,
        }
        == record
        for row, record in zip(document["rows"], json.loads(json.dumps(validation.to_records())), strict=True)
    )
    assert document["summary"]["n"] == 1


@pytest.mark.parametrize("backend", ["polars", "pandas"])
def test_frame(write, backend):
    frame = validate(write(log_text()), BOARD).to_frame(backend)
    assert list(frame["verdict"]) == [row.verdict for row in validate(write(log_text()), BOARD)]
    assert "predicted_s" in frame.columns


def test_what_the_reader_dropped_is_told(write):
    rows = [(2**power, 2.0 ** (power - 18)) for power in range(20, 28)]
    lines = log_text(rows=rows).splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if line.lstrip().startswith(str(2**26)))
    cells = lines[place].split()
    lines[place] = lines[place].replace(cells[7], "9999.90")
    lines.insert(place, f"{0:12d} {0:13d}     float     sum      -1     0.10    0.00    0.00      0\n")
    path, sound = write("".join(lines)), write(log_text(rows=rows), "sound.log")
    validation = validate([sound, path], BOARD, **IDEAL)
    assert len(validation) == 15
    (unread,) = validation.dropped
    assert (unread.file, unread.count) == (str(path), 1)
    reason = f"line {place + 2}: busbw / algbw is not that of all_reduce over 4 ranks"
    assert f"{unread.first[0]}".startswith(reason)
    assert f"not taken: 1; {reason}" in " ".join(validation_table(validation).replace("\n#", " ").split())
    (told,) = validation.to_dict()["dropped"]
    assert told == {"file": str(path), "count": 1, "first": [{"line": place + 2, "reason": unread.first[0].reason}]}


def test_many_dropped_rows_are_counted_beyond_the_first(write):
    text = log_text(rows=((2**20, 20.0), (2**21, 30.0)))
    broken = "".join(f"{2**22} {2**20} float sum -1 XX{n} 1.00 1.50 0\n" for n in range(5))
    (unread,) = validate(write(text.replace("# Out of", f"{broken}# Out of")), BOARD, **IDEAL).dropped
    assert (unread.count, len(unread.first)) == (5, 3)
    assert str(unread).endswith("; and 2 more")


@pytest.mark.parametrize(
    ("gpus", "topology", "noted"),
    [
        ("NVIDIA H100 80GB HBM3", BOARD, False),
        ("NVIDIA H100", BOARD, False),
        ("NVIDIA Graphics Device", BOARD, False),
        ("NVIDIA B200", BOARD, True),
        ("NVIDIA GH200 120GB", BOARD, True),
        ("AMD Instinct MI300X VF", "mi300x_ubb8", False),
        ("AMD Instinct MI250X/MI250", "mi250x_8oam", False),
        ("AMD Radeon Graphics", "mi300x_ubb8", False),
        ("AMD Instinct MI325X", "mi300x_ubb8", True),
        ("Tesla V100-SXM3-32GB", "dgx2_v100", False),
        ("A100-SXM4-40GB", "dgx_a100", False),
        ("NVIDIA H100 80GB HBM3", "pcie_gen5_8gpu", False),
    ],
)
def test_gpus_of_another_model_are_noted(write, gpus, topology, noted):
    path = write(log_text(rows=((2**26, 4000.0),)).replace("NVIDIA H100 80GB HBM3", gpus))
    (log,) = validate(path, topology, profile="ideal").logs
    notes = [note for note in log.notes if note.startswith(f"the log names {gpus}, {topology} has ")]
    assert len(notes) == noted


def test_a_failed_test_is_told(write):
    text = log_text(rows=((2**26, 400.0),))
    bad = write(text.replace("values : 0 OK", "values : 4 FAILED"), "bad.log")
    validation = validate([write(text), bad], BOARD, **IDEAL)
    assert [log.failed for log in validation.logs] == [False, True]
    assert (validation.failed, validation.summary["failed"], validation.flagged) == (1, 1, 0)


def test_nvls_that_the_machine_hid_is_noticed(tmp_path):
    sizes = [2**power for power in (24, 26, 28)]
    hidden = simulate(BOARD, "all_reduce", sizes, library="nccl-2.28", environment={"NCCL_NVLS_ENABLE": "0"})
    file = tmp_path / "all_reduce.log"
    file.write_text(log_text(ranks=8, rows=[(row.size_bytes, row.time_s * 1e6) for row in hidden.rows]))
    found = validate(file, BOARD, library="nccl-2.28")
    assert {row.algo for row in found.rows} == {"ring"}
    assert any(note.startswith("NVLS was off") for note in found.logs[0].notes)
    told = validate(file, BOARD, library="nccl-2.28", environment={"NCCL_NVLS_ENABLE": "1"})
    assert {row.algo for row in told.rows} == {"nvls"}
    assert not any(note.startswith("NVLS was off") for note in told.logs[0].notes)


def _on_devices(text, devices):
    """Return a log whose ranks are on other devices."""
    for rank, device in enumerate(devices):
        text = re.sub(rf"(Rank +{rank} .* device) +\d+", rf"\1 {device}", text)
    return text


@pytest.mark.parametrize("devices", [(4, 7), (7, 4), (0, 2)])
def test_ranks_are_on_the_devices_of_the_list(write, devices):
    path = write(_on_devices(log_text(ranks=2, rows=((2**27, 3560.0),)), devices))
    (log,) = validate(path, "dgx1_v100", **IDEAL).logs
    assert f"on GPUs {devices[0]},{devices[1]} of dgx1_v100" in log.mapping
    expected = simulate("dgx1_v100", "all_reduce", 2**27, rank_list=list(devices), **IDEAL)
    assert [found.predicted_s for found in log.rows] == [found.time_s for found in expected]


def test_every_second_gpu_of_two_nodes(write):
    devices = (0, 2, 4, 6) * 2
    path = write(_on_devices(log_text(ranks=8, hosts=2, rows=((2**27, 3560.0),)), devices))
    (log,) = validate(path, "h100_rail", **IDEAL).logs
    assert log.mapping == "ranks 0-7 on GPUs 0,2,4,6,8,10,12,14 of h100_rail on 2 nodes, as the log lists them"
    expected = simulate("h100_rail", "all_reduce", 2**27, rank_list=[0, 2, 4, 6, 8, 10, 12, 14], **IDEAL)
    assert [found.predicted_s for found in log.rows] == [found.time_s for found in expected]


def test_the_first_devices_are_no_special_case(write):
    """As many cases, and the same sentence, as without a list."""
    (log,) = validate(write(log_text(ranks=4)), BOARD, **IDEAL).logs
    assert log.mapping == "ranks 0-3 on GPUs 0-3 of hgx_h100, host box-0"
    assert log.case.seats == ()


def test_the_logged_choice_beside_ours(write):
    text = log_text(ranks=8, rows=((2**20, 40.0), (2**22, 60.0), (2**30, 6000.0)))
    ours = validate(write(text), BOARD, **IDEAL)
    rows = iter(
        ("  NVLSTREE  SIMPLE  16", f"  {ours.logs[0].rows[1].algo}  {ours.logs[0].rows[1].proto}  7", "  RING  LL  2")
    )
    text = re.sub(r"(?m)^( +\d+ .*)$", lambda found: found[1] + next(rows), text)
    (log,) = validate(write(text), BOARD, **IDEAL).logs
    assert "the log prints what the library ran: predicted alike in 1 of 3 rows" in log.notes
    assert any(note.startswith("at 1 MiB it ran nvlstree/Simple on 16 channels, predicted is") for note in log.notes)
    assert any(note.startswith("at 1 GiB it ran ring/LL on 2 channels, predicted is") for note in log.notes)
    assert [found.to_dict()["logged_channels"] for found in log.rows] == [16, 7, 2]
    assert [found.predicted_s for found in log.rows] == [found.predicted_s for found in ours]
