"""The same collectives on several systems: `compare` is `simulate` on each of them, row by row.

`prepare` checks all that was asked of all systems, `answer` simulates; `compare` is both.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from collsim.core.errors import Fault, Faults, InputError, ModelError
from collsim.core.progress import INTERRUPTED, interrupted, keeps_done
from collsim.library import Profile, load_profile
from collsim.prices import Price, price_of, with_own
from collsim.simulation.comparison import ComparedRefusal, ComparedRow, ComparedSystem, Comparison, named_system
from collsim.simulation.request.arguments import Arguments
from collsim.simulation.request.fields import SCALE_OUT
from collsim.simulation.request.prepare import Machine, listed
from collsim.simulation.request.request import Request, ask, rank_groups
from collsim.simulation.result import Result, Row, refusal_lines
from collsim.simulation.simulate import predict
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["ComparedCase", "answer", "answers", "compare", "label_of", "placed", "prepare", "priced"]

A = TypeVar("A")
C = TypeVar("C")
BARE = "ideal"
"""The profile of bare wires."""
WHOLE = "none"
"""The split that leaves all ranks in one group."""


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """A system with all that is asked of it: one question, and the GPUs of its runs, for each split.

    Or what it cannot do of that, where another system can.
    """

    label: str
    topology: Topology
    constants: Profile
    asked: tuple[tuple[Request, list[list[int]]], ...]
    lacks: tuple[Fault, ...] = ()
    price: Price | None = None


def compare(
    topos: Sequence[str | Path | Topology | nx.Graph[Any]],
    op: str | Sequence[str],
    size: int | str | Sequence[int | str] | None = None,
    *,
    split: str | Sequence[str | None] | None = None,
    cost: bool = False,
    price: Mapping[str, Any] | None = None,
    power: Mapping[str, Any] | None = None,
    **asked: Unpack[Arguments],
) -> Comparison:
    """Predict how long collectives take on several systems, side by side.

    Parameters
    ----------
    topos : sequence of str, path, Topology or networkx graph
        At least two, each as of `collsim.simulate`. A name or a file may have changes behind it:
        ``gb200_nvl72,gpu.count=128,switch.ports=128``. How many times as fast as the first each one is, is part of the
        answer.
    op, size
        As of `collsim.simulate`.
    split : str or sequence of str, optional
        As of `collsim.simulate`; several, in a list or separated by commas, are several runs, with ``none`` for all
        ranks in one group.
    cost : bool
        Also dollars and joules of each collective, and of a terabyte that it moves, at public prices.
    price, power : mapping, optional
        Dollars an hour and watts of one GPU in place of public figures, by the name of a system; costs are then told.
    **asked
        Whatever else `collsim.simulate` takes, for all systems. By default as many ranks take part as every system has;
        there is one algorithm: a name, ``auto`` or ``best``.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        Whatever is wrong with the request, all of it at once.
    ModelError
        No system has an answer; where some have, the others are in ``refused``.

    Examples
    --------
    >>> row = compare(["mi355x_rack128", "gb200_nvl72"], "all_to_all", "1G", ranks=72, profile="ideal").rows[0]
    >>> [f"{run.busbw_Bps / 1e9:.1f}" for run in row.runs], f"{row.speedups[1]:.1f}"
    (['55.5', '900.0'], '16.2')
    """
    return answer(prepare(topos, op, size, split=split, cost=cost, price=price, power=power, **asked))


def prepare(
    topos: Sequence[Any],
    op: str | Sequence[str],
    size: Any = None,
    *,
    split: str | Sequence[str | None] | None = None,
    ranks: int | Sequence[int] | None = None,
    rank_list: Sequence[int] | None = None,
    algo: str | Sequence[str] = "auto",
    placement: str | Path | None = None,
    profile: str | Profile = "auto",
    overrides: Mapping[str, str] | Sequence[str] | None = None,
    fail: str | Sequence[str] | None = None,
    degrade: Mapping[str, str | float] | Sequence[str] | None = None,
    cost: bool = False,
    price: Mapping[str, Any] | None = None,
    power: Mapping[str, Any] | None = None,
    **asked: Any,
) -> list[ComparedCase]:
    """Return the cases, one for each system; the parameters are those of `compare`. Raises every fault at once."""
    faults = Faults()
    scale_out = {name: asked.pop(name) for name in SCALE_OUT if name in asked}
    loaded = _systems(topos, Machine(overrides, fail, degrade, scale_out), faults)
    questions = _questions(partial(ask, op, size, **asked), split, algo, faults)
    if loaded and ranks is None and rank_list is None and placement is None and asked.get("matrix") is None:
        ranks = min(topology.n_gpus for topology in loaded.values())
    cases = []
    lacking = Faults()
    for label, topology in loaded.items():
        constants = faults.attempt(load_profile, profile, topology)
        own = Faults()
        groups = [own.attempt(rank_groups, topology, ranks, rank_list, question, placement) for question in questions]
        asked_here = tuple((question, gpus) for question, gpus in zip(questions, groups, strict=True) if gpus)
        cases += [ComparedCase(label, topology, constants, asked_here, tuple(dict.fromkeys(own)))] if constants else []
        lacking += own
    if faults or all(case.lacks for case in cases):
        faults += lacking
    prices = priced(loaded, price, power, faults) if cost or price or power else {}
    faults.raise_any()
    return [replace(case, price=prices.get(case.label)) for case in cases]


def priced(
    systems: Mapping[str, Topology], price: Mapping[str, Any] | None, power: Mapping[str, Any] | None, faults: Faults
) -> dict[str, Price]:
    """Return the price of each system by its label: public figures of its GPUs, and those that the caller says."""
    public = {label: price_of(topology.labels.get("gpu.model")) for label, topology in systems.items()}
    return with_own(public, price or {}, power or {}, faults)


def _systems(topos: Any, machine: Machine, faults: Faults) -> dict[str, Topology]:
    """Return the systems by their labels."""
    entries = listed(topos)
    if len(entries) < 2:
        faults.append(Fault("fewer than two systems", "topos", "name two or more, such as mi355x_ubb8 hgx_b200"))
    loaded: dict[str, Topology] = {}
    for entry in entries:
        name, changes = named_system(entry)
        found = Faults()
        topology = found.attempt(machine.also(changes).of, name)
        faults += placed(found, changes, "topos")
        if topology is not None:
            loaded[label_of(topology, changes, loaded)] = topology
    return loaded


def placed(faults: Iterable[Fault], changes: Sequence[str], where: str, also: Container[str] = ()) -> list[Fault]:
    """Return faults of the changes behind the name of a system, or at places in *also*, as faults at *where*."""
    own = {f"--set {change.partition('=')[0].strip()}" for change in changes}
    return [replace(fault, where=where) if fault.where in own or fault.where in also else fault for fault in faults]


def label_of(topology: Topology, changes: Sequence[str], taken: Iterable[str]) -> str:
    """Return the label of a system: the name, the changes, and a number if both come again."""
    label = ", ".join([topology.name, *changes])
    same = sum(other == label or other.startswith(f"{label} (") for other in taken)
    return f"{label} ({same + 1})" if same else label


def _questions(asking: Callable[..., Request], split: Any, algo: Any, faults: Faults) -> list[Request]:
    """Return the question of each split, whose only algorithm gives one row."""
    if len(names := listed(algo)) > 1 or "all" in names:
        faults.append(Fault("several algorithms", "algo", "one row of each system: give auto, best or one name"))
    if not (splits := _splits(split)):
        faults.append(Fault("no split is named", "split", 'leave it out, or name one or more, such as "MOD 8"'))
    found = [faults.attempt(asking, split=one, algo=algo) for one in splits]
    return [question for question in found if question is not None]


def answers(cases: Mapping[str, C], answer_of: Callable[[C], A]) -> list[A]:
    """Return the answer of each system; *cases* are by their labels.

    Raises
    ------
    InputError, ModelError
        A system cannot carry out what was asked, or has no answer; the message names it.
    """
    found = []
    for label, case in cases.items():
        try:
            found.append(answer_of(case))
        except (InputError, ModelError) as error:
            kind = ModelError if isinstance(error, ModelError) else InputError
            raise kind(*(replace(fault, what=f"{label}: {fault.what}") for fault in error.faults)) from error
    return found


def answer(cases: Sequence[ComparedCase]) -> Comparison:
    """Return the rows of all systems side by side, and what those that have none lack.

    Raises
    ------
    InputError, ModelError
        No system has an answer; the message names all.
    """
    found: list[tuple[ComparedCase, list[Result]]] = []
    refused: list[ComparedRefusal] = []
    errors: list[InputError | ModelError] = []
    for case in cases:
        try:
            if case.lacks:
                raise InputError(*case.lacks)
            results = _unless_interrupted(case)
        except (InputError, ModelError) as error:
            errors.append(error)
            refused += [ComparedRefusal(case.label, each.what, each.hint, error.exit_code) for each in error.faults]
        else:
            found.append((case, results))
            lost = dict.fromkeys(refusal for result in results for refusal in result.refused)
            code = max((refusal.exit_code for refusal in lost), default=0)
            refused += [ComparedRefusal(case.label, line, "", code) for line in refusal_lines(list(lost))]
    if not found and interrupted():
        raise KeyboardInterrupt
    if not found:
        kind = ModelError if isinstance(errors[0], ModelError) else InputError
        named = [(case.label, fault) for case, error in zip(cases, errors, strict=True) for fault in error.faults]
        raise kind(*(replace(fault, what=f"{label}: {fault.what}") for label, fault in named)) from errors[0]
    systems = tuple(_system(case, runs) for case, runs in found)
    bare = all(case.constants.name == BARE for case, _ in found)
    rows = (row for of_split in zip(*(runs for _, runs in found), strict=True) for row in _aligned(of_split, bare))
    return Comparison(found[0][1][0].version, systems, tuple(rows), tuple(refused))


def _unless_interrupted(case: ComparedCase) -> list[Result]:
    """Return the results of a system; raise `ModelError` if an interruption leaves nothing of them."""
    try:
        if not interrupted():
            return _results(case)
    except KeyboardInterrupt:
        if not (interrupted() or keeps_done()):
            raise
    raise ModelError(Fault(INTERRUPTED, "", "ask for it again"))


def _system(case: ComparedCase, runs: Sequence[Result]) -> ComparedSystem:
    """Return a system with what its results say of it."""
    warnings = dict.fromkeys(warning for run in runs for warning in run.warnings)
    configs = tuple(run.config for run in runs)
    return ComparedSystem(case.label, runs[0].topology, runs[0].profile, configs, tuple(warnings), case.price)


def _aligned(of_split: Sequence[Result], bare: bool) -> list[ComparedRow]:
    """Return the rows of one split side by side: those of the same operation, ranks and size."""
    grouping = of_split[0].config["split"] or of_split[0].config["groups"]
    if not any(result.refused for result in of_split):
        return [ComparedRow(grouping, rows, bare) for rows in zip(*(result.rows for result in of_split), strict=True)]
    found: list[dict[tuple[Any, ...], Row]] = []
    for result in of_split:
        by_place: dict[tuple[Any, ...], Row] = {}
        for row in result.rows:
            place = (row.ranks, row.groups, row.op, row.requested_bytes)
            again = sum(each[:-1] == place for each in by_place)
            by_place[*place, again] = row
        found.append(by_place)
    places = dict.fromkeys(place for by_place in found for place in by_place)
    return [ComparedRow(grouping, tuple(by_place.get(place) for by_place in found), bare) for place in places]


def _results(case: ComparedCase) -> list[Result]:
    return [predict(case.topology, case.constants, question, groups) for question, groups in case.asked]


def _splits(split: Any) -> list[Any]:
    """Return every split, None for all ranks in one group.

    >>> _splits("none, MOD 8"), _splits(None)
    ([None, 'MOD 8'], [None])
    """
    texts = [text.strip() for text in split.split(",")] if isinstance(split, str) else listed(split)
    return [None if isinstance(text, str) and text.lower() == WHOLE else text for text in texts]
