"""The only conductor: topology + operation + size -> Result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim._version import __version__
from collsim.collectives import Algorithm, Request, algorithm, algorithms_for, rings_for
from collsim.errors import Fault, InputError, UnsupportedError
from collsim.fabric import Fabric, Float, Int
from collsim.library import Profile, load_profile
from collsim.library.costs import family_of
from collsim.library.environment import BYTES
from collsim.operations import BLOCK_GRAIN_BYTES, Operation, operation
from collsim.provenance import achievable, config_of, is_calibrated, roundings, topology_summary, warnings_of
from collsim.question import CHOICES, MOST_CHANNELS, Question, ask, rank_groups
from collsim.result import LinkLoad, Result, Row
from collsim.schedule import Schedule
from collsim.timing import MOST_LINKS, Run, prepare, time_schedule
from collsim.topology import Topology, load_topology

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["build_schedule", "library_choice", "predict", "request_of", "simulate"]

CHANNEL_GRAIN_BPS = 20e9
"""A rank gets one channel per this much egress; on an HGX H100 that gives the 24 channels that NCCL uses there."""
CHANNELS_PER_RING = 2
"""RCCL runs each ring of its MI300X template twice: 28 rings, 56 channels (src/graph/rome_models.cc)."""
LL_PASS_BYTES = 512 * 8
"""What all threads of a channel move at once with LL, 8 bytes each. A pipeline hands that on, not whole chunks, because
every line carries its flag (NCCL src/include/device.h)."""
MOST_PASSES = 512
"""A pipeline is cut into no more passes per channel: filling it is then a few percent of the time at most."""
EQUAL = 1e-9
"""Times within this share of each other are the same."""
TIE = 1e-3
"""Links within this share of the busiest count as equally busy."""


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
    profile: str | Profile = "auto",
    overrides: Mapping[str, str] | Sequence[str] | None = None,
    proto: str | None = None,
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    launch: str = "stream",
    registered: bool = False,
    gpus_per_thread: int = 1,
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
        A name; ``auto``: what the library would choose, the fastest in the simulator if none is known; ``best``: the
        fastest in the simulator; ``all``: one row for each.
    channels : int, optional
        Channels (CTAs) that share the work; by default what suits the fabric.
    chunk : int or str, optional
        Largest chunk of a channel.
    dtype, redop, root
        As in nccl-tests.
    matrix : int array of shape (n, n), optional
        Bytes from row to column, for ``all_to_all_v``.
    profile : str or Profile
        ``auto``: calibrated for the topology or for its nearest relative, else ``default``; a name, such as ``ideal``;
        a file.
    overrides : mapping or sequence of str, optional
        Figures of the topology to change: ``{"link.bandwidth": "80 GB/s"}`` or ``["link.bandwidth=80 GB/s"]``.
    proto : str, optional
        ``LL``, ``LL128`` or ``Simple``; by default what the library takes, else Simple.
    library : str, optional
        ``auto`` then follows the choice of this library, such as ``nccl-2.28`` or ``rccl-2.28``; by default that of
        the profile.
    environment : mapping, optional
        Variables that change its choice: ``{"NCCL_ALGO": "Ring"}``.
    launch : str
        ``stream``, or ``graph`` for calls that a captured graph replays.
    registered : bool
        Whether the user registered the buffers with the library (``-R 1`` of the tests).
    gpus_per_thread : int
        How many GPUs each host thread starts work on, one after the other (``-g`` of the tests).

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
    question = ask(
        op,
        size,
        algo,
        channels=channels,
        chunk=chunk,
        dtype=dtype,
        redop=redop,
        root=root,
        matrix=matrix,
        proto=proto,
        library=library,
        environment=environment,
        launch=launch,
        registered=registered,
        gpus_per_thread=gpus_per_thread,
    )
    topology = load_topology(topo, overrides or ())
    constants = load_profile(profile, topology)
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
    asked = question
    question, left_out = _with_library(topology, constants, asked)
    launched = constants.launched(question.launch, registered=question.registered)
    runs = [  # no thread starts more GPUs than there are
        prepare(topology, launched.for_threads(min(question.gpus_per_thread, len(group))), group) for group in groups
    ]
    rows: list[Row] = []
    skipped: list[Row] = []
    for run in runs:
        for op in question.ops:
            for size_bytes in question.sizes_of(op):
                timed = _rows(op, size_bytes, run, question, left_out)
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
        config=config_of(topology, constants, runs, asked),
        topology=topology_summary(topology, constants),
        profile={
            "name": constants.name,
            "sha256": constants.sha256,
            "calibrated": is_calibrated(topology, constants),
            "constants": launched.describe() + achievable(runs),
            "derived": constants.derived or None,
            "library": None if question.library is None else question.library.name,
        },
        rows=tuple(rows),
        warnings=(*warnings_of(topology, constants, question), *roundings(skipped), *left_out),
        skipped=tuple(skipped),
    )


def _with_library(topology: Topology, constants: Profile, question: Question) -> tuple[Question, list[str]]:
    """Return the question with the library that its choices follow, and what to tell of it.

    A library that the user names is followed or refused; that of the profile is followed where it can be.
    """
    if question.library is None and constants.library and "auto" in question.algo:
        from collsim.library import load_library, system_of

        library = load_library(constants.library)
        try:
            system = system_of(topology)
        except UnsupportedError as error:
            return question, [f"auto is the fastest in the simulator: {error.faults[0].what}"]
        if system.is_amd == (library.family == "rccl"):
            return replace(question, library=library), []
        return question, [f"auto is the fastest in the simulator: {library.name} does not run on {topology.name}"]
    if question.library is None and question.environment:
        raise InputError(Fault("variables of the environment need a library", "environment", "add --library nccl-2.28"))
    return question, []


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
    return _built(algorithm(op.name, named[0]), request_of(op, question.sizes_of(op)[0], run, question), question)


def _built(candidate: Algorithm, request: Request, question: Question) -> Schedule:
    """Return the schedule of an algorithm; a chunk that nobody gave is not what is wrong with it."""
    try:
        return candidate.build(request)
    except UnsupportedError as error:
        if question.chunk_bytes is not None:
            raise
        faults = [
            _not_of_the_chunk(fault, request, question) if fault.where == "chunk" else fault for fault in error.faults
        ]
        raise UnsupportedError(*faults) from None


def _not_of_the_chunk(fault: Fault, request: Request, question: Question) -> Fault:
    """Return the fault of too many chunks at what was given instead: variables of chunks, the matrix or the size."""
    given = [f"{name}={value}" for name, value in question.environment.items() if name in BYTES]
    if given and "auto" in question.algo:
        return Fault(f"{', '.join(given)}: {fault.what}", "environment", f"give more bytes: {fault.hint}")
    irregular = request.op.name == "all_to_all_v"
    hint = f"ask for less, or give the size of a chunk: {fault.hint}"
    return Fault(f"{request.size_bytes} bytes: {fault.what}", "matrix" if irregular else "size", hint)


def request_of(op: Operation, requested_bytes: int, run: Run, question: Question) -> Request:
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


def _rows(op: Operation, requested_bytes: int, run: Run, question: Question, left_out: list[str]) -> list[Row]:
    """Return the rows of one size: one, or one per algorithm if all are asked for."""
    request = request_of(op, requested_bytes, run, question)
    if request.size_bytes == 0:
        return [_empty_row(request, requested_bytes, question)]
    rows: list[Row] = []
    for name in question.algo:
        if name == "auto" and question.library is not None:
            rows.append(_chosen_row(request, requested_bytes, run, question))
        elif name in CHOICES:
            timed = _all_rows(request, requested_bytes, run, question, left_out)
            rows += timed if name == "all" else [_fastest(timed)]
        else:
            rows.append(_timed_row(algorithm(op.name, name), request, requested_bytes, run, question))
    return rows


def _fastest(rows: Sequence[Row]) -> Row:
    """Return the fastest row; of equally fast ones the first, which is the plainest algorithm."""
    least_s = min(row.time_s for row in rows)
    return next(row for row in rows if row.time_s <= least_s * (1 + EQUAL))


def _chosen_row(request: Request, requested_bytes: int, run: Run, question: Question) -> Row:
    """Simulate what the library would choose."""
    picked, asked, proto = library_choice(request, run, question)
    row = _timed_row(picked, asked, requested_bytes, run, replace(question, proto=question.proto or proto))
    if question.channels or question.chunk_bytes or question.proto:
        return row  # not what the library would do: nobody measured how far off that is
    scatter = run.profile.scatter(family_of(request.op.name, picked.name), row.size_bytes)
    if scatter is None:
        return row
    low_s, high_s = row.time_s * scatter.low, row.time_s * scatter.high
    return replace(row, time_lo_s=max(low_s, row.lower_bound_s), time_hi_s=max(high_s, row.lower_bound_s))


def library_choice(request: Request, run: Run, question: Question) -> tuple[Algorithm, Request, str]:
    """Return the algorithm that the library would take, the request as it would split it, and the protocol."""
    from collsim.library import Call, choose, read_environment, system_of

    system = system_of(run.topology, run.fabric.rank_node.tolist())
    call = Call(
        request.op.name, request.n_ranks, request.size_bytes, question.dtype, question.redop, root=request.root,
        launch=question.launch, registered=question.registered,
    )  # fmt: skip
    assert question.library is not None
    choice = choose(call, system, question.library, read_environment(question.environment))
    messages, whole = choice.point_to_point, max(choice.shares_bytes, default=request.size_bytes)
    costs = run.profile.protocol(question.proto or choice.proto, family_of(request.op.name, choice.algo))
    chunk_bytes = choice.chunk_bytes
    if choice.proto == "LL" and messages is None:
        # Lines carry flags: a ring need not wait from chunk to chunk, and a pipeline not even from pass to pass.
        costs = run.profile.protocol("LL", family_of(request.op.name, choice.algo))
        least = LL_PASS_BYTES if costs.cut_through else chunk_bytes
        pipeline = request.op.rooted or choice.algo == "chain"
        chunk_bytes = max(least, -(-whole // MOST_PASSES)) if pipeline else whole
    asked = replace(
        request,
        channels=question.channels or (messages.channels if messages else choice.channels),
        chunk_bytes=question.chunk_bytes or chunk_bytes,
        slots=max(choice.slots // choice.slots_per_chunk, 1),
        share_bytes=() if question.channels else choice.shares_bytes,
        peer_channels=messages.channels_per_peer if messages else choice.peer_channels,
        in_turn=costs.in_turn,
        peer_step_bytes=messages.step_bytes if messages else None,
    )
    return algorithm(request.op.name, choice.algo), asked, choice.proto


def _all_rows(request: Request, requested_bytes: int, run: Run, question: Question, left_out: list[str]) -> list[Row]:
    """Return a row for every algorithm that the fabric can carry out; add those too large to simulate to *left_out*."""
    rows: list[Row] = []
    refused: list[Fault] = []
    for candidate in _able(request.op, run.fabric):
        try:
            rows.append(_timed_row(candidate, request, requested_bytes, run, question))
        except UnsupportedError as error:
            refused.extend(error.faults)
            left_out.append(f"{candidate.name} is left out at {requested_bytes} bytes: {error.faults[0].what}")
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
    schedule = _built(candidate, request, question)
    timing = time_schedule(schedule, run, question.proto or "Simple", question.dtype)
    utilisation = timing.link_bytes / (run.fabric.capacity_Bps * timing.time_s)
    return replace(
        _empty_row(request, requested_bytes, question),
        algo=candidate.name,
        channels=int(schedule.parameters.get("channels", 1)),
        time_s=timing.time_s,
        lower_bound_s=timing.bound.time_s,
        bound=timing.bound.name,
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
        proto=question.proto,
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
