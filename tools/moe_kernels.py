"""Fit the costs of kernels that dispatch and combine to the tables of a serving planner, and judge them.

``python tools/moe_kernels.py`` prints errors by kernels, mode, operation, GPU and nodes: on the sweeps that are fitted,
on those that are not, on groups left out of a fit in turn, and of the nearest measured sweep, interpolated, which is
what a planner looks up. ``--fit`` prints the costs; ``--write`` puts the tables into docs/moe_accuracy.md.

A sweep over tokens with one setting is what a log of nccl-tests is elsewhere, and gets its set in the same way: by the
hash of its name (split.py). Where that leaves an operation of a kernel fewer than two sweeps to fit, all of that
kernel's are fitted, and only what is left out in turn judges it.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import log
from pathlib import Path

import numpy as np
from moe_sweeps import Array, Sweep, family, part, predicted_s, sweeps
from pages import put_between

from collsim.moe.kernel_costs import Costs

PAGE = Path(__file__).parent.parent / "docs" / "moe_accuracy.md"
BEGIN, END = "<!-- kernels -->\n\n", "\n<!-- /kernels -->\n"
LINEAR = 0.05
"""Errors beyond so much count with their size, not its square."""


# --- fits ------------------------------------------------------------------------------------------------------------

LIMITS: dict[str, tuple[float, float, float]] = {
    "start_s": (3e-5, 0, 5e-4), "start_Bps": (2e9, 2e8, 1e12), "expert_s": (1.5e-8, 0, 2e-7), "peer_s": (1e-6, 0, 1e-5),
    "network_s": (1e-5, 0, 1e-4), "node_efficiency": (0.7, 0.1, 0.98), "token_s": (3e-7, 0, 1e-4),
    "copy_s": (1e-7, 0, 1e-5), "token_Bps": (2e10, 1e9, 1e14), "copy_Bps": (3e10, 1e9, 1e14), "ring_tokens": (6, 0, 64),
    "network_work": (5, 0, 60), "network_efficiency": (0.93, 0.2, 0.98),
}  # fmt: skip
"""Where each figure starts, and its limits. Rates are fitted as their inverse."""
CROWDING = 0.01
"""Taken from fits of all three GPUs that left it free: 0.005 to 0.018."""
UNSEEN = 0.809
"""Part of the links of B200: of DeepEP V2, whose rows saturate them, which those of V1 never do."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What one entry of kernels.yaml is fitted to: tables on a GPU, and the figures that are free and fixed by mode.

    *like* takes figures of another entry by ``mode.op``, all of them where none are named: what these rows do not tell.
    """

    name: str
    gpu: str
    tables: tuple[str, ...]
    sms: int
    free: Mapping[str, tuple[str, ...]]
    fixed: Mapping[str, float]
    like: Mapping[str, tuple[str, tuple[str, ...]]]


Names = dict[str, tuple[str, ...]]
RING = ("start_s", "start_Bps", "copy_s", "copy_Bps", "ring_tokens")
NORMAL: Names = {"normal.dispatch": (*RING, "token_s"), "normal.combine": (*RING, "token_Bps")}
LOW = ("start_s", "start_Bps", "expert_s", "node_efficiency")
OVER = ("network_work", "network_efficiency")
LINK = ("start_s", "peer_s", "node_efficiency", "token_s")
DISPATCH, COMBINE = ("low_latency.dispatch", "low_latency.combine")
WITH_SM: Names = {DISPATCH: LOW, COMBINE: (*LOW, "copy_Bps")}
ONE_START: Names = {DISPATCH: LOW, COMBINE: ("start_s", "start_Bps", "node_efficiency")}
WIRE = ("network_work", "network_efficiency", "network_s")
OF_H100 = dict.fromkeys(("normal.dispatch", "normal.combine"), ("deepep_v1", WIRE))
OVER_WIRE = {**OF_H100, DISPATCH: ("deepep_v1", WIRE), COMBINE: ("deepep_v1", WIRE)}
OF_GB200 = {**OF_H100, DISPATCH: ("deepep_v1", ("token_s", "token_Bps", *WIRE)), COMBINE: ("deepep_v1", WIRE)}
OF_B200 = {**OF_GB200, COMBINE: ("deepep_v1_gb200", ("expert_s", "copy_Bps", *WIRE))}
"""What rows of Blackwell do not tell: the network, as no row has several nodes, and what only models with few experts
show, which keep few SMs busy and are rarely among the fitted sweeps: an SM is as fast as on the relative."""
PLAIN: Names = {"normal.dispatch": ("start_s", "copy_s"), "normal.combine": ("start_s", "copy_s", "copy_Bps")}
BYTES: Names = dict.fromkeys(PLAIN, ("start_s", "copy_s", "copy_Bps"))
PLAIN_LOW: Names = {DISPATCH: ("start_s", "copy_s"), COMBINE: ("start_s", "copy_s")}
STARTS: Names = dict.fromkeys(("normal.dispatch", "normal.combine", DISPATCH, COMBINE), ("start_s", "copy_Bps"))
SAME = tuple(name for name in LIMITS if name not in ("start_s", "copy_Bps"))
LINKS: Names = {"normal.dispatch": LINK, "normal.combine": LINK}
CROWDED = {"crowding": CROWDING}
BLACKWELL = {**CROWDED, "node_efficiency": UNSEEN}
NO_WIRE = {"network_efficiency": 0.93}
"""Kernels over NVLink never leave the domain; a question that does gets the adapters of the others."""
DEEPEP = ("deepep_normal", "deepep_low_latency")
FITS = {fit.name: fit for fit in (
    Fit("deepep_v1", "H100", DEEPEP, 24,
        {"normal.dispatch": (*NORMAL["normal.dispatch"], "node_efficiency", *OVER),
         "normal.combine": (*NORMAL["normal.combine"], "node_efficiency", *OVER),
         DISPATCH: (*LOW, "token_s", "token_Bps", "network_s", "network_efficiency"),
         COMBINE: (*LOW, "copy_Bps", "network_s", "network_efficiency")}, CROWDED, {}),
    Fit("deepep_v1_b200", "B200", DEEPEP, 24, {**NORMAL, **ONE_START}, BLACKWELL, OF_B200),
    Fit("deepep_v1_gb200", "GB200", DEEPEP, 24, {**NORMAL, **WITH_SM}, BLACKWELL, OF_GB200),
    Fit("vllm_deepep", "H100", ("vllm_deepep_ht", "vllm_deepep_ll"), 20, STARTS, {},
        dict.fromkeys(STARTS, ("deepep_v1", SAME))),
    Fit("vllm_deepep_v2", "H100", ("vllm_deepep_v2_context",), 64, BYTES, {}, OF_H100),
    Fit("trtllm_deepep", "B200", ("trtllm_deepep_ht", "trtllm_deepep_ll"), 24, {**PLAIN, **PLAIN_LOW},
        {"node_efficiency": UNSEEN}, OVER_WIRE),
    Fit("trtllm_deepep_gb200", "GB200", ("trtllm_deepep_ht", "trtllm_deepep_ll"), 24, {**BYTES, **PLAIN_LOW},
        {"node_efficiency": UNSEEN}, OVER_WIRE),
    Fit("trtllm_deepep_fp4", "B200", ("trtllm_deepep_fp4_ll",), 24, {COMBINE: PLAIN_LOW[COMBINE]},
        {"node_efficiency": UNSEEN}, {DISPATCH: ("trtllm_deepep", ()), COMBINE: ("deepep_v1", WIRE)}),
    Fit("trtllm_deepep_fp4_gb200", "GB200", ("trtllm_deepep_fp4_ll",), 24, {COMBINE: PLAIN_LOW[COMBINE]},
        {"node_efficiency": UNSEEN}, {DISPATCH: ("trtllm_deepep_gb200", ()), COMBINE: ("deepep_v1", WIRE)}),
    Fit("trtllm_nvlink_two_sided", "GB200", ("trtllm_nvlink_two_sided",), 24, LINKS, NO_WIRE, {}),
    Fit("trtllm_nvlink_low_precision", "GB200", ("trtllm_nvlink_low_precision",), 24, {"normal.combine": LINK}, NO_WIRE,
        {"normal.dispatch": ("trtllm_nvlink_two_sided", ())}),
    Fit("trtllm_nvlink_one_sided", "GB200", ("trtllm_nvlink_one_sided",), 24, LINKS, NO_WIRE, {}),
)}  # fmt: skip


def rows_of(fit: Fit) -> list[Sweep]:
    """Return the sweeps that belong to kernels; prepare is not among them."""
    return [e for e in sweeps() if e.gpu == fit.gpu and family(e) in fit.tables and e.op != "prepare"]


def congested(sweep: Sweep) -> bool:
    """Return True for normal mode on eight nodes: of the line rate of adapters a third arrives there, whoever sends.

    Ranks that are done wait as long again for the slowest. Elsewhere eight nodes reach nine tenths (moe.csv), and so
    do the low-latency kernels on these; a figure for it would be one of the site.
    """
    return sweep.nodes == 8 and sweep.mode == "normal"


@cache
def fitted(name: str, keep: Callable[[Sweep], bool]) -> dict[str, Costs]:
    """Return the costs by ``mode.op`` that the kept sweeps give: least squares of log errors."""
    fit = FITS[name]
    found = {}
    for key in sorted({*fit.free, *fit.like}, reverse=True):
        other, names = fit.like.get(key, ("", ()))
        base = fitted(other, keep)[key] if other else Costs(0.0)
        taken = {each: getattr(base, each) for each in names or LIMITS} if other else {}
        mode = key.split(".")[0]
        fixed = {each: value for each, value in fit.fixed.items() if mode == "normal" or each != "crowding"}
        if not other or names:
            taken = fixed | taken
        found[key] = _best(fit, key, taken, keep) if key in fit.free else base
    return found


def _best(fit: Fit, key: str, taken: dict[str, float], keep: Callable[[Sweep], bool]) -> Costs:
    """Return the costs of one operation; figures that the kept sweeps cannot tell stay what they are without."""
    from scipy.optimize import least_squares

    chosen = [e for e in rows_of(fit) if f"{e.mode}.{e.op}" == key and keep(e) and not congested(e)]
    if not chosen:
        return Costs(**{"start_s": 0.0, **taken})
    names = [each for each in fit.free[key] if each in LIMITS]
    if max(e.nodes for e in chosen) == 1:
        names = [each for each in names if each not in (*OVER, "network_s")]
    if all(e.ranks == chosen[0].ranks for e in chosen):
        names = [each for each in names if each != "peer_s"]
    taken = {each: value for each, value in taken.items() if each not in names}

    def costs_of(unit: Array) -> Costs:
        figures = {}
        for each, value in zip(names, unit.tolist(), strict=True):
            first = LIMITS[each][0]
            figures[each] = first / max(value, 1e-12) if each.endswith("_Bps") else first * value
        return Costs(**{"start_s": 0.0, **taken, **figures})

    def errors(unit: Array) -> Array:
        costs = costs_of(unit)
        return np.concatenate([np.log(predicted_s(e, costs, fit.sms) / e.time_s) for e in chosen])

    low, high = np.array([_ends(each) for each in names]).T
    start = np.clip(np.ones(len(names)), low + 1e-6, high - 1e-6)
    return costs_of(least_squares(errors, start, bounds=(low, high), loss="soft_l1", f_scale=LINEAR).x)


def _ends(name: str) -> tuple[float, float]:
    """Return the limits of a figure over its first value, of a rate the first value over it."""
    first, least, most = LIMITS[name]
    return (first / most, first / least) if name.endswith("_Bps") else (least / first, most / first)


def prepared(name: str, keep: Callable[[Sweep], bool]) -> dict[str, float]:
    """Return the figures of the step before: medians over nodes, of rows with few tokens, which no queue lengthens.

    NVLink kernels time it by itself: once and for each token, by the median of sweeps with few and with many tokens.
    """
    fit = FITS[name]
    alone = [e for e in sweeps() if e.gpu == fit.gpu and family(e) in fit.tables and e.op == "prepare" and keep(e)]
    if alone:
        once_s = float(np.median(np.concatenate([e.time_s[e.tokens <= FEW] for e in alone])))
        per_s = np.concatenate([((e.time_s - once_s) / e.tokens)[e.tokens >= MANY] for e in alone])
        return {"prepare_s": once_s, "prepare_token_s": float(np.median(per_s))}
    over = [e for e in rows_of(fit) if e.nodes > 1 and e.prepare_s.any() and keep(e)]
    if not over:
        return {}
    return {"prepare_nodes_s": float(np.median(np.concatenate(
        [e.prepare_s[e.tokens <= FEW] / log(e.nodes, 2) for e in over])))}  # fmt: skip


FEW, MANY = 64, 4096
"""Tokens of a rank: so few that launch and flags are all, so many that they are nothing."""


def shipped(name: str, keep: Callable[[Sweep], bool]) -> dict[str, Costs]:
    """Return what goes into kernels.yaml: the costs, with the step before dispatch."""
    found, before = fitted(name, keep), prepared(name, keep)
    key = "normal.dispatch"
    return found | ({key: replace(found[key], **before)} if before else {})


# --- judgement -------------------------------------------------------------------------------------------------------


def errors_of(chosen: Iterable[Sweep], costs: dict[str, Costs], sms: int) -> Array:
    """Return the relative errors of all rows of the sweeps."""
    found = [predicted_s(e, costs[f"{e.mode}.{e.op}"], sms) / e.time_s - 1 for e in chosen]
    return np.concatenate(found) if found else np.zeros(0)


def looked_up(chosen: Iterable[Sweep], known: Sequence[Sweep]) -> Array:
    """Return the relative errors of a planner: the nearest measured setting, interpolated over tokens."""
    found = []
    for e in chosen:
        same = [each for each in known if (each.mode, each.op) == (e.mode, e.op)]
        if same:
            near = min(same, key=lambda each: _distance(e, each))
            guess = np.exp(np.interp(np.log(e.tokens), np.log(near.tokens), np.log(near.time_s)))
            slope = np.where(e.tokens > near.tokens.max(), e.tokens / near.tokens.max(), 1.0)
            found.append(guess * slope / e.time_s - 1)
    return np.concatenate(found) if found else np.zeros(0)


def _distance(one: Sweep, other: Sweep) -> float:
    """Return how far settings are apart: factors between their numbers, added as logarithms."""
    names = ("nodes", "ranks", "sms", "hidden", "top_k", "experts")
    apart = sum(abs(log(max(getattr(one, name), 1) / max(getattr(other, name), 1))) for name in names)
    return apart + (one.dtype != other.dtype) + 2 * (family(one) != family(other))


def told(errors: Array) -> str:
    """Return median and 90th percentile of the size of errors, and their median with its sign, in percent."""
    if not len(errors):
        return "-"
    sizes = 100 * np.abs(errors)
    return f"{np.median(sizes):.1f} / {np.quantile(sizes, 0.9):.1f} ({100 * np.median(errors):+.0f})"


def fits_all(sweep: Sweep) -> bool:
    """Return True for a sweep that may be fitted."""
    return part(sweep) != "test"


HEAD = "| kernels | mode | operation | GPU | nodes | rows | fitted | rows | not fitted | left out | lookup |\n"


def kernel_table() -> str:
    """Return the errors by kernels, mode, operation, GPU and nodes."""
    lines = [HEAD, "|" + " --- |" * 11 + "\n"]
    for name, fit in FITS.items():
        costs = fitted(name, fits_all)
        cells: dict[tuple[str, str, int], list[Sweep]] = defaultdict(list)
        for e in rows_of(fit):
            cells[e.mode, e.op, e.nodes].append(e)
        for (mode, op, nodes), group in sorted(cells.items(), reverse=True):
            seen = errors_of([e for e in group if fits_all(e)], costs, fit.sms)
            unseen = errors_of([e for e in group if not fits_all(e)], costs, fit.sms)
            out, lookup = left_out(name, group)
            lines.append(f"| {name} | {mode} | {op} | {fit.gpu} | {nodes} | {len(seen)} | {told(seen)} "
                         f"| {len(unseen)} | {told(unseen)} | {told(out)} | {told(lookup)} |\n")  # fmt: skip
    return "".join(lines)


def left_out(name: str, group: Sequence[Sweep]) -> tuple[Array, Array]:
    """Return errors of fits and of the lookup without what a whole group is about, of all of its rows.

    That is the number of nodes if there are several, else the number of ranks, else the model.
    """
    fit, out, lookup = FITS[name], [], []
    of = next((by for by in (_nodes, _ranks) if len({by(e) for e in rows_of(fit)}) > 1), _model)
    for which in sorted({of(e) for e in group}):
        mine = [e for e in group if of(e) == which]

        def keep(sweep: Sweep, which: tuple[int, ...] = which) -> bool:
            return fits_all(sweep) and not (sweep.gpu == fit.gpu and of(sweep) == which)

        known = [e for e in rows_of(fit) if keep(e)]
        if any((e.mode, e.op) == (mine[0].mode, mine[0].op) and not congested(e) for e in known):
            out.append(errors_of(mine, _cached(name, of.__name__, which), fit.sms))
            lookup.append(looked_up(mine, known))
    empty = [np.zeros(0)]
    return np.concatenate(out or empty), np.concatenate(lookup or empty)


@cache
def _cached(name: str, by: str, which: tuple[int, ...]) -> dict[str, Costs]:
    of = {"_nodes": _nodes, "_ranks": _ranks, "_model": _model}[by]
    gpu = FITS[name].gpu
    return fitted(name, lambda sweep: fits_all(sweep) and not (sweep.gpu == gpu and of(sweep) == which))


def _nodes(sweep: Sweep) -> tuple[int, ...]:
    return (sweep.nodes,)


def _ranks(sweep: Sweep) -> tuple[int, ...]:
    return (sweep.ranks,)


def _model(sweep: Sweep) -> tuple[int, ...]:
    return (sweep.hidden, sweep.top_k, sweep.experts)


RELATIVES = {"deepep_v1": "deepep_v1_b200", "deepep_v1_b200": "deepep_v1", "deepep_v1_gb200": "deepep_v1_b200"}
"""Whose costs a GPU gets if none of its own rows were known."""


def system_table() -> str:
    """Return the errors on a GPU left out as a whole: with the costs of its relative, and with its rows looked up."""
    lines = ["| GPU left out | costs of | mode | operation | rows | left out | lookup |\n", "|" + " --- |" * 7 + "\n"]
    for name, other in RELATIVES.items():
        fit, relative = FITS[name], FITS[other]
        wires = {key: _wire(costs) for key, costs in fitted(name, fits_all).items()}
        own = {key: replace(costs, **wires[key]) for key, costs in fitted(other, fits_all).items()}
        known = [e for e in rows_of(relative) if fits_all(e)]
        for mode in ("normal", "low_latency"):
            for op in ("dispatch", "combine"):
                mine = [e for e in rows_of(fit) if (e.mode, e.op, e.nodes) == (mode, op, 1)]
                errors, lookup = errors_of(mine, own, fit.sms), looked_up(mine, known)
                cells = f"{fit.gpu} | {other} | {mode} | {op} | {len(errors)} | {told(errors)} | {told(lookup)}"
                lines.append(f"| {cells} |\n")
    return "".join(lines)


def _wire(costs: Costs) -> dict[str, float]:
    return {name: getattr(costs, name) for name in WIRE}


def width_of(name: str, mode: str) -> float:
    """Return the factor either way that 19 of 20 rows lie within: of those not fitted, or left out in turn."""
    fit = FITS[name]
    costs = fitted(name, fits_all)
    unseen = [e for e in rows_of(fit) if e.mode == mode and not fits_all(e) and not congested(e)]
    errors = errors_of(unseen, costs, fit.sms)
    if not len(errors):
        groups = [[e for e in rows_of(fit) if (e.mode, e.op) == (mode, op)] for op in ("dispatch", "combine")]
        errors = np.concatenate([left_out(name, group)[0] for group in groups if group])
    return float(np.exp(np.quantile(np.abs(np.log1p(errors)), WITHIN)))


WITHIN = 0.93
"""Part of the rows that intervals hold: a little more than the nine of ten that they promise."""


def print_fits(names: Iterable[str]) -> None:
    """Print what goes into kernels.yaml."""
    for name in names:
        costs = shipped(name, fits_all)
        modes = list(dict.fromkeys(key.split(".")[0] for key in costs))
        widths = ", ".join(f"{mode}: {width_of(name, mode):.3g}" for mode in modes)
        print(f"  {name}:\n    width: {{{widths}}}\n    costs:")
        for mode in modes:
            print(f"      {mode}:")
            for op in ("dispatch", "combine"):
                print(f"        {op}: {{{_figures(costs[f'{mode}.{op}'])}}}")


def _figures(costs: Costs) -> str:
    """Return the figures of costs that are not what they are by default."""
    plain = asdict(Costs(0.0))
    found = {key: value for key, value in asdict(costs).items() if value != plain[key] and value < MUCH}
    return ", ".join(f"{key}: {value:.3g}" for key, value in found.items() if abs(value) > LITTLE)


MUCH, LITTLE = 1e13, 1e-11
"""Rates beyond so many bytes per second, and times below so many seconds, are none."""


def tables() -> str:
    """Return all tables."""
    return f"{kernel_table()}\n{system_table()}"


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="print the costs that the fitted sweeps give")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/moe_accuracy.md")
    options = parser.parse_args()
    if options.fit:
        print_fits(FITS)
    elif options.write:
        put_between(PAGE, BEGIN, END, tables())
    else:
        print(tables())
    return 0


if __name__ == "__main__":
    sys.exit(main())
