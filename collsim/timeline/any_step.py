"""A step of a file on a system: a workload, or a trace of a profiler, with its GPUs and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from collsim.core.errors import Fault, InputError
from collsim.timeline.kineto import is_trace
from collsim.timeline.reader import read_trace
from collsim.timeline.result import TimelineResult
from collsim.timeline.simulate import simulate_timeline
from collsim.timeline.what_if import WhatIf, gpus_of
from collsim.timeline.workload_runs import extent_of, simulate_workload

__all__ = ["step_of"]


def step_of(
    file: str, asked: WhatIf, figures: Mapping[str, Any] | None = None
) -> tuple[TimelineResult, int, int | None]:
    """Return a step, how many GPUs it takes, and the tokens that it trains on; None where the file does not say.

    *figures* replace entries of a workload; ``compute_scale`` among them stands for that of *asked*. A trace has no
    others, as its kernels keep their time.

    Raises
    ------
    InputError
        The file cannot be read, or has no such entries.
    CollsimError
        As of `collsim.simulation.simulate.simulate`.
    """
    figures = dict(figures or {})
    if "compute_scale" in figures:
        asked = replace(asked, compute_scale=_scale(figures.pop("compute_scale")))
    if not is_trace(file):
        return simulate_workload(file, asked, figures), *extent_of(file, asked, figures)
    if figures:
        hint = "kernels of a trace keep their time; workload.compute_scale=0.5 halves it"
        raise InputError(*(Fault("a trace has no such entry", f"workload.{name}", hint) for name in figures))
    of_nodes = asked.nodes * gpus_of(str(asked.topo), asked.options) if asked.nodes else 0
    return simulate_timeline(file, asked), asked.ranks or of_nodes or read_trace(file).world, None


def _scale(value: Any) -> float:
    """Return how many times as long kernels take."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value > 0):
        raise InputError(Fault(f"{value} times as long", "workload.compute_scale", "give a positive number"))
    return float(value)
