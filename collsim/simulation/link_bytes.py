"""Bytes on every link of a run, by tier of the machine: what pictures and explanations of a row need of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collsim.schedule import Schedule
    from collsim.topology import Wiring

__all__ = ["Flows", "HurtLink", "LinkBytes", "Sent", "Spans", "Tier"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
NUMBERS = re.compile(r"[\d/.:-]+$")


class HurtLink(NamedTuple):
    """The link that needs longest for its bytes by what has failed, of as many alike.

    *busy_s* is what it needs at *rate_Bps*, which traffic reaches, *line_s* at line rate; both of these are 0 where
    nobody knows them.
    """

    name: str
    links: int
    busy_s: float
    line_s: float = 0.0
    rate_Bps: float = 0.0

    def utilisation(self, time_s: float) -> float:
        """Return what it needs over *time_s*."""
        return min(self.busy_s / time_s, 1.0)


@dataclass(frozen=True, slots=True)
class Tier:
    """Links between parts of two kinds, one way.

    Attributes
    ----------
    name : str
        Kinds of both ends, such as ``gpu->nvsw`` or ``leaf->spine``.
    links : int
        How many of them there are on the machine.
    bytes : float
        What all of them carry.
    mean, busiest : float
        Bytes carried over capacity times time: of all of them together, and of the busiest.
    link : str
        The busiest.
    capacity_Bps : float
        Of the busiest.
    """

    name: str
    links: int
    bytes: float
    mean: float
    busiest: float
    link: str
    capacity_Bps: float


class Spans(NamedTuple):
    """Transfers of a schedule in time, as far as they were simulated: arrays of one length.

    Attributes
    ----------
    src, dst : int64[n]
        Ranks; below 0 the switches.
    step, channel : int64[n]
    adds : bool[n]
        Whether the receiver adds what it gets.
    ready_s, start_s, finish_s : float64[n]
        When it began to wait for its latency, to flow, and was there.
    """

    src: Int
    dst: Int
    step: Int
    channel: Int
    adds: NDArray[np.bool_]
    ready_s: Float
    start_s: Float
    finish_s: Float


class Sent(NamedTuple):
    """What one group of ranks sends, transfer by transfer: arrays of one length.

    Attributes
    ----------
    gpus : tuple of int
        The GPU of each rank.
    spans : Spans
        When; exact.
    size_bytes : float64[n]
        Of one message.
    copies : int64[n]
        How many channels do the same side by side, each with a message like this: `Spans.channel` is the first.
    """

    gpus: tuple[int, ...]
    spans: Spans
    size_bytes: Float
    copies: Int


class Flows(NamedTuple):
    """Every transfer of a run, and the rates of links between any two changes.

    Attributes
    ----------
    groups : tuple of Sent
        One for each group of ranks.
    link, when_s, rate_Bps : int64[k], float64[k], float64[k]
        Of each link in use, in turn, its rate from each time on, in the order of times; the last is 0.
    """

    groups: tuple[Sent, ...]
    link: Int
    when_s: Float
    rate_Bps: Float


@dataclass(frozen=True, eq=False)
class LinkBytes:
    """What the links of a run carry.

    Attributes
    ----------
    wiring : Wiring
        Of the machine, or of the small part of it that was simulated.
    bytes, capacity_Bps : float64[n_links]
    members : int64[n_links]
        How many links of the machine each stands for.
    rank_node : int64[n_ranks]
        The GPU of each rank that was simulated.
    schedule : Schedule or None
        What moves them, of the slowest group; None where a machine was simulated by a small part of it.
    spans : Spans or None
        When its transfers waited and flowed.
    flows : Flows or None
        Every transfer of all groups with exact rates, where they were asked for.
    hurt : HurtLink or None
        The link by which what has failed delays, where all else is as in order.
    """

    wiring: Wiring
    bytes: Float
    capacity_Bps: Float
    members: Int
    rank_node: Int
    schedule: Schedule | None = None
    spans: Spans | None = None
    flows: Flows | None = None
    hurt: HurtLink | None = None

    @cached_property
    def busy_s(self) -> Float:
        """float64[n_links]: seconds that each link needs for its bytes."""
        return np.asarray(self.bytes / self.capacity_Bps)

    @property
    def busiest_s(self) -> float:
        """Seconds that the busiest link needs for its bytes: no schedule with such bytes is faster."""
        return float(self.busy_s.max(initial=0.0))

    @property
    def even_s(self) -> float:
        """Seconds that the busiest tier needs if all its links share its bytes evenly.

        Of the links of GPUs those of ranks count, used or not; of others those in use.
        """
        names, which = self._kinds()
        of_rank = np.zeros(self.wiring.n_nodes, dtype=np.bool_)
        of_rank[self.rank_node] = True
        gpu = np.arange(self.wiring.n_nodes) < self.wiring.n_gpus
        serves = np.ones(self.wiring.n_links, dtype=np.bool_)
        for ends in (self.wiring.link_src, self.wiring.link_dst):
            serves &= ~gpu[ends] | of_rank[ends]
        serves &= (self.bytes > 0) | (gpu[self.wiring.link_src] | gpu[self.wiring.link_dst])
        counts = self.members * serves
        carried = np.bincount(which, weights=self.bytes * counts, minlength=len(names))
        room = np.bincount(which, weights=self.capacity_Bps * counts, minlength=len(names))
        return float(np.divide(carried, room, out=np.zeros(len(room)), where=room > 0).max(initial=0.0))

    def tiers(self, time_s: float) -> list[Tier]:
        """Return what the links of each tier carry in *time_s*, in the order in which the wiring has them."""
        names, which = self._kinds()
        found = []
        for number, name in enumerate(names):
            own = np.flatnonzero((which == number) & (self.members > 0))
            carried = float((self.bytes[own] * self.members[own]).sum())
            if not len(own) or carried <= 0:
                continue
            top = int(own[np.argmax(self.busy_s[own])])
            room = float((self.capacity_Bps[own] * self.members[own]).sum()) * time_s
            found.append(
                Tier(
                    name, int(self.members[own].sum()), carried, min(carried / room, 1.0),
                    min(float(self.busy_s[top]) / time_s, 1.0), self.wiring.link_name(top),
                    float(self.capacity_Bps[top]),
                )
            )  # fmt: skip
        return found if self.hurt is None else [_with(self.hurt, tier, time_s) for tier in found]

    def _kinds(self) -> tuple[list[str], Int]:
        """Return the names of tiers, and int64[n_links], the tier of each link."""
        kinds = [kind_of(name) for name in self.wiring.node_names]
        distinct = list(dict.fromkeys(kinds))
        number = np.array([distinct.index(kind) for kind in kinds], dtype=np.int64)
        pair = number[self.wiring.link_src] * len(distinct) + number[self.wiring.link_dst]
        keys, first, which = np.unique(pair, return_index=True, return_inverse=True)
        place = np.argsort(np.argsort(first))
        order = np.argsort(first)
        names = [f"{distinct[int(keys[i]) // len(distinct)]}->{distinct[int(keys[i]) % len(distinct)]}" for i in order]
        return names, np.asarray(place[which], dtype=np.int64)


def _with(hurt: HurtLink, tier: Tier, time_s: float) -> Tier:
    """Return a tier with the link that is *hurt* as its busiest, if it is."""
    busiest = hurt.utilisation(time_s)
    if busiest <= tier.busiest or tier.name != "->".join(map(kind_of, hurt.name.split("->"))):
        return tier
    return replace(tier, busiest=busiest, link=hurt.name, capacity_Bps=hurt.rate_Bps or tier.capacity_Bps)


def kind_of(name: str) -> str:
    """Return the kind of a part by its name.

    >>> kind_of("n12.gpu3"), kind_of("leaf0"), kind_of("nvsw17"), kind_of("pod1.spine2")
    ('gpu', 'leaf', 'nvsw', 'spine')
    """
    return NUMBERS.sub("", name.rpartition(".")[2]) or name
