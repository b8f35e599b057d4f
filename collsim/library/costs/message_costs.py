"""Costs of grouped messages: channels that send and receive at once, ports that many share, calls in a row.

Three laws beside those of `collsim.library.costs.channel_costs`, for protocols that tell the rate of a channel that
only sends:

* A channel splits its warps between what it sends and what it receives, and among the messages that it serves at once.
  When one direction is done the other goes on at the full rate. The two directions are one chunk out of step: the first
  chunk goes out alone, and the last one is copied out alone.
* The channels that a rank sends (or receives) on and its port bind softly. Where a port that serves several ranks meets
  others that are as busy, switches lose some of the rate, the less the more flows there are.
* In a loop of calls a rank turns to the next call when it is done itself, so ranks that wait for each other set the
  pace together, and a rank that only receives finds the next bytes already there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct
from collsim.library.costs.channel_costs import Protocol, soft_min

__all__ = ["Messages", "call_s", "caps_Bps", "cycle_mean", "port_capacity_Bps"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

TRIFLE = 1e-14
"""What a walk has to grow by to count as longer, as a part of its weight and of the heaviest edge."""
MOST_WALKED, WALKED_PER_ROUND = 64, 32
"""Up to so many nodes all walks take as long as few rounds do, 1 ms; a round takes as long as walks of four steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """The messages of one call, part by part.

    Attributes
    ----------
    n_ranks : int
    src, dst, channel, step : int64[n]
        Ranks, and the labels of the channel and of its batch.
    size_bytes : float64[n]
    lanes, copies : float64[n]
        Channels that serve a part, and how many equal parts a row stands for.
    channels : int
        Channels for point to point.
    chunk_bytes : int
        Slot of a connection.
    own_blocks : bool
        Every rank also copies a block of its own.
    turn : int64[n] or None
        The round of each part, in which a rank sends one message and receives one; None: how many ranks further on it
        goes.
    at_once : float64[n] or None
        Where all ranks send and receive the same and the messages are of one: how many its channels serve at a time.
    """

    n_ranks: int
    src: Int
    dst: Int
    channel: Int
    step: Int
    size_bytes: Float
    lanes: Float
    copies: Float
    channels: int
    chunk_bytes: int
    own_blocks: bool
    turn: Int | None = None
    at_once: Float | None = None
    found: dict[str, Any] = field(default_factory=dict)
    """What was found of these columns, whatever the costs."""

    @property
    def moves(self) -> NDArray[np.bool_]:
        """bool[n]: rows that are messages, not joins."""
        return np.asarray((self.src != self.dst) & (self.size_bytes > 0))

    def but(self, others: NDArray[np.bool_]) -> Messages:
        """Return a copy in which the messages *others*, bool[n], have no bytes."""
        return replace(self, size_bytes=np.where(others, 0.0, self.size_bytes), found={})

    def pairs(self) -> tuple[Int, Int, Float]:
        """Return sender, receiver and bytes of each pair of ranks between which something goes."""
        pair, which = distinct((self.src * self.n_ranks + self.dst)[self.moves])
        each = np.bincount(which, weights=(self.size_bytes * self.copies)[self.moves], minlength=len(pair))
        return *np.divmod(pair, self.n_ranks), each.astype(np.float64)

    @property
    def one_to_one(self) -> bool:
        """True if no rank sends to more than one other, or receives from more."""
        pair, _ = distinct((self.src * self.n_ranks + self.dst)[self.moves])
        return all(len(distinct(ends)[0]) == len(pair) for ends in np.divmod(pair, self.n_ranks))

    @property
    def one_way(self) -> bool:
        """True if no rank both sends and receives, so that none waits for its own next call through others."""
        sends = np.zeros(self.n_ranks, dtype=np.bool_)
        sends[self.src[self.moves]] = True
        return not sends[self.dst[self.moves]].any()

    @property
    def sent_bytes(self) -> Float:
        """float64[n_ranks], the bytes that each rank sends."""
        weights = self.size_bytes * self.copies * self.moves
        return np.bincount(self.src, weights=weights, minlength=self.n_ranks).astype(np.float64)

    @property
    def channels_for_all(self) -> float:
        """Channels that messages cut like the most cut one would take if every rank got one."""
        _, pair = distinct((self.src * self.n_ranks + self.dst)[self.moves])
        parts = float(np.bincount(pair, weights=(self.lanes * self.copies)[self.moves]).max(initial=0.0))
        return min(parts * self.n_ranks, float(self.channels))

    def at_ports(self, values: Float) -> Float:
        """Return float64[2 n_ranks]: the largest sum of *values* in one batch out of each rank, then into each."""
        steps = int(self.step.max(initial=0)) + 1
        weights = np.where(self.moves, values, 0.0)
        sums = [
            np.bincount(rank * steps + self.step, weights=weights, minlength=self.n_ranks * steps)
            for rank in (self.src, self.dst)
        ]
        return np.concatenate([total.reshape(self.n_ranks, steps).max(axis=1) for total in sums]).astype(np.float64)


