"""The shipped system whose figures an imported machine takes: links, GPUs, adapters.

Files of other programs count links but hold no rates. What a GPU is follows from what the file says of it, else from
how many links it has; both are printed as assumptions, and ``--like`` overrides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collsim.core.errors import UnknownNameError
from collsim.importing.machine import Ask, Machine, plural
from collsim.topology.loader import load_topology
from collsim.topology.zoo import zoo_names

if TYPE_CHECKING:
    from collsim.topology.model import Topology

__all__ = ["Base", "adapter_count", "adapters_of", "base_of", "has_sockets", "link_counts", "switch_counts"]

PCIE4, PCIE5 = "l40s_8gpu", "pcie_gen5_8gpu"
PCIE5_FROM_BPS = 40e9
MOST_DIRECT = 18
"""Links of a GPU up to now, Rubin's 36 into switches apart: more than this between all pairs passes switches."""
UPLINKS = {6: "dgx2_v100", 8: "hgx_h800", 12: "dgx_a100", 18: "hgx_h100", 36: "vr200_nvl144"}
"""Links of a GPU into switches, and who has so many; Blackwell has 18 as Hopper has, of twice the rate."""
DIRECT = ((6, "dgx1_v100"), (12, "dgx_a100"), (18, "hgx_h100"))
"""Most direct links of a GPU, and the generation that has so many."""
KNOWN = (
    ("V100", "dgx1_v100"), ("A10G", PCIE4), ("A100 PCIe", "dgx_a100"), ("A100", "dgx_a100"), ("H100", "hgx_h100"),
    ("H200", "hgx_h200"), ("H20", "hgx_h20"), ("B200", "hgx_b200"), ("B300", "hgx_b300"), ("MI210", "mi250x_node"),
    ("MI250X", "mi250x_node"), ("MI300", "mi300x_ubb8"), ("MI355X", "mi355x_ubb8"),
)  # fmt: skip
"""Part of a GPU's name, and the system with its links."""
OLD_XGMI = ("MI50", "MI100")
"""GPUs that no shipped system has."""
MANY_GCDS = 16


UNKNOWN_PCIE = "GPUs on PCIe; generation 4 is assumed, --like pcie_gen5_8gpu is generation 5"
MOST_OF_CARDS = 2
"""Links of a bridge between two cards for desks; two V100 have more between them, or others beside them."""


@dataclass(frozen=True, slots=True)
class Base:
    """The system whose figures hold, how the GPU is called, and why.

    An empty *model* is that of the system, unless the GPU is *unnamed*: then only its links are taken.
    *keeps_wiring* says that the links, too, are those of the system: the file does not tell them.
    """

    topology: Topology
    model: str
    why: str
    status: str
    keeps_wiring: bool = False
    unnamed: bool = False

    @property
    def gpu(self) -> str:
        """What the GPU is called; empty if nobody knows."""
        return self.model or ("" if self.unnamed else self.topology.labels.get("gpu.model", ""))

    @property
    def name(self) -> str:
        """Name of the system."""
        return self.topology.name

    @property
    def facts(self) -> Mapping[str, tuple[str, str, str]]:
        """Text, status and source of every figure by its path."""
        return {fact.path: (fact.text, fact.status, fact.source) for fact in self.topology.facts}


def base_of(machine: Machine, ask: Ask) -> Base | None:
    """Return whose figures *machine* takes: of the system that is named, if one is; None if it cannot be told."""
    kind = machine.model or machine.architecture
    if ask.like is not None:
        return _named(machine, ask.like, ask)
    if machine.n_gpus > 1 and not machine.has_links:
        return _on_pcie(machine, kind) if machine.tells_links else _by_name_only(machine, ask)
    if machine.n_gpus == 1 and not kind and not machine.is_grace:
        return Base(load_topology(PCIE4), "", "one GPU, of which the file says nothing", "assumed", unnamed=True)
    if kind and (name := _known(machine, kind)):
        return Base(load_topology(name), kind, f"the file says that the GPUs are {kind}", "derived")
    if machine.is_amd:
        return _amd(machine)
    return _by_uplinks(machine, ask) if machine.uplinks else _by_links(machine, ask)


