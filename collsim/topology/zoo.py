"""The zoo: files of systems, clusters and networks that come with collsim, and their names; none is read."""

from __future__ import annotations

import pathlib
from functools import cache

__all__ = ["cluster_names", "network_names", "shipped_file", "shipped_path", "zoo_directory", "zoo_names"]


@cache
def zoo_directory() -> pathlib.Path:
    """Return the directory of the shipped topologies: inside an installed package, beside it in a source tree."""
    package = pathlib.Path(__file__).resolve().parents[1]
    installed = package / "topologies"
    return installed if installed.is_dir() else package.parent / "topologies"


def zoo_names() -> tuple[str, ...]:
    """Return the names of the shipped nodes and racks, each one scale-up domain, without reading them.

    >>> "mi355x_ubb8" in zoo_names()
    True
    """
    return _names(".")


def cluster_names() -> tuple[str, ...]:
    """Return the names of the shipped clusters, without reading them.

    >>> "polaris" in cluster_names()
    True
    """
    return _names("clusters")


def network_names() -> tuple[str, ...]:
    """Return the names of the networks that may join nodes, without reading their files.

    >>> "infiniband" in network_names()
    True
    """
    return _names("networks")


def shipped_path(name: str) -> str:
    """Return the name that messages give the file of a shipped system or cluster."""
    return f"topologies/clusters/{name}.yaml" if name in cluster_names() else f"topologies/{name}.yaml"


def shipped_file(name: str) -> pathlib.Path:
    """Return the file of a shipped system or cluster."""
    return zoo_directory() / shipped_path(name).removeprefix("topologies/")


@cache
def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (zoo_directory() / folder).glob("*.yaml")))
