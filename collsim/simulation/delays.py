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
from collsim.simulation.timing import Timing

__all__ = ["Delay"]

MOST_LATER = 2.0
"""The delay of the whole was less than so many times what that of a sample comes to, on two to four times as many nodes
(tests/property/test_delays.py, docs/scale.md)."""
ALIKE, NOT_QUITE_ALIKE = 2e-5, 0.05
"""How far times by one rank were off at most, and where ranks are not quite alike (docs/scale.md, "Nearly alike")."""


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """What a sample of the nodes exchanges on the damaged machine, and in order."""

    sample: Sample
    damaged: GroupTask
    healthy: GroupTask

    def of(self, timing: Timing) -> Timing:
        """Return the *timing* of the machine in order with how much later the last one ends, and times on both sides.

        The lower one is without any delay, the upper one with twice as much.
        """
        sample = self.sample
        late_s, in_order_s = (time_together([part], ((0,),))[0].time_s for part in (self.damaged, self.healthy))
        own_s = max(late_s - in_order_s, 0.0) * sample.rounds
        shared_s = _narrowed_s(timing, sample)
        off = NOT_QUITE_ALIKE if sample.uneven else ALIKE
        added_s = max(own_s, shared_s)
        return replace(
            timing,
            time_s=timing.time_s + added_s,
            critical_s={**timing.critical_s, "links": timing.critical_s.get("links", 0.0) + added_s},
            method=replace(timing.method, part_delay=True),
            bracket_s=(
                max(timing.time_s * (1 - off), timing.bound.time_s),
                timing.time_s * (1 + off) + MOST_LATER * added_s,
            ),
        )


def _narrowed_s(timing: Timing, sample: Sample) -> float:
    """Return how much longer than the busiest link the links above the switch need that lost most of them."""
    run = sample.whole
    cluster, wiring = run.topology.cluster, run.fabric.wiring
    assert cluster is not None
    needs_s = timing.link_bytes / run.fabric.capacity_Bps
    above = (wiring.link_src >= cluster.first_leaf) & (wiring.link_dst >= cluster.first_leaf)
    narrowed_s = float(needs_s[above].max(initial=0.0)) * (1 + sample.narrowed)
    return max(narrowed_s - float(needs_s.max()), 0.0) if sample.narrowed else 0.0
