"""Records of points as they are kept: one JSON object each, with what was asked, and the answer or the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collsim._version import __version__

__all__ = ["FAILED", "OK", "SCHEMA", "record"]

SCHEMA = "collsim.sweep_point/1"
OK, FAILED = "ok", "failed"


def record(
    kind: str,
    key: str,
    asked: Mapping[str, Any],
    answer: Mapping[str, Any] | None = None,
    *,
    error: str | None = None,
    exit_code: int = 0,
) -> dict[str, Any]:
    """Return the record of a point: ``answer`` holds flat values in SI units, ``error`` what is wrong, else None."""
    return {
        "schema": SCHEMA,
        "key": key,
        "collsim": __version__,
        "kind": kind,
        "status": OK if error is None else FAILED,
        "error": error,
        "exit_code": exit_code,
        "asked": dict(asked),
        "answer": dict(answer or {}),
    }
