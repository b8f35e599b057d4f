"""What a step between nodes costs: adapters that channels share, and the turns that a proxy takes.

A thread of the host posts every send and waits for every receive, which keeps a channel waiting once per step. While it
waits, the adapter sends for the other channels: of a wait that others fill, nothing is lost. So a step waits for what
its overhead takes longer than the steps of the others, and rates of channels and adapter meet softly, as rates of
channels and links do within a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collsim.library.costs import LEAST_S, Protocol, Use, soft_max, soft_min

__all__ = ["Steps", "network_costs", "steps_of"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SHARPNESS = 3
"""How sharply an overhead and what the other channels send meanwhile meet: 2 to 4 fit the logs of H100 alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The transfers between nodes of a schedule.

    Attributes
    ----------
    across : bool[n]
        Which transfers of the schedule they are; the other attributes tell nothing of the rest.
    use : Use
        What each has of the adapter, or of whatever is narrowest on its way, and who else does in the same step.
    """

    across: NDArray[np.bool_]
    use: Use

    def rates_Bps(self, costs: Protocol, caps_Bps: Float) -> Float:
        """Return float64[n]: what each transfer reaches if its channels can do *caps_Bps*."""
        return soft_min(caps_Bps, self._shares_Bps(costs), costs.softness)

    def waits_s(self, costs: Protocol, size_bytes: Float, caps_Bps: Float, latency_s: Float) -> Float:
        """Return float64[n]: what is left of overhead and *latency_s* of a step whose channels can do *caps_Bps*."""
        alone_s = size_bytes / np.minimum(caps_Bps, costs.wire_efficiency * self.use.alone_Bps)
        shared_s = size_bytes / np.minimum(caps_Bps, self._shares_Bps(costs))
        filled_s = np.maximum(shared_s - alone_s, LEAST_S)
        overhead_s = np.maximum(costs.message_overhead_s + latency_s, LEAST_S)
        return np.asarray(np.maximum(soft_max(overhead_s, filled_s, SHARPNESS) - filled_s, 0.0))

    def _shares_Bps(self, costs: Protocol) -> Float:
        use = self.use
        return np.asarray(use.lanes * costs.wire_efficiency * use.alone_Bps / use.active)


def steps_of(across: NDArray[np.bool_], use: Use, group: Int, copies: Int, alone_Bps: Float) -> Steps:
    """Return the transfers between nodes.

    Parameters
    ----------
    across : bool[n]
    use : Use
        Of all transfers, by the ways within a node.
    group : int64[n]
        Which transfers take the same narrowest link in the same step.
    copies : int64[n]
        How many equal transfers each stands for.
    alone_Bps : float64[n]
        What the narrowest link of each carries if it has that to itself.
    """
    _, number = np.unique(np.where(across, group, -1), return_inverse=True)
    active = np.bincount(number, weights=use.lanes * copies)[number].astype(np.float64)
    return Steps(across, replace(use, active=active, alone_Bps=alone_Bps))


def network_costs(network: Mapping[str, Mapping[str, Protocol]], family: str, proto: str) -> Protocol | None:
    """Return what a step of a kernel between nodes costs; kernels without constants of their own cost as rings do."""
    own = network.get("messages" if family in ("messages", "direct", "fan") else family, {})
    return own.get(proto) or network.get("ring", {}).get(proto)
