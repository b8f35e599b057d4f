"""`calibrate`: measured rows to a profile, a fit per way to launch, with errors of what was left out in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from collsim.calibration.arguments import checked_paths, checked_text
from collsim.calibration.cases import Measured, Skipped, read_cases
from collsim.calibration.estimates import estimate
from collsim.calibration.findings import Calibration, Constant, Residual, evidence, is_told
from collsim.calibration.fit_network import fit_network
from collsim.calibration.gathered import checked_options, named_topology
from collsim.calibration.hidden_nvls import with_nvls_settled
from collsim.calibration.log_placement import on_one_domain
from collsim.calibration.observations import Observation, observe, thinned, undisturbed, without_spikes
from collsim.calibration.parameters import Parameter, costs_of, parameters_of
from collsim.calibration.scatters import residuals_of, scatter_of
from collsim.calibration.soundness import sound_rows
from collsim.calibration.validate import DEFAULT_RCCL, nothing_left
from collsim.core.errors import Fault, Faults, InputError
from collsim.core.units import format_count
from collsim.library import DEFAULT_LIBRARY, Profile, Protocol, load_profile, system_of
from collsim.library.costs.channel_costs import STAND_IN
from collsim.topology import Topology

__all__ = ["calibrate", "fit_profile", "gather_rows", "scatter_of"]

UNTOLD = (("messages", "Simple"),)
"""Kernels whose start small rows do not tell: so few bytes take few channels, and other numbers of ranks others."""
STARTS, HANDS_OVER = ("base_s", "threads_overhead_s", "exchange_overhead_s"), "rooted"
"""What small rows of a machine with the same GPUs tell: when kernels start, not how fast bytes then flow; of a kernel
whose calls overlap `message_overhead_s` is a part of that."""
LEAST_ROWS = 3
"""Fewer rows of a way to launch are not fitted: they could not be told from noise."""
START = {"gfx": "mi300x_ubb8", "": "hgx_h100"}
"""Profile to start from where none is meant for the topology: by the beginning of the GPU's architecture."""


class Told(TypedDict, total=False):
    """What holds for all tests of logs, whatever these say."""

    op: str | None
    ranks: int | None
    nodes: int | None
    dtype: str | None
    redop: str | None
    launch: str | None
    registered: int | None
    blocking: int | None
    library_version: str | None


def calibrate(
    logs: str | Path | Sequence[str | Path],
    topo: str | Path | Topology,
    *,
    name: str | None = None,
    start: str | Profile = "auto",
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    **overrides: Unpack[Told],
) -> Calibration:
    """Fit the constants of a profile to logs of nccl-tests or rccl-tests.

    Parameters
    ----------
    logs : path or sequence of paths
    topo : str, path or Topology
        The scale-up domain on which the logs were taken.
    name : str, optional
        Of the profile; by default that of the topology.
    start : str or Profile
        Where the fit starts, also for what no row depends on; ``auto``: the profile of the topology or of a relative.
    library : str, optional
        For all logs, whatever they say.
    environment : mapping, optional
        Variables beside those of the logs.
    **overrides
        ``op``, ``ranks``, ``nodes``, ``launch``, ``registered`` ... for all logs, whatever they say.

    Raises
    ------
    InputError
        Every fault of the request and of logs that cannot be read; no log of these GPUs, or too few rows that can be
        predicted.

    Examples
    --------
    >>> found = calibrate("examples/h100_all_reduce.log", "hgx_h100", name="mine")
    >>> found.profile.name, len(found.residuals)
    ('mine', 6)
    """
    rows, skipped, topology = gather_rows(
        logs, topo, name=name, start=start, library=library, environment=environment, **overrides
    )
    return replace(fit_profile(rows, topology, name=name, start=start), skipped=tuple(skipped))


def gather_rows(
    logs: str | Path | Sequence[str | Path],
    topo: str | Path | Topology | None,
    *,
    name: str | None = None,
    start: str | Profile = "auto",
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    **overrides: Any,
) -> tuple[list[Measured], list[Skipped], Topology]:
    """Check what `calibrate` is asked and read the logs, before anything is fitted; parameters and errors as there."""
    faults = Faults()
    told = {key: overrides.pop(key, None) for key in ("op", "ranks", "nodes", "dtype", "launch")}
    options = checked_options({**told, "library": library, "environment": environment}, faults)
    topology = named_topology(topo, faults)
    faults.attempt(_named_start, start, topology)
    if name is not None:
        faults.attempt(checked_text, name, "name", "such as mine")
    paths = faults.attempt(checked_paths, logs) or []
    read = faults.attempt(read_cases, paths, topology=topology, **options, **overrides)
    faults.raise_any()
    assert topology is not None
    assert read is not None
    rows, skipped = read
    if not rows and skipped:
        raise nothing_left(skipped, Fault("nothing is left to fit", "logs"))
    return rows, skipped, topology


