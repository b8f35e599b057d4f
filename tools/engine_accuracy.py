"""Fit the all-reduce kernels of inference engines to measured times, and print how far predictions are from them.

``python tools/engine_accuracy.py`` prints errors by engine, system and band: of a fit to all rows, of fits that leave
every number of ranks out in turn, of a fit to the logs that tools/split.py would train on alone, and of the table
look-up that a serving planner does (nearest number of ranks, interpolated in the size). ``--write`` also writes the
constants into collsim/library/costs/profiles/engines and the tables into docs/engines.md.

Rows are of tools/data/engines.csv. Eager rows hold a copy of the input that the benchmark makes before every call; it
is added to what collsim predicts. Rows that the engine leaves to NCCL are predicted as ever and take no part in a fit.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pages import put_between
from split import assigned

from collsim.library.costs.channel_costs import PEER_FAMILIES, Protocol
from collsim.library.costs.profile import band_of
from collsim.library.costs.profile_reader import PROTOCOL_FIGURES
from collsim.simulation.lowering import Lowered, lower
from collsim.simulation.request.prepare import prepare
from collsim.simulation.runs import LoweredRun
from collsim.simulation.runs import prepare as run_of
from collsim.simulation.selection import built, library_choice, request_of
from collsim.simulation.simulate import simulate
from collsim.simulation.timing import call_time_s, device_time_s

ROOT = Path(__file__).parent.parent
ROWS = ROOT / "tools" / "data" / "engines.csv"
PAGE = ROOT / "docs" / "engines.md"
FOLDER = ROOT / "collsim" / "library" / "costs" / "profiles" / "engines"
BEGIN, END = "<!-- engines -->\n\n", "\n<!-- /engines -->\n"
SOURCE = "tools/engine_accuracy.py on tools/data/engines.csv"

COPY_BPS = {"hgx_h100": 1.46e12, "gb200_nvl72": 3.34e12, "hgx_b200": 3.34e12}
"""Bytes that a GPU copies to itself a second: eager calls of 1 GiB, which NCCL carries out, less the same in a graph
(measured; 0.87 of the memory of H100 and 0.83 of that of GB200, read and written)."""
COPIES = {"peer_staged": 2, "peer_multimem": 2}
"""Copies of the whole buffer: into the symmetric buffer and out of it (vLLM symm_mem.py)."""
EAGER_COPIES = {(engine, kernel): 1 for engine in ("vllm", "sglang") for kernel in ("peer_one_shot", "peer_two_shot")}
"""Copies that are made only outside graphs, into a buffer that peers can read (vLLM custom_all_reduce.py, SGLang
custom_all_reduce_v2.py)."""
GPUS = {"hgx_h100": ("H100", "H800", "H200", "H20"), "gb200_nvl72": ("B200", "B300"), "hgx_b200": ("B200", "B300")}
MACHINES = {"hgx_h100": ("H100", 8), "gb200_nvl72": ("GB200-NVL72", 4), "hgx_b200": ("B200", 8)}
"""Beginnings of the names of logs, and GPUs of a node."""
SOFTNESS = 3.0
"""With which blocks and links meet; the rows do not resolve it (assumed)."""

EAGER_FLOOR_US = 21.0
"""Of an engine that was measured in graphs only: as of vLLM on H100 (assumed)."""

US = 1e-6
STARTS: dict[str, tuple[float, float]] = {
    "base": (3 * US, 1.0),
    "peer_overhead": (0.1 * US, 1.0),
    "message_overhead": (0.3 * US, 1.0),
    "channel_rate": (10e9, 1.0),
    "link_share": (0.8, 0.1),
    "floor": (30 * US, 1.0),
}
"""Where a figure starts and how far its logarithm goes from there before it costs as much as a row that is off by
`SPREAD` (assumed, wide)."""
SPREAD = 0.05
TWICE = {"base": 2.0, "channel_rate": 1.0, "peer_overhead": 2.0}
"""What kernels of two steps start from, in figures of the one-shot, since flags go round twice (assumed)."""
THREADS = {"peer_staged": 2.0}
"""Threads of a block beside those of the one-shot: 1024 of PyTorch, 512 of vLLM. Each has so many bytes under way."""
NINETY = 1.645
"""Standard deviations on either side that hold 90 % of a normal distribution."""
LEAST_ROWS = 5
"""Of fewer errors no interval is made."""


FLOWS: dict[tuple[object, ...], float] = {}
"""Times of transfers that were simulated."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measured call."""

    engine: str
    release: str
    system: str
    launch: str
    ranks: int
    dtype: str
    size_bytes: int
    time_us: float
    source: str

    @property
    def file(self) -> str:
        """The name of the file of constants that it belongs to."""
        return f"{self.engine}_{self.system}"

    @property
    def log(self) -> str:
        """The name of its log."""
        machine, gpus = MACHINES[self.system]
        part = f"{self.ranks}" if self.ranks == gpus else f"{self.ranks}of{gpus}"
        launch = "graph" if self.launch == "graph" else "eager"
        return f"{machine}-{part}x1__all_reduce__aiconfigurator-{self.engine}-{launch}"

    @property
    def clone_s(self) -> float:
        """Time of the copy that the benchmark makes of the input of an eager call."""
        return self.size_bytes / COPY_BPS[self.system] if self.launch == "stream" else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A row that a kernel of the engine serves: the kernel, laid on its links."""

    row: Row
    family: str
    lowered: Lowered
    run: LoweredRun

    def time_s(self, figures: Mapping[str, float]) -> float:
        """Return the time of the call with figures of the kernels by ``kernel.figure``."""
        costs = costs_of(self.row, self.family, figures)
        around_s = costs.base_s + costs.around_s(self.row.ranks - 1, self.row.size_bytes) + self.row.clone_s
        flow_s = self._flow_s(costs.message_overhead_s, costs.channel_rate_Bps, costs.link_share)
        return call_time_s(around_s + flow_s, costs.floor_s or 0.0)

    def _flow_s(self, overhead_s: float, rate_Bps: float, share: float) -> float:
        """Return the time of the transfers, kept by all that it depends on: eager calls and graphs have the same."""
        key = (self.family, self.row.system, self.row.ranks, self.row.size_bytes, overhead_s, rate_Bps, share)
        if key not in FLOWS:
            costs = Protocol(overhead_s, rate_Bps, small_overhead_s=0.0, link_share=share, softness=SOFTNESS)
            FLOWS[key] = device_time_s(self.lowered, self.run, costs)
        return FLOWS[key]


def measured() -> list[Row]:
    """Return the rows of engines.csv."""
    with ROWS.open(encoding="utf-8") as file:
        whole = ("ranks", "size_bytes")
        return [
            Row(**{**line, **{key: int(line[key]) for key in whole}, "time_us": float(line["time_us"])})  # type: ignore[arg-type]
            for line in csv.DictReader(file)
        ]


def costs_of(row: Row, family: str, figures: Mapping[str, float]) -> Protocol:
    """Return the costs of a kernel as the engine launched it."""
    copies = COPIES.get(family, 0)
    copies += EAGER_COPIES.get((row.engine, family), 0) if row.launch == "stream" else 0
    symmetric = family in COPIES
    return Protocol(
        message_overhead_s=figures.get(f"{family}.message_overhead", figures["peer_one_shot.message_overhead"]),
        channel_rate_Bps=figures[f"{family}.channel_rate"],
        base_s=figures[f"{family}.base"],
        small_overhead_s=0.0,
        link_share=figures["link_share"],
        softness=SOFTNESS,
        peer_overhead_s=figures.get(f"{family}.peer_overhead", figures["peer_one_shot.peer_overhead"]),
        copies=copies,
        copy_rate_Bps=COPY_BPS[row.system],
        floor_s=figures["symmetric.floor" if symmetric else "floor"] if row.launch == "stream" else 0.0,
    )


@cache
def call_of(row: Row) -> Call | None:
    """Return the row laid out; None if the engine leaves it to NCCL."""
    topology, constants, question, groups = prepare(**asked(row))
    run = run_of(topology, replace(constants, latency=False, achievable_rate=False), groups[0])
    request = request_of(question.ops[0], row.size_bytes, run, question)
    picked, request, _ = library_choice(request, run, question)
    if not picked.libraries:
        return None
    schedule = built(picked, request, question)
    return Call(row, picked.family_for("all_reduce"), lower(schedule, run, row.dtype), run)


def asked(row: Row) -> dict[str, Any]:
    """Return the arguments of `simulate` for a row."""
    given = {"ranks": row.ranks, "dtype": row.dtype, "library": row.engine, "launch": row.launch}
    defaults = simulate.__kwdefaults__ or {}
    return {**defaults, "topo": row.system, "op": "all_reduce", "size": row.size_bytes, **given}


# --- fitting ---------------------------------------------------------------------------------------------------------


def names_of(calls: Sequence[Call]) -> list[str]:
    """Return the figures that calls of one file fix."""
    families = [family for family in PEER_FAMILIES if any(call.family == family for call in calls)]
    names = [f"{family}.{figure}" for family in families for figure in ("base", "channel_rate")]
    names += ["peer_one_shot.peer_overhead", "peer_one_shot.message_overhead", "link_share"]
    names += ["peer_two_shot.peer_overhead"] if "peer_two_shot" in families else []
    eager = [call for call in calls if call.row.launch == "stream"]
    names += ["floor"] if any(call.family not in COPIES for call in eager) else []
    names += ["symmetric.floor"] if any(call.family in COPIES for call in eager) else []
    return names


class Fitted(NamedTuple):
    """Figures of a file by name, and the ends of their 90 % intervals."""

    figures: dict[str, float]
    ends: dict[str, tuple[float, float]]


def fit(calls: Sequence[Call], names: Sequence[str]) -> Fitted:
    """Return figures that predict calls best: robust least squares of logarithms."""
    from scipy.optimize import least_squares

    starts = [STARTS[name.rpartition(".")[2]] for name in names]
    begin = np.log([value for value, _ in starts])
    reach = np.array([width for _, width in starts])
    relative, ratio = _relatives(names)
    measured_s = np.log([call.row.time_us * US for call in calls])

    def figures(x: NDArray[np.float64]) -> dict[str, float]:
        found = dict(zip(names, np.exp(x).tolist(), strict=True))
        return {**found, "link_share": min(found["link_share"], 1.0)}

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        told = figures(x)
        off = np.log([call.time_s(told) for call in calls]) - measured_s
        robust = np.sign(off) * SPREAD * np.sqrt(2 * (np.sqrt(1 + (off / SPREAD) ** 2) - 1))
        usual = np.where(relative < 0, begin, x[relative] + ratio)
        return np.concatenate([robust / SPREAD, (x - usual) / reach])

    found = least_squares(residuals, begin, x_scale=1.0, diff_step=1e-3, max_nfev=40)
    deviation = np.sqrt(np.diag(np.linalg.pinv(found.jac.T @ found.jac)))
    ends = np.exp(found.x[:, None] + NINETY * deviation[:, None] * np.array([-1.0, 1.0]))
    return Fitted(figures(found.x), dict(zip(names, map(tuple, ends.tolist()), strict=True)))


def _relatives(names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for each figure the one of the one-shot that it is held near, -1: none, and the logarithm of its ratio."""
    relative, ratio = np.full(len(names), -1), np.zeros(len(names))
    for place, name in enumerate(names):
        family, _, figure = name.rpartition(".")
        usual = f"peer_one_shot.{figure}"
        if family not in ("", "peer_one_shot") and figure in TWICE and usual in names:
            relative[place], ratio[place] = names.index(usual), np.log(TWICE[figure])
            ratio[place] += np.log(THREADS.get(family, 1.0)) if figure == "channel_rate" else 0.0
    return relative, ratio


