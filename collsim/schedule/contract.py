"""Contracts of the operations: where chunks start, where they must end, how many bytes they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from collsim.core.errors import Fault, UnknownNameError
from collsim.core.operations import operation
from collsim.schedule.forms import EVERY, Int
from collsim.schedule.schedule import Schedule

__all__ = ["contract_faults"]


@dataclass(frozen=True, slots=True)
class _Promise:
    """Where the chunks of an operation start and end: at every rank, at the root, or each at one rank of its own."""

    source: str
    target: str


MAX_LISTED = 100
"""Of faults that differ only in the rank or the chunk, so many are listed and the rest are counted."""

PROMISES = {
    "all_reduce": _Promise("every", "every"),
    "all_gather": _Promise("each", "every"),
    "reduce_scatter": _Promise("every", "each"),
    "all_to_all": _Promise("each", "each"),
    "all_to_all_v": _Promise("each", "each"),
    "broadcast": _Promise("root", "every"),
    "reduce": _Promise("every", "root"),
    "gather": _Promise("each", "root"),
    "scatter": _Promise("root", "each"),
    "send_recv": _Promise("each", "each"),
}


def contract_faults(schedule: Schedule) -> list[Fault]:
    """Return where the chunk table of a structurally sound *schedule* breaks the promise of its operation."""
    try:
        op = operation(str(schedule.op))
    except UnknownNameError as error:
        return list(error.faults)
    promise, root = PROMISES[op.name], schedule.parameters.get("root", -1)
    if op.rooted and (not isinstance(root, int) or not 0 <= root < schedule.n_ranks):
        given = schedule.parameters.get("root")
        what = f"{op.name} needs a root" + ("" if given is None else f", not {given!r}")
        return [Fault(what, "parameters.root", f"ranks are 0 to {schedule.n_ranks - 1}")]
    if op.blocked and schedule.size_bytes % schedule.n_ranks:
        what = f"{schedule.size_bytes} bytes do not cut into {schedule.n_ranks} equal blocks"
        return [Fault(what, "size_bytes", f"{op.name} moves one block per rank")]
    faults = [*_place_faults(schedule, promise, "source"), *_place_faults(schedule, promise, "target")]
    check = {"all_to_all_v": _matrix_faults, "send_recv": _neighbour_faults}.get(op.name, _size_faults)
    return faults or list(check(schedule, promise))


def _place_faults(schedule: Schedule, promise: _Promise, end: str) -> Iterator[Fault]:
    """Check the sources or the targets of all chunks."""
    places: Int = getattr(schedule.chunks, end)
    root = schedule.parameters.get("root")
    role = getattr(promise, end)
    wrong = np.flatnonzero({"every": places != EVERY, "each": places == EVERY, "root": places != root}[role])
    if not len(wrong):
        return
    must = {"every": "every rank", "each": "one rank", "root": f"the root, rank {root}"}[role]
    first = int(wrong[0])
    is_now = "every rank" if places[first] == EVERY else f"rank {places[first]}"
    more = f" (and {len(wrong) - 1} more chunks)" if len(wrong) > 1 else ""
    what = f"the {end} of chunk {first} is {is_now}{more}"
    yield Fault(what, f"chunks.rows[{first}].{end}", f"in {schedule.op} the {end} of a chunk is {must}")


def _size_faults(schedule: Schedule, promise: _Promise) -> Iterator[Fault]:
    """Check that blocks and buffers have the right number of bytes."""
    chunks, n, size_bytes = schedule.chunks, schedule.n_ranks, schedule.size_bytes
    ends = (promise.source, promise.target)
    if ends == ("each", "each"):
        yield from _pair_faults(schedule)
    elif "each" in ends:
        held = _rank_bytes(schedule, "source" if promise.source == "each" else "target")
        # The root of a gather or scatter keeps its own block where it is; it needs no chunk.
        optional = int(schedule.parameters["root"]) if "root" in ends else -1
        wrong = held != size_bytes // n
        if optional >= 0 and not held[optional]:
            wrong[optional] = False

        def block_fault(rank: int) -> Fault:
            what = f"the block of rank {rank} holds {held[rank]} bytes, not {size_bytes // n}"
            return Fault(what, "chunks", f"{size_bytes} bytes on {n} ranks")

        yield from _listed(np.flatnonzero(wrong), "ranks", block_fault)
    elif int(chunks.size_bytes.sum()) != size_bytes:
        total_bytes = int(chunks.size_bytes.sum())
        yield Fault(f"all chunks together hold {total_bytes} bytes, not the {size_bytes} of the buffer", "chunks")


def _pair_faults(schedule: Schedule) -> Iterator[Fault]:
    """Check all_to_all: one block per ordered pair; the block of a rank for itself may be left out."""
    chunks, n, block_bytes = schedule.chunks, schedule.n_ranks, schedule.size_bytes // schedule.n_ranks
    if len(chunks) < n * (n - 1) and block_bytes:
        what = f"{len(chunks)} chunks cannot hold a block for each of {n * (n - 1)} ordered pairs"
        yield Fault(what, "chunks", "all_to_all moves one block from every rank to every other")
        return
    pair, which = np.unique(chunks.source * n + chunks.target, return_inverse=True)
    held = np.zeros(len(pair), dtype=np.int64)
    np.add.at(held, which, chunks.size_bytes)
    hint = f"{schedule.size_bytes} bytes on {n} ranks are blocks of {block_bytes}"

    def size_fault(i: int) -> Fault:
        what = f"the block from rank {pair[i] // n} to rank {pair[i] % n} holds {held[i]} bytes, not {block_bytes}"
        return Fault(what, "chunks", hint)

    def gap_fault(gap: int) -> Fault:
        return Fault(f"there is no block from rank {gap // n} to rank {gap % n}", "chunks", hint)

    wrong = (held != block_bytes) & ((pair // n != pair % n) | (held > 0))
    yield from _listed(np.flatnonzero(wrong), "blocks", size_fault)
    if block_bytes:
        there = np.zeros(n * n, dtype=np.bool_)  # no more than some entries per chunk
        there[pair] = there[:: n + 1] = True
        yield from _listed(np.flatnonzero(~there), "missing blocks", gap_fault)


def _neighbour_faults(schedule: Schedule, _: _Promise) -> Iterator[Fault]:
    """Check send_recv: every rank sends its whole buffer to the next."""
    chunks, n = schedule.chunks, schedule.n_ranks
    held = _rank_bytes(schedule, "source")

    def target_fault(chunk: int) -> Fault:
        what = f"chunk {chunk} goes from rank {chunks.source[chunk]} to rank {chunks.target[chunk]}"
        return Fault(what, f"chunks.rows[{chunk}].target", "in send_recv every rank sends to the next")

    def buffer_fault(rank: int) -> Fault:
        what = f"rank {rank} sends {held[rank]} bytes, not {schedule.size_bytes}"
        return Fault(what, "chunks", "in send_recv every rank sends its whole buffer")

    yield from _listed(np.flatnonzero(chunks.target != (chunks.source + 1) % n), "chunks", target_fault)
    yield from _listed(np.flatnonzero(held != schedule.size_bytes), "ranks", buffer_fault)


def _matrix_faults(schedule: Schedule, _: _Promise) -> Iterator[Fault]:
    """Check all_to_all_v: no rank sends or receives more than the buffer."""
    sent, received = _rank_bytes(schedule, "source"), _rank_bytes(schedule, "target")

    def fault(rank: int, verb: str, held: Int) -> Fault:
        what = f"rank {rank} {verb} {held[rank]} bytes, more than the buffer of {schedule.size_bytes}"
        return Fault(what, "chunks", "size_bytes is the largest send or receive buffer")

    for verb, held in (("sends", sent), ("receives", received)):
        wrong = np.flatnonzero(held > schedule.size_bytes)
        yield from _listed(wrong, "ranks", partial(fault, verb=verb, held=held))


def _listed(wrong: Int, noun: str, fault: Callable[[int], Fault]) -> Iterator[Fault]:
    """Yield the fault of each number in *wrong*; of very many, the first ones and how many follow."""
    yield from map(fault, wrong[:MAX_LISTED].tolist())
    if len(wrong) > MAX_LISTED:
        yield Fault(f"... and {len(wrong) - MAX_LISTED} more {noun} like these", "chunks")


def _rank_bytes(schedule: Schedule, end: str) -> Int:
    """Return int64[n_ranks], the bytes of the chunks whose *end* each rank is."""
    held = np.zeros(schedule.n_ranks, dtype=np.int64)
    np.add.at(held, getattr(schedule.chunks, end), schedule.chunks.size_bytes)
    return held