def _on_pcie(machine: Machine, kind: str) -> Base:
    """Return the base of GPUs without links of their own."""
    name = PCIE5 if (machine.bus_Bps or 0.0) > PCIE5_FROM_BPS else PCIE4
    why = "GPUs on PCIe, as fast as in the file" if machine.bus_Bps else UNKNOWN_PCIE
    return Base(load_topology(name), kind, why, "assumed", unnamed=True)


def _known(machine: Machine, kind: str) -> str:
    """Return the system that has GPUs of a *kind*; empty if none has."""
    name = next((name for part, name in KNOWN if part in kind), "")
    if name == "mi250x_node" and machine.n_gpus >= MANY_GCDS:
        return "mi250x_8oam"
    if name == "dgx1_v100" and machine.uplinks:
        return "dgx2_v100"
    return name


def _by_uplinks(machine: Machine, ask: Ask) -> Base | None:
    """Return the base of NVIDIA's GPUs by their number of links into switches."""
    name = UPLINKS.get(machine.uplinks, "")
    if not name:
        near = min(UPLINKS, key=lambda count: abs(count - machine.uplinks))
        what = f"{plural(machine.uplinks, 'link')} of a GPU into switches: no shipped system has so many"
        ask.fault(what, f"the nearest is {UPLINKS[near]} with {near}; name one with --like")
        return None
    why = f"{machine.uplinks} NVLinks per GPU into switches"
    if machine.uplinks == UPLINKS_OF_TWO and machine.is_grace:
        return Base(load_topology("gb200_nvl72"), "", f"{why}, and memory nodes of GPUs: Grace Blackwell", "assumed")
    if machine.uplinks == UPLINKS_OF_TWO:
        why += ": Hopper is assumed; Blackwell has as many, of twice the rate: --like hgx_b200"
    return Base(load_topology(name), "", why, "assumed")


def _by_links(machine: Machine, ask: Ask) -> Base | None:
    """Return the base of NVIDIA's GPUs by their number of links to each other."""
    most = max(machine.links_per_gpu)
    name = next((name for count, name in DIRECT if most <= count), "")
    if not name:
        what = f"{plural(most, 'link')} of one GPU to others: no GPU has so many"
        ask.fault(what, f"at most {MOST_DIRECT}; name a system with --like")
        return None
    if machine.n_gpus == 1:
        why = "memory nodes of GPUs: Grace Hopper is assumed"
        return Base(load_topology("gh200_nvl32"), "", why, "assumed")
    if machine.n_gpus == 2 and most <= MOST_OF_CARDS:
        why = f"a bridge of {plural(most, 'NVLink')} between two cards: links of the second generation are assumed"
        return Base(load_topology(name), "", why, "assumed", unnamed=True)
    model, bridged = "", not machine.reaches_all
    if name == "dgx_a100" and bridged:
        model = "A100 PCIe"
    elif name == "hgx_h100" and machine.is_grace:
        name = "gh200_nvl32"
    bridge = " in bridged groups" if bridged else ""
    return Base(load_topology(name), model, f"{plural(most, 'NVLink')} per GPU{bridge}, from GPU to GPU", "assumed")


UPLINKS_OF_TWO = 18
"""Hopper and Blackwell both have so many."""


def _amd(machine: Machine) -> Base:
    """Return the base of AMD's GPUs that nothing but their links tells apart."""
    kind = machine.model or machine.architecture
    if kind:  # no shipped system has them
        return Base(load_topology("mi250x_node"), kind, f"the file says that the GPUs are {kind}", "derived")
    if not machine.reaches_all:
        return Base(
            load_topology("mi250x_node"), "Instinct MI210", "bridged groups of PCIe cards: MI210 is assumed", "assumed"
        )
    own_numa = len(set(machine.numa)) == machine.n_gpus
    if 1 < machine.n_gpus <= 4 and own_numa:
        why = "four GPUs with a NUMA node each: MI300A is assumed"
        return Base(load_topology("mi300x_ubb8"), "Instinct MI300A", why, "assumed")
    why = "a full mesh of xGMI: MI300X is assumed; MI350X and MI355X have 76.8 GB/s per link: --like mi355x_ubb8"
    return Base(load_topology("mi300x_ubb8"), "", why, "assumed")