def fit_profile(
    rows: Sequence[Measured],
    topology: Topology,
    *,
    name: str | None = None,
    start: str | Profile = "auto",
    alike: bool = False,
    twins: Sequence[Measured] = (),
) -> Calibration:
    """Fit the constants of a profile to rows on *topology*; see `calibrate`.

    *alike* says that the start is of the same GPU, so that its constants are known better than those of a relative.
    *twins* are small rows of another machine with the same die and links: to all rows together when kernels start is
    fitted, and then the rest to the others alone.

    Raises
    ------
    InputError
        Too few rows that can be predicted.
    """
    library = _library_of(rows, topology)
    if topology.cluster is not None:
        return fit_network(rows, topology, name=name or topology.name, start=start, library=library)
    relative = _start(start, topology)
    sound, unsound = sound_rows(rows, topology, relative)
    kept, spikes = without_spikes(sound, topology.name)
    alone = [row for row in kept if row.case.groups is None]
    on_domain = [row for row in alone if on_one_domain(row.case, topology)]
    apart = thinned(on_domain)
    settled, notes = with_nvls_settled(apart, topology, relative, library)
    everything, refused = observe(settled, topology, relative, library)
    relative = _with_kernels(relative, {(entry.family, entry.proto) for entry in everything})
    observations = undisturbed(everything)
    reasons = {
        **unsound,
        "1.5 times slower than both neighbours": len(spikes),
        "1.5 times slower than another run of the same work": len(everything) - len(observations),
        "one of several groups at once": len(kept) - len(alone),
        "on more than one scale-up domain": len(alone) - len(on_domain),
        "too close to the size before": len(on_domain) - len(apart),
        **refused,
    }
    left_out = {why: count for why, count in reasons.items() if count}
    if len([entry for entry in observations if entry.launch == "stream"]) < LEAST_ROWS:
        raise InputError(_too_few(observations, left_out))
    profile = replace(
        relative, name=name or topology.name, title=_title(topology, observations, library), calibrated=True,
        systems=(topology.name,), gpus=(), library=library, host="", derived="",
        accuracy={}, launches={}, source="", sha256="",
    )  # fmt: skip
    of_twins = [
        entry
        for entry in undisturbed(observe(thinned(twins), topology, relative, library)[0])
        if (entry.family, entry.proto) not in UNTOLD
    ]
    constants: list[Constant] = []
    residuals: list[Residual] = []
    for launch in ("stream", "graph", "registered"):
        here = [entry for entry in observations if entry.launch == launch]
        if len(here) < LEAST_ROWS:
            left_out |= {f"fewer than {LEAST_ROWS} of {launch} launches": len(here)} if here else {}
            continue
        before = profile if launch == "stream" else _as_launched(profile, relative.launches.get(launch, relative))
        fitted, its_constants, its_residuals = _fit_launch(here, before, launch, alike=alike)
        if more := [entry for entry in of_twins if entry.launch == launch]:
            starts = _Starts(more, here)
            begun, told, seen = _fit_launch([*here, *more], fitted, launch, alike=alike, only=starts.tell)
            begins = starts.given(before, begun)
            fitted, others, its_residuals = _fit_launch(here, begins, launch, alike=alike, only=starts.leave)
            its_constants = _later(_later(its_constants, others), told)
            its_residuals += seen[len(here) :]
            fitted = replace(starts.given(fitted, begun), accuracy=scatter_of(its_residuals))
        constants += its_constants
        residuals += its_residuals
        profile = fitted if launch == "stream" else replace(profile, launches={**profile.launches, launch: fitted})
    if "graph" in profile.launches and "registered" not in profile.launches:
        profile = replace(profile, launches={**profile.launches, "registered": _as_registered(profile)})
    title = f"{profile.title}{evidence(len(residuals), constants, relative.name)}"
    profile = replace(profile, title=title, calibrated=is_told(len(residuals), constants))
    return Calibration(
        profile, relative.name, tuple(constants), tuple(residuals), left_out=left_out, notes=tuple(notes)
    )


def _named_start(start: str | Profile, topology: Topology | None) -> Profile:
    """Return the profile that *start* names; a fault of the name is one of *start*."""
    try:
        return load_profile(start, topology)
    except InputError as error:
        places = ["start" if fault.where == "profile" else fault.where for fault in error.faults]
        raise InputError(*(replace(f, where=place) for f, place in zip(error.faults, places, strict=True))) from None


