"""The constants that a fit may change, and the way between them and the protocols of a profile."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collsim.calibration.observations import Observation
from collsim.library import Profile
from collsim.library.costs.channel_costs import FAMILIES, STAND_IN, Protocol

__all__ = ["Parameter", "costs_of", "parameters_of"]

Floats = NDArray[np.float64]

FITTED = {
    "base_s": 3.0,
    "threads_overhead_s": 3.0,
    "exchange_overhead_s": 3.0,
    "last_channel_overhead_s": 2.0,
    "channel_overhead_s": 3.0,
    "peer_overhead_s": 3.0,
    "message_overhead_s": 3.0,
    "turn_s": 3.0,
    "small_overhead_s": 3.0,
    "slice_overhead_s": 3.0,
    "channel_rate_Bps": 2.0,
    "one_way_rate_Bps": 2.0,
    "fill_rate_Bps": 2.0,
    "wire_efficiency": 1.2,
    "link_share": 1.2,
    "contention": 2.0,
    "softness": 2.0,
}
"""Attributes of a protocol that are fitted, and the factor by which each may well be off before the fit (one standard
deviation). Chosen: overheads differ more from system to system than rates do."""
UNFITTED = {
    "nvls": ("link_share", "softness"),
    "messages": ("message_overhead_s", "wire_efficiency"),
    "": ("link_share", "wire_efficiency"),
}
"""Those that a family, or all others, leave alone. What the lines of a protocol carry is known, but not what of it the
switches let through that add. A call of messages has one round, whose overhead the base holds; in a ring the share of
the link trades against the softness."""
NETWORK = {"": ("wire_efficiency",)}
"""The same between nodes."""
FRACTIONS = {"wire_efficiency": 1.0, "link_share": 1.0, "contention": 0.95}
"""The most that a fraction can be."""
SHARED, SHARED_BETWEEN = ("softness", "last_channel_overhead_s"), ("softness", "link_share")
"""One value for all protocols of a family: they meet the same links, and between nodes the same adapters; and blocks
of threads start and end as far apart whatever they run."""
TIED = {"rooted": "ring", "fan": "messages"}
"""Families whose constants are those of another one: a ring that broadcasts copies as a ring that reduces does, and the
messages of a gather are messages."""
OWN = {"rooted": ("base_s", "message_overhead_s")}
"""Those that a tied family has for itself all the same: calls in a row hide a part of the base, and what is then handed
on is no step of a ring. A protocol that no row of it shows, where others of it are told, has that of the other family
instead of what stood before any log."""
BELOW = 0.98
"""Fractions between nodes start below their most: where a whole adapter is in use already, no derivative leads down."""
FLOOR_FACTOR, TOLD_FLOOR_FACTOR = 2.0, 1.03
"""The same for the floor of a call: unknown, and where rows of `TINY_BYTES` or less tell it."""
TINY_BYTES, LEAST_TINY = 1024, 3
"""At least so many rows of a kernel make a median; the quickest kernel tells the floor, others wait for their base."""
ALIKE = 1.5
"""A kernel whose tiny calls take so many times longer with other operations or ranks waits for its steps, not for the
host: its quickest calls bound the floor, and do not tell it (chosen: on H100 they differ by 1.3 at most, on B200 by
3)."""
HIDDEN = 2.0
"""A kernel that takes longer than so many floors on the device, by the constants before the fit, tells no floor
(chosen: in the training logs those with LL take 1.1 to 1.6 of it, those with LL128 or Simple 2.4 and more)."""
HIDDEN_KEYS = (
    ("ring", "LL", "message_overhead_s"),
    ("messages", "LL", "base_s"),
    ("messages", "LL", "peer_overhead_s"),
)
"""What rows that begin with the floor do not tell: the hop of a ring, and where messages start, as long as it is not
later than the floor. Chunks that follow each other along a chain tell its hop all the same."""
HOP = 2.0
"""Factor of `FITTED` for the latency of a hop of lines that are passed on while they arrive: it is that of loads and
stores over NVLink, which differs less from one generation to the next than what libraries add does (chosen)."""
NARROW = 0.4
"""Other ways to launch run the same kernels: their constants start from those of stream launches, with so much of the
spread; only the base and the floor may differ as before. So do constants of the same GPU in another machine, and the
rates of channels where messages keep every port full: ports then hide them."""
RATES, MESSAGES = ("channel_rate_Bps", "one_way_rate_Bps"), ("messages", "fan")
ZERO_COPY = ("base_s", "channel_rate_Bps", "one_way_rate_Bps")
"""Constants that differ where nothing is copied out: a channel then stores less for each byte that it sends. Ports and
their contention are the same wires, and what else messages cost is known from those that are copied."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant to fit.

    Attributes
    ----------
    family : str
        Empty for the floor, which all calls share.
    proto : str
        Empty if the protocols of the family share it.
    key : str
        Attribute of `Protocol`, or ``floor_s``.
    start : float
        In SI, above 0.
    spread : float
        Standard deviation of its logarithm before the fit.
    most : float
        The largest value that makes sense.
    families : tuple of str
        Kernels that take it.
    told : bool
        Whether measurements tell it without a fit.
    """

    family: str
    proto: str
    key: str
    start: float
    spread: float
    most: float = math.inf
    families: tuple[str, ...] = ()
    told: bool = False

    @property
    def name(self) -> str:
        """Its place in the profile, such as ``ring.Simple.channel_rate``."""
        word = self.key.removesuffix("_Bps").removesuffix("_s")
        return ".".join(part for part in (self.family, self.proto, word) if part)

    def is_of(self, observation: Observation) -> bool:
        """Return True if the time of an observation on the device depends on this constant."""
        return observation.family in self.families and self.proto in ("", observation.proto)


def source_of(family: str, key: str, profile: Profile) -> str:
    """Return the family whose constant a kernel takes."""
    tied = family if key in OWN.get(family, ()) else TIED.get(family, family)
    return tied if tied in profile.families else STAND_IN.get(tied, tied)


def parameters_of(
    profile: Profile,
    observations: Sequence[Observation],
    *,
    relaunched: bool = False,
    between: bool = False,
    alike: bool = False,
) -> list[Parameter]:
    """Return the constants of *profile* that some of the observations depend on.

    Where the floor is told, all calls of the quickest protocol begin with it: of the latency of its steps, and of the
    start of its messages, rows then say no more than how hosts differ from run to run. They stay as known before.

    *relaunched* says that *profile* holds fitted constants of stream launches, and the observations are of another way;
    *between*, that its kernels are those of steps between nodes; *alike*, that it is of the same GPU.
    """
    unfitted, shared = (NETWORK, SHARED_BETWEEN) if between else (UNFITTED, SHARED)
    floor = _floor(profile, observations) if profile.floor_s and not between else None
    hides, floor_s = floor is not None and floor.told, floor.start if floor is not None else 0.0
    full = all_full(observations)
    found: dict[tuple[str, str, str], Parameter] = {}
    for kernel, proto in sorted({(entry.family, entry.proto) for entry in observations}):
        for key, factor in FITTED.items():
            family = source_of(kernel, key, profile)
            costs = profile.protocol(proto, family)
            value = getattr(costs, key)
            fixed = key in unfitted.get(family, unfitted[""]) or (
                costs.zero_copy and key not in ZERO_COPY and family in MESSAGES
            )
            hop = costs.cut_through and key == "message_overhead_s"
            fixed = fixed or (hides and (family, proto, key) in HIDDEN_KEYS and value <= floor_s)
            if not fixed and value is not None and 0 < value < math.inf:
                place = (family, "" if key in shared else proto, key)
                families = tuple(name for name in FAMILIES if source_of(name, key, profile) == family)
                its_own = ZERO_COPY if family in MESSAGES else ZERO_COPY[-1:]
                freely = not alike and (not relaunched or key == "base_s" or (costs.zero_copy and key in its_own))
                freely = freely and not (key in RATES and family == "messages" and full)
                spread = math.log(HOP if hop else factor) * (1 if freely else NARROW)
                most = FRACTIONS.get(key, math.inf)
                start = min(float(value), most * BELOW) if between else float(value)
                found.setdefault(place, Parameter(*place, start, spread, most, families))
    if floor is not None:
        found["", "", "floor_s"] = floor
    return list(found.values())


def all_full(observations: Iterable[Observation]) -> bool:
    """Return True if all messages keep every port busy: of one number of ranks, none to a neighbour alone."""
    sent = {(entry.row.case.op, entry.row.case.ranks) for entry in observations if entry.family in MESSAGES}
    return len({ranks for _, ranks in sent}) == 1 and all(op != "send_recv" for op, _ in sent)


def _floor(profile: Profile, observations: Iterable[Observation]) -> Parameter:
    """Return the floor of a call, which starts from the times of tiny calls if there are some."""
    tiny_s: dict[tuple[str, str], list[float]] = defaultdict(list)
    by_group: dict[tuple[str, str], dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in observations:
        costs = profile.protocol(entry.proto, entry.family)
        if entry.row.case.size_bytes <= TINY_BYTES and entry.device_s(costs) <= HIDDEN * profile.floor_s:
            time_s = entry.time_s - entry.wait_s(profile)
            tiny_s[entry.family, entry.proto].append(time_s)
            by_group[entry.family, entry.proto][entry.group].append(time_s)
    medians_s = {kernel: float(np.median(times)) for kernel, times in tiny_s.items()}
    groups_s = {kernel: [float(np.median(times)) for times in groups.values()] for kernel, groups in by_group.items()}
    start_s = min((min(groups) for groups in groups_s.values()), default=0.0)
    alike = [kernel for kernel, groups in groups_s.items() if max(groups) <= ALIKE * min(groups)]
    several = len({group for groups in by_group.values() for group in groups}) > 1
    told_s = [medians_s[kernel] for kernel in alike if len(tiny_s[kernel]) >= LEAST_TINY]
    if told_s and min(told_s) > 0 and several:
        return Parameter("", "", "floor_s", min(told_s), math.log(TOLD_FLOOR_FACTOR), told=True)
    stepped = len(alike) < len(groups_s) and start_s > 0  # steps make the difference: no call is shorter than the floor
    return Parameter("", "", "floor_s", start_s if stepped else profile.floor_s, math.log(FLOOR_FACTOR))


def costs_of(
    profile: Profile, parameters: Sequence[Parameter], logs: Floats
) -> tuple[Mapping[tuple[str, str], Protocol], float]:
    """Return the protocols by (family, name) and the floor in seconds for the logarithms of all parameters."""
    values = dict(zip(((p.family, p.proto, p.key) for p in parameters), np.exp(logs).tolist(), strict=True))
    told = {(family, key) for family, _, key in values}
    costs: dict[tuple[str, str], Protocol] = {}
    for family in FAMILIES:
        stand_in = profile.families.get(STAND_IN.get(family, ""), {})
        for proto, usual in profile.families.get(family, stand_in).items():
            own = {}
            for key in FITTED:
                source = source_of(family, key, profile)
                places = [(source, proto, key), (source, "", key)]
                if key in OWN.get(family, ()) and (family, key) in told:
                    places.append((TIED[family], proto, key))
                place = next((at for at in places if at in values), None)
                if place is not None and getattr(usual, key) not in (None, 0.0, math.inf):
                    own[key] = values[place]
            costs[family, proto] = replace(usual, **own)
    return costs, values.get(("", "", "floor_s"), profile.floor_s)
