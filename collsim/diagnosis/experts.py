"""Logs of DeepEP's tests beside the model of experts: verdicts, notes, and what would explain those that are slow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from collsim.core.errors import CollsimError, Fault, Faults, InputError
from collsim.core.units import format_bandwidth, format_count
from collsim.diagnosis.expert_findings import ExpertCause, ExpertLog, ExpertRow
from collsim.moe.logs import MoeLog, MoeMeasured, read_moe_log
from collsim.moe.result import MoeResult, MoeRow
from collsim.moe.simulate import simulate_moe
from collsim.simulation.request.prepare import Machine
from collsim.topology import Topology

__all__ = ["expert_log"]

FILE = "expert_causes.yaml"
CLEARLY = 0.7
"""A cause must be nearer than the healthy machine by this factor. Chosen."""
EARLY = 1.5
"""A rank whose dispatch takes so many times as long as another's, while both phases do not, waited. Chosen."""
SLOW_RANK = 1.15
"""A rank is slow if it takes so many times the median of all. Chosen: ranks of healthy logs are within a twentieth."""
OFF_SHARE = 0.15
"""A ratio of bandwidths is that of another number of nodes if it is off by more. Chosen."""
EARLY_BPS = 43e9
"""Logical bytes of a rank over nodes that the kernels of spring 2025 sent, whatever the links: 43 GB/s on 16 ranks of
H800 (deepseek-ai/DeepEP README.md of March 2025, quoted in its issue 60), and measured by others 44 to 45 on two nodes
of H20 (issue 361) and 38 to 44 on two of H200 (issue 493). Later ones are faster."""
EARLY_WIDTH = 1.25
"""Factor that the slowest of these are off by, and a little more. Chosen."""
LATER_KERNELS = "deepep_v1"
"""Kernels whose rows were measured with versions of autumn 2025 and later."""
STALLS = 3.0
"""The mean iteration takes so many times the least where single ones stall. Chosen."""
STARTS = 0.5
"""The step before is worth a word if it takes so large a part of the operation. Chosen: a third of the sum."""
TEST_EXPERTS = {"normal": 256, "low_latency": 288}
"""Experts of DeepEP's tests (tests/test_internode.py, tests/test_low_latency.py)."""
NODES_TRIED = (2, 4, 8)


