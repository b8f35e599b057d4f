"""Demand of a lowered schedule on channels: what the laws of costs take of it."""

from __future__ import annotations

from operator import is_

import numpy as np

from collsim.collectives import family_of
from collsim.collectives.algorithm import KIB
from collsim.collectives.node_p2p import turns_of
from collsim.core.arrays import distinct
from collsim.core.operations import DTYPES, OPERATIONS
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import FEWEST_STORES, LINE_BYTES, Protocol
from collsim.library.costs.laws import Work, groups_messages
from collsim.library.costs.message_costs import Messages
from collsim.library.costs.network_costs import windowed_Bps
from collsim.library.nccl.protocols import SLOTS
from collsim.schedule import Schedule
from collsim.schedule.message_parts import STEP_BYTES
from collsim.simulation.lowering import Lowered, refuse_tables
from collsim.simulation.runs import LoweredRun, layout_of

__all__ = [
    "HEADS_OF_FITS",
    "channels_of",
    "empty_chunks",
    "filling_bytes",
    "gathers_alone",
    "hands_on",
    "heads_of",
    "held_back",
    "is_grouped",
    "messages_of",
    "once_between",
    "peers_of",
    "served_of",
    "stores_of",
    "work_of",
]


HEADS_OF_FITS = 8
"""Fits hold 2 to 8 GPUs at all sizes; of 64 and 72 only logs from 512 MiB on, with full chunks, are public."""

CHUNK_GRAIN_BYTES = 16
"""Least chunk of a ring's all-reduce (src/device/all_reduce.h of NCCL and RCCL): what is left for the last loop is
dealt to the ranks in whole multiples of it."""
LEAST_CHUNK_BYTES = 16 * KIB
"""Smallest chunk that NCCL takes where switches add; the base holds how long those take to fill a channel."""


def is_grouped(lowered: Lowered, costs: Protocol) -> bool:
    """Return True if the laws of grouped messages hold: for the kernel that sends them in rounds of parts."""
    return groups_messages(lowered.record.cost_law, costs)


def work_of(lowered: Lowered, run: LoweredRun, costs: Protocol) -> Work:
    """Return the work that the transfers ask of their channels."""
    schedule, record = lowered.schedule, lowered.record
    last_step = int(schedule.parameters.get("last_step", lowered.transfers.step.max(initial=0)))
    steps = record.loop_steps(schedule.op, schedule.n_ranks) if record.loop_steps else last_step + 1
    return Work(
        use=lowered.use,
        steps=steps,
        dtype=lowered.dtype,
        gathered=gathered_steps(lowered, steps),
        grouped=messages_of(lowered, run) if is_grouped(lowered, costs) else None,
        connections=np.diff(lowered.transfers.chunk_ptr) if record.cost_law == "bundled" else None,
    )


def gathered_steps(lowered: Lowered, steps: int) -> int:
    """Return in how many of the *steps* of a loop nothing is added: in half of those of an all-reduce."""
    adds = lowered.use.adds
    if not adds.any():
        return steps
    return 0 if adds.all() else steps - steps // 2


def hands_on(lowered: Lowered) -> bool:
    """Return False if one rank of two adds what the other sends.

    The sender is then calls ahead, and nobody waits. Two H200 (NCCL 2.28.9, rings forced to Simple) take 8.7 us for a
    reduce of 8 bytes and 13.1 us for a broadcast: a hand-over less.
    """
    return lowered.schedule.n_ranks > 2 or not lowered.use.adds.all()


def messages_of(lowered: Lowered, run: LoweredRun) -> Messages:
    """Return the transfers as messages; where ranks wait for each other, their laws need tables of pairs."""
    of_these = (lowered.transfers, lowered.size_bytes, run.fabric)
    known, found = lowered.found.get("messages", (None, None))
    if known is None or not all(map(is_, known, of_these)):  # copies with other columns share what was found
        found = _messages_of(lowered, run)
        lowered.found["messages"] = of_these, found
    messages: Messages = found
    return messages


