"""The fluid engine in plain Python: oracle, documentation and engine for small problems.

Everything about time and bytes is generic over *number*: with ``float`` it is fast enough for a few thousand transfers,
with ``fractions.Fraction`` every answer is an exact rational. Imports nothing but the standard library.

A transfer waits for its predecessors, then for its latency, then its bytes flow over all links of its route at once.
Flowing transfers share links by max-min fairness: all rates rise together, and a transfer stops rising when it reaches
its cap or when one of its links is full. Rates change only when a flow starts or ends, so time jumps between events.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collsim.engine.problem import Problem

TIE = 1e-12
"""Ends closer than this part of a transfer's own duration count as one event (floats only)."""
TIE_NOW = 4 * 2.0**-52
"""The same for the clock itself: a few units in its last place."""
MOST_KNOWN = 1_000
"""Sets of flows whose rates are kept, in case that they come again."""
RESUM = 1e-3
"""A running sum that has shrunk to this part of its value is taken anew, before cancellation shows."""

EARLY = 1 / 16
"""From this part of the work on, as large a part of the transfers has to be over, less half of this for the start; else
the rest will not be in time."""
OF_EVENT = 4
"""Visits of a link by a flow that take as long as to go from one event to the next (measured)."""

Number = Any  # float or Fraction
Hops = Sequence[tuple[int, Number]]


class Trace(NamedTuple):
    """History of each transfer: times in seconds and bytes moved; None for what never happened."""

    ready_s: list[Number]
    start_s: list[Number]
    finish_s: list[Number]
    moved_bytes: list[Number]  # the integral of the rate, kept apart from the bytes that remain
    solves: int


class WorkLimitReached(Exception):  # noqa: N818  # not an error: the caller turns to the kernel
    """The problem is too large for plain Python."""


class Flow:
    """One flowing transfer: *left* bytes at time *since*, at *rate* until *finish*, which *soonest* is taken to be."""

    __slots__ = ("finish", "left", "rate", "since", "soonest")

    def __init__(self, left: Number, now: Number) -> None:
        self.rate: Number = 0
        self.left, self.since, self.finish, self.soonest = left, now, math.inf, math.inf

    def drain(self, now: Number) -> Number:
        """Advance to *now* and return the bytes moved."""
        moved = self.rate * (now - self.since)
        self.left, self.since = max(self.left - moved, 0), now
        return moved


def solve_reference(
    problem: Problem, number: Callable[[Any], Number] = float, *, work_limit: float = math.inf
) -> Trace:
    """Simulate *problem*, whose arrays the door has checked; a deadlock leaves None in ``finish_s``.

    Raises :class:`WorkLimitReached` after about *work_limit* visits of a link by a flow.
    """
    run = _Run(problem, number)
    while run.timers or run.flows:
        if run.advance():
            run.share()
        if run.work > EARLY * work_limit and run.ended < (run.work / work_limit - EARLY / 2) * len(run.finish):
            raise WorkLimitReached
    return Trace(run.ready, run.start, run.finish, run.moved, run.solves)


