"""Fit the shipped profiles to the training rows of tools/data.

``python tools/fit_profiles.py --system hgx_h100 -o collsim/library/costs/profiles/hgx_h100.yaml`` fits one system
and prints what `collsim calibrate` prints. Every fit starts from a profile of tools/starts: figures that stood
before any of these logs was read, with their sources. Rows of the set ``spread`` are not fitted either; what they are
off by widens the 90 % interval, because they are from machines and sites that no fit knows.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from predictors import TableRow, matrix_bytes, measured_rows, topology_of, variables

from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.findings import Calibration, Residual
from collsim.calibration.fit import fit_profile, predicted_residuals
from collsim.calibration.fit_network import fit_network
from collsim.calibration.profile_writer import as_yaml
from collsim.calibration.scatters import scatter_of
from collsim.calibration.validate import DEFAULT_RCCL
from collsim.core.operations import DTYPES
from collsim.library import DEFAULT_LIBRARY, Profile, Scatter, load_profile, system_of
from collsim.library.costs.channel_costs import BETWEEN
from collsim.report.calibration import calibration_table
from collsim.topology import Topology

STARTS = Path(__file__).parent / "starts"
DEFAULT = {False: DEFAULT_LIBRARY, True: DEFAULT_RCCL}
LEAST_SPREAD = 20
"""So many rows from outside the fit count by themselves."""
SOURCE = "tools/fit_profiles.py on the training logs in tools/data"


Accuracy = Mapping[str, Mapping[str, Scatter]]

NVLS_SEEN = {"NCCL_NVLS_ENABLE": "1"}
"""Where the tables do not say that the machine hides NVLS, it did not."""


class Fit(NamedTuple):
    """Where the fit of a system starts: a file of `STARTS`, or the shipped profile of a relative.

    Which GPUs follow, and clusters whose nodes are that system.
    """

    start: str
    gpus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()


class Between(NamedTuple):
    """Whose logs tell what steps between nodes cost, and other names of it; which GPUs and networks follow."""

    systems: tuple[str, ...]
    gpus: tuple[str, ...]
    networks: tuple[str, ...]


FITS = {
    "hgx_h100": Fit("nvlink", ("H100", "H800"), ("h100_rail",)),
    "gh200_quad": Fit("hgx_h100", ("GH200",), ("alps",)),
    "hgx_b200": Fit("hgx_h100", ("B200",)),
    "gb200_nvl72": Fit("hgx_b200", ("GB200",)),
    "dgx2_v100": Fit("hgx_h100", ("V100",)),
    "mi300x_ubb8": Fit("xgmi", ("MI300X",)),
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


def rows_of(system: str, *sets: str) -> list[Measured]:
    """Return the sound rows of some sets of a system."""
    return [
        as_case(row)
        for row in measured_rows()
        if row.case.system == system and row.set in sets and row.health == "ok" and not row.spike
    ]


def reach(accuracy: Accuracy, own: Sequence[Residual], unseen: Sequence[Residual]) -> Accuracy:
    """Return the accuracy by rows of the fit and by others: where these are enough, half way between them and both."""
    if not own and not unseen:
        return accuracy
    alone, both = scatter_of(unseen), scatter_of([*own, *unseen])
    for family, bands in alone.items():
        for band, scatter in bands.items():
            if scatter.rows >= LEAST_SPREAD:
                high = math.sqrt(both[family][band].high * scatter.high)
                both[family][band] = replace(both[family][band], low=1 / high, high=high)
    return both


def with_spread(found: Calibration, others: Sequence[Measured], topology: Topology) -> Calibration:
    """Return the calibration with intervals that know of machines and operations that no fit knows.

    Leaving out a whole operation takes more from the fit than a user's case lacks, and the other machines are few:
    where those have enough rows, the reach is the geometric mean of what they say and of what both say together.
    """

    def widened(profile: Profile, launch: str) -> Profile:
        own = [entry for entry in found.residuals if entry.launch == launch]
        return replace(profile, accuracy=reach(profile.accuracy, own, residuals.get(launch, [])))

    residuals: dict[str, list[Residual]] = {}
    for entry in predicted_residuals(others, topology, found.profile):
        residuals.setdefault(entry.launch, []).append(entry)
    launches = {name: widened(launched, name) for name, launched in found.profile.launches.items()}
    return replace(found, profile=replace(widened(found.profile, "stream"), launches=launches))


def fit(system: str) -> Calibration:
    """Return the calibration of a system."""
    begin = FITS[system].start
    start = load_profile(begin if begin in FITS else str(STARTS / f"{begin}.yaml"))
    topology = topology_of(system)
    found = fit_profile(rows_of(system, "train"), topology, start=start)
    found = with_spread(found, rows_of(system, "spread"), topology)
    systems = (*found.profile.systems, *FITS[system].clusters)
    return replace(found, profile=replace(found.profile, systems=systems, gpus=FITS[system].gpus))


def fit_between(name: str) -> Calibration:
    """Return the calibration of steps between nodes."""
    between = NETWORKS[name]
    topology = topology_of(between.systems[0])
    rows = rows_of(between.systems[0], "train")
    library = max((row.case.library or "" for row in rows), default="") or DEFAULT[system_of(topology).is_amd]
    found = fit_network(rows, topology, name=name, start=with_start(topology), library=library)
    others = predicted_residuals(rows_of(between.systems[0], "spread"), topology, found.profile)
    alike = [replace(entry, family=BETWEEN.get(entry.family, entry.family)) for entry in others]
    network = replace(
        found.profile.network, systems=between.systems, gpus=between.gpus, networks=between.networks,
        accuracy=reach(found.profile.network.accuracy, found.residuals, alike),
    )  # fmt: skip
    return replace(found, profile=replace(found.profile, network=network))


def with_start(topology: Topology) -> Profile:
    """Return the constants of a node with those between nodes that stood before any log was read."""
    profile = load_profile("auto", topology)
    start = "default" if system_of(topology).is_amd else str(STARTS / "between.yaml")
    return replace(profile, network=load_profile(start).network)


def main(arguments: Iterable[str] | None = None) -> None:
    """Fit, print what was found, and write the profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default="hgx_h100", choices=sorted({**FITS, **NETWORKS}))
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args(None if arguments is None else list(arguments))
    found = fit_between(asked.system) if asked.system in NETWORKS else fit(asked.system)
    print(calibration_table(found), end="")
    if asked.output is not None:
        asked.output.write_text(as_yaml(found, SOURCE), encoding="utf-8")


if __name__ == "__main__":
    main()
