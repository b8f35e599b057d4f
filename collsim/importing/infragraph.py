"""InfraGraph: devices of components with edges between them, and instances of devices with edges between those.

Blueprints of InfraGraph name parts and carry no rates. The node is recognised by what its accelerators are called and
how many there are; its figures are those of the shipped system. Slices and schemes of edges are those of
InfraGraph 3.1 (docs of Keysight/infragraph): ``xpu[0:8]`` is 0 to 7, a name alone all; ``many2many`` joins every
pair, ``one2one`` the first with the first and so on, as far as both sides reach.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from collsim.core.errors import Fault, Faults, UnknownNameError, nearest
from collsim.importing.fabric_tree import FabricTree, tree_of
from collsim.importing.fabrics import Cluster, write_fabric
from collsim.importing.machine import Ask, Assumption, plural
from collsim.topology.files.reader import Document, read_document, show_path
from collsim.topology.loader import load_topology
from collsim.topology.zoo import zoo_names

__all__ = ["read_infragraph"]

SYSTEMS = (
    (r"GB300", "gb300_nvl72"), (r"GB200|Grace Blackwell", "gb200_nvl72"), (r"B300", "hgx_b300"), (r"B200", "hgx_b200"),
    (r"H100", "hgx_h100"), (r"H200", "hgx_h200"), (r"H20\b", "hgx_h20"), (r"H800", "hgx_h800"), (r"A100", "dgx_a100"),
    (r"V100", "dgx1_v100"),
    (r"MI355", "mi355x_ubb8"), (r"MI350", "mi350x_ubb8"), (r"MI325", "mi325x_ubb8"), (r"MI300X", "mi300x_ubb8"),
)  # fmt: skip
"""What accelerators are called in descriptions, and the system that has them; the first match counts."""
END = re.compile(r"([\w-]+)(?:\[([^\]]*)\])?")
KINDS = ("cpu", "xpu", "switch", "nic", "custom", "device", "port", "memory")
SCHEMES = ("one2one", "many2many")
FORM = "an InfraGraph has devices with components and edges, and instances of them: docs of Keysight/infragraph"
MOST_ENDS = 100_000
MOST_PAIRS = 1_000_000
MANAGEMENT = ("lom", "bmc", "mgmt")
RATES = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}


@dataclass(slots=True)
class _Device:
    """A device: how many components of each name, their kinds and descriptions, and the edges between them."""

    counts: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[tuple[str, int], tuple[str, int]]] = field(default_factory=list)

    def total(self, kind: str) -> int:
        """Return the components of a kind, without adapters for management."""
        return sum(count for name, count in self.counts.items() if self.kinds[name] == kind and name not in MANAGEMENT)


_End = tuple[tuple[str, int], tuple[str, int]]
"""An end of a cable: an instance and a component of it, both with their number."""


class _Infrastructure:
    """A document with its faults."""

    def __init__(self, document: Document, faults: Faults) -> None:
        self.document, self.faults = document, faults
        self.devices: dict[str, _Device] = {}
        self.instances: dict[str, tuple[str, int]] = {}
        for place, entry in enumerate(self.list_of(document.data, "devices", ())):
            self._device(entry, ("devices", place))
        for place, entry in enumerate(self.list_of(document.data, "instances", ())):
            self._instance(entry, ("instances", place))

    def fault(self, what: str, path: tuple[str | int, ...], hint: str = FORM) -> None:
        """Add a fault at a path of the document."""
        self.faults.append(Fault(what, self.document.where(path), hint))

    def list_of(self, data: Any, key: str, path: tuple[str | int, ...]) -> list[dict[str, Any]]:
        """Return the entries of a list of mappings."""
        value = data.get(key, []) if isinstance(data, dict) else []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.fault(f'"{key}" is no list of mappings', (*path, key))
            return []
        return value

    def _count(self, entry: dict[str, Any], path: tuple[str | int, ...]) -> int:
        count = entry.get("count", 1)
        if not isinstance(count, int) or not 1 <= count <= MOST_ENDS:
            self.fault(
                f'count "{str(count)[:20]}" is not a whole number of 1 or more', (*path, "count"), "such as count: 8"
            )
            return 1
        return count

    def _device(self, entry: dict[str, Any], path: tuple[str | int, ...]) -> None:
        name = str(entry.get("name", ""))
        if not name or name in self.devices:
            self.fault(
                f'device "{name}" is there twice' if name else "a device has no name", path, "give each its own name"
            )
        device = self.devices[name] = _Device()
        for place, part in enumerate(self.list_of(entry, "components", path)):
            where = (*path, "components", place)
            kind, label = str(part.get("choice", part.get("type", "custom"))), str(part.get("name", ""))
            if kind not in KINDS:
                near = nearest(kind, KINDS)
                self.fault(f'"{kind[:20]}" is no kind of component', where, f'did you mean "{near}"?' if near else FORM)
            if label in device.counts:
                self.fault(f'component "{label}" is there twice', where, "give one, with count")
            device.counts[label], device.kinds[label] = self._count(part, where), kind
            device.about[label] = str(part.get("description") or "")
        for place, edge in enumerate(self.list_of(entry, "edges", path)):
            for a, b in self._edge(edge, (*path, "edges", place)):
                one, two = (self._component(each, name, (*path, "edges", place)) for each in (a, b))
                if one and two and self._few(one, two, (*path, "edges", place)):
                    device.edges += _paired(one, two, str(edge.get("scheme", "many2many")))

    def _edge(
        self, edge: dict[str, Any], path: tuple[str | int, ...]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield the two ends of an edge, if it has both."""
        ends = [edge.get("ep1"), edge.get("ep2")]
        scheme = edge.get("scheme", "many2many")
        if scheme not in SCHEMES:
            near = nearest(str(scheme), SCHEMES)
            self.fault(
                f'"{str(scheme)[:20]}" is no scheme', path, f'did you mean "{near}"?' if near else f"known: {SCHEMES}"
            )
        elif all(isinstance(end, dict) for end in ends):
            yield ends[0], ends[1]  # type: ignore[misc]
        else:
            self.fault("an edge without ep1 and ep2", path)

    def _component(self, end: dict[str, Any], device: str, path: tuple[str | int, ...]) -> list[tuple[str, int]]:
        """Return the components of one end of an edge."""
        return self._expand(str(end.get("component", "")), self.devices[device].counts, "component", path)

    def _expand(
        self, text: str, counts: dict[str, int], noun: str, path: tuple[str | int, ...]
    ) -> list[tuple[str, int]]:
        """Return names with numbers of what a slice selects."""
        found = END.match(text)
        name = found[1] if found else text
        if not found or name not in counts:
            near = nearest(name, [*counts])
            hint = f'did you mean "{near}"?' if near else f"known: {', '.join(counts) or 'none'}"
            self.fault(f'there is no {noun} "{name[:30]}"', path, hint)
            return []
        total, inside = counts[name], found[2]
        try:
            bounds = [int(part) if part.strip() else None for part in (inside or "").split(":")]
        except ValueError:
            bounds = [None] * 4
        numbers = (
            range(total)
            if not inside
            else range(*slice(*bounds).indices(total))
            if 1 < len(bounds) < 4
            else [bounds[0]]
        )
        if len(bounds) > 3 or not numbers or any(number is None or not 0 <= number < total for number in numbers):
            self.fault(f'"{text[:40]}" selects none of {total}', path, f"{name}[0:{total}] are all")
            return []
        return [(name, int(number)) for number in numbers if number is not None]

    def _instance(self, entry: dict[str, Any], path: tuple[str | int, ...]) -> None:
        name, device = str(entry.get("name", "")), str(entry.get("device", ""))
        if device not in self.devices:
            near = nearest(device, [*self.devices])
            hint = f'did you mean "{near}"?' if near else f"devices: {', '.join(self.devices) or 'none'}"
            self.fault(f'there is no device "{device[:30]}"', (*path, "device"), hint)
        if name in self.instances:
            self.fault(f'instance "{name}" is there twice', path, "give one, with count")
        self.instances[name] = (device, self._count(entry, path))

    def hosts(self) -> dict[str, tuple[str, int]]:
        """Return the instances with accelerators: their device and number."""
        return {
            name: (device, count)
            for name, (device, count) in self.instances.items()
            if device in self.devices and self.devices[device].total("xpu")
        }

    def cables(self) -> Iterator[tuple[_End, _End]]:
        """Yield the cables between components of instances."""
        counts = {name: count for name, (_, count) in self.instances.items()}
        for place, edge in enumerate(self.list_of(self.document.data, "edges", ())):
            path = ("edges", place)
            for ends in self._edge(edge, path):
                sides = []
                for end in ends:
                    one = self._expand(str(end.get("instance", "")), counts, "instance", path)
                    parts = self.devices[self.instances[one[0][0]][0]].counts if one else {}
                    parts_of = self._expand(str(end.get("component", "")), parts, "component", path) if one else []
                    few = self._few(one, parts_of, path)
                    sides.append([(instance, part) for instance in one for part in parts_of] if few else [])
                if self._few(sides[0], sides[1], path):
                    yield from _paired(sides[0], sides[1], str(edge.get("scheme", "many2many")))

    def _few(self, one: list[Any], two: list[Any], path: tuple[str | int, ...]) -> bool:
        """Return True if an edge does not stand for more pairs than can be followed."""
        if len(one) * len(two) > MOST_PAIRS:
            self.fault(f"{len(one):,} times {len(two):,} ends", path, f"at most {MOST_PAIRS:,} pairs of one edge")
            return False
        return True


