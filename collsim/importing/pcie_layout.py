"""GPUs on PCIe as nodes and links: switches for groups that are near, processors for sockets."""

from __future__ import annotations

from collections.abc import Callable

from collsim.importing.machine import Machine

__all__ = ["pcie_nodes"]


def pcie_nodes(machine: Machine, bus: str, socket_links: str) -> tuple[list[str], list[str]]:
    """Return the lines of nodes and of links, as a topology file has them, that join all GPUs over PCIe.

    GPUs at distance PIX or PXB share a switch, those at PHB or NODE a processor, and every two processors are joined.
    *bus* and *socket_links* are what is said of a link to a GPU, and of one between processors.
    """
    sockets = _groups(machine, ("PIX", "PXB", "PHB", "NODE"))
    nodes, links, switches = [], [], 0
    for number, socket in enumerate(sockets):
        nodes.append(f"  - {{name: cpu{number}, kind: cpu}}")
        for group in _groups(machine, ("PIX", "PXB"), socket):
            up = f"cpu{number}"
            if len(group) > 1:
                up = f"pcie{switches}"
                nodes.append(f"  - {{name: {up}, kind: switch}}")
                links.append(f"  - {{a: {up}, b: cpu{number}{bus}}}")
                switches += 1
            links += [f"  - {{a: gpu{gpu}, b: {up}{bus}}}" for gpu in group]
    links += [
        f"  - {{a: cpu{a}, b: cpu{b}{socket_links}}}" for a in range(len(sockets)) for b in range(a + 1, len(sockets))
    ]
    return nodes, links


def _groups(machine: Machine, near: tuple[str, ...], among: list[int] | None = None) -> list[list[int]]:
    """Return GPUs in groups that are *near* each other, directly or by way of others."""
    gpus = list(range(machine.n_gpus)) if among is None else among
    head = {gpu: gpu for gpu in gpus}
    find: Callable[[int], int] = lambda gpu: gpu if head[gpu] == gpu else find(head[gpu])  # noqa: E731 - it calls itself
    for a, b in machine.pairs:
        way = machine.distances.get((a, b)) or _by_numa(machine, a, b)
        if way in near and a in head and b in head:
            head[max(find(a), find(b))] = min(find(a), find(b))
    found: dict[int, list[int]] = {}
    for gpu in gpus:
        found.setdefault(find(gpu), []).append(gpu)
    return list(found.values())


def _by_numa(machine: Machine, a: int, b: int) -> str:
    """Return the way over PCIe between GPUs of which a file tells only the links between them."""
    return "SYS" if machine.numa and machine.numa[a] != machine.numa[b] else "PHB"
