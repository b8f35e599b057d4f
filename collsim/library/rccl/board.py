"""RCCL on one board: channels, its cost model, and the algorithms that it tries before ring and tree.

Read from ROCm/rocm-systems projects/rccl (2.27 to 2.31) and ROCm/rccl (2.18 to 2.27). Its debug lines on eight MI355X
(2.28.3) confirm channels, cells and the change of protocol; the rest is read, not confirmed, and the choice says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from collsim.library.calls import LL, LL128, SIMPLE, Call, Candidate
from collsim.library.environment import Environment
from collsim.library.library import PROTOCOLS, Library
from collsim.library.nccl.channels import bounded, thread_bytes
from collsim.library.nccl.tuner import BY_OP, log2_floor
from collsim.library.rccl import across as rccl_across
from collsim.library.rccl.tables import BASE_US, MODELS, TuningModel, correction, model_across
from collsim.library.system import Graph, System

__all__ = ["THREADS", "Backend", "backend_of", "candidates", "channels_of", "doubts_of", "graph_of", "per_thread"]

KIB = 1024
MIB = 1024 * KIB
BOARD_MAX_CHANNELS = 128
"""MAXCHANNELS of RCCL."""
THREADS = 256
"""NCCL_MAX_NTHREADS of RCCL; threads are not halved and none are added (src/include/device.h)."""

CHANNELS = {"gfx942": {2: 32, 4: 24, 8: 56}, "gfx950": {2: 32, 4: 24, 8: 56}, "gfx90a": {}}
"""Per architecture and ranks (src/graph/rome_models.cc, connect.cc)."""
PER_NEIGHBOUR = 8
"""Channels per other rank where no table gives the number: eight MI300X have 56 = 8 * 7."""
GFX950_COPIES, COPIES_SINCE = 112, (2, 26)
"""Eight gfx950, except all-reduce, and the first RCCL that has them."""
GFX90A_CHANNELS = 32
WARP_SPEED_BYTES, WARP_SPEED_FACTOR, WARP_SPEED_SINCE = 64 * MIB, 4, (2, 28)
"""From this size and this RCCL on an all-reduce of eight gfx950 runs four channels in each CTA."""
SIMPLE_BYTES = {"gfx950": 128}
"""Bytes per thread with Simple, inferred from the channels in debug lines of eight MI355X."""
SEARCHED_COPIES = 4
"""Channels per ring where no template matches the wiring: NCCL's search doubles the rings that it finds, and the
communicator doubles them again (src/graph/search.cc, connect.cc). No log of such a board is known."""
LL_SCALE_ROOTED = 1.65
LL128_SINCE = {"gfx942": (2, 22), "gfx950": (2, 18), "gfx90a": (2, 18)}
LL_UP_TO = {
    ("gfx950", "all_gather"): 88448,
    ("gfx950", "reduce_scatter"): MIB,
    ("gfx942", "reduce_scatter"): 352128,
}
"""Bytes per rank up to which LL is taken on one board whatever the cost model says."""
LL_UP_TO_SINCE = (2, 27)


@dataclass(frozen=True, slots=True)
class Backend:
    """A way that is tried before ring and tree.

    Attributes
    ----------
    name : str
    algo : str
        The algorithm of collsim that comes closest.
    proto : int
    channels : int
    why : str
    peer_channels : int or None
        How many of them serve one peer; None: all.
    """

    name: str
    algo: str
    proto: int
    channels: int
    why: str
    peer_channels: int | None = None


class BoardPlan(NamedTuple):
    """A schedule of MSCCL: up to which size it runs, of how many elements the buffer must be a multiple, and on what.

    For every peer each channel has a block of threads, which sends and then receives, unless *peer_blocks* says
    how many there are.
    """

    most_bytes: int
    multiple: int
    proto: int
    channels: int
    algo: str
    peer_blocks: int | None = None


MSCCL = {
    "all_reduce": (
        BoardPlan(64 * KIB, 256, LL, 4, "all_pairs"),
        BoardPlan(512 * KIB - 1, 512, LL, 8, "all_pairs"),
        BoardPlan(16 * MIB, 512, SIMPLE, 8, "all_pairs"),
    ),
    "all_to_all": (
        BoardPlan(9 * KIB, 8, LL, 1, "direct"),
        BoardPlan(190 * KIB, 16, LL, 2, "direct"),
        BoardPlan(512 * KIB, 32, LL, 4, "direct"),
        BoardPlan(7 * MIB, 32, SIMPLE, 32, "direct", peer_blocks=8),
        BoardPlan(43 * MIB, 64, SIMPLE, 8, "direct"),
    ),
}
"""The MSCCL schedules of eight MI300X (tools/msccl-algorithms, RCCL up to 2.27).

