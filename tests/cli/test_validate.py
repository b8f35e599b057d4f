"""`collsim validate`: formats, exit codes, and what is wrong with a request or a log."""

import csv
import io
import json
import re
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from collsim.diagnosis.findings import VERDICTS
from collsim.report import schema

from .conftest import ROOT
from .test_bad_input import refused

HEALTHY = ("validate", "examples/h100_all_reduce.log", "--topo", "hgx_h100", "-q")
DOUBTFUL = ("validate", "examples/h100_doubtful.log", "--topo", "hgx_h100", "-q")
ROW = "1048576 262144 float sum -1 40.00 26.21 45.87 0\n"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_columns_line_up(collsim):
    lines = collsim(*HEALTHY).out.splitlines()
    head = next(line for line in lines if "measured" in line)
    ends = [word.end() for word in re.finditer(r"\w+", head)][:10]
    rows = [line for line in lines if not line.startswith("#")]
    assert len(rows) == 6
    for row in rows:
        assert [word.end() for word in re.finditer(r"\S+", row)][:10] == ends


@pytest.mark.parametrize("arguments", [HEALTHY, DOUBTFUL], ids=["healthy", "doubtful"])
def test_json_follows_its_schema(collsim, arguments):
    document = json.loads(collsim(*arguments, "--format", "json").out)
    Draft202012Validator(schema("collsim.validate/1")).validate(document)
    row = document["rows"][0]
    assert row["rel_error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
    assert document["summary"]["n"] == sum(not row["flags"] for row in document["rows"])
    assert not Draft202012Validator(schema("collsim.validate/1")).is_valid({**document, "extra": 1})


def test_json_with_intervals_and_skipped_tests_follows_its_schema(collsim, tmp_path):
    several = tmp_path / "nodes.log"
    several.write_text("# op=all_reduce ranks=8 nodes=3\n" + ROW)
    outcome = collsim(*HEALTHY, several, "--format", "json")
    document = json.loads(outcome.out)
    for row in document["rows"]:
        row.update(time_lo_s=1e-6, time_hi_s=2e-6)
    document["summary"]["coverage"] = 0.5
    Draft202012Validator(schema("collsim.validate/1")).validate(document)
    (skipped,) = document["skipped"]
    assert skipped["file"] == str(several)
    assert skipped["reason"].endswith("are no equal share for each of 3 nodes")


def test_csv_has_the_rows_of_json(collsim, tmp_path):
    rows = list(csv.DictReader(io.StringIO(collsim(*DOUBTFUL, "--format", "csv").out)))
    expected = json.loads(collsim(*DOUBTFUL, "--format", "json").out)["rows"]
    assert [row["verdict"] for row in rows] == ["inside", "wrong", "impossible"]
    assert [float(row["measured_s"]) for row in rows] == [row["measured_s"] for row in expected]
    assert {(row["topology"], row["profile"], row["calibrated"]) for row in rows} == {("hgx_h100", "hgx_h100", "true")}
    assert set(expected[0]) < set(rows[0])
    bare = list(csv.DictReader(io.StringIO(collsim(*DOUBTFUL, "--profile", "ideal", "--format", "csv").out)))
    assert {(row["profile"], row["calibrated"], row["time_lo_s"]) for row in bare} == {("ideal", "false", "")}
    assert collsim(*DOUBTFUL, "-o", tmp_path / "rows.csv").out == ""
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").startswith("topology,profile,calibrated,file,line,op,")


@pytest.mark.parametrize(("arguments", "code"), [((), 0), (("--strict",), 1)])
def test_exit_code_outside(collsim, arguments, code):
    assert collsim(*HEALTHY, *arguments).code == code


def test_exit_code_of_a_failed_test(collsim, tmp_path):
    log = (ROOT / "examples/h100_all_reduce.log").read_text(encoding="utf-8")
    assert "# Out of bounds values : 0 OK" in log
    path = tmp_path / "failed.log"
    path.write_text(log.replace("# Out of bounds values : 0 OK", "# Out of bounds values : 4 FAILED"))
    outcome = collsim("validate", path, *HEALTHY[2:])
    assert outcome.code == 1
    assert "flagged 0   failed tests 1   skipped 0" in outcome.out


def test_json_with_dropped_rows_and_failed_tests_follows_its_schema(collsim, tmp_path):
    log = (ROOT / "examples/h100_all_reduce.log").read_text(encoding="utf-8")
    path = tmp_path / "edited.log"
    path.write_text(log.replace("292.26", "9999.90").replace("values : 0 OK", "values : 4 FAILED"))
    document = json.loads(collsim("validate", path, *HEALTHY[2:], "--format", "json").out)
    Draft202012Validator(schema("collsim.validate/1")).validate(document)
    (dropped,) = document["dropped"]
    assert (dropped["file"], dropped["count"]) == (str(path), 1)
    assert (document["summary"]["failed"], document["logs"][0]["failed"]) == (1, True)


def test_strict_and_healthy(collsim, tmp_path):
    rows = [line for line in collsim(*HEALTHY, "--format", "csv").out.splitlines() if "inside" in line]
    assert rows  # the small sizes of the example; alone they pass
    log = (ROOT / "examples/h100_all_reduce.log").read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "healthy.log"
    path.write_text("".join(line for line in log if not line.lstrip().startswith(("268435456", "1073741824"))))
    assert collsim("validate", path, *HEALTHY[2:], "--strict").code == 0


def test_warnings_go_to_stderr(collsim):
    outcome = collsim(*[word for word in HEALTHY if word != "-q"], "--profile", "default")
    assert "warning: " in outcome.err
    assert "not calibrated" in outcome.err
    assert collsim(*HEALTHY, "--profile", "default").err == ""


def test_flags_go_before_the_log(collsim, tmp_path):
    path = tmp_path / "bare.log"
    path.write_text(ROW)
    flags = ("--op", "allreduce", "--ranks", "8", "--nodes", "1", "--library", "nccl-2.20", "--env", "NCCL_ALGO=Tree")
    outcome = collsim("validate", path, "--topo", "hgx_h100", "-q", "--launch", "graph", *flags, "--format", "json")
    (log,) = json.loads(outcome.out)["logs"]
    assert (log["op"], log["ranks"], log["nodes"], log["launch"]) == ("all_reduce", 8, 1, "graph")
    assert (log["library"], log["environment"]) == ("nccl-2.20", {"NCCL_ALGO": "Tree"})


def test_every_fault_at_once(collsim, tmp_path):
    (tmp_path / "empty.log").touch()
    files = (tmp_path / "none.log", tmp_path, tmp_path / "empty.log")
    flags = "--op reduec --ranks 0 --nodes two --launch x --profile defualt --library nccl-9 --env y --env NCCL_X=1"
    outcome = collsim("validate", *files, "--topo", "hgx_h10", *flags.split(), "--format", "md", "-o", "/no/such.csv")
    flagged = ("--op", "--ranks", "--nodes", "--launch", "--profile", "--library", "--topo", "--format")
    places = (*flagged, "-o: /no/such.csv")
    refused(outcome, *(f"error: {place}: " for place in (*places, *files)), '"y" is not NAME=VALUE', '"NCCL_X"')
    assert outcome.err.count("error: ") == 14


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["no usable row in 0 lines"]),
        (b"nothing to see here\n" * 5, ["no usable row in 5 lines"]),
        (bytes(range(256)) * 40, ["no usable row"]),
        (b"\x1f\x8b\x08broken", ["reading stopped"]),
        (b"# op=all_reduce ranks=16\n" + ROW.encode(), ["busbw / algbw"]),
        (b"# op=all_reduce ranks=8 nodes=3\n" + ROW.encode(), ["no equal share", "nothing is left"]),
        (b"# op=send_recv ranks=12\n8 2 float sum -1 40.00 0.00 0.00 0\n", ["12 ranks, hgx_h100 has 8 GPUs"]),
    ],
    ids=["empty", "prose", "binary", "broken gzip", "contradiction", "three nodes", "too many ranks"],
)
def test_logs_that_do_not_serve(collsim, tmp_path, content, words):
    path = tmp_path / "some.log"
    path.write_bytes(content)
    outcome = collsim("validate", path, "--topo", "hgx_h100")
    if words == ["busbw / algbw"]:  # the reader believes the rows, and says so
        assert outcome.code == 0
        assert "ranks 8" in outcome.out
    else:
        refused(outcome, str(path), *words)