# --- judging ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """A row beside a prediction: relative error."""

    row: Row
    kernel: str
    error: float


def errors(calls: Iterable[Call], figures: Mapping[str, float]) -> list[Judged]:
    """Return the error of each call."""
    return [Judged(c.row, c.family, c.time_s(figures) / (c.row.time_us * US) - 1) for c in calls]


def left_out(calls: Sequence[Call], key: Callable[[Call], object]) -> list[Judged]:
    """Return the errors of calls by fits to those of another *key*."""
    found = []
    for one in dict.fromkeys(map(key, calls)):
        others = [call for call in calls if key(call) != one]
        if others:
            figures = fit(others, names_of(calls)).figures
            found += errors([call for call in calls if key(call) == one], figures)
    return found


def split(calls: Sequence[Call]) -> list[Judged]:
    """Return the errors of the logs that tools/split.py would test with, by a fit to those that it would train on."""
    train = [call for call in calls if assigned(call.row.log) == "train"]
    test = [call for call in calls if assigned(call.row.log) == "test"]
    return errors(test, fit(train, names_of(calls)).figures) if train else []


def looked_up(calls: Sequence[Call]) -> list[Judged]:
    """Return the errors of a table look-up: the rows of the nearest other number of ranks, interpolated in the size."""
    found = []
    for call in calls:
        row = call.row
        table = [other.row for other in calls if other.row.launch == row.launch and other.row.ranks != row.ranks]
        if not table:
            continue
        near = min((other.ranks for other in table), key=lambda ranks: (abs(np.log2(ranks / row.ranks)), ranks))
        points = sorted((other.size_bytes, other.time_us) for other in table if other.ranks == near)
        told = np.interp(np.log(row.size_bytes), np.log([s for s, _ in points]), [t for _, t in points])
        found.append(Judged(row, call.family, float(told) / row.time_us - 1))
    return found


