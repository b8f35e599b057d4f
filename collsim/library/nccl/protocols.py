"""Buffers, chunks and slices of the protocols (NCCL src/init.cc, src/include/collectives.h, src/enqueue.cc)."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.library.calls import LL, LL128, SIMPLE, Call
from collsim.library.environment import Environment
from collsim.library.nccl.tuner import log2_floor

__all__ = ["AMD_LINES", "NVIDIA_LINES", "SLOTS", "Chunk", "Lines", "chunk_of", "efficiency"]

KIB = 1024
SLOTS = 8
"""NCCL_STEPS: slots of a connection."""
SIMPLE_BUFFER = 4 * KIB * KIB
RING_CHUNK_SLOTS, RING_SLICE_SLOTS = 4, 2
"""Simple rings of all-reduce, all-gather and reduce-scatter; broadcast and reduce take one slot."""
NVLS_CHUNK = 128 * KIB
NVLS_STEPS = ((64, 64 * KIB), (8, 32 * KIB), (2, 16 * KIB))
"""(rounds, chunk): with fewer rounds of the chunk so far, the chunk shrinks to this."""
NVLS_TREE_STEPS = ((32, 256 * KIB), (16, 128 * KIB), (4, 64 * KIB), (1, 32 * KIB))
NVLS_TREE_CAP_NODES, NVLS_TREE_CAP = 4, 64 * KIB
COLLNET = ("collnet_direct", "collnet_chain")
COLLNET_CHAIN_CHUNK = 256 * KIB
COLLNET_STEPS = ((64, 128 * KIB), (8, 64 * KIB), (8, 32 * KIB))
"""(rounds per hop of the depth, smallest chunk): halved while a channel has fewer rounds."""
PAT_ROUNDS = {"all_gather": 32, "reduce_scatter": 16}
PAT_SMALLEST = 64 * KIB


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of the protocols with flags.

    Attributes
    ----------
    ll_buffer_bytes, ll128_buffer_bytes : int
        Buffers of a connection, flags included.
    words, data_words : int
        8-byte words of one LL128 line, and those that hold data.
    tree_steps : tuple of (int, int)
        For trees with Simple (rounds per hop of the depth, smallest chunk): the chunk is halved while a channel has
        fewer rounds; empty: it never is.
    """

    ll_buffer_bytes: int
    ll128_buffer_bytes: int
    words: int
    data_words: int
    tree_steps: tuple[tuple[int, int], ...] = ()


NVIDIA_LINES = Lines(8 * 512 * 16 * SLOTS, 120 * 640 * 8 * SLOTS, 16, 15)
"""Lines of 128 bytes, 512 and 640 threads (NCCL src/include/device.h)."""
AMD_LINES = Lines(8 * 256 * 16 * SLOTS, 28 * 256 * 8 * SLOTS, 8, 7, ((8, 128 * KIB), (4, 64 * KIB), (1, 32 * KIB)))
"""Lines of 64 bytes, 256 threads (RCCL src/include/device.h); chunks of trees (src/enqueue.cc, calcCollChunking), which
NCCL gave up by 2.21.5."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a channel: payload, slices that are handed on, slots that a full one takes up."""

    payload_bytes: int
    slices: int = 1
    slots: int = 1


def efficiency(proto: int, lines: Lines) -> float:
    """Return payload over bytes on the wire.

    >>> efficiency(LL128, NVIDIA_LINES), efficiency(LL128, AMD_LINES)
    (0.9375, 0.875)
    """
    return {LL: 0.5, LL128: lines.data_words / lines.words}.get(proto, 1.0)


def chunk_of(call: Call, algo: str, proto: int, share_bytes: int, *, lines: Lines, environment: Environment) -> Chunk:
    """Return the chunk of a channel that carries *share_bytes* of the buffer or of every block."""
    step = _step_bytes(proto, lines, environment)
    if proto == LL:
        return Chunk(step // 2)
    spread = share_bytes * (call.n_ranks if call.operation.blocked else 1)
    if proto == LL128:
        payload = step // lines.words * lines.data_words
        if algo == "tree":
            payload = _tree_ll128(call, payload, spread)
        return Chunk(payload // 8 * 8)
    if algo == "ring":
        if call.op in ("broadcast", "reduce"):
            return Chunk(step)
        return Chunk(step * RING_CHUNK_SLOTS, RING_CHUNK_SLOTS // RING_SLICE_SLOTS, RING_CHUNK_SLOTS)
    if algo in ("nvls", "nvls_tree"):
        return Chunk(_nvls(call, algo, step, spread, environment))
    if algo == "tree":
        step = _tree_simple(call, step, spread, lines)
    if algo in COLLNET:
        step = _collnet(call, algo, step, spread)
    if algo == "pat":
        while step * PAT_ROUNDS[call.op] > spread and step > PAT_SMALLEST:
            step //= 2
    return Chunk(step)


def _step_bytes(proto: int, lines: Lines, environment: Environment) -> int:
    """Return one slot of a connection, flags included."""
    name, usual = {
        LL: ("NCCL_LL_BUFFSIZE", lines.ll_buffer_bytes),
        LL128: ("NCCL_LL128_BUFFSIZE", lines.ll128_buffer_bytes),
        SIMPLE: ("NCCL_BUFFSIZE", SIMPLE_BUFFER),
    }[proto]
    given = environment.number(name, -2)
    return (given if given > 0 else usual) // SLOTS


def _tree_ll128(call: Call, payload: int, spread: int) -> int:
    """Shrink the chunk of a tree so that its depth is filled."""
    depth = 1 + log2_floor(call.n_nodes) + 0.1 * call.ranks_per_node
    for rounds, smallest in ((64, 128 * KIB), (16, 32 * KIB)):
        while spread // payload < depth * rounds / call.ranks_per_node and payload > smallest:
            payload //= 2
    return payload


def _tree_simple(call: Call, step: int, spread: int, lines: Lines) -> int:
    """Shrink the chunk of a tree with Simple so that its depth is filled (src/graph/connect.cc has the depth)."""
    depth = call.ranks_per_node - 1 + log2_floor(call.n_nodes)
    for rounds, smallest in lines.tree_steps:
        while spread // step < depth * rounds and step > smallest:
            step //= 2
    return step


def _collnet(call: Call, algo: str, step: int, spread: int) -> int:
    """Return the chunk of CollNet: of one head if direct, of the chain otherwise."""
    chain = algo == "collnet_chain"
    chunk = min(step, COLLNET_CHAIN_CHUNK) if chain else step
    heads, depth = (1, call.ranks_per_node) if chain else (call.ranks_per_node, min(2, call.ranks_per_node))
    for rounds, smallest in COLLNET_STEPS:
        while spread < rounds * depth * heads * chunk and chunk > smallest:
            chunk //= 2
    return chunk


def _nvls(call: Call, algo: str, step: int, spread: int, environment: Environment) -> int:
    """Return the chunk of one head on one channel."""
    chunk = min(step, environment.number("NCCL_NVLS_CHUNKSIZE", NVLS_CHUNK))
    heads = call.ranks_per_node
    if algo == "nvls_tree":
        usual = NVLS_TREE_CAP if call.n_nodes >= NVLS_TREE_CAP_NODES else chunk
        chunk = min(chunk, environment.number("NCCL_NVLSTREE_MAX_CHUNKSIZE", usual))
    for rounds, smaller in NVLS_STEPS if algo == "nvls" else NVLS_TREE_STEPS:
        if spread < rounds * heads * chunk:
            chunk = min(chunk, smaller)
    return chunk
