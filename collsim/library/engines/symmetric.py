"""The choice among NCCL's kernels on symmetric memory: buffers that all ranks have at the same place (``-R 2``).

From 2.27 on NCCL has kernels of its own for all-reduce, all-gather and reduce-scatter of such buffers on one node: with
lines that carry flags (LL), and with loads and stores to the memory of all peers. It takes the quicker one by a model
of its own (src/sym_kernels.cc), in units of 2^30 bytes. Those that let switches add and copy (NVLS) are not modelled:
where there are such switches the others are taken, with a doubt.
"""

from __future__ import annotations

import math
from dataclasses import replace

from collsim.library.calls import Call, Choice
from collsim.library.engines.kernels import PIECES
from collsim.library.library import Library
from collsim.library.system import System

__all__ = ["BLOCKS", "symmetric_choice", "symmetric_options"]

SINCE = (2, 27)
OPS = ("all_reduce", "all_gather", "reduce_scatter")
BLOCKS = 64
"""Most thread blocks of a kernel, which large calls take."""
LINES, DIRECT = "symmetric_ll", "symmetric_store"
BASE_US = {"hopper": (4.5, 7.8, 7.8), "blackwell": (8.5, 19.5, 13.0)}
"""Start of LL, of loads and stores in an all-reduce, and of those in others, by generation."""
BLOCK_GIBPS = {"hopper": (65.0, 44.0), "blackwell": (55.0, 55.0)}
"""Rate of a thread block in an all-reduce, and in others."""
PEAK_GIBPS = {"hopper": 320.0, "blackwell": 600.0}
LINE_BYTES = 9
"""Bytes that the model counts for each byte that arrives in lines."""
MOST_LINES = 2**31
"""LL is taken below so many bytes of all ranks together."""
GIB_PER_US = 2**30 / 1e6
OF_SWITCHES = "kernels on symmetric memory that let switches add and copy are not modelled: those without are taken"
LINEAR = 100.0
"""From here on a softened kink is a line."""


def symmetric_choice(call: Call, system: System, library: Library) -> Choice | None:
    """Return NCCL's own kernel for *call* on symmetric memory; None if it has none, or one that is not modelled."""
    return next(iter(symmetric_options(call, system, library)), None)


def symmetric_options(call: Call, system: System, library: Library) -> tuple[Choice, ...]:
    """Return NCCL's own kernels for *call* on symmetric memory, the one that it takes first."""
    able = call.symmetric and call.op in OPS and call.n_nodes == 1 and call.redop == "sum"
    if not able or library.version < SINCE or system.architecture not in PEAK_GIBPS:
        return ()
    all_bytes = call.size_bytes * (call.n_ranks if call.op == "all_reduce" else 1)
    kernels = [DIRECT, *([LINES] if all_bytes < MOST_LINES else [])]
    times_us = {name: _time_us(call, system, name) for name in kernels}
    order = sorted(kernels, key=lambda name: times_us[name])
    doubts = (OF_SWITCHES,) if system.nvls else ()
    return tuple(replace(_choice(call, library, name, times_us[name]), doubts=doubts) for name in order)


def _choice(call: Call, library: Library, algo: str, time_us: float) -> Choice:
    """Return a kernel as a choice: all blocks share the whole buffer."""
    why = f"{library.name} reckons {time_us:.1f} us for its {algo} kernel on symmetric memory"
    return Choice(
        algo=algo,
        library_algo="SYMMETRIC",
        proto="LL" if algo == LINES else "Simple",
        channels=BLOCKS,
        communicator_channels=BLOCKS,
        search_channels=BLOCKS,
        channel_GBps=0.0,
        shares_bytes=(),
        threads=512,
        chunk_bytes=max(call.size_bytes // (call.n_ranks * BLOCKS * PIECES), 16),
        slices=1,
        slots=PIECES,
        slots_per_chunk=1,
        efficiency=1.0,
        zero_copy=True,
        point_to_point=None,
        predicted_s=time_us * 1e-6,
        candidates=(),
        why=why,
    )


def _time_us(call: Call, system: System, kernel: str) -> float:
    """Return the time in NCCL's model of symmetric kernels with all their blocks."""
    n, reduces = call.n_ranks, call.op == "all_reduce"
    lines_us, reduce_us, others_us = BASE_US[system.architecture]
    of_rank = call.size_bytes if reduces else call.size_bytes / n
    if kernel == LINES:
        base_us, moved = lines_us, LINE_BYTES * n * of_rank
    else:
        base_us, moved = (reduce_us, 2 * of_rank * (n - 1) / n) if reduces else (others_us, (n - 1) * of_rank)
    block = BLOCK_GIBPS[system.architecture][0 if reduces else 1]
    rate = _soft_least(BLOCKS * block, PEAK_GIBPS[system.architecture], block)
    return base_us + _soft_ramp(moved / (rate * GIB_PER_US) - 1)


def _soft_least(x: float, most: float, softness: float) -> float:
    """Return the smaller of two rates, less where they are alike."""
    inverse = math.expm1(min(most / softness, LINEAR)) * math.exp(-x / softness)
    return most - softness * math.log1p(inverse)


def _soft_ramp(z: float) -> float:
    """Return z above 0 and nothing below, softened."""
    return z if z >= LINEAR else math.log1p(math.exp(z))
