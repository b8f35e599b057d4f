"""The topology file of an imported machine: on top of a shipped system that is wired so, else written out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from collsim.importing.bases import (
    OLD_XGMI,
    PCIE4,
    PCIE5,
    Base,
    adapter_count,
    has_sockets,
    link_counts,
    switch_counts,
)
from collsim.importing.machine import Adapter, Assumption, Machine, gpu_list, plural
from collsim.importing.pcie_layout import pcie_nodes
from collsim.topology.loader import load_topology

__all__ = ["Written", "write_machine"]

DIRECT = "dgx1_v100"
"""Links from GPU to GPU have the latency of this system's, those into switches that of their own."""
MI100_LINKS = {
    "bandwidth": ("46 GB/s", "derived", "AMD MI100 microarchitecture (ROCm documentation), 16 lanes at 23 GT/s"),
    "efficiency": ("0.52", "derived", "RCCL topo.h, VEGA_XGMI_WIDTH of 24 of 46 GB/s"),
    "latency": ("500 ns", "assumed", "no public figure found; as mi300x_ubb8"),
}
"""Links of GPUs before the MI200, which no shipped system has; those of the MI50 are taken to be as fast."""
MI300A_PAIR = 2
SOCKET_LINKS = ", count: 3, bandwidth: 64 GB/s, efficiency: 0.75"
"""Between processors, as topologies/pcie_gen5_8gpu.yaml has it (assumed)."""
HOST_LATENCY = "150 ns"


@dataclass(slots=True)
class Written:
    """A topology file as text, and what of it the imported file did not hold."""

    yaml: str
    assumed: list[Assumption] = field(default_factory=list)


class _File:
    """Lines of a file under way, and assumptions."""

    def __init__(self, machine: Machine, base: Base, source: str) -> None:
        self.machine, self.base, self.source = machine, base, source
        self.lines: list[str] = []
        self.assumed: list[Assumption] = []

    def figure(self, path: str, text: str, status: str, source: str, indent: str = "  ") -> None:
        """Write a figure with its provenance, and note it as assumed unless it was read."""
        value = text if text.replace(".", "").isdigit() else _quoted(text)
        said = f"{{value: {value}, status: {status}, source: {_quoted(source)}}}"
        self.lines.append(f"{indent}{path.rpartition('.')[2]}: {said}")
        if status != "user":
            self.assumed.append(Assumption(path, text, status, source))

    def read(self, path: str, text: str) -> None:
        """Write a figure that the imported file holds."""
        self.figure(path, text, "user", f"imported from {self.source}")

    def copied(self, path: str, base: Base | None = None) -> None:
        """Write a figure of the base, if it has it."""
        chosen = base or self.base
        if path in chosen.facts:
            text, status, source = chosen.facts[path]
            self.figure(path, text, status, f"{chosen.name}: {source}" if source else chosen.name)


def write_machine(machine: Machine, base: Base, name: str, source: str) -> Written:
    """Return the topology file of *machine* with the figures of *base*; *source* says in words where it comes from."""
    file = _File(machine, base, source)
    extends = base.keeps_wiring or _same_wiring(machine, base)
    file.lines += ["schema: collsim.topology/1", f"name: {_quoted(name)}"]
    file.lines.append(f"title: {_quoted(f'{_title(machine, base)}, imported from {source}')}")
    model = base.gpu
    file.assumed.append(Assumption("gpu.model", model or "unknown", base.status, base.why))
    if extends:
        _extend(file, model)
    elif machine.uplinks:
        _write_switched(file, model)
    else:
        _write_explicit(file, model)
    return Written("\n".join([*file.lines, ""]), file.assumed)


def _same_wiring(machine: Machine, base: Base) -> bool:
    """Return True if the GPUs of *machine* are wired as the first ones of the base."""
    topology = base.topology
    if machine.n_gpus > topology.n_gpus or has_sockets(topology) or machine.n_gpus == 1:
        return machine.n_gpus == 1 and not has_sockets(topology)
    into = switch_counts(topology)[: machine.n_gpus]
    if machine.uplinks:
        alike = {tuple(sorted(row.values())) for row in into}
        planes = tuple(sorted(machine.planes)) if machine.planes else None
        return all(sum(row) == machine.uplinks and planes in (None, row) for row in alike)
    if "MI300A" in base.model:
        return False
    return bool(machine.links) and not any(into) and link_counts(topology, machine.n_gpus) == machine.links


def _title(machine: Machine, base: Base) -> str:
    return f"{plural(machine.n_gpus, 'GPU')}{f' ({base.gpu})' if base.gpu else ''}"


