"""XML as a tree with line numbers, read by the parser of the standard library with everything risky switched off.

A file that declares entities or a document type is refused before anything is expanded, and so is one that is nested
deeper or larger than any machine needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from collsim.core.errors import Fault, Faults, SpecError, did_you_mean

__all__ = ["Element", "read_xml"]

MOST_DEPTH = 64
MOST_ELEMENTS = 500_000
"""Elements of a file (chosen): an MSCCL algorithm of 8 ranks has 2,000, a topology dump 300."""


@dataclass(slots=True)
class Element:
    """An element: tag, attributes, the line where it begins, and what is inside."""

    tag: str
    attributes: dict[str, str]
    line: int
    file: str
    children: list[Element] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The place of its faults."""
        return f"{self.file}:{self.line}: <{self.tag}>"

    def walk(self) -> Iterator[Element]:
        """Yield it and everything inside, in the order of the file."""
        pending = [self]
        while pending:
            element = pending.pop()
            yield element
            pending += reversed(element.children)

    def every(self, tag: str) -> Iterator[Element]:
        """Yield all elements of a tag, at any depth."""
        return (element for element in self.walk() if element.tag == tag)

    def text(self, name: str, faults: Faults) -> str:
        """Return an attribute; a missing one is a fault."""
        if name not in self.attributes:
            near = did_you_mean(name, [*self.attributes])
            faults.append(Fault(f'attribute "{name}" is missing', self.where, f'{near}write {name}="..."'))
        return self.attributes.get(name, "")

    def number(self, name: str, faults: Faults, least: int = 0, default: int | None = None) -> int:
        """Return an attribute that counts; anything else is a fault, a missing one if there is no *default*."""
        if name not in self.attributes and default is not None:
            return default
        text = self.text(name, faults)
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            if name in self.attributes:
                what = f'{name}="{text[:40]}" is not a whole number of {least} or more'
                faults.append(Fault(what, self.where, f'such as {name}="{max(least, 1)}"'))
            return max(least, 0)
        return value


def read_xml(content: bytes, file: str, root: str) -> Element:
    """Return the tree in *content*, whose outermost element must be a *root*.

    Raises
    ------
    SpecError
        Not well-formed, with line and column; entities or a document type; nested too deep; another root.
    """
    reader = _Reader(file)
    try:
        reader.parser.Parse(content, True)
    except expat.ExpatError as error:
        what = f"not well-formed XML: {expat.ErrorString(error.code)}, column {error.offset + 1}"
        hint = "the file may be cut: copy it again as a whole"
        raise SpecError(Fault(what, f"{file}:{error.lineno}", hint)) from None
    except ValueError as error:  # an encoding that Python does not know
        raise SpecError(Fault(f"not readable as XML: {error}", file, "write it in UTF-8")) from None
    found = reader.top
    if found is None or found.tag != root:
        tag = "nothing" if found is None else f"<{found.tag}>"
        raise SpecError(Fault(f"the outermost element is {tag}, not <{root}>", f"{file}:1", f"begin with <{root} ...>"))
    return found


class _Reader:
    """The handlers of one parse."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.top: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser: Any = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = lambda _: self.open.pop()
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Open an element."""
        line = self.parser.CurrentLineNumber
        self.count += 1
        if len(self.open) >= MOST_DEPTH or self.count > MOST_ELEMENTS:
            limit = f"nested more than {MOST_DEPTH} levels deep" if self.count <= MOST_ELEMENTS else "too many elements"
            raise SpecError(Fault(limit, f"{self.file}:{line}", "no such file needs so many"))
        element = Element(tag, attributes, line, self.file)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.top = element
        self.open.append(element)

    def refuse(self, *_: Any) -> None:
        """Stop at a document type or an entity."""
        where = f"{self.file}:{self.parser.CurrentLineNumber}"
        raise SpecError(Fault("the file declares a document type or entities", where, "remove the <!DOCTYPE ...>"))
