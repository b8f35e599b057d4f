"""Kernels of inference engines over peer memory: every rank reads what it needs out of the memory of the others.

Before the first byte every rank writes a flag to all others and waits for theirs, and again before anybody may touch
its buffer. These flags are costs (`collsim.library.costs`), not transfers. One-shot reads the whole vector of every
peer; two-shot adds up a slice and then reads the slices of the others; with multicast the switches add and copy.
"""

from __future__ import annotations

from dataclasses import replace

from collsim.collectives import all_pairs, nvls
from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import Schedule

__all__ = ["MULTIMEM", "ONE_SHOT", "STAGED", "TWO_SHOT"]


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
