"""All-reduce, all-gather and reduce-scatter by rings on a machine that a small part stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collsim.collectives import Algorithm, NodeLayout, ScheduleRequest
from collsim.collectives.node_rings import local_path
from collsim.collectives.ring import loops_of, program_of
from collsim.core.errors import Fault, UnsupportedError
from collsim.engine.wavefront import Chain, RingTurn, Row, march, periodic
from collsim.fabric.fabric import Float, Int
from collsim.simulation.concurrent import GroupTask, part_of
from collsim.simulation.method import Method
from collsim.simulation.problems import problem_of
from collsim.simulation.quotient.link_loads import carried
from collsim.simulation.quotient.paces import Paces, Places, Road, Stream, paces_of, places_of
from collsim.simulation.quotient.representatives import Miniature
from collsim.simulation.runs import LoweredRun
from collsim.simulation.time_parts import all_rows, chain_parts
from collsim.simulation.timing import Timing, base_s, kernel_costs, record_timing, refuse_broken_laws

__all__ = [
    "Critical",
    "Leg",
    "OutOfStepError",
    "counts_adding",
    "on_wires",
    "paced",
    "ring_timing",
    "stream_of",
    "timing_of",
    "turns_of",
    "walk",
]

MOST_UNEVEN = 10_000_000_000
"""So many transfers take half a minute; above, chunks are taken as equal, so that a ring may repeat itself."""
MOST_TRANSFERS = 200_000_000_000
"""So many transfers of a ring that does not repeat itself take two minutes."""
"""Said of how a row was computed if chunks that differ by an element were taken as the largest."""
CLOSE = 1e-9
"""Relative difference of two times that are the same but for rounding."""


class RingRounds(NamedTuple):
    """Times of the rounds of streams, float64[streams, n] by place."""

    sent_s: Float
    """When each place has sent its last chunk."""
    got_s: Float
    """When the next place has it."""
    latency_s: Float
    """Seconds of the first in which no bytes flowed."""


class Critical(NamedTuple):
    """Time of the slowest chain of transfers, and the part of it in which no bytes flowed."""

    time_s: float
    latency_s: float
    at_cap: bool
    """True if bytes flowed at the rate of the channels."""


def ring_timing(
    algorithm: Algorithm, mini: Miniature, run: LoweredRun, request: ScheduleRequest, kernel: tuple[str, str]
) -> tuple[Timing, int]:
    """Return the timing of a ring schedule of all ranks, and its channels; *kernel* is the protocol and the data type.

    Raises
    ------
    UnsupportedError
        Channels meet on links out of step, so that every transfer would have to be simulated.
    """
    road, n = _road(mini), request.n_ranks
    told = counts_adding(run, algorithm.family_for(request.op.name), kernel)
    streams, turns, rounded = _programs(mini, request, road, told=told)
    places = places_of(mini, road, streams, lanes=1)
    part, paces = paced(mini, run, request, (algorithm.name, road, streams, places), kernel)
    rounds = walk(paces, turns, np.zeros((len(streams), n)))
    stream, place = np.unravel_index(int(rounds.got_s.argmax()), rounds.got_s.shape)
    time_s, sent_s = float(rounds.got_s[stream, place]), float(rounds.sent_s[stream, place])
    latency_s = float(rounds.latency_s[stream, place]) + time_s - sent_s
    critical = Critical(time_s, latency_s, bool(paces.at_cap[stream][place]))
    largest = max(size for each in streams for size, _ in each.kinds)
    loads = carried(mini, part.run.fabric.capacity_Bps, road.units, [paces.carried], paces.above)
    timing = timing_of(part, loads, critical, len(places.transfers), largest_bytes=largest)
    return replace(timing, method=replace(timing.method, equal_chunks=rounded)), sum(each.copies for each in streams)


def _programs(
    mini: Miniature, request: ScheduleRequest, road: Road, *, told: bool
) -> tuple[list[Stream], list[list[RingTurn]], bool]:
    """Return the streams of a ring schedule, what each of them does, and whether unequal chunks were taken as equal.

    *told* is whether it matters that who gets a chunk adds.
    """
    n, name = request.n_ranks, request.op.name
    shares = request.shares(request.size_bytes if name == "all_reduce" else request.block_bytes)
    equal = Counter((channel % len(road.paths[0]), int(share)) for channel, share in enumerate(shares))
    legs = [(np.array([-place for place, adds in program_of(name, n) if adds is leg]), leg) for leg in (True, False)]
    legs = [(steps, leg and told) for steps, leg in legs if len(steps)]
    whole = loops = {share: loops_of(request, share) for _, share in equal}
    uneven = any(sizes.min() < sizes.max() for share in loops for sizes in loops[share])
    rounded = uneven and n * max(map(len, loops.values())) * sum(len(steps) for steps, _ in legs) > MOST_UNEVEN
    if rounded:
        loops = {share: [np.full(n, sizes.max()) for sizes in loops[share]] for share in loops}
    streams, turns = [], []
    for (ring, share), copies in equal.items():
        sent_bytes = stream_of(ring, whole[share], legs, copies).sent_bytes
        streams.append(stream_of(ring, loops[share], legs, copies)._replace(sent_bytes=sent_bytes))
        order = _order(mini, road, ring)
        turns.append([turn for sizes in loops[share] for turn in turns_of(sizes[order], streams[-1], legs)])
    return streams, turns, rounded


Leg = tuple[Int, bool]
"""Steps of a ring, by how many places before the chunk starts, and whether it matters that who gets it adds."""


def counts_adding(run: LoweredRun, family: str, kernel: tuple[str, str]) -> bool:
    """Return True if steps whose receiver adds have rates of their own, with a protocol and a data type."""
    proto, dtype = kernel
    return dtype in kernel_costs(run, proto, family).reduce_rates_Bps


def stream_of(ring: int, loops: Sequence[Int], legs: Sequence[Leg], copies: int = 1) -> Stream:
    """Return equal channels on a ring, with chunks of these sizes in each loop."""
    sizes = sorted({int(size) for chunks in loops for size in np.unique(chunks)}, reverse=True)
    kinds = [(size, adds) for adds in dict.fromkeys(adds for _, adds in legs) for size in sizes]
    sent_bytes = sum(float(chunks.sum() - chunks.max()) for chunks in loops) * len(legs)
    return Stream(ring, tuple(kinds), copies, sent_bytes)


def turns_of(sizes: Int, stream: Stream, legs: Sequence[Leg]) -> list[RingTurn]:
    """Return the legs of one loop; *sizes* are of the chunks that each place starts with."""
    turns = []
    for steps, leg in legs:
        numbers = [number for number, (_, adds) in enumerate(stream.kinds) if adds == leg]
        falling = -np.array([stream.kinds[number][0] for number in numbers])
        turns.append(RingTurn(numbers[0] + np.searchsorted(falling, -sizes).astype(np.int64), steps))
    return turns


def _road(mini: Miniature) -> Road:
    """Return the order in which rings of NCCL pass the ranks: node by node, or one after the other in a domain."""
    per = mini.frame.per_unit
    units, start, stops = np.unique(mini.gpus // per, return_index=True, return_counts=True)
    if mini.topology.cluster is None:
        return Road(units, np.zeros(len(units), dtype=np.int64), (((0,),),))
    sets = [tuple((mini.gpus[a : a + k] % per).tolist()) for a, k in zip(start.tolist(), stops.tolist(), strict=True)]
    patterns = list(dict.fromkeys(sets))
    layout = NodeLayout(tuple(tuple(range(len(each))) for each in patterns), tuple(patterns))
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


def paced(
    mini: Miniature,
    run: LoweredRun,
    request: ScheduleRequest,
    hops: tuple[str, Road, Sequence[Stream], Places],
    kernel: tuple[str, str],
    **parameters: int,
) -> tuple[GroupTask, Paces]:
    """Return the hops of an algorithm as lowered on the part with their costs, and how fast they are.

    *hops* are those of an algorithm of that name; *kernel* is the protocol and the data type; *parameters* are of the
    schedule.
    """
    algo, road, streams, places = hops
    part = part_of(request.schedule(algo, places.chunks, places.transfers, **parameters), on_wires(run), *kernel)
    problem = problem_of(part.lowered, part.run, part.costs, part.network)
    return part, paces_of(mini, road, streams, places, problem)


def on_wires(run: LoweredRun) -> LoweredRun:
    """Return the run with routes over links, not over trunks."""
    return replace(run, trunks=run.routes, trunk_capacity_Bps=run.fabric.capacity_Bps)


def walk(paces: Paces, turns: Sequence[Sequence[RingTurn]], ready_s: Float, *, everywhere: bool = False) -> RingRounds:
    """Return the times of the streams' rounds.

    Parameters
    ----------
    paces : Paces
    turns : sequence of sequence of RingTurn
        Of each stream.
    ready_s : float64[streams, n]
        When each place begins.
    everywhere : bool
        Whether times are to be right at all places, or only the last of them.

    Raises
    ------
    UnsupportedError
        They are not known.
    """
    walked: dict[bytes, Row] = {}
    rows = []
    for number, (fast, slow, turn) in enumerate(zip(paces.fast, paces.slow, turns, strict=True)):
        columns = [*fast, *slow, ready_s[number], *(each.kind for each in turn)]
        key = b"".join(column.tobytes() for column in columns)
        if key not in walked:
            walked[key] = _walked((fast, slow), turn, ready_s[number], everywhere=everywhere)
        rows.append(walked[key])
    if paces.in_step and len(walked) > 1:
        raise out_of_step()
    sent_s, got_s, latency_s = (np.stack(column) for column in zip(*rows, strict=True))
    return RingRounds(sent_s, got_s, latency_s)


def _walked(chains: tuple[Chain, Chain], turns: Sequence[RingTurn], ready_s: Float, *, everywhere: bool) -> Row:
    """Return the times of one stream; raise UnsupportedError unless its two chains take the same time."""
    slow = _marched(chains[1], turns, ready_s)
    if all(np.array_equal(a, b) for a, b in zip(*chains, strict=True)):
        return slow
    fast = _marched(chains[0], turns, ready_s)
    whole_s = slow[1].max()
    apart_s = np.abs(np.stack(slow[:2]) - np.stack(fast[:2])).max() if everywhere else whole_s - fast[1].max()
    if apart_s > CLOSE * whole_s:
        raise out_of_step()
    return slow


def _marched(chain: Chain, turns: Sequence[RingTurn], ready_s: Float) -> Row:
    """Return the times of a stream of such transfers, from its first places if they repeat."""
    parts, short, ready = periodic(chain, turns, ready_s)
    if (transfers := len(ready) * sum(len(turn.distances) for turn in turns)) > MOST_TRANSFERS:
        what = f"a ring of {transfers:,} transfers that does not repeat itself takes too long"
        raise UnsupportedError(Fault(what, "ranks", "ask for fewer ranks, or for sizes that they divide"))
    times = len(ready_s) // len(ready)
    sent_s, got_s, latency_s = (np.tile(column, times) for column in march(parts, short, ready))
    return sent_s, got_s, latency_s


class OutOfStepError(UnsupportedError):
    """Channels meet on links at times that only a simulation of every transfer tells."""


def out_of_step() -> OutOfStepError:
    """Return the error of rings whose channels do not keep in step."""
    what = "channels meet on links out of step, so every transfer would have to be simulated"
    return OutOfStepError(Fault(what, "algo", "ask for fewer ranks, one channel, or another algorithm"))


def timing_of(
    part: GroupTask, loads: tuple[Float, Int], critical: Critical, simulated: int, *, largest_bytes: int
) -> Timing:
    """Return the timing of a schedule, from the time of its slowest chain.

    *loads* are bytes on each link and how many links it stands for; *largest_bytes* is of the largest transfer.
    """
    once_s = base_s(part.lowered, part.costs, part.network, np.array([float(largest_bytes)]))
    flow_s = critical.time_s - critical.latency_s
    both_costs = part.costs, part.network
    problem = problem_of(part.lowered, part.run, *both_costs)
    chain = all_rows(problem, (critical.latency_s, flow_s), at_cap=critical.at_cap)
    parts = chain_parts(part.lowered, part.run, both_costs, problem, chain, link_bytes=loads[0])
    parts.add_once(part.lowered, part.run, both_costs, once_s, float(largest_bytes))
    timing = record_timing(
        part.lowered,
        part.run,
        both_costs,
        (once_s, once_s + critical.time_s),
        waits_s={
            "latency": critical.latency_s,
            "channel rate": flow_s if critical.at_cap else 0.0,
            "links": 0.0 if critical.at_cap else flow_s,
        },
        parts=parts,
        link_bytes=loads[0],
        link_members=loads[1],
        method=Method("wavefront"),
        simulated=simulated,
        solves=0,
    )
    refuse_broken_laws(part.lowered.schedule, timing, part.run, ())
    return timing
