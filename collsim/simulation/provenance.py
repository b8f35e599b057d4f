"""Provenance of a result: the resolved request, figures that nothing public backs, the profile, and warnings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collsim.collectives import algorithm, family_of
from collsim.core.units import format_count
from collsim.fabric.fabric import Fabric, Float
from collsim.library import Library, Profile, load_profile, profile_names
from collsim.library.costs.channel_costs import Protocol
from collsim.library.costs.direct_pointers import kernel_of
from collsim.library.environment import BYTES, CHANNEL_VARIABLES, OFI_TUNER
from collsim.library.library import DEFAULT_LIBRARY, DEFAULT_RCCL
from collsim.simulation.demand import HEADS_OF_FITS
from collsim.simulation.request.fields import FIELDS
from collsim.simulation.request.groups import Lists, ParallelLayout, Split
from collsim.simulation.request.hash_seeds import seeds_text
from collsim.simulation.request.request import CHOICES, Request
from collsim.simulation.request.tolerance import AUTO, percent
from collsim.simulation.result import Row
from collsim.topology import Topology, zoo_names
from collsim.topology.cluster.adapter_paths import PATHS
from collsim.topology.model import SITES, SIZES

__all__ = [
    "achievable",
    "beyond_library",
    "config_of",
    "disturbances",
    "equal_draws",
    "exchanges_as_fitted",
    "intervals_hold",
    "is_calibrated",
    "lacking",
    "left_to_others",
    "left_to_plugin",
    "machine_gpus",
    "roundings",
    "set_by_cloud",
    "topology_summary",
    "uncalibrated",
    "unnamed_library",
    "waits_for_host",
    "warnings_of",
]

HOST_COUNTS = 0.1
"""From this share of a time on the output says what was assumed of the host (chosen)."""
EXACT = 12
"""Decimals of a share that rounding leaves alone."""
MOST_BRIDGES = 3
TEXTS = ("title", "notes")
"""What may be set and is only shown."""
SHARP_VARIABLE = "NCCL_COLLNET_ENABLE"
"""Also what ``best`` and ``all`` look at."""
MIXED = re.compile(r"^mix\[\d+\]\.")
"""Prefix of the figures of one kind of nodes."""
THROUGH_SOCKETS = (
    "GPUs meet in CPU sockets (PCIe), and no constants were fitted to this machine: such boxes differ ten times. Eight "
    "L40S reached 1.2 to 2 GB/s through host memory, eight RTX PRO 6000 24, GeForce cards 35 with 4 and 28 with 8"
)
"""busbw of all-reduce from 8 MiB on: the tables of AIConfigurator, and 8 GiB on GeForce cards, PCIe 5.0 x16, four on
each of two sockets (measured, by a user)."""
AUTO_PROFILE = "auto"
AROUND_NODES = ("scale_out.", "nic.")
"""Prefixes of figures of adapters and of what joins nodes."""
NOT_SIMULATED = ("nic.", "gpu.memory", "scale_out.out_of_order", "scale_out.offload")
"""Facts that a file records and that no prediction uses; memory only counts where it binds, which a warning says."""


def config_of(
    topology: Topology, constants: Profile, rank_lists: Sequence[Sequence[int]], question: Request
) -> dict[str, Any]:
    """Return the resolved request: with the same version it gives the same rows."""
    damage = topology.damage
    grouping = question.grouping
    told = {
        "topo": topology.name if topology.name in zoo_names() else topology.source,
        "op": [op.name for op in question.ops],
        "size": list(question.sizes) if any(op.name != "all_to_all_v" for op in question.ops) else None,
        "rank_lists": [machine_gpus(topology, gpus) for gpus in rank_lists],
        "algo": list(question.algo),
        "profile": constants.source or constants.name,
        "library": None if question.library is None else question.library.name,
        "environment": dict(question.environment),
        "tolerance": AUTO if question.tolerance is None else question.tolerance,
        "split": grouping.text if isinstance(grouping, Split) else None,
        "groups": grouping.text if isinstance(grouping, ParallelLayout | Lists) else None,
        "over": ",".join(grouping.over) if isinstance(grouping, ParallelLayout) else None,
        "load": [entry.text for entry in question.load],
        "hash_seeds": seeds_text(question.hash_seeds) or None,
        "overrides": dict(topology.settings),
        "matrix_bytes": None if question.matrix_bytes is None else question.matrix_bytes.tolist(),
        "fail": [] if damage is None else list(damage.fail),
        "degrade": {} if damage is None else dict(damage.degrade),
    }
    recorded = {field.config_key: field for field in FIELDS if field.config_key}
    return {
        key: told[key] if key in told else getattr(question, field.attribute or field.name)
        for key, field in recorded.items()
    }


def machine_gpus(topology: Topology, ranks: Sequence[int]) -> list[int]:
    """Return the numbers that GPUs have on the machine in which nothing failed."""
    return list(ranks) if topology.damage is None else [topology.damage.gpus[rank] for rank in ranks]


def topology_summary(
    topology: Topology, constants: Profile, effects: Sequence[str] = (), peers: str = ""
) -> dict[str, Any]:
    """Return the topology in brief for the reader of a result, with the figures used that are not facts.

    *effects* are what failures change for the library, *peers* is how GPUs of a node exchange.
    """
    damage = topology.damage
    ignored = [] if constants.latency else ["latency"]
    ignored += [] if constants.achievable_rate else ["efficiency", "in_network_efficiency"]
    doubtful = [
        fact
        for fact in topology.facts
        if fact.status not in ("datasheet", "measured", "constant", "derived")
        and fact.path.rpartition(".")[2] not in ignored
        and not MIXED.sub("", fact.path).startswith(NOT_SIMULATED)
        and not fact.records_damage
    ]
    return {
        "name": topology.name,
        "title": topology.title,
        "source": topology.source,
        "sha256": topology.sha256,
        "ranks": topology.n_gpus,
        "links": topology.wiring.n_physical_links,
        "not_datasheet": [{"path": fact.path, "value": fact.text, "status": fact.status} for fact in doubtful],
        "follows": [
            {"path": each.path, "value": each.value, "before": each.before, "from": each.cause}
            for each in topology.follows
        ],
        "peers": peers or None,
        "damage": None if damage is None else {"summary": damage.summary, "effects": [*damage.effects, *effects]},
    }


def achievable(fabric: Fabric, free_share: Float | None = None) -> str:
    """Return the share of the line rate that the links reach without background traffic, as text; empty if all of it.

    *free_share* is float64[n_links], what that traffic leaves.
    """
    shares = fabric.capacity_Bps / fabric.raw_capacity_Bps / (1.0 if free_share is None else free_share)
    shares = np.round(shares, EXACT)
    least, most = float(shares.min()), float(shares.max())
    if least == most == 1.0:
        return ""
    return f" ({least:.1%} of line rate)" if least == most else f" ({least:.1%} to {most:.1%} of line rate)"


def is_calibrated(topology: Topology, constants: Profile) -> bool:
    """Return True if measurements of this very system stand behind the times: its name, nothing changed or failed.

    A graph may be changed in every way and keep its name.
    """
    if topology.cluster is not None:
        nodes_fit = constants.fits(topology.name) or constants.fits(topology.cluster.node.name)
        measured = nodes_fit and constants.network.calibrated
        return measured and _network_fits(topology, constants) and not _is_changed(topology)
    return constants.fits(topology.name) and not _is_changed(topology)


def intervals_hold(topology: Topology, constants: Profile) -> bool:
    """Return True if errors that were counted say how far off predictions are on this topology.

    They do on the systems that the profile was fitted to. Those of a derived profile hold for the systems that it
    names, for any if it names none; they are widened unless measurements were compared with them. Between nodes errors
    of whole sites left out hold for every site of such a network, farther where its GPUs were not measured.
    """
    if topology.cluster is not None and constants.network.pooled and len(topology.cluster.kinds) <= 1:
        meant = topology.cluster.spec.network in constants.network.networks
        return meant and not _is_changed(topology, (*SIZES, *SITES))
    if topology.cluster is not None:
        return _network_fits(topology, constants) and not _is_changed(topology)
    meant = topology.name in constants.systems or (bool(constants.derived) and not constants.systems)
    return meant and not _is_changed(topology)


def _network_fits(topology: Topology, constants: Profile) -> bool:
    """Return True if logs of this cluster, or of its nodes on this network, stand behind the costs between nodes."""
    assert topology.cluster is not None
    if len(topology.cluster.kinds) > 1:
        return False
    network, names = constants.network, (topology.name, topology.cluster.node.name)
    return network.networks[:1] == (topology.cluster.spec.network,) and any(name in network.systems for name in names)


def exchanges_as_fitted(constants: Profile, levels: Iterable[str]) -> bool:
    """Return True if GPUs reached each other's memory in the measurements as they do here, by the *levels* of runs."""
    return set(levels) <= set(constants.peers) if constants.peers else "LOC" not in levels


