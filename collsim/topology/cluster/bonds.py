"""Bonded ports of an adapter: what the queue pairs of a connection reach, whose ports a hash picks."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement
from math import factorial, prod

__all__ = ["bond_share"]

MOST_PAIRS = {2: 128}
OTHERWISE = 16
"""More queue pairs count as so many: those of two ports are all counted (the library opens at most 128)."""


@cache
def bond_share(ports: int, queue_pairs: int) -> float:
    """Return the mean share of a bond's rate that a connection reaches.

    A message is cut into equal parts, one for each queue pair; each pair is hashed to a port by itself, and the
    message is over when the busiest port is done: ``queue_pairs / (ports * most pairs on a port)``, averaged over all
    ways to hash (a maintainer's account in NVIDIA/nccl-tests issue 265 and NVIDIA/nccl issue 1015; the arithmetic is
    ours). Everything is 1 on a single port.

    >>> [round(50 * bond_share(2, pairs), 1) for pairs in (1, 4, 8, 64)]
    [25.0, 38.5, 40.4, 45.7]
    """
    if ports == 1:
        return 1.0
    pairs = min(queue_pairs, MOST_PAIRS.get(ports, OTHERWISE))
    total = 0.0
    for split in combinations_with_replacement(range(pairs + 1), ports):
        if sum(split) == pairs:
            ways = factorial(pairs) / prod(map(factorial, split))
            orders = factorial(ports) / prod(factorial(split.count(n)) for n in set(split))
            total += ways * orders * pairs / (ports * max(split))
    return float(total / ports**pairs)
