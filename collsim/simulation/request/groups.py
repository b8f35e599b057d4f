"""Groups of ranks that form one communicator: by the split of nccl-tests, by a layout of parallelism, or by lists.

Everything here is about rank numbers; which GPU a rank runs on is a matter of `placement`. Groups are disjoint and
equally large, so that all of them run the same collective at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, did_you_mean, nearest
from collsim.core.kinds import shown

__all__ = ["Grouping", "Lists", "ParallelLayout", "Split", "parse_grouping", "parse_groups", "parse_split"]

OPERATORS = {"AND": "AND", "&": "AND", "OR": "OR", "|": "OR", "MOD": "MOD", "%": "MOD", "DIV": "DIV", "/": "DIV"}
"""Operators of NCCL_TESTS_SPLIT by their spellings (nccl-tests src/common.cu, parsed without regard to case)."""
SPLIT = re.compile(r"(AND|OR|MOD|DIV|[&|%/])\s*(0x[0-9a-f]+|0b[01]+|[0-9]+)", re.IGNORECASE)
MASK = re.compile(r"(?:0x)?[0-9a-f]+", re.IGNORECASE)
DIMENSION = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*=\s*([0-9]+)")
MOST_DIGITS = 12
SPLIT_HINT = 'write "MOD 8", "DIV 8", "AND 0x7", "OR 0x7", or a hexadecimal mask such as 0x7'
GROUPS_HINT = "write tp=8,dp=16, or lists of ranks such as 0,1;2,3"
SHOWN = 4


@dataclass(frozen=True, slots=True)
class Split:
    """A split of nccl-tests: processes of one colour form a group, in the order of their numbers.

    The colour of process p is ``p operator value``. A process has *ranks_per_process* ranks, one after the other.

    Examples
    --------
    >>> Split("MOD", 2).groups(6), Split("DIV", 3).groups(6)
    ([[0, 2, 4], [1, 3, 5]], [[0, 1, 2], [3, 4, 5]])
    """

    operator: str
    value: int
    ranks_per_process: int = 1

    @property
    def text(self) -> str:
        """The split as NCCL_TESTS_SPLIT takes it: masks in hexadecimal."""
        return f"{self.operator} {self.value:#x}" if self.operator in ("AND", "OR") else f"{self.operator} {self.value}"

    def groups(self, n_ranks: int) -> list[list[int]]:
        """Return the ranks of each group, groups by their lowest rank; raise if they are not equally large."""
        members: dict[int, list[int]] = {}
        for rank in range(n_ranks):
            members.setdefault(self._colour(rank // self.ranks_per_process), []).append(rank)
        return _checked(list(members.values()), n_ranks, "split", self.text)

    def _colour(self, process: int) -> int:
        if self.operator == "AND":
            return process & self.value
        if self.operator == "OR":
            return process | self.value
        return process % self.value if self.operator == "MOD" else process // self.value


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """Dimensions of parallelism: the first varies fastest from rank to rank, and the ones in *over* communicate.

    Attributes
    ----------
    sizes : tuple of (str, int)
        Name and size of each dimension; their product is the number of ranks.
    over : tuple of str
        Ranks that differ in these dimensions only form a group.

    Examples
    --------
    >>> ParallelLayout((("tp", 2), ("dp", 3)), ("dp",)).groups(6)
    [[0, 2, 4], [1, 3, 5]]
    """

    sizes: tuple[tuple[str, int], ...]
    over: tuple[str, ...]

    @property
    def text(self) -> str:
        """The layout as it is written."""
        return ",".join(f"{name}={size}" for name, size in self.sizes)

    def groups(self, n_ranks: int) -> list[list[int]]:
        """Return the ranks of each group, groups by their lowest rank; raise if the layout is not for *n_ranks*."""
        wanted = prod(size for _, size in self.sizes)
        if wanted != n_ranks:
            what = f"{self.text} is for {wanted} ranks, the run has {n_ranks}"
            raise InputError(Fault(what, "groups", f"run {wanted} ranks, or choose sizes whose product is {n_ranks}"))
        members: dict[tuple[int, ...], list[int]] = {}
        for rank in range(n_ranks):
            members.setdefault(self._fixed(rank), []).append(rank)
        return _checked(list(members.values()), n_ranks, "groups", f"{self.text} over {','.join(self.over)}")

    def _fixed(self, rank: int) -> tuple[int, ...]:
        """Return the place of a rank in the dimensions that do not communicate."""
        place = []
        for name, size in self.sizes:
            rank, along = divmod(rank, size)
            if name not in self.over:
                place.append(along)
        return tuple(place)


@dataclass(frozen=True, slots=True)
class Lists:
    """Groups named rank by rank; ranks that no group names stay idle."""

    ranks: tuple[tuple[int, ...], ...]

    @property
    def text(self) -> str:
        """The lists as they are written."""
        return ";".join(",".join(map(str, group)) for group in self.ranks)

    def groups(self, n_ranks: int) -> list[list[int]]:
        """Return the lists; raise if a rank is out of range or in two groups, or the groups are not equally large."""
        times = Counter(rank for group in self.ranks for rank in group)
        faults = []
        if outside := sorted(rank for rank in times if not 0 <= rank < n_ranks):
            faults.append(Fault(f"ranks {_some(outside)} are out of range", "groups", f"0 to {n_ranks - 1}"))
        if twice := sorted(rank for rank, count in times.items() if count > 1):
            faults.append(Fault(f"ranks {_some(twice)} are named more than once", "groups", "name each rank once"))
        if faults:
            raise InputError(*faults)
        return _checked([list(group) for group in self.ranks], n_ranks, "groups", "the lists")


Grouping = Split | ParallelLayout | Lists


def parse_grouping(
    split: str | None, groups: Any = None, over: str | None = None, ranks_per_process: int = 1
) -> Grouping | None:
    """Return the grouping of the ranks that was asked for; None for one group. Raises every fault."""
    faults = Faults()
    if split is not None and groups is not None:
        faults.append(Fault("both a split and groups", "split", "give one of the two"))
    if over is not None and not isinstance(over, str):
        hint = "name dimensions of the layout, such as dp, or dp,pp"
        faults.append(Fault(f"over {shown(over)} is not a text", "over", hint))
        over = None
    elif over is not None and groups is None:
        faults.append(Fault(f"over {shown(over)} goes with groups", "over", "write --groups tp=8,dp=16 --over dp"))
        over = None
    found: Grouping | None = None
    if split is not None:
        found = faults.attempt(parse_split, split, ranks_per_process)
    if groups is not None:
        found = faults.attempt(parse_groups, groups, over)
    faults.raise_any()
    return found


def parse_split(text: Any, ranks_per_process: int = 1) -> Split:
    """Return a split from ``MOD 8``, ``DIV 8``, ``AND 0x7``, ``OR 0x7``, their signs ``% / & |``, or a mask.

    A bare number is a mask, read as hexadecimal whatever its prefix, as nccl-tests reads NCCL_TESTS_SPLIT_MASK.

    >>> parse_split("mod 8").text, parse_split("10").text
    ('MOD 8', 'AND 0x10')
    """
    if not isinstance(text, str):
        raise InputError(Fault(f"split {shown(text)} is not a text", "split", SPLIT_HINT))
    bare = text.strip().strip("\"'").strip()
    if len(bare) > 2 * MOST_DIGITS:
        raise InputError(Fault(f'split "{bare[:20]}..." is too long', "split", SPLIT_HINT))
    if found := SPLIT.fullmatch(bare):
        operator, value = OPERATORS[found[1].upper()], _number(found[2])
    elif MASK.fullmatch(bare):
        operator, value = "AND", int(bare, 16)
    else:
        word, _, number = bare.partition(" ")
        near = nearest(word, [each for each in OPERATORS if each.isalpha()])
        meant = f'did you mean "{near} {number or 8}"? ' if near else ""
        raise InputError(Fault(f'split "{bare}" is none of nccl-tests', "split", meant + SPLIT_HINT))
    if value == 0 and operator in ("MOD", "DIV"):
        raise InputError(Fault(f"split {operator} 0 divides by zero", "split", SPLIT_HINT))
    if (operator, value) in (("AND", 0), ("MOD", 1)):
        what = f'split "{bare}" leaves all ranks in one group'
        raise InputError(Fault(what, "split", "leave out --split for one group"))
    return Split(operator, value, ranks_per_process)


def parse_groups(value: Any, over: str | None = None) -> ParallelLayout | Lists:
    """Return groups from a layout such as ``tp=8,dp=16`` (text or mapping), or from lists of ranks.

    *over* names the dimensions that communicate, separated by commas; by default the first.

    >>> parse_groups("tp=8,dp=16", "dp").over, parse_groups([[0, 1], [2, 3]]).text
    (('dp',), '0,1;2,3')
    """
    if isinstance(value, Mapping):
        value = ",".join(f"{name}={size}" for name, size in value.items())
    if isinstance(value, str) and "=" in value:
        return _layout(value, over)
    if over is not None:
        hint = "over goes with a layout such as tp=8,dp=16"
        raise InputError(Fault(f'no dimension is called "{over}"', "over", hint))
    return _lists(value)


def _layout(text: str, over: str | None) -> ParallelLayout:
    parts = [part.strip() for part in text.split(",")]
    found = [DIMENSION.fullmatch(part) for part in parts]
    faults = [
        Fault(f'"{part[:40]}" is not a dimension with its size', "groups", GROUPS_HINT)
        for part, match in zip(parts, found, strict=True)
        if match is None or len(match[2]) > MOST_DIGITS or int(match[2]) == 0
    ]
    names = [match[1] for match in found if match]
    faults += [
        Fault(f'dimension "{name}" is named {times} times', "groups", "name each once")
        for name, times in Counter(names).items()
        if times > 1
    ]
    chosen = tuple(name.strip() for name in over.split(",")) if over is not None else tuple(names[:1])
    faults += [
        Fault(f'no dimension is called "{name}"', "over", f"{did_you_mean(name, names)}there are {', '.join(names)}")
        for name in chosen
        if names and name not in names
    ]
    faults += [
        Fault(f'dimension "{name}" is named {times} times', "over", "name each once")
        for name, times in Counter(chosen).items()
        if times > 1
    ]
    if faults:
        raise InputError(*faults)
    return ParallelLayout(tuple((match[1], int(match[2])) for match in found if match), chosen)


def _lists(value: Any) -> Lists:
    """Return lists of ranks from ``0,1;2,3`` or from nested sequences."""
    if isinstance(value, str):
        value = [group.split(",") for group in value.split(";")]
    try:
        groups = tuple(tuple(_rank(rank) for rank in group) for group in value)
    except (TypeError, ValueError):
        raise InputError(Fault(f"groups {str(value)[:60]!r} are no lists of ranks", "groups", GROUPS_HINT)) from None
    if not groups:
        raise InputError(Fault("no group is named", "groups", GROUPS_HINT))
    return Lists(groups)


def _rank(value: Any) -> int:
    if isinstance(value, str):
        if len(value) > MOST_DIGITS:
            raise ValueError
        return int(value)
    if isinstance(value, bool) or int(value) != value:
        raise ValueError
    return int(value)


def _number(text: str) -> int:
    """Return a number in decimal, or in the base that its prefix says."""
    base = {"0x": 16, "0b": 2}.get(text[:2].lower(), 10)
    return int(text, base)


def _checked(groups: list[list[int]], n_ranks: int, where: str, name: str) -> list[list[int]]:
    """Return *groups*; raise if they differ in size or hold one rank only."""
    sizes = sorted({len(group) for group in groups}, reverse=True)
    if len(sizes) > 1:
        what = f"{name} does not divide {n_ranks} ranks evenly: groups of {' and '.join(map(str, sizes[:SHOWN]))}"
        raise InputError(Fault(what, where, "all groups must have the same number of ranks"))
    if sizes[0] < 2:
        what = f"{name} makes {len(groups)} groups of {sizes[0]} rank, which communicate with nobody"
        raise InputError(Fault(what, where, "a group needs at least 2 ranks"))
    return groups


def _some(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return ", ".join(map(str, ranks[:SHOWN])) + more
