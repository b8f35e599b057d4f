"""What ``ibnetdiscover`` and ``iblinkinfo`` print: switches, cables, and the adapters of hosts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from collsim.core.errors import Fault, Faults
from collsim.importing.fabric_tree import FabricTree, tree_of
from collsim.importing.machine import plural

__all__ = ["read_iblinkinfo", "read_ibnetdiscover"]

HEAD = re.compile(r'^(Switch|Ca|Rt)\s+(\d+)\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?')
PORT = re.compile(r'^\[(\d+)\](?:\([^)]*\))?\s+"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\([^)]*\))?\s*#?(.*)$')
SPEED = re.compile(r"\b(\d+)x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
NAME = re.compile(r'"([^"]*)"')
LANE_GBPS = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip
"""Data rate of a lane in Gb/s (InfiniBand Trade Association, roadmap)."""
SIGNAL_GBPS = (
    (2.5, 2.0), (5.0, 4.0), (10.0, 8.0), (10.3125, 10.0), (14.0625, 13.64), (25.78125, 25.0), (53.125, 50.0),
    (106.25, 100.0), (212.5, 200.0),
)  # fmt: skip
"""What iblinkinfo calls the rate of a lane, in Gb/s as signalled, and the data rate."""
AGGREGATION = "Aggregation Node"
"""How SHARP's own endpoint in a switch calls itself."""
NAMELESS = "Mellanox Technologies"
"""An adapter whose host has given it no name goes by that of its maker."""
LINK = re.compile(
    r'^\s*(?:0x[0-9a-fA-F]+\s+)?(?:"([^"]*)"\s+)?(\d+)\s+(\d+)\[.{2}\] '
    r"==\(\s*(?:(\d+)X\s+(\d+(?:\.\d+)?) Gbps)?\s*(\w+)/\s*(\w+)\s*\)==>"
    r'\s*(?:0x[0-9a-fA-F]+\s+)?(\d*)\s*(\d*)\[.{2}\] "([^"]*)"'
)
WHOLE = "run ibnetdiscover > fabric.txt where a subnet manager runs, and import all of it"


