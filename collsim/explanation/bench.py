"""The bench: one question simulated again and again, with something taken away or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collsim.collectives import family_of
from collsim.core.errors import CollsimError
from collsim.explanation.removals import REMOVALS, Removal, Site
from collsim.library import Profile
from collsim.library.environment import ALGORITHMS
from collsim.library.library import PROTOCOLS
from collsim.simulation.provenance import machine_gpus
from collsim.simulation.request.fields import Request
from collsim.simulation.request.prepare import Prepared
from collsim.simulation.request.request import CHOICES
from collsim.simulation.result import Result, Row
from collsim.simulation.simulate import predict
from collsim.topology import Topology

__all__ = ["Bench", "answered"]

SAME = 1e-9
"""Two runs whose times are so near, as a share, are the same run."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A question with one answer, on its machine.

    Attributes
    ----------
    original : Request
        As it was asked.
    asked : Prepared
        With a question that names what ran, so that no change makes it run something else.
    result : Result
        Its answer, with the loads of links.
    profile : Profile
        The constants that it was answered with, those of the way to launch.
    pinned : bool
        Whether the question could be made to name what ran; else every change is answered by what is fastest then.
    removals : tuple of Removal
        In the order in which they are taken away.
    """

    original: Request
    asked: Prepared
    result: Result
    profile: Profile
    pinned: bool
    removals: tuple[Removal, ...] = REMOVALS

    @property
    def row(self) -> Row:
        """The row of the answer."""
        return self.result.rows[0]

    @property
    def gpus(self) -> list[int]:
        """The GPUs that take part."""
        return list(self.asked.groups[0])

    def without(
        self,
        count: int,
        question: Request | None = None,
        groups: Sequence[Sequence[int]] | None = None,
        topology: Topology | None = None,
    ) -> Row:
        """Return the row without the first *count* removals; of another question, groups or machine if given."""
        asked = self.asked
        family = family_of(self.row.op, self.row.algo)
        site = Site(self.gpus, dict(asked.question.environment), family)

        def as_if(machine: Topology, profile: Profile) -> tuple[Topology, Profile]:
            for removal in self.removals[:count]:
                machine, profile = removal.apply(machine, profile, site)
            return machine, profile

        question, groups = question or asked.question, groups or asked.groups
        machine = topology or asked.topology
        return predict(machine, asked.constants, question, groups, as_if=as_if, compares=False).rows[0]

    def in_order(self) -> Bench | None:
        """Return the bench of the machine in order, where the answer is its time and a delay by what has failed.

        None where the answer is not made so, or something else runs there. Raises as `predict` does.
        """
        topology, constants, question, groups = self.asked
        if not self.row.method.part_delay or topology.damage is None or len(self.row.group_times) > 1:
            return None
        there = [machine_gpus(topology, gpus) for gpus in groups]
        result = predict(topology.damage.healthy, constants, question, there, as_if=lambda *both: both)
        if result.rows[0].label != self.row.label or result.rows[0].time_s > self.row.time_s:
            return None
        return replace(self, asked=Prepared(topology.damage.healthy, constants, question, there), result=result)


def answered(asked: Prepared) -> Bench:
    """Return the bench of a checked question with one answer; raises as `predict` does."""
    used: list[Profile] = []

    def as_is(topology: Topology, profile: Profile) -> tuple[Topology, Profile]:
        used.append(profile)
        return topology, profile

    result = predict(*asked, as_if=as_is)
    row, question = result.rows[0], asked.question
    if row.hash_seed is not None:
        question = replace(question, hash_seeds=(row.hash_seed,))
    chosen_by_library = question.algo == ("auto",) and result.profile["library"] is not None
    if question.algo[0] not in CHOICES or chosen_by_library:
        return Bench(asked.question, asked._replace(question=question), result, used[0], pinned=True)
    for named in _names(question, row):
        try:
            again = predict(asked.topology, asked.constants, named, asked.groups).rows[0]
        except CollsimError:
            continue
        if again.label == row.label and abs(again.time_s - row.time_s) <= SAME * row.time_s:
            return Bench(asked.question, asked._replace(question=named), result, used[0], pinned=True)
    return Bench(asked.question, asked._replace(question=question), result, used[0], pinned=False)


def _names(question: Request, row: Row) -> list[Request]:
    """Return questions that may name what ran for a choice: the algorithm by its name, or as the library has it."""
    named = replace(question, algo=(row.algo,), proto=row.proto)
    found = [named, replace(named, channels=row.channels)]
    proto = {"NCCL_PROTO": row.proto} if row.proto in PROTOCOLS else {}
    for algo in ("", *ALGORITHMS):
        word = {"NCCL_ALGO": algo} if algo else {}
        found.append(replace(question, algo=("auto",), environment={**question.environment, **word, **proto}))
    return found
