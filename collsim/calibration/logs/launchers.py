"""Command lines of launchers: how many processes mpirun, srun or torchrun starts, and on how many nodes.

This module imports nothing of the package.
"""

from __future__ import annotations

import re

__all__ = ["NAMED", "launched"]

NAMED = re.compile(
    r"\b(mpirun|mpiexec(?:\.hydra)?|orterun|prterun|srun|torchrun|torch\.distributed\.(?:run|launch))(?=\s)(.*)",
    re.DOTALL,
)
_FLAGS = {
    "mpi": {
        "processes": r"-np|-n|--np|--n|-c",
        "per_node": r"-npernode|--npernode|-N|-ppn|--ppn|-perhost|--map-by[ =]ppr:(?=\d+:node)",
    },
    "srun": {"processes": r"-n|--ntasks", "nodes": r"-N|--nodes", "per_node": r"--ntasks-per-node"},
    "torch": {"nodes": r"--nnodes", "per_node": r"--nproc[_-]per[_-]node"},
}
_HOSTS = re.compile(r"(?<!\S)(?:-H|--?host|--?hosts)[ =](\S+)")
_SLOTS = re.compile(r":(\d{1,5})$")


def launched(command: str) -> tuple[int | None, int | None]:
    """Return the processes that a launcher starts and the nodes that they are on; None for what it does not say.

    >>> launched("mpirun -np 256 -npernode 16 -hostfile hosts"), launched("srun -N 4 --ntasks-per-node=8")
    ((256, 16), (32, 4))
    >>> launched("torchrun --nnodes 2 --nproc_per_node 8"), launched("mpirun -H a:8,b:8 --map-by ppr:8:node")
    ((16, 2), (16, 2))
    """
    found = NAMED.search(command)
    if found is None:
        return None, None
    kind = "srun" if found[1] == "srun" else "torch" if "torch" in found[1] else "mpi"
    given = {name: _value(flags, found[2]) for name, flags in _FLAGS[kind].items()}
    processes, nodes, per_node = (given.get(name) for name in ("processes", "nodes", "per_node"))
    if kind == "mpi" and (hosts := _HOSTS.search(found[2])):
        listed = hosts[1].split(",")
        whole = sum(int(slots[1]) if (slots := _SLOTS.search(host)) else 1 for host in listed)
        nodes = len(listed) if processes in (None, whole) else None
        processes = processes or (len(listed) * per_node if per_node else whole)
    if kind == "torch" and per_node and "--nnodes" not in found[2]:
        nodes = 1
    if processes is None and nodes and per_node:
        processes = nodes * per_node
    if nodes is None and processes and per_node:
        nodes = -(-processes // per_node)
    return processes, nodes


def _value(flags: str, text: str) -> int | None:
    """Return the number behind the first of *flags*, which may stand close to a short one; None for a range."""
    match = re.search(rf"(?<!\S)(?:{flags})[ =]*(\d{{1,7}})(?=\s|$|:node)", text)
    return int(match[1]) or None if match else None
