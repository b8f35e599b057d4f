"""The door between text and SI numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.core import units
from collsim.core.errors import InputError, UnitError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64M", 2**26),
        ("64Mi", 2**26),
        ("64MiB", 2**26),
        ("64m", 2**26),
        (" 64 mib ", 2**26),
        ("1K", 1024),
        ("1T", 2**40),
        ("1.5G", 3 * 2**29),
        ("0", 0),
        ("8", 8),
        ("8 B", 8),
        ("64e6", 64_000_000),
        ("1_000", 1000),
        (4096, 4096),
    ],
)
def test_size(text, size):
    assert units.parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("64MB", ["ambiguous", "write 64MiB (67,108,864 B) or 64e6"]),
        ("1.5GB", ["ambiguous", "1.5GiB (1,610,612,736 B)", "1.5e9"]),
        ("64 kb", ["ambiguous", "64KiB (65,536 B)"]),
        ("-1", ["0 or more"]),
        ("0.3", ["whole number", "write 0 or 1"]),
        ("1e-3", ["whole number"]),
        ("64Mfoo", ["unknown unit", "Mfoo"]),
        ("64iB", ["unknown unit"]),
        ("", ["not a number", "64KiB"]),
        ("nan", ["not a number"]),
        ("inf", ["not a number"]),
        ("1e300", ["more than 9,223,372,036,854,775,807"]),
        ("9" * 100, ["too long"]),
        pytest.param(10**5000, ["out of range"], id="huge"),
        (True, ["not a number"]),
        (None, ["not a number"]),
        ([1], ["not a number", "(list)"]),
        (b"1M", ["not a number", "b'1M'"]),
        (1.5, ["not a whole number of bytes"]),
        (math.nan, ["not a number"]),
        (np.float64(1.5), ['"1.5" is not a whole number']),
        pytest.param(10**5000, ["out of range"], id="very large"),
        ("64\x00M", ["unknown unit"]),
    ],
)
def test_size_refused(text, words):
    with pytest.raises(UnitError) as caught:
        units.parse_size_bytes(text, "--size")
    assert caught.value.faults[0].where == "--size"
    assert caught.value.faults[0].hint
    for word in words:
        assert word in str(caught.value)


def test_sizes_as_numbers():
    for number in (1024.0, np.int64(1024), np.uint16(1024), np.float64(1024), np.float32(1024)):
        assert units.parse_size_bytes(number) == 1024
        assert type(units.parse_size_bytes(number)) is int


def test_limits_of_rates_and_times():
    assert units.parse_bandwidth_Bps("1 B/s") == 1.0
    assert units.parse_bandwidth_Bps("1e9 GB/s") == 1e18
    assert units.parse_time_s("1e6 s") == 1e6


def test_size_zero_where_senseless():
    with pytest.raises(UnitError, match="more than 0"):
        units.parse_size_bytes("0", allow_zero=False)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("64 GB/s", 64e9),
        ("76.8GB/s", 76_800_000_000.0),
        ("64 GiB/s", 64 * 2.0**30),
        ("400 Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("400 Gbit/s", 50e9),
        ("1.8 TB/s", 1.8e12),
        ("100 Mb/s", 12.5e6),
        ("5 kB/s", 5e3),
        ("5 KB/s", 5e3),
        ("1 MiB/s", 2.0**20),
        ("7 B/s", 7.0),
        ("8 b/s", 1.0),
    ],
)
def test_rate(text, rate):
    assert units.parse_bandwidth_Bps(text) == rate


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("64", ['"64" has no unit', 'write "64 GB/s" (1e9 bytes/s), "64 GiB/s" or "512 Gb/s"']),
        (64, ['"64" has no unit']),
        ("12.5", ['"100 Gb/s"']),
        ("64 GB", ["unknown unit", "did you mean", "64 GB/s"]),
        ("64 gb/s", ["unknown unit"]),
        ("0 GB/s", ["more than 0"]),
        ("-5 GB/s", ["more than 0"]),
        ("nan GB/s", ["not a number"]),
        ("inf GB/s", ["not a number"]),
        ("1e999 GB/s", ["too large"]),
        ("1e10 GB/s", ["more than 1 EB/s"]),
        ("0.9 B/s", ["less than 1 B/s"]),
        ("1e-30 GB/s", ["less than 1 B/s"]),
        ("1e-999 GB/s", ["more than 0"]),
        ("fast", ["not a number"]),
    ],
)
def test_rate_refused(text, words):
    with pytest.raises(UnitError) as caught:
        units.parse_bandwidth_Bps(text, "link.bandwidth")
    for word in ("link.bandwidth", *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500 ns", 5e-7),
        ("1.5us", 1.5e-6),
        ("1.5 µs", 1.5e-6),
        ("1.5 μs", 1.5e-6),
        ("2ms", 2e-3),
        ("3 s", 3.0),
        ("0 ns", 0.0),
    ],
)
def test_time(text, seconds):
    assert units.parse_time_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("500", ["no unit", 'write "500 ns", "500 us", "500 ms" or "500 s"']),
        ("0", ["no unit"]),
        ("5 min", ["unknown unit"]),
        ("5 NS", ["unknown unit"]),
        ("-5 ns", ["more than 0"]),
        ("NaN s", ["not a number"]),
        ("1e300 s", ["more than 1,000,000 s"]),
    ],
)
def test_time_refused(text, words):
    with pytest.raises(UnitError) as caught:
        units.parse_time_s(text)
    for word in words:
        assert word in str(caught.value)


def test_fraction():
    assert units.parse_fraction("50%") == 0.5
    assert units.parse_fraction(0.824) == 0.824
    assert units.parse_fraction("1") == 1.0
    assert units.parse_fraction("0", allow_zero=True) == 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [("82.4", ['write "82.4%" or 0.824']), ("1.2", ["write at most 1, or 100%"]), ("120%", ["at most 1, or 100%"]),
     ("0", ["more than 0"]), ("101%", ["more than 1"]), ("-1%", ["more than 0"]),
     ("5 GB", ["unknown unit"]), (math.nan, ["not a number"])],
)  # fmt: skip
def test_fraction_refused(text, words):
    with pytest.raises(UnitError) as caught:
        units.parse_fraction(text)
    for word in words:
        assert word in str(caught.value)


def test_format():
    assert units.format_size(67108864) == "64 MiB"
    assert units.format_size(1048575) == "1 MiB"
    assert units.format_size(1048320) == "1 MiB"  # not 1024 KiB beside it
    assert units.format_bandwidth(537.6e9) == "537.6 GB/s"
    assert units.format_bandwidth(999.99e6) == "1 GB/s"
    assert units.format_time(1.23456e-5) == "12.35 us"
    assert units.format_time(120.0) == "120 s"
    assert units.format_time(math.nan) == "nan s"
    assert units.format_time(2e-12) == "0.002 ns"


@given(st.floats(1e-9, 1e3))
def test_time_round_trip(seconds):
    assert units.parse_time_s(units.format_time(seconds)) == pytest.approx(seconds, rel=5.1e-4)


@given(st.floats(1.0, 1e15))
def test_rate_round_trip(rate):
    assert units.parse_bandwidth_Bps(units.format_bandwidth(rate)) == pytest.approx(rate, rel=5.1e-4)
    assert units.parse_bandwidth_Bps(f"{rate!r} B/s") == rate


@given(st.integers(0, 2**50))
def test_size_round_trip(size):
    assert units.parse_size_bytes(str(size)) == size
    assert units.parse_size_bytes(units.format_size(2**20 * (size % 1000))) == 2**20 * (size % 1000)


QUANTITY = st.from_regex(r"-?\d{1,5}(\.\d+)?(e-?\d+)? ?[kKMGTi]{0,2}[bB]?(/s|ps)?", fullmatch=True)


@given(st.one_of(st.text(max_size=80), QUANTITY))
def test_never_anything_but_a_number_or_a_fault(text):
    for parse in (units.parse_size_bytes, units.parse_bandwidth_Bps, units.parse_time_s, units.parse_fraction):
        value, faults = 0.0, ()
        try:
            value = parse(text)
        except InputError as caught:
            faults = caught.faults
        assert math.isfinite(value)
        assert value >= 0
        assert all(fault.what and fault.hint for fault in faults)
