"""Single links that differ from what a builder makes: ``changes``, a list of pairs of nodes with their figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, Faults, SpecError, did_you_mean
from collsim.topology.builders import assemble
from collsim.topology.files.reader import Document
from collsim.topology.files.schema import LinkChange
from collsim.topology.wiring import LinkBundles, Wiring

__all__ = ["with_changes"]


def with_changes(wiring: Wiring, changes: Sequence[LinkChange | None], document: Document) -> Wiring:
    """Return a wiring with some links changed, in both directions.

    Raises
    ------
    SpecError
        Everything that is wrong: no such node, no link between two nodes, a pair twice.
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
    left, kinds = every.take(np.flatnonzero(there)), wiring.node_kinds[wiring.n_gpus :]
    return assemble(tuple(wiring.node_names), wiring.n_gpus, wiring.node_latency_s.copy(), left, forwarders=kinds)


def _found(
    wiring: Wiring, changes: Sequence[LinkChange | None], document: Document
) -> list[tuple[NDArray[np.int64], LinkChange]]:
    """Return the numbers of the links that each change is of; raise `SpecError` with all that are of none."""
    faults, seen = Faults(), dict[frozenset[str], int]()
    ids = {name: number for number, name in enumerate(wiring.node_names)}
    found = []
    for number, change in ((number, change) for number, change in enumerate(changes) if change is not None):
        where, pair = document.where(("changes", number)), frozenset((change.a, change.b))
        for key in ("a", "b"):
            if (name := getattr(change, key)) not in ids:
                hint = f"{did_you_mean(name, list(ids))}nodes are called {', '.join(list(ids)[:4])}, ..."
                faults.append(Fault(f'there is no node "{name}"', document.where(("changes", number, key)), hint))
        if pair in seen:
            what = f"{change.a} and {change.b} are changed by changes[{seen[pair]}] already"
            faults.append(Fault(what, where, "write one entry for them"))
        seen.setdefault(pair, number)
        if pair <= ids.keys():
            ends = np.array([ids[change.a], ids[change.b]], dtype=np.int64)
            links = wiring.find_links(ends, ends[::-1])
            links = links[links >= 0]
            if not len(links):
                hint = "change one that is there: collsim topo show lists them"
                faults.append(Fault(f"no link joins {change.a} and {change.b}", where, hint))
            found.append((links, change))
    faults.raise_any(SpecError)
    return found