@dataclass(slots=True)
class _Cables:
    """Cables, each once, and the names of their ends."""

    names: dict[str, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    ports: int = 0
    cables: dict[frozenset[tuple[str, int]], float] = field(default_factory=dict)

    def add(self, a: tuple[str, int], b: tuple[str, int], rate_Bps: float) -> None:
        """Add a cable between two ports, which both ends may list."""
        self.cables.setdefault(frozenset((a, b)), rate_Bps)


def read_ibnetdiscover(text: str, file: str, faults: Faults) -> FabricTree:
    """Return the fabric that ibnetdiscover listed; what is wrong with it goes to *faults*."""
    found, here = _Cables(), ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if head := HEAD.match(bare):
            here = head[3]
            found.names.setdefault(here, head[4] or here)
            if head[1] == "Switch":
                found.switches.add(here)
                found.ports = max(found.ports, int(head[2]))
        elif bare.startswith("["):
            _read_port(bare, here, found, f"{file}:{number}", faults)
    return _tree(found, file, faults)


def _read_port(line: str, here: str, found: _Cables, where: str, faults: Faults) -> None:
    """Read the line of one port."""
    port = PORT.match(line)
    if port is None or not here:
        what = f'"{line[:50]}" is no line of a port' if here else "a port before the first switch or adapter"
        faults.append(Fault(what, where, 'such as [1] "H-0002c903000a"[1] # "node1 mlx5_0" lid 4 4xHDR'))
        return
    peer, comment = port[2], port[4]
    speed = SPEED.search(comment)
    if speed is None:
        faults.append(Fault(f"port {port[1]} has no width and speed", where, "such as 4xHDR at its end"))
        return
    if peer[0] == "S":
        found.switches.add(peer)
    names = NAME.findall(comment)
    if names and not (here[0] == "S" and peer[0] == "S" and peer in found.names):
        found.names.setdefault(peer, names[0])
    rate_Bps = int(speed[1]) * LANE_GBPS[speed[2]] * 1e9 / 8
    found.add((here, int(port[1])), (peer, int(port[3])), rate_Bps)


def read_iblinkinfo(text: str, file: str, faults: Faults) -> FabricTree:
    """Return the fabric that iblinkinfo listed: ends are LIDs, and those with several ports are switches."""
    found, ports = _Cables(), defaultdict[str, set[int]](set)
    for number, line in enumerate(text.splitlines(), 1):
        if "==(" not in line:
            continue
        link = LINK.match(line)
        if link is None:
            what = f'"{line.strip()[:60]}" is no line of iblinkinfo'
            faults.append(Fault(what, f"{file}:{number}", "copy the output again as a whole"))
            continue
        own_name, lid, port, width, lane, state, _, peer, peer_port, peer_name = link.groups()
        if not peer or not peer_port or state != "Active" or not width:
            continue
        rate_Gbps = next((data for signal, data in SIGNAL_GBPS if abs(float(lane) - signal) < 0.01), float(lane))
        found.add((lid, int(port)), (peer, int(peer_port)), int(width) * rate_Gbps * 1e9 / 8)
        found.names.setdefault(peer, peer_name.strip())
        if own_name:
            found.names[lid] = own_name.strip()
        ports[lid].add(int(port))
        ports[peer].add(int(peer_port))
    found.switches = {lid for lid, used in ports.items() if len(used) > 1 or max(used) > MOST_HOST_PORTS}
    return _tree(found, file, faults)


MOST_HOST_PORTS = 2
"""An adapter has one or two ports."""


def _tree(found: _Cables, file: str, faults: Faults) -> FabricTree:
    """Return hosts on leaves of a list of cables."""
    hosts: dict[str, list[str]] = {}
    nameless = 0
    rates: list[float] = []
    between: dict[tuple[str, str], float] = defaultdict(float)
    up: dict[str, float] = defaultdict(float)
    down: dict[str, float] = defaultdict(float)
    for ends, rate_Bps in found.cables.items():
        (a, _), (b, _) = sorted(ends)
        if a in found.switches and b in found.switches:
            between[a, b] += rate_Bps
            up[a] += rate_Bps
            up[b] += rate_Bps
        elif a in found.switches or b in found.switches:
            switch, adapter = (a, b) if a in found.switches else (b, a)
            name = found.names.get(adapter, adapter)
            if NAMELESS in name and AGGREGATION not in name:
                nameless += 1
            elif AGGREGATION not in name:
                hosts.setdefault(name.split()[0] if name.split() else adapter, []).append(switch)
                rates.append(rate_Bps)
                down[switch] += rate_Bps
    if not hosts and not faults:
        what = "there is no switch with hosts" if found.cables else "there is no cable"
        faults.append(Fault(f"no fabric: {what}", file, WHOLE))
    tree = FabricTree(hosts, network="infiniband")
    if faults:
        return tree
    tree.tiers, tree.upper, tree.parts = tree_of(between, hosts)
    tree.leaves = len(down)
    tree.radix = found.ports - found.ports % 2  # the odd port is that of the switch itself, for SHARP
    if nameless:
        tree.notes.append(f"{plural(nameless, 'adapter')} of hosts without names left out")
    tree.rate_Bps = max(set(rates), key=rates.count)
    if tree.tiers > 1:
        tree.oversubscription = max((down[leaf] / up[leaf] for leaf in down if up[leaf]), default=None)
    tree.read = [*_said(tree, found, rates)]
    return tree


def _said(tree: FabricTree, found: _Cables, rates: list[float]) -> Iterator[str]:
    """Yield what was read."""
    aggregation = sum(AGGREGATION in name for name in found.names.values())
    shown = f", {plural(aggregation, 'aggregation node')} of SHARP" if aggregation else ""
    yield f"{plural(len(found.switches), 'switch')}, {tree.leaves} of them with hosts{shown}"
    yield f"{plural(len(tree.hosts), 'host')} with {plural(len(rates), 'adapter')} on cables"
    speeds = sorted({round(rate_Bps * 8 / 1e9, 1) for rate_Bps in rates})
    yield f"adapters at {', '.join(f'{speed:g}' for speed in speeds)} Gb/s; {plural(tree.tiers, 'tier')} of switches"
