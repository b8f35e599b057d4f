"""Measured logs gathered: read as streams into one entry per distinct case, on the machine that they are of.

`gather` checks what `validate` and `diagnose` are asked and reads, before anything is predicted. How many nodes there
were the logs say, unless the caller does.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from collsim.calibration.arguments import checked_environment, checked_operation, checked_paths
from collsim.calibration.cases import MeasuredCase, Section, Skipped, read_sections
from collsim.calibration.gpu_models import other_gpus
from collsim.calibration.log_placement import MOST_GPUS_OF_A_HOST
from collsim.calibration.logs.log_types import ZERO_BYTES, Dropped, Test
from collsim.calibration.logs.printed_rows import Choice
from collsim.calibration.logs.reading import LAUNCHES
from collsim.calibration.verdicts import Unread
from collsim.core.errors import Fault, Faults, InputError, UnknownNameError
from collsim.core.operations import MOST_RANKS, dtype_bytes
from collsim.library import Profile, load_library, load_profile
from collsim.simulation.request.prepare import Machine
from collsim.simulation.request.values import read_items, read_whole
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Gathered", "Group", "Repeats", "checked_options", "gather", "named_topology"]

HOSTS_SHOWN = 4
DROPS_SHOWN = 3
"""So many of the rows of a file that the reader dropped are listed."""


def gather(
    logs: str | Path | Iterable[str | Path],
    topo: str | Path | Topology | nx.Graph[Any] | None,
    *,
    profile: str | Profile = "auto",
    machine: Machine | None = None,
    rank_list: Sequence[int] | None = None,
    **told: Any,
) -> Gathered:
    """Check what `validate` is asked and read the logs, before anything is predicted; parameters as there.

    *machine* holds the changes of the topology. Where nobody says how many nodes there are, there are as many as the
    log with most of them names.

    Raises
    ------
    InputError
        Every fault of the request and the files.
    """
    faults, changes = Faults(), machine or Machine()
    options = checked_options(told, faults)
    alone = named_topology(topo, Faults())
    gathered = Gathered(alone)
    paths = faults.attempt(checked_paths, logs) or []
    for path in dict.fromkeys(map(str, paths)):
        faults.attempt(gathered.add, path, options)
    nodes = options.get("nodes") or gathered.nodes
    gathered.topology = faults.attempt(on_nodes, topo, alone, changes, nodes)
    gathered.constants = faults.attempt(load_profile, profile, gathered.topology)
    if options.get("nodes") is None and gathered.topology is not None:
        gathered.tell_nodes(alone)
    if gpus := _gpus(rank_list, gathered.topology, faults):
        faults.attempt(gathered.place, gpus)
    faults.raise_any()
    return gathered


def on_nodes(topo: Any, alone: Topology | None, machine: Machine, nodes: int) -> Topology:
    """Return the machine; where it is *alone* one host with adapters and there are several *nodes*, so many of it.

    Raises
    ------
    InputError
        Whatever is wrong with it.
    """
    is_host = alone is not None and alone.cluster is None and alone.n_gpus <= MOST_GPUS_OF_A_HOST
    if nodes > 1 and is_host and isinstance(topo, str | Path):
        machine = machine.also([f"scale_out.nodes={nodes}"])
    return machine.of(topo)


def named_topology(topo: Any, faults: Faults) -> Topology | None:
    """Return the topology; None, with its faults added, if there is none."""
    return faults.attempt(Machine().of, topo)


def _gpus(rank_list: Any, topology: Topology | None, faults: Faults) -> tuple[int, ...]:
    """Return the GPUs of a list of ranks; none if there is no list, or something is wrong with it."""
    if rank_list is None or topology is None:
        return ()
    last = (topology if topology.damage is None else topology.damage.healthy).n_gpus - 1
    hint, before = f"{topology.name} has GPUs 0 to {last}", len(faults)
    entries = read_items(rank_list, "rank_list", hint, faults)
    gpus = tuple(read_whole(entry, "rank_list", "GPU", f"write [0, 1, 2]; {hint}", faults) for entry in entries)
    if beyond := [gpu for gpu in gpus if not 0 <= gpu <= last]:
        faults.append(Fault(f"GPU {beyond[0]} is out of range", "rank_list", hint))
    return gpus if len(faults) == before else ()


def checked_options(told: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """Return the checked options that hold for all logs; a faulty one is None, its faults are added to *faults*."""
    checks: dict[str, Callable[[Any], Any]] = {
        "op": checked_operation,
        "dtype": lambda name: dtype_bytes(str(name))[0],
        "library": lambda name: load_library(name).name,
        "environment": checked_environment,
        "launch": _launch,
        "ranks": partial(_count, "ranks"),
        "nodes": partial(_count, "nodes"),
    }
    return {
        name: None if value is None else faults.attempt(checks[name], value, where=name) for name, value in told.items()
    }


def _launch(value: Any) -> str:
    if value not in LAUNCHES:
        raise UnknownNameError("launch", str(value), LAUNCHES, "launch")
    return str(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(Fault(f'{name} "{value}" is not a whole number above 0', name, "such as 8"))
    if value > MOST_RANKS:
        raise InputError(Fault(f"{value} {name} are more than {MOST_RANKS:,}", name, "such as 8"))
    return value


@dataclass(slots=True)
class Repeats:
    """The rows of one case: times in seconds, 8 bytes a row."""

    line: int
    times_s: array[float] = field(default_factory=lambda: array("d"))
    wrong: float | None = None
    choice: Choice | None = None


@dataclass(slots=True)
class Group:
    """Tests of a file that were run alike on the same hosts; *notes* are keys for their order."""

    file: str
    line: int
    case: MeasuredCase
    hosts: tuple[str, ...]
    notes: dict[str, None] = field(default_factory=dict)
    cases: dict[MeasuredCase, Repeats] = field(default_factory=dict)
    failed: bool = False
    library_version: str | None = None
    library_fault: str = ""
    """Why the library of a comment cannot be read."""


@dataclass(slots=True)
class _Drops:
    """Parts of a file that the reader dropped: their number and the first of them; rows of zero bytes are no loss."""

    count: int = 0
    first: list[Dropped] = field(default_factory=list)

    def add(self, test: Test) -> None:
        lost = [drop for drop in test.dropped if drop.reason != ZERO_BYTES]
        self.count += test.n_dropped - len(test.dropped) + len(lost)
        self.first += lost[: DROPS_SHOWN - len(self.first)]


class Gathered:
    """Measured cases of all logs, by file, hosts and kind of call; a new case adds an entry, each row 8 bytes.

    Attributes
    ----------
    topology, constants : Topology, Profile
        The machine and its constants.
    said : str
        What the logs say of the machine that no caller said; empty if nothing.
    warnings : dict of str to None
        What contradicts itself, or the caller.
    """

    def __init__(self, topology: Topology | None) -> None:
        self.topology, self.constants, self.said = topology, cast("Profile | None", None), ""
        self.groups: dict[tuple[Any, ...], Group] = {}
        self.skipped: list[Skipped] = []
        self.dropped: list[Unread] = []
        self.warnings: dict[str, None] = {}

    def add(self, path: str, options: Mapping[str, Any]) -> None:
        """Read a log."""
        drops = _Drops()
        for section in read_sections(path, seen=drops.add, **options):
            if isinstance(section, Skipped):
                self.skipped.append(section)
            else:
                self._add_section(section)
        if drops.count:
            self.dropped.append(Unread("stdin" if path == "-" else path, drops.count, tuple(drops.first)))

    @property
    def nodes(self) -> int:
        """The most nodes that a log names."""
        return max((group.case.nodes or 1 for group in self.groups.values()), default=1)

    def tell_nodes(self, alone: Topology | None) -> None:
        """Say that the logs made a cluster of a topology that is *alone* one host."""
        if alone is None or alone.cluster is not None or self.topology is None or self.topology.cluster is None:
            return
        most = [group for group in self.groups.values() if group.case.nodes == self.nodes]
        hosts = next((group.hosts for group in most if group.hosts), ())
        shown = ", ".join(hosts[:HOSTS_SHOWN]) + (", ..." if len(hosts) > HOSTS_SHOWN else "")
        which = "as the logs say" if len(most) == len(self.groups) else "the most that one of the logs says"
        self.said = f"{self.nodes} nodes of {self.topology.name}, {which}{f': {shown}' if shown else ''}"

    def place(self, gpus: tuple[int, ...]) -> None:
        """Put the ranks of all tests on the GPUs that the caller lists; tests with another number of them are skipped.

        Raises
        ------
        InputError
            No test has so many ranks.
        """
        assert self.topology is not None
        cluster = self.topology.cluster
        each = self.topology.n_gpus if cluster is None else cluster.node.n_gpus
        seats = tuple(divmod(gpu, each) for gpu in gpus)
        nodes = None if cluster is None else 1 + max(host for host, _ in seats)
        others: set[int] = set()
        for key, group in list(self.groups.items()):
            if (ranks := group.case.all_ranks) == len(gpus):
                cases = {replace(case, seats=seats, nodes=nodes): found for case, found in group.cases.items()}
                self.groups[key] = replace(group, case=replace(group.case, seats=seats, nodes=nodes), cases=cases)
                continue
            others.add(ranks)
            reason = f"the test has {ranks} ranks, the list of ranks {len(gpus)}"
            self.skipped.append(Skipped(group.file, group.line, reason))
            del self.groups[key]
        if others and not self.groups:
            counts = " or ".join(map(str, sorted(others)))
            what = f"the test has {counts} ranks, the list of ranks {len(gpus)}"
            raise InputError(
                Fault(what, "rank_list", f"list {counts} GPUs, in the order of the ranks, or leave it out")
            )

    def _add_section(self, section: Section) -> None:
        key = (section.file, section.source, section.hosts, section.case)
        new = Group(section.file, section.line, section.case, section.hosts)
        group = self.groups.setdefault(key, new)
        group.notes.update(dict.fromkeys(section.notes))
        self.warnings |= {f"{section.file}:{section.line}: {text}": None for text in section.test.contradictions}
        group.failed |= section.test.run.failed
        group.library_version = group.library_version or section.test.run.library_version
        group.library_fault = group.library_fault or section.test.run.library_fault
        if self.topology is not None and (others := other_gpus(section.test.run.gpus, self.topology)):
            group.notes[f"{others}: the verdicts say nothing of these GPUs"] = None
        for row in section.rows():
            found = group.cases.setdefault(row.case, Repeats(row.line))
            found.times_s.append(row.time_s("" if self.topology is None else self.topology.name))
            found.choice = found.choice or row.choice
            if row.wrong is not None:
                found.wrong = max(found.wrong or 0.0, row.wrong)
