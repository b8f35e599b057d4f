"""Peers without links of their own: how far apart GPUs are, and the wiring that those without peer access see.

GPUs that do not reach each other's memory exchange through buffers that their hosts share (NCCL src/transport/shm.cc):
one writes into the memory of the receiver's socket, the other reads from there. Every byte then takes the ports of both
GPUs, as between peers, but passes no switch without going up to the socket, and crosses its memory twice. Kernels read
that memory line by line, and on some hosts far below the rate of the port; how fast is a figure of the topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collsim.topology.builders import assemble
from collsim.topology.labels import MEMORY_FACT, READ_FACT
from collsim.topology.model import Topology
from collsim.topology.wiring import LinkBundles, Wiring

__all__ = ["LEVELS", "host_Bps", "meet_in_sockets", "sockets", "staged"]

LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
"""Distances of GPUs under NCCL's names: none, linked, one PCIe switch, several, one socket, two."""
MEMORY_BPS = ((40e9, 204.8e9), (np.inf, 307.2e9))
"""Memory of a socket where a file says nothing, by the most that a port has: hosts with PCIe 4 come with eight channels
of DDR4-3200, those with PCIe 5 with eight of DDR5-4800 or more (assumed)."""


SOCKET_LINKS_BPS = 192e9
"""Between two sockets: three links of 64 GB/s, as topologies/pcie_gen5_8gpu.yaml has them (assumed)."""
HOST_LATENCY_S, HOST_EFFICIENCY = 150e-9, 0.88
"""Of a bus to the host, and of a root complex, as there (assumed; the efficiency is measured on PCIe 5 x16)."""


def meet_in_sockets(topology: Topology) -> bool:
    """Return True if GPUs of one node have sockets between them."""
    return topology.cluster is None and "cpu" in topology.wiring.node_kinds


def sockets(wiring: Wiring, gpus: Sequence[int]) -> list[int]:
    """Return the socket of each GPU, the nearest on its way up; -1 where it has none.

    >>> from collsim.topology import load_topology
    >>> wiring = load_topology("pcie_gen5_8gpu").wiring
    >>> [wiring.node_names[node] for node in sockets(wiring, [0, 3, 4])]
    ['cpu0', 'cpu0', 'cpu1']
    """
    return [_socket(wiring, gpu) for gpu in gpus]


def _socket(wiring: Wiring, gpu: int) -> int:
    """Return the nearest socket of a GPU."""
    seen, here = {gpu}, [gpu]
    while here:
        after = sorted({int(node) for node in wiring.link_dst[np.isin(wiring.link_src, here)]} - seen)
        found = [node for node in after if wiring.node_kinds[node] == "cpu"]
        if found:
            return found[0]
        here = [node for node in after if wiring.node_kinds[node] != "gpu"]
        seen.update(here)
    return -1


def staged(topology: Topology, level: str) -> Topology:
    """Return the machine as its GPUs see it that reach the memory of others up to a distance of `LEVELS`.

    What is farther apart goes through the memory of the receiver's socket. Parts that bytes pass on the way up and
    again on the way down stand there twice, so that none turns round before it has been in that memory.
    """
    if level == LEVELS[0] and topology.cluster is not None:
        return _of_staged_nodes(topology)
    if level == LEVELS[0] and not meet_in_sockets(topology):
        topology = _on_host(topology)
    if level in ("", LEVELS[-1]) or not meet_in_sockets(topology):
        return topology
    wiring = topology.wiring
    facts = {fact.path: fact.value for fact in topology.facts}
    port_Bps = float(wiring.link_bandwidth_Bps[wiring.link_src < wiring.n_gpus].min())
    usual_Bps = next(memory_Bps for most_Bps, memory_Bps in MEMORY_BPS if port_Bps <= most_Bps)
    plan = _Plan(wiring, level, float(facts.get(MEMORY_FACT, usual_Bps)), float(facts.get(READ_FACT, np.inf)))
    return replace(topology, wiring=plan.wiring())


def _of_staged_nodes(topology: Topology) -> Topology:
    """Return a cluster of equal nodes whose GPUs meet in the memory of their hosts; adapters stay beside their GPUs."""
    from collsim.topology.cluster.scale_out import build_cluster

    cluster = topology.cluster
    assert cluster is not None
    node = staged(cluster.node, LEVELS[0])
    return replace(build_cluster(replace(node, facts=topology.facts), cluster.spec, cluster.plan), title=topology.title)


def host_Bps(topology: Topology) -> float:
    """Return the rate of the bus that joins a GPU of a node to its host; 0 where the file has no adapters to tell it.

    A GPU and the adapters beside it are of one generation of PCIe.
    """
    from collsim.topology.cluster.scale_out import bus_rate_Bps

    facts = {fact.path: fact for fact in topology.facts}
    return bus_rate_Bps(facts) if "nic.bandwidth" in facts else 0.0


