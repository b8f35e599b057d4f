"""Answers of sweeps, tunings, serving and comparisons of workloads on a page: curves if there are some, and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from collsim.report.html.marks import card, cards, table, time_words
from collsim.report.html.panels import curves_by_op, panels, plain_table
from collsim.report.svg.bandwidth_curves import SERIES

__all__ = ["ANSWERS"]

FIGURES = ("time_s", "time_lo_s", "time_hi_s", "busbw_Bps", "tokens_per_s", "usd", "joules")
DECIDES = "limited by, or error"
TUNED = ("op", "ranks", "size_bytes", "library", "library_time_s", "best", "best_time_s", "gain", "verdict")
JOBS = ("name", "ranks", "offered_per_s", "requests_per_s", "tokens_per_s", "capacity_tokens_per_s", "token_median_s",
        "token_p99_s", "wait_p99_s", "latency_median_s")  # fmt: skip
Content = Mapping[str, Any]


def _swept(content: Content) -> Iterator[str]:
    """Yield a sweep: bus bandwidth over size where sizes vary, a line for each choice of the rest, and the points."""
    points = content["points"]
    names = dict.fromkeys(name for point in points for name in point["asked"])
    axes = [name for name in names if len({str(point["asked"].get(name)) for point in points}) > 1]
    failed = [point for point in points if point["status"] != "ok"]
    told = [("points", len(points)), ("failed", len(failed)), ("on the front", len(content["front"]))]
    yield cards(card(name, f"{number:,}") for name, number in told if number)
    yield from panels(_curves_of_points([each for each in points if each["status"] == "ok"], axes), ())
    front = set(content["front"])
    shown = [point for point in points if point["key"] in front] or points
    if front:
        yield f"<h3>Not beaten in {escape(' and '.join(content['objectives']))} by another of the same work</h3>"
    rows = [
        {**{axis: _text(point["asked"].get(axis)) for axis in axes}, **_figures(point["answer"], point["error"])}
        for point in shown
    ]
    yield plain_table(rows, (*axes[:4], *FIGURES, DECIDES))


def _curves_of_points(points: Sequence[Content], axes: Sequence[str]) -> dict[tuple[str, int], Any]:
    """Return curves of the points that are collectives, as far as sizes vary; as many as have a colour each."""
    others = [axis for axis in axes if axis not in ("size", "op")]
    rows = [
        {**point["answer"], "asked": ", ".join(filter(None, (_text(point["asked"].get(axis)) for axis in others)))}
        for point in points
        if point["kind"] == "run"
    ]
    found = curves_by_op(rows) if "size" in axes else {}
    return {key: own[:SERIES] for key, own in found.items()}


def _tuned(content: Content) -> Iterator[str]:
    """Yield a tuning: how often the library's own choice is the fastest, what else would be, and the rules."""
    sizes = [{**row, **{who: _algorithm(row, who) for who in ("library", "best")}} for row in content["sizes"]]
    verdicts = Counter(row["verdict"] for row in sizes)
    yield cards(card(verdict, f"{number} of {len(sizes)} sizes") for verdict, number in verdicts.items())
    yield plain_table(sizes, TUNED)
    yield from _lines("Rules of a tuner plugin", content["rules"])
    yield from _lines("Without a plugin", content["environment"])


def _served(content: Content) -> Iterator[str]:
    """Yield what was served: every job, and how it went over time."""
    jobs = content["jobs"]
    yield cards(card(f"{job['name']}: a token", time_words(job["token_median_s"])) for job in jobs)
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
    yield from _lines("Refused", [_text(each) for each in content.get("refused", ())])


def _workloads(content: Content) -> Iterator[str]:
    """Yield a workload on several systems."""
    rows = [
        {"system": each["system"], "times as fast": each["speedup"], "exposed_s": each["answer"].get("exposed_s"),
         **_figures(each["answer"], each["error"])}
        for each in content["systems"]
    ]  # fmt: skip
    yield plain_table(rows, list(rows[0]) if rows else ())


def _figures(answer: Content, error: str | None) -> dict[str, Any]:
    """Return what a table of answers shows of one: its figures, and what decides them or why there are none."""
    return {**{name: answer.get(name) for name in FIGURES}, DECIDES: error or answer.get("limited_by")}


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
