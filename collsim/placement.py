"""Which GPU each rank runs on: block by block, in turn from node to node, or as a host file says.

Ranks are numbered by the launcher; GPUs by the topology, node after node. This module imports only `errors`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from collsim.errors import Fault, InputError

__all__ = ["PLACEMENTS", "host_of", "placed"]

PLACEMENTS = ("block", "cyclic")
MOST_FILE_BYTES = 2**24
NAMES = "give block, cyclic, or the name of a host file"
HINT = "one line per rank with the name of a GPU, or one line per host: n0 slots=8"
SLOTS = re.compile(r"(?:slots\s*=\s*|:)([0-9]{1,6})")
SHOWN = 5


def host_of(gpu_name: str) -> str:
    """Return the node that a GPU sits in: what stands before the last dot of its name, empty on one domain.

    >>> host_of("n3.gpu5"), host_of("gpu5")
    ('n3', '')
    """
    return gpu_name.rpartition(".")[0]


def placed(placement: str | Path, gpu_names: Sequence[str]) -> list[int]:
    """Return the GPU of each rank, as many as there are places.

    Parameters
    ----------
    placement : str or path
        ``block``: GPUs in their order; ``cyclic``: the first GPU of each node, then the second of each, ...; else a
        host file.
    gpu_names : sequence of str
        Of all GPUs of the topology.

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
    number = {name: gpu for gpu, name in enumerate(gpu_names)}
    if not any(host in known or host in number for _, host, _ in lines):
        lines = _renamed(lines, list(known))
    order: list[int] = []
    faults: list[Fault] = []
    taken: set[int] = set()
    for line, host, slots in lines:
        where = f"{file}:{line}"
        if host in number and slots is None:
            found = [number[host]]
        elif host in known:
            found = [gpu for gpu in known[host] if gpu not in taken]
            if slots is not None and slots > len(found):
                faults.append(Fault(f"{slots} slots on {host}, which has {len(found)} GPUs left", where, HINT))
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


def _lines(file: str) -> list[tuple[int, str, int | None]]:
    """Return the line number, host and slots of each line that says something."""
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(MOST_FILE_BYTES + 1)
        if len(content) > MOST_FILE_BYTES:
            raise InputError(Fault(f"the file is larger than {MOST_FILE_BYTES >> 20} MiB", file, HINT))
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(Fault(f'cannot read the placement "{file}": {error.strerror}', "placement", NAMES)) from None
    except ValueError:
        raise InputError(Fault("not a text file", file, HINT)) from None
    said: list[tuple[int, str, int | None]] = []
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


def _renamed(lines: list[tuple[int, str, int | None]], hosts: list[str]) -> list[tuple[int, str, int | None]]:
    """Return the lines with names of a real cluster replaced: the first host that comes is the first node, and so on.

    A host that comes on several lines without slots has one rank per line.
    """
    names = list(dict.fromkeys(host for _, host, _ in lines))
    node = {name: hosts[i] if i < len(hosts) else name for i, name in enumerate(names)}
    repeated = len(names) < len(lines)
    return [(line, node[host], 1 if repeated and slots is None else slots) for line, host, slots in lines]
