"""Before and after: runs on a machine in which something failed beside the same runs on the machine in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collsim.library import system_of
from collsim.simulation.provenance import machine_gpus
from collsim.simulation.request.request import Request
from collsim.simulation.result import Row
from collsim.simulation.runs import LoweredRun
from collsim.topology import Topology

__all__ = ["beside", "healthy_groups", "library_effects"]


def healthy_groups(topology: Topology, groups: Sequence[Sequence[int]], question: Request) -> Sequence[Sequence[int]]:
    """Return the same groups of GPUs on the machine in order; a single one of all that are left stands for all."""
    assert topology.damage is not None
    everyone = len(groups) == 1 and list(groups[0]) == list(range(topology.n_gpus))
    if everyone and question.matrix_bytes is None:
        return [range(topology.damage.healthy.n_gpus)]
    return [machine_gpus(topology, group) for group in groups]


def beside(rows: Sequence[Sequence[Row]], healthy: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the rows of all that was asked for with the times of the machine in order, asked the same."""
    if len(rows) != len(healthy):  # on one of them every size rounds down to nothing
        healthy = [()] * len(rows)
    return [row for mine, theirs in zip(rows, healthy, strict=True) for row in _paired(mine, theirs)]


def _paired(rows: Sequence[Row], healthy: Sequence[Row]) -> list[Row]:
    """Return rows with the times of the only other row, else of the same algorithm."""
    alone = len(rows) == len(healthy) == 1
    by_algo = {row.algo: row for row in healthy}
    found = [healthy[0] if alone else by_algo.get(row.algo) for row in rows]
    return [
        row if other is None else replace(row, healthy_time_s=other.time_s, healthy_algo=other.label)
        for row, other in zip(rows, found, strict=True)
    ]


def library_effects(runs: Sequence[LoweredRun], question: Request) -> list[str]:
    """Return notes on the effects of failures on the library, beyond what the topology says."""
    if question.library is None or question.library.family != "rccl":
        return []
    damaged_runs = [run for run in runs if run.topology.damage is not None]
    systems = [system_of(run.topology, run.fabric.rank_node.tolist()) for run in damaged_runs]
    if all(system.matches_template or system.architecture == "gfx90a" for system in systems):
        return []
    return [
        "RCCL's template of the board does not match: rings of its general search over the links that are left, "
        "no MSCCL, DDA or direct schedules"
    ]
