"""``collsim topo import``, ``collsim schedule import`` and ``collsim schedule run``: output, files, exit codes."""

import io
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from collsim.report import schema
from tests.cli.conftest import collsim  # noqa: F401 - a fixture

EXAMPLES = Path(__file__).parents[2] / "examples/imports"


def test_a_matrix_becomes_a_file_that_runs(collsim, tmp_path):  # noqa: F811
    file = tmp_path / "mine.yaml"
    made = collsim("topo", "import", EXAMPLES / "topo_m.txt", "-o", file)
    assert (made.code, made.err) == (0, "")
    assert "nearest  hgx_h100" in made.out
    assert "assumed  gpu.model" in made.out
    assert collsim("topo", "check", file).code == 0
    ran = collsim("run", "--topo", file, "--op", "all_reduce", "--size", "1M", "--format", "csv")
    assert ran.code == 0


def test_without_a_file_stdout_is_the_topology(collsim):  # noqa: F811
    made = collsim("topo", "import", EXAMPLES / "topo_m.txt")
    assert made.out.startswith("schema: collsim.topology/1\n")
    assert "nearest  hgx_h100" in made.err


def test_stdin(collsim, monkeypatch):  # noqa: F811
    for name, words in (("topo_m.txt", "hgx_h100"), ("topology.conf", "node: hgx_h100")):
        stream = io.TextIOWrapper(io.BytesIO((EXAMPLES / name).read_bytes()))
        monkeypatch.setattr("sys.stdin", stream)
        made = collsim("topo", "import", "-", *(["--like", "hgx_h100"] if name == "topology.conf" else []))
        assert made.code == 0
        assert 'name: "stdin"' in made.out
        assert words in made.out


def test_json(collsim):  # noqa: F811
    made = collsim("topo", "import", EXAMPLES / "topo_m.txt", "--format", "json")
    found = json.loads(made.out)
    Draft202012Validator(schema("collsim.import/1")).validate(found)
    assert (found["schema"], found["kind"], found["nearest"]) == ("collsim.import/1", "nvidia_smi", "hgx_h100")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.txt"], "no such file"),
        (["topo_m.txt", "--kind", "nvidia"], "--kind: unknown format"),
        (["topo_m.txt", "--kind", "rocm_smi"], "this does not look like tables of rocm-smi"),
        (["topo_m.txt", "--like", "hgx_h10"], "--like: unknown topology"),
        (["topo_m.txt", "--format", "xml"], "--format: unknown format"),
        (["topo_m.txt", "-o", "topo.json"], "-o: the suffix"),
        (["msccl_ring.xml"], "collsim schedule import"),
    ],
)
def test_wrong_flags(collsim, monkeypatch, arguments, words):  # noqa: F811
    monkeypatch.chdir(EXAMPLES)
    found = collsim("topo", "import", *arguments)
    assert found.code == 2
    assert words in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize(
    "file", [path.name for path in sorted(EXAMPLES.iterdir()) if path.name not in ("msccl_ring.xml",)]
)
def test_run_names_the_format_and_the_command(collsim, monkeypatch, file):  # noqa: F811
    monkeypatch.chdir(EXAMPLES)
    found = collsim("run", "--topo", f"./{file}", "--op", "all_reduce")
    assert found.code == 2
    assert f"collsim topo import ./{file}" in found.err


def test_an_algorithm_is_imported_checked_and_run(collsim, tmp_path):  # noqa: F811
    file = tmp_path / "ring.json"
    made = collsim("schedule", "import", EXAMPLES / "msccl_ring.xml", "--size", "64K", "-o", file)
    assert (made.code, made.out) == (0, f"{file}: ok (all_reduce by my_ring, 4 ranks, 65536 bytes, 24 transfers)\n")
    assert collsim("schedule", "check", file).code == 0
    saved = collsim("schedule", "run", file, "--topo", "dgx_a100", "--format", "json")
    direct = collsim(
        "schedule", "run", EXAMPLES / "msccl_ring.xml", "--topo", "dgx_a100", "--size", "64K,1M", "--format", "json"
    )
    (row,), (small, large) = (json.loads(each.out)["results"] for each in (saved, direct))
    assert row["algo"] == "my_ring"
    assert row["proto"] == "LL128"
    assert row["time_s"] == small["time_s"] < large["time_s"]


def test_an_algorithm_that_does_not_fit_is_refused(collsim):  # noqa: F811
    found = collsim("schedule", "run", EXAMPLES / "msccl_ring.xml", "--topo", "dgx_a100", "--rank-list", "0-7")
    assert found.code == 2
    assert "--rank-list: the schedule is of 4 ranks, not of 8" in found.err