def _is_changed(topology: Topology, usual: Sequence[str] = SIZES) -> bool:
    """Return True if a figure differs, or may differ, from those of the system of that name.

    How many nodes there are is a question, not a change: fits hold logs of some numbers of nodes, and predict others.
    Nor is a setting to what the file says anyway.
    On a single node nothing passes an adapter, so that what lies around it changes nothing.
    """
    changed = topology.source == "graph" or topology.damage is not None
    changed = changed or any(fact.path.startswith(PATHS) for fact in topology.facts)
    around = AROUND_NODES if topology.cluster is None else ()
    settings = topology.settings.keys() - topology.as_before
    return changed or any(path not in (*usual, *TEXTS) and not path.startswith(around) for path in settings)


def warnings_of(
    topology: Topology, constants: Profile, question: Request, *, as_fitted: bool = True
) -> tuple[str, ...]:  # fmt: skip
    """Return the warnings to read before trusting the numbers.

    *as_fitted* is whether GPUs exchange as they did in the measurements.
    """
    told = (
        *_misnamed(constants),
        *_warnings_of_profile(topology, constants, question),
        *_warnings_of_environment(question),
    )
    if not as_fitted and is_calibrated(topology, constants):
        here = " or ".join(constants.peers) or "their links"
        told += (
            f'profile "{constants.name}" was fitted where GPUs reach each other up to {here}, and these exchange in '
            "another way: no constant of the host's memory was fitted, times are a guess",
        )
    told += _bridges(topology, constants)
    return (*told, THROUGH_SOCKETS) if not as_fitted or _over_sockets(topology, constants) else told