class _Run:
    """The state of one simulation."""

    def __init__(self, problem: Problem, number: Callable[[Any], Number]) -> None:
        n = len(problem.route)
        self.capacity, self.size, self.latency, weight, self.cap = (
            [x if x == math.inf else number(x) for x in array.tolist()]
            for array in (
                problem.capacity_Bps,
                problem.size_bytes,
                problem.latency_s,
                problem.route_weight,
                problem.cap_Bps,
            )
        )
        routes = _rows(problem.route_ptr, list(zip(problem.route_link.tolist(), weight, strict=True)))
        self.hops = [routes[route] for route in problem.route.tolist()]
        kinds: dict[tuple[int, Number], int] = {}
        alike = zip(problem.route.tolist(), self.cap, strict=True)
        self.kind = [kinds.setdefault(route_and_cap, len(kinds)) for route_and_cap in alike]
        self.known: dict[tuple[int, ...], tuple[list[Number], int]] = {}
        self.changed: list[int] = []  # flows that ended or began since rates were shared
        self.users: dict[int, dict[int, None]] = {}  # the flows on each link, once a few of them change at a time
        predecessors = _rows(problem.dep_ptr, problem.dep.tolist())
        self.waits = [len(row) for row in predecessors]
        self.successors: list[list[int]] = [[] for _ in range(n)]
        for i, row in enumerate(predecessors):
            for predecessor in row:
                self.successors[predecessor].append(i)
        self.tie: Number = TIE if number is float else 0  # an integer, which leaves a fraction a fraction
        self.tie_now: Number = TIE_NOW if number is float else 0
        self.ready: list[Number] = [None if waits else number(0) for waits in self.waits]
        self.start: list[Number] = [None] * n
        self.finish: list[Number] = [None] * n
        self.moved = [number(0)] * n
        self.flows: dict[int, Flow] = {}
        self.timers = [(self.latency[i], i) for i in range(n) if not self.waits[i]]  # latencies and local copies
        heapify(self.timers)
        self.solves = self.work = self.ended = 0
        self.now = number(0)

    def advance(self) -> bool:
        """Go to the next event and do all that is due then; return whether flows ended or began."""
        self.now = now = min([flow.finish for flow in self.flows.values()] + [time for time, _ in self.timers[:1]])
        until = now + self.tie_now * now
        ended = [i for i, flow in self.flows.items() if flow.soonest <= until]
        for i in ended:
            self.moved[i] += self.flows.pop(i).drain(now)
            self.changed.append(i)
            self.complete(i, now)
        flowing = len(self.flows)
        while self.timers and self.timers[0][0] <= until:  # what has no bytes or no latency adds to this same batch
            self.fire(heappop(self.timers)[1], now)
        return bool(ended) or len(self.flows) > flowing

    def fire(self, i: int, now: Number) -> None:
        """Begin transfer *i*, or end it if it is a local copy that has begun before."""
        began, self.start[i] = self.start[i] is not None, now if self.start[i] is None else self.start[i]
        if self.size[i] and self.hops[i]:
            self.flows[i] = Flow(self.size[i], now)
            self.changed.append(i)
        elif began or not self.size[i] or self.cap[i] == math.inf:
            self.moved[i] = self.size[i]
            self.complete(i, now)
        else:
            heappush(self.timers, (now + self.size[i] / self.cap[i], i))

    def complete(self, i: int, now: Number) -> None:
        """End transfer *i* and start the latency of those that waited for it alone."""
        self.finish[i] = now
        self.ended += 1
        for successor in self.successors[i]:
            self.waits[successor] -= 1
            if not self.waits[successor]:
                self.ready[successor] = now
                heappush(self.timers, (now + self.latency[successor], successor))

    def region(self) -> list[int]:
        """Return the flows that what ended or began can concern: those that links in common join to it, by kind.

        The rates of all others stay, so that a mesh with much under way is shared out piece by piece. Where most flows
        change at once, it is all of them.
        """
        kind, changed, self.changed = self.kind.__getitem__, self.changed, []
        if 2 * len(changed) >= len(self.flows):
            self.users.clear()
            return sorted(self.flows, key=kind)
        for i in changed if self.users else self.flows:
            for link, _ in self.hops[i]:
                if i in self.flows:
                    self.users.setdefault(link, {})[i] = None
                else:
                    self.users[link].pop(i, None)  # a route may cross a link twice
        links = list(dict.fromkeys(link for i in changed for link, _ in self.hops[i]))
        seen, found = set(links), dict[int, None]()
        for link in links:  # grows while flows are met
            for i in self.users.get(link, ()):
                if i not in found:
                    found[i] = None
                    fresh = [other for other, _ in self.hops[i] if other not in seen]
                    seen.update(fresh)
                    links += fresh
        return sorted(found, key=kind)

    def share(self) -> None:
        """Give every flow its fair rate from now on."""
        self.solves += 1
        region = self.region()
        same = tuple([self.kind[i] for i in region])
        if same not in self.known:  # steps of a ring put the same flows on the same links, again and again
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            rates, visits = fair_rates(region, self.hops, self.capacity, self.cap)
            self.known[same] = [rates[i] for i in region], OF_EVENT + visits + sum([len(self.hops[i]) for i in region])
        known_rates, work = self.known[same]
        self.work += work
        flows, moved, start, now, tie = self.flows, self.moved, self.start, self.now, self.tie
        for i, rate in zip(region, known_rates, strict=True):
            flow = flows[i]
            if rate != flow.rate:  # an unchanged rate leaves the flow alone, to the bit: equal ends stay equal
                moved[i] += flow.drain(now)
                flow.rate, flow.finish = rate, (finish := now + flow.left / rate)
                flow.soonest = finish - tie * (finish - start[i])


