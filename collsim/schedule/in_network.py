"""Transfers that a switch carries out: one sender for all receivers, or one receiver for the sum of all senders.

A transfer whose destination is `EVERY` is a multicast: the switch copies it to every rank, the sender included. One
whose source is `EVERY` is a load-reduce: the switch reads the chunk from every rank, the receiver included, and hands
over the sum. Point to point, they are what `point_to_point` writes out; that form carries the same meaning and many
times the bytes, so it serves the verifier, never the engine.
"""

from __future__ import annotations

import numpy as np

from collsim.schedule.forms import EVERY, ROW_COLUMNS, Int, Transfers

__all__ = ["expanded_entries", "is_in_network", "point_to_point", "ranks_of"]


def is_in_network(transfers: Transfers) -> bool:
    """Return whether any transfer needs a switch that adds or multicasts."""
    return bool(np.any((transfers.src == EVERY) | (transfers.dst == EVERY)))


def ranks_of(transfers: Transfers, n_ranks: int) -> tuple[Int, Int]:
    """Return (pointers, ranks): the ranks that take part in each transfer, each once."""
    every = (transfers.src == EVERY) | (transfers.dst == EVERY)
    counts = np.where(every, n_ranks, np.where(transfers.src == transfers.dst, 1, 2))
    ptr = np.concatenate(([0], np.cumsum(counts)))
    owner = np.repeat(np.arange(len(transfers)), counts)
    place = np.arange(int(ptr[-1])) - ptr[owner]
    ends = np.where(place == 0, transfers.src[owner], transfers.dst[owner])
    return ptr, np.where(every[owner], place, ends)


def point_to_point(transfers: Transfers, n_ranks: int) -> Transfers:
    """Return the transfers with every multicast and load-reduce written as one transfer per other rank.

    What waited for one of them waits for all of its parts.
    """
    if not is_in_network(transfers):
        return transfers
    multicast, reduces = transfers.dst == EVERY, transfers.src == EVERY
    counts = np.where(multicast | reduces, n_ranks - 1, 1)
    first = np.concatenate(([0], np.cumsum(counts)))
    owner = np.repeat(np.arange(len(transfers)), counts)
    place = np.arange(int(first[-1])) - first[owner]
    fixed = np.where(multicast, transfers.src, transfers.dst)[owner]
    other = place + (place >= fixed)
    chunk_ptr, chunk = _repeated(transfers.chunk_ptr, transfers.chunk, owner)
    wide_ptr, waits = _repeated(transfers.dep_ptr, transfers.dep, owner)
    waiter = np.repeat(np.arange(len(owner)), np.diff(wide_ptr))
    parts = counts[waits]
    dep_ptr = np.concatenate(
        ([0], np.cumsum(np.bincount(waiter, weights=parts, minlength=len(owner)).astype(np.int64)))
    )
    entry = np.repeat(np.arange(len(waits)), parts)
    start = np.concatenate(([0], np.cumsum(parts)))
    return Transfers(
        src=np.where(reduces[owner], other, transfers.src[owner]),
        dst=np.where(multicast[owner], other, transfers.dst[owner]),
        chunk_ptr=chunk_ptr,
        chunk=chunk,
        dep_ptr=dep_ptr,
        dep=first[waits[entry]] + np.arange(len(entry)) - start[entry],
        **{name: getattr(transfers, name)[owner] for name in ROW_COLUMNS},
    )


def expanded_entries(transfers: Transfers, n_ranks: int) -> float:
    """Return how many transfers, carried chunks and dependencies `point_to_point` would write out."""
    wide = (transfers.src == EVERY) | (transfers.dst == EVERY)
    counts = np.where(wide, float(n_ranks - 1), 1.0)
    waiter = np.repeat(np.arange(len(transfers)), np.diff(transfers.dep_ptr))
    rows, carried = counts.sum(), (counts * np.diff(transfers.chunk_ptr)).sum()
    return float(rows + carried + (counts[waiter] * counts[transfers.dep]).sum())


def _repeated(ptr: Int, values: Int, rows: Int) -> tuple[Int, Int]:
    """Return the CSR table made of the given *rows* of another one."""
    counts = np.diff(ptr)[rows]
    new = np.concatenate(([0], np.cumsum(counts)))
    entry = np.repeat(ptr[rows] - new[:-1], counts) + np.arange(int(new[-1]))
    return new, values[entry]
