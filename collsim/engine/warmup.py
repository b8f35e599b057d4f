"""The cache of compiled kernels, and compiling them before they are needed.

Imports NumPy and, inside the calls that need it, Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collsim.engine.problem import Problem, checked

__all__ = ["cache_folder", "entry_points", "is_compiling", "warm"]


def is_compiling() -> bool:
    """Return True if kernels are compiled at all; NUMBA_DISABLE_JIT switches it off."""
    return all(hasattr(kernel, "stats") for kernel in entry_points())


def cache_folder() -> str | None:
    """Return the folder that keeps compiled kernels; None if no place can be written, so that none are kept."""
    folders = [kernel.stats.cache_path for kernel in entry_points()] if is_compiling() else [None]
    return None if None in folders else str(folders[0])


def warm() -> list[str]:
    """Load all kernels, and return the names of those that had to be compiled."""
    from collsim.engine import kernels, tolerant
    from collsim.engine.symmetry import Hops, alike_hops, codes_of, reduced
    from collsim.engine.wavefront import warm_up

    one = checked(Problem(*(np.array(x) for x in ([1.0], [0, 1], [0], [1.0], [0], [1.0], [0.0], [np.inf], [0, 0], []))))
    kernels.simulate(one)
    tolerant.simulate(one, 0.01)
    reduced(one)
    none, first, figure = np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64), np.zeros(1)
    own = codes_of(figure)
    alike_hops(
        Hops(np.arange(2), first, figure, first, own, np.zeros(2, np.int64), none, none, (figure,)),
        rounds=1,
    )
    warm_up()
    return [kernel.__name__ for kernel in entry_points() if is_compiling() and kernel.stats.cache_misses]


def entry_points() -> list[Any]:
    """Return the kernels that Python calls; the others are parts of these."""
    from collsim.engine import kernels, refinement, tolerant, wavefront_kernels

    found = [kernels._fill_successors, kernels._run, refinement.hashed, refinement.topological]
    found += [refinement.numbered, refinement.refine, refinement.refine_lagged]
    loops = [wavefront_kernels.bare, wavefront_kernels.uniform, wavefront_kernels.mixed]
    return [*found, tolerant._run, *loops]
