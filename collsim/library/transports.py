"""Transports between nodes: what variables of the environment make of the path from a GPU to the network.

GPUDirect is the usual path: the adapter reads the GPU's memory over their PCIe switch. The variables here take another
one, which changes figures of the cluster; the library's choice of algorithm does not look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collsim.library.calls import MESSAGE_OPS
from collsim.library.environment import TRANSPORTS
from collsim.topology import Topology
from collsim.topology.cluster.adapter_paths import with_adapter_paths
from collsim.topology.cluster.bonds import bond_share
from collsim.topology.cluster.spec import ClusterSpec

__all__ = ["on_transport"]

SOCKET_BPS = 4.7e9
"""What TCP sockets carry for each adapter, through the memory of the host and a proxy thread. Measured: 4.6 and 5.2
GB/s on one 100 Gb/s adapter (zarzen/nccl-tests, p3dn logs), 9.0 GB/s on two of 200 Gb/s (argonne-lcf/alcf-nccl-tests,
Polaris without the libfabric plug-in). More sockets or threads are not modelled."""
SOCKET_LATENCY_S = 8e-6
"""What the kernel and the copy add at each adapter. Assumed: an all-gather of two Polaris nodes takes 53 us over
sockets and 21 us over libfabric."""
BOUNCES = 2
"""Through the memory of the host each byte crosses the bus of its PCIe switch twice per direction when a node sends and
receives at once: in from the GPU, out to the adapter. Derived; memory and sockets may cost more."""
BOUNCE_LATENCY_S = 4e-6
"""Of a message through the memory of the host, at each adapter; assumed."""
RELAYS = ("NCCL_PXN_DISABLE", "NCCL_P2P_PXN_LEVEL")
"""They turn relays off in the schedules of a library, and here on the ways of messages (NCCL src/graph/paths.cc,
ncclPxnDisable; level 0 in src/transport/net.cc; -2 is unset)."""
NAMES = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME")
"""Which adapters carry data: of RDMA, and of TCP (NCCL src/transport/net_ib and src/transport/net_socket.cc)."""
DRIVERS = {"mlx4", "mlx5"}
"""Of NVIDIA's adapters; as a prefix, all of them."""
GDR_OFF = ("LOC", "0")
"""Levels at which no adapter is near enough to a GPU (NCCL src/graph/paths.cc, ncclTopoCheckGdr)."""


def on_transport(topology: Topology, variables: Mapping[str, str | int], ops: Iterable[str] = MESSAGE_OPS) -> Topology:
    """Return a cluster as the transport of *variables* uses it; itself if none of them changes the path
    of *ops*, operations by name.

    Read are ``NCCL_IB_DISABLE=1`` and ``NCCL_NET=Socket`` (TCP), ``NCCL_NET_GDR_LEVEL=LOC`` (through the memory of the
    host), ``NCCL_IB_QPS_PER_CONNECTION`` (bonded ports, ``nic.ports``, and flows that ECMP hashes), and
    ``NCCL_PXN_DISABLE=1`` and ``NCCL_P2P_PXN_LEVEL=0`` (no GPU passes on what is for another rail); ``NCCL_IB_HCA``,
    over TCP ``NCCL_SOCKET_IFNAME`` (fewer adapters than the node has). Clusters whose nodes differ stay as they are.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> cluster = load_topology("hgx_h100", scale_out={"nodes": 2})
    >>> slow = on_transport(cluster, {"NCCL_NET": "Socket"})
    >>> round(slow.cluster.spec.nic_rate_Bps / 1e9, 1), on_transport(cluster, {}) is cluster
    (4.8, True)
    """
    relays = RELAYS if set(ops).intersection(MESSAGE_OPS) else ()  # rings and trees keep to their rails
    set_here = {name: str(variables[name]).strip() for name in (*TRANSPORTS, *relays) if name in variables}
    if topology.damage is not None and set_here:
        from collsim.topology.failures.degrade import damaged

        healthy = on_transport(topology.damage.healthy, variables, ops)
        return damaged(healthy, topology.damage.fail, topology.damage.degrade)
    if topology.cluster is None or not set_here or len(topology.cluster.kinds) > 1:
        return topology
    figures = _figures(topology, set_here)
    told = ", ".join(f"{name}={value}" for name, value in set_here.items())
    return with_adapter_paths(topology, figures, told) if figures else topology


def named_adapters(text: str) -> int | None:
    """Return how many adapters a list of names leaves; None if it does not say, as a prefix or what is left out do not.

    A name ends with its number, as those of the kernel do (``mlx5_0``, ``eth1``, ``ens2f0np0``), unless it is a
    driver's; ports do not count.

    >>> [named_adapters(text) for text in ("=mlx5_0,mlx5_3:1", "mlx5", "^mlx5_1", "")]
    [2, None, None, None]
    """
    names = {name.strip().partition(":")[0] for name in text.strip().lstrip("=").split(",") if name.strip()}
    if not names or text.strip().startswith("^") or names & DRIVERS or not all(name[-1:].isdecimal() for name in names):
        return None
    return len(names)


def _fewer(spec: ClusterSpec, adapters: int | None) -> dict[str, float]:
    """Return the figures of nodes that use so many of their adapters, if GPUs can share these evenly."""
    if adapters is None or adapters >= spec.node_nics or spec.nics_per_gpu > 1 or spec.node_gpus % adapters:
        return {}
    return {"gpus_per_nic": spec.node_gpus // adapters, "rails": min(spec.rails, adapters)}


def _figures(topology: Topology, set_here: Mapping[str, str]) -> dict[str, float]:
    """Return the figures of the cluster that the variables change."""
    assert topology.cluster is not None
    spec = topology.cluster.spec
    off = set_here.get(RELAYS[0], "0") not in ("0", "-2") or set_here.get(RELAYS[1]) == "0"
    figures: dict[str, float] = {"relays": False} if off and spec.fabric in ("rail", "rail_only") else {}
    over_tcp = set_here.get("NCCL_IB_DISABLE") == "1" or set_here.get("NCCL_NET", "").lower() == "socket"
    figures |= _fewer(spec, named_adapters(set_here.get(NAMES[over_tcp], "")))
    if over_tcp:
        rate_Bps = min(spec.nic_rate_Bps, SOCKET_BPS / spec.efficiency)
        return {**figures, "nic_rate_Bps": rate_Bps, "nic_latency_s": spec.nic_latency_s + SOCKET_LATENCY_S}
    if set_here.get("NCCL_NET_GDR_LEVEL", "").upper() in GDR_OFF:
        figures["bus_rate_Bps"] = spec.bus_rate_Bps / BOUNCES
        figures["nic_latency_s"] = spec.nic_latency_s + BOUNCE_LATENCY_S
        if spec.gpus_per_nic > 1:  # they share its slot
            slot_Bps = figures["bus_rate_Bps"] * spec.bus_efficiency / spec.efficiency
            figures["nic_rate_Bps"] = min(spec.nic_rate_Bps, slot_Bps)
    ports = next((int(fact.value) for fact in topology.facts if fact.path == "nic.ports"), 1)
    pairs = int(set_here.get("NCCL_IB_QPS_PER_CONNECTION", "1"))
    if ports > 1 and pairs > 1:
        figures["nic_rate_Bps"] = (
            figures.get("nic_rate_Bps", spec.nic_rate_Bps) * bond_share(ports, pairs) / bond_share(ports, 1)
        )
    if pairs > 1 and spec.routing == "ecmp":
        figures["flows_per_pair"] = spec.flows_per_pair * pairs  # each queue pair has a port, and a hash, of its own
    return figures
