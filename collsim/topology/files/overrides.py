"""Overrides, ``PATH=VALUE``, applied to the data of a file before it is checked, against the same schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from collsim.core.errors import Fault, nearest
from collsim.topology.files.figures import Figure
from collsim.topology.files.reader import Document, Path, show_path
from collsim.topology.files.schema import SECTIONS
from collsim.topology.files.sections import LISTS, Spec, collect_facts, field_models, read_sections

__all__ = [
    "apply_overrides",
    "as_before",
    "full_path",
    "known_paths",
    "normalise_overrides",
    "parse_path",
    "settled",
    "unknown_path",
    "with_later",
]

Overrides = Mapping[str, str] | Iterable[str | tuple[str, str]]

MAX_SHOWN = 16
_NOT_SETTABLE = ("status", "source", "note", "schema", "name", "a", "b", "node", "mix")
_ALIASES = {"fabric": "scale_out", "network": "scale_out"}
"""``fabric.oversubscription`` and ``network.switch_latency`` are figures of the cluster."""
_ELSEWHERE = {
    "nic.count": "nic.shared_by=2 is 4 adapters for 8 GPUs, nic.per_gpu=2 is 16",
    "gdr": "--env NCCL_NET_GDR_LEVEL=LOC turns GPUDirect off",
    "nvls": "--env NCCL_NVLS_ENABLE=0 turns NVLS off",
    "p2p": "--env NCCL_P2P_DISABLE=1 turns P2P off",
    "pxn": "--env NCCL_PXN_DISABLE=1 turns PXN off",
    "qps_per_connection": "--env NCCL_IB_QPS_PER_CONNECTION=4 sets it",
    "rail_forward": "collsim moe --forward rail forwards",
}
"""What says what people look for under other names, by path or by its last word."""
_FORMS = 'write {"link.bandwidth": "80 GB/s"} or ["link.bandwidth=80 GB/s"]'
_PART = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)((?:\[\d{1,9}\])?)", re.ASCII)


def normalise_overrides(overrides: Overrides, faults: list[Fault]) -> list[tuple[str, str]]:
    """Return overrides as (path, value) pairs; they may come as a mapping, pairs, or ``PATH=VALUE`` texts.

    >>> normalise_overrides(["link.bandwidth=80 GB/s"], [])
    [('link.bandwidth', '80 GB/s')]
    """
    pairs: list[tuple[str, str]] = []
    if isinstance(overrides, str):
        overrides = [overrides]
    if not isinstance(overrides, Iterable) or isinstance(overrides, bytes):
        faults.append(Fault(f"overrides cannot be of type {type(overrides).__name__}", "--set", _FORMS))
        return []
    for item in overrides.items() if isinstance(overrides, Mapping) else overrides:
        if isinstance(item, str):
            path, equals, value = item.partition("=")
            if not equals or not path.strip():
                faults.append(Fault(f'"{item[:60]}" is not PATH=VALUE', "--set", 'write link.bandwidth="80 GB/s"'))
                continue
            pairs.append((_full(path.strip()), value.strip()))
        elif isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str):
            pairs.append((_full(item[0].strip()), str(item[1]).strip()))
        else:
            faults.append(Fault(f"an override of type {type(item).__name__} is no pair of texts", "--set", _FORMS))
    return pairs


def _full(path: str) -> str:
    """Return a path with the name of its section written out."""
    section, dot, rest = path.partition(".")
    return f"{_ALIASES[section]}.{rest}" if dot and section in _ALIASES else path


def full_path(path: str) -> str:
    """Return the one spelling of a path: sections written out, no ``.value`` at its end.

    >>> full_path("fabric.nodes"), full_path("link.bandwidth.value")
    ('scale_out.nodes', 'link.bandwidth')
    """
    full = _full(path.strip())
    return show_path(parse_path(full) or (full,))


def settled(overrides: Overrides, scale_out: Mapping[str, Any] | None, faults: list[Fault]) -> list[tuple[str, str]]:
    """Return overrides followed by those that the keys of a cluster say.

    A figure to which two of them give two values is a fault that names both; to say one value twice is none.

    >>> faults = []
    >>> settled({"fabric.nodes": "4"}, {"nodes": 2}, faults)[1], faults[0].what
    (('scale_out.nodes', '2'), '--set scale_out.nodes=4 and --nodes 2 say two things')
    """
    said: dict[str, tuple[str, str]] = {}
    pairs = normalise_overrides(overrides, faults)
    cluster = [(key, str(value).strip()) for key, value in (scale_out or {}).items() if value is not None]
    words = [f"--set {path}={value}" for path, value in pairs]
    words += [f"--{key.replace('_', '-')} {value}" for key, value in cluster]
    pairs += [(f"scale_out.{key}", value) for key, value in cluster]
    for (path, value), written in zip(pairs, words, strict=True):
        before, where = said.setdefault(full_path(path), (value, written))
        if before != value:
            faults.append(Fault(f"{where} and {written} say two things", f"--set {path}", "keep one of the two"))
    return pairs


def with_later(overrides: Overrides, later: Overrides) -> list[str | tuple[str, str]]:
    """Return overrides and *later* ones, which go before those of the same figure.

    >>> with_later({"scale_out.nodes": "2"}, ["fabric.nodes=4"])
    ['fabric.nodes=4']
    """
    again = {full_path(path) for path, _ in normalise_overrides(later, [])}
    kept = _entries(overrides)
    return [entry for entry in kept if _path_of(entry) not in again] + _entries(later)


def _entries(overrides: Any) -> list[Any]:
    """Return overrides one by one, those that are none too: what is wrong with them is said later."""
    if isinstance(overrides, Mapping):
        return list(overrides.items())
    return list(overrides) if isinstance(overrides, list | tuple) else [overrides]


def _path_of(entry: Any) -> str:
    found = normalise_overrides([entry], [])
    return full_path(found[0][0]) if found else ""


def known_paths() -> dict[str, bool]:
    """Return every path that may be set; True where the value is a figure. List items are written ``links[i]``."""
    paths = {"title": False, "notes": False, "builder": False}
    for section, model in SECTIONS.items():
        if issubclass(model, Figure):
            paths[section] = True
            continue
        prefix = f"{section}[i]" if section in LISTS else section
        for key, inner in field_models(model).items():
            if key not in _NOT_SETTABLE:
                paths[f"{prefix}.{key}"] = inner is not None
    return paths


def unknown_path(text: str) -> Fault | None:
    """Return what is wrong with the path of an override; None if files may have such a figure."""
    known = known_paths()
    path = parse_path(text)
    pattern = re.sub(r"\[\d+\]", "[i]", show_path(path)) if path else text
    if path is not None and pattern in known:
        return None
    elsewhere = _ELSEWHERE.get(pattern) or _ELSEWHERE.get(pattern.rpartition(".")[2])
    if elsewhere is not None:
        return Fault(f'unknown path "{text[:60]}"', f"--set {text[:60]}", elsewhere)
    near = next((key for key in known if key.rpartition(".")[2] == pattern), None) or nearest(pattern, list(known))
    listed = ", ".join(key for key in known if key.split(".")[0] == pattern.split(".")[0]) or ", ".join(known)
    hint = f'did you mean "{near}"? known: {listed}' if near else f"known: {listed}"
    return Fault(f'unknown path "{text[:60]}"', f"--set {text[:60]}", hint)


def apply_overrides(document: Document, overrides: Iterable[tuple[str, str]], faults: list[Fault]) -> Document:
    """Return *document* with the overrides written in; the original is left as it is."""
    known = known_paths()
    data, origins = document.data, dict(document.origins)
    for text, value in overrides:
        path, fault = parse_path(text), unknown_path(text)
        if fault is not None:
            faults.append(fault)
        if fault is not None or path is None:
            continue
        pattern = re.sub(r"\[\d+\]", "[i]", show_path(path))
        try:
            data = _written(data, path, _Setting(value, known[pattern]))
        except IndexError:
            size = len(document.data.get(path[0], ()))
            faults.append(
                Fault(f"there is no {show_path(path[:2])}", f"--set {text}", f"the file has {size} {path[0]}")
            )
            continue
        origins[path] = f"--set {show_path(path)}"
    return Document(document.file, data, document.lines, origins, document)


def as_before(spec: Spec, document: Document, paths: Sequence[str]) -> frozenset[str]:
    """Return which of the *paths* of settings have the value, or the word, that they have without any setting.

    *spec* is what *document* says, which has the settings.
    """
    unchanged = document.before
    if not paths or unchanged is None:
        return frozenset()
    now = {fact.path: fact.value for fact in collect_facts(spec, document)}
    old = {fact.path: fact.value for fact in collect_facts(read_sections(unchanged, []), unchanged)}
    same = {path for path in paths if path in now and now[path] == old.get(path)}
    words = {path: parse_path(path) or () for path in paths if path not in now}
    return frozenset(same | {path for path, at in words.items() if _word(document, at) == _word(unchanged, at)})


def _word(document: Document, path: Path) -> str:
    """Return the text at a path of a document; nothing where there is none."""
    found: Any = document.data
    for part in path:
        inside = isinstance(found, dict) and part in found
        found = found[part] if inside or (isinstance(found, list) and isinstance(part, int)) else ""
    return str(found)


class _Setting:
    """A value to be written over an old one."""

    def __init__(self, value: str, is_figure: bool) -> None:
        self.value, self.is_figure = value, is_figure

    def over(self, old: Any, section: Any) -> Any:
        """Return the value or figure that replaces *old*, which stands in *section*."""
        if not self.is_figure:
            return self.value
        figure = {"value": self.value, "status": "set", "source": "--set"}
        around = section.get("status", "") if isinstance(section, dict) else ""
        status = old.get("status", around) if isinstance(old, dict) else around
        before = old.get("value") if isinstance(old, dict) else old
        if (
            isinstance(before, list)
            and len(before) <= MAX_SHOWN
            and all(isinstance(item, str | int) for item in before)
        ):
            before = f"[{', '.join(map(str, before))}]"
        if isinstance(before, str | int):
            figure["note"] = f"was {before}" + (f" ({status})" if status and isinstance(status, str) else "")
        return figure


def parse_path(text: str) -> Path | None:
    """Return ``links[3].bandwidth`` as ("links", 3, "bandwidth"), None if it is no path."""
    path: list[str | int] = []
    for part in text.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            return None
        path.append(match[1])
        if match[2]:
            path.append(int(match[2][1:-1]))
    return tuple(path[:-1] if len(path) > 2 and path[-1] == "value" else path)


def _written(data: Any, path: Path, setting: _Setting) -> Any:
    """Return *data* with the value at *path* replaced; only the containers on the way are copied."""
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        items = list(data) if isinstance(data, list) else []
        items[head] = _written(items[head], rest, setting)
        return items
    if data is not None and not isinstance(data, dict):
        return data  # a fault of the file, which the schema reports
    mapping = dict(data or {})
    old = mapping.get(head)
    mapping[head] = _written(old, rest, setting) if rest else setting.over(old, data)
    return mapping