def caps_Bps(messages: Messages, costs: Protocol) -> Float:
    """Return float64[n]: the rate that the channels at both ends of a part can reach over its whole length.

    A channel that has as much to receive as to send takes `channel_rate_Bps` each way, but the first chunk goes alone;
    beyond what has a counterpart it takes `one_way_rate_Bps`.
    """
    size, alone_Bps = messages.size_bytes, _alone_Bps(costs)
    slowest_s = np.zeros(len(size))
    for back_bytes, works in _exchanges(messages):
        paired = np.minimum(size, back_bytes)
        together = paired - np.minimum(paired, messages.chunk_bytes)
        slowest_s = np.maximum(slowest_s, works * (together / costs.channel_rate_Bps + (size - together) / alone_Bps))
    rates = np.divide(size, slowest_s, out=np.full(len(size), costs.channel_rate_Bps), where=slowest_s > 0)
    return np.asarray(messages.lanes * rates)


def _alone_Bps(costs: Protocol) -> float:
    """Return the rate of a channel that works in one direction."""
    return costs.channel_rate_Bps if costs.one_way_rate_Bps is None else costs.one_way_rate_Bps


def _exchanges(messages: Messages) -> list[tuple[Float, Float]]:
    """Return for the sending and the receiving end of each part what its channel moves there.

    A pair holds the bytes that the channel moves the other way in the same round, and how many rounds it serves at a
    time.
    """
    if messages.at_once is not None:
        return [(messages.size_bytes, messages.at_once)]
    if "exchanges" not in messages.found:
        messages.found["exchanges"] = _exchanges_by_round(messages)
    found: list[tuple[Float, Float]] = messages.found["exchanges"]
    return found


