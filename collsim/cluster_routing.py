"""Routes over a cluster: inside a node as in one node, between nodes through adapters, leaves, spines and cores.

Between nodes a message leaves through an adapter of its sender and arrives at one of its receiver. On a fabric of
rails, if these hang on different leaves, it first hops over the node's own links to the GPU of the receiver's rail
(PXN), if the node has such links; so it stays on one leaf wherever it can. How the network spreads messages over equal
paths is its routing: ``spray`` and ``adaptive`` use all of them in proportion to their cables; with ``ecmp`` every
switch puts each flow of a pair on one cable by a hash, so that unlucky flows share a cable while others stay empty. In
a dragonfly, messages take minimal paths.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from collsim.errors import Fault, UnsupportedError
from collsim.fabric import Fabric, Int, build_fabric

if TYPE_CHECKING:
    from collections.abc import Callable

    from collsim.routing import Part, Routes
    from collsim.topology.cluster import Cluster

__all__ = ["MOST_RANKS", "between_nodes"]

MOST_RANKS = 512
"""Routes of all pairs of ranks are kept: above this they would fill gigabytes."""
Path = tuple[list[int], list[float], float]
"""Links, the share of the message on each, and the latency of the slowest way."""


def between_nodes(fabric: Fabric, inside: Callable[[Fabric], Routes]) -> list[Part]:
    """Return the routes of all pairs of ranks of a cluster.

    Parameters
    ----------
    fabric : Fabric
        Of a topology with a `Cluster`.
    inside : callable
        Finds the routes of one node by itself.

    Raises
    ------
    UnsupportedError
        More than `MOST_RANKS` ranks.
    NoRouteError
        Ranks of one node that cannot reach each other.
    """
    if fabric.n_ranks > MOST_RANKS:
        what = f"{fabric.n_ranks} ranks over several nodes are too many to route pair by pair"
        raise UnsupportedError(Fault(what, "--nodes", f"at most {MOST_RANKS} ranks"))
    router = _Router(fabric, inside)
    n = fabric.n_ranks
    numbers: list[int] = []
    latencies: list[float] = []
    links: list[int] = []
    shares: list[float] = []
    for src in range(n):
        for dst in range(n):
            if src != dst:
                path_links, path_shares, latency_s = router.path(src, dst)
                numbers += [src * n + dst] * len(path_links)
                latencies += [latency_s] * len(path_links)
                links += path_links
                shares += path_shares
    return [(np.array(numbers), np.array(latencies), np.array(links), np.array(shares))]


@dataclass(slots=True)
class _Router:
    """Finds paths, and remembers those between two leaves."""

    fabric: Fabric
    inside: Callable[[Fabric], Routes]
    cluster: Cluster = field(init=False)
    node_routes: list[Routes] = field(init=False, default_factory=list)
    """Inside a node of each kind."""
    node_links: dict[int, Int] = field(init=False, default_factory=dict)
    trunks: dict[tuple[int, int], list[tuple[Path, float]]] = field(init=False, default_factory=dict)
    buses: dict[tuple[int, int], int] = field(init=False, default_factory=dict)
    """The link between a GPU and its adapter, by its ends in order."""
    slow: bool = field(init=False)
    """Whether links inside a node have a latency."""
    cables: Int = field(init=False)
    """int64[links]: how many links join the same two nodes, counted from this one on."""

    def __post_init__(self) -> None:
        assert self.fabric.cluster is not None
        self.cluster = self.fabric.cluster
        wiring = self.fabric.wiring
        inner = wiring.link_src < self.cluster.first_nic
        self.slow = bool(self.fabric.link_latency_s[inner & (wiring.link_dst < self.cluster.first_nic)].any())
        if self.cluster.node.n_gpus > 1:
            self.node_routes = [self.inside(build_fabric(kind, latency=self.slow)) for kind in self.cluster.kinds]
        gpus, nics = np.repeat(np.arange(wiring.n_gpus), np.diff(self.cluster.nic_ptr)), self.cluster.nic_of
        for src, dst in ((gpus, nics), (nics, gpus)):
            links = wiring.find_links(src, dst).tolist()
            self.buses |= dict(zip(zip(src.tolist(), dst.tolist(), strict=True), links, strict=True))
        keys = wiring.link_src * wiring.n_nodes + wiring.link_dst
        self.cables = np.searchsorted(keys, keys, side="right") - np.arange(len(keys))

    def path(self, src: int, dst: int) -> Path:
        """Return the way from one rank to another."""
        a, b = int(self.fabric.rank_node[src]), int(self.fabric.rank_node[dst])
        per_node = self.cluster.node.n_gpus
        if a // per_node == b // per_node:
            return self.within(a // per_node, a % per_node, b % per_node)
        return self.across(a, b)

    def within(self, node: int, a: int, b: int) -> Path:
        """Return the way between two GPUs of a node."""
        routes, pair = self.node_routes[self.cluster.kind[node]], a * self.cluster.node.n_gpus + b
        span = slice(int(routes.ptr[pair]), int(routes.ptr[pair + 1]))
        links = self.links_of(node)[routes.link[span]]
        return links.tolist(), routes.weight[span].tolist(), float(routes.latency_s[pair])

    def links_of(self, node: int) -> Int:
        """Return int64[links of a node]: their numbers in the cluster."""
        if node not in self.node_links:
            wiring, n = self.cluster.kinds[self.cluster.kind[node]].wiring, self.cluster.node.n_gpus
            first = int(self.cluster.first_inner[node]) - n

            def place(ends: Int) -> Int:
                return np.where(ends < n, node * n + ends, first + ends)

            self.node_links[node] = self.fabric.wiring.find_links(place(wiring.link_src), place(wiring.link_dst))
        return self.node_links[node]

    def across(self, a: int, b: int) -> Path:
        """Return the way between two GPUs of different nodes, over all their adapters side by side."""
        cluster = self.cluster
        outs, ins = (cluster.nic_of[cluster.nic_ptr[gpu] : cluster.nic_ptr[gpu + 1]] for gpu in (a, b))
        lanes = [
            self.lane(a, int(outs[i % len(outs)]), int(ins[i % len(ins)]), b) for i in range(max(len(outs), len(ins)))
        ]
        return _beside(lanes)

    def lane(self, a: int, out: int, into: int, b: int) -> Path:
        """Return the way from GPU to GPU by two adapters; by the GPU of the receiver's rail if that avoids spines."""
        cluster = self.cluster
        leaf_a, leaf_b = (int(cluster.nic_leaf[nic - cluster.first_nic]) for nic in (out, into))
        hop: Path = ([], [], 0.0)
        if leaf_a != leaf_b and cluster.spec.fabric in ("rail", "rail_only"):
            relay = self.relay(a, b, leaf_b)
            if relay is not None:
                per_node = cluster.node.n_gpus
                hop = self.within(a // per_node, a % per_node, relay % per_node)
                a, out = relay, int(cluster.nic_of[cluster.nic_ptr[relay]])
                leaf_a = int(cluster.nic_leaf[out - cluster.first_nic])
        ends = self.buses[a, out], self.buses[into, b]
        up, down = int(cluster.nic_up[out - cluster.first_nic]), int(cluster.nic_down[into - cluster.first_nic])
        middle = self.between_leaves(leaf_a, leaf_b, a, b)
        links = [*hop[0], ends[0], up, *middle[0], down, ends[1]]
        shares = [*hop[1], 1.0, 1.0, *middle[1], 1.0, 1.0]
        latency_s = hop[2] + self._latency([ends[0], up, down, ends[1]]) + middle[2]
        return links, shares, latency_s + self._forwarding([out, into, cluster.first_leaf + leaf_b])

    def relay(self, a: int, b: int, leaf: int) -> int | None:
        """Return the GPU of a's node whose adapter hangs on *leaf*: that with b's place in its node, if it does."""
        cluster = self.cluster
        per_node = int(cluster.node.n_gpus)
        first = a // per_node * per_node
        for local in (b % per_node, *range(per_node)) if per_node > 1 else ():
            nic = int(cluster.nic_of[cluster.nic_ptr[first + local]])
            if int(cluster.nic_leaf[nic - cluster.first_nic]) == leaf and first + local != a:
                pair = (a % per_node) * per_node + local
                routes = self.node_routes[cluster.kind[first // per_node]]
                if routes.ptr[pair + 1] > routes.ptr[pair]:
                    return int(first + local)
        return None

    def between_leaves(self, leaf_a: int, leaf_b: int, a: int, b: int) -> Path:
        """Return the way from leaf to leaf: all equal paths side by side, or the one that the hash picks."""
        if leaf_a == leaf_b:
            return [], [], 0.0
        if (leaf_a, leaf_b) not in self.trunks:
            self.trunks[leaf_a, leaf_b] = self.all_ways(leaf_a, leaf_b)
        ways = self.trunks[leaf_a, leaf_b]
        if not ways:
            what = f"no switch joins leaf{leaf_a} and leaf{leaf_b}"
            raise UnsupportedError(Fault(what, "--fabric", "take a fabric with spines, or ranks of one rail"))
        if self.cluster.spec.routing != "ecmp":
            total = sum(width for _, width in ways)
            return _beside([path for path, _ in ways], [width / total for _, width in ways])
        return _beside([self.hashed(ways, f"{a}:{b}:{flow}") for flow in range(self.cluster.spec.flows_per_pair)])

    def hashed(self, ways: list[tuple[Path, float]], flow: str) -> Path:
        """Return the path of one flow: every switch on it picks one of its equal cables by a hash."""
        ports = [int(self.cables[path[0][0]]) for path, _ in ways]
        spot = self.hash(flow, 0) * sum(ports)
        way = next(i for i, last in enumerate(itertools.accumulate(ports)) if spot < last)
        links, shares, latency_s = ways[way][0]
        picked = [link + int(self.hash(flow, hop) * self.cables[link]) for hop, link in enumerate(links, start=1)]
        return picked, shares, latency_s

    def hash(self, flow: str, hop: int) -> float:
        """Return a number of [0, 1) that the flow, the hop and the seed of the hash decide."""
        text = f"{self.cluster.spec.hash_seed}:{flow}:{hop}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big") / 2**48

    def all_ways(self, leaf_a: int, leaf_b: int) -> list[tuple[Path, float]]:
        """Return the shortest ways from leaf to leaf with their widths: by a spine, by a core, or along a dragonfly."""
        cluster = self.cluster
        if cluster.spec.fabric == "dragonfly":
            return self.dragonfly_ways(leaf_a, leaf_b)
        up_a, up_b = self.above(leaf_a), self.above(leaf_b)
        shared = [switch for switch in up_a if switch in up_b]
        ways = [self.way([(up_a[s][0], s), (up_b[s][1], leaf_b)]) for s in shared]
        if ways:
            return ways
        for spine_a in up_a:
            core_a = self.above(spine_a)
            for spine_b in up_b:
                core_b = self.above(spine_b)
                for core in core_a:
                    if core in core_b:
                        hops = [
                            (up_a[spine_a][0], spine_a), (core_a[core][0], core), (core_b[core][1], spine_b),
                            (up_b[spine_b][1], leaf_b),
                        ]  # fmt: skip
                        ways.append(self.way(hops))
        return ways

    def dragonfly_ways(self, leaf_a: int, leaf_b: int) -> list[tuple[Path, float]]:
        """Return the minimal ways of a dragonfly: within the group, or by every cable between the two groups."""
        group = self.cluster.switch_group
        beside = self.above(leaf_a)
        if leaf_b in beside:
            return [self.way([(beside[leaf_b][0], leaf_b)])]
        ways = []
        for gate in [leaf_a, *(s for s in beside if group[s] == group[leaf_a])]:
            for far, (link, _) in self.above(gate).items():
                if group[far] == group[leaf_b]:
                    hops = [(beside[gate][0], gate)] if gate != leaf_a else []
                    hops.append((link, far))
                    if far != leaf_b:
                        hops.append((self.above(far)[leaf_b][0], leaf_b))
                    ways.append(self.way(hops))
        return ways

    def above(self, switch: int) -> dict[int, tuple[int, int]]:
        """Return the switches above one (in a dragonfly: beside it) with the link there and the link back."""
        cluster = self.cluster
        span = slice(int(cluster.up_ptr[switch]), int(cluster.up_ptr[switch + 1]))
        columns = (cluster.up_switch[span], cluster.up_link[span], cluster.down_link[span])
        return {up: (link, back) for up, link, back in zip(*(column.tolist() for column in columns), strict=True)}

    def way(self, hops: list[tuple[int, int]]) -> tuple[Path, float]:
        """Return a path of (link, switch behind it) with its width in B/s; the last switch forwards elsewhere."""
        links = [link for link, _ in hops]
        width = float(self.fabric.nominal_Bps[links].min())
        passed = [self.cluster.first_leaf + switch for _, switch in hops[:-1]]
        first_leaf = self.fabric.wiring.link_src[links[0]]
        latency_s = self._latency(links) + self._forwarding([*passed, int(first_leaf)])
        return (links, [1.0] * len(links), latency_s), width

    def _latency(self, links: list[int]) -> float:
        return float(self.fabric.link_latency_s[links].sum())

    def _forwarding(self, nodes: list[int]) -> float:
        return float(self.fabric.node_latency_s[nodes].sum())


def _beside(paths: list[Path], shares: list[float] | None = None) -> Path:
    """Return several ways side by side; equal shares of the message if none are given."""
    shares = [1 / len(paths)] * len(paths) if shares is None else shares
    links: list[int] = []
    weights: list[float] = []
    for (own, widths, _), share in zip(paths, shares, strict=True):
        links += own
        weights += [width * share for width in widths]
    return links, weights, max(latency_s for *_, latency_s in paths)
