"""Sections of a topology file, checked: every fault of every section at once, with place and nearest valid key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from collsim.core.errors import Fault, nearest
from collsim.topology.files.extending import with_provenance
from collsim.topology.files.figures import Figure, Reduction
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

ModelT = TypeVar("ModelT", bound=BaseModel)

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
            if key in section.model_fields_set or (path[0] not in LISTS and _is_used(spec, path[0], key)):
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
        faults.append(Fault(f"{_kind(items)} where a list is needed", document.where((name,)), 'write "- " items'))
        return []
    return [
        _read(model, with_provenance(item, provenance), (name, index), document, faults)
        for index, item in enumerate(items)
    ]


def _read(model: type[ModelT], data: Any, path: Path, document: Document, faults: list[Fault]) -> ModelT | None:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            inner = tuple(part for part in problem["loc"])
            faults.append(_explain(model, problem, (*path, *inner), len(path), document))
        return None


def _explain(model: type[BaseModel], problem: Any, path: Path, base: int, document: Document) -> Fault:
    """Return one pydantic error as a fault."""
    kind, context, given = problem["type"], problem.get("ctx", {}), problem["input"]
    key = str(path[-1]) if path else ""
    if kind == "extra_forbidden":
        valid = _valid_keys(model, path[base:-1])
        near = nearest(key, valid)
        what = f'unknown key "{key[:60]}"' + (f'; did you mean "{near}"?' if near else "")
        return Fault(
            what, document.where(path).removesuffix(f": {show_path(path)}") + _inside(path[:-1]), _keys_hint(valid)
        )
    if kind == "missing":
        where = document.where(path[:-1]) if path[:-1] else document.file
        return Fault(f'key "{key}" is missing', where, _ADVICE.get(key, f"add {key}"))
    if path and path[-1] == "value":
        path = path[:-1]
    if path == ("schema",):
        return Fault(f"schema {_kind(given)} is not supported", document.where(path), f"this version reads {SCHEMA}")
    if kind == "collsim":
        return Fault(context["what"], document.where(path), context["hint"])
    return Fault(*_generic(kind, context, given, document.where(path)))


def _generic(kind: str, context: Any, given: Any, where: str) -> tuple[str, str, str]:
    """Return text, place and hint of an error that pydantic found by itself."""
    if kind == "literal_error":
        expected = str(context["expected"])
        choices = [choice.strip().strip("'") for choice in expected.replace(" or ", ", ").split(",")]
        near = nearest(given, choices) if isinstance(given, str) else None
        hint = f'did you mean "{near}"? known: ' if near else "known: "
        grids = "; rings and tori are links under explicit, or NetworkX graphs" if "full_mesh" in choices else ""
        return f"{_kind(given)} is not a known value", where, hint + ", ".join(choices) + grids
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{_kind(given)} where a mapping is needed", where, 'write "key: value" lines below it'
    if kind.startswith("string") or kind == "string_pattern_mismatch":
        rule = context.get("pattern") if kind == "string_pattern_mismatch" else None
        hint = "use letters, digits and _ . : / - only" if rule else "write a word or a text in quotes"
        return f"{_kind(given)} is not a valid text here", where, hint
    if kind.startswith("bool"):
        return f"{_kind(given)} is neither true nor false", where, "write true or false"
    return f"{_kind(given)} is not valid here ({kind.replace('_', ' ')})", where, "see docs/topologies.md"


def _inside(path: Path) -> str:
    return f": {show_path(path)}" if path else ""


def _keys_hint(valid: Sequence[str]) -> str:
    return f"valid keys: {', '.join(valid)}" if valid else ""


def _valid_keys(model: type[BaseModel], inner: Path) -> list[str]:
    for part in inner:
        if isinstance(part, int):
            continue
        found = field_models(model).get(part)
        if found is None:
            return []
        model = found
    keys = [str(info.alias or name) for name, info in model.model_fields.items()]
    return keys + list(SECTIONS) if model is Header else keys


def field_models(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return the key of every field with the model behind it, None for plain values."""
    found: dict[str, type[BaseModel] | None] = {}
    for name, info in model.model_fields.items():
        options = (info.annotation, *get_args(info.annotation))
        models = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        found[str(info.alias or name)] = models[0] if models else None
    return found


def _kind(value: Any) -> str:
    """Return a short description of a value, never its whole content."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'"{text[:40]}..."' if len(text) > 40 else f'"{text}"'
