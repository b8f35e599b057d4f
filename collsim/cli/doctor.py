"""``collsim doctor``: what collsim runs on, and compiling its kernels ahead of the first large run."""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from itertools import zip_longest
from textwrap import wrap

import click

from collsim._version import __version__
from collsim.cli.output import screen_of, write_page
from collsim.core.errors import CollsimError, Fault
from collsim.core.units import format_count

__all__ = ["doctor"]

PACKAGES = ("numpy", "scipy", "numba")
SETTING = "NUMBA_CACHE_DIR"
HINT = f"set {SETTING} to a folder that can be written"
SWITCH = "NUMBA_DISABLE_JIT"


@click.command()
@click.option("--warm", is_flag=True, help="Compile all kernels now, so that later runs find them.")
def doctor(warm: bool) -> None:
    """Say what collsim runs on, and where it keeps compiled code.

    \b
    Examples:
      collsim doctor
      collsim doctor --warm

    Large runs need kernels that are compiled once for each machine and user, which takes seconds. Exit code 1: a
    package cannot be imported, or with --warm, no folder can keep what is compiled.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    version = ".".join(map(str, sys.version_info[:3]))
    lines = [("collsim", __version__), ("python", f"{version}, {sys.executable}")]
    lines += [(name, _version_of(name)) for name in PACKAGES]
    _say(*lines, *_kept())
    if warm:
        _say(("warm", _warmed()))


def _say(*lines: tuple[str, str]) -> None:
    width = screen_of(None, wide=False, verbose=False).width
    for name, text in lines:
        parts = [text] if width is None else wrap(text, width - 9)
        write_page("".join(f"{word:<8} {part}\n" for word, part in zip_longest([name], parts, fillvalue="")))


def _version_of(package: str) -> str:
    try:
        return str(import_module(package).__version__)
    except ImportError as error:
        raise CollsimError(Fault(f"{package} cannot be imported: {error}", "", "install collsim anew")) from None


def _kept() -> list[tuple[str, str]]:
    """Return where compiled kernels are kept, and what to do if that is not where they should be."""
    from collsim.engine.warmup import cache_folder, is_compiling

    if not is_compiling():
        return [("kernels", f"are not compiled, as {SWITCH} is set: large runs take a hundred times as long")]
    folder, wanted = cache_folder(), os.environ.get(SETTING)
    if folder is None:
        return [("kernels", "are kept nowhere: no folder can be written"), ("hint", HINT)]
    lines = [("kernels", f"are kept in {folder}, which can be written")]
    if wanted and os.path.commonpath([os.path.abspath(wanted), folder]) != os.path.abspath(wanted):  # noqa: PTH100
        lines.append(("hint", f"{wanted} cannot be written: {HINT}"))
    return lines


def _warmed() -> str:
    """Compile all kernels, and return how long it took.

    Raises
    ------
    CollsimError
        Nothing would be left of it for later runs.
    """
    from collsim.engine.warmup import cache_folder, is_compiling, warm

    if not is_compiling():
        raise CollsimError(Fault("kernels are not compiled", SWITCH, "unset it"))
    if cache_folder() is None:
        raise CollsimError(Fault("no folder can keep compiled kernels", "", HINT))
    start_s = time.perf_counter()
    compiled = warm()
    told = f"compiled {format_count(len(compiled), 'kernel')}" if compiled else "all kernels were there, loaded"
    return f"{told} in {time.perf_counter() - start_s:.1f} s"
