"""What is served: a file to jobs, failures and their figures, or all that is wrong with it at once."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, SpecError, unknown_keys
from collsim.core.units import format_count, parse_time_s

__all__ = ["Failure", "Job", "Kernels", "Request", "Serving", "read_serving", "serving_of"]

SCHEMA = "collsim.serving/1"
HEAD = ("schema", "topo", "gpu", "set", "duration", "warm_up", "seed", "jitter", "straggler", "failures", "jobs")
JOB = (
    "name", "model", "ranks", "gpus", "redundant", "batch", "micro_batches", "sms", "rate", "arrivals", "prompt",
    "output", "spread", "attention", "experts", "rest",
)  # fmt: skip
KERNELS = ("time", "per_token", "per_context")
FAILURE = ("at", "until", "fail", "degrade")
STRAGGLER = ("share", "slower")
NUMBER = re.compile(r"[0-9.]+e[+-]?[0-9]+", re.IGNORECASE)
COLUMNS = ("time_s", "prompt", "output")
CSV_HEAD = ",".join(COLUMNS)
MOST_FAULTS = 50
"""Of a file of arrivals: more say nothing new."""
MOST_REQUESTS = 2_000_000
MOST_GPUS = 1 << 20
MOST_TOKENS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels that run one after the other: their time for a batch.

    Attributes
    ----------
    time_s : float
        Whatever the batch: reading weights, launches.
    token_s : float
        For each token of the rank's batch.
    context_s : float
        For each token of the batch and each of its context: reading the cache of keys and values.
    """

    time_s: float = 0.0
    token_s: float = 0.0
    context_s: float = 0.0

    def of(self, tokens: int, context: float) -> float:
        """Return the time for a batch.

        >>> round(Kernels(1e-3, 1e-5, 1e-8).of(10, 1000.0), 6)
        0.0012
        """
        return self.time_s + tokens * (self.token_s + context * self.context_s)


@dataclass(frozen=True, slots=True)
class Request:
    """Request: when it comes, tokens of its context then, and tokens to generate."""

    time_s: float
    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Job:
    """Model that is served by a group of ranks.

    Attributes
    ----------
    model : str
        Of `collsim.moe`.
    ranks : int
        Over which experts are spread; each holds its own requests.
    gpus : tuple of int
        Where they are; for what jobs cost each other.
    batch : int
        Most requests of a rank at once.
    micro_batches : int
        Parts of a batch, of which one communicates while others compute.
    rate : float
        Requests a second, by Poisson; 0 with *requests*.
    requests : tuple of Request
        Of a file.
    prompt, output : int
        Medians; *spread* is the width of their log-normal laws.
    attention, experts : Kernels
        Of a layer: before dispatch, and between dispatch and combine.
    rest : Kernels
        Of a step beside its layers with experts.
    """

    name: str
    model: str
    ranks: int
    gpus: tuple[int, ...]
    redundant: int = 0
    batch: int = 128
    micro_batches: int = 1
    sms: int = 0
    rate: float = 0.0
    requests: tuple[Request, ...] = ()
    prompt: int = 1024
    output: int = 256
    spread: float = 0.0
    attention: Kernels = Kernels()
    experts: Kernels = Kernels()
    rest: Kernels = Kernels()


@dataclass(frozen=True, slots=True)
class Failure:
    """What fails, or runs at a share of its rate, from *at_s* until *until_s*."""

    at_s: float
    until_s: float
    fail: tuple[str, ...] = ()
    degrade: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Serving:
    """All of a file."""

    topo: str
    gpu: str
    jobs: tuple[Job, ...]
    duration_s: float
    warm_up_s: float
    overrides: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    jitter: float = 0.0
    straggler_share: float = 0.0
    straggler_slower: float = 1.0
    failures: tuple[Failure, ...] = ()


def read_serving(file: str | Path) -> Serving:
    """Read a file.

    Raises
    ------
    InputError
        It cannot be read.
    SpecError
        All that is wrong with it.
    """
    from collsim.timeline.workload import read_workload

    return serving_of(read_workload(file, "what is to be served, in YAML", SCHEMA), str(file))


