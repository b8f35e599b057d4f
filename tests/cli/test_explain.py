"""``collsim explain``: the page, its JSON, its files, and what it refuses."""

import json
import re
import shlex

import pytest
from jsonschema import Draft202012Validator

from collsim import explain
from collsim.report import schema

ASKED = ("explain", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M")


def test_the_page_tells_what_a_planner_asks(collsim):
    page = collsim(*ASKED, "-q").out
    found = explain("hgx_h100", "all_reduce", "1M")
    told = ("limited by: ", "90 % of measured times lie in ", "What ran: ring with LL", "Where 23.53 us go", "(fitted)")
    assert all(text in page for text in told)
    shown = re.findall(r"^  ([a-z ]+?) +(-?[\d.]+) us +[\d.]+%", page, re.MULTILINE)
    figures = {kind: float(time) for kind, time in shown}
    assert figures.pop("sum") == pytest.approx(found.time_s * 1e6, abs=0.01)
    assert sum(figures.values()) == pytest.approx(found.time_s * 1e6, abs=0.05)
    assert all(len(line) <= 120 for line in page.splitlines())


def test_json_follows_its_schema(collsim, tmp_path):
    file = tmp_path / "explained.json"
    assert collsim(*ASKED, "-o", file, "-q").out == ""
    document = json.loads(file.read_text())
    Draft202012Validator(schema("collsim.explain/1")).validate(document)
    assert sum(part["time_s"] for part in document["parts"]) == pytest.approx(document["row"]["time_s"], rel=1e-6)
    assert list(tmp_path.iterdir()) == [file]


def test_the_flags_of_a_suggestion_ask_for_it(collsim):
    """What stands below a suggestion is typed behind the command, and takes the time that was told."""
    document = json.loads(collsim(*ASKED, "--format", "json", "-q").out)
    typed = [each for each in document["what_ifs"] if each["flags"].startswith("--")]
    assert len(typed) >= 5
    for each in typed[:5]:
        rows = json.loads(collsim("run", *ASKED[1:], *shlex.split(each["flags"]), "--format", "json", "-q").out)
        assert rows["results"][0]["time_s"] == pytest.approx(each["time_s"], rel=1e-12), each["flags"]


def test_a_configuration_is_explained(collsim, tmp_path):
    file = tmp_path / "run.json"
    collsim("run", "--topo", "mi300x_ubb8", "--op", "all_to_all", "--size", "1M,64M", "-o", file, "-q")
    page = collsim("explain", "--config", file, "--size", "64M", "--no-what-ifs", "-q").out
    assert "all_to_all of 64 MiB on 8 ranks" in page
    assert "What would help" not in page


def test_everything_wrong_is_told_at_once(collsim):
    found = collsim(
        "explain", "--topo", "hgx_h100", "--op", "all_reduce,all_gather", "--algo", "all,ring", "--ranks", "2,4"
    )
    assert found.code == 2
    assert [line for line in found.err.splitlines() if line.startswith("error: ")] == [
        "error: --op: 2 values (all_reduce, all_gather): one run is explained",
        "error: --size: 11 values (1048576, 2097152, 4194304, 8388608, ...): one run is explained",
        "error: --algo: 2 values (all, ring): one run is explained",
        "error: --ranks: 2 values (2, 4): one run is explained",
    ]
    found = collsim(*ASKED, "--fail", "gpu:gpu9", "--proto", "LL64", "--format", "csv")
    assert found.code == 2
    assert found.err.count("error: ") == 3
    assert "Traceback" not in found.err


def test_nothing_to_explain(collsim):
    found = collsim("explain", "--topo", "hgx_h100", "--op", "all_to_all", "--size", "8", "-q")
    assert found.code == 2
    assert "zero bytes" in found.err
