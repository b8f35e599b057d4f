"""Profile files: the shipped ones by name or by topology, and those of a user.

A profile is a YAML file. Every figure carries its status and source, as in a topology file; a figure that is absent
costs nothing. `default` holds documented round figures that no measurement has calibrated; `ideal` is the bare wire;
the others are called after the system that they were fitted to, or derived for.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from collsim.core.errors import Fault, InputError, SpecError, UnknownNameError
from collsim.core.input_files import beside, read_input
from collsim.library.costs.channel_costs import Origin, Protocol
from collsim.library.costs.network_costs import COPY_THRESHOLD, EAGER_BYTES
from collsim.library.costs.profile import NetworkCosts, Profile
from collsim.library.costs.profile_reader import SCHEMA, read_profile
from collsim.topology.files.reader import MAX_FILE_BYTES, read_document

if TYPE_CHECKING:
    from collsim.library.library import Library
    from collsim.topology import Topology

__all__ = [
    "copies_faster", "load_profile", "profile_for", "profile_names", "with_copies", "with_kernels", "with_symmetric",
]  # fmt: skip

FOLDER = Path(__file__).parent / "profiles"
NETWORKS = FOLDER / "networks"
"""Constants of steps between nodes, by technology and GPU."""
ENGINES = FOLDER / "engines"
"""Constants of the kernels of inference engines, by engine and GPU."""
AUTO = "auto"
OVER_PCIE = ((40e9, "l40s_8gpu"), (float("inf"), "rtx_pro_6000_8gpu"))
"""Profiles of GPUs without links of their own by the most that a port has: PCIe 4 and 5 were measured."""


def profile_names() -> list[str]:
    """Return the names of the profiles that come with collsim."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def _meant_for(key: str) -> dict[str, str]:
    """Return the shipped profile of each name under *key* (systems or gpus), without reading the files as YAML."""
    line = re.compile(rf"^{key}: \[([^\]]*)\]$", re.MULTILINE)
    texts = {name: (FOLDER / f"{name}.yaml").read_text(encoding="utf-8") for name in profile_names()}
    return {
        word.strip(): name for name, text in texts.items() for part in line.findall(text) for word in part.split(",")
    }


def profile_for(topology: Topology, gpus: Sequence[int] | None = None) -> str:
    """Return the shipped profile for a topology: of that very system, of a relative with the same GPU, or the default.

    A cluster has that of its nodes, which says nothing of the network; if they differ, that of the kind whose GPUs have
    the least rate inside a node, since whoever waits for it is no faster. *gpus* are those that take part; None: all.
    Cards in sockets that bridges of their own join have the profile of their GPU.

    >>> from collsim.topology import load_topology
    >>> profile_for(load_topology("hgx_h100"))
    'hgx_h100'
    """
    topology = _slowest_kind(topology, gpus)
    if topology.name in (systems := _meant_for("systems")):
        return systems[topology.name]
    model, kind_of_link = topology.labels.get("gpu.model", ""), topology.labels.get("link.type", "PCIe")
    relatives = {part: name for part, name in _meant_for("gpus").items() if part in model}
    if "PCIe" in kind_of_link and "cpu" in topology.wiring.node_kinds:
        bridged = gpus is not None and relatives and _bridged(topology, gpus)
        return relatives[max(relatives, key=len)] if bridged else _over_pcie(topology)
    alone = kind_of_link != "PCIe" and not any(kind == "nic" for kind in topology.wiring.node_kinds)
    return relatives[max(relatives, key=len)] if relatives and alone else "default"  # GH200 is no H200


def _bridged(topology: Topology, gpus: Sequence[int]) -> bool:
    """Return True if links of their own join every two of some GPUs."""
    wiring, chosen = topology.wiring, set(gpus)
    ends = zip(wiring.link_src.tolist(), wiring.link_dst.tolist(), strict=True)
    return sum(src in chosen and dst in chosen for src, dst in ends) == len(chosen) * (len(chosen) - 1)


def _over_pcie(topology: Topology) -> str:
    """Return the profile of GPUs that meet in sockets: that of the measured machine with such ports."""
    wiring = topology.wiring
    port_Bps = float(wiring.link_bandwidth_Bps[wiring.link_src < wiring.n_gpus].min())
    return next(name for most_Bps, name in OVER_PCIE if port_Bps <= most_Bps)


def _slowest_kind(topology: Topology, gpus: Sequence[int] | None = None) -> Topology:
    """Return the node whose GPUs can send the least inside it, of the kinds that *gpus* are on."""
    everyone = range(topology.n_gpus) if gpus is None else gpus
    kinds = [kind for kind, _ in topology.by_kind(everyone)]
    if len(kinds) == 1:
        return kinds[0]
    from collsim.topology import describe

    return min(kinds, key=lambda kind: float(describe(kind)["per_gpu_uni_Bps"]))


