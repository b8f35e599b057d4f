"""Names of many nodes, made when they are read: a large cluster has hundreds of thousands, of which few are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

__all__ = ["Names", "Series"]

NUMBER = re.compile(r"(0|[1-9][0-9]*)(.*)", re.DOTALL)


class Series(NamedTuple):
    """Names of a prefix, one of *numbers* and each of some endings, number by number."""

    prefix: str
    numbers: range
    endings: tuple[str, ...] = ("",)

    def spelled(self) -> Iterator[str]:
        """Yield the names in order."""
        return (f"{self.prefix}{number}{ending}" for number in self.numbers for ending in self.endings)


class Names(Sequence[str]):
    """Series of names one after the other, as one sequence; it equals a tuple of the same names.

    Examples
    --------
    >>> names = Names([Series("n", range(2), (".gpu0", ".gpu1")), Series("leaf", range(3))])
    >>> names[3], names[-1], names.index("leaf1"), "n2.gpu0" in names, names[:2]
    ('n1.gpu1', 'leaf2', 5, False, ('n0.gpu0', 'n0.gpu1'))
    """

    __slots__ = ("_ends", "_series")

    def __init__(self, series: Sequence[Series]) -> None:
        self._series = tuple(series)
        self._ends = tuple(accumulate(len(one.numbers) * len(one.endings) for one in self._series))

    def __len__(self) -> int:
        """Return the number of names."""
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[str]:
        """Yield all names in order."""
        return (name for one in self._series for name in one.spelled())

    def __getitem__(self, place: Any) -> Any:
        """Return a name, or a tuple of them for a slice."""
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        at = place + len(self) if place < 0 else place
        if not 0 <= at < len(self):
            raise IndexError(place)
        which = next(which for which, end in enumerate(self._ends) if at < end)
        one = self._series[which]
        number, ending = divmod(at - (self._ends[which - 1] if which else 0), len(one.endings))
        return f"{one.prefix}{one.numbers[number]}{one.endings[ending]}"

    def index(self, name: object, *within: Any) -> int:
        """Return the place of a name."""
        if within:
            return tuple(self).index(name, *within)
        start = 0
        for one, end in zip(self._series, self._ends, strict=True):
            if isinstance(name, str) and name.startswith(one.prefix):
                found = NUMBER.fullmatch(name[len(one.prefix) :])
                if found and int(found[1]) in one.numbers and found[2] in one.endings:
                    return start + one.numbers.index(int(found[1])) * len(one.endings) + one.endings.index(found[2])
            start = end
        raise ValueError(f"{name!r} is not among the names")

    def __contains__(self, name: object) -> bool:
        """Return True if there is such a name."""
        try:
            self.index(name)
        except ValueError:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        """Return True if the names are the same, in the same order."""
        if not isinstance(other, Names | tuple) or len(self) != len(other):
            return False
        return all(one == same for one, same in zip(self, other, strict=True))

    def __hash__(self) -> int:
        """Return the hash of the names, that of a tuple of them."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Return the number of names, the first and the last, as text."""
        return f"<{len(self)} names: {self[0]} ... {self[-1]}>" if len(self) else "<no names>"
