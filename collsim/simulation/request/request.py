"""What a caller asks of the simulator, checked as a whole: every fault of a request in one report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim.collectives import ALGORITHMS, algorithm, algorithms_for, matrix_size_bytes
from collsim.core.errors import Fault, Faults, InputError
from collsim.core.operations import DTYPES, OPERATIONS, REDUCTIONS, Operation, dtype_bytes, operation
from collsim.core.units import MAX_SIZE_BYTES, parse_size_bytes
from collsim.fabric.fabric import Int
from collsim.library.costs.channel_costs import RUNS_WITH
from collsim.simulation.request.groups import Grouping, parse_grouping
from collsim.simulation.request.hash_seeds import parse_seeds
from collsim.simulation.request.loads import Load, free_shares, parse_loads
from collsim.simulation.request.placement import placed
from collsim.simulation.request.tolerance import AUTO, parse_tolerance
from collsim.simulation.request.values import (
    read_choice,
    read_items,
    read_name,
    read_names,
    read_whole,
    shown,
)
from collsim.topology import Topology

__all__ = ["CHOICES", "MOST_CHANNELS", "Question", "ask", "rank_groups"]

if TYPE_CHECKING:
    from collsim.library import Library

PROTOCOLS = ("LL", "LL128", "Simple")
LAUNCHES = ("stream", "graph")

DEFAULT_SIZES = tuple(2**power for power in range(20, 31))
"""1 MiB to 1 GiB by factors of two."""
MOST_CHANNELS = 128
"""MAXCHANNELS of RCCL; NCCL stops at 64."""
MOST_GPUS_PER_THREAD = 1024
"""Far more than any host has."""
MOST_MATRIX_BYTES = 2**62
"""All entries of a byte matrix together; sums stay exact far beyond what anyone sends."""
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
    launch : str
        ``stream`` or ``graph``.
    registered : bool
        Whether the user registered the buffers.
    reduce : bool
        Whether transfers that have to behave alike are simulated as one.
    tolerance : float or None
        How far ends of transfers may be moved, as a part of the time that each takes; None: exact unless that takes
        too long.
    bracket : bool
        Whether an answer within a tolerance comes with times on both sides of it.
    gpus_per_thread : int
        How many GPUs each host thread starts the work of.
    grouping : Split, Layout, Lists or None
        How the ranks of a run form groups that all run at once; None: one group.
    load : tuple of Load
    hash_seeds : tuple of int
        Draws of the hash of the network; none: one draw, that of the topology.
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
    launch: str = "stream"
    registered: bool = False
    reduce: bool = True
    tolerance: float | None = None
    bracket: bool = False
    gpus_per_thread: int = 1
    grouping: Grouping | None = None
    load: tuple[Load, ...] = ()
    hash_seeds: tuple[int, ...] = ()

    def groups_of(self, gpus: Sequence[int]) -> list[list[int]]:
        """Return the GPUs of each group of a run whose rank i is on GPU ``gpus[i]``."""
        if self.grouping is None:
            return [list(gpus)]
        return [[gpus[rank] for rank in group] for group in self.grouping.groups(len(gpus))]

    def sizes_of(self, op: Operation) -> tuple[int, ...]:
        """Return the requested sizes of *op*: the matrix decides for all_to_all_v."""
        if op.name == "all_to_all_v" and self.matrix_bytes is not None:
            return (matrix_size_bytes(self.matrix_bytes),)
        return self.sizes


def ask(
    op: str | Sequence[str],
    size: float | str | Sequence[float | str] | None = None,
    algo: str | Sequence[str] = "auto",
    *,
    channels: int | None = None,
    chunk: float | str | None = None,
    dtype: str = "float",
    redop: str = "sum",
    root: int = 0,
    matrix: Any = None,
    proto: str | None = None,
    library: str | Library | None = None,
    environment: Mapping[str, str] | None = None,
    launch: str = "stream",
    registered: bool = False,
    reduce: bool = True,
    tolerance: float | str | None = AUTO,
    bracket: bool = False,
    gpus_per_thread: int = 1,
    split: str | None = None,
    groups: Any = None,
    over: str | None = None,
    load: str | Sequence[str] = (),
    hash_seeds: str | Sequence[int] | None = None,
) -> Question:
    """Check a request; the parameters are those of `collsim.simulate`.

    Raises
    ------
    InputError
        Every fault at once.
    """
    faults = Faults()
    hint = f"name one of {', '.join(OPERATIONS)}"
    names = read_names(op, "op", "operation", hint, faults)
    ops = tuple(found for name in names if (found := faults.attempt(operation, name, where="op")))
    sizes = DEFAULT_SIZES if size is None else faults.attempt(_sizes, size)
    if size is not None and ops and all(entry.name == "all_to_all_v" for entry in ops):
        faults.append(Fault("the matrix decides the size of all_to_all_v", "size", "leave out the size"))
    chunk_bytes = None if chunk is None else faults.attempt(parse_size_bytes, chunk, "chunk", allow_zero=False)
    name = read_name(dtype, "dtype", "data type", DTYPES, faults)
    dtype, element_bytes = (faults.attempt(dtype_bytes, name, where="dtype") if name else None) or ("float", 4)
    matrix_bytes = faults.attempt(_checked_matrix, matrix, ops) if ops else None
    redop = read_choice(redop, "redop", "reduction", REDUCTIONS, faults)
    channels = None if channels is None else _channels(channels, faults)
    proto = None if proto is None else read_choice(proto, "proto", "protocol", PROTOCOLS, faults)
    root = read_whole(root, "root", "root", "the rank of the root, such as 0", faults)
    chooser = None if library is None else faults.attempt(_library, library, where="library")
    variables = _variables(environment, faults)
    faults.attempt(_check_environment, variables, where="environment")
    gpus_per_thread = _at_least_one(gpus_per_thread, faults)
    grouping = faults.attempt(parse_grouping, split, groups, over, max(gpus_per_thread, 1))
    loads = faults.attempt(parse_loads, load)
    seeds = faults.attempt(parse_seeds, hash_seeds)
    launch = read_choice(launch, "launch", "launch", LAUNCHES, faults)
    within = faults.attempt(parse_tolerance, tolerance)
    faults += [
        Fault(f"{name} {shown(value)} is not true or false", name, "pass True or False")
        for name, value in (("registered", registered), ("reduce", reduce), ("bracket", bracket))
        if not isinstance(value, bool | np.bool_)
    ]
    algos = read_names(algo, "algo", "algorithm", f"a name, or one of {', '.join(CHOICES)}", faults)
    faults += _algorithm_faults(ops, algos)
    faults += [
        Fault(f"{name} does not run with {proto}", "proto", f"it has {' and '.join(RUNS_WITH[name])}")
        for name in algos
        if proto in PROTOCOLS and proto not in RUNS_WITH.get(name, PROTOCOLS)
    ]
    faults.raise_any()
    return Question(
        ops=ops,
        sizes=sizes or (),
        algo=algos,
        channels=channels,
        chunk_bytes=chunk_bytes,
        dtype=dtype,
        element_bytes=element_bytes,
        redop=redop,
        root=root,
        matrix_bytes=matrix_bytes,
        proto=proto,
        library=chooser,
        environment=variables,
        launch=launch,
        registered=bool(registered),
        reduce=bool(reduce),
        tolerance=within,
        bracket=bool(bracket),
        gpus_per_thread=gpus_per_thread,
        grouping=grouping,
        load=loads or (),
        hash_seeds=seeds or (),
    )


def _channels(value: Any, faults: Faults) -> int:
    """Return a number of channels."""
    hint = f"between 1 and {MOST_CHANNELS}"
    before = len(faults)
    channels = read_whole(value, "channels", "channels", hint, faults)
    if len(faults) == before and not 1 <= channels <= MOST_CHANNELS:
        faults.append(Fault(f"{shown(channels)} channels", "channels", hint))
    return channels


def _at_least_one(value: Any, faults: Faults) -> int:
    """Return a number of GPUs that a thread serves."""
    before, where = len(faults), "gpus_per_thread"
    count = read_whole(value, where, "GPUs per thread", "a number such as 8", faults)
    if len(faults) == before and not 1 <= count <= MOST_GPUS_PER_THREAD:
        faults.append(Fault(f"{shown(count)} GPUs per thread", where, f"between 1 and {MOST_GPUS_PER_THREAD}"))
    return count


def _variables(environment: Any, faults: Faults) -> dict[str, str]:
    """Return variables of the environment as text."""
    if environment is None:
        return {}
    hint = 'write {"NCCL_ALGO": "Ring"}'
    if not isinstance(environment, Mapping):
        faults.append(Fault(f"{shown(environment)} is not a mapping of variables", "environment", hint))
        return {}
    variables = {}
    for name, value in environment.items():
        if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, str | int | np.integer):
            faults.append(Fault(f"{shown(name)} = {shown(value)} is not a variable with a text", "environment", hint))
        else:
            variables[name] = value if isinstance(value, str) else shown(value)
    return variables


def _library(library: str | Library) -> Library:
    from collsim.library import Library, load_library

    if not isinstance(library, str | Library):
        hint = "write a name and version such as nccl-2.28"
        raise InputError(Fault(f"library {shown(library)} is not a name", "library", hint))
    return load_library(library)


def _check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that are unknown."""
    if environment:
        from collsim.library import read_environment

        read_environment(environment)


