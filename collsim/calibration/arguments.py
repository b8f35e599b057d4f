"""Kinds of what callers pass to `validate` and `calibrate`; values are checked by who uses them.

This module imports errors and operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, InputError
from collsim.core.operations import operation

__all__ = ["checked_environment", "checked_margin", "checked_operation", "checked_paths", "checked_text"]

SHOWN = 40


def _shown(value: Any) -> str:
    return repr(value)[:SHOWN]


def checked_paths(logs: Any) -> list[str | Path]:
    """Return the paths of logs as a list."""
    hint = "pass a path or a list of paths; - is stdin"
    paths = [logs] if isinstance(logs, str | Path) or not isinstance(logs, Iterable) else list(logs)
    wrong = [path for path in paths if not isinstance(path, str | Path)]
    if wrong or isinstance(logs, Mapping | bytes):
        raise InputError(Fault(f"{_shown(wrong[0] if wrong else logs)} is not a path", "logs", hint))
    if not paths:
        raise InputError(Fault("no log is named", "logs", "name at least one file; - is stdin"))
    return paths


def checked_text(value: Any, where: str, hint: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise InputError(Fault(f"{where} {_shown(value)} is not a name", where, hint))
    return value


def checked_operation(value: Any) -> str:
    """Return the name of an operation in its one spelling."""
    return operation(checked_text(value, "op", "such as all_reduce")).name


def checked_environment(value: Any) -> dict[str, str]:
    """Return variables as text, once they are known to be sound; whole numbers may be given as such."""
    from collsim.library import read_environment

    hint = 'write {"NCCL_ALGO": "Ring"}'
    if not isinstance(value, Mapping):
        raise InputError(Fault(f"{_shown(value)} is not a mapping of variables", "environment", hint))
    for name, text in value.items():
        if not isinstance(name, str) or isinstance(text, bool) or not isinstance(text, str | int):
            what = f"{_shown(name)} = {_shown(text)} is not a variable with a text"
            raise InputError(Fault(what, "environment", hint))
    variables = {name: str(text) for name, text in value.items()}
    read_environment(variables)
    return variables


def checked_margin(value: Any) -> float:
    """Return a share of the prediction above 0."""
    try:
        margin = float(value) if not isinstance(value, str | bool) else 0.0
    except (TypeError, ValueError, OverflowError):
        margin = 0.0
    if not 0 < margin < float("inf"):
        raise InputError(Fault(f"margin {_shown(value)} is not a number above 0", "margin", "such as 0.25"))
    return margin
