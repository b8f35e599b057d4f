"""The compiled engine with a tolerance, for irregular traffic, where to solve exactly is quadratic.

Every end has a window: the tolerance times the time that the transfer takes. At an event all transfers whose ends lie
within their windows end together, and rates are shared out once for all of them. Which ones, and when, is chosen so
that the bytes that are sent too many and those that are sent too few cancel:

* The deadline of a transfer is the end of its window. The event is due by the earliest deadline, so all that would end
  before it are in the group. They would send too much.
* Others within their windows of it join, in the order in which they began, while the group does not send too little.
* The event is at the mean end of the group, by rate: the bytes cancel. It is never after the first deadline, so that
  nobody is overrun, and never before the window of any of the group.

The *ledger* instead ends the group at the first deadline, and others only against bytes that every link of their
routes has already carried too many: no link carries less than it has to at any time. Latencies have windows too.

Small transfers end early, one by one, long before the time of the whole is decided. In its first part `SOON`, rates
stay while what has ended since they were shared takes less than the tolerance of each link: no link carries less by
more than the tolerance times `SOON`.

Nearly all transfers in flight are concerned by every event, so there is neither a calendar nor a search for a region:
each event walks over them all. Rates are found link by link, the least share first: with so many links that is faster
than the rounds of ``kernels.py``.

Every numba function of this engine is in this file, because numba's cache watches one file at a time. Imports NumPy,
Numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collsim.engine.decorators import compilers
from collsim.engine.kernels import _fill_successors, answers, as_attributes, tables
from collsim.engine.problem import least_time_s

if TYPE_CHECKING:
    from collsim.engine.problem import Floats, Problem

# As in the other files of kernels: the cache of numba watches no other file (a test compares them)
OPTIONS = {"error_model": "numpy", "nogil": True, "no_rewrites": True, "_nrt": False}
_part, _entry = compilers(OPTIONS)

TIE = 1e-12  # as in the exact engine
TIE_NOW = 4 * 2.0**-52
FEW = 8  # windows shrink once fewer than one in so many of the most flows at a time are left: then exact is cheap
NEARLY = 1e-3  # a group whose bytes cancel up to this part looks for no more members
SOON = 1e-2  # of the time that the busiest link needs
RESUM = 1e-3  # a running sum that has shrunk to this part of its value is taken anew

UNDECIDED, ENDED = 0.0, -1.0  # values of `rates` of a flow that is not frozen, and of one that is over

i4, i8, f8 = np.int32, np.int64, np.float64

FLOW = np.dtype([("left", f8), ("rate", f8), ("end", f8), ("start", f8)])  # left at the last sharing; end since then
PATH = np.dtype([("cap_Bps", f8), ("first", i4), ("hops", i4)])  # first: its row of hops
LINK = np.dtype(
    [
        ("load", f8),  # weight of the flows that are not frozen
        ("spare", f8),  # capacity not taken by frozen flows
        ("capacity", f8),
        ("used", f8),  # weight of all flows
        ("loaded", f8),  # load and used when they were last summed
        ("summed", f8),
        ("least_cap", f8),
        ("credit", f8),  # bytes carried too many, by the ledger
        ("freed", f8),  # what flows took that have ended since the last sharing
        ("begin", i8),  # its list of members
        ("length", i4),
        ("users", i4),  # those of the list that are not over
        ("live", i4),  # flows that are not frozen
        ("is_open", i4),  # whether it is among the links in use
    ]
)
TIMER = np.dtype([("time", f8), ("what", i8)])
RULE = np.dtype([("eps", f8), ("early", f8), ("soon", f8), ("ledger", i8)])
COUNT = np.dtype(
    [(name, i8) for name in ("flows", "timers", "root", "open", "group", "over", "solves", "peak")]
    + [(name, f8) for name in ("first", "deadline", "eps")]  # first end and deadline, since the last sharing
    + [("freed", f8)]  # the most that has been freed of a link since then, as a part of its capacity
)

# Arrays of a run, always in this order:
#   transfers   TRANSFER[n + 1]
#   given       float64[n] each: size_bytes, latency_s and cap_Bps of the transfers
#   successors  int32[m]
#   roots       int32, transfers without predecessors, by latency
#   paths       PATH[n], what sharing has to know of a transfer, close together
#   flows       FLOW[n], one for each transfer
#   rates       float64[n], the new rates while these are found
#   order       int32[n], the transfers in flight, in the order in which they began
#   group       int32[n], those that something happens to at this event
#   hops        HOP[nnz], links of the routes
#   links       LINK[n_links]
#   in_use      int32[n_links], links that have flows
#   members     int32[incidences], the flows of each link, and some that are over
#   queue       TIMER[n_links], a heap of links by share
#   timers      TIMER[n], a heap of latencies and local copies
#   count       COUNT[1]
#   rule        RULE[1]


# Heaps ---------------------------------------------------------------------------------------------------------------


@_part
def _sink(heap, size, at):
    """Move the entry at *at* down to its place."""
    time, what = heap[at].time, heap[at].what
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1].time < heap[child].time:
            child += 1
        if heap[child].time >= time:
            break
        heap[at].time = heap[child].time
        heap[at].what = heap[child].what
        at = child
    heap[at].time = time
    heap[at].what = what


@_part
def _push(heap, size, time, what):
    """Add an entry to a heap of *size*."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent].time <= time:
            break
        heap[at].time = heap[parent].time
        heap[at].what = heap[parent].what
        at = parent
    heap[at].time = time
    heap[at].what = what


