"""`collsim serve`: what it prints and writes, and what it says of bad input."""

import json

import jsonschema
import pytest

from collsim.report.json_schemas import schema

SERVING = """\
schema: collsim.serving/1
topo: hgx_h100
duration: 4 s
jobs:
  - {model: mixtral-8x7b, ranks: 8, batch: 4, rate: 20, prompt: 100, output: 20, attention: {time: 40 us}}
"""


@pytest.fixture
def serving(tmp_path):
    file = tmp_path / "serving.yaml"
    file.write_text(SERVING)
    return file


def test_the_table_has_a_row_for_each_job_and_how_it_went(collsim, serving):
    found = collsim("serve", serving, "-q")
    assert (found.code, found.err) == (0, "")
    rows = [line for line in found.out.splitlines() if not line.startswith("#")]
    assert len(rows) == 1
    assert "job 0 over time:" in found.out


def test_json_follows_its_schema_and_flags_change_what_the_file_says(collsim, serving, tmp_path):
    written = tmp_path / "served.json"
    assert collsim("serve", serving, "-q", "-o", written, "--seed", "5", "--topo", "hgx_h200").code == 0
    found = json.loads(written.read_text())
    jsonschema.validate(found, schema("collsim.serving_result/1"))
    assert (found["seed"], found["topology"]) == (5, "hgx_h200")
    slower = collsim("serve", serving, "-q", "--format", "json", "--seed", "5", "--set", "link.bandwidth=1 GB/s").out
    assert json.loads(slower)["jobs"][0]["token_median_s"] > found["jobs"][0]["token_median_s"]


def test_bad_input_is_told_without_a_traceback(collsim, serving, tmp_path):
    serving.write_text(SERVING.replace("rate: 20", "rate: -1, batsh: 3").replace("duration", "druation"))
    found = collsim("serve", serving)
    assert (found.code, found.out) == (2, "")
    for part in ('did you mean "duration"', 'did you mean "batch"', "-1 is no number"):
        assert part in found.err
    found = collsim("serve", tmp_path / "none.yaml", "--seed", "x")
    assert found.code == 2
    assert "Traceback" not in found.err
    found = collsim("serve", tmp_path / "none.yaml")
    assert (found.code, "cannot be read" in found.err) == (2, True)
