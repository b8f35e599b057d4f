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
    name, result = named
    records = result.to_records()
    lines = list(csv.reader(io.StringIO(result.to_csv())))
    frame = result.to_frame(backend)
    why = ["refused"] if name in RENDERED else []
    assert [*frame.columns, *why] == lines[0] == [*records[0], *why]
    assert len(frame) == len(records) > 1
    assert len(lines) - 1 - len(records) == len(result.refused if why else ())
    assert all([*record, *why] == lines[0] for record in records)


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


def test_python_shows_a_table_of_at_most_twenty_lines(named):
    _, result = named
    lines = repr(result).splitlines()
    assert 3 <= len(lines) <= 20
    assert max(map(len, lines)) <= 160
    assert lines[0].startswith(type(result).__name__ + ": ")


def test_many_rows_are_cut_in_the_middle():
    sizes = [2**power for power in range(10, 31)]
    result = collsim.simulate("hgx_h100", "all_gather", sizes, profile="ideal")
    lines = repr(result).splitlines()
    assert len(lines) == 20
    assert lines[-2] == "... 4 more"  # caption, heading, 16 rows, this line and the last row: 21 - 17
    assert str(sizes[15]) in lines[-3]
    assert str(sizes[-1]) in lines[-1]


def test_json_is_the_document(named, tmp_path):
    name, result = named
    assert json.loads(result.to_json()) == result.to_dict()
    assert result.to_json(tmp_path / "result.json") is None
    assert (tmp_path / "result.json").read_text() == result.to_json()
    if name in RENDERED:
        assert RENDERED[name](result, "json") == result.to_json()


ROWS = {"result": "results", "moe": "results", "validate": "rows"}


@pytest.mark.parametrize("name", ROWS)
def test_the_same_words_in_rows_of_every_command(name):
    result = MADE[name]()
    for row, document, record in zip(list(result.rows), result.to_dict()[ROWS[name]], result.to_records(), strict=True):
        for where in (document, record):
            assert where["lower_bound_s"] == row.lower_bound_s > 0
            assert where["limited_by"] == row.limited_by != ""
            assert (where["time_lo_s"], where["time_hi_s"]) == (row.time_lo_s, row.time_hi_s)
        assert all({"link", "utilisation"} == {*each.__slots__} for each in row.bottleneck)
        busiest = row.bottleneck[0].link
        assert record.get("bottleneck_link", busiest) == busiest


def test_frames_say_what_was_asked():
    result = collsim.simulate(
        "hgx_h100", "all_reduce", "64M", algo="ring", split="MOD 2", profile="ideal", launch="graph",
        overrides={"link.latency": "1 us"}, fail="link:gpu0-nvsw0",
    )  # fmt: skip
    record = result.to_records()[0]
    told = {key: record[key] for key in ("topology", "profile", "overrides", "fail", "grouping", "launch", "asked")}
    assert told == {
        "topology": "hgx_h100", "profile": "ideal", "overrides": "link.latency=1 us", "fail": "link:gpu0-nvsw0",
        "grouping": "MOD 2", "launch": "graph", "asked": "ring",
    }  # fmt: skip


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_a_plot_has_the_prediction_the_band_the_bound_and_what_was_measured(pyplot):
    result = collsim.simulate("hgx_h100", "all_reduce", ["1M", "16M", "256M"])
    ax = result.plot(measured={2**24: 150e9})
    line, bound, measured = ax.lines
    assert list(line.get_ydata()) == [row.busbw_Bps / 1e9 for row in result]
    assert list(bound.get_ydata()) == pytest.approx([row.busbw_Bps / row.efficiency / 1e9 for row in result])
    assert (list(measured.get_xdata()), list(measured.get_ydata())) == ([2**24], [150.0])
    (band,) = ax.collections
    inside = band.get_paths()[0].vertices[:, 1]
    row = result.rows[0]
    assert inside.min() == pytest.approx(row.busbw_Bps * row.time_s / row.time_hi_s / 1e9)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1 MiB", "16 MiB", "256 MiB"]


def test_rows_of_a_log_are_drawn_beside_their_prediction(pyplot):
    validation = MADE["validate"]()
    ax = validation.plot()
    assert list(ax.lines[-1].get_ydata()) == [row.measured_busbw_Bps / 1e9 for row in validation]
    result = collsim.simulate("hgx_h100", "all_reduce", ["1M", "1G"], profile="ideal")
    _, ax = pyplot.subplots()
    assert result.plot(ax, measured=validation) is ax
    assert len(ax.lines[-1].get_xdata()) == len(validation)
    assert not ax.collections  # bare wires have no interval


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'collsim\[plot\]'"):
        MADE["result"]().plot()
