"""The problem that engines take and the solution they return, with the checks before and after a run.

Imports only NumPy. ``checked`` makes the arrays uniform, so that the compiled engine meets one set of types;
``check_conservation`` states the laws that every solution has to obey, whichever engine found it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SLACK = 1e-9  # relative; the accuracy that the engines promise
_CLOCK = 16 * 2.0**-52  # relative to the clock: what one difference of two times can lose to rounding
_ROUNDING = 1e-12  # relative; no reason to put anything off
_SHOWN = 5  # faults of one kind in one array that are spelled out
_BLOCK = 1 << 16  # transfers that are checked in one go


class EngineInputError(ValueError):
    """Arrays that describe no problem; *faults* names every array, index and value that is wrong."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(faults))


class EngineDeadlock(RuntimeError):  # noqa: N818  # what it is, not which layer noticed
    """Transfers that wait for each other for ever: all *transfers* left over, and one *cycle* among them."""

    def __init__(self, transfers: list[int], cycle: list[int]) -> None:
        self.transfers, self.cycle = transfers, cycle
        shown = " waits for ".join(str(i) for i in [*cycle[:_SHOWN], *(["..."] if len(cycle) > _SHOWN else cycle[:1])])
        super().__init__(f"{len(transfers)} transfers never start: {shown}")


class Problem(NamedTuple):
    """Transfers over weighted links; ragged arrays are CSR (row *i* is ``x[ptr[i]:ptr[i + 1]]``)."""

    capacity_Bps: Floats
    """float64[n_links], > 0 for every link that a route uses."""
    route_ptr: Ints
    """int64[n_routes + 1]; transfers share routes."""
    route_link: Ints
    """int64[nnz], the links of each route; an empty route is a local copy."""
    route_weight: Floats
    """float64[nnz], > 0: what a transfer takes of that link per byte per second. A fraction where packets are sprayed,
    a multiplicity where one transfer stands for many."""
    route: Ints
    """int64[n], the route of each transfer."""
    size_bytes: Floats
    """float64[n], >= 0."""
    latency_s: Floats
    """float64[n], >= 0: waited after the last predecessor and before bytes flow."""
    cap_Bps: Floats
    """float64[n], > 0: the most a transfer can do alone; infinity for no limit."""
    dep_ptr: Ints
    """int64[n + 1]."""
    dep: Ints
    """int64[m], the predecessors of each transfer."""


class Solution(NamedTuple):
    """When each transfer happened."""

    ready_s: Floats
    """float64[n], the last predecessor is complete (0 without predecessors)."""
    start_s: Floats
    """float64[n], bytes begin to flow: ready + latency."""
    finish_s: Floats
    """float64[n]."""
    solver: str
    """Engine that did it: ``reference`` or ``kernel``; ``tolerance``: the kernel within one."""
    solves: int
    """Number of times that rates were shared out anew."""
    moved_bytes: Floats
    """float64[n], the integral of the rate over time; equals the size up to rounding, or to the tolerance."""
    simulated: int = 0
    """Number of transfers, or of classes of them, that the engine was given."""
    tolerance: float = 0.0
    """Most that an end was moved so that transfers end together, as a part of the time that each takes; 0: exact."""
    perturbed: float = 0.0
    """Bytes moved too many and too few by doing so, over all bytes."""
    raised_s: float = 0.0
    """By how much the last ends were put off, because bytes cannot cross the links sooner."""
    classes: bool = False
    """Whether the engine was given one transfer for each class of those that behave alike."""

    @property
    def path(self) -> str:
        """Rows that were simulated, and the engine that did it: "transfers, reference", "classes, kernel" and so on."""
        return f"{'classes' if self.classes else 'transfers'}, {self.solver}"


