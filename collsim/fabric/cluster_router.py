"""Routes over a cluster: inside a node as in one node, between nodes through adapters, leaves, spines and cores.

Between nodes a message leaves through an adapter of its sender and arrives at one of its receiver. On a fabric of
rails, if these hang on different leaves, it first hops over the node's own links to the GPU of the receiver's rail
(PXN), if the node has such links and relays are not off; so it stays on one leaf wherever it can. How the network
spreads messages over equal paths is its routing: ``spray`` and ``adaptive`` use all of them in proportion to their
cables; with ``ecmp`` every switch puts each flow of a pair on one cable by a hash, so that unlucky flows share a cable
while others stay empty. In a dragonfly, messages take minimal paths, and within a group detours over a third switch
beside them.

What has failed is left out of all of this; everything is found by the numbers of the cluster in order. A GPU all of
whose adapters are lost has its messages dealt to those of the other GPUs of its node alike, over the node's links: with
none nearer than the others, NCCL takes one channel by channel (src/graph/topo.cc, ncclTopoGetLocalNet). That it also
receives so is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from collsim.core.arrays import distinct, entries_of, pointers
from collsim.core.errors import Fault, NoRouteError
from collsim.fabric.domain import all_ways
from collsim.fabric.ecmp import Trunk
from collsim.fabric.fabric import Fabric, Float, Int, build_fabric
from collsim.fabric.routes import Path, Routes, assemble

if TYPE_CHECKING:
    from collsim.topology import Topology
    from collsim.topology.cluster.spec import Cluster

__all__ = ["Inner", "Port", "Router"]

Port = tuple[int, int]
"""A GPU and an adapter of it, as nodes."""
Inner = tuple[Routes | None, Int, list[int]]
"""Routes inside a node, the number of each link in the cluster, and the rank of each GPU there, -1 without a link."""


@dataclass(slots=True)
class Router:
    """Finds paths, and remembers those between two leaves; counts by the numbers of the cluster in order."""

    fabric: Fabric
    machine: Fabric = field(init=False)
    """The ranks on the cluster in order."""
    cluster: Cluster = field(init=False)
    per_node: int = field(init=False)
    """GPUs of a node."""
    left: Int = field(init=False)
    """int64[links left]: the number of each in the cluster in order."""
    before: Int = field(init=False)
    """int64[links+1]: how many of those left have a lower number."""
    nominal_Bps: Float = field(init=False)
    """float64[links]: the rate that each should have now; 0 if it is lost."""
    slow: bool = field(init=False)
    """True if links inside a node have a latency."""
    near: dict[tuple[int, int], bool] = field(init=False, default_factory=dict)
    """By two GPUs of a node: True if links inside the node lead from the first to the second."""
    inner: dict[int, Inner] = field(init=False, default_factory=dict)
    alike: dict[tuple[int, bytes], Inner] = field(init=False, default_factory=dict)
    """By their kind and the rates of their links, what nodes have in common."""
    spreads: dict[tuple[int, int], Path | None] = field(init=False, default_factory=dict)
    """By two leaves, the ways between them as one, where messages are spread over them."""
    trunks: dict[tuple[int, int], Trunk] = field(init=False, default_factory=dict)
    """By two leaves, the ways between them, where a hash picks one."""
    beside: dict[tuple[int, bool], dict[int, int]] = field(init=False, default_factory=dict)
    """The switches above and below each."""
    by_group: dict[int, dict[int, list[tuple[int, int]]]] = field(init=False, default_factory=dict)
    """By switch of a dragonfly and group: the switches there beside it."""
    cores: dict[tuple[int, bool], Int] = field(init=False, default_factory=dict)
    """By leaf, the ways up to the cores and down from them."""
    tops: dict[tuple[tuple[int, ...], bool], frozenset[int]] = field(init=False, default_factory=dict)
    """By the spines of a leaf, the cores above them."""
    buses: dict[tuple[int, int], int] = field(init=False, default_factory=dict)
    """The link between a GPU and its adapter, by its ends in order."""
    bus_out: Int = field(init=False)
    bus_in: Int = field(init=False)
    """int64[n]: the links of each GPU to its adapters and back, in the order of `Cluster.nic_of`."""
    own: dict[tuple[int, bool], list[Port]] = field(init=False, default_factory=dict)
    ends: Int = field(init=False)
    """int64[links]: source and target of each as one number."""
    spans: Int = field(init=False)
    """int64[links]: how many links join the same two nodes, counted from this one on."""

    def __post_init__(self) -> None:
        self.machine = self.fabric.machine
        assert self.machine.cluster is not None
        self.cluster = self.machine.cluster
        self.per_node = self.cluster.node.n_gpus
        wiring, links = self.machine.wiring, self.fabric.healthy_link
        self.left = np.arange(wiring.n_links) if links is None else links
        self.before = np.searchsorted(self.left, np.arange(wiring.n_links + 1))
        self.nominal_Bps = np.zeros(wiring.n_links)
        self.nominal_Bps[self.left] = self.fabric.nominal_Bps
        inner = np.maximum(wiring.link_src, wiring.link_dst) < self.cluster.first_nic
        self.slow = bool(self.machine.link_latency_s[inner].any())
        gpus, nics = np.repeat(np.arange(wiring.n_gpus), np.diff(self.cluster.nic_ptr)), self.cluster.nic_of
        self.bus_out, self.bus_in = wiring.find_links(gpus, nics), wiring.find_links(nics, gpus)
        for src, dst, buses in ((gpus, nics, self.bus_out), (nics, gpus, self.bus_in)):
            ends = zip(src.tolist(), dst.tolist(), strict=True)
            self.buses |= dict(zip(ends, buses.tolist(), strict=True))
        self.ends = wiring.link_src * wiring.n_nodes + wiring.link_dst
        last = np.flatnonzero(np.append(np.diff(self.ends) != 0, True))
        self.spans = np.repeat(last, np.diff(last, prepend=-1)) + 1 - np.arange(len(self.ends))

    def reaches(self, a: int, b: int) -> bool:
        """Return True if links inside their node lead from GPU *a* to GPU *b*."""
        if a == b:
            return True
        if (a, b) not in self.near:
            routes, _, place = self.inner_of(a // self.per_node)
            pair = place[a % self.per_node], place[b % self.per_node]
            self.near[a, b] = routes is not None and min(pair) >= 0 and _has_way(routes, pair, max(place) + 1)
        return self.near[a, b]

    def inner_of(self, node: int) -> Inner:
        """Return the routes of a node by itself, over the links that it has left."""
        if node not in self.inner:
            links = self.links_of(node)
            rate_Bps = self.nominal_Bps[links]
            kind = int(self.cluster.kind[node])
            key = kind, rate_Bps.tobytes()
            if key not in self.alike:
                left = _left_of(self.cluster.kinds[kind], rate_Bps)
                gpus = np.intersect1d(left.wiring.link_src, np.arange(self.per_node)).tolist()
                several = len(gpus) > 1
                place = [gpus.index(gpu) if several and gpu in gpus else -1 for gpu in range(self.per_node)]
                latency = self.slow and self.machine.counts_latency
                inside = build_fabric(left, gpus, latency=latency, network_counts=self.slow) if several else None
                routes = _routes_inside(inside) if inside else None
                self.alike[key] = routes, np.flatnonzero(rate_Bps), place
            routes, there, place = self.alike[key]
            self.inner[node] = routes, links[there], place
        return self.inner[node]

    def links_of(self, node: int) -> Int:
        """Return int64[links of a node]: their numbers in the cluster."""
        wiring, n = self.cluster.kinds[self.cluster.kind[node]].wiring, self.per_node
        first = int(self.cluster.first_inner[node]) - n

        def place(ends: Int) -> Int:
            return np.where(ends < n, node * n + ends, first + ends)

        ends = place(wiring.link_src) * self.machine.wiring.n_nodes + place(wiring.link_dst)
        return np.searchsorted(self.ends, ends)

    def lanes(self, a: int, b: int) -> list[tuple[Port, Port]]:
        """Return the ports that messages between two GPUs leave by and arrive by, side by side."""
        outs, relays = self.ports(a, outwards=True), self.cluster.spec.relays
        for find in (self.ports, self.ports_beside) if relays else (self.ports,):
            ins = find(b, outwards=False)
            pairs = [(outs[i % len(outs)], ins[i % len(ins)]) for i in range(max(len(outs), len(ins))) if outs and ins]
            ports = dict.fromkeys(self.on_rail(a, b, *pair) for pair in pairs)
            if lanes := [pair for pair in ports if self.joins(a, *pair, b)]:
                return lanes
        names = [self.machine.wiring.node_names[gpu] for gpu in (a, b)]
        what = f"no switch joins {' and '.join(names)}"
        if not relays:
            hint = "without relays (PXN) only switches join rails: take fabric rail, or leave relays on"
            raise NoRouteError(Fault(what, "--env", hint))
        raise NoRouteError(Fault(what, "--fabric", "take a fabric with spines, or ranks of one rail"))

    def ports(self, gpu: int, *, outwards: bool) -> list[Port]:
        """Return the adapters of a GPU; if it has lost all, those of the others in its node."""
        return self.own_ports(gpu, outwards=outwards) or self.ports_beside(gpu, outwards=outwards)

    def ports_beside(self, gpu: int, *, outwards: bool) -> list[Port]:
        """Return the adapters of the other GPUs of the node that the GPU reaches, or that reach it."""
        first = gpu // self.per_node * self.per_node
        others = [other for other in range(first, first + self.per_node) if other != gpu]
        reached = [other for other in others if self.reaches(*((gpu, other) if outwards else (other, gpu)))]
        return [port for other in reached for port in self.own_ports(other, outwards=outwards)]

    def own_ports(self, gpu: int, *, outwards: bool) -> list[Port]:
        """Return the adapters of a GPU from which all links lead on to the leaf, or back."""
        cluster = self.cluster
        if (gpu, outwards) in self.own:
            return self.own[gpu, outwards]
        nics = cluster.nic_of[cluster.nic_ptr[gpu] : cluster.nic_ptr[gpu + 1]].tolist()
        found = [(nic, (gpu, nic) if outwards else (nic, gpu)) for nic in nics]
        to_leaf = cluster.nic_up if outwards else cluster.nic_down
        self.own[gpu, outwards] = [
            (gpu, nic)
            for nic, ends in found
            if min(self.nominal_Bps[[self.buses[ends], to_leaf[nic - cluster.first_nic]]]) > 0
        ]
        return self.own[gpu, outwards]

    def leaf_of(self, port: Port) -> int:
        """Return the leaf, as a switch, that the adapter of a port hangs on."""
        return int(self.cluster.nic_leaf[port[1] - self.cluster.first_nic])

    def on_rail(self, a: int, b: int, out: Port, into: Port) -> tuple[Port, Port]:
        """Return the ports with that of the sender on the receiver's rail if the fabric has rails and it can be."""
        spec = self.cluster.spec
        if self.leaf_of(out) != self.leaf_of(into) and spec.relays and spec.fabric in ("rail", "rail_only"):
            leaf = self.leaf_of(into)
            if relay := self.relay(a, b, [leaf]):
                return relay, into
            joined = self.is_joined(self.leaf_of(out), leaf)
            out = out if joined else self.relay(a, b, self.joined_to(leaf)) or out
        return out, into

    def joined_to(self, leaf: int) -> list[int]:
        """Return the leaves that some switch joins to one."""
        return [other for other in range(len(self.cluster.up_ptr) - 1) if other != leaf and self.is_joined(other, leaf)]

    def joins(self, a: int, out: Port, into: Port, b: int) -> bool:
        """Return True if a way leads from GPU *a* by *out* and *into* to *b*, if need be over GPUs beside them."""
        joined = self.is_joined(self.leaf_of(out), self.leaf_of(into))
        return joined and self.reaches(a, out[0]) and self.reaches(into[0], b)

    def relay(self, a: int, b: int, leaves: Sequence[int]) -> Port | None:
        """Return a port of a's node on one of some leaves: that of the GPU with b's place, if it has one there."""
        first = a // self.per_node * self.per_node
        for gpu in (first + b % self.per_node, *range(first, first + self.per_node)):
            port = next(iter(self.own_ports(gpu, outwards=True)), None)
            if gpu != a and port is not None and self.leaf_of(port) in leaves and self.reaches(a, gpu):
                return port
        return None

    def is_joined(self, leaf_a: int, leaf_b: int) -> bool:
        """Return True if a way leads from leaf to leaf."""
        spec = self.cluster.spec
        if leaf_a == leaf_b or spec.hashes or spec.fabric == "dragonfly":
            return self.between_leaves(leaf_a, leaf_b) is not None
        if not self.above(leaf_a).keys().isdisjoint(self.below(leaf_b)):
            return True
        return not self.cores_of(leaf_a, upwards=True).isdisjoint(self.cores_of(leaf_b, upwards=False))

    def cores_of(self, leaf: int, *, upwards: bool) -> frozenset[int]:
        """Return the cores that messages up from a leaf can reach, or down to it come from."""
        next_to = self.above if upwards else self.below
        spines = tuple(next_to(leaf))
        key = spines, upwards
        if key not in self.tops:
            self.tops[key] = frozenset(core for spine in spines for core in next_to(spine))
        return self.tops[key]

    def between_leaves(self, leaf_a: int, leaf_b: int) -> Path | None:
        """Return the way from leaf to leaf: all equal paths side by side, or an empty one where a hash decides."""
        nowhere: Path = ([], [], 0.0)
        if leaf_a == leaf_b:
            return nowhere
        pair = leaf_a, leaf_b
        if self.cluster.spec.hashes:
            if pair not in self.trunks:
                self.trunks[pair] = self.trunk(leaf_a, leaf_b)
            return nowhere if len(self.trunks[pair].hops) else None
        if pair not in self.spreads:
            self.spreads[pair] = self.spread(leaf_a, leaf_b)
        return self.spreads[pair]

    def all_ways(self, leaf_a: int, leaf_b: int) -> list[tuple[Path, float]]:
        """Return the shortest ways that pass no core, with their widths: by a spine, or along a dragonfly."""
        if self.cluster.spec.fabric == "dragonfly":
            return self.dragonfly_ways(leaf_a, leaf_b) or self.detours(leaf_a, leaf_b)
        up, down = self.above(leaf_a), self.below(leaf_b)
        return [self.way([(up[spine], spine), (down[spine], leaf_b)]) for spine in up if spine in down]

    def trunk(self, leaf_a: int, leaf_b: int) -> Trunk:
        """Return all shortest ways, if need be over cores."""
        ways = self.all_ways(leaf_a, leaf_b)
        if ways or self.cluster.spec.fabric == "dragonfly":
            links, _, latencies_s = zip(*(path for path, _ in ways), strict=True) if ways else ((), (), ())
            return Trunk.of([len(each) for each in links], [link for each in links for link in each], latencies_s)
        columns, _, latency_s = self.over_cores(leaf_a, leaf_b, in_order=True)
        return Trunk.of(np.full(len(latency_s), 4), np.stack(columns, axis=1).ravel(), latency_s)

    def spread(self, leaf_a: int, leaf_b: int) -> Path | None:
        """Return all shortest ways as one, if there are any: all links of theirs once, by the widths of the ways."""
        spines = set(self.above(leaf_a)).intersection(self.below(leaf_b))
        if spines or self.cluster.spec.fabric == "dragonfly":
            ways = self.all_ways(leaf_a, leaf_b)
            return _spread(ways) if ways else None
        links, widths, latencies_s = self.over_cores(leaf_a, leaf_b)
        if not len(widths):
            return None
        taken, place = distinct(np.concatenate(links))
        shares = np.bincount(place, np.tile(widths / float(widths.sum()), len(links)))
        return taken, shares.astype(np.float64), float(latencies_s.max())

    def over_cores(self, leaf_a: int, leaf_b: int, *, in_order: bool = False) -> tuple[list[Int], Float, Float]:
        """Return the four links, the width and the latency of every way by a spine, a core and another spine.

        They stand by spine, core and spine, or *in_order* by both spines first.
        """
        there, back = self.edges(leaf_a, upwards=True), self.edges(leaf_b, upwards=False)
        by_core = np.argsort(back[1], kind="stable")
        ptr, entry = entries_of(pointers(np.bincount(back[1], minlength=len(self.cluster.up_ptr))), there[1])
        out, into = np.repeat(np.arange(len(there[1])), np.diff(ptr)), by_core[entry]
        if in_order:
            order = np.lexsort((out, back[4][into], there[4][out]))
            out, into = out[order], into[order]
        links = [there[3][out], there[2][out], back[2][into], back[3][into]]
        link_s, node_s = self.machine.link_latency_s, self.machine.node_latency_s
        switch_s = node_s[self.cluster.first_leaf :]
        latency_s = link_s[links[0]] + link_s[links[1]] + link_s[links[2]] + link_s[links[3]]
        latency_s += switch_s[there[0][out]] + switch_s[there[1][out]] + switch_s[back[0][into]] + switch_s[leaf_a]
        return links, np.minimum.reduce([self.nominal_Bps[link] for link in links]), latency_s

    def edges(self, leaf: int, *, upwards: bool) -> Int:
        """Return five rows: spines of a leaf, cores above, the link between, that to the leaf, the spine's place."""
        key = leaf, upwards
        if key not in self.cores:
            next_to = self.above if upwards else self.below
            rows = [
                (spine, core, link, first, number)
                for number, (spine, first) in enumerate(next_to(leaf).items())
                for core, link in next_to(spine).items()
            ]
            self.cores[key] = np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy()
        return self.cores[key]

    def dragonfly_ways(self, leaf_a: int, leaf_b: int) -> list[tuple[Path, float]]:
        """Return the ways of a dragonfly: within the group, or by every cable between the two groups.

        Within a group, adaptive routing turns to a detour over a third switch of the group when the direct cable is
        busy. Under load all these ways are in use; a message alone takes the direct one, whose latency counts.
        """
        group = self.cluster.switch_group
        beside = self.above(leaf_a)
        if leaf_b in beside:
            direct = self.way([(beside[leaf_b], leaf_b)])
            alone = group[leaf_a] != group[leaf_b] or self.cluster.spec.routing == "ecmp"
            return [direct] if alone else [direct, *self.over_thirds(leaf_a, leaf_b, direct[0][2])]
        if group[leaf_a] == group[leaf_b]:
            return []
        ways, last = [], self.below(leaf_b)
        own, other = int(group[leaf_a]), int(group[leaf_b])
        for gate in [leaf_a, *(switch for switch, _ in self.towards(leaf_a, own))]:
            for far, link in self.towards(gate, other):
                if far == leaf_b or far in last:
                    hops = [(beside[gate], gate)] if gate != leaf_a else []
                    hops.append((link, far))
                    if far != leaf_b:
                        hops.append((last[far], leaf_b))
                    ways.append(self.way(hops))
        return ways

    def over_thirds(self, leaf_a: int, leaf_b: int, latency_s: float) -> list[tuple[Path, float]]:
        """Return the ways over a third switch of the group of both, with the latency that counts."""
        last, own = self.below(leaf_b), int(self.cluster.switch_group[leaf_a])
        over = [(link, last[third]) for third, link in self.towards(leaf_a, own) if third != leaf_b and third in last]
        widths = self.nominal_Bps[np.array(over, dtype=np.int64).reshape(-1, 2)].min(axis=1)
        return [
            ((list(links), [1.0, 1.0], latency_s), width) for links, width in zip(over, widths.tolist(), strict=True)
        ]

    def detours(self, leaf_a: int, leaf_b: int) -> list[tuple[Path, float]]:
        """Return the shortest ways of a dragonfly that has lost the minimal ones: by other switches and groups."""
        reached: dict[int, list[list[tuple[int, int]]]] = {leaf_a: [[]]}
        seen = {leaf_a}
        while reached and leaf_b not in reached:
            following: dict[int, list[list[tuple[int, int]]]] = {}
            for switch, ways in reached.items():
                for far, link in self.above(switch).items():
                    if far not in seen:
                        following.setdefault(far, []).extend([*hops, (link, far)] for hops in ways)
            seen.update(following)
            reached = following
        return [self.way(hops) for hops in reached.get(leaf_b, [])]

    def towards(self, switch: int, group: int) -> list[tuple[int, int]]:
        """Return the switches of a group of a dragonfly beside one, each with the first link there."""
        if switch not in self.by_group:
            found = self.by_group.setdefault(switch, {})
            for far, link in self.above(switch).items():
                found.setdefault(int(self.cluster.switch_group[far]), []).append((far, link))
        return self.by_group[switch].get(group, [])

    def above(self, switch: int) -> dict[int, int]:
        """Return the switches above one (in a dragonfly: beside it), with the first link there."""
        return self._neighbours(switch, self.cluster.up_link)

    def below(self, switch: int) -> dict[int, int]:
        """Return the same switches with the first link back."""
        return self._neighbours(switch, self.cluster.down_link)

    def _neighbours(self, switch: int, link: Int) -> dict[int, int]:
        """Return those that a cable is left to."""
        key = switch, link is self.cluster.up_link
        if key not in self.beside:
            span = slice(int(self.cluster.up_ptr[switch]), int(self.cluster.up_ptr[switch + 1]))
            first = link[span]
            left = self.before[first + self.spans[first]] > self.before[first]
            pairs = zip(self.cluster.up_switch[span][left].tolist(), first[left].tolist(), strict=True)
            self.beside[key] = dict(pairs)
        return self.beside[key]

    def way(self, hops: list[tuple[int, int]]) -> tuple[Path, float]:
        """Return a path of (link, switch behind it) with its width in B/s; the last switch forwards elsewhere."""
        links = [link for link, _ in hops]
        rate_Bps = self.nominal_Bps
        passed = [self.cluster.first_leaf + switch for _, switch in hops[:-1]]
        first_leaf = int(self.machine.wiring.link_src[links[0]])
        latency_s = self._latency(links) + self._forwarding([*passed, first_leaf])
        return (links, [1.0] * len(links), latency_s), min(float(rate_Bps[link]) for link in links)

    def _latency(self, links: list[int]) -> float:
        latency_s = self.machine.link_latency_s
        return sum(float(latency_s[link]) for link in links)

    def _forwarding(self, nodes: list[int]) -> float:
        latency_s = self.machine.node_latency_s
        return sum(float(latency_s[node]) for node in nodes)


