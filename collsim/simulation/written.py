"""Schedules that somebody wrote, simulated on a machine as the library's own are: rows by size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from collsim._version import __version__
from collsim.core.errors import Fault, InputError
from collsim.core.units import format_count
from collsim.schedule import Schedule, verify
from collsim.simulation.concurrent import prepare_groups
from collsim.simulation.plans import empty_row, row_of
from collsim.simulation.provenance import config_of, topology_summary
from collsim.simulation.request.prepare import Prepared, prepare
from collsim.simulation.result import Result
from collsim.simulation.runs import as_seen
from collsim.simulation.selection import request_of
from collsim.simulation.settled import reachable
from collsim.simulation.timing import time_schedule

__all__ = ["predict_written", "simulate_schedule"]

PROTO = "proto"
"""The parameter of a schedule that names the protocol it was written for."""
NO_INTERVAL = "the schedule is not one of the library's own: no measured log says how far off its times are"


def simulate_schedule(
    schedule: Schedule | Callable[[int], Schedule],
    topo: Any,
    size: Any = None,
    *,
    proto: str | None = None,
    **asked: Any,
) -> Result:
    """Predict how long a schedule takes.

    Parameters
    ----------
    schedule : Schedule or callable
        A schedule of one size; or, for several, what makes one of a number of bytes.
    topo, size, asked
        As of `collsim.simulate`; of a schedule of one size, that is the size. Its ranks are the first GPUs, or those of
        *rank_list*.
    proto : str, optional
        The protocol; by default the one that the schedule names, else Simple.

    Raises
    ------
    InputError
        The request, or a number of ranks other than that of the schedule.
    VerificationError
        The schedule does not do what its operation promises.

    Examples
    --------
    >>> from functools import partial
    >>> from collsim.importing import import_schedule
    >>> ring = partial(import_schedule, "examples/imports/msccl_ring.xml")
    >>> result = simulate_schedule(ring, "dgx_a100", ["1M", "4M"], profile="ideal")
    >>> [row.algo for row in result.rows]
    ['my_ring', 'my_ring']
    """
    first = schedule if isinstance(schedule, Schedule) else schedule(2**20)
    asked.setdefault("ranks", None if asked.get("rank_list") is not None else first.n_ranks)
    wanted = first.size_bytes if isinstance(schedule, Schedule) and size is None else size
    return predict_written(schedule, prepare(topo, first.op, wanted, proto=proto, **asked), proto)


def predict_written(
    schedule: Schedule | Callable[[int], Schedule], prepared: Prepared, proto: str | None = None
) -> Result:
    """Answer a checked question about a schedule; raise as `simulate_schedule`."""
    topology, constants, question, groups = prepared
    topology, constants = reachable(topology, constants, groups)
    launched = constants.launched(question.launch, registered=bool(question.registered)).for_threads(1)
    seen = as_seen(topology, launched, groups[0], question.environment)
    run = prepare_groups(seen, launched, groups[:1]).runs[0]
    rows, name = [], ""
    for size_bytes in question.sizes_of(question.ops[0]):
        request = request_of(question.ops[0], size_bytes, run, question)
        made = schedule if isinstance(schedule, Schedule) else schedule(request.size_bytes)
        _check(made, len(groups[0]), request.size_bytes)
        verify(made)
        name, chosen = made.algo, proto or str(made.parameters.get(PROTO, "Simple"))
        timing = time_schedule(made, run, chosen, question.dtype)
        labels = {"algo": name, "proto": chosen, "channels": int(made.parameters.get("channels", 1))}
        rows.append(row_of(timing, empty_row(request, size_bytes, question), run, **labels, classes=timing.simulated))
    return Result(
        version=__version__,
        config={**config_of(topology, constants, groups, question), "algo": [name]},
        topology=topology_summary(topology, constants),
        profile={
            "name": constants.name,
            "sha256": constants.sha256,
            "calibrated": False,  # for what the library runs, not for this
            "constants": launched.describe(over_nodes=topology.cluster is not None),
            "derived": constants.derived or None,
            "host": None,
            "library": None if question.library is None else question.library.name,
        },
        rows=tuple(replace(row, time_lo_s=None, time_hi_s=None) for row in rows),
        warnings=() if constants.name == "ideal" else (NO_INTERVAL,),
    )


def _check(schedule: Schedule, n_ranks: int, size_bytes: int) -> None:
    """Raise if a schedule is of other ranks or another size than is asked for."""
    faults = []
    if schedule.n_ranks != n_ranks:
        hint = f"take {format_count(schedule.n_ranks, 'GPU')}: --rank-list 0-{schedule.n_ranks - 1}"
        faults.append(Fault(f"the schedule is of {schedule.n_ranks} ranks, not of {n_ranks}", "rank_list", hint))
    if schedule.size_bytes != size_bytes:
        hint = f"leave the size out, or give {schedule.size_bytes}"
        faults.append(Fault(f"the schedule is of {schedule.size_bytes} bytes, not of {size_bytes}", "size", hint))
    if faults:
        raise InputError(*faults)
