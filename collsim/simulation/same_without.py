"""Settings of a topology without which everything takes as long: told by asking again without them.

What such words and counts change goes through the library's choice, the wiring and the profile; the times themselves
are the only judge that sees all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from collsim.core.errors import CollsimError
from collsim.core.progress import interrupted
from collsim.topology import Topology, load_topology, zoo_names
from collsim.topology.zoo import cluster_names

__all__ = ["same_without"]

DOUBTFUL = (
    "link.type", "cpu.model", "nic.model", "nic.distance", "scale_out.radix", "scale_out.tiers", "scale_out.rails",
    "scale_out.group_switches", "scale_out.switch_endpoints", "scale_out.global_links",
)  # fmt: skip
"""Words and counts, of which nothing but the times tells whether they matter; figures have reasons of their own, and
the fabric is on every other command line of a cluster, which is not to take twice as long."""
MOST_GPUS = 64
"""Machines of more GPUs are not asked again (chosen: on so many an answer takes a second)."""
REMEDIES = {"scale_out.rails": "; all adapters remain, and --set nic.shared_by=2 leaves half of them"}


def same_without(
    topology: Topology,
    times: object,
    times_of: Callable[[Topology], object],
    *,
    told_before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    ops: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the settings that change no time, in a sentence each.

    *times* is what *times_of* returns for the topology as it is; settings that the warnings *told_before* name are
    left out. Variables of the *environment* may take paths away, as on the topology itself.
    """
    told: list[str] = []
    if topology.n_gpus > MOST_GPUS:
        return ()
    for path, value, other in _without_each(topology, told_before, environment or {}, ops):
        if interrupted():
            break
        try:
            same = times_of(other) == times
        except CollsimError:
            continue
        if same:
            told.append(f"{path}={value} changes nothing: the same times without it{REMEDIES.get(path, '')}")
    return tuple(told)


def _without_each(
    topology: Topology, told_before: Sequence[str], environment: Mapping[str, str], ops: Sequence[str]
) -> Iterator[tuple[str, str, Topology]]:
    """Yield path and value of each setting in doubt, with the topology without it; none that cannot be left out."""
    doubtful = {
        path: value
        for path, value in topology.settings.items()
        if path in DOUBTFUL and not any(text.startswith(f"{path}=") for text in told_before)
    }
    shipped = bool(doubtful) and topology.name in (*zoo_names(), *cluster_names())
    for path, value in doubtful.items():
        others = {other: text for other, text in topology.settings.items() if other != path}
        try:
            found = _again(topology, topology.name if shipped else topology.source, others, environment, ops)
        except CollsimError:
            continue
        if found.n_gpus == topology.n_gpus:
            yield path, value, found


def _again(
    topology: Topology, source: str, settings: Mapping[str, str], environment: Mapping[str, str], ops: Sequence[str]
) -> Topology:
    """Return a topology with other settings, with the same variables and failures."""
    found = load_topology(source, settings)
    if environment:
        from collsim.library.transports import on_transport

        found = on_transport(found, environment, list(ops))
    if topology.damage is not None:
        from collsim.topology.failures.degrade import damaged

        found = damaged(found, list(topology.damage.fail), dict(topology.damage.degrade))
    return found
