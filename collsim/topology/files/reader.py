"""The reader of YAML and JSON: bytes to plain data with a line number for every value.

The YAML that a specification needs is small: mappings, lists and scalars. It is read from the parser's events, so that
duplicate keys, several documents and runaway nesting are faults with a line, and nothing in a file can run code or
exhaust the stack. Numbers with a decimal point stay text, so that units can be read exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from collsim.core.errors import Fault, SpecError

__all__ = ["MAX_FILE_BYTES", "Document", "Path", "read_data", "read_document", "show_path"]

Path = tuple[str | int, ...]

MAX_FILE_BYTES = 8 * 2**20
MAX_ITEMS = 50_000
"""Entries of a list (chosen): read and checked in some seconds. A mesh of 300 GPUs has 44,850 links."""
MAX_DEPTH = 24
BY_COUNT = "describe regular systems by counts: full_mesh, switched and scale_out; or build a NetworkX graph in Python"
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_YAML_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one file and where each value stands."""

    file: str
    data: Any
    lines: dict[Path, int] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    """Values that do not come from the file, such as ``--set link.bandwidth``."""
    before: Document | None = None
    """The document without the overrides that are written into this one."""

    def place(self, path: Path) -> str:
        """Return ``file:line`` of the value at *path*, or of the nearest thing around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
            if path[:end] in self.lines:
                return f"{self.file}:{self.lines[path[:end]]}"
        return self.file

    def last_given(self, *paths: Path) -> Path:
        """Return of values that contradict each other the one that was given last, which its user can mend.

        A setting comes after the file, and the file after those that it extends; of equals the first one counts.
        """

        def age(path: Path) -> int:
            place = self.place(path)
            return 0 if place.startswith("--set") else 1 if place.startswith(f"{self.file}:") else 2

        return min((path for path in paths if path in self.origins or path in self.lines), key=age, default=paths[0])

    def beside(self, path: Path, key: str, value: int) -> str:
        """Return what to do about the value at *path*: give a figure of its section as well; and where that stands."""
        other = (*path[:-1], key)
        stands = f"; it stands at {self.place(other)}"
        if self.place(path).startswith("--set"):
            return f"set {show_path(other)} to {value} as well{stands}"
        return f'write "{key}: {value}" beside it{stands}'

    def where(self, path: Path) -> str:
        """Return ``file:line: path``, the *where* of a fault."""
        place, shown = self.place(path), show_path(path)
        return place if not shown or place.startswith("--set") else f"{place}: {shown}"


def show_path(path: Path) -> str:
    """Return a path as people write it.

    >>> show_path(("links", 3, "bandwidth"))
    'links[3].bandwidth'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def read_document(content: bytes, file: str, schema: str = "collsim.topology/1") -> Document:
    """Return the data in *content*; *file* and *schema* are for the messages.

    Raises
    ------
    SpecError
        If *content* is too large, not text, not YAML, empty, or not one mapping; duplicate keys are listed all.
    """
    document = read_data(content, file)
    data = document.data
    if data is None:
        raise SpecError(Fault("the file is empty", file, f"start with the line: schema: {schema}"))
    if not isinstance(data, dict):
        kind = "list" if isinstance(data, list) else "single value"
        hint = f'write "key: value" lines, starting with: schema: {schema}'
        raise SpecError(Fault(f"the file holds a {kind}, not a mapping", f"{file}:1", hint))
    return document


def read_data(content: bytes, file: str) -> Document:
    """Return the data in *content*, whatever they are; raise as `read_document` if they cannot be read."""
    text = _decode(content, file)
    reader = _Reader(file)
    try:
        data = reader.read(text)
    except _Stop as stop:
        raise SpecError(*reader.faults, stop.fault) from None
    if reader.faults:
        raise SpecError(*reader.faults)
    return Document(file, data, reader.lines)


