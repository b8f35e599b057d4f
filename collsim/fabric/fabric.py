"""A topology as one run sees it: frozen arrays of links and ranks, with the rates that the profile allows.

The wiring belongs to the topology and is shared; a fabric adds which GPUs take part, in which order, and how much of
each link's raw rate and latency counts. This module imports only numpy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, InputError
from collsim.topology import Cluster, Topology, Wiring

__all__ = ["Fabric", "build_fabric", "memory_need_Bps"]

Int = NDArray[np.int64]
Int32 = NDArray[np.int32]
Float = NDArray[np.float64]
S = TypeVar("S", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """Links and ranks of one run.

    Attributes
    ----------
    wiring : Wiring
        The nodes and directed links; link i of every array below is link i there.
    rank_node : int64[n_ranks]
        The node (GPU) of each rank.
    raw_capacity_Bps : float64[n_links]
        Line rate per direction.
    capacity_Bps : float64[n_links]
        What the run may use of it.
    link_latency_s : float64[n_links]
    node_latency_s : float64[n_nodes]
    in_network : str or None
        What the switches add and multicast with, such as NVLS; None if they only forward.
    in_network_efficiency : float
        Share of `capacity_Bps` that such traffic reaches.
    cluster : Cluster or None
        How the nodes are joined, if there are several and nothing is missing.
    """

    wiring: Wiring
    rank_node: Int
    raw_capacity_Bps: Float
    capacity_Bps: Float
    link_latency_s: Float
    node_latency_s: Float
    in_network: str | None = None
    in_network_efficiency: float = 1.0
    cluster: Cluster | None = None
    node_in_network: str | None = None
    """Reduction, such as ``NVLS``, by switches inside each node of a cluster for all its ranks; None: no reduction."""
    network_trees: str | None = None
    """Unit between nodes that holds one reduction tree at a time, ``port`` or ``switch``; None: they only forward."""
    counts_latency: bool = True
    """True if latencies inside nodes are those of the topology, not only what changes have added to them."""
    memory_Bps: Float | None = None
    """float64[n_ranks]: rate at which the memory of each rank reads and writes; None where links bind before it."""
    healthy: Fabric | None = None
    """The same GPUs of a cluster in order; None if no link of it is missing."""
    healthy_link: Int | None = None
    """int64[n_links]: the number of each link there."""

    @property
    def machine(self) -> Fabric:
        """The fabric in order: itself, unless it is a cluster of which something is missing."""
        return self.healthy or self

    @property
    def nominal_Bps(self) -> Float:
        """float64[n_links]: the rates by which traffic is spread, those of links that run as they should."""
        nominal = self.wiring.link_nominal_Bps
        return self.raw_capacity_Bps if nominal is None else nominal

    def with_hash_seed(self, seed: int) -> Fabric:
        """Return the fabric with another seed of the hash."""
        if self.healthy is not None:
            return replace(self, healthy=self.healthy.with_hash_seed(seed))
        assert self.cluster is not None
        return replace(self, cluster=replace(self.cluster, spec=replace(self.cluster.spec, hash_seed=seed)))

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.rank_node)

    @property
    def n_links(self) -> int:
        """Number of directed links."""
        return len(self.capacity_Bps)

    def rank_name(self, rank: int) -> str:
        """Return the name of the GPU that *rank* runs on."""
        return self.wiring.node_names[int(self.rank_node[rank])]

    @property
    def joins_ranks(self) -> bool:
        """True if any link joins two ranks directly."""
        is_rank = np.zeros(len(self.wiring.node_names), dtype=np.bool_)
        is_rank[self.rank_node] = True
        return bool((is_rank[self.wiring.link_src] & is_rank[self.wiring.link_dst]).any())

    def peer_links(self) -> Int:
        """Return int64[n_ranks, n_ranks]: physical links that join two ranks directly."""
        wiring = self.wiring
        rank_of = np.full(len(wiring.node_names), -1, dtype=np.int64)
        rank_of[self.rank_node] = np.arange(self.n_ranks)
        src, dst = rank_of[wiring.link_src], rank_of[wiring.link_dst]
        direct = (src >= 0) & (dst >= 0)
        counts = np.zeros((self.n_ranks, self.n_ranks), dtype=np.int64)
        np.add.at(counts, (src[direct], dst[direct]), wiring.link_count[direct])
        return counts


def build_fabric(
    topology: Topology,
    ranks: Sequence[int] | None = None,
    *,
    efficiency: bool = True,
    latency: bool = True,
    network_counts: bool = True,
) -> Fabric:
    """Return the fabric of the given GPUs (all if None); rank i runs on GPU ``ranks[i]``.

    Parameters
    ----------
    topology : Topology
    ranks : sequence of int, optional
        GPU numbers, distinct and in range.
    efficiency : bool
        Use the achievable fraction of each link instead of its line rate.
    latency : bool
        Use the latencies of links and switches instead of zero.
    network_counts : bool
        Both hold for the network between nodes in any case: the constants of a profile are of one node. Inside nodes
        these constants hold the figures at which they were fitted, so that changes for the worse count on top of them.
        False: raw wires everywhere, and memory that never binds.

    Raises
    ------
    InputError
        Ranks out of range or named twice, all of them at once; fewer than two ranks.
    """
    wiring = topology.wiring
    chosen = list(range(wiring.n_gpus)) if ranks is None else list(ranks)
    faults = _rank_faults(chosen, wiring.n_gpus, topology.name)
    if faults:
        raise InputError(*faults)
    network = np.zeros(len(wiring.link_src), dtype=np.bool_)
    forwards = np.zeros(wiring.n_nodes, dtype=np.bool_)
    if network_counts and "nic" in wiring.node_kinds:  # adapters and what is behind them come last
        forwards[wiring.node_kinds.index("nic") :] = True
        network = forwards[wiring.link_src] | forwards[wiring.link_dst]
    lost = _Changes.of(topology) if network_counts else _Changes()
    switch_s = lost.switch_s * _switches(wiring) if lost.switch_s else 0.0
    capacity = wiring.link_bandwidth_Bps * np.where(efficiency | network, wiring.link_efficiency, lost.efficiency)
    kinds = topology.by_kind(chosen)
    used = [kind for kind, _ in kinds]
    damage = topology.damage
    order = wiring if damage is None else damage.healthy.wiring  # slow links still multicast, and keep their numbers
    node_adds = _node_in_network(topology, chosen)
    adds = topology.in_network_reduction if order.coordinates.kind == "switched" else None
    if len(set(wiring.coordinates.node[chosen].tolist())) == 1:
        adds = adds or node_adds
    healthy = None
    if topology.cluster is not None and damage is not None and wiring.n_links < order.n_links:
        gpus = [damage.gpus[gpu] for gpu in chosen]
        healthy = build_fabric(
            damage.healthy, gpus, efficiency=efficiency, latency=latency, network_counts=network_counts
        )
    return Fabric(
        wiring=wiring,
        rank_node=_readonly(np.array(chosen, dtype=np.int64)),
        raw_capacity_Bps=wiring.link_bandwidth_Bps,
        capacity_Bps=_readonly(capacity),
        link_latency_s=_readonly(np.where(latency | network, wiring.link_latency_s, lost.link_s)),
        node_latency_s=_readonly(np.where(latency | forwards, wiring.node_latency_s, switch_s)),
        in_network_efficiency=min(kind.in_network_efficiency for kind in used) if efficiency else lost.in_network,
        in_network=adds,
        cluster=topology.cluster if healthy is None else None,
        node_in_network=node_adds,
        network_trees=topology.cluster.spec.tree_per if topology.cluster else None,
        counts_latency=latency,
        memory_Bps=_memory_Bps(topology, chosen, kinds) if network_counts else None,
        healthy=healthy,
        healthy_link=None if healthy is None or damage is None else damage.links,
    )


@dataclass(frozen=True, slots=True)
class _Changes:
    """Latencies that changes of a topology have added inside its nodes, and shares of rates that they have left."""

    link_s: float = 0.0
    switch_s: float = 0.0
    efficiency: float = 1.0
    in_network: float = 1.0

    @staticmethod
    def of(topology: Topology) -> _Changes:
        """Return the changes of a topology."""
        return _Changes(
            link_s=topology.excess("link.latency"),
            switch_s=topology.excess("switch.latency"),
            efficiency=topology.remainder("link.efficiency"),
            in_network=topology.remainder("switch.in_network_efficiency"),
        )


def _switches(wiring: Wiring) -> NDArray[np.bool_]:
    """Return bool[n_nodes]: whether a node is a switch."""
    return np.array([kind == "switch" for kind in wiring.node_kinds])


def memory_need_Bps(wiring: Wiring, gpus: Sequence[int] | Int) -> Float:
    """Return float64[n], the most that links can ask of the memory of each GPU.

    A byte that leaves a GPU is read there; one that arrives is written, and what it is added to is read.
    """
    out_Bps, in_Bps = (
        np.bincount(end, wiring.link_bandwidth_Bps, wiring.n_nodes)[gpus] for end in (wiring.link_src, wiring.link_dst)
    )
    return np.asarray(out_Bps + 2 * in_Bps)


def _memory_Bps(topology: Topology, gpus: list[int], kinds: list[tuple[Topology, list[int]]]) -> Float | None:
    """Return float64[n_ranks], the rate of the memory of each GPU; None if links bind before any of it.

    A memory whose rate nobody tells never binds.
    """
    rates_Bps = np.full(topology.n_gpus, np.inf)
    for kind, members in kinds:
        told = [fact.value for fact in kind.facts if fact.path == "gpu.memory_bandwidth"]
        rates_Bps[members] = told[0] if told else np.inf
    memory_Bps = rates_Bps[gpus]
    if (memory_Bps == np.inf).all() or (memory_Bps >= memory_need_Bps(topology.wiring, gpus)).all():
        return None
    return _readonly(memory_Bps)


def _node_in_network(topology: Topology, gpus: list[int]) -> str | None:
    """Return the reduction by switches inside nodes; None unless every node has two GPUs or more for them to serve."""
    kinds = {kind.wiring.coordinates.kind for kind, _ in topology.by_kind(gpus)}
    if topology.cluster is None or kinds != {"switched"}:
        return None
    per_node = np.bincount(topology.wiring.coordinates.node[gpus])
    return topology.reduction_for(gpus) if per_node[per_node > 0].min() > 1 else None


def _rank_faults(ranks: list[int], n_gpus: int, name: str) -> list[Fault]:
    """Return the faults of a list of GPU numbers: out of range, named twice, or fewer than two."""
    faults = [
        Fault(f"rank {rank} is out of range", "rank list", f"{name} has GPUs 0 to {n_gpus - 1}")
        for rank in ranks
        if not 0 <= rank < n_gpus
    ]
    faults += [
        Fault(f"GPU {rank} is named {times} times", "rank list", "name each GPU once")
        for rank, times in sorted(Counter(ranks).items())
        if times > 1
    ]
    if len(ranks) < 2:
        faults.append(Fault(f"{len(ranks)} ranks: a collective needs at least 2", "ranks"))
    return faults


def _readonly(array: NDArray[S]) -> NDArray[S]:
    array.setflags(write=False)
    return array
