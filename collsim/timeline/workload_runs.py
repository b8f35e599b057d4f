"""Workloads that are simulated: steps of a file, written down or of a model in a layout, on a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, SpecError, unknown_keys
from collsim.timeline.analysis import overlap_of
from collsim.timeline.answers import Told, call_row, events_of, helps_of, path_of, streams_of
from collsim.timeline.calls import Machine, Predictor
from collsim.timeline.gpus import Gpu, gpu_of
from collsim.timeline.graph import Node
from collsim.timeline.models import Layout, layer_of, load_transformer
from collsim.timeline.ready_made import training
from collsim.timeline.replay import replay
from collsim.timeline.result import TimelineResult
from collsim.timeline.trace import COLLECTIVE
from collsim.timeline.what_if import WhatIf, across, gpus_of
from collsim.timeline.workload import (
    HEAD,
    SCHEMA,
    TENSOR_FLOPS,
    Graph,
    environment_of,
    figure,
    graph_of,
    read_workload,
    time_graph,
)

__all__ = ["extent_of", "simulate_workload", "step_of_model"]

DEFAULTS = {"batches": 1, "micro_batch": 1, "sequence": 4096, "chunks": 1}
OF_MODEL = ("model", "layout", "flops", *DEFAULTS)


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
    topology = asked.topo or data.get("topo")
    step = step_of_model(data, str(file), asked) if "model" in data else _Step(graph_of(data, str(file)))
    if not topology:
        raise InputError(Fault("no system is named", "topo", "add topo: to the file, or --topo hgx_h100"))
    graph = step.graph
    options: dict[str, Any] = {k: v for k, v in asked.options.items() if v}
    world = step.ranks or max((call.ranks for call in graph.calls), default=1)
    ranks = asked.ranks or world
    if asked.nodes:
        ranks = asked.ranks or asked.nodes * gpus_of(str(topology))
        options["overrides"] = {**dict(options.get("overrides") or {}), "scale_out.nodes": str(asked.nodes)}
    else:
        options |= across(str(topology), ranks, options)
    environment = {**environment_of(data), **asked.environment}
    renamed = {world: ranks} if ranks != world else {}
    predictor = Predictor(Machine(str(topology), environment, options, renamed, step.groups))
    gpu = gpu_of(str(data.get("gpu", topology)).replace("_", " "))
    for node in graph.nodes:
        if node.kind != COLLECTIVE:
            node.work_s *= asked.compute_scale
    return _answer(str(file), graph, gpu, predictor)


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
        layout = Layout.read(str(data.get("layout", "")))
        counts = [int(data.get(name, DEFAULTS[name])) for name in ("batches", "micro_batch", "sequence")]
        return layout.ranks, math.prod(counts) * layout.dp
    if asked.nodes and not asked.ranks:
        return asked.nodes * gpus_of(str(asked.topo or data.get("topo"))), None
    graph = graph_of(data, str(file))
    return asked.ranks or max((call.ranks for call in graph.calls), default=1), None


@dataclass(frozen=True, slots=True)
class _Step:
    """Graph of a step, what its groups are told, and the ranks that collectives need; 0: as many as the largest has."""

    graph: Graph
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ranks: int = 0


def step_of_model(data: Mapping[str, Any], file: str, asked: WhatIf) -> _Step:
    """Return the step of a model in a layout.

    Raises
    ------
    SpecError
        All that is wrong with the file.
    """
    faults = Faults(lambda where: f"{file}: {where}" if where else file)
    faults.extend(unknown_keys(data, [*(key for key in HEAD if key not in ("step", "ranks")), *OF_MODEL], lambda _: ""))
    if data.get("schema") != SCHEMA:
        faults.append(Fault(f'schema is "{data.get("schema")}"', "schema", f"write schema: {SCHEMA}"))
    if asked.ranks or asked.nodes:
        faults.append(Fault("ranks of a model follow from its layout", "layout", "change dp, tp, pp, cp or ep there"))
    whole = {key: _whole(data, key, default, faults) for key, default in DEFAULTS.items()}
    flops = faults.attempt(figure, data.get("flops", TENSOR_FLOPS), "flops")
    if flops == 0:
        faults.append(Fault("0 operations a second", "flops", "such as 600e12"))
    faults.attempt(environment_of, data)
    model = faults.attempt(load_transformer, data["model"])
    layout = faults.attempt(Layout.read, str(data.get("layout", "")))
    faults.raise_any(SpecError)
    assert model is not None
    assert layout is not None
    assert flops is not None
    sizes = {key: whole[key] for key in ("sequence", "micro_batch")}
    layer = faults.attempt(lambda: layer_of(model, layout, **sizes, flops=flops))
    faults.raise_any(SpecError)
    assert layer is not None
    counts = {"batches": whole["batches"], "chunks": whole["chunks"]}
    ranks = {name: getattr(layout, name) for name in ("tp", "pp", "dp", "cp", "ep")}
    graph = faults.attempt(lambda: training(layers=model.layers, layer=layer, **counts, **ranks))
    faults.raise_any(SpecError)
    assert graph is not None
    return _Step(graph, layout.groups(), layout.stage_ranks)


def _whole(data: Mapping[str, Any], key: str, default: int, faults: Faults) -> int:
    value = data.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        faults.append(Fault(f"{value!r} is no count", key, "give 1 or more"))
        return default
    return value


def _answer(file: str, graph: Graph, gpu: Gpu, predictor: Predictor) -> TimelineResult:
    nodes, run = time_graph(graph, gpu, predictor)

    def span_of(changed: list[Node]) -> float:
        return replay(changed, gpu).span_s

    def leaning(bound: str) -> float:
        scale = [getattr(predictor.of(call), bound) / (predictor.of(call).time_s or 1.0) for call in graph.calls]
        return span_of([replace(n, work_s=n.work_s * scale[n.call]) if n.call >= 0 else replace(n) for n in nodes])

    overlap, names = overlap_of(nodes, run), graph.streams
    rows = []
    for number, call in enumerate(graph.calls):
        told = predictor.of(call)
        of = Told(call, predictor.machine.ranks.get(call.ranks, call.ranks), told.channels, told.link)
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
        notes=() if gpu.known else (f"{gpu.name}: its figures are not known, kernels do not disturb each other",),
    )
