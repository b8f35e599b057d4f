"""Serving as a table for people, and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collsim._version import __version__
from collsim.core.errors import chosen
from collsim.core.tabular import json_text
from collsim.core.units import format_time
from collsim.report.sheet import WHOLE, Column, Screen, comments, document, fitted, fitting, not_shown, sheet
from collsim.serving.result import JobResult, Moment, ServingResult

__all__ = ["SERVING_FORMATS", "render_serving"]

SERVING_FORMATS = ("table", "json")
SCHEMA = "collsim.serving_result/1"
DROP = ("wait", "link", "wait_p99", "offered", "latency")


def _ms(time_s: float) -> str:
    return f"{time_s * 1e3:.3g}" if time_s < 1 else f"{time_s * 1e3:.0f}"


def _percent(share: float) -> str:
    return f"{share:.1%}"


JOBS: tuple[Column[JobResult], ...] = (
    Column("job", lambda job: job.name, kind="prose"),
    Column("ranks", lambda job: str(job.ranks)),
    Column("offered", lambda job: f"{job.offered_per_s:.4g}", "(req/s)"),
    Column("finished", lambda job: f"{job.requests_per_s:.4g}", "(req/s)"),
    Column("tokens", lambda job: f"{job.tokens_per_s:.0f}", "(1/s)"),
    Column("capacity", lambda job: f"{job.capacity_tokens_per_s:.0f}", "(1/s)"),
    Column("token", lambda job: _ms(job.token_median_s), "(ms)"),
    Column("token p99", lambda job: _ms(job.token_p99_s), "(ms)"),
    Column("wait", lambda job: _ms(job.wait_median_s), "(ms)"),
    Column("wait p99", lambda job: _ms(job.wait_p99_s), "(ms)"),
    Column("latency", lambda job: _ms(job.latency_median_s), "(ms)"),
    Column("exposed", lambda job: _percent(job.exposed)),
    Column("link", lambda job: _percent(job.link_load)),
)
MOMENTS: tuple[Column[Moment], ...] = (
    Column("from", lambda part: f"{part.begin_s:.3g}", "(s)"),
    Column("to", lambda part: f"{part.end_s:.3g}", "(s)"),
    Column("tokens", lambda part: f"{part.tokens_per_s:.0f}", "(1/s)"),
    Column("running", lambda part: f"{part.running:.0f}"),
    Column("waiting", lambda part: f"{part.waiting:.0f}"),
    Column("step", lambda part: _ms(part.step_s), "(ms)"),
    Column("link", lambda part: _percent(part.link_load)),
)


def render_serving(found: ServingResult, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return what was served in one of `SERVING_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    forms: dict[str, Callable[[], str]] = {"table": lambda: _table(found, screen), "json": lambda: _json(found)}
    return chosen("format", form, forms, "--format")()


def _json(found: ServingResult) -> str:
    return json_text({"schema": SCHEMA, "collsim": __version__, **found.to_dict()})


def _table(found: ServingResult, screen: Screen) -> str:
    """Every line that is no row of the table of jobs starts with ``#``."""
    head = [
        f"collsim {__version__}   {found.file}   topo {found.topology}",
        f"{format_time(found.duration_s)}, the first {format_time(found.warm_up_s)} left out; seed {found.seed}; "
        f"{found.steps} steps, of which {found.simulated_steps} differ and were simulated",
    ]
    whole = fitted(JOBS, found.jobs)
    shown = fitting(whole, screen if screen.width is None else replace(screen, width=screen.width - 2), DROP)
    lost = not_shown(whole, shown, "a file or a pipe has all")
    lines = [*comments(head), "#", *sheet(shown, found.jobs), *comments(lost)]
    lines += comments([f"{job.name}: limited by {job.limited_by}" for job in found.jobs])
    for job in found.jobs:
        if job.alone_tokens_per_s and job.alone_token_median_s:
            told = (
                f"{job.name}: alone {job.alone_tokens_per_s:.0f} tokens/s, a token {_ms(job.alone_token_median_s)} ms; "
                f"others cost it {1 - job.tokens_per_s / job.alone_tokens_per_s:.1%} of the tokens and "
                f"{job.token_median_s / job.alone_token_median_s - 1:.1%} of the time of a token"
            )
            lines += comments([told])
    for job in found.jobs:
        lines += ["#", *comments([f"{job.name} over time:"])]
        lines += [line if line.startswith("#") else f"#{line[1:]}" for line in sheet(MOMENTS, job.moments)]
    return document([*lines, *comments([f"note: {note}" for note in found.notes])])
