"""Dispatch and combine as a table for people, as Markdown, csv and JSON; the models and kernels that there are."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from collsim.core.errors import UnknownNameError
from collsim.core.units import format_bytes
from collsim.moe.comparison import MoeComparison
from collsim.moe.result import MoeResult, MoeRow
from collsim.report.data import json_text
from collsim.report.nccl import time_text
from collsim.report.table import doubtful, escaped, wrapped
from collsim.simulation.request.tolerance import percent

__all__ = ["MOE_FORMATS", "kernels_text", "models_text", "render_moe"]

MOE_FORMATS = ("table", "csv", "json", "md")
COLUMNS: tuple[tuple[str, str], ...] = (
    ("ranks", ""), ("nodes", ""), ("op", ""), ("time", "(us)"), ("least", "(us)"), ("most", "(us)"), ("load", "(us)"),
    ("bound", "(us)"), ("logical", "(GB/s)"), ("node", "(GB/s)"), ("network", "(GB/s)"), ("imbalance", "(x)"),
    ("limit", ""), ("bottleneck", ""),
)  # fmt: skip
"""Name and unit; a column is left out where no row has anything."""
COMPARED: tuple[tuple[str, str], ...] = (
    ("ranks", ""), ("system", ""), ("dispatch", "(us)"), ("combine", "(us)"), ("sum", "(us)"), ("speedup", "(x)"),
    ("limit", ""), ("bottleneck", ""),
)  # fmt: skip
TO_THE_LEFT = ("op", "system", "limit", "bottleneck")
MOST_HOT = 4
HOT = 1.1
"""A rank that receives this many times the mean is hot."""
LOGICAL = {
    "normal": "a token once for each node it goes to, its own included: with N nodes, (N-1)/N of them is on the wire",
    "low_latency": "a token once for each of its experts, those on the own rank and node included",
    "all_to_all": "a token once for each rank it goes to, its own included",
}
"""How often published bandwidths count a token."""


def render_moe(found: MoeResult | MoeComparison, form: str = "table") -> str:
    """Return dispatch and combine, of one system or of several, in one of `MOE_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    forms: dict[str, Callable[[Any], str]] = {"table": _table, "csv": _csv, "json": _json, "md": _markdown}
    if form not in forms:
        raise UnknownNameError("format", form, forms, "--format")
    return forms[form](found)


def models_text() -> str:
    """Return one line for each model that comes with collsim."""
    from collsim.moe.models import load_model, model_names

    lines = [f"{'# model':<17} {'experts':>7} {'top-k':>5} {'hidden':>6} {'layers':>6} dispatch combine source"]
    for name in model_names():
        model = load_model(name)
        figures = f"{model.experts:>7} {model.top_k:>5} {model.hidden:>6} {model.layers:>6}"
        lines.append(f"{name:<17} {figures} {model.dispatch:<8} {model.combine:<7} {model.source}")
    return "".join(f"{line}\n" for line in lines)


def kernels_text() -> str:
    """Return one line for each set of kernels that comes with collsim."""
    from collsim.moe.kernel_costs import kernel_names, load_kernel

    kernels = [load_kernel(name) for name in kernel_names()]
    wide = max(map(len, ("# kernel", *(kernel.name for kernel in kernels))))
    lines = [f"{'# kernel':<{wide}} {'SMs':>3} {'kind':<8} modes; title; source"]
    for kernel in kernels:
        told = f"{', '.join(kernel.costs)}; {kernel.title}; {kernel.source}"
        lines.append(f"{kernel.name:<{wide}} {kernel.sms:>3} {kernel.kind:<8} {told}")
    return "".join(f"{line}\n" for line in lines)


def _json(found: MoeResult | MoeComparison) -> str:
    return json_text(found.to_dict())


def _csv(found: MoeResult | MoeComparison) -> str:
    """Return a header and one line per operation and number of ranks, and system if there are several; SI."""
    records = found.to_records()
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _table(found: MoeResult | MoeComparison) -> str:
    """Return the rows; every line that is not data starts with ``#``."""
    columns = _columns(found)
    widths = [max(map(len, column)) for column in columns]
    lines = [f"# {line}" for told in _before(found) for line in wrapped(told)] + ["#"]
    for place, cells in enumerate(zip(*columns, strict=True)):
        text = " ".join(
            f"{cell:<{width}}" if column[0] in TO_THE_LEFT else f"{cell:>{width}}"
            for column, cell, width in zip(columns, cells, widths, strict=True)
        )
        lines.append(("# " if place < 2 else "  ") + text)
    lines += [f"# {line}" for told in _after(found) for line in wrapped(told)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _markdown(found: MoeResult | MoeComparison) -> str:
    columns = _columns(found)
    heads = [" ".join(filter(None, column[:2])) for column in columns]
    rules = ["---" if column[0] in TO_THE_LEFT else "---:" for column in columns]
    lines = [heads, rules, *zip(*(column[2:] for column in columns), strict=True)]
    table = "\n".join("| " + " | ".join(map(escaped, cells)) + " |" for cells in lines)
    notes = "\n".join(f"* {escaped(told)}" for told in (*_before(found), *_after(found)))
    return f"{table}\n\n{notes}\n"


def _columns(found: MoeResult | MoeComparison) -> list[list[str]]:
    """Return every column that has something in it: its name, its unit and its cells."""
    if isinstance(found, MoeComparison):
        heads, cells = COMPARED, _compared_cells(found)
    else:
        heads, cells = COLUMNS, [line for pair in found.pairs() for line in _cells(pair)]
    columns = [[*head, *column] for head, column in zip(heads, zip(*cells, strict=True), strict=True)]
    return [column for column in columns if any(column[2:])]


def _cells(pair: tuple[MoeRow, MoeRow]) -> list[list[str]]:
    """Return the lines of dispatch, combine and both for one number of ranks."""
    first = pair[0]
    place = [str(first.ranks), str(first.nodes)]
    sums = [sum(times) for times in zip(*(row.times_s for row in pair), strict=True)]
    lines = [
        [
            *place, row.op, f"{'~' * bool(row.tolerance)}{time_text(row.time_s)}", *_extremes(row.times_s),
            time_text(row.load_s), time_text(row.bound_s), _GBps(row.logical_Bps), _GBps(row.node_Bps),
            _GBps(row.network_Bps), f"{row.imbalance:.2f}", row.limit, _busiest(row),
        ]
        for row in pair
    ]  # fmt: skip
    both = [time_text(sum(getattr(row, name) for row in pair)) for name in ("time_s", "load_s", "bound_s")]
    return [*lines, [*place, "sum", both[0], *_extremes(sums), *both[1:], *[""] * 6]]


def _extremes(times_s: Sequence[float]) -> list[str]:
    return [time_text(pick(times_s)) if len(times_s) > 1 else "" for pick in (min, max)]


def _GBps(rate_Bps: float) -> str:
    return f"{rate_Bps / 1e9:.2f}" if rate_Bps else "-"


def _busiest(row: MoeRow) -> str:
    if not row.bottleneck:
        return ""
    return f"{row.bottleneck[0].link} {row.bottleneck[0].utilisation:.0%}"


def _compared_cells(found: MoeComparison) -> list[list[str]]:
    """Return one line for each number of ranks and system."""
    lines = []
    for ranks in found.ep:
        for system, pair, speedup in zip(found.systems, found.pairs(ranks), found.speedups(ranks), strict=True):
            line = [str(ranks), system.label]
            if pair is None:
                lines.append([*line, "-", "-", "-", "-", "", f"{system.gpus} GPUs are too few"])
                continue
            times = [time_text(time_s) for time_s in (pair[0].time_s, pair[1].time_s, pair[0].time_s + pair[1].time_s)]
            longer = max(pair, key=lambda row: row.time_s)
            lines.append([*line, *times, f"{speedup:.3g}", longer.limit, _busiest(longer)])
    return lines


def _before(found: MoeResult | MoeComparison) -> list[str]:
    """Return what the reader must know before the numbers."""
    if not isinstance(found, MoeComparison):
        return [_machine(found, found.topology["name"]), *_asked(found), _kernel(found), *_figures(found)]
    answered = [(system.label, system.result) for system in found.systems if system.result is not None]
    lines = _asked(answered[0][1])
    for label, result in answered:
        lines += [_machine(result, label), _kernel(result), *_figures(result)]
    return lines


def _machine(result: MoeResult, label: str) -> str:
    topology = result.topology
    return f"collsim {result.version}   topo {label} ({topology['ranks']} GPUs, {topology['links']} links)"


def _figures(result: MoeResult) -> list[str]:
    damage = result.topology["damage"]
    told = [f"with {damage['summary']}", *damage["effects"]] if damage else []
    return [*told, *doubtful(result.topology["not_datasheet"])]


def _asked(result: MoeResult) -> list[str]:
    """Return the model, and what tokens do."""
    model, config = result.model, result.config
    limited = 0 < model["group_limit"] < model["groups"]
    groups = f" from {model['group_limit']} of {model['groups']} groups" * limited
    changed = " (changed)" * (model["kind"] == "user" and model["name"] != "custom")
    named = f"model {model['name']}{changed}: {model['experts']} experts, {model['top_k']} for each token{groups}; "
    named += f"{model['hidden']} elements, dispatch {model['dispatch']}, combine {model['combine']}"
    copies = f" with {config['redundant']} more copies" * bool(config["redundant"])
    samples = len(result.rows[0].times_s)
    drawn = "expected loads" if result.rows[0].seed is None else f"{samples} sample{'s' * (samples > 1)}"
    return [
        f"{named}; {model['layers']} layer{'s' * (model['layers'] > 1)} with experts",
        f"mode {config['mode']}   tokens {_tokens(config['tokens'])}   routing {result.routing}, {drawn}   "
        f"placement {result.placement}{copies}",
    ]


def _tokens(tokens: int | Sequence[int]) -> str:
    """Return the tokens of each rank in words.

    >>> _tokens(4096), _tokens([256, 256, 64])
    ('4096 per rank', '256x2,64x1')
    """
    if isinstance(tokens, int):
        return f"{tokens} per rank"
    return ",".join(f"{each}x{len(list(same))}" for each, same in groupby(tokens))


def _kernel(result: MoeResult) -> str:
    kernel, sms = result.kernel, result.config["sms"]
    if sms is None:
        return f"calls of the library, profile {kernel['name']} ({kernel['kind']}): {kernel['source']}"
    return f"kernels {kernel['name']} ({kernel['kind']}), {sms} SMs: {kernel['title']}; source: {kernel['source']}"


def _after(found: MoeResult | MoeComparison) -> list[str]:
    """Return what the rows come to, and what the columns mean where it may puzzle."""
    if isinstance(found, MoeComparison):
        told = [f"speedup: the sum of {found.systems[0].label} over that of the other system"]
        results = [system.result for system in found.systems if system.result is not None]
    else:
        told = [line for pair in found.pairs() for line in _hot(pair[0])]
        told += [*_wire_bytes(found), *_meanings(found)]
        results = [found]
    rows = [row for result in results for row in result.rows]
    if any(len(row.times_s) > 1 for row in rows):
        told.append("time: the median of the samples; other figures are of that sample, least and most of all of them")
    if about := max((row.tolerance for row in rows), default=0.0):
        told.append(f"~: ends of transfers were moved by up to {percent(about)} of their time; tolerance 0 is exact")
    return told


def _hot(row: MoeRow) -> list[str]:
    """Return which ranks receive much more than others."""
    hot = [f"{each.gpu} {each.load:.2f}" for each in row.hot[:MOST_HOT] if each.load >= HOT]
    return [f"hot of {row.ranks} ranks: {', '.join(hot)} times the mean of tokens for experts"] if hot else []


def _wire_bytes(found: MoeResult) -> list[str]:
    """Return what a rank sends in dispatch and combine of a layer, for each of its tokens, and in all layers."""
    layers, tokens = found.model["layers"], found.config["tokens"]
    places = ("node", "network")[: 1 + any(row.nodes > 1 for row in found.rows)]
    each = tokens if isinstance(tokens, int) else sum(tokens) / len(tokens)
    scales = {"a layer": 1.0, "a token": 1 / each if each else 0.0, f"x {layers}": float(layers)}
    lines = [
        ["", *(unit for unit in scales for _ in places), f"x {layers}"],
        ["ranks", *(place for _ in scales for place in places), "time"],
    ]
    for pair in found.pairs():
        sizes = [sum(getattr(row, f"{place}_bytes") for row in pair) for place in places]
        cells = [format_bytes(size * scale) for scale in scales.values() for size in sizes]
        lines.append([str(pair[0].ranks), *cells, f"{sum(row.time_s for row in pair) * layers * 1e3:.4g} ms"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [" ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines]
    of = f"{layers} such layers" if layers > 1 else "this layer"
    return [
        f"dispatch and combine: what a rank sends in a layer, for each of its tokens, and in a step of {of}",
        *table,
    ]


def _meanings(found: MoeResult) -> list[str]:
    """Return what the columns mean."""
    return [
        f"logical: bytes as DeepEP counts them, {LOGICAL[found.config['mode']]}",
        "node, network: what a rank sends on the wire within its node, relayed bytes too, and to other nodes",
        "load: what the busiest link or GPU needs at the rate of the kernels; bound: bytes over line rates",
    ]