def _extend(file: _File, model: str) -> None:
    """Write what differs from the base."""
    base, n = file.base, file.machine.n_gpus
    file.lines.append(f"extends: {base.name}")
    file.lines.append("gpu:")
    if model != base.topology.labels.get("gpu.model", ""):
        file.lines.append(f"  model: {_quoted(model)}")
    file.read("gpu.count", str(n))
    for path in ("link.bandwidth", "link.latency", "link.efficiency", "switch.latency"):
        if path in base.facts:
            text, status, source = base.facts[path]
            file.assumed.append(Assumption(path, text, status, f"{base.name}: {source}" if source else base.name))
    _write_nic(file, inherits=True)
    rest = "memory, switches and whether they reduce; collsim topo show lists it"
    file.assumed.append(Assumption("all else", f"as {base.name}", "assumed", rest))


def _write_switched(file: _File, model: str) -> None:
    """Write GPUs on switches that are wired unlike those of the base."""
    machine, base = file.machine, file.base
    file.lines.append("builder: switched")
    _write_gpu(file, model)
    _write_link(file, latency_of=base)
    file.lines += ["switch:", f"  model: {_quoted(base.topology.labels.get('switch.model', 'NVSwitch'))}"]
    planes = machine.planes or (machine.uplinks,)
    file.read("switch.planes", str(len(planes)))
    listed = ", ".join(map(str, planes))
    file.lines.append(
        f"  links_per_plane: {{value: [{listed}], status: user, source: {_quoted('imported from ' + file.source)}}}"
    )
    file.copied("switch.latency")
    file.copied("switch.in_network_efficiency")
    _write_nic(file, inherits=False)
    if base.topology.in_network_reduction:
        file.lines.append(f"in_network_reduction: {base.topology.in_network_reduction}")
        said = Assumption("in_network_reduction", base.topology.in_network_reduction, "assumed", base.name)
        file.assumed.append(said)


def _write_explicit(file: _File, model: str) -> None:
    """Write GPUs with links from one to the other, over PCIe, or both."""
    machine = file.machine
    file.lines.append("builder: explicit")
    _write_gpu(file, model)
    needs_pcie = not machine.reaches_all
    by_pcie = needs_pcie and not machine.is_amd  # NCCL then builds its rings over PCIe
    fields = ""
    if machine.links and not by_pcie:
        _write_link(file, file.base if machine.is_amd else _direct())
    else:
        _write_bus(file)
        fields = f", {_link_fields(file)}" if machine.links else ""
    nodes = [f"  - {{name: gpu{gpu}}}" for gpu in range(machine.n_gpus)]
    links: list[str] = []
    if needs_pcie:
        bus = f", {_bus_fields(file)}" if machine.links and not by_pcie else ""
        more, links = pcie_nodes(machine, bus, f"{SOCKET_LINKS}, latency: {HOST_LATENCY}")
        nodes += [line.replace("kind: cpu", f"kind: cpu, latency: {HOST_LATENCY}") for line in more]
        what = "3 links of 64 GB/s between processors, 150 ns in each"
        file.assumed.append(Assumption("PCIe", what, "assumed", "pcie_gen5_8gpu: a common layout of such servers"))
    links = [*_direct_links(file, model, fields), *links]
    _write_nic(file, inherits=False)
    file.lines += ["nodes:", *nodes, *(["links:", *links] if links else [])]


def _direct() -> Base:
    """Return the system whose links lead from GPU to GPU."""
    return Base(load_topology(DIRECT), "", "", "")


def _direct_links(file: _File, model: str, fields: str) -> list[str]:
    """Return the lines of links from GPU to GPU; *fields* is what is said of each besides."""
    per_pair = MI300A_PAIR if "MI300A" in model else 1
    links = file.machine.links
    if per_pair > 1 and links:
        said = "arXiv 2508.11298: two links between any two MI300A, which the program counts as one"
        file.assumed.append(Assumption("links", "2 per pair", "datasheet", said))
    return [f"  - {{a: gpu{a}, b: gpu{b}, count: {links[a, b] * per_pair}{fields}}}" for a, b in sorted(links)]


def _link_fields(file: _File) -> str:
    """Return the figures of links from GPU to GPU beside PCIe, and note them as assumed."""
    facts, latency = file.base.facts, _direct().facts["link.latency"]
    for path, fact in (("link.bandwidth", facts["link.bandwidth"]), ("link.efficiency", facts["link.efficiency"])):
        file.assumed.append(Assumption(f"NV{path}", fact[0], fact[1], f"{file.base.name}: {fact[2]}"))
    return f"bandwidth: {facts['link.bandwidth'][0]}, efficiency: {facts['link.efficiency'][0]}, latency: {latency[0]}"


