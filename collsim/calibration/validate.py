"""Compare measured logs with the model: `validate`.

Logs are read as streams into one entry per distinct case; the cases are predicted once, all sizes of a call together.
`gather` checks and reads, `compare` predicts and judges; `validate` is both.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from collsim._version import __version__
from collsim.calibration.arguments import checked_environment, checked_margin, checked_operation, checked_paths
from collsim.calibration.cases import MeasuredCase, Section, Skipped, read_sections
from collsim.calibration.gpu_models import other_gpus
from collsim.calibration.health import MARGIN, health_of, judged
from collsim.calibration.hidden_nvls import nvls_was_off, without_nvls
from collsim.calibration.log_placement import MOST_GPUS_OF_A_HOST, mapping, misfit, predicted
from collsim.calibration.logged_choice import choice_notes
from collsim.calibration.logs.log_types import ZERO_BYTES, Dropped, Test
from collsim.calibration.logs.printed_rows import Choice
from collsim.calibration.logs.reading import LAUNCHES
from collsim.calibration.verdicts import CheckedLog, JudgedCase, RefusedCase, Unread, Validation
from collsim.core.errors import Fault, Faults, InputError, ModelError, UnknownNameError, UnsupportedError
from collsim.core.operations import MOST_RANKS, dtype_bytes
from collsim.core.progress import steps
from collsim.library import DEFAULT_LIBRARY, Profile, load_library, load_profile
from collsim.simulation.request.prepare import Machine
from collsim.simulation.request.values import read_items, read_whole
from collsim.simulation.row import width_notes
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

    from collsim.simulation.result import Result, Row

__all__ = ["checked_options", "compare", "gather", "named_topology", "nothing_left", "validate"]

DEFAULT_RCCL = "rccl-2.22"
"""RCCL at the time of most public logs that name no version."""

MOST_SHOWN = 20
"""So many skipped tests are listed when nothing else is left."""
DROPS_SHOWN = 3
"""So many of the rows of a file that the reader dropped are listed."""

OF_A_RUN = ("damage", "peers")
"""Entries of a topology that no document on logs has: they are of whole machines, and of runs of several kinds."""


def validate(
    logs: str | Path | Iterable[str | Path],
    topo: str | Path | Topology | nx.Graph[Any],
    *,
    op: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    launch: str | None = None,
    profile: str | Profile = "auto",
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    margin: float = MARGIN,
    rank_list: Sequence[int] | None = None,
    overrides: Mapping[str, str] | Sequence[str] | None = None,
    fail: str | Sequence[str] | None = None,
    degrade: Mapping[str, str | float] | Sequence[str] | None = None,
) -> Validation:
    """Compare logs of nccl-tests or rccl-tests with what the model predicts for them.

    Parameters
    ----------
    logs : str, Path or iterable of them
        Files that `collsim.calibration.read_log` understands; ``-`` is stdin.
    topo : str, path, Topology or networkx graph
        The system that was measured, as of `collsim.simulate`: one scale-up domain, or the cluster on whose nodes the
        ranks were.
    op, ranks, nodes, launch : optional
        Hold for all logs, whatever they say. *nodes* makes a cluster of a topology that is one host.
    profile : str or Profile
    library : str, optional
        Such as ``nccl-2.28``, for all logs; by default the one that each log names.
    environment : mapping, optional
        Variables that change the library's choice, beside those of the logs.
    margin : float
        Stands in for an interval where the profile has none.
    rank_list : sequence of int, optional
        The GPU of each rank of all logs, whatever they say.
    overrides, fail, degrade : optional
        Changes of the machine, as of `collsim.simulate`.

    Returns
    -------
    Validation

    Raises
    ------
    InputError
        Every fault of the request and the files; or nothing is left that can be compared.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "all_reduce.log"
    >>> _ = path.write_text("67108864  16777216  float  sum  -1  400.00  167.77  293.60  0  398.00  168.62  295.08  0")
    >>> validation = validate(path, "hgx_h100", profile="default", environment={"NCCL_ALGO": "Ring"})
    >>> validation.logs[0].health
    ('busbw at 64 MiB is 11 % below the model, inside a factor of 1.25 (margin)',)
    """
    faults = Faults()
    share = faults.attempt(checked_margin, margin)
    told: dict[str, Any] = {
        "op": op, "ranks": ranks, "nodes": nodes, "launch": launch, "library": library, "environment": environment
    }  # fmt: skip
    machine = Machine(overrides, fail, degrade)
    asked = faults.attempt(lambda: gather(logs, topo, profile=profile, machine=machine, rank_list=rank_list, **told))
    faults.raise_any()
    assert share is not None
    assert asked is not None
    return compare(asked, share)


def gather(
    logs: str | Path | Iterable[str | Path],
    topo: str | Path | Topology | nx.Graph[Any] | None,
    *,
    profile: str | Profile = "auto",
    machine: Machine | None = None,
    rank_list: Sequence[int] | None = None,
    hosts: int | None = None,
    **told: Any,
) -> Gathered:
    """Check what `validate` is asked and read the logs, before anything is predicted; parameters as there.

    *machine* holds the changes of the topology; where nobody says how many nodes there are, there are so many *hosts*.

    Raises
    ------
    InputError
        Every fault of the request and the files.
    """
    faults = Faults()
    topology = faults.attempt(lambda: on_nodes(topo, machine or Machine(), told.get("nodes") or hosts))
    constants = faults.attempt(load_profile, profile, topology)
    paths = faults.attempt(checked_paths, logs) or []
    options = checked_options(told, faults)
    gathered = Gathered(topology, constants, _gpus(rank_list, topology, faults))
    for path in dict.fromkeys(map(str, paths)):
        faults.attempt(gathered.add, path, options)
    if gathered.other_ranks and not gathered.groups:
        counts = " or ".join(map(str, sorted(gathered.other_ranks)))
        what = f"the test has {counts} ranks, the list of ranks {len(gathered.rank_list)}"
        faults.append(Fault(what, "rank_list", f"list {counts} GPUs, in the order of the ranks, or leave it out"))
    faults.raise_any()
    return gathered


def on_nodes(topo: Any, machine: Machine, nodes: int | None) -> Topology:
    """Return the machine; where it is one host with adapters and there are several *nodes*, so many of it.

    Raises
    ------
    InputError
        Whatever is wrong with it.
    """
    if isinstance(nodes, int) and nodes > 1 and isinstance(topo, str | Path):
        alone = Machine().of(topo)  # figures of a fabric need the nodes that are added here
        if alone.cluster is None and alone.n_gpus <= MOST_GPUS_OF_A_HOST:
            return machine.also([f"scale_out.nodes={nodes}"]).of(topo)
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


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Repeats:
    """The rows of one case: times in seconds, 8 bytes a row."""

    line: int
    times_s: array[float] = field(default_factory=lambda: array("d"))
    wrong: float | None = None
    choice: Choice | None = None


@dataclass(slots=True)
class _Group:
    """Tests of a file that were run alike on the same hosts; *notes* are keys for their order."""

    file: str
    line: int
    case: MeasuredCase
    hosts: tuple[str, ...]
    notes: dict[str, None] = field(default_factory=dict)
    cases: dict[MeasuredCase, _Repeats] = field(default_factory=dict)
    failed: bool = False
    library_version: str | None = None


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
    """Measured cases of all logs, by file, hosts and kind of call; a new case adds an entry, each row 8 bytes."""

    def __init__(self, topology: Topology | None, constants: Profile | None, rank_list: tuple[int, ...] = ()) -> None:
        self.topology, self.constants, self.rank_list = topology, constants, rank_list
        self.system = "" if topology is None else topology.name
        self.groups: dict[tuple[Any, ...], _Group] = {}
        self.skipped: list[Skipped] = []
        self.other_ranks: set[int] = set()
        self.dropped: list[Unread] = []

    def add(self, path: str, options: Mapping[str, Any]) -> None:
        """Read a log."""
        drops = _Drops()
        for found in read_sections(path, seen=drops.add, **options):
            section = self._placed(found) if isinstance(found, Section) else found
            if isinstance(section, Skipped):
                self.skipped.append(section)
            else:
                self._add_section(section)
        if drops.count:
            self.dropped.append(Unread("stdin" if path == "-" else path, drops.count, tuple(drops.first)))

    def _placed(self, section: Section) -> Section | Skipped:
        """Return a section with its ranks on the GPUs that the caller lists."""
        if not self.rank_list or self.topology is None:
            return section
        if len(self.rank_list) != section.case.all_ranks:
            self.other_ranks.add(section.case.all_ranks)
            reason = f"the test has {section.case.all_ranks} ranks, the list of ranks {len(self.rank_list)}"
            return Skipped(section.file, section.line, reason)
        cluster = self.topology.cluster
        each = self.topology.n_gpus if cluster is None else cluster.node.n_gpus
        seats = tuple(divmod(gpu, each) for gpu in self.rank_list)
        nodes = 1 + max(host for host, _ in seats)
        return replace(section, case=replace(section.case, seats=seats, nodes=None if cluster is None else nodes))

    def _add_section(self, section: Section) -> None:
        key = (section.file, section.source, section.hosts, section.case)
        new = _Group(section.file, section.line, section.case, section.hosts)
        group = self.groups.setdefault(key, new)
        group.notes.update(dict.fromkeys(section.notes))
        group.failed |= section.test.run.failed
        group.library_version = group.library_version or section.test.run.library_version
        if self.topology is not None and (others := other_gpus(section.test.run.gpus, self.topology)):
            group.notes[f"{others}: the verdicts say nothing of these GPUs"] = None
        for row in section.rows():
            found = group.cases.setdefault(row.case, _Repeats(row.line))
            found.times_s.append(row.time_s(self.system))
            found.choice = found.choice or row.choice
            if row.wrong is not None:
                found.wrong = max(found.wrong or 0.0, row.wrong)


# --- predicting ------------------------------------------------------------------------------------------------------


class _Model:
    """Predictions by case: a row of a result, or why there is none."""

    def __init__(self, topology: Topology, constants: Profile) -> None:
        self.topology, self.constants = topology, constants
        self.default = _default_library(topology, constants)
        self.answers: dict[MeasuredCase, Row | str] = {}
        self.results: list[Result] = []
        self.warnings: dict[str, None] = {}

    def told(self, case: MeasuredCase) -> MeasuredCase:
        """Return the part of *case* that changes its prediction."""
        library = None if self.default is None else case.library or self.default
        environment = case.environment if library else ()
        return replace(
            case,
            library=library,
            environment=environment,
            nodes=case.nodes if self.topology.cluster else None,
            gpus_per_thread=case.gpus_per_thread or 1,
        )

    def predict(self, cases: Iterable[MeasuredCase]) -> None:
        """Predict what is told of the cases, all sizes of a kind of call at once."""
        calls: dict[MeasuredCase, dict[int, None]] = {}
        for case in map(self.told, cases):
            calls.setdefault(replace(case, size_bytes=0), {})[case.size_bytes] = None
        for call, sizes in steps(list(calls.items()), "test"):
            self._predict_call(call, list(sizes))

    def _predict_call(self, call: MeasuredCase, sizes: list[int]) -> None:
        try:
            found = self._rows(call, sizes)
        except (InputError, ModelError) as error:
            if len(sizes) > 1:  # one size must not cost the others their answer
                for size in sizes:
                    self._predict_call(call, [size])
                return
            found = {sizes[0]: str(error.faults[0]).partition("\n")[0]}
        for size in sizes:
            left_out = f"{size} bytes are less than an element for each rank"
            self.answers[replace(call, size_bytes=size)] = found.get(size, left_out)

    def _rows(self, call: MeasuredCase, sizes: list[int]) -> dict[int, Row | str]:
        """Return the predicted rows by size; raises as `simulate` does."""
        result = predicted(call, sizes, self.topology, self.constants)
        self.results.append(replace(result, rows=()))
        self.warnings.update(dict.fromkeys(text for text in result.warnings if "is left out at" not in text))
        if call.matrix is not None:
            return dict.fromkeys(sizes, result.rows[0])
        refused: dict[int, Row | str] = {each.requested_bytes: each.what for each in result.refused}
        return refused | {row.requested_bytes: row for row in result.rows}


def _default_library(topology: Topology, constants: Profile) -> str | None:
    """Return whose choice a log follows that names no version: that of the profile; None if none fits these GPUs."""
    from collsim.library import system_of

    try:
        family, default = ("rccl", DEFAULT_RCCL) if system_of(topology).is_amd else ("nccl", DEFAULT_LIBRARY)
    except UnsupportedError:
        return None
    return constants.library if constants.library.startswith(family) else default


# --- comparing -------------------------------------------------------------------------------------------------------


def compare(gathered: Gathered, margin: float = MARGIN, *, settles_nvls: bool = True) -> Validation:
    """Predict every distinct case and put the logs beside it.

    *settles_nvls*: a log whose times fit a machine without NVLS better is compared with that.

    Raises
    ------
    InputError
        Nothing is left that can be compared.
    """
    topology, constants = gathered.topology, gathered.constants
    assert topology is not None
    assert constants is not None
    model = _Model(topology, constants)
    skipped, groups = list(gathered.skipped), []
    for group in gathered.groups.values():
        reason = misfit(group.case, topology)
        if reason:
            skipped.append(Skipped(group.file, group.line, reason))
        else:
            groups.append(_with_nvls_settled(group, model) if settles_nvls else group)
    if model.default is None:
        model.warnings[f"no library is known for {topology.name}: every row is the fastest in the simulator"] = None
    model.predict(case for group in groups for case in group.cases)
    checked = [_checked_log(group, model, margin) for group in groups]
    logs = [log for log in checked if log.rows]
    skipped += [
        Skipped(log.file, each.line, f"{each.case.op} of {each.case.size_bytes} bytes: {each.what}")
        for log in checked
        if not log.rows
        for each in log.refused
    ]
    if not logs:
        hint = "a test on this machine is needed, whose log names its operation and ranks"
        raise nothing_left(skipped, Fault("nothing is left that can be compared", "", hint))
    told = model.results[0]
    calibrated = all(result.profile["calibrated"] for result in model.results)
    return Validation(
        version=__version__,
        topology={key: value for key, value in told.topology.items() if key not in OF_A_RUN},
        profile={**told.profile, "calibrated": calibrated},
        margin=margin,
        logs=tuple(logs),
        skipped=tuple(skipped),
        dropped=tuple(gathered.dropped),
        warnings=tuple(model.warnings),
    )


def _with_nvls_settled(group: _Group, model: _Model) -> _Group:
    """Return the group with NVLS turned off if its times fit that better."""
    if model.default is None:
        return group
    times = ((case, median(found.times_s)) for case, found in group.cases.items())
    note = nvls_was_off(times, model.topology, model.constants, model.default)
    if not note:
        return group
    cases = {without_nvls(case): found for case, found in group.cases.items()}
    return replace(group, case=without_nvls(group.case), cases=cases, notes={**group.notes, note: None})


def nothing_left(skipped: Sequence[Skipped], last: Fault) -> InputError:
    """Return the error that says why each test was skipped, and *last* what for nothing is left."""
    faults = [Fault(skip.reason, skip.where) for skip in skipped]
    if (more := len(faults) - MOST_SHOWN) > 0:
        faults[MOST_SHOWN:] = [Fault(f"{more} more tests were skipped too")]
    return InputError(*faults, last)


def _checked_log(group: _Group, model: _Model, margin: float) -> CheckedLog:
    """Return the rows of a group beside their predictions, and those that have none."""
    rows: list[JudgedCase] = []
    refused: list[RefusedCase] = []
    for case, found in group.cases.items():
        answer = model.answers[model.told(case)]
        if isinstance(answer, str):
            refused.append(RefusedCase(case, found.line, median(found.times_s), answer))
        else:
            rows.append(judged(_row(case, found, answer), margin))
    rows.sort(key=lambda row: (row.case.dtype, row.case.redop, row.case.root, row.case.size_bytes))
    system = model.topology.name
    case = replace(group.case, library=model.told(group.case).library)
    return CheckedLog(
        group.file, group.line, case, group.hosts, mapping(case, group.hosts, model.topology), tuple(rows),
        health_of(rows, system, margin),
        (*group.notes, *choice_notes(rows), *_gaps(group.case, case), *_damage(model.topology),
         *width_notes((row.case.size_bytes, row.wide_because) for row in rows)), group.failed,
        tuple(sorted(refused, key=lambda each: each.case.size_bytes)), group.library_version,
    )  # fmt: skip


def _damage(topology: Topology) -> Iterator[str]:
    """Yield what of the machine had failed or was slow in the prediction."""
    if topology.damage is not None:
        yield f"predicted with {topology.damage.summary}"


def _row(case: MeasuredCase, found: _Repeats, answer: Row) -> JudgedCase:
    """Return a measured case beside its prediction."""
    return JudgedCase(
        case=case,
        line=found.line,
        repeats=len(found.times_s),
        measured_s=median(found.times_s),
        fastest_s=min(found.times_s),
        slowest_s=max(found.times_s),
        predicted_s=answer.time_s,
        time_lo_s=answer.time_lo_s,
        time_hi_s=answer.time_hi_s,
        lower_bound_s=answer.lower_bound_s,
        bound=answer.bound,
        algo=answer.algo,
        proto=answer.proto,
        wrong=found.wrong,
        channels=answer.channels,
        logged=found.choice,
        limited_by=answer.limited_by,
        bottleneck=answer.bottleneck,
        tiers=answer.tiers,
        algo_bound_s=answer.algo_bound_s,
        wide_because=answer.wide_because,
    )


def _gaps(logged: MeasuredCase, told: MeasuredCase) -> Iterator[str]:
    """Yield in what the prediction is not of what the log measured."""
    if logged.library is None and told.library is not None:
        yield f"the log names no version of the library: taken as {told.library}"
    if logged.library is not None and told.library is None:
        yield f"the choice of {logged.library} is not known for these GPUs: the fastest algorithm in the simulator"
    if logged.environment and told.library is None:
        yield f"without a library {', '.join(name for name, _ in logged.environment)} changes nothing"
    if logged.registered > 1 and told.library is None:
        yield "symmetric buffers are predicted as registered ones"
    if logged.groups is not None:
        yield f"ranks {logged.groups.replace(';', ' | ')} form groups that ran at once; predicted is the slowest"
    if logged.nodes is None:
        yield "the log does not say how many nodes there were: taken as one"
