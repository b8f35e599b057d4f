"""Measured rows laid on the fabric once, so that a fit can time them again and again with other costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.log_placement import gpus_of
from collsim.collectives import family_of
from collsim.core.errors import CollsimError
from collsim.core.progress import steps
from collsim.library import Profile
from collsim.library.costs.channel_costs import Protocol
from collsim.library.costs.hosts import around_s, as_usual_s
from collsim.library.costs.profile import REPLAYS
from collsim.simulation.lowering import Lowered, lower
from collsim.simulation.runs import LoweredRun, as_seen, prepare
from collsim.simulation.timing import device_time_s, kernel_costs
from collsim.topology import Topology

__all__ = ["Observation", "launch_of", "observe", "thinned", "undisturbed", "without_spikes"]

SPIKE = 1.5
"""A row this many times slower than both its neighbours, or than another run of the same work, was disturbed, or was
the first to use a kernel."""
LEAST_STEP, SMALL_STEP, SMALL_BYTES = 1.9, 3.9, 2**16
"""Sizes of one log that are fitted are at least the first factor apart, small ones, whose times hardly differ, the
second; more tell nothing new and cost time."""
MOST_TRANSFERS = 64_000
"""A row whose schedule is larger is left out of a fit: it would take longer than all others together."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A measured time with the schedule that ran, laid on its fabric.

    Attributes
    ----------
    row : Measured
    time_s : float
        As of the usual number of calls in a row.
    launch : str
        ``stream``, ``graph`` or ``registered``.
    family, proto, algo : str
        Kernel and protocol by the library's choice.
    lowered : Lowered
    run : LoweredRun
    """

    row: Measured
    time_s: float
    launch: str
    family: str
    proto: str
    algo: str
    lowered: Lowered
    run: LoweredRun

    @property
    def group(self) -> tuple[str, int]:
        """Operation and number of ranks: what is left out together when a fit is checked."""
        return self.row.case.op, self.row.case.ranks

    @property
    def channels(self) -> int | None:
        """On how many channels it ran, if the algorithm knows channels."""
        channels = self.lowered.schedule.parameters.get("channels")
        return channels if isinstance(channels, int) else None

    @property
    def work(self) -> tuple[object, ...]:
        """Key of the work: equal for two observations that should take the same time."""
        case, schedule = self.row.case, self.lowered.schedule
        return (
            case.op, case.ranks, case.size_bytes, case.matrix, self.launch, case.gpus_per_thread, schedule.algo,
            self.proto, schedule.parameters.get("channels"),
        )  # fmt: skip

    @property
    def gpus_per_thread(self) -> int:
        """Number of GPUs that each host thread started work on; one if the log does not say."""
        return self.row.case.gpus_per_thread or 1

    def wait_s(self, profile: Profile) -> float:
        """Return how much later the last GPU of a thread starts, of which each replay of a graph has a share."""
        replays = (self.row.case.replays or REPLAYS) if self.launch == "graph" else 1
        return (self.gpus_per_thread - 1) * profile.thread_launch_s / replays

    @property
    def over_nodes(self) -> bool:
        """True if the row was measured over several nodes."""
        return self.lowered.steps is not None

    def device_s(self, costs: Protocol) -> float:
        """Return the time on the device in seconds with *costs*: between nodes, if it ran over several."""
        if not self.over_nodes:
            return device_time_s(self.lowered, self.run, costs)
        within = kernel_costs(self.run, self.proto, family_of(self.row.case.op, self.algo), costs)
        return device_time_s(self.lowered, self.run, within, costs)


def launch_of(case: MeasuredCase) -> str:
    """Return the way a case was launched; a replayed graph registers its buffers too."""
    return "graph" if case.launch == "graph" else "registered" if case.registered else "stream"


def without_spikes(rows: Sequence[Measured], system: str) -> tuple[list[Measured], list[Measured]]:
    """Return the rows without those far slower than both their neighbours in the same table, and those."""
    tables: dict[tuple[str, MeasuredCase], list[Measured]] = defaultdict(list)
    for row in rows:
        tables[row.file, replace(row.case, size_bytes=0, matrix=None)].append(row)
    kept: list[Measured] = []
    dropped: list[Measured] = []
    for table in tables.values():
        times = [row.time_s(system) for row in table]
        for place, row in enumerate(table):
            inner = 0 < place < len(table) - 1
            spike = inner and times[place] > SPIKE * max(times[place - 1], times[place + 1])
            (dropped if spike and row.case.matrix is None else kept).append(row)
    return kept, dropped


def undisturbed(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations without those that another run of the same work shows to be far too slow."""
    least_s: dict[tuple[object, ...], float] = {}
    for entry in observations:
        least_s[entry.work] = min(entry.time_s, least_s.get(entry.work, entry.time_s))
    return [entry for entry in observations if entry.time_s <= SPIKE * least_s[entry.work]]


