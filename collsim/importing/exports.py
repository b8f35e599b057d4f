"""Nodes in the formats of other programs: NCCL's XML, the matrix of nvidia-smi, a network of ASTRA-sim.

What a format does not hold is left out: rates of links, efficiencies and latencies in the first two, what the library
knows of GPUs in the last. What it holds is the same when it is imported again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from collsim.core.errors import Fault, UnknownNameError, UnsupportedError
from collsim.importing.bases import adapters_of, has_sockets, link_counts, switch_counts
from collsim.importing.dimensions import dimensions_of
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
    shared, each = _adapters(topology)
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
        for _ in range(each):
            lines.append(f'      <pci busid="{number:04x}:0f:00.0" class="0x020700">')
            rate = round(topology.fact("nic.bandwidth").value * 8 / 1e6)
            lines.append(f'        <nic><net name="nic{number}" dev="{number}" speed="{rate}" port="1"/></nic>')
            lines.append("      </pci>")
            number += 1
        lines.append("    </pci>")
    return "\n".join([*lines, "  </cpu>", "</system>", ""])


def _adapters(topology: Topology) -> tuple[int, int]:
    """Return how many GPUs share adapters, and how many adapters these have; none of a node whose file says nothing."""
    shared, each = adapters_of(topology)
    return shared, each if any(fact.path == "nic.bandwidth" for fact in topology.facts) else 0


def _nvidia_smi(topology: Topology) -> str:
    """Return the matrix that ``nvidia-smi topo -m`` prints, with adapters behind one PCIe switch with their GPUs."""
    if "MI" in topology.labels.get("gpu.model", ""):
        raise _unfit(f"{topology.name} has no GPUs of NVIDIA", "nccl_topo holds them")
    n, direct, into = topology.n_gpus, link_counts(topology, topology.n_gpus), switch_counts(topology)
    shared, each = _adapters(topology)
    homes = [first // shared for first in range(0, n, shared) for _ in range(each)]
    names = [*(f"GPU{gpu}" for gpu in range(n)), *(f"NIC{number}" for number in range(len(homes)))]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for a in range(n):
        counts = [direct.get((min(a, b), max(a, b)), 0) or sum(into[a].values()) for b in range(n)]
        cells = [" X " if a == b else f"NV{count}" if count else "SYS" for b, count in enumerate(counts)]
        cells += ["PIX" if a // shared == home else "SYS" for home in homes]
        rows.append(f"GPU{a}\t" + "\t".join(cells) + "\t0-63\t0")
    for number, home in enumerate(homes):
        cells = ["PIX" if gpu // shared == home else "SYS" for gpu in range(n)]
        cells += [" X " if other == number else "PIX" if at == home else "SYS" for other, at in enumerate(homes)]
        rows.append(f"NIC{number}\t" + "\t".join(cells))
    return "\n".join([*rows, ""])


def _astra_sim(topology: Topology) -> str:
    """Return a network whose dimensions are rings, switches and full meshes, each of links that are alike."""
    found = dimensions_of(topology)
    if not found:
        raise _unfit(f"{topology.name} is no product of rings, switches and full meshes of equal links",
                     "ASTRA-sim holds these, one a dimension")  # fmt: skip
    rows = (
        ("topology", [each.kind for each in found], ""),
        ("npus_count", [f"{each.size}" for each in found], ""),
        ("bandwidth", [f"{each.rate_Bps / GIB:.12g}" for each in found], "  # GB/s of 2^30 bytes"),
        ("latency", [f"{each.latency_s * 1e9:.12g}" for each in found], "  # ns"),
    )
    return "".join(f"{key}: [ {', '.join(values)} ]{note}\n" for key, values, note in rows)


EXPORTS: Mapping[str, Callable[[Topology], str]] = {
    "nccl_topo": _nccl_xml, "nvidia_smi": _nvidia_smi, "astra_sim": _astra_sim,
}  # fmt: skip
"""By the name of the format, as ``--kind`` of the import has them."""
