"""Replay of a graph: kernels start as their streams, their hosts and what they wait for let them, and share the GPU.

A collective holds as many multiprocessors as it has channels, from its start, also while it waits for its peers. All
other kernels have the rest. While a kernel streams memory or uses tensor cores, loads of the channels take longer
to return; a collective is slowed as far as its channels then carry less than its links would (`Node.spare`). It does
not start while a kernel that was there before fills the GPU. Collectives that move bytes at once share links.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collsim.core.errors import DeadlockError, Fault
from collsim.core.progress import steps
from collsim.timeline.gpus import Gpu
from collsim.timeline.graph import Node
from collsim.timeline.trace import COLLECTIVE, MATMUL, MEMORY, STREAM

__all__ = ["HOST", "Replay", "compute_rate", "fair_shares", "pace", "replay"]

HOST = "host"
EPS = 1e-12
TOLD = 1000
"""Nodes after which it is told how far a replay is."""
LONGEST_WAVE = 1.0
"""A further wave lengthens a kernel by at most this share: one that is shorter than a wave consists of one."""


@dataclass(frozen=True, slots=True)
class Replay:
    """When each node ran.

    Attributes
    ----------
    start_s, end_s, moving_s : list of float
        For each node; *moving_s*: when a collective has all its peers.
    cause : list of int
        The node whose end let it start, of the host too; -1: nothing did.
    by_host : list of bool
        Whether it was the host's launch that it waited for last.
    """

    start_s: list[float]
    end_s: list[float]
    moving_s: list[float]
    cause: list[int]
    by_host: list[bool]

    @property
    def span_s(self) -> float:
        """From the first start to the last end."""
        shown = [i for i, begin_s in enumerate(self.start_s) if not math.isnan(begin_s)]
        if not shown:
            return 0.0
        return max(self.end_s[i] for i in shown) - min(self.start_s[i] for i in shown)


def pace(beside: str, gpu: Gpu, *, adds: bool) -> float:
    """Return how many times longer channels take for their bytes beside a kernel of a kind."""
    if beside == STREAM:
        return gpu.stream_slowdown
    if beside in (MATMUL, MEMORY):
        return gpu.add_slowdown if adds else gpu.copy_slowdown
    return 1.0


def compute_rate(held: float, gpu: Gpu) -> float:
    """Return the rate of kernels while collectives hold so many multiprocessors.

    >>> compute_rate(33, Gpu("one", "", 132))
    0.75
    """
    return max(1.0 - held / gpu.sms, 1.0 / gpu.sms)


def fair_shares(uses: Sequence[Mapping[str, float]]) -> list[float]:
    """Return max-min fair rates of collectives at once, each as a share of its rate alone.

    Each takes part of what the links of a kind carry for the library. Two that each fill them alone get half each.

    >>> fair_shares([{"nvsw": 1.0}, {"nvsw": 1.0}]), fair_shares([{"nvsw": 1.0}, {"leaf": 1.0}])
    ([0.5, 0.5], [1.0, 1.0])
    """
    shares, left, free = [1.0] * len(uses), set(range(len(uses))), dict.fromkeys((k for use in uses for k in use), 1.0)
    while left:
        load = {kind: sum(uses[i].get(kind, 0.0) for i in left) for kind in free}
        level = {kind: free[kind] / load[kind] for kind in free if load[kind] > 0}
        tightest = min(level, key=lambda kind: level[kind], default=None)
        if tightest is None or level[tightest] >= 1.0:
            break
        for i in [i for i in left if uses[i].get(tightest, 0.0) > 0]:
            shares[i] = level[tightest]
            left.discard(i)
            for kind, part in uses[i].items():
                free[kind] = max(free[kind] - shares[i] * part, 0.0)
    return shares


def replay(nodes: Sequence[Node], gpu: Gpu, *, speed: float = 1.0) -> Replay:
    """Replay a graph; collectives that move bytes at once share links of a kind, as far as each fills them alone.

    Parameters
    ----------
    nodes : sequence of Node
        In the order in which they were launched.
    speed : float
        Clock of the GPU, over that at which work was measured.

    Raises
    ------
    DeadlockError
        Nodes wait for each other.
    """
    run = _Run(nodes, gpu, speed)
    run.finish()
    return Replay(run.start_s, run.end_s, run.moving_s, run.cause, run.by_host)


@dataclass(slots=True)
class _Run:
    nodes: Sequence[Node]
    gpu: Gpu
    speed: float
    start_s: list[float] = field(init=False)
    end_s: list[float] = field(init=False)
    moving_s: list[float] = field(init=False)
    cause: list[int] = field(init=False)
    by_host: list[bool] = field(init=False)
    left: list[float] = field(init=False)
    waits: list[int] = field(init=False)
    then: list[list[int]] = field(init=False)
    ready_s: list[float] = field(init=False)
    timers: list[tuple[float, int, str]] = field(default_factory=list)
    computing: dict[int, None] = field(default_factory=dict)
    moving: dict[int, None] = field(default_factory=dict)
    holding: dict[int, None] = field(default_factory=dict)
    blocked: dict[int, set[int]] = field(default_factory=dict)
    waved: set[int] = field(default_factory=set)
    now: float = 0.0
    done: int = 0

    def __post_init__(self) -> None:
        n = len(self.nodes)
        self.start_s, self.end_s, self.moving_s = [math.nan] * n, [math.nan] * n, [math.nan] * n
        self.cause, self.by_host, self.ready_s = [-1] * n, [False] * n, [0.0] * n
        self.left = [node.work_s for node in self.nodes]
        before = [{*node.after, *([node.host] if node.host >= 0 else [])} for node in self.nodes]
        self.waits = [len(each) for each in before]
        self.then = [[] for _ in range(n)]
        for i, each in enumerate(before):
            for j in each:
                self.then[j].append(i)
        for i in range(n):
            if not self.waits[i]:
                self._ready(i)

    def finish(self) -> None:
        """Run until all is done."""
        for begin in steps(range(0, len(self.nodes), TOLD), "thousand kernels"):
            while self.done < min(begin + TOLD, len(self.nodes)):
                self._advance()

    def _advance(self) -> None:
        """Go on to when the next node starts, moves or ends."""
        rates = self._rates()
        ends = [(self.now + max(self.left[i], 0.0) / rate, i) for i, rate in rates]
        next_s = min((end for end, _ in ends), default=math.inf)
        if self.timers and self.timers[0][0] <= next_s:
            next_s = self.timers[0][0]
        if math.isinf(next_s):
            stuck = [node.name[:40] for node, end in zip(self.nodes, self.end_s, strict=True) if math.isnan(end)]
            raise DeadlockError(Fault(f"{len(stuck)} nodes never start, first {stuck[:3]}", "timeline"))
        step_s = next_s - self.now
        for i, rate in rates:
            self.left[i] -= rate * step_s
        self.now = next_s
        for end, i in ends:
            if end <= next_s + EPS:
                self._end(i)
        while self.timers and self.timers[0][0] <= self.now + EPS:
            _, i, what = heapq.heappop(self.timers)
            self._start(i) if what == "start" else self._move(i)

    def _rates(self) -> list[tuple[int, float]]:
        """Return the rate of each node that is under way."""
        held: dict[int, int] = {}
        for i in self.holding:
            held[self.nodes[i].gpu] = held.get(self.nodes[i].gpu, 0) + self.nodes[i].sms
        clock = {gpu: self.speed * compute_rate(sms, self.gpu) for gpu, sms in held.items()}
        nodes = self.nodes
        rates = [(i, 1.0 if nodes[i].kind == HOST else clock.get(nodes[i].gpu, self.speed)) for i in self.computing]
        if self.moving:
            rates += [(i, share * self._pace(i)) for i, share in self._shares()]
        return rates

    def _pace(self, i: int) -> float:
        """Return the rate of a collective beside what runs on its GPU, over that alone."""
        node = self.nodes[i]
        kinds = {self.nodes[j].kind for j in self.computing if self.nodes[j].gpu == node.gpu}
        slow = max((pace(kind, self.gpu, adds=node.adds) for kind in kinds), default=1.0)
        return min(1.0, node.spare / slow)

    def _shares(self) -> list[tuple[int, float]]:
        """Return the share of its links that each collective under way has."""
        if len(self.moving) == 1:
            return [(i, 1.0) for i in self.moving]
        found: list[tuple[int, float]] = []
        for gpu in {self.nodes[i].gpu for i in self.moving}:
            here = [i for i in self.moving if self.nodes[i].gpu == gpu]
            found += zip(here, fair_shares([{self.nodes[i].link: self.nodes[i].load} for i in here]), strict=True)
        return found

    def _ready(self, i: int, cause: int = -1) -> None:
        """All that node *i* waits for is done: it starts after its gap, and not before it is launched."""
        node = self.nodes[i]
        launched_s = node.earliest_s + (self.end_s[node.host] if node.host >= 0 else 0.0)
        at = max(self.now, launched_s) + node.gap_s
        self.by_host[i] = launched_s > self.now or cause < 0
        self.cause[i] = node.host if self.by_host[i] else cause
        self.ready_s[i] = max(self.now, launched_s)
        heapq.heappush(self.timers, (at, i, "start"))

    def _start(self, i: int) -> None:
        node = self.nodes[i]
        if node.kind == COLLECTIVE:
            fillers = {j for j in self.computing if self.nodes[j].full and self.nodes[j].gpu == node.gpu}
            if fillers:
                self.blocked[i] = fillers
                return
        self._begin(i)

    def _begin(self, i: int) -> None:
        node = self.nodes[i]
        self.start_s[i] = self.now
        if node.kind == COLLECTIVE:
            if node.sms:
                self.holding[i] = None
                for j in self.computing:
                    if self.nodes[j].gpu == node.gpu:
                        self._wave(j)
            heapq.heappush(self.timers, (max(self.now, self.ready_s[i] + node.late_s), i, "move"))
        else:
            self.moving_s[i] = self.now
            self.computing[i] = None
            if any(self.nodes[j].gpu == node.gpu for j in self.holding):
                self._wave(i)

    def _wave(self, i: int) -> None:
        """Add the wave that a kernel needs which finds multiprocessors held."""
        node = self.nodes[i]
        if node.full and node.kind == MATMUL and i not in self.waved:
            self.waved.add(i)
            self.left[i] += min(self.gpu.wave_s, LONGEST_WAVE * node.work_s)

    def _move(self, i: int) -> None:
        self.moving_s[i] = self.now
        self.moving[i] = None

    def _end(self, i: int) -> None:
        self.end_s[i] = self.now
        self.done += 1
        for group in (self.computing, self.moving, self.holding):
            group.pop(i, None)
        for j in [j for j, fillers in self.blocked.items() if i in fillers]:
            self.blocked[j].discard(i)
            if not self.blocked[j]:
                del self.blocked[j]
                self.cause[j], self.by_host[j] = i, False
                self._begin(j)
        for j in self.then[i]:
            self.waits[j] -= 1
            if not self.waits[j]:
                self._ready(j, i)
