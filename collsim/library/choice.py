"""The choice of a library for a call: algorithm (ring or tree, ...), protocol, channels, chunks, parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from collsim.core.errors import CollsimError, Fault, InputError
from collsim.core.units import format_count
from collsim.library.calls import LL, MESSAGE_OPS, SIMPLE, Call, Candidate, Choice
from collsim.library.engines.kernels import engine_choice, engine_options
from collsim.library.engines.symmetric import symmetric_choice
from collsim.library.environment import ALGORITHMS, OFI_TUNER, Environment, read_environment, with_protocol, without
from collsim.library.library import DEFAULT_LIBRARY, PROTOCOLS, Library, load_library
from collsim.library.nccl.channels import (
    communicator_channels,
    deal,
    launch,
    max_threads,
    nvls_channels,
    thread_bytes,
)
from collsim.library.nccl.cluster_graphs import ACROSS_DOUBT, merged
from collsim.library.nccl.graphs import GIVEN_UP_GBPS, nccl_graphs
from collsim.library.nccl.plugin_tuner import TUNER_SINCE, taken_by_plugin, with_plugin
from collsim.library.nccl.point_to_point import channels_used, point_to_point, protocol_of
from collsim.library.nccl.protocols import AMD_LINES, NVIDIA_LINES, SLOTS, Lines, chunk_of, efficiency
from collsim.library.nccl.registration import registered_channels, registers_rings, zero_copy
from collsim.library.nccl.tuner import Setting, candidates
from collsim.library.nccl.versions import nccl_constants
from collsim.library.system import Graph, System

__all__ = ["choose", "choose_with", "options_with"]

P2P_THREADS = 640
LARGE_BYTES = 2**30
"""Enough for all channels of a communicator."""
SIMPLE_NAME = PROTOCOLS[-1]
ACROSS_DOMAINS = "channels per peer across domains were compared with no log"
LIBRARY_WORDS = {"nvls_tree": "NVLSTREE", "collnet_direct": "COLLNETDIRECT", "collnet_chain": "COLLNETCHAIN"}
"""Names of algorithms in debug lines, where they are not the name in capitals."""


DEALT_SINCE = (2, 22)
"""First version whose dealing of bytes to channels is known."""
MERGED_SINCE = (2, 20)
"""Ports of one card are one adapter: v2.20.3 has it (src/transport/net_ib.cc); 2.19 was not read."""
GAVE_UP = (
    f"; NCCL finds no ring at a rate that it tries, and reckons with {GIVEN_UP_GBPS:g} GB/s: "
    "estimates that rank, no times"
)
"""What to make of its figures then; it prints and compares them as they are (NCCL src/graph/search.cc, tuning.cc)."""
RELAYED = ("all_to_all", "gather", "scatter")
"""Operations whose messages may go over relays. The others' schedules have none, though NCCL's do."""


class NothingLeftError(InputError):
    """The variables leave no algorithm."""


@dataclass(frozen=True, slots=True)
class _Pick:
    """An algorithm with what it runs on; the rest of the choice follows from it."""

    algo: str
    proto: int
    graph: Graph
    communicator: int
    channels: int
    threads: int
    lines: Lines
    candidates: tuple[Candidate, ...]
    why: str
    doubts: tuple[str, ...]
    backend: str = ""
    instance: str = ""

    @property
    def word(self) -> str:
        """The library's own word."""
        return self.backend.upper() or LIBRARY_WORDS.get(self.algo, self.algo.upper())


def choose(
    call: Call, system: System, library: Library | str = DEFAULT_LIBRARY, environment: Environment | None = None
) -> Choice:
    """Return the choice of the library for *call*: algorithm, protocol, channels, chunks.

    Raises
    ------
    InputError
        The library does not run on this system, or the environment leaves nothing to choose from.
    UnsupportedError
        A case that is not modelled, such as the search over several domains.

    Examples
    --------
    >>> h100 = System("hopper", True, 20.6, links_per_gpu=18, nvls=True)
    >>> choice = choose(Call("all_reduce", 8, 2**20), h100, "nccl-2.30")
    >>> choice.algo, choice.proto, choice.channels
    ('ring', 'LL', 24)
    """
    library, environment = load_library(library), environment or Environment()
    if library.is_engine:
        beneath = library.beneath(is_amd=system.is_amd)
        return engine_choice(call, system, library) or _told_of(
            choose(call, system, beneath, environment), library, beneath
        )
    if system.is_amd != (library.family == "rccl"):
        other = "rccl" if system.is_amd else "nccl"
        what = f"{library.name} does not run on {system.architecture}"
        raise InputError(Fault(what, "library", f"take a version of {other}"))
    if system.links and call.ranks_per_node > len(system.links):
        what = f"{call.ranks_per_node} ranks on a domain of {format_count(len(system.links), 'GPU')}"
        raise InputError(Fault(what, "ranks", f"at most {len(system.links)} in each domain"))
    if not system.is_amd and library.version >= MERGED_SINCE and environment.number("NCCL_IB_MERGE_NICS", 1):
        system = merged(system)
    if not system.is_amd:
        environment = with_plugin(environment, system.instance, library.version)
    if call.op in MESSAGE_OPS:
        return _messages(call, system, library, environment)
    own = None if system.is_amd else symmetric_choice(call, system, library)
    if own is not None and not (environment.names("NCCL_ALGO", call.op) or environment.names("NCCL_PROTO", call.op)):
        return own
    if system.is_amd:
        return _finish(call, library, environment, _pick_rccl(call, system, library, environment))
    return _finish(call, library, environment, _pick_nccl(call, system, library, environment))


