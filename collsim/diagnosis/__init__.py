"""Diagnosis: from measured logs to the probable cause, by simulating every cause and comparing whole curves.

Data flows one way: causes -> curves -> fit -> subjects -> ranking -> judgement; findings are what comes out.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collsim.diagnosis.findings import Diagnosis
    from collsim.diagnosis.judgement import diagnose

__all__ = ["Diagnosis", "diagnose"]

HOME = {"Diagnosis": "findings", "diagnose": "judgement"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{HOME[name]}"), name)
