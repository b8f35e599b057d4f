"""Where a command's answer goes: stdout, or a file that is either whole or not there."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from collsim.errors import Fault, InputError

__all__ = ["leave_pipe", "output_format", "patience", "write"]

PATIENCE_S = 1.5


@contextmanager
def patience() -> Iterator[None]:
    """Say on stderr what takes so long, if it takes long."""
    timer = threading.Timer(PATIENCE_S, _explain)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _explain() -> None:
    compiles = "collsim.engine.kernels" in sys.modules
    text = (
        "still working; the first large run compiles kernels, once, for some seconds" if compiles else "still working"
    )
    click.echo(text, err=True)


def leave_pipe() -> NoReturn:
    """Leave quietly: whoever read the output has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def output_format(form: str | None, output: str | None) -> str:
    """Return the format asked for, else the one that the file name suggests, else a table."""
    from collsim.errors import UnknownNameError
    from collsim.report import FORMATS, SUFFIXES

    if form is not None:
        if form not in FORMATS:
            raise UnknownNameError("format", form, FORMATS, "form")
        return form
    suffix = os.path.splitext(output or "")[1].lower()  # noqa: PTH122 - a path class is slower to import
    if suffix and suffix not in SUFFIXES:
        hint = f"end it in {', '.join(SUFFIXES)}, or add --format"
        raise InputError(Fault(f'the suffix "{suffix}" names no format', "output", hint))
    return SUFFIXES.get(suffix, "table")


def write(text: str, file: str | None) -> None:
    """Write to *file*; to stdout if there is none, or if it is called -."""
    if file not in (None, "-"):
        from collsim.report import write_text

        write_text(text, str(file))
        return
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        leave_pipe()