def expert_log(
    path: str | Path, topo: Any, machine: Machine, *, ranks: int | None = None, nodes: int | None = None,
    causes: bool = False,
) -> ExpertLog:  # fmt: skip
    """Return a log of DeepEP's tests beside the model, with what would explain it if it is slow and *causes* is set.

    Parameters
    ----------
    path, topo, machine
        The log, the system, and what is changed on it; *nodes* makes a cluster of one host.
    ranks : int, optional
        Over which the experts are spread; by default those that the log names, else all GPUs.

    Raises
    ------
    InputError
        Every fault of file and machine.
    """
    faults = Faults()
    log = faults.attempt(read_moe_log, path)
    changed = machine if nodes is None or nodes < 2 else machine.also([f"scale_out.nodes={nodes}"])
    topology = faults.attempt(changed.of, topo)
    faults.raise_any()
    assert log is not None
    assert topology is not None
    ranks = ranks or log.ranks or topology.n_gpus
    if ranks > topology.n_gpus:
        hint = "give --nodes, and --ranks if not all GPUs took part"
        raise InputError(
            Fault(f"the log has {ranks} ranks, {topology.name} {format_count(topology.n_gpus, 'GPU')}", str(path), hint)
        )
    per_node = topology.n_gpus if topology.cluster is None else topology.cluster.node.n_gpus
    spread = -(-ranks // per_node)
    results = _predicted(log, topology, ranks, spread)
    early = _waited(log)
    of_spring = _is_of_spring(log, next(iter(results.values())), spread)
    rows = tuple(_row(each, results[each.dtype], early=early, of_spring=of_spring) for each in log.rows)
    notes = (*_notes(log, topology, ranks, spread), *_starts(log, results, spread))
    beside = ExpertLog(log, ranks, spread, next(iter(results.values())), rows, notes)
    if causes and beside.verdict == "faulty":
        beside = replace(beside, causes=tuple(_explained(log, rows, (topo, changed, topology), ranks, spread)))
    return beside


def _asked(log: MoeLog, ranks: int, nodes: int) -> dict[str, Any]:
    """Return the question of a log: the figures of the test."""
    experts = log.experts or TEST_EXPERTS[log.mode] // ranks * ranks
    groups = nodes if log.topk_groups and experts % nodes == 0 else 1
    limit = min(log.topk_groups or 1, groups)
    return {
        "model": None, "ep": ranks, "tokens": log.tokens, "mode": log.mode, "experts": experts, "top_k": log.top_k,
        "hidden": log.hidden, "expert_groups": groups, "group_limit": limit,
        "sms": next((row.sms for row in log.rows if row.sms), None),
    }  # fmt: skip


def _predicted(log: MoeLog, topology: Topology, ranks: int, nodes: int, **changes: Any) -> dict[str, MoeResult]:
    """Return the predictions by the type of what is dispatched; those of combine are the same in all."""
    asked = _asked(log, ranks, nodes) | changes
    types = dict.fromkeys(row.dtype for row in log.rows)
    return {dtype: simulate_moe(topology, dispatch=dtype, **asked) for dtype in types}


def _times(measured: MoeMeasured, result: MoeResult, *, of_spring: bool) -> tuple[float, float, float]:
    """Return the predicted time of an operation and its interval; early kernels *of_spring* 2025 send no faster than
    `EARLY_BPS`.
    """
    rows = _taking(measured, result)
    low_s, high_s = (sum(getattr(row, end) or row.time_s for row in rows) for end in ("time_lo_s", "time_hi_s"))
    least_s = sum(row.logical_bytes for row in rows) / EARLY_BPS if of_spring else 0.0
    return max(sum(row.time_s for row in rows), least_s), low_s, max(high_s, EARLY_WIDTH * least_s)


def _is_of_spring(log: MoeLog, result: MoeResult, nodes: int) -> bool:
    """Return True if a log over nodes has the format of kernels older than those that the model was fitted to."""
    no_times = log.mode == "normal" and all(row.time_s is None for row in log.rows)
    return no_times and nodes > 1 and result.kernel["name"] == LATER_KERNELS


def _taking(measured: MoeMeasured, result: MoeResult) -> list[MoeRow]:
    """Return the predicted rows that an operation is made of."""
    return [row for row in result.rows if measured.op in ("both", row.op)]


def _row(measured: MoeMeasured, result: MoeResult, *, early: bool, of_spring: bool) -> ExpertRow:
    """Return an operation beside its prediction; where ranks came *early*, dispatch takes as long as on the last."""
    taking = _taking(measured, result)
    logical = sum(row.logical_bytes for row in taking)
    time_s = measured.time_s or logical / measured.logical_Bps
    if early and measured.op == "dispatch":
        time_s = min(each_s for _, each_s in measured.by_rank_s)
    network = sum(row.network_bytes for row in taking) / time_s
    times_s = _times(measured, result, of_spring=of_spring)
    return ExpertRow(measured.op, measured.dtype, time_s, *times_s, measured.logical_Bps, network)


# --- notes -----------------------------------------------------------------------------------------------------------


def _notes(log: MoeLog, topology: Topology, ranks: int, nodes: int) -> Iterable[str]:
    """Yield what ends confusion about a log."""
    if nodes > 1 and log.mode == "normal":
        yield (
            "logical counts a token once for each node that it goes to, its own included: "
            f"{nodes - 1}/{nodes} of it is on the wire"
        )
    if log.mode == "normal" and all(row.time_s is None for row in log.rows):
        yield "the log has bandwidths only, as DeepEP printed them until spring 2025: times follow from the bytes"
    if any(row.op == "both" for row in log.rows):
        yield "both: as the host sees it, with launches and what lies between; the verdict is on the single phases"
    yield from _by_ratio(log, ranks, nodes)
    yield from _by_rank(log)
    yield from _other_mode(log, topology, ranks, nodes)


def _by_ratio(log: MoeLog, ranks: int, nodes: int) -> Iterable[str]:
    """Yield how many nodes the bandwidths of node and network speak for."""
    shares = [row.node_share for row in log.rows if row.node_share]
    if not shares:
        return
    share = median(shares)
    expected = {n: _node_share(log, ranks, n) for n in NODES_TRIED if ranks % n == 0 and ranks > n}
    nearest = min(expected, key=lambda n: abs(math.log(expected[n] / share)), default=nodes)
    if nodes in expected and abs(math.log(share / expected[nodes])) > OFF_SHARE and nearest != nodes:
        yield (
            f"NVL is {share:.2g} times RDMA: that of {nearest} nodes ({expected[nearest]:.2g}), not of {nodes} "
            f"({expected[nodes]:.2g}); give --nodes"
        )


def _node_share(log: MoeLog, ranks: int, nodes: int) -> float:
    """Return copies of a token to ranks of a node over copies to nodes, as DeepEP's tests count them."""
    from collsim.moe.gating import distinct_groups

    experts = log.experts or TEST_EXPERTS["normal"] // ranks * ranks
    return float(distinct_groups(experts, log.top_k, ranks) / distinct_groups(experts, log.top_k, nodes))


def _of_ranks(log: MoeLog) -> dict[str, dict[int, float]]:
    """Return the times of ranks by operation, where there are any."""
    return {row.op: dict(row.by_rank_s) for row in log.rows if row.by_rank_s}


def _waited(log: MoeLog) -> bool:
    """Return True if ranks waited for others in dispatch alone, as both phases together are alike on all."""
    rows = _of_ranks(log)
    both, dispatch = list(rows.get("both", {}).values()), list(rows.get("dispatch", {}).values())
    if not both or not dispatch:
        return False
    return max(dispatch) > EARLY * min(dispatch) and max(both) < EARLY * min(both)


def _by_rank(log: MoeLog) -> Iterable[str]:
    """Yield ranks that are slow, or that came early and waited."""
    rows = _of_ranks(log)
    if _waited(log):
        dispatch, both = rows["dispatch"], rows["both"]
        rank = max(dispatch, key=lambda each: dispatch[each])
        least, most = min(dispatch.values()), dispatch[rank]
        yield (
            f"dispatch alone takes {least * 1e6:.0f} to {most * 1e6:.0f} us (rank {rank}), both phases "
            f"{median(both.values()) * 1e6:.0f} us on all ranks: ranks start at different moments and those that are "
            "early wait; the least counts here. Compare both phases, or time after a barrier"
        )
        return
    for op, times in rows.items():
        middle = median(times.values())
        slow = sorted(rank for rank, time_s in times.items() if time_s > SLOW_RANK * middle)
        if slow and len(slow) <= len(times) // 4:
            yield f"{op}: ranks {', '.join(map(str, slow))} take more than {SLOW_RANK:g} times the median of all"


def _other_mode(log: MoeLog, topology: Topology, ranks: int, nodes: int) -> Iterable[str]:
    """Yield the mode that the model has as faster with as many tokens."""
    other = "normal" if log.mode == "low_latency" else "low_latency"
    sums = {}
    for mode in (log.mode, other):
        try:
            result = simulate_moe(topology, dispatch="fp8", **_asked(log, ranks, nodes) | {"mode": mode, "sms": None})
        except CollsimError:
            return
        if not result.kernel["calibrated"]:
            return  # no measured row of the kernels is near
        sums[mode] = sum(row.whole_s for row in result.rows)
    if sums[other] < sums[log.mode]:
        times = f"{sums[other] * 1e6:.0f} instead of {sums[log.mode] * 1e6:.0f} us"
        yield f"with {log.tokens} tokens a rank mode {other.replace('_', ' ')} would be faster by the model: {times}"


def _starts(log: MoeLog, results: Mapping[str, MoeResult], nodes: int) -> Iterable[str]:
    """Yield where a step before, the start of a kernel, or a stall takes more than what is sent, and early kernels."""
    told: dict[str, None] = {}
    if _is_of_spring(log, next(iter(results.values())), nodes):
        told[
            f"such a log is of kernels of spring 2025, which sent about {EARLY_BPS / 1e9:g} GB/s whatever the links: "
            "predicted is no more than that; later versions are faster (collsim moe)"
        ] = None
    for row in log.rows:
        if row.least_s and row.time_s and row.time_s > STALLS * row.least_s:
            told[
                f"the mean iteration takes {row.time_s * 1e6:.0f} us, the least {row.least_s * 1e6:.0f}: single ones "
                "stall (first calls, page faults, other work on the host); means and bandwidths are those of the stalls"
            ] = None
        if row.prepare_s and row.time_s and row.prepare_s > STARTS * row.time_s:
            told[
                f"{row.op} ({row.dtype}): counting tokens before (notify) takes {row.prepare_s * 1e6:.0f} us, what is "
                f"sent {row.time_s * 1e6:.0f} us: more tokens, or the counts of an earlier call (cached layout), "
                "help; faster links do not"
            ] = None
        taking = _taking(row, results[row.dtype])
        if row.op != "both" and all(each.limit_kind == "start" for each in taking):
            told[
                f"{row.op}: with {log.tokens} tokens a rank start-up decides, not transmission: times count, "
                "bandwidths say little"
            ] = None
    return told


# --- causes ----------------------------------------------------------------------------------------------------------


@cache
def _causes() -> tuple[dict[str, Any], ...]:
    import yaml

    text = files("collsim.diagnosis").joinpath(FILE).read_text(encoding="utf-8")
    return tuple(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["causes"])


def _explained(
    log: MoeLog, rows: tuple[ExpertRow, ...], machines: tuple[Any, Machine, Topology], ranks: int, nodes: int
) -> list[ExpertCause]:
    """Return the causes whose times are clearly nearer than the healthy ones, nearest first."""
    topo, machine, topology = machines
    healthy_off = _off(rows, [row.predicted_s for row in rows])
    found = []
    for entry in _causes():
        settings = _settings(entry.get("set", {}), topology, nodes)
        try:
            changed = machine.also([f"{path}={value}" for path, value in settings.items()]).of(topo)
            results = _predicted(log, changed, ranks, nodes, **entry.get("ask", {}))
        except CollsimError:
            continue
        of_spring = _is_of_spring(log, next(iter(results.values())), nodes)
        off = _off(rows, [_times(each, results[each.dtype], of_spring=of_spring)[0] for each in log.rows])
        if off < CLEARLY * healthy_off:
            flags = " ".join([
                *(f'--set {path}="{value}"' for path, value in settings.items()),
                *(f"--{key} {value}" for key, value in entry.get("ask", {}).items() if key != "seeds"),
            ])  # fmt: skip
            name, title, measure, fix, source = (entry[key] for key in ("name", "title", "measure", "fix", "source"))
            found.append(ExpertCause(name, title, flags, measure, fix, source, off, healthy_off))
    return sorted(found, key=lambda cause: cause.off)


def _settings(changes: Mapping[str, str], topology: Topology, nodes: int) -> dict[str, str]:
    """Return the figures of a cause on a machine."""
    gpus = topology.n_gpus if topology.cluster is None else topology.cluster.node.n_gpus
    told = {}
    for path, value in changes.items():
        if value.startswith("x"):
            told[path] = format_bandwidth(topology.fact(path).value * float(value[1:]))
        else:
            told[path] = value.format(gpus=gpus, nodes=nodes)
    return told


def _off(rows: Iterable[ExpertRow], times_s: Iterable[float]) -> float:
    """Return the root of the mean square of the logarithms of measured over other times."""
    logs = [math.log(row.measured_s / time_s) for row, time_s in zip(rows, times_s, strict=True)]
    return math.sqrt(sum(each**2 for each in logs) / len(logs))