def serving_of(data: Mapping[str, Any], file: str = "serving") -> Serving:
    """Return what the data of a file say.

    Raises
    ------
    SpecError
        All that is wrong with them.
    """
    faults = Faults(lambda where: f"{file}: {where}" if where else file)
    get = _Reader(data, "", faults)
    get.check(HEAD)
    if data.get("schema") != SCHEMA:
        faults.append(Fault(f'schema is "{data.get("schema")}"', "schema", f"write schema: {SCHEMA}"))
    if not isinstance(data.get("topo"), str):
        faults.append(Fault("no system is named", "topo", "such as topo: gb200_nvl72"))
    duration_s = get.time("duration", "60 s")
    warm_up_s = get.time("warm_up", f"{duration_s / 5:.9f} s")
    if warm_up_s >= duration_s:
        faults.append(Fault(f"{warm_up_s:g} s leave nothing of {duration_s:g} s", "warm_up", "give less than duration"))
    straggler = get.part("straggler", STRAGGLER)
    failures = [_failure(part, duration_s) for part in get.parts("failures", FAILURE)]
    jobs: list[Job] = []
    for number, part in enumerate(get.parts("jobs", JOB)):
        jobs.append(_job(part, number, sum(job.ranks for job in jobs), Path(file).parent))
    if not jobs:
        faults.append(Fault("there are no jobs", "jobs", "give a list of at least one"))
    for number, job in enumerate(jobs):
        faults += _faults_of_requests(job, f"jobs[{number}]", duration_s)
    found = Serving(
        topo=str(data.get("topo")),
        gpu=str(data.get("gpu", data.get("topo"))),
        jobs=tuple(jobs),
        duration_s=duration_s,
        warm_up_s=warm_up_s,
        overrides=get.texts("set"),
        seed=get.whole("seed", 0, least=0),
        jitter=get.number("jitter", 0.0, most=1.0),
        straggler_share=straggler.number("share", 0.0, most=1.0),
        straggler_slower=straggler.number("slower", 1.0, least=1.0),
        failures=tuple(failures),
    )
    if len({job.name for job in jobs}) < len(jobs):
        faults.append(Fault("two jobs have one name", "jobs", "give each its own"))
    faults.raise_any(SpecError)
    return found


def _faults_of_requests(job: Job, where: str, duration_s: float) -> list[Fault]:
    """Return what is wrong with the requests of a job within the time that is simulated."""
    if job.requests and job.requests[0].time_s >= duration_s:
        what = f"the first request comes at {job.requests[0].time_s:g} s, after the end at {duration_s:g} s"
        return [
            Fault(what, f"{where}.arrivals", f"give duration: {job.requests[-1].time_s + 1:.0f} s, or earlier times")
        ]
    if job.rate * duration_s > MOST_REQUESTS:
        hint = f"at most {MOST_REQUESTS:,}: give duration: {MOST_REQUESTS / job.rate:.3g} s, or a lower rate"
        return [Fault(f"{job.rate * duration_s:,.0f} requests", f"{where}.rate", hint)]
    return []


def _job(get: _Reader, number: int, taken: int, folder: Path) -> Job:
    """Return a job; one that does not say where it runs has the next GPUs."""
    ranks = get.whole("ranks", 0, least=2)
    gpus = get.gpus("gpus", tuple(range(taken, taken + ranks)))
    if len(gpus) != ranks:
        get.fault(f"{format_count(len(gpus), 'GPU')} for {ranks} ranks", "gpus", "give one for each rank")
    requests: tuple[Request, ...] = ()
    if "arrivals" in get.data:
        requests = get.faults.attempt(read_arrivals, folder / str(get.data["arrivals"])) or ()
    if "arrivals" in get.data and "rate" in get.data:
        get.fault("says both rate and arrivals", "rate", "give one of them")
    elif "arrivals" not in get.data and "rate" not in get.data:
        get.fault("says neither rate nor arrivals", "rate", "such as rate: 100, requests a second")
    return Job(
        name=get.text("name", f"job {number}"),
        model=str(get.data.get("model", "deepseek-v3")),
        ranks=ranks,
        gpus=gpus,
        redundant=get.whole("redundant", 0, least=0),
        batch=get.whole("batch", 128, least=1),
        micro_batches=get.whole("micro_batches", 1, least=1),
        sms=get.whole("sms", 0, least=0),
        rate=0.0 if requests else get.number("rate", 0.0),
        requests=requests,
        prompt=get.whole("prompt", 1024, least=0),
        output=get.whole("output", 256, least=1),
        spread=get.number("spread", 0.0, most=3.0),
        attention=get.kernels("attention"),
        experts=get.kernels("experts"),
        rest=get.kernels("rest"),
    )


