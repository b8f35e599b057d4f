"""Dispatch and combine as a table for people, as Markdown, csv and JSON; the models and kernels that there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from collsim.core.errors import chosen
from collsim.core.tabular import json_text
from collsim.core.units import format_bytes, format_count
from collsim.moe.comparison import MoeComparison, MoeSystem
from collsim.moe.result import MoeRefusal, MoeResult, MoeRow
from collsim.report.nccl import time_text
from collsim.report.sheet import (
    WHOLE,
    Column,
    Screen,
    document,
    fitted,
    fitting,
    heads,
    line_of,
    markdown,
    not_shown,
    sheet,
    with_refused,
)
from collsim.report.table import consequences, doubtful
from collsim.simulation.request.tolerance import percent

__all__ = ["MOE_FORMATS", "kernels_text", "models_text", "render_moe"]

T = TypeVar("T")
MOE_FORMATS = ("table", "csv", "json", "md")
DROP = ("node", "imbalance", "network", "load", "logical", "low high", "nodes", "bound", "least most")
"""Columns that go first where a screen is too narrow, in this order."""
INDENT = 2
MOST_HOT = 4
HOT = 1.1
"""Rank that receives this many times the mean is hot."""
LOGICAL = {
    "normal": "a token once for each node it goes to, its own included: with N nodes, (N-1)/N of them is on the wire",
    "low_latency": "a token once for each of its experts, those on the own rank and node included",
    "all_to_all": "a token once for each rank it goes to, its own included",
}
"""Copies of a token that published bandwidths count, by mode."""


class Line(NamedTuple):
    """Of the table: what stands as its operation, and those whose figures it has, which a sum adds."""

    op: str
    rows: tuple[MoeRow, ...]

    @property
    def alone(self) -> MoeRow | None:
        """Operation of a line of one; None for what is before, and for a sum."""
        return self.rows[0] if len(self.rows) == 1 else None


LOW_HIGH = "low, high: nine of ten measured times lie between them"
BEFORE, SUM = "prepare", "sum"
PREPARE = "prepare: counting tokens before dispatch, a step of its own that the sum holds"


Pair = tuple[MoeRow, MoeRow]
"""Dispatch and combine of a number of ranks."""


class ComparedMoe(NamedTuple):
    """Line of a comparison: ranks, system, its dispatch and combine, None if it has too few GPUs, and its speedup."""

    ranks: int
    system: MoeSystem
    pair: Pair | None
    speedup: float | None


def _alone(text: Callable[[MoeRow], str]) -> Callable[[Line], str]:
    """Text of an operation; nothing for the sum."""
    return lambda line: "" if line.alone is None else text(line.alone)


def _total(name: str) -> Callable[[Line], str]:
    """Text of a figure that is added; what is before has none."""
    return lambda line: "" if line.op == BEFORE else time_text(sum(getattr(row, name) for row in line.rows))


def _time(line: Line) -> str:
    """Text of the time of an operation, of the steps before, or of all together."""
    if line.alone is not None:
        return f"{'~' * bool(line.alone.tolerance)}{time_text(line.alone.time_s)}"
    name = "prepare_s" if line.op == BEFORE else "whole_s"
    return time_text(sum(getattr(row, name) for row in line.rows))


def _end(name: str) -> Callable[[Line], str]:
    """Text of an end of the interval of an operation."""
    return _alone(lambda row: _interval_end(getattr(row, name)))


def _interval_end(end_s: float | None) -> str:
    return "" if end_s is None else time_text(end_s)


def _extreme(pick: Callable[[Sequence[float]], float]) -> Callable[[Line], str]:
    """Text of the least or the most of all samples; nothing for one, nor for what is the same before all."""

    def text(line: Line) -> str:
        before_s = sum(row.prepare_s for row in line.rows) if line.op == SUM else 0.0
        sums = [sum(times_s) for times_s in zip(*(row.times_s for row in line.rows), strict=True)]
        return time_text(before_s + pick(sums)) if len(sums) > 1 and line.op != BEFORE else ""

    return text


def _GBps(rate_Bps: float) -> str:
    return f"{rate_Bps / 1e9:.2f}" if rate_Bps else "-"


def _of_pair(text: Callable[[Pair], str], without: str) -> Callable[[ComparedMoe], str]:
    """Text of a system that has an answer."""
    return lambda line: without if line.pair is None else text(line.pair)


def _before_all(pair: Pair) -> str:
    """Text of the steps before, where there are any."""
    before_s = sum(row.prepare_s for row in pair)
    return time_text(before_s) if before_s else ""


def _longer(pair: Pair) -> MoeRow:
    return max(pair, key=lambda row: row.time_s)


COLUMNS: tuple[Column[Line], ...] = (
    Column("ranks", lambda line: str(line.rows[0].ranks)),
    Column("nodes", lambda line: str(line.rows[0].nodes)),
    Column("op", lambda line: line.op, kind="prose"),
    Column("time", _time, "(us)"),
    Column("least", _extreme(min), "(us)"),
    Column("most", _extreme(max), "(us)"),
    Column("load", _total("load_s"), "(us)"),
    Column("bound", _total("lower_bound_s"), "(us)"),
    Column("low", _end("time_lo_s"), "(us)"),
    Column("high", _end("time_hi_s"), "(us)"),
    Column("logical", _alone(lambda row: _GBps(row.logical_Bps)), "(GB/s)"),
    Column("node", _alone(lambda row: _GBps(row.node_Bps)), "(GB/s)"),
    Column("network", _alone(lambda row: _GBps(row.network_Bps)), "(GB/s)"),
    Column("imbalance", _alone(lambda row: f"{row.imbalance:.2f}"), "(x)"),
    Column("limited by", _alone(lambda row: row.limited_by), kind="prose"),
)
COMPARED: tuple[Column[ComparedMoe], ...] = (
    Column("ranks", lambda line: str(line.ranks)),
    Column("system", lambda line: line.system.label, kind="prose"),
    Column("prepare", _of_pair(_before_all, ""), "(us)"),
    Column("dispatch", _of_pair(lambda pair: time_text(pair[0].time_s), "-"), "(us)"),
    Column("low", _of_pair(lambda pair: _interval_end(pair[0].time_lo_s), ""), "(us)"),
    Column("high", _of_pair(lambda pair: _interval_end(pair[0].time_hi_s), ""), "(us)"),
    Column("combine", _of_pair(lambda pair: time_text(pair[1].time_s), "-"), "(us)"),
    Column("low", _of_pair(lambda pair: _interval_end(pair[1].time_lo_s), ""), "(us)"),
    Column("high", _of_pair(lambda pair: _interval_end(pair[1].time_hi_s), ""), "(us)"),
    Column("sum", _of_pair(lambda pair: time_text(pair[0].whole_s + pair[1].whole_s), "-"), "(us)"),
    Column("speedup", lambda line: "-" if line.speedup is None else f"{line.speedup:.3g}", "(x)"),
    Column(
        "limited by",
        lambda line: line.system.why_not(line.ranks).what if line.pair is None else _longer(line.pair).limited_by,
        kind="prose",
    ),
)


def render_moe(found: MoeResult | MoeComparison, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return dispatch and combine, of one system or of several, in one of `MOE_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    forms: dict[str, Callable[[Any], str]] = {
        "table": lambda each: _table(each, screen),
        "csv": _csv,
        "json": _json,
        "md": _markdown,
    }
    return chosen("format", form, forms, "--format")(found)


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
        told = f"{', '.join(kernel.costs)}; {kernel.title}; {kernel.source}; fit: {kernel.fit}"
        lines.append(f"{kernel.name:<{wide}} {kernel.sms:>3} {kernel.kind:<8} {told}")
    return "".join(f"{line}\n" for line in lines)


def _json(found: MoeResult | MoeComparison) -> str:
    return json_text(found.to_dict())


def _csv(found: MoeResult | MoeComparison) -> str:
    """Return a header and one line per operation and number of ranks, and system if there are several; SI."""
    return found.to_csv()


def _table(found: MoeResult | MoeComparison, screen: Screen = WHOLE) -> str:
    """Rows; every line that is not data starts with ``#``."""
    inner = screen if screen.width is None else replace(screen, width=screen.width - INDENT)
    if isinstance(found, MoeComparison):
        shown, lost, has_interval = _sheet(COMPARED, _compared(found), inner)
    else:
        shown, lost, has_interval = _sheet(_both(), _lines(found), inner)
    after = [told for told in _after(found) if has_interval or told != LOW_HIGH]
    return document([*screen.head(_before(found)), "#", *shown, *screen.comments([*after, *lost])])


