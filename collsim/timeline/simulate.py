"""`simulate_timeline`: a trace or a workload to the time of its step, where it ran and elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from collsim.core.errors import Fault, InputError
from collsim.timeline.analysis import overlap_of
from collsim.timeline.answers import Told, call_row, events_of, helps_of, path_of, streams_of
from collsim.timeline.build import build
from collsim.timeline.calls import Machine, Predictor, recorded_environment
from collsim.timeline.gpus import gpu_of
from collsim.timeline.graph import Node
from collsim.timeline.kineto import is_trace
from collsim.timeline.reader import read_trace
from collsim.timeline.replay import HOST, Replay, replay
from collsim.timeline.result import CallRow, TimelineResult
from collsim.timeline.steps import by_steps
from collsim.timeline.trace import COLLECTIVE, Call, Trace
from collsim.timeline.what_if import Changes, WhatIf, across, asked_for, gpus_of

__all__ = ["simulate_timeline"]

REPEATS = 0.03
"""Steps repeat within 1 to 2 %, and 5 % between machines (own runs on two H200); the profiler adds some."""
RATIO_ERROR = 0.08
"""Error of the logarithm of a ratio of predicted times, as a share of it; own runs on two H200 at 8 and 2 channels."""
MOST_ROUNDS = 6
"""The clock of the GPU and the time of the step follow each other; after so many rounds they do."""
SETTLED = 1e-3


def simulate_timeline(
    file: str | Path,
    what_if: WhatIf | None = None,
    *,
    steps: int | None = None,
    recorded_on: str | None = None,
    **changes: Unpack[Changes],
) -> TimelineResult:
    """Predict the time of a step.

    Parameters
    ----------
    file : str or path
        A trace of torch.profiler of one rank, as JSON, also compressed by gzip; or a workload as YAML.
    what_if : WhatIf, optional
        What is to be different; or, in place of it:
    **changes
        ``topo``, ``ranks``, ``nodes``, ``environment``, ``compute_scale``, ``fail``, ``degrade``, ``overrides``,
        ``profile`` and ``library``, as the flags of ``collsim timeline``.
    steps : int, optional
        How many steps a trace holds; by default its marks tell, or what repeats.
    recorded_on : str, optional
        System on which a trace was recorded; by default that of its GPU.

    Raises
    ------
    InputError
        The file cannot be read, or does not say what the what-if needs.
    CollsimError
        As of `collsim.simulation.simulate.simulate`.
    """
    asked = asked_for(what_if, **changes)
    if not (math.isfinite(asked.compute_scale) and asked.compute_scale > 0):
        raise InputError(Fault(f"{asked.compute_scale} times as long", "compute_scale", "give a positive number"))
    if not is_trace(str(file)):
        from collsim.timeline.workload import simulate_workload

        return simulate_workload(file, asked)
    trace, count, note = by_steps(read_trace(file), steps)
    return _Study(trace, count, asked, recorded_on, [*trace.lost, *filter(None, [note])]).result()


class _Study:
    """A trace, its graph, and what is asked of it."""

    def __init__(self, trace: Trace, steps: int, asked: WhatIf, recorded_on: str | None, notes: list[str]) -> None:
        self.trace, self.steps, self.asked, self.notes = trace, steps, asked, notes
        self.gpu = gpu_of(trace.gpu, trace.sms)
        if not self.gpu.known:
            notes.append(f"{self.gpu.name}: its figures are not known, kernels are taken not to disturb each other")
        self.calls = list(dict.fromkeys(k.call for k in trace.kernels if k.call is not None and k.call.size_bytes))
        self.before = self._recorded(recorded_on or self.gpu.topology)
        told = {} if self.before is None else {call: self.before.of(call) for call in self.calls}
        built = build(trace, self.gpu, told)
        self.nodes, self.order = built.nodes, built.calls

    def _recorded(self, topology: str) -> Predictor | None:
        """Return the model of where the trace was recorded; nothing if it cannot be known."""
        if not self.calls:
            return None
        if not topology:
            if self.asked.moves_collectives:
                hint = "say where it was recorded, such as --recorded-on hgx_h100"
                raise InputError(Fault(f'no system of the zoo has GPU "{self.trace.gpu}"', self.trace.file, hint))
            self.notes.append("no system of the zoo has this GPU: collectives keep their time")
            return None
        machine = Machine(topology, options=across(topology, max(call.ranks for call in self.calls)))
        grids: dict[Call, int] = {k.call: k.ctas for k in self.trace.kernels if k.call in self.calls and k.call}
        machine = machine.but(**recorded_environment(machine, grids))
        return Predictor(machine)

    def _after(self) -> Predictor | None:
        """Return the model of where the step is to run."""
        asked, before = self.asked, self.before
        if before is None or not asked.moves_collectives:
            return before
        old, world = before.machine, self.trace.world
        topology = asked.topo or old.topology
        ranks = asked.ranks
        kept = {} if asked.topo else dict(old.options)
        options = {**kept, **{k: v for k, v in asked.options.items() if v}}
        if changed := {**dict(kept.get("overrides") or {}), **dict(asked.options.get("overrides") or {})}:
            options["overrides"] = changed
        if asked.nodes:
            overrides = {**dict(options.get("overrides") or {}), "scale_out.nodes": str(asked.nodes)}
            options["overrides"] = overrides
            ranks = ranks or asked.nodes * gpus_of(topology)
        elif ranks or asked.topo:
            options = {**options, **across(topology, ranks or world, options)}
        if ranks and all(call.ranks != world for call in self.calls):
            self.notes.append(f"no collective is of all {world} ranks of the trace: none changes its number of ranks")
        environment = {**({} if asked.topo else old.environment), **asked.environment}
        machine = Machine(topology, environment, options, {world: ranks} if ranks else {})
        return Predictor(machine)

    def changed(self, after: Predictor | None, lean: float = 0.0) -> list[Node]:
        """Return the nodes as the what-if has them; *lean* shifts ratios by so many times their error."""
        nodes = [replace(node) for node in self.nodes]
        for node in nodes:
            if node.kind not in (COLLECTIVE, HOST):
                node.work_s *= self.asked.compute_scale
            if after is None or after is self.before or node.call < 0 or self.before is None:
                continue
            call = self.order[node.call]
            ratio = self.before.ratio(call, after)
            node.work_s *= math.exp(math.log(ratio) + lean * RATIO_ERROR * abs(math.log(ratio)))
            told = after.of(call)
            node.sms, node.spare = self.gpu.held(call.op, told.channels), told.spare
        return nodes

    def run(self, nodes: Sequence[Node]) -> tuple[Replay, float]:
        """Replay nodes at the clock that the power of the GPU allows."""
        recorded_s = self.trace.span_s
        work_s = sum(node.work_s for node in self.nodes if node.kind not in (COLLECTIVE, HOST))
        speed, found = 1.0, replay(nodes, self.gpu)
        for _ in range(MOST_ROUNDS):
            clock = self.gpu.speed(work_s, recorded_s, found.span_s)
            if abs(clock - speed) < SETTLED or not self.gpu.known:
                break
            speed = clock
            found = replay(nodes, self.gpu, speed=speed)
        return found, speed

    def result(self) -> TimelineResult:
        """Answer what is asked."""
        steps, same = self.steps, replay(self.nodes, self.gpu)
        after = self._after()
        nodes = self.changed(after)
        is_same = after is self.before and self.asked.compute_scale == 1.0
        run, speed = (same, 1.0) if is_same else self.run(nodes)
        step_s = run.span_s / steps
        low_s, high_s = step_s, step_s
        if not is_same:
            spans = [self.run(self.changed(after, lean))[0].span_s / steps for lean in (-1.0, 1.0)]
            low_s, high_s = min(step_s, *spans), max(step_s, *spans)
        overlap = overlap_of(nodes, run)
        return TimelineResult(
            file=self.trace.file,
            topology=after.machine.topology if after else self.gpu.topology,
            gpu=self.trace.gpu or self.gpu.name,
            step_time_s=step_s,
            low_s=low_s * (1 - REPEATS),
            high_s=high_s * (1 + REPEATS),
            recorded_step_time_s=self.trace.span_s / steps,
            replayed_step_time_s=same.span_s / steps,
            steps=steps,
            communication_s=overlap.communication_s / steps,
            compute_s=overlap.compute_s / steps,
            exposed_s=overlap.exposed_s / steps,
            overlap_s=overlap.overlap_s / steps,
            speed=speed,
            streams=streams_of(nodes, run, steps),
            calls=self._rows(nodes, run, after),
            path=path_of(nodes, run, steps),
            helps=helps_of(nodes, run.span_s, lambda changed: replay(changed, self.gpu, speed=speed).span_s, steps),
            events=events_of(nodes, run),
            notes=tuple(self.notes),
        )

    def _rows(self, nodes: Sequence[Node], run: Replay, after: Predictor | None) -> tuple[CallRow, ...]:
        rows: list[CallRow] = []
        for number, call in enumerate(self.order):
            of_call = [i for i, node in enumerate(nodes) if node.call == number]
            recorded = [self.trace.kernels[i].end_s - self.trace.kernels[i].start_s for i in of_call]
            told = after.of(call) if after else None
            ranks = after.machine.ranks.get(call.ranks, call.ranks) if after else call.ranks
            channels = self.trace.kernels[of_call[0]].ctas
            if told is not None and after is not self.before:
                channels = told.channels
            of = Told(call, ranks, channels, told.link if told else "")
            rows.append(call_row(of, nodes, run, of_call, steps=self.steps, recorded_s=recorded))
        return tuple(sorted(rows, key=lambda row: -row.time_s * row.count))