def _on_host(topology: Topology) -> Topology:
    """Return a node without its links between GPUs: half of them on each of two sockets, as servers have them."""
    gpus, rate_Bps = topology.n_gpus, host_Bps(topology)
    numbers = np.arange(gpus)
    sockets_of = gpus + (numbers >= (gpus + 1) // 2)
    src = np.concatenate([numbers, sockets_of, [gpus, gpus + 1]])
    dst = np.concatenate([sockets_of, numbers, [gpus + 1, gpus]])
    rates = np.concatenate([np.full(2 * gpus, rate_Bps), np.full(2, SOCKET_LINKS_BPS)])
    latency_s, efficiency = np.full(len(src), HOST_LATENCY_S), np.full(len(src), HOST_EFFICIENCY)
    bundles = LinkBundles(src, dst, np.ones(len(src), dtype=np.int64), rates, latency_s, efficiency)
    names = (*topology.wiring.node_names[:gpus], "cpu0", "cpu1")
    wiring = assemble(names, gpus, np.full(gpus + 2, HOST_LATENCY_S), bundles, forwarders=("cpu", "cpu"))
    labels = {**topology.labels, "link.type": "PCIe"}
    return replace(topology, wiring=wiring, labels=labels, in_network_reduction=None)


class _Plan:
    """Nodes and bundles of a staged wiring."""

    def __init__(self, wiring: Wiring, level: str, memory_Bps: float, read_Bps: float) -> None:
        self.old, self.level, self.memory_Bps, self.read_Bps = wiring, level, memory_Bps, read_Bps
        kinds = wiring.node_kinds
        self.cpus = [node for node, kind in enumerate(kinds) if kind == "cpu"]
        split = [] if level not in ("LOC", "NVL") else [node for node, kind in enumerate(kinds) if kind == "switch"]
        self.names, self.kinds = list(wiring.node_names), list(kinds)
        self.latency_s = list(wiring.node_latency_s)
        self.down = {node: self._node(f"{wiring.node_names[node]}.out", node) for node in (*self.cpus, *split)}
        self.memory = {node: self._node(f"{wiring.node_names[node]}.memory", node, 0.0) for node in self.cpus}
        self.rows: list[tuple[int, int, int, float, float, float]] = []

    def _node(self, name: str, like: int, latency_s: float | None = None) -> int:
        """Add a node and return its number."""
        self.names.append(name)
        self.kinds.append(self.old.node_kinds[like])
        self.latency_s.append(float(self.old.node_latency_s[like]) if latency_s is None else latency_s)
        return len(self.names) - 1

    def wiring(self) -> Wiring:
        """Return the whole."""
        old = self.old
        for link in range(old.n_links):
            a, b = int(old.link_src[link]), int(old.link_dst[link])
            for src, dst in self._ends(a, b):
                columns = old.link_bandwidth_Bps, old.link_latency_s, old.link_efficiency
                figures = [float(column[link]) for column in columns]
                if old.node_kinds[a] == "cpu" != old.node_kinds[b]:
                    figures[0] = min(figures[0], self._read_Bps(b) / int(old.link_count[link]) / figures[2])
                self.rows.append((src, dst, int(old.link_count[link]), *figures))  # type: ignore[arg-type]
        for cpu in self.cpus:
            half_Bps = self.memory_Bps / 2  # what is written is read again
            self.rows.append((cpu, self.memory[cpu], 1, half_Bps, 0.0, 1.0))
            self.rows.append((self.memory[cpu], self.down[cpu], 1, half_Bps, 0.0, 1.0))
            if self.level == "PHB":  # peers of one socket turn round in it
                self.rows.append((cpu, self.down[cpu], 1, 1e3 * self.memory_Bps, 0.0, 1.0))
        return self._assembled()

    def _read_Bps(self, below: int) -> float:
        """Return what the GPU, or all those that are linked to the switch, *below* a socket read of its memory."""
        return self.read_Bps * max(int((self.old.link_dst[self.old.link_src == below] < self.old.n_gpus).sum()), 1)

    def _ends(self, a: int, b: int) -> list[tuple[int, int]]:
        """Return between which nodes a bundle leads now: up to a socket, or down from it."""
        kinds = self.old.node_kinds
        if kinds[a] == kinds[b] == "gpu":
            return [] if self.level == "LOC" else [(a, b)]
        if kinds[a] == kinds[b] == "cpu":
            return [(a, self.memory[b])]  # into the receiver's memory
        if kinds[a] == "cpu":
            return [(self.down[a], self.down.get(b, b))]
        if kinds[b] == "gpu":
            return [(self.down.get(a, a), b)]
        if kinds[a] == kinds[b] == "switch" and a in self.down:
            return [(a, b), (self.down[a], self.down[b])]
        return [(a, b)]

    def _assembled(self) -> Wiring:
        """Return the wiring of the nodes and rows."""
        columns = np.array(self.rows, dtype=np.float64).T
        src, dst, parallel = (columns[index].astype(np.int64) for index in range(3))
        bundles = LinkBundles(src, dst, parallel, columns[3].copy(), columns[4].copy(), columns[5].copy())
        n_gpus, latency_s = self.old.n_gpus, np.array(self.latency_s)
        return assemble(tuple(self.names), n_gpus, latency_s, bundles, forwarders=tuple(self.kinds[n_gpus:]))
