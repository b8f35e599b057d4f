"""Van de Geijn's broadcast of long vectors: a binomial scatter of n parts, then a ring all-gather of them.

After the scatter a rank also holds the parts that it passed on. The ring leaves those out; it takes n - 1 steps all the
same, because of the ranks that have only their own part.
"""

from __future__ import annotations

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.collectives.binomial import scattered
from collsim.schedule import EVERY, Chunks, Schedule, Transfers, split_bytes

__all__ = ["ALGORITHM"]


def build(request: ScheduleRequest) -> Schedule:
    """Return the two phases; part i is that of the rank i places after the root."""
    n = request.n_ranks
    sizes = split_bytes(request.size_bytes, n, request.element_bytes)
    chunks = Chunks(sizes, np.full(n, request.root), np.full(n, EVERY))
    return request.schedule(
        "scatter_allgather", chunks, scattered(request), _gather(request), channels=request.n_channels
    )


def _gather(request: ScheduleRequest) -> Transfers:
    """Return the steps of the ring, without the parts that the receiver has from the scatter."""
    n = request.n_ranks
    places = np.arange(n)
    parts = (places - np.arange(n - 1)[:, None]) % n  # of step j, sent by the rank at place p
    receivers = (places + 1) % n
    passed_on = np.where(receivers, receivers & -receivers, n)
    lacks = (parts < receivers) | (parts >= receivers + passed_on)
    ids = np.where(lacks, np.cumsum(lacks).reshape(lacks.shape) - 1, -1)
    step, place = np.nonzero(lacks)
    waits = np.stack([ids[step - 1, place], ids[step - 1, place - 1]], axis=1)
    waits[step == 0] = -1
    dep_ptr = np.concatenate(([0], np.cumsum(np.count_nonzero(waits >= 0, axis=1))))
    return Transfers.side_by_side(
        (place + request.root) % n,
        (place + 1 + request.root) % n,
        parts[lacks],
        step=step,
        lanes=request.n_channels,
        waits=(dep_ptr, waits[waits >= 0]),
    )


ALGORITHM = Algorithm(
    name="scatter_allgather",
    title="binomial scatter, then a ring all-gather; for long vectors",
    ops=("broadcast",),
    source="Barnett et al., Proc. Scalable High-Performance Computing Conf. (1994) 357; Zhou et al., arXiv:1603.06809",
    build=build,
    growth="pairs",
)
