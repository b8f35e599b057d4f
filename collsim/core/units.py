"""Text to SI numbers and back: the only door between what people write and what the model computes with.

Inside collsim every number is in bytes, seconds or bytes per second. This module reads and prints the rest:

* sizes: a bare number is bytes; ``K M G T`` (also ``Ki``, ``KiB``, any case) are powers of 1024, as in nccl-tests;
  ``64e6`` is 64,000,000 bytes; ``64MB`` is refused, because tools disagree on what it means;
* rates: ``GB/s`` is 1e9 bytes/s, ``GiB/s`` is 2^30 bytes/s, ``Gb/s``, ``Gbit/s`` and ``Gbps`` are 1e9 bits/s;
* times: ``ns us µs ms s``;
* fractions: ``0.5`` or ``50%``.

A rate or a time without a unit is an error, never a guess. Arithmetic on the text is decimal, so ``76.8 GB/s`` is
exactly 76,800,000,000 bytes/s. This module imports only `collsim.core.errors`.
"""

from __future__ import annotations

import math
import numbers
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from collsim.core.errors import Fault, UnitError, nearest

__all__ = [
    "format_bandwidth",
    "format_bytes",
    "format_count",
    "format_size",
    "format_time",
    "one_line",
    "parse_bandwidth_Bps",
    "parse_fraction",
    "parse_size_bytes",
    "parse_time_s",
    "with_article",
]

MAX_SIZE_BYTES = 2**63 - 1
MAY_BE_SI = 10**6
"""A rate without a unit from here on is meant in bytes per second: no link has so many GB/s."""
MIN_RATE_BPS, MAX_RATE_BPS = 1.0, 1e18
"""Rates of a link outside 1 B/s to 1 EB/s are slips of the pen, and sums of larger ones overflow."""
MAX_TIME_S = 1e6
"""Eleven days."""
MAX_TEXT = 64

MIN_PERCENT = 2
"""From here on a fraction without a unit may have been meant as percent; 1.2 is more likely to mean 120 %."""

_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(.*?)\s*", re.DOTALL | re.ASCII)
_SIZE_UNIT = re.compile(r"([kmgt]?)(i?)(b?)", re.IGNORECASE)
_RATE_UNIT = re.compile(r"([kKMGT]?)(i?)(?:(B)/s|(?:b|bit)/s|bps)")
_PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_TIME_UNITS = {"ns": "1e-9", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ms": "1e-3", "s": "1"}
_RATE_CHOICES = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "MiB/s", "GiB/s", "TiB/s", "Mb/s", "Gb/s", "Tb/s")
_NOT_A_RATE_HINT = 'write a rate such as "64 GB/s" (1e9 bytes/s), "64 GiB/s" or "512 Gb/s"'
_NOT_A_TIME_HINT = 'write a time such as "500 ns", "1.5 us", "2 ms" or "1 s"'
_NOT_A_SIZE_HINT = 'write a size such as "64M" (64 MiB), "64KiB", "1048576" or "64e6" (bytes)'
_NOT_A_FRACTION_HINT = 'write a fraction between 0 and 1 such as "0.5" or "50%"'


