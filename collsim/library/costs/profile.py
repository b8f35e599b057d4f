"""Profiles: what a library adds to the raw links, and how far off predictions with it are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from collsim.library.costs.channel_costs import BETWEEN, NEAREST, STAND_IN, Origin, Protocol

__all__ = ["BANDS", "BANDS_BETWEEN", "NetworkCosts", "Profile", "Protocol", "Scatter", "band_of"]

BANDS = {"small": 0, "middle": 64 * 2**10, "large": 2**20, "bulk": 32 * 2**20}
"""Bands of sizes in which errors are told apart, with their first size in bytes: what a step waits for counts up to 32
MiB."""


SLICE_OF_CHUNK = 1 / 2
"""A proxy takes a turn for each slice: a chunk of broadcast and reduce is one, of a ring with Simple two
(BROADCAST_CHUNKSTEPS and ALLREDUCE_SLICESTEPS in NCCL src/include/collectives.h)."""
BANDS_BETWEEN = {**BANDS, "whole": 512 * 2**20}
"""Bands over nodes: from 512 MiB on hardly anything but links counts."""


def band_of(size_bytes: int, bands: dict[str, int] = BANDS) -> str:
    """Return the band of a size.

    >>> band_of(8), band_of(65536), band_of(2**30), band_of(2**30, BANDS_BETWEEN)
    ('small', 'middle', 'bulk', 'whole')
    """
    return next(name for name in reversed(bands) if size_bytes >= bands[name])


REPLAYS = 20
"""A graph is taken to be replayed so many times in a row where nobody says how often. Then, and for a framework that
replays one step after another, next to nothing is left of what its first start takes (chosen, as usual for calls)."""
FARTHER = 1.0
"""Every doubling of the nodes beyond those of the fit adds an error of its own, so many times that of measured nodes in
the same band of sizes; all are independent, so squares of logarithms add. Of training rows of Alps on 4 and 8 nodes,
left out while those on 2 stay, 90 % lie within 1.5 and 1.7 times as far as those (median of five bands of sizes, of
which few have more than five rows): squares 2.25 and 2.89, where 1 + `FARTHER` and 1 + 2 `FARTHER` fit best with 1.
Beyond two doublings, and on other networks, no training row tells: the same law is taken (chosen)."""
UNSEEN_REACH = 2.0
"""Intervals reach so many times as far where none of the logs says how good constants are: those of trees that have
what rings have, and from 1 MiB on those of GPUs or networks that were not measured (chosen)."""
FEW_LOGS = 5
"""Fewer logs do not tell what operations differ by that none of them holds (chosen, as many as judge an interval)."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Errors of predicted times against measured ones, over rows that took no part in the fit that predicted them.

    Where no row could be left out, *fitted* says that the rows are those of the fit itself, whose errors say little of
    other logs: no interval is made of them.

    Attributes
    ----------
    low, high : float
        Of 100 measured times, 90 lie between these multiples of the predicted one.
    median, p90 : float
        Of the absolute relative error.
    rows, logs : int
        What it was counted on.
    fitted : bool
        Whether the fit saw these rows.
    lent : str
        Profile of a relative that lends the ends of the interval, where no row could be left out; else empty.
    ops : tuple of str
        Operations of those rows; empty if nobody says.
    """

    low: float
    high: float
    median: float
    p90: float
    rows: int
    logs: int
    fitted: bool = False
    lent: str = ""
    ops: tuple[str, ...] = ()

    @property
    def is_told(self) -> bool:
        """True if an interval can be made of it."""
        return bool(self.lent) or not self.fitted

    def widened(self, times: float) -> Scatter:
        """Return the same with ends that are *times* as far off, as logarithms."""
        return replace(self, low=self.low**times, high=self.high**times)

    def farther(self, apart: float) -> Scatter:
        """Return the same with another, independent error, whose ends are *apart* off as logarithms: squares add.

        >>> told = Scatter(0.5, 2.0, 0.1, 0.4, 20, 9)
        >>> told.farther(0.0) == told, round(told.farther(math.log(2)).high, 3), round(2 ** math.sqrt(2), 3)
        (True, 2.665, 2.665)
        """
        if not apart:
            return self
        low, high = (math.exp(math.hypot(math.log(end), apart)) for end in (self.low, self.high))
        return replace(self, low=1 / low, high=high)

    def for_op(self, op: str) -> Scatter:
        """Return the same with ends `UNSEEN_REACH` times as far off where few logs hold rows, and none of *op*.

        >>> seen = Scatter(0.9, 1.1, 0.03, 0.08, 20, 2, ops=("all_reduce",))
        >>> seen.for_op("all_reduce").high, round(seen.for_op("all_gather").high, 2)
        (1.1, 1.21)
        """
        alike = op.removesuffix("_v")  # messages of unequal sizes
        if not self.ops or alike in self.ops or self.logs >= FEW_LOGS or self.lent:
            return self
        return self.widened(UNSEEN_REACH)

    def borrowed(self, lender: str, its: Scatter) -> Scatter:
        """Return the same with the ends of a relative, `UNSEEN_REACH` times as far off, or farther if these are.

        What the relative itself has from another is lent on as it is.
        """
        far = its if its.lent else its.widened(UNSEEN_REACH)
        return replace(self, low=min(self.low, far.low), high=max(self.high, far.high), lent=its.lent or lender)

    def at_least(self, factor: float) -> Scatter:
        """Return the same with ends at least *factor* off: what something that was assumed may differ by."""
        return replace(self, low=min(self.low, 1 / factor), high=max(self.high, factor))


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """Costs of steps between nodes, instead of the figures of a node.

    Attributes
    ----------
    name, title : str
    systems : tuple of str
        Clusters that the constants were fitted to; nodes of which ``--nodes`` makes such a cluster.
    networks, gpus : tuple of str
        Technologies that they are meant for, that of the fit first, and parts of ``gpu.model`` of the nodes.
    measured : tuple of str
        Parts of ``gpu.model`` of the nodes that were measured, and of those with the same chip.
    nodes : int
        Most nodes of a log that was fitted; 0 if none was.
    pooled : bool
        Whether the errors are those of whole sites left out of fits to many: they then hold for any site, twice as
        far off from 1 MiB on where no log has its GPUs on such a network.
    calibrated : bool
        Whether the logs have more rows than the fit had free numbers, and fix some of these.
    families : Mapping of str to Mapping
        `Protocol` by kernel and protocol: overhead, rate of a channel, share of the adapter; kernels that lack cost as
        rings do.
    accuracy : Mapping of str to Mapping
        `Scatter` by kernel and band, of times over nodes.
    """

    name: str = ""
    title: str = ""
    systems: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    nodes: int = 0
    pooled: bool = False
    calibrated: bool = True
    families: Mapping[str, Mapping[str, Protocol]] = field(default_factory=dict, hash=False)
    accuracy: Mapping[str, Mapping[str, Scatter]] = field(default_factory=dict, hash=False)

    def protocol(self, name: str, family: str) -> Protocol | None:
        """Return the costs of a step of a kernel; None on bare wires."""
        kernel = BETWEEN.get(family, family)
        found = self.families.get(kernel, {}).get(name) or self.families.get("ring", {}).get(name)
        if found is None or (name, family) != ("Simple", "rooted"):
            return found
        return replace(found, turn_s=found.turn_s * SLICE_OF_CHUNK)

    def beyond(self, nodes: int, family: str, size_bytes: int) -> float:
        """Return the logarithm of the error that nodes beyond those of the fit add to an interval.

        None for messages: each costs the same, so an error of that is the same share of few and many. No training row
        tells of messages on more nodes than a fit has (chosen). For other kernels errors of doublings add in squares
        (`FARTHER`), each as large as that of the kernel with the nearest ends in the band.

        >>> rings = {"large": Scatter(0.5, 2.0, 0.1, 0.4, 20, 9)}
        >>> costs = NetworkCosts(nodes=8, accuracy={"ring": rings})
        >>> [costs.beyond(nodes, "ring", 2**20) / math.log(2) for nodes in (4, 8, 32 * 4)]
        [0.0, 0.0, 2.0]
        >>> costs.beyond(128, "messages", 2**20)
        0.0
        """
        doublings = math.log2(max(nodes / self.nodes, 1.0)) if self.nodes else 0.0
        if not doublings or BETWEEN.get(family, family) == "messages":
            return 0.0
        ends = [entry.high for bands in self.accuracy.values() if (entry := _entry(bands, size_bytes))]
        return math.sqrt(FARTHER * doublings) * math.log(min(ends, default=1.0))

    def scatters(self) -> dict[str, Mapping[str, Scatter]]:
        """Return the accuracy of every kernel: of those whose costs are another's, the other's.

        Trees that no log shows have that of rings, with ends twice as far off.
        """
        found = dict(self.accuracy)
        if "ring" in found:
            found.setdefault("chain", {band: entry.widened(UNSEEN_REACH) for band, entry in found["ring"].items()})
        return {**{kernel: found[other] for kernel, other in BETWEEN.items() if other in found}, **found}

    def is_measured(self, network: str, gpu: str) -> bool:
        """Return True if logs of that GPU on that technology are among those that the constants were fitted to."""
        return network in self.networks[:1] and any(part in gpu for part in self.measured)

    def elsewhere(self) -> NetworkCosts:
        """Return the same with the errors of GPUs or technologies of which there was no log.

        Below 1 MiB hosts and proxies make them, which differ from site to site whatever the GPU. Kernels that reach as
        far already, because few sites show them, reach no farther.
        """
        least: dict[str, float] = {}
        for bands in self.accuracy.values():
            for band, entry in bands.items():
                least[band] = min(least.get(band, math.inf), entry.high)
        accuracy = {
            kernel: {
                band: entry.at_least(least[band] ** UNSEEN_REACH) if BANDS_BETWEEN[band] >= BANDS["large"] else entry
                for band, entry in bands.items()
            }
            for kernel, bands in self.accuracy.items()
        }
        return replace(self, accuracy=accuracy)

    def covers(self, network: str, gpu: str) -> bool:
        """Return True if the constants are meant for nodes of that GPU on that technology."""
        return network in self.networks and any(part in gpu for part in self.gpus)


@dataclass(frozen=True, slots=True)
class Profile:
    """Constants of a library on a system.

    Attributes
    ----------
    name, title : str
    calibrated : bool
        Whether measurements stand behind the constants: more rows than the fit had free numbers, which fix some.
    launch_s : float
        Fixed cost of one collective.
    message_overhead_s : float
        Added to the latency of every transfer.
    channel_rate_Bps : float
        What one channel (CTA) can move; inf if it never limits.
    achievable_rate : bool
        Links run at their achievable rate instead of the line rate.
    latency : bool
        Latencies of links and switches count.
    sha256 : str
    source : str
        What `load_profile` takes to load it again: a shipped name or the path of a file.
    protocols : Mapping of str to Protocol
        Protocols that differ from the figures above, by name.
    families : Mapping of str to Mapping
        Kernels with protocols of their own: rings, chains, rooted operations, messages and others.
    floor_s : float
        What a call takes at least, because the host or the launch takes so long; longer calls hide it.
    thread_launch_s : float
        For every further GPU that one host thread starts work on.
    wait_s : float
        How much later the last GPU of a thread starts than the first.
    skew_s : float
        How much later than the first the last rank begins each call; nobody is done before it has begun.
    systems : tuple of str
        Topologies that the constants are meant for.
    gpus : tuple of str
        Parts of ``gpu.model`` of the systems' relatives.
    peers : tuple of str
        Distances up to which GPUs reached each other's memory in the measurements; empty where they are linked.
    library : str
        What ran in the measurements, such as ``nccl-2.28``; the algorithm is then chosen as this library does.
    host : str
        Kind of host that *floor_s* was measured on, of `collsim.library.costs.hosts`; empty if nobody says.
    derived : str
        How the constants follow from those of a relative, if none was fitted on the systems; else empty.
    checked : str
        Measurements that a derived profile was compared with, none of them fitted: intervals are then the relative's.
    network : NetworkCosts
        What steps between nodes cost instead.
    accuracy : Mapping of str to Mapping
        `Scatter` by family and band.
    launches : Mapping of str to Profile
        Other ways to launch, ``graph`` and ``registered``, with constants of their own.
    origins : Mapping of str to Origin
        By attribute, of the constants that hold for every kernel.
    """

    name: str
    title: str
    calibrated: bool
    launch_s: float
    message_overhead_s: float
    channel_rate_Bps: float
    achievable_rate: bool
    latency: bool
    sha256: str
    source: str = ""
    protocols: Mapping[str, Protocol] = field(default_factory=dict, hash=False)
    families: Mapping[str, Mapping[str, Protocol]] = field(default_factory=dict, hash=False)
    floor_s: float = 0.0
    thread_launch_s: float = 0.0
    wait_s: float = 0.0
    skew_s: float = 0.0
    systems: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    library: str = ""
    host: str = ""
    derived: str = ""
    checked: str = ""
    network: NetworkCosts = field(default_factory=NetworkCosts, hash=False)
    accuracy: Mapping[str, Mapping[str, Scatter]] = field(default_factory=dict, hash=False)
    launches: Mapping[str, Profile] = field(default_factory=dict, hash=False)
    origins: Mapping[str, Origin] = field(default_factory=dict, hash=False, compare=False, repr=False)

    @property
    def usual(self) -> Protocol:
        """Costs of a protocol of which the profile says nothing."""
        return Protocol(self.message_overhead_s, self.channel_rate_Bps, origins=self.origins)

    def fits(self, system: str) -> bool:
        """Return True if measurements of *system* stand behind the constants."""
        return self.calibrated and not self.derived and system in self.systems

    def protocol(self, name: str, family: str = "") -> Protocol:
        """Return the costs of protocol *name*: of the family, of what stands in for it, or of every kernel."""
        if place := self.stands_for(name, family):
            return self.families[place[0]][place[1]]
        return self.protocols.get(name, self.usual)

    def stands_for(self, name: str, family: str) -> tuple[str, str] | None:
        """Return the kernel and protocol whose constants hold; None: what the profile says of every kernel.

        A profile of kernels that says nothing of one, nor of every kernel, must not make it as fast as the wires.
        """
        kernel = family if family in self.families else STAND_IN.get(family, family)
        if name in self.families.get(kernel, {}):
            return kernel, name
        if name in self.protocols or self.message_overhead_s or not math.isinf(self.channel_rate_Bps) or not family:
            return None
        places = ((other, near) for other in (kernel, "ring", *self.families) for near in NEAREST[name])
        return next((place for place in places if place[1] in self.families.get(place[0], {})), None)

    def lacks(self, name: str, family: str) -> bool:
        """Return True if constants of another kernel or protocol stand in for *name* of *family*."""
        place = self.stands_for(name, family)
        return place is not None and place not in ((family, name), (STAND_IN.get(family), name))

    @property
    def begin_s(self) -> float:
        """When the last rank begins a call, before anything moves."""
        return self.launch_s + self.skew_s

    def for_threads(self, gpus_per_thread: int, launch: str = "stream") -> Profile:
        """Return the constants where every host thread starts the work of so many GPUs, one after the other.

        That of a graph is all its calls, but only the first replay in a row, of `REPLAYS`, waits for it.
        """
        wait_s = (gpus_per_thread - 1) * self.thread_launch_s
        return replace(self, wait_s=wait_s / REPLAYS if launch == "graph" else wait_s)

    def scatter(self, family: str, size_bytes: int) -> Scatter | None:
        """Return the errors of predictions for a kernel and a size; None if nobody measured.

        From 1 MiB on those of the next smaller band stand for one that has none.
        """
        kernel = family if family in self.accuracy else STAND_IN.get(family, family)
        bands = self.accuracy.get(kernel, {})
        return _entry(bands, size_bytes)

    def launched(self, launch: str, *, registered: bool = False) -> Profile:
        """Return the constants for a way to launch; those of stream launches where it has none of its own.

        Replaying a graph registers the buffers too, so that ``graph`` stands for both.
        """
        name = "graph" if launch == "graph" else "registered" if registered else "stream"
        return self.launches.get(name, self)

    def describe(self, *, over_nodes: bool = False) -> str:
        """Return the constants in one line; of a run over nodes those between them too."""
        if not self.latency and not self.achievable_rate and not self.families:
            return "raw line rates, no latency, no overhead"
        if self.families and over_nodes and self.network.title:
            return f"{self.title}; between nodes {self.network.title}{_error(self.network.accuracy)}"
        if self.families:
            return f"{self.title}{_error(self.accuracy)}"
        rate = "unlimited" if math.isinf(self.channel_rate_Bps) else f"{self.channel_rate_Bps / 1e9:g} GB/s"
        return (
            f"launch {self.launch_s * 1e6:g} us, message {self.message_overhead_s * 1e6:g} us, channel {rate}, "
            f"links at {'achievable' if self.achievable_rate else 'line'} rate"
        )


def _entry(bands: Mapping[str, Scatter], size_bytes: int) -> Scatter | None:
    """Return the errors of the band of a size; from 1 MiB on those of the next smaller band stand for one without."""
    own = band_of(size_bytes, BANDS_BETWEEN)
    below = [band for band in reversed(BANDS_BETWEEN) if BANDS["large"] <= BANDS_BETWEEN[band] <= size_bytes]
    return next((bands[band] for band in below or [own] if band in bands), None)


def _error(accuracy: Mapping[str, Mapping[str, Scatter]]) -> str:
    """Return the error of large sizes as words: outside the fit, and of the fitted rows where none was left out."""
    told: dict[str, list[str]] = {}
    for family, bands in accuracy.items():
        if "large" in bands:
            told.setdefault(_whose(bands["large"]), []).append(f"{family} {bands['large'].median:.0%}")
    words = "; ".join(f"{whose}: {', '.join(errors)}" for whose, errors in sorted(told.items()))
    return f"; median error from 1 MiB, {words}" if told else ""


def _whose(entry: Scatter) -> str:
    """Return of which rows errors are, in words that sort as they are told."""
    if not entry.fitted and not entry.lent:
        return "left out of the fit in turn"
    rows = "of the fitted rows themselves" if entry.fitted else f"of {entry.lent}, for no row tells"
    ends = f"interval of {entry.lent}, twice as wide" if entry.lent else "none could be left out: no interval"
    return f"{rows} ({ends})"
