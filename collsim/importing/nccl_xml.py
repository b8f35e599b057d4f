"""NCCL's and RCCL's topology in XML (``NCCL_TOPO_DUMP_FILE``, ``NCCL_TOPO_FILE``): processors, PCIe, GPUs, adapters.

Elements and attributes are those of NCCL src/graph/xml.cc: ``<nvlink target count tclass>`` and ``<xgmi ...>`` below
``<gpu>``, ``<net speed>`` in Mbit/s, PCI classes as Linux has them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from collsim.core.errors import Fault, Faults, did_you_mean
from collsim.importing.machine import Adapter, Machine, gpu_list, plural
from collsim.importing.xml_files import Element, read_xml

__all__ = ["read_nccl_xml"]

GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
NET_CLASSES = ("0x0207", "0x0200")
SWITCH_CLASS = "0x0680"
"""NVSwitches are bridges of class 0x068000, GPUs display or processing accelerators, adapters network controllers."""
BUSID = re.compile(r"[0-9a-fA-F]{2,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]|[0-9a-fA-F]{1,4}|fffffff:\S+")
SPEED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*GT/s")
ENCODING = ((6.0, 8 / 10), (40.0, 128 / 130), (1e9, 242 / 256))
"""Share of the raw rate that is data, up to so many GT/s: 8b/10b of PCIe 1 and 2, 128b/130b of 3 to 5, flits of 6."""
GCD = "Instinct MI250X, one GCD"
GPU_MODELS = {
    "0x1db1": "V100 SXM2", "0x1db5": "V100 SXM2", "0x20b0": "A100 SXM4", "0x20b2": "A100 SXM4",
    "0x20b5": "A100 PCIe", "0x20f1": "A100 PCIe", "0x2330": "H100 SXM5", "0x2335": "H200 SXM5", "0x2331": "H100 PCIe",
    "0x2901": "B200", "0x2237": "A10G", "0x740c": GCD, "0x7408": GCD,
    "0x740f": "Instinct MI210", "0x738c": "Instinct MI100", "0x74a0": "Instinct MI300A", "0x74a1": "Instinct MI300X",
    "0x74b5": "Instinct MI300X",
}  # fmt: skip
"""GPUs by their PCI device (pci.ids, the PCI ID repository)."""
ARCHITECTURES = {
    "sm70": "V100", "sm80": "A100", "sm90": "H100", "sm100": "B200", "sm103": "B300",
    "906": "Instinct MI50", "908": "Instinct MI100", "910": GCD, "90a": GCD,
    "940": "Instinct MI300A", "942": "Instinct MI300X", "950": "Instinct MI355X",
}  # fmt: skip
"""GPUs by compute capability, or by what RCCL calls gcn."""
LEAST_BPS = 1.25e9
"""Adapters below 10 Gb/s are for management."""
KBITS = 10_000_000
"""No adapter has 10 Tb/s: a larger speed is in kbit/s, as RCCL once wrote it."""


@dataclass(slots=True, eq=False)
class _Device:
    """A GPU or an adapter on its way up: behind which outermost bridge, at which processor."""

    element: Element
    bridge: Element | None
    cpu: int
    inside: Element | None = None
    nets: list[Element] = field(default_factory=list)


class _Tree:
    """Devices of a file, and what is wrong with them."""

    def __init__(self, root: Element, faults: Faults) -> None:
        self.file, self.faults = root.file, faults
        self.gpus: list[_Device] = []
        self.adapters: list[_Device] = []
        self.unknown: list[Element] = []
        self.cpus = [child for child in root.children if child.tag == "cpu"]
        for index, cpu in enumerate(self.cpus):
            cpu.number("numaid", faults, least=-1)
            self._descend(cpu, None, index)
        for pci in root.every("pci"):
            busid = pci.text("busid", faults)
            if busid and not BUSID.fullmatch(busid):
                faults.append(Fault(f'busid="{busid[:30]}" is none', pci.where, 'such as busid="0000:17:00.0"'))
        seen: dict[str, int] = {}
        for gpu in self.gpus:
            busid = gpu.element.attributes.get("busid", "")
            if busid in seen:
                what = f'busid="{busid}" is that of another GPU already, on line {seen[busid]}'
                faults.append(Fault(what, gpu.element.where, "every GPU has its own"))
            seen.setdefault(busid, gpu.element.line)

    def _descend(self, parent: Element, bridge: Element | None, cpu: int) -> None:
        for child in parent.children:
            if child.tag == "nic":
                self.adapters.append(_Device(child, bridge, cpu, nets=list(child.every("net"))))
            elif child.tag == "pci":
                self._device(child, bridge, cpu)

    def _device(self, pci: Element, bridge: Element | None, cpu: int) -> None:
        """Add a device, or what is behind a bridge."""
        kind = pci.attributes.get("class", "")[:6].lower()
        inside = next((child for child in pci.children if child.tag == "gpu"), None)
        nets = [net for child in pci.children if child.tag == "nic" for net in child.every("net")]
        if inside is not None or (kind in GPU_CLASSES and not pci.children):
            self.gpus.append(_Device(pci, bridge, cpu, inside))
        elif nets or (kind in NET_CLASSES and not pci.children):
            self.adapters.append(_Device(pci, bridge, cpu, nets=nets))
        elif pci.children:
            self._descend(pci, pci if bridge is None else bridge, cpu)
        elif not kind:
            self.unknown.append(pci)


def read_nccl_xml(content: bytes, file: str, faults: Faults) -> Machine:
    """Return the machine of a topology in XML; what is wrong with it goes to *faults*."""
    tree = _Tree(read_xml(content, file, "system"), faults)
    machine = Machine(len(tree.gpus))
    if not tree.gpus:
        _missing(tree)
        return machine
    _in_order(tree, machine)
    _read_kinds(tree, machine)
    _read_links(tree, machine)
    for a, b in machine.pairs:
        machine.distances[a, b] = _way(tree.gpus[a], tree.gpus[b])
    machine.bus_Bps = _bus_Bps(tree.gpus)
    machine.adapters = tuple(_adapters(tree, machine))
    machine.numa = tuple(tree.cpus[gpu.cpu].attributes.get("numaid", "") for gpu in tree.gpus)
    machine.read = [*_said(tree, machine)]
    return machine


def _missing(tree: _Tree) -> None:
    """Add the fault of a file without GPUs."""
    devices = tree.unknown
    if devices:
        what = f"there is no GPU in the file: {plural(len(devices), 'device')} without a class, the first one here"
        hint = 'add class="0x030200" to GPUs and class="0x020000" to adapters, or a <gpu> inside'
        tree.faults.append(Fault(what, devices[0].where, hint))
    else:
        what = f"there is no GPU in the file, only {plural(len(tree.adapters), 'adapter')}"
        hint = "such a file completes what NCCL finds; import what NCCL_TOPO_DUMP_FILE writes instead"
        tree.faults.append(Fault(what, tree.file, hint))


def _in_order(tree: _Tree, machine: Machine) -> None:
    """Put GPUs in the order of their numbers, where they have any."""
    named = [gpu for gpu in tree.gpus if gpu.inside is not None]
    numbers = [gpu.inside.number("dev", tree.faults) for gpu in named if gpu.inside is not None]
    doubled = {number for number, count in Counter(numbers).items() if count > 1}
    for gpu, number in zip(named, numbers, strict=True):
        if number in doubled and gpu.inside is not None:
            what = f'dev="{number}" is there {numbers.count(number)} times'
            tree.faults.append(Fault(what, gpu.inside.where, f"GPUs are 0 to {len(numbers) - 1}"))
    if len(numbers) == len(tree.gpus) and not doubled:
        ordered = [gpu for _, gpu in sorted(zip(numbers, tree.gpus, strict=True), key=lambda pair: pair[0])]
        if ordered != tree.gpus:
            machine.notes.append("GPUs are numbered by dev, which is not their order in the file")
        tree.gpus = ordered


def _read_kinds(tree: _Tree, machine: Machine) -> None:
    """Read what GPUs they are: by PCI device, else by compute capability or gcn."""
    devices = {gpu.element.attributes.get("device", "").lower() for gpu in tree.gpus}
    models = {GPU_MODELS.get(device, "") for device in devices}
    inside = [gpu.inside.attributes for gpu in tree.gpus if gpu.inside is not None]
    machine.is_amd = any("gcn" in each for each in inside) or any(device.startswith("0x74") for device in devices)
    found = {each.get("gcn", "").removeprefix("gfx") if "gcn" in each else f"sm{each.get('sm', '')}" for each in inside}
    kinds = {ARCHITECTURES.get(each, "") for each in found}
    machine.model = models.pop() if len(models) == 1 else ""
    machine.architecture = kinds.pop() if len(kinds) == 1 else ""
    if len(found) > 1:
        machine.notes.append(f"GPUs of several kinds: {', '.join(sorted(found))}")


def _read_links(tree: _Tree, machine: Machine) -> None:
    """Read links between GPUs, and from GPUs to switches."""
    place = {gpu.element.attributes.get("busid", "").lower(): index for index, gpu in enumerate(tree.gpus)}
    counts: dict[tuple[int, int], tuple[int, Element]] = {}
    into: list[Counter[str]] = [Counter() for _ in tree.gpus]
    for index, gpu in enumerate(tree.gpus):
        for link in gpu.inside.children if gpu.inside is not None else ():
            if link.tag not in ("nvlink", "xgmi"):
                continue
            count, target = link.number("count", tree.faults, least=1), link.text("target", tree.faults).lower()
            kind = link.attributes.get("tclass", "").lower()
            if target and kind and not kind.startswith(GPU_CLASSES) and not BUSID.fullmatch(target):
                what = f'target="{target[:30]}" is no PCI address'
                tree.faults.append(Fault(what, link.where, "write that of the device at the other end: 0000:c3:00.0"))
            elif kind.startswith(SWITCH_CLASS):
                into[index][target] += count
            elif _is_peer(link, target, index, place, tree):
                pair = (index, place[target])
                if pair in counts:
                    what = f"a link to {target} is there already, on line {counts[pair][1].line}"
                    tree.faults.append(Fault(what, link.where, "write one, with the sum of both as its count"))
                counts[pair] = (count, link)
    for (a, b), (count, link) in counts.items():
        back = counts.get((b, a), (0, link))[0]
        if back != count and (a < b or not back):
            what = f"{plural(count, 'link')} from GPU {a} to GPU {b}, but {back} back"
            tree.faults.append(Fault(what, link.where, f'write count="{max(count, back)}" in both'))
        machine.links[min(a, b), max(a, b)] = count
    _read_planes(into, tree, machine)
    machine.tells_links = all(gpu.inside is not None and "device" in gpu.element.attributes for gpu in tree.gpus)


def _is_peer(link: Element, target: str, index: int, place: dict[str, int], tree: _Tree) -> bool:
    """Return True if a link leads to another GPU of the file; add a fault if it leads nowhere or to itself."""
    if place.get(target, -1) == index:
        others = [busid for busid in place if place[busid] != index]
        hint = f'name the GPU at its other end, such as target="{others[0]}"' if others else "remove it"
        tree.faults.append(
            Fault(f'a link of {target} to itself (count="{link.attributes.get("count")}")', link.where, hint)
        )
        return False
    if target in place:
        return True
    if link.attributes.get("tclass", "").lower().startswith(GPU_CLASSES) or not link.attributes.get("tclass"):
        near = did_you_mean(target, [*place])
        what = f'target="{target[:30]}" is none of the {plural(len(place), "GPU")} of the file'
        tree.faults.append(Fault(what, link.where, f"{near}GPUs: {', '.join([*place][:8])}"))
    return False  # to a processor, as on POWER9


def _read_planes(into: list[Counter[str]], tree: _Tree, machine: Machine) -> None:
    """Read the links into switches: the same for every GPU, or the least is taken."""
    if not any(into):
        return
    switches = sorted(set().union(*into))
    rows = [tuple(each[switch] for switch in switches) for each in into]
    totals = {sum(row) for row in rows}
    if len(totals) > 1:
        for gpu, row in zip(tree.gpus, rows, strict=True):
            if sum(row) < max(totals):
                what = f"{plural(sum(row), 'link')} into switches, where other GPUs have {max(totals)}"
                tree.faults.append(
                    Fault(what, gpu.element.where, "is a link down? dump the topology of a healthy node")
                )
        return
    machine.uplinks = totals.pop()
    if any(0 in row for row in rows):
        machine.notes.append("GPUs are on different switches, whose links to each other such a file does not hold")
        return
    machine.planes = rows[0]
    if len(set(rows)) > 1:
        machine.notes.append("GPUs are wired to the switches in different proportions; those of GPU 0 are taken")


def _way(a: _Device, b: _Device) -> str:
    """Return the way over PCIe between two devices."""
    if a.bridge is not None and a.bridge is b.bridge:
        return "PIX"
    return "PHB" if a.cpu == b.cpu else "SYS"


def _bus_Bps(gpus: list[_Device]) -> float | None:
    """Return the rate of the PCIe ports that most GPUs have; None if none says."""
    rates: Counter[float] = Counter()
    for gpu in gpus:
        speed = SPEED.match(gpu.element.attributes.get("link_speed", ""))
        width = gpu.element.attributes.get("link_width", "")
        if speed and width.isdecimal() and int(width):
            transfers = float(speed[1])
            share = next(share for most, share in ENCODING if transfers <= most)
            rates[round(transfers * 1e9 * int(width) / 8 * share, -8)] += 1
    return rates.most_common(1)[0][0] if rates else None


def _adapters(tree: _Tree, machine: Machine) -> Iterator[Adapter]:
    """Yield the adapters, port by port, with their rates and the GPUs behind the same bridge."""
    slow = unit = 0
    for device in tree.adapters:
        near = tuple(i for i, gpu in enumerate(tree.gpus) if _way(device, gpu) == "PIX")
        for net in device.nets:
            megabits = net.number("speed", tree.faults, least=1)
            unit += megabits > KBITS
            rate_Bps = megabits / (1000 if megabits > KBITS else 1) * 1e6 / 8
            slow += rate_Bps < LEAST_BPS
            if rate_Bps >= LEAST_BPS:
                yield Adapter(net.attributes.get("name", "net"), rate_Bps, near)
        if not device.nets:
            yield Adapter(device.element.attributes.get("busid", "nic"), None, near)
    if unit:
        machine.notes.append(
            f"the speed of {plural(unit, 'net')} was taken for kbit/s: in Mbit/s it is more than 10 Tb/s"
        )
    if slow:
        machine.notes.append(f"{plural(slow, 'net')} below 10 Gb/s left out")


def _said(tree: _Tree, machine: Machine) -> Iterator[str]:
    """Yield what was read."""
    kind = machine.model or machine.architecture
    yield f"{plural(machine.n_gpus, 'GPU')}{f' ({kind})' if kind else ''} on {plural(len(tree.cpus), 'NUMA node')}"
    if machine.uplinks:
        listed = f"{len(machine.planes)} switches: {_list(machine.planes)}" if machine.planes else "switches"
        yield f"{plural(machine.uplinks, 'link')} per GPU into {listed}"
    elif machine.links:
        name, each = "xGMI" if machine.is_amd else "NVLink", sorted(set(machine.links.values()))
        pairs = f"{len(machine.links)} of {len(machine.pairs)} pairs"
        yield f"{name} between {pairs}, {_list(each)} a pair"
    else:
        yield "no link between GPUs besides PCIe in the file"
    if machine.bus_Bps:
        yield f"PCIe at {machine.bus_Bps / 1e9:g} GB/s at the GPUs"
    groups = Counter((adapter.rate_Bps, bool(adapter.near)) for adapter in machine.adapters)
    for (rate_Bps, near), number in groups.items():
        rate = f" of {rate_Bps * 8 / 1e9:g} Gb/s" if rate_Bps else ""
        yield f"{plural(number, 'adapter')}{rate}{' behind the bridges of GPUs' if near else ', beside no GPU'}"
    nodes = dict.fromkeys(machine.numa)
    where = (f"{node} ({gpu_list(i for i, each in enumerate(machine.numa) if each == node)})" for node in nodes)
    yield f"NUMA {', '.join(where)}"


def _list(numbers: tuple[int, ...] | list[int]) -> str:
    return " + ".join(map(str, numbers)) if isinstance(numbers, tuple) else ", ".join(map(str, numbers))
