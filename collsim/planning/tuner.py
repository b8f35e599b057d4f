"""`tune`: algorithm, protocol and channels of a library by size, simulated, beside what it chooses by itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from collsim._version import __version__
from collsim.core.errors import Fault, Faults, InputError, ModelError, did_you_mean
from collsim.core.operations import operation
from collsim.core.progress import steps
from collsim.planning.tuner_csv import ALGORITHMS, ANY, COLLECTIVES
from collsim.planning.tuning import Option, TunedSize, Tuning
from collsim.simulation.request.arguments import Arguments
from collsim.simulation.request.prepare import prepare
from collsim.simulation.result import Result, Row
from collsim.simulation.simulate import simulate

__all__ = ["check_tuning", "tune"]

PROTOCOLS = ("LL", "LL128", "Simple")
WORDS = {"nvls_tree": "NVLSTree", "collnet_direct": "CollnetDirect", "collnet_chain": "CollnetChain", "pat": "PAT"}
RAN = {"chain": "tree", "nvls_sharp": "nvls"}
"""What runs for the library's algorithm of another name: a tree in one domain is a chain."""
FOUND = ("algo", "proto", "channels")
"""Arguments of `simulate` that tuning finds."""
OURS = ("NCCL_ALGO", "NCCL_PROTO")
CONTENDERS = 2
"""Pairs of algorithm and protocol at each size with which numbers of channels are tried."""
CHANNELS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
LARGE_BYTES = 1 << 30
"""Enough for all channels of a communicator, beyond which no rule goes."""
WORTH_SAYING = 1.02
"""A number of channels is a part of the choice if it is so much faster than the library's own (chosen)."""
ASSUMED, MOST_ASSUMED = "assumed", 0.5
"""Status of constants that no log fixed, and how much of the time beside that of wires may follow them (chosen)."""
HOST_GPUS = 16
"""The most GPUs of a host; a larger domain is a rack of hosts, whose number the plugin is not asked to match."""
OPS = ("all_reduce", "all_gather", "reduce_scatter")
"""What is tuned by default."""
Place = tuple[str, int, int]


def tune(
    topo: Any,
    op: str | Sequence[str] = OPS,
    size: int | str | Sequence[int | str] | None = None,
    *,
    band: float | None = None,
    search_channels: bool = True,
    **asked: Unpack[Arguments],
) -> Tuning:
    """Find the best algorithm, protocol and channels of a library by size.

    Parameters
    ----------
    topo, op, size
        As of `collsim.simulate`; operations that the tuner plugin of NCCL knows.
    band : float, optional
        Error of a ratio of predicted times, such as 0.1, in place of that of the profile's measured rows.
    search_channels : bool
        Whether numbers of channels are tried as well. Nobody measured how far off these are: they are taken to be as
        far off as the same algorithm and protocol with the library's channels.
    **asked
        What else `collsim.simulate` takes, but ``algo``, ``proto`` and ``channels``.

    Raises
    ------
    InputError
        Everything that is wrong with the request, at once.
    ModelError
        The model has no answer.

    Examples
    --------
    >>> tuning = tune("hgx_h100", "all_reduce", ["1M", "256M"], search_channels=False)
    >>> [(row.library.label, row.best.label) for row in tuning]
    [('ring/LL', 'ring/LL'), ('nvls/Simple', 'nvls/Simple')]
    """
    check_tuning(topo, op, size, band=band, **asked)
    environment = dict(asked.get("environment") or {})
    usual = simulate(topo, op, size, **asked)
    library = usual.profile["library"]
    if library is None or not library.startswith(("nccl", "rccl")):
        what = (
            f"{library} has no tuner" if library else f"the profile {usual.profile['name']} follows no library to tune"
        )
        raise InputError(Fault(what, "library", "name one, such as nccl-2.28"))
    nodes = _nodes_of(topo, op, size, asked)
    options: dict[Place, list[Option]] = defaultdict(list)
    for algo, proto in steps([(algo, proto) for algo in ALGORITHMS for proto in PROTOCOLS], "choice"):
        forced = {**environment, "NCCL_ALGO": WORDS.get(algo, algo.upper()), "NCCL_PROTO": proto}
        for row in _rows(topo, op, size, {**asked, "environment": forced}):
            if _name(row) == (algo, proto):
                options[_place(row)].append(_option(row))
    if search_channels:
        _try_channels(topo, options, environment, asked)
    rows = [_tuned(row, options[_place(row)], nodes, band) for row in usual.rows]
    rows.sort(key=lambda row: (list(COLLECTIVES).index(row.op), row.ranks, row.size_bytes))
    registered = bool(asked.get("registered"))
    return Tuning(
        __version__, usual.topology["name"], usual.profile["name"], library, registered, tuple(rows), usual.warnings
    )


