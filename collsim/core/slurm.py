"""Slurm's files: which hosts share a leaf switch or a block (topology.conf), and lists of hosts with brackets.

Both plugins are read, tree (``SwitchName=s1 Nodes=tux[0-3]``, ``SwitchName=top Switches=s[1-4]``) and block
(``BlockName=b1 Nodes=tux[0-17]``); the syntax is that of https://slurm.schedmd.com/topology.conf.html. This module
imports only `errors`, `input_files` and `records`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collsim.core.errors import Fault, Faults, InputError, nearest
from collsim.core.input_files import read_input

__all__ = ["Switch", "hosts_in", "read_leaves", "switches_in", "tree_faults"]

MOST_FILE_BYTES = 2**24
MOST_HOSTS = 2**20
KEYS = {
    "switchname": "a switch", "blockname": "a block", "nodes": "hosts", "switches": "switches",
    "linkspeed": "ignored", "blocksizes": "ignored", "blocksize": "ignored", "blockindex": "ignored",
    "level": "ignored",
}  # fmt: skip
HINT = "write SwitchName=s1 Nodes=tux[0-3], SwitchName=top Switches=s[1-4], or BlockName=b1 Nodes=tux[0-17]"
LIST_HINT = "write hosts as Slurm does: tux[001-004,017],gpu5"
WORD = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def hosts_in(text: str, where: str) -> list[str]:
    """Return the hosts of a list with brackets, in its order; *where* is the place of its faults.

    >>> hosts_in("tux[08-10,20],gpu5,r[1-2]n[1-2]", "here")
    ['tux08', 'tux09', 'tux10', 'tux20', 'gpu5', 'r1n1', 'r1n2', 'r2n1', 'r2n2']
    """
    bare = text.strip()
    words = WORD.findall(bare)
    if not words or ",".join(words) != bare:
        raise InputError(Fault(f'"{bare[:60]}" is not a list of hosts', where, LIST_HINT))
    found: list[str] = []
    for word in words:
        names = [""]
        for part in re.findall(r"\[[^\]]*\]|[^\[]+", word):
            ends = list(_numbers(part[1:-1], where)) if part.startswith("[") else [part]
            if len(names) * len(ends) + len(found) > MOST_HOSTS:
                raise InputError(Fault(f'"{word[:60]}" is more than {MOST_HOSTS:,} hosts', where, LIST_HINT))
            names = [name + end for name in names for end in ends]
        found += names
    return found


def _numbers(text: str, where: str) -> Iterator[str]:
    """Yield what a pair of brackets stands for; zeros in front are kept."""
    for part in text.split(","):
        found = RANGE.fullmatch(part.strip())
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if int(last) < int(first) or int(last) - int(first) >= MOST_HOSTS:
            raise InputError(Fault(f'"[{text[:60]}]" is not a range of hosts', where, LIST_HINT))
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


@dataclass(slots=True)
class Switch:
    """A line of the file: hosts of a leaf or a block, or the switches below a switch."""

    line: int
    hosts: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


def read_leaves(file: str) -> dict[str, list[str]]:
    """Return the hosts of each leaf switch or block of a topology.conf, neighbours in the tree next to each other.

    Raises
    ------
    InputError
        The file cannot be read, or every fault of it, each with its line.
    """
    switches = switches_in(_text(file), file)
    under = {name for switch in switches.values() for name in switch.below}
    order: list[str] = []
    for name in switches:
        if name not in under:
            _walk(name, switches, order)
    return {name: switches[name].hosts for name in order}


def switches_in(text: str, file: str) -> dict[str, Switch]:
    """Return the switches and blocks in the text of a topology.conf by their names; raise as `read_leaves`."""
    faults = Faults()
    switches: dict[str, Switch] = {}
    for line, said in _lines(text):
        faults.attempt(_add, switches, line, said, f"{file}:{line}")
    faults += tree_faults(switches, file) if not faults else []
    if not any(switch.hosts for switch in switches.values()) and not faults:
        faults.append(Fault("the file puts no host on a switch or in a block", file, HINT))
    faults.raise_any()
    return switches


def _text(file: str) -> str:
    """Return the text of a file."""
    try:
        content = read_input(file, MOST_FILE_BYTES)
        text = content.decode("utf-8-sig")
    except OSError as error:
        hint = "name Slurm's topology.conf: slurm:topology.conf"
        raise InputError(Fault(f'cannot read "{file}": {error.strerror}', "placement", hint)) from None
    except ValueError:
        raise InputError(Fault("not a text file", file, HINT)) from None
    if len(content) > MOST_FILE_BYTES:
        raise InputError(Fault(f"the file is larger than {MOST_FILE_BYTES >> 20} MiB", file, HINT))
    return text


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, with the number of their first; a backslash joins two."""
    start, joined = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        start = start or number
        bare = raw.partition("#")[0].rstrip()
        joined += bare.removesuffix("\\")
        if bare.endswith("\\"):
            continue
        if joined.strip():
            yield start, joined.strip()
        start, joined = 0, ""
    if joined.strip():
        yield start, joined.strip()


