"""Places of groups: which ranks form one, what runs beside it, and what becomes of it with more ranks or nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from collsim.core.errors import Fault, InputError

__all__ = ["Place", "grown", "place_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group lies: its ranks are *stride* apart; ranks fill nodes one after the other, as launchers number them.

    Groups between its ranks are of the same kind and run the same at once, as those of data do beside each other where
    tensors lie within a node. *lists* names groups rank by rank instead; then nothing else runs.

    Examples
    --------
    >>> Place(8).options(4)
    {'ranks': 32, 'groups': 'beside=8,group=4', 'over': 'group'}
    >>> Place(1).options(4), Place(lists=((0, 1, 8, 9),)).options(4)
    ({'ranks': 4}, {'ranks': 10, 'groups': [[0, 1, 8, 9]]})
    """

    stride: int = 1
    lists: tuple[tuple[int, ...], ...] = ()

    def extent(self, members: int) -> int:
        """Return over how many ranks of the job, from the first on, so many members of such groups lie."""
        return 1 + max(rank for each in self.lists for rank in each[:members]) if self.lists else self.stride * members

    def options(self, members: int) -> dict[str, Any]:
        """Return the arguments of `collsim.simulation.simulate.simulate` for groups of so many members."""
        if self.lists:
            return {"ranks": self.extent(members), "groups": [list(each[:members]) for each in self.lists]}
        if self.stride == 1:
            return {"ranks": members}
        return {
            "ranks": self.extent(members), "groups": f"beside={self.stride},group={members}", "over": "group",
        }  # fmt: skip


def place_of(ranks: Sequence[int], per_node: int) -> Place:
    """Return the place of a group; one that begins elsewhere lies as one from the first of as many GPUs of a node on.

    >>> place_of([1, 9, 17], 8), place_of([4, 5, 6, 7], 8), place_of([8, 9, 16, 17], 8)
    (Place(stride=8, lists=()), Place(stride=1, lists=()), Place(stride=1, lists=((0, 1, 8, 9),)))
    """
    ordered = sorted(ranks)
    steps = {b - a for a, b in pairwise(ordered)}
    if len(steps) <= 1:
        stride = steps.pop() if steps else 1
        first = range(0, stride * len(ordered), stride)
        if len({rank // per_node for rank in ordered}) == len({rank // per_node for rank in first}):
            return Place(stride)
    begin = ordered[0] - ordered[0] % per_node
    return Place(lists=(tuple(rank - begin for rank in ordered),))


def grown(place: Place, members: int, world: int, ranks: int, name: str) -> int:
    """Return how many members a group has in a job of *ranks*, that has so many in one of *world*.

    Groups that reach over all of the job grow with it, others stay.

    Raises
    ------
    InputError
        The job has no whole number of them.
    """
    if place.lists or place.stride * members != world:
        return members
    if ranks % place.stride:
        fitting = sorted({max(ranks // place.stride, 1) * place.stride, -(-ranks // place.stride) * place.stride})
        what = f"{ranks} ranks hold no whole number of those of group {name}, each {place.stride} after the one before"
        raise InputError(Fault(what, "ranks", f"give {' or '.join(map(str, fitting))}"))
    return ranks // place.stride