def _told_of(choice: Choice, engine: Library, beneath: Library) -> Choice:
    """Return what the library beneath an engine chooses, for which the engine has no kernel."""
    return replace(choice, why=f"{engine.name} calls {beneath.name} here: {choice.why}")


def choose_with(
    call: Call, system: System, library: Library, variables: Mapping[str, str], proto: str | None
) -> Choice:
    """Return the choice of the library for *call* if it may take only protocol *proto*; None: any.

    Raises
    ------
    InputError
        As of `choose`, or the library has no kernel for the call with that protocol.
    """
    if proto is None:
        return choose(call, system, library, read_environment(variables))
    if library.is_engine:
        own = engine_choice(call, system, library)
        if own is not None and own.proto == proto:
            return own
        library = library.beneath(is_amd=system.is_amd)
    if (found := _chosen(call, system, library, variables, proto)) is not None:
        return found
    others = [name for name in PROTOCOLS if _chosen(call, system, library, variables, name) is not None]
    what = f"{library.name} does not run {call.op} with {proto} here"
    raise InputError(Fault(what, "proto", f"it has {' and '.join(others)}" if others else "leave it out"))


def _chosen(call: Call, system: System, library: Library, variables: Mapping[str, str], proto: str) -> Choice | None:
    """Return the choice of the library with one protocol; None if it has no kernel for that."""
    try:
        found = choose(call, system, library, read_environment(with_protocol(variables, proto)))
    except NothingLeftError:
        return None
    by_messages = found.point_to_point is not None  # these take LL or Simple by their size (NCCL src/enqueue.cc)
    return None if by_messages and proto == "LL128" else found


def options_with(
    call: Call, system: System, library: Library, variables: Mapping[str, str], proto: str | None
) -> tuple[Choice, ...]:
    """Return the options of the library for *call*: its own choice first, as of `choose_with`, then one for each
    algorithm and protocol that it has here, as if variables left only those.

    Raises InputError as `choose_with` does.
    """
    own = choose_with(call, system, library, variables, proto)
    if library.is_engine:
        kernels = engine_options(call, system, library) if proto in (None, SIMPLE_NAME) else ()
        beneath = library.beneath(is_amd=system.is_amd)
        return (own, *kernels, *options_with(call, system, beneath, variables, proto))
    protocols = PROTOCOLS if proto is None else (proto,)
    if call.op in MESSAGE_OPS:
        others = [_chosen(call, system, library, variables, name) for name in protocols]
        return (own, *(choice for choice in others if choice is not None))
    kept = without(variables, "NCCL_ALGO", "NCCL_PROTO")
    names = {"NCCL_ALGO": ",".join(ALGORITHMS), "NCCL_PROTO": ",".join(protocols)}
    rows = choose(call, system, library, read_environment({**kept, **names})).candidates
    alone = ({**kept, "NCCL_ALGO": row.algo, "NCCL_PROTO": row.proto} for row in rows)
    return (own, *(choose(call, system, library, read_environment(names)) for names in alone))


@cache
def ring_channels(library: str, system: System, op: str, n_ranks: int, n_nodes: int) -> int | None:
    """Return the channels of a communicator that the *library* uses for rings of a large *op*; None if it has none
    on this system.

    Examples
    --------
    >>> ring_channels("nccl-2.28", System("ampere", True, 20.0, links_per_gpu=12), "all_reduce", 8, 1)
    24
    """
    call = Call(op, n_ranks, LARGE_BYTES, n_nodes=n_nodes)
    try:
        return choose(call, system, library, read_environment({"NCCL_ALGO": "Ring"})).communicator_channels
    except CollsimError:
        return None


