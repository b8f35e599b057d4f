"""Rates over time: the reference engine, which notes every stretch in which a transfer flows at one rate.

Other engines note nothing, so that nothing slows them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collsim.core.arrays import entries_of, pointers
from collsim.engine.few_classes import few_classes
from collsim.engine.problem import checked
from collsim.engine.reference import Flow, Number, WorkLimitReached, _Run

if TYPE_CHECKING:
    from collsim.engine.problem import Floats, Ints, Problem

__all__ = ["Stretches", "WorkLimitReached", "rates_over_time"]


class Stretches(NamedTuple):
    """Times in which transfers flow at one rate, each followed by another rate, by a pause or by the end."""

    transfer: Ints
    """int64[k]; a transfer of no bytes, or without links, has none."""
    begin_s: Floats
    """float64[k]."""
    end_s: Floats
    """float64[k]."""
    rate_Bps: Floats
    """float64[k]."""


class _Noted(Flow):
    """A flow that notes what it moves."""

    __slots__ = ("notes", "transfer")

    def __init__(self, flow: Flow, transfer: int, notes: list[tuple[int, Number, Number, Number]]) -> None:
        super().__init__(flow.left, flow.since)
        self.transfer, self.notes = transfer, notes

    def drain(self, now: Number) -> Number:
        if now > self.since and self.rate:
            self.notes.append((self.transfer, self.since, now, self.rate))
        return super().drain(now)


class _NotingRun(_Run):
    """A simulation whose flows note what they move."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, float)
        self.notes: list[tuple[int, Number, Number, Number]] = []

    def fire(self, i: int, now: Number) -> None:
        super().fire(i, now)
        if i in self.flows:
            self.flows[i] = _Noted(self.flows[i], i, self.notes)


def rates_over_time(problem: Problem, work_limit: float = math.inf) -> tuple[Floats, Floats, Floats, Stretches]:
    """Simulate a problem exactly, in plain Python; transfers that have to behave alike, if they are many, as one.

    Parameters
    ----------
    problem : Problem
    work_limit : float
        Visits of a link by a flow, about a microsecond each, of which there may be so many.

    Returns
    -------
    ready_s, start_s, finish_s : float64[n]
        As of `Solution`.
    stretches : Stretches

    Raises
    ------
    WorkLimitReached
        More work than that.

    Examples
    --------
    Two transfers of 6 bytes share a link of 3 B/s; the second may use only 1 B/s of it:

    >>> import numpy as np
    >>> from collsim.engine import Problem
    >>> two = Problem(
    ...     capacity_Bps=np.array([3.0]),
    ...     route_ptr=np.array([0, 1]), route_link=np.array([0]), route_weight=np.array([1.0]),
    ...     route=np.array([0, 0]), size_bytes=np.array([6.0, 6.0]), latency_s=np.zeros(2),
    ...     cap_Bps=np.array([np.inf, 1.0]), dep_ptr=np.zeros(3, dtype=int), dep=np.array([], dtype=int),
    ... )
    >>> [column.tolist() for column in rates_over_time(two)[-1]]
    [[0, 1], [0.0, 0.0], [3.0, 6.0], [2.0, 1.0]]
    """
    p = checked(problem)
    quotient = few_classes(p)
    run = _NotingRun(p if quotient is None else quotient.problem)
    while run.timers or run.flows:
        if run.advance():
            run.share()
        if run.work > work_limit:
            raise WorkLimitReached
    transfer, *columns = zip(*run.notes, strict=True) if run.notes else ((), (), (), ())
    stretches = Stretches(np.array(transfer, dtype=np.int64), *(np.array(each, dtype=np.float64) for each in columns))
    ready_s, start_s, finish_s = (np.array(each, dtype=np.float64) for each in (run.ready, run.start, run.finish))
    if quotient is None:
        return ready_s, start_s, finish_s, stretches
    ids = quotient.ids
    return ready_s[ids], start_s[ids], finish_s[ids], _of_all(stretches, ids)


def _of_all(stretches: Stretches, ids: Ints) -> Stretches:
    """Return the stretches of classes as those of all transfers; *ids* is int64[n], the class of each."""
    order = np.argsort(stretches.transfer, kind="stable")
    ptr = pointers(np.bincount(stretches.transfer, minlength=int(ids.max(initial=-1)) + 1))
    taken, place = entries_of(ptr, ids)
    return Stretches(
        np.repeat(np.arange(len(ids)), np.diff(taken)), *(column[order][place] for column in stretches[1:])
    )
