"""How far times by hops that are only nearly alike may be off: what telling them apart less far moves."""

from __future__ import annotations

from dataclasses import replace

from collsim.library.costs.channel_costs import Protocol
from collsim.simulation.lowering import Doubt
from collsim.simulation.timing import Timing, time_lowered

__all__ = ["doubted"]

LEAST_TOLD = 0.005
"""A doubt of so large a part of the time is told (chosen)."""


def doubted(timing: Timing, doubt: Doubt, costs: Protocol, network: Protocol | None) -> Timing:
    """Return *timing* with how far it may be off, and with times on both sides, if that is worth telling.

    Raises
    ------
    DeadlockError, InternalError
        As `collsim.simulation.timing.time_schedule`.
    """
    share = doubt.least
    if doubt.coarser is not None:
        other = doubt.coarser()
        other_s = time_lowered(other, other.run, costs, network).time_s
        share = max(share, doubt.times * abs(other_s / timing.time_s - 1))
    if share < LEAST_TOLD:
        return timing
    low_s, high_s = max(timing.time_s * (1 - share), timing.bound.time_s), timing.time_s * (1 + share)
    method = replace(timing.method, doubt_share=share)
    return replace(timing, method=method, bracket_s=(min(low_s, timing.time_s), high_s))
