"""The one door: from what a caller asks to a checked question on a machine, with every fault in one report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from collsim.core.errors import Fault, Faults, InputError
from collsim.core.kept import Kept
from collsim.library import Profile, load_profile
from collsim.simulation.request.checks import threads_on
from collsim.simulation.request.fields import SCALE_OUT, Request
from collsim.simulation.request.request import ask, rank_groups
from collsim.simulation.request.values import plain
from collsim.topology import Topology, cluster_names, load_topology, zoo_names

__all__ = ["Machine", "Prepared", "listed", "prepare"]

MOST_KEPT_GPUS = 4096
"""Larger machines are built for each call: a few of them would take gigabytes."""
TOPOLOGIES: Kept[Topology] = Kept(16)
"""Shipped topologies of calls before, with changes of figures but without failures; nobody outside sees them."""
FABRIC_NAMES = ("fabric", "network", "racks")


class Prepared(NamedTuple):
    """A checked question on a machine: what `collsim.simulation.simulate.predict` takes.

    Attributes
    ----------
    topology : Topology
        With figures changed, and less what failed.
    constants : Profile
    question : Request
    groups : list of list of int
        The GPUs of each run, in the order of its ranks.
    """

    topology: Topology
    constants: Profile
    question: Request
    groups: list[list[int]]


def prepare(
    topo: Any,
    op: Any,
    size: Any = None,
    algo: Any = "auto",
    *,
    ranks: int | Sequence[int] | None = None,
    rank_list: Sequence[int] | None = None,
    placement: str | Path | None = None,
    profile: str | Profile = "auto",
    overrides: Any = None,
    fail: Any = None,
    degrade: Any = None,
    **asked: Any,
) -> Prepared:
    """Check a request; the parameters are those of `collsim.simulate`.

    What is wrong in one place does not hide what is wrong in another: without a question its ranks are checked all the
    same, and on a machine that cannot be built they are checked on the one that it was to be built of.

    Raises
    ------
    InputError
        Every fault at once; of a kind of its own, such as `UnknownNameError`, if one part of the request is wrong.
    """
    faults = Faults()
    overrides, placement = plain(overrides), plain(placement)
    asked = {name: plain(value) if name == "load" else value for name, value in asked.items()}
    scale_out = {name: asked.pop(name) for name in SCALE_OUT if name in asked}
    question = faults.attempt(ask, op, size, algo, **asked)
    whole = faults.attempt(_whole, topo, overrides, scale_out)
    if whole is not None and question is not None and question.environment:
        from collsim.library.transports import on_transport

        whole = on_transport(whole, question.environment, [op.name for op in question.ops])
    if whole is not None and question is not None and question.gpus_per_thread > 1 and not question.of_log:
        faults.attempt(threads_on, whole, question.gpus_per_thread)
    topology = None if whole is None else faults.attempt(_damaged, whole, fail, degrade)
    constants = faults.attempt(load_profile, profile, topology)
    if constants is not None and question is not None and question.environment:
        constants = _as_set(constants, question.environment)
    groups = None
    if there := topology or whole or _on_usual_fabric(topo, overrides, scale_out):
        checkable = question if topology and question else replace(question or ask("all_reduce"), load=())
        groups = faults.attempt(rank_groups, there, ranks, rank_list, checkable, placement)
    if len(faults.refusals) == 1:
        raise faults.refusals[0]  # of its own kind, such as `UnknownNameError`
    faults.raise_any()
    assert topology is not None
    assert constants is not None
    assert question is not None
    assert groups is not None
    return Prepared(topology, constants, question, groups)


def _as_set(constants: Profile, variables: Mapping[str, str]) -> Profile:
    """Return the constants with what *variables* of the environment change of them."""
    from collsim.library import read_environment, with_copies
    from collsim.library.costs.network_costs import COPY_THRESHOLD

    threshold_bytes = read_environment(variables).number(COPY_THRESHOLD, 0)
    return with_copies(constants, threshold_bytes) if threshold_bytes else constants


@dataclass(frozen=True, slots=True)
class Machine:
    """Changes of a request to its topology: figures, parts that failed, parts that are slower, and the cluster that it
    is made; as of `simulate`, *scale_out* by the names of its parameters.
    """

    overrides: Mapping[str, str] | Sequence[Any] | None = None
    fail: str | Sequence[str] | None = None
    degrade: Mapping[str, str | float] | Sequence[str] | None = None
    scale_out: Mapping[str, Any] = field(default_factory=dict)

    def of(self, topo: Any) -> Topology:
        """Return a topology with all that changed.

        Raises
        ------
        InputError
            No topology is named, or whatever is wrong with it.
        """
        return _damaged(_whole(topo, self.overrides, self.scale_out), self.fail, self.degrade)

    def also(self, changes: Sequence[str]) -> Machine:
        """Return the machine with figures changed that stand behind the name of one system."""
        if not changes:
            return self
        from collsim.topology.files.overrides import settled, with_later

        faults: list[Fault] = []
        pairs = settled(self.overrides or (), self.scale_out, faults)
        if faults:
            raise InputError(*faults)
        return replace(self, overrides=with_later(pairs, changes), scale_out={})


def listed(value: Any) -> list[Any]:
    """Return the entries of a list or of an iterator; a value that is none is the only entry."""
    return list(value) if isinstance(value, list | tuple | Iterator) else [value]


def _whole(topo: Any, overrides: Any, scale_out: Mapping[str, Any]) -> Topology:
    """Return a topology in which nothing failed."""
    if topo is None:
        hint = "give a name that `collsim topo list` prints, or a YAML file"
        raise InputError(Fault("no topology is named", "topo", hint))
    wanted = {name: value for name, value in scale_out.items() if value is not None}
    key = _kept_key(topo, overrides, wanted)
    if key is None:
        return load_topology(topo, overrides or (), scale_out=wanted)
    return TOPOLOGIES.get(
        key,
        lambda: load_topology(topo, overrides or (), scale_out=wanted),
        worth=lambda found: found.n_gpus <= MOST_KEPT_GPUS,
    )


def _kept_key(topo: Any, overrides: Any, scale_out: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return what a shipped topology follows from; None for files, which may change, and for what cannot be a key."""
    if not isinstance(topo, str) or topo not in (*zoo_names(), *cluster_names()):
        return None
    pairs = tuple(overrides.items()) if isinstance(overrides, Mapping) else tuple(listed(overrides or ()))
    texts = [text for pair in pairs for text in listed(pair)]
    if any(not isinstance(text, str) or ".y" in text for text in texts):
        return None
    return topo, pairs, tuple((name, str(value)) for name, value in sorted(scale_out.items()))


def _damaged(topology: Topology, fail: Any, degrade: Any) -> Topology:
    """Return *topology* without its failed parts and with its slower ones."""
    if _names_nothing(fail) and _names_nothing(degrade):
        return topology
    from collsim.topology.failures.degrade import damaged

    return damaged(topology, fail, degrade)


def _names_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def _on_usual_fabric(topo: Any, overrides: Any, scale_out: Mapping[str, Any]) -> Topology | None:
    """Return the topology without changes of its fabric, to check ranks against if these are wrong; None if unknown."""
    if topo is None:
        return None
    figures, changed = overrides or (), {name: value for name, value in scale_out.items() if value is not None}
    if isinstance(figures, Mapping):
        left_out = {f"scale_out.{name}" for name in FABRIC_NAMES}
        figures = {path: value for path, value in figures.items() if path not in left_out}
    kept = {name: value for name, value in changed.items() if name not in FABRIC_NAMES}
    if (figures, kept) == (overrides or (), changed):
        return None
    with suppress(InputError):
        return load_topology(topo, figures, scale_out=kept)
    return None