def _start(start: str | Profile, topology: Topology) -> Profile:
    """Return the profile to start from: it must have kernels with constants of their own."""
    given = load_profile(start, topology)
    if given.families:
        return given
    if start != "auto":
        what = f'profile "{given.name}" has no constants of kernels'
        raise InputError(Fault(what, "start", f"take {' or '.join(START.values())}, or leave it out"))
    architecture = system_of(topology).architecture
    return load_profile(next(name for begin, name in START.items() if architecture.startswith(begin)))


def _with_kernels(start: Profile, run: Iterable[tuple[str, str]]) -> Profile:
    """Return the profile with a start for every kernel and protocol that ran: of the nearest protocol of its family.

    Raises
    ------
    InputError
        It has no constants of a kernel, nor of the one that stands in for it.
    """
    families = {family: dict(protocols) for family, protocols in start.families.items()}
    strange = []
    for family, proto in sorted(run):
        place = start.stands_for(proto, family)
        if place is None or place[0] not in (family, STAND_IN.get(family)):
            strange.append(family)
        elif place[1] != proto:
            families[place[0]][proto] = start.families[place[0]][place[1]]
    if strange:
        what = f'profile "{start.name}" has no constants of {", ".join(dict.fromkeys(strange))}, which these logs ran'
        raise InputError(Fault(what, "start", "start from a profile that has, such as that of the topology: auto"))
    return replace(start, families=families)


def _library_of(rows: Sequence[Measured], topology: Topology) -> str:
    """Return the library that most logs name."""
    named = Counter(row.case.library for row in rows if row.case.library)
    if named:
        return str(named.most_common(1)[0][0])
    return DEFAULT_RCCL if system_of(topology).is_amd else DEFAULT_LIBRARY


def _too_few(observations: Sequence[Observation], left_out: Mapping[str, int]) -> Fault:
    """Return the fault of logs with too few stream launches, which every fit starts from."""
    counts = Counter(entry.launch for entry in observations)
    others = [f"{count} of {launch} launches" for launch, count in counts.items() if launch != "stream"]
    found = f"{counts['stream']} of stream launches and {' and '.join(others)}" if others else f"{counts['stream']}"
    what = f"{found} rows can be predicted, {LEAST_ROWS} of stream launches are needed"
    hint = "give a log of stream launches too, from which the other launches start" if others else ""
    told = "; ".join(f"{format_count(count, 'row')} left out: {why}" for why, count in left_out.items())
    return Fault(what, "logs", "; ".join(filter(None, (told, hint))) or "give logs with more sizes")


def _title(topology: Topology, observations: Sequence[Observation], library: str) -> str:
    ranks = sorted({entry.row.case.ranks for entry in observations})
    logs = len({entry.row.file for entry in observations})
    return f"{library} on {topology.name}, fitted to {format_count(logs, 'log')} of {', '.join(map(str, ranks))} ranks"


def _fit_launch(
    observations: Sequence[Observation],
    before: Profile,
    launch: str,
    *,
    alike: bool,
    only: Callable[[Parameter], bool] = lambda _: True,
) -> tuple[Profile, list[Constant], list[Residual]]:
    """Return the profile of one way to launch with what was found of the constants that *only* picks."""
    parameters = parameters_of(before, observations, relaunched=launch != "stream", alike=alike)
    parameters = list(filter(only, parameters))
    found = estimate(observations, before, parameters)
    costs, floor_s = costs_of(before, parameters, found.logs)
    told = {(entry.family, entry.proto) for entry in observations}
    shift_s = 0.0 if launch == "stream" else _shift_s(before, costs, told)
    families = {
        family: {
            proto: costs[family, proto] if (family, proto) in told else _shifted(costs[family, proto], shift_s)
            for proto in protocols
        }
        for family, protocols in before.families.items()
    }
    constants = [
        Constant(launch, parameter.name, parameter.start, *found.interval(place), found.identified(place))
        for place, parameter in enumerate(parameters)
    ]
    residuals = residuals_of(observations, found)
    return replace(before, families=families, floor_s=floor_s, accuracy=scatter_of(residuals)), constants, residuals


def _later(first: Sequence[Constant], second: Sequence[Constant]) -> list[Constant]:
    """Return the constants of a fit with those that another one after it found, from where the first one started."""
    starts = {entry.name: entry.start for entry in first}
    later = {entry.name: replace(entry, start=starts.get(entry.name, entry.start)) for entry in second}
    return [later.pop(entry.name, entry) for entry in first] + list(later.values())


