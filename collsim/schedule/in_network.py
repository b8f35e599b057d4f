"""Transfers that switches carry out: one sender for all receivers, one receiver for the sum of all senders, or both.

They span a *group* of ranks: all of them (`EVERY`), or one of `Schedule.groups`, which `group_label` names: the GPUs
of a node that share NVLink switches, or the GPUs of a rail whose adapters share a reduction tree of the network.

* A transfer whose destination is a group is a multicast: switches copy it to every member, the sender included.
* One whose source is a group is a load-reduce: the chunk is read from every member, the receiver included, and the
  receiver gets the sum.
* One whose source and destination are the same group is an all-reduce in the network (SHARP): every member sends its
  copy up the tree once and gets the sum down once.

Point to point, they are what `point_to_point` writes out; that form carries the same meaning and many times the bytes,
so it serves the verifier, never the engine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.arrays import distinct, pointers
from collsim.schedule.forms import EVERY, ROW_COLUMNS, Int, Transfers

__all__ = [
    "Groups",
    "expanded_entries",
    "group_label",
    "is_in_network",
    "members_of",
    "point_to_point",
    "ranks_of",
]

Bool = NDArray[np.bool_]
Groups = tuple[tuple[int, ...], ...]
"""The ranks of each group of a schedule."""


def group_label(group: int) -> int:
    """Return the label of a group as source or destination of a transfer; -1 is `EVERY`.

    >>> group_label(0), group_label(3)
    (-2, -5)
    """
    return EVERY - 1 - group


def members_of(label: int, n_ranks: int, groups: Groups) -> tuple[int, ...]:
    """Return the ranks that a source or destination names."""
    if label >= 0:
        return (label,)
    return tuple(range(n_ranks)) if label == EVERY else groups[EVERY - 1 - label]


def is_in_network(transfers: Transfers) -> bool:
    """Return True if any transfer needs switches that add or multicast."""
    return bool(np.any((transfers.src < 0) | (transfers.dst < 0)))


def ranks_of(transfers: Transfers, n_ranks: int, groups: Groups = ()) -> tuple[Int, Int]:
    """Return (pointers, ranks): the ranks that take part in each transfer, each once."""
    if not is_in_network(transfers):
        two = transfers.src != transfers.dst
        there = np.stack([np.ones_like(two), two], axis=1).ravel()
        both = np.stack([transfers.src, transfers.dst], axis=1).ravel()
        return pointers(1 + two), both[there]
    ends, which = _kinds(transfers)
    sets = []
    for src, dst in ends.tolist():
        spanned = [label for label in (src, dst) if label < 0]
        sets.append(members_of(spanned[0], n_ranks, groups) if spanned else tuple(dict.fromkeys((src, dst))))
    ptr, ranks = _table(sets)
    return _repeated(ptr, ranks, which)


def point_to_point(transfers: Transfers, n_ranks: int, groups: Groups = ()) -> Transfers:
    """Return the transfers with every one that switches carry out written as transfers between two ranks.

    What waited for one of them waits for all of its parts. An all-reduce in the network becomes a sum at the first
    member and, after it, a copy from there to all others.
    """
    if not is_in_network(transfers):
        return transfers
    parts = _parts(transfers, n_ranks, groups)
    counts, first = parts.counts, pointers(parts.counts)
    owner = np.repeat(np.arange(len(transfers)), counts)
    place = np.arange(int(first[-1])) - first[owner]
    entry = parts.first[owner] + place
    second = place >= counts[owner] - parts.seconds[owner]
    chunk_ptr, chunk = _repeated(transfers.chunk_ptr, transfers.chunk, owner)
    dep_ptr, dep = _deps_between(transfers, parts, first, owner, second)
    columns = {name: getattr(transfers, name)[owner] for name in ROW_COLUMNS}
    columns["reduces"] = columns["reduces"] & ~second
    return Transfers(
        src=parts.src[entry],
        dst=parts.dst[entry],
        chunk_ptr=chunk_ptr,
        chunk=chunk,
        dep_ptr=dep_ptr,
        dep=dep,
        **columns,
    )


def expanded_entries(transfers: Transfers, n_ranks: int, groups: Groups = ()) -> float:
    """Return the number of transfers, carried chunks and dependencies together that `point_to_point` would write."""
    sizes = np.array([n_ranks, *map(len, groups)], dtype=np.float64)  # by -1 - label
    label = np.minimum(transfers.src, transfers.dst)
    ways = 1 + ((transfers.src < 0) & (transfers.dst < 0))
    counts = np.where(label < 0, ways * (sizes[np.where(label < 0, EVERY - label, 0)] - 1), 1.0)
    waiter = np.repeat(np.arange(len(transfers)), np.diff(transfers.dep_ptr))
    rows, carried = counts.sum(), (counts * np.diff(transfers.chunk_ptr)).sum()
    return float(rows + carried + (counts[waiter] * counts[transfers.dep]).sum())


class _Parts(NamedTuple):
    """Transfers from rank to rank in place of each transfer: *counts* parts from *first* on in *src* and *dst*.

    The last *seconds* of them wait for the others: the way down of an all-reduce in the network.
    """

    counts: Int
    first: Int
    seconds: Int
    src: Int
    dst: Int


def _parts(transfers: Transfers, n_ranks: int, groups: Groups) -> _Parts:
    """Return the parts of every transfer."""
    ends, which = _kinds(transfers)
    kinds = [_written_out(src, dst, n_ranks, groups) for src, dst in ends.tolist()]
    ptr, src = _table([tuple(sender for sender, _ in pairs) for pairs in kinds])
    dst = _table([tuple(receiver for _, receiver in pairs) for pairs in kinds])[1]
    both = (ends[:, 0] < 0) & (ends[:, 1] < 0)
    seconds = np.where(both, np.diff(ptr) // 2, 0)
    return _Parts(np.diff(ptr)[which], ptr[:-1][which], seconds[which], src, dst)


def _written_out(src: int, dst: int, n_ranks: int, groups: Groups) -> list[tuple[int, int]]:
    """Return one kind of transfer as (sender, receiver) pairs."""
    if src >= 0 and dst >= 0:
        return [(src, dst)]
    if src >= 0:
        return [(src, member) for member in members_of(dst, n_ranks, groups) if member != src]
    if dst >= 0:
        return [(member, dst) for member in members_of(src, n_ranks, groups) if member != dst]
    head, *others = members_of(src, n_ranks, groups)
    return [(member, head) for member in others] + [(head, member) for member in others]


def _deps_between(transfers: Transfers, parts: _Parts, first: Int, owner: Int, second: Bool) -> tuple[Int, Int]:
    """Return the dependencies of the parts: on all parts of what the transfer waits for, and of its own way up."""
    early, late = np.flatnonzero(~second), np.flatnonzero(second)
    wide_ptr, waits = _repeated(transfers.dep_ptr, transfers.dep, owner[early])
    ups = parts.counts - parts.seconds
    skipped = np.where(parts.seconds > 0, ups, 0)  # the way down implies the way up
    waiter = np.concatenate([np.repeat(early, np.diff(wide_ptr)), late])
    start = np.concatenate([first[waits] + skipped[waits], first[owner[late]]])
    length = np.concatenate([parts.counts[waits] - skipped[waits], ups[owner[late]]])
    by = np.argsort(waiter, kind="stable")
    start, length = start[by], length[by]
    counts = np.bincount(waiter[by], weights=length, minlength=len(owner)).astype(np.int64)
    begin = np.cumsum(length) - length
    dep = np.repeat(start - begin, length) + np.arange(int(length.sum()))
    return np.concatenate(([0], np.cumsum(counts))), dep


def _kinds(transfers: Transfers) -> tuple[Int, Int]:
    """Return int64[n_kinds, 2], the distinct pairs of source and destination, and the kind of each transfer."""
    low = min(int(transfers.src.min(initial=0)), int(transfers.dst.min(initial=0)))
    width = int(transfers.dst.max(initial=0)) - low + 1
    kind, which = distinct((transfers.src - low) * width + transfers.dst - low)
    return np.stack(np.divmod(kind, width), axis=1) + low, which


def _table(lists: list[tuple[int, ...]]) -> tuple[Int, Int]:
    """Return (pointers, values) of ragged lists."""
    ptr = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return ptr, np.array([value for values in lists for value in values], dtype=np.int64)


def _repeated(ptr: Int, values: Int, rows: Int) -> tuple[Int, Int]:
    """Return the CSR table made of the given *rows* of another one."""
    counts = np.diff(ptr)[rows]
    new = np.concatenate(([0], np.cumsum(counts)))
    entry = np.repeat(ptr[rows] - new[:-1], counts) + np.arange(int(new[-1]))
    return new, values[entry]
