"""A flag: the process runs nothing but collsim; a module of its own, so that setting it loads nothing."""

from __future__ import annotations

__all__: list[str] = []

ours = False
"""True: numba need not look for a BLAS, which loads SciPy's linear algebra (0.15 s) and which no kernel here uses. Not
in a process that others use too: their kernels may want one, and numba looks only once."""