The multiple is nchunksperloop, a chunk for each rank and channel; that of the LL schedules on two, four and eight
channels is inferred from the others. From 512 KiB to 7 MiB an all-to-all has four blocks to send to a peer and four to
receive from it, each on a channel of its own.
"""
MSCCL_UNTIL = (2, 27)
MSCCL_OPS = {"gfx942": tuple(MSCCL), "gfx950": ("all_reduce",)}
"""Operations that MSCCL runs by architecture. The release notes of RCCL 2.27.7 for ROCm 7.1.1 name it on MI350X and
MI355X for all-reduce on one node with LL below 512 KiB; a public log of 2.27.7 on such a board rises from 256 KiB to
2 MiB by 2 %, as its schedules do and rings do not. Of the other operations there nothing is known."""
MSCCLPP_SINCE = (2, 20)
MSCCLPP_BYTES, MSCCLPP_MULTIPLE, MSCCLPP_CHANNELS = MIB, 32, 4
"""All-reduce of captured graphs on eight MI300X: up to which size (src/init.cc, RCCL_MSCCLPP_THRESHOLD), of how many
bytes a multiple, and blocks for each peer (28 for seven; microsoft/mscclpp apps/nccl). A public log of RCCL 2.22.3
falls from 16 to 6 us at 32 bytes where its graphs are replayed, and not without them."""
DDA_SINCE = (2, 29)
DDA_BYTES = {"gfx942": 8 * MIB, "gfx950": 128 * MIB}
DDA_ALL_TO_ALL_BYTES = 4 * MIB
DDA_RANKS = 8
DIRECT_SINCE = (2, 28)
DIRECT_GATHER_BYTES = {"gfx942": 4 * MIB, "gfx950": 8 * MIB}
LOGGED = (2, 28)
"""Version of the debug lines of eight MI355X that the choice was compared with."""


def _model(call: Call, system: System, library: Library) -> TuningModel:
    """Return the tables for the board; of MI250 those of templates on one alone, for over several none is known."""
    if system.architecture == "gfx90a":
        return MODELS[{8: 3, 16: 4}.get(call.n_ranks, 0) if call.n_nodes == 1 else 0]
    number = {"gfx942": 5, "gfx950": 6}.get(system.architecture, 0)
    return model_across(number, library.version) if call.n_nodes > 1 else MODELS[number]


def channels_of(call: Call, system: System, library: Library, environment: Environment) -> int:
    """Return the channels of a communicator for this call."""
    if call.n_nodes > 1:
        return bounded(rccl_across.channels_of(call, system, library), environment, rccl_across.ACROSS_MAX_CHANNELS)
    if system.architecture == "gfx90a":
        channels = GFX90A_CHANNELS
    elif not system.matches_template:
        rings = max(min(sum(row[: call.n_ranks]) for row in system.links[: call.n_ranks]), 1)
        return bounded(SEARCHED_COPIES * rings, environment, BOARD_MAX_CHANNELS)
    else:
        table = CHANNELS[system.architecture]
        channels = table.get(call.n_ranks, min(PER_NEIGHBOUR * (call.n_ranks - 1), table[8]))
    if system.architecture == "gfx950" and call.n_ranks == 8:
        if call.op != "all_reduce" and library.version >= COPIES_SINCE:
            channels = GFX950_COPIES
        elif call.op == "all_reduce" and library.version >= WARP_SPEED_SINCE and _warp_speed(call, environment):
            return WARP_SPEED_FACTOR * bounded(channels, environment, BOARD_MAX_CHANNELS)
    return bounded(channels, environment, BOARD_MAX_CHANNELS)


def _warp_speed(call: Call, environment: Environment) -> bool:
    return call.size_bytes >= environment.number("RCCL_WARP_SPEED_AR_THRESHOLD", WARP_SPEED_BYTES)


def graph_of(call: Call, system: System, library: Library) -> Graph:
    """Return the rings: half of the channels, which together fill the links of a GPU."""
    known = dict(system.graphs)
    if "ring" in known:
        return known["ring"]
    channels = max(channels_of(call, system, library, Environment()) // 2, 1)
    if call.n_nodes > 1:
        return rccl_across.graph_of(call, system, channels)
    if not system.matches_template:
        return Graph(channels, 2 * system.link_GBps / SEARCHED_COPIES, same_order=False)
    return Graph(channels, system.total_GBps(call.n_ranks) / channels, same_order=False)


def per_thread(system: System, algo: str, proto: int, n_ranks: int) -> int:
    """Return the bytes per thread below which a channel is given up."""
    own = SIMPLE_BYTES.get(system.architecture) if proto == SIMPLE else None
    return own or thread_bytes(algo, proto, n_ranks)


def candidates(call: Call, system: System, library: Library, environment: Environment) -> tuple[Candidate, ...]:
    """Return the algorithms and protocols for the call, fastest first."""
    graph = graph_of(call, system, library)
    forced = _forced_ll(call, system, library, environment)
    found: list[Candidate] = []
    for algo in ("tree", "ring"):
        if algo not in BY_OP[call.op] or not environment.permits("NCCL_ALGO", call.op, algo):
            continue
        for proto in range(3):
            if not _usable(call, system, library, environment, algo=algo, proto=proto) or (
                forced and proto != forced[0]
            ):
                continue
            bandwidth = _GBps(call, system, library, graph, (algo, proto))
            if bandwidth > 0:
                latency = _us(call, system, library, environment, (algo, proto))
                time_us = latency + call.size_bytes / (1000 * bandwidth)
                found.append(Candidate(algo, PROTOCOLS[proto], latency * 1e-6, bandwidth * 1e9, time_us * 1e-6))
    return tuple(sorted(found, key=lambda candidate: candidate.predicted_s))


def _forced_ll(call: Call, system: System, library: Library, environment: Environment) -> tuple[int, ...]:
    """Return (LL,) where a table of sizes decides for it; a user's NCCL_PROTO is left alone."""
    if call.n_nodes > 1:
        return ()
    limit = LL_UP_TO.get((system.architecture, call.op), 0)
    if library.version < LL_UP_TO_SINCE or environment.names("NCCL_PROTO", call.op) is not None:
        return ()
    return (LL,) if call.size_bytes // call.n_ranks <= limit else ()


