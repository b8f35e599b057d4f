"""Tables for serving planners: nccl-tests and DeepEP on any topology, as predicted, in the layout of measured ones.

The layouts are those of the tables that NVIDIA's AIConfigurator 0.12 ships (package aiconfigurator-core,
``nccl_perf``, ``wideep_deepep_normal_perf`` and ``wideep_deepep_ll_perf``): columns, units, and what they count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from collsim._version import __version__
from collsim.core.atomic_files import check_writable, replacing
from collsim.core.errors import CollsimError, Fault, Faults, InputError, ModelError, UnknownNameError
from collsim.core.operations import dtype_bytes, operation
from collsim.core.progress import steps
from collsim.core.tabular import Tabular
from collsim.core.units import format_count
from collsim.library import load_library, load_profile
from collsim.moe import simulate_moe
from collsim.moe.models import load_model
from collsim.moe.request import sm_faults
from collsim.simulation.request.arguments import OfMachine
from collsim.simulation.request.fields import SCALE_OUT
from collsim.simulation.request.prepare import Machine
from collsim.simulation.simulate import simulate

__all__ = ["KINDS", "PlannerTable", "answer_table", "planner_table", "prepare_table"]

NCCL = (
    "framework",
    "version",
    "device",
    "op_name",
    "kernel_source",
    "nccl_dtype",
    "num_gpus",
    "message_size",
    "latency",
)
"""``message_size`` counts elements: the size column of nccl-tests over the size of an element; ``latency`` is in ms."""
EXPERTS = ("framework", "version", "device", "op_name", "kernel_source", "node_num", "hidden_size", "num_token",
           "num_topk", "num_experts")  # fmt: skip
NORMAL = (*EXPERTS, "dispatch_sms", "dispatch_transmit_us", "dispatch_notify_us", "combine_sms", "combine_transmit_us",
          "combine_notify_us")  # fmt: skip
LOW_LATENCY = (*EXPERTS, "combine_avg_t_us", "combine_bandwidth_gbps", "dispatch_avg_t_us", "dispatch_bandwidth_gbps")
KINDS = {"nccl": NCCL, "deepep": NORMAL, "deepep_ll": LOW_LATENCY}
"""Columns of each kind."""
OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
}
"""Words of the layout for operations."""
MOST = 1 << 40
"""The most of anything that a table counts (chosen: more bytes than any GPU has)."""
ELEMENTS = tuple(256 << power for power in range(22))
TOKENS = {
    "deepep": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
    "deepep_ll": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
}
MODES = {"deepep": "normal", "deepep_ll": "low_latency"}
FRAMEWORK = "collsim"
ELSEWHERE = {"nccl": ("model", "tokens", "sms"), "deepep": ("op", "dtype", "elements", "library")}
"""Arguments that only tables of the other kinds have."""
Record = dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class PlannerTable(Tabular):
    """Table in the layout of a kind: *rows* with its columns, and what could not be answered."""

    version: str
    kind: str
    topology: str
    rows: tuple[Mapping[str, Any], ...]
    refused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.planner_table/1``."""
        return {
            "schema": "collsim.planner_table/1",
            "collsim": self.version,
            "kind": self.kind,
            "topology": self.topology,
            "rows": [dict(row) for row in self.rows],
            "refused": list(self.refused),
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows: exactly the columns of the layout, in its units."""
        return [dict(row) for row in self.rows]

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows as Parquet, whole or not at all.

        Raises
        ------
        ImportError
            Polars is not installed: ``pip install 'collsim[frames]'``.
        InputError
            The file cannot be written.
        """
        check_writable(str(path))
        frame = self.to_frame("polars")
        with replacing(path) as partial:
            frame.write_parquet(partial)

    def _caption(self) -> str:
        return f"{self.kind} table of {self.topology}"

    def _shown(self) -> list[dict[str, str]]:
        return [{name: f"{value:.5g}" if isinstance(value, float) else str(value) for name, value in row.items()}
                for row in self.rows]  # fmt: skip


Parts = Iterator[tuple[str, Callable[[], list[Record]]]]


class PreparedTable(NamedTuple):
    """Checked table: its kind, its machine, and what answers each part of it."""

    kind: str
    topology: Any
    parts: Parts


def planner_table(
    topo: Any,
    kind: str = "nccl",
    *,
    op: Sequence[str] | None = None,
    dtype: Sequence[str] | None = None,
    elements: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
    model: Sequence[str] | None = None,
    tokens: Sequence[int] | None = None,
    sms: Sequence[int] | None = None,
    nodes: Sequence[int] = (1,),
    profile: str = "auto",
    library: str | None = None,
    **machine: Unpack[OfMachine],
) -> PlannerTable:
    """Predict a table of measurements for a serving planner.

    Parameters
    ----------
    topo : str, path, Topology or networkx graph
        As of `collsim.simulate`.
    kind : {"nccl", "deepep", "deepep_ll"}
        nccl-tests; DeepEP in normal mode; DeepEP in low-latency mode.
    op, dtype, elements : sequences
        Of ``nccl``: operations (default: the four of the layout), types (``half`` and ``int8``), and elements of the
        size column (256 to 512 Mi by factors of two).
    ranks : sequence of int, optional
        Of ``nccl``; default: powers of two up to all GPUs, and all of them. Of ``deepep`` the first entry: over how
        many GPUs the experts are spread; default: all.
    model, tokens, sms, nodes : sequences
        Of ``deepep``: models (default: ``deepseek-v3``), tokens a rank, SMs (the kernel's) and numbers of nodes, all of
        which *ranks*, if given, have to reach. Of ``nccl`` the first
        entry of *nodes* counts.
    profile, library
        As of `collsim.simulate`.
    **machine
        ``gpus_per_node``, ``racks``, ``fabric``, ``network``, ``overrides``, ``fail`` and ``degrade``, as of
        `collsim.simulate`.

    Raises
    ------
    InputError
        Everything that is wrong with the request, at once.
    ModelError
        There is no answer to any of it.

    Examples
    --------
    >>> table = planner_table("hgx_h100", op=["all_reduce"], dtype=["half"], elements=[2**20], ranks=[8])
    >>> [(row["message_size"], row["num_gpus"], row["nccl_dtype"]) for row in table.to_records()]
    [(1048576, 8, 'half')]
    """
    asked = {name: value for name, value in locals().items() if name != "machine"}
    return answer_table(prepare_table(**asked, **machine))


def prepare_table(
    topo: Any,
    kind: str,
    *,
    op: Sequence[str] | None = None,
    dtype: Sequence[str] | None = None,
    elements: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
    model: Sequence[str] | None = None,
    tokens: Sequence[int] | None = None,
    sms: Sequence[int] | None = None,
    nodes: Sequence[int] = (1,),
    profile: str = "auto",
    library: str | None = None,
    **machine: Any,
) -> PreparedTable:
    """Check what is asked of a table, and raise every fault at once; the parameters are those of `planner_table`."""
    lists: dict[str, Any] = {"op": op, "dtype": dtype, "elements": elements, "ranks": ranks}
    lists |= {"model": model, "tokens": tokens, "sms": sms, "nodes": nodes}
    lists = {name: _once(values) for name, values in lists.items()}
    faults = Faults()
    if kind not in KINDS:
        faults.attempt(_unknown, str(kind))
    for name in ELSEWHERE["nccl" if kind == "nccl" else "deepep"] if kind in KINDS else ():
        if lists.get(name) or (name == "library" and library):
            faults.append(Fault(f"a table of kind {kind} has none", name, "leave it out, or ask for another kind"))
    names = [_operation(each, faults) for each in lists["op"] or OPS]
    dtypes = lists["dtype"] or ("half", "int8")
    for each in dtypes:
        faults.attempt(dtype_bytes, each, where="dtype")
    models = lists["model"] or ("deepseek-v3",)
    for each in models:
        faults.attempt(load_model, each)
    for name in ("elements", "tokens", "sms", "nodes", "ranks"):
        counts = lists[name] or ()
        wrong = [value for value in counts if not _is_count(value) or value > MOST]
        faults += [Fault(f"{value!r} is no count", name, f"give 1 to {MOST}") for value in wrong]
    first = lists["nodes"][0] if lists["nodes"] and _is_count(lists["nodes"][0]) else 1
    topology = faults.attempt(_machine(machine, first).of, topo)
    faults.attempt(load_profile, profile, topology)
    if library is not None:
        faults.attempt(load_library, library, where="library")
    if topology is not None and kind in KINDS:
        faults += _rank_faults(kind, topology, lists)
        beyond = [sm_faults(number, topology) for number in lists["sms"] or () if _is_count(number)]
        faults += [fault for found in beyond for fault in found] if all(beyond) else []  # others are answered
    faults.raise_any()
    assert topology is not None
    asked = {**machine, "profile": profile}
    if kind == "nccl":
        shape = (names, dtypes, lists["elements"] or ELEMENTS, lists["ranks"] or _ranks(topology.n_gpus))
        parts = _nccl(topo, shape, {**asked, "nodes": first if first > 1 else None, "library": library})
    else:
        asked["ep"] = lists["ranks"][0] if lists["ranks"] else None
        shapes = (models, lists["tokens"] or TOKENS[kind], lists["sms"] or (None,), lists["nodes"] or (1,))
        parts = _experts(topo, kind, shapes, asked)
    return PreparedTable(kind, topology, parts)


def _once(values: Any) -> list[Any] | None:
    """Return each of some values once, of a single value a list; None if none are given."""
    if values is None:
        return None
    return list(dict.fromkeys([values] if isinstance(values, str | int | float) else values))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _operation(name: Any, faults: Faults) -> str:
    """Return an operation by the name that collsim gives it; add a fault if the layout has none of it."""
    found = faults.attempt(operation, name, where="op")
    if found is not None and found.name not in OPS:
        faults.append(Fault(f"the layout has no {found.name}", "op", f"it has {', '.join(OPS)}"))
    return "" if found is None else found.name


def _rank_faults(kind: str, topology: Any, lists: Mapping[str, Any]) -> list[Fault]:
    """Return what is wrong with numbers of ranks: all beyond the GPUs, or of experts, fewer than their nodes need."""
    ranks = [number for number in lists["ranks"] or () if _is_count(number)]
    if kind == "nccl":
        hint = f"{topology.name} takes 2 to {topology.n_gpus}"
        faults = [Fault(f"{n} ranks on {format_count(topology.n_gpus, 'GPU')}", "ranks", hint) for n in ranks
                  if not 2 <= n <= topology.n_gpus]  # fmt: skip
        return faults if len(faults) == len(ranks) else []  # what others ask is answered
    per_node = topology.n_gpus if topology.cluster is None else topology.cluster.spec.gpus_per_node
    nodes = [number for number in lists["nodes"] or () if _is_count(number)]
    faults = [Fault(f"{n} ranks do not reach {number} nodes of {format_count(per_node, 'GPU')}", "ranks",
                    f"give {(number - 1) * per_node + 1} or more, or fewer nodes")
              for n in ranks[:1] for number in nodes if n <= (number - 1) * per_node]  # fmt: skip
    if len(ranks) > 1:
        faults.append(Fault(f"{len(ranks)} numbers of ranks", "ranks", f"a table of kind {kind} takes one"))
    return faults


def answer_table(prepared: PreparedTable) -> PlannerTable:
    """Return the rows of a checked table, and what has no answer.

    Raises
    ------
    ModelError
        Nothing has.
    """
    kind, topology, parts = prepared
    device = topology.labels.get("gpu.model", topology.name)
    rows: list[Record] = []
    refused: list[str] = []
    for what, answer in steps(list(parts), "row"):
        try:
            rows += [_in_order(kind, {"device": device, **row}) for row in answer()]
        except CollsimError as error:
            refused += [f"{what}: {fault.what}" + f" ({fault.hint})" * bool(fault.hint) for fault in error.faults]
    if not rows:
        raise ModelError(*(Fault(line) for line in refused))
    return PlannerTable(__version__, kind, topology.name, tuple(rows), tuple(refused))


def _unknown(kind: str) -> None:
    raise UnknownNameError("kind of table", kind, KINDS, "kind")


def _machine(machine: Mapping[str, Any], nodes: int) -> Machine:
    """Return the machine of the first number of nodes."""
    cluster = {name: machine[name] for name in SCALE_OUT if machine.get(name) is not None}
    others = {name: machine.get(name) for name in ("overrides", "fail", "degrade")}
    return Machine(**others, scale_out=cluster | ({"nodes": nodes} if nodes > 1 else {}))


def _ranks(gpus: int) -> list[int]:
    """Return powers of two up to a number of GPUs, and that number.

    >>> _ranks(72)
    [2, 4, 8, 16, 32, 64, 72]
    """
    return sorted({*(1 << power for power in range(1, gpus.bit_length())), gpus} - {1})


def _in_order(kind: str, row: Mapping[str, Any]) -> Record:
    return {name: {"framework": FRAMEWORK, **row}[name] for name in KINDS[kind]}


def _nccl(
    topo: Any,
    shape: tuple[Sequence[str], Sequence[str], Sequence[int], Sequence[int]],
    asked: Mapping[str, Any],
) -> Parts:
    """Yield rows by type, ranks and operation: all sizes in one call."""
    ops, dtypes, elements, ranks = shape
    for dtype in dtypes:
        for number in ranks:
            for op in ops:
                answer = partial(_nccl_rows, topo, op, dtype, ranks=number, sizes=elements, **asked)
                yield f"{op} of {format_count(number, 'GPU')}, {dtype}", answer


def _nccl_rows(
    topo: Any, op: str, dtype: str, *, ranks: int, sizes: Sequence[int], **asked: Any
) -> list[Record]:  # fmt: skip
    _, width = dtype_bytes(dtype)
    result = simulate(topo, op, [count * width for count in sizes], ranks=ranks, dtype=dtype, **asked)
    name = result.profile["library"] or FRAMEWORK
    return [
        {
            "version": name.partition("-")[2] or __version__,
            "op_name": OPS[op],
            "kernel_source": name.partition("-")[0].upper(),
            "nccl_dtype": dtype,
            "num_gpus": ranks,
            "message_size": row.requested_bytes // width,
            "latency": row.time_s * 1e3,
        }
        for row in result.rows
    ]


def _experts(
    topo: Any,
    kind: str,
    shape: tuple[Sequence[str], Sequence[int], Sequence[int | None], Sequence[int]],
    asked: Mapping[str, Any],
) -> Parts:
    """Yield a row for each number of nodes, model, SMs and tokens."""
    models, tokens, sms, nodes = shape
    for node_num in nodes:
        for model in models:
            for number in sms:
                for count in tokens:
                    question = {**asked, "nodes": node_num if node_num > 1 else None, "tokens": count, "sms": number}
                    what = f"{model} on {node_num} nodes, {count} tokens" + f", {number} SMs" * bool(number)
                    yield what, partial(_expert_rows, topo, kind, model, node_num, question)


def _expert_rows(topo: Any, kind: str, model: str, nodes: int, question: Mapping[str, Any]) -> list[Record]:
    # the tables are of tokens that take any experts: no limit of a model on groups of them
    result = simulate_moe(topo, model, mode=MODES[kind], expert_groups=1, group_limit=1, **question)
    rows = {row.op: row for row in result.rows}
    if len(result.rows) != len(rows) or len(rows) != 2:
        raise InputError(Fault("; ".join(each.what for each in result.refused) or "no single answer", "nodes"))
    figures, config = load_model(model), result.to_dict()["config"]
    row: Record = {
        "version": __version__,
        "op_name": "normal" if kind == "deepep" else "ll",
        "kernel_source": "deepep",
        "node_num": nodes,
        "hidden_size": figures.hidden,
        "num_token": question["tokens"],
        "num_topk": figures.top_k,
        "num_experts": figures.experts,
    }
    for op, found in rows.items():
        if kind == "deepep":
            row |= {
                f"{op}_sms": config["sms"],
                f"{op}_transmit_us": found.time_s * 1e6,
                f"{op}_notify_us": found.prepare_s * 1e6,
            }
        else:
            row |= {f"{op}_avg_t_us": found.time_s * 1e6, f"{op}_bandwidth_gbps": found.logical_Bps / 1e9}
    return [row]