def check_tuning(topo: Any, op: str | Sequence[str] = OPS, size: Any = None, *, band: Any = None, **asked: Any) -> None:
    """Raise all that is wrong: with what only `tune` asks, and with what `simulate` would say."""
    faults = Faults()
    for name in op.split(",") if isinstance(op, str) else op if isinstance(op, list | tuple) else ():
        known = faults.attempt(operation, name.strip(), where="op") if isinstance(name, str) else None
        if known is not None and known.name not in COLLECTIVES:
            hint = f"{did_you_mean(known.name, list(COLLECTIVES))}it knows {', '.join(COLLECTIVES)}"
            faults.append(Fault(f"the tuner plugin knows no {known.name}", "op", hint))
    number = not isinstance(band, bool) and isinstance(band, int | float)
    if band is not None and not (number and 0 <= band <= 1):
        faults.append(Fault(f"{band!r} is no error", "band", "such as 0.1 for 10 %"))
    for name in FOUND:
        if name in asked:
            faults.append(Fault("tuning finds it", name, "leave it out"))
    environment = asked.get("environment") or {}
    faults += [Fault("tuning sets it", f"--env {name}", "leave it out") for name in OURS if name in environment]
    faults.attempt(prepare, topo, op, size, **{name: value for name, value in asked.items() if name not in FOUND})
    faults.raise_any()


def _nodes_of(topo: Any, op: Any, size: Any, asked: Mapping[str, Any]) -> dict[int, int]:
    """Return the nodes of each number of ranks as the plugin counts hosts; -1 where a domain is more than a host."""
    topology, _, _, groups = prepare(topo, op, size, **asked)
    per_node = topology.n_gpus if topology.cluster is None else topology.cluster.spec.gpus_per_node
    if per_node > HOST_GPUS:
        return {len(gpus): ANY for gpus in groups}
    return {len(gpus): len({gpu // per_node for gpu in gpus}) for gpus in groups}


def _rows(topo: Any, op: Any, size: Any, asked: Mapping[str, Any]) -> Iterable[Row]:
    """Return the rows of a forced choice, none of operations for which it leaves nothing."""
    found: list[Row] = []
    for name in op.split(",") if isinstance(op, str) else op:
        try:
            result: Result = simulate(topo, name, size, **asked)
        except (InputError, ModelError):
            continue
        found += result.rows
    return found


def _name(row: Row) -> tuple[str, str]:
    return RAN.get(row.algo, row.algo), row.proto or ""


def _place(row: Row) -> Place:
    return row.op, row.ranks, row.size_bytes


def _option(row: Row, channels: int = ANY, band: float | None = None) -> Option:
    """Return a row as an option; *band* is its error if the row has none.

    Errors of a profile are of what its logs chose: they say nothing of a protocol whose constants are assumed.
    """
    if row.time_lo_s and row.time_hi_s:
        band = math.log(row.time_hi_s / row.time_lo_s) / 2
    own = [limit for limit in row.limits if limit.utilisation is None]
    assumed_s = sum(limit.time_s for limit in own if limit.status == ASSUMED)
    backed = assumed_s <= MOST_ASSUMED * sum(limit.time_s for limit in own)
    return Option(*_name(row), channels, row.time_s, band if backed else None, row.limited_by)


def _try_channels(
    topo: Any, options: dict[Place, list[Option]], environment: Mapping[str, str], asked: Mapping[str, Any]
) -> None:  # fmt: skip
    """Add options with numbers of channels for the fastest pairs of algorithm and protocol at each size."""
    wanted: dict[tuple[str, str, str, int], list[tuple[int, float | None]]] = defaultdict(list)
    for (op, ranks, size_bytes), found in options.items():
        for option in sorted(found, key=lambda each: each.time_s)[:CONTENDERS]:
            wanted[op, option.algo, option.proto, ranks].append((size_bytes, option.band))
    rest = {
        name: value
        for name, value in asked.items()
        if name not in ("min_bytes", "max_bytes", "step_bytes", "step_factor")
    }
    for (op, algo, proto, ranks), sizes in wanted.items():
        forced = {**environment, "NCCL_ALGO": WORDS.get(algo, algo.upper()), "NCCL_PROTO": proto}
        bands = dict(sizes)
        question = {**rest, "environment": {**forced, "NCCL_PROTO": "Simple"}}
        most = max((row.channels for row in _rows(topo, op, LARGE_BYTES, question) if row.ranks == ranks), default=0)
        for channels in sorted({most, *(number for number in CHANNELS if number < most)} - {0}):
            question = {**rest, "environment": forced, "channels": channels}
            for row in _rows(topo, op, list(bands), question):
                if _name(row) == (algo, proto) and row.ranks == ranks and row.channels == channels:
                    options[_place(row)].append(_option(row, channels, bands.get(row.size_bytes)))


def _tuned(usual: Row, found: Sequence[Option], nodes: Mapping[int, int], band: float | None) -> TunedSize:
    """Return a size with the library's choice and the best; channels count where they are worth saying."""
    library = _option(usual)
    ordered = sorted([*found, library], key=lambda each: (each.time_s, each.channels != ANY))
    best = ordered[0]
    if best.channels != ANY:
        same = [each for each in ordered if (each.algo, each.proto, each.channels) == (best.algo, best.proto, ANY)]
        best = same[0] if same and same[0].time_s < WORTH_SAYING * best.time_s else best
    if best.time_s >= library.time_s:
        best = library
    options = tuple(dict.fromkeys(ordered))
    return TunedSize(usual.op, usual.ranks, nodes.get(usual.ranks, ANY), usual.size_bytes, library, best, options, band)
