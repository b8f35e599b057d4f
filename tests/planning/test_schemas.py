"""Documents of sweeps, tunings, workloads and tables follow the schemas that are shipped."""

import json

from jsonschema import Draft202012Validator

import collsim
from collsim.report import schema

GRID = {"base": {"topo": "hgx_h100", "op": "all_reduce", "size": "1M"}, "grid": {"ranks": [2, 4, 99]}}


def documents():
    yield collsim.sweep(GRID, pareto="cost,time")
    yield collsim.tune("hgx_h100", "all_reduce", ["1M"], search_channels=False)
    yield collsim.compare_workloads(["hgx_h100", "mi400_ualoe72"], "examples/training_step.yaml")
    yield collsim.planner_table("hgx_h100", op=["all_reduce"], dtype=["half"], elements=[64], ranks=[8])


def test_documents_follow_their_schemas():
    seen = set()
    for found in documents():
        document = json.loads(found.to_json())
        check = Draft202012Validator(schema(document["schema"]))
        check.validate(document)
        assert not check.is_valid({**document, "extra": 1})
        assert not check.is_valid({**document, "collsim": 1})
        assert repr(found).startswith(type(found).__name__)
        assert "<table>" in found._repr_html_()
        seen.add(document["schema"])
    assert len(seen) == 4


def test_lines_of_a_sweep_follow_theirs(tmp_path):
    collsim.sweep(GRID, tmp_path / "a.jsonl")
    check = Draft202012Validator(schema("collsim.sweep_point/1"))
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    for line in lines:
        check.validate(line)
    assert sorted(line["status"] for line in lines) == ["failed", "ok", "ok"]
    assert not check.is_valid({**lines[0], "status": "done"})