def _pick_nccl(call: Call, system: System, library: Library, environment: Environment) -> _Pick:
    graphs = nccl_graphs(call, system)
    ring = graphs["ring"]
    communicator = communicator_channels(call, system, ring, environment)
    setting = Setting(call, system, nccl_constants(library.version), environment, graphs, library.version)
    rows = _non_empty(candidates(setting, communicator), call, environment)
    why = _why(rows, call, environment) + GAVE_UP * (ring.intra_GBps == GIVEN_UP_GBPS)
    instance = system.instance if library.version >= TUNER_SINCE and environment.number(OFI_TUNER, 1) else ""
    own = taken_by_plugin(call, instance, rows) if instance else None
    if own is not None:
        why = f"{own.algo} with {own.proto} is what the tuner of AWS's plug-in takes on {instance}"
        rows = (own, *(row for row in rows if row is not own))
    algo, proto = rows[0].algo, PROTOCOLS.index(rows[0].proto)
    if algo in ("nvls", "nvls_tree"):
        communicator = nvls_channels(call, system, environment)
    threads = max_threads(algo, proto, ring, environment)
    per_thread = thread_bytes(algo, proto, call.n_ranks)
    used = launch(call.size_bytes, algo, proto, channels=communicator, threads=threads, per_thread=per_thread)
    channels = used.channels
    if proto == SIMPLE and algo == "ring" and registers_rings(call, system, library, environment):
        channels = registered_channels(channels)
    return _Pick(
        algo, proto, graphs[algo], communicator, channels, used.threads, NVIDIA_LINES, rows,
        why, _nccl_doubts(call, system, library, algo), instance=instance if own is not None else "",
    )  # fmt: skip


def _nccl_doubts(call: Call, system: System, library: Library, algo: str) -> tuple[str, ...]:
    """Return the doubts about a choice, one sentence for each part of it that no log or source confirms."""
    doubts = list(system.doubts)
    if not system.switched and not dict(system.graphs):
        doubts.append("without a switch the number of rings is an upper bound from the links of each GPU")
    if library.version < DEALT_SINCE:
        doubts.append("bytes are assumed to be dealt evenly to the channels in this version")
    if call.n_nodes > 1 and "ring" not in dict(system.graphs):
        doubts.append(ACROSS_DOUBT)
    if algo == "nvls" and call.op != "all_reduce" and call.registered:
        doubts.append("registered NVLS gathers and scatters use fewer channels than said here")
    return tuple(doubts)


