"""Nodes in the formats of other programs: NCCL's XML, the matrix of nvidia-smi, a network of ASTRA-sim.

What a format does not hold is left out: rates of links, efficiencies and latencies in the first two, what the library
knows of GPUs in the last. What it holds is the same when it is imported again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from collsim.core.errors import Fault, UnknownNameError, UnsupportedError
from collsim.importing.bases import has_sockets, link_counts, switch_counts
from collsim.importing.nccl_xml import GPU_MODELS
from collsim.topology import Topology

__all__ = ["EXPORTS", "export_topology"]

GIB = 2**30


def export_topology(topology: Topology, form: str) -> str:
    """Return a node in a format of `EXPORTS`: ``nccl_topo``, ``nvidia_smi`` or ``astra_sim``.

    Raises
    ------
    UnknownNameError
        No such format.
    UnsupportedError
        The format cannot hold such a machine: clusters, cards behind sockets, irregular networks.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> print(export_topology(load_topology("mi300x_ubb8"), "astra_sim"), end="")
    topology: [ FullyConnected ]
    npus_count: [ 8 ]
    bandwidth: [ 59.6046447754 ]  # GB/s of 2^30 bytes
    latency: [ 500 ]  # ns
    """
    if form not in EXPORTS:
        raise UnknownNameError("format", form, EXPORTS, "form")
    if topology.cluster is not None:
        raise _unfit(f"{topology.name} is a cluster", "name a node, such as that of scale_out.node")
    if has_sockets(topology):
        what = f"GPUs of {topology.name} are joined by processors"
        raise _unfit(what, "only GPUs with links of their own can be told")
    return EXPORTS[form](topology)


def _unfit(what: str, hint: str) -> UnsupportedError:
    return UnsupportedError(Fault(what, "form", hint))


def _nccl_xml(topology: Topology) -> str:
    """Return what NCCL or RCCL would dump: links, adapters and their rate, the GPU by its PCI device."""
    model = topology.labels.get("gpu.model", "")
    tag = "xgmi" if "MI" in model else "nvlink"
    device = next((number for number, name in GPU_MODELS.items() if name and model.startswith(name)), "0x0000")
    direct, into = link_counts(topology, topology.n_gpus), switch_counts(topology)
    facts = {fact.path: fact.value for fact in topology.facts}
    shared, each = int(facts.get("nic.shared_by", 1)), int(facts.get("nic.per_gpu", 1))
    lines, number = ['<system version="1">', '  <cpu numaid="0">'], 0
    for first in range(0, topology.n_gpus, shared):
        lines.append(f'    <pci busid="{first:04x}:00:00.0" class="0x060400">')
        for gpu in range(first, min(first + shared, topology.n_gpus)):
            lines.append(f'      <pci busid="{gpu:04x}:01:00.0" class="0x030200" device="{device}">')
            lines.append(f'        <gpu dev="{gpu}" rank="{gpu}">')
            peers = [(a + b - gpu, count) for (a, b), count in direct.items() if gpu in (a, b)]
            lines += [f'          <{tag} target="{peer:04x}:01:00.0" count="{count}" tclass="0x030200"/>'
                      for peer, count in peers]  # fmt: skip
            lines += [f'          <{tag} target="{switch:04x}:02:00.0" count="{count}" tclass="0x068000"/>'
                      for switch, count in into[gpu].items()]  # fmt: skip
            lines += ["        </gpu>", "      </pci>"]
        for _ in range(each if "nic.bandwidth" in facts else 0):
            lines.append(f'      <pci busid="{number:04x}:0f:00.0" class="0x020700">')
            rate = round(facts["nic.bandwidth"] * 8 / 1e6)
            lines.append(f'        <nic><net name="nic{number}" dev="{number}" speed="{rate}" port="1"/></nic>')
            lines.append("      </pci>")
            number += 1
        lines.append("    </pci>")
    return "\n".join([*lines, "  </cpu>", "</system>", ""])


def _nvidia_smi(topology: Topology) -> str:
    """Return the matrix that ``nvidia-smi topo -m`` prints."""
    if "MI" in topology.labels.get("gpu.model", ""):
        raise _unfit(f"{topology.name} has no GPUs of NVIDIA", "nccl_topo holds them")
    n, direct, into = topology.n_gpus, link_counts(topology, topology.n_gpus), switch_counts(topology)
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(n)) + "\tCPU Affinity\tNUMA Affinity"]
    for a in range(n):
        counts = [direct.get((min(a, b), max(a, b)), 0) or sum(into[a].values()) for b in range(n)]
        cells = [" X " if a == b else f"NV{count}" if count else "SYS" for b, count in enumerate(counts)]
        rows.append(f"GPU{a}\t" + "\t".join(cells) + "\t0-63\t0")
    return "\n".join([*rows, ""])


def _astra_sim(topology: Topology) -> str:
    """Return a network of one dimension: fully connected, a ring, or a single switch, whose links are all alike."""
    wiring, n = topology.wiring, topology.n_gpus
    columns = (wiring.link_count, wiring.link_bandwidth_Bps, wiring.link_latency_s, wiring.link_efficiency)
    alike = all(len(np.unique(column)) == 1 for column in columns)
    kind = _kind(topology) if alike and wiring.n_links else ""
    if not kind:
        raise _unfit(f"{topology.name} is no single ring, switch or full mesh of equal links",
                     "ASTRA-sim holds these, one a dimension")  # fmt: skip
    rate = float(wiring.link_bandwidth_Bps[0]) / GIB
    latency = float(wiring.link_latency_s[0]) * 1e9
    rows = (("topology", kind, ""), ("npus_count", f"{n}", ""), ("bandwidth", f"{rate:.12g}", "  # GB/s of 2^30 bytes"),
            ("latency", f"{latency:.12g}", "  # ns"))  # fmt: skip
    return "".join(f"{key}: [ {value} ]{note}\n" for key, value, note in rows)


def _kind(topology: Topology) -> str:
    """Return the kind of dimension that a node is; empty for none."""
    wiring, n = topology.wiring, topology.n_gpus
    pairs = set(zip(wiring.link_src.tolist(), wiring.link_dst.tolist(), strict=True))
    if wiring.n_nodes == n + 1 and wiring.n_links == 2 * n and not float(wiring.node_latency_s[n]):
        return "Switch"
    if wiring.n_nodes == n and len(pairs) == n * (n - 1) and n > 1:
        return "FullyConnected"
    ring = {(gpu, (gpu + step) % n) for gpu in range(n) for step in (1, n - 1)}
    return "Ring" if wiring.n_nodes == n and pairs == ring else ""


EXPORTS: Mapping[str, Callable[[Topology], str]] = {
    "nccl_topo": _nccl_xml, "nvidia_smi": _nvidia_smi, "astra_sim": _astra_sim,
}  # fmt: skip
"""By the name of the format, as ``--kind`` of the import has them."""
