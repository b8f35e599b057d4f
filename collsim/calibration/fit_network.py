"""The fit of a network: rows measured over several nodes to its constants; those of a node stay as they are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from collsim.calibration.cases import Measured
from collsim.calibration.estimates import Estimate, estimate
from collsim.calibration.findings import Calibration, Constant, Residual, evidence, is_told
from collsim.calibration.log_placement import misfit, nodes_of
from collsim.calibration.observations import Observation, observe, thinned, undisturbed, without_spikes
from collsim.calibration.parameters import Parameter, costs_of, parameters_of
from collsim.calibration.scatters import residuals_of, scatter_of
from collsim.calibration.soundness import sound_rows
from collsim.core.errors import Fault, InputError
from collsim.core.units import format_count
from collsim.library import Profile, load_profile
from collsim.library.costs.channel_costs import BETWEEN, Protocol
from collsim.library.costs.profile import NetworkCosts
from collsim.topology import Topology

__all__ = ["LEAST_ROWS", "fit_network", "fit_steps"]

Families = dict[str, Mapping[str, Protocol]]

MOST_STEP_S = {"infiniband": 20e-6}
"""By technology: the longest that one step may keep its receiver or its channel waiting. A proxy posts a request in 1
to 2 us, and NCCL's tuner (src/graph/tuning.cc) takes 2.7 to 14 us for a hop of a ring: assumed, with room for both. A
longer one would stand for what large messages of the logs wait for and small ones do not. Others have no bound: what
passes through libfabric took longer in logs of EFA."""
STEP_KEYS = ("message_overhead_s", "turn_s")
LEAST_ROWS = 3
"""Fewer rows could not be told from noise."""


def fit_network(
    rows: Sequence[Measured], topology: Topology, *, name: str, start: str | Profile, library: str
) -> Calibration:
    """Fit what steps between the nodes of *topology* cost.

    Parameters
    ----------
    rows : sequence of Measured
        Those of one node are left out: they tell nothing of the network.
    topology : Topology
        A cluster.
    name : str
        Of the constants.
    start : str or Profile
        The constants of a node, with those of the network that the fit starts from.
    library : str
        For logs that do not name theirs.

    Raises
    ------
    InputError
        Too few rows that can be predicted.
    """
    profile = load_profile(start, topology)
    sound, unsound = sound_rows(rows, topology, profile)
    kept, spikes = without_spikes(sound, topology.name)
    over = [row for row in kept if nodes_of(row.case, topology) > 1 and row.case.groups is None]
    odd = [row for row in over if misfit(row.case, topology) is not None]
    apart = thinned([row for row in over if row not in odd])
    everything, refused = observe([row for row in apart if row.case.launch == "stream"], topology, profile, library)
    alike = [replace(entry, family=BETWEEN.get(entry.family, entry.family)) for entry in undisturbed(everything)]
    seen = [entry for entry in alike if entry.over_nodes]
    reasons = {
        **unsound,
        "1.5 times slower than both neighbours": len(spikes),
        "1.5 times slower than another run of the same work": len(everything) - len(seen),
        "on one node, or one of several groups at once": len(kept) - len(over),
        "too close to the size before": len(over) - len(odd) - len(apart),
        **Counter(str(misfit(row.case, topology)) for row in odd),
        **refused,
    }
    left_out = {why: count for why, count in reasons.items() if count}
    if len(seen) < LEAST_ROWS:
        told = "; ".join(f"{format_count(count, 'row')} left out: {why}" for why, count in left_out.items())
        what = f"{len(seen)} rows over several nodes can be predicted, {LEAST_ROWS} are needed"
        hint = "give logs of two nodes or more, and --nodes if they do not list their hosts"
        raise InputError(Fault(what, "logs", "; ".join(filter(None, (told, hint)))))
    network, constants, residuals = _fitted(seen, profile, topology)
    told = evidence(len(residuals), constants, profile.network.name or profile.name)
    title = f"{_title(topology, seen, library)}{told}"
    network = replace(network, name=name, title=title, calibrated=is_told(len(residuals), constants))
    found = replace(profile, name=name, network=network, library=profile.library or library)
    return Calibration(
        found, profile.name, tuple(constants), tuple(residuals), left_out=left_out, over_nodes=True,
    )  # fmt: skip


def fit_steps(
    seen: Sequence[Observation], profile: Profile, network: str, groups: Sequence[Hashable] | None = None
) -> tuple[Families, list[Parameter], Estimate]:
    """Return the constants between nodes with how they were estimated.

    A kernel with no more rows than it has constants keeps those of *profile*, unless that leaves none.

    Parameters
    ----------
    seen : sequence of Observation
        Of one cluster or several, whose steps then cost the same.
    profile : Profile
        The constants that the fit starts from.
    network : str
        The technology.
    groups : sequence, optional
        As of `estimate`.
    """
    start = profile.network
    families = {family: dict(protocols) for family, protocols in start.families.items()}
    for kernel, proto in sorted({(entry.family, entry.proto) for entry in seen}):
        if (known := start.protocol(proto, kernel)) is not None:
            families.setdefault(kernel, {}).setdefault(proto, known)
    between = replace(profile, families=families)
    most_s = MOST_STEP_S.get(network, math.inf)
    every = [
        replace(one, start=min(one.start, most_s), most=min(one.most, most_s)) if one.key in STEP_KEYS else one
        for one in parameters_of(between, seen, between=True)
    ]
    parameters = _told(every, seen)
    found = estimate(seen, between, parameters, groups)
    costs, _ = costs_of(between, parameters, found.logs)
    fitted: Families = {
        family: {proto: costs.get((family, proto), known) for proto, known in protocols.items()}
        for family, protocols in families.items()
    }
    return _with_the_same_adapters(fitted, [entry.family for entry in seen]), parameters, found


def _told(parameters: Sequence[Parameter], seen: Sequence[Observation]) -> list[Parameter]:
    """Return the constants of kernels with more rows than constants; all if there is no such kernel."""
    rows = Counter(source for entry in seen for source in {one.family for one in parameters if one.is_of(entry)})
    numbers = Counter(one.family for one in parameters)
    return [one for one in parameters if rows[one.family] > numbers[one.family]] or list(parameters)


def _fitted(
    seen: Sequence[Observation], profile: Profile, topology: Topology
) -> tuple[NetworkCosts, list[Constant], list[Residual]]:
    """Return the constants between nodes with what was found."""
    assert topology.cluster is not None
    families, parameters, found = fit_steps(seen, profile, topology.cluster.spec.network)
    constants = [
        Constant("stream", parameter.name, parameter.start, *found.interval(place), found.identified(place))
        for place, parameter in enumerate(parameters)
    ]
    residuals = residuals_of(seen, found)
    model = topology.labels.get("gpu.model", "")
    gpus = (model,) if model else ()
    networks = (topology.cluster.spec.network,)
    network = NetworkCosts(
        systems=(topology.name,), networks=networks, gpus=gpus, nodes=max(_nodes(seen, topology)),
        families=families, accuracy=scatter_of(residuals),
    )  # fmt: skip
    return network, constants, residuals


def _nodes(seen: Sequence[Observation], topology: Topology) -> list[int]:
    """Return the numbers of nodes in the logs."""
    return sorted({nodes_of(entry.row.case, topology) for entry in seen})


def _with_the_same_adapters(families: Mapping[str, Mapping[str, Protocol]], seen: Sequence[str]) -> Families:
    """Return the families with the share of the adapter that was seen, of rings if of these, where none was."""
    donor = "ring" if "ring" in seen else seen[0]
    share = max(costs.link_share for costs in families[donor].values())
    return {
        family: dict(protocols)
        if family in seen
        else {proto: replace(costs, link_share=share) for proto, costs in protocols.items()}
        for family, protocols in families.items()
    }


def _title(topology: Topology, seen: Sequence[Observation], library: str) -> str:
    nodes = _nodes(seen, topology)
    logs = format_count(len({entry.row.file for entry in seen}), "log")
    return f"{library} over nodes of {topology.name}, fitted to {logs} of {', '.join(map(str, nodes))} nodes"
