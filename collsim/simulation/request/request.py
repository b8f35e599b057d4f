"""The request of a caller, checked as a whole: every fault in one report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collsim.collectives import ALGORITHMS, algorithm, algorithms_for, protocols_of
from collsim.core.errors import Fault, Faults, InputError
from collsim.core.kinds import shown
from collsim.core.operations import DTYPES, OPERATIONS, Operation, dtype_bytes, operation
from collsim.core.units import MAX_SIZE_BYTES, format_count
from collsim.fabric.fabric import Int
from collsim.simulation.request.checks import MOST_CHANNELS, PROTOCOLS, truth
from collsim.simulation.request.fields import BOUNDS, BY_NAME, FIELDS, SCALE_OUT, Request
from collsim.simulation.request.groups import parse_grouping
from collsim.simulation.request.loads import free_shares
from collsim.simulation.request.matrices import load_byte_matrix
from collsim.simulation.request.placement import placed
from collsim.simulation.request.sizes import read_sizes
from collsim.simulation.request.values import in_known_case, read_items, read_name, read_names, read_whole
from collsim.topology import Topology

__all__ = ["CHOICES", "MOST_CHANNELS", "PROTOCOLS", "Request", "algorithm_names", "ask", "rank_groups"]

MOST_MATRIX_BYTES = 2**62
"""All entries of a byte matrix together; sums stay exact far beyond what anyone sends."""
CHOICES = ("auto", "best", "all")
"""Values of `algo` besides the names of algorithms."""
OF_A_MACHINE = ("topo", *SCALE_OUT, "ranks", "rank_list", "profile", "placement", "overrides", "fail", "degrade")
WITHOUT_TOPOLOGY = tuple(entry.name for entry in FIELDS if entry.name not in (*OF_A_MACHINE, "op", "size", "algo"))
ON_THEIR_OWN = tuple(name for name in WITHOUT_TOPOLOGY if BY_NAME[name].check or BY_NAME[name].kind == "flag")
"""Fields whose value does not depend on another."""


def algorithm_names() -> list[str]:
    """Return the names of all algorithms, after those of the choices."""
    return [*CHOICES, *dict.fromkeys(entry.name for entry in ALGORITHMS)]


def ask(op: Any, size: Any = None, algo: Any = "auto", **asked: Any) -> Request:
    """Check a request; the parameters are those of `collsim.simulate` that need no topology to be checked.

    Raises
    ------
    InputError
        Every fault at once.
    """
    given = {name: BY_NAME[name].default for name in WITHOUT_TOPOLOGY}
    if unknown := [name for name in asked if name not in given]:
        raise TypeError(f"ask() got an unexpected keyword argument '{unknown[0]}'")
    given |= asked
    faults = Faults()
    checked: dict[str, Any] = {}

    def check(*names: str) -> None:
        for name in names:
            entry = BY_NAME[name]
            parse = entry.checked if entry.check else partial(truth, name)
            checked[entry.attribute or name] = faults.attempt(parse, given[name])

    hint = f"name one of {', '.join(OPERATIONS)}"
    names = read_names(op, "op", "operation", hint, faults)
    ops = tuple(found for name in names if (found := faults.attempt(operation, name, where="op")))
    sizes = faults.attempt(read_sizes, size, **{name: given[name] for name in BOUNDS})
    if size is not None and ops and all(entry.name == "all_to_all_v" for entry in ops):
        faults.append(Fault("the matrix decides the size of all_to_all_v", "size", "leave out the size"))
    check("chunk")
    dtype, element_bytes = faults.attempt(_dtype, given["dtype"], where="dtype") or ("float", 4)
    matrix_bytes = faults.attempt(_checked_matrix, given["matrix"], ops) if ops else None
    check("redop", "channels", "proto", "root", "library", "environment", "gpus_per_thread")
    threads = checked["gpus_per_thread"] or 1
    grouping = faults.attempt(parse_grouping, given["split"], given["groups"], given["over"], threads)
    check("load", "hash_seeds", "launch", "tolerance")
    check(*(name for name in ON_THEIR_OWN if (BY_NAME[name].attribute or name) not in checked))
    algos = read_names(algo, "algo", "algorithm", f"a name, or one of {', '.join(CHOICES)}", faults)
    spelled = (*CHOICES, *(entry.name for entry in ALGORITHMS))
    algos = tuple(in_known_case(name, spelled) for name in algos)
    faults += _algorithm_faults(ops, algos)
    faults += _protocol_faults(algos, checked["proto"])
    faults.raise_any()
    return Request(
        ops=ops,
        sizes=sizes or (),
        algo=algos,
        dtype=dtype,
        element_bytes=element_bytes,
        matrix_bytes=matrix_bytes,
        grouping=grouping,
        **checked,
    )


def _dtype(value: Any) -> tuple[str, int]:
    """Return a data type under the name that nccl-tests prints, and the bytes of an element."""
    faults = Faults()
    name = read_name(value, "dtype", "data type", DTYPES, faults)
    faults.raise_any()
    return dtype_bytes(name)


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
    if isinstance(matrix, str | Path):
        matrix = load_byte_matrix(matrix)
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
    """Return True if *entry* is a whole number of bytes from 0 to `MAX_SIZE_BYTES`."""
    if isinstance(entry, bool) or not isinstance(entry, int | float | np.number):
        return False
    return bool(0 <= entry <= MAX_SIZE_BYTES and entry == int(entry))


def _algorithm_faults(ops: Sequence[Operation], names: Sequence[str]) -> list[Fault]:
    """Return the faults of the named algorithms, for each operation."""
    faults = Faults()
    for op in ops:
        if not algorithms_for(op.name):
            able = sorted({name for entry in ALGORITHMS for name in entry.ops})
            faults.append(
                Fault(f"no algorithm carries out {op.name} yet", "op", f"there are some for {', '.join(able)}")
            )
            continue
    fits = {name: [op for op in ops if _carries_out(name, op)] for name in names}
    for name, ops_of_it in fits.items():
        for op in ops if not ops_of_it else ():
            faults.attempt(algorithm, op.name, name, where="algo")
    return faults


def _carries_out(name: str, op: Operation) -> bool:
    """Return True if a choice or an algorithm of that name does *op*."""
    return name in CHOICES or any(name == entry.name and op.name in entry.ops for entry in ALGORITHMS)


def _protocol_faults(names: Sequence[str], proto: str | None) -> list[Fault]:
    """Return which algorithms do not run with a protocol, if none does; else the others are answered."""
    lacking = [name for name in names if proto in PROTOCOLS and proto not in protocols_of(name)]
    if len(lacking) < len(names):
        return []
    return [
        Fault(f"{name} does not run with {proto}", "proto", f"it has {' and '.join(protocols_of(name))}")
        for name in lacking
    ]


def rank_groups(
    topology: Topology,
    ranks: int | Sequence[int] | None,
    rank_list: Sequence[int] | None,
    question: Request,
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
        faults.append(
            Fault(
                f"the matrix is for {size} ranks, {topology.name} has {format_count(everyone, 'GPU')}", "matrix", hint
            )
        )
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


def _group_faults(gpus: Sequence[int], matrix_ranks: int | None, question: Request) -> list[Fault]:
    """Return the faults of the groups of a run, and of the matrix and the root that each of them is given."""
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
    lost = 0 if topology.damage is None else topology.damage.healthy.n_gpus - topology.n_gpus
    hint = f"{topology.name} takes 2 to {topology.n_gpus}" + f": it has lost {lost}" * bool(lost)
    before = len(faults)
    counts = [read_whole(entry, "ranks", "ranks", hint, faults) for entry in read_items(ranks, "ranks", hint, faults)]
    if len(faults) > before:
        return []
    faults += [
        Fault(f"{shown(count)} ranks on {format_count(topology.n_gpus, 'GPU')}", "ranks", hint)
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
        hint = f"name two or more of {topology.name}, such as 0 and 1"
        faults.append(Fault(f"a collective needs at least 2 GPUs, this is {len(gpus)}", "rank_list", hint))
    return [left.index(gpu) for gpu in gpus if gpu in left]


def _named(ranks: Sequence[int]) -> str:
    """Return a few ranks for a message, with the verb that follows."""
    if len(ranks) == 1:
        return f"GPU {shown(ranks[0])} is"
    more = f" and {len(ranks) - 5} more" if len(ranks) > 5 else ""
    return f"GPUs {', '.join(map(shown, ranks[:5]))}{more} are"