@_part
def _pop(heap, size):
    """Take the first entry off a heap of *size*."""
    heap[0].time = heap[size - 1].time
    heap[0].what = heap[size - 1].what
    _sink(heap, size - 1, 0)


# Timers --------------------------------------------------------------------------------------------------------------


@_part
def _span(transfers, given, who):
    """Return when the latency or the local copy of a transfer began, and how long it takes."""
    size_bytes, latency_s, cap_Bps = given
    if np.isnan(transfers[who].start_s):
        return transfers[who].ready_s, latency_s[who]
    return transfers[who].start_s, size_bytes[who] / cap_Bps[who]


@_part
def _set_timer(transfers, given, timers, count, who):
    begin, length = _span(transfers, given, who)
    _push(timers, count[0].timers, begin + length, who)
    count[0].timers += 1


@_part
def _next(given, roots, timers, count):
    """Return which latency or copy is over next, and when; -1 if there is none."""
    who, time = i8(-1), np.inf
    _, latency_s, _ = given
    if count[0].timers:
        who, time = timers[0].what, timers[0].time
    if count[0].root < len(roots) and latency_s[roots[count[0].root]] <= time:
        who = i8(roots[count[0].root])
        time = latency_s[who]
    return who, time


@_part
def _take(roots, timers, count, who):
    """Take the next one off."""
    if count[0].root < len(roots) and roots[count[0].root] == who:
        count[0].root += 1
    else:
        _pop(timers, count[0].timers)
        count[0].timers -= 1


@_part
def _over_together(transfers, given, roots, group, timers, count, rule, latest):
    """Fill *group* with latencies and copies that are over together by *latest*, and return when."""
    eps, size, late, open_from = rule[0].eps, 0, 0.0, 0.0
    who, first = _next(given, roots, timers, count)
    time = last = first
    while time <= latest:
        _take(roots, timers, count, who)
        window = eps * _span(transfers, given, who)[1]
        latest = min(latest, time + window)
        open_from = max(open_from, time - window)
        late += time - first
        last = time
        group[size] = who
        size += 1
        who, time = _next(given, roots, timers, count)
    count[0].group = size
    return last if rule[0].ledger else min(max(first + late / size, open_from), latest)


@_part
def _fire(
    transfers, given, successors, paths, flows, rates, order, hops, links, in_use, members, timers, count, who, now
):  # fmt: skip
    """Begin a transfer whose latency is over, or end it if it is a local copy that has begun before."""
    size_bytes, _, cap_Bps = given
    size, cap = size_bytes[who], cap_Bps[who]
    if np.isnan(transfers[who].start_s):
        transfers[who].start_s = now
        if size > 0.0 and transfers[who].hops > 0:
            _enter(flows, rates, order, count, who, now, size)
            _join(paths, hops, links, in_use, members, count, who)
            return
        if size > 0.0 and cap < np.inf:
            _set_timer(transfers, given, timers, count, who)
            return
        transfers[who].moved_bytes = size
    else:
        transfers[who].moved_bytes = cap * (now - transfers[who].start_s)
    _complete(transfers, given, successors, timers, count, who, now)


@_part
def _enter(flows, rates, order, count, who, now, size):
    """Put a new flow last in the order."""
    flows[who].left = size
    flows[who].rate = 0.0
    flows[who].start = now
    rates[who] = UNDECIDED
    order[count[0].flows] = who
    count[0].flows += 1


@_part
def _complete(transfers, given, successors, timers, count, who, now):
    """End a transfer, and start the latency of those that waited for it alone."""
    transfers[who].finish_s = now
    for j in range(transfers[who].next, transfers[who + 1].next):
        successor = successors[j]
        transfers[successor].waits -= 1
        if transfers[successor].waits == 0:
            transfers[successor].ready_s = now
            _set_timer(transfers, given, timers, count, i8(successor))


