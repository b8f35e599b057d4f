"""Token counts: to ranks, to nodes, and to experts, expected or counted in a sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collsim.moe.expert_placement import Placement
from collsim.moe.gating import Float, Int, Popularity, distinct_groups, sampled
from collsim.moe.models import Model

__all__ = ["Counts", "Members", "counted", "expected", "pooled"]

TOKENS_AT_ONCE = 1 << 18
POOL = 1 << 17
"""Tokens that tell what to expect: a rank that gets a hundredth of the messages is off by about 1 %."""


@dataclass(frozen=True, eq=False)
class Members:
    """Who takes part: int64[n_ranks], the node of each rank, nodes counted from 0 in order."""

    node: Int

    @classmethod
    def of(cls, node: Int) -> Members:
        """Return the members whose nodes have these labels."""
        _, first, which = np.unique(node, return_index=True, return_inverse=True)
        return cls(np.argsort(np.argsort(first)).astype(np.int64)[which.ravel()])

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.node)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.node.max()) + 1

    @cached_property
    def local(self) -> Int:
        """int64[n_ranks]: place of each rank within its node."""
        order = np.argsort(self.node, kind="stable")
        sizes = np.bincount(self.node)
        local = np.empty(self.n_ranks, dtype=np.int64)
        local[order] = np.arange(self.n_ranks) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return local

    @property
    def relay(self) -> Int:
        """int64[n_ranks, n_nodes]: who takes what a rank sends to a node: the rank with its place, or the next one."""
        sizes = np.bincount(self.node)
        table = np.full((self.n_nodes, int(sizes.max())), -1, dtype=np.int64)
        table[self.node, self.local] = np.arange(self.n_ranks)
        return np.asarray(table[np.arange(self.n_nodes)[None, :], self.local[:, None] % sizes[None, :]])


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Tokens by source, expected or sampled.

    Attributes
    ----------
    members : Members
    tokens : float64[n_ranks]
        Of each rank.
    pairs : float64[n_ranks, n_ranks]
        (token, expert) pairs from rank to rank: one message each in low-latency mode.
    to_rank : float64[n_ranks, n_ranks]
        Tokens with at least one expert there: one copy each.
    to_node : float64[n_ranks, n_nodes]
        Tokens with at least one expert on the node: one copy each over the network.
    """

    members: Members
    tokens: Float
    pairs: Float
    to_rank: Float
    to_node: Float

    def relayed(self) -> tuple[Int, Int, Float]:
        """Return who hands how many tokens on to whom within a node: int64[n], int64[n], float64[n], zeros left out.

        Whoever is the relay of several ranks hands on the tokens of all of them, its own included.
        """
        members, parts = self.members, []
        relay = members.relay
        for node in range(members.n_nodes):
            inside = np.flatnonzero(members.node == node)
            handed = np.zeros((len(inside), len(inside)))
            np.add.at(handed, members.local[relay[:, node]], self.to_rank[:, inside])
            src, dst = np.nonzero(handed)
            parts.append((inside[src], inside[dst], handed[src, dst]))
        src, dst, tokens = (np.concatenate(column) for column in zip(*parts, strict=True))
        return src, dst, tokens


