"""Reduction trees of the network (SHARP): which links an adding or copying transfer takes, and who has no tree.

The adapters of a group hang on leaves; a tree joins these leaves over spines and cores to one root, over as few
switches as will do. On the way up every switch adds what its children send, so each link of the tree carries one copy
up, and one copy of the total down. A GPU with several adapters has one tree for each, and shares its bytes out evenly.

Which switches the manager of a subnet takes is not published: here the root nearest to all leaves, of equal ones that
with the fewest trees; where spines run short of ports a tree may pass another leaf (assumed). A switch adds within the
latency that it forwards with (assumed).

Streaming aggregation is limited in hardware: to one active tree for each port of a Quantum-2, for each switch of a
Quantum (`collsim.topology.cluster.networks` says which). `TreePorts` keeps account of what all trees of a run take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from collsim.core.errors import Fault, NoRouteError, UnsupportedError
from collsim.fabric.fabric import Fabric, Int

if TYPE_CHECKING:
    from collsim.fabric.routes import Path

__all__ = ["GroupTrees", "TreePorts", "plant"]

MOST_NAMES = 3
"""A fault names at most this many GPUs."""


@dataclass(slots=True)
class TreePorts:
    """Numbers of reduction trees so far: int64[n_links] on each link, int64[n_nodes] on each switch."""

    on_link: Int
    on_node: Int

    @classmethod
    def free(cls, fabric: Fabric) -> TreePorts:
        """Return the account of *fabric* without any tree."""
        return cls(np.zeros(fabric.n_links, dtype=np.int64), np.zeros(fabric.wiring.n_nodes, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class _Branch:
    """Edge of a tree from a node to the next one towards the root: a link up, the link back, and the node there."""

    up: int
    down: int
    above: int


@dataclass(frozen=True, slots=True)
class _Tree:
    """A tree over switches, with the way of each member to its leaf."""

    buses: tuple[tuple[int, int], ...]
    """Of each member: the link from its GPU to the adapter, and back."""
    adapters: tuple[_Branch, ...]
    """Of each member: from the adapter to the leaf."""
    branches: dict[int, _Branch]
    """Of each switch of the tree but the root."""
    root: int


@dataclass(slots=True)
class GroupTrees:
    """The trees of a group of ranks, one for each adapter of a member."""

    fabric: Fabric
    members: tuple[int, ...]
    trees: list[_Tree] = field(default_factory=list)

    def path(self, src: int | None, dst: int | None) -> Path:
        """Return the links of a transfer from rank *src* to rank *dst*; None stands for all members.

        The latency is that of the farthest members, up to the root and down again.
        """
        links: list[int] = []
        latency_s = 0.0
        for tree in self.trees:
            up, up_s = self._climb(tree, src)
            down, down_s = self._climb(tree, dst, falling=True)
            links += [*up, *down]
            latency_s = max(latency_s, up_s + self._node_s(tree.root) + down_s)
        return links, [1 / len(self.trees)] * len(links), latency_s

    def _climb(self, tree: _Tree, rank: int | None, *, falling: bool = False) -> tuple[list[int], float]:
        """Return each link between members and root once, in one direction, and the latency of the longest way."""
        seen: set[int] = set()
        longest_s = 0.0
        for place in range(len(self.members)) if rank is None else [self.members.index(rank)]:
            adapter = tree.adapters[place]
            way = [tree.buses[place][falling], adapter.down if falling else adapter.up]
            nodes, node = [int(self.fabric.wiring.link_src[adapter.up])], adapter.above
            while node != tree.root:
                branch = tree.branches[node]
                way.append(branch.down if falling else branch.up)
                nodes.append(node)
                node = branch.above
            seen.update(way)
            way_s = float(self.fabric.link_latency_s[way].sum()) + sum(map(self._node_s, nodes))
            longest_s = max(longest_s, way_s)
        return sorted(seen), longest_s

    def _node_s(self, node: int) -> float:
        return float(self.fabric.node_latency_s[node])


def plant(fabric: Fabric, members: Sequence[int], ports: TreePorts) -> GroupTrees:
    """Return the trees that join the ranks *members*, and book them in *ports*.

    Raises
    ------
    UnsupportedError
        The switches between the nodes only forward.
    NoRouteError
        Some member has no adapter, or no switch reaches all of them over ports that are free.
    """
    if fabric.network_trees is None:
        hint = "SHARP is in InfiniBand switches from HDR on: take --network infiniband, or another algorithm"
        raise UnsupportedError(Fault("no switch between the nodes adds what adapters send", "network", hint))
    planter = _Planter(fabric, tuple(members), ports)
    lanes = [planter.adapters_of(rank) for rank in members]
    cut = [rank for rank, adapters in zip(members, lanes, strict=True) if not adapters]
    if cut:
        raise planter.no_tree(f"no adapter joins {planter.names(cut)} to a switch")
    found = GroupTrees(fabric, tuple(members))
    for lane in range(max(map(len, lanes))):
        found.trees.append(planter.grow([adapters[lane % len(adapters)] for adapters in lanes]))
    return found


@dataclass
class _Planter:
    """Looks for the trees of one group."""

    fabric: Fabric
    members: tuple[int, ...]
    ports: TreePorts

    @cached_property
    def first_nic(self) -> int:
        """The first adapter: behind adapters come the switches of the network."""
        return self.fabric.wiring.node_kinds.index("nic")

    @cached_property
    def back(self) -> Int:
        """int64[n_links]: the opposite direction of each link; of cables listed one by one that of the same cable."""
        wiring = self.fabric.wiring
        keys = wiring.link_src * wiring.n_nodes + wiring.link_dst
        first = wiring.find_links(wiring.link_dst, wiring.link_src)
        return np.where(first < 0, -1, first + np.arange(len(keys)) - np.searchsorted(keys, keys))

    def out_of(self, node: int) -> list[int]:
        """Return the links that leave a node and have a way back."""
        start, end = np.searchsorted(self.fabric.wiring.link_src, [node, node + 1])
        return [link for link in range(int(start), int(end)) if self.back[link] >= 0]

    def adapters_of(self, rank: int) -> list[tuple[tuple[int, int], _Branch]]:
        """Return the buses to the adapters of a rank that reach a switch, each with the adapter's own link."""
        wiring, found = self.fabric.wiring, []
        for bus in self.out_of(int(self.fabric.rank_node[rank])):
            nic = int(wiring.link_dst[bus])
            if wiring.node_kinds[nic] == "nic":
                found += [((bus, int(self.back[bus])), branch) for branch in self.branches_of(nic)[:1]]
        return found

    def branches_of(self, node: int) -> list[_Branch]:
        """Return the branches from an adapter or a switch to switches of the network."""
        wiring = self.fabric.wiring
        return [
            _Branch(link, int(self.back[link]), int(wiring.link_dst[link]))
            for link in self.out_of(node)
            if wiring.link_dst[link] > self.first_nic and wiring.node_kinds[int(wiring.link_dst[link])] == "switch"
        ]

    def is_free(self, branch: _Branch) -> bool:
        """Return True if a cable of *branch* has no tree yet and the switch behind it has room for one."""
        count = self.fabric.wiring.link_count[branch.up]
        return bool(self.ports.on_link[branch.up] < count) and self.has_room(branch.above)

    def has_room(self, switch: int) -> bool:
        """Return True if *switch* can stream one tree more."""
        return self.fabric.network_trees == "port" or self.ports.on_node[switch] == 0

    def grow(self, lane: list[tuple[tuple[int, int], _Branch]]) -> _Tree:
        """Return the tree that joins one adapter of each member, and book it."""
        buses, adapters = tuple(bus for bus, _ in lane), tuple(branch for _, branch in lane)
        busy = [rank for rank, branch in zip(self.members, adapters, strict=True) if not self.is_free(branch)]
        if busy:
            raise self.no_tree(f"the {self.fabric.network_trees} of {self.names(busy)} has another tree already")
        leaves = list(dict.fromkeys(branch.above for branch in adapters))
        root = self.root_of(leaves)
        towards = self.reached_from(root)[1]
        branches: dict[int, _Branch] = {}
        for leaf in leaves:
            node = leaf
            while node != root and node not in branches:
                branches[node] = towards[node]
                node = towards[node].above
        for branch in (*adapters, *branches.values()):
            self.ports.on_link[[branch.up, branch.down]] += 1
        self.ports.on_node[[*branches, root]] += 1
        return _Tree(buses, adapters, branches, root)

    def root_of(self, leaves: list[int]) -> int:
        """Return the switch with the shortest way to the farthest leaf; of equal ones that with the fewest trees."""
        if len(leaves) == 1:
            return leaves[0]
        hops = [self.reached_from(leaf)[0] for leaf in leaves]
        shared = set.intersection(*map(set, hops))
        if not shared:
            raise self.no_tree("no switch reaches all of them over ports without a tree")
        return min(shared, key=lambda node: (max(reach[node] for reach in hops), self.ports.on_node[node], node))

    def reached_from(self, start: int) -> tuple[dict[int, int], dict[int, _Branch]]:
        """Return the hops from a switch to others over free cables, and how each of these gets nearer to it."""
        hops, towards, ring = {start: 0}, {}, [start]
        for node in ring:
            for branch in self.branches_of(node):
                if branch.above not in hops and self.is_free(branch):
                    hops[branch.above] = hops[node] + 1
                    towards[branch.above] = _Branch(branch.down, branch.up, node)
                    ring.append(branch.above)
        return hops, towards

    def names(self, ranks: Sequence[int]) -> str:
        """Return a few ranks by the names of their GPUs."""
        more = f" and {len(ranks) - MOST_NAMES} more" if len(ranks) > MOST_NAMES else ""
        return ", ".join(self.fabric.rank_name(rank) for rank in ranks[:MOST_NAMES]) + more

    def no_tree(self, why: str) -> NoRouteError:
        what = f"the group of {self.names(self.members)} has no reduction tree: {why}"
        hint = f"switches hold one tree for each {self.fabric.network_trees}; ring and tree add in the GPUs instead"
        return NoRouteError(Fault(what, "network", hint))
