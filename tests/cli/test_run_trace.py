"""`collsim run --perfetto`: a trace with every transfer, and counters that hold the bytes of every link."""

import json
from collections import defaultdict

import numpy as np
import pytest

import collsim as package
from collsim.core.errors import InputError, UnsupportedError
from collsim.report.run_trace import run_trace_text
from collsim.simulation import flows, plans
from collsim.simulation.request.prepare import prepare
from collsim.simulation.traced import traced

SHARED = {"nodes": 2, "groups": [[0, 2, 8], [1, 9, 10]], "overrides": ["nic.shared_by=2"]}
RUNS = {
    "mesh": ("mi300x_ubb8", "all_to_all", "16M", {}),
    "mesh, rings": ("mi300x_ubb8", "all_reduce", "16M", {"algo": "ring"}),
    "mesh, a link lost": ("mi355x_ubb8", "all_reduce", "16M", {"fail": "link:gpu0-gpu1"}),
    "switched, switches add": ("hgx_h100", "all_reduce", "64M", {}),
    "switched, transfers alike": ("gb200_nvl72", "all_to_all", "16M", {"ranks": 16}),
    "switched, the fastest": ("hgx_h100", "all_reduce", "1M", {"algo": "best"}),
    "bare wires": ("hgx_h100", "reduce_scatter", "16M", {"profile": "ideal"}),
    "two nodes": ("hgx_h100", "all_reduce", "64M", {"nodes": 2}),
    "two nodes, relayed": ("hgx_h100", "all_to_all", "16M", {"nodes": 2}),
    "groups on links of their own": ("hgx_h100", "all_reduce", "16M", {"nodes": 2, "split": "MOD 8"}),
    "groups that share links": ("hgx_h100", "all_gather", "4M", SHARED | {"algo": "ring"}),
    "memory of hosts": ("pcie_gen5_8gpu", "all_reduce", "16M", {}),
    "calls in a row": ("hgx_h100", "broadcast", "16M", {}),
}


def events_of(text):
    return json.loads(text)["traceEvents"]


def areas(events):
    """Return bytes and greatest percentage by the name of the counter."""
    points = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            points[event["name"]].append((event["ts"], event["args"]["GB/s"], event["args"]["percent"]))
    found = {}
    for name, each in points.items():
        at_us, rate, percent = np.array(each).T
        assert rate[-1] == 0
        found[name] = float((rate[:-1] * np.diff(at_us)).sum() * 1e3), float(percent.max())
    return found


@pytest.mark.parametrize("case", RUNS)
def test_counters_hold_the_bytes_of_every_link_and_never_more_than_it_carries(case):
    topo, op, size, asked = RUNS[case]
    result, row = traced(prepare(topo, op, size, **asked))
    assert row.time_s == pytest.approx(result.time_s, rel=1e-9)
    assert row.label == result.rows[0].label
    carried = {row.loads.wiring.link_name(i): row.loads.bytes[i] for i in np.flatnonzero(row.loads.bytes).tolist()}
    found = areas(events_of(run_trace_text(row, topo)))
    assert {name: area for name, (area, _) in found.items()} == pytest.approx(carried, rel=1e-9)
    assert max(percent for _, percent in found.values()) <= 100 * (1 + 1e-9)


@pytest.mark.parametrize("case", RUNS)
def test_a_trace_is_of_chromes_format(case):
    topo, op, size, asked = RUNS[case]
    _, row = traced(prepare(topo, op, size, **asked))
    events = events_of(run_trace_text(row, topo))
    assert [event["ph"] for event in events] == sorted((event["ph"] for event in events), key="M".__ne__)
    timed = [event for event in events if event["ph"] != "M"]
    assert {event["ph"] for event in timed} == {"X", "C"}
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    slices = [event for event in timed if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in slices} == named
    (call,) = (event for event in slices if event["name"] == op)
    assert max(event["ts"] + event["dur"] for event in slices) <= call["ts"] + call["dur"] + 2e-3
    if "note" not in call["args"]:
        assert call["dur"] == pytest.approx(row.time_s * 1e6, abs=1e-3)
    assert ("note" in call["args"]) == (case == "calls in a row")
    for track in named:  # slices of a track nest or follow each other
        spans = (
            (round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)) for e in slices if track == (e["pid"], e["tid"])
        )
        open_until = []
        for begin_ns, end_ns in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin_ns:
                open_until.pop()
            assert not open_until or end_ns <= open_until[-1]
            open_until.append(end_ns)


def test_ranks_send_what_the_algorithm_says():
    """A ring of 4 ranks: 6 steps of a quarter of 4 MiB to the next rank."""
    _, row = traced(prepare("mi300x_ubb8", "all_reduce", "4M", algo="ring", channels=1, ranks=4, profile="ideal"))
    events = events_of(run_trace_text(row, "mi300x_ubb8"))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [name for name in names.values() if name.startswith("rank")] == [f"rank {i} (gpu{i})" for i in range(4)]
    sends = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["name"].startswith("to "):
            sends[names[event["pid"]]].append((event["name"], event["args"]["bytes"], event["args"]["channels"]))
    assert {len(each) for each in sends.values()} == {6}
    assert {(size, channels) for each in sends.values() for _, size, channels in each} == {(2**20, 1)}
    assert sends["rank 0 (gpu0)"] == [(f"to rank 1 step {step} channel 0", 2**20, 1) for step in range(6)]


