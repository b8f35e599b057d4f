"""Costs of a protocol on one channel: steps, slices, rates, and how channels share a link.

The laws are smooth where hardware is: two limits that act together, such as the rate of the channels and that of the
link, bind softly, and a step takes the longer of what its slices need and what one slice and the hand-over need. This
module imports only numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BETWEEN",
    "FAMILIES",
    "NEAREST",
    "PEER_FAMILIES",
    "STAND_IN",
    "Origin",
    "Protocol",
    "Use",
    "soft_max",
    "soft_min",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

FAMILIES = ("ring", "chain", "rooted", "messages", "nvls", "all_pairs", "direct", "fan")
"""Kernels that have constants of their own."""
PEER_FAMILIES = ("peer_one_shot", "peer_two_shot", "peer_staged", "peer_multimem", "symmetric")
"""Kernels of inference engines over peer memory, whose constants come with the engine, and those of NCCL on symmetric
memory, whose constants come with it."""
STAND_IN = {"all_pairs": "ring", "direct": "messages", "fan": "messages"}
"""Whose constants hold for a family that a profile leaves out."""
BETWEEN = {"rooted": "ring", "all_pairs": "ring", "direct": "messages", "fan": "messages"}
"""The same for steps between nodes."""
NEAREST = {"LL": ("LL", "LL128", "Simple"), "LL128": ("LL128", "Simple", "LL"), "Simple": ("Simple", "LL128", "LL")}
"""Whose constants hold for a protocol that a profile leaves out, best first. Chosen: by payload over bytes on the
wire."""

SLICE_SHARPNESS = 6
"""Exponent of the `soft_max` of the two limits of a step; the fits do not resolve it."""
LINE_SHARPNESS = 1.5
"""The same for the bytes and the hand-over of a step whose lines are passed on while they arrive: between their sum (1)
and the longer of both. With LL on 2, 4 and 8 ranks a chunk of 4 KiB adds a third to a half of what its bytes take to
every step, on Ampere, Hopper and Blackwell alike; the longer of both (6) adds nothing, the sum too much on 8 ranks."""

LEAST_S = 1e-12
"""Stands for no time where a root is taken."""
LINE_BYTES, LINES_AT_ONCE, FEWEST_STORES = 8, 512, 2
"""Payload of a line of LL, and lines that the threads of a channel work on at a time, one each (NCCL
src/device/prims_ll.h); elements of a line with the four bytes each that fits hold."""
PASSED_ON_BYTES = {1 / 2: LINE_BYTES * LINES_AT_ONCE, 15 / 16: 16 * 120, 7 / 8: 64 * 56}
"""Payload that is passed on as it comes, by payload over bytes on the wire: with LL a line of every thread, which costs
a hop within a node what it costs alone; with LL128 the 16 lines of a warp, which waits for no other (NCCL
src/device/prims_ll128.h, WireWordPerSlice), 64 of RCCL's, whose warps are wider."""
SMALL_CHUNK_BYTES, LARGE_CHUNK_BYTES = 2**11, 2**14
"""Between these sizes the cost of a step goes from that of one filled slice to that of two."""


@dataclass(frozen=True, slots=True)
class Use:
    """Channels and line rate of each transfer of a schedule, its own and shared ones; arrays of length n.

    Attributes
    ----------
    lanes : float64[n]
        Channels that serve the transfer.
    active : float64[n]
        Channels that are busy in the same step on the same way out of the sender: the direct link to the receiver if
        there is one, else all that leaves the sender.
    alone_Bps : float64[n]
        Line rate of that way out.
    duplex : bool[n]
        Whether the direct link carries bytes the other way in that step.
    adds : bool[n]
        Whether the receiver adds what it gets to what it has.
    """

    lanes: Float
    active: Float
    alone_Bps: Float
    duplex: Bool
    adds: Bool

    def take(self, rows: Int) -> Use:
        """Return the channels and line rates of some transfers."""
        lanes, active, alone_Bps = self.lanes[rows], self.active[rows], self.alone_Bps[rows]
        return Use(lanes, active, alone_Bps, self.duplex[rows], self.adds[rows])


class Origin(NamedTuple):
    """Origin of a constant: the profile and its key in that, what stands behind the figure, and who says so."""

    profile: str
    key: str
    status: str
    source: str