def _decode(content: bytes, file: str) -> str:
    if len(content) > MAX_FILE_BYTES:
        limit = f"{MAX_FILE_BYTES // 2**20} MiB"
        raise SpecError(Fault(f"the file is larger than {limit}", file, BY_COUNT))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SpecError(Fault("not a text file in UTF-8", f"{file}:{line}", "give a YAML file")) from None
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        what = f"not a text file: it holds the control character U+{ord(control[0]):04X}"
        raise SpecError(Fault(what, f"{file}:{line}", "give a YAML file"))
    return text


class _Stop(Exception):  # noqa: N818 - not an error of its own, only the way out
    """Reading cannot go on after *fault*."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__()


class _Reader:
    """One pass over the events of the YAML parser."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.lines: dict[Path, int] = {}
        self.anchors: dict[str, Any] = {}

    def read(self, text: str) -> Any:
        """Return the only document of *text*, None if there is none."""
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents: list[Any] = []
        try:
            events = iter(yaml.parse(text, Loader=loader))
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent):
                    if documents:
                        hint = 'keep one in a file; remove the "---" line'
                        raise _Stop(self._fault("more than one document", event, hint))
                    documents.append(self._value(next(events), events, ()))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f"{self.file}:{mark.line + 1}" if mark is not None else self.file
            what = f"not valid YAML: {error.problem or error.context}"
            raise _Stop(Fault(what, line, "indent with spaces; put text with : or # in quotes")) from None
        except yaml.YAMLError as error:
            what = f"not valid YAML: {str(error).splitlines()[0]}"
            raise _Stop(Fault(what, self.file, "give a YAML file")) from None
        return documents[0] if documents else None

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> Any:
        import yaml

        self.lines.setdefault(path, _line(event))
        if len(path) > MAX_DEPTH:
            raise _Stop(self._fault(f"nested more than {MAX_DEPTH} levels deep", event, "four levels are enough"))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(event, events, path)
        else:
            value = self._mapping(event, events, path)
        if event.anchor:
            self.anchors[event.anchor] = value
        return value

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            what = f'alias "*{event.anchor}" has no anchor before it'
            raise _Stop(self._fault(what, event, f'write "&{event.anchor}" where the value is first given'))
        return self.anchors[event.anchor]

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        self._check_tag(event, "str", "int", "float", "bool", "null")
        if event.tag is not None or not event.implicit[0]:
            return text
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        return int(text) if _INTEGER.fullmatch(text) else text

    def _sequence(self, event: Any, events: Iterator[Any], path: Path) -> list[Any]:
        import yaml

        self._check_tag(event, "seq")
        items: list[Any] = []
        while not isinstance(entry := next(events), yaml.SequenceEndEvent):
            if len(items) == MAX_ITEMS:
                raise _Stop(self._fault(f"more than {MAX_ITEMS:,} entries", entry, BY_COUNT, path))
            items.append(self._value(entry, events, (*path, len(items))))
        return items

    def _mapping(self, event: Any, events: Iterator[Any], path: Path) -> dict[str, Any]:
        import yaml

        self._check_tag(event, "map")
        mapping: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise _Stop(self._fault("a key must be a word", key, 'write "key: value"'))
            name = key.value
            if name == "<<":
                raise _Stop(self._fault('merge keys ("<<") are not supported', key, "write the keys out"))
            inner = (*path, name)
            if name in mapping:
                first = self.lines[inner]
                what = f'key "{name}" appears twice; first on line {first}'
                self.faults.append(self._fault(what, key, "keep one of the two", path))
            self.lines.setdefault(inner, _line(key))
            mapping[name] = self._value(next(events), events, inner)
        return mapping

    def _check_tag(self, event: Any, *known: str) -> None:
        if event.tag not in (None, "!", *(_YAML_TAG + name for name in known)):
            raise _Stop(self._fault(f'tag "{event.tag}" is not supported', event, "remove the tag"))

    def _fault(self, what: str, event: Any, hint: str, path: Path = ()) -> Fault:
        where = f"{self.file}:{_line(event)}"
        return Fault(what, f"{where}: {show_path(path)}" if path else where, hint)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
