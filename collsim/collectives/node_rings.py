"""Rings and trees over nodes, as NCCL and RCCL lay their channels.

A ring visits all GPUs of a node, then those of the next. Channel c enters the even nodes at the (c mod g)-th local
index of `spread_order`. For an even number of GPUs it leaves at another one, and odd nodes swap the two ends, so that
the hop between nodes joins equal local indices: the traffic stays on its rail (crossNic 2, NCCL src/graph/connect.cc).
Otherwise it leaves through the adapter of the rail that it entered on, beside the last GPU. Nodes with different
numbers of ranks are entered on rails that all of them have ranks on.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from collsim.collectives.node_layout import NodeLayout
from collsim.collectives.rings import balanced_rings
from collsim.schedule import Int

__all__ = ["local_path", "node_rings"]

MOST_ALIKE = 2
"""Paths of one cycle, of an odd number of GPUs."""


def local_path(g: int, entry: int, *, reverse: bool = False) -> list[int]:
    """Return the order in which a channel visits the *g* GPUs of a node, from *entry* on.

    Even g: a zigzag that ends opposite of its start. The g paths, of which g / 2 are the reversals of the others, use
    every directed link of a full mesh exactly once (Walecki's decomposition into Hamiltonian paths); eight copies make
    the 64 rings of RCCL's template for eight GPUs and eight adapters. *reverse* runs it from its end to *entry*.
    Odd g: the channels follow the g - 1 cycles that use every link of a mesh once, no more than two the same one, and
    each leaves at another GPU (assumed of RCCL, whose search was not read for such nodes). Three GPUs follow in order.

    >>> local_path(4, 0), local_path(4, 2), local_path(4, 0, reverse=True)
    ([0, 1, 3, 2], [2, 3, 1, 0], [2, 3, 1, 0])
    >>> local_path(3, 1), local_path(5, 1)
    ([1, 2, 0], [1, 0, 3, 4, 2])
    """
    if g % 2:
        return list(_odd_paths(g)[entry])
    start = entry % (g // 2)
    path = [(start + (i + 1) // 2 * (1 if i % 2 else -1)) % g for i in range(g)]
    return path[::-1] if (entry != start) != reverse else path


@cache
def _odd_paths(g: int) -> list[list[int]]:
    """Return the path from each of an odd number of GPUs: a cycle of `balanced_rings`, whose end no other path has."""
    cycles = balanced_rings(g).tolist()
    paths: list[list[int]] = []
    tried = [0] * g
    taken: list[int] = []
    while len(paths) < g:
        entry, number = len(paths), tried[len(paths)]
        if number == len(cycles):
            if not paths:  # of three GPUs
                return [[(entry + i) % g for i in range(g)] for entry in range(g)]
            tried[entry] = 0
            paths.pop()
            taken.pop()
            continue
        tried[entry] += 1
        choice = (number + entry) % len(cycles)
        begin = cycles[choice].index(entry)
        path = [*cycles[choice][begin:], *cycles[choice][:begin]]
        if taken.count(choice) < MOST_ALIKE and all(path[-1] != other[-1] for other in paths):
            paths.append(path)
            taken.append(choice)
    return paths


def node_rings(layout: NodeLayout) -> Int:
    """Return int64[n_rings, n]: one ring per rank of the smallest node.

    All ranks take the fewest channels that any of them found (NCCL src/init.cc); more would meet in its adapters.

    On an odd number of nodes one hop per ring, the one that closes it, joins two rails.

    >>> node_rings(NodeLayout.blocks([2, 2])).tolist()
    [[0, 1, 3, 2], [1, 0, 2, 3]]
    """
    swaps = layout.is_even and len(layout.nodes[0]) % 2 == 0
    rings = []
    for entries in layout.entries():
        ring: list[int] = []
        for number, (node, entry) in enumerate(zip(layout.nodes, entries, strict=True)):
            path = local_path(len(node), entry, reverse=swaps and number % 2 == 1)
            ring += [node[local] for local in path]
        rings.append(ring)
    return np.array(rings, dtype=np.int64)
