"""All-to-all with a byte matrix: every message that is not empty under way at once."""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.core.errors import Fault, InputError
from collsim.schedule import Chunks, Int, Schedule, Transfers

__all__ = ["ALGORITHM", "byte_matrix", "matrix_size_bytes"]


def matrix_size_bytes(matrix_bytes: Int) -> int:
    """Return the size column of nccl-tests for a byte matrix: the largest send or receive buffer of any rank.

    >>> matrix_size_bytes(np.array([[1, 2], [40, 3]]))
    43
    """
    return int(max(matrix_bytes.sum(axis=0).max(), matrix_bytes.sum(axis=1).max()))


def build(request: ScheduleRequest) -> Schedule:
    """Return one transfer per ordered pair of ranks with something to send; none waits for another."""
    matrix = byte_matrix(request)
    src, dst = np.nonzero(matrix * ~np.eye(request.n_ranks, dtype=np.bool_))
    transfers = Transfers.side_by_side(src, dst, np.arange(len(src)), reads_input=True, lanes=request.n_channels)
    return request.schedule("direct", Chunks(matrix[src, dst], src, dst), transfers, channels=request.n_channels)


def byte_matrix(request: ScheduleRequest) -> Int:
    """Return the byte matrix of the request, refusing one that does not fit it."""
    n, matrix = request.n_ranks, request.matrix_bytes
    if matrix is None:
        raise InputError(Fault("all_to_all_v needs a byte matrix", hint="give a row per sender, a column per receiver"))
    if matrix.shape != (n, n):
        shape = " x ".join(str(length) for length in matrix.shape)
        what = f"the byte matrix is {shape}, but there are {n} ranks"
        raise InputError(Fault(what, hint=f"give {n} rows of {n} sizes"))
    return matrix


ALGORITHM = Algorithm(
    name="direct",
    title="every message at once",
    ops=("all_to_all_v",),
    source="Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49, section 4.3",
    build=build,
)
