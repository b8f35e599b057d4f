"""Numbers of printed tables in the units of their headings, beside the fields of the rows, and factors done by hand."""

import re
from dataclasses import fields
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import collsim
from collsim.prices.costs import cost_of
from collsim.prices.prices import price_of
from collsim.report import render
from collsim.serving.simulate import _percentile, _percentiles

SCALE = {
    "(us)": 1e-6, "(ms)": 1e-3, "(s)": 1.0, "(req/s)": 1.0, "(1/s)": 1.0, "(GB/s)": 1e9, "(B)": 1.0, "(elem)": 1.0,
    "(x)": 1.0, "(%)": 0.01, "": 1.0,
}  # fmt: skip
FIELDS = {
    "size": "size_bytes", "count": "count", "root": "root", "time": "time_s", "low": "time_lo_s", "high": "time_hi_s",
    "healthy": "healthy_time_s", "slower": "slowdown", "algbw": "algbw_Bps", "busbw": "busbw_Bps",
    "total": "total_busbw_Bps", "bound": "lower_bound_s", "eff": "efficiency",
}  # fmt: skip


@pytest.fixture(scope="module")
def broken():
    return collsim.simulate("hgx_h100", "all_reduce", ["64K", "256M"], degrade={"link:gpu0-nvsw0": 0.5}, algo="ring")


@pytest.fixture(scope="module")
def whole():
    return collsim.simulate("hgx_h100", "all_reduce", "64M")


def test_every_column_says_its_field_in_the_unit_of_its_heading(broken, whole):
    from collsim.report.table import COLUMNS

    told = set()
    for column in COLUMNS:
        if column.name not in FIELDS:
            continue
        for row in (*broken.rows, *whole.rows):
            text, value = column.text(row).lstrip("~"), getattr(row, FIELDS[column.name])
            if text:
                told.add(column.name)
                rounded = pytest.approx(value, rel=6e-3, abs=6e-4 * (column.unit == "(%)"))
                assert float(text) * SCALE[column.unit] == rounded, column.name
    assert told == {*FIELDS} - {"total"}


def test_tables_as_nccl_tests_prints_them(broken):
    """Of eight ranks busbw is algbw times 2 x 7 / 8; size over microseconds is kB/s."""
    lines = [line.split() for line in render(broken, "nccl").splitlines() if re.match(r" +\d", line)]
    assert len(lines) == 2
    for size, _count, _type, _op, _root, time_us, algbw, busbw, *_ in lines:
        assert float(algbw) == pytest.approx(int(size) / float(time_us) / 1e3, abs=6e-3)
        assert float(busbw) == pytest.approx(float(algbw) * 1.75, abs=2e-2)


def test_a_row_adds_up(broken, whole):
    for row in broken.rows:
        assert row.algbw_Bps == pytest.approx(row.size_bytes / row.time_s)
        assert row.busbw_Bps == pytest.approx(row.algbw_Bps * 2 * 7 / 8)
        assert row.efficiency == pytest.approx(row.lower_bound_s / row.time_s)
        assert row.slowdown == pytest.approx(row.time_s / row.healthy_time_s)
        assert sum(row.critical_s.values()) == pytest.approx(row.time_s)
    assert whole.rows[0].time_lo_s < whole.rows[0].time_s < whole.rows[0].time_hi_s


SERVED = {
    "ranks": "ranks", "offered": "offered_per_s", "finished": "requests_per_s", "tokens": "tokens_per_s",
    "capacity": "capacity_tokens_per_s", "token": "token_median_s", "token p99": "token_p99_s", "wait": "wait_median_s",
    "wait p99": "wait_p99_s", "latency": "latency_median_s", "exposed": "exposed", "link": "link_load",
}  # fmt: skip
MOMENT = {
    "from": "begin_s", "to": "end_s", "tokens": "tokens_per_s", "running": "running", "waiting": "waiting",
    "step": "step_s", "link": "link_load",
}  # fmt: skip


