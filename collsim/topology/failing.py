"""What-ifs: a topology in which links, switches, adapters or GPUs have failed, or links run slower than they should.

What has failed is gone from the wiring. GPUs that are left keep their names and become the ranks 0 to n - 1. A
degraded link stays, at part of its rate; what spreads traffic over links does not know that and counts on the rate that
it should have, so that the slowest link of a spread holds back the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collsim.errors import Fault, InputError
from collsim.topology.builders import Bundles, recognise
from collsim.topology.cluster_effects import cluster_effects, kept_of, listed
from collsim.topology.model import Coordinates, Damage, Fact, Topology, Wiring
from collsim.topology.selecting import Selection, select
from collsim.topology.summary import reached_from

__all__ = ["cut_faults", "damaged"]

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
DEGRADE_SHAPE = 'write --degrade "link:gpu0-gpu1=50%", the part of the rate that remains'


def damaged(
    topology: Topology,
    fail: str | Sequence[str] | None = None,
    degrade: Mapping[str, str | float] | Sequence[str] | None = None,
) -> Topology:
    """Return *topology* with what *fail* names gone and what *degrade* names slower; itself if neither names anything.

    Parameters
    ----------
    topology : Topology
    fail : str or sequence of str, optional
        Such as ``link:gpu0-gpu1``, ``link:gpu0-nvsw0:1`` (one cable of a bundle), ``switch:nvsw2``, ``gpu:gpu5``.
    degrade : mapping or sequence of str, optional
        The part of the rate that remains: ``{"link:gpu0-gpu1": "50%"}`` or ``["link:gpu0-gpu1=50%"]``.

    Raises
    ------
    InputError
        Unknown names, percentages that are none, or nothing left; every fault at once.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> topology = damaged(load_topology("hgx_h100"), ["switch:nvsw2"])
    >>> topology.damage.summary, topology.wiring.n_links, topology.in_network_reduction
    ('1 switch failed: nvsw2', 48, None)
    """
    faults: list[Fault] = []
    names, shares = _fail_names(fail, faults), _shares(degrade, faults)
    if topology.damage is not None:
        names, shares = (*topology.damage.fail, *names), {**topology.damage.degrade, **shares}
        topology = topology.damage.healthy
    names = tuple(dict.fromkeys(names))
    gone = [found for name in names if (found := _selected(topology.wiring, name, "fail", faults))]
    slow = [
        (found, share)
        for name, text in shares.items()
        if (share := _share(text, name, faults)) is not None
        and (found := _selected(topology.wiring, name, "degrade", faults))
    ]
    if faults:
        raise InputError(*faults)
    if not names and not shares:
        return topology
    return _rebuilt(topology, names, shares, _wreck(topology.wiring, gone, slow))


def _fail_names(fail: Any, faults: list[Fault]) -> tuple[str, ...]:
    """Return names as texts."""
    entries = _entries(fail)
    if any(not isinstance(entry, str) for entry in entries):
        faults.append(Fault("what fails is named by texts", "fail", 'write ["link:gpu0-gpu1"]'))
    return tuple(entry.strip() for entry in entries if isinstance(entry, str))


def _entries(value: Any) -> list[Any]:
    """Return the entries of a list; anything else is the only entry."""
    if value is None:
        return []
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]


def _shares(degrade: Any, faults: list[Fault]) -> dict[str, str]:
    """Return NAME=SHARE entries as a mapping."""
    if isinstance(degrade, Mapping):
        return {str(name).strip(): str(share).strip() for name, share in degrade.items()}
    shares: dict[str, str] = {}
    for entry in _entries(degrade):
        name, equals, share = (part.strip() for part in str(entry).rpartition("="))
        if not equals or not name:
            faults.append(Fault(f'"{str(entry)[:60]}" is not NAME=SHARE', "degrade", DEGRADE_SHAPE))
        elif name in shares:
            faults.append(Fault(f'"{name[:60]}" is degraded twice', "degrade", "keep one of the two"))
        else:
            shares[name] = share
    return shares


def _share(text: str, name: str, faults: list[Fault]) -> float | None:
    """Return the part of the rate that remains, as a fraction."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        faults.append(Fault(f'"{text[:40]}" of "{name[:60]}" is not a percentage', "degrade", DEGRADE_SHAPE))
        return None
    if 0 < share <= 1:
        return share
    hint = f"write --fail {name}" if share == 0 else "give more than 0% and at most 100%"
    faults.append(Fault(f'"{text[:40]}" of "{name[:60]}" is no part of a rate', "degrade", hint))
    return None