def load_profile(
    name: str | Path | Profile, topology: Topology | None = None, gpus: Sequence[int] | None = None
) -> Profile:
    """Return a profile by name or from a file (a name with a slash or that ends in .yaml or .yml).

    ``auto`` is the one of *topology*, see `profile_for`. Between nodes, constants of the cluster's network stand in a
    profile that has none, those for the GPU of the same kind of nodes.

    Raises
    ------
    UnknownNameError
        No such profile.
    SpecError
        Every fault of the file.

    Examples
    --------
    >>> load_profile("ideal").launch_s
    0.0
    """
    if isinstance(name, Profile):
        return name
    if not isinstance(name, str | Path):
        hint = "pass a name, a path or a Profile"
        raise InputError(Fault(f"{repr(name)[:40]} is no profile", "profile", hint))
    if name == AUTO:
        found = _shipped("default" if topology is None else profile_for(topology, gpus))
        return replace(_with_network(found, topology, gpus), source=AUTO)
    is_file = isinstance(name, Path) or "/" in name or name.endswith((".yaml", ".yml"))
    if not is_file and name not in profile_names():
        raise UnknownNameError("profile", str(name), [AUTO, *profile_names()], "profile")
    return _with_network(_loaded(Path(name), str(name)) if is_file else _shipped(str(name)), topology, gpus)


def _with_network(profile: Profile, topology: Topology | None, gpus: Sequence[int] | None) -> Profile:
    """Return a profile that says nothing of the network with the constants of that of the topology.

    A run within one node needs none, so no second file is read for it.
    """
    if profile.network.families or not profile.families:
        return profile
    if topology is None:
        network = _shipped("default").network
    elif topology.cluster is None:
        return profile
    else:
        gpu = _slowest_kind(topology, gpus).labels.get("gpu.model", "")
        network = network_for(topology.cluster.spec.network, gpu, profile.library) or _shipped("default").network
    launches = {launch: replace(one, network=network) for launch, one in profile.launches.items()}
    return replace(profile, network=network, launches=launches)


LINES = frozenset({"LL", "LL128"})
LINES_OF = {"nccl": "infiniband", "rccl": "ultra_ethernet"}
"""By library: the network whose logs tell most of its lines."""


@cache
def network_for(technology: str, gpu: str, library: str) -> NetworkCosts | None:
    """Return the shipped constants between nodes of a GPU on a technology, or else between any on it.

    How fast lines of LL and LL128 pass is the kernels', not the adapter's: a library of another family than the one
    that was measured takes them from where its own was.
    """
    named = [path for path in sorted(NETWORKS.glob("*.yaml")) if technology.encode() in path.read_bytes()]
    found = [_loaded(path, path.stem) for path in named]  # to check a file takes long: the others cannot be meant
    meant = [one for one in found if technology in one.network.networks]
    usual = next((one for one in meant if one.network.networks[0] == technology), next(iter(meant), None))
    taken = next((one for one in meant if one.network.covers(technology, gpu)), usual)
    if taken is None or not library or _family(taken.library) == _family(library):
        return None if taken is None else taken.network
    donor = LINES_OF[_family(library)]
    return _with_lines_of(_loaded(NETWORKS / f"{donor}.yaml", donor).network, taken.network, library)


def _family(library: str) -> str:
    return library.partition("-")[0]


def _with_lines_of(donor: NetworkCosts, network: NetworkCosts, library: str) -> NetworkCosts:
    """Return the constants with LL and LL128 as of another network, on the same adapters."""
    families = {family: {"Simple": costs["Simple"]} for family, costs in network.families.items() if "Simple" in costs}
    share = families["ring"]["Simple"].link_share
    for family, costs in donor.families.items():
        for proto in LINES & costs.keys():
            families.setdefault(family, {})[proto] = replace(costs[proto], link_share=share)
    title = f"{network.title}; LL and LL128 as {_family(library).upper()} has them on {donor.name}"
    return replace(network, title=title, families=families)


def with_copies(profile: Profile, threshold_bytes: int) -> Profile:
    """Return a profile as hosts on Slingshot copy messages of lines with that FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD.

    Up to the threshold a host stores into the GPU's memory by itself (fi_cxi(7)). With one that all it copies stay
    below, hosts of Grace, which otherwise have CUDA copy, are taken to be as fast as those of x86 are as they come.
    """
    lines = profile.network.protocol("LL", "ring")
    if threshold_bytes < EAGER_BYTES or lines is None or math.isinf(lines.host_rate_Bps):
        return profile
    x86 = network_for(profile.network.networks[0], "A100", "nccl")
    assert x86 is not None
    fast = x86.families["ring"]["LL"]
    if lines.host_rate_Bps >= fast.host_rate_Bps:
        return profile
    source = f"as hosts of x86 copy, with {COPY_THRESHOLD}={threshold_bytes}"
    told = {"host_rate_Bps": Origin(x86.name, "host_rate", "assumed", source)}

    def faster(costs: Protocol) -> Protocol:
        return replace(costs, host_rate_Bps=fast.host_rate_Bps, origins={**costs.origins, **told})

    families = {
        family: {name: faster(costs) if name == "LL" else costs for name, costs in its.items()}
        for family, its in profile.network.families.items()
    }
    network = replace(profile.network, families=families)
    launches = {launch: replace(one, network=network) for launch, one in profile.launches.items()}
    return replace(profile, network=network, launches=launches)