@pytest.mark.parametrize("scale", [1e-6, 2e-3, 0.4, 3.0, 70.0])
def test_tables_of_serving_say_their_fields_below_and_above_a_second(scale):
    from collsim.report.serving import JOBS, MOMENTS
    from collsim.serving.result import JobResult, Moment

    for columns, record, named in ((JOBS, JobResult, SERVED), (MOMENTS, Moment, MOMENT)):
        number = count(11)
        told = {each.name: scale * next(number) if each.name.endswith("_s") else 0.0 for each in fields(record)}
        counted = ("tokens_per_s", "capacity_tokens_per_s", "running", "waiting")
        told |= {name: 1000.0 + next(number) for name in counted}
        told |= {"offered_per_s": 57.0, "requests_per_s": 58.0, "exposed": 0.231, "link_load": 0.117, "ranks": 8}
        made = SimpleNamespace(**told)
        assert {column.name for column in columns} - {"job"} == {*named}
        for column in columns:
            if column.name in named:
                text = column.text(made)
                unit = 0.01 if text.endswith("%") else SCALE[column.unit]
                assert float(text.rstrip("%")) * unit == pytest.approx(told[named[column.name]], rel=6e-3), column.name


def exchange(op, number):
    """Return dispatch or combine with another number in every field."""
    scale = number * 1e-5
    return SimpleNamespace(
        op=op, ranks=16, nodes=2, time_s=1.0 * scale, times_s=(0.9 * scale, 1.3 * scale), load_s=0.5 * scale,
        lower_bound_s=0.4 * scale, time_lo_s=0.7 * scale, time_hi_s=1.6 * scale, prepare_s=0.25 * scale,
        whole_s=1.25 * scale, logical_Bps=number * 1e10, node_Bps=number * 2e10, network_Bps=number * 3e10,
        imbalance=1.0 + number / 10, limited_by="adapters", tolerance=0.0,
    )  # fmt: skip


def test_tables_of_experts_say_their_fields_alone_and_added():
    from collsim.report.moe import COLUMNS, COMPARED, SUM, ComparedMoe, Line

    one, other = exchange("dispatch", 3), exchange("combine", 7)
    scale, both = 3e-5, 10e-5
    alone = {
        "ranks": 16, "nodes": 2, "time": 1.0 * scale, "least": 0.9 * scale, "most": 1.3 * scale, "load": 0.5 * scale,
        "bound": 0.4 * scale, "low": 0.7 * scale, "high": 1.6 * scale, "logical": 3e10,
        "node": 6e10, "network": 9e10, "imbalance": 1.3,
    }  # fmt: skip
    added = {
        "time": 1.25 * both, "least": (0.9 + 0.25) * both, "most": (1.3 + 0.25) * both, "load": 0.5 * both,
        "bound": 0.4 * both,
    }  # fmt: skip
    assert {column.name for column in COLUMNS} == {*alone, "op", "limited by"}
    for line, expected in ((Line("dispatch", (one,)), alone), (Line(SUM, (one, other)), added)):
        for column in COLUMNS:
            if column.name in expected:
                said = float(column.text(line)) * SCALE[column.unit]
                assert said == pytest.approx(expected[column.name], rel=6e-3), column.name
    compared = ComparedMoe(16, SimpleNamespace(label="x"), (one, other), 2.5)
    found = [(each.name, float(each.text(compared)) * SCALE[each.unit]) for each in COMPARED if each.unit]
    expected = [
        ("prepare", 0.25 * both), ("dispatch", scale), ("low", 0.7 * scale), ("high", 1.6 * scale), ("combine", 7e-5),
        ("low", 0.7 * 7e-5), ("high", 1.6 * 7e-5), ("sum", 1.25 * both), ("speedup", 2.5),
    ]  # fmt: skip
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=6e-3)


@pytest.mark.parametrize("usd", [(3.0, 1.0, 2.0), (1.0, 3.0, 2.0), (2.0, 3.0, 1.0)])
def test_the_sentence_on_systems_has_the_ratios_of_times_and_dollars(usd):
    from collsim.report.costs import decides

    times_s, names = (2e-3, 1e-3, 5e-3), ("a", "b", "c")
    comparison = SimpleNamespace(
        systems=[SimpleNamespace(label=name) for name in names],
        costs=lambda row: [SimpleNamespace(usd=each) for each in usd],
    )
    runs = [SimpleNamespace(time_s=time_s, time_lo_s=None, limited_by="wires") for time_s in times_s]
    row = SimpleNamespace(runs=runs)
    cheap, dear = names[usd.index(1.0)], names[usd.index(3.0)]
    assert decides(comparison, row) == (
        "b is fastest, limited by wires; a takes 2 times as long, by wires; c takes 5 times as long, by wires; "
        f"{cheap} costs least, {dear} 3 times as much"
    )


