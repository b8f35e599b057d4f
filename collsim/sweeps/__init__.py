"""Sweeps: many points of a grid, on all cores or on other machines, to a file that can be killed at any moment."""

from collsim.sweeps.result import SweepResult
from collsim.sweeps.runs import sweep

__all__ = ["SweepResult", "sweep"]
