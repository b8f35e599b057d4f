"""Changes of a run that may make it faster: arguments of `collsim.simulate`, or constants that no flag sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collsim.core.units import format_bandwidth
from collsim.explanation.bench import Bench
from collsim.explanation.findings import Chosen
from collsim.explanation.removals import ONCE_OVERHEADS, STEP_OVERHEADS
from collsim.library import Profile
from collsim.library.library import PROTOCOLS
from collsim.simulation.request.fields import BY_NAME
from collsim.simulation.request.request import CHOICES, MOST_CHANNELS
from collsim.topology import Topology

__all__ = ["Change", "changed_arguments", "changes_of"]

MOST_CONTENDERS = 6
"""Of what the library compared, so many are simulated (chosen)."""
MOST_RANKS = 256
"""Up to so many ranks all algorithms are tried: on more that takes minutes."""
OF_SHARP = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations for which switches can add, or copy (`collsim.collectives.sharp`)."""
HALVED = {
    "overheads of every step halved": STEP_OVERHEADS,
    "overheads once a call halved": ONCE_OVERHEADS,
}
"""What no flag sets: how fast library and GPU are."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a run.

    Attributes
    ----------
    title : str
    arguments : mapping
        Of `collsim.simulate`; overrides and environment are added to those there are, others take their place.
    constants : callable or None
        From a profile to a changed one, for what no argument sets.
    contender : (str, str) or None
        What of the library's own comparison it is.
    """

    title: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    constants: Callable[[Topology, Profile], tuple[Topology, Profile]] | None = None
    contender: tuple[str, str] | None = None

    @property
    def flags(self) -> str:
        """The change as flags of ``collsim run``; what it leaves out is in words."""
        if self.constants is not None:
            return "no flag: constants of the profile"
        return " ".join(word for name, value in self.arguments.items() for word in _flag(name, value))


def _flag(name: str, value: Any) -> Iterator[str]:
    if name == "overrides":
        yield from (f'--set {path}="{text}"' if " " in text else f"--set {path}={text}" for path, text in value.items())
    elif name == "environment":
        yield from (f"--env {variable}={text}" for variable, text in value.items())
    elif value in (None, (), ""):
        yield f"without --{name}"
    else:
        flag = BY_NAME[name].flags[0] if BY_NAME[name].flags else f"--{name.replace('_', '-')}"
        yield flag if value is True else f"{flag} {value}"