def fair_rates(
    flowing: Collection[int], hops: Sequence[Hops], capacity: Sequence[Number], cap: Sequence[Number]
) -> tuple[dict[int, Number], int]:
    """Max-min fair rates of the transfers *flowing*, and the work it took.

    Raise all rates together. At each level either caps or full links stop some transfers; these take their part of each
    link's capacity away for good, and the others rise on.
    """
    users, weights = _by_link(flowing, hops)
    left = {link: capacity[link] for link in users}
    load = {link: sum(on) for link, on in weights.items()}
    summed = dict(load)
    live = {link: len(on) for link, on in users.items()}
    share = {link: left[link] / load[link] for link in users}
    capped = sorted((i for i in flowing if cap[i] < math.inf), key=cap.__getitem__, reverse=True)
    rates: dict[int, Number] = {}
    rising, work = len(flowing), 0
    while share:
        level, stopped = _next_stop(share, users, capped, cap)
        frozen = [i for i in dict.fromkeys(stopped) if i not in rates]
        rates.update(dict.fromkeys(frozen, level))
        rising -= len(frozen)
        if not rising:  # nobody is left to share with
            return rates, work + len(stopped) + len(share)
        touched: dict[int, None] = {}
        for i in frozen:
            for link, weight in hops[i]:
                left[link] -= weight * level
                load[link] -= weight
                live[link] -= 1
                touched[link] = None
        for link in touched:
            if not live[link]:
                del share[link]
                continue
            if load[link] < RESUM * summed[link]:
                on = list(zip(users[link], weights[link], strict=True))
                load[link] = summed[link] = sum(weight for i, weight in on if i not in rates)
                left[link] = capacity[link] - sum(weight * rates[i] for i, weight in on if i in rates)
            share[link] = max(left[link] / load[link], level)  # shares only grow, whatever rounding says
        work += len(share) + len(stopped) + len(touched)
    return rates, work


def _by_link(flowing: Iterable[int], hops: Sequence[Hops]) -> tuple[dict[int, list[int]], dict[int, list[Number]]]:
    """Return the flows on each link, and their weights there."""
    users: dict[int, list[int]] = {}
    weights: dict[int, list[Number]] = {}
    for i in flowing:
        for link, weight in hops[i]:
            if link in users:
                users[link].append(i)
                weights[link].append(weight)
            else:
                users[link], weights[link] = [i], [weight]
    return users, weights


def _next_stop(
    share: Mapping[int, Number], users: Mapping[int, list[int]], capped: list[int], cap: Sequence[Number]
) -> tuple[Number, list[int]]:
    """Return the next level at which flows stop, and these, some of them maybe more than once.

    *capped* are flows with a cap, the least one last; those that stop at it are taken off.
    """
    level = min(share.values())
    if not capped or cap[capped[-1]] > level:
        return level, [i for link, value in share.items() if value == level for i in users[link]]
    level, stopped = cap[capped[-1]], []
    while capped and cap[capped[-1]] == level:
        stopped.append(capped.pop())
    return level, stopped


def _rows(ptr: Any, values: list[Any]) -> list[list[Any]]:
    """Split *values* into the rows of a CSR structure."""
    return [values[begin:end] for begin, end in itertools.pairwise(ptr.tolist())]
