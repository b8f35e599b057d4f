"""Sorting labels out: distinct values and their places, and rows of tables with pointers.

Tables of millions of rows spend most of their time in sorting; labels that lie close together need none.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct", "entries_of", "pointers", "spread"]

Int = NDArray[np.int64]
S = TypeVar("S", bound=np.generic)

SPARE = 8
"""A table of flags may be so many times longer than the labels: a byte for each is still cheaper than sorting."""
SHORT = 1 << 15
"""So long a table costs next to nothing."""


def distinct(labels: Int) -> tuple[Int, Int]:
    """Return the distinct labels in order, and the place of each label among them.

    >>> [column.tolist() for column in distinct(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    if not len(labels):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    low = int(labels.min())
    span = int(labels.max()) - low + 1
    if span > max(SPARE * len(labels), SHORT):
        values, place = np.unique(labels, return_inverse=True)
        return values, np.asarray(place, dtype=np.int64)
    shifted = labels - low if low else labels
    met = np.zeros(span, dtype=np.bool_)
    met[shifted] = True
    values = np.flatnonzero(met)
    if len(values) == span:
        return values + low, np.asarray(shifted, dtype=np.int64)
    number = np.empty(span, dtype=np.int64)  # what no label names is never looked up
    number[values] = np.arange(len(values))
    return values + low, number[shifted]


def pointers(counts: Int) -> Int:
    """Return int64[n+1], where the rows of a table begin that have so many entries."""
    ptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def entries_of(ptr: Int, rows: Int) -> tuple[Int, Int]:
    """Return the pointers of a table of these *rows* of another, and the places of their entries there.

    >>> [column.tolist() for column in entries_of(np.array([0, 2, 3, 5]), np.array([2, 0]))]
    [[0, 2, 4], [3, 4, 0, 1]]
    """
    counts = (ptr[1:] - ptr[:-1])[rows]
    taken = pointers(counts)
    place = np.repeat(ptr[rows] - taken[:-1], counts)
    place += np.arange(taken[-1])
    return taken, place


def spread(values: NDArray[S], times: int) -> NDArray[S]:
    """Return every value so many times in a row, read-only; where all are equal, that takes the room of one.

    >>> spread(np.array([2, 3]), 2).tolist(), spread(np.array([5, 5]), 2).strides
    ([2, 2, 3, 3], (0,))
    """
    if len(values) and (values == values[0]).all():
        return np.broadcast_to(values[0], len(values) * times)
    repeated = np.repeat(values, times)
    repeated.setflags(write=False)
    return repeated
