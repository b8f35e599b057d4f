"""The only conductor: topology + operation + size -> Result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim._version import __version__
from collsim.bounds import Bound, Cuts, find_cuts, lower_bound
from collsim.collectives import Algorithm, Request, algorithm, algorithms_for, rings_for
from collsim.engine import EngineDeadlock, Problem, Solution, check_conservation, solve
from collsim.errors import DeadlockError, Fault, InputError, InternalError, UnsupportedError
from collsim.fabric import Fabric, Float, Int, build_fabric
from collsim.flow_bounds import Flows, find_flows
from collsim.library import Profile, load_profile
from collsim.operations import BLOCK_GRAIN_BYTES, Operation, operation
from collsim.question import CHOICES, MOST_CHANNELS, Question, ask, rank_groups
from collsim.result import LinkLoad, Result, Row
from collsim.routing import Routes, find_routes, merge_trunks
from collsim.schedule import EVERY, Schedule, Transfers, is_in_network
from collsim.topology import Topology, load_topology

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Run", "Timing", "build_schedule", "predict", "prepare", "simulate", "time_schedule"]

CHANNEL_GRAIN_BPS = 20e9
"""A rank gets one channel per this much egress; on an HGX H100 that gives the 24 channels that NCCL uses there."""
SLACK = 1e-9
"""Relative rounding allowed to the always-on checks."""
CHANNELS_PER_RING = 2
"""RCCL runs each ring of its MI300X template twice: 28 rings, 56 channels (src/graph/rome_models.cc)."""
AT_CAP = 1e-6
"""A transfer that took at most this share longer than at its cap ran at its cap."""
TIE = 1e-3
"""Links within this share of the busiest count as equally busy."""
MOST_LINKS = 8
"""How many of the busiest links a row names."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Everything that the sizes and algorithms of one call share."""

    fabric: Fabric
    profile: Profile
    routes: Routes
    trunks: Routes
    trunk_capacity_Bps: Float
    cuts: Cuts
    flows: Flows | None


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """How a schedule ran: total time, load of each link, what the slowest chain waited for, and how it was solved."""

    time_s: float
    link_bytes: Float
    critical_s: Mapping[str, float]
    path: str
    transfers: int


def prepare(topology: Topology, profile: Profile, ranks: Sequence[int] | None = None) -> Run:
    """Build the fabric of *ranks* (all GPUs if None), its routes, and what bounds the time on it."""
    fabric = build_fabric(topology, ranks, efficiency=profile.achievable_rate, latency=profile.latency)
    routes = find_routes(fabric)
    trunks, capacity = merge_trunks(routes, fabric.capacity_Bps)
    used = routes.used_links(fabric.n_links)
    return Run(
        fabric,
        profile,
        routes,
        trunks,
        capacity,
        find_cuts(fabric, used, routes.fastest_s()),
        find_flows(fabric, used),
    )


def time_schedule(schedule: Schedule, run: Run) -> Timing:
    """Run *schedule* on the fabric of *run*.

    Raises
    ------
    DeadlockError
        Transfers wait for each other; names ranks and steps.
    InternalError
        The result broke a conservation law.
    """
    transfers = schedule.merged().materialise()
    size_bytes = transfers.size_bytes(schedule.chunks)
    n_routes = len(run.routes.latency_s)
    key, route = np.unique(transfers.copies * n_routes + _route_numbers(transfers, run), return_inverse=True)
    copies, used = np.divmod(key, n_routes)
    problem = _problem(transfers, size_bytes, route, run.trunks.take(used, copies.astype(float)), run)
    try:
        solution = solve(problem)
    except EngineDeadlock as stuck:
        raise DeadlockError(*_deadlock_faults(stuck, transfers)) from None
    link_bytes = run.routes.take(used, copies.astype(float)).link_bytes(
        np.bincount(route, weights=size_bytes, minlength=len(used)).astype(np.float64), run.fabric.n_links
    )
    time_s = run.profile.launch_s + float(solution.finish_s.max())
    timing = Timing(
        time_s=time_s,
        link_bytes=link_bytes,
        critical_s={"launch": run.profile.launch_s, **_critical_path(problem, solution)},
        path=f"transfers, {solution.path}",
        transfers=len(transfers),
    )
    _refuse_broken_laws(schedule, timing, run, check_conservation(problem, solution))
    return timing


