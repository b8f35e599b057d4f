"""Print how far predicted dispatch and combine are from published measurements, and fit the costs of kernels to some.

``python tools/moe_accuracy.py`` prints every row of tools/data/moe.csv and moe_calls.csv beside what collsim
predicts with collsim/moe/kernels.yaml, and what is left by kernel. Costs are fitted to runs of one and two nodes and
judged on runs of more. ``--fit`` prints the costs that the fitted rows give; ``--write`` puts the tables into
docs/moe_accuracy.md, between its markers.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pages import put_between

from collsim.moe.counts import Counts, Members
from collsim.moe.flows import byte_matrix
from collsim.moe.kernel_costs import Costs, Kernel, load_kernel
from collsim.moe.models import load_model
from collsim.moe.result import MoeRow
from collsim.moe.simulate import simulate_moe
from collsim.simulation.simulate import simulate
from collsim.topology import describe, load_topology

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "moe_accuracy.md"
ROWS, CALLS = ROOT / "tools" / "data" / "moe.csv", ROOT / "tools" / "data" / "moe_calls.csv"
BEGIN, END = "<!-- moe -->\n\n", "\n<!-- /moe -->\n"
BARS = {"median": 0.12, "p90": 0.25}
"""Of the rows that no fit has seen."""
CALL_BAR = 0.10
"""Of every large call from a framework."""
OUTDATED = ", outdated"
LINEAR = 0.1
"""Errors beyond so much count with their size, not its square: published rows are single runs, some are odd."""

MACHINES = {
    ("DeepEP V1", "H800", "CX7"): ("deepep_v1_h800", "hgx_h800"),
    ("DeepEP V1", "H100", "CX7"): ("deepep_v1_calls", "hgx_h100"),
    ("DeepEP V2", "SM90", "CX7"): ("deepep_v2", "hgx_h100"),
    ("DeepEP V2", "SM100", "CX7"): ("deepep_v2_sm100", "hgx_b200"),
    ("MORI-EP", "MI300X", "CX7"): ("mori", "mi300x_ubb8"),
    ("UCCL-EP", "MI300X", "CX7"): ("uccl_mi300x", "mi300x_ubb8"),
    ("UCCL-EP", "MI300X", "Thor2"): ("uccl_mi300x_thor2", "mi300x_ubb8"),
    ("UCCL-EP", "B200", "EFA"): ("uccl_b200_efa", "hgx_b200"),
}
"""Kernels and topology by library, GPU and adapter; all adapters have 400 Gb/s. Rows of one node name no adapter."""
GROUPED = ("deepseek-ai/DeepEP", "uccl-project/uccl")
"""Whose test programs let a token take experts on at most four nodes, in normal mode over nodes."""


@dataclass(frozen=True, slots=True)
class Published:
    """A row of moe.csv: a time, or a bandwidth and what its bytes count."""

    library: str
    gpu: str
    nic: str
    mode: str
    op: str
    ranks: int
    gpus_per_node: int
    tokens: int
    hidden: int
    top_k: int
    dtype: str
    sms: int | None
    time_us: float | None
    GBps: float | None
    counts: str
    flag: str
    part: str
    source: str

    @property
    def machine(self) -> tuple[str, str]:
        """Names of kernels and topology."""
        return next(
            names
            for (library, gpu, nic), names in MACHINES.items()
            if (library, gpu) == (self.library, self.gpu) and self.nic in (nic, "")
        )

    @property
    def scored(self) -> bool:
        """True if its error counts: a figure that its source calls outdated is only printed."""
        return self.flag != "stale"

    @property
    def figure(self) -> str:
        """The published bandwidth or time, as text."""
        return f"{self.GBps:g} GB/s" if self.time_us is None else f"{self.time_us:g} us"


def published() -> list[Published]:
    """Return the rows of moe.csv."""
    whole = ("ranks", "gpus_per_node", "tokens", "hidden", "top_k")
    rows = []
    with ROWS.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            numbers = {name: int(line[name]) for name in whole}
            figures = {name: float(line[name]) if line[name] else None for name in ("time_us", "GBps")}
            rows.append(Published(**{**line, **numbers, **figures, "sms": int(line["sms"] or 0) or None}))  # type: ignore[arg-type]
    return rows


def simulated(row: Published, kernel: Kernel) -> MoeRow:
    """Return the row that collsim predicts for a published one."""
    nodes = row.ranks // row.gpus_per_node
    grouped = row.source.startswith(GROUPED) and row.mode == "normal" and nodes > 1
    result = simulate_moe(
        row.machine[1], None, experts=256 // row.ranks * row.ranks, top_k=row.top_k, hidden=row.hidden,
        dispatch=row.dtype, combine="bf16", expert_groups=nodes if grouped else 1,
        group_limit=min(nodes, 4) if grouped else 0,
        ep=row.ranks, tokens=row.tokens, mode=row.mode, kernel=kernel, sms=row.sms,
        overrides={"scale_out.nodes": str(nodes)} if nodes > 1 else None,
    )  # fmt: skip
    return next(each for each in result.rows if each.op == row.op)


def published_s(row: Published, found: MoeRow) -> float:
    """Return the published time, or that of the published bandwidth: DeepEP counts what stays as well."""
    if row.time_us is not None:
        return row.time_us / 1e6
    assert row.GBps is not None
    over_nodes = found.nodes > 1 and row.counts == "ranks"
    counted = np.sum(found.matrix_bytes) / found.ranks if over_nodes else found.logical_bytes
    return float(counted / row.GBps / 1e9)


def times_of(rows: Iterable[Published], kernels: dict[str, Kernel]) -> NDArray[np.float64]:
    """Return float64[n, 2], predicted and published seconds."""
    found = [(row, simulated(row, kernels[row.machine[0]])) for row in rows]
    return np.array([(each.whole_s, published_s(row, each)) for row, each in found])


# --- calls of the library --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """A row of moe_calls.csv: one all_to_all_v of four H100, called from PyTorch; FP8 tokens go without scales."""

    machine: str
    tokens: int
    op: str
    time_us: float
    part: str
    size_bytes: NDArray[np.int64]


def calls() -> list[Call]:
    """Return the rows of moe_calls.csv, with the bytes from row to column."""
    rows = []
    with CALLS.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            table = np.array([each.split() for each in line["tokens_from_row_to_column"].split(";")], dtype=np.float64)
            hidden, top_k, experts = (int(line[name]) for name in ("hidden", "top_k", "experts"))
            # a token of one byte per element and no scales is half a token in BF16
            width = hidden // 2 if line["op"] == "dispatch" else hidden
            model = load_model(None, experts=experts, top_k=top_k, hidden=width, dispatch="bf16")
            members = Members(np.zeros(len(table), dtype=np.int64))
            counts = Counts(members, table.sum(axis=1), table, table, table.sum(axis=1)[:, None])
            matrix = byte_matrix(counts, model, line["op"], "all_to_all")
            rows.append(
                Call(line["machine"], int(line["tokens"]), line["op"], float(line["time_us"]), line["part"], matrix)
            )
    return rows


def call_s(call: Call) -> float:
    """Return the time of a call by the library's costs, without the start from a framework."""
    return float(
        simulate("hgx_h100", "all_to_all_v", matrix=call.size_bytes, ranks=len(call.size_bytes)).rows[0].time_s
    )


