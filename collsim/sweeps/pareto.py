"""Pareto fronts: the points that no other point beats in everything that counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from collsim.core.errors import Fault, InputError, did_you_mean

__all__ = ["OBJECTIVES", "objectives_of", "pareto_front", "work_of"]

OBJECTIVES: Mapping[str, tuple[str, int]] = {
    "time": ("time_s", 1),
    "cost": ("usd", 1),
    "energy": ("joules", 1),
    "gpus": ("gpus", 1),
    "busbw": ("busbw_Bps", -1),
    "tokens": ("tokens_per_s", -1),
    "cost_per_TB": ("usd_per_TB", 1),
    "energy_per_TB": ("joules_per_TB", 1),
}
"""Objectives by name: the key of an answer, and 1 if less is better, -1 if more is."""


def objectives_of(text: str | Sequence[str]) -> list[str]:
    """Return the objectives of a text.

    Raises
    ------
    InputError
        Unknown names, all at once, or fewer than two.

    Examples
    --------
    >>> objectives_of("cost,time")
    ['cost', 'time']
    """
    known = list(OBJECTIVES)
    if not isinstance(text, str | Sequence):
        raise InputError(
            Fault(f"{text!r} names no objectives", "pareto", f"such as cost,time; known: {', '.join(known)}")
        )
    names = [str(name).strip() for name in (text.split(",") if isinstance(text, str) else text)]
    faults = [
        Fault(f'unknown objective "{name}"', "pareto", f"{did_you_mean(name, known)}known: {', '.join(known)}")
        for name in names
        if name not in OBJECTIVES
    ]
    if not faults and len(set(names)) < 2:
        faults = [Fault("fewer than two objectives", "pareto", "such as cost,time")]
    if faults:
        raise InputError(*faults)
    return list(dict.fromkeys(names))


def work_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a point gets done; only points that do the same are compared: a small message beats no large one."""
    asked, answer = record["asked"], record["answer"]
    if record["kind"] == "run":
        return answer.get("op"), answer.get("size_bytes"), answer.get("dtype")
    if record["kind"] == "moe":
        figures = ("tokens", "phase", "experts", "top_k", "hidden")
        return answer.get("model"), answer.get("mode"), *(str(asked.get(name)) for name in figures)
    return asked.get("workload"), answer.get("tokens")


def pareto_front(answers: Sequence[Mapping[str, Any]], objectives: Sequence[str]) -> list[int]:
    """Return the numbers of the answers on the front, by the first objective; what lacks a figure is not on it.

    Kung's sweep in the order of the first objective: an answer is on the front if no better one of those before it is
    at least as good in all others.

    >>> pareto_front([{"time_s": 1, "usd": 3}, {"time_s": 2, "usd": 1}, {"time_s": 3, "usd": 2}], ["time", "cost"])
    [0, 1]
    """
    values: dict[int, tuple[float, ...]] = {}
    for number, answer in enumerate(answers):
        told = tuple(_value(answer, name) for name in objectives)
        if not any(math.isnan(each) for each in told):
            values[number] = told
    front: list[int] = []
    for number in sorted(values, key=lambda each: values[each]):
        if not any(_beats(values[other], values[number]) for other in front):
            front.append(number)
    return front


def _value(answer: Mapping[str, Any], objective: str) -> float:
    key, sign = OBJECTIVES[objective]
    value = answer.get(key)
    return math.nan if value is None else sign * float(value)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)