def _route_numbers(transfers: Transfers, run: Run) -> Int:
    """Return int64[n]: which of the routes each transfer takes.

    Raises
    ------
    UnsupportedError
        A multicast or load-reduce on switches that only forward.
    """
    n, src, dst = run.fabric.n_ranks, transfers.src, transfers.dst
    if is_in_network(transfers) and run.fabric.in_network is None:
        hint = "choose another algorithm, or a switched topology with in_network_reduction"
        raise UnsupportedError(Fault("the schedule needs switches that add and multicast", "topology", hint))
    return np.where(src == EVERY, n * n + n + dst, np.where(dst == EVERY, n * n + src, src * n + dst))


def _critical_path(problem: Problem, solution: Solution) -> dict[str, float]:
    """Walk back from the last transfer through what it waited for; return the time spent in each kind of wait.

    *latency* is before bytes flow, *channel rate* flow at the transfer's own cap, *links* flow held back by links.
    """
    spent = {"latency": 0.0, "channel rate": 0.0, "links": 0.0}
    last = int(np.argmax(solution.finish_s))
    while True:
        flow_s = float(solution.finish_s[last] - solution.start_s[last])
        capped = flow_s <= problem.size_bytes[last] / problem.cap_Bps[last] * (1 + AT_CAP)
        spent["channel rate" if capped else "links"] += flow_s
        spent["latency"] += float(solution.start_s[last] - solution.ready_s[last])
        waited_for = problem.dep[problem.dep_ptr[last] : problem.dep_ptr[last + 1]]
        if len(waited_for) == 0:
            return spent
        last = int(waited_for[np.argmax(solution.finish_s[waited_for])])


def _problem(transfers: Transfers, size_bytes: Int, route: Int, routes: Routes, run: Run) -> Problem:
    """Return the arrays that the engine takes."""
    moves = transfers.src != transfers.dst
    return Problem(
        capacity_Bps=run.trunk_capacity_Bps,
        route_ptr=routes.ptr,
        route_link=routes.link,
        route_weight=routes.weight,
        route=route,
        size_bytes=size_bytes.astype(np.float64),
        latency_s=routes.latency_s[route] + np.where(moves, run.profile.message_overhead_s, 0.0),
        cap_Bps=transfers.lanes.astype(np.float64) * run.profile.channel_rate_Bps,
        dep_ptr=transfers.dep_ptr,
        dep=transfers.dep,
    )


def _deadlock_faults(stuck: EngineDeadlock, transfers: Transfers) -> list[Fault]:
    """Say which ranks wait for each other."""
    shown = list(stuck.cycle or stuck.transfers)[:5]
    ranks = sorted({int(r) for t in stuck.transfers for r in (transfers.src[t], transfers.dst[t])})
    names = [
        f"rank {transfers.src[t]} -> rank {transfers.dst[t]} (channel {transfers.channel[t]}, step {transfers.step[t]})"
        for t in shown
    ]
    more = " and more" if len(ranks) > 16 else ""
    return [
        Fault(
            f"deadlock: {len(stuck.transfers)} transfers never start, at ranks {', '.join(map(str, ranks[:16]))}{more}",
            "schedule",
            "waiting for each other: " + "; ".join(names),
        )
    ]


def _refuse_broken_laws(schedule: Schedule, timing: Timing, run: Run, broken: Sequence[str]) -> None:
    """Raise if the engine found *broken* laws, a link carried more than it can, or the time is below the bound."""
    room = run.fabric.capacity_Bps * timing.time_s * (1 + SLACK)
    faults = [
        *broken,
        *(
            f"link {run.fabric.wiring.link_name(int(i))} carried {timing.link_bytes[i]:.6g} bytes, more than its "
            f"capacity times the time, {room[i]:.6g}"
            for i in np.flatnonzero(timing.link_bytes > room)[:MOST_LINKS]
        ),
    ]
    bound = _bound(schedule, run)
    if bound.time_s > timing.time_s * (1 + SLACK):
        faults.append(f"time {timing.time_s:.9g} s is below the {bound.name} bound of {bound.time_s:.9g} s")
    if faults:
        where = f"{schedule.op} by {schedule.algo} on {schedule.n_ranks} ranks, {schedule.size_bytes} bytes"
        hint = "this is a defect of collsim: please report the command with this message"
        raise InternalError(*(Fault(what, where, hint) for what in faults))