def _messages_of(lowered: Lowered, run: LoweredRun) -> Messages:
    transfers, told, layout = lowered.transfers, lowered.schedule.parameters, layout_of(run)
    found = Messages(
        n_ranks=run.fabric.n_ranks,
        src=transfers.src,
        dst=transfers.dst,
        channel=transfers.channel,
        step=transfers.step,
        size_bytes=lowered.size_bytes,
        lanes=transfers.lanes.astype(np.float64),
        copies=transfers.copies.astype(np.float64),
        channels=int(told.get("channels", int(transfers.channel.max(initial=0)) + 1)),
        chunk_bytes=int(told.get("step_bytes", STEP_BYTES)),
        own_blocks=lowered.schedule.op == "all_to_all",
        turn=turns_of(layout, transfers.src, transfers.dst) if layout.n_nodes > 1 else None,
        at_once=lowered.at_once,
    )
    if lowered.at_once is None and not (found.one_to_one or found.one_way):
        refuse_tables(lowered.schedule)
    return found


def held_back(lowered: Lowered, run: LoweredRun, caps_Bps: Float, rows: Int | slice = slice(None)) -> Float:
    """Return what windows leave of the rates *caps_Bps* of messages between nodes, those of *rows*.

    Slots of a connection bound what is on its way; of rings and trees the schedule itself has them.
    """
    step_bytes, transfers = int(lowered.schedule.parameters.get("step_bytes", 0)), lowered.transfers
    if lowered.record.cost_law not in ("grouped", "bundled") or not step_bytes:
        return caps_Bps
    connections = transfers.lanes * (np.diff(transfers.chunk_ptr) if lowered.record.cost_law == "bundled" else 1)
    window_bytes: Float = SLOTS * step_bytes * np.maximum(connections, 1)[rows].astype(np.float64)
    round_trip_s = 2 * run.trunks.latency_s[lowered.used][lowered.route][rows]
    most_Bps = np.divide(window_bytes, round_trip_s, out=np.full(len(window_bytes), np.inf), where=round_trip_s > 0)
    if not (caps_Bps > most_Bps).any():
        return caps_Bps
    _, stream = distinct((transfers.src * lowered.schedule.n_ranks + transfers.dst) * _past(transfers.channel)
                         + transfers.channel)  # fmt: skip
    of_stream = np.bincount(stream, weights=lowered.size_bytes)  # a part passes relays in pieces
    stream_bytes = of_stream.astype(np.float64)[stream][rows]
    return windowed_Bps(caps_Bps, stream_bytes, window_bytes, round_trip_s)


def _past(labels: Int) -> int:
    return int(labels.max(initial=0)) + 1


def stores_of(lowered: Lowered) -> Float:
    """Return float64[n]: how many elements of a line of LL a receiver stores more than `FEWEST_STORES`.

    What it adds to its own goes on to the next rank as a whole line, until the sum is complete; operations that only
    copy are kernels of bytes.
    """
    told, adds, step = OPERATIONS.get(lowered.schedule.op), lowered.use.adds, lowered.transfers.step
    element_bytes = DTYPES[lowered.dtype] if told is None or told.reduces else 1
    passes_on = adds & (step < step.max(initial=0, where=adds))
    return np.where(passes_on, 0.0, LINE_BYTES / element_bytes - FEWEST_STORES)


