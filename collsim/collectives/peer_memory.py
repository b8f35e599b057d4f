"""Kernels of inference engines and of NCCL over peer memory: every rank reaches what it needs in that of the others.

Before the first byte every rank writes a flag to all others and waits for theirs, and again before anybody may touch
its buffer. These flags are costs (`collsim.library.costs`), not transfers. One-shot reads the whole vector of every
peer; two-shot adds up a slice and then reads the slices of the others; with multicast the switches add and copy.
"""

from __future__ import annotations

from dataclasses import replace

from collsim.collectives import all_pairs, nvls
from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import Schedule

__all__ = ["MULTIMEM", "ONE_SHOT", "STAGED", "SYMMETRIC", "SYMMETRIC_LL", "TWO_SHOT"]


def build_one_shot(request: ScheduleRequest) -> Schedule:
    """Return the one-shot all-reduce: everybody reads the whole input of everybody."""
    return replace(all_pairs.build_one_shot(request), algo=ONE_SHOT.name)


def build_two_shot(request: ScheduleRequest) -> Schedule:
    """Return the two-shot all-reduce: everybody adds up its slice, then reads the sums of the others."""
    return replace(all_pairs.build(request), algo=TWO_SHOT.name)


def build_staged(request: ScheduleRequest) -> Schedule:
    """Return the two-shot all-reduce on a buffer that the input is copied into and the result out of."""
    return replace(all_pairs.build(request), algo=STAGED.name)


def build_multimem(request: ScheduleRequest) -> Schedule:
    """Return the all-reduce by load-reduce and multicast store, on such a buffer.

    Raises
    ------
    UnsupportedError
        The ranks are on several nodes.
    """
    return replace(nvls.build(request), algo=MULTIMEM.name)


def build_symmetric(request: ScheduleRequest) -> Schedule:
    """Return NCCL's kernel on symmetric memory: add up a slice out of all memories, or store it into all of them."""
    return replace(all_pairs.build(request), algo=SYMMETRIC.name)


def build_symmetric_ll(request: ScheduleRequest) -> Schedule:
    """Return the same with lines that carry flags: an all-reduce stores its whole input into all memories."""
    build = all_pairs.build_one_shot if request.op.name == "all_reduce" else all_pairs.build
    return replace(build(request), algo=SYMMETRIC_LL.name)


ONE_SHOT = Algorithm(
    name="peer_one_shot",
    title="inference engines: read the whole vector of every peer",
    ops=("all_reduce",),
    source="vLLM csrc/custom_all_reduce.cuh; SGLang jit_kernel all_reduce; TensorRT-LLM allReduceFusionKernels.cu",
    build=build_one_shot,
    family="peer_one_shot",
    protocols=("Simple",),
    libraries=("vllm", "sglang", "trtllm"),
)

TWO_SHOT = replace(
    ONE_SHOT,
    name="peer_two_shot",
    title="inference engines: add up a slice, read the slices of the others",
    build=build_two_shot,
    family="peer_two_shot",
)

STAGED = replace(
    ONE_SHOT,
    name="peer_staged",
    title="inference engines: two-shot on a symmetric buffer, copied in and out",
    source="PyTorch symm_mem two_shot_all_reduce_, called by vLLM device_communicators/symm_mem.py",
    build=build_staged,
    family="peer_staged",
    libraries=("vllm",),
)

MULTIMEM = replace(
    STAGED,
    name="peer_multimem",
    title="inference engines: multimem load-reduce and store on a symmetric buffer",
    source="PyTorch symm_mem multimem_all_reduce_, called by vLLM device_communicators/symm_mem.py",
    build=build_multimem,
    in_network=("all",),
    family="peer_multimem",
)

SYMMETRIC = Algorithm(
    name="symmetric_store",
    title="NCCL on symmetric memory: loads and stores to the memory of all peers",
    ops=("all_reduce", "all_gather", "reduce_scatter"),
    source="NCCL src/sym_kernels.cc, src/device/symmetric (2.27 and later)",
    build=build_symmetric,
    family="symmetric",
    protocols=("Simple",),
    libraries=("nccl",),
)

SYMMETRIC_LL = replace(
    SYMMETRIC,
    name="symmetric_ll",
    title="NCCL on symmetric memory: lines with flags into the memory of all peers",
    build=build_symmetric_ll,
    protocols=("LL",),
)
