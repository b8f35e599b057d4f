"""What a caller asks of the simulator, checked as a whole: every fault of a request in one report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from collsim.collectives import ALGORITHMS, algorithm, algorithms_for, matrix_size_bytes
from collsim.errors import Fault, InputError, UnknownNameError
from collsim.fabric import Int
from collsim.operations import OPERATIONS, REDUCTIONS, Operation, dtype_bytes, operation
from collsim.topology import Topology
from collsim.units import parse_size_bytes

__all__ = ["CHOICES", "MOST_CHANNELS", "Question", "ask", "rank_groups"]

if TYPE_CHECKING:
    from collsim.library import Library

T = TypeVar("T")
PROTOCOLS = ("LL", "LL128", "Simple")

DEFAULT_SIZES = tuple(2**power for power in range(20, 31))
"""1 MiB to 1 GiB by factors of two."""
MOST_CHANNELS = 128
"""MAXCHANNELS of RCCL; NCCL stops at 64."""
CHOICES = ("auto", "best", "all")
"""What `algo` takes besides the names of algorithms."""


@dataclass(frozen=True, slots=True)
class Question:
    """A checked request; what is None was left to collsim.

    Attributes
    ----------
    ops : tuple of Operation
    sizes : tuple of int
        Requested sizes in bytes.
    algo : tuple of str
        Names of algorithms or of `CHOICES`.
    channels, chunk_bytes : int or None
    dtype : str
    element_bytes : int
    redop : str
    root : int
    matrix_bytes : int64[n, n] or None
    proto : str or None
        Protocol; None leaves it to the library, else Simple.
    library : Library or None
        Whose choice ``auto`` follows; None: the fastest in the simulator.
    environment : mapping
        NCCL and RCCL variables that change the library's choice.
    """

    ops: tuple[Operation, ...]
    sizes: tuple[int, ...]
    algo: tuple[str, ...]
    channels: int | None
    chunk_bytes: int | None
    dtype: str
    element_bytes: int
    redop: str
    root: int
    matrix_bytes: Int | None
    proto: str | None = None
    library: Library | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def sizes_of(self, op: Operation) -> tuple[int, ...]:
        """Return the requested sizes of *op*: the matrix decides for all_to_all_v."""
        if op.name == "all_to_all_v" and self.matrix_bytes is not None:
            return (matrix_size_bytes(self.matrix_bytes),)
        return self.sizes


def ask(
    op: str | Sequence[str],
    size: int | str | Sequence[int | str] | None = None,
    algo: str | Sequence[str] = "auto",
    *,
    channels: int | None = None,
    chunk: int | str | None = None,
    dtype: str = "float",
    redop: str = "sum",
    root: int = 0,
    matrix: Any = None,
    proto: str | None = None,
    library: str | Library | None = None,
    environment: Mapping[str, str] | None = None,
) -> Question:
    """Check a request; the parameters are those of `collsim.simulate`.

    Raises
    ------
    InputError
        Every fault at once.
    """
    faults: list[Fault] = []
    ops = tuple(found for name in _listed(op) if (found := _attempt(partial(operation, name), faults, "op")))
    if not _listed(op):
        faults.append(Fault("no operation is named", "op", f"name one of {', '.join(OPERATIONS)}"))
    sizes = DEFAULT_SIZES if size is None else _attempt(lambda: _sizes(size), faults)
    chunk_bytes = (
        None if chunk is None else _attempt(lambda: parse_size_bytes(chunk, "chunk", allow_zero=False), faults)
    )
    name, element_bytes = _attempt(lambda: dtype_bytes(dtype), faults, "dtype") or ("float", 4)
    matrix_bytes = _attempt(lambda: _checked_matrix(matrix, ops), faults) if ops else None
    if redop not in REDUCTIONS:
        faults.extend(UnknownNameError("reduction", redop, REDUCTIONS, "redop").faults)
    if channels is not None and not 1 <= channels <= MOST_CHANNELS:
        faults.append(Fault(f"{channels} channels", "channels", f"between 1 and {MOST_CHANNELS}"))
    if proto is not None and proto not in PROTOCOLS:
        faults.extend(UnknownNameError("protocol", proto, PROTOCOLS, "proto").faults)
    chooser = None if library is None else _attempt(partial(_library, library), faults, "library")
    _attempt(partial(_check_environment, environment or {}, library), faults, "env")
    faults += _algorithm_faults(ops, _listed(algo))
    if faults:
        raise InputError(*faults)
    return Question(
        ops=ops,
        sizes=sizes or (),
        algo=_listed(algo),
        channels=channels,
        chunk_bytes=chunk_bytes,
        dtype=name,
        element_bytes=element_bytes,
        redop=redop,
        root=root,
        matrix_bytes=matrix_bytes,
        proto=proto,
        library=chooser,
        environment=dict(environment or {}),
    )


def _library(library: str | Library) -> Library:
    from collsim.library import load_library

    return load_library(library)


def _check_environment(environment: Mapping[str, str], library: str | Library | None) -> None:
    """Refuse variables that are unknown, or that nobody will read."""
    if not environment:
        return
    if library is None:
        raise InputError(Fault("variables of the environment need a library", "env", "add --library nccl-2.28"))
    from collsim.library import read_environment

    read_environment(environment)


def _attempt(parse: Callable[[], T], faults: list[Fault], where: str = "") -> T | None:
    """Return what *parse* returns; None, with its faults added, if it refuses; *where* for those that name no place."""
    try:
        return parse()
    except InputError as error:
        faults.extend(Fault(fault.what, fault.where or where, fault.hint) for fault in error.faults)
        return None


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _sizes(size: int | str | Sequence[int | str]) -> tuple[int, ...]:
    """Return sizes in bytes."""
    entries = [size] if isinstance(size, (int, str)) else list(size)
    faults: list[Fault] = []
    sizes = [_attempt(partial(parse_size_bytes, entry, "size", allow_zero=False), faults) for entry in entries]
    if not entries:
        faults.append(Fault("the list of sizes is empty", "size", "name at least one, such as 64M"))
    if faults:
        raise InputError(*faults)
    return tuple(number for number in sizes if number is not None)


def _checked_matrix(matrix: Any, ops: Sequence[Operation]) -> Int | None:
    """Return the byte matrix as int64[n, n]; exactly all_to_all_v needs one."""
    wants = any(op.name == "all_to_all_v" for op in ops)
    if matrix is None:
        if wants:
            raise InputError(
                Fault("all_to_all_v needs a matrix of bytes", "matrix", "one row per sender, one column per receiver")
            )
        return None
    if not wants:
        raise InputError(Fault("a matrix goes with all_to_all_v only", "matrix"))
    try:
        array = np.asarray(matrix)
        exact = array.astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(Fault("the matrix does not hold numbers only", "matrix")) from None
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] < 2:
        raise InputError(Fault(f"the matrix has shape {array.shape}", "matrix", "it must be square, at least 2 x 2"))
    if not np.array_equal(exact, array) or (exact < 0).any():
        row, column = np.argwhere((exact != array) | (exact < 0))[0]
        raise InputError(
            Fault(f"entry ({row}, {column}) is {array[row, column]}", "matrix", "give whole bytes, 0 or more")
        )
    if not (exact[~np.eye(len(exact), dtype=np.bool_)]).any():
        raise InputError(Fault("no rank sends anything to another", "matrix"))
    return exact


def _algorithm_faults(ops: Sequence[Operation], names: Sequence[str]) -> list[Fault]:
    """Return what is wrong with the algorithms for each operation."""
    faults: list[Fault] = []
    for op in ops:
        if not algorithms_for(op.name):
            able = sorted({name for entry in ALGORITHMS for name in entry.ops})
            faults.append(
                Fault(f"no algorithm carries out {op.name} yet", "op", f"there are some for {', '.join(able)}")
            )
            continue
        for name in names:
            if name not in CHOICES:
                _attempt(partial(algorithm, op.name, name), faults, "algo")
    return faults


def rank_groups(
    topology: Topology, ranks: int | Sequence[int] | None, rank_list: Sequence[int] | None, question: Question
) -> list[list[int]]:
    """Return the GPUs of each run."""
    if ranks is not None and rank_list is not None:
        raise InputError(Fault("both a number of ranks and a rank list", "ranks", "give one of the two"))
    everyone = topology.n_gpus
    size = None if question.matrix_bytes is None else len(question.matrix_bytes)
    counts = [ranks] if isinstance(ranks, int) else list(ranks or ())
    faults = _count_faults(counts, topology) + _list_faults(rank_list, topology)
    if size is not None and size > everyone:
        faults.append(Fault(f"the matrix is for {size} ranks, {topology.name} has {everyone} GPUs", "matrix"))
    if faults:
        raise InputError(*faults)
    groups = [list(rank_list)] if rank_list is not None else [list(range(n)) for n in counts or [size or everyone]]
    for group in groups:
        if size not in (None, len(group)):
            faults.append(Fault(f"the matrix is for {size} ranks, the run has {len(group)}", "matrix"))
        if not 0 <= question.root < len(group):
            faults.append(Fault(f"root {question.root} is out of range", "root", f"0 to {len(group) - 1}"))
    if faults:
        raise InputError(*faults)
    return groups


def _count_faults(counts: Sequence[int], topology: Topology) -> list[Fault]:
    """Return what is wrong with numbers of ranks."""
    return [
        Fault(f"{count} ranks on {topology.n_gpus} GPUs", "ranks", f"{topology.name} takes 2 to {topology.n_gpus}")
        for count in counts
        if not 2 <= count <= topology.n_gpus
    ]


def _list_faults(rank_list: Sequence[int] | None, topology: Topology) -> list[Fault]:
    """Return what is wrong with a list of GPUs."""
    if rank_list is None:
        return []
    faults = []
    if outside := sorted({rank for rank in rank_list if not 0 <= rank < topology.n_gpus}):
        hint = f"{topology.name} has GPUs 0 to {topology.n_gpus - 1}"
        faults.append(Fault(f"{_named(outside)} out of range", "rank_list", hint))
    if repeated := sorted(rank for rank, times in Counter(rank_list).items() if times > 1):
        faults.append(Fault(f"{_named(repeated)} named more than once", "rank_list", "name each GPU once"))
    if len(rank_list) < 2:
        faults.append(Fault(f"a collective needs at least 2 GPUs, this is {len(rank_list)}", "rank_list"))
    return faults


def _named(ranks: Sequence[int]) -> str:
    """Return a few ranks for a message, with the verb that follows."""
    if len(ranks) == 1:
        return f"GPU {ranks[0]} is"
    more = f" and {len(ranks) - 5} more" if len(ranks) > 5 else ""
    return f"GPUs {', '.join(map(str, ranks[:5]))}{more} are"