def _routes_inside(fabric: Fabric) -> Routes:
    """Return the routes of a node by itself; those of pairs that cannot reach each other are empty."""
    return assemble(np.ones(fabric.n_ranks**2), all_ways(fabric, all_pairs=False))


def _has_way(routes: Routes, pair: tuple[int, int], n: int) -> bool:
    """Return True if *routes* among *n* ranks hold a way for *pair*, the source and the target."""
    place = int(routes.find(np.array([pair[0] * n + pair[1]]))[0])
    return bool(routes.ptr[place + 1] > routes.ptr[place])


def _left_of(node: Topology, rate_Bps: Float) -> Topology:
    """Return a node with the links that have a rate, without switches that add and multicast."""
    there, wiring = rate_Bps > 0, node.wiring
    columns = {
        name: value[there]
        for name, value in ((name, getattr(wiring, name)) for name in wiring.__slots__)
        if name.startswith("link_") and value is not None
    }
    wiring = replace(wiring, **columns | {"link_nominal_Bps": rate_Bps[there]})
    return replace(node, wiring=wiring, in_network_reduction=None)


def _spread(ways: list[tuple[Path, float]]) -> Path:
    """Return several ways as one that takes all links of theirs once, each with its share by their widths."""
    total = sum(width for _, width in ways)
    links = [link for (own, *_), _ in ways for link in own]
    shares = [weight * (width / total) for (_, weights, _), width in ways for weight in weights]
    taken, place = np.unique(links, return_inverse=True)
    latency_s = max(path[2] for path, _ in ways)
    return taken.tolist(), np.bincount(place, shares).tolist(), latency_s