def _pick_rccl(call: Call, system: System, library: Library, environment: Environment) -> _Pick:
    from collsim.library.rccl import across as rccl_across
    from collsim.library.rccl import board as rccl

    graph = rccl.graph_of(call, system, library)
    communicator = rccl.channels_of(call, system, library, environment)
    rows = _non_empty(rccl.candidates(call, system, library, environment), call, environment)
    backend = rccl.backend_of(call, system, library, environment)
    doubts = (*system.doubts, *rccl.doubts_of(call, system, library, backend))
    if backend:
        return _Pick(
            backend.algo, backend.proto, graph, backend.channels, backend.channels, rccl.THREADS, AMD_LINES, (),
            backend.why, doubts, backend.name,
        )  # fmt: skip
    if call.n_nodes > 1:
        rows = rccl_across.by_size(rows, call, system, library, environment)
    algo, proto = rows[0].algo, PROTOCOLS.index(rows[0].proto)
    per_thread = rccl.per_thread(system, algo, proto, call.n_ranks)
    channels = max(min(communicator, call.size_bytes // (rccl.THREADS * per_thread)), 1)
    if call.n_nodes > 1:
        channels = rccl_across.channels_by_size(call, system, library) or channels
        communicator = max(communicator, channels)
    return _Pick(
        algo, proto, graph, communicator, channels, rccl.THREADS, AMD_LINES, rows,
        _why(rows, call, environment), doubts,
    )  # fmt: skip


def _non_empty(rows: tuple[Candidate, ...], call: Call, environment: Environment) -> tuple[Candidate, ...]:
    """Refuse an environment that leaves nothing, as the library does."""
    if rows:
        return rows
    left = [
        f"{variable}={','.join(sorted(names))}" if names else f"{variable}, which excludes every name,"
        for variable in ("NCCL_ALGO", "NCCL_PROTO")
        if (names := environment.names(variable, call.op)) is not None
    ]
    what = f"{' and '.join(left) or 'this system'} leaves no algorithm for {call.op}"
    raise NothingLeftError(Fault(what, "environment", "allow ring with Simple, which every operation has"))


def _why(rows: tuple[Candidate, ...], call: Call, environment: Environment) -> str:
    """Say in one sentence why the first row was taken."""
    best = rows[0]
    named = [name for name in ("NCCL_ALGO", "NCCL_PROTO") if environment.names(name, call.op) is not None]
    limits = f" of what {' and '.join(named)} leaves" if named else ""
    text = f"{best.algo} with {best.proto} is the cheapest{limits}: {best.predicted_s * 1e6:.1f} us in the cost model"
    if len(rows) == 1:
        return f"{text}, the only candidate"
    second = rows[1]
    return f"{text}, before {second.algo} with {second.proto} at {second.predicted_s * 1e6:.1f} us"


def _finish(call: Call, library: Library, environment: Environment, pick: _Pick) -> Choice:
    """Deal out the bytes, cut the chunks."""
    constants = nccl_constants(library.version)
    from_backend = not pick.candidates
    cell = 0 if from_backend or pick.algo.startswith("collnet") else constants.cell_bytes
    shares = deal(call, pick.proto, pick.channels, pick.communicator, cell, rounded=constants.round_traffic)
    chunk = chunk_of(call, pick.algo, pick.proto, max(shares), lines=pick.lines, environment=environment)
    one_domain_tree = pick.algo == "tree" and call.n_nodes == 1
    over_nodes = "nvls_sharp" if pick.algo == "nvls" and call.n_nodes > 1 else pick.algo
    return Choice(
        algo="chain" if one_domain_tree else over_nodes,
        library_algo=pick.word,
        proto=PROTOCOLS[pick.proto],
        channels=len(shares),
        communicator_channels=pick.communicator,
        search_channels=pick.graph.channels,
        channel_GBps=pick.graph.intra_GBps,
        shares_bytes=shares,
        threads=pick.threads,
        chunk_bytes=chunk.payload_bytes,
        slices=chunk.slices,
        slots=SLOTS,
        slots_per_chunk=chunk.slots,
        efficiency=efficiency(pick.proto, pick.lines),
        zero_copy=zero_copy(call, environment),
        point_to_point=None,
        predicted_s=pick.candidates[0].predicted_s if pick.candidates else None,
        candidates=pick.candidates,
        why=pick.why,
        doubts=pick.doubts,
        instance=pick.instance,
    )


def _relays(call: Call, system: System, environment: Environment) -> bool:
    """Return True if messages go over the GPU on the rail of their target (PXN; NCCL src/graph/paths.cc)."""
    off = environment.number("NCCL_PXN_DISABLE", 0) != 0 or environment.number("NCCL_P2P_PXN_LEVEL", 2) == 0
    if call.op not in RELAYED or call.n_nodes == 1 or call.ranks_per_node == 1 or off:
        return False
    if system.is_amd:
        from collsim.library.rccl import across as rccl_across

        return rccl_across.relays(call, system)
    return system.switched


def _messages(call: Call, system: System, library: Library, environment: Environment) -> Choice:
    """Return the choice for grouped sends and receives."""
    backend, doubts, threads, step_bytes = None, system.doubts, P2P_THREADS, None
    if system.is_amd:
        from collsim.library.rccl import across as rccl_across
        from collsim.library.rccl import board as rccl

        threads, step_bytes = rccl.THREADS, rccl_across.p2p_step_bytes(call, system)
        graph = rccl.graph_of(call, system, library)
        communicator = rccl.channels_of(call, system, library, environment)
        backend = rccl.backend_of(call, system, library, environment)
        doubts += rccl.doubts_of(call, system, library, backend)
    else:
        graph = nccl_graphs(call, system)["ring"]
        communicator = communicator_channels(call, system, graph, environment)
        doubts += (ACROSS_DOMAINS,) if call.n_nodes > 1 else ()
    lines = AMD_LINES if system.is_amd else NVIDIA_LINES
    shape = point_to_point(call, system, library, environment, communicator, net_step_bytes=step_bytes)
    proto = backend.proto if backend else protocol_of(call, shape.parts, environment)
    ll_chunk = chunk_of(call, "ring", LL, 0, lines=lines, environment=environment).payload_bytes
    given_chunk = environment.number("NCCL_CHUNK_SIZE", 0)
    parts = f"{shape.parts} part{'s' * (shape.parts > 1)} on {shape.channels} channels"
    why = backend.why if backend else f"a message of {call.message_bytes} bytes is cut into {parts}"
    return Choice(
        algo=backend.algo if backend else "nccl_pxn" if _relays(call, system, environment) else "nccl_p2p",
        library_algo=backend.name.upper() if backend else "SENDRECV",
        proto=PROTOCOLS[proto],
        channels=backend.channels if backend else channels_used(call, shape),
        communicator_channels=communicator,
        search_channels=graph.channels,
        channel_GBps=graph.intra_GBps,
        shares_bytes=(),
        threads=threads,
        chunk_bytes=given_chunk or (ll_chunk if proto == LL else shape.step_bytes),
        slices=1,
        slots=SLOTS,
        slots_per_chunk=1,
        efficiency=efficiency(proto, lines),
        zero_copy=zero_copy(call, environment),
        point_to_point=None if backend else shape,
        predicted_s=None,
        candidates=(),
        why=why,
        doubts=doubts,
        peer_channels=backend.peer_channels if backend else None,
    )