def thinned(rows: Sequence[Measured]) -> list[Measured]:
    """Return the rows of each table whose sizes are well apart."""
    last: dict[tuple[str, MeasuredCase], int] = {}
    kept = []
    for row in rows:
        table = (row.file, replace(row.case, size_bytes=0))
        step = SMALL_STEP if row.case.size_bytes <= SMALL_BYTES else LEAST_STEP
        if row.case.size_bytes >= step * last.get(table, 0):
            last[table] = row.case.size_bytes
            kept.append(row)
    return kept


def observe(
    rows: Sequence[Measured],
    topology: Topology,
    profile: Profile,
    library: str,
    most_transfers: int = MOST_TRANSFERS,
) -> tuple[list[Observation], dict[str, int]]:
    """Lay measured rows on *topology*.

    Parameters
    ----------
    rows : sequence of Measured
    topology : Topology
    profile : Profile
        Whether links run at line rate, and whether their latency counts.
    library : str
        For logs that do not name theirs.
    most_transfers : int
        Rows whose schedule has more are left out.

    Returns
    -------
    observations : list of Observation
    refused : dict of str to int
        Why rows were left out, and how many.
    """
    runs: dict[tuple[object, ...], LoweredRun] = {}
    laid: dict[MeasuredCase, tuple[str, str, str, Lowered]] = {}
    refused: dict[str, int] = defaultdict(int)
    found = []
    for row in steps(rows, "row"):
        case = row.case
        try:
            gpus = tuple(gpus_of(case, topology))
            if (key := (gpus, case.environment)) not in runs:
                runs[key] = prepare(as_seen(topology, profile, gpus, dict(case.environment)), profile, gpus)
            run = runs[key]
            if case not in laid:
                laid[case] = _lay(case, run, library)
        except CollsimError as error:
            refused[error.faults[0].what] += 1
            continue
        family, proto, algo, lowered = laid[case]
        if len(lowered.transfers) > most_transfers:
            refused[f"its schedule has more than {most_transfers} transfers"] += 1
            continue
        more_s = around_s(case.library or library, case.calls, case.launch)
        time_s = as_usual_s(row.time_s(topology.name), more_s)
        found.append(Observation(row, time_s, launch_of(case), family, proto, algo, lowered, lowered.run))
    return found, dict(refused)


def _lay(case: MeasuredCase, run: LoweredRun, library: str) -> tuple[str, str, str, Lowered]:
    """Return kernel, protocol, algorithm and schedule of a case, by the choice of its library."""
    import numpy as np

    from collsim.core.operations import operation
    from collsim.simulation.request.request import ask
    from collsim.simulation.selection import library_choice, request_of

    matrix = None if case.matrix is None else np.array(case.matrix, dtype=np.int64)
    question = ask(
        case.op, None if matrix is not None else case.size_bytes, matrix=matrix, dtype=case.dtype, redop=case.redop,
        root=case.root, library=case.library or library, environment=dict(case.environment), launch=case.launch,
        registered=bool(case.registered),
    )  # fmt: skip
    op = operation(case.op)
    request = request_of(op, question.sizes_of(op)[0], run, question)
    picked, asked, proto = library_choice(request, run, question)
    return picked.family_for(case.op), proto, picked.name, lower(picked.build(asked), run, question.dtype)
