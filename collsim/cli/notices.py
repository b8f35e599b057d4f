"""Notices of the engine as a line on stderr; a module of its own, so that --help loads no logging."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["compiling_notice"]

KEPT = "once for this machine: a few seconds; collsim doctor --warm does it ahead"
LOST = "in each process, as no folder can keep it: a few seconds; collsim doctor says more"


@contextmanager
def compiling_notice() -> Iterator[None]:
    """Say on stderr that the engine is compiled, before it takes its seconds."""
    log, notice = logging.getLogger("collsim.engine"), _Notice()
    level = log.level
    log.addHandler(notice)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(notice)
        log.setLevel(level)


class _Notice(logging.Handler):
    """Passes the first record on, in words for people, and takes no more."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        from collsim.engine.warmup import cache_folder

        self.setLevel(record.levelno + 1)
        click.echo(f"compiling the engine, {LOST if cache_folder() is None else KEPT}", err=True)
