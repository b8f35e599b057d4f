"""Answers of points: one flat record of plain values each, or the error of a point that has none."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from collsim.core.errors import CollsimError, Fault, InputError, defect
from collsim.prices import Price, cost_of, price_of
from collsim.sweeps.points import Point, arguments_of
from collsim.sweeps.records import record

__all__ = ["answered", "lost"]


def answered(point: Point) -> dict[str, Any]:
    """Return the record of a point; whatever goes wrong with it is part of the record."""
    try:
        answer = ANSWERS[point.kind](arguments_of(point.kind, point.asked))
    except CollsimError as error:
        told = "; ".join(map(_words, error.faults))
        return _record(point, error=told, exit_code=error.exit_code)
    except MemoryError:
        return _record(point, error="out of memory", exit_code=3)
    except Exception as error:  # a defect of ours must not stop the other points
        last = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({last.name}); {defect()}"
        return _record(point, error=told, exit_code=1)
    return _record(point, answer)


def _words(fault: Fault) -> str:
    """Return a fault on one line."""
    return (f"{fault.where}: " if fault.where else "") + fault.what + (f" ({fault.hint})" if fault.hint else "")


def lost(point: Point, why: str) -> dict[str, Any]:
    """Return the record of a point whose process ended before it had an answer."""
    return _record(point, error=why, exit_code=3)


def _record(point: Point, answer: Mapping[str, Any] | None = None, **wrong: Any) -> dict[str, Any]:
    return record(point.kind, point.key, point.asked, answer, **wrong)


def _costs(price: Price, gpus: int, time_s: float, moved_bytes: float = 0.0) -> dict[str, Any]:
    """Return what something costs on so many GPUs, by the public price of their model."""
    cost = cost_of(price, gpus, time_s, moved_bytes)
    return {
        "gpus": gpus,
        "usd": cost.usd,
        "joules": cost.joules,
        "usd_per_TB": cost.usd_per_TB,
        "joules_per_TB": cost.joules_per_TB,
    }


def _run(asked: Mapping[str, Any]) -> dict[str, Any]:
    from collsim.simulation.request.prepare import prepare
    from collsim.simulation.simulate import predict

    prepared = prepare(**asked)
    result = predict(*prepared)
    if len(result.rows) != 1:
        hint = "give one operation, size, number of ranks and algorithm to each point"
        raise InputError(Fault(f"{len(result.rows)} rows", "", hint))
    row, gpus = result.rows[0], result.rows[0].ranks * result.rows[0].groups
    price = price_of(prepared.topology.labels.get("gpu.model"))
    return {**result.to_records()[0], **_costs(price, gpus, row.time_s, row.busbw_Bps * row.time_s * gpus)}


def _moe(asked: Mapping[str, Any]) -> dict[str, Any]:
    from collsim.moe import simulate_moe

    machine = {name: asked.get(name) for name in ("overrides", "fail", "degrade")}
    result = simulate_moe(**asked)
    rows = {row["op"]: row for row in result.to_records()}
    if sorted(rows) != ["combine", "dispatch"] or len(result.rows) != 2:
        raise InputError(Fault(f"{len(result.rows)} rows", "ep", "give one number of ranks to each point"))
    shared = {name: value for name, value in rows["dispatch"].items() if rows["combine"].get(name) == value}
    own = {f"{op}_{name}": row[name] for op, row in rows.items() for name in row if name not in shared}
    time_s = rows["dispatch"]["time_s"] + rows["combine"]["time_s"]
    document = result.to_dict()
    layers, each, ranks = document["model"]["layers"], document["config"]["tokens"], int(rows["dispatch"]["ranks"])
    tokens = each * ranks if isinstance(each, int) else sum(each)
    cost = _costs(price_of(_gpu(asked["topo"], machine["overrides"])), ranks, time_s)
    return {
        **shared,
        "time_s": time_s,
        "limited_by": max(rows.values(), key=lambda row: row["time_s"])["limited_by"],
        **own,
        **_tokens(tokens, layers * time_s if layers else None, cost["usd"] and cost["usd"] * (layers or 0)),
        **cost,
    }


def _tokens(tokens: int | None, time_s: float | None, usd: float | None) -> dict[str, Any]:
    """Return the rate of tokens and the dollars of a million: of a step, or of dispatch and combine of all layers."""
    rate = tokens / time_s if tokens and time_s else None
    return {
        "tokens": tokens,
        "tokens_per_s": rate,
        "usd_per_million_tokens": usd / tokens * 1e6 if rate and usd and tokens else None,
    }


def _gpu(topo: Any, overrides: Any) -> str | None:
    """Return the model of the GPUs of a topology."""
    from collsim.simulation.request.prepare import Machine

    return Machine(overrides=overrides).of(topo).labels.get("gpu.model")


def _timeline(asked: Mapping[str, Any]) -> dict[str, Any]:
    from collsim.timeline.any_step import step_of
    from collsim.timeline.what_if import asked_for

    changes = dict(asked)
    file, figures = str(changes.pop("workload")), changes.pop("figures", None)
    what_if = asked_for(None, **changes)
    result, gpus, tokens = step_of(file, what_if, figures)
    price = price_of(_gpu(what_if.topo, changes.get("overrides")))
    cost = _costs(price, gpus, result.step_time_s)
    return {
        "topology": result.topology,
        "gpu": result.gpu,
        "time_s": result.step_time_s,
        "time_lo_s": result.time_lo_s,
        "time_hi_s": result.time_hi_s,
        "communication_s": result.communication_s,
        "compute_s": result.compute_s,
        "exposed_s": result.exposed_s,
        "limited_by": result.limited_by,
        **_tokens(tokens, result.step_time_s, cost["usd"]),
        **cost,
    }


ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "run": _run, "moe": _moe, "timeline": _timeline,
}  # fmt: skip