def call_start_s() -> float:
    """Return the start of calls from a framework: the median of the fitted rows, of both operations."""
    return float(np.median([call.time_us / 1e6 - call_s(call) for call in calls() if call.part == "fit"]))


# --- fits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Free:
    """A figure that is fitted: the costs of that pattern of mode.operation.name, where it starts, and its limits."""

    pattern: str
    start: float
    least: float
    most: float


def start(pattern: str) -> Free:
    """Return a start to fit."""
    return Free(f"{pattern}.start_s", 3e-5, 0.0, 1e-3)


def node(pattern: str) -> Free:
    """Return a part of the links of the node to fit."""
    return Free(f"{pattern}.node_efficiency", 0.8, 0.05, 1.0)


WORK = Free("normal.*.network_work", 0.5, 0.0, 30.0)
WORK_IN_BOTH = replace(WORK, pattern="*.*.network_work")
NETWORK = Free("*.*.network_efficiency", 0.93, 0.2, 0.98)
"""One adapter: the same part in both modes. Headers of packets with 4,096 bytes leave no more."""
AWAITED = Free("normal.dispatch.prepare_s", 1e-3, 0.0, 1e-2)
"""What a whole call waits for counts on the host before the kernel starts."""
MESSAGE = Free("low_latency.*.message_s", 1e-8, 0.0, 1e-6)
LOW_LATENCY = (start("low_latency.*"), node("low_latency.*"), MESSAGE)
SMS_OF = "deepep_v2_sm100"
"""The only rows that tell SMs apart. A copying SM is as fast elsewhere: so many of wider links keep it half as busy."""
FITS: dict[str, tuple[str, tuple[Free, ...]]] = {
    "deepep_v2_sm100": ("default", (node("normal.*"), NETWORK, Free("half_sms", 5.0, 0.0, 50.0))),
    "deepep_v2": ("deepep_v2_sm100", (WORK,)),
    "deepep_v1_h800": ("default", (start("*.*"), node("normal.*"), WORK, NETWORK, *LOW_LATENCY[1:])),
    "deepep_v1_calls": (
        "default",
        (start("*.*"), AWAITED, node("normal.*"), WORK, NETWORK, *LOW_LATENCY[1:]),
    ),
    "mori": (
        "default",
        (start("normal.*"), start("low_latency.*"), node("normal.*"), node("low_latency.*"), WORK_IN_BOTH, NETWORK),
    ),
    "uccl_mi300x": ("default", (start("normal.*"), node("normal.*"), WORK, NETWORK, *LOW_LATENCY)),
    "uccl_mi300x_thor2": ("uccl_mi300x", (NETWORK,)),
    "uccl_b200_efa": ("uccl_mi300x", (start("normal.*"), node("normal.*"), WORK, MESSAGE)),
}
"""Whose figures each starts from, and which are fitted; a later pattern goes before an earlier one."""


