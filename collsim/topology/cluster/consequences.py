"""Consequences of overrides: figures of a cluster that are others because one was set, although nobody named them.

An adapter comes with a bus of its rate, a network with latencies and switches, a radix with tiers. Each setting is left
out in turn, and what the rest makes of the cluster is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collsim.core.errors import InputError
from collsim.topology.model import SIZES, Consequence, Topology

if TYPE_CHECKING:
    from collsim.topology.files.reader import Document

__all__ = ["consequences_of"]

SECTIONS = ("nic.", "scale_out.")
"""Beginnings of the paths that a cluster is resolved from."""

Figures = dict[str, tuple[str, str]]
"""Text of each figure by its path, and in short what it is, such as the generation of a bus."""


def consequences_of(document: Document, node: Topology, kinds: Sequence[Topology] = ()) -> tuple[Consequence, ...]:
    """Return what follows from the settings of a cluster: each figure once, with the first setting behind it.

    Parameters
    ----------
    document : Document
        With the overrides.
    node : Topology
        One node, with the overrides. How many nodes there are is the question, from which everything follows.
    kinds : sequence of Topology
        A node of each kind, if they differ.
    """
    from collsim.topology.files.overrides import apply_overrides

    settings, unchanged = node.settings, document.before
    if unchanged is None:
        return ()
    causes = [path for path in settings if path.startswith(SECTIONS) and path not in SIZES]
    now = _figures(document, node, kinds) if causes else {}
    found: dict[str, Consequence] = {}
    for cause in causes:
        others = [(path, value) for path, value in settings.items() if path != cause]
        before = _figures(apply_overrides(unchanged, others, []), node, kinds)
        for path, (text, what) in now.items():
            if path in before and before[path][0] != text and path not in settings:
                shown = f"{text} ({what})" if what else text
                found.setdefault(path, Consequence(path, shown, before[path][0], cause))
    return tuple(found.values())


def _figures(document: Document, node: Topology, kinds: Sequence[Topology]) -> Figures:
    """Return the figures of the cluster in a document; none if there is no such cluster."""
    from collsim.topology.cluster.plan import plan_cluster
    from collsim.topology.cluster.scale_out import resolve
    from collsim.topology.files.sections import collect_facts, read_sections

    spec = read_sections(document, [])
    if spec.scale_out is None:
        return {}
    labels = {**node.labels, "nic.model": spec.nic.model if spec.nic else ""}
    facts = collect_facts(spec, document)
    try:
        cluster, filled = resolve(spec.scale_out, replace(node, facts=facts, labels=labels), kinds)
        tiers = plan_cluster(cluster).tiers
    except InputError:
        return {}
    found: Figures = {
        "scale_out.routing": (cluster.routing, ""),
        "scale_out.rails": (str(cluster.rails), ""),
        "scale_out.tiers": (str(tiers), ""),
        "scale_out.in_network_reduction": (cluster.in_network_reduction or "none", ""),
    }
    for fact in (*facts, *filled):
        if fact.path.startswith(SECTIONS):
            bus = fact.status == "derived" and fact.unit == "B/s"
            found[fact.path] = (fact.text, fact.source.partition(",")[0] if bus else "")
    return found