def test_groups_are_all_in_it():
    _, row = traced(prepare("hgx_h100", "all_reduce", "1M", split="MOD 4"))
    events = events_of(run_trace_text(row, "hgx_h100"))
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names[2:] == [f"group {g} rank {r} (gpu{g + 4 * r})" for g in range(4) for r in range(2)]


RUN = ("run", "--topo", "hgx_h100", "--op", "all_reduce")


@pytest.mark.parametrize("algo", ["auto", "best"])
def test_the_table_is_that_without_a_trace(collsim, tmp_path, algo):
    asked = (*RUN, "--size", "1M", "--algo", algo, "--format", "json")
    plain = collsim(*asked)
    found = collsim(*asked, "--perfetto", tmp_path / "trace.json")
    assert (found.code, found.out, found.err) == (0, plain.out, plain.err)
    assert events_of((tmp_path / "trace.json").read_text())[0]["args"]["name"].startswith("all_reduce 1 MiB by ")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ((), ["--size: 11 values", "a trace is of one run"]),
        (("--size", "1M", "--algo", "ring,tree"), ["--algo: 2 values (ring, tree): a trace is of one run"]),
        (("--size", "1M", "--algo", "all"), ['--algo: "all" is one run for each algorithm']),
        (("--size", "1M", "--ranks", "2,4"), ["--ranks: 2 values"]),
        (("--size", "1M", "--algo", "torus"), ["--algo"]),
        (("--size", "1M", "--algo", "nvls", "--proto", "LL"), ["--proto: nvls does not run with LL"]),
        (
            ("--size", "1M", "--nodes", "1024", "--algo", "ring"),
            ["--perfetto: ", "too many for a trace", "--channels 1"],
        ),
    ],
)
def test_what_cannot_be_traced_is_an_error_and_writes_nothing(collsim, tmp_path, flags, parts):
    file = tmp_path / "trace.json"
    found = collsim(*RUN, *flags, "--perfetto", file)
    assert (found.code, found.out) == (2, "")
    assert all(part in found.err for part in parts), found.err
    assert not file.exists()


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("", ["--perfetto: the name of the file is empty"]),
        ("/no/such/trace.json", ["/no/such/trace.json", '"/no/such"']),
        ("-", ["--perfetto: stdout would also take"]),
        ("same.json", ["--perfetto: same.json would also take what -o writes"]),
    ],
)
def test_a_bad_file_is_told_before_any_work(collsim, tmp_path, monkeypatch, file, parts):
    monkeypatch.chdir(tmp_path)
    found = collsim(*RUN, "--size", "1M", "--perfetto", file, *(("-o", "same.json") if file == "same.json" else ()))
    assert (found.code, found.out) == (2, "")
    assert all(part in found.err for part in parts), found.err


def test_draws_of_a_hash_are_several_runs():
    asked = prepare("hgx_h100", "all_to_all", "1M", nodes=4, fabric="fat_tree", network="roce", hash_seeds="1-3")
    with pytest.raises(InputError, match="3 seeds: a trace is of one run"):
        traced(asked)


@pytest.mark.parametrize("limit", ["MOST_SENT", "MOST_HOPS"])
def test_too_long_a_trace_is_refused_before_it_is_simulated(monkeypatch, limit):
    monkeypatch.setattr(flows, limit, 100)
    monkeypatch.setattr(flows, "rates_over_time", None)
    monkeypatch.setattr(plans, "row_of", None)
    with pytest.raises(UnsupportedError, match="too many for a trace, which has room for 100"):
        traced(prepare("hgx_h100", "all_reduce", "64M"))


@pytest.mark.parametrize("limit", ["MOST_CHANGES", "MOST_WORK"])
def test_rates_that_change_too_often_are_refused(monkeypatch, limit):
    monkeypatch.setattr(flows, limit, 100)
    with pytest.raises(UnsupportedError, match="for a trace"):
        traced(prepare("hgx_h100", "all_reduce", "64M", algo="ring"))


def test_python_writes_the_same_file(collsim, tmp_path):
    result = package.write_trace(tmp_path / "a.json", "hgx_h100", "all_reduce", "1M")
    assert result == package.simulate("hgx_h100", "all_reduce", "1M")
    assert collsim(*RUN, "--size", "1M", "-q", "--perfetto", tmp_path / "b.json").code == 0
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()
    with pytest.raises(InputError, match="a trace is of one run"):
        package.write_trace(tmp_path / "c.json", "hgx_h100", "all_reduce", ["1M", "2M"])
    assert not (tmp_path / "c.json").exists()
