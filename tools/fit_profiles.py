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
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import yaml
from predictors import TableRow, matrix_bytes, measured_rows, topology_of, variables

from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.findings import Calibration
from collsim.calibration.fit import fit_profile
from collsim.calibration.fit_network import fit_network
from collsim.calibration.profile_writer import as_yaml
from collsim.calibration.validate import DEFAULT_RCCL
from collsim.core.operations import DTYPES
from collsim.library import DEFAULT_LIBRARY, Profile, load_profile, read_environment, system_of
from collsim.library.costs.hosts import as_hosted
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


class Fit(NamedTuple):
    """Where the fit of a system starts: a file of `STARTS`, or the shipped profile of a relative.

    Which GPUs follow, and clusters whose nodes are that system; on which kind of host the logs were taken; and
    whether the relative has the same GPU.
    """

    start: str
    gpus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    host: str = "bare"
    alike: bool = False


class Between(NamedTuple):
    """Whose logs tell what steps between nodes cost, and other names of it; which GPUs and networks follow."""

    systems: tuple[str, ...]
    gpus: tuple[str, ...]
    networks: tuple[str, ...]


FITS = {
    "hgx_h100": Fit("nvlink", ("H100", "H800"), ("h100_rail",), "virtual"),
    "gh200_quad": Fit("hgx_h100", ("GH200",), ("alps",)),
    "hgx_b200": Fit("blackwell", ("B200",)),
    "gb200_nvl72": Fit("hgx_b200", ("GB200",), alike=True),
    "dgx_a100": Fit("ampere", ("A100", "A800")),
    "dgx2_v100": Fit("volta", ("V100",)),
    "mi300x_ubb8": Fit("xgmi", ("MI300X",)),
    "l40s_8gpu": Fit("pcie", ("L40", "RTX 40")),
    "rtx_pro_6000_8gpu": Fit("pcie", ("RTX PRO 6000", "RTX 50")),
}
"""In this order: a relative comes first."""


NETWORKS = {
    "infiniband": Between(
        ("h100_rail", "hgx_h100"), ("H100", "H200", "H800", "H20", "B200", "B300"), ("infiniband", "spectrum_x")
    ),
    "infiniband_a100": Between(("a100_rail", "dgx_a100"), ("A100",), ("infiniband",)),
    "slingshot": Between(("alps",), ("GH200",), ("slingshot",)),
    "slingshot_a100": Between(("polaris",), ("A100",), ("slingshot",)),
    "efa": Between(("p5_efa",), ("H100", "H200", "A100"), ("efa",)),
    "roce": Between(("mi300x_roce", "mi300x_ubb8"), ("MI300X", "MI325X"), ("roce",)),
    "ultra_ethernet": Between(("mi355x_pollara", "mi355x_ubb8"), ("MI350X", "MI355X"), ("ultra_ethernet", "roce")),
}


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


def fit(system: str) -> Calibration:
    """Return the calibration of a system."""
    begin = FITS[system].start
    start = load_profile(begin if begin in FITS else str(STARTS / f"{begin}.yaml"))
    start = as_hosted(start, FITS[system].host) if start.host else start
    topology = topology_of(system)
    rows = rows_of(system)
    found = fit_profile(rows, topology, start=start, alike=FITS[system].alike)
    levels = {peer_level(topology, range(row.case.ranks), read_environment(dict(row.case.environment))) for row in rows}
    systems, peers = (*found.profile.systems, *FITS[system].clusters), tuple(sorted(filter(None, levels)))
    return replace(
        found,
        profile=replace(found.profile, systems=systems, gpus=FITS[system].gpus, peers=peers, host=FITS[system].host),
    )


def fit_between(name: str) -> Calibration:
    """Return the calibration of steps between nodes."""
    between = NETWORKS[name]
    topology = topology_of(between.systems[0])
    rows = rows_of(between.systems[0])
    library = max((row.case.library or "" for row in rows), default="") or DEFAULT[system_of(topology).is_amd]
    found = fit_network(rows, topology, name=name, start=with_start(topology), library=library)
    network = replace(
        found.profile.network, systems=between.systems, gpus=between.gpus, networks=between.networks
    )  # fmt: skip
    return replace(found, profile=replace(found.profile, network=network))


def with_start(topology: Topology) -> Profile:
    """Return the constants of a node with those between nodes that stood before any log was read."""
    profile = load_profile("auto", topology)
    start = "default" if system_of(topology).is_amd else str(STARTS / "between.yaml")
    return replace(profile, network=load_profile(start).network)


def made(name: str) -> tuple[Calibration, str]:
    """Return the calibration of a system or network and the text of its file."""
    found = fit_between(name) if name in NETWORKS else fit(name)
    return found, as_yaml(found, SOURCE)


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
    if len(names) > 1:  # a process each: shipped profiles that a fit starts from do not change while a program runs
        flags = [flag for flag in ("--write", "--check") if getattr(asked, flag[2:])]
        runs = [subprocess.run([sys.executable, __file__, "--system", name, *flags], check=False) for name in names]
        return max(run.returncode for run in runs)
    found, text = made(names[0])
    print(calibration_table(found), end="")
    differing = check(names[0], text) if asked.check else []
    for path in filter(None, (asked.output, shipped(names[0]) if asked.write else None)):
        path.write_text(text, encoding="utf-8")
    print("".join(f"{line}\n" for line in differing), end="", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
