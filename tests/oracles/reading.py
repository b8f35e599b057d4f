"""From what collsim is asked to what the packet model takes: wires as links, a schedule as messages, and their ways.

Only the wiring and the schedule are read. Ways are searched for here: all shortest ones through switches and adapters,
each with a share by the narrowest of the links that not all share, on rails by the GPU on the receiver's rail. Where
the network hashes flows, collsim's own routes say which cable each flow got, since another hash would make other
collisions.
"""

from __future__ import annotations

import math
from itertools import chain, pairwise, product

from collsim.fabric.fabric import Fabric
from collsim.fabric.routing import find_routes
from collsim.schedule import Schedule

from .packets import Link, Message

Way = tuple[tuple[int, ...], float]


def links_of(fabric: Fabric) -> list[Link]:
    """Return the links of a fabric; what a switch or an adapter takes to forward is part of the link into it."""
    ends = fabric.wiring.link_dst
    latency_s = fabric.link_latency_s + fabric.node_latency_s[ends]
    columns = (fabric.capacity_Bps.tolist(), latency_s.tolist(), fabric.wiring.link_count.tolist())
    return [Link(*row) for row in zip(*columns, strict=True)]


def messages_of(schedule: Schedule, fabric: Fabric) -> list[Message]:
    """Return one message for each transfer of a schedule, joins among them, in the same order.

    The n-th message of rank r begins with way r + n, so that sprays do not all begin on one spine.
    """
    hashed = fabric.cluster is not None and fabric.cluster.spec.routing == "ecmp"
    ways_of = (Hashed(fabric) if hashed else Search(fabric)).ways
    transfers = schedule.materialise()
    turn = list(range(fabric.n_ranks))
    messages = []
    rows = zip(
        transfers.src.tolist(), transfers.dst.tolist(), transfers.size_bytes(schedule.chunks).tolist(), strict=True
    )
    for number, (src, dst, size_bytes) in enumerate(rows):
        ways = ways_of(src, dst) if src != dst else []
        first = turn[src] % max(len(ways), 1)
        turn[src] += 1
        messages.append(Message(size_bytes, ways[first:] + ways[:first], transfers.deps_of(number)))
    return messages


class Search:
    """Finds all shortest ways between ranks. GPUs pass nothing on, except on rails, to where the receiver's leaf is."""

    def __init__(self, fabric: Fabric) -> None:
        wiring = fabric.wiring
        self.fabric, self.nominal_Bps = fabric, fabric.nominal_Bps.tolist()
        self.onwards: list[list[tuple[int, int]]] = [[] for _ in wiring.node_names]
        for link, (src, dst) in enumerate(zip(wiring.link_src.tolist(), wiring.link_dst.tolist(), strict=True)):
            self.onwards[src].append((link, dst))
        self.found: dict[tuple[int, int], list[Way]] = {}

    def ways(self, src: int, dst: int) -> list[Way]:
        """Return the ways from rank to rank with their shares."""
        if (src, dst) not in self.found:
            start, end = (int(self.fabric.rank_node[rank]) for rank in (src, dst))
            stops = [start, *self.relays(start, end), end]
            legs = [self.shortest(*leg) for leg in pairwise(stops)]
            self.found[src, dst] = [
                (tuple(chain.from_iterable(links for links, _ in way)), math.prod(share for _, share in way))
                for way in product(*legs)
            ]
        return self.found[src, dst]

    def relays(self, start: int, end: int) -> list[int]:
        """Return the GPU of the sender's node with the receiver's place, if that spares a message the spines."""
        where, cluster = self.fabric.wiring.coordinates, self.fabric.cluster
        if cluster is None or cluster.spec.fabric not in ("rail", "rail_only") or where.node[start] == where.node[end]:
            return []
        beside = start - int(where.local[start]) + int(where.local[end])
        return [beside] if self.leaf(start) != self.leaf(end) == self.leaf(beside) else []

    def leaf(self, gpu: int) -> int:
        """Return the switch on which the adapter of a GPU hangs."""
        kinds = self.fabric.wiring.node_kinds
        adapter = next(node for _, node in self.onwards[gpu] if kinds[node] == "nic")
        return next(node for _, node in self.onwards[adapter] if kinds[node] == "switch")

    def shortest(self, start: int, end: int) -> list[Way]:
        """Return the shortest ways from node to node through switches and adapters, with shares by their cables."""
        reached: dict[int, list[tuple[int, ...]]] = {start: [()]}
        seen = {start}
        while end not in reached:
            following: dict[int, list[tuple[int, ...]]] = {}
            for node, ways in reached.items():
                for link, after in self.onwards[node] if node == start or node >= self.fabric.wiring.n_gpus else ():
                    if after not in seen:
                        following.setdefault(after, []).extend((*way, link) for way in ways)
            if not following:
                raise ValueError(f"no way from node {start} to node {end}")
            seen.update(following)
            reached = following
        common = set(reached[end][0]).intersection(*reached[end])
        widths = [
            min((self.nominal_Bps[link] for link in way if link not in common), default=1) for way in reached[end]
        ]
        return [(way, width / sum(widths)) for way, width in zip(reached[end], widths, strict=True)]


class Hashed:
    """Reads from collsim's routes which way each flow was given."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.routes = fabric, find_routes(fabric)

    def ways(self, src: int, dst: int) -> list[Way]:
        """Return the one way from rank to rank: the links of the route, end to end."""
        wiring, pair = self.fabric.wiring, src * self.fabric.n_ranks + dst
        links = self.routes.link[self.routes.ptr[pair] : self.routes.ptr[pair + 1]].tolist()
        onwards = {int(wiring.link_src[link]): link for link in links}
        node, way = int(self.fabric.rank_node[src]), []
        while node in onwards:
            way.append(onwards[node])
            node = int(wiring.link_dst[way[-1]])
        if len(way) != len(links) or node != self.fabric.rank_node[dst]:
            raise ValueError(f"the links from rank {src} to rank {dst} are not one way")
        return [(tuple(way), 1.0)]
