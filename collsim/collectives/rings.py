"""Cyclic orders of the ranks that load the links between them evenly.

`balanced_rings` covers the full mesh, `rings_for` any count of direct links. Both know ranks and counts only.
"""

from __future__ import annotations

import numpy as np

from collsim.schedule import Int

__all__ = ["balanced_rings", "rings_for"]

MAX_SEARCHED = 16
"""Rings along irregular wiring are searched for up to this many ranks; the search is exponential."""


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
        ranks: Hamiltonian cycles along the links, each with its reversal where that is linked too, found one after
        the other in the links that those before leave over. Otherwise, or if there is none, the ranks in order.

    Examples
    --------
    >>> rings_for(np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])).tolist()
    [[0, 1, 2, 3], [0, 3, 2, 1]]
    """
    n = len(link_counts)
    apart = link_counts[~np.eye(n, dtype=np.bool_)]
    in_order = np.arange(n, dtype=np.int64)[None, :]
    if not np.any(apart) or n > MAX_SEARCHED:
        return balanced_rings(n) if np.any(apart) and np.all(apart == apart[0]) else in_order
    if np.all(apart == apart[0]):
        return balanced_rings(n)
    found = _disjoint_rings(link_counts)
    return np.array(found, dtype=np.int64) if found else in_order


def _with_reversals(rings: Int) -> Int:
    """Return every ring followed by its reversal, all started at the same vertex."""
    backwards = np.roll(rings[:, ::-1], 1, axis=1)
    return np.stack([rings, backwards], axis=1).reshape(-1, rings.shape[1])


def _disjoint_rings(link_counts: Int) -> list[list[int]]:
    """Return rings that share no link, each followed by its reversal if the links allow it."""
    left = np.where(np.eye(len(link_counts), dtype=np.bool_), 0, link_counts)
    rings: list[list[int]] = []
    while (ring := _hamiltonian_cycle(left)) is not None:
        backwards = [ring[0], *ring[:0:-1]]
        for way in [ring, backwards] if backwards != ring else [ring]:
            ahead = np.roll(way, -1)
            if np.all(left[way, ahead] > 0):
                rings.append(way)
                left[way, ahead] -= 1
    return rings


def _hamiltonian_cycle(links: Int) -> list[int] | None:
    """Return a cycle through all vertices along *links* that starts at 0, or None; dead ends are met only once."""
    n = len(links)
    neighbours = [[v for v in range(n) if links[u, v] > 0] for u in range(n)]
    path = [0]
    dead: set[tuple[int, int]] = set()

    def extend(visited: int) -> bool:
        here = path[-1]
        if len(path) == n:
            return bool(links[here, 0] > 0)
        if (visited, here) in dead:
            return False
        for vertex in neighbours[here]:
            if not visited >> vertex & 1:
                path.append(vertex)
                if extend(visited | 1 << vertex):
                    return True
                path.pop()
        dead.add((visited, here))
        return False

    return path if extend(1) else None
