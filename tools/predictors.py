"""Measured rows, and the predictors that tools/accuracy.py compares on them."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import collsim
from collsim.calibration.cases import used_time_s
from collsim.core.errors import CollsimError
from collsim.core.operations import DTYPES
from collsim.library import (
    DEFAULT_LIBRARY,
    Call,
    Choice,
    Profile,
    choose,
    load_library,
    load_profile,
    profile_for,
    read_environment,
    system_of,
)
from collsim.library.costs.hosts import around_s, as_usual_s, in_a_row
from collsim.simulation.result import Row
from collsim.topology import Topology, load_topology

DATA = Path(__file__).parent / "data"
MESSAGES = ("all_to_all", "send_recv", "gather", "scatter")
OLDEST = {"nccl": "nccl-2.18", "rccl": "rccl-2.22"}
"""Versions assumed for logs that do not name one: RCCL's at the time of those logs; NCCL's is the default."""


class TableCase(NamedTuple):
    """A run as far as a table of tools/data describes it: all that a prediction may depend on."""

    system: str
    library: str
    launch: str
    env: str
    nvls: str
    gpus_per_thread: int
    ranks: int
    op: str
    dtype: str
    size_bytes: int
    matrix: str
    scale: float
    nodes: int = 0
    host: str = "auto"
    calls: int | None = None
    replays: int | None = None


class TableRow(NamedTuple):
    """One row of a table of tools/data with what the split says of its log; times in seconds."""

    log: str
    case: TableCase
    time_s: float
    out_of_place_s: float
    in_place_s: float | None
    set: str
    kind: str
    site: str
    repeat: str
    health: str
    spike: bool


class Prediction(NamedTuple):
    """A time with its 90 % interval, where there is one."""

    time_s: float
    lo_s: float | None = None
    hi_s: float | None = None


Predictor = Callable[[TableCase], Prediction | None]
"""Returns None where it has no answer."""


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def measured_rows(folder: Path = DATA) -> list[TableRow]:
    """Return all measured rows."""
    split = {entry["log"]: entry for entry in read_csv(folder / "split.csv")}
    systems = sorted({entry["system"] for entry in split.values()} - {"none"})
    return [
        measured(row, split[row["log"]])
        for system in systems
        for row in read_csv(folder / f"{system}.csv")
    ]  # fmt: skip


def measured(row: Mapping[str, str], entry: Mapping[str, str]) -> TableRow:
    """Return one row."""
    out_s = float(row["out_of_place_us"]) * 1e-6
    in_s = float(row["in_place_us"]) * 1e-6 if row["in_place_us"] else None
    case = TableCase(
        row["system"], row["library"], row["launch"], row["env"], row["nvls"], int(row["gpus_per_thread"] or 0),
        int(row["ranks"]), row["op"], row["dtype"], int(row["size_bytes"]), row["matrix"], float(row["scale"] or 1),
        int(row.get("nodes") or 0), entry["host"] or "auto", int(entry["calls"]) if entry["calls"] else None,
        int(entry["replays"]) if entry["replays"] else None,
    )  # fmt: skip
    time_s = used_time_s(out_s, in_s, row["system"])
    return TableRow(
        row["log"], case, time_s, out_s, in_s, entry["set"], entry["kind"], entry["site"], entry["repeat"],
        row["health"], row["flag"] == "spike",
    )  # fmt: skip


@cache
def matrix_bytes(name: str, scale: float) -> tuple[tuple[int, ...], ...]:
    """Return a byte matrix at a scale."""
    lines = (DATA / "matrices" / f"{name}.csv").read_text(encoding="ascii").splitlines()
    return tuple(tuple(int(int(word) * scale) for word in line.split(",")) for line in lines)


def variables(case: TableCase) -> dict[str, str]:
    """Return the environment of a run that changes the library's choice; NVLS that the machine hid counts as off."""
    words = dict(word.split("=", 1) for word in case.env.split())
    return words | ({"NCCL_NVLS_ENABLE": "0"} if case.nvls == "off" else {})


def topo_of(system: str) -> str:
    """Return the argument of `collsim.simulate` for a system: a name of the zoo or a file of tools/data/systems."""
    own = DATA / "systems" / f"{system}.yaml"
    return str(own) if own.is_file() else system


@cache
def topology_of(system: str) -> Topology:
    """Return the topology of a system."""
    return load_topology(topo_of(system))


