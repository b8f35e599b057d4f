"""The collective operations and data types, with the conventions of nccl-tests; the one table of busbw factors.

Sizes and factors follow nccl-tests (its PERFORMANCE.md and source, version 2.19): *size* is the larger of the send and
the receive buffer of one rank, *count* the count argument of the API call. This module imports nothing but errors and
records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collsim.core.errors import UnknownNameError

__all__ = ["DTYPES", "MOST_RANKS", "OPERATIONS", "REDUCTIONS", "Operation", "dtype_bytes", "operation"]

MOST_RANKS = 1 << 20
"""The most ranks and nodes that a call may name (chosen: several times the largest machine)."""
BLOCK_GRAIN_BYTES = 16
"""nccl-tests rounds the block of a rank down to a multiple of this."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective operation.

    Attributes
    ----------
    name : str
    aliases : tuple of str
        Spellings of nccl-tests and of the libraries.
    busbw_factor : callable
        busbw = algbw * busbw_factor(n_ranks).
    blocked : bool
        The size column counts one block per rank; otherwise it is one whole buffer.
    reduces, rooted : bool
    """

    name: str
    aliases: tuple[str, ...]
    busbw_factor: Callable[[int], float]
    blocked: bool = False
    reduces: bool = False
    rooted: bool = False

    def rounded_size_bytes(self, requested_bytes: int, n_ranks: int, element_bytes: int) -> int:
        """Return the size column that nccl-tests 2.19 prints for a requested size; 0 if nothing is left.

        >>> operation("all_gather").rounded_size_bytes(1000, 8, 4)
        896
        """
        if self.blocked:
            return requested_bytes // n_ranks // BLOCK_GRAIN_BYTES * BLOCK_GRAIN_BYTES * n_ranks
        return requested_bytes // element_bytes * element_bytes

    def whole_size_bytes(self, printed_bytes: int, n_ranks: int, element_bytes: int) -> int:
        """Return what of a size that a log prints is whole elements, as many for each rank; 0 if nothing is.

        Older nccl-tests round no further: 64 B on 8 ranks, which newer ones never run, stand in their logs.

        >>> operation("all_to_all").whole_size_bytes(64, 8, 4), operation("all_to_all").whole_size_bytes(16, 8, 4)
        (64, 0)
        """
        grain = element_bytes * (n_ranks if self.blocked else 1)
        return printed_bytes // grain * grain

    def count(self, size_bytes: int, n_ranks: int, element_bytes: int) -> int:
        """Return the count column for a size column."""
        return size_bytes // element_bytes // (n_ranks if self.blocked else 1)


def _all_but_own(n: int) -> float:
    return (n - 1) / n


OPERATIONS: dict[str, Operation] = {
    entry.name: entry
    for entry in (
        Operation("all_reduce", ("allreduce", "ar"), lambda n: 2 * (n - 1) / n, reduces=True),
        Operation("all_gather", ("allgather", "ag"), _all_but_own, blocked=True),
        Operation("reduce_scatter", ("reducescatter", "rs"), _all_but_own, blocked=True, reduces=True),
        Operation("all_to_all", ("alltoall", "a2a"), _all_but_own, blocked=True),
        Operation("all_to_all_v", ("alltoallv", "a2av"), _all_but_own),
        Operation("broadcast", ("bcast",), lambda _: 1.0, rooted=True),
        Operation("reduce", (), lambda _: 1.0, reduces=True, rooted=True),
        Operation("gather", (), _all_but_own, blocked=True, rooted=True),
        Operation("scatter", (), _all_but_own, blocked=True, rooted=True),
        Operation("send_recv", ("sendrecv",), lambda _: 1.0),
    )
}

ALIASES = {alias: entry.name for entry in OPERATIONS.values() for alias in entry.aliases}

DTYPES: dict[str, int] = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "half": 2,
    "float": 4,
    "double": 8,
    "bfloat16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
}
"""Element size in bytes of every type of nccl-tests, under the name that its table prints."""

DTYPE_ALIASES = {
    "float16": "half",
    "fp16": "half",
    "float32": "float",
    "fp32": "float",
    "float64": "double",
    "bf16": "bfloat16",
}

REDUCTIONS = ("sum", "prod", "min", "max", "avg")


def operation(name: str) -> Operation:
    """Return the operation called *name*, in any of its spellings.

    Raises
    ------
    UnknownNameError
        With the nearest known name.
    """
    key = name.strip().lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in OPERATIONS:
        raise UnknownNameError("operation", name, OPERATIONS)
    return OPERATIONS[key]


def dtype_bytes(name: str) -> tuple[str, int]:
    """Return the canonical name of a data type and the size of its element in bytes.

    Raises
    ------
    UnknownNameError
        With the nearest known name.
    """
    key = DTYPE_ALIASES.get(name.lower(), name.lower())
    if key not in DTYPES:
        raise UnknownNameError("data type", name, [*DTYPES, *DTYPE_ALIASES])
    return key, DTYPES[key]
