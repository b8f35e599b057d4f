"""The choice of an inference engine: one of its own kernels, or none, so that NCCL or RCCL runs.

Read from the public sources of vLLM, SGLang and TensorRT-LLM; of the revisions found, those whose thresholds are where
the measured times of the releases in `ENGINES` bend (docs/engines.md). All kernels are for an all-reduce (sum) within
one node, of a multiple of 16 bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from collsim.library.calls import Call, Choice
from collsim.library.library import Library
from collsim.library.system import System

__all__ = ["engine_choice", "engine_options"]

KIB, MIB = 1024, 1024 * 1024
GRAIN_BYTES = 16
"""All three kernels move 16 bytes a thread and refuse what is no multiple of it."""
DTYPES = ("float", "half", "bfloat16")
ONE, TWO, STAGED, MULTIMEM, NONE = "peer_one_shot", "peer_two_shot", "peer_staged", "peer_multimem", ""

Rungs = tuple[tuple[int, str], ...]
"""(bytes, kernel): calls of fewer bytes than these, and not fewer than of the rung before, take the kernel."""


class Engine(NamedTuple):
    """Kernels of an engine: thread blocks of each, and rungs by generation and number of ranks."""

    blocks: dict[str, int]
    rungs: dict[str, dict[int, Rungs]]
    source: str


SYMMETRIC_BYTES = {2: 64 * MIB, 4: 32 * MIB, 6: 64 * MIB, 8: 64 * MIB}
"""Most bytes that vLLM reduces in PyTorch's symmetric memory on Hopper (all_reduce_utils.py)."""
CUSTOM_BYTES = {2: 8 * MIB, 4: 8 * MIB, 6: 512 * KIB, 8: 256 * KIB}
"""From so many on vLLM leaves its own kernel on Hopper if symmetric memory is there: its table, at most 8 MiB."""
SGLANG_HOPPER = {2: 16 * KIB, 3: 512, 4: 384, 5: 256, 6: 192, 7: 192, 8: 160}
SGLANG_BLACKWELL = {2: 16 * KIB, 3: 4096, 4: 2048, 5: 2048, 6: 1024, 7: 896, 8: 720}
"""Most KiB of a one-shot in SGLang (custom_all_reduce_v2.py); of two ranks all of it, up to 16 MiB."""


def _vllm_custom(n: int) -> Rungs:
    """Return when vLLM runs its own kernel: two ranks one-shot, four below 512 KiB (csrc/custom_all_reduce.cuh)."""
    if n == 2:
        return ((8 * MIB, ONE),)
    return ((512 * KIB if n <= 4 else 256 * KIB, ONE), (8 * MIB, TWO))


def _vllm_hopper(n: int) -> Rungs:
    """Return the same where symmetric memory takes over, with multimem from four ranks on (symm_mem.py)."""
    own = tuple((min(most, CUSTOM_BYTES[n]), kernel) for most, kernel in _vllm_custom(n))
    return (*own, (SYMMETRIC_BYTES[n] + 1, MULTIMEM if n >= 4 else STAGED))


def _sglang(one_shot_kib: dict[int, int]) -> dict[int, Rungs]:
    return {
        n: ((16 * MIB + 1, ONE),) if n == 2 else ((kib * KIB + 1, ONE), (16 * MIB + 1, TWO))
        for n, kib in one_shot_kib.items()
    }


