"""Payload rates of the channels of transfers: the one place where it is decided which law of costs holds.

Within a node a channel has a rate of its own, which binds softly with its share of the link
(`collsim.library.costs.channel_costs`); between nodes that share comes later (`collsim.library.costs.network_costs`).
Grouped messages share the channels that send and receive them (`collsim.library.costs.message_costs`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collsim.library.costs.channel_costs import Protocol, Use
from collsim.library.costs.message_costs import Messages, caps_Bps

__all__ = ["Work", "cap_Bps", "groups_messages"]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Demand of the transfers of a schedule on their channels.

    Attributes
    ----------
    use : Use
    steps : int
        Of one loop of a channel.
    dtype : str
    gathered : int
        Steps of a loop in which nothing is added: ranks keep what they hand on.
    grouped : Messages or None
        The transfers as messages; None where they do not share channels as grouped ones do.
    connections : int64[n] or None
        How many each transfer has between nodes, each as fast as its channels; None: one.
    """

    use: Use
    steps: int
    dtype: str
    gathered: int = 0
    grouped: Messages | None = None
    connections: NDArray[np.int64] | None = None


def groups_messages(cost_law: str, costs: Protocol) -> bool:
    """Tell whether the law of grouped messages holds: the kernel sends them so, and there are constants for it."""
    return cost_law == "grouped" and costs.one_way_rate_Bps is not None


def cap_Bps(costs: Protocol, work: Work, *, between_nodes: bool = False) -> NDArray[np.float64]:
    """Tell the payload rate that the channels of each transfer reach, float64[n], whatever links do to it later.

    *costs* are of steps in a node or *between_nodes*; what a transfer of the other kind gets has no meaning.
    """
    if work.grouped is not None:
        return caps_Bps(work.grouped, costs)
    if not between_nodes:
        return costs.rates_Bps(work.use, work.steps, work.dtype, work.gathered)
    caps = work.use.lanes * costs.channel_rate_Bps
    return caps if work.connections is None else caps * work.connections