def expected(model: Model, placement: Placement, members: Members, tokens: Int) -> Counts | None:
    """Return the expected counts where all experts are equally popular and spread evenly; None elsewhere.

    Of c copies of each expert a token meets one set: those on ``n/c`` ranks. `distinct_groups` has the formula for any
    equal parts of the experts. With a limit of M of N groups, parts inside groups are those of ``E*M/N`` experts, and a
    part of several groups is missed with the chance that none of its j open groups has any of the k experts, summed
    over j. Neither is known where parts cut groups.
    """
    n, nodes = members.n_ranks, members.n_nodes
    copies, sizes = len(placement.expert) // model.experts, np.bincount(members.node)
    if not placement.is_even or placement.name == "balanced" or (sizes != sizes[0]).any() or n % copies:
        return None
    if nodes % copies or model.experts % (n // copies):
        return None
    if model.limited and (placement.name != "contiguous" or not _nested(model.groups, n // copies, nodes // copies)):
        return None
    share = model.top_k / n
    per_node, per_rank = (_reached(model, parts // copies) / parts for parts in (nodes, n))
    each = tokens.astype(np.float64)
    return Counts(
        members,
        each,
        np.repeat((each * share)[:, None], n, axis=1),
        np.repeat((each * per_rank)[:, None], n, axis=1),
        np.repeat((each * per_node)[:, None], nodes, axis=1),
    )


def _nested(groups: int, n_ranks: int, n_nodes: int) -> bool:
    """Return True if groups fit into ranks and into nodes in whole numbers, or these into groups."""
    return all(a % b == 0 or b % a == 0 for a, b in ((groups, n_ranks), (groups, n_nodes)))


def _reached(model: Model, parts: int) -> float:
    """Return the expected number of equal contiguous *parts* of the experts in which a token has experts."""
    if not model.limited:
        return distinct_groups(model.experts, model.top_k, parts)
    groups, limit, k = model.groups, model.group_limit, model.top_k
    open_experts = model.experts // groups * limit
    if parts >= groups:  # parts lie inside groups: the open ones are as if there were no other
        return distinct_groups(open_experts, k, parts // groups * limit)
    from math import comb

    merged = groups // parts  # a part holds so many groups: j of them are open
    size = model.experts // groups
    missed = sum(
        comb(merged, j) * comb(groups - merged, limit - j) / comb(groups, limit)
        * comb(open_experts - j * size, k) / comb(open_experts, k)
        for j in range(min(merged, limit) + 1)
    )  # fmt: skip
    return parts * (1 - missed)


def counted(
    model: Model, popularity: Popularity, placement: Placement, members: Members, *, tokens: Int,
    rng: np.random.Generator,
) -> Counts:  # fmt: skip
    """Return the counts of one sample of tokens; *tokens*, int64[n_ranks], has how many each rank has."""
    n, nodes = members.n_ranks, members.n_nodes
    pairs, to_rank, to_node = np.zeros(n * n), np.zeros(n * n), np.zeros(n * nodes)
    source = np.repeat(np.arange(n), tokens)
    for first in range(0, len(source), TOKENS_AT_ONCE):
        src = source[first : first + TOKENS_AT_ONCE]
        ranks = placement.ranks_of(sampled(model, popularity, len(src), rng), first)
        ranks.sort(axis=1)
        pairs += np.bincount((src[:, None] * n + ranks).ravel(), minlength=n * n)
        to_rank += _firsts(src, ranks, n, n)
        reached = members.node[ranks]
        reached.sort(axis=1)
        to_node += _firsts(src, reached, n, nodes)
    return Counts(
        members,
        tokens.astype(np.float64),
        pairs.reshape(n, n),
        to_rank.reshape(n, n),
        to_node.reshape(n, nodes),
    )


def pooled(
    model: Model, popularity: Popularity, placement: Placement, members: Members, *, tokens: Int,
    rng: np.random.Generator,
) -> Counts:  # fmt: skip
    """Return about the expected counts: the tokens of all ranks follow one law, so one sample tells it for each.

    Choices that come in turn are known, and so are their counts.
    """
    n, nodes = members.n_ranks, members.n_nodes
    known = popularity.choices if popularity.balanced else None
    chosen = sampled(model, popularity, POOL, rng) if known is None else known
    ranks = np.sort(placement.ranks_of(chosen), axis=1)
    reached, one = np.sort(members.node[ranks], axis=1), np.zeros(len(chosen), dtype=np.int64)
    each = tokens.astype(np.float64)
    shares = (np.bincount(ranks.ravel(), minlength=n), _firsts(one, ranks, 1, n), _firsts(one, reached, 1, nodes))
    return Counts(members, each, *(each[:, None] * share[None, :] / len(chosen) for share in shares))


def _firsts(src: Int, places: Int, n_ranks: int, n_places: int) -> Float:
    """Return float64[n_ranks * n_places]: tokens of each source by their different *places*, a row of each in order."""
    fresh = np.ones(places.shape, dtype=np.bool_)
    fresh[:, 1:] = places[:, 1:] != places[:, :-1]
    key = (src[:, None] * n_places + places)[fresh]
    return np.bincount(key, minlength=n_ranks * n_places).astype(np.float64)