def _bound(schedule: Schedule, run: Run) -> Bound:
    """Return the lower bound for what *schedule* does."""
    chunks, matrix = schedule.chunks, None
    if schedule.op == "all_to_all_v":
        matrix = np.zeros((schedule.n_ranks,) * 2, dtype=np.int64)
        np.add.at(matrix, (chunks.source, chunks.target), chunks.size_bytes)
    root = int(schedule.parameters.get("root", 0))
    return lower_bound(operation(schedule.op), schedule.size_bytes, run.cuts, root, matrix, flows=run.flows)


def simulate(
    topo: str | Path | Topology | nx.Graph[Any],
    op: str | Sequence[str],
    size: int | str | Sequence[int | str] | None = None,
    *,
    ranks: int | Sequence[int] | None = None,
    rank_list: Sequence[int] | None = None,
    algo: str | Sequence[str] = "auto",
    channels: int | None = None,
    chunk: int | str | None = None,
    dtype: str = "float",
    redop: str = "sum",
    root: int = 0,
    matrix: Any = None,
    profile: str | Profile = "default",
    overrides: Mapping[str, str] | None = None,
) -> Result:
    """Predict how long collectives take.

    Parameters
    ----------
    topo : str, path, Topology or networkx graph
        Name in the zoo, topology file, or the thing itself.
    op : str or sequence of str
        Operation, such as ``all_reduce`` or ``alltoall``.
    size : int, str or sequence of them, optional
        The size column of nccl-tests: bytes, or text such as ``64M``. Default: 1 MiB to 1 GiB by factors of two.
        The matrix decides for ``all_to_all_v``.
    ranks : int or sequence of int, optional
        How many ranks: the first so many GPUs. Several numbers are several runs.
    rank_list : sequence of int, optional
        Use exactly these GPUs, in this order.
    algo : str or sequence of str
        A name; ``best`` and ``auto``: the fastest in the simulator; ``all``: one row for each.
    channels : int, optional
        Channels (CTAs) that share the work; by default what suits the fabric.
    chunk : int or str, optional
        Largest chunk of a channel.
    dtype, redop, root
        As in nccl-tests.
    matrix : int array of shape (n, n), optional
        Bytes from row to column, for ``all_to_all_v``.
    profile : str or Profile
        ``default``, ``ideal`` or a file.
    overrides : mapping, optional
        Figures of the topology to change: ``{"link.bandwidth": "80 GB/s"}``.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        Whatever is wrong with the request, all of it at once.
    ModelError
        Ranks cannot reach each other, or the schedule deadlocks.

    Examples
    --------
    >>> result = simulate("hgx_h100", "all_to_all", "1G", profile="ideal")
    >>> round(result.busbw_Bps / 1e9, 3)
    450.0
    """
    question = ask(op, size, algo, channels=channels, chunk=chunk, dtype=dtype, redop=redop, root=root, matrix=matrix)
    topology = load_topology(topo, dict(overrides or {}))
    constants = load_profile(profile)
    return predict(topology, constants, question, rank_groups(topology, ranks, rank_list, question))


def predict(topology: Topology, constants: Profile, question: Question, groups: Sequence[Sequence[int]]) -> Result:
    """Answer a checked question: simulate every group of GPUs, operation and size.

    Raises
    ------
    InputError
        Every size rounds down to zero bytes.
    ModelError
        Ranks cannot reach each other, or a schedule deadlocks.
    """
    runs = [prepare(topology, constants, group) for group in groups]
    rows: list[Row] = []
    skipped: list[Row] = []
    for run in runs:
        for op in question.ops:
            for size_bytes in question.sizes_of(op):
                timed = _rows(op, size_bytes, run, question)
                (skipped if timed[0].size_bytes == 0 else rows).extend(timed)
    if not rows:
        smallest = max(
            BLOCK_GRAIN_BYTES * row.ranks if operation(row.op).blocked else question.element_bytes for row in skipped
        )
        raise InputError(
            Fault("every size rounds down to zero bytes", "size", f"the smallest that works is {smallest}")
        )
    return Result(
        version=__version__,
        config=_config(topology, constants, runs, question),
        topology=_topology_summary(topology),
        profile={
            "name": constants.name,
            "sha256": constants.sha256,
            "calibrated": constants.calibrated,
            "constants": constants.describe(),
        },
        rows=tuple(rows),
        warnings=_warnings(constants, skipped),
        skipped=tuple(skipped),
    )


