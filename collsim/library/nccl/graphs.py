"""Graphs of one domain: channels that the library finds, and what it reserves for each (NCCL src/graph/search.cc).

The search tries rates from a list, fastest first, and keeps the most channels times rate. Rings and trees are then
doubled at half the rate. The recursive search for actual rings is replaced by counting the links of every GPU, which
is exact behind switches and an upper bound elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from collsim.core.errors import Fault, UnsupportedError
from collsim.library.calls import Call
from collsim.library.nccl.cluster_graphs import (
    MAX_COLLNET_HEADS,
    MAX_HEADS,
    MAX_RINGS,
    collnet_graph,
    doubled,
    nvls_across,
    ring_across,
    tree_across,
)
from collsim.library.system import Graph, System, ring_closes

__all__ = ["GIVEN_UP_GBPS", "MAX_HEADS", "MAX_RINGS", "nccl_graphs"]

RATES_GBPS = {
    "volta": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    "ampere": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    "hopper": (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    "blackwell": (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
"""Rates inside a domain that the search tries (NCCL src/graph/search.cc)."""

GIVEN_UP_GBPS = 0.1
"""Rate of the only channel where no rate of the list fits (NCCL src/graph/search.cc)."""
LOWEST_OF_BEST = 0.49
"""The search stops at this part of the rate of the best that it has."""


def nccl_graphs(call: Call, system: System) -> dict[str, Graph]:
    """Return the graphs that the search finds, by algorithm; those that are absent do not exist on this system.

    Where nodes differ, channels and rates are the least of all, and what one has not does not exist.

    Raises
    ------
    UnsupportedError
        More than one domain, and neither the system's graphs nor its adapters are known.
    """
    if system.others:
        alone = [replace(one, others=()) for one in (system, *system.others)]
        return _least([nccl_graphs(call, one) for one in alone])
    known = dict(system.graphs)
    if call.n_nodes > 1:
        return {**_across(call, system, known), **known}
    ring = known.get("ring") or _ring(system, call.n_ranks)
    graphs = {"tree": _tree(system, call.n_ranks, ring), "ring": ring, "pat": ring}
    if system.nvls and "nvls" not in known:
        graphs["nvls"] = _nvls(system, call.ranks_per_node)
    graphs.update(known)
    return graphs


def _least(found: list[dict[str, Graph]]) -> dict[str, Graph]:
    """Return the graphs that all have, with the least of each figure (NCCL src/init.cc)."""
    shared = [algo for algo in found[0] if all(algo in graphs for graphs in found)]
    return {
        algo: Graph(
            min(graphs[algo].channels for graphs in found),
            min(graphs[algo].intra_GBps for graphs in found),
            min(graphs[algo].inter_GBps for graphs in found),
            same_order=all(graphs[algo].same_order for graphs in found),
            one_parent=any(graphs[algo].one_parent for graphs in found),
        )
        for algo in shared
    }


def _across(call: Call, system: System, known: dict[str, Graph]) -> dict[str, Graph]:
    """Return the graphs over several domains; those of a log stand for others that follow from them."""
    ring = known.get("ring") or ring_across(call, system)
    tree = ring if "ring" in known else tree_across(call, system, ring)
    graphs = {"tree": known.get("tree", tree), "ring": ring, "pat": ring}
    if system.switched and system.nic_GBps > 0 and call.ranks_per_node <= MAX_COLLNET_HEADS:
        graphs["collnet_direct"] = collnet_graph(call, system)
    graphs["collnet_chain"] = graphs["tree"]
    if "nvls" in known or (system.nvls and call.ranks_per_node > 1):
        graphs["nvls"] = known["nvls"] if "nvls" in known else _nvls_of(call, system, known)
        graphs["nvls_tree"] = graphs["nvls"]
    return graphs


def _nvls_of(call: Call, system: System, known: dict[str, Graph]) -> Graph:
    """Return the heads over several domains; where a log gives rings but the adapters are unknown, those of one."""
    if system.nic_GBps > 0 or "ring" not in known:
        return nvls_across(call, system)
    return _nvls(system, call.ranks_per_node)


def _ring(system: System, n_ranks: int) -> Graph:
    """Return the rings: search downwards, double, then try higher rates with as many channels.

    >>> _ring(System("hopper", True, 20.6, links_per_gpu=18), 8)
    Graph(channels=12, intra_GBps=30.0, inter_GBps=30.0, same_order=True, one_parent=False)
    """
    total, fastest = system.total_GBps(n_ranks), system.pair_GBps(n_ranks)[1]
    best, rate = 0, 0.0
    for tried in RATES_GBPS[system.architecture]:
        if best and (tried / rate <= LOWEST_OF_BEST or best * rate >= total):
            break
        rings = 0 if tried > fastest else min(system.rings_at(tried, n_ranks), MAX_RINGS)
        if rings * tried > best * rate:
            best, rate = rings, float(tried)
    if not best and system.pcie_GBps:  # the search gives up: one channel, which is reckoned to do next to nothing
        return Graph(1, GIVEN_UP_GBPS, GIVEN_UP_GBPS)
    if not best or not (system.switched or system.pcie_GBps or ring_closes(system.links)):
        what = f"the first {n_ranks} GPUs have no ring of NVLinks, and the choice over PCIe is not modelled"
        raise UnsupportedError(Fault(what, "ranks", "take GPUs that are wired to each other, or name the algorithm"))
    best, rate = doubled(system, best, rate)
    for tried in reversed(RATES_GBPS[system.architecture]):
        if tried > rate and tried <= fastest and system.rings_at(tried, n_ranks) >= best:
            rate = float(tried)
    return Graph(best, rate, rate, same_order=system.switched or system.pcie_GBps > 0)


def _tree(system: System, n_ranks: int, ring: Graph) -> Graph:
    """Return the trees of one domain: chains as many and as fast as the rings.

    Behind switches those of two GPUs go one way on half of the channels and the other way on the rest, so that the
    search finds up to twice the rate for them: two H200 have 12 channels with 60 GB/s, where rings have 30 (debug lines
    of 2.21.5 and 2.32.3); four H100 have what their rings have.

    >>> h200 = System("hopper", True, 20.6, links_per_gpu=18)
    >>> _tree(h200, 2, _ring(h200, 2)).intra_GBps
    60.0
    """
    if n_ranks > 2 or not system.switched:
        return ring
    fitting = [rate for rate in RATES_GBPS[system.architecture] if rate <= 2 * ring.intra_GBps]
    return replace(ring, intra_GBps=max(ring.intra_GBps, float(fitting[0]))) if fitting else ring


def _nvls(system: System, n_ranks: int) -> Graph:
    """Return one head per GPU; a GPU carries every head once and its own twice.

    >>> _nvls(System("hopper", True, 20.6, links_per_gpu=18), 8)
    Graph(channels=8, intra_GBps=40.0, inter_GBps=60.0, same_order=True, one_parent=False)
    """
    heads = min(n_ranks, MAX_HEADS)
    rates = RATES_GBPS[system.architecture]
    fitting = [number for number, rate in enumerate(rates) if (heads + 1) * rate <= system.total_GBps(n_ranks)]
    if not fitting:
        return Graph(0, 0.0)
    number, intra = fitting[0], float(rates[fitting[0]])
    inter = intra
    while number > 0 and inter < 2 * intra:
        number -= 1
        inter = float(rates[number])
    return Graph(heads, intra, inter)
