"""Decorators that compile kernels, for the files that hold them. Numba is imported when it has something to compile."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any

__all__ = ["Entry", "Part", "compilers"]

Decorator = Callable[[Callable[..., Any]], Any]


class Part:
    """A function that kernels of its file call; it is Numba's once one of these is compiled."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.py_func, self.options = function, options
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    @cached_property
    def kernel(self) -> Any:
        """What Numba makes of it."""
        from collsim.engine.compiling import compiled_part

        return compiled_part(self.py_func, self.options)

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks of the values that a function it compiles refers to."""
        return self.kernel._numba_type_

    def __call__(self, *given: Any) -> Any:  # noqa: D102
        return self.kernel(*given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.kernel, name)


class Entry(Part):
    """A kernel that Python calls; Numba is imported when it is called first."""

    @cached_property
    def kernel(self) -> Any:
        """What Numba makes of it."""
        from collsim.engine.compiling import compiled

        return compiled(self.py_func, self.options)


def compilers(options: dict[str, Any]) -> tuple[Decorator, Decorator]:
    """Two decorators that compile with *options*: for functions that only kernels of their file call, and for entries.

    A cached kernel is stamped with its own file alone, so the options belong into that file, as all that is frozen
    into the kernel does.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return (lambda function: function), (lambda function: function)
    return (lambda function: Part(function, options)), (lambda function: Entry(function, options))