def parse_size_bytes(text: str | float, where: str = "", *, allow_zero: bool = True) -> int:
    """Return a size in bytes.

    Parameters
    ----------
    text : str, int or float
        ``64M``, ``64Mi`` and ``64MiB`` are 2^26 bytes; a bare number is bytes; ``64e6`` is allowed, being integral.
        Numbers of numpy count as those of Python.
    where : str
        File, line, path or flag, for the message.
    allow_zero : bool
        Whether 0 is a sensible size here.

    Raises
    ------
    UnitError
        For ``64MB`` (ambiguous), negative, fractional or unreadable sizes.

    Examples
    --------
    >>> parse_size_bytes("64M"), parse_size_bytes("64MiB"), parse_size_bytes("1.5k"), parse_size_bytes(4096)
    (67108864, 67108864, 1536, 4096)
    >>> parse_size_bytes("64MB", where="--size")
    Traceback (most recent call last):
    collsim.core.errors.UnitError: --size: size "64MB" is ambiguous
      hint: write 64MiB (67,108,864 B) or 64e6
    """
    number, unit = _split(text, "size", where, _NOT_A_SIZE_HINT)
    match = _SIZE_UNIT.fullmatch(unit)
    if match is None or (match[2] and not match[1]):
        _refuse(f"size {_quote(text)} has the unknown unit {_quote(unit)}", where, _NOT_A_SIZE_HINT)
    power = _PREFIXES[match[1].upper()]
    if power and match[3] and not match[2]:
        _refuse(f"size {_quote(text)} is ambiguous", where, _ambiguous_size_hint(number, match[1].upper(), power))
    size = number * 1024**power
    if size < 0 or (size == 0 and not allow_zero):
        _refuse(f"size {_quote(text)} must be {'0 or more' if allow_zero else 'more than 0'}", where, _NOT_A_SIZE_HINT)
    if size > MAX_SIZE_BYTES:
        _refuse(f"size {_quote(text)} is more than {MAX_SIZE_BYTES:,} bytes", where, "write a smaller size")
    if size != int(size):
        _refuse(f"size {_quote(text)} is not a whole number of bytes", where, f"write {int(size)} or {int(size) + 1}")
    return int(size)


def parse_bandwidth_Bps(text: str, where: str = "") -> float:
    """Return a rate in bytes per second.

    Examples
    --------
    >>> parse_bandwidth_Bps("76.8 GB/s"), parse_bandwidth_Bps("400Gb/s"), parse_bandwidth_Bps("1 GiB/s")
    (76800000000.0, 50000000000.0, 1073741824.0)
    >>> parse_bandwidth_Bps("64", where="links[3].bandwidth")
    Traceback (most recent call last):
    collsim.core.errors.UnitError: links[3].bandwidth: "64" has no unit
      hint: write "64 GB/s" (1e9 bytes/s), "64 GiB/s" or "512 Gb/s"
    """
    number, unit = _split(text, "rate", where, _NOT_A_RATE_HINT)
    if not unit:
        number = abs(number) / 10**9 if abs(number) >= MAY_BE_SI else abs(number)
        shown, bits = _plain(number), _plain(number * 8)
        hint = f'write "{shown} GB/s" (1e9 bytes/s), "{shown} GiB/s" or "{bits} Gb/s"'
        _refuse(f"{_quote(text)} has no unit", where, hint)
    match = _RATE_UNIT.fullmatch(unit)
    if match is None or (match[2] and not match[1]):
        like = nearest(unit.lower(), [choice.lower() for choice in _RATE_CHOICES])
        guess = next((choice for choice in _RATE_CHOICES if choice.lower() == like), None)
        hint = f'did you mean "{_plain(number)} {guess}"? ' if guess else ""
        _refuse(f"rate {_quote(text)} has the unknown unit {_quote(unit)}", where, hint + _NOT_A_RATE_HINT)
    scale = Decimal(1024 if match[2] else 1000) ** _PREFIXES[match[1].upper()]
    rate_Bps = _positive(number * scale / (1 if match[3] else 8), text, "rate", where, _NOT_A_RATE_HINT)
    if not MIN_RATE_BPS <= rate_Bps <= MAX_RATE_BPS:
        beyond = "less than 1 B/s" if rate_Bps < MIN_RATE_BPS else "more than 1 EB/s (1e18 B/s)"
        _refuse(f"rate {_quote(text)} is {beyond}", where, _NOT_A_RATE_HINT)
    return rate_Bps


