"""Placement of experts: the ranks that hold a copy of each, and how popular ones get several."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from collsim.core.errors import Fault, InputError, UnknownNameError
from collsim.moe.gating import Float, Int

__all__ = ["PLACEMENTS", "Placement", "placed"]

PLACEMENTS = ("contiguous", "round_robin", "balanced")


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The copies of experts: *expert* and *rank*, int64[n_slots], in order of the experts; *n_copies* of each."""

    name: str
    expert: Int
    rank: Int
    n_ranks: int

    @property
    def n_copies(self) -> Int:
        """int64[experts]: how many copies there are of each."""
        return np.bincount(self.expert)

    @property
    def first(self) -> Int:
        """int64[experts + 1]: where the copies of each begin."""
        return np.concatenate([[0], np.cumsum(self.n_copies)]).astype(np.int64)

    @property
    def is_even(self) -> bool:
        """True if ranks hold equally many experts, and there are equally many copies of each."""
        held, copies = np.bincount(self.rank, minlength=self.n_ranks), self.n_copies
        return bool((held == held[0]).all() and (copies == copies[0]).all())

    def ranks_of(self, experts: Int, tokens_before: int = 0) -> Int:
        """Return the rank of the copy that each token goes to: copies of one expert take tokens in turn.

        Parameters
        ----------
        experts : int64[tokens, top_k]
        tokens_before : int
            Where the turn starts, so that ranks do not all begin with the first copy.
        """
        turn = tokens_before + np.arange(len(experts), dtype=np.int64)[:, None]
        first, copies = self.first[:-1], self.n_copies
        return self.rank[first[experts] + turn % copies[experts]]


def placed(weight: Float, n_ranks: int, placement: str = "contiguous", *, redundant: int = 0) -> Placement:
    """Put experts on ranks.

    Parameters
    ----------
    weight : float64[experts]
        How popular each is; only ``balanced`` looks at it.
    n_ranks : int
    placement : {"contiguous", "round_robin", "balanced"}
        Neighbouring experts together, dealt out in turn, or by weight: the most popular get the *redundant* copies
        (whoever has the largest weight per copy gets the next), then each copy goes to the rank with the least weight
        that has room, as DeepSeek's load balancer EPLB does in its global policy.
    redundant : int
        Copies beyond one for each expert; contiguous and round-robin placement put those of the first experts last.

    Raises
    ------
    InputError
        Too few copies for all ranks, or blocks of neighbours that are not equally large; every fault at once.
    """
    experts = len(weight)
    slots = experts + redundant
    faults: list[Fault] = []
    if placement not in PLACEMENTS:
        faults += UnknownNameError("placement", placement, PLACEMENTS, "expert_placement").faults
    if redundant < 0:
        faults.append(Fault(f"{redundant} is negative", "redundant", "give 0 or more"))
    elif slots < n_ranks or (slots % n_ranks and placement == "contiguous"):
        counts = f"{experts} experts" + f" and {redundant} more copies" * bool(redundant)
        divisor = max(d for d in range(1, min(n_ranks, slots) + 1) if slots % d == 0)
        ways = [f"add --redundant {redundant + -slots % n_ranks}"]
        if divisor > 1:  # one rank exchanges nothing
            ways.append(f"give a divisor of {slots}, such as {divisor}")
        if slots > n_ranks:
            ways.append("place them with --expert-placement round_robin")
        what = f"{counts} do not spread evenly over {n_ranks} ranks"
        faults.append(Fault(what, "ep", ", ".join([*ways[:-2], " or ".join(ways[-2:])])))
    if faults:
        raise InputError(*faults)
    expert = np.arange(slots, dtype=np.int64) % experts
    if placement == "balanced":
        return _balanced(weight, n_ranks, slots)
    place = np.arange(slots, dtype=np.int64)
    rank = place % n_ranks if placement == "round_robin" else place // (slots // n_ranks)
    order = np.argsort(expert, kind="stable")
    return Placement(placement, expert[order], rank[order], n_ranks)


def _balanced(weight: Float, n_ranks: int, slots: int) -> Placement:
    """Return the placement that levels the weight of ranks greedily."""
    copies = np.ones(len(weight), dtype=np.int64)
    heap = [(-float(each), number) for number, each in enumerate(weight)]
    heapq.heapify(heap)
    for _ in range(slots - len(weight)):
        _, number = heap[0]
        copies[number] += 1
        heapq.heapreplace(heap, (-float(weight[number] / copies[number]), number))
    expert = np.repeat(np.arange(len(weight)), copies)
    share = (weight / copies)[expert]
    room = -(-slots // n_ranks)
    bits = max(n_ranks - 1, 1).bit_length()  # of equal ranks, those far apart first: on different nodes
    ranks = sorted((0.0, 0, int(f"{rank:0{bits}b}"[::-1], 2), rank) for rank in range(n_ranks))
    rank_of = np.empty(slots, dtype=np.int64)
    for slot in np.argsort(-share, kind="stable").tolist():
        load, held, turn, rank = heapq.heappop(ranks)
        rank_of[slot] = rank
        if held + 1 < room:
            heapq.heappush(ranks, (load + float(share[slot]), held + 1, turn, rank))
    return Placement("balanced", expert, rank_of, n_ranks)
