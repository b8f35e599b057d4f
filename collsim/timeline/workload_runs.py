"""Workloads that are simulated: steps of a file, written down or of a model in a layout, on a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, SpecError, unknown_keys
from collsim.core.progress import steps
from collsim.core.units import format_count
from collsim.simulation.request.groups import ParallelLayout
from collsim.timeline.analysis import overlap_of
from collsim.timeline.answers import Told, call_row, events_of, helps_of, path_of, streams_of
from collsim.timeline.calls import Machine, Predictor
from collsim.timeline.gpus import Gpu, gpu_of
from collsim.timeline.graph import Node
from collsim.timeline.models import Layout, Transformer, layer_of, load_transformer
from collsim.timeline.places import Place, grown, place_of
from collsim.timeline.ready_made import training
from collsim.timeline.replay import replay
from collsim.timeline.result import TimelineResult
from collsim.timeline.trace import COLLECTIVE, Call
from collsim.timeline.what_if import WhatIf, across, gpus_of
from collsim.timeline.workload import (
    HEAD,
    MOST_NODES,
    Graph,
    empty_graph,
    environment_of,
    graph_of,
    group_of,
    layout_of,
    rates_of,
    read_workload,
    time_graph,
)

__all__ = ["extent_of", "simulate_workload", "step_of_model"]

DEFAULTS = {"batches": 1, "micro_batch": 1, "sequence": 4096, "chunks": 1}
FLAGS = ("fail", "degrade", "overrides", "set", "profile", "library")
"""Places of faults that no file of a workload has."""
OF_MODEL = ("model", *DEFAULTS)


def simulate_workload(
    file: str | Path, asked: WhatIf, figures: Mapping[str, Any] | None = None
) -> TimelineResult:  # fmt: skip
    """Simulate a workload with what is to be different; *figures* replace entries of its file.

    Raises
    ------
    InputError
        As `read_workload` and `graph_of`; no system is named.
    CollsimError
        As of `collsim.simulation.simulate.simulate`.
    """
    data = {**read_workload(file), **(figures or {})}
    topology = _topology_of(data, str(file), asked)
    if "model" in data:
        step = step_of_model(data, str(file), asked, gpus_of(topology, asked.options))
    else:
        step = _step_of(data, str(file), asked, topology)
    options: dict[str, Any] = {k: v for k, v in asked.options.items() if v}
    if asked.nodes:
        options["overrides"] = {**dict(options.get("overrides") or {}), "scale_out.nodes": str(asked.nodes)}
    environment = {**environment_of(data), **asked.environment}
    machine = Machine(topology, environment, options, step.ranks, step.groups, step.members)
    calls = [call for call in step.graph.calls if machine.ranks_of(call) > 1]
    if calls and not asked.nodes:
        extent = max(machine.place_of(call).extent(machine.ranks_of(call)) for call in calls)
        machine = machine.also(**across(topology, extent, options))
    gpu = gpu_of(str(data.get("gpu", topology)).replace("_", " "))
    for node in step.graph.nodes:
        if node.kind != COLLECTIVE:
            node.work_s *= asked.compute_scale
    predictor = Predictor(machine)
    _check_calls(data, str(file), asked, step.graph.calls, predictor)
    return _answer(str(file), step, gpu, predictor)


def _topology_of(data: Mapping[str, Any], file: str, asked: WhatIf) -> str:
    """Return the system of a workload; what else is wrong with its file is said first."""
    topology = asked.topo or data.get("topo")
    if not topology:
        if "model" not in data:
            graph_of(data, file)
        raise InputError(Fault("no system is named", f"{file}: topo", "add topo: to the file, or --topo hgx_h100"))
    if not isinstance(topology, str):
        raise InputError(Fault(f"{topology!r} is no name of a system", f"{file}: topo", "such as hgx_h100"))
    if not asked.topo:
        faults = Faults(lambda where: f"{file}: topo" if where == "topo" else where)
        faults.attempt(gpus_of, topology)
        faults.raise_any()
    return topology


def extent_of(
    file: str | Path, asked: WhatIf, figures: Mapping[str, Any] | None = None
) -> tuple[int, int | None]:  # fmt: skip
    """Return how many GPUs a step of a workload takes, and the tokens that it trains on; None where it does not say.

    A model has as many ranks as its layout; each copy trains ``batches`` micro-batches of ``micro_batch`` sequences.

    Raises
    ------
    InputError
        As `simulate_workload`.
    """
    data = {**read_workload(file), **(figures or {})}
    if "model" in data:
        layout = Layout.read(data.get("layout", ""))
        counts = [int(data.get(name, DEFAULTS[name])) for name in ("batches", "micro_batch", "sequence")]
        return layout.ranks, math.prod(counts) * layout.dp
    if asked.nodes and not asked.ranks:
        return asked.nodes * gpus_of(str(asked.topo or data.get("topo")), asked.options), None
    if asked.ranks:
        return asked.ranks, None
    if dimensions := layout_of(data):
        return math.prod(size for _, size in dimensions), None
    return max((call.ranks for call in graph_of(data, str(file)).calls), default=1), None


@dataclass(frozen=True, slots=True)
class _Step:
    """Graph of a step, where its groups lie, numbers of ranks that differ from those of the file, and what is taken."""

    graph: Graph
    groups: Mapping[str, Place] = field(default_factory=dict)
    ranks: Mapping[int, int] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _step_of(data: Mapping[str, Any], file: str, asked: WhatIf, topology: str) -> _Step:
    """Return a step that is written down; groups that reach over all of its ranks have as many as is asked."""
    graph, layout, per_node = graph_of(data, file), layout_of(data), gpus_of(topology, asked.options)
    ranks = asked.ranks or (asked.nodes * per_node if asked.nodes else None)
    if not layout:
        world = max((call.ranks for call in graph.calls), default=1)
        return _Step(graph, ranks={world: ranks} if ranks else {})
    world = math.prod(size for _, size in layout)
    told = {call.group: group_of(layout, call.group) for call in graph.calls}
    groups = {name: place_of(members, per_node) for name, members in told.items() if members}
    for name in [name for name, place in groups.items() if place.lists]:
        every = ParallelLayout(layout, tuple(part.strip() for part in name.split(","))).groups(world)
        groups[name] = Place(lists=tuple(map(tuple, every)))
    members = {name: grown(place, len(told[name]), world, ranks or world, name) for name, place in groups.items()}
    return _Step(graph, groups, members=members)


def step_of_model(data: Mapping[str, Any], file: str, asked: WhatIf, per_node: int) -> _Step:
    """Return the step of a model in a layout, on nodes of *per_node* GPUs.

    Raises
    ------
    SpecError
        All that is wrong with the file.
    """
    faults = Faults(lambda where: f"{file}: {where}" if where else file)
    faults.extend(
        unknown_keys(data, [*(key for key in HEAD if key not in ("step", "ranks", "memory")), *OF_MODEL], lambda _: "")
    )
    graph = empty_graph(data, faults)
    if asked.ranks or asked.nodes:
        faults.append(Fault("ranks of a model follow from its layout", "layout", "change dp, tp, pp, cp or ep there"))
    whole = {key: _whole(data, key, default, faults) for key, default in DEFAULTS.items()}
    flops, _ = rates_of(data, faults)
    if "layout" not in data:
        faults.append(Fault("no layout is given", "layout", "such as layout: tp=8,pp=4,dp=16"))
    model = faults.attempt(load_transformer, data["model"])
    layout = faults.attempt(Layout.read, data.get("layout", ""))
    faults.raise_any(SpecError)
    assert model is not None
    assert layout is not None
    sizes = {key: whole[key] for key in ("sequence", "micro_batch")}
    layer = faults.attempt(lambda: layer_of(model, layout, **sizes, flops=flops))
    astride = layout.astride(per_node)
    if "tp" in astride:
        near = [n for n in range(1, per_node + 1) if per_node % n == 0 and model.heads % n == 0]
        hint = f"give tp={max(n for n in near if n <= layout.tp)}, or another of {', '.join(map(str, near))}"
        if part := per_node - per_node % layout.tp:
            hint += f"; or use {format_count(part, 'GPU')} of each node: --set gpu.count={part}"
        what = f"groups of tp={layout.tp} lie across nodes of {format_count(per_node, 'GPU')} in different ways"
        faults.append(Fault(what, "layout", hint))
    faults.raise_any(SpecError)
    assert layer is not None
    groups, messages = layout.places(per_node)
    counts = {"batches": whole["batches"], "chunks": whole["chunks"]}
    ranks = {name: getattr(layout, name) for name in ("tp", "pp", "dp", "cp", "ep")}
    if (count := counts["batches"] * _size_of(model, layout)) > MOST_NODES:
        hint = "give fewer batches: each takes as long as another once the pipeline is full"
        faults.append(Fault(f"{count:,} kernels and collectives, more than {MOST_NODES:,}", "batches", hint))
    faults.raise_any(SpecError)
    faults.attempt(
        lambda: training(layers=model.layers, layer=layer, **counts, **ranks, messages=messages, graph=graph)
    )
    faults.raise_any(SpecError)
    notes = [
        f"{name.replace(',', ' x ')} neither fills nodes of {per_node} GPUs nor divides them: the groups of the first "
        "ranks stand for all"
        for name in astride
    ]
    return _Step(graph, groups, notes=tuple(notes))


def _size_of(model: Transformer, layout: Layout) -> int:
    """Return about how many kernels and collectives a micro-batch is: those of each layer, forward and backward."""
    groups = 2 * (layout.tp > 1) + 2 * (layout.ep > 1) + 2 * (layout.cp > 1)
    return 2 * model.layers * (2 + groups if groups else 1)


def _whole(data: Mapping[str, Any], key: str, default: int, faults: Faults) -> int:
    value = data.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        faults.append(Fault(f"{value!r} is no count", key, "give 1 or more"))
        return default
    return value


def _check_calls(
    data: Mapping[str, Any], file: str, asked: WhatIf, calls: Sequence[Call], predictor: Predictor
) -> None:  # fmt: skip
    """Raise what the model refuses of collectives, with where its user wrote it: a flag, or the file."""
    of_flags = {"ranks": asked.ranks or asked.nodes, "topo": asked.topo, "env": asked.environment}

    def placed(fault: Fault, call: Call) -> Fault:
        key = fault.where.removeprefix("--").partition(" ")[0]
        key = {"environment": "env", "groups": "ranks"}.get(key, key)
        of_nodes = "scale_out.nodes" in fault.where and "scale_out.nodes" not in (asked.options.get("overrides") or {})
        if not of_nodes and (key in FLAGS or of_flags.get(key)):
            return fault
        if of_nodes or key in ("ranks", "size", "dtype", "op", ""):
            what = f"{call.op} of {call.size_bytes} B on {predictor.machine.ranks_of(call)} ranks: {fault.what}"
            where = next((name for name in ("layout", "ranks") if name in data), "step")
            return replace(fault, what=what, where=f"{file}: {where}")
        return replace(fault, where=f"{file}: {key}")

    faults = Faults()
    for call in steps(calls, "collectives"):
        try:
            predictor.of(call)
        except InputError as error:
            faults.extend(placed(fault, call) for fault in error.faults)
    faults.raise_any()


def _answer(file: str, step: _Step, gpu: Gpu, predictor: Predictor) -> TimelineResult:
    graph = step.graph
    nodes, run = time_graph(graph, gpu, predictor)

    def span_of(changed: list[Node]) -> float:
        return replay(changed, gpu).span_s

    def leaning(bound: str) -> float:
        scale = [getattr(predictor.of(call), bound) / (predictor.of(call).time_s or 1.0) for call in graph.calls]
        return span_of([replace(n, work_s=n.work_s * scale[n.call]) if n.call >= 0 else replace(n) for n in nodes])

    overlap, names = overlap_of(nodes, run), graph.streams
    unknown = () if gpu.known else (f"{gpu.name}: its figures are not known, kernels do not disturb each other",)
    rows = []
    for number, call in enumerate(graph.calls):
        told = predictor.of(call)
        of = Told(call, predictor.machine.ranks_of(call), told.channels, told.link)
        rows.append(call_row(of, nodes, run, [i for i, n in enumerate(nodes) if n.call == number], steps=1))
    return TimelineResult(
        file=file,
        topology=predictor.machine.topology,
        gpu=gpu.name,
        step_time_s=run.span_s,
        time_lo_s=min(leaning("lo_s"), run.span_s),
        time_hi_s=max(leaning("hi_s"), run.span_s),
        recorded_step_time_s=None,
        replayed_step_time_s=None,
        steps=1,
        communication_s=overlap.communication_s,
        compute_s=overlap.compute_s,
        exposed_s=overlap.exposed_s,
        overlap_s=overlap.overlap_s,
        speed=1.0,
        streams=tuple(replace(use, stream=names[int(use.stream)]) for use in streams_of(nodes, run, 1)),
        calls=tuple(rows),
        path=path_of(nodes, run, 1),
        helps=helps_of(nodes, run.span_s, span_of, 1),
        events=tuple(replace(event, stream=names[int(event.stream)]) for event in events_of(nodes, run)),
        notes=(*step.notes, *unknown),
    )
