"""A row of a result: the time of one collective at one size, its bound, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from collsim.core.old_names import old_name
from collsim.core.operations import operation
from collsim.core.tabular import plain
from collsim.core.units import format_size
from collsim.simulation.method import Method
from collsim.simulation.row_fields import CRITICAL, FIELDS

if TYPE_CHECKING:
    from collsim.simulation.link_bytes import LinkBytes

__all__ = ["WIDE", "GroupTime", "Limit", "LinkLoad", "Row", "TierLoad", "ranked", "width_notes"]


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Utilisation of a link: bytes carried over what it could have carried in the time of the collective."""

    link: str
    utilisation: float


@dataclass(frozen=True, slots=True)
class TierLoad:
    """What a collective sends over one tier of the machine, in one direction, flags of protocols included.

    *tier* is ``node`` (links between GPUs and their switches), ``bus`` (from a GPU to an adapter or processor, PCIe),
    ``adapter`` (into the network) or ``fabric`` (between switches). *sender* is the busiest GPU, adapter or link,
    *sent_bytes* what it sends, *line_Bps* the rate of its links together; *node_bytes* is what the node that sends most
    sends over the tier, 0 between switches, *total_bytes* of all senders.
    """

    tier: str
    sender: str
    sent_bytes: float
    line_Bps: float
    total_bytes: float
    node_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that decides a part of the time of a collective: a constant of the library's profile, or a wire.

    *name* is the key of the constant in the profile, or a link; *time_s* is the part of the time that follows it. Of a
    wire, *links* counts those loaded alike, *utilisation* is bytes carried over capacity times time, and *half_rate_s*
    how much longer the call would take at half the rate of the wires, as far as its slowest chain tells. *constant* is
    the full key in the file of *profile*, None where the wire is bare.
    """

    kind: str
    name: str
    time_s: float
    links: int = 0
    utilisation: float | None = None
    half_rate_s: float | None = None
    profile: str | None = None
    constant: str | None = None
    value: str | None = None
    status: str | None = None
    source: str | None = None

    def words(self, whole_s: float) -> str:
        """Return the limit as a phrase; of a wire how busy it is, of a constant which part of *whole_s* follows it."""
        if self.utilisation is not None:
            return f"{self.name}{f' +{self.links - 1}' if self.links > 1 else ''} busy {self.utilisation:.0%}"
        value = f" {self.value}" if self.value else ""
        kind = "host " if self.kind == "host" else ""
        return f"{kind}{self.name}{value} {self.time_s / whole_s:.0%}"


@dataclass(frozen=True, slots=True)
class GroupTime:
    """Time of one of several groups while all ran at once: its GPUs in rank order, the algorithm, and the bandwidth."""

    gpus: tuple[int, ...]
    algo: str
    proto: str | None
    time_s: float
    algbw_Bps: float
    busbw_Bps: float


@dataclass(frozen=True, slots=True, repr=False)
class Row:
    """One collective at one size.

    Where several groups run it at once, *groups* counts them, *ranks* are those of one group, and times and bandwidths
    are those of the slowest; *group_times* holds them all, and is empty for one group.

    The columns of nccl-tests (size, count, type, redop, root, time, algbw, busbw) have their meaning there; `root` is
    -1 if the operation has none. *bottleneck* names the busiest links, *bottleneck_links* counts those within a
    thousandth of the busiest; *critical_s* splits the time of the slowest chain of transfers into launch, latency, flow
    at the channels' own rate and flow held back by links. A measured time lies between the interval ends with 90 %
    confidence; they are None where nobody measured how far predictions are off, and *wide_because* says why if they are
    far apart. Where something failed, *healthy_time_s* and *healthy_algo* (with its protocol) are of the machine in
    order, else None. *asked* is the name or choice that the row answers, *algo* and *proto* are what ran for it.

    Where the run was repeated over seeds of the network's hash, *draw_times_s* holds the times in the order of the
    seeds, and everything else is of the median draw, that of *hash_seed*; else it is empty, and the seed None.

    Irregular traffic may be solved within a *tolerance*, 0 if the row is exact: *perturbed* is the part of all bytes
    moved too much or too little, *raised_s* by how much the time was raised to what the busiest link needs. If asked
    for, *bracket_lo_s* is what the load of links asks for, and *bracket_hi_s* a time from above. They are also there
    where the delay by what has failed was simulated among some nodes: without it, and with twice as much.

    *tiers* is what the busiest sender of each tier of the machine sends, and *algo_bound_s* what the busiest link needs
    for its bytes at line rate: no run of this algorithm is faster, while *lower_bound_s* holds for all algorithms.

    *loads* is what every link carries, where a caller inside collsim asked for it; no format shows it.
    """

    op: str
    algo: str
    proto: str | None
    channels: int
    ranks: int
    groups: int
    dtype: str
    redop: str
    root: int
    count: int
    requested_bytes: int
    size_bytes: int
    time_s: float
    lower_bound_s: float
    bound: str
    bottleneck: tuple[LinkLoad, ...]
    bottleneck_links: int
    critical_s: Mapping[str, float]
    method: Method
    classes: int
    tolerance: float = 0.0
    perturbed: float = 0.0
    raised_s: float = 0.0
    bracket_lo_s: float | None = None
    bracket_hi_s: float | None = None
    time_lo_s: float | None = None
    time_hi_s: float | None = None
    wide_because: str = ""
    healthy_time_s: float | None = None
    healthy_algo: str | None = None
    group_times: tuple[GroupTime, ...] = ()
    hash_seed: int | None = None
    draw_times_s: tuple[float, ...] = ()
    asked: str = ""
    limits: tuple[Limit, ...] = ()
    tiers: tuple[TierLoad, ...] = ()
    algo_bound_s: float = 0.0
    loads: LinkBytes | None = field(default=None, compare=False)

    @property
    def path(self) -> str:
        """How the row was computed, in words."""
        return str(self.method)

    @property
    def time_min_s(self) -> float | None:
        """Least time of all draws of the hash; None without draws."""
        return min(self.draw_times_s, default=None)

    @property
    def time_p95_s(self) -> float | None:
        """Time that 95 % of the draws do not exceed; None without draws."""
        return ranked(self.draw_times_s, 0.95) if self.draw_times_s else None

    @property
    def time_max_s(self) -> float | None:
        """Most time of all draws; None without draws."""
        return max(self.draw_times_s, default=None)

    @property
    def slowdown(self) -> float | None:
        """Time over that of the machine in which nothing failed; None if nothing did."""
        return self.time_s / self.healthy_time_s if self.healthy_time_s else None

    @property
    def label(self) -> str:
        """Algorithm and protocol."""
        return self.algo if self.proto is None else f"{self.algo}/{self.proto}"

    @property
    def algbw_Bps(self) -> float:
        """Size over time."""
        return self.size_bytes / self.time_s if self.time_s > 0 else 0.0

    @property
    def busbw_Bps(self) -> float:
        """Algorithm bandwidth times the factor of the operation."""
        return self.algbw_Bps * operation(self.op).busbw_factor(self.ranks)

    @property
    def total_algbw_Bps(self) -> float:
        """Algorithm bandwidths of all groups together."""
        return sum(group.algbw_Bps for group in self.group_times) if self.group_times else self.algbw_Bps

    @property
    def total_busbw_Bps(self) -> float:
        """Bus bandwidths of all groups together."""
        return sum(group.busbw_Bps for group in self.group_times) if self.group_times else self.busbw_Bps

    @property
    def efficiency(self) -> float:
        """Lower bound over time: 1 is as fast as the wires allow."""
        return self.lower_bound_s / self.time_s if self.time_s > 0 else 0.0

    @property
    def limited_by(self) -> str:
        """What limits, in words: the largest part of the time, and with it the wires if they would count at half rate;
        beside wires the largest constant, if as much as a third follows it. Where what has failed delays, its link has
        a part of its own, and both wires are told.
        """
        if not self.limits or self.time_s <= 0:
            return "none"
        first, *others = self.limits
        told = [first, *(each for each in others if each.kind != first.kind and self._counts(each))]
        wires = [each for each in self.limits if each.utilisation is not None]
        by_delay = [each for each in wires if each not in told[:2]] if len(wires) > 1 else []
        return ", ".join(each.words(self.time_s) for each in (*told[:2], *by_delay))

    limit = old_name("limit", "limited_by")

    def __repr__(self) -> str:
        size, who = format_size(self.size_bytes), f"{self.groups} x {self.ranks}" if self.groups > 1 else self.ranks
        return (
            f"Row({self.op} {self.label} of {size} on {who} ranks: {self.time_s * 1e6:.2f} us, "
            f"busbw {self.busbw_Bps / 1e9:.2f} GB/s, bound {self.lower_bound_s * 1e6:.2f} us ({self.bound}), "
            f"limited by {self.limited_by})"
        )

    def _counts(self, second: Limit) -> bool:
        """Return True if a limit that is not the first has to be named: any wire, a constant of a third of the time."""
        return second.utilisation is not None or (second.kind != "wire" and 3 * second.time_s >= self.time_s)

    @property
    def host_s(self) -> float:
        """Part of the time that the host decides: what it takes to start a call."""
        return sum(limit.time_s for limit in self.limits if limit.kind == "host")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the JSON schema wants it, in the order of its fields."""
        return {entry.key: plain(getattr(self, entry.key)) for entry in FIELDS}

    def to_record(self) -> dict[str, Any]:
        """Return the row as single values: the busiest link stands for the list, each critical time on its own.

        The times of single groups and draws are left out.

        >>> import collsim
        >>> record = collsim.simulate("mi300x_ubb8", "all_to_all", "1G", profile="ideal").rows[0].to_record()
        >>> record["bottleneck_link"], record["critical_launch_s"]
        ('gpu0->gpu1', 0.0)
        """
        record = {entry.key: getattr(self, entry.key) for entry in FIELDS if entry.flat}
        busiest = self.bottleneck[0] if self.bottleneck else None
        record["bottleneck_link"] = busiest.link if busiest else None
        record["bottleneck_utilisation"] = busiest.utilisation if busiest else None
        record |= _of_limits(self.limits)
        return record | {f"critical_{kind.replace(' ', '_')}_s": self.critical_s.get(kind, 0.0) for kind in CRITICAL}


