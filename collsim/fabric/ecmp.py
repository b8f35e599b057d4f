"""ECMP: every switch hashes a flow onto one of its equal cables, by a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collsim.core.arrays import entries_of, pointers
from collsim.fabric.fabric import Float, Int
from collsim.fabric.routes import RouteBlock

__all__ = ["Hash", "HashedFlow", "Trunk"]


class HashedFlow(NamedTuple):
    """Flow whose path a hash picks among several equal ones: a share of a pair's message, from leaf to leaf."""

    pair: int
    leaves: tuple[int, int]
    name: str
    share: float
    latency_s: float
    """Of the rest of the way."""


class Trunk(NamedTuple):
    """The ways between two leaves, one behind the other: thousands where three tiers of switches are wide."""

    hops: Int
    """int64[n_ways]"""
    link: NDArray[np.int32]
    """int32[n_entries]: the first link of each bundle that a way takes, by its number in the cluster in order."""
    latency_s: Float
    """float64[n_ways]"""

    @classmethod
    def of(cls, hops: ArrayLike, link: ArrayLike, latency_s: ArrayLike) -> Trunk:
        """Return the trunk with such columns."""
        return cls(np.array(hops, dtype=np.int64), np.array(link, dtype=np.int32), np.array(latency_s, np.float64))


@dataclass(slots=True)
class Hash:
    """Every switch puts a flow on one of its equal cables; arrays, so that the next draw costs little.

    Attributes
    ----------
    flows : sequence of HashedFlow
    trunks : mapping
        From two leaves to the ways between them.
    before, spans : int64[n_links + 1], int64[n_links]
        By links of the cluster in order: how many of those left have a lower number, and how many links join the same
        two nodes, counted from this one on.
    trunk : int64[n_flows]
        Number of the trunk of each flow; ways stand trunk by trunk.
    port_end : int64[n_ways]
        Ports of all ways up to this one: a flow takes one of the ports of its trunk.
    first_port, n_ports : int64[n_trunks]
    hop_ptr, bundle : int64[n_ways+1], int32[...]
        Links of each way, as trunks have them.
    way_latency_s : float64[n_ways]
    """

    flows: Sequence[HashedFlow]
    trunks: InitVar[dict[tuple[int, int], Trunk]]
    before: Int
    spans: Int
    trunk: Int = field(init=False)
    port_end: Int = field(init=False)
    first_port: Int = field(init=False)
    n_ports: Int = field(init=False)
    hop_ptr: Int = field(init=False)
    bundle: NDArray[np.int32] = field(init=False)
    way_latency_s: Float = field(init=False)

    def __post_init__(self, trunks: dict[tuple[int, int], Trunk]) -> None:
        number = {leaves: i for i, leaves in enumerate(trunks)}
        self.trunk = np.array([number[flow.leaves] for flow in self.flows])
        columns = zip(*trunks.values(), strict=True)
        hops, self.bundle, self.way_latency_s = (np.concatenate(column) for column in columns)
        self.hop_ptr = pointers(hops)
        self.port_end = np.cumsum(self._cables(self.bundle[self.hop_ptr[:-1]])[1])
        last_way = np.cumsum([len(trunk.hops) for trunk in trunks.values()]) - 1
        self.first_port = np.concatenate(([0], self.port_end[last_way[:-1]]))
        self.n_ports = self.port_end[last_way] - self.first_port

    def _cables(self, bundle: NDArray[np.int32]) -> tuple[Int, Int]:
        """Return the first that is left of each bundle, by its number now, and how many are."""
        link = self.before[bundle]
        return link, self.before[bundle + self.spans[bundle]] - link

    def drawn(self, seed: int) -> RouteBlock:
        """Return the part of the routes that *seed* decides."""
        spot = np.array([_spot(seed, flow.name, 0) for flow in self.flows])
        port = self.first_port[self.trunk] + (spot * self.n_ports[self.trunk]).astype(np.int64)
        way = np.searchsorted(self.port_end, port, side="right")
        hops = self.hop_ptr[way + 1] - self.hop_ptr[way]
        flow = np.repeat(np.arange(len(way)), hops)
        taken, place = entries_of(self.hop_ptr, way)
        hop = np.arange(len(flow)) - taken[flow]
        link, cables = self._cables(self.bundle[place])
        several = np.flatnonzero(cables > 1)
        names = (
            (self.flows[i].name, j + 1) for i, j in zip(flow[several].tolist(), hop[several].tolist(), strict=True)
        )
        spot = np.array([_spot(seed, name, at) for name, at in names])
        link[several] += (spot * cables[several]).astype(np.int64)
        pair, share, rest_s = (np.array([entry[column] for entry in self.flows]) for column in (0, 3, 4))
        return RouteBlock(pair, rest_s + self.way_latency_s[way], hops, link, share[flow])


def _spot(seed: int, flow: str, hop: int) -> float:
    """Return a number of [0, 1) that the flow, the hop and the seed of the hash decide."""
    digest = hashlib.blake2b(f"{seed}:{flow}:{hop}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
