"""Decorators that compile kernels, for the files that hold them. Imports Numba."""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event as events
from numba.core.caching import IndexDataCacheFile
from numba.core.options import DefaultOptions

from collsim.core import process

__all__ = ["compilers"]

DIGEST_BYTES = 32
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


class _SummedFile(IndexDataCacheFile):
    """Files of a kernel that begin with the digest of the rest.

    They hold machine code: a flipped bit of it may load as ever and compute something else.
    """

    def _dump(self, thing: Any) -> bytes:
        content = super()._dump(thing)
        return hashlib.sha256(content).digest() + content

    def _load_index(self) -> dict[Any, str]:
        try:
            with open(self._index_path, "rb") as file:  # noqa: PTH123 - as Numba does
                version, content = pickle.load(file), file.read()
        except FileNotFoundError:
            return {}
        if version != self._version:
            return {}
        stamp, overloads = pickle.loads(_checked(content))
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # noqa: PTH123 - as Numba does
            return pickle.loads(_checked(file.read()))


def _checked(content: bytes) -> bytes:
    """Return *content* less the digest that it begins with; raise ValueError if that is another one's."""
    digest, rest = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(rest).digest() != digest:
        raise ValueError("the file is damaged, or of another version of collsim")
    return rest


class _CarefulCache:
    """Numba's cache of one kernel, which a damaged file or a full disk does not keep from being compiled and run.

    Everything that is not said here is as in *cache*.
    """

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        cache._cache_file.__class__ = _SummedFile  # of the same data; Numba has no place to ask for another class

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled kernel; None, so that it is compiled again, if its files cannot be read."""
        try:
            return self.cache.load_overload(signature, target)
        except Exception as error:  # whatever unpickling makes of damage
            LOG.info("cannot read the cache in %s: %r", self.cache.cache_path, error)
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep a compiled kernel, in the place of files that are damaged; do without if it cannot be written."""
        try:
            try:
                self.cache.save_overload(signature, data)
            except OSError:
                raise
            except Exception:  # the index that others are listed in is damaged
                self.cache.flush()
                self.cache.save_overload(signature, data)
        except Exception as error:
            LOG.info("cannot write the cache in %s: %r", self.cache.cache_path, error)


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
            if hasattr(kernel, "_cache"):  # with NUMBA_DISABLE_JIT a kernel is the function itself
                kernel._cache = _CarefulCache(kernel._cache)
        except RuntimeError:  # read-only install and no home directory: compile anew in each process
            kernel = numba.njit(**known)(function)
        events.register("numba:compile", _Announcer(kernel))
        return kernel

    return part, entry