def with_figures(kernel: Kernel, free: Sequence[Free], values: Sequence[float]) -> Kernel:
    """Return the kernels with figures replaced."""
    table = {(mode, op): asdict(costs) for mode, by_op in kernel.costs.items() for op, costs in by_op.items()}
    half_sms = kernel.half_sms
    for each, value in zip(free, values, strict=True):
        if each.pattern == "half_sms":
            half_sms = float(value)
        for (mode, op), figures in table.items():
            figures |= {name: float(value) for name in figures if fnmatch(f"{mode}.{op}.{name}", each.pattern)}
    costs: dict[str, dict[str, Costs]] = defaultdict(dict)
    for (mode, op), figures in table.items():
        costs[mode][op] = Costs(**figures)
    return replace(kernel, costs=dict(costs), half_sms=half_sms)


def rows_of(name: str) -> list[Published]:
    """Return the rows that kernels are fitted to."""
    return [row for row in published() if row.machine[0] == name and (row.part, row.scored) == ("fit", True)]


@cache
def fitted(name: str) -> Kernel:
    """Return kernels with the costs that the fitted rows give: least squares of log errors."""
    from scipy.optimize import least_squares

    base, free = FITS[name]
    begin = fitted(base) if base in FITS else load_kernel(base)
    rows = rows_of(name)
    modes = {row.mode for row in rows}
    like = load_kernel(name)
    begin = replace(like, half_sms=begin.half_sms, costs={m: costs for m, costs in begin.costs.items() if m in modes})
    if name != SMS_OF:
        rates = [describe(load_topology(those[0].machine[1]))["per_gpu_uni_Bps"] for those in (rows, rows_of(SMS_OF))]
        begin = replace(begin, half_sms=fitted(SMS_OF).half_sms * rates[0] / rates[1])
    low, high = np.array([(each.least, each.most) for each in free]).T

    def errors(unit: NDArray[np.float64]) -> NDArray[np.float64]:
        times = times_of(rows, {name: with_figures(begin, free, (low + unit * (high - low)).tolist())})
        return np.asarray(np.log(times[:, 0] / times[:, 1]))

    first = (np.array([each.start for each in free]) - low) / (high - low)
    found = least_squares(
        errors, first, bounds=(0, 1), x_scale=np.maximum(first, 0.01), loss="soft_l1", f_scale=LINEAR, diff_step=1e-4
    )
    return with_figures(begin, free, (low + found.x * (high - low)).tolist())


def print_fits(names: Iterable[str]) -> None:
    """Print what goes into kernels.yaml."""
    for name in names:
        kernel = fitted(name)
        print(f"  {name}:\n    half_sms: {kernel.half_sms:.3g}\n    costs:")
        for mode, by_op in kernel.costs.items():
            print(f"      {mode}:")
            for op, costs in by_op.items():
                figures = ", ".join(f"{key}: {value:.3g}" for key, value in asdict(costs).items())
                print(f"        {op}: {{{figures}}}")
    print(f"  framework_calls:\n    start_s: {call_start_s():.3g}")


# --- tables ----------------------------------------------------------------------------------------------------------


