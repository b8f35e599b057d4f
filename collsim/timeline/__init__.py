"""Timelines: whole steps, from a profiler's trace or a workload, what they would take elsewhere, what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.timeline.result import TimelineResult
    from collsim.timeline.simulate import simulate_timeline

__all__ = ["TimelineResult", "simulate_timeline"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{'result' if name == 'TimelineResult' else 'simulate'}"), name)
