"""One printed row to numbers, each with the half step of its last printed digit, and the test whether they agree.

A row holds a size, a time and a rate that follows from both, so most damage shows: the size divided by the time is
the algbw within print rounding, in one of the known pairs of units, or the half of the row is not taken.
This module imports only `operations`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from collsim.core.operations import DTYPE_ALIASES, DTYPES

__all__ = [
    "UNITS",
    "Block",
    "Choice",
    "Layout",
    "RawRow",
    "RowStart",
    "agreement",
    "choice_of",
    "dtype_name",
    "find_row",
    "number",
    "split_cells",
    "too_large",
]

UNITS = (
    ("us", 1e6, "GB/s", 1e9),
    ("ms", 1e3, "GB/s", 1e9),
    ("s", 1.0, "GB/s", 1e9),
    ("us", 1e6, "GiB/s", 2.0**30),
    ("ms", 1e3, "GiB/s", 2.0**30),
    ("us", 1e6, "MB/s", 1e6),
    ("ns", 1e9, "GB/s", 1e9),
)
"""Pairs of units that tables use, in the order of trust: unit, how many of it in a second, unit, B/s.

The bits of a mask follow this order; `OTHERS_BIT` comes last.
"""

OTHERS_BIT = 1 << len(UNITS)
"""us and GB/s, where algbw counts only what leaves the rank, as in hypercube."""

ANY_UNIT = 2 * OTHERS_BIT - 1
_STEPS = tuple(0.5 * 10.0**-digits for digits in range(18))
SLACK = 0.005
"""Relative disagreement that is forgiven on top of print rounding."""
SURE = 0.03
"""A rate known better than this tells the pairs of units apart."""
LONGEST_TIME = 1e12
"""A longer time, whatever its unit, is damage."""
MAX_SIZE_BYTES = 2**62

MISSING = frozenset({"n/a", "na", "-", "--", "none", "null", "nil", ""})
REDUCTIONS = frozenset({"sum", "prod", "min", "max", "avg", "mulsum", "none", "premulsum"})
_DTYPES = {
    **{name: name for name in DTYPES},
    **DTYPE_ALIASES,
    "fp8_e4m3": "f8e4m3",
    "fp8_e5m2": "f8e5m2",
    "float8_e4m3": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "char": "int8",
    "int": "int32",
    "uint": "uint32",
    "bf16": "bfloat16",
}

_INTEGER = r"\d{1,3}(?:[,._'\u00a0\u202f\u2009]\d{3})+|\d+"
_ROW = re.compile(rf"(?<![\w.,:+-])({_INTEGER})\s+(?:({_INTEGER})\s+)?([A-Za-z]\w*)(?=\s|$)")
_QUICK_ROW = re.compile(r"\s*(\d+)\s+(\d+)\s+([a-z]\w*)(?=\s|$)", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[,'_\u00a0\u202f\u2009]\d{3})+(?:\.\d*)?")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT?(?:\d\d:\d\d:\d\d)?\S*|\d\d:\d\d:\d\d\S*")
_CHOICE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\*? (LL|LL128|SIMPLE|N/A|-) (\d{1,6}|N/A|-)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[,'_\u00a0\u202f\u2009]")


class Layout(NamedTuple):
    """Cells that a header promises behind the data type: a root or not, and the cells of either block.

    *clocks* of them stand between time and algbw: times of another clock, such as ``hipevt`` of rccl-tests. The cells
    of a `Choice` may follow.
    """

    has_root: bool
    first: int
    second: int
    clocks: int = 0
    choice: bool = False


class Choice(NamedTuple):
    """The library's choice, as rccl-tests prints it behind a row (``-A 1``); None for what it does not say."""

    algo: str | None
    proto: str | None
    channels: int | None


@dataclass(slots=True)
class Block:
    """One half of a row: each number with half a step of its last digit; *wrong* is NaN if not checked."""

    time: float
    time_step: float
    algbw: float
    algbw_step: float
    busbw: float
    busbw_step: float
    wrong: float
    units: int = -1
    """Mask of the pairs of units under which it agrees with its size; -1 while that is not known."""


@dataclass(slots=True)
class RawRow:
    """A row as printed: times and rates still in the units of the table."""

    size: int
    count: int | None
    dtype: str | None
    redop: str | None
    root: int | None
    out: Block | None
    into: Block | None
    line: int
    choice: Choice | None = None


@dataclass(slots=True)
class RowStart:
    """The left end of a row and the cells that follow it, maybe not all yet."""

    size: int
    count: int | None
    dtype: str
    known_type: bool
    rest: list[str]
    gap: int
    line: int
    text: str


