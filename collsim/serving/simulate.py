"""`simulate_serving`: a file of jobs to what each gets done, alone and beside the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collsim.core.errors import Fault, Faults, InputError, ModelError, SpecError
from collsim.moe import load_model
from collsim.serving.cluster import Log, serve
from collsim.serving.decode import Step, Steps
from collsim.serving.fabric_sharing import detour, slowdown
from collsim.serving.result import JobResult, Moment, ServingResult
from collsim.serving.spec import Job, Serving, read_serving
from collsim.timeline.gpus import gpu_of
from collsim.timeline.what_if import gpus_of
from collsim.topology import load_topology
from collsim.topology.failures.degrade import damaged

__all__ = ["simulate_serving"]

TELLS = 0.02
"""From this share on it is told that the nodes of a job are farther apart, or nearer, than the first ones (chosen)."""
MOST_STEPS = 2_000_000
"""Steps of a job: as many take a minute or two."""
MOMENTS = 20
"""Equal parts of the time that a result shows."""


def simulate_serving(
    file: str | Path | Serving, *, topo: str | None = None, overrides: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> ServingResult:  # fmt: skip
    """Predict what jobs that serve models with experts get done on one fabric.

    Parameters
    ----------
    file : str, path or Serving
        As docs/serving.md describes it.
    topo, overrides, seed
        Instead of what the file says; overrides are added to its own.

    Raises
    ------
    InputError
        The file cannot be read, or is wrong.
    ModelError
        Ranks cannot reach each other, such as after a failure.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from collsim.serving.spec import read_serving
    >>> serving = read_serving("examples/serving.yaml")
    >>> chat = replace(serving.jobs[0], ranks=8, rate=50.0)
    >>> (job,) = simulate_serving(replace(serving, duration_s=0.5, warm_up_s=0.2, failures=(), jobs=(chat,))).jobs
    >>> job.name, job.tokens_per_s < job.capacity_tokens_per_s
    ('chat', True)
    """
    _check_kinds(topo, overrides, seed)
    serving = file if isinstance(file, Serving) else read_serving(file)
    serving = replace(
        serving,
        topo=topo or serving.topo,
        gpu=topo or serving.gpu,
        overrides={**serving.overrides, **(overrides or {})},
        seed=serving.seed if seed is None else seed,
    )
    name, flags = "" if isinstance(file, Serving) else str(file), overrides or {}

    def place(where: str) -> str:
        path = where.removeprefix("--set ")
        return f"{name}: set.{path}" if name and path != where and path not in flags else where

    try:
        return _Study(serving, name).result()
    except InputError as error:
        kind = SpecError if isinstance(error, SpecError) else InputError
        raise kind(*(replace(fault, where=place(fault.where)) for fault in error.faults)) from None


def _check_kinds(topo: Any, overrides: Any, seed: Any) -> None:
    """Raise all arguments that are of a wrong kind."""
    faults = Faults()
    if topo is not None and not isinstance(topo, str):
        faults.append(Fault(f"{topo!r} is no name of a topology", "topo", "pass a name, or the name of a YAML file"))
    if overrides is not None and not isinstance(overrides, Mapping):
        faults.append(Fault(f"{overrides!r} is no mapping", "overrides", 'pass {"link.bandwidth": "80 GB/s"}'))
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        faults.append(Fault(f"{seed!r} is no whole number of 0 or more", "seed", "give 0 or more"))
    faults.raise_any()


class _Study:
    """Jobs on a machine, and the steps that were simulated for them."""

    def __init__(self, serving: Serving, file: str) -> None:
        self.serving, self.file = serving, file
        self.gpu = gpu_of(serving.gpu.replace("_", " "))
        self._steps: dict[tuple[int, frozenset[int]], Steps] = {}
        self._costs: dict[tuple[int, int, frozenset[int]], float] = {}
        self._check()
        n_gpus = load_topology(serving.topo, overrides=dict(serving.overrides)).n_gpus
        self.per_node = gpus_of(serving.topo, {"overrides": dict(serving.overrides)})
        taken = [gpu for job in serving.jobs for gpu in job.gpus]
        if max(taken) >= n_gpus or len(set(taken)) < len(taken):
            hint = "add nodes under set, such as scale_out.nodes: 8, or use fewer ranks; no GPU serves two jobs"
            need = f"jobs need {len(taken)} GPUs, {len(set(taken))} of them different, up to number {max(taken)}"
            raise InputError(Fault(f"{need}; there are {n_gpus}", file, hint))

    def _check(self) -> None:
        """Raise all that is wrong with models and failures, before anything is served."""
        faults = Faults(lambda where: f"{self.file}: {where}" if self.file else where)
        topology = load_topology(self.serving.topo, overrides=dict(self.serving.overrides))
        for number, job in enumerate(self.serving.jobs):
            faults += _within(f"jobs[{number}]", load_model, job.model)
            if job.sms >= self.gpu.sms:
                what = f"{job.sms} of the {self.gpu.sms} multiprocessors of {self.gpu.name}"
                faults.append(Fault(what, f"jobs[{number}].sms", "leave some for kernels"))
        for number, failure in enumerate(self.serving.failures):
            faults += _within(f"failures[{number}]", damaged, topology, failure.fail, dict(failure.degrade))
        faults.raise_any(SpecError)

    def _machine(self, failed: frozenset[int]) -> dict[str, Any]:
        """Return the machine with some failures."""
        failures = [self.serving.failures[number] for number in sorted(failed)]
        fail = [each for failure in failures for each in failure.fail]
        degrade = {name: share for failure in failures for name, share in failure.degrade}
        return {"overrides": dict(self.serving.overrides), "fail": fail or None, "degrade": degrade or None}

    def steps(self, number: int, failed: frozenset[int]) -> Steps:
        """Return the steps of a job under failures."""
        if (key := (number, failed)) not in self._steps:
            job = self.serving.jobs[number]
            machine = {**self._machine(failed), **self._spread(job)[0]}
            self._steps[key] = Steps(job, self.serving.topo, self.gpu, machine)
        return self._steps[key]

    def _spread(self, job: Job) -> tuple[dict[str, Any], str]:
        """Return the GPUs of each node on which a job lies where these are not the first ones, and what is not so."""
        both = (job.gpus[: job.ranks], range(job.ranks))
        lies, first = (Counter(gpu // self.per_node for gpu in gpus) for gpus in both)
        if sorted(lies.values()) == sorted(first.values()):
            return {}, ""
        counts = set(lies.values())
        if len(counts) == 1 and not self.serving.failures:  # these name GPUs by their numbers in whole nodes
            return {"gpus_per_node": counts.pop()}, ""
        many = f"{len(lies)} {'node' if len(lies) == 1 else 'nodes'}"
        return (
            {},
            f"the GPUs of {job.name} lie on {many}: its exchanges are timed on the first {job.ranks}, on {len(first)}",
        )

    def step_of(self, number: int, requests: int, context: float, slower: float, failed: frozenset[int]) -> Step:
        """Return a step; `collsim.serving.cluster.StepOf`."""
        prefix = f"{self.file}: " if self.file else ""
        place = " with ".join([*(f"failures[{each}]" for each in sorted(failed)), f"jobs[{number}]"])
        faults = Faults(lambda where: f"{prefix}{where}")
        try:
            faults += _within(place, lambda: self.steps(number, failed).of(requests, context, duty=slower))
        except ModelError as error:
            hint = "leave the ranks of a job a way to each other, such as degrade in place of fail"
            raise type(error)(
                *(replace(fault, where=prefix + place, hint=hint) for fault in error.faults[:1])
            ) from None
        faults.raise_any()
        return self.steps(number, failed).of(requests, context, duty=slower)

    def cost(self, one: int, other: int, failed: frozenset[int]) -> float:
        """Return what exchanges of two jobs cost each other; `collsim.serving.cluster.Costs`."""
        if (key := (min(one, other), max(one, other), failed)) not in self._costs:
            jobs = [self.serving.jobs[number] for number in key[:2]]
            self._costs[key] = slowdown(self.serving.topo, jobs, self._machine(failed))
        return self._costs[key]

    def result(self) -> ServingResult:
        """Serve all jobs together, and each alone."""
        every = range(len(self.serving.jobs))
        self._check_steps()
        together = serve(self.serving, every, self.step_of, self.cost)
        jobs = []
        for number, log in zip(every, together, strict=True):
            found = self._job(number, log)
            if len(every) > 1:
                alone = self._job(number, serve(self.serving, [number], self.step_of, self.cost)[0])
                found = replace(found, alone_tokens_per_s=alone.tokens_per_s, alone_token_median_s=alone.token_median_s)
            jobs.append(found)
        return ServingResult(
            file=self.file,
            topology=self.serving.topo,
            duration_s=self.serving.duration_s,
            warm_up_s=self.serving.warm_up_s,
            seed=self.serving.seed,
            jobs=tuple(jobs),
            steps=sum(len(log.steps) for log in together),
            simulated_steps=sum(steps.count for steps in self._steps.values()),
            notes=self._notes(),
        )

    def _check_steps(self) -> None:
        """Refuse what takes minutes, by how many steps there are with full batches."""
        duration_s = self.serving.duration_s
        for number, job in enumerate(self.serving.jobs):
            tokens = sum(each.output for each in job.requests) if job.requests else job.rate * duration_s * job.output
            step_s = self._full_step(number, job).time_s
            if (most := min(duration_s / step_s, tokens)) > MOST_STEPS:
                what = f"about {most:,.0f} steps of job {job.name}, more than {MOST_STEPS:,}"
                where = f"{self.file}: duration" if self.file else "duration"
                raise InputError(Fault(what, where, f"give duration: {MOST_STEPS * step_s:.3g} s or less"))

    def _left_out(self) -> list[str]:
        """Return what of the file is outside the time that is simulated."""
        begin_s, end_s = self.serving.warm_up_s, self.serving.duration_s
        found = []
        for job in self.serving.jobs:
            times_s = [each.time_s for each in job.requests]
            if late := sum(time_s >= end_s for time_s in times_s):
                found.append(f"{late} of {len(times_s)} requests of {job.name} come after the end, at {end_s:g} s")
            if times_s and not any(begin_s <= time_s < end_s for time_s in times_s):
                found.append(f"no request of {job.name} comes between the warm-up, {begin_s:g} s, and the end")
            if not times_s and job.rate == 0:
                found.append(f"no request of {job.name} comes: its rate is 0")
        failures = self.serving.failures
        late = sum(failure.at_s >= end_s for failure in failures)
        return [*found, *([f"{late} of {len(failures)} failures begin after the end, at {end_s:g} s"] if late else [])]

    def _notes(self) -> tuple[str, ...]:
        found = [note for _, note in map(self._spread, self.serving.jobs) if note]
        for job in self.serving.jobs:
            factor = detour(self.serving.topo, job, self._machine(frozenset()), self.per_node)
            if abs(factor - 1) > TELLS:
                told = f"on bare wires exchanges of {job.name} take {factor:.2f} times as long between its nodes as"
                found.append(f"{told} between the first ones, as which they are timed")
        found += dict.fromkeys(note for steps in self._steps.values() for note in steps.warnings)
        if not self.gpu.known:
            found.append(f"{self.gpu.name}: its figures are not known, kernels are taken not to disturb each other")
        for (one, other, _), factor in self._costs.items():
            names = [self.serving.jobs[number].name for number in (one, other)]
            told = f"exchanges of {names[0]} and {names[1]} at once"
            found.append(f"{told} take {factor:.2f} times as long as alone, on bare wires")
        return tuple(dict.fromkeys([*self._left_out(), *found]))

    def _job(self, number: int, log: Log) -> JobResult:
        job, begin_s, end_s = self.serving.jobs[number], self.serving.warm_up_s, self.serving.duration_s
        span_s = end_s - begin_s
        counted = np.array(log.begin_s) >= begin_s
        time_s, running = np.array(log.time_s)[counted], np.array(log.running, dtype=float)[counted]
        finished = [each for each in log.served if begin_s <= each.finished_s < end_s]
        latency_s = np.array([each.finished_s - each.arrived_s for each in finished])
        wait_s = np.array([each.started_s - each.arrived_s for each in log.served if begin_s <= each.started_s < end_s])
        shares = {name: _mean([getattr(s, name) for s in log.steps], log, counted) for name in SHARES}
        whole = self._moment(log, begin_s, end_s)
        median, p99 = _percentiles(time_s, running)
        return JobResult(
            name=job.name,
            model=job.model,
            ranks=job.ranks,
            finished=len(finished),
            requests_per_s=len(finished) / span_s,
            offered_per_s=sum(begin_s <= each.arrived_s < end_s for each in log.served) / span_s,
            tokens_per_s=whole.tokens_per_s,
            token_median_s=median,
            token_p99_s=p99,
            wait_median_s=_percentile(wait_s, 50),
            wait_p99_s=_percentile(wait_s, 99),
            latency_mean_s=float(latency_s.mean()) if latency_s.size else 0.0,
            latency_median_s=_percentile(latency_s, 50),
            latency_p99_s=_percentile(latency_s, 99),
            running=whole.running,
            waiting=whole.waiting,
            step_s=whole.step_s,
            communication=shares["communication"],
            exposed=shares["exposed"],
            link_load=whole.link_load,
            capacity_tokens_per_s=self._capacity(number, job),
            alone_tokens_per_s=None,
            alone_token_median_s=None,
            moments=tuple(self._moment(log, a * end_s / MOMENTS, (a + 1) * end_s / MOMENTS) for a in range(MOMENTS)),
        )

    def _capacity(self, number: int, job: Job) -> float:
        """Return tokens a second with full batches."""
        return job.ranks * job.batch / self._full_step(number, job).time_s

    def _full_step(self, number: int, job: Job) -> Step:
        """Return the step of full batches, whose contexts are half way through their output, without failures."""
        return self.step_of(number, job.batch, job.prompt + job.output / 2, 0.0, frozenset())

    def _moment(self, log: Log, begin_s: float, end_s: float) -> Moment:
        """Return means over a part of the time; steps count with what of them is inside."""
        first, time_s = np.array(log.begin_s), np.array(log.time_s)
        inside_s = np.clip(np.minimum(first + time_s, end_s) - np.maximum(first, begin_s), 0.0, None)
        share = inside_s / np.where(time_s > 0, time_s, 1.0) if len(time_s) else inside_s
        running, waiting = np.array(log.running, dtype=float), np.array(log.waiting)
        load = np.array([step.link_load * step.time_s for step in log.steps])
        long_s, count = end_s - begin_s, float(share.sum())
        return Moment(
            begin_s=begin_s,
            end_s=end_s,
            tokens_per_s=float((running * share).sum() / long_s),
            running=float((running * inside_s).sum() / long_s),
            waiting=float((waiting * inside_s).sum() / long_s),
            step_s=float(inside_s.sum() / count) if count else 0.0,
            link_load=float((load * share).sum() / long_s),
        )


def _within(place: str, check: Callable[..., object], *values: Any) -> list[Fault]:
    """Return what a check refuses, with its place in a part of the file; flags of ``collsim moe`` are keys there."""
    faults = Faults()
    faults.attempt(check, *values)
    keys = {"ep": "ranks", "": "", "where": ""}
    return [
        replace(
            fault,
            where=".".join(filter(None, (place, keys.get(fault.where, fault.where)))),
            hint=fault.hint.replace("add --nodes", "add nodes under set, scale_out.nodes: 8")
            .replace("--redundant ", "redundant: ")
            .replace(" or place them with --expert-placement round_robin", ""),
        )
        for fault in faults
    ]


SHARES = ("communication", "exposed")


def _mean(values: Sequence[float], log: Log, counted: np.ndarray[Any, Any]) -> float:
    """Return the mean of steps by their time."""
    weights = np.array(log.time_s)[counted]
    return float(np.average(np.array(values)[counted], weights=weights)) if weights.sum() > 0 else 0.0


def _percentile(values: np.ndarray[Any, Any], percent: float) -> float:
    return float(np.percentile(values, percent)) if values.size else 0.0


def _percentiles(values: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the median and the 99th percentile of values that count as often as their weights say."""
    if not values.size:
        return 0.0, 0.0
    order = np.argsort(values)
    upto = np.cumsum(weights[order]) / weights.sum()
    median, p99 = (float(values[order][np.searchsorted(upto, share)]) for share in (0.5, 0.99))
    return median, p99