def _failure(get: _Reader, duration_s: float) -> Failure:
    """Return a failure; one that does not say until when lasts to the end."""
    at_s = get.time("at", "0 s")
    until_s = get.time("until", f"{max(duration_s, at_s + 1):.9f} s")
    if until_s <= at_s:
        get.fault(f"ends at {until_s:g} s, before it begins at {at_s:g} s", "until", "give a later time")
    fail = get.data.get("fail", [])
    degrade = get.texts("degrade")
    if not fail and not degrade:
        get.fault("says nothing that fails", "fail", 'such as fail: "link:gpu0-nvsw0", or degrade: {link:...: 50%}')
    if not all(isinstance(each, str) for each in (fail if isinstance(fail, list) else [fail])):
        get.fault(f"{fail!r} names nothing", "fail", 'such as fail: "link:gpu0-nvsw0", or a list')
    return Failure(at_s, until_s, tuple(map(str, fail if isinstance(fail, list) else [fail])), tuple(degrade.items()))


def read_arrivals(file: str | Path) -> tuple[Request, ...]:
    """Read requests from CSV with the columns time_s, prompt and output.

    Raises
    ------
    InputError
        The file cannot be read, or a row makes no sense.
    """
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as text:
            rows = list(csv.DictReader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Fault(f"cannot be read: {reason}", str(file), f"give a CSV of {CSV_HEAD}")) from None
    faults = Faults()
    if missing := [name for name in COLUMNS if rows and name not in rows[0]]:
        given = ", ".join(str(name) for name in rows[0])
        raise InputError(
            Fault(f"has no column {', '.join(missing)}, only {given}", str(file), f"begin with {CSV_HEAD}")
        )
    found = []
    for line, row in enumerate(rows, 2):
        try:
            found.append(Request(float(row["time_s"]), int(row["prompt"]), int(row["output"])))
        except (TypeError, ValueError):
            told = ",".join(str(row[name]) for name in COLUMNS if row[name] is not None)
            faults.append(Fault(f"line {line}: {told[:40]!r} is no request", str(file), f"numbers: {CSV_HEAD}"))
        else:
            faults.extend(Fault(f"line {line}: {what}", str(file), hint) for what, hint in _wrong_of(found[-1]))
        if len(faults) >= MOST_FAULTS:
            break
    faults.raise_any()
    if not found or len(found) > MOST_REQUESTS:
        raise InputError(Fault(f"{len(found)} requests", str(file), f"give 1 to {MOST_REQUESTS}"))
    return tuple(sorted(found, key=lambda request: request.time_s))


