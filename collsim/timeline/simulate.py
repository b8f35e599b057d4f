"""`simulate_timeline`: a trace or a workload to the time of its step, where it ran and elsewhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from collsim.core import progress
from collsim.core.errors import CollsimError, Fault, Faults, InputError
from collsim.timeline.analysis import Overlap, overlap_of
from collsim.timeline.answers import Told, call_row, events_of, helps_of, path_of, streams_of
from collsim.timeline.build import build
from collsim.timeline.calls import Machine, Predictor, recorded_environment
from collsim.timeline.gpus import gpu_of
from collsim.timeline.graph import Node
from collsim.timeline.kineto import check_kind, is_trace
from collsim.timeline.machines import changed_machine, recorded_machine
from collsim.timeline.peers import with_peers
from collsim.timeline.reader import read_trace
from collsim.timeline.replay import HOST, Replay, replay
from collsim.timeline.result import CallRow, PathPart, TimelineResult
from collsim.timeline.steps import by_steps
from collsim.timeline.trace import COLLECTIVE, Call, Trace
from collsim.timeline.what_if import Changes, WhatIf, asked_for, gpus_of

__all__ = ["simulate_timeline"]

REPEATS = 0.03
"""Steps repeat within 1 to 2 %, and 5 % between machines (own runs on two H200); the profiler adds some."""
RATIO_ERROR = 0.08
"""Error of the logarithm of a ratio of predicted times, as a share of it; own runs on two H200 at 8 and 2 channels."""
LEAST_NOTED = 0.01
"""Share of a trace from which on what is not sure is said."""
REPLAY_ERROR = 0.02
"""By how much a replay may differ from what was recorded; own steps differ by less than 0.005."""
UNPROFILED = 0.6
"""What launches take without the profiler, over that with it: own steps on two H200, 23.6 ms against 38.5."""
LEAST_BOUND = 0.1
"""Share of the step that launches are on the critical path, from which on they bind it."""
LEAST_TALK = 0.05
"""Share of the step with collectives from which on variables of the library are tried."""
PROBE_BYTES = 1 << 20
"""Of a collective that checks what is asked where the trace has none."""
CHANNELS, NVLS, MOST_CHANNELS = "NCCL_MAX_NCHANNELS", "NCCL_NVLS_ENABLE", 64
MOST_ROUNDS = 6
"""The clock of the GPU and the time of the step follow each other; after so many rounds they do."""
SETTLED = 1e-3


def simulate_timeline(
    file: str | Path | Sequence[str | Path],
    what_if: WhatIf | None = None,
    *,
    steps: int | None = None,
    recorded_on: str | None = None,
    **changes: Unpack[Changes],
) -> TimelineResult:
    """Predict the time of a step.

    Parameters
    ----------
    file : str, path or sequence of them
        A trace of torch.profiler of one rank, as JSON, also compressed by gzip; or a workload as YAML. Traces of
        further ranks say how long the first waited for them.
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

    Examples
    --------
    >>> step = simulate_timeline("examples/training_step.yaml")
    >>> step.topology, step.exposed_s < step.communication_s < step.step_time_s
    ('hgx_h100', True)
    """
    if what_if is not None and not isinstance(what_if, WhatIf):
        hint = "pass a WhatIf, or its fields by name, such as nodes=4"
        raise InputError(Fault(f"{what_if!r} is no what-if", "what_if", hint))
    asked = asked_for(what_if, **changes)
    if not (math.isfinite(asked.compute_scale) and asked.compute_scale > 0):
        raise InputError(Fault(f"{asked.compute_scale} times as long", "compute_scale", "give a positive number"))
    if not isinstance(asked.environment, Mapping):
        hint = 'write {"NCCL_ALGO": "Ring"}'
        raise InputError(Fault(f"{asked.environment!r:.60} is no mapping of variables", "environment", hint))
    files = [file] if isinstance(file, str | Path) else [*file]
    if not files:
        raise InputError(Fault("no file is named", "file", "name a trace, or a workload in YAML"))
    first, *others = files
    faults = Faults()
    for each in (first, *others):
        faults.attempt(check_kind, str(each))
    if len({str(each) for each in (first, *others)}) <= len(others):
        faults.append(Fault("a file is named twice", str(first), "give the trace of each rank once"))
    faults.raise_any()
    if not is_trace(str(first)):
        from collsim.timeline.workload_runs import simulate_workload

        if others:
            faults.append(
                Fault(f"{1 + len(others)} files", str(first), "give one workload, or traces of several ranks")
            )
        for name, value in (("steps", steps), ("recorded_on", recorded_on)):
            if value is not None:
                faults.append(Fault("goes with a trace, not with a workload", name, "leave it out"))
        faults.raise_any()
        return simulate_workload(first, asked)
    trace = read_trace(first)
    if others:
        trace = with_peers(trace, [read_trace(other) for other in others])
    trace, count, note = by_steps(trace, steps)
    return _Study(trace, count, asked, recorded_on, [*trace.lost, *filter(None, [note])]).result()


class _Study:
    """A trace, its graph, and what is asked of it."""

    def __init__(self, trace: Trace, steps: int, asked: WhatIf, recorded_on: str | None, notes: list[str]) -> None:
        self.trace, self.steps, self.asked, self.notes = trace, steps, asked, notes
        self.gpu = gpu_of(trace.gpu, trace.sms)
        if not self.gpu.known:
            notes.append(f"{self.gpu.name}: its figures are not known, kernels are taken not to disturb each other")
        self.calls = list(dict.fromkeys(k.call for k in trace.kernels if k.call is not None and k.call.size_bytes))
        if recorded_on is not None:  # what is wrong with it is no fault of where the step is to run
            faults = Faults(lambda where: "recorded_on" if where == "topo" else where)
            faults.attempt(gpus_of, recorded_on)
            faults.raise_any()
        self.before = self._recorded(recorded_on or self.gpu.topology)
        told = {} if self.before is None else {call: self.before.of(call) for call in self.calls}
        built = build(trace, self.gpu, told)
        self.nodes, self.order = built.nodes, built.calls
        self._note_late(built.late)

    def _note_late(self, late: dict[int, float]) -> None:
        """Say which collectives took longer than the model says, always, if that is much of the trace."""
        lost_s = dict.fromkeys(late, 0.0)
        for node in self.nodes:
            if node.call in late:
                lost_s[node.call] += node.late_s
        told = [
            f"{self.order[number].op} of {self.order[number].size_bytes} B {late[number]:.1f} times"
            for number, each_s in lost_s.items()
            if each_s > LEAST_NOTED * self.trace.span_s
        ]
        if told:
            self.notes.append(
                f"always longer than the model says: {', '.join(told)}; that is taken for waiting for peers (the trace "
                "of another rank tells; or the kernel did more than the trace says, as where calls are coalesced)"
            )

    def _recorded(self, topology: str) -> Predictor | None:
        """Return the model of where the trace was recorded; nothing if it cannot be known."""
        if not self.calls:
            self._check_unheard(topology)
            return None
        if not topology:
            if self.asked.moves_collectives:
                hint = "say where it was recorded, such as --recorded-on hgx_h100"
                raise InputError(Fault(f'no system of the zoo has GPU "{self.trace.gpu}"', self.trace.file, hint))
            self.notes.append("no system of the zoo has this GPU: collectives keep their time")
            return None
        machine, notes = recorded_machine(self.trace, self.calls, topology)
        self.notes += notes
        grids: dict[Call, int] = {k.call: k.ctas for k in self.trace.kernels if k.call in self.calls and k.call}
        machine = machine.but(**recorded_environment(machine, grids))
        found = Predictor(machine)
        self._set_aside(found)
        return found if self.calls else None

    def _check_unheard(self, topology: str) -> None:
        """Check what is asked of collectives, and say that none of the trace tells enough for it to change them."""
        if not self.asked.moves_collectives:
            return
        self.notes.append("no collective of the trace says what it moves: what is asked of them changes nothing")
        if topology or self.asked.topo:
            call, old = Call("all_reduce", PROBE_BYTES, "bfloat16", "", 2), Machine(topology or str(self.asked.topo))
            asked = replace(self.asked, ranks=None, nodes=None)
            Predictor(changed_machine(self.trace, [call], old, asked)).of(call)

    def _note_kernels(self) -> None:
        """Say that kernels keep the time that they took on another GPU, if nobody said by what they differ."""
        told = self.asked.topo and gpu_of(self.asked.topo.replace("_", " "))
        if told and told.topology and told.name != self.gpu.name and self.asked.compute_scale == 1.0:
            self.notes.append(
                f"kernels keep the time that they took on {self.trace.gpu or self.gpu.name}, also on {told.name} "
                "(--compute-scale 0.5 for half of it)"
            )

    def _set_aside(self, predictor: Predictor) -> None:
        """Let collectives keep their time, as if the trace did not say what they move, if the model refuses them."""
        refused: dict[Call, str] = {}
        for call in self.calls:
            try:
                predictor.of(call)
            except CollsimError as error:
                refused[call] = f"{call.op} of {call.size_bytes} B on {call.ranks} ranks ({error.faults[0].what})"
        if refused:
            self.calls = [call for call in self.calls if call not in refused]
            told = next(iter(refused.values()))
            others = f" and {len(refused) - 1} others" if len(refused) > 1 else ""
            self.notes.append(f"the model has no time for {told}{others}: they keep their time, here and elsewhere")
            kernels = (
                replace(k, call=replace(k.call, size_bytes=0)) if k.call in refused and k.call else k
                for k in self.trace.kernels
            )
            self.trace = replace(self.trace, kernels=tuple(kernels))

    def _after(self) -> Predictor | None:
        """Return the model of where the step is to run."""
        asked, before = self.asked, self.before
        self._note_kernels()
        if before is None or not asked.moves_collectives:
            return before
        machine = changed_machine(self.trace, self.calls, before.machine, asked)
        if machine.world != before.machine.world:
            ranks, world = machine.world, before.machine.world
            if all(machine.ranks_of(call) == call.ranks for call in self.calls):
                self.notes.append(
                    f"no group reaches over all {world} ranks of the trace: none changes its number of ranks"
                )
            elif self._splits_layers():
                self.notes.append(
                    "all-reduces stand between kernels of one stream, as of tensor parallelism: kernels keep their "
                    f"time, but {ranks} ranks would each have {world}/{ranks} of the products (--compute-scale says so)"
                )
        return Predictor(machine)

    def _splits_layers(self) -> bool:
        """Whether most bytes are all-reduced on the stream of the kernels, so that these wait for them."""
        busy = Counter[int]()
        for node in self.nodes:
            busy[node.stream] += 0 if node.kind in (COLLECTIVE, HOST) else 1
        main = max(busy, key=lambda stream: busy[stream])
        reduced = [n for n in self.nodes if n.call >= 0 and self.order[n.call].op == "all_reduce"]
        here = sum(self.order[n.call].size_bytes for n in reduced if n.stream == main)
        return here > sum(self.order[n.call].size_bytes for n in self.nodes if n.call >= 0) / 2

    def changed(self, after: Predictor | None, lean: float = 0.0) -> list[Node]:
        """Return the nodes as the what-if has them; *lean* shifts ratios by so many times their error."""
        nodes = [replace(node) for node in self.nodes]
        for node in nodes:
            if node.kind not in (COLLECTIVE, HOST):
                node.work_s *= self.asked.compute_scale
            if after is None or after is self.before or node.call < 0 or self.before is None:
                continue
            call = self.order[node.call]
            moved_s = self.before.moved_s(call, node.work_s, after)
            if node.work_s > 0 and moved_s > 0:
                node.work_s = moved_s * math.exp(lean * RATIO_ERROR * abs(math.log(moved_s / node.work_s)))
            elif after.machine.ranks_of(call) == 1:  # nobody is left to talk to, or to wait for
                node.work_s = node.late_s = 0.0
            told = after.of(call)
            node.spare = told.spare
            if told.channels != self.before.of(call).channels:  # else what the trace shows holds
                node.sms = self.gpu.held(call.op, told.channels)
            node.link, node.load = told.kind, told.load
        return nodes

    def run(self, nodes: Sequence[Node]) -> tuple[Replay, float]:
        """Replay nodes at the clock that the power of the GPU allows."""
        recorded_s = self.trace.span_s
        work_s = sum(node.work_s for node in self.nodes if node.kind not in (COLLECTIVE, HOST))
        speed, found = 1.0, replay(nodes, self.gpu)
        for _ in range(MOST_ROUNDS):
            clock = self.gpu.speed(work_s, recorded_s, found.span_s, self.asked.compute_scale)
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
        self._note_nvls(after)
        is_same = after is self.before and self.asked.compute_scale == 1.0
        run, speed = (same, 1.0) if is_same else self.run(nodes)
        step_s, path = run.span_s / steps, path_of(nodes, run, steps)
        self._note_replay(same)
        leans = [] if is_same else [self.changed(after, lean) for lean in (-1.0, 1.0)]
        leans += self._unprofiled(nodes, path, step_s)
        spans = [step_s, *(self.run(lean)[0].span_s / steps for lean in leans)]
        overlap = overlap_of(nodes, run)
        return TimelineResult(
            file=self.trace.file,
            topology=after.machine.topology if after else self.asked.topo or self.gpu.topology,
            gpu=self.trace.gpu or self.gpu.name,
            step_time_s=step_s,
            time_lo_s=min(spans) * (1 - REPEATS),
            time_hi_s=max(spans) * (1 + REPEATS),
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
            path=path,
            helps=helps_of(
                nodes,
                run.span_s,
                lambda changed: replay(changed, self.gpu, speed=speed).span_s,
                steps,
                self._others_s(after, overlap),
            ),
            events=events_of(nodes, run),
            notes=tuple(self.notes),
        )

    def _note_replay(self, same: Replay) -> None:
        """Say that what the trace holds does not lead to the time that was recorded, so that what-ifs are not sure."""
        error = same.span_s / self.trace.span_s - 1
        if abs(error) > REPLAY_ERROR:
            than = f"{abs(error):.0%} {'longer' if error > 0 else 'shorter'} than what was recorded"
            self.notes.append(
                f"the replay is {than}: it holds what is not understood, such as kernels that overlap on a stream"
            )

    def _note_nvls(self, after: Predictor | None) -> None:
        """Say that switches add in the what-if, where the trace does not tell whether the library may let them."""
        if after is None or after is self.before or self.before is None or NVLS in after.machine.environment:
            return
        here, there = ({p.of(call).algo for call in self.order} for p in (self.before, after))
        if any("nvls" in algo for algo in there) and not any("nvls" in algo for algo in here):
            self.notes.append(f"NVLS is taken to be on, which the trace does not tell (--env {NVLS}=0 without)")

    def _others_s(self, after: Predictor | None, overlap: Overlap) -> dict[str, float]:
        """Return spans with other variables of the library than those of the step; none if it hardly communicates."""
        if after is None or overlap.communication_s < LEAST_TALK * self.trace.span_s:
            return {}
        most = max((after.of(call).channels for call in self.order), default=1)
        changes: list[dict[str, str | None]] = [
            {CHANNELS: str(number)} for number in (most // 2, most * 2) if 0 < number <= MOST_CHANNELS
        ]
        if after.machine.environment.get(NVLS) == "0":  # channels of a trace without NVLS say nothing of those with it
            changes.append({NVLS: "1", CHANNELS: None})
        found = {}
        for change in progress.steps(changes, "variables"):
            name = " ".join(f"{key}={value}" for key, value in change.items() if value is not None)
            found[name] = self.run(self.changed(after.with_channels(**change)))[0].span_s
        return found

    def _unprofiled(self, nodes: Sequence[Node], path: Sequence[PathPart], step_s: float) -> list[list[Node]]:
        """Return, of a step that launches bind, the nodes as they may be launched without the profiler."""
        bound_s = sum(part.time_s for part in path if part.what == "host launches")
        if step_s <= 0 or bound_s < LEAST_BOUND * step_s:
            return []
        self.notes.append(
            f"launches of the host bind {bound_s / step_s:.0%} of the step; under the profiler they take longer, which "
            f"is why the interval goes down to launches at {UNPROFILED} times their cost"
        )
        return [[replace(node, earliest_s=node.earliest_s * UNPROFILED) for node in nodes]]

    def _rows(self, nodes: Sequence[Node], run: Replay, after: Predictor | None) -> tuple[CallRow, ...]:
        rows: list[CallRow] = []
        for number, call in enumerate(self.order):
            of_call = [i for i, node in enumerate(nodes) if node.call == number]
            recorded = [self.trace.kernels[i].end_s - self.trace.kernels[i].start_s for i in of_call]
            told = after.of(call) if after else None
            ranks = after.machine.ranks_of(call) if after else call.ranks
            channels = self.trace.kernels[of_call[0]].ctas
            if told is not None and self.before is not None and told.channels != self.before.of(call).channels:
                channels = told.channels
            of = Told(call, ranks, channels, told.link if told else "")
            rows.append(call_row(of, nodes, run, of_call, steps=self.steps, recorded_s=recorded))
        return tuple(sorted(rows, key=lambda row: -row.time_s * row.count))
