"""Ranks that are all alike: one transfer for each row of orbits, on switches that treat every rank the same.

On such a domain a message takes as much of what leaves its sender as of what enters its receiver, whoever they are. A
row of orbits has every rank send once and receive once, and wait for one transfer of each row that it names. So the
rows are classes of transfers that behave alike (see `collsim.engine.symmetry`), and all links out of ranks, and all
into them, are one class each: those of the first rank, with one link out and one in, take exactly as long.

That needs the chunks of a row to be equally large. Where they are not, the smallest stand for all, which is not the
time but a bound from below: every wait and every load of the whole is as long or longer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collsim.collectives import family_of, record_of
from collsim.core.arrays import pointers
from collsim.fabric.domain import links_to_switches
from collsim.fabric.fabric import Float, Int
from collsim.fabric.reduction_trees import TreePorts
from collsim.fabric.routes import Routes
from collsim.library.costs.laws import groups_messages
from collsim.schedule import Circles, Orbits, Schedule
from collsim.simulation.lowering import Lowered, narrowest_Bps, use_of, ways_of
from collsim.simulation.request.request import PROTOCOLS
from collsim.simulation.runs import LoweredRun

__all__ = ["are_alike", "laid_once"]

OUT, IN = 0, 1
"""The two links of the rank that stands for all."""


def are_alike(run: LoweredRun) -> bool:
    """Return True if all ranks of a run have equal links to the same switches, and nothing else; found once."""
    if "alike" not in run.found:
        run.found["alike"] = _are_alike(run)
    return bool(run.found["alike"])


def _are_alike(run: LoweredRun) -> bool:
    fabric = run.fabric
    if fabric.joins_ranks or fabric.memory_Bps is not None or fabric.machine.cluster is not None or fabric.n_ranks < 2:
        return False
    _, up, down = links_to_switches(fabric)
    looks = [
        np.append(column, 0.0)[table]
        for column in (fabric.nominal_Bps, fabric.capacity_Bps, fabric.link_latency_s)
        for table in (up, down)
    ]
    same = all((each == each[0]).all() for each in [*looks, *run.port_rates_Bps])
    there = (looks[0][0] > 0) & (looks[1][0] > 0)
    return bool(same and there.any())


def laid_once(schedule: Schedule, run: LoweredRun, dtype: str) -> Lowered | None:
    """Return *schedule* laid on the fabric of *run* by the transfers of one rank; None if they stand for no others.

    Where chunks of a row differ, sizes are the smallest and the answer `bounds` only: its time is none.
    """
    if not (all(isinstance(phase, Orbits | Circles) for phase in schedule.phases) and are_alike(run)):
        return None
    if not _is_plain(schedule, run):
        return None
    sizes, even = _family_bytes(schedule)
    parts = [_rows(phase, schedule, sizes) for phase in schedule.phases if isinstance(phase, Orbits | Circles)]
    one = replace(schedule, n_ranks=1, phases=tuple(rows for rows, _, _ in parts)).materialise()
    joins = np.zeros(1, dtype=np.int64)
    columns = [column for _, size, target in parts for column in ((size, target), (joins, joins))][:-1]
    size_bytes, dst = (np.concatenate(column) for column in zip(*columns, strict=True))
    transfers = replace(one, dst=dst)
    crossed, number = _ways(schedule, transfers.src, dst, run)
    sends = np.flatnonzero(dst != 0)
    n, hops = len(dst), (dst != 0).astype(np.int64) * 2
    first = crossed.take(number[sends[:1]], np.ones(1))
    trunk_Bps = np.full(2, float(narrowest_Bps(first, run.fabric.capacity_Bps).min()))
    ends = np.tile(np.array([OUT, IN]), len(sends))
    own = Routes(pointers(hops), ends, np.ones(len(ends)), crossed.latency_s[number], np.ones(n))
    own_run = replace(run, trunks=own, trunk_capacity_Bps=trunk_Bps)
    none = np.zeros(n, dtype=np.bool_)
    return Lowered(
        schedule=schedule,
        run=own_run,
        transfers=transfers,
        size_bytes=size_bytes.astype(np.float64),
        route=np.arange(n),
        used=np.arange(n),
        copies=transfers.copies,
        across=none,
        added=none,
        use=use_of(transfers, own_run, np.arange(n), schedule.groups),
        dtype=dtype,
        steps=None,
        carried=_carried(float((size_bytes * transfers.copies)[sends].sum()), first, run),
        ways=crossed.take(number, np.ones(n)),
        bounds=not even,
    )


def _is_plain(schedule: Schedule, run: LoweredRun) -> bool:
    """Return True unless messages are grouped, with whose costs ranks wait for each other beyond what transfers say."""
    law, family = record_of(schedule.op, schedule.algo).cost_law, family_of(schedule.op, schedule.algo)
    return not any(groups_messages(law, run.profile.protocol(proto, family)) for proto in PROTOCOLS)


def _family_bytes(schedule: Schedule) -> tuple[Int, bool]:
    """Return int64[n_families], the bytes of the smallest chunk of each family, and whether all are as large."""
    table = schedule.chunks.size_bytes.reshape(-1, schedule.n_ranks)
    least = table.min(axis=1)
    return least, bool((table == least[:, None]).all())


def _rows(phase: Orbits | Circles, schedule: Schedule, family_bytes: Int) -> tuple[Orbits, Int, Int]:
    """Return the rows of a phase as orbits of one rank, equal channels merged; their bytes, and whom the first sends
    to.
    """
    rows = phase.merged(schedule.chunks).orbits() if isinstance(phase, Circles) else phase
    total = np.concatenate(([0], np.cumsum(family_bytes[rows.chunk_family])))
    size_bytes = np.diff(total[rows.chunk_ptr])
    if isinstance(phase, Orbits):
        rows, size_bytes = rows.with_equal_merged(size_bytes)
    which, n = rows.channel % len(rows.order), rows.order.shape[1]
    place = np.argmax(rows.order == 0, axis=1)[which]
    target = rows.order[which, (place + rows.shift) % n]
    alone = np.zeros(len(rows.channel), dtype=np.int64)
    one = replace(
        rows,
        order=np.zeros((1, 1), dtype=np.int64),
        shift=alone,
        chunk_ptr=np.arange(len(alone) + 1),
        chunk_family=alone,
        chunk_offset=alone,
        dep_shift=np.zeros_like(rows.dep_shift),
    )
    return one, size_bytes, target


def _ways(schedule: Schedule, src: Int, dst: Int, run: LoweredRun) -> tuple[Routes, Int]:
    """Return routes and which of them the transfers of one rank take, found once for the sizes of a run."""
    key = "ways of one", dst.tobytes()
    if key not in run.found:
        taken = ways_of(schedule, (src, dst), run, TreePorts.free(run.fabric))
        run.found[key] = taken.run.routes, taken.number
    found: tuple[Routes, Int] = run.found[key]
    return found


def _carried(sent_bytes: float, first: Routes, run: LoweredRun) -> tuple[Float, Float]:
    """Return float64[n_links] twice: what each link carries if every rank sends so much, and nothing between nodes."""
    fabric = run.fabric
    _, up, down = links_to_switches(fabric)
    share = np.zeros(fabric.n_links + 1)
    share[first.link] = first.weight
    found = np.zeros(fabric.n_links + 1)
    for table in (up, down):
        like = share[table].max(axis=0) * (table[0] >= 0)
        found[table] = like[None, :] * sent_bytes
    return found[:-1], np.zeros(fabric.n_links)