def of_nccl(rows: Sequence[Row], **others: str) -> list[Judged]:
    """Return the errors of what the engine leaves to NCCL; *others* are asked for instead."""
    found = []
    for row in rows:
        if call_of(row) is None:
            time_s = simulate(**(asked(row) | others)).rows[0].time_s + row.clone_s
            found.append(Judged(row, NCCL, time_s / (row.time_us * US) - 1))
    return found


def summary(judged: Sequence[Judged]) -> str:
    """Return median, 90th percentile and signed median of errors in percent; empty without any."""
    if not judged:
        return ""
    off = np.array([entry.error for entry in judged])
    median, p90 = np.percentile(np.abs(off), [50, 90])
    return f"{median:.1%} / {p90:.1%} ({np.median(off):+.0%})".replace("%", "")


def table(by_kind: Mapping[str, Sequence[Judged]]) -> list[str]:
    """Return errors by engine, system, launch and band, with a column for each kind of errors."""
    lines = [f"| engine | system | launch | band | rows | {' | '.join(by_kind)} |"]
    lines.append(f"| --- | --- | --- | --- | --- |{' --- |' * len(by_kind)}")
    cells: dict[tuple[str, ...], dict[str, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    for kind, judged in by_kind.items():
        for entry in judged:
            row = entry.row
            launch = "graph" if row.launch == "graph" else "eager"
            of_nccl = " (NCCL)" if entry.kernel == NCCL else ""
            keys: tuple[tuple[str, ...], ...] = (
                (row.engine, row.system, launch, band_of(row.size_bytes) + of_nccl),
                ("all", "all", "all", "all" + of_nccl),
            )
            for key in keys:
                cells[key][kind].append(entry)
    for key in sorted(cells, key=lambda key: (key[0] == "all", *key[:3], ORDER[key[3].split()[0]], key[3])):
        rows = len(cells[key]["fitted"] or cells[key][KINDS[-1]])
        told = " | ".join(summary(cells[key].get(kind, [])) for kind in by_kind)
        lines.append(f"| {' | '.join(key)} | {rows} | {told} |")
    return lines


NCCL = "nccl"
ORDER = {"small": 0, "middle": 1, "large": 2, "all": 3}


# --- writing ---------------------------------------------------------------------------------------------------------


def profile_text(calls: Sequence[Call], found: Fitted, judged: Sequence[Judged]) -> str:
    """Return the file of constants of an engine on a system, with errors of fits that left the rows out."""
    row = calls[0].row
    ranks = ", ".join(str(n) for n in sorted({call.row.ranks for call in calls}))
    eager = any(call.row.launch == "stream" for call in calls)
    what = f"{len(calls)} rows of {ranks} ranks" + ("" if eager else " in graphs; eager calls were not measured")
    lines = [
        "schema: collsim.profile/1",
        f"name: {row.file}",
        f"title: '{row.engine} {row.release} on {row.system}, fitted to {what}'",
        "calibrated: true",
        f"systems: [{row.system}]",
        f"gpus: [{', '.join(GPUS[row.system])}]",
        f"library: {row.engine}-{row.release}",
        *launch_lines(calls, found, judged, "stream", ""),
        "launches:",
        "  graph:",
        *launch_lines(calls, found, judged, "graph", "    "),
    ]
    return "\n".join(lines) + "\n"


def launch_lines(
    calls: Sequence[Call], found: Fitted, judged: Sequence[Judged], launch: str, indent: str
) -> Iterator[str]:
    """Yield families and accuracy of a way to launch."""
    row = replace(calls[0].row, launch=launch)
    yield f"{indent}families:"
    for family in (family for family in PEER_FAMILIES if any(call.family == family for call in calls)):
        costs = costs_of(row, family, {"floor": EAGER_FLOOR_US * US, **found.figures})
        yield f"{indent}  {family}:"
        yield f"{indent}    Simple:"
        for key, attribute in PROTOCOL_FIGURES.items():
            value = getattr(costs, attribute)
            if value is not None and np.isfinite(value) and value != getattr(PLAIN, attribute):
                yield f"{indent}      {key}: {figure_text(key, value, family, found)}"
    told = [entry for entry in judged if entry.row.launch == launch]
    yield from [f"{indent}accuracy:"] * bool(told)
    yield from accuracy_lines(told, f"{indent}  ")


PLAIN = Protocol(-1.0, np.inf, floor_s=-1.0, copies=-1)
"""Figures that need not be written; any message overhead and floor is."""


def figure_text(key: str, value: float, family: str, found: Fitted) -> str:
    """Return a figure with unit, status and source."""
    symmetric = "symmetric." if key == "floor" and family in COPIES else ""
    names = (f"{family}.{key}", f"peer_one_shot.{key}", f"{symmetric}{key}")
    name = next((name for name in names if name in found.ends), "")
    if name and value:
        low, high = found.ends[name]
        ends = f"low: {with_unit(key, min(low, value))}, high: {with_unit(key, max(high, value))}"
        return f"{{value: {with_unit(key, value)}, {ends}, status: fitted, source: '{SOURCE}'}}"
    sources = {
        "copy_rate": "eager calls of 1 GiB beside the same in graphs",
        "copies": "source of the engine",
        "softness": "the rows do not resolve it",
        "floor": "as of vLLM on H100: only graphs were measured" if value else "a graph has no host in it",
        "small_overhead": "up to 2 KiB the base holds all",
    }
    status = {"copy_rate": "measured", "copies": "constant"}.get(key, "assumed")
    return f"{{value: {with_unit(key, value)}, status: {status}, source: '{sources[key]}'}}"


def with_unit(key: str, value: float) -> str:
    """Return a figure as text."""
    if key == "copies":
        return f"{value:.0f}"
    if key.endswith("_rate"):
        return f"{value / 1e9:.4g} GB/s"
    if key.endswith("overhead") or key in ("base", "floor"):
        return f"{value * 1e6:.4g} us"
    return f"{min(value, 1.0) if key == 'link_share' else value:.4g}"


def accuracy_lines(judged: Sequence[Judged], indent: str) -> Iterator[str]:
    """Yield the errors by kernel and band."""
    for family in dict.fromkeys(entry.kernel for entry in judged):
        bands: dict[str, list[Judged]] = defaultdict(list)
        for entry in judged:
            if entry.kernel == family:
                bands[band_of(entry.row.size_bytes)].append(entry)
        told = {band: entries for band, entries in bands.items() if len(entries) >= LEAST_ROWS}
        if told:
            yield f"{indent}{family}:"
        for band, entries in told.items():
            off = np.array([entry.error for entry in entries])
            low, high = np.percentile(1 / (1 + off), [5, 95])
            median, p90 = np.percentile(np.abs(off), [50, 90])
            numbers = f"low: {min(low, 1):.4g}, high: {max(high, 1):.4g}, median: {median:.4g}, p90: {p90:.4g}"
            logs = len({entry.row.log for entry in entries})
            yield f"{indent}  {band}: {{{numbers}, rows: {len(entries)}, logs: {logs}}}"


def constants_table(found: Mapping[str, tuple[Sequence[Call], Fitted]]) -> list[str]:
    """Return the number of fitted constants beside rows, and the constants."""
    lines = ["| file | fitted numbers | rows | constants |", "| --- | --- | --- | --- |"]
    for name, (calls, fitted) in found.items():
        told = ", ".join(f"{key} {with_unit(key.rpartition('.')[2], value)}" for key, value in fitted.figures.items())
        lines.append(f"| `{name}` | {len(fitted.figures)} | {len(calls)} | {told} |")
    return lines


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write constants and page")
    parser.add_argument("--only", default="", help="only this file, such as vllm_hgx_h100")
    told = parser.parse_args()
    rows = [row for row in measured() if told.only in row.file]
    by_file: dict[str, list[Call]] = defaultdict(list)
    for row in rows:
        if (call := call_of(row)) is not None:
            by_file[row.file].append(call)
    kinds: dict[str, list[Judged]] = {kind: [] for kind in KINDS}
    found: dict[str, tuple[Sequence[Call], Fitted]] = {}
    for name, calls in by_file.items():
        found[name] = calls, fit(calls, names_of(calls))
        by_ranks = left_out(calls, lambda call: call.row.ranks)
        of_file = errors(calls, found[name][1].figures), by_ranks, looked_up(calls), split(calls)
        for kind, judged in zip(KINDS, of_file, strict=False):
            kinds[kind] += judged
        if told.write:
            text = profile_text(*found[name], by_ranks)
            (FOLDER / f"{name}.yaml").write_text(text, encoding="utf-8")
    kinds[KINDS[-2]] += of_nccl(rows)
    kinds[KINDS[-1]] += of_nccl(rows, **SYMMETRIC)
    text = "\n".join([*table(kinds), "", *constants_table(found)]) + "\n"
    print(text)
    if told.write and not told.only:
        put_between(PAGE, BEGIN, END, text)
    return 0


KINDS = ("fitted", "ranks left out", "look-up", "hash split", "left to NCCL", "that on symmetric memory")
"""Kinds of errors, in order."""
SYMMETRIC = {"library": "nccl-2.29", "registered": "symmetric"}


if __name__ == "__main__":
    sys.exit(main())