def _sheet(columns: Sequence[Column[T]], rows: Sequence[T], screen: Screen) -> tuple[list[str], list[str], bool]:
    """Return the lines of a table for a screen, what it has no room for, and whether it shows intervals."""
    whole = fitted(columns, rows)
    shown = fitting(whole, screen, DROP)
    return sheet(shown, rows, screen), not_shown(whole, shown), any(column.name == "low" for column in shown)


def _markdown(found: MoeResult | MoeComparison) -> str:
    notes = [*_before(found), *_after(found)]
    if isinstance(found, MoeComparison):
        return markdown(COMPARED, _compared(found), notes)
    return markdown(_both(), _lines(found), notes)


def _lines(found: MoeResult) -> list[Line | MoeRefusal]:
    """Return what adds up to the sum for each number of ranks, and the sum; then those without an answer."""
    return [*(line for pair in found.pairs() for line in _added(pair)), *found.refused]


def _added(pair: Pair) -> list[Line]:
    """Return the lines of a number of ranks: the steps before if there are any, dispatch, combine, and their sum."""
    before = [Line(BEFORE, pair)] if any(row.prepare_s for row in pair) else []
    return [*before, *(Line(row.op, (row,)) for row in pair), Line(SUM, pair)]


def _both() -> list[Column[Line | MoeRefusal]]:
    """Return the columns, which show numbers of ranks without an answer as well."""

    def cells(refusal: MoeRefusal) -> dict[str, str]:
        return {"ranks": str(refusal.ranks), "time": "refused", "limited by": refusal.what}

    return with_refused(COLUMNS, MoeRefusal, cells)


