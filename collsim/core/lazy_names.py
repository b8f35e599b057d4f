"""Public names of a package that are imported when they are first asked for, so that importing it costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["names_from"]


def names_from(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a *package* whose public names come from modules of it: *home*, by name.

    >>> names_from("collsim.core", {"nearest": "errors"})("nearest")("rign", ["ring", "tree"])
    'ring'
    """

    def named(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return named
