"""Tunings as a table for people, as rules for a tuner plugin and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from collsim.core.errors import chosen
from collsim.planning.tuning import VERDICTS, TunedSize, Tuning
from collsim.report.nccl import time_text
from collsim.report.sheet import WHOLE, Column, Screen, document, fitted, fitting, not_shown, sheet

__all__ = ["TUNING_FORMATS", "render_tuning"]

TUNING_FORMATS = ("table", "csv", "json")
COLUMNS: tuple[Column[TunedSize], ...] = (
    Column("op", lambda row: row.op, kind="prose"),
    Column("ranks", lambda row: str(row.ranks)),
    Column("size", lambda row: str(row.size_bytes), "(B)"),
    Column("library", lambda row: row.library.label, kind="word"),
    Column("time", lambda row: time_text(row.library.time_s), "(us)"),
    Column("best", lambda row: row.best.label, kind="word"),
    Column("its time", lambda row: time_text(row.best.time_s), "(us)"),
    Column("gain", lambda row: f"{row.gain:.2f}", "(x)"),
    Column("error", lambda row: "" if row.band is None else f"{row.band:.2f}", "(x)"),
    Column("verdict", lambda row: row.verdict, kind="prose"),
)


def render_tuning(found: Tuning, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return *found* in one of `TUNING_FORMATS`, ending in a newline; ``csv`` are the rules of a tuner plugin.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    forms: dict[str, Callable[[], str]] = {
        "table": lambda: _table(found, screen), "csv": found.to_rules, "json": found.to_json,
    }  # fmt: skip
    return chosen("format", form, forms, "--format")()


def _table(found: Tuning, screen: Screen) -> str:
    head = screen.comments(
        [f"collsim {found.version}   topo {found.topology}   profile {found.profile}   {found.library}"]
    )
    whole = fitted(COLUMNS, found.rows)
    room = screen if screen.width is None else replace(screen, width=screen.width - 2)
    shown = fitting(whole, room, ("ranks", "error", "time its_time"))
    counts = Counter(row.verdict for row in found.rows)
    told = [
        "; ".join(
            f"{counts[verdict]} of {len(found.rows)} sizes: {verdict}" for verdict in VERDICTS if counts[verdict]
        ),
        "library: what it chooses by itself; best: the fastest in the simulator of what the tuner can ask of it",
        "error: how far 9 of 10 ratios of predicted times are off at most; a gain beyond it is an override",
        *(f"{rule}: {words}" for rule, words in found.rules),
        *(f"without a plugin, {line}" for line in found.to_environment()),
    ]
    return document(
        [*head, "#", *sheet(shown, found.rows, screen), *screen.comments([*told, *not_shown(whole, shown)])]
    )