def _compared(found: MoeComparison) -> list[ComparedMoe]:
    """One line for each number of ranks and system."""
    return [
        ComparedMoe(ranks, system, pair, speedup)
        for ranks in found.ep
        for system, pair, speedup in zip(found.systems, found.pairs(ranks), found.speedups(ranks), strict=True)
    ]


def _before(found: MoeResult | MoeComparison) -> list[str]:
    """Return the lines above the table: machine, model and kernels, with the doubts about them."""
    if not isinstance(found, MoeComparison):
        return [_machine(found, found.topology["name"]), *_asked(found), _kernel(found), *_figures(found)]
    answered = [(system.label, system.result) for system in found.systems if system.result is not None]
    lines = _asked(answered[0][1])
    for label, result in answered:
        lines += [_machine(result, label), _kernel(result), *_figures(result)]
    return lines


def _machine(result: MoeResult, label: str) -> str:
    topology = result.topology
    return (
        f"collsim {result.version}   topo {label} ({format_count(topology['ranks'], 'GPU')}, {topology['links']} links)"
    )


def _figures(result: MoeResult) -> list[str]:
    damage = result.topology["damage"]
    told = [f"with {damage['summary']}", *damage["effects"]] if damage else []
    return [*told, *consequences(result.topology["follows"]), *doubtful(result.topology["not_datasheet"])]


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
        f"placement {result.expert_placement}{copies}",
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
    calibrated = f"calibrated: {'yes' if kernel['calibrated'] else 'no'}, on {kernel['fit']}"
    told = f"{kernel['title']}; source: {kernel['source']}; {calibrated}"
    return f"kernels {kernel['name']} ({kernel['kind']}), {sms} SMs: {told}"


def _after(found: MoeResult | MoeComparison) -> list[str]:
    """Return the lines below the table: summary of the rows, and the meaning of columns that may puzzle."""
    if isinstance(found, MoeComparison):
        told = [f"speedup: the sum of {found.systems[0].label} over that of the other system"]
        told += [PREPARE] * any(row.prepare_s for each in found.systems if each.result for row in each.result.rows)
        results = [system.result for system in found.systems if system.result is not None]
    else:
        told = [line for pair in found.pairs() for line in _hot(pair[0])]
        told += [*_wire_bytes(found), *_meanings(found)]
        results = [found]
    rows = [row for result in results for row in result.rows]
    told += [LOW_HIGH] * (isinstance(found, MoeComparison) and any(row.time_lo_s is not None for row in rows))
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
    """Return lines with the bytes that a rank sends in a layer, for each of its tokens, and in all layers."""
    layers, tokens = found.model["layers"], found.config["tokens"]
    places = ("node", "network")[: 1 + any(row.nodes > 1 for row in found.rows)]
    each = tokens if isinstance(tokens, int) else sum(tokens) / len(tokens)
    scales = {"a layer": 1.0, "a token": 1 / each if each else 0.0, f"x {layers}": float(layers)}

    def bytes_of(place: str, scale: float) -> Callable[[Pair], str]:
        return lambda pair: format_bytes(sum(getattr(row, f"{place}_bytes") for row in pair) * scale)

    columns: list[Column[Pair]] = [
        Column("", lambda pair: str(pair[0].ranks), "ranks"),
        *(Column(name, bytes_of(place, scale), place) for name, scale in scales.items() for place in places),
        Column(f"x {layers}", lambda pair: f"{sum(row.whole_s for row in pair) * layers * 1e3:.4g} ms", "time"),
    ]
    pairs = found.pairs()
    shown = fitted(columns, pairs)
    table = [*heads(shown), *(line_of(shown, pair) for pair in pairs)]
    of = f"{layers} such layers" if layers > 1 else "this layer"
    return [
        f"dispatch and combine: what a rank sends in a layer, for each of its tokens, and in a step of {of}",
        *table,
    ]


def _meanings(found: MoeResult) -> list[str]:
    """Return the meaning of the columns, a line each."""
    return [
        f"logical: bytes as DeepEP counts them, {LOGICAL[found.config['mode']]}",
        "node, network: what a rank sends on the wire within its node, relayed bytes too, and to other nodes",
        "load: what the busiest link or GPU needs at the rate of the kernels; bound: bytes over line rates",
        *[LOW_HIGH] * (found.rows[0].time_lo_s is not None),
        *[PREPARE] * any(row.prepare_s for row in found.rows),
    ]
