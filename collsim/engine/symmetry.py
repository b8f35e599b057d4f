"""Classes of transfers that have to behave alike, and the smaller problem that has one transfer for each.

Partition transfers and links so that the members of a class of transfers have equal size, latency and cap, cross
equally many links of every class of links and wait for the same classes, and the members of a class of links have
equal capacity and carry equally much of every class of transfers. Then all members of a class have the same times, and
one transfer for each class, over one link for each class of links, has them too: it takes of a link what all members
take of one of its links. By induction over events: fair shares are unique, equal links fill at once, and equal
transfers stop, end and begin together. Imports only NumPy and, inside the call that needs it, Numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.engine.problem import Floats, Ints, Problem

__all__ = ["WORTH", "Hops", "Quotient", "alike_hops", "codes_of", "firsts", "numbers", "quotient_of", "reduced"]

WORTH = 4
"""With more classes than one for so many transfers, the problem is solved as it is: refining costs as much as it
saves."""

KEPT_ROUNDS = 5
"""What so many rounds tell apart is kept where it is asked for: callers try no more."""
AT_ONCE = 1 << 18
"""So many numbers are turned to codes in one go, so that what is needed for it stays small."""
SMALL_TABLE = 1 << 15
"""So many colours are numbered in a table that stays in the cache of the processor."""

_SAME = 1e-9  # how closely the links of a class have to carry the same bytes

Codes = NDArray[np.uint64]
Numbers = Ints | NDArray[np.int32]


class Quotient(NamedTuple):
    """A problem with one transfer for each class."""

    problem: Problem
    ids: Ints
    """int64[n], the class of each transfer of the whole."""
    n_link_classes: int


def reduced(p: Problem, *, most: int | None = None) -> Quotient | None:
    """Return the quotient of a checked problem; None with more than *most* classes, or if transfers wait in a circle.

    *most* is by default one class for ``WORTH`` transfers.
    """
    from collsim.engine.refinement import UNSEEN, refine, topological

    n, n_links, n_routes = len(p.route), len(p.capacity_Bps), len(p.route_ptr) - 1
    most = n // WORTH if most is None else most
    order, stack = np.empty(n, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    if topological(p.dep_ptr, p.dep, np.full(n, UNSEEN, dtype=np.int64), stack, order) < n:
        return None
    room = 1 << max(2 * max(most, n_links, 1) - 1, 1).bit_length()
    ids, link_ids = np.empty(n, dtype=np.int32), np.empty(n_links, dtype=np.int32)
    found = refine(
        *(p.route_ptr, p.route_link, codes_of(p.route_weight) | np.uint64(1), p.route),
        *(codes_of(p.size_bytes, p.latency_s, p.cap_Bps), p.dep_ptr, p.dep, order),
        *(np.empty(n, dtype=np.uint64), codes_of(p.capacity_Bps)),
        *(np.empty(n_routes, dtype=np.uint64), np.empty(n_links, dtype=np.uint64)),
        *(np.empty(room, dtype=np.uint64), np.empty(room, dtype=np.int32), ids, link_ids, most),
    )
    return None if found < 0 else quotient_of(p, ids, link_ids)


def quotient_of(p: Problem, ids: Numbers, link_ids: Numbers) -> Quotient | None:
    """Return the quotient by classes of transfers and links, which are numbered by their first members; None if members
    of a class differ in what is quick to compare.
    """
    if not _are_alike(p, ids, link_ids):
        return None
    return Quotient(_quotient(p, ids, link_ids), ids.astype(np.int64), int(link_ids.max(initial=-1)) + 1)


def codes_of(*columns: NDArray[Any]) -> Codes:
    """Return uint64[n], a hash of each row of *columns* of numbers; 0.0 and -0.0 are the same."""
    from collsim.engine.refinement import hashed

    codes = np.zeros(len(columns[0]), dtype=np.uint64)
    for values in columns:
        for begin in range(0, len(values), AT_ONCE):
            part = values[begin : begin + AT_ONCE]
            plain = part + 0.0 if part.dtype.kind == "f" else part.astype(np.uint64)
            hashed(plain.view(np.uint64), codes[begin : begin + AT_ONCE])
    return codes


def _are_alike(p: Problem, ids: Numbers, link_ids: Numbers) -> bool:
    """Return True if members of a class agree in all that is quick to compare: colours could be equal by accident."""
    first, first_link = firsts(ids)[ids], firsts(link_ids)[link_ids]
    hops, deps = np.diff(p.route_ptr)[p.route], np.diff(p.dep_ptr)
    sent = np.bincount(p.route, weights=p.size_bytes, minlength=len(p.route_ptr) - 1)
    over = np.repeat(sent, np.diff(p.route_ptr)) * p.route_weight
    load = np.bincount(p.route_link, weights=over, minlength=len(p.capacity_Bps))
    values = (p.size_bytes, p.latency_s, p.cap_Bps, hops, deps)
    return (
        all(np.array_equal(value, value[first]) for value in values)
        and np.array_equal(p.capacity_Bps, p.capacity_Bps[first_link])
        and bool(np.all(np.abs(load - load[first_link]) <= _SAME * load))
    )


def _quotient(p: Problem, ids: Numbers, link_ids: Numbers) -> Problem:
    """Return the problem of the first members; counting crossings from both sides gives what a class takes of a link.

    The T transfers of a class that take w each of links of a class of L links take T w / L of every one of these.
    """
    first, sizes = firsts(ids), np.bincount(ids)
    hop_ptr, hop = _rows(p.route_ptr, p.route[first])
    dep_ptr, dep = _rows(p.dep_ptr, first)
    link = link_ids[p.route_link[hop]].astype(np.int64)
    members = np.repeat(sizes, np.diff(hop_ptr))
    return Problem(
        capacity_Bps=p.capacity_Bps[firsts(link_ids)],
        route_ptr=hop_ptr,
        route_link=link,
        route_weight=members * p.route_weight[hop] / np.bincount(link_ids)[link],
        route=np.arange(len(first)),
        size_bytes=p.size_bytes[first],
        latency_s=p.latency_s[first],
        cap_Bps=p.cap_Bps[first],
        dep_ptr=dep_ptr,
        dep=ids[p.dep[dep]].astype(np.int64),
    )


def _rows(ptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the pointers of a CSR structure with these *rows* of another, and the places of their entries there."""
    lengths = np.diff(ptr)[rows]
    taken = np.concatenate(([0], np.cumsum(lengths)))
    return taken, np.repeat(ptr[rows] - taken[:-1], lengths) + np.arange(taken[-1])


