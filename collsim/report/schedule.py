"""A schedule as text: what it moves in total, then its transfers in the order of their steps."""

from __future__ import annotations

import numpy as np

from collsim.schedule import EVERY, Schedule, Transfers

__all__ = ["schedule_text"]

MOST_CHUNKS = 6


def schedule_text(schedule: Schedule, rows: int = 40) -> str:
    """Return totals and the first *rows* transfers by channel and step."""
    transfers = schedule.materialise()
    moves = np.flatnonzero(np.diff(transfers.chunk_ptr) > 0)
    size_bytes = transfers.size_bytes(schedule.chunks)
    told = ", ".join(f"{key} {value}" for key, value in schedule.parameters.items())
    sent = np.bincount(np.maximum(transfers.src[moves], 0), size_bytes[moves], schedule.n_ranks)
    lines = [
        f"# {schedule.op} by {schedule.algo}: {schedule.n_ranks} ranks, {schedule.size_bytes} bytes"
        + f"; {told}" * bool(told),
        f"# {len(moves)} transfers of {len(schedule.chunks)} chunks in {len(schedule.phases)} "
        f"phase{'s' if len(schedule.phases) > 1 else ''}; a rank sends {int(sent.min())} to {int(sent.max())} bytes",
        f"# longest chain of transfers: {_depth(transfers)}",
        "#",
        f"#{'channel':>7} {'step':>6} {'from':>6} {'to':>6} {'does':>9} {'bytes':>12}  chunks",
    ]
    order = moves[np.lexsort((transfers.src[moves], transfers.step[moves], transfers.channel[moves]))]
    lines += [_line(transfers, int(i), int(size_bytes[i])) for i in order[:rows]]
    if len(order) > rows:
        lines.append(f"# ... and {len(order) - rows} more transfers; --rows shows more")
    return "\n".join(lines) + "\n"


def _line(transfers: Transfers, i: int, size_bytes: int) -> str:
    chunks = transfers.chunks_of(i)
    shown = ", ".join(map(str, chunks[:MOST_CHUNKS])) + (f", ... ({len(chunks)})" if len(chunks) > MOST_CHUNKS else "")
    src, dst = (_rank(int(ends[i])) for ends in (transfers.src, transfers.dst))
    verb = "adds to" if transfers.reduces[i] else "copies to"
    return f"{transfers.channel[i]:8d} {transfers.step[i]:6d} {src:>6} {dst:>6} {verb:>9} {size_bytes:12d}  {shown}"


def _rank(rank: int) -> str:
    if rank < EVERY:
        return f"group{EVERY - 1 - rank}"
    return "every" if rank == EVERY else str(rank)


def _depth(transfers: Transfers) -> int:
    """Return the number of transfers on the longest chain of dependencies; 0 if they go in a circle."""
    depth = np.zeros(len(transfers), dtype=np.int64)
    own = (np.diff(transfers.chunk_ptr) > 0).astype(np.int64)
    waiter = np.repeat(np.arange(len(transfers)), np.diff(transfers.dep_ptr))
    if np.any(transfers.dep >= waiter):
        return 0
    ptr, dep = transfers.dep_ptr.tolist(), transfers.dep.tolist()
    for i in range(len(transfers)):
        before = dep[ptr[i] : ptr[i + 1]]
        depth[i] = own[i] + (max(depth[j] for j in before) if before else 0)
    return int(depth.max(initial=0))
