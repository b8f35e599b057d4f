"""Explanation: one run taken apart, what it chose and why, what its time is made of, and what would change it most.

Data flows one way: removals -> split, changes -> what_ifs -> account -> gathering; findings are what comes out.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.explanation.account import explain
    from collsim.explanation.findings import Explanation

__all__ = ["Explanation", "explain"]

HOME = {"Explanation": "findings", "explain": "account"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{HOME[name]}"), name)
