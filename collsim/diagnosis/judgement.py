"""`diagnose`: from measured logs to verdicts by range of sizes, and to the causes that explain what is slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.calibration.arguments import checked_margin
from collsim.calibration.gathered import Gathered, gather
from collsim.calibration.health import MARGIN
from collsim.calibration.validate import compare
from collsim.core.errors import Fault, Faults, InputError, chosen
from collsim.diagnosis.causes import Cause, all_causes, changes_of, meets
from collsim.diagnosis.curves import Bench, settings_asked
from collsim.diagnosis.evidence import (
    Named,
    evidence_of,
    known_faults,
    network_of,
    shape_of,
    told_network,
    unknown_library,
    usual_settings,
)
from collsim.diagnosis.findings import Curve, DiagnosedLog, Diagnosis, Evidence
from collsim.diagnosis.fit import fit_of
from collsim.diagnosis.ranking import Ranked, ranked
from collsim.diagnosis.subjects import Subject, is_possible, subject_of
from collsim.library import Profile, load_library
from collsim.simulation.request.prepare import Machine
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

    from collsim.calibration.verdicts import CheckedLog, Validation

__all__ = ["chosen_causes", "diagnose", "diagnosed"]

MOST_LOGS = 4
"""So many logs are explained together: the slowest. Each takes some seconds."""
MOST_RANKS = 64
"""Logs after the slowest are explained if all have no more ranks. Chosen: one of so many takes some seven seconds."""
LEAST_PAIRS = 3
"""Logs on different pairs of hosts that can tell a host from the others."""
CHOICE = "algorithm"
"""The cause whose variants are what a library may choose."""
OTHER_NETWORK, SOCKETS = "other_network", "sockets"
NETWORK, NODES = "scale_out.network", "scale_out.nodes"
NEEDS_CAUSES = ("faulty", "doubtful")


def diagnose(
    logs: str | Path | Iterable[str | Path],
    topo: str | Path | Topology | nx.Graph[Any],
    *,
    op: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    launch: str | None = None,
    profile: str | Profile = "auto",
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    rank_list: Sequence[int] | None = None,
    overrides: Mapping[str, str] | Sequence[str] | None = None,
    fail: str | Sequence[str] | None = None,
    degrade: Mapping[str, str | float] | Sequence[str] | None = None,
    causes: Sequence[str] | None = None,
    margin: float = MARGIN,
) -> Diagnosis:
    """Say of logs of one machine whether they are healthy, and rank what would explain those that are not.

    Every cause is a change of the question, simulated at the sizes of the log; the whole curve is compared.

    Parameters
    ----------
    logs, topo, op, ranks, nodes, launch, profile, library, environment, rank_list, overrides, fail, degrade, margin
        As of `collsim.validate`.
    causes : sequence of str, optional
        Names of causes to look at; all that the machine can have by default.

    Returns
    -------
    Diagnosis

    Raises
    ------
    InputError
        Every fault of the request and the files; or nothing is left that can be compared.

    Examples
    --------
    >>> found = diagnose("examples/h100_all_reduce.log", "hgx_h100", causes=["nvls_off", "few_channels"])
    >>> found.verdict, found.logs[0].ranges[0].verdict
    ('faulty', 'healthy')
    """
    faults = Faults()
    wanted, share = faults.attempt(chosen_causes, causes), faults.attempt(checked_margin, margin)
    machine = Machine(overrides, fail, degrade)
    told = {"op": op, "ranks": ranks, "nodes": nodes, "launch": launch, "library": library, "environment": environment}
    gathered = faults.attempt(lambda: gather(logs, topo, profile=profile, machine=machine, rank_list=rank_list, **told))
    faults.raise_any()
    assert gathered is not None
    assert wanted is not None
    assert share is not None
    return diagnosed(gathered, topo, machine, wanted, share)


def chosen_causes(names: Sequence[str] | None) -> tuple[Cause, ...]:
    """Return the causes of some names."""
    causes = {cause.name: cause for cause in all_causes()}
    if isinstance(names, str):
        names = names.split(",")
    if names is not None and (not isinstance(names, Iterable) or not (names := list(names))):
        what = "no cause is named" if names == [] else f"{names!r} is no list of causes"
        raise InputError(Fault(what, "causes", f"leave it out for all; known: {', '.join(causes)}"))
    if names is None:
        return tuple(causes.values())
    faults = Faults()
    found = [faults.attempt(chosen, "cause", name, causes, "causes") for name in names]
    faults.raise_any()
    return tuple(cause for cause in found if cause is not None)


def diagnosed(
    gathered: Gathered, topo: Any, machine: Machine, causes: Sequence[Cause], margin: float = MARGIN
) -> Diagnosis:
    """Judge the rows of logs and rank *causes*; raises as `compare` does."""
    evidence = _as_usual(gathered)
    validation = compare(gathered, margin, settles_nvls=False)
    topology, constants = gathered.topology, gathered.constants
    assert topology is not None
    assert constants is not None
    subjects = [one for log in validation.logs if (one := subject_of(log, margin, topology)) is not None]
    named = {file: network_of(file) for file in {one.log.file for one in subjects if one.nodes > 1}}
    evidence += [unknown_library(one.log.file, name) for one in subjects if (name := _unknown(one))]
    evidence += evidence_of(list(dict.fromkeys(log.file for log in validation.logs)))
    untold = _untold_networks(named, topology, evidence)
    evidence += [told_network(file, is_told=file not in untold) for file in named]
    bench = Bench(topo, machine, topology, constants)
    subjects = [_of_unknown_choice(one, named.get(one.log.file), bench) for one in subjects]
    slow = [one for one in subjects if _needs_causes(one, one.verdict(one.ranges()))]
    explained = _slowest(slow)
    asked = [(subject.case.ranks, subject.nodes) for subject in explained]
    possible = [cause for cause in causes if any(meets(cause, topology, *each) for each in asked)]
    found = ranked(explained, possible, bench, evidence) if explained else Ranked((), {}, ())
    open_ = untold if _other_network(found) else frozenset()
    logs = tuple(_log(subject, explained, found, is_open=subject.log.file in open_) for subject in subjects)
    remarks = _remarks(subjects, [log.verdict for log in logs], validation, topology, named)
    doubted = sorted({log.log.file for log in logs if log.log.file in open_ and log.verdict in NEEDS_CAUSES})
    return Diagnosis(
        version=validation.version,
        topology=validation.topology,
        profile=validation.profile,
        logs=(*logs, *map(_without_times, _hopeless(validation))),
        findings=found.findings,
        unexplained=bool(explained) and not (found.findings and found.findings[0].fits),
        looked_at=found.looked_at,
        evidence=tuple(evidence),
        remarks=(*remarks, *(_which_network(file, topology) for file in doubted)),
        skipped=tuple(map(str, (*validation.skipped, *validation.dropped))),
        warnings=validation.warnings,
        said=validation.said,
    )


def _other_network(found: Ranked) -> bool:
    """Return True if another network than assumed explains the logs best, and sockets do not as well."""
    first = found.findings[0].names[0] if found.findings else ""
    return first == OTHER_NETWORK == next(iter(found.rivals), "") and SOCKETS not in found.rivals


def _untold_networks(
    named: Mapping[str, Named | None], topology: Topology, evidence: Sequence[Evidence]
) -> frozenset[str]:
    """Return the files whose network nobody told: no line of them, and no caller."""
    told = settings_asked(topology)
    if NETWORK in told or NODES not in told:  # a file that is a cluster has its network
        return frozenset()
    of_transport = {entry.file for entry in evidence if SOCKETS in entry.causes}
    return frozenset(file for file, name in named.items() if name is None and file not in of_transport)


def _of_unknown_choice(subject: Subject, named: Named | None, bench: Bench) -> Subject:
    """Return a log of a library or *named* network that is not known, whose rows have no interval to be outside of.

    Nobody knows what such a library chooses: it is sound if another choice of algorithm makes it so.
    """
    case, sizes = subject.case, sorted(subject.healthy_s)
    if named is not None and not named.networks:
        return replace(subject, outside=False)
    if not subject.outside or not _unknown(subject):
        return subject
    for change in changes_of(chosen_causes([CHOICE])[0], bench.topology, case.ranks, subject.nodes):
        found = dict(zip(sizes, bench.ratios(case, sizes, subject.healthy_s, change), strict=True))
        other = subject.as_if(np.array([found[int(size)] for size in subject.noise.sizes]))
        if all(part.verdict != "slower" for part in other.ranges()):
            return replace(subject, outside=False)
    return subject


def _unknown(subject: Subject) -> str:
    """Return the library of a log if nobody knows what it chooses; empty if it is known."""
    name = subject.case.library
    return name if name is not None and load_library(name).known.name != name else ""


def _slowest(slow: Sequence[Subject]) -> list[Subject]:
    """Return the logs that are explained together, the slowest first."""
    ordered = sorted(slow, key=lambda subject: -subject.noise.residual.max())[:MOST_LOGS]
    ranks = accumulate(subject.case.all_ranks for subject in ordered)
    return [
        one for place, (one, total) in enumerate(zip(ordered, ranks, strict=True)) if not place or total <= MOST_RANKS
    ]


def _needs_causes(subject: Subject, verdict: str) -> bool:
    """Return True if a log is to be explained; wrong results do not hide that it is slow, too."""
    sound = replace(subject, flagged=False)
    return verdict in NEEDS_CAUSES or (verdict == "broken" and sound.verdict(sound.ranges()) in NEEDS_CAUSES)


def _as_usual(gathered: Gathered) -> list[Evidence]:
    """Leave out of all logs what a healthy machine does not set; return these settings as evidence."""
    evidence: list[Evidence] = []
    for key, group in list(gathered.groups.items()):
        kept, told = usual_settings(group.file, group.case.environment)
        if not told:
            continue
        evidence += told
        variables = tuple(sorted(kept.items()))
        cases = {replace(case, environment=variables): found for case, found in group.cases.items()}
        gathered.groups[key] = replace(group, case=replace(group.case, environment=variables), cases=cases)
    return evidence


def _log(subject: Subject, explained: Sequence[Subject], found: Ranked, *, is_open: bool) -> DiagnosedLog:
    """Return a log with the curves of the causes that were found; *is_open*: on which network it ran."""
    noise, ranges = subject.noise, subject.ranges()
    fit = fit_of(noise, noise.healthy_s, effect=0.0)
    place = next((number for number, one in enumerate(explained) if one is subject), None)
    names = [finding.suspects[0].name for finding in found.findings]
    judged = replace(subject, outside=subject.outside and not is_open)
    return DiagnosedLog(
        subject.log,
        judged.verdict(ranges),
        subject.p_value,
        ranges,
        tuple(int(size) for size in noise.sizes),
        tuple(noise.measured_s.tolist()),
        Curve("healthy", "", tuple(noise.healthy_s.tolist()), fit.rms, fit.chi2, fit.score),
        subject.low_s,
        subject.high_s,
        () if place is None else tuple(found.curves[name][place] for name in names),
    )


def _hopeless(validation: Validation) -> Iterator[CheckedLog]:
    """Yield the logs none of whose times is possible."""
    for log in validation.logs:
        if log.rows and not any(map(is_possible, log.rows)):
            yield log


def _without_times(log: CheckedLog) -> DiagnosedLog:
    """Return a log none of whose times is possible: there is nothing to judge by range of sizes."""
    return DiagnosedLog(log, "broken", 0.0, (), (), (), Curve("healthy", "", (), 0.0, 0.0, 0.0), (), (), ())


def _remarks(
    subjects: Sequence[Subject], verdicts: Sequence[str], validation: Validation, topology: Topology,
    named: Mapping[str, Named | None],
) -> list[str]:  # fmt: skip
    """Return what the logs say together, and what is known of their libraries and of the networks *named* in each."""
    told: dict[str, None] = {}
    for subject, verdict in zip(subjects, verdicts, strict=True):
        for sentence in shape_of(subject):
            told[f"{subject.log.file}: {sentence}"] = None
        if verdict in (*NEEDS_CAUSES, "broken"):
            told |= dict.fromkeys(_of_network(named.get(subject.log.file), topology))
            told |= dict.fromkeys(_of_version(subject))
    for sentence in _culprits(subjects, verdicts):
        told[sentence] = None
    if validation.failed:
        says = "log says that its" if validation.failed == 1 else "logs say that their"
        told[f"{validation.failed} {says} test FAILED"] = None
    return list(told)


def _of_version(subject: Subject) -> Iterator[str]:
    """Yield what is known of the version that a log or the caller names; that of the profile is a guess."""
    family, _, version = next((row.case.library for row in subject.log.rows if row.case.library), "").partition("-")
    version = subject.log.library_version or version
    for sentence in known_faults(family.upper(), version, subject.case.op, subject.case.nodes or subject.nodes):
        yield f"known of {sentence}"


def _which_network(file: str, topology: Topology) -> str:
    """Say that a log may be of another network than assumed."""
    here = "" if topology.cluster is None else topology.cluster.spec.network
    return (
        f"{file} is slower than a sound machine on {here}, and no line of it names its network: which one "
        "is it? A log of NCCL_DEBUG=INFO says so; --set scale_out.network and nic.bandwidth say it here"
    )


def _of_network(named: Named | None, topology: Topology) -> Iterator[str]:
    """Yield what to ask instead where a log names another network than the topology has."""
    here = "" if topology.cluster is None else topology.cluster.spec.network
    if named is None or here in named.networks:
        return
    if named.networks:
        flag = f"--set scale_out.network={named.networks[0]}"
        yield f"the log says {named.name}, the topology {here}: ask again with {flag}"
    else:
        yield f"the log says {named.name}, which nobody measured for collsim: how fast a sound machine is, is not known"


def _culprits(subjects: Sequence[Subject], verdicts: Sequence[str]) -> Iterator[str]:
    """Yield the hosts that explain slow pairs: a host of a sound log is sound, so the other of a slow one is not."""
    pairs = [(subject.log.hosts, verdict) for subject, verdict in zip(subjects, verdicts, strict=True)]
    slow = [set(hosts) for hosts, verdict in pairs if len(hosts) > 1 and verdict in (*NEEDS_CAUSES, "broken")]
    sound = {host for hosts, verdict in pairs if verdict not in (*NEEDS_CAUSES, "broken") for host in hosts}
    if len({hosts for hosts, _ in pairs}) < LEAST_PAIRS or not slow or not sound:
        return
    left = [hosts - sound for hosts in slow]
    guilty = {host for hosts in left if len(hosts) == 1 for host in hosts}
    open_ = [hosts for hosts in left if hosts and not hosts & guilty]
    while open_ and (most := Counter(host for hosts in open_ for host in sorted(hosts)).most_common(1)[0])[1] > 1:
        guilty.add(most[0])
        open_ = [hosts for hosts in open_ if most[0] not in hosts]
    for host in sorted(guilty, key=lambda host: (-sum(host in hosts for hosts in slow), host)):
        count = sum(host in hosts for hosts in slow)
        logs = f"{count} of {len(slow)} slow logs" if count < len(slow) else f"all {count} slow logs"
        yield f"host {host} is in {logs} and in no sound one: the node, not the switch"
    for hosts in open_:
        told = " or ".join(f"host {host}" for host in sorted(hosts))
        yield f"{told} is slow: a pair of one of them with a sound host will tell"
    if unclear := sum(not hosts for hosts in left):
        yield (
            f"in {unclear} of {len(slow)} slow logs every host is sound with others: look at what these pairs share, a "
            "leaf or its uplinks"
        )
