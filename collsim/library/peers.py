"""Peers in a node: who reaches whose memory, by the rules of NCCL (src/graph/paths.cc, ncclTopoCheckP2p)."""

from __future__ import annotations

from collections.abc import Sequence

from collsim.library.environment import Environment
from collsim.library.system import cpu_vendor_of
from collsim.topology import Topology
from collsim.topology.peers import LEVELS, host_Bps, meet_in_sockets

__all__ = ["peer_level", "peer_words"]

USUAL = "PXB"
"""Not across a socket, unless the user wants it."""
PAIR = 2
"""Two GPUs alone reach each other at any distance on hosts of AMD."""
WITHOUT_ACCESS = ("GeForce", "RTX 40", "RTX 50")
"""Cards whose driver gives no access to the memory of others (forums.developer.nvidia.com, RTX 4090 and 5090)."""
AMD_GPUS = ("MI", "Instinct")
"""GPUs with another library, which reaches any peer."""
WORDS = {
    "LOC": "no GPU reaches the memory of another (no P2P): all copy through shared memory of the host (SHM)",
    "NVL": "only GPUs with links of their own reach each other's memory (P2P), others copy through the host's (SHM)",
    "PIX": "GPUs of one PCIe switch reach each other's memory (P2P), others copy through the host's (SHM)",
    "PXB": "GPUs of one tree of PCIe switches reach each other's memory (P2P), others copy through the host's (SHM)",
    "PHB": "GPUs of one socket reach each other's memory (P2P), others copy through the host's (SHM)",
    "SYS": "all GPUs reach each other's memory (P2P), also from socket to socket",
}


def peer_level(topology: Topology, ranks: Sequence[int], environment: Environment) -> str:
    """Return up to which distance the GPUs of a run reach each other's memory; empty where no socket is between any."""
    model, cpu = topology.labels.get("gpu.model", ""), topology.labels.get("cpu.model", "")
    if model.startswith(AMD_GPUS):
        return ""
    if not meet_in_sockets(topology):
        off = environment.peer_level == LEVELS[0] and _share_hosts(topology, ranks)
        return LEVELS[0] if off and host_Bps(topology) else ""
    if any(part in model for part in WITHOUT_ACCESS):
        return "NVL" if environment.peer_level != LEVELS[0] else LEVELS[0]
    if environment.peer_level:
        return environment.peer_level
    return LEVELS[-1] if len(ranks) <= PAIR and cpu_vendor_of(cpu) == "amd" else USUAL


def _share_hosts(topology: Topology, ranks: Sequence[int]) -> bool:
    """Return True if two ranks are on one host, of equal hosts of which nothing failed."""
    cluster = topology.cluster
    if cluster is None:
        return len(ranks) > 1
    hosts = {gpu // cluster.node.n_gpus for gpu in ranks}
    return len(hosts) < len(ranks) and len(cluster.kinds) == 1 and topology.damage is None


def peer_words(level: str) -> str:
    """Return how GPUs exchange, as a sentence; empty where no socket is between them."""
    return WORDS.get(level, "")
