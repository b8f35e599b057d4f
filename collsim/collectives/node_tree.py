"""The double binary tree over nodes with a chain inside each, as NCCL's tree all-reduce runs it.

Inside a node the GPUs form a chain x0, x1, ... towards x0. The vertices of the trees are nodes. A node sends to its
parent from x0; where a child enters depends on the *pattern* (NCCL src/graph/connect.cc and trees.cc):

* ``balanced``: the first child at x1, the second at x0, so that two adapters share the load;
* ``split``: both at x1;
* ``plain``: both at x0;
* ``rail``: as balanced, but a node that enters its parent at x1 swaps its own x0 and x1, so that both ends of every hop
  have the same local index (RCCL's trees for eight GPUs with eight adapters).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from collsim.collectives.node_layout import NodeLayout
from collsim.collectives.node_rings import local_path
from collsim.schedule import Int

__all__ = [
    "NO_PARENT",
    "PATTERNS",
    "binary_tree",
    "chained_parents",
    "depths",
    "node_parents",
    "renamed",
    "second_names",
]

Bool = NDArray[np.bool_]

NO_PARENT = -1
PATTERNS = ("balanced", "split", "plain", "rail")


def binary_tree(n: int) -> Int:
    """Return int64[n], the parent of each vertex of the in-order binary tree; vertex 0 is the root (parent -1).

    The lowest set bit of a vertex is its height, so that odd vertices are leaves (NCCL src/graph/trees.cc).

    >>> binary_tree(8).tolist()
    [-1, 2, 4, 2, 0, 6, 4, 6]
    """
    vertices = np.arange(n)
    height = vertices & -vertices
    without = vertices ^ height
    above = without | 2 * height
    parents = np.where(above < n, above, without)
    parents[0] = NO_PARENT
    return np.asarray(parents, dtype=np.int64)


def renamed(parents: Int, names: Int) -> Int:
    """Return the parents of the same tree with vertex v called *names[v]*."""
    result = np.full(len(parents), NO_PARENT, dtype=np.int64)
    child = parents != NO_PARENT
    result[names[child]] = names[parents[child]]
    return result


def second_names(n: int) -> Int:
    """Return int64[n], what each vertex is called in the second tree: mirrored (n even) or moved on by one (n odd)."""
    vertices = np.arange(n)
    return np.asarray(n - 1 - vertices if n % 2 == 0 else (vertices + 1) % n, dtype=np.int64)


@lru_cache(maxsize=64)
def node_parents(n: int, tree: int) -> tuple[Int, Bool]:
    """Return the parent of each node in tree 0 or 1, and bool[n]: whether it is its parent's second child.

    The first child is the one before its parent, by the names of the first tree.
    """
    plain = binary_tree(n)
    second = (np.arange(n) > plain) & (plain != NO_PARENT)
    if tree == 0:
        return plain, second
    names = second_names(n)
    moved = np.zeros(n, dtype=np.bool_)
    moved[names] = second
    return renamed(plain, names), moved


def chained_parents(layout: NodeLayout, chain: int, tree: int, pattern: str = "balanced") -> Int:
    """Return int64[n_ranks], the parent of each rank; x0 has the local index *chain*.

    >>> chained_parents(NodeLayout.blocks([2, 2, 2]), 0, 0).tolist()
    [-1, 0, 5, 2, 0, 4]
    """
    above, second = node_parents(layout.n_nodes, tree)
    swapped = _swapped(above, second) if pattern == "rail" else np.zeros(layout.n_nodes, dtype=np.bool_)
    parents = np.full(sum(map(len, layout.nodes)), NO_PARENT, dtype=np.int64)
    ends = np.zeros((layout.n_nodes, 2), dtype=np.int64)  # the first two ranks of each chain
    for size, which, ranks in _by_size(layout):
        order = ranks[:, local_path(size, chain % size)]
        if size > 1:
            turned = swapped[which]
            order[turned, :2] = order[turned, 1::-1]
        parents[order[:, 1:]] = order[:, :-1]
        ends[which] = order[:, [0, min(1, size - 1)]]
    below = np.flatnonzero(above != NO_PARENT)
    parents[ends[below, 0]] = ends[above[below], _entries(pattern, second[below])]
    return parents


def _by_size(layout: NodeLayout) -> Iterator[tuple[int, Int, Int]]:
    """Yield each number of ranks that nodes have, which nodes have it, and their ranks, int64[n, size]."""
    sizes = np.array([len(node) for node in layout.nodes])
    for size in sorted(set(sizes.tolist())):
        which = np.flatnonzero(sizes == size)
        yield size, which, np.array([layout.nodes[number] for number in which.tolist()], dtype=np.int64)


def depths(parents: Int) -> Int:
    """Return int64[n], the distance of each vertex from the root."""
    depths, above = np.zeros(len(parents), dtype=np.int64), parents
    while np.any(above != NO_PARENT):
        depths += above != NO_PARENT
        above = np.where(above == NO_PARENT, NO_PARENT, parents[above])
    return depths


def _entries(pattern: str, second: Bool) -> Int:
    """Return int64[n]: the place in the parent's chain at which each child enters."""
    fixed = {"split": 1, "plain": 0}.get(pattern)
    return np.where(second, 0, 1) if fixed is None else np.full(len(second), fixed)


def _swapped(above: Int, second: Bool) -> Bool:
    """Return bool[n_nodes]: which nodes swap the ends of their chain, so that every hop stays on a rail."""
    swapped, depth = np.zeros(len(above), dtype=np.bool_), depths(above)
    for level in range(1, int(depth.max(initial=0)) + 1):
        child = np.flatnonzero(depth == level)
        swapped[child] = swapped[above[child]] ^ ~second[child]
    return swapped