def _write_gpu(file: _File, model: str) -> None:
    file.lines.append("gpu:")
    if model:
        file.lines.append(f"  model: {_quoted(model)}")
    file.read("gpu.count", str(file.machine.n_gpus))
    if model and model == file.base.topology.labels.get("gpu.model", ""):
        file.copied("gpu.memory_bandwidth")


def _write_link(file: _File, latency_of: Base) -> None:
    """Write the link of the base; one from GPU to GPU with the latency of such links."""
    old = any(part in (file.base.model or "") for part in OLD_XGMI)
    file.lines.append("link:")
    file.lines.append(f"  type: {_quoted('xGMI' if old else file.base.topology.labels.get('link.type', 'NVLink'))}")
    if old:
        for key, (text, status, source) in MI100_LINKS.items():
            file.figure(f"link.{key}", text, status, source)
        return
    file.copied("link.bandwidth")
    file.copied("link.efficiency")
    file.copied("link.latency", latency_of)


def _bus_base(file: _File) -> Base:
    """Return the system with PCIe as fast as that of the file, as far as it says."""
    if has_sockets(file.base.topology):
        return file.base
    fast = (file.machine.bus_Bps or 0.0) > 40e9
    return Base(load_topology(PCIE5 if fast else PCIE4), "", "", "assumed")


def _write_bus(file: _File) -> None:
    """Write PCIe as the link that all others are like."""
    base = _bus_base(file)
    file.lines += ["link:", f"  type: {_quoted(base.topology.labels.get('link.type', 'PCIe'))}"]
    if file.machine.bus_Bps:
        file.read("link.bandwidth", f"{file.machine.bus_Bps / 1e9:g} GB/s")
    else:
        file.copied("link.bandwidth", base)
    file.copied("link.efficiency", base)
    file.copied("link.latency", base)


def _bus_fields(file: _File) -> str:
    """Return the figures of PCIe beside links of another kind, and note them as assumed."""
    base = _bus_base(file)
    rate = f"{file.machine.bus_Bps / 1e9:g} GB/s" if file.machine.bus_Bps else base.facts["link.bandwidth"][0]
    share, latency = base.facts["link.efficiency"][0], base.facts["link.latency"][0]
    said = "imported" if file.machine.bus_Bps else "assumed"
    what = f"{rate}, efficiency {share}, latency {latency}"
    file.assumed.append(Assumption("PCIe", what, "assumed", f"{base.name}; the rate is {said}"))
    return f"bandwidth: {rate}, efficiency: {share}, latency: {latency}"