def _usable(call: Call, system: System, library: Library, environment: Environment, *, algo: str, proto: int) -> bool:
    if not environment.permits("NCCL_PROTO", call.op, PROTOCOLS[proto]):
        return False
    if proto == LL128:
        since = LL128_SINCE if call.n_nodes == 1 else rccl_across.LL128_SINCE
        return library.version >= since[system.architecture]
    slow_tree = algo == "tree" and proto == SIMPLE and system.architecture in ("gfx942", "gfx950")
    return not (slow_tree and call.n_nodes == 1)


def _GBps(call: Call, system: System, library: Library, graph: Graph, way: tuple[str, int]) -> float:
    """Return the bandwidth of the cost model for an algorithm and a protocol, corrected for the size."""
    model, (algo, proto) = _model(call, system, library), way
    column = call.n_nodes > 2
    bus = model.bus_GBps or graph.channels * graph.intra_GBps
    bus *= (model.tree_ratio if algo == "tree" else model.ring_ratio)[column][proto]
    if proto == LL and call.op in ("broadcast", "reduce") and system.architecture in ("gfx942", "gfx950"):
        bus *= LL_SCALE_ROOTED
    if algo == "ring":
        n = call.n_ranks
        if call.n_nodes > 1:
            bus *= _corrected(model.ring[proto], call)
        return bus * n / {"all_reduce": 2 * (n - 1), "all_gather": n - 1, "reduce_scatter": n - 1}.get(call.op, n)
    return bus / 2 * _corrected(model.tree[proto], call)


