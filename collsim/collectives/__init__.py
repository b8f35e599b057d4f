"""Generators of schedules: one file per family of algorithms, one table of all of them."""

from __future__ import annotations

from collsim.collectives import (
    all_pairs,
    all_to_all_v,
    binomial,
    bruck,
    chain,
    direct,
    gather_scatter,
    hierarchical,
    nccl_p2p,
    nccl_p2p_v,
    node_p2p,
    nvls,
    nvls_tree,
    pairwise,
    pat,
    rabenseifner,
    recursive_doubling,
    recursive_halving,
    ring,
    scatter_allgather,
    send_recv,
    sharp,
    tree,
    up_down_chain,
)
from collsim.collectives.algorithm import Algorithm, Request
from collsim.collectives.all_to_all_v import matrix_size_bytes
from collsim.collectives.node_layout import Layout
from collsim.collectives.node_rings import node_rings
from collsim.collectives.rings import rings_for
from collsim.core.errors import UnknownNameError

__all__ = [
    "ACROSS_NODES",
    "ACROSS_RACKS",
    "ALGORITHMS",
    "Algorithm",
    "Layout",
    "Request",
    "algorithm",
    "algorithms_for",
    "matrix_size_bytes",
    "node_rings",
    "rings_for",
]

ALGORITHMS: tuple[Algorithm, ...] = (
    ring.ALGORITHM,
    chain.ALGORITHM,
    tree.ALGORITHM,
    up_down_chain.ALGORITHM,
    all_pairs.ALGORITHM,
    all_pairs.ONE_SHOT,
    direct.ALGORITHM,
    all_to_all_v.ALGORITHM,
    gather_scatter.ALGORITHM,
    send_recv.ALGORITHM,
    nvls.ALGORITHM,
    pat.ALGORITHM,
    nccl_p2p.ALGORITHM,
    nccl_p2p_v.ALGORITHM,
    pairwise.ALGORITHM,
    binomial.ALGORITHM,
    rabenseifner.ALGORITHM,
    recursive_halving.ALGORITHM,
    recursive_doubling.ALGORITHM,
    scatter_allgather.ALGORITHM,
    bruck.ALGORITHM,
)
"""Plain ones first: of two that take equally long, the first is taken."""

ACROSS_NODES: tuple[Algorithm, ...] = (
    hierarchical.HIERARCHICAL,
    hierarchical.DOUBLING,
    node_p2p.PXN,
    nvls_tree.ALGORITHM,
    sharp.DIRECT,
    sharp.CHAIN,
    sharp.NVLS,
)
"""Those that only exist on several nodes; some of the others change their shape there (ring, tree, nccl_p2p)."""


ACROSS_RACKS: tuple[Algorithm, ...] = (hierarchical.RACKS,)
"""Those that need nodes with leaf switches of their own."""


def algorithms_for(op: str, *, several_nodes: bool = False, several_racks: bool = False) -> tuple[Algorithm, ...]:
    """Return the algorithms that carry out *op* on one node, on several, or in several racks, in order."""
    table = ALGORITHMS + ACROSS_NODES * several_nodes + ACROSS_RACKS * several_racks
    return tuple(entry for entry in table if op in entry.ops)


def algorithm(op: str, name: str) -> Algorithm:
    """Return the algorithm called *name* for *op*.

    Raises
    ------
    UnknownNameError
        With the nearest of those that carry out *op*.
    """
    found = {entry.name: entry for entry in algorithms_for(op, several_nodes=True, several_racks=True)}
    if name not in found:
        raise UnknownNameError(f"algorithm for {op}", name, found)
    return found[name]
