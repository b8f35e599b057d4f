"""Selection of the algorithms that compete, and of what a library would pick."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collsim.collectives import (
    Algorithm,
    ScheduleRequest,
    algorithm,
    algorithms_for,
    dimensions_of,
    node_rings,
    rings_for,
)
from collsim.core.errors import Fault, NoRouteError, UnsupportedError
from collsim.core.operations import Operation
from collsim.fabric.bounds.lower import MOST_IN_TABLES
from collsim.fabric.fabric import Fabric, Int
from collsim.fabric.reduction_trees import TreePorts, plant
from collsim.library.costs.network_costs import CHUNKS_TOGETHER
from collsim.library.environment import BYTES
from collsim.schedule import Schedule
from collsim.simulation.heralds import PASSED_ON
from collsim.simulation.lowering import MOST_TRANSFERS
from collsim.simulation.request.checks import SYMMETRIC
from collsim.simulation.request.request import MOST_CHANNELS, Request
from collsim.simulation.runs import LoweredRun, layout_of
from collsim.topology import Topology

if TYPE_CHECKING:
    from collsim.library import Call, Choice, Library, System

__all__ = [
    "ByPlugin",
    "built",
    "dimensions_of_run",
    "library_choice",
    "library_kernel",
    "library_options",
    "no_sharp",
    "refuse_damaged",
    "request_of",
    "turns_sharp_on",
]

ByPlugin = dict[str, set[tuple[str, int, int]]]
"""Operation, ranks and bytes of the calls for which a plug-in's tuner chose, by the kind of instance."""
CHANNEL_GRAIN_BPS = 20e9
"""A rank gets one channel per this much egress; on an HGX H100 that gives the 24 channels that NCCL uses there."""
CHANNELS_PER_RING = 2
"""RCCL runs each ring of its MI300X template twice: 28 rings, 56 channels (src/graph/rome_models.cc)."""
LL_PASS_BYTES = 512 * 8
"""Bytes that all threads of a channel move at once with LL, 8 each. A pipeline hands that on, not whole chunks, because
every line carries its flag (NCCL src/include/device.h)."""
RINGED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Operations that a library runs over its rings; others are messages, whose channels follow from their size."""
MOST_DAMAGED = 1024
"""Ranks all messages of which are laid out one by one where something has failed (measured: 7 s and 1 GB by eleven
sizes; twice as many took more than 8 GB, sixteen times as many 21 GB when they were stopped)."""
MOST_PASSES = 512
"""A pipeline is cut into no more passes per channel: filling it is then a few percent of the time at most."""


def request_of(op: Operation, requested_bytes: int, run: LoweredRun, question: Request) -> ScheduleRequest:
    """Return the request to algorithms at one size."""
    irregular = op.name == "all_to_all_v"
    n, layout = run.fabric.n_ranks, layout_of(run)
    several = layout.n_nodes > 1
    rings = _rings(run)
    element_bytes = 1 if irregular else question.element_bytes
    return ScheduleRequest(
        op=op,
        n_ranks=n,
        size_bytes=requested_bytes if irregular else question.size_of(op, requested_bytes, n),
        element_bytes=element_bytes,
        root=question.root if op.rooted else 0,
        channels=question.channels,
        default_channels=_library_channels(op, run, question) or _default_channels(run.fabric, rings),
        chunk_bytes=question.chunk_bytes,
        rings=rings,
        matrix_bytes=question.matrix_bytes if irregular else None,
        nodes=layout.n_nodes,
        layout=layout if several else None,
        dimensions=dimensions_of_run(run),
    )


def _rings(run: LoweredRun) -> Int:
    """Return the rings of a run, found once for all its sizes."""
    if "rings" not in run.found:
        layout = layout_of(run)
        run.found["rings"] = node_rings(layout) if layout.n_nodes > 1 else _rings_within(run.fabric)
    rings: Int = run.found["rings"]
    return rings


def _system(run: LoweredRun, *, sharp: bool | None = None) -> System:
    """Return the ranks of a run as the library sees them, found once for all its sizes."""
    if ("system", sharp) not in run.found:
        from collsim.library import system_of

        run.found["system", sharp] = system_of(run.topology, run.fabric.rank_node.tolist(), sharp=sharp)
    system: System = run.found["system", sharp]
    return system


def dimensions_of_run(run: LoweredRun) -> tuple[int, ...]:
    """Return the dimensions of the torus that the links of one domain's ranks form, found once for all sizes; or ()."""
    if "dimensions" not in run.found:
        joined = run.fabric.joins_ranks and layout_of(run).n_nodes == 1
        run.found["dimensions"] = dimensions_of(run.fabric.peer_links()) if joined else ()
    dimensions: tuple[int, ...] = run.found["dimensions"]
    return dimensions


