"""All-reduce, all-gather and reduce-scatter by rings on a machine that a small part stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collsim.bounds import lower_bound
from collsim.collectives import Layout, Request
from collsim.collectives.node_rings import local_path
from collsim.collectives.ring import loops_of, program_of
from collsim.engine.wavefront import Chain, Turn, march, periodic
from collsim.errors import Fault, UnsupportedError
from collsim.fabric import Float, Int
from collsim.lowering import Run
from collsim.operations import operation
from collsim.ring_places import Paces, Places, Road, Stream, paces_of, places_of
from collsim.timing import Timing, base_s, call_time_s, problem_of, refuse_broken_laws
from collsim.together import Part, part_of
from collsim.topology.miniature import Miniature

__all__ = ["Walk", "paced", "ring_timing", "timing_of_walk", "walk"]

MOST_STEPS = 10_000_000_000
"""So many transfers take some seconds; above, chunks are taken as equal, so that a ring repeats itself."""
CLOSE = 1e-9
"""Relative difference of two times that are the same but for rounding."""


class Walk(NamedTuple):
    """How the slowest stream went."""

    time_s: float
    latency_s: float
    at_cap: bool
    """Whether bytes flowed at the rate of the channels there."""


def ring_timing(mini: Miniature, run: Run, request: Request, proto: str, dtype: str) -> tuple[Timing, int]:
    """Return how a ring schedule of all ranks ran, and its channels.

    Raises
    ------
    UnsupportedError
        Channels meet on links out of step, so that every transfer would have to be simulated.
    """
    road, n = _road(mini), request.n_ranks
    shares = request.shares(request.size_bytes if request.op.name == "all_reduce" else request.block_bytes)
    equal = Counter((channel % len(road.paths[0]), int(share)) for channel, share in enumerate(shares))
    steps = np.array([-offset for offset, _ in program_of(request.op.name, n)], dtype=np.int64)
    loops = {share: _loops(request, share, n * len(steps)) for _, share in equal}
    streams = [
        Stream(
            ring=ring,
            sizes=tuple(sorted({int(size) for sizes in loops[share] for size in np.unique(sizes)}, reverse=True)),
            copies=copies,
            sent_bytes=sum(float(sizes.sum()) for sizes in loops[share]) * len(steps) / n,
        )
        for (ring, share), copies in equal.items()
    ]
    places = places_of(mini, road, streams, lanes=1)
    part, paces = paced(mini, run, request, ("ring", road, streams, places), (proto, dtype))
    turns = [
        [_turn(sizes, stream, _order(mini, road, stream.ring), steps) for sizes in loops[share]]
        for (_, share), stream in zip(equal, streams, strict=True)
    ]
    slowest, _ = walk(paces, turns, np.zeros(n))
    timing = timing_of_walk(part, paces, slowest, len(places.transfers))
    return timing, len(shares)


def _loops(request: Request, share_bytes: int, transfers: int) -> list[Int]:
    """Return the sizes of the chunks of each loop, by rank; all as the largest where a ring would be too long."""
    loops = loops_of(request, share_bytes)
    if transfers * len(loops) <= MOST_STEPS:
        return loops
    return [np.full(len(sizes), sizes.max()) for sizes in loops]


def _road(mini: Miniature) -> Road:
    """Return the order in which rings of NCCL pass the ranks: node by node, or one after the other in a domain."""
    per = mini.frame.per_unit
    units, start, stops = np.unique(mini.gpus // per, return_index=True, return_counts=True)
    if mini.topology.cluster is None:
        return Road(units, np.zeros(len(units), dtype=np.int64), (((0,),),))
    sets = [tuple((mini.gpus[a : a + k] % per).tolist()) for a, k in zip(start.tolist(), stops.tolist(), strict=True)]
    patterns = list(dict.fromkeys(sets))
    layout = Layout(tuple(tuple(range(len(each))) for each in patterns), tuple(patterns))
    swaps = layout.is_even and len(patterns[0]) % 2 == 0
    entries = layout.entries()
    number = {pattern: place for place, pattern in enumerate(patterns)}
    style = np.array([number[each] for each in sets]) * 2 + np.arange(len(units)) % 2
    paths = [
        [[pattern[i] for i in local_path(len(pattern), ring[place], reverse=swaps and odd)] for ring in entries]
        for place, pattern in enumerate(patterns)
        for odd in (False, True)
    ]
    return Road(units, style.astype(np.int64), paths)


def _order(mini: Miniature, road: Road, ring: int) -> Int:
    """Return int64[n]: the rank at each place of a ring."""
    stops = road.stops
    unit = np.repeat(np.arange(len(stops)), stops)
    hop = np.arange(len(unit)) - np.repeat(np.cumsum(stops) - stops, stops)
    paths = np.full((len(road.paths), int(stops.max())), -1, dtype=np.int64)
    for style, rings in enumerate(road.paths):
        paths[style, : len(rings[ring])] = rings[ring]
    gpus = road.units[unit] * mini.frame.per_unit + paths[road.style[unit], hop]
    return np.searchsorted(mini.gpus, gpus)


def _turn(sizes: Int, stream: Stream, order: Int, steps: Int) -> Turn:
    """Return one loop of a stream: the kind of the chunk that each place starts with."""
    if len(stream.sizes) == 1:
        return Turn(np.zeros(len(order), dtype=np.int64), steps)
    falling = -np.array(stream.sizes)
    return Turn(np.searchsorted(falling, -sizes[order]).astype(np.int64), steps)


def paced(
    mini: Miniature,
    run: Run,
    request: Request,
    hops: tuple[str, Road, Sequence[Stream], Places],
    kernel: tuple[str, str],
) -> tuple[Part, Paces]:
    """Return the hops of an algorithm as lowered on the part with their costs, and how fast they are.

    *hops* are those of an algorithm of that name; *kernel* is the protocol and the data type.
    """
    algo, road, streams, places = hops
    wires = replace(run, trunks=run.routes, trunk_capacity_Bps=run.fabric.capacity_Bps)
    part = part_of(request.schedule(algo, places.chunks, places.transfers), wires, *kernel)
    problem = problem_of(part.lowered, part.run, part.costs, part.network)
    return part, paces_of(mini, road, streams, places, problem)


def walk(paces: Paces, turns: Sequence[Sequence[Turn]], ready_s: Float) -> tuple[Walk, int]:
    """Return how the slowest stream went when all begin at *ready_s*, and how many of them are different.

    Raises
    ------
    UnsupportedError
        It is not known.
    """
    walked: dict[bytes, Walk] = {}
    for fast, slow, at_cap, turn in zip(paces.fast, paces.slow, paces.at_cap, turns, strict=True):
        columns = [*fast, *slow, *(each.kind for each in turn)]
        key = b"".join(column.tobytes() for column in columns)
        if key not in walked:
            walked[key] = _walked(fast, slow, at_cap, turn, ready_s)
    if paces.in_step and len(walked) > 1:
        raise out_of_step()
    return max(walked.values()), len(walked)


def _walked(fast: Chain, slow: Chain, at_cap: Float, turns: Sequence[Turn], ready_s: Float) -> Walk:
    """Return how one stream went."""
    times = []
    for chain in (slow, fast):
        parts, short, ready = periodic(chain, turns, ready_s)
        sent_s, got_s, spent_s = march(parts, short, ready)
        last = int(np.argmax(got_s))
        latency_s = float(spent_s[last] + got_s[last] - sent_s[last])
        times.append(Walk(float(got_s[last]), latency_s, bool(at_cap[last])))
        if all(np.array_equal(a, b) for a, b in zip(fast, slow, strict=True)):
            return times[0]
    if times[0].time_s > times[1].time_s * (1 + CLOSE):
        raise out_of_step()
    return times[0]


def out_of_step() -> UnsupportedError:
    """Return the error of rings whose channels do not keep in step."""
    what = "channels meet on links out of step, so every transfer would have to be simulated"
    return UnsupportedError(Fault(what, "ring", "ask for fewer ranks, or for one channel"))


def timing_of_walk(part: Part, paces: Paces, slowest: Walk, simulated: int) -> Timing:
    """Return how a schedule ran whose slowest stream went like this."""
    run, schedule = part.run, part.lowered.schedule
    once_s = base_s(part.lowered, part.costs, part.network)
    device_s = once_s + slowest.time_s
    total_s = call_time_s(device_s, run.profile.floor_s, run.profile.wait_s)
    flow_s = slowest.time_s - slowest.latency_s
    timing = Timing(
        time_s=run.profile.launch_s + total_s,
        link_bytes=paces.link_bytes,
        critical_s={
            "launch": run.profile.launch_s + once_s + max(total_s - device_s, 0.0),
            "latency": slowest.latency_s,
            "channel rate": flow_s if slowest.at_cap else 0.0,
            "links": 0.0 if slowest.at_cap else flow_s,
        },
        path="wavefront",
        simulated=simulated,
        bound=lower_bound(operation(schedule.op), schedule.size_bytes, run.cuts),
    )
    refuse_broken_laws(schedule, timing, run, ())
    return timing
