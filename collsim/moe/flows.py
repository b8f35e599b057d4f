"""Flows of dispatch and combine in each mode: bytes from rank to rank.

``normal`` sends one copy of a token to each node over the network, to the rank with the sender's place there, which
hands one copy on to each rank with an expert for it; combine is the reverse. ``low_latency`` sends one message to the
rank of each expert, or within the node to the rank with the target's place, which sends it on (``rail``, a what-if:
DeepEP sends all messages directly). ``all_to_all`` sends one copy to each rank, in one call of the library. The
formulas are those of DeepEP's kernels (README and csrc/kernels of deepseek-ai/DeepEP).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collsim.moe.counts import Counts
from collsim.moe.gating import Float, Int
from collsim.moe.models import Model

__all__ = [
    "FORWARDS",
    "MODES",
    "OPS",
    "Flows",
    "byte_matrix",
    "copies_of",
    "flows_of",
    "logical_bytes",
    "message_bytes",
]

MODES = ("normal", "low_latency", "all_to_all")
OPS = ("dispatch", "combine")
FORWARDS = ("direct", "rail")
"""Ways of low-latency messages to other nodes: from the sender's adapter, or from that of the target's rail."""
GRAIN = 16
"""Messages of DeepEP are multiples of 16 bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Bytes from rank to rank, no two flows with the same ends.

    Attributes
    ----------
    src, dst : int64[n]
    size_bytes : float64[n]
        More than 0.
    messages : float64[n]
        Tokens, or (token, expert) pairs, that they are sent as.
    """

    src: Int
    dst: Int
    size_bytes: Float
    messages: Float

    @classmethod
    def of(cls, src: Int, dst: Int, messages: Float, each_bytes: int) -> Flows:
        """Return the flows that carry any message to another rank."""
        kept = (messages > 0) & (src != dst)
        return cls(src[kept], dst[kept], messages[kept] * each_bytes, messages[kept])

    def reversed(self) -> Flows:
        """Return the same from targets to sources."""
        return Flows(self.dst, self.src, self.size_bytes, self.messages)


def message_bytes(model: Model, op: str, mode: str, *, over_network: bool) -> int:
    """Return the bytes of one message: a token with its scales, and what the mode sends beside it.

    Low-latency dispatch has a header of 16 bytes, normal dispatch over the network 8 bytes of source, and an index and
    a weight of 4 bytes for each expert (collectives of DeepEP: 7408 and 7472 bytes for a token of DeepSeek-V3 in FP8).

    >>> from collsim.moe.models import load_model
    >>> v3 = load_model("deepseek-v3")
    >>> [message_bytes(v3, "dispatch", mode, over_network=True) for mode in MODES]
    [7472, 7408, 7392]
    """
    token = model.token_bytes(op)
    if op == "combine" or mode == "all_to_all":
        return token
    if mode == "low_latency":
        return token + GRAIN
    return -(-(token + 8 + 8 * model.top_k) // GRAIN) * GRAIN if over_network else token


def flows_of(counts: Counts, model: Model, op: str, mode: str, forward: str = "direct") -> list[Flows]:
    """Return the flows of each hop, in the order that bytes take them: two in normal mode over nodes, else one.

    *forward* ``rail`` makes two of those in low latency over nodes.
    """
    if mode == "normal":
        hops = _two_hops(counts, model, op)
    elif mode == "low_latency" and forward == "rail" and counts.members.n_nodes > 1:
        hops = _by_rail(counts, message_bytes(model, op, mode, over_network=True))
    else:
        messages = counts.pairs if mode == "low_latency" else counts.to_rank
        src, dst = np.indices(messages.shape).reshape(2, -1)
        hops = [Flows.of(src, dst, messages.ravel(), message_bytes(model, op, mode, over_network=True))]
    return hops if op == "dispatch" else [hop.reversed() for hop in reversed(hops)]


def copies_of(counts: Counts, mode: str, forward: str = "direct") -> tuple[Float, Float]:
    """Return float64[n_ranks] twice, the copies that each rank hands out and takes in during dispatch within its node.

    Those for itself are among them, and those that it passes on where *forward* is ``rail``. Combine is the reverse.
    """
    n = counts.members.n_ranks
    if mode == "normal":
        src, dst, tokens = counts.relayed()
        handed, taken = (np.bincount(ranks, tokens, n).astype(np.float64) for ranks in (src, dst))
        return handed, taken
    messages = counts.pairs if mode == "low_latency" else counts.to_rank
    handed, taken = messages.sum(axis=1), messages.sum(axis=0)
    if mode == "low_latency" and forward == "rail":
        src, dst = np.nonzero(_to_rails(counts))
        passed = np.bincount(dst, np.where(src != dst, _to_rails(counts)[src, dst], 0.0), n)
        handed, taken = handed + passed, taken + passed
    return handed, taken


def _two_hops(counts: Counts, model: Model, op: str) -> list[Flows]:
    """Return the hops of dispatch with the sizes of *op*."""
    members = counts.members
    node, relay = members.node, members.relay
    inside = message_bytes(model, op, "normal", over_network=False)
    within = Flows.of(*counts.relayed(), inside)
    if members.n_nodes == 1:
        return [within]
    rank, target = np.indices(relay.shape).reshape(2, -1)
    away = node[rank] != target
    rank, target = rank[away], target[away]
    each = message_bytes(model, op, "normal", over_network=True)
    return [Flows.of(rank, relay[rank, target], counts.to_node[rank, target], each), within]


def _to_rails(counts: Counts) -> Float:
    """Return float64[n_ranks, n_ranks]: messages to other nodes from each rank to those beside it that send them on."""
    members, n = counts.members, counts.members.n_ranks
    src, dst = np.indices((n, n)).reshape(2, -1)
    away = members.node[src] != members.node[dst]
    src, dst = src[away], dst[away]
    handed = np.zeros((n, n))
    np.add.at(handed, (src, members.relay[dst, members.node[src]]), counts.pairs[src, dst])
    return handed


def _by_rail(counts: Counts, each_bytes: int) -> list[Flows]:
    """Return the hops of messages that go to the target's rail within the sender's node, then over the network."""
    members, n = counts.members, counts.members.n_ranks
    src, dst = np.indices((n, n)).reshape(2, -1)
    away = members.node[src] != members.node[dst]
    inside = np.where(away.reshape(n, n), 0.0, counts.pairs) + _to_rails(counts)
    sent = np.zeros((n, n))
    np.add.at(sent, (members.relay[dst, members.node[src]][away], dst[away]), counts.pairs[src, dst][away])
    return [Flows.of(src, dst, messages.ravel(), each_bytes) for messages in (inside, sent)]


def byte_matrix(counts: Counts, model: Model, op: str, mode: str) -> Int:
    """Return int64[n_ranks, n_ranks], what ends where it began in dispatch: bytes from each rank to each, relays aside.

    In normal mode that is one copy for each rank, whichever way it goes. The diagonal holds what stays.
    """
    messages = counts.pairs if mode == "low_latency" else counts.to_rank
    matrix = np.rint(messages * message_bytes(model, op, mode, over_network=False)).astype(np.int64)
    return matrix if op == "dispatch" else matrix.T


def logical_bytes(counts: Counts, model: Model, op: str, mode: str) -> Float:
    """Return float64[n_ranks], the bytes that published bandwidths count for each rank, what stays included.

    DeepEP divides by the time: in low-latency mode the messages to all experts, in normal mode tokens times the
    different nodes of each, or on one node times the different ranks.
    """
    if mode == "low_latency":
        messages = counts.pairs.sum(axis=1)
    elif mode == "normal" and counts.members.n_nodes > 1:
        messages = counts.to_node.sum(axis=1)
    else:
        messages = counts.to_rank.sum(axis=1)
    return np.asarray(messages * model.token_bytes(op) if mode != "low_latency" else messages * message_bytes(
        model, op, mode, over_network=True), dtype=np.float64)  # fmt: skip