# Groups --------------------------------------------------------------------------------------------------------------


@_part
def _neutral(flows, order, group, count, base, limit):
    """Fill *group* with flows that end together by *limit* after *base*, and return how long after it."""
    eps, n, size = count[0].eps, count[0].flows, 0
    load, balance, open_from = 0.0, 0.0, 0.0
    for k in range(n):
        flow = flows[order[k]]
        if flow.end <= limit:
            load += flow.rate
            balance += flow.rate * (flow.end - limit)
            open_from = max(open_from, flow.end - eps * (flow.end + (base - flow.start)))
            group[size] = order[k]
            size += 1
    enough = NEARLY * balance
    for k in range(n):
        if balance >= enough:
            break
        flow = flows[order[k]]
        over = flow.end - limit
        window = eps * (flow.end + (base - flow.start))
        if over > 0.0 and over <= window and balance + flow.rate * over <= 0.0:
            load += flow.rate
            balance += flow.rate * over
            open_from = max(open_from, flow.end - window)
            group[size] = order[k]
            size += 1
    count[0].group = size
    return min(max(limit + balance / load, open_from), limit)


@_part
def _by_ledger(paths, flows, order, group, hops, links, count, base, limit):
    """Fill *group* with flows that end at *limit* after *base*: all that would end before, others against credit."""
    eps, n, size = count[0].eps, count[0].flows, 0
    for k in range(n):
        who = order[k]
        surplus = flows[who].rate * (limit - flows[who].end)
        if surplus >= 0.0:
            for h in range(paths[who].first, paths[who].first + paths[who].hops):
                links[hops[h].link].credit += hops[h].weight * surplus
            group[size] = who
            size += 1
    for k in range(n):
        who = order[k]
        over = flows[who].end - limit
        if over <= 0.0 or over > eps * (flows[who].end + (base - flows[who].start)):
            continue
        missing, covered = flows[who].rate * over, flows[who].rate < paths[who].cap_Bps  # a cap gives no credit
        for h in range(paths[who].first, paths[who].first + paths[who].hops):
            covered &= hops[h].weight * missing <= links[hops[h].link].credit
        if covered:
            for h in range(paths[who].first, paths[who].first + paths[who].hops):
                links[hops[h].link].credit -= hops[h].weight * missing
            group[size] = who
            size += 1
    count[0].group = size
    return limit


@_part
def _end_group(
    transfers, given, successors, paths, flows, rates, group, hops, links, members, timers, count, step, now
):  # fmt: skip
    """End the flows of the group, *step* after rates were shared."""
    size_bytes, _, _ = given
    for k in range(count[0].group):
        who = i8(group[k])
        transfers[who].moved_bytes = size_bytes[who] - (flows[who].left - flows[who].rate * step)
        rates[who] = ENDED
        count[0].over += 1
        _free(paths, flows, hops, links, count, who)
        _leave(paths, rates, hops, links, members, who)
        _complete(transfers, given, successors, timers, count, who, now)


@_part
def _free(paths, flows, hops, links, count, who):
    """Note what a flow that ends leaves to others."""
    for h in range(paths[who].first, paths[who].first + paths[who].hops):
        link = i8(hops[h].link)
        links[link].freed += hops[h].weight * flows[who].rate
        count[0].freed = max(count[0].freed, links[link].freed / links[link].capacity)


@_part
def _drop(flows, rates, order, count, base):
    """Take flows that are over out of the order while rates stay, and find the first end and the first deadline."""
    kept, first, deadline = 0, np.inf, np.inf
    for k in range(count[0].flows):
        who = order[k]
        if rates[who] == ENDED:
            continue
        order[kept] = who
        kept += 1
        end = flows[who].end
        first = min(first, end)
        deadline = min(deadline, end + count[0].eps * (end + (base - flows[who].start)))
    count[0].flows, count[0].over = kept, 0
    count[0].first, count[0].deadline = first, deadline


# Fair shares ---------------------------------------------------------------------------------------------------------


@_part
def _join(paths, hops, links, in_use, members, count, who):
    """Put a new flow on the lists of its links."""
    for h in range(paths[who].first, paths[who].first + paths[who].hops):
        link = i8(hops[h].link)
        if links[link].is_open == 0:
            links[link].is_open = 1
            in_use[count[0].open] = link
            count[0].open += 1
        members[links[link].begin + links[link].length] = who
        links[link].length += 1
        links[link].users += 1
        links[link].used += hops[h].weight
        links[link].summed = max(links[link].summed, links[link].used)
        links[link].least_cap = min(links[link].least_cap, paths[who].cap_Bps)


