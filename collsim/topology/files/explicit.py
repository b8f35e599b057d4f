"""The explicit builder: a list of nodes and a list of links, as arrays."""

from __future__ import annotations

import numpy as np

from collsim.topology.builders import assemble
from collsim.topology.files.schema import Link, Switch
from collsim.topology.files.sections import Spec
from collsim.topology.wiring import LinkBundles, Wiring

__all__ = ["wire_explicit"]


def wire_explicit(spec: Spec) -> Wiring:
    """Return the wiring of the nodes and links of a specification that passed every check."""
    nodes = [node for _, node in spec.present()]
    gpus = [node.name for node in nodes if node.kind == "gpu"]
    others = [node for node in nodes if node.kind != "gpu"]
    forwarding = (spec.switch or Switch()).latency.si
    node_latency_s = np.zeros(len(nodes))
    for index, node in enumerate(others, start=len(gpus)):
        node_latency_s[index] = node.latency.si if node.latency else forwarding
    names = (*gpus, *(node.name for node in others))
    bundles = _bundles(spec, {name: i for i, name in enumerate(names)})
    return assemble(names, len(gpus), node_latency_s, bundles, forwarders=tuple(node.kind for node in others))


def _bundles(spec: Spec, ids: dict[str, int]) -> LinkBundles:
    default = spec.link or Link()
    rows = []
    for link in spec.links:
        bandwidth = link.bandwidth or default.bandwidth if link else None
        if link is None or bandwidth is None or link.a not in ids or link.b not in ids:
            continue
        latency, efficiency = link.latency or default.latency, link.efficiency or default.efficiency
        a, b, figures = ids[link.a], ids[link.b], (link.count.si, bandwidth.si, latency.si, efficiency.si)
        rows.append((a, b, *figures))
        if link.duplex:
            rows.append((b, a, *figures))
    columns = np.array(rows, dtype=np.float64).reshape(len(rows), 6).T
    src, dst, parallel = (columns[index].astype(np.int64) for index in range(3))
    return LinkBundles(src, dst, parallel, columns[3] * columns[2], columns[4].copy(), columns[5].copy())
