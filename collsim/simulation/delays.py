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
from collsim.simulation.damage_sample import Sample, slower_links
from collsim.simulation.limits import EQUALLY_LOADED, LEAST_PART, by_time, limit_of_hurt
from collsim.simulation.link_bytes import HurtLink
from collsim.simulation.result import Limit
from collsim.simulation.timing import Timing

__all__ = ["Delay"]

MOST_LATER = 2.0
"""The delay of the whole was less than so many times what that of a sample comes to, on two to four times as many nodes
(tests/property/test_delays.py, docs/scale.md)."""
NOT_QUITE_ALIKE = 0.05
"""How far times by one rank were off at most where ranks are not quite alike (docs/scale.md, "Nearly alike"); others
were off by 2e-5, which is not told."""


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """What a sample of the nodes exchanges on the damaged machine, and in order."""

    sample: Sample
    damaged: GroupTask
    healthy: GroupTask

    def of(self, timing: Timing) -> Timing:
        """Return the *timing* of the machine in order with how much later the last one ends, and times on both sides.

        The lower one is without any delay, or what a slower link needs for its bytes; the upper one with twice as much.
        """
        sample = self.sample
        late, in_order = (time_together([part], ((0,),))[0] for part in (self.damaged, self.healthy))
        own_s = max(late.time_s - in_order.time_s, 0.0) * sample.rounds
        needs_s = float((timing.link_bytes / sample.whole.fabric.capacity_Bps).max())
        shared_s = max(_narrowed_s(timing, sample) - needs_s, 0.0) if sample.narrowed.share else 0.0
        slower = _slower(timing, sample)
        least_s = max(timing.bound.time_s, slower.busy_s if slower else 0.0)
        added_s = max(own_s, shared_s, least_s - timing.time_s)
        time_s = timing.time_s + added_s
        told = _shared(timing, sample) if shared_s > own_s else self._busier(late, in_order, time_s)
        if slower and (told is None or slower.busy_s >= told.busy_s * (1 - EQUALLY_LOADED)):
            told = slower
        off = NOT_QUITE_ALIKE if sample.uneven else 0.0
        return replace(
            timing,
            limits=_limits(timing, sample, told, added_s),
            hurt=told,
            time_s=time_s,
            critical_s={**timing.critical_s, "links": timing.critical_s.get("links", 0.0) + added_s},
            method=replace(timing.method, part_delay=True),
            bracket_s=(max(timing.time_s * (1 - off), least_s), timing.time_s * (1 + off) + MOST_LATER * added_s),
        )

    def _busier(self, late: Timing, in_order: Timing, time_s: float) -> HurtLink | None:
        """Return the link that limits the sample, as busy as it is there, if it is by what has moved to it.

        None where it needs no longer than in order, or is one that is slower: of these the whole machine's bytes are
        known.
        """
        run, healthy = self.damaged.run.fabric, self.healthy.run.fabric
        link = next((link for _, link in late.limits if link is not None), None)
        if link is None:
            return None
        topology = self.sample.damaged.topology
        assert topology.damage is not None
        place = int(topology.damage.links[link])
        busy_s = late.link_bytes / run.capacity_Bps
        before_s = float(in_order.link_bytes[place] / healthy.capacity_Bps[place])
        if busy_s[link] <= before_s * (1 + EQUALLY_LOADED) or place in slower_links(topology)[0]:
            return None
        alike = int((np.abs(busy_s - busy_s[link]) <= busy_s[link] * EQUALLY_LOADED).sum())
        own_s, rate_Bps = float(busy_s[link]) / late.time_s * time_s, float(run.capacity_Bps[link])
        return HurtLink(run.wiring.link_name(link), alike, own_s, rate_Bps=rate_Bps)


def _limits(
    timing: Timing, sample: Sample, hurt: HurtLink | None, added_s: float
) -> tuple[tuple[Limit, int | None], ...]:
    """Return the limits of the machine in order, and of the delay what has failed, by the link that is *hurt*.

    Where that is busier than all in order its bytes are the part of the wires too; else it has a part of its own.
    """
    time_s = timing.time_s + added_s
    if added_s < LEAST_PART * time_s:
        return timing.limits
    if hurt is None:
        assert sample.damaged.topology.damage is not None
        return by_time([*timing.limits, (Limit("wire", sample.damaged.topology.damage.summary, added_s), None)])
    wire, link = next((entry for entry in timing.limits if entry[1] is not None), (None, None))
    own = limit_of_hurt(hurt, added_s, time_s)
    if wire is None or timing.link_bytes[link] > hurt.busy_s * sample.whole.fabric.capacity_Bps[link]:
        return by_time([*timing.limits, (own, None)])
    both_s = wire.time_s + added_s, (wire.half_rate_s or 0.0) + added_s
    joined = replace(own, time_s=both_s[0], half_rate_s=both_s[1])
    return by_time([*(entry for entry in timing.limits if entry[1] is None), (joined, None)])


def _slower(timing: Timing, sample: Sample) -> HurtLink | None:
    """Return the slower link that needs longest for its bytes, on the whole machine; None if none has any.

    It gets the same bytes as in order, unless others failed.
    """
    topology, fabric = sample.damaged.topology, sample.whole.fabric
    assert topology.damage is not None
    link, share = slower_links(topology)
    rate_Bps = fabric.capacity_Bps[link] * share
    busy_s = timing.link_bytes[link] / rate_Bps
    if not busy_s.any():
        return None
    most = int(np.argmax(busy_s))
    alike = int((busy_s >= busy_s[most] * (1 - EQUALLY_LOADED)).sum())
    line_s = float((timing.link_bytes[link] / (fabric.raw_capacity_Bps[link] * share)).max())
    return HurtLink(
        fabric.wiring.link_name(int(link[most])),
        alike,
        float(busy_s[most]),
        0.0 if topology.damage.fail else line_s,
        float(rate_Bps[most]),
    )


def _shared(timing: Timing, sample: Sample) -> HurtLink:
    """Return the links between switches that need longest, by the bytes of the whole machine."""
    return HurtLink(sample.narrowed.link, sample.narrowed.links, _narrowed_s(timing, sample))


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
