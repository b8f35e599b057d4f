"""Timelines: whole steps, from a profiler's trace or a workload, what they would take elsewhere, what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collsim.core.lazy_names import names_from

if TYPE_CHECKING:
    from collsim.timeline.result import TimelineResult
    from collsim.timeline.simulate import simulate_timeline
    from collsim.timeline.what_if import WhatIf

__all__ = ["TimelineResult", "WhatIf", "simulate_timeline"]

HOME = {"TimelineResult": "result", "WhatIf": "what_if", "simulate_timeline": "simulate"}

__getattr__ = names_from(__name__, HOME)
