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
from collsim.core.errors import InputError, NoRouteError
from collsim.core.operations import Operation
from collsim.fabric.bounds.lower import MOST_IN_TABLES, Cuts
from collsim.fabric.fabric import Float
from collsim.library import Profile
from collsim.simulation.concurrent import Party, part_of, time_together
from collsim.simulation.contest import able, fastest, protocols_for
from collsim.simulation.plans import Told, empty_row, loads_of, row_of
from collsim.simulation.quotient.cluster_hierarchy import hierarchical_timing
from collsim.simulation.quotient.cluster_rings import OutOfStepError, ring_timing
from collsim.simulation.quotient.frames import BLOCK, POD
from collsim.simulation.quotient.gpu_ring import run_of_ring
from collsim.simulation.quotient.pair_kinds import exchange, run_of_pairs
from collsim.simulation.quotient.representatives import EXACT_UP_TO, Miniature, Pairs, miniature_of
from collsim.simulation.request.request import CHOICES, Request
from collsim.simulation.result import Row
from collsim.simulation.rows import named, tables_of
from collsim.simulation.runs import LoweredRun, prepare
from collsim.simulation.selection import request_of
from collsim.simulation.timing import Timing
from collsim.topology import Topology
from collsim.topology.failures.degrade import cut_faults

__all__ = ["Scaled", "scaled"]

STEPWISE = {"circles": ring_timing, "levels": hierarchical_timing}
UNEVEN = (
    "leaves share their cables unevenly among spines or cores: taken as spread evenly, as adaptive routing tends to do"
)
"""Note on machines whose part behaves not quite as the whole."""
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

    def tables(self, question: Request, told: Told) -> list[list[list[Row]]]:
        """Return the rows of every operation and size, for each algorithm or choice that was asked for."""
        return [
            self._table(op, size_bytes, question, told) for op in question.ops for size_bytes in question.sizes_of(op)
        ]

    def _table(self, op: Operation, requested_bytes: int, question: Request, told: Told) -> list[list[Row]]:
        if self.mini and not self.mini.exact and UNEVEN not in told.left_out:
            told.left_out.append(UNEVEN)
        request = self._request(op, requested_bytes, question)
        empty = empty_row(request, requested_bytes, question)
        if request.size_bytes == 0:
            return [[empty]]
        found = []
        for name in question.algo:
            try:
                rows = self._answers(name, request, empty, question, told=told)
            except (InputError, NoRouteError) as error:
                told.refuse(error, empty, name)
                rows = []
            found.append([replace(row, asked=name) for row in rows])
        return found

    def _answers(self, name: str, request: ScheduleRequest, empty: Row, question: Request, told: Told) -> list[Row]:
        """Return the rows of one name, simulated rank by rank where a small part cannot stand for all."""
        if _has_form(request.op, name, question, self.n_ranks, self.run.topology):
            try:
                return self._chosen(name, request, empty, question, told=told)
            except OutOfStepError:
                if self.n_ranks > EXACT_UP_TO:
                    raise
        return self._one_by_one(name, request.op, empty.requested_bytes, question, told)

    def _one_by_one(self, name: str, op: Operation, requested_bytes: int, question: Request, told: Told) -> list[Row]:
        """Return the rows of one name with every rank simulated."""
        asked = replace(question, ops=(op,), sizes=(requested_bytes,), algo=(name,))
        return tables_of(self.whole(), asked, told)[0][0]

    def _chosen(self, name: str, request: ScheduleRequest, empty: Row, question: Request, told: Told) -> list[Row]:
        """Return the rows of one name: of an algorithm, or of a choice among those that have a form of their own."""
        op = request.op
        if name not in CHOICES:
            return [self._row(named(op, name, question), question.proto, request, empty, question, told=told)]
        names = _forms(op, self.run.topology)
        others = [entry.name for entry in able(op, self.run, question) if entry.name not in names]
        lost = f"{', '.join(others)} are left out on {self.n_ranks} ranks: name one to have it simulated"
        told.left_out += [lost] * (lost not in told.left_out)
        rows = [self._fastest(algorithm(op.name, each), request, empty, question, told=told) for each in names]
        if name != "all" and question.library is not None:
            rows += self._library_row(op, empty.requested_bytes, question, told)
        return rows if name == "all" else [fastest(rows)]

    def _fastest(self, picked: Algorithm, request: ScheduleRequest, empty: Row, question: Request, told: Told) -> Row:
        """Return the row of an algorithm with the fastest of its protocols."""
        protocols = protocols_for(picked, request.op, self.run, question, set())
        return fastest([self._row(picked, proto, request, empty, question, told=told) for proto in protocols])

    def _library_row(self, op: Operation, requested_bytes: int, question: Request, told: Told) -> list[Row]:
        """Return the row of what the library itself takes, where tables of so many ranks are no burden."""
        assert question.library is not None
        if self.n_ranks > MOST_IN_TABLES:
            lost = f"what {question.library.name} itself takes is left out of best on {self.n_ranks} ranks: see auto"
            told.left_out += [lost] * (lost not in told.left_out)
            return []
        return self._one_by_one("auto", op, requested_bytes, question, Told(keeps_loads=told.keeps_loads))

    def _request(self, op: Operation, requested_bytes: int, question: Request) -> ScheduleRequest:
        """Return the request to an algorithm for all ranks of the whole machine."""
        n = self.n_ranks
        asked = request_of(op, requested_bytes, self.run, question)
        return replace(asked, n_ranks=n, size_bytes=question.size_of(op, requested_bytes, n))

    def _row(
        self,
        picked: Algorithm,
        proto: str | None,
        request: ScheduleRequest,
        empty: Row,
        question: Request,
        *,
        told: Told,
    ) -> Row:
        costs = proto or "Simple"
        if picked.quotient == "pairs":
            timing, channels = self._exchanged(picked.name, costs, request, question)
        else:
            assert self.mini is not None
            assert picked.quotient is not None
            timed = STEPWISE[picked.quotient]
            timing, channels = timed(picked, self.mini, self.run, request, (costs, question.dtype))
        if question.bracket:  # the time is exact
            timing = replace(timing, bracket_s=(timing.time_s, timing.time_s))
        labels = {"algo": picked.name, "proto": proto, "channels": channels, "classes": timing.simulated}
        row = row_of(timing, empty, self.run, **labels)
        return replace(row, loads=loads_of(timing, self.run)) if told.keeps_loads else row

    def _exchanged(self, algo: str, proto: str, request: ScheduleRequest, question: Request) -> tuple[Timing, int]:
        """Return the timing and the channels of an all-to-all whose messages all start at once."""
        run, pairs = self.paired()
        part = part_of(exchange(algo, request, pairs), run, proto, question.dtype)
        timing = time_together([part], ((0,),))[0]
        return replace(timing, method=replace(timing.method, simulated="classes")), request.n_channels


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
    if run.fabric.memory_Bps is not None:
        return None
    members = np.where(mini.link_class == np.arange(len(mini.link_class)), mini.link_members * mini.link_bundles, 0)
    run = replace(run, cuts=_cuts(mini, run), flows=None, link_members=members)
    return Scaled(len(gpus), run, mini, lambda: run_of_pairs(mini, run), whole)


