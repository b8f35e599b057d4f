"""Compare measured logs with the model: `validate`.

Distinct cases are predicted once, all sizes of a call together. `gather` checks and reads, `compare` predicts and
judges; `validate` is both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from collsim._version import __version__
from collsim.calibration.arguments import checked_margin
from collsim.calibration.cases import MeasuredCase, Skipped
from collsim.calibration.gathered import Gathered, Group, Repeats, gather
from collsim.calibration.health import MARGIN, health_of, judged
from collsim.calibration.hidden_nvls import nvls_was_off, without_nvls
from collsim.calibration.log_placement import mapping, misfit, predicted
from collsim.calibration.logged_choice import choice_notes
from collsim.calibration.verdicts import CheckedLog, JudgedCase, RefusedCase, Validation
from collsim.core.errors import Fault, Faults, InputError, ModelError, UnsupportedError
from collsim.core.progress import steps
from collsim.core.units import format_time
from collsim.library import DEFAULT_LIBRARY, Profile
from collsim.library.costs.hosts import USUAL_CALLS, USUAL_REPLAYED, around_s
from collsim.simulation.request.prepare import Machine
from collsim.simulation.row import width_notes
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

    from collsim.simulation.result import Result, Row

__all__ = ["compare", "nothing_left", "validate"]

DEFAULT_RCCL = "rccl-2.22"
"""RCCL at the time of most public logs that name no version."""

MOST_SHOWN = 20
"""So many skipped tests are listed when nothing else is left."""
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
        Hold for all logs, whatever they say. *nodes* makes a cluster of a topology that is one host; by default there
        are as many as the logs name.
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
    skipped += [one for log in checked if not log.rows for one in _refusals(log)]
    if not logs:
        hint = "a test on this machine is needed, whose log names its operation and ranks"
        denied = map(Fault, gathered.warnings)
        raise nothing_left(skipped, *denied, Fault("nothing is left that can be compared", "", hint))
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
        warnings=(*gathered.warnings, *model.warnings),
        said=gathered.said,
    )


def _refusals(log: CheckedLog) -> Iterator[Skipped]:
    """Yield what no row of a log was predicted for, once for all rows."""
    reasons: dict[str, list[RefusedCase]] = {}
    for each in log.refused:
        reasons.setdefault(each.what, []).append(each)
    for what, rows in reasons.items():
        sizes = sorted(row.case.size_bytes for row in rows)
        of = f"{sizes[0]} bytes" if len(rows) == 1 else f"{sizes[0]} to {sizes[-1]} bytes, {len(rows)} rows"
        yield Skipped(log.file, rows[0].line, f"{rows[0].case.op} of {of}: {what}")


def _with_nvls_settled(group: Group, model: _Model) -> Group:
    """Return the group with NVLS turned off if its times fit that better."""
    if model.default is None:
        return group
    times = ((case, median(found.times_s)) for case, found in group.cases.items())
    note = nvls_was_off(times, model.topology, model.constants, model.default)
    if not note:
        return group
    cases = {without_nvls(case): found for case, found in group.cases.items()}
    return replace(group, case=without_nvls(group.case), cases=cases, notes={**group.notes, note: None})


def nothing_left(skipped: Sequence[Skipped], *last: Fault) -> InputError:
    """Return the error that says why each test was skipped, and *last* what else there is to say."""
    faults = [Fault(skip.reason, skip.where) for skip in skipped]
    if (more := len(faults) - MOST_SHOWN) > 0:
        faults[MOST_SHOWN:] = [Fault(f"{more} more tests were skipped too")]
    return InputError(*faults, *last)


def _checked_log(group: Group, model: _Model, margin: float) -> CheckedLog:
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
        (*group.notes, *choice_notes(rows), *_gaps(group.case, case, group.library_fault), *_damage(model.topology),
         *width_notes((row.case.size_bytes, row.wide_because) for row in rows)), group.failed,
        tuple(sorted(refused, key=lambda each: each.case.size_bytes)), group.library_version,
    )  # fmt: skip


def _damage(topology: Topology) -> Iterator[str]:
    """Yield what of the machine had failed or was slow in the prediction."""
    if topology.damage is not None:
        yield f"predicted with {topology.damage.summary}"


def _row(case: MeasuredCase, found: Repeats, answer: Row) -> JudgedCase:
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


def _gaps(logged: MeasuredCase, told: MeasuredCase, library_fault: str) -> Iterator[str]:
    """Yield in what the prediction is not of what the log measured; *library_fault* is why its library is not read."""
    if logged.library is None and told.library is not None:
        yield f"{library_fault or 'the log names no version of the library'}: taken as {told.library}"
    if logged.library is not None and told.library is None:
        yield f"the choice of {logged.library} is not known for these GPUs: the fastest algorithm in the simulator"
    if logged.environment and told.library is None:
        yield f"without a library {', '.join(name for name, _ in logged.environment)} changes nothing"
    if more_s := around_s(told.library or "", logged.calls, logged.launch):
        graph = logged.launch == "graph"
        calls, usual = (f"replayed {logged.calls}", USUAL_REPLAYED) if graph else (f"{logged.calls}", USUAL_CALLS)
        yield f"a row is the mean of {calls} calls, {format_time(more_s)} longer than that of {usual}"
    if logged.registered > 1 and told.library is None:
        yield "symmetric buffers are predicted as registered ones"
    if logged.groups is not None:
        yield f"ranks {logged.groups.replace(';', ' | ')} form groups that ran at once; predicted is the slowest"
    if logged.nodes is None:
        yield "the log does not say how many nodes there were: taken as one"
