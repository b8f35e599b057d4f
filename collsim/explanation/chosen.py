"""The choice behind a row: who made it, what was compared, and why it won."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from collsim.core.errors import CollsimError
from collsim.explanation.bench import Bench
from collsim.explanation.findings import Chosen, Contender
from collsim.library import Call, Choice, load_library, system_of
from collsim.library.choice import choose_with
from collsim.simulation.request.checks import SYMMETRIC
from collsim.simulation.request.request import CHOICES
from collsim.simulation.simulate import predict

__all__ = ["chosen_of", "with_simulated"]


def chosen_of(bench: Bench) -> Chosen:
    """Return who chose what ran, and why."""
    row, question = bench.row, bench.original
    name = str(bench.result.profile["library"] or "")
    if row.asked not in CHOICES:
        return _as(bench, "named by the caller", f"{row.algo} was named; other algorithms are among the what-ifs")
    if row.asked == "auto" and name:
        choice = _of_library(bench, name)
        if choice is None:
            return _as(bench, name, "how the library compares its algorithms for these ranks is not modelled")
        contenders = [
            Contender(each.algo, each.proto, each.predicted_s, None, chosen=not place)
            for place, each in enumerate(choice.candidates)
        ]
        return replace(_as(bench, name, choice.why), contenders=tuple(contenders), doubts=choice.doubts)
    rivals = _rivals(bench)
    others = [entry for entry in rivals if not entry.chosen]
    why = f"{row.algo} is the fastest in the simulator" + (
        f", before {others[0].algo}" if others else ", the only one that runs here"
    )
    return replace(_as(bench, "the simulator", why), contenders=tuple(rivals), doubts=_doubts(question.proto))


def _doubts(proto: str | None) -> tuple[str, ...]:
    return () if proto is None else (f"only protocol {proto} was compared",)


def _as(bench: Bench, by: str, why: str) -> Chosen:
    row = bench.row
    return Chosen(row.algo, row.proto, row.channels, by, why)


def _of_library(bench: Bench, name: str) -> Choice | None:
    """Return the choice of the library for the call of the row; None if that is not what ran."""
    row, question = bench.row, bench.original
    topology = bench.asked.topology
    gpus = list(row.group_times[0].gpus) if row.group_times else bench.gpus
    nodes = len({int(topology.wiring.coordinates.node[gpu]) for gpu in gpus})
    try:
        call = Call(
            row.op, row.ranks, row.size_bytes, question.dtype, question.redop, root=question.root,
            launch=question.launch, registered=bool(question.registered),
            symmetric=question.registered == SYMMETRIC, n_nodes=nodes,
        )  # fmt: skip
        choice = choose_with(call, system_of(topology, gpus), load_library(name), question.environment, question.proto)
    except CollsimError:
        return None
    return choice if choice.algo == row.algo and choice.proto == row.proto else None


def _rivals(bench: Bench) -> list[Contender]:
    """Return every algorithm that competes, each with its fastest protocol, fastest first."""
    question = replace(bench.original, algo=("all",), channels=None)
    try:
        rows = predict(bench.asked.topology, bench.asked.constants, question, bench.asked.groups).rows
    except CollsimError:
        return []
    row = bench.row
    rows = tuple(sorted(rows, key=lambda each: each.time_s))
    return [Contender(each.algo, each.proto or "", None, each.time_s, chosen=each.label == row.label) for each in rows]


def with_simulated(chosen: Chosen, simulated_s: Mapping[tuple[str, str], float], time_s: float) -> Chosen:
    """Return the same with the simulated times of contenders that were simulated."""
    found = [
        replace(each, simulated_s=time_s if each.chosen else simulated_s.get((each.algo, each.proto), each.simulated_s))
        for each in chosen.contenders
    ]
    return replace(chosen, contenders=tuple(found))
