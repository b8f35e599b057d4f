"""Fluid simulation of transfers that share links: the door to the two engines.

``solve`` takes a :class:`Problem` (flat arrays, SI units, ids instead of names), checks it and returns a
:class:`Solution`. ``reference.py`` says in plain Python what the answer is, and solves small problems; ``kernels.py``
is the compiled engine for the others, and ``tolerant.py`` that for irregular ones, which answers within a tolerance.
This package knows only NumPy and, inside the call that needs it, Numba.
"""

from __future__ import annotations

from collsim.engine.chained_bound import chained_time_s, one_chain_s, round_trip_s
from collsim.engine.problem import (
    EngineDeadlock,
    EngineInputError,
    Problem,
    Solution,
    check_conservation,
    checked,
    least_time_s,
    not_too_soon,
    perturbed_share,
)
from collsim.engine.reference import solve_reference
from collsim.engine.run import REDUCED_TRANSFERS, Engine, solve

__all__ = [
    "REDUCED_TRANSFERS",
    "Engine",
    "EngineDeadlock",
    "EngineInputError",
    "Problem",
    "Solution",
    "chained_time_s",
    "check_conservation",
    "checked",
    "least_time_s",
    "not_too_soon",
    "one_chain_s",
    "perturbed_share",
    "round_trip_s",
    "solve",
    "solve_reference",
]