def _rings_within(fabric: Fabric) -> Int:
    """Return the rings that suit the links of one domain: where none joins two ranks, the ranks in order."""
    if not fabric.joins_ranks:
        return np.arange(fabric.n_ranks, dtype=np.int64)[None, :]
    return rings_for(fabric.peer_links())


def refuse_damaged(candidate: Algorithm, request: ScheduleRequest, topology: Topology) -> None:
    """Refuse messages between too many ranks of a damaged cluster before any is laid out, as no two need be alike.

    Raises
    ------
    UnsupportedError
        With what takes less.
    """
    few = request.n_ranks <= MOST_DAMAGED or request.spread.n_nodes == 1
    if topology.damage is None or candidate.relays is None or few:
        return
    messages = request.n_ranks * (request.n_ranks - 1)
    what = f"where something has failed, {messages:,} messages of {candidate.name} are too many to simulate one by one"
    spec = topology.cluster.spec if topology.cluster else None
    regular = spec is not None and not spec.hashes and spec.fabric != "dragonfly"
    lean = ", or for --algo direct, which goes by kinds of messages" * regular
    raise UnsupportedError(Fault(what, "ranks", f"ask for at most {MOST_DAMAGED} ranks{lean}"))


def built(candidate: Algorithm, request: ScheduleRequest, question: Request) -> Schedule:
    """Return the schedule of an algorithm; a chunk that nobody gave is not what is wrong with it."""
    messages = request.n_ranks * (request.n_ranks - 1)
    if candidate.growth == "pairs" and messages > MOST_TRANSFERS:
        what = f"{messages} messages are too many to simulate one by one"
        raise UnsupportedError(Fault(what, "ranks", f"ask for at most {math.isqrt(MOST_TRANSFERS)} ranks"))
    if request.n_ranks > MOST_IN_TABLES and request.spread.n_nodes > 1 and candidate.growth != "ranks":
        able = algorithms_for(request.op.name, several_nodes=True)
        lean = [entry.name for entry in able if entry.growth == "ranks"]
        what = (
            f"{request.op.name} by {candidate.name} has too many pieces on {request.n_ranks} ranks over several nodes"
        )
        others = f", or one of {', '.join(lean)}" * bool(lean)
        raise UnsupportedError(Fault(what, "ranks", f"ask for at most {MOST_IN_TABLES}{others}"))
    try:
        return candidate.build(request)
    except UnsupportedError as error:
        if question.chunk_bytes is not None:
            raise
        faults = [
            _not_of_the_chunk(fault, request, question) if fault.where == "chunk" else fault for fault in error.faults
        ]
        raise UnsupportedError(*faults) from None


def _not_of_the_chunk(fault: Fault, request: ScheduleRequest, question: Request) -> Fault:
    """Return the fault of too many chunks at what was given instead: variables of chunks, the matrix or the size."""
    given = [f"{name}={value}" for name, value in question.environment.items() if name in BYTES]
    if given and "auto" in question.algo:
        return Fault(f"{', '.join(given)}: {fault.what}", "environment", f"give more bytes: {fault.hint}")
    irregular = request.op.name == "all_to_all_v"
    hint = f"ask for less, or give the size of a chunk: {fault.hint}"
    return Fault(f"{request.size_bytes} bytes: {fault.what}", "matrix" if irregular else "size", hint)


