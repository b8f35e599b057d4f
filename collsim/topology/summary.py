"""The figures of a topology that a reader asks for first, as plain data; printing them is not done here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from collsim.topology.model import Topology, Wiring

__all__ = ["bisection_Bps", "describe", "is_connected"]


def describe(topology: Topology) -> dict[str, Any]:
    """Return sizes, totals and facts of *topology*, in SI, with units in the keys.

    *uni* is one direction of one GPU, *bidi* the sum of both; totals are raw rates. Where GPUs differ, the least and
    the most are given. ``links_per_gpu`` counts physical links, ``bundles_per_gpu`` the neighbours they lead to.

    Examples
    --------
    >>> from collsim.topology import load_topology
    >>> shown = describe(load_topology("mi355x_ubb8"))
    >>> shown["per_gpu_uni_Bps"], shown["per_gpu_bidi_Bps"], shown["physical_links"], shown["bundles"]
    (537600000000.0, 1075200000000.0, 28, 56)
    """
    import numpy as np

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
        "per_gpu_achievable_uni_Bps": float(usable[gpus].min()),
        "total_uni_Bps": float(out[gpus].sum()),
        "total_bidi_Bps": float((out + into)[gpus].sum()),
        "bisection_uni_Bps": bisection_Bps(wiring),
        "links_per_gpu": int(_links(wiring)[gpus].max()),
        "bundles_per_gpu": int(np.bincount(wiring.link_src, minlength=wiring.n_nodes)[gpus].max()),
        "bundles": wiring.n_links,
        "physical_links": _physical_links(wiring),
        "link_latency_s": [
            float(wiring.link_latency_s.min(initial=np.inf)),
            float(wiring.link_latency_s.max(initial=0)),
        ]
        if wiring.n_links
        else [],
        "switches": _switches(topology),
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
    """Return whether every GPU can reach every other one, and be reached by it."""
    forward = _reached(wiring.n_nodes, wiring.link_src, wiring.link_dst)
    backward = _reached(wiring.n_nodes, wiring.link_dst, wiring.link_src)
    return bool((forward & backward)[: wiring.n_gpus].all())


def _reached(n_nodes: int, src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.bool_]:
    import numpy as np

    reached = np.zeros(n_nodes, dtype=np.bool_)
    reached[0] = True
    while True:
        before = int(reached.sum())
        reached[dst[reached[src]]] = True
        if int(reached.sum()) == before:
            return reached


def _links(wiring: Wiring) -> NDArray[np.int64]:
    """Return the physical links at each node; the two directions of a duplex link are one."""
    import numpy as np

    out = np.bincount(wiring.link_src, wiring.link_count, minlength=wiring.n_nodes)
    into = np.bincount(wiring.link_dst, wiring.link_count, minlength=wiring.n_nodes)
    return np.maximum(out, into).astype(np.int64)


def _physical_links(wiring: Wiring) -> int:
    """Return the number of cables: a pair of opposite bundles counts once."""
    import numpy as np

    low = np.minimum(wiring.link_src, wiring.link_dst)
    high = np.maximum(wiring.link_src, wiring.link_dst)
    key = low * wiring.n_nodes + high
    order = np.lexsort((wiring.link_count, key))
    last = np.append(np.diff(key[order]) != 0, True) if len(key) else np.zeros(0, dtype=np.bool_)
    return int(wiring.link_count[order][last].sum())


def _switches(topology: Topology) -> dict[str, Any]:
    """Return how many switches there are and how many of their ports are used; {} without a switch."""
    wiring = topology.wiring
    used = _links(wiring)[wiring.n_gpus :]
    if not len(used):
        return {}
    ports = next((int(fact.value) for fact in topology.facts if fact.path == "switch.ports"), None)
    return {
        "count": len(used),
        "model": topology.labels.get("switch.model", ""),
        "ports_used": int(used.max()),
        "ports": ports,
        "links_per_gpu": [int(n) for n in wiring.link_count[wiring.link_src == 0]],
        "latency_s": float(wiring.node_latency_s[wiring.n_gpus :].max()),
    }
