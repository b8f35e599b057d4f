"""Effects on times of changed figures of a topology and of variables of the environment; of those without, why.

A fitted profile holds the latencies and efficiencies of the system that it was fitted to. Inside nodes what a change
makes worse therefore counts as a difference from there, and what it makes better does not: no log tells which part of
a fitted constant is the wire's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from collsim.collectives import ScheduleRequest
from collsim.core.errors import InputError
from collsim.core.units import format_bandwidth, format_time
from collsim.fabric.fabric import memory_need_Bps
from collsim.library import Profile
from collsim.library.costs.network_costs import COPIED_FROM_BYTES, COPY_THRESHOLD, EAGER_BYTES
from collsim.library.costs.profile_files import copies_faster, with_copies
from collsim.library.environment import PEERS, TRANSPORTS, is_modelled, read_environment
from collsim.library.peers import peer_level
from collsim.simulation.request.request import CHOICES, Request
from collsim.simulation.runs import LoweredRun
from collsim.simulation.selection import library_choice, request_of
from collsim.topology import Topology
from collsim.topology.model import FITTED

__all__ = ["effects_of_changes", "idle_variables", "unread_changes"]

SINGLE = re.compile(r"^(links|nodes)\[\d+\]\.(latency|efficiency)$")
"""Figures of single links and nodes, whose values before a change are not kept."""
MEMORY = "gpu.memory_bandwidth"


def effects_of_changes(topology: Topology, constants: Profile, run: LoweredRun) -> tuple[str, ...]:
    """Return the effects of changed figures that a profile holds already, or that no link reads, in a sentence each.

    *run* is one of those that were simulated.
    """
    if not (constants.achievable_rate or constants.latency or constants.families):
        return unread_changes(topology, f'profile "{constants.name}" is bare wires')
    told = []
    for path, label in _changed(topology):
        if path == MEMORY:
            told.append(f"{label} {_of_memory(run)}")
        elif path.startswith("nic.") and topology.cluster is None:
            told.append(f"{label} changes nothing within one node")
        elif path == "switch.ports":
            told.append(f"{label} changes nothing: it is only compared with the wiring")
        elif path in FITTED or SINGLE.match(path):
            told += _of_fitted(topology, constants, path, label)
    return tuple(told)


def unread_changes(topology: Topology, why: str) -> tuple[str, ...]:
    """Return the changed figures of latencies, efficiencies and memory, where none counts, with the reason *why*."""
    return tuple(
        f"{label} changes nothing: {why}"
        for path, label in _changed(topology)
        if path == MEMORY or path.endswith(("latency", "efficiency"))
    )


def _changed(topology: Topology) -> list[tuple[str, str]]:
    """Return path and text of each figure that an override, or a file that extends a shipped one, changed."""
    facts = [fact for fact in topology.facts if fact.status == "set" or fact.path in topology.before]
    return [(fact.path, f"{fact.path}={fact.text}") for fact in facts]


def _of_fitted(topology: Topology, constants: Profile, path: str, label: str) -> list[str]:
    """Return the effect of a changed latency or efficiency; nothing where the profile counts the figure itself."""
    is_latency = path.endswith("latency")
    fitted = f'constants of profile "{constants.name}" hold'
    if constants.latency if is_latency else constants.achievable_rate:
        return []
    if path not in FITTED:
        section = "switch" if path.startswith("nodes") else "link"
        change = f"set {section}.latency for all" if is_latency else "degrade the link"
        return [f"{label} changes nothing: {fitted} what all have in common; {change}"]
    if path not in topology.before:
        return []
    before, more_s, left = topology.before[path], topology.excess(path), topology.remainder(path)
    if is_latency:
        added = (
            f": {format_time(more_s)} per {path.partition('.')[0]} is added to steps; {fitted} {format_time(before)}"
        )
        kept = f" changes nothing: {fitted} {format_time(before)}, and no log tells what less would save"
        return [label + (added if more_s else kept)]
    slower = f": rates are {left:.1%} of those at {before:g}, which {fitted}"
    kept = f" changes nothing: {fitted} what the library reaches at {before:g}, and no log tells of more"
    return [label + (slower if left < 1 else kept)]


def _of_memory(run: LoweredRun) -> str:
    """Return the effect of the memory of GPUs on a run."""
    need_Bps = float(memory_need_Bps(run.fabric.wiring, run.fabric.rank_node).max())
    if run.fabric.memory_Bps is None:
        return f"changes nothing: links never need more than {format_bandwidth(need_Bps)} of it"
    return f"is shared by all that GPUs read, write and add; their links could need {format_bandwidth(need_Bps)}"


def idle_variables(runs: Sequence[LoweredRun], question: Request, told_before: Sequence[str]) -> tuple[str, ...]:
    """Return the variables, in a sentence each, without any of which the library makes the same choice in all calls.

    Those that the warnings *told_before* name are left out.
    """
    if "auto" not in question.algo or question.library is None or not set(question.algo).isdisjoint(CHOICES[1:]):
        return ()
    told = []
    for name, value in question.environment.items():
        others = {other: text for other, text in question.environment.items() if other != name}
        known = any(f"{name}=" in warning for warning in told_before)
        if any(f"{name}={value}" in fact.source for run in runs for fact in run.topology.facts):
            continue  # it changes the path
        if name in TRANSPORTS or name == COPY_THRESHOLD:
            told += [f"{name}={value} {effect}"] if (effect := _effect_on_path(name, runs)) else []
            continue
        if name in PEERS and peer_level(runs[0].topology, _ranks(runs), read_environment({name: value})) != peer_level(
            runs[0].topology, _ranks(runs), read_environment({})
        ):
            continue
        if is_modelled(name) and not known and not _matters(runs, question, replace(question, environment=others)):
            told.append(f"{name}={value} changes nothing here: {question.library.name} chooses the same without it")
    return tuple(told)


def _effect_on_path(name: str, runs: Sequence[LoweredRun]) -> str:
    """Return why a variable of the path changes nothing of some runs; empty if it does."""
    if runs[0].topology.cluster is None:
        return "changes nothing within one node"
    if name != COPY_THRESHOLD:
        return "changes nothing on this network"
    if any(copies_faster(run.profile) for run in runs):
        return ""
    if any(with_copies(run.profile, EAGER_BYTES) is not run.profile for run in runs):
        return f"is taken as the default of {COPIED_FROM_BYTES}: on this network it counts from {EAGER_BYTES} on"
    return "changes nothing on this network"


def _ranks(runs: Sequence[LoweredRun]) -> list[int]:
    """Return the GPUs of all groups of a run."""
    return [int(gpu) for run in runs for gpu in run.fabric.rank_node]


def _matters(runs: Sequence[LoweredRun], question: Request, without: Request) -> bool:
    """Return True if the library chooses otherwise in one of the calls of a question."""
    for op in question.ops:
        for size_bytes in question.sizes_of(op):
            for run in runs:
                request = request_of(op, size_bytes, run, question)
                if request.size_bytes and _chosen(request, run, question) != _chosen(request, run, without):
                    return True
    return False


def _chosen(request: ScheduleRequest, run: LoweredRun, question: Request) -> tuple[object, ...]:
    """Return the choice of the library; nothing if the variables leave it none."""
    try:
        picked, asked, proto = library_choice(request, run, question)
    except InputError:
        return ()
    split = asked.channels, asked.chunk_bytes, asked.slots, asked.share_bytes
    return picked.name, proto, *split, asked.peer_channels, asked.peer_step_bytes
