"""Steps of a trace: by the program's marks, else by what repeats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from collsim.core.errors import Fault, InputError
from collsim.timeline.trace import Trace

__all__ = ["by_steps"]

MOST_STEPS = 1000
MOST_PARTS = 10
ALIKE = 0.98
"""Share of the kernels that two steps have in common, at least."""


def by_steps(trace: Trace, steps: int | None = None) -> tuple[Trace, int, str]:
    """Return the trace of whole steps, how many there are, and a note if that is not sure.

    Raises
    ------
    InputError
        There cannot be as many steps as the user says.
    """
    if steps is not None:
        if not 1 <= steps <= len(trace.kernels):
            hint = f"give 1 to {len(trace.kernels)}, the kernels of the trace"
            raise InputError(Fault(f"{steps} steps", "steps", hint))
        return trace, steps, ""
    if trace.marks:
        inside, last_s = [], math.nan
        for k in trace.kernels:  # one without a launch belongs to the step of the launch before it
            last_s = last_s if math.isnan(k.launch_s) else k.launch_s
            if any(a <= last_s < b for a, b in trace.marks):
                inside.append(k)
        used = sum(any(a <= k.launch_s < b for k in inside) for a, b in trace.marks)
        if used:
            return replace(trace, kernels=tuple(inside)), used, ""
    names = [(k.name, k.stream) for k in trace.kernels]
    found = repetitions(names)
    if found > 1:
        return trace, found, ""
    if (found := nearly(names)) > 1:
        return (
            trace,
            found,
            f"steps are not quite alike: the trace is taken as {found} of them (--steps N says how many)",
        )
    return (
        trace,
        1,
        "no step marks, and nothing repeats: the trace is taken as one step (--steps N says how many)",
    )


def repetitions(items: Sequence[object]) -> int:
    """Return how many times the shortest beginning of *items* makes up all of them.

    >>> repetitions("abcabcabc"), repetitions("abcab")
    (3, 1)
    """
    n = len(items)
    fallback = [0] * n  # of Knuth, Morris and Pratt: the longest beginning that is also the end, for each length
    for i in range(1, n):
        at = fallback[i - 1]
        while at and items[i] != items[at]:
            at = fallback[at - 1]
        fallback[i] = at + 1 if items[i] == items[at] else 0
    period = n - fallback[-1] if n else 1
    count = n // period if period and n % period == 0 else 1
    return count if count <= MOST_STEPS else 1


def nearly(items: Sequence[object]) -> int:
    """Return how many parts of equal length hold nearly the same items, in whatever order; 1 if none do.

    >>> nearly([*range(100), *range(1, 101)]), nearly(range(200))
    (2, 1)
    """
    for count in range(MOST_PARTS, 1, -1):
        size = len(items) // count
        parts = [Counter(items[size * i : size * (i + 1)]) for i in range(count)]
        if size and all((a & b).total() >= ALIKE * size for a, b in pairwise(parts)):
            return count
    return 1