def _exchanges_by_round(messages: Messages) -> list[tuple[Float, Float]]:
    """Return the same where ranks turn to each other round by round."""
    n, count = messages.n_ranks, len(messages.src)
    label = messages.channel * (int(messages.step.max(initial=0)) + 1) + messages.step
    turn = (messages.dst - messages.src) % n if messages.turn is None else messages.turn
    ends = np.concatenate([(label * n + rank) * n + turn for rank in (messages.src, messages.dst)])
    works, work = np.unique(ends, return_inverse=True)
    sent, received = (
        np.bincount(part, weights=messages.size_bytes, minlength=len(works)).astype(np.float64)
        for part in (work[:count], work[count:])
    )
    _, channel, served = np.unique(works // n, return_inverse=True, return_counts=True)
    at_once = served[channel].astype(np.float64)
    return [(back[part], at_once[part]) for back, part in ((received, work[:count]), (sent, work[count:]))]


def port_capacity_Bps(messages: Messages, rate_Bps: Float, costs: Protocol, line_Bps: Float) -> Float:
    """Return float64[2 n_ranks]: what the port out of each rank, then into each, can carry of payload.

    *rate_Bps* is what each part could reach alone, *line_Bps*, float64[2 n_ranks], the line rate of each port.
    """
    flows = np.maximum(messages.at_ports(messages.lanes * messages.copies), 1.0)
    lost = costs.contention * _crowding(messages) / np.sqrt(flows)  # that many flows even out what they do at random
    link_Bps = costs.link_share * costs.wire_efficiency * line_Bps * (1 - lost)
    offered_Bps = messages.at_ports(rate_Bps * messages.copies)
    return np.where(offered_Bps > 0, soft_min(np.maximum(offered_Bps, 1.0), link_Bps, costs.softness), link_Bps)


def _crowding(messages: Messages) -> Float:
    """Return float64[2 n_ranks], from 0 to 1: how much of what a port carries meets ports crowded by other messages.

    Only a port that serves several ranks loses. The port at the other end is crowded as long as its other messages
    last; each of them takes as many turns as messages share that port. A rank's own block is one of its messages.
    """
    n, (src, dst, size_bytes) = messages.n_ranks, messages.pairs()
    own_bytes = np.zeros(n)
    if messages.own_blocks:
        np.maximum.at(own_bytes, src, size_bytes)
    return np.concatenate([_crowded_share(*ends, size_bytes, own_bytes) for ends in ((dst, src), (src, dst))])


def _crowded_share(end: Int, port: Int, size_bytes: Float, own_bytes: Float) -> Float:
    """Return float64[n_ranks]: what of the bytes at each *port* meets a crowded *end*; own blocks crowd too."""
    n = len(own_bytes)
    total = np.maximum(np.bincount(port, weights=size_bytes, minlength=n), 1.0)
    count, flows = (np.bincount(ranks, minlength=n) + (own_bytes > 0) for ranks in (end, port))
    first, second = own_bytes.copy(), own_bytes.copy()
    np.maximum.at(first, end, size_bytes)
    order = np.lexsort((size_bytes, end))
    at_end = np.flatnonzero(np.diff(end[order], append=-1))  # the largest message of each end
    largest = np.zeros(len(end), dtype=np.bool_)
    largest[order[at_end]] = True
    np.maximum.at(second, end[~largest], size_bytes[~largest])
    rest = np.where(largest, second[end], first[end])  # the largest other message of the same end
    lasts = np.minimum(count[end] * rest / total[port], 1.0)
    met = np.bincount(port, weights=size_bytes * lasts, minlength=n)
    return np.asarray(met / total * (flows > 1), dtype=np.float64)


def call_s(messages: Messages, finish_s: Float, rate_Bps: Float, port_Bps: Float, costs: Protocol) -> float:
    """Return by how much one call after the other comes later, in a long row of equal calls.

    Parameters
    ----------
    messages : Messages
    finish_s : float64[n]
        When each part has arrived, if all ranks start together.
    rate_Bps : float64[n]
        What each part could reach alone.
    port_Bps : float64[2 n_ranks]
    costs : Protocol
    """
    moves, n, last_s = messages.moves, messages.n_ranks, float(finish_s.max(initial=0.0))
    src, dst = messages.src[moves], messages.dst[moves]
    finish_s, size = finish_s[moves], messages.size_bytes[moves]
    copy_out_Bps = costs.copy_out_rate_Bps or _alone_Bps(costs)
    drained_s = finish_s + (0.0 if costs.zero_copy else np.minimum(size, messages.chunk_bytes) / copy_out_Bps)
    begin_s = costs.base_s + costs.channel_overhead_s * messages.channels_for_all
    if messages.at_once is not None:
        return begin_s + float(drained_s.max(initial=0.0))  # ranks wait for each other in pairs that are all alike
    sent_s, received_s, alone_s = np.zeros(n), np.zeros(n), np.zeros(n)
    np.maximum.at(sent_s, src, finish_s)
    np.maximum.at(received_s, dst, finish_s)
    np.maximum.at(alone_s, src, size / rate_Bps[moves])
    alone_s = np.maximum(alone_s, messages.sent_bytes / port_Bps[:n])
    own_s = np.where(received_s > 0, sent_s, alone_s)  # who only sends may run ahead of the others
    own_s = np.where(sent_s > 0, begin_s + own_s, -np.inf)
    if messages.one_to_one:
        follows, wait_s = np.full(n, -1), np.full(n, -np.inf)
        follows[src] = dst
        np.maximum.at(wait_s, src, begin_s + drained_s)
        return max(_cycle_mean_of_chains(follows, wait_s), float(own_s.max()), last_s)
    if messages.one_way:
        return max(float(own_s.max()), last_s)
    waits = np.full((n, n), -np.inf)  # from the start of a call at one rank to the next start at another
    np.maximum.at(waits, (src, dst), begin_s + drained_s)
    np.fill_diagonal(waits, own_s)
    return max(cycle_mean(waits), last_s)


def _cycle_mean_of_chains(follows: Int, weights: Float) -> float:
    """Return what `cycle_mean` does where at most one edge leaves each node, to *follows* (-1: none).

    >>> _cycle_mean_of_chains(np.array([1, 0, -1, 0]), np.array([4.0, 2.0, 9.0, 9.0]))
    3.0
    """
    most, ahead, own = float("-inf"), follows.tolist(), weights.tolist()
    walk_of = [-1] * len(ahead)  # the first node of the walk that has met a node
    for first in range(len(ahead)):
        node = first
        while node >= 0 and walk_of[node] < 0:
            walk_of[node] = first
            node = ahead[node]
        if node < 0 or walk_of[node] != first:
            continue
        total, length, last = own[node], 1, node
        while (node := ahead[node]) != last:
            total, length = total + own[node], length + 1
        most = max(most, total / length)
    return most


def cycle_mean(weights: Float) -> float:
    """Return the largest mean weight of a cycle, to rounding; -inf where there is none.

    >>> cycle_mean(np.array([[1.0, 4.0], [2.0, 2.0]]))
    3.0
    """
    few = len(weights) <= MOST_WALKED
    found = None if few else _mean_by_growth(weights, len(weights) // WALKED_PER_ROUND)
    return _mean_by_walks(weights) if found is None else found


def _mean_by_walks(weights: Float) -> float:
    """Return the same by the heaviest walks of every length (Karp): as many rounds as nodes."""
    n = len(weights)
    walks = np.zeros((n + 1, n))  # the heaviest walk of k edges to each node, from anywhere
    for k in range(n):
        walks[k + 1] = (walks[k][:, None] + weights).max(axis=0)
    ends = np.isfinite(walks[n])
    if not ends.any():
        return float("-inf")
    means = (walks[n, ends] - walks[:n, ends]) / (n - np.arange(n))[:, None]
    return float(means.min(axis=0).max())


def _mean_by_growth(weights: Float, rounds: int) -> float | None:
    """Return the same in few *rounds*, if these are enough.

    Walks grow by what edges are above a mean that some cycle reaches. They stop growing, and no cycle has more; or the
    last edges of the heaviest walks close a cycle of a larger mean, from which it goes on: Newton's method.
    """
    n, finite = len(weights), weights[np.isfinite(weights)]
    if not len(finite):
        return float("-inf")
    scale = float(np.abs(finite).max())
    most = float((weights + weights.T).max()) / 2  # there and back; loops among them
    mean = max(most, float(finite.min()) - TRIFLE * scale)
    heaviest, before = np.zeros(n), np.full(n, -1)
    for _ in range(rounds):
        walks = heaviest[:, None] + weights
        walks -= mean
        last = walks.argmax(axis=0)
        longer = walks[last, np.arange(n)]
        grown = longer > heaviest + TRIFLE * (scale + np.abs(heaviest))
        if not grown.any():
            return most
        heaviest, before = np.where(grown, longer, heaviest), np.where(grown, last, before)
        found = _best_cycle(before, weights)
        if found > mean:
            most, mean, before = found, found, np.full(n, -1)
    return None


def _best_cycle(before: Int, weights: Float) -> float:
    """Return the largest mean of the cycles among edges to each node from the one *before* it (-1: none)."""
    return _cycle_mean_of_chains(before, np.where(before >= 0, weights[before, np.arange(len(before))], 0.0))
