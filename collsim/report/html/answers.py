"""Answers of sweeps, tunings, serving and comparisons of workloads on a page: curves if there are some, and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from collsim.report.html.marks import card, cards, table, time_words
from collsim.report.html.panels import curves_by_op, panels, plain_table
from collsim.report.svg.bandwidth_curves import SERIES

__all__ = ["ANSWERS", "EXPERTS"]

FIGURES = ("busbw_Bps", "tokens_per_s", "usd")
DECIDES = "limited by, or error"
NO_BREAK = "\N{NO-BREAK SPACE}"
BAND = "90 % of times (us)"
TUNED = ("op", "ranks", "size_bytes", "library", "library_time_s", "best", "best_time_s", "gain", "band", "verdict",
         "limited_by")  # fmt: skip
JOBS = ("name", "ranks", "requests_per_s", "tokens_per_s", "capacity_tokens_per_s", "token_median_s", "token_p99_s",
        "wait_p99_s", "limited_by")  # fmt: skip
EXPERTS = ("op", "ranks", "time_s", "time_lo_s", "time_hi_s", "lower_bound_s", "node_bytes", "network_bytes",
           "limited_by")  # fmt: skip
"""Columns of dispatch and combine."""
WIDE = "intervals are as wide"
"""Beginning of the note that says how far times of dispatch and combine may be off."""
Content = Mapping[str, Any]


def _swept(content: Content) -> Iterator[str]:
    """Yield a sweep: bus bandwidth over size where sizes vary, a line for each choice of the rest, and the points."""
    points = content["points"]
    names = dict.fromkeys(name for point in points for name in point["asked"])
    axes = [name for name in names if len({str(point["asked"].get(name)) for point in points}) > 1]
    failed = [point for point in points if point["status"] != "ok"]
    told = [("points", len(points)), ("failed", len(failed)), ("on the front", len(content["front"]))]
    answered = [point["answer"] for point in points if point["status"] == "ok"]
    yield cards([*(card(name, f"{number:,}") for name, number in told if number), *_at_a_glance(answered)])
    yield from panels(_curves_of_points([each for each in points if each["status"] == "ok"], axes), ())
    front = set(content["front"])
    shown = [point for point in points if point["key"] in front] or points
    if front:
        yield f"<h3>Not beaten in {escape(' and '.join(content['objectives']))} by another of the same work</h3>"
    rows = [
        {**{_short(axis): _text(point["asked"].get(axis)) for axis in axes},
         **_figures(point["answer"], point["error"])}
        for point in shown
    ]  # fmt: skip
    yield plain_table(rows, (*map(_short, axes[:4]), "time_s", BAND, DECIDES, *FIGURES))


def _at_a_glance(answers: Sequence[Content]) -> Iterator[str]:
    """Yield cards of what limits most answers, and of how far times may be off."""
    limits = Counter(kind for answer in answers if (kind := _kind_of_limit(answer)))
    if limits:
        (most, number), *rest = limits.most_common()
        more = ", ".join(f"{kind} {count}" for kind, count in rest[:3])
        yield card("limited by", f"{most}: {number} of {len(answers)}", f"others by {more}" * bool(more), hot=True)
    factors = [each["time_hi_s"] / each["time_lo_s"] for each in answers if each.get("time_lo_s")]
    if factors:
        half, widest = median(factors) ** 0.5, max(factors) ** 0.5
        more = f"90 % of measured times; the widest x {widest:.2f}, of {len(factors)} points that have one"
        yield card("error band", f"x {half:.2f} either way", more)


def _kind_of_limit(answer: Content) -> str:
    """Return what kind of thing limits an answer: links, a constant of the library by its name, or words."""
    if answer.get("limit_kind") == "wire":
        return "links"
    return str(answer.get("limit_name") or answer.get("limit_kind") or answer.get("limited_by") or "")


def _short(axis: str) -> str:
    return axis.removeprefix("overrides.")


def _curves_of_points(points: Sequence[Content], axes: Sequence[str]) -> dict[tuple[str, int], Any]:
    """Return curves of the points that are collectives, as far as sizes vary; as many as have a colour each."""
    others = [axis for axis in axes if axis not in ("size", "op")]
    rows = [
        {**point["answer"], "asked": ", ".join(_labels(point["asked"], others))}
        for point in points
        if point["kind"] == "run"
    ]
    found = curves_by_op(rows) if "size" in axes else {}
    return {key: own[:SERIES] for key, own in found.items()}


def _labels(asked: Content, axes: Sequence[str]) -> Iterator[str]:
    """Yield what tells a point from others: the name of its topology, and what else varies with its value."""
    for axis in axes:
        if text := _text(asked.get(axis)):
            yield text if axis == "topo" else f"{_short(axis)} {text}"


def _tuned(content: Content) -> Iterator[str]:
    """Yield a tuning: how often the library's own choice is the fastest, what else would be, and the rules."""
    sizes = [{**row, **{who: _algorithm(row, who) for who in ("library", "best")}} for row in content["sizes"]]
    verdicts = Counter(row["verdict"] for row in sizes)
    bands = [row["band"] for row in sizes if row.get("band")]
    told = [card(verdict, f"{number} of {len(sizes)} sizes") for verdict, number in verdicts.items()]
    if bands:
        told.append(card("error band of a gain", f"x {median(bands):.2f}", "less is no gain for sure"))
    largest = max(sizes, key=lambda row: row["size_bytes"], default=None)
    if largest and largest.get("limited_by"):
        told.append(card("largest size limited by", largest["limited_by"], hot=True))
    yield cards(told)
    yield plain_table(sizes, TUNED)
    yield from _lines("Rules of a tuner plugin", content["rules"])
    yield from _lines("Without a plugin", content["environment"])