def test_no_log_and_no_topology(collsim):
    refused(collsim("validate"), "no log is named", "--topo: no topology is named")


@pytest.mark.parametrize("cut", range(0, 2400, 150))
def test_mutilated_logs(collsim, tmp_path, cut):
    """A log with a hole: an answer or a report, never a defect."""
    content = (ROOT / "examples/h100_all_reduce.log").read_bytes()
    path = tmp_path / "cut.log"
    path.write_bytes(content[:cut] + content[cut + 111 :])
    outcome = collsim("validate", path, *HEALTHY[2:])
    assert outcome.code in (0, 1, 2)
    assert "defect" not in outcome.err
    assert "Traceback" not in outcome.err
    assert bool(outcome.out) != bool(outcome.err)


def test_standard_input(process, tmp_path):
    path = ROOT / "examples/h100_all_reduce.log"
    with path.open("rb") as log:
        outcome = process("validate", "-", *HEALTHY[2:], stdin=log)
    assert outcome.code == 0
    assert "# stdin:2" in outcome.out


class TestGates:
    """A gate of the user's, and changes of the machine."""

    def test_least_bandwidth(self, collsim):
        assert collsim(*HEALTHY, "--min-busbw", "355 GB/s").code == 0
        below = collsim(*HEALTHY, "--min-busbw", "400 GB/s")
        assert below.code == 1
        assert "h100_all_reduce.log:2 reaches 360.9 of 400 GB/s" in below.err

    def test_tolerance_stands_in_for_an_interval(self, collsim):
        bare = (*HEALTHY, "--profile", "default", "--env", "NCCL_ALGO=Ring")
        wide, narrow = (collsim(*bare, "--margin", share).out.count("inside\n") for share in ("90%", "1%"))
        assert wide > narrow
        old = collsim(*bare, "--tolerance", "90%")
        assert old.out.count("inside\n") == wide
        assert "warning: --tolerance is now --margin; the old name goes in 0.2" in old.err

    def test_changes_of_the_machine(self, collsim):
        assert "note: predicted with" in collsim(*HEALTHY, "--degrade", "switch:nvsw0=50%").out
        assert collsim(*HEALTHY, "--set", "link.bandwidth=12.5 GB/s").out != collsim(*HEALTHY).out
        assert "nvsw1" in collsim(*HEALTHY, "--fail", "switch:nvsw1").out

    def test_nodes_make_a_cluster_of_a_host(self, collsim, tmp_path):
        log = tmp_path / "all_reduce.log"
        log.write_text("# nranks=16 nodes=2 op=all_reduce\n" + ROW.replace("45.87", "49.14"))
        told = collsim("validate", log, "--topo", "dgx_a100", "--nodes", "2", "--set", "nic.shared_by=2", "-q")
        assert "ranks 0-15 on the first 8 GPUs of 2 nodes of dgx_a100" in told.out

    def test_a_list_of_ranks_goes_before_the_log(self, collsim, tmp_path):
        log = tmp_path / "all_reduce.log"
        log.write_text("# nranks=4 op=all_reduce\n" + ROW.replace("45.87", "39.32"))
        told = collsim("validate", log, "--topo", "hgx_h100", "--rank-list", "0,2,4,6", "-q")
        assert "ranks 0-3 on GPUs 0,2,4,6 of hgx_h100" in told.out
        refused(collsim("validate", log, "--topo", "hgx_h100", "--rank-list", "0,2"), "the list of ranks 2")

    def test_every_fault_of_the_gates(self, collsim):
        faulty = collsim(*HEALTHY, "--min-busbw", "400", "--margin", "x", "--rank-list", "0-")
        assert faulty.code == 2
        assert faulty.err.count("error:") >= 3