def _sizes(size: Any) -> tuple[int, ...]:
    """Return sizes in bytes."""
    faults = Faults()
    entries = read_items(size, "size", "name at least one, such as 64M", faults, "the list of sizes is empty")
    sizes = [faults.attempt(parse_size_bytes, entry, "size", allow_zero=False) for entry in entries]
    faults.raise_any()
    return tuple(number for number in sizes if number is not None)


def _checked_matrix(matrix: Any, ops: Sequence[Operation]) -> Int | None:
    """Return the byte matrix as int64[n, n]; exactly all_to_all_v needs one."""
    wants = any(op.name == "all_to_all_v" for op in ops)
    if matrix is None:
        if wants:
            hint = "one row per sender, one column per receiver"
            raise InputError(Fault("all_to_all_v needs a matrix of bytes", "matrix", hint))
        return None
    if not wants:
        raise InputError(Fault("a matrix goes with all_to_all_v only", "matrix", "leave it out, or ask for that too"))
    try:
        array = np.asarray(matrix)
    except (TypeError, ValueError, OverflowError):
        hint = "give lists of equal length, one per sender"
        raise InputError(Fault("the matrix does not hold numbers only", "matrix", hint)) from None
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] < 2:
        raise InputError(Fault(f"the matrix has shape {array.shape}", "matrix", "it must be square, at least 2 x 2"))
    exact = _whole_bytes(array)
    if exact.sum(dtype=np.float64) > MOST_MATRIX_BYTES:
        hint = "write smaller sizes"
        raise InputError(Fault(f"all entries together are more than {MOST_MATRIX_BYTES:,} bytes", "matrix", hint))
    if exact.trace() == exact.sum():
        raise InputError(Fault("no rank sends anything to another", "matrix", "give some rank something to send"))
    return exact


