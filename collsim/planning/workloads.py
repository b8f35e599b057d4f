"""Workloads on several systems: a training step, or dispatch and combine, by time, tokens a second and dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collsim._version import __version__
from collsim.core.errors import Fault, Faults, InputError, ModelError, did_you_mean
from collsim.core.old_names import current_name
from collsim.planning.workload_comparison import WorkloadComparison, WorkloadRun
from collsim.prices import Price, cost_of
from collsim.simulation.compare import label_of, priced
from collsim.simulation.comparison import named_system
from collsim.simulation.request.prepare import Machine
from collsim.sweeps.answer import answered
from collsim.sweeps.kinds import KINDS
from collsim.sweeps.points import point_of
from collsim.sweeps.records import OK
from collsim.timeline.kineto import is_trace
from collsim.timeline.reader import read_trace
from collsim.timeline.workload import read_workload

__all__ = ["compare_workloads"]

SCHEMAS = {"collsim.workload/1": "timeline", "collsim.moe_workload/1": "moe"}
"""Schemas of workloads, and the kind of point that each is."""
OF_FILE = "workload."
"""Beginning of changes behind the name of a system that are of the workload's file there, not of the system."""


def compare_workloads(
    topos: Sequence[str],
    workload: str | Path,
    *,
    price: Mapping[str, Any] | None = None,
    power: Mapping[str, Any] | None = None,
    **asked: Any,
) -> WorkloadComparison:
    """Predict a workload on several systems.

    Parameters
    ----------
    topos : sequence of str
        Names or files, with changes behind them: ``gb200_nvl72,scale_out.nodes=2``; ``workload.flops=1200e12`` changes
        the file of the workload there, as kernels take what the file says on every system.
    workload : str or path
        A step (``schema: collsim.workload/1``), a trace of one (``.json``, ``.json.gz``), or dispatch and combine of a
        model with experts (``schema: collsim.moe_workload/1``, with the arguments of `collsim.simulate_moe`).
    price, power : mapping, optional
        Dollars an hour and watts of one GPU in place of public figures, by the name of a system.
    **asked
        What else `collsim.simulate_timeline` or `collsim.simulate_moe` takes, for all systems, such as ``nodes``.

    Raises
    ------
    InputError
        Everything that is wrong with the request, at once.
    ModelError
        No system has an answer.

    Examples
    --------
    >>> found = compare_workloads(["hgx_h100", "hgx_b200"], "examples/training_step.yaml")
    >>> [round(speedup, 2) for speedup in found.speedups][0]
    1.0
    """
    faults = Faults()
    kind, figures = _workload(str(workload), faults)
    _check_arguments(kind, asked, faults)
    systems = _systems(topos, faults)
    prices = priced({label: machine for label, (_, _, machine) in systems.items()}, price, power, faults)
    faults.raise_any()
    runs = []
    for label, (name, changes, _) in systems.items():
        question: dict[str, Any] = {**figures, **asked, "topo": name}
        overrides = dict(question.pop("overrides", None) or {})
        for change in changes:
            path, _, value = (part.strip() for part in change.partition("="))
            own = path.removeprefix(OF_FILE)
            if own != path:
                question |= {own: _number(value)} if kind == "moe" else {f"figures.{own}": _number(value)}
            else:
                overrides[path] = value
        question |= {f"overrides.{path}": value for path, value in overrides.items()}
        record = answered(point_of(kind, question))
        runs.append(_run(label, record, prices[label]))
    if all(run.error for run in runs):
        errors = [Fault(f"{run.label}: {run.error}") for run in runs]
        raise (ModelError if runs[0].exit_code == ModelError.exit_code else InputError)(*errors)
    return WorkloadComparison(__version__, str(workload), kind, tuple(runs))


def _run(label: str, record: Mapping[str, Any], price: Price) -> WorkloadRun:
    """Return a run, with the dollars and joules of the price that holds for its system."""
    answer = dict(record["answer"])
    if record["status"] == OK:
        cost = cost_of(price, answer["gpus"], answer["time_s"])
        if answer.get("usd_per_million_tokens") and answer["usd"]:
            answer["usd_per_million_tokens"] *= (cost.usd or 0.0) / answer["usd"]
        answer |= {"usd": cost.usd, "joules": cost.joules}
    return WorkloadRun(label, answer, record["error"], record["exit_code"], price)


def _workload(file: str, faults: Faults) -> tuple[str, dict[str, Any]]:
    """Return the kind of a workload, empty if that cannot be told, and what a point of it asks beside the system."""
    if is_trace(file):
        faults.attempt(read_trace, file)
        return "timeline", {"workload": file}
    data = faults.attempt(read_workload, file)
    if data is None:
        return "", {}
    schema = str(data.get("schema"))
    if schema not in SCHEMAS:
        hint = f"{did_you_mean(schema, list(SCHEMAS))}write schema: with one of {', '.join(SCHEMAS)}"
        faults.append(Fault(f'schema is "{schema}"', f"{file}: schema", hint))
        return "", {}
    if SCHEMAS[schema] == "timeline":
        return "timeline", {"workload": file}
    own = KINDS["moe"].arguments
    figures = {current_name(name, own): value for name, value in data.items() if name != "schema"}
    inner = Faults()
    _check_arguments("moe", figures, inner)
    faults += [replace(fault, where=f"{file}: {fault.where}") for fault in inner]
    return "moe", figures


def _check_arguments(kind: str, asked: Mapping[str, Any], faults: Faults) -> None:
    """Add a fault for each argument that a workload of a kind does not take; none if the kind is not known."""
    own = KINDS[kind].arguments if kind else ()
    known = [name for name in own if name not in ("topo", "workload", "figures")]
    for name in asked if kind else ():
        if name not in known:
            hint = f"{did_you_mean(name, known)}it takes {', '.join(known)}"
            faults.append(Fault(f"a workload of kind {kind} does not take it", name, hint))


def _systems(topos: Sequence[str], faults: Faults) -> dict[str, tuple[str, list[str], Any]]:
    """Return name, changes and machine of each system by its label."""
    found: dict[str, tuple[str, list[str], Any]] = {}
    if len(topos := list(topos)) < 2:
        faults.append(Fault("fewer than two systems", "topos", "name two or more, such as mi355x_ubb8 hgx_b200"))
    for entry in topos:
        name, changes = named_system(entry)
        own = [change for change in changes if not change.startswith(OF_FILE)]
        inner = Faults()
        machine = inner.attempt(Machine().also(own).of, name)
        faults += [replace(fault, where="topos") for fault in inner]
        if machine is not None:
            found[label_of(machine, changes, found)] = (name, changes, machine)
    return found


def _number(text: str) -> Any:
    """Return a number where a text is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