def changed_arguments(asked: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Return the arguments of a run with a change."""
    found = dict(asked)
    for name, value in change.arguments.items():
        if name == "overrides":
            found[name] = {**_pairs(asked.get("overrides")), **value}
        elif name == "environment":
            found[name] = {**(asked.get("environment") or {}), **value}
        else:
            found[name] = value
    return found


def _pairs(overrides: Any) -> dict[str, str]:
    """Return overrides as a mapping, whatever form they have."""
    if isinstance(overrides, Mapping):
        return dict(overrides)
    texts = [overrides] if isinstance(overrides, str) else list(overrides or ())
    pairs = [text.partition("=")[::2] if isinstance(text, str) else tuple(text) for text in texts]
    return {str(path): str(value) for path, value in pairs}


def changes_of(bench: Bench, asked: Mapping[str, Any], chosen: Chosen) -> list[Change]:
    """Return the changes that can be looked at: what the library could run, channels, wires, what is in the way."""
    return [
        *_of_choice(bench, chosen), *_of_channels(bench), *_of_calls(bench), *_of_wires(bench), *_of_disorder(asked),
        *(Change(title, constants=_halved(names)) for title, names in HALVED.items() if bench.profile.name != "ideal"),
    ]  # fmt: skip


def _of_choice(bench: Bench, chosen: Chosen) -> Iterator[Change]:
    """Yield other algorithms and protocols."""
    row, question = bench.row, bench.original
    unasked: dict[str, Any] = {} if question.proto is None else {"proto": None}
    for each in [entry for entry in chosen.contenders if not entry.chosen and entry.estimate_s][:MOST_CONTENDERS]:
        settings = {"NCCL_ALGO": each.algo, "NCCL_PROTO": each.proto}
        yield Change(f"{each.algo} with {each.proto}", {"environment": settings}, contender=(each.algo, each.proto))
    if row.asked not in CHOICES:
        yield from (
            Change(f"protocol {name}", {"proto": name}) for name in PROTOCOLS if name != (row.proto or "Simple")
        )
        if bench.result.profile["library"] or question.library:
            yield Change("the library's own choice", {"algo": "auto", **unasked})
    if row.asked != "best" and row.ranks * row.groups <= MOST_RANKS:
        yield Change("the fastest of all algorithms", {"algo": "best", **unasked})


def _of_channels(bench: Bench) -> Iterator[Change]:
    channels = bench.row.channels
    if 1 <= channels <= MOST_CHANNELS // 2:
        yield Change("twice as many channels", {"channels": 2 * channels})
    if channels >= 2:
        yield Change("half as many channels", {"channels": channels // 2})


def _of_calls(bench: Bench) -> Iterator[Change]:
    """Yield other ways to call, and what a library leaves off by default."""
    question, library = bench.original, str(bench.result.profile["library"] or "")
    launches = bench.asked.constants.launches
    if question.launch == "stream" and "graph" in launches:
        yield Change("calls of a captured graph", {"launch": "graph"})
    if not question.registered and "registered" in launches:
        yield Change("registered buffers", {"registered": True})
    if bench.asked.topology.cluster is not None and library.startswith("nccl") and bench.row.asked == "auto":
        if bench.row.op in OF_SHARP and str(question.environment.get("NCCL_COLLNET_ENABLE", "0")) != "1":
            yield Change("switches between the nodes add (SHARP)", {"environment": {"NCCL_COLLNET_ENABLE": "1"}})
        if bench.row.op == "all_to_all":
            off = str(question.environment.get("NCCL_PXN_DISABLE", "0")) != "1"
            title = "messages straight to their rail (PXN off)" if off else "messages over GPUs of the rail (PXN on)"
            yield Change(title, {"environment": {"NCCL_PXN_DISABLE": "1" if off else "0"}})
    if question.gpus_per_thread > 1:
        yield Change("one GPU for each thread", {"gpus_per_thread": 1})


def _of_wires(bench: Bench) -> Iterator[Change]:
    """Yield faster links and adapters, and a network that narrows nowhere."""
    topology = bench.asked.topology
    figures = {fact.path: fact for fact in topology.facts}
    if link := figures.get("link.bandwidth"):
        yield Change(
            "links in the node twice as fast", {"overrides": {"link.bandwidth": format_bandwidth(2 * link.value)}}
        )
    cluster = topology.cluster
    if cluster is None:
        return
    if nic := figures.get("nic.bandwidth"):
        faster = {"nic.bandwidth": format_bandwidth(2 * nic.value)}
        if port := figures.get("scale_out.port_rate"):
            faster["scale_out.port_rate"] = format_bandwidth(2 * port.value)
        if bus := figures.get("nic.bus_bandwidth"):
            faster["nic.bus_bandwidth"] = format_bandwidth(2 * bus.value)
        yield Change("adapters and their network twice as fast", {"overrides": faster})
    if cluster.spec.oversubscription > 1:
        yield Change("no oversubscription", {"overrides": {"scale_out.oversubscription": "1"}})
    if cluster.spec.fabric != "single_switch":
        yield Change("one switch for all nodes", {"fabric": "single_switch"})


def _of_disorder(asked: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what stands in the way taken away: failures, background traffic."""
    if damage := {name: () for name in ("fail", "degrade") if asked.get(name)}:
        yield Change("nothing failed", damage)
    if asked.get("load"):
        yield Change("no background traffic", {"load": ()})


def _halved(names: Sequence[str]) -> Callable[[Topology, Profile], tuple[Topology, Profile]]:
    """Return a change of a profile that halves constants, inside nodes and between them."""
    from collsim.explanation.removals import with_costs

    def apply(topology: Topology, profile: Profile) -> tuple[Topology, Profile]:
        return topology, with_costs(
            profile, lambda costs: replace(costs, **{n: v / 2 for n in names if (v := getattr(costs, n))})
        )

    return apply
