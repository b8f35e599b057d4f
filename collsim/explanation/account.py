"""`explain`: one run, what it chose and why, where its time goes, and what would change it most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from collsim.core.errors import Fault, InputError
from collsim.explanation.bench import Bench, answered
from collsim.explanation.changes import changes_of
from collsim.explanation.chosen import chosen_of, with_simulated
from collsim.explanation.findings import Explanation, LinkUse, Phase, Span, TierUse
from collsim.explanation.split import parts_of
from collsim.explanation.what_ifs import what_ifs_of
from collsim.schedule import Schedule
from collsim.simulation.request.arguments import Arguments
from collsim.simulation.request.one_run import refuse_several
from collsim.simulation.request.prepare import Prepared, prepare
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["checked", "explain", "explained"]

MOST_TRANSFERS = 1_000_000
"""Transfers that are written out to say what phases there are."""
MOST_DRAWN_LINKS = 6_000
MOST_DRAWN_NODES = 200
MOST_SPANS = 4_000
TITLES = {
    "gpu->nic": "PCIe, to adapters", "nic->gpu": "PCIe, from adapters", "gpu->cpu": "PCIe, to CPUs",
    "cpu->gpu": "PCIe, from CPUs", "cpu->cpu": "between CPUs", "nic->leaf": "adapters, sending",
    "leaf->nic": "adapters, receiving", "leaf->spine": "leaf to spine", "spine->leaf": "spine to leaf",
    "spine->core": "spine to core", "core->spine": "core to spine",
}  # fmt: skip
"""Names of tiers for people, where the topology has none."""


def explain(
    topo: str | Path | Topology | nx.Graph[Any],
    op: str,
    size: int | str | None = None,
    *,
    split: str | None = None,
    what_ifs: bool = True,
    **asked: Unpack[Arguments],
) -> Explanation:
    """Explain how long one collective takes.

    Parameters
    ----------
    topo, op, size, split
        As of `collsim.simulate`: one operation, one size, one algorithm or ``auto`` or ``best``.
    what_ifs : bool
        Whether to simulate what would make it faster: some twenty runs.
    **asked
        Whatever else `collsim.simulate` takes.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        Whatever is wrong with the request, all of it at once; it asks for more than one run.
    ModelError
        Ranks cannot reach each other, or the schedule deadlocks.

    Examples
    --------
    >>> found = explain("mi300x_ubb8", "all_to_all", "64M", what_ifs=False)
    >>> abs(sum(part.time_s for part in found.parts) / found.time_s - 1) < 1e-6
    True
    >>> max(found.parts, key=lambda part: part.time_s).title
    'serialisation at line rate: egress gpu0'
    """
    return explained({"topo": topo, "op": op, "size": size, "split": split, **asked}, what_ifs=what_ifs)


def explained(asked: Mapping[str, Any], *, what_ifs: bool = True) -> Explanation:
    """Explain the run that the arguments of `collsim.simulate` ask for; raises as `explain` does."""
    prepared = checked(asked)
    bench = answered(prepared)
    if bench.row.time_s <= 0:
        raise InputError(Fault("nothing moves: there is nothing to explain", "size", "ask for more bytes"))
    chosen = chosen_of(bench)
    changes = changes_of(bench, asked, chosen) if what_ifs else []
    in_order = bench.in_order()
    found, simulated_s = what_ifs_of(bench, asked, changes, in_order)
    spans, spans_told = _spans(bench)
    return Explanation(
        result=replace(bench.result, rows=(replace(bench.row, loads=None),)),
        chosen=with_simulated(chosen, simulated_s, bench.row.time_s),
        phases=_phases(bench),
        tiers=_tiers(bench),
        parts=parts_of(bench, in_order),
        what_ifs=found,
        links=_links(bench),
        spans=spans,
        spans_told=spans_told,
        notes=_notes(bench),
    )


def checked(asked: Mapping[str, Any]) -> Prepared:
    """Return the checked question of arguments of `collsim.simulate` that ask for one run.

    Raises
    ------
    InputError
        Every fault of the request; or all of which it has more than one.
    """
    prepared = prepare(**asked)
    refuse_several(prepared, "one run is explained")
    return prepared


def _phases(bench: Bench) -> tuple[Phase, ...]:
    """Return what the transfers do, and where, in the order in which they begin."""
    loads = bench.row.loads
    schedule = None if loads is None else loads.schedule
    if schedule is None or schedule.n_transfers > MOST_TRANSFERS:
        return ()
    node = bench.asked.topology.wiring.coordinates.node
    gpus = bench.row.group_times[0].gpus if bench.row.group_times else bench.gpus
    if schedule.n_ranks > len(gpus):
        return ()
    return tuple(
        phase for form in schedule.phases for phase in _of_form(form.materialise(), schedule, node[list(gpus)])
    )


def _of_form(transfers: Any, schedule: Schedule, node: Any) -> list[Phase]:
    """Return the kinds of transfers of one form of a schedule; *node* is the domain of each rank."""
    own = np.flatnonzero(np.diff(transfers.chunk_ptr) > 0)
    if not len(own):
        return []
    src, dst = transfers.src[own], transfers.dst[own]
    switches = (src < 0) | (dst < 0)
    between = ~switches & (node[src] != node[dst])
    adds = transfers.reduces[own] | (switches & (src < 0))
    kind = 2 * adds + between + 4 * switches
    size_bytes, step = transfers.size_bytes(schedule.chunks)[own], transfers.step[own]
    times = transfers.copies[own]
    found = []
    for key in sorted(set(kind.tolist()), key=lambda key: int(step[kind == key].min())):
        rows = kind == key
        found.append(
            Phase(
                does="add" if key & 2 else "copy",
                where="in the switches" if key & 4 else "between nodes" if key & 1 else "within nodes",
                steps=len(np.unique(step[rows])),
                transfers=int(times[rows].sum()),
                bytes=float((size_bytes[rows] * times[rows]).sum()),
            )
        )
    return found


def _tiers(bench: Bench) -> tuple[TierUse, ...]:
    """Return what each tier carries."""
    row, labels = bench.row, bench.asked.topology.labels
    if row.loads is None:
        return ()
    link = labels.get("link.type", "links")
    return tuple(
        TierUse(
            tier.name, TITLES.get(tier.name, f"{link}, {tier.name.replace('->', ' to ')}"), tier.links, tier.bytes,
            tier.mean, tier.busiest, tier.link, tier.capacity_Bps,
        )
        for tier in row.loads.tiers(row.time_s)
    )  # fmt: skip


def _links(bench: Bench) -> tuple[LinkUse, ...]:
    """Return every link with its load, of a machine that is small enough to draw."""
    row, loads = bench.row, bench.row.loads
    if loads is None or loads.wiring.n_nodes > MOST_DRAWN_NODES or loads.wiring.n_links > MOST_DRAWN_LINKS:
        return ()
    wiring, names = loads.wiring, loads.wiring.node_names
    busy = np.minimum(loads.busy_s / row.time_s, 1.0).tolist()
    return tuple(
        LinkUse(names[src], names[dst], count, share)
        for src, dst, count, share in zip(
            wiring.link_src.tolist(), wiring.link_dst.tolist(), wiring.link_count.tolist(), busy, strict=True
        )
    )


def _spans(bench: Bench) -> tuple[tuple[Span, ...], str]:
    """Return the transfers in time, and what is to be said of them."""
    loads = bench.row.loads
    if loads is None or loads.spans is None:
        return (), "steps were computed row by row: no single transfer has a place in time"
    spans = loads.spans
    if len(spans.src) > MOST_SPANS:
        return (), f"{len(spans.src):,} transfers are too many to draw"
    columns = (spans.src, spans.dst, spans.step, spans.adds, spans.ready_s, spans.start_s, spans.finish_s)
    told = "some transfers stand for others that do the same" if bench.row.method.simulated == "classes" else ""
    return tuple(Span(*each) for each in zip(*(column.tolist() for column in columns), strict=True)), told


def _notes(bench: Bench) -> tuple[str, ...]:
    """Return what to know before trusting the parts."""
    row, told = bench.row, []
    if not bench.pinned:
        told.append("what ran has no name of its own: every step of the split takes what is fastest then")
    if row.tolerance:
        told.append("times are within a tolerance, and so are the parts")
    if len(row.group_times) > 1:
        told.append("parts, phases and bounds are of the slowest group; tiers are of all groups together")
    if row.hash_seed is not None:
        told.append(f"of the draws of the hash the median one is explained, seed {row.hash_seed}")
    return tuple(told)
