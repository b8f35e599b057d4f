"""Hosts: how long they take to start a call, by their kind and by the version of the library.

A call takes at least the `floor` of a profile, because its host needs so long to enqueue one. That is a figure of the
machine that was measured, not of its GPUs: a profile says on which kind of host (`Profile.host`), and calls on another
kind take the floor times the ratio of both. A graph that is replayed leaves the host out.

A test program times a row of calls from the first that the host starts to its notice that the last is done. What of
that lies around the calls is shared by all of them, be they started one by one or as a graph: `around_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from collsim.core.errors import Fault, InputError, nearest
from collsim.core.units import format_time, parse_time_s
from collsim.library.costs.channel_costs import STAND_IN, Origin, Protocol
from collsim.library.costs.profile import REPLAYS, Profile

if TYPE_CHECKING:
    from collsim.library.library import Library

__all__ = [
    "AUTO",
    "HOSTS",
    "USUAL_CALLS",
    "Host",
    "around_s",
    "as_hosted",
    "as_usual_s",
    "checked_host",
    "host_words",
    "in_a_row",
    "spread_of",
]

AUTO, BARE = "auto", "bare"


class Host(NamedTuple):
    """A kind of host.

    Attributes
    ----------
    slower : float
        How many times as long it takes to start a call as one of kind ``bare``.
    spread : float
        Hosts of the kind differ by about this factor.
    source : str
    """

    slower: float
    spread: float
    source: str


HOSTS: Mapping[str, Host] = {
    BARE: Host(
        1.0, 1.4,
        "assumed: GPUs plugged in where programs run. Two B200 of AIConfigurator's tables take 8 us, device included",
    ),
    "virtual": Host(
        1.7, 1.4,
        "GPUs that a virtual machine is handed (at addresses such as 0000:00:06): 10.1 us fitted on H100 with 2.28 "
        "of NCCL, 8.4 to 9.6 measured on H200 with 2.21, over the 6 of bare hosts",
    ),
}  # fmt: skip
"""By name. Of the 1.7 as of the spread: machines of two to five sites, so they are not known better than that. A thread
takes so many times as long for each further GPU too: of two H200 of a virtual machine the second starts 7.3 us later
(NCCL 2.28.9, 8 B to 32 KiB), of public bare hosts 4 to 5."""
SOONER = {"nccl": {"symmetric": 0.72, "rooted": 0.82, "fan": 0.82}}
"""Kernels of a library that take so many times as long to start, measured on two H200 with NCCL 2.32.3, where the
host takes 10.25 us for others: those on symmetric memory 7.4; broadcast 9.0, reduce 7.5, gather 8.8 and scatter 8.3, in
which a rank that only sends, or only receives, does not wait for the host of another."""
LATER, LATER_FAMILIES = {"nccl": ((2, 32), 1.3)}, ("ring", "chain", "nvls")
"""From a version on, collectives of some kernels that all ranks wait for take so many times as long to start. Measured:
all-reduce, all-gather and reduce-scatter on two H200 up to 32 KiB take 12 to 14 us with 2.32.3, where the same kind of
host has 10 with 2.28; broadcast, reduce and sends start no later, nor do replayed graphs. Which release between them it
was is not known; tables with 2.29 show nothing of it."""

AROUND_S, USUAL_CALLS = {"nccl": 9e-6, "rccl": 19e-6}, 20
"""What a row of calls takes besides its calls, by the library, and of how many calls in a row nccl-tests shows the
mean by default (-n; src/common.cu), of which the constants hold their share: the host's part of the first call, or
that of the last on the device, and the notice of the end. Measured: two H200 with NCCL 2.28.9 take 7 to 8 us longer up
to 256 KiB if a row is one call, 10 us at 2 MiB and 15 us at 16 MiB, and half of that if it is two. Eight MI300X with
RCCL: the mean of two calls (gpinkert/rccl-profile, config.yaml) is 7.2 to 9.4 us longer than that of twenty at another
site (hisohara/ai-scripts), at every size from 8 B to 32 MiB, whether host or links decide: 8.6 us in the median, over
1/2 less 1/20."""
GRAPH_S, USUAL_REPLAYED = {"nccl": 25e-6}, USUAL_CALLS * REPLAYS
"""The same of a row of replays of one graph, and calls in so many that next to nothing is left of it. nccl-tests
captures all its calls (`-n`) and replays them `-G` times. Measured: two H200, all-reduce of 8 B, 5.66 us in ten
replays of 20 calls (NCCL 2.28.9) and 6.7 to 7.1 with one (2.32.3), so 23 to 32 us a row; four
H100, 64 KiB to 1 MiB, three replays of 10 calls beside five of 20: 18 us with all-reduce, 59 with sends."""
LEAST_SHARE = 0.1
"""At least so much of a time is the call, whatever lies around a row of calls (chosen)."""


def around_s(library: str, calls: int | None, launch: str = "stream") -> float:
    """Return by how much the mean of so many calls in a row is longer than that of the usual number; 0 if that is less.

    With *launch* ``graph`` they are those of all its replays.

    >>> around_s("rccl-2.22", 2) * 1e6
    8.55
    >>> around_s("rccl-2.22", None)
    0.0
    >>> round(around_s("nccl-2.28", 100, "graph") * 1e6, 3)
    0.188
    """
    per_row, usual = (GRAPH_S, USUAL_REPLAYED) if launch == "graph" else (AROUND_S, USUAL_CALLS)
    return per_row.get(library.partition("-")[0], 0.0) * max(1 / (calls or usual) - 1 / usual, 0.0)


def as_usual_s(time_s: float, more_s: float) -> float:
    """Return a mean of few calls as of the usual number, *more_s* shorter; at least a part of it is the call."""
    return max(time_s - more_s, time_s * LEAST_SHARE)


def in_a_row(profile: Profile, library: str, calls: int | None, launch: str, replays: int | None = None) -> Profile:
    """Return the constants of so many calls in a row, in so many replays of a graph; as they are with no host at all.

    What the later GPUs of a thread wait for is in the first replay alone.
    """
    more_s = around_s(library, calls, launch)
    if not profile.floor_s:
        return profile
    if launch != "graph":
        others = {
            name: replace(each, launch_s=each.launch_s + more_s)
            for name, each in profile.launches.items()
            if name != "graph"
        }
        return replace(profile, launch_s=profile.launch_s + more_s, launches={**profile.launches, **others})
    own = profile.launches.get("graph", profile)
    wait_s = own.thread_launch_s * REPLAYS / (replays or REPLAYS)
    replayed = replace(own, launch_s=own.launch_s + more_s, thread_launch_s=wait_s)
    return replayed if own is profile else replace(profile, launches={**profile.launches, "graph": replayed})


def checked_host(value: object) -> str:
    """Return a kind of host, ``auto``, or a time such as ``8 us``.

    Raises
    ------
    InputError
        It is none of them.
    """
    text = value.strip() if isinstance(value, str) else repr(value)[:40]
    known = (AUTO, *HOSTS)
    if text.lower() in known:
        return text.lower()
    if isinstance(value, str) and text[:1].isdigit():
        parse_time_s(text, "host")
        return text
    near = nearest(text.lower(), known)
    hint = f'did you mean "{near}"?' if near else f"one of {', '.join(known)}, or a time such as 8 us"
    raise InputError(Fault(f'"{text}" is no kind of host', "host", hint))


def as_hosted(profile: Profile, host: str = AUTO, library: Library | None = None) -> Profile:
    """Return the constants of calls that a host of a kind starts, or one that takes the time *host*.

    ``auto`` is the host that was measured, if the profile does not say of which kind it was (it may be that of the
    user), and ``bare`` otherwise. What further GPUs of a thread take is a figure of bare hosts, whichever was measured.
    """
    if not profile.floor_s:
        return profile
    floor_s, told = _floor(profile, host)
    own = host not in (AUTO, *HOSTS) or (host == AUTO and not profile.host)  # a floor as told, or as of the user's logs
    factors = {} if own else _factors(library)
    launches = {
        name: launched if name == "graph" else _started(launched, floor_s, told, factors)
        for name, launched in profile.launches.items()
    }
    wait_s = profile.thread_launch_s * (1.0 if own else HOSTS[_kind(profile, host)].slower)
    return replace(_started(profile, floor_s, told, factors), launches=launches, thread_launch_s=wait_s)


def host_words(profile: Profile, host: str, launch: str) -> str:
    """Return what was assumed of the host in words; empty where it does not matter.

    *profile* is as it was shipped.
    """
    if not profile.floor_s or launch == "graph" or (host == AUTO and not profile.host):
        return ""
    floor_s, _ = _floor(profile, host)
    kind = BARE if host == AUTO else host
    if kind not in HOSTS:
        return f"a call takes at least {format_time(floor_s)} to start, as told"
    spread = HOSTS[kind].spread
    return f"{kind}: a call takes at least about {format_time(floor_s)} to start, hosts differ {spread} times"


def spread_of(measured: str, host: str) -> float:
    """Return by which factor hosts differ from the one that was assumed, by the kind that was *measured*.

    1 where nothing was assumed: a time was told, or the host is of the kind that was measured, whose differences the
    errors of the profile hold.
    """
    kind = host if host != AUTO else BARE if measured else ""
    return HOSTS[kind].spread if kind in HOSTS and kind != measured else 1.0


def _kind(profile: Profile, host: str) -> str:
    """Return the kind of host that is asked for; empty: that of a profile that does not say which it was."""
    return host if host != AUTO else BARE if profile.host else ""


def _floor(profile: Profile, host: str) -> tuple[float, Origin | None]:
    """Return what a call takes at least, and where that is from if not from the profile."""
    kind = _kind(profile, host)
    if not kind or kind == profile.host:
        return profile.floor_s, None
    if kind not in HOSTS:
        return parse_time_s(kind), Origin(profile.name, "floor", "user", "as told")
    ratio = HOSTS[kind].slower / HOSTS[profile.host or BARE].slower
    source = f"{profile.floor_s * 1e6:.4g} us, times {ratio:.3g} for a host of kind {kind}: {HOSTS[kind].source}"
    return profile.floor_s * ratio, Origin(profile.name, "floor", "derived", source)


def _factors(library: Library | None) -> dict[str, float]:
    """Return how many times as long a library takes to start some kernels."""
    if library is None:
        return {}
    version, factor = LATER.get(library.family, ((0, 0), 1.0))
    later = dict.fromkeys(LATER_FAMILIES, factor) if library.version >= version else {}
    return {**SOONER.get(library.family, {}), **later}


def _started(profile: Profile, floor_s: float, told: Origin | None, factors: Mapping[str, float]) -> Profile:
    """Return a profile with another floor, that of some kernels so many times as long."""
    origins = profile.origins if told is None else {**profile.origins, "floor_s": told}
    source = {key: origins[key] for key in ("floor_s",) if key in origins}

    def started(costs: Protocol, factor: float) -> Protocol:
        if factor == 1.0 or costs.floor_s is not None:
            return costs
        return replace(costs, floor_s=floor_s * factor, origins={**costs.origins, **source})

    kernels = dict(profile.families)
    for family in factors:  # gathers and scatters without constants of their own have those of messages, but this one
        other = STAND_IN.get(family)
        if other in kernels:
            kernels.setdefault(family, kernels[other])
    families = {
        family: {proto: started(costs, factors.get(family, 1.0)) for proto, costs in protocols.items()}
        for family, protocols in kernels.items()
    }
    return replace(profile, floor_s=floor_s, families=families, origins=origins)
