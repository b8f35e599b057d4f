"""Chunks that flow one after another along the edges of a chain or a tree, on many channels at once.

A *stage* is a thread group of a rank that handles chunks in program order: it receives a chunk from every hop that
ends in it, then sends it along every hop that starts from it. Three kinds of dependency follow:

* data: a chunk leaves a stage after it has arrived there on every incoming hop;
* program order: a stage sends a chunk after it has sent the chunk before, along all its hops;
* credit: a hop carries a chunk once its receiver has passed on the chunk *slots* earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from collsim.core.arrays import distinct, entries_of, pointers
from collsim.schedule import Int, Transfers
from collsim.schedule.forms import sealed

__all__ = ["Hop", "pipelined"]


class Hop(NamedTuple):
    """One edge of a pipeline: *src* passes every chunk to *dst*, from stage *sender* to stage *receiver*."""

    src: int
    dst: int
    sender: int
    receiver: int
    reduces: bool = False


def pipelined(hops: Sequence[tuple[Hop, ...]], n_chunks: Sequence[int], slots: int) -> Transfers:
    """Return the transfers of all channels: channel c sends *n_chunks[c]* chunks along *hops[c]*.

    Chunk ids count up over the channels, in order. The hops of a channel must be listed such that each comes after
    those from which its data arrive. The step of a transfer is its turn in a pipeline that never waits: the number of
    its chunk, plus the hops that the chunk has behind it. Transfers of one step run at the same time.
    """
    made: dict[tuple[tuple[Hop, ...], int], Transfers] = {}
    channels = []
    for shape, count in zip(hops, n_chunks, strict=True):
        if (shape, count) not in made:
            made[shape, count] = _one_channel(shape, count, max(slots, 1))
        channels.append(made[shape, count])
    return _side_by_side(channels, n_chunks)


def _one_channel(hops: tuple[Hop, ...], n_chunks: int, slots: int) -> Transfers:
    """Return the transfers of one channel; the one of chunk k along hop i has id ``k * len(hops) + i``."""
    n_hops, rows = len(hops), n_chunks * len(hops)
    table = np.fromiter(chain.from_iterable(hops), dtype=np.int64, count=5 * n_hops).reshape(-1, 5).T
    waiter, waits_for, lag = _waits(table[2], table[3], slots)
    chunk, entry = np.nonzero(np.arange(n_chunks)[:, None] >= lag)
    counts = np.bincount(chunk * n_hops + waiter[entry], minlength=rows)
    number = np.repeat(np.arange(n_chunks), n_hops)
    dep = (chunk - lag[entry]) * n_hops + waits_for[entry]
    del chunk, entry
    return Transfers(
        src=sealed(np.tile(table[0], n_chunks)),
        dst=sealed(np.tile(table[1], n_chunks)),
        channel=sealed(np.zeros(rows, dtype=np.int64)),
        step=sealed(number + np.tile(_depths(hops), n_chunks)),
        reduces=sealed(np.tile(table[4] > 0, n_chunks)),
        reads_input=sealed(np.zeros(rows, dtype=np.bool_)),
        lanes=sealed(np.ones(rows, dtype=np.int64)),
        copies=sealed(np.ones(rows, dtype=np.int64)),
        chunk_ptr=sealed(np.arange(rows + 1)),
        chunk=sealed(number),
        dep_ptr=sealed(pointers(counts)),
        dep=sealed(dep),
    )


def _waits(sender: Int, receiver: Int, slots: int) -> tuple[Int, Int, Int]:
    """Return hops, hops that each waits for, and how many chunks earlier, sorted by the first.

    *sender* and *receiver* are the stages of each hop.
    """
    stages, place = distinct(np.concatenate([sender, receiver]))
    sender, receiver = np.split(place, 2)
    tables = [
        (pointers(np.bincount(stage, minlength=len(stages))), np.argsort(stage, kind="stable"))
        for stage in (receiver, sender)
    ]
    found = []
    for (ptr, hops), stage, lag in ((tables[0], sender, 0), (tables[1], sender, 1), (tables[1], receiver, slots)):
        taken, entry = entries_of(ptr, stage)
        found.append((np.repeat(np.arange(len(stage)), np.diff(taken)), hops[entry], np.full(len(entry), lag)))
    waiter, waits_for, lags = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(waiter, kind="stable")
    return waiter[order], waits_for[order], lags[order]


def _depths(hops: tuple[Hop, ...]) -> Int:
    """Return int64[n_hops], how many hops a chunk has behind it before each."""
    arrived: dict[int, int] = defaultdict(int)
    depths = []
    for hop in hops:
        depths.append(arrived[hop.sender])
        arrived[hop.receiver] = max(arrived[hop.receiver], arrived[hop.sender] + 1)
    return np.array(depths, dtype=np.int64)


def _side_by_side(channels: Sequence[Transfers], n_chunks: Sequence[int]) -> Transfers:
    """Put channels next to each other, renumbering rows and chunks."""
    lengths = np.array([len(part) for part in channels])
    first_row = np.cumsum(lengths) - lengths
    first_chunk = np.cumsum(n_chunks) - np.asarray(n_chunks)
    together = {
        name: sealed(np.concatenate([getattr(part, name) for part in channels]))
        for name in ("src", "dst", "step", "reduces", "reads_input", "lanes", "copies")
    }
    return Transfers(
        **together,
        channel=sealed(np.repeat(np.arange(len(channels)), lengths)),
        chunk_ptr=sealed(np.arange(lengths.sum() + 1)),
        chunk=sealed(_shifted([part.chunk for part in channels], first_chunk)),
        dep_ptr=sealed(pointers(np.concatenate([np.diff(part.dep_ptr) for part in channels]))),
        dep=sealed(_shifted([part.dep for part in channels], first_row)),
    )


def _shifted(parts: Sequence[Int], offsets: Int) -> Int:
    """Concatenate *parts*, adding to each its offset."""
    values = np.concatenate(parts)
    values += np.repeat(offsets, [len(part) for part in parts])
    return values