def _named(machine: Machine, like: str, ask: Ask) -> Base | None:
    """Return the base that the user names, if the machine can be one."""
    if not isinstance(like, str) or like not in zoo_names():
        ask.faults.extend(UnknownNameError("topology", f"{like!s:.60}", zoo_names(), "like").faults)
        return None
    topology = load_topology(like)
    if machine.n_gpus > 1 and not machine.has_links and not has_sockets(topology):
        if machine.n_gpus > topology.n_gpus:
            what = f"{plural(machine.n_gpus, 'GPU')}, more than the {topology.n_gpus} of {like}"
            ask.fault(what, "name a system that is as large", "like")
            return None
        return Base(topology, "", f"links as --like {like} has them", "set", keeps_wiring=True)
    has = _uplinks(topology)
    if machine.uplinks and has != machine.uplinks:
        what = f"{like} has {plural(has, 'link')} of a GPU into switches, the file {machine.uplinks}"
        alike = [name for name in zoo_names() if _uplinks(load_topology(name)) == machine.uplinks]
        ask.fault(what, f"systems with {machine.uplinks}: {', '.join(alike) or 'none'}", "like")
        return None
    return Base(topology, "", f"named with --like {like}", "set")


def _by_name_only(machine: Machine, ask: Ask) -> Base | None:
    """Return the base of GPUs whose links the file leaves out, by their name."""
    kind = machine.model
    name = _known(machine, kind) if kind else ""
    if name and "PCIe" not in kind and machine.n_gpus <= load_topology(name).n_gpus:
        why = f"the file leaves out links between GPUs; those of {name} are assumed, since the GPUs are {kind}"
        machine.notes.append(why)
        return Base(load_topology(name), kind, why, "assumed", keeps_wiring=True)
    if kind and "PCIe" in kind:
        return Base(load_topology(PCIE4), kind, f"the file says that the GPUs are {kind}", "derived")
    what = f"{'; '.join(machine.read)}: the file does not tell their links"
    hint = (
        "nvidia-smi topo -m shows them (-mp does not), and so does NCCL_TOPO_DUMP_FILE (files for NCCL_TOPO_FILE do "
        "not); or name the machine: --like dgx_a100, or --like pcie_gen5_8gpu if there are none"
    )
    ask.fault(what, hint)
    return None


def _uplinks(topology: Topology) -> int:
    """Return the links of a GPU into switches."""
    return max(sum(row.values()) for row in switch_counts(topology))


def has_sockets(topology: Topology) -> bool:
    """Return True if GPUs of a system are joined over PCIe."""
    return "cpu" in topology.wiring.node_kinds


def adapters_of(topology: Topology) -> tuple[int, int]:
    """Return how many GPUs share adapters, and how many adapters these have; one where no file says how many."""
    facts = {fact.path: fact.value for fact in topology.facts}
    return int(facts.get("nic.shared_by", 1)), int(facts.get("nic.per_gpu", 1))


def adapter_count(topology: Topology, n_gpus: int) -> int:
    """Return the adapters of so many GPUs of a system, at least one."""
    shared, each = adapters_of(topology)
    return max(1, round(n_gpus * each / shared))


def link_counts(topology: Topology, n_gpus: int) -> dict[tuple[int, int], int]:
    """Return the direct links between each pair of the first GPUs of a system."""
    wiring = topology.wiring
    rows = zip(wiring.link_src.tolist(), wiring.link_dst.tolist(), wiring.link_count.tolist(), strict=True)
    return {(src, dst): count for src, dst, count in rows if src < dst < n_gpus}


def switch_counts(topology: Topology) -> list[dict[int, int]]:
    """Return the links from each GPU to each switch of a system."""
    wiring = topology.wiring
    found: list[dict[int, int]] = [{} for _ in range(wiring.n_gpus)]
    for src, dst, count in zip(
        wiring.link_src.tolist(), wiring.link_dst.tolist(), wiring.link_count.tolist(), strict=True
    ):
        if src < wiring.n_gpus <= dst and wiring.node_kinds[dst] == "switch":
            found[src][dst] = count
    return found
