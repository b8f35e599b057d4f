"""The compiled fluid engine: all its numba functions are here, because numba's cache watches one file at a time.

Same answers as ``reference.py``, found with less work:

* Rates are shared out anew only where they can change. A flow depends on another only through links that are *tight*
  (the bottleneck of some flow), so the region of an event is what tight links connect to the flows that began and to
  the links that flows left. Other links enter with the capacity that outsiders leave; if such a link becomes tight, its
  outsiders join and the region is solved again.
* All rates rise together, so what happens at a level cannot change what has stopped below. The least rate of a flow
  that ends, or the least that one which begins can get, is the *cut*: slower flows keep their rates, as outsiders do.
* A region is solved in rounds. Every link whose share is the least that any of its flows is offered is a bottleneck,
  all of them at once; its flows freeze, and so do flows whose cap is the least offer. All these are comparisons of
  stored numbers, so == is right. Once a round freezes little, the rest is frozen link by link, least share first.
* The calendar holds one entry per tight link (the first end among the flows that it stops) instead of one per flow.
  Flows stopped by their cap, running latencies and local copies have entries of their own.

Flows live in recycled slots, so the memory in use follows the number of transfers in flight. Arrays come in, arrays go
out; nothing is allocated or raised inside, and a deadlock shows as transfers that never finished. Imports NumPy, Numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collsim.engine.decorators import compilers

if TYPE_CHECKING:
    from collsim.engine.problem import Floats, Problem

# Every file of kernels has these of its own, as the cache of numba watches no other (a test compares them).
# Without `_nrt` references to arrays are not counted, which only what allocates needs: rings take half the time.
OPTIONS = {"error_model": "numpy", "nogil": True, "no_rewrites": True, "_nrt": False}
_part, _entry = compilers(OPTIONS)

# The cache freezes constants of other files too, so these are written down again (a test compares them)
TIE = 1e-12
TIE_NOW = 4 * 2.0**-52

# Values of Slot.owner that are no link
ALONE, WAITING, COPYING = -1, -2, -3
UNDECIDED = -4  # Region.stop of a flow that is not frozen

WORTH_A_ROUND = 4  # rounds go on while each freezes one flow in so many
TRY_ROUNDS = 8  # where the first round was not worth it, only one solve in so many tries again
NEVER, GIVEN_UP = 2**62, -1  # values of Count.check
FIRST_CHECK = 5_000_000  # hops looked at before anything is said about the rest; some 0.2 s

i4, u4, i8, f8 = np.int32, np.uint32, np.int64, np.float64

TRANSFER = np.dtype(
    [
        ("ready_s", f8),
        ("start_s", f8),
        ("finish_s", f8),
        ("moved_bytes", f8),
        ("first", u4),  # its row of hops
        ("hops", u4),
        ("waits", i4),  # predecessors that are not complete
        ("next", i4),  # its row of successors
    ]
)
HOP = np.dtype([("weight", f8), ("link", u4)])  # packed: a quarter less to read and to keep
SLOT = np.dtype(
    [
        ("rate", f8),
        ("left", f8),  # bytes left at time since
        ("since", f8),
        ("finish", f8),
        ("start", f8),
        ("who", u4),  # the transfer
        ("owner", i4),  # the link that stops it, or one of the values above
        ("seen", i4),  # the last event whose region it was in
        ("free", i4),  # position j of the stack of free slots
        ("stash", i4),  # position j of the list of calendar items that were taken too early
        ("pad", i4),
    ]
)
LINK = np.dtype(
    [
        ("share", f8),
        ("floor", f8),  # the least offer to a flow of it; later the first end
        ("load", f8),  # weight of the flows that are not frozen, in two words: the second holds what rounding drops
        ("load_low", f8),
        ("spare", f8),  # capacity not taken by frozen flows, in two words
        ("spare_low", f8),
        ("used", f8),  # what all flows take, in two words
        ("used_low", f8),
        ("weight", f8),  # of all flows, in two words
        ("weight_low", f8),
        ("capacity", f8),
        ("begin", i8),  # its list of members
        ("length", i4),
        ("live", i4),  # flows that are not frozen
        ("tight", i4),
        ("was_tight", i4),  # when the event saw it
        ("seen", i4),  # the last event whose region it was in
        ("region", u4),  # position j of the list of links in the region
        ("open", u4),  # position j of the list of links with flows that are not frozen
        ("first", u4),  # its list of riders, and where it ends
        ("last", u4),
        ("pad", i4),
    ]
)
MEMBER = np.dtype([("slot", u4), ("hop", u4)])
REGION = np.dtype([("top", f8), ("rate", f8), ("slot", u4), ("begin", u4), ("stop", i4), ("live", u4)])
ENTRY = np.dtype([("time", f8), ("place", i4), ("heap", u4)])  # place counts from 1; 0 is absent. heap: position j
COUNT = np.dtype(
    [
        (name, i8)
        for name in ("calendar", "free", "fresh", "root", "event", "region", "links", "stash", "solves", "lists")
    ]
    + [("cut", f8)]  # flows of lower rates keep them
    + [(name, i8) for name in ("work", "most_work", "check", "work_then", "done_then")]  # hops that were looked at
)

# Arrays of a run, always in this order:
#   transfers   TRANSFER[n + 1]
#   given       float64[n] each: size_bytes, latency_s and cap_Bps of the transfers
#   hops        HOP[nnz], links of the routes
#   successors  int32[m]
#   roots       int32, transfers without predecessors, by latency
#   slots       SLOT[n], transfers in flight
#   seats       int32[n, hops], position of a flow in the list of each of its links
#   links       LINK[n_links]
#   members     MEMBER[incidences], the flows of each link
#   region      REGION[n + 1], the flows that this event concerns
#   near        HOP[incidences], the hops of the region side by side
#   riders      int32[incidences], the flows of the region that are not frozen, link by link
#   queue       ENTRY[n_links], a heap of links by share; tally COUNT holds its size
#   calendar    ENTRY[n_links + n], an indexed binary heap of links and slots, links first
#   count       COUNT
# They travel one by one, not in a named tuple: a cache that names a class of this file cannot be read by another
# version of it, and where references are counted, taking an array out of a tuple counts one.


# Calendar ------------------------------------------------------------------------------------------------------------


@_part
def _schedule(calendar, count, item, time):
    """Set or move the time of *item*."""
    at = i8(calendar[item].place)
    if at == 0:
        count.calendar += 1
        at = count.calendar
        calendar[item].time = np.inf
    if time > calendar[item].time:
        _sift_down(calendar, count, at, item, time)
        return
    while at > 1:
        parent = at >> 1
        other = calendar[parent - 1].heap
        if calendar[other].time <= time:
            break
        calendar[at - 1].heap = other
        calendar[other].place = at
        at = parent
    calendar[item].time = time
    calendar[item].place = at
    calendar[at - 1].heap = item


@_part
def _sift_down(calendar, count, at, item, time):
    """Put *item* at *at* or below."""
    size = count.calendar
    while 2 * at <= size:
        child = 2 * at
        other = calendar[child - 1].heap
        if child < size and calendar[calendar[child].heap].time < calendar[other].time:
            other = calendar[child].heap
            child += 1
        if calendar[other].time >= time:
            break
        calendar[at - 1].heap = other
        calendar[other].place = at
        at = child
    calendar[item].time = time
    calendar[item].place = at
    calendar[at - 1].heap = item


@_part
def _cancel(calendar, count, item):
    """Take *item* out, if it is there."""
    at = i8(calendar[item].place)
    if at == 0:
        return
    calendar[item].place = 0
    last = i8(calendar[count.calendar - 1].heap)
    count.calendar -= 1
    if last == item:
        return
    parent = i8(calendar[max(at >> 1, 1) - 1].heap)
    if at > 1 and calendar[last].time < calendar[parent].time:  # the last entry takes the seat, and may have to rise
        calendar[last].place = at
        calendar[at - 1].heap = last
        _schedule(calendar, count, last, calendar[last].time)
    else:
        _sift_down(calendar, count, at, last, calendar[last].time)


# Events --------------------------------------------------------------------------------------------------------------


@_part
def _take_slot(slots, count, transfer, owner):
    """Give *transfer* a slot."""
    if count.free:
        count.free -= 1
        slot = i8(slots[count.free].free)
    else:
        slot = count.fresh
        count.fresh += 1
    slots[slot].who = transfer
    slots[slot].owner = owner
    return slot


@_part
def _complete(transfers, given, successors, slots, calendar, count, slot, now):
    """End the transfer in *slot*, free the slot, and start the latency of those that waited for it alone."""
    _, latency_s, _ = given
    who = slots[slot].who
    slots[count.free].free = slot
    count.free += 1
    transfers[who].finish_s = now
    for j in range(transfers[who].next, transfers[who + 1].next):
        successor = successors[j]
        transfers[successor].waits -= 1
        if transfers[successor].waits == 0:
            transfers[successor].ready_s = now
            waiting = len(calendar) - len(slots) + _take_slot(slots, count, successor, WAITING)
            _schedule(calendar, count, waiting, now + latency_s[successor])


@_part
def _fire(transfers, given, hops, successors, slots, seats, links, members, region, calendar, count, slot, now):
    """Begin the transfer in *slot*, or end it if it is a local copy that has begun before."""
    who = slots[slot].who
    size_bytes, _, cap_Bps = given
    size, cap = size_bytes[who], cap_Bps[who]
    if slots[slot].owner != COPYING:
        transfers[who].start_s = now
        if size > 0.0 and transfers[who].hops > 0:
            _enter(transfers, hops, slots, seats, links, members, region, count, slot, now, size)
            return
        if size > 0.0 and cap < np.inf:
            slots[slot].owner = COPYING
            _schedule(calendar, count, len(links) + slot, now + size / cap)
            return
    transfers[who].moved_bytes = size
    _complete(transfers, given, successors, slots, calendar, count, slot, now)


@_part
def _enter(transfers, hops, slots, seats, links, members, region, count, slot, now, size):
    """Put a new flow on the lists of its links and into the region."""
    who = slots[slot].who
    slots[slot].rate = 0.0
    slots[slot].left = size
    slots[slot].since = slots[slot].start = now
    slots[slot].owner = ALONE
    slots[slot].seen = count.event
    region[count.region].slot = slot
    count.region += 1
    first = transfers[who].first
    for hop in range(transfers[who].hops):
        link = i8(hops[first + hop].link)
        at = links[link].length
        links[link].length = at + 1
        members[links[link].begin + at].slot = slot
        members[links[link].begin + at].hop = hop
        seats[slot, hop] = at
        _weigh(links, link, hops[first + hop].weight)


@_part
def _leave(transfers, given, hops, slots, seats, links, members, count, slot, now):
    """Take a flow that ends off its links; the tight ones become part of the region."""
    who, rate = slots[slot].who, slots[slot].rate
    size_bytes, _, _ = given
    transfers[who].moved_bytes = size_bytes[who] - (slots[slot].left - rate * (now - slots[slot].since))
    first = transfers[who].first
    for hop in range(transfers[who].hops):
        link = i8(hops[first + hop].link)
        seat = seats[slot, hop]
        links[link].length -= 1
        at, last = links[link].begin + seat, links[link].begin + links[link].length
        members[at].slot = members[last].slot
        members[at].hop = members[last].hop
        seats[members[at].slot, members[at].hop] = seat
        if links[link].tight:
            _see_link(links, count, link)
        if links[link].length == 0:
            links[link].used = links[link].used_low = 0.0
            links[link].weight = links[link].weight_low = 0.0
        else:
            _use(links, link, -hops[first + hop].weight * rate)
            _weigh(links, link, -hops[first + hop].weight)
    count.cut = min(count.cut, rate)


@_part
def _use(links, link, value):
    """Add *value* to the load of *link*."""
    old = links[link].used
    new = old + value
    shift = new - old
    links[link].used_low += (old - (new - shift)) + (value - shift)
    links[link].used = new


@_part
def _weigh(links, link, value):
    """Add *value* to the weight of *link*."""
    old = links[link].weight
    new = old + value
    shift = new - old
    links[link].weight_low += (old - (new - shift)) + (value - shift)
    links[link].weight = new


@_part
def _spend(links, link, value):
    """Take *value* from what *link* has to give."""
    old = links[link].spare
    new = old - value
    shift = new - old
    links[link].spare_low += (old - (new - shift)) - (value + shift)
    links[link].spare = new


@_part
def _see_link(links, count, link):
    """Put *link* into the region, once."""
    if links[link].seen != count.event:
        links[link].seen = count.event
        links[link].was_tight = links[link].tight
        links[count.links].region = link
        count.links += 1


@_part
def _is_due(slots, slot, until):
    """Tell whether a flow ends by *until*, give or take a trifle of its own duration."""
    finish = slots[slot].finish
    return finish - TIE * (finish - slots[slot].start) <= until


@_part
def _pop(transfers, given, hops, successors, slots, seats, links, members, region, calendar, count, now, until):
    """Take the first item off the calendar and do what is due; put it aside if nothing was."""
    item = i8(calendar[0].heap)
    time = calendar[item].time
    _cancel(calendar, count, item)
    slot = item - len(links)
    due = False
    if slot < 0:
        begin = links[item].begin
        for at in range(begin + links[item].length - 1, begin - 1, -1):  # backwards: who leaves, swaps the last in
            slot = i8(members[at].slot)
            if slots[slot].owner == item and _is_due(slots, slot, until):
                due = True
                _leave(transfers, given, hops, slots, seats, links, members, count, slot, now)
                _complete(transfers, given, successors, slots, calendar, count, slot, now)
    elif slots[slot].owner == ALONE:
        due = _is_due(slots, slot, until)
        if due:
            _leave(transfers, given, hops, slots, seats, links, members, count, slot, now)
            _complete(transfers, given, successors, slots, calendar, count, slot, now)
    elif time <= until:
        due = True
        _fire(transfers, given, hops, successors, slots, seats, links, members, region, calendar, count, slot, now)
    if not due:
        slots[count.stash].stash = item
        count.stash += 1


@_part
def _advance(transfers, given, hops, successors, roots, slots, seats, links, members, region, calendar, count, now):
    """Do everything that is due at *now*, what becomes due by doing so included."""
    count.event += 1
    count.region = count.links = count.stash = 0
    count.cut = np.inf
    _, latency_s, _ = given
    until = now + TIE_NOW * now
    while True:
        if count.calendar and calendar[calendar[0].heap].time <= until + TIE * now:
            _pop(transfers, given, hops, successors, slots, seats, links, members, region, calendar, count, now, until)
        elif count.root < len(roots) and latency_s[roots[count.root]] <= until:
            slot = _take_slot(slots, count, roots[count.root], WAITING)
            count.root += 1
            _fire(transfers, given, hops, successors, slots, seats, links, members, region, calendar, count, slot, now)
        else:
            break
    for j in range(count.stash):
        item = i8(slots[j].stash)
        _schedule(calendar, count, item, calendar[item].time)


# Fair shares ---------------------------------------------------------------------------------------------------------


@_part
def _grow(transfers, hops, slots, links, members, region, count, from_slot, from_link):
    """Close the region: all flows of links that were tight, all links of its flows."""
    while from_slot < count.region or from_link < count.links:
        if from_link < count.links:
            link = i8(links[from_link].region)
            from_link += 1
            if links[link].was_tight:
                _see_members(slots, links, members, region, count, link)
        else:
            who = slots[region[from_slot].slot].who
            from_slot += 1
            for h in range(transfers[who].first, transfers[who].first + transfers[who].hops):
                _see_link(links, count, i8(hops[h].link))


@_part
def _cut(transfers, given, hops, slots, links, region, count):
    """Find a level below which nothing changes: rates rise together, and no flow of this event has stopped by then.

    One that ends had its rate. One that begins gets its cap, or an even part of a link at least.
    """
    _, _, cap_Bps = given
    for k in range(count.region):
        who = slots[region[k].slot].who
        count.cut = min(count.cut, cap_Bps[who])
        for h in range(transfers[who].first, transfers[who].first + transfers[who].hops):
            link = i8(hops[h].link)
            count.cut = min(count.cut, links[link].capacity / (links[link].weight + links[link].weight_low))
    count.cut *= 1 - TIE  # what is equal but for rounding is a matter of sharing


@_part
def _see_members(slots, links, members, region, count, link):
    """Put all flows of *link* into the region, but those that are slow enough to stay as they are."""
    event, begin, n, cut = count.event, links[link].begin, count.region, count.cut
    for at in range(begin, begin + links[link].length):
        slot = members[at].slot
        if slots[slot].seen != event and slots[slot].rate >= cut:
            slots[slot].seen = event
            region[n].slot = slot
            n += 1
    count.region = n


@_part
def _gather(transfers, given, hops, slots, links, region, near, count, new_from):
    """Copy the hops of the region side by side, and find what its links have to give.

    Flows from *new_from* on have just joined: their old rates are taken off the loads of links that were not tight.
    """
    _, _, cap_Bps = given
    for j in range(count.links):
        link = links[j].region
        links[link].live = links[link].tight = 0
        links[link].load = links[link].load_low = links[link].share = 0.0
    end = 0
    for k in range(count.region):
        slot = region[k].slot
        who, rate = slots[slot].who, slots[slot].rate
        region[k].top = cap_Bps[who]
        region[k].live = k
        region[k].begin = end
        region[k].stop = UNDECIDED
        for h in range(transfers[who].first, transfers[who].first + transfers[who].hops):
            link, weight = i8(hops[h].link), hops[h].weight
            near[end].link = link
            near[end].weight = weight
            end += 1
            links[link].live += 1
            links[link].load += weight
            if k >= new_from and rate > 0.0:
                _use(links, link, -weight * rate)
    region[count.region].begin = end
    for j in range(count.links):
        link = i8(links[j].region)
        if links[link].live == links[link].length:
            links[link].used = links[link].used_low = 0.0
        links[link].spare = links[link].capacity
        links[link].spare_low = -links[link].used_low
        _spend(links, link, links[link].used)


@_part
def _share(links, region, near, riders, queue, tally, count):
    """Find the max-min fair rates of the region: in rounds while these pay, then link by link."""
    n_live, n_open = count.region, count.links
    for j in range(n_open):
        links[j].open = links[j].region
    if count.lists and count.solves % TRY_ROUNDS:
        _settle(links, region, near, riders, queue, tally, n_live, n_open)
        return
    count.lists = 1
    while n_live:
        still_open = i8(0)
        for j in range(n_open):
            link = links[j].open
            if links[link].live:
                share = (links[link].spare + links[link].spare_low) / links[link].load
                links[link].share = max(share, links[link].share)  # shares only grow, whatever rounding says
                links[link].floor = np.inf
                links[link].load = 0.0
                links[still_open].open = link
                still_open += 1
        n_open = still_open
        _offer(links, region, near, n_live)
        going_on = _freeze(links, region, near, n_live)
        if WORTH_A_ROUND * (n_live - going_on) < n_live:
            _settle(links, region, near, riders, queue, tally, going_on, n_open)
            return
        count.lists = 0
        n_live = going_on


@_part
def _offer(links, region, near, n_live):
    """Find the least offer to each flow, and the least offer among the flows of each link."""
    for j in range(n_live):
        k = region[j].live
        begin, end, least = region[k].begin, region[k + 1].begin, region[k].top
        for h in range(begin, end):
            least = min(least, links[near[h].link].share)
        region[k].rate = least
        for h in range(begin, end):
            link = near[h].link
            links[link].floor = min(links[link].floor, least)


@_part
def _freeze(links, region, near, n_live):
    """Freeze flows at their cap or at a bottleneck, and return how many go on."""
    going_on = 0
    for j in range(n_live):
        k = region[j].live
        begin, end, rate = region[k].begin, region[k + 1].begin, region[k].rate
        stop = ALONE
        for h in range(begin, end):
            link = near[h].link
            if links[link].share == rate and links[link].floor == rate:
                links[link].tight = 1
                stop = link
        if stop != ALONE or rate == region[k].top:
            region[k].stop = stop
            for h in range(begin, end):
                link = i8(near[h].link)
                links[link].live -= 1
                _spend(links, link, near[h].weight * rate)
        else:
            region[going_on].live = k
            going_on += 1
            for h in range(begin, end):
                links[near[h].link].load += near[h].weight
    return going_on


@_part
def _settle(links, region, near, riders, queue, tally, n_live, n_open):
    """Freeze the *n_live* flows left link by link, the least share first: each flow once instead of once a round."""
    _list_live(links, region, near, riders, n_live, n_open)
    tally.calendar = 0
    for j in range(n_open):
        link = i8(links[j].open)
        queue[link].place = 0
        if links[link].live:
            _schedule(queue, tally, link, max(_current_share(links, link), links[link].share))
    while n_live:
        link = i8(queue[0].heap)
        level = queue[link].time
        if links[link].live == 0:
            _cancel(queue, tally, link)
            continue
        share = _current_share(links, link)
        if share > level:  # shares only grow, so a stale one surfaces early and is put back
            _schedule(queue, tally, link, share)
            continue
        frozen = _freeze_riders(links, region, near, riders, link, level, i8(ALONE))
        if frozen == 0:  # no cap in the way: the link is a bottleneck
            links[link].tight = 1
            frozen = _freeze_riders(links, region, near, riders, link, level, link)
        n_live -= frozen


@_part
def _current_share(links, link):
    return (links[link].spare + links[link].spare_low) / (links[link].load + links[link].load_low)


@_part
def _list_live(links, region, near, riders, n_live, n_open):
    """List the flows of each link that are not frozen."""
    end = 0
    for j in range(n_open):
        link = i8(links[j].open)
        links[link].first = links[link].last = end
        end += links[link].live
    for j in range(n_live):
        k = region[j].live
        for h in range(region[k].begin, region[k + 1].begin):
            link = i8(near[h].link)
            riders[links[link].last] = k
            links[link].last += 1


@_part
def _freeze_riders(links, region, near, riders, link, level, stop):
    """Freeze flows of *link*: at their caps if *stop* is ALONE and these are no higher than *level*, or at *level*."""
    frozen = 0
    for at in range(links[link].first, links[link].last):
        k = riders[at]
        if region[k].stop != UNDECIDED or (stop == ALONE and region[k].top > level):
            continue
        frozen += 1
        region[k].rate = rate = region[k].top if stop == ALONE else level
        region[k].stop = stop
        for h in range(region[k].begin, region[k + 1].begin):
            other = i8(near[h].link)
            links[other].live -= 1
            _spend(links, other, near[h].weight * rate)
            _unload(links, other, near[h].weight)
    return frozen


@_part
def _unload(links, link, weight):
    """Take *weight* from what waits on *link*."""
    old = links[link].load
    new = old - weight
    shift = new - old
    links[link].load_low += (old - (new - shift)) - (weight + shift)
    links[link].load = new


@_part
def _commit(slots, links, region, near, calendar, count, now):
    """Give the flows of the region their new rates, and the calendar their new ends."""
    n_links = len(links)
    for j in range(count.links):
        links[links[j].region].floor = np.inf
    for k in range(count.region):
        slot, rate, stop = i8(region[k].slot), region[k].rate, region[k].stop
        if rate != slots[slot].rate:  # an unchanged rate leaves the flow alone, to the bit: equal ends stay equal
            left = max(slots[slot].left - slots[slot].rate * (now - slots[slot].since), 0.0)
            slots[slot].left = left
            slots[slot].since = now
            slots[slot].rate = rate
            slots[slot].finish = now + left / rate
        for h in range(region[k].begin, region[k + 1].begin):
            _use(links, i8(near[h].link), near[h].weight * rate)
        if stop == ALONE:
            _schedule(calendar, count, n_links + slot, slots[slot].finish)
        else:
            if slots[slot].owner == ALONE:
                _cancel(calendar, count, n_links + slot)
            links[stop].floor = min(links[stop].floor, slots[slot].finish)
        slots[slot].owner = stop
    for j in range(count.links):
        link = i8(links[j].region)
        if links[link].floor < np.inf:
            _schedule(calendar, count, link, links[link].floor)
        else:
            _cancel(calendar, count, link)


@_part
def _resolve(
    transfers, given, hops, slots, links, members, region, near, riders, queue, tally, calendar, count, now
):  # fmt: skip
    """Share out the links of the region anew."""
    count.solves += 1
    _cut(transfers, given, hops, slots, links, region, count)
    from_slot, from_link = i8(0), i8(0)
    while True:
        _grow(transfers, hops, slots, links, members, region, count, from_slot, from_link)
        _gather(transfers, given, hops, slots, links, region, near, count, from_slot)
        count.work += region[count.region].begin
        _share(links, region, near, riders, queue, tally, count)
        from_slot, from_link = count.region, count.links
        for j in range(from_link):  # outsiders of links that have become tight join
            link = i8(links[j].region)
            if links[link].tight and not links[link].was_tight:
                _see_members(slots, links, members, region, count, link)
        if count.region == from_slot:
            break
    _commit(slots, links, region, near, calendar, count, now)


@_entry
def _run(
    transfers, given, hops, successors, roots, slots, seats, links, members, region, near, riders, queue, tally,
    calendar, count,
):  # fmt: skip
    """Go from event to event until nothing is left to happen."""
    _, latency_s, _ = given
    while True:
        now = np.inf
        if count.calendar:
            now = calendar[calendar[0].heap].time
        if count.root < len(roots):
            now = min(now, latency_s[roots[count.root]])
        if now == np.inf:
            return
        _advance(transfers, given, hops, successors, roots, slots, seats, links, members, region, calendar, count, now)
        if count.region or count.links:
            _resolve(
                transfers, given, hops, slots, links, members, region, near, riders, queue, tally, calendar, count, now
            )  # fmt: skip
            if count.work > count.check and _is_too_much(transfers, count):
                return


@_part
def _is_too_much(transfers, count):
    """Tell whether the rest is more work than wanted, at the pace since the last look; the next is at twice the work.

    Counts decide, not a clock: the same problem is always judged alike. Flows that end make events cheaper, so the
    rest costs half of what it would at this pace.
    """
    n, done = len(transfers) - 1, 0
    for i in range(n):
        done += i8(not np.isnan(transfers[i].start_s)) + i8(not np.isnan(transfers[i].finish_s))
    work, steps = count.work - count.work_then, done - count.done_then
    first = count.work_then == 0
    count.work_then = count.work
    count.done_then = done
    count.check = 2 * count.work
    if first or 0.5 * work * (2 * n - done) <= f8(count.most_work) * steps:
        return False
    count.check = GIVEN_UP
    return True


@_entry
def _fill_successors(dep_ptr, dep, transfers, successors):
    """Turn predecessor rows round: fill ``transfers.next`` (zeros) and *successors*."""
    n = len(dep_ptr) - 1
    for j in range(len(dep)):
        transfers[dep[j]].next += 1
    total = 0
    for i in range(n + 1):
        total += transfers[i].next
        transfers[i].next = total
    for i in range(n - 1, -1, -1):  # backwards, so that each row ends up in order
        for j in range(dep_ptr[i], dep_ptr[i + 1]):
            transfers[dep[j]].next -= 1
            successors[transfers[dep[j]].next] = i


def simulate(p: Problem, most_work: int | None = None) -> tuple[Floats, Floats, Floats, Floats, int] | None:
    """Simulate the checked problem *p*; give up, and return None, once more than *most_work* hops are left to look at.

    Returns
    -------
    ready_s, start_s, finish_s, moved_bytes : float64[n]
        NaN for transfers that never happened.
    solves : int
        How often rates were shared out.
    """
    arrays = _prepare(p)
    transfers, successors, count = arrays[0], arrays[3], arrays[-1]
    count.most_work, count.check = most_work or 0, FIRST_CHECK if most_work is not None else NEVER
    _fill_successors(p.dep_ptr, p.dep, transfers, successors)
    _run(*arrays)
    if count.check == GIVEN_UP:
        return None
    return *answers(transfers), int(count.solves)


def tables(p):
    """Return the tables that compiled engines take: transfers, hops, roots by latency, and incidences of each link."""
    n, n_links = len(p.route), len(p.capacity_Bps)
    route_hops = np.diff(p.route_ptr)
    users = np.repeat(np.bincount(p.route, minlength=len(route_hops)), route_hops)
    on_link = np.bincount(p.route_link, weights=users, minlength=n_links).astype(i8)
    incidences = int(on_link.sum())
    if max(n + n_links, incidences, len(p.route_link), len(p.dep)) >= 2**31 - 1:
        raise OverflowError(f"{n} transfers with {incidences} hops are more than one run can hold (2^31)")
    waits = np.diff(p.dep_ptr)
    roots = np.flatnonzero(waits == 0)
    transfers = np.zeros(n + 1, dtype=TRANSFER)
    own = transfers[:-1]
    own["ready_s"] = np.where(waits == 0, 0.0, np.nan)
    own["start_s"] = own["finish_s"] = own["moved_bytes"] = np.nan
    own["first"], own["hops"], own["waits"] = p.route_ptr[p.route], route_hops[p.route], waits
    hops = np.empty(len(p.route_link), dtype=HOP)
    hops["link"], hops["weight"] = p.route_link, p.route_weight
    return transfers, hops, roots[np.argsort(p.latency_s[roots], kind="stable")].astype(i4), on_link


def answers(transfers):
    """Return ready_s, start_s, finish_s and moved_bytes of all transfers: columns of their table, not copied."""
    return tuple(transfers[name][:-1] for name in ("ready_s", "start_s", "finish_s", "moved_bytes"))


def _prepare(p):
    """Lay out the state of a run; pages that stay untouched cost nothing."""
    n, n_links = len(p.route), len(p.capacity_Bps)
    transfers, hops, roots, on_link = tables(p)
    incidences, widest = int(on_link.sum()), max(int(np.diff(p.route_ptr).max(initial=0)), 1)
    links = np.zeros(n_links, dtype=LINK)
    links["capacity"], links["begin"] = p.capacity_Bps, np.cumsum(on_link) - on_link
    arrays = (
        transfers,
        (p.size_bytes, p.latency_s, p.cap_Bps),
        hops,
        np.empty(len(p.dep), dtype=i4),
        roots,
        np.zeros(n, dtype=SLOT),
        np.empty((n, widest), dtype=i4),
        links,
        np.empty(incidences, dtype=MEMBER),
        np.empty(n + 1, dtype=REGION),
        np.empty(incidences, dtype=HOP),
        np.empty(incidences, dtype=u4),
        np.zeros(n_links, dtype=ENTRY),
        np.zeros(1, dtype=COUNT),
        np.zeros(n_links + n, dtype=ENTRY),
        np.zeros(1, dtype=COUNT),
    )
    named = (as_attributes(each) for each in arrays)
    return tuple(a[0] if getattr(a, "dtype", None) == COUNT else a for a in named)  # a part of its array, no copy


def as_attributes(array):
    """Return an array with its fields as attributes, compiled or not."""
    return array.view(np.recarray) if isinstance(array, np.ndarray) and array.dtype.names else array
