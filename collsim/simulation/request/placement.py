"""Placement of ranks on GPUs: block by block, in turn from node to node, as a host file or as Slurm says.

Ranks are numbered by the launcher; GPUs by the topology, node after node. `core.slurm` reads topology.conf.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from collsim.core.errors import Fault, InputError, did_you_mean, nearest
from collsim.core.input_files import read_input
from collsim.core.units import format_count

__all__ = ["PLACEMENTS", "files_of", "host_of", "placed"]

PLACEMENTS = ("block", "cyclic")
MOST_FILE_BYTES = 2**24
SLURM = "slurm:"
NAMES = "give block, cyclic, the name of a host file, or slurm:topology.conf"
HINT = "one line per rank with the name of a GPU, or one line per host: n0 slots=8"
SLOTS = re.compile(r"(?:slots\s*=\s*|:)([0-9]{1,6})")
SHOWN = 5
SERVER_GPUS = 16
"""A domain of more GPUs is a rack, in which several of Slurm's hosts sit (assumed: servers have up to 16)."""

Line = tuple[int, str, int | None]
"""Number of a line, a host, and its slots."""


def host_of(gpu_name: str) -> str:
    """Return the node that a GPU sits in: what stands before the last dot of its name, empty on one domain.

    >>> host_of("n3.gpu5"), host_of("gpu5")
    ('n3', '')
    """
    return gpu_name.rpartition(".")[0]


def files_of(placement: str | Path | None) -> list[str]:
    """Return the files that a placement is read from.

    >>> files_of("cyclic"), files_of("slurm:topology.conf:@hosts"), files_of("slurm:topology.conf:tux[0-3]")
    ([], ['topology.conf', 'hosts'], ['topology.conf'])
    """
    if placement is None or placement in PLACEMENTS:
        return []
    if not (isinstance(placement, str) and placement.startswith(SLURM)):
        return [str(placement)]
    file, _, hosts = placement.removeprefix(SLURM).partition(":")
    return [file, hosts[1:]] if hosts.startswith("@") else [file]


def placed(placement: str | Path, gpu_names: Sequence[str], pods: Sequence[int] | None = None) -> list[int]:
    """Return the GPU of each rank, as many as there are places.

    Parameters
    ----------
    placement : str or path
        ``block``: GPUs in their order; ``cyclic``: the first GPU of each node, then the second of each, ...;
        ``slurm:topology.conf:tux[0-3,7]``: these hosts, on leaves as the file says, in this order; without the list
        all of the file, and ``@FILE`` instead of it is a host file; else a host file.
    gpu_names : sequence of str
        Of all GPUs of the topology.
    pods : sequence of int, optional
        Of each GPU, the block of nodes that share leaves; None: nodes are not on leaves.

    Raises
    ------
    InputError
        No placement, or a file that cannot be read, or every fault of the file.

    Examples
    --------
    >>> placed("cyclic", ["n0.gpu0", "n0.gpu1", "n1.gpu0", "n1.gpu1"])
    [0, 2, 1, 3]
    """
    if not isinstance(placement, str | Path):
        raise InputError(Fault(f"placement {str(placement)[:40]!r} is not a name", "placement", NAMES))
    if placement == "block":
        return list(range(len(gpu_names)))
    if placement == "cyclic":
        hosts = list(_gpus_by_host(gpu_names).values())
        longest = max(map(len, hosts))
        return [gpus[turn] for turn in range(longest) for gpus in hosts if turn < len(gpus)]
    if isinstance(placement, str) and placement.startswith(SLURM):
        return _by_slurm(placement, gpu_names, pods)
    return _from_file(str(placement), gpu_names)


def _gpus_by_host(gpu_names: Sequence[str]) -> dict[str, list[int]]:
    hosts: dict[str, list[int]] = {}
    for gpu, name in enumerate(gpu_names):
        hosts.setdefault(host_of(name), []).append(gpu)
    return hosts


def _from_file(file: str, gpu_names: Sequence[str]) -> list[int]:
    """Return the GPUs in the order of a host file."""
    lines = _lines(file)
    known = _gpus_by_host(gpu_names)
    if not any(host in known or host in gpu_names for _, host, _ in lines):
        lines = _renamed(lines, list(known))
    return _filled(lines, known, gpu_names, file)


def _filled(lines: Sequence[Line], known: dict[str, list[int]], gpu_names: Sequence[str], file: str) -> list[int]:
    """Return the GPUs that lines take in turn; *known* are those of each host."""
    number = {name: gpu for gpu, name in enumerate(gpu_names)}
    order: list[int] = []
    faults: list[Fault] = []
    taken: set[int] = set()
    for line, host, slots in lines:
        where = f"{file}:{line}" if line else file
        if host in number and slots is None:
            found = [number[host]]
        elif host in known:
            found = [gpu for gpu in known[host] if gpu not in taken]
            if slots is not None and slots > len(found):
                faults.append(
                    Fault(f"{slots} slots on {host}, which has {format_count(len(found), 'GPU')} left", where, HINT)
                )
            found = found if slots is None else found[:slots]
        else:
            names = ", ".join(name or "(one domain: name GPUs)" for name in list(known)[:SHOWN])
            faults.append(Fault(f'there is no host or GPU "{host[:40]}"', where, f"hosts: {names}"))
            continue
        faults += [Fault(f"GPU {gpu_names[gpu]} is named twice", where, HINT) for gpu in found if gpu in taken]
        taken.update(found)
        order += found
    if faults:
        raise InputError(*faults)
    return order


