"""Cyclic orders of the ranks that load the links between them evenly.

`balanced_rings` covers the full mesh, `rings_for` any count of direct links. Both know ranks and counts only.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from collsim.collectives.ring_search import MAX_SEARCHED, even_rings
from collsim.schedule import Int

__all__ = ["balanced_rings", "rings_for"]


def balanced_rings(n: int) -> Int:
    """Return int64[n_rings, n]: Hamiltonian cycles that use every directed link of the full mesh equally often.

    One vertex stays in the centre, the others form a circle, and the zigzag 1, 2, 0, 3, -1, ... across the circle
    is turned step by step; each cycle is followed by its reversal. Odd n: n - 1 rings with every link once (Walecki,
    in Lucas, Récréations mathématiques, vol. 2, 1892). Even n: 2(n - 1) rings with every link twice, which
    for n = 8 are the seven orders of RCCL and their reversals; a decomposition with every link once exists for even
    n other than 4 and 6 (Tillson, J. Combin. Theory B 29 (1980) 68), but its rings are not each other's reversals.

    >>> balanced_rings(5).tolist()
    [[0, 1, 2, 4, 3], [0, 3, 4, 2, 1], [0, 2, 3, 1, 4], [0, 4, 1, 3, 2]]
    """
    if n <= 2:
        return np.arange(n, dtype=np.int64)[None, :]
    circle = n - 1
    jumps = np.arange(circle)
    zigzag = np.where(jumps % 2, (jumps + 1) // 2, -(jumps // 2))
    turns = np.arange(circle // 2 if n % 2 else circle)[:, None]
    around = (zigzag + turns) % circle + 1
    return _with_reversals(np.concatenate([np.zeros_like(turns), around], axis=1))


def rings_for(link_counts: Int) -> Int:
    """Return int64[n_rings, n], the rings that suit the direct links between ranks.

    Parameters
    ----------
    link_counts : int64[n, n]
        Direct links from row to column; the diagonal is ignored. Zero everywhere: ranks meet in switches.

    Returns
    -------
    int64[n_rings, n]
        All pairs linked equally: `balanced_rings`. No direct links: the ranks in order. Anything else, up to 16
        ranks: as many Hamiltonian cycles along the links as a search finds, each followed by its reversal if links
        go both ways alike (`even_rings`). Otherwise, or if there is none, the ranks in order.

    Examples
    --------
    >>> rings_for(np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])).tolist()
    [[0, 1, 2, 3], [0, 3, 2, 1]]
    """
    n = len(link_counts)
    apart = link_counts[~np.eye(n, dtype=np.bool_)]
    if np.any(apart) and np.all(apart == apart[0]):
        return balanced_rings(n)
    if np.any(apart) and n <= MAX_SEARCHED:
        return _searched(n, np.ascontiguousarray(link_counts, dtype=np.int64).tobytes())
    return np.arange(n, dtype=np.int64)[None, :]


@lru_cache(maxsize=64)
def _searched(n: int, link_counts: bytes) -> Int:
    """Return the rings that the search finds, else the ranks in order; cached, since every size asks for the same."""
    links = np.frombuffer(link_counts, dtype=np.int64).reshape(n, n) * ~np.eye(n, dtype=np.bool_)
    both_ways = bool(np.array_equal(links, links.T))
    found = even_rings(links, both_ways=both_ways)
    rings = np.array(found or [list(range(n))], dtype=np.int64)
    rings = _with_reversals(rings) if found and both_ways else rings
    rings.setflags(write=False)
    return rings


def _with_reversals(rings: Int) -> Int:
    """Return every ring followed by its reversal, all started at the same vertex."""
    backwards = np.roll(rings[:, ::-1], 1, axis=1)
    return np.stack([rings, backwards], axis=1).reshape(-1, rings.shape[1])