def parse_time_s(text: str, where: str = "", *, allow_zero: bool = True) -> float:
    """Return a time in seconds.

    Examples
    --------
    >>> parse_time_s("500 ns"), parse_time_s("1.5us"), parse_time_s("2 ms")
    (5e-07, 1.5e-06, 0.002)
    >>> parse_time_s("500")
    Traceback (most recent call last):
    collsim.core.errors.UnitError: "500" has no unit
      hint: write "500 ns", "500 us", "500 ms" or "500 s"
    """
    number, unit = _split(text, "time", where, _NOT_A_TIME_HINT)
    if not unit:
        shown = _plain(abs(number))
        hint = f'write "{shown} ns", "{shown} us", "{shown} ms" or "{shown} s"'
        _refuse(f"{_quote(text)} has no unit", where, hint)
    if unit not in _TIME_UNITS:
        _refuse(f"time {_quote(text)} has the unknown unit {_quote(unit)}", where, _NOT_A_TIME_HINT)
    seconds = number * Decimal(_TIME_UNITS[unit])
    if seconds == 0 and allow_zero:
        return 0.0
    time_s = _positive(seconds, text, "time", where, _NOT_A_TIME_HINT)
    if time_s > MAX_TIME_S:
        _refuse(f"time {_quote(text)} is more than {MAX_TIME_S:,.0f} s", where, _NOT_A_TIME_HINT)
    return time_s


def parse_fraction(text: str | float, where: str = "", *, allow_zero: bool = False) -> float:
    """Return a fraction between 0 and 1.

    Examples
    --------
    >>> parse_fraction("50%"), parse_fraction(0.824), parse_fraction("1")
    (0.5, 0.824, 1.0)
    >>> parse_fraction("82.4", where="link.efficiency")
    Traceback (most recent call last):
    collsim.core.errors.UnitError: link.efficiency: fraction "82.4" is more than 1
      hint: write "82.4%" or 0.824
    """
    number, unit = _split(text, "fraction", where, _NOT_A_FRACTION_HINT)
    if unit not in ("", "%"):
        _refuse(f"fraction {_quote(text)} has the unknown unit {_quote(unit)}", where, _NOT_A_FRACTION_HINT)
    value = number / 100 if unit else number
    if value > 1:
        is_percent = not unit and MIN_PERCENT <= number <= 100
        hint = f'write "{_plain(number)}%" or {_plain(number / 100)}' if is_percent else "write at most 1, or 100%"
        _refuse(f"fraction {_quote(text)} is more than 1", where, hint)
    if value == 0 and allow_zero:
        return 0.0
    return _positive(value, text, "fraction", where, _NOT_A_FRACTION_HINT)


