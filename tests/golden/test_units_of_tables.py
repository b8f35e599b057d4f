"""Numbers of printed tables in the units of their headings, beside the fields of the rows, and factors done by hand."""

import re

import numpy as np
import pytest

import collsim
from collsim.prices.costs import cost_of
from collsim.prices.prices import price_of
from collsim.report import render
from collsim.serving.simulate import _percentile, _percentiles

SCALE = {"(us)": 1e-6, "(GB/s)": 1e9, "(B)": 1.0, "(elem)": 1.0, "(x)": 1.0, "(%)": 0.01, "": 1.0}
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
