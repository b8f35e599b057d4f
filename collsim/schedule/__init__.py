"""The central type: what every rank sends to whom, in which order.

A `Schedule` is a list of phases. Inside a phase, transfers wait only for the transfers they name. Between phases each
rank has a ready time: a transfer of the next phase starts when everything that its sender and its receiver took part
in before is complete. A schedule knows ranks, not links, and bytes, not seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from collsim.schedule.difference import diff
from collsim.schedule.files import load, save
from collsim.schedule.forms import (
    EVERY,
    ROW_COLUMNS,
    Chunks,
    ChunksBuilder,
    Int,
    Orbits,
    OrbitsBuilder,
    Phase,
    Transfers,
    TransfersBuilder,
    split_bytes,
)
from collsim.schedule.verifier import find_faults, verify

__all__ = [
    "EVERY",
    "Chunks",
    "ChunksBuilder",
    "Int",
    "Orbits",
    "OrbitsBuilder",
    "Phase",
    "Schedule",
    "Transfers",
    "TransfersBuilder",
    "diff",
    "find_faults",
    "load",
    "save",
    "split_bytes",
    "verify",
]


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
    """

    op: str
    algo: str
    n_ranks: int
    size_bytes: int
    chunks: Chunks
    phases: tuple[Phase, ...]
    parameters: Mapping[str, int | str] = field(default_factory=dict)

    def materialise(self) -> Transfers:
        """Return all phases as one list of transfers, with a join per rank between phases."""
        merged = self.phases[0].materialise()
        for phase in self.phases[1:]:
            merged = _chain(merged, phase.materialise(), self.n_ranks)
        return merged

    def merged(self) -> Schedule:
        """Return the schedule with equal channels merged; it takes exactly as long (they run in lockstep)."""
        return replace(self, phases=tuple(phase.merged(self.chunks) for phase in self.phases))


def _chain(first: Transfers, second: Transfers, n_ranks: int) -> Transfers:
    """Append *second* to *first*: its transfers wait until both their ranks have finished everything in *first*."""
    joins = _joins(first, n_ranks)
    offset, shift = len(first), len(first) + n_ranks
    wait = np.stack([second.src + offset, second.dst + offset], axis=1)
    counts = np.diff(second.dep_ptr) + 2
    dep_ptr = np.concatenate(([0], np.cumsum(counts)))
    dep = np.empty(int(dep_ptr[-1]), dtype=np.int64)
    is_wait = np.zeros(len(dep), dtype=np.bool_)
    is_wait[dep_ptr[:-1]] = is_wait[dep_ptr[:-1] + 1] = True
    dep[is_wait] = wait.ravel()
    dep[~is_wait] = second.dep + shift
    parts = (first, joins)
    columns = {
        name: np.concatenate([getattr(part, name) for part in (*parts, second)])
        for name in ("src", "dst", "chunk", *ROW_COLUMNS)
    }
    chunk_ptr = np.concatenate([first.chunk_ptr, joins.chunk_ptr[1:] + first.chunk_ptr[-1]])
    chunk_ptr = np.concatenate([chunk_ptr, second.chunk_ptr[1:] + chunk_ptr[-1]])
    all_ptr = np.concatenate([first.dep_ptr, joins.dep_ptr[1:] + first.dep_ptr[-1]])
    all_ptr = np.concatenate([all_ptr, dep_ptr[1:] + all_ptr[-1]])
    all_dep = np.concatenate([first.dep, joins.dep, dep])
    return Transfers(**columns, chunk_ptr=chunk_ptr, dep_ptr=all_ptr, dep=all_dep)


def _joins(transfers: Transfers, n_ranks: int) -> Transfers:
    """Return one join per rank that waits for every transfer in which the rank took part."""
    ids = np.arange(len(transfers))
    touched = np.concatenate([transfers.src, transfers.dst[transfers.dst != transfers.src]])
    whose = np.concatenate([ids, ids[transfers.dst != transfers.src]])
    by_rank = np.argsort(touched, kind="stable")
    dep_ptr = np.concatenate(([0], np.cumsum(np.bincount(touched, minlength=n_ranks))))
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
        dep_ptr=dep_ptr,
        dep=whose[by_rank],
    )
