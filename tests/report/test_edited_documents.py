"""Reports on documents that somebody edited or cut: every wrong value with its place, and never a page of nonsense."""

import copy
import io
import json
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import collsim
from collsim.cli.report import write_report
from collsim.core.errors import SpecError
from collsim.report import schema
from collsim.report.document_check import check_document

BAD = [None, "what", -1, 1e308, [], {}, [{}], True]
LOG = "examples/h100_all_reduce.log"


@pytest.fixture(scope="module")
def documents():
    run = json.loads(collsim.simulate("hgx_h100", "all_reduce", ["1M", "64M"]).to_json())
    both = collsim.compare(["hgx_h100", "hgx_b200"], "all_reduce", "64M")
    return {"run": run, "compare": json.loads(both.to_json())}


def places(value, path=()):
    """Yield the path of every value; of lists the first entry."""
    yield path
    inside = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def changed(document, path, value):
    found = copy.deepcopy(document)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return found


def test_every_value_that_the_schema_forbids_is_refused_with_its_place(documents):
    document = documents["run"]
    check_document(document, "run.json")
    rules = Draft202012Validator(schema("collsim.result/1"))
    paths = [path for path in places(document) if path and path[0] in ("topology", "results")]
    for number, path in enumerate(paths):
        wrong = changed(document, path, BAD[number % len(BAD)])
        kinds = {error.validator for error in rules.iter_errors(wrong)}
        if kinds - {"required", "additionalProperties"}:
            with pytest.raises(SpecError) as refused:
                check_document(wrong, "run.json")
            assert f"{path[0]}" in refused.value.faults[0].where


def test_documents_as_they_were_written_pass(documents):
    for document in documents.values():
        check_document(document, "a.json")


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        ("run", ("results", 0, "time_s"), "fast", ["results[0].time_s", '"fast" is no number']),
        ("run", ("results", 1, "ranks"), 0, ["results[1].ranks", "0 is too little", "or more"]),
        ("run", ("results", 0, "time_s"), float("nan"), ["NaN is no figure"]),
        ("run", ("results", 0, "time_s"), 1e308, ["is no figure"]),
        ("run", ("results", 0), 0, ["results[0]", "0 is no object"]),
        ("compare", ("rows", 0, "runs"), {}, ["rows[0].runs", "{} is no array"]),
        ("compare", ("systems", 0), {}, ["not as collsim.compare/1 says", "system"]),
    ],
)
def test_an_edited_document_is_refused(documents, tmp_path, kind, path, value, words):
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(changed(documents[kind], path, value)))
    with pytest.raises(collsim.InputError) as refused:
        write_report(file, tmp_path / "a.html", explain=False)
    for word in (str(file), *words):
        assert word in str(refused.value)
    assert not (tmp_path / "a.html").exists()


def test_a_run_without_a_topology_is_not_explained(documents, tmp_path):
    wrong = copy.deepcopy(documents["run"])
    del wrong["config"]["topo"]
    (tmp_path / "a.json").write_text(json.dumps(wrong))
    with pytest.raises(collsim.InputError, match="KeyError 'topo'"):
        write_report(tmp_path / "a.json", tmp_path / "a.html")


def test_all_wrong_values_are_told_at_once(documents, tmp_path):
    wrong = changed(changed(documents["run"], ("results", 0, "time_s"), "x"), ("results", 1, "algo"), 7)
    (tmp_path / "a.json").write_text(json.dumps(wrong))
    (tmp_path / "cut.json").write_text(json.dumps(wrong, indent=1)[:900])
    (tmp_path / "empty.json").write_text(" ")
    with pytest.raises(SpecError) as refused:
        check_document(wrong, "a.json")
    assert len(refused.value.faults) == 2
    with pytest.raises(collsim.InputError) as refused:
        write_report([tmp_path / f"{name}.json" for name in ("a", "cut", "empty")] + [""], tmp_path / "a.html")
    text = str(refused.value)
    for word in (
        "results[0].time_s",
        "results[1].algo",
        "not JSON",
        "the file is empty",
        "the name of a file is empty",
    ):
        assert word in text


def test_a_pipe_and_stdin_are_read_once(tmp_path, monkeypatch, documents):
    content = Path(LOG).read_bytes()
    for given in (content, json.dumps(documents["run"]).encode()):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        write_report("-", tmp_path / "a.html", explain=False)
        assert 'class="m"' in (tmp_path / "a.html").read_text() or given is not content
