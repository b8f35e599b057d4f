"""Pipelined binary trees, two of them with complementary leaves: all-reduce, broadcast and reduce.

An interior vertex of a binary tree sends every chunk twice and a leaf not at all. Two trees, each with half of the
data, in which the interior vertices of one are the leaves of the other, load all ranks alike.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from collsim.collectives.algorithm import KIB, Algorithm, ScheduleRequest
from collsim.collectives.node_layout import NodeLayout, spread_order
from collsim.collectives.node_tree import binary_tree, chained_parents, depths, renamed, second_names
from collsim.collectives.pipeline import pipelined
from collsim.schedule import EVERY, ChunksBuilder, Int, Schedule, Shape

__all__ = ["ALGORITHM", "ROOTED", "binary_tree", "double_tree", "rooted_trees", "tree_hops"]

CHUNK_BYTES = 512 * KIB
"""Chunk of a tree channel under the Simple protocol: one slot (NCCL src/enqueue.cc)."""


def double_tree(n: int) -> tuple[Int, Int]:
    """Return the parents in the two trees of an all-reduce.

    The second is the first mirrored (n even) or moved on by one (n odd). Leaves of one are interior in the other,
    except that for odd n rank 0 is interior in both (NCCL src/graph/trees.cc).
    """
    return binary_tree(n), renamed(binary_tree(n), second_names(n))


def rooted_trees(n: int, root: int) -> tuple[Int, Int]:
    """Return the parents in the two trees below *root*, which has one child in each.

    The other n - 1 ranks are interior in at most one of the two (Sanders, Speck and Träff, section 3).
    """
    labels = np.arange(n)
    second = (n - labels) % n if n % 2 else np.where(labels, labels % max(n - 1, 1) + 1, 0)
    ranks = (labels + root) % n
    return renamed(binary_tree(n), ranks), renamed(binary_tree(n), ranks[second])


def build(request: ScheduleRequest) -> Schedule:
    """Return the tree schedule: the first half of the channels uses one tree, the second half the other."""
    name, n = request.op.name, request.n_ranks
    if request.channels is None:
        request = replace(request, channels=max(request.default_channels, 2))
    shares = request.shares(request.size_bytes)
    half = (len(shares) + 1) // 2
    if name == "all_reduce" and request.spread.n_nodes > 1:
        hops = [_over_nodes(request, channel % half, int(channel >= half)) for channel in range(len(shares))]
    else:
        parents = double_tree(n) if name == "all_reduce" else rooted_trees(n, request.root)
        shapes = [tree_hops(tree, name) for tree in parents]
        hops = [shapes[channel >= half] for channel in range(len(shares))]
    pieces = [request.pieces(int(share), CHUNK_BYTES) for share in shares]
    chunks = ChunksBuilder()
    source = request.root if name == "broadcast" else EVERY
    chunks.add(np.concatenate(pieces), source, request.root if name == "reduce" else EVERY)
    transfers = pipelined(hops, [len(sizes) for sizes in pieces], request.slots)
    trees = min(len(shares), 2)
    return request.schedule("tree", chunks.build(), transfers, channels=len(shares), trees=trees, slots=request.slots)


def _over_nodes(request: ScheduleRequest, chain: int, tree: int) -> Shape:
    """Return the hops of a channel whose trees have nodes as vertices; equal channels get the same ones."""
    spread = request.spread
    begins = spread_order(max(map(len, spread.nodes)))
    chain = begins[chain % len(begins)]
    return _chained(spread, chain, tree, request.tree_pattern)


@lru_cache(maxsize=256)  # all sizes of a run have the same
def _chained(layout: NodeLayout, chain: int, tree: int, pattern: str) -> Shape:
    return tree_hops(chained_parents(layout, chain, tree, pattern), "all_reduce")


def tree_hops(parents: Int, name: str) -> Shape:
    """Return the hops of one chunk: up to the root, down from it, or both.

    Going up and going down are two thread groups of a rank; the root has one, which turns the chunk around.
    """
    by_depth = np.argsort(depths(parents), kind="stable")
    below, last = by_depth[1:], by_depth[:0:-1]
    stage = np.arange(len(parents)) + len(parents)
    stage[by_depth[0]] -= len(parents)
    up = np.stack([last, parents[last], last, parents[last], np.ones_like(last)])
    down = np.stack([parents[below], below, stage[parents[below]], stage[below], np.zeros_like(below)])
    return Shape.of_table({"reduce": up, "broadcast": down}.get(name, np.concatenate([up, down], axis=1)))


ALGORITHM = Algorithm(
    name="tree",
    title="two pipelined binary trees with complementary leaves",
    ops=("all_reduce",),
    source="Sanders, Speck and Träff, Parallel Comput. 35 (2009) 581; NCCL src/graph/trees.cc",
    build=build,
    growth="ranks",
    family="chain",
    pipelined=True,
)
ROOTED = replace(ALGORITHM, ops=("broadcast", "reduce"), family=None)
