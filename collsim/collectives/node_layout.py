"""Nodes of the ranks of a run: what algorithms over several nodes are built on.

A node is a scale-up domain: a board, or a rack of 72 GPUs. Local index i of every node is on rail i. A rack is a group
of nodes that share leaf switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from collsim.core.errors import Fault, UnsupportedError

__all__ = ["NodeLayout", "spread_order"]


def spread_order(n: int) -> list[int]:
    """Return the numbers below *n* in an order whose first ones lie far apart.

    Channels begin at GPUs in this order, so that few channels use all adapters that neighbours share, as NCCL's search
    does, which begins at one adapter after the other (src/graph/search.cc, ncclTopoSelectNets).

    >>> spread_order(8), spread_order(3)
    ([0, 4, 2, 6, 1, 5, 3, 7], [0, 1, 2])
    """
    bits = (n - 1).bit_length()
    reversed_bits = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(2**bits))
    return list(range(n)) if n % 2 else [number for number in reversed_bits if number < n]


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The ranks of each node, in the order of their local indices.

    Attributes
    ----------
    nodes : tuple of tuple of int
    places : tuple of tuple of int
        Where each of them stands in its node, which is its rail; empty if that is not known.
    racks : tuple of tuple of int
        The nodes of each rack, by their place in *nodes*; empty: all nodes are in one.
    """

    nodes: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, ...], ...] = ()
    racks: tuple[tuple[int, ...], ...] = ()

    def __hash__(self) -> int:
        return hash((len(self.nodes), self.nodes[:1], self.nodes[-1:]))  # all of it takes as long as what it saves

    @classmethod
    def blocks(cls, sizes: Iterable[int], racks: int = 1) -> NodeLayout:
        """Return nodes of the given sizes whose ranks count up, in so many racks of neighbours.

        >>> NodeLayout.blocks([2, 3]).nodes
        ((0, 1), (2, 3, 4))
        """
        ends = list(accumulate(sizes, initial=0))
        nodes = tuple(tuple(range(a, b)) for a, b in pairwise(ends))
        return cls(nodes, racks=_grouped([node * racks // len(nodes) for node in range(len(nodes))]))

    @classmethod
    def from_nodes(
        cls, node_of_rank: Sequence[int], place_of_rank: Sequence[int] = (), rack_of_rank: Sequence[int] = ()
    ) -> NodeLayout:
        """Return the layout of ranks of which rank r is on node ``node_of_rank[r]``, nodes as they first appear.

        >>> NodeLayout.from_nodes([7, 3, 7, 3], [0, 1, 4, 5], [1, 0, 1, 0])
        NodeLayout(nodes=((0, 2), (1, 3)), places=((0, 4), (1, 5)), racks=((0,), (1,)))
        """
        nodes = _grouped(node_of_rank)
        places = tuple(tuple(place_of_rank[rank] for rank in node) for node in nodes if place_of_rank)
        return cls(nodes, places, _grouped([rack_of_rank[node[0]] for node in nodes if rack_of_rank]))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def is_even(self) -> bool:
        """True if all nodes have the same number of ranks."""
        return len({len(node) for node in self.nodes}) == 1

    def per_node(self, algo: str) -> int:
        """Return the ranks of one node, for an algorithm that needs equal nodes.

        Raises
        ------
        UnsupportedError
            Nodes differ, or there is only one.
        """
        if self.n_nodes == 1:
            what = f"{algo} runs over several nodes, not on one"
            raise UnsupportedError(Fault(what, "algo", "name another algorithm"))
        if not self.is_even:
            sizes = sorted({len(node) for node in self.nodes})
            what = f"{algo} needs the same number of ranks on every node, not {', '.join(map(str, sizes))}"
            raise UnsupportedError(Fault(what, "algo", "leave out the same GPUs of every node, or name ring or tree"))
        return len(self.nodes[0])

    def entries(self) -> list[list[int]]:
        """Return the local indices, one per node, at which as many rings as the smallest node has ranks may enter.

        The first few lie far apart. On unequal nodes these stand on one rail, if there are enough rails that all nodes
        have ranks on.

        >>> NodeLayout(((0, 1), (2, 3, 4)), ((0, 2), (0, 1, 2))).entries()
        [[0, 0], [1, 2]]
        """
        smallest = min(len(node) for node in self.nodes)
        common = [place for place in self.places[0] if all(place in of for of in self.places)] if self.places else []
        if self.is_even or len(common) < smallest:
            return [[local] * self.n_nodes for local in spread_order(smallest)]
        return [[of.index(place) for of in self.places] for place in common]

    def nodes_of_racks(self, algo: str) -> tuple[tuple[int, ...], ...]:
        """Return the nodes of each rack, for an algorithm that needs several equal racks.

        Raises
        ------
        UnsupportedError
            Racks differ, or there is only one.
        """
        sizes = sorted({len(rack) for rack in self.racks})
        if len(self.racks) < 2 or len(sizes) > 1:
            told = ", ".join(map(str, sizes))
            what = f"not racks with {told} of the nodes" if len(self.racks) > 1 else "all nodes share leaf switches"
            hint = "take equally many nodes of each rack, or --algo hierarchical; --racks R makes racks"
            raise UnsupportedError(Fault(f"{algo} needs several equal racks: {what}", "algo", hint))
        return self.racks

    def rail(self, local: int) -> tuple[int, ...]:
        """Return the ranks with a local index, one per node."""
        return tuple(node[local] for node in self.nodes)


def _grouped(labels: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the places of each label, labels as they first appear."""
    places: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(int(label), []).append(place)
    return tuple(map(tuple, places.values()))
