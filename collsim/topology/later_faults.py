"""What is wrong with single links and with the cluster around a node, told beside the faults of the node itself."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import replace

from collsim.core.errors import Fault
from collsim.topology.cluster.scale_out import section_faults
from collsim.topology.files.changed_links import name_faults
from collsim.topology.files.overrides import parse_path
from collsim.topology.files.reader import Document
from collsim.topology.files.sections import Spec, collect_facts

__all__ = ["around_faults", "later_faults"]


def later_faults(spec: Spec, document: Document) -> Iterator[Fault]:
    """Yield what can be told of single links and of the cluster around a node that has faults itself."""
    if spec.changes and spec.header is not None and spec.nodes and None not in spec.nodes:
        yield from name_faults([node.name for node in spec.nodes if node], spec.changes, document)
    yield from around_faults(spec, document)


def around_faults(spec: Spec, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with a cluster whatever the wiring of its node, as far as its sections can be read."""
    section = spec.scale_out
    n_gpus = sum(node.kind == "gpu" for _, node in spec.present())
    n_gpus = n_gpus or (int(spec.gpu.count.si) if spec.gpu and spec.gpu.count else 0)
    unread = [key for key in ("gpu", "nic", "scale_out") if key in document.data and getattr(spec, key) is None]
    if section is None or section.mix or unread or spec.header is None or not n_gpus:
        return
    name = spec.header.name or pathlib.PurePath(document.file).stem
    facts = {fact.path: fact for fact in collect_facts(spec, document) if fact.path.startswith("nic.")}
    for fault in section_faults(section, [(name, n_gpus)], [facts]):
        yield replace(fault, where=document.where(parse_path(fault.where) or (fault.where,)))