def test_costs_by_hand():
    """Eight H200 at 2.50 USD and 700 W for half an hour, of which two decimal terabytes are moved."""
    cost = cost_of(price_of("H200 SXM"), gpus=8, time_s=1800.0, moved_bytes=2e12)
    assert cost.usd == pytest.approx(8 * 2.50 / 2)
    assert cost.joules == pytest.approx(8 * 700 * 1800)
    assert (cost.usd_per_TB, cost.joules_per_TB) == pytest.approx((cost.usd / 2, cost.joules / 2))


def test_capital_over_29100_hours_is_the_hourly_price_that_ships():
    from collsim.prices.prices import _table

    for gpu, price in _table().items():
        if price.capex_usd is not None and price.usd_per_hour.basis == "capex":
            assert price.usd_per_hour.value == pytest.approx(price.capex_usd.value / 29_100, abs=0.005), gpu


def test_percentiles_of_one_to_a_hundred():
    values = np.arange(1.0, 101.0)
    assert _percentile(values, 99) == pytest.approx(99.01)
    assert _percentiles(values, np.ones(100)) == (50.0, 99.0)
    assert _percentiles(np.array([3.0, 1.0]), np.array([1.0, 9.0])) == (1.0, 3.0)  # 1 counts nine times
    assert _percentiles(np.array([]), np.array([])) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("key", "values", "head", "cells"),
    [
        ("time_lo_s", [1.5e-5, 0.25], "time lo (us)", ["15.00", "250,000.00"]),
        ("begin_s", [0.5, 19.0], "begin (s)", ["0.50", "19.00"]),
        ("busbw_Bps", [345.6e9, 1e6], "busbw (GB/s)", ["345.60", "0.00"]),
        ("network_bytes", [12_340_000, 1e9], "network (MB)", ["12.34", "1,000.00"]),
        ("tokens_per_s", [1234.7, 2.0], "tokens (1/s)", ["1,235", "2.00"]),
        ("joules", [1234.7, 0.25], "joules", ["1,235", "0.25"]),
        ("gpus", [1024, 8], "gpus", ["1,024", "8"]),
        ("algo", ["ring", None], "algo", ["ring", ""]),
    ],
)
def test_tables_of_pages_say_their_fields_in_the_unit_of_their_heading(key, values, head, cells):
    from collsim.report.html.panels import plain_table

    text = plain_table([{key: value, "left_out": 1} for value in values], [key, "not_there"])
    assert re.findall(r"<th(?: [^>]*)?>(.*?)</th>", text) == [head]
    assert re.findall(r"<td[^>]*>(.*?)</td>", text) == cells


def test_tables_of_pages_end_after_sixty_rows_and_ten_columns():
    from collsim.report.html.panels import plain_table

    rows = [{f"key{n}": n + 1 for n in range(12)} | {"list": [1], "right": True}] * 63
    text = plain_table(rows)
    assert re.findall(r"<th(?: [^>]*)?>(.*?)</th>", text) == [f"key{n}" for n in range(10)]
    assert text.count("<tr>") == 1 + 60
    assert "3 more rows are in the file." in text
    assert "more rows" not in plain_table(rows[:60])
    assert "No rows." in plain_table([])


def test_a_fastest_system_that_nobody_measured_is_told():
    from collsim.report.costs import decides

    comparison = SimpleNamespace(
        systems=[SimpleNamespace(label=name) for name in "ab"], costs=lambda row: [SimpleNamespace(usd=None)] * 2
    )
    runs = [SimpleNamespace(time_s=1e-3, time_lo_s=low_s, limited_by="wires") for low_s in (9e-4, None)]
    runs[1].time_s = 5e-4
    assert decides(comparison, SimpleNamespace(runs=runs)).startswith("b is fastest (unmeasured), limited by wires")
    runs[0].time_lo_s = None
    assert decides(comparison, SimpleNamespace(runs=runs)).startswith("b is fastest, limited by wires")