def build_schedule(
    topology: Topology, constants: Profile, question: Question, groups: Sequence[Sequence[int]]
) -> Schedule:
    """Return the schedule of a question that asks for one operation, algorithm, size and group.

    Raises
    ------
    InputError
        The question asks for more than one, or leaves the algorithm open.
    """
    op, named = question.ops[0], [name for name in question.algo if name not in CHOICES]
    several = {
        "op": question.ops[1:],
        "size": question.sizes_of(op)[1:],
        "ranks": groups[1:],
        "algo": [] if len(named) == len(question.algo) == 1 else question.algo,
    }
    hint = "a schedule has one operation, size, group of ranks and named algorithm"
    faults = [Fault(f"{name} does not name exactly one", name, hint) for name, rest in several.items() if rest]
    if faults:
        raise InputError(*faults)
    run = prepare(topology, constants, groups[0])
    return algorithm(op.name, named[0]).build(_request(op, question.sizes_of(op)[0], run, question))


def _request(op: Operation, requested_bytes: int, run: Run, question: Question) -> Request:
    """Return what the algorithms are asked for at one size."""
    irregular = op.name == "all_to_all_v"
    n, rings = run.fabric.n_ranks, rings_for(run.fabric.peer_links())
    element_bytes = 1 if irregular else question.element_bytes
    return Request(
        op=op,
        n_ranks=n,
        size_bytes=requested_bytes if irregular else op.rounded_size_bytes(requested_bytes, n, element_bytes),
        element_bytes=element_bytes,
        root=question.root if op.rooted else 0,
        channels=question.channels,
        default_channels=_default_channels(run.fabric, rings),
        chunk_bytes=question.chunk_bytes,
        rings=rings,
        matrix_bytes=question.matrix_bytes if irregular else None,
    )


def _rows(op: Operation, requested_bytes: int, run: Run, question: Question) -> list[Row]:
    """Return the rows of one size: one, or one per algorithm if all are asked for."""
    request = _request(op, requested_bytes, run, question)
    if request.size_bytes == 0:
        return [_empty_row(request, requested_bytes, question)]
    rows: list[Row] = []
    for name in question.algo:
        if name in CHOICES:
            timed = _all_rows(request, requested_bytes, run, question)
            rows += timed if name == "all" else [min(timed, key=lambda row: row.time_s)]
        else:
            rows.append(_timed_row(algorithm(op.name, name), request, requested_bytes, run, question))
    return rows


def _all_rows(request: Request, requested_bytes: int, run: Run, question: Question) -> list[Row]:
    """Return a row for every algorithm that the fabric can carry out and that is not too large to simulate."""
    rows: list[Row] = []
    refused: list[Fault] = []
    for candidate in _able(request.op, run.fabric):
        try:
            rows.append(_timed_row(candidate, request, requested_bytes, run, question))
        except UnsupportedError as error:
            refused.extend(error.faults)
    if not rows:
        raise UnsupportedError(*refused)
    return rows


def _able(op: Operation, fabric: Fabric) -> tuple[Algorithm, ...]:
    """Return the algorithms for *op* that the switches of *fabric* can carry out."""
    return tuple(entry for entry in algorithms_for(op.name) if fabric.in_network or not entry.in_network)


def _default_channels(fabric: Fabric, rings: Int) -> int:
    """Return how many channels suit the fabric: two per ring on a mesh, else one per 20 GB/s of egress, in eights."""
    if len(rings) > 1:
        return CHANNELS_PER_RING * len(rings)
    out = fabric.wiring.link_src == fabric.rank_node[0]
    egress_Bps = float(fabric.raw_capacity_Bps[out].sum())
    return min(max(8 * math.ceil(egress_Bps / CHANNEL_GRAIN_BPS / 8), 2), MOST_CHANNELS)


