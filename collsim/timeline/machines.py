"""Machines of traces: where a trace was recorded, with the places of its groups, and where its step is to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collsim.timeline.calls import Machine
from collsim.timeline.places import Place, grown, place_of
from collsim.timeline.trace import Call, Trace
from collsim.timeline.what_if import WhatIf, across, gpus_of

__all__ = ["changed_machine", "recorded_machine"]

PER_NODE = "gpus_per_node"


def recorded_machine(trace: Trace, calls: Sequence[Call], topology: str) -> tuple[Machine, list[str]]:
    """Return the machine of a trace, on nodes with as many GPUs as it says, and what is not sure about it."""
    options: dict[str, Any] = {PER_NODE: trace.node_gpus} if 0 < trace.node_gpus < gpus_of(topology) else {}
    groups = _places(trace, topology, options)
    used = {call.group for call in calls}
    alone = [name for name, place in groups.items() if place.lists and name in used]
    notes = [f"group {name}: its ranks are not evenly apart, it is timed with no other beside it" for name in alone]
    machine = Machine(topology, {}, options, {}, groups, world=trace.world)
    return _large_enough(machine, calls), notes


def changed_machine(trace: Trace, calls: Sequence[Call], old: Machine, asked: WhatIf) -> Machine:
    """Return where the step of a trace is to run.

    Raises
    ------
    InputError
        The ranks do not hold the groups of the trace.
    """
    topology = asked.topo or old.topology
    kept = {} if asked.topo else dict(old.options)
    options = {**kept, **{k: v for k, v in asked.options.items() if v}}
    overrides = {**dict(kept.get("overrides") or {}), **dict(asked.options.get("overrides") or {})}
    ranks = asked.ranks
    if asked.nodes:
        overrides["scale_out.nodes"] = str(asked.nodes)
        ranks = ranks or asked.nodes * (int(options.get(PER_NODE) or 0) or gpus_of(topology))
    if overrides:
        options["overrides"] = overrides
    groups, world = _places(trace, topology, options), ranks or trace.world
    members = {name: grown(each, len(trace.groups[name]), trace.world, world, name) for name, each in groups.items()}
    environment = {**({} if asked.topo else old.environment), **asked.environment}
    machine = Machine(topology, environment, options, {trace.world: world}, groups, members, world)
    return _large_enough(machine, calls) if not asked.nodes and (ranks or asked.topo) else machine


def _places(trace: Trace, topology: str, options: Mapping[str, Any]) -> dict[str, Place]:
    """Return where the groups of a trace lie."""
    per_node = int(options.get(PER_NODE) or 0) or gpus_of(topology)
    return {name: place_of(ranks, per_node) for name, ranks in trace.groups.items()}


def _large_enough(machine: Machine, calls: Sequence[Call]) -> Machine:
    """Return a machine with as many nodes as its groups reach over."""
    extent = max(machine.place_of(call).extent(machine.ranks_of(call)) for call in calls)
    return machine.also(**across(machine.topology, extent, machine.options))