def _selected(wiring: Wiring, name: str, where: str, faults: list[Fault]) -> Selection | None:
    try:
        return select(wiring, name, where)
    except InputError as error:
        faults.extend(error.faults)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Wreck:
    """What is left of a wiring: bool[n_nodes], cables of each link, and the part of its rate that each cable has."""

    alive: Mask
    cables: NDArray[np.int64]
    share: Floats

    @property
    def links(self) -> Mask:
        """Return bool[n_links]: which links are left."""
        return np.asarray(self.cables > 0)


def _wreck(wiring: Wiring, gone: Sequence[Selection], slow: Sequence[tuple[Selection, float]]) -> _Wreck:
    """Return what is left; of two figures for one link the lower counts, and cables lost twice are two cables."""
    alive = np.ones(wiring.n_nodes, dtype=np.bool_)
    lost = np.zeros(wiring.n_links, dtype=np.int64)
    for selection in gone:
        alive[list(selection.nodes)] = False
        links = _links_of(wiring, selection) if selection.links else np.zeros(0, dtype=np.int64)
        lost[links] += _cables_of(wiring, links, selection.cables)
    cables = np.maximum(wiring.link_count - lost, 0) * (alive[wiring.link_src] & alive[wiring.link_dst])
    share = np.ones(wiring.n_links)
    for selection, part in slow:
        links = _links_of(wiring, selection)
        count = _cables_of(wiring, links, selection.cables)
        share[links] = np.minimum(share[links], 1 - (1 - part) * count / wiring.link_count[links])
    return _Wreck(alive, cables, share)


def _cables_of(wiring: Wiring, links: NDArray[np.int64], cables: int | None) -> NDArray[np.int64]:
    """Return how many cables of each link are meant; where a bundle is listed cable by cable, its first ones."""
    count = wiring.link_count[links]
    if cables is None:
        return count
    ends = wiring.link_src[links] * wiring.n_nodes + wiring.link_dst[links]
    before = np.cumsum(count) - count
    return np.asarray(np.clip(cables - (before - before[np.searchsorted(ends, ends)]), 0, count), dtype=np.int64)


def _links_of(wiring: Wiring, selection: Selection) -> NDArray[np.int64]:
    """Return the links that a selection names, or that meet in a node that it names."""
    if selection.links:
        return np.array(selection.links, dtype=np.int64)
    return np.flatnonzero(np.isin(wiring.link_src, selection.nodes) | np.isin(wiring.link_dst, selection.nodes))


def _rebuilt(topology: Topology, names: tuple[str, ...], shares: dict[str, str], wreck: _Wreck) -> Topology:
    """Return the topology of what is left, with the record of what is not."""
    before = topology.wiring
    gpus = np.flatnonzero(wreck.alive[: before.n_gpus])
    if len(gpus) < 2 or not wreck.links.any():
        left = f"{len(gpus)} of its {before.n_gpus} GPUs" if len(gpus) < 2 else "no link"
        what = f"{topology.name} is left with {left}"
        raise InputError(Fault(what, "fail", "leave at least 2 GPUs and a link"))
    wiring = _wiring(before, wreck)
    links = np.flatnonzero(wreck.links)
    links.setflags(write=False)
    effects = _effects(topology, wreck)
    unserved = frozenset(before.coordinates.node[_short_of(before, wreck)[1]].tolist())
    served = set(before.coordinates.node[gpus].tolist()) - unserved
    damage = Damage(
        fail=names,
        degrade=shares,
        summary=_summary(before, names, shares),
        effects=effects,
        gpus=tuple(gpus.tolist()),
        links=links,
        unserved=unserved,
        healthy=topology,
    )
    record = json.dumps([names, shares]).encode()
    facts = [_fact("fail", place, name, 0.0) for place, name in enumerate(names)]
    facts += [_fact("degrade", place, f"{name}={share}", 1.0) for place, (name, share) in enumerate(shares.items())]
    return replace(
        topology,
        facts=(*topology.facts, *facts),
        wiring=wiring,
        sha256=hashlib.sha256(topology.sha256.encode() + b"\0" + record).hexdigest(),
        in_network_reduction=topology.in_network_reduction if served else None,
        damage=damage,
    )


def _fact(key: str, place: int, text: str, value: float) -> Fact:
    return Fact(f"{key}[{place}]", text, value, "fraction", "user", f"--{key}", where=f"--{key}")