def checked(problem: Problem) -> Problem:
    """Return *problem* as contiguous, read-only float64 and int64 arrays, links merged where a route names one twice.

    Raises :class:`EngineInputError` with every fault found.
    """
    faults: list[str] = []
    p = Problem(*(_coerced(name, array, faults) for name, array in zip(Problem._fields, problem, strict=True)))
    if faults:
        raise EngineInputError(faults)
    n, n_links = len(p.route), len(p.capacity_Bps)
    _csr_faults("route_ptr", p.route_ptr, "route_link", p.route_link, faults)
    _csr_faults("dep_ptr", p.dep_ptr, "dep", p.dep, faults)
    lengths = [("route_weight", "route_link", len(p.route_link)), ("dep_ptr", "route", n + 1)]
    lengths += [(name, "route", n) for name in ("size_bytes", "latency_s", "cap_Bps")]
    for name, other, length in lengths:
        if len(getattr(p, name)) != length:
            faults.append(f"{name} has {len(getattr(p, name))} entries, {other} asks for {length}")
    _range_faults("route_link", p.route_link, n_links, "link", faults)
    _range_faults("route", p.route, max(len(p.route_ptr) - 1, 0), "route", faults)
    _range_faults("dep", p.dep, n, "transfer", faults)
    _value_faults("capacity_Bps", p.capacity_Bps, p.capacity_Bps >= 0, "finite and >= 0", faults)
    _value_faults("route_weight", p.route_weight, p.route_weight > 0, "finite and > 0", faults)
    _value_faults("size_bytes", p.size_bytes, p.size_bytes >= 0, "finite and >= 0", faults)
    _value_faults("latency_s", p.latency_s, p.latency_s >= 0, "finite and >= 0", faults)
    _faults_at("cap_Bps", p.cap_Bps, np.flatnonzero(~(p.cap_Bps > 0)), "> 0 (infinity for no cap)", faults)
    used = np.zeros(n_links, dtype=bool)
    used[p.route_link[(p.route_link >= 0) & (p.route_link < n_links)]] = True
    _faults_at(
        "capacity_Bps", p.capacity_Bps, np.flatnonzero(used & (p.capacity_Bps == 0)), "> 0 on a used link", faults
    )
    if faults:
        raise EngineInputError(faults)
    return Problem(*(_read_only(array) for array in _merged(p)))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to: one kind of array, for which kernels are compiled once."""
    view = array.view()
    view.setflags(write=False)
    return view


def _coerced(name: str, array: Any, faults: list[str]) -> NDArray[Any]:
    """*array* as a contiguous vector of the type that field *name* has."""
    is_float = name.endswith(("_Bps", "_bytes", "_s", "_weight"))
    given = np.asarray(array)
    if given.size == 0:
        given = given.astype(np.float64 if is_float else np.int64)
    if given.ndim != 1:
        faults.append(f"{name} has {given.ndim} dimensions, expected 1")
    if given.dtype.kind not in ("iuf" if is_float else "iu"):
        faults.append(f"{name} has dtype {given.dtype}, expected {'float64' if is_float else 'int64'}")
        return np.zeros(0, dtype=np.float64 if is_float else np.int64)
    return np.ascontiguousarray(given, dtype=np.float64 if is_float else np.int64)


def _csr_faults(ptr_name: str, ptr: Ints, name: str, values: NDArray[Any], faults: list[str]) -> None:
    if len(ptr) == 0:
        faults.append(f"{ptr_name} is empty, expected at least one entry")
        return
    if ptr[0] != 0:
        faults.append(f"{ptr_name}[0] = {ptr[0]}: must be 0")
    if ptr[-1] != len(values):
        faults.append(f"{ptr_name}[{len(ptr) - 1}] = {ptr[-1]}: must be {len(values)}, the length of {name}")
    _faults_at(ptr_name, ptr, np.flatnonzero(np.diff(ptr) < 0) + 1, "not less than the entry before", faults)


def _range_faults(name: str, ids: Ints, count: int, noun: str, faults: list[str]) -> None:
    _faults_at(name, ids, np.flatnonzero((ids < 0) | (ids >= count)), f"one of the {count} {noun} ids", faults)


def _value_faults(name: str, values: Floats, valid: NDArray[np.bool_], rule: str, faults: list[str]) -> None:
    _faults_at(name, values, np.flatnonzero(~(valid & np.isfinite(values))), rule, faults)


def _faults_at(name: str, values: NDArray[Any], where: NDArray[np.intp], rule: str, faults: list[str]) -> None:
    """One message per entry, up to a few, then how many more."""
    faults += [f"{name}[{i}] = {values[i]}: must be {rule}" for i in where[:_SHOWN]]
    if len(where) > _SHOWN:
        faults.append(f"{name}: {len(where) - _SHOWN} more entries must be {rule}")


def _merged(p: Problem) -> Problem:
    """Replace links that one route crosses more than once by one entry with the summed weight."""
    hops = np.diff(p.route_ptr)
    owner = np.repeat(np.arange(len(hops)), hops)
    key = owner * len(p.capacity_Bps) + p.route_link
    longest = int(hops.max(initial=0))
    if longest <= 8:  # compare neighbours: several times cheaper than sorting, and nearly all routes are short
        twice = any(bool(np.any(key[:-step] == key[step:])) for step in range(1, longest))
    elif np.all(key[1:] > key[:-1]):
        twice = False
    else:
        ordered = np.sort(key)
        twice = bool(np.any(ordered[:-1] == ordered[1:]))
    if not twice:
        return p
    unique, inverse = np.unique(key, return_inverse=True)
    owner, link = np.divmod(unique, len(p.capacity_Bps))
    ptr = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(hops))))).astype(np.int64)
    weight: Floats = np.bincount(inverse.ravel(), weights=p.route_weight).astype(np.float64)
    return p._replace(route_ptr=ptr, route_link=np.ascontiguousarray(link), route_weight=weight)


def perturbed_share(size_bytes: Floats, moved_bytes: Floats) -> float:
    """Return the bytes moved too many and too few, over all bytes."""
    total = float(size_bytes.sum())
    return float(np.abs(moved_bytes - size_bytes).sum()) / total if total else 0.0


def least_time_s(p: Problem) -> float:
    """Return a time before which the last bytes of a checked problem cannot have been moved.

    Each link has to carry its bytes once the first latency of its transfers is over, and each transfer its own bytes
    at its cap or over its narrowest link.

    >>> import numpy as np
    >>> two = Problem(*map(np.array, ([4.0], [0, 1], [0], [1.0], [0, 0], [8.0, 2.0], [1.0, 0.5], [np.inf, 1.0])),
    ...     dep_ptr=np.zeros(3, dtype=int), dep=np.zeros(0, dtype=int))
    >>> least_time_s(two)
    3.0
    """
    flows = p.size_bytes > 0
    n_routes, n_links = len(p.route_ptr) - 1, len(p.capacity_Bps)
    first_s, begin_s = np.full(n_routes, np.inf), np.full(n_links, np.inf)
    np.minimum.at(first_s, p.route[flows], p.latency_s[flows])
    np.minimum.at(begin_s, p.route_link, np.repeat(first_s, np.diff(p.route_ptr)))
    used = np.isfinite(begin_s)
    links_s = begin_s[used] + link_bytes(p, p.size_bytes)[used] / p.capacity_Bps[used]
    alone_s = p.latency_s[flows] + p.size_bytes[flows] / top_rates(p)[flows]
    return max(float(links_s.max(initial=0.0)), float(alone_s.max(initial=0.0)))


def not_too_soon(p: Problem, found: Solution) -> Solution:
    """Return a solution whose last bytes are moved no sooner than links allow; what waits for them waits on.

    With a tolerance they may be: bytes cancel in a group of transfers, not on every link.
    """
    ready_s, start_s, finish_s = found.ready_s, found.start_s, found.finish_s
    flows = p.size_bytes > 0
    end_s, least_s = float(finish_s[flows].max(initial=0.0)), least_time_s(p)
    if end_s >= least_s * (1 - _ROUNDING):
        return found
    finish_s = np.where(flows & (finish_s == end_s), least_s, finish_s)
    while np.any(later := (after_s := _last_predecessor_s(p, finish_s)) > ready_s):  # they move no bytes over links
        start_s, finish_s = (times + np.where(later, after_s - ready_s, 0.0) for times in (start_s, finish_s))
        ready_s = np.where(later, after_s, ready_s)
    return found._replace(
        ready_s=ready_s, start_s=start_s, finish_s=finish_s, raised_s=found.raised_s + least_s - end_s
    )


def link_bytes(p: Problem, moved_bytes: Floats) -> Floats:
    """Return float64[n_links], what all transfers together take of each link."""
    n_routes = len(p.route_ptr) - 1
    sent = np.bincount(p.route, weights=moved_bytes, minlength=n_routes)
    taken = np.repeat(sent.astype(np.float64, copy=False), np.diff(p.route_ptr))
    taken *= p.route_weight
    return np.bincount(p.route_link, weights=taken, minlength=len(p.capacity_Bps)).astype(np.float64)


def check_conservation(problem: Problem, solution: Solution) -> list[str]:
    """Return the laws of the model that *solution* breaks, one text each: an empty list for a sound solution.

    Each time follows from the ones before it, every byte was moved, no link carried more than capacity times time,
    and no transfer was faster than its cap and its links allow. With a tolerance, bytes differ from the size by no more
    than what is moved in the window of the end, as much in all as the solution says, and the last end is none too soon.

    >>> import numpy as np
    >>> one = Problem(*(np.array(x) for x in ([4.0], [0, 1], [0], [1.0], [0], [8.0], [1.0], [np.inf], [0, 0], [])))
    >>> times = [np.array([x]) for x in (0.0, 1.0, 2.5)]
    >>> check_conservation(one, Solution(*times, "reference", 1, np.array([8.0])))
    ['transfer 0 took 1.5 s, at least 2 s are needed', 'link 0 carried 8 bytes in 1.5 s, it holds 6']
    """
    p = checked(problem)
    if not all(np.all(np.isfinite(times)) for times in _times(solution)):
        return ["times or moved bytes are not finite"]
    narrowest_Bps, n, broken = _narrowest_Bps(p), len(p.route), list[str]()
    for begin in range(0, n, _BLOCK):
        if broken := _broken_transfers(p, solution, narrowest_Bps, begin, min(begin + _BLOCK, n)):
            break
    broken += _overfull_links(p, solution)
    return broken + _broken_tolerance(p, solution) if solution.tolerance else broken


def _times(solution: Solution) -> tuple[Floats, Floats, Floats, Floats]:
    return solution.ready_s, solution.start_s, solution.finish_s, solution.moved_bytes


def _broken_transfers(p: Problem, solution: Solution, narrowest_Bps: Floats, begin: int, end: int) -> list[str]:
    """Return which laws some of the transfers break; *narrowest_Bps* is that of every route."""
    ready, start, finish, moved = (column[begin:end] for column in _times(solution))
    size_bytes, latency_s = p.size_bytes[begin:end], p.latency_s[begin:end]
    clock, eps, took_s = _CLOCK * finish, solution.tolerance, finish - start
    top_Bps = np.minimum(p.cap_Bps[begin:end], narrowest_Bps[p.route[begin:end]])
    least_s = np.divide(moved if eps else size_bytes, top_Bps, out=np.zeros_like(top_Bps), where=size_bytes > 0)
    window_s = clock + eps / (1 - eps) * took_s
    slack_bytes = _SLACK * size_bytes + np.where(np.isfinite(top_Bps), top_Bps, 0) * window_s
    late = np.abs(start - ready - latency_s) > (_SLACK + eps) * latency_s + clock
    laws: tuple[tuple[NDArray[np.bool_], Callable[[int], str]], ...] = (
        (ready < 0, lambda i: f"is ready before time 0, at {ready[i]:g} s"),
        (
            ready != _last_predecessor_s(p, solution.finish_s, begin, end),
            lambda i: f"is ready at {ready[i]:g} s, not when its predecessors end",
        ),
        (late | (start < ready), lambda i: f"is ready at {ready[i]:g} s but starts at {start[i]:g} s"),
        (finish < start, lambda i: f"starts at {start[i]:g} s and ends before, at {finish[i]:g} s"),
        (
            took_s < least_s * (1 - _SLACK) - clock,
            lambda i: f"took {took_s[i]:g} s, at least {least_s[i]:g} s are needed",
        ),
        (np.abs(moved - size_bytes) > slack_bytes, lambda i: f"moved {moved[i]:g} bytes of {size_bytes[i]:g}"),
    )
    return [f"transfer {begin + i} {text(i)}" for fails, text in laws for i in np.flatnonzero(fails)[:_SHOWN]]


def _broken_tolerance(p: Problem, solution: Solution) -> list[str]:
    """Return the faults of a whole solution with a tolerance: bytes perturbed other than told, or an end too soon."""
    broken, end_s = [], float(solution.finish_s[p.size_bytes > 0].max(initial=0.0))
    least_s = least_time_s(p)
    perturbed = perturbed_share(p.size_bytes, solution.moved_bytes)
    if abs(perturbed - solution.perturbed) > _SLACK:
        broken.append(f"{perturbed:g} of all bytes were moved too much or too little, {solution.perturbed:g} are told")
    if end_s < least_s * (1 - _SLACK):
        broken.append(f"the last bytes are moved by {end_s:g} s, at least {least_s:g} s are needed")
    return broken


def top_rates(p: Problem) -> Floats:
    """Return the rate that each transfer reaches alone: its cap or its narrowest link."""
    return np.minimum(p.cap_Bps, _narrowest_Bps(p)[p.route])


def _narrowest_Bps(p: Problem) -> Floats:
    """Return float64[n_routes]: what each route carries alone; infinity for an empty one."""
    least = np.full(len(p.route_ptr) - 1, np.inf)
    filled = np.flatnonzero(np.diff(p.route_ptr))
    if len(filled):
        rates_Bps = p.capacity_Bps[p.route_link]
        rates_Bps /= p.route_weight
        least[filled] = np.minimum.reduceat(rates_Bps, p.route_ptr[filled])
    return least


def _last_predecessor_s(p: Problem, finish_s: Floats, begin: int = 0, end: int | None = None) -> Floats:
    """Return when the last predecessor ends of all transfers, or of those from *begin* to *end*; 0 without any."""
    end = len(p.route) if end is None else end
    ptr = p.dep_ptr[begin : end + 1]
    last = np.zeros(end - begin)
    dependent = np.flatnonzero(np.diff(ptr))
    if len(dependent):
        last[dependent] = np.maximum.reduceat(finish_s[p.dep[ptr[0] : ptr[-1]]], ptr[dependent] - ptr[0])
    return last


def _overfull_links(p: Problem, solution: Solution) -> list[str]:
    """Links that carried more than their capacity times the span between their first and last byte."""
    n_routes, n_links = len(p.route_ptr) - 1, len(p.capacity_Bps)
    flows, hops = p.size_bytes > 0, np.diff(p.route_ptr)
    carried = link_bytes(p, solution.moved_bytes if solution.tolerance else p.size_bytes)
    first, begin = np.full(n_routes, np.inf), np.full(n_links, np.inf)
    np.minimum.at(first, p.route, np.where(flows, solution.start_s, np.inf))
    np.minimum.at(begin, p.route_link, np.repeat(first, hops))
    last, end = np.zeros(n_routes), np.zeros(n_links)
    np.maximum.at(last, p.route, np.where(flows, solution.finish_s, 0.0))
    np.maximum.at(end, p.route_link, np.repeat(last, hops))
    span_s = np.where(carried > 0, end - begin, 0)
    holds = p.capacity_Bps * span_s
    full = np.flatnonzero(carried > holds * (1 + _SLACK) + p.capacity_Bps * _CLOCK * end)
    return [f"link {i} carried {carried[i]:g} bytes in {span_s[i]:g} s, it holds {holds[i]:g}" for i in full[:_SHOWN]]
