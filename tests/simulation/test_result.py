"""Rows and results as objects."""

import json
import math
import sys
from dataclasses import replace

import pytest

from collsim import simulate
from collsim.core.errors import InputError
from collsim.simulation.method import Method
from collsim.simulation.result import CRITICAL, FIELDS, Limit, LinkLoad, Result, Row, asked_of


def row(**changes):
    values = {
        "op": "all_reduce", "algo": "ring", "proto": None, "channels": 2, "ranks": 8, "groups": 1, "dtype": "float",
        "redop": "sum", "root": -1, "count": 250, "requested_bytes": 1003, "size_bytes": 1000, "time_s": 1e-6,
        "lower_bound_s": 4e-7, "bound": "egress gpu0", "bottleneck": (LinkLoad("a->b", 0.75), LinkLoad("b->c", 0.5)),
        "bottleneck_links": 1, "critical_s": dict(zip(CRITICAL, (1e-7, 2e-7, 6e-7, 1e-7), strict=True)),
        "method": Method("transfers", "reference"), "classes": 16,
    }  # fmt: skip
    return Row(**{**values, **changes})


def test_bandwidths_and_efficiency():
    one = row()
    assert one.algbw_Bps == pytest.approx(1e9)
    assert one.busbw_Bps == pytest.approx(1.75e9)
    assert one.efficiency == pytest.approx(0.4)
    nothing = row(time_s=0.0)
    assert (nothing.algbw_Bps, nothing.busbw_Bps, nothing.efficiency) == (0, 0, 0)


WIRE = Limit("wire", "a->b", 6e-7, links=1, utilisation=0.75)
RATE = Limit("library", "channel_rate", 4e-7, value="30 GB/s", constant="channel_rate", profile="mine", status="fitted")
BASE = Limit("library", "base", 3e-7, value="8 us")


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"limits": (WIRE,)}, "a->b busy 75%"),
        ({"limits": (replace(WIRE, links=56),)}, "a->b +55 busy 75%"),
        ({"limits": (WIRE, RATE)}, "a->b busy 75%, channel_rate 30 GB/s 40%"),
        ({"limits": (WIRE, BASE)}, "a->b busy 75%"),
        ({"limits": (RATE, BASE, replace(WIRE, time_s=0.0))}, "channel_rate 30 GB/s 40%, a->b busy 75%"),
        ({"limits": (RATE, BASE, Limit("wire", "latency of links", 1e-7))}, "channel_rate 30 GB/s 40%"),
        ({"limits": ()}, "none"),
        ({"limits": (RATE,), "time_s": 0.0}, "none"),
    ],
)
def test_limit_is_what_decides_most_and_any_wire_that_counts(changes, limit):
    assert row(**changes).limited_by == limit


def test_record_has_the_first_limit_and_the_first_wire():
    record = row(limits=(RATE, WIRE)).to_record()
    assert (record["limit_kind"], record["limit_name"], record["limit_time_s"]) == ("library", "channel_rate", 4e-7)
    assert (record["limit_constant"], record["limit_profile"]) == ("channel_rate", "mine")
    assert (record["limit_value"], record["limit_status"], record["limit_source"]) == ("30 GB/s", "fitted", None)
    assert (record["limit_wire_name"], record["limit_wire_time_s"]) == ("a->b", 6e-7)
    assert row().to_record()["limit_kind"] is None


def test_dictionary_has_every_field_in_order_and_is_json():
    values = row().to_dict()
    assert list(values) == [entry.key for entry in FIELDS]
    inside = {"loads", "method"}  # for rooms above, not for formats; `path` is the method in words
    assert set(Row.__dataclass_fields__) - inside <= set(values)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["bottleneck"] == [{"link": "a->b", "utilisation": 0.75}, {"link": "b->c", "utilisation": 0.5}]


def test_record_is_flat():
    record = row().to_record()
    assert all(value is None or isinstance(value, str | int | float) for value in record.values())
    assert (record["bottleneck_link"], record["bottleneck_utilisation"]) == ("a->b", 0.75)
    assert record["critical_channel_rate_s"] == 6e-7
    empty = row(bottleneck=(), critical_s={}).to_record()
    assert list(empty) == list(record)
    assert (empty["bottleneck_link"], empty["critical_launch_s"]) == (None, 0.0)


@pytest.fixture(scope="module")
def result():
    return simulate("mi300x_ubb8", ["all_reduce", "all_to_all"], ["1M", "64M"], profile="ideal")


def test_only_row():
    one = simulate("mi300x_ubb8", "all_to_all", "1M", profile="ideal")
    assert (one.time_s, one.algbw_Bps, one.busbw_Bps) == (
        one.rows[0].time_s,
        one.rows[0].algbw_Bps,
        one.rows[0].busbw_Bps,
    )


def test_sequence(result):
    assert len(result) == len(list(result)) == 4
    with pytest.raises(ValueError, match="4 rows"):
        _ = result.time_s


def test_what_a_row_may_wait_for_is_known(result):
    assert {kind for found in result for kind in found.critical_s} == set(CRITICAL)
    for found in simulate("mi300x_ubb8", "all_reduce", ["1K", "64M"], algo="all"):
        assert sum(found.critical_s.values()) == pytest.approx(found.time_s)


@pytest.mark.parametrize("backend", ["polars", "pandas"])
def test_frame(result, backend):
    pytest.importorskip(backend)
    frame = result.to_frame(backend)
    run = ["topology", "profile", "calibrated", *asked_of(result.config), "library"]
    assert list(frame.columns) == [*run, *result.rows[0].to_record()]
    assert frame["topology"].to_list() == ["mi300x_ubb8"] * 4
    assert frame["time_s"].to_list() == [found.time_s for found in result]
    assert frame["op"].to_list() == ["all_reduce"] * 2 + ["all_to_all"] * 2
    assert frame["size_bytes"].sum() == 2 * (2**20 + 2**26)


def test_frame_mixes_rows_with_and_without_bottleneck(result):
    polars = pytest.importorskip("polars")
    many = Result("1", {}, {}, {}, (*[row(bottleneck=())] * 200, row()))
    frame = many.to_frame()
    assert frame["bottleneck_link"].null_count() == 200
    assert frame["bottleneck_utilisation"].dtype == polars.Float64


def test_frame_without_its_library(result, monkeypatch):
    with pytest.raises(InputError, match='unknown library of data frames "arrow"\n  hint: known: pandas, polars'):
        result.to_frame("arrow")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"polars is not installed: pip install 'collsim\[frames\]'"):
        result.to_frame()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pandas is not installed: pip install pandas"):
        result.to_frame("pandas")


def test_html(result):
    text = result._repr_html_()
    assert text.count("<tr>") == 5
    assert "<th>busbw (GB/s)</th>" in text
    assert "<td>67108864</td>" in text
    assert "mi300x_ubb8, profile ideal, calibrated: no" in text
    assert "gpu0-&gt;gpu1" in text
    assert "->" not in text


def test_document(result):
    document = result.to_dict()
    assert list(document) == ["schema", "collsim", "config", "topology", "profile", "results", "refused", "warnings"]
    assert document["schema"] == "collsim.result/1"
    assert all(
        math.isfinite(value) for row in document["results"] for value in row.values() if isinstance(value, float)
    )