def _wiring(before: Wiring, wreck: _Wreck) -> Wiring:
    """Return the wiring without what failed; arrays of links and nodes are recognised by their names."""
    number = np.cumsum(wreck.alive) - 1
    changed: dict[str, Any] = {}
    for field in fields(before):
        value = getattr(before, field.name)
        kept = (
            wreck.links if field.name.startswith("link_") else wreck.alive if field.name.startswith("node_") else None
        )
        if kept is not None and value is not None:
            changed[field.name] = _kept(value, kept)
    nominal = before.link_bandwidth_Bps * (wreck.cables / before.link_count)
    changed |= {
        "n_gpus": int(wreck.alive[: before.n_gpus].sum()),
        "link_src": number[changed["link_src"]],
        "link_dst": number[changed["link_dst"]],
        "link_count": wreck.cables[wreck.links],
        "link_bandwidth_Bps": (nominal * wreck.share)[wreck.links],
        "link_nominal_Bps": nominal[wreck.links],
    }
    for value in changed.values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    after = replace(before, **changed)
    return replace(after, coordinates=_coordinates(before, after, wreck))


def _kept(value: Any, kept: Mask) -> Any:
    """Return the entries of an array or a tuple that are left."""
    if isinstance(value, np.ndarray):
        return value[kept]
    return tuple(entry for entry, stays in zip(value, kept, strict=True) if stays)


def _coordinates(before: Wiring, after: Wiring, wreck: _Wreck) -> Coordinates:
    """Return where the GPUs stand that are left; a system is regular only if what is left of it is."""
    old, gpus = before.coordinates, wreck.alive[: before.n_gpus]
    kind = "irregular"
    if old.kind in ("mesh", "switched"):
        bundles = Bundles(
            after.link_src, after.link_dst, after.link_count,
            after.link_bandwidth_Bps, after.link_latency_s, after.link_efficiency,
        )  # fmt: skip
        kind = recognise(after.n_gpus, after.node_latency_s, bundles)
    plane = old.plane[wreck.alive[before.n_gpus :]]
    if kind == "switched":
        plane = np.arange(len(plane), dtype=np.int64)
    elif old.kind == "switched":
        plane = np.full_like(plane, -1)
    places = {field.name: getattr(old, field.name) for field in fields(old)}
    cut: dict[str, Any] = {
        name: value[gpus]
        for name, value in places.items()
        if isinstance(value, np.ndarray) and name != "plane" and len(value) == before.n_gpus
    }
    for array in (*cut.values(), plane):
        array.setflags(write=False)
    return replace(old, **cut, kind=kind, plane=plane)


