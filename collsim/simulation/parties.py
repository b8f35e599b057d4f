"""The groups of each run, prepared to be simulated: whole, or the small part of a large machine that stands for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from collsim.collectives import algorithm
from collsim.core.errors import InputError, ModelError
from collsim.fabric.fabric import Float
from collsim.library import Profile
from collsim.simulation.before_after import healthy_groups
from collsim.simulation.concurrent import Party, prepare_groups, redrawn
from collsim.simulation.plans import Told
from collsim.simulation.request.fields import Request
from collsim.simulation.request.loads import free_shares
from collsim.simulation.request.request import CHOICES
from collsim.simulation.runs import IN_ORDER, as_seen
from collsim.simulation.selection import turns_sharp_on
from collsim.topology import Topology

if TYPE_CHECKING:
    from collsim.simulation.quotient.scaled import Scaled

__all__ = ["answerable", "free_share_of"]

LEAST_SCALED = 256
"""Up to so many ranks every transfer is simulated: that takes no longer than to look for a small part of the machine
that stands for it."""


def answerable(
    topology: Topology,
    constants: Profile,
    question: Request,
    groups: Sequence[Sequence[int]],
    told: Told,
    *,
    compares: bool = True,
) -> tuple[list[Sequence[int]], list[Party | Scaled], list[Party | Scaled | None]]:
    """Return the runs that can be prepared, as of `_parties`, with their GPUs; others are *told* as refused.

    Unless it *compares*, nothing is prepared as it was before anything failed.

    Raises
    ------
    InputError, ModelError
        None of them can.
    """
    found: list[tuple[Sequence[int], Party | Scaled, Party | Scaled | None]] = []
    for group in groups:
        try:
            ((party,), (before,)) = _parties(topology, constants, question, [group], compares=compares)
        except (InputError, ModelError) as error:
            members = question.groups_of(group)
            for op, asked in product(question.ops, question.algo):
                for size_bytes in question.sizes_of(op):
                    told.refuse_at((op.name, len(members[0]), len(members), size_bytes, asked), error)
        else:
            found.append((group, party, before))
    if not found:
        told.raise_errors()
    return [each[0] for each in found], [each[1] for each in found], [each[2] for each in found]


def _parties(
    topology: Topology, constants: Profile, question: Request, groups: Sequence[Sequence[int]], *, compares: bool
) -> tuple[list[Party | Scaled], list[Party | Scaled | None]]:
    """Return the groups of each run, and the same ones before anything failed, None where nothing did."""
    parties = [_party(topology, constants, question.groups_of(group), question) for group in groups]
    if topology.damage is None or not compares:
        return parties, [None for _ in groups]
    before = topology.damage.healthy
    runs = [healthy_groups(topology, question.groups_of(group), question) for group in groups]
    others: list[Party | Scaled | None] = [_party(before, constants, run, question) for run in runs]
    for party, other in zip(parties, others, strict=True):
        if isinstance(party, Party) and isinstance(other, Party) and not question.load:
            for mine, theirs in zip(party.runs, other.runs, strict=False):  # checked where it is used
                mine.found[IN_ORDER] = theirs
    return parties, others


def _party(
    topology: Topology, constants: Profile, groups: Sequence[Sequence[int]], question: Request
) -> Party | Scaled:
    """Return the groups of one run, prepared for the first draw; no thread starts more GPUs than there are."""
    threads = min(question.gpus_per_thread, sum(len(group) for group in groups))
    skew_s = sum(fact.value for fact in topology.facts if fact.path == "cpu.start_skew")
    profile = replace(constants.for_threads(threads, question.launch), skew_s=skew_s)
    topology = as_seen(topology, profile, [gpu for group in groups for gpu in group], question.environment)

    @cache
    def whole() -> Party:
        share, alike = free_share_of(topology, question), len(groups) > 1 and _may_stand(question)
        party = prepare_groups(topology, profile, groups, free_share=share, reduce=alike)
        return redrawn(party, question.hash_seeds[0]) if question.hash_seeds else party

    if len(groups) > 1 or len(groups[0]) <= LEAST_SCALED or question.at_once:
        return whole()
    from collsim.simulation.quotient.scaled import scaled

    return scaled(topology, profile, groups[0], question, whole) or whole()


def _may_stand(question: Request) -> bool:
    """Return True if a group may stand for others: no hash is drawn, and no tree of the network is shared out."""
    named = [algorithm(op.name, name) for op in question.ops for name in question.algo if name not in CHOICES]
    adds = turns_sharp_on(question) or any("network" in entry.in_network for entry in named)
    return question.reduce and not question.hash_seeds and not adds


def free_share_of(topology: Topology, question: Request) -> Float | None:
    """Return float64[n_links], what background traffic leaves of each link; None without any."""
    return np.array(free_shares(question.load, topology.wiring.link_names)) if question.load else None