def library_choice(
    request: ScheduleRequest, run: LoweredRun, question: Request, by_plugin: ByPlugin | None = None
) -> tuple[Algorithm, ScheduleRequest, str]:
    """Return the algorithm that the library would take, the request as it would split it, and the protocol.

    If the tuner of a network's plug-in makes the choice, the call is noted in *by_plugin*.
    """
    from collsim.library.choice import choose_with

    call, system, library = _call_of(request, run, question)
    choice = choose_with(call, system, library, question.environment, question.proto)
    if choice.instance and by_plugin is not None:
        by_plugin.setdefault(choice.instance, set()).add((call.op, call.n_ranks, call.size_bytes))
    return _carried_out(choice, request, run, question, is_amd=system.is_amd)


def library_options(
    request: ScheduleRequest, run: LoweredRun, question: Request
) -> list[tuple[Algorithm, ScheduleRequest, str]]:
    """Return all that the library could do, as of `library_choice`, which comes first."""
    from collsim.library.choice import options_with

    call, system, library = _call_of(request, run, question)
    choices = options_with(call, system, library, question.environment, question.proto)
    return [_carried_out(choice, request, run, question, is_amd=system.is_amd) for choice in choices]


def library_kernel(
    picked: Algorithm, request: ScheduleRequest, run: LoweredRun, question: Request
) -> tuple[Algorithm, ScheduleRequest, str]:
    """Return a kernel that only some libraries have, as the library of the question runs it, as of `library_choice`.

    Raises
    ------
    UnsupportedError
        It is a kernel of other libraries, or has no such kernel for these ranks and this type.
    """
    whose = " or ".join(picked.libraries)
    if question.library is None or question.library.family not in picked.libraries:
        hint = f"add --library {picked.libraries[0]}"
        raise UnsupportedError(Fault(f"{picked.name} is a kernel of {whose}", "algo", hint))
    from collsim.library.engines.kernels import engine_options
    from collsim.library.engines.symmetric import symmetric_options

    call, system, library = _call_of(request, run, question)
    options = (engine_options if library.is_engine else symmetric_options)(call, system, library)
    found = next((choice for choice in options if choice.algo == picked.name), None)
    if found is None:
        others = ", ".join(choice.algo for choice in options)
        what = f"{library.name} has no {picked.name} for such calls of {call.n_ranks} ranks"
        raise UnsupportedError(Fault(what, "algo", f"it has {others}" if others else "take auto"))
    return _carried_out(found, request, run, question, is_amd=system.is_amd)


def _call_of(request: ScheduleRequest, run: LoweredRun, question: Request) -> tuple[Call, System, Library]:
    """Return the call for the library, the system, and the library."""
    from collsim.library import Call

    sharp = False if no_sharp(run, question) else None
    system = _system(run, sharp=sharp)
    call = Call(
        request.op.name, request.n_ranks, request.size_bytes, question.dtype, question.redop, root=request.root,
        launch=question.launch, registered=bool(question.registered), symmetric=question.registered == SYMMETRIC,
        n_nodes=_equal_nodes(request),
    )  # fmt: skip
    assert question.library is not None
    return call, system, question.library