ENGINES = {
    "vllm": Engine(
        {ONE: 36, TWO: 36, STAGED: 24, MULTIMEM: 24},
        {"hopper": {n: _vllm_hopper(n) for n in (2, 4, 6, 8)}, "": {n: _vllm_custom(n) for n in (2, 4, 6, 8)}},
        "vLLM vllm/distributed/device_communicators and csrc/custom_all_reduce.cuh",
    ),
    "sglang": Engine(
        {ONE: 64, TWO: 64},
        {"blackwell": _sglang(SGLANG_BLACKWELL), "": _sglang(SGLANG_HOPPER)},
        "SGLang python/sglang/srt/distributed/device_communicators/custom_all_reduce_v2.py",
    ),
    "trtllm": Engine(
        {ONE: 128, TWO: 128},
        {
            "blackwell": {
                2: ((32 * MIB, ONE),),
                4: ((8 * MIB, ONE), (32 * MIB, TWO)),
                8: ((4 * MIB, ONE), (64 * MIB, TWO)),
            },
            "": {
                2: ((32 * MIB, ONE),),
                4: ((2 * MIB, ONE), (16 * MIB, TWO)),
                8: ((1 * MIB, ONE), (2 * MIB, NONE), (8 * MIB, TWO)),
            },
        },
        "TensorRT-LLM cpp/tensorrt_llm/common/customAllReduceUtils.h: without fusion, 4096 wide, of 2-byte elements",
    ),
}
"""Of vLLM on Blackwell: its table has symmetric memory there too, but on the GB200 that were measured it did not come
up (no multicast), so that its own kernel ran up to 8 MiB. TensorRT-LLM's table goes by powers of two of the tokens."""


def engine_choice(call: Call, system: System, library: Library) -> Choice | None:
    """Return the engine's own kernel for *call*; None if it leaves it to NCCL or RCCL."""
    rungs = _rungs(call, system, library)
    kernel = next((name for most, name in rungs if call.size_bytes < most), NONE)
    if kernel == MULTIMEM and not system.nvls:
        return None
    return _choice(call, library, kernel, _why(call, library, kernel)) if kernel else None


def engine_options(call: Call, system: System, library: Library) -> tuple[Choice, ...]:
    """Return the kernels that the engine has for so many ranks of such calls, as if it took them whatever the size."""
    kernels = dict.fromkeys(name for _, name in _rungs(call, system, library) if name)
    able = (name for name in kernels if name != MULTIMEM or system.nvls)
    return tuple(_choice(call, library, name, f"{name} of {library.name}, if it were taken") for name in able)


def _rungs(call: Call, system: System, library: Library) -> Rungs:
    """Return the kernels by size; none for a call that the engine has no kernel for."""
    fits = call.op == "all_reduce" and call.redop == "sum" and call.n_nodes == 1 and call.dtype in DTYPES
    if not fits or call.size_bytes % GRAIN_BYTES or not _all_reach(system, call.n_ranks):
        return ()
    by_ranks = ENGINES[library.family].rungs
    rungs = by_ranks.get(system.architecture, by_ranks[""]).get(call.n_ranks, ())
    if call.dtype != "bfloat16":  # vLLM keeps its symmetric buffer for that type
        rungs = tuple(rung for rung in rungs if rung[1] not in (STAGED, MULTIMEM))
    return rungs


def _all_reach(system: System, n_ranks: int) -> bool:
    """Return True if links join any two of the ranks, which all engines ask for."""
    return system.switched or (n_ranks <= len(system.links) and system.pair_GBps(n_ranks)[0] > 0)


def _why(call: Call, library: Library, kernel: str) -> str:
    return f"{library.name} takes {kernel} for {call.size_bytes} bytes on {call.n_ranks} ranks"


def _choice(call: Call, library: Library, kernel: str, why: str) -> Choice:
    """Return a kernel as a choice: all blocks share the whole buffer, in one piece."""
    blocks = ENGINES[library.family].blocks[kernel]
    return Choice(
        algo=kernel,
        library_algo=kernel.upper(),
        proto="Simple",
        channels=blocks,
        communicator_channels=blocks,
        search_channels=blocks,
        channel_GBps=0.0,
        shares_bytes=(),
        threads=512,
        chunk_bytes=max(call.size_bytes // (call.n_ranks * blocks * PIECES), GRAIN_BYTES),
        slices=1,
        slots=PIECES,
        slots_per_chunk=1,
        efficiency=1.0,
        zero_copy=call.launch == "graph",
        point_to_point=None,
        predicted_s=None,
        candidates=(),
        why=why,
    )


PIECES = 8
"""A block of multimem adds and stores 16 bytes at a time; so many pieces of its slice flow one after another here."""