def _served(content: Content) -> Iterator[str]:
    """Yield what was served: every job, and how it went over time."""
    jobs = content["jobs"]
    told = [card(f"{job['name']}: a token", time_words(job["token_median_s"]),
                 f"99 % within {time_words(job['token_p99_s'])}") for job in jobs]  # fmt: skip
    told += [card(f"{job['name']}: limited by", job["limited_by"], hot=True) for job in jobs if "limited_by" in job]
    told += [card("error band", note, "dispatch and combine") for note in content["notes"] if note.startswith(WIDE)]
    yield cards(told)
    yield plain_table(jobs, JOBS)
    for job in jobs:
        yield f"<h3>{escape(job['name'])} over time</h3>"
        yield plain_table(job["moments"])
    yield from _lines("Notes", content["notes"])


def _experts_compared(content: Content) -> Iterator[str]:
    """Yield dispatch and combine on several systems, and how many times as fast each is."""
    names = [str(system["system"]) for system in content["systems"]]
    heads = ("ranks", *(f"{name} (us)" for name in names), *(f"{name}: times as fast" for name in names[1:]))
    rows = [
        (str(row["ranks"]), *(_number(time_s, 1e6) for time_s in row["times_s"]), *map(_number, row["speedups"][1:]))
        for row in content["rows"]
    ]
    yield table(heads, rows)
    for system in content["systems"]:
        if system.get("result"):
            yield f"<h3>{escape(str(system['system']))}</h3>"
            yield plain_table(system["result"]["results"], EXPERTS)
    yield from _lines("Refused", [_text(each) for each in content.get("refused", ())])


def _workloads(content: Content) -> Iterator[str]:
    """Yield a workload on several systems."""
    rows = [
        {"system": each["system"], "times as fast": each["speedup"], "exposed_s": each["answer"].get("exposed_s"),
         **_figures(each["answer"], each["error"])}
        for each in content["systems"]
    ]  # fmt: skip
    yield cards(_at_a_glance([each["answer"] for each in content["systems"] if not each["error"]]))
    yield plain_table(rows, list(rows[0]) if rows else ())


def _figures(answer: Content, error: str | None) -> dict[str, Any]:
    """Return what a table of answers shows of one: its figures, and what decides them or why there are none."""
    low_s, high_s = answer.get("time_lo_s"), answer.get("time_hi_s")
    band = f"{low_s * 1e6:,.2f} to {high_s * 1e6:,.2f}".replace(" ", NO_BREAK) if low_s and high_s else ""
    told = {"time_s": answer.get("time_s"), BAND: band, DECIDES: error or answer.get("limited_by")}
    return told | {name: answer.get(name) for name in FIGURES}


def _algorithm(row: Content, who: str) -> str:
    return "/".join(filter(None, (row[f"{who}_algo"], row[f"{who}_proto"])))


def _number(value: float | None, factor: float = 1.0) -> str:
    return "" if value is None else f"{value * factor:.2f}"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _lines(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"<h3>{escape(title)}</h3>"
        yield "".join(f'<p class="soft">{escape(line)}</p>' for line in lines)


ANSWERS: Mapping[str, tuple[str, Callable[[Content], Iterator[str]]]] = {
    "collsim.sweep_result/1": ("Sweep", _swept),
    "collsim.tune/1": ("Tuning", _tuned),
    "collsim.serving_result/1": ("Serving", _served),
    "collsim.moe_compare/1": ("Dispatch and combine, systems compared", _experts_compared),
    "collsim.compare_workload/1": ("Workload, systems compared", _workloads),
}
"""Title and sections of each document by its schema."""
