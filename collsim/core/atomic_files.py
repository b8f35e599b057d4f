"""Files that are either whole or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collsim.core.errors import Fault, InputError

__all__ = ["check_writable", "replacing", "write_text"]


def check_writable(file: str) -> None:
    """Raise `InputError` if *file* cannot be written, before any work is done for it."""
    path = Path(file)
    try:
        path.resolve()  # no name with a zero byte can be
        if path.is_dir():
            raise InputError(
                Fault("this is a directory, not a file", file, f"name a file in it: {path / 'result.json'}")
            )
        if not path.parent.is_dir():
            raise InputError(Fault(f'there is no directory "{path.parent}"', file, "make it, or write elsewhere"))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise InputError(Fault("no permission to write", file, "write elsewhere"))
    except (OSError, ValueError) as error:
        raise _refusal(file, error) from None


@contextmanager
def replacing(file: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside *file* to write to; it takes the place of *file* once that went well."""
    path = Path(file).resolve()
    partial = path.with_name(f".{path.name[:100]}.{os.getpid()}.tmp")
    try:
        yield partial
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(text: str, file: str) -> None:
    """Write *text* under a temporary name, then rename; what is no regular file, such as a pipe, is written to."""
    path = Path(file)
    content = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        with replacing(path) as partial:
            partial.write_bytes(content)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise _refusal(file, error) from None


def _refusal(file: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(Fault(f"cannot be written: {reason}", file, "check the path"))