def summary(rows: Sequence[Published], errors: NDArray[np.float64]) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return the sizes of the errors by kernels and part; what is not scored counts apart, and not among all."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, error in zip(rows, np.abs(errors).tolist(), strict=True):
        found[row.machine[0] + OUTDATED * (not row.scored), row.part].append(error)
        if row.scored:
            found["all", row.part].append(error)
    return {key: np.array(each) for key, each in found.items()}


def summary_table(found: dict[tuple[str, str], NDArray[np.float64]]) -> str:
    """Return median and 90th percentile by kernels and part, and whether the bars are met."""
    lines = [
        "| kernels | fitted rows | median | p90 | rows not seen | median | p90 | bars |\n",
        "|" + " --- |" * 8 + "\n",
    ]
    for name in [*dict.fromkeys(key for key, _ in found if key != "all"), "all"]:
        cells = []
        for part in ("fit", "test"):
            errors = found.get((name, part), np.zeros(0))
            shares = [f"{100 * np.quantile(errors, q):.1f} %" for q in (0.5, 0.9)] if len(errors) else ["-", "-"]
            cells += [str(len(errors)), *shares]
        tested = None if name.endswith(OUTDATED) else found.get((name, "test"))
        lines.append(f"| {name} | {' | '.join(cells)} | {'-' if tested is None else told(tested)} |\n")
    return "".join(lines)


def told(errors: NDArray[np.float64]) -> str:
    """Return which bars are missed."""
    missed = [name for name, q in (("median", 0.5), ("p90", 0.9)) if np.quantile(errors, q) > BARS[name]]
    return f"missed: {', '.join(missed)}" if missed else "met"


def row_table(rows: Sequence[Published], times: NDArray[np.float64]) -> str:
    """Return every row."""
    head = ("kernels", "GPU", "adapter", "mode", "operation", "EP", "tokens", "type", "SMs", "published", "counts",
            "as time", "predicted", "error", "part", "mark")  # fmt: skip
    lines = [f"| {' | '.join(head)} |\n", "|" + " --- |" * len(head) + "\n"]
    for row, (predicted, measured) in zip(rows, times.tolist(), strict=True):
        cells = (
            row.machine[0], row.gpu, row.nic or "-", row.mode, row.op, row.ranks, row.tokens, row.dtype,
            row.sms or "-", row.figure, row.counts if row.time_us is None else "-", f"{measured * 1e6:.1f} us",
            f"{predicted * 1e6:.1f} us", f"{100 * (predicted / measured - 1):+.1f} %", row.part, MARKS[row.flag],
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |\n")
    return "".join(lines)


MARKS = {"": "-", "stale": "outdated, not scored", "ranks": "EP misprinted as 32", "odd": "breaks the trend"}


def call_times() -> list[tuple[Call, float]]:
    """Return the calls with the seconds that collsim predicts."""
    costs = load_kernel("framework_calls").costs["all_to_all"]
    return [(call, call_s(call) + costs[call.op].start_s) for call in calls()]


def call_table() -> str:
    """Return the calls of the library."""
    lines = ["| machine | operation | tokens | measured | predicted | error | part |\n", "|" + " --- |" * 7 + "\n"]
    for call, predicted in call_times():
        error = f"{100 * (predicted * 1e6 / call.time_us - 1):+.1f} %"
        figures = f"{call.time_us:.1f} us | {predicted * 1e6:.1f} us | {error} | {call.part}"
        lines.append(f"| {call.machine} | {call.op} | {call.tokens} | {figures} |\n")
    return "".join(lines)


def tables() -> str:
    """Return all tables with the shipped costs."""
    rows = published()
    times = times_of(rows, {name: load_kernel(name) for name in FITS})
    found = summary(rows, times[:, 0] / times[:, 1] - 1)
    bars = f"Bars: median at most {100 * BARS['median']:.0f} %, 90th percentile at most {100 * BARS['p90']:.0f} %."
    return (
        f"{bars}\n\n{summary_table(found)}\n## Calls of the library\n\n{call_table()}\n"
        f"## Every row\n\n{row_table(rows, times)}"
    )


def write(text: str) -> None:
    """Replace what the page has between the markers."""
    put_between(PAGE, BEGIN, END, text)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="print the costs that the fitted rows give")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/moe_accuracy.md")
    options = parser.parse_args()
    if options.fit:
        print_fits(FITS)
    elif options.write:
        write(tables())
    else:
        print(tables())
    return 0


if __name__ == "__main__":
    sys.exit(main())
