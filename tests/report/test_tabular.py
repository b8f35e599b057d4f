"""Results of every command: the same rows as a document, a frame, CSV and in a notebook."""

import csv
import html
import io
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import collsim
from collsim.calibration.findings import Calibration, Constant, Residual
from collsim.core.errors import InputError
from collsim.library import load_profile
from collsim.moe.comparison import MoeComparison, MoeSystem
from collsim.report import render, render_comparison, render_validation, schema
from collsim.report.moe import render_moe

LOG = Path(__file__).parents[2] / "examples" / "h100_all_reduce.log"


def fit():
    return Calibration(
        load_profile("hgx_h100"),
        "ideal",
        constants=(
            Constant("stream", "ring.LL.overhead", 1e-6, 2e-6, 1.5e-6, 2.5e-6, identified=True),
            Constant("graph", "a<b", 1.0, 3.0, 2.0, 4.0, identified=False),
        ),
        residuals=(Residual("a.log", "all_reduce", 8, 1024, "stream", "ring", "LL", 1e-5, 1.1e-5, None),),
        left_out={"too small": 3},
        notes=("assumed",),
    )


MADE = {
    "result": lambda: collsim.simulate("mi300x_ubb8", ["all_reduce", "all_to_all"], ["1M", "64M"], profile="ideal"),
    "compare": lambda: collsim.compare(["mi355x_ubb8", "hgx_b200"], "all_to_all", ["1M", "1G"], profile="ideal"),
    "moe": lambda: collsim.simulate_moe("hgx_h100", ep=[4, 8], tokens=128),
    "moe_compare": lambda: MoeComparison(
        collsim.__version__,
        (4, 8),
        (
            MoeSystem("hgx_h100", 8, collsim.simulate_moe("hgx_h100", ep=[4, 8], tokens=128)),
            MoeSystem("half of hgx_b200", 4, collsim.simulate_moe("hgx_b200", ep=[4], tokens=128)),
            MoeSystem("none", 2, None),
        ),
    ),
    "validate": lambda: collsim.validate([LOG], topo="hgx_h100"),
    "calibrate": fit,
}
RENDERED = {
    "result": render, "compare": render_comparison, "moe": render_moe, "moe_compare": render_moe,
    "validate": render_validation,
}  # fmt: skip


@pytest.fixture(scope="module", params=MADE)
def named(request):
    return request.param, MADE[request.param]()


@pytest.mark.parametrize("backend", ["polars", "pandas"])
def test_frame_and_csv_have_the_columns_of_the_records(named, backend):
    _, result = named
    records = result.to_records()
    lines = list(csv.reader(io.StringIO(result.to_csv())))
    frame = result.to_frame(backend)
    assert list(frame.columns) == lines[0] == list(records[0])
    assert len(frame) == len(lines) - 1 == len(records) > 1
    assert all(list(record) == lines[0] for record in records)


def test_csv_is_that_of_the_command_line(named):
    name, result = named
    if name in RENDERED:
        assert result.to_csv() == RENDERED[name](result, "csv")
    else:
        assert result.to_csv().startswith("profile,launch,name,start,value,low,high,identified\nhgx_h100,stream,")
        assert result.to_csv().endswith(",4.0,false\n")


def test_csv_is_written_whole_or_not_at_all(named, tmp_path):
    _, result = named
    assert result.to_csv(tmp_path / "rows.csv") is None
    assert (tmp_path / "rows.csv").read_text() == result.to_csv()
    with pytest.raises(InputError, match="cannot be written"):
        result.to_csv(tmp_path / "nowhere" / "rows.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_document_follows_its_schema_and_survives_json(named):
    name, result = named
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert document["schema"] == f"collsim.{name}/1"
    check = Draft202012Validator(schema(document["schema"]))
    check.validate(document)
    assert document == result.to_dict()
    assert not check.is_valid({**document, "extra": 1})


def test_notebook_shows_every_row(named):
    name, result = named
    records, text = result.to_records(), result._repr_html_()
    rows = len(result.rows) if name == "compare" else len(records)
    assert text.count("<tr>") == rows + 1
    for record in records:
        told = record["name"] if name == "calibrate" else str(record.get("size_bytes", record.get("op")))
        assert f"<td>{html.escape(told)}</td>" in text
    assert text.count("<td>") == rows * text.count("<th>")