def _carried_out(
    choice: Choice, request: ScheduleRequest, run: LoweredRun, question: Request, *, is_amd: bool
) -> tuple[Algorithm, ScheduleRequest, str]:
    """Return the algorithm of a choice of the library, the request as it splits it, and the protocol."""
    messages = choice.point_to_point
    picked = algorithm(request.op.name, choice.algo)
    costs = run.profile.protocol(question.proto or choice.proto, picked.family_for(request.op.name))
    asked = replace(
        request,
        channels=question.channels or (messages.channels if messages else choice.channels),
        chunk_bytes=question.chunk_bytes or _chunk_bytes(choice, picked, request, run, cut_through=costs.cut_through),
        slots=max(choice.slots // choice.slots_per_chunk, 1),
        share_bytes=() if question.channels else choice.shares_bytes,
        peer_channels=messages.channels_per_peer if messages else choice.peer_channels,
        in_turn=costs.in_turn,
        tree_pattern="rail" if is_amd else request.tree_pattern,
        peer_step_bytes=messages.step_bytes if messages else None,
    )
    return picked, asked, choice.proto


def _chunk_bytes(
    choice: Choice, picked: Algorithm, request: ScheduleRequest, run: LoweredRun, *, cut_through: bool
) -> int:
    """Return the bytes that wait for each other on every hop, for a choice whose chunks may pass otherwise."""
    if picked.by_levels:
        return max(request.size_bytes, 1)
    over_nodes = request.spread.n_nodes > 1
    if choice.proto == "LL" and choice.point_to_point is None:
        # Lines carry flags: a ring need not wait from chunk to chunk, and a pipeline not even from pass to pass; over
        # nodes adapters send whole chunks, and what is passed on inside a node says `collsim.simulation.heralds`.
        whole = max(choice.shares_bytes, default=request.size_bytes)
        by_chunk = over_nodes and request.op.name in PASSED_ON
        least = LL_PASS_BYTES if cut_through and not by_chunk else choice.chunk_bytes
        return max(least, -(-whole // MOST_PASSES)) if picked.pipelined else whole
    cluster = run.topology.cluster
    if cluster is None or not over_nodes or not run.profile.network.families:
        return choice.chunk_bytes
    return choice.chunk_bytes * CHUNKS_TOGETHER.get((cluster.spec.network, picked.name, choice.proto), 1)


def turns_sharp_on(question: Request) -> bool:
    """Return True if the user wants the network to add; by default it only forwards."""
    from collsim.library import read_environment

    return read_environment(question.environment).number("NCCL_COLLNET_ENABLE", 0) == 1


def no_sharp(run: LoweredRun, question: Request) -> str:
    """Return why the network does not add although the user turned it on; empty if it does, or was not turned on."""
    layout = layout_of(run)
    if not turns_sharp_on(question) or layout.n_nodes == 1 or not layout.is_even:
        return ""
    ports = TreePorts.free(run.fabric)
    try:
        for local in range(len(layout.nodes[0])):
            plant(run.fabric, layout.rail(local), ports)
    except (UnsupportedError, NoRouteError) as error:
        return error.faults[0].what
    return ""


def _equal_nodes(request: ScheduleRequest) -> int:
    """Return the number of scale-up domains that the ranks fill.

    Raises
    ------
    UnsupportedError
        Some hold more ranks than others.
    """
    if not request.spread.is_even:
        what = "the library's choice on nodes with different numbers of ranks is not modelled"
        most = max(map(len, request.spread.nodes))
        full = request.n_ranks // most * most
        hint = f"take equally many GPUs of every node, such as {full} or {full + most} ranks, or name the algorithm"
        raise UnsupportedError(Fault(what, "ranks", hint))
    return request.spread.n_nodes


def _library_channels(op: Operation, run: LoweredRun, question: Request) -> int | None:
    """Return the channels of the library's rings on this machine; None where no library, or no such choice, is known.

    An algorithm that the user names runs on as many: on another number it would be no library's.
    """
    name = question.library.name if question.library else run.profile.library
    layout = layout_of(run)
    if not name or op.name not in RINGED or not layout.is_even or question.algo == ("auto",):
        return None
    from collsim.library.choice import ring_channels

    try:
        system = _system(run)
    except UnsupportedError:
        return None
    return ring_channels(name, system, op.name, run.fabric.n_ranks, layout.n_nodes)


def _default_channels(fabric: Fabric, rings: Int) -> int:
    """Return the default number of channels: two per ring on a mesh, else one per 20 GB/s of egress, in eights.

    Slow links change nothing: the library does not measure them.
    """
    if len(rings) > 1:
        return CHANNELS_PER_RING * len(rings)
    out = fabric.wiring.link_src == fabric.rank_node[0]
    egress_Bps = float(fabric.nominal_Bps[out].sum())
    return min(max(8 * math.ceil(egress_Bps / CHANNEL_GRAIN_BPS / 8), 2), MOST_CHANNELS)
