"""`compare_moe` is `simulate_moe` on several systems: `prepare` checks what is asked of all, `answered` simulates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from collsim.core.errors import Fault, InputError, ModelError
from collsim.moe.comparison import MoeComparison, MoeSystem
from collsim.moe.models import Model
from collsim.moe.request import Question, ask
from collsim.moe.simulate import answer
from collsim.simulation.comparison import named_system
from collsim.simulation.request.prepare import machine_of

__all__ = ["answered", "compare_moe", "prepare"]

Cases = dict[str, tuple[int, Question | None]]


def compare_moe(
    topos: Sequence[Any],
    model: str | Model | None = "deepseek-v3",
    *,
    ep: int | Sequence[int] | None = None,
    **asked: Any,
) -> MoeComparison:
    """Predict dispatch and combine on several systems.

    Parameters
    ----------
    topos : sequence of str, path, Topology or networkx graph
        The first has room for all numbers of ranks; by default as many take part as it has GPUs. Names may have changes
        behind them: ``gb200_nvl72,scale_out.nodes=2``.
    model, **asked
        As of `collsim.moe.simulate_moe`, for all systems.

    Raises
    ------
    InputError
        Every fault at once.
    ModelError
        A system has no answer; the message names it.

    Examples
    --------
    >>> comparison = compare_moe(["hgx_h100", "hgx_b200"], ep=8, load_only=True)
    >>> [f"{speedup:.2f}" for speedup in comparison.speedups(8)][0]
    '1.00'
    """
    machine, laws = (
        {name: asked.pop(name, None) for name in names}
        for names in (("overrides", "fail", "degrade"), ("skew", "sigma", "counts"))
    )
    figures = {field.name: asked.pop(field.name) for field in fields(Model) if field.name in asked}
    return answered(prepare(topos, model=model, ep=ep, machine=machine, laws=laws, figures=figures, **asked))


def answered(cases: Cases) -> MoeComparison:
    """Return the answers of the systems that `prepare` returned.

    Raises
    ------
    ModelError
        A system has no answer; the message names it.
    """
    systems = []
    for label, (gpus, question) in cases.items():
        try:
            systems.append(MoeSystem(label, gpus, None if question is None else answer(question)))
        except (InputError, ModelError) as error:
            told = [replace(fault, what=f"{label}: {fault.what}") for fault in error.faults]
            raise (ModelError if isinstance(error, ModelError) else InputError)(*told) from error
    first = systems[0].result
    assert first is not None
    return MoeComparison(first.version, tuple(first.config["ep"]), tuple(systems))


def prepare(topos: Sequence[Any], *, ep: int | Sequence[int] | None, machine: Mapping[str, Any], **asked: Any) -> Cases:
    """Return each system by its label: GPUs, and what is asked of it, None where they are too few for anything.

    Raises
    ------
    InputError
        Every fault at once; what is wrong with any system but the first is at ``compare``.
    """
    faults: dict[Fault, None] = {}
    found: Cases = {}
    for place, entry in enumerate(topos):
        name, changes = named_system(entry)
        here = {**machine, "overrides": [*_pairs(machine.get("overrides")), *changes]}
        try:
            topology = machine_of(name, **here) if place else None
            fits = ep if topology is None else [n for n in _listed(ep) if n <= topology.n_gpus]
            skipped = topology is not None and not fits
            question = None if skipped else ask(topology or name, ep=fits, machine={} if place else here, **asked)
        except InputError as error:
            own = {"topo", *(f"--set {change.partition('=')[0].strip()}" for change in changes)} if place else ()
            told = [replace(each, where="compare") if each.where in own else each for each in error.faults]
            faults |= dict.fromkeys(told)
            continue
        topology = topology or (question.topology if question else None)
        assert topology is not None
        if not place and question is not None:
            ep = [each.n_ranks for each in question.placements]
        label = ", ".join([topology.name, *changes])
        found[label if label not in found else f"{label} ({place + 1})"] = topology.n_gpus, question
    if faults:
        raise InputError(*faults)
    return found


def _listed(ep: int | Sequence[int] | None) -> list[int]:
    return [ep] if isinstance(ep, int) else list(ep or ())


def _pairs(overrides: Any) -> list[Any]:
    return list(overrides.items() if isinstance(overrides, Mapping) else overrides or ())
