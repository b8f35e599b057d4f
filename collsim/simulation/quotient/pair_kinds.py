"""All messages of an all-to-all at once, by their kinds: a run on the small part of a machine that stands for it.

A route of the part carries what all messages of its kind carry: if T messages of a kind take w each of links of which
there are L, every one of those takes T w / L of them, since links that are alike carry equally much of every kind.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collsim.collectives import ScheduleRequest
from collsim.fabric.fabric import Int
from collsim.fabric.routing import Routes
from collsim.schedule import Schedule, Transfers
from collsim.schedule.forms import Chunks
from collsim.simulation.quotient.representatives import Miniature, Pairs
from collsim.simulation.runs import LoweredRun

__all__ = ["exchange", "run_of_pairs"]


def run_of_pairs(mini: Miniature, run: LoweredRun) -> tuple[LoweredRun, Pairs]:
    """Return *run*, on the miniature, with routes that carry what all pairs of their kind carry, and the pairs."""
    pairs = mini.pairs()
    number = pairs.src * run.fabric.n_ranks + pairs.dst
    order = np.argsort(number)
    pairs = Pairs(*(column[order] for column in pairs))
    routes = _shared(run.routes, number[order], pairs, mini)
    capacity_Bps = run.fabric.capacity_Bps
    return replace(run, routes=routes, trunks=routes, trunk_capacity_Bps=capacity_Bps, single=run.routes), pairs


def _shared(routes: Routes, number: Int, pairs: Pairs, mini: Miniature) -> Routes:
    """Return the routes of all numbers with those of the pairs weighted for one of the copies of each."""
    taken = routes.take(routes.find(number), np.ones(len(number)))
    row = np.repeat(np.arange(len(number)), np.diff(taken.ptr))
    link = mini.link_class[taken.link]
    each = pairs.members / pairs.per_source  # copies with one source share its own links as they are
    n_links = len(mini.link_class)
    keys, place = np.unique(row * n_links + link, return_inverse=True)
    weight = np.bincount(place, taken.weight * each[row] / mini.link_members[taken.link]).astype(np.float64)
    row, link = np.divmod(keys, n_links)
    counts = np.zeros(len(routes.ptr) - 1, dtype=np.int64)
    np.add.at(counts, routes.find(number)[row], 1)
    return replace(routes, ptr=np.concatenate([[0], np.cumsum(counts)]), link=link, weight=weight)


def exchange(algo: str, request: ScheduleRequest, pairs: Pairs) -> Schedule:
    """Return one message of each kind, with all of the kind that its source sends as copies of it, made by *algo*."""
    channels = request.n_channels
    lanes = min(request.peer_channels or channels, channels)
    transfers = Transfers.side_by_side(pairs.src, pairs.dst, reads_input=True, lanes=lanes, copies=pairs.per_source)
    chunks = Chunks(np.array([request.block_bytes]), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    return request.schedule(algo, chunks, transfers, channels=channels)
