"""A search for Hamiltonian cycles that share irregular wiring evenly.

With r rings of which at most t use any one link, every ring runs at 1/t of a link, and all together at r/t. No set of
ranks lets more rings out, in units of a link, than it has links to the outside (the smallest cut). The search goes down
from there: it looks for r rings in the wiring with every link taken t times, for t up to 4. If every link goes both
ways, a ring and its reversal are found as one, which loses nothing: any set of rings is as good with all reversed.

The work is limited, not the time, so that the result is always the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from collsim.schedule import Int

__all__ = ["MAX_SEARCHED", "even_rings", "smallest_cut"]

MAX_SEARCHED = 16
"""Rings are searched for up to this many ranks; the search is exponential."""

TIMES = (1, 2, 3, 4)
"""By how many rings a link may be used."""

MAX_RINGS = 64
"""Wiring that would take more rings is searched with its link counts divided."""

ATTEMPTS, STEPS = 4, 1_000
"""Attempts at one number of rings, each in another order, and the most ranks that an attempt appends."""

STEPS_IN_ALL = 30_000
"""The same for all numbers of rings together, less than a second; a single ring is tried for in any case."""


def smallest_cut(links: Int) -> int:
    """Return the fewest links that leave any set of ranks, other than none or all.

    >>> smallest_cut(np.array([[0, 2, 1], [2, 0, 1], [1, 1, 0]]))
    2
    """
    n = len(links)
    inside = (np.arange(1, (1 << n) - 1)[:, None] >> np.arange(n) & 1).astype(np.float64)
    leaving = np.einsum("si,si->s", inside @ links.astype(np.float64), 1 - inside)
    return int(leaving.min())


def even_rings(links: Int, *, both_ways: bool) -> list[list[int]]:
    """Return the rings with the largest r/t that the search finds, all started at rank 0; none if there is no ring.

    Parameters
    ----------
    links : int64[n, n]
        Links from row to column, zero on the diagonal.
    both_ways : bool
        Every ring stands for itself and its reversal; *links* must be symmetric.
    """
    links = links // max(int(np.gcd.reduce(links, axis=None)), 1)
    most, ways = smallest_cut(links), 2 if both_ways else 1
    shrink = -(-most // MAX_RINGS) or 1
    counts = [
        (count, times) for times in TIMES for count in range(1, min(times * most // shrink, MAX_RINGS) // ways + 1)
    ]
    best, best_rate, steps = list[list[int]](), 0.0, STEPS_IN_ALL
    for count, times in sorted(counts, key=lambda entry: (-entry[0] / entry[1], entry[1])):
        for attempt in range(ATTEMPTS):
            if count / times <= best_rate or (steps <= 0 and count > 1):
                break
            search = _Search(links * times // shrink, ways, attempt)
            complete = search.find(count)
            steps -= STEPS - search.steps
            if len(search.best) / times > best_rate:
                best, best_rate = search.best, len(search.best) / times
            if complete or search.steps > 0:  # found, or there is none
                break
    return [[*ring[ring.index(0) :], *ring[: ring.index(0)]] for ring in best]


class _Search:
    """Looks for rings that share no link, by trial and error.

    A choice is given up as soon as a rank has too few links left for the rings still to come, of which each uses a link
    at most once, or some rank cannot be reached any more. Links of which most are left are tried first, among equals
    in the order of the ranks or, after the first attempt, in any order.
    """

    def __init__(self, links: Int, ways: int, attempt: int) -> None:
        self.left: list[list[int]] = links.tolist()
        self.ways = ways
        self.steps = STEPS
        self.start = int(np.argmin(np.minimum(links.sum(axis=0), links.sum(axis=1))))
        self.ahead = [sum(1 << v for v, count in enumerate(row) if count) for row in self.left]
        noise = Random(attempt)
        self.order = [[noise.random() if attempt else 0.0 for _ in row] for row in self.left]
        self.rings: list[list[int]] = []
        self.best: list[list[int]] = []

    def find(self, count: int) -> bool:
        """Look for *count* more rings; *best* is the largest set met on the way."""
        if count == 0:
            return True
        path = [self.start]
        for _ in self._closed(path, (1 << len(self.left)) - 1 & ~(1 << self.start), count - 1):
            self.rings.append(list(path))
            if len(self.rings) > len(self.best):
                self.best = list(self.rings)
            if self.find(count - 1):
                return True
            self.rings.pop()
        return False

    def _closed(self, path: list[int], missing: int, later: int) -> Iterator[None]:
        """Yield each time that *path* has become a ring, whose links are taken meanwhile; *later* more are to come."""
        here, self.steps = path[-1], self.steps - 1
        if self.steps < 0 or not self._reaches(here, missing):
            return
        left, order = self.left[here], self.order[here]
        choices = [v for v in range(len(left)) if missing >> v & 1] if missing else [self.start]
        choices = sorted((v for v in choices if left[v]), key=lambda v: (-left[v], order[v]))
        # All links of a start without a spare one get used in the end, in any order: the first may come first.
        first_only = len(path) == 1 and not self._enough(self.start, later + 1, spare=1)
        for vertex in choices[:1] if first_only else choices:
            self._take(here, vertex, -1)
            if self._enough(here, later) and (missing or self._enough(vertex, later)):
                if missing:
                    path.append(vertex)
                    yield from self._closed(path, missing & ~(1 << vertex), later)
                    path.pop()
                else:
                    yield
            self._take(here, vertex, 1)

    def _take(self, src: int, dst: int, change: int) -> None:
        """Take a link, or put it back."""
        for a, b in ((src, dst), (dst, src))[: self.ways]:
            self.left[a][b] += change
            self.ahead[a] = self.ahead[a] & ~(1 << b) | bool(self.left[a][b]) << b

    def _enough(self, vertex: int, rings: int, spare: int = 0) -> bool:
        """Return True if *rings* more rings can pass *vertex*, with *spare* links left over."""
        need = self.ways * rings + spare
        if sum(min(count, rings) for count in self.left[vertex]) < need:
            return False
        return self.ways == 2 or sum(min(row[vertex], rings) for row in self.left) >= need

    def _reaches(self, here: int, missing: int) -> bool:
        """Return True if links lead from *here* through the *missing* ranks to each of them and to the start."""
        reached = fresh = 1 << here
        while fresh:
            vertex = fresh.bit_length() - 1
            new = self.ahead[vertex] & missing & ~reached
            reached |= new
            fresh = fresh & ~(1 << vertex) | new
        return not missing & ~reached and any(
            reached >> vertex & self.ahead[vertex] >> self.start & 1 for vertex in range(len(self.ahead))
        )
