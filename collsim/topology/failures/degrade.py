"""Failures: a topology that has lost links, switches, adapters or GPUs, or whose links run slower than they should.

What has failed is gone from the wiring. GPUs that are left keep their names and become the ranks 0 to n - 1. A
degraded link stays, at part of its rate; what spreads traffic over links does not know that and counts on the rate that
it should have, so that the slowest link of a spread holds back the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, Faults, InputError
from collsim.topology.builders import recognise
from collsim.topology.failures.effects import cluster_effects, kept_of, listed
from collsim.topology.failures.losses import Wreck, are_switches, wreck_of
from collsim.topology.failures.selectors import Selection, ends_of, keyed, name_of, places_of, select
from collsim.topology.model import Damage, Fact, Topology
from collsim.topology.summary import reached_from
from collsim.topology.wiring import Coordinates, LaterWiring, LinkBundles, Wiring, cables_of

__all__ = ["cut_faults", "damaged"]

LEAST_SHARE = 1e-6
"""A link at less of its rate has failed for whoever waits: 1 GiB over 400 Gb/s takes six hours (chosen)."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
        Unknown names, percentages that are none or below `LEAST_SHARE`, or nothing left; every fault at once.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> topology = damaged(load_topology("hgx_h100"), ["switch:nvsw2"])
    >>> topology.damage.summary, topology.wiring.n_links, topology.in_network_reduction
    ('1 switch failed: nvsw2', 48, None)
    """
    faults = Faults()
    names, shares = _fail_names(fail, faults), _shares(degrade, faults)
    if topology.damage is not None:
        names, shares = (*topology.damage.fail, *names), {**topology.damage.degrade, **shares}
        topology = topology.damage.healthy
    names = tuple(dict.fromkeys(names))
    gone = [found for name in names if (found := faults.attempt(select, topology.wiring, name, "fail"))]
    slow = [
        (found, share)
        for name, text in shares.items()
        if (share := _share(text, name, faults)) is not None
        and (found := faults.attempt(select, topology.wiring, name, "degrade"))
    ]
    faults.raise_any()
    if not names and not shares:
        return topology
    wreck = wreck_of(topology.wiring, gone, slow)
    lost = [name for (found, _), name in zip(slow, shares, strict=True) if wreck.is_lost(found)]
    if lost:
        hint = "keep --fail or --degrade"
        raise InputError(*(Fault(f'"{name[:60]}" has failed: nothing runs slower', "degrade", hint) for name in lost))
    summary = _summary(
        topology.wiring, gone, [(found, shares[name]) for (found, _), name in zip(slow, shares, strict=True)]
    )
    return _rebuilt(topology, names, shares, wreck, summary)


def _shape(name: str) -> str:
    """Return how the share of what is called *name* is written.

    >>> _shape("gpu:3-5")
    'write --degrade "gpu:3-5=50%", the part of the rate that remains'
    """
    return f'write --degrade "{name.strip()[:60] or "link:gpu0-gpu1"}=50%", the part of the rate that remains'


def _fail_names(fail: Any, faults: list[Fault]) -> tuple[str, ...]:
    """Return names as texts."""
    entries = _entries(fail)
    if isinstance(fail, Mapping) or any(not isinstance(entry, str) for entry in entries):
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
            faults.append(
                Fault(f'"{str(entry)[:60]}" is not NAME=SHARE', "degrade", _shape(str(entry).partition("=")[0]))
            )
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
        faults.append(Fault(f'"{text[:40]}" of "{name[:60]}" is not a percentage', "degrade", _shape(name)))
        return None
    if LEAST_SHARE <= share <= 1:
        return share
    none = 0 <= share < LEAST_SHARE
    hint = f'write --fail "{name}"' if none else f"give at least {LEAST_SHARE:.4%} and at most 100%"
    if none and share:
        what = f'"{text[:40]}" of "{name[:60]}" is less than {LEAST_SHARE:.4%}'
        faults.append(Fault(what, "degrade", f"{hint}: nothing waits for so slow a link"))
        return None
    faults.append(Fault(f'"{text[:40]}" of "{name[:60]}" is no part of a rate', "degrade", hint))
    return None


def _rebuilt(
    topology: Topology, names: tuple[str, ...], shares: dict[str, str], wreck: Wreck, summary: str
) -> Topology:
    """Return the topology of what is left, with the record of what is not."""
    before = topology.wiring
    gpus = np.flatnonzero(wreck.alive[: before.n_gpus])
    if len(gpus) < 2 or np.count_nonzero(wreck.cables == 0) == before.n_links:
        left = f"{len(gpus)} of its {before.n_gpus} GPUs" if len(gpus) < 2 else "no link"
        what = f"{topology.name} is left with {left}"
        raise InputError(Fault(what, "fail", "leave at least 2 GPUs and a link"))
    node = before.coordinates.node
    unserved = frozenset(node[wreck.links.src[wreck.short(before)]].tolist())
    served = np.isin(node[gpus], list(unserved), invert=True).any()
    changed = wreck.links._replace(parallel=wreck.cables, bandwidth_Bps=wreck.rate_Bps)
    worse = np.flatnonzero((wreck.cables < wreck.links.parallel) | (wreck.rate_Bps != wreck.links.bandwidth_Bps))
    damage = Damage(
        fail=names,
        degrade=shares,
        summary=summary,
        effects=_effects(topology, wreck),
        gpus=tuple(gpus.tolist()),
        nodes=np.flatnonzero(~wreck.alive),
        changed=changed.take(worse),
        changed_place=places_of(wreck.keys[worse]),
        unserved=unserved,
        healthy=topology,
    )
    record = json.dumps([names, shares]).encode()
    facts = [_fact("fail", place, name, 0.0) for place, name in enumerate(names)]
    facts += [_fact("degrade", place, f"{name}={share}", 1.0) for place, (name, share) in enumerate(shares.items())]
    return replace(
        topology,
        facts=(*topology.facts, *facts),
        wiring=LaterWiring.later(
            lambda: _attributes(before, wreck),
            _around=None,
            _n_links=before.n_links - int(np.count_nonzero(wreck.cables == 0)),
            _cables=lambda: _physical_links(before, wreck),
            n_gpus=len(gpus),
        ),
        sha256=hashlib.sha256(topology.sha256.encode() + b"\0" + record).hexdigest(),
        in_network_reduction=topology.in_network_reduction if served else None,
        damage=damage,
    )


def _fact(key: str, place: int, text: str, value: float) -> Fact:
    return Fact(f"{key}[{place}]", text, value, "fraction", "user", f"--{key}", where=f"--{key}")


def _attributes(before: Wiring, wreck: Wreck) -> dict[str, Any]:
    """Return the attributes of the wiring without what failed."""
    number = np.cumsum(wreck.alive) - 1
    hurt = wreck.numbers(before)
    links = np.delete(np.arange(before.n_links), hurt[wreck.cables == 0])
    columns: dict[str, Any] = {
        "link_src": number[before.link_src],
        "link_dst": number[before.link_dst],
        "link_count": _with(before.link_count, hurt, wreck.cables),
        "link_bandwidth_Bps": _with(before.link_bandwidth_Bps, hurt, wreck.rate_Bps),
        "link_nominal_Bps": _with(before.link_bandwidth_Bps, hurt, wreck.nominal_Bps),
        "link_latency_s": before.link_latency_s,
        "link_efficiency": before.link_efficiency,
    }
    changed: dict[str, Any] = {name: column[links] for name, column in columns.items()}
    changed["node_latency_s"] = before.node_latency_s[wreck.alive]
    for array in changed.values():
        array.setflags(write=False)
    names, kinds = (tuple(compress(entries, wreck.alive)) for entries in (before.node_names, before.node_kinds))
    n_gpus = int(wreck.alive[: before.n_gpus].sum())
    after = replace(before, n_gpus=n_gpus, node_names=names, node_kinds=kinds, **changed)
    made = {name: getattr(after, name) for name in Wiring.__slots__}
    return made | {"coordinates": _coordinates(before, after, wreck)}


def _with(column: NDArray[Any], links: Ints, values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of a column with other values for some links."""
    changed = column.copy()
    changed[links] = values
    return changed