def _paired(one: list[Any], two: list[Any], scheme: str) -> list[tuple[Any, Any]]:
    """Return the pairs that a scheme joins; nothing is joined to itself, and no pair twice."""
    if scheme == "one2one":
        return [(a, b) for a, b in zip(one, two, strict=False) if a != b]
    return list(dict.fromkeys((min(a, b), max(a, b)) for a in one for b in two if a != b))


def read_infragraph(content: bytes, ask: Ask) -> Cluster | None:
    """Return the node or the cluster of an InfraGraph; None if its faults say why there is none."""
    document = read_document(content, ask.file, "devices: [{name: dgx, components: [...]}]")
    if "infrastructure" in document.data or _is_old(document):
        what = "the form of InfraGraph before version 2: connections as dotted texts"
        ask.fault(what, "convert it to devices with edges (ep1, ep2), as the package writes it")
        return None
    found = _Infrastructure(document, ask.faults)
    cables = list(found.cables()) if not ask.faults else []
    hosts = found.hosts()
    if not hosts and not ask.faults:
        ask.fault(f"no instance has accelerators; devices: {', '.join(found.devices)}", "it is a part, not a machine")
    if ask.faults:
        return None
    name, _ = next(iter(hosts.values()))
    device = found.devices[name]
    base = _system(device, ask)
    if base is None:
        return None
    count = sum(pair[1] for pair in hosts.values())
    if count == 1:
        return _node(device, base, ask, [_said(device, name)])
    tree = _tree(found, hosts, cables)
    tree.read[:0] = [_said(device, name)]
    tree.notes += _unlike(device, base)
    if not tree.leaves:
        ask.fault(f"{plural(count, 'host')}, and no cable from one to a switch", "add edges between instances")
        return None
    return write_fabric(tree, base, "InfraGraph", ask, gpus=device.total("xpu"), why=_why(ask.like))