@_part
def _leave(paths, rates, hops, links, members, who):
    """Take a flow that is over off its links; the lists are cleared out from time to time."""
    for h in range(paths[who].first, paths[who].first + paths[who].hops):
        link = i8(hops[h].link)
        links[link].users -= 1
        links[link].used -= hops[h].weight
        if 2 * links[link].users < links[link].length or links[link].used < RESUM * links[link].summed:
            _clear(paths, rates, hops, links, members, link)


@_part
def _clear(paths, rates, hops, links, members, link):
    """Drop flows that are over from the list of *link*, and sum its load anew before cancellation shows."""
    begin = links[link].begin
    kept, used, least_cap = begin, 0.0, np.inf
    for at in range(begin, begin + links[link].length):
        who = members[at]
        if rates[who] != ENDED:
            members[kept] = who
            kept += 1
            used += _weight(paths, hops, who, link)
            least_cap = min(least_cap, paths[who].cap_Bps)
    links[link].length = kept - begin
    links[link].used = links[link].summed = used
    links[link].least_cap = least_cap


@_part
def _weight(paths, hops, who, link):
    """Return the bytes that a flow puts on *link* for each of its own."""
    h = paths[who].first
    while hops[h].link != link:
        h += 1
    return hops[h].weight


@_part
def _share(paths, rates, hops, links, in_use, members, queue, count):
    """Find the max-min fair rates link by link, the least share first: each flow is frozen once."""
    count[0].solves += 1
    size = _open(links, in_use, queue, count)
    while size:
        link, level = queue[0].what, queue[0].time
        if links[link].live == 0:
            _pop(queue, size)
            size -= 1
            continue
        if links[link].load < RESUM * links[link].loaded:
            _resum(paths, rates, hops, links, members, link)
        share = links[link].spare / links[link].load
        if share > level:  # shares only grow, so a stale one surfaces early and is put back
            queue[0].time = share
            _sink(queue, size, 0)
        elif links[link].least_cap > level or not _freeze(paths, rates, hops, links, members, link, level, level):
            _freeze(paths, rates, hops, links, members, link, level, np.inf)


@_part
def _open(links, in_use, queue, count):
    """Put the links in use into a heap by what they would give to each flow, and return how many there are."""
    size = 0
    count[0].freed = 0.0
    for j in range(count[0].open):
        link = i8(in_use[j])
        links[link].freed = 0.0
        if links[link].users == 0:
            links[link].is_open = 0
            continue
        in_use[size] = link
        links[link].live = links[link].users
        links[link].load = links[link].loaded = links[link].used
        links[link].spare = links[link].capacity
        queue[size].time = links[link].capacity / links[link].used
        queue[size].what = link
        size += 1
    count[0].open = size
    for at in range((size >> 1) - 1, -1, -1):
        _sink(queue, size, at)
    return size


@_part
def _resum(paths, rates, hops, links, members, link):
    """Take what waits on *link* and what it has to give anew, before cancellation shows."""
    load, spare = 0.0, links[link].capacity
    begin = links[link].begin
    for at in range(begin, begin + links[link].length):
        who = members[at]
        if rates[who] == UNDECIDED:
            load += _weight(paths, hops, who, link)
        elif rates[who] != ENDED:
            spare -= _weight(paths, hops, who, link) * rates[who]
    links[link].load = links[link].loaded = load
    links[link].spare = spare


@_part
def _freeze(paths, rates, hops, links, members, link, level, most):
    """Freeze flows of *link* at *level*, or at their caps if these are lower; leave out those of caps over *most*."""
    found = False
    begin = links[link].begin
    for at in range(begin, begin + links[link].length):
        who = members[at]
        if rates[who] != UNDECIDED or (most < np.inf and paths[who].cap_Bps > most):
            continue
        found = True
        rates[who] = rate = min(level, paths[who].cap_Bps)
        for h in range(paths[who].first, paths[who].first + paths[who].hops):
            other, weight = i8(hops[h].link), hops[h].weight
            links[other].live -= 1
            links[other].load -= weight
            links[other].spare -= weight * rate
    return found


