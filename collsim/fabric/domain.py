"""Ways between ranks of one scale-up domain: over a link, through one switch, or found by a search.

The plainest comes first. A pair that shares switches takes all of these side by side; one that shares none takes all
shortest paths, through switches if there are any, else through other GPUs too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct, entries_of, pointers
from collsim.core.errors import Fault, NoRouteError, UnsupportedError
from collsim.fabric.fabric import Fabric, Int
from collsim.fabric.routes import RouteBlock

__all__ = ["ALL_PAIRS_UP_TO", "all_ways", "links_to_switches", "pairs_of_kinds", "ways_through_switches"]

Bool = NDArray[np.bool_]

REGULAR = "full_mesh, switched and scale_out describe machines of which a part stands for the whole"

ALL_PAIRS_UP_TO = 128
"""Of more ranks the routes of all pairs are kept only where some pair shares no switch: of 256 on 36 switches they took
2 s and 400 MB."""
MOST_KINDS = 64
"""With so many kinds of ranks their pairs are no fewer than those of all ranks."""
BLOCK = 1 << 18
"""So many pairs times switches are looked at in one go."""
MOST_PAIRS = 1 << 22
"""So many pairs of ranks, those of 2048, have ways of their own; a full mesh of 4000 did not end in minutes."""
MOST_ENTRIES = 1 << 26
"""So many links all ways together may have that are searched for: 90 bytes each, 6 GB, while they are put in order."""
SAMPLED = 8
"""So many sources are looked at to tell how many links all ways have."""
SOURCES = 8
"""Paths from one source have so many times as many links as there are nodes, or more where the ways are long."""


def all_ways(fabric: Fabric, *, all_pairs: bool) -> list[RouteBlock]:
    """Return the ways of all pairs of ranks.

    Raises
    ------
    NoRouteError
        Naming the ranks that cannot reach each other, unless *all_pairs* is false.
    UnsupportedError
        There are too many pairs, or too many links on their ways.
    """
    n = fabric.n_ranks
    if n * n > MOST_PAIRS:
        what = f"ways between all {n * (n - 1):,} pairs of {n:,} ranks are too many to keep"
        raise UnsupportedError(Fault(what, "ranks", f"ask for at most {math.isqrt(MOST_PAIRS)} ranks; {REGULAR}"))
    parts = [_direct(fabric)]
    todo = np.ones(n * n, dtype=np.bool_)
    todo[:: n + 1] = False
    todo[parts[0].route] = False
    if todo.any():
        parts.append(ways_through_switches(fabric, np.flatnonzero(todo)))
        todo[parts[-1].route] = False
    for relays in (False, True):
        for part in _searched(fabric, np.flatnonzero(todo), relays=relays) if todo.any() else ():
            todo[part.route] = False
            parts.append(part)
    if todo.any() and all_pairs:
        raise _no_route(fabric, np.flatnonzero(todo).tolist())
    return parts


def _direct(fabric: Fabric) -> RouteBlock:
    """Return the ways of pairs that a link joins."""
    wiring, n = fabric.wiring, fabric.n_ranks
    rank_of = np.full(len(wiring.node_names), -1, dtype=np.int64)
    rank_of[fabric.rank_node] = np.arange(n)
    src, dst = rank_of[wiring.link_src], rank_of[wiring.link_dst]
    link = np.flatnonzero((src >= 0) & (dst >= 0))
    ones = np.ones(len(link), dtype=np.int64)
    return RouteBlock(src[link] * n + dst[link], fabric.link_latency_s[link], ones, link, ones.astype(np.float64))


def links_to_switches(fabric: Fabric) -> tuple[Int, Int, Int]:
    """Return the nodes that join ranks, and int64[n_ranks, n_switches]: the links there and back, -1 if there is none.

    Of cables that are listed one by one it is the last. An adapter that two GPUs share joins none of them.
    """
    wiring = fabric.wiring
    kinds = wiring.node_kinds[wiring.n_gpus :]
    switches = wiring.n_gpus + np.flatnonzero([kind != "nic" for kind in kinds])
    column = np.full(wiring.n_nodes, -1, dtype=np.int64)
    column[switches] = np.arange(len(switches))
    row = np.full(wiring.n_nodes, -1, dtype=np.int64)
    row[fabric.rank_node] = np.arange(fabric.n_ranks)
    tables = []
    for rank, switch in ((wiring.link_src, wiring.link_dst), (wiring.link_dst, wiring.link_src)):
        table = np.full((fabric.n_ranks, len(switches)), -1, dtype=np.int64)
        link = np.flatnonzero((row[rank] >= 0) & (column[switch] >= 0))
        table[row[rank[link]], column[switch[link]]] = link
        tables.append(table)
    return switches, tables[0], tables[1]


def ways_through_switches(fabric: Fabric, pairs: Int) -> RouteBlock:
    """Return the ways of those *pairs* that share switches: one path for each of these."""
    switches, up, down = links_to_switches(fabric)
    met = (up >= 0).any(axis=0) & (down >= 0).any(axis=0)
    switches, up, down = switches[met], up[:, met], down[:, met]
    rate = np.append(fabric.nominal_Bps, 0.0)
    size = max(BLOCK // max(len(switches), 1), 1)
    found = []
    for begin in range(0, max(len(pairs), 1), size):
        pair = pairs[begin : begin + size]
        src, dst = np.divmod(pair, fabric.n_ranks)
        width = np.minimum(rate[up][src], rate[down][dst])
        joined = np.flatnonzero(width.any(axis=1))
        if len(joined) < len(pair):
            pair, src, dst, width = pair[joined], src[joined], dst[joined], width[joined]
        row, switch = np.nonzero(width)
        first, second = up[src[row], switch], down[dst[row], switch]
        share = width[row, switch] / width.sum(axis=1)[row]
        latency = fabric.link_latency_s[first] + fabric.node_latency_s[switches[switch]]
        latency += fabric.link_latency_s[second]
        paths = np.bincount(row, minlength=len(pair))
        slowest = np.maximum.reduceat(latency, pointers(paths)[:-1]) if len(pair) else latency
        link, weight = np.empty(2 * len(row), dtype=np.int64), np.empty(2 * len(row))
        place = np.arange(len(row)) + pointers(paths)[row]  # links out of the source stand before those to the target
        for links, where in ((first, place), (second, place + paths[row])):
            link[where], weight[where] = links, share
        found.append(RouteBlock(pair, slowest, 2 * paths, link, weight))
    return RouteBlock.joined(found)


def pairs_of_kinds(fabric: Fabric) -> Int | None:
    """Return pairs of ranks that stand for all others if all pairs share switches; None if some do not.

    Ranks are of one kind if they have equal links to the same switches; two of each kind stand for it.
    """
    if fabric.joins_ranks:
        return None
    _, *tables = links_to_switches(fabric)
    columns = [
        np.append(column, 0.0)[table] for column in (fabric.nominal_Bps, fabric.link_latency_s) for table in tables
    ]
    looks = np.concatenate(columns, axis=1)
    kinds: dict[bytes, list[int]] = {}
    for rank, look in enumerate(looks):
        members = kinds.setdefault(look.tobytes(), [])
        if len(members) < 2:
            members.append(rank)
    if len(kinds) > MOST_KINDS:
        return None
    ranks = np.array([rank for members in kinds.values() for rank in members])
    src, dst = np.repeat(ranks, len(ranks)), np.tile(ranks, len(ranks))
    pairs = np.sort((src * fabric.n_ranks + dst)[src != dst])
    return pairs if len(ways_through_switches(fabric, pairs).route) == len(pairs) else None


class _Paths(NamedTuple):
    """Shortest paths that end in the nodes just reached."""

    source: Int
    """int64[n_paths]: place of the source among those that are searched."""
    node: Int
    """int64[n_paths]: where each ends."""
    links: Int
    """int64[n_paths, n_hops]"""

    def take(self, which: Int | Bool) -> _Paths:
        """Return some of them."""
        return _Paths(self.source[which], self.node[which], self.links[which])


def _searched(fabric: Fabric, pairs: Int, *, relays: bool) -> Iterator[RouteBlock]:
    """Yield the ways of the *pairs* that a breadth-first search finds; GPUs forward only if *relays*."""
    wiring = fabric.wiring
    out = np.argsort(wiring.link_src, kind="stable")
    out_ptr = pointers(np.bincount(wiring.link_src, minlength=wiring.n_nodes))
    forwards = np.arange(wiring.n_nodes) >= (0 if relays else wiring.n_gpus)
    sources = np.unique(pairs // fabric.n_ranks)
    _refuse_many(fabric, pairs, sources, (out_ptr, out), forwards)
    size = max(BLOCK // (SOURCES * wiring.n_nodes), 1)
    for begin in range(0, len(sources), size):
        some = sources[begin : begin + size]
        wanted = np.zeros((len(some), wiring.n_nodes), dtype=np.bool_)
        src, dst = np.divmod(pairs, fabric.n_ranks)
        mine = (src >= some[0]) & (src <= some[-1])
        wanted[np.searchsorted(some, src[mine]), fabric.rank_node[dst[mine]]] = True
        starts = fabric.rank_node[some]
        useful = _on_the_way(wiring.link_dst, (out_ptr, out), starts, wanted, forwards)
        levels = _levels(wiring.link_dst, (out_ptr, out), starts, wanted, forwards & useful)
        if parts := [_as_part(fabric, some, paths) for paths in levels]:
            part = RouteBlock.joined(parts)
            del parts
            yield part.tidy()


def _refuse_many(fabric: Fabric, pairs: Int, sources: Int, out: tuple[Int, Int], forwards: Bool) -> None:
    """Refuse ways that have more links than memory holds, by those of a few sources; parameters as of `_levels`."""
    some = sources[np.unique(np.linspace(0, len(sources) - 1, SAMPLED).astype(np.int64))]
    counted = 0.0
    for source in some.tolist():
        targets = pairs[pairs // fabric.n_ranks == source] % fabric.n_ranks
        counted += _links_of_ways(fabric, out, source, fabric.rank_node[targets], forwards)
    expected = counted * len(sources) / len(some)
    if expected > MOST_ENTRIES:
        fewer = int(fabric.n_ranks * math.sqrt(MOST_ENTRIES / expected)) if expected < math.inf else 2
        what = f"all ways between {fabric.n_ranks:,} ranks have about {expected:.2g} links, too many to keep"
        hint = f"fewer ranks, such as {max(2, fewer)}, may do; {REGULAR}"
        raise UnsupportedError(Fault(what, "ranks", hint))


def _links_of_ways(fabric: Fabric, out: tuple[Int, Int], source: int, targets: Int, forwards: Bool) -> float:
    """Return the number of links of all shortest paths from a rank to the nodes *targets*, without the paths."""
    n_nodes = fabric.wiring.n_nodes
    paths, seen = np.zeros(n_nodes), np.zeros(n_nodes, dtype=np.bool_)
    wanted = np.zeros(n_nodes, dtype=np.bool_)
    wanted[targets] = True
    newest, hops, total = fabric.rank_node[source : source + 1], 0, 0.0
    paths[newest], seen[newest] = 1.0, True
    while len(newest) and wanted.any():
        ptr, place = entries_of(out[0], newest)
        ends = fabric.wiring.link_dst[out[1][place]]
        ways = np.repeat(paths[newest], np.diff(ptr))
        new = ~seen[ends]
        ends, ways = ends[new], ways[new]
        np.add.at(paths, ends, ways)
        newest, hops = np.unique(ends), hops + 1
        seen[newest] = True
        arrived = newest[wanted[newest]]
        total += hops * float(paths[arrived].sum())
        wanted[arrived] = False
        newest = newest[forwards[newest]]
        if total > MOST_ENTRIES:
            break
    return total


def _on_the_way(link_dst: Int, out: tuple[Int, Int], sources: Int, wanted: Bool, forwards: Bool) -> Bool:
    """Return bool[n_sources, n_nodes]: the nodes from which a shortest path leads on to a node *wanted* of the source.

    The others are left out of the search: between far nodes of a torus there are more paths past its few ranks than to
    them. *forwards* is bool[n_nodes]; the rest is as of `_levels`.
    """
    n_nodes = wanted.shape[1]
    useful, left = np.zeros_like(wanted), wanted.copy()
    seen = np.zeros(wanted.size, dtype=np.bool_)
    newest = np.arange(len(sources)) * n_nodes + sources
    seen[newest] = True
    steps: list[tuple[Int, Int]] = []
    while len(newest):
        ptr, place = entries_of(out[0], newest % n_nodes)
        start = np.repeat(newest, np.diff(ptr))
        end = start - start % n_nodes + link_dst[out[1][place]]
        new = ~seen[end]
        steps.append((start[new], end[new]))
        newest = np.unique(steps[-1][1])
        seen[newest] = True
        left.ravel()[newest] = False
        newest = newest[forwards[newest % n_nodes] & np.asarray(left.any(axis=1))[newest // n_nodes]]
    flat = useful.ravel()
    for start, end in reversed(steps):
        flat[start[wanted.ravel()[end] | flat[end]]] = True
    return useful


def _levels(link_dst: Int, out: tuple[Int, Int], sources: Int, wanted: Bool, forwards: Bool) -> Iterator[_Paths]:
    """Yield all shortest paths from each source to the nodes *wanted* of it, those of equal length at once.

    Parameters
    ----------
    link_dst : int64[n_links]
    out : int64[n_nodes+1], int64[n_links]
        The links out of each node.
    sources : int64[n_sources]
    wanted : bool[n_sources, n_nodes]
        Cleared where a path is found.
    forwards : bool[n_sources, n_nodes]
        Whether a path may lead on from there.
    """
    number = np.arange(len(sources))
    seen = np.zeros(wanted.shape, dtype=np.bool_)
    seen[number, sources] = True
    paths = _Paths(number, sources, np.zeros((len(sources), 0), dtype=np.int64))
    while len(paths.source):
        ptr, place = entries_of(out[0], paths.node)
        path, link = np.repeat(np.arange(len(paths.source)), np.diff(ptr)), out[1][place]
        new = ~seen[paths.source[path], link_dst[link]]
        path, link = path[new], link[new]
        paths = _Paths(paths.source[path], link_dst[link], np.concatenate([paths.links[path], link[:, None]], axis=1))
        seen[paths.source, paths.node] = True
        found = wanted[paths.source, paths.node]
        if found.any():
            arrived = paths.take(found)
            wanted[arrived.source, arrived.node] = False
            yield arrived
        waiting = np.asarray(wanted.any(axis=1))
        paths = paths.take(forwards[paths.source, paths.node] & waiting[paths.source])


def _as_part(fabric: Fabric, sources: Int, paths: _Paths) -> RouteBlock:
    """Return paths of equal length as ways of pairs."""
    rank_of = np.full(fabric.wiring.n_nodes, -1, dtype=np.int64)
    rank_of[fabric.rank_node] = np.arange(fabric.n_ranks)
    pair = sources[paths.source] * fabric.n_ranks + rank_of[paths.node]
    width = fabric.nominal_Bps[paths.links].min(axis=1)
    latency = fabric.link_latency_s[paths.links].sum(axis=1)
    latency += fabric.node_latency_s[fabric.wiring.link_src[paths.links[:, 1:]]].sum(axis=1)
    _, place = distinct(pair)
    share = width / np.bincount(place, weights=width)[place]
    hops = paths.links.shape[1]
    return RouteBlock(pair, latency, np.full(len(pair), hops), paths.links.ravel(), np.repeat(share, hops))


def _no_route(fabric: Fabric, lost: list[int]) -> NoRouteError:
    """Return the error that names who cannot reach whom."""
    by_source: dict[int, list[int]] = {}
    for number in lost:
        source, target = divmod(number, fabric.n_ranks)
        by_source.setdefault(source, []).append(target)
    faults = [
        Fault(
            f"rank {source} ({fabric.rank_name(source)}) cannot reach rank"
            f"{'s' if len(targets) > 1 else ''} {', '.join(map(str, targets[:8]))}"
            + (f" and {len(targets) - 8} more" if len(targets) > 8 else ""),
            "routing",
        )
        for source, targets in list(by_source.items())[:8]
    ]
    hint = "wire the groups together, or choose ranks of one group with --rank-list"
    faults.append(Fault(f"{len(by_source)} of {fabric.n_ranks} ranks cannot reach every other rank", "routing", hint))
    return NoRouteError(*faults)
