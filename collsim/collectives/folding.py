"""Folding for algorithms that halve and double: a power of two of ranks, and partners at doubling distances.

Any other number of ranks is *folded*: with p the largest power of two up to n, the first 2(n - p) ranks form pairs, of
which the odd rank works for both (Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49,
section 4.4). The even rank hands its data over first and gets its result last: two more messages in a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from collsim.schedule import Int

__all__ = ["Fold", "fold", "halvings"]


class Fold(NamedTuple):
    """A power of two of ranks that do the work, the *members*, and those that leave it to one of them.

    Attributes
    ----------
    members : tuple of int
        Rank of each member.
    pairs : tuple of (int, int)
        Each rank that is no member, with the rank that works for it.
    member_of : int64[n_ranks]
        The member that works for each rank.
    """

    members: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    member_of: Int


def fold(n: int) -> Fold:
    """Return the fold of *n* ranks.

    >>> fold(5).members, fold(5).pairs, fold(5).member_of.tolist()
    ((1, 2, 3, 4), ((0, 1),), [0, 0, 1, 2, 3])
    """
    extra = n - (1 << (n.bit_length() - 1))
    members = (*range(1, 2 * extra, 2), *range(2 * extra, n))
    ranks = np.arange(n)
    member_of = np.where(ranks < 2 * extra, ranks // 2, ranks - extra)
    return Fold(members, tuple((2 * i, 2 * i + 1) for i in range(extra)), member_of)


def halvings(owner: Int, distances: tuple[int, ...]) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield, per distance, which items each member keeps while the items are halved.

    At first everybody has all of them. At each distance a member keeps those items whose owner is on its own side and
    passes the others to its partner, ``member ^ distance``; at the end it has its own.

    Parameters
    ----------
    owner : int64[n_items]
        The member that each item belongs to.
    distances : tuple of int
        Every power of two below the number of members, in any order.

    Examples
    --------
    >>> list(halvings(np.arange(4), (2, 1)))
    [(2, [[0, 1], [0, 1], [2, 3], [2, 3]]), (1, [[0], [1], [2], [3]])]
    """
    members, decided = np.arange(2 * max(distances, default=0) or 1), 0
    for distance in distances:
        decided |= distance
        sides = {int(side): np.flatnonzero(owner & decided == side).tolist() for side in np.unique(members & decided)}
        yield distance, [sides[int(side)] for side in members & decided]