@_part
def _commit(flows, rates, order, count, rule, base, step):
    """Give the flows their new rates, *step* after the old ones, and find the first end and the first deadline."""
    kept, first, deadline = 0, np.inf, np.inf
    alive = count[0].flows - count[0].over
    count[0].peak = max(count[0].peak, alive)
    eps = rule[0].eps
    if not rule[0].ledger:
        eps *= min(1.0, FEW * alive / count[0].peak)
    count[0].eps = eps
    count[0].over = 0
    for k in range(count[0].flows):
        who = order[k]
        rate = rates[who]
        if rate == ENDED:
            continue
        order[kept] = who
        kept += 1
        left = max(flows[who].left - flows[who].rate * step, 0.0)
        end = left / rate
        flows[who].left = left
        flows[who].rate = rate
        flows[who].end = end
        rates[who] = UNDECIDED
        first = min(first, end)
        deadline = min(deadline, end + eps * (end + (base - flows[who].start)))
    count[0].flows = kept
    count[0].first = first
    count[0].deadline = deadline


@_entry
def _run(
    transfers, given, successors, roots, paths, flows, rates, order, group, hops, links, in_use, members, queue, timers,
    count, rule,
):  # fmt: skip
    """Go from event to event until nothing is left to happen."""
    base = 0.0  # the time of the last sharing
    count[0].first = count[0].deadline = np.inf
    while True:
        _, due = _next(given, roots, timers, count)
        limit = min(count[0].deadline, max(due - base, 0.0))
        if limit == np.inf:
            return
        limit += TIE * limit + TIE_NOW * base
        before, ends = count[0].flows, count[0].first <= limit
        if ends:
            if rule[0].ledger:
                step = _by_ledger(paths, flows, order, group, hops, links, count, base, limit)
            else:
                step = _neutral(flows, order, group, count, base, limit)
            now = base + step
            _end_group(
                transfers, given, successors, paths, flows, rates, group, hops, links, members, timers, count, step, now
            )
        else:
            now = _over_together(transfers, given, roots, group, timers, count, rule, base + count[0].first)
            step = now - base
            for k in range(count[0].group):
                who = i8(group[k])
                _fire(
                    transfers, given, successors, paths, flows, rates, order, hops, links, in_use, members, timers,
                    count, who, now,
                )  # fmt: skip
        while True:
            who, due = _next(given, roots, timers, count)
            if who < 0 or due - rule[0].early * _span(transfers, given, who)[1] > now:
                break
            _take(roots, timers, count, who)
            _fire(
                transfers,
                given,
                successors,
                paths,
                flows,
                rates,
                order,
                hops,
                links,
                in_use,
                members,
                timers,
                count,
                who,
                now,
            )
        if ends and count[0].flows == before and now < rule[0].soon and count[0].freed < rule[0].eps:
            _drop(flows, rates, order, count, base)
        elif ends or count[0].flows > before:
            _share(paths, rates, hops, links, in_use, members, queue, count)
            base = now
            _commit(flows, rates, order, count, rule, base, step)


def simulate(p: Problem, eps: float, *, ledger: bool = False) -> tuple[Floats, Floats, Floats, Floats, int]:
    """Simulate the checked problem *p* with tolerance *eps*; returns what the exact engine returns."""
    rule = np.array([(eps, 0.0 if ledger else eps / 2, SOON * least_time_s(p), ledger)], dtype=RULE)
    arrays = _prepare(p, rule)
    transfers, successors, count = arrays[0], arrays[2], arrays[-2]
    _fill_successors(p.dep_ptr, p.dep, transfers, successors)
    _run(*arrays)
    del arrays  # what is copied below is no addition to it
    return *answers(transfers), int(count["solves"][0])


def _prepare(p, rule):
    """Lay out the state of a run; pages that stay untouched cost nothing."""
    n, n_links = len(p.route), len(p.capacity_Bps)
    transfers, hops, roots, on_link = tables(p)
    incidences, own = int(on_link.sum()), transfers[:-1]
    paths = np.empty(n, dtype=PATH)
    paths["cap_Bps"], paths["first"], paths["hops"] = p.cap_Bps, own["first"], own["hops"]
    links = np.zeros(n_links, dtype=LINK)
    links["capacity"], links["begin"], links["least_cap"] = p.capacity_Bps, np.cumsum(on_link) - on_link, np.inf
    arrays = (
        transfers,
        (p.size_bytes, p.latency_s, p.cap_Bps),
        np.empty(len(p.dep), dtype=i4),
        roots,
        paths,
        np.empty(n, dtype=FLOW),
        np.empty(n),
        np.empty(n, dtype=i4),
        np.empty(n, dtype=i4),
        hops,
        links,
        np.empty(n_links, dtype=i4),
        np.empty(incidences, dtype=i4),
        np.empty(n_links, dtype=TIMER),
        np.empty(n, dtype=TIMER),
        np.zeros(1, dtype=COUNT),
        rule,
    )
    return tuple(as_attributes(each) for each in arrays)
