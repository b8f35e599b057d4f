"""Memories of GPUs as links: what is sent is read, what arrives is written, what it is added to is read as well."""

from __future__ import annotations

import numpy as np

from collsim.core.arrays import distinct
from collsim.engine import Problem
from collsim.fabric.fabric import Float, Int
from collsim.schedule.in_network import members_of
from collsim.simulation.lowering import Lowered

__all__ = ["with_memories"]


def with_memories(problem: Problem, lowered: Lowered, memory_Bps: Float) -> Problem:
    """Return *problem* with a link more for the memory of each rank, which carries *memory_Bps*, float64[n_ranks].

    A ring passes on what it has just added without writing it: its steps read what arrived in the buffer, and what it
    is added to, as the sums here say. That every other byte is moved once is the least that memory has to do.
    """
    transfers = lowered.transfers
    key, route = distinct(lowered.route * 2 + transfers.reduces)
    old, adds = np.divmod(key, 2)
    first = np.unique(route, return_index=True)[1]
    ends = transfers.src[first], transfers.dst[first]
    crossed = [_crossed(ends[0], ends, lowered, 1.0), _crossed(ends[1], ends, lowered, 1.0 + adds)]
    counts = np.diff(problem.route_ptr)[old]
    owner = np.repeat(np.arange(len(old)), counts)
    entry = np.arange(len(owner)) + np.repeat(problem.route_ptr[old] - np.cumsum(counts) + counts, counts)
    owner = np.concatenate([owner, *(rows for rows, _, _ in crossed)])
    order = np.argsort(owner, kind="stable")
    copies = lowered.copies[old]
    link = [problem.route_link[entry], *(len(problem.capacity_Bps) + ranks for _, ranks, _ in crossed)]
    weight = [problem.route_weight[entry], *(moved * copies[rows] for rows, _, moved in crossed)]
    return problem._replace(
        capacity_Bps=np.concatenate([problem.capacity_Bps, memory_Bps]),
        route_ptr=np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(old))))),
        route_link=np.concatenate(link)[order],
        route_weight=np.concatenate(weight)[order],
        route=route,
    )


def _crossed(end: Int, ends: tuple[Int, Int], lowered: Lowered, moved: Float | float) -> tuple[Int, Int, Float]:
    """Return the routes that cross the memories of one *end*, the ranks there, and what each byte moves in them."""
    run, groups = lowered.run, lowered.schedule.groups
    rows = np.flatnonzero(ends[0] != ends[1])
    members = [members_of(label, run.fabric.n_ranks, groups) for label in end[rows].tolist()]
    owner = np.repeat(rows, [len(each) for each in members])
    each_moved = np.broadcast_to(moved, len(end))[owner]
    return owner, np.array([rank for each in members for rank in each], dtype=np.int64), np.asarray(each_moved)
