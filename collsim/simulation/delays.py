"""Delays by what has failed, in an all-to-all by a library's messages on a machine too large to simulate them all.

Whoever lost links keeps others waiting, who keep others waiting in later rounds, and channels fall out of step. So no
rank stands for all, as one does where nothing failed. How much later the last one ends is simulated message by message
among some of the nodes, once as they are and once in order. Rounds follow each other in the same way on the whole
machine, so the delay grows with their number. Where that is not quite so is measured in tests, and rows say between
which times they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collsim.simulation.concurrent import GroupTask, time_together
from collsim.simulation.damage_sample import Sample
from collsim.simulation.limits import LEAST_PART, busy, by_time
from collsim.simulation.result import Limit
from collsim.simulation.runs import LoweredRun
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
        late, in_order = (time_together([part], ((0,),))[0] for part in (self.damaged, self.healthy))
        own_s = max(late.time_s - in_order.time_s, 0.0) * sample.rounds
        needs_s = float((timing.link_bytes / sample.whole.fabric.capacity_Bps).max())
        shared_s = max(_narrowed_s(timing, sample) - needs_s, 0.0) if sample.narrowed.share else 0.0
        off = NOT_QUITE_ALIKE if sample.uneven else ALIKE
        added_s = max(own_s, shared_s)
        time_s = timing.time_s + added_s
        busiest = _shared(timing, sample, time_s) if shared_s > own_s else _busiest(late, self.damaged.run)
        return replace(
            timing,
            limits=_limits(timing, sample.whole, busiest, added_s),
            time_s=time_s,
            critical_s={**timing.critical_s, "links": timing.critical_s.get("links", 0.0) + added_s},
            method=replace(timing.method, part_delay=True),
            bracket_s=(
                max(timing.time_s * (1 - off), timing.bound.time_s),
                timing.time_s * (1 + off) + MOST_LATER * added_s,
            ),
        )


def _limits(
    timing: Timing, run: LoweredRun, busiest: Limit | None, added_s: float
) -> tuple[tuple[Limit, int | None], ...]:
    """Return the limits of the machine in order with what a delay adds to the part of the wires.

    These are named by the link that is busiest with it: that in order, or *busiest*, which what has failed makes busy.
    """
    time_s = timing.time_s + added_s
    wire, link = next((entry for entry in timing.limits if entry[1] is not None), (busiest, None))
    if wire is None or added_s < LEAST_PART * time_s:
        return timing.limits
    part_s, slower_s = (0.0, 0.0) if link is None else (wire.time_s, wire.half_rate_s or 0.0)
    if link is not None and busiest is not None:
        in_order = timing.link_bytes[link] / (run.fabric.capacity_Bps[link] * time_s)
        if busiest.utilisation is not None and busiest.utilisation > in_order:
            wire, link = busiest, None
    told = replace(wire, time_s=part_s + added_s, half_rate_s=slower_s + added_s)
    return by_time([*(entry for entry in timing.limits if entry[1] is None), (told, link)])


def _busiest(late: Timing, run: LoweredRun) -> Limit | None:
    """Return the link that limits the sample, as busy as it is there; None where no link does."""
    utilisation = late.link_bytes / (run.fabric.capacity_Bps * late.time_s)
    told = busy(late.limits, utilisation, np.ones(len(utilisation), dtype=np.int64))
    return next((limit for limit in told if limit.utilisation is not None), None)


def _shared(timing: Timing, sample: Sample, time_s: float) -> Limit:
    """Return the links between switches that need longest, by the bytes of the whole machine."""
    found = sample.narrowed
    return Limit("wire", found.link, 0.0, links=found.links, utilisation=_narrowed_s(timing, sample) / time_s)


def _narrowed_s(timing: Timing, sample: Sample) -> float:
    """Return what links between switches need for their bytes: in order, or by what has failed.

    The busiest of those in order is taken to be the one that has lost most.
    """
    run = sample.whole
    cluster, wiring = run.topology.cluster, run.fabric.wiring
    assert cluster is not None
    above = (wiring.link_src >= cluster.first_leaf) & (wiring.link_dst >= cluster.first_leaf)
    needs_s = float((timing.link_bytes / run.fabric.capacity_Bps)[above].max(initial=0.0))
    return needs_s * (1 + sample.narrowed.share)