def _misnamed(constants: Profile) -> tuple[str, ...]:
    """Return that a file is called as a profile that comes with collsim and is another one."""
    if constants.source in (AUTO_PROFILE, constants.name, "") or constants.name not in profile_names():
        return ()
    if constants.sha256 == load_profile(constants.name).sha256:
        return ()
    return (f'{constants.source} calls itself "{constants.name}" and is not the shipped profile of that name',)


def _bridges(topology: Topology, constants: Profile) -> tuple[str, ...]:
    """Return that rates of channels were fitted over PCIe, where GPUs of such a box have links of their own too."""
    in_switches = bool(constants.peers) and topology.cluster is None and not is_calibrated(topology, constants)
    if not (in_switches or _over_sockets(topology, constants)):
        return ()
    wiring = topology.wiring
    direct = (wiring.link_src < wiring.link_dst) & (wiring.link_dst < wiring.n_gpus)
    names = [wiring.link_name(int(link)).replace("->", "-") for link in direct.nonzero()[0]]
    if not names:
        return ()
    told = f"{', '.join(names[:MOST_BRIDGES])}{f' and {len(names) - MOST_BRIDGES} more' * (len(names) > MOST_BRIDGES)}"
    return (
        f'{told}: bridges; channel_rate of profile "{constants.name}" was fitted over PCIe and is not known '
        "for bridges: rows that channel_rate limits are as slow as over PCIe, --profile ideal has bridges at line rate",
    )