def _by_slurm(placement: str, gpu_names: Sequence[str], pods: Sequence[int] | None) -> list[int]:
    """Return the GPUs of hosts that Slurm's topology.conf puts on leaves or in blocks, in the order of the hosts."""
    from collsim.core.slurm import hosts_in, read_leaves

    file, colon, text = placement.removeprefix(SLURM).partition(":")
    if pods is None:
        hint = "give --nodes N, with fabric rail, rail_only, fat_tree or single_switch"
        raise InputError(Fault("the topology has no leaves that hosts could be on", "placement", hint))
    leaves = read_leaves(file)
    where = file
    lines: list[Line] = [(0, host, None) for hosts in leaves.values() for host in hosts]
    if text.startswith("@"):
        where, lines = text[1:], _one_per_line(_lines(text[1:]))
    elif colon:
        where, lines = "placement", [(0, host, None) for host in hosts_in(text, "placement")]
    home = {host: leaf for leaf, hosts in leaves.items() for host in hosts}
    faults = []
    for line, host, _ in lines:
        if host not in home:
            near = nearest(host, [*home])
            hint = f'did you mean "{near}"?' if near else f"hosts: {', '.join(list(home)[:SHOWN])}"
            faults.append(Fault(f'"{host[:40]}" is on no leaf of {file}', f"{where}:{line}" if line else where, hint))
    if faults:
        raise InputError(*faults)
    chosen = {host for _, host, _ in lines}
    return _filled(lines, _seats(leaves, chosen, gpu_names, pods), gpu_names, where)


def _seats(
    leaves: dict[str, list[str]], chosen: set[str], gpu_names: Sequence[str], pods: Sequence[int]
) -> dict[str, list[int]]:
    """Return the GPUs of each chosen host: every leaf has a block of nodes to itself, or a rack if nodes are racks."""
    nodes = list(_gpus_by_host(gpu_names).values())
    racks = max(map(len, nodes)) > SERVER_GPUS
    blocks: dict[int, list[list[int]]] = {}
    for number, gpus in enumerate(nodes):
        blocks.setdefault(number if racks else pods[gpus[0]], []).append(gpus)
    faults: list[Fault] = []
    seats: dict[str, list[int]] = {}
    for leaf, hosts in leaves.items():
        here = [host for host in hosts if host in chosen]
        if not here:
            continue
        fits = [number for number, block in blocks.items() if racks or len(block) >= len(here)]
        if not fits:
            faults.append(_no_room(leaf, len(here), blocks, "rack" if racks else "block of nodes that share leaves"))
            continue
        block = blocks.pop(fits[0])
        if racks:
            seats |= _shares(leaf, hosts, block[0], faults)
        else:
            seats |= dict(zip(here, block, strict=False))
    if faults:
        raise InputError(*faults)
    return seats


def _no_room(leaf: str, hosts: int, blocks: dict[int, list[list[int]]], noun: str) -> Fault:
    """Return the fault of a leaf that no block is left for, or none that is large enough."""
    left = max(map(len, blocks.values()), default=0)
    what = f'no {noun} is left for the {hosts} hosts on "{leaf[:40]}"'
    hint = f"the largest left has {left} nodes" if left else "give more --nodes"
    return Fault(what, "placement", f"{hint}; `topo show` prints the blocks, scale_out.radix changes them")


def _shares(leaf: str, hosts: list[str], gpus: list[int], faults: list[Fault]) -> dict[str, list[int]]:
    """Return the equal shares that the hosts of a leaf have of a rack."""
    each, rest = divmod(len(gpus), len(hosts))
    if rest:
        what = f'the {len(gpus)} GPUs of a rack are no equal share for each of the {len(hosts)} hosts on "{leaf[:40]}"'
        faults.append(Fault(what, "placement", "list all hosts of the rack, those that are not used too"))
    return {host: gpus[place * each : (place + 1) * each] for place, host in enumerate(hosts)}


def _lines(file: str) -> list[Line]:
    """Return the line number, host and slots of each line that says something."""
    try:
        content = read_input(file, MOST_FILE_BYTES)
        if len(content) > MOST_FILE_BYTES:
            raise InputError(Fault(f"the file is larger than {MOST_FILE_BYTES >> 20} MiB", file, HINT))
        text = content.decode("utf-8-sig")
    except OSError as error:
        hint = f"{did_you_mean(str(file), PLACEMENTS)}{NAMES}"
        raise InputError(Fault(f'cannot read the placement "{file}": {error.strerror}', "placement", hint)) from None
    except ValueError:
        raise InputError(Fault("not a text file", file, HINT)) from None
    said: list[Line] = []
    faults = []
    for line, bare in enumerate((raw.partition("#")[0].strip() for raw in text.splitlines()), 1):
        if not bare:
            continue
        host = re.split(r"[\s:]", bare, maxsplit=1)[0]
        rest = bare[len(host) :].strip()
        slots = SLOTS.fullmatch(rest)
        if rest and slots is None:
            faults.append(Fault(f'"{bare[:60]}" is not a host with its slots', f"{file}:{line}", HINT))
            continue
        said.append((line, host, int(slots[1]) if slots else None))
    if not said and not faults:
        faults.append(Fault("the file names no host", file, HINT))
    if faults:
        raise InputError(*faults)
    return said


def _renamed(lines: list[Line], hosts: list[str]) -> list[Line]:
    """Return the lines with names of a real cluster replaced: the first host that comes is the first node."""
    names = list(dict.fromkeys(host for _, host, _ in lines))
    node = {name: hosts[i] if i < len(hosts) else name for i, name in enumerate(names)}
    return [(line, node[host], slots) for line, host, slots in _one_per_line(lines)]


def _one_per_line(lines: list[Line]) -> list[Line]:
    """Return the lines with one slot where none is given, if hosts come on several lines: then each line is a rank."""
    repeated = len({host for _, host, _ in lines}) < len(lines)
    return [(line, host, 1 if repeated and slots is None else slots) for line, host, slots in lines]
