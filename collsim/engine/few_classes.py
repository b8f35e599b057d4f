"""Classes of transfers that have to behave alike, where a few rounds in NumPy find that there are few of them.

It is the partition of `collsim.engine.symmetry`, without the compiled refinement: to load that takes longer than plain
Python needs for such problems. Imports only NumPy.
"""

from __future__ import annotations

import numpy as np

from collsim.engine.problem import Floats, Ints, Problem
from collsim.engine.symmetry import Codes, Quotient, quotient_of

__all__ = ["few_classes"]

MOST_ROUNDS = 40
"""Exchanges of everybody with everybody take three or four, what switches add and copy in chunks two for each chunk."""
WORTH = 16
"""With more classes than one for so many transfers, plain Python takes no longer for the problem as it is."""


def few_classes(p: Problem) -> Quotient | None:
    """Return the quotient of a checked problem; None if there are many classes, or many rounds to find them."""
    n = len(p.route)
    hops, deps = _Sums(p.route_ptr), _Sums(p.dep_ptr)
    on_route, on_link = _Sums.by(p.route, len(p.route_ptr) - 1), _Sums.by(p.route_link, len(p.capacity_Bps))
    owner = np.repeat(np.arange(len(p.route_ptr) - 1), np.diff(p.route_ptr))
    weight = _code(p.route_weight)
    own = _code(p.size_bytes, p.latency_s, p.cap_Bps)
    colour, link_colour = own, _code(p.capacity_Bps)
    found = 0
    for _ in range(MOST_ROUNDS):
        crossed = hops.of(_mixed(link_colour[p.route_link] ^ weight))
        waits = deps.of(_mixed(colour[p.dep]))
        sent = on_route.of(_mixed(colour))
        link_colour = _mixed(link_colour + _mixed(on_link.of(_mixed(sent[owner] ^ weight))))
        colour = _mixed(_mixed(colour + crossed[p.route]) + waits)
        ids, count = _numbers(colour)
        link_ids, link_count = _numbers(link_colour)
        if count * WORTH > n:
            return None
        if count + link_count == found:
            return quotient_of(p, ids, link_ids)
        found = count + link_count
    return None


class _Sums:
    """Sums of codes over the rows of a table."""

    def __init__(self, ptr: Ints, order: Ints | None = None) -> None:
        self.order, self.full = order, np.flatnonzero(np.diff(ptr))
        self.n, self.begin = len(ptr) - 1, ptr[:-1][self.full]

    @classmethod
    def by(cls, row: Ints, n: int) -> _Sums:
        """Return those over entries that each name their row."""
        return cls(np.concatenate(([0], np.cumsum(np.bincount(row, minlength=n)))), np.argsort(row, kind="stable"))

    def of(self, codes: Codes) -> Codes:
        """Return uint64[n_rows], the sums of *codes*, one for each entry."""
        found = np.zeros(self.n, dtype=np.uint64)
        if len(self.full):
            found[self.full] = np.add.reduceat(codes if self.order is None else codes[self.order], self.begin)
        return found


def _code(*columns: Floats) -> Codes:
    """Return uint64[n], a hash of each row of *columns*; 0.0 and -0.0 are the same."""
    codes = np.zeros(len(columns[0]), dtype=np.uint64)
    for values in columns:
        codes = _mixed(codes + (values + 0.0).view(np.uint64))
    return codes


def _mixed(code: Codes) -> Codes:
    """Return *code* with every bit moved by every other: the end of SplitMix64."""
    code = code + np.uint64(0x9E3779B97F4A7C15)
    code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(code ^ (code >> np.uint64(31)), dtype=np.uint64)


def _numbers(colours: Codes) -> tuple[Ints, int]:
    """Return int64[n], a number for each of *colours* by first appearance, and how many there are."""
    _, first, place = np.unique(colours, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[place.reshape(-1)], len(first)