def _over_sockets(topology: Topology, constants: Profile) -> bool:
    """Return True if GPUs meet in CPU sockets, and constants that were fitted elsewhere are to say how fast."""
    sockets = "cpu" in topology.wiring.node_kinds if topology.cluster is None else False
    return sockets and constants.name != "ideal" and not is_calibrated(topology, constants)


def _warnings_of_profile(topology: Topology, constants: Profile, question: Request) -> tuple[str, ...]:
    """Return warnings that the constants were fitted to something other than what is asked, or to nothing."""
    name = f'profile "{constants.name}"'
    if constants.name == "ideal":
        return ()
    if not constants.calibrated and not constants.derived and not constants.systems:
        return (f"{name} is not calibrated: times are round figures, not a forecast of a log",)
    told = []
    systems = " or ".join(constants.systems) or "no system"
    if constants.derived:
        seen = f"checked against {constants.checked}" if constants.checked else "not measured"
        told.append(f"{name} is derived, {seen}: {constants.derived}")
    elif not constants.calibrated:
        told.append(f"{name} is not calibrated: {constants.title or 'its file does not say what it was fitted to'}")
    elif topology.damage is not None and is_calibrated(topology.damage.healthy, constants):
        told.append(f"{name} was fitted to {systems} in order: no failure was ever measured, times are a guess")
    elif topology.cluster is None and not is_calibrated(topology, constants):
        told.append(f"{name} was fitted to {systems} as shipped, not to this: times are a guess")
    if topology.cluster is not None and len(topology.cluster.kinds) > 1:
        kinds = ", ".join(kind.name for kind in topology.cluster.kinds)
        told.append(f"nodes differ ({kinds}): {name} holds for all that take part; no such cluster was measured")
    if topology.cluster is not None and not is_calibrated(topology, constants):
        told.append(_stand_in(topology, constants))
    if question.library is None and not constants.library and "auto" in question.algo:
        such = f"such as {DEFAULT_LIBRARY} or {DEFAULT_RCCL}"
        told.append(f"{name} names no library whose choice auto could follow: add --library with one, {such}")
    launch = "graph" if question.launch == "graph" else "registered" if question.registered else "stream"
    if launch != "stream" and launch not in constants.launches:
        told.append(f"{name} knows nothing of {launch} launches: times are those of stream launches")
    if launch == "graph" and question.registered:
        told.append("registered buffers change nothing with graph launches: replaying a graph registers them too")
    return tuple(told)


def waits_for_host(row: Row) -> bool:
    """Return True if the host decides much of the time of a row."""
    return row.host_s >= HOST_COUNTS * row.time_s > 0


