"""Texts of flags read into the arguments of `simulate`, with every fault in one report.

A value comes from a flag, from an environment variable or from a configuration file; its faults name that place.
This module imports only what reads texts; arrays and the model come later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from collsim.core.errors import Fault, Faults, InputError
from collsim.core.operations import MOST_RANKS

__all__ = [
    "PAIRS",
    "read_counts",
    "read_decimal",
    "read_number",
    "read_overrides",
    "read_prices",
    "read_rank_list",
    "read_seeds",
    "read_shares",
    "read_tokens",
]

T = TypeVar("T")

MOST_SEEDS = 10_000


def read_number(text: str, where: str = "", hint: str = "such as 8") -> int:
    """Return a whole number; a sign is allowed.

    >>> read_number("8"), read_number("-1")
    (8, -1)
    """
    digits = text.strip()
    if not digits.removeprefix("-").isdecimal() or not digits.isascii() or len(digits) > 12:
        raise InputError(Fault(f'"{text}" is not a whole number', where, hint))
    return int(digits)


def read_decimal(text: str, where: str = "") -> float:
    """Return a number.

    >>> read_decimal("1.5")
    1.5
    """
    try:
        return float(text)
    except ValueError:
        raise InputError(Fault(f'"{text}" is not a number', where, "such as 1.0")) from None


def read_tokens(text: str, where: str = "tokens") -> int | list[int]:
    """Return the tokens of every rank, or those of each in a list.

    >>> read_tokens("4096"), read_tokens("256x2,64x3,8")
    (4096, [256, 256, 64, 64, 64, 8])
    """
    hint = "give one number for all ranks, or a list: 256x8,64x24 for 8 ranks of 256 and 24 of 64"
    if "," not in text and "x" not in text:
        return read_number(text, where, hint)

    def part(entry: str) -> list[int]:
        each, _, times = entry.partition("x")
        count = read_number(times, where, hint) if "x" in entry else 1
        if not 1 <= count <= MOST_RANKS:
            raise InputError(Fault(f'"{entry.strip()}" is of {count} ranks', where, f"give 1 to {MOST_RANKS}"))
        return [read_number(each, where, hint)] * count

    return [tokens for entry in _all_of(text.split(","), part) for tokens in entry]


def read_seeds(text: str, where: str = "seeds") -> list[int]:
    """Return the seeds in a list.

    >>> read_seeds("0-3,7")
    [0, 1, 2, 3, 7]
    """
    hint = "write seeds and ranges of seeds: 0-9 or 0,3,5-7"

    def part(entry: str) -> range:
        ends = [read_number(end, where, hint) for end in entry.split("-", 1)]
        if ends[-1] < ends[0]:
            raise InputError(Fault(f'range "{entry}" runs backwards', where, f"write {ends[-1]}-{ends[0]}"))
        if ends[-1] - ends[0] >= MOST_SEEDS:
            raise InputError(Fault(f'range "{entry}" is too long', where, f"at most {MOST_SEEDS:,} seeds"))
        return range(ends[0], ends[-1] + 1)

    return [seed for entry in _all_of(text.split(","), part) for seed in entry]


def read_counts(text: str, where: str = "ranks") -> list[int]:
    """Return the numbers in a list such as 2,4,8."""
    return _all_of(text.split(","), lambda part: read_number(part, where, "separate numbers by commas: 2,4,8"))


def read_rank_list(text: str, where: str = "rank_list") -> list[int]:
    """Return the GPUs in a list.

    >>> read_rank_list("0,3,5-7")
    [0, 3, 5, 6, 7]
    """
    ranks: list[int] = []
    for first, last in _all_of(text.split(","), lambda part: _span(part, where)):
        ranks.extend(range(first, last + 1))
    return ranks


def _span(part: str, where: str) -> tuple[int, int]:
    hint = "write GPUs and ranges of GPUs: 0,3,5-7"
    texts = part.split("-", 1)
    if not all(text.strip(" -") for text in texts):
        raise InputError(Fault(f'"{part.strip()}" names no GPU', where, hint))
    ends = [read_number(text, where, hint) for text in texts]
    first, last = ends[0], ends[-1]
    if last < first:
        raise InputError(Fault(f'range "{part}" runs backwards', where, f"write {last}-{first}"))
    if last - first >= MOST_RANKS:
        raise InputError(Fault(f'range "{part}" is too long', where, f"at most {MOST_RANKS} GPUs"))
    return first, last


def read_overrides(entries: Sequence[str], faults: Faults) -> dict[str, str]:
    """Return PATH=VALUE entries as a mapping; those that are none go to *faults*.

    >>> read_overrides(["link.bandwidth=80 GB/s"], Faults())
    {'link.bandwidth': '80 GB/s'}
    """
    return _pairs(
        entries, faults, "overrides", "PATH=VALUE", 'write --set link.bandwidth="80 GB/s"', typed="--set {}=VALUE"
    )


def read_settings(entries: Sequence[str], faults: Faults) -> dict[str, str]:
    """Return NAME=VALUE entries as a mapping; those that are none go to *faults*.

    >>> read_settings(["NCCL_ALGO=Ring"], Faults())
    {'NCCL_ALGO': 'Ring'}
    """
    return _pairs(entries, faults, "env", "NAME=VALUE", "write --env NCCL_ALGO=Ring", typed=_setting)


def _setting(name: str) -> str:
    from collsim.library.environment import example_of

    return f"--env {example_of(name)}"


def read_shares(entries: Sequence[str], faults: Faults) -> dict[str, str]:
    """Return WHAT=SHARE entries as a mapping; those that are none go to *faults*.

    >>> read_shares(["link:gpu0-gpu1=50%"], Faults())
    {'link:gpu0-gpu1': '50%'}
    """
    return _pairs(
        entries, faults, "degrade", "WHAT=SHARE", 'write --degrade "link:gpu0-gpu1=50%"', typed='--degrade "{}=50%"'
    )


def read_prices(entries: Sequence[str], where: str, faults: Faults) -> dict[str, str]:
    """Return NAME=NUMBER entries of systems as a mapping; those that are none go to *faults*, at the place *where*.

    >>> read_prices(["hgx_b200=2.50"], "price", Faults())
    {'hgx_b200': '2.50'}
    """
    shape, example = ("NAME=USD", "2.50") if where == "price" else ("NAME=WATTS", "1000")
    return _pairs(entries, faults, where, shape, f"write --{where} hgx_b200={example}, of one GPU")


PAIRS = {"overrides": read_overrides, "environment": read_settings, "degrade": read_shares}
"""Readers of flags with an equals sign, by the field of the request."""


def _pairs(
    entries: Sequence[str], faults: Faults, where: str, shape: str, hint: str, *, typed: str | Callable[[str], str] = ""
) -> dict[str, str]:
    """Return entries with an equals sign as a mapping; *typed* is how one goes on that has no such sign, or no value
    where the name says what value.
    """
    pairs: dict[str, str] = {}
    for entry in entries:
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or not name or not value:
            own = ""
            if callable(typed):
                own = typed(name) if name else ""
            elif name and not equals:
                own = typed.format(name)
            example = hint.removeprefix("write ")
            better = hint if not own or own == example else f"write {own}" + f", such as {example}" * ("VALUE" in own)
            faults.append(Fault(f'"{entry}" is not {shape}', where, better))
            continue
        if name in pairs:
            what = f'"{name}" is set twice, to "{pairs[name]}" and to "{value}"'
            faults.append(Fault(what, where, "keep one of the two"))
        pairs[name] = value
    return pairs


def _all_of(items: Sequence[Any], parse: Callable[[Any], T]) -> list[T]:
    """Parse every item, and report all that fail."""
    faults = Faults()
    parsed = [faults.attempt(parse, item) for item in items]
    faults.raise_any()
    return [value for value in parsed if value is not None]
