"""Who sends what to whom, in which order: the type, what makes it, and what checks it; no links, no seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collsim.core.lazy_names import names_from
from collsim.schedule.forms import EVERY, Chunks, Int, Orbits, Phase, Transfers, split_bytes
from collsim.schedule.in_network import Groups, group_label, is_in_network
from collsim.schedule.pipelines import Circle, Circles, Pipelines, Shape
from collsim.schedule.schedule import Schedule
from collsim.schedule.schedule_builder import ChunksBuilder, OrbitsBuilder, TransfersBuilder

if TYPE_CHECKING:
    from collsim.schedule.difference import diff
    from collsim.schedule.json_files import load, save
    from collsim.schedule.verifier import find_faults, verify

__all__ = [
    "EVERY",
    "Chunks",
    "ChunksBuilder",
    "Circle",
    "Circles",
    "Groups",
    "Int",
    "Orbits",
    "OrbitsBuilder",
    "Phase",
    "Pipelines",
    "Schedule",
    "Shape",
    "Transfers",
    "TransfersBuilder",
    "diff",
    "find_faults",
    "group_label",
    "is_in_network",
    "load",
    "save",
    "split_bytes",
    "verify",
]

HOME = {
    "diff": "difference",
    "find_faults": "verifier",
    "load": "json_files",
    "save": "json_files",
    "verify": "verifier",
}
"""Imported on first use: who only simulates a schedule pays for none of them."""

__getattr__ = names_from(__name__, HOME)
