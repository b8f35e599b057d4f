"""Single links that differ from what a builder makes, or are more: ``changes``, pairs of nodes with their figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, Faults, SpecError, did_you_mean
from collsim.topology.builders import assemble
from collsim.topology.files.reader import Document
from collsim.topology.files.schema import Link, LinkChange
from collsim.topology.wiring import LinkBundles, Wiring

__all__ = ["name_faults", "with_changes"]


def with_changes(
    wiring: Wiring, changes: Sequence[LinkChange | None], document: Document, link: Link | None = None
) -> Wiring:
    """Return a wiring with some links changed, in both directions; a pair without any gets one of the rate given, with
    latency and efficiency of *link* unless it has its own.

    Raises
    ------
    SpecError
        Everything that is wrong: no such node, no link between two nodes and no rate for one, a pair twice.
    """
    found = _found(wiring, changes, document)
    count, rate_Bps = wiring.link_count.copy(), wiring.link_bandwidth_Bps.copy()
    latency_s, efficiency = wiring.link_latency_s.copy(), wiring.link_efficiency.copy()
    there = np.ones(wiring.n_links, dtype=np.bool_)
    for links, change in found:
        there[links] = change.present
        each_Bps = change.bandwidth.si if change.bandwidth else rate_Bps[links] / count[links]
        if change.count:
            count[links] = int(change.count.si)
        rate_Bps[links] = each_Bps * count[links]
        if change.latency:
            latency_s[links] = change.latency.si
        if change.efficiency:
            efficiency[links] = change.efficiency.si
    every = LinkBundles(wiring.link_src, wiring.link_dst, count, rate_Bps, latency_s, efficiency)
    added = [_added(wiring, change, link or Link()) for links, change in found if not len(links)]
    left, kinds = every.take(np.flatnonzero(there)), wiring.node_kinds[wiring.n_gpus :]
    left = LinkBundles(*map(np.concatenate, zip(left, *added, strict=True)))
    return assemble(tuple(wiring.node_names), wiring.n_gpus, wiring.node_latency_s.copy(), left, forwarders=kinds)


def _added(wiring: Wiring, change: LinkChange, link: Link) -> LinkBundles:
    """Return the links of a change, one each way, between nodes that had none."""
    assert change.bandwidth is not None
    ends = np.array([wiring.node_names.index(change.a), wiring.node_names.index(change.b)], dtype=np.int64)
    return LinkBundles.uniform(
        ends, ends[::-1], np.full(2, int(change.count.si) if change.count else 1), bandwidth_Bps=change.bandwidth.si,
        latency_s=(change.latency or link.latency).si, efficiency=(change.efficiency or link.efficiency).si,
    )  # fmt: skip


def _found(
    wiring: Wiring, changes: Sequence[LinkChange | None], document: Document
) -> list[tuple[NDArray[np.int64], LinkChange]]:
    """Return the numbers of the links that each change is of, none of one that adds some.

    Raises
    ------
    SpecError
        All that are of no link, and add none.
    """
    ids = {name: number for number, name in enumerate(wiring.node_names)}
    faults = name_faults(list(ids), changes, document)
    found = []
    for number, change in ((number, change) for number, change in enumerate(changes) if change is not None):
        where, pair = document.where(("changes", number)), frozenset((change.a, change.b))
        if pair <= ids.keys() and len(pair) > 1:
            ends = np.array([ids[change.a], ids[change.b]], dtype=np.int64)
            links = wiring.find_links(ends, ends[::-1])
            links = links[links >= 0]
            if not len(links) and not (change.present and change.bandwidth):
                hint = "give it a bandwidth to add one, or change one that is there: collsim topo show lists them"
                faults.append(Fault(f"no link joins {change.a} and {change.b}", where, hint))
            found.append((links, change))
    faults.raise_any(SpecError)
    return found


def name_faults(names: Sequence[str], changes: Sequence[LinkChange | None], document: Document) -> Faults:
    """Return what is wrong with changes whatever links there are: no such node, a pair twice, one node."""
    faults, seen = Faults(), dict[frozenset[str], int]()
    for number, change in ((number, change) for number, change in enumerate(changes) if change is not None):
        where, pair = document.where(("changes", number)), frozenset((change.a, change.b))
        for key in ("a", "b"):
            if (name := getattr(change, key)) not in names:
                hint = f"{did_you_mean(name, names)}nodes are called {', '.join(names[:4])}, ..."
                faults.append(Fault(f'there is no node "{name}"', document.where(("changes", number, key)), hint))
        if pair in seen:
            what = f"{change.a} and {change.b} are changed by changes[{seen[pair]}] already"
            faults.append(Fault(what, where, "write one entry for them"))
        seen.setdefault(pair, number)
        if len(pair) == 1:
            faults.append(Fault(f"{change.a} joined to itself", where, "name two nodes"))
    return faults