def _forms(op: Operation, topology: Topology) -> tuple[str, ...]:
    """Return the algorithms that have a form of their own for large machines, those over nodes where there are some."""
    several = topology.cluster is not None
    return tuple(entry.name for entry in algorithms_for(op.name, several_nodes=several) if entry.quotient)


def _only_exchanges(question: Request, profile: Profile, topology: Topology) -> bool:
    """Return True if a ring of GPUs has all that is asked: exchanges of pairs, whose rates no traffic back lowers."""
    forms = [(op, algorithm(op.name, name)) for op in question.ops for name in _forms(op, topology)]
    costs = [profile.protocol(question.proto or "Simple", entry.family_for(op.name)) for op, entry in forms]
    return all(entry.quotient == "pairs" for _, entry in forms) and all(each.duplex_share is None for each in costs)


def _is_asked(question: Request, n_ranks: int, topology: Topology) -> bool:
    """Return True if something asked for has a form for large machines and no load, hash or variable is given."""
    if not question.reduce or question.load or question.hash_seeds or question.environment:
        return False
    return any(_has_form(op, name, question, n_ranks, topology) for op in question.ops for name in question.algo)


def _has_form(op: Operation, name: str, question: Request, n_ranks: int, topology: Topology) -> bool:
    """Return True if what a name asks for is answered on a small part; a library's own choice is not."""
    forms = _forms(op, topology)
    if name not in CHOICES:
        return name in forms
    return bool(forms) and n_ranks > MOST_TRIED and not (name == "auto" and question.library is not None)


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
