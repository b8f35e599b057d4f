"""Slurm's topology.conf and topology.yaml as a fabric: hosts on leaf switches or in blocks, no rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collsim.core.errors import Fault, Faults
from collsim.core.slurm import Switch, hosts_in, switches_in, tree_faults
from collsim.importing.fabric_tree import FabricTree, tree_of
from collsim.importing.machine import plural
from collsim.topology.files.reader import read_data

__all__ = ["read_slurm"]

PLUGINS = ("tree", "block")
HINT = "tree: {switches: [{switch: s1, nodes: n[1-8]}]}, or block: {blocks: [{block: b1, nodes: n[1-8]}]}"


def read_slurm(text: str, file: str, faults: Faults) -> FabricTree:
    """Return the fabric of a file of Slurm; what is wrong with it goes to *faults*."""
    yaml = "SwitchName" not in text and "BlockName" not in text
    left_out: list[str] = []
    switches = faults.attempt(lambda: _of_yaml(text, file, left_out) if yaml else switches_in(text, file))
    if not switches:
        return FabricTree({})
    hosts = {host: [name] for name, switch in switches.items() for host in switch.hosts}
    tree = FabricTree(hosts, leaves=sum(bool(switch.hosts) for switch in switches.values()))
    links = {(name, lower): 1.0 for name, switch in switches.items() for lower in switch.below}
    tree.is_blocks = not links and ("BlockName" in text or "block:" in text)
    _, tree.upper, tree.parts = tree_of(links, hosts)
    depths = _depths(switches)
    tree.tiers = max(depths, default=0)
    sizes = tree.groups
    each = f"{sizes[-1]}" if sizes[0] == sizes[-1] else f"{sizes[-1]} to {sizes[0]}"
    if tree.is_blocks:
        tree.tiers, tree.parts = 0, 1
        tree.read = [f"{plural(len(hosts), 'host')} in {plural(tree.leaves, 'block')} of {each}"]
    else:
        tiers = plural(tree.tiers, "tier") if len(depths) == 1 else f"{min(depths)} to {tree.tiers} tiers"
        above = f", {plural(tree.upper, 'switch')} above, {tiers}" if tree.upper else ""
        if len(depths) > 1:
            tree.notes.append(f"leaves are {min(depths)} to {tree.tiers} tiers deep; collsim builds them alike")
        tree.read = [f"{plural(len(hosts), 'host')} on {plural(tree.leaves, 'leaf')} of {each}{above}"]
    if tree.parts > 1:
        tree.read.append(f"{tree.parts} parts that no switch joins")
    if left_out:
        tree.notes.append(f"one topology of the file is read; left out: {', '.join(left_out)}")
    return tree


def _depths(switches: Mapping[str, Switch]) -> set[int]:
    """Return how many switches there are from the top down to each leaf of a tree, that one included."""
    below = {lower for switch in switches.values() for lower in switch.below}
    pending = [(name, 1) for name in switches if name not in below]
    depths = set()
    while pending:
        name, depth = pending.pop()
        if switches[name].hosts:
            depths.add(depth)
        pending += [(lower, depth + 1) for lower in switches[name].below]
    return depths


def _of_yaml(text: str, file: str, left_out: list[str]) -> dict[str, Switch]:
    """Return the switches of a topology.yaml: of its default topology, else of the first tree or blocks.

    The names of the others are added to *left_out*.
    """
    document = read_data(text.encode(), file)
    data: Any = document.data
    entries = [(i, entry) for i, entry in enumerate(data if isinstance(data, list) else []) if isinstance(entry, dict)]
    usable = [(i, entry) for i, entry in entries if any(isinstance(entry.get(plugin), dict) for plugin in PLUGINS)]
    default = ((i, entry) for i, entry in usable if entry.get("cluster_default") is True)
    index, chosen = next(default, usable[0] if usable else (-1, None))
    left_out += [str(entry.get("topology", "?"))[:40] for i, entry in entries if i != index]
    faults = Faults()
    switches: dict[str, Switch] = {}
    if chosen is None:
        faults.append(Fault("there is no tree and no block topology", file, HINT))
    else:
        plugin, key = ("tree", "switches") if "tree" in chosen else ("block", "blocks")
        rows = chosen[plugin].get(key)
        for number, row in enumerate(rows if isinstance(rows, list) else []):
            path = (index, plugin, key, number)
            line = int(document.place(path).rpartition(":")[2])
            _add_row(switches, row if isinstance(row, dict) else {}, line, document.where(path), faults)
        if not switches and not faults:
            faults.append(Fault("it lists no switch and no block", file, HINT))
    faults += tree_faults(switches, file) if not faults else []
    faults.raise_any()
    return switches


def _add_row(switches: dict[str, Switch], row: Mapping[str, Any], line: int, where: str, faults: Faults) -> None:
    name = row.get("switch", row.get("block"))
    if not isinstance(name, str) or ("nodes" in row) == ("children" in row):
        faults.append(Fault("not a switch or block with either nodes or children", where, HINT))
        return
    if name in switches:
        faults.append(Fault(f'"{name[:40]}" is there already', where, "keep one"))
        return
    lists = {key: faults.attempt(hosts_in, str(row[key]), where) or [] for key in ("nodes", "children") if key in row}
    switches[name] = Switch(line, lists.get("nodes", []), lists.get("children", []))
