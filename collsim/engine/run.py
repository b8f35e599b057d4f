"""The door to the two engines: which of them solves a problem, and to which tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from collsim.engine.problem import (
    EngineDeadlock,
    Problem,
    Solution,
    checked,
    not_too_soon,
    perturbed_share,
)
from collsim.engine.reference import EARLY, Trace, WorkLimitReached, solve_reference
from collsim.engine.unhindered import unhindered

if TYPE_CHECKING:
    from collsim.engine.symmetry import Quotient

__all__ = ["REDUCED_TRANSFERS", "Engine", "solve"]

Engine = Literal["auto", "plain", "reference", "kernel"]

# Measured: plain Python takes 1 us per transfer where none is in another's way, else 3 to 8 us per transfer of a
# chain, a ring or a uniform all-to-all, and 0.8 to 1.3 us per unit of work (a flow or a link looked at while sharing);
# importing Numba and loading the cached kernel takes 0.35 s and 100 MB, compiling it 3.5 s. So Python wins on regular
# problems up to the first limit; an irregular one that will reach the second shows that after a sixteenth of it.
REFERENCE_TRANSFERS = 32_000
REFERENCE_WORK = 140_000
# Measured: to load the refinement takes 0.1 to 0.2 s, as long as the compiled kernel runs on so many transfers in step.
REDUCED_TRANSFERS = 100_000
# Measured: few classes are found in NumPy in 1 us for each hop of a transfer, and that there are many in less.
FEW_CLASSES_FROM = 8_000
# Measured: the exact kernel takes 20 to 40 ns for each hop that it looks at, so this much is some 10 s.
MOST_WORK = 300_000_000
USUAL_TOLERANCE = 0.01
MOST_TOLERANCE = 0.5


def solve(
    problem: Problem, *, engine: Engine = "auto", tolerance: float | None = 0.0, ledger: bool = False
) -> Solution:
    """Simulate *problem* and return when each transfer was ready, started and finished.

    Parameters
    ----------
    problem : Problem
        Transfers, routes, links and dependencies; see the fields for shapes and units.
    engine : {"auto", "plain", "reference", "kernel"}
        "plain" solves small problems in Python, without importing Numba, and others with the compiled kernel; "auto"
        first looks in large ones for transfers that have to behave alike, and solves for one of each. The choice
        depends on the problem alone, so equal input gives equal bits.
    tolerance : float or None
        How far the end of a transfer may be moved, as a part of the time that it takes, so that many end together; this
        bounds no error of later times. 0 is exact; None is exact unless that would take much longer than 10 s, which
        the first events tell, and `USUAL_TOLERANCE` then. What is small is always solved exactly.
    ledger : bool
        With a tolerance, end a transfer too soon only against bytes that its links have carried too many before: every
        link is at work for as long as its bytes take.

    Raises
    ------
    ValueError
        Engine or tolerance are none.
    EngineInputError
        If the arrays describe no problem; lists every fault.
    EngineDeadlock
        If transfers wait for each other for ever.

    Examples
    --------
    Two transfers of 6 bytes share a link of 3 B/s; the second may use only 1 B/s of it:

    >>> import numpy as np
    >>> two = Problem(
    ...     capacity_Bps=np.array([3.0]),
    ...     route_ptr=np.array([0, 1]), route_link=np.array([0]), route_weight=np.array([1.0]),
    ...     route=np.array([0, 0]), size_bytes=np.array([6.0, 6.0]), latency_s=np.zeros(2),
    ...     cap_Bps=np.array([np.inf, 1.0]), dep_ptr=np.zeros(3, dtype=int), dep=np.array([], dtype=int),
    ... )
    >>> solve(two).finish_s.tolist()
    [3.0, 6.0]
    """
    if engine not in get_args(Engine):
        raise ValueError(f"engine is {engine!r}, expected one of {', '.join(map(repr, get_args(Engine)))}")
    if tolerance is not None and not 0 <= tolerance <= MOST_TOLERANCE:
        raise ValueError(f"tolerance is {tolerance!r}, expected None or a number from 0 to {MOST_TOLERANCE}")
    p = checked(problem)
    if engine == "reference":
        return _from_trace(p, solve_reference(p))
    if engine == "auto" and _may_be_few(p) and (found := _from_few(p)):
        return found
    if engine != "kernel" and len(p.route) <= REFERENCE_TRANSFERS:
        if found := _from_alone(p):
            return found
        try:
            return _from_trace(p, _in_python(p))
        except WorkLimitReached:
            pass
    if engine == "auto" and len(p.route) >= REDUCED_TRANSFERS and (found := _from_classes(p, tolerance, ledger)):
        return found
    return _from_kernel(p, tolerance, ledger)


def _from_classes(p: Problem, tolerance: float | None, ledger: bool) -> Solution | None:
    """Solve for one transfer of each class; None if there are too many classes."""
    from collsim.engine.symmetry import reduced

    quotient = reduced(p)
    if quotient is None:
        return None
    return _of_all(p, quotient, solve(quotient.problem, engine="plain", tolerance=tolerance, ledger=ledger))


def _may_be_few(p: Problem) -> bool:
    """Return True if a look for few classes costs little beside the problem: it has many hops, though not too many."""
    return len(p.route) < REDUCED_TRANSFERS and int(np.diff(p.route_ptr)[p.route].sum()) >= FEW_CLASSES_FROM


def _from_few(p: Problem) -> Solution | None:
    """Solve exactly for one transfer of each class; None if there are many, or transfers wait for ever."""
    from collsim.engine.few_classes import few_classes

    quotient = few_classes(p)
    if quotient is None:
        return None
    try:
        trace = _in_python(quotient.problem)
    except WorkLimitReached:
        return None
    return None if None in trace.finish_s else _of_all(p, quotient, _from_trace(quotient.problem, trace))


def _of_all(p: Problem, quotient: Quotient, solution: Solution) -> Solution:
    """Return the solution of the quotient of a problem as that of all its transfers."""
    ready_s, start_s, finish_s, moved_bytes = (
        column[quotient.ids] for column in (solution.ready_s, solution.start_s, solution.finish_s, solution.moved_bytes)
    )
    return solution._replace(
        ready_s=ready_s,
        start_s=start_s,
        finish_s=finish_s,
        moved_bytes=moved_bytes,
        classes=True,
        perturbed=perturbed_share(p.size_bytes, moved_bytes) if solution.tolerance else 0.0,
    )


def _from_alone(p: Problem) -> Solution | None:
    """Solve for transfers of which none is in another's way; None if some are."""
    times = unhindered(p)
    return times and Solution(*times, "reference", 1, p.size_bytes, len(p.route))