def empty_chunks(lowered: Lowered) -> int:
    """Return how many chunks of a ring's all-reduce are empty: one for each rank, of at least `CHUNK_GRAIN_BYTES`."""
    schedule = lowered.schedule
    if schedule.op != "all_reduce" or not _gives_its_name(schedule):
        return 0
    return max(schedule.n_ranks - -(-schedule.size_bytes // CHUNK_GRAIN_BYTES), 0)


def gathers_alone(lowered: Lowered) -> bool:
    """Return True for a ring that gathers and adds nothing before."""
    return lowered.schedule.op == "all_gather" and _gives_its_name(lowered.schedule)


def channels_of(lowered: Lowered) -> int:
    """Return on how many channels a call runs; one where the algorithm knows none."""
    return int(lowered.schedule.parameters.get("channels", 1))


def _gives_its_name(schedule: Schedule) -> bool:
    """Return True for the algorithm that a family of constants is called after, and not one that borrows them."""
    return schedule.algo == family_of(schedule.op, schedule.algo)


def peers_of(lowered: Lowered) -> int:
    """Return with how many others the busiest rank talks at once.

    That is all of them; of messages one for a neighbour in a row, and no more than there are channels.
    """
    schedule = lowered.schedule
    if lowered.record.cost_law != "grouped":
        return schedule.n_ranks - 1
    others = 1 if schedule.op == "send_recv" else schedule.n_ranks - 1
    return min(others, int(schedule.parameters.get("channels", others)))


def peers_across(lowered: Lowered, run: LoweredRun) -> int:
    """Return how many others in other nodes a rank of the smallest node exchanges messages with: one, of neighbours.

    All ranks of the schedule count, also where a small part of the machine stands for them.
    """
    if lowered.schedule.op == "send_recv":
        return 1
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    counts = np.bincount(node)
    return int(lowered.schedule.n_ranks - counts[counts > 0].min())


def once_between(lowered: Lowered, run: LoweredRun, network: Protocol | None) -> dict[str, float]:
    """Return the seconds that a call takes once because it goes between nodes, by constant; nothing within one."""
    if network is None or lowered.steps is None:
        return {}
    told = {"base_s": network.base_s * levels_of(lowered, run)}
    if network.peer_overhead_s:
        told["peer_overhead_s"] = network.peer_overhead_s * peers_across(lowered, run)
    return told


def levels_of(lowered: Lowered, run: LoweredRun) -> int:
    """Return how often heads of NVLS in other nodes agree before they begin: at every level of their tree; else 1."""
    return max(layout_of(run).n_nodes.bit_length() - 1, 1) if _has_trees_of_heads(lowered) else 1


def served_of(lowered: Lowered, run: LoweredRun) -> float:
    """Return how many connections the thread of a GPU serves, beside those on two nodes.

    Every GPU is a head of a tree of NVLS on every channel: over n nodes its thread sends to and receives from
    4 (n - 1) / n others of a channel on average. Other kernels cross few channels at a GPU: 1.
    """
    nodes = layout_of(run).n_nodes
    return 2 * (nodes - 1) / nodes if _has_trees_of_heads(lowered) else 1.0


def _has_trees_of_heads(lowered: Lowered) -> bool:
    """Return True if switches add within a node only, so that its heads pass sums on to those of other nodes."""
    return lowered.record.in_network == ("node",)


def heads_of(lowered: Lowered, run: LoweredRun) -> Float:
    """Return float64[n]: how many chunks a channel turns to one after another, one for each head if switches add.

    Every GPU of a node is a head. Beyond `HEADS_OF_FITS` of them, those of chunks that are not full wait less.
    """
    places = lowered.record.in_network
    if not {"all", "node"} & set(places):
        return np.ones(len(lowered.size_bytes))
    node = run.fabric.wiring.coordinates.node[run.fabric.rank_node]
    heads = float(np.bincount(node).max())
    chunk_bytes = lowered.schedule.parameters.get("chunk_bytes") or lowered.size_bytes.max(initial=1.0)
    found = heads * lowered.size_bytes / float(chunk_bytes)
    return np.asarray(np.clip(found, min(heads, HEADS_OF_FITS), heads))


def filling_bytes(lowered: Lowered, size_bytes: Float, costs: Protocol) -> Float:
    """Return float64[n]: what of each transfer of *size_bytes* is on its way while nothing overlaps it.

    That is none where what ranks gather lands in their own buffers.

    Where switches add in a node, a channel first takes a chunk of every head in, and hands one of each out at last:
    that grows with the chunk, and is no less where trees lead on from there to other nodes. More heads than in the fits
    are taken for as many.
    """
    places = set(lowered.record.in_network)
    if not {"all", "node"} & places:
        return np.zeros(len(size_bytes)) if costs.zero_copy and not lowered.use.adds.all() else size_bytes
    told = lowered.schedule.parameters
    heads = lowered.schedule.n_ranks if "all" in places else int(told.get("heads", 1))
    return min(heads, HEADS_OF_FITS) * np.maximum(size_bytes - LEAST_CHUNK_BYTES, 0.0)
