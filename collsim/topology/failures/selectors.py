"""Names of links and nodes as what-ifs write them: ``link:gpu0-gpu1``, ``switch:nvsw2``, ``nic:node3/5``, ``leaf:2``.

A name is exact or a glob, and may match several things. Links are written with their two ends; a link is a cable, so
both of its directions are meant, whether ``-`` or ``->`` stands between the ends. ``link!:`` means one direction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, InputError, nearest
from collsim.topology.wiring import LinkBundles, Wiring

__all__ = ["KINDS", "Selection", "ends_of", "keyed", "name_of", "places_of", "select"]

Ints = NDArray[np.int64]

KINDS = ("link", "link!", "switch", "nic", "gpu", "leaf", "spine", "core", "cpu")
"""Kinds that may stand before the colon."""
MOST_COMPARED = 4096
"""Among more names the nearest is not looked for: that takes seconds."""
DIGITS = re.compile(r"\d+")
MOST_IN_RANGE = 4096
MOST_NAMES = 8
"""A hint lists at most this many names."""
ON_NODE = re.compile(r"node([\d*?\[\]!-]+)/(.+)", re.ASCII)
RANGE = re.compile(r"(?<![\d\[!-])(\d{1,9})-(\d{1,9})(?![\d\]-])", re.ASCII)
"""Numbers from one to another, outside brackets."""
HALF = re.compile(r"(?<![\d\[!-])(\d{1,9})-(?![\w\]])|(?:^|(?<=/)|(?<=node))-(\d{1,9})", re.ASCII)
"""Numbers with one end, outside brackets: ``4-`` or ``-3``."""
DIGITS_IN_CLASS = re.compile(r"\[!?[\d-]*(?:\d\d+-\d|\d-\d\d)[\d-]*\]", re.ASCII)
"""Brackets that are meant for numbers; they stand for one character, so that ``[10-12]`` is 0, 1 or 2."""
NUMBERS = re.compile(r"[\d*?\[\]!-]+", re.ASCII)
"""Numbers, and globs of numbers."""
GLOB = re.compile(r"[*?\[]", re.ASCII)
CABLES = re.compile(r"(.+):(\d{1,6})", re.ASCII)


SINGLE = 1 << 16
"""More than there are cables between two nodes that are listed one by one."""


class Selection(NamedTuple):
    """Nodes that a text selects, or links by their keys with the number of cables that is meant (None: all)."""

    kind: str
    nodes: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    cables: int | None = None


def select(wiring: Wiring, text: str, where: str) -> Selection:
    """Return the nodes or links that *text* names.

    Parameters
    ----------
    wiring : Wiring
    text : str
    where : str
        The place that faults name.

    Raises
    ------
    InputError
        There is no such thing; the hint has the nearest names.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> wiring = load_topology("hgx_h100").wiring
    >>> select(wiring, "link:gpu0-nvsw1:2", "--fail").cables
    2
    >>> [wiring.node_names[node] for node in select(wiring, "switch:nvsw[12]", "--fail").nodes]
    ['nvsw1', 'nvsw2']
    """
    kind, colon, name = text.strip().partition(":")
    if not colon or kind not in KINDS or not name:
        raise InputError(Fault(f'"{text[:60]}" is not KIND:NAME', where, _shape_hint(wiring, text.strip())))
    if brackets := DIGITS_IN_CLASS.search(name):
        numbers = brackets[0].strip("[!]")
        hint = f"brackets stand for one character; give a range, {kind}:{numbers}, or several names"
        raise InputError(Fault(f'"{brackets[0]}" in "{text[:60]}" names no numbers', where, hint))
    if kind.startswith("link"):
        return _links(wiring, text, kind, name, where)
    found: set[int] = set()
    for each in _spread(name, where):
        own = [node for node in _matching(wiring, _spelled(kind, each)) if _is(wiring, node, kind)]
        if not own:
            pool = [node for node in range(wiring.n_nodes) if _is(wiring, node, kind)]
            if half := HALF.search(each):
                what, number = f'"{half[0]}" in "{name[:60]}" is half a range', int(half[1] or half[2])
                hint = f"write both ends, such as {number}-{number + 1}" if half[1] else f"write 0-{number}"
                raise InputError(Fault(what, where, f"{hint}, one number, or * for all"))
            of = "" if each == name else f' of "{name[:60]}"'
            what = f'there is no {kind} "{each[:60]}"{of}'
            raise InputError(Fault(what, where, _near(wiring, pool, each, kind)))
        found.update(own)
    return Selection(kind, nodes=tuple(sorted(found)))


def _spread(name: str, where: str) -> list[str]:
    """Return the names that a name with ranges of numbers stands for.

    >>> _spread("node*/4-6", "fail"), _spread("0-1", "fail"), _spread("gpu[4-6]", "fail")
    (['node*/4', 'node*/5', 'node*/6'], ['0', '1'], ['gpu[4-6]'])
    """
    found = RANGE.search(name)
    if found is None:
        return [name]
    first, last = int(found[1]), int(found[2])
    if last < first:
        raise InputError(Fault(f'"{found[0]}" in "{name[:60]}" runs backwards', where, f"write {last}-{first}"))
    if last - first >= MOST_IN_RANGE:
        hint = f"at most {MOST_IN_RANGE:,} numbers, or a glob such as *"
        raise InputError(Fault(f'"{found[0]}" in "{name[:60]}" is too long', where, hint))
    before, after = name[: found.start()], _spread(name[found.end() :], where)
    return [f"{before}{number}{rest}" for number in range(first, last + 1) for rest in after]


def keyed(wiring: Wiring, nodes: Ints) -> tuple[Ints, LinkBundles]:
    """Return the links that leave or enter some nodes, in order, each with a key that tells it from all others.

    The key holds both ends and, where cables are listed one by one, the place among those between them. So unlike the
    number of a link it is known without all that come before.
    """
    links = wiring.around(nodes)
    ends = links.src * wiring.n_nodes + links.dst
    return ends * SINGLE + np.arange(len(ends)) - np.searchsorted(ends, ends), links


def ends_of(wiring: Wiring, keys: Ints) -> tuple[Ints, Ints]:
    """Return the source and the destination of links."""
    return np.divmod(keys // SINGLE, wiring.n_nodes)


def name_of(wiring: Wiring, key: int) -> str:
    """Return the name of a link, such as ``gpu3->nvsw1``."""
    return "->".join(wiring.node_names[end] for end in divmod(key // SINGLE, wiring.n_nodes))


def places_of(keys: Ints) -> Ints:
    """Return the place of each link among those between the same nodes."""
    return keys % SINGLE


def _shape_hint(wiring: Wiring, text: str) -> str:
    """Return a hint for a text without a kind, or with an unknown one."""
    name = text.rpartition(":")[2]
    if not name and text[:-1] in KINDS:
        return f"the name after the colon is missing: {_example(wiring, text[:-1])}"
    if name in wiring.node_names:
        node = wiring.node_names.index(name)
        kind = next((kind for kind in ("gpu", "nic", "switch", "cpu") if _is(wiring, node, kind)), "switch")
        return f"write {kind}:{name}"
    kind, _, named = text.partition(":")
    near = nearest(kind, KINDS)
    meant = f'did you mean "{near}:{named}"? ' if near else ""
    return f"{meant}the kinds are {', '.join(KINDS)}: link:gpu0-gpu1"


def _example(wiring: Wiring, kind: str) -> str:
    """Return what stands before the names of a kind with one after it, or that the topology has none."""
    if kind.startswith("link"):
        links = wiring.around(np.array([0]))
        ends = [wiring.node_names[node] for node in (0, int(links.dst[links.src == 0][0]))]
        return f"{kind}:{('->' if kind == 'link!' else '-').join(ends)}"
    first = next((name for node, name in enumerate(wiring.node_names) if _is(wiring, node, kind)), None)
    return f"{kind}:{first}" if first else _near(wiring, (), "", kind)


def _is(wiring: Wiring, node: int, kind: str) -> bool:
    """Return True if a node is of a kind, by what the topology says of it or by how its name begins."""
    own, local = wiring.node_kinds[node], wiring.node_names[node].rpartition(".")[2]
    if kind in ("gpu", "cpu"):
        return own == kind
    adapter = own == "nic" or (own != "gpu" and local.startswith("nic"))
    if kind == "nic":
        return adapter
    if kind == "switch":
        return own not in ("gpu", "cpu") and not adapter
    return own == kind or (own not in ("gpu", "cpu") and local.startswith(kind))


def _spelled(kind: str, name: str) -> str:
    """Return a name as topologies write it: ``node3/5`` of a GPU is ``n3.gpu5``, ``2`` of a leaf is ``leaf2``."""
    prefix, local = "", name
    if found := ON_NODE.fullmatch(name):
        prefix, local = f"n{found[1]}.", found[2]
    return prefix + (f"{kind}{local}" if NUMBERS.fullmatch(local) and local != "*" else local)


def _matching(wiring: Wiring, name: str) -> tuple[int, ...]:
    if not GLOB.search(name):  # names are unique, and there may be many
        return (wiring.node_names.index(name),) if name in wiring.node_names else ()
    return tuple(node for node, own in enumerate(wiring.node_names) if own == name or fnmatchcase(own, name))


def _near(wiring: Wiring, pool: Sequence[int], name: str, kind: str) -> str:
    """Return a hint with the nearest name of a pool and its first few names."""
    names = [wiring.node_names[node] for node in pool]
    if not names:
        return f"this topology has no {kind} at all" + "; adapters join nodes: give --nodes" * (kind == "nic")
    near = nearest(name, names) if len(names) <= MOST_COMPARED else None
    if near and DIGITS.sub("", near) == DIGITS.sub("", name):  # another number is another one, no slip
        near = None
    more = f" and {len(names) - MOST_NAMES} more, up to {names[-1]}" if len(names) > MOST_NAMES else ""
    return (f'did you mean "{near}"? ' if near else "") + f"there are {', '.join(names[:MOST_NAMES])}{more}"


def _links(wiring: Wiring, text: str, kind: str, name: str, where: str) -> Selection:
    """Return the links between two ends."""
    cables = None
    if found := CABLES.fullmatch(name):
        name, cables = found[1], int(found[2])
    one_way = kind == "link!"
    if one_way and "->" not in name:
        raise InputError(Fault(f'"{text[:60]}" does not say which direction', where, "write link!:gpu0->gpu1"))
    a, b = _ends(wiring, text, name, where)
    keys, links = keyed(wiring, np.array(min(a, b, key=len)))
    there = np.isin(links.src, a) & np.isin(links.dst, b)
    back = np.isin(links.src, b) & np.isin(links.dst, a)
    chosen = np.flatnonzero(there if one_way else there | back)
    if not len(chosen):
        raise InputError(Fault(f'no link joins the ends of "{text[:60]}"', where, _neighbours(wiring, a[0])))
    _check_cables(keys[chosen], links.parallel[chosen], cables, text, where)
    return Selection(kind, links=tuple(keys[chosen].tolist()), cables=cables)


def _check_cables(keys: Ints, count: Ints, cables: int | None, text: str, where: str) -> None:
    """Refuse more cables than a bundle has."""
    if cables is None:
        return
    ends = keys - places_of(keys)
    least = min(int(count[ends == end].sum()) for end in np.unique(ends))
    if not 1 <= cables <= least:
        what = f'"{text[:60]}" means {cables} cables of a bundle of {least}'
        raise InputError(Fault(what, where, f"give 1 to {least}, or no number for the whole bundle"))


def _ends(wiring: Wiring, text: str, name: str, where: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the nodes at both ends; a hyphen may also be part of a name."""
    everyone = range(wiring.n_nodes)
    mark = "->" if "->" in name else "-"
    places = [place.start() for place in re.finditer(mark, name)]
    if not places:
        raise InputError(Fault(f'"{text[:60]}" does not name two ends', where, "write link:gpu0-gpu1"))
    splits = [(name[:place].strip(), name[place + len(mark) :].strip()) for place in places]
    for a, b in splits:
        found = _matching(wiring, a), _matching(wiring, b)
        if all(found):
            return found
    a, b = splits[0]
    faults = [
        Fault(f'"{end[:60]}" is no end of a link', where, _near(wiring, everyone, end, "node"))
        for end in (a, b)
        if not _matching(wiring, end)
    ]
    raise InputError(*faults)


def _neighbours(wiring: Wiring, node: int) -> str:
    """Return a hint: where the links of a node lead."""
    links = wiring.around(np.array([node]))
    names = [wiring.node_names[dst] for dst in links.dst[links.src == node].tolist()]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    where = f"{', '.join(names[:MOST_NAMES])}{more}" if names else "nowhere"
    return f"the links of {wiring.node_names[node]} lead to {where}"