def _physical_links(before: Wiring, wreck: Wreck) -> int:
    """Return the number of cables that are left."""
    ends = np.unique(np.concatenate([wreck.links.src, wreck.links.dst]))
    keys, links = keyed(before, ends)
    there = np.isin(links.src, ends) & np.isin(links.dst, ends)  # both directions of all that something happened to
    keys, links = keys[there], links.take(np.flatnonzero(there))
    lost = cables_of(links.src, links.dst, links.parallel) - cables_of(links.src, links.dst, wreck.left(keys, links))
    return before.n_physical_links - lost


def _coordinates(before: Wiring, after: Wiring, wreck: Wreck) -> Coordinates:
    """Return where the GPUs stand that are left; a system is regular only if what is left of it is."""
    old, gpus = before.coordinates, wreck.alive[: before.n_gpus]
    kind = "irregular"
    if old.kind in ("mesh", "switched"):
        bundles = LinkBundles(
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


def _lost_planes(wiring: Wiring, wreck: Wreck) -> list[str]:
    """Return the names of what is missing between GPUs that are left and switches: whole switches, else links."""
    short = wreck.short(wiring)
    missing = [
        f"link {_cable(wiring, gpu, switch)}" if wreck.alive[switch] else f"switch {wiring.node_names[switch]}"
        for gpu, switch in zip(wreck.links.src[short].tolist(), wreck.links.dst[short].tolist(), strict=True)
    ]
    return list(dict.fromkeys(missing))


def _cable(wiring: Wiring, a: int, b: int) -> str:
    """Return a link by its ends, whatever its direction."""
    return f"{wiring.node_names[min(a, b)]}-{wiring.node_names[max(a, b)]}"


def _cables(wiring: Wiring, keys: Ints) -> list[str]:
    """Return some links by their ends, each cable once."""
    ends = (column.tolist() for column in ends_of(wiring, keys))
    return list(dict.fromkeys(_cable(wiring, a, b) for a, b in zip(*ends, strict=True)))


def _effects(topology: Topology, wreck: Wreck) -> tuple[str, ...]:
    """Return the consequences of the damage for whoever runs on it, one sentence each."""
    wiring, told = topology.wiring, []
    if lost := [wiring.node_names[int(gpu)] for gpu in np.flatnonzero(~wreck.alive[: wiring.n_gpus])]:
        left = wiring.n_gpus - len(lost)
        told.append(f"{listed(lost)} take{'s' * (len(lost) == 1)} no part: {left} ranks are left and renumbered")
    missing, short = _lost_planes(wiring, wreck), np.unique(wreck.links.src[wreck.short(wiring)])
    if missing and (reduction := topology.reduction_for(short)):
        verb = "is" if len(missing) == 1 else "are"
        domains = sorted(set(wiring.coordinates.node[short].tolist()))
        where = "" if topology.cluster is None else f" for GPUs of node {listed([str(domain) for domain in domains])}"
        told.append(f"{reduction} is off{where}: {listed(missing)} {verb} missing")
    src, dst = wreck.links.src, wreck.links.dst
    cut = (np.maximum(src, dst) < wiring.n_gpus) & (wreck.cables == 0) & wreck.alive[src] & wreck.alive[dst]
    if apart := _cables(wiring, wreck.keys[cut]):
        told.append(f"messages that {listed(apart)} carried go through other GPUs")
    told += _upwards(wiring, wreck, short)
    if topology.cluster is not None:
        told += cluster_effects(topology.cluster, wiring, wreck)
    return (*told, *_slowed(wiring, wreck))


def _upwards(wiring: Wiring, wreck: Wreck, gpus: Ints) -> list[str]:
    """Return sentences on the number of links into switches that is left to GPUs that have lost some."""
    keys, links = keyed(wiring, gpus)
    own = np.flatnonzero(np.isin(links.src, gpus) & are_switches(wiring, links.dst))
    owner = np.searchsorted(gpus, links.src[own])
    kept, full = (np.bincount(owner, cables[own], len(gpus)) for cables in (wreck.left(keys, links), links.parallel))
    return kept_of([wiring.node_names[gpu] for gpu in gpus.tolist()], kept, full, "links into switches")


def _slowed(wiring: Wiring, wreck: Wreck) -> list[str]:
    """Return a sentence on the effect of slow links, if any link that is left is slow."""
    slow = _cables(wiring, wreck.keys[(wreck.cables > 0) & (wreck.share < 1)])
    verb = "is" if len(slow) == 1 else "are"
    what = (
        f"{listed(slow)} {verb} slow, but get{'s' * (len(slow) == 1)} the share of the messages that links in order get"
    )
    return [f"{what}: the rest waits"] if slow else []


def _summary(wiring: Wiring, gone: Sequence[Selection], slow: Sequence[tuple[Selection, str]]) -> str:
    """Return one line that counts and names what failed."""
    parts = [_counted(wiring, found, "failed") for found in gone]
    return "; ".join([*parts, *(_counted(wiring, found, f"at {share}") for found, share in slow)])


def _counted(wiring: Wiring, found: Selection, fate: str) -> str:
    """Return a text with the number of things selected, what became of them, and which they are."""
    if found.nodes:
        members = [wiring.node_names[node] for node in found.nodes]
    elif found.kind == "link!":
        members = [name_of(wiring, key) for key in found.links]
    else:
        members = _cables(wiring, np.array(found.links))
    number, kind = len(members), found.kind.removesuffix("!")
    if found.cables is not None:
        number, kind = number * found.cables, "cable"
    kind = kind.upper() if kind in ("gpu", "nic", "cpu") else kind
    plural = {"switch": "switches", "leaf": "leaves"}.get(kind, f"{kind}s")
    one_way = "one direction of " if found.kind == "link!" else ""
    return f"{one_way}{number} {kind if number == 1 else plural} {fate}: {listed(members)}"


def cut_faults(topology: Topology, ranks: Sequence[int], faults: Sequence[Fault]) -> list[Fault]:
    """Return *faults*; where something failed, instead faults that name the losses that cut GPUs off.

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
    for src, dst in zip(before.link_src.tolist(), before.link_dst.tolist(), strict=True):
        if (names[src] in side) == (names[dst] in side) or not {names[src], names[dst]} & side:
            continue
        outside = dst if names[src] in side else src
        gone = names[outside] not in alive
        if not (gone and outside < before.n_gpus):  # a failed GPU is seldom what joined two sides
            found.append(
                f"{before.node_kinds[outside]} {names[outside]}" if gone else f"link {_cable(before, src, dst)}"
            )
    return list(dict.fromkeys(found)) or ["GPUs that passed messages on"]