def _add(switches: dict[str, Switch], line: int, text: str, where: str) -> None:
    """Read one line into *switches*."""
    values: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in KEYS:
            near = nearest(key, [*KEYS])
            hint = f"did you mean {near}? {HINT}" if near else HINT
            raise InputError(Fault(f'"{word[:60]}" is not of a topology.conf', where, hint))
        if key.lower() in values:
            raise InputError(Fault(f"{key} comes twice", where, HINT))
        values[key.lower()] = value
    if set(values) <= {"blocksizes", "linkspeed"}:
        return
    if "level" in values and "switches" in values:  # scontrol lists the hosts below a switch as well
        values.pop("nodes", None)
    names = [values[key] for key in ("switchname", "blockname") if key in values]
    if len(names) != 1 or ("nodes" in values) == ("switches" in values):
        what = f'"{text[:60]}" does not name one switch or block with either its hosts or its switches'
        raise InputError(Fault(what, where, HINT))
    (name,) = names
    if name in switches:
        raise InputError(Fault(f'"{name[:60]}" is there already, on line {switches[name].line}', where, "keep one"))
    hosts, below = (hosts_in(values[key], where) if key in values else [] for key in ("nodes", "switches"))
    switches[name] = Switch(line, hosts, below)


def tree_faults(switches: dict[str, Switch], file: str) -> list[Fault]:
    """Return the faults between lines: switches that are not there, in two places or in a circle; hosts twice."""
    faults: list[Fault] = []
    above: dict[str, str] = {}
    home: dict[str, str] = {}
    for name, switch in switches.items():
        where = f"{file}:{switch.line}"
        for lower in switch.below:
            if lower not in switches:
                near = nearest(lower, [*switches])
                hint = f'did you mean "{near}"?' if near else HINT
                faults.append(Fault(f'there is no switch "{lower[:60]}"', where, hint))
            elif lower in above:
                faults.append(Fault(f'"{lower}" is below "{above[lower]}" already', where, "a tree has one way up"))
            above.setdefault(lower, name)
        for host in switch.hosts:
            if host in home:
                faults.append(Fault(f'"{host[:60]}" is on "{home[host]}" already', where, "a host has one leaf"))
            home.setdefault(host, name)
    for name, switch in switches.items():
        top, seen = name, {name}
        while top in above and above[top] not in seen:
            top = above[top]
            seen.add(top)
        if top in above:
            faults.append(Fault(f'"{name}" is below itself', f"{file}:{switch.line}", "a tree has a top"))
    return faults


def _walk(name: str, switches: dict[str, Switch], order: list[str]) -> None:
    """Append the leaves below a switch, from left to right."""
    pending = [name]
    while pending:
        top = pending.pop()
        if switches[top].hosts:
            order.append(top)
        pending += reversed(switches[top].below)