FEWEST_THREADS = 1 / 8
"""Least part of the threads of a channel that NCCL starts: 64 of 512 (src/enqueue.cc, ncclGetAlgoInfo)."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Costs of one protocol, in seconds and bytes per second.

    Attributes
    ----------
    message_overhead_s : float
        Added to the latency of every transfer.
    turn_s : float
        Between nodes: for which a step keeps its channel waiting, whether or not its receiver has what came before.
    host_rate_Bps : float
        Between nodes: bytes on the wire that the host copies for all channels of an adapter together, where it copies
        messages (`collsim.library.costs.network_costs.COPIED_FROM_BYTES`); inf: it copies none.
    node_share : float
        Between nodes: share of its rate inside a node that a kernel keeps while its threads serve the network too.
    channel_rate_Bps : float
        Payload that one channel (CTA) can move; inf if it never limits.
    wire_efficiency : float
        Payload over bytes on the wire: flags travel with the data of LL and LL128.
    base_s : float
        Once per collective, on the device.
    threads_overhead_s : float
        Once per collective, on top of the base, with all threads of a channel: for small calls NCCL starts fewer, down
        to an eighth, in proportion to the bytes (src/enqueue.cc), and takes as much less of it.
    threads_full_bytes : float
        From this size of a call on all threads start.
    last_channel_overhead_s : float
        Once per collective, for every doubling of its channels: it is done when the last of them is, and the latest of
        n draws grows with the logarithm of n.
    channel_overhead_s : float
        Once per collective of messages, for every channel that its messages would take if every rank got one. Why calls
        that use more of the channels take longer to begin is not known.
    small_overhead_s : float or None
        Overhead of a transfer too small to fill two slices; None: as of any.
    slice_overhead_s : float
        Of each of the two slices that a chunk is handed on in.
    fill_rate_Bps : float
        Rate of the copy out of the last chunk, which nothing overlaps; inf if there is none. Where switches add, at
        which a channel fills and empties with the chunks of all heads.
    fill_limit_bytes : float
        Most that this copy has to move: a slot of the connection, where a transfer stands for many chunks.
    link_share : float
        Share of the line rate that all channels on one way out of a rank together approach.
    duplex_share : float or None
        The same for a direct link that carries bytes the other way too; None: as any.
    softness : float
        Exponent with which the rates of channels and link meet; inf: the smaller one holds.
    stepwise : bool
        A channel reaches steps / (steps + 1) of its rate: after the steps of a loop it only copies out.
    store_overhead_s : float
        What it adds to a step if threads that copy lines of LL out store one more element each: they store them one by
        one, a whole number of a line of eight bytes.
    empty_overhead_s : float
        By how much an all-reduce of a ring is done sooner for every chunk that is empty, because it has fewer elements
        than ranks can share: a rank that waits has done its own part of the next step, and a hop takes less.
    copy_out_rate_Bps : float or None
        Rate of that copy, where the steps are slower than the memory of the GPU; None: that of the channel.
    keep_rate_Bps : float
        Rate at which a channel stores, besides what it sends, what it keeps of that. With `zero_copy` a ring does so
        once in the steps that gather, with what is its own; without, the rate of the channel holds it. inf: it costs
        nothing.
    cut_through : bool
        Lines carry flags, so that a chunk is passed on while it still arrives: a step takes more than the longer of
        the bytes and the overhead, but less than both.
    one_way_rate_Bps : float or None
        Rate of a channel that only sends or only receives, as of a ring whose bytes land where they belong. Given, the
        laws of `collsim.library.costs.message_costs` hold for messages; None: a channel has one rate.
    contention : float
        Share of the link rate that one flow would lose where ports meet that all serve several ranks; that of many
        falls with the root of their number.
    reduce_rates_Bps : Mapping of str to float
        Rate at which a channel adds two buffers of a data type, on top of moving them; types that are absent cost
        nothing.
    back_to_back : bool
        Calls in a row overlap: a rank that is done turns to the next call, as the loop of nccl-tests lets it. A call
        then takes as long as the busiest channel sends; it waits for the hand-over once, since the sender runs ahead,
        and every chunk costs the overhead of a slice.
    overlaps : bool
        Over nodes: calls in a row overlap as far as ranks do not wait for each other, at what hops cost in one call.
    in_turn : bool
        Channels with the same order of ranks pass their chunks along a chain one after another, and share a link with
        what flows at the moment. In step they would not stay: at every hop whoever is ahead gets further ahead.
    zero_copy : bool
        Bytes land in the receiver's own buffer (registered by the user or by graph capture): of messages nothing is
        copied out, and a ring that gathers keeps only what is its own.
    exchange_overhead_s : float
        Once per collective of a ring that only gathers, with `zero_copy`: nobody may send before its neighbour has told
        where bytes land (NCCL src/device/prims_simple.h); a ring that adds has its first steps for that.
    floor_s : float or None
        What a call of this kernel takes at least, because the host needs so long to start it; None: as of the profile.
    peer_overhead_s : float
        Once per collective for every peer of a rank: flags that a kernel writes and waits for, or a block of threads
        that only starts for its messages.
    copies, copy_rate_Bps : float
        How often the whole buffer is copied inside the GPU, before and after, which nothing overlaps; and at what rate.
    origins : Mapping of str to Origin
        By attribute, of the constants that a profile gives.
    """

    message_overhead_s: float
    channel_rate_Bps: float
    wire_efficiency: float = 1.0
    turn_s: float = 0.0
    host_rate_Bps: float = math.inf
    node_share: float = 1.0
    base_s: float = 0.0
    threads_overhead_s: float = 0.0
    threads_full_bytes: float = 0.0
    last_channel_overhead_s: float = 0.0
    channel_overhead_s: float = 0.0
    small_overhead_s: float | None = None
    slice_overhead_s: float = 0.0
    fill_rate_Bps: float = math.inf
    fill_limit_bytes: float = math.inf
    link_share: float = 1.0
    duplex_share: float | None = None
    softness: float = math.inf
    stepwise: bool = False
    store_overhead_s: float = 0.0
    empty_overhead_s: float = 0.0
    copy_out_rate_Bps: float | None = None
    keep_rate_Bps: float = math.inf
    cut_through: bool = False
    one_way_rate_Bps: float | None = None
    contention: float = 0.0
    reduce_rates_Bps: Mapping[str, float] = field(default_factory=dict, hash=False)
    back_to_back: bool = False
    overlaps: bool = False
    in_turn: bool = False
    zero_copy: bool = False
    exchange_overhead_s: float = 0.0
    floor_s: float | None = None
    peer_overhead_s: float = 0.0
    copies: float = 0.0
    copy_rate_Bps: float = math.inf
    origins: Mapping[str, Origin] = field(default_factory=dict, hash=False, compare=False, repr=False)

    def rates_Bps(self, use: Use, steps: int, dtype: str = "float", gathered: int = 0) -> Float:
        """Return float64[n]: the payload rate that each transfer can reach in a loop of so many steps.

        In *gathered* of them nothing is added.
        """
        rate = np.full(len(use.lanes), self.channel_rate_Bps)
        if self.zero_copy and gathered:
            byte_s = 1 / (self.one_way_rate_Bps or self.channel_rate_Bps)
            rate = 1 / (byte_s + np.where(use.adds, 0.0, 1 / self.keep_rate_Bps / gathered))
        elif self.stepwise:
            copy_out = self.channel_rate_Bps / (self.copy_out_rate_Bps or self.channel_rate_Bps)
            rate *= steps / (steps + copy_out)
        if dtype in self.reduce_rates_Bps:  # the same threads move and add, so the times of both add up
            rate = np.where(use.adds, 1 / (1 / rate + 1 / self.reduce_rates_Bps[dtype]), rate)
        if math.isinf(self.softness):
            return np.asarray(use.lanes * rate)
        active = use.lanes if self.in_turn else use.active
        share = self.shares(use.duplex) * self.wire_efficiency * use.alone_Bps / active
        return np.asarray(use.lanes * soft_min(rate, share, self.softness))

    @property
    def passed_on_bytes(self) -> float:
        """Payload that goes on as it comes, because lines carry flags; inf where a receiver waits for whole chunks."""
        return PASSED_ON_BYTES.get(self.wire_efficiency, math.inf)

    def shares(self, duplex: Bool) -> Float:
        """Return float64[n]: which share of the line rate a way out of a rank can reach."""
        both = self.link_share if self.duplex_share is None else self.duplex_share
        return np.where(duplex, both, self.link_share)

    def latency_s(self, size_bytes: Float, rate_Bps: Float, stores: Float | float = 0.0) -> Float:
        """Return float64[n]: the wait before the bytes of each transfer flow at *rate_Bps*.

        *stores* says how many elements of a line its receiver stores more than `FEWEST_STORES`.
        """
        if self.back_to_back:
            return np.full(len(size_bytes), self.slice_overhead_s)
        overhead = np.full(len(size_bytes), self.message_overhead_s)
        if self.small_overhead_s is not None:
            span = math.log2(LARGE_CHUNK_BYTES / SMALL_CHUNK_BYTES)
            large = np.clip(np.log2(np.maximum(size_bytes, 1) / SMALL_CHUNK_BYTES) / span, 0, 1)
            overhead = self.small_overhead_s + (self.message_overhead_s - self.small_overhead_s) * large
        if self.store_overhead_s:
            lines = np.minimum(size_bytes / (LINE_BYTES * LINES_AT_ONCE), 1.0)
            overhead = np.maximum(overhead + self.store_overhead_s * stores * lines, 0.0)
        if self.cut_through:
            bytes_s = size_bytes / rate_Bps
            step_s = soft_max(bytes_s, np.maximum(overhead, LEAST_S), LINE_SHARPNESS)
            return np.asarray(np.maximum(step_s - bytes_s, 0.0))  # rounding must not make it negative
        if self.slice_overhead_s == 0.0:
            return overhead
        slice_s = size_bytes / 2 / rate_Bps
        step_s = soft_max(2 * slice_s + 2 * self.slice_overhead_s, slice_s + overhead, SLICE_SHARPNESS)
        return np.asarray(np.maximum(step_s - 2 * slice_s, 0.0))

    def once_s(
        self,
        size_bytes: Float,
        *,
        hands_on: bool = True,
        empty_chunks: int = 0,
        call_bytes: float = math.inf,
        gathers: bool = False,
        channels: int = 1,
    ) -> float:
        """Return the seconds of a call of *call_bytes* besides its transfers: its start, and the last copy out."""
        fill_s = min(float(size_bytes.max(initial=0.0)), self.fill_limit_bytes) / self.fill_rate_Bps
        started_s = self.start_s(empty_chunks) + self.threads_s(call_bytes) + self.exchange_s(gathers=gathers)
        return started_s + fill_s + self.hand_over_s(hands_on=hands_on) + self.last_channel_s(channels)

    def start_s(self, empty_chunks: int = 0) -> float:
        """Return the base of a call of which so many chunks are empty."""
        return max(self.base_s - self.empty_overhead_s * empty_chunks, 0.0)

    def threads_s(self, call_bytes: float) -> float:
        """Return what of the start of a call of so many bytes its threads take: nothing of the fewest, all of all."""
        if call_bytes >= self.threads_full_bytes:
            return self.threads_overhead_s
        share = (call_bytes / self.threads_full_bytes - FEWEST_THREADS) / (1 - FEWEST_THREADS)
        return self.threads_overhead_s * max(share, 0.0)

    def exchange_s(self, *, gathers: bool) -> float:
        """Return for how long a call waits to be told where bytes land."""
        return self.exchange_overhead_s if self.zero_copy and gathers else 0.0

    def last_channel_s(self, channels: int) -> float:
        """Return for how long a call waits for the last of its channels, beyond what one alone takes."""
        return self.last_channel_overhead_s * math.log2(max(channels, 1))

    def hand_over_s(self, *, hands_on: bool) -> float:
        """Return for how long a call in a row of calls waits for what its ranks hand on, if any does."""
        return self.message_overhead_s if self.back_to_back and hands_on else 0.0

    def around_s(self, peers: int, size_bytes: int) -> float:
        """Return the seconds of a call for all peers, and for copies of a buffer of so many bytes around it."""
        return self.peer_overhead_s * peers + self.copies * size_bytes / self.copy_rate_Bps


def soft_max(a: Float, b: Float, sharpness: float) -> Float:
    """Return the larger of two positive numbers, rounded where they are alike.

    >>> round(float(soft_max(np.float64(3), np.float64(1), 6)), 4)
    3.0007
    """
    return np.asarray((np.asarray(a) ** sharpness + np.asarray(b) ** sharpness) ** (1 / sharpness))


def soft_min(a: Float, b: Float, sharpness: float) -> Float:
    """Return the smaller of two positive numbers, less where they are alike; the smaller itself if sharpness is inf.

    >>> round(float(soft_min(np.float64(1), np.float64(1), 2)), 4)
    0.7071
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.asarray(low if math.isinf(sharpness) else low * (1 + (low / high) ** sharpness) ** (-1 / sharpness))
