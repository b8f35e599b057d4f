"""A file that says only what differs from a shipped one: ``extends: hgx_h100``.

Everything but name, title and notes is inherited. A section is merged key by key, a figure and a list are replaced as a
whole. Inherited figures keep their status and source, and the file and line where they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collsim.topology.files.reader import Document, Path

__all__ = ["merge", "with_provenance"]

OWN = ("schema", "name", "title", "notes", "extends")
_PROVENANCE = ("status", "source", "note")
_LABELS = ("model", "type", "prefix", "name", "kind", "a", "b", "duplex", "node", "mix")


def merge(document: Document, base: Document) -> Document:
    """Return *document* with what it does not say filled in from *base*, whose sections are all valid."""
    data: dict[str, Any] = {}
    inherited: set[Path] = set()
    for key, value in _settled(base.data).items():
        if key not in document.data:
            data[key] = value
            inherited.add((key,))
        elif _is_section(value) and isinstance(document.data[key], dict):
            data[key] = value | document.data[key]
            inherited |= {(key, inner) for inner in value if inner not in document.data[key]}
    data = {**document.data, **data}
    origins = {path: base.place(path) for path in (*base.lines, *base.origins) if {path[:1], path[:2]} & inherited}
    return Document(document.file, data, document.lines, {**origins, **document.origins})


def with_provenance(item: Any, section: Any) -> Any:
    """Return an entry of ``links`` with the status and source of ``link:``, unless it has its own.

    >>> with_provenance({"a": "x", "b": "y"}, {"bandwidth": "25 GB/s", "status": "datasheet"})
    {'status': 'datasheet', 'a': 'x', 'b': 'y'}
    """
    if not isinstance(item, dict) or not isinstance(section, dict) or "status" in item or "source" in item:
        return item
    return {key: section[key] for key in ("status", "source") if key in section} | item


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) and "value" not in value


def _settled(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that can be inherited, with the status and source of each section written on its figures."""
    settled: dict[str, Any] = {}
    for key, value in data.items():
        if key in OWN:
            continue
        settled[key] = value
        if _is_section(value):
            settled[key] = {k: _figure(k, v, value) for k, v in value.items() if k not in _PROVENANCE}
        elif key == "links" and isinstance(value, list):
            settled[key] = [with_provenance(item, data.get("link")) for item in value]
    return settled


def _figure(key: str, value: Any, section: Mapping[str, Any]) -> Any:
    """Return the figure under *key* of a section with its status and source; a label as it is."""
    if key in _LABELS or "status" not in section or (isinstance(value, dict) and "status" in value):
        return value
    figure = value if isinstance(value, dict) else {"value": value}
    return {key: section[key] for key in ("status", "source") if key in section} | figure
