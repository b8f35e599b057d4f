"""Generators of schedules: one file per family of algorithms, one table of all of them.

A file says all there is to know of its algorithms in the records (`Algorithm`) at its end. To add one, write the file
and name it in `MODULES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from collsim.collectives.algorithm import WHERE, Algorithm, ScheduleRequest
from collsim.collectives.all_to_all_v import matrix_size_bytes
from collsim.collectives.node_layout import NodeLayout
from collsim.collectives.node_rings import node_rings
from collsim.collectives.rings import rings_for
from collsim.collectives.torus import dimensions_of
from collsim.core.errors import Fault, UnknownNameError, UnsupportedError
from collsim.schedule import Schedule

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "NodeLayout",
    "ScheduleRequest",
    "algorithm",
    "algorithms_for",
    "dimensions_of",
    "family_of",
    "matrix_size_bytes",
    "node_rings",
    "protocols_of",
    "record_of",
    "rings_for",
]

MODULES = (
    "ring",
    "chain",
    "tree",
    "up_down_chain",
    "all_pairs",
    "direct",
    "all_to_all_v",
    "gather_scatter",
    "send_recv",
    "nvls",
    "pat",
    "nccl_p2p",
    "nccl_p2p_v",
    "pairwise",
    "binomial",
    "rabenseifner",
    "recursive_halving",
    "recursive_doubling",
    "scatter_allgather",
    "bruck",
    "torus",
    "hierarchical",
    "node_p2p",
    "nvls_tree",
    "sharp",
    "peer_memory",
)
"""Files with records. Plain ones first: of two that take equally long, the first is taken."""


def registered(modules: Sequence[str]) -> tuple[Algorithm, ...]:
    """List the records of *modules* of this package, those first that run anywhere, then those that need more."""
    values = [value for name in modules for value in vars(import_module(f"{__name__}.{name}")).values()]
    found = [value for value in values if isinstance(value, Algorithm)]
    return tuple(sorted(found, key=lambda entry: WHERE.index(entry.where)))


ALGORITHMS = registered(MODULES)
"""All of them. Some change their shape over several nodes (ring, tree, nccl_p2p); others only exist there."""


def _refuse(request: ScheduleRequest) -> Schedule:
    """Refuse to make a schedule by an algorithm that is none of these."""
    raise UnsupportedError(Fault(f"nothing makes {request.op.name} schedules by this algorithm", "algo"))


UNREGISTERED = Algorithm("unregistered", "a schedule that none of the algorithms made", (), "its author", _refuse)


def algorithms_for(
    op: str, *, torus: bool = False, several_nodes: bool = False, several_racks: bool = False
) -> tuple[Algorithm, ...]:
    """List the algorithms that carry out *op* on one node, on a torus, on several nodes, or in several racks."""
    there = {"anywhere": True, "torus": torus, "nodes": several_nodes, "racks": several_racks}
    return tuple(entry for entry in ALGORITHMS if op in entry.ops and there[entry.where])


def algorithm(op: str, name: str) -> Algorithm:
    """Find the algorithm called *name* for *op*.

    Raises
    ------
    UnknownNameError
        With the nearest of those that carry out *op*.
    """
    found = {entry.name: entry for entry in ALGORITHMS if op in entry.ops}
    if name not in found:
        raise UnknownNameError(f"algorithm for {op}", name, found)
    return found[name]


def record_of(op: str, name: str) -> Algorithm:
    """Find the algorithm called *name* for *op*; for a schedule that none of these made, one that says nothing."""
    return next((entry for entry in ALGORITHMS if entry.name == name and op in entry.ops), UNREGISTERED)


def family_of(op: str, name: str) -> str:
    """Name the kernel whose constants hold for *op* by the algorithm called *name*.

    >>> family_of("all_reduce", "chain"), family_of("broadcast", "ring"), family_of("all_to_all", "nccl_p2p")
    ('chain', 'rooted', 'messages')
    """
    return record_of(op, name).family_for(op)


def protocols_of(name: str) -> tuple[str, ...]:
    """List the protocols of the algorithm called *name*; of a name that none has, all of them."""
    return next((entry.protocols for entry in ALGORITHMS if entry.name == name), UNREGISTERED.protocols)
