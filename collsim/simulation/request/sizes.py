"""Sizes of a request: listed, or a range as nccl-tests spells it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from collsim.core.errors import Fault, Faults, InputError
from collsim.core.kinds import shown
from collsim.core.units import parse_size_bytes
from collsim.simulation.request.fields import BOUNDS
from collsim.simulation.request.values import read_items

__all__ = ["read_sizes"]

MOST_SIZES = 10_000
DEFAULT_SIZES = tuple(2**power for power in range(20, 31))
"""1 MiB to 1 GiB by factors of two."""
DEFAULT_FIRST, DEFAULT_LAST, DEFAULT_STEP = 2**20, 2**30, 2**20


def read_sizes(size: Any = None, **bounds: Any) -> tuple[int, ...]:
    """Return sizes in bytes: those of *size*, or the range that `BOUNDS` say.

    >>> read_sizes(["64", "1M"]), read_sizes(min_bytes="1K", max_bytes="4K", step_factor=2)
    ((64, 1048576), (1024, 2048, 4096))
    >>> read_sizes(min_bytes=8, max_bytes=24, step_bytes="8"), len(read_sizes())
    ((8, 16, 24), 11)
    """
    given = {name: bounds[name] for name in BOUNDS if bounds.get(name) is not None}
    if size is not None and given:
        raise InputError(Fault("--size and the flags -b -e -i -f exclude each other", "size", "give one of the two"))
    if size is not None:
        return _listed(size)
    if "step_bytes" in given and "step_factor" in given:
        raise InputError(Fault("-i and -f exclude each other", "step_bytes", "give a step or a factor"))
    return tuple(_range(given)) if given else DEFAULT_SIZES


def _listed(size: Any) -> tuple[int, ...]:
    faults = Faults()
    entries = read_items(size, "size", "name at least one, such as 64M", faults, "the list of sizes is empty")
    sizes = [faults.attempt(parse_size_bytes, entry, "size", allow_zero=False) for entry in entries]
    faults.raise_any()
    return tuple(number for number in sizes if number is not None)


def _range(given: Mapping[str, Any]) -> list[int]:
    """Return first, ..., last in steps or by factors; the first alone asks for one size."""
    faults = Faults()
    read = {name: faults.attempt(_bound, name, value) for name, value in given.items()}
    faults.raise_any()
    bound = {name: value for name, value in read.items() if value is not None}
    first = int(bound.get("min_bytes", DEFAULT_FIRST))
    last = int(bound.get("max_bytes", first if set(bound) == {"min_bytes"} else max(DEFAULT_LAST, first)))
    if "min_bytes" not in bound:
        first = min(first, last)
    if last < first:
        raise InputError(Fault(f"the largest size {last} is below the smallest {first}", "max_bytes", "swap -b and -e"))
    if "step_factor" in bound:
        return _by_factors(first, last, bound["step_factor"])
    step = int(bound.get("step_bytes", DEFAULT_STEP))
    if (count := (last - first) // step + 1) > MOST_SIZES:
        where = "step_bytes" if "step_bytes" in bound else "max_bytes"
        raise InputError(Fault(f"{count} sizes in steps of {step}", where, f"at most {MOST_SIZES}; use -f 2"))
    return list(range(first, last + 1, step))


def _bound(name: str, value: Any) -> float:
    return _factor(value) if name == "step_factor" else parse_size_bytes(value, name, allow_zero=False)


def _by_factors(first: int, last: int, factor: float) -> list[int]:
    sizes = [first]
    beyond = last + 1  # a product may be infinite
    while (following := max(int(min(sizes[-1] * factor, beyond)), sizes[-1] + 1)) <= last:
        sizes.append(following)
        if len(sizes) > MOST_SIZES:
            raise InputError(Fault(f"more than {MOST_SIZES} sizes", "step_factor", "give a larger factor, such as 2"))
    return sizes


def _factor(value: Any) -> float:
    """Return a factor between sizes, above 1."""
    hint = "give a factor above 1, such as 2"
    try:
        factor = float(value)
    except (TypeError, ValueError):
        raise InputError(Fault(f"factor {shown(value)} is not a number", "step_factor", hint)) from None
    if not factor > 1 or math.isinf(factor):
        raise InputError(Fault(f"factor {shown(value)} does not grow from size to size", "step_factor", hint))
    return factor