def number(token: str) -> tuple[float, float] | None:
    """Return a printed number and half a step of its last digit; (NaN, 0) for N/A; None if it is no number.

    What the program printed for a number that is none (nan, inf) is (infinity, 0), which agrees with nothing.

    >>> number("12.90"), number("1.8e+07"), number("1,234.5"), number("XXX.XX")
    ((12.9, 0.005), (18000000.0, 500000.0), (1234.5, 0.05), None)
    """
    try:
        value = float(token)
    except ValueError:
        if token.lower() in MISSING:
            return math.nan, 0.0
        if not _GROUPED.fullmatch(token):
            return None
        token = _SEPARATORS.sub("", token)
        value = float(token)
    if not token.lstrip("+-")[:1].isdigit() and not math.isfinite(value):
        return math.inf, 0.0
    dot = token.find(".")
    if "e" not in token and "E" not in token:
        digits = len(token) - dot - 1 if dot >= 0 else 0
        plain = digits < len(_STEPS) and len(token) < 300 and "_" not in token and math.isfinite(value)
        return (value, _STEPS[digits]) if plain else None
    mantissa, _, exponent = token.lower().partition("e")
    digits = len(mantissa) - dot - 1 if dot >= 0 else 0
    if not math.isfinite(value) or "_" in token or len(token) > 40:
        return None
    return value, 10.0 ** max(-300, min(300, int(exponent) - digits)) / 2


def integer(token: str) -> int | None:
    """Return a whole number of at most 2^62, thousands separators or not."""
    digits = token if token.isdigit() else re.sub(r"[,._'\u00a0\u202f\u2009]", "", token)
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        return None
    value = int(digits)
    return value if value <= MAX_SIZE_BYTES else None


def dtype_name(text: str) -> str | None:
    """Return the name of a data type as `operations` spells it, or None."""
    return _DTYPES.get(text.lower().removeprefix("nccl"))


def find_row(text: str, line: int, *, at_start: bool = False) -> RowStart | None:
    """Return the beginning of a row if *text* holds one, whatever stands before it unless *at_start*."""
    match = _QUICK_ROW.match(text) or (None if at_start else _ROW.search(text))
    if match is None:
        return None
    known = dtype_name(match[3])
    if known is None and (match[2] is None or match[3].lower() in REDUCTIONS):
        return None
    size, count = integer(match[1]), integer(match[2]) if match[2] else None
    if size is None:
        return None
    rest = text[match.end() :].split()
    gap = max((len(blank) for blank in re.findall(r" {20,}", text[match.end() :])), default=0) if len(rest) < 8 else 0
    return RowStart(size, count, known or match[3], known is not None, rest, gap, line, text)


def too_large(text: str) -> bool:
    """Return True if a line is a row whose size is more than any buffer holds."""
    match = _QUICK_ROW.match(text)
    return match is not None and dtype_name(match[3]) is not None and integer(match[1]) is None


def block(cells: Sequence[tuple[float, float]]) -> Block:
    """Return the block that begins with time, algbw, busbw and maybe a count of wrong elements."""
    (time, time_step), (algbw, algbw_step), (busbw, busbw_step) = cells[:3]
    wrong = cells[3][0] if len(cells) > 3 else math.nan
    busbw = busbw if math.isfinite(busbw) else math.nan
    wrong = wrong if wrong == int_or_nan(wrong) else math.nan  # the greatest deviation of an old table, no count
    return Block(time, time_step, algbw, algbw_step, busbw, busbw_step, wrong)


def agreement(size: int, others: int, half: Block) -> int:
    """Return the mask of the pairs of units under which size, time and algbw agree; 0 if none.

    *others* is size / count / element, the number of ranks where the row shows it.
    """
    time, rate = half.time, half.algbw
    if not 0 < time < LONGEST_TIME or rate < 0:
        return 0
    if math.isnan(rate):
        return ANY_UNIT
    expected = size / time * 1e-3
    blur = SLACK + half.time_step / time
    if abs(rate - expected) <= half.algbw_step * 1.02 + expected * blur and half.algbw_step < SURE * rate:
        return 1
    mask = 0
    for bit, (_, per_second, _, rate_unit) in enumerate(UNITS):
        guess = size * per_second / time / rate_unit
        if abs(rate - guess) <= half.algbw_step * 1.02 + guess * blur:
            mask |= 1 << bit
    guess = expected * (others - 1) / others if others > 1 else math.inf
    if abs(rate - guess) <= half.algbw_step * 1.02 + guess * blur:
        mask |= OTHERS_BIT
    return mask


