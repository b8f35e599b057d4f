"""What a question is answered with, settled before anything runs: machine, library, constants and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collsim.core.errors import Fault, InputError, UnsupportedError
from collsim.library import Profile, load_library, load_profile, with_kernels, with_symmetric
from collsim.library.costs.direct_pointers import with_direct_pointers, with_staged_rings, writes_directly
from collsim.library.costs.profile_files import AUTO
from collsim.library.environment import read_environment
from collsim.library.peers import peer_level, peer_words
from collsim.simulation.intervals import nodes_measured
from collsim.simulation.provenance import intervals_hold
from collsim.simulation.request.checks import SYMMETRIC
from collsim.simulation.request.fields import Request
from collsim.simulation.request.request import CHOICES
from collsim.topology import Topology

if TYPE_CHECKING:
    from collsim.library import Library

__all__ = [
    "as_called", "judged_by", "peer_levels", "peers_in_words", "reachable", "why_not", "with_errors", "with_library",
]  # fmt: skip


def reachable(
    topology: Topology, constants: Profile, groups: Sequence[Sequence[int]], *, loaded: bool = False
) -> tuple[Topology, Profile]:
    """Return the machine of a run: a node by itself if no group leaves the first one, and no link is loaded.

    Where nodes differ, or only some GPUs have links of their own, constants that nobody named are of those in use.
    """
    cluster = topology.cluster
    everyone = sorted({gpu for group in groups for gpu in group})
    if cluster is None:
        found = load_profile(AUTO, topology, everyone) if constants.source == AUTO else constants
        return topology, constants if found.name == constants.name else found  # which a caller may have changed
    if topology.damage is None and not loaded and max(everyone) < cluster.node.n_gpus:
        topology = cluster.node
    elif len(cluster.kinds) == 1:
        return topology, constants
    return topology, load_profile(AUTO, topology, everyone) if constants.source == AUTO else constants


def with_library(topology: Topology, constants: Profile, question: Request) -> tuple[Request, list[str]]:
    """Return the question with the library that its choices follow, and what to tell of it.

    A library that the user names is followed or refused; that of the profile is followed where it can be.
    """
    looks = not set(CHOICES).isdisjoint(question.algo)
    if question.library is None and constants.library and looks:
        library = load_library(constants.library)
        why = why_not(library, topology)
        return (question, _alone(question, why)) if why else (replace(question, library=library), [])
    if question.library is None and question.environment:
        raise InputError(Fault("variables of the environment need a library", "environment", "add --library nccl-2.28"))
    return question, [] if question.library is None else _of_unknown(question.library)


def why_not(library: Library, topology: Topology) -> str:
    """Return why a library does not run on a machine; empty if it does."""
    from collsim.library import system_of

    try:
        is_amd = system_of(topology).is_amd
    except UnsupportedError as error:
        return error.faults[0].what
    return "" if is_amd == (library.family == "rccl") else f"{library.name} does not run on {topology.name}"


def _of_unknown(library: Library) -> list[str]:
    """Return a warning about a library older or newer than all whose constants are known."""
    if library.known == library:
        return []
    known, name = library.known.name, library.name
    older = f", without algorithms newer than {name}" if library.version < library.known.version else ""
    return [f"the constants of {name} are not known: those of {known} are taken{older}"]


def _alone(question: Request, why: str) -> list[str]:
    """Return a warning about a question whose choices follow no library."""
    return [f"auto is the fastest in the simulator: {why}"] if "auto" in question.algo else []


def as_called(topology: Topology, constants: Profile, question: Request) -> Profile:
    """Return the constants with those of kernels that only some libraries have, and of where their rings put bytes."""
    library, node = question.library, topology if topology.cluster is None else topology.cluster.node
    if library is not None and library.is_engine:
        constants = with_kernels(constants, library, node)
    elif question.registered == SYMMETRIC and library is not None and library.family == "nccl":
        constants = with_symmetric(constants, node)
    if writes_directly(library, one_process=question.one_process):
        constants = with_direct_pointers(constants)
    return with_staged_rings(constants, library)


def judged_by(topology: Topology, groups: Sequence[Sequence[int]], question: Request) -> Topology:
    """Return whose measurements judge a run: those of a node if no group of a cluster in order leaves its own."""
    cluster = topology.cluster
    if cluster is None or topology.damage is not None or len(cluster.kinds) > 1:
        return topology
    per_node = cluster.node.n_gpus
    members = [group for run in groups for group in question.groups_of(run)]
    return cluster.node if all(len({gpu // per_node for gpu in group}) == 1 for group in members) else topology


def with_errors(launched: Profile, constants: Profile, judged: Topology) -> Profile:
    """Return the profile with the errors that were counted on the topology whose measurements judge a run."""
    counted = launched.accuracy
    if judged.cluster is not None:
        network = launched.network
        known = nodes_measured(judged, network) or not network.pooled
        counted = (network if known else network.elsewhere()).scatters()
    return replace(launched, accuracy=counted if intervals_hold(judged, constants) else {})


def peer_levels(
    topology: Topology, constants: Profile, groups: Sequence[Sequence[int]], question: Request
) -> list[str]:  # fmt: skip
    """Return for each run up to which distance GPUs reach each other's memory; empty where nobody asks."""
    environment = read_environment(question.environment)
    bare = constants.name == "ideal"
    return ["" if bare else peer_level(topology, group, environment) for group in groups]


def peers_in_words(topology: Topology, constants: Profile, groups: Sequence[Sequence[int]], question: Request) -> str:
    """Return how the GPUs of a node exchange, by the numbers of ranks if that is not the same for all runs."""
    levels = peer_levels(topology, constants, groups, question)
    told = [(len(group), peer_words(level)) for group, level in zip(groups, levels, strict=True)]
    words = dict.fromkeys(words for _, words in told if words)
    if len(words) <= 1:
        return next(iter(words), "")
    return "; ".join(f"{', '.join(str(n) for n, its in told if its == each)} ranks: {each}" for each in words)
