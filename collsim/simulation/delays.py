"""Delays by what has failed, in an all-to-all by a library's messages on a machine too large to simulate them all.

Whoever lost links keeps others waiting, who keep others waiting in later rounds, and channels fall out of step. So no
rank stands for all, as one does where nothing failed. How much later the last one ends is simulated message by message
among some of the nodes, once as they are and once in order. Rounds follow each other in the same way on the whole
machine, so the delay grows with their number. Where that is not quite so is measured in tests, and rows say between
which times they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from collsim.simulation.concurrent import GroupTask, time_together
from collsim.simulation.damage_sample import Sample
from collsim.simulation.lowering import LoweredRun
from collsim.simulation.timing import Timing

__all__ = ["Delay", "delayed"]

MOST_LATER = 2.0
"""The delay of the whole was less than so many times what that of a sample comes to, on two to four times as many nodes
(tests/property/test_delays.py, docs/scale.md)."""


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """What a sample of the nodes exchanges on the damaged machine, and in order."""

    sample: Sample
    damaged: GroupTask
    healthy: GroupTask


def delayed(timing: Timing, run: LoweredRun, delay: Delay | None) -> Timing:
    """Return the *timing* of a rank that lost nothing with how much later the last one ends, and times on both sides.

    The lower one is without any delay, the upper one with twice as much.
    """
    if delay is None:
        return timing
    sample = delay.sample
    late_s, in_order_s = (time_together([part], ((0,),))[0].time_s for part in (delay.damaged, delay.healthy))
    own_s = max(late_s - in_order_s, 0.0) * sample.rounds
    shared_s = sample.narrowed * _switches_s(timing, run)
    # What all have lost, the rank that stands for them has lost too.
    added_s = max(own_s * (1 - sample.hurt), shared_s * (1 - sample.narrowed_part))
    return replace(
        timing,
        time_s=timing.time_s + added_s,
        critical_s={**timing.critical_s, "links": timing.critical_s.get("links", 0.0) + added_s},
        path=f"{timing.path}, delay of a part",
        bracket_s=(timing.time_s, timing.time_s + MOST_LATER * (own_s + shared_s)),
    )


def _switches_s(timing: Timing, run: LoweredRun) -> float:
    """Return what the links between switches of the network need for their bytes."""
    cluster, wiring = run.topology.cluster, run.fabric.wiring
    assert cluster is not None
    both = (wiring.link_src >= cluster.first_leaf) & (wiring.link_dst >= cluster.first_leaf)
    return float((timing.link_bytes[both] / run.fabric.capacity_Bps[both]).max(initial=0.0))
