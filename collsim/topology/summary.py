"""The figures of a topology that a reader asks for first, as plain data; printing them is not done here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from collsim.topology.model import Topology
    from collsim.topology.wiring import Wiring

__all__ = ["bisection_Bps", "describe", "is_connected", "remarks"]

MAX_TABLE_GPUS = 16
"""Largest irregular system whose wiring is listed pair by pair."""


def describe(topology: Topology) -> dict[str, Any]:
    """Return sizes, totals and facts of *topology*, in SI, with units in the keys.

    *uni* is one direction of one GPU, *bidi* the sum of both; totals are raw rates. Where GPUs differ, the least and
    the most are given. ``links_per_gpu`` counts physical links, ``bundles_per_gpu`` the neighbours they lead to.
    ``link_kinds`` has one row for each kind of bundle; ``wiring_table`` lists who is wired to whom in an irregular
    system of at most 16 GPUs, and is empty for others. A cluster has other keys, see `describe_cluster`.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> shown = describe(load_topology("mi355x_ubb8"))
    >>> shown["per_gpu_uni_Bps"], shown["per_gpu_bidi_Bps"], shown["physical_links"], shown["bundles"]
    (537600000000.0, 1075200000000.0, 28, 56)
    """
    import numpy as np

    from collsim.topology.cluster.cluster_summary import describe_cluster

    if topology.cluster is not None:
        kinds = [describe(kind) for kind in topology.cluster.kinds]
        return describe_cluster(topology, kinds, connected=is_connected(topology.wiring))
    wiring = topology.wiring
    out = np.bincount(wiring.link_src, wiring.link_bandwidth_Bps, minlength=wiring.n_nodes)
    into = np.bincount(wiring.link_dst, wiring.link_bandwidth_Bps, minlength=wiring.n_nodes)
    usable = np.bincount(wiring.link_src, wiring.link_bandwidth_Bps * wiring.link_efficiency, minlength=wiring.n_nodes)
    gpus = slice(0, wiring.n_gpus)
    return {
        **{key: value for key, value in topology.to_dict().items() if key != "facts"},
        "per_gpu_uni_Bps": float(out[gpus].min()),
        "per_gpu_uni_max_Bps": float(out[gpus].max()),
        "per_gpu_bidi_Bps": float((out + into)[gpus].min()),
        "per_gpu_bidi_max_Bps": float((out + into)[gpus].max()),
        "per_gpu_achievable_uni_Bps": float(usable[gpus].min()),
        "total_uni_Bps": float(out[gpus].sum()),
        "total_bidi_Bps": float((out + into)[gpus].sum()),
        "bisection_uni_Bps": bisection_Bps(wiring),
        "links_per_gpu": int(_links(wiring)[gpus].max()),
        "bundles_per_gpu": int(np.bincount(wiring.link_src, minlength=wiring.n_nodes)[gpus].max()),
        "bundles": wiring.n_links,
        "physical_links": wiring.n_physical_links,
        "link_latency_s": [
            float(wiring.link_latency_s.min(initial=np.inf)),
            float(wiring.link_latency_s.max(initial=0)),
        ]
        if wiring.n_links
        else [],
        "switches": _switches(topology),
        "cpus": wiring.node_kinds.count("cpu"),
        "link_kinds": _link_kinds(wiring),
        "wiring_table": _wiring_table(wiring),
        "connected": is_connected(wiring),
        "facts": [fact.to_dict() for fact in topology.facts],
    }


def bisection_Bps(wiring: Wiring) -> float | None:
    """Return the rate from one half of the GPUs to the other, one direction; None where the wiring is irregular.

    In a mesh that is the bundles between the halves; in a switched domain the links of the smaller half.
    """
    n_gpus, kind = wiring.n_gpus, wiring.coordinates.kind
    if kind == "irregular" or n_gpus < 2 or not wiring.n_links:
        return None
    half = n_gpus // 2
    if kind == "mesh":
        return float(half * (n_gpus - half) * wiring.link_bandwidth_Bps[0])
    return float(wiring.link_bandwidth_Bps[wiring.link_src < half].sum())


def is_connected(wiring: Wiring) -> bool:
    """Return True if every GPU can reach every other one, and be reached by it."""
    forward = reached_from(wiring.n_nodes, wiring.link_src, wiring.link_dst)
    backward = reached_from(wiring.n_nodes, wiring.link_dst, wiring.link_src)
    return bool((forward & backward)[: wiring.n_gpus].all())


def remarks(topology: Topology) -> tuple[str, ...]:
    """Return remarks on what is allowed in a topology and yet seldom meant, one sentence each.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> remarks(load_topology("mi355x_ubb8"))
    ()
    """
    import numpy as np

    wiring = topology.wiring
    forward = reached_from(wiring.n_nodes, wiring.link_src, wiring.link_dst)
    backward = reached_from(wiring.n_nodes, wiring.link_dst, wiring.link_src)
    cut_off = np.flatnonzero(~(forward & backward)[: wiring.n_gpus])
    if not len(cut_off):
        return ()
    first, other = wiring.node_names[0], wiring.node_names[int(cut_off[0])]
    a, b = (other, first) if forward[cut_off[0]] else (first, other)
    return (f"not all GPUs can reach each other: there is no way from {a} to {b}",)


def reached_from(n_nodes: int, src: NDArray[np.int64], dst: NDArray[np.int64], start: int = 0) -> NDArray[np.bool_]:
    """Return bool[n_nodes]: where links lead from a node."""
    import numpy as np

    ends = dst[np.argsort(src, kind="stable")]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(src, minlength=n_nodes))])
    reached = np.zeros(n_nodes, dtype=np.bool_)
    reached[start] = True
    newest = np.array([start])
    while len(newest):  # looks at every link once, in as many turns as the longest way has links
        degree = ptr[newest + 1] - ptr[newest]
        place = np.repeat(ptr[newest] - np.cumsum(degree) + degree, degree) + np.arange(int(degree.sum()))
        found = ends[place]
        newest = np.unique(found[~reached[found]])
        reached[newest] = True
    return reached


def _links(wiring: Wiring) -> NDArray[np.int64]:
    """Return the physical links at each node; the two directions of a duplex link are one."""
    import numpy as np

    out = np.bincount(wiring.link_src, wiring.link_count, minlength=wiring.n_nodes)
    into = np.bincount(wiring.link_dst, wiring.link_count, minlength=wiring.n_nodes)
    return np.maximum(out, into).astype(np.int64)


def _switches(topology: Topology) -> dict[str, Any]:
    """Return the number of switches, their model, ports and links of a GPU; {} without a switch.

    ``links_per_gpu`` has the links from GPU 0 to each of its switches, ``planes`` the same as runs of equal ones; an
    irregular system has no planes.
    """
    import numpy as np

    wiring = topology.wiring
    which = np.array([kind == "switch" for kind in wiring.node_kinds])
    if not which.any():
        return {}
    used = _links(wiring)[which]
    ports = next((int(fact.value) for fact in topology.facts if fact.path == "switch.ports"), None)
    regular = wiring.coordinates.kind == "switched"
    per_plane = wiring.link_count[(wiring.link_src == 0) & which[wiring.link_dst]].tolist()
    return {
        "count": len(used),
        "model": topology.labels.get("switch.model", ""),
        "ports_used": int(used.max()),
        "ports": ports,
        "links_per_gpu": per_plane,
        "planes": [{"switches": len(list(run)), "links": links} for links, run in groupby(per_plane) if regular],
        "latency_s": float(wiring.node_latency_s[which].max()),
    }


def _link_kinds(wiring: Wiring) -> list[dict[str, Any]]:
    """Return the kinds of link bundles and the number of each, in both directions, the most frequent first."""
    kinds = wiring.node_kinds
    seen = Counter(
        (kinds[src], kinds[dst], count, total / count, latency_s, efficiency)
        for src, dst, count, total, latency_s, efficiency in _rows(wiring)
    )
    keys = ("from", "to", "links", "link_bandwidth_Bps", "latency_s", "efficiency")
    return [{**dict(zip(keys, row, strict=True)), "bundles": bundles} for row, bundles in seen.most_common()]


def _wiring_table(wiring: Wiring) -> list[dict[str, Any]]:
    """Return one row for each pair of nodes that is wired; *duplex* is false where the directions differ."""
    if wiring.coordinates.kind != "irregular" or wiring.n_gpus > MAX_TABLE_GPUS:
        return []
    bundles = {(src, dst): tuple(figures) for src, dst, *figures in _rows(wiring)}
    rows = []
    for (src, dst), figures in bundles.items():
        duplex = bundles.get((dst, src)) == figures
        if duplex and dst < src:
            continue
        a, b = wiring.node_names[src], wiring.node_names[dst]
        rows.append({"a": a, "b": b, "links": figures[0], "bandwidth_Bps": figures[1], "duplex": duplex})
    return rows


def _rows(wiring: Wiring) -> Iterator[tuple[int, int, int, float, float, float]]:
    """Yield source, destination, count, rate, latency and efficiency of every bundle."""
    return zip(
        wiring.link_src.tolist(),
        wiring.link_dst.tolist(),
        wiring.link_count.tolist(),
        wiring.link_bandwidth_Bps.tolist(),
        wiring.link_latency_s.tolist(),
        wiring.link_efficiency.tolist(),
        strict=True,
    )
