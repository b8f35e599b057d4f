"""Timelines: whole steps, from a profiler's trace or a workload, what they would take elsewhere, what would help."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.timeline.result import TimelineResult
    from collsim.timeline.simulate import simulate_timeline
    from collsim.timeline.what_if import WhatIf

__all__ = ["TimelineResult", "WhatIf", "simulate_timeline"]

HOME = {"TimelineResult": "result", "WhatIf": "what_if", "simulate_timeline": "simulate"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{HOME[name]}"), name)