def split_cells(start: RowStart, layout: Layout | None) -> tuple[str | None, int | None, list[Block | None], str]:
    """Return (redop, root, blocks, fault) of the cells after the data type.

    Blocks are empty and the fault is "" while cells are still missing. *layout* is what the header promises.
    """
    rest = start.rest
    redop = None
    if rest and rest[0].lower() in REDUCTIONS:
        redop, rest = rest[0].lower(), rest[1:]
    promised = layout is not None and layout.choice and len(rest) == sum(layout[:3]) + 3
    rest = rest[:-3] if promised or choice_of(rest) else rest
    while rest and (":" in rest[-1] or rest[-1].count("-") > 1) and _STAMP.fullmatch(rest[-1]):
        rest = rest[:-1]
    sound = [cell for cell in map(number, rest) if cell is not None]
    if len(sound) < len(rest):
        strange = next(token for token in rest if number(token) is None)
        return redop, None, [], f'"{strange[:20]}" is not a number'
    for way in _layouts(len(sound), layout):
        blocks = _try_layout(start, sound, way)
        if blocks:
            return redop, int(sound[0][0]) if way.has_root else None, blocks, ""
    if any(math.isinf(value) for value, _ in sound):
        strange = next(token for token in rest if (number(token) or (0.0,))[0] == math.inf)
        return redop, None, [], f'"{strange[:20]}" is not a number'
    if len(sound) >= 6:
        return redop, None, [], _disagreement(start, sound, layout)
    return redop, None, [], ""


@functools.lru_cache(maxsize=256)
def _layouts(cells: int, layout: Layout | None) -> list[Layout]:
    """Return the ways to divide *cells* cells into root and blocks, the likeliest first."""
    ways = [layout] if layout and sum(layout[:3]) == cells else []
    for has_root in (True, False):
        for first in (4, 3, 5, 8, 7):
            seconds, clocks = (first, 0) if first == 5 else (first, 4, 3, 0), int(first == 5)
            ways += [
                Layout(has_root, first, second, clocks) for second in seconds if has_root + first + second == cells
            ]
    return ways


def choice_of(cells: Sequence[str]) -> Choice | None:
    """Return the library's choice in the last three cells of a row; None if they are something else.

    >>> choice_of(["0", "RING*", "SIMPLE", "56"])
    Choice(algo='ring', proto='Simple', channels=56)
    """
    match = _CHOICE.fullmatch(" ".join(cells[-3:])) if len(cells) >= 3 else None
    if match is None:
        return None
    algo, proto, channels = (None if text.lower() in MISSING else text for text in match.groups())
    proto = None if proto is None else "Simple" if proto.upper() == "SIMPLE" else proto.upper()
    return Choice(algo and algo.lower(), proto, int(channels) if channels else None)


def _try_layout(start: RowStart, cells: list[tuple[float, float]], layout: Layout) -> list[Block | None]:
    """Return the blocks of a layout if it makes sense, else nothing."""
    has_root, first, second, clocks, _ = layout
    if has_root and not (cells[0][0] == int_or_nan(cells[0][0]) and -1 <= cells[0][0] < 1e7):
        return []
    parts = [cells[has_root : has_root + first], cells[has_root + first : has_root + first + second]]
    halves = [block([part[0], *part[1 + clocks :]]) for part in parts if part]
    others = others_of(start.size, start.count, start.dtype)
    for half in halves:
        half.units = agreement(start.size, others, half) if start.size else ANY_UNIT
    if not any(half.units for half in halves) or any(
        half.units and (half.wrong < 0 or half.time < 0) for half in halves
    ):
        return []
    return [half if half.units else None for half in halves]


def int_or_nan(value: float) -> float:
    """Return the whole part of a finite number, NaN otherwise."""
    return float(int(value)) if math.isfinite(value) else math.nan


def others_of(size: int, count: int | None, dtype: str | None) -> int:
    """Return size / (count * element): the number of blocks that the row shows, 0 if it shows none."""
    element = DTYPES.get(dtype or "", 0)
    if not count or not element or size % (count * element):
        return 0
    return size // (count * element)


def _disagreement(start: RowStart, cells: list[tuple[float, float]], layout: Layout | None) -> str:
    """Return why no layout fits a row that has cells enough."""
    has_root = layout.has_root if layout else len(cells) % 2 == 1
    time, rate = cells[has_root][0], cells[has_root + 1][0]
    if not time > 0:
        return f"time {time:g} is not positive"
    return f"time {time:g} and algbw {rate:g} do not belong to {start.size} bytes"