@cache
def library_of(name: str) -> str:
    """Return a library whose constants are known: the nearest version, the default where the log names none."""
    if "-" not in name:
        return OLDEST["rccl"] if name == "rccl" else DEFAULT_LIBRARY
    try:
        return load_library(name).name
    except CollsimError:
        return OLDEST[name.partition("-")[0]]


# --- collsim ---------------------------------------------------------------------------------------------------------


@cache
def profile_of(system: str) -> str:
    """Return the profile that collsim takes for a system."""
    return profile_for(topology_of(system))


@cache
def lent_profile(system: str) -> Profile:
    """Return that profile with its intervals on a relative too, where collsim shows none: the page counts them."""
    profile = load_profile(profile_of(system), topology_of(system))
    cluster, network = topology_of(system).cluster, profile.network
    if cluster is not None:
        technologies = (cluster.spec.network, *network.networks)
        network = replace(network, systems=(*network.systems, system), networks=technologies)
    return replace(profile, systems=(*profile.systems, system), network=network)


def gpus_of(case: TableCase) -> list[int]:
    """Return the GPU of each rank: the first ones, of each node of a cluster."""
    cluster = topology_of(case.system).cluster
    if cluster is None:
        return list(range(case.ranks))
    each = case.ranks // case.nodes
    return [node * cluster.node.n_gpus + gpu for node in range(case.nodes) for gpu in range(each)]


def around_calls_s(case: TableCase) -> float:
    """Return by how much a row of few calls is longer than one of the usual number."""
    return around_s(case.library, case.calls, case.launch)


def simulate(case: TableCase, profile: Profile | None = None) -> Row:
    """Return the row that collsim predicts, told what the log says; with the shipped profile by default."""
    launch = {"launch": "graph"} if case.launch == "graph" else {"registered": case.launch == "registered"}
    options: dict[str, Any] = {"rank_list": gpus_of(case), "gpus_per_thread": max(case.gpus_per_thread, 1), **launch}
    options["host"] = case.host
    options["one_process"] = 1 < case.ranks <= case.gpus_per_thread  # one thread that starts all of them
    options["profile"] = in_a_row(
        profile or lent_profile(case.system), case.library, case.calls, case.launch, case.replays
    )
    size: int | None = case.size_bytes
    if case.op == "all_to_all_v":
        size, options["matrix"] = None, np.array(matrix_bytes(case.matrix, case.scale), dtype=np.int64)
    else:
        options["dtype"] = case.dtype
    if "-" in case.library or not load_profile(profile_of(case.system)).library:
        options["library"] = library_of(case.library)
    return collsim.simulate(topo_of(case.system), case.op, size, environment=variables(case), **options).rows[0]


def predict(case: TableCase, profile: Profile | None = None) -> Prediction | None:
    """Return the prediction of collsim, with the shipped profile by default; None if it refuses."""
    try:
        row = simulate(case, profile)
    except CollsimError:
        return None
    return Prediction(row.time_s, row.time_lo_s, row.time_hi_s)


def refusal(case: TableCase) -> str:
    """Return why collsim has no answer."""
    try:
        simulate(case)
    except CollsimError as error:
        return str(error).partition("\n")[0]
    return ""


# --- what the library itself reckons ---------------------------------------------------------------------------------


@cache
def choice_of(case: TableCase) -> Choice | None:
    """Return the choice of the library; None if it has none for the case."""
    dtype = case.dtype if case.dtype in DTYPES else "float"
    call = Call(case.op, case.ranks, case.size_bytes, dtype, registered=case.launch == "registered",
                launch="graph" if case.launch == "graph" else "stream", n_nodes=max(case.nodes, 1))  # fmt: skip
    try:
        system = system_of(topology_of(case.system), gpus_of(case), nvls=False if case.nvls == "off" else None)
        return choose(call, system, library_of(case.library), read_environment(variables(case)))
    except CollsimError:
        return None


def predict_tuner(case: TableCase) -> Prediction | None:
    """Return the time by which the library ranks its algorithms; it has none for messages."""
    choice = choice_of(case)
    return Prediction(choice.predicted_s) if choice and choice.predicted_s else None


# --- alpha and beta --------------------------------------------------------------------------------------------------


