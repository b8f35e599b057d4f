"""Dispatch and combine as one all_to_all_v of the library: its own schedule and its calibrated costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from collsim.moe.counts import Counts
from collsim.moe.flows import byte_matrix
from collsim.moe.request import MoeRequest
from collsim.moe.timing import OpTime
from collsim.simulation.simulate import simulate

__all__ = ["called"]


def called(question: MoeRequest, gpus: Sequence[int]) -> Callable[[Counts, str], OpTime]:
    """Return a function from counts and operation to the time of one all-to-all of the library on these GPUs.

    The kernels of the question may say how much longer a call takes to start than the library's costs have it.
    """
    costs = question.kernel.costs.get("all_to_all", {})

    def time(counts: Counts, op: str) -> OpTime:
        matrix = byte_matrix(counts, question.model, op, "all_to_all")
        node = counts.members.node
        moved = np.where(np.eye(len(matrix), dtype=bool), 0, matrix)
        across = node[:, None] != node[None, :]
        result = simulate(
            question.topology, "all_to_all_v", matrix=matrix, rank_list=list(gpus), profile=question.profile or "auto",
            tolerance="auto" if question.tolerance is None else question.tolerance,
        )  # fmt: skip
        row = result.rows[0]
        time_s = row.time_s + (costs[op].start_s if op in costs else 0.0)
        n, links = len(matrix), question.topology.wiring.n_links
        return OpTime(
            time_s=time_s,
            load_s=row.lower_bound_s,
            bound_s=row.lower_bound_s,
            finish_s=np.full(n, time_s),
            link_busy_s=np.zeros(links),
            port_load=np.zeros(2 * n),
            node_bytes=float(moved[~across].sum()),
            network_bytes=float(moved[across].sum()),
            path=f"library {row.algo}",
            tolerance=row.tolerance,
            bottleneck=row.bottleneck,
        )

    return time
