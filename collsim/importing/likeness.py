"""The shipped system that an imported machine is most like, and how the two differ."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from collsim.topology.loader import load_topology
from collsim.topology.zoo import zoo_names

if TYPE_CHECKING:
    from collsim.topology.model import Topology

__all__ = ["nearest_system"]

OTHER_KIND, OTHER_MODEL, OTHER_FAMILY, OTHER_VENDOR, PER_DOUBLING = 1.0, 0.2, 1.0, 2.0, 0.1
"""Weights of differences (chosen): another kind of wiring, another GPU, one of another family or vendor beside twice
the rate, which is 1; twice the GPUs count less, since parts of a machine are asked for as well."""
FAMILY = re.compile(r"MI\d\d|[A-Z]+\d+")
SAME = 0.005


class _Features(NamedTuple):
    """What tells systems apart."""

    gpus: int
    rate_Bps: float
    kind: str
    model: str


def nearest_system(topology: Topology) -> tuple[str, str]:
    """Return the name of the shipped system that *topology* is most like, and how it differs from it.

    Both are empty for a single GPU of which nothing is known.

    >>> nearest_system(load_topology("hgx_h100", ["gpu.count=4"]))
    ('hgx_h100', '4 GPUs instead of 8')
    """
    own = _features(topology)
    if not own.rate_Bps and not own.model:
        return "", ""
    name = min(zoo_names(), key=lambda each: (_distance(own, _of_zoo(each)), each))
    return name, _difference(own, _of_zoo(name))


@cache
def _of_zoo(name: str) -> _Features:
    return _features(load_topology(name))


def _features(topology: Topology) -> _Features:
    node = topology if topology.cluster is None else topology.cluster.node
    wiring = node.wiring
    out = wiring.link_src < wiring.n_gpus
    rate_Bps = float(wiring.link_bandwidth_Bps[out].sum()) / wiring.n_gpus
    kinds = set(wiring.node_kinds)
    direct = bool((out & (wiring.link_dst < wiring.n_gpus)).any())
    kind = (
        "links and PCIe"
        if direct and "cpu" in kinds
        else "PCIe"
        if "cpu" in kinds
        else "direct"
        if direct
        else "switched"
    )
    return _Features(wiring.n_gpus, rate_Bps, kind, node.labels.get("gpu.model", ""))


def _distance(own: _Features, other: _Features) -> float:
    rates = abs(math.log2(max(own.rate_Bps, 1.0) / other.rate_Bps)) if own.rate_Bps else 0.0
    apart = OTHER_KIND * (own.kind != other.kind and own.gpus > 1) + OTHER_MODEL * (own.model != other.model)
    if own.model:
        apart += OTHER_FAMILY * (_family(own.model) != _family(other.model))
        apart += OTHER_VENDOR * (("Instinct" in own.model) != ("Instinct" in other.model))
    return rates + PER_DOUBLING * abs(math.log2(own.gpus / other.gpus)) + apart


def _family(model: str) -> str:
    """Return what GPUs of a generation have in common in their names.

    >>> _family("A100 PCIe"), _family("Instinct MI300A") == _family("Instinct MI300X")
    ('A100', True)
    """
    found = FAMILY.search(model)
    return found[0] if found else model


def _difference(own: _Features, other: _Features) -> str:
    said = []
    if own.gpus != other.gpus:
        said.append(f"{own.gpus} GPU{'s' * (own.gpus != 1)} instead of {other.gpus}")
    if own.rate_Bps and abs(own.rate_Bps / other.rate_Bps - 1) > SAME:
        said.append(f"{own.rate_Bps / 1e9:.4g} instead of {other.rate_Bps / 1e9:.4g} GB/s per GPU")
    if own.kind != other.kind:
        said.append(f"{own.kind} instead of {other.kind}")
    if own.model != other.model:
        said.append(f"GPUs called {own.model} instead of {other.model}" if own.model else "GPUs of an unknown kind")
    return ", ".join(said) or "no difference in GPUs, rates and kind of wiring"
