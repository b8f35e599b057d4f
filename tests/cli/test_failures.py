"""What-ifs on the command line: columns, notes, exit codes and schemas."""

import csv
import io
import json

import pytest
from jsonschema import Draft202012Validator

from collsim.report import schema

BROKEN = ("--topo", "hgx_h100", "--op", "all_reduce", "--size", "256M", "--fail", "switch:nvsw2")


def test_the_table_shows_before_and_after(collsim):
    done = collsim("run", *BROKEN)
    assert done.code == 0
    assert "# with 1 switch failed: nvsw2\n# NVLS is off: switch nvsw2 is missing\n" in done.out
    assert "healthy slower" in done.out
    assert "# healthy: nvls/Simple where ring/Simple runs now (1 row)" in done.out
    assert "calibrated: no" in done.out
    assert "no failure was ever measured" in done.err
    assert "healthy" not in collsim("run", *BROKEN[:-2]).out


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "md", "nccl"])
def test_every_format(collsim, form):
    out = collsim("run", *BROKEN, "--degrade", "link:gpu0-nvsw0=50%", "-q", "--format", form).out
    if form == "json":
        document = json.loads(out)
        Draft202012Validator(schema("collsim.result/1")).validate(document)
        assert document["config"]["fail"] == ["switch:nvsw2"]
        row = document["results"][0]
        assert row["slowdown"] == row["time_s"] / row["healthy_time_s"] > 1
        assert document["topology"]["damage"]["summary"].endswith("1 link at 50%: gpu0-nvsw0")
    elif form == "jsonl":
        row = json.loads(out)
        Draft202012Validator(schema("collsim.row/1")).validate(row)
        assert row["degrade"] == {"link:gpu0-nvsw0": "50%"}
    elif form == "csv":
        (row,) = csv.DictReader(io.StringIO(out))
        assert float(row["healthy_time_s"]) < float(row["time_s"])
        assert (row["fail"], row["degrade"]) == ("switch:nvsw2", "link:gpu0-nvsw0=50%")
    elif form == "md":
        assert "| healthy (us) | slower (x) |" in out
    else:
        assert "healthy" not in out


def test_two_islands_leave_with_3(collsim):
    done = collsim("run", "--topo", "mi300x_ubb8", "--op", "all_reduce", "--fail", "link:gpu[0-3]-gpu[4-7]")
    assert done.code == 3
    assert "gpu0, gpu1, gpu2, gpu3 and gpu4, gpu5, gpu6, gpu7 are cut off" in done.err
    assert "link gpu0-gpu4" in done.err


def test_all_faults_at_once(collsim):
    done = collsim(
        "run", "--topo", "hgx_h100", "--op", "all_gathr", "--fail", "switch:nvsw9", "--fail", "gpu5",
        "--degrade", "link:gpu0-nvsw0=x", "--degrade", "nothing",
    )  # fmt: skip
    assert done.code == 2
    for text in (
        '--fail: there is no switch "nvsw9"',
        "write gpu:gpu5",
        '--degrade: "x" of "link:gpu0-nvsw0" is not a percentage',
        '--degrade: "nothing" is not WHAT=SHARE',
        "all_gathr",
    ):
        assert text in done.err


def test_a_failed_gpu_cannot_be_listed(collsim):
    listed = collsim("run", *BROKEN[:-2], "--fail", "gpu:5", "--rank-list", "4,5,6")
    assert (listed.code, "--rank-list: GPU 5 is among what failed" in listed.err) == (2, True)
    counted = collsim("run", *BROKEN[:-2], "--fail", "gpu:5", "--ranks", "8")
    assert (counted.code, "--ranks: 8 ranks on 7 GPUs" in counted.err) == (2, True)
    assert "ranks 7 " in collsim("run", *BROKEN[:-2], "--fail", "gpu:5", "-q").out


def test_a_configuration_is_added_to(collsim, tmp_path):
    saved = tmp_path / "run.json"
    collsim("run", *BROKEN, "-q", "--save-config", saved)
    more = collsim("run", "--config", saved, "--fail", "link:gpu0-nvsw1", "-q", "--format", "csv").out
    both = collsim("run", *BROKEN, "--fail", "link:gpu0-nvsw1", "-q", "--format", "csv").out
    assert more == both
    document = json.loads(saved.read_text())
    document["config"]["fail"] = "switch:nvsw2"
    saved.write_text(json.dumps(document))
    wrong = collsim("run", "--config", saved)
    assert (wrong.code, "config.fail" in wrong.err) == (2, True)


def test_the_schedule_of_a_broken_machine(collsim):
    schedule = ("schedule", "show", "--topo", "mi300x_ubb8", "--op", "all_reduce", "--algo", "ring", "--size", "1M")
    healthy, broken = collsim(*schedule).out, collsim(*schedule, "--fail", "link:gpu0-gpu1").out
    assert healthy != broken
