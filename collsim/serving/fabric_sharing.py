"""What jobs cost each other on one fabric: how much longer exchanges take while others exchange as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collsim.serving.spec import Job
from collsim.simulation.simulate import simulate

__all__ = ["detour", "slowdown"]

EXCHANGED_BYTES = 64 << 20
"""Of each rank: long enough that rates count, not latencies."""


def slowdown(topology: str, jobs: Sequence[Job], machine: Mapping[str, Any]) -> float:
    """Return how many times longer the all-to-alls of two jobs take at once than alone, on bare links.

    Both are as large as makes them equally long alone; their links share by max-min fairness, in one simulation.
    """
    alone_s = [_time_s(topology, jobs, machine, [float(job is other) for other in jobs]) for job in jobs]
    longest_s = max(alone_s)
    scales = [longest_s / time_s for time_s in alone_s]
    return max(_time_s(topology, jobs, machine, scales) / longest_s, 1.0)


def detour(topology: str, job: Job, machine: Mapping[str, Any], per_node: int) -> float:
    """Return how many times longer the all-to-all of a job takes on its GPUs than on the first nodes, on bare links.

    Nodes behind other leaves may have less between them; *per_node* GPUs are numbered on each.
    """
    nodes = list(dict.fromkeys(gpu // per_node for gpu in job.gpus))
    first = tuple(nodes.index(gpu // per_node) * per_node + gpu % per_node for gpu in job.gpus)
    if first == tuple(job.gpus) or len(nodes) == 1:
        return 1.0
    here_s, first_s = (_time_s(topology, [replace(job, gpus=gpus)], machine, [1.0]) for gpus in (job.gpus, first))
    return here_s / first_s


def _time_s(topology: str, jobs: Sequence[Job], machine: Mapping[str, Any], scales: Sequence[float]) -> float:
    gpus = [gpu for job in jobs for gpu in job.gpus]
    matrix = np.zeros((len(gpus), len(gpus)), dtype=np.int64)
    at = 0
    for job, scale in zip(jobs, scales, strict=True):
        matrix[at : at + job.ranks, at : at + job.ranks] = int(scale * EXCHANGED_BYTES / (job.ranks - 1))
        at += job.ranks
    np.fill_diagonal(matrix, 0)
    found = simulate(topology, "all_to_all_v", matrix=matrix, rank_list=gpus, profile="ideal", **machine)
    return float(found.rows[0].time_s)