class _Starts:
    """What small rows tell beside *others*: when the kernels that they run start, and the floor."""

    def __init__(self, rows: Sequence[Observation], others: Sequence[Observation]) -> None:
        self.rows = rows
        kernels, shown = ({(entry.family, entry.proto) for entry in seen} for seen in (rows, others))
        self.left = shown - kernels

    def tell(self, parameter: Parameter) -> bool:
        """Return True for a constant that they tell."""
        if parameter.key == "floor_s":
            return True
        return parameter.key in _starts_of(parameter.family) and any(map(parameter.is_of, self.rows))

    def leave(self, parameter: Parameter) -> bool:
        """Return True for a constant that they do not tell."""
        return not self.tell(parameter)

    def given(self, profile: Profile, begun: Profile) -> Profile:
        """Return a profile whose kernels start as those of another, but for what the other rows alone show."""
        families = {family: dict(protocols) for family, protocols in profile.families.items()}
        places = {(family, proto) for family, protocols in families.items() for proto in protocols}
        for family, proto in places - self.left:
            known = {key: getattr(begun.families[family][proto], key) for key in _starts_of(family)}
            families[family][proto] = replace(families[family][proto], **known)
        return replace(profile, families=families, floor_s=begun.floor_s)


def _starts_of(family: str) -> tuple[str, ...]:
    return (*STARTS, *(("message_overhead_s",) if family == HANDS_OVER else ()))


def _as_launched(fitted: Profile, launched: Profile) -> Profile:
    """Return fitted constants of stream launches with the flags of another way to launch."""
    families = {
        family: {proto: _as_copied(costs, launched.protocol(proto, family)) for proto, costs in protocols.items()}
        for family, protocols in fitted.families.items()
    }
    return replace(fitted, families=families, accuracy={}, launches={})


def _as_copied(costs: Protocol, launched: Protocol) -> Protocol:
    """Return constants for buffers that another way to launch registers, or not, and how fast channels then are."""
    rate_Bps = launched.one_way_rate_Bps if costs.one_way_rate_Bps is None else costs.one_way_rate_Bps
    kept_Bps = launched.keep_rate_Bps
    return replace(
        costs, zero_copy=launched.zero_copy, one_way_rate_Bps=rate_Bps, keep_rate_Bps=kept_Bps,
        exchange_overhead_s=launched.exchange_overhead_s,
    )  # fmt: skip


def _as_registered(fitted: Profile) -> Profile:
    """Return constants for registered buffers that nobody measured: a graph registers them too.

    Messages then need no copy, and go as they go in a graph, but for what replay takes off the bases of other kernels;
    launch, rings, but for what they store, and the rest are as of stream launches.
    """
    graph = fitted.launches["graph"]
    usual, replayed = fitted.families.get("messages", {}), graph.families.get("messages", {})
    others = {
        (family, proto): costs
        for family, protocols in graph.families.items()
        if family != "messages"
        for proto, costs in protocols.items()
    }
    saved_s = _shift_s(fitted, others, others)
    messages = {
        proto: replace(costs, base_s=costs.base_s - saved_s if costs.zero_copy else usual[proto].base_s)
        for proto, costs in replayed.items()
    }
    rings = {
        proto: _as_copied(costs, graph.protocol(proto, "ring"))
        for proto, costs in fitted.families.get("ring", {}).items()
    }
    accuracy = {**fitted.accuracy, **{name: bands for name, bands in graph.accuracy.items() if name == "messages"}}
    return replace(
        fitted, families={**fitted.families, "ring": rings, "messages": messages}, accuracy=accuracy, launches={},
    )  # fmt: skip


def _shift_s(before: Profile, costs: Mapping[tuple[str, str], Protocol], told: Iterable[tuple[str, str]]) -> float:
    """Return by how much the bases of kernels that were measured are longer than for stream launches.

    Those in registered buffers tell more than the launch, and count only if there are no others.
    """
    known = [kernel for kernel in told if kernel in costs]
    kernels = [kernel for kernel in known if not costs[kernel].zero_copy] or known
    return float(np.median([costs[kernel].base_s - before.protocol(kernel[1], kernel[0]).base_s for kernel in kernels]))


def _shifted(costs: Protocol, shift_s: float) -> Protocol:
    """Return costs of a kernel that nobody measured, its base moved as those of the others; half of it stays."""
    return replace(costs, base_s=max(costs.base_s + shift_s, costs.base_s / 2))