def _corrected(vector: str, call: Call) -> float:
    """Return the factor of a correction vector for the size of the call."""
    factors = correction(vector)
    return factors[min(log2_floor(call.size_bytes // 64), len(factors) - 1)]


def _us(call: Call, system: System, library: Library, environment: Environment, way: tuple[str, int]) -> float:
    """Return the latency of the cost model."""
    model, n, (algo, proto) = _model(call, system, library), call.n_ranks, way
    if call.n_nodes > 1:
        return BASE_US[proto] + rccl_across.hops_us(call, system, environment, model, way)
    if algo == "tree":
        return BASE_US[proto] + 2 * (n - 1) * model.tree_us[proto]
    if call.op in ("broadcast", "reduce"):
        return BASE_US[proto] + n * (model.tree_us if proto == SIMPLE else model.ring_us)[proto]
    steps = 2 * (n - 1) if call.op == "all_reduce" else n - 1
    return BASE_US[proto] + steps * model.ring_us[proto]


def backend_of(call: Call, system: System, library: Library, environment: Environment) -> Backend | None:
    """Return the backend that runs before ring and tree are looked at, if any; NCCL_ALGO and NCCL_PROTO rule it out."""
    chosen = environment.names("NCCL_ALGO", call.op) or environment.names("NCCL_PROTO", call.op)
    if system.architecture not in ("gfx942", "gfx950") or chosen or not (call.n_nodes > 1 or system.matches_template):
        return None
    if call.n_nodes > 1:
        across = rccl_across.backend_of(call, system, library)
        return Backend(*across) if across else None
    if library.version <= MSCCL_UNTIL and call.n_ranks == 8 and call.op in MSCCL_OPS[system.architecture]:
        newer = system.architecture == "gfx942" and library.version >= MSCCLPP_SINCE
        return (_mscclpp(call, environment) if newer else None) or _msccl(call, environment)
    if library.version >= DDA_SINCE and call.n_ranks >= DDA_RANKS:
        found = _dda(call, system)
        if found:
            return found
    if library.version >= DIRECT_SINCE and call.op == "all_gather" and call.n_ranks % 8 == 0:
        limit = DIRECT_GATHER_BYTES[system.architecture]
        if call.size_bytes <= limit:
            why = f"RCCL gathers up to {limit // MIB} MiB by sending to all peers"
            return Backend("direct", "all_pairs", SIMPLE, call.n_ranks, why)
    return None


def _mscclpp(call: Call, environment: Environment) -> Backend | None:
    """Return MSCCL++, which RCCL is built with by default, if it runs a call on eight MI300X."""
    if environment.number("RCCL_MSCCLPP_ENABLE", 1) == 0 or call.launch != "graph":
        return None
    if call.op != "all_reduce" or call.redop != "sum":
        return None
    if call.size_bytes > MSCCLPP_BYTES or call.size_bytes % MSCCLPP_MULTIPLE:
        return None
    why = f"MSCCL++ runs all-reduces of up to {MSCCLPP_BYTES // MIB} MiB in captured graphs"
    return Backend("mscclpp", "all_pairs", LL, MSCCLPP_CHANNELS, why)


def _msccl(call: Call, environment: Environment) -> Backend | None:
    if environment.number("RCCL_MSCCL_ENABLE", 1) == 0:
        return None
    if call.op == "all_reduce" and call.redop != "sum":
        return None
    elements = call.buffer_bytes // call.element_bytes
    for plan in MSCCL.get(call.op, ()):
        if call.size_bytes <= plan.most_bytes and elements % plan.multiple == 0:
            why = f"an MSCCL schedule covers sizes up to {plan.most_bytes} bytes"
            return Backend("msccl", plan.algo, plan.proto, plan.channels, why, plan.peer_blocks)
    return None


def _dda(call: Call, system: System) -> Backend | None:
    limit = DDA_ALL_TO_ALL_BYTES if call.op == "all_to_all" else DDA_BYTES[system.architecture]
    if call.op not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all") or call.size_bytes > limit:
        return None
    algo = "direct" if call.op == "all_to_all" else "all_pairs"
    why = f"RCCL accesses the memory of all peers directly up to {limit // MIB} MiB"
    return Backend("dda", algo, SIMPLE, call.n_ranks, why)


def doubts_of(call: Call, system: System, library: Library, backend: Backend | None) -> tuple[str, ...]:
    """Return the doubts about a choice, one sentence for each part of it that no log confirms."""
    doubts: list[str] = []
    confirmed = system.architecture == "gfx950" and library.version == LOGGED and call.n_ranks == 8
    if not (confirmed and call.op == "all_reduce"):
        doubts.append("RCCL's choice is read from its source; no debug line of this case was compared")
    one_board = call.n_nodes == 1 and system.architecture in ("gfx942", "gfx950")
    if one_board and call.n_ranks not in CHANNELS[system.architecture]:
        doubts.append(f"the channels of {call.n_ranks} ranks are extrapolated from those of 4 and 8")
    if not system.matches_template and system.architecture != "gfx90a":
        doubts.append("the channels of a board that no template of RCCL matches are those of NCCL's search")
    if system.architecture == "gfx90a":
        doubts.append("the channels of MI200 boards depend on the template that RCCL finds for the wiring")
    if backend and backend.name == "dda":
        doubts.append("the size up to which DDA runs in one shot and its number of CTAs are not known")
    if backend and backend.name == "mscclpp":
        doubts.append("what MSCCL++ costs in a graph is assumed: one log shows that it runs, and none was fitted")
    if backend and backend.name == "msccl" and system.architecture == "gfx950":
        doubts.append("that MSCCL runs on this GPU is told by release notes and one log, its sizes are those of MI300X")
    if backend and backend.name == "msccl" and call.op == "all_to_all":
        doubts.append("whether MSCCL's limits count the own block is not known")
    return tuple(doubts)
