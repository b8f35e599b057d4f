"""Traces: what one rank ran on its GPU, when its host asked for it, and what waited for what."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["COLLECTIVE", "MATMUL", "MEMORY", "STREAM", "Call", "HostEvent", "Kernel", "Trace", "kind_of"]

COLLECTIVE, MATMUL, MEMORY, STREAM = "collective", "matmul", "memory", "stream"
"""Kinds of kernels: of the library; of tensor cores; all others; of these, those that do nothing but stream memory."""

TENSOR_WORDS = ("gemm", "nvjet", "cutlass", "xmma", "flash", "sdpa", "fmha", "conv", "wgmma", "matmul", "cijk")
"""Parts of the names of kernels that use tensor cores: cuBLAS, CUTLASS, cuDNN, attention, Tensile."""
LIBRARY = re.compile(r"(void )?(nccl(dev|_dev|kernel|sym)|rccl|msccl)")
"""How names of the library's kernels begin: ncclKernel_ before NCCL 2.17, ncclDevKernel_ since, ncclSymDevKernel_ and
ncclSymkDevKernel_ for symmetric memory from 2.27 on (src/device/generate.py, src/device/symmetric/generate.py)."""
STREAMING_WORDS = ("elementwise", "reduce_kernel", "copy", "memset", "memcpy")


def kind_of(name: str) -> str:
    """Return the kind of a kernel, by its name.

    >>> kind_of("nvjet_sm90_tst_256x128"), kind_of("void at::native::vectorized_elementwise_kernel<8>")
    ('matmul', 'memory')
    >>> kind_of("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"), kind_of("ncclSymkDevKernel_AllGather_LL()")
    ('collective', 'collective')
    """
    lower = name.lower()
    if LIBRARY.match(lower):
        return COLLECTIVE
    if any(word in lower for word in STREAMING_WORDS):
        return MEMORY
    return MATMUL if any(word in lower for word in TENSOR_WORDS) else MEMORY


@dataclass(frozen=True, slots=True)
class Call:
    """What a kernel of the library does.

    Attributes
    ----------
    op, dtype : str
        As in `collsim.core.operations`; no operation if the trace does not say which.
    size_bytes : int
        The size column of nccl-tests; 0 if the trace does not say.
    group : str
        Name of the process group.
    ranks : int
        How many take part.
    """

    op: str
    size_bytes: int
    dtype: str
    group: str
    ranks: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """Kernel, copy or fill on a stream.

    Attributes
    ----------
    start_s, end_s : float
        By the clock of the trace, from its first kernel.
    launch_s : float
        When the host began to launch it; NaN if the trace does not say.
    thread : int
        Thread of the host that did.
    ctas : int
        Blocks of its grid: the channels of a kernel of the library.
    full : bool
        Whether it takes every multiprocessor, so that no other kernel starts beside it.
    met_s : float
        Of a collective, how long it took once all ranks with a trace were there; NaN if there are no other traces.
    """

    name: str
    kind: str
    stream: int
    start_s: float
    end_s: float
    launch_s: float
    thread: int
    ctas: int
    full: bool
    call: Call | None = None
    met_s: float = math.nan


@dataclass(frozen=True, slots=True)
class HostEvent:
    """What a host thread did at *time_s*: made *stream* wait for an event, or waited itself until *end_s*.

    Attributes
    ----------
    stream : int
        -1: the host itself waited, for all that had been launched.
    event : int
        Number of the event.
    recorded_s : float
        When the event was recorded; NaN if the trace does not say.
    source : int
        Stream on which it was; -1 if the trace does not say.
    """

    time_s: float
    end_s: float
    thread: int
    stream: int
    event: int = -1
    recorded_s: float = math.nan
    source: int = -1


@dataclass(frozen=True, slots=True)
class Trace:
    """What a rank ran.

    Attributes
    ----------
    rank : int
        -1 if the trace does not say.
    kernels : tuple of Kernel
        By the time of their launch.
    waits : tuple of HostEvent
        By time.
    records : tuple of (float, int)
        When host threads recorded events, and which thread, by time.
    marks : tuple of (float, float)
        Begin and end of each step on the host, if the program marked them.
    groups : mapping of str to tuple of int
        Ranks of process groups by their names, as far as the trace says.
    node_gpus : int
        GPUs of a node, of several; 0 if the trace does not tell.
    lost : tuple of str
        What could not be read, and what follows from that.
    """

    file: str
    gpu: str
    sms: int
    rank: int
    world: int
    library: str
    kernels: tuple[Kernel, ...]
    waits: tuple[HostEvent, ...]
    records: tuple[tuple[float, int], ...]
    marks: tuple[tuple[float, float], ...]
    has_waits: bool
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    node_gpus: int = 0
    lost: tuple[str, ...] = ()

    @property
    def span_s(self) -> float:
        """Time from the first kernel's start to the last one's end."""
        return max(k.end_s for k in self.kernels) - min(k.start_s for k in self.kernels)
