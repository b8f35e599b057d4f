"""Sections of a topology file, checked: every fault of every section at once, with place and nearest valid key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from collsim.core.errors import Fault, nearest
from collsim.topology.files.extending import with_provenance
from collsim.topology.files.figures import Figure, Reduction
from collsim.topology.files.models import Model, Problem, describe
from collsim.topology.files.reader import Document, Path, show_path
from collsim.topology.files.schema import (
    SCHEMA,
    SECTIONS,
    Cpu,
    ExplicitLink,
    Gpu,
    Header,
    Link,
    LinkChange,
    Nic,
    Node,
    ScaleOut,
    Section,
    Switch,
)
from collsim.topology.model import Fact

__all__ = ["LISTS", "Spec", "collect_facts", "field_models", "read_sections"]

ModelT = TypeVar("ModelT", bound=Model)

LISTS = ("nodes", "links", "changes")
_ADVICE = {
    "schema": f"start the file with the line: schema: {SCHEMA}",
    "builder": "write builder: full_mesh, switched or explicit",
    "bandwidth": 'write bandwidth: "64 GB/s" (per physical link and direction)',
    "a": "name the two ends: {a: gpu0, b: gpu1}",
    "b": "name the two ends: {a: gpu0, b: gpu1}",
    "name": "write name: gpu0",
    "value": 'write {value: "64 GB/s", status: measured, source: "..."} or the bare value',
}


@dataclass(slots=True)
class Spec:
    """The sections that are valid; a section that is absent or faulty is None."""

    header: Header | None = None
    gpu: Gpu | None = None
    link: Link | None = None
    switch: Switch | None = None
    cpu: Cpu | None = None
    nic: Nic | None = None
    in_network_reduction: Reduction | None = None
    scale_out: ScaleOut | None = None
    nodes: list[Node | None] = field(default_factory=list)
    links: list[ExplicitLink | None] = field(default_factory=list)
    changes: list[LinkChange | None] = field(default_factory=list)

    def sections(self) -> Iterator[tuple[Path, Section | Reduction]]:
        """Yield every valid section with its path."""
        for name in SECTIONS:
            part = getattr(self, name)
            if isinstance(part, list):
                yield from (((name, i), item) for i, item in enumerate(part) if item is not None)
            elif part is not None:
                yield (name,), part

    def present(self) -> list[tuple[int, Node]]:
        """Return the nodes of an explicit topology that are there, with their numbers.

        Of the GPUs these are the first ``gpu.count``, all if it is not given.
        """
        limit = self.gpu.count.si if self.gpu and self.gpu.count else math.inf
        nodes: list[tuple[int, Node]] = []
        n_gpus = 0
        for index, node in enumerate(self.nodes):
            n_gpus += node is not None and node.kind == "gpu"
            if node is not None and (node.kind != "gpu" or n_gpus <= limit):
                nodes.append((index, node))
        return nodes


def read_sections(document: Document, faults: list[Fault]) -> Spec:
    """Return the valid sections of *document*; append what is wrong with the others to *faults*."""
    spec = Spec()
    header = {key: value for key, value in document.data.items() if key not in SECTIONS}
    spec.header = _read(Header, header, (), document, faults)
    spec.gpu = _section(Gpu, "gpu", document, faults)
    spec.link = _section(Link, "link", document, faults)
    spec.switch = _section(Switch, "switch", document, faults)
    spec.cpu = _section(Cpu, "cpu", document, faults)
    spec.nic = _section(Nic, "nic", document, faults)
    spec.in_network_reduction = _section(Reduction, "in_network_reduction", document, faults)
    spec.scale_out = _section(ScaleOut, "scale_out", document, faults)
    spec.nodes = _list(Node, "nodes", document, faults)
    spec.links = _list(ExplicitLink, "links", document, faults, document.data.get("link") if spec.link else None)
    spec.changes = _list(LinkChange, "changes", document, faults)
    return spec


def collect_facts(spec: Spec, document: Document) -> tuple[Fact, ...]:
    """Return every figure of the valid sections with its provenance; what has no effect here is left out."""
    facts = []
    there = {node.name for _, node in spec.present()}
    for path, section in spec.sections():
        ends = {section.a, section.b} if isinstance(section, ExplicitLink) else set()
        if not ends <= there:
            continue
        if isinstance(section, Figure):
            facts.append(_fact(path, section, document))
            continue
        for key, figure in section.figures():
            if key in section.given or (path[0] not in LISTS and _is_used(spec, path[0], key)):
                facts.append(_fact((*path, key), figure, document))
    return tuple(facts)


def _is_used(spec: Spec, section: str | int, key: str) -> bool:
    """Return True if the default of a figure enters the arrays of this topology, or what is recorded of it."""
    builder = spec.header.builder if spec.header else ""
    if section == "link" and builder == "explicit" and key in ("latency", "efficiency"):
        return any(getattr(link, key) is None for link in spec.links if link)
    if section == "switch" and builder == "explicit" and key == "latency":
        return any(node.latency is None for node in spec.nodes if node and node.kind != "gpu")
    if section == "nic" and key == "per_gpu":
        return spec.nic is None or spec.nic.shared_by.si == 1
    only = {("link", "per_pair"): "full_mesh", ("switch", "links_per_plane"): "switched"}
    return (section, key) != ("nic", "shared_by") and only.get((str(section), key), builder) == builder


def _fact(path: Path, figure: Figure, document: Document) -> Fact:
    return Fact(
        path=show_path(path),
        text=figure.value.text,
        value=figure.si,
        unit=figure.unit,
        status=figure.status or "user",
        source=figure.source,
        note=figure.note,
        where="default" if figure.source.startswith("collsim default") else document.place(path),
    )


def _section(model: type[ModelT], name: str, document: Document, faults: list[Fault]) -> ModelT | None:
    if name not in document.data:
        return None
    return _read(model, document.data[name], (name,), document, faults)


def _list(
    model: type[ModelT], name: str, document: Document, faults: list[Fault], provenance: Any = None
) -> list[ModelT | None]:
    items = document.data.get(name, [])
    if not isinstance(items, list):
        faults.append(Fault(f"{describe(items)} where a list is needed", document.where((name,)), 'write "- " items'))
        return []
    return [
        _read(model, with_provenance(item, provenance), (name, index), document, faults)
        for index, item in enumerate(items)
    ]


def _read(model: type[ModelT], data: Any, path: Path, document: Document, faults: list[Fault]) -> ModelT | None:
    problems: list[Problem] = []
    made = model.read(data, path, problems)
    faults += [_explain(model, problem, document) for problem in problems]
    return made


def _explain(model: type[Model], problem: Problem, document: Document) -> Fault:
    """Return what is wrong with a section as a fault with its place in the file."""
    path = problem.path
    name = str(path[-1]) if path else ""
    if problem.kind == "unknown":
        valid = [*problem.valid, *SECTIONS] if model is Header else problem.valid
        near = nearest(name, valid)
        what = f'unknown key "{name[:60]}"' + (f'; did you mean "{near}"?' if near else "")
        return Fault(
            what, document.where(path).removesuffix(f": {show_path(path)}") + _inside(path[:-1]), _keys_hint(valid)
        )
    if problem.kind == "missing":
        where = document.where(path[:-1]) if path[:-1] else document.file
        return Fault(f'key "{name}" is missing', where, _ADVICE.get(name, f"add {name}"))
    return Fault(problem.what, document.where(path[:-1] if name == "value" else path), problem.hint)


def _inside(path: Path) -> str:
    return f": {show_path(path)}" if path else ""


def _keys_hint(valid: Sequence[str]) -> str:
    return f"valid keys: {', '.join(valid)}" if valid else ""


def field_models(model: type[Model]) -> dict[str, type[Model] | None]:
    """Return the key of every field with the class behind it, None for plain values."""
    return {name: None if each.is_list else each.model for name, each in model.keys.items()}