def _short_of(wiring: Wiring, wreck: _Wreck) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the links from GPUs that are left into switches that are not whole, and the GPU of each."""
    upwards = _upwards(wiring) & wreck.alive[wiring.link_src]
    short = np.flatnonzero(upwards & (wreck.cables < wiring.link_count))
    return short, wiring.link_src[short]


def _upwards(wiring: Wiring) -> Mask:
    """Return bool[n_links]: which links lead from a GPU into a switch."""
    switch = np.array([kind == "switch" for kind in wiring.node_kinds])
    return np.asarray((wiring.link_src < wiring.n_gpus) & switch[wiring.link_dst])


def _lost_planes(wiring: Wiring, wreck: _Wreck) -> list[str]:
    """Return what is missing between GPUs that are left and switches: whole switches by name, else links."""
    missing = [
        f"link {_cable(wiring, int(link))}"
        if wreck.alive[wiring.link_dst[link]]
        else f"switch {wiring.node_names[int(wiring.link_dst[link])]}"
        for link in _short_of(wiring, wreck)[0]
    ]
    return list(dict.fromkeys(missing))


def _cable(wiring: Wiring, link: int) -> str:
    """Return a link by its ends, whatever its direction."""
    a, b = sorted((int(wiring.link_src[link]), int(wiring.link_dst[link])))
    return f"{wiring.node_names[a]}-{wiring.node_names[b]}"


def _effects(topology: Topology, wreck: _Wreck) -> tuple[str, ...]:
    """Return what follows from the damage for whoever runs on it, one sentence each."""
    wiring, told = topology.wiring, []
    if lost := [wiring.node_names[int(gpu)] for gpu in np.flatnonzero(~wreck.alive[: wiring.n_gpus])]:
        left = wiring.n_gpus - len(lost)
        told.append(f"{listed(lost)} take{'s' * (len(lost) == 1)} no part: {left} ranks are left and renumbered")
    missing, short = _lost_planes(wiring, wreck), _short_of(wiring, wreck)[1]
    if missing and (reduction := topology.reduction_for(short)):
        verb = "is" if len(missing) == 1 else "are"
        domains = sorted(set(wiring.coordinates.node[short].tolist()))
        where = "" if topology.cluster is None else f" for GPUs of node {listed([str(domain) for domain in domains])}"
        told.append(f"{reduction} is off{where}: {listed(missing)} {verb} missing")
    ends = wreck.alive[wiring.link_src] & wreck.alive[wiring.link_dst]
    between = (wiring.link_src < wiring.n_gpus) & (wiring.link_dst < wiring.n_gpus)
    apart = list(dict.fromkeys(_cable(wiring, int(link)) for link in np.flatnonzero(ends & between & ~wreck.links)))
    if apart:
        told.append(f"messages that {listed(apart)} carried go through other GPUs")
    upwards = _upwards(wiring)
    kept, full = (
        np.bincount(wiring.link_src[upwards], cables[upwards], wiring.n_nodes)
        for cables in (wreck.cables, wiring.link_count)
    )
    told += kept_of(wiring.node_names, wreck.alive, kept, full, "links into switches")
    if topology.cluster is not None:
        told += cluster_effects(topology.cluster, wiring, wreck.alive, wreck.cables)
    return (*told, *_slowed(wiring, wreck))


def _slowed(wiring: Wiring, wreck: _Wreck) -> list[str]:
    """Return what slow links do, as a sentence, if any link that is left is slow."""
    slow = list(dict.fromkeys(_cable(wiring, int(link)) for link in np.flatnonzero(wreck.links & (wreck.share < 1))))
    verb = "is" if len(slow) == 1 else "are"
    what = (
        f"{listed(slow)} {verb} slow, but get{'s' * (len(slow) == 1)} the share of the messages that links in order get"
    )
    return [f"{what}: the rest waits"] if slow else []


def _summary(wiring: Wiring, names: Iterable[str], shares: Mapping[str, str]) -> str:
    """Return what failed, counted and named, in one line."""
    parts = [f"{_counted(wiring, name, 'failed')}" for name in names]
    parts += [f"{_counted(wiring, name, f'at {share}')}" for name, share in shares.items()]
    return "; ".join(parts)


def _counted(wiring: Wiring, name: str, fate: str) -> str:
    """Return how many things a name selects, what became of them, and which they are."""
    found = select(wiring, name, "")
    if found.nodes:
        members = [wiring.node_names[node] for node in found.nodes]
    elif found.kind == "link!":
        members = [wiring.link_name(link) for link in found.links]
    else:
        members = list(dict.fromkeys(_cable(wiring, link) for link in found.links))
    number, kind = len(members), found.kind.removesuffix("!")
    if found.cables is not None:
        number, kind = number * found.cables, "cable"
    kind = kind.upper() if kind in ("gpu", "nic", "cpu") else kind
    plural = {"switch": "switches", "leaf": "leaves"}.get(kind, f"{kind}s")
    one_way = "one direction of " if found.kind == "link!" else ""
    return f"{one_way}{number} {kind if number == 1 else plural} {fate}: {listed(members)}"


def cut_faults(topology: Topology, ranks: Sequence[int], faults: Sequence[Fault]) -> list[Fault]:
    """Return what separates GPUs that cannot reach each other, as faults: with what failed if anything did.

    Parameters
    ----------
    topology : Topology
    ranks : sequence of int
        GPUs that take part.
    faults : sequence of Fault
        What a router said of them.
    """
    if topology.damage is None:
        return list(faults)
    now, before = topology.wiring, topology.damage.healthy.wiring
    for src, dst in ((now.link_src, now.link_dst), (now.link_dst, now.link_src)):
        reached = reached_from(now.n_nodes, src, dst, ranks[0])
        beyond = [now.node_names[rank] for rank in ranks if not reached[rank]]
        if beyond:
            near = [now.node_names[rank] for rank in ranks if reached[rank]]
            side = {now.node_names[int(node)] for node in np.flatnonzero(reached)}
            missing = listed(_boundary(before, set(now.node_names), side))
            what = f"{listed(near)} and {listed(beyond)} are cut off from each other by the loss of {missing}"
            return [Fault(what, "fail", "choose ranks of one side with --rank-list")]
    hint = f"{topology.damage.summary}: choose ranks that need nothing of that with --rank-list"
    return [replace(fault, where="fail", hint=hint) for fault in faults]  # wires lead there, but no route does


def _boundary(before: Wiring, alive: set[str], side: set[str]) -> list[str]:
    """Return the nodes and links of the healthy wiring, now gone, that led out of *side*."""
    names, found = before.node_names, []
    for link, (src, dst) in enumerate(zip(before.link_src.tolist(), before.link_dst.tolist(), strict=True)):
        if (names[src] in side) == (names[dst] in side) or not {names[src], names[dst]} & side:
            continue
        outside = dst if names[src] in side else src
        gone = names[outside] not in alive
        if not (gone and outside < before.n_gpus):  # a failed GPU is seldom what joined two sides
            found.append(f"{before.node_kinds[outside]} {names[outside]}" if gone else f"link {_cable(before, link)}")
    return list(dict.fromkeys(found)) or ["GPUs that passed messages on"]
