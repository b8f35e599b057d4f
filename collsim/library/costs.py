"""What a protocol costs on one channel: steps, slices, rates, and how channels share a link.

The laws are smooth where hardware is: two limits that act together, such as the rate of the channels and that of the
link, bind softly, and a step takes the longer of what its slices need and what one slice and the hand-over need. This
module imports only numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FAMILIES", "Protocol", "family_of", "soft_max", "soft_min"]

Float = NDArray[np.float64]

FAMILIES = ("ring", "chain", "rooted", "messages", "nvls")
"""Kernels that have constants of their own."""

SLICE_SHARPNESS = 6
"""How sharply the two limits of a step meet; the fits do not resolve it."""
SMALL_CHUNK_BYTES, LARGE_CHUNK_BYTES = 2**11, 2**14
"""Between these sizes the cost of a step goes from that of one filled slice to that of two."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What one protocol costs.

    Attributes
    ----------
    message_overhead_s : float
        Added to the latency of every transfer.
    channel_rate_Bps : float
        Payload that one channel (CTA) can move; inf if it never limits.
    wire_efficiency : float
        Payload over bytes on the wire: flags travel with the data of LL and LL128.
    base_s : float
        Once per collective, on the device.
    channel_overhead_s : float
        Once per collective of messages, for every channel that its messages would take if every rank got one. Why calls
        that use more of the channels take longer to begin is not known.
    small_overhead_s : float or None
        Overhead of a transfer too small to fill two slices; None: as of any.
    slice_overhead_s : float
        Of each of the two slices that a chunk is handed on in.
    fill_rate_Bps : float
        Rate of the copy out of the last chunk, which nothing overlaps; inf if there is none.
    link_share : float
        Share of a rank's link rate that all its channels together approach.
    softness : float
        Exponent with which the rates of channels and link meet; inf: the smaller one holds.
    stepwise : bool
        A channel reaches steps / (steps + 1) of its rate: in its last step it only copies out.
    one_way_rate_Bps : float or None
        Rate of a channel that only sends or only receives. Given, the laws of `collsim.message_costs` hold; None: a
        channel has one rate.
    contention : float
        Share of the link rate that one flow would lose where ports meet that all serve several ranks; that of many
        falls with the root of their number.
    back_to_back : bool
        Calls in a row overlap: a rank that is done turns to the next call, as the loop of nccl-tests lets it. The time
        of a call is then that by which a second one comes later.
    zero_copy : bool
        Messages land in the receiver's own buffer (registered by the user or by graph capture): nothing is copied out.
    """

    message_overhead_s: float
    channel_rate_Bps: float
    wire_efficiency: float = 1.0
    base_s: float = 0.0
    channel_overhead_s: float = 0.0
    small_overhead_s: float | None = None
    slice_overhead_s: float = 0.0
    fill_rate_Bps: float = math.inf
    link_share: float = 1.0
    softness: float = math.inf
    stepwise: bool = False
    one_way_rate_Bps: float | None = None
    contention: float = 0.0
    back_to_back: bool = False
    zero_copy: bool = False

    def rates_Bps(self, lanes: Float, active: Float, egress_Bps: float, steps: int) -> Float:
        """Return float64[n]: the payload rate that each transfer can reach.

        Parameters
        ----------
        lanes : float64[n]
            Channels that serve the transfer.
        active : float64[n]
            Channels of its sender that are busy in the same step.
        egress_Bps : float
            What a rank can send at line rate.
        steps : int
            Steps of the schedule.
        """
        rate = np.full(len(lanes), self.channel_rate_Bps)
        rate *= steps / (steps + 1) if self.stepwise else 1.0
        if math.isinf(self.softness):
            return np.asarray(lanes * rate)
        share = self.link_share * self.wire_efficiency * egress_Bps / active
        return np.asarray(lanes * soft_min(rate, share, self.softness))

    def latency_s(self, size_bytes: Float, rate_Bps: Float) -> Float:
        """Return float64[n]: the wait before the bytes of each transfer flow at *rate_Bps*."""
        overhead = np.full(len(size_bytes), self.message_overhead_s)
        if self.small_overhead_s is not None:
            span = math.log2(LARGE_CHUNK_BYTES / SMALL_CHUNK_BYTES)
            large = np.clip(np.log2(np.maximum(size_bytes, 1) / SMALL_CHUNK_BYTES) / span, 0, 1)
            overhead = self.small_overhead_s + (self.message_overhead_s - self.small_overhead_s) * large
        if self.slice_overhead_s == 0.0:
            return overhead
        slice_s = size_bytes / 2 / rate_Bps
        step_s = soft_max(2 * slice_s + 2 * self.slice_overhead_s, slice_s + overhead, SLICE_SHARPNESS)
        return np.asarray(step_s - 2 * slice_s)

    def fill_s(self, size_bytes: Float) -> float:
        """Return the time to copy the largest chunk out."""
        return float(size_bytes.max(initial=0.0)) / self.fill_rate_Bps


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


def family_of(op: str, algo: str) -> str:
    """Return which of `FAMILIES` carries out *op* by *algo*.

    >>> family_of("all_reduce", "chain"), family_of("broadcast", "ring"), family_of("all_to_all", "nccl_p2p")
    ('chain', 'rooted', 'messages')
    """
    if algo == "nvls":
        return "nvls"
    if op in ("broadcast", "reduce"):
        return "rooted"
    if op in ("all_reduce", "all_gather", "reduce_scatter"):
        return "chain" if algo in ("chain", "tree") else "ring"
    return "messages"