def _whole_bytes(array: Any) -> Int:
    """Return the entries of an array as int64, or raise the first that is not a whole number of bytes."""
    if array.dtype.kind == "i":
        bad = array < 0
    elif array.dtype.kind == "u":
        bad = array > MAX_SIZE_BYTES
    elif array.dtype.kind == "f":
        bad = ~((array >= 0) & (array < float(MAX_SIZE_BYTES)) & (array == np.floor(array)))
    elif array.dtype.kind == "O":
        bad = np.array([[not _is_bytes(entry) for entry in row] for row in array.tolist()])
    else:
        hint = "give whole bytes, 0 or more"
        raise InputError(Fault(f"the matrix does not hold numbers only, but {array.dtype.name}", "matrix", hint))
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        hint = f"give whole bytes, 0 to {MAX_SIZE_BYTES:,}"
        entry = array[row, column : column + 1].tolist()[0]
        raise InputError(Fault(f"entry ({row}, {column}) is {shown(entry)}", "matrix", hint))
    exact: Int = array.astype(np.int64)
    return exact


def _is_bytes(entry: Any) -> bool:
    """Return whether *entry* is a whole number of bytes that fits."""
    if isinstance(entry, bool) or not isinstance(entry, int | float | np.number):
        return False
    return bool(0 <= entry <= MAX_SIZE_BYTES and entry == int(entry))


def _algorithm_faults(ops: Sequence[Operation], names: Sequence[str]) -> list[Fault]:
    """Return what is wrong with the algorithms for each operation."""
    faults = Faults()
    for op in ops:
        if not algorithms_for(op.name):
            able = sorted({name for entry in ALGORITHMS for name in entry.ops})
            faults.append(
                Fault(f"no algorithm carries out {op.name} yet", "op", f"there are some for {', '.join(able)}")
            )
            continue
        for name in names:
            if name not in CHOICES:
                faults.attempt(algorithm, op.name, name, where="algo")
    return faults