def _in_python(p: Problem) -> Trace:
    """Solve a problem in Python if that is soon done; raise `WorkLimitReached` if it is not.

    Every flow is looked at on all its links when it begins, so that of some it is known before they are laid out.
    """
    if np.diff(p.route_ptr)[p.route[p.size_bytes > 0]].sum() > REFERENCE_WORK * (1 + EARLY):
        raise WorkLimitReached
    return solve_reference(p, work_limit=REFERENCE_WORK)


def _from_trace(p: Problem, trace: Trace) -> Solution:
    _refuse_deadlock(p, [i for i, time in enumerate(trace.finish_s) if time is None])
    ready_s, start_s, finish_s, moved_bytes = (np.array(column, dtype=np.float64) for column in trace[:4])
    return Solution(ready_s, start_s, finish_s, "reference", trace.solves, moved_bytes, len(p.route))


def _from_kernel(p: Problem, tolerance: float | None, ledger: bool) -> Solution:
    """Solve exactly unless there is a tolerance, or none is given and to be exact takes too long."""
    from collsim.engine.kernels import simulate

    found = None if tolerance else simulate(p, MOST_WORK if tolerance is None else None)
    if found is None:
        return _within(p, tolerance or USUAL_TOLERANCE, ledger)
    ready_s, start_s, finish_s, moved_bytes, solves = found
    _refuse_deadlock(p, np.flatnonzero(np.isnan(finish_s)).tolist())
    return Solution(ready_s, start_s, finish_s, "kernel", solves, moved_bytes, len(p.route))


def _within(p: Problem, tolerance: float, ledger: bool) -> Solution:
    """Solve with a tolerance; where the last bytes then are moved sooner than links allow, put their end off."""
    from collsim.engine.tolerant import simulate

    ready_s, start_s, finish_s, moved_bytes, solves = simulate(p, tolerance, ledger=ledger)
    _refuse_deadlock(p, np.flatnonzero(np.isnan(finish_s)).tolist())
    perturbed = perturbed_share(p.size_bytes, moved_bytes)
    found = Solution(ready_s, start_s, finish_s, "tolerance", solves, moved_bytes, len(p.route), tolerance, perturbed)
    return not_too_soon(p, found)


def _refuse_deadlock(p: Problem, unfinished: list[int]) -> None:
    """Raise if transfers are left over, and name a cycle: each waits for another one, so walking back meets one."""
    if not unfinished:
        return
    left = set(unfinished)
    seen: dict[int, int] = {}
    i = unfinished[0]
    while i not in seen:
        seen[i] = len(seen)
        i = next(j for j in p.dep[p.dep_ptr[i] : p.dep_ptr[i + 1]].tolist() if j in left)
    raise EngineDeadlock(unfinished, list(seen)[seen[i] :])
