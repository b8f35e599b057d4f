"""Runs on machines so large and regular that a small part stands for the whole.

Instead of every transfer of every rank, what is simulated are the kinds of messages of an all-to-all, or the steps of
rings at the few kinds of places that they pass. Times are those of the whole schedule; nothing grows with the square of
the ranks, and no route of the whole machine is ever looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collsim.collectives import Algorithm, ScheduleRequest, algorithm, algorithms_for
from collsim.core.errors import NoRouteError
from collsim.core.operations import Operation
from collsim.fabric.bounds.lower import Cuts
from collsim.fabric.fabric import Float
from collsim.library import Profile
from collsim.simulation.concurrent import Party, part_of, time_together
from collsim.simulation.lowering import LoweredRun, prepare
from collsim.simulation.quotient.cluster_hierarchy import hierarchical_timing
from collsim.simulation.quotient.cluster_rings import OutOfStepError, ring_timing
from collsim.simulation.quotient.frames import BLOCK, POD
from collsim.simulation.quotient.gpu_ring import run_of_ring
from collsim.simulation.quotient.pair_kinds import exchange, run_of_pairs
from collsim.simulation.quotient.representatives import EXACT_UP_TO, Miniature, Pairs, miniature_of
from collsim.simulation.request.request import CHOICES, Request
from collsim.simulation.result import Row
from collsim.simulation.rows import able, empty_row, fastest, row_of, tables_of
from collsim.simulation.selection import request_of
from collsim.simulation.timing import Timing
from collsim.topology import Topology
from collsim.topology.failures.degrade import cut_faults

__all__ = ["Scaled", "scaled"]

STEPWISE = {"circles": ring_timing, "levels": hierarchical_timing}
UNEVEN = (
    "leaves share their cables unevenly among spines or cores: taken as spread evenly, as adaptive routing tends to do"
)
"""What is told where the part behaves not quite as the whole."""
MOST_TRIED = 512
"""Up to so many ranks ``auto`` and ``best`` also try algorithms that have no such form."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """One group of ranks on a machine that a small part of it stands for.

    Attributes
    ----------
    n_ranks : int
    run : LoweredRun
        On the part, with the bounds of the whole.
    mini : Miniature or None
        The part; None for a ring of GPUs.
    paired : callable
        Returns a run with the messages of an all-to-all.
    whole : callable
        Prepares the same ranks one by one.
    """

    n_ranks: int
    run: LoweredRun
    mini: Miniature | None
    paired: Callable[[], tuple[LoweredRun, Pairs]]
    whole: Callable[[], Party]

    @property
    def runs(self) -> tuple[LoweredRun]:
        """The run, as of a party of groups."""
        return (self.run,)

    shares_links = meets_hash = False

    def tables(self, question: Request, left_out: list[str]) -> list[list[list[Row]]]:
        """Return the rows of every operation and size, for each algorithm or choice that was asked for."""
        try:
            return [
                self._table(op, size_bytes, question, left_out)
                for op in question.ops
                for size_bytes in question.sizes_of(op)
            ]
        except OutOfStepError:
            if self.n_ranks > EXACT_UP_TO:
                raise
            return tables_of(self.whole(), question, left_out)

    def _table(self, op: Operation, requested_bytes: int, question: Request, left_out: list[str]) -> list[list[Row]]:
        if self.mini and not self.mini.exact and UNEVEN not in left_out:
            left_out.append(UNEVEN)
        request = self._request(op, requested_bytes, question)
        empty = empty_row(request, requested_bytes, question)
        if request.size_bytes == 0:
            return [[empty]]
        found = []
        for name in question.algo:
            names = _forms(op, self.run.topology) if name in CHOICES else (name,)
            if name in CHOICES:
                others = [entry.name for entry in able(op, self.run, question) if entry.name not in names]
                told = f"{', '.join(others)} are left out on {self.n_ranks} ranks: name one to have it simulated"
                left_out += [told] * (told not in left_out)
            rows = [self._row(algorithm(op.name, each), request, empty, question) for each in names]
            found.append([fastest(rows)] if name in ("auto", "best") else rows)
        return found

    def _request(self, op: Operation, requested_bytes: int, question: Request) -> ScheduleRequest:
        """Return what an algorithm is asked for on all ranks."""
        n = self.n_ranks
        asked = request_of(op, requested_bytes, self.run, question)
        return replace(asked, n_ranks=n, size_bytes=op.rounded_size_bytes(requested_bytes, n, asked.element_bytes))

    def _row(self, picked: Algorithm, request: ScheduleRequest, empty: Row, question: Request) -> Row:
        proto = question.proto or "Simple"
        if picked.quotient == "pairs":
            timing, channels = self._exchanged(picked.name, request, question)
        else:
            assert self.mini is not None
            assert picked.quotient is not None
            timed = STEPWISE[picked.quotient]
            timing, channels = timed(picked, self.mini, self.run, request, (proto, question.dtype))
        if question.bracket:  # the time is exact
            timing = replace(timing, bracket_s=(timing.time_s, timing.time_s))
        return row_of(
            timing, empty, self.run, algo=picked.name, proto=question.proto, channels=channels, classes=timing.simulated
        )

    def _exchanged(self, algo: str, request: ScheduleRequest, question: Request) -> tuple[Timing, int]:
        """Return how an all-to-all of messages that all start at once ran."""
        run, pairs = self.paired()
        part = part_of(exchange(algo, request, pairs), run, question.proto or "Simple", question.dtype)
        timing = time_together([part], ((0,),))[0]
        return replace(timing, path=timing.path.replace("transfers", "classes")), request.n_channels


def scaled(
    topology: Topology,
    profile: Profile,
    gpus: Sequence[int],
    question: Request,
    whole: Callable[[], Party],
) -> Scaled | None:
    """Return the run of a group of ranks on a small part of the machine; None if every rank has to be there.

    *whole* prepares the same ranks one by one.
    """
    if not _is_asked(question, len(gpus), topology):
        return None
    numbers = np.array(gpus, dtype=np.int64)
    mini = miniature_of(topology, numbers)
    if mini is None:
        exchanges = _only_exchanges(question, profile, topology)
        around = run_of_ring(topology, profile, numbers) if exchanges else None
        return around and Scaled(len(gpus), around[0], None, lambda: around, whole)
    if (np.diff(mini.gpus) < 0).any():
        return None
    try:
        run = prepare(mini.topology, profile, mini.ranks.tolist())
    except NoRouteError as error:  # said of the whole, whose GPUs the user knows
        raise NoRouteError(*cut_faults(topology, gpus, error.faults)) from None
    members = np.where(mini.link_class == np.arange(len(mini.link_class)), mini.link_members * mini.link_bundles, 0)
    run = replace(run, cuts=_cuts(mini, run), flows=None, link_members=members)
    return Scaled(len(gpus), run, mini, lambda: run_of_pairs(mini, run), whole)


def _forms(op: Operation, topology: Topology) -> tuple[str, ...]:
    """Return the algorithms that have a form of their own for large machines, those over nodes where there are some."""
    several = topology.cluster is not None
    return tuple(entry.name for entry in algorithms_for(op.name, several_nodes=several) if entry.quotient)


def _only_exchanges(question: Request, profile: Profile, topology: Topology) -> bool:
    """Return whether a ring of GPUs has all that is asked for; links that are slower both ways at once are not told."""
    forms = [(op, algorithm(op.name, name)) for op in question.ops for name in _forms(op, topology)]
    costs = [profile.protocol(question.proto or "Simple", entry.family_for(op.name)) for op, entry in forms]
    return all(entry.quotient == "pairs" for _, entry in forms) and all(each.duplex_share is None for each in costs)


def _is_asked(question: Request, n_ranks: int, topology: Topology) -> bool:
    """Return whether all that is asked for has a form for large machines."""
    if not question.reduce or question.load or question.hash_seeds or question.environment:
        return False
    if not all(_forms(op, topology) for op in question.ops):
        return False
    choices = set(question.algo) & set(CHOICES)
    if choices and (question.library is not None or n_ranks <= MOST_TRIED):
        return False
    named = set(question.algo) - choices
    return all(named <= set(_forms(op, topology)) for op in question.ops)


def _cuts(mini: Miniature, run: LoweredRun) -> Cuts:
    """Return the cuts round one rank, unit, block and pod of each kind."""
    frame, kinds, old, n = mini.frame, mini.kinds, run.cuts, mini.n_ranks
    found: list[tuple[str, int, float, float]] = []
    out_Bps, in_Bps = (_around_each(old, size) for size in (1, run.fabric.n_ranks - 1))
    rank_Bps, unit_Bps = [], []
    for unit, members in zip(kinds.first.tolist(), kinds.members.tolist(), strict=True):
        ranks = mini.rank_of[unit][mini.rank_of[unit] >= 0]
        found += [(run.fabric.rank_name(rank), 1, out_Bps[rank], in_Bps[rank]) for rank in ranks.tolist()]
        rank_Bps.append(np.tile(out_Bps[ranks], members))
    if units := len(old.node_egress_Bps):
        for place, unit in enumerate(kinds.kept.tolist()):
            rates = old.node_egress_Bps[place], old.capacity_Bps[len(old.capacity_Bps) - units + place]
            found.append(("", int(mini.unit_ranks[unit]), *rates))
        first = np.searchsorted(kinds.kept, kinds.first)
        unit_Bps = [np.repeat(old.node_egress_Bps[first], kinds.members)]
    block_ranks = np.bincount(frame.block, weights=mini.unit_ranks).astype(np.int64)
    pod_ranks = np.bincount(frame.pod, weights=block_ranks).astype(np.int64)
    for level, ranks in ((BLOCK, block_ranks), (POD, pod_ranks)):
        for owner in np.unique(mini.link_owner[mini.link_level == level]).tolist():
            own = (mini.link_level == level) & (mini.link_owner == owner)
            up_Bps, down_Bps = (
                float(run.fabric.raw_capacity_Bps[own & way].sum()) for way in (mini.link_rises, ~mini.link_rises)
            )
            found.append(("", int(ranks[owner]), up_Bps, down_Bps))
    found = [entry for entry in found if 0 < entry[1] < n]
    names = [f"egress {name}" if name else f"cut {size}|{n - size}" for name, size, _, _ in found]
    names += [f"ingress {name}" if name else f"cut {n - size}|{size}" for name, size, _, _ in found]
    return replace(
        old,
        capacity_Bps=np.array([entry[2] for entry in found] + [entry[3] for entry in found]),
        egress_Bps=np.concatenate(rank_Bps),
        node_egress_Bps=np.concatenate(unit_Bps) if unit_Bps else old.node_egress_Bps,
        sizes=np.array([entry[1] for entry in found] + [n - entry[1] for entry in found]),
        names=tuple(names),
    )


def _around_each(cuts: Cuts, size: int) -> Float:
    """Return float64[n_ranks]: what leaves each rank, or all others, by how many are inside."""
    inside = cuts.inside
    rows = np.flatnonzero(inside.sum(axis=1) == size)
    found = np.zeros(inside.shape[1])
    side = inside[rows] if size == 1 else ~inside[rows]
    found[side.argmax(axis=1)] = cuts.capacity_Bps[rows]
    return found
