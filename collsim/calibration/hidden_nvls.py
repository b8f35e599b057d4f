"""Whether the switches of the measured machine reduced: a virtual machine may hide that, and no log says so."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collsim.calibration.cases import Case, Measured
from collsim.errors import CollsimError
from collsim.library import Profile
from collsim.topology import Topology

__all__ = ["with_nvls_settled"]

VARIABLE = "NCCL_NVLS_ENABLE"
DECIDING = ("NCCL_ALGO", VARIABLE)
LEAST_BYTES = 16 * 2**20
"""From this size on the two differ by more than the host's launch times do."""


def with_nvls_settled(
    rows: Sequence[Measured], topology: Topology, profile: Profile, library: str
) -> tuple[list[Measured], list[str]]:
    """Return the rows with NVLS turned off for files whose times fit that better, and notes on those.

    Only rows of `LEAST_BYTES` or more decide, for which the library would take NVLS and no variable says otherwise.
    """
    if topology.in_network_reduction != "NVLS":
        return list(rows), []
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    times: dict[Case, tuple[float, float] | None] = {}
    for row in rows:
        if _is_open(row.case):
            if row.case not in times:
                times[row.case] = _with_and_without(row.case, topology, profile, library)
            if both := times[row.case]:
                measured_s = row.time_s(topology.name)
                errors[row.file].append((abs(math.log(both[0] / measured_s)), abs(math.log(both[1] / measured_s))))
    off: dict[str, tuple[float, float]] = {}
    for file, pairs in errors.items():
        with_nvls, without = np.median(np.array(pairs), axis=0).tolist()
        if without < with_nvls:
            off[file] = (without, with_nvls)
    notes = [
        f"{file}: NVLS was off, by the times of large sizes (median error {less:.0%} without, {more:.0%} with it)"
        for file, (less, more) in off.items()
    ]
    return [replace(row, case=_without_nvls(row.case)) if row.file in off else row for row in rows], notes


def _is_open(case: Case) -> bool:
    return (
        case.op in ("all_reduce", "all_gather", "reduce_scatter")
        and case.size_bytes >= LEAST_BYTES
        and case.ranks <= 1024
        and not any(name in DECIDING for name, _ in case.environment)
    )


def _without_nvls(case: Case) -> Case:
    if any(name in DECIDING for name, _ in case.environment):
        return case
    return replace(case, environment=tuple(sorted((*case.environment, (VARIABLE, "0")))))


def _with_and_without(case: Case, topology: Topology, profile: Profile, library: str) -> tuple[float, float] | None:
    """Return the predicted times with NVLS and without, in seconds; None if the library would not take it."""
    from collsim.question import ask
    from collsim.simulation import predict

    try:
        rows = [
            predict(
                topology,
                profile,
                ask(
                    entry.op, entry.size_bytes, dtype=entry.dtype, redop=entry.redop, launch=entry.launch,
                    library=entry.library or library, environment=dict(entry.environment),
                    registered=bool(entry.registered),
                ),
                [range(entry.ranks)],
            ).rows[0]
            for entry in (case, _without_nvls(case))
        ]  # fmt: skip
    except CollsimError:
        return None
    return (rows[0].time_s, rows[1].time_s) if rows[0].algo == "nvls" else None