def _is_old(document: Document) -> bool:
    devices = document.data.get("devices", document.data.get("device", []))
    return any(
        "connections" in each
        for each in [document.data, *(devices if isinstance(devices, list) else [])]
        if isinstance(each, dict)
    )


def _system(device: _Device, ask: Ask) -> str | None:
    """Return the shipped system of a device."""
    named = ask.like
    if named is not None and named not in zoo_names():
        ask.faults.extend(UnknownNameError("topology", named[:60], zoo_names(), "like").faults)
        return None
    named = named or _recognised(device, ask)
    gpus = device.total("xpu")
    if named and gpus > load_topology(named).n_gpus:
        what = f"{plural(gpus, 'accelerator')}, more than the {load_topology(named).n_gpus} of {named}"
        ask.fault(what, "name a larger system: --like gb200_nvl72")
        return None
    return named


def _recognised(device: _Device, ask: Ask) -> str | None:
    """Return the shipped system with accelerators that are called so."""
    about = " ".join(text for part, text in device.about.items() if device.kinds[part] == "xpu")
    named = next((system for pattern, system in SYSTEMS if re.search(pattern, about)), None)
    gpus = device.total("xpu")
    if named == "dgx1_v100" and gpus > 8:
        named = "dgx2_v100"
    if named is None:
        what = (
            f'{plural(gpus, "accelerator")} called "{about[:60]}": no shipped system has them, and no rates are given'
        )
        ask.fault(what, "name the system that is most alike: --like hgx_h100")
    return named


def _said(device: _Device, name: str) -> str:
    parts = ", ".join(
        f"{count} {part}" for part, count in device.counts.items() if device.kinds[part] in ("xpu", "switch", "nic")
    )
    about = next((text for part, text in device.about.items() if device.kinds[part] == "xpu"), "")
    return f"device {name}: {parts}{f'; the accelerators are {about}' if about else ''}"


def _unlike(device: _Device, base: str) -> list[str]:
    """Return notes where the wiring of a device is not that of the system."""
    topology = load_topology(base)
    kinds = device.kinds
    hubs = {
        b if kinds[a[0]] == "xpu" else a for a, b in device.edges if {kinds[a[0]], kinds[b[0]]} == {"xpu", "switch"}
    }
    direct = sum(kinds[a[0]] == kinds[b[0]] == "xpu" for a, b in device.edges)
    own = topology.wiring.node_kinds.count("switch")
    fabric = {hub[0] for hub in hubs if "pci" not in hub[0].lower()}
    switches = sum(device.counts[each] for each in fabric)
    notes = []
    if own and switches and own != switches:
        notes.append(
            f"the file has {plural(switches, 'switch')} between accelerators, {base} {own}: the latter is taken"
        )
    if bool(own) != bool(switches) and (direct or switches):
        notes.append(f"links between accelerators are arranged otherwise than in {base}, whose wiring is taken")
    return notes