def unnamed_library(constants: Profile, named: Profile, library: Library, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return that a library which nobody named would run the *rows* with other constants, as *named* has them.

    Both profiles are as launched. How soon the host starts a kernel counts only in rows that wait for it.
    """

    def otherwise(row: Row) -> bool:
        one, other = _costs_of(row, constants), _costs_of(row, named)
        return one != (other if waits_for_host(row) else replace(other, floor_s=one.floor_s))

    if not any(otherwise(row) for row in rows if row.algo != "none"):
        return ()
    told = f'profile "{constants.name}" was fitted to what {library.name} runs, and it runs these kernels otherwise'
    return (f'{told}: add --library {library.name}, in Python library="{library.name}"',)


def _costs_of(row: Row, constants: Profile) -> Protocol:
    """Return the constants of the kernel of a row."""
    return constants.protocol(row.proto or "Simple", kernel_of(constants, family_of(row.op, row.algo), row.op))


def _stand_in(topology: Topology, constants: Profile) -> str:
    """Return a sentence on the constants that stand in for measurements of a cluster."""
    network = constants.network
    if not network.systems:
        return "between nodes, constants of NCCL's tuner and line rates stand in for measurements"
    if _network_fits(topology, constants) and not network.calibrated:
        return f"between nodes, constants are not calibrated: {network.title}"
    if _network_fits(topology, constants):
        told = f"between nodes, constants were fitted to {' and '.join(network.systems)}"
        measured = constants.calibrated and not constants.derived
        return f"{told} as shipped, not to this" if measured else f"{told}; those of its nodes were not"
    return f"between nodes, constants fitted to {' and '.join(network.systems)} stand in for those of {topology.name}"


def approximations(question: Request, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return that rows are approximate, if nobody asked for that."""
    found = [row.tolerance for row in rows if row.tolerance]
    if question.tolerance is not None or not found:
        return ()
    told = f"{format_count(len(found), 'time')} of irregular traffic" if len(found) < len(rows) else "irregular traffic"
    why = f"approximate, within a tolerance of {percent(max(found))}, because to be exact takes long"
    return (f"{told}: {why}; tolerance 0 asks for exact times",)


def uncalibrated(topology: Topology, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return which rows rest on steps that no log tells: sums in the network, and in nodes larger than any of a fit."""
    places = [algorithm(row.op, row.algo).in_network for row in rows if row.algo != "none"]
    told = []
    if any("network" in place for place in places):
        told.append(
            "steps that switches between the nodes add cost what NCCL's tuner reckons: no log of SHARP is in any fit"
        )
    cluster = topology.cluster
    if cluster is not None and cluster.spec.gpus_per_node > HEADS_OF_FITS and any(p == ("node",) for p in places):
        told.append(
            f"trees of NVLS were fitted on nodes of {HEADS_OF_FITS} GPUs; more heads are assumed to wait as they do on "
            "one node"
        )
    return tuple(told)


def beyond_library(
    rows: Sequence[Row], of_library: Mapping[str, Collection[str]], question: Request
) -> tuple[str, ...]:
    """Return which algorithms of ``best`` and ``all`` the library does not run here; *of_library* has those it runs."""
    told = []
    for op, has in of_library.items():
        shown = dict.fromkeys(row.algo for row in rows if row.op == op and row.asked in ("best", "all"))
        foreign = [name for name in shown if name not in has]
        if question.library is not None and has and foreign:
            it = "it takes a kernel" if len(foreign) == 1 else "they take kernels"
            told.append(f"{question.library.name} does not run {op} by {' or '.join(foreign)} here: {it} of one's own")
    return tuple(told)


def left_to_others(topology: Topology, question: Request, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return how many calls an inference engine has no kernel for, and whose run instead."""
    library = question.library
    if library is None or not library.is_engine:
        return ()
    from collsim.library import system_of

    chosen = [row for row in rows if row.asked == "auto" and row.algo != "none"]
    others = [row for row in chosen if library.family not in algorithm(row.op, row.algo).libraries]
    if not others:
        return ()
    beneath = library.beneath(is_amd=system_of(topology).is_amd).name
    count = f"all {len(chosen)}" if len(others) == len(chosen) else f"{len(others)} of {len(chosen)}"
    return (f"{library.name} leaves {count} calls to {beneath}: it has no kernel for such a call, or not at that size",)


def left_to_plugin(by_plugin: Mapping[str, Collection[object]], rows: Sequence[Row]) -> tuple[str, ...]:
    """Return in how many calls the tuner of a plug-in chose, not the library; *by_plugin* has them by instance."""
    asked = len({(row.op, row.ranks, row.size_bytes) for row in rows if row.asked == "auto" and row.algo != "none"})
    return tuple(
        f"in {len(calls)} of {asked} calls the tuner of AWS's plug-in chose, as on {instance}; "
        f"{OFI_TUNER}=Internal leaves them to NCCL"
        for instance, calls in by_plugin.items()
    )


def set_by_cloud(topology: Topology, question: Request, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return which variables NCCL has by the documentation of a cloud, where the library chooses."""
    if topology.cluster is None or all(row.asked != "auto" for row in rows):
        return ()
    from collsim.library.nccl.plugin_tuner import documented
    from collsim.library.system import instance_of

    its = {name: value for name, value in documented(instance_of(topology)).items() if name not in question.environment}
    told = " ".join(f"{name}={value}" for name, value in its.items())
    return (f"over {topology.cluster.spec.network} NCCL has what Google's documentation sets: {told}",) if its else ()


def lacking(launched: Profile, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return which kernels and protocols of the rows the profile has no constants of, and whose hold instead."""
    pairs = dict.fromkeys((family_of(row.op, row.algo), row.proto or "Simple") for row in rows if row.algo != "none")
    told = []
    for family, proto in pairs:
        place = launched.stands_for(proto, family)
        if place is not None and launched.lacks(proto, family):
            lack = f'profile "{launched.name}" has no constants of {family} with {proto}'
            told.append(f"{lack}: those of {place[0]} with {place[1]} hold instead")
    return tuple(told)


def _warnings_of_environment(question: Request) -> tuple[str, ...]:
    """Return which variables do nothing, because of what they are or because something that was named goes before."""
    if not question.environment:
        return ()
    from collsim.library import read_environment

    told = list(read_environment(question.environment).warnings)
    settings = ", ".join(f"{name}={value}" for name, value in question.environment.items())
    if "auto" not in question.algo:
        of_sharp = list(question.environment) == [SHARP_VARIABLE] and not set(question.algo).isdisjoint(CHOICES)
        named = ", ".join(question.algo)
        goes_before = f"{settings}: variables change what auto chooses; algo {named} goes before them"
        return tuple(told) if of_sharp else (*told, goes_before)
    flags = (
        ("proto", question.proto, ("NCCL_PROTO", "RCCL_OVERRIDE_PROTO")),
        ("channels", question.channels, CHANNEL_VARIABLES),
        ("chunk", question.chunk_bytes, BYTES),
    )
    for name, value, variables in flags:
        beaten = [f"{key}={text}" for key, text in question.environment.items() if key in variables]
        if value is not None and beaten:
            told.append(f"{', '.join(beaten)}: {name} {value} was named and goes before it")
    return tuple(told)


def disturbances(question: Request, *, shared: bool) -> tuple[str, ...]:
    """Return warnings of conditions that no measured log has seen: groups that meet on links, background traffic."""
    told = ["groups share links: no log of such groups stands behind the times"] if shared else []
    told += (
        ["background traffic is a constant share of the links: no log stands behind the times"] if question.load else []
    )
    return tuple(told)


def equal_draws(ranks: Iterable[int]) -> tuple[str, ...]:
    """Return a note for each number of ranks whose runs no hash of the network can change."""
    return tuple(
        f"{n} ranks: no message goes from switch to switch, so all draws of the hash are the same" for n in ranks
    )


def roundings(skipped: Sequence[Row]) -> tuple[str, ...]:
    """Return which sizes are left out because nothing of them remains."""
    told = []
    for op in dict.fromkeys(row.op for row in skipped):
        sizes = [str(row.requested_bytes) for row in skipped if row.op == op]
        some = ", ".join(sizes[:4]) + (f" and {len(sizes) - 4} more" if len(sizes) > 4 else "")
        told.append(f"{op} is left out at {some} bytes: nccl-tests rounds that down to nothing")
    return tuple(told)
