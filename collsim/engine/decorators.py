"""Decorators that compile kernels, for the files that hold them. Imports Numba."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event as events
from numba.core.options import DefaultOptions

from collsim.core import process

__all__ = ["compilers"]

BLAS = "scipy.linalg.cython_blas"
if process.ours and BLAS not in sys.modules:
    sys.modules[BLAS] = None  # type: ignore[assignment]
    try:
        import numba.np.arraymath
    finally:
        del sys.modules[BLAS]

LOG = logging.getLogger("collsim.engine")

Decorator = Callable[[Callable[..., Any]], Any]


class _Announcer(events.Listener):
    """Tells the log when a kernel is about to be compiled; to load it from the cache is not worth a word."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def on_start(self, event: Any) -> None:
        """Tell of it, unless it is another one's turn."""
        if event.data["dispatcher"] is self.kernel:
            LOG.info("compiling %s", self.kernel.__name__)

    def on_end(self, event: Any) -> None:
        """Say nothing."""


def compilers(options: dict[str, Any]) -> tuple[Decorator, Decorator]:
    """Two decorators that compile with *options*: for functions that only kernels of their file call, and for entries.

    A cached kernel is stamped with its own file alone, so the options belong into that file, as all that is frozen
    into the kernel does.
    """
    known = {name: value for name, value in options.items() if hasattr(DefaultOptions, name)}  # `_nrt` is not public
    bare = {**known, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    def part(function: Callable[..., Any]) -> Any:
        """Compile *function* for others of its file: Python cannot call it, and the cache has it as a part of these."""
        return numba.njit(**bare)(function)

    def entry(function: Callable[..., Any]) -> Any:
        """Compile *function*, cached on disk where there is a place to write."""
        try:
            kernel = numba.njit(**known, cache=True)(function)
        except RuntimeError:  # read-only install and no home directory: compile anew in each process
            kernel = numba.njit(**known)(function)
        events.register("numba:compile", _Announcer(kernel))
        return kernel

    return part, entry