class TestDiagnose:
    """`collsim diagnose`: exit codes and faults; what it finds is tested in tests/diagnosis."""

    FEW = ("diagnose", "examples/h100_all_reduce.log", "--topo", "hgx_h100", "-q", "--causes", "few_channels,loss")

    def test_exit_code_and_formats(self, collsim, tmp_path):
        told = collsim(*self.FEW)
        assert told.code == 1
        assert re.search(r"1 MiB to 16 MiB +healthy", told.out)
        assert collsim(*self.FEW, "-o", tmp_path / "a.svg").code == 1
        assert (tmp_path / "a.svg").read_text().startswith("<svg")

    def test_exit_code_of_every_verdict(self, collsim, monkeypatch):
        codes = {}
        for found in [SimpleNamespace(verdict=verdict, warnings=()) for verdict in VERDICTS]:
            monkeypatch.setattr("collsim.cli.diagnose._diagnosed", lambda flags, faults, found=found: found)
            monkeypatch.setattr("collsim.report.render_diagnosis", lambda found, form: found.verdict)
            told = collsim(*self.FEW)
            codes[told.out.strip()] = told.code
        assert codes == {"healthy": 0, "doubtful": 0, "faulty": 1, "fast": 0, "broken": 1}

    def test_every_fault_at_once(self, collsim):
        faulty = collsim("diagnose", "missing.log", "--topo", "hgx_h100", "--causes", "los", "--nodes", "x")
        assert faulty.code == 2
        assert 'did you mean "loss"?' in faulty.err
        assert faulty.err.count("error:") >= 2