class Hops(NamedTuple):
    """Hops of pipelines over weighted links, in CSR as of `Problem`."""

    route_ptr: Ints
    route_link: Ints
    route_weight: Floats
    route: Ints
    own: Codes
    """uint64[n], of `codes_of`: what else tells hops apart."""
    wait_ptr: Ints
    wait: NDArray[np.int32]
    lag: NDArray[np.int32]
    """int32: how many chunks earlier the hop is that one waits for."""
    link: tuple[Floats, ...]
    """float64[n_links] each: what tells links apart."""


def alike_hops(
    hops: Hops, rounds: int | None = None, most: int | None = None, kept: dict[int, tuple[Codes, Codes]] | None = None
) -> tuple[Ints, Ints]:
    """Return int64[n] and int64[n_links]: the class of each hop and link, numbered by their first members.

    Members of a class have to behave alike chunk by chunk, by the same induction as transfers. With *rounds*, they are
    only told apart by what is so many waits or shared links away. Beyond *most* classes of hops, which are then too
    many to be of use, they are told apart no further. What is *kept*, by its keys, is what so many rounds tell apart,
    so that these need not be gone through again.
    """
    from collsim.engine.refinement import refine_lagged

    kept = {} if kept is None else kept
    if not kept:
        kept[0] = hops.own, codes_of(*hops.link)
    done = max(each for each in kept if rounds is None or each <= rounds)
    colour, link_colour = (column.copy() for column in kept[done])
    route_sum, link_sum = np.empty(len(hops.route_ptr) - 1, dtype=np.uint64), np.empty_like(link_colour)
    weight = codes_of(hops.route_weight)
    weight |= np.uint64(1)
    found = 0
    while rounds is None or done < rounds:
        refine_lagged(
            hops.route_ptr, hops.route_link, weight, hops.route, hops.own, hops.wait_ptr, hops.wait, hops.lag, colour,
            colour.copy(), link_colour, route_sum, link_sum,
        )  # fmt: skip
        done += 1
        of_hops = few_numbers(colour, len(colour) if most is None else most) if rounds is None else None
        if done < KEPT_ROUNDS or (rounds is None and of_hops is None):
            kept[done] = colour.copy(), link_colour.copy()
        if rounds is None:
            if of_hops is None or (now := of_hops[1] + numbers(link_colour)[1]) == found:
                break
            found = now
    return numbers(colour)[0], numbers(link_colour)[0]


def numbers(colours: Codes) -> tuple[Ints, int]:
    """Return int64[n], a number for each of *colours* by first appearance, and how many there are."""
    found = few_numbers(colours, min(SMALL_TABLE, len(colours))) or few_numbers(colours, len(colours))
    assert found is not None
    return found


def few_numbers(colours: Codes, most: int) -> tuple[Ints, int] | None:
    """Return the same; None if there are more than *most*."""
    from collsim.engine.refinement import numbered

    room = 1 << max(2 * max(most, 1) - 1, 1).bit_length()
    ids = np.empty(len(colours), dtype=np.int32)
    found = numbered(colours, np.empty(room, dtype=np.uint64), np.empty(room, dtype=np.int32), ids, most)
    return None if found < 0 else (ids.astype(np.int64), int(found))


def firsts(ids: Numbers) -> Ints:
    """Return the first member of each class, of classes that are numbered by these."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(ids), prepend=-1))