def _write_nic(file: _File, *, inherits: bool) -> None:
    """Write the adapters of the file; those of the base where the file lists none, or more that do not share out."""
    machine, base = file.machine, file.base
    found = _counted(machine, _usual(file))
    if found is None:
        _note_base_nic(file, inherits=inherits)
        return
    without = [gpu for gpu, load in enumerate(_load(machine.adapters, machine.n_gpus)) if not load]
    if 0 < len(without) < machine.n_gpus:
        machine.notes.append(f"no adapter is beside {gpu_list(without)}: adapters are taken to be shared by all alike")
    n, number = machine.n_gpus, found.number
    per_gpu, shared_by = (number // n, 1) if number % n == 0 else (1, n // number)
    file.lines.append("nic:")
    _nic_model(file, inherits=inherits)
    write = file.read if found.is_read else partial(file.figure, status="assumed", source=found.why)
    if per_gpu > 1 or "nic.per_gpu" in base.facts:
        write("nic.per_gpu", str(per_gpu))
    if shared_by > 1 or (inherits and "nic.shared_by" in base.facts):
        write("nic.shared_by", str(shared_by))
    if found.rate_Bps:
        file.read("nic.bandwidth", f"{found.rate_Bps * 8 / 1e9:g} Gb/s")
    elif "nic.bandwidth" in base.facts:
        text, _, source = base.facts["nic.bandwidth"]
        file.figure("nic.bandwidth", text, "assumed", f"{base.name}: {source}; the file holds no rates")
    else:
        file.figure("nic.bandwidth", "100 Gb/s", "assumed", "the file holds no rates")
    if not found.is_read:
        machine.notes.append(f"{found.why}: {plural(number, 'adapter')} for {plural(n, 'GPU')} in equal parts")
    elif found.listed != number:
        machine.notes.append(f"{number} of {plural(found.listed, 'adapter')} have the most common rate and count")


SHARES = (("nic.shared_by", "GPUs to one"), ("nic.per_gpu", "per GPU"))


def _note_base_nic(file: _File, *, inherits: bool) -> None:
    """Take the adapters of the base, if it has any."""
    base = file.base
    if "nic.bandwidth" not in base.facts or base.unnamed:
        return
    per = next((f"{base.facts[key][0]} {word}" for key, word in SHARES if key in base.facts), "1 per GPU")
    rate = base.facts["nic.bandwidth"][0]
    file.assumed.append(Assumption("nic", f"{rate}, {per}", "assumed", f"{base.name}: {_why_not(file.machine)}"))
    if not inherits:
        _copy_nic(file)


def _nic_model(file: _File, *, inherits: bool) -> None:
    """Write no model where the file names none; one that would be inherited is overwritten, since it may be wrong."""
    model = file.base.topology.labels.get("nic.model", "")
    if model and not inherits:
        file.lines.append(f"  model: {_quoted(model)}")


def _copy_nic(file: _File) -> None:
    facts = file.base.facts
    file.lines.append("nic:")
    if model := file.base.topology.labels.get("nic.model", ""):
        file.lines.append(f"  model: {_quoted(model)}")
    for path in ("nic.per_gpu", "nic.shared_by", "nic.bandwidth"):
        if path in facts:
            text, _, source = facts[path]
            said = f"{{value: {_quoted(text)}, status: assumed, source: {_quoted(f'{file.base.name}: {source}')}}}"
            file.lines.append(f"  {path.partition('.')[2]}: {said}")


class _Count(NamedTuple):
    """Adapters that a node is given, their rate, of how many, and why not as the file has them (empty: they are)."""

    number: int
    rate_Bps: float | None
    why: str
    listed: int

    @property
    def is_read(self) -> bool:
        """True if the file says so."""
        return not self.why


def _usual(file: _File) -> int:
    """Return how many adapters as many GPUs of the base have; 0 if the base does not say."""
    base = file.base
    if "nic.bandwidth" not in base.facts or base.unnamed:
        return 0
    return adapter_count(base.topology, file.machine.n_gpus)


def _counted(machine: Machine, usual: int) -> _Count | None:
    """Return the adapters of the file; None if it lists none, or *usual* ones and more that do not share out evenly.

    A file that lists fewer than a node of the base usually has is no reason to take more than it lists.
    """
    n, beside = machine.n_gpus, [adapter for adapter in machine.adapters if adapter.near]
    chosen = beside or [adapter for adapter in machine.adapters if adapter.rate_Bps]
    rates: Counter[float | None] = Counter(adapter.rate_Bps for adapter in chosen or machine.adapters)
    if not rates:
        return None
    rate_Bps, number = rates.most_common(1)[0]
    heaped = beside and max(_load(chosen, n)) > max(1, -(-number // n))  # several at one GPU, where others have none
    if chosen and not heaped and _shares_out(number, n):
        return _Count(number, rate_Bps, "", len(chosen))
    if usual and usual <= number:
        return None
    fewer = next(count for count in range(number, 0, -1) if _shares_out(count, n))
    return _Count(fewer, rate_Bps, _why_not(machine), len(chosen))


def _shares_out(number: int, n_gpus: int) -> bool:
    """Return True if each adapter is for as many GPUs, or each GPU has as many."""
    return number % n_gpus == 0 or n_gpus % number == 0


def _load(adapters: Sequence[Adapter], n_gpus: int) -> Iterator[float]:
    """Yield the adapters beside each GPU, those of several in equal parts."""
    for gpu in range(n_gpus):
        yield sum(1 / len(adapter.near) for adapter in adapters if gpu in adapter.near)


def _why_not(machine: Machine) -> str:
    listed = len(machine.adapters)
    if not listed:
        return "the file lists no adapter of 10 Gb/s or more"
    beside = sum(bool(adapter.near) for adapter in machine.adapters)
    if not beside:
        return "the one adapter is beside no GPU" if listed == 1 else f"none of the {listed} adapters is beside a GPU"
    verb = "does" if beside == 1 else "do"
    return f"{plural(beside, 'adapter')} beside GPUs {verb} not share out among {machine.n_gpus}"


def _quoted(text: str) -> str:
    """Return *text* as a YAML scalar."""
    return json.dumps(text, ensure_ascii=False)
