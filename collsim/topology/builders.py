"""Builders of wirings from figures: the full mesh, the switched domain and the explicit list of links.

The regular builders write their arrays directly; no graph object is built. Bundles come out sorted by
(source, destination), so that equal wirings are equal arrays whatever they were built from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collsim.topology.wiring import Coordinates, LinkBundles, Wiring

__all__ = ["assemble", "full_mesh", "recognise", "switched"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def full_mesh(n_gpus: int, *, per_pair: int, bandwidth_Bps: float, latency_s: float, efficiency: float) -> Wiring:
    """Return the wiring of *n_gpus* GPUs with a bundle of *per_pair* links between any two.

    Examples
    --------
    >>> wiring = full_mesh(4, per_pair=1, bandwidth_Bps=64e9, latency_s=5e-7, efficiency=0.75)
    >>> wiring.n_links, wiring.link_src.tolist()[:4], wiring.link_dst.tolist()[:4]
    (12, [0, 0, 0, 1], [1, 2, 3, 0])
    """
    src = np.repeat(np.arange(n_gpus, dtype=np.int64), n_gpus - 1)
    index = np.tile(np.arange(n_gpus - 1, dtype=np.int64), n_gpus)
    dst = index + (index >= src)
    count = np.full(len(src), per_pair, dtype=np.int64)
    bundles = LinkBundles.uniform(
        src, dst, count, bandwidth_Bps=bandwidth_Bps, latency_s=latency_s, efficiency=efficiency
    )
    names = tuple(f"gpu{rank}" for rank in range(n_gpus))
    return assemble(names, n_gpus, np.zeros(n_gpus), bundles, kind="mesh")


def switched(
    n_gpus: int,
    planes: Sequence[int],
    *,
    bandwidth_Bps: float,
    latency_s: float,
    efficiency: float,
    switch_latency_s: float,
    prefix: str = "sw",
) -> Wiring:
    """Return the wiring of *n_gpus* GPUs that are all wired to each of ``len(planes)`` switches.

    ``planes[p]`` is the number of links from every GPU to switch p; switches are called *prefix* and their number.

    Examples
    --------
    >>> figures = {"bandwidth_Bps": 25e9, "latency_s": 1.5e-7, "efficiency": 0.824, "switch_latency_s": 2e-7}
    >>> wiring = switched(8, [5, 4, 4, 5], **figures)
    >>> wiring.n_links, wiring.link_name(0), wiring.link_count.tolist()[:4]
    (64, 'gpu0->sw0', [5, 4, 4, 5])
    """
    n_planes = len(planes)
    gpus = np.arange(n_gpus, dtype=np.int64)
    switches = np.arange(n_planes, dtype=np.int64) + n_gpus
    per_plane = np.asarray(planes, dtype=np.int64)
    bundles = LinkBundles.uniform(
        src=np.concatenate([np.repeat(gpus, n_planes), np.repeat(switches, n_gpus)]),
        dst=np.concatenate([np.tile(switches, n_gpus), np.tile(gpus, n_planes)]),
        parallel=np.concatenate([np.tile(per_plane, n_gpus), np.repeat(per_plane, n_gpus)]),
        bandwidth_Bps=bandwidth_Bps,
        latency_s=latency_s,
        efficiency=efficiency,
    )
    names = [f"gpu{rank}" for rank in range(n_gpus)] + [f"{prefix}{plane}" for plane in range(n_planes)]
    node_latency_s = np.concatenate([np.zeros(n_gpus), np.full(n_planes, switch_latency_s)])
    return assemble(tuple(names), n_gpus, node_latency_s, bundles, kind="switched")


def assemble(
    node_names: tuple[str, ...],
    n_gpus: int,
    node_latency_s: Floats,
    bundles: LinkBundles,
    *,
    kind: str | None = None,
    forwarders: tuple[str, ...] | None = None,
) -> Wiring:
    """Return a read-only wiring.

    *kind* None means: put the bundles in canonical order and find the kind out. *forwarders* are the kinds of the nodes
    after the GPUs, all switches if None.
    """
    n_switches = len(node_names) - n_gpus
    forwarders = ("switch",) * n_switches if forwarders is None else forwarders
    if kind is None:
        order = np.lexsort((bundles.dst, bundles.src))
        bundles = bundles.take(order)
        kind = recognise(n_gpus, node_latency_s, bundles) if set(forwarders) <= {"switch"} else "irregular"
    for array in (node_latency_s, *bundles):
        array.setflags(write=False)
    return Wiring(
        node_names=node_names,
        node_kinds=("gpu",) * n_gpus + forwarders,
        n_gpus=n_gpus,
        node_latency_s=node_latency_s,
        link_src=bundles.src,
        link_dst=bundles.dst,
        link_count=bundles.parallel,
        link_bandwidth_Bps=bundles.bandwidth_Bps,
        link_latency_s=bundles.latency_s,
        link_efficiency=bundles.efficiency,
        coordinates=_coordinates(kind, n_gpus, n_switches),
    )


def recognise(n_gpus: int, node_latency_s: Floats, bundles: LinkBundles) -> str:
    """Return ``mesh`` or ``switched`` if the sorted bundles are what those builders make, else ``irregular``."""
    src, dst = bundles.src, bundles.dst
    n_switches, alike = len(node_latency_s) - n_gpus, bundles[2:]
    if n_switches == 0 and len(src) == n_gpus * (n_gpus - 1):
        return "mesh" if all((array == array[:1]).all() for array in alike) else "irregular"
    half = n_gpus * n_switches
    if n_switches == 0 or len(src) != 2 * half or ((src < n_gpus) == (dst < n_gpus)).any():
        return "irregular"
    up = [array[:half].reshape(n_gpus, n_switches) for array in alike]
    down = [array[half:].reshape(n_switches, n_gpus) for array in alike]
    equal = all((u == u[:1]).all() and (d == u[:1].T).all() for u, d in zip(up, down, strict=True))
    return "switched" if equal else "irregular"


def _coordinates(kind: str, n_gpus: int, n_switches: int) -> Coordinates:
    """Return the coordinates of one scale-up domain: all GPUs in node 0 and pod 0, rail i for GPU i."""
    zeros, local = np.zeros(n_gpus, dtype=np.int64), np.arange(n_gpus, dtype=np.int64)
    planes = np.arange(n_switches, dtype=np.int64)
    plane = planes if kind == "switched" else np.full_like(planes, -1)
    for array in (zeros, local, plane):
        array.setflags(write=False)
    return Coordinates(kind, node=zeros, local=local, rail=local, pod=zeros, plane=plane)
