"""The central type: what every rank sends to whom, in which order.

A `Schedule` is a list of phases. Inside a phase, transfers wait only for the transfers they name. Between phases each
rank has a ready time: a transfer of the next phase starts when everything that its sender and its receiver took part
in before is complete. A schedule knows ranks, not links, and bytes, not seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from collsim.core.methods import telling_arguments
from collsim.schedule.forms import ROW_COLUMNS, Chunks, Int, Phase, Transfers
from collsim.schedule.in_network import Groups, ranks_of

__all__ = ["Schedule"]


@telling_arguments
@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Who sends what to whom, and in which order.

    Attributes
    ----------
    op : str
        Operation, for example ``all_reduce``.
    algo : str
        Name of the algorithm that made it.
    n_ranks : int
    size_bytes : int
        The size column of nccl-tests: the whole buffer of a rank.
    chunks : Chunks
    phases : tuple of Phase
    parameters : Mapping
        What the generator was told or chose: channels, chunk_bytes, slots, root, ...
    groups : tuple of tuple of int
        Ranks that switches serve together, for transfers that they carry out (see in_network).
    """

    op: str
    algo: str
    n_ranks: int
    size_bytes: int
    chunks: Chunks
    phases: tuple[Phase, ...]
    parameters: Mapping[str, int | str] = field(default_factory=dict)
    groups: Groups = ()

    @property
    def n_transfers(self) -> int:
        """Number of transfers when materialised, joins apart."""
        return sum(len(phase) for phase in self.phases)

    def materialise(self) -> Transfers:
        """Return all phases as one list of transfers, with a join per rank between phases."""
        merged = self.phases[0].materialise()
        for phase in self.phases[1:]:
            merged = _chain(merged, phase.materialise(), self.n_ranks, self.groups)
        return merged

    def merged(self) -> Schedule:
        """Return the schedule with equal channels merged; it takes exactly as long (they run in lockstep)."""
        return replace(self, phases=tuple(phase.merged(self.chunks) for phase in self.phases))


def _chain(first: Transfers, second: Transfers, n_ranks: int, groups: Groups) -> Transfers:
    """Append *second* to *first*: its transfers wait until all their ranks have finished everything in *first*."""
    joins = _joins(first, n_ranks, groups)
    offset, shift = len(first), len(first) + n_ranks
    wait_ptr, ranks = ranks_of(second, n_ranks, groups)
    waiter = np.concatenate([_owners(wait_ptr), _owners(second.dep_ptr)])
    dep = np.concatenate([ranks + offset, second.dep + shift])[np.argsort(waiter, kind="stable")]
    dep_ptr = np.concatenate(([0], np.cumsum(np.diff(wait_ptr) + np.diff(second.dep_ptr))))
    columns = {
        name: np.concatenate([getattr(part, name) for part in (first, joins, second)])
        for name in ("src", "dst", "chunk", *ROW_COLUMNS)
    }
    return Transfers(
        **columns,
        chunk_ptr=_stacked(first.chunk_ptr, joins.chunk_ptr, second.chunk_ptr),
        dep_ptr=_stacked(first.dep_ptr, joins.dep_ptr, dep_ptr),
        dep=np.concatenate([first.dep, joins.dep, dep]),
    )


def _joins(transfers: Transfers, n_ranks: int, groups: Groups) -> Transfers:
    """Return one join per rank that waits for every transfer in which the rank took part."""
    ptr, touched = ranks_of(transfers, n_ranks, groups)
    ranks = np.arange(n_ranks)
    zeros, no = np.zeros(n_ranks, dtype=np.int64), np.zeros(n_ranks, dtype=np.bool_)
    return Transfers(
        src=ranks,
        dst=ranks,
        channel=zeros,
        step=zeros,
        reduces=no,
        reads_input=no,
        lanes=zeros + 1,
        copies=zeros + 1,
        chunk_ptr=np.zeros(n_ranks + 1, dtype=np.int64),
        chunk=np.zeros(0, dtype=np.int64),
        dep_ptr=np.concatenate(([0], np.cumsum(np.bincount(touched, minlength=n_ranks)))),
        dep=_owners(ptr)[np.argsort(touched, kind="stable")],
    )


def _owners(ptr: Int) -> Int:
    """Return the row of every entry of a CSR table."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def _stacked(*pointers: Int) -> Int:
    """Return the pointers of CSR tables put one below the other."""
    counts = np.concatenate([np.diff(ptr) for ptr in pointers])
    return np.concatenate(([0], np.cumsum(counts)))
