"""A cluster that serves, event by event: arrivals, batches that requests join and leave at every step, failures."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collsim.core.errors import CollsimError
from collsim.core.progress import steps
from collsim.serving.decode import Step
from collsim.serving.spec import Failure, Job, Request, Serving

__all__ = ["Log", "Served", "serve"]

PARTS = 100
"""Parts of the time after which it is told how far it is."""
StepOf = Callable[[int, int, float, float, frozenset[int]], Step]
"""From job, requests of the fullest rank, their mean context, slowness of exchanges and failures to the step."""
Costs = Callable[[int, int, frozenset[int]], float]
"""From two jobs and failures to how many times longer the exchanges of the first take while the second exchanges."""


@dataclass(frozen=True, slots=True)
class Served:
    """Request: when it came, had its first step, and its last one; infinity where that was after the end."""

    arrived_s: float
    started_s: float
    finished_s: float


@dataclass(slots=True)
class Log:
    """What a job did.

    Attributes
    ----------
    begin_s, time_s, running, waiting : list
        Of each step: when it began, how long it took, its requests, and those that waited, as a mean of begin and end.
    steps : list of Step
        As each was simulated.
    served : list of Served
        Requests that came.
    """

    begin_s: list[float] = field(default_factory=list)
    time_s: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)


def serve(serving: Serving, jobs: Sequence[int], step_of: StepOf, costs: Costs) -> list[Log]:
    """Serve some of the jobs until the end, and return what each did; the same seed gives the same answer."""
    import simpy

    env = simpy.Environment()
    active: set[int] = set()
    for number, failure in enumerate(serving.failures):
        env.process(_fails(env, failure, number, active))
    servers = [_Server(env, serving, number, active, step_of) for number in jobs]
    for server in servers:
        server.others = [(other, costs) for other in servers if other is not server]
        env.process(server.receive())
        env.process(server.run())
    try:
        for part in steps(range(1, PARTS + 1), "hundredths of the time"):
            env.run(until=serving.duration_s if part == PARTS else serving.duration_s * part / PARTS)
    except CollsimError as error:  # SimPy raises a copy that has the words alone; its cause has the faults
        raise error.__cause__ if isinstance(error.__cause__, CollsimError) else error from None
    for server in servers:
        server.close()
    return [server.log for server in servers]


def _fails(env: Any, failure: Failure, number: int, active: set[int]) -> Generator[Any, None, None]:
    """Let something be broken for a while."""
    yield env.timeout(failure.at_s)
    active.add(number)
    yield env.timeout(max(failure.until_s - failure.at_s, 0.0))
    active.discard(number)


def requests_of(job: Job, rng: np.random.Generator) -> Iterator[Request]:
    """Yield the requests of a file, or those of a Poisson process whose lengths are log-normal."""
    if job.requests:
        yield from job.requests
        return
    now = 0.0
    while job.rate > 0:
        now += float(rng.exponential(1 / job.rate))
        prompt, output = np.exp(rng.normal(0.0, job.spread, 2)) * (job.prompt, job.output)
        yield Request(now, round(float(prompt)), max(round(float(output)), 1))


class _Server:
    """Ranks of a job: every step generates one token for each request that runs."""

    def __init__(self, env: Any, serving: Serving, number: int, active: set[int], step_of: StepOf) -> None:
        self.env, self.serving, self.number, self.active, self.step_of = env, serving, number, active, step_of
        self.job, self.log = serving.jobs[number], Log()
        self.others: list[tuple[_Server, Costs]] = []
        self.communication = 0.0  # share of the time, now
        self._queue: deque[Request] = deque()
        self._running: list[tuple[int, int, float, Request]] = []  # by the step after which each leaves
        self._context = 0  # tokens, of all that run
        self._count = self._admitted = 0
        self._idle: Any = None

    def receive(self) -> Generator[Any, None, None]:
        """Let requests come."""
        for request in requests_of(self.job, np.random.default_rng([self.serving.seed, self.number])):
            yield self.env.timeout(max(request.time_s - self.env.now, 0.0))
            self._queue.append(request)
            if self._idle is not None:
                self._idle.succeed()
                self._idle = None

    def run(self) -> Generator[Any, None, None]:
        """Decode, step after step; wait where nothing runs."""
        rng = np.random.default_rng([self.serving.seed, self.number, 1])
        while True:
            self._admit()
            if not self._running:
                self.communication = 0.0
                self._idle = self.env.event()
                yield self._idle
                continue
            step = self._step()
            self.communication = step.communication
            self._note(step, step.time_s * self._drawn(rng))
            yield self.env.timeout(self.log.time_s[-1])
            self.log.waiting[-1] = (self.log.waiting[-1] + len(self._queue)) / 2
            self._leave()

    def _admit(self) -> None:
        while self._queue and len(self._running) < self.job.ranks * self.job.batch:
            request = self._queue.popleft()
            self._context += request.prompt
            last = self._count + request.output
            heapq.heappush(self._running, (last, self._admitted, self.env.now, request))
            self._admitted += 1

    def _step(self) -> Step:
        running, failed = len(self._running), frozenset(self.active)
        slower = sum((costs(self.number, o.number, failed) - 1) * o.communication for o, costs in self.others)
        fullest = -(-running // self.job.ranks)
        return self.step_of(self.number, fullest, self._context / running, slower, failed)

    def _drawn(self, rng: np.random.Generator) -> float:
        """Return by what a step is longer: jitter, log-normal, and now and then a straggler that all wait for."""
        jitter, straggles = rng.normal(0.0, self.serving.jitter), rng.random() < self.serving.straggler_share
        return float(np.exp(jitter)) * (self.serving.straggler_slower if straggles else 1.0)

    def _note(self, step: Step, time_s: float) -> None:
        self.log.begin_s.append(self.env.now)
        self.log.time_s.append(time_s)
        self.log.running.append(len(self._running))
        self.log.waiting.append(len(self._queue))
        self.log.steps.append(step)

    def _leave(self) -> None:
        self._count += 1
        self._context += len(self._running)
        while self._running and self._running[0][0] <= self._count:
            _, _, started_s, request = heapq.heappop(self._running)
            self._context -= request.prompt + request.output
            self.log.served.append(Served(request.time_s, started_s, self.env.now))

    def close(self) -> None:
        """Note what is not finished."""
        self.log.served += [Served(request.time_s, begun_s, np.inf) for _, _, begun_s, request in self._running]
        self.log.served += [Served(request.time_s, np.inf, np.inf) for request in self._queue]