def copies_faster(profile: Profile) -> bool:
    """Return True if `with_copies` made copies of hosts faster."""
    lines = profile.network.protocol("LL", "ring")
    told = None if lines is None else lines.origins.get("host_rate_Bps")
    return told is not None and COPY_THRESHOLD in told.source


def with_kernels(profile: Profile, library: Library, topology: Topology) -> Profile:
    """Return a profile with the costs of an engine's own kernels: as measured on the topology, else carried over.

    Kernels that the profile has constants of keep them. Of carried over ones it says so, and knows no errors.
    """
    return _with_kernels_of(profile, library.family, library.name, topology, "where it calls NCCL or RCCL")


def with_symmetric(profile: Profile, topology: Topology) -> Profile:
    """Return a profile with the costs of NCCL's kernels on symmetric memory, in the same way."""
    return _with_kernels_of(profile, "symmetric", "NCCL on symmetric memory", topology, "for the rest")


def _with_kernels_of(profile: Profile, family: str, name: str, topology: Topology, rest: str) -> Profile:
    if not profile.families and not profile.latency:
        return profile  # bare wires
    kernels = _kernels_for(family, topology)
    measured = topology.name in kernels.systems
    told = f"kernels of {name}: {kernels.title}"
    told += "" if measured else f"; carried over to {topology.name}, where nothing of {name} was measured"

    def joined(mine: Profile, theirs: Profile) -> Profile:
        accuracy = {**(theirs.accuracy if measured else {}), **mine.accuracy}
        title = f"{told}; {rest}: {mine.title}"
        return replace(mine, title=title, families={**theirs.families, **mine.families}, accuracy=accuracy)

    names = {**profile.launches, **kernels.launches}
    launches = {
        name: joined(profile.launches.get(name, profile), kernels.launches.get(name, kernels)) for name in names
    }
    return replace(
        joined(profile, kernels),
        derived=profile.derived and f"{profile.derived}; {told}",
        calibrated=profile.calibrated and measured,
        sha256=hashlib.sha256(f"{profile.sha256}{kernels.sha256}".encode()).hexdigest(),
        launches=launches,
    )


def _kernels_for(family: str, topology: Topology) -> Profile:
    """Return the costs of an engine's kernels: of that very system, of the same GPU, or of the first that was measured.

    Files are in the order of their names.
    """
    found = _engine_files(family)
    model = topology.labels.get("gpu.model", "")
    same = (kernels for kernels in found if topology.name in kernels.systems)
    alike = (kernels for kernels in found if any(part in model for part in kernels.gpus))
    return next(same, None) or next(alike, found[-1])


@cache
def _engine_files(family: str) -> tuple[Profile, ...]:
    """Return the shipped costs of the kernels of an engine, by system."""
    return tuple(_loaded(path, path.stem) for path in sorted(ENGINES.glob(f"{family}_*.yaml")))


@cache
def _shipped(name: str) -> Profile:
    """Return a profile that comes with collsim; its file does not change while the program runs."""
    return _loaded(FOLDER / f"{name}.yaml", name)


def _loaded(path: Path, source: str) -> Profile:
    """Return the profile in a file."""
    content = _content(path)
    document = read_document(content, str(path), SCHEMA)
    base = document.data.get("extends")
    relative = _shipped(base) if base in profile_names() and base != path.stem else None
    sha256 = hashlib.sha256(content + (relative.sha256.encode() if relative else b"")).hexdigest()
    taken = profile_names() if path.resolve().parent != FOLDER.resolve() else ()
    found = read_profile(document, sha256, relative, taken)
    return replace(found, source=source)


def _content(path: Path) -> bytes:
    """Return the bytes of a profile; a file that is too large is cut, and refused by whoever reads it."""
    try:
        return read_input(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise SpecError(Fault("no such file", str(path), _file_hint(path))) from None
    except IsADirectoryError:
        raise SpecError(Fault("this is a directory, not a file", str(path), "name the YAML file in it")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(Fault(f"cannot be read: {reason}", str(path), "check the path")) from None


def _file_hint(path: Path) -> str:
    """Return a hint about a file that is not there: a shipped profile, or a file beside it, of a similar name."""
    names = profile_names()
    if (name := path.name.removesuffix(path.suffix)) in names:
        return f'the shipped profile is called "{name}", without a path'
    return beside(path).rstrip() or f"shipped profiles: {', '.join(names)}"