def _wrong_of(one: Request) -> list[tuple[str, str]]:
    """Return what is wrong with a request, each with what to give.

    >>> _wrong_of(Request(-1.0, 5, 0))
    [('time_s -1', 'give 0 or more'), ('output 0', 'give 1 to 1,000,000,000')]
    """
    found = [] if math.isfinite(one.time_s) and one.time_s >= 0 else [(f"time_s {one.time_s:g}", "give 0 or more")]
    for name, tokens, least in (("prompt", one.prompt, 0), ("output", one.output, 1)):
        if not least <= tokens <= MOST_TOKENS:
            found.append((f"{name} {str(tokens)[:20]}", f"give {least} to {MOST_TOKENS:,}"))
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """Part of a file: values by key, with their faults kept for later."""

    data: Mapping[str, Any]
    at: str
    faults: Faults

    def place(self, key: str) -> str:
        return f"{self.at}.{key}" if self.at else key

    def fault(self, what: str, key: str, hint: str) -> None:
        self.faults.append(Fault(what, self.place(key), hint))

    def check(self, known: Sequence[str]) -> None:
        self.faults.extend(unknown_keys(self.data, known, lambda _: self.at))

    def part(self, key: str, known: Sequence[str]) -> _Reader:
        """Return the mapping under a key; an empty one if there is none."""
        found = self.data.get(key, {})
        if not isinstance(found, Mapping):
            self.fault(f"{found!r} is no mapping", key, f"keys: {', '.join(known)}")
            found = {}
        reader = _Reader(found, self.place(key), self.faults)
        reader.check(known)
        return reader

    def parts(self, key: str, known: Sequence[str]) -> list[_Reader]:
        """Return the mappings of the list under a key."""
        found = self.data.get(key, [])
        if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
            self.fault("is no list of mappings", key, f"each with keys of {', '.join(known)}")
            return []
        readers = [_Reader(each, f"{self.place(key)}[{number}]", self.faults) for number, each in enumerate(found)]
        for reader in readers:
            reader.check(known)
        return readers

    def time(self, key: str, default: str) -> float:
        """Return seconds; 0 after a fault."""
        parse: Callable[[], float] = lambda: parse_time_s(str(self.data.get(key, default)), self.place(key))  # noqa: E731
        return self.faults.attempt(parse) or 0.0

    def number(self, key: str, default: float, least: float = 0.0, most: float = math.inf) -> float:
        value = self.data.get(key, default)
        if isinstance(value, str) and NUMBER.fullmatch(value):  # YAML reads 1e3 as a text
            value = float(value)
        fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not fine or not least <= value <= most:
            limit = f"{least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"
            self.fault(f"{value!r} is no number of {limit}", key, f"give {limit}")
            return default
        return float(value)

    def whole(self, key: str, default: int, least: int) -> int:
        value = self.data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.fault(f"{value!r} is no whole number of {least} or more", key, f"give {least} or more")
            return max(default, least)
        return value

    def text(self, key: str, default: str) -> str:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fault(f"{value!r} is no text", key, f"such as {default}")
            return default
        return str(value)

    def texts(self, key: str) -> dict[str, str]:
        """Return texts by key."""
        found = self.data.get(key, {})
        if not isinstance(found, Mapping):
            self.fault(f"{found!r} is no mapping", key, "give NAME: VALUE")
            return {}
        return {str(name): str(value) for name, value in found.items()}

    def kernels(self, key: str) -> Kernels:
        part = self.part(key, KERNELS)
        return Kernels(part.time("time", "0 s"), part.time("per_token", "0 s"), part.time("per_context", "0 s"))

    def gpus(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return numbers of GPUs from a text such as ``0-7,16-23``."""
        if key not in self.data:
            return default
        found: list[int] = []
        told = self.data[key]
        for part in (",".join(map(str, told)) if isinstance(told, list) else str(told)).split(","):
            first, _, last = part.strip().partition("-")
            if not first.isdigit() or (last and not last.isdigit()):
                self.fault(f'"{part}" is no range of GPUs', key, "such as 0-7,16-23")
                return default
            ends = (int(first), int(last or first))
            if ends[1] < ends[0]:
                self.fault(f'"{part}" runs backwards', key, f"give {ends[1]}-{ends[0]}")
                return default
            if ends[1] - ends[0] >= MOST_GPUS:
                self.fault(f'"{part}" is more than {MOST_GPUS:,} GPUs', key, "such as 0-7,16-23")
                return default
            found += range(ends[0], ends[1] + 1)
        twice = [gpu for gpu, count in Counter(found).items() if count > 1]
        if twice:
            self.fault(f"GPU {twice[0]} is named more than once", key, "name each GPU once, such as 0-7,16-23")
            return default
        return tuple(found)
