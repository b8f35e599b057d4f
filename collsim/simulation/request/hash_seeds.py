"""Seeds of the hash that puts flows on equal cables: each is one draw of which flows meet.

This module imports only `errors`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from collsim.core.errors import Fault, InputError

__all__ = ["parse_seeds", "seeds_text"]

MOST_SEEDS = 10_000
LARGEST_SEED = 10**9
HINT = "write several, such as 1-100 or 1,5,7-9"


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Return the seeds that a text, a range or a list names; none for None.

    Raises
    ------
    InputError
        Every fault at once.

    Examples
    --------
    >>> parse_seeds("1-3,7"), parse_seeds(range(5, 7)), parse_seeds(None)
    ((1, 2, 3, 7), (5, 6), ())
    """
    if value is None:
        return ()
    faults: list[Fault] = []
    if isinstance(value, str):
        seeds = [seed for part in value.split(",") for seed in _span(part.strip(), faults)]
    elif isinstance(value, Iterable) and not isinstance(value, bytes | Mapping | Set):
        seeds = [_seed(entry, faults) for entry in islice(value, MOST_SEEDS + 1)]
    else:
        raise InputError(Fault(f"{str(value)[:60]} names no hash seeds", "hash_seeds", HINT))
    if not faults:
        faults += _unfit(seeds)
    if faults:
        raise InputError(*faults)
    return tuple(seeds)


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds as text, what follows each other as a range.

    >>> seeds_text((1, 2, 3, 7, 9, 10))
    '1-3,7,9-10'
    """
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1][1:] = [seed]
        else:
            parts.append([seed])
    return ",".join("-".join(map(str, part)) for part in parts)


def _span(part: str, faults: list[Fault]) -> range:
    """Return the seeds of ``7`` or ``1-100``."""
    ends = part.split("-")
    if not (len(ends) <= 2 and all(end.isdecimal() and end.isascii() and len(end) < 12 for end in ends)):
        faults.append(Fault(f'"{part[:60]}" is no seed of a hash', "hash_seeds", HINT))
        return range(0)
    first, last = int(ends[0]), int(ends[-1])
    if last < first:
        faults.append(Fault(f'range "{part}" runs backwards', "hash_seeds", f"write {last}-{first}"))
    elif last - first >= MOST_SEEDS:
        faults.append(Fault(f'range "{part}" is too long', "hash_seeds", f"at most {MOST_SEEDS:,} seeds"))
        return range(0)
    return range(first, last + 1)


def _seed(entry: Any, faults: list[Fault]) -> int:
    """Return a whole number, of numpy too; 0, with the fault added, if it is none."""
    try:
        if not isinstance(entry, bool):
            return operator.index(entry)
    except TypeError:
        pass
    faults.append(Fault(f"{str(entry)[:60]} is no seed of a hash", "hash_seeds", HINT))
    return 0


def _unfit(seeds: Sequence[int]) -> list[Fault]:
    """Return the faults of whole numbers as seeds: out of range, named twice, too few or too many."""
    faults = [
        Fault(f"hash seed {seed}" if abs(seed) < 10**40 else "a hash seed", "hash_seeds", f"1 to {LARGEST_SEED:,}")
        for seed in seeds
        if not 1 <= seed <= LARGEST_SEED
    ][:4]
    if len(set(seeds)) < len(seeds):
        twice = next(seed for place, seed in enumerate(seeds) if seed in seeds[:place])
        faults.append(Fault(f"hash seed {twice} is named more than once", "hash_seeds", "name each seed once"))
    if len(seeds) < 2:
        hint = f"{HINT}; for one draw, give scale_out.hash_seed"
        faults.append(Fault(f"{len(seeds)} hash seeds are no distribution", "hash_seeds", hint))
    elif len(seeds) > MOST_SEEDS:
        faults.append(Fault(f"{len(seeds):,} hash seeds", "hash_seeds", f"at most {MOST_SEEDS:,}"))
    return faults
