"""Oracle: the way of one pair of ranks after the other, by the rules of a router; the package does many at once."""

from __future__ import annotations

import numpy as np

from collsim.fabric.cluster_router import Port, Router
from collsim.fabric.routes import Path

Leap = tuple[tuple[int, int], str, float]
"""What a hash decides: from which leaf to which, the name of the flow, and its share of the message."""


class ScalarRouter(Router):
    """A router that puts together the whole way of a pair."""

    def path(self, src: int, dst: int) -> tuple[Path, list[tuple[*Leap, float]]]:
        """Return the way from one rank to another, by the numbers that links have now, and what a hash decides."""
        a, b = int(self.machine.rank_node[src]), int(self.machine.rank_node[dst])
        way = self.within(a, b) if a // self.per_node == b // self.per_node else None
        (links, shares, latency_s), hashed = (way, []) if way else self.across(a, b)
        return (self.before[links].tolist(), shares, latency_s), hashed

    def within(self, a: int, b: int) -> Path | None:
        """Return the way between two GPUs over the links of their node, None if there is none."""
        if a == b:
            return [], [], 0.0
        routes, links, place = self.inner_of(a // self.per_node)
        ends = place[a % self.per_node], place[b % self.per_node]
        if routes is None or min(ends) < 0:
            return None
        pair = int(routes.find(np.array([ends[0] * (max(place) + 1) + ends[1]]))[0])
        span = slice(int(routes.ptr[pair]), int(routes.ptr[pair + 1]))
        if span.start == span.stop:
            return None
        return links[routes.link[span]].tolist(), routes.weight[span].tolist(), float(routes.latency_s[pair])

    def across(self, a: int, b: int) -> tuple[Path, list[tuple[*Leap, float]]]:
        """Return the way between two GPUs over the network, by all their adapters side by side."""
        lanes = [self.lane(a, *ports, b) for ports in self.lanes(a, b)]
        hashed = [(leaves, name, share / len(lanes), path[2]) for path, flows in lanes for leaves, name, share in flows]
        links = [link for (own, *_), _ in lanes for link in own]
        shares = [share * (1 / len(lanes)) for (_, own, _), _ in lanes for share in own]
        return (links, shares, max(path[2] for path, _ in lanes)), hashed

    def lane(self, a: int, out: Port, into: Port, b: int) -> tuple[Path, list[Leap]]:
        """Return the way from GPU to GPU by two ports, over the links of the nodes if these are of other GPUs."""
        first, last = self.within(a, out[0]), self.within(into[0], b)
        middle = self.between_leaves(self.leaf_of(out), self.leaf_of(into))
        assert first is not None
        assert last is not None
        assert middle is not None
        nics = [nic - self.cluster.first_nic for _, nic in (out, into)]
        outwards = [self.buses[out], int(self.cluster.nic_up[nics[0]])]
        inwards = [int(self.cluster.nic_down[nics[1]]), self.buses[into[1], into[0]]]
        links = [*first[0], *outwards, *middle[0], *inwards, *last[0]]
        shares = [*first[1], 1.0, 1.0, *middle[1], 1.0, 1.0, *last[1]]
        latency_s = first[2] + self._latency(outwards + inwards) + middle[2] + last[2]
        latency_s += self._forwarding([out[1], into[1], self.cluster.first_leaf + self.leaf_of(into)])
        return (links, shares, latency_s), self.leaps(self.leaf_of(out), self.leaf_of(into), out[0], b)

    def leaps(self, leaf_a: int, leaf_b: int, a: int, b: int) -> list[Leap]:
        """Return the flows that a hash puts on one of several ways each."""
        if leaf_a == leaf_b or not self.cluster.spec.hashes:
            return []
        flows = self.cluster.spec.flows_per_pair
        return [((leaf_a, leaf_b), f"{a}:{b}:{flow}", 1 / flows) for flow in range(flows)]
