"""Fit the shipped profiles to the training rows of tools/data.

``python tools/fit_profiles.py --write`` fits all of them, each after those that it starts from, and ships what comes
out; ``--check`` fits them and says where the shipped files differ. ``--system NAME``, as often as wanted, takes only
these, and ``-o FILE`` writes one elsewhere. Every fit starts from a profile of tools/starts, figures that stood before
any of these logs was read, with their sources, or from that of a relative.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from joint_networks import JOINT, Joint, Law, Seen, few, fit_jointly, left_out_s, time_s
from predictors import TableRow, matrix_bytes, measured_rows, topology_of, variables
from site_errors import Draw, errors_of_sites

from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.findings import Calibration
from collsim.calibration.fit import fit_profile
from collsim.calibration.fit_network import fit_network
from collsim.calibration.log_placement import misfit, nodes_of
from collsim.calibration.observations import observe, thinned, without_spikes
from collsim.calibration.profile_writer import as_yaml
from collsim.calibration.scatters import residual_of
from collsim.calibration.validate import DEFAULT_RCCL
from collsim.core.operations import DTYPES
from collsim.library import DEFAULT_LIBRARY, Profile, load_profile, read_environment, system_of
from collsim.library.costs.channel_costs import BETWEEN, Protocol
from collsim.library.costs.hosts import as_hosted
from collsim.library.costs.profile import NetworkCosts
from collsim.library.peers import peer_level
from collsim.report.calibration import calibration_table
from collsim.topology import Topology

STARTS = Path(__file__).parent / "starts"
SHIPPED = Path(__file__).parents[1] / "collsim" / "library" / "costs" / "profiles"
DEFAULT = {False: DEFAULT_LIBRARY, True: DEFAULT_RCCL}
ALIKE = 0.01
"""By so much a figure may differ from one machine to another: more than rounding, less than anyone would notice."""
SOURCE = "tools/fit_profiles.py on the training logs in tools/data"

NVLS_SEEN = {"NCCL_NVLS_ENABLE": "1"}
"""Where the tables do not say that the machine hides NVLS, it did not."""


STARTED_BYTES = 2**16
"""Below this bytes take next to nothing of a call, and what is left is its start and its steps (chosen)."""


class Fit(NamedTuple):
    """Where the fit of a system starts: a file of `STARTS`, or the shipped profile of a relative.

    Which GPUs follow, and clusters whose nodes are that system; on which kind of host the logs were taken; whether the
    relative has the same GPU; who lends the intervals of kernels of which no row can be left out; whether channels
    of messages, of which no log was fitted, store as fast as those of rings, as a port binds both; and systems with
    the same die, clocks and links, whose rows below `STARTED_BYTES` tell when kernels start.
    """

    start: str
    gpus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    host: str = "bare"
    alike: bool = False
    lender: str = ""
    as_rings: bool = False
    twins: tuple[str, ...] = ()


class Between(NamedTuple):
    """Whose logs tell what steps between nodes cost, and other names of it; which GPUs and networks follow.

    The first network is that of the logs, and *measured* are the GPUs of their chips.
    """

    systems: tuple[str, ...]
    gpus: tuple[str, ...]
    networks: tuple[str, ...]

    measured: tuple[str, ...]

    def covers(self, topology: Topology) -> bool:
        """Return True if they are meant for a cluster."""
        assert topology.cluster is not None
        meant = NetworkCosts(networks=self.networks, gpus=self.gpus)
        return meant.covers(topology.cluster.spec.network, topology.labels.get("gpu.model", ""))


FITS = {
    "hgx_h100": Fit("nvlink", ("H100", "H800"), ("h100_rail",), "virtual", twins=("hgx_h200",)),
    "gh200_quad": Fit("hgx_h100", ("GH200",), ("alps",), lender="hgx_h100"),
    "hgx_b200": Fit("blackwell", ("B200",), lender="hgx_h100"),
    "gb200_nvl72": Fit("hgx_b200", ("GB200",), alike=True, lender="hgx_b200"),
    "dgx_a100": Fit("ampere", ("A100", "A800"), lender="hgx_h100"),
    "dgx2_v100": Fit("volta", ("V100",), lender="hgx_h100"),
    "mi300x_ubb8": Fit("xgmi", ("MI300X",)),
    "l40s_8gpu": Fit("pcie", ("L40", "RTX 40"), as_rings=True),
    "rtx_pro_6000_8gpu": Fit("pcie", ("RTX PRO 6000", "RTX 50"), as_rings=True),
}
"""In this order: a relative comes first."""


NETWORKS = {
    "infiniband": Between(
        ("h100_rail", "hgx_h100"), ("H100", "H200", "H800", "H20", "B200", "B300"),
        ("infiniband", "spectrum_x", "roce"), ("H100", "H200", "H800", "H20"),
    ),
    "infiniband_a100": Between(("a100_rail", "dgx_a100"), ("A100",), ("infiniband", "roce"), ("A100",)),
    "slingshot": Between(("alps",), ("GH200",), ("slingshot",), ("GH200",)),
    "slingshot_a100": Between(("polaris",), ("A100",), ("slingshot",), ("A100",)),
    "slingshot_h100": Between(("kestrel",), ("H100",), ("slingshot",), ()),
    "efa": Between(("p5_efa",), ("H100", "H200"), ("efa",), ("H100", "H200")),
    "efa_a100": Between(("p4d_efa",), ("A100",), ("efa",), ()),
    "efa_v1": Between(("p3dn_efa",), ("V100",), ("efa",), ("V100",)),
    "tcpxo": Between(("a3_mega",), ("H100",), ("tcpxo",), ("H100",)),
    "tcpx": Between(("a3_high",), ("H100",), ("tcpx",), ("H100",)),
    "ultra_ethernet": Between(
        ("mi355x_pollara", "mi355x_ubb8"), ("MI350X", "MI355X"), ("ultra_ethernet", "roce"), ("MI350X", "MI355X")
    ),
    "roce": Between(("mi300x_roce", "mi300x_ubb8"), ("MI300X", "MI325X"), ("roce",), ("MI300X", "MI325X")),
}  # fmt: skip
"""A chip under several names is one: MI350X and MI355X, MI300X and MI325X, H100 and its relatives differ in memory and
clocks, not in what drives the adapters."""
BESIDE = ("kestrel",)
"""Clusters whose training logs are held against a fit and not in it. The one of Kestrel has 0.8 to 3 ms from 512 KiB to
16 MiB, 2 MiB longer than 16, three to five times what any law here says; in the fit it made sites left out farther off
(Polaris from 1 to 32 MiB 76 % instead of 20, Alps 34 instead of 10)."""
OF_TCP = ("tcpxo", "tcpx")
"""Networks of TCP: what a step over them takes tells nothing of how far sites of RDMA differ."""
RCCL = "ultra_ethernet"
"""The network whose logs tell most of RCCL: another starts from what they say."""


def as_case(row: TableRow) -> Measured:
    """Return a row of a table as the calibration takes it."""
    case, told = row.case, row.case.library
    matrix = matrix_bytes(case.matrix, case.scale) if case.matrix else None
    asked = MeasuredCase(
        op=case.op,
        ranks=case.ranks,
        size_bytes=case.size_bytes,
        dtype=case.dtype if case.dtype in DTYPES else "int8",
        launch="graph" if case.launch == "graph" else "stream",
        registered=int(case.launch == "registered"),
        gpus_per_thread=max(case.gpus_per_thread, 1),
        one_process=1 < case.ranks <= case.gpus_per_thread,
        calls=case.calls,
        replays=case.replays,
        library=known_library(told),
        environment=tuple(sorted((NVLS_SEEN | variables(case)).items())),
        matrix=matrix,
        nodes=case.nodes or None,
    )
    return Measured(asked, row.log, 0, row.out_of_place_s, row.in_place_s, 0)


def known_library(name: str) -> str | None:
    """Return the nearest version with known constants; None if a log names none."""
    from collsim.calibration.cases import nearest_library

    return nearest_library(name) if "-" in name else None


def rows_of(system: str) -> list[Measured]:
    """Return the sound training rows of a system."""
    return [
        as_case(row)
        for row in measured_rows()
        if row.case.system == system and row.set == "train" and row.health == "ok" and not row.spike
    ]


def start_profile(system: str) -> Profile:
    """Return the profile that the fit of a system starts from."""
    begin = FITS[system].start
    start = load_profile(begin if begin in FITS else str(STARTS / f"{begin}.yaml"))
    hosted = as_hosted(start, FITS[system].host) if start.host else start
    return replace(hosted, thread_launch_s=start.thread_launch_s)


def fit(system: str, *, without: int = 0) -> Calibration:
    """Return the calibration of a system; to no row of *without* ranks."""
    start, topology = start_profile(system), topology_of(system)
    rows = [row for row in rows_of(system) if row.case.ranks != without]
    twins = [
        row
        for twin in FITS[system].twins
        for row in rows_of(twin)
        if row.case.ranks != without and row.case.size_bytes < STARTED_BYTES
    ]
    found = fit_profile(rows, topology, start=start, alike=FITS[system].alike, twins=twins)
    levels = {peer_level(topology, range(row.case.ranks), read_environment(dict(row.case.environment))) for row in rows}
    if FITS[system].lender:
        found = with_lent(found, FITS[system].lender)
    if FITS[system].as_rings:
        found = replace(found, profile=with_rates_of_rings(found.profile))
    systems, peers = (*found.profile.systems, *FITS[system].clusters), tuple(sorted(filter(None, levels)))
    return replace(
        found,
        profile=replace(found.profile, systems=systems, gpus=FITS[system].gpus, peers=peers, host=FITS[system].host),
    )


def with_rates_of_rings(profile: Profile) -> Profile:
    """Return a profile whose channels of messages in the Simple protocol are as fast as those of rings."""
    rate_Bps = profile.families["ring"]["Simple"].channel_rate_Bps
    messages = dict(profile.families["messages"])
    messages["Simple"] = replace(messages["Simple"], channel_rate_Bps=rate_Bps, one_way_rate_Bps=rate_Bps)
    return replace(profile, families={**profile.families, "messages": messages})


def with_lent(found: Calibration, lender: str) -> Calibration:
    """Return a calibration with the intervals of a relative where its own logs leave no row out."""
    accuracy = {family: dict(bands) for family, bands in found.profile.accuracy.items()}
    for family, bands in load_profile(lender).accuracy.items():
        own = found.profile.accuracy.get(family, {})
        for band, its in bands.items():
            mine = own.get(band) or (own.get("large") if band == "bulk" else None)
            if its.is_told and (mine is None or not mine.is_told):
                accuracy.setdefault(family, {})[band] = own.get(band, its).borrowed(lender, its)
    return replace(found, profile=replace(found.profile, accuracy=accuracy))


MOST_TRANSFERS = 20_000
"""Rows whose schedules are larger are left out of the joint fit, which times each of them some hundred times."""
MOST_ROWS = 80
"""Of a site: its rows are much alike."""


def seen_of(system: str, rows: Sequence[TableRow]) -> list[Seen]:
    """Return the rows of a cluster over several nodes, laid on it; none of one that no fit between nodes covers."""
    topology = topology_of(system)
    names = [name for name in NETWORKS if topology.cluster is not None and NETWORKS[name].covers(topology)]
    if not names or system in BESIDE or (names[0] in JOINT and system_of(topology).is_amd):
        return []
    site = {row.log: f"{row.site} ({system})" for row in rows}
    cases = [case for case in thinned(list(map(as_case, rows))) if misfit(case.case, topology) is None]
    profile = with_start(topology)
    library = profile.library or DEFAULT[system_of(topology).is_amd]
    seen, _ = observe(undisturbed_cases(cases, system), topology, profile, library)
    return [
        Seen(names[0], site[entry.row.file], replace(entry, family=BETWEEN.get(entry.family, entry.family)))
        for entry in seen
        if entry.over_nodes and len(entry.lowered.transfers) <= MOST_TRANSFERS and entry.row.case.launch == "stream"
    ]


def undisturbed_cases(cases: Sequence[Measured], system: str) -> list[Measured]:
    """Return the rows of streams without spikes."""
    return without_spikes([case for case in cases if case.case.launch == "stream"], system)[0]


def law_of_nccl(without: Iterable[str] = ()) -> Law:
    """Return the law of steps between nodes, which starts from figures that stood before any log was read."""
    return Law(load_profile(str(STARTS / "between.yaml")).network.families, without)


@cache
def seen_between() -> dict[bool, list[Seen]]:
    """Return the training rows over nodes: of the networks that are fitted together, and of the others."""
    systems: dict[str, list[TableRow]] = defaultdict(list)
    for row in measured_rows():
        if row.set == "train" and row.health == "ok" and not row.spike and row.case.nodes > 1:
            systems[row.case.system].append(row)
    seen = [entry for system in systems for entry in seen_of(system, systems[system])]
    return {
        together: few([entry for entry in seen if (entry.network in JOINT) == together], MOST_ROWS)
        for together in (True, False)
    }


@cache
def joint_fit() -> Joint:
    """Return the joint fit to the training rows of all its networks."""
    return fit_jointly(law_of_nccl(), seen_between()[True])


@cache
def draws() -> tuple[Draw, ...]:
    """Return every training row over nodes as another site's logs predict it.

    That is the joint fit without its site; elsewhere, where a network has no logs but these, what stood before any.
    None is of TCP.
    """
    left_out = zip(joint_fit().seen, left_out_s(joint_fit()).tolist(), strict=True)
    elsewhere = [entry for entry in seen_between()[False] if entry.network not in OF_TCP]
    apart = [(entry, time_s(entry.row, start_of(entry))) for entry in elsewhere]
    return tuple(Draw(entry, its_s) for entry, its_s in (*left_out, *apart))


def start_of(entry: Seen) -> Protocol:
    """Return what a step of a row cost before any log was read."""
    found = entry.row.run.profile.network.protocol(entry.row.proto, entry.row.family)
    assert found is not None
    return found


def fit_together(name: str) -> Calibration:
    """Return what the joint fit says of a network."""
    between, found = NETWORKS[name], joint_fit()
    start = with_start(topology_of(between.systems[0]))
    own = [entry for entry in found.seen if entry.network == name]
    logs, its = (len({entry.row.row.file for entry in rows}) for rows in (found.seen, own))
    sites = len({entry.site for entry in found.seen})
    alike = own or [entry for entry in found.seen if NETWORKS[entry.network].networks[0] == between.networks[0]]
    nodes = max((nodes_of(entry.row.row.case, entry.row.run.topology) for entry in alike), default=0)
    network = replace(
        start.network,
        name=name,
        title=f"NCCL over nodes, one law for {logs} logs of {sites} sites, {its or 'none'} of them of this network",
        systems=between.systems,
        networks=between.networks,
        gpus=between.gpus,
        measured=between.measured,
        nodes=nodes,
        pooled=True,
        calibrated=True,
        families={**start.network.families, **found.families(name)},
        accuracy=errors_of_sites(draws()),
    )
    both = zip(found.seen, np.exp(found.residuals).tolist(), strict=True)
    rows = [residual_of(one.row, one.row.time_s * ratio, None) for one, ratio in both if one.network == name]
    profile = replace(start, name=name, network=network, library=start.library or DEFAULT_LIBRARY)
    constants = tuple(found.constants(name))
    return Calibration(profile, start.name, constants, tuple(rows), left_out={}, over_nodes=True, joint=True)


@cache
def fit_apart(name: str) -> Calibration:
    """Return the fit of a network to its own logs alone."""
    topology, rows = topology_of(NETWORKS[name].systems[0]), rows_of(NETWORKS[name].systems[0])
    library = max((row.case.library or "" for row in rows), default="") or DEFAULT[system_of(topology).is_amd]
    return fit_network(rows, topology, name=name, start=with_start(topology), library=library)


def fit_between(name: str) -> Calibration:
    """Return the calibration of steps between nodes."""
    if name in JOINT:
        return fit_together(name)
    between, found = NETWORKS[name], fit_apart(name)
    title = f"{found.profile.network.title}; intervals by sites of all networks"
    network = replace(
        found.profile.network, title=title, systems=between.systems, gpus=between.gpus, networks=between.networks,
        measured=between.measured, pooled=True, accuracy=errors_of_sites(draws()),
    )  # fmt: skip
    return replace(found, profile=replace(found.profile, network=network))


def with_start(topology: Topology) -> Profile:
    """Return the constants of a node with those between nodes that its fit starts from.

    That is what stood before any log was read, or with RCCL where another network has more logs, what that one's say.
    """
    profile = load_profile("auto", topology)
    if not system_of(topology).is_amd:
        return replace(profile, network=load_profile(str(STARTS / "between.yaml")).network)
    if next(name for name in NETWORKS if NETWORKS[name].covers(topology)) != RCCL:
        return replace(profile, network=fit_apart(RCCL).profile.network)
    return replace(profile, network=load_profile(str(STARTS / "between_rccl.yaml")).network)


def made(name: str) -> tuple[Calibration, str]:
    """Return the calibration of a system or network and the text of its file."""
    found = fit_between(name) if name in NETWORKS else fit(name)
    return found, as_yaml(found, SOURCE) + ("" if name in NETWORKS or found.profile.launches else unseen_launches(name))


def unseen_launches(name: str) -> str:
    """Return what the start of a system says of ways to launch that none of its logs shows, as it stands there."""
    file = STARTS / f"{FITS[name].start}.yaml"
    _, launches, told = (file.read_text(encoding="utf-8") if file.is_file() else "").partition("\nlaunches:\n")
    return launches.lstrip() + told


def shipped(name: str) -> Path:
    """Return the file of a shipped profile."""
    return SHIPPED / ("networks" if name in NETWORKS else "") / f"{name}.yaml"


def differences(one: object, other: object, where: str = "") -> list[str]:
    """Return where two documents differ; figures, with their units, may by `ALIKE`.

    >>> differences({"a": "2 us", "b": "x"}, {"a": "2.001 us", "b": "y"})
    ['b: "x", "y"']
    """
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*one, *other])
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{where}.{key}".strip("."))]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for place, (a, b) in pairs for line in differences(a, b, f"{where}[{place}]")]
    return [] if is_alike(one, other) else [f'{where}: "{one}", "{other}"']


def is_alike(one: object, other: object) -> bool:
    """Return True if two entries are equal, as figures nearly so."""
    if one == other:
        return True
    (figure, _, unit), (near, _, its_unit) = str(one).partition(" "), str(other).partition(" ")
    try:
        return unit == its_unit and math.isclose(float(figure), float(near), rel_tol=ALIKE)
    except ValueError:
        return False


def check(name: str, text: str) -> list[str]:
    """Return where a shipped profile is not what the fit makes."""
    found = differences(yaml.safe_load(shipped(name).read_text(encoding="utf-8")), yaml.safe_load(text))
    return [f"{name}: {line}" for line in found]


def main(arguments: Iterable[str] | None = None) -> int:
    """Fit, print what was found, and write or compare the profiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", choices=[*FITS, *NETWORKS], help="only these; all by default")
    parser.add_argument("-o", "--output", type=Path, help="write the one system there")
    parser.add_argument("--write", action="store_true", help="ship what comes out")
    parser.add_argument("--check", action="store_true", help="say where the shipped files differ, and exit with 1")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    names = [name for name in (*FITS, *NETWORKS) if name in (asked.system or (*FITS, *NETWORKS))]
    if asked.output is not None and len(names) > 1:
        parser.error("-o goes with one --system")
    if asked.system and set(names) <= set(NETWORKS) and len(names) > 1:
        return max(finished(name, asked) for name in names)  # one fit says the errors of all of them
    if len(names) > 1:  # a process each: shipped profiles that a fit starts from do not change while a program runs
        flags = [flag for flag in ("--write", "--check") if getattr(asked, flag[2:])]
        apart = [[name] for name in names if name not in NETWORKS] + [[name for name in names if name in NETWORKS]]
        asked_for = [[word for name in batch for word in ("--system", name)] for batch in apart if batch]
        runs = [subprocess.run([sys.executable, __file__, *words, *flags], check=False) for words in asked_for]
        return max(run.returncode for run in runs)
    return finished(names[0], asked)


def finished(name: str, asked: argparse.Namespace) -> int:
    """Fit one profile, print what was found, and write or compare it; return the exit code."""
    found, text = made(name)
    print(calibration_table(found), end="")
    differing = check(name, text) if asked.check else []
    for path in filter(None, (asked.output, shipped(name) if asked.write else None)):
        path.write_text(text, encoding="utf-8")
    print("".join(f"{line}\n" for line in differing), end="", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
