"""`compare_moe` is `simulate_moe` on several systems: `prepare` checks what is asked of all, `answered` simulates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Unpack

from collsim.core.errors import Fault, Faults, ModelError
from collsim.moe.arguments import Arguments
from collsim.moe.comparison import MoeComparison, MoeSystem
from collsim.moe.models import Model
from collsim.moe.request import Laws, MoeRequest, ask
from collsim.moe.result import MoeRefusal
from collsim.moe.simulate import answer
from collsim.simulation.compare import answers, label_of, placed
from collsim.simulation.comparison import named_system
from collsim.simulation.request.fields import SCALE_OUT
from collsim.simulation.request.prepare import Machine

__all__ = ["answered", "compare_moe", "prepare"]

Cases = dict[str, tuple[int, MoeRequest | None]]


def compare_moe(
    topos: Sequence[Any],
    model: str | Model | None = None,
    *,
    ep: int | Sequence[int] | None = None,
    **asked: Unpack[Arguments],
) -> MoeComparison:
    """Predict dispatch and combine on several systems.

    Parameters
    ----------
    topos : sequence of str, path, Topology or networkx graph
        As of `collsim.simulate`. The first has room for all numbers of ranks; by default as many take part as it has
        GPUs. Names may have changes behind them: ``gb200_nvl72,scale_out.nodes=2``.
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
    rest: dict[str, Any] = {**asked}
    cluster = {name: rest.pop(name, None) for name in SCALE_OUT}
    machine = Machine(**{name: rest.pop(name, None) for name in ("overrides", "fail", "degrade")}, scale_out=cluster)
    laws = Laws(**{name: rest.pop(name) for name in ("skew", "sigma", "counts", "balanced") if name in rest})
    figures = {"groups": rest.pop("expert_groups", None)}
    figures |= {field.name: rest.pop(field.name) for field in fields(Model) if field.name in rest}
    return answered(prepare(topos, model=model, ep=ep, machine=machine, laws=laws, figures=figures, **rest))


def answered(cases: Cases) -> MoeComparison:
    """Return the answers of the systems that `prepare` returned; those without are in ``refused``.

    Raises
    ------
    ModelError
        The first system has no answer, so that there is nothing to compare with; the message names it.
    """
    (label, (gpus, question)), *others = cases.items()
    assert question is not None
    (first,) = answers({label: question}, answer)
    asked = sorted({place.n_ranks for place in question.placements} | {each.ranks for each in question.refused})
    systems = [MoeSystem(label, gpus, first), *(_system(label, *case) for label, case in others)]
    return MoeComparison(first.version, tuple(asked), tuple(systems))


def _system(label: str, gpus: int, question: MoeRequest | None) -> MoeSystem:
    """Return a system with its answer, or with why there is none."""
    if question is None:
        return MoeSystem(label, gpus, None)
    try:
        return MoeSystem(label, gpus, answer(question))
    except ModelError as error:
        ranks = [place.n_ranks for place in question.placements]
        lacks = (MoeRefusal(n, fault.what, fault.hint) for n in ranks for fault in error.faults)
        return MoeSystem(label, gpus, None, tuple(lacks))


def prepare(topos: Sequence[Any], *, ep: int | Sequence[int] | None, machine: Machine, **asked: Any) -> Cases:
    """Return each system by its label: GPUs, and what is asked of it, None where they are too few for anything.

    Raises
    ------
    InputError
        Every fault at once; what is wrong with any system but the first is at ``compare``.
    """
    faults = Faults()
    found: Cases = {}
    if not (topos := list(topos)):
        faults.append(Fault("no system is named", "topos", "name two or more, such as hgx_h100 and gb200_nvl72"))
    for place, entry in enumerate(topos):
        name, changes = named_system(entry)
        here, own = machine.also(changes), Faults()
        if place == 0:
            question = own.attempt(ask, name, ep=ep, machine=here, **asked)
            topology = None if question is None else question.topology
            ep = ep if question is None else [each.n_ranks for each in question.placements]
            faults += own
        else:
            question, topology = None, own.attempt(here.of, name)
            fits = [] if topology is None else [n for n in _numbers(ep) if n <= topology.n_gpus]
            question = own.attempt(ask, topology, ep=fits, machine=Machine(), **asked) if fits else None
            faults += placed(own, changes, "compare", also=("topo",))
        if topology is not None:
            found[label_of(topology, changes, found)] = topology.n_gpus, question
    faults.raise_any()
    return found


def _numbers(ep: int | Sequence[int] | None) -> list[int]:
    return [ep] if isinstance(ep, int) else list(ep or ())
