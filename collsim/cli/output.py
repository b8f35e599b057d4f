"""Output of a command: stdout, or a file that is either whole or not there."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from collsim.core.errors import Fault, Faults, InputError

if TYPE_CHECKING:
    from collsim.report import Screen

__all__ = [
    "ClosedStream",
    "Progress",
    "check_sources",
    "check_suffix",
    "check_targets",
    "discard_stdout",
    "leave_pipe",
    "named_files",
    "output_format",
    "patience",
    "screen_of",
    "stdout_failure",
    "write",
    "write_page",
]

PATIENCE_S = 1.5


@contextmanager
def patience(quiet: bool = False, *, keeps_done: bool = False) -> Iterator[None]:
    """Say on stderr what takes so long: that the engine is compiled, and on a terminal how far the work is.

    *keeps_done*: the answer of an interrupted command holds what is done; `collsim.core.progress.interrupted` says so.
    """
    from collsim.core.progress import listening

    if quiet:
        with listening(None, keeps_done=keeps_done):
            yield
        return
    from collsim.cli.notices import compiling_notice

    bar = Progress(delay_s=PATIENCE_S)
    timer = threading.Timer(PATIENCE_S, bar.say_still)
    timer.daemon = True
    timer.start()
    try:
        with closing(bar), compiling_notice(), listening(bar if bar.is_seen else None, keeps_done=keeps_done):
            yield
    finally:
        timer.cancel()


class Progress:
    """Bar on stderr with what is done, the rate and the time that is left; on a terminal alone, after *delay_s*."""

    def __init__(self, quiet: bool = False, delay_s: float = 0.0) -> None:
        self.is_seen = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self.delay_s = delay_s
        self.bar: Any = None

    def __call__(self, what: str, done: int, of: int) -> None:
        """Show that *done* of so many are done; another *what*, or a new beginning, is another bar."""
        if not self.is_seen:
            return
        if self.bar is None or self.bar.unit != what or done < self.bar.n:
            from tqdm import tqdm

            self.close()
            self.bar = tqdm(
                total=of, initial=done, unit=what, file=sys.stderr, dynamic_ncols=True,
                leave=not self.delay_s, delay=self.delay_s,
            )  # fmt: skip
        self.bar.update(done - self.bar.n)

    def say_still(self) -> None:
        """Say that there is work, where nothing tells how much of it is done."""
        if self.is_seen and self.bar is None:
            click.echo("still working", err=True)

    def close(self) -> None:
        """End the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class ClosedStream(io.TextIOBase):
    """Takes the place of a stdout that is closed, so that writing to it is an error instead of nothing."""

    def write(self, _: str, /) -> int:
        """Refuse."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def stdout_failure(error: Exception) -> str | None:
    """Return why stdout took no more if that is what *error* says; an error of any other file names the file."""
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    return "it is closed" if isinstance(sys.stdout, ClosedStream) else error.strerror


def discard_stdout() -> None:
    """Let nothing more be written to stdout, not even what is in its buffer."""
    if not isinstance(sys.stdout, ClosedStream):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def leave_pipe() -> NoReturn:
    """Leave quietly: whoever read the output has seen enough."""
    discard_stdout()
    sys.exit(0)


def output_format(form: str | None, output: str | None, forms: Iterable[str] | None = None) -> str:
    """Return the format asked for, else the one that the file name suggests, else a table.

    *forms* are the formats that the command has; without them those of a result.
    """
    from collsim.core.errors import UnknownNameError
    from collsim.report import FORMATS, SUFFIXES

    known = list(FORMATS if forms is None else forms)
    if form is not None:
        if form not in known:
            raise UnknownNameError("format", form, known, "form")
        _check_agreement(form, output)
        return form
    suffixes = {suffix: name for suffix, name in SUFFIXES.items() if name in known}
    suffix = _suffix(output or "")
    check_suffix(output, suffixes, f"end it in {', '.join(suffixes)}, or add --format")
    return suffixes.get(suffix, "table")


def _check_agreement(form: str, output: str | None) -> None:
    """Refuse a file that is called after another format; any text may be in .txt and .log."""
    from collsim.report import SUFFIXES

    suffix = _suffix(output or "")
    named = SUFFIXES.get(suffix, form)
    if named != form and suffix not in (".txt", ".log"):
        own = next((end for end, name in SUFFIXES.items() if name == form), ".txt")
        stem = str(output)[: -len(suffix)]
        raise InputError(Fault(f'"{output}" is called after {named}, not {form}', "output", f"write to {stem}{own}"))


def _suffix(file: str) -> str:
    return os.path.splitext(file)[1].lower()  # noqa: PTH122 - a path class is slower to import


def check_suffix(file: str | None, known: Iterable[str], hint: str, name: str = "output") -> None:
    """Raise if the suffix of the *file* that the parameter *name* names is none of *known*; no suffix is fine."""
    suffix = _suffix(file or "")
    inner = _suffix(file[: -len(suffix)]) if file and suffix == ".gz" else ""
    if (suffix and suffix not in known) or (inner and inner not in known):
        raise InputError(Fault(f'the suffix "{inner}{suffix}" names no format', name, hint))


def check_sources(files: Iterable[str], faults: Faults) -> None:
    """Check that files that are to be read have a name."""
    if not all(files):
        faults.append(Fault("the name of the file is empty", "FILE", "name a file"))


def check_targets(targets: Mapping[str, str | None], faults: Faults, sources: Iterable[str] = ()) -> None:
    """Check the files that are to be written, by the name of their parameter, before any work is done for them.

    *sources* are the files that the command reads; none of them may be replaced by what it writes.
    """
    from collsim.report import check_writable

    seen: dict[str, str] = {}
    for name, file in targets.items():
        if file == "":
            faults.append(Fault("the name of the file is empty", name, "name a file; - is stdout"))
            continue
        if file not in (None, "-"):
            inner = Faults()
            inner.attempt(check_writable, str(file))
            faults += [replace(fault, where=name, what=f"{fault.where}: {fault.what}") for fault in inner]
            _check_unread(str(file), name, sources, faults)
        place = _place(file) if file is not None else "-" * (name == "output")
        if place and place in seen:
            where = "stdout" if place == "-" else file
            hint = "name two files, or leave one of them out"
            faults.append(Fault(f"{where} would also take what {seen[place]} writes", name, hint))
        seen.setdefault(place, faults.place(name) if file is not None else "the command")


def _check_unread(file: str, name: str, sources: Iterable[str], faults: Faults) -> None:
    """Add a fault if *file*, under whatever name, is one that the command reads."""
    if any(source != "-" and _same(file, source) for source in sources):
        stem, suffix = os.path.splitext(file)  # noqa: PTH122 - a path class is slower to import
        what = f"it would replace {file}, which this command reads"
        faults.append(Fault(what, name, f"write to another file, such as {stem}_new{suffix}"))


def _same(file: str, source: str) -> bool:
    """Return True if both names are those of one regular file; a device may be read and written."""
    try:
        return os.path.isfile(source) and os.path.samefile(file, source)  # noqa: PTH113, PTH121 - as above
    except (OSError, ValueError):  # one of them is not there
        return False


def screen_of(file: str | None, *, wide: bool, verbose: bool, columns: tuple[str, ...] = ()) -> Screen:
    """Return how much of a table to show: all in a file or a pipe, and what there is room for on a terminal."""
    from collsim.report import Screen

    if file not in (None, "-") or not sys.stdout.isatty():
        return Screen(columns=columns)
    width = None if wide else shutil.get_terminal_size().columns
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Screen(width, brief=not verbose, colour=not plain, columns=columns)


def named_files(*values: str | None) -> list[str]:
    """Return those of the topologies and profiles that are files, not names of shipped ones."""
    return [text for text in values if text and ("/" in text or "\\" in text or text.endswith((".yaml", ".yml")))]


def _place(file: str) -> str:
    """Return the one name of a file under all of its names; nothing for a device, which may be written to twice."""
    if file == "-":
        return file
    real = os.path.realpath(file) if "\0" not in file else file
    return real if os.path.isfile(real) or not os.path.exists(real) else ""  # noqa: PTH110, PTH113 - as above


def write_page(text: str, file: str | None = None) -> None:
    """Write a page of text: to a terminal, as wide as that is."""
    from collsim.report.screens import on_screen

    write(on_screen(text, screen_of(file, wide=False, verbose=True).width), file)


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
