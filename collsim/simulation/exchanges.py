"""All-to-all over many nodes, by the messages of one rank: all others do the same, so many places further on.

In the order of NCCL's peers a round leads from every group of ranks to the one so many groups further on. Where all
nodes are alike, all ranks then pass the same rounds, so one of each is simulated with what all together put on the
links of a kind. Ways that differ with the place, on the same leaves or in the same group of a dragonfly, load links as
they do on average over some places, and are as long as the longest of these: ranks wait for the slowest. What that does
is measured in tests, and said with the row.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import gcd
from typing import NamedTuple

import numpy as np

from collsim.collectives import Algorithm, ScheduleRequest
from collsim.collectives.node_p2p import MOST_PIECES, distances, pieces_of
from collsim.core.arrays import distinct, entries_of, pointers
from collsim.fabric.fabric import Fabric, Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routing import Routes
from collsim.library.costs.channel_costs import Bool, Use
from collsim.library.costs.network_costs import Steps, steps_of
from collsim.schedule import Chunks, Schedule, Transfers
from collsim.schedule.message_parts import BATCH, channel_of_part, n_parts, p2p_channels, part_sizes, slot_bytes
from collsim.simulation.lowering import Doubt, Lowered, end_rates_Bps, ways_of
from collsim.simulation.runs import LoweredRun

__all__ = [
    "LEAST_RANKS",
    "MessageCut",
    "exchanged",
    "has_classes",
    "is_uneven",
    "stands_but_for_damage",
    "stands_for_all",
]

LEAST_RANKS, LEAST_UNEVEN = 256, 1024
"""Of fewer ranks every message is simulated. Where ranks are not quite alike, of more: groups that share a node, meshes
inside nodes, networks with a hash or of dragonflies."""
SOLE_CHANNEL = 0.2
"""How far times are off at most, as a part of them, where a rank has one channel and passes messages on in pieces:
ranks fall out of step, and waits of one hide behind others (0.14 on 36 and 40 nodes, 0.008 with two channels)."""
PLACES = 8
"""Nodes whose ways are looked at."""
MOST_WAYS = 200_000
"""Of so many ways it takes a second to find the links; with more, fewer nodes are looked at."""


def stands_for_all(picked: Algorithm, request: ScheduleRequest, run: LoweredRun) -> bool:
    """Return True if one rank can stand for all: many of them, on nodes that are all alike."""
    return run.topology.damage is None and _are_made_alike(picked, request, run)


def stands_but_for_damage(picked: Algorithm, request: ScheduleRequest, run: LoweredRun) -> bool:
    """Return True if one rank could stand for all if nothing had failed, and there are too many to look at each.

    Where groups of a dragonfly are joined by fewer cables, messages go round over others, which the ways of a few nodes
    do not show.
    """
    cluster = run.topology.cluster
    if run.topology.damage is None or cluster is None or request.n_ranks <= LEAST_UNEVEN:
        return False
    from collsim.simulation.damage_sample import joins_switches  # on large damaged machines alone

    detours = cluster.spec.fabric == "dragonfly" and joins_switches(run.topology)
    return not detours and _are_made_alike(picked, request, run)


def _are_made_alike(picked: Algorithm, request: ScheduleRequest, run: LoweredRun) -> bool:
    """Return True if there are many ranks, on nodes that are alike unless something has failed."""
    layout, cluster = request.spread, run.topology.cluster
    if layout.n_nodes == 1 or not layout.is_even or cluster is None or picked.relays is None:
        return False
    return (
        request.op.name == "all_to_all"
        and request.n_ranks > (LEAST_UNEVEN if is_uneven(request, run) else LEAST_RANKS)
        and len(cluster.kinds) == 1
        and run.fabric.memory_Bps is None
    )


def is_uneven(request: ScheduleRequest, run: LoweredRun) -> bool:
    """Return True if ranks are not quite alike although their nodes are."""
    per_node, cluster = len(request.spread.nodes[0]), run.topology.cluster
    assert cluster is not None
    groups = per_node // gcd(BATCH, per_node)
    uneven = 1 < groups < per_node or run.fabric.joins_ranks or cluster.spec.hashes
    return bool(uneven or cluster.spec.fabric not in ("rail", "rail_only"))


def has_classes(picked: Algorithm, request: ScheduleRequest, run: LoweredRun) -> bool:
    """Return True if it pays to look for classes of messages : many over relays."""
    layout = request.spread
    many = request.n_ranks > LEAST_RANKS and layout.n_nodes > 1 and run.topology.cluster is not None
    relayed = bool(picked.relays) and layout.is_even  # else there is not a relay on every rail
    return relayed and request.op.name == "all_to_all" and many and run.fabric.memory_Bps is None


class _Row(NamedTuple):
    """Messages of one kind, of one part and piece, in one round."""

    block: int
    part: int
    channel: int
    batch: int
    piece: int
    kind: int
    """`WRITE`, `WIRE` or `DIRECT`."""
    amount: int
    """How many a rank sends."""
    connections: int
    """How many peers one is for."""


WRITE, WIRE, DIRECT = range(3)
"""A message to the GPU on the rail of its target, those of a group from there to the target, or straight."""


class MessageCut(NamedTuple):
    """How messages are cut: channels, and the bytes of the pieces of each part."""

    channels: int
    step_bytes: int
    pieces: list[list[int]]

    @classmethod
    def of(cls, request: ScheduleRequest, *, relayed: bool) -> MessageCut:
        """Return how the messages of one size are cut; only what is relayed goes in pieces over the network."""
        n_nodes, channels = request.spread.n_nodes, p2p_channels(request.n_channels)
        step_bytes = request.peer_step_bytes or slot_bytes(n_nodes)
        parts = n_parts(
            request.block_bytes, request.n_ranks, channels, request.peer_channels, step_bytes=step_bytes,
            n_domains=n_nodes,
        )  # fmt: skip
        sizes = part_sizes(request.block_bytes, parts).tolist()
        return cls(channels, step_bytes, [pieces_of(size, step_bytes) if relayed else [size] for size in sizes])

    def bytes_of(self, part: Int, piece: Int, whole: Bool) -> Int:
        """Return int64[n]: the bytes of pieces of parts for one peer, or of the *whole* part."""
        most = max(map(len, self.pieces))
        table = np.array([[*sizes, *[0] * (most - len(sizes))] for sizes in self.pieces], dtype=np.int64)
        return np.where(whole, table.sum(axis=1)[part], table[part, piece])


@dataclass(slots=True)
class _Rounds:
    """The messages of one rank, round by round."""

    request: ScheduleRequest
    relayed: bool
    cut: MessageCut
    rows: list[_Row] = field(default_factory=list)
    deps: list[list[int]] = field(default_factory=list)

    def fill(self) -> None:
        """Lay the rounds on channels."""
        layout, channels = self.request.spread, self.cut.channels
        per_node, n_nodes = len(layout.nodes[0]), layout.n_nodes
        size = gcd(BATCH, per_node)
        groups, first = per_node // size, (n_nodes // 2) * (per_node // size)
        taken: defaultdict[int, int] = defaultdict(int)
        ends: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for block, delta in enumerate(distances(groups * n_nodes)):
            inside = (first + delta) % (groups * n_nodes) // groups == first // groups
            begin = channel_of_part(block, 0, channels)
            for part in range(len(self.cut.pieces)):
                channel = (begin + part) % channels
                batch = taken[channel] // BATCH
                taken[channel] += size
                label, before = (delta, channel, batch), ends[channel, batch - 1]
                if delta == 0 and size == 1:
                    continue
                ends[channel, batch] += self._messages(label, part, before, (size, groups), inside=inside)

    def _messages(
        self, label: tuple[int, int, int], part: int, before: list[int], shape: tuple[int, int], *, inside: bool
    ) -> list[int]:
        """Add the messages of one part to a group; return the last pieces."""
        delta, channel, batch = label
        size, groups = shape
        if inside or not self.relayed:
            count = size - (delta == 0)
            return [self._add(_Row(delta, part, channel, batch, 0, DIRECT, count, 1), before)]
        writes = size - (delta % groups == 0)
        write, wire = -1, -1
        for piece in range(len(self.cut.pieces[part])):
            waits = before if piece == 0 else [write] * (write >= 0)
            if writes:
                write = self._add(_Row(delta, part, channel, batch, piece, WRITE, writes, 1), waits)
            told = [write] * (write >= 0) + (before if piece == 0 else [wire])
            wire = self._add(_Row(delta, part, channel, batch, piece, WIRE, 1, size), told)
        return [row for row in (write, wire) if row >= 0]

    def _add(self, row: _Row, deps: list[int]) -> int:
        self.rows.append(row)
        self.deps.append(deps)
        return len(self.rows) - 1


class _Laid(NamedTuple):
    """The messages of one rank, laid on the links of each kind: the same for all sizes that are cut alike."""

    part: Int
    piece: Int
    direct: Bool
    connections: Int
    transfers: Transfers
    crossing: _Crossing
    weight: Float
    use: Use
    steps: Steps
    tells: Bool
    at_once: Float

    def size_bytes(self, cut: MessageCut) -> Int:
        """Return the bytes of each message."""
        return cut.bytes_of(self.part, self.piece, self.direct) * self.connections


def _laid(request: ScheduleRequest, run: LoweredRun, cut: MessageCut, *, relayed: bool) -> _Laid:
    """Lay the messages of one rank on the fabric."""
    rounds = _Rounds(request, relayed, cut)
    rounds.fill()
    columns = [np.array(column, dtype=np.int64) for column in zip(*rounds.rows, strict=True)]
    block, part, channel, batch, piece, kind, count, connections = columns
    crossing = _crossings(request, run, block, kind)
    step = batch * MOST_PIECES + piece
    dep = np.array([row for rows in rounds.deps for row in rows], dtype=np.int64)
    counts = np.array([len(rows) for rows in rounds.deps])
    n = len(block)
    transfers = Transfers(
        src=np.zeros(n, dtype=np.int64), dst=1 + block % (request.n_ranks - 1), channel=channel, step=step,
        reduces=np.zeros(n, dtype=np.bool_), reads_input=np.ones(n, dtype=np.bool_), lanes=np.ones(n, dtype=np.int64),
        copies=np.ones(n, dtype=np.int64), chunk_ptr=pointers(connections),
        chunk=np.zeros(int(connections.sum()), dtype=np.int64), dep_ptr=pointers(counts), dep=dep,
    )  # fmt: skip
    weight = np.repeat(count * request.n_ranks, np.diff(crossing.ptr)) * crossing.weight
    use, busy = _use(run, transfers, count, crossing)
    across = crossing.across
    steps = steps_of(use, np.flatnonzero(across), crossing.alone_Bps[across], busy[across])
    tells = np.isin(kind[dep], (WRITE,)) & np.repeat(kind == WIRE, counts) | (kind[dep] != WRITE)
    at_once = _at_once(channel, step, count)
    return _Laid(
        part, piece, kind == DIRECT, connections, transfers, crossing, weight, use, steps, np.asarray(tells), at_once
    )


def exchanged(picked: Algorithm, request: ScheduleRequest, run: LoweredRun, dtype: str) -> Lowered:
    """Return the messages of one rank with what those of all put on the links of each kind."""
    relayed = bool(picked.relays)
    cut = MessageCut.of(request, relayed=relayed)
    key = "rounds", relayed, cut.channels, *map(len, cut.pieces)
    if key not in run.found:
        run.found[key] = _laid(request, run, cut, relayed=relayed)
    laid: _Laid = run.found[key]
    crossing, size, n = laid.crossing, laid.size_bytes(cut), len(laid.part)
    routes = Routes(crossing.ptr, crossing.link, laid.weight, crossing.latency_s, np.ones(n))
    chunks = Chunks(np.array([request.block_bytes]), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    parameters = {"channels": cut.channels, "parts": len(cut.pieces), "step_bytes": cut.step_bytes}
    return Lowered(
        schedule=request.schedule(picked.name, chunks, laid.transfers, **parameters),
        run=replace(run, trunks=routes, trunk_capacity_Bps=crossing.capacity_Bps),
        transfers=laid.transfers,
        size_bytes=size.astype(np.float64),
        route=np.arange(n),
        used=np.arange(n),
        copies=np.ones(n, dtype=np.int64),
        across=crossing.across,
        added=np.zeros(n, dtype=np.bool_),
        use=laid.use,
        dtype=dtype,
        steps=laid.steps,
        carried=_carried(crossing, laid.weight, size),
        ways=crossing.first,
        tells=laid.tells,
        near=True,
        doubt=Doubt(SOLE_CHANNEL, 0, None) if cut.channels == 1 and max(map(len, cut.pieces)) > 1 else None,
        at_once=laid.at_once,
    )


class _OfKinds(NamedTuple):
    """What rows take of kinds of links, in CSR: each kind once."""

    ptr: Int
    link: Int
    weight: Float

    @classmethod
    def of(cls, row: Int, kind: Int, weight: Float, shape: tuple[int, int]) -> _OfKinds:
        """Return the sums of the weights of each row and kind."""
        cell, place = distinct(row * shape[1] + kind)
        owner, link = np.divmod(cell, shape[1])
        found = np.bincount(place, weight, len(cell)).astype(np.float64)
        return cls(pointers(np.bincount(owner, minlength=shape[0])), link, found)


class _Crossing(NamedTuple):
    """Kinds of links that messages cross, in CSR by row."""

    ptr: Int
    link: Int
    weight: Float
    """What one message puts on each link of the kind, by itself: its share of all links of the kind."""
    latency_s: Float
    across: Bool
    alone_Bps: Float
    """What the narrowest link on the way carries."""
    capacity_Bps: Float
    kind_of: Int
    """int64[n_links] of the fabric."""
    first: Routes
    """What the first of the messages crosses, link by link."""

    def of(self, which: Int) -> _Crossing:
        """Return the rows *which*."""
        rest, all_of_it = np.ones(len(self.latency_s)), np.ones(len(which))
        taken = Routes(self.ptr, self.link, self.weight, self.latency_s, rest).take(which, all_of_it)
        return self._replace(
            ptr=taken.ptr, link=taken.link, weight=taken.weight, latency_s=self.latency_s[which],
            across=self.across[which], alone_Bps=self.alone_Bps[which], first=self.first.take(which, all_of_it),
        )  # fmt: skip


def _crossings(request: ScheduleRequest, run: LoweredRun, block: Int, kind: Int) -> _Crossing:
    """Return what the messages of each row cross, on average over some nodes and the ranks of a group."""
    key, which = distinct(block * 3 + kind)
    name = "crossings", key.tobytes()
    if name not in run.found:
        run.found[name] = _looked_at(request, run, key)
    found: _Crossing = run.found[name]
    return found.of(which)


def _looked_at(request: ScheduleRequest, run: LoweredRun, key: Int) -> _Crossing:
    """Return what messages cross, by three times how many groups they go on plus their kind."""
    layout = request.spread
    per_node, n_nodes = len(layout.nodes[0]), layout.n_nodes
    size = gcd(BATCH, per_node)
    groups = per_node // size
    delta, sort = np.divmod(key, 3)
    ranks = np.array(layout.nodes)
    n_places = min(max(MOST_WAYS // (len(key) * size), 1), PLACES)
    places = np.unique((np.arange(n_places) * 2 + 1) * n_nodes // (2 * n_places))
    local = np.arange(size)
    ends = []
    for node in places.tolist():
        start = node * groups
        to = (start + delta[:, None]) % (groups * n_nodes)
        for shift in range(1, 2) if size > 1 else (0,):
            src = np.broadcast_to(ranks[node, local][None, :], (len(key), size))
            partner = (local + shift) % size if size > 1 else local
            there, inner = to // groups, (to % groups) * size + partner[None, :]
            target = ranks[there, inner]
            relay = ranks[node, inner]
            src = np.where(sort[:, None] == WIRE, relay, src)
            dst = np.where(sort[:, None] == WRITE, relay, target)
            dst = np.where(src == dst, ranks[node, (inner + 1) % per_node], dst)
            ends.append((src, dst))
    src, dst = (np.concatenate(column, axis=1).ravel() for column in zip(*ends, strict=True))
    width = len(src) // len(key)
    schedule = Schedule("all_to_all", "", request.n_ranks, 0, Chunks(*(np.zeros(0, dtype=np.int64),) * 3), ())
    ways = ways_of(schedule, (src, dst), run, TreePorts.free(run.fabric))
    routes = ways.run.routes
    kind_of, capacity_Bps, members = _kinds_of_links(run.fabric)
    table, narrowest = _by_kind(routes, kind_of, run.fabric.capacity_Bps)
    ptr, entry = entries_of(table.ptr, ways.number)
    owner = np.repeat(np.arange(len(src)) // width, np.diff(ptr))
    cell, place = distinct(owner * len(members) + table.link[entry])
    share = np.bincount(place, table.weight[entry] / width, len(cell)) / members[cell % len(members)]
    narrowest = narrowest[ways.number]
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    latency_s = routes.latency_s[ways.number].reshape(-1, width).max(axis=1)
    across = (node[src] != node[dst]).reshape(-1, width).mean(axis=1) > 0.5
    ptr = pointers(np.bincount(cell // len(members), minlength=len(key)))
    alone_Bps = narrowest.reshape(-1, width).min(axis=1)
    first = routes.take(ways.number[::width], np.ones(len(key)))
    return _Crossing(ptr, cell % len(members), share, latency_s, across, alone_Bps, capacity_Bps, kind_of, first)


def _by_kind(routes: Routes, kind_of: Int, capacity_Bps: Float) -> tuple[_OfKinds, Float]:
    """Return what routes take of links of each kind, and what the narrowest link of each carries of a message alone.

    Links that others stand for are counted with these, once for all routes: there may be thousands between two leaves.
    """
    n_links, n_kinds = len(kind_of), int(kind_of.max(initial=0)) + 1
    met = np.zeros(n_links, dtype=np.bool_)
    met[routes.link] = True
    lead = link = np.flatnonzero(met)
    factor = np.ones(len(link))
    if routes.bundles is not None:
        follows = met[routes.bundles.leader]
        lead = np.concatenate([lead, routes.bundles.leader[follows]])
        link = np.concatenate([link, routes.bundles.link[follows]])
        factor = np.concatenate([factor, routes.bundles.factor[follows]])
    narrow_Bps = np.full(n_links, np.inf)
    np.minimum.at(narrow_Bps, lead, capacity_Bps[link] / factor)
    stands = _OfKinds.of(lead, kind_of[link], factor, (n_links, n_kinds))
    route = np.repeat(np.arange(len(routes.latency_s)), np.diff(routes.ptr))
    ptr, entry = entries_of(stands.ptr, routes.link)
    counts = np.diff(ptr)
    weight = np.repeat(routes.weight, counts) * stands.weight[entry]
    found = _OfKinds.of(np.repeat(route, counts), stands.link[entry], weight, (len(routes.latency_s), n_kinds))
    narrowest_Bps = np.full(len(routes.latency_s), np.inf)
    np.minimum.at(narrowest_Bps, route, narrow_Bps[routes.link] / routes.weight)
    return found, narrowest_Bps


def _kinds_of_links(fabric: Fabric) -> tuple[Int, Float, Int]:
    """Return the kind of each link, the capacity of each kind, and how many of it there are.

    Links are of a kind if they join nodes of the same kinds upwards or downwards, as wide, and groups of switches as
    far apart.
    """
    wiring, cluster = fabric.wiring, fabric.machine.cluster
    assert cluster is not None
    kinds = {name: number for number, name in enumerate(dict.fromkeys(wiring.node_kinds))}
    sort = np.array([kinds[name] for name in wiring.node_kinds], dtype=np.int64)
    group = np.zeros(wiring.n_nodes, dtype=np.int64)
    first = wiring.n_nodes - len(cluster.switch_group)
    group[first:], sort[first:] = cluster.switch_group, len(kinds) + cluster.switch_tier
    n_groups, src, dst = int(group.max()) + 1, wiring.link_src, wiring.link_dst
    both = (src >= first) & (dst >= first)
    apart = np.where(both, (group[dst] - group[src]) % n_groups, 0)
    kind_of = np.zeros(len(src), dtype=np.int64)
    upwards = (src < dst) & (dst >= wiring.n_gpus)  # GPUs of a node are joined to each other in both directions alike
    for column in (sort[src], sort[dst], upwards, np.round(fabric.capacity_Bps), apart):
        values, place = distinct(column.astype(np.int64))
        kind_of = distinct(kind_of * len(values) + place)[1]
    capacity_Bps = np.bincount(kind_of, fabric.capacity_Bps) / np.bincount(kind_of)
    members = np.maximum(np.bincount(kind_of[_in_use(fabric)], minlength=len(capacity_Bps)), 1)
    return kind_of, capacity_Bps, members.astype(np.int64)


def _in_use(fabric: Fabric) -> Bool:
    """Return bool[n_links]: all but those of GPUs that are no ranks, their adapters, and leaves of no others.

    On a dragonfly other messages pass a switch without ranks.
    """
    wiring, cluster = fabric.wiring, fabric.machine.cluster
    assert cluster is not None
    idle = np.zeros(wiring.n_nodes, dtype=np.bool_)
    idle[: wiring.n_gpus] = idle[cluster.first_nic : cluster.first_leaf] = True
    idle[fabric.rank_node] = False
    nics = cluster.nic_of[entries_of(cluster.nic_ptr, fabric.rank_node)[1]]
    idle[nics] = False
    if cluster.spec.fabric != "dragonfly":
        idle[cluster.first_leaf + np.flatnonzero(cluster.switch_tier == 0)] = True
        idle[cluster.first_leaf + cluster.nic_leaf[nics - cluster.first_nic]] = False
    return np.asarray(~(idle[wiring.link_src] | idle[wiring.link_dst]))


def _use(run: LoweredRun, transfers: Transfers, count: Int, crossing: _Crossing) -> tuple[Use, Float]:
    """Return what the messages of a rank share with its others, and what of the narrowest link one channel gets."""
    n_steps = int(transfers.step.max(initial=0)) + 1
    busy = np.bincount(transfers.step, count.astype(np.float64), n_steps)
    out_Bps, _ = end_rates_Bps(transfers.src, transfers.dst, run, ())
    row = np.repeat(np.arange(len(count)), np.diff(crossing.ptr))
    there = crossing.across[row]
    cell = crossing.link * n_steps + transfers.step[row]
    weight = crossing.weight * count[row] * run.fabric.n_ranks
    load = np.bincount(cell[there], weight[there], len(crossing.capacity_Bps) * n_steps)
    shared_Bps = np.full(len(count), np.inf)
    np.minimum.at(shared_Bps, row[there], crossing.capacity_Bps[crossing.link[there]] / load[cell[there]])
    ones = np.ones(len(count))
    active = busy.astype(np.float64)[transfers.step]
    use = Use(ones, active, out_Bps, np.zeros(len(count), dtype=np.bool_), transfers.reduces)
    return use, shared_Bps


def _at_once(channel: Int, step: Int, count: Int) -> Float:
    """Return float64[n]: how many messages a channel serves beside each, itself among them."""
    _, label = distinct(channel * (int(step.max(initial=0)) + 1) + step)
    return np.asarray(np.bincount(label, count)[label], dtype=np.float64)


def _carried(crossing: _Crossing, weight: Float, size: Int) -> tuple[Float, Float]:
    """Return float64[n_links] twice: bytes within nodes on each link, and between nodes."""
    row = np.repeat(np.arange(len(size)), np.diff(crossing.ptr))
    found = []
    for part in (~crossing.across, crossing.across):
        own = part[row]
        each = np.bincount(crossing.link[own], (weight * size[row])[own], len(crossing.capacity_Bps))
        found.append(each.astype(np.float64)[crossing.kind_of])
    return found[0], found[1]