def format_size(size_bytes: float) -> str:
    """Return a size with a binary unit and at most four significant digits.

    >>> format_size(67108864), format_size(1000), format_size(1572864), format_size(0)
    ('64 MiB', '1000 B', '1.5 MiB', '0 B')
    >>> format_size(1048575), format_size(1048320), format_size(2**20 - 2**10)
    ('1 MiB', '1 MiB', '1023 KiB')
    """
    return _format(size_bytes, ((1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB")))


def format_bytes(size_bytes: float) -> str:
    """Return a size with a decimal unit and at most four significant digits, as bandwidths have it.

    >>> format_bytes(7392), format_bytes(2.5e9), format_bytes(0)
    ('7.392 kB', '2.5 GB', '0 B')
    """
    return _format(size_bytes, ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")))


def format_count(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> format_count(1, "log"), format_count(3, "log")
    ('1 log', '3 logs')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def with_article(noun: str) -> str:
    """Return a noun with its article.

    >>> with_article("int"), with_article("list")
    ('an int', 'a list')
    """
    return f"{'an' if noun[:1].lower() in tuple('aeio') else 'a'} {noun}"


def format_bandwidth(bandwidth_Bps: float) -> str:
    """Return a rate in decimal bytes per second and at most four significant digits.

    >>> format_bandwidth(76.8e9), format_bandwidth(129.6e12), format_bandwidth(12.5e6)
    ('76.8 GB/s', '129.6 TB/s', '12.5 MB/s')
    """
    return _format(bandwidth_Bps, ((1, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")))


def format_time(time_s: float) -> str:
    """Return a time with an adaptive unit and at most four significant digits.

    >>> format_time(5e-7), format_time(0.0012345), format_time(3.0), format_time(0.0)
    ('500 ns', '1.234 ms', '3 s', '0 s')
    """
    if time_s == 0:
        return "0 s"
    return _format(time_s, ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1, "s")))


def _split(text: str | float, noun: str, where: str, hint: str) -> tuple[Decimal, str]:
    """Return the number and the unit that *text* is made of."""
    text = _builtin(text)
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        _refuse(f"{noun} {_quote(text)} is not a number", where, hint)
    match = _NUMBER.fullmatch(repr(text) if isinstance(text, float) else _digits(text, noun, where, hint))
    if match is None:
        _refuse(f"{noun} {_quote(text)} is not a number", where, hint)
    try:
        return Decimal(match[1]), match[2]
    except InvalidOperation:  # pragma: no cover - the pattern admits only what Decimal reads
        _refuse(f"{noun} {_quote(text)} is not a number", where, hint)


def _builtin(value: Any) -> Any:
    """Return a number of numpy as one of Python; anything else as it is."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _digits(text: str | int, noun: str, where: str, hint: str) -> str:
    """Return *text* as a string, refusing one that is too long to be meant."""
    if isinstance(text, int):
        return str(text) if abs(text) < 10**MAX_TEXT else _refuse(f"{noun} is out of range", where, hint)
    if len(text) > MAX_TEXT:
        _refuse(f"{noun} {_quote(text)} is too long", where, hint)
    return text


def _positive(value: Decimal, text: object, noun: str, where: str, hint: str) -> float:
    """Return *value* as a float that is finite and more than zero."""
    number = float(value)
    if not number > 0:
        _refuse(f"{noun} {_quote(text)} must be more than 0", where, hint)
    if not math.isfinite(number):
        _refuse(f"{noun} {_quote(text)} is too large", where, hint)
    return number


def _format(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Return *value* in the largest unit that leaves at least 1, with at most four significant digits."""
    if not math.isfinite(value):
        return f"{value} {units[-1][1]}"
    scale, unit = units[0]
    for factor, name in units[1:]:
        if float(f"{abs(value) / scale:.4g}") * scale >= factor:  # as it is shown: 1024 KiB are 1 MiB
            scale, unit = factor, name
    number = float(f"{value / scale:.4g}")
    if abs(number) < 1 and scale > units[0][0]:
        number = math.copysign(1, value)
    return f"{number:.0f} {unit}" if number == int(number) else f"{number} {unit}"


def _ambiguous_size_hint(number: Decimal, prefix: str, power: int) -> str:
    binary = number * 1024**power
    exact = f"{int(binary):,} B" if binary == int(binary) else f"{binary:,} B"
    return f"write {_plain(number)}{prefix}iB ({exact}) or {_plain(number)}e{3 * power}"


def _plain(number: Decimal) -> str:
    """Return *number* without an exponent and without trailing zeros."""
    if abs(number.adjusted()) > 15:
        return f"{number:g}"
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _quote(text: object) -> str:
    """Return *text* for a message: printable, short and in quotes."""
    text = _builtin(text)
    if isinstance(text, int) and not isinstance(text, bool):
        shown = _short_int(text)
    elif isinstance(text, bytes):
        shown = repr(text[:50])
    elif text is None or isinstance(text, str | float | bool):
        shown = str(text)
    else:
        return f"({type(text).__name__})"
    clean = "".join(char if char.isprintable() else "?" for char in shown[:50])
    return f'"{clean[:40]}..."' if len(clean) > 40 else f'"{clean}"'


def _short_int(number: int) -> str:
    return str(number) if abs(number) < 10**MAX_TEXT else "a very large number"


def _refuse(what: str, where: str, hint: str) -> NoReturn:
    raise UnitError(Fault(what, where, hint))


def one_line(text: str) -> str:
    r"""Return a text of a file as a terminal may print it: on one line, without control characters.

    >>> one_line("two\nlines,\x1b[31m red")
    'two lines, [31m red'
    """
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