def rank_groups(
    topology: Topology,
    ranks: int | Sequence[int] | None,
    rank_list: Sequence[int] | None,
    question: Question,
    placement: str | Path | None = None,
) -> list[list[int]]:
    """Return the GPUs of each run, in the order of its ranks; check that its groups and loads fit the topology.

    Raises
    ------
    InputError
        Every fault at once.
    """
    if ranks is not None and rank_list is not None:
        raise InputError(Fault("both a number of ranks and a rank list", "ranks", "give one of the two"))
    if placement is not None and rank_list is not None:
        raise InputError(Fault("both a placement and a rank list", "placement", "give one of the two"))
    everyone = topology.n_gpus
    size = None if question.matrix_bytes is None else len(question.matrix_bytes)
    faults = Faults()
    counts = [] if ranks is None else _counts(ranks, topology, faults)
    listed = None if rank_list is None else _gpus(rank_list, topology, faults)
    if size is not None and size > everyone:
        hint = f"give {everyone} rows and columns, or fewer"
        faults.append(Fault(f"the matrix is for {size} ranks, {topology.name} has {everyone} GPUs", "matrix", hint))
    faults.raise_any()
    order = list(range(everyone))
    if placement is not None:  # names and places of all GPUs take a while on a large machine
        gpu_names = topology.wiring.node_names[:everyone]
        order = faults.attempt(lambda: placed(placement, gpu_names, _pods(topology))) or order
    faults.attempt(lambda: question.load and free_shares(question.load, topology.wiring.link_names))
    default = size if size is not None and question.grouping is None else len(order)
    groups = [listed] if listed is not None else [order[:n] for n in counts or [default]]
    for group in groups:
        faults += _group_faults(group, size, question)
    if too_many := [n for n in counts if n > len(order)]:
        faults.append(Fault(f"{too_many[0]} ranks, the placement has {len(order)}", "ranks", "add hosts to the file"))
    if placement not in (None, "block") and len(groups) > 1:
        faults.append(Fault("a placement of several numbers of ranks", "placement", "give one number of ranks"))
    faults.raise_any()
    return groups


def _pods(topology: Topology) -> list[int] | None:
    """Return the block of nodes with common leaves that each GPU is in; None where leaves do not make blocks."""
    if topology.cluster is None or topology.cluster.spec.fabric == "dragonfly":
        return None
    pods: list[int] = topology.wiring.coordinates.pod.tolist()
    return pods


def _group_faults(gpus: Sequence[int], matrix_ranks: int | None, question: Question) -> list[Fault]:
    """Return what is wrong with the groups of a run, or with what each of them is to do."""
    faults = Faults()
    groups = faults.attempt(question.groups_of, gpus)
    if not groups:
        return faults
    n, noun = len(groups[0]), "the run" if question.grouping is None else "each group"
    if matrix_ranks not in (None, n):
        hint = f"give {n} rows and columns" + ("" if question.grouping else f", or run {matrix_ranks} ranks")
        faults.append(Fault(f"the matrix is for {matrix_ranks} ranks, {noun} has {n}", "matrix", hint))
    if not 0 <= question.root < n:
        faults.append(Fault(f"root {shown(question.root)} is out of range", "root", f"0 to {n - 1}"))
    return faults


def _counts(ranks: Any, topology: Topology, faults: Faults) -> list[int]:
    """Return numbers of ranks, one for each run."""
    hint = f"{topology.name} takes 2 to {topology.n_gpus}"
    before = len(faults)
    counts = [read_whole(entry, "ranks", "ranks", hint, faults) for entry in read_items(ranks, "ranks", hint, faults)]
    if len(faults) > before:
        return []
    faults += [
        Fault(f"{shown(count)} ranks on {topology.n_gpus} GPUs", "ranks", hint)
        for count in counts
        if not 2 <= count <= topology.n_gpus
    ]
    return counts


def _gpus(rank_list: Any, topology: Topology, faults: Faults) -> list[int]:
    """Return the GPUs that a run uses; a list names them as the machine does in which nothing failed."""
    everyone = topology.n_gpus if topology.damage is None else topology.damage.healthy.n_gpus
    left = range(everyone) if topology.damage is None else topology.damage.gpus
    hint = f"{topology.name} has GPUs 0 to {everyone - 1}"
    entries = read_items(rank_list, "rank_list", hint, faults)
    before = len(faults)
    gpus = [read_whole(entry, "rank_list", "GPU", f"write [0, 1, 2]; {hint}", faults) for entry in entries]
    if len(faults) > before or not entries:
        return []
    if outside := sorted({gpu for gpu in gpus if not 0 <= gpu < everyone}):
        faults.append(Fault(f"{_named(outside)} out of range", "rank_list", hint))
    if failed := sorted({gpu for gpu in gpus if 0 <= gpu < everyone and gpu not in left}):
        faults.append(Fault(f"{_named(failed)} among what failed", "rank_list", f"{len(left)} GPUs are left"))
    if repeated := sorted(gpu for gpu, times in Counter(gpus).items() if times > 1):
        faults.append(Fault(f"{_named(repeated)} named more than once", "rank_list", "name each GPU once"))
    if len(gpus) < 2:
        hint = "name two or more, such as [0, 1]"
        faults.append(Fault(f"a collective needs at least 2 GPUs, this is {len(gpus)}", "rank_list", hint))
    return [left.index(gpu) for gpu in gpus if gpu in left]


def _named(ranks: Sequence[int]) -> str:
    """Return a few ranks for a message, with the verb that follows."""
    if len(ranks) == 1:
        return f"GPU {shown(ranks[0])} is"
    more = f" and {len(ranks) - 5} more" if len(ranks) > 5 else ""
    return f"GPUs {', '.join(map(shown, ranks[:5]))}{more} are"
