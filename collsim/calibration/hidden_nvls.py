"""Signs that the switches of the measured machine reduced: a virtual machine may hide that, and no log says so."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.log_placement import predicted
from collsim.core.errors import CollsimError
from collsim.library import Profile
from collsim.topology import Topology

__all__ = ["nvls_was_off", "with_nvls_settled", "without_nvls"]

VARIABLE = "NCCL_NVLS_ENABLE"
DECIDING = ("NCCL_ALGO", VARIABLE)
OPS = ("all_reduce", "all_gather", "reduce_scatter")
LEAST_BYTES = 16 * 2**20
"""From this size on the two differ by more than the host's launch times do."""


def with_nvls_settled(
    rows: Sequence[Measured], topology: Topology, profile: Profile, library: str
) -> tuple[list[Measured], list[str]]:
    """Return the rows with NVLS turned off for files whose times fit that better, and notes on those."""
    files: dict[str, list[tuple[MeasuredCase, float]]] = defaultdict(list)
    for row in rows:
        files[row.file].append((row.case, row.time_s(topology.name)))
    notes = {file: nvls_was_off(pairs, topology, profile, library) for file, pairs in files.items()}
    settled = [replace(row, case=without_nvls(row.case)) if notes[row.file] else row for row in rows]
    return settled, [f"{file}: {note}" for file, note in notes.items() if note]


def nvls_was_off(
    times: Iterable[tuple[MeasuredCase, float]], topology: Topology, profile: Profile, library: str
) -> str:
    """Return in words that measured times fit a machine without NVLS better; empty if they do not, or tell nothing.

    Only calls of `LEAST_BYTES` or more decide, for which *library* (where the case names no other) would take NVLS and
    no variable says otherwise.

    Parameters
    ----------
    times : iterable of (MeasuredCase, float)
        Calls with their measured times in seconds.
    topology, profile : Topology, Profile
    library : str
    """
    if topology.in_network_reduction != "NVLS":
        return ""
    calls: dict[MeasuredCase, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case, measured_s in times:
        if _is_open(case, topology):
            calls[replace(case, size_bytes=0)][case.size_bytes].append(measured_s)
    errors = [
        [abs(math.log(time_s / measured_s)) for time_s in both]
        for call, sizes in calls.items()
        for size, both in _with_and_without(call, list(sizes), topology, profile, library)
        for measured_s in sizes[size]
    ]
    if not errors:
        return ""
    more, less = np.median(np.array(errors), axis=0).tolist()
    if more <= less:
        return ""
    return f"NVLS was off, by the times of large sizes (median error {less:.0%} without it, {more:.0%} with it)"


def _is_open(case: MeasuredCase, topology: Topology) -> bool:
    """Return True if NVLS is possible for a call, and no variable says whether it was used."""
    return (
        case.op in OPS
        and case.size_bytes >= LEAST_BYTES
        and case.ranks <= topology.n_gpus
        and not any(name in DECIDING for name, _ in case.environment)
    )


def without_nvls(case: MeasuredCase) -> MeasuredCase:
    """Return the case with NVLS turned off, unless its variables say anything of it."""
    if any(name in DECIDING for name, _ in case.environment):
        return case
    return replace(case, environment=tuple(sorted((*case.environment, (VARIABLE, "0")))))


def _with_and_without(
    call: MeasuredCase, sizes: list[int], topology: Topology, profile: Profile, library: str
) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield sizes with their predicted times with NVLS and without, in seconds, where the library would take it."""
    call = replace(call, library=call.library or library)
    try:
        more, less = (predicted(entry, sizes, topology, profile).rows for entry in (call, without_nvls(call)))
    except CollsimError:
        return
    for one, other in zip(more, less, strict=True):
        if one.algo == "nvls":
            yield one.requested_bytes, (one.time_s, other.time_s)
