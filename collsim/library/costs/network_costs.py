"""Costs of a step between nodes: adapters that channels share, and the turns that a proxy takes.

A thread of the host posts every send and waits for every receive: each step of a channel takes a turn of it, and what
it sends arrives later than the last byte left. While a channel waits, the adapter sends for the others: of a wait that
others fill, nothing is lost. So a step waits for what its overheads take longer than the steps of the others, and rates
of channels and adapter meet softly, as rates of channels and links do within a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collsim.library.costs.channel_costs import LEAST_S, Protocol, Use, soft_max, soft_min

__all__ = ["CHUNKS_TOGETHER", "COPIED_FROM_BYTES", "COPY_THRESHOLD", "EAGER_BYTES", "Steps", "steps_of", "windowed_Bps"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

COPY_THRESHOLD = "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD"
"""Of libfabric's provider for Slingshot: up to which size the host copies into the memory of a GPU by itself."""
COPIED_FROM_BYTES = 4096
"""Longer messages of lines are copied by the host, where a profile has a rate for that: what libfabric's provider for
Slingshot takes as safe to copy piecewise (FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD, 4096 by default; logs of Alps that set it
to 16 MiB pass twice to three times as fast)."""
EAGER_BYTES = 16384
"""What of a message leaves before its receiver answers, so that the host copies it; the adapter of the receiver reads
the rest itself (fi_cxi(7), FI_CXI_RDZV_GET_MIN; FI_CXI_RDZV_THRESHOLD as it comes, libfabric prov/cxi)."""
CHUNKS_TOGETHER = {("slingshot", "tree", "Simple"): 2}
"""By network, algorithm and protocol: so many chunks pass all hops, also those inside a node, as if they were one.
Measured, why is not known: over libfabric's provider for Slingshot the second chunk of a channel takes as long as the
first did on its whole way, on 2, 4 and 8 nodes of Alps and on 2 of Polaris alike, with NCCL 2.18 and 2.23 and two
plug-ins; later ones follow as fast as adapters carry them. Trees of LL128 over InfiniBand and EFA do not show it."""
SHARPNESS = 3
"""Exponent of the `soft_max` of an overhead and what other channels send meanwhile: 2 to 4 fit H100 logs alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The transfers between nodes of a schedule.

    Attributes
    ----------
    use : Use
        By transfer of the schedule, of those within a node without meaning: what each has of the adapter, or of
        whatever is narrowest on its way, and who else does in the same step.
    """

    use: Use

    def rates_Bps(self, costs: Protocol, size_bytes: Float, caps_Bps: Float) -> Float:
        """Return float64[n]: what each transfer reaches if its channels can do *caps_Bps*."""
        return soft_min(caps_Bps, self._shares_Bps(costs, size_bytes), costs.softness)

    def waits_s(
        self, costs: Protocol, size_bytes: Float, caps_Bps: Float, overheads_s: tuple[Float, Float]
    ) -> tuple[Float, Float]:
        """Return the part of *overheads_s* that other channels leave unfilled, if a step's channels can do *caps_Bps*.

        Two of float64[n]: before the bytes of a step flow, and from when they have left until the receiver can go on.
        """
        alone_Bps = np.minimum(costs.link_share * self.use.alone_Bps, self._copied_Bps(costs, size_bytes))
        alone_s = size_bytes / np.minimum(caps_Bps, costs.wire_efficiency * alone_Bps)
        shared_s = size_bytes / np.minimum(caps_Bps, self._shares_Bps(costs, size_bytes))
        filled_s = np.maximum(shared_s - alone_s, LEAST_S)
        turn_s = _unfilled(overheads_s[0], filled_s)
        both_s = _unfilled(overheads_s[0] + overheads_s[1], filled_s)
        return turn_s, np.maximum(both_s - turn_s, 0.0)

    def _shares_Bps(self, costs: Protocol, size_bytes: Float) -> Float:
        use = self.use
        way_Bps = np.minimum(costs.link_share * use.alone_Bps, self._copied_Bps(costs, size_bytes))
        return np.asarray(use.lanes * costs.wire_efficiency * way_Bps / use.active)

    def _copied_Bps(self, costs: Protocol, size_bytes: Float) -> Float:
        """Return the rate of an adapter's host where it copies a channel's message, else inf; bytes on the wire."""
        message_bytes = size_bytes / (self.use.lanes * costs.wire_efficiency)
        of_copied = np.maximum(message_bytes / EAGER_BYTES, 1.0)
        return np.where(message_bytes > COPIED_FROM_BYTES, costs.host_rate_Bps * of_copied, np.inf)


def windowed_Bps(rates_Bps: Float, size_bytes: Float, window_bytes: Float, round_trip_s: Float) -> Float:
    """Return float64[n]: the mean rates of streams of *size_bytes* that wait once *window_bytes* are on their way.

    The first window leaves at the rate of the stream; of what follows, a window leaves in each round trip at most,
    because a slot of a connection is filled again only when its bytes have arrived (NCCL src/transport/net.cc,
    sendProxyProgress: NCCL_STEPS slots). Where a round trip is shorter than a window takes, nothing waits.

    >>> wan = windowed_Bps(np.array([25e9]), np.array([10e6]), np.array([1e6]), np.array([10e-3]))
    >>> round(float(10e6 / wan[0]) * 1e3, 2)  # 0.04 ms, and nine more windows in a round trip each
    90.04
    """
    waits_s = np.maximum(round_trip_s / window_bytes - 1 / rates_Bps, 0.0)
    took_s = size_bytes / rates_Bps + np.maximum(size_bytes - window_bytes, 0.0) * waits_s
    return np.where(took_s > 0, size_bytes / np.where(took_s > 0, took_s, 1.0), rates_Bps)


def _unfilled(overhead_s: Float, filled_s: Float) -> Float:
    """Return the seconds of an overhead that remain after the part that the steps of others fill."""
    longer_s = soft_max(np.maximum(overhead_s, LEAST_S), filled_s, SHARPNESS)
    return np.asarray(np.maximum(longer_s - filled_s, 0.0))


def steps_of(use: Use, rows: Int, alone_Bps: Float, shared_Bps: Float) -> Steps:
    """Return the transfers between nodes.

    Parameters
    ----------
    use : Use
        Of all transfers, by the ways within a node.
    rows : int64[k]
        Which transfers lead between nodes.
    alone_Bps, shared_Bps : float64[k]
        What a channel of each gets of the narrowest link on its way if it has that to itself, and if all that take
        it in the same step share it.
    """
    active, alone = np.ones(len(use.lanes)), np.full(len(use.lanes), np.inf)
    active[rows], alone[rows] = alone_Bps / shared_Bps, alone_Bps
    return Steps(replace(use, active=active, alone_Bps=alone))