def _node(device: _Device, base: str, ask: Ask, read: list[str]) -> Cluster:
    """Return the topology file of a single node."""
    gpus, nics = device.total("xpu"), device.total("nic")
    source = '{value: %s, status: user, source: "imported from InfraGraph"}'
    lines = [
        "schema: collsim.topology/1",
        f'name: "{ask.name}"',
        f'title: "{gpus} GPUs as in {base}, imported from InfraGraph"',
    ]
    lines += [f"extends: {base}", f"gpu: {{count: {source % min(gpus, load_topology(base).n_gpus)}}}"]
    if nics and (nics % gpus == 0 or gpus % nics == 0):
        per, share = max(nics // gpus, 1), max(gpus // nics, 1)
        lines += ["nic:", f"  per_gpu: {source % per}", f"  shared_by: {source % share}"]
    status, why = _why(ask.like)
    assumed = [Assumption("extends", base, status, f"{why}; InfraGraph holds no rates")]
    facts = {fact.path: fact for fact in load_topology(base).facts}
    paths = ("link.bandwidth", "link.latency", "link.efficiency", "switch.latency", "nic.bandwidth")
    assumed += [
        Assumption(path, facts[path].text, facts[path].status, f"{base}: {facts[path].source}")
        for path in paths
        if path in facts
    ]
    assumed.append(Assumption("all else", f"as {base}", "assumed", "collsim topo show lists it"))
    return "\n".join([*lines, ""]), read, assumed, _unlike(device, base)


def _why(like: str | None) -> tuple[str, str]:
    """Return the status and the source of the shipped system."""
    return ("set", f"named with --like {like}") if like else ("assumed", "by what the accelerators are called")


def _tree(found: _Infrastructure, hosts: dict[str, tuple[str, int]], cables: list[tuple[_End, _End]]) -> FabricTree:
    """Return the fabric between instances; an adapter has one cable, whatever ports a scheme pairs it with."""
    on: dict[str, dict[tuple[str, int], str]] = {}
    between: dict[tuple[str, str], float] = defaultdict(float)
    for (a, part), (b, other) in cables:
        one, two = f"{a[0]}.{a[1]}", f"{b[0]}.{b[1]}"
        if a[0] in hosts and b[0] not in hosts:
            on.setdefault(one, {}).setdefault(part, two)
        elif b[0] in hosts and a[0] not in hosts:
            on.setdefault(two, {}).setdefault(other, one)
        elif a[0] not in hosts:
            between[min(one, two), max(one, two)] += 1.0
    tree = FabricTree({host: [*adapters.values()] for host, adapters in on.items()})
    if not tree.hosts:
        return tree
    down: dict[str, float] = defaultdict(float)
    up: dict[str, float] = defaultdict(float)
    for leaves in tree.hosts.values():
        for leaf in leaves:
            down[leaf] += 1
    for ends, cables_of in between.items():
        for end in ends:
            up[end] += cables_of
    tree.leaves = len(down)
    tree.tiers, tree.upper, tree.parts = tree_of(between, tree.hosts)
    others = [found.devices[device] for name, (device, _) in found.instances.items() if name not in hosts]
    tree.radix = max((max(other.counts.values(), default=0) for other in others), default=0)
    rates = _rates(found)
    tree.rate_Bps = rates[0] if rates else None
    tree.oversubscription = (
        max((down[leaf] / up[leaf] for leaf in down if up[leaf]), default=None) if len(rates) < 2 else None
    )
    above = f", {plural(tree.upper, 'switch')} above" if tree.upper else ""
    tree.read.append(
        f"{plural(len(tree.hosts), 'host')} on {plural(tree.leaves, 'switch')}{above}, {plural(tree.tiers, 'tier')}"
    )
    return tree


def _rates(found: _Infrastructure) -> list[float]:
    """Return the different rates of links between instances, bytes/s, where the file gives any."""
    rates: dict[float, None] = {}
    for place, link in enumerate(found.list_of(found.document.data, "links", ())):
        bandwidth = (
            (link.get("physical") or {}).get("bandwidth") or {} if isinstance(link.get("physical"), dict) else {}
        )
        choice = bandwidth.get("choice")
        try:
            if choice in RATES:
                rates[float(bandwidth[choice]) * RATES[choice]] = None
        except (KeyError, TypeError, ValueError):
            path = ("links", place, "physical")
            found.fault(f"{show_path(path)}: the bandwidth is no number", path, "such as gigabits_per_second: 400")
    return [*rates]
