"""Colour refinement of transfers and links, compiled: which of them have to behave alike.

Every colour is a 64-bit hash. A transfer's covers its size, latency, cap, the colours of its links and those of its
predecessors; a link's covers its capacity and the colours of the transfers over it. Sums do not care about order, so
equals get equal sums. Transfers are walked so that predecessors come first: one pass carries a colour along a whole
chain. Passes repeat until they tell no more transfers or links apart.

Every numba function of the refinement is in this file, because numba's cache watches one file at a time.
Imports NumPy, Numba.
"""

from __future__ import annotations

import numpy as np

from collsim.engine.decorators import compilers

# As in the other files of kernels: the cache of numba watches no other file (a test compares them)
OPTIONS = {"error_model": "numpy", "nogil": True, "no_rewrites": True, "_nrt": False}
_part, _entry = compilers(OPTIONS)

u8 = np.uint64

UNSEEN, DONE = -1, -2  # values of `at` for a transfer that was not looked at, and for one that is in order


@_part
def _mixed(x):
    """Return *x* with every bit moved by every other: the end of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u8(27))) * u8(0x94D049BB133111EB)
    return x ^ (x >> u8(31))


@_entry
def hashed(bits, codes):
    """Mix *bits* into *codes*, one by one. Sums alone would do worse: 2.0 and 1.0 have the bits of 0.0 and infinity."""
    for i in range(len(bits)):
        codes[i] = _mixed(codes[i] + bits[i] + u8(0x9E3779B97F4A7C15))


@_entry
def topological(dep_ptr, dep, at, stack, order):
    """Fill *order* with transfers, predecessors first; return how many there are before a cycle is met."""
    placed = 0
    for root in range(len(dep_ptr) - 1):
        if at[root] != UNSEEN:
            continue
        depth = 0
        stack[0] = root
        at[root] = dep_ptr[root]
        while depth >= 0:
            i = stack[depth]
            if at[i] < dep_ptr[i + 1]:
                before = dep[at[i]]
                at[i] += 1
                if at[before] == UNSEEN:
                    depth += 1
                    stack[depth] = before
                    at[before] = dep_ptr[before]
                elif at[before] != DONE:
                    return placed
            else:
                at[i] = DONE
                order[placed] = i
                placed += 1
                depth -= 1
    return placed


@_part
def _numbered(colours, keys, values, ids, most):
    """Fill *ids* with numbers of *colours*, by first appearance; return how many differ, or -1 if over *most*."""
    mask = len(keys) - 1
    values[:] = -1
    found = 0
    for i in range(len(colours)):
        at = np.int64(colours[i] & u8(mask))
        while values[at] >= 0 and keys[at] != colours[i]:
            at = (at + 1) & mask
        if values[at] < 0:
            if found == most:
                return -1
            keys[at] = colours[i]
            values[at] = found
            found += 1
        ids[i] = values[at]
    return found


@_part
def _colour_transfers(route_ptr, route_link, weight, route, own, dep_ptr, dep, order, colour, link_colour, route_sum):
    for r in range(len(route_ptr) - 1):
        total = u8(0)
        for h in range(route_ptr[r], route_ptr[r + 1]):
            total += _mixed(link_colour[route_link[h]]) * weight[h]
        route_sum[r] = _mixed(total + u8(1))
    for k in range(len(order)):
        i = order[k]
        total = u8(0)
        for j in range(dep_ptr[i], dep_ptr[i + 1]):
            total += _mixed(colour[dep[j]])
        colour[i] = _mixed(own[i] + _mixed(route_sum[route[i]] + _mixed(total + u8(2))))


@_part
def _colour_links(route_ptr, route_link, weight, route, colour, link_colour, route_sum, link_sum):
    route_sum[:] = u8(0)
    link_sum[:] = u8(0)
    for i in range(len(route)):
        route_sum[route[i]] += _mixed(colour[i] + u8(3))
    for r in range(len(route_ptr) - 1):
        for h in range(route_ptr[r], route_ptr[r + 1]):
            link_sum[route_link[h]] += route_sum[r] * weight[h]
    for link in range(len(link_colour)):  # its colour so far goes in, so that what was told apart stays so
        link_colour[link] = _mixed(link_colour[link] + _mixed(link_sum[link] + u8(4)))


@_entry
def numbered(colours, keys, values, ids, most):
    """Fill *ids*, int32[n], with numbers of *colours*; return how many differ, or -1 if more than *most* do."""
    return _numbered(colours, keys, values, ids, most)


@_entry
def refine(
    route_ptr, route_link, weight, route, own, dep_ptr, dep, order, colour, link_colour, route_sum, link_sum,
    keys, values, ids, link_ids, most,
):  # fmt: skip
    """Refine until nothing more is told apart; return the number of classes of transfers, or -1 if over *most*.

    Parameters
    ----------
    route_ptr, route_link, route, dep_ptr, dep : int64
        As in ``Problem``.
    weight : uint64[nnz]
        Odd codes of the weights.
    own : uint64[n]
        Codes of size, latency and cap.
    order : int64[n]
        Transfers, predecessors first.
    colour : uint64[n]
        Room for the colours of transfers.
    link_colour : uint64[n_links]
        Codes of the capacities; changed.
    route_sum, link_sum : uint64
        Room, one for each route and link.
    keys, values : uint64, int32
        Room for a hash table: a power of two, at least twice *most* and the number of links.
    ids, link_ids : int32[n], int32[n_links]
        Filled with the classes.
    """
    classes = link_classes = 0
    while True:
        _colour_transfers(
            route_ptr, route_link, weight, route, own, dep_ptr, dep, order, colour, link_colour, route_sum
        )
        found = _numbered(colour, keys, values, ids, most)
        if found < 0:
            return found
        _colour_links(route_ptr, route_link, weight, route, colour, link_colour, route_sum, link_sum)
        found_links = _numbered(link_colour, keys, values, link_ids, len(link_colour))
        if found == classes and found_links == link_classes:
            return found
        classes, link_classes = found, found_links


@_entry
def refine_lagged(
    route_ptr, route_link, weight, route, own, dep_ptr, dep, lag, colour, seen, link_colour, route_sum, link_sum
):  # fmt: skip
    """Refine the colours of hops of pipelines and of links once.

    A hop waits for others some chunks earlier, so that they may wait for each other in circles. Parameters as of
    `refine`; further:

    dep, lag : int32
        What each waits for, and how many chunks earlier.
    colour : uint64[n]
        Colours so far; changed.
    seen : uint64[n]
        A copy of them: what hops see of those that they wait for, so that their order does not matter.
    """
    for r in range(len(route_ptr) - 1):
        total = u8(0)
        for h in range(route_ptr[r], route_ptr[r + 1]):
            total += _mixed(link_colour[route_link[h]]) * weight[h]
        route_sum[r] = _mixed(total + u8(1))
    for i in range(len(route)):
        total = u8(0)
        for j in range(dep_ptr[i], dep_ptr[i + 1]):
            total += _mixed(_mixed(seen[dep[j]]) + u8(lag[j]))
        colour[i] = _mixed(colour[i] + _mixed(own[i] + _mixed(route_sum[route[i]] + _mixed(total + u8(2)))))
    _colour_links(route_ptr, route_link, weight, route, colour, link_colour, route_sum, link_sum)