def _timed_row(candidate: Algorithm, request: Request, requested_bytes: int, run: Run, question: Question) -> Row:
    """Simulate one algorithm at one size."""
    schedule = candidate.build(request)
    timing = time_schedule(schedule, run)
    bound = _bound(schedule, run)
    utilisation = timing.link_bytes / (run.fabric.capacity_Bps * timing.time_s)
    return replace(
        _empty_row(request, requested_bytes, question),
        algo=candidate.name,
        channels=int(schedule.parameters.get("channels", 1)),
        time_s=timing.time_s,
        lower_bound_s=bound.time_s,
        bound=bound.name,
        bottleneck=_busiest(utilisation, run.fabric),
        critical_s=timing.critical_s,
        bottleneck_links=int((utilisation >= utilisation.max() * (1 - TIE)).sum()),
        path=timing.path,
        classes=timing.transfers,
    )


def _busiest(utilisation: Float, fabric: Fabric) -> tuple[LinkLoad, ...]:
    """Return the busiest links, busiest first."""
    order = np.argsort(-np.round(utilisation, 9), kind="stable")[:MOST_LINKS]
    return tuple(
        LinkLoad(fabric.wiring.link_name(int(i)), min(float(utilisation[i]), 1.0)) for i in order if utilisation[i] > 0
    )


def _empty_row(request: Request, requested_bytes: int, question: Question) -> Row:
    """Return the row of a collective that moves nothing and takes no time."""
    op, element_bytes = request.op, question.element_bytes
    return Row(
        op=op.name,
        algo="none",
        proto=None,
        channels=0,
        ranks=request.n_ranks,
        groups=1,
        dtype=question.dtype,
        redop=question.redop if op.reduces else "none",
        root=request.root if op.rooted else -1,
        count=op.count(request.size_bytes, request.n_ranks, element_bytes),
        requested_bytes=requested_bytes,
        size_bytes=request.size_bytes,
        time_s=0.0,
        lower_bound_s=0.0,
        bound="none",
        bottleneck=(),
        bottleneck_links=0,
        critical_s={},
        path="none",
        classes=0,
    )


def _config(topology: Topology, constants: Profile, runs: Sequence[Run], question: Question) -> dict[str, Any]:
    """Return the resolved request: with the same version it gives the same rows."""
    ops_with_sizes = [op for op in question.ops if op.name != "all_to_all_v"]
    return {
        "topo": topology.source,
        "op": [op.name for op in question.ops],
        "size": list(question.sizes) if ops_with_sizes else None,
        "rank_lists": [run.fabric.rank_node.tolist() for run in runs],
        "algo": list(question.algo),
        "channels": question.channels,
        "chunk_bytes": question.chunk_bytes,
        "dtype": question.dtype,
        "redop": question.redop,
        "root": question.root,
        "profile": constants.name,
        "overrides": {fact.path: fact.text for fact in topology.facts if fact.status == "set"},
        "matrix_bytes": None if question.matrix_bytes is None else question.matrix_bytes.tolist(),
    }


def _topology_summary(topology: Topology) -> dict[str, Any]:
    """Return what a reader of the result needs to know of the topology, with the figures that are not facts."""
    doubtful = [fact for fact in topology.facts if fact.status not in ("datasheet", "measured", "constant", "derived")]
    return {
        "name": topology.name,
        "title": topology.title,
        "source": topology.source,
        "sha256": topology.sha256,
        "ranks": topology.n_gpus,
        "links": topology.wiring.n_links,
        "not_datasheet": [{"path": fact.path, "value": fact.text, "status": fact.status} for fact in doubtful],
    }


def _warnings(constants: Profile, skipped: Sequence[Row]) -> tuple[str, ...]:
    """Return what the user should know before trusting the numbers."""
    warnings = []
    if not constants.calibrated and constants.name != "ideal":
        warnings.append(
            f'profile "{constants.name}" is not calibrated: times are round figures, not a forecast of a log'
        )
    if skipped:
        sizes = ", ".join(str(row.requested_bytes) for row in skipped[:4])
        warnings.append(f"{len(skipped)} sizes round down to zero bytes and are left out: {sizes}")
    return tuple(warnings)
