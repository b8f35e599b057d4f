"""Clusters whose nodes differ: ``scale_out.mix`` names the kinds of nodes and how many there are of each.

All kinds have equally many GPUs that take part, with as many adapters for each; links, switches, rates of adapters and
everything else may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collsim.core.errors import Fault
from collsim.topology.model import Fact, Topology

if TYPE_CHECKING:
    from collsim.topology.cluster.spec import NodeKind
    from collsim.topology.files.reader import Document
    from collsim.topology.files.schema import ScaleOut

__all__ = ["as_one", "mix_faults", "own_section_faults"]

OUTSIDE = ("schema", "name", "title", "notes", "scale_out")
"""Keys that a file with a mix may have; figures of nodes stand in the files of the nodes."""


def own_section_faults(document: Document, overrides: Sequence[tuple[str, str]]) -> list[Fault]:
    """Return a fault for each figure of a node that a file with a mix, or an override, gives: of which kind is it?"""
    hint = "write a topology file for that node, and name it in the mix"
    faults = [
        Fault(f'"{key}" is of one node, and the nodes differ', document.where((key,)), hint)
        for key in document.data
        if key not in OUTSIDE
    ]
    return faults + [
        Fault(f'"{path}" is of one node, and the nodes differ', f"--set {path}", hint)
        for path, _ in overrides
        if path.partition(".")[0] not in OUTSIDE
    ]


def mix_faults(section: ScaleOut, kinds: Sequence[tuple[str, int]], adapters: Sequence[tuple[int, int]]) -> list[Fault]:
    """Return why nodes cannot be mixed, by the name and the GPUs of each kind.

    *adapters* are those of a GPU and the GPUs of one, for each kind.
    """
    faults = []
    sizes = sorted({n_gpus for _, n_gpus in kinds})
    if len(sizes) > 1 and section.gpus_per_node is None:
        what = f"nodes have {' and '.join(map(str, sizes))} GPUs, and equally many of each must take part"
        faults.append(Fault(what, "scale_out.gpus_per_node", f"write gpus_per_node: {sizes[0]}, or less"))
    faults += [
        Fault("the mix says which nodes there are", f"scale_out.{given}", "leave one of the two out")
        for given in ("node", "nodes")
        if getattr(section, given)
    ]
    for place, (kind, _) in enumerate(kinds[1:], start=1):
        if adapters[place] != adapters[0]:
            shown = [f"{per_gpu} for a GPU" if shared == 1 else f"1 for {shared} GPUs" for per_gpu, shared in adapters]
            what = f"{kind} has other adapters than {kinds[0][0]}: {shown[place]}, not {shown[0]}"
            faults.append(Fault(what, f"scale_out.mix[{place}].node", "mix nodes with as many adapters for each GPU"))
    return faults


def as_one(document_node: Topology, kinds: Sequence[Topology], counts: Sequence[NodeKind]) -> Topology:
    """Return one node topology for all kinds: the file's name, and of the kinds what holds for all of them.

    Switches reduce only if those of all nodes do.
    """
    facts = [replace(fact, path=f"mix[{place}].{fact.path}") for place, kind in enumerate(kinds) for fact in kind.facts]
    facts += [
        Fact(f"mix[{place}].nodes", str(kind.nodes), kind.nodes, "count", "user") for place, kind in enumerate(counts)
    ]
    keys = dict.fromkeys(key for kind in kinds for key in kind.labels if key not in ("extends", "notes"))
    labels = {key: " and ".join(dict.fromkeys(kind.labels.get(key, "none") for kind in kinds)) for key in keys}
    reductions = {kind.in_network_reduction for kind in kinds}
    return replace(
        document_node,
        facts=tuple(facts),
        labels=labels | {key: text for key, text in document_node.labels.items() if key == "notes"},
        in_network_reduction=reductions.pop() if len(reductions) == 1 else None,
        in_network_efficiency=min(kind.in_network_efficiency for kind in kinds),
    )