def steps_and_bytes(case: TableCase) -> tuple[int, float]:
    """Return the number of steps of the textbook, and of bytes that the busiest rank sends or receives.

    >>> steps_and_bytes(TableCase("s", "", "stream", "", "", 1, 4, "all_reduce", "float", 1000, "", 1.0))
    (6, 1500.0)
    """
    n, size = case.ranks, case.size_bytes
    if case.op == "all_to_all_v":
        table = np.array(matrix_bytes(case.matrix, case.scale))
        np.fill_diagonal(table, 0)
        return n - 1, float(max(table.sum(0).max(), table.sum(1).max()))
    if case.op == "send_recv":
        return 1, float(size)
    if case.op in ("broadcast", "reduce"):
        return n - 1, float(size)
    rounds = 2 if case.op == "all_reduce" else 1
    return rounds * (n - 1), rounds * (n - 1) / n * size


def fit_alpha_beta(rows: Iterable[tuple[float, float, float]]) -> tuple[float, float]:
    """Return (alpha, beta) for (steps, bytes, seconds), both at least 0, with the least squared relative error.

    >>> alpha, beta = fit_alpha_beta([(1, 0, 2e-6), (3, 1000, 7e-6), (6, 5000, 17e-6)])
    >>> round(alpha * 1e6, 6), round(beta * 1e9, 6)
    (2.0, 1.0)
    """
    from scipy.optimize import nnls

    table = np.array(list(rows), dtype=float)
    scale = np.array([1e-6, 1e-9])
    found, _ = nnls(table[:, :2] * scale / table[:, 2:], np.ones(len(table)))
    alpha, beta = found * scale
    return float(alpha), float(beta)


def _kind_of(op: str) -> str:
    return "messages" if op in MESSAGES or op == "all_to_all_v" else "ring"


def alpha_beta(train: Sequence[TableRow]) -> Predictor:
    """Return a predictor with alpha and beta of each system and operation.

    An operation that was not measured takes what all measured ones of its kind (rings, messages) give together; runs
    that force the algorithm count only where there is no other. Graph replay and registered buffers are fitted apart.
    What lies around a row of few calls is known here as it is to collsim.
    """
    groups: dict[tuple[str, str, bool], list[TableRow]] = defaultdict(list)
    for row in train:
        world = row.case.launch != "stream"
        groups[row.case.system, row.case.op, world].append(row)
        groups[row.case.system, _kind_of(row.case.op), world].append(row)
    fits: dict[tuple[str, str, bool], tuple[float, float]] = {}
    for key, rows in groups.items():
        free = [row for row in rows if "NCCL_ALGO" not in row.case.env and "NCHANNELS" not in row.case.env] or rows
        fits[key] = fit_alpha_beta(
            (*steps_and_bytes(row.case), as_usual_s(row.time_s, around_calls_s(row.case))) for row in free
        )

    def predict_alpha_beta(case: TableCase) -> Prediction | None:
        world = case.launch != "stream"
        for name in (case.op, _kind_of(case.op)):
            if (case.system, name, world) in fits:
                alpha, beta = fits[case.system, name, world]
                steps, sent = steps_and_bytes(case)
                return Prediction(alpha * steps + beta * sent + around_calls_s(case))
        return None

    return predict_alpha_beta


# --- the log's own host floor ----------------------------------------------------------------------------------------

TINY_BYTES = 1024
SHORTEST_S = 1e-7


def with_host_floor(rows: Sequence[TableRow], predictions: Mapping[TableCase, Prediction | None]) -> dict[int, float]:
    """Return predictions for rows of one log moved by what its tiny rows are off, by position of the row.

    How long the host takes to start a collective differs from site to site. The median over the rows up to 1 KiB tells
    it; those rows are then not scored. Empty if the log has fewer than three of them.
    """
    tiny = [row for row in rows if row.case.size_bytes <= TINY_BYTES and not row.spike]
    both = [(row.time_s, found.time_s) for row in tiny if (found := predictions.get(row.case))]
    if len(both) < 3:
        return {}
    shift_s = float(np.median([took for took, _ in both]) - np.median([said for _, said in both]))
    moved: dict[int, float] = {}
    for place, row in enumerate(rows):
        found = predictions.get(row.case)
        if found and row.case.size_bytes > TINY_BYTES:
            moved[place] = max(found.time_s + shift_s, SHORTEST_S)
    return moved