def _of_limits(limits: Sequence[Limit]) -> dict[str, Any]:
    """Return the first limit, and the first wire, as single values."""
    first = limits[0] if limits else None
    wire = next((each for each in limits if each.utilisation is not None), None)
    keys = ("kind", "name", "time_s", "profile", "constant", "value", "status", "source")
    record = {f"limit_{key}": getattr(first, key, None) for key in keys}
    return record | {f"limit_wire_{key}": getattr(wire, key, None) for key in ("name", "time_s", "half_rate_s")}


def ranked(times_s: Sequence[float], share: float) -> float:
    """Return the least of *times_s* that at least the given share of them does not exceed.

    >>> ranked([4.0, 1.0, 3.0, 2.0], 0.5), ranked(range(1, 101), 0.95)
    (2.0, 95)
    """
    return sorted(times_s)[max(math.ceil(share * len(times_s)) - 1, 0)]


WIDE = 2.5
"""An interval that reaches farther from the prediction is told why."""


def width_notes(rows: Iterable[tuple[int, str]]) -> list[str]:
    """Return a note for each reason for which intervals are wide, of rows given by size and reason."""
    sizes: dict[str, list[int]] = {}
    for size_bytes, why in rows:
        if why:
            sizes.setdefault(why, []).append(size_bytes)
    notes = []
    for why, its in sizes.items():
        ends = dict.fromkeys(format_size(size) for size in (min(its), max(its)))
        notes.append(f"low to high reaches farther than {WIDE:g} times at {' to '.join(ends)}: {why}")
    return notes
